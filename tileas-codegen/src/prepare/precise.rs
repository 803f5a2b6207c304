//! Products of f32 as three products of tf32.
//!
//! In: a kernel in value form. Out: the kernel in which each product of f32 tiles, where the target multiplies tf32 and not f32, is
//! lo(A)·hi(B) + hi(A)·lo(B) + hi(A)·hi(B) onto the accumulator: hi is the operand rounded to tf32, lo what that leaves, rounded. Both have 11
//! significant bits, so together 22 of 24. The product of the two rests is left out. Each product of elements is off by less than 2^-20 of itself,
//! which is less than what a sum of a few dozen f32 products loses; the sums are those of the tensor core, in f32. Products of numbers that tf32 holds, such as
//! integers up to 2048, are exact. An infinite factor leaves no rest that is a number: its sums are NaN. So are those of numbers within 2^-12 of the
//! largest f32.
//!
//! An operand is taken apart once, behind the op that makes it, and with K innermost, which tf32 needs. Cost: linear in ops and operands.

use super::Draft;
use crate::ir::opcodes::keys;
use crate::ir::types::Shape;
use crate::ir::{AttrData, Function, Op, Opcode, Scalar, Type, TypeData, Value, ValueDef};
use crate::isa::{AtomType, TargetIsa};
use smallvec::SmallVec;

/// Writes products of f32 as products of tf32; whether there was one.
pub(super) fn expand(draft: &mut Draft<'_>, isa: &dyn TargetIsa) -> bool {
    if !draft.has(Opcode::Dot) && !draft.has(Opcode::AsyncDot) {
        return false;
    }
    let has = |t: AtomType| isa.atoms().kinds().any(|k| k.types.contains(&(t, t, AtomType::F32)));
    let func = draft.func();
    let products: SmallVec<[Op; 4]> = func.ops().filter(|&op| is_f32(func, op)).collect();
    if products.is_empty() || !has(AtomType::Tf32) {
        return false;
    }
    let func = draft.edit();
    let mut known: Parts = Parts::default();
    for op in products {
        rewrite(func, op, &mut known);
    }
    true
}

fn is_f32(func: &Function, op: Op) -> bool {
    let f32_tile = |name: &str| {
        let v = func.named_operand(op, name);
        v.is_some_and(|v| {
            let data = func.value_data(v);
            data.elem() == Some(Scalar::F32)
                && data.dims().is_some_and(|d| d.len() == 2)
                && data.space().is_none()
        })
    };
    func.opcode(op) == Opcode::AsyncDot
        && func.named_segment(op, "acc_stage").is_empty()
        && f32_tile("a")
        && f32_tile("b")
}

/// An operand and whether it is transposed: its high and low part.
type Parts = SmallVec<[((Value, bool), [Value; 2]); 4]>;

fn rewrite(func: &mut Function, op: Op, known: &mut Parts) {
    let (Some(a), Some(b), Some(result)) =
        (func.named_operand(op, "a"), func.named_operand(op, "b"), func.result(op))
    else {
        return;
    };
    let (ta, tb) = (func.has_attr(op, keys::TRANSPOSE_A), func.has_attr(op, keys::TRANSPOSE_B));
    let [ah, al] = parts(func, a, ta, known);
    let [bh, bl] = parts(func, b, !tb, known);
    func.inherent_mut(op).remove(keys::TRANSPOSE_A);
    func.set_attr(op, keys::TRANSPOSE_B, AttrData::Unit);
    let ty = func.value_type(result);
    let operands: SmallVec<[Value; 4]> = func.operands(op).into();
    let segments: SmallVec<[u32; 8]> = func.segments(op).into();
    // The small parts first. The first product does what the one of f32 did with the accumulator.
    let mut acc = operands[2];
    for (n, (x, y)) in [(al, bh), (ah, bl)].into_iter().enumerate() {
        let mut own = operands.clone();
        (own[0], own[1], own[2]) = (x, y, acc);
        let mut counts = segments.clone();
        if n > 0 {
            own.truncate(3);
            counts[6] = 0;
        }
        let new = func.make_op(Opcode::AsyncDot, &own, &counts, &[ty], func.op_loc(op));
        *func.inherent_mut(new) = func.inherent(op).clone();
        *func.discardable_mut(new) = func.discardable(op).clone();
        func.insert_before(op, new);
        acc = func.results(new)[0];
    }
    let mut counts = segments;
    counts[6] = 0;
    func.set_operands(op, &[ah, bh, acc], &counts);
}

/// The high and low part of an operand, with K innermost.
fn parts(func: &mut Function, v: Value, transposed: bool, known: &mut Parts) -> [Value; 2] {
    if let Some(found) = known.iter().find(|p| p.0 == (v, transposed)) {
        return found.1;
    }
    let mut at = After::new(func, v);
    let mut x = v;
    if transposed {
        let TypeData::Tile { dims, elem, .. } = func.value_data(v).clone() else { return [v, v] };
        let dims: Shape = dims.iter().rev().copied().collect();
        let ty = func.intern_type(TypeData::Tile { dims, elem, space: None, layout: None });
        x = at.put(func, Opcode::Permute, &[v], ty);
        if let Some(op) = func.defining_op(x) {
            func.set_ints(op, keys::PERMUTATION, &[1, 0]);
        }
    }
    let (wide, narrow) = (func.value_type(x), as_tf32(func, x));
    let high = at.put(func, Opcode::Ftof, &[x], narrow);
    let back = at.put(func, Opcode::Ftof, &[high], wide);
    let rest = at.put(func, Opcode::Subf, &[x, back], wide);
    let low = at.put(func, Opcode::Ftof, &[rest], narrow);
    known.push(((v, transposed), [high, low]));
    [high, low]
}

/// The type of a tile of tf32 elements.
fn as_tf32(func: &mut Function, v: Value) -> Type {
    let TypeData::Tile { dims, .. } = func.value_data(v).clone() else { return func.value_type(v) };
    func.intern_type(TypeData::Tile { dims, elem: Scalar::TF32, space: None, layout: None })
}

/// Where ops behind the definition of a value go, one after the other.
struct After {
    behind: Option<Op>,
    value: Value,
}

impl After {
    fn new(func: &Function, value: Value) -> After {
        After { behind: func.defining_op(value), value }
    }

    fn put(&mut self, func: &mut Function, opcode: Opcode, operands: &[Value], ty: Type) -> Value {
        let loc = self.behind.map_or(func.loc, |op| func.op_loc(op));
        let segments: SmallVec<[u32; 3]> = SmallVec::from_elem(1, operands.len());
        let op = func.make_op(opcode, operands, &segments, &[ty], loc);
        let next = match (self.behind, func.value_def(self.value)) {
            (Some(before), _) => func.next_op(before),
            (None, ValueDef::Param(b, _)) => func.first_op(b),
            (None, ValueDef::Result(..)) => None,
        };
        let block = match func.value_def(self.value) {
            ValueDef::Param(b, _) => Some(b),
            ValueDef::Result(def, _) => func.op_block(def),
        };
        match (next, block) {
            (Some(next), _) => func.insert_before(next, op),
            (None, Some(b)) => func.append_op(b, op),
            (None, None) => {}
        }
        self.behind = Some(op);
        func.results(op)[0]
    }
}
