//! Tiles that a loop hands to its next iteration and that another agent reads there: rings with a distance of one.
//!
//! In: the placed function and agents. Out: the iteration arguments of which each iteration makes a new version, by an
//! op that writes all of it and by an agent that does not read it. The version of iteration i is read in iteration
//! i + 1, so writer and readers need not take turns on one place. The first version is the init: made before the loop by
//! an op of the same engine, or the zero constant, for which a slot passes through empty (readers know by the flag).
//! After the loop the readers take the last version, whether or not they use it: what was produced was consumed, and
//! rings go on through all loops. Any other carried tile stays in place. Cost: arguments × ops.

use super::access::{Key, accesses, class_of, is_constant, is_stored, reader_class};
use super::slice::base_of;
use crate::ir::{Block, Function, Op, Opcode, Value};
use crate::plan::AgentPlan;

/// One carried ring.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Carried {
    /// The loop.
    pub loop_op: Op,
    /// Its body.
    pub body: Block,
    /// The block it stands in.
    pub parent: Block,
    /// The argument.
    pub arg: Value,
    /// Who writes.
    pub writer: Key,
    /// The op of the body that makes the next version.
    pub write: Op,
    /// The op of the parent that makes the first one; none for a zero.
    pub init: Option<Op>,
    /// Who reads: the items of the body, and those of the parent that read the last version.
    pub readers: Vec<(Key, Vec<Op>, Vec<Op>)>,
}

/// Whether an op writes all of its result whatever was there.
fn fresh(func: &Function, op: Op) -> bool {
    match func.opcode(op) {
        Opcode::AsyncTiledTmaLoad => true,
        Opcode::AsyncDot => func.named_operand(op, "acc").is_some_and(|v| is_constant(func, v)),
        Opcode::Copy => func.named_operand(op, "dest").is_none(),
        _ => false,
    }
}

/// The readers of a value and its slices; `None` if something but a read uses it.
fn reads_of(func: &Function, all: &[Op], v: Value) -> Option<Vec<Op>> {
    let mut out = Vec::new();
    for &op in all {
        let mine = |&&x: &&Value| is_stored(func, x) && base_of(func, x) == v;
        if func.operands(op).iter().find(mine).is_none() || func.opcode(op) == Opcode::ExtractSlice {
            continue;
        }
        let touched = accesses(func, op);
        let count = touched.iter().filter(|a| base_of(func, a.value) == v).count();
        let used = func.operands(op).iter().filter(mine).count();
        if count != used || touched.iter().any(|a| a.writes && base_of(func, a.value) == v) {
            return None;
        }
        // A dot goes on from its accumulator.
        if func.opcode(op) == Opcode::AsyncDot
            && func.named_operand(op, "acc").is_some_and(|a| base_of(func, a) == v)
        {
            return None;
        }
        out.push(op);
    }
    Some(out)
}

/// Finds the carried rings of a function, in program order.
pub fn find(func: &Function, plan: &AgentPlan) -> Vec<Carried> {
    let mut all: Vec<Op> = Vec::new();
    let mut out = Vec::new();
    for l in func.ops().filter(|&op| func.opcode(op) == Opcode::For) {
        for n in (0..func.for_args(l).len()).filter(|&n| is_stored(func, func.for_args(l)[n])) {
            if all.is_empty() {
                all = func.all_ops();
            }
            out.extend(ring(func, plan, &all, l, n));
        }
    }
    out
}

fn ring(func: &Function, plan: &AgentPlan, all: &[Op], l: Op, n: usize) -> Option<Carried> {
    let (body, parent) = (func.op_block_at(l, 0)?, func.op_block(l)?);
    let arg = *func.for_args(l).get(n).filter(|&&v| is_stored(func, v))?;
    let next = *func.region_yields(l, 0).get(n)?;
    let key = |op: Op| Some(Key { agent: plan.op_agent[op].expand()?, class: class_of(func, plan, op) });
    let made = |v: Value, block: Block| {
        let op = func.defining_op(v)?;
        (func.op_block(op) == Some(block) && fresh(func, op)).then_some(op)
    };
    let write = made(next, body)?;
    let writer = key(write)?;
    let yields = func.last_op(body)?;
    let only = |v: Value, user: Op| {
        all.iter().all(|&op| {
            let uses =
                func.operands(op).iter().filter(|&&x| x == v || is_stored(func, x) && base_of(func, x) == v);
            uses.count() == usize::from(op == user)
        })
    };
    if !only(next, yields) {
        return None;
    }
    let start = *func.named_segment(l, "inits").get(n)?;
    let init = if is_constant(func, start) {
        None
    } else {
        let op = made(start, parent)?;
        if key(op)? != writer || !only(start, l) {
            return None;
        }
        Some(op)
    };
    let mut readers: Vec<(Key, Vec<Op>, Vec<Op>)> = Vec::new();
    let inside = reads_of(func, all, arg)?;
    let behind = reads_of(func, all, *func.results(l).get(n)?)?;
    let reads: Vec<Op> = inside.iter().chain(&behind).copied().collect();
    let reader = |op: Op| Some(Key { class: reader_class(func, plan, &reads, op), ..key(op)? });
    for op in inside {
        let (k, item) = (reader(op)?, func.ancestor_in(op, body)?);
        match readers.iter_mut().find(|r| r.0 == k) {
            Some(r) if r.1.contains(&item) => {}
            Some(r) => r.1.push(item),
            None => readers.push((k, vec![item], Vec::new())),
        }
    }
    for op in behind {
        let (k, item) = (reader(op)?, func.ancestor_in(op, parent)?);
        let r = readers.iter_mut().find(|r| r.0 == k)?;
        if !r.2.contains(&item) {
            r.2.push(item);
        }
    }
    readers.sort();
    let apart = !readers.is_empty() && readers.iter().all(|r| r.0.agent != writer.agent);
    apart.then_some(Carried { loop_op: l, body, parent, arg, writer, write, init, readers })
}
