//! The strategies at one II, in the order they are tried.
//!
//! `rau_refinement` (iterative modulo scheduling with eviction) → `row_packing` (rows first, stages at the end) →
//! `deepest_retry` (the retry arm at the largest horizon) → `initial_placement` (the group driver with its four arms) → `cost_based_placement` over all ops → both again from
//! a cleared state → `portfolio` (other priorities, forwards and backwards) → `exact` (local search
//! belongs to it, and runs below a success only). The first success ends the ladder.
//! Intermediate state, dead ops in the snapshot, is kept from `deepest_retry` to the first placements and cleared
//! before their second turn, which happens only if there was something to clear.
//!
//! In: an II at or above the bounds. Out: whether some rung placed all ops; the compacted result is the generator's
//! best. Each rung has its own budget in steps for the whole region. Source: spec page 3, "Strategy Orchestration".

use super::arms::Loop;
use super::cost_based::CostBased;
use super::exact::Answer;
use super::graph::Graph;
use super::ims::{Outcome, Priority, Stuck};
use super::options::{Rung, ScheduleOptions};
use super::problem::Problem;
use super::rows::RowPacking;
use super::trail::TryEnd;

/// On the way up an II gets one part in this many of the steps of exact search that are left.
const WAY_UP: u64 = 3;
/// The same for the steps of the arms.
const ARMS_WAY_UP: u64 = 4;

/// Stages above the least that a packing of rows may take where nothing else was tried.
const MORE_STAGES: i64 = 2;

/// Steps that setting up exact or local search is worth, beyond what is too little to count.
pub(super) fn setup_steps(g: &Graph) -> u64 {
    u64::from(g.n) * u64::from(g.n) / 8
}

impl CostBased {
    /// All rungs at one II; a success is left in `best`.
    pub(super) fn try_ii(
        &mut self,
        p: &Problem,
        g: &Graph,
        o: &ScheduleOptions,
        ii: u32,
        attempts: u32,
    ) -> bool {
        self.end = None;
        let found = self.climb(p, g, o, ii, attempts);
        self.record(ii, self.rung.filter(|_| found));
        found
    }

    /// Notes how the try at an II ended; `rung`: who placed all ops.
    pub(super) fn record(&mut self, ii: u32, rung: Option<Rung>) {
        let unplaced = if self.out_of_steps { TryEnd::OutOfSteps } else { TryEnd::NotPlaced };
        let end = self.end.take().filter(|_| rung.is_none());
        let end = rung.map_or(end.unwrap_or(unplaced), TryEnd::Placed);
        let stuck = self.ims.stuck.filter(|_| rung.is_none()).map(|s| s.node);
        self.trail.add(ii, end, stuck);
        if let Some(rung) = rung {
            self.trail.arms.clear();
            if matches!(rung, Rung::DeepestRetry | Rung::InitialPlacement | Rung::CostBasedPlacement) {
                self.trail.arms.extend_from_slice(&self.driver.by);
            }
        }
    }

    /// Rau's method at the bound, before anything that takes time to set up; most loops end here.
    pub(super) fn first_attempt(&mut self, p: &Problem, g: &Graph, o: &ScheduleOptions, ii: u32) -> bool {
        let quantised = o.rrt_size_threshold > 0 && ii > o.rrt_size_threshold;
        if quantised || !o.rungs.has(Rung::RauRefinement) || !self.ims.prepare(p, g, ii.into(), o.max_stages)
        {
            return false;
        }
        self.end = None;
        // Where rows can be packed the first attempt is a short one: it succeeds soon or after many evictions.
        let packs = o.rungs.has(Rung::RowPacking) && RowPacking::applies(g, &self.ims);
        self.ims.hurry = packs;
        let placed = self.place(p, g, o, ii, 0) == Some(true);
        self.ims.hurry = false;
        let rung = match placed {
            true => Rung::RauRefinement,
            false if packs && self.pack_rows(p, g, o, ii) => Rung::RowPacking,
            false => {
                self.first_failed = if packs { 0 } else { ii };
                return false;
            }
        };
        let found = self.succeed(p, g, o, ii, rung);
        let stages = |starts: &[i64]| starts.iter().max().map_or(0, |&t| t / i64::from(ii));
        if found
            && rung == Rung::RowPacking
            && stages(&self.ims.start) > stages(&self.ims.early) + MORE_STAGES
        {
            // Others may do with fewer; its turn comes again.
            self.rung = None;
            return false;
        }
        self.record(ii, self.rung.filter(|_| found));
        found
    }

