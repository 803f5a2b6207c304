//! Any bytes that are a Tile IR module compile, or are refused with errors of the stages that may refuse.
#![no_main]
use std::cell::RefCell;
use tileas_codegen::{Context, Settings};

thread_local!(static WARM: RefCell<Context> = RefCell::new(Context::new()));

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let isa = tileas_isa::isa_for_cpu("sm_100a").expect("the default processor");
    let _ = WARM.with_borrow_mut(|warm| {
        tileas_testgen::check::check_tile_ir(data, &*isa, &Settings::default(), warm)
    });
});
