//! Generated kernels and damaged ones print to a fixed point.
#![no_main]
use tileas_codegen::driver::check::check_round_trip;
libfuzzer_sys::fuzz_target!(
    |data: &[u8]| _ = check_round_trip(&mut libfuzzer_sys::arbitrary::Unstructured::new(data))
);
