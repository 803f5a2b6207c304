//! From placed IR to scheduling problems: edges, footprints and results of whole loops.
//!
//! Expected numbers are written out here, from the machine tables by hand, not computed by the code under test.

use cranelift_entity::EntityRef;
use tileas_codegen::CodegenError;
use tileas_codegen::ir::{Function, Op, Opcode, Space, parse_module, print_function, verify_function};
use tileas_codegen::isa::SharedIsa;
use tileas_codegen::schedule::{CycleModel, Generator, ScheduleOptions, verify};
use tileas_codegen::settings::ConstraintMode;
use tileas_codegen::testing::agents::{Agent, AgentInfo, AgentKind, AgentOptions, AgentPlan, plan_agents};
use tileas_codegen::testing::constraints::parse_constraints;
use tileas_codegen::testing::ddg::{
    Extra, ScheduleAnalysis, ScheduledRegion, Scheduler, schedule_function, schedule_function_with,
};
use tileas_codegen::testing::place::{PlaceOptions, place};

fn read(text: &str) -> Function {
    let module = parse_module(text).unwrap_or_else(|e| panic!("{e:?}"));
    let func = module.functions.into_iter().next().expect("one kernel");
    let errors = verify_function(&func);
    assert!(errors.is_empty(), "{errors:#?}");
    func
}

fn isa() -> SharedIsa {
    tileas_isa::isa_for_cpu("sm_100a").expect("known cpu")
}

/// Register work on agent 0, TMA loads on 1, dots on 2.
fn plan_of(func: &Function) -> AgentPlan {
    let info = |kind, first_warp, warps| AgentInfo {
        kind,
        first_warp,
        warps,
        instances: 1,
        elect: warps == 1,
        max_regs: 0,
    };
    let mut plan = AgentPlan {
        agents: [info(AgentKind::Simt, 0, 4), info(AgentKind::Load, 4, 1), info(AgentKind::Mma, 5, 1)]
            .into_iter()
            .collect(),
        op_agent: Default::default(),
        num_threads: 192,
        entry_reg_cap: 255,
    };
    for op in func.all_ops() {
        let values = || func.operands(op).iter().chain(func.results(op));
        let registers = values().any(|&v| func.value_data(v).space() == Some(Space::Rmem));
        let agent = match func.opcode(op) {
            Opcode::AsyncTiledTmaLoad => Some(1),
            Opcode::AsyncDot => Some(2),
            Opcode::Constant | Opcode::Splat | Opcode::For | Opcode::If | Opcode::Yield => None,
            Opcode::AsyncTiledTmaStore | Opcode::TiledStore | Opcode::Copy | Opcode::ExtractSlice => Some(0),
            _ if registers => Some(0),
            _ => None,
        };
        plan.op_agent[op] = agent.map(Agent::new).into();
    }
    plan
}

/// The numbers here are the published weights.
fn published() -> ScheduleOptions {
    ScheduleOptions { cycle_model: CycleModel::Slot, ..ScheduleOptions::default() }
}

fn schedule_with(func: &Function, plan: &AgentPlan) -> Result<ScheduleAnalysis, CodegenError> {
    let (constraints, _) = parse_constraints(func, func.all_ops(), ConstraintMode::Spec);
    let options = published();
    let analysis = schedule_function(func, plan, &constraints, &*isa(), &mut Scheduler::new(), &options)?;
    for r in &analysis.regions {
        assert!(r.problem.check(&options.limits).is_empty());
        let errors = verify::verify(&r.problem, &r.schedule);
        assert!(errors.is_empty(), "{errors:#?}\n{}", analysis.to_text(func));
    }
    Ok(analysis)
}

fn schedule(func: &Function) -> ScheduleAnalysis {
    schedule_with(func, &plan_of(func)).expect("schedules")
}

/// `from -> to latency distance` with value names, sorted.
fn edges(func: &Function, region: &ScheduledRegion) -> Vec<String> {
    let named = region.named_problem(func);
    let edges = named.edges().values();
    let mut list: Vec<String> = edges
        .map(|e| format!("{} -> {} {} {}", named.id(e.from), named.id(e.to), e.latency, e.distance))
        .collect();
    list.sort();
    list
}

fn only(analysis: &ScheduleAnalysis) -> &ScheduledRegion {
    assert_eq!(analysis.regions.len(), 1);
    &analysis.regions[0]
}

