//! The dependence graph in the form the generators walk: compressed rows, a topological order, groups.
//!
//! In: a checked [`Problem`]. Out: [`Graph`]. Self edges are kept apart (they bound the interval and never a start).
//! A forced-serial op adds edges of distance 1 between itself and every op of its group, in both directions, each as
//! long as the op it leaves is busy: that is "does not overlap itself or its group across iterations".
//!
//! Cost: O(nodes + edges), plus a heap where program order is not topological.

use crate::entities::Node;
use crate::problem::{EdgeData, NO_GROUP, Problem};
use cranelift_entity::EntityRef;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

const EXCLUSION: u32 = 1 << 31;

/// One end of an edge: the other op, latency and distance.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct Arc {
    pub node: u32,
    distance: u32,
    pub latency: i64,
}

impl Arc {
    /// Iterations between the two ops.
    #[inline]
    pub fn distance(self) -> u32 {
        self.distance & !EXCLUSION
    }

    /// Whether a forced-serial op made this edge.
    #[inline]
    pub fn is_exclusion(self) -> bool {
        self.distance & EXCLUSION != 0
    }

    /// Whether a value may live along this edge; anti-dependences of latency 0 and below are told apart by sign only.
    #[inline]
    pub fn is_value(self) -> bool {
        !self.is_exclusion() && self.latency > 0
    }

    /// Least `start[to] - start[from]` under `ii`.
    ///
    /// Very negative weights never bind; clamping them keeps sums far from overflow.
    #[inline]
    pub fn weight(self, ii: i64) -> i64 {
        (self.latency - ii * i64::from(self.distance())).max(-(1 << 52))
    }
}

/// Rows of arcs: those of op `u` are `arcs[first[u]..first[u + 1]]`.
#[derive(Default)]
pub(crate) struct Rows {
    first: Vec<u32>,
    arcs: Vec<Arc>,
}

impl Rows {
    #[inline]
    pub fn of(&self, u: u32) -> &[Arc] {
        &self.arcs[self.first[u as usize] as usize..self.first[u as usize + 1] as usize]
    }

    fn reset(&mut self, n: usize) {
        self.first.clear();
        self.first.resize(n + 2, 0);
        self.arcs.clear();
    }

    // Counting sort in three steps: `count` all, `open`, `put` all. The row of `u` is counted two places further, so
    // that after `put` has advanced `first[u + 1]` to the end of the row, `first` holds the row starts.
    fn count(&mut self, u: usize) {
        self.first[u + 2] += 1;
    }

    fn open(&mut self) {
        for i in 2..self.first.len() {
            self.first[i] += self.first[i - 1];
        }
        let total = self.first.last().copied().unwrap_or(0);
        self.arcs.resize(total as usize, Arc::default());
    }

    fn put(&mut self, u: usize, arc: Arc) {
        let at = &mut self.first[u + 1];
        self.arcs[*at as usize] = arc;
        *at += 1;
    }
}

/// The graph of one problem.
#[derive(Default)]
pub(crate) struct Graph {
    pub n: u32,
    pub succ: Rows,
    pub pred: Rows,
    /// Self edges, given and derived: (op, arc to itself).
    pub selfs: Vec<(u32, Arc)>,
    /// Ops in topological order of the zero-distance edges, smallest program order first.
    pub topo: Vec<u32>,
    /// Position in `topo`.
    pub topo_pos: Vec<u32>,
    /// Members of group `g` are `members[group_first[g]..group_first[g + 1]]`.
    pub group_first: Vec<u32>,
    pub members: Vec<u32>,
    /// Whether some group has two members.
    pub has_groups: bool,
    /// Whether some op is forced serial.
    pub has_serial: bool,
    /// Whether a distance above 0 occurs between two different ops.
    pub has_carried: bool,
    /// What has a schedule at one II has one at every larger one: all reservations begin with their op, no latency is
    /// negative. With its row and stage kept, an op leaves a row no later than before, and no dependence is shorter.
    pub monotone: bool,
    indegree: Vec<u32>,
    ready: BinaryHeap<Reverse<u32>>,
}

