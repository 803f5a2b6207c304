//! Removes pure instructions whose results nothing else reads.
//!
//! A register is dead when its only reader, if any, is the instruction that writes it (a dead loop counter). Removing one
//! instruction may make the writers of its sources dead; a worklist follows. Cost: linear. Who visits all instructions
//! anyway notes them (`notes`); what is left to do then is proportional to what is dead.

use super::CleanupStats;
use super::notes::{Notes, is_written};
use crate::nvvm::module::{Function, Inst, Reg};
use cranelift_entity::EntityRef;

/// Scratch memory.
#[derive(Default)]
pub struct DceScratch {
    notes: Notes,
    work: Work,
}

/// Instructions that may be dead, and the places of their blocks in the layout.
pub(super) type Work = Vec<(Inst, u32)>;

/// Runs the pass.
pub fn run(func: &mut Function, scratch: &mut DceScratch, stats: &mut CleanupStats) {
    let DceScratch { notes, work } = scratch;
    notes.begin(func);
    for (row, &bb) in func.layout().iter().enumerate() {
        notes.begin_row(row, bb);
        for inst in func.insts(bb) {
            let look = func.look(inst);
            notes.read(func, look, 0);
            notes.write(look, inst);
        }
    }
    sweep(func, notes, work, stats, |_, _, _| ());
}

/// Removes what is dead by the notes, which must be of all instructions of the layout; `removed` is told each that goes, while
/// its operands can still be looked at.
pub(super) fn sweep(
    func: &mut Function,
    notes: &mut Notes,
    work: &mut Work,
    stats: &mut CleanupStats,
    mut removed: impl FnMut(&Function, &mut Notes, Inst),
) {
    work.clear();
    // What can go now writes a register that is not read.
    for i in 0..notes.regs.len() {
        if notes.regs[i].reads == 0 {
            notes.writers(Reg::new(i), |inst, row| work.push((inst, row)));
        }
    }
    while let Some((inst, row)) = work.pop() {
        // Only what was removed before has nothing behind it, and final branches, which write nothing.
        if func.next_inst(inst).is_none() {
            continue;
        }
        if !func.op(inst).effects().is_pure() && !is_plain_load(func, inst) {
            continue;
        }
        let look = func.look(inst);
        let (mut any, mut is_read) = (false, false);
        look.visit_writes(|r| {
            any = true;
            is_read |= notes.is_read(r);
        });
        if !any || is_read {
            continue;
        }
        let own = look.results_and_sources().0;
        look.visit_reads(|r| {
            if !is_written(func, own, r) {
                let reads = &mut notes.regs[r.index()].reads;
                *reads -= 1;
                if *reads == 0 {
                    notes.writers(r, |inst, row| work.push((inst, row)));
                }
            }
        });
        removed(func, notes, inst);
        let bb = func.layout()[row as usize];
        func.remove_inst(bb, inst);
        stats.removed += 1;
    }
}

/// A load that only reads: it is not missed.
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
