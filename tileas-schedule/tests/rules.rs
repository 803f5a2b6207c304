//! What the scheduler promises beyond legality: constraints honoured, fallback, errors, explanations.

use tileas_schedule::Code;
use tileas_schedule::verify::verify;
use tileas_schedule::{
    Exclusion, Generator, IiSearch, Node, NodeDef, Problem, RegionSchedule, RegionSummary, ScheduleOptions,
    Scheduler, SchedulerChoice, Use,
};

fn schedule(p: &Problem, o: &ScheduleOptions) -> RegionSchedule {
    let s = Scheduler::new().schedule(p, o).unwrap();
    assert_eq!(verify(p, &s), []);
    s
}

/// `n` ops of 4 cycles on one unit, each 10 cycles after the one before.
fn chain(n: u32, change: impl Fn(u32, &mut NodeDef<'_>)) -> Problem {
    let mut p = Problem::new("chain");
    let slot = p.add_slot(1, "unit", 1);
    let uses = [Use { slot, offset: 0, duration: 4, occupancy: 1 }];
    let mut last: Option<Node> = None;
    for i in 0..n {
        let id = format!("op{i}");
        let mut def = NodeDef { id: &id, name: "op", latency: 10, uses: &uses, ..NodeDef::default() };
        change(i, &mut def);
        let node = p.add_node(&def);
        if let Some(last) = last {
            p.add_edge(last, node, 10, 0);
        }
        last = Some(node);
    }
    p
}

#[test]
fn a_chain_overlaps_its_iterations() {
    let p = chain(5, |_, _| {});
    let s = schedule(&p, &ScheduleOptions::default());
    assert_eq!((s.ii, s.bounds.resource, s.generator), (20, 20, Generator::Modulo));
    assert!(s.stats.ii_is_optimal);
    assert!(s.code_stages() <= 4, "{:?}", s.start);
    let serial = ScheduleOptions { scheduler: SchedulerChoice::Serial, ..ScheduleOptions::default() };
    let s = schedule(&p, &serial);
    assert_eq!((s.ii, s.stage_count, s.generator), (50, 1, Generator::Serial));
    assert!(!s.status.serial_fallback && s.warnings.is_empty());
}

#[test]
fn groups_depth_and_stages_cost_what_they_must() {
    let base = ScheduleOptions::default();
    // First and last in one stage: 30 cycles apart, so at least 31; and the last may not wrap onto the first.
    let p = chain(4, |i, d| d.group = (i == 0 || i == 3).then_some(7));
    let s = schedule(&p, &base);
    assert_eq!((s.bounds.dependency, s.ii), (31, 34));
    assert_eq!(s.bounds.dependency_chain.len(), 4);
    // The last op may be in stage 1 at most: start 40 <= 2 II - 1.
    let p = chain(5, |i, d| d.max_depth = u32::from(i == 4));
    let s = schedule(&p, &base);
    assert!(s.ii >= 21 && s.ii <= 24 && s.stage[Node::from_u32(4)] <= 1, "{}", s.ii);
    let two = ScheduleOptions { max_stages: Some(2), ..base.clone() };
    let s = schedule(&chain(5, |_, _| {}), &two);
    assert_eq!(s.bounds.dependency, 25);
    assert!(s.ii >= 25 && s.code_stages() <= 2, "{}", s.ii);
    // One stage: the unit is free for the last of three after 8 cycles, and its result takes 9.
    let mut three = Problem::new("three");
    let slot = three.add_slot(1, "unit", 1);
    for id in ["a", "b", "c"] {
        let uses = [Use { slot, offset: 0, duration: 4, occupancy: 1 }];
        three.add_node(&NodeDef { id, latency: 9, uses: &uses, ..NodeDef::default() });
    }
    for (max_stages, ii) in [(None, 12), (Some(2), 12), (Some(1), 17)] {
        assert_eq!(schedule(&three, &ScheduleOptions { max_stages, ..base.clone() }).ii, ii);
    }
    let p = chain(4, |i, d| (d.group, d.max_depth) = ((i % 2 == 0).then_some(7), 1));
    let serial = ScheduleOptions { scheduler: SchedulerChoice::Serial, ..base };
    let codes: Vec<_> = schedule(&p, &serial).warnings.iter().map(|w| w.code).collect();
    assert_eq!(codes, [Code::W0402, Code::W0402]);
}

#[test]
fn forced_serial_ops_do_not_overlap_their_group() {
    let p = chain(3, |i, d| (d.group, d.force_serial) = (Some(1), i == 0));
    let s = schedule(&p, &ScheduleOptions::default());
    let n = Node::from_u32;
    let with = |k| Exclusion { node: n(0), with: n(k) };
    assert_eq!(s.exclusions, [with(0), with(1), with(2)]);
    // op0 of the next iteration starts after op2 is finished.
    assert_eq!((s.bounds.dependency, s.ii), (30, 30));
    let alone = chain(3, |i, d| (d.latency, d.force_serial) = (if i == 1 { 17 } else { 10 }, i == 1));
    let s = schedule(&alone, &ScheduleOptions::default());
    assert_eq!((s.bounds.dependency, s.ii, s.exclusions.len()), (17, 17, 1));
}

#[test]
fn failure_is_explained_and_falls_back() {
    let p = chain(5, |_, _| {});
    let capped = ScheduleOptions { ii_cap: Some(19), ..ScheduleOptions::default() };
    let s = schedule(&p, &capped);
    assert_eq!((s.ii, s.generator), (50, Generator::Serial));
    assert!(s.status.serial_fallback);
    assert_eq!(s.warnings[0].code, Code::W0403);
    assert!(s.failure.is_some_and(|f| f.node.is_none()));
    let strict = ScheduleOptions { require_pipelining: true, ..capped };
    let e = Scheduler::new().schedule(&p, &strict).unwrap_err();
    assert_eq!((e.code, e.message.as_str()), (Code::E0401, "failed to find a schedule"));

    // Two ops of 3 cycles that need the unit at offsets 0 and 4: 7 rows cannot hold them, whatever the bound says.
    let mut p = Problem::new("comb");
    let slot = p.add_slot(3, "unit", 1);
    let u = |offset| Use { slot, offset, duration: 2, occupancy: 1 };
    for id in ["a", "b", "c"] {
        p.add_node(&NodeDef { id, latency: 9, uses: &[u(0), u(3)], ..NodeDef::default() });
    }
    let o = ScheduleOptions { ii_cap: Some(12), require_pipelining: true, ..ScheduleOptions::default() };
    let e = Scheduler::new().schedule(&p, &o).unwrap_err();
    let text = e.to_string();
    for part in [
        "candidate II 12",
        "for 5 cycles: unit x1 [0, 2) unit x1 [3, 5)",
        "unit holds 1 of 1, 1 wanted",
        "dependences allow starts 0 to 11",
        "refused by no pool",
        "no group, stage 0",
    ] {
        assert!(text.contains(part), "{part} is missing in\n{text}");
    }
}

#[test]
fn searches_agree_on_easy_problems() {
    for n in 1..12 {
        let p = chain(n, |_, _| {});
        let all = [IiSearch::Auto, IiSearch::Linear, IiSearch::Gallop];
        let iis = all.map(|ii_search| schedule(&p, &ScheduleOptions { ii_search, ..Default::default() }).ii);
        assert_eq!(iis, [(4 * n).max(1); 3]);
    }
}

#[test]
fn empty_and_odd_problems() {
    let o = ScheduleOptions::default();
    let s = schedule(&Problem::new("empty"), &o);
    assert_eq!((s.ii, s.stage_count), (1, 1));
    let mut p = Problem::new("free");
    let a = p.add_node(&NodeDef { id: "a", ..NodeDef::default() });
    let b = p.add_node(&NodeDef { id: "b", ..NodeDef::default() });
    p.add_edge(b, a, 0, 0);
    p.add_edge(a, b, -3, 1);
    let s = schedule(&p, &o);
    assert_eq!((s.ii, s.by_order()), (1, vec![b, a]));
    let mut p = Problem::new("endless");
    let slot = p.add_slot(1, "x", 1);
    for id in ["a", "b", "c"] {
        let uses = [Use { slot, offset: 0, duration: i32::MAX as u32, occupancy: 1 }];
        p.add_node(&NodeDef { id, uses: &uses, ..NodeDef::default() });
    }
    assert_eq!(Scheduler::new().schedule(&p, &o).unwrap_err().code, Code::E0402);
    p.add_edge(Node::from_u32(0), Node::from_u32(9), 0, 0);
    assert_eq!(Scheduler::new().schedule(&p, &o).unwrap_err().code, Code::E0303);
}

#[test]
fn a_small_scalar_region_is_serial() {
    let mut p = chain(3, |_, _| {});
    p.summary = Some(RegionSummary { op_count: 3, ..RegionSummary::default() });
    assert_eq!(schedule(&p, &ScheduleOptions::default()).generator, Generator::Serial);
}
