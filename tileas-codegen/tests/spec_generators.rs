//! The page "Serial vs Cost-Based Generators" and what "Scheduler Overview" says of generation, statement by statement,
//! where no narrower test holds it already; `docs/spec-tests.md` lists both, and the last test here holds that page to
//! the functions it names. Oracles are written out below: a queue, a literal predicate, brute force.

use std::collections::BTreeSet;
use std::path::Path;
use tileas_codegen::ir::parse_module;
use tileas_codegen::schedule::trail::Arm;
use tileas_codegen::schedule::verify::{Rule, verify};
use tileas_codegen::schedule::{
    ArmPolicy, G2Horizon, Generator, IiSearch, Node, NodeDef, NodeExtra, Problem, RegionSchedule,
    RegionSummary, Rung, Rungs, ScheduleOptions, Scheduler, SchedulerChoice, SelectorKind, Strategy, Use,
    select,
};
use tileas_codegen::testing::ddg::ScheduleAnalysis;
use tileas_codegen::{Code, Context, Settings, Stage};

fn schedule(p: &Problem, o: &ScheduleOptions) -> RegionSchedule {
    let s = Scheduler::new().schedule(p, o).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(verify(p, &s), []);
    s
}

/// Rungs of the published generator.
fn only(rungs: &[Rung]) -> ScheduleOptions {
    let scheduler = SchedulerChoice::CostBased;
    ScheduleOptions { scheduler, rungs: Rungs::only(rungs), ..ScheduleOptions::default() }
}

fn serial() -> ScheduleOptions {
    ScheduleOptions { scheduler: SchedulerChoice::Serial, ..ScheduleOptions::default() }
}

/// Small numbers, the same each time.
struct Lcg(u64);

impl Lcg {
    fn below(&mut self, n: u32) -> u32 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 33) % u64::from(n)) as u32
    }
}

/// Random ops on two units, with dependences in any direction of program order and none in a cycle; groups, depth limits
/// and forced-serial ops where asked for.
fn random(seed: u64, constrained: bool) -> Problem {
    let mut rng = Lcg(seed);
    let ops = 4 + (seed % 5) as u32;
    let mut p = Problem::new("random");
    let slots = [1, 2].map(|id| p.add_slot(id, "unit", id));
    let mut rank: Vec<u32> = (0..ops).collect();
    for i in (1..ops).rev() {
        rank.swap(i as usize, rng.below(i + 1) as usize);
    }
    for i in 0..ops {
        let mut hold = |offset| Use {
            slot: slots[rng.below(2) as usize],
            offset,
            duration: 1 + rng.below(2),
            occupancy: 1,
        };
        let uses = [hold(0), hold(3)];
        let uses = if rng.below(2) == 0 { &uses[..] } else { &uses[..1] };
        let (id, latency) = (format!("n{i}"), 1 + rng.below(9));
        let mut def = NodeDef { id: &id, latency, uses, ..NodeDef::default() };
        if constrained {
            def.group = (rng.below(3) > 0).then_some(rng.below(2));
            def.max_depth = [0, 0, 0, 2][rng.below(4) as usize];
            def.force_serial = rng.below(6) == 0;
        }
        p.add_node(&def);
    }
    for _ in 0..rng.below(2 * ops) {
        let (a, b) = (rng.below(ops), rng.below(ops));
        if rank[a as usize] < rank[b as usize] {
            let (a, b) = (Node::from_u32(a), Node::from_u32(b));
            p.add_edge(a, b, p.latency(a) as i32, 0);
        }
    }
    p
}

// Serial generator.

/// The published walk: in-degrees, a ready queue, program order among the ready.
fn walk(p: &Problem) -> Vec<Node> {
    let mut waiting: Vec<usize> =
        p.nodes().map(|n| p.edges().values().filter(|e| e.to == n).count()).collect();
    let mut ready: BTreeSet<u32> =
        (0..waiting.len()).filter(|&k| waiting[k] == 0).map(|k| k as u32).collect();
    let mut out = Vec::new();
    while let Some(first) = ready.pop_first() {
        out.push(Node::from_u32(first));
        for e in p.edges().values().filter(|e| e.from.as_u32() == first) {
            let left = &mut waiting[e.to.as_u32() as usize];
            *left -= 1;
            if *left == 0 {
                ready.insert(e.to.as_u32());
            }
        }
    }
    out
}

#[test]
fn serial_is_one_walk_in_dataflow_order_with_ties_in_program_order() {
    let mut moved = 0;
    for seed in 0..80 {
        let p = random(seed, true);
        let s = schedule(&p, &serial());
        let order = walk(&p);
        assert_eq!(s.by_order(), order, "seed {seed}");
        moved += u32::from(order.windows(2).any(|w| w[0] > w[1]));
        // One stage, every op after the one before it, latency and footprint included.
        let mut end = 0;
        for &n in &order {
            assert_eq!(s.stage[n], 0);
            assert!(s.start[n] >= end, "seed {seed}");
            end = s.start[n] + p.span(n);
        }
        assert!(s.stage_count == 1 && s.ii >= end);
        assert_eq!(s, schedule(&p, &serial()));
    }
    assert!(moved > 20, "program order is seldom dataflow order here");
}

