//! Angles: `sin`, `cos`, `tan`, `atan2`.
//!
//! An angle is reduced to r between -π/4 and π/4 and the number of quarter turns, exactly enough for every f32: x is an integer of 24 bits
//! times a power of two, whose product with 2/π is needed modulo 4 only, so 96 bits of 2/π from where that power puts them suffice
//! (Payne and Hanek, 1983). The nearest that an f32 comes to a multiple of π/2 is about 2^-30 quarter turns; the error of the product is
//! below 2^-60.

use super::{Machine, SIGN, flip, polynomial};

/// 2/π · 2^-26 as a binary fraction, in words.
const TWO_OVER_PI: [u32; 8] =
    [0x0000_0028, 0xbe60_db93, 0x9105_4a7f, 0x09d5_f47d, 0x4d37_7036, 0xd8a5_664f, 0x10e4_107f, 0x9458_eaf7];

/// sin r = r + r³·(…) for |r| ≤ π/4, relative error 2^-28.
const SIN: [f32; 3] = [-0.166_666_55, 0.008_332_16, -0.000_195_152_2];
/// cos r = 1 - r²/2 + r⁴·(…) for |r| ≤ π/4, relative error 2^-33.
const COS: [f32; 4] = [-0.5, 0.041_666_646, -0.001_388_731_5, 2.443_308e-5];
/// atan t = t + t³·(…) for 0 ≤ t ≤ 1, relative error 2^-25.8.
const ATAN: [f32; 8] = [
    -0.333_331_53,
    0.199_937_73,
    -0.142_110_6,
    0.106_660_254,
    -0.075_522_65,
    0.043_212_537,
    -0.016_368_384,
    0.002_920_815_5,
];

/// |x| as r + q·π/2: r, and q modulo 4 in the low bits. For infinities and NaN, r is NaN.
fn reduce<M: Machine>(m: &mut M, x: M::F) -> (M::F, M::I) {
    let bits = m.bits(x);
    let (all, fraction, implicit) = (m.int(!SIGN), m.int(0x007f_ffff), m.int(0x0080_0000));
    let magnitude = m.and_int(bits, all);
    let exponent = m.shr(magnitude, 23);
    // |x| = integer · 2^(from - 24), from = 0 for 1/2 ≤ |x| < 1. Smaller ones make nonsense here, and are seen to below.
    let bias = m.int(126);
    let from = m.sub_int(exponent, bias);
    let integer = m.and_int(magnitude, fraction);
    let integer = m.or_int(integer, implicit);
    // The 128 bits of 2/π from word `from` / 32 on: by the bits of that number.
    let mut words = TWO_OVER_PI.map(|w| m.int(w));
    let limit = m.int(127);
    let four = m.lt_int(limit, from);
    for k in 0..4 {
        words[k] = m.select_int(four, words[k + 4], words[k]);
    }
    for (bit, step, left) in [(64, 2, 5), (32, 1, 4)] {
        let (bit, zero) = (m.int(bit), m.int(0));
        let set = m.and_int(from, bit);
        let set = m.ne_int(set, zero);
        for k in 0..left {
            words[k] = m.select_int(set, words[k + step], words[k]);
        }
    }
    let window: [M::I; 3] = std::array::from_fn(|k| m.funnel(words[k], words[k + 1], from));
    // |x|·2/π / 4 modulo 1, in 96 bits of which the last 32 only carry.
    let zero = m.int(0);
    let carry = m.mul_high(integer, window[2]);
    let carry = m.wide(zero, carry);
    let product = m.mad_wide(integer, window[1], carry);
    let (low, high) = m.halves(product);
    let high = m.mad_int(integer, window[0], high);
    // Two bits are quarter turns; the others, as a signed number, what is left of one.
    let two = m.int(2);
    let (top, rest) = (m.funnel(high, low, two), m.shl(low, 2));
    let (turns, up) = (m.shr(high, 30), m.shr(top, 31));
    let turns = m.add_int(turns, up);
    // Times π/2 · 2^-64, the 24 upper bits exactly, the others rounded; π/2 in two parts.
    let (upper, lower) = (m.int(0xffff_ff00), m.int(0xff));
    let (upper, lower) = (m.and_int(top, upper), m.and_int(top, lower));
    let lower = m.wide(lower, rest);
    let (upper, lower) = (m.of_int(upper), m.of_wide(lower));
    let [coarse, fine, coarse_low] = [3.657_295_3e-10, -1.017_735_1e-17, 8.515_304e-20].map(|c| m.float(c));
    let part = m.mul(upper, fine);
    let part = m.fma(lower, coarse_low, part);
    let r = m.fma(upper, coarse, part);
    let (size, limit) = (m.of_bits(magnitude), m.float(std::f32::consts::FRAC_PI_4));
    let small = m.lt(size, limit);
    let (r, turns) = (m.select(small, size, r), m.select_int(small, zero, turns));
    // Adds 0, or NaN where x is infinite.
    let nothing = m.float(0.0);
    (m.fma(x, nothing, r), turns)
}

