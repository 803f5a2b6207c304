//! Finding the outside tools of the tests, and fetching them with pip when they are missing.
//!
//! Python: the variable `TILEAS_PYTHON`, which is taken to have everything, then `python3`, then `python`. What `requirements.txt` beside this
//! crate names is put into `target/tools/py` once, and nowhere else. ptxas: the variable `PTXAS`, then `PATH`, then the packages. nvJitLink
//! (Linux only): the variable `NVJITLINK`, then the packages.

use crate::Places;
use anyhow::{Context, Result, anyhow, bail};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The oldest assembler that knows all targets and PTX versions we emit.
const PTXAS_LEAST: (u32, u32) = (13, 0);

/// The packages, by name; where they come from is pip's configuration.
const REQUIREMENTS: &str = include_str!("../requirements.txt");
/// Whether the package of nvJitLink is for this system.
const HAS_NVJITLINK: bool = cfg!(target_os = "linux");
/// Whether there is a triton for this system.
pub const HAS_TRITON: bool = cfg!(target_os = "linux");

/// Whether there are tools of CUDA Tile IR for this system.
const HAS_TILEIR: bool = cfg!(target_os = "linux");

/// What the tests need.
pub struct Tools {
    /// A ptxas that ran and is new enough.
    pub ptxas: PathBuf,
    /// nvJitLink, where there is one for this system.
    pub nvjitlink: Option<PathBuf>,
    /// The disassembler of CUDA Tile IR, where there is one for this system.
    pub tileirdisasm: Option<PathBuf>,
    /// A Python that can import what the requirements name under `python_path`.
    pub python: PathBuf,
    /// Value for `PYTHONPATH`.
    pub python_path: OsString,
}

/// All tools.
pub fn all(places: &Places) -> Result<Tools> {
    let python = python()?;
    if !is_named("TILEAS_PYTHON") {
        fetch(places, &python)?;
    }
    let ptxas = ptxas_with(places, &python)?;
    let nvjitlink = nvjitlink(places, &python)?;
    let tileirdisasm = tileirdisasm(places, &python)?;
    Ok(Tools { ptxas, nvjitlink, tileirdisasm, python_path: python_path(places)?, python })
}

/// Python and where it finds what the requirements name.
pub struct PythonTools {
    /// The interpreter.
    pub python: PathBuf,
    /// Value for `PYTHONPATH`.
    pub path: OsString,
}

/// Python alone.
pub fn python_tools(places: &Places) -> Result<PythonTools> {
    let python = python()?;
    if !is_named("TILEAS_PYTHON") {
        fetch(places, &python)?;
    }
    Ok(PythonTools { path: python_path(places)?, python })
}

/// ptxas alone.
pub fn ptxas(places: &Places) -> Result<PathBuf> {
    match find_ptxas(places)? {
        Some(path) => Ok(path),
        None => {
            let python = python()?;
            fetch(places, &python)?;
            ptxas_with(places, &python)
        }
    }
}

/// The assembler that is there already, or the packages'.
fn ptxas_with(places: &Places, python: &Path) -> Result<PathBuf> {
    if let Some(path) = find_ptxas(places)? {
        return Ok(path);
    }
    let path = part(places, python, Path::new("bin").join(exe("ptxas")).as_path()).ok_or_else(|| {
        anyhow!("the packages of {} have no ptxas; set PTXAS to one of CUDA 13", python.display())
    })?;
    usable(&path).with_context(|| format!("{} does not work", path.display()))?;
    Ok(path)
}

/// Whether the user set that variable.
fn is_named(variable: &str) -> bool {
    std::env::var_os(variable).is_some_and(|value| !value.is_empty())
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
    Ok(None)
}

/// A file of the packages of NVIDIA's, which are below `nvidia/<part>` of the folders that Python looks in. Of several the first by name; a name
/// that ends with `*` is any that begins so.
fn part(places: &Places, python: &Path, file: &Path) -> Option<PathBuf> {
    let folders = Command::new(python)
        .args(["-c", "import sys; print('\\n'.join(sys.path))"])
        .env("PYTHONPATH", python_path(places).ok()?)
        .stdin(Stdio::null())
        .output()
        .ok()?;
    let entries = |dir: PathBuf| std::fs::read_dir(dir).into_iter().flatten().flatten().map(|e| e.path());
    let folders = String::from_utf8_lossy(&folders.stdout).lines().map(PathBuf::from).collect::<Vec<_>>();
    let (within, name) = (file.parent()?, file.file_name()?.to_str()?);
    let fits = |path: &PathBuf| {
        let found = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
        name.strip_suffix('*').map_or(found == name, |start| found.starts_with(start))
    };
    folders.into_iter().find_map(|folder| {
        entries(folder.join("nvidia")).flat_map(|part| entries(part.join(within))).filter(fits).min()
    })
}

