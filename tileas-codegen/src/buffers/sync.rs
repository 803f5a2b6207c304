//! What the pipes of one block order, and at which iteration distance.
//!
//! In: the placed function, agents, schedules, what each agent needs, pipes. Out: [`Sync`], which answers how many
//! iterations lie at least between one point and another (`None`: they are not ordered). Four points per agent and
//! item: its first thread issues it, its issuing lane does, all of its threads have passed it and signal so, all have waited for
//! what they wait for behind it (for stores and the matrix engine one more: its work is complete). They differ because a
//! path inside an agent orders one thread, while others may be behind: only what all threads signal covers them.
//! Items of a scheduled loop run by time (R1), others in program order. Conservative: an edge is left out rather than assumed
//! (rings hand slots back after a number of iterations that is known late, [`Sync::hands_back`]; tokens in place do at once).
//! Cost: items × agents points; a query follows what a point orders, with a work list.

use super::channels::{Consumer, PipeData};
use super::needs::{Needs, is_item};
use crate::agents::{Agent, AgentKind, AgentPlan};
use crate::ddg::{LoopSchedule, ScheduleAnalysis};
use crate::error::Loc;
use crate::ir::{Block, Function, Op};
use crate::storage::access::{Class, Key};
use cranelift_entity::PrimaryMap;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;

/// What a synchronisation graph is built from.
#[derive(Copy, Clone)]
pub struct World<'a> {
    /// The placed function.
    pub func: &'a Function,
    /// Agents.
    pub plan: &'a AgentPlan,
    /// Schedules.
    pub sched: &'a ScheduleAnalysis,
    /// What each agent runs.
    pub needs: &'a PrimaryMap<Agent, Needs>,
    /// Pairs of accesses to one view in one block that may need an order.
    pub max_pairs: usize,
}

/// A point in the execution of an item by an agent.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Point {
    /// The first thread issues it.
    First,
    /// The issuing lane issues it.
    Lane,
    /// All threads have passed it.
    All,
    /// All threads have also waited for what they wait for behind it, and then free what they used.
    Behind,
    /// The bulk stores in it are complete.
    Stored,
    /// What its agent has given to the matrix engine so far is complete.
    Done,
}

/// An edge of the synchronisation graph.
#[derive(Copy, Clone)]
struct Link {
    to: u32,
    /// Iterations between its ends.
    distance: i64,
    /// Where a pipe makes it: iterations from its signal to its wait, which must both exist. An agent goes on through those
    /// that do not.
    wait: Option<i64>,
    /// The next edge of the same point, plus 1; 0 = none.
    next: u32,
}

/// The order that holds in one block.
pub struct Sync<'a> {
    world: World<'a>,
    /// The block.
    pub block: Block,
    nodes: FxHashMap<(Agent, Op, Point), usize>,
    links: Vec<Link>,
    /// By point: its first edge, plus 1; 0 = none.
    first: Vec<u32>,
    /// No path without a cycle is shorter than this.
    least: i64,
    /// The item that an agent runs behind an item, and how many iterations later.
    next: FxHashMap<(Agent, Op), (Op, i64)>,
    /// The items of all agents, in the order in which each runs them.
    items: Vec<(Agent, Op)>,
}

impl<'a> Sync<'a> {
    /// The order in `block` that agents and `pipes` make.
    pub fn of(world: World<'a>, block: Block, pipes: &[PipeData]) -> Sync<'a> {
        let (nodes, next) = (FxHashMap::default(), FxHashMap::default());
        let (links, first, items) = (Vec::new(), Vec::new(), Vec::new());
        let mut s = Sync { world, block, nodes, links, first, least: 0, next, items };
        for agent in world.plan.agents.keys() {
            s.agent(agent);
        }
        for p in pipes {
            s.pipe(p);
        }
        s
    }

    /// Where an op stands in the source.
    pub fn loc(&self, op: Op) -> Loc {
        self.world.func.op_loc(op)
    }

    fn schedule(&self) -> Option<&'a LoopSchedule> {
        self.world.sched.loops[self.world.func.block_parent(self.block)?].as_deref()
    }

    /// Start of an op by time (R1); program order where the block is not scheduled.
    fn start(&self, op: Op) -> u32 {
        self.schedule().map_or(0, |s| s.start[op])
    }

