//! What follows from one decision of the exact search.
//!
//! In: the op and its start. Out: smaller domains and windows of the others, or a failure with the decisions it
//! follows from. See the parent for the whole.

use super::super::closure::{FAR, MAX_OPS, NO_PATH};
use super::super::problem::NO_GROUP;
use super::super::rrt::Rrt;
use super::model::{SET, Set, insert};
use super::{Exact, UNPLACED, next_in};

/// The op that lost its last start (if it was one) and why.
pub(super) type Failure = (Option<usize>, Set);

/// Units with less than one cycle in this many to spare are checked for gaps.
const SPARE: u32 = 4;

fn join(to: &mut Set, from: &Set) {
    to.iter_mut().zip(from).for_each(|(a, b)| *a |= b);
}

/// Clears `len` bits from `first` on, modulo `ii`; whether one was set.
fn clear_run(bits: &mut [u64], first: u32, len: u32, ii: u32) -> bool {
    let mut changed = false;
    let mut clear = |lo: u32, hi: u32| {
        let (mut at, hi) = (lo, hi);
        while at < hi {
            let end = hi.min((at / 64 + 1) * 64);
            let mask = (u64::MAX >> (64 - (end - at))) << (at % 64);
            let word = &mut bits[at as usize / 64];
            changed |= *word & mask != 0;
            *word &= !mask;
            at = end;
        }
    };
    let first = first % ii;
    clear(first, (first + len).min(ii));
    if first + len > ii {
        clear(0, first + len - ii);
    }
    changed
}

impl Exact {
    /// Seats `a` in the row of `t` and draws the consequences; `t` is its first start there.
    pub(super) fn assign(
        &mut self,
        rrt: &mut Rrt,
        a: usize,
        t: i32,
        level: usize,
        budget: &mut u64,
    ) -> Result<(), Failure> {
        let (m, ii) = (self.model.ops.len(), self.model.ii);
        if !self.place(rrt, a, t) {
            let mut reason = self.blame[a];
            for piece in self.model.pieces(a) {
                join(&mut reason, &self.seated[piece.resource as usize]);
            }
            return Err((Some(a), reason));
        }
        let row = t.rem_euclid(ii as i32) as u32;
        self.seat[a] = row as i32;
        self.level_of[a] = level as u32;
        let words = self.model.words;
        for k in 0..self.model.pieces(a).len() {
            let piece = self.model.pieces(a)[k];
            let r = piece.resource as usize;
            insert(&mut self.seated[r], level);
            if self.model.unit[r] {
                clear_run(&mut self.free[r * words..(r + 1) * words], row + piece.offset, piece.len, ii);
            }
        }
        // The op keeps every turn of its row that its window allows: stages follow from the distances.
        let keep = &mut self.domain[a * words..(a + 1) * words];
        keep.fill(0);
        keep[row as usize / 64] = 1 << (row % 64);
        let component = self.model.component[a];
        if self.anchored[component as usize] {
            self.fit_window(a).map_err(|reason| (Some(a), reason))?;
        } else {
            // Components shift: the first op stands where it is, the others are anywhere around it.
            self.anchored[component as usize] = true;
            for b in (0..m).filter(|&b| self.model.component[b] == component) {
                (self.early[b], self.late[b]) = if b == a { (t, t) } else { (-FAR, FAR) };
            }
        }
        self.queue.clear();
        self.queue.push(a as u32);
        for b in 0..m {
            if self.seat[b] != UNPLACED {
                continue;
            }
            *budget = budget.saturating_sub(1);
            if self.collide(rrt, a, b, row, level, budget) {
                let moved = self.fit_window(b).map_err(|reason| (Some(b), reason))?;
                if moved && !self.queue.contains(&(b as u32)) {
                    self.queue.push(b as u32);
                }
            }
        }
        self.spread(budget)?;
        for k in 0..self.model.pieces(a).len() {
            let r = self.model.pieces(a)[k].resource as usize;
            if self.model.unit[r] && self.model.spare[r] * SPARE < ii {
                *budget = budget.saturating_sub(u64::from(ii) / 8 + m as u64 / 4);
                if !self.gaps_fillable(r) {
                    return Err((None, self.seated[r]));
                }
            }
        }
        Ok(())
    }

    /// Puts an op and its riders into the table. `false`, and nothing is changed: together they do not fit.
    fn place(&self, rrt: &mut Rrt, a: usize, t: i32) -> bool {
        for (k, (op, far)) in self.model.parts(a).enumerate() {
            if k > 0 && !rrt.fits(op, i64::from(t + far)) {
                self.model.parts(a).take(k).for_each(|(op, far)| rrt.remove(op, i64::from(t + far)));
                return false;
            }
            rrt.place(op, i64::from(t + far));
        }
        true
    }

