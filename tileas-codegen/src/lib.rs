//! `tileas-codegen`: an embeddable compiler backend for GPU tile programs.
//!
//! A kernel made of tiles goes in (text or builder calls), software-pipelined and warp-specialised PTX with
//! launch metadata comes out, with an explanation of the schedule. No global state, no process to spawn.

#![deny(missing_docs)]
#![forbid(unsafe_code)]

pub mod agents;
pub mod buffers;
pub mod constraints;
pub mod ddg;
pub mod driver;
pub mod error;
pub mod ir;
pub mod isa;
pub mod lower;
pub mod materialize;
pub mod nvvm;
pub mod pass;
pub mod place;
pub mod plan;
pub mod prepare;
pub mod ptx;
pub mod regalloc;
pub mod settings;
pub mod storage;

pub use driver::{CompiledKernel, CompiledModule, Context, Stage};
pub use error::{Code, CodegenError, CodegenResult, Errors, Loc};
pub use settings::Settings;
pub use tileas_schedule as schedule;
