//! Refinement rounds: who asks for what and why, what is kept, what is lifted, how it ends.
//!
//! Expected cycles are worked out by hand from the footprints (TMA 8, copies 7, MMA 8 and 16 to a reader); registers held
//! are counted by running the loop.

use tileas_codegen::ir::{Op, Opcode, parse_module};
use tileas_codegen::schedule::{
    CycleModel, Generator, Node, NodeDef, NodeExtra, Problem, RegionSchedule, ScheduleOptions,
};
use tileas_codegen::settings::ConstraintMode;
use tileas_codegen::testing::agents::{AgentOptions, plan_agents};
use tileas_codegen::testing::constraints::parse_constraints;
use tileas_codegen::testing::ddg::{
    Extra, Family, RoundStatus, ScheduleAnalysis, Scheduler, register_peak, schedule_function_with,
};
use tileas_codegen::testing::place::{PlaceOptions, place};
use tileas_codegen::{Code, Context, Settings, Stage, StageRun};

/// A product of tiles; two loads of 8 cycles, a product of 8 that is ready after 16.
fn gemm(trips: &str, attrs: &str) -> String {
    format!(
        "kernel @g(%a: view<gmem, ?x?xf16>, %b: view<gmem, ?x?xf16>, %c: view<gmem, ?x?xf16>, %kt: i32) {{
  %bm = program_id <{{axis = 0}}> : i32
  %bn = program_id <{{axis = 1}}> : i32
  %da = make_tiled_tma_desc %a <{{box = [64, 32], swizzle = b64}}> : tma_desc<64x32xf16>
  %db = make_tiled_tma_desc %b <{{box = [64, 32], swizzle = b64}}> : tma_desc<64x32xf16>
  %z = constant 0.0 : tile<64x64xf32>
  %p = for %i = 0 to {trips} step 1 iter (%s = %z : tile<64x64xf32>) {{
    %ta = async.tiled_tma_load %da[%bm, %i] : tile<64x32xf16>
    %tb = async.tiled_tma_load %db[%bn, %i] : tile<64x32xf16>
    %n = async.dot %ta, %tb, %s <{{transpose_b{attrs}}}> : tile<64x64xf32>
    yield %n : tile<64x64xf32>
  }}
  %h = ftof %p : tile<64x64xf16>
  tiled_store %h, %c[%bm, %bn]
  return
}}
"
    )
}

/// A stream of tiles through registers: loaded, multiplied, added, compared, staged, stored.
fn stream(trips: &str) -> String {
    format!(
        "kernel @s(%x: view<gmem, ?x?xf32>, %y: view<gmem, ?x?xf32>, %c: view<gmem, ?x?xf32>, %n: i32) {{
  %b = program_id <{{axis = 0}}> : i32
  for %i = 0 to {trips} step 1 {{
    %p = tiled_load %x[%b, %i] : tile<128x32xf32>
    %q = tiled_load %y[%b, %i] : tile<128x32xf32>
    %m = mulf %p, %q : tile<128x32xf32>
    %s = addf %m, %p : tile<128x32xf32>
    %t = maxf %s, %q : tile<128x32xf32>
    tiled_store %t, %c[%b, %i]
  }}
  return
}}
"
    )
}

/// In published weights, by which the rounds here can be reckoned.
fn run_to(stage: Stage, text: &str, pairs: &[&str]) -> StageRun {
    let isa = tileas_isa::isa_for_cpu("sm_100a").expect("known cpu");
    let module = parse_module(text).unwrap_or_else(|e| panic!("{e}"));
    let mut b = Settings::builder();
    for pair in ["published.cycle-model=slot"].iter().chain(pairs) {
        b.set_pair(pair).unwrap_or_else(|e| panic!("{e}"));
    }
    Context::new().run_to(stage, &module, &*isa, &b.finish()).unwrap_or_else(|e| panic!("{e:?}"))
}

fn schedule(text: &str, pairs: &[&str]) -> (RegionSchedule, String) {
    let mut run = run_to(Stage::Schedule, text, pairs);
    let shown = run.text(Stage::Schedule);
    let mut analysis = run.kernels.swap_remove(0).schedule.expect("scheduled");
    (analysis.regions.swap_remove(0).schedule, shown)
}

