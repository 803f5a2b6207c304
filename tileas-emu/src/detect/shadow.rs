//! Who last touched which 32-bit cell: the race check.
//!
//! FastTrack: a cell keeps its last write and either one last read or a set of reads that are not
//! ordered among each other. Bytes within the cell are told apart by a mask.
//! Guarantee: two conflicting accesses that are not ordered by the vectors are reported when the
//! second one is applied (a cell keeps one writer, so after a report the run ends).

use super::Who;
use super::clock::{Clock, Know, Released};

/// An access in a cell.
#[derive(Copy, Clone, Default, Debug, PartialEq, Eq)]
pub struct Epoch {
    /// CTA, plus one; 0 means no access.
    pub cta: u32,
    /// Agent in the CTA.
    pub agent: u16,
    /// Bytes of the cell.
    pub mask: u8,
    /// Lane plus one; 0 when the warp acts as a whole.
    pub lane: u8,
    /// Made by the asynchronous proxy.
    pub is_async: bool,
    /// Part of an atomic operation.
    pub atomic: bool,
    /// The agent's clock.
    pub clock: u32,
    /// Instruction.
    pub pc: u32,
}

/// Access order that a memory follows.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Plane {
    /// Shared memory.
    Shared,
    /// Global memory. Whether what other CTAs wrote crossed a proxy fence is not looked at.
    Global,
    /// Tensor memory.
    Tensor,
}

/// Why an access conflicts with an earlier one.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Reason {
    /// Not ordered at all.
    Race,
    /// Of different lanes of a warp, not ordered.
    Lanes,
    /// Ordered, but no proxy fence between.
    Proxy,
    /// Ordered, but without the tcgen05 fences.
    TensorFence,
}

/// A conflict with an earlier access.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Conflict {
    /// What is missing.
    pub reason: Reason,
    /// The earlier access.
    pub prior: Epoch,
    /// Whether the earlier access wrote.
    pub prior_write: bool,
}

#[derive(Copy, Clone, Default, Debug)]
struct Cell {
    write: Epoch,
    read: Epoch,
}

const MANY: u16 = u16::MAX;

/// Cells of one memory.
#[derive(Default, Debug)]
pub struct Shadow {
    /// The CTA, plus one, whose memory it is; 0: of nobody alone.
    owner: u32,
    cells: Vec<Cell>,
    /// Read sets of cells with `read.agent == MANY`; `read.clock` is the index.
    sets: Vec<Vec<Epoch>>,
    free: Vec<u32>,
}

/// Of different CTAs.
#[cold]
fn ordered_across(prior: &Epoch, now: &Epoch, know: &Know, plane: Plane, over: bool) -> Option<Reason> {
    let has = |c: &Clock| c.has(prior.agent, prior.lane, prior.clock);
    let Some(view) = know.of(prior.cta).filter(|v| has(&v.g) || over && has(&v.r)) else {
        return Some(Reason::Race);
    };
    let crossed = plane != Plane::Shared
        || prior.is_async
        || !now.is_async
        || view.p.has(prior.agent, prior.lane, prior.clock);
    (!crossed).then_some(Reason::Proxy)
}

/// Why an access does not come after an earlier one; `over`: it is enough that the earlier one is over.
fn ordered(prior: &Epoch, now: &Epoch, know: &Know, plane: Plane, since: u32, over: bool) -> Option<Reason> {
    if prior.cta == 0 || prior.mask & now.mask == 0 || prior.atomic && now.atomic {
        return None;
    }
    if prior.cta != now.cta {
        return ordered_across(prior, now, know, plane, over);
    }
    if prior.agent == now.agent {
        // Lanes of one store to one place: some lane's value wins.
        let same = prior.pc == now.pc && prior.clock == now.clock;
        let apart =
            prior.lane != now.lane && prior.lane != 0 && now.lane != 0 && prior.clock >= since && !same;
        return apart.then_some(Reason::Lanes);
    }
    if plane == Plane::Tensor {
        if know.t.get(prior.agent) >= prior.clock {
            return None;
        }
        let seen = know.t_in.get(prior.agent) >= prior.clock || know.g.get(prior.agent) >= prior.clock;
        return Some(if seen { Reason::TensorFence } else { Reason::Race });
    }
    let has = |c: &Clock| c.has(prior.agent, prior.lane, prior.clock);
    if !(has(&know.g) || over && has(&know.r)) {
        return Some(Reason::Race);
    }
    // Reads too: on an H100 a bulk copy into a ring overtook the loads of its slot, whose threads had only arrived at the barrier.
    (!prior.is_async && now.is_async && !know.p.has(prior.agent, prior.lane, prior.clock))
        .then_some(Reason::Proxy)
}

