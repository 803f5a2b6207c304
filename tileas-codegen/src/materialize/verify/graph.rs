//! The synchronisation graph of one region, and paths in it.
//!
//! Nodes: the issue of every event, the completion of what completes later, and the moment a commit or release
//! signals. Edges carry an iteration distance. A cycle of distance sum ≤ 0 is a deadlock. Cost: nodes × edges.

use super::model::{Engine, Event, Model, What};
use rustc_hash::FxHashMap;

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

/// Nodes of one event.
#[derive(Copy, Clone, Debug)]
pub struct Nodes {
    /// It is issued.
    pub issue: usize,
    /// The agent goes on.
    pub leave: usize,
    /// All of it is complete.
    pub done: usize,
}

/// The graph of a region.
#[derive(Default)]
pub struct Graph {
    /// Names for messages.
    pub names: Vec<String>,
    /// Agent of each node.
    pub agent: Vec<usize>,
    /// Edges.
    pub edges: Vec<Edge>,
    /// Nodes by (agent, event number).
    pub nodes: FxHashMap<(usize, usize), Nodes>,
}

impl Graph {
    fn node(&mut self, agent: usize, name: String) -> usize {
        self.names.push(name);
        self.agent.push(agent);
        self.names.len() - 1
    }

    fn edge(&mut self, from: usize, to: usize, distance: i64, why: Why) {
        self.edges.push(Edge { from, to, distance, why });
    }

    /// Builds the graph of one region.
    pub fn build(m: &Model<'_>, region: usize) -> Graph {
        let mut g = Graph::default();
        let repeats = region != 0;
        let events = &m.regions[region].events;
        for (a, list) in events.iter().enumerate() {
            for (i, e) in list.iter().enumerate() {
                let n = g.event(m, a, e);
                g.nodes.insert((a, i), n);
            }
            for i in 0..list.len() {
                let wrap = i + 1 == list.len();
                if wrap && !repeats {
                    break;
                }
                let j = if wrap { 0 } else { i + 1 };
                let (u, v) = (g.nodes[&(a, i)], g.nodes[&(a, j)]);
                let (lu, lv) = (list[i].local, list[j].local);
                g.edge(u.leave, v.issue, lu - lv + i64::from(wrap), Why::Order(a, lu, lv));
            }
        }
        for (a, list) in events.iter().enumerate() {
            for (i, e) in list.iter().enumerate() {
                g.signals(m, region, a, i, e, repeats);
            }
        }
        g.pipes(m, region);
        g.inner(m, region);
        g
    }

    fn event(&mut self, m: &Model<'_>, a: usize, e: &Event) -> Nodes {
        let name = match &e.what {
            What::Acquire(p) => format!("acquire(Pipe_{p})"),
            What::Commit(p, _) => format!("commit(Pipe_{p})"),
            What::Wait(p, _) => format!("wait(Pipe_{p})"),
            What::Release(p, ..) => format!("release(Pipe_{p})"),
            What::Inc(p) => format!("inc(Pipe_{p})"),
            _ => m.op_name(e.op),
        };
        match &e.what {
            What::Access(Engine::Threads, ..) => {
                let issue = self.node(a, format!("issue({name})"));
                Nodes { issue, leave: issue, done: issue }
            }
            What::Access(..) => {
                let issue = self.node(a, format!("issue({name})"));
                let done = self.node(a, format!("done({name})"));
                self.edge(issue, done, 0, Why::Completes);
                Nodes { issue, leave: issue, done }
            }
            What::Region(_) => {
                let issue = self.node(a, format!("issue({name})"));
                let leave = self.node(a, format!("done({name})"));
                let done = self.node(a, format!("complete({name})"));
                self.edge(issue, leave, 0, Why::Completes);
                self.edge(leave, done, 0, Why::Completes);
                Nodes { issue, leave, done }
            }
            What::Commit(..) | What::Release(..) => {
                let issue = self.node(a, name.clone());
                let done = self.node(a, format!("signal({name})"));
                self.edge(issue, done, 0, Why::Signals);
                Nodes { issue, leave: issue, done }
            }
            _ => {
                let issue = self.node(a, name);
                Nodes { issue, leave: issue, done: issue }
            }
        }
    }

