//! `tileas tune`: tile sizes and options of a kernel for given arguments.

use crate::Failure;
use crate::commands::run::args::pair;
use crate::commands::run::device::{self, Choice};
use crate::diagnostics::complain;
use crate::input::{Common, say, write_output};
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::time::Instant;
use tileas_codegen::Context;
use tileas_jit::{Device, Elem, Jit, KernelArg, Tensor};
use tileas_launch::Arg;
use tileas_tune::{Argument, Axis, Look, Search, Space, Tuner, plot};

const HELP: &str = "\
Axes (--space):
  bm=c.d0:64,128,256      extents of the tiles along dimension 0 of the parameter c; all tiles that have to have the same extent
                          change with it. `bm` is its name, for --arg
  pipeline-depth=2..6     values of an option; `tileas options` lists them
Arguments (--arg NAME=VALUE, by parameter name):
  a=4096x4096             extents of a view (/STRIDES in elements behind it; default: rows without gaps)
  kt='ceildiv(a.d1, bk)'  an integer: an expression over extents (a.d1), strides (a.s0) and the axes' names
  alpha=0.5               a floating-point number

Times are modelled on the rows that `tileas isa` prints under \"a whole GPU\" and \"real cycles\"; with --device cuda the best few are
measured as well, on zeros, and the best of these is chosen.

Example:
  tileas tune examples/gemm_f16.tileas --space bm=c.d0:64,128 --space bn=c.d1:64,128,256 --space bk=a.d1:32,64,128 \\
      --space pipeline-depth=2..6 --arg a=4096x4096 --arg b=4096x4096 --arg bias=4096 --arg c=4096x4096 \\
      --arg kt='ceildiv(a.d1, bk)' --plot tune.svg -o tuned.tileas";

/// Arguments.
#[derive(clap::Args)]
#[command(after_long_help = HELP)]
pub struct Args {
    /// File with the kernel; `-` is standard input
    file: String,
    /// Kernel, where the file has several
    #[arg(long, value_name = "NAME")]
    kernel: Option<String>,
    /// What may be changed; see below
    #[arg(long = "space", value_name = "AXIS", required_unless_present = "dimensions")]
    space: Vec<String>,
    /// An argument; see below
    #[arg(long = "arg", value_name = "NAME=VALUE", value_parser = pair)]
    args: Vec<(String, String)>,
    /// List the dimensions that can be changed, and do nothing else
    #[arg(long)]
    dimensions: bool,
    /// Points looked at [default: a fifth of the space, but at least 8]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    budget: Option<u32>,
    /// Look at all points
    #[arg(long, conflicts_with = "budget")]
    exhaustive: bool,
    /// Where the best are measured: `emulator` (not at all), `cuda` or `cuda:N`
    #[arg(long, value_name = "DEVICE", default_value = "emulator", value_parser = device::parse)]
    device: Choice,
    /// Points measured
    #[arg(long, value_name = "N", default_value_t = 8)]
    measure: usize,
    /// Lines of the table
    #[arg(long, value_name = "N", default_value_t = 10)]
    top: usize,
    /// Write all looks, in the order of looking, as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<String>,
    /// Write a drawing
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<String>,
    /// Write the kernel with the best tile sizes
    #[arg(short, long, value_name = "FILE")]
    output: Option<String>,
    #[command(flatten)]
    common: Common,
}

fn report(code: &str, message: &str) -> Failure {
    complain(&format!("error[{code}]: {message}\n"));
    Failure::Diagnostics
}

fn refused(e: &tileas_tune::Error) -> Failure {
    report(e.code, &e.message);
    Failure::Usage
}