impl Shadow {
    /// A shadow of `cells` cells.
    pub fn new(cells: usize) -> Self {
        Self { cells: vec![Cell::default(); cells], ..Self::default() }
    }

    /// The same of memory of a CTA, by its number plus one.
    pub fn of(owner: u32, cells: usize) -> Self {
        Self { owner, ..Self::new(cells) }
    }

    /// Whether it has cells.
    pub fn on(&self) -> bool {
        !self.cells.is_empty()
    }

    fn clear_reads(&mut self, i: usize) {
        let r = &mut self.cells[i].read;
        if r.cta != 0 && r.agent == MANY {
            self.sets[r.clock as usize].clear();
            self.free.push(r.clock);
        }
        *r = Epoch::default();
    }

    /// Forgets the accesses of a cell.
    pub fn reset(&mut self, i: usize) {
        if i < self.cells.len() {
            self.clear_reads(i);
            self.cells[i].write = Epoch::default();
        }
    }

    /// An access by another CTA than `own` (number plus one) that `know` does not include: its cell, and whether it wrote.
    pub fn foreign(&self, own: u32, know: &Released) -> Option<(usize, Epoch, bool)> {
        let late = |e: &Epoch| {
            let view = know.foreign.iter().find(|f| f.0 == e.cta);
            e.cta != 0 && e.cta != own && !view.is_some_and(|v| v.1.g.has(e.agent, e.lane, e.clock))
        };
        self.cells.iter().enumerate().find_map(|(i, c)| {
            let many = c.read.cta != 0 && c.read.agent == MANY;
            let reads = if many { &self.sets[c.read.clock as usize] } else { std::slice::from_ref(&c.read) };
            let read = reads.iter().find(|e| late(e)).map(|e| (i, *e, false));
            // Reads since the last write: an atomic one has seen an atomic write, whatever it has acquired.
            let seen = c.write.atomic && reads.iter().any(|e| e.cta == own && e.atomic);
            read.or_else(|| (late(&c.write) && !seen).then_some((i, c.write, true)))
        })
    }

    /// Checks and records an access of bytes.
    ///
    /// # Errors
    /// The first conflict, with its cell and the access.
    pub fn bytes(
        &mut self,
        at: usize,
        bytes: usize,
        write: bool,
        who: &Who<'_>,
        plane: Plane,
    ) -> Result<(), (usize, Epoch, Conflict)> {
        let (mut at, end) = (at, at + bytes);
        while at < end {
            let cell = at / 4;
            let stop = end.min(4 * cell + 4);
            let mask = ((1u8 << (stop - 4 * cell)) - 1) & !((1u8 << (at - 4 * cell)) - 1);
            let now = Epoch { mask, ..who.epoch };
            self.access(cell, now, write, who.know, plane, who.since).map_err(|c| (cell, now, c))?;
            at = stop;
        }
        Ok(())
    }

