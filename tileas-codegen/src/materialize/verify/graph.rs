//! The synchronisation graph of one region, and paths in it.
//!
//! Nodes: the issue of every event, the completion of what completes later, and the moment a commit or release
//! signals. Edges carry an iteration distance. A cycle of distance sum ≤ 0 is a deadlock. Cost: nodes × edges.
//!
//! What orders accesses asks more than what blocks. Threads of one agent run apart between the places where all of them
//! meet, and some events are the issuing lane's alone: it waits for bulk groups or for a tile that only it hands to an
//! engine, and the others may be ahead of it. So there an agent of several threads has three points per event: its
//! first thread is there, its lane is, all of its threads are. A wait for all threads waits for the lane too; what
//! only the lane waits for, the others have not waited for until a signal of all of them, or a named barrier, came
//! between. For deadlocks an agent is one thread: the lanes of a warp wait for each other, and more order means more cycles.

use super::model::{Engine, Event, Model, What};
use crate::ir::{Op, Signal, keys};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::collections::VecDeque;

/// Why an edge is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// An op completes after it is issued.
    Completes,
    /// A commit or release signals after this.
    Signals,
    /// Full side of a pipe.
    Full(usize),
    /// Empty side of a pipe.
    Empty(usize),
    /// Issue order of an agent, with both local stages.
    Order(usize, i64, i64),
    /// A region op in two agents joined by a pipe inside.
    Inner(usize),
}

/// One edge.
#[derive(Clone, Debug)]
pub struct Edge {
    /// From node.
    pub from: usize,
    /// To node.
    pub to: usize,
    /// Iterations from one to the other.
    pub distance: i64,
    /// Why.
    pub why: Why,
}

impl Edge {
    /// Whether it holds for what stands in an arm that is not taken: an agent's order passes through.
    fn passes(&self) -> bool {
        matches!(self.why, Why::Order(..) | Why::Completes)
    }
}

/// Nodes of one event. Those of first, lane and all are one node where the agent counts as one thread.
#[derive(Copy, Clone, Debug)]
pub struct Nodes {
    /// Its first thread issues it; of what is the lane's alone, the lane.
    pub first: usize,
    /// The lane issues it.
    pub lane: usize,
    /// The first thread goes on.
    pub first_leaves: usize,
    /// The lane goes on.
    pub lane_leaves: usize,
    /// All threads have gone on; of what is the lane's alone, the lane.
    pub all_left: usize,
    /// All of it is complete.
    pub done: usize,
}

impl Nodes {
    /// Where an agent waits, or an engine or thread begins: the lane, or each thread.
    pub fn begin(&self, lane: bool) -> usize {
        if lane { self.lane } else { self.first }
    }

    /// Of what is done at once, where the lane has a node of its own.
    fn with_lane(self, lane: usize) -> Nodes {
        Nodes { lane, lane_leaves: lane, ..self }
    }
}

