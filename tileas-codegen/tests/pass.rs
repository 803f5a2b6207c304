//! Passes: analyses and when they are refused, what a schedule must keep to be materialised, orders of passes.

use tileas_codegen::agents::{AgentOptions, AgentPlan, plan_agents};
use tileas_codegen::buffers::{BufferAssignment, BufferOptions, assign_buffers};
use tileas_codegen::constraints::{ConstraintMode, parse_constraints};
use tileas_codegen::ir::{AttrData, Function, Op, Opcode, Scalar, keys, parse_module, print_function};
use tileas_codegen::isa::SharedIsa;
use tileas_codegen::pass::{AnalysisKind, AnalysisManager, legalize};
use tileas_codegen::place::{PlaceOptions, place};
use tileas_codegen::schedule::ddg::schedule_function_with;
use tileas_codegen::schedule::handoff::ScheduleAnalysis;
use tileas_codegen::schedule::{AsyncHandles, ScheduleOptions, Scheduler};
use tileas_codegen::{Code, Loc};

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
    tileas_isa_blackwell::isa_for_cpu("sm_100a").expect("known cpu")
}

fn read(text: &str) -> Function {
    let module = parse_module(text).unwrap_or_else(|e| panic!("{e} at {:?}", e.line_column(text)));
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
    let analysis = schedule_function_with(&func, &plan, &constraints, &*isa, &mut scheduler, &options, &[])
        .expect("a schedule");
    let buffers = assign_buffers(&func, &plan, &analysis, &*isa, &BufferOptions::default()).expect("memory");
    let for_op = analysis.regions.first().expect("a loop").for_op;
    Known { func, plan, analysis, buffers, for_op }
}

impl Known {
    fn codes(&self) -> Vec<Code> {
        let found = legalize(&self.func, &self.plan, &self.analysis, &self.buffers, &*isa())
            .err()
            .unwrap_or_default();
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
        self.analysis.start(op).expect("a seat")
    }

    fn ii(&self) -> u32 {
        self.analysis.regions[0].schedule.ii
    }
}

/// Every change of a function counts, and nothing else does.
#[test]
fn stamps_follow_changes() {
    let mut func = read(GEMM);
    let first = func.stamp();
    assert_eq!(first, func.stamp());
    let _ = print_function(&func);
    let i32_type = func.scalar(Scalar::I32);
    let attr = func.intern_attr(AttrData::Int(1234, None));
    let _ = func.intern_symbol("a name nobody has");
    assert_eq!(first, func.stamp(), "interning adds names, no meaning");
    let op = func.ops().next().expect("an op");
    let last = func.last_op(func.entry()).expect("a terminator");
    let result = func.result(op).expect("a result");
    let entry = func.entry();
    let loc = func.op_loc(op);
    let mut made = None;
    let mut before = first;
    let mut changed = |what: &str, func: &Function| {
        let now = func.stamp();
        assert_ne!(now, before, "{what}");
        assert!(now.same_function(&before));
        before = now;
    };
    let mut step = |what: &str, f: &mut dyn FnMut(&mut Function)| {
        f(&mut func);
        changed(what, &func);
    };
    step("make_op", &mut |f| made = Some(f.make_op(Opcode::Constant, &[], &[], &[i32_type], Loc::NONE)));
    let new = made.expect("made");
    step("insert_before", &mut |f| f.insert_before(op, new));
    step("remove_op", &mut |f| f.remove_op(new));
    step("insert_after", &mut |f| f.insert_after(op, new));
    step("remove_op", &mut |f| f.remove_op(new));
    step("append_op", &mut |f| f.append_op(entry, new));
    step("remove_op", &mut |f| f.remove_op(new));
    step("add_result", &mut |f| _ = f.add_result(new, i32_type));
    step("add_region", &mut |f| _ = f.add_region(new));
    step("add_block_param", &mut |f| _ = f.add_block_param(entry, i32_type));
    step("set_operand", &mut |f| f.set_operand(last, 0, result));
    step("set_operands", &mut |f| f.set_operands(new, &[result], &[1]));
    step("set_op_loc", &mut |f| f.set_op_loc(op, loc));
    step("set_value_type", &mut |f| f.set_value_type(result, i32_type));
    step("set_value_name", &mut |f| f.set_value_name(result, "other"));
    let sym = read(GEMM).intern_symbol("axis");
    step("set_value_sym", &mut |f| f.set_value_sym(result, sym));
    step("set_attr", &mut |f| f.set_attr(op, keys::START, AttrData::Unit));
    step("set_int", &mut |f| f.set_int(op, keys::START, 3));
    step("set_ints", &mut |f| f.set_ints(op, keys::START, &[1, 2]));
    step("inherent_mut", &mut |f| _ = f.inherent_mut(op));
    step("discardable_mut", &mut |f| _ = f.discardable_mut(op));
    step("kernel attributes", &mut |f| f.attrs.set(keys::START, attr));
}

/// Copies are functions of their own, also in the memory of another one.
#[test]
fn copies_have_stamps_of_their_own() {
    let func = read(GEMM);
    let stamp = func.stamp();
    let copy = func.clone();
    assert!(!copy.stamp().same_function(&stamp));
    let spare = read(GEMM);
    let of_spare = spare.stamp();
    let reused = func.copy_in(Some(spare));
    assert!(!reused.stamp().same_function(&of_spare) && !reused.stamp().same_function(&stamp));
    let of_reused = reused.stamp();
    let header = func.header_in(Some(reused));
    assert!(!header.stamp().same_function(&of_reused));
    assert_eq!(print_function(&copy), print_function(&func), "stamps do not show");
}

