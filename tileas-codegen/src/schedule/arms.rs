//! The four placement arms: permute, fuse, retry, cost-based.
//!
//! In: the ready ops of one group and a table with the seats so far. Out: seats for all of them, or the table as it
//! was. Nothing is evicted: a seat respects every seated op, through closed distances. Every seat passes the gates G1 to
//! G4.
//!
//! - *permute*: stable order by predecessor priority, earliest seats; if that fails, every order up to a budget and
//!   samples beyond it, the cheapest legal one wins;
//! - *fuse*: the group merges with another ready group (no required order between them) and then shares its stage; ops
//!   on the same resources take one cycle together where the table allows it;
//! - *retry*: skips ops that are dead in the snapshot, lets the depth horizon grow pass by pass, then revives dead ops;
//! - *cost-based*: the cheapest seat over ready ops and their windows, again and again.
//!
//! Guarantee: deterministic, legal. Cost: bounded by a budget of seats looked at. Elsewhere: which group is next
//! (`driver`). Source: spec pages 3 and 4.

use super::closure::{Closure, NO_PATH};
use super::evaluate::{CostVector, UNSEATED, View};
use super::gates::{Gate, Gates};
use super::graph::Graph;
use super::ims::{Ims, NEVER, SplitMix};
use super::options::{G2Horizon, ScheduleOptions};
use super::problem::{NO_GROUP, Node, Problem};
use super::rrt::Rrt;

/// The horizon of gate G2 in all arms but retry.
const HORIZON: u32 = 1;
/// Other ready groups the fuse arm tries.
const PARTNERS: usize = 4;

/// What an attempt reads.
pub(super) struct Loop<'a> {
    pub p: &'a Problem,
    pub g: &'a Graph,
    pub ims: &'a Ims,
    pub closure: &'a Closure,
    pub options: &'a ScheduleOptions,
    pub ii: i64,
}

/// A seat one arm proposes.
#[derive(Copy, Clone, Debug)]
pub(super) struct Proposal {
    pub cost: CostVector,
    pub op: u32,
    pub at: i64,
    /// A second op that takes the same cycle.
    pub with: Option<u32>,
}

/// Seats of one attempt and memory of the arms.
#[derive(Default)]
pub(super) struct Arms {
    pub seats: Vec<i64>,
    /// Dead in the snapshot: skipped by retry and cost-based.
    pub dead: Vec<bool>,
    pub gates: Gates,
    /// Forest of groups for this attempt: fusing adds to it. One cell per group, then one per op.
    parent: Vec<u32>,
    /// Seated members and their stage, by root.
    members: Vec<u32>,
    stage: Vec<i64>,
    journal: Vec<u32>,
    /// Seats that may still be looked at.
    pub steps: u64,
    pub fused: u64,
    order: Vec<u32>,
    trial: Vec<u32>,
    shuffled: Vec<u32>,
    set: Vec<u32>,
    keys: Vec<(i64, i64, u32, u32)>,
    undo_unions: Vec<u32>,
}

impl Arms {
    /// An empty attempt. The table is empty too.
    pub fn begin(&mut self, l: &Loop<'_>, keep_snapshot: bool) {
        let n = l.g.n as usize;
        self.seats.clear();
        self.seats.resize(n, UNSEATED);
        if !keep_snapshot || self.dead.len() != n {
            self.dead.clear();
            self.dead.resize(n, false);
        }
        let cells = l.p.num_groups() + n;
        self.parent.clear();
        self.parent.extend(0..cells as u32);
        self.members.clear();
        self.members.resize(cells, 0);
        self.stage.clear();
        self.stage.resize(cells, 0);
        self.journal.clear();
        self.gates.begin();
    }

    /// The group of an op in this attempt.
    pub fn root(&self, l: &Loop<'_>, u: u32) -> u32 {
        let group = l.ims.group[u as usize];
        let mut cell = if group == NO_GROUP { l.p.num_groups() as u32 + u } else { group };
        while self.parent[cell as usize] != cell {
            cell = self.parent[cell as usize];
        }
        cell
    }

