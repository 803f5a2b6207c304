//! Powers: `pow`, `powi`.
//!
//! x^y = 2^(y·log2 x). The exponent is up to 150 and an error in it is one of the result's relative to it, so the logarithm is the sum of two f32,
//! with a relative error below 2^-34, and so is its product with y.

use super::{Machine, SIGN, flip, polynomial};

/// With s = (v - 1)/(v + 1), log2 v = 2/ln 2 · s + s³·(…) for v between √½ and √2, relative error 2^-37.
const LOG2: [f32; 4] = [0.961_796_7, 0.577_082_9, 0.411_705_88, 0.340_228_95];
/// 2/ln 2 to 24 bits, and what is missing of it.
const SLOPE: [f32; 2] = [2.885_39, 3.851_926e-8];
/// 2^f = 1 + f·(…) for |f| ≤ 1/2, relative error 2^-29.
const EXP2: [f32; 6] =
    [std::f32::consts::LN_2, 0.240_226_48, 0.055_503_32, 0.009_618_438, 0.001_339_901_6, 0.000_153_533_69];
/// No result is finite, or above zero, from this exponent on.
const FAR: f32 = 160.0;

/// An exponent: its f32, and what that lacks of it.
pub(in super::super) struct Exponent<F> {
    /// The number, rounded.
    pub(in super::super) rounded: F,
    /// The rest, if there may be one.
    pub(in super::super) rest: Option<F>,
}

/// a · b, and what rounding took from it.
fn product<M: Machine>(m: &mut M, a: M::F, b: M::F) -> (M::F, M::F) {
    let rounded = m.mul(a, b);
    let negative = m.neg(rounded);
    (rounded, m.fma(a, b, negative))
}

/// log2 of a magnitude, as a sum; of 0, infinity and NaN: -∞, ∞ and NaN, and any second part.
fn log2<M: Machine>(m: &mut M, size: M::F) -> (M::F, M::F) {
    // Subnormal numbers are scaled up.
    let (least, scale) = (m.float(f32::MIN_POSITIVE), m.float(16_777_216.0));
    let tiny = m.lt(size, least);
    let scaled = m.mul(size, scale);
    let (normal, zero, many) = (m.select(tiny, scaled, size), m.int(0), m.int(24));
    let extra = m.select_int(tiny, many, zero);
    // size = v · 2^e with v from √½ to √2.
    let (bits, root) = (m.bits(normal), m.int(0x3f35_04f3));
    let above = m.sub_int(bits, root);
    let e = m.sar(above, 23);
    let shift = m.shl(e, 23);
    let v = m.sub_int(bits, shift);
    let v = m.of_bits(v);
    let e = m.sub_int(e, extra);
    let e = m.of_int(e);
    // v - 1 is exact; v + 1 has a rest.
    let one = m.float(1.0);
    let (over, under) = (m.sub(v, one), m.add(v, one));
    let back = m.sub(under, one);
    let lack = m.sub(v, back);
    let inverse = m.reciprocal(under);
    let s = m.mul(over, inverse);
    let negative = m.neg(s);
    let error = m.fma(negative, under, over);
    let error = m.fma(negative, lack, error);
    let s_rest = m.mul(error, inverse);
    let [slope, slope_rest] = SLOPE.map(|c| m.float(c));
    let (line, line_rest) = product(m, s, slope);
    let rest = m.fma(s, slope_rest, line_rest);
    let rest = m.fma(s_rest, slope, rest);
    // The other part is less than a hundredth of this one, but its first roundings still count.
    let (z, z_rest) = product(m, s, s);
    let (cube, cube_rest) = product(m, s, z);
    let cube_rest = m.fma(s, z_rest, cube_rest);
    // (s + rest)³, to first order.
    let three = m.float(3.0);
    let slant = m.mul(z, three);
    let cube_rest = m.fma(slant, s_rest, cube_rest);
    let tail = polynomial(m, z, &LOG2[1..]);
    let (tail, first) = (m.mul(tail, z), m.float(LOG2[0]));
    let p = m.add(first, tail);
    let p_rest = m.sub(first, p);
    let p_rest = m.add(p_rest, tail);
    let (curve, curve_rest) = product(m, cube, p);
    let curve_rest = m.fma(cube, p_rest, curve_rest);
    let curve_rest = m.fma(cube_rest, p, curve_rest);
    let rest = m.add(rest, curve_rest);
    // Sums of a larger and a smaller number, and what they lose.
    let sum = m.add(line, curve);
    let lost = m.sub(line, sum);
    let lost = m.add(lost, curve);
    let rest = m.add(rest, lost);
    let high = m.add(e, sum);
    let lost = m.sub(e, high);
    let lost = m.add(lost, sum);
    let rest = m.add(rest, lost);
    let (nothing, infinite, minus_infinite) =
        (m.float(0.0), m.float(f32::INFINITY), m.float(f32::NEG_INFINITY));
    let none = m.eq(size, nothing);
    let high = m.select(none, minus_infinite, high);
    let endless = m.not_lt(size, infinite);
    (m.select(endless, size, high), rest)
}