/// What a node is: `part(event)`; the part is empty where it is the event itself.
pub type Name = (&'static str, Option<Op>);

/// The graph of a region.
#[derive(Default)]
pub struct Graph {
    /// What each node is, for messages.
    pub names: Vec<Name>,
    /// Agent of each node.
    pub agent: Vec<usize>,
    /// Edges.
    pub edges: Vec<Edge>,
    /// Nodes of all events, agent by agent.
    nodes: Vec<Nodes>,
    /// Number of the first event of each agent.
    first: Vec<usize>,
    /// Whether the threads of some agent here run apart.
    apart: bool,
    /// Edges by where they begin: those of node n from `begin[n]` to `begin[n + 1]`.
    begin: Vec<u32>,
    by_from: Vec<u32>,
    /// Of each region event with loads inside: their completion, by (agent, event number, pipe).
    pub loads: FxHashMap<(usize, usize, usize), usize>,
    /// Of each region event with stores inside: that those which are waited for inside have read their slots.
    pub stores: FxHashMap<(usize, usize), usize>,
    /// Of each event with stores: that all they wrote is in global memory.
    pub written: FxHashMap<(usize, usize), usize>,
    /// Of each node: the arms it stands in, by the first arm of their branch. Empty: no node stands in any.
    arms: Vec<Arms>,
    /// Whether an agent runs an event of an iteration before one of an earlier iteration: it has local stages.
    back: bool,
    /// By node: up to which iteration, and where the distances to all others begin in `distances`, as far as asked for.
    rows: Vec<SmallVec<[(i64, u32); 2]>>,
    distances: Vec<i64>,
    /// Scratch: by node, its least distance, the edge it comes by, whether it waits in line; the line.
    least: Vec<i64>,
    via: Vec<u32>,
    waiting: Vec<bool>,
    line: VecDeque<usize>,
}

/// In distances: there is no path.
const NO_PATH: i64 = i64::MAX;
/// Of an event that is not in the graph.
const NO_NODE: usize = usize::MAX;
/// In `via`: no edge.
const NO_EDGE: u32 = u32::MAX;

/// Arms around an event: first arm of the branch, number of the arm.
type Arms = SmallVec<[(usize, usize); 2]>;

/// Graphs tried before a cycle through exclusive arms counts as real.
const MAX_TRIES: usize = 256;

/// Iterations that may choose their arms apart from each other.
const MAX_PERIOD: i64 = 12;

/// A cycle that blocks.
#[derive(Clone, Debug)]
pub struct Stuck {
    /// Edges.
    pub cycle: Vec<usize>,
    /// Whether a choice of arms is known that makes it possible; otherwise a limit ended the search for one.
    pub certain: bool,
}

impl Graph {
    /// Nodes of an event of an agent.
    pub fn at(&self, agent: usize, event: usize) -> Nodes {
        self.nodes[self.first[agent] + event]
    }

    fn node(&mut self, agent: usize, name: Name) -> usize {
        self.names.push(name);
        self.agent.push(agent);
        self.names.len() - 1
    }

    fn edge(&mut self, from: usize, to: usize, distance: i64, why: Why) {
        self.edges.push(Edge { from, to, distance, why });
    }

    /// Builds the graph of one region for what is ordered at every trip count: nested loops may make no trip, so what
    /// agents do inside orders nothing outside. Takes the place of the graph that was here. `inside`: the graphs of the
    /// regions behind this one.
    pub fn build(&mut self, m: &Model<'_>, region: usize, inside: &mut [Graph]) {
        self.of(m, &m.regions[region].events, region, true);
        self.loaded(m, region, inside);
        self.stored(m, &m.regions[region].events);
        self.written(m, region);
        self.index();
    }

    /// Whether [`Graph::build`] made the graph that [`Graph::blocking`] makes: nothing stands inside the region, and each
    /// agent in it is one thread.
    pub fn is_blocking(&self, m: &Model<'_>, region: usize) -> bool {
        !self.apart && m.regions[region].events.iter().flatten().all(|e| !matches!(e.what, What::Region(_)))
    }

    /// An agent that comes to something inside a nested region only behind what an agent loads there through a pipe leaves
    /// the region after these loads: it waits for them, or for who did. The node of the loads has no predecessor: without a
    /// trip there are none, and nothing else is ordered. `inside`: the graphs of the regions behind this one.
    fn loaded(&mut self, m: &Model<'_>, region: usize, inside: &mut [Graph]) {
        let events = &m.regions[region].events;
        for (a, list) in events.iter().enumerate() {
            for (i, x) in list.iter().enumerate() {
                let What::Region(rx) = &x.what else { continue };
                // The pipes that the agent loads for inside.
                let mut pipes: SmallVec<[usize; 8]> = SmallVec::new();
                for &r in rx {
                    inside[r - region - 1].loads_here(m, r, a, |p, _| pipes.push(p));
                }
                pipes.sort_unstable();
                pipes.dedup();
                for p in pipes {
                    let node = self.node(a, ("loads", Some(x.op)));
                    self.loads.insert((a, i, p), node);
                    for (b, others) in events.iter().enumerate() {
                        let Some(j) =
                            others.iter().position(|y| matches!(&y.what, What::Region(ry) if rx == ry))
                        else {
                            continue;
                        };
                        let at = self.at(b, j);
                        for (lane, leave) in [(true, at.lane_leaves), (false, at.first_leaves)] {
                            if rx.iter().all(|&r| inside[r - region - 1].follows(m, r, (a, p), b, lane)) {
                                self.edge(node, leave, 0, Why::Inner(p));
                            }
                        }
                    }
                }
            }
        }
    }

    /// The completion of what an agent loads in this region, and in those inside, with the pipe.
    fn loads_here(&self, m: &Model<'_>, region: usize, a: usize, mut f: impl FnMut(usize, usize)) {
        for (i, e) in m.regions[region].events[a].iter().enumerate() {
            if let What::Access(Engine::Load, _, Some(p)) = e.what {
                f(p, self.at(a, i).done);
            }
        }
        self.loads.iter().filter(|l| l.0.0 == a).for_each(|(&(_, _, p), &node)| f(p, node));
    }

    /// Whether agent `b`, its lane or every thread, ends something in each iteration of this region behind all that agent and
    /// pipe `by` load there in that iteration.
    fn follows(&mut self, m: &Model<'_>, region: usize, by: (usize, usize), b: usize, lane: bool) -> bool {
        let mut loads: SmallVec<[usize; 8]> = SmallVec::new();
        self.loads_here(m, region, by.0, |p, node| {
            if p == by.1 {
                loads.push(node);
            }
        });
        let list = &m.regions[region].events[b];
        loads.into_iter().all(|from| {
            (0..list.len()).filter(|&j| in_graph(&list[j].what)).any(|j| {
                let n = self.at(b, j);
                let to = if lane { n.lane_leaves } else { n.first_leaves };
                (lane || !list[j].lane) && self.distance(from, to, 0).is_some_and(|d| d <= 0)
            })
        })
    }

    /// A lane that waits inside a nested region for a store there has done so when it leaves. The node of the stores has
    /// no predecessor, as that of the loads; it stands for those of which [`stores_waited`] says so.
    fn stored(&mut self, m: &Model<'_>, events: &[Vec<Event>]) {
        for (a, list) in events.iter().enumerate() {
            for (i, x) in list.iter().enumerate() {
                let What::Region(inner) = &x.what else { continue };
                if inner.iter().any(|&r| stores_in(m, r, a)) {
                    let node = self.node(a, ("stores", Some(x.op)));
                    self.stores.insert((a, i), node);
                    let leave = self.at(a, i).lane_leaves;
                    self.edge(node, leave, 0, Why::Completes);
                }
            }
        }
    }

    /// What stores wrote is complete where their lane waits for it: alone, or at a commit that lets no bulk group be
    /// pending. A release that waits says only that they have read their slots.
    fn written(&mut self, m: &Model<'_>, region: usize) {
        for (a, list) in m.regions[region].events.iter().enumerate() {
            for (i, x) in list.iter().enumerate() {
                let stores = match &x.what {
                    What::Access(engine, ..) => *engine == Engine::Store,
                    What::Region(inner) => inner.iter().any(|&r| stores_in(m, r, a)),
                    _ => false,
                };
                if !stores {
                    continue;
                }
                let node = self.node(a, ("written", Some(x.op)));
                self.written.insert((a, i), node);
                for (j, e) in list.iter().enumerate().filter(|(_, e)| completes_stores(m, e)) {
                    let distance = x.local - e.local + i64::from(j < i);
                    if j > i || region != 0 {
                        let to = self.at(a, j).lane;
                        self.edge(node, to, distance, Why::Completes);
                    }
                }
            }
        }
    }

    /// Builds the graph of a loop body or the kernel body for what blocks at some trip count: branches stand in line
    /// with all their arms, and leaving a nested loop needs all agents it waits for inside.
    pub fn blocking(&mut self, m: &Model<'_>, region: usize) {
        let here = &m.regions[region].events;
        if !here.iter().flatten().any(|e| is_branch(m, e)) {
            self.of(m, here, region, false);
            self.nested(m, here);
            return;
        }
        let mut events = vec![Vec::new(); m.threads.len()];
        let mut arms = vec![Vec::new(); m.threads.len()];
        for a in 0..m.threads.len() {
            in_line(m, a, region, 0, &Arms::new(), &mut events[a], &mut arms[a]);
        }
        let g = self;
        g.of(m, &events, region, false);
        g.nested(m, &events);
        g.arms.resize(g.names.len(), Arms::new());
        for (a, list) in arms.into_iter().enumerate() {
            for (i, around) in list.into_iter().enumerate() {
                let Nodes { first, first_leaves, done, .. } = g.at(a, i);
                for n in [first, first_leaves, done] {
                    if let Some(arms) = g.arms.get_mut(n) {
                        arms.clone_from(&around);
                    }
                }
            }
        }
    }

    /// A cycle of distance sum ≤ 0 that some choice of arms, one per branch and iteration, makes possible.
    ///
    /// Without local stages distances are not negative, so such a cycle lies in one iteration. With them it may reach over as
    /// many iterations as the orders go back; that many iterations, repeated, choose apart from each other. Where a cycle needs
    /// two arms of one branch in one iteration, either is ruled out in turn. Beyond the limits the answer is a refusal.
    pub fn stuck(&mut self) -> Option<Stuck> {
        let all = self.bad_cycle()?;
        if self.arms.iter().all(|a| a.is_empty()) {
            return Some(Stuck { cycle: all, certain: true });
        }
        let period = self.iterations();
        if period > MAX_PERIOD {
            return Some(Stuck { cycle: all, certain: false });
        }
        let mut open: Vec<Vec<(usize, i64, usize)>> = vec![Vec::new()];
        let mut tries = 0;
        while let Some(chosen) = open.pop() {
            tries += 1;
            if tries > MAX_TRIES {
                return Some(Stuck { cycle: all, certain: false });
            }
            let Some(cycle) = self.periodic(period, &chosen) else { continue };
            match self.clash(&cycle) {
                None => {
                    let cycle = cycle.into_iter().map(|c| c.0).collect();
                    return Some(Stuck { cycle, certain: true });
                }
                Some((branch, iteration, two)) => {
                    // One of the two, or the other.
                    for arm in two {
                        let mut next = chosen.clone();
                        next.push((branch, iteration, arm));
                        open.push(next);
                    }
                }
            }
        }
        None
    }

    /// As many iterations as a cycle of distance sum ≤ 0 may touch: its edges that go back, each once, go back by so many
    /// together. They may be counted as iterations of the loop or as passes of the agent's loop they run in, where the order of an
    /// agent with local stages never goes back; that differs by the local stages.
    fn iterations(&self) -> i64 {
        let back = |e: i64| (-e).max(0);
        let by_iteration: i64 = self.edges.iter().map(|e| back(e.distance)).sum();
        let mut local = vec![None; self.names.len()];
        for e in &self.edges {
            if let Why::Order(_, from, to) = e.why {
                (local[e.from], local[e.to]) = (Some(from), Some(to));
            }
        }
        // What follows an event that stands in the order runs with it.
        for e in self.edges.iter().filter(|e| matches!(e.why, Why::Completes | Why::Signals)) {
            local[e.to] = local[e.to].or(local[e.from]);
        }
        let pass = |node: usize| local[node].unwrap_or(0);
        let by_pass: i64 = self.edges.iter().map(|e| back(e.distance + pass(e.to) - pass(e.from))).sum();
        let known = || (0..local.len()).map(pass);
        let spread = known().max().unwrap_or(0) - known().min().unwrap_or(0);
        by_iteration.min(by_pass + spread) + 1
    }

    /// A bad cycle in the graph of `period` iterations with these arms chosen: base edges, each with the iteration it begins in.
    fn periodic(&self, period: i64, chosen: &[(usize, i64, usize)]) -> Option<Vec<(usize, i64, i64)>> {
        let n = self.names.len();
        let mut g = Graph { names: vec![("", None); n * period as usize], ..Graph::default() };
        let mut origin: Vec<(usize, i64, i64)> = Vec::new();
        let skipped = |node: usize, iteration: i64| {
            self.arms[node]
                .iter()
                .any(|a| chosen.iter().any(|c| c.0 == a.0 && c.1 == iteration && c.2 != a.1))
        };
        for (k, e) in self.edges.iter().enumerate() {
            for iteration in 0..period {
                let to = (iteration + e.distance).rem_euclid(period);
                if !e.passes() && (skipped(e.from, iteration) || skipped(e.to, to)) {
                    continue;
                }
                let place = |node: usize, iteration: i64| node + n * iteration as usize;
                let distance = (iteration + e.distance).div_euclid(period);
                g.edge(place(e.from, iteration), place(e.to, to), distance, e.why.clone());
                origin.push((k, iteration, to));
            }
        }
        Some(g.bad_cycle()?.into_iter().map(|k| origin[k]).collect())
    }

    /// A branch and iteration of which the cycle uses two arms. Order alone passes through arms that are not taken.
    fn clash(&self, cycle: &[(usize, i64, i64)]) -> Option<(usize, i64, [usize; 2])> {
        let mut used: Vec<(usize, i64, usize)> = Vec::new();
        for &(k, from, to) in cycle {
            let e = &self.edges[k];
            if e.passes() {
                continue;
            }
            for (node, iteration) in [(e.from, from), (e.to, to)] {
                for &(branch, arm) in &self.arms[node] {
                    if let Some(other) = used.iter().find(|u| u.0 == branch && u.1 == iteration && u.2 != arm)
                    {
                        return Some((branch, iteration, [other.2, arm]));
                    }
                    used.push((branch, iteration, arm));
                }
            }
        }
        None
    }

    /// Forgets the graph, keeps the memory.
    fn clear(&mut self) {
        let Graph {
            names,
            agent,
            edges,
            nodes,
            first,
            apart,
            begin,
            by_from,
            loads,
            stores,
            written,
            arms,
            back,
            rows,
            distances,
            ..
        } = self;
        names.clear();
        agent.clear();
        edges.clear();
        nodes.clear();
        first.clear();
        *apart = false;
        begin.clear();
        by_from.clear();
        loads.clear();
        stores.clear();
        written.clear();
        arms.clear();
        *back = false;
        rows.clear();
        distances.clear();
    }

    /// Nodes of all events, the order in each agent, and what pipes order. `apart`: threads of an agent run apart.
    fn of(&mut self, m: &Model<'_>, events: &[Vec<Event>], region: usize, apart: bool) {
        let repeats = region != 0;
        self.clear();
        let g = self;
        for (a, list) in events.iter().enumerate() {
            g.first.push(g.nodes.len());
            let apart = apart && m.threads[a] > 1 && !list.is_empty();
            g.apart |= apart;
            for e in list {
                let n = g.event(m, a, e, apart);
                g.nodes.push(n);
            }
            let repeats = if repeats { m.again(region, a) } else { 0 };
            // One thread, or the lane, takes part in everything.
            g.order(a, list, repeats, |e| in_graph(&e.what), |n| n.lane, |n| n.lane_leaves);
            if apart {
                let all = |e: &Event| !e.lane && in_graph(&e.what);
                g.order(a, list, repeats, all, |n| n.first, |n| n.first_leaves);
                g.order(a, list, repeats, all, |n| n.all_left, |n| n.all_left);
            }
        }
        for (a, list) in events.iter().enumerate() {
            for (i, e) in list.iter().enumerate() {
                g.signals(m, list, a, i, e, region);
            }
        }
        g.pipes(m, events, region);
    }

    /// The order of an agent through the events that take part, from where it leaves one to where it enters the next; `repeats`: after how many
    /// iterations from the last to the first, 0: it does not.
    fn order(
        &mut self,
        a: usize,
        list: &[Event],
        repeats: i64,
        takes_part: impl Fn(&Event) -> bool,
        enter: impl Fn(Nodes) -> usize,
        leave: impl Fn(Nodes) -> usize,
    ) {
        let mut part = list.iter().enumerate().filter(|x| takes_part(x.1));
        let Some((first, _)) = part.next() else { return };
        let mut step = |i: usize, j: usize, wrap: i64| {
            let (u, v) = (leave(self.at(a, i)), enter(self.at(a, j)));
            let (lu, lv) = (list[i].local, list[j].local);
            self.edge(u, v, lu - lv + wrap, Why::Order(a, lu, lv));
        };
        let mut last = first;
        for (i, e) in part {
            step(last, i, 0);
            if e.what == What::GiveTurn {
                step(i, first, 1);
            }
            last = i;
        }
        if repeats > 0 {
            step(last, first, repeats);
        }
    }

    /// Nodes of an event. `apart`: the threads of its agent run apart.
    fn event(&mut self, m: &Model<'_>, a: usize, e: &Event, apart: bool) -> Nodes {
        let name = Some(e.op);
        let one = |n: usize, done: usize| Nodes {
            first: n,
            lane: n,
            first_leaves: n,
            lane_leaves: n,
            all_left: n,
            done,
        };
        // A part of the event by the first thread, by the lane, by the last thread.
        let three = |g: &mut Self, part: &'static str| {
            let [first, lane, last] = [(); 3].map(|()| g.node(a, (part, name)));
            g.edge(first, lane, 0, Why::Completes);
            g.edge(lane, last, 0, Why::Completes);
            [first, lane, last]
        };
        let apart = apart && !e.lane;
        match &e.what {
            what if !in_graph(what) => one(NO_NODE, NO_NODE),
            What::Region(_) => {
                let first = self.node(a, ("issue", name));
                let (lane, leave) = if apart {
                    let lane = self.node(a, ("issue", name));
                    self.edge(first, lane, 0, Why::Completes);
                    (lane, three(self, "done"))
                } else {
                    (first, [self.node(a, ("done", name)); 3])
                };
                let [first_leaves, lane_leaves, all_left] = leave;
                self.edge(first, first_leaves, 0, Why::Completes);
                if apart {
                    self.edge(lane, lane_leaves, 0, Why::Completes);
                }
                // Engines are given work by the lane.
                let done = self.node(a, ("complete", name));
                self.edge(lane_leaves, done, 0, Why::Completes);
                Nodes { first, lane, first_leaves, lane_leaves, all_left, done }
            }
            What::Access(engine, ..) => {
                let nodes = if apart {
                    let [first, lane, last] = three(self, "issue");
                    Nodes { all_left: last, done: last, ..one(first, first) }.with_lane(lane)
                } else {
                    let issue = self.node(a, ("issue", name));
                    one(issue, issue)
                };
                if *engine == Engine::Threads {
                    return nodes;
                }
                let done = self.node(a, ("done", name));
                self.edge(nodes.lane, done, 0, Why::Completes);
                Nodes { done, ..nodes }
            }
            what => {
                let nodes = if apart {
                    let [first, lane, last] = three(self, "");
                    if meets(m, what) {
                        // No thread is there before all are; where the event does not happen, they do not meet.
                        self.edge(last, first, 0, Why::Signals);
                    }
                    Nodes { all_left: last, done: last, ..one(first, first) }.with_lane(lane)
                } else {
                    let issue = self.node(a, ("", name));
                    one(issue, issue)
                };
                if !matches!(what, What::Commit(..) | What::Release(..)) {
                    return nodes;
                }
                let done = self.node(a, ("signal", name));
                self.edge(nodes.all_left, done, 0, Why::Signals);
                Nodes { done, ..nodes }
            }
        }
    }

    /// What a commit or release waits for before it signals.
    fn signals(&mut self, m: &Model<'_>, list: &[Event], a: usize, i: usize, e: &Event, region: usize) {
        let repeats = region != 0;
        let to = self.at(a, i);
        match &e.what {
            What::Commit(p, tx) => match tx {
                Some(_) => {
                    for (j, x) in list.iter().enumerate() {
                        let completes = match &x.what {
                            What::Access(Engine::Load, _, Some(q)) => q == p,
                            What::Region(inner) => inner.iter().any(|&r| loads_of(m, r, a, *p)),
                            _ => false,
                        };
                        if completes {
                            let from = self.at(a, j).done;
                            self.edge(from, to.done, 0, Why::Signals);
                        }
                    }
                }
                None if matches!(m.pipes[*p].full, Signal::Commit(_)) => {
                    self.engine(list, a, i, to.done, repeats)
                }
                None => {}
            },
            What::Release(p, _, pending) => match pending {
                // The lane stands at the release until the store has read its slot.
                Some(pending) => {
                    for (j, x) in list.iter().enumerate() {
                        let store = match &x.what {
                            What::Access(Engine::Store, t, _) => t
                                .iter()
                                .any(|t| t.ring == Some(*p) || m.pipes[*p].buffers.contains(&t.buffer)),
                            What::Region(inner) => inner.iter().any(|&r| stores_in(m, r, a)),
                            _ => false,
                        };
                        if store && j < i {
                            let from = self.at(a, j).done;
                            let late = iterations_late(m, region, list, (j, i), *p, *pending).unwrap_or(0);
                            let late = late * m.rounds(region, *p);
                            self.edge(from, to.lane, x.local - e.local + late, Why::Completes);
                        }
                    }
                }
                None if m.pipes[*p].empty.as_ref().is_none_or(|e| matches!(e, Signal::Commit(_)))
                    && list.iter().any(|x| uses_mma(m, a, &x.what)) =>
                {
                    self.engine(list, a, i, to.done, repeats)
                }
                None => {}
            },
            _ => {}
        }
    }

    /// A commit of the matrix engine covers everything issued to it before.
    fn engine(&mut self, list: &[Event], a: usize, i: usize, to: usize, repeats: bool) {
        for (j, x) in list.iter().enumerate() {
            let matrix = matches!(&x.what, What::Access(Engine::Mma, ..) | What::Region(_));
            if !matrix || (j > i && !repeats) {
                continue;
            }
            let distance = x.local - list[i].local + i64::from(j > i);
            let from = self.at(a, j).done;
            self.edge(from, to, distance, Why::Signals);
        }
    }

    fn pipes(&mut self, m: &Model<'_>, events: &[Vec<Event>], region: usize) {
        // Right outside of its home a pipe hands over the first versions and takes the last ones: at most one version each.
        let outside = |p: usize| m.is_outside(region, p);
        let mut commits: SmallVec<[(usize, usize); 16]> = SmallVec::new();
        let mut acquires: SmallVec<[(usize, usize); 16]> = SmallVec::new();
        for (a, list) in events.iter().enumerate() {
            for (i, e) in list.iter().enumerate() {
                match e.what {
                    What::Commit(p, _) => commits.push((p, self.at(a, i).done)),
                    What::Acquire(p) => acquires.push((p, self.at(a, i).begin(e.lane))),
                    _ => {}
                }
            }
        }
        commits.sort_unstable();
        acquires.sort_unstable();
        let of = |list: &[(usize, usize)], p: usize| {
            list.partition_point(|c| c.0 < p)..list.partition_point(|c| c.0 <= p)
        };
        for (a, list) in events.iter().enumerate() {
            for (i, e) in list.iter().enumerate() {
                let n = self.at(a, i);
                match e.what {
                    What::Wait(p, _) => {
                        for &(_, c) in &commits[of(&commits, p)] {
                            let d = if outside(p) { 0 } else { m.pipes[p].distance };
                            self.edge(c, n.begin(e.lane), d, Why::Full(p));
                        }
                    }
                    What::Release(p, ..) if m.pipes[p].empty.is_some() => {
                        let back = if outside(p) { 1 } else { m.pipes[p].depth - m.pipes[p].distance };
                        let back = back * m.rounds(region, p);
                        for &(_, c) in &acquires[of(&acquires, p)] {
                            self.edge(n.done, c, back, Why::Empty(p));
                        }
                    }
                    _ => {}
                }
            }
        }
    }

    /// Nested loops that agents run together: leaving one needs that every agent it waits for inside, directly or
    /// through others, has entered it.
    fn nested(&mut self, m: &Model<'_>, events: &[Vec<Event>]) {
        let agents = events.len();
        let mut loops: Vec<&[usize]> = Vec::new();
        // By first region: where it stands in each agent. No two region ops share a region.
        let mut places: FxHashMap<usize, SmallVec<[Option<usize>; 8]>> = FxHashMap::default();
        for (a, list) in events.iter().enumerate() {
            for (i, e) in list.iter().enumerate() {
                let What::Region(inner) = &e.what else { continue };
                let Some(&first) = inner.first() else { continue };
                let place = places.entry(first).or_insert_with(|| {
                    loops.push(inner);
                    SmallVec::from_elem(None, agents)
                });
                place[a].get_or_insert(i);
            }
        }
        for inner in loops {
            // What each agent does inside with each pipe.
            let mut used: FxHashMap<usize, SmallVec<[u8; 8]>> = FxHashMap::default();
            let mut order: SmallVec<[usize; 16]> = SmallVec::new();
            for &r in inner.iter().flat_map(|&i| &m.below[i]) {
                for (a, list) in m.regions[r].events.iter().enumerate() {
                    for e in list {
                        let (p, bit) = match e.what {
                            What::Wait(p, _) => (p, WAITS),
                            What::Commit(p, _) => (p, COMMITS),
                            What::Acquire(p) => (p, ACQUIRES),
                            What::Release(p, ..) => (p, RELEASES),
                            _ => continue,
                        };
                        let does = used.entry(p).or_insert_with(|| {
                            order.push(p);
                            SmallVec::from_elem(0, agents)
                        });
                        does[a] |= bit;
                    }
                }
            }
            // Entry (v, u): agent v waits inside for what u does there, by this pipe.
            let mut needs: SmallVec<[Option<usize>; 16]> = SmallVec::from_elem(None, agents * agents);
            order.sort_unstable();
            for &p in &order {
                let (info, does) = (&m.pipes[p], &used[&p]);
                for (v, u) in (0..agents).flat_map(|v| (0..agents).map(move |u| (v, u))) {
                    let full = does[v] & WAITS != 0 && does[u] & COMMITS != 0;
                    let empty = info.empty.is_some() && does[v] & ACQUIRES != 0 && does[u] & RELEASES != 0;
                    if full || empty {
                        needs[v * agents + u].get_or_insert(p);
                    }
                }
            }
            for k in 0..agents {
                for (v, u) in (0..agents).flat_map(|v| (0..agents).map(move |u| (v, u))) {
                    if needs[v * agents + u].is_none() && needs[v * agents + k].is_some() {
                        needs[v * agents + u] = needs[k * agents + u];
                    }
                }
            }
            let place = |a: usize| places[&inner[0]][a];
            for (v, u) in (0..agents).flat_map(|v| (0..agents).map(move |u| (v, u))).filter(|(v, u)| u != v) {
                let Some(p) = needs[v * agents + u] else { continue };
                if let (Some(i), Some(j)) = (place(u), place(v)) {
                    let (from, to) = (self.at(u, i).first, self.at(v, j).first_leaves);
                    self.edge(from, to, 0, Why::Inner(p));
                }
            }
        }
    }

    /// A cycle with distance sum ≤ 0, as edge numbers, if there is one.
    pub fn bad_cycle(&mut self) -> Option<Vec<usize>> {
        let n = self.names.len();
        let scale = n as i64 + 1;
        let Graph { least: dist, via, edges, .. } = self;
        dist.clear();
        dist.resize(n, 0);
        via.clear();
        via.resize(n, NO_EDGE);
        let mut last = None;
        for _ in 0..=n {
            last = None;
            for (k, e) in edges.iter().enumerate() {
                let x = dist[e.from].saturating_add(e.distance.saturating_mul(scale) - 1);
                if x < dist[e.to] {
                    dist[e.to] = x;
                    via[e.to] = k as u32;
                    last = Some(e.to);
                }
            }
            last?;
        }
        // Walk back n steps to be on the cycle, then around it.
        let by = |v: usize| Some(via[v] as usize).filter(|&k| k < edges.len());
        let mut v = last?;
        for _ in 0..n {
            v = edges[by(v)?].from;
        }
        let start = v;
        let mut cycle = Vec::new();
        loop {
            let k = by(v)?;
            cycle.push(k);
            v = edges[k].from;
            if v == start || cycle.len() > n {
                break;
            }
        }
        cycle.reverse();
        Some(cycle)
    }

    /// Sorts the edges by where they begin.
    fn index(&mut self) {
        let n = self.names.len();
        self.rows.resize(n, SmallVec::new());
        self.back = self.edges.iter().any(|e| e.distance < 0);
        self.begin.resize(n + 2, 0);
        self.edges.iter().for_each(|e| self.begin[e.from + 2] += 1);
        (2..n + 2).for_each(|k| self.begin[k] += self.begin[k - 1]);
        self.by_from.resize(self.edges.len(), 0);
        for (k, e) in self.edges.iter().enumerate() {
            self.by_from[self.begin[e.from + 1] as usize] = k as u32;
            self.begin[e.from + 1] += 1;
        }
    }

    /// Least distance from a node to another by what happens between the iteration of the first and `last` iterations later; `None`
    /// where there is no path. Other iterations need not exist: the first iteration of a loop acquires what was not given back, the
    /// last one commits what is not waited for. No bad cycle may exist.
    pub fn distance(&mut self, from: usize, to: usize, last: i64) -> Option<i64> {
        // Without local stages no path leaves these iterations.
        let last = if self.back { last } else { i64::MAX };
        let known = self.rows[from].iter().find(|r| r.0 == last).map(|r| r.1 as usize);
        let row = known.unwrap_or_else(|| {
            let row = self.distances.len();
            self.rows[from].push((last, row as u32));
            self.search(from, last);
            row
        });
        Some(self.distances[row + to]).filter(|&d| d != NO_PATH)
    }

    /// Adds the distances from a node to all others.
    fn search(&mut self, from: usize, last: i64) {
        let Graph { names, edges, begin, by_from, distances, waiting, line, .. } = self;
        let (n, start) = (names.len(), distances.len());
        distances.resize(start + n, NO_PATH);
        let dist = &mut distances[start..];
        dist[from] = 0;
        // Nodes whose distance became less wait in line.
        waiting.clear();
        waiting.resize(n, false);
        line.push_back(from);
        while let Some(u) = line.pop_front() {
            waiting[u] = false;
            let d = dist[u];
            for &k in &by_from[begin[u] as usize..begin[u + 1] as usize] {
                let e = &edges[k as usize];
                // An agent goes on through iterations that do not exist. What a node of an earlier iteration comes before, the same
                // node of iteration 0 does too.
                let begins = if e.passes() { d } else { d.max(0) };
                let x = begins.saturating_add(e.distance).min(NO_PATH - 1);
                if x < dist[e.to] && (e.passes() || x <= last) {
                    dist[e.to] = x;
                    if !std::mem::replace(&mut waiting[e.to], true) {
                        line.push_back(e.to);
                    }
                }
            }
        }
    }

    /// The cycle as a stuck history.
    pub fn explain(&self, cycle: &[usize], m: &Model<'_>, kinds: &[&str]) -> String {
        let sum: i64 = cycle.iter().map(|&k| self.edges[k].distance).sum();
        let name = |n: usize| match self.names[n] {
            ("", Some(op)) => m.channel_name(op),
            (part, Some(op)) => format!("{part}({})", m.channel_name(op)),
            (part, None) => part.to_string(),
        };
        let mut s = format!("deadlock: channel cycle with distance sum {sum}");
        let agent =
            |a: usize| kinds.get(a).map_or_else(|| format!("agent {a}"), |k| format!("agent {a} ({k})"));
        for &k in cycle {
            let e = &self.edges[k];
            let why = match &e.why {
                Why::Completes => String::new(),
                Why::Signals => "   what the signal covers".into(),
                Why::Full(p) => format!("   full of Pipe_{p}"),
                Why::Empty(p) => {
                    format!("   empty of Pipe_{p}: D - d = {} - {}", m.pipes[*p].depth, m.pipes[*p].distance)
                }
                Why::Order(a, lu, lv) if lu == lv => format!("   order in {}", agent(*a)),
                Why::Order(a, lu, lv) => format!("   order in {}: local {lu} - local {lv}", agent(*a)),
                Why::Inner(p) => format!("   Pipe_{p} inside"),
            };
            s.push_str(&format!("\n  {} -> {}  {:>3}{why}", name(e.from), name(e.to), e.distance));
        }
        let mut stuck: Vec<String> = Vec::new();
        for &k in cycle {
            let e = &self.edges[k];
            let who = agent(self.agent[e.to]);
            match e.why {
                Why::Full(p) => stuck.push(format!("{who} waits for Pipe_{p} to be filled")),
                Why::Empty(p) => stuck.push(format!("{who} waits for a free slot of Pipe_{p}")),
                _ => {}
            }
        }
        if !stuck.is_empty() {
            s.push_str(&format!("\n  stuck: {}", stuck.join("; ")));
        }
        s
    }
}

