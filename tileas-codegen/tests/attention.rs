//! Attention forward from text to schedule: the loop is the one that `../../tileas-schedule/tests/data/attention.json` has by hand.
#![cfg(feature = "serde")]

use tileas_codegen::ir::parse_module;
use tileas_codegen::schedule::json::Documents;
use tileas_codegen::schedule::verify::verify;
use tileas_codegen::schedule::{Node, Problem, ScheduleOptions};
use tileas_codegen::testing::ddg::ScheduledRegion;
use tileas_codegen::{Context, Settings, Stage};

/// The worked example is in published weights, and says nothing of registers.
const WORKED: &[(&str, &str)] = &[("published.cycle-model", "slot"), ("published.spill-budget", "65535")];

fn region(options: &[(&str, &str)]) -> ScheduledRegion {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/attention_fwd.tileas");
    let text = std::fs::read_to_string(path).expect("the example");
    let module = parse_module(&text).unwrap_or_else(|e| panic!("{e}"));
    let isa = tileas_isa::isa_for_cpu("sm_100a").expect("known cpu");
    let mut builder = Settings::builder();
    for (name, value) in options {
        builder.set(name, value).expect("an option");
    }
    let run = Context::new().run_to(Stage::Schedule, &module, &*isa, &builder.finish());
    let mut run = run.unwrap_or_else(|e| panic!("{e:?}"));
    let mut regions = run.kernels.remove(0).schedule.expect("a schedule").regions;
    assert_eq!(regions.len(), 1);
    let r = regions.remove(0);
    assert_eq!(verify(&r.problem, &r.schedule), []);
    r
}

/// Names of the ops of our loop, in program order, by those of the worked example; empty for ops without code.
const NAMES: [(&str, &str); 23] = [
    ("k", "async.tiled_tma_load"),
    ("v", "async.tiled_tma_load"),
    ("qk", "async.dot"),
    ("sld", "copy"),
    ("rmax", "reduce"),
    ("rc", "mulf"),
    ("m", "minf"),
    ("dm", "subf"),
    ("al", "exp2"),
    ("", "reshape"),
    ("", "broadcast"),
    ("x", "fma"),
    ("p", "exp2"),
    ("rs", "reduce"),
    ("l", "fma"),
    ("ph", "ftof"),
    ("", "reshape"),
    ("", "broadcast"),
    ("old", "copy"),
    ("om", "mulf"),
    ("ost", "copy"),
    ("pst", "copy"),
    ("pv", "async.dot"),
];

/// Edges between named ops, through those without code: (from, to, latency, distance).
fn edges(p: &Problem, name: impl Fn(Node) -> String) -> Vec<(String, String, i32, u32)> {
    let mut out = Vec::new();
    for e in p.edges().values().filter(|e| !name(e.from).is_empty()) {
        let mut open = vec![(e.to, e.latency, e.distance)];
        while let Some((to, latency, distance)) = open.pop() {
            if !name(to).is_empty() {
                out.push((name(e.from), name(to), latency, distance));
                continue;
            }
            let next = p.edges().values().filter(|f| f.from == to);
            open.extend(next.map(|f| (f.to, latency + f.latency, distance + f.distance)));
        }
    }
    out
}

#[test]
fn the_loop_has_the_dependences_of_the_worked_example() {
    let r = region(WORKED);
    let names: Vec<&str> = r.problem.nodes().map(|n| r.problem.op_name(n)).collect();
    assert_eq!(names, NAMES.map(|n| n.1));
    let ours = edges(&r.problem, |n| NAMES[n.as_u32() as usize].0.to_owned());
    let text = include_str!("../../tileas-schedule/tests/data/attention.json");
    let worked = Documents::read(text, &ScheduleOptions::default().limits).unwrap().regions.remove(0).problem;
    let theirs = edges(&worked, |n| worked.id(n).to_owned());
    for e in &theirs {
        // The slots of S are given by `buffers`, after the schedule.
        let slots = (e.0.as_str(), e.1.as_str()) == ("pv", "qk");
        assert!(slots || ours.contains(e), "{e:?} is missing in {ours:?}");
    }
    // Beyond them, the accumulator is one place: read before it is written again, written before the product.
    for e in ours.iter().filter(|e| !theirs.contains(e)) {
        let place = ["old", "ost", "pv"];
        assert!(place.contains(&e.0.as_str()) && place.contains(&e.1.as_str()), "{e:?}");
    }
}

#[test]
fn its_interval_is_proven_in_two_stages() {
    let r = region(WORKED);
    let s = &r.schedule;
    assert!(s.ii == 34 && s.stats.ii_is_optimal && s.code_stages() == 2, "{} {}", s.ii, s.code_stages());
    let cycle: Vec<&str> = s.bounds.recurrence_cycle.iter().map(|n| NAMES[n.as_u32() as usize].0).collect();
    assert_eq!((s.bounds.recurrence, cycle), (34, vec!["old", "om", "ost", "pv"]));
}

/// In clocks one group is busy all the time: that is the bound, and the reason for a second group.
#[test]
fn in_real_cycles_the_group_is_the_bound() {
    // Without orders that hold fewer registers, which take longer.
    let r = region(&[("published.cycle-model", "real"), ("published.spill-budget", "1000000")]);
    let s = &r.schedule;
    let slot = s.bounds.resource_slot.expect("a witness");
    assert_eq!(r.problem.slots()[slot].name, "agent0");
    assert!(s.stats.ii_is_optimal && s.ii == s.bounds.resource, "{}", s.ii);
    let busy: u32 = r
        .problem
        .nodes()
        .flat_map(|n| r.problem.uses(n))
        .filter(|u| u.slot == slot)
        .map(|u| u.duration * u.occupancy)
        .sum();
    assert_eq!(busy, s.ii);
    // 1848 on the page: P goes through shared memory here (256 clocks, not 32).
    assert_eq!(s.ii, 1848 - 32 + 256);
}
