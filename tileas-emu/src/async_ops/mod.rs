//! Asynchronous work: what is in flight, and what its completion does.
//!
//! An operation's effect happens when the scheduler completes it, anywhere between its issue and
//! the wait that demands it. Issue checks operands; completion moves data, checks races and signals.
//! What writes shared memory is in flight at the CTA whose memory that is, whichever CTA of the cluster has issued it.

pub mod bulk;
pub mod copy;
pub mod operands;
pub mod remote;
pub mod tcgen05;
pub mod tma;
pub mod tmem_move;
pub mod wgmma;

use crate::detect::clock::Released;
use crate::detect::shadow::Epoch;
use crate::detect::{GlobalShadow, Ticket, Who};
use crate::exec::atomic::Update;
use crate::exec::cx::Peers;
use crate::exec::{Trap, X};
use crate::layout::tma::{Piece, RedOp};
use crate::layout::tma_map::{TensorMap, TmaType};
use crate::mem::cta::Cta;
use crate::mem::global::Memory;
use crate::trace::Lane;
use std::sync::Arc;

/// A load, or another operation that writes shared memory and signals an mbarrier there.
pub struct Order {
    /// Runs of bytes.
    pub pieces: Vec<Piece>,
    /// The map; none for a bulk copy.
    pub map: Option<TensorMap>,
    /// mbarrier and bytes to complete on it.
    pub signal: (u32, u32),
    /// Where the bytes come from.
    pub source: Source,
}

/// Where the bytes of a load come from.
#[derive(Clone)]
pub enum Source {
    /// Global memory.
    Global,
    /// Shared memory of a CTA (number plus one) of the cluster from an address, and the identity of reading it.
    Shared(u32, u32, Ticket),
    /// Registers.
    Registers(Vec<u8>),
    /// Registers, combined with what lies there.
    Reduce(u64, Arc<Update>),
}

/// A TMA or bulk load in flight.
pub struct Load {
    /// Its number.
    pub id: u64,
    /// Its identity for the detectors.
    pub ticket: Ticket,
    /// The CTA (number plus one) that issued it.
    pub from: u32,
    /// What it does.
    pub order: Order,
    /// Where it was issued.
    pub site: Site,
}

/// A TMA or bulk store in flight.
pub struct Store {
    /// Its number.
    pub id: u64,
    /// Identity while reading shared memory.
    pub reading: Ticket,
    /// Identity while writing global memory.
    pub writing: Ticket,
    /// Runs of bytes.
    pub pieces: Vec<Piece>,
    /// Reduction instead of a plain store.
    pub reduce: Option<(RedOp, TmaType)>,
    /// 0: issued, 1: shared memory read, 2: global memory written.
    pub stage: u8,
    /// Bytes read.
    pub data: Vec<u8>,
    /// Issuing thread.
    pub thread: u32,
    /// Number of its group, once committed.
    pub group: Option<u64>,
    /// Whether a wait covered its reading.
    pub read_waited: bool,
    /// Where it was issued.
    pub site: Site,
}

/// An operation of a tensor pipe.
pub struct PipeOp {
    /// Its number.
    pub id: u64,
    /// Its identity for the detectors.
    pub ticket: Ticket,
    /// What it does.
    pub work: tcgen05::Work,
    /// Where it was issued.
    pub site: Site,
}

/// Where an operation was issued.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Site {
    /// Instruction.
    pub pc: u32,
    /// Line in the text.
    pub line: u32,
    /// Warp.
    pub warp: u32,
}

/// Something that can complete next.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub enum Pending {
    /// The load with a number.
    Load(u64),
    /// The oldest operation of a thread's tensor pipe.
    Pipe(u32),
    /// The next stage of the store with a number.
    Store(u64),
    /// The tcgen05.ld or .st of a warp with a number.
    Move(u32, u64),
    /// The oldest wgmma of a warp.
    Wgmma(u32),
    /// The cp.async with a number.
    Copy(u64),
}

impl Cta {
    /// Everything that can complete next, in a fixed order.
    pub fn pending(&self, out: &mut Vec<Pending>) {
        out.clear();
        out.extend(self.loads.iter().map(|l| Pending::Load(l.id)));
        out.extend(self.pipes.iter().filter(|p| !p.1.is_empty()).map(|p| Pending::Pipe(*p.0)));
        out.extend(self.stores.iter().filter(|s| s.stage < 2).map(|s| Pending::Store(s.id)));
        out.extend(self.copies.iter().filter(|c| !c.done).map(|c| Pending::Copy(c.id)));
        for w in self.warps.iter().flatten() {
            out.extend(w.moves.iter().filter(|m| !m.done).map(|m| Pending::Move(w.id, m.id)));
            if !w.wgmma.ops.is_empty() {
                out.push(Pending::Wgmma(w.id));
            }
        }
    }

