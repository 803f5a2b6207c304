//! Mathematical functions in f32, and in f64 ([`double`]), as sequences of simple instructions.
//!
//! In: operands. Out: the function's value, with the error that `docs/ops.md` states. No branches and no tables: lanes
//! take the same path, and cases are told apart by selections. Each function is written once, over a [`Machine`]: one
//! implementation emits PTX ([`emit`]), another one computes on the host, so that tests can run through millions of operands
//! of the very same sequence.
//!
//! Errors are in units in the last place (ulp) of the exact result. What a sequence takes from approximate instructions
//! (`rcp.approx`, 1 ulp; `ex2.approx`, 2 ulp) is counted with their documented errors, and stands where it is
//! multiplied by less than a half. Coefficients are minimax fits, by iteratively reweighted least squares in 40 digits, rounded to
//! f32; the comments at them name interval and error before rounding.

pub(super) mod double;
mod emit;
mod exp;
mod pow;
mod remainder;
#[cfg(test)]
mod tests;
mod trig;

pub(super) use exp::{cosh, cosh_fast, erf, sinh, sinh_fast, tanh};
pub(super) use pow::{Exponent, pow, pow_fast, powi, powi_fast};
pub(super) use remainder::remainder;
pub(super) use trig::{atan2, cos, sin, tan, tan_fast};

/// What evaluates the sequences: f32 with one rounding to nearest even an operation, integers of 32 and 64 bits, predicates.
///
/// Subnormal numbers are kept, except where a method says so. Shifts take the amount modulo 32 only where they say so.
pub(super) trait Machine {
    /// An f32.
    type F: Copy;
    /// 32 bits.
    type I: Copy;
    /// 64 bits.
    type W: Copy;
    /// A truth value.
    type P: Copy;

