//! Lower bounds on the initiation interval (II) of one loop.
//!
//! In: a checked problem and its graph. Out: [`Bounds`]; each bound names its witness (slot, cycle of ops, pool or
//! chain), so that an explanation can say why.
//!
//! - resource: busy cycles of a slot over its capacity;
//! - recurrence: the largest ratio latency / distance of a dependence cycle, rounded up, exact. Found by Newton's
//!   method: a cycle of positive weight under II raises II to its own ratio until no such cycle is left;
//! - fine density: charges of a pool over its capacity;
//! - dependency: the same ratio for chains without slack (forced-serial ops and groups, whose members share one
//!   stage), and the critical path over the stages allowed where `max-stages` is set; else 1.
//!
//! Guarantee: no schedule has a smaller II. Cost: O(edges · carried edges on a path) per Newton step; a few steps.
//! Elsewhere: finding a schedule (`serial`, `cost_based`). Source: spec page 4.

use crate::entities::{Node, Pool, Slot};
use crate::graph::{Arc, Graph};
use crate::problem::{Problem, rotate_to_smallest};

/// Lower bounds on II with their witnesses. Every bound is at least 1.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// From slots.
    pub resource: u32,
    /// From dependence cycles.
    pub recurrence: u32,
    /// From pools.
    pub fine_density: u32,
    /// From chains without slack.
    pub dependency: u32,
    /// The fullest slot, the first of equals; `None` if no slot is used.
    pub resource_slot: Option<Slot>,
    /// A dependence cycle that needs `recurrence`; empty if there is none.
    pub recurrence_cycle: Vec<Node>,
    /// The fullest pool, the first of equals; `None` if no pool is charged.
    pub density_pool: Option<Pool>,
    /// The chain that needs `dependency`; empty if there is none.
    pub dependency_chain: Vec<Node>,
}

impl Bounds {
    /// The largest of the four.
    pub fn max(&self) -> u32 {
        self.resource.max(self.recurrence).max(self.fine_density).max(self.dependency).max(1)
    }

    /// Forgets the values, keeps the allocations.
    pub fn clear(&mut self) {
        let Bounds {
            resource,
            recurrence,
            fine_density,
            dependency,
            resource_slot,
            recurrence_cycle,
            density_pool,
            dependency_chain,
        } = self;
        (*resource, *recurrence, *fine_density, *dependency) = (1, 1, 1, 1);
        (*resource_slot, *density_pool) = (None, None);
        recurrence_cycle.clear();
        dependency_chain.clear();
    }
}

/// How the longest-path search reached an op: from where, over which edge.
#[derive(Copy, Clone)]
struct Parent {
    node: u32,
    distance: u32,
    latency: i64,
}

const NO_PARENT: Parent = Parent { node: u32::MAX, distance: 0, latency: 0 };

/// Which edges a ratio search sees.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Edges {
    /// The given ones.
    Given,
    /// Zero-distance edges and the chains of groups and forced-serial ops.
    Chains,
    /// All of them.
    All,
}

impl Edges {
    fn sees(self, a: &Arc) -> bool {
        match self {
            Edges::Given => !a.is_exclusion(),
            Edges::Chains => a.is_exclusion() || a.distance() == 0,
            Edges::All => true,
        }
    }
}

/// Memory of the bounds, kept from one loop to the next.
#[derive(Default)]
pub(crate) struct BoundsScratch {
    sums: Vec<u64>,
    dist: Vec<i64>,
    parent: Vec<Parent>,
    colour: Vec<u32>,
    cycle: Vec<Node>,
}