    /// A packing of rows; a success is in `ims.start`, and in the table.
    fn pack_rows(&mut self, p: &Problem, g: &Graph, o: &ScheduleOptions, ii: u32) -> bool {
        if self.rows_failed == ii || !self.clear_table(p, o, ii) {
            return false;
        }
        let found = self.rows.attempt(g, &mut self.rrt, &mut self.ims, ii.into());
        self.steps += std::mem::take(&mut self.rows.probes);
        if !found {
            self.rows_failed = ii;
        }
        found
    }

    fn climb(&mut self, p: &Problem, g: &Graph, o: &ScheduleOptions, ii: u32, attempts: u32) -> bool {
        let wide = i64::from(ii);
        // A look at an II counts as well: a long way up ends.
        self.steps += 1 + u64::from(g.n) / 64;
        if self.steps > o.step_limit {
            self.out_of_steps = true;
            return false;
        }
        if !self.ims.prepare(p, g, wide, o.max_stages) {
            self.end = Some(TryEnd::NoWindow);
            self.refute(ii);
            return false;
        }
        if o.rungs.has(Rung::RauRefinement) && self.first_failed != ii {
            match self.place(p, g, o, ii, 0) {
                Some(true) => return self.succeed(p, g, o, ii, Rung::RauRefinement),
                Some(false) => {}
                None => return false,
            }
        }
        if o.rungs.has(Rung::RowPacking) && RowPacking::applies(g, &self.ims) && self.pack_rows(p, g, o, ii) {
            return self.succeed(p, g, o, ii, Rung::RowPacking);
        }
        // In large loops the arms find nothing that Rau's method does not, and exact search has been at the bound already.
        if !self.quick
            && let Some(rung) = self.climb_arms(p, g, o, ii)
        {
            return self.succeed(p, g, o, ii, rung);
        }
        if o.rungs.has(Rung::Portfolio) {
            // Attempts beyond the first: both directions in turn.
            for k in 1..attempts.max(1) {
                match self.place(p, g, o, ii, k) {
                    Some(true) => return self.succeed(p, g, o, ii, Rung::Portfolio),
                    Some(false) => {}
                    None => return false,
                }
            }
        }
        if !self.quick
            && o.rungs.has(Rung::Exact)
            && ii >= self.floor
            && self.try_exact_search(p, g, o, ii, WAY_UP)
        {
            self.rung = Some(Rung::Exact);
            return true;
        }
        false
    }

    fn succeed(&mut self, p: &Problem, g: &Graph, o: &ScheduleOptions, ii: u32, rung: Rung) -> bool {
        self.rung = Some(rung);
        self.finish(p, g, o, ii)
    }

    fn refute(&mut self, ii: u32) {
        if self.proven == ii {
            self.proven = ii + 1;
        }
    }

    /// An empty table; `false`: some op does not even fit alone.
    fn clear_table(&mut self, p: &Problem, o: &ScheduleOptions, ii: u32) -> bool {
        let Err(node) = self.rrt.clear(p, ii, o.rrt_size_threshold) else { return true };
        self.ims.stuck = Some(Stuck { node, window: (0, i64::from(ii) - 1), rank: 0 });
        self.end = Some(TryEnd::DoesNotFit);
        self.refute(ii);
        false
    }

    /// Attempt `k` of iterative modulo scheduling; `None`: no attempt can be made any more at this II.
    fn place(&mut self, p: &Problem, g: &Graph, o: &ScheduleOptions, ii: u32, k: u32) -> Option<bool> {
        if !self.clear_table(p, o, ii) {
            return None;
        }
        let backward = k % 3 == 2;
        let priority = match k {
            0 | 2 => Priority::Height,
            1 | 5 => Priority::Slack,
            3 => Priority::Early,
            k => Priority::Sampled(o.seed.wrapping_add(u64::from(k))),
        };
        // A probe looks at many rows of a large table: count them in.
        let weight = 1 + u64::from(self.rrt.rows()) / 256;
        let left = o.step_limit.saturating_sub(self.steps) / weight;
        let full = u64::from(o.budget_ratio.max(1)) * u64::from(g.n) + 16;
        self.ims.snug = k.is_multiple_of(2);
        self.attempts += 1;
        let before = self.ims.placements;
        let (wide, budget) = (i64::from(ii), full.min(left));
        let outcome = if backward {
            if !std::mem::replace(&mut self.mirrored, true) {
                g.mirror_into(&mut self.mirror);
            }
            self.ims.attempt_backward(p, g, &self.mirror, &mut self.rrt, wide, priority, budget)
        } else {
            self.ims.attempt(p, g, &mut self.rrt, wide, priority, budget)
        };
        self.steps += (self.ims.placements - before) * weight;
        if outcome == Outcome::Placed {
            return Some(true);
        }
        if self.steps + weight > o.step_limit {
            self.out_of_steps = true;
            return None;
        }
        Some(false)
    }

