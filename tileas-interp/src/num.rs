//! Number formats: rounding, encoding and decoding, exact.
//!
//! Needs: a [`Scalar`]. Guarantees: [`round`] is rounding to nearest, ties to even, of the exact argument; formats
//! without an infinity that conversions may produce (`e4m3`, `e5m2`, `e2m1`) saturate at their largest finite
//! number, as the `cvt…satfinite` instructions do (PTX ISA, cvt); `ue8m0` rounds up to a power of two.
//! Every value of every format is exact in `f64`, so tiles hold `f64`.

use tileas_codegen::ir::Scalar;

/// What happens above the largest finite number.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Top {
    /// Infinity exists and is the result.
    Infinity,
    /// The largest finite number is the result; NaN exists.
    Saturate,
    /// As `Saturate`, and the format has no NaN: NaN becomes the largest finite number.
    Finite,
}

/// A binary floating-point format with a sign.
#[derive(Copy, Clone)]
struct Format {
    /// Fraction bits.
    fraction: i32,
    /// Exponent of the smallest normal number.
    min_exp: i32,
    /// Largest finite number.
    max: f64,
    top: Top,
}

fn format(s: Scalar) -> Option<Format> {
    Some(match s {
        Scalar::F16 => Format { fraction: 10, min_exp: -14, max: 65504.0, top: Top::Infinity },
        Scalar::BF16 => {
            Format { fraction: 7, min_exp: -126, max: (2.0 - two(-7)) * two(127), top: Top::Infinity }
        }
        Scalar::TF32 => {
            Format { fraction: 10, min_exp: -126, max: (2.0 - two(-10)) * two(127), top: Top::Infinity }
        }
        Scalar::E4M3 => Format { fraction: 3, min_exp: -6, max: 448.0, top: Top::Saturate },
        Scalar::E5M2 => Format { fraction: 2, min_exp: -14, max: 57344.0, top: Top::Saturate },
        Scalar::E2M1 => Format { fraction: 1, min_exp: 0, max: 6.0, top: Top::Finite },
        _ => return None,
    })
}

/// 2^e; no format here has exponents that are not normal in f64.
fn two(e: i32) -> f64 {
    debug_assert!((-1022..=1023).contains(&e), "2^{e}");
    f64::from_bits(((1023 + e) as u64) << 52)
}

/// Unbiased exponent of a finite number other than 0.
fn exponent(x: f64) -> i32 {
    let e = ((x.to_bits() >> 52) & 0x7ff) as i32;
    if e == 0 {
        // Subnormal in f64: below every format here.
        return -1074 + (63 - x.abs().to_bits().leading_zeros() as i32);
    }
    e - 1023
}

/// `x` in format `s`, as a number. Integers are not rounded here.
pub fn round(s: Scalar, x: f64) -> f64 {
    match s {
        Scalar::F64 => x,
        Scalar::F32 => f64::from(x as f32),
        Scalar::UE8M0 => {
            // Neither zero nor signs exist: magnitudes, rounded up. The pattern of all ones is NaN.
            let x = x.abs();
            if x.is_nan() || x == 0.0 {
                return if x == 0.0 { two(-127) } else { x };
            }
            let e = exponent(x);
            let up = if x.is_finite() && x > two(e) { e + 1 } else { e };
            two(up.clamp(-127, 127))
        }
        _ => match format(s) {
            Some(f) => round_to(f, x),
            None => x,
        },
    }
}

fn round_to(f: Format, x: f64) -> f64 {
    if x.is_nan() {
        return if f.top == Top::Finite { f.max } else { x };
    }
    if x == 0.0 {
        return x;
    }
    if x.is_finite() {
        let quantum = exponent(x).max(f.min_exp) - f.fraction;
        // Both scalings are exact: the exponents stay far inside f64's.
        let q = (x * two(-quantum)).round_ties_even() * two(quantum);
        if q.abs() <= f.max {
            return if q == 0.0 { 0f64.copysign(x) } else { q };
        }
    }
    match f.top {
        Top::Infinity => f64::INFINITY.copysign(x),
        Top::Saturate | Top::Finite => f.max.copysign(x),
    }
}

/// a·b + c with one rounding to nearest even into `s`.
pub fn fma(s: Scalar, a: f64, b: f64, c: f64) -> f64 {
    match s {
        Scalar::F64 => a.mul_add(b, c),
        Scalar::F32 => f64::from((a as f32).mul_add(b as f32, c as f32)),
        _ => {
            // The product of two such numbers is exact in f64; the sum is rounded to odd first, so that the second
            // rounding is the only one that counts.
            let p = a * b;
            let sum = p + c;
            if !sum.is_finite() {
                return round(s, sum);
            }
            let (sum, error) = two_sum(p, c);
            round(s, odd(sum, error))
        }
    }
}

