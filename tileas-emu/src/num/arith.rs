//! Arithmetic of PTX with the four roundings: add, sub, mul, fma, div, rcp, sqrt, min, max.
//!
//! In: patterns of one format. Out: the correctly rounded pattern. NaN results are the format's
//! canonical NaN. `.ftz` flushes subnormal f32 operands and results to zero of the same sign;
//! `.sat` clamps to `[0, 1]` with NaN to +0. 16-bit operations round once from the exact value.
//! Method: host arithmetic for `.rn` on f32 and f64 (IEEE 754 fixes those bits), exact integers
//! for everything else.

use super::convert::{Cvt, encode};
use super::exact::{Exact, Rounding};
use super::format::{F32, Format, Num};

/// Modifiers of an arithmetic instruction. `Cvt` has the same fields: rounding, ftz, sat, relu.
pub type Mode = Cvt;

/// `.rn` without anything else.
pub const RN: Mode = Cvt::with(Rounding::Rn);

fn operand(format: &Format, bits: u64, how: Mode) -> Num {
    match format.decode(bits) {
        Num::Finite(x) if how.ftz && format.bits == 32 && format.is_subnormal(bits) => {
            Num::Finite(Exact::zero(x.neg))
        }
        value => value,
    }
}

/// `a + b`.
pub fn add(format: &Format, a: u64, b: u64, how: Mode) -> u64 {
    match host_operands(format, [a, b], how) {
        Some([a, b]) => bits(add_f32(a, b, how)),
        None => add_exact(format, a, b, how),
    }
}

/// [`add`] always by exact integers.
pub fn add_exact(format: &Format, a: u64, b: u64, how: Mode) -> u64 {
    let value = match (operand(format, a, how), operand(format, b, how)) {
        (Num::Nan, _) | (_, Num::Nan) => Num::Nan,
        (Num::Inf(x), Num::Inf(y)) if x != y => Num::Nan,
        (Num::Inf(x), _) | (_, Num::Inf(x)) => Num::Inf(x),
        (Num::Finite(x), Num::Finite(y)) => Num::Finite(x.add(y, how.rounding)),
    };
    encode(value, format, how)
}

/// `a - b`.
pub fn sub(format: &Format, a: u64, b: u64, how: Mode) -> u64 {
    add(format, a, b ^ format.sign_bit(), how)
}

fn product(a: Num, b: Num) -> Num {
    match (a, b) {
        (Num::Nan, _) | (_, Num::Nan) => Num::Nan,
        (Num::Inf(x), Num::Inf(y)) => Num::Inf(x != y),
        (Num::Inf(x), Num::Finite(y)) | (Num::Finite(y), Num::Inf(x)) => {
            if y.is_zero() {
                Num::Nan
            } else {
                Num::Inf(x != y.neg)
            }
        }
        (Num::Finite(x), Num::Finite(y)) => Num::Finite(x.times(y)),
    }
}

/// `a * b`.
pub fn mul(format: &Format, a: u64, b: u64, how: Mode) -> u64 {
    match host_operands(format, [a, b], how) {
        Some([a, b]) => bits(mul_f32(a, b, how)),
        None => mul_exact(format, a, b, how),
    }
}

/// [`mul`] always by exact integers.
pub fn mul_exact(format: &Format, a: u64, b: u64, how: Mode) -> u64 {
    encode(product(operand(format, a, how), operand(format, b, how)), format, how)
}

/// `a * b + c`, rounded once.
pub fn fma(format: &Format, a: u64, b: u64, c: u64, how: Mode) -> u64 {
    match host_operands(format, [a, b, c], how) {
        Some([a, b, c]) => bits(fma_f32(a, b, c, how)),
        None => fma_exact(format, a, b, c, how),
    }
}

/// [`fma`] always by exact integers.
pub fn fma_exact(format: &Format, a: u64, b: u64, c: u64, how: Mode) -> u64 {
    fma_mixed(format, a, b, format, c, format, how)
}

/// `a * b + c` with `a`, `b` of one format, `c` of another, into a third (`fma.rn.f32.bf16`).
pub fn fma_mixed(ab: &Format, a: u64, b: u64, c_format: &Format, c: u64, dst: &Format, how: Mode) -> u64 {
    let p = product(operand(ab, a, how), operand(ab, b, how));
    let value = match (p, operand(c_format, c, how)) {
        (Num::Nan, _) | (_, Num::Nan) => Num::Nan,
        (Num::Inf(x), Num::Inf(y)) if x != y => Num::Nan,
        (Num::Inf(x), _) | (_, Num::Inf(x)) => Num::Inf(x),
        (Num::Finite(x), Num::Finite(y)) => Num::Finite(x.add(y, how.rounding)),
    };
    encode(value, dst, how)
}

/// `a / b` (`div.rn` and the other roundings).
pub fn div(format: &Format, a: u64, b: u64, how: Mode) -> u64 {
    match host_operands(format, [a, b], how) {
        Some([a, b]) => bits(div_f32(a, b, how)),
        None => div_exact(format, a, b, how),
    }
}

