//! Definitions behind the compiler, as data, and the generators that build scripts call.

#![deny(missing_docs)]
#![forbid(unsafe_code)]

pub mod blackwell;
pub mod machine;
pub mod ops;
pub mod ops_gen;
pub mod ptx;
