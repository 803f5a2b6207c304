//! CUDA Tile IR bytecode, versions 13.1 to 13.5.
//!
//! In: the bytes that front ends of NVIDIA's tile language write. Out: a [`Module`] whose functions are arrays of ops,
//! or all errors with their places. What a file may hold is told by the rows of [`tileas_meta::tileir`]; nothing here
//! knows the layout of a single operation.
//!
//! | to | use |
//! |---|---|
//! | read a file | [`Module::read`] |
//! | check types and structure | [`Module::verify`] |
//! | look at it | [`Module::functions`], [`FuncRef`], [`OpRef`] |
//! | print it | [`Module::dump`], `Display` |
//! | write it, in any version that has what it uses | [`Module::write`] |
//! | make one | [`Builder`] |
//!
//! Guarantee: total on any bytes and any module; no panic, no unbounded recursion, memory in proportion to the input.

#![forbid(unsafe_code)]

mod attr;
mod builder;
mod constants;
mod cursor;
mod debug;
mod dump;
mod entities;
mod error;
mod hints;
mod lower;
mod module;
mod read;
mod table;
mod types;
mod verify;
mod write;

pub use attr::{Attr, FromAttr};
pub use builder::{Builder, Set};
pub use constants::{Elements, Number};
pub use debug::{Debug, Frame, Record};
pub use entities::{AttrId, Constant, Func, Global, Loc, Op, Region, Str, Type, Value};
pub use error::{Code, Error, Errors, Section};
pub use hints::{AccessHints, EntryHints};
pub use lower::{Kernel, Lowered as Kernels, lower};
pub use module::{FuncRef, Function, GlobalData, Module, OpRef, ValueDef, Version, is_bytecode};
pub use read::Limits;
pub use table::Table;
pub use tileas_meta::tileir::{
    AttrKind, Key, Lowered, Opcode, Ordering, Overflow, Padding, PointerMode, Predicate, Reduction, RmwMode,
    Rounding, Scope, Seg, Semantics, Signedness,
};
pub use types::{Dim, Elem, Num, TypeData, Types};
