//! The comment lines of a test file.
//!
//! ```text
//! ; test KIND               one or more: verify print constraints place schedule materialize nvvm compile ptxas run;
//!                           on thread-level text: nvvm-print nvvm-verify nvvm-pass NAME
//! ; target sm_100a          processor; default: what the module says, else the option's default
//! ; set NAME=VALUE          compiler option
//! ; precise                 the first command's output is the block at the end of the file, behind `; ----`
//! ; check: PATTERN          and nextln, sameln, not, unordered, regex: directives of filecheck on that output
//! ; case: {JSON}            an execution; continued on lines that begin with `;+`
//! ; error: E0301 TEXT       behind a line: reported there; on a line of its own: on the next line of the module
//! ; global-error: E1003 T   reported without a place
//! ```
//! Warnings are expected in the same way, by their codes. The header ends at the first line that is no comment;
//! directives, cases and errors may stand anywhere in the file.

use crate::execute::RunCase;
use anyhow::{Context, Result, bail, ensure};

/// What a test does with its module.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TestKind {
    /// Verifies; no output.
    Verify,
    /// Prints, and parses what was printed.
    Print,
    /// Dumps constraints and groups.
    Constraints,
    /// Prints the prepared IR.
    Prepare,
    /// Prints agents and the placed IR.
    Place,
    /// Prints agents, schedules and channels.
    Schedule,
    /// Prints the materialised IR.
    Materialize,
    /// Prints the thread-level IR.
    Nvvm,
    /// Prints the PTX; a second compilation must give the same.
    Compile,
    /// Assembles the PTX.
    Ptxas,
    /// Runs the cases.
    Run,
    /// Thread-level text: runs one pass and prints what it left.
    Pass(NvvmPass),
}

/// What is done to thread-level text.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NvvmPass {
    /// Nothing: the text is read and printed.
    None,
    /// The verifier.
    Verify,
    /// `passes::cfg`.
    Cfg,
    /// `passes::local`.
    Local,
    /// `passes::dce`.
    Dce,
    /// All cleanups.
    Cleanup,
    /// Register budgets and spill plans.
    Regalloc,
}

impl TestKind {
    /// All kinds.
    pub const ALL: [TestKind; 18] = [
        TestKind::Verify,
        TestKind::Print,
        TestKind::Constraints,
        TestKind::Prepare,
        TestKind::Place,
        TestKind::Schedule,
        TestKind::Materialize,
        TestKind::Nvvm,
        TestKind::Compile,
        TestKind::Ptxas,
        TestKind::Run,
        TestKind::Pass(NvvmPass::None),
        TestKind::Pass(NvvmPass::Verify),
        TestKind::Pass(NvvmPass::Cfg),
        TestKind::Pass(NvvmPass::Local),
        TestKind::Pass(NvvmPass::Dce),
        TestKind::Pass(NvvmPass::Cleanup),
        TestKind::Pass(NvvmPass::Regalloc),
    ];

    /// The word behind `; test`.
    pub fn name(self) -> &'static str {
        match self {
            TestKind::Verify => "verify",
            TestKind::Print => "print",
            TestKind::Constraints => "constraints",
            TestKind::Prepare => "prepare",
            TestKind::Place => "place",
            TestKind::Schedule => "schedule",
            TestKind::Materialize => "materialize",
            TestKind::Nvvm => "nvvm",
            TestKind::Compile => "compile",
            TestKind::Ptxas => "ptxas",
            TestKind::Run => "run",
            TestKind::Pass(NvvmPass::None) => "nvvm-print",
            TestKind::Pass(NvvmPass::Verify) => "nvvm-verify",
            TestKind::Pass(NvvmPass::Cfg) => "nvvm-pass cfg",
            TestKind::Pass(NvvmPass::Local) => "nvvm-pass local",
            TestKind::Pass(NvvmPass::Dce) => "nvvm-pass dce",
            TestKind::Pass(NvvmPass::Cleanup) => "nvvm-pass cleanup",
            TestKind::Pass(NvvmPass::Regalloc) => "nvvm-pass regalloc",
        }
    }
}

/// An error or warning that must be reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    /// Code.
    pub code: String,
    /// Part of the message or of a note.
    pub text: String,
    /// Line (from 1); `None`: reported without a place.
    pub line: Option<usize>,
}

/// What a file asks for.
#[derive(Clone, Debug, Default)]
pub struct Header {
    /// Commands in order.
    pub tests: Vec<TestKind>,
    /// Processor.
    pub target: Option<String>,
    /// Options as `name=value`.
    pub set: Vec<String>,
    /// Whether the output is compared in full.
    pub precise: bool,
    /// Executions.
    pub cases: Vec<RunCase>,
    /// Expected errors and warnings.
    pub expected: Vec<Expected>,
    /// Lines with filecheck directives.
    pub directives: Vec<String>,
}

/// The line that separates a module from its precise output.
pub const SEPARATOR: &str = "; ----";

const DIRECTIVES: &[&str] = &["check:", "nextln:", "sameln:", "not:", "unordered:", "regex:"];