#[test]
fn a_kernel_nobody_asks_anything_of_has_no_rounds() {
    let (s, text) = schedule(&gemm("%kt", ""), &[]);
    assert!(s.rounds.is_empty() && s.status.converged && !s.status.truncated);
    assert!(!text.contains("round 1"));
}

/// One slot: the next loads wait until the product has read it, 8 + 8 + 8 = 24 cycles. A schedule for one slot takes as
/// many, so the request is lifted and the first schedule stays.
#[test]
fn a_reject_that_gains_nothing_is_lifted_with_its_reason() {
    let (s, text) = schedule(&gemm("%kt", ""), &["pipeline-depth=1"]);
    let [round] = s.rounds.as_slice() else { panic!("{text}") };
    assert_eq!((round.number, round.cycles, round.kept), (1, (24, Some(24)), false));
    let [request] = round.added.as_slice() else { panic!("{text}") };
    assert_eq!((request.family, request.asker), (Family::Reject, "buffers"));
    assert_eq!(request.why, "Pipe_0 has 1 slots of the 2 that the schedule needs");
    assert_eq!(request.rule, "op2 -> op0 (latency 8, distance 1), op2 -> op1 (latency 8, distance 1)");
    assert_eq!(round.lifted, [(0, "nothing is better with it".to_owned())]);
    assert_eq!(round.status, RoundStatus::CONVERGED);
    assert!(s.status.converged && s.ii == 16);
    for part in ["round 1 (status 1)", "+ 0 Reject (buffers)", "- 0 lifted"] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
}

/// 60 000 bytes hold the two slots of the load and one of the store. The store's staging copy (7 cycles to shared memory, 16
/// later the store has read it, for 8) may then start every 16 + 7 = 23 cycles, where the first schedule, made for two slots, would
/// be slowed to more.
#[test]
fn a_reject_that_gains_is_kept() {
    let (s, text) = schedule(&stream("%n"), &["smem-bytes=60000"]);
    let [round] = s.rounds.as_slice() else { panic!("{text}") };
    assert!(round.kept && round.lifted.is_empty(), "{text}");
    assert_eq!((round.added[0].family, round.cycles.1), (Family::Reject, Some(s.ii)));
    assert!(round.cycles.0 > s.ii, "{text}");
    // The edge it asked for holds: the last reader of the slot is through before the next copy begins.
    let [copy, store] = [s.start.keys().nth(6), s.start.keys().nth(7)].map(|n| n.expect("eight ops"));
    assert!(s.start[store] + 8 <= s.start[copy] + s.ii, "{text}");
    let (unlimited, _) = schedule(&stream("%n"), &[]);
    assert!(unlimited.rounds.is_empty() && unlimited.ii == 16);
}

/// Without a round left the request stands unanswered: that is said by a bit, in the text, and by a warning of the
/// materialiser, which gets the first schedule.
#[test]
fn the_round_limit_truncates_and_says_so() {
    let pairs = ["pipeline-depth=1", "published.max-constraint-iterations=0"];
    let (s, text) = schedule(&gemm("%kt", ""), &pairs);
    assert!(s.rounds.is_empty() && s.status.truncated && !s.status.converged, "{text}");
    assert!(text.contains(", truncated"));
    let run = run_to(Stage::Materialized, &gemm("%kt", ""), &pairs);
    let analysis = run.kernels[0].schedule.as_ref().expect("scheduled");
    let status = analysis.regions[0].schedule.status;
    assert!(status.truncated && !status.converged && !status.serial_fallback && !status.budget_exceeded);
    let warning = run.warnings.iter().find(|w| w.code == Code::W0404).expect("a warning");
    assert!(warning.message.contains("`g/loop0`") && warning.message.contains("0 rounds"), "{warning}");
    assert!(warning.location.is_some());
    // With a round the same request is settled.
    let run = run_to(
        Stage::Materialized,
        &gemm("%kt", ""),
        &["pipeline-depth=1", "published.max-constraint-iterations=1"],
    );
    assert!(run.warnings.iter().all(|w| w.code != Code::W0404));
    let status = run.kernels[0].schedule.as_ref().expect("scheduled").regions[0].schedule.status;
    assert!(status.converged && !status.truncated);
    assert_eq!((RoundStatus::CONVERGED.bits(), RoundStatus::BUDGET_EXCEEDED.bits()), (0b01, 0b10));
}

