//! The emulator's tests, in one program. `triton` is one of its own: it takes a compiler that is not always there.

mod clusters;
mod common;
mod explore;
mod gemm;
mod layout;
mod micro;
mod micro_layout;
mod micro_num;
mod misuse;
mod mutants;
mod mutations;
mod num;
mod num_approx;
mod stats;
mod support;
mod tma;
