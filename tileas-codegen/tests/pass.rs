//! Passes: analyses and when they are refused, what a schedule must keep to be materialised, orders of passes.

use tileas_codegen::ir::{Function, Module, Op, Opcode, parse_module, print_function};
use tileas_codegen::isa::SharedIsa;
use tileas_codegen::passes::{PASSES, PREPARATION, PassInfo, Pipeline, Step};
use tileas_codegen::schedule::ScheduleOptions;
use tileas_codegen::settings::ConstraintMode;
use tileas_codegen::testing::agents::{AgentOptions, AgentPlan, plan_agents};
use tileas_codegen::testing::buffers::{BufferAssignment, BufferOptions, assign_buffers};
use tileas_codegen::testing::constraints::parse_constraints;
use tileas_codegen::testing::ddg::{Extra, ScheduleAnalysis, Scheduler, schedule_function_with};
use tileas_codegen::testing::pass::{ORDER, legalize};
use tileas_codegen::testing::place::{PlaceOptions, place};
use tileas_codegen::{Code, CodegenError, Context, Loc, Settings, Stage};

const GEMM: &str = "
kernel @gemm(%a: view<gmem, ?x?xf16>, %b: view<gmem, ?x?xf16>, %c: view<gmem, ?x?xf32>, %n: i32) {
  %m = program_id <{axis = 0}> : i32
  %da = make_tiled_tma_desc %a <{box = [128, 64], swizzle = b128}> : tma_desc<128x64xf16>
  %db = make_tiled_tma_desc %b <{box = [128, 64], swizzle = b128}> : tma_desc<128x64xf16>
  %z = constant 0.0 : tile<128x128xf32>
  %acc = for %i = 0 to %n step 1 iter (%s = %z : tile<128x128xf32>) {
    %ta = async.tiled_tma_load %da[%m, %i] <{tileas.schedule.constraint.gid = 1, tileas.schedule.constraint.leader_gid = 1}> : tile<128x64xf16>
    %tb = async.tiled_tma_load %db[%m, %i] <{tileas.schedule.constraint.gid = 1, tileas.schedule.constraint.leader_gid = 1}> : tile<128x64xf16>
    %x = async.dot %ta, %tb, %s <{transpose_b, tileas.schedule.constraint.max_depth = 3, tileas.schedule.constraint.force_serial_execution}> : tile<128x128xf32>
    yield %x : tile<128x128xf32>
  }
  tiled_store %acc, %c[%m, 0]
  return
}
";

fn isa() -> SharedIsa {
    tileas_isa::isa_for_cpu("sm_100a").expect("known cpu")
}

fn read(text: &str) -> Function {
    let module = parse_module(text).unwrap_or_else(|e| panic!("{e}"));
    module.functions.into_iter().next().expect("one kernel")
}

/// A kernel with all that is known of it before materialisation.
struct Known {
    func: Function,
    plan: AgentPlan,
    analysis: ScheduleAnalysis,
    buffers: BufferAssignment,
    /// The only loop.
    for_op: Op,
}

fn known(text: &str) -> Known {
    let (func, isa) = (read(text), isa());
    let plan = plan_agents(&func, &*isa, &AgentOptions::default()).expect("agents");
    let (func, plan) = place(&func, &plan, &*isa, &PlaceOptions::default()).expect("placement");
    let constraints = parse_constraints(&func, func.ops(), ConstraintMode::Spec).0;
    let mut scheduler = Scheduler::new();
    let options = ScheduleOptions::default();
    let analysis = schedule_function_with(
        &func,
        &plan,
        &constraints,
        &*isa,
        &mut scheduler,
        &options,
        &Extra::default(),
    )
    .expect("a schedule");
    let buffers = assign_buffers(&func, &plan, &analysis, &*isa, &BufferOptions::default()).expect("memory");
    let for_op = analysis.regions.first().expect("a loop").for_op;
    Known { func, plan, analysis, buffers, for_op }
}

impl Known {
    fn codes(&self) -> Vec<Code> {
        let found = legalize(&self.func, &self.plan, &self.analysis, &self.buffers, &*isa());
        let found: Vec<_> = found.err().into_iter().flatten().collect();
        for e in &found {
            assert_eq!(e.message, "failed to legalize schedule", "the specified text");
            assert_eq!(e.notes.len(), 1, "and why");
            assert_ne!(e.location, Loc::NONE, "{e}");
        }
        found.iter().map(|e| e.code).collect()
    }

    /// The op of the loop with that opcode, number `n`.
    fn op(&self, opcode: Opcode, n: usize) -> Op {
        let mut all = self.func.ops().filter(|&op| self.func.opcode(op) == opcode);
        all.nth(n).unwrap_or_else(|| panic!("{opcode:?} {n}\n{}", print_function(&self.func)))
    }