#[test]
fn serial_searches_nothing() {
    for seed in 0..10 {
        let s = schedule(&random(seed, false), &serial());
        assert_eq!(
            (s.stats.attempts, s.stats.placements, s.stats.evictions, s.stats.strategy),
            (0, 0, 0, None)
        );
        assert!(s.trail.tries.is_empty() && s.trail.arms.is_empty() && s.failure.is_none());
        assert!(s.status.converged && !s.status.serial_fallback && s.warnings.is_empty());
    }
}

#[test]
fn a_walk_that_misses_an_op_is_a_dependence_cycle() {
    let mut p = Problem::new("cycle");
    let n: Vec<_> = ["a", "b", "c", "d"].map(|id| p.add_node(&NodeDef { id, ..NodeDef::default() })).into();
    p.add_edge(n[1], n[2], 1, 0);
    p.add_edge(n[2], n[1], 1, 0);
    assert_eq!(walk(&p).len(), 2);
    for o in [serial(), ScheduleOptions::default()] {
        let e = Scheduler::new().schedule(&p, &o).expect_err("no order");
        assert_eq!(Code::from(e.code), Code::E0306);
        assert!(e.message.contains("b -> c -> b"), "{e}");
    }
}

/// The page has the serial generator drop every constraint but one, silently; ours says what it drops.
#[test]
fn serial_consults_forced_serialisation_alone_and_says_what_it_drops() {
    let one = |change: &dyn Fn(u32, &mut NodeDef<'_>)| {
        let mut p = Problem::new("dropped");
        for (i, id) in ["a", "b", "c"].iter().enumerate() {
            let mut def = NodeDef { id, latency: 4, ..NodeDef::default() };
            change(i as u32, &mut def);
            p.add_node(&def);
        }
        let s = schedule(&p, &serial());
        let texts: Vec<String> = s.warnings.iter().map(|w| format!("{}: {}", w.code, w.message)).collect();
        assert!(s.warnings.iter().all(|w| Code::from(w.code) == Code::W0402));
        (texts.join("; "), s.exclusions.len(), s.start)
    };
    let (none, pairs, plain) = one(&|_, _| {});
    assert_eq!((none.as_str(), pairs), ("", 0));
    let (text, pairs, starts) = one(&|i, d| d.force_serial = i == 1);
    assert_eq!((text.as_str(), pairs, &starts), ("", 1, &plain));
    let (text, _, starts) = one(&|i, d| d.group = (i != 1).then_some(3));
    assert!(text.contains("`group` (2 ops)") && starts == plain, "{text}");
    let (text, _, starts) = one(&|_, d| d.max_depth = 1);
    assert!(text.contains("`max_depth` (3 ops)") && starts == plain, "{text}");
}

// Cost-based generator and its arms.

/// The published example has two of six orders respect "load before read". Three of six do; each of the three, seated
/// greedily, is a schedule, and ours is no worse than the best of them.
#[test]
fn published_permutations_of_three_ops_are_three_and_not_two() {
    let mut p = Problem::new("published");
    let wr = p.add_slot(16, "tp_smem_wr", 1);
    let rd = p.add_slot(15, "tp_smem_rd", 1);
    let hold = |slot, duration| [Use { slot, offset: 0, duration, occupancy: 1 }];
    let load = p.add_node(&NodeDef { id: "load", latency: 8, uses: &hold(wr, 8), ..NodeDef::default() });
    p.add_node(&NodeDef { id: "write", latency: 7, uses: &hold(wr, 7), ..NodeDef::default() });
    let read = p.add_node(&NodeDef { id: "read", latency: 7, uses: &hold(rd, 7), ..NodeDef::default() });
    p.add_edge(load, read, 8, 0);
    let all = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
    let legal: Vec<_> =
        all.iter().filter(|o| o.iter().position(|&k| k == 0) < o.iter().position(|&k| k == 2)).collect();
    assert_eq!(legal.len(), 3);
    // Greedy seats at II 15 by a table of our own: unit of each op, rows held, earliest start.
    let units = [(0, 8u32), (0, 7), (1, 7)];
    let lengths: Vec<u32> = legal
        .iter()
        .map(|order| {
            let mut held = [[false; 15]; 2];
            let mut start = [0u32; 3];
            for &k in *order {
                let (unit, duration) = units[k];
                let from = if k == 2 { start[0] + 8 } else { 0 };
                let rows = |t: u32| (t..t + duration).map(|c| (c % 15) as usize);
                let t =
                    (from..from + 15).find(|&t| rows(t).all(|r| !held[unit][r])).expect("15 rows are enough");
                rows(t).for_each(|r| held[unit][r] = true);
                start[k] = t;
            }
            (0..3).map(|k| start[k] + units[k].1).max().expect("ops")
        })
        .collect();
    assert_eq!(lengths, [15, 15, 22], "the two orders with the load first cost the same");
    let s = schedule(&p, &only(&[Rung::InitialPlacement]));
    let length = p.nodes().map(|n| s.start[n] + p.latency(n)).max();
    assert_eq!((s.ii, length), (15, Some(15)));
    // Nothing is ready together with what it depends on: the read has no place in the first ready set.
    assert!(s.start[read] >= s.start[load] + 8);
}

