//! Writes one agent's region: ops in destination form, channel ops, projected loops and branches.
//!
//! In: the placed function, pipes and webs with their values in the new function, an agent and its [`Needs`].
//! Out: ops appended to the agent's block. Values are renamed through a map with an undo log, so that what is cloned
//! inside a region is not used outside it. Uniform ops are cloned in the block they stand in, before the first item
//! that follows them. Cost: linear in the ops emitted.

use super::MaterializeOptions;
use super::plan::{BlockPlan, Plans, Scope, Step, block_plan};
use crate::agents::{Agent, AgentPlan};
use crate::buffers::needs::{Needs, canonical, for_each_use};
use crate::buffers::{BufferAssignment, Pipe, PipeData, Web};
use crate::ddg::{LoopSchedule, ScheduleAnalysis};
use crate::error::{Code, CodegenError, CodegenResult, Loc};
use crate::ir::{AttrData, Block, Function, Op, Opcode, Scalar, Sym, Type, TypeData, Value, ValueDef, keys};
use crate::storage::access::{Class, accesses, is_constant, is_in_registers, is_name, is_stored};
use crate::storage::flag::{Flag, flag_for, flag_of};
use crate::storage::slice::{base_of, numbered_slice, slice_base};
use cranelift_entity::packed_option::PackedOption;
use cranelift_entity::{EntitySet, SecondaryMap};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// What all agents share.
pub struct Shared<'a> {
    /// The placed function.
    pub src: &'a Function,
    /// Agents.
    pub plan: &'a AgentPlan,
    /// Schedules.
    pub sched: &'a ScheduleAnalysis,
    /// Storage and pipes.
    pub ba: &'a BufferAssignment,
    /// Producer and consumer end of each pipe.
    pub ends: &'a mut SecondaryMap<Pipe, [PackedOption<Value>; 2]>,
    /// Buffer of each web.
    pub buffers: &'a mut SecondaryMap<Web, PackedOption<Value>>,
    /// Number of each op in the program order of the placed function: its `origin`.
    pub number: &'a SecondaryMap<Op, u32>,
    /// Choices of the caller.
    pub opts: MaterializeOptions,
}

/// A value that channel ops hand to each other.
#[derive(Copy, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Own {
    /// Result of the acquire.
    Acquired(Pipe),
    /// Result of the transaction commit.
    Announced(Pipe),
    /// Result of the wait of consumer n.
    Waited(Pipe, usize),
}

/// What an agent carries through a loop or out of the arms of a branch.
struct Carried {
    /// Indices of register values.
    values: SmallVec<[usize; 8]>,
    /// Indices of values whose flag is carried.
    flags: SmallVec<[usize; 8]>,
    /// Pipes whose iterators are.
    pipes: SmallVec<[Pipe; 8]>,
}

/// State of one agent's emission.
pub struct Emit<'a, 'b> {
    /// What all agents share.
    pub sh: &'b Shared<'a>,
    /// The new function.
    pub out: &'b mut Function,
    /// The agent.
    pub agent: Agent,
    /// What it needs.
    pub needs: &'b Needs,
    /// Where ops go.
    pub cur: Block,
    /// What is known so far.
    pub known: &'b mut Known,
}

/// What one agent's emission knows; the memory serves one agent after the other.
#[derive(Default)]
pub struct Known {
    /// Old value → new value.
    pub map: SecondaryMap<Value, PackedOption<Value>>,
    undo: Vec<(Value, PackedOption<Value>)>,
    /// Carried flags: canonical stored value → `i1`.
    pub flags: FxHashMap<Value, Value>,
    /// Current iterators.
    pub iters: SecondaryMap<Pipe, PackedOption<Value>>,
    /// Current ownership values.
    pub owned: FxHashMap<Own, Value>,
    /// Tokens of emitted ops.
    tokens: SecondaryMap<Op, PackedOption<Value>>,
    /// Flags computed before the loop over slices that asks for them.
    ahead: SmallVec<[(Flag, Value); 2]>,
    /// Uniform ops cloned so far in the blocks now open.
    pub emitted: EntitySet<Op>,
    /// What was added to `emitted` by the agent, in order.
    cloned: Vec<Op>,
    /// Pipes the agent takes part in.
    pub pipes: Vec<Pipe>,
    /// Memory of block plans.
    plans: Plans,
}

/// What was known at the beginning of a block; see [`Emit::enter`].
#[derive(Copy, Clone)]
pub struct Mark {
    bound: usize,
    cloned: usize,
}

impl Known {
    /// Forgets everything, for a function with that many values.
    pub fn reset(&mut self, values: usize) {
        self.map.clear();
        self.map.resize(values);
        self.emitted.clear();
        self.undo.clear();
        self.cloned.clear();
    }
}

