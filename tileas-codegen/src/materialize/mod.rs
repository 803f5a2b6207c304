//! Materialisation: one placed, scheduled function becomes one region per agent, joined by pipelines.
//!
//! In: the placed function, agents, schedules, buffers. Out: a new [`Function`]: prologue (uniform ops, buffers,
//! pipelines), then `agent_switch`. Nothing is searched here: starts and depths are taken as they are.
//!
//! Solving order: an agent's instances are grouped per block; within a scheduled loop they run by time (R1; ties in program
//! order), split into local stages (R2); region ops are one instance each. Uniform ops belong to no agent and are
//! cloned. Steps: [`crate::buffers::needs`] (projection) → [`plan`] (order and channel ops of a block) → [`emit`] and
//! [`skew`] (code).
//!
//! What the ops say to later stages and to the verifier, besides what `docs/ops.md` lists:
//! - inherent `origin` (number of the placed op; a region op with one is the same region in every agent, a branch
//!   without one is a guard), `local` (local stage), `skew` (of a rolled loop);
//! - `create_pipeline`: `distance` d, `publish` (fence of the commit: `proxy` shared memory, `tmem`, `global` memory),
//!   no buffers = a token or, named `Mutex_n`, an exclusion; a buffer of one element a slot carries a scalar;
//! - `producer_commit` with `bulk_pending`: the issuing lane alone arrives, when its bulk stores are complete;
//! - a pipe with d > 0 is used in its home region and right outside of it: d productions before the loop (the first
//!   versions), d consumptions after it (the last ones);
//! - `dealt` and `async.pipeline.give_turn`: see `agents::turns`; what has a `stride`, or `instances`, each instance has for itself;
//! - two `alloc_tensor` may overlap: then every access to the one is complete before any to the other.
//!
//! [`verify`] checks the result on its own. Source: architecture, "From one schedule to several agents".

pub(crate) mod clusters;
pub mod emit;
pub(crate) mod grid;
mod groups;
mod peel;
pub mod plan;
pub mod skew;
mod turns;
pub mod verify;

use crate::agents::AgentPlan;
use crate::buffers::channels::Consumer;
use crate::buffers::memory::Own;
use crate::buffers::{BufferAssignment, Key, Pipe, PipeData, PipeKind, Web};
use crate::ddg::ScheduleAnalysis;
use crate::error::{CodegenResult, Loc};
use crate::ir::layouts::LANES;
use crate::ir::opcodes::Traits;
use crate::ir::{
    AttrData, Block, Function, Layout, Op, Opcode, PipeDef, Scalar, Signal, Space, Sym, TypeData, Value,
    keys, push_number,
};
use crate::storage::access::{Class, class_of, is_stored};
use cranelift_entity::SecondaryMap;
use cranelift_entity::packed_option::PackedOption;
use emit::{Emit, Known, Shared, internal, unsupported};
use smallvec::SmallVec;

/// Threads of an agent that arrive when it signals as a whole.
fn arrivals(plan: &AgentPlan, key: Key) -> i64 {
    let a = &plan.agents[key.agent];
    if a.elect || key.class == Class::Bulk { 1 } else { i64::from(a.warps * LANES) }
}

/// Whether the warps of a consumer use its slots as one: by products alone.
fn per_warp(func: &Function, plan: &AgentPlan, c: &Consumer) -> bool {
    let product = |op: &Op| func.regions(*op).is_empty() && class_of(func, plan, *op) == Class::Group;
    c.key.class == Class::Group && c.uses.iter().all(product)
}

/// Choices of the caller.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct MaterializeOptions {
    /// Most ops in the prologue and epilogue of a loop with local stages; a loop that would need more stays rolled,
    /// with a guard around each group of ops. 0: always rolled.
    pub max_peeled_ops: u32,
}

impl Default for MaterializeOptions {
    /// 128 ops: a tile op is some 64 instructions of a thread, and a multiprocessor caches some 8000.
    fn default() -> MaterializeOptions {
        MaterializeOptions { max_peeled_ops: 128 }
    }
}

