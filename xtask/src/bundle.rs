//! The bundle for a machine with a GPU: binaries, Python package, kernels, and the scripts of `xtask/gpu`, in `target/gpu-bundle`,
//! and that folder as `gpu-bundle.tar.xz`.
//!
//! There one command does all there is to do: `python3 run.py --out DIR`. It needs a driver, Python 3.11 or later, torch and triton; no network and no
//! Rust. With `--dry` the same command runs here, on the emulator.

use crate::tools::PythonTools;
use crate::{Places, run, wheel};
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Bytes that its archive may have: it travels with the sources, which have 15 MB, and the two may have 60 MB.
const MOST: u64 = 45_000_000;

/// Kernels of cuTile that a quick bundle has.
const FEW: &str = "gemm_batched,add_rms_norm,absolute_and_scale";

/// Processors that the closed assembler makes kernels for.
const TARGETS: [&str; 2] = ["sm_90", "sm_100"];

/// Packs the bundle, and runs it without a GPU if told to. `dev`: binaries as the tests have them, which are slow and large.
pub fn make(places: &Places, python: &PythonTools, dev: bool, dry: bool) -> Result<()> {
    let target = places.tools.parent().context("the target folder")?;
    let bundle = target.join("gpu-bundle");
    if bundle.exists() {
        std::fs::remove_dir_all(&bundle).with_context(|| format!("cannot remove {}", bundle.display()))?;
    }
    for (from, to, extensions) in [
        ("xtask/gpu", "", &["py"] as &[&str]),
        ("examples", "examples", &["tileas"]),
        ("examples/kernels", "examples/kernels", &["tileas"]),
        ("tileas-emu/validate", "emu/validate", &["py"]),
        ("tileas-emu/tests/micro", "emu/tests/micro", &["ptx"]),
        ("tileas-emu/tests/data", "emu/tests/data", &["ptx"]),
        ("tileas-emu/tests/micro/cases", "emu/tests/micro/cases", &[]),
        ("tileas-emu/tests/micro/data", "emu/tests/micro/data", &[]),
    ] {
        copy(&places.root.join(from), &bundle.join(to), |name| {
            extensions.is_empty() || extensions.iter().any(|e| name.ends_with(&format!(".{e}")))
        })?;
    }
    copy_all(&places.root.join("filetests/filetests"), &bundle.join("filetests"))?;
    copy(&places.root.join("tileas-emu/tests/data"), &bundle.join("ptx"), |name| {
        ["gemm_coop_sm90a.", "attention_fwd_sm90a.", "cluster_pairs_sm90a."]
            .iter()
            .any(|start| name.starts_with(start))
    })?;

    // As the tests have them: what they have built serves.
    let (suite, dump, command, device) = match dev {
        true => (
            vec!["test", "--workspace", "--no-run", "--test", "devices"],
            vec!["build", "--workspace", "--example", "dump"],
            vec!["test", "--workspace", "--no-run", "--test", "all"],
            vec!["build", "--workspace", "--example", "device"],
        ),
        false => (
            vec!["test", "--release", "-p", "tileas-jit", "--test", "devices", "--no-run"],
            vec!["build", "--release", "-p", "tileas-emu", "--example", "dump"],
            vec!["build", "--release", "-p", "tileas", "--bin", "tileas"],
            vec!["build", "--release", "-p", "tileas-filetests", "--example", "device"],
        ),
    };
    let bin = bundle.join("bin");
    std::fs::create_dir_all(&bin)?;
    run(Command::new(executable(places, &dump, "dump")?).arg(bundle.join("emu/dumps")))?;
    for (name, args) in [("tileas", command), ("devices", suite), ("device", device)] {
        let made = executable(places, &args, name)?;
        let to = bin.join(name);
        std::fs::copy(&made, &to).with_context(|| format!("cannot copy {}", made.display()))?;
        // Debug information stays here; without `strip` it travels.
        let _ = Command::new("strip").arg(&to).stdin(Stdio::null()).status();
    }
    let wheel = wheel::make(places, python, !dev, false)?;
    let mut unpack = wheel::command(places, python, &python.path);
    run(unpack.args(["-m", "zipfile", "-e"]).arg(&wheel).arg(bundle.join("py")))?;
    let cubins = bundle.join("cubins");
    std::fs::create_dir_all(&cubins)?;
    let mut peers = wheel::command(places, python, &python.path);
    run(peers.arg("xtask/gpu/cubins.py").arg(&cubins).args(TARGETS))?;
    let mut cutile = wheel::command(places, python, &python.path);
    cutile.arg("filetests/cutile/export.py").arg(bundle.join("cutile"));
    if dev {
        cutile.args(["--only", FEW]);
    }
    run(&mut cutile)?;

    if !dev {
        let archive = target.join("gpu-bundle.tar.xz");
        let mut pack = wheel::command(places, python, &python.path);
        run(pack.current_dir(target).args(["-m", "tarfile", "-c"]).arg(&archive).arg("gpu-bundle"))?;
        let size = archive.metadata()?.len();
        println!("{}: {:.1} MB", archive.display(), size as f64 / 1e6);
        if size > MOST {
            bail!("it is larger than {} MB", MOST / 1_000_000);
        }
    }
    if dry {
        let mut command = wheel::command(places, python, &python.path);
        let results = target.join("gpu-results");
        run(command.arg(bundle.join("run.py")).arg("--dry").arg("--out").arg(results))?;
    }
    Ok(())
}

/// Copies the files of a folder.
fn copy(from: &Path, to: &Path, wanted: impl Fn(&str) -> bool) -> Result<()> {
    std::fs::create_dir_all(to).with_context(|| format!("cannot make {}", to.display()))?;
    for entry in std::fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))? {
        let entry = entry?;
        let name = entry.file_name();
        if entry.path().is_file() && wanted(&name.to_string_lossy()) {
            std::fs::copy(entry.path(), to.join(&name))
                .with_context(|| format!("cannot copy {}", entry.path().display()))?;
        }
    }
    Ok(())
}

/// Copies the kernels of a folder and of those in it.
fn copy_all(from: &Path, to: &Path) -> Result<()> {
    copy(from, to, |name| name.ends_with(".tileas"))?;
    for entry in std::fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))? {
        let entry = entry?;
        if entry.path().is_dir() {
            copy_all(&entry.path(), &to.join(entry.file_name()))?;
        }
    }
    Ok(())
}

/// Builds, and finds the program of that name.
fn executable(places: &Places, args: &[&str], name: &str) -> Result<PathBuf> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(args).arg("--message-format=json").current_dir(&places.root);
    let output = cargo.stdin(Stdio::null()).stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        bail!("cargo does not build {name}");
    }
    let messages = String::from_utf8_lossy(&output.stdout);
    let mut found = messages.lines().filter_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        let is_it = message["target"]["name"] == name;
        Some(PathBuf::from(message["executable"].as_str().filter(|_| is_it)?))
    });
    found.next_back().with_context(|| format!("cargo does not say where {name} is"))
}
