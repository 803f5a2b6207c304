//! Rows before stages: a packing of the reservation table that leaves stages to the end, for one candidate II.
//!
//! In: a problem, its graph, windows prepared for the II and a table reset to it. Out: legal starts in [`Ims::start`]
//! and the table, or failure. Where dependences tie ops in one direction only, whoever reads can move by whole stages
//! until its operands are there; so no dependence restricts the *rows* (starts modulo II), and what is left is a packing.
//! Ops that need most of what is scarce go first, each to the first row from its earliest start on that leaves no gap
//! on nearly full units. Strongly connected ops are seated one after the other in windows that shrink with every seat.
//! Then each component moves by as many stages as its operands ask for. What does not fit is tried again, before all others,
//! a few times.
//!
//! Guarantee: what it returns is legal. A failure proves nothing. Groups and deadlines are not for it. Iterations take
//! more stages than with `ims`, which follows dependences; compaction and the search for fewer stages come after it.
//! Cost: O(ops · (rows / 64 + degree)) per try, plus edges times size inside components. Source: first fit with
//! decreasing sizes; R. Tarjan (1972) for components.

use super::graph::Graph;
use super::ims::{Ims, NEVER};
use super::problem::Node;
use super::rrt::Rrt;

/// Tries at one II.
const TRIES: u32 = 6;
/// Edges of a component times its ops, above which it is left to others.
const TIED: u64 = 1 << 16;
const NOT_SEEN: u32 = u32::MAX;
const UNSEATED: i64 = i64::MIN;

/// Memory of the packing.
#[derive(Default)]
pub(super) struct RowPacking {
    /// Ops by component, those of one component next to each other; what follows comes before what it needs.
    by_component: Vec<u32>,
    /// First op of each component in `by_component`, and one past the last.
    first: Vec<u32>,
    component: Vec<u32>,
    /// Tarjan's numbers, and his two stacks.
    number: Vec<u32>,
    low: Vec<u32>,
    open: Vec<u32>,
    path: Vec<(u32, u32)>,
    /// Busy cycles times units by resource.
    load: Vec<u64>,
    /// Components in the order of their turn, by falling demand.
    turns: Vec<(u64, i64, u32)>,
    demand: Vec<u64>,
    low_end: Vec<i64>,
    high_end: Vec<i64>,
    seat: Vec<i64>,
    /// Seats looked for since the loop was set.
    pub probes: u64,
}

impl RowPacking {
    /// Whether stages are free at all.
    pub fn applies(g: &Graph, ims: &Ims) -> bool {
        !g.has_groups && ims.late.iter().all(|&t| t >= NEVER)
    }

    /// Packs; the table is empty, and where this fails it is again.
    pub fn attempt(&mut self, g: &Graph, rrt: &mut Rrt, ims: &mut Ims, ii: i64) -> bool {
        let n = g.n as usize;
        if !rrt.is_exact() || !Self::applies(g, ims) {
            return false;
        }
        self.find_components(g);
        if !self.weigh(g, rrt, ims, ii) {
            return false;
        }
        for _ in 0..TRIES {
            self.seat.clear();
            self.seat.resize(n, UNSEATED);
            let stuck = (0..self.turns.len()).find(|&k| !self.seat_component(g, rrt, ims, ii, k));
            let Some(stuck) = stuck else {
                self.place_stages(g, ims, ii);
                return true;
            };
            rrt.empty();
            if stuck == 0 {
                return false;
            }
            self.turns[..=stuck].rotate_right(1);
        }
        false
    }

    /// Demand of each component, and the order it gives. `false`: some component is too large.
    fn weigh(&mut self, g: &Graph, rrt: &Rrt, ims: &Ims, ii: i64) -> bool {
        let caps = rrt.capacities();
        self.load.clear();
        self.load.resize(caps.len(), 0);
        for u in 0..g.n {
            for (r, _, len, units) in rrt.pieces(Node::from_u32(u)) {
                let held = &mut self.load[r as usize];
                *held = held.saturating_add(u64::from(len).saturating_mul(units));
            }
        }
        // In 1/1024 of the resource; what is nearly full counts much more than what is half full.
        for (load, &cap) in self.load.iter_mut().zip(caps) {
            let share = (u128::from(*load) << 10) / (u128::from(cap.max(1)) * ii.max(1) as u128);
            let share = share.min(1 << 10) as u64;
            *load = (share * share * share) >> 20;
        }
        self.demand.clear();
        for u in 0..g.n {
            let of = rrt.pieces(Node::from_u32(u));
            let demand = of.fold(0u64, |sum, (r, _, len, units)| {
                sum.saturating_add(u64::from(len).saturating_mul(units).saturating_mul(self.load[r as usize]))
            });
            self.demand.push(demand);
        }
        self.turns.clear();
        for c in 0..self.first.len() - 1 {
            let members = &self.by_component[self.first[c] as usize..self.first[c + 1] as usize];
            let early = members.iter().map(|&u| ims.early[u as usize]).min().unwrap_or(0);
            let most = members.iter().map(|&u| self.demand[u as usize]).max().unwrap_or(0);
            if members.len() > 1 {
                let edges: u64 = members.iter().map(|&u| g.succ.of(u).len() as u64).sum();
                if edges.saturating_mul(members.len() as u64) > TIED {
                    return false;
                }
            }
            // Tied ops have less choice than their size says.
            let most = if members.len() > 1 { most.saturating_add(1 << 40) } else { most };
            self.turns.push((u64::MAX - most, early, c as u32));
        }
        self.turns.sort_unstable();
        true
    }

