//! `tileas-schedule/1`: the documented examples, echo, and errors with their places.
#![cfg(feature = "serde")]

use serde_json::Value;
use tileas_schedule::json::{Document, Documents};
use tileas_schedule::verify::verify;
use tileas_schedule::{Limits, RegionSchedule, ScheduleOptions, Scheduler, SchedulerChoice, render};

const GEMM: &str = include_str!("data/gemm.json");
const GEMM_BIAS_RELU: &str = include_str!("data/gemm_bias_relu.json");
const ATTENTION: &str = include_str!("data/attention.json");

fn read(text: &str) -> Document {
    let mut documents = Documents::read(text, &Limits::default()).unwrap_or_else(|e| panic!("{e:?}"));
    documents.regions.remove(0)
}

/// The document without its results, as a user would write it.
fn bare(text: &str) -> Value {
    let mut v: Value = serde_json::from_str(text).unwrap();
    let top = v.as_object_mut().unwrap();
    for key in ["generator", "ii", "stage_count", "status", "bounds"] {
        top.remove(key);
    }
    for op in top["ops"].as_array_mut().unwrap() {
        for key in ["start", "stage", "order"] {
            op.as_object_mut().unwrap().remove(key);
        }
    }
    v
}

fn schedule(d: &Document) -> RegionSchedule {
    let s = Scheduler::new().schedule(&d.problem, &ScheduleOptions::default()).unwrap();
    assert_eq!(verify(&d.problem, &s), []);
    s
}

#[test]
fn gemm_examples_are_reproduced() {
    for text in [GEMM, GEMM_BIAS_RELU] {
        let given: Value = serde_json::from_str(text).unwrap();
        let d = read(&bare(text).to_string());
        let published =
            ScheduleOptions { scheduler: SchedulerChoice::CostBased, ..ScheduleOptions::default() };
        let by_ladder = Scheduler::new().schedule(&d.problem, &published).unwrap();
        let made = d.filled(&schedule(&d));
        // The default generator makes the same schedule under its own name.
        let mut made_like_given = made.clone();
        assert_eq!(made_like_given["generator"], "modulo");
        made_like_given["generator"] = d.filled(&by_ladder)["generator"].clone();
        assert_eq!(made_like_given, d.filled(&by_ladder));
        // The short example leaves the pool out of its witnesses.
        let witness = made_like_given["bounds"]["witness"].as_object_mut().unwrap();
        witness.retain(|key, _| given["bounds"]["witness"].get(key).is_some());
        assert_eq!(made_like_given, given);
        assert_eq!(made["bounds"]["witness"]["fine_density"], "tmem_bank");
        // The given schedule passes the judge as it stands.
        let d = read(text);
        assert_eq!(verify(&d.problem, &d.given_schedule().unwrap()), []);
    }
}

#[test]
fn attention_reaches_its_recurrence() {
    let d = read(&bare(ATTENTION).to_string());
    let s = schedule(&d);
    assert_eq!((s.ii, s.bounds.resource, s.bounds.recurrence), (34, 16, 34));
    assert!(s.stats.ii_is_optimal && s.code_stages() <= 3, "{} stages", s.code_stages());
    let made = d.filled(&s);
    assert_eq!(made["bounds"]["witness"]["recurrence"], serde_json::json!(["old", "om", "ost", "pv"]));
    assert_eq!(made["bounds"]["witness"]["resource"], "fp32x2_fp16ultra");
    let d = read(ATTENTION);
    assert_eq!(verify(&d.problem, &d.given_schedule().unwrap()), []);
}

#[test]
fn input_is_echoed_unchanged() {
    let mut v = bare(ATTENTION);
    v["ops"][3]["note"] = "kept".into();
    v["comment"] = serde_json::json!({"z": 1, "a": [2.5]});
    let d = read(&v.to_string());
    let out = d.filled(&schedule(&d));
    for key in ["slots", "pools", "edges", "comment", "name", "schema"] {
        assert_eq!(out[key].to_string(), v[key].to_string(), "{key}, order of keys included");
    }
    for (op, given) in out["ops"].as_array().unwrap().iter().zip(v["ops"].as_array().unwrap()) {
        let mut op = op.clone();
        for key in ["start", "stage", "order"] {
            assert!(op.as_object_mut().unwrap().shift_remove(key).unwrap().is_u64());
        }
        assert_eq!(op.to_string(), given.to_string());
    }
}

#[test]
fn arrays_stay_arrays_and_problems_round_trip() {
    let text = format!("[{GEMM}, {ATTENTION}]");
    let documents = Documents::read(&text, &Limits::default()).unwrap();
    let schedules: Vec<_> = documents.regions.iter().map(schedule).collect();
    let out = documents.write(&schedules);
    let again = Documents::read(&out, &Limits::default()).unwrap();
    assert!(again.is_array);
    for (d, s) in again.regions.iter().zip(&schedules) {
        let mut given = d.given_schedule().unwrap();
        assert_eq!((given.ii, &given.start, &given.order), (s.ii, &s.start, &s.order));
        given.bounds.resource_slot = s.bounds.resource_slot;
        let rebuilt = Document::of(d.problem.clone()).filled(s);
        let first: Value = serde_json::from_str(&out).unwrap();
        let same = first.as_array().unwrap().contains(&rebuilt);
        assert!(same, "a document built from the problem equals the one read");
    }
}