/// A rounding of f32 other than to the nearest number.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Direction {
    /// Towards zero.
    Zero,
    /// Towards minus infinity.
    Down,
    /// Towards infinity.
    Up,
}

/// `x`, or a neighbour of it so that the last bit is set, where `error` says that the exact number is another one: greater or less.
/// Later roundings to 51 bits and less are then those of the exact number.
fn odd(x: f64, error: f64) -> f64 {
    if error == 0.0 || error.is_nan() || !x.is_finite() || x.to_bits() & 1 == 1 {
        return x;
    }
    let towards_zero = (error < 0.0) == (x > 0.0);
    f64::from_bits(if towards_zero { x.to_bits() - 1 } else { x.to_bits() + 1 })
}

/// a + b, and what rounding took from it.
fn two_sum(a: f64, b: f64) -> (f64, f64) {
    let sum = a + b;
    let t = sum - a;
    (sum, (a - (sum - t)) + (b - t))
}

/// An f64 with [`odd`] rounding, as f32 in a direction.
fn directed(x: f64, direction: Direction) -> f64 {
    let nearest = x as f32;
    if x.is_nan() || x.is_infinite() || f64::from(nearest) == x {
        return f64::from(nearest);
    }
    let up = match direction {
        Direction::Zero => x < 0.0,
        Direction::Down => false,
        Direction::Up => true,
    };
    f64::from(match (f64::from(nearest) < x, up) {
        (true, true) => nearest.next_up(),
        (false, false) => nearest.next_down(),
        _ => nearest,
    })
}

/// The sum of two numbers whose exact sum may be zero: -0 where rounding goes down, if not both are 0.
fn directed_sum(a: f64, b: f64, direction: Direction) -> f64 {
    let (sum, error) = two_sum(a, b);
    if sum == 0.0 && direction == Direction::Down && !(a.is_sign_positive() && b.is_sign_positive()) {
        return -0.0;
    }
    directed(odd(sum, error), direction)
}

/// a + b of f32.
pub fn add_directed(a: f64, b: f64, direction: Direction) -> f64 {
    directed_sum(a, b, direction)
}

/// a·b of f32: the product is exact in f64.
pub fn mul_directed(a: f64, b: f64, direction: Direction) -> f64 {
    directed(a * b, direction)
}

/// a·b + c of f32.
pub fn fma_directed(a: f64, b: f64, c: f64, direction: Direction) -> f64 {
    directed_sum(a * b, c, direction)
}

/// a / b of f32.
pub fn div_directed(a: f64, b: f64, direction: Direction) -> f64 {
    let quotient = a / b;
    let rest = (-quotient).mul_add(b, a);
    directed(odd(quotient, if b < 0.0 { -rest } else { rest }), direction)
}

/// √a of f32.
pub fn sqrt_directed(a: f64, direction: Direction) -> f64 {
    let root = a.sqrt();
    directed(odd(root, (-root).mul_add(root, a)), direction)
}

/// Zero of the same sign for a number that is subnormal in f32.
pub fn flushed(x: f64) -> f64 {
    if x.abs() < f64::from(f32::MIN_POSITIVE) { 0f64.copysign(x) } else { x }
}

/// The error function, to about 2^-52. Below 2 by 2/√π · e^(-x²) · Σ 2^n x^(2n+1) / (1·3·…·(2n+1)), whose terms have one sign; beyond
/// by the continued fraction e^(-x²)/√π / (x + ½/(x + 1/(x + 3/2/(x + …)))) of what is left to 1, whose errors are those of a small number.
pub fn erf(x: f64) -> f64 {
    let size = x.abs();
    if x.is_nan() || size > 6.0 {
        // 1 - erf 6 is below 2^-55.
        return if x.is_nan() { x } else { 1f64.copysign(x) };
    }
    // e^(-x²), with what rounding the square takes from it.
    let square = x * x;
    let lost = x.mul_add(x, -square);
    let fall = (-square).exp() * (1.0 - lost);
    if size > 2.0 {
        let rest = (1..60).rev().fold(size, |rest, n| size + f64::from(n) / 2.0 / rest);
        return (1.0 - fall * std::f64::consts::FRAC_2_SQRT_PI / 2.0 / rest).copysign(x);
    }
    let (mut term, mut sum, mut error, mut n) = (x, x, 0.0, 1.0);
    while term.abs() > sum.abs() * 1e-18 {
        n += 2.0;
        term *= 2.0 * square / n;
        let lost;
        (sum, lost) = two_sum(sum, term);
        error += lost;
    }
    (sum + error) * fall * std::f64::consts::FRAC_2_SQRT_PI
}

