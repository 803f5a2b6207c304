//! Random programs and loops, in one program.

mod free;
mod r5_attention;
mod r5_random;
mod r5_sharing;
mod random;
