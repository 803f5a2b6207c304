//! The sequences on the host, against the functions in f64.
//!
//! What PTX leaves to hardware (`reciprocal`, `exp2_fast`) is off here by its documented error, up or down as the operand's last bit says.

use super::*;

/// Host arithmetic.
pub(super) struct Host;

fn ulps(x: f32, steps: i32) -> f32 {
    if x.is_finite() && x.abs() > 1e-30 { f32::from_bits((x.to_bits() as i32 + steps) as u32) } else { x }
}

fn off(x: f32, of: f32, steps: i32) -> f32 {
    ulps(x, if of.to_bits() & 1 == 0 { steps } else { -steps })
}

impl Machine for Host {
    type F = f32;
    type I = u32;
    type W = u64;
    type P = bool;

    fn float(&mut self, x: f32) -> f32 {
        x
    }
    fn int(&mut self, x: u32) -> u32 {
        x
    }
    fn add(&mut self, a: f32, b: f32) -> f32 {
        a + b
    }
    fn sub(&mut self, a: f32, b: f32) -> f32 {
        a - b
    }
    fn mul(&mut self, a: f32, b: f32) -> f32 {
        a * b
    }
    fn fma(&mut self, a: f32, b: f32, c: f32) -> f32 {
        a.mul_add(b, c)
    }
    fn div(&mut self, a: f32, b: f32) -> f32 {
        a / b
    }
    fn div_fast(&mut self, a: f32, b: f32) -> f32 {
        a / b
    }
    fn reciprocal(&mut self, a: f32) -> f32 {
        let a = if a.is_subnormal() { 0f32.copysign(a) } else { a };
        let r = off(1.0 / a, a, 1);
        if r.is_subnormal() { 0f32.copysign(r) } else { r }
    }
    fn exp2_fast(&mut self, a: f32) -> f32 {
        let r = off(f64::from(a).exp2() as f32, a, 2);
        if r.is_subnormal() { 0.0 } else { r }
    }
    fn log2_fast(&mut self, a: f32) -> f32 {
        f64::from(a).log2() as f32
    }
    fn sin_fast(&mut self, a: f32) -> f32 {
        f64::from(a).sin() as f32
    }
    fn cos_fast(&mut self, a: f32) -> f32 {
        f64::from(a).cos() as f32
    }
    fn neg(&mut self, a: f32) -> f32 {
        -a
    }
    fn abs(&mut self, a: f32) -> f32 {
        a.abs()
    }
    fn min(&mut self, a: f32, b: f32) -> f32 {
        a.min(b)
    }
    fn max(&mut self, a: f32, b: f32) -> f32 {
        a.max(b)
    }
    fn nearest(&mut self, a: f32) -> f32 {
        a.round_ties_even()
    }
    fn floor(&mut self, a: f32) -> f32 {
        a.floor()
    }
    fn copysign(&mut self, magnitude: f32, sign: f32) -> f32 {
        magnitude.copysign(sign)
    }
    fn lt(&mut self, a: f32, b: f32) -> bool {
        a < b
    }
    fn gt(&mut self, a: f32, b: f32) -> bool {
        a > b
    }
    fn eq(&mut self, a: f32, b: f32) -> bool {
        a == b
    }
    fn not_lt(&mut self, a: f32, b: f32) -> bool {
        !matches!(a.partial_cmp(&b), Some(std::cmp::Ordering::Less))
    }
    fn not_gt(&mut self, a: f32, b: f32) -> bool {
        !matches!(a.partial_cmp(&b), Some(std::cmp::Ordering::Greater))
    }
    fn ne(&mut self, a: f32, b: f32) -> bool {
        a != b
    }
    fn either_nan(&mut self, a: f32, b: f32) -> bool {
        a.is_nan() || b.is_nan()
    }
    fn both(&mut self, a: bool, b: bool) -> bool {
        a && b
    }
    fn either(&mut self, a: bool, b: bool) -> bool {
        a || b
    }
    fn differ(&mut self, a: bool, b: bool) -> bool {
        a != b
    }
    fn select(&mut self, p: bool, a: f32, b: f32) -> f32 {
        if p { a } else { b }
    }
    fn select_int(&mut self, p: bool, a: u32, b: u32) -> u32 {
        if p { a } else { b }
    }
    fn bits(&mut self, a: f32) -> u32 {
        a.to_bits()
    }
    fn of_bits(&mut self, a: u32) -> f32 {
        f32::from_bits(a)
    }
    fn to_int(&mut self, a: f32) -> u32 {
        a.round_ties_even() as i32 as u32
    }
    fn of_int(&mut self, a: u32) -> f32 {
        a as i32 as f32
    }
    fn add_int(&mut self, a: u32, b: u32) -> u32 {
        a.wrapping_add(b)
    }
    fn sub_int(&mut self, a: u32, b: u32) -> u32 {
        a.wrapping_sub(b)
    }
    fn mad_int(&mut self, a: u32, b: u32, c: u32) -> u32 {
        a.wrapping_mul(b).wrapping_add(c)
    }
    fn mul_high(&mut self, a: u32, b: u32) -> u32 {
        ((u64::from(a) * u64::from(b)) >> 32) as u32
    }
    fn and_int(&mut self, a: u32, b: u32) -> u32 {
        a & b
    }
    fn or_int(&mut self, a: u32, b: u32) -> u32 {
        a | b
    }
    fn xor_int(&mut self, a: u32, b: u32) -> u32 {
        a ^ b
    }
    fn shl(&mut self, a: u32, n: u32) -> u32 {
        a << n
    }
    fn shr(&mut self, a: u32, n: u32) -> u32 {
        a >> n
    }
    fn sar(&mut self, a: u32, n: u32) -> u32 {
        (a as i32 >> n) as u32
    }
    fn funnel(&mut self, high: u32, low: u32, n: u32) -> u32 {
        ((u64::from(high) << 32 | u64::from(low)) << (n & 31) >> 32) as u32
    }
    fn min_int(&mut self, a: u32, b: u32) -> u32 {
        (a as i32).min(b as i32) as u32
    }
    fn max_int(&mut self, a: u32, b: u32) -> u32 {
        (a as i32).max(b as i32) as u32
    }
    fn lt_int(&mut self, a: u32, b: u32) -> bool {
        (a as i32) < b as i32
    }
    fn ne_int(&mut self, a: u32, b: u32) -> bool {
        a != b
    }
    fn mad_wide(&mut self, a: u32, b: u32, c: u64) -> u64 {
        (u64::from(a) * u64::from(b)).wrapping_add(c)
    }
    fn wide(&mut self, high: u32, low: u32) -> u64 {
        u64::from(high) << 32 | u64::from(low)
    }
    fn halves(&mut self, a: u64) -> (u32, u32) {
        (a as u32, (a >> 32) as u32)
    }
    fn shl_wide(&mut self, a: u64, n: u32) -> u64 {
        a << n
    }
    fn rem_wide(&mut self, a: u64, b: u64) -> u64 {
        a % b
    }
    fn of_wide(&mut self, a: u64) -> f32 {
        a as i64 as f32
    }
}