    fn seat_component(&mut self, g: &Graph, rrt: &mut Rrt, ims: &Ims, ii: i64, turn: usize) -> bool {
        let c = self.turns[turn].2 as usize;
        let (first, end) = (self.first[c] as usize, self.first[c + 1] as usize);
        self.probes += (end - first) as u64;
        if end - first == 1 {
            let u = self.by_component[first];
            let lo = ims.early[u as usize];
            let node = Node::from_u32(u);
            let Some(t) = rrt.first_snug_fit(node, lo, lo + ii - 1) else { return false };
            rrt.place(node, t);
            self.seat[u as usize] = t;
            return true;
        }
        self.low_end.clear();
        self.high_end.clear();
        self.low_end.resize(end - first, 0);
        self.high_end.resize(end - first, NEVER);
        for (k, &u) in self.by_component[first..end].iter().enumerate() {
            self.low_end[k] = ims.early[u as usize];
        }
        for _ in first..end {
            // The op with the least room, of those the one that needs most.
            let open = (first..end).filter(|&k| self.seat[self.by_component[k] as usize] == UNSEATED);
            let key = |k: usize| {
                let room = self.high_end[k - first].min(NEVER) - self.low_end[k - first];
                let u = self.by_component[k] as usize;
                (room.min(ii), u64::MAX - self.demand[u], ims.early[u], u)
            };
            let Some(k) = open.min_by_key(|&k| key(k)) else { return false };
            let u = self.by_component[k];
            let (lo, hi) = (self.low_end[k - first], self.high_end[k - first]);
            let node = Node::from_u32(u);
            let Some(t) = rrt.first_snug_fit(node, lo, hi.min(lo + ii - 1)) else { return false };
            rrt.place(node, t);
            self.seat[u as usize] = t;
            (self.low_end[k - first], self.high_end[k - first]) = (t, t);
            if !self.narrow(g, ii, c as u32, first, end) {
                return false;
            }
        }
        true
    }

    /// Windows inside a component, after a seat; `false`: one is empty.
    fn narrow(&mut self, g: &Graph, ii: i64, c: u32, first: usize, end: usize) -> bool {
        for u in &self.by_component[first..end] {
            self.low[*u as usize] = 0;
        }
        for (k, &u) in self.by_component[first..end].iter().enumerate() {
            self.low[u as usize] = k as u32;
        }
        // A window moves along simple paths: as many rounds as ops at most.
        for _ in first..=end {
            let mut changed = false;
            for k in 0..end - first {
                let u = self.by_component[first + k];
                for a in g.succ.of(u).iter().filter(|a| self.component[a.node as usize] == c) {
                    let v = self.low[a.node as usize] as usize;
                    let weight = a.weight(ii);
                    if self.low_end[k] + weight > self.low_end[v] {
                        self.low_end[v] = self.low_end[k] + weight;
                        changed = true;
                    }
                    if self.high_end[v] < NEVER && self.high_end[v] - weight < self.high_end[k] {
                        self.high_end[k] = self.high_end[v] - weight;
                        changed = true;
                    }
                }
            }
            if (0..end - first).any(|k| self.low_end[k] > self.high_end[k]) {
                return false;
            }
            if !changed {
                return true;
            }
        }
        false
    }

    /// Moves components by whole stages until all dependences hold.
    fn place_stages(&mut self, g: &Graph, ims: &mut Ims, ii: i64) {
        // Tarjan closes a component after all it leads to: operands are at the end.
        for c in (0..self.first.len() - 1).rev() {
            let members = &self.by_component[self.first[c] as usize..self.first[c + 1] as usize];
            let mut shift = i64::MIN;
            for &u in members {
                let at = self.seat[u as usize];
                let mut least = 0;
                for a in g.pred.of(u).iter().filter(|a| self.component[a.node as usize] != c as u32) {
                    least = least.max(self.seat[a.node as usize] + a.weight(ii));
                }
                shift = shift.max((least - at).div_euclid(ii) + i64::from((least - at).rem_euclid(ii) != 0));
            }
            members.iter().for_each(|&u| self.seat[u as usize] += shift * ii);
        }
        ims.start.clear();
        ims.start.extend_from_slice(&self.seat);
    }

