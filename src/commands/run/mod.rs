//! `tileas run`: executes a kernel on the CPU, under adversarial timing, with detectors of races and misuse.
//!
//! In: `.tileas` text, which is compiled, or a PTX module, with launch metadata or without; arguments made up or read from
//! files. Out: a summary of each tensor, files with results, a trace, statistics; or the first fault with its PTX line.
//! `args` has the grammar of the arguments, `launch` makes the launch, `judge` compares results. The execution is
//! `tileas-emu`, the reference `tileas-interp`.

pub mod args;
pub mod device;
mod judge;
mod launch;
mod stats;

use crate::Failure;
use crate::diagnostics::{Source, complain};
use crate::input::{Common, read_source, say, target, write_output};
use indicatif::{ProgressBar, ProgressStyle};
use judge::Judge;
use launch::Setup;
use std::collections::BTreeMap;
use std::io::IsTerminal;
use tileas_codegen::ir::Function;
use tileas_codegen::{Context, Stage};
use tileas_emu::host::check::Tolerance;
use tileas_emu::{
    ChromeTrace, Detectors, Fault, Limits, Machine, Memory, Mode, Program, Report, RunOptions, Stats, Trace,
    TraceEvent, explore,
};
use tileas_jit::Device;
use tileas_launch::LaunchMetadata;

/// Arguments.
#[derive(clap::Args)]
#[command(after_long_help = args::HELP)]
pub struct Args {
    /// Kernel to run: a `.ptx` file, or `.tileas` text or Tile IR bytecode, which is compiled first; `-` is such text on standard input
    file: String,
    /// Which kernel, if there are several
    #[arg(long, value_name = "NAME")]
    kernel: Option<String>,
    /// An argument; see below
    #[arg(short, long = "arg", value_name = "NAME=VALUE", value_parser = args::pair)]
    args: Vec<(String, String)>,
    /// CTAs [default: what the launch metadata suggest, else one cluster]
    #[arg(long, value_name = "X[,Y[,Z]]", value_parser = args::extents)]
    grid: Option<[u32; 3]>,
    /// Launch metadata of a `.ptx` file, as `compile` writes them [default: FILE.json if there is one]. Without
    /// metadata a kernel takes pointers and scalars only
    #[arg(long, value_name = "JSON")]
    launch: Option<String>,
    /// Threads of a CTA, without launch metadata [default: `.reqntid` of the kernel]
    #[arg(long, value_name = "X[,Y[,Z]]", value_parser = args::extents)]
    block: Option<[u32; 3]>,
    /// CTAs of a cluster, without launch metadata [default: `.reqnctapercluster` of the kernel, else 1]
    #[arg(long, value_name = "X[,Y[,Z]]", value_parser = args::extents)]
    cluster: Option<[u32; 3]>,
    /// Bytes of dynamic shared memory, without launch metadata
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    smem: u32,
    /// Processors of the device, for grids that depend on them
    #[arg(long, default_value_t = 4)]
    sms: u32,
    /// Where it runs: `emulator`, `cuda` or `cuda:N`. A GPU has no timings, seeds of timing, detectors and traces
    #[arg(long, value_name = "DEVICE", default_value = "emulator", value_parser = device::parse)]
    device: device::Choice,
    /// When asynchronous work completes; several, separated by commas, run one after the other
    #[arg(long, value_enum, value_delimiter = ',', default_value = "fast")]
    mode: Vec<Timing>,
    /// Seed of data and timing
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Run with this many seeds of timing, `--seed` and those after it, on the same data. All must give the same bytes; of floats not where some are
    /// added up by atomics, whose order is free
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    seeds: u32,
    /// CTAs that run at the same time; whole clusters, one at least
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    resident: u32,
    /// Look for races, missing fences and undefined reads
    #[arg(long, value_enum, default_value_t = Switch::On)]
    detectors: Switch,
    /// Let aligned instructions wait for lanes of their warp that a branch has sent elsewhere. PTX promises nothing of the
    /// kind, but compilers rely on the assembler to bring the lanes together; without this it is a fault
    #[arg(long)]
    reconverge: bool,
    /// Compare with the source, executed in program order; `.tileas` only
    #[arg(long)]
    check: bool,
    /// Compare a tensor after the run with a formula of the arguments: 'c=relu(a @ b.T)'
    #[arg(long, value_name = "NAME=FORMULA", value_parser = args::pair)]
    expect: Vec<(String, String)>,
    /// What the tolerance of `--check` and `--expect` is relative to: 'c=abs(a) @ abs(b).T' [default: what the source computes
    /// from magnitudes, which is Σ|a·b| for sums of products, or where that is not finite the largest number it writes to the
    /// tensor; for `.ptx` the formula's value]
    #[arg(long, value_name = "NAME=FORMULA", value_parser = args::pair)]
    scale: Vec<(String, String)>,
    /// Allowed difference of floats, relative to the scale: `exact`, a number or a power. Integers must be equal
    #[arg(long, value_name = "T", default_value = "2^-9", value_parser = tolerance)]
    tol: Tolerance,
    /// Write a tensor after the run: `.npy`, or the bytes of its elements
    #[arg(short, long, value_name = "NAME=FILE", value_parser = args::pair)]
    output: Vec<(String, String)>,
    /// Write the first run as a Chrome trace: warps, TMA, tensor pipe
    #[arg(long, value_name = "FILE")]
    trace: Option<String>,
    /// Print what the first run costs: sectors of global memory, bank conflicts of shared memory, instructions, and the worst
    /// lines of the PTX
    #[arg(long)]
    stats: bool,
    /// Write what the first run costs, with the counts of each instruction
    #[arg(long, value_name = "FILE")]
    stats_json: Option<String>,
    /// Most bytes of all tensors together
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 28)]
    max_bytes: u64,
    /// Most warp instructions of a run, and most operations of the source with `--check`
    #[arg(long, value_name = "N", default_value_t = 1 << 32)]
    max_steps: u64,
    /// Most runs of `--mode explore`
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    max_runs: u64,
    #[command(flatten)]
    common: Common,
}

