//! The same functions in f64.
//!
//! PTX has no approximations in f64 to start from, so these are sums, products and divisions from end to end. Coefficients are those of
//! polynomials through Chebyshev nodes, in 120 digits, rounded to f64; the comments at them name interval and error before rounding.
//! Where a coefficient needs more than 53 bits, a second number has what the first one lacks.

use super::Machine;

mod emit;
mod exp;
mod log;
mod pow;
mod remainder;
#[cfg(test)]
mod tests;
mod trig;

pub(in super::super) use exp::{cosh, erf, exp, exp2, sinh, tanh};
pub(in super::super) use log::{log, log2};
pub(in super::super) use pow::{pow, powi};
pub(in super::super) use remainder::remainder;
pub(in super::super) use trig::{atan2, cos, sin, tan};

/// What evaluates them: f64 with one rounding to nearest even an operation, subnormal numbers included, and more integers of 64 bits.
pub(in super::super) trait Doubles: Machine {
    /// An f64.
    type D: Copy;

    /// The constant `x`.
    fn dfloat(&mut self, x: f64) -> Self::D;
    /// The constant `x`.
    fn long(&mut self, x: u64) -> Self::W;
    /// a + b.
    fn dadd(&mut self, a: Self::D, b: Self::D) -> Self::D;
    /// a - b.
    fn dsub(&mut self, a: Self::D, b: Self::D) -> Self::D;
    /// a · b.
    fn dmul(&mut self, a: Self::D, b: Self::D) -> Self::D;
    /// a · b + c, rounded once.
    fn dfma(&mut self, a: Self::D, b: Self::D, c: Self::D) -> Self::D;
    /// a / b.
    fn ddiv(&mut self, a: Self::D, b: Self::D) -> Self::D;
    /// -a.
    fn dneg(&mut self, a: Self::D) -> Self::D;
    /// |a|.
    fn dabs(&mut self, a: Self::D) -> Self::D;
    /// The greatest integer not above.
    fn dfloor(&mut self, a: Self::D) -> Self::D;
    /// The magnitude of the first with the sign of the second.
    fn dcopysign(&mut self, magnitude: Self::D, sign: Self::D) -> Self::D;
    /// a < b; false with a NaN.
    fn dlt(&mut self, a: Self::D, b: Self::D) -> Self::P;
    /// a = b; false with a NaN.
    fn deq(&mut self, a: Self::D, b: Self::D) -> Self::P;
    /// a ≥ b; true with a NaN.
    fn dnot_lt(&mut self, a: Self::D, b: Self::D) -> Self::P;
    /// a ≠ b; true with a NaN.
    fn dne(&mut self, a: Self::D, b: Self::D) -> Self::P;
    /// Whether one of them is a NaN.
    fn dnan(&mut self, a: Self::D, b: Self::D) -> Self::P;
    /// The first where `p` holds, else the second.
    fn dselect(&mut self, p: Self::P, a: Self::D, b: Self::D) -> Self::D;
    /// The f64 nearest to a signed integer.
    fn dof_int(&mut self, a: Self::I) -> Self::D;
    /// The f64 nearest to an unsigned integer.
    fn dof_wide(&mut self, a: Self::W) -> Self::D;
    /// The bits of an f64.
    fn dbits(&mut self, a: Self::D) -> Self::W;
    /// The f64 of these bits.
    fn dof_bits(&mut self, a: Self::W) -> Self::D;
    /// The first where `p` holds, else the second.
    fn select_wide(&mut self, p: Self::P, a: Self::W, b: Self::W) -> Self::W;
    /// a + b, wrapping.
    fn add_wide(&mut self, a: Self::W, b: Self::W) -> Self::W;
    /// Lower half of the product.
    fn mul_wide_low(&mut self, a: Self::W, b: Self::W) -> Self::W;
    /// Upper half of the unsigned product.
    fn mul_wide_high(&mut self, a: Self::W, b: Self::W) -> Self::W;
    /// Bits in both.
    fn and_wide(&mut self, a: Self::W, b: Self::W) -> Self::W;
    /// Bits in either.
    fn or_wide(&mut self, a: Self::W, b: Self::W) -> Self::W;
    /// Bits in exactly one.
    fn xor_wide(&mut self, a: Self::W, b: Self::W) -> Self::W;
    /// Unsigned a / 2^n; n ≤ 64.
    fn shr_wide(&mut self, a: Self::W, n: Self::I) -> Self::W;
    /// Unsigned a < b.
    fn lt_wide(&mut self, a: Self::W, b: Self::W) -> Self::P;
}