/// What an agent does with a pipe.
const WAITS: u8 = 1;
const COMMITS: u8 = 2;
const ACQUIRES: u8 = 4;
const RELEASES: u8 = 8;

/// Whether an event is a branch.
fn is_branch(m: &Model<'_>, e: &Event) -> bool {
    matches!(&e.what, What::Region(inner) if inner.iter().any(|&r| !m.regions[r].repeats))
}

/// Whether an event waits for something, signals, or touches memory.
fn in_graph(what: &What) -> bool {
    !matches!(what, What::Inc(_))
}

/// Whether all threads of an agent meet at an event: a named barrier stands for it.
fn meets(m: &Model<'_>, what: &What) -> bool {
    match what {
        What::Commit(p, _) => m.pipes[*p].named,
        What::Acquire(p) => m.pipes[*p].named && m.pipes[*p].empty.is_some(),
        _ => false,
    }
}

fn any_event(m: &Model<'_>, region: usize, agent: usize, f: &dyn Fn(&Event) -> bool) -> bool {
    m.below[region].iter().any(|&r| m.regions[r].events[agent].iter().any(f))
}

fn loads_of(m: &Model<'_>, region: usize, agent: usize, pipe: usize) -> bool {
    any_event(m, region, agent, &|e| matches!(e.what, What::Access(Engine::Load, _, Some(q)) if q == pipe))
}

