//! Numbers of PTX, bit by bit.
//!
//! In: bit patterns and instruction modifiers. Out: the bit patterns that the PTX ISA prescribes,
//! or, where it prescribes only an error bound, the correctly rounded result and the interval of
//! results that hardware may give instead ([`approx`], [`mma`]).
//! Method: a value is decoded to an exact integer significand ([`exact::Exact`]), computed on
//! without loss (or with a sticky bit) and rounded once.
//! Guarantee: no host floating-point mode or math library decides a result (a library's value is
//! taken only where its error cannot change the rounding); the same inputs give the same bits on
//! every machine.
//! Source: PTX ISA, "Data Movement and Conversion Instructions: cvt", "Floating-Point Instructions",
//! "Alternate Floating-Point Data Formats"; OCP 8-bit and MX format specifications.

pub mod approx;
pub mod arith;
pub mod convert;
pub mod exact;
pub mod format;
pub mod half;
pub mod int;
pub mod mma;
pub mod printf;
mod slow;

pub use convert::{Cvt, convert, f32_from, f32_to};
pub use exact::{Exact, Rounding};
pub use format::{Format, Num};
