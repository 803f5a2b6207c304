//! Loops whose items lie in several local stages: one rolled loop of N + skew steps.
//!
//! Step t runs the items of local stage k for iteration t - k if that is in 0..N; neighbouring items of one stage
//! share a guard. What one group computes and another reads is a *variable*: a result of the guarding `if` (which
//! yields the old value when the guard fails), and, as far as steps lie between, a chain of iteration arguments.
//! Every local stage has iterators of its own, because each runs another iteration. Source: architecture, R2.
//! Cost: items × variables of the loop.

use super::emit::{Emit, Own, internal, unsupported};
use super::plan::{BlockPlan, Step, block_plan};
use crate::buffers::Pipe;
use crate::buffers::needs::for_each_use;
use crate::buffers::webs::{for_args, region_yields};
use crate::error::{CodegenResult, Loc};
use crate::ir::opcodes::Traits;
use crate::ir::{AttrData, Block, Function, Op, Opcode, Type, TypeData, Value, ValueDef, keys};
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

struct VarData {
    var: Var,
    /// Steps between definition and the farthest use.
    chain: usize,
    ty: Type,
    init: Value,
    current: Value,
    /// Values at the start of the step: of one step ago, two steps ago, …
    args: SmallVec<[Value; 2]>,
}

/// A run of steps of one local stage.
struct Group {
    local: u32,
    steps: Vec<Step>,
}

fn groups_of(plan: &BlockPlan) -> Vec<Group> {
    let mut out: Vec<Group> = Vec::new();
    for &(local, step) in &plan.steps {
        match out.last_mut() {
            Some(g) if g.local == local => g.steps.push(step),
            _ => out.push(Group { local, steps: vec![step] }),
        }
    }
    out
}

/// Uniform ops that continue a recurrence through the loop's arguments: they run at stage 0, before all else.
fn recurrent_uniforms(e: &Emit<'_, '_>, op: Op, body: Block) -> Vec<Op> {
    let src = e.sh.src;
    let args = for_args(src, op);
    let mut tainted: Vec<Value> = e.carried_args(op).iter().map(|&i| args[i]).collect();
    let mut out = Vec::new();
    for o in src.block_ops(body) {
        let uniform = e.sh.plan.op_agent[o].is_none()
            && src.regions(o).is_empty()
            && !src.opcode(o).is_terminator()
            && src.opcode(o).has(Traits::UNIFORM);
        if uniform && e.needs.ops.contains(o) && src.operands(o).iter().any(|v| tainted.contains(v)) {
            tainted.extend(src.results(o));
            out.push(o);
        }
    }
    out
}

/// Visits the operands of an op and of everything inside it.
fn uses_inside(e: &Emit<'_, '_>, op: Op, f: &mut impl FnMut(Value)) {
    let src = e.sh.src;
    if e.needs.reads_scalars {
        // What is cloned in front of an item may rest on values of other groups.
        let mut work = vec![op];
        let mut seen: Vec<Op> = Vec::new();
        while let Some(o) = work.pop() {
            for_each_use(src, o, &mut |v| {
                f(v);
                let cloned =
                    |d: &Op| e.sh.plan.op_agent[*d].is_none() && src.op_block(*d) == src.op_block(op);
                if let Some(d) = src.defining_op(v).filter(cloned)
                    && !seen.contains(&d)
                {
                    seen.push(d);
                    work.push(d);
                }
            });
        }
        return;
    }
    let mut visit = |o: Op| src.operands(o).iter().for_each(|&v| f(v));
    visit(op);
    for &r in src.regions(op) {
        src.walk(src.region_block(r), &mut visit);
    }
}

