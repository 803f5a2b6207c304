//! Angles: `sin`, `cos`, `tan`, `atan2`.
//!
//! Angles are reduced as in f32: x is an integer of 53 bits times a power of two, and of its product with 2/π the integer modulo 4 and 126 bits behind
//! it are computed. The nearest that an f64 comes to a multiple of π/2 is about 2^-61 quarter turns, which leaves 65 bits.

use super::super::SIGN;
use super::super::trig::{is_odd, sign_of};
use super::{Doubles, flip, polynomial, product, sum, upper};

/// 2/π · 2^-55 as a binary fraction, in words.
const TWO_OVER_PI: [u64; 20] = [
    0x0000_0000_0000_0145,
    0xf306_dc9c_882a_53f8,
    0x4eaf_a3ea_69bb_81b6,
    0xc52b_3278_8720_83fc,
    0xa2c7_57bd_778a_c36e,
    0x48dc_7484_9ba5_c00c,
    0x925d_d413_a324_39fc,
    0x3bd6_3962_534e_7dd1,
    0x046b_ea5d_7689_09d3,
    0x38e0_4d68_befc_8273,
    0x23ac_7306_a673_e939,
    0x08bf_177b_f250_763f,
    0xf12f_ffbc_0b30_1fde,
    0x5e23_16b4_14da_3eda,
    0x6cfd_9e4f_9613_6e9e,
    0x8c7e_cd3c_bfd4_5aea,
    0x4f75_8fd7_cbe2_f67a,
    0x0e73_ef14_a525_d4d7,
    0xf6bf_623f_1aba_10ac,
    0x0660_8df8_f6d7_57e1,
];
/// π/2 · 2^-64.
const QUARTER: [f64; 2] = [8.515_303_950_216_386e-20, 3.319_411_800_407_449e-36];

/// sin r = r + r³·(…) for |r| ≤ π/4, relative error 2^-66.
const SIN: [f64; 7] = [
    -0.166_666_666_666_666_66,
    0.008_333_333_333_333_331,
    -0.000_198_412_698_412_650_63,
    2.755_731_921_933_731_2e-6,
    -2.505_210_623_180_283_7e-8,
    1.605_853_151_679_775_8e-10,
    -7.586_691_094_197_958e-13,
];
/// cos r = 1 - r²/2 + r⁴·(…) for |r| ≤ π/4, relative error 2^-60.
const COS: [f64; 6] = [
    0.041_666_666_666_666_664,
    -0.001_388_888_888_888_739_8,
    2.480_158_729_876_456e-5,
    -2.755_731_727_114_514_4e-7,
    2.087_614_614_655_861e-9,
    -1.138_262_364_747_460_4e-11,
];
/// atan t = t + t³·(…) for 0 ≤ t ≤ 1, relative error 2^-58.
const ATAN: [f64; 21] = [
    -0.333_333_333_333_333_3,
    0.199_999_999_999_995_54,
    -0.142_857_142_856_484_04,
    0.111_111_111_072_347_99,
    -0.090_909_089_695_574_03,
    0.076_923_053_546_786_55,
    -0.066_666_364_357_776_92,
    0.058_820_749_563_712_94,
    -0.052_612_657_357_094_54,
    0.047_520_867_735_766_56,
    -0.043_081_196_553_304_71,
    0.038_726_402_140_426_32,
    -0.033_750_132_001_619_734,
    0.027_567_942_297_344_678,
    -0.020_238_706_986_393_514,
    0.012_756_172_907_694_298,
    -0.006_575_683_344_151_699,
    0.002_622_977_891_906_089,
    -0.000_751_847_252_697_382_2,
    0.000_136_872_485_314_812_2,
    -1.183_250_541_755_569_2e-5,
];

