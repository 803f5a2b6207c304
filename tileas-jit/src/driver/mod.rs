//! All code that calls into libraries which are not Rust: nvJitLink, and with the feature `cuda` the driver of NVIDIA's GPUs.
//!
//! In: what safe code has checked. Out: safe types. Guarantee: every result of a call is looked at; a library or driver that is
//! not there is an error (`E1204`) and no panic; nothing is freed or unloaded that the device may still use (each type says how).
//! What a kernel does with the addresses it is given nobody checks: see `Function::launch`.
//! Elsewhere: which assembler is used (`assembler`), what a launch is (`tileas-launch`).

#![allow(unsafe_code, reason = "the one module of this crate that calls foreign code")]

mod borrowed;
pub(crate) mod nvjitlink;
pub mod params;

#[cfg(feature = "cuda")]
mod context;
#[cfg(feature = "cuda")]
mod linker;
#[cfg(feature = "cuda")]
mod map;
#[cfg(feature = "cuda")]
mod memory;
#[cfg(feature = "cuda")]
mod module;

pub use borrowed::{BorrowedMemory, BorrowedStream};
pub use params::{ParamBlock, TensorMap};

use crate::error::{Code, Error};
use std::ffi::CString;

#[cfg(feature = "cuda")]
pub use {
    context::{Context, Event, Stream},
    memory::DeviceMemory,
    module::{Function, Module},
};

/// What a linker answers.
pub(crate) enum Outcome {
    /// An image.
    Image(Vec<u8>),
    /// No, and what it says.
    Refused(String),
    /// No, as it does not know such PTX or such a processor.
    Unknown(String),
}

/// A module with a 0 behind it, as libraries want it. With one inside they would assemble the half of it.
fn terminated(ptx: &str) -> Result<Vec<u8>, Error> {
    let text = CString::new(ptx).map_err(|e| {
        Error::new(Code::E1202, format!("the PTX has a byte 0 in it, at {}", e.nul_position()))
    })?;
    Ok(text.into_bytes_with_nul())
}
