//! Exact mode against brute force, against the bounded exact search, and on random loops of every family.

use super::*;
use crate::entities::Node;
use crate::error::Code;
use crate::families::{Family, Rng};
use crate::graph::Graph;
use crate::options::ScheduleOptions;
use crate::problem::Problem;
use crate::problem::{NodeDef, PoolUse, Use};
use crate::schedule::{Generator, Optimality};
use crate::verify::verify;
use crate::{Engine, Engines, RegionSchedule, Scheduler, SchedulerChoice};

/// Exact mode alone: from the four bounds, without any schedule, up to `cap`.
fn alone(p: &Problem, o: &ScheduleOptions, bound: u32, cap: u32) -> (Option<(u32, Vec<i64>)>, Optimality) {
    let mut g = Graph::default();
    assert!(g.build(p));
    let mut search = Search::new(p, &g, o, None);
    search.run(bound, cap);
    search.into_best()
}

/// The schedule that the starts are, judged.
fn judged(p: &Problem, ii: u32, starts: &[i64]) -> RegionSchedule {
    let mut s = RegionSchedule { ii, generator: Generator::CostBased, ..RegionSchedule::default() };
    let ends = p.nodes().zip(starts).map(|(n, &t)| t as u64 + u64::from(p.latency(n)));
    s.stage_count = (ends.max().unwrap_or(0) + 1).div_ceil(ii.into()) as u32;
    let mut g = Graph::default();
    assert!(g.build(p));
    crate::publish(&g, starts, &mut Vec::new(), &mut s);
    let violations = verify(p, &s);
    assert!(violations.is_empty(), "{violations:#?}\n{starts:?}");
    s
}

/// A loop of two to five short ops; in some loops ops are alike, in some they are tied in rings of two.
fn tiny(rng: &mut Rng) -> Problem {
    let mut p = Problem::new("tiny");
    let slots: Vec<_> =
        (0..rng.within(1, 2)).map(|i| p.add_slot(i, &format!("s{i}"), rng.within(1, 3))).collect();
    let pools: Vec<_> =
        (0..rng.within(0, 1)).map(|i| p.add_pool(i, &format!("p{i}"), rng.within(2, 4))).collect();
    let grouped = rng.one_in(3);
    let (alike, rings) = (rng.one_in(2), rng.one_in(2));
    let count = rng.within(2, 5);
    let mut nodes = Vec::new();
    let mut first: Option<(Vec<Use>, Vec<PoolUse>)> = None;
    for i in 0..count {
        let mut uses = Vec::new();
        for &slot in &slots {
            if !rng.one_in(3) {
                let occupancy = rng.within(1, p.slots()[slot].capacity);
                uses.push(Use { slot, offset: rng.within(0, 2), duration: rng.within(1, 3), occupancy });
            }
        }
        let pools: Vec<_> = pools
            .iter()
            .map(|&pool| PoolUse { pool, count: rng.within(0, 2), duration: rng.within(0, 3) })
            .collect();
        let (uses, pools) = match &first {
            Some(same) if alike => same.clone(),
            _ => (uses, pools),
        };
        first = Some((uses.clone(), pools.clone()));
        nodes.push(p.add_node(&NodeDef {
            id: &format!("n{i}"),
            latency: rng.within(0, 4),
            uses: &uses,
            pools: &pools,
            group: (grouped && rng.one_in(2)).then(|| rng.within(0, 1)),
            max_depth: if rng.one_in(8) { rng.within(1, 2) } else { 0 },
            force_serial: rng.one_in(12),
            ..NodeDef::default()
        }));
    }
    // Program order need not be topological.
    if rng.one_in(2) {
        nodes.reverse();
    }
    for pair in nodes.chunks_exact(2).filter(|_| rings) {
        let latency = rng.within(1, 5) as i32;
        p.add_edge(pair[0], pair[1], latency, 0);
        p.add_edge(pair[1], pair[0], rng.within(0, 4) as i32, rng.within(1, 2));
    }
    for _ in 0..if rings { rng.within(0, 2) } else { rng.within(0, 2 * count) } {
        let (a, b) = (rng.pick(&nodes), rng.pick(&nodes));
        let place = |n| nodes.iter().position(|&m| m == n);
        let carried = place(a) >= place(b) || rng.one_in(5);
        let distance = if carried { rng.within(1, 2) } else { 0 };
        p.add_edge(a, b, rng.within(0, 6) as i32 - 1, distance);
    }
    p
}

