//! Bulk copies without a tensor map, and bulk groups.
//!
//! Groups are per thread. A wait completes what it waits for on the spot: that is the latest moment
//! the machine may take.
//! Source: PTX ISA, "cp.async.bulk", "cp.async.bulk.commit_group", "cp.async.bulk.wait_group".

use super::{Order, Pending, Source};
use crate::decode::build::Build;
use crate::decode::table::{Row, row};
use crate::decode::{Exec, R};
use crate::detect::Agent;
use crate::exec::cx::lanes;
use crate::exec::{Flow, Trap, X};
use crate::layout::tma::Piece;
use crate::mem::cta::Cta;

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
    let hint = b.inst.opcode.contains("cache_hint");
    let multicast = b.inst.opcode.contains("multicast");
    let own = b.own_shared();
    if own && multicast {
        return Err(b.error("P011", "a copy into the CTA alone has no multicast"));
    }
    b.count(4 + usize::from(multicast) + usize::from(hint))?;
    let (dst, src, n, mbar) = (b.mem(0)?, b.mem(1)?, b.src(2, 4)?, b.mem(3)?);
    let mask = if multicast { Some(b.src(4, 2)?) } else { None };
    if hint {
        b.src(4 + usize::from(multicast), 8)?;
    }
    Ok(Box::new(move |cx, m| {
        for l in lanes(m) {
            let (smem, bar) = (cx.place_in_shared(dst, l, own)?, cx.place_in_shared(mbar, l, own)?);
            let (ranks, smem, bar) = cx.targets(smem, bar, mask.map(|c| cx.w.u32(c, l)))?;
            let (global, bytes) = (cx.w.address(src, l), cx.w.u32(n, l));
            check(smem, global, bytes)?;
            let pieces = vec![Piece { smem, global: Some(global), bytes }];
            cx.note_bulk(&pieces);
            for rank in ranks {
                let (pieces, signal) = (pieces.clone(), (bar, bytes));
                cx.issue_load(l, rank, Order { pieces, map: None, signal, source: Source::Global })?;
            }
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

/// A committed group of a thread: its number, and the clocks of the thread's stores (reading, writing) so far.
pub type Group = (u64, u32, u32);

/// Groups kept per thread; older ones are forgotten once their stores are.
const KEPT: usize = 64;

fn commit(b: &mut Build<'_>) -> R<Exec> {
    b.count(0)?;
    Ok(Box::new(|cx, m| {
        for l in lanes(m) {
            let thread = cx.w.id * 32 + l as u32;
            let group = cx.cta.op_id();
            for s in cx.cta.stores.iter_mut().filter(|s| s.thread == thread && s.group.is_none()) {
                s.group = Some(group);
            }
            let (read, write) = cx.cta.store_clocks(thread);
            cx.cta.bulk_groups.entry(thread).or_default().push((group, read.1, write.1));
        }
        cx.log("bulk commit", 0);
        Ok(Flow::Next)
    }))
}

impl Cta {
    /// Agents of a thread's stores (reading, writing) and their clocks now.
    fn store_clocks(&mut self, thread: u32) -> ((u16, u32), (u16, u32)) {
        if !self.det.on.races {
            return Default::default();
        }
        let mut at = |a| {
            let a = self.det.agent(a);
            (a, self.det.clocks[usize::from(a)])
        };
        (at(Agent::StoreRead(thread)), at(Agent::StoreWrite(thread)))
    }

    /// Forgets stores that are over and waited for, and a thread's old groups without stores.
    fn forget_stores(&mut self, thread: u32, n: usize) {
        self.stores.retain(|s| s.stage < 2 || !s.read_waited);
        let open = self.stores.iter().filter(|s| s.thread == thread).filter_map(|s| s.group).min();
        if let Some(groups) = self.bulk_groups.get_mut(&thread) {
            let old = groups.len().saturating_sub(n.max(KEPT));
            let done = groups[..old].partition_point(|g| open.is_none_or(|o| g.0 < o));
            groups.drain(..done);
        }
    }
}

fn wait(b: &mut Build<'_>) -> R<Exec> {
    b.count(1)?;
    b.visible();
    let n = usize::try_from(b.imm(0)?).unwrap_or(usize::MAX);
    let read = b.m(0).is_some();
    Ok(Box::new(move |cx, m| {
        for l in lanes(m) {
            let thread = cx.w.id * 32 + l as u32;
            let Some(groups) = cx.cta.bulk_groups.get(&thread) else { continue };
            let Some(last) = groups.len().checked_sub(n.saturating_add(1)) else { continue };
            let (upto, read_clock, write_clock) = groups[last];
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
                    cx.cta.complete(Pending::Store(id), cx.mem, cx.gshadow, &mut cx.peers)?;
                }
                if let Some(s) = cx.cta.stores.iter_mut().find(|s| s.id == id) {
                    s.read_waited = true;
                }
            }
            if cx.cta.det.on.races {
                let (r, w) = cx.cta.store_clocks(thread);
                let know = &mut cx.w.frags[cx.f].know;
                know.g.raise(r.0, read_clock);
                if !read {
                    know.g.raise(w.0, write_clock);
                }
            }
            cx.cta.forget_stores(thread, n);
        }
        cx.log(if read { "bulk wait read" } else { "bulk wait" }, n as u64);
        Ok(Flow::Next)
    }))
}

/// Rows of this family.
pub const ROWS: &[Row] = &[
    row(
        "cp.async.bulk.{shared::cta,shared::cluster}.global.mbarrier::complete_tx::bytes.multicast::cluster?.L2::cache_hint?",
        load,
    ),
    row("cp.async.bulk.global.shared::cta.bulk_group", store),
    row("cp.async.bulk.commit_group", commit),
    row("cp.async.bulk.wait_group.read?", wait),
];