impl Graph {
    /// Rebuilds the graph, keeping allocations. `false`: the zero-distance edges have a cycle.
    pub fn build(&mut self, p: &Problem) -> bool {
        self.build_with(p, &[])
    }

    /// The same with more edges, between different ops and of a distance above 0, for which no value lives.
    pub fn build_with(&mut self, p: &Problem, more: &[EdgeData]) -> bool {
        let n = p.num_nodes();
        self.n = n as u32;
        self.succ.reset(n);
        self.pred.reset(n);
        self.selfs.clear();
        self.has_carried = false;
        self.build_groups(p);
        self.has_serial = p.nodes().any(|u| p.force_serial(u));
        let at_start = |u: Node| p.uses(u).iter().all(|r| r.offset == 0);
        self.monotone = p.nodes().all(at_start) && p.edges().values().all(|e| e.latency >= 0);
        let mut in_program_order = true;
        for e in p.edges().values() {
            let (u, v) = (e.from.index(), e.to.index());
            if u == v {
                let arc = Arc { node: v as u32, distance: e.distance, latency: e.latency.into() };
                self.selfs.push((u as u32, arc));
                if e.distance == 0 {
                    return false;
                }
                continue;
            }
            in_program_order &= e.distance > 0 || u < v;
            self.has_carried |= e.distance > 0;
            self.succ.count(u);
            self.pred.count(v);
        }
        for e in more {
            self.has_carried = true;
            self.succ.count(e.from.index());
            self.pred.count(e.to.index());
        }
        self.for_exclusions(p, |g, u, v, _| {
            g.succ.count(u as usize);
            g.pred.count(v as usize);
        });
        self.succ.open();
        self.pred.open();
        for e in p.edges().values().filter(|e| e.from != e.to) {
            let (u, v) = (e.from.index(), e.to.index());
            let arc = Arc { node: v as u32, distance: e.distance, latency: e.latency.into() };
            self.succ.put(u, arc);
            self.pred.put(v, Arc { node: u as u32, ..arc });
        }
        for e in more {
            // Marked like exclusions: they order starts and carry nothing.
            let arc =
                Arc { node: e.to.as_u32(), distance: e.distance | EXCLUSION, latency: e.latency.into() };
            self.succ.put(e.from.index(), arc);
            self.pred.put(e.to.index(), Arc { node: e.from.as_u32(), ..arc });
        }
        self.for_exclusions(p, |g, u, v, span| {
            let arc = Arc { node: v, distance: 1 | EXCLUSION, latency: span };
            g.succ.put(u as usize, arc);
            g.pred.put(v as usize, Arc { node: u, ..arc });
        });
        if self.has_serial {
            self.has_carried = true;
            for u in p.nodes().filter(|&u| p.force_serial(u)) {
                let arc = Arc { node: u.as_u32(), distance: 1 | EXCLUSION, latency: i64::from(p.span(u)) };
                self.selfs.push((u.as_u32(), arc));
            }
        }
        self.sort_topologically(in_program_order)
    }

    fn build_groups(&mut self, p: &Problem) {
        let groups = p.num_groups();
        self.group_first.clear();
        self.group_first.resize(groups + 2, 0);
        self.members.clear();
        self.has_groups = false;
        for u in p.nodes().filter(|&u| p.group_index(u) != NO_GROUP) {
            self.group_first[p.group_index(u) as usize + 2] += 1;
        }
        for g in 2..groups + 2 {
            self.has_groups |= self.group_first[g] > 1;
            self.group_first[g] += self.group_first[g - 1];
        }
        self.members.resize(self.group_first[groups + 1] as usize, 0);
        for u in p.nodes().filter(|&u| p.group_index(u) != NO_GROUP) {
            let at = &mut self.group_first[p.group_index(u) as usize + 1];
            self.members[*at as usize] = u.as_u32();
            *at += 1;
        }
    }

