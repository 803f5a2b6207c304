//! Buffers and materialisation: placed kernels through webs, channels, depths, code and the post-verifier.

use crate::sim;

use tileas_codegen::Code;
use tileas_codegen::ir::{
    AttrData, Function, Op, Opcode, keys, parse_module, print_function, verify_function,
};
use tileas_codegen::isa::SharedIsa;
use tileas_codegen::schedule::{CycleModel, ScheduleOptions};
use tileas_codegen::settings::ConstraintMode;
use tileas_codegen::testing::agents::{AgentOptions, AgentPlan, plan_agents};
use tileas_codegen::testing::buffers::{BufferAssignment, BufferOptions, assign_buffers};
use tileas_codegen::testing::constraints::parse_constraints;
use tileas_codegen::testing::ddg::{
    Extra, LoopSchedule, ScheduleAnalysis, Scheduler, schedule_function_with,
};
use tileas_codegen::testing::materialize::{
    MaterializeOptions, MaterializeScratch, materialize, materialize_in, verify_materialized,
};
use tileas_codegen::testing::place::{PlaceOptions, place};

fn isa() -> SharedIsa {
    tileas_isa::isa_for_cpu("sm_100a").expect("known cpu")
}

fn read(text: &str) -> Function {
    let module = parse_module(text).unwrap_or_else(|e| panic!("{e}"));
    module.functions.into_iter().next().expect("one kernel")
}