/// Emits `op` for the agent as a rolled loop with guards.
///
/// # Errors
/// E0701 for carried "written" flags of partial updates, and for recurrences that permute their arguments.
pub fn skewed_loop(e: &mut Emit<'_, '_>, op: Op, body: Block, local: u32) -> CodegenResult<()> {
    let src = e.sh.src;
    let sh = e.sh;
    let loc = src.op_loc(op);
    if !e.carried_flags(op).is_empty() {
        return Err(unsupported(
            loc,
            "a conditional first update of an accumulator in a loop with local stages",
        ));
    }
    let first = recurrent_uniforms(e, op, body);
    let sched = sh.sched.loops[op].as_deref();
    let plan = block_plan(&e.scope(), body, sched, &first);
    let groups = groups_of(&plan);
    let local_of = |o: Op| plan.steps.iter().find(|s| s.1 == Step::Item(o)).map(|s| s.0);
    let group_of = |step: Step| groups.iter().position(|g| g.steps.contains(&step));
    let bounds: SmallVec<[Value; 3]> = ["lower", "upper", "step"]
        .into_iter()
        .map(|n| {
            src.named_operand(op, n).ok_or_else(|| internal("a loop without bounds")).and_then(|v| e.get(v))
        })
        .collect::<CodegenResult<_>>()?;
    let (lo, hi, stride) = (bounds[0], bounds[1], bounds[2]);
    let ity = e.out.value_type(lo);

    // N = max(0, ceil((hi - lo) / step)), then N + skew steps.
    let (zero, one) = (e.const_int(0, ity), e.const_int(1, ity));
    let span = e.simple(Opcode::Subi, &[hi, lo], ity);
    let up = e.simple(Opcode::Addi, &[span, stride], ity);
    let up = e.simple(Opcode::Subi, &[up, one], ity);
    let trips = e.simple(Opcode::Divi, &[up, stride], ity);
    let trips = e.simple(Opcode::Maxi, &[trips, zero], ity);
    let skew = e.const_int(i64::from(plan.skew), ity);
    let steps = e.simple(Opcode::Addi, &[trips, skew], ity);

    // ---- variables
    let mut vars: Vec<VarData> = Vec::new();
    let body_args = for_args(src, op);
    let yields = region_yields(src, op, 0);
    let inits = src.named_segment(op, "inits");
    for p in e.pipes_below(body) {
        let init = e.iters[p].expand().ok_or_else(|| internal(format!("no iterator for {p}")))?;
        let ty = e.out.value_type(init);
        let mut locals: Vec<u32> = if sh.ba.pipes[p].home == body {
            plan.steps.iter().filter(|s| s.1 == Step::Inc(p)).map(|s| s.0).collect()
        } else {
            let holds = |o: Op| {
                let mut b = Some(sh.ba.pipes[p].home);
                while let Some(x) = b {
                    if src.block_parent(x) == Some(o) {
                        return true;
                    }
                    b = src.block_parent(x).and_then(|q| src.op_block(q));
                }
                false
            };
            plan.steps.iter().filter(|s| matches!(s.1, Step::Item(o) if holds(o))).map(|s| s.0).collect()
        };
        locals.dedup();
        for k in locals {
            vars.push(VarData {
                var: Var::Iter(p, k),
                chain: 1,
                ty,
                init,
                current: init,
                args: SmallVec::new(),
            });
        }
    }
    // Ownership values that leave their group.
    let mut owned: Vec<(Own, Step, Step, bool)> = Vec::new();
    for &(_, s) in &plan.steps {
        match s {
            Step::Commit(p) => owned.push((Own::Acquired(p), Step::Acquire(p), s, true)),
            Step::Release(p, n, ..) => owned.push((Own::Waited(p, n), Step::Wait(p, n), s, false)),
            _ => {}
        }
    }
    for &(_, s) in &plan.steps {
        let Step::Item(o) = s else { continue };
        for p in sh.ba.pipes.keys() {
            let d = &sh.ba.pipes[p];
            if d.home == body && d.tx > 0 && d.producer.agent == e.agent && d.events.contains(&o) {
                owned.push((Own::Announced(p), Step::CommitTx(p), s, true));
            }
        }
    }
    for (own, def, user, producer) in owned {
        let (Some(gd), Some(gu)) = (group_of(def), group_of(user)) else { continue };
        if gd == gu {
            continue;
        }
        let delay = groups[gu].local.saturating_sub(groups[gd].local) as usize;
        let pipe = match own {
            Own::Acquired(p) | Own::Announced(p) | Own::Waited(p, _) => p,
        };
        let init =
            sh.ends[pipe][usize::from(!producer)].expand().ok_or_else(|| internal("a pipe without ends"))?;
        need_var(&mut vars, Var::Owned(own), delay, e.out.value_type(init), init);
    }
    // Values of the body and arguments, by use.
    let carried = e.carried_args(op);
    let mut defs: Vec<(Value, u32, usize)> = Vec::new();
    for (g, group) in groups.iter().enumerate() {
        for &s in &group.steps {
            if let Step::Item(o) = s {
                defs.extend(src.results(o).iter().map(|&v| (v, group.local, g)));
            }
        }
    }
    let mut arg_local: Vec<Option<u32>> = vec![None; body_args.len()];
    for &i in &carried {
        let init = e.get(inits[i])?;
        match defs.iter().find(|d| d.0 == yields[i]) {
            Some(d) => arg_local[i] = Some(d.1),
            None if yields[i] == body_args[i] => {}
            None => {
                return Err(unsupported(
                    loc,
                    "a recurrence that is not computed in the loop, with local stages",
                ));
            }
        }
        need_var(&mut vars, Var::Arg(i), 1, e.out.value_type(init), init);
    }
    let mut wanted: Vec<(Var, usize, Value)> = Vec::new();
    for (g, group) in groups.iter().enumerate() {
        for &s in &group.steps {
            let Step::Item(o) = s else { continue };
            uses_inside(e, o, &mut |v| {
                if let Some(&(_, kd, gd)) = defs.iter().find(|d| d.0 == v) {
                    if gd != g {
                        wanted.push((Var::Value(v), group.local.saturating_sub(kd) as usize, v));
                    }
                } else if let Some(i) = body_args.iter().position(|&a| a == v)
                    && let Some(kd) = arg_local[i]
                {
                    wanted.push((Var::Arg(i), (1 + group.local).saturating_sub(kd) as usize, v));
                }
            });
        }
    }
    for (var, delay, v) in wanted {
        if !e.needs.values.contains(v) {
            continue;
        }
        let ty = src.value_type(v);
        let init = match vars.iter().find(|x| x.var == var) {
            Some(x) => x.init,
            None => dummy(e, ty)?,
        };
        need_var(&mut vars, var, delay, ty, init);
    }

    // ---- the loop
    let mut operands: SmallVec<[Value; 8]> = SmallVec::from_slice(&[zero, steps, one]);
    for v in &vars {
        operands.extend(std::iter::repeat_n(v.init, v.chain));
    }
    let types: SmallVec<[Type; 8]> = operands[3..].iter().map(|&v| e.out.value_type(v)).collect();
    let new = e.op(Opcode::For, &operands, &[1, 1, 1, types.len() as u32], &types, loc);
    *e.out.inherent_mut(new) = src.inherent(op).clone();
    e.origin(new, op, local);
    let skew_attr = e.out.intern_attr(AttrData::Int(i64::from(plan.skew), None));
    let skew_key = e.out.intern_symbol("skew");
    e.out.discardable_mut(new).set(skew_key, skew_attr);
    let inner = e.out.add_region(new);
    let outer = std::mem::replace(&mut e.cur, inner);
    let (mark, emitted) = (e.enter(), e.emitted.clone());
    let t = e.out.add_block_param(inner, ity);
    for v in &mut vars {
        for _ in 0..v.chain {
            let p = e.out.add_block_param(inner, v.ty);
            v.args.push(p);
        }
        v.current = v.args.first().copied().unwrap_or(v.init);
    }
    first.iter().for_each(|&o| {
        e.emitted.insert(o);
    });
    let old_iv = src.block_params(body).first().copied();
    for group in &groups {
        let tk = if group.local == 0 {
            t
        } else {
            let k = e.const_int(i64::from(group.local), ity);
            e.simple(Opcode::Subi, &[t, k], ity)
        };
        let mut guard = e.cmp("lt", tk, trips);
        if group.local > 0 {
            let ge = e.cmp("ge", tk, zero);
            let i1 = e.out.value_type(guard);
            guard = e.simple(Opcode::Andi, &[ge, guard], i1);
        }
        let assigned: Vec<usize> =
            (0..vars.len()).filter(|&i| assigns(src, &vars[i].var, group, yields)).collect();
        let result_types: SmallVec<[Type; 8]> = assigned.iter().map(|&i| vars[i].ty).collect();
        let branch = e.op(Opcode::If, &[guard], &[1], &result_types, Loc::NONE);
        e.local(branch, group.local);
        let then = e.out.add_region(branch);
        let step_block = std::mem::replace(&mut e.cur, then);
        let inner_mark = e.enter();
        let inner_emitted = e.emitted.clone();
        let scaled = e.simple(Opcode::Muli, &[tk, stride], ity);
        let iv = e.simple(Opcode::Addi, &[lo, scaled], ity);
        if let Some(old) = old_iv {
            e.bind(old, iv);
        }
        for v in &vars {
            // The value this group sees: of the iteration that it runs.
            let at = |delay: u32| match delay as usize {
                0 => Some(v.current),
                d => v.args.get(d - 1).copied(),
            };
            let seen = match v.var {
                Var::Iter(_, k) if k == group.local => at(0),
                Var::Iter(..) => None,
                Var::Owned(own) => {
                    let def = match own {
                        Own::Acquired(p) => Step::Acquire(p),
                        Own::Announced(p) => Step::CommitTx(p),
                        Own::Waited(p, n) => Step::Wait(p, n),
                    };
                    group_of(def).and_then(|g| group.local.checked_sub(groups[g].local)).and_then(at)
                }
                Var::Value(x) => match src.value_def(x) {
                    ValueDef::Result(o, _) => {
                        local_of(o).and_then(|k| group.local.checked_sub(k)).and_then(at)
                    }
                    ValueDef::Param(..) => None,
                },
                Var::Arg(i) => match arg_local[i] {
                    Some(k) => (1 + group.local).checked_sub(k).and_then(at),
                    None => at(0),
                },
            };
            let Some(seen) = seen else { continue };
            match v.var {
                Var::Iter(p, _) => e.iters[p] = seen.into(),
                Var::Owned(own) => {
                    e.owned.insert(own, seen);
                }
                Var::Value(x) => e.bind(x, seen),
                Var::Arg(i) => e.bind(body_args[i], seen),
            }
        }
        for &step in &group.steps {
            match step {
                Step::Item(o) => {
                    if !first.contains(&o) {
                        e.uniforms(body, Some(o))?;
                    }
                    e.item(o, group.local)?;
                }
                Step::Release(p, n, Some(o), pending) if group_of(Step::Item(o)) != group_of(step) => {
                    // The completing op ran in another group: its token is not visible here.
                    e.step(Step::Release(p, n, None, pending), group.local)?;
                }
                s => e.step(s, group.local)?,
            }
        }
        let mut out: SmallVec<[Value; 8]> = SmallVec::new();
        for &i in &assigned {
            out.push(match vars[i].var {
                Var::Iter(p, _) => {
                    e.iters[p].expand().ok_or_else(|| internal(format!("no iterator for {p}")))?
                }
                Var::Owned(o) => {
                    e.owned.get(&o).copied().ok_or_else(|| internal("an ownership value is missing"))?
                }
                Var::Value(x) => e.get(x)?,
                Var::Arg(n) => e.get(yields[n])?,
            });
        }
        e.op(Opcode::Yield, &out, &[out.len() as u32], &[], Loc::NONE);
        e.leave(inner_mark);
        e.emitted = inner_emitted;
        e.cur = e.out.add_region(branch);
        let old: SmallVec<[Value; 8]> = assigned.iter().map(|&i| vars[i].current).collect();
        e.op(Opcode::Yield, &old, &[old.len() as u32], &[], Loc::NONE);
        e.cur = step_block;
        for (n, &i) in assigned.iter().enumerate() {
            vars[i].current = e.out.results(branch)[n];
        }
    }
    let mut out: SmallVec<[Value; 8]> = SmallVec::new();
    for v in &vars {
        for j in 0..v.chain {
            out.push(if j == 0 { v.current } else { v.args[j - 1] });
        }
    }
    e.op(Opcode::Yield, &out, &[out.len() as u32], &[], Loc::NONE);
    e.leave(mark);
    e.emitted = emitted;
    e.cur = outer;
    let mut at = 0;
    for v in &vars {
        if v.chain > 0 {
            let r = e.out.results(new)[at];
            match v.var {
                Var::Iter(p, _) => e.iters[p] = r.into(),
                Var::Arg(i) => {
                    if let Some(&old) = src.results(op).get(i) {
                        e.bind(old, r);
                    }
                }
                _ => {}
            }
        }
        at += v.chain;
    }
    Ok(())
}