/// Distance from the exact result, in units of its last place in f32.
fn error(got: f32, want: f64) -> f64 {
    let rounded = want as f32;
    if rounded.is_nan() || got.is_nan() {
        return if rounded.is_nan() && got.is_nan() { 0.0 } else { f64::INFINITY };
    }
    if got == rounded {
        let signs = got != 0.0 || got.is_sign_negative() == want.is_sign_negative();
        return if signs { 0.0 } else { f64::INFINITY };
    }
    if rounded.is_infinite() || got.is_infinite() {
        // The neighbours of an overflow.
        return if got.abs() >= f32::MAX && want.abs() >= f64::from(f32::MAX) * (1.0 - 4e-7) {
            1.0
        } else {
            f64::INFINITY
        };
    }
    let exponent = (want.abs().max(f64::from(f32::MIN_POSITIVE)).to_bits() >> 52) as i32 - 1023;
    (f64::from(got) - want).abs() / 2f64.powi(exponent - 23)
}

const SPECIAL: [f32; 25] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -0.5,
    2.0,
    -2.0,
    3.0,
    -3.0,
    1.5,
    -2.5,
    1e-45,
    -1e-45,
    1e-39,
    1.1754944e-38,
    3.4e38,
    -3.4e38,
    f32::MAX,
    f32::MIN,
    16_777_216.0,
    -16_777_215.0,
    f32::INFINITY,
    f32::NEG_INFINITY,
    f32::NAN,
];

