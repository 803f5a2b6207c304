//! What values cost while they live, and the pass that makes it less at the interval found.
//!
//! In: a legal schedule of a loop whose ops say which agent computes them in registers, what registers and what ring
//! bytes their results take ([`super::NodeExtra`]). Out: a legal schedule of the same II with a [`LifetimeCost`] that is
//! not larger. First the skew of agents: an attempt with windows that keep each agent's ops within as few turns of the
//! interval as dependences allow. Then single ops move, readers earlier and writers later, wherever the cost falls.
//!
//! Loops whose ops say nothing of this are left to compaction. Cost: bounded by `lifetime-steps`, one step per move and
//! eight ops. Elsewhere: depths of rings that materialisation needs (`buffers`), which come from the final schedule.

use super::closure::Closure;
use super::cost_based::CostBased;
use super::graph::Graph;
use super::ims::{NEVER, Outcome, Priority};
use super::options::ScheduleOptions;
use super::problem::{EdgeData, NO_GROUP, Node, Problem};

/// Largest number of pairs of ops in one agent that get a window.
const WINDOW_PAIRS: usize = 4096;
/// Rounds of single moves.
const ROUNDS: u32 = 2;

/// What the lives of values cost; compared component by component.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct LifetimeCost {
    /// Over register agents: turns of the interval between its first and its last op, times the registers of results
    /// that are read in a later turn (at least 1).
    pub skew: u64,
    /// Over results in rings: bytes times the slots their lives need.
    pub ring_bytes: u64,
    /// Stages of the iteration.
    pub stages: u64,
}

/// The cost of a schedule given by the start of each op.
pub fn lifetime_cost(p: &Problem, start: impl Fn(Node) -> i64, ii: u32) -> LifetimeCost {
    let ii = i64::from(ii.max(1));
    let mut cost = LifetimeCost::default();
    for u in p.nodes() {
        cost.stages = cost.stages.max((start(u).div_euclid(ii) + 1).max(0) as u64);
    }
    // Agents are few: one pass per agent, begun at its first op.
    for first in p.nodes() {
        let Some(agent) = p.extra(first).simt_agent else { continue };
        let of_agent = |u: &Node| p.extra(*u).simt_agent == Some(agent);
        if p.nodes().find(of_agent) != Some(first) {
            continue;
        }
        let begin = p.nodes().filter(of_agent).map(&start).min().unwrap_or(0);
        let local = |u: Node| (start(u) - begin).div_euclid(ii);
        let skew = p.nodes().filter(of_agent).map(local).max().unwrap_or(0) as u64;
        if skew == 0 {
            continue;
        }
        let mut carried = 0u64;
        for u in p.nodes().filter(of_agent) {
            let later = |e: &EdgeData| {
                e.from == u
                    && e.latency > 0
                    && of_agent(&e.to)
                    && local(e.to) + i64::from(e.distance) > local(u)
            };
            if p.edges().values().any(later) {
                carried += u64::from(p.extra(u).registers);
            }
        }
        cost.skew += skew * carried.max(1);
    }
    for u in p.nodes().filter(|&u| p.extra(u).ring_bytes > 0) {
        let reads = p.edges().values().filter(|e| e.from == u && e.latency > 0);
        let life = reads.map(|e| start(e.to) + ii * i64::from(e.distance) - start(u)).max().unwrap_or(0);
        cost.ring_bytes += u64::from(p.extra(u).ring_bytes) * (life.max(0) / ii + 1) as u64;
    }
    cost
}

/// Memory of the pass.
#[derive(Default)]
pub(super) struct Lifetime {
    windows: Vec<EdgeData>,
    graph: Graph,
    closure: Closure,
    kept: Vec<i64>,
}

impl CostBased {
    /// Improves the success in `best`.
    pub(super) fn shorten(&mut self, p: &Problem, g: &Graph, o: &ScheduleOptions, ii: u32) {
        let told = |u: Node| p.extra(u).simt_agent.is_some() || p.extra(u).ring_bytes > 0;
        if o.lifetime_steps == 0 || !p.nodes().any(told) {
            return;
        }
        let mut life = std::mem::take(&mut self.life);
        let mut steps = o.lifetime_steps;
        let mut cost = self.cost_of_best(p, ii);
        if cost.skew > 0 {
            cost = self.straighten(&mut life, p, g, o, ii, cost, &mut steps);
        }
        self.move_ops(p, g, o, ii, cost, &mut steps);
        self.life = life;
    }

    fn cost_of_best(&self, p: &Problem, ii: u32) -> LifetimeCost {
        lifetime_cost(p, |u| self.starts()[u.as_u32() as usize], ii)
    }