    /// Earliest and latest start that seated ops and the op's own bounds leave, II candidates at most.
    fn window(&self, l: &Loop<'_>, u: u32) -> (i64, i64) {
        let (mut lo, mut hi) = (l.ims.early[u as usize], l.ims.late[u as usize]);
        for (v, &at) in self.seats.iter().enumerate() {
            if at == UNSEATED {
                continue;
            }
            let (to, from) = (l.closure.distance(v as u32, u), l.closure.distance(u, v as u32));
            if to > NO_PATH {
                lo = lo.max(at + i64::from(to));
            }
            if from > NO_PATH {
                hi = hi.min(at - i64::from(from));
            }
        }
        (lo, hi.min(lo.saturating_add(l.ii - 1)))
    }

    /// The window cut to the stage of the group (G4).
    fn group_window(&self, l: &Loop<'_>, u: u32, (lo, hi): (i64, i64)) -> (i64, i64) {
        let root = self.root(l, u) as usize;
        if self.members[root] == 0 {
            return (lo, hi);
        }
        let first = self.stage[root] * l.ii;
        (lo.max(first), hi.min(first + l.ii - 1))
    }

    /// The first seat all four gates pass.
    fn earliest(&mut self, l: &Loop<'_>, rrt: &Rrt, u: u32, horizon: u32) -> Option<i64> {
        self.steps = self.steps.saturating_sub(1 + u64::from(l.g.n) / 16);
        if self.steps == 0 || self.gates.pending(u) {
            return None;
        }
        if self.gates.too_deep(l.p, u, horizon) {
            self.dead[u as usize] = true;
            return None;
        }
        let node = Node::from_u32(u);
        let (lo, hi) = self.window(l, u);
        let Some(t) = rrt.first_fit(node, lo, hi) else {
            self.gates.count(Gate::Resources);
            return None;
        };
        if t > lo {
            self.gates.count(Gate::Resources);
        }
        let (first, last) = self.group_window(l, u, (lo, hi));
        if t >= first && t <= last {
            return Some(t);
        }
        self.gates.count(Gate::Group);
        rrt.first_fit(node, first, last)
    }

    pub fn seat(&mut self, l: &Loop<'_>, rrt: &mut Rrt, u: u32, t: i64) {
        rrt.place(Node::from_u32(u), t);
        self.seats[u as usize] = t;
        let root = self.root(l, u) as usize;
        self.members[root] += 1;
        self.stage[root] = t.div_euclid(l.ii);
        self.journal.push(u);
    }

    /// Seats so far, to come back to.
    pub fn mark(&self) -> usize {
        self.journal.len()
    }

    /// Ops seated since the mark.
    pub fn since(&self, mark: usize) -> &[u32] {
        &self.journal[mark..]
    }

    pub fn undo(&mut self, l: &Loop<'_>, rrt: &mut Rrt, mark: usize) {
        while self.journal.len() > mark {
            let Some(u) = self.journal.pop() else { return };
            rrt.remove(Node::from_u32(u), self.seats[u as usize]);
            self.seats[u as usize] = UNSEATED;
            let root = self.root(l, u) as usize;
            self.members[root] -= 1;
        }
    }

    /// Ops seated since the mark now count: their followers are released.
    pub fn commit(&mut self, l: &Loop<'_>, mark: usize) {
        for k in mark..self.journal.len() {
            self.gates.commit(l.p, self.journal[k]);
        }
    }

    fn view<'a>(&'a self, l: &'a Loop<'a>, rrt: &'a Rrt) -> View<'a> {
        View {
            p: l.p,
            g: l.g,
            rrt,
            closure: l.closure,
            seats: &self.seats,
            ii: l.ii,
            spill_budget: l.options.spill_budget,
        }
    }

    fn cost(
        &mut self,
        l: &Loop<'_>,
        rrt: &Rrt,
        u: u32,
        t: i64,
        best: Option<&CostVector>,
    ) -> Option<CostVector> {
        self.steps = self.steps.saturating_sub(1 + u64::from(l.g.n) / 8);
        let (lo, _) = self.window(l, u);
        self.view(l, rrt).cost(u, t, lo, best)
    }

    /// The ready ops by predecessor priority: earliest start, longest tail, program order.
    fn sort_by_predecessors(&mut self, l: &Loop<'_>, ready: &[u32]) {
        self.keys.clear();
        for &u in ready {
            let (lo, _) = self.window(l, u);
            self.keys.push((lo, -l.ims.height(u), l.g.topo_pos[u as usize], u));
        }
        self.keys.sort();
        self.order.clear();
        self.order.extend(self.keys.iter().map(|k| k.3));
    }

