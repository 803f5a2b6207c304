//! Elementary functions in 120-bit fixed point.
//!
//! In: an exact argument. Out: a result good to at least 2^-60 of its value, with the sticky bit
//! set (no result but the special ones is a dyadic number), ready to be rounded once.
//! Method: argument reduction with stored constants, then the power series.
//! Accuracy: results of 24-bit arguments lie at least about 2^-56 of their value away from a
//! rounding boundary, so rounding gives the correctly rounded result.

use super::exact::Exact;

/// Fraction bits of the fixed-point numbers.
const Q: u32 = 120;
const ONE: u128 = 1 << Q;
/// ln 2.
const LN2: u128 = 0x00B1_7217_F7D1_CF79_ABC9_E3B3_9803_F2F6;
/// 1 / ln 2.
const LOG2E: u128 = 0x0171_5476_52B8_2FE1_777D_0FFD_A0D2_3A7D;
/// pi / 2.
const HALF_PI: u128 = 0x0192_1FB5_4442_D184_6989_8CC5_1701_B839;
/// 2 / pi as 256 fraction bits, highest first.
const TWO_BY_PI: [u64; 4] =
    [0xA2F9_836E_4E44_1529, 0xFC27_57D1_F534_DDC0, 0xDB62_9599_3C43_9041, 0xFE51_63AB_DEBB_C561];

/// Product of two fixed-point numbers, cut.
fn mul(a: u128, b: u128) -> u128 {
    let (ah, al, bh, bl) = (a >> 64, a & u128::from(u64::MAX), b >> 64, b & u128::from(u64::MAX));
    let low = al * bl;
    let (mid1, mid2) = (ah * bl, al * bh);
    let carry = (low >> 64) + (mid1 & u128::from(u64::MAX)) + (mid2 & u128::from(u64::MAX));
    let high = ah * bh + (mid1 >> 64) + (mid2 >> 64) + (carry >> 64);
    // The product has 240 fraction bits: bits 120.. of `high:carry:low`.
    let mid_low = (carry & u128::from(u64::MAX)) << 64 | low & u128::from(u64::MAX);
    high << (128 - Q) | mid_low >> Q
}

/// `x` as a fixed-point magnitude (integer part below 256), cut.
fn fixed(x: Exact) -> u128 {
    let shift = x.exp + Q as i32;
    if shift >= 0 {
        x.mant << shift
    } else if shift > -128 {
        x.mant >> -shift
    } else {
        0
    }
}

/// A positive fixed-point number as an inexact number times `2^exp`, with 58 bits at least.
fn inexact(neg: bool, x: u128, exp: i32) -> Exact {
    Exact { neg, mant: x, exp: exp - Q as i32, sticky: true }
}

/// `e^f` for `f` in `[0, 1)`.
fn exp_fraction(f: u128) -> u128 {
    let (mut term, mut sum, mut k) = (ONE, ONE, 1);
    while term != 0 {
        term = mul(term, f) / k;
        sum += term;
        k += 1;
    }
    sum
}

/// A number that differs from `x` by less than any rounding sees: `x` a little smaller (`below`) or
/// larger in magnitude.
fn beside(x: Exact, below: bool) -> Exact {
    let up = x.mant.leading_zeros().saturating_sub(8);
    let mant = (x.mant << up) - u128::from(below);
    Exact { neg: x.neg, mant, exp: x.exp - up as i32, sticky: true }
}

/// `2^x` for finite `x`. Beyond the range of every format the result is `2^±20000`.
pub(super) fn exp2(x: Exact) -> Exact {
    if x.is_zero() {
        return Exact::new(false, 1, 0);
    }
    if x.top() >= 14 {
        return Exact::new(false, 1, if x.neg { -20_000 } else { 20_000 });
    }
    if x.top() < -60 {
        return beside(Exact::new(false, 1, 0), x.neg);
    }
    // Integer part by shifting: the fraction stays exact for all but tiny arguments.
    let (whole, fraction) = if x.exp >= 0 {
        ((x.mant << x.exp) as i32, 0)
    } else {
        let down = x.exp.unsigned_abs();
        let whole = if down >= 128 { 0 } else { (x.mant >> down) as i32 };
        let rest = if down >= 128 { x.mant } else { x.mant & ((1 << down) - 1) };
        (whole, fixed(Exact::new(false, rest, x.exp)))
    };
    let (n, f) = match (x.neg, fraction) {
        (false, f) => (whole, f),
        (true, 0) => (-whole, 0),
        (true, f) => (-whole - 1, ONE - f),
    };
    if f == 0 {
        return Exact::new(false, 1, n);
    }
    inexact(false, exp_fraction(mul(f, LN2)), n)
}

