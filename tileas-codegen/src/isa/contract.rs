//! Where accumulators live and what a multiply promises: the two facts of a target that shape a kernel.
//!
//! Passes ask the target for [`AccHome`] and [`MmaContract`] where they would otherwise have to know one family's
//! memory or completion by heart. Both are data of the whole family: a kernel has one home for its accumulators.

use super::{Completion, InOrder, Issue};
use crate::ir::{Layout, Space};

/// How room for accumulators is given out.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum AccAllocation {
    /// Columns of tensor memory, which a warp of the CTA allocates and frees. The warps of one warpgroup share its lanes.
    Columns,
    /// Registers of the threads that issue the multiplies.
    Registers,
    /// Bytes of the CTA's shared memory.
    SharedBytes,
}

/// The layout of `m` rows and `k` columns in registers, for an accumulator of `n` columns, over so many warps.
pub type OperandLayout = fn(m: u32, n: u32, k: u32, warps: u32) -> Option<Layout>;

/// Where accumulators live.
#[derive(Copy, Clone, Debug)]
pub struct AccHome {
    /// Their memory.
    pub space: Space,
    /// How it is given out.
    pub allocation: AccAllocation,
    /// Layout of an accumulator of `m` rows and `n` columns; in registers, of an agent of so many warps. `None`: they cannot hold it.
    pub layout: fn(m: u32, n: u32, warps: u32) -> Option<Layout>,
    /// Where products may take their first operand from registers: the layout of `m` rows and `k` columns of 16 bits there, of an agent that has
    /// an accumulator of so many columns. A computed operand then needs no memory.
    pub operand: Option<OperandLayout>,
}

/// What issuer and reader of a multiply may rely on. The spaces of its operands are those of its kind.
///
/// Where a whole warpgroup issues, each thread updates the rows of an accumulator in shared memory that it moves between
/// there and registers: those that [`Layout::Row`] gives it. An accumulator in registers is a register tile in the layout of its
/// home like any other; the operands are then read through the asynchronous proxy.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct MmaContract {
    /// Who issues it.
    pub issue: Issue,
    /// How its end becomes known.
    pub completion: Completion,
    /// What runs in issue order.
    pub in_order: InOrder,
}
