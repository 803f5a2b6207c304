//! Compile time, warm, of a whole module and of each stage: `cargo bench -p tileas-isa-blackwell --bench compile`.
//!
//! Every stage runs on what the stages before it left behind, in memory kept as a context keeps it; the rows from
//! `c_check` on sum to `a_whole`, but for the copy that a row works on. Allocations are counted by the test `warm_context`:
//! a counting allocator would be a tenth of the time here.

use divan::{Bencher, black_box};
use tileas_codegen::ir::{Function, Module};
use tileas_codegen::isa::SharedIsa;
use tileas_codegen::testing::agents::{AgentPlan, plan_agents};
use tileas_codegen::testing::buffers::{BufferAssignment, BufferOptions, assign_buffers};
use tileas_codegen::testing::constraints::ConstraintMap;
use tileas_codegen::testing::ddg::{ScheduleAnalysis, Scheduler, schedule_function};
use tileas_codegen::testing::lower::{LowerScratch, MAX_INSTRUCTIONS, lower, lower_in};
use tileas_codegen::testing::materialize::{
    MaterializeScratch, SyncScratch, materialize, materialize_in, verify_materialized_in,
};
use tileas_codegen::testing::nvvm::{CleanupScratch, Verifier, cleanup, verify};
use tileas_codegen::testing::place::{place, place_in};
use tileas_codegen::testing::ptx::{PtxEmitter, PtxOptions};
use tileas_codegen::testing::regalloc::{Allocator, RegallocOptions};
use tileas_codegen::{Context, Settings, nvvm};

const GEMM: &str = include_str!("../../examples/gemm_f16.tileas");
const PERSISTENT: &str = include_str!("../../examples/gemm_persistent.tileas");
const ATTENTION: &str = include_str!("../../examples/attention_fwd.tileas");
const SOFTMAX: &str = include_str!("../../examples/kernels/softmax_rows.tileas");
const NORM: &str = include_str!("../../examples/kernels/layer_norm_backward.tileas");

fn main() {
    divan::main();
}

/// A kernel with the results of all stages.
struct Stages {
    text: &'static str,
    isa: SharedIsa,
    settings: Settings,
    module: Module,
    plan: AgentPlan,
    placed: Function,
    placed_plan: AgentPlan,
    constraints: ConstraintMap,
    analysis: ScheduleAnalysis,
    buffers: BufferAssignment,
    materialized: Function,
    lowered: nvvm::Module,
    clean: nvvm::Module,
}

impl Stages {
    fn of(text: &'static str) -> Stages {
        let (isa, settings) =
            (tileas_isa_blackwell::isa_for_cpu("sm_100a").expect("a target"), Settings::default());
        let module = Context::new().parse(text, &settings).expect("the example parses");
        let func = &module.functions[0];
        let plan = plan_agents(func, &*isa, &settings.agent_options()).expect("agents");
        let (placed, placed_plan) = place(func, &plan, &*isa, &settings.place_options()).expect("placed");
        let mut constraints = ConstraintMap::default();
        constraints.parse(&placed, placed.all_ops(), *settings.constraint_mode(), &mut Vec::new());
        let options = settings.schedule_options();
        let analysis =
            schedule_function(&placed, &placed_plan, &constraints, &*isa, &mut Scheduler::new(), &options)
                .expect("a schedule");
        let buffers = assign_buffers(&placed, &placed_plan, &analysis, &*isa, &BufferOptions::default())
            .expect("buffers");
        let materialized = materialize(&placed, &placed_plan, &analysis, &buffers).expect("materialised");
        let lowered = lower(&materialized, &*isa).expect("lowered").module;
        let mut clean = lowered.clone();
        cleanup(&mut clean.functions[0], &mut CleanupScratch::default());
        Stages {
            text,
            isa,
            settings,
            module,
            plan,
            placed,
            placed_plan,
            constraints,
            analysis,
            buffers,
            materialized,
            lowered,
            clean,
        }
    }
}

