//! Conversions between float types that need no instruction of their own.
//!
//! In: the materialised function. Out: two marks per value, made once before it is lowered.
//!
//! *Held*: a widened f16 or bf16 tile that is only added to or subtracted from, perhaps after a change of shape. It stays in
//! 16-bit registers, and the addition reads those (`add.rn.f32.f16`). Exact: the instruction is defined as the addition of the
//! widened operand, widening is exact (subnormals included), and there is one rounding either way.
//!
//! *Clamped*: the greater or the less of a tile and a constant, where all that becomes of it is a narrowing to a type that has
//! the constant. The tile is narrowed first and then clamped, two elements at once. Exact: with −0 below +0, as `max` and
//! `min` order them, rounding to nearest is monotone (what is rounded to −0 or to ±∞ included) and leaves the constant as it is,
//! hence round(max(x, c)) = max(round(x), round(c)) = max(round(x), c). Of a NaN, which narrowing keeps, `max` and `min` make
//! the constant and `max.NaN` and `min.NaN` a NaN in either width; the constant is none.
//!
//! Cost: one pass over the operations, one over those in question. Source: PTX ISA, "Mixed Precision Floating Point
//! Instructions: add, sub", "Half Precision: max".

use super::tile::half;
use crate::ir::{Function, Op, Opcode, Scalar, Value, keys};
use crate::nvvm::{PtxOp, Target};
use cranelift_entity::{SecondaryMap, packed_option::PackedOption};

/// What is to be done to a tile after it was narrowed.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Clamp {
    /// The tile.
    pub of: Value,
    /// The form, of two elements.
    pub form: PtxOp,
    /// Both elements of the second operand.
    pub bits: u32,
}

/// What is known of one value.
#[derive(Copy, Clone, Default)]
struct ValueUse {
    /// How many operands it is.
    count: u32,
    /// The last op that has it as an operand.
    last: PackedOption<Op>,
    /// Some op needs its f32 elements.
    widened: bool,
    /// It is clamped after it was narrowed to this type.
    clamped: Option<Scalar>,
}

/// The marks, and clamps on their way to the op that narrows. Reused from one function to the next.
#[derive(Default)]
pub(crate) struct Fusion {
    uses: SecondaryMap<Value, ValueUse>,
    candidates: Vec<Op>,
    clamps: Vec<Clamp>,
}

/// Whether an op only says where the elements of its operand are.
fn renames(code: Opcode) -> bool {
    matches!(
        code,
        Opcode::Broadcast | Opcode::Reshape | Opcode::Permute | Opcode::ExtractSlice | Opcode::ConvertLayout
    )
}

/// The bits of a constant in a 16-bit float type, if that has it; no NaN.
pub(super) fn half_bits(value: f64, elem: Scalar) -> Option<u16> {
    let v = value as f32;
    if f64::from(v) != value {
        return None;
    }
    let bits = v.to_bits();
    if elem == Scalar::BF16 {
        return (bits & 0xffff == 0).then_some((bits >> 16) as u16);
    }
    let sign = (bits >> 16 & 0x8000) as u16;
    let magnitude = v.abs();
    if magnitude.is_infinite() {
        return Some(sign | 0x7c00);
    }
    let exponent = (bits >> 23 & 0xff) as i32 - 127;
    if exponent >= -14 {
        let fits = exponent <= 15 && bits & 0x1fff == 0;
        return fits.then_some(sign | ((exponent + 15) as u16) << 10 | (bits >> 13 & 0x3ff) as u16);
    }
    // Zero or subnormal there: a multiple of 2^-24.
    let steps = magnitude * 16_777_216.0;
    (steps.fract() == 0.0).then_some(sign | steps as u16)
}

/// The form that adds to or subtracts from an f16 or bf16 in f32.
pub(super) fn mixed(form: PtxOp, elem: Scalar, target: Target) -> Option<PtxOp> {
    let mixed = match (form, elem) {
        (PtxOp::AddRnF32, Scalar::F16) => PtxOp::AddRnF32F16,
        (PtxOp::AddRnF32, Scalar::BF16) => PtxOp::AddRnF32Bf16,
        (PtxOp::SubRnF32, Scalar::F16) => PtxOp::SubRnF32F16,
        (PtxOp::SubRnF32, Scalar::BF16) => PtxOp::SubRnF32Bf16,
        _ => return None,
    };
    mixed.form().available_on(target).then_some(mixed)
}

/// The form that clamps two narrow elements.
fn clamp_form(code: Opcode, nan: bool, elem: Scalar) -> Option<PtxOp> {
    Some(match (code, nan, elem) {
        (Opcode::Maxf, false, Scalar::F16) => PtxOp::MaxF16x2,
        (Opcode::Maxf, true, Scalar::F16) => PtxOp::MaxNanF16x2,
        (Opcode::Minf, false, Scalar::F16) => PtxOp::MinF16x2,
        (Opcode::Minf, true, Scalar::F16) => PtxOp::MinNanF16x2,
        (Opcode::Maxf, false, Scalar::BF16) => PtxOp::MaxBf16x2,
        (Opcode::Maxf, true, Scalar::BF16) => PtxOp::MaxNanBf16x2,
        (Opcode::Minf, false, Scalar::BF16) => PtxOp::MinBf16x2,
        (Opcode::Minf, true, Scalar::BF16) => PtxOp::MinNanBf16x2,
        _ => return None,
    })
}