impl<'a, 'b> Emit<'a, 'b> {
    /// The state in which an agent begins; `known` holds what the prologue computed.
    pub fn new(
        sh: &'b Shared<'a>,
        out: &'b mut Function,
        agent: Agent,
        needs: &'b Needs,
        cur: Block,
        known: &'b mut Known,
    ) -> Emit<'a, 'b> {
        known.flags.clear();
        known.iters.clear();
        known.owned.clear();
        known.tokens.clear();
        known.ahead.clear();
        let mine =
            |p: &PipeData| p.producer.agent == agent || p.consumers.iter().any(|c| c.key.agent == agent);
        known.pipes.clear();
        known.pipes.extend(sh.ba.pipes.iter().filter(|(_, p)| mine(p)).map(|(id, _)| id));
        Emit { sh, out, agent, needs, cur, known }
    }

    // ---- small builders

    /// Appends an op.
    pub fn op(&mut self, o: Opcode, operands: &[Value], segs: &[u32], types: &[Type], loc: Loc) -> Op {
        let op = self.out.make_op(o, operands, segs, types, loc);
        self.out.append_op(self.cur, op);
        op
    }

    /// Appends an op with one operand per segment and one result.
    pub fn simple(&mut self, o: Opcode, operands: &[Value], ty: Type) -> Value {
        let segs = SmallVec::<[u32; 4]>::from_elem(1, operands.len());
        let op = self.op(o, operands, &segs, &[ty], Loc::NONE);
        self.out.results(op)[0]
    }

    /// An integer constant.
    pub fn const_int(&mut self, value: i64, ty: Type) -> Value {
        let op = self.op(Opcode::Constant, &[], &[], &[ty], Loc::NONE);
        self.out.set_int(op, keys::VALUE, value);
        self.out.results(op)[0]
    }

    /// An integer comparison.
    pub fn cmp(&mut self, predicate: &str, a: Value, b: Value) -> Value {
        let i1 = self.out.scalar(Scalar::I1);
        let v = self.simple(Opcode::Cmpi, &[a, b], i1);
        let name = self.out.intern_symbol(predicate);
        if let Some(op) = self.out.defining_op(v) {
            self.out.set_attr(op, keys::PREDICATE, AttrData::Name(name));
        }
        v
    }

    /// Binds an old value; undone by [`Emit::leave`].
    pub fn bind(&mut self, old: Value, new: Value) {
        let before = std::mem::replace(&mut self.known.map[old], new.into());
        self.known.undo.push((old, before));
        if let Some(name) = self.sh.src.value_sym(old)
            && self.out.value_sym(new).is_none()
        {
            // The new function has the symbols of the old one.
            self.out.set_value_sym(new, name);
        }
    }

    /// Marks the bindings and clones.
    pub fn enter(&self) -> Mark {
        Mark { bound: self.known.undo.len(), cloned: self.known.cloned.len() }
    }

    /// Undoes bindings made since the mark, and forgets what was cloned.
    pub fn leave(&mut self, mark: Mark) {
        for (old, before) in self.known.undo.drain(mark.bound..).rev() {
            self.known.map[old] = before;
        }
        self.forget(mark);
    }

    /// Notes that a uniform op need not be cloned again.
    pub fn clone_made(&mut self, op: Op) {
        if self.known.emitted.insert(op) {
            self.known.cloned.push(op);
        }
    }

    /// Forgets what was cloned since the mark.
    pub fn forget(&mut self, mark: Mark) {
        for op in self.known.cloned.drain(mark.cloned..) {
            self.known.emitted.remove(op);
        }
    }

    /// The new value of an old one.
    pub fn get(&self, v: Value) -> CodegenResult<Value> {
        let unknown = || internal(format!("{v} is not available in agent {}", self.agent.as_u32()));
        self.known.map[v].expand().ok_or_else(unknown)
    }

    /// Notes where an op stems from and when its schedule lets it start: what the post-verifier checks the order (R1) by.
    pub fn origin(&mut self, new: Op, old: Op, local: u32) {
        self.note(new, keys::ORIGIN, self.sh.number[old]);
        let sched = self.sh.sched;
        if let Some(s) = &sched.loops[old] {
            self.note(new, keys::II, s.ii.max(1));
        }
        if let Some(s) = self.sh.src.op_parent(old).and_then(|l| sched.loops[l].as_deref()) {
            self.note(new, keys::START, s.start[old]);
        }
        self.local(new, local);
    }

    fn note(&mut self, op: Op, key: Sym, value: u32) {
        let a = self.out.intern_attr(AttrData::Int(i64::from(value), None));
        self.out.inherent_mut(op).set(key, a);
    }

    /// Notes the local stage.
    pub fn local(&mut self, new: Op, local: u32) {
        if local > 0 {
            self.note(new, keys::LOCAL, local);
        }
    }

    // ---- flags

