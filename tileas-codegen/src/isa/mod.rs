//! What the compiler knows of a target: one trait and the data behind it.
//!
//! A target is three parts, so that a second one copies nothing: [`MachineModel`] (tables: slots, pools,
//! latencies and resource vectors of op classes, real cycles, limits), [`Atoms`] (data: MMA shapes, operand
//! spaces, how completion is signalled) and the emission of the few instructions that differ. This module
//! names no target: ISA crates implement [`TargetIsa`] and passes see `&dyn TargetIsa`.
//!
//! Guarantee: everything here is immutable and `Send + Sync`; look-ups are array indexing. Unit: cycles of the
//! machine model (weights), or real cycles where an item says so; the two are never mixed in one number.

pub(crate) mod atoms;
pub(crate) mod contract;
pub(crate) mod describe;
pub(crate) mod emit;
pub(crate) mod machine;

pub use atoms::{
    AtomType, Atoms, Completion, InOrder, Issue, MmaAtom, MmaKind, MmaRequest, MmaShape, OperandSpace,
};
pub use contract::{AccAllocation, AccHome, MmaContract, OperandLayout};
pub use describe::describe;
pub use emit::{
    Emit, EmitColumns, Mma, MmaAcc, MmaAgent, MmaOperand, MmaTile, operand_step, operand_strides,
};
pub use machine::{
    Basis, ClassUse, ClassVector, Cycle, CycleAnchor, LatencyFamily, Limits, MachineModel, Number, OpClass,
    OpTag, Pool, PoolId, PoolRole, PoolUse, PublishedPool, Rate, RealUse, RealVector, Slot, SlotId, SlotKind,
    Unit, UnitId, Work,
};

use std::fmt;
use std::sync::Arc;
pub use target_lexicon::Triple;

/// Something only some processors of a family can do.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Feature {
    /// Tensor memory accelerator: bulk tensor copies through tensor maps.
    Tma,
    /// Tensor memory and the fifth-generation MMA.
    TensorMemory,
    /// MMA of 8-bit integers in tensor memory.
    MmaInt8,
    /// Minimum or maximum of a row while loading it from tensor memory.
    TmemLoadReduce,
    /// Per-warpgroup register budgets (`setmaxnreg`).
    SetMaxRegisters,
    /// Code runs on other processors of the family.
    FamilyPortable,
}

/// A set of [`Feature`]s.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Features(u32);

impl Features {
    /// The set of the given features.
    pub fn of(features: &[Feature]) -> Features {
        features.iter().fold(Features(0), |set, &f| set.with(f))
    }

    /// This set and one more.
    #[must_use]
    pub const fn with(self, feature: Feature) -> Features {
        Features(self.0 | 1 << feature as u32)
    }

    /// Whether the feature is in the set.
    pub const fn has(self, feature: Feature) -> bool {
        self.0 >> (feature as u32) & 1 == 1
    }
}

/// One processor of a lowering family.
#[derive(Copy, Clone, Debug)]
pub struct Cpu {
    /// Name as in `.target` and `--target`.
    pub name: &'static str,
    /// Least PTX version that knows it.
    pub ptx_version: (u8, u8),
    /// Features beyond those the whole family has.
    pub features: &'static [Feature],
    /// Where the row comes from.
    pub source: &'static str,
}

/// A target the compiler can generate code for.
pub trait TargetIsa: Send + Sync + fmt::Debug {
    /// Name of the lowering family, such as `blackwell`.
    fn name(&self) -> &'static str;

    /// Names this build of the tables and the emission: part of the key of everything that is made with them.
    fn version(&self) -> &'static str;

    /// The processor: its name is what `.target` says.
    fn cpu(&self) -> &'static Cpu;

    /// The triple, `nvptx64-nvidia-cuda`.
    fn triple(&self) -> &Triple;

    /// What the processor can do.
    fn features(&self) -> Features;

    /// The tables of the machine model.
    fn machine(&self) -> &MachineModel;

    /// The data of the matrix instructions.
    fn atoms(&self) -> &Atoms;

    /// Where accumulators live.
    fn acc_home(&self) -> &AccHome;

    /// What issuer and reader of a multiply may rely on.
    fn mma_contract(&self) -> &MmaContract;

    /// Writes the instructions in which targets differ.
    fn emit(&self) -> &dyn Emit;
}

/// A shared target, as ISA crates hand it out.
pub type SharedIsa = Arc<dyn TargetIsa>;
