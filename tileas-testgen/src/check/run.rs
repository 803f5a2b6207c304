//! Executes kernels that were drawn at random.
//!
//! In: a [`Drawn`] kernel with its arguments and options. Out: whether it was accepted; everything else is an error: a
//! refusal that is none of memory, registers or constraints, a fault, a difference between source, agents and PTX.

use super::{Drawn, Verdict};
use anyhow::{Context as _, Result, bail};
use std::fmt::Write;
use tileas_codegen::isa::TargetIsa;
use tileas_codegen::{Code, CodegenError, Context, Settings, Stage};
use tileas_filetests::execute::{Forms, RunCase, execute};

/// Why a legal kernel may be refused: memory does not suffice, or registers for a chain that cannot be cut.
const RESOURCES: [Code; 3] = [Code::E0602, Code::E0603, Code::E0507];

/// The case that runs a drawn kernel.
fn case_of(drawn: &Drawn) -> String {
    let view = |(name, extents, elem): &(&str, Vec<u32>, &str)| {
        format!("\"{name}\": {{\"shape\": {extents:?}, \"dtype\": \"{elem}\"}}")
    };
    let views: Vec<String> = drawn.views.iter().map(view).collect();
    let scalars: Vec<String> = drawn.scalars.iter().map(|(name, x)| format!("\"{name}\": {x}")).collect();
    format!(
        "{{\"views\": {{{}}}, \"scalars\": {{{}}}, \"seeds\": [1], \"grid\": {:?}, \"tol\": \"{}\"}}",
        views.join(", "),
        scalars.join(", "),
        drawn.grid,
        if drawn.exact { "2^-9" } else { "2^-6" }
    )
}

/// The kernel as the text of a filetest.
pub fn described(drawn: &Drawn) -> String {
    let mut text = String::from("; test run\n");
    for (name, value) in &drawn.options {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "; set {name}={value}");
    }
    let _ = write!(text, "; case: {}\n\n{}", case_of(drawn), drawn.text);
    text
}

/// Compiles and executes a drawn kernel.
///
/// # Errors
/// Everything that a legal kernel must not meet.
pub fn run_drawn(drawn: &Drawn, isa: &dyn TargetIsa, warm: &mut Context) -> Result<Verdict> {
    let mut settings = Settings::builder();
    for (name, value) in &drawn.options {
        settings.set(name, value).map_err(|e| anyhow::anyhow!("{e}"))?;
    }
    settings.set("verify-passes", "true").map_err(|e| anyhow::anyhow!("{e}"))?;
    let settings = settings.finish();
    let module = warm.parse(&drawn.text, &settings).map_err(|e| anyhow::anyhow!("{e}"))?;
    let run = match warm.run_to(Stage::Metadata, &module, isa, &settings) {
        Ok(run) => run,
        Err(errors) => {
            // What touches tensor memory is a whole warpgroup.
            let warps = drawn.options.iter().any(|o| o.0 == "simt-warps");
            let allowed = |e: &CodegenError| RESOURCES.contains(&e.code) || warps && e.code == Code::E0508;
            if errors.iter().all(allowed) {
                return Ok(Verdict::Refused);
            }
            let lines: Vec<String> = errors.iter().map(ToString::to_string).collect();
            bail!("refused: {}", lines.join("\n"));
        }
    };
    let cases = [RunCase::parse(&case_of(drawn))?];
    let (ptx, metadata) = (run.text(Stage::Ptx), run.text(Stage::Metadata));
    let materialized = run.kernels[0].materialized.as_ref().context("the kernel has agents")?;
    let forms = Forms { source: &module.functions[0], materialized, ptx: &ptx, metadata: &metadata };
    execute(&forms, &cases)?;
    Ok(Verdict::Accepted)
}
