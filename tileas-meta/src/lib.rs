//! Definitions behind the compiler, as data, and the generators that build scripts call.

#![deny(missing_docs)]
#![forbid(unsafe_code)]

pub mod blackwell;
pub mod machine;