const HEAD: &str = "(%a: view<gmem, ?x?xf16>, %b: view<gmem, ?x?xf16>, %c: view<gmem, ?x?xf32>, %kt: i32) {
  %bm = program_id <{axis = 0}> : i32
  %zero = constant 0 : i32
  %one = constant 1 : i32
  %da = make_tiled_tma_desc %a <{box = [128, 64], swizzle = b128}> : tma_desc<128x64xf16>
  %db = make_tiled_tma_desc %b <{box = [128, 64], swizzle = b128}> : tma_desc<128x64xf16>
  %z = constant 0.0 : tile<128x128xf32, tmem, d128>
";

fn kernel(name: &str, body: &str) -> Function {
    read(&format!("kernel @{name}{HEAD}{body}\n  return\n}}\n"))
}

const GEMM_LOOP: &str = "
  %acc = for %i = %zero to %kt step %one iter (%s = %z : tile<128x128xf32, tmem, d128>) {
    %ta = async.tiled_tma_load %da[%bm, %i] : tile<128x64xf16, smem, k128>
    %tb = async.tiled_tma_load %db[%bm, %i] : tile<128x64xf16, smem, k128>
    %n = async.dot %ta, %tb, %s <{transpose_b, tileas.schedule.constraint.gid = 1 : i32,
        tileas.schedule.constraint.leader_gid = 1 : i32}> : tile<128x128xf32, tmem, d128>
    yield %n : tile<128x128xf32, tmem, d128>
  }";

/// The document of the design page on one GEMM.
#[cfg(feature = "serde")]
const GEMM_JSON: &str = r#"
{"schema": "tileas-schedule/1", "name": "gemm_bias_relu/loop0", "generator": "modulo", "ii": 16, "stage_count": 3,
 "status": {"converged": true, "budget_exceeded": false, "serial_fallback": false},
 "bounds": {"resource": 16, "recurrence": 8, "fine_density": 2, "dependency": 1, "witness": {"resource": "tma", "recurrence": ["op2"], "fine_density": "tmem_bank"}},
 "slots": [{"id": 11, "name": "tc_and_mma", "capacity": 1}, {"id": 12, "name": "tma", "capacity": 1}, {"id": 16, "name": "tp_smem_wr", "capacity": 1}, {"id": 19, "name": "tp_mma", "capacity": 1}],
 "pools": [{"index": 3, "name": "tmem_bank", "capacity": 4}],
 "ops": [{"id": "op0", "name": "async.tiled_tma_load", "latency": 8, "uses": [{"slot": 12, "offset": 0, "duration": 8, "occupancy": 1},
            {"slot": 16, "offset": 0, "duration": 8, "occupancy": 1}], "pools": [], "group": null, "max_depth": 0, "start": 0, "stage": 0, "order": 0},
         {"id": "op1", "name": "async.tiled_tma_load", "latency": 8, "uses": [{"slot": 12, "offset": 0, "duration": 8, "occupancy": 1},
            {"slot": 16, "offset": 0, "duration": 8, "occupancy": 1}], "pools": [], "group": null, "max_depth": 0, "start": 8, "stage": 0, "order": 1},
         {"id": "op2", "name": "async.dot", "latency": 16, "uses": [{"slot": 11, "offset": 0, "duration": 8, "occupancy": 1},
            {"slot": 19, "offset": 0, "duration": 8, "occupancy": 1}], "pools": [{"index": 3, "count": 1, "duration": 8}],
          "group": 0, "max_depth": 0, "start": 16, "stage": 1, "order": 2}],
 "edges": [{"from": "op0", "to": "op2", "latency": 8, "distance": 0}, {"from": "op1", "to": "op2", "latency": 8, "distance": 0}, {"from": "op2", "to": "op2", "latency": 8, "distance": 1}]}"#;

#[cfg(feature = "serde")]
fn assert_gemm_json(analysis: &ScheduleAnalysis) {
    let parse = |s: &str| serde_json::from_str::<serde_json::Value>(s).expect("JSON");
    let (have, want) = (parse(&analysis.to_json()), parse(GEMM_JSON));
    assert_eq!(have, want, "{have:#}");
}

#[cfg(feature = "serde")]
#[test]
fn gemm_is_the_published_document() {
    assert_gemm_json(&schedule(&kernel("gemm_bias_relu", GEMM_LOOP)));
}

