//! Fewer stages for a schedule that is found, II unchanged.
//!
//! In: the best starts. Out: starts in as few stages as a bounded exact search reaches, or the same ones. A stage more
//! is one more iteration in flight: longer prologues, more slots, more registers. Heuristics give a stage away where
//! the last op misses the end of a stage by a few cycles; here every op gets the begin of the next stage as a deadline, windows
//! shrink with it, and the search answers whether that is possible. After the stages with a start, the one in which the last op
//! finishes. Over rows where the interval is short, over orders where it is long, then the other way round.
//!
//! Guarantee: starts stay legal, II and bounds untouched. Cost: at most [`STEPS`] steps a stage and search, and nothing where the
//! longest path already needs as many stages; where there are two with a start, only their end is looked at.

use super::compact;
use super::cost_based::CostBased;
use super::exact::Answer;
use super::graph::Graph;
use super::ims::{Ims, NEVER, Outcome, Priority};
use super::options::{Rung, ScheduleOptions};
use super::problem::{Node, Problem};

/// Steps of each search for one stage less, and for a finish one stage earlier.
const STEPS: u64 = 20_000;
const STEPS_FINISH: u64 = 4_000;
/// Larger loops keep their stages: setting up the search takes longer than all of the schedule, and hardly ever saves one.
const MOST_OPS: u32 = 40;
/// Up to so many ops there is no attempt of Rau's method before the search.
const FEW_OPS: u32 = 12;
/// Above this interval orders are searched before rows.
const LONG: u32 = 256;

/// Stages with a start, and those up to the last finish.
fn stages(p: &Problem, starts: &[i64], ii: i64) -> (i64, i64) {
    let last = starts.iter().max().map_or(0, |&t| t / ii);
    let finish = p.nodes().zip(starts).map(|(u, &t)| t + i64::from(p.latency(u))).max().unwrap_or(0);
    (last + 1, finish / ii + 1)
}

impl CostBased {
    /// Takes stages off the last success.
    pub(super) fn fewest_stages(&mut self, p: &Problem, g: &Graph, o: &ScheduleOptions, ii: u32) {
        let wide = i64::from(ii);
        if g.n > MOST_OPS || !o.rungs.has(Rung::Exact) {
            return;
        }
        let mut now = stages(p, self.starts(), wide);
        while now.0 >= 3 && self.squeeze(p, g, o, ii, ((now.0 - 1) * wide, NEVER), STEPS) {
            now = stages(p, self.starts(), wide);
        }
        while now.1 > now.0.max(2)
            && self.squeeze(p, g, o, ii, (now.0 * wide, (now.1 - 1) * wide), STEPS_FINISH)
        {
            now = stages(p, self.starts(), wide);
        }
    }

    /// A schedule of the same II whose ops start before the first of `ends` and finish before the second. `false`: none was
    /// found.
    fn squeeze(
        &mut self,
        p: &Problem,
        g: &Graph,
        o: &ScheduleOptions,
        ii: u32,
        ends: (i64, i64),
        steps: u64,
    ) -> bool {
        let wide = i64::from(ii);
        let steps = self.draw(steps.min(o.exact_steps));
        if steps == 0
            || !self.ims.prepare(p, g, wide, o.max_stages)
            || !deadline(p, &mut self.ims, g, wide, ends)
        {
            return false;
        }
        // Of few ops the search is done before an attempt is.
        if g.n > FEW_OPS && self.rrt.clear(p, ii, o.rrt_size_threshold).is_ok() {
            (self.ims.snug, self.ims.hurry) = (true, true);
            let budget = 2 * u64::from(g.n) + 16;
            let outcome = self.ims.attempt(p, g, &mut self.rrt, wide, Priority::Height, budget);
            self.ims.hurry = false;
            if outcome == Outcome::Placed {
                return self.take_shorter(p, g, wide);
            }
        }
        if !self.closure.build(g, ii) {
            return false;
        }
        for orders in [ii > LONG, ii <= LONG] {
            if self.rrt.clear(p, ii, o.rrt_size_threshold).is_err() {
                return false;
            }
            let given = self.draw(steps);
            let mut left = given;
            let mut starts = std::mem::take(&mut self.saved);
            starts.clear();
            starts.extend_from_slice(self.starts());
            let (rrt, ims) = (&mut self.rrt, &mut self.ims);
            let answer = if orders {
                let guide = Some((&starts[..], ii));
                self.exact.search_orders(g, &self.closure, rrt, ims, ii, ii, guide, &mut left)
            } else {
                self.exact.solve(g, &self.closure, rrt, ims, ii, &mut left)
            };
            self.saved = starts;
            self.pay(given - left);
            match answer {
                Answer::Unknown => continue,
                Answer::Refuted => return false,
                Answer::Found => {}
            }
            return self.take_shorter(p, g, wide);
        }
        false
    }

    /// Keeps the starts found if they end in an earlier stage.
    fn take_shorter(&mut self, p: &Problem, g: &Graph, ii: i64) -> bool {
        compact::pull(g, &mut self.rrt, &mut self.ims, ii);
        compact::settle(g, &mut self.ims, ii);
        let better = stages(p, &self.ims.start, ii) < stages(p, self.starts(), ii);
        if better {
            let starts = std::mem::take(&mut self.ims.start);
            self.keep(&starts);
            self.ims.start = starts;
        }
        better
    }
}

/// Every op starts before the first of `ends`, finishes before the second, and starts before what follows it. `false`:
/// some window is empty.
fn deadline(p: &Problem, ims: &mut Ims, g: &Graph, ii: i64, ends: (i64, i64)) -> bool {
    for (u, late) in ims.late.iter_mut().enumerate() {
        let latency = i64::from(p.latency(Node::from_u32(u as u32)));
        *late = (*late).min(ends.0 - 1).min(ends.1 - 1 - latency);
    }
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
