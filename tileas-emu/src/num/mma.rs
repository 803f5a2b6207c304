//! Accumulation of matrix instructions.
//!
//! What the ISA fixes: products of the narrow types are exact. What it leaves open: the order of the
//! additions, how many bits an intermediate sum keeps, the rounding of the result (for f32
//! accumulators it says "at least single precision", fp8 on Hopper keeps fewer bits), whether
//! subnormal intermediate results survive.
//!
//! In: the products of one element of D and the old accumulator. Out: [`dot`], the model that the
//! emulator computes (sum in f64 in order of k, rounded once to nearest even), [`tolerance`], how
//! far hardware may be from it, and [`aligned`], a model of how tensor cores were measured to add:
//! align to the largest exponent, truncate, add, truncate once more.
//! Guarantee: when every partial sum is exact in the accumulator's format all three agree.
//! Source: PTX ISA, `mma`, `wgmma.mma_async`, `tcgen05.mma` (semantics, precision); M. Fasi et al.,
//! "Numerical behavior of NVIDIA tensor cores".

use super::convert::{Cvt, encode};
use super::exact::{Exact, Rounding};
use super::format::{F32, F64, Format, Num};

/// `c + sum(a[i] * b[i])` as f64. Products of formats up to 26 significant bits are exact.
pub fn dot(a: &[f32], b: &[f32], c: f64) -> f64 {
    // The accumulator joins last: for exact sums the order does not matter.
    let sum = a.iter().zip(b).fold(0.0f64, |s, (&x, &y)| s + f64::from(x) * f64::from(y));
    sum + c
}

/// Rounds an accumulated value to the accumulator's format.
pub fn finish(format: &Format, x: f64) -> u64 {
    if *format == F32 {
        let y = x as f32;
        return if y.is_nan() { F32.nan } else { y.to_bits().into() };
    }
    encode(F64.decode(x.to_bits()), format, Cvt::with(Rounding::Rn))
}

/// How far a hardware result may be from [`dot`]: each of the `k + 1` additions may lose one unit
/// in the last of `bits` significant bits of the largest magnitude, and the result one unit of the
/// accumulator's format.
///
/// `bits` is 24 for f32 accumulation of 16-bit types and tf32, 11 for f16 accumulators, and about
/// 13 for 8-bit floats on sm_90.
pub fn tolerance(a: &[f32], b: &[f32], c: f64, bits: u32) -> f64 {
    let terms = a.iter().zip(b).map(|(&x, &y)| (f64::from(x) * f64::from(y)).abs());
    let (mut largest, mut total) = (c.abs(), c.abs());
    for t in terms {
        largest = largest.max(t);
        total += t;
    }
    let unit = f64::from_bits(u64::from(1023 - bits.min(52)) << 52) * 2.0;
    unit * ((a.len() as f64 + 1.0) * largest + total)
}

/// Adds like measured tensor cores: all terms are aligned to the largest exponent, cut (toward
/// zero) to `fraction_bits` bits below its leading bit, added as integers, and the sum is cut to
/// f32 toward zero. `fraction_bits` was seen as 23 (V100), 24 (A100), 25 (H100).
pub fn aligned(a: &[f32], b: &[f32], c: f32, fraction_bits: u32) -> f32 {
    let value = |x: f32| F32.decode(x.to_bits().into());
    let mut terms = Vec::with_capacity(a.len() + 1);
    for (&x, &y) in a.iter().zip(b) {
        match (value(x), value(y)) {
            (Num::Finite(x), Num::Finite(y)) => terms.push(x.times(y)),
            // Special values: no rounding question, the plain sum decides.
            _ => return dot(a, b, c.into()) as f32,
        }
    }
    let Num::Finite(c) = value(c) else { return c };
    terms.push(c);
    let Some(top) = terms.iter().filter(|t| !t.is_zero()).map(Exact::top).max() else { return 0.0 };
    let unit = top - fraction_bits as i32;
    let sum: i128 = terms
        .iter()
        .map(|t| {
            let shift = unit - t.exp;
            let m = if shift >= 128 {
                0
            } else if shift >= 0 {
                t.mant >> shift
            } else {
                t.mant << -shift
            } as i128;
            if t.neg { -m } else { m }
        })
        .sum();
    let exact = Exact::new(sum < 0, sum.unsigned_abs(), unit);
    f32::from_bits(F32.round(exact, Rounding::Rz).0 as u32)
}

/// Integer accumulation: `c + sum(a[i] * b[i])` in 32 bits, wrapping or saturating.
pub fn dot_int(a: &[i32], b: &[i32], c: i32, saturate: bool) -> i32 {
    let sum = a.iter().zip(b).fold(i64::from(c), |s, (&x, &y)| s + i64::from(x) * i64::from(y));
    if saturate { sum.clamp(i32::MIN.into(), i32::MAX.into()) as i32 } else { sum as i32 }
}
