//! What goes wrong at the border.

use tileas_jit::Entry;

/// A stable code.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
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
    E1301 = "handle that means nothing: never made, freed, or of another context";
    E1302 = "handle of another kind";
    E1303 = "pointer that is null, or a text that is not UTF-8";
    E1304 = "no context";
    E1305 = "number or name out of range";
    E1306 = "failure inside of the library";
}

impl Code {
    /// The code as printed: `E1301`.
    pub fn as_str(self) -> &'static str {
        self.0
    }
}

/// An error on its way to C.
#[derive(Debug)]
pub struct Failure {
    pub code: &'static str,
    pub message: String,
    pub entries: Vec<Entry>,
}

impl Failure {
    #[cold]
    pub fn new(code: Code, message: impl Into<String>) -> Failure {
        let (code, message) = (code.0, message.into());
        let entries = vec![Entry {
            code,
            message: message.clone(),
            notes: Vec::new(),
            file: String::new(),
            line: 0,
            column: 0,
        }];
        Failure { code, message, entries }
    }
}

impl From<tileas_jit::Error> for Failure {
    fn from(e: tileas_jit::Error) -> Failure {
        Failure { code: e.code.as_str(), entries: e.entries(), message: e.message }
    }
}
