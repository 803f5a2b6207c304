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
use super::problem::{Node, Problem, Slot};
use cranelift_entity::EntityRef;

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
            || overfull(p, &self.ims, &mut self.spans)
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
                Answer::Unknown | Answer::TooLarge => continue,
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

/// A reservation: its slot, the earliest it can begin, the latest it can end, units times cycles.
pub(super) type Span = (Slot, i64, i64, i64);

/// Whether the windows ask more of a slot within some span of one iteration than it can do there. What one iteration holds
/// at a time is held in one row, so that the capacity of the row is that of the cycle.
fn overfull(p: &Problem, ims: &Ims, spans: &mut Vec<Span>) -> bool {
    spans.clear();
    for u in p.nodes() {
        let (early, late) = (ims.early[u.index()], ims.late[u.index()]);
        spans.extend(p.uses(u).iter().map(|r| {
            let (from, cycles) = (i64::from(r.offset), i64::from(r.duration));
            let work = cycles.saturating_mul(r.occupancy.into());
            (r.slot, early.saturating_add(from), late.saturating_add(from).saturating_add(cycles), work)
        }));
    }
    // Of one slot, what begins last comes first.
    spans.sort_unstable_by_key(|s| (s.0, std::cmp::Reverse(s.1)));
    spans.chunk_by(|a, b| a.0 == b.0).any(|all| {
        let capacity = i64::from(p.slots()[all[0].0].capacity);
        all.iter().any(|&(_, _, end, _)| {
            let mut work = 0_i64;
            all.iter().filter(|s| s.2 <= end).any(|s| {
                work = work.saturating_add(s.3);
                work > capacity.saturating_mul(end - s.1)
            })
        })
    })
}

#[cfg(test)]
mod tests {
    use super::super::problem::{NodeDef, Use};
    use super::*;

    /// Ops of `cycles` on one slot of that capacity.
    fn ops(capacity: u32, cycles: &[u32]) -> (Problem, Ims) {
        let mut p = Problem::new("k");
        let slot = p.add_slot(0, "s", capacity);
        for (k, &duration) in cycles.iter().enumerate() {
            let uses = [Use { slot, offset: 1, duration, occupancy: 1 }];
            p.add_node(&NodeDef { id: &k.to_string(), latency: 1, uses: &uses, ..NodeDef::default() });
        }
        (p, Ims::default())
    }

    /// Windows that some placement respects are never refused; tight ones that none does are.
    #[test]
    fn spans_that_cannot_hold_their_work() {
        let full = |capacity, cycles: &[u32], windows: &[(i64, i64)]| {
            let (p, mut ims) = ops(capacity, cycles);
            (ims.early, ims.late) = windows.iter().copied().unzip();
            overfull(&p, &ims, &mut Vec::new())
        };
        // Two of 8 that must both end by 16, or by 15.
        assert!(!full(1, &[8, 8], &[(0, 8), (0, 8)]));
        assert!(full(1, &[8, 8], &[(0, 7), (0, 7)]));
        assert!(!full(2, &[8, 8], &[(0, 7), (0, 7)]));
        assert!(full(2, &[8, 8, 2], &[(0, 0), (0, 0), (3, 5)]));
        // The first may begin before the others can.
        assert!(!full(1, &[4, 4, 4], &[(0, 8), (4, 8), (4, 8)]));
        assert!(full(1, &[4, 4, 4], &[(1, 8), (4, 8), (4, 8)]));
        // Placements one behind the other, with windows around them.
        for seed in 0..200_i64 {
            let cycles: Vec<u32> = (0..6).map(|k| 1 + ((seed * 7 + k * 13) % 5) as u32).collect();
            let mut at = 0;
            let windows: Vec<(i64, i64)> = cycles
                .iter()
                .zip(0..)
                .map(|(&c, k)| {
                    let start = at;
                    at += i64::from(c);
                    (start - (seed + k) % 4, start + (seed * k) % 3)
                })
                .collect();
            assert!(!full(1, &cycles, &windows), "{cycles:?} {windows:?}");
        }
    }
}