/// The published example has a write of 7 cycles revived at cycle 8 by "the modulo wrap" at II 8, where the load holds
/// all eight rows. No retry at a later cycle helps at that II; at 15 the write does go to cycle 8.
#[test]
fn published_retry_at_cycle_8_has_no_free_row() {
    let mut p = Problem::new("published");
    let wr = p.add_slot(16, "tp_smem_wr", 1);
    let hold = |duration| [Use { slot: wr, offset: 0, duration, occupancy: 1 }];
    let load = p.add_node(&NodeDef { id: "load", latency: 8, uses: &hold(8), ..NodeDef::default() });
    let write = p.add_node(&NodeDef { id: "write", latency: 7, uses: &hold(7), ..NodeDef::default() });
    for rung in [Rung::DeepestRetry, Rung::InitialPlacement, Rung::CostBasedPlacement] {
        for cap in 8..15 {
            let s = schedule(&p, &ScheduleOptions { ii_cap: Some(cap), ..only(&[rung]) });
            assert!(s.status.serial_fallback, "{} at {cap}", rung.name());
        }
        let s = schedule(&p, &only(&[rung]));
        assert_eq!((s.ii, s.trail.starts[0], s.trail.starts[1]), (15, 0, 8), "{}", rung.name());
    }
    let mut wrong = schedule(&p, &only(&[Rung::DeepestRetry]));
    (wrong.ii, wrong.start[load], wrong.start[write]) = (8, 0, 8);
    assert!(verify(&p, &wrong).iter().any(|v| v.rule == Rule::Slot));
}

/// Seven ops of one group, one of which holds two rows far apart: more orders than the budget, so some are sampled.
#[test]
fn sampled_orders_follow_the_seed_and_nothing_else() {
    let mut p = Problem::new("sampled");
    let slot = p.add_slot(1, "unit", 1);
    let hold = |offset| Use { slot, offset, duration: 1, occupancy: 1 };
    for i in 0..7 {
        let uses = [hold(0), hold(4)];
        let (uses, latency) = if i == 6 { (&uses[..], 1) } else { (&uses[..1], 20) };
        let id = format!("n{i}");
        p.add_node(&NodeDef { id: &id, latency, uses, group: Some(1), ..NodeDef::default() });
    }
    let mut seats = BTreeSet::new();
    for seed in 0..20 {
        let o = ScheduleOptions { seed, permute_budget: 8, ..only(&[Rung::InitialPlacement]) };
        let mut warm = Scheduler::new();
        _ = warm.schedule(&random(seed, true), &o);
        let s = schedule(&p, &o);
        assert_eq!(warm.schedule(&p, &o).as_ref(), Ok(&s), "seed {seed}");
        seats.insert(s.trail.starts);
    }
    assert!(seats.len() > 3, "{} placements from 20 seeds", seats.len());
}

// Admission gates.

const ARMS: [Rung; 3] = [Rung::DeepestRetry, Rung::InitialPlacement, Rung::CostBasedPlacement];

#[test]
fn g1_holds_a_follower_over_and_does_not_kill_it() {
    // Both want the one unit at once; the follower is first in program order and would win.
    let build = |leader_gid| {
        let mut p = Problem::new("held");
        let slot = p.add_slot(1, "unit", 1);
        let uses = [Use { slot, offset: 0, duration: 2, occupancy: 1 }];
        let mut add = |id, own, leader_gid| {
            let extra = NodeExtra { own_gid: Some(own), leader_gid, ..NodeExtra::default() };
            p.add_node(&NodeDef { id, latency: 2, uses: &uses, extra, ..NodeDef::default() })
        };
        let nodes = (add("follower", 3, leader_gid), add("leader", 7, None));
        (p, nodes.0, nodes.1)
    };
    for rung in ARMS {
        let seats = |leader_gid| {
            let (p, follower, leader) = build(leader_gid);
            let s = schedule(&p, &only(&[rung]));
            assert!(!s.status.serial_fallback && s.ii == 4);
            (s.trail.starts[follower.as_u32() as usize], s.trail.starts[leader.as_u32() as usize])
        };
        assert_eq!(seats(None), (0, 2), "{}", rung.name());
        assert_eq!(seats(Some(7)), (2, 0), "{}", rung.name());
    }
}

