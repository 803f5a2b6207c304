//! Random kernels and scheduling problems, for tests, fuzz targets and runs by hand; never part of the product.
//!
//! [`grow::kernel`] draws one; [`judge::judge`] compiles and executes it; [`shrink::shrink`] takes away what a finding does
//! not need. [`families`] and [`generate`] draw problems of the scheduler, [`agents`] agents that talk through channels, [`check`] kernels and
//! damaged texts for the whole compiler. A seed is random data too ([`bytes`]), so that a fuzz target and a range of seeds draw by the same code.

#![deny(missing_docs)]
#![forbid(unsafe_code)]

pub mod agents;
pub mod check;
pub mod families;
pub mod features;
pub mod generate;
pub mod grow;
pub mod judge;
pub mod kernel;
pub mod shrink;

use arbitrary::Unstructured;
use kernel::Kernel;

/// Bytes that follow from a seed (xorshift).
pub fn bytes(seed: u64) -> Vec<u8> {
    let mut x = seed.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let next = |_| {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x.to_le_bytes()
    };
    (0..512).flat_map(next).collect()
}

/// The kernel of a seed.
pub fn seeded(seed: u64) -> Kernel {
    grow::kernel(&mut Unstructured::new(&bytes(seed)))
}
