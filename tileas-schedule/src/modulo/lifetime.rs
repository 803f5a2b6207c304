//! What values cost while they live, and the pass that makes it less at the interval found.
//!
//! In: a legal schedule of a loop whose ops say which agent computes them in registers, what registers and what ring
//! bytes their results take ([`crate::NodeExtra`]). Out: a legal schedule of the same II with a [`LifetimeCost`] that is
//! not larger. First the skew of agents: an attempt with windows that keep each agent's ops within as few
//! intervals as dependences allow, and where rows are many a short search over orders. Then single ops move, readers earlier and writers later, wherever the cost falls.
//!
//! Loops whose ops say nothing of this are left to compaction. Cost: bounded by `search.lifetime-steps`, one step per move and
//! eight ops. Elsewhere: depths of rings that materialisation needs (`buffers`), which come from the final schedule.

use super::LINEAR;
use super::polish::Polish;
use super::search::{Answer, Engine, Search};
use crate::entities::Node;
use crate::graph::Graph;
use crate::placement::{Loop, Placement};
use crate::problem::{EdgeData, NO_GROUP, Problem};
use crate::schedule::ring_slots;
use crate::windows::NEVER;
use cranelift_entity::EntitySet;

/// Largest number of pairs of ops in one agent that get a window.
const WINDOW_PAIRS: usize = 4096;
/// Steps of exact search for all tries to keep the ops of each agent together, where rows are many: in clocks an agent that runs one op
/// after the other is full, and attempts find no order.
const SEARCH: u64 = 2_000;
/// Rounds of single moves.
const ROUNDS: u32 = 2;

/// What the lives of values cost; compared component by component.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct LifetimeCost {
    /// Over register agents: whole intervals between its first and its last op, times the registers of results
    /// that are read in a later interval (at least 1).
    pub skew: u64,
    /// Over results in rings: bytes times the slots their lives need (R3).
    pub ring_bytes: u64,
    /// Stages of the iteration.
    pub stages: u64,
}

/// The cost of a schedule given by the start of each op.
pub fn lifetime_cost(p: &Problem, start: impl Fn(Node) -> i64, ii: u32) -> LifetimeCost {
    let starts: Vec<i64> = p.nodes().map(start).collect();
    let mut lives = Lives::default();
    lives.build(p);
    lives.cost(&starts, i64::from(ii.max(1)))
}

/// What the cost follows from, as flat lists: values with their readers, agents, sizes.
#[derive(Default)]
struct Lives {
    /// Readers of op `u` are `readers[first[u]..first[u + 1]]`: op, iterations in between.
    first: Vec<u32>,
    readers: Vec<(u32, u32)>,
    /// The other way round; ops only, each once.
    source_first: Vec<u32>,
    sources: Vec<u32>,
    hold: Vec<i64>,
    /// Position in `begins`; `u32::MAX`: no register agent.
    agent: Vec<u32>,
    numbers: Vec<u32>,
    begins: Vec<i64>,
    skews: Vec<u64>,
    carried: Vec<u64>,
    registers: Vec<u32>,
    bytes: Vec<u32>,
}

/// "Runs in no register agent".
const NO_AGENT: u32 = u32::MAX;