/// Of two rounds that a loop would take the first is the last one allowed: its own status says so, too.
#[test]
fn the_last_round_allowed_says_that_more_was_asked_for() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let file = root.join("../filetests/filetests/stages/scalar_coordinate.tileas");
    let file = std::fs::read_to_string(file).expect("a kernel");
    let text = file.split("; ----").next().expect("its text");
    let rounds = |most: &str| {
        let most = format!("published.max-constraint-iterations={most}");
        let (s, text) = schedule(text, &["published.cycle-model=real", &most]);
        (s.rounds.iter().map(|r| r.status.bits()).collect::<Vec<_>>(), s.status.truncated, text)
    };
    let (status, truncated, text) = rounds("2");
    assert_eq!((status.as_slice(), truncated), (&[0b00, 0b01][..], false), "{text}");
    let (status, truncated, text) = rounds("1");
    assert_eq!((status.as_slice(), truncated), (&[0b10][..], true), "{text}");
    assert!(text.contains("round 1 (status 2)"), "{text}");
}

/// A loop that runs once overlaps with nothing: the serial schedule is as long (8 + 8 + 16), and holds one slot less.
#[test]
fn a_loop_of_one_trip_is_forced_serial() {
    let (s, text) = schedule(&gemm("1", ""), &["tune.unroll-ops=0"]);
    let [round] = s.rounds.as_slice() else { panic!("{text}") };
    assert_eq!((round.added[0].family, round.added[0].asker), (Family::ForceSerial, "schedule"));
    assert!(round.added[0].why.contains("runs 1 times"), "{text}");
    assert_eq!((round.cycles, round.kept, s.generator), ((32, Some(32)), true, Generator::Serial));
    // Where it would take longer it is lifted: two loads of the stream take turns anyway, but the rest overlaps.
    let (s, text) = schedule(&gemm("2", ""), &[]);
    assert!(s.rounds.is_empty() && s.generator == Generator::Modulo, "{text}");
}

/// Two trips through four stages: never are more than two at work. With two stages the interval grows and the whole
/// takes less: (trips - 1) x II + length.
#[test]
fn depth_beyond_the_trip_count_is_limited() {
    let total = |s: &RegionSchedule, trips: u32| {
        // The last op is the TMA store, 8 cycles.
        (trips - 1) * s.ii + s.start.values().max().expect("ops") + 8
    };
    let (deep, _) = schedule(&stream("%n"), &[]);
    assert_eq!(deep.code_stages(), 4);
    let (s, text) = schedule(&stream("2"), &[]);
    let round = s.rounds.first().unwrap_or_else(|| panic!("{text}"));
    assert_eq!(round.added[0].family, Family::MaxDepth);
    assert!(round.added[0].rule.ends_with("at stage 1 at most"), "{text}");
    assert!(round.kept, "{text}");
    assert!(s.code_stages() <= 2 && total(&s, 2) < total(&deep, 2), "{text}");
    assert_eq!(round.cycles.1, Some(total(&s, 2).div_ceil(2)));
    // With trips enough nobody asks.
    assert!(schedule(&stream("4"), &[]).0.rounds.is_empty());
}

#[test]
fn register_pressure_asks_for_an_order_that_holds_less() {
    // Without steps for shorter lives what is found keeps its values longer than they need.
    let (s, text) = schedule(&stream("%n"), &["published.spill-budget=60", "search.lifetime-steps=0"]);
    let round = s.rounds.first().unwrap_or_else(|| panic!("{text}"));
    let request = &round.added[0];
    assert_eq!((request.family, request.asker), (Family::RegisterPressure, "registers"));
    // 128 x 32 elements in 128 threads are 32 registers: both loads and their product, instead of those and another load.
    assert!(request.why.contains("holds 128 registers of 60, and no more than 96 in this order"), "{text}");
    assert!(request.rule.ends_with("distance 1)"), "{text}");
    // 32 registers above the budget cost more than 5 cycles.
    assert_eq!((round.cycles, round.kept, s.ii), ((16, Some(21)), true, 21), "{text}");
    assert!(s.status.converged, "{text}");
    let (s, text) = schedule(&stream("%n"), &["published.spill-budget=200"]);
    assert!(s.rounds.is_empty(), "{text}");
}

