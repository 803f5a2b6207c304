//! Memories: global, shared, tensor, and the CTA that owns the latter two.

pub mod cta;
pub mod global;
pub mod shared;
pub mod tensor;
