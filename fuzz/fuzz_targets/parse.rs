//! Any bytes parse or give a located error.
#![no_main]
use tileas_codegen::driver::check::check_parse;
libfuzzer_sys::fuzz_target!(|data: &[u8]| _ = check_parse(data));
