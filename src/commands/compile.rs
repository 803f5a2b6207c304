//! `tileas compile`: PTX and launch metadata, or the text after any stage.

use crate::Failure;
use crate::input::{Common, target, write_output};
use tileas_codegen::{Context, Stage};

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// File to compile; `-` is standard input
    file: String,
    /// Where the result goes; `-` is standard output. PTX written to a file has its launch metadata beside it, in
    /// OUT.json
    #[arg(short, long, value_name = "OUT", default_value = "-")]
    output: String,
    /// What to write
    #[arg(long, default_value = "ptx", value_parser = Stage::ALL.map(Stage::name))]
    emit: String,
    #[command(flatten)]
    common: Common,
}

/// Compiles.
pub fn run(args: &Args) -> Result<(), Failure> {
    let input = args.common.read(&args.file)?;
    let isa = target(&input.settings)?;
    let stage = Stage::from_name(&args.emit).unwrap_or(Stage::Ptx);
    let beside = stage == Stage::Ptx && args.output != "-";
    let last = if beside { Stage::Metadata } else { stage };
    match Context::new().run_to(last, &input.module, &*isa, &input.settings) {
        Ok(run) => {
            input.source.report(&run.warnings);
            write_output(&args.output, &run.text(stage))?;
            if beside {
                write_output(&format!("{}.json", args.output), &run.text(Stage::Metadata))?;
            }
            Ok(())
        }
        Err(errors) => {
            input.source.report(&errors);
            Err(Failure::Diagnostics)
        }
    }
}
