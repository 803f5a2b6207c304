//! The Python package: built by maturin, installed beside the other tools, tested by pytest and mypy.

use crate::tools::PythonTools;
use crate::{Places, UNOPTIMISED, run};
use anyhow::{Context, Result, bail};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Builds the wheel, and tests it if told to. Where it lies.
pub fn make(places: &Places, python: &PythonTools, release: bool, test: bool) -> Result<PathBuf> {
    let target = places.tools.parent().context("the target folder")?;
    let wheels = target.join("wheels");
    if wheels.exists() {
        // Those of other versions are not what is meant.
        std::fs::remove_dir_all(&wheels).with_context(|| format!("cannot remove {}", wheels.display()))?;
    }
    let mut build = command(places, python, &python.path);
    // Where pip puts programs of packages in folders; the module looks for it elsewhere.
    let program = places.tools.join("py/bin").join(format!("maturin{}", std::env::consts::EXE_SUFFIX));
    if program.is_file() {
        build = Command::new(program);
        build.current_dir(&places.root).stdin(Stdio::null());
    } else {
        build.args(["-m", "maturin"]);
    }
    build.args(["build", "--manifest-path", "tileas-python/Cargo.toml", "--out"]).arg(&wheels);
    build.arg("--interpreter").arg(&python.python);
    if !release {
        build.env(UNOPTIMISED.0, UNOPTIMISED.1);
    }
    run(build.args(release.then_some("--release")))?;
    let entries = std::fs::read_dir(&wheels).with_context(|| format!("cannot read {}", wheels.display()))?;
    let mut made: Vec<PathBuf> = entries.flatten().map(|e| e.path()).collect();
    let (Some(wheel), true) = (made.pop(), made.is_empty()) else {
        bail!("maturin made no wheel, or several")
    };
    println!("{}", wheel.display());
    if test {
        check(places, python, &wheel)?;
    }
    Ok(wheel)
}

fn check(places: &Places, python: &PythonTools, wheel: &Path) -> Result<()> {
    let dir = places.tools.join("wheel");
    if dir.exists() {
        std::fs::remove_dir_all(&dir).with_context(|| format!("cannot remove {}", dir.display()))?;
    }
    let mut install = command(places, python, &python.path);
    install.args(["-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check"]);
    run(install.args(["--no-deps", "--target"]).arg(&dir).arg(wheel))?;
    let both = std::iter::once(dir.clone()).chain(std::env::split_paths(&python.path));
    let path = std::env::join_paths(both).context("PYTHONPATH cannot hold the path of target/tools/wheel")?;
    let tests = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "tileas-python/tests"];
    let mut pytest = command(places, python, &path);
    // Where the requirements have it.
    let cutile = cfg!(target_os = "linux");
    if cutile {
        pytest.env("TILEAS_REQUIRE_CUTILE", "1");
    }
    run(pytest.args(tests))?;
    let example = ["tileas-python/examples/gemm.py", "examples/gemm_f16.tileas"];
    run(command(places, python, &path).args(example))?;
    if cutile {
        run(command(places, python, &path).arg("tileas-python/examples/cutile_gemm.py"))?;
    }
    let cache = places.tools.join("mypy");
    let mut types = command(places, python, &path);
    types.args(["-m", "mypy", "--strict", "--cache-dir"]).arg(cache);
    run(types.args(["tileas-python/python/tileas", "tileas-python/examples/gemm.py"]))
}

/// Python, in the root of the workspace, with these folders to look in.
pub fn command(places: &Places, python: &PythonTools, path: &OsString) -> Command {
    let mut command = Command::new(&python.python);
    command.current_dir(&places.root).stdin(Stdio::null()).env("PYTHONPATH", path);
    // No files beside the sources.
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    command
}