    /// Nobody sits in this row of a unit: one cycle less to spare.
    pub(super) fn leave_free(
        &mut self,
        r: usize,
        row: u32,
        level: usize,
        budget: &mut u64,
    ) -> Result<(), Failure> {
        let (m, ii, words) = (self.model.ops.len(), self.model.ii, self.model.words);
        self.left_free[r] += 1;
        insert(&mut self.seated[r], level);
        clear_run(&mut self.free[r * words..(r + 1) * words], row, 1, ii);
        self.queue.clear();
        for b in 0..m {
            if self.seat[b] != UNPLACED {
                continue;
            }
            let mut changed = false;
            for p in self.model.pieces(b).iter().filter(|p| p.resource as usize == r) {
                let first = (row + 2 * ii - (p.offset + p.len - 1) % ii) % ii;
                changed |= clear_run(&mut self.domain[b * words..(b + 1) * words], first, p.len, ii);
            }
            if changed {
                insert(&mut self.blame[b], level);
                if self.fit_window(b).map_err(|reason| (Some(b), reason))? {
                    self.queue.push(b as u32);
                }
            }
            *budget = budget.saturating_sub(1);
        }
        self.spread(budget)?;
        if self.gaps_fillable(r) { Ok(()) } else { Err((None, self.seated[r])) }
    }

    /// Puts the group of `a` into one stage.
    pub(super) fn assign_stage(
        &mut self,
        a: usize,
        stage: i32,
        level: usize,
        budget: &mut u64,
    ) -> Result<(), Failure> {
        let ii = self.model.ii as i32;
        self.early[a] = self.early[a].max(stage * ii);
        self.late[a] = self.late[a].min(stage * ii + ii - 1);
        insert(&mut self.blame[a], level);
        self.fit_window(a).map_err(|reason| (Some(a), reason))?;
        self.queue.clear();
        self.queue.push(a as u32);
        self.spread(budget)
    }

    /// Takes from `b` the rows in which it meets `a`, seated at `row`.
    fn collide(&mut self, rrt: &Rrt, a: usize, b: usize, row: u32, level: usize, budget: &mut u64) -> bool {
        let (ii, words) = (self.model.ii, self.model.words);
        let (mut changed, mut refused) = (false, false);
        let domain = &mut self.domain[b * words..(b + 1) * words];
        for clash in self.model.clashes(a, b) {
            if clash.sure {
                changed |= clear_run(domain, row + clash.first, clash.len, ii);
            }
        }
        let class = self.model.class[a];
        if class != u32::MAX && class == self.model.class[b] {
            // Interchangeable: rows in order of position.
            changed |=
                if b > a { clear_run(domain, 0, row + 1, ii) } else { clear_run(domain, row, ii - row, ii) };
        }
        for clash in self.model.clashes(a, b).iter().filter(|c| !c.sure) {
            for k in 0..clash.len {
                let at = (row + clash.first + k) % ii;
                let (word, bit) = (at as usize / 64, 1 << (at % 64));
                if domain[word] & bit != 0
                    && self.model.parts(b).any(|(op, far)| !rrt.fits(op, i64::from(at as i32 + far)))
                {
                    domain[word] &= !bit;
                    refused = true;
                }
            }
            *budget = budget.saturating_sub(u64::from(clash.len) / 4);
        }
        if changed {
            insert(&mut self.blame[b], level);
        }
        if refused {
            // Together with whoever sits there already.
            for piece in self.model.pieces(b) {
                join(&mut self.blame[b], &self.seated[piece.resource as usize]);
            }
        }
        changed || refused
    }

    /// Decisions behind the window of an op.
    fn reason(&self, a: usize) -> Set {
        let mut reason = self.blame[a];
        if self.seat[a] != UNPLACED {
            insert(&mut reason, self.level_of[a] as usize);
        }
        reason
    }

    /// Moves the ends of a window onto starts of the domain; whether that moved one. An error if none is left.
    fn fit_window(&mut self, b: usize) -> Result<bool, Set> {
        let words = self.model.words;
        let domain = &self.domain[b * words..(b + 1) * words];
        let (early, late, ii) = (self.early[b], self.late[b], self.model.ii as i32);
        if !self.anchored[self.model.component[b] as usize] || early <= -FAR {
            return if domain.iter().all(|&w| w == 0) { Err(self.reason(b)) } else { Ok(false) };
        }
        let Some(first) = next_in(domain, early, late, ii) else { return Err(self.reason(b)) };
        self.early[b] = first;
        if self.seat[b] != UNPLACED && late < FAR {
            self.late[b] = late - (late - self.seat[b]).rem_euclid(ii);
        }
        Ok(first > early || self.late[b] < late)
    }

