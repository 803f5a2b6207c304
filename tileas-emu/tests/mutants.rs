//! Mutation analysis: every mutant that the rules make of a right kernel is caught, or it is listed with the reason
//! why nothing can go wrong.
//!
//! The kernels: a hand-written GEMM for sm_90a, and three that the compiler made for sm_100a (a persistent GEMM, a GEMM
//! with an epilogue, a sum over blocks in registers), and small ones of clusters. A mutant is caught when it is refused, or some of at most 64
//! timings ends in a fault or a wrong result. `TILEAS_MUTANTS=n` prints all verdicts, with
//! n timings for each mutant.

use crate::common::mutants as rules;
use crate::common::{self, clusters as kernels};

use common::*;
use std::collections::BTreeMap;
use tileas_emu::host::data::{Fill, ViewSpec, place};
use tileas_emu::*;
use tileas_launch::json::read;
use tileas_launch::{Device, Named, View};

/// Timings that a mutant may take until it is caught.
const SEEDS: u64 = 64;
/// Timings that a mutant without effect is given, where `TILEAS_MUTANTS` does not say.
const QUIET: usize = 2;

/// Says what is wrong with the memory after a run.
type Judge = Box<dyn Fn(&Memory) -> Result<(), String>>;

/// A kernel, its launch, and what is right afterwards.
struct Subject {
    text: String,
    launch: Launch,
    memory: Memory,
    right: Judge,
}

impl Subject {
    fn run(&self, text: &str, mode: Mode) -> Result<(), String> {
        let p = Program::parse(text).map_err(|e| format!("refused: {}", e[0]))?;
        let mut memory = self.memory.clone();
        let o = RunOptions { max_steps: 3_000_000, ..all(mode) };
        let first = |f: Fault| f.to_string().lines().next().unwrap_or("").to_string();
        Machine::run(&p, &self.launch, &mut memory, &o, &mut NoTrace).map_err(first)?;
        (self.right)(&memory).map_err(|e| format!("result: {e}"))
    }

    /// How a mutant is caught, and by which timing.
    fn caught(&self, text: &str, most: usize) -> Option<(usize, String)> {
        let modes = [Mode::Random(1), Mode::Latest(1)].into_iter();
        let modes = modes.chain((2..SEEDS - 1).map(Mode::Random)).chain([Mode::Fast]);
        modes.take(most).enumerate().find_map(|(i, m)| self.run(text, m).err().map(|e| (i, e)))
    }
}

/// Mutants of a line that have no effect, and why.
type Quiet = (usize, &'static str, &'static str);

fn analyse(s: &Subject, without: &[&str], quiet: &[Quiet], at_least: usize) {
    let thorough: Option<usize> = std::env::var("TILEAS_MUTANTS").ok().and_then(|n| n.parse().ok());
    for m in [Mode::Random(1), Mode::Latest(1), Mode::Random(2), Mode::Fast] {
        s.run(&s.text, m).unwrap_or_else(|e| panic!("the kernel itself, {m:?}: {e}"));
    }
    let mut quiet: BTreeMap<(usize, &str), &str> = quiet.iter().map(|q| ((q.0, q.1), q.2)).collect();
    let (mut bad, mut caught, mut silent) = (Vec::new(), 0, 0);
    for m in rules::mutants(&s.text, without) {
        let reason = quiet.remove(&(m.line, m.rule));
        let most = thorough.unwrap_or(if reason.is_some() { QUIET } else { SEEDS as usize });
        let found = s.caught(&m.text, most);
        if thorough.is_some() {
            println!("{} | {} | {} | {found:?} {}", m.line, m.rule, m.old, reason.unwrap_or(""));
        }
        match (found, reason) {
            (Some(_), None) => caught += 1,
            (None, Some(_)) => silent += 1,
            (None, None) => bad.push(format!("not caught: line {}, {}: {}", m.line, m.rule, m.old)),
            (Some((_, e)), Some(_)) => {
                bad.push(format!("listed as without effect: line {}, {}: {}: {e}", m.line, m.rule, m.old));
            }
        }
    }
    bad.extend(quiet.keys().map(|k| format!("listed, but no such mutant: {k:?}")));
    assert!(bad.is_empty(), "{}", bad.join("\n"));
    assert!(caught >= at_least, "{caught} mutants caught, {silent} without effect");
}