/// Floats over all of the range, by a stride.
fn floats(stride: usize) -> impl Iterator<Item = f32> {
    SPECIAL.into_iter().chain((0..=u32::MAX).step_by(stride).map(f32::from_bits))
}

/// Pseudorandom words.
pub(super) fn words() -> impl FnMut() -> u32 {
    let mut x = 0x1234_5678_9abc_def0u64;
    move || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        (x >> 16) as u32
    }
}

fn stride() -> usize {
    // All operands: TILEAS_MATH_STRIDE=1, some minutes a function.
    std::env::var("TILEAS_MATH_STRIDE").ok().and_then(|s| s.parse().ok()).unwrap_or(20_011)
}

fn unary(name: &str, most: f64, f: impl Fn(&mut Host, f32) -> f32, exact: impl Fn(f64) -> f64) {
    let mut worst = (0.0, 0.0);
    for x in floats(stride()) {
        let e = error(f(&mut Host, x), exact(f64::from(x)));
        if e > worst.0 {
            worst = (e, x);
        }
    }
    println!("{name}: {:.3} ulp at {:e}", worst.0, worst.1);
    assert!(worst.0 <= most, "{name}: {} ulp at {:e}", worst.0, worst.1);
}

fn binary(
    name: &str,
    most: f64,
    f: impl Fn(&mut Host, f32, f32) -> f32,
    exact: impl Fn(f64, f64) -> f64,
    pairs: impl Iterator<Item = (f32, f32)>,
) {
    let mut worst = (0.0, 0.0, 0.0);
    let all = SPECIAL.into_iter().flat_map(|x| SPECIAL.into_iter().map(move |y| (x, y)));
    for (x, y) in all.chain(pairs) {
        let e = error(f(&mut Host, x, y), exact(f64::from(x), f64::from(y)));
        if e > worst.0 {
            worst = (e, x, y);
        }
    }
    println!("{name}: {:.3} ulp at {:e}, {:e}", worst.0, worst.1, worst.2);
    assert!(worst.0 <= most, "{name}: {} ulp at {:e}, {:e}", worst.0, worst.1, worst.2);
}

/// erf by a series of positive terms: 2/√π · e^(-x²) · Σ 2^n x^(2n+1) / (2n+1)!!.
fn erf_exact(x: f64) -> f64 {
    if x.is_nan() || x.abs() > 6.0 {
        return if x.is_nan() { x } else { 1f64.copysign(x) };
    }
    let (mut term, mut sum, mut n) = (x, x, 0.0);
    while term.abs() > 1e-18 * sum.abs() {
        n += 1.0;
        term *= 2.0 * x * x / (2.0 * n + 1.0);
        sum += term;
    }
    sum * (-x * x).exp() * std::f64::consts::FRAC_2_SQRT_PI
}

#[test]
fn functions_of_one_operand_keep_their_errors() {
    unary("sin", 2.0, sin, f64::sin);
    unary("cos", 2.0, cos, f64::cos);
    unary("tan", 4.0, tan, f64::tan);
    unary("sinh", 2.0, sinh, f64::sinh);
    unary("cosh", 2.0, cosh, f64::cosh);
    unary("tanh", 2.0, tanh, f64::tanh);
    unary("erf", 2.0, erf, erf_exact);
}

/// Operands near multiples of π/2 of all sizes: where the result is smallest.
#[test]
fn angles_near_multiples_of_a_quarter_turn() {
    let (mut next, mut worst) = (words(), 0f64);
    for _ in 0..300_000 {
        let k = f64::from(next()) * 2f64.powi((next() % 96) as i32 - 31);
        let x = (k.floor() * std::f64::consts::FRAC_PI_2) as f32;
        worst = worst.max(error(sin(&mut Host, x), f64::from(x).sin()));
        worst = worst.max(error(cos(&mut Host, x), f64::from(x).cos()));
        worst = worst.max(error(tan(&mut Host, x), f64::from(x).tan()) / 2.0);
    }
    println!("near multiples: {worst:.3}");
    assert!(worst <= 2.0, "{worst}");
}

