//! Longest distances between all ops of a loop at one II.
//!
//! In: the graph and II. Out: `distance(a, b)` = the least `start[b] - start[a]` that some path of dependences asks
//! for, where an edge weighs latency - II · distance. Groups count as paths too: members start less than II apart.
//! Longest paths, compared as signed numbers; [`NO_PATH`] where none leads from a to b, never a number one could
//! reach by adding.
//!
//! Dense up to [`MAX_OPS`] ops; larger loops have no closure and their users do without. Cost: one longest-path run
//! per op, O(ops · edges · rounds over carried edges). Needs II at or above the recurrence bound.

use crate::graph::Graph;
use crate::windows::NEVER;

/// Ops of the largest loop with a dense closure.
pub(crate) const MAX_OPS: usize = 256;
/// No path leads there.
pub(crate) const NO_PATH: i32 = i32::MIN / 4;
/// Distances are kept below this.
pub(crate) const FAR: i32 = i32::MAX / 4;

/// Ops from which distances are computed at once.
const LANES: usize = 16;
/// What has no distance has less than half of this, even after a positive number of weights was added to it.
const UNREACHED: i32 = i32::MIN / 2;
/// Positive weights of all edges, and the most negative one, each times the most passes over them, stay below this.
const MOST_SUM: u64 = 1 << 28;

/// The closure and its memory.
#[derive(Default)]
pub(crate) struct Closure {
    n: usize,
    ii: u32,
    distance: Vec<i32>,
    row: Vec<i64>,
    /// Edges with their weights at the II at hand, and distances from several ops at once, by op.
    edges: Vec<(u32, u32, i32)>,
    lanes: Vec<[i32; LANES]>,
}

impl Closure {
    /// Forgets the loop; [`Closure::build`] then computes even for an II it has seen.
    pub fn clear(&mut self) {
        self.n = usize::MAX;
    }

    /// Closes the graph at `ii`, unless that is what it holds. `false`: too large, or `ii` is below a recurrence.
    pub fn build(&mut self, g: &Graph, ii: u32) -> bool {
        let n = g.n as usize;
        if n > MAX_OPS {
            return false;
        }
        if (self.n, self.ii) == (n, ii) {
            return true;
        }
        self.distance.clear();
        self.distance.resize(n * n, NO_PATH);
        if self.flatten(g, ii) {
            (self.n, self.ii) = (usize::MAX, ii);
            for first in (0..n).step_by(LANES) {
                if !self.longest_paths_together(n, first) {
                    return false;
                }
            }
            self.n = n;
            return true;
        }
        for source in 0..n {
            if !self.longest_paths(g, source as u32, ii.into()) {
                self.n = usize::MAX;
                return false;
            }
            let to = &mut self.distance[source * n..(source + 1) * n];
            for (to, &d) in to.iter_mut().zip(&self.row) {
                if d > -NEVER {
                    *to = d.clamp(i64::from(NO_PATH) + 1, FAR.into()) as i32;
                }
            }
        }
        (self.n, self.ii) = (n, ii);
        true
    }

    /// Lists the edges, those that leave ops early in the iteration first. `false`: sums of their weights may not fit, or there
    /// are groups.
    fn flatten(&mut self, g: &Graph, ii: u32) -> bool {
        if g.has_groups {
            return false;
        }
        self.edges.clear();
        let (mut sum, mut deepest) = (0u64, 0u64);
        for &u in &g.topo {
            for a in g.succ.of(u) {
                let weight = a.weight(ii.into());
                sum = sum.saturating_add(weight.max(0) as u64);
                deepest = deepest.max(weight.min(0).unsigned_abs());
                self.edges.push((u, a.node, weight as i32));
            }
        }
        // No pass over the edges adds more than that to a distance, and the first path found to an op has fewer edges than there are ops.
        let passes = u64::from(g.n) + 2;
        sum.saturating_mul(passes) < MOST_SUM && deepest.saturating_mul(passes) < MOST_SUM
    }

    /// Distances from some ops, `first` the first of them. `false`: one of them, or what they lead to, is before itself.
    fn longest_paths_together(&mut self, n: usize, first: usize) -> bool {
        let Closure { lanes, edges, distance, .. } = self;
        lanes.clear();
        lanes.resize(n, [UNREACHED; LANES]);
        let sources = first..n.min(first + LANES);
        for source in sources.clone() {
            lanes[source][source - first] = 0;
        }
        // As many rounds as [`Closure::longest_paths`].
        for round in 0.. {
            let mut changed = 0;
            for &(u, v, weight) in &*edges {
                let from = lanes[u as usize];
                let to = &mut lanes[v as usize];
                for (to, from) in to.iter_mut().zip(from) {
                    let there = from + weight;
                    changed |= i32::from(there > *to);
                    *to = if there > *to { there } else { *to };
                }
            }
            if sources.clone().any(|source| lanes[source][source - first] > 0) || round > n + 1 {
                return false;
            }
            if changed == 0 {
                break;
            }
        }
        for (v, at) in lanes.iter().enumerate() {
            for (source, &d) in sources.clone().zip(at) {
                if d > UNREACHED / 2 {
                    distance[source * n + v] = d;
                }
            }
        }
        true
    }

