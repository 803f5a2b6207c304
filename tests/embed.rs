//! The embedding example builds the kernel of the text example, and both compile to the same bytes.

#[path = "../examples/embed.rs"]
mod example;

use tileas_codegen::ir::{Module, parse_module};
use tileas_codegen::{Context, Settings};

#[test]
fn calls_and_text_give_the_same_ptx() {
    let isa = tileas_isa::isa_for_cpu("sm_100a").expect("the default processor");
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/gemm_f16.tileas"))
        .expect("readable");
    let parsed = parse_module(&text).expect("parses");
    let built = Module { functions: vec![example::gemm()], ..Module::default() };
    let mut context = Context::new();
    let mut compile = |m: &Module| context.compile(m, &*isa, &Settings::default()).expect("compiles");
    let (a, b) = (compile(&parsed), compile(&built));
    assert_eq!(a.ptx(), b.ptx());
    assert_eq!(a.metadata_json(), b.metadata_json());
    assert!(a.ptx().contains("tcgen05.mma") && a.warnings.is_empty());
}
