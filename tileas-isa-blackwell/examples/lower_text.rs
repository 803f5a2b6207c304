//! Reads materialised tile IR on standard input, prints PTX (or errors).
use std::io::Read;
use tileas_codegen::{ir, lower, nvvm, ptx};

fn main() {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).expect("stdin");
    let module = ir::parse_module(&text).unwrap_or_else(|e| {
        panic!("{e} at {:?}", e.line_column(&text));
    });
    assert_eq!(
        ir::print_module(&ir::parse_module(&ir::print_module(&module)).expect("reparse")),
        ir::print_module(&module)
    );
    let isa = tileas_isa_blackwell::isa_for_cpu("sm_100a").expect("isa");
    let mut l = lower::lower(&module.functions[0], &*isa)
        .unwrap_or_else(|e| panic!("{e} at {:?}", e.line_column(&text)));
    for f in &mut l.module.functions {
        nvvm::passes::cleanup(f, &mut nvvm::passes::CleanupScratch::default());
    }
    let mut diags = Vec::new();
    let Some(v) = nvvm::verify(&l.module, (9, 5), &mut diags) else { panic!("{diags:#?}") };
    let mut out = String::new();
    ptx::PtxEmitter::default().emit(v, &ptx::PtxOptions::default(), &mut out);
    println!("{out}");
    eprintln!("{}", l.metadata.to_json());
}
