//! Kernels of CUDA Tile IR bytecode.

use crate::raise_as;
use pyo3::prelude::*;
use tileas_codegen::ir;
use tileas_jit::Entry;
use tileas_tileir::{Code, Error, Errors, Frame, Limits, Module};

/// What the author of a kernel would like, by name.
pub type Hints = Vec<(&'static str, u32)>;

/// Reads, checks, lowers.
pub fn lower(bytes: &[u8], target: &str) -> Result<(ir::Module, Vec<Hints>, Vec<String>), Errors> {
    let module = Module::read(bytes, &Limits::default())?;
    module.verify()?;
    let lowered = tileas_tileir::lower(&module, target)?;
    let hints = lowered.kernels.iter().map(|kernel| {
        let hints = &kernel.hints;
        let all = [
            ("num_ctas", hints.num_cta_in_cga),
            ("occupancy", hints.occupancy),
            ("num_worker_warps", hints.num_worker_warps_per_cta),
        ];
        all.into_iter().filter_map(|(name, n)| Some((name, n?))).collect()
    });
    // Of the hints for a kernel the package makes what it can itself, and says so.
    let warnings = lowered.warnings.iter().filter(|w| w.code != Code::W1642).map(|w| {
        let place = w.source.first().map(|frame| format!(" {}:{}:", frame.path(), frame.line));
        format!("{}:{} {}", w.code, place.unwrap_or_default(), w.message)
    });
    Ok((lowered.module, hints.collect(), warnings.collect()))
}

/// The errors as a `tileas.Error`: where there is a place in the program, that of the innermost call.
#[cold]
pub fn raise(py: Python<'_>, errors: &Errors) -> PyErr {
    let number = |n: u64| u32::try_from(n).unwrap_or(0);
    let entry = |e: &Error| {
        let (at, calls) = e.source.split_first().unzip();
        let (file, line, column) =
            at.map_or_else(Default::default, |f| (f.path(), number(f.line), number(f.column)));
        let call = |f: &Frame| format!("called from {}:{} in {}", f.path(), f.line, f.function);
        let notes = calls.unwrap_or_default().iter().map(call).collect();
        Entry { code: e.code.as_str(), message: e.message.clone(), notes, file, line, column }
    };
    let entries: Vec<Entry> = errors.iter().map(entry).collect();
    raise_as(py, entries.first().map_or("E1601", |e| e.code), &errors.to_string(), &entries)
}
