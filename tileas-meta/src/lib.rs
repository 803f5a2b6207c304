//! Definitions behind the compiler, as data, and the generators that build scripts call.

pub mod ops;
pub mod ops_gen;
pub mod ptx;
