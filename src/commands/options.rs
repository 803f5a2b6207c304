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
    let mut text = String::new();
    let filter = args.filter.as_deref().unwrap_or("");
    for o in Settings::list().iter().filter(|o| o.name.contains(filter)) {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{}={}\n    {}\n    allowed: {}", o.name, o.default, o.doc, o.allowed);
    }
    write_output("-", &text)
}
