//! Generated kernels run to their end or to a fault that has a place; right ones agree in all timings.
#![no_main]
use libfuzzer_sys::arbitrary::Unstructured;
use tileas_emu::check::check_run;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let _ = check_run(&mut Unstructured::new(data));
});