/// `v` reduced to the width of `s`, two's complement, sign-extended (`i1`: 0 or 1).
pub fn wrap(s: Scalar, v: i64) -> i64 {
    match s {
        Scalar::I1 => v & 1,
        Scalar::Index => v,
        s => {
            let unused = 64 - s.bits();
            v << unused >> unused
        }
    }
}

/// `v` of width `s`, read as an unsigned number.
pub fn unsigned(s: Scalar, v: i64) -> u64 {
    let bits = s.bits();
    if bits >= 64 { v as u64 } else { v as u64 & ((1 << bits) - 1) }
}

/// An operand of a product as the matrix unit sees it: of a tf32 it ignores the low 13 bits.
pub fn factor(s: Scalar, x: f64) -> f64 {
    if s == Scalar::TF32 { f64::from(f32::from_bits((x as f32).to_bits() & !0x1fff)) } else { x }
}

/// Bits of a float of format `s` that [`round`] returned.
pub fn encode_float(s: Scalar, x: f64) -> u64 {
    match s {
        Scalar::F64 => x.to_bits(),
        Scalar::F32 | Scalar::TF32 if x.is_nan() => nan_bits(x, 8, 23),
        Scalar::F32 | Scalar::TF32 => u64::from((x as f32).to_bits()),
        Scalar::BF16 if x.is_nan() => nan_bits(x, 8, 7),
        Scalar::BF16 => u64::from((x as f32).to_bits() >> 16),
        Scalar::UE8M0 => {
            if x.is_nan() {
                0xff
            } else {
                (exponent(x) + 127).clamp(0, 254) as u64
            }
        }
        _ => match format(s) {
            Some(f) => encode_small(f, s, x),
            None => 0,
        },
    }
}

/// A NaN with an exponent and fraction of so many bits: the sign and upper fraction bits of `x`, which is one in f64. A NaN
/// of a narrower format is kept as that, so that reinterpreted bits are what they were.
fn nan_bits(x: f64, exponent: i32, fraction: i32) -> u64 {
    let sign = u64::from(x.is_sign_negative()) << (exponent + fraction);
    let all = ((1 << exponent) - 1) << fraction;
    let upper = (x.to_bits() & ((1 << 52) - 1)) >> (52 - fraction);
    sign | all | if upper == 0 { 1 << (fraction - 1).max(0) } else { upper }
}

/// The NaN of such a format as one in f64.
fn nan_of(bits: u64, exponent: i32, fraction: i32) -> f64 {
    let sign = bits >> (exponent + fraction) & 1;
    let upper = bits & ((1 << fraction) - 1);
    f64::from_bits(sign << 63 | 0x7ff << 52 | upper << (52 - fraction))
}

fn encode_small(f: Format, s: Scalar, x: f64) -> u64 {
    let bits = s.bits() as i32;
    let exp_bits = bits - 1 - f.fraction;
    let sign = u64::from(x.is_sign_negative()) << (bits - 1);
    let all = (1u64 << exp_bits) - 1;
    if x.is_nan() {
        return match s {
            Scalar::E4M3 => sign | 0x7f,
            _ => nan_bits(x, exp_bits, f.fraction),
        };
    }
    if x.is_infinite() {
        return sign | all << f.fraction;
    }
    if x == 0.0 {
        return sign;
    }
    let e = exponent(x);
    if e < f.min_exp {
        return sign | (x.abs() * two(f.fraction - f.min_exp)) as u64;
    }
    let fraction = (x.abs() * two(f.fraction - e)) as u64 - (1 << f.fraction);
    sign | ((e - f.min_exp + 1) as u64) << f.fraction | fraction
}