/// Registers held behind each op, counted instance by instance over many iterations that run by time.
fn counted(p: &Problem, s: &RegionSchedule, agent: u32) -> u32 {
    const FAR: i64 = 60;
    let ii = i64::from(s.ii);
    let mine: Vec<Node> = p.nodes().filter(|&n| p.extra(n).simt_agent == Some(agent)).collect();
    let Some(first) = mine.iter().map(|&u| i64::from(s.start[u])).min() else { return 0 };
    let time = |u: Node, k: i64| i64::from(s.start[u]) + k * ii;
    let mut run: Vec<(i64, Node, i64)> =
        (0..2 * FAR).flat_map(|k| mine.iter().map(move |&u| (time(u, k), u, k))).collect();
    run.sort_unstable_by_key(|&(t, u, _)| (t, s.start[u], u));
    let at = |u: Node, k: i64| run.iter().position(|&(_, v, n)| (v, n) == (u, k)).unwrap_or(run.len());
    let renames = |u: Node| p.extra(u).held == 0 && p.extra(u).registers > 0;
    // The position and the time of the last reader of a result.
    fn last(
        p: &Problem,
        u: Node,
        k: i64,
        mine: &[Node],
        at: &dyn Fn(Node, i64) -> usize,
        time: &dyn Fn(Node, i64) -> i64,
    ) -> (usize, i64) {
        let mut end = (at(u, k), time(u, k));
        for e in p.edges().values().filter(|e| e.from == u && mine.contains(&e.to) && e.latency > 0) {
            let k = k + i64::from(e.distance);
            let renames = p.extra(e.to).held == 0 && p.extra(e.to).registers > 0;
            end = end.max(if renames {
                last(p, e.to, k, mine, at, time)
            } else {
                (at(e.to, k), time(e.to, k))
            });
        }
        end
    }
    let step = |t: i64| (t - first).div_euclid(ii);
    let mut held = vec![0; run.len()];
    for &(t, u, k) in run.iter().filter(|&&(t, ..)| step(t) < FAR + 2) {
        let (end, then) = last(p, u, k, &mine, &at, &time);
        let registers = match renames(u) {
            true if step(then) == step(t) => 0,
            true => p.extra(u).registers,
            false => p.extra(u).held,
        };
        held[at(u, k)..end.max(at(u, k))].iter_mut().for_each(|h| *h += registers);
    }
    let steady = run.iter().zip(&held).filter(|((t, ..), _)| step(*t) == FAR);
    steady.map(|(_, &h)| h).max().unwrap_or(0)
}

#[test]
fn the_peak_of_registers_is_what_running_the_loop_counts() {
    let mut seed = 7_u64;
    let mut below = |n: u32| {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((seed >> 33) % u64::from(n)) as u32
    };
    let mut high = 0;
    for _ in 0..200 {
        let mut p = Problem::new("random");
        let n = 2 + below(6);
        for k in 0..n {
            let registers = below(40);
            let held = if below(4) == 0 { 0 } else { registers };
            let extra = NodeExtra { simt_agent: Some(below(2)), registers, held, ..NodeExtra::default() };
            p.add_node(&NodeDef { id: &format!("n{k}"), extra, ..NodeDef::default() });
        }
        for _ in 0..2 * n {
            let (a, b) = (Node::from_u32(below(n)), Node::from_u32(below(n)));
            // Names of names end somewhere.
            if a < b || p.extra(b).held > 0 {
                p.add_edge(a, b, 1, below(3));
            }
        }
        let mut s = RegionSchedule { ii: 1 + below(9), ..RegionSchedule::default() };
        (0..n).for_each(|_| _ = s.start.push(below(40)));
        for agent in 0..2 {
            let peak = register_peak(&p, &s, agent);
            assert_eq!(peak, counted(&p, &s, agent), "{p:?} {s:?}");
            high += u32::from(peak > 80);
        }
    }
    assert!(high > 50, "{high}");
}