/// |x| as r + rest + q·π/2: r and its rest, and q modulo 4 in the low bits. For infinities and NaN, r is NaN.
fn reduce<M: Doubles>(m: &mut M, x: M::D) -> (M::D, M::D, M::I) {
    let size = m.dabs(x);
    let bits = m.dbits(size);
    let high = m.halves(bits).1;
    let (exponent, bias) = (m.shr(high, 20), m.int(1022));
    // |x| = integer · 2^(from - 53), from = 0 for 1/2 ≤ |x| < 1. Smaller ones make nonsense here, and are seen to below.
    let from = m.sub_int(exponent, bias);
    let (fraction, implicit) = (m.long((1 << 52) - 1), m.long(1 << 52));
    let integer = m.and_wide(bits, fraction);
    let integer = m.or_wide(integer, implicit);
    // The 256 bits of 2/π from word `from` / 64 on: by the bits of that number.
    let mut words = TWO_OVER_PI.map(|w| m.long(w));
    let none = m.int(0);
    for (step, left) in [(16, 4), (8, 11), (4, 7), (2, 5), (1, 4)] {
        let bit = m.int(64 * step as u32);
        let set = m.and_int(from, bit);
        let set = m.ne_int(set, none);
        for k in 0..left {
            words[k] = m.select_wide(set, words[k + step], words[k]);
        }
    }
    let (low_six, whole) = (m.int(63), m.int(64));
    let by = m.and_int(from, low_six);
    let back = m.sub_int(whole, by);
    let window: [M::W; 3] = std::array::from_fn(|k| {
        let (a, b) = (m.shl_wide(words[k], by), m.shr_wide(words[k + 1], back));
        m.or_wide(a, b)
    });
    // |x|·2/π / 4 modulo 1, in 192 bits of which the last 64 only carry.
    let carry = m.mul_wide_high(integer, window[2]);
    let low = m.mul_wide_low(integer, window[1]);
    let low = m.add_wide(low, carry);
    let over = m.lt_wide(low, carry);
    let (one, zero) = (m.long(1), m.long(0));
    let over = m.select_wide(over, one, zero);
    let (first, second) = (m.mul_wide_low(integer, window[0]), m.mul_wide_high(integer, window[1]));
    let high = m.add_wide(first, second);
    let high = m.add_wide(high, over);
    // Two bits are quarter turns; the others, as a signed number, what is left of one: as a magnitude, but for a unit of the last place.
    let (two, many) = (m.int(2), m.int(62));
    let (turns, top, rest) = (m.shr_wide(high, many), m.shl_wide(high, two), m.shl_wide(low, two));
    let upper_low = m.shr_wide(low, many);
    let top = m.or_wide(top, upper_low);
    let turns = m.halves(turns).0;
    let top_high = m.halves(top).1;
    let up = m.shr(top_high, 31);
    let turns = m.add_int(turns, up);
    let ones = m.sar(top_high, 31);
    let ones = m.wide(ones, ones);
    let (top, rest) = (m.xor_wide(top, ones), m.xor_wide(rest, ones));
    // Times π/2 · 2^-64, the 52 upper bits exactly, the others rounded; π/2 in two parts.
    let (eleven, places, kept, lower) = (m.int(11), m.int(53), m.long(!0x7ff), m.long(0x7ff));
    let (coarse, fine) = (m.and_wide(top, kept), m.and_wide(top, lower));
    let (fine, rest) = (m.shl_wide(fine, places), m.shr_wide(rest, eleven));
    let fine = m.or_wide(fine, rest);
    let (coarse, fine) = (m.dof_wide(coarse), m.dof_wide(fine));
    let unit = m.dfloat(1.0 / (1u64 << 53) as f64);
    let fine = m.dmul(fine, unit);
    let [quarter, quarter_rest] = QUARTER.map(|c| m.dfloat(c));
    let (r, lost) = product(m, coarse, quarter);
    let lost = m.dfma(coarse, quarter_rest, lost);
    let lost = m.dfma(fine, quarter, lost);
    let (r, lost) = sum(m, r, lost);
    let minus = m.int(SIGN);
    let sign = m.and_int(top_high, minus);
    let (r, lost) = (flip(m, r, sign), flip(m, lost, sign));
    let (limit, nothing) = (m.dfloat(std::f64::consts::FRAC_PI_4), m.dfloat(0.0));
    let small = m.dlt(size, limit);
    let (r, lost) = (m.dselect(small, size, r), m.dselect(small, nothing, lost));
    let turns = m.select_int(small, none, turns);
    // Adds 0, or NaN where x is infinite.
    (m.dfma(x, nothing, r), lost, turns)
}

