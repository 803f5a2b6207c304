//! Random scheduling problems and the properties every schedule must have.
//!
//! [`problem`] draws 1 to 500 ops, mostly few, with random slots, capacities, pools, offsets, groups, depth limits and forced
//! serialisation; [`check`] schedules it and judges the result. Fuzz targets and `tests/schedule_random.rs` call both.

use arbitrary::{Result, Unstructured};
use tileas_schedule::{
    Allowance, ArmPolicy, Engine, Engines, IiSearch, Node, NodeDef, PoolUse, Problem, RegionSchedule, Rung,
    Rungs, ScheduleOptions, Scheduler, SchedulerChoice, Use, verify,
};

/// What a case showed, so that a run that tests nothing is seen.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The problem itself is refused (by errors, not by a panic).
    Refused,
    /// Scheduled by the serial fallback.
    Fallback,
    /// Pipelined.
    Pipelined,
}

/// Draws a problem. Most are well-formed; cycles of distance zero and too large demands occur now and then.
pub fn problem(u: &mut Unstructured<'_>) -> Result<Problem> {
    let mut p = Problem::new("random");
    let unit = u.ratio(1, 2)?;
    let mut slots = Vec::new();
    for i in 0..u.int_in_range(1..=8u32)? {
        let capacity = if unit { 1 } else { u.int_in_range(1..=4)? };
        slots.push(p.add_slot(i * 5 + 1, &format!("s{i}"), capacity));
    }
    let mut pools = Vec::new();
    for i in 0..u.int_in_range(0..=3u32)? {
        pools.push(p.add_pool(i, &format!("p{i}"), u.int_in_range(1..=6)?));
    }
    let large = u.ratio(1, 24)?;
    let count = match u.int_in_range(0..=23)? {
        0 => u.int_in_range(1..=500u32)?,
        1 => u.int_in_range(1..=200)?,
        _ => u.int_in_range(1..=24)?,
    };
    let with_groups = u.ratio(1, 3)?;
    let mut nodes: Vec<Node> = Vec::new();
    for i in 0..count {
        let mut uses = Vec::new();
        for _ in 0..u.int_in_range(0..=3)? {
            let slot = *u.choose(&slots)?;
            let scale = if large { 500 } else { 1 };
            let occupancy = u.int_in_range(0..=p.slots()[slot].capacity)?;
            let offset = if u.ratio(1, 3)? { u.int_in_range(0..=12)? } else { 0 };
            uses.push(Use { slot, offset, duration: u.int_in_range(0..=10u32)? * scale, occupancy });
        }
        if !u.ratio(1, 30)? {
            // Two reservations of one slot rarely fit together: keep the first mostly.
            let mut seen = Vec::new();
            uses.retain(|x| {
                !seen.contains(&x.slot) && {
                    seen.push(x.slot);
                    true
                }
            });
        }
        let mut charges = Vec::new();
        for &pool in &pools {
            if u.ratio(1, 3)? {
                let count = u.int_in_range(0..=p.pools()[pool].capacity)?;
                charges.push(PoolUse { pool, count, duration: u.int_in_range(0..=9)? });
            }
        }
        let group = if with_groups && u.ratio(1, 4)? { Some(u.int_in_range(0..=3)?) } else { None };
        nodes.push(p.add_node(&NodeDef {
            id: &format!("n{i}"),
            name: "op",
            latency: u.int_in_range(0..=20)?,
            uses: &uses,
            pools: &charges,
            group,
            max_depth: if u.ratio(1, 12)? { u.int_in_range(1..=3)? } else { 0 },
            force_serial: u.ratio(1, 40)?,
            ..NodeDef::default()
        }));
    }
    let edges = u.int_in_range(0..=2 * count)?;
    for _ in 0..edges {
        let (a, b) = (*u.choose(&nodes)?, *u.choose(&nodes)?);
        let carried = u.ratio(1, 6)?;
        // Program order is mostly, not always, topological.
        let (from, to) = if carried || a < b || u.ratio(1, 400)? { (a, b) } else { (b, a) };
        let distance = if carried || from == to { u.int_in_range(1..=3)? } else { 0 };
        p.add_edge(from, to, u.int_in_range(-4..=18)?, distance);
    }
    Ok(p)
}

