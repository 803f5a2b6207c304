//! What is wrong with a file or a module: stable codes and places.
//!
//! The codes are E1601 to E1699; none ever changes meaning.

use crate::debug::Frame;
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
    E1601 = "no Tile IR bytecode";
    E1602 = "version that is not known";
    E1603 = "preview features, or unknown bits of the header";
    E1604 = "bytes that end too early";
    E1605 = "number that does not fit";
    E1606 = "section unknown, missing, there twice or badly aligned";
    E1607 = "padding that is not CB";
    E1608 = "bytes that belong to nothing";
    E1609 = "malformed table of offsets";
    E1610 = "index beyond its table";
    E1611 = "unknown or malformed type";
    E1612 = "operation that the file's version does not have";
    E1613 = "unknown or malformed attribute";
    E1614 = "value that is not defined there";
    E1615 = "malformed operation";
    E1616 = "malformed function";
    E1617 = "malformed debug information";
    E1618 = "malformed global";
    E1619 = "input larger than a limit";
    E1620 = "string that is not UTF-8";
    E1621 = "type that breaks a rule";
    E1622 = "types that do not suit the operation";
    E1623 = "wrong number of operands or results";
    E1624 = "attribute that does not suit the operation";
    E1625 = "region with wrong parameters, or that does not end as it must";
    E1626 = "function that cannot be a kernel";
    E1627 = "constant that does not fill its type";
    E1628 = "what a version of the bytecode cannot express";
    E1641 = "operation that is not supported";
    E1642 = "type that is not supported there";
    E1643 = "form of an operation that is not supported";
    W1601 = "hint that is not known or out of range";
    W1641 = "operation that is left out";
    W1642 = "hint that is not heeded";
}

impl Code {
    /// The code as printed: `E1604`.
    pub fn as_str(self) -> &'static str {
        self.0
    }

    /// Whether this is a warning (`W…`).
    pub fn is_warning(self) -> bool {
        self.0.starts_with('W')
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

/// A part of a file.
#[derive(Copy, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum Section {
    /// The twelve bytes at the begin, and the end mark.
    Header,
    /// Strings.
    Strings,
    /// Functions.
    Functions,
    /// Debug information.
    Debug,
    /// Constants.
    Constants,
    /// Types.
    Types,
    /// Globals.
    Globals,
    /// Name of the producer.
    Producer,
}

impl Section {
    /// By number in the file.
    pub(crate) const ALL: [Section; 8] = [
        Section::Header,
        Section::Strings,
        Section::Functions,
        Section::Debug,
        Section::Constants,
        Section::Types,
        Section::Globals,
        Section::Producer,
    ];

    /// Name in messages.
    pub fn name(self) -> &'static str {
        ["header", "strings", "functions", "debug", "constants", "types", "globals", "producer"]
            [self as usize]
    }
}

/// An error or a warning, with its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// Stable code.
    pub code: Code,
    /// What was found, and what was expected.
    pub message: String,
    /// First byte of what is wrong; `None` in modules that were not read.
    pub offset: Option<usize>,
    /// Part of the file.
    pub section: Section,
    /// Name of the function.
    pub function: Option<String>,
    /// Number of the op in its function, in the order of the bytes, and its name where that is known.
    pub op: Option<(u32, Option<&'static str>)>,
    /// Where the op came from, innermost call first; empty if the file does not say.
    pub source: Vec<Frame>,
}

impl Error {
    #[cold]
    pub(crate) fn new(
        code: Code,
        section: Section,
        offset: Option<usize>,
        message: impl Into<String>,
    ) -> Box<Error> {
        let message = message.into();
        Box::new(Error { code, message, offset, section, function: None, op: None, source: Vec::new() })
    }
}

/// Result of a step that ends with its first error.
pub(crate) type Res<T> = Result<T, Box<Error>>;

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.message)?;
        write!(f, "\n  in section {}", self.section.name())?;
        if let Some(offset) = self.offset {
            write!(f, ", byte {offset:#x}")?;
        }
        if let Some(function) = &self.function {
            write!(f, ", function @{function}")?;
        }
        if let Some((op, name)) = self.op {
            write!(f, ", op {op}")?;
            if let Some(name) = name {
                write!(f, " `{name}`")?;
            }
        }
        for (i, frame) in self.source.iter().enumerate() {
            write!(f, "\n  {} {frame}", if i == 0 { "at" } else { "called from" })?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {}

/// One or more errors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Errors(Vec<Error>);

impl Errors {
    pub(crate) fn check(errors: Vec<Error>) -> Result<(), Errors> {
        if errors.is_empty() { Ok(()) } else { Err(Errors(errors)) }
    }
}

impl std::ops::Deref for Errors {
    type Target = [Error];

    fn deref(&self) -> &[Error] {
        &self.0
    }
}

impl IntoIterator for Errors {
    type Item = Error;
    type IntoIter = std::vec::IntoIter<Error>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl fmt::Display for Errors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, error) in self.iter().enumerate() {
            write!(f, "{}{error}", if i == 0 { "" } else { "\n" })?;
        }
        Ok(())
    }
}

impl std::error::Error for Errors {}
