//! What tests, benchmarks and the fuzz target share.

#![allow(dead_code, reason = "each user takes a part")]

pub mod ops;

use tileas_tileir::{Limits, Module, Version};

macro_rules! files {
    ($($name:literal)*) => {
        /// Files that cuTile Python wrote: name, bytes. `files/kernels.py` has the kernels.
        pub const FILES: &[(&str, &[u8])] =
            &[$(($name, include_bytes!(concat!("../files/", $name, ".tileirbc")))),*];
    };
}

files! {
    "attention-13.4"
    "locks-13.2"
    "matmul-13.1"
    "matmul-13.5"
    "scans-13.5"
    "softmax-13.4"
    "vector_add-13.1"
    "vector_add-13.2"
    "vector_add-13.3"
    "vector_add-13.4"
    "vector_add-13.5"
}

pub fn file(name: &str) -> &'static [u8] {
    FILES.iter().find(|f| f.0 == name).expect("a file of the list").1
}

pub fn read(bytes: &[u8]) -> Module {
    Module::read(bytes, &Limits::default()).unwrap_or_else(|e| panic!("{e}"))
}

/// Any bytes are a module, or there are errors with places. A module can be checked, printed and written; what is written reads
/// as the same module. Returns whether it was one.
pub fn check(bytes: &[u8]) -> bool {
    let module = match Module::read(bytes, &Limits::default()) {
        Ok(module) => module,
        Err(errors) => {
            assert!(!errors.is_empty());
            for error in errors.iter() {
                assert!(error.offset.is_some_and(|o| o <= bytes.len()), "{error}");
                assert!(!error.to_string().is_empty());
            }
            return false;
        }
    };
    if let Err(errors) = module.verify() {
        assert!(!errors.is_empty() && !errors.to_string().is_empty());
    }
    for f in module.functions() {
        f.hint_warnings();
        for op in f.ops() {
            op.hints("sm_90");
        }
    }
    let text = module.dump(true).to_string();
    let written = module.write(module.version).expect("what was read can be written");
    let again = Module::read(&written, &Limits::default()).expect("what was written can be read");
    assert!(again == module, "{text}\n{}", again.dump(true));
    for version in Version::all().filter(|&v| v != module.version) {
        if let Ok(written) = module.write(version) {
            let mut again = Module::read(&written, &Limits::default()).expect("what was written can be read");
            assert_eq!(again.version, version);
            again.version = module.version;
            assert_eq!(again.dump(true).to_string(), text);
        }
    }
    true
}