    /// What a commit or release waits for before it signals.
    fn signals(&mut self, m: &Model<'_>, region: usize, a: usize, i: usize, e: &Event, repeats: bool) {
        let list = &m.regions[region].events[a];
        let to = self.nodes[&(a, i)];
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
                            let from = self.nodes[&(a, j)].done;
                            self.edge(from, to.done, 0, Why::Signals);
                        }
                    }
                }
                None if m.pipes[*p].full.name == "commit" => self.engine(list, a, i, to.done, repeats),
                None => {}
            },
            What::Release(p, _, pending) => match pending {
                // The lane stands at the release until the store has read its slot.
                Some(_) => {
                    for (j, x) in list.iter().enumerate() {
                        let store = match &x.what {
                            What::Access(Engine::Store, t, _) => t
                                .iter()
                                .any(|t| t.ring == Some(*p) || m.pipes[*p].buffers.contains(&t.buffer)),
                            What::Region(inner) => inner.iter().any(|&r| stores_in(m, r, a)),
                            _ => false,
                        };
                        if store && j < i {
                            let from = self.nodes[&(a, j)].done;
                            self.edge(from, to.issue, x.local - e.local, Why::Completes);
                        }
                    }
                }
                None if m.pipes[*p].empty.as_ref().is_none_or(|e| e.name == "commit")
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
            let from = self.nodes[&(a, j)].done;
            self.edge(from, to, distance, Why::Signals);
        }
    }

    fn pipes(&mut self, m: &Model<'_>, region: usize) {
        let events = &m.regions[region].events;
        // Right outside of its home a pipe hands over the first versions and takes the last ones: at most one turn each.
        let outside =
            |p: usize| (0..m.regions.len()).any(|r| m.regions[r].parent == Some(region) && m.around(r, p));
        let mut commits: Vec<(usize, usize)> = Vec::new();
        let mut acquires: Vec<(usize, usize)> = Vec::new();
        for (a, list) in events.iter().enumerate() {
            for (i, e) in list.iter().enumerate() {
                match e.what {
                    What::Commit(p, _) => commits.push((p, self.nodes[&(a, i)].done)),
                    What::Acquire(p) => acquires.push((p, self.nodes[&(a, i)].issue)),
                    _ => {}
                }
            }
        }
        for (a, list) in events.iter().enumerate() {
            for (i, e) in list.iter().enumerate() {
                let n = self.nodes[&(a, i)];
                match e.what {
                    What::Wait(p, _) => {
                        for &(_, c) in commits.iter().filter(|c| c.0 == p) {
                            let d = if outside(p) { 0 } else { m.pipes[p].distance };
                            self.edge(c, n.issue, d, Why::Full(p));
                        }
                    }
                    What::Release(p, ..) if m.pipes[p].empty.is_some() => {
                        let back = if outside(p) { 1 } else { m.pipes[p].depth - m.pipes[p].distance };
                        for &(_, c) in acquires.iter().filter(|c| c.0 == p) {
                            self.edge(n.done, c, back, Why::Empty(p));
                        }
                    }
                    _ => {}
                }
            }
        }
    }

    /// Region ops shared by agents that a pipe inside joins.
    fn inner(&mut self, m: &Model<'_>, region: usize) {
        let events = &m.regions[region].events;
        for a in 0..events.len() {
            for b in 0..events.len() {
                if a == b {
                    continue;
                }
                for (i, x) in events[a].iter().enumerate() {
                    let What::Region(rx) = &x.what else { continue };
                    for (j, y) in events[b].iter().enumerate() {
                        let What::Region(ry) = &y.what else { continue };
                        if rx != ry {
                            continue;
                        }
                        let joined = (0..m.pipes.len()).find(|&p| {
                            rx.iter().any(|&r| takes_part(m, r, a, p))
                                && ry.iter().any(|&r| takes_part(m, r, b, p))
                        });
                        if let Some(p) = joined {
                            let (u, v) = (self.nodes[&(a, i)].issue, self.nodes[&(b, j)].leave);
                            self.edge(u, v, 0, Why::Inner(p));
                        }
                        // Whoever waits inside for all that the other loads there leaves after these loads.
                        let loads = |p: usize| rx.iter().any(|&r| loads_of(m, r, a, p));
                        let loaded: Vec<usize> = (0..m.pipes.len()).filter(|&p| loads(p)).collect();
                        let waits = |p: &usize| {
                            ry.iter().any(|&r| waits_in(m, r, b, *p)) && m.pipes[*p].distance == 0
                        };
                        let only_loads = !rx.iter().any(|&r| works_in(m, r, a));
                        if only_loads
                            && loaded.iter().all(waits)
                            && let Some(&p) = loaded.first()
                        {
                            let (u, v) = (self.nodes[&(a, i)].done, self.nodes[&(b, j)].leave);
                            self.edge(u, v, 0, Why::Inner(p));
                        }
                    }
                }
            }
        }
    }

    /// A cycle with distance sum ≤ 0, as edge numbers, if there is one.
    pub fn bad_cycle(&self) -> Option<Vec<usize>> {
        let n = self.names.len();
        let scale = n as i64 + 1;
        let mut dist = vec![0i64; n];
        let mut via: Vec<Option<usize>> = vec![None; n];
        let mut last = None;
        for _ in 0..=n {
            last = None;
            for (k, e) in self.edges.iter().enumerate() {
                let x = dist[e.from].saturating_add(e.distance.saturating_mul(scale) - 1);
                if x < dist[e.to] {
                    dist[e.to] = x;
                    via[e.to] = Some(k);
                    last = Some(e.to);
                }
            }
            last?;
        }
        // Walk back n steps to be on the cycle, then around it.
        let mut v = last?;
        for _ in 0..n {
            v = self.edges[via[v]?].from;
        }
        let start = v;
        let mut cycle = Vec::new();
        loop {
            let k = via[v]?;
            cycle.push(k);
            v = self.edges[k].from;
            if v == start || cycle.len() > n {
                break;
            }
        }
        cycle.reverse();
        Some(cycle)
    }

    /// Least distance from a node to all others; `None` where there is no path. No bad cycle may exist.
    pub fn distances(&self, from: usize) -> Vec<Option<i64>> {
        let mut dist: Vec<Option<i64>> = vec![None; self.names.len()];
        dist[from] = Some(0);
        for _ in 0..self.names.len() {
            let mut changed = false;
            for e in &self.edges {
                if let Some(d) = dist[e.from] {
                    let x = d.saturating_add(e.distance);
                    if dist[e.to].is_none_or(|old| x < old) {
                        dist[e.to] = Some(x);
                        changed = true;
                    }
                }
            }
            if !changed {
                break;
            }
        }
        dist
    }

    /// The cycle as a stuck history.
    pub fn explain(&self, cycle: &[usize], m: &Model<'_>, kinds: &[&str]) -> String {
        let sum: i64 = cycle.iter().map(|&k| self.edges[k].distance).sum();
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
            s.push_str(&format!(
                "\n  {} -> {}  {:>3}{why}",
                self.names[e.from], self.names[e.to], e.distance
            ));
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

/// Regions inside a region, itself included.
fn below<'m>(m: &'m Model<'_>, region: usize) -> impl Iterator<Item = usize> + 'm {
    (0..m.regions.len()).filter(move |&r| {
        let mut x = Some(r);
        while let Some(y) = x {
            if y == region {
                return true;
            }
            x = m.regions[y].parent;
        }
        false
    })
}

fn any_event(m: &Model<'_>, region: usize, agent: usize, f: &dyn Fn(&What) -> bool) -> bool {
    below(m, region).any(|r| m.regions[r].events[agent].iter().any(|e| f(&e.what)))
}

fn loads_of(m: &Model<'_>, region: usize, agent: usize, pipe: usize) -> bool {
    any_event(m, region, agent, &|w| matches!(w, What::Access(Engine::Load, _, Some(q)) if *q == pipe))
}

/// Whether an agent gives work to an engine other than that for loads.
fn works_in(m: &Model<'_>, region: usize, agent: usize) -> bool {
    any_event(m, region, agent, &|w| matches!(w, What::Access(Engine::Mma | Engine::Store, ..)))
}

fn waits_in(m: &Model<'_>, region: usize, agent: usize, pipe: usize) -> bool {
    any_event(m, region, agent, &|w| matches!(w, What::Wait(p, _) if *p == pipe))
}

fn stores_in(m: &Model<'_>, region: usize, agent: usize) -> bool {
    any_event(m, region, agent, &|w| matches!(w, What::Access(Engine::Store, ..)))
}

fn uses_mma(m: &Model<'_>, agent: usize, what: &What) -> bool {
    match what {
        What::Access(Engine::Mma, ..) => true,
        What::Region(inner) => {
            inner.iter().any(|&r| any_event(m, r, agent, &|w| matches!(w, What::Access(Engine::Mma, ..))))
        }
        _ => false,
    }
}

fn takes_part(m: &Model<'_>, region: usize, agent: usize, pipe: usize) -> bool {
    any_event(
        m,
        region,
        agent,
        &|w| matches!(w, What::Acquire(p) | What::Commit(p, _) | What::Wait(p, _) | What::Release(p, ..) if *p == pipe),
    )
}
