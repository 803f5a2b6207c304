//! Fewer stages for a schedule that is found, II unchanged.
//!
//! In: the best starts. Out: starts in as few stages as a bounded exact search reaches, or the same ones. A stage more
//! is one more iteration in flight: longer prologues, more slots, more registers. Heuristics give a stage away where
//! the last op misses the end of a stage by a few cycles; here every op gets the begin of the next stage as a deadline, windows
//! shrink with it, and the search answers whether that is possible.
//!
//! Guarantee: starts stay legal, II and bounds untouched. Cost: at most [`STEPS`] steps a stage, and nothing where the
//! longest path already needs as many stages, or where there are two.

use super::compact;
use super::cost_based::CostBased;
use super::exact::Answer;
use super::graph::Graph;
use super::ims::{Ims, NEVER};
use super::options::{Rung, ScheduleOptions};
use super::problem::Problem;

/// Steps of exact search for one stage less.
const STEPS: u64 = 20_000;
/// Larger loops keep their stages: setting up the search takes longer than all of the schedule, and hardly ever saves one.
const MOST_OPS: u32 = 40;

impl CostBased {
    /// Takes stages off the last success.
    pub(super) fn fewest_stages(&mut self, p: &Problem, g: &Graph, o: &ScheduleOptions, ii: u32) {
        let wide = i64::from(ii);
        let stages = |starts: &[i64]| starts.iter().max().map_or(1, |&t| t / wide + 1);
        while g.n <= MOST_OPS && o.rungs.has(Rung::Exact) && stages(self.starts()) >= 3 {
            let end = (stages(self.starts()) - 1) * wide;
            if !self.ims.prepare(p, g, wide, o.max_stages)
                || !deadline(&mut self.ims, g, wide, end)
                || !self.closure.build(g, ii)
                || self.rrt.clear(p, ii, o.rrt_size_threshold).is_err()
            {
                return;
            }
            let mut left = STEPS.min(o.exact_steps);
            let (rrt, ims) = (&mut self.rrt, &mut self.ims);
            if left == 0 || self.exact.solve(g, &self.closure, rrt, ims, ii, &mut left) != Answer::Found {
                return;
            }
            compact::pull(g, &mut self.rrt, &mut self.ims, wide);
            compact::settle(g, &mut self.ims, wide);
            if stages(&self.ims.start) >= stages(self.starts()) {
                return;
            }
            let starts = std::mem::take(&mut self.ims.start);
            self.keep(&starts);
            self.ims.start = starts;
        }
    }
}

/// Every op starts before `end`, and before what follows it. `false`: some window is empty.
fn deadline(ims: &mut Ims, g: &Graph, ii: i64, end: i64) -> bool {
    ims.late.iter_mut().for_each(|t| *t = (*t).min(end - 1));
    loop {
        let mut changed = false;
        for &u in g.topo.iter().rev() {
            let follow = g.succ.of(u).iter().map(|a| ims.late[a.node as usize].saturating_sub(a.weight(ii)));
            let latest = follow.min().unwrap_or(NEVER);
            if latest < ims.late[u as usize] {
                ims.late[u as usize] = latest;
                changed = true;
            }
            // An empty window would shrink without end.
            if ims.late[u as usize] < ims.early[u as usize] {
                return false;
            }
        }
        if !changed {
            return true;
        }
    }
}