/// After how many iterations of a region a release, at `at.1` of an agent's events, says that the store at `at.0` has read
/// its slot: the bulk groups that may be pending are those of the stores behind it, in this iteration and in the next ones.
/// `None`: it never says so. A release that comes iterations later is one of a pipe that orders its agent by a named
/// barrier: no other agent learns from it that *its* slot is free.
pub fn iterations_late(
    m: &Model<'_>,
    region: usize,
    list: &[Event],
    at: (usize, usize),
    pipe: usize,
    pending: i64,
) -> Option<i64> {
    let is_store = |x: &&Event| matches!(x.what, What::Access(Engine::Store, ..));
    let same = |x: &&Event| x.local == list[at.1].local;
    let behind = list.get(at.0 + 1..at.1)?.iter().filter(is_store).filter(same).count() as i64;
    if pending <= behind {
        return Some(0);
    }
    let each = list.iter().filter(is_store).count() as i64;
    let plain = m.pipes[pipe].named && m.regions[region].repeats && list.iter().all(|x| x.local == 0);
    (plain && each > 0).then(|| (pending - behind + each - 1) / each)
}

fn stores_in(m: &Model<'_>, region: usize, agent: usize) -> bool {
    any_event(m, region, agent, &|e| matches!(e.what, What::Access(Engine::Store, ..)))
}

