//! The post-verifier accepts every kernel that compiles and no damaged copy of it that can misbehave: a mutant is
//! refused, or executing it shows that it does what the kernel does.
//!
//! Every kernel of `filetests/` and `examples/` that can be materialised is, through the driver and with its options;
//! equal texts count once. Each change is one a wrong compiler pass could make: a channel op or an advance lost, doubled
//! or moved, an iterator of another turn, a count, a byte or a distance off, a ring a slot too short, payloads exchanged,
//! ops out of the schedule's order, guards and bounds of loops with local stages off, waits of all threads made by one
//! lane, buffers of one type at one place. What the verifier accepts runs through the symbolic machine of [`sim`]
//! (barriers, phases, late engines, atomics, random interleavings) at 0 to D + 2 trips and must give what the placed function gives in program order. A refusal names a code and what is violated;
//! one for a deadlock prints the cycle, and shortened rings are refused exactly where a run gets stuck.
//!
//! All kernels are verified and run; one in five is damaged, some 5000 mutants, or all of them with `TILEAS_ALL_MUTANTS=1` (25 000, two minutes more). The kernels
//! are dealt to four tests, which run in parallel.

use crate::sim;

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Once;
use tileas_codegen::ir::{AttrData, Function, Op, Opcode, Sym, TypeData, Value, keys};
use tileas_codegen::isa::SharedIsa;
use tileas_codegen::settings::Settings;
use tileas_codegen::testing::materialize::verify_materialized;
use tileas_codegen::{Code, CodegenError, Context, Stage};

use Opcode::{
    AsyncPipelineConsumerRelease as Release, AsyncPipelineConsumerWait as Wait,
    AsyncPipelineCreatePipeline as Create, AsyncPipelineIncIter as Inc,
    AsyncPipelineProducerAcquire as Acquire, AsyncPipelineProducerCommit as Commit,
};

/// A kernel on its way through the test.
struct Kernel {
    name: String,
    placed: Function,
    mat: Function,
}

