//! What runs on one family runs on another: kernels of `test run` are compiled for sm_90a as well, assembled where their file has `test ptxas`, and
//! executed as late as allowed and in one random order. Damaged waits for products are found, and damaged turns of warpgroups.

use libtest_mimic::{Arguments, Failed, Trial};
use std::process::ExitCode;
use tileas_codegen::ir::{Function, Op, Opcode, Sym, keys};
use tileas_codegen::isa::TargetIsa;
use tileas_codegen::testing::materialize::verify_materialized;
use tileas_codegen::{Context, Settings, Stage};
use tileas_filetests::execute::{Forms, execute};
use tileas_filetests::{Case, Header, TestKind, collect, external, root};

/// Kernels that are refused: accumulators must fit registers.
const REFUSED: [(&str, &str); 1] = [("execute/setmaxnreg", "E0507")];

/// Kernels whose accumulators together take more registers than there are: they are right, but slow.
const SPILLS: [&str; 3] = ["split/gemm_wide", "split/stores_direct", "kernels/mla_decode"];

/// Kernels that print while products are under way: the call is a function's, and ptxas says that products wait for it.
const CALLS: [&str; 1] = ["execute/print_in_loop"];

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
    // What the file itself asks for has been done as its own test.
    let own = header.target.as_deref() == Some("sm_90a");
    let fits = header.tests.contains(&TestKind::Ptxas) && !SPILLS.contains(&name) && !own;
    if fits && external::missing(TestKind::Ptxas).is_none() {
        let place = format!("sm_90a-{name}");
        if CALLS.contains(&name) {
            let said = external::assemble(&place, "sm_90a", &ptx)?;
            anyhow::ensure!(external::is_serialised(&said) && !external::spills(&said), "{said}");
        } else {
            external::ptxas(&place, "sm_90a", &ptx)?;
        }
    }
    let cases: Vec<_> = header.cases.iter().map(|case| case.with_seeds(&[1]).without_stats()).collect();
    for (source, kernel) in module.functions.iter().zip(&run.kernels) {
        let materialized = kernel.materialized.as_ref().expect("the kernel has agents");
        damaged(materialized, &*isa)?;
        out_of_turn(materialized, &*isa)?;
        if own {
            continue;
        }
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

/// A change that a kernel with turns does not stand.
type Damage<'a> = (&'static str, Box<dyn Fn(&mut Function) + 'a>);

/// Where warpgroups take turns, the verifier refuses what is not given, given too early, or shared.
fn out_of_turn(func: &Function, isa: &dyn TargetIsa) -> anyhow::Result<()> {
    let of = |code: Opcode| func.ops().filter(move |&op| func.opcode(op) == code);
    let Some(give) = of(Opcode::AsyncPipelineGiveTurn).next() else { return Ok(()) };
    let with = |code: Opcode, key: Sym| of(code).filter(move |&op| func.has_attr(op, key));
    let switch = of(Opcode::AsyncPipelineAgentSwitch).next().expect("agents");
    let dealt = with(Opcode::For, keys::DEALT).next().expect("a loop that is dealt out");
    let body = func.op_block_at(dealt, 0).expect("a body");
    let waits = |l: Op| {
        let mut found = false;
        func.walk(func.op_block_at(l, 0).expect("a body"), &mut |o| {
            found |= func.opcode(o) == Opcode::AsyncPipelineConsumerWait
        });
        found
    };
    let first =
        func.block_ops(body).find(|&op| !func.regions(op).is_empty() && waits(op)).expect("an inner region");
    let again = |f: &mut Function, before: Op| {
        let more = f.make_op(Opcode::AsyncPipelineGiveTurn, &[], &[], &[], f.op_loc(before));
        f.insert_before(before, more);
    };
    let mut all: Vec<Damage<'_>> = vec![
        ("no turn is given", Box::new(move |f| f.remove_op(give))),
        ("two turns are given", Box::new(move |f| again(f, give))),
        (
            "a turn is given before slots are waited for",
            Box::new(move |f| {
                f.remove_op(give);
                again(f, first);
            }),
        ),
        ("nothing is dealt out", Box::new(move |f| _ = f.inherent_mut(dealt).remove(keys::DEALT))),
        ("there is one instance", Box::new(move |f| _ = f.inherent_mut(switch).remove(keys::INSTANCES))),
        ("there are three instances", Box::new(move |f| f.set_ints(switch, keys::INSTANCES, &[3, 1]))),
        ("the barriers of turns lie in a buffer", Box::new(move |f| f.set_int(switch, keys::TURN_AT, 0))),
        (
            "there are no barriers for turns",
            Box::new(move |f| _ = f.inherent_mut(switch).remove(keys::TURN_AT)),
        ),
    ];
    for op in with(Opcode::AllocTensor, keys::STRIDE) {
        all.push((
            "instances share a buffer",
            Box::new(move |f| _ = f.inherent_mut(op).remove(keys::STRIDE)),
        ));
        let stride = func.attr_int(op, keys::STRIDE).unwrap_or(0);
        all.push((
            "buffers of instances overlap",
            Box::new(move |f| f.set_int(op, keys::STRIDE, stride / 2)),
        ));
        all.push((
            "buffers of instances reach into others",
            Box::new(move |f| f.set_int(op, keys::STRIDE, 2 * stride)),
        ));
    }
    for op in with(Opcode::AsyncPipelineCreatePipeline, keys::INSTANCES) {
        all.push((
            "instances share a pipe",
            Box::new(move |f| _ = f.inherent_mut(op).remove(keys::INSTANCES)),
        ));
        all.push(("an instance has no named barrier", Box::new(move |f| f.set_int(op, keys::NAMED, 15))));
    }
    for op in of(Opcode::AsyncPipelineCreatePipeline).filter(|&op| !func.has_attr(op, keys::INSTANCES)) {
        all.push(("all have what is each one's", Box::new(move |f| f.set_int(op, keys::INSTANCES, 2))));
    }
    for (what, change) in all {
        let mut mutant = func.clone();
        change(&mut mutant);
        anyhow::ensure!(verify_materialized(&mutant, isa).is_err(), "not found: {what}");
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
