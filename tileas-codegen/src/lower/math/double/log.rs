//! Logarithms: `log`, `log2`, and the one of powers.

use super::exp::LN_2_SHORT;
use super::{Doubles, polynomial, product, sum};

/// With s = (v - 1)/(v + 1), log v = 2s + s³·(…) for v between √½ and √2, relative error 2^-64.
const LOG: [f64; 8] = [
    0.666_666_666_666_666_6,
    0.400_000_000_000_008_85,
    0.285_714_285_707_997_84,
    0.222_222_223_925_810_45,
    0.181_817_955_475_211_37,
    0.153_862_447_376_216_65,
    0.132_686_383_692_668_25,
    0.130_880_348_509_275_55,
];
/// log2 v = 2/ln 2 · s + s³·(…), relative error 2^-72; the first coefficient lacks `LOG2_REST`.
const LOG2: [f64; 9] = [
    0.961_796_693_925_975_6,
    0.577_078_016_355_585_2,
    0.412_198_583_111_231_03,
    0.320_598_897_941_018_04,
    0.262_308_195_224_587_65,
    0.221_952_500_102_976_2,
    0.192_392_701_232_318_9,
    0.168_621_662_546_477_53,
    0.171_441_978_376_194_88,
];
const LOG2_REST: f64 = 5.057_761_664_812_590_7e-17;
/// 2/ln 2.
const SLOPE: [f64; 2] = [2.885_390_081_777_926_8, 4.071_054_748_186_206_6e-17];
/// 1/ln 2.
const LOG2_E: [f64; 2] = [std::f64::consts::LOG2_E, 2.035_527_374_093_103_3e-17];

/// A positive finite number as v · 2^e, v from √½ to √2.
fn split<M: Doubles>(m: &mut M, x: M::D) -> (M::D, M::D) {
    // Subnormal numbers are scaled up.
    let (least, scale) = (m.dfloat(f64::MIN_POSITIVE), m.dfloat(18_014_398_509_481_984.0));
    let (tiny, scaled) = (m.dlt(x, least), m.dmul(x, scale));
    let (normal, zero, many) = (m.dselect(tiny, scaled, x), m.int(0), m.int(54));
    let extra = m.select_int(tiny, many, zero);
    let (bits, root) = (m.dbits(normal), m.int(0x3fe6_a09e));
    let (low, high) = m.halves(bits);
    let above = m.sub_int(high, root);
    let e = m.sar(above, 20);
    let shift = m.shl(e, 20);
    let high = m.sub_int(high, shift);
    let v = m.wide(high, low);
    let e = m.sub_int(e, extra);
    (m.dof_bits(v), m.dof_int(e))
}

/// f = v - 1, and what log v is less than that: with 2s = f - s·f, s·(f - s²·(…)).
fn parts<M: Doubles>(m: &mut M, v: M::D) -> (M::D, M::D) {
    let (one, two) = (m.dfloat(1.0), m.dfloat(2.0));
    // Exact.
    let f = m.dsub(v, one);
    let under = m.dadd(two, f);
    let s = m.ddiv(f, under);
    let z = m.dmul(s, s);
    let p = polynomial(m, z, &LOG);
    let negative = m.dneg(z);
    let p = m.dfma(negative, p, f);
    (f, m.dmul(s, p))
}

/// The logarithm of 0, of negative numbers, of infinity and NaN.
fn at_the_ends<M: Doubles>(m: &mut M, x: M::D, value: M::D) -> M::D {
    let (nothing, infinite) = (m.dfloat(0.0), m.dfloat(f64::INFINITY));
    let (nan, least) = (m.dfloat(f64::NAN), m.dfloat(f64::NEG_INFINITY));
    let endless = m.dnot_lt(x, infinite);
    let value = m.dselect(endless, x, value);
    let negative = m.dlt(x, nothing);
    let value = m.dselect(negative, nan, value);
    let none = m.deq(x, nothing);
    m.dselect(none, least, value)
}

/// log x, 2 ulp.
pub(in super::super::super) fn log<M: Doubles>(m: &mut M, x: M::D) -> M::D {
    let (v, e) = split(m, x);
    let (f, less) = parts(m, v);
    let [ln_2, rest] = LN_2_SHORT.map(|c| m.dfloat(c));
    // Exact.
    let base = m.dmul(e, ln_2);
    let (high, low) = sum(m, base, f);
    let low = m.dsub(low, less);
    let low = m.dfma(e, rest, low);
    let value = m.dadd(high, low);
    at_the_ends(m, x, value)
}

/// log2 x, 2 ulp.
pub(in super::super::super) fn log2<M: Doubles>(m: &mut M, x: M::D) -> M::D {
    let (v, e) = split(m, x);
    let (f, less) = parts(m, v);
    let [factor, rest] = LOG2_E.map(|c| m.dfloat(c));
    let (line, low) = product(m, f, factor);
    let low = m.dfma(f, rest, low);
    let less = m.dneg(less);
    let low = m.dfma(less, factor, low);
    let (high, lost) = sum(m, e, line);
    let low = m.dadd(low, lost);
    let value = m.dadd(high, low);
    at_the_ends(m, x, value)
}

/// log2 of a magnitude, as a sum, relative error 2^-64; of 0, infinity and NaN: -∞, ∞ and NaN, and any second part.
pub(super) fn log2_sum<M: Doubles>(m: &mut M, size: M::D) -> (M::D, M::D) {
    let (v, e) = split(m, size);
    // v - 1 is exact; v + 1 has a rest.
    let one = m.dfloat(1.0);
    let (over, under) = (m.dsub(v, one), m.dadd(v, one));
    let back = m.dsub(under, one);
    let lack = m.dsub(v, back);
    let inverse = m.ddiv(one, under);
    let s = m.dmul(over, inverse);
    let negative = m.dneg(s);
    let error = m.dfma(negative, under, over);
    let error = m.dfma(negative, lack, error);
    let s_rest = m.dmul(error, inverse);
    let [slope, slope_rest] = SLOPE.map(|c| m.dfloat(c));
    let (line, line_rest) = product(m, s, slope);
    let rest = m.dfma(s, slope_rest, line_rest);
    let rest = m.dfma(s_rest, slope, rest);
    // The other part is less than a hundredth of this one, but its first roundings still count.
    let (z, z_rest) = product(m, s, s);
    let (cube, cube_rest) = product(m, s, z);
    let cube_rest = m.dfma(s, z_rest, cube_rest);
    // (s + rest)³, to first order.
    let three = m.dfloat(3.0);
    let slant = m.dmul(z, three);
    let cube_rest = m.dfma(slant, s_rest, cube_rest);
    let (tail, first, first_rest) = (polynomial(m, z, &LOG2[1..]), m.dfloat(LOG2[0]), m.dfloat(LOG2_REST));
    let tail = m.dfma(tail, z, first_rest);
    let (p, p_rest) = sum(m, first, tail);
    let (curve, curve_rest) = product(m, cube, p);
    let curve_rest = m.dfma(cube, p_rest, curve_rest);
    let curve_rest = m.dfma(cube_rest, p, curve_rest);
    let rest = m.dadd(rest, curve_rest);
    let (near, lost) = sum(m, line, curve);
    let rest = m.dadd(rest, lost);
    let (high, lost) = sum(m, e, near);
    let rest = m.dadd(rest, lost);
    (at_the_ends(m, size, high), rest)
}
