//! What one walk over the instructions notes of registers: how often each is read, who writes it, where blocks read what
//! they have not written.
//!
//! Needs: instructions in layout order, per block [`Notes::begin_row`], per instruction [`Notes::read`] before
//! [`Notes::write`]. The passes ask while the walk goes on; afterwards [`Notes::liveness`] has what register budgets and
//! the emitter want to know, without another walk. Cost: constant per register mentioned.

use crate::nvvm::module::{Bb, Function, Inst, Look, Operand, Reg};
use crate::nvvm::{Liveness, Mention};
use cranelift_entity::{EntityRef, packed_option::PackedOption};

/// In [`RegUse::noted`]: something is known of the register in the whole function.
pub(super) const EVERYWHERE: u32 = u32::MAX;

/// What is noted of a register. It stands together, since most of it is asked at once.
#[derive(Copy, Clone, Default)]
pub(super) struct RegUse {
    /// Number of writes, where they were counted; guarded ones count twice.
    pub writes: u32,
    /// Reads by other instructions than its own writer.
    pub reads: u32,
    /// Number of the instruction that wrote it last; 0 = none.
    pub version: u32,
    /// The last block in which something came to be known of it, or [`EVERYWHERE`].
    pub noted: u32,
    /// Who writes it.
    writers: Writers,
}

/// The writers of a register: a linked list, whose head stands with the register, since most have one writer.
#[derive(Copy, Clone, Default)]
struct Writers {
    inst: PackedOption<Inst>,
    /// Place of its block in the layout.
    row: u32,
    /// The next ones, in `links`, plus 1; 0 = no more.
    more: u32,
}

/// The notes; they keep their memory.
#[derive(Default)]
pub(super) struct Notes {
    pub regs: Vec<RegUse>,
    /// Writers of registers that have several.
    links: Vec<Writers>,
    /// Number of the instruction at hand, from 1.
    pub seq: u32,
    row: u32,
    /// Number of the last instruction before the block at hand.
    before: u32,
    /// Where in `live` the reads of the instruction at hand begin.
    start: [usize; 2],
    live: Liveness,
}

/// Whether the instruction with these results writes `r`.
#[inline]
pub(super) fn is_written(func: &Function, results: &[Operand], r: Reg) -> bool {
    results.iter().any(|result| match *result {
        Operand::Reg(d) => d == r,
        Operand::List(l) => func.list_items(l).contains(&Operand::Reg(r)),
        _ => false,
    })
}

impl Notes {
    /// Starts on a function.
    pub fn begin(&mut self, func: &Function) {
        self.regs.clear();
        self.regs.resize(func.num_regs(), RegUse::default());
        self.links.clear();
        self.live.begin(func);
        self.seq = 0;
    }

    /// Starts on a block of the layout.
    pub fn begin_row(&mut self, row: usize, bb: Bb) {
        self.live.begin_traced_row(row, bb);
        self.row = row as u32;
        self.before = self.seq;
    }

    /// Starts on an instruction.
    #[inline]
    pub fn begin_inst(&mut self) {
        self.seq += 1;
        self.start = [self.live.trace.len(), self.live.early.len()];
    }

    /// Notes that the instruction at hand reads a register, which is its `own` if it writes it, too; whether anything is known of
    /// it in the block of that number.
    #[inline]
    pub fn note_read(&mut self, r: Reg, own: bool, block: u32) -> bool {
        let u = &mut self.regs[r.index()];
        u.reads += u32::from(!own);
        let (noted, early) = (u.noted >= block, u.version <= self.before);
        self.live.trace.push(Mention::read(r, own));
        if early {
            self.note_early(r);
        }
        noted
    }

    #[cold]
    #[inline(never)]
    fn note_early(&mut self, r: Reg) {
        self.live.early.push((self.row, r));
    }

    /// As [`Notes::note_read`], for a source that may be no register, of an instruction that writes `d`.
    pub fn read_operand(&mut self, func: &Function, operand: Operand, d: Reg, block: u32) -> bool {
        let mut noted = false;
        match operand {
            Operand::Reg(r) | Operand::Addr { base: r, .. } => noted = self.note_read(r, r == d, block),
            Operand::List(list) => {
                for &item in func.list_items(list) {
                    if let Operand::Reg(r) = item {
                        noted |= self.note_read(r, r == d, block);
                    }
                }
            }
            _ => {}
        }
        noted
    }

    /// Notes what the next instruction reads; see [`Notes::note_read`].
    pub fn read(&mut self, func: &Function, look: Look<'_>, block: u32) -> bool {
        self.begin_inst();
        self.reread(func, look, block)
    }

    /// As [`Notes::read`], for the instruction at hand.
    pub fn reread(&mut self, func: &Function, look: Look<'_>, block: u32) -> bool {
        let mut noted = false;
        match *look.results_and_sources().0 {
            // Never missed, so all that it reads counts.
            _ if look.op.updates() => look.visit_reads(|r| noted |= self.note_read(r, false, block)),
            [] => look.visit_reads(|r| noted |= self.note_read(r, false, block)),
            [Operand::Reg(d)] => look.visit_reads(|r| noted |= self.note_read(r, r == d, block)),
            ref own => {
                look.visit_reads(|r| noted |= self.note_read(r, is_written(func, own, r), block));
            }
        }
        noted
    }

    /// Takes back what was noted of the reads of the instruction at hand.
    pub fn take_back(&mut self) {
        let [trace, early] = self.start;
        for mention in self.live.trace.drain(trace..) {
            self.regs[mention.reg().index()].reads -= u32::from(!mention.is_own());
        }
        self.live.early.truncate(early);
    }