/// `log2 x` for finite `x > 0`.
pub(super) fn log2(x: Exact) -> Exact {
    // x = 2^e * m with m in [1/sqrt 2, sqrt 2), m from the leading bits (no format has more than 53).
    let bits = 128 - x.mant.leading_zeros();
    let mut e = x.top();
    let one = 1u128 << (bits - 1);
    if x.mant == one {
        return Exact::from_int(e.into());
    }
    // m = mant / one; halve it when above sqrt 2 (181/128 is close enough).
    let one = if x.mant * 128 > one * 181 {
        e += 1;
        one * 2
    } else {
        one
    };
    let (neg_m, diff) = if x.mant >= one { (false, x.mant - one) } else { (true, one - x.mant) };
    // z = (m - 1) / (m + 1), below 0.18: long division to 120 fraction bits.
    let den = x.mant + one;
    let mut z = 0u128;
    let mut rest = diff;
    for _ in 0..Q / 20 {
        rest <<= 20;
        z = (z << 20) | (rest / den);
        rest %= den;
    }
    // ln m = 2 (z + z^3/3 + z^5/5 + ...).
    let z2 = mul(z, z);
    let (mut term, mut sum, mut k) = (z, z, 3);
    while term != 0 {
        term = mul(term, z2);
        sum += term / k;
        k += 2;
    }
    let log_m = mul(2 * sum, LOG2E);
    let magnitude = u128::from(e.unsigned_abs()) << Q;
    match (e < 0, neg_m) {
        _ if e == 0 => precise_log(neg_m, log_m, z),
        (neg, other) if neg == other => wide(neg, e.unsigned_abs(), log_m, false),
        (neg, _) if e.unsigned_abs() < 256 => inexact(neg, magnitude - log_m, 0),
        (neg, _) => wide(neg, e.unsigned_abs(), log_m, true),
    }
}

/// `log2 m` near 1 keeps enough bits: `z` has at least 2^-53, so 67 bits remain.
fn precise_log(neg: bool, log_m: u128, _z: u128) -> Exact {
    inexact(neg, log_m, 0)
}

/// `e ± f` with an integer part that may need more than 8 bits: drops 8 fraction bits.
fn wide(neg: bool, e: u32, f: u128, minus: bool) -> Exact {
    let whole = u128::from(e) << (Q - 8);
    let mant = if minus { whole - (f >> 8) - 1 } else { whole + (f >> 8) };
    Exact { neg, mant, exp: 8 - Q as i32, sticky: true }
}

/// `tanh x` for finite `x`.
pub(super) fn tanh(x: Exact) -> Exact {
    if x.is_zero() {
        return x;
    }
    if x.top() < -30 {
        return beside(x, true);
    }
    let one = Exact::new(x.neg, 1, 0);
    if x.top() >= 6 {
        return beside(one, true);
    }
    // t = e^(-2|x|) = 2^(-2|x| log2 e); tanh = (1 - t) / (1 + t).
    let y = mul(fixed(Exact::new(false, x.mant, x.exp)), LOG2E);
    let scaled = Exact::new(true, y, 1 - Q as i32);
    let power = exp2(scaled);
    let t = {
        let down = -(power.exp + Q as i32);
        if down >= 128 {
            0
        } else if down >= 0 {
            power.mant >> down
        } else {
            power.mant << -down
        }
    };
    let num = Exact::new(x.neg, ONE - t, 0);
    // The divisor is cut to 64 bits.
    let den = Exact::new(false, (ONE + t) >> 58, 58);
    let quotient = num.over(den);
    Exact { sticky: true, ..quotient }
}

/// Sine (`cosine` false) or cosine of finite `x`.
pub(super) fn sin_cos(x: Exact, cosine: bool) -> Exact {
    if x.is_zero() {
        return if cosine { Exact::new(false, 1, 0) } else { x };
    }
    if x.top() < -40 {
        return if cosine { beside(Exact::new(false, 1, 0), true) } else { beside(x, true) };
    }
    // |x| * 2/pi modulo 4, as 2 integer and 126 fraction bits: the bits of 2/pi that matter times
    // the significand, wrapping. Arguments of 24 bits and exponents up to 104 are covered.
    let first = x.exp + 126;
    let turns = window(first).wrapping_mul(x.mant);
    let quadrant = (turns >> 126) as u32 + u32::from(cosine);
    let part = (turns << 2) >> (128 - Q);
    // In odd quadrants the cosine of the part is wanted.
    let angle = mul(part, HALF_PI);
    let value = if quadrant & 1 == 1 { cos_series(angle) } else { sin_series(angle) };
    let neg = (quadrant & 2 != 0) != (x.neg && !cosine);
    inexact(neg, value, 0)
}

/// `floor(2/pi * 2^shift)` modulo 2^128.
fn window(shift: i32) -> u128 {
    let bit = |i: i32| -> u128 {
        // Bit `i` counts from the highest fraction bit of 2/pi, which has weight 1/2.
        if (0..256).contains(&i) { u128::from(TWO_BY_PI[(i / 64) as usize] >> (63 - i % 64) & 1) } else { 0 }
    };
    (0..128).fold(0, |w, k| w << 1 | bit(shift - 128 + k))
}

fn sin_series(a: u128) -> u128 {
    series(a, a, 1)
}

fn cos_series(a: u128) -> u128 {
    series(ONE, a, 0)
}

/// Alternating series `first - first a^2/((n+1)(n+2)) + ...` for `a` up to pi/2.
fn series(first: u128, a: u128, n: u128) -> u128 {
    let a2 = mul(a, a);
    let (mut term, mut plus, mut minus, mut k, mut odd) = (first, first, 0u128, n, true);
    while term != 0 {
        term = mul(term, a2) / ((k + 1) * (k + 2));
        k += 2;
        if odd {
            minus += term;
        } else {
            plus += term;
        }
        odd = !odd;
    }
    plus.saturating_sub(minus)
}
