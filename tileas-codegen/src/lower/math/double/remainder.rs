//! `remf`: the remainder of a truncated quotient, exact.
//!
//! x and y are v · 2^e with v from 1 to 2. With d = the difference of the exponents, x mod y is (v of x · 2^d mod v of y) times y's power; 2^d is
//! brought in by 50 bits at a time. What a step leaves is v·2^n - q·(v of y) for an integer q near the quotient: a multiple of 2^-52 below
//! 2, so one fused operation computes it exactly. It may be negative, and is made positive at the end.

use super::{DROUND, Doubles, power_of_two, scaled};

/// Bits that a step brings in: the quotient is below 2^51, and with the error of the reciprocal off by 3/4 at most.
const STEP: u32 = 50;
/// From the least subnormal number to the largest one.
const RANGE: u32 = 1074 + 1023;

/// v and e of a magnitude that is neither 0 nor infinite.
fn parts<M: Doubles>(m: &mut M, size: M::D) -> (M::D, M::I) {
    let (least, scale) = (m.dfloat(f64::MIN_POSITIVE), m.dfloat(18_014_398_509_481_984.0));
    let (tiny, grown) = (m.dlt(size, least), m.dmul(size, scale));
    let (normal, none, many) = (m.dselect(tiny, grown, size), m.int(1023), m.int(1023 + 54));
    let bias = m.select_int(tiny, many, none);
    let bits = m.dbits(normal);
    let (low, high) = m.halves(bits);
    let exponent = m.shr(high, 20);
    let (fraction, one) = (m.int(0x000f_ffff), m.int(1023 << 20));
    let high = m.and_int(high, fraction);
    let high = m.or_int(high, one);
    let v = m.wide(high, low);
    (m.dof_bits(v), m.sub_int(exponent, bias))
}

/// x mod y with the sign of x.
pub(in super::super::super) fn remainder<M: Doubles>(m: &mut M, x: M::D, y: M::D) -> M::D {
    let (size, by) = (m.dabs(x), m.dabs(y));
    let ((mut rest, ex), (divisor, ey)) = (parts(m, size), parts(m, by));
    let (one, zero, step) = (m.dfloat(1.0), m.int(0), m.int(STEP));
    let (inverse, negative, round) = (m.ddiv(one, divisor), m.dneg(divisor), m.dfloat(DROUND));
    let left = m.sub_int(ex, ey);
    let mut left = m.max_int(left, zero);
    for _ in 0..RANGE.div_ceil(STEP) {
        let now = m.min_int(left, step);
        let factor = power_of_two(m, now);
        rest = m.dmul(rest, factor);
        let quotient = m.dfma(rest, inverse, round);
        let quotient = m.dsub(quotient, round);
        rest = m.dfma(quotient, negative, rest);
        left = m.sub_int(left, now);
    }
    let (nothing, infinite, nan) = (m.dfloat(0.0), m.dfloat(f64::INFINITY), m.dfloat(f64::NAN));
    let (up, below) = (m.dadd(rest, divisor), m.dlt(rest, nothing));
    let rest = m.dselect(below, up, rest);
    // Exact, subnormal results too: they are multiples of the least number.
    let value = scaled(m, rest, ey);
    let whole = m.dlt(size, by);
    let value = m.dselect(whole, size, value);
    let value = m.dcopysign(value, x);
    let (endless, none) = (m.dnot_lt(size, infinite), m.deq(by, nothing));
    let wrong = m.either(endless, none);
    let unordered = m.dnan(x, y);
    let wrong = m.either(wrong, unordered);
    m.dselect(wrong, nan, value)
}
