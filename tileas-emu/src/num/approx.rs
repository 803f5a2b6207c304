//! Approximate instructions: `ex2`, `lg2`, `rcp`, `rsqrt`, `sqrt`, `sin`, `cos`, `tanh`, `div`.
//!
//! In: a function, its operand, `.ftz`. Out: the correctly rounded result, and the interval that
//! the documented error bound leaves to hardware. A comparison with hardware accepts the interval;
//! the emulator computes with the rounded result.
//! `.ftz` flushes subnormal f32 operands and results to zero of the same sign.
//! Source: PTX ISA, the error statements of each instruction.

use super::arith;
use super::convert::{Cvt, encode};
use super::exact::{Exact, Rounding};
use super::format::{BF16, F32, F64, Format, Num};
use super::slow;

/// An approximate function of one operand.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Hash)]
pub enum Fun {
    /// `ex2.approx`: 2^x.
    Ex2,
    /// `lg2.approx`: base-2 logarithm.
    Lg2,
    /// `rcp.approx`.
    Rcp,
    /// `rsqrt.approx`.
    Rsqrt,
    /// `sqrt.approx`.
    Sqrt,
    /// `sin.approx`.
    Sin,
    /// `cos.approx`.
    Cos,
    /// `tanh.approx`.
    Tanh,
}

/// Documented maximum error.
#[derive(Copy, Clone, PartialEq, Debug)]
pub enum Bound {
    /// Units in the last place of the correctly rounded result.
    Ulp(u32),
    /// Relative to the exact result.
    Relative(f64),
    /// Absolute.
    Absolute(f64),
    /// Nothing is promised.
    Open,
}

impl Fun {
    /// Function named as in the instruction.
    pub fn by_name(name: &str) -> Option<Self> {
        Some(match name {
            "ex2" => Fun::Ex2,
            "lg2" => Fun::Lg2,
            "rcp" => Fun::Rcp,
            "rsqrt" => Fun::Rsqrt,
            "sqrt" => Fun::Sqrt,
            "sin" => Fun::Sin,
            "cos" => Fun::Cos,
            "tanh" => Fun::Tanh,
            _ => return None,
        })
    }

    /// Documented bound for operand `x` in `format` (f32, or f16 and bf16 of ex2 and tanh).
    pub fn bound(self, format: &Format, x: f64) -> Bound {
        // 2^-20.5 and its like, as literals so that no library function decides them.
        let (pi2, pi100) = (std::f64::consts::TAU, 50.0 * std::f64::consts::TAU);
        match (self, format.bits) {
            (Fun::Ex2, 32) => Bound::Ulp(2),
            (Fun::Ex2, _) if *format == BF16 => Bound::Relative(7.812_5e-3),
            (Fun::Ex2, _) => Bound::Relative(1.046_6e-3),
            (Fun::Lg2, _) if x > 0.5 && x < 2.0 => Bound::Absolute(2.384_185_791_015_625e-7),
            (Fun::Lg2, _) => Bound::Relative(2.384_185_791_015_625e-7),
            (Fun::Rcp, _) => Bound::Ulp(1),
            (Fun::Rsqrt, _) => Bound::Relative(1.277_6e-7),
            (Fun::Sqrt, _) => Bound::Relative(1.192_092_895_507_812_5e-7),
            (Fun::Sin | Fun::Cos, _) if x.abs() <= pi2 => Bound::Absolute(6.743_5e-7),
            (Fun::Sin | Fun::Cos, _) if x.abs() <= pi100 => Bound::Absolute(3.757_3e-5),
            (Fun::Sin | Fun::Cos, _) => Bound::Open,
            (Fun::Tanh, 32) => Bound::Relative(4.882_812_5e-4),
            (Fun::Tanh, _) if *format == BF16 => Bound::Absolute(3.906_25e-3),
            (Fun::Tanh, _) => Bound::Absolute(4.927_1e-4),
        }
    }

