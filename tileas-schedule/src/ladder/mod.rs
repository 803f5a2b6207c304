//! The published cost-based generator: four placement arms behind four gates, on a ladder of strategies.
//!
//! In: a loop, a proven lower bound on II, a cap. Out: starts and an II, in the [`Placement`]. II goes up one by one (above
//! [`LINEAR`] in doubling steps, then halving); at each the rungs are tried in order, and the first success ends the search:
//! `rau_refinement` (iterative modulo scheduling with eviction) → `deepest_retry` (the retry arm at the largest horizon) →
//! `initial_placement` (the group driver with its four arms) → `cost_based_placement` over all ops → the last two again from
//! a cleared state. Intermediate state, dead ops in the snapshot, is kept from `deepest_retry` to the first placements;
//! where there was none to clear, nothing is tried a second time.
//!
//! Complete and apart from the default generator ([`crate::modulo`]): nothing searches below the II found here, and nothing
//! moves the starts afterwards. `scheduler = cost` asks for it. Files: [`gates`] (the four of them), [`cost`] (the vector and its
//! evaluators), [`arms`] (permute, fuse, retry, cost-based), [`groups`] (which group is next).
//!
//! Guarantee: legal starts, bound ≤ II ≤ cap; deterministic. Cost: `search.arm-steps` starts looked at. Source: spec page 3, spec page 4
//! ("Placement Arms").

mod arms;
mod cost;
mod gates;
mod groups;

use crate::options::{IiSearch, Rung};
use crate::placement::{Loop, Placement};
use crate::trail::Strategy;
use arms::Attempt;
use groups::Groups;

/// Up to here II is raised one by one.
const LINEAR: u32 = 256;
/// One part in so many of the steps that are left goes to the arms at one II.
const WAY_UP: u64 = 4;

/// Memory of the generator.
#[derive(Default)]
pub(crate) struct Ladder {
    groups: Groups,
    /// Starts that may still be looked at.
    left: u64,
}

impl Ladder {
    /// Searches II in [`Placement::proven`]`..=cap`. The starts of a success are in [`Placement::starts`].
    pub fn search(&mut self, at: &mut Placement, l: Loop<'_>, cap: u32) -> Option<u32> {
        self.left = at.budget.draw(l.o.arm_steps);
        self.groups.arms.gates.seed(l.p);
        let linear = match l.o.ii_search {
            IiSearch::Linear => u32::MAX,
            IiSearch::Auto => LINEAR,
            IiSearch::Gallop => 0,
        };
        let mut ii = at.proven;
        if ii > cap {
            return None;
        }
        let (mut step, mut failed) = (1u32, ii - 1);
        let mut found = loop {
            if self.try_ii(at, l, ii) {
                break ii;
            }
            if at.out_of_steps || ii >= cap {
                return None;
            }
            failed = ii;
            ii = ii.saturating_add(step).min(cap);
            if ii > linear {
                step = step.saturating_mul(2);
            }
        };
        while found - failed > 1 {
            let middle = failed + (found - failed) / 2;
            if self.try_ii(at, l, middle) { found = middle } else { failed = middle }
        }
        at.fits().then_some(found)
    }

    /// All rungs at one II; a success is kept.
    fn try_ii(&mut self, at: &mut Placement, l: Loop<'_>, ii: u32) -> bool {
        let rung = if at.open(l, ii) { self.climb(at, l, ii) } else { None };
        at.record(ii, rung.map(Strategy::Ladder));
        if let Some(rung) = rung {
            at.keep_placed();
            at.choose();
            if rung != Rung::RauRefinement {
                at.trail.arms.extend_from_slice(&self.groups.by);
            }
        }
        rung.is_some()
    }

    fn climb(&mut self, at: &mut Placement, l: Loop<'_>, ii: u32) -> Option<Rung> {
        if l.o.rungs.has(Rung::RauRefinement) && at.attempt(l, ii) {
            return Some(Rung::RauRefinement);
        }
        let share = self.left / WAY_UP;
        if at.out_of_steps || share == 0 {
            return None;
        }
        let closed = at.closure.build(l.g, ii);
        let ladder = [
            (Rung::DeepestRetry, false),
            (Rung::InitialPlacement, false),
            (Rung::CostBasedPlacement, false),
            (Rung::InitialPlacement, true),
            (Rung::CostBasedPlacement, true),
        ];
        let (mut used, mut marked, mut found) = (0, false, None);
        for (rung, cleared) in ladder {
            // Clearing what is clear already repeats the same failure.
            if !l.o.rungs.has(rung) || (cleared && !marked) || !at.empty_table(l, ii) {
                continue;
            }
            let Placement { table, windows, closure, .. } = &mut *at;
            let (p, g, options) = (l.p, l.g, l.o);
            let closure = closed.then_some(&*closure);
            let attempt = Attempt { p, g, windows, closure, options, ii: ii.into() };
            self.groups.arms.steps = share / 2;
            let keep = !cleared && marked;
            let done = match rung {
                Rung::DeepestRetry => self.groups.deepest_retry(&attempt, table),
                Rung::InitialPlacement => self.groups.initial_placement(&attempt, table, keep),
                _ => self.groups.cost_based_placement(&attempt, table, keep),
            };
            marked |= self.groups.arms.dead.contains(&true);
            used += share / 2 - self.groups.arms.steps;
            if done {
                found = Some(rung);
                break;
            }
            if used >= share {
                break;
            }
        }
        self.left -= used.min(self.left);
        at.budget.pay(used);
        if found.is_some() {
            at.ims.start.clear();
            at.ims.start.extend_from_slice(&self.groups.arms.starts);
        }
        found
    }
}