impl Fusion {
    /// Marks the values of a function.
    pub(super) fn mark(&mut self, f: &Function) {
        let Self { uses, candidates, clamps } = self;
        uses.clear();
        uses.resize(f.num_values());
        candidates.clear();
        clamps.clear();
        for op in f.ops() {
            let code = f.opcode(op);
            if renames(code) || matches!(code, Opcode::Ftof | Opcode::Maxf | Opcode::Minf) {
                candidates.push(op);
            }
            for (i, &v) in f.operands(op).iter().enumerate() {
                let here = f.defining_op(v).is_some_and(|d| f.op_block(d) == f.op_block(op));
                let known = &mut uses[v];
                known.count += 1;
                known.last = op.into();
                // A conversion is not to be repeated where it would run more often than it was written to.
                known.widened |=
                    !here || !(renames(code) || code == Opcode::Addf || (code == Opcode::Subf && i == 0));
            }
        }
        // From users to what they use: users come later.
        for &op in candidates.iter().rev() {
            let (Some(result), Some(&source)) = (f.result(op), f.operands(op).first()) else { continue };
            if renames(f.opcode(op)) {
                let widened = uses[result].widened;
                uses[source].widened |= widened;
            } else if f.opcode(op) != Opcode::Ftof {
                uses[result].clamped = narrowed_to(f, uses, op, result);
            }
        }
    }

    /// How many operands a value is.
    pub(super) fn uses_of(&self, v: Value) -> u32 {
        self.uses[v].count
    }

    /// Whether a widened tile is to stay as it is.
    #[inline]
    pub(super) fn is_held(&self, v: Value) -> bool {
        !self.uses[v].widened
    }

    /// Whether the op's result is `source`, to be clamped once it was narrowed.
    pub(super) fn defer(&mut self, f: &Function, op: Op, result: Value, source: Value) -> bool {
        let Some(elem) = self.uses[result].clamped else { return false };
        let form = clamp_form(f.opcode(op), f.has_attr(op, keys::PROPAGATE_NAN), elem);
        let Some((form, bits)) = form.zip(constant(f, op, elem)) else { return false };
        for i in 0..self.clamps.len() {
            if self.clamps[i].of == source {
                self.clamps.push(Clamp { of: result, ..self.clamps[i] });
            }
        }
        self.clamps.push(Clamp { of: result, form, bits: u32::from(bits) * 0x1_0001 });
        true
    }

    /// The clamps that are due when `v` was narrowed: from the number given on, the next one and its number.
    #[inline]
    pub(super) fn due(&self, v: Value, from: usize) -> Option<(usize, Clamp)> {
        let (i, clamp) = self.clamps.iter().enumerate().skip(from).find(|(_, c)| c.of == v)?;
        Some((i, *clamp))
    }
}

/// The second operand, if it is a constant that the type has.
fn constant(f: &Function, op: Op, elem: Scalar) -> Option<u16> {
    let &[_, second] = f.operands(op) else { return None };
    // Narrow numbers are not flushed where f32 is.
    if f.has_attr(op, keys::FTZ) {
        return None;
    }
    half_bits(f.constant_value(second)?, elem)
}

/// To what the result of a `maxf` or `minf` is narrowed, if that can come first.
fn narrowed_to(f: &Function, uses: &SecondaryMap<Value, ValueUse>, op: Op, result: Value) -> Option<Scalar> {
    let (ValueUse { count: 1, last, .. }, Some(Scalar::F32)) = (uses[result], f.value_data(result).elem())
    else {
        return None;
    };
    let user = last.expand().filter(|&u| f.op_block(u) == f.op_block(op))?;
    let to = f.result(user).filter(|_| f.operands(user).first() == Some(&result))?;
    let elem = match f.opcode(user) {
        Opcode::Ftof => f.value_data(to).elem().filter(|&e| half(e))?,
        Opcode::Maxf | Opcode::Minf => uses[to].clamped?,
        _ => return None,
    };
    (f.value_data(result).is_tile() && constant(f, op, elem).is_some()).then_some(elem)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_bits_has_what_the_type_has_and_nothing_else() {
        let f16 = |v| half_bits(v, Scalar::F16);
        assert_eq!([f16(0.0), f16(-0.0), f16(1.0), f16(-2.5)], [0, 0x8000, 0x3c00, 0xc100].map(Some));
        assert_eq!([f16(65504.0), f16(f64::INFINITY)], [0x7bff, 0x7c00].map(Some));
        assert_eq!(
            [2f64.powi(-14), 2f64.powi(-24), 1023.0 * 2f64.powi(-24)].map(f16),
            [0x400, 1, 0x3ff].map(Some)
        );
        assert_eq!([65536.0, 65520.0, 0.1, 2049.0, 2f64.powi(-25), f64::NAN].map(f16), [None; 6]);
        let bf16 = |v| half_bits(v, Scalar::BF16);
        assert_eq!(
            [1.0, -0.0, 2f64.powi(-133), f64::NEG_INFINITY].map(bf16),
            [0x3f80, 0x8000, 1, 0xff80].map(Some)
        );
        assert_eq!([257.0, 0.1, 1e300, f64::NAN].map(bf16), [None; 4]);
    }
}
