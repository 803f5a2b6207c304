//! `tileas-as`: `tileas as` under a name of its own, for programs that start an assembler without arguments before the file.
//!
//! Starts the `tileas` that lies beside it, hands on its arguments and takes over its exit status.

use std::process::{Command, ExitCode};

fn main() -> ExitCode {
    let beside = std::env::current_exe().map(|path| path.with_file_name("tileas"));
    let started = beside.and_then(|tileas| {
        let mut command = Command::new(tileas);
        command.arg("as").args(std::env::args_os().skip(1)).status()
    });
    match started {
        Ok(status) => ExitCode::from(status.code().and_then(|n| u8::try_from(n).ok()).unwrap_or(1)),
        Err(e) => {
            eprintln!("tileas-as: cannot start the program `tileas` beside it: {e}");
            ExitCode::from(3)
        }
    }
}