#[test]
fn g2_lets_zero_pass_and_the_depth_itself_binds_every_rung() {
    // The page has 0 "fire on every attempt"; its own listing passes 0 <= 1. We follow the listing: 0 is unlimited.
    let mut p = Problem::new("free");
    for (id, max_depth) in [("zero", 0), ("one", 1)] {
        p.add_node(&NodeDef { id, latency: 3, max_depth, ..NodeDef::default() });
    }
    for rung in ARMS {
        let o = ScheduleOptions { g2_horizon: G2Horizon::Fixed, ..only(&[rung]) };
        assert!(!schedule(&p, &o).status.serial_fallback);
    }
    // Start at 12 or later: stage 1 at most asks for an interval of 7, two stages are enough for the rest.
    let mut p = Problem::new("bound");
    let slot = p.add_slot(1, "unit", 1);
    let uses = [Use { slot, offset: 0, duration: 1, occupancy: 1 }];
    let first = p.add_node(&NodeDef { id: "first", latency: 12, uses: &uses, ..NodeDef::default() });
    let last = p.add_node(&NodeDef { id: "last", latency: 1, max_depth: 1, ..NodeDef::default() });
    p.add_edge(first, last, 12, 0);
    for rung in Rung::ALL {
        let s = schedule(&p, &only(&[rung]));
        assert_eq!((s.ii, s.stage[last]), (7, 1), "{}", rung.name());
    }
    let s = schedule(&p, &ScheduleOptions::default());
    assert_eq!((s.ii, s.stage[last]), (7, 1));
}

#[test]
fn g3_moves_the_seat_on_by_the_cycles_that_are_taken() {
    let mut p = Problem::new("bump");
    let slot = p.add_slot(1, "unit", 1);
    for (id, duration) in [("a", 2), ("b", 3), ("c", 1)] {
        let uses = [Use { slot, offset: 0, duration, occupancy: 1 }];
        p.add_node(&NodeDef { id, latency: 4, uses: &uses, ..NodeDef::default() });
    }
    let s = schedule(&p, &only(&[Rung::InitialPlacement]));
    assert_eq!((s.ii, s.trail.starts.as_slice()), (6, &[0, 2, 5][..]));
    assert_eq!(s.trail.arms, [Some(Arm::Permute); 3]);
    // At most II candidates: 5 rows are too few, and the attempt ends.
    let o = ScheduleOptions { ii_cap: Some(5), ..only(&[Rung::InitialPlacement]) };
    assert!(schedule(&p, &o).status.serial_fallback);
}

/// A seat in the row of a leader is for its own group; ops without a number are strangers to nobody.
#[test]
fn g4_asks_for_one_depth_per_group_and_keeps_strangers_from_the_row_of_a_leader() {
    let strangers = |own: [Option<u32>; 2]| {
        let mut p = Problem::new("strangers");
        let slot = p.add_slot(19, "tp_tmem_rd", 2);
        let uses = [Use { slot, offset: 0, duration: 4, occupancy: 1 }];
        for (id, own_gid) in ["a", "b"].into_iter().zip(own) {
            let extra = NodeExtra { own_gid, ..NodeExtra::default() };
            p.add_node(&NodeDef { id, latency: 4, uses: &uses, group: own_gid, extra, ..NodeDef::default() });
        }
        p
    };
    let [a, b] = [0, 1].map(Node::from_u32);
    for rung in ARMS {
        for own in [[None, None], [Some(1), None], [Some(1), Some(1)]] {
            let s = schedule(&strangers(own), &only(&[rung]));
            assert_eq!((s.ii, s.start[a], s.start[b]), (4, 0, 0), "{} {own:?}", rung.name());
        }
        // The retry arm alone asks for no other cycle; the others find one.
        let s = schedule(&strangers([Some(1), Some(2)]), &only(&[rung]));
        let refused = rung == Rung::DeepestRetry;
        assert_eq!(s.status.serial_fallback, refused, "{}", rung.name());
        assert!(refused || s.start[a] % s.ii != s.start[b] % s.ii, "{}", rung.name());
    }
    // The other rung and the default generator know groups as stages only.
    for o in [only(&[Rung::RauRefinement]), ScheduleOptions::default()] {
        assert_eq!(schedule(&strangers([Some(1), Some(2)]), &o).ii, 4);
    }
    // Members are held together although the table has a row for one of them in another stage.
    let mut p = Problem::new("members");
    let n: Vec<_> = ["a", "b", "c"]
        .iter()
        .enumerate()
        .map(|(i, id)| {
            let group = (i != 1).then_some(4);
            p.add_node(&NodeDef { id, latency: 5, group, ..NodeDef::default() })
        })
        .collect();
    p.add_edge(n[0], n[1], 5, 0);
    p.add_edge(n[1], n[2], 5, 0);
    for rung in ARMS {
        let s = schedule(&p, &only(&[rung]));
        assert!(s.ii == 11 && s.stage[n[0]] == s.stage[n[2]], "{}", rung.name());
    }
    // A member that is pushed into the next stage, row 1 being the only one left to it, takes the other one along.
    let mut p = Problem::new("pushed");
    let slot = p.add_slot(1, "unit", 1);
    let mut add = |id, duration, group| {
        let uses = [Use { slot, offset: 0, duration, occupancy: 1 }];
        let uses = if duration > 0 { &uses[..] } else { &[] };
        p.add_node(&NodeDef { id, latency: 1, uses, group, ..NodeDef::default() })
    };
    let n = [add("first", 0, None), add("long", 3, None), add("late", 1, Some(1)), add("early", 0, Some(1))];
    for (to, latency) in [(n[1], 2), (n[2], 2), (n[3], 0)] {
        p.add_edge(n[0], to, latency, 0);
    }
    let s = schedule(&p, &only(&[Rung::InitialPlacement]));
    assert_eq!((s.ii, s.trail.starts.as_slice()), (4, &[0, 2, 5, 4][..]));
}