/// [`div`] always by exact integers.
pub fn div_exact(format: &Format, a: u64, b: u64, how: Mode) -> u64 {
    let value = match (operand(format, a, how), operand(format, b, how)) {
        (Num::Nan, _) | (_, Num::Nan) | (Num::Inf(_), Num::Inf(_)) => Num::Nan,
        (Num::Inf(x), Num::Finite(y)) => Num::Inf(x != y.neg),
        (Num::Finite(x), Num::Inf(y)) => Num::Finite(Exact::zero(x.neg != y)),
        (Num::Finite(x), Num::Finite(y)) if y.is_zero() => {
            if x.is_zero() {
                Num::Nan
            } else {
                Num::Inf(x.neg != y.neg)
            }
        }
        (Num::Finite(x), Num::Finite(y)) => Num::Finite(x.over(y)),
    };
    encode(value, format, how)
}

/// `1 / a`.
pub fn rcp(format: &Format, a: u64, how: Mode) -> u64 {
    let one = format.round(Exact::new(false, 1, 0), Rounding::Rn).0;
    div(format, one, a, how)
}

/// Square root.
pub fn sqrt(format: &Format, a: u64, how: Mode) -> u64 {
    match host_operands(format, [a], how) {
        Some([a]) => bits(sqrt_f32(a, how)),
        None => sqrt_exact(format, a, how),
    }
}

/// [`sqrt`] always by exact integers.
pub fn sqrt_exact(format: &Format, a: u64, how: Mode) -> u64 {
    let value = match operand(format, a, how) {
        Num::Finite(x) if x.is_zero() => Num::Finite(x),
        Num::Inf(false) => Num::Inf(false),
        Num::Finite(x) if !x.neg => Num::Finite(x.sqrt()),
        _ => Num::Nan,
    };
    encode(value, format, how)
}

/// Options of `min` and `max`.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct MinMax {
    /// Maximum instead of minimum.
    pub max: bool,
    /// `.ftz`.
    pub ftz: bool,
    /// `.NaN`: a NaN operand gives the canonical NaN; otherwise the other operand.
    pub nan: bool,
    /// `.xorsign.abs`: compares magnitudes; the sign is the XOR of the operands' signs.
    pub xorsign_abs: bool,
}

/// `min`/`max`; -0 is less than +0.
pub fn min_max(format: &Format, a: u64, b: u64, how: MinMax) -> u64 {
    let sign = format.sign_bit();
    let flip = if how.xorsign_abs { (a ^ b) & sign } else { 0 };
    let clean = |x: u64| {
        let x = if how.ftz && format.bits == 32 && format.is_subnormal(x) { x & sign } else { x };
        if how.xorsign_abs { x & !sign } else { x }
    };
    let (a, b) = (clean(a), clean(b));
    let (a_nan, b_nan) = (format.decode(a) == Num::Nan, format.decode(b) == Num::Nan);
    if a_nan && b_nan || how.nan && (a_nan || b_nan) {
        return format.nan;
    }
    let pick = if a_nan {
        b
    } else if b_nan {
        a
    } else {
        // Sign-magnitude patterns in numerical order.
        let key = |x: u64| if x & sign != 0 { -((x & !sign) as i64) - 1 } else { x as i64 };
        if (key(a) > key(b)) == how.max { a } else { b }
    };
    pick ^ flip
}

/// The bits of an f32 result: subnormals flushed if asked for, NaN made canonical.
fn settle(x: f32, ftz: bool) -> f32 {
    if x.is_nan() {
        f32::from_bits(F32.nan as u32)
    } else if ftz {
        flush(x)
    } else {
        x
    }
}

fn flush(x: f32) -> f32 {
    if x.is_subnormal() { f32::from_bits(x.to_bits() & 0x8000_0000) } else { x }
}

/// True when the host's arithmetic, which rounds to nearest even, gives the wanted bits.
fn host(how: Mode) -> bool {
    how.rounding == Rounding::Rn && !how.sat && !how.relu && !how.satfinite
}

/// The operands as host numbers, where the host's arithmetic may be used.
fn host_operands<const N: usize>(format: &Format, x: [u64; N], how: Mode) -> Option<[f32; N]> {
    (format.bits == 32 && format.pad == 0 && host(how)).then(|| x.map(|x| f32::from_bits(x as u32)))
}

fn bits(x: f32) -> u64 {
    x.to_bits().into()
}

macro_rules! single {
    ($($(#[$doc:meta])* $name:ident, $op:ident($($x:ident),+), $host:expr;)+) => {
        $($(#[$doc])* pub fn $name($($x: f32),+, how: Mode) -> f32 {
            if host(how) {
                let f = |x| if how.ftz { flush(x) } else { x };
                $(let $x = f($x);)+
                return settle($host, how.ftz);
            }
            f32::from_bits($op(&F32, $(bits($x)),+, how) as u32)
        })+
    };
}

single! {
    /// f32 addition.
    add_f32, add_exact(a, b), a + b;
    /// f32 subtraction.
    sub_f32, sub(a, b), a - b;
    /// f32 multiplication.
    mul_f32, mul_exact(a, b), a * b;
    /// f32 fused multiply-add.
    fma_f32, fma_exact(a, b, c), a.mul_add(b, c);
    /// f32 division.
    div_f32, div_exact(a, b), a / b;
    /// f32 square root.
    sqrt_f32, sqrt_exact(a), a.sqrt();
}