fn source(name: &str) -> String {
    let path = format!("{}/tests/place/{name}.tileas", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"))
}

fn placed(text: &str) -> (Function, AgentPlan) {
    let func = read(text);
    let isa = isa();
    let plan = plan_agents(&func, &*isa, &AgentOptions::default()).expect("agents");
    place(&func, &plan, &*isa, &PlaceOptions::default()).expect("placement")
}

/// Ops of a loop body that belong to an agent or hold a region: what a scheduler places.
fn nodes(func: &Function, plan: &AgentPlan, l: Op) -> Vec<Op> {
    let body = func.op_block_at(l, 0).expect("a body");
    func.block_ops(body).filter(|&op| plan.op_agent[op].is_some() || func.opcode(op) == Opcode::If).collect()
}

/// Gives the innermost loops hand-written starts.
fn starts(func: &Function, plan: &AgentPlan, ii: u32, list: &[u32]) -> ScheduleAnalysis {
    let mut out = ScheduleAnalysis::default();
    for l in func.all_ops() {
        if func.opcode(l) != Opcode::For || func.is_slice_loop(l) {
            continue;
        }
        let body = func.op_block_at(l, 0).expect("a body");
        let mut inner = false;
        func.walk(body, &mut |op| inner |= func.opcode(op) == Opcode::For);
        if inner {
            continue;
        }
        // The cycles of the starts given here are the published weights.
        let mut s = LoopSchedule { ii, stage_count: 1, model: CycleModel::Slot, ..LoopSchedule::default() };
        for (i, op) in nodes(func, plan, l).into_iter().enumerate() {
            s.start[op] = list.get(i).copied().unwrap_or(0);
            s.order[op] = i as u32;
            s.scheduled.push(op);
        }
        out.loops[l] = Some(Box::new(s));
    }
    out
}

fn build(name: &str) -> (Function, AgentPlan, BufferAssignment, Function) {
    let (func, plan) = placed(&source(name));
    let sched = if name == "simple" || name == "persistent" {
        starts(&func, &plan, 16, &[0, 8, 16])
    } else {
        ScheduleAnalysis::default()
    };
    let isa = isa();
    let ba = assign_buffers(&func, &plan, &sched, &*isa, &BufferOptions::default())
        .unwrap_or_else(|e| panic!("{name}: {e}"));
    let mat = materialize(&func, &plan, &sched, &ba).unwrap_or_else(|e| panic!("{name}: {e}"));
    (func, plan, ba, mat)
}

#[test]
fn dumps_say_why_and_do_not_vary() {
    let (func, plan, ba, mat) = build("persistent");
    let dump = ba.dump(&func, &plan);
    for part in [
        "R3 2: 24 - 0 cycles at II 16; R4 6: 956 cycles to cover, 256 an iteration, 2 of memory left",
        "ii_eff 16",
        "tmem 256 columns",
    ] {
        assert!(dump.contains(part), "{part} is not in\n{dump}");
    }
    let (func2, plan2, ba2, mat2) = build("persistent");
    assert_eq!(dump, ba2.dump(&func2, &plan2));
    assert_eq!(print_function(&mat), print_function(&mat2));
    // The text is the whole function: what is read back verifies again.
    let again = read(&print_function(&mat));
    assert_eq!(print_function(&again), print_function(&mat));
    assert_eq!(verify_materialized(&again, &*isa()), verify_materialized(&mat, &*isa()));
}

#[test]
fn all_placed_kernels() {
    let dir = format!("{}/tests/place", env!("CARGO_MANIFEST_DIR"));
    let mut names: Vec<String> = std::fs::read_dir(dir)
        .expect("kernels")
        .filter_map(|e| e.ok()?.file_name().to_str()?.strip_suffix(".tileas").map(str::to_string))
        .collect();
    names.sort();
    let mut bad = Vec::new();
    for name in &names {
        let r = std::panic::catch_unwind(|| {
            let (func, _, _, mat) = build(name);
            let errors = verify_function(&mat);
            let sync = verify_materialized(&mat, &*isa());
            if !errors.is_empty() || sync.is_err() {
                return Some(format!("{name}: {:?} {:?}", errors, sync));
            }
            for n in [0, 1, 2, 3, 5] {
                let ints = [n, 2, 1];
                let want = sim::reference(&func, &ints);
                for seed in 0..20 {
                    let got = sim::run(&mat, &ints, seed);
                    if got != Ok(want.clone()) {
                        return Some(format!("{name}: {n} trips, seed {seed}: {got:?} for {want:?}"));
                    }
                }
            }
            None
        });
        match r {
            Ok(None) => {}
            Ok(Some(e)) => bad.push(e),
            Err(_) => bad.push(format!("{name} failed")),
        }
    }
    assert!(bad.is_empty(), "{}", bad.join("\n"));
}

/// Starts that keep every agent's own order of dependent ops, and otherwise roam: cross-agent dependences may be
/// violated in time, which only the depths can absorb.
fn random_starts(
    u: &mut arbtest::arbitrary::Unstructured<'_>,
    func: &Function,
    plan: &AgentPlan,
) -> arbtest::arbitrary::Result<ScheduleAnalysis> {
    let ii = u.int_in_range(1..=4)? * 8;
    let mut out = starts(func, plan, ii, &[]);
    let roam = u.int_in_range(0..=3)? * ii / 2;
    for l in func.all_ops() {
        let Some(s) = out.loops[l].as_deref_mut() else { continue };
        let list = s.scheduled.clone();
        for (i, &op) in list.iter().enumerate() {
            let mut least = 0;
            let mut any = 0;
            for &p in &list[..i] {
                let same = plan.op_agent[p] == plan.op_agent[op]
                    || plan.op_agent[p].is_none()
                    || plan.op_agent[op].is_none();
                let depends = func.operands(op).iter().any(|v| func.results(p).contains(v));
                let stored = |o: Op| {
                    let mut list: Vec<_> = func.operands(o).to_vec();
                    list.extend_from_slice(func.results(o));
                    list.iter().any(|&v| func.value_data(v).space().is_some_and(|s| s.name() != "rmem"))
                };
                // Ops of one agent that touch memory, or are regions, keep their order.
                let ordered =
                    stored(p) && stored(op) || !func.regions(p).is_empty() || !func.regions(op).is_empty();
                if same && (depends || ordered) {
                    least = least.max(s.start[p]);
                } else if depends {
                    any = any.max(s.start[p] + 8);
                }
            }
            let free = any.saturating_sub(u.int_in_range(0..=roam)?);
            s.start[op] = least.max(free) + u.int_in_range(0..=ii)? / 8 * 8;
        }
    }
    Ok(out)
}

#[test]
fn verdict_equals_execution() {
    let names = [
        "simple",
        "persistent",
        "two_accumulators",
        "scaled_accumulator",
        "computed_operand",
        "old_accumulator",
        "if_in_loop",
        "tma_to_registers",
        "register_carry",
        "nonzero_init",
        "in_place",
        "arms",
    ];
    let kernels: Vec<_> = names.iter().map(|n| (n, placed(&source(n)))).collect();
    let isa = isa();
    let mut live = 0;
    let mut dead = 0;
    let mut other = 0;
    let mut skewed = 0;
    arbtest::arbtest(|u| {
        let (name, (func, plan)) = &kernels[u.choose_index(kernels.len())?];
        let sched = random_starts(u, func, plan)?;
        let opts = BufferOptions { max_depth: Some(u.int_in_range(1..=5)?), ..BufferOptions::default() };
        let ba = assign_buffers(func, plan, &sched, &*isa, &opts).expect("fits");
        let mat = match materialize(func, plan, &sched, &ba) {
            Ok(m) => m,
            Err(e) if e.code == Code::E0701 => return Ok(()),
            Err(e) => panic!("{name}: {e}"),
        };
        let text = print_function(&mat);
        skewed += u32::from(text.contains("local = "));
        let broken = verify_function(&mat);
        assert!(broken.is_empty(), "{name}: {broken:?}\n{text}");
        let seed = u.arbitrary::<u32>()?;
        match verify_materialized(&mat, &*isa) {
            Ok(_) => {
                live += 1;
                for n in [0, 1, 2, 3, 5] {
                    let want = sim::reference(func, &[n, 2, 1]);
                    for s in 0..3 {
                        let got = sim::run(&mat, &[n, 2, 1], u64::from(seed) + s);
                        assert_eq!(got, Ok(want.clone()), "{name}: {n} trips, seed {seed} + {s}\n{text}");
                    }
                }
            }
            Err(e) if e.iter().any(|e| e.code == Code::E0702) => {
                dead += 1;
                let trips = (0..20).flat_map(|n| [[n, 2, 2], [2, n, 2], [2, 2, n]]);
                let stuck = trips.into_iter().any(|n| sim::run(&mat, &n, u64::from(seed)).is_err());
                assert!(stuck, "{name}: {}\n{text}", e[0]);
            }
            Err(_) => other += 1,
        }
        Ok(())
    })
    .budget_ms(4_000);
    println!("{live} live ({skewed} skewed), {dead} dead, {other} refused for order");
    assert!(
        live > 100 && dead > 5 && skewed > 50,
        "{live} live, {skewed} skewed, {dead} dead, {other} other"
    );
}

/// Every channel op is needed, every count is checked: no single change passes.
#[test]
fn every_mutation_is_refused() {
    let isa = isa();
    let mut tried = 0;
    let names = [
        "simple",
        "persistent",
        "two_accumulators",
        "nonzero_init",
        "arms",
        "if_in_loop",
        "scaled_accumulator",
    ];
    let mut cases: Vec<(&str, Function)> = names.iter().map(|n| (*n, build(n).3)).collect();
    // The same with local stages.
    let (func, plan) = placed(&source("simple"));
    let sched = starts(&func, &plan, 16, &[0, 40, 48]);
    let ba = assign_buffers(&func, &plan, &sched, &*isa, &BufferOptions::default()).expect("fits");
    cases.push(("skewed", materialize(&func, &plan, &sched, &ba).expect("materialises")));
    for (name, mat) in &cases {
        assert!(verify_materialized(mat, &*isa).is_ok(), "{name}");
        let mut check = |what: &str, op: Op, m: &Function| {
            tried += 1;
            let r = verify_materialized(m, &*isa);
            assert!(r.is_err(), "{name}: {what} of {op} passes\n{}", print_function(m));
        };
        for op in mat.all_ops() {
            let opcode = mat.opcode(op);
            match opcode {
                Opcode::AsyncPipelineProducerAcquire
                | Opcode::AsyncPipelineProducerCommit
                | Opcode::AsyncPipelineConsumerWait
                | Opcode::AsyncPipelineConsumerRelease
                    if !mat.has_attr(op, keys::DRAIN) =>
                {
                    let mut m = mat.clone();
                    m.remove_op(op);
                    check("removal", op, &m);
                    if let Some(tx) = mat.attr_int(op, keys::TX) {
                        let mut m = mat.clone();
                        m.set_int(op, keys::TX, tx - 16);
                        check("fewer bytes", op, &m);
                    }
                }
                Opcode::AsyncPipelineCreatePipeline => {
                    let mut m = mat.clone();
                    m.set_int(op, keys::NUM_STAGES, mat.attr_int(op, keys::NUM_STAGES).unwrap() - 1);
                    check("fewer stages", op, &m);
                    for key in [keys::FULL, keys::EMPTY] {
                        let (word, args) = mat.attr_call(op, key).unwrap();
                        for i in 0..args.len() {
                            let (word, mut args) = (word.to_string(), args.clone());
                            args[i] += 1;
                            let mut m = mat.clone();
                            let s = m.intern_symbol(&word);
                            let list = args.iter().map(|&a| m.intern_attr(AttrData::Int(a, None))).collect();
                            m.set_attr(op, key, AttrData::Call(s, list));
                            check("another count", op, &m);
                        }
                    }
                }
                _ => {}
            }
        }
    }
    assert!(tried > 200, "{tried}");
}

/// The numbers of the two forms of the worked kernel.
#[test]
fn worked_kernel_numbers() {
    let (.., ba, mat) = build("simple");
    let slots: Vec<u32> = ba.webs.webs.values().map(|w| w.slots).collect();
    assert_eq!(slots, [1, 6, 6, 2]);
    let at: Vec<u32> = ba.webs.webs.values().map(|w| w.at).collect();
    assert_eq!(at, [0, 0, 98_304, 196_608]);
    let pipes: Vec<(u32, u32, bool, u32, u32)> =
        ba.pipes.values().map(|p| (p.depth, p.full_at, p.has_empty, p.empty_at, p.tx)).collect();
    assert_eq!(pipes[0], (6, 229_376, true, 229_424, 32_768));
    assert_eq!((pipes[1].1, pipes[1].2), (229_472, false));
    // The staging hand-offs stay inside one agent and use a named barrier: they take no shared memory.
    let named: Vec<bool> = ba.pipes.values().map(|p| p.named.is_some()).collect();
    assert_eq!(named, [false, false, true]);
    let m = ba.memory;
    assert_eq!((m.tmem_base_at, m.end, m.dynamic_smem, m.tmem_columns), (229_480, 229_484, 230_512, 128));
    assert!(print_function(&mat).contains("num_threads = 192, dynamic_smem = 230512, tmem_columns = 128"));

    let (func, plan, ba, _) = build("persistent");
    let depths: Vec<u32> = ba.pipes.values().map(|p| p.depth).collect();
    assert_eq!(depths, [6, 2, 2], "{}", ba.dump(&func, &plan));
    let at: Vec<_> = ba
        .pipes
        .values()
        .filter(|p| p.named.is_none())
        .map(|p| (p.full_at, p.empty_at, p.has_empty))
        .collect();
    assert_eq!(at, [(229_376, 229_424, true), (229_472, 229_488, true)]);
    let m = ba.memory;
    assert_eq!((m.tmem_base_at, m.end, m.dynamic_smem, m.tmem_columns), (229_504, 229_508, 230_544, 256));
    let inner: Vec<u32> = func.all_ops().into_iter().map(|op| ba.ii_eff[op]).filter(|&x| x > 0).collect();
    assert_eq!(inner, [16]);
}

#[test]
fn depth_one_doubles_the_ii() {
    let (func, plan) = placed(&source("simple"));
    let sched = starts(&func, &plan, 16, &[0, 8, 16]);
    let opts = BufferOptions { max_depth: Some(1), ..BufferOptions::default() };
    let ba = assign_buffers(&func, &plan, &sched, &*isa(), &opts).expect("fits");
    let ii: Vec<u32> = func.all_ops().into_iter().map(|op| ba.ii_eff[op]).filter(|&x| x > 0).collect();
    assert_eq!(ii, [24]);
}

#[test]
fn two_blocks_a_multiprocessor() {
    let (func, plan) = placed(&source("simple"));
    let sched = starts(&func, &plan, 16, &[0, 8, 16]);
    let opts = BufferOptions { smem_bytes: Some(115_712), ..BufferOptions::default() };
    let ba = assign_buffers(&func, &plan, &sched, &*isa(), &opts).expect("fits");
    let first = ba.pipes.values().next().expect("a pipe");
    // The staging tiles lie where the operands were.
    assert_eq!(first.depth, 3);
    assert!(first.why.memory_full, "{}", first.why);
    let opts = BufferOptions { smem_bytes: Some(30_000), ..BufferOptions::default() };
    let e = assign_buffers(&func, &plan, &sched, &*isa(), &opts).err().expect("too little");
    assert_eq!(e.code, Code::E0602);
    assert!(e.message.contains("there are 30000"), "{e}");
    assert!(e.location.is_some());
}

/// The broken variant: B a stage later than A, two slots where four are needed.
#[test]
fn the_deadlock_is_shown() {
    let (func, plan) = placed(&source("simple"));
    let sched = starts(&func, &plan, 16, &[0, 40, 48]);
    let isa = isa();
    let run = |max_depth: u32| {
        let opts = BufferOptions { max_depth: Some(max_depth), ..BufferOptions::default() };
        let ba = assign_buffers(&func, &plan, &sched, &*isa, &opts).expect("fits");
        let mat = materialize(&func, &plan, &sched, &ba).expect("materialises");
        (verify_materialized(&mat, &*isa), mat)
    };
    let (r, mat) = run(2);
    let errors = r.expect_err("deadlocks");
    assert_eq!(errors[0].code, Code::E0702);
    assert!(errors[0].message.contains("distance sum 0"), "{}", errors[0]);
    assert!(errors[0].message.contains("stuck: "), "{}", errors[0]);
    assert!(sim::run(&mat, &[2], 1).is_ok() && sim::run(&mat, &[3], 1).is_err());
    assert!(run(3).0.is_ok() && run(4).0.is_ok());
}

/// The broken variant again: what a schedule for two slots must keep is said, and a schedule that keeps it needs no more
/// and does not deadlock.
#[test]
fn a_rejected_depth_is_scheduled_for() {
    let (func, plan) = placed(&source("simple"));
    let isa = isa();
    let opts = BufferOptions { smem_bytes: Some(90_000), ..BufferOptions::default() };
    let sched = starts(&func, &plan, 16, &[0, 40, 48]);
    let ba = assign_buffers(&func, &plan, &sched, &*isa, &opts).expect("fits");
    let [reject] = ba.rejects.as_slice() else { panic!("{:?}", ba.rejects) };
    assert_eq!((reject.need, reject.have, ba.pipes[reject.pipe].depth), (4, 2, 2));
    assert!(ba.dump(&func, &plan).contains("4 slots are needed, there are 2"));
    // One reader, two loads: a slot is free two iterations later, when the products have read it.
    let edges: Vec<_> = reject.edges.iter().map(|e| (func.opcode(e.from), e.latency, e.distance)).collect();
    assert_eq!(edges, [(Opcode::AsyncDot, 8, 2), (Opcode::AsyncDot, 8, 2)]);
    let (constraints, _) = parse_constraints(&func, func.all_ops(), ConstraintMode::Spec);
    let options = ScheduleOptions { cycle_model: CycleModel::Slot, ..ScheduleOptions::default() };
    let mut scheduler = Scheduler::new();
    let again = schedule_function_with(
        &func,
        &plan,
        &constraints,
        &*isa,
        &mut scheduler,
        &options,
        &Extra { edges: reject.edges.clone(), ..Extra::default() },
    )
    .expect("schedules");
    let region = again.regions.first().expect("one loop");
    for e in &reject.edges {
        assert!(region.edges().any(|x| x == *e), "{e:?}");
    }
    let ba = assign_buffers(&func, &plan, &again, &*isa, &opts).expect("fits");
    assert_eq!((ba.rejects.len(), ba.ii_eff[region.for_op]), (0, 16));
    let mat = materialize(&func, &plan, &again, &ba).expect("materialises");
    if let Err(e) = verify_materialized(&mat, &*isa) {
        panic!("{e:?}\n{}", ba.dump(&func, &plan));
    }
}

/// Loads of one channel, by hand in stages 0 and 2: the first slot is held from the first load on.
#[test]
fn tiles_handed_over_together_ask_for_one_depth() {
    use tileas_codegen::testing::buffers::{requests, ring_bytes};
    use tileas_codegen::testing::ddg::{Family, Rule};
    let (func, plan) = placed(&source("simple"));
    let isa = isa();
    let asked = |list: &[u32]| {
        let sched = starts(&func, &plan, 16, list);
        let ba = assign_buffers(&func, &plan, &sched, &*isa, &BufferOptions::default()).expect("fits");
        let mut out = Vec::new();
        requests(&func, &plan, &*isa, &sched, &ba, &mut out);
        (out, ring_bytes(&ba))
    };
    let (out, bytes) = asked(&[0, 40, 48]);
    let [c] = out.as_slice() else { panic!("{out:?}") };
    assert_eq!((c.family, c.asker), (Family::SameDepth, "buffers"));
    let Rule::OneDepth(ops) = &c.rule else { panic!("{c:?}") };
    assert!(ops.len() == 2 && ops.iter().all(|&op| func.opcode(op) == Opcode::AsyncTiledTmaLoad));
    assert!(c.why.contains("from stage 0 to stage 2"), "{}", c.why);
    // R3: 56 / 16 and 24 / 16 cycles, rounded up: two slots of two tiles of 16 KiB less.
    let (none, fewer) = asked(&[32, 40, 48]);
    assert!(none.is_empty() && bytes - fewer == 2 * 2 * 16384, "{none:?} {fewer} {bytes}");
}

/// Two rings of one loop; the planner's record is changed by hand, so that the load lacks slots and the store has two for
/// its schedule alone.
#[test]
fn a_starving_ring_asks_the_others_to_shorten() {
    use tileas_codegen::testing::buffers::{requests, uncovered};
    use tileas_codegen::testing::ddg::{Family, Rule};
    let text = "kernel @s(%x: view<gmem, ?x?xf32>, %c: view<gmem, ?x?xf32>, %n: i32) {
  %b = program_id <{axis = 0}> : i32
  %dx = make_tiled_tma_desc %x <{box = [128, 32], swizzle = b128}> : tma_desc<128x32xf32>
  for %i = 0 to %n step 1 {
    %t = async.tiled_tma_load %dx[%b, %i] : tile<128x32xf32>
    %m = mulf %t, %t : tile<128x32xf32>
    tiled_store %m, %c[%b, %i]
  }
  return
}
";
    let (func, plan) = placed(text);
    let isa = isa();
    let sched = starts(&func, &plan, 16, &[0, 16, 24, 40, 56]);
    let mut ba = assign_buffers(&func, &plan, &sched, &*isa, &BufferOptions::default()).expect("fits");
    let asked = |ba: &BufferAssignment| {
        let mut out = Vec::new();
        requests(&func, &plan, &*isa, &sched, ba, &mut out);
        out
    };
    assert!(asked(&ba).is_empty());
    let rings: Vec<_> = ba.pipes.iter().filter(|(_, p)| p.payload()).map(|(id, _)| id).collect();
    let [load, store] = rings[..] else { panic!("{}", ba.dump(&func, &plan)) };
    // 64 - 40 cycles at II 16.
    assert_eq!(ba.pipes[store].why.need, 2);
    ba.pipes[store].why.chosen = 2;
    let why = &mut ba.pipes[load].why;
    (why.memory_full, why.chosen, why.cover, why.period) = (true, 2, 500, 100);
    assert_eq!(uncovered(&ba.pipes[load].why), 300);
    let out = asked(&ba);
    let [c] = out.as_slice() else { panic!("{out:?}") };
    assert_eq!((c.family, c.asker), (Family::SmemPressure, "buffers"));
    assert!(c.why.contains("300 cycles") && c.why.contains("shared memory is full"), "{}", c.why);
    // One slot: the store, 8 cycles, has read it before the next iteration writes.
    let Rule::Edges(edges) = &c.rule else { panic!("{c:?}") };
    let seen: Vec<_> =
        edges.iter().map(|e| (func.opcode(e.from), func.opcode(e.to), e.latency, e.distance)).collect();
    assert_eq!(seen, [(Opcode::AsyncTiledTmaStore, Opcode::Copy, 8, 1)]);
    // A ring that is deep for its latency is left alone.
    ba.pipes[store].why.chosen = 3;
    assert!(asked(&ba).is_empty());
}

