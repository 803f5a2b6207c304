//! Conversions between types.
//! Source: PTX ISA, "cvt", "cvt.pack" and "cvta".

use super::Flow;
use super::cx::lanes;
use super::float::rounding;
use super::int::{get, set, sx};
use crate::decode::build::Build;
use crate::decode::table::{Row, row};
use crate::decode::{Exec, LOCAL_WINDOW, PARAM_WINDOW, R, SHARED_WINDOW};
use crate::num::format::F32;
use crate::num::int::{Int, float_to_int, int_to_float, int_to_int, round_integral};
use crate::num::{Cvt, Format, Rounding, convert};
use crate::parse::type_bytes;

fn has(b: &Build<'_>, m: &str) -> bool {
    b.inst.opcode.split('.').any(|x| x == m)
}

/// Scalar conversions.
fn scalar(b: &mut Build<'_>) -> R<Exec> {
    b.count(2)?;
    let mut types = b.inst.opcode.rsplit('.');
    let (st, dt) = (types.next().unwrap_or(""), types.next().unwrap_or(""));
    let mods: Vec<&str> = b.inst.opcode.split('.').skip(1).collect();
    let mode = mods
        .iter()
        .copied()
        .find(|m| matches!(*m, "rn" | "rz" | "rm" | "rp" | "rna" | "rni" | "rzi" | "rmi" | "rpi"));
    let bytes = |t: &str| if t == "tf32" { 4 } else { type_bytes(t).unwrap_or(4) };
    let (sb, db) = (bytes(st), bytes(dt));
    let integral = mode.is_some_and(|m| m.ends_with('i'));
    let mut how = Cvt::with(rounding(mode.unwrap_or("rn")));
    how.ftz = has(b, "ftz");
    how.sat = has(b, "sat");
    how.relu = has(b, "relu");
    how.satfinite = has(b, "satfinite");
    let sat = how.sat;
    let f: Box<dyn Fn(u64) -> u64 + Send + Sync> =
        match (Format::by_name(st), Int::by_name(st), Format::by_name(dt), Int::by_name(dt)) {
            (Some(s), _, Some(d), _) if integral && s.name == d.name => {
                Box::new(move |x| round_integral(s, x, how.rounding, how))
            }
            (Some(s), _, Some(d), _) if !integral => {
                if d.bits < s.bits && mode.is_none() {
                    return Err(b.error("P011", "a narrowing conversion needs a rounding"));
                }
                Box::new(move |x| convert(s, x, d, how))
            }
            (Some(s), _, _, Some(d)) if integral => {
                Box::new(move |x| float_to_int(s, x, d, how.rounding, how.ftz))
            }
            (_, Some(s), Some(d), _) if mode.is_some() && !integral => {
                Box::new(move |x| int_to_float(s, x, d, how))
            }
            (_, Some(s), _, Some(d)) if mode.is_none() => Box::new(move |x| int_to_int(s, x, d, sat)),
            _ => return Err(b.error("P011", "types and rounding do not fit")),
        };
    let o = b.operand(1)?;
    let x = b.src_wide(o, sb)?;
    let o = b.operand(0)?;
    let (d, have) = b.dest_wide(o, db)?;
    let signed = dt.starts_with('s');
    let mask = if sb == 8 { u64::MAX } else { (1 << (8 * sb)) - 1 };
    Ok(Box::new(move |cx, m| {
        for l in lanes(m) {
            let v = f(get(cx, x, sb, l) & mask);
            // A wider destination register is filled by extension.
            let v = if have > db && signed { sx(v, db) as u64 } else { v };
            set(cx, d, have, l, v);
        }
        Ok(Flow::Next)
    }))
}

