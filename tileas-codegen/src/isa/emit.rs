//! Emission of the instructions in which targets differ.
//!
//! `lower` decides where an instruction stands; an ISA crate writes it. In: the builder at that place. A method emits
//! straight-line code and leaves the builder in the block it was in.

use crate::nvvm::{FuncBuilder, Operand, Reg, Regs};

/// Accumulator memory and the end of multiplies, as a target writes them.
pub trait Emit {
    /// Allocates accumulator memory of `columns`; its base is written to the shared-memory word `to`. Run by the
    /// lanes of one warp.
    fn acc_alloc(&self, b: &mut FuncBuilder<'_>, to: Operand, columns: u32);

    /// Frees what [`Emit::acc_alloc`] gave, by the same warp.
    fn acc_free(&self, b: &mut FuncBuilder<'_>, base: Reg, columns: u32);

    /// Reads consecutive columns of this thread's row and waits for them.
    fn acc_load(&self, b: &mut FuncBuilder<'_>, to: Regs, from: (Reg, i32));

    /// Writes consecutive columns of this thread's row. They are there after [`Emit::acc_store_wait`].
    fn acc_store(&self, b: &mut FuncBuilder<'_>, to: (Reg, i32), values: &[Operand]);

    /// Waits for all accumulator stores of this thread.
    fn acc_store_wait(&self, b: &mut FuncBuilder<'_>);

    /// Before a signal: this thread's accesses to accumulators come before it.
    fn fence_before(&self, b: &mut FuncBuilder<'_>);

    /// Behind a wait: this thread's later accesses to accumulators follow it.
    fn fence_after(&self, b: &mut FuncBuilder<'_>);

    /// One arrival at a barrier once all multiplies that this thread has issued are done.
    fn commit(&self, b: &mut FuncBuilder<'_>, barrier: Operand);
}