#[test]
fn too_many_accumulators_are_located() {
    let mut text = String::from(
        "kernel @three(%a: view<gmem, ?x?xf16>, %b: view<gmem, ?x?xf16>, %c: view<gmem, ?x?xf32>, %kt: i32) {\n  %0 = constant 0 : i32\n  %1 = constant 1 : i32\n  %da = make_tiled_tma_desc %a <{box = [128, 64], swizzle = b128}> : tma_desc<128x64xf16>\n  %db = make_tiled_tma_desc %b <{box = [256, 64], swizzle = b128}> : tma_desc<256x64xf16>\n  %z = constant 0.0 : tile<128x256xf32>\n",
    );
    text.push_str("  %x, %y, %w = for %i = %0 to %kt step %1 iter (%p = %z : tile<128x256xf32>, %q = %z : tile<128x256xf32>, %r = %z : tile<128x256xf32>) {\n    %ta = async.tiled_tma_load %da[%0, %i] : tile<128x64xf16>\n    %tb = async.tiled_tma_load %db[%0, %i] : tile<256x64xf16>\n");
    for (n, acc) in [("p1", "p"), ("q1", "q"), ("r1", "r")] {
        text.push_str(&format!(
            "    %{n} = async.dot %ta, %tb, %{acc} <{{transpose_b}}> : tile<128x256xf32>\n"
        ));
    }
    text.push_str("    yield %p1, %q1, %r1\n  }\n  %s = addf %x, %y : tile<128x256xf32>\n  %t = addf %s, %w : tile<128x256xf32>\n  tiled_store %t, %c[%0, %0]\n  return\n}\n");
    let (func, plan) = placed(&text);
    let e = assign_buffers(&func, &plan, &ScheduleAnalysis::default(), &*isa(), &BufferOptions::default())
        .err()
        .expect("does not fit");
    assert_eq!(e.code, Code::E0603);
    assert!(e.message.contains("768 columns") && e.message.contains("there are 512"), "{e}");
    assert!(e.location.is_some());
}

