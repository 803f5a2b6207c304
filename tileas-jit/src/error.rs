//! What goes wrong besides compiling and launching: one struct, stable codes.

use std::fmt;
use std::sync::Arc;
use tileas_codegen::{CodegenError, Errors};

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
    E1201 = "no assembler can be used";
    E1202 = "assembler refuses the PTX";
    E1203 = "assembler cannot be run, or ends without an answer";
    E1204 = "library or driver that is not there or too old";
    E1205 = "call of the driver that fails";
    E1206 = "cache that cannot be opened as asked";
    E1207 = "PTX of a version or for a target that an assembler does not know";
    E1208 = "code that a device does not take";
    E1209 = "memory that a device does not have, or a tensor does not cover";
    E1210 = "stream, code or memory of another device";
    E1211 = "fault of a kernel";
    E1212 = "kernel that the module does not have";
}

impl Code {
    /// The code as printed: `E1202`.
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

/// Why there is no kernel, or no launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// Stable code: of this crate, or of the compiler's or the launch's error behind it.
    pub code: Code,
    /// What is wrong, with what was given and what is wanted.
    pub message: String,
    /// The compiler's errors, with their places, where they are what is wrong.
    pub errors: Option<Arc<Errors>>,
}

impl From<Errors> for Error {
    fn from(errors: Errors) -> Error {
        let code = errors.iter().next().map_or(Code::E1212, |e| Code(e.code.as_str()));
        Error { code, message: errors.to_string(), errors: Some(Arc::new(errors)) }
    }
}

impl From<CodegenError> for Error {
    fn from(error: CodegenError) -> Error {
        Errors::from(error).into()
    }
}

impl From<tileas_launch::Error> for Error {
    fn from(error: tileas_launch::Error) -> Error {
        Error { code: Code(error.code.as_str()), message: error.message, errors: None }
    }
}

/// One thing that is wrong, for those who show errors in a way of their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Stable code.
    pub code: &'static str,
    /// What is wrong.
    pub message: String,
    /// Further facts.
    pub notes: Vec<String>,
    /// File, as a front end named it (`loc` of the op); empty for the text of the module itself.
    pub file: String,
    /// Line, from 1; 0: not known.
    pub line: u32,
    /// Column, from 1; 0: not known.
    pub column: u32,
}

impl Error {
    /// What is wrong, one by one: the compiler's errors, or the one that this is.
    pub fn entries(&self) -> Vec<Entry> {
        let Some(errors) = &self.errors else {
            let (code, message) = (self.code.0, self.message.clone());
            return vec![Entry { code, message, notes: Vec::new(), file: String::new(), line: 0, column: 0 }];
        };
        let text = errors.text().unwrap_or_default();
        let entry = |e: &CodegenError| {
            let (mut file, mut place) = (String::new(), e.line_column(text));
            if let Some(origin) = e.origin() {
                // `model.py:12:5`; colons in the name stay there.
                let mut parts = origin.rsplitn(3, ':');
                let column = parts.next().and_then(|n| n.parse().ok());
                let line = parts.next().and_then(|n| n.parse().ok());
                place = line.zip(column);
                parts.next().unwrap_or(origin).clone_into(&mut file);
            }
            let (line, column) = place.map_or((0, 0), |(l, c)| (l as u32, c as u32));
            let notes = e.notes.iter().map(|(_, note)| note.clone()).collect();
            Entry { code: e.code.as_str(), message: e.message.clone(), notes, file, line, column }
        };
        errors.iter().map(entry).collect()
    }

    /// An error that is none of the compiler's.
    #[cold]
    pub fn new(code: Code, message: impl Into<String>) -> Error {
        Error { code, message: message.into(), errors: None }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.errors {
            // They have their codes.
            Some(_) => f.write_str(&self.message),
            None => write!(f, "{}: {}", self.code, self.message),
        }
    }
}

impl std::error::Error for Error {}
