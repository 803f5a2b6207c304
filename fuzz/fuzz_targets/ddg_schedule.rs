//! Random scheduling problems have legal schedules.
#![no_main]
use libfuzzer_sys::arbitrary::Unstructured;
use tileas_codegen::schedule::Scheduler;
use tileas_testgen::generate;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let mut u = Unstructured::new(data);
    if let (Ok(problem), Ok(options)) = (generate::problem(&mut u), generate::options(&mut u)) {
        // What another problem left behind must not matter; it comes from the same bytes, so that a finding repeats.
        let mut warm = Scheduler::new();
        if let Ok(other) = generate::problem(&mut u) {
            let _ = warm.schedule(&other, &options);
        }
        generate::check(&problem, &options, &mut warm);
    }
});
