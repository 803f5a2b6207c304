//! Registers as counted here against registers as ptxas assigns them, on every kernel of the file tests; and what planned
//! spills are worth. `cargo test -p tileas-codegen --test all -- --nocapture registers::` prints the tables of
//! `docs/registers.md`. Needs `PTXAS`; without it nothing is checked, unless `TILEAS_REQUIRE_PTXAS` is set.

use crate::corpus;

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use tileas_codegen::nvvm::Module;
use tileas_codegen::testing::nvvm::{Liveness, verify};
use tileas_codegen::testing::ptx::{PtxEmitter, PtxOptions};
use tileas_codegen::testing::regalloc::{PTXAS_RESERVE, PressureScratch};
use tileas_codegen::{Context, Settings};

/// What `ptxas -v` says of one kernel.
#[derive(Copy, Clone, Debug, Default)]
struct Assembled {
    registers: u32,
    stack: u32,
    spill_stores: u32,
    spill_loads: u32,
}

fn ptxas() -> Option<PathBuf> {
    let found = std::env::var_os("PTXAS").map(PathBuf::from);
    assert!(found.is_some() || std::env::var_os("TILEAS_REQUIRE_PTXAS").is_none(), "PTXAS is not set");
    found
}

fn ptx_of(module: &Module) -> String {
    let mut found = Vec::new();
    let verified = verify(module, (9, 5), &mut found).unwrap_or_else(|| panic!("{found:?}"));
    let mut out = String::new();
    PtxEmitter::default().emit(verified, &PtxOptions::default(), &mut out);
    out
}

/// The number before a phrase.
fn number_before(said: &str, phrase: &str) -> Option<u32> {
    let before = &said[..said.find(phrase)?];
    before.split(|c: char| !c.is_ascii_digit()).rfind(|s| !s.is_empty())?.parse().ok()
}

/// Assembles; `Err` is what ptxas said.
fn assemble(tool: &PathBuf, name: &str, module: &Module) -> Result<Assembled, String> {
    assemble_text(tool, name, &ptx_of(module), &module.target.to_string())
}

fn assemble_text(tool: &PathBuf, name: &str, ptx: &str, target: &str) -> Result<Assembled, String> {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("registers");
    std::fs::create_dir_all(&folder).expect("a folder for temporary files");
    let file = folder.join(format!("{}.ptx", name.replace('/', "_")));
    std::fs::write(&file, ptx).expect("a temporary file");
    let output = Command::new(tool)
        .arg(format!("-arch={target}"))
        .args(["-v", "-o", "/dev/null"])
        .arg(&file)
        .stdin(Stdio::null())
        .output()
        .expect("ptxas starts");
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Err(said);
    }
    let get = |phrase| number_before(&said, phrase).unwrap_or_else(|| panic!("no `{phrase}` in {said}"));
    Ok(Assembled {
        registers: get(" registers"),
        stack: get(" bytes stack frame"),
        spill_stores: get(" bytes spill stores"),
        spill_loads: get(" bytes spill loads"),
    })
}

/// Maps in two threads, results in order.
fn in_parallel<T: Sync, R: Send>(items: &[T], f: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = Mutex::new(0);
    let results = Mutex::new(items.iter().map(|_| None).collect::<Vec<Option<R>>>());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let i = {
                        let mut next = next.lock().expect("no thread panics");
                        *next += 1;
                        *next - 1
                    };
                    let Some(item) = items.get(i) else { break };
                    let r = f(item);
                    results.lock().expect("no thread panics")[i] = Some(r);
                }
            });
        }
    });
    results.into_inner().expect("no thread panics").into_iter().map(|r| r.expect("done")).collect()
}

fn peak(module: &Module) -> u32 {
    let f = &module.functions[0];
    PressureScratch::default().function(f, &Liveness::compute(f)).units
}

/// All kernels of the corpus, lowered with default options.
fn modules() -> Vec<(String, Module)> {
    let mut context = Context::new();
    let mut modules = Vec::new();
    // Budgets of their own, for the kernel or for its agents.
    let own = |text: &str| text.contains("set max-regs") || text.contains("setmaxnreg");
    for kernel in corpus::kernels().iter().filter(|k| !own(&k.text)) {
        let lowered = kernel.lower(&mut context, &Settings::default());
        let one = lowered.len() == 1;
        for module in lowered {
            let name = match one {
                true => kernel.name.clone(),
                false => format!("{}/{}", kernel.name, module.functions[0].name),
            };
            modules.push((name, module));
        }
    }
    assert!(modules.len() > 60);
    modules
}