// Generator selection.

#[test]
fn the_selector_is_the_published_predicate_and_our_default_differs_in_one_rule() {
    let bits = |k: u32| (k & 1 != 0, k & 2 != 0, k & 4 != 0, k & 8 != 0, k & 16 != 0);
    for threshold in [8, 0, 3] {
        for op_count in [0, 2, 3, 7, 8, 9, 100] {
            for (has_async_pipeline, has_tma, has_mma, force_serial, reads_ahead) in (0..32).map(bits) {
                let r = RegionSummary {
                    op_count,
                    has_async_pipeline,
                    has_tma,
                    has_mma,
                    reads_ahead: if reads_ahead { 4 } else { 0 },
                    force_serial,
                };
                let o = ScheduleOptions { serial_threshold: threshold, ..ScheduleOptions::default() };
                let literal = ScheduleOptions { selector: SelectorKind::Spec, ..o.clone() };
                // The page, rule by rule, first match wins.
                let rules = [
                    (force_serial, Generator::Serial),
                    (op_count < threshold, Generator::Serial),
                    (!has_async_pipeline && !has_tma && !has_mma, Generator::Serial),
                    (true, Generator::Modulo),
                ];
                let want = rules.iter().find(|(holds, _)| *holds).map(|rule| rule.1).expect("the last holds");
                assert_eq!(select(Some(&r), &literal), want, "{r:?} at {threshold}");
                // By default a small region with asynchronous work is pipelined all the same, and one that reads few registers.
                let rescued = !force_serial && (has_async_pipeline || has_tma || has_mma || reads_ahead);
                let ours = if rescued { Generator::Modulo } else { Generator::Serial };
                assert_eq!(select(Some(&r), &o), ours, "{r:?}");
                // The option chooses, but for a loop that is to be serial.
                let cost = if force_serial { Generator::Serial } else { Generator::CostBased };
                for (scheduler, forced) in
                    [(SchedulerChoice::Serial, Generator::Serial), (SchedulerChoice::CostBased, cost)]
                {
                    assert_eq!(select(Some(&r), &ScheduleOptions { scheduler, ..literal.clone() }), forced);
                }
            }
        }
    }
    assert_eq!(ScheduleOptions::default().serial_threshold, 8);
}

/// A GEMM whose loop body has three ops that count; address arithmetic does not.
const GEMM: &str =
    "kernel @g(%a: view<gmem, ?x?xf16>, %b: view<gmem, ?x?xf16>, %c: view<gmem, ?x?xf16>, %kt: i32) {
  %bm = program_id <{axis = 0}> : i32
  %bn = program_id <{axis = 1}> : i32
  %da = make_tiled_tma_desc %a <{box = [64, 32], swizzle = b64}> : tma_desc<64x32xf16>
  %db = make_tiled_tma_desc %b <{box = [64, 32], swizzle = b64}> : tma_desc<64x32xf16>
  %z = constant 0.0 : tile<64x64xf32>
  %one = constant 1 : i32
  %p = for %i = 0 to %kt step 1 iter (%s = %z : tile<64x64xf32>) {
    %j = addi %i, %one : i32
    %k = subi %j, %one : i32
    %ta = async.tiled_tma_load %da[%bm, %k] : tile<64x32xf16>
    %tb = async.tiled_tma_load %db[%bn, %i] : tile<64x32xf16>
    %n = async.dot %ta, %tb, %s <{transpose_b}> : tile<64x64xf32>
    yield %n : tile<64x64xf32>
  }
  %h = ftof %p : tile<64x64xf16>
  tiled_store %h, %c[%bm, %bn]
  return
}
";

fn settings(pairs: &[&str]) -> Settings {
    let mut b = Settings::builder();
    for pair in pairs {
        b.set_pair(pair).unwrap_or_else(|e| panic!("{e}"));
    }
    b.finish()
}

/// In published weights.
fn compile(pairs: &[&str]) -> (ScheduleAnalysis, Vec<Code>, String) {
    let isa = tileas_isa::isa_for_cpu("sm_100a").expect("known cpu");
    let module = parse_module(GEMM).expect("parses");
    let mut run = Context::new()
        .run_to(
            Stage::Schedule,
            &module,
            &*isa,
            &settings(&[&["published.cycle-model=slot"], pairs].concat()),
        )
        .unwrap_or_else(|e| panic!("{e:?}"));
    let text = run.text(Stage::Schedule);
    let codes = run.warnings.iter().map(|w| w.code).collect();
    (run.kernels.swap_remove(0).schedule.expect("scheduled"), codes, text)
}

