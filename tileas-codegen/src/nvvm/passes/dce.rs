//! Removes pure instructions whose results nobody else reads.
//!
//! A register is dead when its only reader, if any, is the instruction that writes it (a dead loop counter). Removing one
//! instruction may make the writers of its sources dead; a worklist follows. Cost: linear. Who visits all instructions
//! anyway notes them in [`Uses`]; what is left to do then is proportional to what is dead.

use super::CleanupStats;
use crate::nvvm::module::{Bb, Function, Inst, Look, Operand, Reg};
use cranelift_entity::{EntityRef, packed_option::PackedOption};

/// Who reads and writes what.
#[derive(Default)]
pub struct Uses {
    /// By register: reads by other instructions than its own writer.
    reads: Vec<u32>,
    /// By instruction: its block, while it has one.
    home: Vec<PackedOption<Bb>>,
    /// By register.
    writers: Vec<Writers>,
    /// Writers of registers that have several.
    links: Vec<Writers>,
}

/// Scratch memory.
#[derive(Default)]
pub struct DceScratch {
    pub(super) uses: Uses,
    work: Vec<Inst>,
}

/// The writers of a register: a linked list, whose head stands with the register, since most have one writer.
#[derive(Copy, Clone, Default)]
struct Writers {
    inst: PackedOption<Inst>,
    /// The next ones, in `links`, plus 1; 0 = no more.
    more: u32,
}

/// Whether the instruction with these results writes `r`.
#[inline]
fn is_written(func: &Function, results: &[Operand], r: Reg) -> bool {
    results.iter().any(|result| match *result {
        Operand::Reg(d) => d == r,
        Operand::List(l) => func.list_items(l).contains(&Operand::Reg(r)),
        _ => false,
    })
}

impl Uses {
    /// Starts on a function.
    pub(super) fn begin(&mut self, func: &Function) {
        self.reads.clear();
        self.home.clear();
        self.writers.clear();
        self.links.clear();
        self.reads.resize(func.num_regs(), 0);
        self.writers.resize(func.num_regs(), Writers::default());
        self.home.resize(func.num_insts(), None.into());
    }

    /// Notes what an instruction of this form reads, and tells `f` of it.
    #[inline]
    pub(super) fn note_reads(&mut self, func: &Function, look: Look<'_>, mut f: impl FnMut(Reg)) {
        let reads = &mut self.reads;
        let own = match *look.results_and_sources().0 {
            [] => None,
            [Operand::Reg(d)] => Some(d),
            ref own => {
                look.visit_reads(|r| {
                    f(r);
                    reads[r.index()] += u32::from(!is_written(func, own, r));
                });
                return;
            }
        };
        look.visit_reads(|r| {
            f(r);
            reads[r.index()] += u32::from(Some(r) != own);
        });
    }

    /// Takes back what [`Uses::note_reads`] noted of the same form.
    pub(super) fn forget_reads(&mut self, func: &Function, inst: Inst) {
        let look = func.look(inst);
        let own = look.results_and_sources().0;
        look.visit_reads(|r| self.reads[r.index()] -= u32::from(!is_written(func, own, r)));
    }

    /// Notes the block of an instruction.
    #[inline]
    pub(super) fn note_home(&mut self, bb: Bb, inst: Inst) {
        self.home[inst.index()] = bb.into();
    }

    /// Notes that an instruction writes a register.
    #[inline]
    pub(super) fn note_write(&mut self, inst: Inst, r: Reg) {
        let head = &mut self.writers[r.index()];
        let mut more = 0;
        if head.inst.is_some() {
            self.links.push(*head);
            more = self.links.len() as u32;
        }
        *head = Writers { inst: inst.into(), more };
    }

    /// Whether an instruction noted so far reads the register.
    #[inline]
    pub(super) fn is_read(&self, r: Reg) -> bool {
        self.reads[r.index()] > 0
    }
}

