//! Runs the cases of a kernel three times: in program order, agent by agent, and as PTX.
//!
//! In: the source kernel, its materialised form, PTX with launch metadata, cases. The sequential interpreter is the
//! oracle: what it writes must be in memory after the multi-agent run and after the emulated PTX, element by element,
//! and every other byte must be what it was. Formulas of a case check the oracle itself. Keys of a case:
//!
//! ```text
//! views     name -> {shape, dtype, init = ints|uniform|normal|ramp|zeros|ones|nan|special|number|[numbers],
//!           strides (elements), pad (guard bytes)}
//! scalars   name -> number, or an expression over the views (`ceildiv(a.d1, 64)`)
//! grid      numbers or such expressions; default: what the metadata suggests; sms: default 4
//! seeds     of data and timing; default 1 and 2; `TILEAS_SEEDS=n` runs 1…n instead
//! expect    [{view, expr, tol, scale}]: all elements of the view afterwards, as a formula
//! written   view -> formula: not 0 for the elements that must be written, 0 for those that must not
//! tol       of the comparison of the three runs: "exact" (default), a number, "2^-9"
//! stats     {used_load, used_store: at least; conflicts, max_wavefronts, max_sectors, instructions, shuffles, barriers,
//!           waits, local: at most}: what the PTX costs under timing `fast` with the first seed; not on other targets
//! printed   what the kernel prints, CTA by CTA
//! assertion the message of an `assert` that does not hold: the runs in program order and as PTX end there
//! ```
//! A tolerance allows |difference| ≤ tol · scale. The scale is a formula (`abs(a) @ abs(b.T)`), or, if none is given, what
//! the kernel computes from magnitudes ([`tileas_interp::run_magnitudes`]): Σ|a·b| for sums of products.
//!
//! Timings, all with every detector: everything as late as allowed with the first seed, and in random order with each other one (with the first, if it is alone).
//! A sweep (`TILEAS_SEEDS`) also runs the first in random order, and with everything at once.
//! Formulas: [`tileas_emu::host::formula`].

use crate::device::{self, Runner};
use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use tileas_codegen::ir::Function;
use tileas_emu::host::check::{self, Reference, Tolerance};
use tileas_emu::host::data::{Fill, Placed, ViewSpec, place};
use tileas_emu::host::formula::{self, Array};
use tileas_emu::stats::Requests;
use tileas_emu::{Detectors, Machine, Mode, NoTrace, Program, RunOptions, Stats};
use tileas_interp::{Bound, Limits, Oracle, Timing, run_agents};
use tileas_launch::{Arg, Device, Elem, LaunchMetadata, Named, View};

/// One kernel in the forms that must agree.
pub struct Forms<'a> {
    /// As written.
    pub source: &'a Function,
    /// After materialisation.
    pub materialized: &'a Function,
    /// The PTX module.
    pub ptx: &'a str,
    /// Launch metadata of the module.
    pub metadata: &'a str,
}

/// One launch with its inputs and expectations; see the header of this module.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RunCase {
    views: BTreeMap<String, ViewCase>,
    scalars: BTreeMap<String, ScalarCase>,
    grid: Option<Vec<Number>>,
    sms: Option<u32>,
    seeds: Option<Vec<u64>>,
    expect: Vec<Expectation>,
    written: BTreeMap<String, String>,
    tol: Option<ToleranceCase>,
    stats: Option<StatsCase>,
    printed: Option<String>,
    assertion: Option<String>,
    /// Grids are made of whole clusters.
    #[serde(skip)]
    whole_clusters: bool,
}

/// Bounds of statistics ([`Stats`]): least of what is used, most of all else.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct StatsCase {
    /// Of the sectors that loads touch, from 0 to 1: the part that they ask for. Without loads it does not hold.
    used_load: Option<f64>,
    /// The same of stores.
    used_store: Option<f64>,
    /// Wavefronts that bank conflicts add, of the whole launch.
    conflicts: Option<u64>,
    /// Wavefronts of the whole launch.
    max_wavefronts: Option<u64>,
    /// Sectors of the whole launch that loads, stores and atomics touch.
    max_sectors: Option<u64>,
    /// Instructions of any one warp, without polls.
    instructions: Option<u64>,
    /// `shfl` of any one warp.
    shuffles: Option<u64>,
    /// `bar.sync`, `bar.red`, `barrier` of any one warp.
    barriers: Option<u64>,
    /// Waits at mbarriers of any one warp.
    waits: Option<u64>,
    /// Loads from and stores to local memory of any one warp.
    local: Option<u64>,
}