fn hand(text: &str, hopper: bool, m: usize, n: usize, k: usize) -> Subject {
    let mut memory = Memory::new();
    let (launch, c, want) = gemm_hand(&mut memory, m, n, k, 1, hopper);
    let text = text.to_string();
    Subject { text, launch, memory, right: Box::new(move |mem| same(&get(mem, &c), &want, c.format)) }
}

/// A compiled kernel: its views (shape, type, fill), scalars, and the right values of one view.
fn compiled(
    text: &str,
    json: &str,
    views: &[(&str, &[usize], &str, &str)],
    scalars: &[(&str, i64)],
    out: &'static str,
    want: impl Fn(&dyn Fn(&str) -> Vec<f64>) -> Vec<f64>,
) -> Subject {
    let (mut memory, mut named) = (Memory::new(), Named::default());
    let mut placed = BTreeMap::new();
    for &(name, shape, elem, fill) in views {
        let fill = Fill::parse(fill).expect("a fill");
        let spec = ViewSpec { shape: shape.to_vec(), strides: None, elem: elem.into(), fill, pad: 256 };
        let view = place(name, &spec, 1, &mut memory).expect("a view");
        named.insert(name, View::emulated(&view, &memory, None));
        placed.insert(name, view);
    }
    for &(name, v) in scalars {
        named.insert(name, v);
    }
    let metadata = &read(json).expect("launch metadata")[0];
    let launch = named.of(metadata).and_then(|args| metadata.launch(&args, &Device { sms: 1 }, None));
    let launch = launch.and_then(|l| l.emulated(&metadata.kernel)).expect("a launch");
    let want = want(&|name| placed[name].numbers(&memory));
    let c = placed.remove(out).expect("the result");
    let right = move |mem: &Memory| {
        let got = c.numbers(mem);
        match got.iter().zip(&want).position(|(g, w)| g != w) {
            Some(i) => Err(format!("element {i}: {} instead of {}", got[i], want[i])),
            None => Ok(()),
        }
    };
    Subject { text: text.to_string(), launch, memory, right: Box::new(right) }
}

/// `a[m][k] * b[n][k]`.
fn product(a: &[f64], b: &[f64], k: usize) -> Vec<f64> {
    let rows = a.chunks_exact(k);
    let dot = |x: &[f64], y: &[f64]| x.iter().zip(y).map(|(x, y)| x * y).sum();
    rows.flat_map(|x| b.chunks_exact(k).map(move |y| dot(x, y))).collect()
}

#[test]
fn hand_written_sm90a() {
    let s = hand(include_str!("data/gemm_sm90a.ptx"), true, 136, 128, 328);
    analyse(&s, &[], HOPPER, 40);
}

#[test]
fn compiled_persistent() {
    let text = include_str!("data/gemm_persistent.ptx");
    let json = include_str!("data/gemm_persistent.json");
    let views: &[(&str, &[usize], &str, &str)] = &[
        ("a", &[632, 104], "f16", "ints"),
        ("b", &[128, 104], "f16", "ints"),
        ("c", &[632, 128], "f16", "nan"),
    ];
    let s = compiled(text, json, views, &[("kt", 2), ("mt", 5), ("nt", 1)], "c", |v| {
        product(&v("a"), &v("b"), 104)
    });
    analyse(&s, &[], PERSISTENT, 40);
}