    /// Attempts with the ops of each agent within `turns` of the interval, fewest first.
    #[expect(clippy::too_many_arguments, reason = "memory, loop, and what is left")]
    fn straighten(
        &mut self,
        life: &mut Lifetime,
        p: &Problem,
        g: &Graph,
        o: &ScheduleOptions,
        ii: u32,
        cost: LifetimeCost,
        steps: &mut u64,
    ) -> LifetimeCost {
        let wide = i64::from(ii);
        let worst = cost.stages.min(4) as u32;
        for turns in 1..=worst {
            if !life.window_graph(p, turns) || !life.closure.build(&life.graph, ii) {
                continue;
            }
            let budget = (4 * u64::from(g.n) + 16).min(*steps);
            *steps -= budget;
            for k in 0..2 {
                if !self.ims.prepare(p, &life.graph, wide, o.max_stages)
                    || self.rrt.reset(p, ii, o.rrt_size_threshold).is_err()
                {
                    break;
                }
                self.ims.snug = k == 0;
                let priority = if k == 0 { Priority::Height } else { Priority::Slack };
                let outcome = self.ims.attempt(p, &life.graph, &mut self.rrt, wide, priority, budget / 2);
                if outcome != Outcome::Placed {
                    continue;
                }
                life.kept.clear();
                life.kept.extend_from_slice(self.starts());
                if self.finish(p, &life.graph, o, ii) {
                    let new = self.cost_of_best(p, ii);
                    if new < cost {
                        return new;
                    }
                }
                self.keep(&life.kept);
            }
        }
        cost
    }

    /// Single ops move where the cost falls.
    fn move_ops(
        &mut self,
        p: &Problem,
        g: &Graph,
        o: &ScheduleOptions,
        ii: u32,
        mut cost: LifetimeCost,
        steps: &mut u64,
    ) {
        let wide = i64::from(ii);
        if !self.ims.prepare(p, g, wide, o.max_stages) || self.rrt.reset(p, ii, o.rrt_size_threshold).is_err()
        {
            return;
        }
        for u in 0..g.n {
            let t = self.starts()[u as usize];
            let node = Node::from_u32(u);
            if !self.rrt.fits(node, t) {
                // Seats of an exact table, and this one is coarse.
                return;
            }
            self.rrt.place(node, t);
        }
        let price = 1 + u64::from(g.n) / 8;
        for round in 0..2 * ROUNDS {
            let before = cost;
            for k in 0..g.n as usize {
                // Readers earlier, in order; then writers later, backwards.
                let earlier = round % 2 == 0;
                let u = if earlier { g.topo[k] } else { g.topo[g.n as usize - 1 - k] };
                if *steps < price {
                    return;
                }
                let (node, now) = (Node::from_u32(u), self.starts()[u as usize]);
                let (lo, hi) = self.room(g, u, wide);
                if lo > now || hi < now || lo == hi {
                    continue;
                }
                self.rrt.remove(node, now);
                let found = if earlier {
                    self.rrt.first_fit(node, lo.max(now - wide + 1), now)
                } else {
                    self.rrt.last_fit(node, now, hi.min(now + wide - 1))
                };
                let t = found.unwrap_or(now);
                let mut at = now;
                if t != now {
                    *steps -= price;
                    self.set_start(u, t);
                    let new = self.cost_of_best(p, ii);
                    if new < cost {
                        (cost, at) = (new, t);
                    }
                    self.set_start(u, at);
                }
                self.rrt.place(node, at);
            }
            if cost == before && round % 2 == 1 {
                break;
            }
        }
    }

    /// First and last start that leave everything else legal and add no stage.
    fn room(&self, g: &Graph, u: u32, ii: i64) -> (i64, i64) {
        let starts = self.starts();
        let (now, end) = (starts[u as usize], starts.iter().max().copied().unwrap_or(0));
        let (mut lo, mut hi) = (self.ims.early[u as usize], self.ims.late[u as usize].min(NEVER));
        for a in g.pred.of(u) {
            lo = lo.max(starts[a.node as usize] + a.weight(ii));
        }
        for a in g.succ.of(u) {
            hi = hi.min(starts[a.node as usize] - a.weight(ii));
        }
        if self.ims.group[u as usize] != NO_GROUP {
            let stage = now.div_euclid(ii) * ii;
            (lo, hi) = (lo.max(stage), hi.min(stage + ii - 1));
        }
        (lo.max(0), hi.min(end))
    }
}

impl Lifetime {
    /// The loop with the ops of each register agent less than `turns` intervals apart. `false`: too many pairs.
    fn window_graph(&mut self, p: &Problem, turns: u32) -> bool {
        self.windows.clear();
        for a in p.nodes() {
            let Some(agent) = p.extra(a).simt_agent else { continue };
            for b in p.nodes().filter(|&b| b != a && p.extra(b).simt_agent == Some(agent)) {
                if self.windows.len() == WINDOW_PAIRS {
                    return false;
                }
                self.windows.push(EdgeData { from: a, to: b, latency: 1, distance: turns });
            }
        }
        self.closure.clear();
        self.graph.build_with(p, &self.windows)
    }
}