/// Without its drain a kernel may end while the matrix engine still arrives on a barrier.
#[test]
fn missing_drains_are_refused() {
    for name in ["simple", "persistent", "two_accumulators"] {
        let (.., mat) = build(name);
        let isa = tileas_isa::isa_for_cpu("sm_100a").expect("a target");
        verify_materialized(&mat, &*isa).expect("the original is accepted");
        let drains: Vec<_> = mat
            .all_ops()
            .into_iter()
            .filter(|&op| {
                mat.opcode(op) == Opcode::AsyncPipelineProducerAcquire && mat.has_attr(op, keys::DRAIN)
            })
            .collect();
        assert!(!drains.is_empty(), "{name} has a ring that the matrix engine frees");
        for op in drains {
            let mut mutant = mat.clone();
            mutant.remove_op(op);
            let errors = verify_materialized(&mutant, &*isa).expect_err("a drain is missing");
            assert!(errors.iter().any(|e| e.code == Code::E0703), "{name}: {errors:?}");
        }
    }
}

/// Streams, carries, and branches within the loop, at a bound and stride that are no constants of convenience.
const STREAM: &str = "kernel @stream(%x: view<gmem, ?x?xf32>, %y: view<gmem, ?x?xf32>, %c: view<gmem, ?x?xf32>, %n: i32, %lo: i32, %m: i32) {
  %b = program_id <{axis = 0}> : i32
  %z = constant 0.0 : tile<128x32xf32>
  %sum = for %i = %lo to %n step 3 iter (%s = %z : tile<128x32xf32>) {
    %p = tiled_load %x[%b, %i] : tile<128x32xf32>
    %q = tiled_load %y[%b, %i] : tile<128x32xf32>
    %t = mulf %p, %q : tile<128x32xf32>
    %low = cmpi %i, %m <{predicate = lt}> : i1
    %v = if %low : tile<128x32xf32> {
      %w = addf %t, %p : tile<128x32xf32>
      yield %w
    } else {
      tiled_store %t, %c[%b, %i]
      yield %q
    }
    %u = addf %s, %v : tile<128x32xf32>
    yield %u : tile<128x32xf32>
  }
  tiled_store %sum, %c[%b, %m]
  return
}
";

