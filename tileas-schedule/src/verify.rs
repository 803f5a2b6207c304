//! A judge of schedules that shares no code with the generators.
//!
//! In: a [`Problem`] and a [`RegionSchedule`]. Out: every [`Violation`] of the rules of `tileas-schedule/1`, each with
//! both numbers where two disagree. Occupancy is counted by sorting begin and end events per slot and pool, so that
//! neither long ops nor large II cost more.
//!
//! Cost: O(edges + uses · log uses). Used by tests, fuzzing and, when the setting is on, after the scheduler.

use crate::entities::Node;
use crate::options::Limits;
use crate::problem::{MAX_QUANTITY, Problem};
use crate::schedule::{Generator, RegionSchedule};
use cranelift_entity::EntityRef;
use std::collections::BTreeMap;

/// The rules of `tileas-schedule/1`.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Rule {
    /// Every op has a start, a stage and an order; II is at least 1; all fit 31 bits.
    Complete,
    /// stage = start / II.
    Stage,
    /// The stage count is spec page 4's formula and at least 1 + the largest stage.
    StageCount,
    /// `order` is 0, 1, …, each once.
    OrderUnique,
    /// `order` ranks by (stage, start, zero-distance edges, program order).
    OrderRank,
    /// `start[to] >= start[from] + latency - ii * distance`.
    Dependence,
    /// Occupancy of a slot in a cycle modulo II.
    Slot,
    /// Charges of a pool in a cycle modulo II.
    Pool,
    /// One stage per group.
    Group,
    /// stage ≤ max_depth.
    MaxDepth,
    /// Forced-serial ops overlap neither themselves nor their group across iterations.
    ForceSerial,
    /// No II below a bound.
    Bound,
}

/// One broken rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which.
    pub rule: Rule,
    /// Where, and both numbers.
    pub message: String,
}

/// All violations; an empty result means the schedule is legal.
pub fn verify(p: &Problem, s: &RegionSchedule) -> Vec<Violation> {
    let mut out = Vec::new();
    let n = p.num_nodes();
    let mut bad = |rule, message: String| out.push(Violation { rule, message });
    if s.start.len() != n || s.stage.len() != n || s.order.len() != n {
        bad(Rule::Complete, format!("{n} ops, {} starts", s.start.len()));
        return out;
    }
    // Out-of-range numbers in an unchecked problem would be met below.
    let limits = Limits { max_ops: usize::MAX, max_edges: usize::MAX, max_uses: usize::MAX };
    let mut errors = Vec::new();
    p.check_structure(&limits, &mut errors);
    if let Some(e) = errors.first() {
        bad(Rule::Complete, format!("the problem itself is wrong: {}", e.message));
        return out;
    }
    if s.ii == 0 || s.ii > MAX_QUANTITY {
        bad(Rule::Complete, format!("ii {} is out of range", s.ii));
        return out;
    }
    let ii = i128::from(s.ii);
    let (mut finish, mut last_stage) = (0, 0);
    for u in p.nodes() {
        let (start, stage) = (s.start[u], s.stage[u]);
        if start > MAX_QUANTITY {
            bad(Rule::Complete, format!("`{}` starts at {start}", p.id(u)));
        }
        if stage != start / s.ii {
            let text = format!("`{}` has stage {stage}, start {start} / ii {}", p.id(u), s.ii);
            bad(Rule::Stage, text);
        }
        finish = finish.max(u64::from(start) + u64::from(p.latency(u)));
        last_stage = last_stage.max(start / s.ii);
        if p.max_depth(u) > 0 && start / s.ii > p.max_depth(u) {
            let text = format!("`{}` is in stage {}, max_depth {}", p.id(u), start / s.ii, p.max_depth(u));
            bad(Rule::MaxDepth, text);
        }
    }
    let formula = match s.generator {
        Generator::Serial => 1,
        Generator::CostBased | Generator::Modulo => (finish + 1).div_ceil(s.ii.into()),
    };
    if u64::from(s.stage_count) != formula || s.stage_count < 1 + last_stage {
        let text = format!("stage_count {}, formula {formula}, last stage {last_stage}", s.stage_count);
        bad(Rule::StageCount, text);
    }
    for e in p.edges().values() {
        let ready = i128::from(s.start[e.from]) + i128::from(e.latency) - ii * i128::from(e.distance);
        let start = i128::from(s.start[e.to]);
        if start < ready {
            let (from, to) = (p.id(e.from), p.id(e.to));
            bad(Rule::Dependence, format!("`{to}` starts at {start}, `{from}` allows it from {ready}"));
        }
    }
    check_order(p, s, &mut out);
    check_groups(p, s, &mut out);
    check_occupancy(p, s, &mut out);
    let b = &s.bounds;
    for (name, bound) in [
        ("resource", b.resource),
        ("recurrence", b.recurrence),
        ("fine-density", b.fine_density),
        ("dependency", b.dependency),
    ] {
        if s.ii < bound {
            let message = format!("ii {} is below the {name} bound {bound}", s.ii);
            out.push(Violation { rule: Rule::Bound, message });
        }
    }
    out
}

