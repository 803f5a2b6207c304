//! Errors and warnings: one struct, stable codes, source locations; [`Errors`] where a call may find several.
//!
//! Library code never prints and never panics on what a caller can construct: it fills a
//! [`CodegenError`] and leaves rendering (source excerpt, colours) to the command line.
//! Codes are listed in [`codes`]; they never change meaning once released.

pub mod codes;
mod list;

pub use codes::Code;
pub use list::Errors;
use std::fmt;

/// A byte range of the source text an object came from.
///
/// The default ([`Loc::NONE`]) means "no source text" (built through the API or inserted by a pass).
#[derive(Copy, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Loc {
    /// First byte.
    pub start: u32,
    /// One past the last byte; `start > end` never holds except in [`Loc::NONE`].
    pub end: u32,
}

impl Loc {
    /// No source text.
    pub const NONE: Loc = Loc { start: u32::MAX, end: 0 };

    /// The byte range `start..end`.
    pub fn new(start: usize, end: usize) -> Loc {
        Loc { start: start.min(u32::MAX as usize - 1) as u32, end: end.min(u32::MAX as usize - 1) as u32 }
    }

    /// Whether this points into source text.
    pub fn is_some(self) -> bool {
        self.start <= self.end
    }

    /// The byte range, if there is one.
    pub fn range(self) -> Option<std::ops::Range<usize>> {
        self.is_some().then_some(self.start as usize..self.end as usize)
    }
}

impl Default for Loc {
    fn default() -> Self {
        Loc::NONE
    }
}

impl fmt::Debug for Loc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.range() {
            Some(r) => write!(f, "{}..{}", r.start, r.end),
            None => f.write_str("no location"),
        }
    }
}

/// One error or warning, with its place and what else helps to understand it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodegenError {
    /// Stable code, `E0203` or `W0101`.
    pub code: Code,
    /// What is wrong, with both numbers where two disagree.
    pub message: String,
    /// Where.
    pub location: Loc,
    /// Further places and facts.
    pub notes: Vec<(Loc, String)>,
    /// What a front end said of the op.
    pub(crate) origin: Option<Box<str>>,
}

/// Result of library calls that report one error.
pub type CodegenResult<T> = Result<T, CodegenError>;

impl CodegenError {
    /// A new error without notes.
    #[cold]
    pub fn new(code: Code, location: Loc, message: impl Into<String>) -> Self {
        CodegenError { code, message: message.into(), location, notes: Vec::new(), origin: None }
    }

    /// What the op was made from in a front end's own source, as it was said by
    /// [`FunctionBuilder::set_origin`](crate::ir::FunctionBuilder::set_origin) or the attribute `loc`: `model.py:12:5`.
    pub fn origin(&self) -> Option<&str> {
        self.origin.as_deref()
    }

    /// Adds a note.
    #[cold]
    #[must_use]
    pub fn note(mut self, location: Loc, text: impl Into<String>) -> Self {
        self.notes.push((location, text.into()));
        self
    }

    /// Adds the name that comes nearest to a wrong one as a note, if one is near.
    #[cold]
    #[must_use]
    pub fn did_you_mean<'a>(self, wrong: &str, names: impl IntoIterator<Item = &'a str>) -> Self {
        match nearest(wrong, names) {
            Some(name) => self.note(Loc::NONE, format!("did you mean `{name}`?")),
            None => self,
        }
    }

    /// Line and column (both from 1) of the location in `source`.
    pub fn line_column(&self, source: &str) -> Option<(usize, usize)> {
        line_column(source, self.location)
    }
}

/// The name that comes nearest to a wrong one: at most a third of its letters differ, or one names the last part of the
/// other (`dot` for `async.dot`). Separators and case count as nothing. Of equally near ones the first.
pub fn nearest<'a>(wrong: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let plain = |s: &str| -> String {
        s.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).take(64).collect()
    };
    let wrong = plain(wrong);
    let most = (wrong.len() / 3).max(1);
    let distance = |name: &str| {
        let name = plain(name);
        let part = wrong.len() > 2 && name.len() > 2 && (name.ends_with(&wrong) || wrong.ends_with(&name));
        let edits = strsim::osa_distance(&wrong, &name);
        // One letter in place of another is no hint where there are few.
        let near = edits <= most && edits < name.len().max(wrong.len());
        if near { Some(edits) } else { part.then_some(most + 1) }
    };
    names.into_iter().filter_map(|name| Some((distance(name)?, name))).min_by_key(|&(d, _)| d).map(|(_, n)| n)
}

/// Line and column (both from 1, column in characters) of a location in its source text.
pub fn line_column(source: &str, loc: Loc) -> Option<(usize, usize)> {
    let start = loc.range()?.start.min(source.len());
    let before = source.as_bytes().get(..start)?;
    let line = before.iter().filter(|&&b| b == b'\n').count() + 1;
    let line_start = before.iter().rposition(|&b| b == b'\n').map_or(0, |p| p + 1);
    let column = String::from_utf8_lossy(&before[line_start..]).chars().count() + 1;
    Some((line, column))
}

impl fmt::Display for CodegenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.message)?;
        for (_, note) in &self.notes {
            write!(f, "\n  {note}")?;
        }
        Ok(())
    }
}

impl std::error::Error for CodegenError {}

/// What the scheduler says; its place is a node, of which only the caller knows the source.
impl From<tileas_schedule::Diagnostic> for CodegenError {
    fn from(said: tileas_schedule::Diagnostic) -> CodegenError {
        let location = match said.place {
            tileas_schedule::Place::Text(at) => Loc::new(at, at),
            _ => Loc::NONE,
        };
        let mut error = CodegenError::new(said.code.into(), location, said.message);
        error.notes = said.notes.into_iter().map(|note| (Loc::NONE, note)).collect();
        error
    }
}
