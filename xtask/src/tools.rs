//! Finding the outside tools of the tests, and fetching them with pip when they are missing.
//!
//! ptxas: the variable `PTXAS`, then `PATH`, then `target/tools`, then the package `nvidia-cuda-nvcc`. Python: the
//! variable `TILEAS_PYTHON`, then `python3`, then `python`. nvJitLink (Linux only): the variable `NVJITLINK`, then
//! `target/tools/nvjitlink`, then the package `nvidia-nvjitlink`. numpy and triton: what that Python already has, then the
//! packages; there is a triton for Linux only, and only there the tests ask for it.
//! Packages go to `target/tools` and nowhere else, and stay there for the next run.

use crate::Places;
use anyhow::{Context, Result, anyhow, bail};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The oldest assembler that knows all targets and PTX versions we emit.
const PTXAS_LEAST: (u32, u32) = (13, 0);

/// The packages, by name; where they come from is pip's configuration.
const PTXAS_PACKAGE: &str = "nvidia-cuda-nvcc==13.*";
const NVJITLINK_PACKAGE: &str = "nvidia-nvjitlink==13.*";
/// Whether the package is looked for on this system.
const HAS_NVJITLINK: bool = cfg!(target_os = "linux");
const NUMPY_PACKAGE: &str = "numpy";
/// Later ones work too, but are larger (this one: 200 MB to fetch, 700 MB unpacked).
const TRITON_PACKAGE: &str = "triton==3.7.*";
/// Whether there is a triton for this system.
pub const HAS_TRITON: bool = cfg!(target_os = "linux");

/// Modules that Python must have: what to run to see that, and the package.
const MODULES: &[(&str, &str, bool)] =
    &[("import numpy; numpy.float16(1)", NUMPY_PACKAGE, true), ("import triton", TRITON_PACKAGE, HAS_TRITON)];

/// What the tests need.
pub struct Tools {
    /// A ptxas that ran and is new enough.
    pub ptxas: PathBuf,
    /// nvJitLink, where there is one for this system.
    pub nvjitlink: Option<PathBuf>,
    /// A Python that can import numpy (and triton, where there is one) under `python_path`.
    pub python: PathBuf,
    /// Value for `PYTHONPATH`.
    pub python_path: OsString,
}

/// All tools.
pub fn all(places: &Places) -> Result<Tools> {
    let python = python()?;
    let python_path = python_path(places)?;
    let found = find_ptxas(places)?;
    let absent = |m: &&(&str, &str, bool)| m.2 && !imports(&python, &python_path, m.0);
    let mut packages: Vec<&str> = MODULES.iter().filter(absent).map(|m| m.1).collect();
    if found.is_none() {
        packages.push(PTXAS_PACKAGE);
    }
    if !packages.is_empty() {
        fetch(&packages_dir(places), &python, &packages)?;
    }
    let nvjitlink = nvjitlink(places, &python)?;
    if let Some(m) = MODULES.iter().find(absent) {
        bail!(
            "{} cannot do `{}` although {} was just put into {}; set TILEAS_PYTHON to a Python that can",
            python.display(),
            m.0,
            m.1,
            packages_dir(places).display()
        );
    }
    let ptxas = match found {
        Some(ptxas) => ptxas,
        None => fetched_ptxas(places)?,
    };
    Ok(Tools { ptxas, nvjitlink, python, python_path })
}

/// ptxas alone.
pub fn ptxas(places: &Places) -> Result<PathBuf> {
    if let Some(path) = find_ptxas(places)? {
        return Ok(path);
    }
    fetch(&packages_dir(places), &python()?, &[PTXAS_PACKAGE])?;
    fetched_ptxas(places)
}

fn packages_dir(places: &Places) -> PathBuf {
    places.tools.join("py")
}

