//! Integer conversions: float to integer, integer to float, integer to integer, float to integral
//! float, all with the PTX roundings and saturation rules.
//!
//! Source: PTX ISA, `cvt` ("Integer conversions", "Floating-point to integer": out-of-range values
//! clamp to the destination's range by default and NaN becomes 0).

use super::convert::{Cvt, encode};
use super::exact::{Exact, Rounding};
use super::format::{Format, Num};

/// An integer type of 8 to 64 bits.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Hash)]
pub struct Int {
    /// 8, 16, 32 or 64.
    pub bits: u32,
    /// Two's complement.
    pub signed: bool,
}

impl Int {
    /// A type of PTX: `u8`..`u64`, `s8`..`s64`, `b8`..`b64` (as unsigned).
    pub fn by_name(name: &str) -> Option<Int> {
        let bits: u32 = name.get(1..)?.parse().ok()?;
        let signed = match name.as_bytes()[0] {
            b's' => true,
            b'u' | b'b' => false,
            _ => return None,
        };
        matches!(bits, 8 | 16 | 32 | 64).then_some(Int { bits, signed })
    }

    /// Smallest value.
    pub const fn min(self) -> i128 {
        if self.signed { -(1i128 << (self.bits - 1)) } else { 0 }
    }

    /// Largest value.
    pub const fn max(self) -> i128 {
        (1i128 << (self.bits - self.signed as u32)) - 1
    }

    /// Value of the low `bits` bits.
    pub const fn decode(self, raw: u64) -> i128 {
        let raw = raw as u128 & ((1u128 << self.bits) - 1);
        if self.signed && raw >> (self.bits - 1) & 1 == 1 {
            raw as i128 - (1i128 << self.bits)
        } else {
            raw as i128
        }
    }

    /// Pattern of a value, wrapped to `bits` bits.
    pub const fn encode(self, value: i128) -> u64 {
        (value as u128 & ((1u128 << self.bits) - 1)) as u64
    }
}

/// Rounds to an integer in a direction: `.rni` is `Rn`, `.rzi` is `Rz`, `.rmi` is `Rm`, `.rpi` is
/// `Rp`. The second result is false when the value needs more than 127 bits (then it is huge).
fn to_integer(x: Exact, rounding: Rounding) -> (i128, bool) {
    if x.is_zero() {
        return (0, true);
    }
    let magnitude = if x.exp >= 0 {
        if x.top() >= 126 {
            return (if x.neg { i128::MIN } else { i128::MAX }, false);
        }
        x.mant << x.exp
    } else {
        let down = x.exp.unsigned_abs();
        let (kept, rest, half) = if down > 127 {
            (0, 1, 2)
        } else {
            (x.mant >> down, x.mant & ((1u128 << down) - 1), 1u128 << (down - 1))
        };
        let up = match rounding {
            Rounding::Rn => rest > half || rest == half && kept & 1 == 1,
            Rounding::Rna => rest >= half,
            Rounding::Rz => false,
            Rounding::Rm => x.neg && rest != 0,
            Rounding::Rp => !x.neg && rest != 0,
        };
        kept + u128::from(up)
    };
    (if x.neg { -(magnitude as i128) } else { magnitude as i128 }, true)
}

/// Float to integer: clamps to the range. NaN gives 0, but `1 << (bits - 1)` where the source is
/// f64 or the destination has 64 bits.
pub fn float_to_int(src: &Format, bits: u64, dst: Int, rounding: Rounding, ftz: bool) -> u64 {
    let value = match src.decode(bits) {
        Num::Nan if src.bits == 64 || dst.bits == 64 => return 1 << (dst.bits - 1),
        Num::Nan => return 0,
        Num::Inf(neg) => {
            if neg {
                dst.min()
            } else {
                dst.max()
            }
        }
        Num::Finite(_) if ftz && src.bits == 32 && src.is_subnormal(bits) => 0,
        Num::Finite(x) => to_integer(x, rounding).0.clamp(dst.min(), dst.max()),
    };
    dst.encode(value)
}

/// Integer to float.
pub fn int_to_float(src: Int, raw: u64, dst: &Format, how: Cvt) -> u64 {
    encode(Num::Finite(Exact::from_int(src.decode(raw))), dst, how)
}

/// Integer to integer: sign- or zero-extends, then wraps, or clamps with `.sat`.
pub fn int_to_int(src: Int, raw: u64, dst: Int, sat: bool) -> u64 {
    let value = src.decode(raw);
    dst.encode(if sat { value.clamp(dst.min(), dst.max()) } else { value })
}

/// Rounds a float to an integral float of the same format (`cvt.rni.f32.f32` and its like).
pub fn round_integral(format: &Format, bits: u64, rounding: Rounding, how: Cvt) -> u64 {
    let flushed = how.ftz && format.bits == 32 && format.is_subnormal(bits);
    let value = match format.decode(bits) {
        Num::Finite(x) if flushed => Num::Finite(Exact::zero(x.neg)),
        // From 2^64 on every float is an integer.
        Num::Finite(x) if !x.is_zero() && x.top() < 64 => {
            let integer = to_integer(x, rounding).0;
            // A result of zero keeps the sign of the operand.
            let exact = Exact::from_int(integer);
            Num::Finite(if integer == 0 { Exact::zero(x.neg) } else { exact })
        }
        value => value,
    };
    encode(value, format, how)
}