/// Runs a kernel with these starts in a form, at every small trip count.
fn skewed_runs(text: &str, ii: u32, list: &[u32], opts: MaterializeOptions) -> (u32, String) {
    let (func, plan) = placed(text);
    let isa = isa();
    let sched = starts(&func, &plan, ii, list);
    let ba = assign_buffers(&func, &plan, &sched, &*isa, &BufferOptions::default()).expect("fits");
    let mat = materialize_in(&func, &plan, &sched, &ba, opts, &mut MaterializeScratch::default())
        .unwrap_or_else(|e| panic!("{e} {list:?}\n{}", print_function(&func)));
    let text = print_function(&mat);
    assert!(verify_function(&mat).is_empty(), "{text}");
    verify_materialized(&mat, &*isa).unwrap_or_else(|e| panic!("{e:?}\n{text}"));
    let skew = list.iter().max().unwrap_or(&0) / ii;
    for n in 0..=i64::from(skew) * 3 + 4 {
        for lo in [0, 1, -2] {
            let ints = [n, lo, 2];
            let want = sim::reference(&func, &ints);
            for seed in 0..4 {
                assert_eq!(sim::run(&mat, &ints, seed), Ok(want.clone()), "{ints:?}, seed {seed}\n{text}");
            }
        }
    }
    (skew, text)
}

