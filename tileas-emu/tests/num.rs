//! Numbers against independent formulas: tables of all values of each format, error-free
//! transformations in f64, and the host's IEEE arithmetic.

use tileas_emu::num::arith::{self, MinMax, RN};
use tileas_emu::num::convert::{self, Cvt, convert, encode, f64_from};
use tileas_emu::num::format::*;
use tileas_emu::num::int::{Int, float_to_int, int_to_float, int_to_int, round_integral};
use tileas_emu::num::{Format, Num, Rounding, half};

/// Linear congruential numbers: the same on every machine.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        self.0 ^ self.0 >> 29
    }

    /// An f32 pattern whose exponents crowd around 1, with all special cases now and then.
    fn float(&mut self) -> f32 {
        let r = self.next();
        let bits = match r >> 60 {
            0 => [0, 1, 0x7F_FFFF, 0x80_0000, 0x7F80_0000, 0x7FC0_0000, 0x7F7F_FFFF, 0x3F80_0000]
                [(r & 7) as usize],
            1 => (r as u32) & 0x7FFF_FFFF,
            _ => (r as u32 & 0x7F_FFFF) | ((96 + (r >> 40) as u32 % 64) << 23),
        };
        f32::from_bits(bits | (r >> 33 & 0x8000_0000) as u32)
    }
}

/// All finite values that are not negative, by pattern, from the definition of the format.
fn table(f: &Format) -> Vec<(u64, f64)> {
    let count = 1u64 << (f.exp_bits + f.man_bits);
    let mut out = Vec::new();
    for code in 0..count {
        let (e, m) = (code >> f.man_bits, (code & ((1 << f.man_bits) - 1)) as f64);
        let scale = (1u64 << f.man_bits) as f64;
        let special = match f.name {
            "f16" | "bf16" | "tf32" | "e5m2" => e == (1 << f.exp_bits) - 1,
            "e4m3" => code == 0x7F,
            "ue8m0" => code == 0xFF,
            _ => false,
        };
        if special {
            continue;
        }
        let value = if f.name == "ue8m0" {
            2f64.powi(code as i32 - 127)
        } else if e == 0 {
            m / scale * 2f64.powi(1 - f.bias)
        } else {
            (1.0 + m / scale) * 2f64.powi(e as i32 - f.bias)
        };
        out.push((code << f.pad, value));
    }
    out
}

/// Pattern of a value that is not negative, by search.
fn search(t: &[(u64, f64)], x: f64, r: Rounding, neg: bool) -> Option<u64> {
    let at = t.partition_point(|e| e.1 <= x);
    let below = t[at.checked_sub(1)?];
    if below.1 == x {
        return Some(below.0);
    }
    let above = *t.get(at)?;
    let (down, up) = (x - below.1, above.1 - x);
    let even = (at - 1) % 2 == 0;
    Some(match r {
        Rounding::Rz => below.0,
        Rounding::Rm => {
            if neg {
                above.0
            } else {
                below.0
            }
        }
        Rounding::Rp => {
            if neg {
                below.0
            } else {
                above.0
            }
        }
        Rounding::Rn if down < up || down == up && even => below.0,
        Rounding::Rna if down < up => below.0,
        _ => above.0,
    })
}

const ROUNDINGS: [Rounding; 5] = [Rounding::Rn, Rounding::Rna, Rounding::Rz, Rounding::Rm, Rounding::Rp];

#[test]
fn every_pattern_has_its_value_and_rounds_to_itself() {
    for f in [&F16, &BF16, &TF32, &E4M3, &E5M2, &E2M1, &E2M3, &E3M2, &UE8M0] {
        for (code, value) in table(f) {
            assert_eq!(f64_from(f, code), value, "{} {code:#x}", f.name);
            for r in ROUNDINGS {
                let back = encode(F64.decode(value.to_bits()), f, Cvt::with(r));
                assert_eq!(back, code, "{} {value} {r:?}", f.name);
            }
            if f.signed {
                assert_eq!(f64_from(f, code | f.sign_bit()), -value);
            }
        }
        assert_eq!(
            f.decode(f.nan) == Num::Nan,
            f.name.len() > 4 || !f.name.starts_with("e2") && !f.name.starts_with("e3"),
            "{}",
            f.name
        );
    }
}

