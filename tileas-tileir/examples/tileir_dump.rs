//! Prints Tile IR files, and what is wrong with them: `cargo run -p tileas-tileir --example tileir_dump -- FILE…`.

use tileas_tileir::{Limits, Module};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for path in std::env::args_os().skip(1) {
        let module = Module::read(&std::fs::read(path)?, &Limits::default())?;
        print!("{}", module.dump(true));
        module.verify()?;
    }
    Ok(())
}
