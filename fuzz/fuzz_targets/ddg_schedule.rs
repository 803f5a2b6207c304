//! Random scheduling problems have legal schedules.
#![no_main]
use libfuzzer_sys::arbitrary::Unstructured;
use tileas_codegen::schedule::{Scheduler, generate};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let mut u = Unstructured::new(data);
    if let (Ok(problem), Ok(options)) = (generate::problem(&mut u), generate::options(&mut u)) {
        generate::check(&problem, &options, &mut Scheduler::new());
    }
});
