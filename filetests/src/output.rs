//! What a command produced, and its comparison with what a file expects.

use crate::header::{Header, SEPARATOR};
use anyhow::{Context, Result, bail};
use filecheck::{CheckerBuilder, NO_VARIABLES};
use std::path::Path;
use tileas_codegen::CodegenError;

/// What a command produced: a text, or only errors.
pub(crate) struct Outcome {
    pub(crate) text: Option<String>,
    pub(crate) reported: Vec<CodegenError>,
}

/// Checks directives and, in a precise file, the whole output. With `bless`, a precise file is rewritten instead.
///
/// # Errors
/// What differs, with an explanation.
pub fn compare(path: &Path, text: &str, header: &Header, output: &str, bless: bool) -> Result<()> {
    directives(header, output)?;
    if !header.precise {
        return Ok(());
    }
    if bless {
        let blessed = with_block(text, output);
        if blessed != text {
            std::fs::write(path, blessed).with_context(|| path.display().to_string())?;
        }
        return Ok(());
    }
    let Some(expected) = block(text) else {
        bail!("the file is precise but has no `{SEPARATOR}` block; TILEAS_BLESS=1 writes it");
    };
    let output = normal(output);
    if expected == output {
        return Ok(());
    }
    let diff = similar::TextDiff::from_lines(&expected, &output);
    bail!(
        "the output differs; TILEAS_BLESS=1 rewrites it\n{}",
        diff.unified_diff().context_radius(3).header("expected", "output")
    );
}

fn directives(header: &Header, output: &str) -> Result<()> {
    let mut builder = CheckerBuilder::new();
    for line in &header.directives {
        let known = builder.directive(line).with_context(|| line.clone())?;
        anyhow::ensure!(known, "not a directive: {line}");
    }
    let checker = builder.finish();
    if checker.is_empty() {
        return Ok(());
    }
    let (good, explained) = checker.explain(output, NO_VARIABLES)?;
    if good { Ok(()) } else { bail!("a directive does not match\n{explained}") }
}

/// Lines without trailing space, no empty lines at the end.
fn normal(output: &str) -> String {
    let mut text: String = output.lines().flat_map(|l| [l.trim_end(), "\n"]).collect();
    text.truncate(text.trim_end_matches('\n').len());
    text.push('\n');
    text
}

fn split(text: &str) -> (&str, Option<&str>) {
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        if line.trim_end() == SEPARATOR {
            return (&text[..start], Some(&text[start + line.len()..]));
        }
        start += line.len();
    }
    (text, None)
}

/// The expected output of a precise file.
fn block(text: &str) -> Option<String> {
    let lines = split(text).1?.lines();
    let bare = lines.map(|l| l.strip_prefix("; ").or_else(|| l.strip_prefix(';')).unwrap_or(l));
    Some(normal(&bare.collect::<Vec<_>>().join("\n")))
}

/// The file with this output as its expectation.
fn with_block(text: &str, output: &str) -> String {
    let mut out = split(text).0.trim_end().to_owned();
    out.push('\n');
    out.push_str(SEPARATOR);
    out.push('\n');
    for line in normal(output).lines() {
        out.push_str(if line.is_empty() { ";" } else { "; " });
        out.push_str(line);
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blessing_is_what_comparing_accepts() {
        let text = "; test print\n; precise\nkernel\n";
        let blessed = with_block(text, "a  \n\n  b\n\n");
        assert_eq!(blessed, "; test print\n; precise\nkernel\n; ----\n; a\n;\n;   b\n");
        assert_eq!(with_block(&blessed, "c"), "; test print\n; precise\nkernel\n; ----\n; c\n");
        let header = Header::parse(&blessed).expect("parses");
        let same = |output: &str| compare(Path::new("/none"), &blessed, &header, output, false);
        assert!(same("a\n\n  b").is_ok());
        let e = same("a\n\n  c").expect_err("differs").to_string();
        assert!(e.contains("-  b") && e.contains("+  c"), "{e}");
        assert!(compare(Path::new("/none"), text, &header, "a", false).is_err());
    }

    #[test]
    fn directives_decide() {
        let header =
            Header::parse("; test print\n; check: two\n; nextln: three\n; not: five\n").expect("parses");
        let ok = |output: &str| compare(Path::new("/none"), "", &header, output, false).is_ok();
        assert!(ok("one\ntwo\nthree\nfour\n"));
        assert!(!ok("one\ntwo\nfour\nthree\n"));
        assert!(!ok("two\nthree\nfive\n"));
    }
}