impl Args {
    /// Whether statistics are kept.
    fn counts(&self) -> bool {
        self.stats || self.stats_json.is_some()
    }
}

/// When asynchronous work completes.
#[derive(Copy, Clone, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Timing {
    /// At once.
    Fast,
    /// At any moment, drawn from the seed.
    Random,
    /// Only when nothing else can happen.
    Latest,
    /// In all orders that differ; for tiny launches.
    Explore,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Switch {
    On,
    Off,
}

fn tolerance(text: &str) -> Result<Tolerance, String> {
    Tolerance::parse(text).ok_or_else(|| "expected `exact`, a number or a power like 2^-9".to_owned())
}

/// Prints why the arguments make no sense.
fn usage<T>(message: impl std::fmt::Display) -> Result<T, Failure> {
    complain(&format!("error: {message}\n"));
    Err(Failure::Usage)
}

/// A kernel ready to be launched.
pub struct Kernel {
    name: String,
    /// The PTX, for messages.
    ptx: Source,
    program: Program,
    metadata: Option<LaunchMetadata>,
    /// The source, with its text.
    source: Option<(Function, Source)>,
}

/// Runs.
pub fn run(args: &Args) -> Result<(), Failure> {
    let gpu = device::open(args)?;
    let kernel = if args.file.ends_with(".ptx") { load_ptx(args)? } else { compile(args, gpu.as_ref())? };
    if args.mode.contains(&Timing::Explore) && (args.mode.len() > 1 || args.trace.is_some() || args.counts())
    {
        return usage("--mode explore stands alone, without --trace, --stats and --stats-json");
    }
    let setup = Setup::new(args, &kernel, gpu.as_ref().map_or(args.sms, Device::sms))?;
    let judge = Judge::new(args, &kernel, &setup)?;
    let [x, y, z] = setup.launch.grid;
    let threads: u32 = setup.launch.block.iter().product();
    say(&format!(
        "{}: grid {x} x {y} x {z}, {threads} threads, {} bytes of dynamic shared memory",
        kernel.name, setup.launch.dynamic_smem
    ))?;
    let mut counted = None;
    let memory = match &gpu {
        Some(gpu) => device::run(gpu, args.grid, &kernel, &setup, &judge)?,
        None if args.mode == [Timing::Explore] => explore_all(args, &kernel, &setup, &judge)?,
        None => all_runs(args, &kernel, &setup, &judge, &mut counted)?,
    };
    setup.summary(&memory)?;
    judge.summary()?;
    for (name, file) in &args.output {
        setup.write(name, file, &memory)?;
    }
    if let Some((run, counted)) = counted {
        if args.stats {
            stats::print(&run, &counted)?;
        }
        if let Some(file) = &args.stats_json {
            stats::write(file, &kernel, &run, &counted)?;
        }
    }
    Ok(())
}

