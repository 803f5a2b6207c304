//! Whether warpgroups may take turns at the iterations of a loop, each on a tile of its own (*ping-pong*).
//!
//! In: a prepared kernel and the target. Out: the loop, or why there is none. While one warpgroup stores its tile, the tensor core works for the other
//! one, so that from two inner iterations or so on nothing is seen of what stands behind the products: an iteration takes kt·T instead of kt·T + E, with
//! T the cycles of an inner iteration and E those of what stands behind. The price is a second set of accumulators, in the registers of the second
//! warpgroup, and a second staging area, which is why the choice needs no estimate of E: it is made where both fit.
//!
//! What the stages behind rely on:
//! - the loop stands in the kernel body, holds all that is computed in registers, and carries nothing: what an iteration makes is its own;
//! - products, and with them the waits for what they read, stand in one inner loop: a turn ends behind it, and slots are waited for in the order of
//!   iterations, without which a warpgroup would take one phase of a barrier for the next but one;
//! - no two iterations touch one element of a view that one of them writes, and nothing else orders them (fences, atomics, output).
//!
//! Cost: linear in the ops, and in pairs of accesses to written views.

use crate::ir::{Function, Op, Opcode};
use crate::isa::{AccAllocation, Issue, TargetIsa};
use crate::storage::alias::Touched;
use crate::storage::classify::{Classes, is_leaf, is_product, is_register_op, is_scalar_source};

/// Warpgroups that take turns.
pub const INSTANCES: u32 = 2;

/// The loop whose iterations are dealt out, or why none can be.
///
/// # Errors
/// What stands against it, and the op.
pub fn dealt_loop(
    func: &Function,
    classes: &Classes,
    isa: &dyn TargetIsa,
) -> Result<Op, (Option<Op>, &'static str)> {
    if isa.acc_home().allocation != AccAllocation::Registers || isa.mma_contract().issue != Issue::Warpgroup {
        return Err((None, "products are not those of warpgroups with accumulators in registers"));
    }
    let body = func.entry();
    let mut found: Option<Op> = None;
    for op in classes.ops.iter().copied().filter(|&op| is_product(func, op)) {
        let item = func.ancestor_in(op, body).filter(|&l| func.opcode(l) == Opcode::For);
        match (item, found) {
            (Some(l), None) => found = Some(l),
            (Some(l), Some(before)) if l == before => {}
            _ => return Err((Some(op), "this product stands in no loop with all the others")),
        }
    }
    let Some(l) = found else { return Err((None, "there is no product")) };
    if !func.named_segment(l, "inits").is_empty() {
        return Err((Some(l), "the loop carries values from iteration to iteration"));
    }
    if func.exit_of(l).is_some() {
        return Err((Some(l), "the loop may end early"));
    }
    let Some(block) = func.op_block_at(l, 0) else { return Err((Some(l), "it has no body")) };
    let mut inner: Option<Op> = None;
    for op in classes.ops.iter().copied().filter(|&op| is_product(func, op)) {
        let item = func.ancestor_in(op, block).filter(|&k| func.opcode(k) == Opcode::For);
        if item.is_none() || inner.is_some_and(|k| item != Some(k)) {
            return Err((Some(op), "this product stands in no inner loop with all the others"));
        }
        inner = item;
    }
    let against = |op: Op| {
        let opcode = func.opcode(op);
        let Some(item) = func.ancestor_in(op, block) else {
            let computes = is_register_op(func, op) && !is_leaf(opcode);
            let moves = matches!(opcode, Opcode::AsyncTiledTmaLoad | Opcode::AsyncTiledTmaStore);
            return (computes || moves).then_some("this stands outside of the loop");
        };
        if func.fences(op, op) || matches!(opcode, Opcode::Print | Opcode::Assert) {
            Some("this is ordered with all that comes before it")
        } else if is_scalar_source(func, op) {
            Some("one agent hands this number to others")
        } else if opcode == Opcode::AsyncTiledTmaLoad && inner != Some(item) && item != op {
            Some("this is loaded in an inner loop or branch without products")
        } else {
            None
        }
    };
    if let Some((op, why)) = func.ops().find_map(|op| Some((op, against(op)?))) {
        return Err((Some(op), why));
    }
    let inside = func.ops().filter(|&op| func.ancestor_in(op, block).is_some());
    let touched: Vec<Touched> = inside.filter_map(|op| Touched::of(func, op)).collect();
    for x in touched.iter().filter(|x| x.write) {
        for y in touched.iter().filter(|y| y.view == x.view) {
            if !x.apart_over(y, func, block) || !y.apart_over(x, func, block) {
                return Err((Some(x.op), "another iteration may touch what this writes"));
            }
        }
    }
    Ok(l)
}
