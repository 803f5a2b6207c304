//! Tensor copies: `cp.async.bulk.tensor`, `cp.reduce.async.bulk.tensor`.
//!
//! Issue decodes the box into runs of bytes and checks bounds and alignment; the bytes of a load's
//! destination hold no value until it completes.
//! Source: PTX ISA, "cp.async.bulk.tensor", "cp.reduce.async.bulk.tensor".

use super::{Load, Order, Site, Source, Store};
use crate::decode::build::Build;
use crate::decode::table::{Row, row};
use crate::decode::{Exec, R};
use crate::detect::Agent;
use crate::exec::Flow;
use crate::exec::cx::Cx;
use crate::exec::{Trap, X};
use crate::layout::tma::{Piece, RedOp};
use crate::layout::tma_map::TensorMap;
use crate::mem::cta::Cta;
use crate::mem::global::Memory;

impl Cta {
    /// Checks that pieces lie in shared memory.
    fn check_pieces(&self, pieces: &[Piece], mem: &Memory) -> X<()> {
        for p in pieces {
            self.smem.check(p.smem, p.bytes, 1, "bulk copy")?;
            if let Some(g) = p.global {
                mem.slice(g, p.bytes)?;
            }
        }
        Ok(())
    }

    /// Requires that one more operation of so many pieces may be under way beside a warp's `own` ones.
    fn room(&self, own: usize, pieces: usize, most: u32) -> X<()> {
        let queued: usize = self.pipes.values().map(|p| p.len()).sum();
        let operations = self.loads.len() + self.stores.len() + self.copies.len() + queued + own;
        let loads = self.loads.iter().map(|l| l.order.pieces.len());
        let parts = loads.chain(self.stores.iter().map(|s| s.pieces.len()));
        let most = most as usize;
        if operations >= most || pieces + parts.sum::<usize>() > most.saturating_mul(256) {
            return Err(Trap::new(
                "limit.in_flight",
                format!("{operations} asynchronous operations are under way, {most} are allowed"),
            ));
        }
        Ok(())
    }
}

impl Cx<'_> {
    /// This instruction as the place of issue.
    pub fn site(&self) -> Site {
        Site { pc: self.pc, line: self.inst.line, warp: self.w.id }
    }

    /// Requires that one more operation of so many pieces may be under way.
    pub fn room(&self, pieces: usize) -> X<()> {
        let own = self.w.moves.len() + self.w.wgmma.ops.len();
        self.cta.room(own, pieces, self.env.max_in_flight)
    }

    /// Notes a copy for the statistics, if they are kept.
    pub fn note_bulk(&mut self, pieces: &[Piece]) {
        if let Some(stats) = &mut self.stats {
            stats.bulk(pieces.iter().filter_map(|p| Some((p.global?, p.bytes))));
        }
    }

    /// Queues a load into the shared memory of a CTA of the cluster.
    pub fn issue_load(&mut self, lane: usize, rank: u32, order: Order) -> X<()> {
        let (w, own) = (self.w.id, self.own(1 << lane));
        let (from, most, site) = (self.cta.det.cta, self.env.max_in_flight, self.site());
        let mbar = order.signal.0;
        self.room(order.pieces.len())?;
        // What the operation is ordered after.
        let know = self.cta.det.on.races.then(|| {
            let mut k = self.w.frags[self.f].know.clone();
            own.raise(&mut k.g, w);
            self.cta.det.clocks[w as usize] += 1;
            k
        });
        let cta = self.peers.of_rank(self.cta, rank)?;
        let to = cta.det.cta;
        if to != from {
            cta.room(0, order.pieces.len(), most)?;
        }
        cta.check_pieces(&order.pieces, self.mem)?;
        cta.mbarrier(mbar)?;
        for p in &order.pieces {
            if cta.smem.in_mbarrier(p.smem, p.bytes) {
                return Err(Trap::new("barrier.bytes", format!("load into an mbarrier at {:#x}", p.smem)));
            }
            if !matches!(order.source, Source::Reduce(..)) {
                cta.smem.define(p.smem, p.bytes, false);
            }
        }
        let ticket = match know {
            Some(k) => {
                let k = if to == from { k } else { k.moved(from, to) };
                let agent = cta.det.load_agent(&k)?;
                cta.det.ticket(k, agent)
            }
            None => Default::default(),
        };
        cta.check_published(mbar, &ticket)?;
        let id = cta.op_id();
        cta.loads.push(Load { id, ticket, from, order, site });
        self.log("load issued", mbar.into());
        Ok(())
    }

    /// Queues a store.
    pub fn issue_store(
        &mut self,
        lane: usize,
        pieces: Vec<Piece>,
        reduce: Option<(RedOp, TensorMap)>,
    ) -> X<()> {
        self.room(pieces.len())?;
        self.cta.check_pieces(&pieces, self.mem)?;
        let (w, thread) = (self.w.id, self.w.id * 32 + lane as u32);
        let own = self.own(1 << lane);
        let know = &self.w.frags[self.f].know;
        let det = &mut self.cta.det;
        let (reading, writing) = if det.on.races {
            let (a, b) = (det.agent(Agent::StoreRead(thread)), det.agent(Agent::StoreWrite(thread)));
            (det.issue(w, know, a, own), det.issue(w, know, b, own))
        } else {
            Default::default()
        };
        self.note_bulk(&pieces);
        let (id, site) = (self.cta.op_id(), self.site());
        let reduce = reduce.map(|(op, m)| (op, m.elem));
        self.cta.stores.push(Store {
            id,
            reading,
            writing,
            pieces,
            reduce,
            stage: 0,
            data: Vec::new(),
            thread,
            group: None,
            read_waited: false,
            site,
        });
        self.log("store issued", id);
        Ok(())
    }
}

