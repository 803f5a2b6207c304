//! Any bytes and damaged kernels parse as PTX or give located errors.
#![no_main]
use libfuzzer_sys::arbitrary::Unstructured;
use tileas_emu::check::{check_damaged, check_text};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    check_text(data);
    let _ = check_damaged(&mut Unstructured::new(data));
});
