//! Runs kernels on a device instead of the emulator, and compares as the tests do:
//!
//!     device [--emulator] [--jobs N] [--seconds S] FOLDER…
//!
//! A folder holds files of `test run`, which are compiled for the device's processor whatever theirs is, or cuTile kernels as
//! `cutile/export.py` writes them. Without `--emulator` it is the first GPU. N processes (8) run them; one in which a kernel fails, or does not
//! end within S seconds (30), is given up for a new one, so that the others are left alone. A line for each that is not right, and a summary;
//! status 1 if anything is wrong. What the compiler refuses is no fault of the device: it is counted, with its code.

use anyhow::{Context as _, Result, bail, ensure};
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;
use tileas_codegen::{Context, Settings, Stage};
use tileas_filetests::device::Runner;
use tileas_filetests::execute::{Forms, execute_on};
use tileas_filetests::{Header, TestKind, cutile};
use tileas_jit::{Device, EmulatorOptions};

/// What a kernel comes to besides a failure.
enum Done {
    Right,
    Refused(String),
}

/// All there is to run below a folder.
fn files(folder: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    for entry in std::fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        let has = |extension: &str| path.extension().is_some_and(|e| e == extension);
        if path.is_dir() {
            files(&path, found)?;
        } else if has("tileirbc") {
            found.push(path);
        } else if has("tileas") {
            let runs = Header::parse(&std::fs::read_to_string(&path)?)
                .is_ok_and(|header| header.tests.contains(&TestKind::Run));
            found.extend(runs.then_some(path));
        }
    }
    Ok(())
}

fn one(path: &Path, runner: &Runner) -> Result<Done> {
    let target = runner.device().target();
    if path.extension().is_some_and(|e| e == "tileirbc") {
        let folder = path.parent().context("a folder")?;
        let name = path.file_stem().and_then(|n| n.to_str()).context("a name")?;
        return match cutile::run_on(runner, folder, name) {
            Ok(_) => Ok(Done::Right),
            Err(e) => {
                let text = format!("{e:#}");
                let step = ["read: ", "verify: ", "lower: ", "compile: "];
                if step.iter().any(|s| text.starts_with(s)) { Ok(Done::Refused(text)) } else { Err(e) }
            }
        };
    }
    let text = std::fs::read_to_string(path)?;
    let header = Header::parse(&text)?;
    let mut builder = Settings::builder();
    for pair in &header.set {
        builder.set_pair(pair)?;
    }
    builder.set("target", target)?;
    let settings = builder.finish();
    let mut context = Context::new();
    let module = context.parse(&text, &settings).map_err(|e| anyhow::anyhow!("{e}"))?;
    let isa = tileas_isa::isa_for(&module, &settings)?;
    let run = match context.run_to(Stage::Metadata, &module, &*isa, &settings) {
        Ok(run) => run,
        Err(errors) => return Ok(Done::Refused(errors.to_string())),
    };
    let (ptx, metadata) = (run.text(Stage::Ptx), run.text(Stage::Metadata));
    let cases: Vec<_> = header.cases.iter().map(|case| case.with_seeds(&[1, 2]).without_stats()).collect();
    for (source, kernel) in module.functions.iter().zip(&run.kernels) {
        let materialized = kernel.materialized.as_ref().context("the kernel has agents")?;
        execute_on(runner, &Forms { source, materialized, ptx: &ptx, metadata: &metadata }, &cases)?;
    }
    Ok(Done::Right)
}

/// When a process must have its device.
const START: Duration = Duration::from_secs(120);

/// What stands before a line of JSON: a kernel may print beside it.
const REPLY: &str = "@reply ";

/// A process that runs kernels one after the other: paths go in, a line of JSON for each comes out.
struct Worker {
    child: Child,
    paths: ChildStdin,
    replies: Receiver<String>,
}