/// All kernel texts, in order.
fn files() -> Vec<PathBuf> {
    fn below(dir: &Path, out: &mut Vec<PathBuf>) {
        let list = std::fs::read_dir(dir).expect("a folder");
        for path in list.filter_map(|e| Some(e.ok()?.path())) {
            if path.is_dir() {
                below(&path, out);
            } else if path.extension().is_some_and(|x| x == "tileas") {
                out.push(path);
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut out = Vec::new();
    for dir in ["examples", "filetests/filetests"] {
        below(&root.join(dir), &mut out);
    }
    out.sort();
    out
}

/// The kernels of one file that can be materialised from their source. `; error` comments are other stages' business:
/// what a stage refuses on the way is not there, what a later one refuses is.
fn compile(path: &Path, isa: &SharedIsa) -> Result<Vec<Kernel>, String> {
    let text = std::fs::read_to_string(path).expect("readable");
    let mut settings = Settings::builder();
    for line in text.lines().filter_map(|l| l.strip_prefix("; set ")) {
        if settings.set_pair(line.trim()).is_err() {
            return Ok(Vec::new());
        }
    }
    let settings = settings.finish();
    let mut ctx = Context::new();
    let Ok(module) = ctx.parse(&text, &settings) else { return Ok(Vec::new()) };
    let run = match ctx.run_to(Stage::Materialized, &module, &**isa, &settings) {
        Ok(run) => run,
        Err(e) => {
            // Kernels that only parse, or that a stage is to refuse.
            let runs = ["materialize", "execute", "compile", "ptxas"];
            let expected =
                text.contains("error: E") || !runs.iter().any(|r| text.contains(&format!("; test {r}")));
            return if expected { Ok(Vec::new()) } else { Err(format!("{}: {}", path.display(), e[0])) };
        }
    };
    let stem = path.file_stem().and_then(|s| s.to_str()).unwrap_or("?");
    let kernels = run.kernels.into_iter().filter_map(|k| {
        Some(Kernel { name: format!("{stem}/{}", k.name), placed: k.placed?, mat: k.materialized? })
    });
    Ok(kernels.collect())
}

fn ops(f: &Function, list: &[Opcode]) -> Vec<Op> {
    f.all_ops().into_iter().filter(|&o| list.contains(&f.opcode(o))).collect()
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

fn drop_op(f: &mut Function, op: Op) {
    if let (Some(r), Some(&v)) = (f.result(op), f.operands(op).first()) {
        replace(f, r, v);
    }
    f.remove_op(op);
}

/// Same block, one after the other.
fn exchange(f: &mut Function, a: Op, b: Op) {
    let after = f.next_op(b).expect("a block ends in a terminator");
    f.remove_op(b);
    f.insert_before(a, b);
    f.remove_op(a);
    f.insert_before(after, a);
}

fn count(f: &mut Function, op: Op, key: Sym, n: usize, by: i64) {
    let Some((name, mut args)) = f.attr_call(op, key).map(|(n, a)| (n.to_string(), a)) else { return };
    args[n] += by;
    let s = f.intern_symbol(&name);
    let args = args.iter().map(|&v| f.intern_attr(AttrData::Int(v, None))).collect();
    f.set_attr(op, key, AttrData::Call(s, args));
}

fn note(f: &Function, op: Op, key: Sym) -> Option<i64> {
    match f.attr_data(f.inherent(op).get(key)?) {
        AttrData::Int(v, _) => Some(*v),
        _ => None,
    }
}

fn set_note(f: &mut Function, op: Op, key: Sym, value: i64) {
    let a = f.intern_attr(AttrData::Int(value, None));
    f.inherent_mut(op).set(key, a);
}

/// The wait or acquire in the same block that owns what a release or commit gives up.
fn opener(f: &Function, op: Op) -> Option<Op> {
    let mut at = f.defining_op(*f.operands(op).first()?)?;
    while f.opcode(at) == Commit {
        at = f.defining_op(*f.operands(at).first()?)?;
    }
    (f.op_block(at) == f.op_block(op)).then_some(at)
}

/// The `create_pipeline` behind an end, an ownership value or an iterator.
fn pipe_of(f: &Function, v: Value, fuel: u32) -> Option<Op> {
    use tileas_codegen::ir::ValueDef;
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

fn contains(f: &Function, op: Op, test: &dyn Fn(Op) -> bool) -> bool {
    let mut found = test(op);
    for &r in f.regions(op) {
        f.walk(f.region_block(r), &mut |o| found |= test(o));
    }
    found
}

/// Gives a ring another number of slots everywhere: pipe, ends, iterators, buffers, and drains.
fn shorten(f: &mut Function, create: Op, slots: i64) {
    let less = u32::try_from(slots).expect("slots");
    let buffers: Vec<Value> = f.operands(create).to_vec();
    // A ring of several pipes is shortened as a whole.
    let mut pipes = vec![create];
    for p in ops(f, &[Create]) {
        let shares = f.operands(p).iter().any(|b| buffers.contains(b));
        if p != create && shares {
            pipes.push(p);
        }
    }
    for &p in &pipes {
        set_int(f, p, keys::NUM_STAGES, slots);
    }
    let mut values: Vec<Value> = Vec::new();
    for op in f.all_ops() {
        values.extend(f.results(op));
        for n in 0..f.regions(op).len() {
            if let Some(b) = f.op_block_at(op, n) {
                values.extend(f.block_params(b));
            }
        }
    }
    for v in values {
        let data = match f.value_data(v) {
            TypeData::PipeProducer(_) => TypeData::PipeProducer(less),
            TypeData::PipeConsumer(_) => TypeData::PipeConsumer(less),
            TypeData::PipeIter(_) => TypeData::PipeIter(less),
            _ => continue,
        };
        if pipe_of(f, v, 64).is_some_and(|p| pipes.contains(&p)) {
            let ty = f.intern_type(data);
            f.set_value_type(v, ty);
        }
    }
    for b in buffers {
        if let TypeData::Tile { dims, elem, space, layout } = f.value_data(b).clone() {
            let mut dims = dims;
            dims[0] = less;
            let ty = f.intern_type(TypeData::Tile { dims, elem, space, layout });
            f.set_value_type(b, ty);
        }
    }
    for op in ops(f, &[Acquire]) {
        let of = pipe_of(f, f.operands(op)[0], 64);
        if let Some(l) = f.op_parent(op).filter(|_| f.has_attr(op, keys::DRAIN))
            && of.is_some_and(|p| pipes.contains(&p))
            && let Some(bound) = f.named_operand(l, "upper").and_then(|v| f.defining_op(v))
        {
            set_int(f, bound, keys::VALUE, slots);
        }
    }
}

fn set_int(f: &mut Function, op: Op, key: Sym, v: i64) {
    let scalar = match f.attr(op, key) {
        Some(AttrData::Int(_, s)) => *s,
        _ => None,
    };
    f.set_attr(op, key, AttrData::Int(v, scalar));
}

struct Mutant<'a> {
    /// What was done.
    kind: &'static str,
    /// To what.
    what: String,
    change: Box<dyn Fn(&mut Function) + 'a>,
    /// The verdict must equal execution: a refusal for deadlock needs a run that gets stuck.
    exact: bool,
}

struct Mutants<'a> {
    out: Vec<Mutant<'a>>,
}

impl<'a> Mutants<'a> {
    fn add(&mut self, kind: &'static str, what: String, change: impl Fn(&mut Function) + 'a) {
        self.out.push(Mutant { kind, what, change: Box::new(change), exact: false });
    }
}

/// All damaged copies with what was done.
fn mutants(f: &Function) -> Vec<Mutant<'_>> {
    let mut m = Mutants { out: Vec::new() };
    for op in ops(f, &[Acquire, Commit, Wait, Release, Inc]) {
        let drain = f
            .op_parent(op)
            .is_some_and(|l| f.opcode(l) == Opcode::For && contains(f, l, &|o| f.has_attr(o, keys::DRAIN)));
        let of = if drain { " of a drain" } else { "" };
        let kind = match f.opcode(op) {
            Acquire => "delete an acquire",
            Commit => "delete a commit",
            Wait => "delete a wait",
            Release => "delete a release",
            _ => "delete an advance",
        };
        m.add(kind, format!("{op}{of}"), move |m| drop_op(m, op));
    }
    lanes(f, &mut m);
    places(f, &mut m);
    for op in ops(f, &[Release, Commit]) {
        if let Some(open) = opener(f, op) {
            m.add("exchange the ends of a window", format!("{open} and {op}"), move |m| {
                exchange(m, open, op)
            });
        }
    }
    for op in ops(f, &[Release]) {
        early_release(f, op, &mut m);
        if let Some(n) = f.attr_int(op, keys::BULK_PENDING) {
            m.add("bulk groups pending", format!("{op}: {}", n + 1), move |m| {
                set_int(m, op, keys::BULK_PENDING, n + 1)
            });
        }
    }
    for op in ops(f, &[Commit]) {
        if let Some(n) = f.attr_int(op, keys::TX) {
            for by in [-16, 16] {
                m.add("announced bytes", format!("{op}: {}", n + by), move |m| {
                    set_int(m, op, keys::TX, n + by)
                });
            }
        }
    }
    let pipes = ops(f, &[Create]);
    for &op in &pipes {
        let n = f.attr_int(op, keys::NUM_STAGES).expect("slots");
        m.add("numStages", format!("{op}: {}", n - 1), move |m| set_int(m, op, keys::NUM_STAGES, n - 1));
        for slots in 1..n {
            m.add("a shorter ring", format!("{op}: {slots} slots"), move |m| shorten(m, op, slots));
            m.out.last_mut().expect("a mutant").exact = !few_trips(f);
        }
        let d = f.attr_int(op, keys::DISTANCE).unwrap_or(0);
        m.add("distance", format!("{op}: {}", d + 1), move |m| set_int(m, op, keys::DISTANCE, d + 1));
        if d > 0 {
            m.add("distance", format!("{op}: {}", d - 1), move |m| set_int(m, op, keys::DISTANCE, d - 1));
        }
        for key in [keys::FULL, keys::EMPTY] {
            let args = f.attr_call(op, key).expect("a side").1.len();
            for (k, by) in (0..args).flat_map(|k| [(k, -1), (k, 1)]) {
                let what = format!("{op}: {} argument {k} by {by}", f.symbol(key));
                m.add("arrivals", what, move |m| count(m, op, key, k, by));
            }
        }
    }
    for (n, &p) in pipes.iter().enumerate() {
        for &q in &pipes[..n] {
            for (i, &x) in f.operands(p).iter().enumerate() {
                for (j, &y) in f.operands(q).iter().enumerate() {
                    // Where each hands over both, there and back, one of them is only named twice: what orders it stays.
                    if x != y && !(f.operands(p).contains(&y) && f.operands(q).contains(&x)) {
                        m.add("exchange payloads", format!("{i} of {p} and {j} of {q}"), move |m| {
                            m.set_operand(p, i, y);
                            m.set_operand(q, j, x);
                        });
                    }
                }
            }
        }
    }
    order(f, &mut m);
    neighbours(f, &mut m);
    iterators(f, &mut m);
    loops(f, &mut m);
    m.out
}

/// Waits, and releases, of all threads that only the issuing lane makes.
fn lanes<'a>(f: &'a Function, m: &mut Mutants<'a>) {
    let Some(&switch) = ops(f, &[Opcode::AsyncPipelineAgentSwitch]).first() else { return };
    let Some(AttrData::Array(kinds)) = f.attr(switch, keys::LANES) else { return };
    for (n, &kind) in kinds.iter().enumerate() {
        let elect = matches!(f.attr_data(kind), AttrData::Name(s) if f.symbol(*s) == "elect");
        let Some(body) = f.op_block_at(switch, n).filter(|_| !elect) else { continue };
        let mut here = Vec::new();
        f.walk(body, &mut |op| here.push(op));
        // A named barrier is for all threads.
        let named = |op: Op| {
            let owner = if f.opcode(op) == Release { opener(f, op) } else { Some(op) };
            owner.and_then(|o| pipe_of(f, f.operands(o)[0], 64)).is_none_or(|p| f.has_attr(p, keys::NAMED))
        };
        for op in
            here.into_iter().filter(|&op| [Wait, Acquire, Release].contains(&f.opcode(op)) && !named(op))
        {
            match f.opcode(op) {
                // Behind the last use the kernel's end waits for the lane.
                Wait | Acquire if !f.has_attr(op, keys::ISSUER) && !f.has_attr(op, keys::DRAIN) => {
                    m.add("only the lane waits", format!("{op}"), move |m| {
                        m.set_attr(op, keys::ISSUER, AttrData::Unit);
                    });
                }
                Release if !f.has_attr(op, keys::BULK_PENDING) => {
                    m.add("only the lane releases", format!("{op}"), move |m| {
                        set_int(m, op, keys::BULK_PENDING, 0);
                        let pipe = opener(m, op).and_then(|open| pipe_of(m, m.operands(open)[0], 64));
                        let threads = m.attr_ints(switch, keys::NUM_WARPS).map_or(1, |w| w[n] * 32);
                        let arrives = |&p: &Op| m.attr_call(p, keys::EMPTY).is_some_and(|e| !e.1.is_empty());
                        if let Some(pipe) = pipe.filter(arrives) {
                            count(m, pipe, keys::EMPTY, 0, 1 - threads);
                        }
                    });
                }
                _ => {}
            }
        }
    }
}

/// Buffers of one type put at one place.
fn places<'a>(f: &'a Function, m: &mut Mutants<'a>) {
    let all = ops(f, &[Opcode::AllocTensor]);
    for (i, &x) in all.iter().enumerate() {
        for &y in &all[..i] {
            let at = (f.attr_int(x, keys::OFFSET), f.attr_int(y, keys::OFFSET));
            let (Some(to), true) = (at.1, f.value_type(f.results(x)[0]) == f.value_type(f.results(y)[0]))
            else {
                continue;
            };
            if at.0.is_some_and(|from| from != to) {
                m.add("one place", format!("{x} and {y}"), move |m| set_int(m, x, keys::OFFSET, to));
            }
        }
    }
}

