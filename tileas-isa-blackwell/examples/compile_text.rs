//! Reads kernels on standard input and prints PTX. Arguments: names of stages to print on standard error,
//! compiler options as `name=value`, and a `.json` path for the launch metadata.
use std::io::Read;
use std::process::ExitCode;
use tileas_codegen::driver::{Context, Stage};
use tileas_codegen::{CodegenError, settings::Settings};

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), String> {
    let mut builder = Settings::builder();
    let mut stages = Vec::new();
    let mut metadata = None;
    for arg in std::env::args().skip(1) {
        match Stage::from_name(&arg) {
            Some(stage) => stages.push(stage),
            None if arg.ends_with(".json") => metadata = Some(arg),
            None => {
                builder.set_pair(&arg).map_err(|e| e.to_string())?;
            }
        }
    }
    let settings = builder.finish();
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).map_err(|e| e.to_string())?;
    let show = |errors: Vec<CodegenError>| {
        let lines: Vec<String> =
            errors.iter().map(|e| format!("{e} at {:?}", e.line_column(&text))).collect();
        lines.join("\n")
    };
    let isa = tileas_isa_blackwell::isa_for_cpu(&settings.target).map_err(|e| e.to_string())?;
    let mut context = Context::new();
    let module = context.parse(&text, &settings).map_err(|e| show(vec![e]))?;
    for stage in stages {
        let run = context.run_to(stage, &module, &*isa, &settings).map_err(show)?;
        eprintln!("{}", run.text(stage));
    }
    let compiled = context.compile(&module, &*isa, &settings).map_err(show)?;
    for warning in &compiled.warnings {
        eprintln!("{warning}");
    }
    println!("{}", compiled.ptx());
    if let Some(path) = metadata {
        std::fs::write(&path, compiled.metadata_json()).map_err(|e| format!("{path}: {e}"))?;
    }
    Ok(())
}
