//! What is wrong with a problem, and what is said of a schedule: stable codes with a place.
//!
//! The codes are part of the registry of `tileas-codegen`, which gives each its meaning there; none ever changes meaning.

use crate::entities::Place;
use std::fmt;

/// A stable code: `E0306` is an error, `W0403` a warning.
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
    E0301 = "malformed schedule document: syntax, type or missing field";
    E0302 = "unknown schema name";
    E0303 = "unknown slot, pool or op";
    E0304 = "duplicate slot, pool or op id";
    E0305 = "one op demands more of a slot or pool than its capacity";
    E0306 = "dependence cycle of distance zero";
    E0307 = "number out of range";
    E0308 = "more ops or edges than the limit";
    E0401 = "failed to find a schedule";
    E0402 = "schedule longer than the largest cycle number";
    E0409 = "exact mode asked for in a build without it";
    E0410 = "schedule of exact mode that the checker refuses";
    W0401 = "unknown scheduler name";
    W0402 = "constraint the serial generator does not consult";
    W0403 = "serial schedule used as fallback";
    W0405 = "step budget of the schedule search spent";
}

impl Code {
    /// The code as printed: `E0306`.
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

/// One error or warning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// Stable code.
    pub code: Code,
    /// Where in the problem.
    pub place: Place,
    /// What, with both numbers where two disagree.
    pub message: String,
    /// Further facts.
    pub notes: Vec<String>,
}

/// Result of calls that report one error.
pub type Result<T> = std::result::Result<T, Diagnostic>;

impl Diagnostic {
    /// One without notes.
    #[cold]
    pub fn new(code: Code, place: Place, message: impl Into<String>) -> Diagnostic {
        Diagnostic { code, place, message: message.into(), notes: Vec::new() }
    }

    /// Adds a note.
    #[cold]
    #[must_use]
    pub fn note(mut self, text: impl Into<String>) -> Diagnostic {
        self.notes.push(text.into());
        self
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.message)?;
        self.notes.iter().try_for_each(|note| write!(f, "\n  {note}"))
    }
}

impl std::error::Error for Diagnostic {}
