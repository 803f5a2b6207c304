//! Cheap values are made where they are used.
//!
//! In: a function over its budget. Out: the same instructions in blocks where those of a kind stand with their only reader: a
//! tile of column numbers, compared and selected by, is lowered op by op, so that all its elements would be alive at once. What
//! moves is pure and reads nothing but constants, registers with many readers, which are alive anyhow, and what moves with it.
//! Registers that are written twice stay. Cost: linear.

use crate::nvvm::{Bb, Function, Inst, Reg};
use cranelift_entity::SecondaryMap;
use cranelift_entity::packed_option::PackedOption;

/// Readers from which a register counts as alive anyhow.
const COMMON: u32 = 8;

/// What is known of a register.
#[derive(Copy, Clone, Default)]
struct Known {
    writes: u32,
    reads: u32,
    /// The last reader.
    reader: PackedOption<Inst>,
    /// Its writer can be moved to the reader.
    moves: bool,
}

/// Moves what can be moved; `false`: nothing.
pub(super) fn run(func: &mut Function) -> bool {
    let mut known: SecondaryMap<Reg, Known> = SecondaryMap::new();
    let mut place: SecondaryMap<Inst, (Option<Bb>, u32)> = SecondaryMap::new();
    for &bb in func.layout() {
        for (n, inst) in (0..).zip(func.insts(bb)) {
            place[inst] = (Some(bb), n);
            func.visit_regs(inst, |r, write| {
                let k = &mut known[r];
                if write {
                    k.writes += 1;
                } else {
                    (k.reads, k.reader) = (k.reads + 1, inst.into());
                }
            });
        }
    }
    let (mut moves, mut any): (Vec<(Inst, Inst)>, bool) = (Vec::new(), false);
    for bb in func.layout().to_vec() {
        moves.clear();
        for inst in func.insts(bb) {
            let (mut result, mut free) =
                (None, func.op(inst).effects().is_pure() && !func.guard(inst).is_some());
            func.visit_regs(inst, |r, write| {
                let k = known[r];
                free &= k.writes == 1;
                match write {
                    true => free &= result.replace(r).is_none() && k.reads == 1,
                    false => free &= k.moves || k.reads >= COMMON,
                }
            });
            // A reader in another block may run more often.
            if let (true, Some(r)) = (free, result)
                && let Some(reader) = known[r].reader.expand()
                && place[reader].0 == Some(bb)
                && place[reader].1 > place[inst].1
            {
                known[r].moves = true;
                moves.push((inst, reader));
            }
        }
        // Readers first: they are where they stay.
        for &(inst, reader) in moves.iter().rev() {
            if func.next_inst(inst) != Some(reader) {
                func.remove_inst(bb, inst);
                func.insert_before(bb, reader, inst);
                any = true;
            }
        }
    }
    any
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nvvm::Liveness;
    use crate::nvvm::{FuncBuilder, Operand, PtxOp, Special};
    use crate::regalloc::PressureScratch;

    #[test]
    fn what_has_one_reader_stands_before_it() {
        let mut f = Function::kernel("k");
        let mut b = FuncBuilder::new(&mut f);
        let t = b.special(Special::TidX);
        let columns: Vec<_> = (0..16).map(|k| b.add_u32(t, k)).collect();
        let twice: Vec<_> = columns.iter().map(|&c| b.add_u32(c, 1)).collect();
        let kept = b.add_u32(t, 100);
        for (k, &x) in (0..).zip(&twice) {
            b.st_shared_b32((t, 4 * k), x);
        }
        let next = b.block();
        b.place(next);
        // A reader in another block.
        b.st_shared_b32((t, 64), kept);
        b.ret();
        let peak = |f: &Function| PressureScratch::default().function(f, &Liveness::compute(f)).units;
        let before = (peak(&f), f.num_insts());
        assert!(run(&mut f));
        assert_eq!((before.0, peak(&f), f.num_insts()), (18, 3, before.1));
        let first = f.layout()[0];
        let ops: Vec<PtxOp> = f.insts(first).map(|i| f.op(i)).collect();
        assert_eq!(ops[2..5], [PtxOp::AddU32, PtxOp::AddU32, PtxOp::StSharedB32], "{ops:?}");
        assert!(!run(&mut f));
        // Few readers do not keep a register alive anyhow, and one that is written twice may have changed.
        let mut f = Function::kernel("k");
        let mut b = FuncBuilder::new(&mut f);
        let t = b.special(Special::TidX);
        let few = b.add_u32(t, 1);
        let i = b.imm(crate::nvvm::RegTy::B32, 0);
        let old: Vec<_> = (0..16).map(|k| b.add_u32(i, k)).collect();
        b.add_u32_to(i, i, Operand::Imm(1));
        b.st_shared_b32((t, 0), i);
        b.st_shared_b32((t, 4), few);
        for (k, &x) in (2..).zip(&old) {
            b.st_shared_b32((t, 4 * k), x);
        }
        b.ret();
        // `few` reads a register with many readers: it moves.
        assert!(run(&mut f));
        let all: Vec<PtxOp> = f.insts(f.layout()[0]).map(|i| f.op(i)).collect();
        let adds = all.iter().position(|&op| op == PtxOp::StSharedB32);
        assert_eq!(adds, Some(2 + 16 + 1), "{all:?}");
    }
}
