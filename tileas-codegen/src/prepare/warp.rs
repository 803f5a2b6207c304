//! Exchanges the axes of operands that the target's instructions take one way round only, and leaves products to warps that no instruction of the
//! target is small enough for.
//!
//! In: a kernel in value form, whose products are turned round and halved as they may be. Out: the kernel in which each operand of whose type the
//! target needs K innermost has it so, through a `permute` that another warpgroup computes, and each product of register
//! tiles whose extents the target's own instructions lack is a `warp_dot`. Guarantee: each product sums the same terms. Cost: linear in ops.

use super::{Draft, Renames, replace};
use crate::ir::opcodes::keys;
use crate::ir::types::Shape;
use crate::ir::{AttrData, Function, Op, Opcode, Scalar, TypeData, Value};
use crate::isa::{MmaRequest, TargetIsa};
use smallvec::SmallVec;

/// Most elements of an accumulator: more do not fit the registers of few warps.
const MOST_ELEMENTS: u32 = 128 * 128;

/// Gives products to warps.
pub(super) fn divide(draft: &mut Draft<'_>, isa: &dyn TargetIsa) {
    if !draft.has(Opcode::Dot) && !draft.has(Opcode::AsyncDot) {
        return;
    }
    exchange(draft, isa);
    let func = draft.func();
    let small: SmallVec<[Op; 4]> = func.ops().filter(|&op| is_left(func, op, isa)).collect();
    if small.is_empty() {
        return;
    }
    let func = draft.edit();
    let mut renamed = Renames::default();
    for op in small {
        let (Some(a), Some(b), Some(acc)) =
            (func.named_operand(op, "a"), func.named_operand(op, "b"), func.named_operand(op, "acc"))
        else {
            continue;
        };
        let (ta, tb) = (func.has_attr(op, keys::TRANSPOSE_A), func.has_attr(op, keys::TRANSPOSE_B));
        let (left, right) = (oriented(func, op, a, ta), oriented(func, op, b, tb));
        // Two operands are two tiles, each in its own layout.
        let right = if left == right { copied(func, op, right) } else { right };
        let ty = func.value_type(acc);
        let new = replace(func, op, Opcode::WarpDot, (&[left, right, acc], &[1, 1, 1]), &[ty], &mut renamed);
        for key in [keys::TRANSPOSE_A, keys::TRANSPOSE_B, keys::ATOM] {
            func.inherent_mut(new).remove(key);
        }
    }
    renamed.apply(func);
}

/// Permutes operands of products that have an instruction of the target only with K innermost.
fn exchange(draft: &mut Draft<'_>, isa: &dyn TargetIsa) {
    let func = draft.func();
    let fits = |op: &Op| {
        let Some(r) = MmaRequest::of(func, *op).filter(|_| is_value(func, *op)) else { return false };
        let inner = MmaRequest { a_m_contiguous: false, b_n_contiguous: false, ..r };
        isa.atoms().select_mma(&r).is_err() && isa.atoms().select_mma(&inner).is_ok()
    };
    let turned: SmallVec<[Op; 4]> = func.ops().filter(fits).collect();
    if turned.is_empty() {
        return;
    }
    let func = draft.edit();
    for op in turned {
        // K is the last axis of A as it is, and of a transposed B.
        for (n, key, last) in [(0, keys::TRANSPOSE_A, false), (1, keys::TRANSPOSE_B, true)] {
            let Some(&v) = func.operands(op).get(n).filter(|_| func.has_attr(op, key) != last) else {
                continue;
            };
            let v = oriented(func, op, v, true);
            func.set_operand(op, n, v);
            if last {
                func.set_attr(op, key, AttrData::Unit);
            } else {
                func.inherent_mut(op).remove(key);
            }
        }
    }
}

/// Whether an op is a product in value form.
fn is_value(func: &Function, op: Op) -> bool {
    func.opcode(op) == Opcode::AsyncDot
        && func.named_segment(op, "acc_stage").is_empty()
        && func.named_segment(op, "accumulate").is_empty()
}

/// Whether a product has no instruction of the target, and one of warps.
fn is_left(func: &Function, op: Op, isa: &dyn TargetIsa) -> bool {
    let elem = |name| func.named_operand(op, name).and_then(|v| func.value_data(v).elem());
    let Some(r) = MmaRequest::of(func, op).filter(|_| is_value(func, op)) else { return false };
    let (Some(a), Some(b), Some(acc)) = (elem("a"), elem("b"), elem("acc")) else { return false };
    let least = match (a, b) {
        (Scalar::F16, Scalar::F16) | (Scalar::BF16, Scalar::BF16) => 8,
        (Scalar::TF32, Scalar::TF32) => 4,
        (Scalar::E4M3 | Scalar::E5M2, Scalar::E4M3 | Scalar::E5M2) => 32,
        (Scalar::I8, Scalar::I8) => 16,
        _ => return false,
    };
    let sums = if a.is_float() { acc == Scalar::F32 } else { acc == Scalar::I32 };
    sums && r.k >= least && r.m.saturating_mul(r.n) <= MOST_ELEMENTS && isa.atoms().select_mma(&r).is_err()
}

/// The operand the way round that the product has it.
fn oriented(func: &mut Function, at: Op, v: Value, transposed: bool) -> Value {
    let TypeData::Tile { dims, elem, .. } = func.value_data(v) else { return v };
    if !transposed {
        return v;
    }
    let (dims, elem): (Shape, Scalar) = (dims.iter().rev().copied().collect(), *elem);
    let ty = func.intern_type(TypeData::tile(&dims, elem));
    let op = func.make_op(Opcode::Permute, &[v], &[1], &[ty], func.op_loc(at));
    func.set_ints(op, keys::PERMUTATION, &[1, 0]);
    func.insert_before(at, op);
    func.results(op)[0]
}

/// The same tile as another value.
fn copied(func: &mut Function, at: Op, v: Value) -> Value {
    let op = func.make_op(Opcode::ConvertLayout, &[v], &[1], &[func.value_type(v)], func.op_loc(at));
    func.insert_before(at, op);
    func.results(op)[0]
}
