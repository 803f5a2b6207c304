//! Definitions behind the compiler, as data, and the generators that build scripts call.

pub mod ptx;
