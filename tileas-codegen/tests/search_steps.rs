//! One budget of search steps per function: never exceeded, shared by loops and rounds, the same each time.

use tileas_codegen::ir::{Op, parse_module};
use tileas_codegen::schedule::{CycleModel, Generator, ScheduleOptions, SearchSteps, verify};
use tileas_codegen::settings::ConstraintMode;
use tileas_codegen::testing::agents::{AgentOptions, plan_agents};
use tileas_codegen::testing::constraints::parse_constraints;
use tileas_codegen::testing::ddg::{Extra, Pass, Scheduler, schedule_pass};
use tileas_codegen::testing::place::{PlaceOptions, place};
use tileas_codegen::testing::storage::Storage;
use tileas_codegen::{Context, Settings, Stage};

/// Nested loops with a branch and two stores of a tile, cut into slices. Ring depths ask for rounds of refinement, and no
/// search finds or refutes what lies between the bound and what the first attempts find.
const KERNEL: &str = "kernel @k(%a: view<gmem, ?x?xbf16>, %b: view<gmem, ?x?xbf16>, %c: view<gmem, ?x?xbf16>, %n: i32, %m: i32) {
  %bm = program_id <{axis = 0}> : i32
  %bn = program_id <{axis = 1}> : i32
  %da = make_tiled_tma_desc %a <{box = [128, 64], swizzle = b128}> : tma_desc<128x64xbf16>
  %db = make_tiled_tma_desc %b <{box = [64, 128], swizzle = b128}> : tma_desc<64x128xbf16>
  %zero = constant 0.0 : tile<128x128xf32>
  %r = for %i = 0 to %n step 2 iter (%s = %zero : tile<128x128xf32>) {
    %t = for %j = 2 to %n step 1 iter (%u = %s : tile<128x128xf32>) {
      %h = ftof %u : tile<128x128xbf16>
      tiled_store %h, %c[%bm, %bn]
      %g = ftof %u : tile<128x128xbf16>
      tiled_store %g, %c[%bm, %bn]
      %p = cmpi %j, %m <{predicate = lt}> : i1
      %v = if %p : tile<128x128xf32> {
        %x = async.tiled_tma_load %da[%bm, %j] : tile<128x64xbf16>
        %y = async.tiled_tma_load %db[%j, %bn] : tile<64x128xbf16>
        %z = async.dot %x, %y, %u : tile<128x128xf32>
        yield %z
      } else {
        yield %u
      }
      yield %v
    }
    yield %t
  }
  %x = async.tiled_tma_load %da[%bm, %m] : tile<128x64xbf16>
  %y = async.tiled_tma_load %db[%m, %bn] : tile<64x128xbf16>
  %z = async.dot %x, %y, %r : tile<128x128xf32>
  %h = ftof %z : tile<128x128xbf16>
  tiled_store %h, %c[%bm, %bn]
  return
}
";

/// What the schedules look like, whether some were cut short, and the steps taken.
fn schedule(context: &mut Context, steps: &str) -> (String, bool, u64) {
    let isa = tileas_isa::isa_for_cpu("sm_100a").expect("known cpu");
    let module = parse_module(KERNEL).unwrap_or_else(|e| panic!("{e}"));
    let mut b = Settings::builder();
    // In published weights, which leave more to search for.
    for (name, value) in [("published.cycle-model", "slot"), ("slice-regs", "32"), ("search.steps", steps)] {
        b.set(name, value).unwrap_or_else(|e| panic!("{e}"));
    }
    let run =
        context.run_to(Stage::Schedule, &module, &*isa, &b.finish()).unwrap_or_else(|e| panic!("{e:?}"));
    let analysis = run.kernels[0].schedule.as_ref().expect("scheduled");
    for r in &analysis.regions {
        assert!(verify::verify(&r.problem, &r.schedule).is_empty());
        assert_eq!(r.schedule.generator, Generator::Modulo);
    }
    let cut = analysis.regions.iter().any(|r| r.schedule.stats.curtailed);
    (run.text(Stage::Schedule), cut, context.search_steps())
}

#[test]
fn a_function_takes_no_more_steps_than_the_option_allows() {
    let mut warm = Context::new();
    let mut last = 0;
    for steps in [0, 1, 1_000, 40_000, 200_000] {
        let (text, cut, used) = schedule(&mut warm, &steps.to_string());
        assert!(used <= steps, "{used} of {steps}");
        assert!(used >= last, "{used} steps where fewer sufficed for {last}");
        assert!(cut && text.contains(", steps of the function spent"), "{text}");
        // The past of the context shows nowhere.
        assert_eq!((text, cut, used), schedule(&mut Context::new(), &steps.to_string()));
        last = used;
    }
    // The one loop takes what the first pass may, but for what is kept for the end.
    assert!(last > 200_000 / 4 * 3 / 64 * 63, "{last}");
}

/// A later pass without anything new to ask schedules nothing; a depth limit for one op is something new.
#[test]
fn a_loop_whose_problem_is_the_same_keeps_its_schedule() {
    let isa = tileas_isa::isa_for_cpu("sm_100a").expect("known cpu");
    let module = parse_module(KERNEL).unwrap_or_else(|e| panic!("{e}"));
    let source = &module.functions[0];
    let plan = plan_agents(source, &*isa, &AgentOptions::default()).unwrap_or_else(|e| panic!("{e}"));
    let options = PlaceOptions { slice_regs: 32, ..PlaceOptions::default() };
    let (func, plan) = place(source, &plan, &*isa, &options).unwrap_or_else(|e| panic!("{e}"));
    let (keys, _) = parse_constraints(&func, func.all_ops(), ConstraintMode::Spec);
    let o = ScheduleOptions { cycle_model: CycleModel::Slot, ..ScheduleOptions::default() };
    let storage = Storage::of(&func, &plan).unwrap_or_else(|e| panic!("{e}"));
    let mut scheduler = Scheduler::new();
    let mut steps = SearchSteps::new(400_000);
    let mut pass = |extra: &Extra, before, steps: &mut SearchSteps| {
        let pass = Pass { storage: &storage, extra, steps, before, products: None };
        schedule_pass(&func, &plan, &keys, &*isa, &mut scheduler, &o, pass).unwrap_or_else(|e| panic!("{e}"))
    };
    let first = pass(&Extra::default(), None, &mut steps);
    let used = steps.used();
    assert!(used > 200_000, "{used}");
    let again = pass(&Extra::default(), Some(&first), &mut steps);
    assert_eq!(steps.used(), used);
    assert_eq!(first.regions[0].schedule, again.regions[0].schedule);
    // With a limit more it is scheduled again, and not searched for below the interval it had.
    let last: Op = *first.regions[0].ops.values().last().expect("ops");
    let extra = Extra { depths: vec![(last, 1)], ..Extra::default() };
    let limited = pass(&extra, Some(&first), &mut steps);
    assert!(!limited.regions[0].problem.is_same(&first.regions[0].problem));
    assert_eq!(limited.regions[0].schedule.ii, first.regions[0].schedule.ii);
    let took = steps.used() - used;
    // Asked without the earlier pass it is, although half as much is left then.
    pass(&extra, None, &mut steps);
    let without = steps.used() - used - took;
    assert!(took > 0 && took < without / 2, "{took} {without}");
}
