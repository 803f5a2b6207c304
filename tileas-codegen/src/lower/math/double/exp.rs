//! Exponentials: `exp`, `exp2`, `sinh`, `cosh`, `tanh`, `erf`.

use super::{DROUND, Doubles, at_least, at_most, nearest, polynomial, product, scaled, sum};

/// e^r = 1 + r + r²·(…) for |r| ≤ ln 2 / 2, relative error 2^-61.
const EXP: [f64; 11] = [
    0.5,
    0.166_666_666_666_666_7,
    0.041_666_666_666_666_67,
    0.008_333_333_333_326_125,
    0.001_388_888_888_888_287,
    0.000_198_412_698_748_515_6,
    2.480_158_732_789_466e-5,
    2.755_725_536_098_087e-6,
    2.755_727_112_780_950_6e-7,
    2.510_523_332_542_075_8e-8,
    2.091_561_851_055_416_6e-9,
];
/// sinh x = x + x³·(…) for |x| ≤ 1, relative error 2^-71.
const SINH: [f64; 8] = [
    0.166_666_666_666_666_66,
    0.008_333_333_333_333_333,
    0.000_198_412_698_412_697_73,
    2.755_731_922_404_034e-6,
    2.505_210_836_405_804e-8,
    1.605_904_839_635_056_2e-10,
    7.646_625_361_656_657e-13,
    2.844_526_416_989_528_5e-15,
];
/// tanh x = x - x³·p/q for |x| ≤ 0.6, relative error 2^-58: the continued fraction x/(1 + x²/(3 + x²/(5 + …))), cut off behind 15.
const TANH: [&[f64]; 2] =
    [&[675_675.0, 45_045.0, 594.0, 1.0], &[2_027_025.0, 945_945.0, 51_975.0, 630.0, 1.0]];
/// erf x = x + x·(…), even, for |x| ≤ 1, relative error 2^-62.
const ERF: [f64; 13] = [
    0.128_379_167_095_512_6,
    -0.376_126_389_031_837_5,
    0.112_837_916_709_548_79,
    -0.026_866_170_645_076_792,
    0.005_223_977_624_818_014_5,
    -0.000_854_832_698_083_379,
    0.000_120_553_311_116_427_1,
    -1.492_559_526_683_118_2e-5,
    1.646_100_048_412_136_8e-6,
    -1.635_031_270_105_469_5e-7,
    1.465_977_527_404_743_6e-8,
    -1.137_284_885_679_167_4e-9,
    5.957_176_147_748_911e-11,
];
/// -log2(1 - erf x) by x - 1 for 1 ≤ x ≤ 6, such that the error of erf is 2^-57: by least squares with that as weight, repeated.
const ERFC: [f64; 18] = [
    2.668_416_696_781_599_7,
    3.807_225_345_853_586,
    1.216_346_657_687_229_5,
    0.059_959_990_014_581_764,
    -0.014_475_749_826_011_979,
    0.002_853_508_268_969_319_3,
    -0.000_342_375_218_342_018_6,
    -3.793_764_751_249_086_4e-5,
    3.923_994_847_319_976e-5,
    -1.395_301_646_093_674e-5,
    3.075_904_343_204_698_5e-6,
    -2.955_992_479_723_609_4e-7,
    -8.363_182_745_458_073e-8,
    4.815_072_812_534_841e-8,
    -1.228_416_484_213_577_4e-8,
    1.902_081_101_116_62e-9,
    -1.720_535_074_425_195_6e-10,
    7.014_458_083_466_005e-12,
];
const LN_2: [f64; 2] = [std::f64::consts::LN_2, 2.319_046_813_846_299_6e-17];
/// The first 42 bits of ln 2, whose products with exponents are exact, and what is missing.
pub(super) const LN_2_SHORT: [f64; 2] = [0.693_147_180_559_890_3, 5.497_923_018_708_371e-14];

/// e^(r + rest) · 2^n for |r| ≤ ln 2 / 2 and a rest below its last place.
fn power<M: Doubles>(m: &mut M, r: M::D, rest: M::D, n: M::I) -> M::D {
    let (p, square, one) = (polynomial(m, r, &EXP), m.dmul(r, r), m.dfloat(1.0));
    let p = m.dfma(square, p, rest);
    let p = m.dadd(r, p);
    let p = m.dadd(one, p);
    scaled(m, p, n)
}

