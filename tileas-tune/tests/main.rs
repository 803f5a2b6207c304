//! The tuner's tests, in one program.

mod errors;
mod gemm;