/// Two tiles are read from shared memory and added: with `tune.fuse-reads` the reads are one op with the published vector
/// (slot 15 for 7 cycles), one row contribution, and charge `fused_read` with their number.
#[test]
fn independent_reads_become_one_reservation() {
    let kernel = |count: usize, words: &str| {
        let loads: String = (0..count)
            .map(|k| format!("    %t{k} = async.tiled_tma_load %da[%o, %i] : tile<128x32xf32>\n"))
            .collect();
        let sums: String = match words.strip_prefix("fma") {
            Some(words) => format!("    %u2 = fma %t0, %t1, %t2{words} : tile<128x32xf32>\n"),
            None => (1..count)
                .map(|k| {
                    let left = if k == 1 { "%t0".to_owned() } else { format!("%u{}", k - 1) };
                    format!("    %u{k} = addf {left}, %t{k}{words} : tile<128x32xf32>\n")
                })
                .collect(),
        };
        format!(
            "kernel @k(%a: view<gmem, ?x?xf32>, %c: view<gmem, ?x?xf32>, %n: i32) {{
  %o = constant 0 : i32
  %da = make_tiled_tma_desc %a <{{box = [128, 32], swizzle = b128}}> : tma_desc<128x32xf32>
  for %i = 0 to %n step 1 {{
{loads}{sums}    tiled_store %u{}, %c[%o, %i]
  }}
  return
}}",
            count - 1
        )
    };
    let made = |count: usize, fuse_reads: bool, words: &str| {
        let (words, foreign) = words.strip_prefix("foreign").map_or((words, false), |w| (w, true));
        let func = read(&kernel(count, words));
        let plan = plan_agents(&func, &*isa(), &AgentOptions::default()).expect("plan");
        let (placed, mut plan) = place(&func, &plan, &*isa(), &PlaceOptions::default()).expect("places");
        // The sums are another agent's.
        for op in placed.all_ops().into_iter().filter(|&op| foreign && placed.opcode(op) == Opcode::Addf) {
            let other = plan.agents.keys().find(|&a| plan.op_agent[op] != a.into());
            plan.op_agent[op] = other.into();
        }
        let (constraints, _) = parse_constraints(&placed, placed.all_ops(), ConstraintMode::Spec);
        let extra = Extra { fuse_reads, ..Extra::default() };
        let (mut scheduler, o) = (Scheduler::new(), published());
        let a = schedule_function_with(&placed, &plan, &constraints, &*isa(), &mut scheduler, &o, &extra);
        (placed, a.expect("schedules"))
    };
    let (placed, apart) = made(2, false, "");
    let reads = |func: &Function, a: &ScheduleAnalysis| -> Vec<Op> {
        let read = |op: &Op| {
            let space = func.named_operand(*op, "source").and_then(|v| func.value_data(v).space());
            func.opcode(*op) == Opcode::Copy && space == Some(Space::Smem)
        };
        a.loops[a.regions[0].for_op]
            .as_ref()
            .expect("a loop")
            .scheduled
            .iter()
            .copied()
            .filter(read)
            .collect()
    };
    assert_eq!((reads(&placed, &apart).len(), apart.regions[0].fused.len()), (2, 0));
    // With the word, a read leaves the set in which it would wait while its agent computes.
    let apart = " <{tileas.enable_defusion_if_fusion_extending_liveness}>";
    let (third, foreign) = (format!("fma{apart}"), format!("foreign{apart}"));
    let all = [
        (2, "", vec![2]),
        (5, "", vec![5]),
        (6, "", vec![5, 1]),
        (5, apart, vec![2, 1, 1, 1]),
        // Reads are no computation, nor is what other agents do.
        (3, &third, vec![3]),
        (5, &foreign, vec![5]),
    ];
    for (count, words, sets) in all {
        let (placed, a) = made(count, true, words);
        let region = &a.regions[0];
        assert_eq!(verify::verify(&region.problem, &region.schedule), []);
        let reads = reads(&placed, &a);
        assert_eq!(reads.len(), count);
        let mut found: Vec<usize> = Vec::new();
        let mut last = None;
        for &op in &reads {
            let (_, node) = a.node(op).expect("a start");
            let p = &region.problem;
            if last == Some(node) {
                *found.last_mut().expect("begun") += 1;
            } else {
                found.push(1);
            }
            last = Some(node);
            let uses: Vec<_> = p
                .uses(node)
                .iter()
                .map(|u| (p.slots()[u.slot].id, u.offset, u.duration, u.occupancy))
                .collect();
            assert_eq!(uses, [(15, 0, 7, 1)]);
            let members = p.members(node).len();
            let pools: Vec<_> = p
                .pool_uses(node)
                .iter()
                .map(|u| (p.pools()[u.pool].name.as_str(), u.count, u.duration))
                .collect();
            let want = if members > 0 { vec![("fused_read", members as u32, 7)] } else { vec![] };
            assert_eq!(pools, want);
            let start = a.loops[region.for_op].as_ref().map(|l| l.start[op]);
            assert_eq!(start, Some(region.schedule.start[node]));
        }
        assert_eq!(found, sets, "{count}");
        // Ranks are those of ops: every one its own.
        let schedule = a.loops[region.for_op].as_ref().expect("a loop");
        let mut ranks: Vec<u32> = schedule.scheduled.iter().map(|&op| schedule.order[op]).collect();
        ranks.sort_unstable();
        assert!(ranks.iter().copied().eq(0..schedule.scheduled.len() as u32));
    }
}