/// The module with that many registers per thread at most.
fn limited(module: &Module, registers: u32) -> Module {
    let mut m = module.clone();
    let launch = &mut m.functions[0].launch;
    (launch.maxnreg, launch.minnctapersm) = (Some(registers.clamp(24, 255)), None);
    m
}

/// What the assembler asks for with tensor-memory loads in a kernel, however few registers are live.
const LEAST: u32 = 50;

/// For kernels as lowered. Planned ones may need more: see `calibrate_planned`.
#[test]
fn kernels_with_peak_and_reserve_assemble_without_spills() {
    let Some(tool) = ptxas() else { return };
    let results = in_parallel(&modules(), |(name, module)| {
        let budget = (peak(module) + PTXAS_RESERVE).max(LEAST);
        let a = assemble(&tool, &format!("{name}_reserve"), &limited(module, budget));
        (name.clone(), budget, a)
    });
    // Kernels that the assembler gives a stack at that budget, reason unknown: direct accesses in two forms, by extent; one with calls,
    // whose registers are the convention's; and one whose loads, each made behind its address, it brings together. Exactly these, so that the list
    // cannot hide another one.
    const MORE: &[&str] = &[
        "execute/carried_from_memory",
        "execute/fence_through_other_pipe",
        "execute/math_scalar",
        "execute/maxima_large",
        "execute/padding_16",
        "execute/print_in_loop",
        "execute/skew_arm_rings",
        "execute/skew_scalar_branch_carried",
        "execute/tma_load_padding",
        "execute/tma_load_written",
        "execute/two_chains_crossed",
        "execute/two_chains_in_place",
        "kernels/decode_attention_d128",
        "kernels/far_coordinate",
        "kernels/fused_conversions",
        "kernels/fused_conversions_bf16",
        "kernels/mla_decode",
        "kernels/relu_matrix",
        "kernels/softcap_attention_d128",
        "kernels/softmax_rows",
    ];
    let mut more = Vec::new();
    for (name, budget, a) in results {
        let a = a.unwrap_or_else(|e| panic!("{name} with {budget} registers: {e}"));
        if a.stack + a.spill_stores + a.spill_loads > 0 {
            more.push(name);
        }
    }
    more.sort();
    assert_eq!(more, MORE);
}

/// The least budget with which a module assembles without spills, by bisection.
fn least_budget(tool: &PathBuf, name: &str, module: &Module) -> u32 {
    let fits = |n: u32| {
        assemble(tool, name, &limited(module, n))
            .is_ok_and(|a| a.stack <= module.functions[0].local_bytes && a.spill_stores + a.spill_loads == 0)
    };
    let (mut lo, mut hi) = (23, 255);
    while hi - lo > 1 {
        let middle = (lo + hi) / 2;
        if fits(middle) { hi = middle } else { lo = middle }
    }
    hi
}

fn print_least(tool: &PathBuf, modules: &[(String, Module)]) {
    let mut rows = in_parallel(modules, |(name, module)| {
        let least = least_budget(tool, &format!("{name}_least"), module);
        (i64::from(least) - i64::from(peak(module)), name.clone(), peak(module), least)
    });
    rows.sort();
    println!("| kernel | peak | least without spills | least − peak |\n|---|---|---|---|");
    for (more, name, ours, least) in &rows {
        println!("| {name} | {ours} | {least} | {more:+} |");
    }
}

/// Kernels as they are: the first table of `docs/registers.md`.
#[test]
#[ignore = "several hundred runs of the assembler"]
fn calibrate() {
    let Some(tool) = ptxas() else { return };
    print_least(&tool, &modules());
}

