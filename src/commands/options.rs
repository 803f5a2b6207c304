//! `tileas options`: the compiler options with defaults, allowed values and documentation; the passes.

use crate::Failure;
use crate::input::write_output;
use std::fmt::Write;
use tileas_codegen::Settings;
use tileas_codegen::passes::PASSES;

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// Only options whose name contains this text
    filter: Option<String>,
    /// The passes of `compile --passes` instead: what they do, and which options are theirs
    #[arg(long)]
    passes: bool,
}

/// Prints the list.
pub fn run(args: &Args) -> Result<(), Failure> {
    let filter = args.filter.as_deref().unwrap_or("");
    write_output("-", &if args.passes { passes(filter) } else { list(filter) })
}

/// The passes whose name contains a text, in their order.
fn passes(filter: &str) -> String {
    let mut text = String::new();
    for p in PASSES.iter().filter(|p| p.name.contains(filter) || p.short.contains(filter)) {
        let short = if p.short.is_empty() { String::new() } else { format!(" ({})", p.short) };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{}{short}\n    {}", p.name, p.doc);
        if !p.options.is_empty() {
            let _ = writeln!(text, "    options: {}", p.options.join(", "));
        }
    }
    text
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
