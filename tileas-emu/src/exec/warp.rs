//! Warp-wide instructions: synchronisation, shuffles, votes, reductions, election.
//!
//! The machine brings the lanes of the member mask together before these execute.
//! Source: PTX ISA, "shfl.sync", "vote.sync", "match.sync", "redux.sync", "elect.sync", "bar.warp.sync".

use super::cx::{Cx, lanes};
use super::int::sx;
use super::{Flow, Trap, X};
use crate::decode::build::Build;
use crate::decode::table::{Row, row};
use crate::decode::{Col, Collective, Exec, R};
use crate::num::arith::{MinMax, min_max};
use crate::num::format::F32;
use crate::parse::ast::Operand;

/// Sets the member mask and returns its column.
fn members(b: &mut Build<'_>, k: usize) -> R<Col> {
    let c = b.src(k, 4)?;
    b.collective(Collective::Mask(c));
    Ok(c)
}

fn warp_sync(b: &mut Build<'_>) -> R<Exec> {
    b.count(1)?;
    let c = b.src(0, 4)?;
    b.collective(Collective::WarpBarrier(c));
    Ok(Box::new(|_, _| Ok(Flow::Next)))
}

fn shfl(b: &mut Build<'_>) -> R<Exec> {
    b.count(5)?;
    let mode = b.ms(0).to_string();
    let (d, p) = match b.operand(0)? {
        Operand::Pair(d, p) => (b.dest(d, 4)?, b.pred_dst(p)?),
        o => (b.dest(o, 4)?, None),
    };
    let (a, x, c) = (b.src(1, 4)?, b.src(2, 4)?, b.src(3, 4)?);
    members(b, 4)?;
    // A lane gets no value where the lane it reads has none.
    b.taints = false;
    Ok(Box::new(move |cx, m| {
        let source = cx.w.regs[usize::from(a)];
        let of = |c: Col| cx.w.taint[usize::from(c)];
        let (none, steered) = (of(a), of(x) | of(c));
        let (mut out, mut ok, mut taint) = ([0u32; 32], 0u32, 0u32);
        for l in lanes(m) {
            let (v, c) = (cx.w.u32(x, l) & 31, cx.w.u32(c, l));
            let (clamp, seg) = (c & 31, c >> 8 & 31);
            let lane = l as u32;
            let (top, low) = ((lane & seg) | (clamp & !seg), lane & seg);
            let (j, inside) = match mode.as_str() {
                "up" => (lane.wrapping_sub(v), lane >= v && lane - v >= top),
                "down" => (lane + v, lane + v <= top),
                "bfly" => (lane ^ v, lane ^ v <= top),
                _ => (low | v & !seg, low | v & !seg <= top),
            };
            let j = if inside { j } else { lane };
            if m >> j & 1 == 0 {
                return Err(Trap::new("shfl", format!("lane {l} reads lane {j}, which does not take part")));
            }
            out[l] = source[j as usize];
            taint |= (none >> j & 1 | steered >> l & 1) << l;
            ok |= u32::from(inside) << l;
        }
        for l in lanes(m) {
            cx.w.set32(d, l, out[l]);
        }
        let t = &mut cx.w.taint[usize::from(d)];
        *t = *t & !m | taint;
        if let Some(p) = p {
            cx.w.set_pred(p, m, ok);
            let t = &mut cx.w.ptaint[usize::from(p)];
            *t = *t & !m | steered & m;
        }
        Ok(Flow::Next)
    }))
}

fn vote(b: &mut Build<'_>) -> R<Exec> {
    b.count(3)?;
    let mode = b.ms(0).to_string();
    let o = b.operand(1)?;
    let p = b.pred(o)?;
    members(b, 2)?;
    let o = b.operand(0)?;
    if mode == "ballot" {
        let d = b.dest(o, 4)?;
        return Ok(Box::new(move |cx, m| {
            let v = cx.w.pred(p) & m;
            for l in lanes(m) {
                cx.w.set32(d, l, v);
            }
            Ok(Flow::Next)
        }));
    }
    let d = b.pred_dst(o)?;
    Ok(Box::new(move |cx, m| {
        let v = cx.w.pred(p) & m;
        let r = match mode.as_str() {
            "all" => v == m,
            "any" => v != 0,
            _ => v == m || v == 0,
        };
        if let Some(d) = d {
            cx.w.set_pred(d, m, if r { u32::MAX } else { 0 });
        }
        Ok(Flow::Next)
    }))
}

