//! `tileas check`: whether kernels compile for a target, without writing anything.
//!
//! All of the compiler runs, since what a target can do is known where it is asked for it: placement, buffers, lowering.

use crate::Failure;
use crate::input::{Common, op_count, say, target};
use tileas_codegen::{Context, Stage};

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// Files to check; `-` is standard input
    #[arg(required = true)]
    files: Vec<String>,
    /// Check the text, the types and the scheduling constraints only, for no target
    #[arg(long)]
    source_only: bool,
    #[command(flatten)]
    common: Common,
}

/// Checks every file, also after one with errors.
pub fn run(args: &Args) -> Result<(), Failure> {
    let mut context = Context::new();
    let mut outcome = Ok(());
    for file in &args.files {
        let input = match args.common.read(file) {
            Ok(input) => input,
            Err(failure) => {
                outcome = Err(failure);
                continue;
            }
        };
        let (found, what) = if args.source_only {
            (context.check(&input.module, &input.settings), "for no target".to_owned())
        } else {
            let isa = target(&input.module, &input.settings)?;
            let run = context.run_to(Stage::Metadata, &input.module, &*isa, &input.settings);
            (run.map(|run| run.warnings), format!("compiled for {}", isa.cpu().name))
        };
        match found {
            Ok(warnings) => {
                input.source.report(&warnings);
                let kernels = input.module.functions.len();
                let ops = op_count(&input.module);
                let count = |n: usize, what| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
                let [kernels, ops] = [count(kernels, "kernel"), count(ops, "op")];
                say(&format!("{file}: {kernels}, {ops}, {}, {what}", count(warnings.len(), "warning")))?;
            }
            Err(errors) => {
                input.source.report(&errors);
                outcome = Err(Failure::Diagnostics);
            }
        }
    }
    outcome
}
