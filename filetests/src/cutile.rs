//! Kernels of CUDA Tile IR, compiled and run against what they should give.
//!
//! In: a folder with `NAME.tileirbc`, `NAME.json` (the launch: parameters of the entry in order, arrays, what they hold afterwards) and
//! the arrays as `.npy`. A kernel is read, checked, lowered, compiled for a target, assembled where an assembler is at hand, and run in
//! the emulator with everything at once, as late as allowed, and at random, under every detector.

use crate::device::{self, Runner};
use crate::external;
use anyhow::{Context as _, Result, bail, ensure};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;
use tileas_codegen::{Context, Settings};
use tileas_emu::host::data::Elem;
use tileas_emu::{Detectors, Machine, Memory, Mode, NoTrace, Program, RunOptions};
use tileas_launch::{Arg, Device, View};
use tileas_tileir::{Limits, Module};

#[derive(Deserialize)]
struct Case {
    symbol: String,
    grid: [u32; 3],
    params: Vec<Param>,
    arrays: BTreeMap<String, ArrayData>,
    expect: BTreeMap<String, Expected>,
}

#[derive(Deserialize)]
struct Param {
    kind: String,
    array: Option<String>,
    value: Option<serde_json::Value>,
    /// Elements from the array's first to the one that is passed.
    #[serde(default)]
    offset: u64,
}

#[derive(Deserialize)]
struct ArrayData {
    dtype: String,
    file: String,
    /// Words that are to be the addresses of arrays.
    #[serde(default)]
    addresses: Vec<Address>,
}

#[derive(Deserialize)]
struct Address {
    index: usize,
    array: String,
}

#[derive(Deserialize)]
struct Expected {
    file: String,
    rtol: f64,
    atol: f64,
}

/// Data of an `.npy` file, without its header.
fn npy(path: &Path) -> Result<Vec<u8>> {
    let bytes = std::fs::read(path).with_context(|| path.display().to_string())?;
    ensure!(bytes.starts_with(b"\x93NUMPY"), "{}: no npy file", path.display());
    let header = usize::from(u16::from_le_bytes([bytes[8], bytes[9]])) + 10;
    Ok(bytes[header..].to_vec())
}

/// What is known of a kernel when it has run.
#[derive(Debug)]
pub struct Ran {
    /// What the assembler said.
    pub assembled: String,
    /// The PTX.
    pub ptx: String,
}

/// Bytes on both sides of an array that nothing may write.
const GUARD: usize = 256;

/// Runs one kernel on one target, in the emulator.
///
/// # Errors
/// Whatever is not as it should be, and in which step.
pub fn run(folder: &Path, name: &str, target: &str, modes: &[Mode]) -> Result<Ran> {
    run_in(folder, name, target, Place::Emulator(modes))
}

/// Runs one kernel on a device.
///
/// # Errors
/// As [`run`].
pub fn run_on(runner: &Runner, folder: &Path, name: &str) -> Result<Ran> {
    run_in(folder, name, runner.device().target(), Place::Device(runner))
}