    /// Checks and records an access of cell `i`; cells outside are ignored.
    pub fn access(
        &mut self,
        i: usize,
        now: Epoch,
        write: bool,
        know: &Know,
        plane: Plane,
        since: u32,
    ) -> Result<(), Conflict> {
        let Some(&cell) = self.cells.get(i) else { return Ok(()) };
        // For a write to shared memory it is enough that what was before is over: reads, and writes that are done by then, the CTA's own and those of copies, but not stores of
        // other CTAs, which may still be on their way. An atomic reads as well.
        let over = write && !now.atomic && plane == Plane::Shared;
        let done = over && (cell.write.is_async || cell.write.cta == self.owner);
        if let Some(reason) = ordered(&cell.write, &now, know, plane, since, done) {
            return Err(Conflict { reason, prior: cell.write, prior_write: true });
        }
        let r = cell.read;
        // A later read of other bytes must not make those before it younger.
        let joins = |p: &Epoch| {
            p.agent == now.agent && p.cta == now.cta && (p.mask & now.mask != 0 || p.clock == now.clock)
        };
        if write {
            if r.cta != 0 {
                if r.agent == MANY {
                    for p in &self.sets[r.clock as usize] {
                        if let Some(reason) = ordered(p, &now, know, plane, since, over) {
                            return Err(Conflict { reason, prior: *p, prior_write: false });
                        }
                    }
                } else if let Some(reason) = ordered(&r, &now, know, plane, since, over) {
                    return Err(Conflict { reason, prior: r, prior_write: false });
                }
                self.clear_reads(i);
            }
            self.cells[i].write = now;
        } else if r.cta == 0 || joins(&r) {
            // Reads of several lanes count as reads of the whole warp: a lane's later write is then
            // not compared with them.
            let lane = if r.cta == 0 || r.lane == now.lane || r.clock < since { now.lane } else { 0 };
            self.cells[i].read = Epoch { mask: r.mask | now.mask, lane, ..now };
        } else if r.agent == MANY {
            let set = &mut self.sets[r.clock as usize];
            match set.iter_mut().find(|p| joins(p)) {
                Some(p) => *p = Epoch { mask: p.mask | now.mask, ..now },
                None => set.push(now),
            }
        } else {
            let full = Epoch { mask: 15, ..now };
            if ordered(&r, &full, know, plane, since, over).is_none() && r.mask & !now.mask == 0 {
                self.cells[i].read = now;
            } else {
                let k = self.free.pop().unwrap_or(self.sets.len() as u32);
                if k as usize == self.sets.len() {
                    self.sets.push(Vec::new());
                }
                self.sets[k as usize].extend([r, now]);
                self.cells[i].read =
                    Epoch { cta: now.cta, agent: MANY, clock: k, mask: 15, ..Epoch::default() };
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by(agent: u16, clock: u32) -> Epoch {
        Epoch { cta: 1, agent, mask: 15, clock, ..Epoch::default() }
    }

    #[test]
    fn bytes_of_a_cell_that_were_read_at_different_times() {
        let mut s = Shadow::new(1);
        let byte = |mask, agent, clock| Epoch { mask, ..by(agent, clock) };
        let mut know = Know::default();
        s.access(0, byte(1, 0, 1), false, &know, Plane::Shared, 0).unwrap();
        s.access(0, byte(2, 0, 5), false, &know, Plane::Shared, 0).unwrap();
        know.g.raise(0, 1);
        s.access(0, byte(1, 1, 1), true, &know, Plane::Shared, 0).unwrap();
        // The write has cleared what is known of the cell: the other byte is read anew.
        s.access(0, byte(2, 0, 6), false, &know, Plane::Shared, 0).unwrap();
        assert!(s.access(0, byte(2, 1, 2), true, &know, Plane::Shared, 0).is_err());
    }

    #[test]
    fn unordered_write_after_many_reads() {
        let mut s = Shadow::new(1);
        let nothing = Know::default();
        for a in 0..3 {
            s.access(0, by(a, 1), false, &nothing, Plane::Shared, 0).unwrap();
        }
        let mut know = Know::default();
        know.g.raise(0, 1);
        know.g.raise(1, 1);
        let c = s.access(0, by(3, 1), true, &know, Plane::Shared, 0).unwrap_err();
        assert_eq!((c.prior.agent, c.reason), (2, Reason::Race));
        know.g.raise(2, 1);
        s.access(0, by(3, 1), true, &know, Plane::Shared, 0).unwrap();
        assert!(s.access(0, by(4, 1), false, &nothing, Plane::Shared, 0).is_err());
    }

    #[test]
    fn proxy_and_bytes() {
        let mut s = Shadow::new(1);
        let mut know = Know::default();
        s.access(0, Epoch { mask: 3, ..by(0, 1) }, true, &know, Plane::Shared, 0).unwrap();
        s.access(0, Epoch { mask: 12, ..by(1, 1) }, false, &know, Plane::Shared, 0).unwrap();
        know.g.raise(0, 1);
        let engine = Epoch { is_async: true, ..by(2, 1) };
        assert_eq!(s.access(0, engine, false, &know, Plane::Shared, 0).unwrap_err().reason, Reason::Proxy);
        know.p.raise(0, 1);
        s.access(0, engine, false, &know, Plane::Shared, 0).unwrap();
    }

    #[test]
    fn what_is_over_may_be_written_again() {
        use crate::detect::clock::View;
        let other = Epoch { cta: 2, ..by(7, 3) };
        let copy = Epoch { is_async: true, ..other };
        let mut r = Clock::default();
        r.raise(7, 3);
        let know = Know { foreign: vec![(2, View { r, ..View::default() })], ..Know::default() };
        let nothing = Know::default();
        let reason = |first: Epoch, wrote: bool, now: Epoch, write: bool| {
            let mut s = Shadow::of(1, 1);
            s.access(0, first, wrote, &nothing, Plane::Shared, 0).unwrap();
            s.access(0, now, write, &know, Plane::Shared, 0).err().map(|c| c.reason)
        };
        assert_eq!(reason(other, false, by(0, 1), true), None);
        assert_eq!(reason(copy, true, by(0, 1), true), None);
        assert_eq!(reason(copy, true, by(0, 1), false), Some(Reason::Race));
        assert_eq!(reason(other, true, by(0, 1), true), Some(Reason::Race));
        let atomic = Epoch { atomic: true, ..by(0, 1) };
        assert_eq!(reason(copy, true, atomic, true), Some(Reason::Race));
    }
}
