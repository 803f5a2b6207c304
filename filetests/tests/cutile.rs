//! cuTile kernels: exported by NVIDIA's package, compiled for both families, run against numpy.
//!
//! The kernels are in `filetests/cutile/kernels`, with what each should give; `export.py` writes bytecode, launches and arrays. It needs the Python
//! packages of `xtask/requirements.txt`; without them the tests are ignored, or fail where `TILEAS_REQUIRE_PTXAS` is set. Those of `ours.py` say
//! what texts of `examples` say: instructions, barriers and registers of the two are compared as well. Some are compared with the machine code that
//! NVIDIA's `tileiras` makes of the same bytecode for Hopper.

use libtest_mimic::{Arguments, Failed, Trial};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::OnceLock;
use tileas_codegen::{Context, Settings};
use tileas_emu::Mode;
use tileas_filetests::figures::Figures;
use tileas_filetests::{TestKind, cutile, external};

/// What an assertion is expected to do, which is left out.
const UNCHECKED: &[&str] = &["assert_fails"];

/// What spills a few bytes, and where: threads that hold whole rows of scales convert nothing, a step takes 768 cycles instead of 896, and 10 bytes
/// find no register.
const SPILLING: &[(&str, &str)] = &[("gemm_mx_e4m3", "sm_100a")];

/// The folder with the exported kernels; made once.
fn exported() -> &'static Result<PathBuf, String> {
    static DONE: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    DONE.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cutile");
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("cutile/export.py");
        let out = Command::new("python3").arg(script).arg(&folder).output().map_err(|e| e.to_string())?;
        let said =
            format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
        if out.status.success() { Ok(folder) } else { Err(said) }
    })
}

fn check(name: &str, target: &str) -> Result<(), Failed> {
    let folder = exported().as_ref().map_err(|e| format!("the export fails: {e}"))?;
    let modes = [Mode::Latest(1), Mode::Random(2)];
    let ran = cutile::run(folder, name, target, &modes).map_err(|e| format!("{e:#}"))?;
    let said = ran.assembled.as_str();
    let spills = !said.is_empty() && external::spills(said);
    if external::is_serialised(said) || !said.is_empty() && spills != SPILLING.contains(&(name, target)) {
        return Err(format!("the assembler says\n{said}").into());
    }
    match name.strip_prefix("ours_") {
        Some(example) if external::missing(TestKind::Ptxas).is_none() => compare(example, target, &ran),
        _ => Ok(()),
    }
}

/// How much more than the text of an example its cuTile kernel may take.
const MORE: f64 = 1.15;

/// Compares what came of a cuTile kernel with what comes of the example that says the same.
fn compare(example: &str, target: &str, ran: &cutile::Ran) -> Result<(), Failed> {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples");
    let paths = ["", "kernels/"].map(|folder| examples.join(format!("{folder}{example}.tileas")));
    let path = paths.iter().find(|p| p.exists()).ok_or("no such example")?;
    let mut settings = Settings::builder();
    settings.set("target", target).map_err(|e| format!("{e:?}"))?;
    let settings = settings.finish();
    let isa = tileas_isa::isa_for_cpu(target).map_err(|e| format!("{e:?}"))?;
    let mut context = Context::new();
    let module = context.parse(&std::fs::read_to_string(path)?, &settings).map_err(|e| format!("{e:?}"))?;
    let compiled = context.compile(&module, &*isa, &settings).map_err(|e| format!("{e:?}"))?;
    let said = external::assemble(&format!("ours_{example}_{target}"), target, compiled.ptx())?;
    let (text, cutile) = (Figures::of(compiled.ptx(), &said), Figures::of(&ran.ptx, &ran.assembled));
    if cutile.share_of(&text) > MORE {
        return Err(format!("cuTile: {cutile:?}\ntext: {text:?}").into());
    }
    Ok(())
}

/// Products that are compared with what `tileiras`, beside the tool that `TILEIRDISASM` names, makes of them.
const BESIDE: [&str; 3] = ["gemm_f16_128x128x64", "gemm_f16_128x256x64_ragged", "ours_attention_d128"];

/// Of machine code: the most products that some wait leaves under way, and accesses to the stack.
fn under_way(text: &str) -> (u32, usize) {
    let waits = text.lines().filter_map(|line| {
        let (_, rest) = line.split_once("WARPGROUP.DEPBAR.LE gsb0, 0x")?;
        u32::from_str_radix(rest.split(|c: char| !c.is_ascii_hexdigit()).next()?, 16).ok()
    });
    let stack = text.lines().filter(|l| l.contains(" LDL") || l.contains(" STL"));
    (waits.max().unwrap_or(0), stack.count())
}

/// No stack, and at least as many products under way as `tileiras` leaves; more in attention, where it waits for each.
fn beside(name: &str) -> Result<(), Failed> {
    let folder = exported().as_ref().map_err(|e| format!("the export fails: {e}"))?;
    let ran = cutile::run(folder, name, "sm_90a", &[]).map_err(|e| format!("{e:#}"))?;
    let ours = external::machine_code(&format!("beside_{name}"), "sm_90a", &ran.ptx)?;
    let tool = PathBuf::from(std::env::var_os("TILEIRDISASM").ok_or("TILEIRDISASM is not set")?);
    let (source, object) = (folder.join(format!("{name}.tileirbc")), folder.join(format!("{name}.cubin")));
    let mut command = Command::new(tool.with_file_name("tileiras"));
    let out = command.args(["--gpu-name", "sm_90", "-o"]).arg(&object).arg(source).output()?;
    if !out.status.success() {
        return Err(format!("tileiras: {}", String::from_utf8_lossy(&out.stderr)).into());
    }
    let (ours, theirs) = (under_way(&ours), under_way(&external::disassembled(&object)?));
    let more = u32::from(name.contains("attention"));
    if ours.1 > 0 || ours.0 < theirs.0 + more {
        return Err(
            format!("products under way and accesses to the stack: {ours:?}, tileiras {theirs:?}").into()
        );
    }
    Ok(())
}

/// Names of all kernels: the functions behind `@case`.
fn names() -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("cutile/kernels");
    let mut names = Vec::new();
    for file in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let text = std::fs::read_to_string(file.path()).unwrap_or_default();
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            if line.starts_with("@case(")
                && let Some(name) = lines.next().and_then(|l| l.strip_prefix("def ")?.split('(').next())
            {
                names.push(name.to_owned());
            }
        }
    }
    names.sort();
    names
}

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let there = Command::new("python3").args(["-c", "import cuda.tile, ml_dtypes"]).output();
    let missing = !external::required() && !there.is_ok_and(|o| o.status.success());
    let mut trials = Vec::new();
    for name in names() {
        for target in ["sm_90a", "sm_100a"] {
            let case = name.clone();
            let ignored = missing || UNCHECKED.contains(&name.as_str());
            let trial = Trial::test(format!("{name}::{target}"), move || check(&case, target));
            trials.push(trial.with_ignored_flag(ignored));
        }
    }
    for name in BESIDE {
        let ignored = missing
            || std::env::var_os("TILEIRDISASM").is_none()
                && std::env::var_os("TILEAS_REQUIRE_TILEIR").is_none();
        trials
            .push(Trial::test(format!("{name}::tileiras"), move || beside(name)).with_ignored_flag(ignored));
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}
