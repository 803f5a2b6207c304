//! Generated kernels go through all stages; one context serves all.
#![no_main]
use libfuzzer_sys::arbitrary::Unstructured;
use std::cell::RefCell;
use tileas_codegen::Context;
use tileas_testgen::check::check_agents;

thread_local!(static WARM: RefCell<Context> = RefCell::new(Context::new()));

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let isa = tileas_isa::isa_for_cpu("sm_100a").expect("the default processor");
    let _ = WARM.with_borrow_mut(|warm| check_agents(&mut Unstructured::new(data), &*isa, warm));
});
