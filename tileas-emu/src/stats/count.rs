//! The counting: accesses of an instruction to requests, requests to totals.

use super::{Counts, Kind, Line, Requests, Shared, Stats};

/// Where a lane accesses memory.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// Global memory.
    Global(u64),
    /// Shared memory.
    Shared(u32),
    /// Local memory.
    Local,
}

/// An access of a lane.
#[derive(Copy, Clone, Debug)]
struct Access {
    /// Lane; of a matrix: number of the row, which is the lane that has its address.
    lane: u8,
    place: Place,
    bytes: u32,
}

/// What came of an instruction.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// It was executed.
    Done,
    /// Its predicate was off in all lanes.
    Skipped,
    /// Some lanes branched to an instruction.
    Jumped(u32),
    /// A wait that some lanes have not passed.
    Failed,
    /// It will be executed again, since it cannot be yet.
    Stalled,
}

/// An instruction that a fragment was at.
pub(crate) struct Step {
    /// Its number.
    pub pc: u32,
    /// Its kind.
    pub kind: Kind,
    /// Whether it has a guard.
    pub guarded: bool,
    /// See [`crate::decode::Inst::turns`].
    pub turns: Option<(u32, u32)>,
    /// What came of it.
    pub outcome: Outcome,
}

/// Counts of one instruction of the text.
#[derive(Copy, Clone, Default)]
struct Tally {
    executed: u64,
    polls: u64,
    global: Requests,
    shared: Shared,
}

/// Counts while a launch runs.
#[derive(Default)]
pub(crate) struct Recorder {
    tallies: Vec<Tally>,
    /// Of the instruction under way.
    accesses: Vec<Access>,
    moved: Requests,
    /// Room for the runs of bytes of a request, and for the words of a phase.
    runs: Vec<(u64, u64)>,
    words: Vec<u32>,
    warps: u64,
    total: Counts,
    most: Counts,
}

impl Recorder {
    /// A recorder of a kernel of so many instructions.
    pub fn new(code: usize) -> Self {
        Recorder { tallies: vec![Tally::default(); code], ..Recorder::default() }
    }

    /// A lane, or a row of a matrix, accesses so many bytes.
    pub fn access(&mut self, lane: usize, place: Place, bytes: u32) {
        self.accesses.push(Access { lane: lane as u8, place, bytes });
    }

    /// A bulk copy of runs of global memory.
    pub fn bulk(&mut self, runs: impl Iterator<Item = (u64, u32)>) {
        self.runs.clear();
        self.runs.extend(runs.map(|(at, n)| (at, u64::from(n))));
        let bytes = self.runs.iter().map(|r| r.1).sum();
        let (sectors, _) = touched(&mut self.runs);
        self.moved.add(&Requests { requests: 1, sectors, bytes });
    }

    /// Takes in what a fragment did. `polling` is its loop while it polls; `counts` are its warp's.
    pub fn step(&mut self, s: &Step, polling: &mut Option<(u32, u32)>, counts: &mut Counts) {
        if let Some(tally) = self.tallies.get_mut(s.pc as usize)
            && executes(s, polling, tally)
        {
            self.count(s, counts);
        }
        self.accesses.clear();
        self.moved = Requests::default();
    }

    fn count(&mut self, s: &Step, counts: &mut Counts) {
        let Some(tally) = self.tallies.get_mut(s.pc as usize) else { return };
        tally.executed += 1;
        counts.instructions += 1;
        if s.outcome == Outcome::Skipped {
            return;
        }
        match s.kind {
            Kind::Shuffle => counts.shuffles += 1,
            Kind::Barrier => counts.barriers += 1,
            Kind::Wait => counts.waits += 1,
            Kind::Mma => counts.mma += 1,
            Kind::Wgmma => counts.wgmma += 1,
            Kind::Tcgen05Mma => counts.tcgen05_mma += 1,
            Kind::Tcgen05Move => counts.tcgen05_moves += 1,
            Kind::BulkLoad | Kind::BulkStore => tally.global.add(&self.moved),
            Kind::Load | Kind::Store | Kind::Atomic | Kind::Copy => {
                self.runs.clear();
                self.runs.extend(self.accesses.iter().filter_map(|a| match a.place {
                    Place::Global(at) => Some((at, u64::from(a.bytes))),
                    _ => None,
                }));
                if !self.runs.is_empty() {
                    let (sectors, bytes) = touched(&mut self.runs);
                    tally.global.add(&Requests { requests: 1, sectors, bytes });
                }
                if let Some(shared) = wavefronts(&self.accesses, &mut self.words) {
                    tally.shared.add(&shared);
                }
                if self.accesses.iter().any(|a| a.place == Place::Local) {
                    match s.kind {
                        Kind::Load => counts.local_loads += 1,
                        _ => counts.local_stores += 1,
                    }
                }
            }
            Kind::Other => {}
        }
    }