    /// Windows push each other through closed distances and common stages, until nothing moves.
    pub(super) fn spread(&mut self, budget: &mut u64) -> Result<(), Failure> {
        let (m, ii) = (self.model.ops.len(), self.model.ii as i32);
        let mut at = 0;
        while at < self.queue.len() {
            let a = self.queue[at] as usize;
            at += 1;
            if at > 64 {
                self.queue.drain(..at);
                at = 0;
            }
            let component = self.model.component[a];
            let reason = self.reason(a);
            for b in 0..m {
                if b == a || self.model.component[b] != component {
                    continue;
                }
                *budget = budget.saturating_sub(1);
                let (there, back) = (self.model.distance(a, b), self.model.distance(b, a));
                let (mut early, mut late) = (self.early[b], self.late[b]);
                if there > NO_PATH && self.early[a] > -FAR {
                    early = early.max(self.early[a].saturating_add(there));
                }
                if back > NO_PATH && self.late[a] < FAR {
                    late = late.min(self.late[a].saturating_sub(back));
                }
                // What follows from this over closed distances, `a` tells everybody itself.
                let told = (early, late);
                if self.model.group[a] != NO_GROUP && self.model.group[a] == self.model.group[b] {
                    if self.early[a] > -FAR {
                        early = early.max(self.early[a].div_euclid(ii) * ii);
                    }
                    if self.late[a] < FAR {
                        late = late.min(self.late[a].div_euclid(ii) * ii + ii - 1);
                    }
                }
                if early > self.early[b] || late < self.late[b] {
                    (self.early[b], self.late[b]) = (early, late);
                    join(&mut self.blame[b], &reason);
                    self.fit_window(b).map_err(|reason| (Some(b), reason))?;
                    if (self.early[b], self.late[b]) != told && !self.queue[at..].contains(&(b as u32)) {
                        self.queue.push(b as u32);
                    }
                }
            }
            if *budget == 0 {
                break;
            }
        }
        Ok(())
    }

    /// Whether the free runs of a unit can take what is still to come without wasting more than it can spare.
    fn gaps_fillable(&mut self, r: usize) -> bool {
        let (ii, words) = (self.model.ii, self.model.words);
        let free = &self.free[r * words..(r + 1) * words];
        let Some(longest) = find_runs(free, ii, &mut self.runs) else { return true };
        // Longer sums fill no run.
        let words = longest as usize / 64 + 1;
        self.sums.clear();
        self.sums.resize(words, 0);
        self.sums[0] = 1;
        let mut any = false;
        let holders = self.holder_of[r] as usize..self.holder_of[r + 1] as usize;
        for who in &self.holders[holders] {
            if self.seat[who.op as usize] == UNPLACED {
                any = true;
                let (skip, shift) = (who.len as usize / 64, who.len as usize % 64);
                for w in (skip..words).rev() {
                    let low = if shift > 0 && w > skip { self.sums[w - skip - 1] >> (64 - shift) } else { 0 };
                    self.sums[w] |= self.sums[w - skip] << shift | low;
                }
            }
        }
        if !any {
            return true;
        }
        let mut waste = 0;
        for &run in &self.runs {
            let best = (0..=run).rev().find(|&s| self.sums[s as usize / 64] >> (s % 64) & 1 != 0);
            waste += run - best.unwrap_or(0);
        }
        waste + self.left_free[r] <= self.model.spare[r]
    }
}

/// Lengths of the runs of bits set among `ii`, around the end; the longest of them. Nothing if all are set.
fn find_runs(bits: &[u64], ii: u32, runs: &mut Vec<u32>) -> Option<u32> {
    // From `at` on, the first bit that is set (or with `flip` clear).
    let next = |at: u32, flip: u64| {
        let mut w = at as usize / 64;
        let mut word = (bits.get(w)? ^ flip) & (u64::MAX << (at % 64));
        while word == 0 {
            w += 1;
            word = bits.get(w)? ^ flip;
        }
        Some(w as u32 * 64 + word.trailing_zeros())
    };
    runs.clear();
    let (mut at, mut wraps) = (0, false);
    while let Some(begin) = next(at, 0).filter(|&k| k < ii) {
        let end = next(begin, u64::MAX).map_or(ii, |k| k.min(ii));
        wraps |= begin == 0;
        at = end;
        if end == ii && wraps {
            // It goes on with the first one.
            let first = runs.first_mut()?;
            *first += end - begin;
            break;
        }
        runs.push(end - begin);
    }
    Some(runs.iter().copied().max().unwrap_or(0))
}

const _: () = assert!(SET * 64 == MAX_OPS);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::families::Rng;

    #[test]
    fn runs_go_around_the_end() {
        let (mut rng, mut runs) = (Rng::new(3), Vec::new());
        for _ in 0..2000 {
            let ii = rng.within(1, 200);
            let share = rng.within(0, 8);
            let row: Vec<bool> = (0..ii).map(|_| rng.within(0, 7) < share).collect();
            let mut bits = vec![0u64; ii as usize / 64 + 1];
            (0..ii as usize).filter(|&k| row[k]).for_each(|k| bits[k / 64] |= 1 << (k % 64));
            let longest = find_runs(&bits, ii, &mut runs);
            let Some(taken) = row.iter().position(|free| !free) else {
                assert_eq!(longest, None);
                continue;
            };
            let mut turned = row.clone();
            turned.rotate_left(taken);
            let mut want: Vec<u32> =
                turned.chunk_by(|a, b| a == b).filter(|c| c[0]).map(|c| c.len() as u32).collect();
            assert_eq!(longest, Some(want.iter().copied().max().unwrap_or(0)));
            want.sort_unstable();
            runs.sort_unstable();
            assert_eq!(runs, want);
        }
    }
}