/// Runs the pass.
pub fn run(func: &mut Function, scratch: &mut DceScratch, stats: &mut CleanupStats) {
    scratch.uses.begin(func);
    for &bb in func.layout() {
        for inst in func.insts(bb) {
            let look = func.look(inst);
            scratch.uses.note_home(bb, inst);
            scratch.uses.note_reads(func, look, |_| ());
            look.visit_writes(|r| scratch.uses.note_write(inst, r));
        }
    }
    sweep(func, scratch, stats, |_, _| ());
}

/// Removes what is dead by [`Uses`], which must know all instructions of the layout; `removed` is told each that goes, while
/// its operands can still be looked at.
pub(super) fn sweep(
    func: &mut Function,
    scratch: &mut DceScratch,
    stats: &mut CleanupStats,
    mut removed: impl FnMut(&Function, Inst),
) {
    let DceScratch { uses: Uses { reads, home, writers, links }, work } = scratch;
    work.clear();
    // What can go now writes a register that nobody reads.
    let unread = |mut at: Writers, work: &mut Vec<Inst>| {
        while let Some(inst) = at.inst.expand() {
            work.push(inst);
            at = match (at.more as usize).checked_sub(1) {
                Some(more) => links[more],
                None => break,
            };
        }
    };
    for (&first, &reads) in writers.iter().zip(&*reads) {
        if reads == 0 {
            unread(first, work);
        }
    }
    while let Some(inst) = work.pop() {
        let Some(bb) = home[inst.index()].expand() else { continue };
        if !func.op(inst).effects().is_pure() && !is_plain_load(func, inst) {
            continue;
        }
        let own = func.results_and_sources(inst).0;
        let (mut any, mut is_read) = (false, false);
        func.visit_writes(inst, |r| {
            any = true;
            is_read |= reads[r.index()] > 0;
        });
        if !any || is_read {
            continue;
        }
        func.visit_reads(inst, |r| {
            if !is_written(func, own, r) {
                reads[r.index()] -= 1;
                if reads[r.index()] == 0 {
                    unread(writers[r.index()], work);
                }
            }
        });
        home[inst.index()] = None.into();
        removed(func, inst);
        func.remove_inst(bb, inst);
        stats.removed += 1;
    }
}

/// A load that only reads: nobody misses it.
fn is_plain_load(func: &Function, inst: Inst) -> bool {
    let e = func.op(inst).effects();
    e.reads() && !e.writes() && !e.syncs() && !e.is_async() && !e.is_convergent() && !e.is_volatile()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nvvm::{FuncBuilder, PtxOp, RegTy, Special};

    #[test]
    fn dead_chains_and_dead_counters_go_but_effects_stay() {
        let mut f = Function::kernel("k");
        let mut b = FuncBuilder::new(&mut f);
        let t = b.special(Special::TidX);
        let a = b.add_u32(t, 1);
        let _dead = b.mul_lo_u32(a, a);
        let i = b.imm(RegTy::B32, 0);
        let n = b.imm(RegTy::B32, 4);
        let (head, done) = (b.block(), b.block());
        b.place(head);
        b.add_u32_to(i, i, 1); // a counter that nothing tests
        b.add_u32_to(n, n, -1);
        let p = b.setp_ne_u32(n, 0);
        b.br_if(p, false, head, done);
        b.place(done);
        let unused = b.ld_shared_b32(t);
        let _ = b.shfl_sync_idx_b32(unused, 0, 31, -1); // convergent: stays, and keeps its source
        b.ret();
        let mut stats = CleanupStats::default();
        run(&mut f, &mut DceScratch::default(), &mut stats);
        // Both operations on `i`, the multiplication and the addition.
        assert_eq!(stats.removed, 4);
        let ops: Vec<PtxOp> = f.layout().iter().flat_map(|&bb| f.insts(bb)).map(|i| f.op(i)).collect();
        assert!(ops.contains(&PtxOp::LdSharedB32) && ops.contains(&PtxOp::ShflSyncIdxB32));
        assert_eq!(ops.iter().filter(|&&o| o == PtxOp::AddU32).count(), 1);
    }
}
