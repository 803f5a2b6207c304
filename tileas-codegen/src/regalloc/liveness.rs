//! Liveness of virtual registers.
//!
//! In: a function whose blocks end in terminators. Out: the registers live at the start and end of each block. A guarded
//! write does not end the old value's life.
//!
//! Only *exposed* registers, those that some block reads before it writes them, can be live between blocks. They are
//! few, since most registers are temporaries of one block, and only they have a bit in the sets. Cost: one pass over
//! the instructions, then O(blocks × exposed / 64) per round, and few rounds, since blocks are visited backwards.

use crate::nvvm::{Bb, Function, Look, Reg};
use cranelift_entity::{EntityRef, SecondaryMap};

/// Which registers are live where.
#[derive(Default)]
pub struct Liveness {
    words: usize,
    /// By block: its place in the layout, plus 1; 0 = not placed.
    row: SecondaryMap<Bb, u32>,
    /// Exposed registers in register order: what the bits of the sets stand for.
    exposed: Vec<Reg>,
    /// By register: its bit, plus 1; 0 = not exposed.
    column: Vec<u32>,
    live_in: Vec<u64>,
    live_out: Vec<u64>,
    gen_set: Vec<u64>,
    kill: Vec<u64>,
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

#[inline]
fn set(bits: &mut [u64], bit: usize) {
    bits[bit / 64] |= 1 << (bit % 64);
}

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
            words,
            row,
            exposed,
            column,
            live_in,
            live_out,
            gen_set,
            kill,
            written,
            early,
            writes,
            next,
            mentions,
            count,
            ..
        } = self;
        mentions.push(std::mem::take(count));
        *words = exposed.len().div_ceil(64);
        let w = *words;
        let rows = func.layout().len();
        for v in [&mut *live_in, &mut *live_out, &mut *gen_set, &mut *kill] {
            v.clear();
            v.resize(w * rows, 0);
        }
        for &(i, r) in &*early {
            set(&mut gen_set[i as usize * w..], column[r.index()] as usize - 1);
        }
        for &(i, r) in &*writes {
            if let Some(bit) = (column[r.index()] as usize).checked_sub(1) {
                set(&mut kill[i as usize * w..], bit);
            }
        }
        for (bit, r) in exposed.iter().enumerate() {
            let last = written[r.index()];
            if last != 0 && last != GUARDED {
                set(&mut kill[(last as usize - 1) * w..], bit);
            }
        }
        next.clear();
        next.extend(func.layout().iter().map(|&bb| func.successors(bb).map(|s| s.map_or(0, |s| row[s]))));
        let mut changed = w > 0;
        while changed {
            changed = false;
            for (i, next) in next.iter().enumerate().rev() {
                for &j in next.iter().filter(|&&j| j != 0) {
                    let j = j as usize - 1;
                    for k in 0..w {
                        live_out[i * w + k] |= live_in[j * w + k];
                    }
                }
                let mut difference = 0;
                for k in i * w..(i + 1) * w {
                    let new = gen_set[k] | (live_out[k] & !kill[k]);
                    difference |= new ^ live_in[k];
                    live_in[k] = new;
                }
                changed |= difference != 0;
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
            && blocks.clone().all(|bb| real.live_in(bb).all(|r| self.live_in(bb).any(|l| l == r)))
    }

    fn row<'a>(&self, of: &'a [u64], bb: Bb) -> &'a [u64] {
        match (self.row[bb] as usize).checked_sub(1) {
            Some(i) => &of[i * self.words..(i + 1) * self.words],
            None => &[],
        }
    }

    /// How often the instructions of a block mention a register; no less than the number of registers they mention.
    pub(crate) fn mentions(&self, bb: Bb) -> u32 {
        (self.row[bb] as usize).checked_sub(1).and_then(|row| self.mentions.get(row)).map_or(u32::MAX, |&n| n)
    }

    /// Registers live at the start of a block, in register order.
    pub fn live_in(&self, bb: Bb) -> impl Iterator<Item = Reg> {
        self.registers(self.row(&self.live_in, bb))
    }

    /// Registers live at the end of a block, in register order.
    pub fn live_out(&self, bb: Bb) -> impl Iterator<Item = Reg> {
        self.registers(self.row(&self.live_out, bb))
    }

    /// Whether `r` is live at the end of `bb`.
    pub fn is_live_out(&self, bb: Bb, r: Reg) -> bool {
        let column = self.column.get(r.index()).copied().unwrap_or(0);
        let Some(bit) = (column as usize).checked_sub(1) else { return false };
        self.row(&self.live_out, bb).get(bit / 64).is_some_and(|w| w & (1 << (bit % 64)) != 0)
    }

    /// The registers of a set, in register order.
    fn registers<'a>(&'a self, words: &'a [u64]) -> impl Iterator<Item = Reg> + 'a {
        words.iter().enumerate().flat_map(move |(i, &w)| {
            let mut w = w;
            std::iter::from_fn(move || {
                (w != 0).then(|| {
                    let bit = w.trailing_zeros() as usize;
                    w &= w - 1;
                    self.exposed[i * 64 + bit]
                })
            })
        })
    }
}
