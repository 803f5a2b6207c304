//! From one schedule to several agents: a new function with pipelines and one region per agent.
//!
//! In: the placed function, the agent plan, the schedules and the buffer assignment. Out: a function in destination
//! form. Nothing is searched here: no II, no reservation table, no costs.
//!
//! An agent's region keeps its own ops and every loop or branch that contains one (projection). Channel ops stand
//! directly before the first use and after the last; iterators start at (0, 0) at kernel entry, are carried through all
//! loops and branches and never reset. Ops of a scheduled loop are emitted by increasing start, then program order; an
//! agent whose ops span more than one II keeps this flat order (legal with any depth, without overlap inside that
//! agent). Source: architecture page, "Projection", "Frame", "Channels"; specification pages 1 and 5.

mod agent;

use crate::agents::{Agent, AgentPlan};
use crate::buffers::channels::{Full, Publish};
use crate::buffers::{BufferAssignment, Bundle, WebId};
use crate::error::{Code, CodegenError, CodegenResult};
use crate::ir::opcodes::Traits;
use crate::ir::{AttrData, Block, Function, Layout, Op, Opcode, Space, TypeData, Value, keys};
use crate::schedule::ScheduleAnalysis;
use cranelift_entity::{EntityRef, SecondaryMap};

/// Everything the materialiser reads, and the function it builds.
pub(crate) struct Materializer<'a> {
    pub src: &'a Function,
    pub plan: &'a AgentPlan,
    pub analysis: &'a ScheduleAnalysis,
    pub buffers: &'a BufferAssignment,
    pub out: Function,
    /// Prologue values: kernel parameters and hoisted uniform ops.
    pub prologue: SecondaryMap<Value, Option<Value>>,
    /// Buffer value of each web.
    pub web_value: Vec<Option<Value>>,
    /// Producer and consumer end of each bundle.
    pub pipe: Vec<(Value, Value)>,
}

/// Builds the materialised function.
///
/// # Errors
/// `E07xx`, located, for placed IR that has no multi-agent form.
pub fn materialize(
    func: &Function,
    plan: &AgentPlan,
    analysis: &ScheduleAnalysis,
    buffers: &BufferAssignment,
) -> CodegenResult<Function> {
    let mut out = Function::new(func.name.clone());
    out.loc = func.loc;
    let mut m = Materializer {
        src: func,
        plan,
        analysis,
        buffers,
        out,
        prologue: SecondaryMap::new(),
        web_value: Vec::new(),
        pipe: Vec::new(),
    };
    m.prologue()?;
    m.allocations();
    m.pipelines();
    m.switch()?;
    m.kernel_attrs();
    sweep(&mut m.out);
    Ok(m.out)
}