/// Loops of simt agents have a prologue, a loop without guards and an epilogue; beyond the limit they are rolled.
#[test]
fn loops_of_simt_agents_are_peeled() {
    let carry = source("register_carry");
    let to_registers = source("tma_to_registers");
    let simple = source("simple");
    let mut seen = Vec::new();
    for (text, ii, list) in [
        (STREAM, 8, &[0, 8, 16, 24, 32][..]),
        (STREAM, 16, &[0, 4, 20, 24, 40]),
        (carry.as_str(), 8, &[0, 24]),
        (to_registers.as_str(), 16, &[0, 16, 16, 40, 56, 64, 72, 80, 80, 96, 100, 104, 108]),
    ] {
        for (limit, peeled) in [(1000, true), (0, false)] {
            let opts = MaterializeOptions { max_peeled_ops: limit };
            let (skew, out) = skewed_runs(text, ii, list, opts);
            seen.push(skew);
            assert_eq!(out.contains(", steady"), peeled, "{out}");
            assert_eq!(out.contains("prologue = 0"), peeled);
            // The copies are skew + 1 times the ops of the loop, no more.
            let loads = out.matches("tiled_load %x").count();
            assert!(loads <= if peeled { 1 + skew as usize } else { 1 }, "{loads}\n{out}");
        }
    }
    assert!(seen.iter().max() > Some(&3), "{seen:?}");
    // A lane alone keeps its guards.
    let (_, out) = skewed_runs(&simple, 16, &[0, 40, 48], MaterializeOptions::default());
    assert!(out.contains("skew = 2") && !out.contains("steady"), "{out}");
}

