//! Branches that only choose between register tiles become `select`.
//!
//! In: a source kernel in value form, without dead ops. Out: the kernel in which no branch results in a register tile
//! that its arms merely pass on, or nothing where there is none. Such a branch holds no op of the agent that has the
//! tile, so nothing would say where in a schedule it stands; a `select` is an op of that agent like any other. What an
//! arm computes for every agent alike (constants, scalars and tiles of them) moves in front of the branch, unless it
//! might fail there. Accumulators stay: a branch between them costs nothing.
//! Guarantee: order, names and attributes of the rest stay. Cost: linear in ops and operands.

use super::dead::without_dead;
use crate::ir::opcodes::Traits;
use crate::ir::{Block, Function, Op, Opcode, Value};
use crate::storage::classify::{Class, arm_yields, classify, is_register_op};
use cranelift_entity::SecondaryMap;
use cranelift_entity::packed_option::PackedOption;
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

/// The kernel with `select` in the place of branches that only choose; `None` if there is none.
pub fn without_choices(func: &Function) -> Option<Function> {
    let mut found: Vec<Choice> = Vec::new();
    for op in func.ops().filter(|&op| func.opcode(op) == Opcode::If) {
        let tiles = (0..func.results(op).len()).filter(|&n| func.value_data(func.results(op)[n]).is_tile());
        found.extend(tiles.filter_map(|n| choice(func, op, n)));
    }
    if found.is_empty() {
        return None;
    }
    // What cannot be classified is refused when agents are planned.
    let classes = classify(func).ok()?;
    found.retain(|c| classes.class(c.result) == Class::Reg);
    if found.is_empty() {
        return None;
    }
    let mut out = func.clone();
    let mut renamed: SecondaryMap<Value, PackedOption<Value>> = SecondaryMap::new();
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
            renamed[c.result] = yes.into();
            continue;
        };
        let (ty, loc) = (out.value_type(c.result), out.op_loc(c.branch));
        let select = out.make_op(Opcode::Select, &[condition, yes, no], &[1, 1, 1], &[ty], loc);
        out.insert_before(c.branch, select);
        let to = out.results(select)[0];
        if let Some(name) = out.value_sym(c.result) {
            out.set_value_sym(to, name);
        }
        renamed[c.result] = to.into();
    }
    for op in out.all_ops() {
        for n in 0..out.operands(op).len() {
            let mut v = out.operands(op)[n];
            while let Some(to) = renamed[v].expand() {
                v = to;
            }
            if v != out.operands(op)[n] {
                out.set_operand(op, n, v);
            }
        }
    }
    // Nobody reads the results now.
    without_dead(&out).or(Some(out))
}
