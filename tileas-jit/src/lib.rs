//! Kernels that run from the program that makes them: compile, assemble, cache, launch.
//!
//! In: modules of tile kernels and arguments. Out: results in memory of a device, which is a GPU or the emulator.

#![deny(missing_docs)]

pub mod assembler;
mod cubin;
pub mod driver;
mod error;

pub use assembler::Assembler;
pub use cubin::Cubin;
pub use error::{Code, Error};