fn pairs(n: usize, near_one: bool) -> impl Iterator<Item = (f32, f32)> {
    let mut next = words();
    (0..n).map(move |_| {
        let (a, b) = (next(), next());
        if near_one {
            // Bases and exponents whose powers are finite.
            let x = f32::from_bits(a);
            let most = 152.0 / f64::from(x).abs().log2().abs();
            let y = (f64::from(b) / f64::from(u32::MAX) * 2.0 - 1.0) * most;
            (x, if b & 3 == 0 { y.round() as f32 } else { y as f32 })
        } else {
            (f32::from_bits(a), f32::from_bits(b))
        }
    })
}

#[test]
fn powers_keep_their_error() {
    let exact = |x: f64, y: f64| x.powf(y);
    let n = 40_000_000 / stride().max(20);
    binary("pow", 2.0, pow, exact, pairs(n, true).map(|(x, y)| (x.abs(), y)));
    binary("pow, signs", 2.0, pow, exact, pairs(n, true));
    binary("pow, any", 2.0, pow, exact, pairs(n, false));
    let near = |(x, y): (f32, f32)| {
        let x = 1.0 + (x.to_bits() as f32 / u32::MAX as f32 - 0.5) * 0.8;
        (x, y.to_bits() as f32 / u32::MAX as f32 * 150.0 / x.log2())
    };
    binary("pow, near 1", 2.0, pow, exact, pairs(n, false).map(near));
}

#[test]
fn integer_powers_keep_their_error() {
    let power = |m: &mut Host, x: f32, y: f32| {
        let n = y as i32;
        let rounded = n as f32;
        let rest = n.wrapping_sub(rounded as i32) as f32;
        powi(m, x, &Exponent { rounded, rest: Some(rest) }, n as u32)
    };
    let exact = |x: f64, y: f64| x.powf(f64::from(y as i32));
    let n = 40_000_000 / stride().max(20);
    binary("powi", 2.0, power, exact, pairs(n, true));
    // So near that exponents need all of their bits.
    let near = |(x, y): (f32, f32)| {
        let x = 1.0 + (x.to_bits() as i32 >> 20) as f32 * f32::EPSILON;
        (x, y.to_bits() as f32 / u32::MAX as f32 * 150.0 / x.log2())
    };
    binary("powi, near 1", 2.0, power, exact, pairs(n, false).map(near));
}

#[test]
fn angles_of_points_keep_their_error() {
    let n = 40_000_000 / stride().max(20);
    binary("atan2", 2.0, atan2, f64::atan2, pairs(n, false));
    let close = |(x, y): (f32, f32)| (x, x * (y.to_bits() as f32 / u32::MAX as f32 * 4.0 - 2.0));
    binary("atan2, alike", 2.0, atan2, f64::atan2, pairs(n, false).map(close));
}

#[test]
fn remainders_are_exact() {
    let n = 10_000_000 / stride().max(20);
    let all = |m: &mut Host, x: f32, y: f32| remainder(m, x, y, 253);
    binary("remf", 0.0, all, |x, y| x % y, pairs(n, false));
    let close = |(x, y): (f32, f32)| (x, x * (y.to_bits() as f32 / u32::MAX as f32));
    binary("remf, alike", 0.0, all, |x, y| x % y, pairs(n, false).map(close));
    // Both are f16: numbers of 11 bits.
    let half = |(x, y): (f32, f32)| {
        let h = |b: u32| (b as u16 & 0x7ff) as f32 * 2f32.powi((b >> 16) as i32 % 30 - 24);
        (h(x.to_bits()), h(y.to_bits()))
    };
    for (x, y) in pairs(n, false).map(half).filter(|p| p.1 != 0.0) {
        assert_eq!(remainder(&mut Host, x, y, 40), x % y, "{x} {y}");
    }
}
