//! The tile IR: structured, SSA, region-based.
//!
//! `kernel` → region → block → ops; `for`, `if` and `agent_switch` own regions. Every object is a `u32` entity;
//! a [`Function`] owns its arenas and its type and attribute pools, so that passes can intern while the module is
//! shared. Operations are described once, in `tileas-meta/src/ops.rs`.
//!
//! Modules: `entities`, [`types`], `attrs`, `combiner` (functions that reductions carry), [`opcodes`] (generated tables), `function`, `inline` (functions that are called), [`builder`],
//! [`layouts`] (register and memory layouts), `lexer` and `parser` (total, located errors), `printer`
//! (print ∘ parse is the identity on printed text), `verifier` (reports all violations).

pub(crate) mod attrs;
pub mod builder;
pub(crate) mod cluster;
pub(crate) mod combiner;
mod digits;
pub(crate) mod entities;
mod fit;
pub mod format;
pub(crate) mod function;
pub(crate) mod grid;
mod inline;
mod intern;
pub mod layouts;
pub(crate) mod lexer;
pub(crate) mod module;
pub mod opcodes;
pub(crate) mod parser;
pub mod pipe;
pub(crate) mod pool;
pub(crate) mod printer;
pub mod types;
pub(crate) mod verifier;

pub use attrs::{AttrData, AttrDict, FloatBits, ORIGIN};
pub use builder::{FunctionBuilder, infer_result_types};
pub use combiner::Combiner;
pub(crate) use digits::push_number;
pub use entities::{Attr, Block, Op, Region, Sym, Type, Value};
pub use function::{Function, ValueDef};
pub use layouts::{Layout, RegisterBits, Swizzle};
pub use module::Module;
pub use opcodes::{OpDef, Opcode, keys};
pub use parser::{ParseLimits, parse_module, parse_module_with};
pub use pipe::{PipeDef, Publish, Signal};
pub(crate) use printer::print_located;
pub use printer::{ValueNames, print_function, print_module, print_op_line};
pub use types::{Dim, Scalar, Space, TypeData};
pub use verifier::{Limits, MemSemantics, Verified, verify, verify_function, verify_module};