/// e^x · 2^shift, 1 ulp.
fn exp_shifted<M: Doubles>(m: &mut M, x: M::D, shift: i32) -> M::D {
    // Beyond, the result is 0 or infinite.
    let x = at_most(m, x, 800.0);
    let x = at_least(m, x, -800.0);
    let (factor, round) = (m.dfloat(std::f64::consts::LOG2_E), m.dfloat(DROUND));
    let near = m.dfma(x, factor, round);
    let (bits, n) = (m.dbits(near), m.dsub(near, round));
    let [coarse, fine] = LN_2_SHORT.map(|c| m.dfloat(-c));
    // Exact, as is the product.
    let r = m.dfma(n, coarse, x);
    let rest = m.dmul(n, fine);
    let (r, rest) = sum(m, r, rest);
    let (n, shift) = (m.halves(bits).0, m.int(shift as u32));
    let n = m.add_int(n, shift);
    power(m, r, rest, n)
}

/// e^x, 2 ulp.
pub(in super::super::super) fn exp<M: Doubles>(m: &mut M, x: M::D) -> M::D {
    exp_shifted(m, x, 0)
}

/// 2^(high + rest).
pub(super) fn exp2_sum<M: Doubles>(m: &mut M, high: M::D, rest: M::D) -> M::D {
    let high = at_most(m, high, 1100.0);
    let high = at_least(m, high, -1200.0);
    let (n, power_of_two) = nearest(m, high);
    let f = m.dsub(high, n);
    let (f, rest) = sum(m, f, rest);
    let [ln_2, ln_2_rest] = LN_2.map(|c| m.dfloat(c));
    let (r, lost) = product(m, f, ln_2);
    let lost = m.dfma(f, ln_2_rest, lost);
    let lost = m.dfma(rest, ln_2, lost);
    power(m, r, lost, power_of_two)
}

/// 2^x, 2 ulp.
pub(in super::super::super) fn exp2<M: Doubles>(m: &mut M, x: M::D) -> M::D {
    let nothing = m.dfloat(0.0);
    exp2_sum(m, x, nothing)
}

/// e^|x| / 2 and e^-|x| / 2. The first overflows where cosh does.
fn halves<M: Doubles>(m: &mut M, size: M::D) -> (M::D, M::D) {
    let (grows, quarter) = (exp_shifted(m, size, -1), m.dfloat(0.25));
    (grows, m.ddiv(quarter, grows))
}

/// cosh x, 2 ulp.
pub(in super::super::super) fn cosh<M: Doubles>(m: &mut M, x: M::D) -> M::D {
    let size = m.dabs(x);
    let (grows, falls) = halves(m, size);
    m.dadd(grows, falls)
}

/// sinh x, 2 ulp.
pub(in super::super::super) fn sinh<M: Doubles>(m: &mut M, x: M::D) -> M::D {
    let size = m.dabs(x);
    let (grows, falls) = halves(m, size);
    let large = m.dsub(grows, falls);
    let large = m.dcopysign(large, x);
    let z = m.dmul(x, x);
    let (p, cube) = (polynomial(m, z, &SINH), m.dmul(x, z));
    let near = m.dfma(cube, p, x);
    let one = m.dfloat(1.0);
    let small = m.dlt(size, one);
    m.dselect(small, near, large)
}

/// tanh x, 2 ulp: 1 - 2/(e^2x + 1) or x - x³·p/q, by one division.
pub(in super::super::super) fn tanh<M: Doubles>(m: &mut M, x: M::D) -> M::D {
    let size = m.dabs(x);
    // From there on it is 1.
    let bounded = at_most(m, size, 22.0);
    let twice = m.dadd(bounded, bounded);
    let (power, one, two) = (exp_shifted(m, twice, 0), m.dfloat(1.0), m.dfloat(2.0));
    let far = m.dadd(power, one);
    let z = m.dmul(size, size);
    let [over, under] = TANH.map(|c| polynomial(m, z, c));
    let cube = m.dmul(size, z);
    let over = m.dmul(cube, over);
    let limit = m.dfloat(0.6);
    let small = m.dlt(size, limit);
    let (over, under, whole) =
        (m.dselect(small, over, two), m.dselect(small, under, far), m.dselect(small, size, one));
    let quotient = m.ddiv(over, under);
    let value = m.dsub(whole, quotient);
    m.dcopysign(value, x)
}

/// erf x, 2 ulp.
pub(in super::super::super) fn erf<M: Doubles>(m: &mut M, x: M::D) -> M::D {
    let (size, one) = (m.dabs(x), m.dfloat(1.0));
    // From there on it is 1.
    let bounded = at_most(m, size, 6.0);
    let beyond = m.dsub(bounded, one);
    let exponent = polynomial(m, beyond, &ERFC);
    let exponent = m.dneg(exponent);
    let complement = exp2(m, exponent);
    let large = m.dsub(one, complement);
    let large = m.dcopysign(large, x);
    let z = m.dmul(x, x);
    let p = polynomial(m, z, &ERF);
    let near = m.dfma(x, p, x);
    let small = m.dlt(size, one);
    m.dselect(small, near, large)
}