/// Registers per thread and bytes in rings, by hand: 4 warps, 128 x 32 elements.
#[test]
fn nodes_know_their_registers_and_rings() {
    let text =
        "kernel @k(%a: view<gmem, ?x?xf16>, %b: view<gmem, ?x?xf16>, %c: view<gmem, ?x?xf32>, %n: i32) {
  %z = constant 0.0 : tile<128x64xf32>
  %y = constant 0.0 : tile<128x32xf32>
  %o = constant 0 : i32
  %da = make_tiled_tma_desc %a <{box = [128, 32], swizzle = b64}> : tma_desc<128x32xf16>
  %db = make_tiled_tma_desc %b <{box = [64, 32], swizzle = b64}> : tma_desc<64x32xf16>
  %p, %q = for %i = 0 to %n step 1 iter (%s = %z : tile<128x64xf32>, %r = %y : tile<128x32xf32>) {
    %ta = async.tiled_tma_load %da[%o, %i] : tile<128x32xf16>
    %tb = async.tiled_tma_load %db[%o, %i] : tile<64x32xf16>
    %d = async.dot %ta, %tb, %s <{transpose_b}> : tile<128x64xf32>
    %tc = async.tiled_tma_load %da[%o, %i] : tile<128x32xf16>
    %f = ftof %tc : tile<128x32xf32>
    %u = addf %f, %r : tile<128x32xf32>
    yield %d, %u
  }
  tiled_store %p, %c[%o, %o]
  tiled_store %q, %c[%o, %o]
  return
}";
    let func = read(text);
    let plan = plan_agents(&func, &*isa(), &AgentOptions::default()).expect("plan");
    let (placed, plan) = place(&func, &plan, &*isa(), &PlaceOptions::default()).expect("places");
    let analysis = schedule_with(&placed, &plan).expect("schedules");
    let region = &analysis.regions[0];
    let p = &region.problem;
    let seen = |opcode: Opcode| -> Vec<_> {
        let nodes = p.nodes().filter(|&n| placed.opcode(region.ops[n]) == opcode);
        nodes.map(|n| p.extra(n)).map(|e| (e.simt_agent, e.registers, e.ring_bytes)).collect()
    };
    let bytes = |n| (None, 0, n);
    assert_eq!(seen(Opcode::AsyncTiledTmaLoad), [bytes(8192), bytes(4096), bytes(8192)]);
    // The accumulator stays in place; halves take half a register each.
    assert_eq!(seen(Opcode::AsyncDot), [bytes(0)]);
    assert_eq!(seen(Opcode::Copy), [(Some(0), 16, 0)]);
    assert_eq!((seen(Opcode::Ftof), seen(Opcode::Addf)), (vec![(Some(0), 32, 0)], vec![(Some(0), 32, 0)]));
    // Values live along data dependences; the reader that frees an accumulator hands nothing on.
    let values = p.edges().keys().filter(|&e| p.carries_value(e)).count();
    assert!(values > 0 && values <= p.edges().len());
}

#[cfg(feature = "serde")]
#[test]
fn gemm_from_source_is_the_published_document() {
    let text = "kernel @gemm_bias_relu(%a: view<gmem, ?x?xf16>, %b: view<gmem, ?x?xf16>, %c: view<gmem, ?x?xf16>, %kt: i32) {
  %bm = program_id <{axis = 0}> : i32
  %bn = program_id <{axis = 1}> : i32
  %zero = constant 0 : i32
  %one = constant 1 : i32
  %da = make_tiled_tma_desc %a <{box = [128, 64], swizzle = b128}> : tma_desc<128x64xf16>
  %db = make_tiled_tma_desc %b <{box = [128, 64], swizzle = b128}> : tma_desc<128x64xf16>
  %z = constant 0.0 : tile<128x128xf32>
  %acc = for %i = %zero to %kt step %one iter (%s = %z : tile<128x128xf32>) {
    %ta = async.tiled_tma_load %da[%bm, %i] : tile<128x64xf16>
    %tb = async.tiled_tma_load %db[%bn, %i] : tile<128x64xf16>
    %n = async.dot %ta, %tb, %s <{transpose_b, tileas.schedule.constraint.gid = 1 : i32, tileas.schedule.constraint.leader_gid = 1 : i32}> : tile<128x128xf32>
    yield %n : tile<128x128xf32>
  }
  %h = ftof %acc : tile<128x128xf16>
  tiled_store %h, %c[%bm, %bn]
  return
}";
    let func = read(text);
    let plan = plan_agents(&func, &*isa(), &AgentOptions::default()).expect("plan");
    let (placed, plan) = place(&func, &plan, &*isa(), &PlaceOptions::default()).expect("places");
    assert_gemm_json(&schedule_with(&placed, &plan).expect("schedules"));
}

