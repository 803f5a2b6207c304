//! Exponentials: `sinh`, `cosh`, `tanh`, `erf`.

use super::{Machine, ROUND, at_most, polynomial};

/// e^f = 1 + f + f²·(…) for |f| ≤ ln 2 / 2, relative error 2^-28.
const EXP: [f32; 5] = [0.499_999_94, 0.166_665_2, 0.041_668_393, 0.008_368_751, 0.001_381_447_5];
/// sinh x = x + x³·(…) for |x| ≤ 1, relative error 2^-34.
const SINH: [f32; 4] = [0.166_666_67, 0.008_333_35, 0.000_198_361_6, 2.816_951e-6];
/// tanh x = x + x³·(…) for |x| ≤ 0.6, relative error 2^-28.
const TANH: [f32; 5] = [-0.333_333, 0.133_319_24, -0.053_783_845, 0.020_796_012, -0.005_895_201_6];
/// erf x = x + x·(…), even, for |x| ≤ 1, relative error 2^-29.6.
const ERF: [f32; 7] = [
    0.128_379_17,
    -0.376_126_26,
    0.112_835_854,
    -0.026_853_82,
    0.005_188_342_6,
    -0.000_801_032_2,
    7.854_274e-5,
];
/// -log2(1 - erf x) for 1 ≤ x ≤ 4, such that the relative error of erf is 2^-29.8.
const ERFC: [f32; 7] = [
    0.000_492_881_6,
    1.626_045_3,
    0.920_649_4,
    0.148_750_77,
    -0.031_505_29,
    0.004_252_482_7,
    -0.000_268_879_7,
];
/// log2 e.
const LOG2_E: f32 = std::f32::consts::LOG2_E;
/// ln 2 to 24 bits, and what is missing of it.
const LN_2: [f32; 2] = [std::f32::consts::LN_2, -1.904_654_2e-9];

/// e^a · 2^shift for a number or NaN between -85 and 90, 1 ulp.
fn exp_shifted<M: Machine>(m: &mut M, a: M::F, shift: i32) -> M::F {
    let (factor, round) = (m.float(LOG2_E), m.float(ROUND));
    let sum = m.fma(a, factor, round);
    let n = m.sub(sum, round);
    let [coarse, fine] = LN_2.map(|c| m.float(-c));
    // Exact: the difference is a multiple of 2^-25 below 1/2.
    let f = m.fma(n, coarse, a);
    let f = m.fma(n, fine, f);
    let p = polynomial(m, f, &EXP);
    let square = m.mul(f, f);
    let p = m.fma(square, p, f);
    let one = m.float(1.0);
    let p = m.add(p, one);
    // The low bits of the sum are n; those of `round` are shifted out. As a factor, since a NaN's bits must not be touched.
    let power = m.bits(sum);
    let power = m.shl(power, 23);
    let bias = m.int(((127 + shift) as u32) << 23);
    let power = m.add_int(power, bias);
    let power = m.of_bits(power);
    m.mul(p, power)
}

/// e^|x| / 4 and e^-|x| / 2. The first overflows where cosh does.
fn halves<M: Machine>(m: &mut M, size: M::F) -> (M::F, M::F) {
    let bounded = at_most(m, size, 90.0);
    let grows = exp_shifted(m, bounded, -2);
    let (inverse, eighth) = (m.reciprocal(grows), m.float(0.125));
    (grows, m.mul(inverse, eighth))
}

/// cosh x, 2 ulp.
pub(in super::super) fn cosh<M: Machine>(m: &mut M, x: M::F) -> M::F {
    let size = m.abs(x);
    let (grows, falls) = halves(m, size);
    let two = m.float(2.0);
    m.fma(grows, two, falls)
}

/// sinh x, 2 ulp.
pub(in super::super) fn sinh<M: Machine>(m: &mut M, x: M::F) -> M::F {
    let size = m.abs(x);
    let (grows, falls) = halves(m, size);
    let two = m.float(2.0);
    let falls = m.neg(falls);
    let large = m.fma(grows, two, falls);
    let large = m.copysign(large, x);
    let z = m.mul(x, x);
    let p = polynomial(m, z, &SINH);
    let cube = m.mul(x, z);
    let near = m.fma(cube, p, x);
    let one = m.float(1.0);
    let small = m.lt(size, one);
    m.select(small, near, large)
}

/// tanh x, 2 ulp.
pub(in super::super) fn tanh<M: Machine>(m: &mut M, x: M::F) -> M::F {
    let size = m.abs(x);
    // From there on it is 1.
    let bounded = at_most(m, size, 10.0);
    let twice = m.add(bounded, bounded);
    let power = exp_shifted(m, twice, 0);
    let (one, minus_two) = (m.float(1.0), m.float(-2.0));
    let sum = m.add(power, one);
    let inverse = m.reciprocal(sum);
    let large = m.fma(inverse, minus_two, one);
    let z = m.mul(size, size);
    let p = polynomial(m, z, &TANH);
    let cube = m.mul(size, z);
    let near = m.fma(cube, p, size);
    let limit = m.float(0.6);
    let small = m.lt(size, limit);
    let value = m.select(small, near, large);
    m.copysign(value, x)
}

/// erf x, 2 ulp.
pub(in super::super) fn erf<M: Machine>(m: &mut M, x: M::F) -> M::F {
    let size = m.abs(x);
    // From there on it is 1.
    let bounded = at_most(m, size, 4.0);
    let exponent = polynomial(m, bounded, &ERFC);
    let exponent = m.neg(exponent);
    // Below 0.16, so two units of this one are less than a half of the result's.
    let complement = m.exp2_fast(exponent);
    let one = m.float(1.0);
    let large = m.sub(one, complement);
    let large = m.copysign(large, x);
    let z = m.mul(x, x);
    let p = polynomial(m, z, &ERF);
    let near = m.fma(x, p, x);
    let small = m.lt(size, one);
    m.select(small, near, large)
}

/// 2^t and 2^-t with t = x · log2 e.
fn powers_fast<M: Machine>(m: &mut M, x: M::F) -> (M::F, M::F) {
    let (factor, back) = (m.float(LOG2_E), m.float(-LOG2_E));
    let (up, down) = (m.mul(x, factor), m.mul(x, back));
    (m.exp2_fast(up), m.exp2_fast(down))
}

/// cosh x by the machine's own powers.
pub(in super::super) fn cosh_fast<M: Machine>(m: &mut M, x: M::F) -> M::F {
    let (up, down) = powers_fast(m, x);
    let (sum, half) = (m.add(up, down), m.float(0.5));
    m.mul(sum, half)
}

/// sinh x by the machine's own powers.
pub(in super::super) fn sinh_fast<M: Machine>(m: &mut M, x: M::F) -> M::F {
    let (up, down) = powers_fast(m, x);
    let (difference, half) = (m.sub(up, down), m.float(0.5));
    m.mul(difference, half)
}