    fn agent(&mut self, agent: Agent) {
        let World { func, plan, needs, .. } = self.world;
        let repeats = func.block_parent(self.block).is_some();
        let mut items: Vec<Op> =
            func.block_ops(self.block).filter(|&op| is_item(func, plan, &needs[agent], agent, op)).collect();
        self.items.extend(items.iter().map(|&op| (agent, op)));
        let ii = self.schedule().map_or(1, |s| s.ii.max(1));
        let r = items.iter().map(|&op| self.start(op)).min().unwrap_or(0);
        let at = |s: &Self, op: Op| s.start(op) - r;
        items.sort_by_key(|&op| at(self, op) % ii);
        let one = plan.agents[agent].elect;
        let matrix = plan.agents[agent].kind == AgentKind::Mma;
        for &op in &items {
            let first = self.node(agent, op, Point::First);
            let lane = self.node(agent, op, Point::Lane);
            let all = self.node(agent, op, Point::All);
            self.link(first, lane, 0, None);
            self.link(lane, all, 0, None);
            let behind = self.node(agent, op, Point::Behind);
            self.link(all, behind, 0, None);
            if matrix {
                let done = self.node(agent, op, Point::Done);
                self.link(lane, done, 0, None);
            }
        }
        for (i, &u) in items.iter().enumerate() {
            let wrap = i + 1 == items.len();
            if wrap && !repeats {
                break;
            }
            let v = items[if wrap { 0 } else { i + 1 }];
            let local = |s: &Self, op: Op| i64::from(at(s, op) / ii);
            let d = local(self, u) - local(self, v) + i64::from(wrap);
            self.next.insert((agent, u), (v, d));
            let mut step = |from: Point, to: Point| {
                let (a, b) = (self.node(agent, u, from), self.node(agent, v, to));
                self.link(a, b, d, None);
            };
            [Point::First, Point::Lane].into_iter().for_each(|p| step(p, p));
            step(Point::Behind, Point::All);
            if one {
                // The one lane goes on when it has passed an item.
                step(Point::Behind, Point::First);
            }
            if matrix {
                // A commit covers what was issued before.
                step(Point::Done, Point::Done);
            }
        }
    }

    fn node(&mut self, agent: Agent, op: Op, p: Point) -> usize {
        let n = self.nodes.len();
        let node = *self.nodes.entry((agent, op, p)).or_insert(n);
        self.first.resize(self.nodes.len(), 0);
        node
    }

    fn link(&mut self, from: usize, to: usize, distance: i64, wait: Option<i64>) {
        let next = std::mem::replace(&mut self.first[from], self.links.len() as u32 + 1);
        self.links.push(Link { to: to as u32, distance, wait, next });
        self.least += distance.min(0);
    }

    fn earliest(&self, ops: &[Op]) -> Option<Op> {
        ops.iter().copied().min_by_key(|&op| self.start(op))
    }

    /// The item that starts last; of several the last one in the list, as emission has it.
    pub(super) fn latest(&self, ops: &[Op]) -> Option<Op> {
        ops.iter().copied().max_by_key(|&op| self.start(op))
    }

    /// Whether an item of the block comes before another one in an iteration: by time (R1), else in program order.
    pub(super) fn precedes(&self, a: Op, b: Op) -> bool {
        let (s, t) = (self.start(a), self.start(b));
        let after = |a| std::iter::successors(self.world.func.next_op(a), |&op| self.world.func.next_op(op));
        s < t || s == t && after(a).any(|op| op == b)
    }

    /// The last item of an iteration that an agent starts before `next` of the iteration behind it.
    pub(super) fn last_before(&self, agent: Agent, next: Op) -> Option<Op> {
        let end = self.start(next).saturating_add(self.schedule().map_or(1, |s| s.ii.max(1)));
        let mine = self.items.iter().filter(|i| i.0 == agent && self.start(i.1) < end);
        mine.map(|i| i.1).max_by_key(|&op| self.start(op))
    }

    /// Where a wait of that consumer holds up.
    pub fn wait_point(key: Key) -> Point {
        if key.class == Class::Bulk { Point::Lane } else { Point::First }
    }

    /// Where a consumer goes on when it has waited, and how many iterations after it was to wait.
    pub(super) fn taken(&self, c: &Consumer) -> Option<((Agent, Op, Point), i64)> {
        let agent = c.key.agent;
        Some(match (self.earliest(&c.waits), self.latest(&c.uses)) {
            (Some(w), _) => ((agent, w, Sync::wait_point(c.key)), 0),
            (None, u) if self.is_lanes(c.key) => {
                let &(v, d) = self.next.get(&(agent, u?))?;
                ((agent, v, Point::Lane), d)
            }
            (None, u) => ((agent, u?, Point::Behind), 0),
        })
    }

    /// Whether of an agent of several threads one lane waits.
    fn is_lanes(&self, key: Key) -> bool {
        key.class == Class::Bulk && !self.world.plan.agents[key.agent].elect
    }

