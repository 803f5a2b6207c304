//! Runs one command of one file.

use crate::execute::{Forms, execute};
use crate::header::{Header, TestKind};
use crate::output::Outcome;
use crate::{Case, errors, external, nvvm, output};
use anyhow::{Context as _, Result, bail, ensure};
use std::cell::RefCell;
use tileas_codegen::ir::{Module, print_module};
use tileas_codegen::{CodegenError, Context, Settings, Stage};

thread_local! {
    /// One context serves all files of a thread, so that what a pass leaves behind would show.
    static CONTEXT: RefCell<Context> = RefCell::new(Context::new());
}

/// Runs a case. With `bless`, precise expectations are rewritten.
///
/// # Errors
/// Everything that differs from what the file expects.
pub fn run_file(case: &Case, bless: bool) -> Result<()> {
    let text = std::fs::read_to_string(&case.path).with_context(|| case.path.display().to_string())?;
    let header = Header::parse(&text)?;
    let outcome = CONTEXT.with_borrow_mut(|context| outcome(context, case, &header, &text))?;
    errors::compare(&text, &header.expected, &outcome.reported)?;
    // Directives and precise text belong to the first command.
    match outcome.text {
        Some(out) if case.index == 0 => output::compare(&case.path, &text, &header, &out, bless),
        None if case.index == 0 && (header.precise || !header.directives.is_empty()) => {
            bail!("the file checks an output, but `test {}` has none here", case.kind.name())
        }
        _ => Ok(()),
    }
}

/// The options of a file; errors in them may be what it expects.
fn settings(header: &Header) -> Result<Settings, CodegenError> {
    let mut builder = Settings::builder();
    for pair in &header.set {
        builder.set_pair(pair)?;
    }
    if let Some(target) = &header.target {
        builder.set("target", target)?;
    }
    Ok(builder.finish())
}

fn outcome(context: &mut Context, case: &Case, header: &Header, text: &str) -> Result<Outcome> {
    let failed = |reported| Ok(Outcome { text: None, reported });
    let settings = match settings(header) {
        Ok(settings) => settings,
        Err(e) => return failed(vec![e]),
    };
    if let TestKind::Pass(pass) = case.kind {
        return nvvm::outcome(pass, text, &settings);
    }
    let module = match context.parse(text, &settings) {
        Ok(module) => module,
        Err(errors) => return failed(errors.into_iter().collect()),
    };
    let stage = match case.kind {
        TestKind::Verify => {
            let found = context.check(&module, &settings);
            return failed(found.unwrap_or_else(|errors| errors.into_iter().collect()));
        }
        TestKind::Print => return Ok(Outcome { text: Some(round_trip(&module)?), reported: Vec::new() }),
        TestKind::Constraints => Stage::Constraints,
        TestKind::Prepare => Stage::Prepared,
        TestKind::Place => Stage::Placed,
        TestKind::Schedule => Stage::Schedule,
        TestKind::Materialize => Stage::Materialized,
        TestKind::Nvvm => Stage::Nvvm,
        TestKind::Compile => Stage::Ptx,
        TestKind::Ptxas | TestKind::Run | TestKind::Pass(_) => Stage::Metadata,
    };
    let isa = match tileas_isa::isa_for(&module, &settings) {
        Ok(isa) => isa,
        Err(e) => return failed(vec![e]),
    };
    let run = match context.run_to(stage, &module, &*isa, &settings) {
        Ok(run) => run,
        Err(errors) => return failed(errors.into_iter().collect()),
    };
    let out = run.text(stage);
    match case.kind {
        TestKind::Compile => {
            // As release builds do it: what is only verified to check the compiler changes nothing.
            let settings = settings.with("verify-passes", "false")?;
            let cold =
                Context::new().compile(&module, &*isa, &settings).map_err(|e| anyhow::anyhow!("{e:?}"))?;
            ensure!(cold.ptx() == out, "a fresh context compiles to other bytes");
            ensure!(cold.warnings == run.warnings, "a fresh context warns of other things");
        }
        TestKind::Ptxas => {
            external::ptxas(&case.name, isa.cpu().name, &run.text(Stage::Ptx))?;
        }
        TestKind::Run => {
            let (ptx, metadata) = (run.text(Stage::Ptx), out.clone());
            for (source, kernel) in module.functions.iter().zip(&run.kernels) {
                let materialized = kernel.materialized.as_ref().context("the kernel has agents")?;
                let forms = Forms { source, materialized, ptx: &ptx, metadata: &metadata };
                execute(&forms, &header.cases)?;
            }
        }
        _ => {}
    }
    let out = if stage == Stage::Metadata { run.text(Stage::Ptx) } else { out };
    Ok(Outcome { text: Some(out), reported: run.warnings })
}

/// Prints, and demands that the print of the parsed print is the same.
fn round_trip(module: &Module) -> Result<String> {
    let first = print_module(module);
    let again = tileas_codegen::ir::parse_module(&first)
        .map_err(|e| anyhow::anyhow!("the print does not parse: {e}\n{first}"))?;
    let second = print_module(&again);
    ensure!(first == second, "the print changes when parsed and printed again\n{first}\n{second}");
    Ok(first)
}