#[test]
fn compiled_epilogue() {
    let text = include_str!("data/gemm_bias_relu.ptx");
    let json = include_str!("data/gemm_bias_relu.json");
    let views: &[(&str, &[usize], &str, &str)] = &[
        ("a", &[128, 584], "f16", "ints"),
        ("b", &[128, 584], "f16", "ints"),
        ("bias", &[128], "f16", "ints"),
        ("c", &[128, 128], "f16", "nan"),
    ];
    let s = compiled(text, json, views, &[("kt", 10)], "c", |v| {
        let bias = v("bias");
        product(&v("a"), &v("b"), 584).iter().enumerate().map(|(i, x)| (x + bias[i % 128]).max(0.0)).collect()
    });
    analyse(&s, &["later", "K step", "count + 1", "stride / 2"], EPILOGUE, 30);
}

#[test]
fn compiled_sum() {
    let text = include_str!("data/sum_blocks.ptx");
    let json = include_str!("data/sum_blocks.json");
    let views: &[(&str, &[usize], &str, &str)] =
        &[("a", &[128 * 14, 40], "f32", "ints"), ("c", &[128, 40], "f32", "nan")];
    let s = compiled(text, json, views, &[("n", 14)], "c", |v| {
        let a = v("a");
        (0..128 * 40).map(|i| (0..14).map(|b| a[b * 128 * 40 + i]).sum()).collect()
    });
    analyse(&s, &[], SUM, 30);
}

#[test]
fn clusters() {
    for name in kernels::NAMES {
        let case = kernels::Case::new(name);
        let (launch, memory) = (case.launch.clone(), case.memory.clone());
        let right = Box::new(move |mem: &Memory| case.right(mem));
        let s = Subject { text: kernels::entry(name), launch, memory, right };
        let quiet: Vec<Quiet> = CLUSTERS.iter().filter(|q| q.0 == name).map(|q| q.1).collect();
        analyse(&s, &[], &quiet, 4);
    }
}

const CLUSTERS: &[(&str, Quiet)] = &[
    ("ring", (56, "narrow", OVER)),
    ("ring", (58, "later", EXPECT)),
    ("ring", (94, "later", "the lanes that free the slot run the fence too, after the barrier")),
    ("ring", (99, "narrow", OVER)),
    ("reduce", (65, "drop", TOGETHER)),
    ("send", (37, "later", "the same lane runs the fence a little later")),
    ("send", (38, "drop", TOGETHER)),
    ("send", (44, "relaxed", "what is sent has signals of its own")),
    ("send", (44, "narrow", "what is sent has signals of its own")),
    ("copy", (31, "later", "the same lane runs the fence a little later")),
    ("copy", (35, "later", "the same lane runs the fence a little later")),
    ("copy", (36, "later", "the barrier of the cluster still comes after it")),
    ("copy", (37, "drop", TOGETHER)),
    ("copy", (38, "relaxed", "fences order the initialisation, and the source is the CTA's own")),
    ("copy", (46, "narrow", "the data is the copy's own")),
    ("copy", (54, "relaxed", "the wait has seen that the copy is over")),
    ("count", (28, "drop", TOGETHER)),
    ("flag", (25, "drop", TOGETHER)),
    ("mail", (26, "drop", "the barrier of the cluster orders the initialisation")),
    ("mail", (26, "later", "the barrier of the cluster orders the initialisation")),
    ("mail", (27, "drop", TOGETHER)),
    ("mail", (28, "relaxed", "the fence orders the initialisation")),
    ("commit", (19, "later", "the same lane runs the fence a little later")),
    ("commit", (20, "drop", TOGETHER)),
    ("commit", (26, "relaxed", "there is no data")),
    ("commit", (26, "narrow", "there is no data")),
];

const OVER: &str = "the slot is written again, and nothing that was written before is read";
const TOGETHER: &str = "the lanes have not gone apart";
const EXPECT: &str = "the arrival itself is still missing, so the phase cannot end early";
const LEADING: &str = "K-major operands with a swizzle do not use the leading dimension";
const ISSUER: &str = "the thread that issues the store runs the fence too, after the barrier";
const JOINED: &str = "the next barrier of the warp comes before any instruction of the whole warp";
const AGAIN: &str = "another wait covers the same groups";
const COMMIT: &str = "the store joins the next group, and that is waited for";
const ALLOC: &str = "allocation is synchronous, no tensor-memory operation comes before the barrier";
const FREE: &str = "every tensor-memory operation has been waited for, and dealloc is synchronous";
const EITHER: &str = "the fence after the other wait of the same thread orders the accumulator";
const DEAD: &str = "no barrier is polled with this parity";