/// The kernel that was asked for among those there are.
pub fn choose<'a>(wanted: Option<&str>, names: &[&'a str]) -> Result<&'a str, Failure> {
    let list = || names.join(", ");
    match (wanted, names) {
        (Some(w), _) => match names.iter().find(|n| **n == w) {
            Some(name) => Ok(name),
            None => usage(format!("there is no kernel {w}; there is {}", list())),
        },
        (None, [one]) => Ok(one),
        (None, []) => usage("the file has no kernel"),
        (None, _) => usage(format!("several kernels; name one with --kernel: {}", list())),
    }
}

/// Compiles the text and takes one kernel of it.
fn compile(args: &Args, gpu: Option<&Device>) -> Result<Kernel, Failure> {
    for (given, option) in [
        (args.launch.is_some(), "--launch"),
        (args.block.is_some(), "--block"),
        (args.cluster.is_some(), "--cluster"),
        (args.smem != 0, "--smem"),
    ] {
        if given {
            return usage(format!("{option} is for .ptx files"));
        }
    }
    let mut input = args.common.read(&args.file)?;
    if let (Some(gpu), None) = (gpu, &args.common.target) {
        input.settings = input.settings.with("target", gpu.target()).or_else(usage)?;
    }
    let all = input.module.functions.iter().map(|f| f.name.as_str()).enumerate();
    let chosen = all.filter(|&(n, name)| input.settings.select_kernels().has(n, name));
    let names: Vec<&str> = chosen.map(|(_, name)| name).collect();
    let name = choose(args.kernel.as_deref(), &names)?.to_owned();
    // What is wrong with the others does not matter here.
    input.module.functions.retain(|f| f.name == name);
    input.settings = input.settings.with("select-kernels", "all").or_else(usage)?;
    let isa = target(&input.module, &input.settings)?;
    let run =
        Context::new().run_to(Stage::Metadata, &input.module, &*isa, &input.settings).map_err(|errors| {
            input.source.report(&errors);
            Failure::Diagnostics
        })?;
    input.source.report(&run.warnings);
    let stem = args.file.strip_suffix(".tileas").unwrap_or(&args.file);
    let ptx = Source::new(&format!("{stem}.ptx"), run.text(Stage::Ptx));
    let program = parse(&ptx)?;
    let metadata = run.kernels.into_iter().find(|k| k.name == name).and_then(|k| k.metadata);
    let source = input.module.functions.into_iter().find(|f| f.name == name).map(|f| (f, input.source));
    Ok(Kernel { name, ptx, program, metadata, source })
}

/// Reads PTX and its launch metadata.
fn load_ptx(args: &Args) -> Result<Kernel, Failure> {
    if args.check {
        return usage(
            "--check compares with the source, which a .ptx file does not have; --expect takes a formula",
        );
    }
    if args.common.target.is_some() || !args.common.set.is_empty() {
        return usage("--target and --set are for .tileas files");
    }
    let ptx = read_source(&args.file)?;
    let program = parse(&ptx)?;
    let names: Vec<&str> = program.kernels.iter().map(|k| k.name.as_str()).collect();
    let name = choose(args.kernel.as_deref(), &names)?.to_owned();
    let beside = format!("{}.json", args.file);
    let file = match &args.launch {
        Some(file) => Some(file.clone()),
        None => std::path::Path::new(&beside).exists().then_some(beside),
    };
    let metadata = match &file {
        Some(file) => {
            let text = read_source(file)?;
            let all = tileas_launch::json::read(text.text()).map_err(|e| {
                complain(&format!("error[{}]: {file}: {}\n", e.code, e.message));
                Failure::Diagnostics
            })?;
            match all.into_iter().find(|m| m.kernel == name) {
                Some(metadata) => Some(metadata),
                None => return usage(format!("{file} has no kernel {name}")),
            }
        }
        None => None,
    };
    if metadata.is_some() && (args.block.is_some() || args.cluster.is_some() || args.smem != 0) {
        return usage("--block, --cluster and --smem are what the launch metadata say");
    }
    Ok(Kernel { name, ptx, program, metadata, source: None })
}

