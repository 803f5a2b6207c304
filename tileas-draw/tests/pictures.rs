//! Pictures of schedules: what is drawn agrees with the schedule, and drawing changes nothing.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use tileas_codegen::{Context, Settings, Stage};
use tileas_draw::{Options, Picture};
use tileas_schedule::json::{Document, Documents};
use tileas_schedule::{Limits, NodeDef, Problem, ScheduleOptions, Scheduler, Use, render};

#[path = "../../tileas-schedule/tests/data/loops.rs"]
mod loops;

const GEMM: &str = include_str!("../../tileas-schedule/tests/data/gemm.json");
const ATTENTION: &str = include_str!("../../tileas-schedule/tests/data/attention.json");
const KERNEL: &str = include_str!("../../examples/gemm_f16.tileas");

fn read(text: &str) -> Problem {
    let mut documents = Documents::read(text, &Limits::default()).unwrap_or_else(|e| panic!("{e:?}"));
    documents.regions.remove(0).problem
}

fn picture(p: Problem) -> Picture {
    let s = Scheduler::new().schedule(&p, &ScheduleOptions::default()).unwrap_or_else(|e| panic!("{e}"));
    Picture::of_graph(p, s)
}

/// In published weights: short intervals, with a pool.
fn kernel() -> Picture {
    let settings = Settings::default().with("published.cycle-model", "slot").expect("an option");
    let isa = tileas_isa::isa_for_cpu("sm_100a").expect("known cpu");
    let mut context = Context::new();
    let module = context.parse(KERNEL, &settings).expect("parses");
    let run = context.run_to(Stage::Schedule, &module, &*isa, &settings).expect("schedules");
    Picture::of_kernel(&run.kernels[0]).remove(0)
}

/// Slots of capacity 2, a pool, an op longer than the interval, an op without any slot, and one with two slots.
fn mixed() -> Problem {
    let mut p = Problem::new("mixed <\"&'>");
    let (one, two) = (p.add_slot(1, "one", 1), p.add_slot(2, "two", 2));
    let pool = p.add_pool(0, "pool", 3);
    let hold = |slot, offset, duration, occupancy| Use { slot, offset, duration, occupancy };
    let long = p.add_node(&NodeDef {
        id: "long",
        name: "x",
        latency: 9,
        uses: &[hold(two, 0, 9, 1)],
        ..NodeDef::default()
    });
    let both = [hold(one, 0, 3, 1), hold(two, 2, 2, 1)];
    let charge = [tileas_schedule::PoolUse { pool, count: 2, duration: 3 }];
    let def =
        NodeDef { id: "both", name: "y", latency: 4, uses: &both, pools: &charge, ..NodeDef::default() };
    let b = p.add_node(&def);
    let free = p.add_node(&NodeDef { id: "<i>\u{1}&", name: "z", latency: 2, ..NodeDef::default() });
    p.add_edge(long, b, 9, 0);
    p.add_edge(b, free, 4, 0);
    p.add_edge(free, b, 1, 2);
    p
}

fn all() -> Vec<Picture> {
    vec![
        picture(read(GEMM)),
        picture(read(ATTENTION)),
        picture(mixed()),
        picture(loops::synthetic(48)),
        kernel(),
    ]
}

fn events(p: &Picture, iterations: u32) -> Vec<Value> {
    let options = Options { iterations: Some(iterations), ..Options::default() };
    let text = tileas_draw::chrome_trace(std::slice::from_ref(p), &options);
    let v: Value = serde_json::from_str(&text).expect("JSON");
    v["traceEvents"].as_array().expect("a list").clone()
}

fn number(v: &Value) -> i64 {
    v.as_i64().unwrap_or_else(|| panic!("{v} is no number"))
}

