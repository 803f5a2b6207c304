//! The rungs of the ladder and the placement arms, each by name.

use tileas_schedule::Code;
use tileas_schedule::trail::Arm;
use tileas_schedule::verify::verify;
use tileas_schedule::{
    ArmPolicy, G2Horizon, IiSearch, Node, NodeDef, NodeExtra, Problem, RegionSchedule, Rung, Rungs,
    ScheduleOptions, Scheduler, SchedulerChoice, Strategy, Use,
};

fn schedule(p: &Problem, o: &ScheduleOptions) -> RegionSchedule {
    let s = Scheduler::new().schedule(p, o).unwrap();
    assert_eq!(verify(p, &s), []);
    s
}

fn ladder() -> ScheduleOptions {
    ScheduleOptions { scheduler: SchedulerChoice::CostBased, ..ScheduleOptions::default() }
}

fn only(rung: Rung) -> ScheduleOptions {
    ScheduleOptions { rungs: Rungs::only(&[rung]), ..ladder() }
}

/// Loads, an MMA into a carried accumulator, register math and a store, `blocks` times on one set of units.
fn body(blocks: u32) -> Problem {
    let mut p = Problem::new("body");
    let units: Vec<_> =
        ["tma", "mma", "alu", "rd"].iter().zip(1..).map(|(name, id)| p.add_slot(id, name, 1)).collect();
    for _ in 0..blocks {
        let mut last: Option<Node> = None;
        for (unit, duration, latency) in [(0, 8, 8), (1, 8, 16), (3, 7, 7), (2, 4, 4), (0, 8, 8)] {
            let uses = [Use { slot: units[unit], offset: 0, duration, occupancy: 1 }];
            let id = format!("n{}", p.num_nodes());
            let n = p.add_node(&NodeDef { id: &id, name: "op", latency, uses: &uses, ..NodeDef::default() });
            if let Some(l) = last {
                p.add_edge(l, n, p.latency(l) as i32, 0);
            }
            if unit == 1 {
                p.add_edge(n, n, 8, 1);
            }
            last = Some(n);
        }
    }
    p
}

#[test]
fn every_rung_schedules_a_loop_by_itself() {
    for rung in Rung::ALL {
        let p = body(2);
        let o = only(rung);
        let s = schedule(&p, &o);
        assert!(!s.status.serial_fallback, "{}", rung.name());
        assert_eq!((s.stats.strategy, s.bounds.max()), (Some(Strategy::Ladder(rung)), 32));
        assert!(s.ii <= 36, "{}: {}", rung.name(), s.ii);
        assert_eq!(s, schedule(&p, &o), "{} gives the same answer twice", rung.name());
    }
}

#[test]
fn the_ladder_stops_at_its_first_rung_where_that_succeeds() {
    let s = schedule(&body(3), &ladder());
    assert_eq!((s.stats.strategy, s.stats.attempts), (Some(Strategy::Ladder(Rung::RauRefinement)), 1));
    assert!(s.stats.ii_is_optimal);
    let none = ScheduleOptions { rungs: Rungs::only(&[]), ..ladder() };
    let s = schedule(&body(1), &none);
    assert!(s.status.serial_fallback && s.stats.strategy.is_none());
    assert_eq!(s.warnings[0].code, Code::W0403);
}

#[test]
fn both_arm_policies_are_legal_and_deterministic() {
    for blocks in 1..4 {
        let p = body(blocks);
        for arm_policy in [ArmPolicy::FirstSuccess, ArmPolicy::LowestCost] {
            let o = ScheduleOptions { arm_policy, ..only(Rung::InitialPlacement) };
            let s = schedule(&p, &o);
            assert_eq!(s.stats.strategy, Some(Strategy::Ladder(Rung::InitialPlacement)));
            assert_eq!(s, schedule(&p, &o));
        }
    }
}