fn matching(b: &mut Build<'_>) -> R<Exec> {
    b.count(3)?;
    let (all, wide) = (b.ms(0) == "all", b.ms(1) == "b64");
    let n = if wide { 8 } else { 4 };
    let (d, p) = match b.operand(0)? {
        Operand::Pair(d, p) => (b.dest(d, 4)?, b.pred_dst(p)?),
        o => (b.dest(o, 4)?, None),
    };
    let x = b.src(1, n)?;
    members(b, 2)?;
    Ok(Box::new(move |cx, m| {
        let v: [u64; 32] = std::array::from_fn(|l| super::int::get(cx, x, n, l));
        let mut same = true;
        for l in lanes(m) {
            let equal = lanes(m).filter(|&k| v[k] == v[l]).fold(0u32, |a, k| a | 1 << k);
            same &= equal == m;
            cx.w.set32(d, l, equal);
        }
        if all {
            for l in lanes(m) {
                cx.w.set32(d, l, if same { m } else { 0 });
            }
        }
        if let Some(p) = p {
            cx.w.set_pred(p, m, if same { u32::MAX } else { 0 });
        }
        Ok(Flow::Next)
    }))
}

fn redux(b: &mut Build<'_>) -> R<Exec> {
    b.count(3)?;
    let op = b.ms(0).to_string();
    let ty = b.inst.opcode.rsplit('.').next().unwrap_or("").to_string();
    let nan = b.inst.opcode.contains(".NaN");
    let abs = b.inst.opcode.contains(".abs");
    let (d, x) = (b.dst(0, 4)?, b.src(1, 4)?);
    members(b, 2)?;
    Ok(Box::new(move |cx, m| {
        let mut values = lanes(m).map(|l| u64::from(cx.w.u32(x, l)));
        let fold = |a: u64, v: u64| match (op.as_str(), ty.as_str()) {
            ("min" | "max", "f32") => {
                min_max(&F32, a, v, MinMax { max: op == "max", nan, ..MinMax::default() })
            }
            ("add", _) => a.wrapping_add(v) & 0xFFFF_FFFF,
            ("and", _) => a & v,
            ("or", _) => a | v,
            ("xor", _) => a ^ v,
            ("min", "s32") => sx(a, 4).min(sx(v, 4)) as u64,
            ("max", "s32") => sx(a, 4).max(sx(v, 4)) as u64,
            ("min", _) => a.min(v),
            _ => a.max(v),
        };
        let clean = |v: u64| if abs { v & 0x7FFF_FFFF } else { v };
        let first = values.next().map_or(0, clean);
        let r = values.map(clean).fold(first, fold);
        for l in lanes(m) {
            cx.w.set32(d, l, r as u32);
        }
        Ok(Flow::Next)
    }))
}

/// The leader is the same for a mask every time; which one it is, the seed decides.
fn elect(b: &mut Build<'_>) -> R<Exec> {
    b.count(2)?;
    let (d, p) = match b.operand(0)? {
        Operand::Pair(d, p) => {
            let d = if **d == Operand::Sink { None } else { Some(b.dest(d, 4)?) };
            (d, b.pred_dst(p)?)
        }
        _ => return Err(b.error("P012", "d|p is expected")),
    };
    members(b, 1)?;
    Ok(Box::new(move |cx, m| {
        let leader = leader(cx, m)?;
        for l in lanes(m) {
            if let Some(d) = d {
                cx.w.set32(d, l, leader);
            }
        }
        if let Some(p) = p {
            cx.w.set_pred(p, m, 1 << leader);
        }
        Ok(Flow::Next)
    }))
}

fn leader(cx: &mut Cx<'_>, m: u32) -> X<u32> {
    let nth = cx.cta.elected % m.count_ones().max(1);
    Ok(lanes(m).nth(nth as usize).unwrap_or(0) as u32)
}

fn activemask(b: &mut Build<'_>) -> R<Exec> {
    b.count(1)?;
    let d = b.dst(0, 4)?;
    Ok(Box::new(move |cx, m| {
        for l in lanes(m) {
            cx.w.set32(d, l, m);
        }
        Ok(Flow::Next)
    }))
}

/// Rows of this family.
pub const ROWS: &[Row] = &[
    row("bar.warp.sync", warp_sync),
    row("shfl.sync.{idx,up,down,bfly}.b32", shfl),
    row("vote.sync.{all,any,uni}.pred", vote),
    row("vote.sync.{ballot}.b32", vote),
    row("match.{any,all}.sync.{b32,b64}", matching),
    row("redux.sync.{add,min,max,and,or,xor}.{u32,s32,b32}", redux),
    row("redux.sync.{min,max}.abs?.NaN?.f32", redux),
    row("elect.sync", elect),
    row("activemask.b32", activemask),
];
