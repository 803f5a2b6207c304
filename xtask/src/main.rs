//! Developer tasks: `cargo xtask <task>`.
//!
//! `test` runs every test with the outside tools they need; `sweep` runs the examples with more seeds; `ptxas` prints the assembler the
//! tests use; `layers` checks who imports whom. Tools
//! are looked for first and fetched once into `target/tools` otherwise (see [`tools`]). The library crates need none of
//! this: plain `cargo test` runs what needs no outside tool.

mod bundle;
mod layers;
mod tools;
mod wheel;

use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Developer tasks of tileas")]
struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Run all tests, with ptxas, numpy and triton at hand (fetched into target/tools if need be).
    Test {
        /// Arguments for `cargo test`, such as a test's name.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Build the Python package's wheel into target/wheels and, with --test, install and test it.
    Wheel {
        /// Install it into target/tools/wheel and run its tests.
        #[arg(long)]
        test: bool,
        /// As a program that ships it would build it.
        #[arg(long)]
        release: bool,
    },
    /// Every case of every example with more seeds than the tests take, assembled without spills, and how long each compiles.
    Sweep {
        /// Seeds of data and timing: 1 to this.
        #[arg(long, default_value_t = 8)]
        seeds: u32,
        /// Part of the names of the files.
        #[arg(default_value = "examples/")]
        filter: String,
    },
    /// Pack target/gpu-bundle: everything for one command on a machine with a GPU, `python3 run.py --out DIR`.
    GpuBundle {
        /// Run it here afterwards, on the emulator.
        #[arg(long)]
        dry: bool,
        /// Take binaries as the tests have them.
        #[arg(long)]
        dev: bool,
    },
    /// Print the path of the ptxas that tests use, fetching it if need be.
    Ptxas,
    /// Check who imports whom against the picture in docs/architecture.md.
    Layers,
}

/// Set for the children of `cargo xtask test`, so that a test that calls it again is refused.
const GUARD: &str = "TILEAS_XTASK_TEST";

fn main() -> ExitCode {
    let args = Args::parse();
    let result = match args.task {
        Task::Test { args } => test(&args),
        Task::Wheel { test, release } => {
            let places = Places::new();
            tools::python_tools(&places)
                .and_then(|python| wheel::make(&places, &python, release, test))
                .map(|_| ())
        }
        Task::GpuBundle { dry, dev } => {
            let places = Places::new();
            tools::python_tools(&places).and_then(|python| bundle::make(&places, &python, dev, dry))
        }
        Task::Sweep { seeds, filter } => sweep(seeds, &filter),
        Task::Layers => layers::check(&Places::new().root),
        Task::Ptxas => tools::ptxas(&Places::new()).map(|path| println!("{}", path.display())),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Directories the tasks use.
struct Places {
    /// Root of the workspace.
    root: PathBuf,
    /// Where fetched tools go: `target/tools`.
    tools: PathBuf,
}

impl Places {
    fn new() -> Places {
        let manifest = std::env::var_os("CARGO_MANIFEST_DIR")
            .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
        let root = manifest.parent().map_or_else(|| PathBuf::from("."), PathBuf::from);
        let target =
            std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |dir| root.join(dir));
        Places { root, tools: target.join("tools") }
    }
}

/// One step of `cargo xtask test`.
struct Step {
    name: &'static str,
    /// Arguments of cargo.
    cargo: &'static [&'static str],
    /// Whether the user's arguments go to this step; the other steps are skipped when there are any.
    takes_args: bool,
    /// Whether this system has what the step needs.
    possible: bool,
    /// Whether the step runs little of what it builds, so that a build without optimisation is the shorter way.
    runs_little: bool,
}

/// The profile of such steps; that of third-party crates is the same in both.
const UNOPTIMISED: (&str, &str) = ("CARGO_PROFILE_DEV_OPT_LEVEL", "0");

/// All steps, in order. A new kind of check (examples, a further feature set) is a row here.
const STEPS: &[Step] = &[
    // All features: the command, the filetests and the JIT's tests ask for them.
    Step {
        name: "tests of all crates",
        cargo: &["test", "--workspace", "--no-fail-fast"],
        takes_args: true,
        possible: true,
        runs_little: false,
    },
    Step {
        name: "PTX that Triton makes, in the emulator",
        // Of the workspace, as the step before: with other features everything would be built again.
        cargo: &["test", "--workspace", "--test", "triton", "--", "--ignored"],
        takes_args: false,
        possible: tools::HAS_TRITON,
        runs_little: false,
    },
    Step {
        name: "scheduler without exact mode",
        // With the Python package, so that it finds these crates built.
        cargo: &[
            "test",
            "-p",
            "tileas-codegen",
            "-p",
            "tileas-python",
            "--test",
            "features",
            "--test",
            "refine",
        ],
        takes_args: false,
        possible: true,
        runs_little: true,
    },
    Step {
        name: "JIT without GPUs and shared stores",
        cargo: &["check", "-p", "tileas-jit", "--lib"],
        takes_args: false,
        possible: true,
        runs_little: false,
    },
];

