//! The micro-kernels: assembled by ptxas where it is at hand, and run by the emulator against the
//! expected bytes under several timings.

use crate::support::{self, launch};

use std::collections::BTreeSet;

use support::{Case, cases, folder, words};
use tileas_emu::RunOptions;
use tileas_emu::num::approx::{Fun, div_accepts};
use tileas_emu::num::format::{F16, F32};
use tileas_emu::sched::launch::Mode;

#[test]
fn assembled_by_ptxas() {
    let Ok(ptxas) = std::env::var("PTXAS") else {
        assert!(std::env::var_os("TILEAS_REQUIRE_PTXAS").is_none(), "PTXAS is not set");
        return;
    };
    let mut seen = BTreeSet::new();
    for case in cases("") {
        let path = folder().join(case.json["kernel"].as_str().unwrap());
        if !seen.insert(path.clone()) {
            continue;
        }
        let text = case.kernel();
        let target = text.lines().find_map(|l| l.strip_prefix(".target ")).unwrap();
        let out = std::process::Command::new(&ptxas)
            .args(["-v", &format!("-arch={}", target.trim()), "-o", "/dev/null"])
            .arg(&path)
            .output()
            .expect("ptxas starts");
        let log = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "{}: {log}", path.display());
        for bad in ["serialized", "injected", "warning"] {
            assert!(!log.contains(bad), "{}: {log}", path.display());
        }
    }
    assert!(seen.len() >= 80, "{}", seen.len());
}

/// The Python that is named, else the one on the path. None only where there is none and none is demanded.
fn python() -> Option<std::ffi::OsString> {
    if let Some(named) = std::env::var_os("TILEAS_PYTHON").filter(|p| !p.is_empty()) {
        return Some(named);
    }
    let runs =
        std::process::Command::new("python3").arg("--version").output().is_ok_and(|o| o.status.success());
    let demanded = std::env::var_os("CI").is_some() || std::env::var_os("TILEAS_REQUIRE_PTXAS").is_some();
    assert!(runs || !demanded, "neither TILEAS_PYTHON nor python3: the validation script is not checked");
    runs.then(|| "python3".into())
}

fn script(args: &[&std::ffi::OsStr]) -> Option<String> {
    let out = std::process::Command::new(python()?)
        .args(args)
        .current_dir(folder())
        .output()
        .expect("python starts");
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(out.status.success(), "{args:?}: {text}{}", String::from_utf8_lossy(&out.stderr));
    Some(text)
}

#[test]
fn scripts_write_these_files() {
    script(&["../../validate/validate_gpu.py".as_ref(), "--self-test".as_ref()]);
    // This one needs numpy, so it runs where a Python is named.
    if std::env::var_os("TILEAS_PYTHON").is_some() {
        script(&["expected.py".as_ref(), "--check".as_ref()]);
    }
}

/// The validation script from end to end with the emulator in the GPU's place, and with one wrong byte.
#[test]
fn validation_runs_dry() {
    let dumps = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("validate");
    std::fs::create_dir_all(&dumps).unwrap();
    let (mut index, mut count) = (serde_json::Map::new(), 0);
    for case in cases("") {
        let buffers =
            launch::run(&case, RunOptions::default()).unwrap_or_else(|e| panic!("{}: {e}", case.name()));
        for (name, bytes) in buffers {
            std::fs::write(dumps.join(format!("{}.{name}.bin", case.name())), bytes).unwrap();
        }
        index.insert(case.name().into(), "ok".into());
        count += 1;
    }
    let json = serde_json::json!({ "cases": index });
    std::fs::write(dumps.join("index.json"), json.to_string()).unwrap();
    let args =
        ["../../validate/validate_gpu.py".as_ref(), "--dry".as_ref(), "--dumps".as_ref(), dumps.as_os_str()];
    let Some(text) = script(&args) else { return };
    let last = text.lines().last().unwrap_or("");
    assert_eq!(last, format!("{count} cases: {count} ran, 0 disagree, 0 failed, 0 of other targets"));
    // A byte that is wrong is reported.
    let file = dumps.join("ldmatrix.out.bin");
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[5] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    let out =
        std::process::Command::new(python().unwrap()).args(args).current_dir(folder()).output().unwrap();
    assert_eq!(out.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&out.stdout).contains("1 disagree"));
}

