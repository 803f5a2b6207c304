//! Random agents: the post-verifier calls a deadlock exactly where some run of the token simulator gets stuck.
#![no_main]
use libfuzzer_sys::arbitrary::Unstructured;
use tileas_testgen::agents::{check, program};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let mut u = Unstructured::new(data);
    let _ = program(&mut u).and_then(|p| check(&p, &mut u));
});