/// The library that the user names, or the packages'.
fn nvjitlink(places: &Places, python: &Path) -> Result<Option<PathBuf>> {
    named_or_part(places, python, "NVJITLINK", HAS_NVJITLINK, Path::new("lib/libnvJitLink.so*"))
}

/// The disassembler that the user names, or the packages'.
fn tileirdisasm(places: &Places, python: &Path) -> Result<Option<PathBuf>> {
    let file = Path::new("bin").join(exe("tileirdisasm"));
    named_or_part(places, python, "TILEIRDISASM", HAS_TILEIR, &file)
}

/// The file that a variable names, or that of the packages; `there`: whether they have it for this system.
fn named_or_part(
    places: &Places,
    python: &Path,
    variable: &str,
    there: bool,
    file: &Path,
) -> Result<Option<PathBuf>> {
    if let Some(path) = std::env::var_os(variable).filter(|p| !p.is_empty()) {
        let path = places.root.join(path);
        if !path.is_file() {
            bail!(
                "the variable {variable} names {}, which is no file; correct it or unset it",
                path.display()
            );
        }
        return Ok(Some(path));
    }
    if !there {
        return Ok(None);
    }
    let missing =
        || anyhow!("the packages of {} have no {}; set {variable} to it", python.display(), file.display());
    part(places, python, file).ok_or_else(missing).map(Some)
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
            .args(["-c", "import sys; sys.exit(sys.version_info < (3, 11))"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    };
    if let Some(named) = std::env::var_os("TILEAS_PYTHON").filter(|p| !p.is_empty()) {
        let named = PathBuf::from(named);
        if !runs(&named) {
            bail!("the variable TILEAS_PYTHON names {}, which is no Python 3.11 or later", named.display());
        }
        return Ok(named);
    }
    ["python3", "python"].into_iter().map(PathBuf::from).find(|p| runs(p)).ok_or_else(|| {
        anyhow!("no Python 3.11 or later on PATH: install python3, or set TILEAS_PYTHON to one (tests compare with numpy)")
    })
}

/// `target/tools/py` before what the user has.
fn python_path(places: &Places) -> Result<OsString> {
    let users = std::env::var_os("PYTHONPATH").filter(|p| !p.is_empty());
    let users = users.iter().flat_map(std::env::split_paths);
    std::env::join_paths(std::iter::once(packages_dir(places)).chain(users))
        .context("PYTHONPATH cannot hold the path of target/tools/py")
}

/// Installs what the requirements name, once; done again when they change.
fn fetch(places: &Places, python: &Path) -> Result<()> {
    let dir = packages_dir(places);
    let stamp = dir.join("requirements.txt");
    if std::fs::read_to_string(&stamp).is_ok_and(|text| text == REQUIREMENTS) {
        return Ok(());
    }
    let advice = "set TILEAS_PYTHON to a Python that has what xtask/requirements.txt names";
    let has_pip = Command::new(python)
        .args(["-m", "pip", "--version"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    if !has_pip {
        bail!(
            "{} has no pip, which is needed to fetch what the tests use: install pip (`{} -m ensurepip`), or {advice}",
            python.display(),
            python.display()
        );
    }
    // Whatever is there is of a fetch that was cut off, or of older requirements.
    if dir.exists() {
        std::fs::remove_dir_all(&dir).with_context(|| format!("cannot remove {}", dir.display()))?;
    }
    std::fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let list = places.tools.join("requirements.txt");
    std::fs::write(&list, REQUIREMENTS).with_context(|| format!("cannot write {}", list.display()))?;
    eprintln!(
        "xtask: fetching the packages of xtask/requirements.txt into {} (up to 400 MB, once)",
        dir.display()
    );
    let status = Command::new(python)
        .args(["-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check"])
        .args(["--only-binary", ":all:", "--target"])
        .arg(&dir)
        .arg("--requirement")
        .arg(&list)
        .stdin(Stdio::null())
        .stdout(std::io::stderr())
        .status()
        .with_context(|| format!("cannot start {}", python.display()))?;
    if !status.success() {
        bail!(
            "pip could not fetch them ({status}); without a network, or where no package fits this machine, {advice}"
        );
    }
    std::fs::rename(&list, &stamp).with_context(|| format!("cannot write {}", stamp.display()))?;
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
    fn nothing_is_found_where_no_python_is() {
        assert_eq!(part(&Places::new(), Path::new("/nonexistent"), Path::new("bin/ptxas")), None);
    }
}