    /// Seats the ops of `order` one after the other; `None` as soon as one has no seat. The sum of their costs, if
    /// asked for.
    fn seat_in_order(
        &mut self,
        l: &Loop<'_>,
        rrt: &mut Rrt,
        order: &[u32],
        priced: bool,
    ) -> Option<CostVector> {
        let mark = self.mark();
        let mut total = CostVector { pipe_slot: 0, bank: 0, spill: 0, distance: 0, order: 0 };
        for &u in order.iter() {
            let Some(t) = self.earliest(l, rrt, u, HORIZON) else {
                self.undo(l, rrt, mark);
                return None;
            };
            if priced && let Some(c) = self.cost(l, rrt, u, t, None) {
                total.pipe_slot = total.pipe_slot.saturating_add(c.pipe_slot);
                total.bank = total.bank.saturating_add(c.bank);
                total.spill = total.spill.saturating_add(c.spill);
                total.distance = total.distance.saturating_add(c.distance);
            }
            self.seat(l, rrt, u, t);
        }
        Some(total)
    }

    /// The permute arm.
    pub fn permute(&mut self, l: &Loop<'_>, rrt: &mut Rrt, ready: &[u32]) -> bool {
        self.sort_by_predecessors(l, ready);
        let order = std::mem::take(&mut self.order);
        let done = self.seat_in_order(l, rrt, &order, false).is_some() || {
            let best = self.best_order(l, rrt, &order);
            best && {
                let trial = std::mem::take(&mut self.trial);
                let seated = self.seat_in_order(l, rrt, &trial, false).is_some();
                self.trial = trial;
                seated
            }
        };
        self.order = order;
        done
    }

    /// Looks at other orders; the cheapest legal one is left in `trial`.
    fn best_order(&mut self, l: &Loop<'_>, rrt: &mut Rrt, first: &[u32]) -> bool {
        let budget = u64::from(l.options.permute_budget);
        let all: u64 = (1..=first.len() as u64).fold(1, |a, b| a.saturating_mul(b));
        let mut order = std::mem::take(&mut self.shuffled);
        order.clear();
        order.extend_from_slice(first);
        let mut best: Option<CostVector> = None;
        let mut random = SplitMix(l.options.seed);
        for k in 1..all.min(budget + 1) {
            if all <= budget {
                order.clear();
                order.extend_from_slice(first);
                nth_permutation(&mut order, k);
            } else {
                for i in (1..order.len()).rev() {
                    order.swap(i, (random.next() % (i as u64 + 1)) as usize);
                }
            }
            let mark = self.mark();
            if let Some(cost) = self.seat_in_order(l, rrt, &order, true) {
                self.undo(l, rrt, mark);
                if best.is_none_or(|b| cost < b) {
                    best = Some(cost);
                    self.trial.clear();
                    self.trial.extend_from_slice(&order);
                }
            }
            if self.steps == 0 {
                break;
            }
        }
        self.shuffled = order;
        best.is_some()
    }

    /// The fuse arm. `others`: the ready ops of other groups.
    pub fn fuse(&mut self, l: &Loop<'_>, rrt: &mut Rrt, ready: &[u32], others: &[u32]) -> bool {
        self.sort_by_predecessors(l, ready);
        let base = std::mem::take(&mut self.order);
        let mut tried = 0;
        let mut last_root = u32::MAX;
        let mut done = self.fuse_pairs(l, rrt, &base);
        for &b in others {
            let root = self.root(l, b);
            if done || tried == PARTNERS || self.steps == 0 {
                break;
            }
            if root == last_root || root == self.root(l, base[0]) {
                continue;
            }
            last_root = root;
            let mut set = std::mem::take(&mut self.set);
            set.clear();
            set.extend_from_slice(&base);
            set.extend(others.iter().copied().filter(|&v| self.root(l, v) == root));
            let free = base.iter().all(|&a| set[base.len()..].iter().all(|&b| !required_order(l, a, b)));
            if free && self.union(l, base[0], b) {
                tried += 1;
                done = self.fuse_pairs(l, rrt, &set);
                if done {
                    self.fused += 1;
                } else {
                    self.split();
                }
            }
            self.set = set;
        }
        self.order = base;
        done
    }