/// The best of all schedules of one II by (stages, stage count), from all rows: brute force that knows neither graph
/// nor model. Stages follow from rows: the least ones, found by waiting.
fn brute(p: &Problem, ii: u32) -> Option<(u32, u32)> {
    let n = p.num_nodes();
    let wide = i64::from(ii);
    let mut rows = vec![0i64; n];
    let mut best = None;
    'rows: loop {
        let mut start = rows.clone();
        // Whatever must wait this long waits for itself.
        let end = 64 * wide;
        loop {
            let before = start.clone();
            let raise = |start: &mut Vec<i64>, v: usize, least: i64| {
                while start[v] < least {
                    start[v] += wide;
                }
            };
            for e in p.edges().values() {
                let least =
                    start[e.from.as_u32() as usize] + i64::from(e.latency) - wide * i64::from(e.distance);
                raise(&mut start, e.to.as_u32() as usize, least.min(end));
            }
            for u in p.nodes() {
                for v in p.nodes().filter(|&v| p.group(u).is_some() && p.group(u) == p.group(v)) {
                    let stage = start[u.as_u32() as usize] / wide;
                    raise(&mut start, v.as_u32() as usize, stage * wide);
                    for (a, b) in [(u, v), (v, u)].into_iter().filter(|_| p.force_serial(u)) {
                        let least = start[a.as_u32() as usize] + i64::from(p.span(a)) - wide;
                        raise(&mut start, b.as_u32() as usize, least.min(end));
                    }
                }
            }
            if start == before || start.iter().any(|&t| t >= end) {
                break;
            }
        }
        if start.iter().all(|&t| t < end) {
            let mut s = RegionSchedule { ii, generator: Generator::CostBased, ..RegionSchedule::default() };
            let ends = p.nodes().zip(&start).map(|(u, &t)| t as u64 + u64::from(p.latency(u)));
            s.stage_count = (ends.max().unwrap_or(0) + 1).div_ceil(ii.into()) as u32;
            let mut g = Graph::default();
            assert!(g.build(p));
            crate::publish(&g, &start, &mut Vec::new(), &mut s);
            if verify(p, &s).is_empty() {
                let cost = (s.code_stages(), s.stage_count);
                best = Some(best.map_or(cost, |b: (u32, u32)| b.min(cost)));
            }
        }
        for row in &mut rows {
            *row += 1;
            if *row < wide {
                continue 'rows;
            }
            *row = 0;
        }
        return best;
    }
}

#[test]
fn brute_force_finds_the_same_interval_stages_and_finish() {
    let mut rng = Rng::new(11);
    let (mut compared, mut above, mut staged) = (0, 0, 0);
    while compared < 400 {
        let p = tiny(&mut rng);
        let o = ScheduleOptions::default();
        let Ok(heuristic) = Scheduler::new().schedule(&p, &o) else { continue };
        let bound = heuristic.bounds.max();
        // Enough rows to be a test, few enough to be all looked at.
        if f64::from(heuristic.ii).powi(p.num_nodes() as i32) > 20_000.0 {
            continue;
        }
        compared += 1;
        let expected = (1..=heuristic.ii).find_map(|ii| brute(&p, ii).map(|cost| (ii, cost)));
        let Some((ii, (stages, count))) = expected else { panic!("no schedule up to {}", heuristic.ii) };
        let (found, report) = alone(&p, &o, 1, heuristic.ii);
        let (at, starts) = found.expect("exact mode finds what brute force finds");
        let s = judged(&p, at, &starts);
        assert_eq!((at, s.code_stages(), s.stage_count), (ii, stages, count), "{p:?}");
        assert_eq!(report.ii, (ii, ii));
        assert_eq!((report.stages, report.stage_count), ((stages, stages), (count, count)));
        above += u32::from(ii > bound);
        staged += u32::from(stages > 1);
    }
    assert!(above > 60 && staged > 60, "{above} above the bound, {staged} with stages: tests too little");
}

