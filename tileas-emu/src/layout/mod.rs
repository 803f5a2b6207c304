//! Where things are: shared-memory swizzles, matrix descriptors, register fragments, tensor
//! memory and tensor maps.
//!
//! In: descriptor bits, shapes, thread and register numbers. Out: byte addresses, lanes, columns,
//! element coordinates. Everything here is a pure function; memory belongs to the machine.
//! Guarantee: a descriptor or map that the hardware or the driver does not accept is an error
//! with the rule it breaks, never a guess.
//! Source: PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions", "TensorCore 5th Generation
//! Family Instructions", "Tensors"; CUDA driver API, "Tensor Map Object Management".

pub mod frag;
pub mod idesc;
pub mod operand;
pub mod swizzle;
pub mod tma;
pub mod tma_map;
pub mod tmem;
pub mod tmem_cp;

pub use swizzle::Swizzle;

/// A layout that hardware does not have.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LayoutError {
    /// Stable name of the broken rule, e.g. `desc.reserved`.
    pub rule: &'static str,
    /// The rule with the values that break it.
    pub message: String,
}

impl LayoutError {
    /// An error of `rule`.
    pub fn new(rule: &'static str, message: impl Into<String>) -> Self {
        Self { rule, message: message.into() }
    }
}

impl std::fmt::Display for LayoutError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.rule, self.message)
    }
}

impl std::error::Error for LayoutError {}

/// Result of this module's checks.
pub type LayoutResult<T> = Result<T, LayoutError>;