#[test]
fn the_summary_of_a_region_is_what_the_selector_reads() {
    let (analysis, ..) = compile(&[]);
    let region = &analysis.regions[0];
    let want = RegionSummary {
        op_count: 3,
        has_async_pipeline: true,
        has_tma: true,
        has_mma: true,
        reads_ahead: 0,
        force_serial: false,
    };
    assert_eq!(region.problem.summary, Some(want));
    assert_eq!(region.schedule.generator, Generator::Modulo);
    // To the letter three ops are too few; the threshold is an option.
    for (pairs, generator) in [
        (&["published.selector=spec"][..], Generator::Serial),
        (&["published.selector=spec", "published.serial-threshold=3"], Generator::Modulo),
        (&["published.selector=spec", "published.serial-threshold=4"], Generator::Serial),
        (&["published.selector=spec", "scheduler=cost"], Generator::CostBased),
        (&["scheduler=serial"], Generator::Serial),
        (&["scheduler=CostBased"], Generator::CostBased),
    ] {
        let (analysis, codes, _) = compile(pairs);
        assert_eq!((analysis.regions[0].schedule.generator, codes.len()), (generator, 0), "{pairs:?}");
    }
    let (analysis, codes, _) = compile(&["scheduler=best"]);
    assert_eq!((analysis.regions[0].schedule.generator, codes), (Generator::CostBased, vec![Code::W0401]));
}

// Strategy orchestration.

const LADDER: [Rung; 4] = Rung::ALL;

#[test]
fn rungs_are_tried_in_the_published_order_and_the_first_success_counts() {
    let names = LADDER.map(|r| r.name());
    assert_eq!(names, ["rau_refinement", "deepest_retry", "initial_placement", "cost_based_placement"]);
    // Every one of them can do this loop, so the earlier of any two does.
    let mut p = Problem::new("easy");
    let slot = p.add_slot(1, "unit", 1);
    let uses = [Use { slot, offset: 0, duration: 3, occupancy: 1 }];
    let n = ["a", "b"].map(|id| p.add_node(&NodeDef { id, latency: 3, uses: &uses, ..NodeDef::default() }));
    p.add_edge(n[0], n[1], 3, 0);
    for (i, &first) in LADDER.iter().enumerate() {
        for &later in &LADDER[i + 1..] {
            for pair in [[first, later], [later, first]] {
                assert_eq!(
                    schedule(&p, &only(&pair)).stats.strategy,
                    Some(Strategy::Ladder(first)),
                    "{}",
                    later.name()
                );
            }
        }
    }
}

/// What the retry rung marked dead stays dead for the placement after it; the second turn starts from nothing.
#[test]
fn the_tail_of_the_ladder_starts_from_a_cleared_state() {
    let (mut first_turns, mut second_turns) = (0, 0);
    for seed in 0..1500 {
        let p = random(seed, true);
        let s = schedule(&p, &only(&[Rung::DeepestRetry, Rung::CostBasedPlacement]));
        if s.stats.strategy != Some(Strategy::Ladder(Rung::CostBasedPlacement)) {
            continue;
        }
        // At that interval the retry rung alone fails, and it fails by a dead op.
        let alone = ScheduleOptions { ii_cap: Some(s.ii), ..only(&[Rung::DeepestRetry]) };
        let dead = schedule(&p, &alone);
        assert!(dead.status.serial_fallback, "seed {seed}");
        if s.ii == s.bounds.max() {
            // More steps than the two rungs take by themselves: the placement had a turn before, which failed.
            let placed = schedule(&p, &only(&[Rung::CostBasedPlacement]));
            assert!(s.stats.steps > dead.stats.steps + placed.stats.steps, "seed {seed}");
            first_turns += 1;
        }
        second_turns += 1;
        assert!(s.trail.arms.iter().all(|&a| a == Some(Arm::CostBased)));
    }
    assert!(first_turns > 5 && second_turns > 10, "{first_turns} {second_turns}");
}

#[test]
fn harder_rungs_only_lower_the_interval() {
    for seed in 0..60 {
        let p = random(seed, true);
        let mut last = u32::MAX;
        for n in 0..=LADDER.len() {
            let s = schedule(&p, &only(&LADDER[..n]));
            assert!(s.ii <= last, "seed {seed}, {n} rungs");
            assert_eq!(s.status.serial_fallback, s.stats.strategy.is_none());
            last = s.ii;
        }
    }
}

// Output contract; overview.

#[test]
fn both_generators_publish_the_same_fields() {
    for seed in 0..40 {
        let p = random(seed, true);
        let all =
            ScheduleOptions { arm_policy: ArmPolicy::FirstSuccess, ii_search: IiSearch::Auto, ..serial() };
        for o in
            [all, ScheduleOptions { scheduler: SchedulerChoice::CostBased, ..ScheduleOptions::default() }]
        {
            let s = schedule(&p, &o);
            let n = p.num_nodes();
            assert_eq!((s.start.len(), s.stage.len(), s.order.len()), (n, n, n));
            assert!(s.ii >= s.bounds.max() && s.stage_count >= s.code_stages() && s.name == p.name());
            // (stage, order) is a total order: no two ops share a rank, whatever their stages.
            let ranks: BTreeSet<u32> = s.order.values().copied().collect();
            assert_eq!(ranks, (0..n as u32).collect());
            for w in s.by_order().windows(2) {
                let key = |n: Node| (s.stage[n], s.start[n]);
                assert!(key(w[0]) <= key(w[1]), "seed {seed}");
                if key(w[0]) == key(w[1]) {
                    let needs =
                        |a, b| p.edges().values().any(|e| e.from == a && e.to == b && e.distance == 0);
                    assert!(!needs(w[1], w[0]), "seed {seed}");
                }
            }
            // The same input, the same bytes.
            assert_eq!(format!("{s:?}"), format!("{:?}", schedule(&p, &o)));
        }
    }
}

