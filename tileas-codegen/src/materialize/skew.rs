//! Loops whose items lie in several local stages: what both forms of their code share.
//!
//! The loop makes N + skew steps; step t runs the items of local stage k for iteration t - k if that is in 0..N.
//! Neighbouring items of one stage form a *group*. What one group computes and another reads is a *variable*: its
//! value now, and as many values of earlier steps as lie between definition and use. Every local stage has iterators
//! of its own, because each runs another iteration. `rolled` writes one loop with guards, `peel` a
//! prologue, a loop without guards, and an epilogue. Source: architecture, form (R2). Cost: items × variables per step.

use super::emit::{Emit, Own, internal, unsupported};
use super::plan::{BlockPlan, Step};
use crate::buffers::Pipe;
use crate::buffers::needs::for_each_use;
use crate::error::{CodegenResult, Loc};
use crate::ir::opcodes::Traits;
use crate::ir::{AttrData, Block, Function, Op, Opcode, Scalar, Sym, Type, TypeData, Value, ValueDef, keys};
use crate::storage::classify::is_product;
use crate::storage::slice::numbered_slice;
use cranelift_entity::{EntitySet, SecondaryMap};
use smallvec::SmallVec;

/// What a variable stands for.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Var {
    /// Iterator of a pipe for one local stage.
    Iter(Pipe, u32),
    /// An ownership value.
    Owned(Own),
    /// A value of the loop body.
    Value(Value),
    /// Iteration argument number n.
    Arg(usize),
}

/// A variable and its values in the step being written.
pub(super) struct VarData {
    var: Var,
    /// Steps between definition and the farthest use.
    chain: usize,
    ty: Type,
    init: Value,
    /// The variable that holds what a product updates to this one. Where no iteration is run both are as they began.
    sum: Option<usize>,
    now: Value,
    /// Values at the start of the step: after the last step, the one before, …
    past: SmallVec<[Value; 2]>,
}

impl VarData {
    /// The value that was defined `delay` steps ago.
    fn at(&self, delay: usize) -> Option<Value> {
        match delay {
            0 => Some(self.now),
            d => self.past.get(d - 1).copied(),
        }
    }

    /// What is known at the start of the next step.
    fn shifted(&self) -> impl Iterator<Item = Value> + '_ {
        std::iter::once(self.now).chain(self.past.iter().copied()).take(self.chain)
    }

    fn start(&mut self, past: SmallVec<[Value; 2]>) {
        self.now = past.first().copied().unwrap_or(self.init);
        self.past = past;
    }
}

/// A run of steps of one local stage.
pub(super) struct Group {
    pub(super) local: u32,
    steps: Vec<Step>,
    /// Uniform ops of the body that it makes for itself.
    clones: EntitySet<Op>,
}

/// How a group is written.
pub(super) struct Mode {
    /// Runs only under this condition.
    pub(super) guard: Option<Value>,
    /// The iteration, counted from 0.
    pub(super) i: Value,
    /// The induction value of that iteration, if it is at hand.
    pub(super) iv: Option<Value>,
    /// In a prologue or epilogue: which, and the step there.
    pub(super) note: Option<(Sym, u32)>,
}

/// A loop with local stages on its way into the new function.
pub(super) struct Skewed<'a> {
    /// The loop in the placed function.
    pub(super) op: Op,
    body: Block,
    local: u32,
    /// Largest local stage.
    pub(super) skew: u32,
    /// The groups of a step, in order.
    pub(super) groups: Vec<Group>,
    /// Uniform ops that run before all groups' uniform ops.
    first: Vec<Op>,
    vars: Vec<VarData>,
    yields: &'a [Value],
    body_args: &'a [Value],
    /// Local stage and group in which the next value of each carried argument is computed or handed on.
    arg_home: Vec<Option<(u32, usize)>>,
    lo: Value,
    stride: Value,
    /// Number of iterations, at least 0.
    pub(super) trips: Value,
    /// Type of the induction variable.
    pub(super) ity: Type,
}

fn groups_of(plan: &BlockPlan) -> Vec<Group> {
    let mut out: Vec<Group> = Vec::new();
    for &(local, step) in &plan.steps {
        match out.last_mut() {
            Some(g) if g.local == local => g.steps.push(step),
            _ => out.push(Group { local, steps: vec![step], clones: EntitySet::new() }),
        }
    }
    out
}

