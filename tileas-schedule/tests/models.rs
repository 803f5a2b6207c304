//! Loops of well-known kernels as bare problems. What is claimed of an initiation interval is what the file says: proven optimal.
//!
//! The documents in `data/loops` are models of our own: the ops of a loop body as an experienced author would
//! place them on this machine, with the published slots and durations. `real` has attention in real cycles.
#![cfg(feature = "serde")]

use tileas_schedule::json::Documents;
use tileas_schedule::verify::verify;
use tileas_schedule::{Problem, RegionSchedule, ScheduleOptions, Scheduler};

fn problem(folder: &str, name: &str) -> Problem {
    let path = format!("{}/tests/data/{folder}/{name}.json", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    let limits = ScheduleOptions::default().limits;
    let mut d = Documents::read(&text, &limits).unwrap_or_else(|e| panic!("{name}: {e:?}"));
    assert_eq!(d.regions.len(), 1, "{name}");
    d.regions.remove(0).problem
}

fn schedule(name: &str, p: &Problem, options: &ScheduleOptions) -> RegionSchedule {
    let s = Scheduler::new().schedule(p, options).unwrap_or_else(|e| panic!("{name}: {e}"));
    assert_eq!(verify(p, &s), [], "{name}");
    s
}

/// Every document of a folder is in its table.
fn check_complete(folder: &str, table: &[&str]) {
    let dir = format!("{}/tests/data/{folder}", env!("CARGO_MANIFEST_DIR"));
    let files = std::fs::read_dir(dir).unwrap().map(|f| f.unwrap().file_name().into_string().unwrap());
    let mut files: Vec<String> = files.filter_map(|f| f.strip_suffix(".json").map(str::to_owned)).collect();
    files.sort();
    assert_eq!(files, table);
}

/// Name, ops, resource bound, recurrence bound, II.
const LOOPS: [(&str, usize, u32, u32, u32); 35] = [
    ("adam", 24, 56, 1, 56),
    ("attn_alibi", 23, 20, 34, 35),
    ("attn_bwd", 24, 46, 65, 65),
    ("attn_bwd_2kv", 39, 80, 50, 80),
    ("attn_fwd_a_ds1", 19, 16, 60, 67),
    ("attn_fwd_b", 40, 32, 34, 34),
    ("attn_fwd_b_ds1", 40, 32, 74, 74),
    ("attn_fwd_b_ds1_no_corr", 36, 32, 60, 67),
    ("attn_fwd_b_ds2", 40, 32, 37, 38),
    ("attn_gqa2", 34, 32, 34, 35),
    ("attn_softcap", 21, 20, 34, 38),
    ("block_scaled_gemm", 7, 32, 8, 32),
    ("conv_fprop", 10, 16, 8, 16),
    ("cross_entropy", 13, 16, 4, 16),
    ("dequant_gemm", 13, 31, 8, 31),
    ("dequant_gemm_ts", 7, 16, 8, 16),
    ("dual_gemm", 5, 24, 8, 24),
    ("flash_decode", 20, 16, 34, 34),
    ("fp8_promote", 8, 24, 12, 24),
    ("fused_mlp", 14, 20, 12, 20),
    ("gelu", 11, 16, 1, 16),
    ("gemm_k4", 6, 32, 32, 32),
    ("gemm_rope", 15, 20, 12, 20),
    ("grouped_gemm", 10, 16, 8, 16),
    ("layernorm", 14, 20, 1, 20),
    ("layernorm_bwd", 22, 28, 4, 28),
    ("linear_attn", 21, 40, 42, 42),
    ("mla_decode", 23, 32, 34, 40),
    ("moe_gather", 9, 21, 8, 21),
    ("rmsnorm", 11, 16, 1, 16),
    ("softmax", 11, 16, 1, 16),
    ("split_k", 6, 32, 8, 32),
    ("ssd_scan", 26, 52, 16, 52),
    ("swiglu", 13, 24, 1, 24),
    ("topk_gate", 14, 16, 12, 16),
];

#[test]
fn loops_of_known_kernels_are_scheduled_at_a_proven_optimum() {
    check_complete("loops", &LOOPS.map(|l| l.0));
    for (name, ops, resource, recurrence, ii) in LOOPS {
        let p = problem("loops", name);
        let s = schedule(name, &p, &ScheduleOptions::default());
        let got = (p.num_nodes(), s.bounds.resource, s.bounds.recurrence, s.ii);
        assert_eq!(got, (ops, resource, recurrence, ii), "{name}");
        assert!(s.stats.ii_is_optimal, "{name}");
    }
}

/// Attention in real cycles: name, resource bound, recurrence bound, the least interval. All are proven, by the heuristics
/// here and by the solver of exact mode.
const REAL: [(&str, u32, u32, u32); 15] = [
    ("one_corr", 1632, 1252, 1632),
    ("one_corr_f10", 1530, 1201, 1530),
    ("one_corr_f25", 1376, 1124, 1376),
    ("one_corr_f50", 1288, 996, 1288),
    ("one_corr_fused_cal", 1384, 1368, 1420),
    ("one_fused_cal", 1600, 1368, 1600),
    ("one_group", 1848, 1252, 1848),
    // 2984 + 20: `dm`, `al` and `ast` run in the group of the softmax, inside a cycle without slack.
    ("pair_cal", 2064, 2984, 3004),
    ("pair_cal_ds2", 2064, 1492, 2064),
    ("pair_free_cal", 2064, 1216, 2064),
    ("pair_fused_cal", 2064, 2736, 2756),
    ("pair_fused_cal_f25", 2064, 2480, 2508),
    ("pair_fused_cal_no_corr", 2064, 2736, 2940),
    ("pair_fused_cal_parts", 2064, 2480, 2508),
    ("pair_ideal", 2064, 2504, 2524),
];

#[test]
fn attention_in_real_cycles_is_within_a_part_in_64_of_the_best() {
    check_complete("real", &REAL.map(|l| l.0));
    for (name, resource, recurrence, expected) in REAL {
        let p = problem("real", name);
        let s = schedule(name, &p, &ScheduleOptions::default());
        assert_eq!((s.bounds.resource, s.bounds.recurrence), (resource, recurrence), "{name}");
        assert!((expected..=expected + expected / 63).contains(&s.ii), "{name} {}", s.ii);
    }
}

#[test]
fn attention_needs_two_stages_at_its_optimal_interval() {
    let text = include_str!("data/attention.json");
    let p = Documents::read(text, &ScheduleOptions::default().limits).unwrap().regions.remove(0).problem;
    let s = schedule("attention", &p, &ScheduleOptions { max_stages: Some(3), ..ScheduleOptions::default() });
    assert!(s.stats.ii_is_optimal && s.ii == 34);
    assert_eq!(schedule("attention", &p, &ScheduleOptions::default()).code_stages(), 2);
}
