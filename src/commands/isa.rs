//! `tileas isa`: the tables of a processor.

use crate::Failure;
use crate::input::{Common, target, write_output};

/// Arguments.
#[derive(clap::Args)]
#[command(mut_arg("target", |a| a.help("Processor to show [default: sm_100a]")))]
pub struct Args {
    #[command(flatten)]
    common: Common,
    /// List the processors there are, for `--target`
    #[arg(long)]
    list: bool,
}

/// Prints the tables.
pub fn run(args: &Args) -> Result<(), Failure> {
    if args.list {
        let names: Vec<&str> = tileas_isa::cpus().collect();
        return write_output("-", &format!("{}\n", names.join("\n")));
    }
    let isa = target(&tileas_codegen::ir::Module::new(), &args.common.settings()?)?;
    write_output("-", &tileas_isa::describe(&*isa))
}
