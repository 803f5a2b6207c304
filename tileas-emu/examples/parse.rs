//! Reads PTX files and prints what is not supported.
//!
//! usage: parse FILE...

use tileas_emu::Program;

fn main() {
    let mut bad = 0;
    for path in std::env::args().skip(1) {
        match std::fs::read_to_string(&path).map(|t| Program::parse(&t)) {
            Ok(Ok(_)) => {}
            Ok(Err(errors)) => {
                bad += 1;
                for e in errors.iter().take(5) {
                    println!("{path}:{e}");
                }
            }
            Err(e) => println!("{path}: {e}"),
        }
    }
    println!("{bad} files with errors");
}