impl BoundsScratch {
    /// Fills `out`. The serial schedule exists and its II fits 31 bits, so every bound does too.
    pub fn compute(&mut self, p: &Problem, g: &Graph, max_stages: Option<u32>, out: &mut Bounds) {
        out.clear();
        self.sums.clear();
        self.sums.resize(p.slots().len().max(p.pools().len()), 0);
        for n in p.nodes() {
            for u in p.uses(n) {
                let sum = &mut self.sums[u.slot.as_u32() as usize];
                *sum = sum.saturating_add(u64::from(u.duration) * u64::from(u.occupancy));
            }
        }
        for (slot, data) in p.slots().iter() {
            let sum = std::mem::take(&mut self.sums[slot.as_u32() as usize]);
            let least = clamp(sum.div_ceil(u64::from(data.capacity.max(1))));
            if sum > 0 && (out.resource_slot.is_none() || least > out.resource) {
                (out.resource, out.resource_slot) = (least, Some(slot));
            }
        }
        self.sums.fill(0);
        for n in p.nodes() {
            for u in p.pool_uses(n) {
                let sum = &mut self.sums[u.pool.as_u32() as usize];
                *sum = sum.saturating_add(u64::from(u.duration) * u64::from(u.count));
            }
        }
        for (pool, data) in p.pools().iter() {
            let sum = self.sums[pool.as_u32() as usize];
            let least = clamp(sum.div_ceil(u64::from(data.capacity.max(1))));
            if sum > 0 && (out.density_pool.is_none() || least > out.fine_density) {
                (out.fine_density, out.density_pool) = (least, Some(pool));
            }
        }
        out.recurrence = self.ratio(g, Edges::Given, 0, &mut out.recurrence_cycle).max(1);
        if g.has_serial || g.has_groups {
            let chain = &mut out.dependency_chain;
            let alone = self.ratio(g, Edges::Chains, 1, chain);
            out.dependency = self.ratio(g, Edges::All, alone.max(out.recurrence), chain);
            if out.dependency <= out.recurrence {
                out.dependency = alone;
            }
        }
        if let Some(stages) = max_stages {
            let path = self.critical_path(p, g);
            let least = clamp(path.div_ceil(u64::from(stages.max(1))));
            if least > out.dependency {
                out.dependency = least;
                out.dependency_chain.clear();
                out.dependency_chain.append(&mut self.cycle);
            }
        }
    }

    /// The least II ≥ `from` under which no cycle of the edges seen has positive weight. If that is above `from`,
    /// `witness` is a cycle that needs it.
    fn ratio(&mut self, g: &Graph, edges: Edges, from: u32, witness: &mut Vec<Node>) -> u32 {
        let mut ii = i64::from(from);
        for &(u, a) in g.selfs.iter().filter(|(_, a)| edges.sees(a)) {
            // Self edges have a distance of at least 1 in a checked problem.
            let need = ceil_div(a.latency, a.distance().max(1).into());
            if need > ii {
                ii = need;
                witness.clear();
                witness.push(Node::from_u32(u));
            }
        }
        let groups_count = g.has_groups && edges != Edges::Given;
        if !g.has_carried && !groups_count {
            return clamp(ii as u64);
        }
        // Newton: each round raises II to the ratio of a cycle that refutes it.
        ii = ii.max(1);
        while let Some((latency, distance)) = self.positive_cycle(g, edges, ii) {
            ii = ceil_div(latency, distance);
            witness.clear();
            witness.extend_from_slice(&self.cycle);
        }
        rotate_to_smallest(witness);
        clamp(ii as u64)
    }

    /// A cycle of positive weight under `ii` (left in `self.cycle`), as (latency, distance).
    fn positive_cycle(&mut self, g: &Graph, edges: Edges, ii: i64) -> Option<(i64, i64)> {
        let n = g.n as usize;
        self.dist.clear();
        self.dist.resize(n, 0);
        self.parent.clear();
        self.parent.resize(n, NO_PARENT);
        loop {
            let mut changed = false;
            for &u in &g.topo {
                let du = self.dist[u as usize];
                for a in g.succ.of(u).iter().filter(|a| edges.sees(a)) {
                    let through = du + a.weight(ii);
                    if through > self.dist[a.node as usize] {
                        self.dist[a.node as usize] = through;
                        self.parent[a.node as usize] =
                            Parent { node: u, distance: a.distance(), latency: a.latency };
                        changed = true;
                    }
                }
            }
            if edges != Edges::Given && g.has_groups {
                changed |= self.relax_groups(g, ii);
            }
            if !changed {
                return None;
            }
            if let Some(found) = self.parent_cycle(n) {
                return Some(found);
            }
        }
    }