    /// Moves an op, in what materialisation reads and in what it was made from.
    fn seat(&mut self, op: Op, start: u32) {
        self.analysis.loops[self.for_op].as_mut().expect("a schedule").start[op] = start;
        let node = self.analysis.node_of[op].expect("a seat");
        self.analysis.regions[0].schedule.start[node] = start;
    }

    fn start(&self, op: Op) -> u32 {
        self.analysis.loops[self.for_op].as_ref().expect("a schedule").start[op]
    }

    fn ii(&self) -> u32 {
        self.analysis.regions[0].schedule.ii
    }
}

/// A schedule as it comes may be materialised; each damage is found and has its code.
#[test]
fn damaged_schedules_are_not_legal() {
    let fresh = || known(GEMM);
    assert_eq!(fresh().codes(), []);
    let (load, second, dot) = {
        let k = fresh();
        (k.op(Opcode::AsyncTiledTmaLoad, 0), k.op(Opcode::AsyncTiledTmaLoad, 1), k.op(Opcode::AsyncDot, 0))
    };
    fn at(k: &mut Known) -> &mut tileas_codegen::testing::ddg::LoopSchedule {
        k.analysis.loops[k.for_op].as_mut().expect("a schedule")
    }
    // E0403: no schedule, no seat, another start than the one found, another II.
    let mut k = fresh();
    k.analysis.loops[k.for_op] = None;
    assert_eq!(k.codes(), [Code::E0403]);
    let mut k = fresh();
    at(&mut k).scheduled.pop();
    assert_eq!(k.codes(), [Code::E0403]);
    let mut k = fresh();
    k.analysis.node_of[dot] = None.into();
    assert_eq!(k.codes(), [Code::E0403]);
    let mut k = fresh();
    at(&mut k).start[load] += 1;
    assert_eq!(k.codes(), [Code::E0403]);
    let mut k = fresh();
    k.seat(load, u32::MAX);
    assert_eq!(k.codes(), [Code::E0403]);
    let mut k = fresh();
    at(&mut k).ii = 0;
    assert_eq!(k.codes(), [Code::E0403]);
    // E0404: the product before its operands.
    let mut k = fresh();
    k.seat(dot, k.start(load));
    assert!(k.codes().contains(&Code::E0404), "{:?}", k.codes());
    // E0405: a number twice, one beyond the ops, later ops first.
    let mut k = fresh();
    let rank = at(&mut k).order[load];
    at(&mut k).order[dot] = rank;
    assert!(k.codes().contains(&Code::E0405) && k.codes().iter().all(|&c| c == Code::E0405));
    let mut k = fresh();
    at(&mut k).order[dot] = 77;
    assert_eq!(k.codes(), [Code::E0405]);
    let mut k = fresh();
    let (a, b) = (at(&mut k).order[load], at(&mut k).order[dot]);
    (at(&mut k).order[load], at(&mut k).order[dot]) = (b, a);
    assert!(k.codes().contains(&Code::E0405));
    // E0406: a group over two depths, a depth beyond the limit.
    let mut k = fresh();
    let (from, ii) = (k.start(second), k.ii());
    k.seat(second, from + ii);
    assert!(k.codes().contains(&Code::E0406), "{:?}", k.codes());
    let mut k = fresh();
    let ii = k.ii();
    k.seat(dot, 4 * ii);
    assert!(k.codes().contains(&Code::E0406), "{:?}", k.codes());
    // E0407: forgotten exclusions.
    let mut k = fresh();
    k.analysis.regions[0].schedule.exclusions.clear();
    assert_eq!(k.codes(), [Code::E0407]);
    // E0408: rings that lost slots, with and without a word about it.
    let ring = fresh().buffers.pipes.iter().find(|(_, p)| p.why.need > 1 && p.has_empty).map(|(id, _)| id);
    let ring = ring.expect("a ring of several slots");
    let mut k = fresh();
    k.buffers.pipes[ring].depth = 0;
    assert!(k.codes().contains(&Code::E0408), "{:?}", k.codes());
    let found = legalize(&k.func, &k.plan, &k.analysis, &k.buffers, &*isa()).expect_err("no slots");
    assert!(found.iter().any(|e| e.to_string().contains("wait for each other")), "{found:?}");
    let mut k = fresh();
    k.buffers.pipes[ring].depth = 1;
    assert_eq!(k.codes(), [Code::E0408]);
    let reject = tileas_codegen::testing::buffers::Reject { pipe: ring, need: 2, have: 1, edges: Vec::new() };
    k.buffers.rejects.push(reject);
    assert_eq!(k.codes(), [], "reported, and the loop runs on");
    // One slot fewer than the web has is legal, one more is not.
    let mut k = fresh();
    k.buffers.pipes[ring].depth += 1;
    let codes = k.codes();
    assert!(!codes.is_empty() && codes.iter().all(|&c| c == Code::E0408), "{codes:?}");
}