#[test]
fn rounding_between_neighbours() {
    for f in [&F16, &BF16, &TF32, &E4M3, &E5M2, &E2M1, &E2M3, &E3M2] {
        let t = table(f);
        let step = (t.len() / 5000).max(1);
        for i in (0..t.len() - 1).step_by(step) {
            let (a, b) = (t[i].1, t[i + 1].1);
            let mid = a / 2.0 + b / 2.0;
            for x in [
                mid,
                mid - (b - a) / 1024.0,
                mid + (b - a) / 1024.0,
                a + (b - a) / 4096.0,
                b - (b - a) / 4096.0,
            ] {
                for r in ROUNDINGS {
                    for neg in [false, true] {
                        let want = search(&t, x, r, neg).unwrap() | if neg { f.sign_bit() } else { 0 };
                        let signed = if neg { -x } else { x };
                        let got = encode(F64.decode(signed.to_bits()), f, Cvt::with(r));
                        assert_eq!(got, want, "{} {signed:e} {r:?}", f.name);
                    }
                }
            }
        }
    }
}

#[test]
fn short_ways_agree_with_the_long_one() {
    let mut rng = Rng(12);
    for i in 0..300_000u64 {
        // Random patterns, then all upper halves with a tie and its neighbours.
        let x = if i < 100_000 {
            rng.next() as u32
        } else {
            (((i % 65536) as u32) << 16) | (0x7FFF + (i >> 16) as u32 % 3)
        };
        let long = encode(F32.decode(x.into()), &BF16, RN);
        assert_eq!(convert(&F32, x.into(), &BF16, RN), long, "{x:#x}");
    }
}

#[test]
fn scale_factors_round_up_or_toward_zero() {
    let t = table(&UE8M0);
    let mut rng = Rng(5);
    for _ in 0..20_000 {
        let x = f32::from_bits(rng.next() as u32 & 0x7FFF_FFFF);
        if x == 0.0 || !x.is_finite() || f64::from(x) < t[0].1 {
            continue;
        }
        for r in [Rounding::Rz, Rounding::Rp] {
            let want = search(&t, x.into(), r, false).unwrap_or(0xFE);
            assert_eq!(convert::f32_to(&UE8M0, x, Cvt::with(r).satfinite()), want, "{x:e} {r:?}");
        }
    }
    let how = Cvt::with(Rounding::Rp).satfinite();
    assert_eq!(convert::f32_to(&UE8M0, f32::NAN, how), 0xFF);
    assert_eq!(convert::f32_to(&UE8M0, f32::INFINITY, how), 0xFE);
    assert_eq!(convert::f32_to(&UE8M0, 0.0, how), 0);
    // 1.5 * 2^127 does not fit; rounding up without saturation gives NaN.
    assert_eq!(convert::f32_to(&UE8M0, 2.5e38, Cvt::with(Rounding::Rp)), 0xFF);
}

