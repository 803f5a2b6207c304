//! What instructions do: one module per family, each with its table rows.

pub mod address;
pub mod atomic;
pub mod control;
pub mod cvt;
pub mod cx;
pub mod float;
pub mod int;
pub mod matrix;
pub mod memory;
pub mod print;
pub mod warp;

/// A wrong program, found while an instruction or an asynchronous operation executes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Trap {
    /// Stable code.
    pub code: &'static str,
    /// What is wrong.
    pub message: String,
    /// The other access of a conflict: instruction and who.
    pub prior: Option<(u32, String)>,
}

impl Trap {
    /// A trap.
    pub fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), prior: None }
    }
}

impl From<crate::layout::LayoutError> for Trap {
    fn from(e: crate::layout::LayoutError) -> Self {
        Trap::new("layout", e.to_string())
    }
}

/// A result of executing.
pub type X<T> = Result<T, Trap>;

/// What the machine does after an instruction.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Flow {
    /// Goes on with the next instruction.
    Next,
    /// The active lanes go to an instruction.
    Jump(u32),
    /// The active lanes end.
    Exit,
    /// Stays at the instruction until a condition holds, then executes it again.
    Retry(Wait),
    /// Goes on with the next instruction once a condition holds.
    Then(Wait),
    /// Goes on, but lets others run first.
    Yield,
}

/// What a fragment waits for.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum Wait {
    /// Nothing.
    #[default]
    Ready,
    /// Phase of a parity of the mbarrier at an address to complete; the phase number then current.
    Mbarrier(u32, bool, u64),
    /// Generation of a named barrier to end.
    Named(u32, u64),
    /// The other lanes of a collective instruction.
    Lanes,
    /// A phase of the cluster's barrier to end.
    Cluster(u64),
    /// Any change of the CTA's state after a version (polling).
    Change(u64),
    /// Registers for setmaxnreg.
    Registers(u32),
    /// Tensor memory for tcgen05.alloc.
    TensorMemory(u32),
}
