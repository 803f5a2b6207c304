//! Any bytes parse or give a located error.
#![no_main]
use tileas_testgen::check::check_parse;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let _ = check_parse(data);
});