fn early_release<'a>(f: &'a Function, op: Op, m: &mut Mutants<'a>) {
    let Some(open) = opener(f, op) else { return };
    let Some(create) = pipe_of(f, f.operands(open)[0], 64) else { return };
    let buffers = f.operands(create);
    // What the same agent writes for a later turn is no use of this one.
    let turn = f.operands(open)[1];
    let other = |v: &Value| *v != turn && ops(f, &[Acquire]).iter().any(|&a| f.operands(a)[1] == *v);
    let uses = |o: Op| {
        let list = f.operands(o);
        f.opcode(o) != Create && list.iter().any(|v| buffers.contains(v)) && !list.iter().any(other)
    };
    let mut last = None;
    let mut at = f.next_op(open);
    while let Some(o) = at.filter(|&o| o != op) {
        if contains(f, o, &uses) {
            last = Some(o);
        }
        at = f.next_op(o);
    }
    let Some(last) = last else { return };
    m.add("an early release", format!("{op} before its last use {last}"), move |m| {
        let own = m.operands(op)[0];
        m.set_operands(op, &[own], &[1, 0]);
        m.remove_op(op);
        m.insert_before(last, op);
    });
}

/// Neighbouring ops of an agent's own order.
fn order<'a>(f: &'a Function, m: &mut Mutants<'a>) {
    for a in f.all_ops() {
        if note(f, a, keys::ORIGIN).is_none() {
            continue;
        }
        // The next op of the agent, past channel and uniform ops.
        let mut next = f.next_op(a);
        while let Some(b) = next.filter(|&b| note(f, b, keys::ORIGIN).is_none()) {
            next = f.next_op(b);
        }
        let Some(b) = next else { continue };
        m.add("exchange ops", format!("{a} and {b}"), move |m| exchange(m, a, b));
    }
}

