//! What is wrong with a launch: one struct, stable codes.
//!
//! The codes are E1101 to E1199; none ever changes meaning.

use std::fmt;

/// A stable code.
#[derive(Copy, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Code(&'static str);

macro_rules! codes {
    ($($code:ident = $meaning:literal;)*) => {
        impl Code {
            $(#[doc = $meaning] pub const $code: Code = Code(stringify!($code));)*
            /// All codes of this crate with their meaning.
            pub const ALL: &'static [(Code, &'static str)] = &[$((Code::$code, $meaning),)*];
        }
    };
}

codes! {
    E1101 = "malformed launch metadata";
    E1102 = "argument that the kernel lacks, or one missing";
    E1103 = "argument of another kind, type or rank than the kernel's";
    E1104 = "requirement of a launch that does not hold";
    E1105 = "expression without a value";
    E1106 = "grid, block, cluster or shared memory out of range";
    E1107 = "tensor map that cannot be encoded";
}

impl Code {
    /// The code as printed: `E1104`.
    pub fn as_str(self) -> &'static str {
        self.0
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// Why there is no launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// Stable code.
    pub code: Code,
    /// What is wrong, with what was given and what is wanted.
    pub message: String,
}

impl Error {
    #[cold]
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Error {
        Error { code, message: message.into() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.message)
    }
}

impl std::error::Error for Error {}
