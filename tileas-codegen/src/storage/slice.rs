//! Which part of which stored tile a value is.
//!
//! In: a value of the placed function. Out: the tile it was cut from ([`base_of`]), where it lies in it ([`slice_base`],
//! [`part_of`]), or the number that says so when the program runs ([`numbered_slice`]). Every other stage asks here; the
//! proofs ([`super::check`], the verifier of materialised functions) do not. Cost: depth of nested slices.

use super::access::Access;
use crate::ir::{Function, Op, Opcode, Space, Value, keys};
use smallvec::SmallVec;

/// Half-open ranges of elements, one per dimension.
pub type Ranges = SmallVec<[(i64, i64); 2]>;

/// The tile a slice was taken from.
pub fn base_of(func: &Function, mut v: Value) -> Value {
    while let Some(op) = func.defining_op(v).filter(|&op| func.opcode(op) == Opcode::ExtractSlice) {
        let Some(base) = func.named_operand(op, "source") else { break };
        v = base;
    }
    v
}

/// The `extract_slice` with a number behind a stored tile: the slice is known when the program runs. Parts of register tiles are tiles of
/// their own.
pub fn numbered_slice(func: &Function, mut v: Value) -> Option<(Op, Value)> {
    loop {
        if func.value_data(v).space() == Some(Space::Rmem) {
            return None;
        }
        let op = func.defining_op(v).filter(|&op| func.opcode(op) == Opcode::ExtractSlice)?;
        if let Some(number) = func.named_operand(op, "number") {
            return Some((op, number));
        }
        v = func.named_operand(op, "source")?;
    }
}

/// The tile a slice was taken from and the offset of the slice in it, innermost last; of a [`numbered_slice`] that of
/// number 0.
pub fn slice_base(func: &Function, mut v: Value) -> (Value, SmallVec<[i64; 4]>) {
    let rank = func.value_data(v).dims().map_or(0, <[u32]>::len);
    let mut offsets: SmallVec<[i64; 4]> = SmallVec::from_elem(0, rank);
    while let Some(op) = func.defining_op(v).filter(|&op| func.opcode(op) == Opcode::ExtractSlice) {
        let Some(base) = func.named_operand(op, "source") else { break };
        shift(func, op, &mut offsets);
        v = base;
    }
    (v, offsets)
}

/// Adds the static offsets of an op.
fn shift(func: &Function, op: Op, offsets: &mut [i64]) {
    for (o, add) in offsets.iter_mut().zip(func.attr_ints(op, keys::OFFSETS).unwrap_or_default()) {
        *o += add;
    }
}

/// The tile behind what an op accesses, and which part of it; `None` is the whole, or a part that shows when the program
/// runs. A copy narrows it by its offsets.
pub fn part_of(func: &Function, op: Op, access: &Access) -> (Value, Option<Ranges>) {
    let (base, mut offsets) = slice_base(func, access.value);
    if numbered_slice(func, access.value).is_some() {
        return (base, None);
    }
    let mut seen = access.value;
    if func.opcode(op) == Opcode::Copy && func.has_attr(op, keys::OFFSETS) {
        // Its offsets are those of the stored tile that it reads, or writes in place.
        let other = match (func.named_operand(op, "dest"), access.writes) {
            (Some(_), true) => func.named_operand(op, "source"),
            (None, false) => func.result(op),
            _ => None,
        };
        if let Some(v) = other {
            shift(func, op, &mut offsets);
            seen = v;
        }
    }
    let dims = func.value_data(seen).dims().unwrap_or(&[]);
    let part = (seen != base && offsets.len() == dims.len())
        .then(|| offsets.iter().zip(dims).map(|(&o, &d)| (o, o + i64::from(d))).collect());
    (base, part)
}

/// Whether one part holds all of another.
pub fn covers(outer: &Ranges, inner: &Ranges) -> bool {
    outer.len() == inner.len() && outer.iter().zip(inner).all(|(x, y)| x.0 <= y.0 && y.1 <= x.1)
}

/// Whether two parts have an element in common.
pub fn meets(a: &Ranges, b: &Ranges) -> bool {
    a.len() != b.len() || a.iter().zip(b).all(|(x, y)| x.0 < y.1 && y.0 < x.1)
}