/// Adding and taking away this number rounds to an integer; the low bits of the sum are that integer.
const DROUND: f64 = 6_755_399_441_055_744.0;

/// c0 + c1·z + c2·z² + …
fn polynomial<M: Doubles>(m: &mut M, z: M::D, coefficients: &[f64]) -> M::D {
    let mut rest = coefficients.iter().rev();
    let mut sum = m.dfloat(rest.next().copied().unwrap_or(0.0));
    for &c in rest {
        let c = m.dfloat(c);
        sum = m.dfma(sum, z, c);
    }
    sum
}

/// a · b, and what rounding took from it.
fn product<M: Doubles>(m: &mut M, a: M::D, b: M::D) -> (M::D, M::D) {
    let rounded = m.dmul(a, b);
    let negative = m.dneg(rounded);
    (rounded, m.dfma(a, b, negative))
}

/// a + b, and what rounding took from it; |a| ≥ |b|, or a is 0.
fn sum<M: Doubles>(m: &mut M, a: M::D, b: M::D) -> (M::D, M::D) {
    let rounded = m.dadd(a, b);
    let lost = m.dsub(a, rounded);
    (rounded, m.dadd(lost, b))
}

/// The smaller of a and a constant; a NaN stays.
fn at_most<M: Doubles>(m: &mut M, a: M::D, most: f64) -> M::D {
    let most = m.dfloat(most);
    let above = m.dlt(most, a);
    m.dselect(above, most, a)
}

/// The larger of a and a constant; a NaN stays.
fn at_least<M: Doubles>(m: &mut M, a: M::D, least: f64) -> M::D {
    let least = m.dfloat(least);
    let below = m.dlt(a, least);
    m.dselect(below, least, a)
}

/// Flips the sign of `a` where bit 31 of `mask` is set; its other bits are 0.
fn flip<M: Doubles>(m: &mut M, a: M::D, mask: M::I) -> M::D {
    let (bits, none) = (m.dbits(a), m.int(0));
    let mask = m.wide(mask, none);
    let bits = m.xor_wide(bits, mask);
    m.dof_bits(bits)
}

/// Upper half of the bits.
fn upper<M: Doubles>(m: &mut M, a: M::D) -> M::I {
    let bits = m.dbits(a);
    m.halves(bits).1
}

/// 2^n, -1022 ≤ n ≤ 1023.
fn power_of_two<M: Doubles>(m: &mut M, n: M::I) -> M::D {
    let (bias, none) = (m.int(1023), m.int(0));
    let n = m.add_int(n, bias);
    let n = m.shl(n, 20);
    let bits = m.wide(n, none);
    m.dof_bits(bits)
}

/// a · 2^n, -2044 ≤ n ≤ 2046: in two steps, of which at most the second one rounds, if that of a is near 0 and n not both large and against it.
fn scaled<M: Doubles>(m: &mut M, a: M::D, n: M::I) -> M::D {
    let half = m.sar(n, 1);
    let other = m.sub_int(n, half);
    let (half, other) = (power_of_two(m, half), power_of_two(m, other));
    let a = m.dmul(a, half);
    m.dmul(a, other)
}

/// The nearest integer to a number below 2^51, and it as 32 bits.
fn nearest<M: Doubles>(m: &mut M, a: M::D) -> (M::D, M::I) {
    let round = m.dfloat(DROUND);
    let sum = m.dadd(a, round);
    let bits = m.dbits(sum);
    (m.dsub(sum, round), m.halves(bits).0)
}