/// Runs all steps, prints a summary, and fails when any step failed.
fn test(args: &[String]) -> Result<()> {
    if std::env::var_os(GUARD).is_some() {
        bail!("`cargo xtask test` was called by one of its own tests");
    }
    let places = Places::new();
    let tools = tools::all(&places)?;
    eprintln!("xtask: ptxas {}", tools.ptxas.display());
    let mut outcomes: Vec<(&str, Duration, Result<()>)> = Vec::new();
    for step in STEPS.iter().filter(|step| args.is_empty() || step.takes_args) {
        eprintln!("xtask: {}", step.name);
        if !step.possible {
            eprintln!("xtask: left out: there is no triton for this system");
            continue;
        }
        let begin = Instant::now();
        let mut command = cargo(&places);
        command
            .args(step.cargo)
            .args(if step.takes_args { args } else { &[] })
            .env(GUARD, "1")
            .env("PTXAS", &tools.ptxas)
            .env("TILEAS_REQUIRE_PTXAS", "1")
            .env("TILEAS_PYTHON", &tools.python)
            .env("PYTHONPATH", &tools.python_path);
        if step.runs_little {
            command.env(UNOPTIMISED.0, UNOPTIMISED.1);
        }
        if let Some(library) = &tools.nvjitlink {
            command.env("NVJITLINK", library);
        }
        if let Some(disassembler) = &tools.tileirdisasm {
            command.env("TILEIRDISASM", disassembler).env("TILEAS_REQUIRE_TILEIR", "1");
        }
        let outcome = run(&mut command);
        outcomes.push((step.name, begin.elapsed(), outcome));
    }
    if args.is_empty() {
        eprintln!("xtask: Python package");
        let begin = Instant::now();
        let python = tools::PythonTools { python: tools.python, path: tools.python_path };
        let outcome = wheel::make(&places, &python, false, true).map(|_| ());
        outcomes.push(("Python package", begin.elapsed(), outcome));
        eprintln!("xtask: GPU bundle, dry");
        let begin = Instant::now();
        let outcome = bundle::make(&places, &python, true, true);
        outcomes.push(("GPU bundle, dry", begin.elapsed(), outcome));
    }
    println!("\nsummary");
    let mut failed = 0;
    for (name, time, outcome) in &outcomes {
        match outcome {
            Ok(()) => println!("  ok      {:>6.1} s  {name}", time.as_secs_f64()),
            Err(error) => {
                failed += 1;
                println!("  FAILED  {:>6.1} s  {name}: {error:#}", time.as_secs_f64());
            }
        }
    }
    if failed > 0 {
        bail!("{failed} of {} steps failed", outcomes.len());
    }
    Ok(())
}

/// Runs the cases of `filter` with the seeds 1 to `seeds`, then the benchmark of compile times.
fn sweep(seeds: u32, filter: &str) -> Result<()> {
    let places = Places::new();
    let ptxas = tools::ptxas(&places)?;
    let mut cases = cargo(&places);
    cases
        .args(["test", "--release", "-p", "tileas-filetests", "--test", "filetests", "--", filter])
        .env("TILEAS_SEEDS", seeds.to_string())
        .env("PTXAS", ptxas)
        .env("TILEAS_REQUIRE_PTXAS", "1");
    run(&mut cases)?;
    run(cargo(&places).args(["bench", "-p", "tileas-isa-blackwell", "--bench", "kernels"]))
}

/// The cargo that runs us, in the workspace root, without what it told us about this package: build scripts
/// that watch such a variable would run again.
fn cargo(places: &Places) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo")));
    command.current_dir(&places.root).stdin(Stdio::null());
    for (key, _) in std::env::vars_os() {
        let name = key.to_string_lossy();
        if name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&key);
        }
    }
    command
}

fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot start {:?}", command.get_program()))?;
    if !status.success() {
        bail!("{status}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn command_line_is_consistent() {
        Args::command().debug_assert();
        let args = Args::try_parse_from(["xtask", "test", "--", "--test", "x"]).expect("parses");
        assert!(matches!(args.task, Task::Test { args } if args == ["--test", "x"]));
    }

    #[test]
    fn tools_are_inside_the_target_directory() {
        let places = Places::new();
        assert!(places.tools.ends_with("tools"));
        assert!(places.root.join("Cargo.toml").is_file());
    }
}
