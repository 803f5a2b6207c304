//! Liveness of virtual registers.
//!
//! In: a function whose blocks end in terminators. Out: the registers live at the start and end of each block. A guarded
//! write does not end the old value's life.
//!
//! Only *exposed* registers, those that some block reads before it writes them, can be live between blocks. They are
//! few, since most registers are temporaries of one block, and only they have a bit in the sets. A set keeps the words
//! that are not 0: memory is what lives at the starts of blocks, not blocks × exposed. Cost: one pass over
//! the instructions, then O(blocks × exposed / 32) per round, and few rounds, since blocks are visited backwards.

use crate::ir::pool::{List, Pool};
use crate::nvvm::{Bb, Function, Look, Reg};
use cranelift_entity::{EntityRef, SecondaryMap};

/// 32 bits of a set, and which.
type Word = (u32, u32);

/// Numbers by row.
#[derive(Default)]
struct ByRow {
    /// Where each row's numbers begin, and where the last one's end.
    starts: Vec<u32>,
    list: Vec<u32>,
}

impl ByRow {
    /// Sorts pairs of row and number by row.
    fn fill(&mut self, rows: usize, pairs: impl Iterator<Item = (u32, u32)> + Clone) {
        let Self { starts, list } = self;
        starts.clear();
        starts.resize(rows + 2, 0);
        for (row, _) in pairs.clone() {
            starts[row as usize + 2] += 1;
        }
        for row in 2..starts.len() {
            starts[row] += starts[row - 1];
        }
        list.clear();
        list.resize(starts[rows + 1] as usize, 0);
        // One row ahead, a start counts up to the end of its row, which is where the next one begins.
        for (row, number) in pairs {
            let at = &mut starts[row as usize + 1];
            list[*at as usize] = number;
            *at += 1;
        }
    }

    fn of(&self, row: usize) -> &[u32] {
        &self.list[self.starts[row] as usize..self.starts[row + 1] as usize]
    }
}

/// Which registers are live where.
#[derive(Default)]
pub struct Liveness {
    /// By block: its place in the layout, plus 1; 0 = not placed.
    row: SecondaryMap<Bb, u32>,
    /// Exposed registers in register order: what the bits of the sets stand for.
    exposed: Vec<Reg>,
    /// By register: its bit, plus 1; 0 = not exposed.
    column: Vec<u32>,
    sets: Pool<Word>,
    /// By row: what is live at its start.
    live_in: Vec<List>,
    /// By row: bits of the registers it reads before it writes them.
    generates: ByRow,
    /// By row: bits of the registers it writes.
    kills: ByRow,
    /// By register: the last row that wrote it, plus 1; 0 = none, [`GUARDED`] = only under guards.
    written: Vec<u32>,
    /// The row at hand, plus 1.
    stamp: u32,
    /// Reads before a write, by row.
    pub(crate) early: Vec<(u32, Reg)>,
    /// Writes, by row, of registers that a later row wrote too; the last row is in `written`.
    pub(crate) writes: Vec<(u32, Reg)>,
    /// By row: those of the successors, plus 1; 0 = none.
    next: Vec<[u32; 2]>,
    /// By row: when it was last computed, and when that last changed what is live at its start.
    times: Vec<[u32; 2]>,
    /// The set at hand, by word, and its words that are not 0.
    now: Vec<u32>,
    words: Vec<Word>,
    /// By row: how often its instructions mention a register.
    mentions: Vec<u32>,
    /// The same of the row at hand, so far.
    count: u32,
    /// What instructions mention, in layout order, per instruction what it reads before what it writes; empty unless rows were
    /// begun with [`Liveness::begin_traced_row`].
    pub(crate) trace: Vec<Mention>,
    /// By row: where its part of `trace` begins.
    starts: Vec<u32>,
}

/// A register mentioned. A guarded write is a read: it may leave the old value.
#[derive(Copy, Clone)]
pub(crate) struct Mention(u32);

impl Mention {
    /// A read; `own`: by an instruction that writes it too.
    #[inline]
    pub fn read(r: Reg, own: bool) -> Mention {
        Mention(r.as_u32() << 2 | u32::from(own) << 1)
    }

