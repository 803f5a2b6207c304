//! Reads a kernel in value form on standard input, prints each stage named on the command line and the PTX.
use std::io::Read;
use tileas_codegen::{agents, buffers, ir, lower, materialize, nvvm, place, ptx, schedule};

fn main() {
    let stages: Vec<String> = std::env::args().skip(1).collect();
    let show = |s: &str| stages.iter().any(|x| x == s);
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).expect("stdin");
    let fail = |e: tileas_codegen::CodegenError| -> ! { panic!("{e} at {:?}", e.line_column(&text)) };
    let module = ir::parse_module(&text).unwrap_or_else(|e| fail(e));
    let isa = tileas_isa_blackwell::isa_for_cpu("sm_100a").expect("isa");
    let f = &module.functions[0];
    let plan = agents::plan_agents(f, &*isa, &agents::AgentOptions::default()).unwrap_or_else(|e| fail(e));
    let (placed, plan) =
        place::place(f, &plan, &*isa, &place::PlaceOptions::default()).unwrap_or_else(|e| fail(e));
    if show("placed") {
        eprintln!("{}", ir::print_function(&placed));
    }
    let analysis = schedule::ScheduleAnalysis::default();
    let bufs = buffers::assign_buffers(&placed, &plan, &analysis, &*isa, &buffers::BufferOptions::default())
        .unwrap_or_else(|e| fail(e));
    if show("buffers") {
        eprintln!("{}", bufs.dump(&placed, &plan));
    }
    let m = materialize::materialize(&placed, &plan, &analysis, &bufs).unwrap_or_else(|e| fail(e));
    if show("materialized") {
        eprintln!("{}", ir::print_function(&m));
    }
    for e in ir::verify_function(&m) {
        eprintln!("verify: {e}");
    }
    let mut l = lower::lower(&m, &*isa).unwrap_or_else(|e| fail(e));
    for f in &mut l.module.functions {
        nvvm::passes::cleanup(f, &mut nvvm::passes::CleanupScratch::default());
    }
    let mut diags = Vec::new();
    let Some(v) = nvvm::verify(&l.module, (9, 5), &mut diags) else { panic!("{diags:#?}") };
    let mut out = String::new();
    ptx::PtxEmitter::default().emit(v, &ptx::PtxOptions::default(), &mut out);
    println!("{out}");
    if let Some(path) = stages.iter().find(|s| s.ends_with(".json")) {
        std::fs::write(path, l.metadata.to_json()).expect("write metadata");
    }
}
