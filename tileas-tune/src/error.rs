//! What goes wrong besides compiling and launching.

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
    E1501 = "malformed space: axes, names, values, their number";
    E1502 = "dimension that cannot be changed";
    E1503 = "argument that is missing or wrong";
    E1504 = "space in which no point works";
}

impl Code {
    /// The code as printed: `E1501`.
    pub fn as_str(self) -> &'static str {
        self.0
    }
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// Why there is nothing to tune, or a configuration that does not work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// Stable code: of this crate, or of the compiler's or the launch's error behind it.
    pub code: &'static str,
    /// What is wrong, with what was given and what is wanted.
    pub message: String,
}

impl Error {
    #[cold]
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Error {
        Error { code: code.0, message: message.into() }
    }
}

impl From<tileas_launch::Error> for Error {
    fn from(error: tileas_launch::Error) -> Error {
        Error { code: error.code.as_str(), message: error.message }
    }
}

impl From<tileas_codegen::Errors> for Error {
    fn from(errors: tileas_codegen::Errors) -> Error {
        let code = errors.iter().next().map_or("E1501", |e| e.code.as_str());
        // They begin with their codes.
        let text = errors.to_string();
        let message = text.strip_prefix(code).map_or(&*text, |rest| rest.trim_start_matches([':', ' ']));
        Error { code, message: message.to_owned() }
    }
}

impl From<tileas_codegen::CodegenError> for Error {
    fn from(error: tileas_codegen::CodegenError) -> Error {
        tileas_codegen::Errors::from(error).into()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.message)
    }
}

impl std::error::Error for Error {}
