//! All targets by name: which crate has a processor.
//!
//! Whoever needs one family alone, and wants to link no more than that, takes the family's crate.

#![deny(missing_docs)]
#![forbid(unsafe_code)]

use std::str::FromStr;
use tileas_codegen::ir::Module;
use tileas_codegen::isa::{SharedIsa, Triple};
use tileas_codegen::{Code, CodegenError, Loc, Settings};

/// The triple of all targets.
pub const TRIPLE: &str = "nvptx64-nvidia-cuda";

/// The processor taken when none is named.
pub const DEFAULT_CPU: &str = "sm_100a";

/// The target for a processor name such as `sm_100a`.
///
/// # Errors
/// E0890 for a processor of no family; the message lists what there is.
pub fn isa_for_cpu(cpu: &str) -> Result<SharedIsa, CodegenError> {
    let error = |message: String| CodegenError::new(Code::E0890, Loc::NONE, message);
    let triple = Triple::from_str(TRIPLE).map_err(|e| error(format!("target triple {TRIPLE}: {e}")))?;
    if tileas_isa_hopper::cpus().any(|name| name == cpu) {
        return tileas_isa_hopper::isa(&triple, cpu);
    }
    if tileas_isa_blackwell::cpus().any(|name| name == cpu) {
        return tileas_isa_blackwell::isa(&triple, cpu);
    }
    let names: Vec<&str> = cpus().collect();
    let e = error(format!("processor {cpu:?} is not supported; there are {}", names.join(", ")));
    Err(match names.iter().find(|name| name.strip_suffix(['a', 'f']) == Some(cpu)) {
        Some(name) => e.note(Loc::NONE, format!("the architecture-specific name is needed, such as {name}")),
        None => e,
    })
}

/// The target that a module is for: the option `target` names it, else the module does, else it is [`DEFAULT_CPU`].
///
/// # Errors
/// As [`isa_for_cpu`].
pub fn isa_for(module: &Module, settings: &Settings) -> Result<SharedIsa, CodegenError> {
    let named = settings.target().as_deref().or(module.target.as_deref());
    isa_for_cpu(named.unwrap_or(DEFAULT_CPU))
}

/// Names of all processors.
pub fn cpus() -> impl Iterator<Item = &'static str> {
    tileas_isa_hopper::cpus().chain(tileas_isa_blackwell::cpus())
}

/// The tables of a target as text.
pub use tileas_codegen::isa::describe;