#[test]
fn overflow_infinity_and_nan() {
    let rn = Cvt::with(Rounding::Rn);
    let to = |f: &Format, x: f32, how: Cvt| convert::f32_to(f, x, how);
    assert_eq!(to(&F16, 65519.0, rn), 0x7BFF);
    assert_eq!(to(&F16, 65520.0, rn), 0x7C00);
    assert_eq!(to(&F16, -65520.0, rn.satfinite()), 0xFBFF);
    assert_eq!(to(&F16, 1e6, Cvt::with(Rounding::Rz)), 0x7BFF);
    assert_eq!(to(&F16, -1e6, Cvt::with(Rounding::Rp)), 0xFBFF);
    assert_eq!(to(&F16, -1e6, Cvt::with(Rounding::Rm)), 0xFC00);
    assert_eq!(to(&F16, f32::INFINITY, rn.satfinite()), 0x7BFF);
    assert_eq!(to(&F16, f32::NAN, rn.satfinite()), 0x7FFF);
    assert_eq!(to(&BF16, f32::NAN, rn), 0x7FFF);
    assert_eq!(to(&E4M3, 1e9, rn.satfinite()), 0x7E);
    assert_eq!(to(&E4M3, f32::NEG_INFINITY, rn.satfinite()), 0xFE);
    assert_eq!(to(&E4M3, f32::NAN, rn.satfinite()), 0x7F);
    assert_eq!(to(&E5M2, f32::INFINITY, rn.satfinite()), 0x7B);
    assert_eq!(to(&E5M2, f32::NAN, rn.satfinite()), 0x7F);
    assert_eq!(to(&E2M1, f32::NAN, rn.satfinite()), 0x7);
    assert_eq!(to(&E2M1, -100.0, rn.satfinite()), 0xF);
    assert_eq!(to(&E2M3, f32::NAN, rn.satfinite()), 0x1F);
    assert_eq!(to(&E3M2, 29.0, rn.satfinite()), 0x1F);
    // relu: negative numbers, -0 and -inf become +0; NaN stays.
    assert_eq!(to(&BF16, -1.0, rn.relu()), 0);
    assert_eq!(to(&BF16, -0.0, rn.relu()), 0);
    assert_eq!(to(&BF16, f32::NEG_INFINITY, rn.relu()), 0);
    assert_eq!(to(&BF16, f32::NAN, rn.relu()), 0x7FFF);
    // tf32 keeps ten fraction bits; ties go away from zero under rna, to even under rn.
    let tie = f32::from_bits(0x3F80_1000);
    assert_eq!(to(&TF32, tie, Cvt::with(Rounding::Rna)), 0x3F80_2000);
    assert_eq!(to(&TF32, tie, rn), 0x3F80_0000);
    // ftz flushes inputs and results of 32 bits only.
    assert_eq!(to(&F16, 1e-40, rn.ftz()), 0);
    assert_eq!(convert(&F16, 1, &F32, rn.ftz()) as u32, 2f32.powi(-24).to_bits());
    assert_eq!(convert(&F64, 1e-40f64.to_bits(), &F32, rn.ftz()), 0);
    // sat clamps to the unit interval.
    let sat = Cvt { sat: true, ..rn };
    assert_eq!(
        [to(&F16, 2.0, sat), to(&F16, -2.0, sat), to(&F16, f32::NAN, sat), to(&F16, 0.25, sat)],
        [0x3C00, 0, 0, 0x3400]
    );
    // The first operand is the upper half.
    assert_eq!(convert::pack2(&BF16, 1.0, 2.0, rn), 0x3F80_4000);
    assert_eq!(convert::pack2(&E2M1, 6.0, -0.5, rn.satfinite()), 0x79);
    assert_eq!(convert::pack2(&E3M2, 1.0, 2.0, rn.satfinite()), 0x0C10);
    assert_eq!(convert::unpack2(&E4M3, 0x3840), [0x40, 0x38]);
}

#[test]
fn stochastic_rounding_adds_random_bits_below_the_last() {
    let how = Cvt::with(Rounding::Rn);
    // 1 + 3/4 of a bf16 unit: goes up for a quarter and more of 2^16.
    let x = f32::from_bits(0x3F80_C000);
    assert_eq!(convert::stochastic(&BF16, x, 0x3FFF, 16, how), 0x3F80);
    assert_eq!(convert::stochastic(&BF16, x, 0x4000, 16, how), 0x3F81);
    assert_eq!(convert::stochastic(&BF16, -x, 0x4000, 16, how), 0xBF81);
    assert_eq!(convert::stochastic(&E4M3, 1e9, 1, 16, how.satfinite()), 0x7E);
}

/// `hi + lo` is exactly `a + b`.
fn two_sum(a: f64, b: f64) -> (f64, f64) {
    let s = a + b;
    let t = s - a;
    (s, (a - (s - t)) + (b - t))
}

/// Checks that `got` is `hi + lo` rounded in a direction, by looking at the neighbours of `got`.
fn directed(got: f32, hi: f64, lo: f64, r: Rounding) -> bool {
    // Sign of (exact - x).
    let side = |x: f32| {
        let d = hi - f64::from(x);
        if d != 0.0 && d.abs() > lo.abs() {
            d.signum()
        } else {
            (d + lo).partial_cmp(&0.0).map_or(0.0, |o| o as i32 as f64)
        }
    };
    let floor =
        |x: f32| side(x) >= 0.0 && (x == f32::MAX || x.next_up().is_infinite() || side(x.next_up()) < 0.0);
    let ceil = |x: f32| {
        side(x) <= 0.0 && (x == f32::MIN || x.next_down().is_infinite() || side(x.next_down()) > 0.0)
    };
    match r {
        Rounding::Rm => {
            if got.is_infinite() {
                got < 0.0
            } else {
                floor(got)
            }
        }
        Rounding::Rp => {
            if got.is_infinite() {
                got > 0.0
            } else {
                ceil(got)
            }
        }
        _ => got.is_finite() && if hi + lo >= 0.0 { floor(got) } else { ceil(got) },
    }
}