#[test]
fn each_op_is_issued_once_per_iteration() {
    for p in all() {
        let s = &p.schedule;
        let issues: Vec<Value> =
            events(&p, 5).into_iter().filter(|e| e["ph"] == "X" && e["cat"] != "slot").collect();
        assert_eq!(issues.len(), 5 * p.problem.num_nodes());
        let mut seen = BTreeSet::new();
        for e in &issues {
            let id = e["name"].as_str().expect("a name");
            let n = p.problem.nodes().find(|&n| p.problem.id(n) == id).expect("an op");
            let i = number(&e["args"]["iteration"]);
            assert!(seen.insert((id.to_owned(), i)), "{id} twice in {i}");
            assert_eq!(number(&e["ts"]), i64::from(s.start[n]) + i64::from(s.ii) * i);
            assert_eq!(number(&e["args"]["start"]), i64::from(s.start[n]));
            assert_eq!(number(&e["args"]["latency"]), i64::from(p.problem.latency(n)));
            assert_eq!(e["args"]["slack"].as_i64(), render::slack(&p.problem, s, n));
            assert_eq!(e["args"]["slots"].as_array().map(Vec::len), Some(p.problem.uses(n).len()));
        }
    }
}

#[test]
fn flows_are_the_dependences() {
    for p in all() {
        let iterations = 4;
        let events = events(&p, iterations);
        let mut expected = BTreeMap::new();
        for e in p.problem.edges().values() {
            for i in 0..iterations.saturating_sub(e.distance) {
                let at = |n, i: u32| i64::from(p.schedule.start[n]) + i64::from(p.schedule.ii) * i64::from(i);
                let (from, to) = (at(e.from, i), at(e.to, i + e.distance));
                let key = (p.problem.id(e.from), p.problem.id(e.to), from, to, i64::from(e.latency));
                *expected.entry(key).or_insert(0) += 1;
            }
        }
        let mut found = BTreeMap::new();
        let by_id = |phase: &str| -> BTreeMap<i64, &Value> {
            events.iter().filter(|e| e["ph"] == phase).map(|e| (number(&e["id"]), e)).collect()
        };
        let (begins, ends) = (by_id("s"), by_id("f"));
        assert_eq!(begins.keys().collect::<Vec<_>>(), ends.keys().collect::<Vec<_>>());
        for (id, s) in &begins {
            let (f, args) = (ends[id], &s["args"]);
            let (from, to) = (number(&s["ts"]), number(&f["ts"]));
            assert_eq!(number(&args["actual"]), to - from);
            assert!(number(&args["actual"]) >= number(&args["minimal"]), "{args}");
            // Each end lies in a slice of the right op.
            for (e, name) in [(*s, &args["from"]), (f, &args["to"])] {
                let slice = |x: &&Value| {
                    x["ph"] == "X"
                        && (&x["pid"], &x["tid"], &x["ts"], &x["name"])
                            == (&e["pid"], &e["tid"], &e["ts"], name)
                };
                assert_eq!(events.iter().filter(slice).count(), 1, "{e}");
            }
            let name = |v: &'_ Value| v.as_str().expect("a name").to_owned();
            let (a, b) = (name(&args["from"]), name(&args["to"]));
            *found.entry((a, b, from, to, number(&args["minimal"]))).or_insert(0) += 1;
        }
        let expected: BTreeMap<_, _> = expected
            .into_iter()
            .map(|((a, b, x, y, l), n)| ((a.to_owned(), b.to_owned(), x, y, l), n))
            .collect();
        assert_eq!(found, expected);
    }
}

