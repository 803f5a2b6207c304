//! The arithmetic of the crate against the expected bytes of the micro-kernels, which were made
//! with rationals: every section is evaluated without the interpreter.

use crate::support;

use support::{Case, cases, words};
use tileas_emu::num::approx::{Fun, div_accepts};
use tileas_emu::num::arith::{self, MinMax};
use tileas_emu::num::convert::{self, Cvt, convert, part_bits};
use tileas_emu::num::format::F32;
use tileas_emu::num::int::{Int, float_to_int, int_to_float, int_to_int, round_integral};
use tileas_emu::num::{Format, Rounding, half};

struct Op {
    parts: Vec<String>,
    operands: Vec<String>,
    how: Cvt,
}

impl Op {
    fn parse(label: &str) -> Op {
        let (head, tail) = label.split_once(' ').unwrap();
        let parts: Vec<String> = head.split('.').map(String::from).collect();
        let operands = tail.split(',').map(|o| o.trim().trim_end_matches(';').to_string()).collect();
        let has = |m: &str| parts.iter().any(|p| p == m);
        let rounding =
            [("rz", Rounding::Rz), ("rm", Rounding::Rm), ("rp", Rounding::Rp), ("rna", Rounding::Rna)]
                .into_iter()
                .find(|(m, _)| has(m))
                .map_or(Rounding::Rn, |(_, r)| r);
        let how = Cvt {
            rounding,
            satfinite: has("satfinite"),
            sat: has("sat"),
            relu: has("relu"),
            ftz: has("ftz"),
        };
        Op { parts, operands, how }
    }

    fn has(&self, m: &str) -> bool {
        self.parts.iter().any(|p| p == m)
    }

    fn integral(&self) -> Option<Rounding> {
        let list =
            [("rni", Rounding::Rn), ("rzi", Rounding::Rz), ("rmi", Rounding::Rm), ("rpi", Rounding::Rp)];
        list.into_iter().find(|(m, _)| self.has(m)).map(|(_, r)| r)
    }

    fn minmax(&self) -> MinMax {
        MinMax {
            max: self.parts[0] == "max",
            ftz: self.how.ftz,
            nan: self.has("NaN"),
            xorsign_abs: self.has("xorsign"),
        }
    }
}

/// Result bits of an instruction on 32-bit input registers.
fn eval(op: &Op, x: &[u32]) -> u64 {
    let how = op.how;
    let n = op.parts.len();
    let (dst, src) = (op.parts[n - 2].as_str(), op.parts[n - 1].as_str());
    if op.parts[0] == "cvt" {
        let pair = |name: &str| name.strip_suffix("x2").and_then(Format::by_name);
        if let (Some(d), None) = (pair(dst), pair(src)) {
            return convert::pack2(d, f32::from_bits(x[0]), f32::from_bits(x[1]), how).into();
        }
        if let (Some(d), Some(s)) = (pair(dst), pair(src)) {
            let [lo, hi] = convert::unpack2(s, x[0]);
            return convert(s, hi, d, how) << part_bits(d) | convert(s, lo, d, how);
        }
        let (fd, fs) = (Format::by_name(dst), Format::by_name(src));
        let narrow = |f: &Format, w: u32| u64::from(w) & ((1u64 << f.bits) - 1);
        return match (fd, fs, Int::by_name(dst), Int::by_name(src)) {
            (Some(d), Some(s), ..) => match op.integral() {
                Some(r) => round_integral(d, narrow(s, x[0]), r, how),
                None => convert(s, narrow(s, x[0]), d, how),
            },
            (None, Some(s), Some(d), _) => {
                float_to_int(s, narrow(s, x[0]), d, op.integral().unwrap(), how.ftz)
            }
            (Some(d), None, _, Some(s)) => int_to_float(s, x[0].into(), d, how),
            (None, None, Some(d), Some(s)) => int_to_int(s, x[0].into(), d, how.sat),
            _ => panic!("{:?}", op.parts),
        };
    }
    if src == "f16x2" || src == "bf16x2" {
        let f = half::packed_format(src).unwrap();
        return u64::from(match op.parts[0].as_str() {
            "add" => half::add2(f, x[0], x[1], how),
            "sub" => half::sub2(f, x[0], x[1], how),
            "mul" => half::mul2(f, x[0], x[1], how),
            "fma" => half::fma2(f, x[0], x[1], x[2], how),
            "min" | "max" => half::min_max2(f, x[0], x[1], op.minmax()),
            name => half::map2(f, x[0], 0, |f, a, _| Fun::by_name(name).unwrap().eval(f, a, false)),
        });
    }
    let w: Vec<u64> = x.iter().map(|&v| v.into()).collect();
    match op.parts[0].as_str() {
        "add" => arith::add(&F32, w[0], w[1], how),
        "sub" => arith::sub(&F32, w[0], w[1], how),
        "mul" => arith::mul(&F32, w[0], w[1], how),
        "fma" => arith::fma(&F32, w[0], w[1], w[2], how),
        "div" => arith::div(&F32, w[0], w[1], how),
        "rcp" if !op.has("approx") => arith::rcp(&F32, w[0], how),
        "sqrt" if !op.has("approx") => arith::sqrt(&F32, w[0], how),
        "min" | "max" => w[1..].iter().fold(w[0], |r, &v| arith::min_max(&F32, r, v, op.minmax())),
        name => Fun::by_name(name).unwrap().eval(&F32, w[0], how.ftz),
    }
}