#[test]
fn starts_cross_the_seam_by_op() {
    let func = kernel("g", GEMM_LOOP);
    let analysis = schedule(&func);
    let region = only(&analysis);
    let result = analysis.loops[region.for_op].as_ref().expect("scheduled");
    assert_eq!((result.ii, result.stage_count, result.serial), (16, 3, false));
    let starts: Vec<_> = result.scheduled.iter().map(|&op| (result.start[op], result.order[op])).collect();
    assert_eq!(starts, [(0, 0), (8, 1), (16, 2)]);
    let text = analysis.to_text(&func);
    for name in [" ta ", " tb ", " n "] {
        assert!(text.contains(name), "{name} is missing:\n{text}");
    }
}

/// A load of a cluster waits for slots of all its CTAs: of the two ceilings on latencies the higher one is its own.
#[test]
fn loads_of_a_cluster_reach_across_it() {
    let func = kernel("g", GEMM_LOOP);
    let (constraints, _) = parse_constraints(&func, func.all_ops(), ConstraintMode::Spec);
    for clustered in [false, true] {
        let (plan, extra) = (plan_of(&func), Extra { clustered, ..Extra::default() });
        let (mut scheduler, o) = (Scheduler::new(), published());
        let a = schedule_function_with(&func, &plan, &constraints, &*isa(), &mut scheduler, &o, &extra);
        let a = a.expect("schedules");
        let region = only(&a);
        let across = region.problem.nodes().map(|n| region.problem.extra(n).cross_cluster);
        assert_eq!(across.collect::<Vec<_>>(), [clustered, clustered, false]);
    }
}

#[test]
fn two_accumulators_do_not_order_each_other() {
    let func = kernel(
        "two",
        "
  %p, %q = for %i = %zero to %kt step %one iter (%s = %z : tile<128x128xf32, tmem, d128>, %t = %z : tile<128x128xf32, tmem, d128>) {
    %ta = async.tiled_tma_load %da[%bm, %i] : tile<128x64xf16, smem, k128>
    %tb = async.tiled_tma_load %db[%bm, %i] : tile<128x64xf16, smem, k128>
    %n = async.dot %ta, %tb, %s <{transpose_b}> : tile<128x128xf32, tmem, d128>
    %m = async.dot %tb, %ta, %t <{transpose_b}> : tile<128x128xf32, tmem, d128>
    yield %n, %m : tile<128x128xf32, tmem, d128>, tile<128x128xf32, tmem, d128>
  }",
    );
    let analysis = schedule(&func);
    let want = ["m -> m 8 1", "n -> n 8 1", "ta -> m 8 0", "ta -> n 8 0", "tb -> m 8 0", "tb -> n 8 0"];
    assert_eq!(edges(&func, only(&analysis)), want);
    assert_eq!(only(&analysis).schedule.ii, 16);
}

const SCALE: &str = "
  %f = constant 0.5 : tile<128x128xf32, rmem, row>
  %acc = for %i = %zero to %kt step %one iter (%s = %z : tile<128x128xf32, tmem, d128>) {
    %ta = async.tiled_tma_load %da[%bm, %i] : tile<128x64xf16, smem, k128>
    %tb = async.tiled_tma_load %db[%bm, %i] : tile<128x64xf16, smem, k128>
    %old = copy %s : tile<128x128xf32, rmem, row>
    %om = mulf %old, %f : tile<128x128xf32, rmem, row>
    %ost = copy %om : tile<128x128xf32, tmem, d128>
    %pv = async.dot %ta, %tb, %ost <{transpose_b}> : tile<128x128xf32, tmem, d128>
    yield %pv : tile<128x128xf32, tmem, d128>
  }";

#[test]
fn scaled_accumulator_has_its_recurrence() {
    let func = kernel("scale", SCALE);
    let analysis = schedule(&func);
    let region = only(&analysis);
    let want = [
        "old -> om 7 0",
        // Anti-dependence in place: the reader's hold.
        "old -> ost 7 0",
        "om -> ost 4 0",
        "ost -> pv 7 0",
        "pv -> old 16 1",
        "ta -> pv 8 0",
        "tb -> pv 8 0",
    ];
    assert_eq!(edges(&func, region), want);
    // 7 + 4 + 7 + 16 around the loop.
    assert_eq!((region.schedule.bounds.recurrence, region.schedule.ii), (34, 34));
}