/// The assembler that is there already. One the user names must work; others are passed over if too old.
fn find_ptxas(places: &Places) -> Result<Option<PathBuf>> {
    if let Some(path) = std::env::var_os("PTXAS").filter(|p| !p.is_empty()) {
        let path = places.root.join(path);
        usable(&path).with_context(|| {
            format!(
                "the variable PTXAS names {}; correct it or unset it to have ptxas fetched",
                path.display()
            )
        })?;
        return Ok(Some(path));
    }
    let on_path =
        std::env::var_os("PATH").into_iter().flat_map(|p| std::env::split_paths(&p).collect::<Vec<_>>());
    for path in on_path.map(|dir| dir.join(exe("ptxas"))).filter(|p| p.is_file()) {
        match usable(&path) {
            Ok(()) => return Ok(Some(path)),
            Err(error) => eprintln!("xtask: not using {}: {error:#}", path.display()),
        }
    }
    // A broken file here is a fetch that was cut off: fetch again.
    Ok(installed_ptxas(&packages_dir(places)).filter(|path| usable(path).is_ok()))
}

fn fetched_ptxas(places: &Places) -> Result<PathBuf> {
    let dir = packages_dir(places);
    let path = installed_ptxas(&dir)
        .ok_or_else(|| anyhow!("the package {PTXAS_PACKAGE} put no ptxas into {}", dir.display()))?;
    usable(&path).with_context(|| format!("the fetched {} does not work", path.display()))?;
    Ok(path)
}

/// ptxas below `dir/nvidia/<part>/bin`, where the package puts it; the first in name order.
fn installed_ptxas(dir: &Path) -> Option<PathBuf> {
    parts(dir).into_iter().map(|part| part.join("bin").join(exe("ptxas"))).find(|p| p.is_file())
}

/// What is in `dir/nvidia`, in name order.
fn parts(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir.join("nvidia")).into_iter().flatten().flatten();
    let mut parts: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    parts.sort();
    parts
}

/// The library that the user names, or that was fetched; fetches it.
fn nvjitlink(places: &Places, python: &Path) -> Result<Option<PathBuf>> {
    if let Some(path) = std::env::var_os("NVJITLINK").filter(|p| !p.is_empty()) {
        let path = places.root.join(path);
        if !path.is_file() {
            bail!(
                "the variable NVJITLINK names {}, which is no file; correct it or unset it",
                path.display()
            );
        }
        return Ok(Some(path));
    }
    if !HAS_NVJITLINK {
        return Ok(None);
    }
    // A folder of its own: pip replaces the `nvidia` of the packages that are there already.
    let dir = places.tools.join("nvjitlink");
    if installed_nvjitlink(&dir).is_none() {
        fetch(&dir, python, &[NVJITLINK_PACKAGE])?;
    }
    let path = installed_nvjitlink(&dir).ok_or_else(|| {
        anyhow!("the package {NVJITLINK_PACKAGE} put no libnvJitLink.so into {}", dir.display())
    })?;
    Ok(Some(path))
}

/// The library below `dir/nvidia/<part>/lib`; the first in name order.
fn installed_nvjitlink(dir: &Path) -> Option<PathBuf> {
    let files = parts(dir).into_iter().filter_map(|part| std::fs::read_dir(part.join("lib")).ok());
    let files = files.flat_map(|dir| dir.flatten().map(|entry| entry.path()));
    files
        .filter(|f| {
            f.file_name().and_then(OsStr::to_str).is_some_and(|name| name.starts_with("libnvJitLink.so"))
        })
        .min()
}

/// Runs `--version` and compares.
fn usable(ptxas: &Path) -> Result<()> {
    let output =
        Command::new(ptxas).arg("--version").stdin(Stdio::null()).output().context("it cannot be run")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let (major, minor) = release(&text).ok_or_else(|| anyhow!("it prints no release number"))?;
    let least = PTXAS_LEAST;
    if (major, minor) < least {
        bail!("it is release {major}.{minor}, the tests need {}.{} or later", least.0, least.1);
    }
    Ok(())
}

/// The release in `Cuda compilation tools, release 13.5, V13.5.37`.
fn release(text: &str) -> Option<(u32, u32)> {
    let rest = &text[text.find("release ")? + "release ".len()..];
    let number = rest.split(|c: char| c != '.' && !c.is_ascii_digit()).next()?;
    let (major, minor) = number.split_once('.')?;
    Some((major.parse().ok()?, minor.split('.').next()?.parse().ok()?))
}

