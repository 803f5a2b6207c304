//! The thread-level IR: a control-flow graph of PTX instructions over typed virtual registers.
//!
//! In: what `lower` builds with [`FuncBuilder`]. Out: a [`Module`] that `verify` accepts and `ptx` emits.
//! Instructions are forms of the table in `tileas-meta` ([`PtxOp`]); the text form is written by [`print`](fn@print) and read by
//! `parse`.
//!
//! Elsewhere: pressure and spilling (`regalloc`), PTX text (`ptx`).

pub(crate) mod alias;
mod builder;
mod forms;
pub(crate) mod liveness;
mod module;
pub(crate) mod parser;
pub(crate) mod passes;
mod print;
pub(crate) mod verify;
pub(crate) mod write;

pub use builder::{FuncBuilder, VecOperand};
pub(crate) use forms::INDENT;
pub use forms::{AddressSpace, Effects, Form, Kind, OperandClass, PtxOp, Special, Target, Ty};
pub(crate) use liveness::{Liveness, Mention};
pub(crate) use module::Look;
pub use module::{
    Bb, BlockData, Function, Guard, Inst, InstIter, LaunchBounds, Linkage, List, Module, Operand, Param,
    ParamData, ParamKind, Reg, RegTy, Regs, Sym, SymData, SymKind,
};
pub use print::{print, print_function};
pub(crate) use verify::{Verified, Verifier};

/// Name of a function's local area, in PTX and in the text form.
pub(crate) const LOCAL_AREA: &str = "__local";

/// What stands between the name of a function and the number of one of its texts, in the name of that.
pub(crate) const TEXTS: &str = "__text";