/// Uniform ops that continue a recurrence through the loop's arguments: they run at stage 0, before all else. What rests on
/// the result of an item as well, such as a number from memory, has to wait for that one.
fn recurrent_uniforms(e: &Emit<'_, '_>, op: Op, body: Block) -> Vec<Op> {
    let src = e.sh.src;
    let args = src.for_args(op);
    let mut tainted: Vec<Value> = e.carried_args(op).iter().map(|&i| args[i]).collect();
    let mut waiting: Vec<Value> = Vec::new();
    let mut out = Vec::new();
    for o in src.block_ops(body).filter(|&o| !src.opcode(o).is_terminator()) {
        let uniform = e.sh.plan.op_agent[o].is_none()
            && src.regions(o).is_empty()
            && src.opcode(o).has(Traits::UNIFORM);
        if !uniform || src.operands(o).iter().any(|v| waiting.contains(v)) {
            waiting.extend(src.results(o));
        } else if e.needs.ops.contains(o) && src.operands(o).iter().any(|v| tainted.contains(v)) {
            tainted.extend(src.results(o));
            // Pointers and views are no variables: each group makes its own.
            let stays =
                |&v: &Value| matches!(src.value_data(v), TypeData::Ptr { .. } | TypeData::View { .. });
            if !src.results(o).iter().any(stays) {
                out.push(o);
            }
        }
    }
    out
}

/// A walk over what a group rests on: what its items use, also inside, and what is cloned for them. What stands for itself,
/// by `made`, is not gone behind: it is a variable. Each clone is visited once per group.
struct Uses<'a, 'b, M> {
    e: &'a Emit<'a, 'b>,
    body: Block,
    made: M,
    /// By clone: the group that it was visited for.
    passed: SecondaryMap<Op, u32>,
    group: u32,
    /// What was visited for that one.
    clones: EntitySet<Op>,
    work: Vec<Op>,
}

impl<M: Fn(Value) -> bool> Uses<'_, '_, M> {
    fn value(&mut self, v: Value, f: &mut impl FnMut(Value)) {
        self.found(v, f);
        self.drain(f);
    }

    fn op(&mut self, op: Op, f: &mut impl FnMut(Value)) {
        self.work.push(op);
        self.drain(f);
    }

    fn drain(&mut self, f: &mut impl FnMut(Value)) {
        let src = self.e.sh.src;
        while let Some(op) = self.work.pop() {
            for_each_use(src, op, &mut |v| {
                self.found(v, f);
                // The number of a slice is read where the slice is.
                numbered_slice(src, v).into_iter().for_each(|(_, number)| self.found(number, f));
            });
        }
    }

    fn found(&mut self, v: Value, f: &mut impl FnMut(Value)) {
        f(v);
        let (src, plan) = (self.e.sh.src, self.e.sh.plan);
        if let Some(d) = src.defining_op(v)
            && plan.op_agent[d].is_none()
            && src.op_block(d) == Some(self.body)
            && self.passed[d] != self.group
            && !(self.made)(v)
        {
            self.passed[d] = self.group;
            self.clones.insert(d);
            self.work.push(d);
        }
    }
}

/// Emits `op` for the agent: rolled for an elected lane, where copies would exceed the limit, and where nothing but loads runs ahead, whose code is large
/// (an online softmax: 2742 lines of PTX peeled, 1438 rolled and written out for three iterations, 490 without overlap); else peeled.
///
/// # Errors
/// E0701 for carried "written" flags of partial updates.
pub fn skewed_loop(e: &mut Emit<'_, '_>, op: Op, body: Block, local: u32) -> CodegenResult<()> {
    let mut s = Skewed::new(e, op, body, local)?;
    let copies = s.size(e.sh.src).saturating_mul(s.skew as usize);
    let mark = e.enter();
    s.first.iter().for_each(|&o| e.clone_made(o));
    let plain = e.sh.sched.loops[op].as_ref().is_some_and(|s| s.plain);
    if plain || e.sh.plan.agents[e.agent].elect || copies > e.sh.opts.max_peeled_ops as usize {
        rolled(e, &mut s)?;
    } else {
        super::peel::peeled(e, &mut s)?;
    }
    e.forget(mark);
    s.bind_results(e);
    Ok(())
}