/// Benches of one kernel, whole and by stage.
macro_rules! kernel {
    ($name:ident, $text:expr) => {
        mod $name {
            use super::*;

            #[divan::bench]
            fn a_whole(bencher: Bencher<'_, '_>) {
                let s = Stages::of($text);
                let mut context = Context::new();
                bencher.bench_local(|| {
                    context.compile(black_box(&s.module), &*s.isa, &s.settings).expect("compiles")
                });
            }

            #[divan::bench]
            fn a_whole_verify_passes(bencher: Bencher<'_, '_>) {
                let mut s = Stages::of($text);
                s.settings = s.settings.with("verify-passes", "true").expect("an option");
                let mut context = Context::new();
                bencher.bench_local(|| {
                    context.compile(black_box(&s.module), &*s.isa, &s.settings).expect("compiles")
                });
            }

            #[divan::bench]
            fn b_parse(bencher: Bencher<'_, '_>) {
                let s = Stages::of($text);
                let mut context = Context::new();
                bencher.bench_local(|| context.parse(black_box(s.text), &s.settings).expect("parses"));
            }

            #[divan::bench]
            fn c_check(bencher: Bencher<'_, '_>) {
                let s = Stages::of($text);
                let mut context = Context::new();
                bencher.bench_local(|| context.check(black_box(&s.module), &s.settings).expect("is valid"));
            }

            #[divan::bench]
            fn d_agents(bencher: Bencher<'_, '_>) {
                let s = Stages::of($text);
                let (func, options) = (&s.module.functions[0], s.settings.agent_options());
                bencher.bench_local(|| plan_agents(black_box(func), &*s.isa, &options).expect("agents"));
            }

            #[divan::bench]
            fn e_place(bencher: Bencher<'_, '_>) {
                let s = Stages::of($text);
                let (func, options) = (&s.module.functions[0], s.settings.place_options());
                let mut spare = None;
                bencher.bench_local(|| {
                    let placed = place_in(black_box(func), &s.plan, &*s.isa, &options, spare.take());
                    spare = placed.ok().map(|p| p.0);
                });
            }

            #[divan::bench]
            fn f_schedule(bencher: Bencher<'_, '_>) {
                let s = Stages::of($text);
                let (mut scheduler, options) = (Scheduler::new(), s.settings.schedule_options());
                bencher.bench_local(|| {
                    let (func, plan) = (black_box(&s.placed), &s.placed_plan);
                    schedule_function(func, plan, &s.constraints, &*s.isa, &mut scheduler, &options)
                        .expect("a schedule")
                });
            }

            #[divan::bench]
            fn g_buffers(bencher: Bencher<'_, '_>) {
                let s = Stages::of($text);
                let options = BufferOptions::default();
                bencher.bench_local(|| {
                    assign_buffers(black_box(&s.placed), &s.placed_plan, &s.analysis, &*s.isa, &options)
                        .expect("buffers")
                });
            }

            #[divan::bench]
            fn h_materialize(bencher: Bencher<'_, '_>) {
                let s = Stages::of($text);
                let (options, mut scratch) =
                    (s.settings.materialize_options(), MaterializeScratch::default());
                bencher.bench_local(|| {
                    let placed = black_box(&s.placed);
                    let done = materialize_in(
                        placed,
                        &s.placed_plan,
                        &s.analysis,
                        &s.buffers,
                        options,
                        &mut scratch,
                    );
                    scratch.spare = done.ok();
                });
            }

            #[divan::bench]
            fn i_lower(bencher: Bencher<'_, '_>) {
                let s = Stages::of($text);
                let mut scratch = LowerScratch::default();
                bencher.bench_local(|| {
                    let lowered =
                        lower_in(black_box(&s.materialized), &[], &*s.isa, MAX_INSTRUCTIONS, &mut scratch);
                    lowered.into_iter().for_each(|l| scratch.recycle(l.module));
                });
            }

            #[divan::bench]
            fn j_cleanup(bencher: Bencher<'_, '_>) {
                let s = Stages::of($text);
                let mut scratch = CleanupScratch::default();
                bencher.with_inputs(|| s.lowered.clone()).bench_local_refs(|module| {
                    cleanup(&mut module.functions[0], &mut scratch);
                });
            }

            #[divan::bench]
            fn k_registers(bencher: Bencher<'_, '_>) {
                let mut s = Stages::of($text);
                let (mut allocator, options) = (Allocator::default(), RegallocOptions::default());
                bencher.bench_local(|| allocator.run(black_box(&mut s.clean.functions[0]), &options));
            }

            #[divan::bench]
            fn l_verify(bencher: Bencher<'_, '_>) {
                let s = Stages::of($text);
                let mut verifier = Verifier::default();
                bencher
                    .bench_local(|| verifier.verify(black_box(&s.clean), (9, 5), &mut Vec::new()).is_some());
            }

            #[divan::bench]
            fn m_ptx(bencher: Bencher<'_, '_>) {
                let s = Stages::of($text);
                let (mut emitter, options) = (PtxEmitter::default(), PtxOptions::default());
                let verified = verify(&s.clean, (9, 5), &mut Vec::new()).expect("is valid");
                bencher.bench_local(|| {
                    let mut text = String::new();
                    emitter.emit(black_box(verified), &options, &mut text);
                    text
                });
            }

            #[divan::bench]
            fn n_verify_placed(bencher: Bencher<'_, '_>) {
                let s = Stages::of($text);
                bencher.bench_local(|| tileas_codegen::ir::verify_function(black_box(&s.placed)));
            }

            #[divan::bench]
            fn o_verify_materialized(bencher: Bencher<'_, '_>) {
                let s = Stages::of($text);
                bencher.bench_local(|| tileas_codegen::ir::verify_function(black_box(&s.materialized)));
            }

            #[divan::bench]
            fn p_constraints(bencher: Bencher<'_, '_>) {
                let s = Stages::of($text);
                let (mut map, mode) = (ConstraintMap::default(), *s.settings.constraint_mode());
                bencher.bench_local(|| {
                    map.parse(black_box(&s.placed), s.placed.ops(), mode, &mut Vec::new());
                });
            }

            #[divan::bench]
            fn q_r5(bencher: Bencher<'_, '_>) {
                let s = Stages::of($text);
                let mut scratch = SyncScratch::default();
                bencher.bench_local(|| {
                    let func = black_box(&s.materialized);
                    verify_materialized_in(func, &*s.isa, u32::MAX, &mut scratch).expect("is synchronised")
                });
            }
        }
    };
}

kernel!(gemm, GEMM);
kernel!(persistent, PERSISTENT);
kernel!(attention, ATTENTION);
kernel!(softmax, SOFTMAX);
kernel!(norm, NORM);
