//! `tileas as`: what programs that call NVIDIA's Tile IR assembler call instead.
//!
//! In: bytecode, and the options that callers of that assembler use. Out: a cubin for the processor, with the launch metadata beside it
//! in OUT.json; or what came of the kernels after a stage. The machine code is made by whatever assembles PTX here: ptxas, or
//! the library nvJitLink. What an option asks for that there is not is told on standard error.

use crate::Failure;
use crate::diagnostics::{Source, complain};
use crate::input::{lowered, say, target, write_output};
use tileas_codegen::{Context, Settings, Stage};
use tileas_draw::explain::explain_module;
use tileas_jit::assembler::{Ladder, NvJitLink, Options, Ptxas};
use tileas_tileir::{Limits, Module, Version};

/// Arguments.
#[derive(clap::Args)]
#[command(after_help = help(), disable_version_flag = true)]
pub struct Args {
    /// Bytecode; `-` is standard input
    #[arg(required_unless_present_any = ["version", "list_versions"])]
    input: Option<String>,
    /// Processor to assemble for
    #[arg(long, alias = "arch", value_name = "CPU", default_value = "sm_100")]
    gpu_name: String,
    /// Where the cubin goes; `-` is standard output
    #[arg(short, long = "output-file", value_name = "OUT", default_value = "a.cubin")]
    output: String,
    /// How much the assembler of PTX does
    #[arg(short = 'O', long, value_name = "LEVEL", default_value_t = 3, value_parser = clap::value_parser!(u8).range(0..=3))]
    opt_level: u8,
    /// Lines of the source in the machine code, for profilers
    #[arg(long, alias = "generate-line-info")]
    lineinfo: bool,
    /// As `--lineinfo -O0`
    #[arg(short = 'g', long)]
    device_debug: bool,
    /// Detect errors in memory; not supported
    #[arg(long, value_name = "WHAT")]
    sanitize: Option<String>,
    /// Remarks of passes, with all options about them; there are none, `--emit explain` has what there is to say
    #[arg(long, value_name = "WHICH", aliases = REMARKS)]
    remarks: Vec<String>,
    /// Features of NVIDIA's assembler; there are none here
    #[arg(long, value_name = "NAMES")]
    preview: Vec<String>,
    /// Libraries of tile functions; not supported
    #[arg(short = 'l', value_name = "FILE")]
    libraries: Vec<String>,
    /// Settings for NVIDIA's compiler; not supported
    #[arg(long, value_name = "FILE")]
    apply_controls: Option<String>,
    /// Processor and system of the host, for which nothing is generated
    #[arg(long = "host-arch", alias = "host-os", value_name = "NAME")]
    _host: Vec<String>,
    /// What to write instead of a cubin
    #[arg(long, value_name = "WHAT", value_parser = ["ptx", "ir", "schedule", "explain"])]
    emit: Option<String>,
    /// Set a compiler option; `tileas options` lists them
    #[arg(long = "set", value_name = "NAME=VALUE")]
    set: Vec<String>,
    /// Print the version
    #[arg(long, short = 'V')]
    version: bool,
    /// Print the versions of bytecode that are read
    #[arg(long)]
    list_versions: bool,
}

/// Options that say which remarks there shall be, and where.
const REMARKS: [&str; 6] = [
    "remark-format",
    "remarks-output-file",
    "remarks-passed",
    "remarks-missed",
    "remarks-failed",
    "remarks-analysis",
];

/// The processors, as callers look for them.
fn help() -> String {
    let mut names: Vec<String> = tileas_isa::cpus().map(|cpu| format!("  ={}", plain(cpu))).collect();
    names.dedup();
    format!("Processors (--gpu-name):\n{}", names.join("\n"))
}

/// A processor's name without the letter of its own instructions.
fn plain(cpu: &str) -> &str {
    cpu.trim_end_matches(['a', 'f'])
}

/// Assembles.
pub fn run(args: &Args) -> Result<(), Failure> {
    let newest = Version::NEWEST;
    if args.version {
        return say(&format!(
            "tileas {}: Tile IR assembler, bytecode up to {newest}, V{newest}.0",
            tileas_codegen::VERSION
        ));
    }
    if args.list_versions {
        return Version::all().try_for_each(|v| say(&v.to_string()));
    }
    // Excluded by the argument rules above.
    let Some(file) = &args.input else { return Err(Failure::Usage) };
    for (set, name) in [
        (args.sanitize.is_some(), "--sanitize"),
        (!args.remarks.is_empty(), "--remarks"),
        (!args.preview.is_empty(), "--preview"),
        (!args.libraries.is_empty(), "-l"),
        (args.apply_controls.is_some(), "--apply-controls"),
    ] {
        if set {
            complain(&format!("warning: {name} is not supported\n"));
        }
    }
    let (name, bytes) = crate::input::read_bytes(file)?;
    // With a file without kernels cuTile asks which versions are read, for a processor that need not be known here.
    if Module::read(&bytes, &Limits::default()).is_ok_and(|m| m.functions().next().is_none()) {
        return write_output(&args.output, "");
    }
    let usage = |e| {
        Source::none().report(&[e]);
        Failure::Usage
    };
    let cpu = tileas_isa::cpus().find(|cpu| *cpu == args.gpu_name || plain(cpu) == args.gpu_name);
    let mut builder = Settings::builder();
    builder.set("target", cpu.unwrap_or(&args.gpu_name)).map_err(usage)?;
    let line_info = args.lineinfo || args.device_debug;
    builder.set("line-info", if line_info { "true" } else { "false" }).map_err(usage)?;
    for pair in &args.set {
        builder.set_pair(pair).map_err(usage)?;
    }
    let input = lowered(name, &bytes, builder.finish())?;
    let isa = target(&input.module, &input.settings)?;
    let mut context = Context::new();
    let failed = |errors: tileas_codegen::Errors| {
        input.source.report(&errors);
        Failure::Diagnostics
    };
    let stage = match args.emit.as_deref() {
        Some("ir") => return write_output(&args.output, input.source.text()),
        Some("explain") => {
            let said = explain_module(&mut context, &input.module, &*isa, &input.settings);
            let (explanation, warnings) = said.map_err(failed)?;
            input.source.report(&warnings);
            return write_output(&args.output, &explanation.to_text(&tileas_draw::Options::default()));
        }
        Some("schedule") => Stage::Schedule,
        Some(_) => Stage::Ptx,
        None => Stage::Metadata,
    };
    let run = context.run_to(stage, &input.module, &*isa, &input.settings).map_err(failed)?;
    input.source.report(&run.warnings);
    if args.emit.is_some() {
        return write_output(&args.output, &run.text(stage));
    }
    let options = Options {
        opt_level: if args.device_debug { 0 } else { args.opt_level },
        line_info,
        ..Options::default()
    };
    // In a process that makes one file the program is done before the library would be: it takes 15 ms to load.
    let ladder =
        Ladder::default().with("ptxas", Ptxas::find(&options)).with("nvJitLink", NvJitLink::find(&options));
    let assembled = ladder.assemble_by(&run.text(Stage::Ptx), isa.cpu().name).map_err(|e| {
        complain(&format!("error: {e}\n"));
        Failure::Diagnostics
    })?;
    std::fs::write(&args.output, assembled.cubin.bytes()).map_err(|e| {
        complain(&format!("error: cannot write {}: {e}\n", args.output));
        Failure::Io
    })?;
    write_output(&format!("{}.json", args.output), &run.text(Stage::Metadata))
}