impl Materializer<'_> {
    /// The same type in the new function.
    pub fn ty(&mut self, v: Value) -> crate::ir::Type {
        let data = self.src.value_data(v).clone();
        self.out.intern_type(data)
    }

    /// Clones an op with mapped operands; inherent attributes survive, results keep their names.
    pub fn clone_op(
        &mut self,
        block: Block,
        op: Op,
        map: &dyn Fn(Value) -> Option<Value>,
    ) -> CodegenResult<Op> {
        let f = self.src;
        let mut operands = Vec::with_capacity(f.operands(op).len());
        for &v in f.operands(op) {
            match map(v) {
                Some(x) => operands.push(x),
                None => {
                    let name = f.value_name(v).map_or_else(|| v.to_string(), |n| format!("%{n}"));
                    let m = format!(
                        "`{}` needs {name}, which another agent computes; this hand-over is unsupported",
                        f.opcode(op).name()
                    );
                    return Err(CodegenError::new(Code::E0702, f.op_loc(op), m));
                }
            }
        }
        let types: Vec<_> = f.results(op).to_vec().into_iter().map(|r| self.ty(r)).collect();
        let new = self.out.make_op(f.opcode(op), &operands, f.segments(op), &types, f.op_loc(op));
        self.copy_attrs(op, new);
        for (i, &r) in f.results(op).iter().enumerate() {
            if let Some(n) = f.value_name(r) {
                let v = self.out.results(new)[i];
                self.out.set_value_name(v, n);
            }
        }
        self.out.append_op(block, new);
        Ok(new)
    }

    /// Copies the inherent attributes.
    pub fn copy_attrs(&mut self, from: Op, to: Op) {
        for (k, a) in self.src.inherent(from).iter() {
            let key = self.out.intern_symbol(self.src.symbol(k));
            let data = self.translate(self.src.attr_data(a));
            self.out.set_attr(to, key, data);
        }
    }

    fn translate(&mut self, data: &AttrData) -> AttrData {
        let f = self.src;
        match data {
            AttrData::Name(s) => AttrData::Name(self.out.intern_symbol(f.symbol(*s))),
            AttrData::Array(list) => AttrData::Array(
                list.iter()
                    .map(|&a| {
                        let d = self.translate(f.attr_data(a));
                        self.out.intern_attr(d)
                    })
                    .collect(),
            ),
            AttrData::Call(s, list) => {
                let s = self.out.intern_symbol(f.symbol(*s));
                let list = list
                    .iter()
                    .map(|&a| {
                        let d = self.translate(f.attr_data(a));
                        self.out.intern_attr(d)
                    })
                    .collect();
                AttrData::Call(s, list)
            }
            AttrData::Type(t) => {
                let d = f.type_data(*t).clone();
                AttrData::Type(self.out.intern_type(d))
            }
            other => other.clone(),
        }
    }

    /// Parameters and the kernel-level uniform ops that depend on nothing else.
    fn prologue(&mut self) -> CodegenResult<()> {
        let f = self.src;
        let entry = self.out.entry();
        for &p in f.params() {
            let ty = self.ty(p);
            let v = self.out.add_block_param(entry, ty);
            if let Some(n) = f.value_name(p) {
                self.out.set_value_name(v, n);
            }
            self.prologue[p] = Some(v);
        }
        for op in f.block_ops(f.entry()) {
            let scalar = f
                .results(op)
                .iter()
                .all(|&r| matches!(f.value_data(r), TypeData::Scalar(_) | TypeData::TmaDesc { .. }));
            let ready = f.operands(op).iter().all(|&v| self.prologue[v].is_some());
            if is_uniform(f, self.plan, op) && scalar && ready && f.opcode(op) != Opcode::AllocTensor {
                let map = self.prologue.clone();
                let new = self.clone_op(entry, op, &|v| map[v])?;
                self.record(op, new, |m, v, n| m.prologue[v] = Some(n));
            }
        }
        Ok(())
    }

    fn record(&mut self, op: Op, new: Op, mut set: impl FnMut(&mut Self, Value, Value)) {
        for i in 0..self.src.results(op).len() {
            let (old, v) = (self.src.results(op)[i], self.out.results(new)[i]);
            set(self, old, v);
        }
    }

    /// One ring per web.
    fn allocations(&mut self) {
        let entry = self.out.entry();
        let owner = self
            .plan
            .agents
            .values()
            .find(|a| a.kind == crate::agents::AgentKind::Mma)
            .or_else(|| self.plan.agents.values().next())
            .map_or(0, |a| a.first_warp);
        for (id, w) in self.buffers.webs.iter() {
            let mut dims: smallvec::SmallVec<[u32; 4]> = smallvec::smallvec![w.slots];
            dims.extend(w.dims.iter().copied());
            let layout: Layout = w.layout;
            let ty = self.out.intern_type(TypeData::Tile {
                dims,
                elem: w.elem,
                space: Some(w.space),
                layout: Some(layout),
            });
            let loc = w.op.map_or(self.src.loc, |o| self.src.op_loc(o));
            let op = self.out.make_op(Opcode::AllocTensor, &[], &[], &[ty], loc);
            if w.space == Space::Tmem {
                self.out.set_int(op, keys::COLUMN, i64::from(w.at));
                self.out.set_int(op, keys::OWNER_WARP, i64::from(owner));
            } else {
                self.out.set_int(op, keys::OFFSET, i64::from(w.at));
                let align = w.layout.swizzle().map_or(1024, |s| s.alignment());
                self.out.set_int(op, keys::ALIGN, i64::from(align));
            }
            self.out.append_op(entry, op);
            let v = self.out.results(op)[0];
            let name = match w.space {
                Space::Tmem => format!("tD{}", id.0),
                _ => format!("s{}", id.0),
            };
            self.out.set_value_name(v, &name);
            self.web_value.push(Some(v));
        }
    }

    /// One `create_pipeline` per bundle.
    fn pipelines(&mut self) {
        let entry = self.out.entry();
        for (n, b) in self.buffers.bundles.iter().enumerate() {
            let buffers: Vec<Value> = b.webs.iter().filter_map(|w| self.web_value[w.0 as usize]).collect();
            let types = [
                self.out.intern_type(TypeData::PipeProducer(b.depth)),
                self.out.intern_type(TypeData::PipeConsumer(b.depth)),
            ];
            let loc = b.produce_ops.first().map_or(self.src.loc, |&o| self.src.op_loc(o));
            let op = self.out.make_op(
                Opcode::AsyncPipelineCreatePipeline,
                &buffers,
                &[buffers.len() as u32],
                &types,
                loc,
            );
            self.out.set_int(op, keys::NUM_STAGES, i64::from(b.depth));
            self.out.set_int(op, keys::PRODUCER_GROUP_ID, b.producer.index() as i64);
            let consumer = b.consumers.first().map_or(0, |c| c.agent.index());
            self.out.set_int(op, keys::CONSUMER_GROUP_ID, consumer as i64);
            self.out.set_int(op, keys::DISTANCE, 0);
            let full = match b.full {
                Full::Tx => self.call("tx", &[1, i64::from(b.slot_bytes(&self.buffers.webs))]),
                Full::Commit => self.call("commit", &[1]),
                Full::Arrive(n) => self.call("arrive", &[i64::from(n)]),
            };
            self.out.set_attr(op, keys::FULL, full);
            let empty = match b.once {
                true => AttrData::Name(self.out.intern_symbol("none")),
                false => {
                    let kind = match b.consumers.as_slice() {
                        [c] => match c.free {
                            crate::buffers::Free::Commit => "commit",
                            crate::buffers::Free::Arrive(_) => "arrive",
                            crate::buffers::Free::Bulk => "bulk",
                        },
                        _ => "arrive",
                    };
                    self.call(kind, &[i64::from(b.empty_count())])
                }
            };
            self.out.set_attr(op, keys::EMPTY, empty);
            if b.publish != Publish::None {
                let s = self.out.intern_symbol(if b.publish == Publish::Proxy { "proxy" } else { "tmem" });
                self.out.set_attr(op, keys::PUBLISH, AttrData::Name(s));
            }
            match b.named {
                Some(id) => self.out.set_int(op, keys::NAMED, i64::from(id)),
                None => self.out.set_int(op, keys::FULL_AT, i64::from(b.full_at)),
            }
            if let Some(at) = b.empty_at {
                self.out.set_int(op, keys::EMPTY_AT, i64::from(at));
            }
            self.out.append_op(entry, op);
            let (p, c) = (self.out.results(op)[0], self.out.results(op)[1]);
            self.out.set_value_name(p, &format!("Pipe_{n}.p"));
            self.out.set_value_name(c, &format!("Pipe_{n}.c"));
            self.pipe.push((p, c));
        }
    }

    fn call(&mut self, name: &str, args: &[i64]) -> AttrData {
        let s = self.out.intern_symbol(name);
        let args = args.iter().map(|&v| self.out.intern_attr(AttrData::Int(v, None))).collect();
        AttrData::Call(s, args)
    }

    fn switch(&mut self) -> CodegenResult<()> {
        let entry = self.out.entry();
        let op = self.out.make_op(Opcode::AsyncPipelineAgentSwitch, &[], &[], &[], self.src.loc);
        let agents: Vec<_> = self.plan.agents.iter().map(|(a, i)| (a, *i)).collect();
        let ints = |f: &dyn Fn(&crate::agents::AgentInfo) -> u32| {
            agents.iter().map(|(_, i)| i64::from(f(i))).collect::<Vec<_>>()
        };
        self.out.set_int(op, keys::NUM_AGENTS_PER_GROUP, 1);
        self.out.set_ints(op, keys::NUM_WARPS, &ints(&|i| i.warps));
        self.out.set_ints(op, keys::WARP_ID, &ints(&|i| i.first_warp));
        let lanes = agents
            .iter()
            .map(|(_, i)| {
                let s = self.out.intern_symbol(if i.elect { "elect" } else { "all" });
                self.out.intern_attr(AttrData::Name(s))
            })
            .collect();
        self.out.set_attr(op, keys::LANES, AttrData::Array(lanes));
        self.out.set_ints(op, keys::MAX_REGS, &ints(&|i| i.max_regs));
        self.out.append_op(entry, op);
        for (agent, _) in agents {
            let block = self.out.add_region(op);
            self.agent_region(agent, block)?;
        }
        let ret = self.out.make_op(Opcode::Return, &[], &[], &[], self.src.loc);
        self.out.append_op(entry, ret);
        Ok(())
    }

    fn kernel_attrs(&mut self) {
        let b = self.buffers;
        let mut set = |key, v: u32| {
            let a = self.out.intern_attr(AttrData::Int(i64::from(v), None));
            self.out.attrs.set(key, a);
        };
        set(keys::NUM_THREADS, self.plan.num_threads);
        set(keys::DYNAMIC_SMEM, b.dynamic_smem);
        if b.tmem_columns > 0 {
            set(keys::TMEM_COLUMNS, b.tmem_columns);
            set(keys::TMEM_BASE_AT, b.tmem_base_at);
        }
    }

    /// Bundles that write or read for an agent, with whether it produces.
    pub fn takes_part(&self, b: &Bundle, agent: Agent) -> bool {
        b.producer == agent || b.consumers.iter().any(|c| c.agent == agent)
    }

    /// The ring buffer of a web.
    pub fn ring(&self, w: WebId) -> Option<Value> {
        self.web_value.get(w.0 as usize).copied().flatten()
    }
}

/// Uniform ops belong to no agent and may be computed by all.
pub(crate) fn is_uniform(f: &Function, plan: &AgentPlan, op: Op) -> bool {
    plan.op_agent[op].is_none() && f.opcode(op).has(Traits::PURE) && f.regions(op).is_empty()
}

/// Removes pure ops without users, repeatedly.
fn sweep(f: &mut Function) {
    loop {
        let ops = f.all_ops();
        let mut used: SecondaryMap<Value, bool> = SecondaryMap::new();
        for &op in &ops {
            for &v in f.operands(op) {
                used[v] = true;
            }
        }
        let keep = |f: &Function, op: Op| {
            let code = f.opcode(op);
            let pure = code.has(Traits::PURE)
                || matches!(code, Opcode::AsyncPipelineCreateIterator | Opcode::AsyncPipelineIncIter);
            !pure || code == Opcode::AllocTensor || f.results(op).iter().any(|&r| used[r])
        };
        let dead: Vec<Op> = ops.into_iter().filter(|&op| !keep(f, op)).collect();
        if dead.is_empty() {
            return;
        }
        for op in dead {
            f.remove_op(op);
        }
    }
}