    /// A warp has ended.
    pub fn warp(&mut self, counts: &Counts) {
        self.warps += 1;
        self.total.merge(counts, |a, b| a + b);
        self.most.merge(counts, u64::max);
    }

    /// What was counted; `code` has line, text and kind of each instruction.
    pub fn finish<'a>(self, code: impl Iterator<Item = (u32, &'a str, Kind)>) -> Stats {
        let mut out = Stats { warps: self.warps, total: self.total, most: self.most, ..Stats::default() };
        for (t, (line, text, kind)) in self.tallies.iter().zip(code) {
            if t.executed == 0 && t.polls == 0 {
                continue;
            }
            match kind {
                Kind::Load | Kind::Copy => out.loads.add(&t.global),
                Kind::Store => out.stores.add(&t.global),
                Kind::Atomic => out.atomics.add(&t.global),
                Kind::BulkLoad => out.bulk_loads.add(&t.global),
                Kind::BulkStore => out.bulk_stores.add(&t.global),
                _ => {}
            }
            out.shared.add(&t.shared);
            out.polls += t.polls;
            out.lines.push(Line {
                line,
                text: text.to_owned(),
                kind,
                executed: t.executed,
                polls: t.polls,
                global: t.global,
                shared: t.shared,
            });
        }
        out
    }
}

/// Tells polls apart; true for what counts as execution.
///
/// A loop is left after the turn whose poll succeeds, and only that turn is to count. A wait says whether it succeeded: one
/// that fails, and what its loop executes until the next try, does not count. A load does not say, but all turns are the same:
/// the first one counts, and a branch back without a guard, which the last turn does not reach, does not.
fn executes(s: &Step, polling: &mut Option<(u32, u32)>, tally: &mut Tally) -> bool {
    match s.outcome {
        Outcome::Stalled => return false,
        Outcome::Failed => {
            tally.polls += 1;
            *polling = s.turns;
            return false;
        }
        Outcome::Done | Outcome::Skipped | Outcome::Jumped(_) => {}
    }
    let again = polling.is_some_and(|(first, last)| (first..=last).contains(&s.pc));
    let done = s.outcome == Outcome::Done;
    if again && !(s.kind == Kind::Wait && done) {
        tally.polls += u64::from(done && matches!(s.kind, Kind::Load | Kind::Atomic));
        return false;
    }
    *polling = None;
    match (s.outcome, s.turns) {
        (Outcome::Jumped(to), Some((first, last))) if to == first && s.pc == last => {
            *polling = s.turns;
            s.guarded
        }
        _ => true,
    }
}

/// Sectors and distinct bytes of runs of bytes.
fn touched(runs: &mut [(u64, u64)]) -> (u64, u64) {
    runs.sort_unstable();
    let (mut sectors, mut bytes) = (0, 0);
    // First byte and first sector behind what is counted.
    let (mut end, mut next) = (0u64, 0u64);
    for &(at, n) in runs.iter().filter(|r| r.1 != 0) {
        let stop = at.saturating_add(n);
        bytes += stop.saturating_sub(at.max(end));
        end = end.max(stop);
        let (first, last) = ((at / 32).max(next), (stop - 1) / 32);
        if last >= first {
            sectors += last - first + 1;
            next = last + 1;
        }
    }
    (sectors, bytes)
}

/// What the accesses of shared memory among some take.
fn wavefronts(accesses: &[Access], words: &mut Vec<u32>) -> Option<Shared> {
    let shared = |a: &Access| match a.place {
        Place::Shared(at) => Some((a.lane, at, a.bytes)),
        _ => None,
    };
    let widest = accesses.iter().filter_map(shared).map(|x| x.2).max()?.max(1);
    // A phase moves up to 128 bytes.
    let lanes = (128 / widest).clamp(1, 32) as u8;
    let mut out = Shared { requests: 1, ..Shared::default() };
    for phase in 0..32u8.div_ceil(lanes) {
        words.clear();
        for (_, at, bytes) in accesses.iter().filter_map(shared).filter(|x| x.0 / lanes == phase) {
            words.extend(at / 4..=at.saturating_add(bytes.max(1) - 1) / 4);
        }
        if words.is_empty() {
            continue;
        }
        words.sort_unstable();
        words.dedup();
        let mut banks = [0u64; 32];
        for w in words.iter() {
            banks[(w % 32) as usize] += 1;
        }
        out.ideal += 1;
        out.wavefronts += banks.iter().max().copied().unwrap_or(1);
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sectors_and_bytes_of_overlapping_runs() {
        assert_eq!(touched(&mut [(64, 4), (0, 4), (66, 4)]), (2, 10));
        assert_eq!(touched(&mut [(30, 4)]), (2, 4));
        assert_eq!(touched(&mut [(0, 128), (32, 4), (100, 40)]), (5, 140));
        assert_eq!(touched(&mut [(7, 0)]), (0, 0));
        assert_eq!(touched(&mut [(u64::MAX - 3, 16)]).0, 1);
    }
}