/// Kernels that planning has filled up to their budget: the second table. Here ptxas has nothing to gain by moving things.
#[test]
#[ignore = "several hundred runs of the assembler"]
fn calibrate_planned() {
    let Some(tool) = ptxas() else { return };
    let mut context = Context::new();
    let mut planned = Vec::new();
    for kernel in corpus::kernels().iter().filter(|k| !k.name.contains("spill")) {
        let before = kernel.lower(&mut context, &Settings::default());
        for max in [56, 64, 72, 80, 96, 112] {
            let mut b = Settings::builder();
            b.set("max-regs", &max.to_string()).expect("a register count");
            b.set("tune.register-reserve", "0").expect("a reserve");
            b.set("regalloc", "plan").expect("a mode");
            for (module, before) in kernel.lower(&mut context, &b.finish()).into_iter().zip(&before) {
                // Below that, kernels are GEMMs around the same loads, and planning has little to do.
                if peak(&module) < peak(before) && peak(before) > 80 {
                    planned.push((format!("{} planned for {max}", kernel.name), module));
                }
            }
        }
    }
    print_least(&tool, &planned);
}

/// Of what ptxas spills by itself; what a plan stores instead is not counted here, and is often more.
/// Bytes that a thread stores to and loads from shared and local memory, each instruction once.
fn moved(module: &Module) -> [i64; 2] {
    let mut bytes = [0, 0];
    for func in &module.functions {
        for inst in func.layout().iter().flat_map(|&bb| func.insts(bb)) {
            let mnemonic = func.op(inst).form().mnemonic;
            let parts: Vec<&str> = mnemonic.split('.').collect();
            if let [way @ ("st" | "ld"), "shared" | "local", ref mid @ .., last] = parts[..] {
                let lanes =
                    mid.iter().find_map(|p| p.strip_prefix('v')).map_or(1, |n| n.parse().expect("lanes"));
                let bits: i64 = last[1..].parse().expect("a type");
                bytes[usize::from(way == "ld")] += lanes * bits / 8;
            }
        }
    }
    bytes
}

#[test]
fn planned_spills_relieve_the_assembler() {
    let Some(tool) = ptxas() else { return };
    let mut context = Context::new();
    let kernels = corpus::kernels();
    let mut jobs = Vec::new();
    for name in [
        "kernels/gemm_bias_relu",
        "execute/elementwise_bias",
        "execute/epi_row_scale_m128",
        "execute/if_update_persistent",
        "execute/elementwise_2d",
    ] {
        let Some(kernel) = kernels.iter().find(|k| k.name == name) else { continue };
        for max in [40, 64, 80, 88, 96, 112, 128] {
            for mode in ["report", "plan"] {
                let mut b = Settings::builder();
                b.set("max-regs", &max.to_string()).expect("a register count");
                b.set("regalloc", mode).expect("a mode");
                for module in kernel.lower(&mut context, &b.finish()) {
                    jobs.push((name, max, mode, module));
                }
            }
        }
    }
    let results = in_parallel(&jobs, |(name, max, mode, module)| {
        assemble(&tool, &format!("{name}_{max}_{mode}"), module)
    });
    println!(
        "| kernel | max-regs | mode | peak | registers | stack | spill stores | spill loads | planned |"
    );
    let (mut better, mut over, mut bytes, mut planned) = (0, 0, [0, 0], [0, 0]);
    for pair in jobs.iter().zip(&results).collect::<Vec<_>>().chunks_exact(2) {
        // What the plan has beyond the code without.
        let [plain, with] = [0, 1].map(|n| pair.get(n).map_or([0, 0], |((.., m), _)| moved(m)));
        let added = [with[0] - plain[0], with[1] - plain[1]];
        for ((name, max, mode, module), r) in pair {
            let peak = peak(module);
            match r {
                Ok(a) => {
                    println!(
                        "| {name} | {max} | {mode} | {peak} | {} | {} | {} | {} | {added:?} |",
                        a.registers, a.stack, a.spill_stores, a.spill_loads
                    );
                    bytes[usize::from(*mode == "plan")] += a.spill_stores + a.spill_loads;
                    // Planned to fit, and the assembler spills all the same: it happens, as the reserve is no bound.
                    if *mode == "plan" && peak + PTXAS_RESERVE <= *max && *max >= LEAST {
                        over += u32::from(a.spill_stores + a.spill_loads > 0);
                    }
                }
                Err(e) => {
                    println!("| {name} | {max} | {mode} | {peak} | {} |", e.lines().next().unwrap_or(""))
                }
            }
        }
        planned = [planned[0] + added[0], planned[1] + added[1]];
        if let [(_, Ok(report)), (_, Ok(plan))] = pair {
            better += u32::from(report.spill_loads > 0 && plan.spill_loads == 0);
        }
    }
    println!(
        "bytes spilled by ptxas: {} without plans, {} with; {over} planned kernels spill; planned: {planned:?} bytes",
        bytes[0], bytes[1]
    );
    assert!(bytes[1] < bytes[0], "{bytes:?}");
    // What plans store and load.
    assert!(planned[0] <= 5_000 && planned[1] <= 3_500, "{planned:?}");
    assert!(better >= 3, "{better} kernels over their budget fit after planning");
}