/// Neighbours of which one is a channel op, unless the second uses the first.
fn neighbours<'a>(f: &'a Function, m: &mut Mutants<'a>) {
    for b in ops(f, &[Acquire, Commit, Wait, Release, Inc]) {
        for (x, y) in [(f.prev_op(b), Some(b)), (Some(b), f.next_op(b))] {
            let (Some(x), Some(y)) = (x, y) else { continue };
            let uses = |o: Op| f.operands(o).iter().any(|v| f.results(x).contains(v));
            // A pair of channel ops comes up once, at its second op.
            let twice = x == b && [Acquire, Commit, Wait, Release, Inc].contains(&f.opcode(y));
            // The condition of an exit belongs to the end of its region.
            let ends = f.opcode(y).is_terminator() || f.opcode(y) == Opcode::ExitIf;
            if !twice && !ends && !contains(f, y, &uses) {
                m.add(
                    "exchange neighbours",
                    format!("{x} {} and {y} {}", f.opcode(x).name(), f.opcode(y).name()),
                    move |m| exchange(m, x, y),
                );
            }
        }
    }
}

/// Advances made twice, and iterators of another turn.
fn iterators<'a>(f: &'a Function, m: &mut Mutants<'a>) {
    for op in ops(f, &[Inc]) {
        m.add("a second advance", format!("{op}"), move |m| {
            let Some(v) = m.result(op) else { return };
            let ty = m.value_type(v);
            let next = m.make_op(Inc, &[v], &[1], &[ty], tileas_codegen::Loc::NONE);
            let w = m.results(next)[0];
            replace(m, v, w);
            m.set_operands(next, &[v], &[1]);
            if let Some(after) = m.next_op(op) {
                m.insert_before(after, next);
            }
        });
    }
    let is_iter = |v: Value| matches!(f.value_data(v), TypeData::PipeIter(_));
    for op in f.all_ops() {
        for (n, &v) in f.operands(op).iter().enumerate().filter(|&(_, &v)| is_iter(v)) {
            if f.opcode(op) == Inc {
                continue;
            }
            // What it was advanced from, and the first one of all.
            let mut older = Vec::new();
            let mut at = Some(v);
            while let Some(d) = at.and_then(|v| f.defining_op(v)) {
                let next = match f.opcode(d) {
                    Inc => f.operands(d)[0],
                    Opcode::For => {
                        let k = f.results(d).iter().position(|&r| Some(r) == at).expect("a result");
                        f.named_segment(d, "inits")[k]
                    }
                    _ => break,
                };
                older.push(next);
                at = Some(next);
            }
            for w in older {
                m.add("an iterator of another turn", format!("{op}: {w} for {v}"), move |m| {
                    m.set_operand(op, n, w);
                });
            }
        }
    }
}