/// Two independent ops whose depth limits are `depths`.
fn limited(depths: [u32; 2]) -> Problem {
    let mut p = Problem::new("limited");
    let slot = p.add_slot(1, "unit", 1);
    let uses = [Use { slot, offset: 0, duration: 4, occupancy: 1 }];
    for (max_depth, id) in depths.into_iter().zip(["a", "b"]) {
        p.add_node(&NodeDef { id, latency: 4, uses: &uses, max_depth, ..NodeDef::default() });
    }
    p
}

#[test]
fn g2_admits_depths_that_the_horizon_of_the_retry_arm_reaches() {
    // Depth 3 is above the horizon of the first arms: the retry arm's third pass admits it.
    for depths in [[0, 1], [1, 3], [3, 3]] {
        let growing = only(Rung::InitialPlacement);
        let s = schedule(&limited(depths), &growing);
        assert_eq!((s.ii, s.status.serial_fallback), (8, false), "{depths:?}");
        let fixed = ScheduleOptions { g2_horizon: G2Horizon::Fixed, ..growing };
        let s = schedule(&limited(depths), &fixed);
        assert_eq!(s.status.serial_fallback, depths[1] > 1, "the literal gate refuses {depths:?}");
        let deepest = ScheduleOptions { g2_horizon: G2Horizon::Fixed, ..only(Rung::DeepestRetry) };
        assert_eq!(schedule(&limited(depths), &deepest).status.serial_fallback, depths[1] > 1);
    }
    // The other rungs know max_depth as a bound on the stage only.
    let fixed = ScheduleOptions { g2_horizon: G2Horizon::Fixed, ..ladder() };
    assert_eq!(schedule(&limited([3, 3]), &fixed).ii, 8);
}

#[test]
fn g1_followers_are_seated_although_their_leader_is_missing_or_late() {
    let mut p = Problem::new("leaders");
    let slot = p.add_slot(1, "unit", 1);
    let uses = [Use { slot, offset: 0, duration: 2, occupancy: 1 }];
    let add = |p: &mut Problem, id, own, leader| {
        let extra = NodeExtra { own_gid: Some(own), leader_gid: leader, ..NodeExtra::default() };
        p.add_node(&NodeDef { id, latency: 2, uses: &uses, extra, ..NodeDef::default() })
    };
    let follower = add(&mut p, "follower", 3, Some(7));
    let between = add(&mut p, "between", 5, None);
    let leader = add(&mut p, "leader", 7, None);
    add(&mut p, "orphan", 4, Some(99));
    p.add_edge(between, leader, 2, 0);
    for rung in [Rung::DeepestRetry, Rung::InitialPlacement, Rung::CostBasedPlacement] {
        let s = schedule(&p, &only(rung));
        assert_eq!((s.ii, s.stats.strategy), (8, Some(Strategy::Ladder(rung))));
        // The leader's own chain was seated first, at its earliest cycles.
        assert!(s.start[follower] > s.start[between], "{}", rung.name());
    }
}

#[test]
fn g4_groups_share_a_stage_in_every_arm() {
    let mut p = Problem::new("groups");
    let slot = p.add_slot(1, "unit", 1);
    let uses = [Use { slot, offset: 0, duration: 3, occupancy: 1 }];
    let mut nodes = Vec::new();
    for i in 0..6u32 {
        let group = Some(i % 2);
        let id = format!("n{i}");
        nodes.push(p.add_node(&NodeDef { id: &id, latency: 5, uses: &uses, group, ..NodeDef::default() }));
    }
    p.add_edge(nodes[0], nodes[1], 5, 0);
    p.add_edge(nodes[1], nodes[3], 5, 0);
    for rung in [Rung::DeepestRetry, Rung::InitialPlacement, Rung::CostBasedPlacement] {
        for arm_policy in [ArmPolicy::FirstSuccess, ArmPolicy::LowestCost] {
            let s = schedule(&p, &ScheduleOptions { arm_policy, ..only(rung) });
            assert!(!s.status.serial_fallback);
            for pair in [[0, 2], [2, 4], [1, 3], [3, 5]] {
                assert_eq!(s.stage[nodes[pair[0]]], s.stage[nodes[pair[1]]]);
            }
        }
    }
}