// ---- pipelines

fn refused(list: &str) -> CodegenError {
    match Pipeline::parse(list) {
        Err(e) => e,
        Ok(p) => panic!("`{list}` is taken as {p}"),
    }
}

/// The list of all passes, by their names.
fn standard() -> Vec<&'static str> {
    PASSES.iter().map(|p| p.name).collect()
}

/// The table is the recipe of the driver, and says nothing that does not exist.
#[test]
fn the_table_of_passes_is_consistent() {
    let steps: Vec<Step> = PASSES.iter().map(|p| p.step).collect();
    assert_eq!(steps, Step::STANDARD);
    assert!(Step::STANDARD.windows(2).all(|w| w[0].stage() <= w[1].stage() && w[0] < w[1]));
    let known: Vec<&str> = Settings::list().iter().map(|o| o.name).collect();
    for (i, p) in PASSES.iter().enumerate() {
        assert!(p.options.iter().all(|o| known.contains(o)), "{}: {:?}", p.name, p.options);
        for q in &PASSES[..i] {
            let names = [q.name, q.short];
            assert!(
                !names.contains(&p.name) && (p.short.is_empty() || !names.contains(&p.short)),
                "{}",
                p.name
            );
        }
        assert_eq!(PassInfo::find(p.name).map(|q| q.name), Some(p.name));
    }
    for order in ORDER {
        assert!(PassInfo::find(order.first).is_some() && PassInfo::find(order.second).is_some(), "{order:?}");
    }
    let parsed = Pipeline::parse(&standard().join(",")).expect("the standard pipeline");
    assert_eq!(parsed, Pipeline::standard());
    // The published name of the preparation stands for its stages, which come first.
    for name in PREPARATION.0 {
        assert_eq!(PassInfo::find(name), None);
        let list = format!("{name},{}", standard()[4..].join(","));
        assert_eq!(Pipeline::parse(&list), Ok(Pipeline::standard()));
    }
    assert_eq!(Pipeline::parse(&Pipeline::standard().to_string()), Ok(Pipeline::standard()));
}

/// E1005, E1002, E1003: names, braces and options.
#[test]
fn malformed_pipelines_are_refused() {
    for list in [
        "",
        ",",
        "agents,,place",
        "agents,nonsense",
        "agents{",
        "agents}",
        "agents{{}}",
        "tileas-generate-schedule{a}b",
    ] {
        assert_eq!(refused(list).code, Code::E1005, "{list}");
    }
    assert!(refused("sass").to_string().contains("tileas-generate-schedule"), "known passes are listed");
    let other = refused("agents{scheduler=cost}");
    assert_eq!(other.code, Code::E1002, "an option of another pass: {other}");
    assert!(other.message.contains("`agents`"));
    assert_eq!(refused("agents,place,schedule{search.ii-cap=0}").code, Code::E1003);
}

/// E1006: what a pass needs is not there, because nothing gave it or because a pass in between did not preserve it.
#[test]
fn missing_and_dropped_facts_are_refused() {
    for (list, names) in [
        ("place", &["`place`", "`agents`"][..]),
        ("agents,schedule", &["tileas-generate-schedule", "the placed kernel", "`place`"]),
        (
            "agents,tma,place",
            &["AgentPlan", "`agents`", "`tileas-lower-tma-load-store-to-async` does not preserve"],
        ),
        ("agents,place,materialize", &["ScheduleAnalysis", "tileas-generate-schedule"]),
        // Buffers of an older schedule.
        (
            "agents,place,schedule,buffers,schedule,materialize",
            &["BufferAssignment", "`tileas-generate-schedule` does not preserve"],
        ),
        ("agents,place,place", &["`place`", "value form"]),
        ("views,agents", &["`agents`", "boxes", "`decompose-tiled-views` does not preserve"]),
        (
            "agents,place,schedule,buffers,materialize,lower",
            &["`lower`", "deadlock", "`verify-materialized`"],
        ),
        ("prove,lower,ptx", &["`ptx`", "`nvvm-pretreat`"]),
    ] {
        let error = refused(list);
        assert_eq!(error.code, Code::E1006, "{list}: {error}");
        for name in names {
            assert!(error.to_string().contains(name), "{list}: {error}");
        }
    }
}

