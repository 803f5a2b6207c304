//! Syntax tree of a PTX module: names are text, nothing is resolved.

use crate::diag::Place;

/// State space of a variable.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Space {
    /// Shared memory of the CTA.
    Shared,
    /// Global memory.
    Global,
    /// Constant memory.
    Const,
    /// Memory of one thread.
    Local,
    /// Parameters of the entry.
    Param,
}

/// A variable or parameter.
#[derive(Clone, PartialEq, Debug)]
pub struct Var {
    /// Where it lives.
    pub space: Space,
    /// Declared `.extern` (size given at launch).
    pub external: bool,
    /// Its name.
    pub name: String,
    /// Alignment in bytes.
    pub align: u32,
    /// Size in bytes; 0 for an array of unknown length.
    pub size: u64,
    /// Initial bytes; empty means zeros.
    pub init: Vec<u8>,
    /// Declaration.
    pub at: Place,
}

/// Registers declared together: one name, or `prefix<count>`.
#[derive(Clone, PartialEq, Debug)]
pub struct RegDecl {
    /// Type without the dot: `pred`, `b32`, …
    pub ty: String,
    /// Name or prefix, with the percent sign if written so.
    pub name: String,
    /// Count of a parametrised name.
    pub count: Option<u32>,
    /// Declaration.
    pub at: Place,
}

/// An operand.
#[derive(Clone, PartialEq, Debug)]
pub enum Operand {
    /// Register, special register, variable or label.
    Name(String),
    /// Integer; negative numbers in two's complement.
    Int(u64),
    /// Bits of a single-precision literal.
    F32(u32),
    /// Bits of a double-precision literal.
    F64(u64),
    /// `{a, b, …}`.
    Vector(Vec<Operand>),
    /// `[base + offset]` or `[base, {coordinates}]`.
    Memory {
        /// Register or variable; `None` for an absolute address.
        base: Option<String>,
        /// Constant offset.
        offset: i64,
        /// Coordinates of a tensor access.
        coords: Option<Vec<Operand>>,
    },
    /// `a|b`.
    Pair(Box<Operand>, Box<Operand>),
    /// `!p`.
    Not(Box<Operand>),
    /// `_`.
    Sink,
}

/// One instruction.
#[derive(Clone, PartialEq, Debug)]
pub struct Inst {
    /// `@p` or `@!p`: register and whether it is negated.
    pub guard: Option<(String, bool)>,
    /// Mnemonic and modifiers.
    pub opcode: String,
    /// Operands in order.
    pub operands: Vec<Operand>,
    /// The opcode's place.
    pub at: Place,
    /// The instruction as written, on one line.
    pub text: String,
}

/// A statement of a body.
#[derive(Clone, PartialEq, Debug)]
pub enum Stmt {
    /// Register declaration.
    Reg(RegDecl),
    /// Variable in a function.
    Var(Var),
    /// Label.
    Label(String, Place),
    /// Instruction.
    Inst(Box<Inst>),
    /// `.branchtargets`: the labels of the table that the label before it names.
    Targets(Vec<String>, Place),
    /// `{`: a new scope of names.
    Open,
    /// `}`.
    Close,
}

/// Performance directives of an entry.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Bounds {
    /// `.reqntid`.
    pub reqntid: Option<[u32; 3]>,
    /// `.maxntid`.
    pub maxntid: Option<[u32; 3]>,
    /// `.minnctapersm`.
    pub minnctapersm: Option<u32>,
    /// `.maxnreg`.
    pub maxnreg: Option<u32>,
    /// `.reqnctapercluster`.
    pub cluster: Option<[u32; 3]>,
    /// `.explicitcluster`.
    pub explicit_cluster: bool,
    /// `.maxclusterrank`.
    pub most_ctas: Option<u32>,
}

/// `.loc`: where the instructions behind it come from.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Loc {
    /// Line of the directive.
    pub at: u32,
    /// Number of a `.file`.
    pub file: u64,
    /// Line there.
    pub line: u64,
    /// Column there.
    pub column: u64,
}

/// A kernel.
#[derive(Clone, PartialEq, Debug)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// Parameters in order.
    pub params: Vec<Var>,
    /// Directives.
    pub bounds: Bounds,
    /// Statements.
    pub body: Vec<Stmt>,
    /// Where they come from, in order.
    pub locs: Vec<Loc>,
    /// Place of the name.
    pub at: Place,
}

/// A module.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Module {
    /// `.version`.
    pub version: (u32, u32),
    /// `.target`.
    pub target: String,
    /// Module variables.
    pub vars: Vec<Var>,
    /// Kernels.
    pub entries: Vec<Entry>,
    /// `.file`: number and name.
    pub files: Vec<(u64, String)>,
}