impl Lives {
    fn build(&mut self, p: &Problem) {
        let n = p.num_nodes();
        let clear = |v: &mut Vec<u32>| {
            v.clear();
            v.resize(n + 2, 0);
        };
        clear(&mut self.first);
        clear(&mut self.source_first);
        let values = || p.edges().iter().filter(|(k, _)| p.carries_or_renames(*k)).map(|(_, e)| e);
        for e in values() {
            self.first[e.from.as_u32() as usize + 2] += 1;
            self.source_first[e.to.as_u32() as usize + 2] += 1;
        }
        for k in 2..n + 2 {
            self.first[k] += self.first[k - 1];
            self.source_first[k] += self.source_first[k - 1];
        }
        self.readers.clear();
        self.readers.resize(self.first[n + 1] as usize, (0, 0));
        self.sources.clear();
        self.sources.resize(self.source_first[n + 1] as usize, 0);
        for e in values() {
            let (u, v) = (e.from.as_u32(), e.to.as_u32());
            let at = &mut self.first[u as usize + 1];
            self.readers[*at as usize] = (v, e.distance);
            *at += 1;
            let at = &mut self.source_first[v as usize + 1];
            self.sources[*at as usize] = u;
            *at += 1;
        }
        self.hold.clear();
        self.hold.extend(p.nodes().map(|u| i64::from(p.hold(u))));
        self.agent.clear();
        self.numbers.clear();
        self.registers.clear();
        self.bytes.clear();
        for u in p.nodes() {
            let extra = p.extra(u);
            self.registers.push(extra.registers);
            self.bytes.push(extra.ring_bytes);
            self.agent.push(match extra.simt_agent {
                None => NO_AGENT,
                Some(number) => {
                    let known = self.numbers.iter().position(|&a| a == number);
                    known.unwrap_or_else(|| {
                        self.numbers.push(number);
                        self.numbers.len() - 1
                    }) as u32
                }
            });
        }
    }

    fn readers(&self, u: usize) -> &[(u32, u32)] {
        &self.readers[self.first[u] as usize..self.first[u + 1] as usize]
    }

    fn sources(&self, u: usize) -> &[u32] {
        &self.sources[self.source_first[u] as usize..self.source_first[u + 1] as usize]
    }

    fn cost(&mut self, starts: &[i64], ii: i64) -> LifetimeCost {
        let rings = (0..starts.len()).map(|u| self.ring_bytes(starts, u, ii)).sum();
        LifetimeCost { skew: self.skew(starts, ii), ring_bytes: rings, stages: stages(starts, ii) }
    }

    /// Bytes of the slots that the result of an op needs (R3).
    fn ring_bytes(&self, starts: &[i64], u: usize, ii: i64) -> u64 {
        if self.bytes[u] == 0 {
            return 0;
        }
        let slots = self.readers(u).iter().map(|&(v, distance)| {
            let life = starts[v as usize] + self.hold[v as usize] - starts[u];
            ring_slots(life.max(0) as u64, distance, ii as u32)
        });
        u64::from(self.bytes[u]) * u64::from(slots.max().unwrap_or(1))
    }

    fn skew(&mut self, starts: &[i64], ii: i64) -> u64 {
        let agents = self.numbers.len();
        self.begins.clear();
        self.begins.resize(agents, i64::MAX);
        self.skews.clear();
        self.carried.clear();
        self.skews.resize(agents, 0);
        self.carried.resize(agents, 0);
        for (&a, &t) in self.agent.iter().zip(starts).filter(|x| *x.0 != NO_AGENT) {
            self.begins[a as usize] = self.begins[a as usize].min(t);
        }
        for (&a, &t) in self.agent.iter().zip(starts).filter(|x| *x.0 != NO_AGENT) {
            let stage = ((t - self.begins[a as usize]) / ii) as u64;
            self.skews[a as usize] = self.skews[a as usize].max(stage);
        }
        if self.skews.iter().all(|&s| s == 0) {
            return 0;
        }
        for u in (0..starts.len()).filter(|&u| self.agent[u] != NO_AGENT && self.registers[u] > 0) {
            let a = self.agent[u] as usize;
            let stage = |u: usize| (starts[u] - self.begins[a]) / ii;
            let later = |&(v, d): &(u32, u32)| {
                self.agent[v as usize] == a as u32 && stage(v as usize) + i64::from(d) > stage(u)
            };
            if self.skews[a] > 0 && self.readers(u).iter().any(later) {
                self.carried[a] += u64::from(self.registers[u]);
            }
        }
        self.skews.iter().zip(&self.carried).map(|(s, c)| s * (*c).max(1)).sum()
    }