/// Whether an agent waits until a store has read its slots, in one of the regions on the way to it: `path` are these
/// regions and the events in them, the last one the store with what it reads.
pub fn stores_waited(m: &Model<'_>, agent: usize, path: &[(usize, usize)]) -> bool {
    path.iter().any(|&(region, j)| {
        let list = &m.regions[region].events[agent];
        let ours = |p: usize| match &list[j].what {
            What::Access(_, touches, _) => {
                touches.iter().any(|t| t.ring == Some(p) || m.pipes[p].buffers.contains(&t.buffer))
            }
            // Groups are complete in the order in which they were committed.
            _ => true,
        };
        // Behind it in the same iteration, and it lets none of what stands at `j` be pending.
        list.iter().enumerate().skip(j + 1).any(|(i, e)| match e.what {
            What::Release(p, _, Some(pending)) if ours(p) && e.local >= list[j].local => {
                iterations_late(m, region, list, (j, i), p, pending) == Some(0)
            }
            _ => false,
        })
    })
}

/// Whether the lane waits at an event until all it has stored is complete.
fn completes_stores(m: &Model<'_>, e: &Event) -> bool {
    match e.what {
        What::StoreWait => true,
        What::Commit(..) => m.func.attr_int(e.op, keys::BULK_PENDING) == Some(0),
        _ => false,
    }
}