    /// A write.
    #[inline]
    pub fn write(r: Reg) -> Mention {
        Mention(r.as_u32() << 2 | 1)
    }

    #[inline]
    pub fn reg(self) -> Reg {
        Reg::from_u32(self.0 >> 2)
    }

    #[inline]
    pub fn is_write(self) -> bool {
        self.0 & 1 != 0
    }

    #[inline]
    pub fn is_own(self) -> bool {
        self.0 & 2 != 0
    }
}

/// In `written`: no row's number.
const GUARDED: u32 = u32::MAX;

impl Liveness {
    /// Liveness of a function, in fresh memory.
    pub fn compute(func: &Function) -> Liveness {
        let mut l = Liveness::default();
        l.recompute(func);
        l
    }

    /// Liveness of another function, reusing the memory.
    pub fn recompute(&mut self, func: &Function) {
        self.begin(func);
        for (row, &bb) in func.layout().iter().enumerate() {
            self.begin_row(row, bb);
            let mut at = func.first_inst(bb);
            while let Some(inst) = at {
                at = func.next_inst(inst);
                self.note(func.look(inst));
            }
        }
        self.solve(func);
    }

    /// Starts on a function. For who visits the registers anyway: `begin`, then per block of the layout `begin_row`,
    /// and per instruction `read` for all it reads before `write` for all it writes; then `solve`.
    pub(crate) fn begin(&mut self, func: &Function) {
        self.row.clear();
        self.row.resize(func.blocks.len());
        self.exposed.clear();
        self.early.clear();
        self.writes.clear();
        self.mentions.clear();
        self.trace.clear();
        self.starts.clear();
        self.count = 0;
        for v in [&mut self.column, &mut self.written] {
            v.clear();
            v.resize(func.num_regs(), 0);
        }
    }

    pub(crate) fn begin_row(&mut self, row: usize, bb: Bb) {
        if row > 0 {
            self.mentions.push(std::mem::take(&mut self.count));
        }
        self.stamp = row as u32 + 1;
        self.row[bb] = self.stamp;
    }

    /// As [`Liveness::begin_row`], for who notes `early` and `trace` by themselves.
    pub(crate) fn begin_traced_row(&mut self, row: usize, bb: Bb) {
        self.count = self.trace.len() as u32 - self.starts.last().copied().unwrap_or(0);
        self.starts.push(self.trace.len() as u32);
        self.begin_row(row, bb);
    }

    /// Whether there is a trace.
    pub(crate) fn is_traced(&self) -> bool {
        !self.starts.is_empty()
    }

    /// What the instructions of a block mention, if that was noted.
    pub(crate) fn trace(&self, bb: Bb) -> Option<&[Mention]> {
        let row = (self.row[bb] as usize).checked_sub(1)?;
        let end = self.starts.get(row + 1).map_or(self.trace.len(), |&end| end as usize);
        self.trace.get(*self.starts.get(row)? as usize..end)
    }

    /// Sets which registers some instruction writes, for who notes writes, all of them, in `writes`.
    pub(crate) fn mark_written(&mut self, written: impl Iterator<Item = bool>) {
        for (at, written) in self.written.iter_mut().zip(written) {
            *at = if written { GUARDED } else { 0 };
        }
    }

    /// Notes all that an instruction reads and writes.
    #[inline]
    pub(crate) fn note(&mut self, look: Look<'_>) {
        look.visit_reads(|r| self.read(r));
        let guarded = look.guard.is_some();
        look.visit_writes(|r| self.write(r, guarded));
    }

    /// Notes a read; registers the function does not have are left out.
    #[inline]
    pub(crate) fn read(&mut self, r: Reg) {
        self.count += 1;
        if self.written.get(r.index()).is_some_and(|&row| row != self.stamp) {
            self.early.push((self.stamp - 1, r));
        }
    }

    /// Notes a write.
    #[inline]
    pub(crate) fn write(&mut self, r: Reg, guarded: bool) {
        self.count += 1;
        if let Some(row) = self.written.get_mut(r.index())
            && *row != self.stamp
        {
            if guarded {
                // Seen, but it does not end the old value's life.
                if *row == 0 {
                    *row = GUARDED;
                }
            } else {
                if *row != 0 && *row != GUARDED {
                    self.writes.push((*row - 1, r));
                }
                *row = self.stamp;
            }
        }
    }

