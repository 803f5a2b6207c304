//! Errors and warnings as text: code, message, source excerpt, notes.

use codespan_reporting::diagnostic::{Diagnostic, Label};
use codespan_reporting::files::SimpleFile;
use codespan_reporting::term::{self, Config};
use std::io::Write;
use std::ops::Range;
use tileas_codegen::{CodegenError, Loc};
use tileas_emu::Fault;
use tileas_interp::InterpError;

/// Writes to standard error. If that fails there is nobody to tell.
pub fn complain(text: &str) {
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}

/// What `file:line:column` names, if the file is there: its text, and the line from that column on.
fn place(name: &str) -> Option<(SimpleFile<String, String>, Range<usize>)> {
    let mut parts = name.rsplitn(3, ':');
    let column: usize = parts.next()?.parse().ok()?;
    let line: usize = parts.next()?.parse().ok()?;
    let file = parts.next()?;
    let text = std::fs::read_to_string(file).ok()?;
    let start: usize = text.split_inclusive('\n').take(line.checked_sub(1)?).map(str::len).sum();
    let found = text.get(start..)?.lines().next()?;
    let from = column.saturating_sub(1).min(found.len());
    let from = (0..=from).rev().find(|&n| found.is_char_boundary(n)).unwrap_or(0);
    let range = start + from..start + found.len();
    Some((SimpleFile::new(file.to_owned(), text), range))
}

/// A diagnostic as text.
fn shown(file: &SimpleFile<String, String>, d: &Diagnostic<()>, message: &str) -> String {
    term::emit_into_string(&Config::default(), file, d).unwrap_or_else(|_| format!("error: {message}\n"))
}

/// Prints an error of reading or lowering Tile IR: the line of the source, if its file is there, and the calls that led to it.
pub fn report_tileir(name: &str, e: &tileas_tileir::Error) {
    let kind = if e.code.is_warning() { Diagnostic::warning() } else { Diagnostic::error() };
    let found = e.source.first().and_then(|f| place(&f.place()));
    let Some((file, range)) = found else {
        return complain(&format!("{name}: {e}\n"));
    };
    let function = e.function.as_ref().map(|f| format!("in kernel {f} of {name}"));
    let calls = e.source.iter().skip(1).map(|f| format!("called from {f}"));
    let notes = calls.chain(function).collect();
    let d = kind.with_code(e.code.as_str()).with_message(&e.message).with_notes(notes);
    complain(&shown(&file, &d.with_labels(vec![Label::primary((), range)]), &e.message));
}

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
            complain(&self.render(e));
        }
    }

    /// One error as text. One that a front end has given a place in its own source shows that, where it can be read.
    pub fn render(&self, e: &CodegenError) -> String {
        if let Some((file, range)) = e.origin().and_then(place) {
            let kind = if e.code.is_warning() { Diagnostic::warning() } else { Diagnostic::error() };
            let notes = e.notes.iter().map(|(_, text)| text.clone()).collect();
            let d = kind.with_code(e.code.as_str()).with_message(&e.message).with_notes(notes);
            return shown(&file, &d.with_labels(vec![Label::primary((), range)]), &e.message);
        }
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

    /// Prints errors of reading PTX.
    pub fn report_ptx(&self, errors: &[tileas_emu::Diagnostic]) {
        for e in errors {
            let label = self.line(e.line, e.column).map(|r| Label::primary((), r));
            let d = Diagnostic::error().with_code(e.code).with_message(&e.message);
            self.emit(&d.with_labels(label.into_iter().collect()));
        }
    }

    /// Prints why a run of PTX failed: the line, the other access of a conflict, who, the last events.
    pub fn report_fault(&self, fault: &Fault, run: &str, note: Option<&str>) {
        complain(&self.render_fault(fault, run, note));
    }

    /// A fault as text.
    pub fn render_fault(&self, fault: &Fault, run: &str, note: Option<&str>) -> String {
        let mut labels = Vec::new();
        labels.extend(self.line(fault.line, 0).map(|r| Label::primary((), r)));
        if let Some(other) = &fault.other
            && let Some(r) = self.line(other.line, 0)
        {
            labels
                .push(Label::secondary((), r).with_message(format!("the other access, by {}", other.actor)));
        }
        let who = match fault.lane {
            Some(lane) => format!(", {lane}, lanes {:#x}", fault.mask),
            None => String::new(),
        };
        let mut notes = vec![format!("run: {run}; CTA {}{who}", fault.cta)];
        notes.extend(fault.source.as_ref().map(|place| format!("of {place}")));
        let other = fault.other.as_ref().and_then(|o| o.source.as_ref());
        notes.extend(other.map(|place| format!("the other access: of {place}")));
        // The last ones say most.
        let last = &fault.events[fault.events.len().saturating_sub(12)..];
        if !last.is_empty() {
            notes.push(format!("before that:\n{}", last.join("\n")));
        }
        notes.extend(note.map(str::to_owned));
        let d = Diagnostic::error().with_code(fault.code).with_message(&fault.message);
        self.text_of(&d.with_labels(labels).with_notes(notes))
    }

    /// Prints why the source failed in program order.
    pub fn report_interp(&self, e: &InterpError, notes: &[&str]) {
        let label = e.loc.and_then(|l| self.range(l)).map(|r| Label::primary((), r));
        let code = format!("{:?}", e.fault).to_lowercase();
        let message = format!("in program order: {}", e.message);
        let d = Diagnostic::error().with_code(code).with_message(message);
        let notes = notes.iter().map(|&n| n.to_owned()).collect();
        self.emit(&d.with_labels(label.into_iter().collect()).with_notes(notes));
    }

    fn emit(&self, d: &Diagnostic<()>) {
        complain(&self.text_of(d));
    }

    fn text_of(&self, d: &Diagnostic<()>) -> String {
        term::emit_into_string(&Config::default(), &self.file, d)
            .unwrap_or_else(|_| format!("error: {}\n", d.message))
    }

    /// A line (from 1) without the space around it; from a column (from 1) on, if that is given.
    fn line(&self, line: u32, column: u32) -> Option<std::ops::Range<usize>> {
        let text = self.text();
        let start = match line.checked_sub(1)? {
            0 => 0,
            n => text.match_indices('\n').nth(n as usize - 1)?.0 + 1,
        };
        let whole = text[start..].lines().next()?;
        let from = match column.checked_sub(1) {
            Some(c) if whole.is_char_boundary(c as usize) && (c as usize) < whole.len() => c as usize,
            _ => whole.len() - whole.trim_start().len(),
        };
        let end = start + whole.trim_end().len();
        (start + from < end).then_some(start + from..end)
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
