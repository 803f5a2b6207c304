//! Earliest and latest starts of all ops at one II, and how long what follows an op takes.
//!
//! In: a problem, its graph, an II, the option `max-stages`. Out: [`Windows`]: what dependences, groups, depth limits and
//! the largest number of stages leave every op under any schedule of that II. Groups share a stage, so that the begin
//! of the latest member's stage bounds all of them.
//!
//! Guarantee: an empty window is a proof that nothing has this II. Cost: a pass over the edges per carried edge on a path;
//! rounds through groups are bounded, since windows are sound after any number of them.

use crate::entities::Node;
use crate::graph::Graph;
use crate::problem::{NO_GROUP, Problem};

/// No deadline.
pub(crate) const NEVER: i64 = 1 << 60;
/// Rounds of tightening through groups.
const GROUP_ROUNDS: u32 = 256;

/// The op an attempt gave up on, and the window it had.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Stuck {
    pub node: Node,
    pub window: (i64, i64),
    pub rank: u32,
}

/// The windows of one II, and their memory.
#[derive(Default)]
pub(crate) struct Windows {
    /// Earliest and latest start of each op; [`NEVER`]: no deadline.
    pub early: Vec<i64>,
    pub late: Vec<i64>,
    /// Group of each op, [`NO_GROUP`] if it is alone.
    pub group: Vec<u32>,
    height: Vec<i64>,
}

impl Windows {
    /// Computes windows and heights for a new II. `false`: some window is empty, so no schedule exists.
    ///
    /// `max_stages` bounds the cycle in which every op must have finished.
    pub fn prepare(
        &mut self,
        p: &Problem,
        g: &Graph,
        ii: i64,
        max_stages: Option<u32>,
        stuck: &mut Option<Stuck>,
    ) -> bool {
        let n = g.n as usize;
        self.group.clear();
        self.group.extend(p.nodes().map(|u| if p.group_size(u) > 1 { p.group_index(u) } else { NO_GROUP }));
        self.early.clear();
        self.early.resize(n, 0);
        self.late.clear();
        let mut bounded = false;
        for u in p.nodes() {
            let mut late = NEVER;
            if p.max_depth(u) > 0 {
                late = (i64::from(p.max_depth(u)) + 1) * ii - 1;
            }
            if let Some(stages) = max_stages {
                late = late.min(i64::from(stages) * ii - i64::from(p.latency(u).max(1)));
            }
            bounded |= late < NEVER;
            self.late.push(late);
        }
        self.tighten_early(g, ii);
        if bounded {
            self.tighten_late(g, ii);
        }
        if let Some(u) = (0..n).find(|&u| self.early[u] > self.late[u]) {
            let window = (self.early[u], self.late[u]);
            *stuck = Some(Stuck { node: Node::from_u32(u as u32), window, rank: 0 });
            return false;
        }
        self.height.clear();
        self.height.extend(p.nodes().map(|u| i64::from(p.latency(u))));
        loop {
            let mut changed = false;
            for &u in g.topo.iter().rev() {
                let mut h = self.height[u as usize];
                for a in g.succ.of(u) {
                    h = h.max(self.height[a.node as usize] + a.weight(ii));
                }
                changed |= h > self.height[u as usize];
                self.height[u as usize] = h;
            }
            if !changed || !g.has_carried {
                return true;
            }
        }
    }

    /// Longest path from the start of an op to the end.
    pub fn height(&self, u: u32) -> i64 {
        self.height[u as usize]
    }

    fn tighten_early(&mut self, g: &Graph, ii: i64) {
        let mut rounds = 0;
        loop {
            let mut changed = false;
            for &u in &g.topo {
                let at = self.early[u as usize];
                for a in g.succ.of(u) {
                    let v = &mut self.early[a.node as usize];
                    if at + a.weight(ii) > *v {
                        *v = at + a.weight(ii);
                        changed = true;
                    }
                }
            }
            if g.has_groups {
                for k in 0..g.group_first.len() as u32 - 2 {
                    let latest = g.group(k).iter().map(|&m| self.early[m as usize]).max().unwrap_or(0);
                    let floor = latest.div_euclid(ii) * ii;
                    for &m in g.group(k) {
                        changed |= self.early[m as usize] < floor;
                        self.early[m as usize] = self.early[m as usize].max(floor);
                    }
                }
                rounds += 1;
            }
            if !changed || !(g.has_carried || g.has_groups) || rounds == GROUP_ROUNDS {
                return;
            }
        }
    }

    fn tighten_late(&mut self, g: &Graph, ii: i64) {
        let mut rounds = 0;
        loop {
            let mut changed = false;
            for &u in g.topo.iter().rev() {
                for a in g.succ.of(u) {
                    let late = self.late[a.node as usize];
                    // What follows without a deadline sets none.
                    if late >= NEVER {
                        continue;
                    }
                    let bound = late.saturating_sub(a.weight(ii));
                    if bound < self.late[u as usize] {
                        self.late[u as usize] = bound;
                        changed = true;
                    }
                }
            }
            if g.has_groups {
                for k in 0..g.group_first.len() as u32 - 2 {
                    let first = g.group(k).iter().map(|&m| self.late[m as usize]).min().unwrap_or(NEVER);
                    if first >= NEVER {
                        continue;
                    }
                    let ceiling = (first.div_euclid(ii) + 1) * ii - 1;
                    for &m in g.group(k) {
                        changed |= self.late[m as usize] > ceiling;
                        self.late[m as usize] = self.late[m as usize].min(ceiling);
                    }
                }
                rounds += 1;
            }
            // Once a window is empty, tightening could go on without end.
            let empty = (0..self.late.len()).any(|u| self.late[u] < self.early[u]);
            if !changed || !(g.has_carried || g.has_groups) || rounds == GROUP_ROUNDS || empty {
                return;
            }
        }
    }
}
