//! Every kernel of the execution suite: agents over channels compute what the source says, whatever the timing.
//!
//! The launch, shapes and scalars come from the `; case:` lines of the files, the data from a seed. No expectation is
//! written down: the sequential run of the source kernel is the oracle for the materialised one.

use std::path::{Path, PathBuf};
use tileas_codegen::ir::{Function, Scalar, parse_module};
use tileas_codegen::isa::Triple;
use tileas_codegen::{Context, Settings, Stage};
use tileas_interp::{Arg, Buffer, Limits, Memory, Timing, View, run_agents, run_sequential};

struct Case {
    grid: [u32; 3],
    json: serde_json::Value,
}

fn cases(text: &str) -> Vec<Case> {
    text.lines()
        .filter_map(|l| l.strip_prefix("; case:"))
        .map(|l| {
            let json: serde_json::Value = serde_json::from_str(l).expect("a case is JSON");
            let mut grid = [1; 3];
            for (g, v) in grid.iter_mut().zip(json["grid"].as_array().expect("a grid")) {
                *g = v.as_u64().expect("a number") as u32;
            }
            Case { grid, json }
        })
        .collect()
}

fn elem(name: &str) -> Scalar {
    let name = name.replace('u', "i");
    Scalar::from_name(&name).unwrap_or_else(|| panic!("no element type {name}"))
}

/// Buffers and arguments of a case: small integers, so that sums are exact in any order.
fn setup(f: &Function, case: &Case, seed: u64) -> (Memory, Vec<Arg>) {
    let mut memory = Memory::new();
    let mut args = Vec::new();
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for &p in f.params() {
        let name = f.value_name(p).expect("parameters have names");
        let view = &case.json["views"][name];
        if view.is_null() {
            let v = &case.json["scalars"][name];
            let float = f.value_data(p).as_scalar().is_some_and(Scalar::is_float);
            args.push(if float {
                Arg::Float(v.as_f64().expect("a number"))
            } else {
                Arg::Int(v.as_i64().unwrap_or_else(|| panic!("{name} is no integer")))
            });
            continue;
        }
        let sizes: Vec<i64> =
            view["shape"].as_array().expect("a shape").iter().map(|n| n.as_i64().expect("a size")).collect();
        let ty = elem(view["dtype"].as_str().expect("a type"));
        let len = sizes.iter().product::<i64>() as usize;
        let mut buffer = Buffer::new(ty, len);
        for i in 0..len {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let x = if view["init"] == "nan" { 77.0 } else { (state % 5) as f64 - 2.0 };
            buffer.set(i, x);
        }
        let mut strides = vec![1i64; sizes.len()];
        for k in (0..sizes.len().saturating_sub(1)).rev() {
            strides[k] = strides[k + 1] * sizes[k + 1];
        }
        let buffer = memory.add(buffer);
        let view = View { buffer, offset: 0, sizes: sizes.into(), strides: strides.into(), elem: ty };
        args.push(Arg::View(view));
    }
    (memory, args)
}

fn materialised(text: &str) -> Function {
    let settings = Settings::builder().finish();
    let module = parse_module(text).expect("the file parses");
    let triple: Triple = tileas_isa_blackwell::TRIPLE.parse().expect("a triple");
    let isa = tileas_isa_blackwell::isa(&triple, "sm_100a", settings.flags()).expect("a target");
    let mut context = Context::new();
    let run = context.run_to(Stage::Materialized, &module, &*isa, &settings).expect("compiles");
    let printed = run.text(Stage::Materialized);
    parse_module(&printed).expect("the print parses").functions[0].clone()
}

fn check(path: &Path) {
    let text = std::fs::read_to_string(path).expect("readable");
    if !text.contains("; case:") {
        return;
    }
    let name = path.display();
    let module = parse_module(&text).expect("the file parses");
    let source = &module.functions[0];
    let agents = materialised(&text);
    let limits = Limits::default();
    for (n, case) in cases(&text).iter().enumerate() {
        let (mut want, args) = setup(source, case, 7);
        let start = want.clone();
        run_sequential(source, case.grid, &args, &mut want, &limits)
            .unwrap_or_else(|e| panic!("{name} case {n}: in program order: {e}"));
        let timings = [Timing::Fast, Timing::Latest, Timing::Random(1), Timing::Random(n as u64 + 2)];
        for timing in timings {
            let mut got = start.clone();
            run_agents(&agents, case.grid, &args, &mut got, timing, &limits)
                .unwrap_or_else(|e| panic!("{name} case {n} {timing:?}: {e}"));
            for (k, (g, w)) in got.buffers.iter().zip(&want.buffers).enumerate() {
                assert_eq!(
                    g.written(),
                    w.written(),
                    "{name} case {n} {timing:?}: elements written in buffer {k}"
                );
                if let Some(i) = (0..g.len()).find(|&i| {
                    let (x, y) = (g.float(i), w.float(i));
                    g.int(i) != w.int(i)
                        || (x != y && !(x.is_some_and(f64::is_nan) && y.is_some_and(f64::is_nan)))
                }) {
                    let (x, y) = (g.float(i), w.float(i));
                    panic!(
                        "{name} case {n} {timing:?}: buffer {k} element {i} is {x:?}, the source says {y:?}"
                    );
                }
            }
        }
    }
}

fn files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../filetests/filetests/execute");
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .expect("the folder exists")
        .map(|e| e.expect("readable").path())
        .filter(|p| p.extension().is_some_and(|e| e == "tileas"))
        .collect();
    files.sort();
    files
}

fn shard(k: usize) {
    let files = files();
    assert!(files.len() > 60, "the suite is there");
    files.iter().skip(k).step_by(4).for_each(|p| check(p));
}

#[test]
fn agents_compute_what_the_source_says_0() {
    shard(0);
}

#[test]
fn agents_compute_what_the_source_says_1() {
    shard(1);
}

#[test]
fn agents_compute_what_the_source_says_2() {
    shard(2);
}

#[test]
fn agents_compute_what_the_source_says_3() {
    shard(3);
}
