//! Order of groups: which group is next, and which arm places its ready ops.
//!
//! In: one loop at one II and an empty table. Out: starts for all ops (in [`Arms::starts`]), or failure. A group is ready
//! when one of its ops is: everything before it in the iteration has a start and it is not held in the pending set.
//! Each ready group runs its chain permute → fuse → retry → cost-based; success means that every ready op of the group
//! is placed; the pass over the groups is repeated until all ops are. If all four fail, retry and then cost-based try again with an
//! empty snapshot; then the attempt ends. With `published.arm-policy = lowest-cost` every arm proposes one start and the cheapest
//! is taken, until the group's ready ops are placed; with `permute` there is no arm but the first.
//!
//! Three rungs of the ladder are here: `deepest_retry`, `initial_placement`, `cost_based_placement`. Cost: bounded by
//! [`Arms::steps`]. Source: spec page 3 ("Strategy Orchestration"), page 4 ("Placement Arms").

use super::arms::{Arms, Attempt};
use super::cost::UNPLACED;
use crate::options::ArmPolicy;
use crate::table::Table;
use crate::trail::Arm;

/// Memory of one attempt.
#[derive(Default)]
pub(super) struct Groups {
    pub arms: Arms,
    /// By op, the arm that placed it; for explanations.
    pub by: Vec<Option<Arm>>,
    /// Ready ops in program order, and the part of them at hand.
    ready: Vec<u32>,
    group: Vec<u32>,
    others: Vec<u32>,
    roots: Vec<u32>,
}

impl Groups {
    /// Collects the ready ops; held ones do not count.
    fn find_ready(&mut self, l: &Attempt<'_>) {
        self.ready.clear();
        for u in 0..l.g.n {
            let starts = &self.arms.starts;
            if starts[u as usize] != UNPLACED {
                continue;
            }
            let before = l.g.pred.of(u).iter().filter(|a| a.distance() == 0);
            let open = before.map(|a| starts[a.node as usize]).all(|t| t != UNPLACED);
            if open && !self.arms.gates.pending(u) {
                self.ready.push(u);
            }
        }
    }

    fn all_placed(&self) -> bool {
        self.arms.starts.iter().all(|&t| t != UNPLACED)
    }

    /// Whether a round without ready ops may go on: held ops are released once.
    fn nothing_ready(&mut self) -> bool {
        self.arms.gates.release()
    }

