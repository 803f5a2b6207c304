//! What a legal start costs.
//!
//! In: an op, a candidate cycle, the starts of the attempt so far. Out: a [`CostVector`], compared component by
//! component; nothing is collapsed into one number and nothing here refuses a start. Two evaluators, each with a
//! predicate that is monotone in a cap and searched by doubling, then halving:
//!
//! - *pipe slot*: the least cap on the cycles the op waits after its earliest start;
//! - *bank*: the least cap on what other ops hold in the rows of its footprint, in this iteration and in the tail of the
//!   previous ones. More than 4 per row of the footprint in this iteration, or 3 in the tail, make it infinite.
//!
//! The spill surcharge estimates registers at the cycle; the structural distance is the room left to neighbours that
//! have starts. Source: spec page 3 (cost vector), builder and evaluator sections of its companion pages.

use super::arms::Attempt;
use crate::closure::NO_PATH;
use crate::entities::Node;
use crate::table::Table;

/// A predicate that never holds.
pub(super) const NEVER_HOLDS: u32 = u32::MAX;
/// Most that this iteration may hold, per row the op touches.
const IN_ITERATION: u64 = 4;
/// Most that earlier iterations may hold, per row the op touches.
const CARRY: u64 = 3;
/// Surcharge per register above the budget, and its largest value.
const SPILL_WEIGHT: u64 = 17;
const SPILL_MOST: u64 = 4096;
/// "Has no start" among the starts.
pub(super) const UNPLACED: i64 = i64::MIN;

/// Cost of a legal start; smaller is better. Legality itself is decided by the gates.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct CostVector {
    /// Waiting after the earliest start, as the least cap that holds.
    pub pipe_slot: u32,
    /// Pressure on the rows, as the least cap that holds.
    pub bank: u32,
    /// Surcharge for registers above the budget.
    pub spill: u32,
    /// Cycles between the op and its placed neighbours beyond what their dependences ask for.
    pub distance: i64,
    /// Program order: no two ops are equal.
    pub order: u32,
}

/// The least value from `max(lower, 1)` to `upper` for which the monotone predicate holds: doubling until it does,
/// then halving. [`NEVER_HOLDS`] if it does not hold at `upper`.
pub(super) fn smallest_holding(lower: u32, upper: u32, mut holds: impl FnMut(u32) -> bool) -> u32 {
    let lower = lower.max(1);
    if lower > upper {
        return NEVER_HOLDS;
    }
    // Everything up to `refused` is known not to hold.
    let (mut refused, mut at) = (lower - 1, lower);
    while !holds(at) {
        if at == upper {
            return NEVER_HOLDS;
        }
        refused = at;
        at = at.saturating_mul(2).min(upper);
    }
    while at - refused > 1 {
        let middle = refused + (at - refused) / 2;
        if holds(middle) {
            at = middle;
        } else {
            refused = middle;
        }
    }
    at
}

/// Surcharge for `peak` registers.
pub(super) fn spill_surcharge(peak: u64, budget: u64) -> u32 {
    (peak.saturating_sub(budget).saturating_mul(SPILL_WEIGHT)).min(SPILL_MOST) as u32
}

/// What the evaluators look at.
pub(super) struct View<'a> {
    pub l: &'a Attempt<'a>,
    pub table: &'a Table,
    /// Start of each op or [`UNPLACED`].
    pub starts: &'a [i64],
}