#[test]
fn f32_arithmetic_with_all_roundings() {
    let mut rng = Rng(1);
    let same = |a: f32, b: f32| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan();
    for _ in 0..200_000 {
        let (a, b, c) = (rng.float(), rng.float(), rng.float());
        // The exact path and the wrappers, which may use the host's arithmetic.
        let f = |x: f32| u64::from(x.to_bits());
        let exact = |x: u64| f32::from_bits(x as u32);
        for (got, fast, want) in [
            (exact(arith::add_exact(&F32, f(a), f(b), RN)), arith::add_f32(a, b, RN), a + b),
            (exact(arith::add_exact(&F32, f(a), f(b) ^ 0x8000_0000, RN)), arith::sub_f32(a, b, RN), a - b),
            (exact(arith::mul_exact(&F32, f(a), f(b), RN)), arith::mul_f32(a, b, RN), a * b),
            (exact(arith::div_exact(&F32, f(a), f(b), RN)), arith::div_f32(a, b, RN), a / b),
            (exact(arith::sqrt_exact(&F32, f(a), RN)), arith::sqrt_f32(a, RN), a.sqrt()),
            (
                exact(arith::fma_exact(&F32, f(a), f(b), f(c), RN)),
                arith::fma_f32(a, b, c, RN),
                a.mul_add(b, c),
            ),
        ] {
            assert!(same(got, want), "{a:e} {b:e} {c:e}: {got:e}, host {want:e}");
            assert_eq!(got.to_bits(), fast.to_bits());
        }
        let ftz = RN.ftz();
        assert_eq!(
            exact(arith::fma_exact(&F32, f(a), f(b), f(c), ftz)).to_bits(),
            arith::fma_f32(a, b, c, ftz).to_bits()
        );
        assert_eq!(
            exact(arith::mul_exact(&F32, f(a), f(b), ftz)).to_bits(),
            arith::mul_f32(a, b, ftz).to_bits()
        );
        if !(a.is_finite() && b.is_finite() && c.is_finite()) {
            continue;
        }
        for r in [Rounding::Rz, Rounding::Rm, Rounding::Rp] {
            let how = Cvt::with(r);
            let (s, e) = two_sum(a.into(), b.into());
            let got = arith::add_f32(a, b, how);
            assert!(directed(got, s, e, r), "{a:e} + {b:e} {r:?} = {got:e}");
            let p = f64::from(a) * f64::from(b);
            let got = arith::mul_f32(a, b, how);
            assert!(directed(got, p, 0.0, r), "{a:e} * {b:e} {r:?} = {got:e}");
            let (s, e) = two_sum(p, c.into());
            let got = arith::fma_f32(a, b, c, how);
            assert!(directed(got, s, e, r), "{a:e} * {b:e} + {c:e} {r:?} = {got:e}");
            if b != 0.0 {
                // The quotient against the remainder's sign: q*b compared with a is exact in f64.
                let q = arith::div_f32(a, b, how);
                if q.is_finite() && q.abs() > 1e-30 && a != 0.0 {
                    let over = |q: f32| (f64::from(q) * f64::from(b) - f64::from(a)) * f64::from(b).signum();
                    let (lo, hi) = match r {
                        Rounding::Rm => (q, q.next_up()),
                        Rounding::Rp => (q.next_down(), q),
                        _ => {
                            if q > 0.0 {
                                (q, q.next_up())
                            } else {
                                (q.next_down(), q)
                            }
                        }
                    };
                    assert!(over(lo) <= 0.0 && over(hi) >= 0.0, "{a:e} / {b:e} {r:?} = {q:e}");
                }
            }
        }
    }
}

#[test]
fn f64_arithmetic_to_nearest() {
    let mut rng = Rng(2);
    let bits = f64::to_bits;
    let mut double = || {
        let r = rng.next();
        f64::from_bits((r & 0x800F_FFFF_FFFF_FFFF) | (1023 - 40 + (r >> 52) % 80) << 52)
    };
    for _ in 0..100_000 {
        let (a, b, c) = (double(), double(), double());
        assert_eq!(bits(f64::from_bits(arith::add(&F64, bits(a), bits(b), RN))), bits(a + b));
        assert_eq!(bits(f64::from_bits(arith::mul(&F64, bits(a), bits(b), RN))), bits(a * b));
        assert_eq!(
            bits(f64::from_bits(arith::fma(&F64, bits(a), bits(b), bits(c), RN))),
            bits(a.mul_add(b, c))
        );
        assert_eq!(arith::div(&F64, bits(a), bits(b), RN), bits(a / b));
        assert_eq!(arith::sqrt(&F64, bits(a.abs()), RN), bits(a.abs().sqrt()));
    }
}