    /// The exact result, cut with a sticky bit where it is not a dyadic number.
    fn exact(self, x: Num) -> Num {
        match (self, x) {
            (_, Num::Nan) => Num::Nan,
            (Fun::Ex2, Num::Inf(neg)) => {
                if neg {
                    Num::Finite(Exact::zero(false))
                } else {
                    Num::Inf(false)
                }
            }
            (Fun::Ex2, Num::Finite(x)) => Num::Finite(slow::exp2(x)),
            (Fun::Lg2, Num::Finite(x)) if x.is_zero() => Num::Inf(true),
            (Fun::Lg2, Num::Finite(x)) if !x.neg => Num::Finite(slow::log2(x)),
            (Fun::Rcp, Num::Inf(neg)) => Num::Finite(Exact::zero(neg)),
            (Fun::Rcp, Num::Finite(x)) if x.is_zero() => Num::Inf(x.neg),
            (Fun::Rcp, Num::Finite(x)) => Num::Finite(Exact::new(false, 1, 0).over(x)),
            (Fun::Rsqrt, Num::Inf(false)) => Num::Finite(Exact::zero(false)),
            (Fun::Rsqrt, Num::Finite(x)) if x.is_zero() => Num::Inf(x.neg),
            // 1/sqrt x = sqrt(1/x); the quotient has 100 bits, so its cut does not show.
            (Fun::Rsqrt, Num::Finite(x)) if !x.neg => {
                let inverse = Exact::new(false, 1, 0).over(x);
                let root = Exact { sticky: false, ..inverse }.sqrt();
                Num::Finite(Exact { sticky: root.sticky | inverse.sticky, ..root })
            }
            (Fun::Sqrt, Num::Finite(x)) if x.is_zero() => Num::Finite(x),
            (Fun::Sqrt, Num::Finite(x)) if !x.neg => Num::Finite(x.sqrt()),
            (Fun::Lg2 | Fun::Sqrt, Num::Inf(false)) => Num::Inf(false),
            (Fun::Sin | Fun::Cos, Num::Finite(x)) => Num::Finite(slow::sin_cos(x, self == Fun::Cos)),
            (Fun::Tanh, Num::Inf(neg)) => Num::Finite(Exact::new(neg, 1, 0)),
            (Fun::Tanh, Num::Finite(x)) => Num::Finite(slow::tanh(x)),
            _ => Num::Nan,
        }
    }

    /// Correctly rounded result for the pattern `x` of `format`.
    pub fn eval(self, format: &Format, x: u64, ftz: bool) -> u64 {
        if format.bits == 32
            && format.pad == 0
            && let Some(y) = self.quick(f32::from_bits(x as u32))
        {
            return y.to_bits().into();
        }
        self.rounded(format, x, ftz, Rounding::Rn)
    }

    /// [`Fun::eval`] without the host's library.
    pub fn eval_exact_f32(self, x: f32, ftz: bool) -> f32 {
        f32::from_bits(self.rounded(&F32, x.to_bits().into(), ftz, Rounding::Rn) as u32)
    }

    /// The host library's f64 result, where an error of 2^-45 of its value could not change the
    /// rounded result (libraries are good to about 2^-52). Normal operands and results only.
    fn quick(self, x: f32) -> Option<f32> {
        let w = f64::from(x);
        let y = match self {
            Fun::Ex2 => w.exp2(),
            Fun::Lg2 if x > 0.0 => w.log2(),
            Fun::Sin => w.sin(),
            Fun::Cos => w.cos(),
            Fun::Tanh => w.tanh(),
            _ => return None,
        };
        let (least, most) = (f64::from(f32::MIN_POSITIVE), f64::from(f32::MAX) / 2.0);
        if !x.is_normal() || !(least * 2.0..most).contains(&y.abs()) {
            return None;
        }
        let slack = y * 2.842_170_943_040_401e-14;
        let (low, high) = ((y - slack) as f32, (y + slack) as f32);
        (low.to_bits() == high.to_bits()).then_some(low)
    }

    fn rounded(self, format: &Format, x: u64, ftz: bool, rounding: Rounding) -> u64 {
        let flush = ftz && format.is_subnormal(x);
        let x = if flush { x & format.sign_bit() } else { x };
        let bits = encode(self.exact(format.decode(x)), format, Cvt::with(rounding));
        if ftz && format.is_subnormal(bits) { bits & format.sign_bit() } else { bits }
    }