fn check_order(p: &Problem, s: &RegionSchedule, out: &mut Vec<Violation>) {
    let n = p.num_nodes();
    let mut at = vec![None; n];
    let mut unique = true;
    for u in p.nodes() {
        match at.get_mut(s.order[u] as usize) {
            Some(place @ None) => *place = Some(u),
            _ => {
                unique = false;
                let message = format!("`{}` has order {}, taken or above {n}", p.id(u), s.order[u]);
                out.push(Violation { rule: Rule::OrderUnique, message });
            }
        }
    }
    if !unique {
        return;
    }
    let mut bad = |a: Node, b: Node, why: &str| {
        let message = format!("`{}` is ordered before `{}`: {why}", p.id(a), p.id(b));
        out.push(Violation { rule: Rule::OrderRank, message });
    };
    let line: Vec<Node> = at.into_iter().flatten().collect();
    for w in line.windows(2) {
        if s.start[w[0]] > s.start[w[1]] {
            bad(w[0], w[1], "it starts later");
        }
    }
    let mut has_zero_pred = vec![false; n];
    for e in p.edges().values().filter(|e| e.distance == 0 && e.from != e.to) {
        has_zero_pred[e.to.index()] = true;
        if s.start[e.from] == s.start[e.to] && s.order[e.from] > s.order[e.to] {
            bad(e.to, e.from, "against a zero-distance edge");
        }
    }
    // Where no edge can have a say, program order decides.
    for w in line.windows(2) {
        let free = !has_zero_pred[w[0].index()] && !has_zero_pred[w[1].index()];
        if free && s.start[w[0]] == s.start[w[1]] && w[0] > w[1] {
            bad(w[0], w[1], "against program order");
        }
    }
}

fn check_groups(p: &Problem, s: &RegionSchedule, out: &mut Vec<Violation>) {
    let mut groups: BTreeMap<u32, Vec<Node>> = BTreeMap::new();
    for u in p.nodes() {
        if let Some(g) = p.group(u) {
            groups.entry(g).or_default().push(u);
        }
    }
    for (g, members) in &groups {
        let stage = s.start[members[0]] / s.ii;
        for &u in members.iter().filter(|&&u| s.start[u] / s.ii != stage) {
            let (a, b) = (p.id(members[0]), p.id(u));
            let message = format!("group {g}: `{a}` in stage {stage}, `{b}` in stage {}", s.start[u] / s.ii);
            out.push(Violation { rule: Rule::Group, message });
        }
    }
    for u in p.nodes().filter(|&u| p.force_serial(u)) {
        let alone = [u];
        let others = p.group(u).and_then(|g| groups.get(&g)).map_or(&alone[..], |m| m);
        for &w in others {
            for (a, b) in [(u, w), (w, u)] {
                let end = u64::from(s.start[a]) + u64::from(p.span(a));
                let next = u64::from(s.start[b]) + u64::from(s.ii);
                if next < end {
                    let (a, b) = (p.id(a), p.id(b));
                    let message = format!("`{a}` is busy to {end}, `{b}` starts again at {next}");
                    out.push(Violation { rule: Rule::ForceSerial, message });
                }
            }
        }
    }
}

