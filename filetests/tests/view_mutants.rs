//! The post-verifier accepts no damaged kernel that accesses global memory in another order than its source.
//!
//! Kernels of `memory_order/`, and some of `execute/`, that write a view and access it more than once are materialised, and changed as
//! a wrong compiler pass could: an access moved before what it waits for or behind what it signals, a wait or release of
//! all threads made by one lane, a release or commit made at once, a wait for stores made weaker or dropped, a fence or a whole token
//! dropped. Each mutant is refused with a code of the post-verifier, or runs, agent by agent and as PTX under all timings
//! with all detectors, without a report, and computes what the source does; for kinds of which that may be so the reason
//! is listed.

use std::collections::BTreeMap;
use std::path::Path;
use tileas_codegen::ir::{AttrData, Function, Op, Opcode, Sym, Value, ValueDef, keys, print_function};
use tileas_codegen::{Context, Settings, Stage};
use tileas_filetests::execute::{Forms, RunCase, execute};
use tileas_filetests::{Header, root};

use Opcode::{
    AsyncPipelineConsumerRelease as Release, AsyncPipelineConsumerWait as Wait,
    AsyncPipelineCreateIterator as Iterator_, AsyncPipelineCreatePipeline as Create,
    AsyncPipelineIncIter as Inc, AsyncPipelineProducerAcquire as Acquire,
    AsyncPipelineProducerCommit as Commit, AsyncPipelineStoreWait as StoreWait,
};

/// Kinds of mutants of which some do what the kernel does, and why.
const EQUIVALENT: [(&str, &str); 10] = [
    ("bulk groups pending", "a token of the same lane waits for the groups"),
    ("an access before its wait", "another path orders it, or it is the agent's own, or of another view"),
    ("an access behind its signal", "another path orders it, or it is the agent's own, or of another view"),
    ("a signal at once", "another path orders what it stood behind"),
    ("only the lane waits", "only the lane does what waits"),
    ("only the lane signals", "only the lane did what is signalled"),
    ("no fence", "an engine's access to other tiles, or the threads wrote nothing"),
    ("a lost token", "another path orders the two"),
    ("a lost store wait", "the lane waits for its stores for others, too"),
    ("a store before its wait", "the lane waits for its stores for others, too, or in the turn before"),
];

type Change = Box<dyn Fn(&mut Function)>;

struct Mutant {
    kind: &'static str,
    what: String,
    change: Change,
}

fn ops(f: &Function, list: &[Opcode]) -> Vec<Op> {
    f.all_ops().into_iter().filter(|&o| list.contains(&f.opcode(o))).collect()
}

fn view(f: &Function, op: Op) -> Option<Value> {
    use Opcode::{AsyncTiledTmaLoad, AsyncTiledTmaStore, AtomicRmw, TiledLoad, TiledStore};
    if ![AsyncTiledTmaLoad, AsyncTiledTmaStore, AtomicRmw, TiledLoad, TiledStore].contains(&f.opcode(op)) {
        return None;
    }
    let desc = || f.defining_op(f.named_operand(op, "desc")?);
    f.named_operand(op, "view").or_else(|| f.named_operand(desc()?, "view"))
}

fn writes(f: &Function, op: Op) -> bool {
    [Opcode::TiledStore, Opcode::AsyncTiledTmaStore, Opcode::AtomicRmw].contains(&f.opcode(op))
}

/// Accesses to views that are written and accessed elsewhere too.
fn accesses(f: &Function) -> Vec<Op> {
    let all: Vec<(Op, Value)> = f.all_ops().into_iter().filter_map(|op| Some((op, view(f, op)?))).collect();
    let shared = |v: Value| {
        let mine = || all.iter().filter(|a| a.1 == v);
        mine().count() > 1 && mine().any(|a| writes(f, a.0))
    };
    all.iter().filter(|a| shared(a.1)).map(|a| a.0).collect()
}

/// The `create_pipeline` behind an end, an ownership value or an iterator.
fn pipe_of(f: &Function, v: Value, fuel: u32) -> Option<Op> {
    let fuel = fuel.checked_sub(1)?;
    let init = |l: Op, n: usize| f.named_segment(l, "inits").get(n).copied();
    match f.value_def(v) {
        ValueDef::Param(b, n) => pipe_of(f, init(f.block_parent(b)?, (n as usize).checked_sub(1)?)?, fuel),
        ValueDef::Result(op, n) => match f.opcode(op) {
            Create => Some(op),
            Opcode::For => pipe_of(f, init(op, n as usize)?, fuel),
            Opcode::If => {
                let y = f.last_op(f.op_block_at(op, 0)?)?;
                pipe_of(f, *f.operands(y).get(n as usize)?, fuel)
            }
            _ => pipe_of(f, *f.operands(op).first()?, fuel),
        },
    }
}