/// Sine and cosine of a reduced angle.
fn both_of<M: Machine>(m: &mut M, r: M::F) -> (M::F, M::F) {
    let z = m.mul(r, r);
    let p = polynomial(m, z, &SIN);
    let cube = m.mul(r, z);
    let sine = m.fma(cube, p, r);
    let p = polynomial(m, z, &COS);
    let one = m.float(1.0);
    (sine, m.fma(p, z, one))
}

/// Whether the number of quarter turns is odd.
pub(super) fn is_odd<M: Machine>(m: &mut M, turns: M::I) -> M::P {
    let (one, zero) = (m.int(1), m.int(0));
    let bit = m.and_int(turns, one);
    m.ne_int(bit, zero)
}

/// Bit 1 of the number, in the place of a sign.
pub(super) fn sign_of<M: Machine>(m: &mut M, number: M::I) -> M::I {
    let two = m.int(2);
    let bit = m.and_int(number, two);
    m.shl(bit, 30)
}

/// sin x, 2 ulp.
pub(in super::super) fn sin<M: Machine>(m: &mut M, x: M::F) -> M::F {
    let (r, turns) = reduce(m, x);
    let (sine, cosine) = both_of(m, r);
    let odd = is_odd(m, turns);
    let value = m.select(odd, cosine, sine);
    let (sign, bits, mask) = (sign_of(m, turns), m.bits(x), m.int(SIGN));
    let own = m.and_int(bits, mask);
    let sign = m.xor_int(sign, own);
    flip(m, value, sign)
}

/// cos x, 2 ulp.
pub(in super::super) fn cos<M: Machine>(m: &mut M, x: M::F) -> M::F {
    let (r, turns) = reduce(m, x);
    let (sine, cosine) = both_of(m, r);
    let odd = is_odd(m, turns);
    let value = m.select(odd, sine, cosine);
    // cos, -sin, -cos, sin.
    let one = m.int(1);
    let next = m.add_int(turns, one);
    let sign = sign_of(m, next);
    flip(m, value, sign)
}

/// tan x, 4 ulp.
pub(in super::super) fn tan<M: Machine>(m: &mut M, x: M::F) -> M::F {
    let (r, turns) = reduce(m, x);
    let (sine, cosine) = both_of(m, r);
    let odd = is_odd(m, turns);
    let (over, under) = (m.select(odd, cosine, sine), m.select(odd, sine, cosine));
    let value = m.div(over, under);
    // tan, -1/tan.
    let (last, bits, mask) = (m.shl(turns, 31), m.bits(x), m.int(SIGN));
    let own = m.and_int(bits, mask);
    let sign = m.xor_int(last, own);
    flip(m, value, sign)
}

/// The quotient of the machine's own sine and cosine.
pub(in super::super) fn tan_fast<M: Machine>(m: &mut M, x: M::F) -> M::F {
    let (sine, cosine) = (m.sin_fast(x), m.cos_fast(x));
    m.div_fast(sine, cosine)
}

/// The angle of the point (x, y), 2 ulp.
pub(in super::super) fn atan2<M: Machine>(m: &mut M, y: M::F, x: M::F) -> M::F {
    let (width, height) = (m.abs(x), m.abs(y));
    let (short, long) = (m.min(width, height), m.max(width, height));
    let t = m.div(short, long);
    // 0/0 stands for 0, ∞/∞ for 1.
    let (zero, one) = (m.float(0.0), m.float(1.0));
    let same = m.eq(short, long);
    let t = m.select(same, one, t);
    let nowhere = m.eq(long, zero);
    let t = m.select(nowhere, zero, t);
    let z = m.mul(t, t);
    let p = polynomial(m, z, &ATAN);
    let cube = m.mul(t, z);
    let angle = m.fma(cube, p, t);
    // a, π/2 - a, π - a, π/2 + a, where π = 3.141… and a part of it that f32 does not hold.
    let steep = m.gt(height, width);
    let (bits, none) = (m.bits(x), m.int(0));
    let left = m.lt_int(bits, none);
    let (quarter, half) = (m.float(std::f32::consts::FRAC_PI_2), m.float(std::f32::consts::PI));
    let base = m.select(left, half, zero);
    let base = m.select(steep, quarter, base);
    let turned = m.differ(steep, left);
    let mask = m.int(SIGN);
    let sign = m.select_int(turned, mask, none);
    let angle = flip(m, angle, sign);
    let lacking = m.float(-2.782_753_6e-8);
    let angle = m.fma(base, lacking, angle);
    let angle = m.add(angle, base);
    let angle = m.copysign(angle, y);
    let (nan, sum) = (m.either_nan(x, y), m.add(x, y));
    m.select(nan, sum, angle)
}
