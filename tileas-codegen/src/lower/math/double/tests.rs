//! The sequences on the host.

use super::super::tests::{Host, words};
use super::*;

impl Doubles for Host {
    type D = f64;

    fn dfloat(&mut self, x: f64) -> f64 {
        x
    }
    fn long(&mut self, x: u64) -> u64 {
        x
    }
    fn dadd(&mut self, a: f64, b: f64) -> f64 {
        a + b
    }
    fn dsub(&mut self, a: f64, b: f64) -> f64 {
        a - b
    }
    fn dmul(&mut self, a: f64, b: f64) -> f64 {
        a * b
    }
    fn dfma(&mut self, a: f64, b: f64, c: f64) -> f64 {
        a.mul_add(b, c)
    }
    fn ddiv(&mut self, a: f64, b: f64) -> f64 {
        a / b
    }
    fn dneg(&mut self, a: f64) -> f64 {
        -a
    }
    fn dabs(&mut self, a: f64) -> f64 {
        a.abs()
    }
    fn dfloor(&mut self, a: f64) -> f64 {
        a.floor()
    }
    fn dcopysign(&mut self, magnitude: f64, sign: f64) -> f64 {
        magnitude.copysign(sign)
    }
    fn dlt(&mut self, a: f64, b: f64) -> bool {
        a < b
    }
    fn deq(&mut self, a: f64, b: f64) -> bool {
        a == b
    }
    fn dnot_lt(&mut self, a: f64, b: f64) -> bool {
        !matches!(a.partial_cmp(&b), Some(std::cmp::Ordering::Less))
    }
    fn dne(&mut self, a: f64, b: f64) -> bool {
        a != b
    }
    fn dnan(&mut self, a: f64, b: f64) -> bool {
        a.is_nan() || b.is_nan()
    }
    fn dselect(&mut self, p: bool, a: f64, b: f64) -> f64 {
        if p { a } else { b }
    }
    fn dof_int(&mut self, a: u32) -> f64 {
        f64::from(a as i32)
    }
    fn dof_wide(&mut self, a: u64) -> f64 {
        a as f64
    }
    fn dbits(&mut self, a: f64) -> u64 {
        a.to_bits()
    }
    fn dof_bits(&mut self, a: u64) -> f64 {
        f64::from_bits(a)
    }
    fn select_wide(&mut self, p: bool, a: u64, b: u64) -> u64 {
        if p { a } else { b }
    }
    fn add_wide(&mut self, a: u64, b: u64) -> u64 {
        a.wrapping_add(b)
    }
    fn mul_wide_low(&mut self, a: u64, b: u64) -> u64 {
        a.wrapping_mul(b)
    }
    fn mul_wide_high(&mut self, a: u64, b: u64) -> u64 {
        ((u128::from(a) * u128::from(b)) >> 64) as u64
    }
    fn and_wide(&mut self, a: u64, b: u64) -> u64 {
        a & b
    }
    fn or_wide(&mut self, a: u64, b: u64) -> u64 {
        a | b
    }
    fn xor_wide(&mut self, a: u64, b: u64) -> u64 {
        a ^ b
    }
    fn shr_wide(&mut self, a: u64, n: u32) -> u64 {
        a.checked_shr(n).unwrap_or(0)
    }
    fn lt_wide(&mut self, a: u64, b: u64) -> bool {
        a < b
    }
}

/// Distance from a reference, in units of its last place.
fn error(got: f64, want: f64) -> f64 {
    if want.is_nan() || got.is_nan() {
        return if want.is_nan() && got.is_nan() { 0.0 } else { f64::INFINITY };
    }
    if got == want {
        let signs = got != 0.0 || got.is_sign_negative() == want.is_sign_negative();
        return if signs { 0.0 } else { f64::INFINITY };
    }
    if want.is_infinite() || got.is_infinite() {
        // The neighbours of an overflow.
        return if got.abs() >= f64::MAX && want.abs() >= f64::MAX { 1.0 } else { f64::INFINITY };
    }
    let exponent = (want.abs().max(f64::MIN_POSITIVE).to_bits() >> 52) as i32 - 1023;
    // In steps: the unit may be subnormal, and its inverse infinite.
    (got - want).abs() * 2f64.powi(-(exponent / 2)) * 2f64.powi(exponent / 2 - exponent) * 2f64.powi(52)
}

type Unary = fn(&mut Host, f64) -> f64;
type Binary = fn(&mut Host, f64, f64) -> f64;

const UNARY: [(&str, f64, Unary); 11] = [
    ("exp", 2.0, exp),
    ("exp2", 2.0, exp2),
    ("log", 2.0, log),
    ("log2", 2.0, log2),
    ("sin", 2.0, sin),
    ("cos", 2.0, cos),
    ("tan", 4.0, tan),
    ("sinh", 2.0, sinh),
    ("cosh", 2.0, cosh),
    ("tanh", 2.0, tanh),
    ("erf", 2.0, erf),
];
const BINARY: [(&str, f64, Binary); 4] =
    [("pow", 2.0, pow), ("powi", 2.0, power), ("atan2", 2.0, atan2), ("remf", 0.0, remainder)];

/// `powi` of an exponent that its f64 holds.
fn power(m: &mut Host, x: f64, y: f64) -> f64 {
    powi(m, x, &super::super::Exponent { rounded: y, rest: None }, y as i64 as u32)
}