/// Where a kernel runs.
enum Place<'a> {
    Emulator(&'a [Mode]),
    Device(&'a Runner),
}

fn run_in(folder: &Path, name: &str, target: &str, place: Place<'_>) -> Result<Ran> {
    let file = |name: &str| folder.join(name);
    let case = std::fs::read_to_string(file(&format!("{name}.json")))?;
    let case: Case = serde_json::from_str(&case).context("the description")?;
    let bytes = std::fs::read(file(&format!("{name}.tileirbc")))?;
    let module = Module::read(&bytes, &Limits::default()).map_err(|e| anyhow::anyhow!("read: {e}"))?;
    module.verify().map_err(|e| anyhow::anyhow!("verify: {e}"))?;
    let lowered = tileas_tileir::lower(&module, target).map_err(|e| anyhow::anyhow!("lower: {e}"))?;
    let mut builder = Settings::builder();
    builder.set("target", target).map_err(|e| anyhow::anyhow!("{e:?}"))?;
    let settings = builder.finish();
    let isa = tileas_isa::isa_for(&lowered.module, &settings).map_err(|e| anyhow::anyhow!("{e:?}"))?;
    let compiled = Context::new().compile(&lowered.module, &*isa, &settings).map_err(|errors| {
        let all: Vec<String> = errors.into_iter().map(|e| e.to_string()).collect();
        anyhow::anyhow!("compile: {}", all.join("\n"))
    })?;
    let ptx = compiled.ptx().to_owned();
    let assembled = match external::missing(crate::TestKind::Ptxas) {
        None => external::assemble(&format!("cutile_{name}_{target}"), target, &ptx)?,
        Some(_) => String::new(),
    };
    let all = tileas_launch::json::read(&compiled.metadata_json())?;
    let metadata = all.iter().find(|m| m.kernel == case.symbol).context("no metadata of the kernel")?;
    let (mut memory, mut places) = (Memory::new(), BTreeMap::new());
    for (array, data) in &case.arrays {
        let content = npy(&file(&data.file))?;
        let mut bytes = vec![0x5A_u8; GUARD];
        bytes.extend_from_slice(&content);
        bytes.extend_from_slice(&[0x5A; GUARD]);
        places.insert(array.clone(), (memory.alloc(bytes), content.len(), data.dtype.clone()));
    }
    for (array, data) in &case.arrays {
        for a in &data.addresses {
            let address = memory.address(places.get(&a.array).context("no such array")?.0) + GUARD as u64;
            let bytes = memory.bytes_mut(places[array].0).context("no such array")?;
            bytes[GUARD + 8 * a.index..][..8].copy_from_slice(&address.to_le_bytes());
        }
    }
    let mut args: Vec<Arg> = Vec::new();
    for p in &case.params {
        args.push(match (&p.array, &p.value) {
            (Some(array), _) => {
                let (buffer, bytes, dtype) = places.get(array).context("no such array")?;
                let elem = Elem::by_name(known_type(dtype)).with_context(|| format!("dtype {dtype}"))?;
                let address = memory.address(*buffer) + GUARD as u64 + p.offset * elem.bytes() as u64;
                let extents = [(*bytes / elem.bytes().max(1)) as i64];
                let mut view = View::dense(address, tileas_launch::Elem::U8, &extents);
                view.elem = None;
                Arg::View(view)
            }
            (None, Some(v)) if p.kind.starts_with('f') || p.kind.starts_with("bf") => {
                Arg::Float(v.as_f64().context("a number")?)
            }
            (None, Some(v)) => {
                Arg::Int(v.as_i64().or_else(|| v.as_bool().map(i64::from)).context("an integer")?)
            }
            _ => bail!("a parameter of kind {} without value", p.kind),
        });
    }
    let prepared = metadata
        .launch(&args, &Device { sms: 4 }, Some(case.grid))
        .map_err(|e| anyhow::anyhow!("launch: {e}"))?;
    let judge = |memory: &Memory| -> Result<()> {
        for (array, want) in &case.expect {
            let (buffer, len, dtype) = places.get(array).context("no such array")?;
            let elem = Elem::by_name(known_type(dtype)).with_context(|| format!("dtype {dtype}"))?;
            let got = &memory.bytes(*buffer)[GUARD..GUARD + len];
            compare(array, elem, got, &npy(&file(&want.file))?, want)?;
        }
        for (array, (buffer, len, _)) in &places {
            let bytes = memory.bytes(*buffer);
            let guards = bytes[..GUARD].iter().chain(&bytes[GUARD + len..]);
            ensure!(guards.into_iter().all(|&b| b == 0x5A), "{array} is written out of bounds");
        }
        Ok(())
    };
    match place {
        Place::Emulator(modes) => {
            let program =
                Program::parse(&ptx).map_err(|d| anyhow::anyhow!("the emulator does not read it: {d:?}"))?;
            let launch = prepared.emulated(&metadata.kernel).map_err(|e| anyhow::anyhow!("launch: {e}"))?;
            for &mode in modes {
                let mut memory = memory.clone();
                let options = RunOptions {
                    mode,
                    detectors: Detectors::ALL,
                    max_steps: 400_000_000,
                    resident: if matches!(mode, Mode::Random(s) if s % 2 == 0) { 2 } else { 1 },
                    ..RunOptions::default()
                };
                if let Err(fault) = Machine::run(&program, &launch, &mut memory, &options, &mut NoTrace) {
                    bail!("run, {mode:?}: {fault}\n{}", fault.events.join("\n"));
                }
                judge(&memory).with_context(|| format!("{mode:?}"))?;
            }
        }
        Place::Device(runner) => {
            let kernel = runner.load(&ptx, metadata)?;
            let buffers: Vec<_> = places.values().map(|p| p.0).collect();
            let pointers: Vec<_> = case
                .arrays
                .iter()
                .flat_map(|(array, data)| {
                    let buffer = places[array].0;
                    data.addresses.iter().map(move |a| (buffer, GUARD + 8 * a.index))
                })
                .collect();
            let launch =
                device::Launch { args: &args, grid: prepared.grid, buffers: &buffers, pointers: &pointers };
            for run in 0..device::RUNS {
                let mut memory = memory.clone();
                runner.run(&kernel, &launch, &mut memory)?;
                judge(&memory).with_context(|| format!("run {run}"))?;
            }
        }
    }
    Ok(Ran { assembled, ptx })
}

/// A type's name as the emulator has it.
fn known_type(dtype: &str) -> &str {
    match dtype {
        "tf32" => "f32",
        "bool" => "i1",
        other => other,
    }
}

fn compare(array: &str, elem: Elem, got: &[u8], want: &[u8], bounds: &Expected) -> Result<()> {
    let size = elem.bytes().max(1);
    ensure!(got.len() == want.len(), "{array}: {} bytes, {} are expected", got.len(), want.len());
    let mut wrong = Vec::new();
    for (i, (g, w)) in got.chunks(size).zip(want.chunks(size)).enumerate() {
        if g == w {
            continue;
        }
        let (x, y) = (elem.read(g), elem.read(w));
        let near = (x - y).abs() <= bounds.atol + bounds.rtol * y.abs();
        if !(near || x.is_nan() && y.is_nan() || x == y) {
            wrong.push(format!("element {i} is {x}, not {y}"));
        }
    }
    ensure!(
        wrong.is_empty(),
        "wrong: {array}: {} of {} elements: {}",
        wrong.len(),
        got.len() / size,
        wrong.iter().take(4).cloned().collect::<Vec<_>>().join("; ")
    );
    Ok(())
}
