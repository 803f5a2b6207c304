//! Errors that no kernel text raises, because earlier stages exclude them: callers of single stages can.
//!
//! Placed functions are written by hand or damaged, and given to buffer assignment and lowering without the
//! verifier before them.

use std::sync::Arc;
use tileas_codegen::Code;
use tileas_codegen::ir::{Function, Layout, Op, Opcode, Space, Swizzle, parse_module};
use tileas_codegen::isa::{
    AccHome, Atoms, Cpu, Emit, Features, MachineModel, MmaContract, SharedIsa, TargetIsa, Triple,
};
use tileas_codegen::testing::agents::{Agent, AgentKind, AgentOptions, AgentPlan, plan_agents};
use tileas_codegen::testing::buffers::{BufferOptions, assign_buffers};
use tileas_codegen::testing::ddg::ScheduleAnalysis;
use tileas_codegen::testing::lower::lower;
use tileas_codegen::testing::materialize::materialize;
use tileas_codegen::testing::place::{PlaceOptions, place};
use tileas_codegen::testing::storage::check;

fn isa() -> SharedIsa {
    tileas_isa::isa_for_cpu("sm_100a").expect("known cpu")
}

fn read(text: &str) -> Function {
    let module = parse_module(text).unwrap_or_else(|e| panic!("{e}"));
    module.functions.into_iter().next().expect("one kernel")
}

const CHAIN: &str = "kernel @k(%a: view<gmem, ?x?xf16>, %b: view<gmem, ?x?xf16>, %c: view<gmem, ?x?xf32>) {
  %da = make_tiled_tma_desc %a <{box = [128, 64], swizzle = b128}> : tma_desc<128x64xf16>
  %db = make_tiled_tma_desc %b <{box = [64, 64], swizzle = b128}> : tma_desc<64x64xf16>
  %z = constant 0.0 : tile<128x64xf32>
  %ta = async.tiled_tma_load %da[0, 0] : tile<128x64xf16>
  %tb = async.tiled_tma_load %db[0, 0] : tile<64x64xf16>
  %p = async.dot %ta, %tb, %z <{transpose_b}> : tile<128x64xf32>
  %q = async.dot %ta, %tb, %p <{transpose_b}> : tile<128x64xf32>
  %s = addf %q, 1.0
  tiled_store %s, %c[0, 0]
}";

/// A kernel with two dots on one accumulator, placed.
fn chain() -> (Function, AgentPlan) {
    let func = read(CHAIN);
    let plan = plan_agents(&func, &*isa(), &AgentOptions::default()).expect("agents");
    place(&func, &plan, &*isa(), &PlaceOptions::default()).expect("placement")
}

/// The plan of `chain`, whose agents are simt, load and mma, for placed text.
fn plan_for(func: &Function) -> AgentPlan {
    let mut plan = chain().1;
    plan.op_agent.clear();
    for op in func.all_ops() {
        let kind = match func.opcode(op) {
            Opcode::AsyncTiledTmaLoad => AgentKind::Load,
            Opcode::AsyncDot => AgentKind::Mma,
            Opcode::Copy | Opcode::TiledStore | Opcode::AsyncTiledTmaStore => AgentKind::Simt,
            _ => continue,
        };
        plan.op_agent[op] = plan.first(kind).into();
    }
    plan
}

#[track_caller]
fn refused(func: &Function, plan: &AgentPlan) -> Code {
    let options = BufferOptions::default();
    match assign_buffers(func, plan, &ScheduleAnalysis::default(), &*isa(), &options) {
        Ok(_) => panic!("buffers were assigned"),
        Err(e) => e.code,
    }
}

fn ops(func: &Function, code: Opcode) -> Vec<Op> {
    func.all_ops().into_iter().filter(|&op| func.opcode(op) == code).collect()
}

fn agent(plan: &AgentPlan, kind: AgentKind) -> Agent {
    plan.first(kind).expect("an agent")
}

#[test]
fn the_undamaged_kernel_passes() {
    let (func, plan) = chain();
    let options = BufferOptions::default();
    assert!(assign_buffers(&func, &plan, &ScheduleAnalysis::default(), &*isa(), &options).is_ok());
}