/// Bounds and conditions of one agent, guards, copies and notes of loops with local stages.
fn loops<'a>(f: &'a Function, m: &mut Mutants<'a>) {
    for op in f.all_ops() {
        let skew = note(f, op, keys::SKEW);
        let other = |f: &mut Function, v: Value| {
            let op = f.defining_op(v)?;
            let name = f.attr_name(op, keys::PREDICATE)?;
            let s = if name == "lt" { "le" } else { "lt" };
            let s = f.intern_symbol(s);
            f.set_attr(op, keys::PREDICATE, AttrData::Name(s));
            Some(())
        };
        if f.opcode(op) == Opcode::If && note(f, op, keys::ORIGIN).is_none() {
            let condition = f.named_operand(op, "condition").expect("a condition");
            if f.defining_op(condition).is_some_and(|d| f.opcode(d) == Opcode::Cmpi) {
                m.add("another predicate in a guard", format!("{op}"), move |m| {
                    other(m, condition);
                });
            }
            if note(f, op, keys::OF).is_some() {
                m.add("delete a copy of a loop body", format!("{op}"), move |m| {
                    let old: Vec<Value> = m
                        .op_block_at(op, 1)
                        .and_then(|b| m.last_op(b))
                        .map(|y| m.operands(y).to_vec())
                        .unwrap_or_default();
                    let results = m.results(op).to_vec();
                    results.into_iter().zip(old).for_each(|(r, v)| replace(m, r, v));
                    m.remove_op(op);
                });
            }
        }
        if f.opcode(op) == Opcode::For && note(f, op, keys::ORIGIN).is_some() {
            for key in [keys::SKEW, keys::II] {
                if let Some(n) = note(f, op, key).filter(|_| skew.is_some()) {
                    let what = format!("{op}: {} {}", f.symbol(key), n + 1);
                    m.add("notes of a loop", what, move |m| set_note(m, op, key, n + 1));
                }
            }
            // One trip less in this agent; where no other agent takes part, that is another kernel, not a broken one.
            let origin = note(f, op, keys::ORIGIN);
            let partners = f
                .all_ops()
                .into_iter()
                .filter(|&o| f.opcode(o) == Opcode::For && note(f, o, keys::ORIGIN) == origin)
                .count();
            let upper = f.named_operand(op, "upper").expect("a bound");
            let lower = f.named_operand(op, "lower").and_then(|v| f.constant_value(v));
            let never = lower.zip(f.constant_value(upper)).is_some_and(|(lo, hi)| lo >= hi);
            if !never && (skew.is_some() || partners > 1) {
                m.add("a trip less", format!("{op}"), move |m| {
                    let ty = m.value_type(upper);
                    let one = m.make_op(Opcode::Constant, &[], &[], &[ty], tileas_codegen::Loc::NONE);
                    m.set_int(one, keys::VALUE, 1);
                    m.insert_before(op, one);
                    let v = m.results(one)[0];
                    let less =
                        m.make_op(Opcode::Subi, &[upper, v], &[1, 1], &[ty], tileas_codegen::Loc::NONE);
                    m.insert_before(op, less);
                    let v = m.results(less)[0];
                    m.set_operand(op, 1, v);
                });
            }
        }
    }
}