/// What the user wrote stays: a soft limit above it changes nothing, a soft set joins the user's group.
#[test]
fn constraints_of_the_user_are_hard() {
    let key = ", tileas.schedule.constraint.gid = 4 : i32, tileas.schedule.constraint.leader_gid = 4 : i32, tileas.schedule.constraint.max_depth = 1 : i32";
    let isa = tileas_isa::isa_for_cpu("sm_100a").expect("known cpu");
    let module = parse_module(&gemm("%kt", key)).unwrap_or_else(|e| panic!("{e}"));
    let func = &module.functions[0];
    let plan = plan_agents(func, &*isa, &AgentOptions::default()).expect("agents");
    let (func, plan) = place(func, &plan, &*isa, &PlaceOptions::default()).expect("placement");
    let (constraints, _) = parse_constraints(&func, func.all_ops(), ConstraintMode::Spec);
    let of = |opcode| func.all_ops().into_iter().filter(|&o| func.opcode(o) == opcode).collect::<Vec<Op>>();
    let (loads, dot) = (of(Opcode::AsyncTiledTmaLoad), of(Opcode::AsyncDot)[0]);
    let made = |extra: &Extra| -> ScheduleAnalysis {
        let o = ScheduleOptions { cycle_model: CycleModel::Slot, ..ScheduleOptions::default() };
        schedule_function_with(&func, &plan, &constraints, &*isa, &mut Scheduler::new(), &o, extra)
            .expect("schedules")
    };
    let (plain, deep) =
        (made(&Extra::default()), made(&Extra { depths: vec![(dot, 7)], ..Extra::default() }));
    let seat = |a: &ScheduleAnalysis, op| {
        let (region, node) = a.node(op).expect("a start");
        (region.problem.max_depth(node), region.problem.group(node))
    };
    assert_eq!(seat(&deep, dot), seat(&plain, dot));
    assert_eq!(seat(&plain, dot).0, 1);
    // One more limit, and the loads in the group of the product: all in one stage, so nothing overlaps.
    let both = made(&Extra {
        depths: vec![(loads[0], 3)],
        groups: vec![vec![loads[0], loads[1], dot]],
        ..Extra::default()
    });
    assert_eq!(seat(&both, loads[0]), (3, seat(&plain, dot).1));
    let stages: Vec<_> = [loads[0], loads[1], dot]
        .iter()
        .map(|&op| both.regions[0].schedule.stage[both.node(op).expect("a start").1])
        .collect();
    assert!(stages.iter().all(|s| *s == stages[0]), "{stages:?}");
    let serial = made(&Extra { serial: vec![both.regions[0].for_op], ..Extra::default() });
    assert_eq!(serial.regions[0].schedule.generator, Generator::Serial);
}

#[cfg(feature = "serde")]
#[test]
fn documents_carry_the_rounds() {
    let run = run_to(Stage::Schedule, &gemm("%kt", ""), &["pipeline-depth=1"]);
    let analysis = run.kernels[0].schedule.as_ref().expect("scheduled");
    let v: serde_json::Value = serde_json::from_str(&analysis.to_json()).expect("a document");
    let round = &v["rounds"][0];
    assert_eq!((round["number"].as_u64(), round["status"].as_u64()), (Some(1), Some(1)));
    assert_eq!(round["added"][0]["family"], "Reject");
    assert_eq!(round["added"][0]["asker"], "buffers");
    assert_eq!(round["lifted"][0]["why"], "nothing is better with it");
    assert_eq!((round["cycles"].as_u64(), round["cycles_on_trial"].as_u64()), (Some(24), Some(24)));
    assert!(v["status"].get("truncated").is_none());
    // What has no rounds says nothing of them.
    let run = run_to(Stage::Schedule, &gemm("%kt", ""), &[]);
    let text = run.kernels[0].schedule.as_ref().expect("scheduled").to_json();
    assert!(!text.contains("rounds") && !text.contains("truncated"));
    let run = run_to(
        Stage::Schedule,
        &gemm("%kt", ""),
        &["pipeline-depth=1", "published.max-constraint-iterations=0"],
    );
    let text = run.kernels[0].schedule.as_ref().expect("scheduled").to_json();
    let v: serde_json::Value = serde_json::from_str(&text).expect("a document");
    assert_eq!(
        (v["status"]["truncated"].as_bool(), v["status"]["converged"].as_bool()),
        (Some(true), Some(false))
    );
}