impl Worker {
    fn new(emulator: bool) -> Result<Worker> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("--worker").stdin(Stdio::piped()).stdout(Stdio::piped());
        if emulator {
            command.arg("--emulator");
        }
        let mut child = command.spawn()?;
        let paths = child.stdin.take().context("its input")?;
        let out = BufReader::new(child.stdout.take().context("its output")?);
        let (send, replies) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                let Some((_, reply)) = line.split_once(REPLY) else { continue };
                if send.send(reply.to_owned()).is_err() {
                    break;
                }
            }
        });
        let worker = Worker { child, paths, replies };
        // Many that start at once on one device take their time.
        worker.replies.recv_timeout(START).context("a process does not start")?;
        Ok(worker)
    }

    /// What a kernel comes to; `None`: right. An error, or no answer: the process is no good any more.
    fn ask(&mut self, path: &Path, limit: Duration) -> Result<Option<String>> {
        writeln!(self.paths, "{}", path.display())?;
        match self.replies.recv_timeout(limit) {
            Ok(line) => Ok(serde_json::from_str(&line)?),
            Err(RecvTimeoutError::Timeout) => bail!("it does not end"),
            Err(RecvTimeoutError::Disconnected) => bail!("the process dies"),
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The worker's side.
fn work(emulator: bool) -> Result<()> {
    let device = if emulator {
        Device::emulator_with(EmulatorOptions { target: "sm_90a".into(), ..EmulatorOptions::default() })
    } else {
        Device::cuda(0)?
    };
    let runner = Runner::new(device)?;
    println!("{REPLY}");
    for path in std::io::stdin().lines() {
        let said = match one(Path::new(&path?), &runner) {
            Ok(Done::Right) => None,
            Ok(Done::Refused(text)) => Some(format!("refused: {text}")),
            Err(e) => Some(format!("FAILED: {e:#}")),
        };
        println!("{REPLY}{}", serde_json::to_string(&said)?);
    }
    Ok(())
}

fn main() -> Result<ExitCode> {
    let (mut emulator, mut jobs, mut limit, mut worker) = (false, 8_usize, 30_u64, false);
    let mut folders = Vec::new();
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--emulator" => emulator = true,
            "--worker" => worker = true,
            "--jobs" => jobs = args.next().context("a number")?.parse()?,
            "--seconds" => limit = args.next().context("a number")?.parse()?,
            _ if arg.starts_with('-') => bail!("no option {arg}"),
            _ => folders.push(PathBuf::from(arg)),
        }
    }
    if worker {
        work(emulator)?;
        return Ok(ExitCode::SUCCESS);
    }
    ensure!(!folders.is_empty(), "device [--emulator] [--jobs N] [--seconds S] FOLDER…");
    let mut all = Vec::new();
    for folder in &folders {
        files(folder, &mut all)?;
    }
    all.sort();
    let (next, results) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    std::thread::scope(|s| {
        for _ in 0..jobs.max(1) {
            s.spawn(|| {
                let mut worker = None;
                while let Some(path) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let mut asked = || -> Result<Option<String>> {
                        if worker.is_none() {
                            worker = Some(Worker::new(emulator)?);
                        }
                        worker.as_mut().context("a process")?.ask(path, Duration::from_secs(limit))
                    };
                    let said = asked().unwrap_or_else(|e| Some(format!("FAILED: {e:#}")));
                    if said.as_ref().is_some_and(|s| s.starts_with("FAILED")) {
                        worker = None;
                    }
                    if let Some(text) = &said {
                        let text = text.lines().take(4).collect::<Vec<_>>().join(" | ");
                        println!("{}: {text}", path.display());
                    }
                    results.lock().expect("results").insert(path, said);
                }
            });
        }
    });
    let results = results.into_inner().expect("results");
    let (mut right, mut refused, mut wrong) = (0, 0, 0);
    for said in results.values() {
        match said {
            None => right += 1,
            Some(text) if text.starts_with("refused: ") => refused += 1,
            Some(_) => wrong += 1,
        }
    }
    println!("{right} right, {refused} refused, {wrong} wrong of {}", results.len());
    Ok(if wrong == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
