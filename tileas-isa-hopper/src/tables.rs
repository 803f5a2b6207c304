//! The generated tables. Each line of the included file names its row in `tileas_meta::hopper`.

use tileas_codegen::isa::*;

include!(concat!(env!("OUT_DIR"), "/tables.rs"));
