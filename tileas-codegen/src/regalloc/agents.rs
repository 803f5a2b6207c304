//! Which blocks belong to which agent, and what each may use.
//!
//! In: a function whose agents' first blocks are marked. Out: one [`AgentRange`] per agent and one, first, for the frame
//! around them: prologue, dispatch and join. An agent has the blocks its first block dominates: no other warp runs
//! them. Its budget is what the function's threads have at entry, or what a `setmaxnreg` in its first block says.
//! Cost: one walk of the graph per agent.

use super::pressure::AgentRange;
use crate::nvvm::{Bb, Function, PtxOp};
use cranelift_entity::EntitySet;

/// Memory of [`AgentFinder::find`].
#[derive(Default)]
pub struct AgentFinder {
    seen: EntitySet<Bb>,
    owned: EntitySet<Bb>,
    work: Vec<Bb>,
}

impl AgentFinder {
    /// The frame and the agents, in layout order of their first blocks. `cap`: registers per thread at entry.
    pub fn find(&mut self, func: &Function, cap: u32) -> Vec<AgentRange> {
        let Some(&entry) = func.layout().first() else { return Vec::new() };
        self.owned.clear();
        self.reach(func, entry, None);
        let reached = self.seen.clone();
        let mut out = vec![AgentRange { name: "frame".to_owned(), blocks: Vec::new(), max_regs: cap }];
        for &first in func.layout().iter().filter(|&&bb| func.blocks[bb].agent && reached.contains(bb)) {
            if self.owned.contains(first) {
                continue;
            }
            self.reach(func, entry, Some(first));
            // The first block leads, so that it is known as the entry.
            let mut blocks = vec![first];
            blocks.extend(
                func.layout()
                    .iter()
                    .filter(|&&bb| bb != first && reached.contains(bb) && !self.seen.contains(bb)),
            );
            for &bb in &blocks {
                self.owned.insert(bb);
            }
            let name = func.blocks[first].name.clone().unwrap_or_else(|| first.to_string());
            out.push(AgentRange { name, blocks, max_regs: setmaxnreg(func, first).unwrap_or(cap) });
        }
        let frame = func.layout().iter().filter(|&&bb| reached.contains(bb) && !self.owned.contains(bb));
        out[0].blocks.extend(frame);
        out
    }

    /// Marks what is reached from `entry` without entering `avoid`.
    fn reach(&mut self, func: &Function, entry: Bb, avoid: Option<Bb>) {
        self.seen.clear();
        self.work.clear();
        self.work.push(entry);
        while let Some(bb) = self.work.pop() {
            if Some(bb) != avoid && self.seen.insert(bb) {
                self.work.extend(func.successors(bb).into_iter().flatten());
            }
        }
    }
}

/// Whether some agent's budget is another than that of the frame.
pub(super) fn differ(func: &Function, cap: u32) -> bool {
    let mut firsts = func.layout().iter().filter(|&&bb| func.blocks[bb].agent);
    firsts.any(|&bb| setmaxnreg(func, bb).is_some_and(|n| n != cap))
}

fn setmaxnreg(func: &Function, first: Bb) -> Option<u32> {
    let inst =
        func.insts(first).find(|&i| matches!(func.op(i), PtxOp::SetmaxnregInc | PtxOp::SetmaxnregDec))?;
    func.operands(inst).first()?.imm().and_then(|n| u32::try_from(n).ok())
}