/// Two f32 to a packed pair: the first source becomes the upper half.
fn pack(b: &mut Build<'_>) -> R<Exec> {
    b.count(3)?;
    let ty = b.inst.opcode.split('.').rev().nth(1).unwrap_or("");
    let Some(dst) = ty.strip_suffix("x2").and_then(Format::by_name) else {
        return Err(b.error("P011", "not a packed type"));
    };
    let mut how = Cvt::with(rounding(b.ms(0)));
    how.relu = has(b, "relu");
    how.satfinite = has(b, "satfinite");
    let width = crate::num::convert::part_bits(dst) * 2 / 8;
    let (x, y) = (b.src(1, 4)?, b.src(2, 4)?);
    let o = b.operand(0)?;
    let d = b.dest(o, width)?;
    Ok(Box::new(move |cx, m| {
        for l in lanes(m) {
            let v = crate::num::convert::pack2(
                dst,
                f32::from_bits(cx.w.u32(x, l)),
                f32::from_bits(cx.w.u32(y, l)),
                how,
            );
            set(cx, d, width, l, v.into());
        }
        Ok(Flow::Next)
    }))
}

/// Between packed pairs.
fn repack(b: &mut Build<'_>) -> R<Exec> {
    b.count(2)?;
    let mut types = b.inst.opcode.rsplit('.');
    let mut one = || types.next().and_then(|t| t.strip_suffix("x2")).and_then(Format::by_name);
    let (Some(s), Some(dst)) = (one(), one()) else { return Err(b.error("P011", "not packed types")) };
    let mut how = Cvt::with(rounding(b.ms(0)));
    how.relu = has(b, "relu");
    how.satfinite = has(b, "satfinite");
    let (sw, dw) = (crate::num::convert::part_bits(s), crate::num::convert::part_bits(dst));
    let (x, d) = (b.src(1, sw * 2 / 8)?, b.dst(0, dw * 2 / 8)?);
    Ok(Box::new(move |cx, m| {
        for l in lanes(m) {
            let p = crate::num::convert::unpack2(s, cx.w.u32(x, l));
            let v = convert(s, p[0], dst, how) | convert(s, p[1], dst, how) << dw;
            set(cx, d, dw * 2 / 8, l, v);
        }
        Ok(Flow::Next)
    }))
}

/// `cvta` between a space and generic addresses.
fn cvta(b: &mut Build<'_>) -> R<Exec> {
    b.count(2)?;
    let (to, space) = (b.m(0).is_some(), b.ms(1));
    let window = match space {
        "param" => PARAM_WINDOW,
        "shared" | "shared::cta" | "shared::cluster" => SHARED_WINDOW,
        "local" => LOCAL_WINDOW,
        _ => 0,
    };
    let o = b.operand(1)?;
    let sb = b.width(o).unwrap_or(8);
    let (x, d) = (b.source(o, sb)?, b.dst(0, 8)?);
    Ok(Box::new(move |cx, m| {
        for l in lanes(m) {
            let v = get(cx, x, sb, l);
            cx.w.set64(d, l, if to { v.wrapping_sub(window) } else { v.wrapping_add(window) });
        }
        Ok(Flow::Next)
    }))
}

const _: (&Format, Rounding) = (&F32, Rounding::Rn);

/// Rows of this family.
pub const ROWS: &[Row] = &[
    row("cvt.{rn,rz}.relu?.satfinite?.{f16x2,bf16x2}.f32", pack),
    row("cvt.rn.satfinite.relu?.{e4m3x2,e5m2x2,e2m1x2,e2m3x2,e3m2x2}.f32", pack),
    row("cvt.{rz,rp}.satfinite?.ue8m0x2.f32", pack),
    row("cvt.rn.satfinite.relu?.{e4m3x2,e5m2x2}.{f16x2,bf16x2}", repack),
    row("cvt.rn.relu?.f16x2.{e4m3x2,e5m2x2,e2m1x2,e2m3x2,e3m2x2}", repack),
    row("cvt.rn.bf16x2.ue8m0x2", repack),
    row("cvt.{rn,rz,rna}.relu?.satfinite?.tf32.f32", scalar),
    row(
        "cvt.{rn,rz,rm,rp,rna,rni,rzi,rmi,rpi}?.ftz?.sat?.relu?.satfinite?.{f16,bf16,f32,f64,u8,s8,u16,s16,u32,s32,u64,s64}.{f16,bf16,f32,f64,u8,s8,u16,s16,u32,s32,u64,s64}",
        scalar,
    ),
    row("cvta.to?.{global,shared,shared::cta,shared::cluster,param,local,const}.u64", cvta),
];
