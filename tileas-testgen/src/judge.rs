//! Judges a kernel: it compiles or is refused for a documented limit, and computes what its source says.
//!
//! In: text, options and a case of a filetest. Out: a [`Verdict`]; what is wrong has a symptom, by which findings of one
//! cause are likely to be put together: codes, messages and faults without numbers and names.

use anyhow::Context as _;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use tileas_codegen::isa::TargetIsa;
use tileas_codegen::{Code, CodegenError, Context, Settings, Stage};
use tileas_filetests::execute::{Forms, RunCase, execute};

/// Codes of limits that a legal kernel may meet: no instruction or layout for it, memory, registers and threads that do
/// not suffice.
pub const LIMITS: &[Code] = &[
    Code::E0502,
    Code::E0503,
    Code::E0504,
    Code::E0506,
    Code::E0507,
    Code::E0508,
    Code::E0602,
    Code::E0603,
    Code::E0802,
    Code::E1010,
];

/// What became of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It ran and was right.
    Right,
    /// Refused with a located error of [`LIMITS`]: its code and what it says.
    Refused(String),
    /// Something is wrong.
    Wrong(Symptom),
}

/// What is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symptom {
    /// The same for findings that look the same.
    pub key: String,
    /// All that was said.
    pub detail: String,
}

thread_local! {
    static PANIC: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Keeps what a panic says from the terminal; [`judge`] reports it.
pub fn quiet_panics() {
    std::panic::set_hook(Box::new(|info| {
        let place = info.location().map_or(String::new(), |l| format!("{}:{}", l.file(), l.line()));
        let message = info.payload_as_str().unwrap_or("");
        PANIC.with_borrow_mut(|p| *p = format!("panic at {place}: {message}"));
    }));
}

/// A message without numbers and names of values.
fn bare(text: &str) -> String {
    let line = text.lines().next().unwrap_or("");
    let mut out = String::new();
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        if c == '%' {
            while chars.peek().is_some_and(|c| c.is_alphanumeric() || *c == '_' || *c == '.') {
                chars.next();
            }
            out.push_str("%v");
        } else if c.is_ascii_digit() {
            while chars.peek().is_some_and(|c| c.is_ascii_alphanumeric() || *c == '.') {
                chars.next();
            }
            if out.ends_with('-') {
                out.pop();
            }
            out.push('#');
        } else {
            out.push(c);
        }
    }
    out.chars().take(160).collect()
}

fn refused(stage: &str, errors: &[CodegenError]) -> Verdict {
    let lines: Vec<String> = errors.iter().map(ToString::to_string).collect();
    let detail = lines.join("\n");
    let bad = errors.iter().find(|e| !LIMITS.contains(&e.code) || e.location.range().is_none());
    match bad {
        None if !errors.is_empty() && stage == "compile" => {
            Verdict::Refused(format!("{} {}", errors[0].code, bare(&errors[0].message)))
        }
        bad => {
            let e = bad.or(errors.first());
            let place = if e.is_some_and(|e| e.location.range().is_some()) { "" } else { " (no place)" };
            let said = e.map_or("no error".to_owned(), |e| format!("{} {}", e.code, bare(&e.message)));
            Verdict::Wrong(Symptom { key: format!("{stage} refused{place}: {said}"), detail })
        }
    }
}

/// Compiles and runs a kernel.
pub fn judge(text: &str, options: &[(&str, &str)], case: &str, isa: &dyn TargetIsa) -> Verdict {
    let run = || attempt(text, options, case, isa);
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(verdict) => verdict,
        Err(_) => {
            let detail = PANIC.with_borrow(Clone::clone);
            Verdict::Wrong(Symptom { key: bare_panic(&detail), detail })
        }
    }
}

/// The place of a panic, and what it says without numbers.
fn bare_panic(detail: &str) -> String {
    match detail.split_once(": ") {
        Some((place, message)) => format!("{place}: {}", bare(message)),
        None => "panic".to_owned(),
    }
}

fn attempt(text: &str, options: &[(&str, &str)], case: &str, isa: &dyn TargetIsa) -> Verdict {
    let mut settings = Settings::builder();
    for (name, value) in options {
        if let Err(e) = settings.set(name, value) {
            return refused("options", &[e]);
        }
    }
    settings.set("verify-passes", "true").expect("an option");
    let settings = settings.finish();
    let mut context = Context::new();
    let module = match context.parse(text, &settings) {
        Ok(module) => module,
        Err(e) => return refused("parse", &e),
    };
    if let Err(errors) = context.check(&module, &settings) {
        return refused("verify", &errors);
    }
    let run = match context.run_to(Stage::Metadata, &module, isa, &settings) {
        Ok(run) => run,
        Err(errors) => return refused("compile", &errors),
    };
    let (ptx, metadata) = (run.text(Stage::Ptx), run.text(Stage::Metadata));
    let executed = RunCase::parse(case).and_then(|case| {
        let materialized = run.kernels[0].materialized.as_ref().context("the kernel has agents")?;
        let forms = Forms { source: &module.functions[0], materialized, ptx: &ptx, metadata: &metadata };
        execute(&forms, &[case])
    });
    match executed {
        Ok(()) => Verdict::Right,
        // Rows of a view of any extents that TMA would store beyond.
        Err(e) if format!("{e:#}").contains(": TMA stores 16 bytes at once") => {
            Verdict::Refused("E1104 rows".into())
        }
        Err(e) => Verdict::Wrong(Symptom { key: symptom(&e), detail: format!("{e:#}") }),
    }
}

/// What failed in an execution: who ran, and what it says.
fn symptom(e: &anyhow::Error) -> String {
    let chain: Vec<String> = e.chain().map(ToString::to_string).collect();
    let all = chain.join(": ");
    let last = chain.last().map_or("", String::as_str);
    if all.contains("in program order") {
        return format!("source: {}", bare(last));
    }
    let who = if all.contains("agent by agent") { "agents" } else { "PTX" };
    if last.contains(", expected ") || last.contains(", not ") {
        return format!("{who}: wrong result");
    }
    if all.contains("other elements are written") {
        return format!("{who}: other elements are written");
    }
    // What is wrong, without where.
    let said = bare(last);
    if said.starts_with("Deadlock") {
        return format!("{who}: deadlock");
    }
    let said = said.split(" (CTA").next().unwrap_or("").split(" in `").next().unwrap_or("");
    let said = said.split_once("line #: ").map_or(said, |s| s.1);
    let said = said.split_once("]: ").or(said.split_once("x#: ")).map_or(said, |s| s.1);
    format!("{who}: {}", said.split(" [").next().unwrap_or(""))
}