    /// The cost after op `u` has moved from `then` to where `starts` says.
    fn moved(
        &mut self,
        starts: &mut [i64],
        u: usize,
        then: i64,
        ii: i64,
        before: LifetimeCost,
    ) -> LifetimeCost {
        let mut cost = before;
        let now = starts[u];
        let rings = |life: &Lives, starts: &[i64]| -> u64 {
            let sources = life.sources(u);
            let mut sum = life.ring_bytes(starts, u, ii);
            for (k, &s) in sources.iter().enumerate() {
                if s as usize != u && !sources[..k].contains(&s) {
                    sum += life.ring_bytes(starts, s as usize, ii);
                }
            }
            sum
        };
        let new = rings(self, starts);
        starts[u] = then;
        cost.ring_bytes -= rings(self, starts);
        cost.ring_bytes += new;
        starts[u] = now;
        let (was, is) = ((then / ii + 1) as u64, (now / ii + 1) as u64);
        if is > cost.stages || was == cost.stages && is < was {
            cost.stages = stages(starts, ii);
        }
        if self.agent[u] != NO_AGENT {
            // The agent begins where it did when the last skew was worked out; `u` may have been its first op.
            cost.skew = self.skew(starts, ii);
        }
        cost
    }
}

fn stages(starts: &[i64], ii: i64) -> u64 {
    starts.iter().map(|t| (t.div_euclid(ii) + 1).max(0) as u64).max().unwrap_or(0)
}

/// Memory of the pass.
#[derive(Default)]
pub(crate) struct Lifetime {
    windows: Vec<EdgeData>,
    followed: EntitySet<Node>,
    behind: EntitySet<Node>,
    graph: Graph,
    early: Vec<i64>,
    kept: Vec<i64>,
    lives: Lives,
}

impl Lifetime {
    /// Improves the last success.
    pub fn improve(
        &mut self,
        at: &mut Placement,
        l: Loop<'_>,
        ii: u32,
        polish: &mut Polish,
        search: &mut Search,
    ) {
        let told = |u: Node| l.p.extra(u).simt_agent.is_some() || l.p.extra(u).ring_bytes > 0;
        let given = at.budget.draw(l.o.lifetime_steps);
        if given == 0 || !l.p.nodes().any(told) {
            return;
        }
        let mut steps = given;
        self.lives.build(l.p);
        let mut cost = self.lives.cost(at.starts(), i64::from(ii));
        if cost.skew > 0 {
            cost = self.straighten(at, l, ii, &mut steps, polish, search);
        }
        // Nothing is left to gain where every value has one slot and the iteration one stage.
        let least: u64 = self.lives.bytes.iter().map(|&b| u64::from(b)).sum();
        if cost.skew > 0 || cost.ring_bytes > least || cost.stages > 1 {
            self.move_ops(at, l, ii, cost, &mut steps);
        }
        at.budget.pay(given - steps);
    }

    /// Attempts with the ops of each agent within `intervals` intervals, fewest first.
    fn straighten(
        &mut self,
        at: &mut Placement,
        l: Loop<'_>,
        ii: u32,
        steps: &mut u64,
        polish: &mut Polish,
        search: &mut Search,
    ) -> LifetimeCost {
        let wide = i64::from(ii);
        let cost = self.lives.cost(at.starts(), wide);
        let worst = cost.stages.min(4) as u32;
        let mut looks = if ii > LINEAR { at.budget.draw(SEARCH) } else { 0 };
        for intervals in 1..=worst {
            if !self.window_graph(l.p, intervals) || !self.is_ordered(wide) {
                continue;
            }
            let budget = (2 * u64::from(l.g.n) + 8).min(*steps);
            *steps -= budget;
            let tied = Loop { g: &self.graph, ..l };
            if !at.windows.prepare(l.p, tied.g, wide, l.o.max_stages, &mut at.stuck)
                || !at.empty_table(l, ii)
                || !at.attempt_within(tied, ii, budget) && !search_within(at, tied, ii, &mut looks, search)
            {
                continue;
            }
            self.kept.clear();
            self.kept.extend_from_slice(at.starts());
            at.keep_placed();
            polish.compact(at, tied, ii);
            let new = self.lives.cost(at.starts(), wide);
            if at.fits() && new < cost {
                return new;
            }
            at.keep(&self.kept);
        }
        cost
    }