    /// The retry arm over all ready ops at the largest horizon.
    pub fn deepest_retry(&mut self, l: &Attempt<'_>, table: &mut Table) -> bool {
        self.arms.begin(l, false);
        while !self.all_placed() {
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
        while !self.all_placed() {
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
                for &u in self.ready.iter().filter(|&&u| self.arms.starts[u as usize] == UNPLACED) {
                    if self.arms.root(l, u) == root { self.group.push(u) } else { self.others.push(u) }
                }
                // Fused with an earlier group of this round, its ops have their starts.
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
                let placed = |done: bool, arm| done.then_some(arm);
                placed(self.arms.permute(l, table, &group), Arm::Permute)
                    .or_else(|| placed(self.arms.fuse(l, table, &group, &others), Arm::Fuse))
                    .or_else(|| placed(self.arms.retry(l, table, &group, false), Arm::Retry))
                    .or_else(|| placed(self.arms.cost_based(l, table, &group), Arm::CostBased))
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

    /// Ops placed since the mark were placed by this arm.
    fn note(&mut self, mark: usize, arm: Arm) {
        self.by.resize(self.arms.starts.len(), None);
        for &u in self.arms.since(mark) {
            self.by[u as usize] = Some(arm);
        }
    }

    fn cheapest_proposals(&mut self, l: &Attempt<'_>, table: &mut Table, group: &[u32]) -> bool {
        let mark = self.arms.mark();
        while let Some(best) = self.arms.propose(l, table, group) {
            self.arms.dead[best.op as usize] = false;
            self.arms.place(l, table, best.op, best.at);
            if let Some(with) = best.with {
                self.arms.place(l, table, with, best.at);
            }
        }
        let done = group.iter().all(|&u| self.arms.starts[u as usize] != UNPLACED);
        if !done {
            self.arms.undo(l, table, mark);
        }
        done
    }

    /// The cheapest start of all ready ops, until none is left.
    pub fn cost_based_placement(&mut self, l: &Attempt<'_>, table: &mut Table, keep_snapshot: bool) -> bool {
        self.arms.begin(l, keep_snapshot);
        while !self.all_placed() {
            self.find_ready(l);
            let ready = std::mem::take(&mut self.ready);
            let best = self.arms.cheapest(l, table, &ready);
            let idle = ready.is_empty();
            self.ready = ready;
            match best {
                Some(best) => {
                    let mark = self.arms.mark();
                    self.arms.place(l, table, best.op, best.at);
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

    /// What depends on an op of the same iteration is not ready before that has a start.
    #[test]
    fn ready_is_what_depends_on_nothing_without_a_start() {
        let mut p = Problem::new("published");
        let [load, _, read] =
            ["load", "write", "read"].map(|id| p.add_node(&NodeDef { id, latency: 8, ..NodeDef::default() }));
        p.add_edge(load, read, 8, 0);
        let (mut g, mut windows, mut table) = (Graph::default(), Windows::default(), Table::default());
        assert!(g.build(&p) && windows.prepare(&p, &g, 15, None, &mut None));
        table.reset(&p, 15, 4096).expect("nothing is used");
        let options = ScheduleOptions::default();
        let l = Attempt { p: &p, g: &g, windows: &windows, closure: None, options: &options, ii: 15 };
        let mut groups = Groups::default();
        groups.arms.gates.seed(&p);
        groups.arms.begin(&l, false);
        groups.find_ready(&l);
        assert_eq!(groups.ready, [0, 1]);
        groups.arms.place(&l, &mut table, 0, 0);
        groups.find_ready(&l);
        assert_eq!(groups.ready, [1, 2]);
    }

    /// The turn of a group against each arm alone, from the same starts: the first of the four that succeeds has it.
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
            let mut groups = Groups::default();
            groups.arms.gates.seed(&p);
            // The first two ops have starts; one group is at hand.
            let begin = |d: &mut Groups, table: &mut Table| {
                table.reset(&p, ii, 4096).expect("as before");
                d.arms.steps = 100_000;
                d.arms.begin(&l, false);
                d.arms.gates.release();
                if !(0..2).all(|u| d.arms.permute(&l, table, &[u])) {
                    return false;
                }
                let at_hand = |&u: &u32| p.group(Node::from_u32(u)) == Some(2 + (seed % 2) as u32);
                (d.group, d.others) = (2..g.n).partition(at_hand);
                d.by.clear();
                !d.group.is_empty()
            };
            if !begin(&mut groups, &mut table) {
                continue;
            }
            let alone = [0, 1, 2, 3].map(|arm| {
                begin(&mut groups, &mut table);
                let (group, others) = (groups.group.clone(), groups.others.clone());
                match arm {
                    0 => groups.arms.permute(&l, &mut table, &group),
                    1 => groups.arms.fuse(&l, &mut table, &group, &others),
                    2 => groups.arms.retry(&l, &mut table, &group, false),
                    _ => groups.arms.cost_based(&l, &mut table, &group),
                }
            });
            let Some(first) = alone.iter().position(|&done| done) else { continue };
            begin(&mut groups, &mut table);
            let group = groups.group.clone();
            assert!(groups.place_group(&l, &mut table), "seed {seed}");
            let arm = [Arm::Permute, Arm::Fuse, Arm::Retry, Arm::CostBased][first];
            assert!(group.iter().all(|&u| groups.by[u as usize] == Some(arm)), "seed {seed}: {arm:?}");
            assert!(group.iter().all(|&u| groups.arms.starts[u as usize] != UNPLACED));
            (first + 1..4).for_each(|later| contested[first][later] += u32::from(alone[later]));
        }
        assert!(contested[0][1] > 0 && contested[1][2] > 0 && contested[2][3] > 0, "{contested:?}");
    }
}