    /// Adds what a pipe with its home in the block orders.
    pub fn pipe(&mut self, p: &PipeData) {
        if p.home != self.block {
            return;
        }
        let Some(event) = self.latest(&p.events) else { return };
        let commit = match p.producer.class {
            Class::Sync | Class::Group => Point::All,
            Class::Bulk => Point::Stored,
            Class::Tma => Point::Lane,
            Class::Mma => Point::Done,
        };
        let from = self.node(p.producer.agent, event, commit);
        let distance = i64::from(p.distance);
        for c in &p.consumers {
            match (self.earliest(&c.waits), self.latest(&c.uses)) {
                (Some(w), _) => {
                    let to = self.node(c.key.agent, w, Sync::wait_point(c.key));
                    self.link(from, to, distance, Some(distance));
                }
                (None, Some(u)) => {
                    // The wait stands behind the item: the agent that waits begins the next one later. Scalars that
                    // only what the block yields rests on are received at its end.
                    if let Some(&(v, d)) = self.next.get(&(c.key.agent, u)).filter(|_| !p.is_scalar()) {
                        let begin = self.node(c.key.agent, v, Sync::wait_point(c.key));
                        self.link(from, begin, distance + d, Some(distance));
                    }
                    if !self.is_lanes(c.key) {
                        let to = self.node(c.key.agent, u, Point::Behind);
                        self.link(from, to, distance, Some(distance));
                    }
                }
                (None, None) => continue,
            }
            if let (true, Some(u), Some(a)) = (p.in_place(), self.latest(&c.uses), self.earliest(&p.acquires))
            {
                let freed = if c.key.class == Class::Bulk { Point::Lane } else { Point::Behind };
                let freed = self.node(c.key.agent, u, freed);
                let acquire = self.node(p.producer.agent, a, Sync::wait_point(p.producer));
                self.link(freed, acquire, 1, Some(1));
            }
        }
    }

    /// Adds that the slots of a ring are handed back, its depth being known: what frees one comes before its next acquire.
    pub fn hands_back(&mut self, p: &PipeData) {
        let rings = p.has_empty && p.named.is_none() && !p.is_scalar() && p.carry().is_none();
        let Some(a) = self.earliest(&p.acquires).filter(|_| rings && p.home == self.block) else { return };
        let acquire = self.node(p.producer.agent, a, Sync::wait_point(p.producer));
        for c in &p.consumers {
            let Some(u) = self.latest(&c.uses) else { continue };
            let freed = match c.key.class {
                Class::Mma => Point::Done,
                Class::Bulk => Point::Lane,
                Class::Sync | Class::Group | Class::Tma => Point::Behind,
            };
            let freed = self.node(c.key.agent, u, freed);
            let back = i64::from(p.depth) - i64::from(p.distance);
            self.link(freed, acquire, back, Some(back));
        }
    }

    /// The number of a point among the results of [`Sync::distances`].
    pub fn index(&self, at: (Agent, Op, Point)) -> Option<usize> {
        self.nodes.get(&at).copied()
    }

    /// Least distance from one point to another, at most `last`; `None` if nothing orders them.
    pub fn distance(&self, from: (Agent, Op, Point), to: (Agent, Op, Point), last: i64) -> Option<i64> {
        self.distances(from, last).get(self.index(to)?).copied().flatten().filter(|&d| d <= last)
    }

    /// Least distances from one point to all, by what pipes do between its iteration and `last` iterations later: others need not
    /// exist.
    pub fn distances(&self, from: (Agent, Op, Point), last: i64) -> Vec<Option<i64>> {
        let mut dist: Vec<Option<i64>> = vec![None; self.nodes.len()];
        let Some(start) = self.index(from) else { return dist };
        dist[start] = Some(0);
        let (mut work, mut waits) = (VecDeque::from([start]), vec![false; self.nodes.len()]);
        while let Some(u) = work.pop_front() {
            waits[u] = false;
            let Some(here) = dist[u] else { continue };
            let mut at = self.first[u];
            while let Some(&Link { to, distance, wait, next }) =
                at.checked_sub(1).map(|l| &self.links[l as usize])
            {
                at = next;
                // What comes before a point of an earlier iteration comes before that of this one too.
                let begins = if wait.is_some() { here.max(0) } else { here };
                if wait.is_some_and(|wait| begins + wait > last) {
                    continue;
                }
                let (v, x) = (to as usize, begins + distance);
                if dist[v].is_none_or(|old| x < old) {
                    if x < self.least {
                        // A point before itself, over and over: what was asked for contradicts itself.
                        return dist;
                    }
                    dist[v] = Some(x);
                    if !waits[v] {
                        waits[v] = true;
                        work.push_back(v);
                    }
                }
            }
        }
        dist
    }

    /// Where agents learn that TMA loads carried by `p`, issued in `item`, are complete: agent, item and point.
    pub fn learned(&self, p: &PipeData, item: Op) -> Vec<(Agent, Op, Point)> {
        let learn = |c: &Consumer| {
            if p.home == self.block {
                let w = self.earliest(&c.waits)?;
                return Some((c.key.agent, w, Sync::wait_point(c.key)));
            }
            // Inside the item: each thread that takes part has waited before it leaves.
            let inner = p.events.first().and_then(|&e| self.world.func.ancestor_in(e, self.block));
            (inner == Some(item)).then_some((c.key.agent, item, Point::First))
        };
        p.consumers.iter().filter_map(learn).collect()
    }
}
