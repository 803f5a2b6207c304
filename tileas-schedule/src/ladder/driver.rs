//! The group driver: which group is next, and which arm seats its ready ops.
//!
//! In: one loop at one II and an empty table. Out: seats for all ops (in [`Arms::seats`]), or failure. A group is ready
//! when one of its ops is: everything before it in the iteration has a seat and nobody holds it in the pending set.
//! Each ready group runs its chain permute → fuse → retry → cost-based; success means that every ready op of the group
//! is seated; the driver comes back until all ops are. If all four fail, retry and then cost-based try again with an
//! empty snapshot; then the attempt ends. With `published.arm-policy = lowest-cost` every arm proposes one seat and the cheapest
//! is taken, until the group's ready ops are seated; with `permute` there is no arm but the first.
//!
//! Three rungs of the ladder are here: `deepest_retry`, `initial_placement`, `cost_based_placement`. Cost: bounded by
//! [`Arms::steps`]. Source: spec page 3 ("Strategy Orchestration"), page 4 ("Placement Arms").

use super::arms::{Arms, Attempt};
use super::cost::UNSEATED;
use crate::options::ArmPolicy;
use crate::table::Table;
use crate::trail::Arm;

/// Memory of the driver.
#[derive(Default)]
pub(super) struct Driver {
    pub arms: Arms,
    /// By op, the arm that seated it; for explanations.
    pub by: Vec<Option<Arm>>,
    /// Ready ops in program order, and the part of them at hand.
    ready: Vec<u32>,
    group: Vec<u32>,
    others: Vec<u32>,
    roots: Vec<u32>,
}

impl Driver {
    /// Collects the ready ops; held ones do not count.
    fn find_ready(&mut self, l: &Attempt<'_>) {
        self.ready.clear();
        for u in 0..l.g.n {
            let seats = &self.arms.seats;
            if seats[u as usize] != UNSEATED {
                continue;
            }
            let before = l.g.pred.of(u).iter().filter(|a| a.distance() == 0);
            let open = before.map(|a| seats[a.node as usize]).all(|t| t != UNSEATED);
            if open && !self.arms.gates.pending(u) {
                self.ready.push(u);
            }
        }
    }

    fn all_seated(&self) -> bool {
        self.arms.seats.iter().all(|&t| t != UNSEATED)
    }

    /// Whether a round without ready ops may go on: held ops are released once.
    fn nothing_ready(&mut self) -> bool {
        self.arms.gates.release_once()
    }

    /// The retry arm over all ready ops at the largest horizon.
    pub fn deepest_retry(&mut self, l: &Attempt<'_>, table: &mut Table) -> bool {
        self.arms.begin(l, false);
        while !self.all_seated() {
            self.find_ready(l);
            if self.ready.is_empty() {
                if self.nothing_ready() {
                    continue;
                }
                return false;
            }
            let mark = self.arms.mark();
            let ready = std::mem::take(&mut self.ready);
            let done = self.arms.retry(l, table, &ready, true);
            self.ready = ready;
            if !done {
                return false;
            }
            self.note(mark, Arm::Retry);
            self.arms.commit(l, mark);
        }
        true
    }

    /// All groups through their arms. `keep_snapshot`: ops that earlier rungs found dead stay dead.
    pub fn initial_placement(&mut self, l: &Attempt<'_>, table: &mut Table, keep_snapshot: bool) -> bool {
        self.arms.begin(l, keep_snapshot);
        while !self.all_seated() {
            self.find_ready(l);
            if self.ready.is_empty() {
                if self.nothing_ready() {
                    continue;
                }
                return false;
            }
            // Groups in worklist order: that of their first ready op.
            self.roots.clear();
            for &u in &self.ready {
                let root = self.arms.root(l, u);
                if !self.roots.contains(&root) {
                    self.roots.push(root);
                }
            }
            for k in 0..self.roots.len() {
                let root = self.roots[k];
                self.group.clear();
                self.others.clear();
                for &u in self.ready.iter().filter(|&&u| self.arms.seats[u as usize] == UNSEATED) {
                    if self.arms.root(l, u) == root { self.group.push(u) } else { self.others.push(u) }
                }
                // Fused with an earlier group of this round, its ops have their seats.
                if self.group.is_empty() {
                    continue;
                }
                let mark = self.arms.mark();
                if !self.place_group(l, table) {
                    return false;
                }
                self.arms.commit(l, mark);
            }
        }
        true
    }

