//! Floating-point arithmetic.
//!
//! f32 with rounding to nearest uses the host's arithmetic; everything else goes through exact
//! arithmetic. Approximate functions give the correctly rounded result.
//! Source: PTX ISA, "Floating Point Instructions", "Half Precision", "Mixed Precision".

use super::Flow;
use super::cx::lanes;
use super::int::{get, map1, map2, map3, set};
use crate::decode::build::Build;
use crate::decode::table::{Row, row};
use crate::decode::{Exec, R};
use crate::num::approx::Fun;
use crate::num::arith::{self, MinMax};
use crate::num::format::{BF16, F16, F32, Format};
use crate::num::{Cvt, Rounding, half};

/// Rounding of a modifier; absent means nearest even.
pub fn rounding(m: &str) -> Rounding {
    match m {
        "rz" | "rzi" => Rounding::Rz,
        "rm" | "rmi" => Rounding::Rm,
        "rp" | "rpi" => Rounding::Rp,
        "rna" => Rounding::Rna,
        _ => Rounding::Rn,
    }
}

fn has(b: &Build<'_>, m: &str) -> bool {
    b.inst.opcode.split('.').any(|x| x == m)
}

fn last(b: &Build<'_>) -> String {
    b.inst.opcode.rsplit('.').next().unwrap_or("").to_string()
}

/// The format of a type, and how many of them an operand packs.
fn format_of(b: &Build<'_>) -> R<(&'static Format, u32)> {
    let t = last(b);
    if let Some(f) = t.strip_suffix("x2").and_then(Format::by_name) {
        return Ok((f, 2));
    }
    Format::by_name(&t).map(|f| (f, 1)).ok_or_else(|| b.error("P011", format!("`{t}` is not a type")))
}

fn mode(b: &Build<'_>, r: &str) -> Cvt {
    let mut c = Cvt::with(rounding(r));
    c.ftz = has(b, "ftz");
    c.sat = has(b, "sat");
    c.relu = has(b, "relu");
    c
}

#[inline(always)]
fn f(x: u64) -> f32 {
    f32::from_bits(x as u32)
}

#[inline(always)]
fn bits(x: f32) -> u64 {
    if x.is_nan() { 0x7FFF_FFFF } else { u64::from(x.to_bits()) }
}

fn plain(format: &Format, n: u32, c: Cvt) -> bool {
    format.bits == 32 && n == 1 && c == Cvt::with(Rounding::Rn)
}

/// Applies an operation to each packed part.
fn parts(format: &Format, n: u32, a: u64, b: u64, c: u64, op: impl Fn(u64, u64, u64) -> u64) -> u64 {
    if n == 1 {
        return op(a, b, c);
    }
    let w = format.bits;
    let mask = (1u64 << w) - 1;
    op(a & mask, b & mask, c & mask) | op(a >> w & mask, b >> w & mask, c >> w & mask) << w
}

fn arith2(b: &mut Build<'_>) -> R<Exec> {
    let (t, n) = format_of(b)?;
    let c = mode(b, b.ms(0));
    let bytes = t.bits / 8 * n;
    let kind = b.inst.opcode.split('.').next().unwrap_or("");
    if plain(t, n, c) {
        return match kind {
            "add" => map2(b, 4, |x, y| bits(f(x) + f(y))),
            "sub" => map2(b, 4, |x, y| bits(f(x) - f(y))),
            _ => map2(b, 4, |x, y| bits(f(x) * f(y))),
        };
    }
    let op = match kind {
        "add" => arith::add,
        "sub" => arith::sub,
        _ => arith::mul,
    };
    map2(b, bytes, move |x, y| parts(t, n, x, y, 0, |x, y, _| op(t, x, y, c)))
}

fn fma(b: &mut Build<'_>) -> R<Exec> {
    let (t, n) = format_of(b)?;
    let c = mode(b, b.ms(0));
    let bytes = t.bits / 8 * n;
    if plain(t, n, c) {
        return map3(b, [4; 4], |x, y, z| bits(f(x).mul_add(f(y), f(z))));
    }
    map3(b, [bytes; 4], move |x, y, z| parts(t, n, x, y, z, |x, y, z| arith::fma(t, x, y, z, c)))
}