    /// Where a pending operation was issued.
    pub fn site_of(&self, p: Pending) -> Site {
        let warp = |w: u32| self.warps.get(w as usize).and_then(|w| w.as_ref());
        match p {
            Pending::Load(id) => self.loads.iter().find(|l| l.id == id).map(|l| l.site),
            Pending::Store(id) => self.stores.iter().find(|l| l.id == id).map(|l| l.site),
            Pending::Pipe(t) => self.pipes.get(&t).and_then(|q| q.front()).map(|o| o.site),
            Pending::Move(w, id) => warp(w).and_then(|w| w.moves.iter().find(|m| m.id == id)).map(|m| m.site),
            Pending::Wgmma(w) => warp(w).and_then(|w| w.wgmma.ops.front()).map(|o| o.site),
            Pending::Copy(id) => self.copies.iter().find(|c| c.id == id).map(|c| c.site),
        }
        .unwrap_or_default()
    }

    /// Completes a pending operation (one stage of it, for a store).
    pub fn complete(
        &mut self,
        p: Pending,
        mem: &mut Memory,
        shadow: &mut GlobalShadow,
        peers: &mut Peers<'_>,
    ) -> X<()> {
        self.changed();
        match p {
            Pending::Copy(id) => self.finish_copy(id, mem, shadow),
            Pending::Load(id) => {
                let Some(i) = self.loads.iter().position(|l| l.id == id) else { return Ok(()) };
                let load = self.loads.remove(i);
                self.finish_load(&load, mem, shadow, peers)
            }
            Pending::Store(id) => {
                let Some(i) = self.stores.iter().position(|l| l.id == id) else { return Ok(()) };
                let mut s = self.stores.remove(i);
                let r = self.advance_store(&mut s, mem, shadow);
                self.stores.insert(i, s);
                r
            }
            Pending::Pipe(t) => {
                let Some(op) = self.pipes.get_mut(&t).and_then(|q| q.pop_front()) else { return Ok(()) };
                self.finish_pipe(&op, peers)
            }
            Pending::Move(w, id) => {
                let Some(mut warp) = self.warps[w as usize].take() else { return Ok(()) };
                let r = match warp.moves.iter().position(|m| m.id == id) {
                    Some(i) => tmem_move::finish(self, &mut warp, i),
                    None => Ok(()),
                };
                self.warps[w as usize] = Some(warp);
                r
            }
            Pending::Wgmma(w) => {
                let Some(mut warp) = self.warps[w as usize].take() else { return Ok(()) };
                let r = wgmma::finish_oldest(self, &mut warp);
                self.warps[w as usize] = Some(warp);
                r
            }
        }
    }

    /// What the completion of an operation hands over: itself and all before it.
    pub fn completion(&self, t: &Ticket) -> Released {
        match &t.know {
            None => Released::default(),
            Some(k) => {
                let mut r = k.released();
                r.own.g.raise(t.agent, t.clock);
                r
            }
        }
    }

