//! `cvt` between floating-point types.
//!
//! In: a pattern of one format and the modifiers. Out: the pattern of the other format, rounded
//! once. Order of the rules, as the PTX ISA words them: `.ftz` flushes subnormal f32 inputs, NaN
//! becomes the destination's NaN, `.relu` clamps negative results to +0, then rounding, then
//! saturation.
//! Left to the caller: packing two results into one register (the first source is the upper half).
//! Source: PTX ISA, `cvt`.

use super::exact::{Exact, Rounding};
use super::format::{BF16, E2M1, E2M3, E3M2, E4M3, E5M2, F16, F32, F64, Format, Num, Special, TF32, UE8M0};

/// Modifiers of a floating-point `cvt`.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Cvt {
    /// Rounding of inexact results.
    pub rounding: Rounding,
    /// `.satfinite`: what exceeds the largest finite number, and infinity, becomes that number.
    pub satfinite: bool,
    /// `.sat`: clamp to `[0, 1]`, NaN to +0.
    pub sat: bool,
    /// `.relu`: negative results (and -0) become +0; NaN stays NaN.
    pub relu: bool,
    /// `.ftz`: subnormal f32 inputs and results become zero of the same sign.
    pub ftz: bool,
}

impl Cvt {
    /// A conversion with nothing but a rounding.
    pub const fn with(rounding: Rounding) -> Self {
        Self { rounding, satfinite: false, sat: false, relu: false, ftz: false }
    }

    /// The same with `.satfinite`.
    pub const fn satfinite(self) -> Self {
        Self { satfinite: true, ..self }
    }

    /// The same with `.relu`.
    pub const fn relu(self) -> Self {
        Self { relu: true, ..self }
    }

    /// The same with `.ftz`.
    pub const fn ftz(self) -> Self {
        Self { ftz: true, ..self }
    }
}

/// Converts the pattern `bits` of `src` to `dst`.
pub fn convert(src: &Format, bits: u64, dst: &Format, how: Cvt) -> u64 {
    let plain = how.rounding == Rounding::Rn && !(how.satfinite || how.sat || how.relu || how.ftz);
    if plain && src.man_bits == 23 && dst.man_bits == 7 {
        return narrow_bf16(bits as u32).into();
    }
    let flush = how.ftz && src.bits == 32 && src.is_subnormal(bits);
    let value = match src.decode(bits) {
        // `.rna` to tf32 cuts a NaN as if it were a number (seen on an H100).
        Num::Nan if how.rounding == Rounding::Rna && dst.pad > 0 && !how.sat => {
            return bits >> dst.pad << dst.pad;
        }
        Num::Finite(x) if flush => Num::Finite(Exact::zero(x.neg)),
        value => value,
    };
    encode(value, dst, how)
}

/// f32 to bf16, to nearest even: the usual case of the packed conversions, without decoding.
fn narrow_bf16(x: u32) -> u16 {
    if x & 0x7FFF_FFFF > 0x7F80_0000 {
        return BF16.nan as u16;
    }
    // Cannot wrap: the largest pattern left is an infinity.
    ((x + 0x7FFF + (x >> 16 & 1)) >> 16) as u16
}

/// Rounds a decoded number into `dst` under the modifiers.
pub fn encode(value: Num, dst: &Format, how: Cvt) -> u64 {
    let value = match value {
        Num::Nan if how.sat => Num::Finite(Exact::zero(false)),
        Num::Finite(x) if how.sat => Num::Finite(clamp_unit(x)),
        Num::Inf(neg) if how.sat => Num::Finite(clamp_unit(Exact::new(neg, 2, 0))),
        Num::Finite(x) if how.relu && x.neg => Num::Finite(Exact::zero(false)),
        Num::Inf(true) if how.relu => Num::Finite(Exact::zero(false)),
        value => value,
    };
    match value {
        // fp4 and fp6 have no NaN: the largest positive number stands for it.
        Num::Nan if dst.special == Special::None => dst.max_finite(),
        Num::Nan => dst.nan,
        Num::Inf(neg) => {
            let sign = if neg { dst.sign_bit() } else { 0 };
            // A format without infinity saturates whether asked to or not; ue8m0 has its NaN instead.
            let finite = how.satfinite || dst.special != Special::Ieee && dst.signed;
            sign | if finite { dst.max_finite() } else { dst.infinity() }
        }
        Num::Finite(x) => {
            let (bits, overflow) = dst.round(x, how.rounding);
            if overflow && how.satfinite {
                return (bits & dst.sign_bit()) | dst.max_finite();
            }
            if overflow && !dst.signed {
                return dst.nan;
            }
            if how.ftz && dst.bits == 32 && dst.is_subnormal(bits) { bits & dst.sign_bit() } else { bits }
        }
    }
}