/// `fma.rn.f32.f16` and `.bf16`: narrow factors.
fn fma_mixed(b: &mut Build<'_>) -> R<Exec> {
    let (t, _) = format_of(b)?;
    let c = mode(b, b.ms(0));
    map3(b, [4, 2, 2, 4], move |x, y, z| arith::fma_mixed(t, x, y, &F32, z, &F32, c))
}

/// `add.f32.bf16`: a narrow first operand.
fn add_mixed(b: &mut Build<'_>) -> R<Exec> {
    let (t, _) = format_of(b)?;
    let c = mode(b, b.ms(0));
    let subtract = b.inst.opcode.starts_with("sub");
    b.count(3)?;
    let (d, x, y) = (b.dst(0, 4)?, b.src(1, 2)?, b.src(2, 4)?);
    Ok(Box::new(move |cx, m| {
        for l in lanes(m) {
            let wide = crate::num::convert(t, cx.w.u32(x, l).into(), &F32, Cvt::with(Rounding::Rn));
            let v = u64::from(cx.w.u32(y, l));
            let v = if subtract { arith::sub(&F32, wide, v, c) } else { arith::add(&F32, wide, v, c) };
            cx.w.set32(d, l, v as u32);
        }
        Ok(Flow::Next)
    }))
}

fn min_max(b: &mut Build<'_>) -> R<Exec> {
    let (t, n) = format_of(b)?;
    let how = MinMax {
        max: b.inst.opcode.starts_with("max"),
        ftz: has(b, "ftz"),
        nan: has(b, "NaN"),
        xorsign_abs: has(b, "xorsign"),
    };
    let bytes = t.bits / 8 * n;
    if b.len() == 4 && t.bits == 32 {
        return map3(b, [4; 4], move |x, y, z| arith::min_max(t, arith::min_max(t, x, y, how), z, how));
    }
    map2(b, bytes, move |x, y| parts(t, n, x, y, 0, |x, y, _| arith::min_max(t, x, y, how)))
}

fn sign(b: &mut Build<'_>) -> R<Exec> {
    let (t, n) = format_of(b)?;
    let bytes = t.bits / 8 * n;
    let flush = has(b, "ftz");
    let neg = b.inst.opcode.starts_with("neg");
    map1(b, bytes, move |x| {
        parts(t, n, x, 0, 0, |x, _, _| {
            let x = if flush && t.is_subnormal(x) { x & t.sign_bit() } else { x };
            if neg { x ^ t.sign_bit() } else { x & !t.sign_bit() }
        })
    })
}

fn copysign(b: &mut Build<'_>) -> R<Exec> {
    let (t, _) = format_of(b)?;
    map2(b, t.bits / 8, move |x, y| y & !t.sign_bit() | x & t.sign_bit())
}

fn div(b: &mut Build<'_>) -> R<Exec> {
    let (t, _) = format_of(b)?;
    let (kind, ftz) = (b.ms(0), has(b, "ftz"));
    if matches!(kind, "approx" | "full") {
        let full = kind == "full";
        return map2(b, 4, move |x, y| bits(crate::num::approx::div_f32(f(x), f(y), full, ftz)));
    }
    let c = mode(b, kind);
    map2(b, t.bits / 8, move |x, y| arith::div(t, x, y, c))
}

fn root(b: &mut Build<'_>) -> R<Exec> {
    let (t, _) = format_of(b)?;
    let c = mode(b, b.ms(0));
    if b.inst.opcode.starts_with("rcp") {
        return map1(b, t.bits / 8, move |x| arith::rcp(t, x, c));
    }
    map1(b, t.bits / 8, move |x| arith::sqrt(t, x, c))
}

fn approx(b: &mut Build<'_>) -> R<Exec> {
    let (t, n) = format_of(b)?;
    let name = b.inst.opcode.split('.').next().unwrap_or("");
    let Some(fun) = Fun::by_name(name) else { return Err(b.error("P011", "not an approximate function")) };
    let ftz = has(b, "ftz");
    map1(b, t.bits / 8 * n, move |x| parts(t, n, x, 0, 0, |x, _, _| fun.eval(t, x, ftz)))
}