#[test]
fn slices_of_an_accumulator_are_ordered_one_by_one() {
    let func = kernel(
        "sliced",
        "
  %f = constant 0.5 : tile<128x64xf32, rmem, row>
  %acc = for %i = %zero to %kt step %one iter (%s = %z : tile<128x128xf32, tmem, d128>) {
    %ta = async.tiled_tma_load %da[%bm, %i] : tile<128x64xf16, smem, k128>
    %s0 = extract_slice %s <{offsets = [0, 0], sizes = [128, 64]}> : tile<128x64xf32, tmem, d128>
    %v0 = copy %s0 : tile<128x64xf32, rmem, row>
    %x0 = mulf %v0, %f : tile<128x64xf32, rmem, row>
    copy %x0, %s <{offsets = [0, 0]}>
    %s1 = extract_slice %s <{offsets = [0, 64], sizes = [128, 64]}> : tile<128x64xf32, tmem, d128>
    %v1 = copy %s1 : tile<128x64xf32, rmem, row>
    %x1 = mulf %v1, %f : tile<128x64xf32, rmem, row>
    copy %x1, %s <{offsets = [0, 64]}>
    %n = async.dot %ta, %ta, %s <{transpose_b}> : tile<128x128xf32, tmem, d128>
    yield %n : tile<128x128xf32, tmem, d128>
  }",
    );
    let analysis = schedule(&func);
    let all = edges(&func, only(&analysis));
    // op4 and op8 are the copies into the accumulator.
    for want in [
        "v0 -> op4 7 0",
        "v1 -> op8 7 0",
        "op4 -> n 7 0",
        "op8 -> n 7 0",
        "n -> v0 16 1",
        "n -> v1 16 1",
        "n -> n 8 1",
    ] {
        assert!(all.iter().any(|e| e == want), "{want} is missing: {all:#?}");
    }
    // Different columns.
    for none in ["v0 -> op8", "op4 -> v1", "op4 -> op8", "v1 -> op4", "op8 -> op4", "n -> op4", "n -> op8"] {
        assert!(!all.iter().any(|e| e.starts_with(none)), "{none}: {all:#?}");
    }
}

#[test]
fn values_read_after_the_update_are_kept_until_the_next_one() {
    let func = kernel(
        "after",
        "
  %acc = for %i = %zero to %kt step %one iter (%s = %z : tile<128x128xf32, tmem, d128>) {
    %ta = async.tiled_tma_load %da[%bm, %i] : tile<128x64xf16, smem, k128>
    %n = async.dot %ta, %ta, %s <{transpose_b}> : tile<128x128xf32, tmem, d128>
    %v = copy %n : tile<128x128xf32, rmem, row>
    tiled_store %v, %c[%bm, %i]
    yield %n : tile<128x128xf32, tmem, d128>
  }",
    );
    let analysis = schedule(&func);
    let want = ["n -> n 8 1", "n -> v 16 0", "ta -> n 8 0", "v -> n 7 1", "v -> op3 7 0"];
    assert_eq!(edges(&func, only(&analysis)), want);
}

#[test]
fn fresh_accumulators_are_not_tied_to_the_next_iteration() {
    // The constant is the initial value of both, and no storage.
    let func = kernel(
        "fresh",
        "
  for %i = %zero to %kt step %one {
    %ta = async.tiled_tma_load %da[%bm, %i] : tile<128x64xf16, smem, k128>
    %n = async.dot %ta, %ta, %z <{transpose_b}> : tile<128x128xf32, tmem, d128>
    %v = copy %n : tile<128x128xf32, rmem, row>
    %m = async.dot %ta, %ta, %n <{transpose_b}> : tile<128x128xf32, tmem, d128>
    %w = copy %m : tile<128x128xf32, rmem, row>
    yield
  }",
    );
    let analysis = schedule(&func);
    let want = ["m -> w 16 0", "n -> m 8 0", "n -> v 16 0", "ta -> m 8 0", "ta -> n 8 0", "v -> m 7 0"];
    assert_eq!(edges(&func, only(&analysis)), want);
}

#[test]
fn register_arguments_carry_distance_and_no_anti_dependence() {
    let func = kernel(
        "carry",
        "
  %r0 = constant 0.0 : tile<128x32xf32, rmem, row>
  %p, %q = for %i = %zero to %kt step %one iter (%u = %r0 : tile<128x32xf32, rmem, row>, %w = %r0 : tile<128x32xf32, rmem, row>) {
    %t = tiled_load %c[%bm, %i] : tile<128x32xf32, rmem, row>
    %k = constant 2.0 : tile<128x32xf32, rmem, row>
    %x = mulf %t, %k : tile<128x32xf32, rmem, row>
    %y = addf %x, %w : tile<128x32xf32, rmem, row>
    yield %y, %u : tile<128x32xf32, rmem, row>, tile<128x32xf32, rmem, row>
  }",
    );
    let analysis = schedule(&func);
    // %w is %u of the iteration before, which is %y of the one before that.
    assert_eq!(edges(&func, only(&analysis)), ["t -> x 7 0", "x -> y 4 0", "y -> y 4 2"]);
    assert!(analysis.loops[only(&analysis).for_op].as_ref().is_some_and(|l| l.serial));
}

