//! Prints Tile IR files, and what is wrong with them: `cargo run -p tileas-tileir --example tileir_dump -- FILE…`.

use std::process::ExitCode;
use tileas_tileir::{Limits, Module};

fn main() -> ExitCode {
    let mut failed = false;
    for path in std::env::args_os().skip(1).map(std::path::PathBuf::from) {
        let shown = || -> Result<(), Box<dyn std::error::Error>> {
            let module = Module::read(&std::fs::read(&path)?, &Limits::default())?;
            print!("{}", module.dump(true));
            Ok(module.verify()?)
        };
        if let Err(error) = shown() {
            eprintln!("{}: {error}", path.display());
            failed = true;
        }
    }
    ExitCode::from(u8::from(failed))
}