    /// Strongly connected components over all edges.
    fn find_components(&mut self, g: &Graph) {
        let n = g.n as usize;
        self.by_component.clear();
        self.first.clear();
        self.first.push(0);
        self.low.clear();
        self.low.resize(n, 0);
        self.component.clear();
        self.component.resize(n, 0);
        if !g.has_carried {
            for (k, &u) in g.topo.iter().rev().enumerate() {
                self.by_component.push(u);
                self.component[u as usize] = k as u32;
                self.first.push(k as u32 + 1);
            }
            return;
        }
        self.number.clear();
        self.number.resize(n, NOT_SEEN);
        let mut next = 0;
        for &root in &g.topo {
            if self.number[root as usize] != NOT_SEEN {
                continue;
            }
            self.path.clear();
            self.path.push((root, 0));
            while let Some(&(u, arc)) = self.path.last() {
                let i = u as usize;
                if arc == 0 && self.number[i] == NOT_SEEN {
                    (self.number[i], self.low[i]) = (next, next);
                    next += 1;
                    self.open.push(u);
                }
                if let Some(a) = g.succ.of(u).get(arc as usize) {
                    if let Some(last) = self.path.last_mut() {
                        last.1 += 1;
                    }
                    let v = a.node as usize;
                    if self.number[v] == NOT_SEEN {
                        self.path.push((a.node, 0));
                    } else {
                        // Closed ops have a number above all.
                        self.low[i] = self.low[i].min(self.number[v]);
                    }
                    continue;
                }
                self.path.pop();
                if let Some(&(up, _)) = self.path.last() {
                    self.low[up as usize] = self.low[up as usize].min(self.low[i]);
                }
                if self.low[i] != self.number[i] {
                    continue;
                }
                let c = self.first.len() as u32 - 1;
                while let Some(v) = self.open.pop() {
                    self.number[v as usize] = NOT_SEEN - 1;
                    self.component[v as usize] = c;
                    self.by_component.push(v);
                    if v == u {
                        break;
                    }
                }
                self.first.push(self.by_component.len() as u32);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::families::Family;
    use super::super::options::Rung;
    use super::super::verify::verify;
    use super::super::{Rungs, ScheduleOptions, Scheduler};
    use super::*;

    /// Component numbers against reachability, by brute force.
    #[test]
    fn components_are_those_of_mutual_reach() {
        let mut tied = 0;
        for seed in 0..40 {
            for family in [Family::Attention, Family::Layered, Family::Pinned] {
                let (p, _) = family.problem(20, seed);
                let mut g = Graph::default();
                assert!(g.build(&p));
                let n = g.n as usize;
                let mut reach = vec![vec![false; n]; n];
                for (u, row) in reach.iter_mut().enumerate() {
                    row[u] = true;
                    g.succ.of(u as u32).iter().for_each(|a| row[a.node as usize] = true);
                }
                for k in 0..n {
                    let through = reach[k].clone();
                    for row in reach.iter_mut().filter(|row| row[k]) {
                        row.iter_mut().zip(&through).for_each(|(to, &from)| *to |= from);
                    }
                }
                let mut rows = RowPacking::default();
                rows.find_components(&g);
                for (u, row) in reach.iter().enumerate() {
                    for (v, &there) in row.iter().enumerate() {
                        let both = there && reach[v][u];
                        assert_eq!(rows.component[u] == rows.component[v], both, "{}: {u} {v}", p.name());
                        tied += u32::from(both && u != v);
                        // Operands come after what needs them.
                        assert!(both || !there || rows.component[u] > rows.component[v]);
                    }
                }
            }
        }
        assert!(tied > 100);
    }

    /// Alone, on loops that no unit has a cycle to spare in: legal, and mostly at the bound.
    #[test]
    fn full_units_are_filled() {
        let o = ScheduleOptions { rungs: Rungs::only(&[Rung::RowPacking]), ..ScheduleOptions::default() };
        let (mut scheduler, mut full) = (Scheduler::new(), 0);
        for seed in 0..30 {
            let (p, _) = Family::Elementwise.problem(48, seed);
            let s = scheduler.schedule(&p, &o).unwrap();
            assert_eq!(verify(&p, &s), []);
            full += u32::from(s.ii == s.bounds.max());
        }
        assert!(full >= 27, "{full} of 30");
    }
}