fn parse(ptx: &Source) -> Result<Program, Failure> {
    Program::parse(ptx.text()).map_err(|list| {
        ptx.report_ptx(&list);
        Failure::Diagnostics
    })
}

fn detectors(args: &Args) -> Detectors {
    if args.detectors == Switch::On { Detectors::ALL } else { Detectors::NONE }
}

fn options(args: &Args, mode: Mode) -> RunOptions {
    RunOptions {
        mode,
        detectors: detectors(args),
        gather_aligned: args.reconverge,
        max_steps: args.max_steps,
        resident: args.resident,
        ..RunOptions::default()
    }
}

/// Whether some of what a kernel leaves depends on the order in which CTAs and warps come.
fn adds_floats_atomically(ptx: &str) -> bool {
    let is_one = |line: &str| {
        let mut words =
            line.split_whitespace().flat_map(|word| word.strip_prefix("atom.").or(word.strip_prefix("red.")));
        words.any(|form| {
            form.contains(".add.") && [".f16", ".bf16", ".f32", ".f64"].iter().any(|t| form.contains(t))
        })
    };
    ptx.lines().any(is_one)
}

/// Runs each timing with each seed; memory after the first run. `counted`: name and statistics of that run, if they are kept.
fn all_runs(
    args: &Args,
    kernel: &Kernel,
    setup: &Setup,
    judge: &Judge,
    counted: &mut Option<(String, Box<Stats>)>,
) -> Result<Memory, Failure> {
    let mut runs: Vec<Mode> = Vec::new();
    for timing in &args.mode {
        let seeds = (0..args.seeds).map(|k| args.seed.wrapping_add(u64::from(k)));
        match timing {
            Timing::Fast => runs.push(Mode::Fast),
            Timing::Random => runs.extend(seeds.map(Mode::Random)),
            Timing::Latest => runs.extend(seeds.map(Mode::Latest)),
            // Stands alone.
            Timing::Explore => {}
        }
    }
    let ctas: u64 = setup.launch.grid.iter().map(|&n| u64::from(n)).product();
    let mut watch = Watch::new(ctas.saturating_mul(runs.len() as u64));
    let any_order = adds_floats_atomically(kernel.ptx.text());
    let mut first: Option<Memory> = None;
    let mut totals: BTreeMap<&str, (u32, Report)> = BTreeMap::new();
    for (k, &mode) in runs.iter().enumerate() {
        let mut memory = setup.memory.clone();
        watch.begin(&describe(mode), ctas * k as u64, k == 0 && args.trace.is_some());
        let options = RunOptions { stats: k == 0 && args.counts(), ..options(args, mode) };
        let done = Machine::run(&kernel.program, &setup.launch, &mut memory, &options, &mut watch);
        if let (Some(trace), Some(file)) = (watch.trace.take(), &args.trace) {
            write_output(file, &trace.json())?;
        }
        let printed = memory.take_printed();
        if !printed.is_empty() && (k == 0 || done.is_err()) {
            watch.end();
            write_output("-", &printed)?;
        }
        let mut report = match done {
            Ok(report) => report,
            Err(fault) => {
                watch.end();
                return Err(fails(kernel, &describe(mode), &fault));
            }
        };
        let wrong = |message: String| {
            watch.end();
            complain(&format!("error[result]: {}: {message}\n", describe(mode)));
            Err(Failure::Diagnostics)
        };
        if let Err(message) = judge.compare(setup, &memory) {
            return wrong(message);
        }
        if let Some(stats) = report.stats.take() {
            *counted = Some((describe(mode), stats));
        }
        let (count, sum) = totals.entry(name(mode)).or_default();
        *count += 1;
        sum.steps += report.steps;
        sum.ctas += report.ctas;
        sum.operations += report.operations;
        match &first {
            None => first = Some(memory),
            Some(one) => {
                if let Some(place) = setup.difference(one, &memory, !any_order) {
                    return wrong(format!("{place} is not what the first run ({}) left", describe(runs[0])));
                }
            }
        }
    }
    watch.end();
    for (name, (count, r)) in &totals {
        say(&format!(
            "{name}: {count} runs, {} warp instructions, {} CTAs, {} asynchronous operations",
            r.steps, r.ctas, r.operations
        ))?;
    }
    Ok(first.unwrap_or_else(|| setup.memory.clone()))
}

