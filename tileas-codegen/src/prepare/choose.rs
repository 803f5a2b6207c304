//! Branches that only choose between register tiles become `select`.
//!
//! In: a kernel in value form, without dead ops. Out: the kernel in which no branch results in a register tile
//! that its arms merely pass on. Such a branch holds no op of the agent that has the
//! tile, so nothing would say where in a schedule it stands; a `select` is an op of that agent like any other. What an
//! arm computes for every agent alike (constants, scalars and tiles of them) moves in front of the branch, unless it
//! might fail there. Accumulators stay: a branch between them costs nothing.
//! Guarantee: order, names and attributes of the rest stay. Cost: linear in ops and operands.

use super::dead::{Live, remove_dead};
use super::{Draft, Renames};
use crate::ir::opcodes::Traits;
use crate::ir::{Block, Function, Op, Opcode, Value};
use crate::isa::AccHome;
use crate::storage::classify::{ValueClass, arm_yields, classify, is_register_op};
use smallvec::SmallVec;

/// A result of a branch, what its arms yield for it, and what must move for that to be known in front of the branch.
struct Choice {
    branch: Op,
    result: Value,
    yields: [Value; 2],
    moved: SmallVec<[Op; 4]>,
}

/// Collects, in order, what has to move out of an arm for a value to be known before its branch. `None`: it cannot.
fn movable(func: &Function, v: Value, arm: Block, moved: &mut SmallVec<[Op; 4]>) -> Option<()> {
    let Some(op) = func.defining_op(v).filter(|&op| func.op_block(op) == Some(arm)) else { return Some(()) };
    if moved.contains(&op) {
        return Some(());
    }
    let opcode = func.opcode(op);
    let fails = matches!(opcode, Opcode::Divi | Opcode::Remi);
    let uniform = opcode.has(Traits::PURE) && func.regions(op).is_empty() && !is_register_op(func, op);
    if fails || !uniform {
        return None;
    }
    func.operands(op).iter().try_for_each(|&v| movable(func, v, arm, moved))?;
    moved.push(op);
    Some(())
}

/// The choice that result `n` of a branch is, if it is one.
fn choice(func: &Function, branch: Op, n: usize) -> Option<Choice> {
    let result = func.results(branch)[n];
    let given = arm_yields(func, branch, n);
    let &[(a, x), (b, y)] = given.as_slice() else { return None };
    let mut moved = SmallVec::new();
    for (end, v) in [(a, x), (b, y)] {
        movable(func, v, func.op_block(end)?, &mut moved)?;
    }
    Some(Choice { branch, result, yields: [x, y], moved })
}

/// Puts `select` in the place of branches that only choose.
pub(super) fn without_choices(draft: &mut Draft<'_>, live: &mut Live, home: &AccHome) {
    let func = draft.func();
    let mut found: SmallVec<[Choice; 4]> = SmallVec::new();
    for op in func.ops().filter(|&op| func.opcode(op) == Opcode::If) {
        let tiles = (0..func.results(op).len()).filter(|&n| func.value_data(func.results(op)[n]).is_tile());
        found.extend(tiles.filter_map(|n| choice(func, op, n)));
    }
    if found.is_empty() {
        return;
    }
    // What cannot be classified is refused when agents are planned.
    let Ok(classes) = classify(func, home) else { return };
    found.retain(|c| classes.class(c.result) == ValueClass::Reg);
    if found.is_empty() {
        return;
    }
    let out = draft.edit();
    let mut renamed = Renames::default();
    for c in &found {
        for &op in &c.moved {
            // Two results may rest on one op, two branches around each other on it too.
            let inside = |b: Block| out.block_parent(b) == Some(c.branch);
            if out.op_block(op).is_some_and(inside) {
                out.remove_op(op);
                out.insert_before(c.branch, op);
            }
        }
        let [yes, no] = c.yields;
        let Some(condition) = out.named_operand(c.branch, "condition").filter(|_| yes != no) else {
            renamed.set(c.result, yes);
            continue;
        };
        let (ty, loc) = (out.value_type(c.result), out.op_loc(c.branch));
        let select = out.make_op(Opcode::Select, &[condition, yes, no], &[1, 1, 1], &[ty], loc);
        out.insert_before(c.branch, select);
        let to = out.results(select)[0];
        renamed.succeed(out, c.result, to);
    }
    renamed.apply(out);
    // No op reads the results any more.
    remove_dead(draft, live);
}
