//! Attributes that are more than a number.
//!
//! An op has a 64-bit word for each attribute that is there. Enumerations, integers, strings and constants stand in the word;
//! of the rest, [`Attr`]s of the function, it is the number. [`FromAttr`] is the typed way to the former.

use crate::entities::{Constant, Str, Type};
use tileas_meta::tileir::{
    AttrKind, Ordering, Overflow, Predicate, Reduction, RmwMode, Rounding, Scope, Semantics, Signedness,
};

/// A structured attribute.
#[derive(Clone, PartialEq, Debug)]
pub enum Attr {
    /// An integer: the bit pattern, and what it is the pattern of.
    Int {
        /// Its type.
        ty: Type,
        /// Pattern, in the low bits.
        bits: u64,
    },
    /// A float: the bit pattern, and what it is the pattern of.
    Float {
        /// Its type.
        ty: Type,
        /// Pattern, in the low bits.
        bits: u64,
    },
    /// A truth value.
    Bool(bool),
    /// A type.
    Type(Type),
    /// A string.
    Str(Str),
    /// Several.
    List(Box<[Attr]>),
    /// A constant with its type.
    Dense {
        /// Its type.
        ty: Type,
        /// Its bytes.
        value: Constant,
    },
    /// All elements, or the first of each run, are divisible.
    DivBy {
        /// By what; of pointers in bytes.
        divisor: u64,
        /// Length of a run.
        every: Option<i64>,
        /// The dimension of runs.
        along: Option<i64>,
    },
    /// In groups of these extents all elements are equal.
    SameElements(Box<[i64]>),
    /// By name.
    Dict(Box<[(Str, Attr)]>),
    /// Optimization hints: by target, then by name.
    Hints(Box<[(Str, Attr)]>),
    /// Signed limits, inclusive.
    Bounded {
        /// From here.
        lower: Option<i64>,
        /// To here.
        upper: Option<i64>,
    },
    /// Integers.
    Ints(Box<[i32]>),
    /// Truth values.
    Bools(Box<[bool]>),
}

/// What an attribute's word stands for.
pub trait FromAttr: Sized {
    /// The value, if the attribute is of this kind.
    fn from_word(kind: AttrKind, word: u64) -> Option<Self>;
}

macro_rules! enums {
    ($($name:ident)*) => {$(
        impl FromAttr for $name {
            fn from_word(kind: AttrKind, word: u64) -> Option<Self> {
                (kind == AttrKind::Enum(Self::NAMES)).then(|| Self::from_number(word))?
            }
        }
    )*};
}

enums!(Rounding Overflow Signedness Predicate Ordering Semantics Scope RmwMode Reduction);

impl FromAttr for u64 {
    fn from_word(kind: AttrKind, word: u64) -> Option<Self> {
        (kind == AttrKind::Int).then_some(word)
    }
}

impl FromAttr for bool {
    fn from_word(kind: AttrKind, word: u64) -> Option<Self> {
        (kind == AttrKind::Bool).then_some(word != 0)
    }
}

impl FromAttr for Str {
    fn from_word(kind: AttrKind, word: u64) -> Option<Self> {
        (kind == AttrKind::Str).then(|| Str::from_u32(word as u32))
    }
}

impl FromAttr for Constant {
    fn from_word(kind: AttrKind, word: u64) -> Option<Self> {
        (kind == AttrKind::Const).then(|| Constant::from_u32(word as u32))
    }
}

/// Whether the word is the number of an [`Attr`].
pub(crate) fn is_structured(kind: AttrKind) -> bool {
    matches!(kind, AttrKind::Ints | AttrKind::Bools | AttrKind::List | AttrKind::Tagged | AttrKind::Hints)
}