#[test]
fn refinement_rounds_are_bounded_by_their_option() {
    assert_eq!(Settings::default().max_constraint_iterations(), &16);
    // One slot where the schedule wants two asks for another round; without rounds the first schedule stands, and a
    // round that gains nothing changes nothing.
    for rounds in ["0", "1", "16"] {
        let (analysis, _, text) =
            compile(&["pipeline-depth=1", &format!("published.max-constraint-iterations={rounds}")]);
        assert_eq!(analysis.regions[0].schedule.ii, 16, "{rounds}");
        assert!(text.contains("2 slots are needed, there are 1"), "{text}");
    }
    assert_eq!(settings(&["published.max_constraint_iterations=3"]).max_constraint_iterations(), &3);
}

#[test]
fn scheduling_options_have_their_published_names_and_defaults() {
    let list = Settings::list();
    for (name, default, allowed) in [
        ("scheduler", "auto", "auto, serial, cost, optimal"),
        ("published.selector", "auto", "auto, spec"),
        ("published.serial-threshold", "8", "0 to 1000000"),
        ("published.max-constraint-iterations", "16", "0 to 1000"),
        ("published.rrt-size-threshold", "4096", "0 to 2147483647"),
        ("published.arm-policy", "first-success", "first-success, lowest-cost, permute"),
        ("published.g2-horizon", "growing", "growing, fixed"),
        ("search.permute-budget", "24", "1 to 1000000"),
        ("search.ii-cap", "serial", "serial, or 1 to 2147483647"),
        ("search.ii-search", "auto", "auto, linear, gallop"),
        ("max-stages", "unlimited", "unlimited, or 1 to 1000000"),
        ("require-pipelining", "false", "true, false"),
        ("published.latency-ceilings", "false", "true, false"),
        ("published.spill-budget", "unlimited", "unlimited, or 1 to 1000000"),
        ("published.constraint-mode", "spec", "spec, strict"),
        ("published.cycle-model", "real", "slot, real"),
        ("search.seed", "0", "0 to 18446744073709551615"),
        ("tune.fuse-reads", "false", "true, false"),
        ("pipeline-strategy", "auto", "auto, none, unspecialized, warp-specialize"),
        ("published.light-specialization", "false", "true, false"),
        ("published.verify-mem-semantics", "public", "public, book"),
    ] {
        let o = list.iter().find(|o| o.name == name).unwrap_or_else(|| panic!("no option {name}"));
        assert_eq!((o.default.as_str(), o.allowed.to_string().as_str()), (default, allowed), "{name}");
    }
    // Each arrives where the scheduler reads it.
    let o = settings(&[
        "scheduler=serial",
        "published.selector=spec",
        "published.serial-threshold=5",
        "published.rrt-size-threshold=7",
        "published.arm-policy=lowest-cost",
        "published.g2-horizon=fixed",
        "search.permute-budget=3",
        "search.ii-cap=99",
        "search.ii-search=gallop",
        "max-stages=2",
        "require-pipelining",
        "published.latency-ceilings",
        "published.spill-budget=40",
        "search.seed=6",
    ])
    .schedule_options();
    let want = ScheduleOptions {
        scheduler: SchedulerChoice::Serial,
        selector: SelectorKind::Spec,
        serial_threshold: 5,
        rrt_size_threshold: 7,
        arm_policy: ArmPolicy::LowestCost,
        g2_horizon: G2Horizon::Fixed,
        permute_budget: 3,
        ii_cap: Some(99),
        ii_search: IiSearch::Gallop,
        max_stages: Some(2),
        require_pipelining: true,
        latency_ceilings: Some((5_000, 7_000)),
        spill_budget: Some(40),
        seed: 6,
        ..ScheduleOptions::default()
    };
    assert_eq!(o, want);
}

#[test]
fn the_analysis_reaches_the_next_pass_by_op_and_without_a_table() {
    let (analysis, ..) = compile(&[]);
    let region = &analysis.regions[0];
    let result = analysis.loops[region.for_op].as_ref().expect("by loop");
    assert_eq!((result.ii, result.stage_count, result.serial), (16, region.schedule.stage_count, false));
    assert_eq!(result.scheduled.len(), 3);
    for (node, &op) in region.ops.iter() {
        assert_eq!(result.start[op], region.schedule.start[node]);
        assert_eq!(result.order[op], region.schedule.order[node]);
        assert_eq!(analysis.node_of[op].expand(), Some(node));
    }
    // Made again from the same source it is the same.
    assert_eq!(compile(&[]).2, compile(&[]).2);
}

// Strategies of pipelines.