#[test]
fn errors_have_codes_and_pointers() {
    let base = bare(GEMM);
    let with = |pointer: &str, value: Value| {
        let mut v = base.clone();
        *v.pointer_mut(pointer).unwrap_or_else(|| panic!("{pointer}")) = value;
        v.to_string()
    };
    let op0 = base["ops"][0].clone();
    let cycle = serde_json::json!([
        {"from": "op0", "to": "op2", "latency": 8, "distance": 0},
        {"from": "op2", "to": "op0", "latency": 0, "distance": 0}
    ]);
    let nested = format!("{}1{}", "[".repeat(400), "]".repeat(400));
    let cases = [
        ("{".to_owned(), "E0301", ""),
        (nested, "E0301", ""),
        ("3".to_owned(), "E0301", ""),
        ("{}".to_owned(), "E0302", "/schema"),
        (with("/schema", "tileas-schedule/2".into()), "E0302", "/schema"),
        (with("/slots", 4.into()), "E0301", "/slots"),
        (with("/slots/1/id", 11.into()), "E0304", "/slots/1/id"),
        (with("/slots/1/capacity", Value::Null), "E0301", "/slots/1/capacity"),
        (with("/pools/0/capacity", 0.into()), "E0305", "/ops/2/pools/0"),
        (with("/ops/1/id", "op0".into()), "E0304", "/ops/1/id"),
        (with("/ops/1", op0), "E0304", "/ops/1/id"),
        (with("/ops/1/latency", (-1).into()), "E0307", "/ops/1/latency"),
        (with("/ops/1/latency", 2147483648u64.into()), "E0307", "/ops/1/latency"),
        (with("/ops/1/latency", 1.5.into()), "E0307", "/ops/1/latency"),
        (with("/ops/1/latency", "8".into()), "E0301", "/ops/1/latency"),
        (with("/ops/1/uses/1/slot", 9.into()), "E0303", "/ops/1/uses/1/slot"),
        (with("/ops/1/uses/1/occupancy", 2.into()), "E0305", "/ops/1/uses/1"),
        (with("/ops/2/pools/0/index", 9.into()), "E0303", "/ops/2/pools/0/index"),
        (with("/ops/2/group", "g".into()), "E0301", "/ops/2/group"),
        (with("/edges/1/from", "nobody".into()), "E0303", "/edges/1/from"),
        (with("/edges/1/distance", (-1).into()), "E0307", "/edges/1/distance"),
        (with("/edges/1/latency", (-2147483648i64).into()), "E0307", "/edges/1/latency"),
        (with("/edges", cycle), "E0306", "/edges/1"),
    ];
    for (text, code, pointer) in cases {
        let errors = Documents::read(&text, &Limits::default()).expect_err(&text);
        let first = &errors[0];
        assert_eq!(first.code.as_str(), code, "{first}\n{text}");
        assert!(first.message.starts_with(&format!("at `{pointer}`: ")), "{first}, expected {pointer}");
    }
    let small = Limits { max_ops: 2, max_edges: 10, ..Limits::default() };
    assert_eq!(Documents::read(&base.to_string(), &small).unwrap_err()[0].code.as_str(), "E0308");
    let small = Limits { max_ops: 3, max_edges: 2, ..Limits::default() };
    assert_eq!(Documents::read(&base.to_string(), &small).unwrap_err()[0].code.as_str(), "E0308");
    let small = Limits { max_uses: 1, ..Limits::default() };
    let errors = Documents::read(&base.to_string(), &small).unwrap_err();
    assert!(
        errors[0].message.starts_with("at `/ops/0`: ") && errors[0].code.as_str() == "E0308",
        "{}",
        errors[0]
    );
    let array = format!("[{}, {}]", base, with("/slots", 4.into()));
    let errors = Documents::read(&array, &Limits::default()).unwrap_err();
    assert!(errors[0].message.starts_with("at `/1/slots`: "), "{}", errors[0]);
}

#[test]
fn tables_and_charts() {
    let d = read(GEMM);
    let s = schedule(&d);
    let expected = "\
gemm/loop0: ii = 16, 2 stages (stage_count 3), modulo, optimal
bounds: resource 16 (tma), fine density 2 (tmem_bank),
        recurrence 8 (op2), dependency 1 (-)

order  id   op                    start  stage  cycle  slack
    0  op0  async.tiled_tma_load      0      0      0      8
    1  op1  async.tiled_tma_load      8      0      8      0
    2  op2  async.dot                16      1      0      -

cycle | tc_and_mma | tma | tp_smem_wr | tp_mma
    0 | op2        | op0 | op0        | op2   \n";
    let table = render::table(&d.problem, &s);
    assert!(table.starts_with(expected), "{table}");
    // Nothing changes from cycle 1 to 7, and from 9 to 15.
    assert_eq!(table.lines().count(), 10 + 2);
}
