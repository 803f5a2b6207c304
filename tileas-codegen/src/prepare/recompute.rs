//! Computes again, next to a use, what may be: registers for instructions.
//!
//! In: a kernel in value form. Out: the kernel in which the result of each op marked `tileas.recomputable` that computes in registers is made
//! again before each use but the first, at most `tileas.max_num_of_recomputations` times; further uses share the last. What such an op takes is made
//! again as well where it is marked, too. Tiles in shared or tensor memory are read again instead, by placement.
//!
//! What is computed again from the very same registers is one computation again after the clean-ups of thread-level code: it pays where the
//! operands are read or made again.
//! Guarantee: values stay what they are. Cost: linear in ops, and in uses of marked ones.

use super::{Draft, copy_before};
use crate::constraints::{RECOMPUTE_WORDS, RematWords, take};
use crate::ir::opcodes::Traits;
use crate::ir::{Function, Op, Opcode, Value};
use smallvec::SmallVec;

/// Results made again in one kernel at most: what is marked all along a chain with several uses each would grow without bound. Uses
/// beyond share what there is.
const MOST_COPIES: usize = 1024;

/// Makes the marked results again.
pub(super) fn recompute(draft: &mut Draft<'_>) {
    let func = draft.func();
    let marked: SmallVec<[Op; 4]> = func.ops().filter(|&op| is_repeatable(func, op)).collect();
    if marked.is_empty() {
        return;
    }
    let func = draft.edit();
    // The last first: what makes its operands again sees its copies.
    let mut left = MOST_COPIES;
    for &op in marked.iter().rev() {
        if left == 0 {
            break;
        }
        repeat(func, op, &mut left);
    }
}

/// Whether an op is marked, and makes a tile in registers of nothing but its operands.
fn is_repeatable(func: &Function, op: Op) -> bool {
    RematWords::of(func, op).recomputable
        && func.opcode(op).has(Traits::PURE)
        && !matches!(func.opcode(op), Opcode::Dot | Opcode::AsyncDot)
        && func.regions(op).is_empty()
        && func.result(op).is_some_and(|v| func.value_data(v).is_tile())
}

fn repeat(func: &mut Function, op: Op, left: &mut usize) {
    let Some(result) = func.result(op) else { return };
    let most = match RematWords::of(func, op).recomputations {
        0 => usize::MAX,
        n => n as usize,
    };
    take(func, op, &RECOMPUTE_WORDS);
    let users: SmallVec<[Op; 8]> = func.ops().filter(|&o| func.operands(o).contains(&result)).collect();
    let mut at = result;
    for (n, &user) in users.iter().enumerate().skip(1) {
        if n <= most && *left > 0 {
            *left -= 1;
            at = again(func, op, user);
        }
        // What was made inside of a branch or loop is not seen behind it.
        let made = func.defining_op(at).and_then(|o| func.op_block(o));
        let at = if made.is_some_and(|b| func.ancestor_in(user, b).is_some()) { at } else { result };
        for k in 0..func.operands(user).len() {
            if func.operands(user)[k] == result {
                func.set_operand(user, k, at);
            }
        }
    }
}

/// The op once more, before a use of it.
fn again(func: &mut Function, op: Op, user: Op) -> Value {
    // An exit stands right before the end of its loop.
    let exit = func.op_parent(user).and_then(|l| func.exit_of(l));
    let end = func.opcode(user).is_terminator();
    let new = copy_before(func, op, exit.filter(|_| end).unwrap_or(user));
    func.results(new)[0]
}