    /// Notes what the instruction at hand writes.
    pub fn write(&mut self, look: Look<'_>, inst: Inst) {
        if look.guard.is_some() {
            return look.visit_writes(|r| {
                // Where it does not write, the old value stays: as if it were read.
                if self.regs[r.index()].version <= self.before {
                    self.live.early.push((self.row, r));
                }
                self.live.trace.push(Mention::read(r, true));
                self.note_write(r, inst);
            });
        }
        match *look.results_and_sources().0 {
            [] => {}
            [Operand::Reg(r)] => self.write_reg(r, inst),
            _ => look.visit_writes(|r| self.write_reg(r, inst)),
        }
    }

    /// Notes that the instruction at hand, which has no guard, writes a register.
    #[inline]
    pub fn write_reg(&mut self, r: Reg, inst: Inst) {
        self.live.trace.push(Mention::write(r));
        self.note_write(r, inst);
    }

    #[inline]
    fn note_write(&mut self, r: Reg, inst: Inst) {
        let u = &mut self.regs[r.index()];
        u.version = self.seq;
        let mut more = 0;
        if u.writers.inst.is_some() {
            self.links.push(u.writers);
            more = self.links.len() as u32;
        }
        u.writers = Writers { inst: inst.into(), row: self.row, more };
    }

    /// Whether an instruction noted so far reads the register, its writer apart.
    #[inline]
    pub fn is_read(&self, r: Reg) -> bool {
        self.regs[r.index()].reads > 0
    }

    /// Calls `f` with the writers of a register and the places of their blocks in the layout.
    #[inline]
    pub fn writers(&self, r: Reg, mut f: impl FnMut(Inst, u32)) {
        let mut at = self.regs[r.index()].writers;
        while let Some(inst) = at.inst.expand() {
            f(inst, at.row);
            at = match (at.more as usize).checked_sub(1) {
                Some(more) => self.links[more],
                None => break,
            };
        }
    }

    /// Takes an instruction out of the notes that leaves the function. Its mentions stay where they are: nothing reads what it
    /// writes, and what it reads only seems to live longer.
    pub fn forget(&mut self, look: Look<'_>) {
        let weight = 1 + u32::from(look.guard.is_some());
        look.visit_writes(|r| self.regs[r.index()].writes -= weight);
    }

    /// Liveness of the function, if the layout is as it was in the walk; registers may seem to live longer than they do.
    /// `None` if one may be read before it is written, for a closer look to find out.
    pub fn liveness(&mut self, func: &Function) -> Option<&Liveness> {
        let Self { regs, live, .. } = self;
        live.early.retain(|&(_, r)| {
            let u = &regs[r.index()];
            u.writes > 0 || u.reads > 0
        });
        live.mark_written(regs.iter().map(|u| u.writes > 0));
        if live.unwritten().next().is_some() {
            return None;
        }
        live.expose();
        for i in 0..self.live.exposed().len() {
            let (r, mut writes) = (self.live.exposed()[i], std::mem::take(&mut self.live.writes));
            self.writers(r, |inst, row| {
                if !func.guard(inst).is_some() {
                    writes.push((row, r));
                }
            });
            self.live.writes = writes;
        }
        self.live.solve_exposed(func);
        let entry = *func.layout().first()?;
        let defined = self.live.live_in(entry).next().is_none();
        defined.then_some(&self.live)
    }

    /// What [`Self::liveness`] found last.
    pub fn solved(&self) -> &Liveness {
        &self.live
    }
}

#[cfg(test)]
mod tests {
    use super::super::{CleanupScratch, cleanup};
    use crate::nvvm::Liveness;
    use crate::nvvm::{FuncBuilder, Function, Guard, RegTy, Special};

    /// A loop with a counter, a value of before it, one written under a guard, and dead code.
    fn looping(defined: bool) -> Function {
        let mut f = Function::kernel("k");
        let mut b = FuncBuilder::new(&mut f);
        let t = b.special(Special::TidX);
        let (i, kept) = (b.imm(RegTy::B32, 0), b.reg(RegTy::B32));
        if defined {
            b.mov_to(kept, t);
        }
        let (head, done) = (b.block(), b.block());
        b.place(head);
        let four = b.shl_b32(t, 2);
        let _dead = b.mul_lo_u32(four, four);
        let p = b.setp_eq_u32(i, 3);
        b.guarded(Guard::new(p, false)).mov_to(kept, four);
        b.add_u32_to(i, i, 1);
        let again = b.setp_ne_u32(i, 9);
        b.br_if(again, false, head, done);
        b.place(done);
        b.st_shared_b32((t, 0), kept);
        b.ret();
        f
    }

    #[test]
    fn liveness_is_noted_along_the_way() {
        let (mut f, mut scratch) = (looping(true), CleanupScratch::default());
        assert_eq!(cleanup(&mut f, &mut scratch).removed, 1, "the product");
        let real = Liveness::compute(&f);
        let noted = scratch.liveness(&f).expect("is known");
        assert!(noted.covers(&f));
        let head = f.layout()[1];
        assert!(noted.live_in(head).eq(real.live_in(head)));
        assert_eq!(real.live_in(head).count(), 3, "the thread, the counter and what is kept");
        assert!(scratch.liveness(&f).is_none(), "the function may have changed since");
    }

    #[test]
    fn what_may_be_read_unwritten_is_left_to_a_closer_look() {
        let (mut f, mut scratch) = (looping(false), CleanupScratch::default());
        cleanup(&mut f, &mut scratch);
        assert!(scratch.liveness(&f).is_none());
    }
}