fn pipe(f: &Function, op: Op) -> Option<Op> {
    pipe_of(f, *f.operands(op).first()?, 64)
}

fn replace(f: &mut Function, from: Value, to: Value) {
    for op in f.all_ops() {
        for n in 0..f.operands(op).len() {
            if f.operands(op)[n] == from {
                f.set_operand(op, n, to);
            }
        }
    }
}

fn set_count(f: &mut Function, create: Op, key: Sym, n: i64) {
    let Some((name, mut args)) = f.attr_call(create, key).map(|(n, a)| (n.to_string(), a)) else { return };
    args[0] = n;
    let s = f.intern_symbol(&name);
    let args = args.iter().map(|&v| f.intern_attr(AttrData::Int(v, None))).collect();
    f.set_attr(create, key, AttrData::Call(s, args));
}

/// Number and threads of the agent in which an op stands.
fn threads(f: &Function, op: Op) -> i64 {
    let mut at = op;
    loop {
        let Some(b) = f.op_block(at) else { return 1 };
        let Some(up) = f.block_parent(b) else { return 1 };
        if f.opcode(up) == Opcode::AsyncPipelineAgentSwitch {
            let n = (0..f.regions(up).len()).find(|&n| f.op_block_at(up, n) == Some(b)).expect("a region");
            let elect = match f.attr(up, keys::LANES) {
                Some(AttrData::Array(list)) => {
                    matches!(f.attr_data(list[n]), AttrData::Name(s) if f.symbol(*s) == "elect")
                }
                _ => true,
            };
            return if elect { 1 } else { 32 * f.attr_ints(up, keys::NUM_WARPS).expect("warps")[n] };
        }
        at = up;
    }
}

