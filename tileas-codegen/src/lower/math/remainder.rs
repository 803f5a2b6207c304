//! `remf`: the remainder of a truncated quotient, exact.
//!
//! x and y are integers of 24 bits times powers of two. With d = the difference of these powers, x mod y is (X · 2^d mod Y) times y's
//! power; X · 2^d is brought in by 40 bits at a time, which a remainder of 64 bits takes.

use super::{Machine, SIGN};

/// Bits that a step brings in: Y and they fill 64.
const STEP: u32 = 40;

/// Exponent, not below that of subnormal numbers, and integer of a magnitude.
fn parts<M: Machine>(m: &mut M, magnitude: M::I) -> (M::I, M::I) {
    let (fraction, one) = (m.int(0x007f_ffff), m.int(1));
    let exponent = m.shr(magnitude, 23);
    let normal = m.min_int(exponent, one);
    let implicit = m.shl(normal, 23);
    let integer = m.and_int(magnitude, fraction);
    (m.max_int(exponent, one), m.or_int(integer, implicit))
}

/// x mod y with the sign of x, where the exponents of x and y differ by at most `range`: no more steps are made than that
/// takes.
pub(in super::super) fn remainder<M: Machine>(m: &mut M, x: M::F, y: M::F, range: u32) -> M::F {
    let (size, by) = (m.abs(x), m.abs(y));
    let (above, below) = (m.bits(size), m.bits(by));
    let ((ex, ix), (ey, iy)) = (parts(m, above), parts(m, below));
    let (zero, one, step) = (m.int(0), m.int(1), m.int(STEP));
    // A zero y is seen to below.
    let iy = m.max_int(iy, one);
    let divisor = m.wide(zero, iy);
    let mut rest = m.wide(zero, ix);
    let left = m.sub_int(ex, ey);
    let mut left = m.max_int(left, zero);
    for _ in 0..range.div_ceil(STEP) {
        let now = m.min_int(left, step);
        rest = m.shl_wide(rest, now);
        rest = m.rem_wide(rest, divisor);
        left = m.sub_int(left, now);
    }
    // Both products are exact, subnormal results too: they are multiples of the least number.
    let (low, _) = m.halves(rest);
    let (value, unit) = (m.of_int(low), m.float(f32::EPSILON));
    let value = m.mul(value, unit);
    let power = m.shl(ey, 23);
    let power = m.of_bits(power);
    let value = m.mul(value, power);
    let whole = m.lt(size, by);
    let value = m.select(whole, size, value);
    let value = m.copysign(value, x);
    let (infinite, nothing, nan) = (m.float(f32::INFINITY), m.float(0.0), m.float(f32::NAN));
    let (endless, none) = (m.not_lt(size, infinite), m.not_gt(by, nothing));
    let wrong = m.either(endless, none);
    let unordered = m.either_nan(x, y);
    let wrong = m.either(wrong, unordered);
    m.select(wrong, nan, value)
}

const _: () = assert!(SIGN == 1 << 31 && STEP + 24 == 64);