/// An accumulator of before the loop that every iteration goes on with: a copy of it and the product are the parts of one tile.
#[test]
fn parts_of_one_tile_ask_for_one_depth() {
    let text =
        "kernel @k(%a: view<gmem, ?x?xf16>, %b: view<gmem, ?x?xf16>, %p: view<gmem, ?x?xf32>, %n: i32) {
  %z = constant 0.0 : tile<64x64xf32>
  %ta = tiled_load %a[0, 0] : tile<64x64xf16>
  %tb = tiled_load %b[0, 0] : tile<64x64xf16>
  %p0 = dot %ta, %tb, %z : tile<64x64xf32>
  for %i = 0 to %n step 1 {
    %tc = tiled_load %a[0, %i] : tile<64x64xf16>
    %d = dot %tc, %tb, %p0 : tile<64x64xf32>
    tiled_store %d, %p[%i, 0]
  }
  tiled_store %p0, %p[0, 0]
  return
}
";
    let (s, text) = schedule(text, &[]);
    let [round] = s.rounds.as_slice() else { panic!("{text}") };
    let [request] = round.added.as_slice() else { panic!("{text}") };
    assert_eq!((request.family, request.asker), (Family::Structural, "buffers"));
    assert!(request.why.contains("parts of one tile") && request.rule.ends_with("share a stage"), "{text}");
    assert_eq!(round.lifted.len(), 1, "{text}");
}

/// Little memory: a ring of the second loop lacks slots, and two of the first are asked to live a turn less. With both an iteration
/// takes longer, so that the second request is lifted and the first gets a round of its own.
#[test]
fn what_gains_nothing_is_lifted_one_by_one() {
    let text =
        "kernel @k(%a: view<gmem, ?x?xf16>, %b: view<gmem, ?x?xf16>, %c: view<gmem, ?x?xf16>, %n: i32) {
  %bm = program_id <{axis = 0}> : i32
  %bn = program_id <{axis = 1}> : i32
  %da = make_tiled_tma_desc %a <{box = [128, 64], swizzle = b128}> : tma_desc<128x64xf16>
  %db = make_tiled_tma_desc %b <{box = [64, 64], swizzle = b128}> : tma_desc<64x64xf16>
  %z = constant 0.0 : tile<128x64xf32>
  %p = for %i = 0 to %n step 1 iter (%s = %z : tile<128x64xf32>) {
    %h = ftof %s : tile<128x64xf16>
    tiled_store %h, %c[%bm, %bn]
    %ta = async.tiled_tma_load %da[%bm, %i] : tile<128x64xf16>
    %tb = async.tiled_tma_load %db[%bn, %i] : tile<64x64xf16>
    %d = async.dot %ta, %tb, %s <{transpose_b}> : tile<128x64xf32>
    yield %d : tile<128x64xf32>
  }
  %r = for %j = 2 to %n step 1 iter (%t = %p : tile<128x64xf32>) {
    %va = async.tiled_tma_load %da[%bm, %j] : tile<128x64xf16>
    %vb = async.tiled_tma_load %db[%bn, %j] : tile<64x64xf16>
    %d1 = async.dot %va, %vb, %t <{transpose_b}> : tile<128x64xf32>
    %wa = async.tiled_tma_load %da[%bm, %j] : tile<128x64xf16>
    %wb = async.tiled_tma_load %db[%bn, %j] : tile<64x64xf16>
    %d2 = async.dot %wa, %wb, %d1 <{transpose_b}> : tile<128x64xf32>
    yield %d2 : tile<128x64xf32>
  }
  %h2 = ftof %r : tile<128x64xf16>
  tiled_store %h2, %c[%bm, %bn]
  return
}
";
    let run = run_to(Stage::Schedule, text, &["smem-bytes=100000", "search.lifetime-steps=0"]);
    let regions = &run.kernels[0].schedule.as_ref().expect("scheduled").regions;
    let rounds = &regions[0].schedule.rounds;
    let families = rounds[0].added.iter().map(|a| a.family).collect::<Vec<_>>();
    assert_eq!(families, [Family::SmemPressure; 2]);
    let seen: Vec<_> = rounds.iter().map(|r| (r.trial.as_slice(), r.lifted[0].0, r.lifted.len())).collect();
    assert_eq!(seen, [(&[0, 1][..], 1, 1), (&[0], 0, 1)]);
    assert!(rounds.iter().all(|r| !r.kept && r.lifted[0].1.contains("31 cycles instead of 24")));
    assert!(regions[1].schedule.rounds.is_empty());
}
