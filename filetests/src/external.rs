//! Tools outside the workspace: the assembler and the emulator.
//!
//! `PTXAS` names the assembler, `TILEAS_PYTHON` a Python with numpy (default: `python3`). Tests that need a missing
//! tool are listed as ignored, unless `TILEAS_REQUIRE_PTXAS` is set: then they fail. `cargo xtask test` sets all three.

use crate::TestKind;
use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// Whether missing tools are failures.
pub fn required() -> bool {
    std::env::var_os("TILEAS_REQUIRE_PTXAS").is_some_and(|v| v != "0" && !v.is_empty())
}

/// Why a command cannot run here; `None` if it can.
pub fn missing(kind: TestKind) -> Option<&'static str> {
    match kind {
        TestKind::Ptxas if std::env::var_os("PTXAS").is_none() => Some("PTXAS is not set"),
        TestKind::Execute if !has_python() => Some("no Python with numpy (TILEAS_PYTHON)"),
        _ => None,
    }
}

fn python() -> OsString {
    std::env::var_os("TILEAS_PYTHON").unwrap_or_else(|| "python3".into())
}

fn has_python() -> bool {
    static FOUND: OnceLock<bool> = OnceLock::new();
    *FOUND.get_or_init(|| {
        let mut command = Command::new(python());
        command.args(["-c", "import numpy"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|s| s.success())
    })
}

/// A folder for the files of one test.
fn folder(name: &str) -> Result<PathBuf> {
    let base = match option_env!("CARGO_TARGET_TMPDIR") {
        Some(dir) => PathBuf::from(dir),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/tmp"),
    };
    let folder = base.join("filetests").join(name.replace(['/', ':', '\\'], "_"));
    std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    Ok(folder)
}

/// Assembles a module: no error, no warning that names a spill, no local memory.
///
/// # Errors
/// What the assembler says.
pub fn ptxas(name: &str, target: &str, ptx: &str) -> Result<String> {
    let tool = std::env::var_os("PTXAS").context("PTXAS is not set")?;
    let folder = folder(name)?;
    let (source, object) = (folder.join("kernel.ptx"), folder.join("kernel.cubin"));
    std::fs::write(&source, ptx)?;
    let mut command = Command::new(&tool);
    command.arg(format!("-arch={target}")).arg("-v").arg("-o").arg(&object).arg(&source).stdin(Stdio::null());
    let output = command.output().with_context(|| format!("cannot start {}", Path::new(&tool).display()))?;
    let mut said = String::from_utf8_lossy(&output.stdout).into_owned();
    said.push_str(&String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "ptxas fails on {}\n{said}", source.display());
    judge(&said).with_context(|| format!("in {}\n{said}", source.display()))?;
    Ok(said)
}

/// Reads the statistics of `ptxas -v`.
fn judge(said: &str) -> Result<()> {
    let mut functions = 0;
    for line in said.lines().filter(|l| l.contains("bytes stack frame")) {
        functions += 1;
        for part in line.split(',') {
            let mut words = part.split_whitespace();
            let count: u64 = words.next().and_then(|w| w.parse().ok()).context("unreadable statistics")?;
            ensure!(count == 0, "{}", part.trim());
        }
    }
    ensure!(functions > 0, "no statistics");
    Ok(())
}

/// Runs cases in the emulator. `metadata` is `{"kernels": […]}`.
///
/// # Errors
/// What the emulator reports, or that it could not be started.
pub fn execute(name: &str, ptx: &str, metadata: &str, cases: &[Value]) -> Result<()> {
    ensure!(!cases.is_empty(), "`test execute` without a `; case:`");
    let folder = folder(name)?;
    std::fs::write(folder.join("kernel.ptx"), ptx)?;
    std::fs::write(folder.join("kernel.json"), metadata)?;
    let list: Vec<Value> = cases.iter().enumerate().map(|(i, case)| complete(name, i, case)).collect();
    let file = folder.join("cases.json");
    std::fs::write(&file, serde_json::to_string_pretty(&list)?)?;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("emu").join("run.py");
    let mut command = Command::new(python());
    // Tests run in parallel already.
    command.arg(script).arg("--jobs").arg("1").arg(&file).stdin(Stdio::null());
    let output = command.output().context("cannot start Python")?;
    if !output.status.success() {
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        bail!("the emulator reports, for {}\n{out}{err}", file.display());
    }
    Ok(())
}

/// A case with its files and a name.
fn complete(name: &str, i: usize, case: &Value) -> Value {
    let mut case = case.clone();
    if let Some(map) = case.as_object_mut() {
        map.entry("name").or_insert_with(|| json!(format!("{name} case {i}")));
        map.insert("ptx".to_owned(), json!("kernel.ptx"));
        map.insert("launch".to_owned(), json!("kernel.json"));
    }
    case
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spills_and_stacks_fail() {
        let line = |a, b, c| {
            format!("ptxas info\n    {a} bytes stack frame, {b} bytes spill stores, {c} bytes spill loads\n")
        };
        assert!(judge(&line(0, 0, 0)).is_ok());
        for (a, b, c) in [(8, 0, 0), (0, 4, 0), (0, 0, 4)] {
            assert!(judge(&(line(0, 0, 0) + &line(a, b, c))).is_err());
        }
        assert!(judge("nothing").is_err());
    }
}