#[test]
fn random_loops_of_every_family_are_between_bound_and_heuristic() {
    let o = ScheduleOptions { optimal_steps: 30_000, ..ScheduleOptions::default() };
    let mut scheduler = Scheduler::new();
    for family in Family::ALL {
        let (mut proven, mut better) = (0, 0);
        for seed in 0..24 {
            let (p, known) = family.problem(4 + seed as u32 % 9, 7000 + seed);
            let heuristic = scheduler.schedule(&p, &o).expect("a schedule");
            let bound = heuristic.bounds.max();
            let (found, report) = alone(&p, &o, bound, heuristic.ii);
            if let Some((ii, starts)) = &found {
                judged(&p, *ii, starts);
                assert!(bound <= *ii && *ii <= heuristic.ii);
                better += u32::from(*ii < heuristic.ii);
            }
            let (least, most) = report.ii;
            assert!(bound <= least && least <= most && most <= heuristic.ii + 1, "{family:?} {seed}");
            proven += u32::from(least == most);
            // What the heuristics proved must hold, and a schedule exists up to theirs.
            assert!(least <= heuristic.ii, "{family:?} {seed}: a schedule was refuted");
            assert!(
                most >= heuristic.trail.proven,
                "{family:?} {seed}: refuted by the heuristics, found here"
            );
            if heuristic.stats.ii_is_optimal && least == most {
                assert_eq!(least, heuristic.ii, "{family:?} {seed}");
            }
            if let Some(known) = known {
                assert!(least <= known, "{family:?} {seed}");
            }
        }
        assert!(proven >= 20, "{family:?}: {proven} of 24 proven");
        println!("{}: {proven} of 24 proven, {better} better than the heuristics", family.name());
    }
}

/// The two exact searches at the same II, whatever the answer: problems just below and at what is possible.
#[test]
fn the_bounded_exact_search_agrees() {
    let mut scheduler = Scheduler::new();
    let (mut refuted, mut placed) = (0, 0);
    for family in Family::ALL {
        for seed in 0..12 {
            let (p, _) = family.problem(8, 900 + seed);
            let only =
                ScheduleOptions { engines: Engines::only(&[Engine::Orders]), ..ScheduleOptions::default() };
            let s = scheduler.schedule(&p, &only).expect("a schedule");
            let (found, report) = alone(&p, &only, s.bounds.max(), s.ii);
            if s.stats.ii_is_optimal {
                let (ii, starts) = found.expect("what the other search found");
                judged(&p, ii, &starts);
                assert_eq!((ii, report.ii), (s.ii, (s.ii, s.ii)), "{family:?} {seed}");
                refuted += u32::from(s.ii > s.bounds.max());
                placed += 1;
            }
        }
    }
    assert!(refuted >= 5 && placed >= 60, "{refuted} above their bound, {placed} in all: tests too little");
}

#[test]
fn the_budget_is_kept_and_the_answer_stays_honest() {
    let (p, _) = Family::Rigid.problem(24, 5);
    let o = ScheduleOptions { exact_steps: 0, ..ScheduleOptions::default() };
    let heuristic = Scheduler::new().schedule(&p, &o).expect("a schedule");
    let mut last = (1, u32::MAX);
    for steps in [0, 1, 50, 2_000, 20_000] {
        let o = ScheduleOptions { optimal_steps: steps, ..o.clone() };
        let (found, report) = alone(&p, &o, heuristic.bounds.max(), heuristic.ii);
        assert!(report.steps <= steps, "{} of {steps}", report.steps);
        assert_eq!(found.is_none(), report.ii.1 == heuristic.ii + 1);
        assert!(report.ii.0 <= report.ii.1 && last.0 <= report.ii.1 && report.ii.0 <= last.1, "{report:?}");
        last = report.ii;
        let (again, same) = alone(&p, &o, heuristic.bounds.max(), heuristic.ii);
        assert_eq!((again, same), (found, report), "not deterministic");
    }
}

