//! The tools outside the workspace: the assembler, and the disassembler beside it.
//!
//! `PTXAS` names the first. Tests that need it and do not have it are listed as ignored, unless `TILEAS_REQUIRE_PTXAS` is
//! set: then they fail. `cargo xtask test` sets both.

use crate::TestKind;
use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Whether missing tools are failures.
pub fn required() -> bool {
    std::env::var_os("TILEAS_REQUIRE_PTXAS").is_some_and(|v| v != "0" && !v.is_empty())
}

/// Why a command cannot run here; `None` if it can.
pub fn missing(kind: TestKind) -> Option<&'static str> {
    match kind {
        TestKind::Ptxas if std::env::var_os("PTXAS").is_none() => Some("PTXAS is not set"),
        _ => None,
    }
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
    let said = assemble(name, target, ptx)?;
    judge(&said).with_context(|| format!("of {name}\n{said}"))?;
    Ok(said)
}

/// Assembles a module; what the assembler says.
///
/// # Errors
/// What it says when it fails.
pub fn assemble(name: &str, target: &str, ptx: &str) -> Result<String> {
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
    Ok(said)
}

/// The machine code of a module, as text.
///
/// # Errors
/// What one of the tools says when it fails.
pub fn machine_code(name: &str, target: &str, ptx: &str) -> Result<String> {
    assemble(name, target, ptx)?;
    disassembled(&folder(name)?.join("kernel.cubin"))
}

/// The machine code of a cubin, as text.
///
/// # Errors
/// What the disassembler says when it fails.
pub fn disassembled(object: &Path) -> Result<String> {
    let beside = std::env::var_os("PTXAS").map(|p| Path::new(&p).with_file_name("nvdisasm"));
    let tool = beside.filter(|p| p.exists()).unwrap_or_else(|| "nvdisasm".into());
    let output = Command::new(&tool).arg("-c").arg(object).stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("cannot start {}", tool.display()))?;
    ensure!(output.status.success(), "{}: {}", tool.display(), String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Whether the assembler has given a kernel a stack.
pub fn spills(said: &str) -> bool {
    without_stack(said).is_err()
}

/// Neither a stack nor matrix products one after the other.
fn judge(said: &str) -> Result<()> {
    without_stack(said)?;
    ensure!(!is_serialised(said), "products are serialised");
    Ok(())
}

/// Reads the statistics of `ptxas -v`.
fn without_stack(said: &str) -> Result<()> {
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

/// Whether ptxas says that a kernel's matrix products run one after the other, or that it had to insert waits for them.
pub fn is_serialised(said: &str) -> bool {
    said.contains("(C75")
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
        let note = "ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized\n";
        assert!(judge(&(line(0, 0, 0) + note)).is_err());
    }
}