/// All damaged copies; those of channel ops only of tokens, unless of `all` pipes.
fn mutants(f: &Function, all: bool) -> Vec<Mutant> {
    let counts = |op: Op| all || pipe(f, op).is_some_and(|p| f.operands(p).is_empty());
    let mut out = Vec::new();
    let mut add = |kind, what: String, change: Change| out.push(Mutant { kind, what, change });
    let touches = accesses(f);
    let text = |op: Op| format!("{op} {}", f.opcode(op).name());
    for &access in &touches {
        let before = std::iter::successors(f.prev_op(access), |&op| f.prev_op(op));
        for w in before.take_while(|&op| f.regions(op).is_empty()) {
            // Commits and releases follow the wait; nothing else from there to the access may rest on it.
            let mut hang: Vec<Value> = f.results(w).to_vec();
            let mut free = true;
            for op in std::iter::successors(f.next_op(w), |&op| f.next_op(op)) {
                let rests = f.operands(op).iter().any(|v| hang.contains(v));
                if rests && [Commit, Release].contains(&f.opcode(op)) {
                    hang.extend(f.results(op));
                } else {
                    free &= !rests;
                }
                if op == access {
                    break;
                }
            }
            if [Wait, Acquire].contains(&f.opcode(w)) && free {
                add(
                    "an access before its wait",
                    format!("{} and {}", text(access), text(w)),
                    Box::new(move |m| {
                        m.remove_op(w);
                        m.insert_after(access, w);
                        // What hangs on the wait follows it.
                        let mut last = w;
                        let mut at = m.first_op(m.op_block(access).expect("a block"));
                        while let Some(op) = at.filter(|&op| op != access) {
                            at = m.next_op(op);
                            let made = m.results(last).iter().any(|v| m.operands(op).contains(v));
                            if made && [Commit, Release].contains(&m.opcode(op)) {
                                m.remove_op(op);
                                m.insert_after(last, op);
                                last = op;
                            }
                        }
                    }),
                );
            }
        }
        let behind = std::iter::successors(f.next_op(access), |&op| f.next_op(op));
        for s in behind.take_while(|&op| f.regions(op).is_empty()) {
            let own = f.operands(s).first().and_then(|&v| f.defining_op(v));
            let free = !f.results(access).iter().any(|v| f.operands(s).contains(v));
            let stands_before = own.is_some_and(|o| {
                f.op_block(o) == f.op_block(s)
                    && std::iter::successors(f.prev_op(access), |&op| f.prev_op(op)).any(|op| op == o)
            });
            if [Commit, Release].contains(&f.opcode(s)) && free && stands_before {
                let what = format!("{} and {}", text(access), text(s));
                add(
                    "an access behind its signal",
                    what,
                    Box::new(move |m| {
                        m.remove_op(s);
                        m.insert_before(access, s);
                    }),
                );
            }
        }
    }
    for op in ops(f, &[Commit, Release]).into_iter().filter(|&op| counts(op)) {
        let Some(own) = f.operands(op).first().and_then(|&v| f.defining_op(v)) else { continue };
        let threads = threads(f, op);
        if f.op_block(own) == f.op_block(op) && f.prev_op(op) != Some(own) && f.operands(op).len() == 1 {
            add(
                "a signal at once",
                text(op),
                Box::new(move |m| {
                    m.remove_op(op);
                    m.insert_after(own, op);
                }),
            );
        }
        let Some(create) = pipe(f, op) else { continue };
        let named = f.has_attr(create, keys::NAMED);
        let pending = f.attr_int(op, keys::BULK_PENDING);
        if let Some(n) = pending {
            add("bulk groups pending", text(op), Box::new(move |m| m.set_int(op, keys::BULK_PENDING, n + 1)));
        }
        if threads > 1 && !named && pending.is_none() && !f.has_attr(op, keys::TX) {
            let key = if f.opcode(op) == Commit { keys::FULL } else { keys::EMPTY };
            add(
                "only the lane signals",
                text(op),
                Box::new(move |m| {
                    m.set_int(op, keys::BULK_PENDING, 0);
                    let n = m.attr_call(create, key).and_then(|(_, a)| a.first().copied());
                    if let Some(n) = n {
                        set_count(m, create, key, n - threads + 1);
                    }
                }),
            );
        }
    }
    for op in ops(f, &[Wait, Acquire]).into_iter().filter(|&op| counts(op)) {
        let named = pipe(f, op).is_some_and(|p| f.has_attr(p, keys::NAMED));
        if threads(f, op) > 1 && !named && !f.has_attr(op, keys::ISSUER) && !f.has_attr(op, keys::DRAIN) {
            add(
                "only the lane waits",
                text(op),
                Box::new(move |m| m.set_attr(op, keys::ISSUER, AttrData::Unit)),
            );
        }
    }
    for op in ops(f, &[StoreWait]) {
        add("a lost store wait", text(op), Box::new(move |m| m.remove_op(op)));
        let stores = |&o: &Op| f.opcode(o) == Opcode::AsyncTiledTmaStore;
        if let Some(next) = std::iter::successors(f.next_op(op), |&o| f.next_op(o)).find(stores) {
            let change = move |m: &mut Function| {
                m.remove_op(op);
                m.insert_after(next, op);
            };
            add("a store before its wait", text(op), Box::new(change));
        }
    }
    for create in ops(f, &[Create]) {
        if f.attr_call(create, keys::PUBLISH).is_some_and(|(n, _)| n == "global") {
            add(
                "no fence",
                text(create),
                Box::new(move |m| {
                    let s = m.intern_symbol("none");
                    m.set_attr(create, keys::PUBLISH, AttrData::Name(s));
                }),
            );
        }
        let mine: Vec<Op> = ops(f, &[Acquire, Commit, Wait, Release, Inc, Iterator_])
            .into_iter()
            .filter(|&op| pipe(f, op) == Some(create))
            .collect();
        // Iterators that regions hand on would leave holes.
        let made: Vec<Value> = mine.iter().flat_map(|&op| f.results(op)).copied().collect();
        let uses = |op: &Op| f.operands(*op).iter().any(|v| made.contains(v));
        let straight = f.all_ops().iter().filter(|&op| uses(op)).all(|op| mine.contains(op));
        if f.operands(create).is_empty() && straight {
            add(
                "a lost token",
                text(create),
                Box::new(move |m| {
                    for &op in mine.iter().rev() {
                        let v = m.operands(op)[0];
                        for r in m.results(op).to_vec() {
                            replace(m, r, v);
                        }
                        m.remove_op(op);
                    }
                    m.remove_op(create);
                }),
            );
        }
    }
    out
}