    /// Seats a set, pairs of independent ops on the same resources in one cycle where that is free.
    fn fuse_pairs(&mut self, l: &Loop<'_>, rrt: &mut Rrt, set: &[u32]) -> bool {
        let mark = self.mark();
        for (i, &a) in set.iter().enumerate() {
            if self.seats[a as usize] != UNSEATED {
                continue;
            }
            let partner = set[i + 1..].iter().copied().find(|&b| {
                self.seats[b as usize] == UNSEATED
                    && !required_order(l, a, b)
                    && rrt.same_resources(Node::from_u32(a), Node::from_u32(b))
            });
            if let Some((t, b)) = partner.and_then(|b| Some((self.common_cycle(l, rrt, a, b)?, b))) {
                self.seat(l, rrt, a, t);
                self.seat(l, rrt, b, t);
                continue;
            }
            match self.earliest(l, rrt, a, HORIZON) {
                Some(t) => self.seat(l, rrt, a, t),
                None => {
                    self.undo(l, rrt, mark);
                    return false;
                }
            }
        }
        true
    }

    /// The first cycle both ops can start in together.
    fn common_cycle(&mut self, l: &Loop<'_>, rrt: &mut Rrt, a: u32, b: u32) -> Option<i64> {
        let mut t = self.earliest(l, rrt, a, HORIZON)?;
        self.earliest(l, rrt, b, HORIZON)?;
        let (lo, hi) = self.group_window(l, a, self.window(l, a));
        let (lo2, hi2) = self.group_window(l, b, self.window(l, b));
        let (lo, hi) = (lo.max(lo2).max(t), hi.min(hi2));
        t = lo;
        while t <= hi && self.steps > 0 {
            self.steps -= 1;
            t = rrt.first_fit(Node::from_u32(a), t, hi)?;
            rrt.place(Node::from_u32(a), t);
            let together = rrt.fits(Node::from_u32(b), t);
            rrt.remove(Node::from_u32(a), t);
            if together {
                return Some(t);
            }
            t += 1;
        }
        None
    }

    fn union(&mut self, l: &Loop<'_>, a: u32, b: u32) -> bool {
        let (a, b) = (self.root(l, a) as usize, self.root(l, b) as usize);
        if self.members[a] > 0 && self.members[b] > 0 && self.stage[a] != self.stage[b] {
            return false;
        }
        self.undo_unions.clear();
        self.undo_unions.push(b as u32);
        self.parent[b] = a as u32;
        if self.members[b] > 0 {
            self.stage[a] = self.stage[b];
        }
        self.members[a] += self.members[b];
        true
    }

    fn split(&mut self) {
        while let Some(b) = self.undo_unions.pop() {
            let a = std::mem::replace(&mut self.parent[b as usize], b);
            self.members[a as usize] -= self.members[b as usize];
        }
    }

    /// The retry arm. `deepest`: begin at the largest horizon.
    pub fn retry(&mut self, l: &Loop<'_>, rrt: &mut Rrt, ready: &[u32], deepest: bool) -> bool {
        self.sort_by_predecessors(l, ready);
        let order = std::mem::take(&mut self.order);
        let mark = self.mark();
        let most = order.iter().map(|&u| l.p.max_depth(Node::from_u32(u))).max().unwrap_or(0).max(HORIZON);
        let most = if l.options.g2_horizon == G2Horizon::Fixed { HORIZON } else { most };
        let mut horizon = if deepest { most } else { HORIZON };
        loop {
            for &u in &order {
                if self.seats[u as usize] != UNSEATED || self.dead[u as usize] {
                    continue;
                }
                match self.earliest(l, rrt, u, horizon) {
                    Some(t) => self.seat(l, rrt, u, t),
                    None => self.dead[u as usize] = true,
                }
            }
            while let Some((u, t)) = self.revive(l, rrt, &order, horizon) {
                self.dead[u as usize] = false;
                self.seat(l, rrt, u, t);
            }
            let done = order.iter().all(|&u| self.seats[u as usize] != UNSEATED);
            if done || horizon >= most {
                if !done {
                    self.undo(l, rrt, mark);
                }
                self.order = order;
                return done;
            }
            horizon += 1;
        }
    }