/// Memory kept from one function to the next.
#[derive(Default)]
pub struct MaterializeScratch {
    /// A function that is no longer needed: its memory takes the next result.
    pub spare: Option<Function>,
    known: Known,
    ends: SecondaryMap<Pipe, [PackedOption<Value>; 2]>,
    buffers: SecondaryMap<Web, PackedOption<Value>>,
    number: SecondaryMap<Op, u32>,
    uses: SecondaryMap<Value, u32>,
    all: Vec<Op>,
    text: String,
}

/// Builds the materialised function, in the memory of one that is no longer needed.
///
/// # Errors
/// E0605 where registers cross agents, E0701 for constructs outside what the stage supports.
pub fn materialize_in(
    func: &Function,
    plan: &AgentPlan,
    sched: &ScheduleAnalysis,
    ba: &BufferAssignment,
    opts: MaterializeOptions,
    scratch: &mut MaterializeScratch,
) -> CodegenResult<Function> {
    let MaterializeScratch { spare, known, ends, buffers, number, uses, all, text } = scratch;
    let mut out = func.header_in(spare.take());
    let entry = out.entry();
    let needs = &ba.needs;
    number.clear();
    number.resize(func.num_ops());
    for (n, op) in func.ops().enumerate() {
        number[op] = n as u32;
    }
    ends.clear();
    buffers.clear();
    let mut sh = Shared { src: func, plan, sched, ba, ends, buffers, number, opts };

    // Uniform scalars and descriptors that any agent needs stand in the prologue.
    known.reset(func.num_values());
    for (&old, &new) in func.params().iter().zip(out.params()) {
        known.map[old] = new.into();
    }
    for op in func.block_ops(func.entry()) {
        let wanted = needs.values().any(|n| n.ops.contains(op))
            && plan.op_agent[op].is_none()
            && func.regions(op).is_empty()
            && func.results(op).iter().all(|&v| !func.value_data(v).is_tile())
            && func.operands(op).iter().all(|&v| known.map[v].is_some());
        if !wanted {
            continue;
        }
        let mut operands: SmallVec<[Value; 4]> = SmallVec::new();
        for &v in func.operands(op) {
            operands.push(known.map[v].expand().unwrap_or(v));
        }
        let mut types: SmallVec<[_; 2]> = SmallVec::new();
        for &v in func.results(op) {
            types.push(func.value_type(v));
        }
        let new = out.make_op(func.opcode(op), &operands, func.segments(op), &types, func.op_loc(op));
        *out.inherent_mut(new) = func.inherent(op).clone();
        out.append_op(entry, new);
        known.emitted.insert(op);
        for (i, &r) in func.results(op).iter().enumerate() {
            let v = out.results(new)[i];
            known.map[r] = v.into();
            if let Some(name) = func.value_sym(r) {
                out.set_value_sym(v, name);
            }
        }
    }
    allocate(&mut out, &mut sh, text);
    pipelines(&mut out, &mut sh, text)?;
    switch(&mut out, &sh, known)?;
    let ret = out.make_op(Opcode::Return, &[], &[], &[], func.loc);
    out.append_op(entry, ret);
    remove_dead(&mut out, uses, all);
    turns::deal(&mut out);
    groups::insert(&mut out);
    turns::mark(&mut out, plan, ba);
    let mut set = |key: Sym, value: u32| {
        let a = out.intern_attr(AttrData::Int(i64::from(value), None));
        out.attrs.set(key, a);
    };
    set(keys::NUM_THREADS, plan.num_threads);
    set(keys::DYNAMIC_SMEM, ba.memory.dynamic_smem);
    set(keys::TMEM_COLUMNS, ba.memory.tmem_columns);
    if ba.memory.tmem_columns > 0 {
        set(keys::TMEM_BASE_AT, ba.memory.tmem_base_at);
    }
    Ok(out)
}

