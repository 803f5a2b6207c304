//! Exact mode (`scheduler = optimal`): the least II, then the fewest stages at it, with proofs.
//!
//! In: a problem, and what the heuristics made of it: a schedule as upper bound, the largest bound they proved as
//! lower one. Out: a schedule that is better or none, and an [`Optimality`] that says between which numbers the best one
//! lies. Four steps, one file each: [`model`] (with `windows` and `resources`) says what must hold at one II,
//! [`encode`] puts that into a SAT solver, [`theory`] propagates differences of starts inside it, [`search`] decides one
//! II after the other.
//!
//! Guarantee: a refutation is a proof; a schedule found is checked by [`super::verify`], which shares nothing with this.
//! Deterministic: the budget `optimal-steps` counts what the solver does. Elsewhere: the heuristics, whose bounded
//! exact search (`exact`) needs no solver. Feature `optimal`; the solver is batsat, a MiniSat in Rust.

mod encode;
mod model;
mod resources;
mod search;
#[cfg(test)]
mod tests;
mod theory;
mod windows;

use super::analysis::Optimality;
use super::cost_based::CostBased;
use super::graph::Graph;
use super::length;
use super::options::{Rung, ScheduleOptions};

use super::problem::{MAX_QUANTITY, Node, Problem};
use search::Search;

impl CostBased {
    /// Improves on the last success of the heuristics, or finds one where they did not.
    ///
    /// `found`: the II of that success, its starts are in [`CostBased::starts`]. Returns the II of what is there now.
    pub(super) fn optimise(
        &mut self,
        p: &Problem,
        g: &Graph,
        o: &ScheduleOptions,
        found: Option<u32>,
        cap: u32,
    ) -> (Option<u32>, Optimality) {
        let at_hand = found.map(|ii| (ii, self.starts().to_vec()));
        let mut search = Search::new(p, g, o, at_hand);
        search.run(self.proven, cap);
        let (better, report) = search.into_best();
        let Some((ii, starts)) = better else { return (found, report) };
        self.adopt(p, g, o, ii, &starts);
        self.rung = Some(Rung::Exact);
        self.proven = self.proven.max(report.ii.0);
        (Some(ii), report)
    }

    /// Makes `starts` the last success, compacted where that leaves it as short.
    fn adopt(&mut self, p: &Problem, g: &Graph, o: &ScheduleOptions, ii: u32, starts: &[i64]) {
        let exact = ScheduleOptions { rrt_size_threshold: 0, ..o.clone() };
        let fits = ii <= MAX_QUANTITY / 2
            && self.ims.prepare(p, g, ii.into(), o.max_stages)
            && self.rrt.reset(p, ii, 0).is_ok()
            && self.rrt.is_exact();
        if fits {
            self.ims.start.clear();
            self.ims.start.extend_from_slice(starts);
            for (u, &t) in starts.iter().enumerate() {
                self.rrt.place(Node::from_u32(u as u32), t);
            }
            if self.finish(p, g, &exact, ii) && length(p, self.starts(), ii) <= length(p, starts, ii) {
                return;
            }
        }
        self.keep(starts);
    }
}
