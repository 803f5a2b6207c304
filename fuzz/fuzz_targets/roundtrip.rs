//! Generated kernels and damaged ones print to a fixed point.
#![no_main]
use libfuzzer_sys::arbitrary::Unstructured;
use tileas_testgen::check::check_round_trip;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let _ = check_round_trip(&mut Unstructured::new(data));
});