    /// By register, 0 where no instruction writes it.
    pub(crate) fn written(&self) -> &[u32] {
        &self.written
    }

    /// The first read of each register that is read and never written.
    pub(crate) fn unwritten(&self) -> impl Iterator<Item = Reg> {
        self.early.iter().map(|&(_, r)| r).filter(|r| self.written[r.index()] == 0)
    }

    /// Computes the sets.
    pub(crate) fn solve(&mut self, func: &Function) {
        self.expose();
        self.solve_exposed(func);
    }

    /// Finds the exposed registers.
    pub(crate) fn expose(&mut self) {
        let Self { exposed, column, early, .. } = self;
        for &(_, r) in &*early {
            column[r.index()] = 1;
        }
        for (i, column) in column.iter_mut().enumerate().filter(|(_, c)| **c != 0) {
            exposed.push(Reg::new(i));
            *column = exposed.len() as u32;
        }
    }

    /// The exposed registers in order.
    pub(crate) fn exposed(&self) -> &[Reg] {
        &self.exposed
    }

    /// The rest of [`Liveness::solve`].
    pub(crate) fn solve_exposed(&mut self, func: &Function) {
        if let Some(&start) = self.starts.last() {
            self.count = self.trace.len() as u32 - start;
        }
        let Self {
            row,
            exposed,
            column,
            sets,
            live_in,
            generates,
            kills,
            written,
            early,
            writes,
            next,
            times,
            now,
            words,
            mentions,
            count,
            ..
        } = self;
        mentions.push(std::mem::take(count));
        let rows = func.layout().len();
        let bit = |r: Reg| column[r.index()].checked_sub(1);
        generates.fill(rows, early.iter().filter_map(|&(i, r)| Some((i, bit(r)?))));
        let last = exposed.iter().enumerate().filter_map(|(n, r)| match written[r.index()] {
            0 | GUARDED => None,
            last => Some((last - 1, n as u32)),
        });
        kills.fill(rows, writes.iter().filter_map(|&(i, r)| Some((i, bit(r)?))).chain(last));
        next.clear();
        next.extend(func.layout().iter().map(|&bb| func.successors(bb).map(|s| s.map_or(0, |s| row[s]))));
        sets.clear();
        live_in.clear();
        live_in.resize(rows, List::default());
        now.clear();
        now.resize(exposed.len().div_ceil(32), 0);
        times.clear();
        times.resize(rows, [0; 2]);
        let mut changed = !exposed.is_empty();
        let mut time = 0;
        while changed {
            changed = false;
            for (i, next) in next.iter().enumerate().rev() {
                let behind = || next.iter().filter(|&&j| j != 0).map(|&j| j as usize - 1);
                let [last, _] = times[i];
                if last > 0 && behind().all(|j| times[j][1] <= last) {
                    continue;
                }
                time += 1;
                times[i][0] = time;
                for j in behind() {
                    for &(word, bits) in sets.get(live_in[j]) {
                        now[word as usize] |= bits;
                    }
                }
                for &bit in kills.of(i) {
                    now[bit as usize / 32] &= !(1 << (bit % 32));
                }
                for &bit in generates.of(i) {
                    now[bit as usize / 32] |= 1 << (bit % 32);
                }
                words.clear();
                for (word, bits) in now.iter_mut().enumerate().filter(|(_, bits)| **bits != 0) {
                    words.push((word as u32, std::mem::take(bits)));
                }
                if sets.get(live_in[i]) != words.as_slice() {
                    sets.set(&mut live_in[i], words);
                    time += 1;
                    times[i][1] = time;
                    changed = true;
                }
            }
        }
    }

    /// Whether no register lives longer than is known here, and those written are those that are.
    pub(crate) fn covers(&self, func: &Function) -> bool {
        let real = Liveness::compute(func);
        let blocks = func.layout().iter().copied();
        real.written.iter().zip(&self.written).all(|(a, b)| (*a == 0) == (*b == 0))
            && blocks.clone().all(|bb| real.live_out(bb).all(|r| self.is_live_out(bb, r)))
            && blocks.clone().all(|bb| real.mentions(bb) <= self.mentions(bb))
            && blocks.clone().all(|bb| {
                // Both are in register order.
                let mut known = self.live_in(bb);
                real.live_in(bb).all(|r| known.any(|l| l == r))
            })
    }

