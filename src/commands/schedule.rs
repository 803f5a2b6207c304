//! `tileas schedule`: agents, start times, channels; also of a bare dependence graph; as table, document or picture.

use crate::Failure;
use crate::commands::options;
use crate::diagnostics::Source;
use crate::input::{Common, read_source, target, write_output};
use tileas_codegen::CodegenError;
use tileas_codegen::schedule::json::{Document, Documents};
use tileas_codegen::schedule::{Diagnostic, RegionSchedule, ScheduleOptions, Scheduler, render};
use tileas_codegen::{Context, Stage};
use tileas_draw::Picture;

/// Arguments.
#[derive(clap::Args)]
#[command(after_long_help = options::long_help())]
pub struct Args {
    /// File with kernels; `-` is standard input
    #[arg(required_unless_present = "ddg", conflicts_with = "ddg")]
    file: Option<String>,
    /// Schedule the dependence graphs of a `tileas-schedule/1` document instead; `-` is standard input
    #[arg(long, value_name = "FILE.json")]
    ddg: Option<String>,
    /// How to show the schedules; the table of a kernel also has its agents and channels
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    #[command(flatten)]
    drawing: Drawing,
    /// Where the result goes; `-` is standard output
    #[arg(short, long, value_name = "OUT", default_value = "-")]
    output: String,
    #[command(flatten)]
    common: Common,
}

/// How pictures are drawn.
#[derive(Copy, Clone, clap::Args)]
pub struct Drawing {
    /// Iterations in a picture [default: until the first has left the pipeline, and one more; at most 8]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    iterations: Option<u32>,
    /// Columns of a chart for terminals
    #[arg(long, value_name = "COLUMNS", default_value_t = 100)]
    width: usize,
}

impl Drawing {
    /// The options of the library.
    pub fn options(self) -> tileas_draw::Options {
        tileas_draw::Options { iterations: self.iterations, width: self.width }
    }
}

/// Formats of schedules.
#[derive(Copy, Clone, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Ops in order with starts, and who holds which slot.
    Table,
    /// A `tileas-schedule/1` document.
    Json,
    /// A chart for terminals: iterations by agent, slots modulo the interval.
    Gantt,
    /// A drawing.
    Svg,
    /// A self-contained page: the drawing, with everything about each op and dependence.
    Html,
    /// Trace events for Perfetto and chrome://tracing.
    ChromeTrace,
}

/// Schedules.
pub fn run(args: &Args) -> Result<(), Failure> {
    match (&args.ddg, &args.file) {
        (Some(file), _) => graphs(args, file),
        (None, Some(file)) => kernels(args, file),
        // Excluded by the argument rules above.
        (None, None) => Err(Failure::Usage),
    }
}

fn kernels(args: &Args, file: &str) -> Result<(), Failure> {
    let input = args.common.read(file)?;
    let isa = target(&input.module, &input.settings)?;
    let run =
        Context::new().run_to(Stage::Schedule, &input.module, &*isa, &input.settings).map_err(|errors| {
            input.source.report(&errors);
            Failure::Diagnostics
        })?;
    input.source.report(&run.warnings);
    let text = match args.format {
        Format::Table => run.text(Stage::Schedule),
        Format::Json => {
            let loops = run.kernels.iter().flat_map(|k| k.loops());
            let (regions, schedules): (_, Vec<_>) =
                loops.map(|(problem, schedule)| (Document::of(problem.clone()), schedule.clone())).unzip();
            Documents { regions, is_array: true }.write(&schedules)
        }
        _ => {
            let pictures: Vec<Picture> = run.kernels.iter().flat_map(Picture::of_kernel).collect();
            draw(args, &pictures)
        }
    };
    write_output(&args.output, &text)
}

fn graphs(args: &Args, file: &str) -> Result<(), Failure> {
    let settings = args.common.settings()?;
    Source::none().report(settings.warnings());
    let source = read_source(file)?;
    let options: ScheduleOptions = settings.schedule_options();
    let (documents, schedules) = schedule_graphs(&source, &options)?;
    let text = match args.format {
        Format::Json => documents.write(&schedules),
        Format::Table => {
            let parts = documents.regions.iter().zip(&schedules);
            parts.map(|(d, s)| render::table(&d.problem, s)).collect::<Vec<String>>().join("\n")
        }
        _ => {
            let parts = documents.regions.into_iter().zip(schedules);
            let pictures: Vec<Picture> = parts.map(|(d, s)| Picture::of_graph(d.problem, s)).collect();
            draw(args, &pictures)
        }
    };
    write_output(&args.output, &text)
}

/// Reads and schedules the graphs of a text; errors and warnings are reported.
pub fn schedule_graphs(
    source: &Source,
    options: &ScheduleOptions,
) -> Result<(Documents, Vec<RegionSchedule>), Failure> {
    let report = |said: Vec<Diagnostic>| {
        let said: Vec<CodegenError> = said.into_iter().map(CodegenError::from).collect();
        source.report(&said);
        Failure::Diagnostics
    };
    let documents = Documents::read(source.text(), &options.limits).map_err(report)?;
    let mut scheduler = Scheduler::new();
    let mut schedules = Vec::new();
    for region in &documents.regions {
        let schedule = scheduler.schedule(&region.problem, options).map_err(|e| report(vec![e]))?;
        report(schedule.warnings.clone());
        schedules.push(schedule);
    }
    Ok((documents, schedules))
}

/// A picture of all loops.
fn draw(args: &Args, pictures: &[Picture]) -> String {
    let options = args.drawing.options();
    match args.format {
        Format::Svg => tileas_draw::svg(pictures, &options),
        Format::Html => tileas_draw::html_page(pictures, &options),
        Format::ChromeTrace => tileas_draw::chrome_trace(pictures, &options),
        Format::Gantt | Format::Table | Format::Json => {
            pictures.iter().map(|p| tileas_draw::gantt(p, &options)).collect::<Vec<String>>().join("\n")
        }
    }
}