impl Header {
    /// Reads the comments of a file.
    ///
    /// # Errors
    /// Unknown commands, malformed cases and expectations, and files without a command.
    pub fn parse(text: &str) -> Result<Header> {
        let mut h = Header::default();
        let mut in_header = true;
        let mut case: Option<String> = None;
        for (i, line) in text.lines().enumerate() {
            if line == SEPARATOR {
                break;
            }
            let number = i + 1;
            let trimmed = line.trim_start();
            let comment = trimmed.strip_prefix(';');
            if let Some(more) = comment.and_then(|c| c.strip_prefix('+')) {
                case.as_mut()
                    .with_context(|| format!("line {number}: `;+` continues no case"))?
                    .push_str(more);
                continue;
            }
            h.finish_case(case.take())?;
            let Some(comment) = comment.map(str::trim) else {
                in_header &= trimmed.is_empty();
                h.expectations(line, number, Some(number))?;
                continue;
            };
            if let Some(json) = comment.strip_prefix("case:") {
                case = Some(json.to_owned());
            } else if DIRECTIVES.iter().any(|d| comment.starts_with(d)) {
                h.directives.push(comment.to_owned());
            } else if let Some(rest) = comment.strip_prefix("global-error:") {
                h.expect(rest, number, None)?;
            } else if comment.starts_with("error:") {
                let target = next_code_line(text, number);
                h.expectations(line, number, Some(target))?;
            } else if in_header {
                h.command(comment).with_context(|| format!("line {number}"))?;
            }
        }
        h.finish_case(case)?;
        ensure!(!h.tests.is_empty(), "no `; test` line");
        Ok(h)
    }

    fn command(&mut self, comment: &str) -> Result<()> {
        let (word, rest) = comment.split_once(' ').unwrap_or((comment, ""));
        let rest = rest.trim();
        match word {
            "test" => match TestKind::ALL.into_iter().find(|k| k.name() == rest) {
                Some(kind) if self.tests.contains(&kind) => bail!("`test {rest}` twice"),
                Some(kind) => self.tests.push(kind),
                None => bail!("unknown test `{rest}`"),
            },
            "target" => self.target = Some(rest.to_owned()),
            "set" => self.set.push(rest.to_owned()),
            "precise" if rest.is_empty() => self.precise = true,
            // Prose.
            _ => {}
        }
        Ok(())
    }

    fn finish_case(&mut self, case: Option<String>) -> Result<()> {
        if let Some(json) = case {
            self.cases.push(RunCase::parse(&json)?);
        }
        Ok(())
    }

    /// All `; error: …` of a line.
    fn expectations(&mut self, line: &str, number: usize, at: Option<usize>) -> Result<()> {
        for part in line.split("; error:").skip(1) {
            self.expect(part, number, at)?;
        }
        Ok(())
    }

    fn expect(&mut self, part: &str, number: usize, at: Option<usize>) -> Result<()> {
        let part = part.trim();
        let (code, text) = part.split_once(' ').unwrap_or((part, ""));
        let known = tileas_codegen::Code::all().iter().any(|(c, _)| c.as_str() == code);
        ensure!(known, "line {number}: unknown code `{code}`");
        self.expected.push(Expected { code: code.to_owned(), text: text.trim().to_owned(), line: at });
        Ok(())
    }
}

/// The line an expectation on line `number` of its own is about: the next one that is not such a line itself.
fn next_code_line(text: &str, number: usize) -> usize {
    let is_expectation =
        |l: &str| l.trim_start().strip_prefix(';').is_some_and(|c| c.trim_start().starts_with("error:"));
    let skipped = text.lines().skip(number).take_while(|l| is_expectation(l)).count();
    number + skipped + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_at_once() {
        let text = "; test verify\n; test ptxas\n; set a=b\n; target sm_103a\n; prose with words\n; case: {\"sms\":\n;+ 1}\n\n\
                    kernel @k() { ; error: E0203 two ; error: E0204 three\n; test print\n; error: W0101 four\n\
                    ; error: E0205 five\nfoo\n; check: abc\n; ----\n; check: not read\n";
        let h = Header::parse(text).expect("parses");
        assert_eq!(h.tests, [TestKind::Verify, TestKind::Ptxas]);
        assert_eq!((h.set, h.target.as_deref()), (vec!["a=b".to_owned()], Some("sm_103a")));
        assert_eq!(h.cases.len(), 1);
        assert_eq!(h.directives, ["check: abc"]);
        let got: Vec<_> = h.expected.iter().map(|e| (e.code.as_str(), e.text.as_str(), e.line)).collect();
        let want = [
            ("E0203", "two", Some(9)),
            ("E0204", "three", Some(9)),
            ("W0101", "four", Some(13)),
            ("E0205", "five", Some(13)),
        ];
        assert_eq!(got, want);
    }

    #[test]
    fn nonsense_is_refused() {
        for bad in [
            "kernel",
            "; test fly\n",
            "; test print\n; test print\n",
            "; test print\n; case: [1]\n",
            "; test print\n;+ x\n",
            "; test print\nx ; error: E9999 x\n",
        ] {
            assert!(Header::parse(bad).is_err(), "{bad}");
        }
    }
}