/// Buffers of all webs.
fn allocate(out: &mut Function, sh: &mut Shared<'_>, text: &mut String) {
    let (entry, plan) = (out.entry(), sh.plan);
    // Tensor memory is allocated and freed by the first warp of the agent that issues multiplies.
    let owner = plan
        .agents
        .values()
        .find(|a| a.kind == crate::agents::AgentKind::Mma)
        .or_else(|| plan.agents.values().next())
        .map_or(0, |a| a.first_warp);
    let own = Own::of(plan, &sh.ba.webs, &sh.ba.pipes);
    let stride = i64::from(sh.ba.memory.stride);
    for (web, d) in sh.ba.webs.webs.iter() {
        let mut dims: SmallVec<[u32; 4]> = SmallVec::from_slice(&[d.slots]);
        dims.extend_from_slice(&d.dims);
        let ty = out.intern_type(TypeData::Tile {
            dims,
            elem: d.elem,
            space: Some(d.space),
            layout: Some(d.layout),
        });
        let loc = sh.src.defining_op(d.root).map_or(Loc::NONE, |op| sh.src.op_loc(op));
        let op = out.make_op(Opcode::AllocTensor, &[], &[], &[ty], loc);
        out.append_op(entry, op);
        if d.space == Space::Tmem {
            out.set_int(op, keys::COLUMN, i64::from(d.at));
            if let Some(lane) = d.lane {
                out.set_int(op, keys::LANE, i64::from(lane));
            }
            out.set_int(op, keys::OWNER_WARP, i64::from(owner));
        } else {
            out.set_int(op, keys::OFFSET, i64::from(d.at));
            out.set_int(op, keys::ALIGN, i64::from(d.alignment()));
        }
        if own.as_ref().is_some_and(|o| o.webs.contains(web)) {
            out.set_int(op, keys::STRIDE, stride);
        }
        let v = out.results(op)[0];
        // As it is displayed.
        text.clear();
        text.push('W');
        push_number(text, web.as_u32());
        out.set_value_name(v, text);
        sh.buffers[web] = v.into();
    }
    for x in &sh.ba.memory.scratch {
        let ty = out.intern_type(TypeData::Tile {
            dims: SmallVec::from_slice(&[1, x.bytes.div_ceil(4)]),
            elem: Scalar::I32,
            space: Some(Space::Smem),
            layout: Some(Layout::SmemRow),
        });
        let op = out.make_op(Opcode::AllocTensor, &[], &[], &[ty], sh.src.loc);
        out.append_op(entry, op);
        out.set_int(op, keys::OFFSET, i64::from(x.at));
        out.set_int(op, keys::SCRATCH, i64::from(x.agent.as_u32()));
        out.set_int(op, keys::NAMED, i64::from(x.named));
        if plan.dealt() == Some(x.agent) {
            out.set_int(op, keys::STRIDE, stride);
        }
        text.clear();
        text.push_str("scratch");
        push_number(text, x.agent.as_u32());
        out.set_value_name(out.results(op)[0], text);
    }
}

fn full_of(plan: &AgentPlan, p: &PipeData) -> Signal {
    match p.producer.class {
        Class::Tma => Signal::Tx { count: 1, bytes: i64::from(p.tx) },
        Class::Mma => Signal::Commit(1),
        Class::Sync | Class::Group | Class::Bulk => Signal::Arrive(arrivals(plan, p.producer)),
    }
}

fn empty_of(func: &Function, plan: &AgentPlan, p: &PipeData) -> Signal {
    let per = |c: &Consumer| if per_warp(func, plan, c) { LANES } else { 1 };
    let count = p.consumers.iter().map(|c| arrivals(plan, c.key) / i64::from(per(c))).sum();
    if !p.has_empty {
        Signal::None
    } else if p.consumers.iter().all(|c| c.key.class == Class::Bulk) {
        Signal::Bulk(count)
    } else if p.consumers.iter().any(|c| c.key.class == Class::Mma) {
        Signal::Commit(count)
    } else {
        Signal::Arrive(count)
    }
}