    /// The value of a flag; `None` when it is always set.
    fn flag(&mut self, f: &Flag) -> CodegenResult<Option<Value>> {
        let src = self.sh.src;
        if let Some((_, v)) = self.known.ahead.iter().find(|(known, _)| known == f) {
            return Ok(Some(*v));
        }
        let i1 = self.out.scalar(Scalar::I1);
        Ok(Some(match f {
            Flag::Always => return Ok(None),
            Flag::Never => self.const_int(0, i1),
            Flag::NotFirst(l) => {
                let iv = src.op_block_at(*l, 0).and_then(|b| src.block_params(b).first().copied());
                let (Some(iv), Some(lo)) = (iv, src.named_operand(*l, "lower")) else {
                    return Err(internal("a loop without bounds"));
                };
                let (iv, lo) = (self.get(iv)?, self.get(lo)?);
                self.cmp("ne", iv, lo)
            }
            Flag::Trips(l) => {
                let (Some(lo), Some(hi)) = (src.named_operand(*l, "lower"), src.named_operand(*l, "upper"))
                else {
                    return Err(internal("a loop without bounds"));
                };
                let (lo, hi) = (self.get(lo)?, self.get(hi)?);
                self.cmp("gt", hi, lo)
            }
            Flag::Or(a, b) => match (self.flag(a)?, self.flag(b)?) {
                (Some(a), Some(b)) => self.simple(Opcode::Ori, &[a, b], i1),
                _ => return Ok(None),
            },
            Flag::Carried(v) => {
                let v = canonical(src, *v);
                *self.known.flags.get(&v).ok_or_else(|| internal("a carried flag is missing"))?
            }
        }))
    }

    /// The flag of a stored value as an `i1`, also when it is constant.
    fn flag_value(&mut self, v: Value, at: Op) -> CodegenResult<Value> {
        let f = flag_of(self.sh.src, v, at);
        match self.flag(&f)? {
            Some(v) => Ok(v),
            None => {
                let i1 = self.out.scalar(Scalar::I1);
                Ok(self.const_int(1, i1))
            }
        }
    }

    // ---- blocks

    /// Pipes this agent takes part in whose home is `block` or below it.
    pub fn pipes_below(&self, block: Block) -> SmallVec<[Pipe; 8]> {
        let src = self.sh.src;
        let below = |&p: &Pipe| {
            let mut b = Some(self.sh.ba.pipes[p].home);
            while let Some(x) = b.filter(|&x| x != block) {
                b = src.block_parent(x).and_then(|op| src.op_block(op));
            }
            b.is_some()
        };
        self.known.pipes.iter().copied().filter(below).collect()
    }

    /// Clones these uniform ops of `block`, as far as they are needed, up to `until`.
    pub fn uniforms(&mut self, block: Block, until: Option<Op>, which: &EntitySet<Op>) -> CodegenResult<()> {
        self.uniforms_from(block, None, until, |op| which.contains(op))
    }

    /// Clones the needed uniform ops of `block` up to `until`, where those before `done` are cloned.
    fn uniforms_from(
        &mut self,
        block: Block,
        done: Option<Op>,
        until: Option<Op>,
        which: impl Fn(Op) -> bool,
    ) -> CodegenResult<()> {
        let src = self.sh.src;
        let mut next = done.or_else(|| src.first_op(block));
        while let Some(op) = next.filter(|_| next != until) {
            next = src.next_op(op);
            let wanted = self.needs.ops.contains(op)
                && !self.needs.own_regions.contains(op)
                && !self.known.emitted.contains(op)
                && self.sh.plan.op_agent[op].is_none();
            if wanted && which(op) && self.at_hand(op) {
                self.clone_made(op);
                self.item(op, 0)?;
            }
        }
        Ok(())
    }

    /// Whether what a cloned op rests on has been read or received: a scalar from another agent arrives where it is
    /// first needed, which may be after this point, and one of its own is read where the order (R1) says.
    fn at_hand(&self, op: Op) -> bool {
        if !self.needs.clones_after_items {
            return true;
        }
        let src = self.sh.src;
        let inside = |v: Value| {
            let block = match src.value_def(v) {
                ValueDef::Result(d, _) => src.op_block(d),
                ValueDef::Param(b, _) => Some(b),
            };
            let around = |b: Block| src.block_parent(b).and_then(|p| src.op_block(p).map(|up| (p, up)));
            std::iter::successors(block, |&b| around(b).map(|x| x.1)).any(|b| src.block_parent(b) == Some(op))
        };
        let mut all = true;
        for_each_use(src, op, &mut |v| {
            all &= !self.needs.values.contains(v) || self.get(v).is_ok() || inside(v);
        });
        all
    }

    /// Emits a block without skew; the caller adds the terminator.
    pub fn block(&mut self, block: Block, plan: &BlockPlan) -> CodegenResult<()> {
        let mut done: Option<Op> = None;
        for &(local, step) in &plan.steps {
            if let Step::Item(op) = step {
                // What was passed is cloned, unless it had to wait for a scalar.
                let number = self.sh.number;
                if done.is_none_or(|d| number[d] < number[op]) {
                    self.uniforms_from(block, done, Some(op), |_| true)?;
                    done = Some(op).filter(|_| !self.needs.clones_after_items);
                }
            }
            self.step(step, local)?;
        }
        self.uniforms_from(block, done, None, |_| true)
    }