/// What 1400 bits give, rounded: operands at which the sequences are worst, at the ends of their pieces, and some of all sizes.
#[test]
fn references_are_met() {
    let mut lines = 0;
    for line in include_str!("references.txt").lines().filter(|l| !l.starts_with('#')) {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |n: usize| f64::from_bits(u64::from_str_radix(words[n], 16).expect("bits"));
        let (most, got, want) = match (words.len(), UNARY.iter().find(|f| f.0 == words[0])) {
            (3, Some(f)) => (f.1, f.2(&mut Host, number(1)), number(2)),
            _ => {
                let f = BINARY.iter().find(|f| f.0 == words[0]).expect("a function");
                (f.1, f.2(&mut Host, number(1), number(2)), number(3))
            }
        };
        assert!(error(got, want) <= most, "{line}: {got:e}, not {want:e}");
        lines += 1;
    }
    assert!(lines > 200, "{lines} references");
}

/// The standard library's function.
fn library(name: &str) -> Option<fn(f64) -> f64> {
    Some(match name {
        "exp" => f64::exp,
        "exp2" => f64::exp2,
        "log" => f64::ln,
        "log2" => f64::log2,
        "sin" => f64::sin,
        "cos" => f64::cos,
        "tan" => f64::tan,
        "sinh" => f64::sinh,
        "cosh" => f64::cosh,
        "tanh" => f64::tanh,
        _ => return None,
    })
}

const SPECIAL: [f64; 24] = [
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
    5e-324,
    -5e-324,
    1e-310,
    f64::MIN_POSITIVE,
    1.79e308,
    f64::MAX,
    f64::MIN,
    9_007_199_254_740_992.0,
    -9_007_199_254_740_991.0,
    f64::INFINITY,
    f64::NEG_INFINITY,
    f64::NAN,
];

/// Pseudorandom numbers: of all bits, and from -`most` to `most`.
fn numbers(most: f64) -> impl FnMut() -> (f64, f64) {
    let mut next = words();
    move || {
        let bits = u64::from(next()) << 32 | u64::from(next());
        (f64::from_bits(bits), ((next() as f64) / 2f64.powi(31) - 1.0) * most)
    }
}

#[test]
fn functions_of_one_operand_agree_with_the_library() {
    for (name, most, f) in UNARY {
        let Some(exact) = library(name) else { continue };
        let (mut next, mut worst) = (numbers(1.0), (0.0, 0.0));
        let mut check = |x: f64| {
            let e = error(f(&mut Host, x), exact(x));
            worst = if e > worst.0 { (e, x) } else { worst };
        };
        SPECIAL.into_iter().for_each(&mut check);
        for n in 0..100_000 {
            let (any, x) = next();
            check(any);
            check(x * [0.1, 2.0, 30.0, 1100.0][n % 4]);
            // Near multiples of π/2 of all sizes, where sines are smallest.
            check((x * 2f64.powi(n as i32 % 90)).round() * std::f64::consts::FRAC_PI_2);
        }
        println!("{name}: {:.3} ulp at {:e}", worst.0, worst.1);
        assert!(worst.0 <= most, "{name}: {} ulp at {:e}", worst.0, worst.1);
    }
}

#[test]
fn functions_of_two_operands_agree_with_the_library() {
    let exact: [fn(f64, f64) -> f64; 4] = [f64::powf, f64::powf, f64::atan2, |x, y| x % y];
    for ((name, most, f), exact) in BINARY.into_iter().zip(exact) {
        let (mut next, mut worst) = (numbers(1.0), (0.0, 0.0, 0.0));
        let mut check = |x: f64, y: f64| {
            let y = if name == "powi" { y.clamp(-9e15, 9e15).round() } else { y };
            // The library tells signalling NaNs apart.
            if y.is_nan() && name == "powi" || x.is_nan() && y == 0.0 {
                return;
            }
            let e = error(f(&mut Host, x, y), exact(x, y));
            worst = if e > worst.0 { (e, x, y) } else { worst };
        };
        SPECIAL.into_iter().for_each(|x| SPECIAL.into_iter().for_each(|y| check(x, y)));
        for n in 0..100_000 {
            let ((a, x), (b, y)) = (next(), next());
            check(a, b);
            check(a, a * y);
            // Bases near 1, and exponents whose powers are finite.
            let base = if n % 2 == 0 { a } else { 1.0 + x * 2f64.powi(-(n % 40)) };
            check(base, 1080.0 / base.abs().log2().abs() * y);
        }
        println!("{name}: {:.3} ulp at {:e}, {:e}", worst.0, worst.1, worst.2);
        assert!(worst.0 <= most, "{name}: {} ulp at {:e}, {:e}", worst.0, worst.1, worst.2);
    }
}

/// Exponents beyond 2^53, which an f64 lacks a part of. The results are of 1400 bits, rounded.
#[test]
fn integer_powers_take_all_bits_of_the_exponent() {
    let near = 1.0 + f64::EPSILON;
    for (n, bits) in [
        ((1i64 << 60) + 127, 0x5704_1c7a_8814_beb9),
        ((1 << 61) + 255, 0x6e19_4765_04ba_852d),
        (-(1 << 61) - 255, 0x11c4_4109_edb2_0933),
    ] {
        let rounded = n as f64;
        let rest = n.wrapping_sub(rounded as i64) as f64;
        let exponent = super::super::Exponent { rounded, rest: Some(rest) };
        let got = powi(&mut Host, near, &exponent, n as u32);
        assert!(error(got, f64::from_bits(bits)) <= 1.5, "{n}: {got:e}");
    }
}
