//! Removes ops without effect whose results no op uses.
//!
//! Cost: linear in ops and operands; nested regions keep alive what they use. Region ops are never removed.

use crate::ir::opcodes::Traits;
use crate::ir::{Function, Op, Value};
use cranelift_entity::SecondaryMap;

/// Removes dead pure ops, in dependence order, until none is left.
pub fn remove_dead(func: &mut Function) {
    let ops = func.all_ops();
    let mut uses: SecondaryMap<Value, u32> = SecondaryMap::new();
    uses.resize(func.num_values());
    for &op in &ops {
        for &v in func.operands(op) {
            uses[v] += 1;
        }
    }
    let dead = |func: &Function, uses: &SecondaryMap<Value, u32>, op: Op| {
        func.opcode(op).has(Traits::PURE)
            && func.regions(op).is_empty()
            && func.results(op).iter().all(|&v| uses[v] == 0)
    };
    // Operands are defined before their users, so one backward pass reaches everything.
    for &op in ops.iter().rev() {
        if dead(func, &uses, op) {
            for &v in func.operands(op) {
                uses[v] -= 1;
            }
            func.remove_op(op);
        }
    }
}
