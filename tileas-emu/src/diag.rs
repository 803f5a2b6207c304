//! Located errors of reading PTX.
//!
//! In: a line, a column and what is wrong. Out: a value with a stable code, printable as one line.
//! Codes: `P001` characters, `P002` syntax, `P003` directive, `P010` unknown instruction, `P011`
//! modifiers, `P012` operands, `P013` undeclared name, `P014` register width, `P015` duplicate
//! declaration, `P016` unknown label, `P017` immediate, `P018` version or target.

/// One error of a module's text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Diagnostic {
    /// Stable code, `P…`.
    pub code: &'static str,
    /// Line, from 1.
    pub line: u32,
    /// Column, from 1.
    pub column: u32,
    /// What is wrong.
    pub message: String,
}

impl Diagnostic {
    /// An error at a place.
    pub fn new(code: &'static str, at: Place, message: impl Into<String>) -> Self {
        Self { code, line: at.line, column: at.column, message: message.into() }
    }
}

impl std::fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}: {}: {}", self.line, self.column, self.code, self.message)
    }
}

impl std::error::Error for Diagnostic {}

/// A place in the text.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Place {
    /// Line, from 1.
    pub line: u32,
    /// Column, from 1.
    pub column: u32,
}