/// Sine and cosine of a reduced angle.
fn both_of<M: Doubles>(m: &mut M, r: M::D, rest: M::D) -> (M::D, M::D) {
    let z = m.dmul(r, r);
    let (p, cube) = (polynomial(m, z, &SIN), m.dmul(r, z));
    let p = m.dfma(cube, p, rest);
    let sine = m.dadd(r, p);
    let (p, square) = (polynomial(m, z, &COS), m.dmul(z, z));
    let slope = m.dmul(r, rest);
    let slope = m.dneg(slope);
    let p = m.dfma(square, p, slope);
    let (one, minus_half) = (m.dfloat(1.0), m.dfloat(-0.5));
    let fall = m.dmul(z, minus_half);
    let (near, lost) = sum(m, one, fall);
    let p = m.dadd(lost, p);
    (sine, m.dadd(near, p))
}

/// sin x, 2 ulp.
pub(in super::super::super) fn sin<M: Doubles>(m: &mut M, x: M::D) -> M::D {
    let (r, rest, turns) = reduce(m, x);
    let (sine, cosine) = both_of(m, r, rest);
    let odd = is_odd(m, turns);
    let value = m.dselect(odd, cosine, sine);
    let (sign, bits, mask) = (sign_of(m, turns), upper(m, x), m.int(SIGN));
    let own = m.and_int(bits, mask);
    let sign = m.xor_int(sign, own);
    flip(m, value, sign)
}

/// cos x, 2 ulp.
pub(in super::super::super) fn cos<M: Doubles>(m: &mut M, x: M::D) -> M::D {
    let (r, rest, turns) = reduce(m, x);
    let (sine, cosine) = both_of(m, r, rest);
    let odd = is_odd(m, turns);
    let value = m.dselect(odd, sine, cosine);
    // cos, -sin, -cos, sin.
    let one = m.int(1);
    let next = m.add_int(turns, one);
    let sign = sign_of(m, next);
    flip(m, value, sign)
}

/// tan x, 4 ulp.
pub(in super::super::super) fn tan<M: Doubles>(m: &mut M, x: M::D) -> M::D {
    let (r, rest, turns) = reduce(m, x);
    let (sine, cosine) = both_of(m, r, rest);
    let odd = is_odd(m, turns);
    let (over, under) = (m.dselect(odd, cosine, sine), m.dselect(odd, sine, cosine));
    let value = m.ddiv(over, under);
    // tan, -1/tan.
    let (last, bits, mask) = (m.shl(turns, 31), upper(m, x), m.int(SIGN));
    let own = m.and_int(bits, mask);
    let sign = m.xor_int(last, own);
    flip(m, value, sign)
}

/// The angle of the point (x, y), 2 ulp.
pub(in super::super::super) fn atan2<M: Doubles>(m: &mut M, y: M::D, x: M::D) -> M::D {
    let (width, height) = (m.dabs(x), m.dabs(y));
    let steep = m.dlt(width, height);
    let (short, long) = (m.dselect(steep, width, height), m.dselect(steep, height, width));
    let t = m.ddiv(short, long);
    // 0/0 stands for 0, ∞/∞ for 1.
    let (zero, one) = (m.dfloat(0.0), m.dfloat(1.0));
    let same = m.deq(short, long);
    let t = m.dselect(same, one, t);
    let nowhere = m.deq(long, zero);
    let t = m.dselect(nowhere, zero, t);
    let z = m.dmul(t, t);
    let (p, cube) = (polynomial(m, z, &ATAN), m.dmul(t, z));
    let angle = m.dfma(cube, p, t);
    // a, π/2 - a, π - a, π/2 + a, where π = 3.141… and a part of it that f64 does not hold.
    let (bits, none) = (upper(m, x), m.int(0));
    let left = m.lt_int(bits, none);
    let (quarter, half) = (m.dfloat(std::f64::consts::FRAC_PI_2), m.dfloat(std::f64::consts::PI));
    let base = m.dselect(left, half, zero);
    let base = m.dselect(steep, quarter, base);
    let turned = m.differ(steep, left);
    let mask = m.int(SIGN);
    let sign = m.select_int(turned, mask, none);
    let angle = flip(m, angle, sign);
    let lacking = m.dfloat(3.898_171_832_519_375_5e-17);
    let angle = m.dfma(base, lacking, angle);
    let angle = m.dadd(angle, base);
    let angle = m.dcopysign(angle, y);
    let (nan, sum) = (m.dnan(x, y), m.dadd(x, y));
    m.dselect(nan, sum, angle)
}