    /// One chain for the group at hand.
    fn place_group(&mut self, l: &Attempt<'_>, table: &mut Table) -> bool {
        let (group, others) = (std::mem::take(&mut self.group), std::mem::take(&mut self.others));
        let mark = self.arms.mark();
        let done = match l.options.arm_policy {
            ArmPolicy::FirstSuccess => {
                let seated = |done: bool, arm| done.then_some(arm);
                seated(self.arms.permute(l, table, &group), Arm::Permute)
                    .or_else(|| seated(self.arms.fuse(l, table, &group, &others), Arm::Fuse))
                    .or_else(|| seated(self.arms.retry(l, table, &group, false), Arm::Retry))
                    .or_else(|| seated(self.arms.cost_based(l, table, &group), Arm::CostBased))
            }
            ArmPolicy::Permute => self.arms.permute(l, table, &group).then_some(Arm::Permute),
            ArmPolicy::LowestCost => self.cheapest_proposals(l, table, &group).then_some(Arm::Proposal),
        };
        let done = done.or_else(|| {
            if l.options.arm_policy == ArmPolicy::Permute {
                return None;
            }
            self.arms.dead.fill(false);
            let revived = self.arms.retry(l, table, &group, false).then_some(Arm::Retry);
            revived.or_else(|| {
                self.arms.dead.fill(false);
                self.arms.cost_based(l, table, &group).then_some(Arm::CostBased)
            })
        });
        (self.group, self.others) = (group, others);
        if let Some(arm) = done {
            self.note(mark, arm);
        }
        done.is_some()
    }

    /// Ops seated since the mark were seated by this arm.
    fn note(&mut self, mark: usize, arm: Arm) {
        self.by.resize(self.arms.seats.len(), None);
        for &u in self.arms.since(mark) {
            self.by[u as usize] = Some(arm);
        }
    }

    fn cheapest_proposals(&mut self, l: &Attempt<'_>, table: &mut Table, group: &[u32]) -> bool {
        let mark = self.arms.mark();
        while let Some(best) = self.arms.propose(l, table, group) {
            self.arms.dead[best.op as usize] = false;
            self.arms.seat(l, table, best.op, best.at);
            if let Some(with) = best.with {
                self.arms.seat(l, table, with, best.at);
            }
        }
        let done = group.iter().all(|&u| self.arms.seats[u as usize] != UNSEATED);
        if !done {
            self.arms.undo(l, table, mark);
        }
        done
    }

