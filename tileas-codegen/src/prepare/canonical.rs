//! The form of kernels that the scheduler is made for.
//!
//! In: a kernel in value form, whose small loops are written out ([`super::unroll`]): that may leave dead what they carried. Out: the same
//! without wrappers of single ops, dead ops and branches that only choose, in this order: what is dead decides nothing.
//! Cost: linear in ops and operands of the result.

use super::dead::{Live, remove_dead};
use super::{Draft, Renames, choose, replace};
use crate::ir::{Function, Opcode, Value};
use crate::isa::AccHome;
use smallvec::SmallVec;

/// Brings a kernel into canonical form.
pub(super) fn canonicalize(draft: &mut Draft<'_>, live: &mut Live, home: &AccHome) {
    if draft.has(Opcode::Dot) {
        open_dots(draft.edit());
    }
    remove_dead(draft, live);
    if draft.has(Opcode::If) {
        choose::without_choices(draft, live, home);
    }
}

/// `dot` wraps one `async.dot` in value form.
fn open_dots(func: &mut Function) {
    let mut renamed = Renames::default();
    for op in func.all_ops() {
        let operands: SmallVec<[Value; 3]> = func.operands(op).into();
        let (Opcode::Dot, Some(result), 3) = (func.opcode(op), func.result(op), operands.len()) else {
            continue;
        };
        let ty = func.value_type(result);
        replace(func, op, Opcode::AsyncDot, (&operands, &[1, 0, 1, 0, 1, 0, 0]), &[ty], &mut renamed);
    }
    renamed.apply(func);
}
