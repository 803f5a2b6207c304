//! `tileas schedule`: agents, start times, channels; also of a bare dependence graph.

use crate::Failure;
use crate::diagnostics::Source;
use crate::input::{Common, read_source, target, write_output};
use tileas_codegen::schedule::json::{Document, Documents};
use tileas_codegen::schedule::{RegionSchedule, ScheduleOptions, Scheduler, render};
use tileas_codegen::{Context, Stage};

/// Columns of a Gantt chart.
const CHART_WIDTH: usize = 100;

/// Arguments.
#[derive(clap::Args)]
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
    /// Where the result goes; `-` is standard output
    #[arg(short, long, value_name = "OUT", default_value = "-")]
    output: String,
    #[command(flatten)]
    common: Common,
}

/// Formats of schedules.
#[derive(Copy, Clone, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Ops in order with starts, and who holds which slot.
    Table,
    /// A `tileas-schedule/1` document.
    Json,
    /// A chart of one iteration.
    Gantt,
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
    let isa = target(&input.settings)?;
    let run =
        Context::new().run_to(Stage::Schedule, &input.module, &*isa, &input.settings).map_err(|errors| {
            input.source.report(&errors);
            Failure::Diagnostics
        })?;
    input.source.report(&run.warnings);
    if args.format == Format::Table {
        return write_output(&args.output, &run.text(Stage::Schedule));
    }
    let reports = run.kernels.into_iter().filter_map(|k| k.schedule).flat_map(|s| s.regions);
    let (regions, schedules) = reports.map(|r| (Document::of(r.problem), r.schedule)).unzip();
    let documents = Documents { regions, is_array: true };
    write_output(&args.output, &show(args.format, &documents, &schedules))
}

fn graphs(args: &Args, file: &str) -> Result<(), Failure> {
    let settings = args.common.settings()?;
    Source::none().report(settings.warnings());
    let source = read_source(file)?;
    let options: ScheduleOptions = settings.schedule_options();
    let failed = |errors: &[tileas_codegen::CodegenError]| {
        source.report(errors);
        Failure::Diagnostics
    };
    let documents = Documents::read(source.text(), &options.limits).map_err(|e| failed(&e))?;
    let mut scheduler = Scheduler::new();
    let mut schedules = Vec::new();
    for region in &documents.regions {
        let schedule = scheduler.schedule(&region.problem, &options).map_err(|e| failed(&[e]))?;
        source.report(&schedule.warnings);
        schedules.push(schedule);
    }
    write_output(&args.output, &show(args.format, &documents, &schedules))
}

fn show(format: Format, documents: &Documents, schedules: &Vec<RegionSchedule>) -> String {
    if format == Format::Json {
        return documents.write(schedules);
    }
    let texts = documents.regions.iter().zip(schedules).map(|(d, s)| match format {
        Format::Gantt => render::gantt(&d.problem, s, CHART_WIDTH),
        _ => render::table(&d.problem, s),
    });
    texts.collect::<Vec<String>>().join("\n")
}