    /// Single ops move where the cost falls.
    fn move_ops(
        &mut self,
        at: &mut Placement,
        l: Loop<'_>,
        ii: u32,
        mut cost: LifetimeCost,
        steps: &mut u64,
    ) {
        let (wide, g) = (i64::from(ii), l.g);
        if !at.load(l, ii) {
            return;
        }
        let Lifetime { lives, kept, .. } = self;
        kept.clear();
        kept.extend_from_slice(at.starts());
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
                let (node, now) = (Node::from_u32(u), at.starts()[u as usize]);
                let (lo, hi) = room(at, l.p, g, u, wide);
                if lo > now || hi < now || lo == hi {
                    continue;
                }
                at.table.remove(node, now);
                let found = if earlier {
                    at.table.first_fit(node, lo.max(now - wide + 1), now)
                } else {
                    at.table.last_fit(node, now, hi.min(now + wide - 1))
                };
                let t = found.unwrap_or(now);
                let mut to = now;
                if t != now {
                    *steps -= price;
                    kept[u as usize] = t;
                    let new = lives.moved(kept, u as usize, now, wide, cost);
                    if new < cost {
                        (cost, to) = (new, t);
                    }
                    kept[u as usize] = to;
                    at.set_start(u, to);
                }
                at.table.place(node, to);
            }
            if cost == before && round % 2 == 1 {
                break;
            }
        }
    }

    /// Whether no op of the loop with windows is before itself: then the earliest starts settle below the sum of the longest steps.
    fn is_ordered(&mut self, ii: i64) -> bool {
        let g = &self.graph;
        self.early.clear();
        self.early.resize(g.n as usize, 0);
        let longest = |u: u32| g.succ.of(u).iter().map(|a| a.weight(ii)).max().unwrap_or(0).max(0);
        let most: i64 = (0..g.n).map(longest).sum();
        loop {
            let mut changed = false;
            for &u in &g.topo {
                let at = self.early[u as usize];
                for a in g.succ.of(u) {
                    let v = &mut self.early[a.node as usize];
                    changed |= at + a.weight(ii) > *v;
                    *v = (*v).max(at + a.weight(ii));
                }
                if at > most {
                    return false;
                }
            }
            if !changed {
                return true;
            }
        }
    }

    /// The loop with the ops of each register agent less than `intervals` intervals apart. `false`: too many pairs.
    ///
    /// Those that are followed within their iteration are held by those that follow, and those behind another one by that: in an agent whose
    /// order is given one pair is left of all.
    fn window_graph(&mut self, p: &Problem, intervals: u32) -> bool {
        self.windows.clear();
        let agent = |u: Node| p.extra(u).simt_agent;
        self.followed.clear();
        self.behind.clear();
        for e in p.edges().values().filter(|e| e.distance == 0 && e.latency >= 0) {
            if agent(e.from).is_some() && agent(e.from) == agent(e.to) {
                self.followed.insert(e.from);
                self.behind.insert(e.to);
            }
        }
        let lasts = || p.nodes().filter(|&u| agent(u).is_some() && !self.followed.contains(u));
        for a in lasts() {
            let first = |&b: &Node| b != a && agent(b) == agent(a) && !self.behind.contains(b);
            for b in p.nodes().filter(first) {
                if self.windows.len() == WINDOW_PAIRS {
                    return false;
                }
                self.windows.push(EdgeData { from: a, to: b, latency: 1, distance: intervals });
            }
        }
        self.graph.build_with(p, &self.windows)
    }
}