fn test(b: &mut Build<'_>) -> R<Exec> {
    b.count(2)?;
    let (t, _) = format_of(b)?;
    let kind = b.ms(0).to_string();
    let bytes = t.bits / 8;
    let (d, x) = (b.operand(0)?, b.src(1, bytes)?);
    let d = b.pred_dst(d)?;
    Ok(Box::new(move |cx, m| {
        let mut r = 0;
        for l in lanes(m) {
            let v = get(cx, x, bytes, l);
            let y = crate::num::convert::f64_from(t, v);
            let yes = match kind.as_str() {
                "finite" => y.is_finite(),
                "infinite" => y.is_infinite(),
                "number" => !y.is_nan(),
                "notanumber" => y.is_nan(),
                "normal" => y.is_finite() && y != 0.0 && !t.is_subnormal(v),
                _ => t.is_subnormal(v),
            };
            r |= u32::from(yes) << l;
        }
        if let Some(d) = d {
            cx.w.set_pred(d, m, r);
        }
        Ok(Flow::Next)
    }))
}

/// `fma.rn.relu` and others on packed halves share [`parts`]; this is only `neg`/`abs` of b16 pairs.
fn half_sign(b: &mut Build<'_>) -> R<Exec> {
    let neg = b.inst.opcode.starts_with("neg");
    b.count(2)?;
    let (d, x) = (b.dst(0, 4)?, b.src(1, 4)?);
    Ok(Box::new(move |cx, m| {
        for l in lanes(m) {
            let v = cx.w.u32(x, l);
            let v = if neg { half::neg2(v) } else { half::abs2(v) };
            set(cx, d, 4, l, v.into());
        }
        Ok(Flow::Next)
    }))
}

const _: (&Format, &Format) = (&F16, &BF16);

/// Rows of this family.
pub const ROWS: &[Row] = &[
    row("add.{rn,rz,rm,rp}?.ftz?.sat?.{f16,f16x2,bf16,bf16x2,f32,f32x2,f64}", arith2),
    row("sub.{rn,rz,rm,rp}?.ftz?.sat?.{f16,f16x2,bf16,bf16x2,f32,f32x2,f64}", arith2),
    row("mul.{rn,rz,rm,rp}?.ftz?.sat?.{f16,f16x2,bf16,bf16x2,f32,f32x2,f64}", arith2),
    row("add.{rn,rz,rm,rp}?.sat?.f32.{f16,bf16}", add_mixed),
    row("sub.{rn,rz,rm,rp}?.sat?.f32.{f16,bf16}", add_mixed),
    row("fma.{rn,rz,rm,rp}.ftz?.{sat,relu}?.{f16,f16x2,bf16,bf16x2,f32,f32x2,f64}", fma),
    row("mad.{rn,rz,rm,rp}.ftz?.sat?.{f32,f64}", fma),
    row("fma.{rn,rz,rm,rp}.sat?.f32.{f16,bf16}", fma_mixed),
    row("min.ftz?.NaN?.xorsign?.abs?.{f16,f16x2,bf16,bf16x2,f32,f64}", min_max),
    row("max.ftz?.NaN?.xorsign?.abs?.{f16,f16x2,bf16,bf16x2,f32,f64}", min_max),
    row("neg.ftz?.{f16,bf16,f32,f64}", sign),
    row("abs.ftz?.{f16,bf16,f32,f64}", sign),
    row("neg.{f16x2,bf16x2}", half_sign),
    row("abs.{f16x2,bf16x2}", half_sign),
    row("copysign.{f32,f64}", copysign),
    row("div.{approx,full}.ftz?.f32", div),
    row("div.{rn,rz,rm,rp}.ftz?.{f32,f64}", div),
    row("rcp.{rn,rz,rm,rp}.ftz?.{f32,f64}", root),
    row("sqrt.{rn,rz,rm,rp}.ftz?.{f32,f64}", root),
    row("rcp.approx.ftz?.f32", approx),
    row("sqrt.approx.ftz?.f32", approx),
    row("rsqrt.approx.ftz?.f32", approx),
    row("sin.approx.ftz?.f32", approx),
    row("cos.approx.ftz?.f32", approx),
    row("lg2.approx.ftz?.f32", approx),
    row("ex2.approx.ftz?.{f32,f16,f16x2,bf16,bf16x2}", approx),
    row("tanh.approx.{f32,f16,f16x2,bf16,bf16x2}", approx),
    row("testp.{finite,infinite,number,notanumber,normal,subnormal}.{f32,f64}", test),
];