#[test]
fn latency_ceilings_refuse_to_pipeline() {
    let long = |latency, cross_cluster| {
        let mut p = body(1);
        let extra = NodeExtra { cross_cluster, ..NodeExtra::default() };
        p.add_node(&NodeDef { id: "far", name: "op", latency, extra, ..NodeDef::default() });
        p
    };
    let on = ScheduleOptions { latency_ceilings: Some((5_000, 7_000)), ..ScheduleOptions::default() };
    for (latency, cross, refused) in [
        (5000, false, false),
        (5001, false, true),
        (6000, true, false),
        (7000, true, false),
        (7001, true, true),
    ] {
        let s = schedule(&long(latency, cross), &on);
        assert_eq!(s.status.serial_fallback, refused, "{latency} {cross}");
        assert!(!schedule(&long(latency, cross), &ScheduleOptions::default()).status.serial_fallback);
        if refused {
            let strict = ScheduleOptions { require_pipelining: true, ..on.clone() };
            let e = Scheduler::new().schedule(&long(latency, cross), &strict).unwrap_err();
            assert_eq!(e.code, Code::E0401);
            assert!(e.to_string().contains("`far`"), "{e}");
        }
    }
}

/// The only cycle of `guest` is that of a leader: alone it is a stranger in that row, merged with the leader's group it is none. A
/// dependence on what is still to come of that group forbids to merge.
#[test]
fn fuse_seats_a_group_that_permute_cannot() {
    let leaders = |tied: bool| {
        let mut p = Problem::new("leaders");
        let slot = p.add_slot(1, "unit", 3);
        let uses = [Use { slot, offset: 0, duration: 1, occupancy: 1 }];
        let [leader, guest, mate] =
            [("leader", 1, None), ("guest", 2, None), ("mate", 1, Some(1))].map(|(id, gid, leader_gid)| {
                let extra = NodeExtra { own_gid: Some(gid), leader_gid, ..NodeExtra::default() };
                let group = Some(gid);
                p.add_node(&NodeDef { id, latency: 8, uses: &uses, group, extra, ..NodeDef::default() })
            });
        p.add_edge(leader, guest, 0, 0);
        p.add_edge(leader, mate, 0, 0);
        if tied {
            p.add_edge(mate, guest, 2, 1);
        }
        p
    };
    let o = ScheduleOptions { max_stages: Some(1), ..only(Rung::InitialPlacement) };
    let s = schedule(&leaders(false), &o);
    assert_eq!((s.ii, s.status.serial_fallback), (8, false));
    assert_eq!(s.trail.arms, [Some(Arm::Permute), Some(Arm::Fuse), Some(Arm::Fuse)]);
    let s = schedule(&leaders(true), &o);
    assert_eq!((s.ii, s.status.serial_fallback), (9, false));
    assert!(!s.trail.arms.contains(&Some(Arm::Fuse)), "{:?}", s.trail.arms);
}

/// One rung that seldom succeeds, and II raised one by one: what it costs to look at one counts, so that the way up ends.
#[test]
fn a_long_way_up_ends_when_the_steps_are_spent() {
    let mut p = Problem::new("long");
    let slot = p.add_slot(0, "s", 1);
    for i in 0..145 {
        let uses = [Use { slot, offset: 0, duration: 1, occupancy: 1 }];
        p.add_node(&NodeDef { id: &format!("n{i}"), latency: 5_000, uses: &uses, ..NodeDef::default() });
    }
    for arm_steps in [0, 40_000] {
        let o = ScheduleOptions {
            ii_search: IiSearch::Linear,
            max_stages: Some(1),
            scheduler: SchedulerChoice::CostBased,
            rungs: Rungs::only(&[Rung::InitialPlacement]),
            step_limit: 900,
            exact_steps: 0,
            arm_steps,
            ..ScheduleOptions::default()
        };
        let s = Scheduler::new().schedule(&p, &o).expect("a schedule");
        assert_eq!(verify(&p, &s), []);
        assert!(s.status.serial_fallback && s.status.budget_exceeded, "{:?} at {}", s.status, s.ii);
    }
}
