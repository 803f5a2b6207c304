//! Several errors at once: what calls report that look at more than one thing.
//!
//! [`Errors`] is never empty. A call that looks at one thing (an option, a target, a pipeline of passes) and stops there
//! reports one [`CodegenError`]; `?` makes a list of it.

use super::CodegenError;
use std::fmt;
use std::sync::Arc;

/// One or more errors, in the order in which they were found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Errors {
    list: Vec<CodegenError>,
    text: Option<Arc<str>>,
}

impl Errors {
    /// An error of what was found, if anything was.
    ///
    /// # Errors
    /// All that was found.
    pub fn check(found: Vec<CodegenError>) -> Result<(), Errors> {
        if found.is_empty() { Ok(()) } else { Err(Errors::of(found)) }
    }

    /// What was found where something failed.
    pub(crate) fn of(found: Vec<CodegenError>) -> Errors {
        debug_assert!(!found.is_empty(), "what failed says why");
        Errors { list: found, text: None }
    }

    /// The text in which the errors are located: what the module was read from; for one that was built by calls, what it prints as.
    pub fn text(&self) -> Option<&str> {
        self.text.as_deref()
    }

    /// These errors, with the text in which their places are.
    pub(crate) fn located_in(mut self, text: Arc<str>) -> Errors {
        self.text = Some(text);
        self
    }

    /// These errors, to be changed.
    pub(crate) fn list_mut(&mut self) -> &mut [CodegenError] {
        &mut self.list
    }

    /// Each error replaced by another one.
    #[must_use]
    pub fn map(self, change: impl FnMut(CodegenError) -> CodegenError) -> Errors {
        Errors { list: self.list.into_iter().map(change).collect(), text: self.text }
    }
}

impl From<CodegenError> for Errors {
    fn from(error: CodegenError) -> Errors {
        Errors::of(vec![error])
    }
}

impl std::ops::Deref for Errors {
    type Target = [CodegenError];

    fn deref(&self) -> &[CodegenError] {
        &self.list
    }
}

impl IntoIterator for Errors {
    type Item = CodegenError;
    type IntoIter = std::vec::IntoIter<CodegenError>;

    fn into_iter(self) -> Self::IntoIter {
        self.list.into_iter()
    }
}

impl<'a> IntoIterator for &'a Errors {
    type Item = &'a CodegenError;
    type IntoIter = std::slice::Iter<'a, CodegenError>;

    fn into_iter(self) -> Self::IntoIter {
        self.list.iter()
    }
}

/// A line for each error, behind the line and column of [`Errors::text`] that it is about; its notes below it, and then the line itself.
/// Where a front end has said what an op was made from ([`CodegenError::origin`]), that stands first.
impl fmt::Display for Errors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, e) in self.list.iter().enumerate() {
            if i > 0 {
                f.write_str("\n")?;
            }
            if let Some(origin) = e.origin() {
                write!(f, "{origin}: ")?;
            }
            match (e.location.range(), self.text()) {
                (Some(r), None) => write!(f, "{}..{}: {e}", r.start, r.end)?,
                (Some(r), Some(text)) => {
                    let (line, column) = e.line_column(text).unwrap_or_default();
                    write!(f, "{line}:{column}: {e}")?;
                    let place = text.get(r).unwrap_or_default();
                    write!(f, "\n  at `{}`", place.lines().next().unwrap_or_default())?;
                }
                (None, _) => write!(f, "{e}")?,
            }
        }
        Ok(())
    }
}

impl std::error::Error for Errors {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{Code, Loc};

    #[test]
    fn a_line_for_each_with_its_place_and_its_code() {
        let found = vec![
            CodegenError::new(Code::E0002, Loc::new(3, 7), "one").note(Loc::NONE, "why"),
            CodegenError::new(Code::E1002, Loc::NONE, "two"),
        ];
        let errors = Errors::check(found).expect_err("two errors");
        assert_eq!(errors.to_string(), "3..7: E0002: one\n  why\nE1002: two");
        assert_eq!(errors.map(|e| e.note(Loc::NONE, "n"))[1].notes.len(), 1);
        assert_eq!(Errors::check(Vec::new()), Ok(()));
    }
}
