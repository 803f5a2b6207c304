//! Random inputs for the whole compiler and the properties every answer must have.
//!
//! [`kernel`] draws well-formed kernels with arguments and options;
//! [`edited`] damages a text, [`mutated`] one of a corpus, [`damaged`] a file of one. The `check_…` functions assert: any text parses or gives a located error, print ∘ parse
//! is the identity on printed text, compiling ends with an answer that does not depend on the context's past, and
//! errors come from the stages that may refuse, not from a verifier of an earlier stage's work. Fuzz targets call
//! nothing else; [`Verdict`]s are counted, so that a run that tests nothing is seen.

mod kernels;
mod run;

pub use kernels::{Drawn, kernel};
pub use run::{described, run_drawn};

use arbitrary::{Result, Unstructured};
use tileas_codegen::ir::{Module, parse_module, print_module};
use tileas_codegen::isa::TargetIsa;
use tileas_codegen::{Context, Settings};

/// What became of a case.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Refused with errors.
    Refused,
    /// Accepted.
    Accepted,
}

/// Parses any bytes.
///
/// # Panics
/// If an error has no place in the text, or an accepted text does not print to a fixed point.
pub fn check_parse(bytes: &[u8]) -> Verdict {
    let text = String::from_utf8_lossy(bytes);
    match parse_module(&text) {
        Err(errors) => {
            for e in &errors {
                assert!(e.location.range().is_none_or(|r| r.end <= text.len()), "{e} at {:?}", e.location);
                assert!(e.code.as_str().starts_with("E00"), "{e}");
            }
            Verdict::Refused
        }
        Ok(module) => {
            check_print(&module);
            Verdict::Accepted
        }
    }
}

/// A generated kernel, damaged now and then, must print to a fixed point.
///
/// # Errors
/// When the data ends.
pub fn check_round_trip(u: &mut Unstructured<'_>) -> Result<Verdict> {
    let mut text = kernel(u)?.text;
    if u.ratio(1, 2)? {
        text = edited(u, &text)?;
    }
    Ok(check_parse(text.as_bytes()))
}

fn check_print(module: &Module) {
    let once = print_module(module);
    let again = parse_module(&once).unwrap_or_else(|e| panic!("{e} in the print\n{once}"));
    assert_eq!(print_module(&again), once, "not a fixed point");
}

/// Takes a generated kernel through all stages, on a context that has compiled others before.
///
/// # Errors
/// When the data ends.
///
/// # Panics
/// If the answer depends on the context's past, or a stage hands on what a verifier refuses.
pub fn check_agents(u: &mut Unstructured<'_>, isa: &dyn TargetIsa, warm: &mut Context) -> Result<Verdict> {
    let text = kernel(u)?.text;
    let mut settings = Settings::builder();
    let slices = *u.choose(&["32", "64", "128"])?;
    let scheduler = *u.choose(&["auto", "serial", "cost"])?;
    settings.set("slice-regs", slices).unwrap_or_else(|e| panic!("{e}"));
    settings.set("scheduler", scheduler).unwrap_or_else(|e| panic!("{e}"));
    Ok(check_compile(&text, isa, &settings.finish(), warm))
}

/// Compiles a text.
///
/// # Panics
/// As [`check_agents`].
pub fn check_compile(text: &str, isa: &dyn TargetIsa, settings: &Settings, warm: &mut Context) -> Verdict {
    // In builds of every kind: what is looked for are faults of the passes.
    let settings = &settings.with("verify-passes", "true").expect("an option");
    let Ok(module) = warm.parse(text, settings) else { return Verdict::Refused };
    check_print(&module);
    check_module(&module, text, isa, settings, warm)
}

/// Lowers and compiles a file of Tile IR, where it is one.
///
/// # Panics
/// As [`check_agents`], and if what it was lowered to is refused for its form.
pub fn check_tile_ir(bytes: &[u8], isa: &dyn TargetIsa, settings: &Settings, warm: &mut Context) -> Verdict {
    let settings = &settings.with("verify-passes", "true").expect("an option");
    let limits = tileas_tileir::Limits::default();
    let Ok(module) = tileas_tileir::Module::read(bytes, &limits) else { return Verdict::Refused };
    let lowered = module.verify().and_then(|()| tileas_tileir::lower(&module, isa.cpu().name));
    let Ok(lowered) = lowered else { return Verdict::Refused };
    check_module(&lowered.module, &print_module(&lowered.module), isa, settings, warm)
}