/// 2^(high + rest).
fn exp2<M: Machine>(m: &mut M, high: M::F, rest: M::F) -> M::F {
    let (far, nothing) = (m.float(FAR), m.float(0.0));
    let size = m.abs(high);
    let away = m.gt(size, far);
    let limit = m.copysign(far, high);
    let (high, rest) = (m.select(away, limit, high), m.select(away, nothing, rest));
    let n = m.nearest(high);
    let f = m.sub(high, n);
    let f = m.add(f, rest);
    let p = polynomial(m, f, &EXP2);
    let one = m.float(1.0);
    let p = m.fma(p, f, one);
    // In two steps, of which at most the second one rounds.
    let n = m.to_int(n);
    let half = m.sar(n, 1);
    let other = m.sub_int(n, half);
    let bias = m.int(127);
    let [a, b] = [half, other].map(|k| {
        let k = m.add_int(k, bias);
        let k = m.shl(k, 23);
        m.of_bits(k)
    });
    let p = m.mul(p, a);
    m.mul(p, b)
}

/// |x|^y.
fn magnitude<M: Machine>(m: &mut M, size: M::F, y: &Exponent<M::F>) -> M::F {
    let (log, log_rest) = log2(m, size);
    let (high, rest) = product(m, y.rounded, log);
    let mut rest = m.fma(y.rounded, log_rest, rest);
    if let Some(y_rest) = y.rest {
        rest = m.fma(y_rest, log, rest);
    }
    exp2(m, high, rest)
}

/// x^y as C's `pow`, 2 ulp.
pub(in super::super) fn pow<M: Machine>(m: &mut M, x: M::F, y: M::F) -> M::F {
    let size = m.abs(x);
    let (nothing, one, infinite, nan) =
        (m.float(0.0), m.float(1.0), m.float(f32::INFINITY), m.float(f32::NAN));
    // An infinite exponent acts as the largest one does, but that 1^y is 1.
    let (largest, least) = (m.float(f32::MAX), m.float(f32::MIN));
    let bounded = at_most_both(m, y, largest, least);
    let value = magnitude(m, size, &Exponent { rounded: bounded, rest: None });
    // Is the exponent an integer, an odd one?
    let below = m.floor(bounded);
    let fraction = m.ne(below, bounded);
    let half = m.float(0.5);
    let halved = m.mul(bounded, half);
    let even = m.floor(halved);
    let odd = m.ne(even, halved);
    let (bits, mask, none) = (m.bits(x), m.int(SIGN), m.int(0));
    let sign = m.and_int(bits, mask);
    let sign = m.select_int(odd, sign, none);
    // A fraction's half is no integer either.
    let sign = m.select_int(fraction, none, sign);
    let value = flip(m, value, sign);
    let (negative, finite) = (m.lt(x, nothing), m.ne(size, infinite));
    let wrong = m.both(negative, finite);
    let wrong = m.both(wrong, fraction);
    let value = m.select(wrong, nan, value);
    let (empty, unit) = (m.eq(y, nothing), m.eq(x, one));
    let unit = m.either(empty, unit);
    m.select(unit, one, value)
}

/// A number between two constants; a NaN stays.
fn at_most_both<M: Machine>(m: &mut M, y: M::F, most: M::F, least: M::F) -> M::F {
    let above = m.gt(y, most);
    let y = m.select(above, most, y);
    let below = m.lt(y, least);
    m.select(below, least, y)
}

/// The sign that an odd power of x has, 0 for an even one.
fn sign_of_power<M: Machine>(m: &mut M, x: M::F, low: M::I) -> M::I {
    let (bits, last) = (m.bits(x), m.shl(low, 31));
    m.and_int(bits, last)
}

/// x^y for an integer y, 2 ulp; `low`: its low 32 bits.
pub(in super::super) fn powi<M: Machine>(m: &mut M, x: M::F, y: &Exponent<M::F>, low: M::I) -> M::F {
    let size = m.abs(x);
    let value = magnitude(m, size, y);
    let sign = sign_of_power(m, x, low);
    let value = flip(m, value, sign);
    unit_for_zero(m, value, y.rounded)
}

fn unit_for_zero<M: Machine>(m: &mut M, value: M::F, y: M::F) -> M::F {
    let (nothing, one) = (m.float(0.0), m.float(1.0));
    let empty = m.eq(y, nothing);
    m.select(empty, one, value)
}

/// 2^(y · log2 x) by the machine's own power and logarithm.
pub(in super::super) fn pow_fast<M: Machine>(m: &mut M, x: M::F, y: M::F) -> M::F {
    let log = m.log2_fast(x);
    let exponent = m.mul(log, y);
    m.exp2_fast(exponent)
}

/// |x|^y in the same way, with the sign of the power.
pub(in super::super) fn powi_fast<M: Machine>(m: &mut M, x: M::F, y: M::F, low: M::I) -> M::F {
    let size = m.abs(x);
    let value = pow_fast(m, size, y);
    let sign = sign_of_power(m, x, low);
    let value = flip(m, value, sign);
    unit_for_zero(m, value, y)
}