/// A kernel text that is materialised already: refused with these codes, or executed.
fn judge(
    mutant: &Function,
    source: &Function,
    cases: &[RunCase],
    settings: &Settings,
    context: &mut Context,
) -> Result<Result<(), String>, Vec<String>> {
    let isa = tileas_isa::isa_for_cpu("sm_100a").expect("a target");
    let module = match context.parse(&print_function(mutant), settings) {
        Ok(module) => module,
        Err(e) => return Err(vec![e[0].code.as_str().into()]),
    };
    match context.run_to(Stage::Metadata, &module, &*isa, settings) {
        Err(errors) => Err(errors.iter().map(|e| e.code.as_str().to_string()).collect()),
        Ok(run) => {
            let (ptx, metadata) = (run.text(Stage::Ptx), run.text(Stage::Metadata));
            let forms = Forms { source, materialized: mutant, ptx: &ptx, metadata: &metadata };
            Ok(execute(&forms, cases).map_err(|e| format!("{e:#}")))
        }
    }
}

/// Judges the kernels of a folder: how many there are, and by kind what became of the mutants.
fn judged(folder: &str, all: bool, wanted: &[&str]) -> (usize, BTreeMap<&'static str, [usize; 3]>) {
    let isa = tileas_isa::isa_for_cpu("sm_100a").expect("a target");
    let mut files: Vec<_> = std::fs::read_dir(root().join(folder))
        .expect("a folder")
        .map(|e| e.expect("an entry").path())
        .filter(|p| p.extension().is_some_and(|x| x == "tileas"))
        .filter(|p| wanted.is_empty() || wanted.iter().any(|w| p.file_stem().is_some_and(|s| s == *w)))
        .collect();
    files.sort();
    let mut context = Context::new();
    let (mut kernels, mut bad) = (0, Vec::new());
    // Refused for the order of a view, refused otherwise, accepted.
    let mut counts: BTreeMap<&'static str, [usize; 3]> = BTreeMap::new();
    for path in &files {
        let text = std::fs::read_to_string(path).expect("readable");
        let header = Header::parse(&text).expect("a header");
        if header.cases.is_empty() || !header.expected.is_empty() {
            continue;
        }
        let mut builder = Settings::builder();
        for pair in &header.set {
            builder.set_pair(pair).expect("an option");
        }
        let settings = builder.finish();
        let module = context.parse(&text, &settings).expect("parses");
        let run = context.run_to(Stage::Materialized, &module, &*isa, &settings).expect("compiles");
        for (source, kernel) in module.functions.iter().zip(&run.kernels) {
            let mat = kernel.materialized.as_ref().expect("agents");
            let name = Path::new(path).file_stem().and_then(|s| s.to_str()).unwrap_or("?").to_string();
            if accesses(mat).is_empty() {
                continue;
            }
            kernels += 1;
            let cases: Vec<RunCase> =
                header.cases.iter().map(|c| c.with_seeds(&[1, 2]).without_stats()).collect();
            for m in mutants(mat, all) {
                let mut func = mat.clone();
                (m.change)(&mut func);
                let count = counts.entry(m.kind).or_default();
                match judge(&func, source, &cases, &settings, &mut context) {
                    Err(codes) if codes.iter().all(|c| c == "E0711") => count[0] += 1,
                    Err(codes) if codes.iter().all(|c| c.starts_with("E07")) => count[1] += 1,
                    Err(codes) => bad.push(format!("{name}: {} {}: refused with {codes:?}", m.kind, m.what)),
                    Ok(Ok(())) => {
                        count[2] += 1;
                        if !EQUIVALENT.iter().any(|e| e.0 == m.kind) {
                            bad.push(format!("{name}: {} {}: accepted, without a reason", m.kind, m.what));
                        }
                    }
                    Ok(Err(why)) => {
                        let why: String = why.chars().take(600).collect();
                        bad.push(format!("{name}: {} {}: accepted, but {why}", m.kind, m.what));
                    }
                }
            }
        }
    }
    println!("{folder}: {kernels} kernels; kind: refused for a view, refused otherwise, accepted and right");
    for (kind, n) in &counts {
        println!("  {kind}: {n:?}");
    }
    assert!(bad.is_empty(), "{} mutants:\n{}", bad.len(), bad.join("\n"));
    (kernels, counts)
}

fn total(counts: &BTreeMap<&'static str, [usize; 3]>) -> [usize; 3] {
    counts.values().fold([0; 3], |a, n| [a[0] + n[0], a[1] + n[1], a[2] + n[2]])
}

#[test]
fn small_kernels() {
    let (kernels, counts) = judged("memory_order", true, &[]);
    let [for_views, others, accepted] = total(&counts);
    assert!(
        kernels > 25 && for_views > 50,
        "{kernels} kernels, {for_views} of {} mutants",
        for_views + others + accepted
    );
}

#[test]
fn executed_kernels() {
    let names = ["skew_if", "stores_other_threads", "token_threads"];
    let (kernels, _) = judged("execute", false, &names);
    assert_eq!(kernels, names.len());
}
