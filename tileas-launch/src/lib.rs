//! What a host needs to launch a kernel, as data, and the launch itself.
//!
//! In: [`LaunchMetadata`], which the compiler makes (or [`json`] reads), and arguments. Out: a [`Launch`]: grid, block, shared
//! memory and the value of every parameter, tensor maps as what the driver is to encode. Expressions ([`Expr`]) are trees
//! over positions of arguments; nothing is looked up by name and no text is read when a kernel is launched.
//!
//! Guarantee: everything that the metadata demand holds, or an [`Error`] names it. Total on any metadata and arguments.
//! Elsewhere: memory, modules and streams (`tileas-jit`), execution on the CPU (`tileas-emu`). Cost: linear in parameters.

#![deny(missing_docs)]
#![forbid(unsafe_code)]

mod arg;
mod elem;
#[cfg(feature = "emulator")]
pub mod emulator;
mod error;
pub mod expr;
#[cfg(feature = "serde")]
pub mod json;
mod launch;
mod meta;
mod named;

pub use arg::{Arg, ArgKind, ArgMeta, Device, View};
pub use elem::Elem;
pub use error::{Code, Error};
pub use expr::Expr;
pub use launch::{Launch, MapArg, Value};
pub use meta::{L2, LaunchMetadata, Oob, ParamKind, ParamMeta, Swizzle, TensorMapMeta};
pub use named::Named;