/// Whether a group assigns a variable.
fn assigns(src: &Function, var: &Var, group: &Group, yields: &[Value]) -> bool {
    let defines = |e: &dyn Fn(&Step) -> bool| group.steps.iter().any(e);
    match *var {
        Var::Iter(p, k) => k == group.local && defines(&|s| *s == Step::Inc(p) || matches!(s, Step::Item(_))),
        Var::Owned(Own::Acquired(p)) => defines(&|s| *s == Step::Acquire(p)),
        Var::Owned(Own::Announced(p)) => defines(&|s| *s == Step::CommitTx(p)),
        Var::Owned(Own::Waited(p, n)) => defines(&|s| *s == Step::Wait(p, n)),
        Var::Value(v) => defines(&|s| matches!(s, Step::Item(o) if src.results(*o).contains(&v))),
        Var::Arg(i) => defines(
            &|s| matches!(s, Step::Item(o) if yields.get(i).is_some_and(|y| src.results(*o).contains(y))),
        ),
    }
}

fn need_var(vars: &mut Vec<VarData>, var: Var, chain: usize, ty: Type, init: Value) {
    match vars.iter_mut().find(|v| v.var == var) {
        Some(v) => v.chain = v.chain.max(chain),
        None => vars.push(VarData { var, chain, ty, init, current: init, args: SmallVec::new() }),
    }
}

/// A value that is never read: what a chain holds before its first definition.
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