/// Ten ops of three cycles on a unit of capacity 1 that leaves one cycle too few: only counting refutes it quickly, and
/// interchangeable ops must not be tried in every order.
#[test]
fn interchangeable_ops_are_ordered() {
    let mut p = Problem::new("t");
    let slot = p.add_slot(0, "s", 1);
    for i in 0..10 {
        let uses = [0, 4].map(|offset| Use { slot, offset, duration: 2, occupancy: 1 });
        p.add_node(&NodeDef { id: &format!("n{i}"), latency: 3, uses: &uses, ..NodeDef::default() });
    }
    let (found, report) = alone(&p, &ScheduleOptions::default(), 40, 60);
    assert_eq!(report.ii.0, report.ii.1, "{report:?}");
    judged(&p, report.ii.1, &found.expect("a schedule").1);
    assert!(report.steps < 2_000, "{report:?}");
}

#[test]
fn what_is_too_large_is_left_open() {
    let mut p = Problem::new("t");
    let slot = p.add_slot(0, "s", 1);
    for i in 0..3 {
        let uses = [Use { slot, offset: 0, duration: 40_000, occupancy: 1 }];
        p.add_node(&NodeDef { id: &format!("n{i}"), latency: 3, uses: &uses, ..NodeDef::default() });
    }
    let (found, report) = alone(&p, &ScheduleOptions::default(), 120_000, 130_000);
    assert!(found.is_none());
    assert_eq!(report.ii, (120_000, 130_001));
}

#[test]
fn a_damaged_schedule_is_refused() {
    let mut p = Problem::new("two");
    let slot = p.add_slot(0, "s", 1);
    let uses = [Use { slot, offset: 0, duration: 2, occupancy: 1 }];
    for id in ["a", "b"] {
        p.add_node(&NodeDef { id, latency: 2, uses: &uses, ..NodeDef::default() });
    }
    let o = ScheduleOptions { scheduler: SchedulerChoice::Optimal, ..ScheduleOptions::default() };
    let mut good = Scheduler::new().schedule(&p, &o).expect("a schedule");
    assert!(crate::check_optimal(&p, &mut good).is_ok());
    let refused = |damage: fn(&mut RegionSchedule)| {
        let mut bad = good.clone();
        damage(&mut bad);
        crate::check_optimal(&p, &mut bad).expect_err("damaged").code
    };
    assert_eq!(refused(|s| s.start[Node::from_u32(0)] = s.start[Node::from_u32(1)]), Code::E0410);
    assert_eq!(refused(|s| s.optimality.as_mut().expect("a verdict").ii.1 += 1), Code::E0410);
}

/// Compaction may save stages after the steps have run out: what the report says must still be the schedule.
#[test]
fn reports_are_about_the_schedule_that_is_returned() {
    let mut scheduler = Scheduler::new();
    let mut open = 0;
    for family in Family::ALL {
        for seed in 0..6 {
            let (p, _) = family.problem(24, 100 + seed);
            let o = ScheduleOptions {
                scheduler: crate::SchedulerChoice::Optimal,
                optimal_steps: 40 << (2 * (seed % 3)),
                exact_steps: 20_000,
                ..ScheduleOptions::default()
            };
            let s = scheduler.schedule(&p, &o).unwrap_or_else(|e| panic!("{family:?} {seed}: {e}"));
            let report = s.optimality.expect("exact mode ran");
            let most = (report.ii.1, report.stages.1, report.stage_count.1);
            assert_eq!(most, (s.ii, s.code_stages(), s.stage_count), "{family:?} {seed}");
            assert_eq!(s.status.budget_exceeded, !report.is_optimal());
            open += u32::from(!report.is_optimal());
        }
    }
    assert!(open > 0, "no case runs out of steps: tests too little");
}
