//! Shorter lifetimes for a legal schedule, II unchanged.
//!
//! In: starts and the reservation table that holds them. Out: better starts, still legal. `pull` moves every op to its
//! first free start, in topological order: that shortens the iteration. `push` then moves ops later, in reverse
//! order, where that shortens the life of their result by more than it lengthens the lives of their operands (loads
//! that were placed early come to rest before their use). `settle` shifts the whole iteration back to cycle 0.
//!
//! Guarantee: every step keeps the schedule legal and never adds a stage. A heuristic: each op moves once per pass.
//! Cost: O(ops · (II + degree)).

use super::graph::Graph;
use super::ims::{Ims, NEVER};
use super::problem::{NO_GROUP, Node, Problem};
use super::rrt::Rrt;

/// Memory of the compaction.
#[derive(Default)]
pub(super) struct Compact {
    /// Last cycle (of the producing iteration) in which the op's result is read; -NEVER if never.
    last_read: Vec<i64>,
}

/// Moves every op to its first free start, not later than now. Ops of groups keep their stage.
pub(super) fn pull(g: &Graph, rrt: &mut Rrt, ims: &mut Ims, ii: i64) {
    for &u in &g.topo {
        let now = ims.start[u as usize];
        let mut lo = ims.early[u as usize];
        for a in g.pred.of(u) {
            lo = lo.max(ims.start[a.node as usize] + a.weight(ii));
        }
        if ims.group[u as usize] != NO_GROUP {
            lo = lo.max(now.div_euclid(ii) * ii);
        }
        if lo < now {
            let node = Node::from_u32(u);
            rrt.remove(node, now);
            let t = rrt.first_fit(node, lo, now).unwrap_or(now);
            rrt.place(node, t);
            ims.start[u as usize] = t;
        }
    }
}

impl Compact {
    /// Moves ops later where lifetimes gain.
    pub fn push(&mut self, p: &Problem, g: &Graph, rrt: &mut Rrt, ims: &mut Ims, ii: i64) {
        let n = g.n as usize;
        self.last_read.clear();
        self.last_read.resize(n, -NEVER);
        let mut finish = 0;
        for u in 0..g.n {
            let at = ims.start[u as usize];
            finish = finish.max(at + i64::from(p.latency(Node::from_u32(u))));
            for a in g.pred.of(u).iter().filter(|a| a.is_value()) {
                let read = at + ii * i64::from(a.distance());
                let last = &mut self.last_read[a.node as usize];
                *last = read.max(*last);
            }
        }
        for &u in g.topo.iter().rev() {
            // Nobody reads the result: nothing to gain by waiting.
            if self.last_read[u as usize] == -NEVER {
                continue;
            }
            let now = ims.start[u as usize];
            let node = Node::from_u32(u);
            let mut hi = ims.late[u as usize].min(finish - i64::from(p.latency(node)));
            for a in g.succ.of(u) {
                hi = hi.min(ims.start[a.node as usize] - a.weight(ii));
            }
            // Last stage included: the stage count must not grow, whatever the latency of this op.
            hi = hi.min(finish - 1);
            if ims.group[u as usize] != NO_GROUP {
                hi = hi.min((now.div_euclid(ii) + 1) * ii - 1);
            }
            hi = hi.min(now + ii - 1);
            if hi <= now {
                continue;
            }
            // Starts up to `calm` lengthen no other life.
            let mut calm = hi;
            for a in g.pred.of(u).iter().filter(|a| a.is_value()) {
                calm = calm.min(self.last_read[a.node as usize] - ii * i64::from(a.distance()));
            }
            rrt.remove(node, now);
            let gain =
                |t: i64| {
                    let longer =
                        g.pred.of(u).iter().filter(|a| a.is_value()).map(|a| {
                            (t + ii * i64::from(a.distance()) - self.last_read[a.node as usize]).max(0)
                        });
                    (t - now) - longer.sum::<i64>()
                };
            let far = rrt.last_fit(node, now + 1, hi).filter(|&t| gain(t) > 0);
            let near = rrt.last_fit(node, now + 1, calm);
            let best = match (far, near) {
                (Some(a), Some(b)) => Some(if gain(b) > gain(a) { b } else { a }),
                (a, b) => a.or(b),
            };
            let t = best.unwrap_or(now);
            rrt.place(node, t);
            ims.start[u as usize] = t;
            for a in g.pred.of(u).iter().filter(|a| a.is_value()) {
                let last = &mut self.last_read[a.node as usize];
                *last = (*last).max(t + ii * i64::from(a.distance()));
            }
        }
    }
}

/// Shifts the iteration so that it begins at cycle 0; with groups, by whole stages only, since they are aligned.
pub(super) fn settle(g: &Graph, ims: &mut Ims, ii: i64) {
    let Some(&first) = ims.start.iter().min() else { return };
    let shift = if g.has_groups { first.div_euclid(ii) * ii } else { first };
    if shift > 0 {
        ims.start.iter_mut().for_each(|t| *t -= shift);
    }
}