#[test]
fn threads_never_overlap_and_are_ordered_like_lanes() {
    for p in all() {
        let events = events(&p, 6);
        let mut threads: BTreeMap<(i64, i64), Vec<(i64, i64)>> = BTreeMap::new();
        for e in events.iter().filter(|e| e["ph"] == "X") {
            let (from, length) = (number(&e["ts"]), number(&e["dur"]));
            assert!(length > 0);
            threads.entry((number(&e["pid"]), number(&e["tid"]))).or_default().push((from, from + length));
        }
        for (thread, spans) in &mut threads {
            spans.sort_unstable();
            for w in spans.windows(2) {
                assert!(w[0].1 <= w[1].0, "{thread:?}: {w:?}");
            }
        }
        let mut names = Vec::new();
        for e in events.iter().filter(|e| e["name"] == "thread_name" && e["pid"] == 0) {
            let name = e["args"]["name"].as_str().expect("a name").to_owned();
            names.push((number(&e["tid"]), name));
            assert!(threads.contains_key(&(0, number(&e["tid"]))), "a thread without ops");
        }
        names.sort();
        let first: Vec<&str> = names.iter().map(|n| n.1.as_str()).filter(|n| !n.ends_with(')')).collect();
        assert_eq!(first, p.lanes.names);
        // Counters stay within capacity and come back to zero.
        let mut last = BTreeMap::new();
        for e in events.iter().filter(|e| e["ph"] == "C") {
            assert!(number(&e["args"]["taken"]) >= 0 && number(&e["args"]["free"]) >= 0, "{e}");
            last.insert(e["name"].to_string(), number(&e["args"]["taken"]));
        }
        assert!(last.values().all(|&v| v == 0), "{last:?}");
    }
    let p = kernel();
    assert_eq!(p.lanes.names, ["agent1 load", "agent2 mma"]);
    // The IR of an op with its attributes, and who placed it.
    let events = events(&p, 1);
    let dot = events.iter().find(|e| e["name"] == "n" && e["cat"] == "async.dot").expect("the dot");
    assert!(dot["args"]["ir"].as_str().is_some_and(|t| t.contains("transpose_b")), "{dot}");
    assert_eq!(dot["args"]["placed_by"], "ims");
}

#[test]
fn drawing_changes_no_schedule() {
    let problems = [read(GEMM), read(ATTENTION), mixed(), loops::synthetic(60)];
    let options = ScheduleOptions::default();
    let mut scheduler = Scheduler::new();
    for p in problems {
        let document = Document::of(p.clone());
        let before = document.filled(&scheduler.schedule(&p, &options).expect("schedules"));
        let s = scheduler.schedule(&p, &options).expect("schedules");
        let picture = Picture::of_graph(p.clone(), s.clone());
        let o = Options::default();
        let texts = [
            tileas_draw::gantt(&picture, &o),
            tileas_draw::svg(std::slice::from_ref(&picture), &o),
            tileas_draw::html_page(std::slice::from_ref(&picture), &o),
            tileas_draw::chrome_trace(std::slice::from_ref(&picture), &o),
        ];
        assert_eq!(picture.schedule, s);
        let after = document.filled(&scheduler.schedule(&p, &options).expect("schedules"));
        assert_eq!(before, after);
        // And twice the same.
        assert_eq!(texts[1], tileas_draw::svg(&[picture], &o));
    }
}

/// Elements opened and not closed; panics on text that is no markup.
fn open_elements(text: &str) -> Vec<String> {
    let void = ["meta", "input", "!doctype"];
    let mut open: Vec<String> = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find('<') {
        let end = at + rest[at..].find('>').expect("a tag ends");
        let tag = &rest[at + 1..end];
        let name: String = tag.trim_start_matches('/').chars().take_while(|c| !" /\n".contains(*c)).collect();
        if tag.starts_with('/') {
            assert_eq!(open.pop().as_deref(), Some(name.as_str()), "…{}", &rest[..end.min(80)]);
        } else if !tag.ends_with('/') && !void.contains(&name.as_str()) {
            open.push(name.clone());
        }
        rest = &rest[end + 1..];
        // Script is no markup.
        if name == "script" && !tag.starts_with('/') {
            rest = &rest[rest.find("</script>").expect("script ends")..];
        }
    }
    open
}