/// N = max(0, ceil((hi - lo) / step)); a constant if the bounds are.
fn trip_count(e: &mut Emit<'_, '_>, lo: Value, hi: Value, stride: Value, ity: Type) -> Value {
    let constant = |v: Value| e.out.constant_value(v).map(|x| x as i64);
    if let (Some(lo), Some(hi), Some(step)) = (constant(lo), constant(hi), constant(stride))
        && step > 0
    {
        let span = hi.saturating_sub(lo).max(0);
        return e.const_int(span / step + i64::from(span % step != 0), ity);
    }
    let (zero, one) = (e.const_int(0, ity), e.const_int(1, ity));
    let span = e.simple(Opcode::Subi, &[hi, lo], ity);
    let up = e.simple(Opcode::Addi, &[span, stride], ity);
    let up = e.simple(Opcode::Subi, &[up, one], ity);
    let trips = e.simple(Opcode::Divi, &[up, stride], ity);
    e.simple(Opcode::Maxi, &[trips, zero], ity)
}

impl<'a> Skewed<'a> {
    fn new(e: &mut Emit<'a, '_>, op: Op, body: Block, local: u32) -> CodegenResult<Skewed<'a>> {
        let src = e.sh.src;
        let loc = src.op_loc(op);
        if !e.carried_flags(op).is_empty() {
            return Err(unsupported(
                loc,
                "a conditional first update of an accumulator in a loop with local stages",
            ));
        }
        let first = recurrent_uniforms(e, op, body);
        let sched = e.sh.sched.loops[op].as_deref();
        let plan = e.plan(body, sched, &first);
        let bounds: SmallVec<[Value; 3]> = ["lower", "upper", "step"]
            .into_iter()
            .map(|n| {
                src.named_operand(op, n)
                    .ok_or_else(|| internal("a loop without bounds"))
                    .and_then(|v| e.get(v))
            })
            .collect::<CodegenResult<_>>()?;
        let (lo, hi, stride) = (bounds[0], bounds[1], bounds[2]);
        let ity = e.out.value_type(lo);
        let trips = trip_count(e, lo, hi, stride, ity);
        let mut s = Skewed {
            op,
            body,
            local,
            skew: plan.skew,
            groups: groups_of(&plan),
            first,
            vars: Vec::new(),
            yields: src.region_yields(op, 0),
            body_args: src.for_args(op),
            arg_home: Vec::new(),
            lo,
            stride,
            trips,
            ity,
        };
        s.iterators(e, &plan)?;
        s.ownership(e, &plan)?;
        s.values(e)?;
        s.sums(e.sh.src);
        Ok(s)
    }

    /// Ops of one iteration.
    fn size(&self, src: &Function) -> usize {
        let mut n = 0;
        for step in self.groups.iter().flat_map(|g| &g.steps) {
            n += 1;
            if let Step::Item(o) = *step {
                src.regions(o).iter().for_each(|&r| src.walk(src.region_block(r), &mut |_| n += 1));
            }
        }
        n
    }

    fn group_of(&self, step: Step) -> Option<usize> {
        self.groups.iter().position(|g| g.steps.contains(&step))
    }

    fn local_of(&self, op: Op) -> Option<u32> {
        self.group_of(Step::Item(op)).map(|g| self.groups[g].local)
    }

    fn iterators(&mut self, e: &Emit<'_, '_>, plan: &BlockPlan) -> CodegenResult<()> {
        let (src, sh, body) = (e.sh.src, e.sh, self.body);
        for p in e.pipes_below(body) {
            let init = e.known.iters[p].expand().ok_or_else(|| internal(format!("no iterator for {p}")))?;
            let ty = e.out.value_type(init);
            let mut locals: Vec<u32> = if sh.ba.pipes[p].home == body {
                plan.steps.iter().filter(|s| s.1 == Step::Inc(p)).map(|s| s.0).collect()
            } else {
                let home = sh.ba.pipes[p].home;
                let holds = |s: Step| matches!(s, Step::Item(o) if holds(src, o, home));
                plan.steps.iter().filter(|s| holds(s.1)).map(|s| s.0).collect()
            };
            locals.dedup();
            for k in locals {
                self.need(Var::Iter(p, k), 1, ty, init);
            }
        }
        Ok(())
    }

    /// Ownership values that leave their group.
    fn ownership(&mut self, e: &Emit<'_, '_>, plan: &BlockPlan) -> CodegenResult<()> {
        let sh = e.sh;
        let mut owned: Vec<(Own, Step, bool)> = Vec::new();
        for &(_, s) in &plan.steps {
            match s {
                Step::Commit(p) => owned.push((Own::Acquired(p), s, true)),
                Step::Release(p, n, ..) => owned.push((Own::Waited(p, n), s, false)),
                Step::Item(o) => {
                    for p in sh.ba.pipes.keys() {
                        let d = &sh.ba.pipes[p];
                        let mine = d.home == self.body && d.tx > 0 && d.producer.agent == e.agent;
                        if mine && d.events.contains(&o) {
                            owned.push((Own::Announced(p), s, true));
                        }
                    }
                }
                _ => {}
            }
        }
        for (own, user, producer) in owned {
            let (Some(gd), Some(gu)) = (self.group_of(defines(own)), self.group_of(user)) else { continue };
            if gd == gu {
                continue;
            }
            let delay = self.groups[gu].local.saturating_sub(self.groups[gd].local) as usize;
            let (Own::Acquired(pipe) | Own::Announced(pipe) | Own::Waited(pipe, _)) = own;
            let init = sh.ends[pipe][usize::from(!producer)]
                .expand()
                .ok_or_else(|| internal("a pipe without ends"))?;
            self.need(Var::Owned(own), delay, e.out.value_type(init), init);
        }
        Ok(())
    }

    /// Values of the body and arguments, by use.
    fn values(&mut self, e: &mut Emit<'_, '_>) -> CodegenResult<()> {
        let src = e.sh.src;
        let inits = src.named_segment(self.op, "inits");
        let mut defs: Vec<(Value, u32, usize)> = Vec::new();
        for (g, group) in self.groups.iter().enumerate() {
            for &s in &group.steps {
                if let Step::Item(o) = s {
                    defs.extend(src.results(o).iter().map(|&v| (v, group.local, g)));
                }
            }
        }
        self.arg_home = vec![None; self.body_args.len()];
        // Arguments whose next value no item makes: it is known anywhere, such as a constant or the index, or is another
        // argument.
        let mut handed: SmallVec<[usize; 4]> = SmallVec::new();
        for i in e.carried_args(self.op) {
            let init = e.get(inits[i])?;
            match defs.iter().find(|d| d.0 == self.yields[i]) {
                Some(d) => self.arg_home[i] = Some((d.1, d.2)),
                None if self.yields[i] == self.body_args[i] => {}
                None => handed.push(i),
            }
            self.need(Var::Arg(i), 1, e.out.value_type(init), init);
        }
        let mut wanted: Vec<(Var, usize, Value)> = Vec::new();
        let made = |v: Value| defs.iter().any(|d| d.0 == v);
        let mut uses = Uses {
            e,
            body: self.body,
            made,
            passed: SecondaryMap::new(),
            group: 0,
            clones: EntitySet::new(),
            work: Vec::new(),
        };
        self.hand_on(&mut uses, &defs, &handed)?;
        let mut early = None;
        let mut groups = std::mem::take(&mut self.groups);
        for (g, group) in groups.iter_mut().enumerate() {
            uses.group += 1;
            uses.clones.clear();
            let mut need = |v: Value| {
                if let Some(&(_, kd, gd)) = defs.iter().find(|d| d.0 == v) {
                    if gd != g {
                        wanted.push((Var::Value(v), group.local.saturating_sub(kd) as usize, v));
                    }
                } else if let Some(i) = self.body_args.iter().position(|&a| a == v)
                    && let Some(home) = self.arg_home[i]
                {
                    match self.delay((group.local, g), home) {
                        Some(delay) => wanted.push((Var::Arg(i), delay, v)),
                        None => early = Some(v),
                    }
                }
            };
            for &s in &group.steps {
                if let Step::Item(o) = s {
                    uses.op(o, &mut need);
                }
            }
            for &i in handed.iter().filter(|&&i| self.arg_home[i].is_some_and(|h| h.1 == g)) {
                uses.value(self.yields[i], &mut need);
            }
            group.clones = uses.clones.clone();
        }
        self.groups = groups;
        if early.is_some_and(|v| e.needs.values.contains(v)) {
            let loc = src.op_loc(self.op);
            return Err(unsupported(
                loc,
                "a carried value that is handed on unchanged and used stages before it is made",
            ));
        }
        for (var, delay, v) in wanted {
            if !e.needs.values.contains(v) {
                continue;
            }
            let ty = src.value_type(v);
            let init = match self.vars.iter().find(|x| x.var == var) {
                Some(x) => x.init,
                None => dummy(e, ty)?,
            };
            self.need(var, delay, ty, init);
        }
        Ok(())
    }

    /// Finds arguments that a product updates a step after what it updates was made, such as an accumulator that is scaled before it. What is
    /// made begins as the argument does, instead of as anything: then one of the two tells what both are where no iteration is run.
    fn sums(&mut self, src: &Function) {
        if self.skew != 1 {
            return;
        }
        for i in 0..self.vars.len() {
            let Var::Arg(n) = self.vars[i].var else { continue };
            let product = self.yields.get(n).and_then(|&y| src.defining_op(y));
            let product = product.filter(|&op| is_product(src, op) && self.local_of(op) == Some(1));
            let Some(acc) = product.and_then(|op| src.named_operand(op, "acc")) else { continue };
            let made = self.vars.iter().position(|v| v.var == Var::Value(acc));
            let fits = |&w: &usize| {
                let taken = self.vars.iter().any(|v| v.sum == Some(w));
                !taken && self.vars[w].chain == 1 && self.vars[w].ty == self.vars[i].ty
            };
            if let Some(w) = made.filter(fits) {
                self.vars[w].init = self.vars[i].init;
                self.vars[i].sum = Some(w);
            }
        }
    }

    /// Finds the group that hands on each of these arguments: the first of an iteration where all that it rests on is there.
    fn hand_on<M: Fn(Value) -> bool>(
        &mut self,
        uses: &mut Uses<'_, '_, M>,
        defs: &[(Value, u32, usize)],
        handed: &[usize],
    ) -> CodegenResult<()> {
        let mut places: Vec<(u32, usize)> =
            self.groups.iter().enumerate().map(|(g, group)| (group.local, g)).collect();
        places.sort_unstable();
        let rests_on: Vec<SmallVec<[Value; 4]>> = handed
            .iter()
            .map(|&i| {
                let mut found = SmallVec::new();
                uses.group += 1;
                uses.value(self.yields[i], &mut |v| found.push(v));
                found
            })
            .collect();
        let mut at: SmallVec<[usize; 4]> = handed.iter().map(|_| 0).collect();
        loop {
            for (&i, &place) in handed.iter().zip(&at) {
                self.arg_home[i] = places.get(place).copied();
            }
            let there = |&(local, g): &(u32, usize), v: &Value| {
                if let Some(d) = defs.iter().find(|d| d.0 == *v) {
                    return local > d.1 || local == d.1 && g >= d.2;
                }
                let home = self.body_args.iter().position(|a| a == v).and_then(|j| self.arg_home[j]);
                home.is_none_or(|home| self.delay((local, g), home).is_some())
            };
            let early =
                |&n: &usize| places.get(at[n]).is_some_and(|p| !rests_on[n].iter().all(|v| there(p, v)));
            // Later and later, so that this ends.
            let Some(n) = (0..handed.len()).find(early) else { break };
            at[n] += 1;
        }
        if at.contains(&places.len()) {
            let loc = uses.e.sh.src.op_loc(self.op);
            return Err(unsupported(loc, "a carried value that no local stage can hand on"));
        }
        Ok(())
    }

    /// How many steps ago an argument was computed or handed on in its group as a group at `at` sees it; `None` where
    /// that is yet to come.
    fn delay(&self, at: (u32, usize), home: (u32, usize)) -> Option<usize> {
        (1 + at.0).checked_sub(home.0).filter(|&d| d > 0 || at.1 > home.1).map(|d| d as usize)
    }

    fn need(&mut self, var: Var, chain: usize, ty: Type, init: Value) {
        match self.vars.iter_mut().find(|v| v.var == var) {
            Some(v) => v.chain = v.chain.max(chain),
            None => {
                self.vars.push(VarData { var, chain, ty, init, sum: None, now: init, past: SmallVec::new() });
            }
        }
    }

    // ---- writing

    /// The induction value of iteration `i`.
    pub(super) fn induction(&self, e: &mut Emit<'_, '_>, i: Value) -> Value {
        let constant = |e: &Emit<'_, '_>, v: Value| e.out.constant_value(v).map(|x| x as i64);
        let scaled = match (constant(e, i), constant(e, self.stride)) {
            (_, Some(1)) => i,
            (Some(a), Some(b)) => e.const_int(a.wrapping_mul(b), self.ity),
            _ => e.simple(Opcode::Muli, &[i, self.stride], self.ity),
        };
        match (constant(e, scaled), constant(e, self.lo)) {
            (_, Some(0)) => scaled,
            (Some(a), Some(b)) => e.const_int(a.wrapping_add(b), self.ity),
            _ => e.simple(Opcode::Addi, &[self.lo, scaled], self.ity),
        }
    }

    /// Writes group `n` of the current step.
    pub(super) fn group(&mut self, e: &mut Emit<'_, '_>, n: usize, mode: &Mode) -> CodegenResult<()> {
        let src = e.sh.src;
        let local = self.groups[n].local;
        let assigned: Vec<usize> = (0..self.vars.len()).filter(|&i| self.assigns(e, i, n)).collect();
        let branch = mode.guard.map(|guard| {
            let types: SmallVec<[Type; 8]> = assigned.iter().map(|&i| self.vars[i].ty).collect();
            let branch = e.op(Opcode::If, &[guard], &[1], &types, Loc::NONE);
            e.local(branch, local);
            if let Some((key, step)) = mode.note {
                let of = e.sh.number[self.op];
                for (key, value) in [(keys::OF, of), (key, step)] {
                    let a = e.out.intern_attr(AttrData::Int(i64::from(value), None));
                    e.out.inherent_mut(branch).set(key, a);
                }
            }
            let then = e.out.add_region(branch);
            (branch, std::mem::replace(&mut e.cur, then))
        });
        let mark = e.enter();
        let iv = match mode.iv {
            Some(iv) => iv,
            None => self.induction(e, mode.i),
        };
        if let Some(&old) = src.block_params(self.body).first() {
            e.bind(old, iv);
        }
        self.bind_vars(e, n);
        for &step in &self.groups[n].steps {
            match step {
                Step::Item(o) => {
                    e.uniforms(self.body, Some(o), &self.groups[n].clones)?;
                    e.item(o, local)?;
                }
                Step::Release(p, c, Some(o), pending) if self.group_of(Step::Item(o)) != Some(n) => {
                    // The completing op ran in another group: its token is not visible here.
                    e.step(Step::Release(p, c, None, pending), local)?;
                }
                s => e.step(s, local)?,
            }
        }
        if assigned
            .iter()
            .any(|&i| matches!(self.vars[i].var, Var::Arg(a) if self.local_of_yield(src, a).is_none()))
        {
            e.uniforms(self.body, None, &self.groups[n].clones)?;
        }
        let mut out: SmallVec<[Value; 8]> = SmallVec::new();
        for &i in &assigned {
            out.push(match self.vars[i].var {
                Var::Iter(p, _) => {
                    e.known.iters[p].expand().ok_or_else(|| internal(format!("no iterator for {p}")))?
                }
                Var::Owned(o) => {
                    e.known.owned.get(&o).copied().ok_or_else(|| internal("an ownership value is missing"))?
                }
                Var::Value(x) => e.get(x)?,
                Var::Arg(a) => e.get(self.yields[a])?,
            });
        }
        if let Some((branch, outer)) = branch {
            e.op(Opcode::Yield, &out, &[out.len() as u32], &[], Loc::NONE);
            e.cur = e.out.add_region(branch);
            let old: SmallVec<[Value; 8]> = assigned.iter().map(|&i| self.kept(e, i, mode)).collect();
            e.op(Opcode::Yield, &old, &[old.len() as u32], &[], Loc::NONE);
            e.cur = outer;
            out = SmallVec::from_slice(e.out.results(branch));
        }
        e.leave(mark);
        for (&i, v) in assigned.iter().zip(out) {
            self.vars[i].now = v;
        }
        Ok(())
    }

    /// What a variable is where a group is not run. With one step behind the loop that is where no iteration was: it is as it began. If that is a
    /// constant, or another variable is that as well, the loop need not carry for it what it makes again in each step, such as an accumulator.
    fn kept(&self, e: &Emit<'_, '_>, var: usize, mode: &Mode) -> Value {
        let v = &self.vars[var];
        let behind = self.skew == 1 && mode.note.is_some_and(|note| note.0 == keys::EPILOGUE);
        let by = e.out.defining_op(v.init).map(|op| e.out.opcode(op));
        let constant = matches!(by, Some(Opcode::Constant | Opcode::Splat));
        match v.sum.and_then(|w| self.vars[w].at(1)) {
            _ if !behind => v.now,
            _ if constant => v.init,
            sum => sum.unwrap_or(v.now),
        }
    }

    /// Binds what group `n` sees at its begin: values of the iteration that it runs. What is yet to be made there is not bound,
    /// lest something that rests on it is cloned before it.
    fn bind_vars(&self, e: &mut Emit<'_, '_>, n: usize) {
        let (src, local) = (e.sh.src, self.groups[n].local);
        for v in &self.vars {
            let seen = match v.var {
                Var::Iter(_, k) if k == local => v.at(0),
                Var::Iter(..) => None,
                Var::Owned(own) => self
                    .group_of(defines(own))
                    .and_then(|g| local.checked_sub(self.groups[g].local))
                    .and_then(|d| v.at(d as usize)),
                Var::Value(x) => match src.value_def(x) {
                    ValueDef::Result(o, _) => self
                        .group_of(Step::Item(o))
                        .and_then(|g| local.checked_sub(self.groups[g].local).filter(|&d| d > 0 || g < n))
                        .and_then(|d| v.at(d as usize)),
                    ValueDef::Param(..) => None,
                },
                Var::Arg(i) => match self.arg_home[i] {
                    Some((k, _)) => (1 + local).checked_sub(k).and_then(|d| v.at(d as usize)),
                    None => v.at(0),
                },
            };
            let Some(seen) = seen else { continue };
            match v.var {
                Var::Iter(p, _) => e.known.iters[p] = seen.into(),
                Var::Owned(own) => {
                    e.known.owned.insert(own, seen);
                }
                Var::Value(x) => e.bind(x, seen),
                Var::Arg(i) => e.bind(self.body_args[i], seen),
            }
        }
    }

    /// Whether a group assigns a variable.
    fn assigns(&self, e: &Emit<'_, '_>, var: usize, n: usize) -> bool {
        let (src, group) = (e.sh.src, &self.groups[n]);
        let any = |f: &dyn Fn(Step) -> bool| group.steps.iter().any(|&s| f(s));
        let result = |s: Step, v: Value| matches!(s, Step::Item(o) if src.results(o).contains(&v));
        match self.vars[var].var {
            Var::Iter(p, k) => {
                let home = e.sh.ba.pipes[p].home;
                let advances = |s| s == Step::Inc(p) || matches!(s, Step::Item(o) if holds(src, o, home));
                k == group.local && any(&advances)
            }
            Var::Owned(own) => any(&|s| s == defines(own)),
            Var::Value(v) => any(&|s| result(s, v)),
            Var::Arg(i) if self.local_of_yield(src, i).is_some() => {
                self.yields.get(i).is_some_and(|&y| any(&|s| result(s, y)))
            }
            // Made by no group: one hands it on.
            Var::Arg(i) => self.arg_home[i].is_some_and(|home| home.1 == n),
        }
    }

    /// The local stage of the item that makes what the loop carries on as argument `i`; `None` if no item does.
    fn local_of_yield(&self, src: &Function, i: usize) -> Option<u32> {
        match src.value_def(*self.yields.get(i)?) {
            ValueDef::Result(o, _) => self.local_of(o),
            ValueDef::Param(..) => None,
        }
    }

    /// Before the first step nothing was computed.
    pub(super) fn start(&mut self) {
        for v in &mut self.vars {
            v.start(std::iter::repeat_n(v.init, v.chain).collect());
        }
    }

    /// Ends a step that is followed by code, not by the next trip of a loop.
    pub(super) fn next_step(&mut self) {
        for v in &mut self.vars {
            v.start(v.shifted().collect());
        }
    }

    /// Opens a loop over steps whose arguments are the variables; returns its op, its step and where code went.
    pub(super) fn open(
        &mut self,
        e: &mut Emit<'_, '_>,
        bounds: [Value; 3],
        steady: bool,
    ) -> (Op, Value, Block) {
        let mut operands: SmallVec<[Value; 8]> = SmallVec::from_slice(&bounds);
        operands.extend(self.vars.iter().flat_map(|v| v.past.iter().copied()));
        let types: SmallVec<[Type; 8]> = operands[3..].iter().map(|&v| e.out.value_type(v)).collect();
        let segments = [1, 1, 1, types.len() as u32];
        let new = e.op(Opcode::For, &operands, &segments, &types, e.sh.src.op_loc(self.op));
        *e.out.inherent_mut(new) = e.sh.src.inherent(self.op).clone();
        e.origin(new, self.op, self.local);
        let skew = e.out.intern_attr(AttrData::Int(i64::from(self.skew), None));
        e.out.inherent_mut(new).set(keys::SKEW, skew);
        if steady {
            let unit = e.out.intern_attr(AttrData::Unit);
            e.out.inherent_mut(new).set(keys::STEADY, unit);
        }
        let inner = e.out.add_region(new);
        let outer = std::mem::replace(&mut e.cur, inner);
        let t = e.out.add_block_param(inner, self.ity);
        for v in &mut self.vars {
            let past = (0..v.chain).map(|_| e.out.add_block_param(inner, v.ty)).collect();
            v.start(past);
        }
        (new, t, outer)
    }

    /// Closes the loop.
    pub(super) fn close(&mut self, e: &mut Emit<'_, '_>, (new, _, outer): (Op, Value, Block)) {
        let out: SmallVec<[Value; 8]> = self.vars.iter().flat_map(VarData::shifted).collect();
        e.op(Opcode::Yield, &out, &[out.len() as u32], &[], Loc::NONE);
        e.cur = outer;
        let mut results = e.out.results(new).iter().copied();
        for v in &mut self.vars {
            let past = results.by_ref().take(v.chain).collect();
            v.start(past);
        }
    }

    /// Iterators and results as they are after the loop.
    fn bind_results(&self, e: &mut Emit<'_, '_>) {
        for v in &self.vars {
            match v.var {
                Var::Iter(p, _) => e.known.iters[p] = v.now.into(),
                Var::Arg(i) => {
                    if let Some(&old) = e.sh.src.results(self.op).get(i) {
                        e.bind(old, v.now);
                    }
                }
                _ => {}
            }
        }
    }
}

