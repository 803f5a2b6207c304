//! Why a run ended badly.

use std::fmt;
use tileas_codegen::Loc;
use tileas_codegen::ir::{Function, Op};

/// Kinds of failures.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Fault {
    /// Arguments do not fit the kernel's parameters.
    Argument,
    /// An op, type or form this interpreter does not execute in this mode.
    Unsupported,
    /// A value was used before anything defined it, or storage was read before anything was written there.
    Undefined,
    /// A loop step below 1, a division by zero, an index outside a buffer.
    Value,
    /// An `assert` of the kernel does not hold.
    Assertion,
    /// Every unfinished agent waits for another.
    Deadlock,
    /// A barrier got more arrivals or bytes than its phase counts.
    Barrier,
    /// [`crate::Limits`] reached.
    Limit,
}

/// A failed run: what, at which op, where it stands in the source.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InterpError {
    /// Kind.
    pub fault: Fault,
    /// What happened.
    pub message: String,
    /// Where.
    pub loc: Option<Loc>,
}

impl InterpError {
    /// An error that belongs to no op.
    pub fn new(fault: Fault, message: impl Into<String>) -> InterpError {
        InterpError { fault, message: message.into(), loc: None }
    }

    /// An error at an op.
    pub fn at(f: &Function, op: Op, fault: Fault, message: impl Into<String>) -> InterpError {
        let message = format!("{}: {}", f.opcode(op).name(), message.into());
        InterpError { fault, message, loc: Some(f.op_loc(op)) }
    }
}

impl fmt::Display for InterpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.fault, self.message)
    }
}

impl std::error::Error for InterpError {}

/// Result of everything that runs a kernel.
pub type InterpResult<T> = Result<T, InterpError>;
