//! Kernels that run from the program that makes them: compile, assemble, cache, launch.
//!
//! In: modules of tile kernels and arguments. Out: results in memory of a device, which is a GPU or the emulator.

#![deny(missing_docs)]

mod artifact;
pub mod assembler;
mod backend;
pub mod cache;
mod cubin;
#[cfg(feature = "cuda")]
mod cuda;
mod device;
pub mod driver;
mod emulator;
mod error;
mod jit;
mod kernel;
mod tensor;

pub use assembler::Assembler;
pub use cache::Cache;
pub use cubin::Cubin;
pub use device::{Device, Stream};
pub use driver::{BorrowedMemory, BorrowedStream};
pub use emulator::EmulatorOptions;
pub use error::{Code, Entry, Error};
pub use jit::{Format, Jit, JitBuilder};
pub use kernel::{Kernel, KernelArg};
pub use tensor::{Element, Tensor};
pub use tileas_draw::Options as DrawOptions;
pub use tileas_emu::Mode as Timing;
pub use tileas_launch::{Arg, Elem, LaunchMetadata};
