//! The four placement arms: permute, fuse, retry, cost-based.
//!
//! In: the ready ops of one group and a table with the starts so far. Out: starts for all of them, or the table as it
//! was. Nothing is evicted: a start respects every placed op, through closed distances. Every start passes the four
//! gates.
//!
//! - *permute*: stable order by predecessor priority, earliest starts; if that fails, every order up to a budget and
//!   samples beyond it, the cheapest legal one wins;
//! - *fuse*: two ops without an order between them, on the same resources, become one start with the footprint of both,
//!   the cheapest pair first; where the group alone does not do, it merges with another ready group (no required order
//!   between them) and then shares its stage;
//! - *retry*: skips ops that are dead in the snapshot, lets the depth horizon grow pass by pass, then revives dead ops;
//! - *cost-based*: the cheapest start over ready ops and their windows, again and again.
//!
//! Guarantee: deterministic, legal. Cost: bounded by a budget of starts looked at. Elsewhere: which group is next
//! (`groups`). Source: spec pages 3 and 4.

use super::cost::{CostVector, UNPLACED, View};
use super::gates::{Gate, Gates};
use crate::closure::{Closure, FAR, NO_PATH};
use crate::entities::Node;
use crate::graph::Graph;
use crate::options::{G2Horizon, ScheduleOptions};
use crate::problem::{NO_GROUP, Problem};
use crate::random::SplitMix;
use crate::table::Table;
use crate::windows::{NEVER, Windows};

/// The horizon of admission by depth (G2) in all arms but retry.
const HORIZON: u32 = 1;
/// Other ready groups the fuse arm tries.
const PARTNERS: usize = 4;

/// What an attempt reads.
pub(super) struct Attempt<'a> {
    pub p: &'a Problem,
    pub g: &'a Graph,
    pub windows: &'a Windows,
    /// Distances over all paths; without them, in large loops, those of dependences alone.
    pub closure: Option<&'a Closure>,
    pub options: &'a ScheduleOptions,
    pub ii: i64,
}

impl Attempt<'_> {
    /// Least `start[b] - start[a]` that is known, or [`NO_PATH`].
    pub fn distance(&self, a: u32, b: u32) -> i32 {
        match self.closure {
            Some(closure) => closure.distance(a, b),
            None => {
                let arcs = self.g.succ.of(a).iter().filter(|arc| arc.node == b);
                let far = arcs.map(|arc| arc.weight(self.ii)).max();
                far.map_or(NO_PATH, |d| d.clamp(i64::from(NO_PATH) + 1, FAR.into()) as i32)
            }
        }
    }
}

/// A start one arm proposes.
#[derive(Copy, Clone, Debug)]
pub(super) struct Proposal {
    pub cost: CostVector,
    pub op: u32,
    pub at: i64,
    /// A second op that takes the same cycle.
    pub with: Option<u32>,
}

/// Starts of one attempt and memory of the arms.
#[derive(Default)]
pub(super) struct Arms {
    pub starts: Vec<i64>,
    /// Dead in the snapshot: skipped by retry and cost-based.
    pub dead: Vec<bool>,
    pub gates: Gates,
    /// Forest of groups for this attempt: fusing adds to it. One cell per group, then one per op.
    parent: Vec<u32>,
    /// Placed members and their stage, by root.
    members: Vec<u32>,
    stage: Vec<i64>,
    journal: Vec<u32>,
    /// Starts that may still be looked at.
    pub steps: u64,
    order: Vec<u32>,
    trial: Vec<u32>,
    shuffled: Vec<u32>,
    set: Vec<u32>,
    keys: Vec<(i64, i64, u32, u32)>,
    undo_unions: Vec<u32>,
}