#[test]
fn zeros_flushes_and_limits() {
    let rm = Cvt::with(Rounding::Rm);
    assert_eq!(arith::add_f32(1.0, -1.0, RN).to_bits(), 0);
    assert_eq!(arith::add_f32(1.0, -1.0, rm).to_bits(), 0x8000_0000);
    assert_eq!(arith::add_f32(-0.0, -0.0, RN).to_bits(), 0x8000_0000);
    assert_eq!(arith::add_f32(0.0, f32::NAN, RN).to_bits(), 0x7FFF_FFFF);
    assert_eq!(arith::mul_f32(-1e-40, 1.0, RN.ftz()).to_bits(), 0x8000_0000);
    assert_eq!(arith::mul_f32(1e-20, 1e-20, RN.ftz()).to_bits(), 0);
    let sat = Cvt { sat: true, ..RN };
    assert_eq!(arith::fma_f32(2.0, 3.0, 1.0, sat), 1.0);
    let max = |nan| MinMax { max: true, nan, ..MinMax::default() };
    let f = |x: f32| u64::from(x.to_bits());
    assert_eq!(arith::min_max(&F32, f(f32::NAN), f(2.0), max(false)), f(2.0));
    assert_eq!(arith::min_max(&F32, f(f32::NAN), f(2.0), max(true)), 0x7FFF_FFFF);
    assert_eq!(arith::min_max(&F32, f(-0.0), f(0.0), max(false)), f(0.0));
    assert_eq!(arith::min_max(&F32, f(0.0), f(-0.0), MinMax::default()), f(-0.0));
    let xor = MinMax { max: true, xorsign_abs: true, ..MinMax::default() };
    assert_eq!(arith::min_max(&F32, f(-3.0), f(2.0), xor), f(-3.0));
    assert_eq!(arith::min_max(&F32, f(-3.0), f(-2.0), xor), f(3.0));
    // Halves do not carry into each other; 1 + 2^-11 ties to even in f16.
    assert_eq!(half::add2(&F16, 0x3C00_7BFF, 0x1000_7BFF, RN), 0x3C00_7C00);
    assert_eq!(half::fma2(&BF16, 0x3F80_4000, 0x4000_4040, 0x3F80_3F80, RN), 0x4040_40E0);
    assert_eq!(half::fma_f32x2(0x3F80_0000_4000_0000, 0x4000_0000_4040_0000, 0, RN), 0x4000_0000_40C0_0000);
}

#[test]
fn half_arithmetic_is_rounded_once() {
    // f64 holds sums, products and fma of f16 exactly enough: one rounding from it is the answer.
    let mut rng = Rng(3);
    for f in [&F16, &BF16] {
        for _ in 0..100_000 {
            let r = rng.next();
            let (a, b, c) = (r & 0xFFFF, r >> 16 & 0xFFFF, r >> 32 & 0xFFFF);
            let v = |x| f64_from(f, x);
            let once = |x: f64| encode(F64.decode(x.to_bits()), f, RN);
            if f.decode(a) == Num::Nan || f.decode(b) == Num::Nan || f.decode(c) == Num::Nan {
                continue;
            }
            assert_eq!(arith::mul(f, a, b, RN), once(v(a) * v(b)));
            let (s, e) = two_sum(v(a), v(b));
            if e == 0.0 {
                assert_eq!(arith::add(f, a, b, RN), once(s), "{} {a:#x} {b:#x}", f.name);
            }
            let (s, e) = two_sum(v(a) * v(b), v(c));
            if e == 0.0 {
                assert_eq!(arith::fma(f, a, b, c, RN), once(s));
            }
        }
    }
}

