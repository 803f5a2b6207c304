//! Kernels composed freely: compiled, or refused for a limit, and executed with the result of their source.
#![no_main]
use libfuzzer_sys::arbitrary::Unstructured;
use tileas_testgen::{grow::kernel, judge::Verdict, judge::judge};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let drawn = kernel(&mut Unstructured::new(data));
    let isa = tileas_isa::isa_for_cpu("sm_100a").expect("the default processor");
    if let Verdict::Wrong(s) = judge(&drawn.text(), &drawn.options, &drawn.case(), &*isa) {
        panic!("{}\n{}\n{}", s.key, s.detail, drawn.filetest());
    }
});