impl StatsCase {
    fn validate(&self) -> Result<()> {
        for (name, bound) in [("used_load", self.used_load), ("used_store", self.used_store)] {
            ensure!(bound.is_none_or(|b| (0.0..=1.0).contains(&b)), "stats: {name} is from 0 to 1");
        }
        Ok(())
    }

    /// Compares with what was counted; all that is out of bounds, with the line to blame.
    fn judge(&self, s: &Stats) -> Result<()> {
        let mut wrong = Vec::new();
        let least = |name: &str, what: &str, r: &Requests, bound: Option<f64>, wrong: &mut Vec<String>| {
            let Some(bound) = bound else { return };
            match r.used() {
                // A bound of nothing would hide that the kernel has come to do something else.
                None => wrong.push(format!("{name}: there are no {what}")),
                Some(x) if x < bound => wrong.push(format!("{name} is {x:.3}, less than {bound}")),
                Some(_) => {}
            }
        };
        least("used_load", "loads from global memory", &s.loads, self.used_load, &mut wrong);
        least("used_store", "stores to global memory", &s.stores, self.used_store, &mut wrong);
        let local = s.most.local_loads + s.most.local_stores;
        for (name, x, bound) in [
            ("conflicts", s.shared.conflicts(), self.conflicts),
            ("max_wavefronts", s.shared.wavefronts, self.max_wavefronts),
            ("max_sectors", s.loads.sectors + s.stores.sectors + s.atomics.sectors, self.max_sectors),
            ("instructions", s.most.instructions, self.instructions),
            ("shuffles", s.most.shuffles, self.shuffles),
            ("barriers", s.most.barriers, self.barriers),
            ("waits", s.most.waits, self.waits),
            ("local", local, self.local),
        ] {
            if let Some(bound) = bound.filter(|&b| x > b) {
                wrong.push(format!("{name} is {x}, more than {bound}"));
            }
        }
        if wrong.is_empty() {
            return Ok(());
        }
        for l in &s.lines {
            let (wasted, conflicts) = (l.global.wasted(), l.shared.conflicts());
            if wasted != 0 || conflicts != 0 {
                wrong.push(format!(
                    "line {}: {wasted} bytes wasted, {conflicts} conflicts: {}",
                    l.line, l.text
                ));
            }
        }
        bail!("statistics: {}", wrong.join("\n"))
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ViewCase {
    shape: Vec<usize>,
    dtype: String,
    init: Option<Value>,
    strides: Option<Vec<usize>>,
    pad: Option<usize>,
}

/// A number, or an expression over the arguments.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum Number {
    Int(i64),
    Text(String),
}

#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum ScalarCase {
    Int(i64),
    Float(f64),
    Text(String),
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Expectation {
    view: String,
    expr: String,
    tol: Option<ToleranceCase>,
    scale: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum ToleranceCase {
    Number(f64),
    Text(String),
}

impl ToleranceCase {
    fn value(this: Option<&ToleranceCase>) -> Result<Tolerance> {
        match this {
            None => Ok(Tolerance::EXACT),
            Some(ToleranceCase::Number(x)) if x.is_finite() && *x >= 0.0 => Ok(Tolerance { relative: *x }),
            Some(ToleranceCase::Number(x)) => bail!("tolerance {x}"),
            Some(ToleranceCase::Text(t)) => Tolerance::parse(t).with_context(|| format!("tolerance {t}")),
        }
    }
}

impl RunCase {
    /// Reads a case.
    ///
    /// # Errors
    /// Malformed JSON, unknown keys, values of the wrong type.
    pub fn parse(json: &str) -> Result<RunCase> {
        let case: RunCase = serde_json::from_str(json).with_context(|| format!("case {json}"))?;
        ToleranceCase::value(case.tol.as_ref())?;
        case.stats.iter().try_for_each(StatsCase::validate)?;
        for e in &case.expect {
            ToleranceCase::value(e.tol.as_ref())?;
            ensure!(case.views.contains_key(&e.view), "an expectation of {}, which is no view", e.view);
        }
        if let Some(name) = case.written.keys().find(|n| !case.views.contains_key(*n)) {
            bail!("{name} must be written, but is no view");
        }
        Ok(case)
    }

    /// The case with other seeds.
    #[must_use]
    pub fn with_seeds(&self, seeds: &[u64]) -> RunCase {
        RunCase { seeds: Some(seeds.to_vec()), ..self.clone() }
    }

    /// The case without bounds of statistics: they are of the file's kernel on the file's target.
    #[must_use]
    pub fn without_stats(self) -> RunCase {
        RunCase { stats: None, ..self }
    }

    /// The case with as many CTAs more as whole clusters take.
    #[must_use]
    pub fn in_clusters(self) -> RunCase {
        RunCase { whole_clusters: true, ..self }
    }

    /// The grid of its launch, if it is not the suggested one.
    fn grid(&self, metadata: &LaunchMetadata, start: &Setup, args: &[Arg]) -> Result<Option<[u32; 3]>> {
        let grid = self.grid.as_ref().map(|list| launch_grid(list, start)).transpose()?;
        if !self.whole_clusters {
            return Ok(grid);
        }
        let alone = LaunchMetadata { cluster: [1; 3], ..metadata.clone() };
        let mut grid = alone.launch(args, &start.device, grid)?.grid;
        for (n, of) in grid.iter_mut().zip(metadata.cluster) {
            *n = n.next_multiple_of(of.max(1));
        }
        Ok(Some(grid))
    }

    /// Whether something has a tolerance.
    fn is_approximate(&self) -> bool {
        let all = self.expect.iter().map(|e| e.tol.as_ref()).chain([self.tol.as_ref()]);
        all.into_iter().any(|t| ToleranceCase::value(t).is_ok_and(|t| t != Tolerance::EXACT))
    }

    fn seeds(&self) -> Vec<u64> {
        if let Some(n) = swept() {
            return (1..=n).collect();
        }
        self.seeds.clone().unwrap_or_else(|| vec![1, 2])
    }
}

/// How many seeds a sweep tries.
fn swept() -> Option<u64> {
    std::env::var("TILEAS_SEEDS").ok().and_then(|v| v.parse().ok())
}

/// Orders of events that a seed is run under.
#[derive(Clone, Copy)]
struct Orders {
    random: bool,
    fast: bool,
    latest: bool,
}

impl Orders {
    /// Of the seed at this place among so many.
    fn of(place: usize, seeds: usize) -> Orders {
        let (first, swept) = (place == 0, swept().is_some());
        Orders { random: !first || seeds == 1 || swept, fast: first && swept, latest: first }
    }
}

/// Most warp instructions of one emulated run.
const MAX_STEPS: u64 = 200_000_000;

/// Runs all cases.
///
/// # Errors
/// The first fault or difference, with case, seed and timing.
pub fn execute(forms: &Forms<'_>, cases: &[RunCase]) -> Result<()> {
    let metadata = metadata(forms, cases)?;
    let program = Program::parse(forms.ptx).map_err(|list| {
        let lines: Vec<String> = list.iter().take(8).map(|d| format!("{d:?}")).collect();
        anyhow::anyhow!("the emulator does not read the PTX:\n{}", lines.join("\n"))
    })?;
    for (n, case) in cases.iter().enumerate() {
        run_case(forms, &program, &metadata, case).with_context(|| format!("case {n}"))?;
    }
    Ok(())
}

/// Runs all cases on a device instead of the emulator, and nothing agent by agent.
///
/// # Errors
/// The first fault or difference, with case and seed.
pub fn execute_on(runner: &Runner, forms: &Forms<'_>, cases: &[RunCase]) -> Result<()> {
    let metadata = metadata(forms, cases)?;
    let kernel = runner.load(forms.ptx, &metadata)?;
    for (n, case) in cases.iter().enumerate() {
        for seed in case.seeds() {
            let place = || format!("case {n}, seed {seed}");
            let start = setup(case, seed).with_context(place)?;
            let args = start.args.of(&metadata)?;
            let grid = case.grid(&metadata, &start, &args)?;
            let grid = metadata.launch(&args, &start.device, grid).with_context(place)?.grid;
            let scaled = case.is_approximate();
            let oracle =
                oracle(forms.source, &start, grid, &Limits::default(), scaled).with_context(place)?;
            judge(case, &start, forms.source, &oracle).with_context(place)?;
            let buffers: Vec<_> = start.views.values().map(|v| v.buffer).collect();
            let launch = device::Launch { args: &args, grid, buffers: &buffers, pointers: &[] };
            let tolerance = ToleranceCase::value(case.tol.as_ref())?;
            for run in 0..device::RUNS {
                let mut memory = start.memory.clone();
                runner.run(&kernel, &launch, &mut memory).with_context(place)?;
                compare(forms.source, &start, &memory, &oracle, tolerance)
                    .with_context(|| format!("run {run}"))
                    .with_context(place)?;
            }
        }
    }
    Ok(())
}

/// Launch metadata of the kernel.
fn metadata(forms: &Forms<'_>, cases: &[RunCase]) -> Result<LaunchMetadata> {
    ensure!(!cases.is_empty(), "`test run` without a `; case:`");
    let all = tileas_launch::json::read(forms.metadata)?;
    all.into_iter().find(|m| m.kernel == forms.source.name).context("no metadata of the kernel")
}

/// Global memory and arguments of one run.
struct Setup {
    memory: tileas_emu::Memory,
    args: Named,
    device: Device,
    views: BTreeMap<String, Placed>,
}

fn setup(case: &RunCase, seed: u64) -> Result<Setup> {
    let mut s = Setup {
        memory: tileas_emu::Memory::new(),
        args: Named::default(),
        device: Device { sms: case.sms.unwrap_or(4) },
        views: BTreeMap::new(),
    };
    for (name, v) in &case.views {
        let fill = match &v.init {
            None => Fill::Ints,
            Some(Value::Number(x)) => Fill::All(x.as_f64().unwrap_or(0.0)),
            Some(Value::Array(list)) => {
                let numbers = list.iter().map(|x| x.as_f64().with_context(|| format!("{name}: init {x}")));
                Fill::List(numbers.collect::<Result<_>>()?)
            }
            Some(text) => {
                text.as_str().and_then(Fill::parse).with_context(|| format!("{name}: init {text}"))?
            }
        };
        let spec = ViewSpec {
            shape: v.shape.clone(),
            strides: v.strides.clone(),
            elem: v.dtype.clone(),
            fill,
            pad: v.pad.unwrap_or(256),
        };
        let placed = place(name, &spec, seed, &mut s.memory).map_err(anyhow::Error::msg)?;
        s.args.insert(name, View::emulated(&placed, &s.memory, Elem::by_name(&v.dtype)));
        s.views.insert(name.clone(), placed);
    }
    for (name, v) in &case.scalars {
        let scalar = match v {
            ScalarCase::Int(i) => Arg::Int(*i),
            ScalarCase::Float(x) => Arg::Float(*x),
            ScalarCase::Text(text) => Arg::Int(s.args.value(text, &s.device)?),
        };
        s.args.insert(name, scalar);
    }
    Ok(s)
}

/// The run in program order on the same memory and arguments.
fn oracle(f: &Function, start: &Setup, grid: [u32; 3], limits: &Limits, scaled: bool) -> Result<Oracle> {
    let bound = |name: &str| match (start.views.get(name), start.args.get(name)) {
        (Some(v), _) => {
            // Guard bytes lie on both sides.
            let bytes = start.memory.bytes(v.buffer);
            let bytes = bytes.get(v.offset..bytes.len() - v.offset).unwrap_or(&[]);
            Some(Bound::Tensor { bytes, shape: &v.shape, strides: &v.strides })
        }
        (None, Some(&Arg::Int(i))) => Some(Bound::Int(i)),
        (None, Some(&Arg::Float(x))) => Some(Bound::Float(x)),
        _ => None,
    };
    Oracle::new(f, grid, bound, limits, scaled).context("in program order")
}

/// The buffer of a view of the case.
fn buffer(oracle: &Oracle, f: &Function, view: &str) -> Result<usize> {
    oracle.buffer(f, view).with_context(|| format!("{view} is no view parameter of the kernel"))
}

fn run_case(forms: &Forms<'_>, program: &Program, metadata: &LaunchMetadata, case: &RunCase) -> Result<()> {
    let tolerance = ToleranceCase::value(case.tol.as_ref())?;
    let seeds = case.seeds();
    for (k, &seed) in seeds.iter().enumerate() {
        let orders = Orders::of(k, seeds.len());
        let start = setup(case, seed)?;
        let args = start.args.of(metadata)?;
        let prepared = metadata.launch(&args, &start.device, case.grid(metadata, &start, &args)?)?;
        let launch = prepared.emulated(&metadata.kernel)?;
        let limits = Limits::default();
        if let Some(message) = &case.assertion {
            let Err(e) = oracle(forms.source, &start, prepared.grid, &limits, false) else {
                bail!("seed {seed}: no assertion fails in program order");
            };
            ensure!(format!("{e:#}").contains(message.as_str()), "seed {seed}: {e:#}");
            for mode in [Mode::Random(seed), Mode::Fast, Mode::Latest(seed)] {
                let mut memory = start.memory.clone();
                let options = RunOptions { mode, max_steps: MAX_STEPS, ..RunOptions::default() };
                match Machine::run(program, &launch, &mut memory, &options, &mut NoTrace) {
                    Err(fault) if fault.code == "assert" && fault.message.contains(message.as_str()) => {
                        let printed = memory.take_printed();
                        let want = case.printed.as_deref().unwrap_or(&printed);
                        ensure!(want == printed, "{mode:?}: printed\n{printed}\ninstead of\n{want}");
                    }
                    Err(fault) => bail!("{mode:?}: {fault}"),
                    Ok(_) => bail!("{mode:?}: no assertion fails"),
                }
            }
            continue;
        }
        let oracle = oracle(forms.source, &start, prepared.grid, &limits, case.is_approximate())?;
        judge(case, &start, forms.source, &oracle).with_context(|| format!("seed {seed}"))?;
        let timings = [
            (orders.random, Timing::Random(seed)),
            (orders.fast, Timing::Fast),
            (orders.latest, Timing::Latest),
        ];
        for (_, timing) in timings.into_iter().filter(|(wanted, _)| *wanted) {
            let mut got = oracle.before.clone();
            run_agents(forms.materialized, prepared.grid, &oracle.args, &mut got, timing, &limits)
                .with_context(|| format!("agent by agent, {timing:?}"))?;
            for (n, (g, w)) in got.buffers.iter().zip(&oracle.after.buffers).enumerate() {
                ensure!(g.written() == w.written(), "agent by agent, {timing:?}: other elements are written");
                for i in 0..g.len() {
                    let (x, y) = (g.number(i), w.number(i));
                    ensure!(
                        tolerance.allows(x, y, oracle.scale(n, i)),
                        "agent by agent, {timing:?}: element {i} is {x}, not {y}"
                    );
                }
            }
        }
        // What a kernel costs is counted under one timing.
        let fast = orders.fast || k == 0 && case.stats.is_some();
        let modes =
            [(orders.random, Mode::Random(seed)), (fast, Mode::Fast), (orders.latest, Mode::Latest(seed))];
        for (_, mode) in modes.into_iter().filter(|(wanted, _)| *wanted) {
            let mut memory = start.memory.clone();
            let options = RunOptions {
                mode,
                detectors: Detectors::ALL,
                max_steps: MAX_STEPS,
                resident: if matches!(mode, Mode::Random(s) if s % 2 == 0) { 2 } else { 1 },
                stats: case.stats.is_some() && mode == Mode::Fast,
                ..RunOptions::default()
            };
            let report = match Machine::run(program, &launch, &mut memory, &options, &mut NoTrace) {
                Ok(report) => report,
                Err(fault) => bail!("{mode:?}: {fault}\n{}", fault.events.join("\n")),
            };
            if let (Some(bounds), Some(stats)) = (&case.stats, &report.stats) {
                bounds.judge(stats)?;
            }
            let printed = memory.take_printed();
            if let Some(want) = case.printed.as_ref().filter(|want| **want != printed) {
                bail!("{mode:?}: printed\n{printed}\ninstead of\n{want}");
            }
            compare(forms.source, &start, &memory, &oracle, tolerance)
                .with_context(|| format!("{mode:?}"))?;
        }
    }
    Ok(())
}

fn launch_grid(list: &[Number], start: &Setup) -> Result<[u32; 3]> {
    ensure!(list.len() <= 3, "a grid has up to three extents");
    let mut grid = [1; 3];
    for (g, n) in grid.iter_mut().zip(list) {
        let v = match n {
            Number::Int(v) => *v,
            Number::Text(t) => start.args.value(t, &start.device)?,
        };
        *g = u32::try_from(v).with_context(|| format!("a grid of {v}"))?;
    }
    Ok(grid)
}

/// Compares memory after a run with the oracle: written elements by value, everything else by bytes.
fn compare(
    f: &Function,
    start: &Setup,
    memory: &tileas_emu::Memory,
    oracle: &Oracle,
    tolerance: Tolerance,
) -> Result<()> {
    for (name, view) in &start.views {
        let n = buffer(oracle, f, name)?;
        let want = &oracle.after.buffers[n];
        let references = want.written().ones().map(|i| Reference {
            byte: view.offset + i * view.elem.bytes(),
            value: want.number(i),
            integer: want.whole(i),
            scale: oracle.scale(n, i),
        });
        let (before, after) = (start.memory.bytes(view.buffer), memory.bytes(view.buffer));
        check::compare(name, view, before, after, references, tolerance)?;
    }
    Ok(())
}

/// Checks the oracle against the formulas of the case.
fn judge(case: &RunCase, start: &Setup, f: &Function, oracle: &Oracle) -> Result<()> {
    if case.expect.is_empty() && case.written.is_empty() {
        return Ok(());
    }
    let mut names = BTreeMap::new();
    for (name, v) in &start.views {
        names.extend(Array::new(&v.shape, v.numbers(&start.memory)).map(|a| (name.clone(), a)));
    }
    for (name, arg) in start.args.iter() {
        let x = match *arg {
            Arg::Int(i) => i as f64,
            Arg::Float(x) => x,
            Arg::View(_) => continue,
        };
        names.insert(name.to_owned(), Array::number(x));
    }
    // All elements of a view that a formula describes.
    let array = |text: &str, view: &Placed| -> Result<Vec<f64>> {
        let value = formula::evaluate(text, &names).and_then(|a| a.broadcast(&view.shape));
        Ok(value.map_err(anyhow::Error::msg)?.data)
    };
    for e in &case.expect {
        let view = &start.views[&e.view];
        let (n, text) = (buffer(oracle, f, &e.view)?, &e.expr);
        let reference = array(text, view)?;
        let scale = e.scale.as_ref().map(|s| array(s, view)).transpose()?;
        let tolerance = ToleranceCase::value(e.tol.as_ref())?;
        for (i, x) in reference.into_iter().enumerate() {
            let at = (view.byte(i) - view.offset) / view.elem.bytes();
            let rounded = view.elem.decode(view.elem.encode(x));
            let got = oracle.after.buffers[n].number(at);
            let scale = scale.as_ref().map_or_else(|| oracle.scale(n, at), |s| s[i]);
            ensure!(
                tolerance.allows(got, rounded, scale),
                "{}{}: the source computes {got}, the formula `{text}` {rounded}",
                e.view,
                view.describe(view.byte(i))
            );
        }
    }
    for (name, text) in &case.written {
        let view = &start.views[name];
        let written = oracle.after.buffers[buffer(oracle, f, name)?].written();
        for (i, must) in array(text, view)?.into_iter().enumerate() {
            let is = written.contains((view.byte(i) - view.offset) / view.elem.bytes());
            ensure!(
                is == (must != 0.0),
                "{name}{}: the source {} it, but `{text}` is {must}",
                view.describe(view.byte(i)),
                if is { "writes" } else { "does not write" }
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tileas_emu::stats::{Counts, Shared};

    const KERNEL: &str = "kernel @k(%x: view<gmem, ?xf32>, %y: view<gmem, ?xf32>) {
      %i = program_id <{axis = 0}> : i32
      %t = tiled_load %x[%i] : tile<32xf32>
      %u = subf %t, 1.0
      tiled_store %u, %y[%i]
      return
    }";

    fn judged(case: &str) -> Result<()> {
        let case = RunCase::parse(case)?;
        let module = tileas_codegen::ir::parse_module(KERNEL).expect("parses");
        let f = &module.functions[0];
        let start = setup(&case, 1)?;
        let oracle = oracle(f, &start, [2, 1, 1], &Limits::default(), case.is_approximate())?;
        judge(&case, &start, f, &oracle)
    }

    #[test]
    fn formulas_and_masks_judge_the_oracle() {
        let case = |more: &str| {
            judged(&format!(
                r#"{{"views": {{"x": {{"shape": [100], "dtype": "f32"}}, "y": {{"shape": [100], "dtype": "f32"}}}}, {more}}}"#
            ))
        };
        let right = "where(arange(100) < 64, x - 1, y)";
        assert!(case(&format!(r#""expect": [{{"view": "y", "expr": "{right}"}}]"#)).is_ok());
        assert!(case(r#""expect": [{"view": "y", "expr": "x - 1"}]"#).is_err());
        assert!(case(r#""written": {"y": "arange(100) < 64", "x": "0"}"#).is_ok());
        assert!(case(r#""written": {"y": "arange(100) < 65"}"#).is_err());
        assert!(case(r#""written": {"y": "arange(100) < 63"}"#).is_err());
        // The magnitude of x - 1 is |x| + 1: up to 3 here. Off by 1/4 passes 2^-1 and not 2^-5.
        let off = format!("{right} + 0.25");
        let near = |t: &str, scale: &str| {
            case(&format!(r#""expect": [{{"view": "y", "expr": "{off}", "tol": "{t}"{scale}}}]"#))
        };
        assert!(near("2^-1", r#", "scale": "abs(x) + 1""#).is_ok());
        assert!(near("2^-5", r#", "scale": "abs(x) + 1""#).is_err());
        assert!(near("2^-5", r#", "scale": "8""#).is_ok());
        let off = format!("where(arange(100) < 64, {right} + 0.25, y)");
        let near = |t: &str| case(&format!(r#""expect": [{{"view": "y", "expr": "{off}", "tol": {t}}}]"#));
        assert!(near("0.25").is_ok(), "{:?}", near("0.25"));
        assert!(near("0.05").is_err());
    }

    #[test]
    fn unknown_keys_are_refused() {
        for bad in [
            r#"{"vews": {}}"#,
            r#"{"views": {"a": {"shape": [1]}}}"#,
            r#"{"views": {"a": {"shape": [1], "dtype": "f32", "fill": 1}}}"#,
            r#"{"expect": [{"view": "a", "expr": "1"}]}"#,
            r#"{"written": {"a": "1"}}"#,
            r#"{"tol": "close"}"#,
            r#"{"tol": -1}"#,
            r#"{"stats": {"used": 0.9}}"#,
            r#"{"stats": {"used_load": 1.5}}"#,
            r#"{"stats": {"conflicts": -1}}"#,
            r#"{"stats": 1}"#,
            "[1]",
        ] {
            assert!(RunCase::parse(bad).is_err(), "{bad}");
        }
        assert!(RunCase::parse("{}").is_ok());
    }

    #[test]
    fn statistics_are_bounded() {
        let s = Stats {
            loads: Requests { requests: 4, sectors: 8, bytes: 192 },
            shared: Shared { requests: 4, wavefronts: 9, ideal: 8 },
            most: Counts { shuffles: 5, local_loads: 1, ..Counts::default() },
            total: Counts { shuffles: 20, local_loads: 4, ..Counts::default() },
            ..Stats::default()
        };
        let judge = |json: &str| {
            let case = RunCase::parse(&format!(r#"{{"stats": {json}}}"#)).expect("parses");
            case.stats.expect("has bounds").judge(&s).map_err(|e| e.to_string())
        };
        assert!(judge("{}").is_ok());
        let right = r#"{"used_load": 0.75, "conflicts": 1, "max_wavefronts": 9, "max_sectors": 8, "shuffles": 5,
            "barriers": 0, "waits": 0, "local": 1, "instructions": 0}"#;
        assert_eq!(judge(right), Ok(()));
        for (bad, what) in [
            (r#"{"used_load": 0.76}"#, "used_load is 0.750, less than 0.76"),
            (r#"{"used_store": 0.0}"#, "used_store: there are no stores to global memory"),
            (r#"{"conflicts": 0}"#, "conflicts is 1, more than 0"),
            (r#"{"max_wavefronts": 8}"#, "max_wavefronts is 9, more than 8"),
            (r#"{"max_sectors": 7}"#, "max_sectors is 8, more than 7"),
            (r#"{"shuffles": 4}"#, "shuffles is 5, more than 4"),
            (r#"{"local": 0}"#, "local is 1, more than 0"),
        ] {
            assert_eq!(judge(bad), Err(format!("statistics: {what}")));
        }
    }
}