    /// The constant `x`.
    fn float(&mut self, x: f32) -> Self::F;
    /// The constant `x`.
    fn int(&mut self, x: u32) -> Self::I;
    /// a + b.
    fn add(&mut self, a: Self::F, b: Self::F) -> Self::F;
    /// a - b.
    fn sub(&mut self, a: Self::F, b: Self::F) -> Self::F;
    /// a · b.
    fn mul(&mut self, a: Self::F, b: Self::F) -> Self::F;
    /// a · b + c, rounded once.
    fn fma(&mut self, a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// a / b, rounded to nearest even.
    fn div(&mut self, a: Self::F, b: Self::F) -> Self::F;
    /// a / b to 2 ulp, for divisors of moderate size.
    fn div_fast(&mut self, a: Self::F, b: Self::F) -> Self::F;
    /// 1 / a to 1 ulp; subnormal operands and results count as 0.
    fn reciprocal(&mut self, a: Self::F) -> Self::F;
    /// 2^a to 2 ulp; subnormal results are 0.
    fn exp2_fast(&mut self, a: Self::F) -> Self::F;
    /// log2 a to about 2^-22.
    fn log2_fast(&mut self, a: Self::F) -> Self::F;
    /// sin a, absolute error.
    fn sin_fast(&mut self, a: Self::F) -> Self::F;
    /// cos a, absolute error.
    fn cos_fast(&mut self, a: Self::F) -> Self::F;
    /// -a.
    fn neg(&mut self, a: Self::F) -> Self::F;
    /// |a|.
    fn abs(&mut self, a: Self::F) -> Self::F;
    /// The smaller one; a NaN loses.
    fn min(&mut self, a: Self::F, b: Self::F) -> Self::F;
    /// The larger one; a NaN loses.
    fn max(&mut self, a: Self::F, b: Self::F) -> Self::F;
    /// The nearest integer, ties to even.
    fn nearest(&mut self, a: Self::F) -> Self::F;
    /// The greatest integer not above.
    fn floor(&mut self, a: Self::F) -> Self::F;
    /// The magnitude of the first with the sign of the second.
    fn copysign(&mut self, magnitude: Self::F, sign: Self::F) -> Self::F;
    /// a < b; false with a NaN.
    fn lt(&mut self, a: Self::F, b: Self::F) -> Self::P;
    /// a > b; false with a NaN.
    fn gt(&mut self, a: Self::F, b: Self::F) -> Self::P;
    /// a = b; false with a NaN.
    fn eq(&mut self, a: Self::F, b: Self::F) -> Self::P;
    /// a ≥ b; true with a NaN.
    fn not_lt(&mut self, a: Self::F, b: Self::F) -> Self::P;
    /// a ≤ b; true with a NaN.
    fn not_gt(&mut self, a: Self::F, b: Self::F) -> Self::P;
    /// a ≠ b; true with a NaN.
    fn ne(&mut self, a: Self::F, b: Self::F) -> Self::P;
    /// Whether one of them is a NaN.
    fn either_nan(&mut self, a: Self::F, b: Self::F) -> Self::P;
    /// Both.
    fn both(&mut self, a: Self::P, b: Self::P) -> Self::P;
    /// Either.
    fn either(&mut self, a: Self::P, b: Self::P) -> Self::P;
    /// Exactly one.
    fn differ(&mut self, a: Self::P, b: Self::P) -> Self::P;
    /// The first where `p` holds, else the second.
    fn select(&mut self, p: Self::P, a: Self::F, b: Self::F) -> Self::F;
    /// The first where `p` holds, else the second.
    fn select_int(&mut self, p: Self::P, a: Self::I, b: Self::I) -> Self::I;
    /// The bits of an f32.
    fn bits(&mut self, a: Self::F) -> Self::I;
    /// The f32 of these bits.
    fn of_bits(&mut self, a: Self::I) -> Self::F;
    /// The signed integer nearest to a, saturated.
    fn to_int(&mut self, a: Self::F) -> Self::I;
    /// The f32 nearest to a signed integer.
    fn of_int(&mut self, a: Self::I) -> Self::F;
    /// a + b, wrapping.
    fn add_int(&mut self, a: Self::I, b: Self::I) -> Self::I;
    /// a - b, wrapping.
    fn sub_int(&mut self, a: Self::I, b: Self::I) -> Self::I;
    /// Lower half of the product of a and b, plus c.
    fn mad_int(&mut self, a: Self::I, b: Self::I, c: Self::I) -> Self::I;
    /// Upper half of the unsigned product.
    fn mul_high(&mut self, a: Self::I, b: Self::I) -> Self::I;
    /// Bits in both.
    fn and_int(&mut self, a: Self::I, b: Self::I) -> Self::I;
    /// Bits in either.
    fn or_int(&mut self, a: Self::I, b: Self::I) -> Self::I;
    /// Bits in exactly one.
    fn xor_int(&mut self, a: Self::I, b: Self::I) -> Self::I;
    /// a · 2^n; n < 32.
    fn shl(&mut self, a: Self::I, n: u32) -> Self::I;
    /// Unsigned a / 2^n; n < 32.
    fn shr(&mut self, a: Self::I, n: u32) -> Self::I;
    /// Signed a / 2^n, rounded down; n < 32.
    fn sar(&mut self, a: Self::I, n: u32) -> Self::I;
    /// Upper half of `high`:`low` shifted left by n modulo 32.
    fn funnel(&mut self, high: Self::I, low: Self::I, n: Self::I) -> Self::I;
    /// The smaller signed one.
    fn min_int(&mut self, a: Self::I, b: Self::I) -> Self::I;
    /// The larger signed one.
    fn max_int(&mut self, a: Self::I, b: Self::I) -> Self::I;
    /// Signed a < b.
    fn lt_int(&mut self, a: Self::I, b: Self::I) -> Self::P;
    /// a ≠ b.
    fn ne_int(&mut self, a: Self::I, b: Self::I) -> Self::P;
    /// The unsigned product of a and b, plus c.
    fn mad_wide(&mut self, a: Self::I, b: Self::I, c: Self::W) -> Self::W;
    /// `high` · 2^32 + `low`.
    fn wide(&mut self, high: Self::I, low: Self::I) -> Self::W;
    /// Lower and upper half.
    fn halves(&mut self, a: Self::W) -> (Self::I, Self::I);
    /// a · 2^n; n < 64.
    fn shl_wide(&mut self, a: Self::W, n: Self::I) -> Self::W;
    /// Unsigned remainder; the divisor is not 0.
    fn rem_wide(&mut self, a: Self::W, b: Self::W) -> Self::W;
    /// The f32 nearest to a signed integer.
    fn of_wide(&mut self, a: Self::W) -> Self::F;
}

/// The sign bit.
const SIGN: u32 = 0x8000_0000;
/// Adding and taking away this number rounds to an integer; the sum's low bits are that integer.
const ROUND: f32 = 12_582_912.0;

/// c0 + c1·z + c2·z² + …
fn polynomial<M: Machine>(m: &mut M, z: M::F, coefficients: &[f32]) -> M::F {
    let mut rest = coefficients.iter().rev();
    let mut sum = m.float(rest.next().copied().unwrap_or(0.0));
    for &c in rest {
        let c = m.float(c);
        sum = m.fma(sum, z, c);
    }
    sum
}

/// The smaller of a and a constant; a NaN stays.
fn at_most<M: Machine>(m: &mut M, a: M::F, most: f32) -> M::F {
    let most = m.float(most);
    let above = m.gt(a, most);
    m.select(above, most, a)
}

/// Flips the sign of `a` where the sign bit of `mask` is set; its other bits are 0.
fn flip<M: Machine>(m: &mut M, a: M::F, mask: M::I) -> M::F {
    let bits = m.bits(a);
    let bits = m.xor_int(bits, mask);
    m.of_bits(bits)
}