/// Absent, dropped and stale analyses are refused, each with what became of it: E1008, E1009.
#[test]
fn stale_analyses_are_refused() {
    let Known { mut func, plan, analysis, buffers, for_op } = known(GEMM);
    let mut manager = AnalysisManager::new();
    let absent = manager.get::<ScheduleAnalysis>(&func).err().expect("nobody published it");
    assert_eq!((absent.code, absent.notes.len()), (Code::E1008, 0), "{absent}");
    manager.publish(&func, plan);
    manager.publish(&func, analysis);
    manager.publish(&func, buffers);
    assert!(manager.get::<AgentPlan>(&func).is_ok() && manager.has::<BufferAssignment>(&func));
    // Of a copy nothing is known.
    let other = manager.get::<ScheduleAnalysis>(&func.clone()).err().expect("another function");
    assert_eq!(other.code, Code::E1009, "{other}");
    assert!(other.to_string().contains("another function"), "{other}");
    // A change makes everything stale.
    let before = func.stamp();
    func.set_int(for_op, keys::START, 3);
    let stale = manager.get::<ScheduleAnalysis>(&func).err().expect("the function changed");
    assert_eq!(stale.code, Code::E1009, "{stale}");
    assert!(
        stale.message.contains("ScheduleAnalysis") && stale.to_string().contains("published: 1"),
        "{stale}"
    );
    assert!(!manager.has::<AgentPlan>(&func));
    // What a pass declares preserved counts for the new state, the rest is dropped in its name.
    manager.preserve("annotate", &before, &func, &[AnalysisKind::AgentPlan, AnalysisKind::Schedule]);
    assert!(manager.get::<AgentPlan>(&func).is_ok() && manager.get::<ScheduleAnalysis>(&func).is_ok());
    let dropped = manager.get::<BufferAssignment>(&func).err().expect("not preserved");
    assert_eq!(dropped.code, Code::E1008);
    assert!(dropped.to_string().contains("`annotate` does not preserve it"), "{dropped}");
    // What was stale before the pass is not made current by it.
    func.set_int(for_op, keys::START, 4);
    let now = func.stamp();
    func.set_int(for_op, keys::START, 5);
    manager.preserve("again", &now, &func, &AnalysisKind::ALL);
    assert_eq!(manager.get::<AgentPlan>(&func).err().map(|e| e.code), Some(Code::E1008));
    // Kernel attributes are part of the state.
    manager.publish(&func, ScheduleAnalysis::default());
    let attr = func.intern_attr(AttrData::Int(7, None));
    func.attrs.set(keys::START, attr);
    assert_eq!(manager.get::<ScheduleAnalysis>(&func).err().map(|e| e.code), Some(Code::E1009));
    assert!(manager.take::<ScheduleAnalysis>().is_some() && manager.take::<ScheduleAnalysis>().is_none());
    manager.publish(&func, ScheduleAnalysis::default());
    manager.invalidate(AnalysisKind::Schedule, "place");
    let error = manager.get::<ScheduleAnalysis>(&func).err().expect("dropped");
    assert!(error.code == Code::E1008 && error.to_string().contains("`place`"), "{error}");
}

/// What spec page 1 lists is there for every op, and agrees with the problem.
#[test]
fn the_seam_shows_all_of_a_schedule() {
    let k = known(GEMM);
    assert_eq!(k.analysis.validity().bits() & 0b101, 0b001, "converged, no fallback");
    let handles = AsyncHandles::of(&k.func);
    let region = &k.analysis.regions[0];
    for (node, &op) in region.ops.iter() {
        let footprint = k.analysis.footprint(op).expect("a footprint");
        assert_eq!(footprint.latency, region.problem.latency(node));
        assert_eq!(footprint.uses, region.problem.uses(node));
        let (start, stage) = (k.start(op), k.analysis.stage(op).expect("a stage"));
        assert!(stage * k.ii() <= start && start < (stage + 1) * k.ii());
        assert_eq!(k.analysis.depth(op), Some(stage));
        assert_eq!(k.analysis.order(op), Some(region.schedule.order[node]));
        let cells = k.analysis.optional_cells(op).expect("pipelined");
        assert_eq!((cells.depth * k.ii() + cells.row, cells.depth), (start, stage));
    }
    let (load, dot) = (k.op(Opcode::AsyncTiledTmaLoad, 1), k.op(Opcode::AsyncDot, 0));
    for op in [load, dot] {
        let value = k.func.result(op).expect("a result");
        let handle = handles.handle(value).expect("asynchronous");
        assert_eq!((handles.producer(handle), handles.value(handle)), (Some(op), Some(value)));
    }
    assert!(handles.handle(k.func.params()[0]).is_none());
    assert!(handles.iter().len() >= 3);
    let outside = k.op(Opcode::Return, 0);
    assert_eq!((k.analysis.stage(outside), k.analysis.footprint(outside)), (None, None));
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
    fn at(k: &mut Known) -> &mut tileas_codegen::schedule::LoopSchedule {
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
    let mut k = fresh();
    k.buffers.pipes[ring].depth = 1;
    assert_eq!(k.codes(), [Code::E0408]);
    let reject = tileas_codegen::buffers::Reject { pipe: ring, need: 2, have: 1, edges: Vec::new() };
    k.buffers.rejects.push(reject);
    assert_eq!(k.codes(), [], "reported, and the loop runs on");
    // One slot fewer than the web has is legal, one more is not.
    let mut k = fresh();
    k.buffers.pipes[ring].depth += 1;
    let codes = k.codes();
    assert!(!codes.is_empty() && codes.iter().all(|&c| c == Code::E0408), "{codes:?}");
}