/// What execution says of a materialised function: the first run that goes wrong.
fn misbehaves(placed: &Function, mat: &Function, seeds: u64) -> Option<String> {
    let depth =
        ops(mat, &[Create]).iter().filter_map(|&p| mat.attr_int(p, keys::NUM_STAGES)).max().unwrap_or(1);
    // And enough for a loop that counts in steps to have as many iterations as some agent has local stages. By 16 and more the
    // simulation does not divide.
    for n in (0..=depth + 2).chain([15.min(4 * (depth + 2))]) {
        for ints in [[n; 4], [n, 2, 1, 2], [2, n, 2, 1], [0, 2 * n, 2, 2]] {
            let want = sim::reference(placed, &ints);
            for seed in 0..seeds {
                let run = catch_unwind(AssertUnwindSafe(|| sim::run(mat, &ints, seed)));
                match run {
                    Ok(got) if got == Ok(want.clone()) => {}
                    Ok(got) => {
                        return Some(format!(
                            "{ints:?}, seed {seed}: {}",
                            if got.is_err() { "stuck" } else { "other results" }
                        ));
                    }
                    Err(_) => return Some(format!("{ints:?}, seed {seed}: an impossible state")),
                }
            }
        }
    }
    None
}

/// Whether what a run is given cannot make some loop of the source run often: a bound is the smaller of two numbers, comes from
/// memory or from the extent of a view, or only the lower one is given.
fn few_trips(mat: &Function) -> bool {
    ops(mat, &[Opcode::For]).into_iter().any(|l| {
        let bound = |name| mat.named_operand(l, name);
        let (Some(lower), Some(upper)) = (bound("lower"), bound("upper")) else { return false };
        // A loop with local stages counts its iterations, and has some steps more.
        let through = |v: &Value| {
            let counts =
                |&d: &Op| matches!(mat.opcode(d), Opcode::Divi | Opcode::Addi | Opcode::Subi | Opcode::Maxi);
            let d = mat.defining_op(*v).filter(counts);
            d.map(|d| mat.operands(d)[0])
        };
        let given = |v: Value| std::iter::successors(Some(v), through).last().unwrap_or(v);
        let few = [Opcode::Mini, Opcode::Dim, Opcode::TiledLoad, Opcode::Copy];
        mat.defining_op(given(upper)).is_some_and(|d| few.contains(&mat.opcode(d)))
            || mat.constant_value(upper).is_some() && mat.constant_value(lower).is_none()
    })
}