/// E1007: each ordering invariant, turned round, is refused and names both passes.
#[test]
fn ordering_invariants_are_checked() {
    for order in ORDER {
        let list = format!("{},{}", order.second, order.first);
        let error = refused(&list);
        assert_eq!(error.code, Code::E1007, "{list}: {error}");
        let (a, b) = (format!("`{}`", order.first), format!("`{}`", order.second));
        assert!(error.message.contains(&a) && error.message.contains(&b), "{error}");
        assert!(error.to_string().contains(order.why));
    }
    // In a pipeline that is fine otherwise.
    let error = refused("prove,lower,cleanup,ptx,registers");
    assert_eq!(error.code, Code::E1007, "{error}");
    let error = refused("agents,schedule,canonical,place,buffers");
    assert_eq!(error.code, Code::E1007, "{error}");
}

fn module(text: &str) -> Module {
    parse_module(text).expect("legal text")
}

/// Through the table, the compiler makes what it makes without: the same text after every stage.
#[test]
fn pipelines_run_the_stages_of_the_driver() {
    let (isa, module, settings) = (isa(), module(GEMM), Settings::default());
    let mut context = Context::new();
    let compiled = context.compile(&module, &*isa, &settings).expect("compiles");
    let run = Pipeline::standard().run(&mut context, &module, &*isa, &settings).expect("runs");
    assert_eq!(run.text(Stage::Ptx), compiled.ptx());
    assert_eq!(run.warnings, compiled.warnings);
    let names = standard();
    for n in 1..=names.len() {
        let pipeline = Pipeline::parse(&names[..n].join(",")).expect("a prefix");
        let run = pipeline.run(&mut context, &module, &*isa, &settings).expect("runs");
        if ["refresh-tma-boxes", "buffers", "verify-materialized", "ptx", "place"].contains(&names[n - 1]) {
            let whole = context.run_to(pipeline.stage(), &module, &*isa, &settings).expect("runs");
            assert_eq!(run.text(pipeline.stage()), whole.text(pipeline.stage()), "{pipeline}");
        }
        assert!(!run.text(pipeline.stage()).is_empty(), "{pipeline}");
    }
    // Two neighbours exchanged: refused, or the PTX still assembles from the same instructions.
    let mut legal = 0;
    for i in 0..names.len() - 1 {
        let mut list = names.clone();
        list.swap(i, i + 1);
        if let Ok(pipeline) = Pipeline::parse(&list.join(",")) {
            legal += 1;
            let run = pipeline.run(&mut context, &module, &*isa, &settings).expect("runs");
            assert_eq!(run.text(Stage::Ptx).lines().count(), compiled.ptx().lines().count(), "{pipeline}");
        }
    }
    assert_eq!(legal, 1, "only cleanup and registers may change places");
}

/// Options of passes hold for their pipeline; kernels enter where they are.
#[test]
fn options_and_forms() {
    let (isa, module, settings) = (isa(), module(GEMM), Settings::default());
    let mut context = Context::new();
    let list = "agents,place,tileas-generate-schedule{scheduler=serial search.step_limit=1000},buffers";
    let pipeline = Pipeline::parse(list).expect("legal");
    assert_eq!(pipeline.settings(&settings).map(|s| s.get("search.step-limit")), Ok(Some("1000".to_owned())));
    let run = pipeline.run(&mut context, &module, &*isa, &settings).expect("runs");
    let serial = run.kernels[0].schedule.as_ref().expect("a schedule").regions[0].schedule.generator;
    assert_eq!(serial.to_string(), "serial");
    assert!(run.kernels[0].buffers.is_some() && run.kernels[0].materialized.is_none());
    // A materialised kernel enters late; one in value form cannot.
    let late = Pipeline::parse("prove,lower,cleanup,registers,ptx").expect("legal");
    let errors = late.run(&mut context, &module, &*isa, &settings).err().expect("value form");
    assert_eq!(errors.iter().map(|e| e.code).collect::<Vec<_>>(), [Code::E1004]);
    let text = context
        .run_to(Stage::Materialized, &module, &*isa, &settings)
        .expect("runs")
        .text(Stage::Materialized);
    let materialized = parse_module(&text).expect("legal text");
    let run = late.run(&mut context, &materialized, &*isa, &settings).expect("runs");
    assert!(run.text(Stage::Ptx).contains("tcgen05.mma"));
    let early = Pipeline::parse("agents,place").expect("legal");
    let errors = early.run(&mut context, &materialized, &*isa, &settings).err().expect("past that");
    assert_eq!(errors.iter().map(|e| e.code).collect::<Vec<_>>(), [Code::E1004]);
}