    /// The cheapest seat of all ready ops, until none is left.
    pub fn cost_based_placement(&mut self, l: &Attempt<'_>, table: &mut Table, keep_snapshot: bool) -> bool {
        self.arms.begin(l, keep_snapshot);
        while !self.all_seated() {
            self.find_ready(l);
            let ready = std::mem::take(&mut self.ready);
            let best = self.arms.cheapest(l, table, &ready);
            let idle = ready.is_empty();
            self.ready = ready;
            match best {
                Some(best) => {
                    let mark = self.arms.mark();
                    self.arms.seat(l, table, best.op, best.at);
                    self.note(mark, Arm::CostBased);
                    self.arms.commit(l, mark);
                }
                None if idle && self.nothing_ready() => {}
                None => return false,
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::closure::Closure;
    use crate::entities::Node;
    use crate::graph::Graph;
    use crate::options::ScheduleOptions;
    use crate::problem::{NodeDef, NodeExtra, Problem, Use};
    use crate::random::SplitMix;
    use crate::windows::Windows;

    /// Ops of three groups, leaders most of them, on one unit of two, which some need at two times; the first two ops are before
    /// all others, by anything up to two intervals.
    fn random(seed: u64, ii: u32) -> Problem {
        let mut random = SplitMix(seed);
        let mut below = |n: u32| (random.next() % u64::from(n)) as u32;
        let mut p = Problem::new("arms");
        let slot = p.add_slot(1, "unit", 2);
        for i in 0..5 + below(4) {
            let mut hold = |offset| Use { slot, offset, duration: 1 + below(2), occupancy: 1 };
            let uses = [hold(0), hold(3)];
            let gid = if i < 2 { 1 + i } else { 2 + below(2) };
            let leader_gid = (below(3) == 0).then_some(7);
            let extra = NodeExtra { own_gid: Some(gid), leader_gid, ..NodeExtra::default() };
            let (id, uses) = (format!("n{i}"), &uses[..1 + below(2) as usize]);
            p.add_node(&NodeDef { id: &id, latency: 1, uses, group: Some(gid), extra, ..NodeDef::default() });
            for before in 0..i.min(2) {
                p.add_edge(Node::from_u32(before), Node::from_u32(i), below(2 * ii) as i32, 0);
            }
        }
        p
    }

    /// What depends on an op of the same iteration is not ready before that has a seat.
    #[test]
    fn ready_is_what_depends_on_nothing_without_a_seat() {
        let mut p = Problem::new("published");
        let [load, _, read] =
            ["load", "write", "read"].map(|id| p.add_node(&NodeDef { id, latency: 8, ..NodeDef::default() }));
        p.add_edge(load, read, 8, 0);
        let (mut g, mut windows, mut table) = (Graph::default(), Windows::default(), Table::default());
        assert!(g.build(&p) && windows.prepare(&p, &g, 15, None, &mut None));
        table.reset(&p, 15, 4096).expect("nothing is used");
        let options = ScheduleOptions::default();
        let l = Attempt { p: &p, g: &g, windows: &windows, closure: None, options: &options, ii: 15 };
        let mut driver = Driver::default();
        driver.arms.gates.seed(&p);
        driver.arms.begin(&l, false);
        driver.find_ready(&l);
        assert_eq!(driver.ready, [0, 1]);
        driver.arms.seat(&l, &mut table, 0, 0);
        driver.find_ready(&l);
        assert_eq!(driver.ready, [1, 2]);
    }

    /// The turn of a group against each arm alone, from the same seats: the first of the four that succeeds has it.
    #[test]
    fn the_arms_are_asked_in_the_published_order() {
        let options = ScheduleOptions { permute_budget: 1, ..ScheduleOptions::default() };
        // By the arm that succeeds: how often a later one would have.
        let mut contested = [[0; 4]; 4];
        for seed in 0..6000 {
            let ii = 5 + (seed % 7) as u32;
            let p = random(seed, ii);
            let (mut g, mut windows, mut closure) =
                (Graph::default(), Windows::default(), Closure::default());
            let mut table = Table::default();
            if !g.build(&p)
                || !windows.prepare(&p, &g, ii.into(), None, &mut None)
                || !closure.build(&g, ii)
                || table.reset(&p, ii, 4096).is_err()
            {
                continue;
            }
            let closure = Some(&closure);
            let l = Attempt { p: &p, g: &g, windows: &windows, closure, options: &options, ii: ii.into() };
            let mut driver = Driver::default();
            driver.arms.gates.seed(&p);
            // The first two ops have seats; one group is at hand.
            let begin = |d: &mut Driver, table: &mut Table| {
                table.reset(&p, ii, 4096).expect("as before");
                d.arms.steps = 100_000;
                d.arms.begin(&l, false);
                d.arms.gates.release_once();
                if !(0..2).all(|u| d.arms.permute(&l, table, &[u])) {
                    return false;
                }
                let at_hand = |&u: &u32| p.group(Node::from_u32(u)) == Some(2 + (seed % 2) as u32);
                (d.group, d.others) = (2..g.n).partition(at_hand);
                d.by.clear();
                !d.group.is_empty()
            };
            if !begin(&mut driver, &mut table) {
                continue;
            }
            let alone = [0, 1, 2, 3].map(|arm| {
                begin(&mut driver, &mut table);
                let (group, others) = (driver.group.clone(), driver.others.clone());
                match arm {
                    0 => driver.arms.permute(&l, &mut table, &group),
                    1 => driver.arms.fuse(&l, &mut table, &group, &others),
                    2 => driver.arms.retry(&l, &mut table, &group, false),
                    _ => driver.arms.cost_based(&l, &mut table, &group),
                }
            });
            let Some(first) = alone.iter().position(|&done| done) else { continue };
            begin(&mut driver, &mut table);
            let group = driver.group.clone();
            assert!(driver.place_group(&l, &mut table), "seed {seed}");
            let arm = [Arm::Permute, Arm::Fuse, Arm::Retry, Arm::CostBased][first];
            assert!(group.iter().all(|&u| driver.by[u as usize] == Some(arm)), "seed {seed}: {arm:?}");
            assert!(group.iter().all(|&u| driver.arms.seats[u as usize] != UNSEATED));
            (first + 1..4).for_each(|later| contested[first][later] += u32::from(alone[later]));
        }
        assert!(contested[0][1] > 0 && contested[1][2] > 0 && contested[2][3] > 0, "{contested:?}");
    }
}