/// Exact search for a loop with windows of its own; `left`: steps it may use.
fn search_within(at: &mut Placement, l: Loop<'_>, ii: u32, left: &mut u64, search: &mut Search) -> bool {
    if *left == 0 || !l.o.engines.has(Engine::Orders) {
        return false;
    }
    let given = *left;
    // The distances are those of the loop with these windows, and of no other.
    at.closure.clear();
    let answer = search.ask_within(Engine::Orders, at, l, ii, None, left);
    at.closure.clear();
    at.budget.pay(given - *left);
    answer == Answer::Found
}

/// First and last start of an op that leave everything else legal and add no stage.
fn room(at: &Placement, p: &Problem, g: &Graph, u: u32, ii: i64) -> (i64, i64) {
    let starts = at.starts();
    let (now, end) = (starts[u as usize], starts.iter().max().copied().unwrap_or(0));
    let latency = |u: u32| i64::from(p.latency(Node::from_u32(u)));
    let finish = (0..g.n).map(|u| starts[u as usize] + latency(u)).max().unwrap_or(0);
    let end = end.min((finish.div_euclid(ii) + 1) * ii - 1 - latency(u));
    let (mut lo, mut hi) = (at.windows.early[u as usize], at.windows.late[u as usize].min(NEVER));
    for a in g.pred.of(u) {
        lo = lo.max(starts[a.node as usize] + a.weight(ii));
    }
    for a in g.succ.of(u) {
        hi = hi.min(starts[a.node as usize] - a.weight(ii));
    }
    if at.windows.group[u as usize] != NO_GROUP {
        let stage = now.div_euclid(ii) * ii;
        (lo, hi) = (lo.max(stage), hi.min(stage + ii - 1));
    }
    (lo.max(0), hi.min(end))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::{NodeDef, NodeExtra, Use};

    /// Small numbers, the same each time.
    struct Lcg(u64);

    impl Lcg {
        fn below(&mut self, n: u32) -> u32 {
            self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            ((self.0 >> 33) % u64::from(n)) as u32
        }
    }

    /// Moving one op after the other and adding up the differences gives what the definition gives.
    #[test]
    fn differences_add_up_to_the_cost() {
        let mut rng = Lcg(5);
        for _ in 0..200 {
            let mut p = Problem::new("random");
            let slot = p.add_slot(1, "unit", 9);
            let n = 2 + rng.below(8);
            for k in 0..n {
                let uses = [Use { slot, offset: 0, duration: rng.below(6), occupancy: 1 }];
                let simt = rng.below(2) == 0;
                let extra = NodeExtra {
                    simt_agent: simt.then(|| 4 + rng.below(2)),
                    registers: if simt { rng.below(30) } else { 0 },
                    ring_bytes: if simt { 0 } else { 64 * rng.below(4) },
                    ..NodeExtra::default()
                };
                p.add_node(&NodeDef { id: &format!("n{k}"), uses: &uses, extra, ..NodeDef::default() });
            }
            for _ in 0..rng.below(3 * n) {
                let (a, b) = (Node::from_u32(rng.below(n)), Node::from_u32(rng.below(n)));
                let e = p.add_edge(a, b, rng.below(9) as i32, rng.below(3));
                if rng.below(4) == 0 {
                    p.set_order_only(e);
                }
            }
            let mut lives = Lives::default();
            lives.build(&p);
            let ii = i64::from(1 + rng.below(9));
            let mut starts: Vec<i64> = (0..n).map(|_| i64::from(rng.below(40))).collect();
            let mut cost = lives.cost(&starts, ii);
            for _ in 0..20 {
                let u = rng.below(n) as usize;
                let then = std::mem::replace(&mut starts[u], i64::from(rng.below(40)));
                cost = lives.moved(&mut starts, u, then, ii, cost);
                assert_eq!(cost, lifetime_cost(&p, |x| starts[x.as_u32() as usize], ii as u32));
            }
        }
    }
}
