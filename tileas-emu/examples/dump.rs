//! Runs the cases of `tests/micro` and writes dump files for `validate/validate_gpu.py`:
//! `<case>.<buffer>.bin` and `index.json` with the status of each case.
//!
//! Usage: `dump DIR [PREFIX]`.

#[path = "../tests/support/mod.rs"]
mod support;

use std::path::Path;

use serde_json::{Map, Value};
use tileas_emu::RunOptions;

fn main() -> std::io::Result<()> {
    let mut args = std::env::args().skip(1);
    let Some(folder) = args.next() else {
        eprintln!("usage: dump DIR [PREFIX]");
        std::process::exit(2);
    };
    let prefix = args.next().unwrap_or_default();
    let folder = Path::new(&folder);
    std::fs::create_dir_all(folder)?;
    let mut index = Map::new();
    for case in support::cases(&prefix) {
        let status = match support::launch::run(&case, RunOptions::default()) {
            Ok(buffers) => {
                for (name, bytes) in buffers {
                    std::fs::write(folder.join(format!("{}.{name}.bin", case.name())), bytes)?;
                }
                "ok".to_string()
            }
            Err(e) => e,
        };
        println!("{:<40} {}", case.name(), status.lines().next().unwrap_or_default());
        index.insert(case.name().to_string(), Value::String(status));
    }
    let mut top = Map::new();
    top.insert("cases".into(), Value::Object(index));
    std::fs::write(folder.join("index.json"), serde_json::to_string_pretty(&Value::Object(top))?)
}