fn rank(b: &Build<'_>) -> usize {
    b.inst.opcode.split('.').find_map(|m| m.strip_suffix('d').and_then(|n| n.parse().ok())).unwrap_or(1)
}

fn coords(cx: &Cx<'_>, c: &[crate::decode::Col], l: usize) -> Vec<i32> {
    c.iter().map(|&c| cx.w.u32(c, l) as i32).collect()
}

fn load(b: &mut Build<'_>) -> R<Exec> {
    b.visible();
    let hint = b.inst.opcode.contains("cache_hint");
    let multicast = b.inst.opcode.contains("multicast");
    let own = b.own_shared();
    if own && multicast {
        return Err(b.error("P011", "a copy into the CTA alone has no multicast"));
    }
    b.count(3 + usize::from(multicast) + usize::from(hint))?;
    // Four rows by number: the column and the rows are the coordinates.
    let gather = b.inst.opcode.contains("gather4");
    let n = if gather { 5 } else { rank(b) };
    let dst = b.mem(0)?;
    let (map, c) = b.tensor(1, n)?;
    let mbar = b.mem(2)?;
    let mask = if multicast { Some(b.src(3, 2)?) } else { None };
    if hint {
        b.src(3 + usize::from(multicast), 8)?;
    }
    Ok(Box::new(move |cx, m| {
        for l in crate::exec::cx::lanes(m) {
            let t = cx.tensor_map(cx.w.address(map, l))?;
            let (smem, bar) = (cx.place_in_shared(dst, l, own)?, cx.place_in_shared(mbar, l, own)?);
            let (ranks, smem, bar) = cx.targets(smem, bar, mask.map(|c| cx.w.u32(c, l)))?;
            let at = coords(cx, &c, l);
            let mut pieces = Vec::new();
            let mut bytes = t.tx_bytes();
            if let (true, Ok(rows)) = (gather, <&[i32; 5]>::try_from(&at[..])) {
                t.row_gather(rows, smem, &mut pieces)?;
                bytes *= 4;
            } else {
                rank_fits(&t, n)?;
                t.pieces(&at, smem, false, &mut pieces)?;
            }
            cx.note_bulk(&pieces);
            for rank in ranks {
                let (pieces, signal) = (pieces.clone(), (bar, bytes));
                cx.issue_load(l, rank, Order { pieces, map: Some(t), signal, source: Source::Global })?;
            }
        }
        Ok(Flow::Next)
    }))
}

fn rank_fits(t: &TensorMap, n: usize) -> X<()> {
    if t.rank == n {
        Ok(())
    } else {
        Err(Trap::new("tma.map", format!("{n} coordinates for a tensor map of rank {}", t.rank)))
    }
}

fn store(b: &mut Build<'_>) -> R<Exec> {
    b.visible();
    let hint = b.inst.opcode.contains("cache_hint");
    b.count(if hint { 3 } else { 2 })?;
    let n = rank(b);
    let (map, c) = b.tensor(0, n)?;
    let src = b.mem(1)?;
    if hint {
        b.src(2, 8)?;
    }
    let op = if b.inst.opcode.starts_with("cp.reduce") {
        let name = b.inst.opcode.split('.').find(|m| RedOp::by_name(m).is_some()).unwrap_or("");
        Some(RedOp::by_name(name).ok_or_else(|| b.error("P011", "no reduction"))?)
    } else {
        None
    };
    Ok(Box::new(move |cx, m| {
        for l in crate::exec::cx::lanes(m) {
            let t = cx.tensor_map(cx.w.address(map, l))?;
            let smem = cx.shared_address(src, l)?;
            let at = coords(cx, &c, l);
            rank_fits(&t, n)?;
            t.check_box(&at, smem, true)?;
            if let Some(op) = op
                && !op.allowed(t.elem)
            {
                return Err(Trap::new("tma.map", format!("reduction {op:?} of {:?}", t.elem)));
            }
            let mut pieces = Vec::new();
            t.pieces(&at, smem, true, &mut pieces)?;
            // Elements outside the tensor are not written, and their source need not be defined.
            pieces.retain(|p| p.global.is_some());
            cx.issue_store(l, pieces, op.map(|o| (o, t)))?;
        }
        Ok(Flow::Next)
    }))
}

fn prefetch(b: &mut Build<'_>) -> R<Exec> {
    let n = rank(b);
    let (map, _) = b.tensor(0, n)?;
    Ok(Box::new(move |cx, m| {
        for l in crate::exec::cx::lanes(m) {
            cx.tensor_map(cx.w.address(map, l))?;
        }
        Ok(Flow::Next)
    }))
}

/// Rows of this family.
pub const ROWS: &[Row] = &[
    row(
        "cp.async.bulk.tensor.{1d,2d,3d,4d,5d}.{shared::cta,shared::cluster}.global.tile?.mbarrier::complete_tx::bytes.multicast::cluster?.L2::cache_hint?",
        load,
    ),
    row(
        "cp.async.bulk.tensor.2d.{shared::cta,shared::cluster}.global.tile::gather4.mbarrier::complete_tx::bytes.multicast::cluster?.L2::cache_hint?",
        load,
    ),
    row("cp.async.bulk.tensor.{1d,2d,3d,4d,5d}.global.shared::cta.tile?.bulk_group.L2::cache_hint?", store),
    row(
        "cp.reduce.async.bulk.tensor.{1d,2d,3d,4d,5d}.global.shared::cta.{add,min,max,inc,dec,and,or,xor}.tile?.bulk_group.L2::cache_hint?",
        store,
    ),
    row("cp.async.bulk.prefetch.tensor.{1d,2d,3d,4d,5d}.L2.global.tile?", prefetch),
];