/// Runs all sections of a kernel whose operands are inputs; returns how many.
fn check(case: &Case, skip: fn(&str) -> bool) -> usize {
    let expect = case.expect("out");
    let mut done = 0;
    let mut last = String::new();
    for (label, at, bytes, rule) in case.sections("out") {
        let high = label == last && label.contains("64.");
        last = if high { String::new() } else { label.clone() };
        if skip(&label) || label.contains("{t0}") {
            continue;
        }
        let op = Op::parse(&label);
        let names: Vec<String> = op.operands[1..].iter().map(|o| o.trim_matches(['{', '}']).into()).collect();
        let inputs: Vec<Vec<u32>> = names.iter().map(|n| words(&case.input(&n[n.len() - 1..]))).collect();
        for (i, want) in words(&expect[at..at + bytes]).into_iter().enumerate() {
            let x: Vec<u32> = inputs
                .iter()
                .zip(&names)
                .map(|(v, n)| if n.starts_with('h') { v[i] & 0xFFFF } else { v[i] })
                .collect();
            let context = format!("{}: {label} lane {i} inputs {x:x?}", case.name());
            if op.has("approx") || op.has("full") {
                // Two independent roundings of the same function: within the hardware's bound.
                if op.parts[0] == "div" {
                    let f = f32::from_bits;
                    assert!(div_accepts(f(x[0]), f(x[1]), op.has("full"), op.how.ftz, f(want)), "{context}");
                } else {
                    let fun = Fun::by_name(&op.parts[0]).unwrap();
                    if let Some(f) = op.parts.last().and_then(|p| half::packed_format(p)) {
                        for s in [0, 16] {
                            assert!(
                                fun.accepts(
                                    f,
                                    u64::from(x[0] >> s & 0xFFFF),
                                    op.how.ftz,
                                    u64::from(want >> s & 0xFFFF)
                                ),
                                "{context}"
                            );
                        }
                    } else {
                        assert!(fun.accepts(&F32, x[0].into(), op.how.ftz, want.into()), "{context}");
                        let got = eval(&op, &x) as u32;
                        assert!(got.abs_diff(want) <= 1, "{context}: {got:x} want {want:x}");
                    }
                }
                continue;
            }
            let got = eval(&op, &x);
            let got = if high { (got >> 32) as u32 } else { got as u32 };
            assert_eq!(got, want, "{context}: got {got:#x} want {want:#x}; rule {rule}");
        }
        done += 1;
    }
    done
}

#[test]
fn conversions() {
    for (kernel, least) in
        [("cvt_f32", 25), ("cvt_f16", 13), ("cvt_bf16", 3), ("cvt_int", 25), ("cvt_sm100", 8)]
    {
        for case in cases(kernel) {
            let n = check(&case, |_| false);
            assert!(n >= least, "{kernel}: {n} sections");
        }
    }
}

#[test]
fn arithmetic() {
    for (kernel, least) in [("f32_arith", 30), ("half_arith", 16), ("f32x2", 2)] {
        for case in cases(kernel) {
            let n = check(&case, |label| label.contains("f32x2"));
            assert!(n >= least, "{kernel}: {n} sections");
        }
    }
}

#[test]
fn approximations() {
    for case in cases("approx") {
        assert_eq!(check(&case, |_| false), 15);
    }
}
