//! Emission of the instructions in which targets differ.
//!
//! `lower` decides where an instruction stands; an ISA crate writes it. In: the builder at that place, and what is
//! needed of the tiles. A method may open blocks, and leaves the builder where all lanes that came in go on.

use super::{MmaAtom, MmaRequest};
use crate::ir::{Layout, Scalar, Swizzle};
use crate::layout::Access;
use crate::nvvm::{FuncBuilder, Operand, Reg, Regs};

/// One slot of a ring in memory, as a multiply names it.
#[derive(Copy, Clone, Debug)]
pub struct MmaTile {
    /// Where the ring begins: of an operand what [`Emit::operand_base`] gave, of an accumulator the base of its memory.
    pub base: Reg,
    /// Bytes (columns) of the ring behind the base; 0 where the base has them.
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

/// The first operand of a multiply.
#[derive(Copy, Clone, Debug)]
pub enum MmaOperand<'a> {
    /// In memory.
    Memory(MmaTile),
    /// The 32-bit registers of each thread, in the order of the layout of the home, two elements each.
    Registers(&'a [Reg]),
}

/// The accumulator of a multiply.
#[derive(Copy, Clone, Debug)]
pub enum MmaAcc<'a> {
    /// In memory.
    Memory(MmaTile),
    /// The registers of each thread, in the order of the layout of the home.
    Registers(&'a [Reg]),
}

/// The threads that issue a multiply together.
#[derive(Copy, Clone, Debug)]
pub struct MmaAgent {
    /// Number of this thread in its agent.
    pub thread: Reg,
    /// Number of its warp there, the same in all lanes.
    pub warp: Operand,
    /// How many warps there are.
    pub warps: u32,
}

/// A multiply of whole tiles.
#[derive(Copy, Clone, Debug)]
pub struct Mma<'a> {
    /// The instruction and how often it is needed.
    pub atom: &'a MmaAtom,
    /// A, as it is stored: the request of the atom says which dimension is contiguous.
    pub a: MmaOperand<'a>,
    /// B.
    pub b: MmaTile,
    /// The accumulator, updated in place.
    pub acc: MmaAcc<'a>,
    /// Whether the accumulator counts: a predicate, or a constant. If not, it is overwritten.
    pub accumulate: Operand,
    /// Who issues it; none where one lane does.
    pub agent: Option<MmaAgent>,
}

/// Leading and stride dimension offset, in bytes, of the descriptor of an operand in shared memory: `rows` are those of a slab (M or N where K is
/// innermost, K where M or N is). Source: PTX ISA, "Strides" and "Canonical layouts" of wgmma and tcgen05.
pub fn operand_strides(swizzle: Swizzle, rows: u32, mn_major: bool) -> (u32, u32) {
    let span = swizzle.span();
    let slab = rows * span;
    match (swizzle, mn_major) {
        (Swizzle::None, true) => (8 * 16, slab), // between 8-k groups; between 16-byte chunks of MN
        (Swizzle::None, false) => (slab, 8 * 16), // between 16-byte chunks of K; between 8-row groups
        (_, true) => (slab, 8 * span),
        (_, false) => (16, 8 * span), // ignored by the hardware, conventionally 1 in units of 16 bytes
    }
}

/// Bytes from the begin of an operand to its elements from `mn` of M or N and `k` of K on, where an instruction may begin.
pub fn operand_step(tile: &MmaTile, mn: u32, k: u32, mn_major: bool) -> u32 {
    let span = tile.layout.swizzle().unwrap_or(Swizzle::None).span();
    let (row, column) = if mn_major { (k, mn) } else { (mn, k) };
    let byte = column * tile.elem.bits() / 8;
    (byte / span) * tile.rows * span + row * span + byte % span
}

/// The multiply and its end, as a target writes them.
pub trait Emit {
    /// What of an operand, the ring of which begins where its tile says, stays the same in all slots: an address or a part of a descriptor, made
    /// once where the agent begins. `first`: the operand is A; `agent`: who multiplies, if more than one lane does.
    fn operand_base(
        &self,
        b: &mut FuncBuilder<'_>,
        tile: &MmaTile,
        request: &MmaRequest,
        first: bool,
        agent: Option<MmaAgent>,
    ) -> Reg;

    /// A multiply.
    ///
    /// # Errors
    /// A reason where the target has no form for it.
    fn mma(&self, b: &mut FuncBuilder<'_>, mma: &Mma<'_>) -> Result<(), String>;

    /// One arrival at a barrier once all multiplies that this thread has issued are done. `ctas`: at that of each CTA in this mask of the cluster, where an engine of its own signals it;
    /// threads arrive there themselves.
    fn commit(&self, b: &mut FuncBuilder<'_>, barrier: Operand, ctas: Option<Reg>);

    /// Waits until at most so many of the groups that this agent has issued are under way; only where products complete so.
    fn group_wait(&self, _: &mut FuncBuilder<'_>, _pending: u32) {}

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

    /// Reads consecutive columns, of this thread's row or in fragments, and waits for them.
    fn load(&self, b: &mut FuncBuilder<'_>, access: Access, to: Regs, from: (Reg, i32));

    /// Writes consecutive columns, of this thread's row or in fragments. They are there after [`EmitColumns::store_wait`].
    fn store(&self, b: &mut FuncBuilder<'_>, access: Access, to: (Reg, i32), values: &[Operand]);

    /// Waits for all stores of this thread.
    fn store_wait(&self, b: &mut FuncBuilder<'_>);

    /// Before a signal: this thread's accesses to accumulators come before it.
    fn fence_before(&self, b: &mut FuncBuilder<'_>);

    /// Behind a wait: this thread's later accesses to accumulators follow it.
    fn fence_after(&self, b: &mut FuncBuilder<'_>);
}
