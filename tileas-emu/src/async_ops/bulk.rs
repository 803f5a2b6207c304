//! Bulk copies without a tensor map, and bulk groups.
//!
//! Groups are per thread. A wait completes what it waits for on the spot: that is the latest moment
//! the machine may take.
//! Source: PTX ISA, "cp.async.bulk", "cp.async.bulk.commit_group", "cp.async.bulk.wait_group".

use super::Pending;
use crate::decode::build::Build;
use crate::decode::table::{Row, row};
use crate::decode::{Exec, R};
use crate::exec::cx::lanes;
use crate::exec::{Flow, Trap, X};
use crate::layout::tma::Piece;

fn check(smem: u32, global: u64, bytes: u32) -> X<()> {
    if bytes == 0 || !(u64::from(bytes | smem) | global).is_multiple_of(16) {
        return Err(Trap::new(
            "align",
            format!(
                "bulk copy of {bytes} bytes between {global:#x} and {smem:#x}: all must be multiples of 16"
            ),
        ));
    }
    Ok(())
}

fn load(b: &mut Build<'_>) -> R<Exec> {
    b.visible();
    b.count(4)?;
    let (dst, src, n, mbar) = (b.mem(0)?, b.mem(1)?, b.src(2, 4)?, b.mem(3)?);
    Ok(Box::new(move |cx, m| {
        for l in lanes(m) {
            let (smem, global, bytes) = (cx.shared_address(dst, l)?, cx.w.address(src, l), cx.w.u32(n, l));
            check(smem, global, bytes)?;
            let bar = cx.shared_address(mbar, l)?;
            cx.issue_load(l, vec![Piece { smem, global: Some(global), bytes }], None, bar, bytes)?;
        }
        Ok(Flow::Next)
    }))
}

fn store(b: &mut Build<'_>) -> R<Exec> {
    b.visible();
    b.count(3)?;
    let (dst, src, n) = (b.mem(0)?, b.mem(1)?, b.src(2, 4)?);
    Ok(Box::new(move |cx, m| {
        for l in lanes(m) {
            let (global, smem, bytes) = (cx.w.address(dst, l), cx.shared_address(src, l)?, cx.w.u32(n, l));
            check(smem, global, bytes)?;
            cx.issue_store(l, vec![Piece { smem, global: Some(global), bytes }], None)?;
        }
        Ok(Flow::Next)
    }))
}

fn commit(b: &mut Build<'_>) -> R<Exec> {
    b.count(0)?;
    Ok(Box::new(|cx, m| {
        for l in lanes(m) {
            let thread = cx.w.id * 32 + l as u32;
            let group = cx.cta.op_id();
            for s in cx.cta.stores.iter_mut().filter(|s| s.thread == thread && s.group.is_none()) {
                s.group = Some(group);
            }
            cx.cta.bulk_groups.entry(thread).or_default().push(group);
        }
        cx.log("bulk commit", 0);
        Ok(Flow::Next)
    }))
}

fn wait(b: &mut Build<'_>) -> R<Exec> {
    b.count(1)?;
    b.visible();
    let n = b.imm(0)? as usize;
    let read = b.m(0).is_some();
    Ok(Box::new(move |cx, m| {
        for l in lanes(m) {
            let thread = cx.w.id * 32 + l as u32;
            let Some(groups) = cx.cta.bulk_groups.get_mut(&thread) else { continue };
            let Some(last) = groups.len().checked_sub(n + 1) else { continue };
            let upto = groups[last];
            let stage = if read { 1 } else { 2 };
            let todo: Vec<u64> = cx
                .cta
                .stores
                .iter()
                .filter(|s| s.thread == thread && s.group.is_some_and(|g| g <= upto))
                .map(|s| s.id)
                .collect();
            for id in todo {
                while cx.cta.stores.iter().any(|s| s.id == id && s.stage < stage) {
                    cx.cta.complete(Pending::Store(id), cx.mem, cx.gshadow)?;
                }
                if let Some(s) = cx.cta.stores.iter_mut().find(|s| s.id == id) {
                    s.read_waited = true;
                    let know = &mut cx.w.frags[cx.f].know;
                    if s.reading.know.is_some() {
                        know.g.raise(s.reading.agent, s.reading.clock);
                        if !read {
                            know.g.raise(s.writing.agent, s.writing.clock);
                        }
                    }
                }
            }
            cx.cta.stores.retain(|s| s.stage < 2 || !s.read_waited);
        }
        cx.log(if read { "bulk wait read" } else { "bulk wait" }, n as u64);
        Ok(Flow::Next)
    }))
}

/// Rows of this family.
pub const ROWS: &[Row] = &[
    row("cp.async.bulk.{shared::cta,shared::cluster}.global.mbarrier::complete_tx::bytes", load),
    row("cp.async.bulk.global.shared::cta.bulk_group", store),
    row("cp.async.bulk.commit_group", commit),
    row("cp.async.bulk.wait_group.read?", wait),
];