/// The number that `bits` stand for in format `s`.
pub fn decode_float(s: Scalar, bits: u64) -> f64 {
    match s {
        Scalar::F64 => f64::from_bits(bits),
        Scalar::F32 if f32::from_bits(bits as u32).is_nan() => nan_of(bits, 8, 23),
        Scalar::F32 => f64::from(f32::from_bits(bits as u32)),
        // In memory a tf32 is a 32-bit float; what it has beyond 10 bits of fraction, products alone ignore ([`factor`]).
        Scalar::TF32 => f64::from(f32::from_bits(bits as u32)),
        Scalar::BF16 if f32::from_bits((bits as u32) << 16).is_nan() => nan_of(bits, 8, 7),
        Scalar::BF16 => f64::from(f32::from_bits((bits as u32) << 16)),
        Scalar::UE8M0 => {
            if bits & 0xff == 0xff {
                f64::NAN
            } else {
                two((bits & 0xff) as i32 - 127)
            }
        }
        _ => match format(s) {
            Some(f) => decode_small(f, s, bits),
            None => 0.0,
        },
    }
}

fn decode_small(f: Format, s: Scalar, bits: u64) -> f64 {
    let width = s.bits() as i32;
    let exp_bits = width - 1 - f.fraction;
    let all = (1u64 << exp_bits) - 1;
    let negative = bits >> (width - 1) & 1 == 1;
    let e = bits >> f.fraction & all;
    let fraction = bits & ((1 << f.fraction) - 1);
    let magnitude = if e == all && matches!(s, Scalar::F16 | Scalar::E5M2) {
        if fraction == 0 { f64::INFINITY } else { return nan_of(bits, exp_bits, f.fraction) }
    } else if s == Scalar::E4M3 && bits & 0x7f == 0x7f {
        f64::NAN
    } else if e == 0 {
        fraction as f64 * two(f.min_exp - f.fraction)
    } else {
        ((1u64 << f.fraction) + fraction) as f64 * two(e as i32 - 1 + f.min_exp - f.fraction)
    };
    if negative { -magnitude } else { magnitude }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The neighbours in the format, found by enumeration, decide where a number between them goes.
    #[test]
    fn small_formats_round_to_the_nearest_code() {
        for s in [Scalar::F16, Scalar::E4M3, Scalar::E5M2, Scalar::E2M1] {
            let half = 1u64 << (s.bits() - 1);
            let codes: Vec<f64> =
                (0..half).map(|b| decode_float(s, b)).take_while(|x| x.is_finite()).collect();
            for (k, w) in codes.windows(2).enumerate() {
                let (lo, hi) = (w[0], w[1]);
                assert!(lo < hi, "{s:?} code {k}");
                assert_eq!(encode_float(s, lo), k as u64);
                let mid = (lo + hi) / 2.0;
                let even = if k % 2 == 0 { lo } else { hi };
                assert_eq!(round(s, mid), even, "{s:?} between {lo} and {hi}");
                assert_eq!(round(s, mid * (1.0 + 1e-12)), hi);
                assert_eq!(round(s, -mid * (1.0 - 1e-12)), -lo);
            }
        }
    }

    #[test]
    fn overflow_and_nan() {
        assert_eq!(round(Scalar::F16, 65519.9), 65504.0);
        assert_eq!(round(Scalar::F16, 65520.0), f64::INFINITY);
        assert_eq!(round(Scalar::E4M3, 1e9), 448.0);
        assert_eq!(round(Scalar::E5M2, f64::NEG_INFINITY), -57344.0);
        assert_eq!(round(Scalar::E2M1, f64::NAN), 6.0);
        assert_eq!(encode_float(Scalar::F16, f64::NAN) & 0x7e00, 0x7e00);
        assert_eq!(encode_float(Scalar::BF16, f64::NAN) & 0x7fc0, 0x7fc0);
    }

    #[test]
    fn bf16_agrees_with_integer_rounding_of_f32() {
        let mut x = 1u32;
        for _ in 0..100_000 {
            x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let f = f32::from_bits(x);
            if !f.is_finite() {
                continue;
            }
            let want = ((u64::from(x) + 0x7fff + u64::from(x >> 16 & 1)) >> 16) & 0xffff;
            assert_eq!(encode_float(Scalar::BF16, round(Scalar::BF16, f64::from(f))), want, "{x:#x}");
        }
    }

    /// The neighbours in f32 of exact results, told by integers: operands are small multiples of powers of two.
    #[test]
    fn directed_roundings_enclose_the_exact_result() {
        let mut x = 99u64;
        let mut next = || {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let m = (x >> 40) as i32 as f64 - 8_388_608.0;
            m * 2f64.powi((x >> 33 & 31) as i32)
        };
        let exact = |v: f64| v as i128;
        for _ in 0..100_000 {
            let (a, b, c) = (next(), next(), next());
            let near = |got: [f64; 3], want: i128| {
                let [zero, down, up] = got.map(exact);
                assert!(down <= want && want <= up, "{a} {b} {c}: {down} {want} {up}");
                assert_eq!(zero, if want < 0 { up } else { down });
                let (down, up) = (got[1] as f32, got[2] as f32);
                assert!(up == down || up == down.next_up(), "{down} {up}");
                assert_eq!(up == down, f64::from(down) as i128 == want);
            };
            let all = [Direction::Zero, Direction::Down, Direction::Up];
            near(all.map(|d| add_directed(a, b, d)), exact(a) + exact(b));
            near(all.map(|d| mul_directed(a, b, d)), exact(a) * exact(b));
            near(all.map(|d| fma_directed(a, b, c, d)), exact(a) * exact(b) + exact(c));
            if b != 0.0 {
                let [zero, down, up] = all.map(|d| div_directed(a, b, d));
                assert!(zero == down || zero == up);
                // Products of 24 bits are exact.
                let (low, high) = if b > 0.0 { (down * b, up * b) } else { (up * b, down * b) };
                assert!(low <= a && a <= high, "{a} / {b}");
                assert!((up as f32) == (down as f32) || up as f32 == (down as f32).next_up());
            }
            let [_, down, up] = all.map(|d| sqrt_directed(a.abs(), d));
            assert!(down * down <= a.abs() && a.abs() <= up * up);
        }
        assert!(add_directed(1.0, -1.0, Direction::Down).is_sign_negative());
        assert!(add_directed(1.0, -1.0, Direction::Up).is_sign_positive());
        assert_eq!(mul_directed(3e38, 2.0, Direction::Zero), f64::from(f32::MAX));
        assert_eq!(mul_directed(1e-40, -1e-40, Direction::Down), -f64::from(f32::from_bits(1)));
    }

    #[test]
    fn bits_of_nans_are_kept() {
        for (s, bits) in [
            (Scalar::F32, 0x7f80_0001),
            (Scalar::F32, 0xffc1_2345),
            (Scalar::F16, 0x7c01),
            (Scalar::BF16, 0xff81),
        ] {
            assert_eq!(encode_float(s, decode_float(s, bits)), bits, "{bits:#x}");
        }
    }

    /// References of 1400 bits, rounded.
    #[test]
    fn error_function() {
        for (x, want) in [
            (1e-09, 1.1283791670955127e-09),
            (0.3, 0.3286267594591274),
            (0.5, 0.5204998778130465),
            (0.84, 0.7651427114549945),
            (1.0, 0.8427007929497149),
            (1.3, 0.9340079449406524),
            (1.7, 0.9837904585907745),
            (1.99, 0.995111413199617),
            (2.01, 0.9955248493552482),
            (2.5, 0.999593047982555),
            (3.0, 0.9999779095030014),
            (4.0, 0.9999999845827421),
            (5.5, 0.9999999999999927),
        ] {
            let far = |got: f64| (got - want).abs() / want;
            assert!(far(erf(x)) < 2f64.powi(-51) && far(-erf(-x)) < 2f64.powi(-51), "{x}: {:e}", erf(x));
        }
    }

    /// fma in f16 against exact integers: all operands are multiples of 2^-24, the sum of 2^-48.
    #[test]
    fn fma_rounds_once() {
        let mut x = 12345u64;
        for _ in 0..200_000 {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let v = [x >> 16, x >> 32, x >> 48].map(|b| decode_float(Scalar::F16, b & 0xffff));
            if v.iter().any(|f| !f.is_finite()) {
                continue;
            }
            let i = v.map(|f| (f * 2f64.powi(24)) as i128);
            let sum = i[0] * i[1] + (i[2] << 24);
            let got = fma(Scalar::F16, v[0], v[1], v[2]);
            if got.is_infinite() {
                assert!(sum.unsigned_abs() >= 65520u128 << 48);
                continue;
            }
            // No neighbour may be nearer to the exact sum.
            let code = encode_float(Scalar::F16, got.abs());
            let exact = |c: u64| (decode_float(Scalar::F16, c) * 2f64.powi(24)) as i128 * (1 << 24);
            let target = sum.abs();
            let d = (exact(code) - target).abs();
            if code > 0 {
                assert!(d <= (exact(code - 1) - target).abs());
            }
            if code < 0x7bff {
                assert!(d <= (exact(code + 1) - target).abs());
            }
        }
    }
}