    /// Distances from one op, into `row`; `false` if the op is before itself.
    fn longest_paths(&mut self, g: &Graph, source: u32, ii: i64) -> bool {
        let n = g.n as usize;
        self.row.clear();
        self.row.resize(n, -NEVER);
        self.row[source as usize] = 0;
        // Without carried edges nothing leads back before the source.
        let mut from = g.topo_pos[source as usize] as usize;
        // A path takes fewer carried edges than there are ops; after that some cycle grows without end.
        for _ in 0..=n + 1 {
            let mut changed = false;
            for &u in &g.topo[from..] {
                let at = self.row[u as usize];
                if at == -NEVER {
                    continue;
                }
                for a in g.succ.of(u) {
                    let to = &mut self.row[a.node as usize];
                    if at + a.weight(ii) > *to {
                        *to = at + a.weight(ii);
                        changed |= a.distance() > 0;
                    }
                }
            }
            for k in 0..if g.has_groups { g.group_first.len() as u32 - 2 } else { 0 } {
                let members = g.group(k);
                let latest = members.iter().map(|&v| self.row[v as usize]).max().unwrap_or(-NEVER);
                if members.len() < 2 || latest == -NEVER {
                    continue;
                }
                for &v in members {
                    let to = &mut self.row[v as usize];
                    if latest + 1 - ii > *to {
                        *to = latest + 1 - ii;
                        changed = true;
                    }
                }
            }
            if self.row[source as usize] > 0 {
                return false;
            }
            if !changed {
                return true;
            }
            from = 0;
        }
        false
    }

    /// Least `start[b] - start[a]` over all paths, or [`NO_PATH`].
    #[inline]
    pub fn distance(&self, a: u32, b: u32) -> i32 {
        self.distance[a as usize * self.n + b as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::{NodeDef, Problem};

    fn close(p: &Problem, ii: u32) -> Option<Closure> {
        let (mut g, mut c) = (Graph::default(), Closure::default());
        assert!(g.build(p));
        c.clear();
        c.build(&g, ii).then_some(c)
    }

    fn ops(n: u32) -> (Problem, Vec<super::super::Node>) {
        let mut p = Problem::new("t");
        let nodes =
            (0..n).map(|i| p.add_node(&NodeDef { id: &format!("n{i}"), ..NodeDef::default() })).collect();
        (p, nodes)
    }

    #[test]
    fn paths_add_up_and_the_longest_counts() {
        let (mut p, n) = ops(4);
        p.add_edge(n[0], n[1], 8, 0);
        p.add_edge(n[1], n[2], 2, 0);
        p.add_edge(n[0], n[2], 4, 0);
        let c = close(&p, 5).unwrap();
        assert_eq!((c.distance(0, 2), c.distance(0, 1), c.distance(0, 0)), (10, 8, 0));
        assert_eq!((c.distance(2, 0), c.distance(0, 3)), (NO_PATH, NO_PATH));
    }

    #[test]
    fn distances_are_signed() {
        // An op that follows itself after 16 cycles, one iteration later: 8 cycles of room at II 24, 1 too few at 15.
        let (mut p, n) = ops(2);
        p.add_edge(n[0], n[1], 10, 0);
        p.add_edge(n[1], n[0], 6, 1);
        let c = close(&p, 24).unwrap();
        assert_eq!((c.distance(0, 1), c.distance(1, 0)), (10, -18));
        assert!(close(&p, 16).is_some());
        assert!(close(&p, 15).is_none());
    }

    #[test]
    fn groups_hold_together() {
        let mut p = Problem::new("t");
        let def = |id| NodeDef { id, group: Some(1), ..NodeDef::default() };
        p.add_node(&def("a"));
        p.add_node(&def("b"));
        let c = close(&p, 10).unwrap();
        assert_eq!((c.distance(0, 1), c.distance(1, 0)), (-9, -9));
    }

    #[test]
    fn agrees_with_floyd_and_warshall() {
        use crate::families::Rng;
        let mut rng = Rng::new(5);
        let mut closed = 0;
        for _ in 0..200 {
            let count = rng.within(2, 40);
            let (mut p, n) = ops(count);
            for _ in 0..rng.within(0, 3 * count / 2) {
                let (a, b) = (rng.within(0, count - 1), rng.within(0, count - 1));
                let distance = rng.within(0, 1) + u32::from(a >= b);
                if a != b {
                    p.add_edge(n[a as usize], n[b as usize], rng.within(0, 9) as i32 - 2, distance);
                }
            }
            let ii = rng.within(1, 9);
            let m = count as usize;
            let mut d = vec![i64::MIN / 4; m * m];
            (0..m).for_each(|u| d[u * m + u] = 0);
            for e in p.edges().values() {
                let at = e.from.as_u32() as usize * m + e.to.as_u32() as usize;
                d[at] = d[at].max(i64::from(e.latency) - i64::from(ii * e.distance));
            }
            for k in 0..m {
                for i in 0..m {
                    for j in 0..m {
                        d[i * m + j] = d[i * m + j].max(d[i * m + k] + d[k * m + j]);
                    }
                }
            }
            let c = close(&p, ii);
            assert_eq!(c.is_none(), (0..m).any(|u| d[u * m + u] > 0));
            let Some(c) = c else { continue };
            closed += 1;
            for i in 0..m {
                for j in 0..m {
                    let want = d[i * m + j];
                    let got = c.distance(i as u32, j as u32);
                    if want < i64::MIN / 8 {
                        assert_eq!(got, NO_PATH)
                    } else {
                        assert_eq!(i64::from(got), want)
                    }
                }
            }
        }
        assert!(closed > 50);
    }
}