/// Agents, generator and slots of the GEMM under a strategy, and whether it gets as far as PTX.
fn strategy(pairs: &[&str]) -> (Vec<&'static str>, Generator, Vec<u32>) {
    let isa = tileas_isa::isa_for_cpu("sm_100a").expect("known cpu");
    let module = parse_module(GEMM).expect("parses");
    let run = Context::new()
        .run_to(Stage::Ptx, &module, &*isa, &settings(pairs))
        .unwrap_or_else(|e| panic!("{pairs:?}: {e:?}"));
    let kernel = &run.kernels[0];
    assert!(kernel.ptx.contains(".entry"));
    let plan = kernel.plan.as_ref().expect("agents");
    let slots = kernel.buffers.as_ref().expect("buffers").pipes.values().map(|p| p.depth).collect();
    let generator = kernel.schedule.as_ref().expect("scheduled").regions[0].schedule.generator;
    (plan.agents.values().map(|a| a.kind.name()).collect(), generator, slots)
}

#[test]
fn pipeline_strategies_choose_agents_and_overlap() {
    let (agents, generator, slots) = strategy(&[]);
    assert_eq!((agents.as_slice(), generator), (&["simt", "load", "mma"][..], Generator::Modulo));
    assert!(slots[0] > 1, "{slots:?}");
    // This target has TMA: the default specialises.
    assert_eq!(strategy(&["pipeline-strategy=warp-specialize"]), (agents, generator, slots));
    let (agents, generator, slots) = strategy(&["pipeline-strategy=none"]);
    assert_eq!((agents.len(), generator), (3, Generator::Serial));
    assert!(slots.iter().all(|&n| n == 1), "{slots:?}");
    let (agents, generator, _) = strategy(&["pipeline-strategy=unspecialized"]);
    assert_eq!((agents.as_slice(), generator), (&["simt", "mma"][..], Generator::Modulo));
    // Loads that the kernel has as plain ones stay where they are.
    let plain = "kernel @k(%x: view<gmem, ?x?xf32>, %y: view<gmem, ?x?xf32>, %n: i32) {
  %b = program_id <{axis = 0}> : i32
  for %i = 0 to %n step 1 {
    %t = tiled_load %x[%b, %i] : tile<128x32xf32>
    %u = addf %t, %t : tile<128x32xf32>
    tiled_store %u, %y[%b, %i]
  }
  return
}
";
    let isa = tileas_isa::isa_for_cpu("sm_100a").expect("known cpu");
    let module = parse_module(plain).expect("parses");
    let agents = |pairs: &[&str]| {
        let run = Context::new().run_to(Stage::Schedule, &module, &*isa, &settings(pairs)).expect("compiles");
        run.kernels[0].plan.as_ref().expect("agents").agents.len()
    };
    assert_eq!([agents(&[]), agents(&["pipeline-strategy=unspecialized"])], [2, 1]);
}

/// The variant that a table size of 0 selects on one page is an option of its own: one agent issues loads and products.
#[test]
fn light_specialization_is_one_issuing_agent() {
    let (agents, generator, _) = strategy(&["published.light-specialization"]);
    assert_eq!((agents.as_slice(), generator), (&["simt", "mma"][..], Generator::Modulo));
    // The table size has nothing to do with it.
    assert_eq!(strategy(&["published.rrt-size-threshold=0"]).0, ["simt", "load", "mma"]);
}

// The page that maps statements to tests.

/// Every `file::function` on `docs/spec-tests.md` is a test in that file, every `.tileas` file exists, and every test of
/// the five files made for the page is on it. Paths begin in this crate, in the workspace or in the filetests.
#[test]
fn every_test_the_page_names_exists() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = here.parent().expect("in a workspace");
    let page = std::fs::read_to_string(root.join("docs/spec-tests.md")).expect("the page");
    let read = |file: &str| {
        let places = [here.to_owned(), root.to_owned(), root.join("filetests/filetests")];
        places.iter().find_map(|place| std::fs::read_to_string(place.join(file)).ok())
    };
    let mut wrong = Vec::new();
    let mut named = 0;
    for code in page.split('`').skip(1).step_by(2).filter(|c| c.contains(".rs::") || c.ends_with(".tileas")) {
        named += 1;
        let (file, function) = code.split_once("::").unwrap_or((code, ""));
        let Some(text) = read(file) else {
            wrong.push(format!("no file: {code}"));
            continue;
        };
        // The attribute stands directly above, but for comments and other attributes.
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        let at = lines.iter().position(|l| l.starts_with(&format!("fn {function}(")));
        let is_test = at.is_some_and(|at| {
            let mut above =
                lines[..at].iter().rev().take_while(|l| l.starts_with("#[") || l.starts_with("//"));
            above.any(|l| *l == "#[test]")
        });
        if !function.is_empty() && !is_test {
            wrong.push(format!("no test: {code}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(named > 100, "{named} tests are named");
    for file in [
        "tests/spec_constraints.rs",
        "tests/spec_generators.rs",
        "tests/spec_glue.rs",
        "tests/spec_materialize.rs",
        "tileas-schedule/tests/spec_modulo.rs",
    ] {
        let text = read(file).expect("a test file");
        let lines: Vec<&str> = text.lines().collect();
        for w in lines.windows(2).filter(|w| w[0] == "#[test]") {
            let name = w[1].trim_start_matches("fn ").trim_end_matches("() {");
            assert!(page.contains(&format!("`{file}::{name}`")), "{file}::{name} is not on the page");
        }
    }
}
