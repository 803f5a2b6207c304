//! How far each op could move at the interval found.
//!
//! Three numbers, by longest paths of latency - II · distance (the definition of the scheduler's closed distances):
//! freedom of the op alone, slack when everything may move, slack of the tightest dependence cycle through it.
//! Forced-serial ops add their dependences; slots, pools and groups are not looked at.

use crate::entities::Node;
use crate::graph::Graph;
use crate::problem::Problem;
use crate::{RegionSchedule, render};

/// Ops of the largest loop whose cycles are measured.
pub const MAX_OPS: usize = 1024;
const NO_PATH: i64 = i64::MIN / 4;

/// How far an op could move.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct OpSlack {
    /// Cycles it could start later, all others staying; `None`: nothing depends on it.
    pub alone: Option<i64>,
    /// Earliest start that dependences allow.
    pub earliest: i64,
    /// Latest start in an iteration of the least length that dependences allow.
    pub latest: i64,
    /// Idle cycles on the tightest dependence cycle through it; `None`: on no cycle, or not measured.
    pub around: Option<i64>,
}

impl OpSlack {
    /// Cycles between the earliest and the latest start; 0: on the critical path.
    pub fn path(&self) -> i64 {
        self.latest - self.earliest
    }
}

/// Slacks by op.
pub(super) struct Slacks {
    pub ops: Vec<OpSlack>,
    /// Least length of an iteration by dependences.
    pub length: u64,
}

/// Raises `dist` along edges (against them: `backward`) until nothing changes.
fn relax(g: &Graph, ii: i64, dist: &mut [i64], backward: bool) {
    let rows = if backward { &g.pred } else { &g.succ };
    for _ in 0..=g.n {
        let mut changed = false;
        let mut visit = |u: u32| {
            let at = dist[u as usize];
            if at > NO_PATH {
                for a in rows.of(u) {
                    let through = at + a.weight(ii);
                    if through > dist[a.node as usize] {
                        dist[a.node as usize] = through;
                        changed |= a.distance() > 0;
                    }
                }
            }
        };
        if backward {
            g.topo.iter().rev().for_each(|&u| visit(u));
        } else {
            g.topo.iter().for_each(|&u| visit(u));
        }
        if !changed {
            return;
        }
    }
}

/// All slacks. The interval is one of a legal schedule, so that no cycle grows.
pub(super) fn slacks(p: &Problem, g: &Graph, s: &RegionSchedule) -> Slacks {
    let (n, ii) = (p.num_nodes(), i64::from(s.ii));
    let mut early = vec![0; n];
    relax(g, ii, &mut early, false);
    let mut tail: Vec<i64> = p.nodes().map(|u| p.latency(u).into()).collect();
    relax(g, ii, &mut tail, true);
    let length = early.iter().zip(&tail).map(|(a, b)| a + b).max().unwrap_or(0);
    let mut ops = Vec::with_capacity(n);
    let mut dist = vec![NO_PATH; n];
    for u in p.nodes() {
        let at = u.as_u32() as usize;
        let around = (n <= MAX_OPS).then(|| around(g, ii, u, &mut dist)).flatten();
        ops.push(OpSlack {
            alone: render::slack(p, s, u),
            earliest: early[at],
            latest: length - tail[at],
            around,
        });
    }
    Slacks { ops, length: length.max(0) as u64 }
}

/// Idle cycles in the tightest closed walk through an op.
fn around(g: &Graph, ii: i64, u: Node, dist: &mut [i64]) -> Option<i64> {
    let own = g.selfs.iter().filter(|(v, _)| *v == u.as_u32()).map(|(_, a)| a.weight(ii)).max();
    let mut best = own;
    if g.has_carried {
        dist.fill(NO_PATH);
        dist[u.as_u32() as usize] = 0;
        relax(g, ii, dist, false);
        let back = g.pred.of(u.as_u32()).iter().filter(|a| dist[a.node as usize] > NO_PATH);
        best = best.max(back.map(|a| dist[a.node as usize] + a.weight(ii)).max());
    }
    best.map(|w| -w)
}