    /// Ops of a group in program order.
    #[inline]
    pub fn group(&self, g: u32) -> &[u32] {
        &self.members[self.group_first[g as usize] as usize..self.group_first[g as usize + 1] as usize]
    }

    /// Calls `f(self, from, to, busy cycles of from)` for the edges of forced-serial ops, self edges excepted.
    fn for_exclusions(&mut self, p: &Problem, mut f: impl FnMut(&mut Self, u32, u32, i64)) {
        if !self.has_serial {
            return;
        }
        for u in p.nodes().filter(|&u| p.force_serial(u) && p.group_index(u) != NO_GROUP) {
            let g = p.group_index(u) as usize;
            for k in self.group_first[g]..self.group_first[g + 1] {
                let w = cranelift_entity::EntityRef::new(self.members[k as usize] as usize);
                if w == u {
                    continue;
                }
                f(self, u.as_u32(), self.members[k as usize], p.span(u).into());
                // Where both are forced serial, the visit to the other one adds this direction.
                if !p.force_serial(w) {
                    f(self, self.members[k as usize], u.as_u32(), p.span(w).into());
                }
            }
        }
    }

    fn sort_topologically(&mut self, in_program_order: bool) -> bool {
        let n = self.n;
        self.topo.clear();
        if in_program_order {
            self.topo.extend(0..n);
        } else {
            self.indegree.clear();
            self.indegree.resize(n as usize, 0);
            for u in 0..n {
                for a in self.succ.of(u).iter().filter(|a| a.distance() == 0) {
                    self.indegree[a.node as usize] += 1;
                }
            }
            self.ready.clear();
            self.ready.extend((0..n).filter(|&u| self.indegree[u as usize] == 0).map(Reverse));
            while let Some(Reverse(u)) = self.ready.pop() {
                self.topo.push(u);
                for a in self.succ.of(u).iter().filter(|a| a.distance() == 0) {
                    let left = &mut self.indegree[a.node as usize];
                    *left -= 1;
                    if *left == 0 {
                        self.ready.push(Reverse(a.node));
                    }
                }
            }
            if self.topo.len() < n as usize {
                return false;
            }
        }
        self.topo_pos.clear();
        self.topo_pos.resize(n as usize, 0);
        for (i, &u) in self.topo.iter().enumerate() {
            self.topo_pos[u as usize] = i as u32;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::NodeDef;

    #[test]
    fn rows_order_and_exclusions() {
        let mut p = Problem::new("t");
        let def =
            |id, group, force_serial| NodeDef { id, latency: 3, group, force_serial, ..NodeDef::default() };
        let a = p.add_node(&def("a", Some(5), true));
        let b = p.add_node(&def("b", None, false));
        let c = p.add_node(&def("c", Some(5), false));
        p.add_edge(c, a, 1, 0);
        p.add_edge(a, b, 2, 0);
        p.add_edge(b, b, 4, 2);
        let mut g = Graph::default();
        assert!(g.build(&p));
        assert_eq!(g.topo, [2, 0, 1]);
        assert_eq!(g.topo_pos, [1, 2, 0]);
        let flat = |arcs: &[Arc]| {
            arcs.iter().map(|a| (a.node, a.distance(), a.latency, a.is_exclusion())).collect::<Vec<_>>()
        };
        assert_eq!(flat(g.succ.of(0)), [(1, 0, 2, false), (2, 1, 3, true)]);
        assert_eq!(flat(g.succ.of(2)), [(0, 0, 1, false), (0, 1, 3, true)]);
        assert_eq!(flat(g.pred.of(0)), [(2, 0, 1, false), (2, 1, 3, true)]);
        assert_eq!(flat(g.pred.of(1)), [(0, 0, 2, false)]);
        assert_eq!(g.selfs.len(), 2);
        assert_eq!(g.group(0), [0, 2]);
        p.add_edge(b, c, 0, 0);
        assert!(!g.build(&p));
    }
}
