//! Approximations against the host's f64 library, and the accumulation models among each other.

use tileas_emu::num::approx::{self, Fun, div_accepts};
use tileas_emu::num::format::*;
use tileas_emu::num::mma;

struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        self.0 ^ self.0 >> 29
    }
}

/// The f64 library is good to about one unit: its value rounded to f32 is the answer unless it lies
/// close to the middle between two numbers.
fn close(got: f32, exact: f64) -> bool {
    let near = |x: f64| (x as f32).to_bits() == got.to_bits();
    near(exact) || near(exact * (1.0 - 4e-16)) || near(exact * (1.0 + 4e-16))
}

#[test]
fn results_are_correctly_rounded() {
    let mut rng = Rng(7);
    type Host = fn(f64) -> f64;
    let cases: [(Fun, i32, i32, bool, Host); 8] = [
        (Fun::Ex2, -40, 7, true, f64::exp2),
        (Fun::Lg2, -126, 127, false, f64::log2),
        (Fun::Rcp, -120, 120, true, |x| 1.0 / x),
        (Fun::Rsqrt, -120, 120, false, |x| 1.0 / x.sqrt()),
        (Fun::Sqrt, -120, 120, false, f64::sqrt),
        (Fun::Sin, -50, 40, true, f64::sin),
        (Fun::Cos, -50, 40, true, f64::cos),
        (Fun::Tanh, -40, 5, true, f64::tanh),
    ];
    for (fun, lo, hi, signed, host) in cases {
        for _ in 0..40_000 {
            let r = rng.next();
            let e = lo + (r >> 40) as i32 % (hi - lo);
            let sign = if signed { r as u32 & 0x8000_0000 } else { 0 };
            let x = f32::from_bits(sign | ((e + 127) as u32) << 23 | (r >> 8) as u32 & 0x7F_FFFF);
            let got = fun.eval_f32(x, false);
            assert_eq!(got.to_bits(), fun.eval_exact_f32(x, false).to_bits(), "{fun:?} {x:e}");
            assert!(close(got, host(x.into())), "{fun:?} {x:e} = {got:e}, host {:e}", host(x.into()));
        }
    }
    // Near 1 the logarithm is small and still accurate.
    for k in 1..2000u32 {
        for bits in [0x3F80_0000 + k, 0x3F80_0000 - k] {
            let x = f32::from_bits(bits);
            assert!(
                close(Fun::Lg2.eval_f32(x, false), (f64::from(x) - 1.0).ln_1p() / std::f64::consts::LN_2),
                "lg2 {x:e}"
            );
        }
    }
}

#[test]
fn special_operands() {
    let inf = f32::INFINITY;
    let same = |a: f32, b: f32| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan();
    for (fun, x, want) in [
        (Fun::Ex2, -inf, 0.0),
        (Fun::Ex2, inf, inf),
        (Fun::Ex2, -0.0, 1.0),
        (Fun::Ex2, 1000.0, inf),
        (Fun::Ex2, -1000.0, 0.0),
        (Fun::Ex2, -126.5, 0.0),
        (Fun::Ex2, 10.0, 1024.0),
        (Fun::Ex2, -3.0, 0.125),
        (Fun::Lg2, 0.0, -inf),
        (Fun::Lg2, -0.0, -inf),
        (Fun::Lg2, -1.0, f32::NAN),
        (Fun::Lg2, 8.0, 3.0),
        (Fun::Lg2, inf, inf),
        (Fun::Rcp, -inf, -0.0),
        (Fun::Rcp, -0.0, -inf),
        (Fun::Rsqrt, -0.0, -inf),
        (Fun::Rsqrt, 0.25, 2.0),
        (Fun::Rsqrt, -1.0, f32::NAN),
        (Fun::Sqrt, -0.0, -0.0),
        (Fun::Sqrt, -inf, f32::NAN),
        (Fun::Sin, inf, f32::NAN),
        (Fun::Sin, -0.0, -0.0),
        (Fun::Cos, 0.0, 1.0),
        (Fun::Tanh, -inf, -1.0),
        (Fun::Tanh, 1e-20, 1e-20),
        (Fun::Tanh, 50.0, 1.0),
        (Fun::Tanh, f32::NAN, f32::NAN),
    ] {
        let got = fun.eval_f32(x, true);
        assert!(same(got, want), "{fun:?} {x:e} = {got:e}, want {want:e}");
    }
    // Without ftz a subnormal result stays.
    assert_eq!(Fun::Ex2.eval_f32(-130.0, false), 2f32.powi(-130));
    // 16-bit forms: 2^x of f16 and tanh of bf16.
    assert_eq!(Fun::Ex2.eval(&F16, 0xBC00, false), 0x3800);
    assert_eq!(Fun::Tanh.eval(&BF16, 0x3F80, false), 0x3F43);
}

