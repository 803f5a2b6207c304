//! `tileas-codegen`: an embeddable compiler backend for GPU tile programs.
//!
//! A kernel made of tiles goes in (text or builder calls: [`ir`]), software-pipelined and warp-specialised PTX with
//! launch metadata comes out of a [`Context`]. No global state, no process to spawn.
//!
//! Public is what embedding needs: [`ir`], [`settings`], [`error`], the [`Context`] with its results, [`passes`] to run stages by name,
//! [`schedule`]; and, for crates that implement a target, [`isa`] with the [`nvvm`] builder.

#![deny(missing_docs)]
#![forbid(unsafe_code)]

pub(crate) mod agents;
pub(crate) mod buffers;
pub(crate) mod constraints;
pub(crate) mod ddg;
pub(crate) mod driver;
pub mod error;
pub mod ir;
pub mod isa;
pub mod layout;
pub(crate) mod lower;
pub(crate) mod materialize;
pub mod nvvm;
pub(crate) mod pass;
pub mod passes;
pub(crate) mod place;
pub(crate) mod plan;
pub(crate) mod prepare;
pub(crate) mod ptx;
pub(crate) mod regalloc;
pub mod settings;
pub(crate) mod storage;
#[doc(hidden)]
pub mod testing;

pub use driver::{
    CompiledKernel, CompiledModule, Context, KernelInfo, KernelState, Stage, StageRun, VERSION, key_text,
};
pub use error::{Code, CodegenError, CodegenResult, Errors, Loc};
pub use ptx::FunctionInfo;
pub use settings::Settings;
pub use tileas_launch::LaunchMetadata;
pub use tileas_schedule as schedule;