/// The emitted order is that of the schedule: two neighbouring ops exchanged, a start or an II changed are refused.
#[test]
fn another_order_is_refused() {
    let (func, plan) = placed(STREAM);
    let isa = isa();
    let sched = starts(&func, &plan, 8, &[0, 4, 8, 24, 32]);
    let ba = assign_buffers(&func, &plan, &sched, &*isa, &BufferOptions::default()).expect("fits");
    let mut tried = 0;
    for max_peeled_ops in [0, 1000] {
        let opts = MaterializeOptions { max_peeled_ops };
        let mat = materialize_in(&func, &plan, &sched, &ba, opts, &mut MaterializeScratch::default())
            .expect("materialises");
        verify_materialized(&mat, &*isa).expect("accepted");
        let note = |op: Op, key| mat.inherent(op).get(key).is_some();
        let refused = |m: &Function, what: String| {
            let e = verify_materialized(m, &*isa)
                .err()
                .unwrap_or_else(|| panic!("{what} passes\n{}", print_function(m)));
            assert!(e.iter().any(|e| matches!(e.code, Code::E0709 | Code::E0710)), "{what}: {e:?}");
        };
        for op in mat.all_ops() {
            if note(op, keys::START) {
                tried += 1;
                let mut m = mat.clone();
                let a = m.intern_attr(AttrData::Int(61, None));
                m.inherent_mut(op).set(keys::START, a);
                refused(&m, format!("another start of {op}"));
                let mut m = mat.clone();
                m.inherent_mut(op).remove(keys::START);
                refused(&m, format!("{op} without start"));
            }
            if note(op, keys::II) {
                let mut m = mat.clone();
                let a = m.intern_attr(AttrData::Int(3, None));
                m.inherent_mut(op).set(keys::II, a);
                refused(&m, format!("another II of {op}"));
            }
            let Some(next) = mat.next_op(op).filter(|&n| note(op, keys::ORIGIN) && note(n, keys::ORIGIN))
            else {
                continue;
            };
            tried += 1;
            let mut m = mat.clone();
            m.remove_op(next);
            m.insert_before(op, next);
            refused(&m, format!("{op} and {next} exchanged"));
        }
    }
    assert!(tried > 20, "{tried}");
}

