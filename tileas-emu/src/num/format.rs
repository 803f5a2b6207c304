//! Floating-point formats: what their bit patterns mean, and rounding into them.
//!
//! In: a [`Format`] and bits, or an exact value. Out: [`Num`], or bits rounded once.
//! Guarantee: `round(decode(bits)) == bits` for every finite pattern of every format.
//! Left to [`mod@super::convert`]: what an instruction does with NaN, saturation, `.relu`, `.ftz`.

use super::exact::{Exact, Rounding};

/// What the patterns with an all-ones exponent mean.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Hash)]
pub enum Special {
    /// IEEE 754: infinity and NaNs.
    Ieee,
    /// e4m3: no infinity; all ones is NaN, the rest are numbers.
    OneNan,
    /// fp4 and fp6: every pattern is a number.
    None,
}

/// A binary floating-point format of at most 64 bits.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Hash)]
pub struct Format {
    /// Name as in PTX types.
    pub name: &'static str,
    /// Storage bits, sign included.
    pub bits: u32,
    /// Exponent bits.
    pub exp_bits: u32,
    /// Fraction bits.
    pub man_bits: u32,
    /// Unused low bits: tf32 lives in the upper 19 bits of 32.
    pub pad: u32,
    /// Exponent bias.
    pub bias: i32,
    /// Meaning of the highest exponent.
    pub special: Special,
    /// False for ue8m0.
    pub signed: bool,
    /// The NaN that conversions and arithmetic produce.
    pub nan: u64,
}

const fn ieee(name: &'static str, bits: u32, exp_bits: u32, man_bits: u32, nan: u64) -> Format {
    let bias = (1 << (exp_bits - 1)) - 1;
    Format { name, bits, exp_bits, man_bits, pad: 0, bias, special: Special::Ieee, signed: true, nan }
}

/// IEEE half.
pub const F16: Format = ieee("f16", 16, 5, 10, 0x7FFF);
/// bfloat16.
pub const BF16: Format = ieee("bf16", 16, 8, 7, 0x7FFF);
/// IEEE single.
pub const F32: Format = ieee("f32", 32, 8, 23, 0x7FFF_FFFF);
/// IEEE double.
pub const F64: Format = ieee("f64", 64, 11, 52, 0x7FF8_0000_0000_0000);
/// 19-bit format in the upper bits of 32.
pub const TF32: Format = Format { pad: 13, man_bits: 10, ..ieee("tf32", 32, 8, 23, 0x7FFF_E000) };
/// 8-bit float with infinity.
pub const E5M2: Format = ieee("e5m2", 8, 5, 2, 0x7F);
/// 8-bit float with one NaN and no infinity.
pub const E4M3: Format = Format { special: Special::OneNan, ..ieee("e4m3", 8, 4, 3, 0x7F) };
/// 4-bit float; has no NaN, conversions of one give the largest number.
pub const E2M1: Format = Format { special: Special::None, ..ieee("e2m1", 4, 2, 1, 0x7) };
/// 6-bit float.
pub const E2M3: Format = Format { special: Special::None, ..ieee("e2m3", 6, 2, 3, 0x1F) };
/// 6-bit float.
pub const E3M2: Format = Format { special: Special::None, ..ieee("e3m2", 6, 3, 2, 0x1F) };
/// Power of two `2^(x - 127)`; `0xFF` is NaN, there is no zero and no sign.
pub const UE8M0: Format = Format {
    name: "ue8m0",
    bits: 8,
    exp_bits: 8,
    man_bits: 0,
    pad: 0,
    bias: 127,
    special: Special::OneNan,
    signed: false,
    nan: 0xFF,
};

/// All formats, for table-driven tests and name look-up.
pub const ALL: [&Format; 11] = [&F16, &BF16, &F32, &F64, &TF32, &E5M2, &E4M3, &E2M1, &E2M3, &E3M2, &UE8M0];

/// A decoded number.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Num {
    /// Not a number (payloads are not kept).
    Nan,
    /// Infinity; true is negative.
    Inf(bool),
    /// A finite number, exact.
    Finite(Exact),
}

