//! Prints Tile IR files: `cargo run -p tileas-tileir --example tileir_dump -- FILE…`.

use tileas_tileir::{Limits, Module};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for path in std::env::args_os().skip(1) {
        let bytes = std::fs::read(path)?;
        let module = Module::read(&bytes, &Limits::default())?;
        if let Err(e) = module.verify() {
            println!("{e}");
        }
        if std::env::var_os("RT").is_some() {
            let out = module.write(module.version)?;
            println!("{}", out == bytes);
            for v in tileas_tileir::Version::all() {
                if let Ok(b) = module.write(v) {
                    let mut again = Module::read(&b, &Limits::default())?;
                    again.version = module.version;
                    println!("{v} {}", again == module);
                }
            }
            println!("{} {}", module.heap_bytes(), bytes.len());
            continue;
        }
        print!("{}", module.dump(true));
    }
    Ok(())
}
