//! Any bytes are a Tile IR module or give located errors; a module is written and read as the same one.
#![no_main]

#[path = "../../tileas-tileir/tests/common/mod.rs"]
mod common;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    common::check(data);
});
