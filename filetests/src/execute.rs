//! Runs the cases of a kernel three times: in program order, agent by agent, and as PTX.
//!
//! In: the source kernel, its materialised form, PTX with launch metadata, cases. The sequential interpreter is the
//! oracle: what it writes must be in memory after the multi-agent run and after the emulated PTX, element by element,
//! and every other byte must be what it was. A case may add formulas over whole matrices ([`crate::expr`]), which
//! check the oracle itself. Keys of a case:
//!
//! ```text
//! views     name -> {shape, dtype, init = ints|uniform|normal|ramp|zeros|ones|nan|special|number|[numbers],
//!           strides (elements), pad (guard bytes)}
//! scalars   name -> number, or an expression over the views (`ceildiv(a.d1, 64)`)
//! grid      default: what the metadata suggests; sms: default 4
//! seeds     of data and timing; default 1…8; `TILEAS_SEEDS=n` runs 1…n instead
//! expect    [{view, expr, tol = exact | "2^-9"}]
//! tol       of the comparison with the interpreter; default exact (NaNs are equal, and so are the zeros)
//! fails     a word of the fault the emulator must report
//! ```
//! Timings: everything at once, everything as late as allowed, and one random run per seed, all with every detector.

use crate::expr::{self, Matrix};
use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::collections::BTreeMap;
use tileas_codegen::ir::{Function, Scalar};
use tileas_emu::host::data::{Fill, Placed, ViewSpec, place};
use tileas_emu::host::expr::evaluate;
use tileas_emu::host::{Host, HostScalar, LaunchDoc, prepare, read_launch};
use tileas_emu::{Detectors, Machine, Mode, NoTrace, Program, RunOptions};
use tileas_interp::{Arg, Buffer, Limits, Timing, View, run_agents, run_sequential};

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

/// Most warp instructions of one emulated run.
const MAX_STEPS: u64 = 200_000_000;

/// Runs all cases.
///
/// # Errors
/// The first fault or difference, with case, seed and timing.
pub fn execute(forms: &Forms<'_>, cases: &[Value]) -> Result<()> {
    ensure!(!cases.is_empty(), "`test run` without a `; case:`");
    let program = Program::parse(forms.ptx).map_err(|list| {
        let lines: Vec<String> = list.iter().take(8).map(|d| format!("{d:?}")).collect();
        anyhow::anyhow!("the emulator does not read the PTX:\n{}", lines.join("\n"))
    })?;
    let docs = read_launch(forms.metadata).map_err(anyhow::Error::msg)?;
    let doc = docs.iter().find(|d| d.kernel == forms.source.name).context("no metadata of the kernel")?;
    for (n, case) in cases.iter().enumerate() {
        run_case(forms, &program, doc, case).with_context(|| format!("case {n}"))?;
    }
    Ok(())
}

fn seeds(case: &Value) -> Vec<u64> {
    if let Some(n) = std::env::var("TILEAS_SEEDS").ok().and_then(|v| v.parse().ok()) {
        return (1..=n).collect();
    }
    match case["seeds"].as_array() {
        Some(list) => list.iter().filter_map(Value::as_u64).collect(),
        None => (1..=8).collect(),
    }
}

/// Global memory and arguments of one run.
struct Setup {
    memory: tileas_emu::Memory,
    host: Host,
    views: BTreeMap<String, Placed>,
}

fn setup(case: &Value, seed: u64) -> Result<Setup> {
    let mut s = Setup {
        memory: tileas_emu::Memory::new(),
        host: Host { sms: case["sms"].as_u64().unwrap_or(4) as u32, ..Host::default() },
        views: BTreeMap::new(),
    };
    for (name, v) in case["views"].as_object().into_iter().flatten() {
        let list = |key: &str| -> Option<Vec<usize>> {
            v[key].as_array().map(|l| l.iter().filter_map(|n| Some(n.as_u64()? as usize)).collect())
        };
        let fill = match &v["init"] {
            Value::Null => Fill::Ints,
            Value::Number(x) => Fill::All(x.as_f64().unwrap_or(0.0)),
            Value::Array(list) => Fill::List(list.iter().map(|x| x.as_f64().unwrap_or(0.0)).collect()),
            text => text.as_str().and_then(Fill::parse).with_context(|| format!("{name}: init {text}"))?,
        };
        let spec = ViewSpec {
            shape: list("shape").with_context(|| format!("{name}: no shape"))?,
            strides: list("strides"),
            elem: v["dtype"].as_str().unwrap_or("f32").to_owned(),
            fill,
            pad: v["pad"].as_u64().unwrap_or(256) as usize,
        };
        let placed = place(name, &spec, seed, &mut s.memory, &mut s.host).map_err(anyhow::Error::msg)?;
        s.views.insert(name.clone(), placed);
    }
    for (name, v) in case["scalars"].as_object().into_iter().flatten() {
        let scalar = match (v.as_i64(), v.as_str()) {
            (Some(i), _) => HostScalar::Int(i),
            (_, Some(text)) => HostScalar::Int(evaluate(text, &s.host).map_err(anyhow::Error::msg)?),
            _ => HostScalar::Float(v.as_f64().with_context(|| format!("scalar {name}"))?),
        };
        s.host.scalars.insert(name.clone(), scalar);
    }
    Ok(s)
}