    fn finish_load(
        &mut self,
        load: &Load,
        mem: &mut Memory,
        shadow: &mut GlobalShadow,
        peers: &mut Peers<'_>,
    ) -> X<()> {
        let mut buffer = Vec::new();
        let order = &load.order;
        let epoch = self.det.ticket_epoch(&load.ticket, load.site.pc);
        // Stores and reductions of threads stay in the generic proxy.
        let (is_async, atomic) = match order.source {
            Source::Global | Source::Shared(..) => (true, false),
            Source::Registers(_) => (false, false),
            Source::Reduce(..) => (false, true),
        };
        let epoch = Epoch { is_async, atomic, ..epoch };
        let mut release = self.completion(&load.ticket);
        let elem = order.map.map_or(1, |m| m.elem.bits().div_ceil(8));
        for p in &order.pieces {
            buffer.clear();
            match &order.source {
                Source::Global => {}
                Source::Shared(cta, from, reading) => {
                    let reader = if *cta == self.det.cta { &mut *self } else { peers.member(*cta)? };
                    buffer = reader.read_bulk(*from, p.bytes, reading, load.site)?;
                    release.raise(*cta, self.det.cta, reading.agent, reading.clock);
                }
                Source::Registers(data) => buffer.extend_from_slice(data),
                Source::Reduce(value, f) => {
                    self.smem.check_defined(p.smem, p.bytes, "red.async")?;
                    let word = |b: &[u8]| b.iter().rev().fold(0u64, |v, &x| v << 8 | u64::from(x));
                    let new = f(word(self.smem.slice(p.smem, p.bytes)), *value, 0).to_le_bytes();
                    buffer.extend_from_slice(&new[..p.bytes as usize]);
                }
            }
            match p.global {
                _ if !buffer.is_empty() => {}
                Some(g) => {
                    buffer.extend_from_slice(mem.slice(g, p.bytes)?);
                    if let Some(k) = &load.ticket.know {
                        shadow.access(&self.det, g, p.bytes, false, &Who { epoch, know: k, since: 0 })?;
                    }
                }
                None => match &order.map {
                    Some(m) => buffer.extend((0..p.bytes).map(|i| m.fill_byte(i % elem))),
                    None => buffer.resize(p.bytes as usize, 0),
                },
            }
            if let Some(m) = &order.map
                && m.elem.bits() == 32
            {
                for w in buffer.chunks_exact_mut(4) {
                    let v = m.load_element(u32::from_le_bytes([w[0], w[1], w[2], w[3]]));
                    w.copy_from_slice(&v.to_le_bytes());
                }
            }
            if let Some(k) = &load.ticket.know {
                self.det.shared(p.smem, p.bytes, true, &Who { epoch, know: k, since: 0 })?;
            }
            if self.smem.in_mbarrier(p.smem, p.bytes) {
                return Err(Trap::new(
                    "barrier.bytes",
                    format!("TMA load overwrites an mbarrier at {:#x}", p.smem),
                ));
            }
            if self.explore {
                self.footprint.bytes(p.smem, p.bytes, true);
            }
            self.smem.write(p.smem, &buffer);
        }
        let (mbar, bytes) = order.signal;
        self.log(Lane::Load, load.site.line, "load complete", mbar.into());
        self.signals(mbar, load.site)?;
        self.receive(mbar, &release, load.from, is_async)?;
        let done = self.transact(mbar, -i64::from(bytes));
        self.det.load_done(load.ticket.agent);
        done
    }

    /// What a bulk copy reads in this CTA's shared memory.
    fn read_bulk(&mut self, from: u32, bytes: u32, reading: &Ticket, site: Site) -> X<Vec<u8>> {
        self.smem.check_defined(from, bytes, "bulk copy")?;
        if self.explore {
            self.footprint.bytes(from, bytes, false);
        }
        if let Some(k) = &reading.know {
            let epoch = self.det.ticket_epoch(reading, site.pc);
            self.det.shared(from, bytes, false, &Who { epoch, know: k, since: 0 })?;
        }
        self.det.load_done(reading.agent);
        Ok(self.smem.slice(from, bytes).to_vec())
    }

    /// Takes a store through its next stage.
    pub fn advance_store(&mut self, s: &mut Store, mem: &mut Memory, shadow: &mut GlobalShadow) -> X<()> {
        if s.stage == 0 {
            s.stage = 1;
            let epoch = self.det.ticket_epoch(&s.reading, s.site.pc);
            for p in &s.pieces {
                self.smem.check_defined(p.smem, p.bytes, "bulk store")?;
                if self.explore {
                    self.footprint.bytes(p.smem, p.bytes, false);
                }
                if let Some(k) = &s.reading.know {
                    self.det.shared(p.smem, p.bytes, false, &Who { epoch, know: k, since: 0 })?;
                }
                s.data.extend_from_slice(self.smem.slice(p.smem, p.bytes));
            }
            self.log(Lane::Store, s.site.line, "store has read", s.id);
        } else if s.stage == 1 {
            s.stage = 2;
            let epoch = self.det.ticket_epoch(&s.writing, s.site.pc);
            let epoch = Epoch { atomic: s.reduce.is_some(), ..epoch };
            let mut at = 0;
            for p in &s.pieces {
                let data = &s.data[at..at + p.bytes as usize];
                at += p.bytes as usize;
                let Some(g) = p.global else { continue };
                mem.changed();
                let out = mem.slice_mut(g, p.bytes)?;
                match s.reduce {
                    None => out.copy_from_slice(data),
                    Some((op, elem)) => reduce(op, elem, out, data),
                }
                self.footprint.global(g, true);
                if let Some(k) = &s.writing.know {
                    shadow.access(&self.det, g, p.bytes, true, &Who { epoch, know: k, since: 0 })?;
                }
            }
            s.data = Vec::new();
            self.log(Lane::Store, s.site.line, "store complete", s.id);
        }
        Ok(())
    }
}

fn reduce(op: RedOp, elem: TmaType, out: &mut [u8], data: &[u8]) {
    let n = (elem.bits() / 8).max(1) as usize;
    let word = |b: &[u8]| b.iter().rev().fold(0u64, |v, &x| v << 8 | u64::from(x));
    for (o, d) in out.chunks_exact_mut(n).zip(data.chunks_exact(n)) {
        let v = op.apply(elem, word(o), word(d)).to_le_bytes();
        o.copy_from_slice(&v[..n]);
    }
}