/// Whether a block lies in a region of an op, however deep.
fn holds(src: &Function, op: Op, block: Block) -> bool {
    let mut b = Some(block);
    while let Some(parent) = b.and_then(|b| src.block_parent(b)) {
        if parent == op {
            return true;
        }
        b = src.op_block(parent);
    }
    false
}

/// The step that makes an ownership value.
fn defines(own: Own) -> Step {
    match own {
        Own::Acquired(p) => Step::Acquire(p),
        Own::Announced(p) => Step::CommitTx(p),
        Own::Waited(p, n) => Step::Wait(p, n),
    }
}

/// One loop of N + skew steps with a guard per group.
fn rolled(e: &mut Emit<'_, '_>, s: &mut Skewed<'_>) -> CodegenResult<()> {
    let ity = s.ity;
    let (zero, one) = (e.const_int(0, ity), e.const_int(1, ity));
    let steps = match e.out.constant_value(s.trips) {
        Some(n) => e.const_int((n as i64).saturating_add(i64::from(s.skew)), ity),
        None => {
            let skew = e.const_int(i64::from(s.skew), ity);
            e.simple(Opcode::Addi, &[s.trips, skew], ity)
        }
    };
    s.start();
    let open = s.open(e, [zero, steps, one], false);
    for n in 0..s.groups.len() {
        let local = s.groups[n].local;
        let (i, guard) = if local == 0 {
            (open.1, e.cmp("lt", open.1, s.trips))
        } else {
            let k = e.const_int(i64::from(local), ity);
            let i = e.simple(Opcode::Subi, &[open.1, k], ity);
            let lt = e.cmp("lt", i, s.trips);
            let ge = e.cmp("ge", i, zero);
            let i1 = e.out.scalar(Scalar::I1);
            (i, e.simple(Opcode::Andi, &[ge, lt], i1))
        };
        s.group(e, n, &Mode { guard: Some(guard), i, iv: None, note: None })?;
    }
    s.close(e, open);
    Ok(())
}

/// A value that is never read: what a variable holds before its first definition.
fn dummy(e: &mut Emit<'_, '_>, ty: Type) -> CodegenResult<Value> {
    let data = e.out.type_data(ty).clone();
    let float = data.elem().is_some_and(|s| s.is_float());
    match data {
        TypeData::Scalar(_) | TypeData::Tile { .. } => {
            let op = e.op(Opcode::Constant, &[], &[], &[ty], Loc::NONE);
            let zero = if float { Function::float_attr(0.0) } else { AttrData::Int(0, None) };
            e.out.set_attr(op, keys::VALUE, zero);
            Ok(e.out.results(op)[0])
        }
        other => Err(unsupported(Loc::NONE, format!("a value of type {other} between local stages"))),
    }
}