/// The same memory and arguments for the interpreters.
fn arguments(f: &Function, s: &Setup) -> Result<(tileas_interp::Memory, Vec<Arg>)> {
    let mut memory = tileas_interp::Memory::new();
    let mut args = Vec::new();
    for &p in f.params() {
        let name = f.value_name(p).unwrap_or("");
        let data = f.value_data(p);
        if let Some(v) = s.views.get(name) {
            let elem = data.elem().context("a view has an element type")?;
            let bytes = s.memory.bytes(v.buffer);
            let end = bytes.len() - v.offset;
            let buffer = memory.add(Buffer::from_bytes(elem, bytes[v.offset..end.max(v.offset)].to_vec()));
            args.push(Arg::View(View {
                buffer,
                offset: 0,
                sizes: v.shape.iter().map(|&n| n as i64).collect(),
                strides: v.strides.iter().map(|&n| n as i64).collect(),
                elem,
            }));
            continue;
        }
        let scalar = s.host.scalars.get(name).with_context(|| format!("the case lacks {name}"))?;
        let float = data.as_scalar().is_some_and(Scalar::is_float);
        args.push(match *scalar {
            HostScalar::Int(i) if float => Arg::Float(i as f64),
            HostScalar::Int(i) => Arg::Int(i),
            HostScalar::Float(x) => Arg::Float(x),
        });
    }
    Ok((memory, args))
}

fn run_case(forms: &Forms<'_>, program: &Program, doc: &LaunchDoc, case: &Value) -> Result<()> {
    let seeds = seeds(case);
    let grid = case["grid"].as_array().map(|list| {
        let mut g = [1u32; 3];
        g.iter_mut().zip(list).for_each(|(g, n)| *g = n.as_u64().unwrap_or(1) as u32);
        g
    });
    let tolerance = tolerance(&case["tol"])?;
    for (k, &seed) in seeds.iter().enumerate() {
        let start = setup(case, seed)?;
        let prepared = prepare(doc, &start.host, grid).map_err(anyhow::Error::msg)?;
        let launch = prepared.launch(&doc.kernel).map_err(anyhow::Error::msg)?;
        // The oracle.
        let (mut want, args) = arguments(forms.source, &start)?;
        let before = want.clone();
        let limits = Limits::default();
        run_sequential(forms.source, prepared.grid, &args, &mut want, &limits).context("in program order")?;
        formulas(case, &start, forms.source, &want, &args).with_context(|| format!("seed {seed}"))?;
        let mut timings = vec![Timing::Random(seed)];
        if k == 0 {
            timings.extend([Timing::Fast, Timing::Latest]);
        }
        for timing in timings {
            let mut got = before.clone();
            run_agents(forms.materialized, prepared.grid, &args, &mut got, timing, &limits)
                .with_context(|| format!("agent by agent, {timing:?}"))?;
            for (g, w) in got.buffers.iter().zip(&want.buffers) {
                ensure!(g.written() == w.written(), "agent by agent, {timing:?}: other elements are written");
                for i in 0..g.len() {
                    let (x, y) = (element(g, i), element(w, i));
                    ensure!(
                        close(x, y, tolerance),
                        "agent by agent, {timing:?}: element {i} is {x}, not {y}"
                    );
                }
            }
        }
        let mut modes = vec![Mode::Random(seed)];
        if k == 0 {
            modes.extend([Mode::Fast, Mode::Latest(seed)]);
        }
        for mode in modes {
            let mut memory = start.memory.clone();
            let options = RunOptions {
                mode,
                detectors: Detectors::ALL,
                max_steps: MAX_STEPS,
                resident: if matches!(mode, Mode::Random(s) if s % 2 == 0) { 2 } else { 1 },
                ..RunOptions::default()
            };
            let done = Machine::run(program, &launch, &mut memory, &options, &mut NoTrace);
            match (done, case["fails"].as_str()) {
                (Ok(_), None) => {}
                (Ok(_), Some(word)) => bail!("{mode:?}: runs, but should fail with `{word}`"),
                (Err(fault), Some(word)) if fault.to_string().contains(word) => continue,
                (Err(fault), _) => bail!("{mode:?}: {fault}\n{}", fault.events.join("\n")),
            }
            compare(forms.source, &start, &memory, &want, &args, tolerance)
                .with_context(|| format!("{mode:?}"))?;
        }
    }
    Ok(())
}