/// All pipelines.
fn pipelines(out: &mut Function, sh: &mut Shared<'_>, text: &mut String) -> CodegenResult<()> {
    let entry = out.entry();
    for (id, p) in sh.ba.pipes.iter() {
        let mut buffers: SmallVec<[Value; 4]> = SmallVec::new();
        if p.payload() {
            let mut webs: SmallVec<[Web; 4]> = SmallVec::from_slice(&p.webs);
            webs.sort_unstable();
            for w in webs {
                buffers.push(sh.buffers[w].expand().ok_or_else(|| internal("a web without buffer"))?);
            }
        }
        let types = [TypeData::PipeProducer(p.depth), TypeData::PipeConsumer(p.depth)];
        let types = types.map(|t| out.intern_type(t));
        let loc = p.events.first().map_or(Loc::NONE, |&op| sh.src.op_loc(op));
        let op =
            out.make_op(Opcode::AsyncPipelineCreatePipeline, &buffers, &[buffers.len() as u32], &types, loc);
        out.append_op(entry, op);
        let consumer = p.consumers.first().map_or(0, |c| c.key.agent.as_u32());
        let def = PipeDef {
            slots: i64::from(p.depth),
            producer: i64::from(p.producer.agent.as_u32()),
            consumer: i64::from(consumer),
            distance: i64::from(p.distance),
            full: full_of(sh.plan, p),
            empty: empty_of(sh.src, sh.plan, p),
            publish: p.publish,
            named: p.named.map(i64::from),
            full_at: p.named.is_none().then_some(i64::from(p.full_at)),
            empty_at: (p.has_empty && p.named.is_none()).then_some(i64::from(p.empty_at)),
            channel: Some(i64::from(id.as_u32())),
        };
        def.put(out, op);
        if let Some(agent) = sh.plan.dealt().filter(|&a| p.is_own(a)) {
            if p.named.is_none() {
                return Err(unsupported(
                    loc,
                    "an agent with instances that hands itself what no named barrier orders",
                ));
            }
            out.set_int(op, keys::INSTANCES, i64::from(sh.plan.agents[agent].instances));
        }
        for (side, suffix) in [".p", ".c"].into_iter().enumerate() {
            let v = out.results(op)[side];
            let kind = if p.kind == PipeKind::Mutex { "Mutex_" } else { "Pipe_" };
            text.clear();
            text.push_str(kind);
            push_number(text, id.as_u32());
            text.push_str(suffix);
            out.set_value_name(v, text);
            sh.ends[id][side] = v.into();
        }
    }
    Ok(())
}

/// The `agent_switch` with one region per agent.
fn switch(out: &mut Function, sh: &Shared<'_>, known: &mut Known) -> CodegenResult<()> {
    let plan = sh.plan;
    let op = out.make_op(Opcode::AsyncPipelineAgentSwitch, &[], &[], &[], sh.src.loc);
    let entry = out.entry();
    out.append_op(entry, op);
    out.set_int(op, keys::NUM_AGENTS_PER_GROUP, 1);
    let ints = |f: &dyn Fn(&crate::agents::AgentInfo) -> i64| {
        plan.agents.values().map(f).collect::<SmallVec<[i64; 8]>>()
    };
    out.set_ints(op, keys::NUM_WARPS, &ints(&|a| i64::from(a.warps)));
    out.set_ints(op, keys::WARP_ID, &ints(&|a| i64::from(a.first_warp)));
    let lanes: SmallVec<[_; 4]> = plan
        .agents
        .values()
        .map(|a| {
            let s = out.intern_symbol(if a.elect { "elect" } else { "all" });
            out.intern_attr(AttrData::Name(s))
        })
        .collect();
    out.set_attr(op, keys::LANES, AttrData::Array(lanes));
    out.set_ints(op, keys::MAX_REGS, &ints(&|a| i64::from(a.max_regs)));
    if plan.dealt().is_some() {
        out.set_ints(op, keys::INSTANCES, &ints(&|a| i64::from(a.instances)));
        out.set_int(op, keys::TURN_AT, i64::from(sh.ba.memory.turn_at));
    }
    for (agent, need) in sh.ba.needs.iter() {
        let block = out.add_region(op);
        let mut e = Emit::new(sh, out, agent, need, block, known);
        let before = e.enter();
        for n in 0..e.known.pipes.len() {
            let p = e.known.pipes[n];
            let d = &sh.ba.pipes[p];
            let side = usize::from(d.producer.agent != agent);
            let end = sh.ends[p][side].expand().ok_or_else(|| internal("a pipe without ends"))?;
            let ty = e.out.intern_type(TypeData::PipeIter(d.depth));
            let it = e.simple(Opcode::AsyncPipelineCreateIterator, &[end], ty);
            e.known.iters[p] = it.into();
        }
        let body = sh.src.entry();
        let steps = e.plain_plan(body);
        e.block(body, &steps)?;
        drain(&mut e)?;
        e.op(Opcode::AsyncPipelineYield, &[], &[], &[], Loc::NONE);
        e.leave(before);
    }
    Ok(())
}