/// Words that a kernel of `examples/kernels` gets: in a line that begins so, what replaces what.
type Words = &'static [(&'static str, &'static str, &'static str)];

/// With at most three quarters of the registers that they take, kernels fit by the words of their ops: without them more is
/// alive than there are registers, and the assembler spills.
#[test]
fn words_of_rematerialisation_make_kernels_fit() {
    let Some(tool) = ptxas() else { return };
    const AGAIN: &str = " <{tileas.recomputable}>";
    let columns: Words = &[("%x = mulf %silu", "%up", "%up <{tileas.preferred_atom_size = 16}>")];
    let gelu: Words = &[("%g = mulf %h", "%p", "%p <{tileas.preferred_atom_size = 16}>")];
    // Scores in two products that are read again behind the maximum; the accumulator in two as well.
    let attention: Words = &[
        (
            "%s = dot",
            "<{transpose_b}>",
            "<{transpose_b, tileas.preferred_atom_size = 64, tileas.recomputable}>",
        ),
        ("%an = dot", "%ar", "%ar <{tileas.preferred_atom_size = 64}>"),
        ("%is = cmpi", "<{predicate = lt}>", "<{predicate = lt, tileas.recomputable}>"),
        ("%is1 = reshape", "%is", AGAIN),
        ("%isb = broadcast", "%is1", AGAIN),
        ("%sl = mulf", "%sc", AGAIN),
        ("%ss = select", "%none", AGAIN),
    ];
    let cases = [
        ("gemm_swiglu", columns, 96, 0),
        ("gemm_bias_gelu", gelu, 96, 0),
        // What the assembler still spills does not depend on the budget.
        ("attention_d128", attention, 120, 8),
    ];
    let isa = tileas_isa::isa_for_cpu("sm_100a").expect("known");
    for (name, words, registers, share) in cases {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/kernels");
        let plain = std::fs::read_to_string(root.join(format!("{name}.tileas"))).expect("a kernel");
        let mut marked = String::new();
        for line in plain.lines() {
            let found = words.iter().find(|w| line.trim_start().starts_with(w.0));
            let place = found.and_then(|w| Some((line.rfind(w.1)?, w)));
            marked += &place.map_or_else(
                || line.to_owned(),
                |(at, (_, old, new))| {
                    let kept = if new.starts_with(' ') { *old } else { "" };
                    format!("{}{kept}{new}{}", &line[..at], &line[at + old.len()..])
                },
            );
            marked.push('\n');
        }
        let run = |text: &str, most: Option<u32>, what: &str| {
            let mut settings = Settings::default();
            if let Some(n) = most {
                settings = settings.with("max-regs", &n.to_string()).expect("allowed");
            }
            let mut context = Context::new();
            let module = context.parse(text, &settings).unwrap_or_else(|e| panic!("{e}\n{text}"));
            let made = context.compile(&module, &*isa, &settings).unwrap_or_else(|e| panic!("{e}"));
            let said: Vec<String> = made.warnings.iter().map(|w| w.to_string()).collect();
            let ptx = &made.kernels[0].ptx;
            let found = assemble_text(&tool, &format!("{name}_{what}"), ptx, "sm_100a").expect("assembles");
            (found, said)
        };
        let (free, _) = run(&plain, None, "free");
        assert!(free.registers * 3 >= registers * 4, "{name}: {registers} of {}", free.registers);
        let (without, said) = run(&plain, Some(registers), "without");
        assert!(said.iter().any(|s| s.contains("W0903")) && without.spill_stores > 0, "{name}: {without:?}");
        let (with, said) = run(&marked, Some(registers), "with");
        assert!(said.is_empty(), "{name}: {said:?}");
        assert!(
            with.spill_stores * share.max(1) <= without.spill_stores * share.min(1),
            "{name}: {with:?} {without:?}"
        );
        println!(
            "{name}: {} registers free, {registers}: {} bytes spilled, {} with words",
            free.registers, without.spill_stores, with.spill_stores
        );
    }
}
