//! Addresses of shared memory in a cluster, and the spaces that generic addresses point to.
//!
//! `mapa` makes offsets that name the CTA; any CTA of the cluster may use them. Other offsets are of the CTA that uses
//! them: one that no `mapa` has made and that is handed to another CTA names that one's memory here.
//! Source: PTX ISA, "mapa", "getctarank", "isspacep".

use super::cx::{Cx, Loc, lanes, rank_of};
use super::int::get;
use super::{Flow, Trap, X};
use crate::decode::build::Build;
use crate::decode::table::{Row, row};
use crate::decode::{CLUSTER_WINDOW, Col, Exec, R, SHARED_WINDOW};

impl Cx<'_> {
    /// The shared-window offset that a register holds, as such or as a generic address.
    fn offset(&self, x: Col, bytes: u32, lane: usize, generic: bool) -> X<u32> {
        let v = get(self, x, bytes, lane);
        let at = if generic { v.wrapping_sub(SHARED_WINDOW) } else { v };
        match u32::try_from(at) {
            Ok(at) if at >> 24 == 0 || rank_of(at).is_some() => Ok(at),
            _ => Err(Trap::new("bounds", format!("{v:#x} is no address of shared memory"))),
        }
    }
}

/// Bytes of the type, and whether addresses are generic.
fn form(b: &Build<'_>) -> (u32, bool) {
    (if b.ms(1) == "u64" { 8 } else { 4 }, b.m(0).is_none())
}

fn mapa(b: &mut Build<'_>) -> R<Exec> {
    b.count(3)?;
    let (n, generic) = form(b);
    let (d, x, rank) = (b.dst(0, n)?, b.src(1, n)?, b.src(2, 4)?);
    Ok(Box::new(move |cx, m| {
        for l in lanes(m) {
            let (at, rank) = (cx.offset(x, n, l, generic)?, cx.w.u32(rank, l));
            let all = cx.cta.det.cluster.len();
            if rank as usize >= all {
                return Err(Trap::new("cluster.rank", format!("CTA {rank} of a cluster of {all}")));
            }
            let at = u64::from(CLUSTER_WINDOW | rank << 24 | at & 0xFF_FFFF);
            super::int::set(cx, d, n, l, if generic { at + SHARED_WINDOW } else { at });
        }
        Ok(Flow::Next)
    }))
}

fn rank(b: &mut Build<'_>) -> R<Exec> {
    b.count(2)?;
    let (n, generic) = form(b);
    let (d, x) = (b.dst(0, 4)?, b.src(1, n)?);
    Ok(Box::new(move |cx, m| {
        for l in lanes(m) {
            let at = cx.offset(x, n, l, generic)?;
            cx.w.set32(d, l, rank_of(at).unwrap_or(cx.cta.rank));
        }
        Ok(Flow::Next)
    }))
}

fn is_space(b: &mut Build<'_>) -> R<Exec> {
    b.count(2)?;
    let space = b.ms(0).to_string();
    let o = b.operand(0)?;
    let (p, x) = (b.pred_dst(o)?, b.src(1, 8)?);
    Ok(Box::new(move |cx, m| {
        let mut yes = 0;
        for l in lanes(m) {
            let is = match (cx.generic(cx.w.u64(x, l)), space.as_str()) {
                (Loc::Shared(_), "shared::cluster") => true,
                (Loc::Shared(a), "shared" | "shared::cta") => rank_of(a).is_none(),
                (Loc::Global(_), "global") | (Loc::Local(_), "local") | (Loc::Param(_), "param") => true,
                _ => false,
            };
            yes |= u32::from(is) << l;
        }
        if let Some(p) = p {
            cx.w.set_pred(p, m, yes);
        }
        Ok(Flow::Next)
    }))
}

/// Rows of this family.
pub const ROWS: &[Row] = &[
    row("mapa.{shared::cluster}?.{u32,u64}", mapa),
    row("getctarank.{shared::cluster}?.{u32,u64}", rank),
    row("isspacep.{global,local,param,shared,shared::cta,shared::cluster}", is_space),
];