    /// The first dead op that has a seat by now.
    fn revive(&mut self, l: &Loop<'_>, rrt: &Rrt, order: &[u32], horizon: u32) -> Option<(u32, i64)> {
        for &u in order {
            if self.dead[u as usize]
                && self.seats[u as usize] == UNSEATED
                && let Some(t) = self.earliest(l, rrt, u, horizon)
            {
                return Some((u, t));
            }
        }
        None
    }

    /// The cheapest seat over live ready ops and their windows.
    pub fn cheapest(&mut self, l: &Loop<'_>, rrt: &Rrt, ready: &[u32]) -> Option<Proposal> {
        let mut best: Option<Proposal> = None;
        for &u in ready {
            if self.seats[u as usize] != UNSEATED || self.dead[u as usize] || self.steps == 0 {
                continue;
            }
            let Some(mut t) = self.earliest(l, rrt, u, HORIZON) else {
                self.dead[u as usize] = true;
                continue;
            };
            let (_, hi) = self.group_window(l, u, self.window(l, u));
            loop {
                let Some(cost) = self.cost(l, rrt, u, t, best.as_ref().map(|b| &b.cost)) else {
                    // Later cycles wait longer still.
                    if best.is_some_and(|b| b.cost.pipe_slot < waiting(l, self, u, t)) {
                        break;
                    }
                    match rrt.first_fit(Node::from_u32(u), t + 1, hi) {
                        Some(next) if self.steps > 0 => t = next,
                        _ => break,
                    }
                    continue;
                };
                best = Some(Proposal { cost, op: u, at: t, with: None });
                match rrt.first_fit(Node::from_u32(u), t + 1, hi) {
                    Some(next) if self.steps > 0 => t = next,
                    _ => break,
                }
            }
        }
        best
    }

    /// The cost-based arm.
    pub fn cost_based(&mut self, l: &Loop<'_>, rrt: &mut Rrt, ready: &[u32]) -> bool {
        let mark = self.mark();
        while let Some(best) = self.cheapest(l, rrt, ready) {
            self.seat(l, rrt, best.op, best.at);
        }
        let done = ready.iter().all(|&u| self.seats[u as usize] != UNSEATED);
        if !done {
            self.undo(l, rrt, mark);
        }
        done
    }

    /// One seat per arm, the cheapest of them (`arm-policy=lowest-cost`); earlier arms win ties.
    pub fn propose(&mut self, l: &Loop<'_>, rrt: &mut Rrt, ready: &[u32]) -> Option<Proposal> {
        let mut best: Option<Proposal> = None;
        let offer = |best: &mut Option<Proposal>, new: Option<Proposal>| {
            if let Some(new) = new
                && best.is_none_or(|b| new.cost < b.cost)
            {
                *best = Some(new);
            }
        };
        self.sort_by_predecessors(l, ready);
        let order = std::mem::take(&mut self.order);
        let open = |s: &Self, u: u32| s.seats[u as usize] == UNSEATED;
        let price = |s: &mut Self, rrt: &Rrt, u, at, with| {
            let cost = s.cost(l, rrt, u, at, None)?;
            Some(Proposal { cost, op: u, at, with })
        };
        // Permute: the head of its order.
        if let Some(u) = order.iter().copied().find(|&u| open(self, u) && !self.dead[u as usize])
            && let Some(t) = self.earliest(l, rrt, u, HORIZON)
        {
            let new = price(self, rrt, u, t, None);
            offer(&mut best, new);
        }
        // Fuse: the first pair that can start together.
        let mut pair = None;
        'pairs: for (i, &a) in order.iter().enumerate().filter(|&(_, &a)| open(self, a)) {
            for &b in order[i + 1..].iter().filter(|&&b| open(self, b)) {
                if !required_order(l, a, b) && rrt.same_resources(Node::from_u32(a), Node::from_u32(b)) {
                    pair = Some((a, b));
                    break 'pairs;
                }
            }
        }
        if let Some((a, b)) = pair
            && let Some(t) = self.common_cycle(l, rrt, a, b)
        {
            let new = price(self, rrt, a, t, Some(b));
            offer(&mut best, new);
        }
        // Retry: the first dead op that has a seat at the horizon of its depth.
        let most = order.iter().map(|&u| l.p.max_depth(Node::from_u32(u))).max().unwrap_or(0).max(HORIZON);
        let most = if l.options.g2_horizon == G2Horizon::Fixed { HORIZON } else { most };
        if let Some((u, t)) = self.revive(l, rrt, &order, most) {
            let new = price(self, rrt, u, t, None);
            offer(&mut best, new);
        }
        let new = self.cheapest(l, rrt, &order);
        offer(&mut best, new);
        self.order = order;
        best
    }
}

