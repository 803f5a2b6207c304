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
        self.arms.gates.release_once()
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
