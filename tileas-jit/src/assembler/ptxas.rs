//! ptxas, a process for each module.
//!
//! In: PTX. Out: machine code. Both are files of fixed names in a folder of their own, which is the process's working folder, so that
//! no name of ours gets into the machine code or into messages. Guarantee: the folder goes with the call, and a process
//! that has not ended after [`Options::timeout`] is killed.

use super::{Assembler, Options, ptx_of_release, refusal, release::release};
use crate::cubin::Cubin;
use crate::driver::nvjitlink::remark;
use crate::error::{Code, Error};
use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// The assembler of the CUDA toolkit.
#[derive(Clone, Debug)]
pub struct Ptxas {
    path: PathBuf,
    options: Options,
    release: (u32, u32),
    fingerprint: String,
}

impl Ptxas {
    /// The one the variable `PTXAS` names; without it the first that works of `PATH`, `CUDA_HOME`, the usual folder of a toolkit, and
    /// [`Options::packages`].
    ///
    /// # Errors
    /// `E1204`: there is none. `E1203`: `PTXAS` names something else, or all that were found are something else.
    pub fn find(options: &Options) -> Result<Ptxas, Error> {
        if let Some(path) = variable("PTXAS") {
            return Ptxas::at(path, options);
        }
        let name = format!("ptxas{}", std::env::consts::EXE_SUFFIX);
        let on_path: Vec<PathBuf> = std::env::var_os("PATH")
            .iter()
            .flat_map(std::env::split_paths)
            .map(|dir| dir.join(&name))
            .collect();
        let toolkits = toolkits().map(|dir| dir.join("bin").join(&name));
        let all = on_path.into_iter().chain(toolkits).chain(options.in_packages("bin", &name));
        let mut last = Error::new(
            Code::E1204,
            "no ptxas: looked at PTXAS, PATH, CUDA_HOME and the usual toolkit folder",
        );
        for path in all.filter(|p| p.is_file()) {
            match Ptxas::at(path, options) {
                Ok(ptxas) => return Ok(ptxas),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// The one at a path; it is run once, for its version.
    ///
    /// # Errors
    /// `E1203`: it cannot be run, or says no version.
    pub fn at(path: impl AsRef<Path>, options: &Options) -> Result<Ptxas, Error> {
        // The process has a working folder of its own.
        let path = std::path::absolute(path.as_ref()).map_err(|e| trouble(path.as_ref(), "no path", &e))?;
        let folder = folder(&path)?;
        let (_, said) = run(&path, &folder, &[OsStr::new("--version")], options.timeout)?;
        let release = release(&said).ok_or_else(|| {
            let said = said.lines().next().unwrap_or_default();
            Error::new(Code::E1203, format!("{} is no ptxas: to --version it says `{said}`", path.display()))
        })?;
        // The lines with the release and the number of the build, not those about copyright and date.
        let lines = said.lines().filter(|l| l.contains("release") || l.starts_with("Build cuda"));
        let tool = lines.collect::<Vec<_>>().join(", ");
        let fingerprint = format!("ptxas: {tool}; {}", options.arguments().join(" "));
        Ok(Ptxas { path, options: options.clone(), release, fingerprint })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Assembler for Ptxas {
    fn name(&self) -> &str {
        "ptxas"
    }

    fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    fn max_ptx_version(&self) -> (u8, u8) {
        ptx_of_release(self.release)
    }

    fn assemble(&self, ptx: &str, target: &str) -> Result<Cubin, Error> {
        let folder = folder(&self.path)?;
        let source = folder.path().join("kernel.ptx");
        std::fs::write(&source, ptx).map_err(|e| trouble(&source, "cannot be written", &e))?;
        let arch = format!("-arch={target}");
        let mut arguments = self.options.arguments();
        arguments.extend([arch, "-o".into(), "kernel.cubin".into(), "kernel.ptx".into()]);
        let arguments: Vec<&OsStr> = arguments.iter().map(OsStr::new).collect();
        let (status, said) = run(&self.path, &folder, &arguments, self.options.timeout)?;
        if !status.success() {
            // One that the system or its own fault ends refuses nothing, nor does one that could not start.
            return Err(if status.code().is_some() && said.lines().any(|l| l.starts_with("ptxas ")) {
                refusal("ptxas", &said, ptx)
            } else {
                Error::new(Code::E1203, format!("{} ends with {status}: {said}", self.path.display()))
            });
        }
        remark("ptxas", &said);
        let bytes = std::fs::read(folder.path().join("kernel.cubin"));
        let bytes = bytes.map_err(|e| trouble(&self.path, "wrote no machine code", &e))?;
        Cubin::new(bytes)
            .map_err(|e| Error::new(Code::E1203, format!("{} wrote {}", self.path.display(), e.message)))
    }
}

/// A variable that is set and not empty.
pub(super) fn variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from)
}

/// Where toolkits are installed.
pub(super) fn toolkits() -> impl Iterator<Item = PathBuf> {
    variable("CUDA_HOME").into_iter().chain([PathBuf::from("/usr/local/cuda")])
}

fn trouble(path: &Path, what: &str, error: &std::io::Error) -> Error {
    Error::new(Code::E1203, format!("{} {what}: {error}", path.display()))
}

fn folder(path: &Path) -> Result<tempfile::TempDir, Error> {
    tempfile::Builder::new()
        .prefix("tileas-")
        .tempdir()
        .map_err(|e| trouble(path, "needs a temporary folder", &e))
}

/// Runs the tool in the folder, and gives all it says. Its output goes to a file: a pipe would have to be emptied while we wait, and
/// would stay open with what the tool has started when the tool is killed.
fn run(
    path: &Path,
    folder: &tempfile::TempDir,
    arguments: &[&OsStr],
    timeout: Option<Duration>,
) -> Result<(ExitStatus, String), Error> {
    let log = folder.path().join("said");
    let files = File::create(&log).and_then(|f| Ok((f.try_clone()?, f)));
    let (out, err) = files.map_err(|e| trouble(&log, "cannot be written", &e))?;
    let mut command = Command::new(path);
    command.args(arguments).current_dir(folder.path()).stdin(Stdio::null()).stdout(out).stderr(err);
    let mut child = command.spawn().map_err(|e| trouble(path, "cannot be run", &e))?;
    let status = wait(&mut child, timeout).map_err(|e| trouble(path, "cannot be waited for", &e))?;
    let Some(status) = status else {
        let limit = timeout.unwrap_or_default();
        let text = format!("{} has not ended after {limit:?} and is killed", path.display());
        return Err(Error::new(Code::E1203, text));
    };
    let said = std::fs::read(&log).map_err(|e| trouble(&log, "cannot be read", &e))?;
    Ok((status, String::from_utf8_lossy(&said).into_owned()))
}

/// Waits; `None`: it took too long and is gone. With a limit it asks at intervals of a sixteenth of the time that has passed, so that
/// the wait is at most so much longer, and no handler of signals is needed in a program that is not ours.
fn wait(child: &mut Child, timeout: Option<Duration>) -> std::io::Result<Option<ExitStatus>> {
    let Some(timeout) = timeout else { return child.wait().map(Some) };
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        let passed = start.elapsed();
        if passed >= timeout {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        let interval = (passed / 16).clamp(Duration::from_millis(1), Duration::from_millis(50));
        std::thread::sleep(interval.min(timeout - passed));
    }
}