#[test]
fn memory_order_is_per_view() {
    let func = read(
        "kernel @mem(%x: view<gmem, ?x?xf32>, %y: view<gmem, ?x?xf32>, %n: i32) {
  %zero = constant 0 : i32
  %one = constant 1 : i32
  for %i = %zero to %n step %one {
    %t = tiled_load %x[%i, %zero] : tile<128x32xf32, rmem, row>
    %u = tiled_load %y[%i, %zero] : tile<128x32xf32, rmem, row>
    %v = addf %t, %u : tile<128x32xf32, rmem, row>
    tiled_store %v, %x[%zero, %i]
    yield
  }
  return
}",
    );
    let analysis = schedule(&func);
    // The store is op3; a second access of %y would be free, one of %x waits.
    let want = ["op3 -> t 7 1", "t -> op3 7 0", "t -> v 7 0", "u -> v 7 0", "v -> op3 4 0"];
    assert_eq!(edges(&func, only(&analysis)), want);
}

#[test]
fn assembled_operands_are_written_before_they_are_read() {
    let func = kernel(
        "assembled",
        "
  %acc = for %i = %zero to %kt step %one iter (%s = %z : tile<128x128xf32, tmem, d128>) {
    %t0 = tiled_load %a[%bm, %i] : tile<128x32xf16, rmem, row>
    %t1 = tiled_load %b[%bm, %i] : tile<128x32xf16, rmem, row>
    %buf = alloc_tensor : tile<128x64xf16, smem, k128>
    copy %t0, %buf <{offsets = [0, 0]}>
    copy %t1, %buf <{offsets = [0, 32]}>
    %n = async.dot %buf, %buf, %s <{transpose_b}> : tile<128x128xf32, tmem, d128>
    yield %n : tile<128x128xf32, tmem, d128>
  }",
    );
    let analysis = schedule(&func);
    // Freeing the buffer for the next iteration is the channel's business.
    let want = ["n -> n 8 1", "op2 -> n 7 0", "op3 -> n 7 0", "t0 -> op2 7 0", "t1 -> op3 7 0"];
    assert_eq!(edges(&func, only(&analysis)), want);
}

#[test]
fn loops_are_numbered_and_only_inner_ones_scheduled() {
    // Names are unique over the kernel.
    let gemm = |n: u32, outer: &str| {
        let text = GEMM_LOOP.replace("%bm", outer);
        let names = ["%acc", "%i", "%s", "%ta", "%tb", "%n"];
        names.iter().fold(text, |text, name| text.replace(name, &format!("{name}{n}")))
    };
    let nested = format!("\n  for %t = %zero to %kt step %one {{{}\n    yield\n  }}", gemm(1, "%t"));
    let func = kernel("many", &format!("{}{nested}", gemm(0, "%bm")));
    let analysis = schedule(&func);
    let names: Vec<&str> = analysis.regions.iter().map(|r| r.problem.name()).collect();
    assert_eq!(names, ["many/loop0", "many/loop1"]);
    let loops: Vec<Op> = func.all_ops().into_iter().filter(|&op| func.opcode(op) == Opcode::For).collect();
    let scheduled: Vec<bool> = loops.iter().map(|&op| analysis.loops[op].is_some()).collect();
    assert_eq!(scheduled, [true, false, true], "{}", print_function(&func));
    assert!(analysis.region(loops[1]).is_none());
    assert!(analysis.region(loops[2]).is_some_and(|r| r.schedule.ii == 16));
    #[cfg(feature = "serde")]
    {
        let json: serde_json::Value = serde_json::from_str(&analysis.to_json()).expect("JSON");
        assert_eq!(json.as_array().map(Vec::len), Some(2));
    }
}