/// Kinds of mutants of which some do what the kernel does, and why; such a mutant of another kind is an error of the
/// verifier or of this test until it is understood.
const EQUIVALENT: [(&str, &str); 7] = [
    ("notes of a loop", "with that interval too every agent has the order that it has"),
    ("one place", "nobody uses the one buffer when the other holds a tile"),
    ("exchange neighbours", "the two ops neither wait for each other nor touch what the other hands over"),
    ("a shorter ring", "agents run less far ahead of each other, nobody waits in a cycle"),
    ("delete an advance", "behind the last use of the iterator: a drain of a ring of one slot"),
    ("a second advance", "behind the last use of the iterator: a drain of a ring of one slot"),
    ("exchange ops", "one of the two is a region in which the agent does nothing of its own"),
];

/// Why a mutant of that kind may do the same as the kernel it was made from.
fn equivalent(kind: &str, f: &Function) -> Option<&'static str> {
    // A token behind a store is given when all bulk groups of the lane are complete.
    let waits = || {
        ops(f, &[Opcode::AsyncPipelineProducerCommit, Opcode::AsyncPipelineStoreWait])
            .into_iter()
            .any(|op| f.opcode(op) == Opcode::AsyncPipelineStoreWait || f.has_attr(op, keys::BULK_PENDING))
    };
    if kind == "exchange payloads" && few_trips(f) {
        return Some("both buffers are used once, alike");
    }
    if kind == "bulk groups pending" && waits() {
        return Some("the same lane waits for the groups, alone or to give a token");
    }
    EQUIVALENT.iter().find(|e| e.0 == kind).map(|e| e.1)
}

fn deadlock(errors: &[CodegenError]) -> bool {
    errors.iter().any(|e| e.code == Code::E0702)
}

thread_local! {
    /// Whether panics of this thread are expected, and say nothing.
    static SILENT: Cell<bool> = const { Cell::new(false) };
}

/// Silences the panics of this thread; tests beside it go on to say theirs.
fn silence() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !SILENT.get() {
                before(info);
            }
        }));
    });
    SILENT.set(true);
}