const WHOLE: &str =
    "warps read tensor memory as a whole, and for 32 phases the last one still ends the phase";

const HOPPER: &[Quiet] = &[
    (92, "registers + 8", "registers that the block leaves free at its start make up for it"),
    (116, "later", EXPECT),
    (132, "drop", "the registers were enough without; the assembler sees to that"),
    (144, "leading dimension", LEADING),
    (147, "leading dimension", LEADING),
    (246, "later", "the wait between the two concerns the stores only"),
    (305, "later", ISSUER),
    (320, "drop", JOINED),
];

const PERSISTENT: &[Quiet] = &[
    (49, "count - 1", WHOLE),
    (50, "count - 1", WHOLE),
    (62, "drop", ALLOC),
    (62, "later", ALLOC),
    (63, "later", ALLOC),
    (64, "drop", ALLOC),
    (64, "later", ALLOC),
    (176, "drop", JOINED),
    (237, "later", ISSUER),
    (243, "drop", COMMIT),
    (320, "drop", JOINED),
    (324, "later", "the release comes later, which only delays the MMA"),
    (357, "drop", "the other staging buffer: barrier 1 of the same tile has followed the wait for its store"),
    (
        357,
        "later",
        "the other staging buffer: barrier 1 of the same tile has followed the wait for its store",
    ),
    (385, "later", ISSUER),
    (391, "later", AGAIN),
    (392, "drop", AGAIN),
    (392, "later", AGAIN),
    (392, "groups + 1", AGAIN),
    (395, "drop", JOINED),
    (401, "parity", DEAD),
    (401, "no flip", DEAD),
    (402, "parity", DEAD),
    (402, "no flip", DEAD),
    (411, "drop", JOINED),
    (412, "drop", AGAIN),
    (412, "groups + 1", AGAIN),
    (439, "later", EXPECT),
    (507, "drop", EITHER),
    (519, "drop", EITHER),
    (519, "later", EITHER),
    (480, "parity", "the loop begins with parity 0 and wraps once"),
    (523, "leading dimension", LEADING),
    (526, "leading dimension", LEADING),
    (573, "drop", FREE),
    (574, "ring - 1", "any warp may free tensor memory"),
    (579, "later", FREE),
    (580, "drop", FREE),
    (580, "later", FREE),
];

const EPILOGUE: &[Quiet] = &[
    (61, "drop", ALLOC),
    (63, "drop", ALLOC),
    (513, "drop", JOINED),
    (803, "drop", COMMIT),
    (1232, "drop", JOINED),
    (1523, "drop", AGAIN),
    (1523, "groups + 1", AGAIN),
    (1524, "drop", AGAIN),
    (1524, "groups + 1", AGAIN),
    (1526, "drop", JOINED),
    (1527, "drop", AGAIN),
    (1527, "groups + 1", AGAIN),
    (1581, "parity", "the loop begins with parity 0 and wraps once"),
    (1605, "drop", "the operands come through shared memory, which the barrier orders"),
    (1609, "leading dimension", LEADING),
    (1612, "leading dimension", LEADING),
    (1643, "drop", FREE),
    (1644, "ring - 1", "any warp may free tensor memory"),
    (1650, "drop", FREE),
];

const SUM: &[Quiet] = &[
    (105, "drop", JOINED),
    (214, "drop", JOINED),
    (242, "later", ISSUER),
    (247, "later", AGAIN),
    (248, "drop", AGAIN),
    (248, "groups + 1", AGAIN),
    (250, "drop", JOINED),
    (251, "drop", AGAIN),
    (251, "groups + 1", AGAIN),
    (270, "later", EXPECT),
    (287, "drop", "no instruction of the whole warp follows"),
];
