//! Kernels whose CTAs load together: those of `test run` and the examples, half for each family, in which clusters of two and four have something in common.
//! They are executed with grids of whole clusters and compared with the source in program order; marks that do not hold are refused.

use libtest_mimic::{Arguments, Failed, Trial};
use std::process::ExitCode;
use tileas_codegen::ir::{AttrData, Function, Op, Opcode, keys};
use tileas_codegen::isa::TargetIsa;
use tileas_codegen::testing::materialize::verify_materialized;
use tileas_codegen::{Context, Settings, Stage};
use tileas_filetests::execute::{Forms, execute};
use tileas_filetests::{Header, TestKind, collect, external, root};

/// Kernels that more CTAs than they ask for do not suit: their places wrap around, or formulas say where they end.
const EXACT: [&str; 4] = [
    "execute/coordinate_far",
    "execute/gemm_rounded",
    "kernels/decode_attention_d128",
    "kernels/decode_attention_d64",
];

/// Runs the first case of a file in clusters; the kernels that have some.
fn run(text: &str, header: &Header, name: &str, target: &str, ctas: u32) -> anyhow::Result<usize> {
    let mut builder = Settings::builder();
    for pair in &header.set {
        builder.set_pair(pair)?;
    }
    builder.set("target", target)?;
    builder.set("cluster", &ctas.to_string())?;
    let settings = builder.finish();
    let mut context = Context::new();
    let module = context.parse(text, &settings).map_err(|e| anyhow::anyhow!("{e}"))?;
    let isa = tileas_isa::isa_for(&module, &settings)?;
    // What is refused is so without clusters as well, or has a file of its own.
    let Ok(run) = context.run_to(Stage::Metadata, &module, &*isa, &settings) else { return Ok(0) };
    let (ptx, metadata) = (run.text(Stage::Ptx), run.text(Stage::Metadata));
    let marked = |f: &Function| f.attrs.get(keys::CLUSTER).is_some();
    let kernels = || module.functions.iter().zip(&run.kernels);
    let all: Vec<_> =
        kernels().filter_map(|(f, k)| Some((f, k.materialized.as_ref().filter(|m| marked(m))?))).collect();
    if all.is_empty() {
        return Ok(0);
    }
    if header.tests.contains(&TestKind::Ptxas) && external::missing(TestKind::Ptxas).is_none() {
        // Some spill, as they do without clusters, where other tests look at that.
        let said = external::assemble(&format!("clusters-{ctas}-{target}-{name}"), target, &ptx)?;
        anyhow::ensure!(!external::is_serialised(&said), "{said}");
    }
    let cases: Vec<_> =
        header.cases.iter().take(1).map(|c| c.with_seeds(&[1]).without_stats().in_clusters()).collect();
    for &(source, materialized) in &all {
        damaged(materialized, &*isa)?;
        execute(&Forms { source, materialized, ptx: &ptx, metadata: &metadata }, &cases)?;
    }
    Ok(all.len())
}

/// Marks that do not hold, one at a time.
fn damaged(func: &Function, isa: &dyn TargetIsa) -> anyhow::Result<()> {
    let found = |what: &str, change: &dyn Fn(&mut Function)| {
        let mut mutant = func.clone();
        change(&mut mutant);
        anyhow::ensure!(verify_materialized(&mutant, isa).is_err(), "not found: {what}");
        Ok(())
    };
    verify_materialized(func, isa).map_err(|e| anyhow::anyhow!("{e}"))?;
    found("no clusters", &|f| _ = f.attrs.remove(keys::CLUSTER))?;
    let marked = |op: Op| func.has_attr(op, keys::MULTICAST);
    for op in func.block_ops(func.entry()) {
        match func.opcode(op) {
            Opcode::AsyncPipelineCreatePipeline if marked(op) => {
                found("slots are freed in one CTA", &|f| _ = f.inherent_mut(op).remove(keys::MULTICAST))?;
            }
            Opcode::MakeTiledTmaDesc if !marked(op) => {
                found("a tile that differs", &|f| f.set_attr(op, keys::MULTICAST, AttrData::Unit))?;
            }
            _ => {}
        }
    }
    // CTAs that run a loop around shared loads unequally often.
    let axis = func.ops().find(|&op| {
        let AttrData::Array(list) = func.attr_data(func.attrs.get(keys::CLUSTER).expect("clusters")) else {
            return false;
        };
        let along = list.iter().position(|&a| !matches!(func.attr_data(a), AttrData::Int(1, _)));
        func.opcode(op) == Opcode::ProgramId
            && func.attr_int(op, keys::AXIS) == along.map(|n| n as i64)
            && func.op_block(op) == Some(func.entry())
    });
    let shared_loads = |l: Op| {
        let mut found = false;
        func.walk(func.op_block_at(l, 0).expect("a body"), &mut |op| {
            let desc = func.named_operand(op, "desc").and_then(|d| func.defining_op(d));
            found |= desc.is_some_and(marked);
        });
        found
    };
    if let Some(id) = axis.and_then(|op| func.result(op)) {
        for l in func.ops().filter(|&op| func.opcode(op) == Opcode::For && shared_loads(op)) {
            found("a loop that differs", &|f| f.set_operand(l, 1, id))?;
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let examples = root().join("../../examples/kernels");
    let all = collect(&root()).and_then(|mut cases| {
        cases.extend(collect(&examples)?);
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
    // Half of the files each: what differs between the families is how a slot is freed. Which half is told by the name, not the
    // place in the list, which other files change.
    for (n, (target, ctas)) in [("sm_90a", 2), ("sm_100a", 4)].into_iter().enumerate() {
        let least = 60;
        let here = |name: &str| name.bytes().fold(0, |sum: usize, b| sum + usize::from(b)) % 2 == n;
        let runs = cases.iter().filter(|case| case.kind == TestKind::Run && here(&case.name));
        let cases: Vec<_> =
            runs.filter(|case| !EXACT.contains(&case.name.trim_end_matches("::run"))).cloned().collect();
        trials.push(Trial::test(format!("{target}_{ctas}"), move || {
            let (mut all, mut wrong) = (0, Vec::new());
            for case in &cases {
                let text = std::fs::read_to_string(&case.path).unwrap_or_default();
                let name = case.name.trim_end_matches("::run");
                match Header::parse(&text).and_then(|header| run(&text, &header, name, target, ctas)) {
                    Ok(n) => all += n,
                    Err(e) => wrong.push(format!("{}\n{e:#}", case.path.display())),
                }
            }
            match wrong.is_empty() {
                false => Err(Failed::from(wrong.join("\n"))),
                true if all < least => Err(Failed::from(format!("{all} kernels in clusters"))),
                true => Ok(()),
            }
        }));
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}
