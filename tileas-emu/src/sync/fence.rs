//! Fences.
//!
//! A proxy fence publishes to the asynchronous proxy all ordinary accesses it is ordered after. Lanes
//! of its warp that did not take part and wrote shared memory since the warp's last synchronisation
//! are not ordered before it, so then only what lies before that synchronisation is published.
//! tcgen05 fences move tensor-memory order in and out of thread synchronisation.
//! Source: PTX ISA, "membar, fence", "Memory Consistency Model: Proxies", "tcgen05.fence".

use crate::decode::build::Build;
use crate::decode::table::{Row, row};
use crate::decode::{Exec, R};
use crate::exec::Flow;
use crate::exec::cx::lanes;

fn nothing(b: &mut Build<'_>) -> R<Exec> {
    b.count(0)?;
    Ok(Box::new(|_, _| Ok(Flow::Next)))
}

fn proxy(b: &mut Build<'_>) -> R<Exec> {
    b.count(0)?;
    Ok(Box::new(|cx, m| {
        if cx.cta.det.on.races {
            let w = cx.w.id as usize;
            let own = cx.cta.det.clocks[w];
            let late = lanes(cx.w.live & !m)
                .any(|l| cx.w.lane_write[l] >= cx.w.sync_clock && cx.w.lane_write[l] > 0);
            let own = if late { cx.w.sync_clock.saturating_sub(1) } else { own };
            let k = cx.know();
            let g = k.g.clone();
            k.p.join(&g);
            k.p.raise(w as u16, own);
            cx.cta.det.clocks[w] += 1;
        }
        cx.log("fence.proxy.async", 0);
        Ok(Flow::Next)
    }))
}

fn before(b: &mut Build<'_>) -> R<Exec> {
    b.count(0)?;
    Ok(Box::new(|cx, _| {
        if cx.cta.det.on.races {
            let k = cx.know();
            let t = k.t.clone();
            k.t_out.join(&t);
        }
        Ok(Flow::Next)
    }))
}

fn after(b: &mut Build<'_>) -> R<Exec> {
    b.count(0)?;
    Ok(Box::new(|cx, _| {
        if cx.cta.det.on.races {
            let k = cx.know();
            let t = k.t_in.clone();
            k.t.join(&t);
        }
        Ok(Flow::Next)
    }))
}

fn tensormap(b: &mut Build<'_>) -> R<Exec> {
    if b.len() == 2 {
        b.mem(0)?;
        if b.imm(1)? != 128 {
            return Err(b.error("P017", "the size must be 128"));
        }
    } else {
        b.count(0)?;
    }
    Ok(Box::new(|_, _| Ok(Flow::Next)))
}

/// Rows of this family.
pub const ROWS: &[Row] = &[
    row("fence.mbarrier_init.release.cluster", nothing),
    row("fence.{acq_rel,sc,acquire,release}?.{cta,cluster,gpu,sys}", nothing),
    row("membar.{cta,gl,sys}", nothing),
    row("fence.proxy.async.{global,shared::cta,shared::cluster}?", proxy),
    row("fence.proxy.tensormap::generic.{release,acquire,acq_rel}.{cta,cluster,gpu,sys}", tensormap),
    row("tcgen05.fence::before_thread_sync", before),
    row("tcgen05.fence::after_thread_sync", after),
];
