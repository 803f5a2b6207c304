//! Files, options and targets of the command line.

use crate::Failure;
use crate::diagnostics::{Source, complain, report_tileir};
use std::io::{ErrorKind, Read, Write};
use std::path::Path;
use tileas_codegen::ir::Module;
use tileas_codegen::isa::SharedIsa;
use tileas_codegen::{Context, Settings, ir};

/// Options every compiling command takes.
#[derive(clap::Args)]
pub struct Common {
    /// Processor to compile for [default: what the text says, else sm_100a]
    #[arg(long, value_name = "CPU")]
    pub target: Option<String>,
    /// Set a compiler option; `tileas options` lists them. NAME alone turns a flag on
    #[arg(long = "set", value_name = "NAME=VALUE")]
    pub set: Vec<String>,
}

/// A parsed input with everything a command needs.
pub struct Input {
    /// The text, for messages.
    pub source: Source,
    /// The module.
    pub module: Module,
    /// The options.
    pub settings: Settings,
}

impl Common {
    /// The options of `--set` and `--target`.
    pub fn settings(&self) -> Result<Settings, Failure> {
        let mut builder = Settings::builder();
        let usage = |e| {
            Source::none().report(&[e]);
            Failure::Usage
        };
        for pair in &self.set {
            builder.set_pair(pair).map_err(usage)?;
        }
        if let Some(target) = &self.target {
            builder.set("target", target).map_err(usage)?;
        }
        Ok(builder.finish())
    }

    /// Reads a file: text, which is parsed, or Tile IR bytecode, which is lowered.
    pub fn read(&self, file: &str) -> Result<Input, Failure> {
        let settings = self.settings()?;
        let (name, bytes) = read_bytes(file)?;
        if tileas_tileir::is_bytecode(&bytes) {
            return lowered(name, &bytes, settings);
        }
        let source = as_text(name, bytes)?;
        let mut module = Context::new().parse(source.text(), &settings).map_err(|errors| {
            source.report(&errors);
            Failure::Diagnostics
        })?;
        module.file = Some(name.into());
        Ok(Input { source, module, settings })
    }
}

/// The target that the options name, or the module.
pub fn target(module: &Module, settings: &Settings) -> Result<SharedIsa, Failure> {
    tileas_isa::isa_for(module, settings).map_err(|e| {
        Source::none().report(&[e]);
        Failure::Usage
    })
}

/// Reads a text; `-` is standard input.
pub fn read_source(file: &str) -> Result<Source, Failure> {
    let (name, bytes) = read_bytes(file)?;
    as_text(name, bytes)
}

/// The kernels of Tile IR bytecode; the text for messages is what they have become.
pub fn lowered(name: &str, bytes: &[u8], settings: Settings) -> Result<Input, Failure> {
    let told = |errors: tileas_tileir::Errors| {
        errors.iter().for_each(|e| report_tileir(name, e));
        Failure::Diagnostics
    };
    let read = tileas_tileir::Module::read(bytes, &tileas_tileir::Limits::default()).map_err(told)?;
    read.verify().map_err(told)?;
    let cpu = settings.target().clone().unwrap_or_else(|| tileas_isa::DEFAULT_CPU.to_owned());
    let kernels = tileas_tileir::lower(&read, &cpu).map_err(told)?;
    kernels.warnings.iter().for_each(|w| report_tileir(name, w));
    let module = kernels.module;
    Ok(Input { source: Source::new(name, ir::print_module(&module)), module, settings })
}

/// Reads a file, with its name for messages; `-` is standard input.
pub fn read_bytes(file: &str) -> Result<(&str, Vec<u8>), Failure> {
    let mut bytes = Vec::new();
    let (name, result) = match file {
        "-" => ("<stdin>", std::io::stdin().lock().read_to_end(&mut bytes)),
        _ => (file, std::fs::File::open(file).and_then(|mut f| f.read_to_end(&mut bytes))),
    };
    if let Err(e) = result {
        complain(&format!("error: cannot read {name}: {e}\n"));
        return Err(Failure::Io);
    }
    Ok((name, bytes))
}

fn as_text(name: &str, bytes: Vec<u8>) -> Result<Source, Failure> {
    match String::from_utf8(bytes) {
        Ok(text) => Ok(Source::new(name, text)),
        Err(e) => {
            // The parser works on text; what precedes the first bad byte places the error.
            let at = e.utf8_error().valid_up_to();
            let bytes = e.into_bytes();
            let line = bytes[..at].iter().filter(|&&b| b == b'\n').count() + 1;
            let column = at - bytes[..at].iter().rposition(|&b| b == b'\n').map_or(0, |p| p + 1) + 1;
            let byte = bytes.get(at).copied().unwrap_or_default();
            let message = format!("{name}:{line}:{column}: byte 0x{byte:02x} is not UTF-8");
            let error = tileas_codegen::CodegenError::new(
                tileas_codegen::Code::E0001,
                tileas_codegen::Loc::NONE,
                message,
            );
            Source::none().report(&[error]);
            Err(Failure::Diagnostics)
        }
    }
}

/// Writes text to a file, or to standard output for `-`. Whoever reads standard output may stop to.
pub fn write_output(file: &str, text: &str) -> Result<(), Failure> {
    let mut stdout = std::io::stdout().lock();
    let result = match file {
        "-" => match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
            Err(e) if e.kind() == ErrorKind::BrokenPipe => Ok(()),
            result => result,
        },
        _ => std::fs::write(Path::new(file), text),
    };
    result.map_err(|e| {
        complain(&format!("error: cannot write {file}: {e}\n"));
        Failure::Io
    })
}

/// Writes a line to standard output.
pub fn say(line: &str) -> Result<(), Failure> {
    write_output("-", &format!("{line}\n"))
}

/// Number of ops of a module, for messages.
pub fn op_count(module: &Module) -> usize {
    module.functions.iter().map(|f: &ir::Function| f.all_ops().len()).sum()
}
