//! `tileas compile`: PTX and launch metadata, or the text after any stage.

use crate::Failure;
use crate::diagnostics::Source;
use crate::input::{Common, target, write_output};
use tileas_codegen::passes::Pipeline;
use tileas_codegen::{Context, KernelInfo, Stage};

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// File to compile; `-` is standard input
    file: String,
    /// Where the result goes; `-` is standard output. PTX written to a file has its launch metadata beside it, in
    /// OUT.json
    #[arg(short, long, value_name = "OUT", default_value = "-")]
    output: String,
    /// What to write [default: ptx, or what the last of `--passes` leaves behind]
    #[arg(long, value_parser = Stage::ALL.map(Stage::name))]
    emit: Option<String>,
    /// Passes to run instead of all, separated by commas, with options in braces: `agents,place{slice-regs=32}`;
    /// `tileas options --passes` lists them
    #[arg(long, value_name = "LIST")]
    passes: Option<String>,
    /// Write metrics of each kernel to standard error: what stands in its code, each instruction once
    #[arg(long, value_name = "WHICH", num_args = 0..=1, require_equals = true, default_missing_value = "published", value_parser = ["published", "extended"])]
    kernel_info: Option<String>,
    #[command(flatten)]
    common: Common,
}

/// Compiles.
pub fn run(args: &Args) -> Result<(), Failure> {
    let pipeline = args.passes.as_deref().map(Pipeline::parse).transpose().map_err(|e| {
        Source::none().report(&[e]);
        Failure::Usage
    })?;
    let input = args.common.read(&args.file)?;
    let isa = target(&input.module, &input.settings)?;
    let shown = pipeline.as_ref().map_or(Stage::Ptx, Pipeline::stage);
    let stage = args.emit.as_deref().and_then(Stage::from_name).unwrap_or(shown);
    let beside = stage == Stage::Ptx && args.output != "-";
    let last = if beside { Stage::Metadata } else { stage };
    let mut context = Context::new();
    let run = match &pipeline {
        Some(pipeline) => pipeline.run(&mut context, &input.module, &*isa, &input.settings),
        None => context.run_to(last, &input.module, &*isa, &input.settings),
    };
    match run {
        Ok(run) => {
            input.source.report(&run.warnings);
            if let Some(list) = &args.kernel_info {
                for kernel in &run.kernels {
                    let smem = kernel.metadata.as_ref().map_or(0, |m| m.dynamic_smem);
                    let modules = kernel.nvvm.iter().flat_map(|m| m.functions.iter().map(move |f| (m, f)));
                    for (module, func) in modules {
                        eprint!("{}", KernelInfo::of(module, func, smem).text(list == "extended"));
                    }
                }
            }
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
