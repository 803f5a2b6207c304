//! `tileas`: compiles GPU tile programs to PTX, shows every stage on the way, and executes the result on the CPU.
//!
//! In: `.tileas` text or CUDA Tile IR bytecode (`-` is standard input). Out: PTX, launch metadata, schedules, tables. Exit status: 0 success,
//! 1 the input has errors (of `run` also: the kernel fails or computes something else), 2 wrong usage (also unknown
//! options and option values, and arguments a kernel cannot be launched with), 3 a file cannot be read or written. A reader of the
//! output that goes away early changes none of it. One file per subcommand in [`commands`]; only this package prints, reads files or the environment.

mod commands;
mod diagnostics;
mod input;
mod npy;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Compiles GPU tile programs to PTX.
#[derive(Parser)]
#[command(
    name = "tileas",
    version,
    after_help = "Exit status: 0 success, 1 errors in the input or in the execution, 2 wrong usage, 3 file cannot be read or written."
)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Compile kernels to PTX, or show them after any stage.
    Compile(commands::compile::Args),
    /// Execute a kernel on the CPU and look for races, deadlocks and wrong results.
    Run(Box<commands::run::Args>),
    /// Say whether kernels compile for a target, with all errors and warnings, and write nothing.
    Check(commands::check::Args),
    /// Show who runs what, when each op of a loop starts, and how values travel.
    Schedule(commands::schedule::Args),
    /// Say what binds each loop, how far ops could move, why rings have their slots, and what would change it.
    Explain(commands::explain::Args),
    /// Choose tile sizes and options of a kernel for given arguments.
    Tune(Box<commands::tune::Args>),
    /// Show the machine model of a processor.
    Isa(commands::isa::Args),
    /// Assemble CUDA Tile IR bytecode, with the options of NVIDIA's assembler; also as `tileas-as`.
    As(commands::assemble::Args),
    /// List the compiler options for `--set`.
    Options(commands::options::Args),
}

/// Why the program ends without success; the message has been printed.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Failure {
    /// The input has errors.
    Diagnostics,
    /// Wrong usage.
    Usage,
    /// A file cannot be read or written.
    Io,
}

impl From<Failure> for ExitCode {
    fn from(failure: Failure) -> ExitCode {
        ExitCode::from(match failure {
            Failure::Diagnostics => 1,
            Failure::Usage => 2,
            Failure::Io => 3,
        })
    }
}

fn main() -> ExitCode {
    // Clap ends with status 2 on wrong usage.
    let result = match Args::parse().command {
        Command::Compile(args) => commands::compile::run(&args),
        Command::Run(args) => commands::run::run(&args),
        Command::Check(args) => commands::check::run(&args),
        Command::Schedule(args) => commands::schedule::run(&args),
        Command::Explain(args) => commands::explain::run(&args),
        Command::Tune(args) => commands::tune::run(&args),
        Command::As(args) => commands::assemble::run(&args),
        Command::Isa(args) => commands::isa::run(&args),
        Command::Options(args) => commands::options::run(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn command_line_is_consistent() {
        Args::command().debug_assert();
    }
}