impl View<'_> {
    /// Cost of `u` at `t`, whose earliest start is `earliest`. Gives up (`None`) once it cannot beat `best`.
    pub fn cost(&self, u: u32, t: i64, earliest: i64, best: Option<&CostVector>) -> Option<CostVector> {
        let pipe_slot = self.pipe_slot(t - earliest);
        let mut cost = CostVector { pipe_slot, order: u, bank: 0, spill: 0, distance: i64::MIN };
        if best.is_some_and(|b| cost >= *b) {
            return None;
        }
        cost.bank = self.bank(u, t);
        cost.spill = self
            .l
            .options
            .spill_budget
            .map_or(0, |budget| spill_surcharge(self.registers(u, t), budget.into()));
        cost.distance = self.structural_distance(u, t);
        best.is_none_or(|b| cost < *b).then_some(cost)
    }

    /// Cost of two ops at one start: their rows count once, their registers and distances both.
    pub fn fused_cost(
        &self,
        [a, b]: [u32; 2],
        t: i64,
        earliest: i64,
        best: Option<&CostVector>,
    ) -> Option<CostVector> {
        let second = u64::from(self.l.p.extra(Node::from_u32(b)).registers);
        let spill = self.l.options.spill_budget;
        let cost = CostVector {
            pipe_slot: self.pipe_slot(t - earliest),
            bank: self.bank(a, t),
            spill: spill.map_or(0, |most| spill_surcharge(self.registers(a, t) + second, most.into())),
            distance: self.structural_distance(a, t).saturating_add(self.structural_distance(b, t)),
            order: a,
        };
        best.is_none_or(|known| cost < *known).then_some(cost)
    }

    fn pipe_slot(&self, wait: i64) -> u32 {
        smallest_holding(1, self.l.ii.min(i64::from(u32::MAX - 1)) as u32, |cap| wait <= i64::from(cap))
    }

    fn bank(&self, u: u32, t: i64) -> u32 {
        let stage = t.div_euclid(self.l.ii);
        let (mut here, mut carried) = (0u64, 0u64);
        let node = Node::from_u32(u);
        for v in 0..self.l.g.n {
            let at = self.starts[v as usize];
            if v == u || at == UNPLACED {
                continue;
            }
            let shared = self.table.shared_rows(node, t, Node::from_u32(v), at);
            if at.div_euclid(self.l.ii) >= stage {
                here += shared;
            } else {
                carried += shared;
            }
        }
        let rows = u64::from(self.l.p.span(node)).clamp(1, self.l.ii as u64);
        if here > IN_ITERATION * rows || carried > CARRY * rows {
            return NEVER_HOLDS;
        }
        smallest_holding(1, NEVER_HOLDS - 1, |cap| here + carried <= u64::from(cap))
    }

    /// Registers alive at `t`, modulo II, with the result of `u`.
    fn registers(&self, u: u32, t: i64) -> u64 {
        let mut alive = u64::from(self.l.p.extra(Node::from_u32(u)).registers);
        for v in 0..self.l.g.n {
            let (at, registers) = (self.starts[v as usize], self.l.p.extra(Node::from_u32(v)).registers);
            if at == UNPLACED || registers == 0 || v == u {
                continue;
            }
            let mut last = at + i64::from(self.l.p.latency(Node::from_u32(v)));
            for a in self.l.g.succ.of(v).iter().filter(|a| a.is_value()) {
                let read = self.starts[a.node as usize];
                if read != UNPLACED {
                    last = last.max(read + self.l.ii * i64::from(a.distance()));
                }
            }
            // Turns of the life at + k II that cover t modulo II.
            let first = (t - at).rem_euclid(self.l.ii);
            let again = if first < last - at { (last - at - 1 - first) / self.l.ii + 1 } else { 0 };
            alive += again as u64 * u64::from(registers);
        }
        alive
    }

    fn structural_distance(&self, u: u32, t: i64) -> i64 {
        let mut room = 0i64;
        for v in 0..self.l.g.n {
            let at = self.starts[v as usize];
            if at == UNPLACED || v == u {
                continue;
            }
            let (to, from) = (self.l.distance(v, u), self.l.distance(u, v));
            if to > NO_PATH {
                room = room.saturating_add(t - at - i64::from(to));
            }
            if from > NO_PATH {
                room = room.saturating_add(at - t - i64::from(from));
            }
        }
        room
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubling_then_halving_finds_the_smallest() {
        for least in 1..70 {
            for lower in 0..40 {
                for upper in [1, 7, 40, 64, 200] {
                    let mut probes = 0;
                    let got = smallest_holding(lower, upper, |cap| {
                        probes += 1;
                        assert!(cap >= 1 && cap <= upper);
                        cap >= least
                    });
                    let from = lower.max(1);
                    let want = if from > upper || least > upper { NEVER_HOLDS } else { least.max(from) };
                    assert_eq!(got, want, "{least} {lower} {upper}");
                    assert!(probes <= 18);
                }
            }
        }
    }

    #[test]
    fn published_probes_of_a_read_after_8_cycles() {
        let mut probes = Vec::new();
        let least = smallest_holding(0, 15, |cap| {
            probes.push(cap);
            8 <= cap
        });
        assert_eq!((least, &probes[..4]), (8, &[1, 2, 4, 8][..]));
    }

    #[test]
    fn surcharge_saturates_at_241_registers_above() {
        assert_eq!(spill_surcharge(100, 128), 0);
        assert_eq!(spill_surcharge(128, 128), 0);
        assert_eq!(spill_surcharge(129, 128), 17);
        assert_eq!(spill_surcharge(128 + 240, 128), 4080);
        assert_eq!(spill_surcharge(128 + 241, 128), 4096);
        assert_eq!(spill_surcharge(u64::MAX, 1), 4096);
    }

    #[test]
    fn cost_is_lexicographic() {
        let base = CostVector { pipe_slot: 1, bank: 1, spill: 1, distance: 1, order: 1 };
        let worse = [
            CostVector { pipe_slot: 2, bank: 0, spill: 0, distance: 0, order: 0 },
            CostVector { bank: 2, spill: 0, distance: 0, order: 0, ..base },
            CostVector { spill: 2, distance: 0, order: 0, ..base },
            CostVector { distance: 2, order: 0, ..base },
            CostVector { order: 2, ..base },
        ];
        for w in worse {
            assert!(base < w);
        }
    }

    /// What another op holds in the rows of a footprint, by hand: 2 of its cycles times its units where both rows meet.
    #[test]
    fn bank_counts_what_others_hold_in_its_rows() {
        use crate::closure::Closure;
        use crate::graph::Graph;
        use crate::options::ScheduleOptions;
        use crate::problem::{NodeDef, Problem, Use};
        use crate::windows::Windows;
        let bank = |units: u32, other: i64| {
            let mut p = Problem::new("bank");
            let slot = p.add_slot(1, "bank", 16);
            let hold = |duration, occupancy| [Use { slot, offset: 0, duration, occupancy }];
            p.add_node(&NodeDef { id: "u", latency: 3, uses: &hold(3, 1), ..NodeDef::default() });
            p.add_node(&NodeDef { id: "v", latency: 2, uses: &hold(2, units), ..NodeDef::default() });
            // Where all ops together fit into one row nothing is counted.
            p.add_node(&NodeDef { id: "w", latency: 1, uses: &hold(1, 16), ..NodeDef::default() });
            let (mut g, mut table, mut closure) = (Graph::default(), Table::default(), Closure::default());
            let (windows, options) = (Windows::default(), ScheduleOptions::default());
            assert!(g.build(&p) && closure.build(&g, 10));
            table.reset(&p, 10, 4096).expect("both fit");
            table.place(Node::from_u32(1), other);
            let starts = [UNPLACED, other, UNPLACED];
            let closure = Some(&closure);
            let l = Attempt { p: &p, g: &g, windows: &windows, closure, options: &options, ii: 10 };
            let view = View { l: &l, table: &table, starts: &starts };
            // `u` would start at cycle 10: rows 0, 1 and 2 of stage 1.
            view.cost(0, 10, 10, None).expect("nothing to beat").bank
        };
        assert_eq!([bank(2, 11), bank(2, 12), bank(2, 15)], [4, 2, 1]);
        // In the tail of the previous iteration the same rows count the same …
        assert_eq!([bank(2, 1), bank(2, 2)], [4, 2]);
        // … but at most 3 a row are allowed there, and 4 in this iteration.
        assert_eq!((bank(5, 11), bank(5, 1)), (10, NEVER_HOLDS));
        assert_eq!((bank(6, 11), bank(7, 11)), (12, NEVER_HOLDS));
    }
}