#[test]
fn every_file_belongs_to_a_case() {
    let mut used = BTreeSet::new();
    for case in cases("") {
        for b in case.json["buffers"].as_array().unwrap() {
            for key in ["file", "expect"] {
                if let Some(f) = b[key].as_str() {
                    assert!(used.insert(f.to_string()), "{f} is used twice");
                }
            }
            case.input(b["name"].as_str().unwrap());
        }
    }
    for f in std::fs::read_dir(folder().join("data")).unwrap() {
        let name = format!("data/{}", f.unwrap().file_name().to_str().unwrap());
        assert!(used.contains(&name), "{name} is used by no case");
    }
}

/// First difference from the expected bytes that the section's rule does not allow.
fn difference(case: &Case, buffer: &str, found: &[u8]) -> Option<String> {
    let want = case.expect(buffer);
    let sections = case.sections(buffer);
    if sections.is_empty() {
        let at = want.iter().zip(found).position(|(a, b)| a != b)?;
        return Some(format!("{buffer} byte {at}: {:#x}, want {:#x}", found[at], want[at]));
    }
    for (label, at, bytes, rule) in sections {
        let (w, f) = (words(&want[at..at + bytes]), words(&found[at..at + bytes]));
        let rule = rule["rule"].as_str().unwrap_or("exact").to_string();
        let Some(i) = (0..w.len()).find(|&i| w[i] != f[i]) else { continue };
        if rule == "report" {
            continue;
        }
        // The formulas round an f64 result: at most one unit from the emulator's, and both within
        // the instruction's bound of the exact value.
        let close = |i: usize| {
            if rule == "exact" {
                return w[i] == f[i];
            }
            if label.contains("f16x2") {
                return [0, 16].iter().all(|s| (w[i] >> s & 0xFFFF).abs_diff(f[i] >> s & 0xFFFF) <= 1);
            }
            w[i].abs_diff(f[i]) <= 1
        };
        if let Some(bad) = (i..w.len()).find(|&i| !close(i)) {
            return Some(format!("{label} element {bad}: {:#x}, want {:#x}", f[bad], w[bad]));
        }
    }
    None
}

/// Runs all cases with a prefix under several timings; returns a line per problem.
fn problems(prefix: &str) -> Vec<String> {
    let mut out = vec![];
    for case in cases(prefix) {
        for mode in [Mode::Fast, Mode::Random(1), Mode::Random(2), Mode::Latest(3)] {
            let options = RunOptions { mode, ..RunOptions::default() };
            let bad = match launch::run(&case, options) {
                Ok(buffers) => buffers.iter().find_map(|(name, bytes)| difference(&case, name, bytes)),
                Err(e) => Some(e),
            };
            if let Some(bad) = bad {
                out.push(format!("{} {mode:?}: {bad}", case.name()));
                break;
            }
        }
    }
    out
}

macro_rules! family {
    ($($name:ident: $($prefix:literal),+;)+) => {
        $(#[test]
        fn $name() {
            let bad: Vec<String> = [$($prefix),+].iter().flat_map(|p| problems(p)).collect();
            assert!(bad.is_empty(), "{} problems:\n{}", bad.len(), bad.join("\n"));
        })+
    };
}

family! {
    run_arithmetic: "f32_arith", "half_arith", "f32x2", "approx";
    run_conversions: "cvt_";
    run_bits_and_shuffles: "bits", "shuffle";
    run_matrix_moves: "ldmatrix", "stmatrix", "mma_";
    run_wgmma: "wgmma_";
    run_bulk_copies: "tma_";
    run_tensor_memory: "tmem_";
    run_tensor_core: "umma_";
    run_gemm: "gemm_";
    run_clusters: "clusters_";
}

#[test]
fn bounds_reject_what_is_wrong() {
    // The comparison above would accept neighbours; the crate's own bounds decide about hardware.
    let x = 0.3f32;
    let want = Fun::Ex2.eval_f32(x, true);
    assert!(!Fun::Ex2.accepts(&F32, x.to_bits().into(), true, u64::from(want.to_bits() + 8)));
    assert!(!Fun::Tanh.accepts(&F16, 0x3C00, false, 0x3800));
    assert!(!div_accepts(1.0, 3.0, true, false, 0.34));
}