impl Format {
    /// The format called `name` in PTX.
    pub fn by_name(name: &str) -> Option<&'static Format> {
        ALL.into_iter().find(|f| f.name == name)
    }

    /// Bit of the sign, 0 for an unsigned format.
    pub const fn sign_bit(&self) -> u64 {
        if self.signed { 1 << (self.bits - 1) } else { 0 }
    }

    /// Pattern of the largest finite magnitude, sign 0.
    pub const fn max_finite(&self) -> u64 {
        let all = (1u64 << (self.exp_bits + self.man_bits)) - 1;
        let code = match self.special {
            Special::Ieee => all - (1 << self.man_bits),
            Special::OneNan => all - 1,
            Special::None => all,
        };
        code << self.pad
    }

    /// Pattern of +infinity; the formats without one give their NaN.
    pub const fn infinity(&self) -> u64 {
        match self.special {
            Special::Ieee => ((1u64 << self.exp_bits) - 1) << (self.man_bits + self.pad),
            _ => self.nan,
        }
    }

    /// Value of a pattern. Bits above `bits` and, for tf32, below the fraction are ignored.
    pub fn decode(&self, bits: u64) -> Num {
        let neg = bits & self.sign_bit() != 0;
        let code = (bits >> self.pad) & ((1u64 << (self.exp_bits + self.man_bits)) - 1);
        let (field, frac) = (code >> self.man_bits, code & ((1u64 << self.man_bits) - 1));
        let all = (1u64 << self.exp_bits) - 1;
        match self.special {
            Special::Ieee if field == all => return if frac == 0 { Num::Inf(neg) } else { Num::Nan },
            Special::OneNan if code == (1u64 << (self.exp_bits + self.man_bits)) - 1 => return Num::Nan,
            _ => {}
        }
        if !self.signed {
            return Num::Finite(Exact::new(false, 1, field as i32 - self.bias));
        }
        let low = 1 - self.bias - self.man_bits as i32;
        Num::Finite(if field == 0 {
            Exact::new(neg, frac.into(), if frac == 0 { 0 } else { low })
        } else {
            Exact::new(neg, u128::from(frac) | 1 << self.man_bits, low + field as i32 - 1)
        })
    }

    /// Rounds a finite number. The second result tells an overflow: then the bits are infinity or
    /// the largest finite number as IEEE 754 demands for the direction (formats without infinity
    /// give the largest number). ue8m0 takes the magnitude and saturates at `2^-127`.
    pub fn round(&self, x: Exact, rounding: Rounding) -> (u64, bool) {
        let neg = x.neg && self.signed;
        let sign = if neg { self.sign_bit() } else { 0 };
        if x.is_zero() {
            return (sign, false);
        }
        let low = if self.signed { 1 - self.bias - self.man_bits as i32 } else { -self.bias };
        let quantum = (x.top() - self.man_bits as i32).max(low);
        let shift = quantum - x.exp;
        let kept = if shift <= 0 {
            debug_assert!(!x.sticky);
            x.mant << -shift
        } else {
            let (kept, rest_vs_half, inexact) = split(x.mant, shift as u32, x.sticky);
            let up = match rounding {
                Rounding::Rn => rest_vs_half > 0 || rest_vs_half == 0 && kept & 1 == 1,
                Rounding::Rna => rest_vs_half >= 0,
                Rounding::Rz => false,
                Rounding::Rm => neg && inexact,
                Rounding::Rp => !neg && inexact,
            };
            kept + u128::from(up)
        };
        // The hidden bit of a normal number adds one to the exponent field; a carry does the rest.
        let code = if self.signed {
            kept + (((quantum - low) as u128) << self.man_bits)
        } else {
            // ue8m0 has no fraction: `kept` is 0 (below the range), 1, or 2 (carried).
            (quantum - low) as u128 + kept.saturating_sub(1)
        };
        let max = u128::from(self.max_finite() >> self.pad);
        if code <= max {
            return (sign | (code as u64) << self.pad, false);
        }
        let to_infinity = match rounding {
            Rounding::Rn | Rounding::Rna => true,
            Rounding::Rz => false,
            Rounding::Rm => neg,
            Rounding::Rp => !neg,
        };
        let big =
            if to_infinity && self.special == Special::Ieee { self.infinity() } else { self.max_finite() };
        (sign | big, true)
    }

    /// True for a pattern whose magnitude is subnormal (not zero).
    pub fn is_subnormal(&self, bits: u64) -> bool {
        let code = (bits & !self.sign_bit()) >> self.pad;
        self.signed && code != 0 && code < 1 << self.man_bits
    }
}

/// Splits `mant` at bit `shift` (> 0): upper part, the rest compared with one half (-1, 0, 1), and
/// whether the rest is not zero.
fn split(mant: u128, shift: u32, sticky: bool) -> (u128, i32, bool) {
    if shift > 128 {
        return (0, -1, mant != 0 || sticky);
    }
    let half = 1u128 << (shift - 1);
    let (kept, rest) = if shift == 128 { (0, mant) } else { (mant >> shift, mant & ((half << 1) - 1)) };
    let order = match rest.cmp(&half) {
        std::cmp::Ordering::Less => -1,
        std::cmp::Ordering::Equal if !sticky => 0,
        _ => 1,
    };
    (kept, order, rest != 0 || sticky)
}