    /// The number of a block's row.
    fn row_of(&self, bb: Bb) -> Option<usize> {
        (self.row[bb] as usize).checked_sub(1)
    }

    /// What is live at the starts of a block's successors.
    fn sets_behind(&self, bb: Bb) -> [&[Word]; 2] {
        let next = self.row_of(bb).and_then(|row| self.next.get(row)).copied().unwrap_or_default();
        next.map(|j| (j as usize).checked_sub(1).map_or(&[][..], |j| self.sets.get(self.live_in[j])))
    }

    /// How often the instructions of a block mention a register; no less than the number of registers they mention.
    pub(crate) fn mentions(&self, bb: Bb) -> u32 {
        self.row_of(bb).and_then(|row| self.mentions.get(row)).map_or(u32::MAX, |&n| n)
    }

    /// Registers live at the start of a block, in register order.
    pub fn live_in(&self, bb: Bb) -> impl Iterator<Item = Reg> {
        self.registers([self.row_of(bb).map_or(&[], |row| self.sets.get(self.live_in[row])), &[]])
    }

    /// Registers live at the end of a block, in register order.
    pub fn live_out(&self, bb: Bb) -> impl Iterator<Item = Reg> {
        self.registers(self.sets_behind(bb))
    }

    /// Whether `r` is live at the end of `bb`.
    pub fn is_live_out(&self, bb: Bb, r: Reg) -> bool {
        let column = self.column.get(r.index()).copied().unwrap_or(0);
        let Some(bit) = column.checked_sub(1) else { return false };
        self.sets_behind(bb).iter().any(|set| {
            let at = set.binary_search_by_key(&(bit / 32), |&(word, _)| word);
            at.is_ok_and(|at| set[at].1 & (1 << (bit % 32)) != 0)
        })
    }

    /// The registers of two sets, in register order.
    fn registers<'a>(&'a self, mut sets: [&'a [Word]; 2]) -> impl Iterator<Item = Reg> + 'a {
        let (mut first, mut bits) = (0, 0);
        std::iter::from_fn(move || {
            if bits == 0 {
                let word = sets.iter().filter_map(|set| Some(set.first()?.0)).min()?;
                for set in &mut sets {
                    if let Some(((_, more), rest)) = set.split_first().filter(|(at, _)| at.0 == word) {
                        bits |= more;
                        *set = rest;
                    }
                }
                first = word as usize * 32;
            }
            let bit = bits.trailing_zeros() as usize;
            bits &= bits - 1;
            Some(self.exposed[first + bit])
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nvvm::{FuncBuilder, RegTy, Special};

    /// Loops one behind the other, each with a counter of its own and one that all use.
    fn loops(n: usize) -> Function {
        let mut f = Function::kernel("k");
        let mut b = FuncBuilder::new(&mut f);
        let all = b.special(Special::TidX);
        for _ in 0..n {
            let (head, done) = (b.block(), b.block());
            let i = b.imm(RegTy::B32, 0);
            b.place(head);
            b.add_u32_to(i, i, 1);
            let again = b.setp_ne_u32(i, all);
            b.br_if(again, false, head, done);
            b.place(done);
        }
        b.st_shared_b32((all, 0), all);
        b.ret();
        f
    }

    #[test]
    fn sets_take_what_lives_not_what_there_is() {
        let n = 2000;
        let f = loops(n);
        let l = Liveness::compute(&f);
        assert_eq!(l.exposed.len(), n + 1);
        assert!(l.live_in.iter().all(|set| set.len() <= 2), "a word with each of the two registers");
        let (first, second) = (f.layout()[1], f.layout()[2]);
        assert_eq!((l.live_in(first).count(), l.live_out(first).count()), (2, 2));
        assert_eq!((l.live_in(second).count(), l.live_out(second).count()), (1, 2));
        assert!(l.live_out(first).all(|r| l.is_live_out(first, r)));
        assert!(l.live_in(first).zip(l.live_in(first).skip(1)).all(|(a, b)| a < b), "in register order");
    }
}