fn exe(name: &str) -> String {
    format!("{name}{}", std::env::consts::EXE_SUFFIX)
}

/// The Python for tests and for pip.
fn python() -> Result<PathBuf> {
    let runs = |python: &Path| {
        Command::new(python)
            .args(["-c", "import sys; sys.exit(sys.version_info < (3, 9))"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    };
    if let Some(named) = std::env::var_os("TILEAS_PYTHON").filter(|p| !p.is_empty()) {
        let named = PathBuf::from(named);
        if !runs(&named) {
            bail!("the variable TILEAS_PYTHON names {}, which is no Python 3.9 or later", named.display());
        }
        return Ok(named);
    }
    ["python3", "python"].into_iter().map(PathBuf::from).find(|p| runs(p)).ok_or_else(|| {
        anyhow!("no Python 3.9 or later on PATH: install python3, or set TILEAS_PYTHON to one (tests compare with numpy)")
    })
}

/// `target/tools/py` before what the user has.
fn python_path(places: &Places) -> Result<OsString> {
    let users = std::env::var_os("PYTHONPATH").filter(|p| !p.is_empty());
    let users = users.iter().flat_map(std::env::split_paths);
    std::env::join_paths(std::iter::once(packages_dir(places)).chain(users))
        .context("PYTHONPATH cannot hold the path of target/tools/py")
}

fn imports(python: &Path, python_path: &OsStr, code: &str) -> bool {
    Command::new(python)
        .args(["-c", code])
        .env("PYTHONPATH", python_path)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Installs packages into a folder. No package needs another one for what we use of it.
fn fetch(dir: &Path, python: &Path, packages: &[&str]) -> Result<()> {
    let has_pip = Command::new(python)
        .args(["-m", "pip", "--version"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    let advice = "set PTXAS to a ptxas of CUDA 13, NVJITLINK to its libnvJitLink.so and TILEAS_PYTHON to a Python that has numpy and triton";
    if !has_pip {
        bail!(
            "{} has no pip, which is needed to fetch {}: install pip (`{} -m ensurepip`), or {advice}",
            python.display(),
            packages.join(" and "),
            python.display()
        );
    }
    std::fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    eprintln!("xtask: fetching {} into {} (up to 270 MB, once)", packages.join(" and "), dir.display());
    let status = Command::new(python)
        .args(["-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check"])
        .args(["--no-deps", "--upgrade", "--only-binary", ":all:", "--target"])
        .arg(dir)
        .args(packages)
        .stdin(Stdio::null())
        .stdout(std::io::stderr())
        .status()
        .with_context(|| format!("cannot start {}", python.display()))?;
    if !status.success() {
        bail!(
            "pip could not fetch {} ({status}); without a network, or where no package fits this machine, {advice}",
            packages.join(" and ")
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn release_numbers_are_read() {
        let text =
            "ptxas: NVIDIA (R) Ptx optimizing assembler\nCuda compilation tools, release 13.5, V13.5.37\n";
        assert_eq!(release(text), Some((13, 5)));
        assert_eq!(release("release 9.2.88"), Some((9, 2)));
        for text in ["", "release ", "release x.y", "release 13", "V13.5.37"] {
            assert_eq!(release(text), None, "{text:?}");
        }
        assert!((12, 9) < PTXAS_LEAST && (13, 5) > PTXAS_LEAST);
    }

    #[test]
    fn what_is_no_assembler_is_refused() {
        let error = usable(Path::new("/nonexistent/ptxas")).expect_err("there is none");
        assert!(format!("{error:#}").contains("cannot be run"), "{error:#}");
    }

    #[test]
    fn nothing_is_found_in_an_empty_directory() {
        assert_eq!(installed_ptxas(Path::new("/nonexistent")), None);
        assert_eq!(installed_nvjitlink(Path::new("/nonexistent")), None);
    }
}