/// Buffers, barriers and agents that reach beyond what the kernel asks for, or lie in each other, are refused.
#[test]
fn places_outside_of_memory_are_refused() {
    let isa = isa();
    let mut tried = 0;
    for name in ["simple", "persistent", "column_bias"] {
        let mat = build(name).3;
        let mut refused = |what: &str, change: &dyn Fn(&mut Function)| {
            let mut m = mat.clone();
            change(&mut m);
            let errors =
                verify_materialized(&m, &*isa).err().unwrap_or_else(|| panic!("{name}: {what} passes"));
            assert!(errors.iter().any(|e| e.code == Code::E0708), "{name}: {what}: {errors:?}");
            tried += 1;
        };
        let kernel = |key, value| {
            move |m: &mut Function| {
                let a = m.intern_attr(AttrData::Int(value, None));
                m.attrs.set(key, a);
            }
        };
        refused("less shared memory", &kernel(keys::DYNAMIC_SMEM, 1032));
        refused("more shared memory than there is", &kernel(keys::DYNAMIC_SMEM, 1 << 20));
        refused("fewer threads", &kernel(keys::NUM_THREADS, 96));
        for op in mat.all_ops() {
            let is_buffer = mat.opcode(op) == Opcode::AllocTensor;
            for (key, values) in [
                (keys::OFFSET, [1 << 24, 64]),
                (keys::COLUMN, [512, -1]),
                (keys::OWNER_WARP, [31, 32]),
                (keys::FULL_AT, [0, 1 << 24]),
                (keys::EMPTY_AT, [1 << 24, 0]),
                (keys::NAMED, [0, 16]),
            ] {
                // Small tiles in dense layouts may begin anywhere.
                let offset = key == keys::OFFSET && !is_buffer;
                for value in values.into_iter().filter(|_| mat.has_attr(op, key) && !offset) {
                    let dense =
                        key == keys::OFFSET && value == 64 && mat.attr_int(op, keys::ALIGN) < Some(512);
                    if !dense {
                        refused(&format!("{value} in {op}"), &|m| m.set_int(op, key, value));
                    }
                }
            }
            if let (Some(full), true) = (mat.attr_int(op, keys::FULL_AT), mat.has_attr(op, keys::EMPTY_AT)) {
                refused("two barriers in one place", &|m| m.set_int(op, keys::EMPTY_AT, full));
                refused("a barrier between two words", &|m| m.set_int(op, keys::FULL_AT, full + 4));
            }
        }
        if mat.attrs.get(keys::TMEM_BASE_AT).is_some() {
            refused("tensor memory that cannot be had", &kernel(keys::TMEM_COLUMNS, 48));
            refused("the base in a tile", &kernel(keys::TMEM_BASE_AT, 0));
        }
    }
    assert!(tried > 40, "{tried}");
}
