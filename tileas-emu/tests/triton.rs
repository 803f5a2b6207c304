//! PTX that another compiler makes: kernels of `tests/triton/kernels.py`, compiled by Triton when the test runs, against
//! results of numpy, under several timings with all detectors (one case without, where the script says why).
//!
//! Needs a Python with triton and numpy (`TILEAS_PYTHON`, else `python3`); `cargo xtask test` provides one.

mod common;

use common::{all, none};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use tileas_emu::num::f32_from;
use tileas_emu::num::format::{BF16, F16, F32};
use tileas_emu::*;

/// Runs the script; the folder it has filled.
fn made() -> PathBuf {
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("triton");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/triton/kernels.py");
    let named = std::env::var_os("TILEAS_PYTHON").filter(|p| !p.is_empty());
    let python = named.unwrap_or_else(|| "python3".into());
    let run =
        Command::new(&python).arg(&script).arg(&out).env("TRITON_CACHE_DIR", out.join("cache")).output();
    let run = run.unwrap_or_else(|e| panic!("{}: {e}", Path::new(&python).display()));
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    out
}

fn number(v: &Value) -> u32 {
    v.as_u64().and_then(|n| n.try_into().ok()).expect("a number")
}

fn triple(v: &Value) -> [u32; 3] {
    [number(&v[0]), number(&v[1]), number(&v[2])]
}

/// The numbers of a tensor's bytes.
fn numbers(ty: &str, bytes: &[u8]) -> Vec<f32> {
    let format = match ty {
        "fp16" => &F16,
        "bf16" => &BF16,
        "fp32" => &F32,
        _ => panic!("type {ty}"),
    };
    let word = |c: &[u8]| c.iter().rev().fold(0u64, |v, &x| v << 8 | u64::from(x));
    bytes.chunks_exact(format.bits as usize / 8).map(|c| f32_from(format, word(c))).collect()
}

/// The tensor map of a dense matrix of halves.
fn map(m: &Value, address: u64) -> Arg {
    let dims = [number(&m["dims"][0]).into(), number(&m["dims"][1]).into()];
    let swizzles = [Swizzle::None, Swizzle::B32, Swizzle::B64, Swizzle::B128];
    Arg::map(MapDesc {
        elem: TmaType::F16,
        address,
        dims: dims.to_vec(),
        strides: vec![2 * dims[0]],
        box_dims: vec![number(&m["box"][0]), number(&m["box"][1])],
        element_strides: vec![],
        swizzle: swizzles[number(&m["swizzle"]) as usize],
        oob: OobFill::Zero,
    })
}

/// Runs a case and says what is wrong.
fn run(folder: &Path, case: &Value, mode: Mode) -> Result<(), String> {
    let name = case["name"].as_str().expect("a name");
    let file = |name: &str| std::fs::read(folder.join(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
    let text = String::from_utf8(file(&format!("{name}.ptx"))).expect("text");
    let program =
        Program::parse(&text).map_err(|e| e.iter().map(|d| d.to_string()).collect::<Vec<_>>().join("\n"))?;
    let entry = case["entry"].as_str().map(String::from);
    let params = program.kernel(entry.as_deref()).map_or(0, |k| k.params.len());
    let mut memory = Memory::new();
    let (mut args, mut results) = (Vec::new(), Vec::new());
    for p in case["params"].as_array().expect("parameters") {
        if let Some(bytes) = p["scalar"].as_array() {
            args.push(Arg::Bytes(bytes.iter().map(|b| number(b) as u8).collect()));
            continue;
        }
        let id = memory.alloc(file(p["buffer"].as_str().expect("a file")));
        let address = memory.address(id);
        args.push(if p["map"].is_null() { Arg::u64(address) } else { map(&p["map"], address) });
        if let Some(want) = p["expect"].as_str() {
            results.push((id, p["type"].as_str().expect("a type"), numbers("fp32", &file(want))));
        }
    }
    // Scratch memory that none of the kernels asks for.
    args.resize(params, Arg::u64(0));
    let launch = Launch {
        kernel: entry,
        grid: triple(&case["grid"]),
        block: triple(&case["block"]),
        dynamic_smem: number(&case["smem"]),
        args,
        ..Launch::default()
    };
    let options = if case["detectors"] == true { all(mode) } else { none(mode) };
    Machine::run(&program, &launch, &mut memory, &options, &mut NoTrace).map_err(|f| f.to_string())?;
    assert!(!results.is_empty(), "{name} has no results");
    let tol = case["tol"].as_f64().expect("a tolerance") as f32;
    for (id, ty, want) in results {
        let got = numbers(ty, memory.bytes(id));
        assert_eq!(got.len(), want.len(), "{name}");
        // A comparison that NaN fails.
        let near = |(g, w): (&f32, &f32)| (g - w).abs() <= tol * (1.0 + w.abs());
        if let Some(i) = got.iter().zip(&want).position(|x| !near(x)) {
            return Err(format!("element {i}: {} instead of {}", got[i], want[i]));
        }
    }
    Ok(())
}

#[test]
#[ignore = "needs Python with triton and numpy: cargo xtask test"]
fn kernels_of_triton_run() {
    let folder = made();
    let text = std::fs::read_to_string(folder.join("cases.json")).expect("cases.json");
    let cases: Vec<Value> = serde_json::from_str(&text).expect("a list of cases");
    assert!(cases.len() >= 16, "{} cases", cases.len());
    let mut bad = Vec::new();
    for case in &cases {
        let begin = std::time::Instant::now();
        for mode in [Mode::Fast, Mode::Latest(1), Mode::Random(1), Mode::Random(3)] {
            if let Err(e) = run(&folder, case, mode) {
                bad.push(format!("{}, {mode:?}: {e}", case["name"]));
                break;
            }
        }
        println!("{}: {:.1} s", case["name"], begin.elapsed().as_secs_f32());
    }
    assert!(bad.is_empty(), "{}", bad.join("\n"));
}