#[test]
fn pages_and_drawings_are_well_formed_and_self_contained() {
    let pictures = all();
    let o = Options::default();
    let (svg, page) = (tileas_draw::svg(&pictures, &o), tileas_draw::html_page(&pictures, &o));
    assert_eq!(open_elements(&svg), [""; 0]);
    assert_eq!(open_elements(&page), [""; 0]);
    for text in [&svg, &page] {
        for outside in ["src=", "href=", "url(", "@import", "fetch("] {
            assert!(!text.contains(outside), "{outside}");
        }
        // The only addresses are names of the SVG language.
        assert_eq!(text.matches("http").count(), text.matches("http://www.w3.org/2000/svg").count());
        assert!(text.contains("prefers-color-scheme:dark"));
        assert!(text.contains("&lt;i&gt;\u{fffd}&amp;") && !text.contains("<i>"));
        assert!(text.contains("slot tma: 1 of 1 in cycles +0 to +8"), "details of an op");
        assert!(text.contains("at least 8 cycles, here 16, slack 8"), "details of a dependence");
    }
    for p in &pictures {
        for n in p.problem.nodes() {
            let row = format!(
                "start {}, stage {}, row {}",
                p.schedule.start[n],
                p.schedule.stage[n],
                p.schedule.start[n] % p.schedule.ii
            );
            assert!(page.contains(&row), "{row}");
        }
    }
    assert!(tileas_draw::html_page(&[], &o).contains("No loop was scheduled."));
}

#[test]
fn large_and_empty_loops_can_be_drawn() {
    let large = picture(loops::synthetic(500));
    let empty = picture(Problem::new("empty"));
    let o = Options::default();
    let page = tileas_draw::html_page(&[large, empty], &o);
    assert!(page.len() < 4_000_000, "{} bytes", page.len());
    assert_eq!(page.matches("<tr data-n=").count(), 500);
    let empty = picture(Problem::new("empty"));
    assert!(tileas_draw::gantt(&empty, &o).contains("(no ops)"));
    assert!(tileas_draw::svg(&[empty], &o).contains("</svg>"));
    // A huge interval: the table is left out, the rest is drawn to scale.
    let mut p = Problem::new("huge");
    let s = p.add_slot(1, "s", 1);
    for id in ["a", "b"] {
        let uses = [Use { slot: s, offset: 0, duration: 100_000_000, occupancy: 1 }];
        p.add_node(&NodeDef { id, latency: 3, uses: &uses, ..NodeDef::default() });
    }
    let huge = picture(p);
    let chart = tileas_draw::gantt(&huge, &o);
    assert!(chart.lines().all(|l| l.chars().count() <= 120), "{chart}");
    assert!(tileas_draw::svg(&[huge], &o).contains("left out"));
}

#[test]
fn charts_show_agents_iterations_and_loads() {
    let p = kernel();
    let chart = tileas_draw::gantt(&p, &Options { iterations: Some(2), width: 60 });
    let expected = "\
gemm_bias_relu/loop0: II 16, 2 stages, modulo, optimal
one column = 1 cycle(s), digit = iteration that holds slots, - = until the result, | = an iteration begins
            0               16              32
agent1 load
  ta        00000000........11111111........|
  tb        |.......00000000|.......11111111|
agent2 mma
  n         |...............00000000--------11111111--------

modulo 16, one column = 1 cycle(s), . = free, # = full, else units taken; right: cycles taken of those there are
tc_and_mma  ########........ 8/16 (50 %)
tma         ################ 16/16 (100 %)
tp_smem_wr  ################ 16/16 (100 %)
tp_mma      ########........ 8/16 (50 %)
tmem_bank   11111111........ 8/64 (12 %, pool)
";
    assert_eq!(chart, expected);
    // Narrow: two cycles a column, and rows that keep to the width.
    let narrow = tileas_draw::gantt(&p, &Options { iterations: Some(2), width: 40 });
    assert!(narrow.contains("one column = 2 cycle(s)"), "{narrow}");
    let rows = narrow.lines().filter(|l| l.starts_with("  t") || l.starts_with("  n"));
    assert!(rows.clone().count() == 3 && rows.clone().all(|l| l.chars().count() <= 40), "{narrow}");
    // Units of a slot that has several.
    let chart = tileas_draw::gantt(&picture(mixed()), &Options::default());
    assert!(
        chart.contains("no slot") && chart.lines().any(|l| l.starts_with("two") && l.contains('#')),
        "{chart}"
    );
}