    /// Members of a group lie in one window of II cycles: each starts less than II before any other.
    fn relax_groups(&mut self, g: &Graph, ii: i64) -> bool {
        let mut changed = false;
        for group in 0..g.group_first.len() as u32 - 2 {
            let members = g.group(group);
            let Some(&last) = members.iter().max_by_key(|&&m| self.dist[m as usize]) else { continue };
            let through = self.dist[last as usize] + 1 - ii;
            for &m in members.iter().filter(|&&m| m != last) {
                if through > self.dist[m as usize] {
                    self.dist[m as usize] = through;
                    self.parent[m as usize] = Parent { node: last, distance: 1, latency: 1 };
                    changed = true;
                }
            }
        }
        changed
    }

    /// A cycle of parents; every such cycle has positive weight.
    fn parent_cycle(&mut self, n: usize) -> Option<(i64, i64)> {
        self.colour.clear();
        self.colour.resize(n, 0);
        for root in 0..n {
            let mut at = root;
            while self.colour[at] == 0 {
                self.colour[at] = root as u32 + 1;
                match self.parent[at].node {
                    u32::MAX => break,
                    up => at = up as usize,
                }
            }
            if self.colour[at] != root as u32 + 1 || self.parent[at].node == u32::MAX {
                continue;
            }
            let (stop, mut latency, mut distance) = (at, 0i64, 0i64);
            self.cycle.clear();
            loop {
                let up = self.parent[at];
                self.cycle.push(Node::from_u32(up.node));
                latency += up.latency;
                distance += i64::from(up.distance);
                at = up.node as usize;
                if at == stop {
                    break;
                }
            }
            self.cycle.reverse();
            rotate_to_smallest(&mut self.cycle);
            return Some((latency, distance.max(1)));
        }
        None
    }

    /// Cycles from the start of an iteration to the end of its longest zero-distance path; the path is left in
    /// `self.cycle`.
    fn critical_path(&mut self, p: &Problem, g: &Graph) -> u64 {
        let n = g.n as usize;
        self.dist.clear();
        self.dist.resize(n, 0);
        self.parent.clear();
        self.parent.resize(n, NO_PARENT);
        for &u in &g.topo {
            let du = self.dist[u as usize];
            for a in g.succ.of(u).iter().filter(|a| a.distance() == 0) {
                if du + a.latency > self.dist[a.node as usize] {
                    self.dist[a.node as usize] = du + a.latency;
                    self.parent[a.node as usize] = Parent { node: u, ..NO_PARENT };
                }
            }
        }
        let end = |u: &u32| self.dist[*u as usize] + i64::from(p.latency(Node::from_u32(*u)).max(1));
        self.cycle.clear();
        let Some(last) = (0..g.n).rev().max_by_key(end) else { return 0 };
        let length = end(&last);
        let mut at = last;
        while at != u32::MAX {
            self.cycle.push(Node::from_u32(at));
            at = self.parent[at as usize].node;
        }
        self.cycle.reverse();
        length as u64
    }
}

fn ceil_div(a: i64, b: i64) -> i64 {
    a.div_euclid(b) + i64::from(a.rem_euclid(b) != 0)
}