impl Arms {
    /// An empty attempt. The table is empty too.
    pub fn begin(&mut self, l: &Attempt<'_>, keep_snapshot: bool) {
        let n = l.g.n as usize;
        self.starts.clear();
        self.starts.resize(n, UNPLACED);
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
    pub fn root(&self, l: &Attempt<'_>, u: u32) -> u32 {
        let group = l.windows.group[u as usize];
        let mut cell = if group == NO_GROUP { l.p.num_groups() as u32 + u } else { group };
        while self.parent[cell as usize] != cell {
            cell = self.parent[cell as usize];
        }
        cell
    }

    /// Earliest and latest start that placed ops and the op's own bounds leave, II candidates at most.
    fn window(&self, l: &Attempt<'_>, u: u32) -> (i64, i64) {
        let (mut lo, mut hi) = (l.windows.early[u as usize], l.windows.late[u as usize]);
        for (v, &at) in self.starts.iter().enumerate() {
            if at == UNPLACED {
                continue;
            }
            let (to, from) = (l.distance(v as u32, u), l.distance(u, v as u32));
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
    fn group_window(&self, l: &Attempt<'_>, u: u32, (lo, hi): (i64, i64)) -> (i64, i64) {
        let root = self.root(l, u) as usize;
        if self.members[root] == 0 {
            return (lo, hi);
        }
        let first = self.stage[root] * l.ii;
        (lo.max(first), hi.min(first + l.ii - 1))
    }

    /// The pending set (G1) and depth (G2), then the window of the op and that of its group. `None`: refused.
    fn admit(&mut self, l: &Attempt<'_>, u: u32, horizon: u32) -> Option<[(i64, i64); 2]> {
        self.steps = self.steps.saturating_sub(1 + u64::from(l.g.n) / 16);
        if self.steps == 0 || self.gates.pending(u) {
            return None;
        }
        if self.gates.too_deep(l.p, u, horizon) {
            self.dead[u as usize] = true;
            return None;
        }
        let window = self.window(l, u);
        Some([window, self.group_window(l, u, window)])
    }

    /// The first start all four gates pass.
    fn earliest(&mut self, l: &Attempt<'_>, table: &Table, u: u32, horizon: u32) -> Option<i64> {
        let [(lo, hi), (first, last)] = self.admit(l, u, horizon)?;
        let node = Node::from_u32(u);
        let Some(mut t) = table.first_fit(node, lo, hi) else {
            self.gates.count(Gate::Resources);
            return None;
        };
        if t > lo {
            self.gates.count(Gate::Resources);
        }
        if t < first || t > last {
            self.gates.count(Gate::Group);
            t = table.first_fit(node, first, last)?;
        }
        if self.beside_leader(l, u, t) {
            // Another order of the group, or another arm, may place it.
            self.gates.count(Gate::Group);
            return None;
        }
        Some(t)
    }

    /// The part of the gate of groups (G4) about strangers: an op of a group starts in the row of a leader of its own group or of none.
    fn beside_leader(&self, l: &Attempt<'_>, u: u32, t: i64) -> bool {
        let member = |v: u32| l.p.extra(Node::from_u32(v)).own_gid.is_some();
        let leads = |v: u32| {
            let extra = l.p.extra(Node::from_u32(v));
            extra.own_gid.is_some() && extra.leader_gid.is_none_or(|g| extra.own_gid == Some(g))
        };
        member(u) && {
            let root = self.root(l, u);
            let shares = |v: u32| (self.starts[v as usize] - t).rem_euclid(l.ii) == 0;
            self.journal.iter().any(|&v| shares(v) && leads(v) && self.root(l, v) != root)
        }
    }

    pub fn place(&mut self, l: &Attempt<'_>, table: &mut Table, u: u32, t: i64) {
        table.place(Node::from_u32(u), t);
        self.starts[u as usize] = t;
        let root = self.root(l, u) as usize;
        self.members[root] += 1;
        self.stage[root] = t.div_euclid(l.ii);
        self.journal.push(u);
    }

    /// Starts so far, to come back to.
    pub fn mark(&self) -> usize {
        self.journal.len()
    }

    /// Ops placed since the mark.
    pub fn since(&self, mark: usize) -> &[u32] {
        &self.journal[mark..]
    }

    pub fn undo(&mut self, l: &Attempt<'_>, table: &mut Table, mark: usize) {
        while self.journal.len() > mark {
            let Some(u) = self.journal.pop() else { return };
            table.remove(Node::from_u32(u), self.starts[u as usize]);
            self.starts[u as usize] = UNPLACED;
            let root = self.root(l, u) as usize;
            self.members[root] -= 1;
        }
    }

    /// Ops placed since the mark now count: their followers are released.
    pub fn commit(&mut self, l: &Attempt<'_>, mark: usize) {
        for k in mark..self.journal.len() {
            self.gates.commit(l.p, self.journal[k]);
        }
    }

    fn view<'a>(&'a self, l: &'a Attempt<'a>, table: &'a Table) -> View<'a> {
        View { l, table, starts: &self.starts }
    }

    fn cost(
        &mut self,
        l: &Attempt<'_>,
        table: &Table,
        u: u32,
        t: i64,
        best: Option<&CostVector>,
    ) -> Option<CostVector> {
        self.steps = self.steps.saturating_sub(1 + u64::from(l.g.n) / 8);
        let (lo, _) = self.window(l, u);
        self.view(l, table).cost(u, t, lo, best)
    }

    /// The ready ops by predecessor priority: earliest start, longest tail, program order.
    fn sort_by_predecessors(&mut self, l: &Attempt<'_>, ready: &[u32]) {
        self.keys.clear();
        for &u in ready {
            let (lo, _) = self.window(l, u);
            self.keys.push((lo, -l.windows.height(u), l.g.topo_pos[u as usize], u));
        }
        self.keys.sort();
        self.order.clear();
        self.order.extend(self.keys.iter().map(|k| k.3));
    }

    /// Places the ops of `order` one after the other; `None` as soon as one has no start. The sum of their costs, if
    /// asked for.
    fn place_in_order(
        &mut self,
        l: &Attempt<'_>,
        table: &mut Table,
        order: &[u32],
        priced: bool,
    ) -> Option<CostVector> {
        let mark = self.mark();
        let mut total = CostVector { pipe_slot: 0, bank: 0, spill: 0, distance: 0, order: 0 };
        for &u in order.iter() {
            let Some(t) = self.earliest(l, table, u, HORIZON) else {
                self.undo(l, table, mark);
                return None;
            };
            if priced && let Some(c) = self.cost(l, table, u, t, None) {
                total.pipe_slot = total.pipe_slot.saturating_add(c.pipe_slot);
                total.bank = total.bank.saturating_add(c.bank);
                total.spill = total.spill.saturating_add(c.spill);
                total.distance = total.distance.saturating_add(c.distance);
            }
            self.place(l, table, u, t);
        }
        Some(total)
    }

    /// The permute arm.
    pub fn permute(&mut self, l: &Attempt<'_>, table: &mut Table, ready: &[u32]) -> bool {
        self.sort_by_predecessors(l, ready);
        let order = std::mem::take(&mut self.order);
        let done = self.place_in_order(l, table, &order, false).is_some() || {
            let best = self.best_order(l, table, &order);
            best && {
                let trial = std::mem::take(&mut self.trial);
                let placed = self.place_in_order(l, table, &trial, false).is_some();
                self.trial = trial;
                placed
            }
        };
        self.order = order;
        done
    }

    /// Looks at other orders; the cheapest legal one is left in `trial`.
    fn best_order(&mut self, l: &Attempt<'_>, table: &mut Table, first: &[u32]) -> bool {
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
            if let Some(cost) = self.place_in_order(l, table, &order, true) {
                self.undo(l, table, mark);
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
    pub fn fuse(&mut self, l: &Attempt<'_>, table: &mut Table, ready: &[u32], others: &[u32]) -> bool {
        self.sort_by_predecessors(l, ready);
        let base = std::mem::take(&mut self.order);
        let mut tried = 0;
        let mut last_root = u32::MAX;
        let mut done = self.place_fused(l, table, &base);
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
                done = self.place_fused(l, table, &set);
                if !done {
                    self.split();
                }
            }
            self.set = set;
        }
        self.order = base;
        done
    }

    /// Places a set: the cheapest pair at one start, again and again, then what is left alone.
    fn place_fused(&mut self, l: &Attempt<'_>, table: &mut Table, set: &[u32]) -> bool {
        let mark = self.mark();
        while let Some(Proposal { op, at, with: Some(with), .. }) = self.cheapest_pair(l, table, set) {
            self.place(l, table, op, at);
            self.place(l, table, with, at);
        }
        for &a in set.iter() {
            if self.starts[a as usize] != UNPLACED {
                continue;
            }
            let Some(t) = self.earliest(l, table, a, HORIZON) else {
                self.undo(l, table, mark);
                return false;
            };
            self.place(l, table, a, t);
        }
        true
    }

    /// The cheapest start for two ops of a set together, each pair in its first cycle.
    fn cheapest_pair(&mut self, l: &Attempt<'_>, table: &mut Table, set: &[u32]) -> Option<Proposal> {
        let mut best: Option<Proposal> = None;
        for (i, &a) in set.iter().enumerate() {
            for &b in &set[i + 1..] {
                let open = self.starts[a as usize] == UNPLACED && self.starts[b as usize] == UNPLACED;
                let (x, y) = (Node::from_u32(a), Node::from_u32(b));
                if !open || required_order(l, a, b) || !table.same_resources(x, y) || self.steps == 0 {
                    continue;
                }
                let Some(at) = self.common_cycle(l, table, a, b) else { continue };
                let (from_a, from_b) = (self.window(l, a).0, self.window(l, b).0);
                let known = best.as_ref().map(|p| &p.cost);
                let cost = self.view(l, table).fused_cost([a, b], at, from_a.max(from_b), known);
                best = cost.map(|cost| Proposal { cost, op: a, at, with: Some(b) }).or(best);
            }
        }
        best
    }

    /// The first cycle in which the footprints of both fit together.
    fn common_cycle(&mut self, l: &Attempt<'_>, table: &mut Table, a: u32, b: u32) -> Option<i64> {
        let [_, (lo, hi)] = self.admit(l, a, HORIZON)?;
        let [_, (lo2, hi2)] = self.admit(l, b, HORIZON)?;
        let (mut t, hi) = (lo.max(lo2), hi.min(hi2));
        while t <= hi && self.steps > 0 {
            self.steps -= 1;
            t = table.first_fit(Node::from_u32(a), t, hi)?;
            table.place(Node::from_u32(a), t);
            let together = table.fits(Node::from_u32(b), t);
            table.remove(Node::from_u32(a), t);
            if together && !self.beside_leader(l, a, t) && !self.beside_leader(l, b, t) {
                return Some(t);
            }
            t += 1;
        }
        None
    }

    fn union(&mut self, l: &Attempt<'_>, a: u32, b: u32) -> bool {
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
    pub fn retry(&mut self, l: &Attempt<'_>, table: &mut Table, ready: &[u32], deepest: bool) -> bool {
        self.sort_by_predecessors(l, ready);
        let order = std::mem::take(&mut self.order);
        let mark = self.mark();
        let most = order.iter().map(|&u| l.p.max_depth(Node::from_u32(u))).max().unwrap_or(0).max(HORIZON);
        let most = if l.options.g2_horizon == G2Horizon::Fixed { HORIZON } else { most };
        let mut horizon = if deepest { most } else { HORIZON };
        loop {
            for &u in &order {
                if self.starts[u as usize] != UNPLACED || self.dead[u as usize] {
                    continue;
                }
                match self.earliest(l, table, u, horizon) {
                    Some(t) => self.place(l, table, u, t),
                    None => self.dead[u as usize] = true,
                }
            }
            while let Some((u, t)) = self.revive(l, table, &order, horizon) {
                self.dead[u as usize] = false;
                self.place(l, table, u, t);
            }
            let done = order.iter().all(|&u| self.starts[u as usize] != UNPLACED);
            if done || horizon >= most {
                if !done {
                    self.undo(l, table, mark);
                }
                self.order = order;
                return done;
            }
            horizon += 1;
        }
    }

    /// The first dead op that has a start by now.
    fn revive(&mut self, l: &Attempt<'_>, table: &Table, order: &[u32], horizon: u32) -> Option<(u32, i64)> {
        for &u in order {
            if self.dead[u as usize]
                && self.starts[u as usize] == UNPLACED
                && let Some(t) = self.earliest(l, table, u, horizon)
            {
                return Some((u, t));
            }
        }
        None
    }

    /// The cheapest start over live ready ops and their windows.
    pub fn cheapest(&mut self, l: &Attempt<'_>, table: &Table, ready: &[u32]) -> Option<Proposal> {
        let mut best: Option<Proposal> = None;
        for &u in ready {
            if self.starts[u as usize] != UNPLACED || self.dead[u as usize] || self.steps == 0 {
                continue;
            }
            let starts = self.admit(l, u, HORIZON).map(|w| w[1]);
            let Some((lo, hi)) = starts else {
                self.dead[u as usize] = true;
                continue;
            };
            let (mut from, mut placed) = (lo, false);
            while from <= hi && self.steps > 0 {
                let Some(t) = table.first_fit(Node::from_u32(u), from, hi) else {
                    self.gates.count(Gate::Resources);
                    break;
                };
                from = t + 1;
                if self.beside_leader(l, u, t) {
                    self.gates.count(Gate::Group);
                    continue;
                }
                placed = true;
                match self.cost(l, table, u, t, best.as_ref().map(|b| &b.cost)) {
                    Some(cost) => best = Some(Proposal { cost, op: u, at: t, with: None }),
                    // Later cycles wait longer still.
                    None if best.is_some_and(|b| b.cost.pipe_slot < waiting(l, self, u, t)) => break,
                    None => {}
                }
            }
            if !placed {
                self.dead[u as usize] = true;
            }
        }
        best
    }

    /// The cost-based arm.
    pub fn cost_based(&mut self, l: &Attempt<'_>, table: &mut Table, ready: &[u32]) -> bool {
        let mark = self.mark();
        while let Some(best) = self.cheapest(l, table, ready) {
            self.place(l, table, best.op, best.at);
        }
        let done = ready.iter().all(|&u| self.starts[u as usize] != UNPLACED);
        if !done {
            self.undo(l, table, mark);
        }
        done
    }

    /// One start per arm, the cheapest of them (`published.arm-policy=lowest-cost`); earlier arms win ties.
    pub fn propose(&mut self, l: &Attempt<'_>, table: &mut Table, ready: &[u32]) -> Option<Proposal> {
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
        let open = |s: &Self, u: u32| s.starts[u as usize] == UNPLACED;
        let price = |s: &mut Self, table: &Table, u, at| {
            let cost = s.cost(l, table, u, at, None)?;
            Some(Proposal { cost, op: u, at, with: None })
        };
        // Permute: the head of its order.
        if let Some(u) = order.iter().copied().find(|&u| open(self, u) && !self.dead[u as usize])
            && let Some(t) = self.earliest(l, table, u, HORIZON)
        {
            let new = price(self, table, u, t);
            offer(&mut best, new);
        }
        let pair = self.cheapest_pair(l, table, &order);
        offer(&mut best, pair);
        // Retry: the first dead op that has a start at the horizon of its depth.
        let most = order.iter().map(|&u| l.p.max_depth(Node::from_u32(u))).max().unwrap_or(0).max(HORIZON);
        let most = if l.options.g2_horizon == G2Horizon::Fixed { HORIZON } else { most };
        if let Some((u, t)) = self.revive(l, table, &order, most) {
            let new = price(self, table, u, t);
            offer(&mut best, new);
        }
        let new = self.cheapest(l, table, &order);
        offer(&mut best, new);
        self.order = order;
        best
    }
}

/// Cycles an op at `t` waits after its earliest start, as the pipe-slot evaluator counts them.
fn waiting(l: &Attempt<'_>, arms: &Arms, u: u32, t: i64) -> u32 {
    let (lo, _) = arms.window(l, u);
    (t - lo).clamp(1, NEVER.min(i64::from(u32::MAX - 1))) as u32
}

/// Whether dependences ask that one of two ops starts after the other, less than an interval later at most. Members of one group
/// are less than an interval apart, too, which is no order.
fn required_order(l: &Attempt<'_>, a: u32, b: u32) -> bool {
    let orders = |a: u32, b: u32| {
        let arc = l.g.succ.of(a).iter().any(|arc| arc.node == b && arc.weight(l.ii) > -l.ii);
        arc || i64::from(l.distance(a, b)) > 1 - l.ii
    };
    orders(a, b) || orders(b, a)
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
        use crate::problem::{NodeDef, NodeExtra, Use};
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
            let (mut g, mut windows, mut closure) =
                (Graph::default(), Windows::default(), Closure::default());
            let (mut table, mut arms, options) =
                (Table::default(), Arms::default(), ScheduleOptions::default());
            assert!(g.build(&p) && windows.prepare(&p, &g, 4, None, &mut None) && closure.build(&g, 4));
            table.reset(&p, 4, 4096).expect("all fit");
            let closure = Some(&closure);
            let l = Attempt { p: &p, g: &g, windows: &windows, closure, options: &options, ii: 4 };
            arms.gates.seed(&p);
            arms.steps = 100;
            arms.begin(&l, false);
            // The unit is taken, and the mate of the op sits a stage later than the op could.
            arms.place(&l, &mut table, 1, 0);
            arms.place(&l, &mut table, 2, 4);
            if !held {
                arms.gates.commit(&p, 0);
            }
            let start = arms.earliest(&l, &table, 3, HORIZON);
            (arms.gates.refused, arms.dead[3], start)
        };
        assert_eq!(refusals(true, true, true), ([1, 0, 0, 0], false, None));
        assert_eq!(refusals(false, true, true), ([0, 1, 0, 0], true, None));
        assert_eq!(refusals(false, false, true), ([0, 0, 1, 0], false, None));
        // The row of its first cycle is taken (resources, G3: moves on), the next is free but in another stage than the mate (groups, G4).
        let (refused, dead, _) = refusals(false, false, false);
        assert_eq!((refused, dead), ([0, 0, 1, 1], false));
    }

    /// What one attempt at an II reads, for tests of single arms.
    struct Bench {
        p: Problem,
        g: Graph,
        windows: Windows,
        closure: Closure,
        options: ScheduleOptions,
        ii: u32,
    }

    impl Bench {
        fn new(p: Problem, ii: u32) -> Bench {
            let (mut g, mut windows, mut closure) = Default::default();
            let graph: &mut Graph = &mut g;
            let around: &mut Closure = &mut closure;
            let bounds: &mut Windows = &mut windows;
            assert!(graph.build(&p) && bounds.prepare(&p, graph, ii.into(), None, &mut None));
            assert!(around.build(graph, ii));
            Bench { p, g, windows, closure, options: ScheduleOptions::default(), ii }
        }

        /// Arms in which these ops have these starts.
        fn run<T>(
            &self,
            starts: &[(u32, i64)],
            f: impl FnOnce(&mut Arms, &Attempt<'_>, &mut Table) -> T,
        ) -> T {
            let Bench { p, g, windows, closure, options, ii } = self;
            let (mut table, mut arms) = (Table::default(), Arms::default());
            table.reset(p, *ii, 4096).expect("all fit");
            let l = Attempt { p, g, windows, closure: Some(closure), options, ii: i64::from(*ii) };
            arms.gates.seed(p);
            arms.steps = 10_000;
            arms.begin(&l, false);
            starts.iter().for_each(|&(u, t)| arms.place(&l, &mut table, u, t));
            f(&mut arms, &l, &mut table)
        }
    }

    fn add(p: &mut Problem, uses: &[crate::problem::Use], max_depth: u32, registers: u32) -> Node {
        use crate::problem::{NodeDef, NodeExtra};
        let id = format!("n{}", p.num_nodes());
        let extra = NodeExtra { registers, ..NodeExtra::default() };
        p.add_node(&NodeDef { id: &id, latency: 1, uses, max_depth, extra, ..NodeDef::default() })
    }

    /// Page 3: two reads of seven cycles on a slot with room for both, and a pool that five may share: one start, at cycle 0.
    #[test]
    fn published_reads_become_one_seat() {
        use crate::problem::{NodeDef, PoolUse, Use};
        for (cap, at) in [(5, Some(0)), (1, None)] {
            let mut p = Problem::new("reads");
            let slot = p.add_slot(15, "tp_smem_rd", 2);
            let pool = p.add_pool(4, "smem_rd", cap);
            let uses = [Use { slot, offset: 0, duration: 7, occupancy: 1 }];
            let pools = [PoolUse { pool, count: 1, duration: 7 }];
            for id in ["r1", "r2"] {
                p.add_node(&NodeDef { id, latency: 7, uses: &uses, pools: &pools, ..NodeDef::default() });
            }
            let b = Bench::new(p, 14);
            let pair = b.run(&[], |arms, l, table| arms.cheapest_pair(l, table, &[0, 1]));
            assert_eq!(pair.map(|p| (p.at, p.with)), at.map(|t| (t, Some(1))));
            let starts = b.run(&[], |arms, l, table| {
                assert!(arms.fuse(l, table, &[0, 1], &[]));
                arms.starts.clone()
            });
            assert_eq!(starts, if cap == 5 { [0, 0] } else { [0, 7] });
        }
    }

    /// Of all pairs the one whose start costs least, not the first: the third op may start at once, the first waits.
    #[test]
    fn the_cheapest_pair_becomes_one_seat() {
        use crate::problem::Use;
        let mut p = Problem::new("pairs");
        let units = [p.add_slot(1, "x", 2), p.add_slot(2, "y", 2)];
        let on = |k: usize, duration, occupancy| [Use { slot: units[k], offset: 0, duration, occupancy }];
        for k in [0, 0, 1, 1] {
            add(&mut p, &on(k, 2, 1), 0, 0);
        }
        let busy = add(&mut p, &on(0, 6, 2), 0, 0);
        let b = Bench::new(p, 16);
        let pair = b.run(&[(busy.as_u32(), 0)], |arms, l, table| arms.cheapest_pair(l, table, &[0, 1, 2, 3]));
        assert_eq!(pair.map(|p| (p.op, p.with, p.at)), Some((2, Some(3), 0)));
    }

    /// `published.arm-policy = lowest-cost` takes the cheapest proposal: permute offers the first op, which waits for its unit.
    #[test]
    fn the_cheapest_proposal_is_taken() {
        use crate::problem::Use;
        let mut p = Problem::new("proposals");
        let units = [p.add_slot(1, "x", 1), p.add_slot(2, "y", 1)];
        let on = |k: usize, duration| [Use { slot: units[k], offset: 0, duration, occupancy: 1 }];
        add(&mut p, &on(0, 2), 0, 0);
        add(&mut p, &on(1, 2), 0, 0);
        let busy = add(&mut p, &on(0, 6), 0, 0);
        let b = Bench::new(p, 16);
        let best = b.run(&[(busy.as_u32(), 0)], |arms, l, table| arms.propose(l, table, &[0, 1]));
        assert_eq!(best.map(|p| (p.op, p.at)), Some((1, 0)));
        // Nor does the cost-based arm take the first op it has a start for.
        let cheapest = b.run(&[(busy.as_u32(), 0)], |arms, l, table| arms.cheapest(l, table, &[0, 1]));
        assert_eq!(cheapest.map(|p| (p.op, p.at)), Some((1, 0)));
    }

    /// Ops that dependences order, in whatever iteration, and ops on different units have starts of their own.
    #[test]
    fn what_is_ordered_or_elsewhere_is_no_pair() {
        use crate::problem::Use;
        for (other, tied) in [(0, false), (0, true), (1, false)] {
            let mut p = Problem::new("pair");
            let units = [p.add_slot(1, "x", 2), p.add_slot(2, "y", 2)];
            let on = |k: usize, occupancy| [Use { slot: units[k], offset: 0, duration: 2, occupancy }];
            let n = [0, other].map(|unit| add(&mut p, &on(unit, 1), 0, 0));
            // Both units bind.
            (0..2).for_each(|unit| _ = add(&mut p, &on(unit, 2), 0, 0));
            if tied {
                p.add_edge(n[0], n[1], 1, 1);
            }
            let pair = Bench::new(p, 8).run(&[], |arms, l, table| arms.cheapest_pair(l, table, &[0, 1]));
            assert_eq!(pair.is_some(), other == 0 && !tied, "{other} {tied}");
        }
    }

    /// Of the orders within the budget the one whose starts cost least: shortest first. The budget covers all of them, so that
    /// the seed has no say.
    #[test]
    fn the_cheapest_of_all_orders_is_taken() {
        use crate::problem::Use;
        let mut p = Problem::new("orders");
        let slot = p.add_slot(1, "x", 1);
        for duration in [4, 1, 3, 2] {
            add(&mut p, &[Use { slot, offset: 0, duration, occupancy: 1 }], 0, 0);
        }
        let mut b = Bench::new(p, 16);
        b.options.permute_budget = 24;
        for seed in 0..20 {
            b.options.seed = seed;
            let order = b.run(&[], |arms, l, table| {
                arms.best_order(l, table, &[0, 1, 2, 3]).then(|| arms.trial.clone())
            });
            assert_eq!(order, Some(vec![1, 3, 2, 0]), "seed {seed}");
        }
    }

    /// What is dead waits until the others have their starts; then the first of the dead is the first to be revived.
    #[test]
    fn retry_skips_the_dead_and_revives_them_in_order() {
        use crate::problem::Use;
        let mut p = Problem::new("dead");
        let slot = p.add_slot(1, "x", 1);
        for _ in 0..3 {
            add(&mut p, &[Use { slot, offset: 0, duration: 2, occupancy: 1 }], 0, 0);
        }
        let starts = Bench::new(p, 8).run(&[], |arms, l, table| {
            (arms.dead[0], arms.dead[1]) = (true, true);
            assert!(arms.retry(l, table, &[0, 1, 2], false));
            arms.starts.clone()
        });
        assert_eq!(starts, [2, 4, 0]);
    }

    /// Merged groups and dead ops are an attempt's own; the snapshot lives longer where that is asked for.
    #[test]
    fn an_attempt_begins_with_the_groups_of_the_problem() {
        let mut p = Problem::new("two");
        (0..2).for_each(|_| _ = add(&mut p, &[], 0, 0));
        Bench::new(p, 4).run(&[], |arms, l, _| {
            for keep in [true, false] {
                assert!(arms.union(l, 0, 1) && arms.root(l, 0) == arms.root(l, 1));
                arms.dead[0] = true;
                arms.begin(l, keep);
                assert_ne!(arms.root(l, 0), arms.root(l, 1));
                assert_eq!(arms.dead[0], keep);
            }
        });
    }

    /// From the earliest start on an interval's worth of candidates: later ones have the same rows.
    #[test]
    fn a_window_has_as_many_candidates_as_the_interval_has_rows() {
        let mut p = Problem::new("window");
        let first = add(&mut p, &[], 0, 0);
        let then = add(&mut p, &[], 0, 0);
        p.add_edge(first, then, 3, 0);
        let window = Bench::new(p, 8).run(&[(0, 2)], |arms, l, _| arms.window(l, 1));
        assert_eq!(window, (5, 12));
    }

    /// The horizon grows by one per pass: depth 2 is admitted before depth 3, whatever the order of the ops.
    #[test]
    fn the_horizon_of_retry_grows_by_one() {
        use crate::problem::Use;
        let mut p = Problem::new("depths");
        let slot = p.add_slot(1, "x", 1);
        let uses = [Use { slot, offset: 0, duration: 4, occupancy: 1 }];
        add(&mut p, &uses, 3, 0);
        add(&mut p, &uses, 2, 0);
        let b = Bench::new(p, 8);
        let starts = |deepest| {
            b.run(&[], |arms, l, table| {
                assert!(arms.retry(l, table, &[0, 1], deepest));
                arms.starts.clone()
            })
        };
        assert_eq!((starts(false), starts(true)), (vec![4, 0], vec![0, 4]));
    }

    /// Starts that wait equally long are told apart by registers where there is a budget, then by the room left to neighbours.
    #[test]
    fn registers_and_room_rank_seats() {
        let mut p = Problem::new("ranks");
        let value = add(&mut p, &[], 0, 40);
        let reader = add(&mut p, &[], 0, 0);
        let op = add(&mut p, &[], 0, 40);
        let after = add(&mut p, &[], 0, 0);
        p.add_edge(value, reader, 1, 0);
        let starts = [(0, 0), (1, 1), (after.as_u32(), 0)];
        let cheapest = |b: &Bench| {
            b.run(&starts, |arms, l, table| arms.cheapest(l, table, &[op.as_u32()]).map(|p| p.at))
        };
        let mut b = Bench::new(p.clone(), 8);
        assert_eq!(cheapest(&b), Some(0), "nothing tells cycle 0 from cycle 1");
        b.options.spill_budget = Some(64);
        assert_eq!(cheapest(&b), Some(1), "at cycle 0 the other value is alive");
        let two = |b: &Bench| {
            b.run(&starts, |arms, l, table| {
                arms.view(l, table).fused_cost([2, 3], 0, 0, None).map(|c| c.spill)
            })
        };
        assert_eq!(two(&b), Some(17 * 16), "40 registers and 40 more, of 64");
        // Its neighbour of the next iteration has a start: the later the op, the nearer.
        p.add_edge(op, after, 1, 1);
        assert_eq!(cheapest(&Bench::new(p, 8)), Some(1));
    }

    /// An op of a group does not start in the row of another group's leader.
    #[test]
    fn strangers_keep_out_of_the_row_of_a_leader() {
        use crate::problem::{NodeDef, NodeExtra};
        let mut p = Problem::new("leaders");
        let mut member = |id, own_gid, leader_gid, group| {
            let extra = NodeExtra { own_gid, leader_gid, ..NodeExtra::default() };
            p.add_node(&NodeDef { id, latency: 1, group, extra, ..NodeDef::default() })
        };
        member("leader", Some(1), None, Some(1));
        member("mate", Some(1), None, Some(1));
        member("stranger", Some(2), None, Some(2));
        member("alone", None, None, None);
        member("follower", Some(3), Some(1), Some(1));
        let b = Bench::new(p, 4);
        // A follower keeps its row to nobody.
        assert_eq!(b.run(&[(4, 0)], |arms, l, table| arms.earliest(l, table, 2, HORIZON)), Some(0));
        b.run(&[(0, 0)], |arms, l, table| {
            assert_eq!([1, 3].map(|u| arms.earliest(l, table, u, HORIZON)), [Some(0); 2]);
            assert_eq!(arms.earliest(l, table, 2, HORIZON), None);
            assert_eq!(arms.gates.refused, [0, 0, 0, 1]);
            assert_eq!(arms.cheapest(l, table, &[2]).map(|p| p.at), Some(1));
        });
    }
}
