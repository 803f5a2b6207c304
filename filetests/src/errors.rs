//! Compares reported errors and warnings with the expected ones.

use crate::header::Expected;
use anyhow::{Result, bail};
use std::fmt::Write;
use tileas_codegen::CodegenError;

/// Every expectation must be met by one report and every report must be expected.
///
/// # Errors
/// All differences.
pub fn compare(text: &str, expected: &[Expected], reported: &[CodegenError]) -> Result<()> {
    let mut open: Vec<&CodegenError> = reported.iter().collect();
    let mut differences = String::new();
    for e in expected {
        match open.iter().position(|r| meets(text, e, r)) {
            Some(i) => {
                open.remove(i);
            }
            None => {
                let at = e.line.map_or("anywhere".to_owned(), |l| format!("line {l}"));
                _ = writeln!(differences, "expected at {at}: {} {}", e.code, e.text);
            }
        }
    }
    for r in open {
        let at = r.line_column(text).map_or("no place".to_owned(), |(l, c)| format!("line {l}, column {c}"));
        _ = writeln!(differences, "not expected, at {at}: {r}");
    }
    if differences.is_empty() { Ok(()) } else { bail!("{differences}") }
}

fn meets(text: &str, e: &Expected, r: &CodegenError) -> bool {
    let line = r.line_column(text).map(|(line, _)| line);
    let says = r.message.contains(&e.text) || r.notes.iter().any(|(_, note)| note.contains(&e.text));
    r.code.as_str() == e.code && line == e.line && says
}

#[cfg(test)]
mod tests {
    use super::*;
    use tileas_codegen::{Code, Loc};

    fn expected(code: &str, text: &str, line: Option<usize>) -> Expected {
        Expected { code: code.into(), text: text.into(), line }
    }

    #[test]
    fn code_text_line_and_count_matter() {
        let text = "one\ntwo\n";
        let report = CodegenError::new(Code::E0203, Loc::new(4, 7), "two of them").note(Loc::NONE, "a note");
        let ok = |e: &[Expected], r: &[CodegenError]| compare(text, e, r).is_ok();
        let one = std::slice::from_ref(&report);
        assert!(ok(&[], &[]));
        assert!(ok(&[expected("E0203", "of", Some(2))], one));
        assert!(ok(&[expected("E0203", "note", Some(2))], one));
        assert!(!ok(&[expected("E0204", "of", Some(2))], one));
        assert!(!ok(&[expected("E0203", "off", Some(2))], one));
        assert!(!ok(&[expected("E0203", "of", Some(1))], one));
        assert!(!ok(&[expected("E0203", "of", None)], one));
        assert!(!ok(&[], one));
        assert!(!ok(&[expected("E0203", "of", Some(2))], &[]));
        // One report does not meet two expectations.
        assert!(!ok(&[expected("E0203", "of", Some(2)), expected("E0203", "two", Some(2))], one));
    }
}
