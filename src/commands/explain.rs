//! `tileas explain`: why a schedule is as it is, and what would change it.

use crate::Failure;
use crate::commands::schedule::{Drawing, schedule_graphs};
use crate::diagnostics::Source;
use crate::input::{Common, read_source, target, write_output};
use tileas_codegen::Context;
use tileas_draw::explain::{Explanation, explain_graphs, explain_module};

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// File with kernels; `-` is standard input
    #[arg(required_unless_present = "ddg", conflicts_with = "ddg")]
    file: Option<String>,
    /// Explain the schedules of the dependence graphs of a `tileas-schedule/1` document instead; `-` is standard input
    #[arg(long, value_name = "FILE.json")]
    ddg: Option<String>,
    /// How to show the explanation
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    #[command(flatten)]
    drawing: Drawing,
    /// Where the result goes; `-` is standard output
    #[arg(short, long, value_name = "OUT", default_value = "-")]
    output: String,
    #[command(flatten)]
    common: Common,
}

/// Formats of explanations.
#[derive(Copy, Clone, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Words, tables and charts for terminals.
    Text,
    /// All facts.
    Json,
    /// A self-contained page with drawings.
    Html,
}

/// Explains.
pub fn run(args: &Args) -> Result<(), Failure> {
    let explanation = match (&args.ddg, &args.file) {
        (Some(file), _) => graphs(args, file)?,
        (None, Some(file)) => kernels(args, file)?,
        // Excluded by the argument rules above.
        (None, None) => return Err(Failure::Usage),
    };
    let options = args.drawing.options();
    let text = match args.format {
        Format::Text => explanation.to_text(&options),
        Format::Json => explanation.to_json(),
        Format::Html => explanation.to_html(&options),
    };
    write_output(&args.output, &text)
}

fn kernels(args: &Args, file: &str) -> Result<Explanation, Failure> {
    let input = args.common.read(file)?;
    let isa = target(&input.module, &input.settings)?;
    let (explanation, warnings) = explain_module(&mut Context::new(), &input.module, &*isa, &input.settings)
        .map_err(|errors| {
            input.source.report(&errors);
            Failure::Diagnostics
        })?;
    input.source.report(&warnings);
    Ok(explanation)
}

fn graphs(args: &Args, file: &str) -> Result<Explanation, Failure> {
    let settings = args.common.settings()?;
    Source::none().report(settings.warnings());
    let source = read_source(file)?;
    let options = settings.schedule_options();
    let (documents, schedules) = schedule_graphs(&source, &options)?;
    let parts = documents.regions.iter().zip(&schedules).map(|(d, s)| (&d.problem, s));
    explain_graphs(parts, &options).map_err(|e| {
        source.report(&[e]);
        Failure::Diagnostics
    })
}
