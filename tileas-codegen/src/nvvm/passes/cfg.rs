//! Control-flow cleanups: jumps to jumps, unreachable blocks, straight-line pairs.
//!
//! A block that holds only `bra X` is bypassed; blocks no path reaches leave the layout; a block whose only
//! successor has no other predecessor takes over its instructions. Loop headers with `nounroll` and
//! first blocks of agents stay separate.

use super::CleanupStats;
use crate::nvvm::forms::PtxOp;
use crate::nvvm::module::{Bb, Function, Operand};
use cranelift_entity::{EntitySet, SecondaryMap};

/// Scratch memory.
#[derive(Default)]
pub struct CfgScratch {
    reached: EntitySet<Bb>,
    preds: SecondaryMap<Bb, u32>,
    /// Of reached blocks: [`Function::successors`].
    next: SecondaryMap<Bb, [Option<Bb>; 2]>,
    work: Vec<Bb>,
    gone: EntitySet<Bb>,
}

/// Where a jump to `bb` really goes: follows blocks that only jump. Bounded, since such blocks may form a cycle.
fn destination(func: &Function, mut bb: Bb) -> Bb {
    for _ in 0..func.layout().len() {
        let data = &func.blocks[bb];
        let (Some(first), Some(last)) = (func.first_inst(bb), func.last_inst(bb)) else { break };
        match (func.op(last), func.operands(last)) {
            (PtxOp::Bra, [Operand::Block(t)])
                if first == last && !data.nounroll && !func.guard(last).is_some() =>
            {
                bb = *t;
            }
            _ => break,
        }
    }
    bb
}

/// Whether a block other than the entry only jumps elsewhere. [`run`] leaves none but in empty loops.
pub(super) fn has_detour(func: &Function) -> bool {
    let jumps = |&bb: &Bb| {
        let last = func.last_inst(bb);
        func.first_inst(bb) == last && last.is_some_and(|inst| func.op(inst) == PtxOp::Bra)
    };
    func.layout().iter().skip(1).any(jumps)
}

/// The ways out of all blocks.
pub(super) fn branches(func: &Function) -> Vec<[Option<Bb>; 2]> {
    func.layout().iter().map(|&bb| func.successors(bb)).collect()
}

/// Runs the pass.
pub fn run(func: &mut Function, scratch: &mut CfgScratch, stats: &mut CleanupStats) {
    let CfgScratch { reached, preds, next, work, gone } = scratch;
    next.clear();
    next.resize(func.blocks.len());
    // Jumps to jumps.
    for i in 0..func.layout().len() {
        let bb = func.layout()[i];
        let mut at = func.last_inst(bb);
        for _ in 0..2 {
            let Some(inst) = at else { break };
            at = func.nodes[inst].prev.expand();
            if !func.op(inst).is_branch() {
                break;
            }
            if let [Operand::Block(t)] = *func.operands(inst) {
                let to = destination(func, t);
                if to != t {
                    func.operands_mut(inst)[0] = Operand::Block(to);
                }
            }
        }
        // A conditional branch whose two ways are one.
        let ways = func.successors(bb);
        next[bb] = ways;
        if let ([Some(t), Some(l)], Some(last)) = (ways, func.last_inst(bb))
            && t == l
            && let Some(cond) = func.nodes[last].prev.expand()
        {
            func.remove_inst(bb, cond);
            next[bb] = func.successors(bb);
            stats.removed += 1;
        }
    }
    // Unreachable blocks.
    reached.clear();
    work.clear();
    work.extend(func.layout().first());
    while let Some(bb) = work.pop() {
        if reached.insert(bb) {
            work.extend(next[bb].into_iter().flatten());
        }
    }
    let before = func.layout.len();
    func.layout.retain(|&bb| reached.contains(bb));
    // Straight-line pairs.
    preds.clear();
    preds.resize(func.blocks.len());
    for &bb in &func.layout {
        for s in next[bb].into_iter().flatten() {
            preds[s] += 1;
        }
    }
    gone.clear();
    let entry = func.layout.first().copied();
    for i in 0..func.layout.len() {
        let bb = func.layout[i];
        if gone.contains(bb) {
            continue;
        }
        while let [None, Some(to)] = next[bb] {
            let Some(jump) = func.last_inst(bb) else { break };
            let data = &func.blocks[to];
            let plain = func.op(jump) == PtxOp::Bra && !data.nounroll && !data.agent;
            if !plain || preds[to] != 1 || to == bb || Some(to) == entry || func.blocks[to].first.is_none() {
                break;
            }
            func.remove_inst(bb, jump);
            if let (Some(inst), Some(name)) = (func.first_inst(to), func.blocks[to].name.take()) {
                func.comment(inst, name);
            }
            func.splice(bb, to);
            next[bb] = next[to];
            gone.insert(to);
        }
    }
    func.layout.retain(|&bb| !gone.contains(bb));
    stats.blocks_removed += (before - func.layout.len()) as u32;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nvvm::{FuncBuilder, Special};

    #[test]
    fn threads_jumps_merges_pairs_and_drops_the_unreachable() {
        let mut f = Function::kernel("k");
        let mut b = FuncBuilder::new(&mut f);
        let t = b.special(Special::TidX);
        let p = b.setp_eq_u32(t, 0);
        let (hop, end, dead, work) = (b.block(), b.block(), b.block(), b.block());
        b.br_if(p, false, hop, work);
        b.place(work);
        b.nanosleep_u32(1);
        b.bra(end);
        b.place(hop);
        b.bra(end);
        b.place(dead);
        b.nanosleep_u32(2);
        b.bra(end);
        b.place(end);
        b.ret();
        let mut stats = CleanupStats::default();
        run(&mut f, &mut CfgScratch::default(), &mut stats);
        assert_eq!(f.layout().len(), 3, "entry, work, end");
        assert_eq!(f.successors(f.layout()[0]), [Some(end), Some(work)]);
        assert_eq!(stats.blocks_removed, 2);
    }

    #[test]
    fn empty_infinite_loops_end() {
        let mut f = Function::kernel("k");
        let mut b = FuncBuilder::new(&mut f);
        let (x, y) = (b.block(), b.block());
        b.place(x);
        b.bra(y);
        b.place(y);
        b.bra(x);
        run(&mut f, &mut CfgScratch::default(), &mut CleanupStats::default());
        assert!(!f.layout().is_empty());
    }
}
