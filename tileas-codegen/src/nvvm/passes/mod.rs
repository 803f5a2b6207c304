//! Light cleanups that keep the code handed to ptxas small: it optimises well, but parse time and live ranges count.
//!
//! [`cleanup`] runs, until nothing changes or twice: [`local`] (copies, constants, strength reduction, common
//! sub-expressions inside a block), [`dce`] (pure instructions that are not read), [`mod@cfg`] (jumps to jumps, unreachable and
//! mergeable blocks). Each keeps the function valid. [`index`] only looks, [`memory`] serves code that spills. What one walk found out about registers (`notes`) serves all that come
//! after it, up to the register budgets. Cost: linear in instructions per round.

pub mod cfg;
pub mod dce;
pub mod index;
pub mod local;
pub mod memory;
mod notes;

use super::module::Function;
use crate::nvvm::Liveness;

/// Scratch memory of the cleanups.
#[derive(Default)]
pub struct CleanupScratch {
    local: local::LocalScratch,
    notes: notes::Notes,
    work: dce::Work,
    cfg: cfg::CfgScratch,
    /// Number of blocks, if it is what it was when the notes were taken.
    noted: Option<usize>,
}

impl CleanupScratch {
    /// Liveness of the function cleaned last, if it is as it was left and that much is known. Registers may seem to live
    /// longer than they do, but none is read before it is written.
    pub(crate) fn liveness(&mut self, func: &Function) -> Option<&Liveness> {
        self.noted.take().filter(|&blocks| blocks == func.layout().len())?;
        self.notes.liveness(func)
    }

    /// What [`CleanupScratch::liveness`] found last.
    pub(crate) fn solved(&self) -> &Liveness {
        self.notes.solved()
    }
}

/// What the cleanups did.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct CleanupStats {
    /// Operands replaced by the value they were a copy of.
    pub propagated: u32,
    /// Instructions folded or made cheaper.
    pub folded: u32,
    /// Instructions replaced by an earlier equal one.
    pub shared: u32,
    /// Instructions removed.
    pub removed: u32,
    /// Blocks removed.
    pub blocks_removed: u32,
}

/// Runs all cleanups on a function.
pub fn cleanup(func: &mut Function, scratch: &mut CleanupScratch) -> CleanupStats {
    let mut stats = CleanupStats::default();
    for round in 0..2 {
        let before = stats;
        // The other passes leave branches alone; all they can do is empty blocks.
        if round == 0 || cfg!(debug_assertions) || cfg::has_detour(func) {
            let idle = round > 0 && !cfg::has_detour(func);
            let branches = idle.then(|| cfg::branches(func));
            cfg::run(func, &mut scratch.cfg, &mut stats);
            debug_assert!(branches.is_none_or(|b| stats == before && b == cfg::branches(func)));
        }
        let done = round > 0 && stats == before && !local::knows_more(&scratch.local, &scratch.notes);
        if done && !cfg!(debug_assertions) {
            break;
        }
        let CleanupScratch { local, notes, work, .. } = scratch;
        local::run_noting(func, local, notes, &mut stats);
        dce::sweep(func, notes, work, &mut stats, |func, notes, inst| notes.forget(func.look(inst)));
        // Blocks only ever become fewer.
        scratch.noted = Some(func.layout().len());
        debug_assert!(!done || stats == before, "a round that was to find nothing found something");
        if stats == before {
            break;
        }
    }
    stats
}
