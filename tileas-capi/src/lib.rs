//! The C interface: `include/tileas.h`, which is made of [`ffi`] and says what each function does.
//!
//! In: handles, texts, numbers of C. Out: handles, texts, status. A context has tables of objects behind locks (`table`); a handle is a place in
//! them with a generation, so that one that was freed, is of another kind or of another context is an error with a code. Guarantee: no panic and
//! no Rust type crosses the border, nothing is printed, nothing is global.

#![deny(missing_docs)]

mod error;
pub mod ffi;
mod table;

pub use error::Code;