    /// What block plans are made from.
    pub fn scope(&self) -> Scope<'b> {
        let sh = self.sh;
        Scope {
            func: sh.src,
            plan: sh.plan,
            ba: sh.ba,
            needs: self.needs,
            agent: self.agent,
            number: sh.number,
        }
    }

    /// The plan of a block that is not scheduled.
    pub fn plain_plan(&mut self, block: Block) -> BlockPlan {
        self.plan(block, None, &[])
    }

    /// The plan of a block; `first` are further items that run at local stage 0 before all others.
    pub fn plan(&mut self, block: Block, sched: Option<&LoopSchedule>, first: &[Op]) -> BlockPlan {
        let scope = self.scope();
        block_plan(&scope, &self.known.pipes, &mut self.known.plans, block, sched, first)
    }

    fn end(&self, p: Pipe, side: usize) -> CodegenResult<Value> {
        self.sh.ends[p][side].expand().ok_or_else(|| internal("a pipe without ends"))
    }

    fn iter(&self, p: Pipe) -> CodegenResult<Value> {
        self.known.iters[p].expand().ok_or_else(|| internal(format!("no iterator for {p}")))
    }

    fn own(&self, o: Own) -> CodegenResult<Value> {
        self.known.owned.get(&o).copied().ok_or_else(|| internal(format!("{o:?} is not available")))
    }

    /// Emits one step.
    pub fn step(&mut self, step: Step, local: u32) -> CodegenResult<()> {
        let ba = self.sh.ba;
        match step {
            Step::Item(op) => return self.item(op, local),
            Step::Acquire(p) => {
                let (end, it) = (self.end(p, 0)?, self.iter(p)?);
                let ty = self.out.value_type(end);
                let op = self.op(Opcode::AsyncPipelineProducerAcquire, &[end, it], &[1, 1], &[ty], Loc::NONE);
                if ba.pipes[p].producer.class == Class::Bulk {
                    self.out.set_attr(op, keys::ISSUER, AttrData::Unit);
                }
                self.local(op, local);
                let v = self.out.results(op)[0];
                self.known.owned.insert(Own::Acquired(p), v);
            }
            Step::CommitTx(p) | Step::Commit(p) => {
                let w = self.own(Own::Acquired(p))?;
                let ty = self.out.value_type(w);
                let op = self.op(Opcode::AsyncPipelineProducerCommit, &[w], &[1], &[ty], Loc::NONE);
                self.local(op, local);
                if ba.pipes[p].producer.class == Class::Bulk {
                    // The token says that what the lane stored is there.
                    self.out.set_int(op, keys::BULK_PENDING, 0);
                }
                if step == Step::CommitTx(p) {
                    self.out.set_attr(
                        op,
                        keys::TX,
                        AttrData::Int(i64::from(ba.pipes[p].tx), Some(Scalar::I32)),
                    );
                    let v = self.out.results(op)[0];
                    self.known.owned.insert(Own::Announced(p), v);
                }
            }
            Step::Wait(p, n) => {
                let (end, it) = (self.end(p, 1)?, self.iter(p)?);
                let ty = self.out.value_type(end);
                let op = self.op(Opcode::AsyncPipelineConsumerWait, &[end, it], &[1, 1], &[ty], Loc::NONE);
                self.out.set_int(op, keys::CONSUMER_IDX, n as i64);
                if ba.pipes[p].consumers[n].key.class == Class::Bulk {
                    self.out.set_attr(op, keys::ISSUER, AttrData::Unit);
                }
                self.local(op, local);
                let v = self.out.results(op)[0];
                self.known.owned.insert(Own::Waited(p, n), v);
            }
            Step::Release(p, n, last, pending) => {
                let u = self.own(Own::Waited(p, n))?;
                let ty = self.out.value_type(u);
                let class = ba.pipes[p].consumers[n].key.class;
                let token = last
                    .filter(|_| !matches!(class, Class::Sync | Class::Group))
                    .and_then(|op| self.known.tokens[op].expand());
                let operands: SmallVec<[Value; 2]> = [Some(u), token].into_iter().flatten().collect();
                let segs = [1, u32::from(token.is_some())];
                let op = self.op(Opcode::AsyncPipelineConsumerRelease, &operands, &segs, &[ty], Loc::NONE);
                if class == Class::Bulk {
                    self.out.set_int(op, keys::BULK_PENDING, i64::from(pending));
                }
                if super::per_warp(self.sh.src, self.sh.plan, &ba.pipes[p].consumers[n]) {
                    self.out.set_attr(op, keys::PER_WARP, AttrData::Unit);
                }
                self.local(op, local);
            }
            Step::StoreWait => {
                let op = self.op(Opcode::AsyncPipelineStoreWait, &[], &[], &[], Loc::NONE);
                self.local(op, local);
            }
            Step::Inc(p) => {
                let it = self.iter(p)?;
                let ty = self.out.value_type(it);
                let op = self.op(Opcode::AsyncPipelineIncIter, &[it], &[1], &[ty], Loc::NONE);
                self.local(op, local);
                self.known.iters[p] = self.out.results(op)[0].into();
            }
        }
        Ok(())
    }

    /// Emits an op or a region op.
    pub fn item(&mut self, op: Op, local: u32) -> CodegenResult<()> {
        match self.sh.src.opcode(op) {
            Opcode::For => self.for_loop(op, local),
            Opcode::If => self.if_else(op, local),
            _ => self.leaf(op, local),
        }
    }

    // ---- leaves

    /// Buffer and slot of a web.
    fn slot(&mut self, web: Web) -> CodegenResult<(Value, Value)> {
        let buffer = self.sh.buffers[web].expand().ok_or_else(|| internal("a web without buffer"))?;
        let ba = self.sh.ba;
        let ring = self.known.pipes.iter().copied().find(|&p| {
            let d = &ba.pipes[p];
            !d.in_place() && d.webs.contains(&web)
        });
        let slot = match ring {
            Some(p) => self.iter(p)?,
            None if ba.webs.webs[web].slots == 1 => {
                let i32_ty = self.out.scalar(Scalar::I32);
                self.const_int(0, i32_ty)
            }
            None => return Err(internal(format!("{web} has slots but no ring in this agent"))),
        };
        Ok((buffer, slot))
    }

    fn web_of(&self, v: Value) -> CodegenResult<Web> {
        let base = base_of(self.sh.src, v);
        self.sh.ba.webs.of[base].expand().ok_or_else(|| internal(format!("{v} has no storage")))
    }

    fn set_offsets(&mut self, new: Op, old: Op, v: Value) {
        let (_, mut offsets) = slice_base(self.sh.src, v);
        for (o, add) in offsets.iter_mut().zip(self.sh.src.attr_ints(old, keys::OFFSETS).unwrap_or_default())
        {
            *o += add;
        }
        self.out.set_ints(new, keys::OFFSETS, &offsets);
    }

    fn token_type(&mut self) -> Type {
        self.out.intern_type(TypeData::AsyncToken)
    }

    fn leaf(&mut self, old: Op, local: u32) -> CodegenResult<()> {
        let src = self.sh.src;
        let loc = src.op_loc(old);
        if let Some(&scalar) = src.results(old).first()
            && let Some(web) =
                self.sh.ba.webs.of[scalar].expand().filter(|&w| self.sh.ba.webs.webs[w].is_scalar())
        {
            return self.scalar(old, scalar, web, local);
        }
        let touched = accesses(src, old);
        if touched.is_empty() {
            return self.plain(old, local);
        }
        let mut operands: SmallVec<[Value; 8]> = SmallVec::new();
        let named =
            |n: &str| src.named_operand(old, n).ok_or_else(|| internal(format!("operand {n} is missing")));
        let new = match src.opcode(old) {
            Opcode::AsyncTiledTmaLoad => {
                let web = self.web_of(src.results(old)[0])?;
                let ba = self.sh.ba;
                let pipe = ba.pipes.iter().find(|(_, p)| {
                    p.payload() && p.tx > 0 && p.producer.agent == self.agent && p.webs.contains(&web)
                });
                let Some((pipe, _)) = pipe else {
                    return Err(unsupported(loc, "a TMA load whose tile no op reads"));
                };
                let barrier = self.own(Own::Announced(pipe))?;
                operands.push(self.get(named("desc")?)?);
                let coords = src.named_segment(old, "coords");
                for &c in coords {
                    operands.push(self.get(c)?);
                }
                let (buffer, slot) = self.slot(web)?;
                operands.extend([buffer, slot, barrier]);
                let ty = self.token_type();
                self.op(Opcode::AsyncTiledTmaLoad, &operands, &[1, coords.len() as u32, 1, 1, 1], &[ty], loc)
            }
            Opcode::AsyncTiledTmaStore => {
                operands.push(self.get(named("desc")?)?);
                let coords = src.named_segment(old, "coords");
                for &c in coords {
                    operands.push(self.get(c)?);
                }
                if numbered_slice(src, named("source")?).is_some() {
                    return Err(unsupported(loc, "a store of a slice by number"));
                }
                let web = self.web_of(named("source")?)?;
                let (buffer, slot) = self.slot(web)?;
                operands.extend([buffer, slot]);
                let ty = self.token_type();
                self.op(Opcode::AsyncTiledTmaStore, &operands, &[1, coords.len() as u32, 1, 1], &[ty], loc)
            }
            Opcode::AsyncDot => {
                let mut stages = [1, 1];
                for (n, stage) in ["a", "b"].into_iter().zip(&mut stages) {
                    let v = named(n)?;
                    if is_in_registers(src, v) {
                        operands.push(self.get(v)?);
                        *stage = 0;
                        continue;
                    }
                    if slice_base(src, v).1.iter().any(|&o| o != 0) || numbered_slice(src, v).is_some() {
                        return Err(unsupported(
                            loc,
                            "a dot of a slice that does not start at its tile's origin",
                        ));
                    }
                    let web = self.web_of(v)?;
                    let (buffer, slot) = self.slot(web)?;
                    operands.extend([buffer, slot]);
                }
                if is_in_registers(src, src.results(old)[0]) {
                    operands.push(self.get(named("acc")?)?);
                    let counts = src.named_segment(old, "accumulate");
                    for &v in counts {
                        operands.push(self.get(v)?);
                    }
                    let ty = src.value_type(src.results(old)[0]);
                    let segs = [1, stages[0], 1, stages[1], 1, 0, counts.len() as u32];
                    let new = self.op(Opcode::AsyncDot, &operands, &segs, &[ty], loc);
                    self.copy_attrs(new, old);
                    self.origin(new, old, local);
                    let v = self.out.results(new)[0];
                    self.bind(src.results(old)[0], v);
                    return Ok(());
                }
                let web = self.web_of(src.results(old)[0])?;
                let (buffer, slot) = self.slot(web)?;
                let accumulate = match flag_for(src, old) {
                    Some(f) => self.flag(&f)?,
                    None => None,
                };
                operands.extend([buffer, slot]);
                operands.extend(accumulate);
                let ty = self.token_type();
                let segs = [1, 1, 1, 1, 1, 1, u32::from(accumulate.is_some())];
                self.op(Opcode::AsyncDot, &operands, &segs, &[ty], loc)
            }
            Opcode::Copy => return self.copy(old, local),
            o => return Err(unsupported(loc, format!("{} on a stored tile", o.name()))),
        };
        self.copy_attrs(new, old);
        self.origin(new, old, local);
        let token = self.out.results(new)[0];
        self.known.tokens[old] = token.into();
        Ok(())
    }

    /// A scalar that travels between agents: its agent computes and writes it, the others read it.
    fn scalar(&mut self, old: Op, scalar: Value, web: Web, local: u32) -> CodegenResult<()> {
        let loc = self.sh.src.op_loc(old);
        let (buffer, slot) = self.slot(web)?;
        if self.sh.plan.op_agent[old].expand() == Some(self.agent) {
            self.plain(old, local)?;
            let v = self.get(scalar)?;
            let write = self.op(Opcode::Copy, &[v, buffer, slot], &[1, 0, 1, 1, 0, 0], &[], loc);
            self.origin(write, old, local);
        } else {
            let ty = self.sh.src.value_type(scalar);
            let read = self.op(Opcode::Copy, &[buffer, slot], &[1, 1, 0, 0, 0, 0], &[ty], loc);
            self.origin(read, old, local);
            let v = self.out.results(read)[0];
            self.bind(scalar, v);
        }
        Ok(())
    }

    fn copy_attrs(&mut self, new: Op, old: Op) {
        *self.out.inherent_mut(new) = self.sh.src.inherent(old).clone();
    }

    fn copy(&mut self, old: Op, local: u32) -> CodegenResult<()> {
        let src = self.sh.src;
        let loc = src.op_loc(old);
        let source = src.named_operand(old, "source").ok_or_else(|| internal("a copy without source"))?;
        let dest = src.named_operand(old, "dest");
        let result = src.results(old).first().copied();
        let target = dest.or(result).ok_or_else(|| internal("a copy without target"))?;
        let reads = is_stored(src, source);
        let base = base_of(src, source);
        if reads && is_constant(src, base) {
            // A constant occupies no memory: reading it is a constant in registers.
            let (Some(r), Some(c)) = (result, src.defining_op(base)) else {
                return Err(unsupported(loc, "a copy of a stored constant to a buffer"));
            };
            let ty = src.value_type(r);
            let new = self.op(Opcode::Constant, &[], &[], &[ty], loc);
            self.copy_attrs(new, c);
            self.origin(new, old, local);
            let v = self.out.results(new)[0];
            self.bind(r, v);
            return Ok(());
        }
        let mut operands: SmallVec<[Value; 5]> = SmallVec::new();
        let mut segs = [1, 0, 0, 0, 0, 0];
        let mut types: SmallVec<[Type; 1]> = SmallVec::new();
        let mut when = None;
        let number = numbered_slice(src, source);
        if let Some((slice, _)) = number {
            let columns = |v: Option<Value>| v.and_then(|v| src.value_data(v).dims()?.last().copied());
            let whole = columns(src.result(slice)) == columns(result) && dest.is_none();
            if !whole || numbered_slice(src, src.operands(slice)[0]).is_some() {
                return Err(unsupported(loc, "a copy of a part of a slice by number"));
            }
        }
        if reads {
            let web = self.web_of(source)?;
            let (buffer, slot) = self.slot(web)?;
            operands.extend([buffer, slot]);
            segs[1] = 1;
            if let Some(f) = flag_for(src, old) {
                when = self.flag(&f)?;
            }
        } else {
            operands.push(self.get(source)?);
        }
        let writes = is_stored(src, target);
        if writes {
            let web = self.web_of(target)?;
            let (buffer, slot) = self.slot(web)?;
            operands.extend([buffer, slot]);
            (segs[2], segs[3]) = (1, 1);
        } else if let Some(r) = result {
            types.push(src.value_type(r));
        }
        operands.extend(when);
        segs[4] = u32::from(when.is_some());
        if let Some((_, number)) = number {
            operands.push(self.get(number)?);
            segs[5] = 1;
        }
        let new = self.op(Opcode::Copy, &operands, &segs, &types, loc);
        self.copy_attrs(new, old);
        if reads {
            self.set_offsets(new, old, source);
        } else if writes && (src.has_attr(old, keys::OFFSETS) || base_of(src, target) != target) {
            self.set_offsets(new, old, target);
        }
        if when.is_some() {
            self.out.set_attr(new, keys::OTHERWISE, Function::float_attr(0.0));
        }
        self.origin(new, old, local);
        if let (Some(r), Some(&v)) = (result.filter(|_| !writes), self.out.results(new).first()) {
            self.bind(r, v);
        }
        Ok(())
    }

    /// Clones an op that touches no buffer.
    fn plain(&mut self, old: Op, local: u32) -> CodegenResult<()> {
        let src = self.sh.src;
        if is_name(src, old) {
            return Ok(());
        }
        let mut operands: SmallVec<[Value; 8]> = SmallVec::new();
        for &v in src.operands(old) {
            operands.push(self.get(v)?);
        }
        let types: SmallVec<[Type; 2]> = src.results(old).iter().map(|&v| src.value_type(v)).collect();
        let new = self.op(src.opcode(old), &operands, src.segments(old), &types, src.op_loc(old));
        self.copy_attrs(new, old);
        if self.sh.plan.op_agent[old].is_some() {
            self.origin(new, old, local);
        }
        for (i, &r) in src.results(old).iter().enumerate() {
            let v = self.out.results(new)[i];
            self.bind(r, v);
        }
        Ok(())
    }

    // ---- regions

    /// Indices of the register arguments this agent carries through a loop.
    pub fn carried_args(&self, op: Op) -> SmallVec<[usize; 8]> {
        let args = self.sh.src.for_args(op);
        (0..args.len()).filter(|&i| self.needs.values.contains(args[i])).collect()
    }

    /// Indices of the arguments whose flag this agent carries through a loop.
    pub fn carried_flags(&self, op: Op) -> SmallVec<[usize; 8]> {
        let args = self.sh.src.for_args(op);
        (0..args.len()).filter(|&i| self.needs.flags.contains(args[i])).collect()
    }

    /// Appends the yield of region `n` of an op: what the agent carries out of it.
    fn yield_carried(&mut self, op: Op, n: usize, carried: &Carried) -> CodegenResult<()> {
        let src = self.sh.src;
        let yields = src.region_yields(op, n);
        let mut out: SmallVec<[Value; 8]> = SmallVec::new();
        for &i in &carried.values {
            out.push(self.get(yields[i])?);
        }
        let end = src.terminator(op, n).ok_or_else(|| internal("a region without terminator"))?;
        for &i in &carried.flags {
            let v = self.flag_value(yields[i], end)?;
            out.push(v);
        }
        for &p in &carried.pipes {
            out.push(self.iter(p)?);
        }
        self.op(Opcode::Yield, &out, &[out.len() as u32], &[], Loc::NONE);
        Ok(())
    }

    /// What is carried is known by `new` from here on: `values` by the old values, `flags` by the values they belong to.
    fn take_carried(&mut self, carried: &Carried, values: &[Value], flags: &[Value], new: &[Value]) {
        let mut next = new.iter().copied();
        for &i in &carried.values {
            if let (Some(&old), Some(v)) = (values.get(i), next.next()) {
                self.bind(old, v);
            }
        }
        for &i in &carried.flags {
            if let (Some(&old), Some(v)) = (flags.get(i), next.next()) {
                self.known.flags.insert(old, v);
            }
        }
        for &p in &carried.pipes {
            self.known.iters[p] = next.next().into();
        }
    }

    fn for_loop(&mut self, op: Op, local: u32) -> CodegenResult<()> {
        let src = self.sh.src;
        let body = src.op_block_at(op, 0).ok_or_else(|| internal("a loop without body"))?;
        let sched = self.sh.sched.loops[op].as_deref();
        let plan = self.plan(body, sched, &[]);
        if plan.skew > 0 {
            return super::skew::skewed_loop(self, op, body, local);
        }
        let carried = Carried {
            values: self.carried_args(op),
            flags: self.carried_flags(op),
            pipes: self.pipes_below(body),
        };
        let inits = src.named_segment(op, "inits");
        let mut operands: SmallVec<[Value; 8]> = SmallVec::new();
        for name in ["lower", "upper", "step"] {
            let v = src.named_operand(op, name).ok_or_else(|| internal("a loop without bounds"))?;
            operands.push(self.get(v)?);
        }
        for &i in &carried.values {
            operands.push(self.get(inits[i])?);
        }
        for &i in &carried.flags {
            let v = self.flag_value(inits[i], op)?;
            operands.push(v);
        }
        for &p in &carried.pipes {
            operands.push(self.iter(p)?);
        }
        let slices = src.is_slice_loop(op);
        if slices {
            self.flags_ahead(body)?;
        }
        let types: SmallVec<[Type; 8]> = operands[3..].iter().map(|&v| self.out.value_type(v)).collect();
        let iv_ty = self.out.value_type(operands[0]);
        let new = self.op(Opcode::For, &operands, &[1, 1, 1, types.len() as u32], &types, src.op_loc(op));
        self.copy_attrs(new, op);
        self.origin(new, op, local);
        if self.sh.plan.agents[self.agent].instances > 1
            && src.op_block(op) == Some(src.entry())
            && src.block_ops(body).any(|o| !src.regions(o).is_empty())
        {
            self.out.set_attr(new, keys::DEALT, AttrData::Unit);
        }
        let inner = self.out.add_region(new);
        let outer = std::mem::replace(&mut self.cur, inner);
        let mark = self.enter();
        let iv = self.out.add_block_param(inner, iv_ty);
        if let Some(&old) = src.block_params(body).first() {
            self.bind(old, iv);
        }
        let params: SmallVec<[Value; 8]> =
            types.iter().map(|&t| self.out.add_block_param(inner, t)).collect();
        let args = src.for_args(op);
        self.take_carried(&carried, args, args, &params);
        self.block(body, &plan)?;
        self.yield_carried(op, 0, &carried)?;
        self.leave(mark);
        self.cur = outer;
        if slices {
            self.known.ahead.clear();
        }
        let results: SmallVec<[Value; 8]> = SmallVec::from_slice(self.out.results(new));
        self.take_carried(&carried, src.results(op), args, &results);
        Ok(())
    }

    /// Computes the flags that a loop over slices asks for in each iteration: they are those of a tile from outside.
    fn flags_ahead(&mut self, body: Block) -> CodegenResult<()> {
        let src = self.sh.src;
        let outside = |v: Value| match src.value_def(base_of(src, v)) {
            ValueDef::Result(d, _) => src.op_block(d) != Some(body),
            ValueDef::Param(b, _) => b != body,
        };
        for op in src.block_ops(body).filter(|&op| src.opcode(op) == Opcode::Copy) {
            let mine = self.sh.plan.op_agent[op].expand() == Some(self.agent);
            if !mine || !src.named_operand(op, "source").is_some_and(outside) {
                continue;
            }
            let Some(flag) = flag_for(src, op) else { continue };
            if self.known.ahead.iter().all(|(known, _)| *known != flag)
                && let Some(v) = self.flag(&flag)?
            {
                self.known.ahead.push((flag, v));
            }
        }
        Ok(())
    }

    fn if_else(&mut self, op: Op, local: u32) -> CodegenResult<()> {
        let src = self.sh.src;
        let cond = src.named_operand(op, "condition").ok_or_else(|| internal("an if without condition"))?;
        let cond = self.get(cond)?;
        let results = src.results(op);
        let values: SmallVec<[usize; 8]> =
            (0..results.len()).filter(|&i| self.needs.values.contains(results[i])).collect();
        let flags: SmallVec<[usize; 8]> =
            (0..results.len()).filter(|&i| self.needs.flags.contains(results[i])).collect();
        let arms: SmallVec<[Block; 2]> = (0..2).filter_map(|n| src.op_block_at(op, n)).collect();
        let mut pipes: SmallVec<[Pipe; 8]> = arms.iter().flat_map(|&b| self.pipes_below(b)).collect();
        pipes.sort_unstable();
        pipes.dedup();
        let carried = Carried { values, flags, pipes };
        let mut types: SmallVec<[Type; 8]> =
            carried.values.iter().map(|&i| src.value_type(results[i])).collect();
        let i1 = self.out.scalar(Scalar::I1);
        types.extend(carried.flags.iter().map(|_| i1));
        for &p in &carried.pipes {
            let v = self.iter(p)?;
            types.push(self.out.value_type(v));
        }
        let new = self.op(Opcode::If, &[cond], &[1], &types, src.op_loc(op));
        self.copy_attrs(new, op);
        self.origin(new, op, local);
        let outer = self.cur;
        let before = self.known.iters.clone();
        for (n, &arm) in arms.iter().enumerate() {
            self.cur = self.out.add_region(new);
            self.known.iters = before.clone();
            let mark = self.enter();
            let plan = self.plain_plan(arm);
            self.block(arm, &plan)?;
            self.yield_carried(op, n, &carried)?;
            self.leave(mark);
        }
        self.cur = outer;
        self.known.iters = before;
        let new_results: SmallVec<[Value; 8]> = SmallVec::from_slice(self.out.results(new));
        self.take_carried(&carried, results, results, &new_results);
        Ok(())
    }
}

/// An error of our own.
#[cold]
pub fn internal(message: impl Into<String>) -> CodegenError {
    CodegenError::new(Code::E0708, Loc::NONE, message)
}

/// E0701 at a place.
#[cold]
pub fn unsupported(loc: Loc, message: impl Into<String>) -> CodegenError {
    CodegenError::new(Code::E0701, loc, message)
}
