//! What runs on one family runs on another: kernels of `test run` are compiled for sm_90a as well, assembled where their file has `test ptxas`, and
//! executed under one order of events. Damaged waits for products are found.

use libtest_mimic::{Arguments, Failed, Trial};
use std::process::ExitCode;
use tileas_codegen::ir::{Function, Opcode, keys};
use tileas_codegen::isa::TargetIsa;
use tileas_codegen::testing::materialize::verify_materialized;
use tileas_codegen::{Context, Settings, Stage};
use tileas_filetests::execute::{Forms, execute};
use tileas_filetests::{Case, Header, TestKind, collect, external, root};

/// Kernels that are refused: accumulators must fit registers.
const REFUSED: [(&str, &str); 1] = [("execute/setmaxnreg", "E0507")];

/// Kernels whose accumulators together take more registers than there are: they are right, but slow.
const SPILLS: [&str; 2] = ["split/gemm_wide", "split/stores_direct"];

/// What a case comes to: done, or refused with these codes.
fn run(text: &str, header: &Header, name: &str) -> anyhow::Result<Vec<&'static str>> {
    let mut builder = Settings::builder();
    for pair in &header.set {
        builder.set_pair(pair)?;
    }
    builder.set("target", "sm_90a")?;
    let settings = builder.finish();
    let mut context = Context::new();
    let refused = |errors: tileas_codegen::Errors| errors.iter().map(|e| e.code.as_str()).collect();
    let module = context.parse(text, &settings).map_err(|e| anyhow::anyhow!("{e}"))?;
    let isa = tileas_isa::isa_for(&module, &settings)?;
    let run = match context.run_to(Stage::Metadata, &module, &*isa, &settings) {
        Ok(run) => run,
        Err(errors) => return Ok(refused(errors)),
    };
    let (ptx, metadata) = (run.text(Stage::Ptx), run.text(Stage::Metadata));
    let fits = header.tests.contains(&TestKind::Ptxas) && !SPILLS.contains(&name);
    if fits && external::missing(TestKind::Ptxas).is_none() {
        external::ptxas(&format!("sm_90a-{name}"), "sm_90a", &ptx)?;
    }
    let cases: Vec<_> = header.cases.iter().map(|case| case.with_seeds(&[1]).without_stats()).collect();
    for (source, kernel) in module.functions.iter().zip(&run.kernels) {
        let materialized = kernel.materialized.as_ref().expect("the kernel has agents");
        damaged(materialized, &*isa)?;
        execute(&Forms { source, materialized, ptx: &ptx, metadata: &metadata }, &cases)?;
    }
    Ok(Vec::new())
}

/// Each wait for products leaves no more under way than may be: the verifier refuses one more.
fn damaged(func: &Function, isa: &dyn TargetIsa) -> anyhow::Result<()> {
    for op in func.ops().filter(|&op| func.opcode(op) == Opcode::AsyncDotWait) {
        // Six, and the product that follows, are never more than may be; they are only as many as a wait counts.
        let pending = func.attr_int(op, keys::PENDING).unwrap_or(0);
        if pending >= 6 {
            continue;
        }
        let mut mutant = func.clone();
        mutant.set_int(op, keys::PENDING, pending + 1);
        let errors = verify_materialized(&mutant, isa).err();
        let found = errors.is_some_and(|e| e.iter().any(|e| e.code.as_str() == "E0712"));
        anyhow::ensure!(found, "a wait that leaves {} under way is not found", pending + 1);
    }
    Ok(())
}

fn check(case: &Case, text: &str) -> anyhow::Result<()> {
    let name = case.name.trim_end_matches("::run");
    let want = REFUSED.iter().find(|(n, _)| *n == name).map(|&(_, code)| code);
    let got = run(text, &Header::parse(text)?, name)?;
    anyhow::ensure!(got.first().copied() == want, "refused with {got:?}, expected {want:?}");
    Ok(())
}

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let examples = root().join("../../examples/kernels");
    let all = collect(&root()).and_then(|mut cases| {
        let named =
            collect(&examples)?.into_iter().map(|c| Case { name: format!("examples/{}", c.name), ..c });
        cases.extend(named);
        Ok(cases)
    });
    let cases = match all {
        Ok(cases) => cases,
        Err(e) => {
            eprintln!("{e:#}");
            return ExitCode::FAILURE;
        }
    };
    let mut trials = Vec::new();
    for case in cases.into_iter().filter(|case| case.kind == TestKind::Run) {
        let text = std::fs::read_to_string(&case.path).unwrap_or_default();
        let name = case.name.clone();
        let judge =
            move || check(&case, &text).map_err(|e| Failed::from(format!("{}\n{e:#}", case.path.display())));
        trials.push(Trial::test(name, judge));
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}