    /// f32 form of [`Fun::eval`].
    pub fn eval_f32(self, x: f32, ftz: bool) -> f32 {
        f32::from_bits(self.eval(&F32, x.to_bits().into(), ftz) as u32)
    }

    /// True when `got` is a result that hardware may give for `x`. Special results (NaN, infinity,
    /// exact zeros of special operands) must match.
    pub fn accepts(self, format: &Format, x: u64, ftz: bool, got: u64) -> bool {
        let want = self.eval(format, x, ftz);
        match (format.decode(want), format.decode(got)) {
            (Num::Nan, other) => other == Num::Nan,
            (_, Num::Nan) => false,
            _ if want == got => true,
            _ => {
                let flushed = if ftz && format.is_subnormal(x) { x & format.sign_bit() } else { x };
                let x = value(format, flushed);
                let interval = interval(format, self.bound(format, x), want, ftz);
                interval.is_none_or(|(lo, hi)| (lo..=hi).contains(&value(format, got)))
            }
        }
    }
}

/// Value of a pattern as f64 (infinities and NaN too).
fn value(format: &Format, bits: u64) -> f64 {
    super::convert::f64_from(format, bits)
}

/// Values that `bound` leaves around the rounded result `want`; `None` when everything is allowed.
/// The bound is widened by half a unit for the rounding of `want` itself.
pub fn interval(format: &Format, bound: Bound, want: u64, ftz: bool) -> Option<(f64, f64)> {
    let w = value(format, want);
    if w.is_infinite() {
        // Neighbours of an overflow: the largest number may stand for infinity.
        let max = value(format, format.max_finite());
        return Some(if w > 0.0 { (max * (1.0 - 1e-6), w) } else { (w, -max * (1.0 - 1e-6)) });
    }
    let unit = ulp(format, want);
    let slack = match bound {
        Bound::Ulp(n) => f64::from(n) * unit,
        Bound::Relative(r) => w.abs() * r + unit,
        Bound::Absolute(a) => a + unit,
        Bound::Open => return None,
    };
    // Flushing may turn results just above the subnormal range into zero.
    let least = value(format, 1 << (format.man_bits + format.pad));
    let low = if ftz && w > 0.0 && w - slack < least { 0.0 } else { w - slack };
    Some((low, w + slack))
}

/// Distance to the next number above in magnitude.
fn ulp(format: &Format, bits: u64) -> f64 {
    let magnitude = bits & !format.sign_bit();
    let next = value(format, magnitude + (1 << format.pad));
    let this = value(format, magnitude);
    if next.is_finite() { next - this } else { this - value(format, magnitude - (1 << format.pad)) }
}

/// `div.approx.f32` and `div.full.f32`: the correctly rounded quotient, with the documented hole of
/// `.approx` for divisors from 2^126 on.
pub fn div_f32(a: f32, b: f32, full: bool, ftz: bool) -> f32 {
    let how = if ftz { arith::RN.ftz() } else { arith::RN };
    if !full && b.is_finite() && b.abs() > f32::from_bits(0x7E80_0000) {
        let neg = a.is_sign_negative() != b.is_sign_negative();
        if a.is_infinite() || a.is_nan() {
            return f32::from_bits(0x7FFF_FFFF);
        }
        return if neg { -0.0 } else { 0.0 };
    }
    arith::div_f32(a, b, how)
}

/// True when `got` is within the documented 2 units of `a / b`.
pub fn div_accepts(a: f32, b: f32, full: bool, ftz: bool, got: f32) -> bool {
    let want = div_f32(a, b, full, ftz);
    if want.is_nan() || got.is_nan() {
        return want.is_nan() && got.is_nan();
    }
    want == got
        || interval(&F32, Bound::Ulp(2), want.to_bits().into(), ftz)
            .is_none_or(|(lo, hi)| (lo..=hi).contains(&f64::from(got)))
}

/// `ex2`, `lg2`, … of f64 do not exist; `rcp.approx.ftz.f64` and `rsqrt.approx.ftz.f64` keep the
/// upper 32 bits of the result.
pub fn approx_f64(fun: Fun, x: f64) -> f64 {
    let bits = fun.eval(&F64, x.to_bits(), true);
    f64::from_bits(bits & 0xFFFF_FFFF_0000_0000)
}
