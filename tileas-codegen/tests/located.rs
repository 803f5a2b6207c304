//! Errors about kernels that were built by calls: they come with the text of the module and say where in it they are.

use tileas_codegen::ir::{Dim, Function, FunctionBuilder, Module, Scalar};
use tileas_codegen::{Code, Context, Errors, Settings};

/// A kernel that adds a tile to itself and stores it, with a view of that many extents.
fn kernel(name: &str, extents: usize) -> Function {
    let mut func = Function::new(name);
    let mut b = FunctionBuilder::new(&mut func);
    let view = b.view_type(&vec![Dim::Dynamic; extents], Scalar::F32);
    let x = b.param(view);
    let tile = b.tile_type(&[128], Scalar::F32);
    let at = b.program_id(0);
    let value = b.tiled_load(x, &[at], tile);
    let sum = b.addf(value, value);
    b.tiled_store(sum, x, &[at]);
    b.ret();
    func
}

fn errors(module: &Module, settings: &Settings) -> Errors {
    let isa = tileas_isa::isa_for(module, &Settings::default()).expect("a target");
    Context::new().compile(module, &*isa, settings).expect_err("an error")
}

/// What stands at the place of an error.
fn at(errors: &Errors, n: usize) -> &str {
    &errors.text().expect("the module's text")[errors[n].location.range().expect("a place")]
}

#[test]
fn what_the_verifier_finds_is_shown_in_the_printed_module() {
    let module = Module { functions: vec![kernel("good", 1), kernel("bad", 2)], ..Module::default() };
    let found = errors(&module, &Settings::default());
    assert_eq!(at(&found, 0), "%2 = tiled_load %0[%1] : tile<128xf32>");
    let text = found.to_string();
    assert!(text.starts_with("10:3: E0"), "{text}");
    assert!(text.contains("at `%2 = tiled_load %0[%1] : tile<128xf32>`"), "{text}");
}

#[test]
fn what_a_stage_finds_is_too() {
    let module = Module { functions: vec![kernel("good", 1)], ..Module::default() };
    let found =
        errors(&module, &Settings::default().with("limits.max-instructions", "3").expect("an option"));
    assert_eq!(found[0].code, Code::E1010);
    assert!(found.text().is_some(), "{found}");
    // One that is about all of a kernel stands at its head.
    let found = errors(&module, &Settings::default().with("max-ptx-version", "8.0").expect("an option"));
    assert_eq!((found.len(), found[0].code), (1, Code::E0908));
    assert!(at(&found, 0).starts_with("kernel @good("), "{found}");
}

#[test]
fn a_module_with_places_of_its_own_keeps_them() {
    let module =
        tileas_codegen::ir::parse_module("kernel @k(%x: view<gmem, ?xf32>) {\n return\n}").expect("parses");
    let found = errors(&module, &Settings::default().with("max-ptx-version", "8.0").expect("an option"));
    assert_eq!((found.text(), found[0].location), (module.source.as_deref(), module.functions[0].loc));
    assert!(found.to_string().starts_with("1:1: E0908"), "{found}");
    let text = "kernel @k(%x: view<gmem, ?xf32>) {\n  %y = addf %z\n return\n}";
    let found = Context::new().parse(text, &Settings::default()).err().expect("no value z");
    assert!(found.to_string().starts_with("2:13: E0"), "{found}");
}

/// A front end in another language says where its ops come from.
#[test]
fn errors_say_what_the_front_end_said() {
    let mut func = Function::new("k");
    let mut b = FunctionBuilder::new(&mut func);
    let view = b.view_type(&[Dim::Dynamic; 2], Scalar::F32);
    let x = b.param(view);
    let tile = b.tile_type(&[128], Scalar::F32);
    b.set_origin("model.py", 12, 5);
    let at = b.program_id(0);
    b.set_origin("model.py", 13, 9);
    b.tiled_load(x, &[at], tile);
    b.ret();
    let module = Module { functions: vec![func], ..Module::default() };
    let found = errors(&module, &Settings::default());
    assert_eq!(found[0].origin(), Some("model.py:13:9"));
    assert!(found.to_string().starts_with("model.py:13:9: 3:3: E0216"), "{found}");
    // The same in text; and it is no part of what the result depends on.
    let text = tileas_codegen::ir::print_module(&module);
    assert!(text.contains(r#"{loc = "model.py:13:9"}"#), "{text}");
    let parsed = tileas_codegen::ir::parse_module(&text).expect("parses");
    assert_eq!(errors(&parsed, &Settings::default())[0].origin(), Some("model.py:13:9"));
    let bare = tileas_codegen::ir::parse_module(&text.replace("13:9", "14:1")).expect("parses");
    let isa = tileas_isa::isa_for(&module, &Settings::default()).expect("a target");
    let key = |m: &Module| tileas_codegen::key_text(m, &*isa, &Settings::default());
    assert_eq!(key(&parsed), key(&bare));
    let other = tileas_codegen::ir::parse_module(&text.replace("axis = 0", "axis = 1")).expect("parses");
    assert_ne!(key(&parsed), key(&other));
}

#[test]
fn errors_name_their_kernel_and_keys_its_parameters() {
    let bad = |name: &str| {
        let mut func = Function::new(name);
        let mut b = FunctionBuilder::new(&mut func);
        let view = b.view_type(&[Dim::Dynamic; 2], Scalar::F32);
        let x = b.named_param("a b", view);
        let tile = b.tile_type(&[128], Scalar::F32);
        let at = b.program_id(0);
        b.tiled_load(x, &[at], tile);
        b.ret();
        func
    };
    let module = Module { functions: vec![bad("one"), bad("two")], ..Module::default() };
    let found = errors(&module, &Settings::default());
    let about = |e: &tileas_codegen::CodegenError, name: &str| {
        e.notes.iter().any(|n| n.1 == format!("in kernel @{name}"))
    };
    assert!(found.iter().any(|e| about(e, "one")) && found.iter().any(|e| about(e, "two")), "{found}");
    // What prints alike may have other metadata.
    let isa = tileas_isa::isa_for_cpu("sm_100a").expect("a target");
    let text = |m: &Module| tileas_codegen::key_text(m, &*isa, &Settings::default());
    let parsed =
        tileas_codegen::ir::parse_module(&tileas_codegen::ir::print_module(&module)).expect("parses");
    assert_ne!(text(&module), text(&parsed));
}

#[test]
fn target_and_module_agree() {
    let mut module = Module { functions: vec![kernel("k", 1)], ..Module::default() };
    let isa = tileas_isa::isa_for_cpu("sm_100a").expect("a target");
    module.target = Some("sm_103a".into());
    let found = Context::new().compile(&module, &*isa, &Settings::default()).expect_err("another target");
    assert_eq!(found[0].code, Code::E0890);
    // The option decides.
    let settings = Settings::default().with("target", "sm_100a").expect("an option");
    Context::new().compile(&module, &*isa, &settings).expect("the target of the option");
}

#[test]
fn names_of_kernels_can_be_written() {
    for name in ["", "two words", "käse", "a-b"] {
        let module = Module { functions: vec![kernel(name, 1)], ..Module::default() };
        assert_eq!(errors(&module, &Settings::default())[0].code, Code::E0911, "{name:?}");
    }
}
