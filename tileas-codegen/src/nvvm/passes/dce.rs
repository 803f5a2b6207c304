//! Removes pure instructions whose results nobody else reads.
//!
//! A register is dead when its only reader, if any, is the instruction that writes it (a dead loop counter). Removing one
//! instruction may make the writers of its sources dead; a worklist follows. Cost: linear.

use super::CleanupStats;
use crate::nvvm::module::{Bb, Function, Inst, Reg};
use cranelift_entity::SecondaryMap;
use smallvec::SmallVec;

/// Scratch memory.
#[derive(Default)]
pub struct DceScratch {
    /// Reads by other instructions than the register's own writer.
    reads: SecondaryMap<Reg, u32>,
    home: SecondaryMap<Inst, Option<Bb>>,
    /// Writers of each register, as a linked list through `next_writer`.
    writer: SecondaryMap<Reg, Option<(Inst, u32)>>,
    links: Vec<Option<(Inst, u32)>>,
    work: Vec<Inst>,
}

/// Runs the pass.
pub fn run(func: &mut Function, scratch: &mut DceScratch, stats: &mut CleanupStats) {
    let DceScratch { reads, home, writer, links, work } = scratch;
    reads.clear();
    home.clear();
    writer.clear();
    links.clear();
    work.clear();
    reads.resize(func.num_regs());
    writer.resize(func.num_regs());
    home.resize(func.num_insts());
    let mut defs: SmallVec<[Reg; 8]> = SmallVec::new();
    let writes = |inst: Inst, func: &Function, defs: &mut SmallVec<[Reg; 8]>| {
        defs.clear();
        func.visit_writes(inst, |r| defs.push(r));
    };
    for &bb in func.layout() {
        for inst in func.insts(bb) {
            home[inst] = Some(bb);
            writes(inst, func, &mut defs);
            for &r in &defs {
                links.push(writer[r]);
                writer[r] = Some((inst, links.len() as u32 - 1));
            }
            func.visit_reads(inst, |r| {
                if !defs.contains(&r) {
                    reads[r] += 1;
                }
            });
        }
    }
    // What can go now writes a register that nobody reads.
    let unread = |mut at: Option<(Inst, u32)>, links: &[Option<(Inst, u32)>], work: &mut Vec<Inst>| {
        while let Some((w, link)) = at {
            work.push(w);
            at = links[link as usize];
        }
    };
    for (r, &first) in writer.iter() {
        if first.is_some() && reads[r] == 0 {
            unread(first, links, work);
        }
    }
    while let Some(inst) = work.pop() {
        let Some(bb) = home[inst] else { continue };
        if !func.op(inst).effects().is_pure() && !is_plain_load(func, inst) {
            continue;
        }
        writes(inst, func, &mut defs);
        if defs.is_empty() || defs.iter().any(|&r| reads[r] > 0) {
            continue;
        }
        func.visit_reads(inst, |r| {
            if !defs.contains(&r) {
                reads[r] -= 1;
                if reads[r] == 0 {
                    unread(writer[r], links, work);
                }
            }
        });
        home[inst] = None;
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