/// What a compiler may rely on: a clamp and a narrowing change places where the narrow type has the bound.
#[test]
fn clamping_commutes_with_narrowing() {
    let mut rng = Rng(11);
    for f in [&F16, &BF16] {
        let mut values: Vec<u32> = Vec::new();
        // Around every value of the narrow type near an end of its ranges, and what rounds to zero, infinity or a tie.
        for code in (0u64..0x40).chain(0x3e0..0x420).chain(0x7be0..0x7c20).chain(0x7f60..0x7f90) {
            let wide = convert(f, code, &F32, RN) as u32;
            values.extend([wide.wrapping_sub(1), wide, wide + 1, wide ^ 0x1000, wide ^ 0x8000]);
        }
        values.extend([
            0,
            1,
            0x7f_ffff,
            0x477f_efff,
            0x477f_f000,
            0x477f_ffff,
            0x7f7f_ffff,
            0x7f80_0000,
            0x7fc0_0001,
        ]);
        values.extend((0..2000).map(|_| rng.float().to_bits()));
        let bounds = [
            0, 1, 0x8000, 0x8001, 0x3ff, 0x400, 0x3c00, 0xbc00, 0x7bff, 0x7c00, 0xfc00, 0x3f80, 0x7f7f,
            0xff80,
        ];
        for bound in bounds {
            if f.decode(bound) == Num::Nan {
                continue;
            }
            let wide_bound = convert(f, bound, &F32, RN);
            for (max, nan) in [(false, false), (false, true), (true, false), (true, true)] {
                let how = MinMax { max, nan, ..MinMax::default() };
                for &x in
                    values.iter().flat_map(|&x| [x & 0x7fff_ffff, x | 0x8000_0000]).collect::<Vec<_>>().iter()
                {
                    let first = arith::min_max(&F32, x.into(), wide_bound, how);
                    let last = convert(&F32, x.into(), f, RN);
                    let (a, b) = (convert(&F32, first, f, RN), arith::min_max(f, last, bound, how));
                    assert_eq!(a, b, "{} {x:#x} {bound:#x} {how:?}", f.name);
                }
            }
        }
    }
}

#[test]
fn integer_conversions() {
    let types = ["s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64"].map(|n| Int::by_name(n).unwrap());
    for bits in 0..=0xFFFFu64 {
        let x = f64_from(&F16, bits);
        for t in types {
            for (r, y) in [
                (Rounding::Rn, x.round_ties_even()),
                (Rounding::Rz, x.trunc()),
                (Rounding::Rm, x.floor()),
                (Rounding::Rp, x.ceil()),
            ] {
                // Host casts saturate; NaN gives 0 except for 64-bit destinations.
                let want = if x.is_nan() && t.bits == 64 {
                    1 << 63
                } else if t.signed {
                    t.encode((y as i64 as i128).clamp(t.min(), t.max()))
                } else {
                    t.encode((y as u64 as i128).clamp(t.min(), t.max()))
                };
                assert_eq!(float_to_int(&F16, bits, t, r, false), want, "{x} {t:?} {r:?}");
                if !x.is_nan() {
                    assert_eq!(
                        f64_from(&F16, round_integral(&F16, bits, r, RN)).to_bits(),
                        y.to_bits(),
                        "{x} {r:?}"
                    );
                }
            }
        }
    }
    let mut rng = Rng(4);
    for _ in 0..50_000 {
        let raw = rng.next() >> (rng.next() % 64);
        assert_eq!(int_to_float(types[7], raw, &F32, RN) as u32, (raw as f32).to_bits());
        assert_eq!(int_to_float(types[6], raw, &F32, RN) as u32, (raw as i64 as f32).to_bits());
        assert_eq!(int_to_float(types[6], raw, &F64, RN), (raw as i64 as f64).to_bits());
        assert_eq!(int_to_int(types[4], raw, types[7], false), raw as i32 as i64 as u64);
        assert_eq!(int_to_int(types[4], raw, types[0], true) as u8, (raw as i32).clamp(-128, 127) as u8);
        assert_eq!(int_to_int(types[5], raw, types[4], true), u64::from((raw as u32).min(i32::MAX as u32)));
    }
    assert_eq!(float_to_int(&F64, f64::NAN.to_bits(), types[4], Rounding::Rz, false), 0x8000_0000);
    assert_eq!(float_to_int(&F32, f32::NAN.to_bits().into(), types[4], Rounding::Rz, false), 0);
    assert_eq!(float_to_int(&F32, 1e30f32.to_bits().into(), types[4], Rounding::Rz, false), 0x7FFF_FFFF);
}
