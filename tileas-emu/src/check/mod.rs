//! Random texts and kernels for the emulator, and the properties every answer must have.
//!
//! [`check_text`] and [`check_damaged`]: any text parses, or every error has a place in it. [`check_run`]: a kernel
//! that [`generate`] draws runs to its end or to a fault with a place, within the steps and the memory allowed, and
//! does so again the same way; a right kernel has no fault under any timing and leaves the same memory under all.
//! Fuzz targets call nothing else; [`Verdict`]s are counted, so that a run that tests nothing is seen.

pub mod forms;
pub mod generate;
#[cfg(test)]
mod tests;

use crate::{Detectors, Diagnostic, Fault, Machine, Memory, Mode, NoTrace, Program, RunOptions};
use arbitrary::{Result, Unstructured};

/// What became of a case.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The text was refused.
    Refused,
    /// It parsed (and ran, where it was run).
    Accepted,
    /// It ran to a fault.
    Faulted,
}

/// Kernels that texts are damaged from.
pub const CORPUS: [&str; 4] = [
    include_str!("../../tests/data/gemm_sm90a.ptx"),
    include_str!("../../tests/data/gemm_sm100a.ptx"),
    include_str!("../../tests/data/gemm_f16.ptx"),
    include_str!("../../tests/data/clusters_sm90a.ptx"),
];

/// Parses any bytes.
///
/// # Panics
/// If a text is refused without a place in it.
pub fn check_text(bytes: &[u8]) -> Verdict {
    parsed(&String::from_utf8_lossy(bytes)).map_or(Verdict::Refused, |_| Verdict::Accepted)
}

fn parsed(text: &str) -> Option<Program> {
    match Program::parse(text) {
        Ok(p) => Some(p),
        Err(errors) => {
            located(text, &errors);
            None
        }
    }
}

fn located(text: &str, errors: &[Diagnostic]) {
    assert!(!errors.is_empty(), "refused without an error\n{text}");
    let lines = text.split('\n').count() as u32;
    for e in errors {
        assert!(e.line >= 1 && e.line <= lines && e.column >= 1, "{e} is not in the text of {lines} lines");
        assert!(e.code.starts_with('P') && e.code.len() == 4, "{e}");
    }
}

/// Parses a kernel of the corpus, or a generated one, after some edits.
///
/// # Errors
/// When the data ends.
///
/// # Panics
/// As [`check_text`].
pub fn check_damaged(u: &mut Unstructured<'_>) -> Result<Verdict> {
    let text = if u.ratio(1, 3)? {
        generate::kernel(u)?.text
    } else {
        let whole = CORPUS[u.choose_index(CORPUS.len())?];
        generate::cut(u, whole)?
    };
    let edits = u.int_in_range(1..=8)?;
    let text = generate::damaged(u, &text, edits)?;
    Ok(check_text(text.as_bytes()))
}

/// Options of a bounded run. Damage makes endless loops; right kernels end, those of four nested loops after many steps.
fn bounded(mode: Mode, detectors: Detectors, resident: u32, damaged: bool) -> RunOptions {
    RunOptions {
        mode,
        detectors,
        resident,
        max_steps: if damaged { 12_000 } else { 4_000_000 },
        max_memory: 1 << 26,
        max_in_flight: 64,
        ..RunOptions::default()
    }
}

type Outcome = std::result::Result<Vec<Vec<u8>>, Fault>;

fn run(k: &generate::Kernel, p: &Program, o: &RunOptions) -> Outcome {
    let mut memory: Memory = k.memory.clone();
    Machine::run(p, &k.launch, &mut memory, o, &mut NoTrace)?;
    Ok(k.buffers.iter().map(|&b| memory.bytes(b).to_vec()).collect())
}

/// Runs a generated kernel, damaged in half of the cases.
///
/// # Errors
/// When the data ends.
///
/// # Panics
/// If a right kernel is refused or has a fault, if its results depend on the timing, if a run does not repeat, or if
/// a fault has no place.
pub fn check_run(u: &mut Unstructured<'_>) -> Result<Verdict> {
    let mut k = generate::kernel(u)?;
    let edits = if u.ratio(1, 2)? { u.int_in_range(1..=6)? } else { 0 };
    let seed: u8 = u.arbitrary()?;
    if edits != 0 {
        k.text = generate::damaged(u, &k.text, edits)?;
    }
    let seed = u64::from(seed);
    let resident = k.launch.grid[0];
    let all = [
        bounded(Mode::Random(seed), Detectors::ALL, resident, edits != 0),
        bounded(Mode::Latest(seed), Detectors::ALL, resident, edits != 0),
        bounded(Mode::Fast, Detectors::NONE, 1, edits != 0),
    ];
    let Some(p) = parsed(&k.text) else {
        assert!(edits != 0, "refused: {}\n{}", Program::parse(&k.text).expect_err("refused")[0], k.text);
        return Ok(Verdict::Refused);
    };
    let outcomes = all.map(|o| run(&k, &p, &o));
    let lines = k.text.split('\n').count() as u32;
    for o in &outcomes {
        if let Err(f) = o {
            assert!(edits != 0, "a right kernel has a fault: {f}\n{}", k.text);
            assert!(!f.code.is_empty() && f.line <= lines && !f.to_string().is_empty(), "{f:?}");
        }
    }
    if edits == 0 {
        assert!(outcomes[0] == outcomes[2] && outcomes[1] == outcomes[2], "results differ\n{}", k.text);
    } else if seed % 4 == 0 {
        assert_eq!(run(&k, &p, &all[0]), outcomes[0], "a run does not repeat\n{}", k.text);
    }
    Ok(if outcomes[0].is_ok() { Verdict::Accepted } else { Verdict::Faulted })
}