/// Whether an agent waits until what a store wrote is complete, in one of the regions on the way to it; `path` as in
/// [`stores_waited`].
pub fn stores_complete(m: &Model<'_>, agent: usize, path: &[(usize, usize)]) -> bool {
    path.iter().any(|&(region, j)| {
        let list = &m.regions[region].events[agent];
        list.iter().skip(j + 1).any(|e| e.local >= list[j].local && completes_stores(m, e))
    })
}

fn uses_mma(m: &Model<'_>, agent: usize, what: &What) -> bool {
    match what {
        What::Access(Engine::Mma, ..) => true,
        What::Region(inner) => inner
            .iter()
            .any(|&r| any_event(m, r, agent, &|e| matches!(e.what, What::Access(Engine::Mma, ..)))),
        _ => false,
    }
}

/// The events of an agent in a region with branches in line, and the arms around each.
fn in_line(
    m: &Model<'_>,
    agent: usize,
    region: usize,
    local: i64,
    around: &Arms,
    events: &mut Vec<Event>,
    arms: &mut Vec<Arms>,
) {
    for e in &m.regions[region].events[agent] {
        let at = local + e.local;
        match &e.what {
            What::Region(inner) if is_branch(m, e) => {
                for (n, &r) in inner.iter().enumerate() {
                    let mut inside = around.clone();
                    inside.push((inner[0], n));
                    in_line(m, agent, r, at, &inside, events, arms);
                }
            }
            _ => {
                events.push(Event { local: at, ..e.clone() });
                arms.push(around.clone());
            }
        }
    }
}