const IF_LOOP: &str = "
  %acc = for %i = %zero to %kt step %one iter (%s = %z : tile<128x128xf32, tmem, d128>) {
    %ta = async.tiled_tma_load %da[%bm, %i] : tile<128x64xf16, smem, k128>
    %p = cmpi %i, %bm <{predicate = lt}> : i1
    %r = if %p : tile<128x128xf32, tmem, d128> {
      %tb = async.tiled_tma_load %db[%bm, %i] : tile<128x64xf16, smem, k128>
      %n = async.dot %ta, %tb, %s <{transpose_b}> : tile<128x128xf32, tmem, d128>
      yield %n : tile<128x128xf32, tmem, d128>
    } else {
      %m = async.dot %ta, %ta, %s <{transpose_b}> : tile<128x128xf32, tmem, d128>
      yield %m : tile<128x128xf32, tmem, d128>
    }
    yield %r : tile<128x128xf32, tmem, d128>
  }";

#[test]
fn a_conditional_is_one_node() {
    let func = kernel("cond", IF_LOOP);
    let analysis = schedule(&func);
    let region = only(&analysis);
    let p = &region.problem;
    assert_eq!(p.num_nodes(), 2);
    let node = p.nodes().nth(1).expect("the if");
    assert_eq!(p.op_name(node), "if");
    // The longer arm: the load, then the dot; the other arm's dot is at cycle 0.
    assert_eq!(p.latency(node), 8 + 16);
    let mut uses: Vec<_> =
        p.uses(node).iter().map(|u| (p.slots()[u.slot].id, u.offset, u.duration, u.occupancy)).collect();
    uses.sort_unstable();
    assert_eq!(uses, [(11, 0, 16, 1), (12, 0, 8, 1), (16, 0, 8, 1), (19, 0, 16, 1)]);
    let pools: Vec<_> = p.pool_uses(node).iter().map(|u| (u.count, u.duration)).collect();
    assert_eq!(pools, [(1, 16)]);
    assert_eq!(edges(&func, region), ["r -> r 24 1", "ta -> r 8 0"]);
    // What is inside has the start of the whole.
    let result = analysis.loops[region.for_op].as_ref().expect("scheduled");
    let start = result.start[result.scheduled[1]];
    let dots = func.all_ops().into_iter().filter(|&op| func.opcode(op) == Opcode::AsyncDot);
    assert!(start > 0 && dots.into_iter().all(|op| result.start[op] == start));
    assert_eq!(result.scheduled.len(), 2);
}

#[test]
fn a_forced_loop_is_serial() {
    let forced = GEMM_LOOP.replacen(") {", ") <{tileas.schedule.constraint.force_serial_execution}> {", 1);
    let analysis = schedule(&kernel("forced", &forced));
    let region = only(&analysis);
    assert_eq!(region.schedule.generator, Generator::Serial);
    let result = analysis.loops[region.for_op].as_ref().expect("scheduled");
    let starts: Vec<_> = result.scheduled.iter().map(|&op| result.start[op]).collect();
    assert_eq!((result.serial, result.ii, starts), (true, 32, vec![0, 8, 16]));
    // The dropped group is one op, so nothing is lost and nothing is said.
    assert!(analysis.warnings.is_empty());
}

#[test]
fn constraints_of_ops_reach_the_problem() {
    let tagged = GEMM_LOOP.replace(
        "%da[%bm, %i] :",
        "%da[%bm, %i] <{tileas.schedule.constraint.force_serial_execution,
          tileas.schedule.constraint.max_depth = 2 : i32}> :",
    );
    let analysis = schedule(&kernel("tagged", &tagged));
    let region = only(&analysis);
    let p = &region.problem;
    let first = p.nodes().next().expect("a node");
    assert!(p.force_serial(first));
    assert_eq!((p.max_depth(first), p.group(first)), (2, None));
    let op = region.ops[first];
    assert_eq!(region.exclusions().collect::<Vec<_>>(), [(op, op)]);
}

#[test]
fn scalar_loops_have_nothing_to_schedule() {
    let func = kernel(
        "scalar",
        "
  %sum = for %i = %zero to %kt step %one iter (%s = %zero : i32) {
    %n = addi %s, %i : i32
    yield %n : i32
  }",
    );
    let analysis = schedule(&func);
    assert!(analysis.regions.is_empty());
    let for_op = func.all_ops().into_iter().find(|&op| func.opcode(op) == Opcode::For).expect("loop");
    assert!(analysis.loops[for_op].as_ref().is_some_and(|l| l.ii == 1 && l.scheduled.is_empty()));
}

#[test]
fn effects_without_an_agent_are_an_error() {
    let func = kernel("orphan", GEMM_LOOP);
    let mut plan = plan_of(&func);
    let load = func.all_ops().into_iter().find(|&op| func.opcode(op) == Opcode::AsyncTiledTmaLoad);
    plan.op_agent[load.expect("a load")] = None.into();
    let error = schedule_with(&func, &plan).expect_err("no agent");
    assert_eq!(error.code.as_str(), "E0509");
}
