//! `tileas options`: the compiler options with defaults, allowed values and documentation.

use crate::Failure;
use crate::input::write_output;
use std::fmt::Write;
use tileas_codegen::Settings;

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// Only options whose name contains this text
    filter: Option<String>,
}

/// Prints the list.
pub fn run(args: &Args) -> Result<(), Failure> {
    write_output("-", &list(args.filter.as_deref().unwrap_or("")))
}

/// The options whose name contains a text: default, documentation, allowed values.
fn list(filter: &str) -> String {
    let mut text = String::new();
    for o in Settings::list().iter().filter(|o| o.name.contains(filter)) {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{}={}\n    {}\n    allowed: {}", o.name, o.default, o.doc, o.allowed);
    }
    text
}

/// The same list at the end of the help (`--help`) of commands that take `--set`.
pub fn long_help() -> String {
    format!("Compiler options for --set, with their defaults (also: `tileas options`):\n\n{}", list(""))
}