#[test]
fn damaged_placements_get_no_buffers() {
    // The epilogue reads the accumulator that the second dot has overwritten.
    let (mut func, plan) = chain();
    let dots = ops(&func, Opcode::AsyncDot);
    let (p, q) = (func.results(dots[0])[0], func.results(dots[1])[0]);
    let readers: Vec<Op> = func.all_ops();
    for op in readers {
        for n in 0..func.operands(op).len() {
            if func.operands(op)[n] == q {
                func.set_operand(op, n, p);
            }
        }
    }
    let options = BufferOptions::default();
    let made =
        assign_buffers(&func, &plan, &ScheduleAnalysis::default(), &*isa(), &options).expect("buffers");
    let refused_by_check = check(&func, &made.webs, &made.rings()).expect_err("two tiles in one place");
    assert_eq!(refused_by_check.code, Code::E0601);

    // An accumulator that changes its space.
    let (mut func, plan) = chain();
    let q = func.results(ops(&func, Opcode::AsyncDot)[1])[0];
    let data = func.value_data(q).placed(Space::Smem, Layout::SmemK(Swizzle::B128));
    let ty = func.intern_type(data);
    func.set_value_type(q, ty);
    assert_eq!(refused(&func, &plan), Code::E0604);

    // A register tile of one agent in an op of another.
    let (func, mut plan) = chain();
    let add = ops(&func, Opcode::Addf)[0];
    plan.op_agent[add] = agent(&plan, AgentKind::Mma).into();
    assert_eq!(refused(&func, &plan), Code::E0605);

    // A load by nobody.
    let (func, mut plan) = chain();
    plan.op_agent[ops(&func, Opcode::AsyncTiledTmaLoad)[0]] = None.into();
    assert_eq!(refused(&func, &plan), Code::E0608);

    // A dot whose operand is the accumulator of the dot before.
    let (mut func, plan) = chain();
    let dots = ops(&func, Opcode::AsyncDot);
    let p = func.results(dots[0])[0];
    let z = func.named_operand(dots[0], "acc").expect("an accumulator");
    func.set_operand(dots[1], 0, p);
    func.set_operand(dots[1], 2, z);
    assert_eq!(refused(&func, &plan), Code::E0607);
}

/// A kernel as the stages get it from callers that keep what is dead.
fn placed(text: &str) -> (Function, AgentPlan) {
    let func = read(text);
    let plan = plan_agents(&func, &*isa(), &AgentOptions::default()).expect("agents");
    place(&func, &plan, &*isa(), &PlaceOptions::default()).expect("placement")
}

#[test]
fn loads_that_nobody_reads_are_refused() {
    // Nobody learns when the load has read what the store overwrites.
    let text = |view: &str| {
        format!(
            "kernel @k(%a: view<gmem, ?x?xf32>, %c: view<gmem, ?x?xf32>) {{
  %da = make_tiled_tma_desc %a <{{box = [128, 32], swizzle = b128}}> : tma_desc<128x32xf32>
  %x = async.tiled_tma_load %da[0, 0] : tile<128x32xf32>
  %y = tiled_load %c[0, 0] : tile<128x32xf32>
  tiled_store %y, {view}[1, 0]
}}"
        )
    };
    let (func, plan) = placed(&text("%a").replace("[1, 0]", "[0, 0]"));
    assert_eq!(refused(&func, &plan), Code::E0606);

    // A load without a reader has no barrier to arrive on.
    let (func, plan) = placed(&text("%c"));
    let sched = ScheduleAnalysis::default();
    let buffers = assign_buffers(&func, &plan, &sched, &*isa(), &BufferOptions::default()).expect("buffers");
    let error = materialize(&func, &plan, &sched, &buffers).err().expect("a tile that nobody reads");
    assert_eq!(error.code, Code::E0701);
}

#[test]
fn paths_load_equal_bytes() {
    let func = read(
        "kernel @k(%a: view<gmem, ?x?xf16>, %c: view<gmem, ?x?xf16>, %n: i1) {
  %da = make_tiled_tma_desc %a <{box = [128, 64], swizzle = b128}> : tma_desc<128x64xf16>
  %dc = make_tiled_tma_desc %c <{box = [128, 64], swizzle = b128}> : tma_desc<128x64xf16>
  %x = if %n : tile<128x64xf16, smem, k128> {
    %l = async.tiled_tma_load %da[0, 0] : tile<128x64xf16, smem, k128>
    yield %l
  } else {
    %e = alloc_tensor : tile<128x64xf16, smem, k128>
    yield %e
  }
  async.tiled_tma_store %dc[0, 0], %x
  return
}",
    );
    assert_eq!(refused(&func, &plan_for(&func)), Code::E0609);
}

#[test]
fn value_form_is_not_lowered() {
    let (func, _) = chain();
    assert_eq!(lower(&func, &*isa()).expect_err("value form").code, Code::E0803);
}

/// A processor that PTX does not know.
static UNKNOWN: Cpu = Cpu { name: "sm_7", ptx_version: (8, 6), features: &[], source: "" };

/// A target under its name.
#[derive(Debug)]
struct Renamed(SharedIsa);

impl TargetIsa for Renamed {
    fn name(&self) -> &'static str {
        "renamed"
    }
    fn version(&self) -> &'static str {
        self.0.version()
    }

    fn cpu(&self) -> &'static Cpu {
        &UNKNOWN
    }
    fn triple(&self) -> &Triple {
        self.0.triple()
    }
    fn features(&self) -> Features {
        self.0.features()
    }
    fn machine(&self) -> &MachineModel {
        self.0.machine()
    }
    fn atoms(&self) -> &Atoms {
        self.0.atoms()
    }
    fn acc_home(&self) -> &AccHome {
        self.0.acc_home()
    }

    fn mma_contract(&self) -> &MmaContract {
        self.0.mma_contract()
    }

    fn emit(&self) -> &dyn Emit {
        self.0.emit()
    }
}

#[test]
fn unknown_processors_have_no_ptx() {
    let target: SharedIsa = Arc::new(Renamed(isa()));
    let func = read("kernel @k() { }");
    assert_eq!(lower(&func, &*target).expect_err("no target").code, Code::E0801);
}
