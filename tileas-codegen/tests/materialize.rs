//! Buffers and materialisation: placed kernels through webs, channels, depths, code and the post-verifier.

mod sim;

use tileas_codegen::agents::{AgentOptions, AgentPlan, plan_agents};
use tileas_codegen::buffers::{BufferAssignment, BufferOptions, assign_buffers};
use tileas_codegen::ir::parser::parse_module;
use tileas_codegen::ir::printer::print_function;
use tileas_codegen::ir::verifier::verify_function;
use tileas_codegen::ir::{Function, Op, Opcode};
use tileas_codegen::isa::SharedIsa;
use tileas_codegen::materialize::{materialize, verify_materialized};
use tileas_codegen::place::{PlaceOptions, place};
use tileas_codegen::schedule::handoff::{LoopSchedule, ScheduleAnalysis};

fn isa() -> SharedIsa {
    tileas_isa_blackwell::isa_for_cpu("sm_100a").expect("known cpu")
}

fn read(text: &str) -> Function {
    let module = parse_module(text).unwrap_or_else(|e| panic!("{e} at {:?}", e.line_column(text)));
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
        if func.opcode(l) != Opcode::For {
            continue;
        }
        let body = func.op_block_at(l, 0).expect("a body");
        let mut inner = false;
        func.walk(body, &mut |op| inner |= func.opcode(op) == Opcode::For);
        if inner {
            continue;
        }
        let mut s = LoopSchedule { ii, stage_count: 1, ..LoopSchedule::default() };
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
fn show() {
    for name in std::env::var("SHOW").unwrap_or_default().split(',').filter(|n| !n.is_empty()) {
        let (func, plan, ba, mat) = build(name);
        println!("{}\n{}\n{}", print_function(&func), ba.dump(&func, &plan), print_function(&mat));
        println!("{:?}\n{:?}", verify_function(&mat), verify_materialized(&mat, &*isa()));
    }
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