/// Before the frame barrier, a producer whose slots are freed asynchronously waits until all are free again.
fn drain(e: &mut Emit<'_, '_>) -> CodegenResult<()> {
    for n in 0..e.known.pipes.len() {
        let p = e.known.pipes[n];
        let d = &e.sh.ba.pipes[p];
        let asynchronous = d.consumers.iter().any(|c| c.key.class == Class::Mma);
        if d.producer.agent != e.agent || !d.has_empty || !asynchronous {
            continue;
        }
        let ty = e.out.scalar(Scalar::I32);
        let (lo, hi, step) = (e.const_int(0, ty), e.const_int(i64::from(d.depth), ty), e.const_int(1, ty));
        let mut it = e.known.iters[p].expand().ok_or_else(|| internal(format!("no iterator for {p}")))?;
        let it_ty = e.out.value_type(it);
        if d.home == e.sh.src.entry() {
            // Nothing advanced it: the kernel body runs once.
            it = e.simple(Opcode::AsyncPipelineIncIter, &[it], it_ty);
        }
        let l = e.op(Opcode::For, &[lo, hi, step, it], &[1, 1, 1, 1], &[it_ty], Loc::NONE);
        let inner = e.out.add_region(l);
        let outer = std::mem::replace(&mut e.cur, inner);
        e.out.add_block_param(inner, ty);
        let arg = e.out.add_block_param(inner, it_ty);
        let end = e.sh.ends[p][0].expand().ok_or_else(|| internal("a pipe without ends"))?;
        let end_ty = e.out.value_type(end);
        let a = e.op(Opcode::AsyncPipelineProducerAcquire, &[end, arg], &[1, 1], &[end_ty], Loc::NONE);
        e.out.set_attr(a, keys::DRAIN, AttrData::Unit);
        let next = e.simple(Opcode::AsyncPipelineIncIter, &[arg], it_ty);
        e.op(Opcode::Yield, &[next], &[1], &[], Loc::NONE);
        e.cur = outer;
    }
    Ok(())
}

/// Removes pure ops whose results no op uses, and region ops that hold nothing and yield nothing.
fn remove_dead(out: &mut Function, uses: &mut SecondaryMap<Value, u32>, all: &mut Vec<Op>) {
    all.clear();
    all.extend(out.ops());
    uses.clear();
    uses.resize(out.num_values());
    for &op in all.iter() {
        for &v in out.operands(op) {
            uses[v] += 1;
        }
    }
    let empty_block = |out: &Function, b: Block| out.first_op(b) == out.last_op(b);
    for &op in all.iter().rev() {
        let o = out.opcode(op);
        let region = matches!(o, Opcode::For | Opcode::If);
        if !(region || o.has(Traits::PURE)) || !out.results(op).iter().all(|&v| uses[v] == 0) {
            continue;
        }
        let empty = region && out.regions(op).iter().all(|&r| empty_block(out, out.region_block(r)));
        let buffer = o == Opcode::AllocTensor && out.results(op).iter().any(|&v| is_stored(out, v));
        if empty || (o.has(Traits::PURE) && !buffer) {
            let mut drop = |v: Value| uses[v] = uses[v].saturating_sub(1);
            out.operands(op).iter().for_each(|&v| drop(v));
            for &r in out.regions(op) {
                if let Some(t) = out.last_op(out.region_block(r)) {
                    out.operands(t).iter().for_each(|&v| drop(v));
                }
            }
            out.remove_op(op);
        }
    }
}
