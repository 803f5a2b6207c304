//! Errors and warnings as text: code, message, source excerpt, notes.

use codespan_reporting::diagnostic::{Diagnostic, Label};
use codespan_reporting::files::SimpleFile;
use codespan_reporting::term::{self, Config};
use tileas_codegen::{CodegenError, Loc};

/// A source text with its name.
pub struct Source {
    file: SimpleFile<String, String>,
}

impl Source {
    /// Names a text.
    pub fn new(name: &str, text: String) -> Source {
        Source { file: SimpleFile::new(name.to_owned(), text) }
    }

    /// No text: for messages about options and targets.
    pub fn none() -> Source {
        Source::new("", String::new())
    }

    /// The text.
    pub fn text(&self) -> &str {
        self.file.source()
    }

    /// Prints errors and warnings on standard error.
    pub fn report(&self, errors: &[CodegenError]) {
        for e in errors {
            eprint!("{}", self.render(e));
        }
    }

    /// One error as text.
    pub fn render(&self, e: &CodegenError) -> String {
        let kind = if e.code.is_warning() { Diagnostic::warning() } else { Diagnostic::error() };
        let mut labels = Vec::new();
        let mut notes = Vec::new();
        labels.extend(self.range(e.location).map(|r| Label::primary((), r)));
        for (at, text) in &e.notes {
            match self.range(*at) {
                Some(range) => labels.push(Label::secondary((), range).with_message(text)),
                None => notes.push(text.clone()),
            }
        }
        let diagnostic =
            kind.with_code(e.code.as_str()).with_message(&e.message).with_labels(labels).with_notes(notes);
        // Rendering fails only for ranges outside the file, which `range` excludes.
        term::emit_into_string(&Config::default(), &self.file, &diagnostic)
            .unwrap_or_else(|_| format!("{e}\n"))
    }

    /// The part of the text a location means; `None` for locations outside of it.
    fn range(&self, loc: Loc) -> Option<std::ops::Range<usize>> {
        let text = self.text();
        let range = loc.range()?;
        let inside =
            range.end <= text.len() && text.is_char_boundary(range.start) && text.is_char_boundary(range.end);
        (inside && !text.is_empty()).then_some(range)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tileas_codegen::Code;

    #[test]
    fn excerpt_label_and_note() {
        let s = Source::new("a.tileas", "one\ntwo three\n".into());
        let e = CodegenError::new(Code::E0002, Loc::new(8, 13), "expected four")
            .note(Loc::new(0, 3), "counted here")
            .note(Loc::NONE, "numbers go up");
        let text = s.render(&e);
        for part in
            ["error[E0002]: expected four", "a.tileas:2:5", "two three", "counted here", "= numbers go up"]
        {
            assert!(text.contains(part), "{part} missing in\n{text}");
        }
    }

    #[test]
    fn any_location_is_harmless() {
        for text in ["", "é", "x\n"] {
            let s = Source::new("f", text.into());
            for (a, b) in [(0, 0), (0, 1), (1, 2), (1, 1), (5, 9), (3, 2)] {
                let e = CodegenError::new(Code::W0101, Loc::new(a, b), "m").note(Loc::new(b, a), "n");
                assert!(s.render(&e).starts_with("warning[W0101]: m"));
            }
        }
    }
}