/// Tunes.
pub fn run(args: &Args) -> Result<(), Failure> {
    let input = args.common.read(&args.file)?;
    let names: Vec<&str> = input.module.functions.iter().map(|f| f.name.as_str()).collect();
    let kernel = super::run::choose(args.kernel.as_deref(), &names)?;
    if args.dimensions {
        let func = input.module.functions.iter().find(|f| f.name == kernel);
        for (names, extent) in func.map(tileas_tune::Dimensions::of_kernel).unwrap_or_default() {
            say(&format!("{extent:>6}  {}", names.join(" = ")))?;
        }
        return Ok(());
    }
    let axes: Result<Vec<Axis>, _> = args.space.iter().map(|text| Axis::parse(text)).collect();
    let space = axes.and_then(Space::new).map_err(|e| refused(&e))?;
    let list = args.args.iter().map(|(name, value)| (name.clone(), Argument::Text(value.clone()))).collect();
    let tuner = Tuner::new(&input.module, kernel, &input.settings, space, list).map_err(|e| refused(&e))?;
    let budget = if args.exhaustive { Some(tuner.space().points()) } else { args.budget.map(|n| n as usize) };

    let mut looks = search(&tuner, budget);
    let mut order: Vec<usize> = (0..looks.len()).filter(|&n| looks[n].time.is_some()).collect();
    order.sort_by(|&a, &b| looks[a].cost().total_cmp(&looks[b].cost()));
    if order.is_empty() {
        let why = looks.iter().find_map(|l| l.error.clone()).unwrap_or_default();
        return Err(report("E1504", &format!("none of {} points works; the first: {why}", looks.len())));
    }
    if let Some(device) = device::gpu(args.device)? {
        order.truncate(args.measure.max(1));
        measure(&tuner, &device, &mut looks, &order)?;
        order.sort_by(|&a, &b| looks[a].cost().total_cmp(&looks[b].cost()));
    }
    say(&format!("{} of {} points looked at", looks.len(), tuner.space().points()))?;
    table(&looks, &order, args.top)?;
    let best = &looks[order[0]];
    chosen(args, &tuner, best)?;
    if let Some(file) = &args.json {
        let text = serde_json::to_string_pretty(&looks).unwrap_or_default() + "\n";
        write_output(file, &text)?;
    }
    if let Some(file) = &args.plot {
        write_output(file, &plot::svg(kernel, &looks))?;
    }
    Ok(())
}

/// Looks at points until the search ends, under a progress bar.
fn search(tuner: &Tuner, budget: Option<usize>) -> Vec<Look> {
    let mut search = Search::new(tuner.space(), tuner.start(), budget);
    let bar = std::io::stderr().is_terminal().then(|| {
        let bar = ProgressBar::new(search.left() as u64);
        if let Ok(style) = ProgressStyle::with_template("{bar:40} {pos}/{len} points, {msg}, {elapsed}") {
            bar.set_style(style);
        }
        bar
    });
    let (mut context, mut looks) = (Context::new(), Vec::new());
    loop {
        let batch = search.next_batch();
        if batch.is_empty() {
            break;
        }
        for point in batch {
            let look = tuner.look(&mut context, &point);
            search.tell(&point, look.time.is_some().then(|| look.cost()));
            looks.push(look);
            if let (Some(bar), Some((_, best))) = (&bar, search.best()) {
                bar.set_message(format!("best {best:.2} us"));
                bar.inc(1);
            }
        }
    }
    bar.iter().for_each(ProgressBar::finish_and_clear);
    looks
}

/// Measures points on a GPU.
fn measure(tuner: &Tuner, device: &Device, looks: &mut [Look], order: &[usize]) -> Result<(), Failure> {
    let jit = Jit::new(device).map_err(|e| report(e.code.as_str(), &e.message))?;
    for &n in order {
        let us = one(tuner, &jit, &looks[n].point);
        match us {
            Ok(us) => looks[n].measured_us = Some(us),
            Err((code, message)) => looks[n].error = Some(format!("{code}: {message}")),
        }
    }
    Ok(())
}