    /// The rungs made of arms. A success is in `ims.start`, and in the table.
    fn climb_arms(&mut self, p: &Problem, g: &Graph, o: &ScheduleOptions, ii: u32) -> Option<Rung> {
        let total = self.draw(self.driver.arms.steps);
        let share = total / ARMS_WAY_UP;
        let arms = [Rung::DeepestRetry, Rung::InitialPlacement, Rung::CostBasedPlacement];
        // Closing the distances is paid for, also where the arms give up at once: else every II of a long way up costs it.
        let setup = 1 + setup_steps(g) / 4;
        if share <= setup || !arms.iter().any(|&rung| o.rungs.has(rung)) {
            return None;
        }
        self.driver.arms.steps = total - setup;
        self.pay(setup);
        // Without closed distances a seat that nothing evicts is mostly in somebody's way: larger loops have no arms.
        if !self.closure.build(g, ii) {
            return None;
        }
        let ladder = [
            (Rung::DeepestRetry, false),
            (Rung::InitialPlacement, false),
            (Rung::CostBasedPlacement, false),
            (Rung::InitialPlacement, true),
            (Rung::CostBasedPlacement, true),
        ];
        let mut used = setup;
        let mut marked = false;
        let mut found = None;
        for (rung, cleared) in ladder {
            // Clearing what is clear already repeats the same failure.
            if !o.rungs.has(rung) || (cleared && !marked) || !self.clear_table(p, o, ii) {
                continue;
            }
            let l = Loop { p, g, ims: &self.ims, closure: &self.closure, options: o, ii: ii.into() };
            self.driver.arms.steps = (share - setup) / 2;
            let keep = !cleared && marked;
            let done = match rung {
                Rung::DeepestRetry => self.driver.deepest_retry(&l, &mut self.rrt),
                Rung::InitialPlacement => self.driver.initial_placement(&l, &mut self.rrt, keep),
                _ => self.driver.cost_based_placement(&l, &mut self.rrt, keep),
            };
            marked |= self.driver.arms.dead.contains(&true);
            used += (share - setup) / 2 - self.driver.arms.steps;
            if done {
                found = Some(rung);
                break;
            }
            if used >= share {
                break;
            }
        }
        self.driver.arms.steps = total.saturating_sub(used);
        self.pay(self.draw(used - setup));
        if found.is_some() {
            self.ims.start.clear();
            self.ims.start.extend_from_slice(&self.driver.arms.seats);
        }
        found
    }

    /// One part in `parts` of the steps left goes to this II.
    pub(super) fn try_exact_search(
        &mut self,
        p: &Problem,
        g: &Graph,
        o: &ScheduleOptions,
        ii: u32,
        parts: u64,
    ) -> bool {
        let share = self.draw(self.exact_left / parts);
        let setup = setup_steps(g);
        if share <= setup || !self.closure.build(g, ii) || !self.clear_table(p, o, ii) {
            return false;
        }
        let mut left = share - setup;
        let (rrt, ims) = (&mut self.rrt, &mut self.ims);
        let answer = self.exact.solve(g, &self.closure, rrt, ims, ii, &mut left);
        self.exact_left -= share - left;
        self.pay(share - left);
        match answer {
            Answer::Found => self.finish(p, g, o, ii),
            Answer::Refuted => {
                self.end = Some(TryEnd::Refuted);
                self.refute(ii);
                false
            }
            Answer::Unknown | Answer::TooLarge => {
                self.end = Some(TryEnd::GaveUp);
                false
            }
        }
    }
}