#[test]
fn error_bounds_accept_neighbours_only() {
    let bits = |x: f32| u64::from(x.to_bits());
    let want = Fun::Ex2.eval_f32(0.3, true);
    let step = |n: i32| u64::from((want.to_bits() as i32 + n) as u32);
    for n in -2..=2 {
        assert!(Fun::Ex2.accepts(&F32, bits(0.3), true, step(n)));
    }
    assert!(!Fun::Ex2.accepts(&F32, bits(0.3), true, step(4)));
    assert!(!Fun::Ex2.accepts(&F32, bits(0.3), true, bits(f32::NAN)));
    assert!(Fun::Sin.accepts(&F32, bits(1.0), false, bits(1f32.sin() + 5e-7)));
    assert!(!Fun::Sin.accepts(&F32, bits(1.0), false, bits(1f32.sin() + 1e-5)));
    assert!(Fun::Sin.accepts(&F32, bits(1e6), false, bits(0.0)));
    assert!(div_accepts(1.0, 3.0, true, false, f32::from_bits((1f32 / 3.0).to_bits() + 2)));
    assert!(!div_accepts(1.0, 3.0, true, false, f32::from_bits((1f32 / 3.0).to_bits() + 4)));
    assert_eq!(approx::div_f32(1.0, 2e38, false, false), 0.0);
    assert_eq!(approx::div_f32(1.0, 2e38, true, false), 1.0 / 2e38);
}

#[test]
fn exact_sums_agree_in_all_models() {
    let mut rng = Rng(9);
    for _ in 0..2000 {
        let small = |r: u64| (r % 33) as f32 / 4.0 - 4.0;
        let a: Vec<f32> = (0..16).map(|_| small(rng.next())).collect();
        let b: Vec<f32> = (0..16).map(|_| small(rng.next())).collect();
        let c = small(rng.next());
        let whole: i64 = a.iter().zip(&b).map(|(x, y)| (x * 16.0) as i64 * (y * 16.0) as i64).sum();
        let want = whole as f32 / 256.0 + c;
        assert_eq!(mma::dot(&a, &b, c.into()) as f32, want);
        assert_eq!(mma::aligned(&a, &b, c, 23), want);
        assert_eq!(mma::finish(&F32, mma::dot(&a, &b, c.into())) as u32, want.to_bits());
    }
}

#[test]
fn truncating_model_loses_small_terms() {
    // 2^24 + 1 needs 25 bits: with 23 fraction bits the one is cut, with 24 it survives the sum
    // (and is cut again by the result).
    assert_eq!(mma::aligned(&[4096.0, 1.0], &[4096.0, 1.0], 0.0, 23), 16777216.0);
    assert_eq!(mma::aligned(&[4096.0, 1.0, 1.0], &[4096.0, 1.0, 1.0], 0.0, 23), 16777216.0);
    assert_eq!(mma::aligned(&[4096.0, 1.0, 1.0], &[4096.0, 1.0, 1.0], 0.0, 24), 16777218.0);
    let slack = mma::tolerance(&[4096.0, 1.0, 1.0], &[4096.0, 1.0, 1.0], 0.0, 24);
    assert!((2.0..20.0).contains(&slack), "{slack}");
}