fn element(b: &Buffer, i: usize) -> f64 {
    b.float(i).or_else(|| b.int(i).map(|v| v as f64)).unwrap_or(f64::NAN)
}

fn tolerance(v: &Value) -> Result<f64> {
    match v {
        Value::Null => Ok(0.0),
        Value::Number(x) => Ok(x.as_f64().unwrap_or(0.0)),
        text => match text.as_str() {
            Some("exact") => Ok(0.0),
            Some(t) => match t.split_once('^') {
                Some((base, e)) => Ok(base.parse::<f64>()?.powf(e.parse()?)),
                None => Ok(t.parse()?),
            },
            None => bail!("tolerance {text}"),
        },
    }
}

/// Equal, or within `tolerance` of the larger of the reference and 1.
fn close(got: f64, want: f64, tolerance: f64) -> bool {
    got == want
        || (got.is_nan() && want.is_nan())
        || (tolerance > 0.0 && (got - want).abs() <= tolerance * want.abs().max(1.0))
}

/// Views in parameter order, as the interpreters number their buffers.
fn view_names<'a>(f: &'a Function, s: &Setup) -> Vec<&'a str> {
    f.params().iter().filter_map(|&p| f.value_name(p)).filter(|n| s.views.contains_key(*n)).collect()
}

/// Compares memory after a run with the oracle: written elements by value, everything else by bytes.
fn compare(
    f: &Function,
    start: &Setup,
    memory: &tileas_emu::Memory,
    want: &tileas_interp::Memory,
    args: &[Arg],
    tolerance: f64,
) -> Result<()> {
    let mut buffers: BTreeMap<&str, usize> = BTreeMap::new();
    for (&p, arg) in f.params().iter().zip(args) {
        if let (Some(name), Arg::View(v)) = (f.value_name(p), arg) {
            buffers.insert(name, v.buffer);
        }
    }
    for name in view_names(f, start) {
        let view = &start.views[name];
        let (before, after) = (start.memory.bytes(view.buffer), memory.bytes(view.buffer));
        let (size, oracle) = (view.elem.bytes(), &want.buffers[buffers[name]]);
        let mut expected = before.to_vec();
        let bits = |bytes: &[u8], at: usize| {
            let mut raw = [0; 8];
            raw[..size].copy_from_slice(&bytes[at..at + size]);
            view.elem.decode(u64::from_le_bytes(raw))
        };
        for i in oracle.written().ones() {
            let at = view.offset + i * size;
            let (got, reference) = (bits(after, at), bits(oracle.bytes(), i * size));
            ensure!(
                close(got, reference, tolerance),
                "{name}, element {i} of the buffer: {got}, the source computes {reference}"
            );
            expected[at..at + size].copy_from_slice(&after[at..at + size]);
        }
        if let Some(k) = (0..after.len()).find(|&k| after[k] != expected[k]) {
            bail!("{name}: byte {k} of the buffer was changed; nothing stores there");
        }
    }
    Ok(())
}

/// Checks the oracle against the formulas of the case.
fn formulas(
    case: &Value,
    start: &Setup,
    f: &Function,
    want: &tileas_interp::Memory,
    args: &[Arg],
) -> Result<()> {
    let Some(list) = case["expect"].as_array() else { return Ok(()) };
    let mut names = BTreeMap::new();
    for (name, v) in &start.views {
        if let Some(m) = Matrix::new(&v.shape, v.numbers(&start.memory)) {
            names.insert(name.clone(), m);
        }
    }
    for (name, v) in &start.host.scalars {
        let x = match *v {
            HostScalar::Int(i) => i as f64,
            HostScalar::Float(x) => x,
        };
        names.insert(name.clone(), Matrix::number(x));
    }
    for e in list {
        let (Some(view), Some(text)) = (e["view"].as_str(), e["expr"].as_str()) else {
            bail!("an expectation needs `view` and `expr`: {e}");
        };
        let reference = expr::evaluate(text, &names)?;
        let placed = start.views.get(view).with_context(|| format!("no view {view}"))?;
        let limit = tolerance(&e["tol"])?;
        let position = f.params().iter().position(|&p| f.value_name(p) == Some(view));
        let Some(Arg::View(v)) = position.and_then(|k| args.get(k)) else { bail!("{view} is no parameter") };
        let buffer = &want.buffers[v.buffer];
        let cols = placed.shape.last().copied().unwrap_or(1).max(1);
        for i in 0..placed.shape.iter().product::<usize>() {
            let at = (placed.byte(i) - placed.offset) / placed.elem.bytes();
            let x = reference.at(i / cols, i % cols);
            let rounded = placed.elem.decode(placed.elem.encode(x));
            let got = element(buffer, at);
            ensure!(
                close(got, rounded, limit),
                "{view}, element {i}: the source computes {got}, the formula `{text}` {rounded}"
            );
        }
    }
    Ok(())
}