/// Runs the launch in all orders that differ.
fn explore_all(args: &Args, kernel: &Kernel, setup: &Setup, judge: &Judge) -> Result<Memory, Failure> {
    let limits = Limits { runs: args.max_runs, ..Limits::default() };
    let options = options(args, Mode::Fast);
    let mut first: Option<Memory> = None;
    let any_order = adds_floats_atomically(kernel.ptx.text());
    let mut wrong: Option<String> = None;
    let mut check = |memory: &Memory| {
        let place = first.as_ref().and_then(|one| setup.difference(one, memory, !any_order));
        let result = match (judge.compare(setup, memory), place) {
            (Ok(()), Some(place)) => Err(format!("{place} depends on the order")),
            (result, _) => result,
        };
        first.get_or_insert_with(|| memory.clone());
        wrong = result.as_ref().err().cloned();
        result
    };
    match explore(&kernel.program, &setup.launch, &setup.memory, &options, limits, &mut check) {
        Ok(e) => {
            let all = if e.exhausted { "all orders" } else { "not all orders: a limit was reached" };
            say(&format!("explore: {} runs, {} of them complete; {all}", e.runs, e.complete))?;
            Ok(first.unwrap_or_else(|| setup.memory.clone()))
        }
        Err(fault) => match wrong {
            Some(message) => {
                complain(&format!("error[result]: explore: {message}\n"));
                Err(Failure::Diagnostics)
            }
            None => Err(fails(kernel, "explore", &fault)),
        },
    }
}

fn name(mode: Mode) -> &'static str {
    match mode {
        Mode::Fast => "fast",
        Mode::Random(_) => "random",
        Mode::Latest(_) => "latest",
    }
}

fn describe(mode: Mode) -> String {
    match mode {
        Mode::Fast => "fast".into(),
        Mode::Random(seed) | Mode::Latest(seed) => format!("{}, seed {seed}", name(mode)),
    }
}

fn fails(kernel: &Kernel, run: &str, fault: &Fault) -> Failure {
    let from = kernel.source.as_ref().map(|_| "the PTX is what `tileas compile` writes");
    kernel.ptx.report_fault(fault, run, from);
    // The launch itself is refused: the arguments are to blame.
    if fault.code == "launch" { Failure::Usage } else { Failure::Diagnostics }
}

/// Watches runs: a bar on a terminal, and a trace if one is wanted.
struct Watch {
    bar: Option<ProgressBar>,
    start: u64,
    trace: Option<ChromeTrace>,
}

impl Watch {
    fn new(total: u64) -> Watch {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(total);
            // Only a malformed template is an error.
            if let Ok(style) = ProgressStyle::with_template("{bar:40} {pos}/{len} CTAs, {msg}, {elapsed}") {
                bar.set_style(style);
            }
            bar
        });
        Watch { bar, start: 0, trace: None }
    }

    fn begin(&mut self, what: &str, start: u64, trace: bool) {
        self.start = start;
        self.trace = trace.then(ChromeTrace::default);
        if let Some(bar) = &self.bar {
            bar.set_message(what.to_owned());
            bar.set_position(start);
        }
    }

    fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

impl Trace for Watch {
    fn on(&self) -> bool {
        self.bar.is_some() || self.trace.is_some()
    }

    fn event(&mut self, e: &TraceEvent) {
        if let Some(bar) = &self.bar
            && bar.position() < self.start + u64::from(e.cta)
        {
            bar.set_position(self.start + u64::from(e.cta));
        }
        if let Some(trace) = &mut self.trace {
            trace.event(e);
        }
    }
}
