//! Fences.
//!
//! A proxy fence publishes to the asynchronous proxy all ordinary accesses it is ordered after; of
//! the lanes of its warp that do not take part, only those before the warp last synchronised. It and
//! `fence.mbarrier_init` also make mbarriers known there that asynchronous operations are to signal.
//! tcgen05 fences move tensor-memory order in and out of thread synchronisation.
//! Source: PTX ISA, "membar, fence", "Memory Consistency Model: Proxies", "tcgen05.fence".

use crate::decode::build::Build;
use crate::decode::table::{Row, row};
use crate::decode::{Exec, R};
use crate::detect::clock::Scope;
use crate::exec::Flow;
use std::rc::Rc;

fn mbarrier_init(b: &mut Build<'_>) -> R<Exec> {
    b.count(0)?;
    Ok(Box::new(|cx, m| {
        if cx.cta.det.on.races && cx.cta.clustered() {
            let (w, own) = (cx.w.id, cx.own(m));
            let k = cx.know();
            k.i.join(&k.g);
            own.raise(&mut k.i, w);
        }
        cx.publish_mbarriers(m);
        Ok(Flow::Next)
    }))
}

fn proxy(b: &mut Build<'_>) -> R<Exec> {
    b.count(0)?;
    let global = b.ms(0) == "global";
    Ok(Box::new(move |cx, m| {
        if cx.cta.det.on.races {
            let w = cx.w.id as usize;
            let own = cx.own(m);
            let k = cx.know();
            let g = k.g.clone();
            k.p.join(&g);
            own.raise(&mut k.p, w as u32);
            for (_, v) in &mut k.foreign {
                v.p.join(&v.g);
            }
            if !global {
                cx.publish_mbarriers(m);
            }
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

/// A memory fence: relaxed atomics after it hand over what was known here, those before it are
/// taken in here, as far as the fence's scope has the other side.
fn memory(b: &mut Build<'_>) -> R<Exec> {
    b.count(0)?;
    let scope = Scope::of(&b.inst.opcode).unwrap_or(Scope::Device);
    Ok(Box::new(move |cx, m| {
        if cx.cta.det.on.races {
            let read = std::mem::take(&mut cx.know().fence_in);
            let (know, det) = (&mut cx.w.frags[cx.f].know, &cx.cta.det);
            for s in read {
                if scope.min(s.scope) >= det.reach(s.cta) {
                    know.acquire_of(s.cta, det.cta, &s.what);
                } else {
                    know.fence_in.push(s);
                }
            }
            let r = Some(Rc::new(cx.release(m)));
            let fences = &mut cx.know().fence_out;
            fences[..=scope as usize].fill(r);
        }
        Ok(Flow::Next)
    }))
}

/// Rows of this family.
pub const ROWS: &[Row] = &[
    row("fence.mbarrier_init.release.cluster", mbarrier_init),
    row("fence.{acq_rel,sc,acquire,release}?.{cta,cluster,gpu,sys}", memory),
    row("membar.{cta,gl,sys}", memory),
    row("fence.proxy.async.{global,shared::cta,shared::cluster}?", proxy),
    row("fence.proxy.tensormap::generic.{release,acquire,acq_rel}.{cta,cluster,gpu,sys}", tensormap),
    row("tcgen05.fence::before_thread_sync", before),
    row("tcgen05.fence::after_thread_sync", after),
];