fn shard(number: usize) {
    let isa = tileas_isa::isa_for_cpu("sm_100a").expect("a target");
    let (mut kernels, mut total, mut equal, mut cycles) = (0, 0, 0, 0);
    let mut bad: Vec<String> = Vec::new();
    let mut seen: Vec<String> = Vec::new();
    silence();
    let all = std::env::var_os("TILEAS_ALL_MUTANTS").is_some();
    for path in &files() {
        // Equal texts may stand in several files: all are compiled by every test that might run them.
        let text = std::fs::read_to_string(path).expect("readable");
        let kernel = text.find("\nkernel ").map_or(text.as_str(), |at| &text[at..]);
        let key = text
            .lines()
            .filter(|l| l.starts_with("; set "))
            .chain([kernel.split("; ----").next().unwrap_or("")]);
        let key: String = key.collect();
        if seen.contains(&key) {
            continue;
        }
        seen.push(key);
        if seen.len() % SHARDS != number {
            continue;
        }
        let list = match catch_unwind(AssertUnwindSafe(|| compile(path, &isa))) {
            Ok(Ok(list)) => list,
            Ok(Err(why)) => {
                bad.push(format!("does not compile: {why}"));
                continue;
            }
            Err(_) => {
                bad.push(format!("does not compile: {}", path.display()));
                continue;
            }
        };
        for k in list {
            // In the simulation a tile is one number, and an update by it one of all its elements.
            let updates =
                |f: &Function| f.ops().any(|op| f.opcode(op).is_atomic() && f.sparse_tile(op).is_some());
            if updates(&k.mat) {
                continue;
            }
            kernels += 1;
            if let Err(e) = verify_materialized(&k.mat, &*isa) {
                bad.push(format!("{}: refused: {}", k.name, e[0]));
                continue;
            }
            match catch_unwind(AssertUnwindSafe(|| misbehaves(&k.placed, &k.mat, 3))) {
                Ok(None) => {}
                Ok(Some(why)) => {
                    bad.push(format!("{}: accepted, but {why}", k.name));
                    continue;
                }
                Err(_) => {
                    bad.push(format!("{}: cannot be run", k.name));
                    continue;
                }
            }
            if !all && !(seen.len() / SHARDS).is_multiple_of(5) {
                continue;
            }
            for m in mutants(&k.mat) {
                total += 1;
                let mut func = k.mat.clone();
                (m.change)(&mut func);
                let name = format!("{}: {} ({})", k.name, m.kind, m.what);
                match verify_materialized(&func, &*isa) {
                    Ok(_) => {
                        equal += 1;
                        let run = catch_unwind(AssertUnwindSafe(|| misbehaves(&k.placed, &func, 4)));
                        match run {
                            Ok(None) => match equivalent(m.kind, &k.mat) {
                                Some(why) => println!("{name}: accepted, does the same: {why}"),
                                None => bad.push(format!("{name}: accepted, does the same without a reason")),
                            },
                            Ok(Some(why)) => bad.push(format!("{name}: accepted, but {why}")),
                            Err(_) => bad.push(format!("{name}: accepted, and cannot be run")),
                        }
                    }
                    Err(e) if deadlock(&e) => {
                        cycles += 1;
                        if !e.iter().any(|e| e.message.contains("stuck: ") && e.message.contains(" -> ")) {
                            bad.push(format!("{name}: a deadlock without its history: {}", e[0]));
                        }
                        if m.exact && misbehaves(&k.placed, &func, 2).is_none() {
                            bad.push(format!("{name}: refused, but runs: {}", e[0]));
                        }
                    }
                    Err(e) => {
                        let said =
                            |e: &CodegenError| e.code.as_str().starts_with("E07") && e.message.len() > 16;
                        if !e.iter().all(said) {
                            bad.push(format!("{name}: a refusal that says nothing: {e:?}"));
                        }
                    }
                }
            }
        }
    }
    SILENT.set(false);
    println!("{kernels} kernels, {total} mutants, {cycles} deadlocks shown, {equal} accepted and executed");
    assert!(bad.is_empty(), "{} of {total}:\n{}", bad.len(), bad.join("\n"));
    assert!(kernels > 30 && total > 800, "{kernels} kernels, {total} mutants test too little");
}

/// Tests that share the kernels.
const SHARDS: usize = 4;

#[test]
fn kernels_0() {
    shard(0);
}

#[test]
fn kernels_1() {
    shard(1);
}

#[test]
fn kernels_2() {
    shard(2);
}

#[test]
fn kernels_3() {
    shard(3);
}