fn clamp_unit(x: Exact) -> Exact {
    if x.neg || x.is_zero() {
        Exact::zero(false)
    } else if x.top() >= 0 {
        Exact::new(false, 1, 0)
    } else {
        x
    }
}

/// Converts an f32 to another format.
pub fn f32_to(dst: &Format, x: f32, how: Cvt) -> u64 {
    convert(&F32, x.to_bits().into(), dst, how)
}

/// Value of a pattern of at most 32 bits as f32: exact for every such format.
pub fn f32_from(src: &Format, bits: u64) -> f32 {
    f32::from_bits(convert(src, bits, &F32, Cvt::with(Rounding::Rn)) as u32)
}

/// Value of a pattern as f64: exact for every format.
pub fn f64_from(src: &Format, bits: u64) -> f64 {
    f64::from_bits(convert(src, bits, &F64, Cvt::with(Rounding::Rn)))
}

/// f16 to f32.
pub fn f16_to_f32(bits: u16) -> f32 {
    f32_from(&F16, bits.into())
}

/// bf16 to f32 (bits are moved, a NaN becomes the canonical one).
pub fn bf16_to_f32(bits: u16) -> f32 {
    let x = f32::from_bits(u32::from(bits) << 16);
    if x.is_nan() { f32::from_bits(0x7FFF_FFFF) } else { x }
}

/// f32 to f16.
pub fn f32_to_f16(x: f32, how: Cvt) -> u16 {
    f32_to(&F16, x, how) as u16
}

/// f32 to bf16.
pub fn f32_to_bf16(x: f32, how: Cvt) -> u16 {
    f32_to(&BF16, x, how) as u16
}

/// f32 to tf32, in the upper 19 bits.
pub fn f32_to_tf32(x: f32, how: Cvt) -> u32 {
    f32_to(&TF32, x, how) as u32
}

/// What a tensor core reads of a 32-bit tf32 operand: the low 13 bits do not take part.
pub fn tf32_operand(bits: u32) -> f32 {
    f32::from_bits(bits & 0xFFFF_E000)
}

/// Two f32 to one register: `a` is the upper part, `b` the lower, each `dst.bits` wide; fp6 parts
/// take a byte each.
pub fn pack2(dst: &Format, a: f32, b: f32, how: Cvt) -> u32 {
    let width = part_bits(dst);
    (f32_to(dst, a, how) as u32) << width | f32_to(dst, b, how) as u32
}

/// The two patterns in a register, lower part first.
pub fn unpack2(src: &Format, bits: u32) -> [u64; 2] {
    let width = part_bits(src);
    let mask = if width >= 32 { u32::MAX } else { (1 << width) - 1 };
    [u64::from(bits & mask), u64::from(bits >> width & mask)]
}

/// Width of one part of a packed pair.
pub fn part_bits(format: &Format) -> u32 {
    if format.bits == 6 { 8 } else { format.bits }
}

/// `cvt.rs`: adds random bits below the last kept bit, then truncates.
///
/// `random` are the bits that the instruction gives this element, `count` how many; they are
/// aligned with the bits just below the last one kept. A result above the largest number saturates
/// (`satfinite` is mandatory for the 4-, 6- and 8-bit types) or becomes infinity.
pub fn stochastic(dst: &Format, x: f32, random: u32, count: u32, how: Cvt) -> u64 {
    let value = F32.decode(x.to_bits().into());
    let Num::Finite(x) = value else { return encode(value, dst, how) };
    if x.is_zero() {
        return encode(value, dst, how);
    }
    let low = 1 - dst.bias - dst.man_bits as i32;
    let quantum = (x.top() - dst.man_bits as i32).max(low);
    // One unit of the random number is `2^(quantum - count)`.
    let dither = Exact::new(x.neg, random.into(), quantum - count as i32);
    let sum = x.add(dither, Rounding::Rz);
    encode(Num::Finite(sum), dst, Cvt { rounding: Rounding::Rz, ..how })
}

/// Names of the formats that have packed conversions, for a parser's tables.
pub const PACKED: [&Format; 8] = [&F16, &BF16, &E4M3, &E5M2, &E2M1, &E2M3, &E3M2, &UE8M0];