/// Compiles a module twice; `text` shows it.
fn check_module(
    module: &Module,
    text: &str,
    isa: &dyn TargetIsa,
    settings: &Settings,
    warm: &mut Context,
) -> Verdict {
    let first = warm.compile(module, isa, settings);
    let second = Context::new().compile(module, isa, settings);
    match (first, second) {
        (Ok(a), Ok(b)) => {
            assert_eq!(a.ptx(), b.ptx(), "the context's past shows in the PTX of\n{text}");
            assert!(a.kernels.iter().zip(&b.kernels).all(|(x, y)| x.metadata == y.metadata));
            Verdict::Accepted
        }
        (Err(a), Err(b)) => {
            assert_eq!(a, b, "the context's past shows in the errors of\n{text}");
            for e in &a {
                let code = e.code.as_str();
                // E0911 is about the kernel's name.
                let thread_level = code.starts_with("E09") && code != "E0911" && e.location.range().is_none();
                let ours = e.message.starts_with("after `") || thread_level;
                assert!(!ours, "a stage handed on what a verifier refuses: {e}\n{text}");
            }
            Verdict::Refused
        }
        _ => panic!("only one of two compilations succeeded:\n{text}"),
    }
}

/// A file of the corpus, with a few bytes that are other ones: those around them, or powers of two.
///
/// # Errors
/// When the data ends.
pub fn damaged(u: &mut Unstructured<'_>, corpus: &[Vec<u8>]) -> Result<Vec<u8>> {
    let mut bytes = u.choose(corpus)?.clone();
    for _ in 0..u.int_in_range(1..=3)? {
        let at = u.choose_index(bytes.len())?;
        bytes[at] = match u.int_in_range(0..=4)? {
            0 => bytes[at] ^ 1 << u.int_in_range(0..=7)?,
            1 => bytes[at].wrapping_add(1),
            2 => bytes[at].wrapping_sub(1),
            3 => bytes[u.choose_index(bytes.len())?],
            _ => *u.choose(&[0, 1, 2, 4, 8, 16, 32, 64, 127, 128, 255])?,
        };
    }
    Ok(bytes)
}

/// A text of the corpus, with a few lines deleted, doubled or exchanged, numbers changed or words replaced.
///
/// # Errors
/// When the data ends.
pub fn mutated(u: &mut Unstructured<'_>, corpus: &[String]) -> Result<String> {
    const NUMBERS: &[&str] = &[
        "0",
        "1",
        "2",
        "3",
        "7",
        "8",
        "16",
        "31",
        "32",
        "64",
        "96",
        "128",
        "256",
        "512",
        "1024",
        "4096",
        "65536",
        "2147483647",
        "2147483648",
        "4294967295",
        "4294967296",
        "9223372036854775807",
        "-1",
        "-2147483648",
        "-9223372036854775808",
        "0.5",
        "-0.0",
        "1e300",
        "inf",
        "nan",
        "?",
    ];
    let text = u.choose(corpus)?;
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    for _ in 0..u.int_in_range(1..=4)? {
        if lines.is_empty() {
            break;
        }
        let n = u.choose_index(lines.len())?;
        match u.int_in_range(0..=5)? {
            0 => _ = lines.remove(n),
            1 => {
                let m = u.choose_index(lines.len())?;
                let line = lines[n].clone();
                lines.insert(m, line);
            }
            2 => {
                let m = u.choose_index(lines.len())?;
                lines.swap(n, m);
            }
            3 | 4 => {
                let starts: Vec<usize> = digits(&lines[n]).collect();
                if !starts.is_empty() {
                    let from = *u.choose(&starts)?;
                    let to = from + lines[n][from..].bytes().take_while(u8::is_ascii_digit).count();
                    lines[n].replace_range(from..to, u.choose(NUMBERS)?);
                }
            }
            _ => {
                let line = edited(u, &lines[n])?;
                lines[n] = line;
            }
        }
    }
    Ok(lines.join("\n"))
}

/// Where runs of digits begin.
fn digits(line: &str) -> impl Iterator<Item = usize> + '_ {
    let digit = |i: usize| line.as_bytes()[i].is_ascii_digit();
    (0..line.len()).filter(move |&i| digit(i) && (i == 0 || !digit(i - 1)))
}

/// Replaces a few short ranges by pieces of the text itself.
///
/// # Errors
/// When the data ends.
pub fn edited(u: &mut Unstructured<'_>, text: &str) -> Result<String> {
    let pieces: Vec<&str> = text.split_inclusive([' ', ',', '\n', '[', ']', '(', ')', '<', '>']).collect();
    let mut text = text.to_owned();
    for _ in 0..u.int_in_range(1..=3)? {
        let from = u.int_in_range(0..=text.len())?;
        let to = (from + u.int_in_range(0..=12)?).min(text.len());
        if text.is_char_boundary(from) && text.is_char_boundary(to) {
            text.replace_range(from..to, u.choose(&pieces)?);
        }
    }
    Ok(text)
}