/// Microseconds of a launch: the mean of as many as fit into a tenth of a second, after one.
fn one(tuner: &Tuner, jit: &Jit, point: &[usize]) -> Result<f64, (String, String)> {
    let of_jit = |e: tileas_jit::Error| (e.code.to_string(), e.message);
    let of_tuner = |e: tileas_tune::Error| (e.code.to_owned(), e.message);
    let (module, settings) = tuner.configuration(point).map_err(of_tuner)?;
    let args = tuner.arguments(point).map_err(of_tuner)?;
    let name = module.functions.first().map(|f| f.name.clone()).unwrap_or_default();
    let kernel = jit.kernel_with(&module, &name, &settings).map_err(of_jit)?;
    let device = jit.device();
    let mut tensors: Vec<Option<Tensor>> = Vec::new();
    for arg in &args {
        tensors.push(match arg {
            Arg::View(v) => {
                let elem = v.elem.unwrap_or(Elem::U8);
                let span = Tensor::span(elem, &v.extents, &v.strides).unwrap_or(usize::MAX);
                let elements = i64::try_from(span / elem.bytes().max(1) as usize).unwrap_or(i64::MAX);
                let all = device.zeros(elem, &[elements]).map_err(of_jit)?;
                Some(all.window(0, &v.extents, &v.strides).map_err(of_jit)?)
            }
            _ => None,
        });
    }
    let list: Vec<KernelArg<'_>> = args
        .iter()
        .zip(&tensors)
        .map(|(arg, tensor)| match tensor {
            Some(tensor) => KernelArg::Tensor(tensor, true),
            None => KernelArg::Number(arg.clone()),
        })
        .collect();
    let stream = device.stream().map_err(of_jit)?;
    let go = |times: u32| {
        let begin = Instant::now();
        for _ in 0..times {
            kernel.launch(&stream, &list)?;
        }
        stream.synchronize()?;
        Ok(begin.elapsed().as_secs_f64() * 1e6)
    };
    // The first loads the code.
    go(1)
        .and_then(|_| go(1))
        .and_then(|first| {
            let times = (100_000.0 / first.max(1.0)).clamp(1.0, 10_000.0) as u32;
            Ok(go(times)? / f64::from(times))
        })
        .map_err(of_jit)
}

fn table(looks: &[Look], order: &[usize], top: usize) -> Result<(), Failure> {
    let values =
        |look: &Look| look.values.iter().map(|(n, v)| format!("{n}={v}")).collect::<Vec<_>>().join(" ");
    let width = order.iter().take(top).map(|&n| values(&looks[n]).len()).max().unwrap_or(0);
    let measured = order.iter().any(|&n| looks[n].measured_us.is_some());
    let head = if measured { "  measured us" } else { "" };
    say(&format!("  modelled us{head}  {:<width$}  CTAs x per SM  shared bytes  what binds", "point"))?;
    for &n in order.iter().take(top) {
        let look = &looks[n];
        let Some(t) = &look.time else { continue };
        let real = match look.measured_us {
            Some(us) => format!("  {us:>11.2}"),
            None if measured => format!("  {:>11}", "-"),
            None => String::new(),
        };
        say(&format!(
            "  {:>11.2}{real}  {:<width$}  {:>4} x {:>6}  {:>12}  {}{}",
            t.us,
            values(look),
            t.ctas,
            t.resident,
            look.smem,
            t.binds,
            if t.tensor_share > 0.0 {
                format!(", {:.0} % of tensor peak", t.tensor_share * 100.0)
            } else {
                String::new()
            },
        ))?;
    }
    Ok(())
}

/// Says how to have the best point, and writes its kernel.
fn chosen(args: &Args, tuner: &Tuner, best: &Look) -> Result<(), Failure> {
    let mut command = Vec::new();
    for (axis, value) in tuner.space().values(&best.point) {
        if axis.what == tileas_tune::What::Option {
            command.push(format!("--set {}={value}", axis.name));
        }
    }
    if let Some(file) = &args.output {
        write_output(file, &tuner.text(&best.point).map_err(|e| refused(&e))?)?;
    }
    let tiles: Vec<String> = tuner
        .space()
        .values(&best.point)
        .filter(|(axis, _)| axis.what != tileas_tune::What::Option)
        .map(|(axis, value)| format!("{}={value}", axis.name))
        .collect();
    say(&format!("best: {} {}", tiles.join(" "), command.join(" ")))
}