/// Begin and end events of one slot or pool: cycle → change.
#[derive(Default)]
struct Timeline {
    everywhere: i128,
    changes: BTreeMap<u64, i128>,
}

impl Timeline {
    fn hold(&mut self, begin: u64, duration: u32, units: u32, ii: u64) {
        let (duration, units) = (u64::from(duration), i128::from(units));
        self.everywhere += i128::from(duration / ii) * units;
        let (begin, rest) = (begin % ii, duration % ii);
        let mut span = |from: u64, to: u64| {
            if from < to {
                *self.changes.entry(from).or_default() += units;
                *self.changes.entry(to).or_default() -= units;
            }
        };
        span(begin, (begin + rest).min(ii));
        span(0, (begin + rest).saturating_sub(ii));
    }

    /// The fullest cycle and what is held there.
    fn peak(&self) -> (u64, i128) {
        let (mut level, mut best) = (self.everywhere, (0, self.everywhere));
        for (&cycle, change) in &self.changes {
            level += change;
            if level > best.1 {
                best = (cycle, level);
            }
        }
        best
    }
}

fn check_occupancy(p: &Problem, s: &RegionSchedule, out: &mut Vec<Violation>) {
    let ii = u64::from(s.ii);
    let mut slots: Vec<Timeline> = p.slots().iter().map(|_| Timeline::default()).collect();
    let mut pools: Vec<Timeline> = p.pools().iter().map(|_| Timeline::default()).collect();
    for u in p.nodes() {
        let start = u64::from(s.start[u]);
        for x in p.uses(u) {
            slots[x.slot.index()].hold(start + u64::from(x.offset), x.duration, x.occupancy, ii);
        }
        for x in p.pool_uses(u) {
            pools[x.pool.index()].hold(start, x.duration, x.count, ii);
        }
    }
    let named_slots = p.slots().values().zip(&slots).map(|(r, t)| (Rule::Slot, "slot", r, t));
    let named_pools = p.pools().values().zip(&pools).map(|(r, t)| (Rule::Pool, "pool", r, t));
    for (rule, kind, resource, timeline) in named_slots.chain(named_pools) {
        let (cycle, held) = timeline.peak();
        if held > i128::from(resource.capacity) {
            let (id, name, cap) = (resource.id, &resource.name, resource.capacity);
            let message = format!("{kind} {id} `{name}` holds {held} of {cap} in cycle {cycle}");
            out.push(Violation { rule, message });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::{NodeDef, PoolUse, Use};

    /// Two loads that share a unit, a group of two, a carried edge, a pool; one legal schedule.
    fn case() -> (Problem, RegionSchedule) {
        let mut p = Problem::new("t");
        let slot = p.add_slot(12, "tma", 1);
        let pool = p.add_pool(3, "bank", 1);
        let uses = [Use { slot, offset: 0, duration: 4, occupancy: 1 }];
        let load = NodeDef { id: "a", latency: 4, uses: &uses, ..NodeDef::default() };
        let a = p.add_node(&load);
        let b = p.add_node(&NodeDef { id: "b", ..load });
        let charge = [PoolUse { pool, count: 1, duration: 5 }];
        let dot = NodeDef {
            id: "c",
            latency: 8,
            pools: &charge,
            group: Some(1),
            max_depth: 2,
            ..NodeDef::default()
        };
        let c = p.add_node(&dot);
        let d = p.add_node(&NodeDef {
            id: "d",
            latency: 1,
            group: Some(1),
            force_serial: true,
            ..NodeDef::default()
        });
        p.add_edge(a, c, 4, 0);
        p.add_edge(b, c, 4, 0);
        p.add_edge(c, d, 0, 0);
        p.add_edge(c, c, 8, 1);
        let mut s = RegionSchedule { generator: Generator::CostBased, ii: 8, ..RegionSchedule::default() };
        s.start.extend([0, 4, 8, 8]);
        s.stage.extend([0, 0, 1, 1]);
        s.order.extend([0, 1, 2, 3]);
        s.stage_count = 3; // ceil((8 + 8 + 1) / 8)
        s.bounds.resource = 8;
        (p, s)
    }

    fn place(s: &mut RegionSchedule, start: u32, stage: u32, order: u32) {
        s.start.push(start);
        s.stage.push(stage);
        s.order.push(order);
    }

    fn broken(change: impl FnOnce(&mut Problem, &mut RegionSchedule)) -> Vec<Rule> {
        let (mut p, mut s) = case();
        change(&mut p, &mut s);
        let mut rules: Vec<Rule> = verify(&p, &s).iter().map(|v| v.rule).collect();
        rules.dedup();
        rules
    }

    #[test]
    fn the_case_is_legal() {
        assert_eq!(broken(|_, _| {}), []);
    }

    #[test]
    fn one_wrong_schedule_per_rule() {
        let n = Node::from_u32;
        let rule = |r: Rule, change: &dyn Fn(&mut Problem, &mut RegionSchedule)| {
            assert_eq!(broken(change), [r], "{r:?}");
        };
        rule(Rule::Complete, &|_, s| s.ii = 0);
        rule(Rule::Complete, &|p, _| _ = p.add_node(&NodeDef::default()));
        rule(Rule::Complete, &|p, _| _ = p.add_edge(n(0), n(77), 0, 0));
        rule(Rule::Stage, &|_, s| s.stage[n(3)] = 0);
        rule(Rule::StageCount, &|_, s| s.stage_count = 2);
        rule(Rule::OrderUnique, &|_, s| s.order[n(1)] = 0);
        rule(Rule::OrderRank, &|_, s| (s.order[n(0)], s.order[n(1)]) = (1, 0));
        rule(Rule::OrderRank, &|_, s| (s.order[n(2)], s.order[n(3)]) = (3, 2));
        rule(Rule::Dependence, &|p, _| _ = p.add_edge(n(1), n(2), 5, 0));
        rule(Rule::Dependence, &|p, _| _ = p.add_edge(n(2), n(0), 1, 1));
        rule(Rule::Slot, &|_, s| s.start[n(1)] = 3);
        rule(Rule::Pool, &|p, s| {
            let pool = crate::Pool::from_u32(0);
            let charge = [PoolUse { pool, count: 1, duration: 4 }];
            p.add_node(&NodeDef { id: "e", pools: &charge, ..NodeDef::default() });
            place(s, 9, 1, 4);
        });
        rule(Rule::Group, &|p, s| {
            p.add_node(&NodeDef { id: "e", group: Some(1), ..NodeDef::default() });
            place(s, 16, 2, 4);
            s.stage_count = 3;
        });
        rule(Rule::MaxDepth, &|p, s| {
            p.add_node(&NodeDef { id: "e", max_depth: 1, ..NodeDef::default() });
            place(s, 16, 2, 4);
        });
        rule(Rule::ForceSerial, &|p, s| {
            p.add_node(&NodeDef { id: "e", latency: 9, force_serial: true, ..NodeDef::default() });
            place(s, 9, 1, 4);
            s.stage_count = 3;
        });
        rule(Rule::Bound, &|_, s| s.bounds.recurrence = 9);
    }

    #[test]
    fn an_op_longer_than_the_interval_meets_itself() {
        let mut p = Problem::new("t");
        let slot = p.add_slot(1, "x", 2);
        let uses = [Use { slot, offset: 3, duration: 9, occupancy: 1 }];
        p.add_node(&NodeDef { id: "a", uses: &uses, ..NodeDef::default() });
        let mut s =
            RegionSchedule { generator: Generator::CostBased, ii: 4, stage_count: 1, ..Default::default() };
        place(&mut s, 0, 0, 0);
        let found = verify(&p, &s);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].message, "slot 1 `x` holds 3 of 2 in cycle 3");
        s.ii = 5;
        assert_eq!(verify(&p, &s), []);
    }
}