/// Cycles an op at `t` waits after its earliest start, as the pipe-slot evaluator counts them.
fn waiting(l: &Loop<'_>, arms: &Arms, u: u32, t: i64) -> u32 {
    let (lo, _) = arms.window(l, u);
    (t - lo).clamp(1, NEVER.min(i64::from(u32::MAX - 1))) as u32
}

/// Whether dependences order the two ops inside one iteration.
fn required_order(l: &Loop<'_>, a: u32, b: u32) -> bool {
    let orders = |d: i32| d > NO_PATH && i64::from(d) > -l.ii;
    orders(l.closure.distance(a, b)) || orders(l.closure.distance(b, a))
}

/// The `k`-th order of the elements, counting from the one given.
fn nth_permutation(items: &mut [u32], mut k: u64) {
    let n = items.len();
    for i in 0..n {
        let rest: u64 = (1..=(n - 1 - i) as u64).product();
        let pick = i + (k / rest.max(1)) as usize;
        k %= rest.max(1);
        items[i..=pick].rotate_right(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permutations_are_all_there() {
        let mut seen: Vec<Vec<u32>> = (0..24)
            .map(|k| {
                let mut v = vec![1, 2, 3, 4];
                nth_permutation(&mut v, k);
                v
            })
            .collect();
        assert_eq!(seen[0], [1, 2, 3, 4]);
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), 24);
    }

    /// One op that every gate refuses in turn: each refusal is that of the first gate which does not pass.
    #[test]
    fn gates_run_in_their_order() {
        use crate::schedule::problem::{NodeDef, NodeExtra, Problem, Use};
        let refusals = |held: bool, deep: bool, full: bool| {
            let mut p = Problem::new("gates");
            let slot = p.add_slot(1, "unit", 1);
            let hold = |duration| [Use { slot, offset: 0, duration, occupancy: 1 }];
            let mut add = |id, own, leader_gid, group, max_depth, uses: &[Use]| {
                let extra = NodeExtra { own_gid: Some(own), leader_gid, ..NodeExtra::default() };
                p.add_node(&NodeDef { id, latency: 1, uses, group, max_depth, extra, ..NodeDef::default() })
            };
            add("leader", 7, None, None, 0, &[]);
            add("unit", 8, None, None, 0, &hold(if full { 4 } else { 2 }));
            add("mate", 9, None, Some(5), 0, &[]);
            add("op", 3, Some(7), Some(5), if deep { 2 } else { 0 }, &hold(1));
            let (mut g, mut ims, mut closure) = (Graph::default(), Ims::default(), Closure::default());
            let (mut rrt, mut arms, options) = (Rrt::default(), Arms::default(), ScheduleOptions::default());
            assert!(g.build(&p) && ims.prepare(&p, &g, 4, None) && closure.build(&g, 4));
            rrt.reset(&p, 4, 4096).expect("all fit");
            let l = Loop { p: &p, g: &g, ims: &ims, closure: &closure, options: &options, ii: 4 };
            arms.gates.seed(&p);
            arms.steps = 100;
            arms.begin(&l, false);
            // The unit is taken, and the mate of the op sits a stage later than the op could.
            arms.seat(&l, &mut rrt, 1, 0);
            arms.seat(&l, &mut rrt, 2, 4);
            if !held {
                arms.gates.commit(&p, 0);
            }
            let seat = arms.earliest(&l, &rrt, 3, HORIZON);
            (arms.gates.refused, arms.dead[3], seat)
        };
        assert_eq!(refusals(true, true, true), ([1, 0, 0, 0], false, None));
        assert_eq!(refusals(false, true, true), ([0, 1, 0, 0], true, None));
        assert_eq!(refusals(false, false, true), ([0, 0, 1, 0], false, None));
        // The row of its first cycle is taken (G3 moves on), the next is free but in another stage than the mate (G4).
        let (refused, dead, _) = refusals(false, false, false);
        assert_eq!((refused, dead), ([0, 0, 1, 1], false));
    }
}
