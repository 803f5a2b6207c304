//! `tileas check`: syntax, types, constraints; no target needed.

use crate::Failure;
use crate::input::{Common, op_count, write_output};
use tileas_codegen::Context;

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// Files to check; `-` is standard input
    #[arg(required = true)]
    files: Vec<String>,
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
        match context.check(&input.module, &input.settings) {
            Ok(warnings) => {
                input.source.report(&warnings);
                let kernels = input.module.functions.len();
                let ops = op_count(&input.module);
                let line = format!("{file}: {kernels} kernels, {ops} ops, {} warnings\n", warnings.len());
                write_output("-", &line)?;
            }
            Err(errors) => {
                input.source.report(&errors);
                outcome = Err(Failure::Diagnostics);
            }
        }
    }
    outcome
}
