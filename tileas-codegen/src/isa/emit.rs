//! Emission of the instructions in which targets differ.
//!
//! `lower` decides where an instruction stands; an ISA crate writes it. In: the builder at that place, and what is
//! needed of the tiles. A method may open blocks, and leaves the builder where all lanes that came in go on.

use super::MmaAtom;
use crate::ir::{Layout, Scalar};
use crate::nvvm::{FuncBuilder, Operand, Reg, Regs};

/// One slot of a ring in memory, as a multiply names it.
#[derive(Copy, Clone, Debug)]
pub struct MmaTile {
    /// Where the ring begins: of an operand what [`Emit::operand_base`] gave, of an accumulator the base of its memory.
    pub base: Reg,
    /// Bytes (columns) of an accumulator's ring behind the base; 0 for an operand.
    pub at: u32,
    /// Which slot.
    pub slot: Operand,
    /// Bytes (columns) from one slot to the next.
    pub size: u32,
    /// Rows of the tile as it is stored.
    pub rows: u32,
    /// Columns of the tile as it is stored.
    pub cols: u32,
    /// Element type.
    pub elem: Scalar,
    /// How the elements lie.
    pub layout: Layout,
}

/// A multiply of whole tiles.
#[derive(Copy, Clone, Debug)]
pub struct Mma<'a> {
    /// The instruction and how often it is needed.
    pub atom: &'a MmaAtom,
    /// A, as it is stored: the request of the atom says which dimension is contiguous.
    pub a: MmaTile,
    /// B.
    pub b: MmaTile,
    /// The accumulator, updated in place.
    pub acc: MmaTile,
    /// Whether the accumulator counts: a predicate, or a constant. If not, it is overwritten.
    pub accumulate: Operand,
    /// Number of this thread in its agent, and how many there are; none where one lane issues.
    pub thread: Option<(Reg, u32)>,
}

/// The multiply and its end, as a target writes them.
pub trait Emit {
    /// What of an operand's ring, `at` bytes behind the base of shared memory, stays the same for all multiplies of an
    /// agent: an address or a part of a descriptor, made once where the agent begins.
    fn operand_base(&self, b: &mut FuncBuilder<'_>, base: Reg, at: u32) -> Reg;

    /// A multiply.
    ///
    /// # Errors
    /// A reason where the target has no form for it.
    fn mma(&self, b: &mut FuncBuilder<'_>, mma: &Mma<'_>) -> Result<(), String>;

    /// One arrival at a barrier once all multiplies that this thread has issued are done.
    fn commit(&self, b: &mut FuncBuilder<'_>, barrier: Operand);

    /// Access to accumulators that are allocated in columns; none where they live in shared memory or registers, which
    /// all targets access alike.
    fn columns(&self) -> Option<&dyn EmitColumns>;
}

/// Tensor memory, as a target writes it.
pub trait EmitColumns {
    /// Allocates `columns`; their base is written to the shared-memory word `to`. Run by the lanes of one warp.
    fn alloc(&self, b: &mut FuncBuilder<'_>, to: Operand, columns: u32);

    /// Frees what [`EmitColumns::alloc`] gave, by the same warp.
    fn free(&self, b: &mut FuncBuilder<'_>, base: Reg, columns: u32);

    /// The base for the rows of a warp of the agent, by its number in the agent.
    fn warp_base(&self, b: &mut FuncBuilder<'_>, base: Reg, warp: Operand) -> Operand;

    /// Reads consecutive columns of this thread's row and waits for them.
    fn load(&self, b: &mut FuncBuilder<'_>, to: Regs, from: (Reg, i32));

    /// Writes consecutive columns of this thread's row. They are there after [`EmitColumns::store_wait`].
    fn store(&self, b: &mut FuncBuilder<'_>, to: (Reg, i32), values: &[Operand]);

    /// Waits for all stores of this thread.
    fn store_wait(&self, b: &mut FuncBuilder<'_>);

    /// Before a signal: this thread's accesses to accumulators come before it.
    fn fence_before(&self, b: &mut FuncBuilder<'_>);

    /// Behind a wait: this thread's later accesses to accumulators follow it.
    fn fence_after(&self, b: &mut FuncBuilder<'_>);
}