fn clamp(v: u64) -> u32 {
    v.min(u64::from(crate::problem::MAX_QUANTITY)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::NodeDef;

    fn compute(p: &Problem, max_stages: Option<u32>) -> Bounds {
        let mut g = Graph::default();
        assert!(g.build(p));
        let mut out = Bounds::default();
        BoundsScratch::default().compute(p, &g, max_stages, &mut out);
        out
    }

    fn ring(latencies: &[u32], last_distance: u32) -> (Problem, Vec<Node>) {
        let mut p = Problem::new("t");
        let nodes: Vec<_> = latencies
            .iter()
            .enumerate()
            .map(|(i, &latency)| p.add_node(&NodeDef { id: &format!("n{i}"), latency, ..NodeDef::default() }))
            .collect();
        for i in 0..nodes.len() {
            let next = (i + 1) % nodes.len();
            p.add_edge(nodes[i], nodes[next], latencies[i] as i32, if next == 0 { last_distance } else { 0 });
        }
        (p, nodes)
    }

    #[test]
    fn recurrence_is_an_exact_ceiling_with_its_cycle() {
        let (mut p, n) = ring(&[3, 4, 4], 2);
        let b = compute(&p, None);
        assert_eq!((b.recurrence, &b.recurrence_cycle), (6, &n)); // 11 / 2
        p.add_edge(n[2], n[1], 3, 1); // 7 / 1
        let b = compute(&p, None);
        assert_eq!((b.recurrence, b.recurrence_cycle.as_slice()), (7, &n[1..]));
        assert_eq!((b.resource, b.fine_density, b.dependency), (1, 1, 1));
    }

    #[test]
    fn recurrence_agrees_with_all_simple_cycles() {
        let mut seed = 3u64;
        let mut below = |n: u64| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) % n
        };
        let mut above_one = 0;
        for _ in 0..300 {
            let n = 2 + below(5) as u32;
            let mut p = Problem::new("t");
            for i in 0..n {
                p.add_node(&NodeDef { id: &format!("n{i}"), ..NodeDef::default() });
            }
            for _ in 0..below(12) {
                let (u, v) = (below(n.into()) as u32, below(n.into()) as u32);
                let distance = below(3) as u32 + u32::from(u >= v);
                p.add_edge(Node::from_u32(u), Node::from_u32(v), below(14) as i32 - 4, distance);
            }
            // Oracle: enumerate simple cycles through their smallest op.
            fn walk(p: &Problem, root: u32, at: u32, seen: u32, l: i64, d: i64, best: &mut i64) {
                for e in p.edges().values().filter(|e| e.from.as_u32() == at && e.to.as_u32() >= root) {
                    let v = e.to.as_u32();
                    let (l, d) = (l + i64::from(e.latency), d + i64::from(e.distance));
                    if v == root {
                        *best = (*best).max(ceil_div(l, d));
                    } else if seen & 1 << v == 0 {
                        walk(p, root, v, seen | 1 << v, l, d, best);
                    }
                }
            }
            let mut best = 1;
            for root in 0..n {
                walk(&p, root, root, 1 << root, 0, 0, &mut best);
            }
            let b = compute(&p, None);
            assert_eq!(i64::from(b.recurrence), best);
            above_one += u32::from(best > 1);
        }
        assert!(above_one > 50);
    }

    #[test]
    fn chains_without_slack() {
        // A group must fit one window of II: its longest inner path plus one cycle.
        let mut p = Problem::new("t");
        let def =
            |id, group, force_serial| NodeDef { id, latency: 5, group, force_serial, ..NodeDef::default() };
        let a = p.add_node(&def("a", Some(1), false));
        let b = p.add_node(&def("b", None, false));
        let c = p.add_node(&def("c", Some(1), false));
        p.add_edge(a, b, 5, 0);
        p.add_edge(b, c, 5, 0);
        let bounds = compute(&p, None);
        assert_eq!((bounds.recurrence, bounds.dependency), (1, 11));
        assert_eq!(bounds.dependency_chain, [a, b, c]);
        // Forced serial, the last op must also be finished.
        let mut q = Problem::new("t");
        let a = q.add_node(&def("a", Some(1), true));
        let c = q.add_node(&def("c", Some(1), false));
        q.add_edge(a, c, 10, 0);
        assert_eq!(compute(&q, None).dependency, 15);
        assert_eq!(compute(&q, Some(4)).dependency, 15);
        // The critical path over the stages allowed.
        let (p, n) = ring(&[3, 4, 4], 2);
        let b = compute(&p, Some(1));
        assert_eq!((b.dependency, b.dependency_chain), (11, n));
        assert_eq!(compute(&p, Some(3)).dependency, 4);
    }
}