/// Draws options that must not change legality.
pub fn options(u: &mut Unstructured<'_>) -> Result<ScheduleOptions> {
    Ok(ScheduleOptions {
        max_stages: if u.ratio(1, 8)? { Some(u.int_in_range(1..=4)?) } else { None },
        rrt_size_threshold: if u.ratio(1, 8)? { u.int_in_range(1..=64)? } else { 4096 },
        ii_search: *u.choose(&[IiSearch::Auto, IiSearch::Linear, IiSearch::Gallop])?,
        ii_cap: if u.ratio(1, 12)? { Some(u.int_in_range(1..=60)?) } else { None },
        seed: u.arbitrary()?,
        // Small, so that running out is seen as well.
        step_limit: u.int_in_range(100..=20_000)?,
        arm_policy: *u.choose(&[ArmPolicy::FirstSuccess, ArmPolicy::LowestCost, ArmPolicy::Permute])?,
        arm_steps: u.int_in_range(0..=4_000)?,
        exact_steps: u.int_in_range(0..=20_000)?,
        lifetime_steps: u.int_in_range(0..=2_000)?,
        // The published generator is as legal, and any rung of it alone.
        scheduler: if u.ratio(1, 4)? { SchedulerChoice::CostBased } else { SchedulerChoice::Auto },
        rungs: if u.ratio(1, 4)? { Rungs::only(&[*u.choose(&Rung::ALL)?]) } else { Rungs::ALL },
        engines: if u.ratio(1, 4)? { Engines::only(&[*u.choose(&Engine::ALL)?]) } else { Engines::ALL },
        ..ScheduleOptions::default()
    })
}

/// Schedules `p` on a scheduler that has seen other problems, and judges the result.
///
/// # Panics
/// If a property does not hold; that is the finding.
pub fn check(p: &Problem, options: &ScheduleOptions, warm: &mut Scheduler) -> Verdict {
    let errors = p.check(&options.limits);
    let result = warm.schedule(p, options);
    if let Some(first) = errors.first() {
        let refused = result.expect_err("a problem with errors was scheduled");
        assert_eq!(refused.code, first.code);
        return Verdict::Refused;
    }
    let schedule = result.unwrap_or_else(|e| panic!("{e}"));
    let violations = verify::verify(p, &schedule);
    assert!(violations.is_empty(), "{violations:#?}\n{schedule:#?}");
    let cold = Scheduler::new().schedule(p, options).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(schedule, cold, "a warm scheduler gave another answer");
    let mut again = RegionSchedule::default();
    for allowed in [0, options.exact_steps / 3] {
        warm.schedule_within(p, options, Allowance::of(allowed), &mut again)
            .unwrap_or_else(|e| panic!("{e}"));
        assert!(verify::verify(p, &again).is_empty());
        assert!(again.stats.steps <= allowed, "{} steps of {allowed}", again.stats.steps);
    }
    let serial = ScheduleOptions { scheduler: SchedulerChoice::Serial, ..options.clone() };
    warm.schedule_into(p, &serial, &mut again).unwrap_or_else(|e| panic!("{e}"));
    assert!(verify::verify(p, &again).is_empty());
    assert!(schedule.ii <= again.ii, "ii {} is worse than serial {}", schedule.ii, again.ii);
    if let (Some(stages), false) = (options.max_stages, schedule.status.serial_fallback) {
        let end = p.nodes().map(|n| u64::from(schedule.start[n]) + u64::from(p.latency(n).max(1))).max();
        assert!(end.unwrap_or(0) <= u64::from(stages) * u64::from(schedule.ii));
    }
    if p.num_nodes() <= EXACT_OPS && schedule.ii <= EXACT_II {
        check_exact(p, options, warm, &schedule);
    }
    if schedule.status.serial_fallback { Verdict::Fallback } else { Verdict::Pipelined }
}

/// Ops and II of the largest problem that goes to exact mode as well, and the steps it gets.
const EXACT_OPS: usize = 12;
const EXACT_II: u32 = 400;
const EXACT_STEPS: u64 = 300;

/// Exact mode against the heuristics: no worse, and each agrees with what the other one proved.
fn check_exact(p: &Problem, options: &ScheduleOptions, warm: &mut Scheduler, heuristic: &RegionSchedule) {
    let scheduler = SchedulerChoice::Optimal;
    let options = ScheduleOptions { scheduler, optimal_steps: EXACT_STEPS, ..options.clone() };
    let exact = warm.schedule(p, &options).unwrap_or_else(|e| panic!("{e}"));
    assert!(verify::verify(p, &exact).is_empty(), "{exact:#?}");
    let found = exact.optimality.expect("exact mode ran");
    let fallback = exact.status.serial_fallback;
    assert!(
        exact.ii <= heuristic.ii,
        "ii {} is worse than that of the heuristics, {}",
        exact.ii,
        heuristic.ii
    );
    assert_eq!(
        (found.ii.1, found.stages.1, found.stage_count.1),
        (exact.ii, exact.code_stages(), exact.stage_count)
    );
    assert!(found.ii.0 <= exact.ii && found.stages.0 <= found.stages.1, "{found}");
    assert!(exact.bounds.max() <= exact.ii && found.steps <= EXACT_STEPS, "{found}");
    if heuristic.stats.ii_is_optimal {
        assert_eq!(exact.ii, heuristic.ii, "the heuristics proved theirs");
    }
    if !fallback {
        assert!(exact.ii >= heuristic.trail.proven, "refuted by the heuristics: {}", heuristic.trail.proven);
    }
    let cold = Scheduler::new().schedule(p, &options).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(exact, cold, "a warm scheduler gave another answer in exact mode");
}
