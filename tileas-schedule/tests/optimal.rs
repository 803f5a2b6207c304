//! Exact mode (`scheduler = optimal`): loops of well-known kernels with a proven interval, stages and finish.
//!
//! The oracles for small problems (brute force, the bounded exact search, random families) are beside the module. Here
//! stand the public documents and the kernels of the examples.

#[cfg(all(feature = "optimal", feature = "serde"))]
mod with_solver {
    use tileas_codegen::ir::parse_module;
    use tileas_codegen::{Context, Settings, Stage};
    use tileas_schedule::json::{Document, Documents};
    use tileas_schedule::verify::verify;
    use tileas_schedule::{Problem, RegionSchedule, ScheduleOptions, Scheduler, SchedulerChoice, render};

    fn options() -> ScheduleOptions {
        ScheduleOptions { scheduler: SchedulerChoice::Optimal, ..ScheduleOptions::default() }
    }

    fn problem(name: &str) -> Problem {
        let path = format!("{}/tests/data/{name}.json", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
        let mut d = Documents::read(&text, &options().limits).unwrap_or_else(|e| panic!("{name}: {e:?}"));
        d.regions.remove(0).problem
    }

    fn schedule(name: &str, p: &Problem) -> RegionSchedule {
        let s = Scheduler::new().schedule(p, &options()).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(verify(p, &s), [], "{name}");
        s
    }

    fn check(folder: &str, table: &[(&str, u32, u32, u32)]) {
        for &(name, ii, stages, stage_count) in table {
            let s = schedule(name, &problem(&format!("{folder}{name}")));
            let o = s.optimality.expect("exact mode ran");
            assert!(o.is_optimal(), "{name}: {o}");
            assert_eq!((s.ii, s.code_stages(), s.stage_count), (ii, stages, stage_count), "{name}");
            assert!(s.stats.ii_is_optimal && !s.status.budget_exceeded, "{name}");
        }
    }

    /// Name, II, stages with a start, stage count by the last finish: each the least there is.
    const LOOPS: [(&str, u32, u32, u32); 35] = [
        ("adam", 56, 2, 2),
        ("attn_alibi", 35, 2, 3),
        ("attn_bwd", 65, 2, 2),
        ("attn_bwd_2kv", 80, 2, 2),
        ("attn_fwd_a_ds1", 67, 2, 2),
        ("attn_fwd_b", 34, 3, 4),
        ("attn_fwd_b_ds1", 74, 2, 2),
        ("attn_fwd_b_ds1_no_corr", 67, 2, 2),
        ("attn_fwd_b_ds2", 38, 3, 3),
        ("attn_gqa2", 35, 3, 3),
        ("attn_softcap", 38, 2, 3),
        ("block_scaled_gemm", 32, 2, 2),
        ("conv_fprop", 16, 2, 3),
        ("cross_entropy", 16, 3, 3),
        ("dequant_gemm", 31, 2, 3),
        ("dequant_gemm_ts", 16, 2, 3),
        ("dual_gemm", 24, 2, 2),
        ("flash_decode", 34, 3, 3),
        ("fp8_promote", 24, 2, 2),
        ("fused_mlp", 20, 4, 5),
        ("gelu", 16, 5, 6),
        ("gemm_k4", 32, 2, 2),
        ("gemm_rope", 20, 3, 4),
        ("grouped_gemm", 16, 3, 4),
        ("layernorm", 20, 6, 6),
        ("layernorm_bwd", 28, 4, 4),
        ("linear_attn", 42, 4, 4),
        ("mla_decode", 40, 2, 3),
        ("moe_gather", 21, 2, 3),
        ("rmsnorm", 16, 5, 6),
        ("softmax", 16, 6, 7),
        ("split_k", 32, 2, 2),
        ("ssd_scan", 52, 3, 3),
        ("swiglu", 24, 3, 4),
        ("topk_gate", 16, 5, 6),
    ];

    /// The same in real cycles, long intervals of few ops.
    const REAL: [(&str, u32, u32, u32); 7] = [
        ("one_corr", 1632, 2, 3),
        ("one_corr_f10", 1530, 2, 3),
        ("one_corr_f25", 1376, 3, 3),
        ("one_corr_f50", 1288, 3, 3),
        ("one_corr_fused_cal", 1420, 3, 3),
        ("one_fused_cal", 1600, 3, 3),
        ("one_group", 1848, 2, 2),
    ];
    const REAL_PAIRS: [(&str, u32, u32, u32); 7] = [
        ("pair_cal", 3004, 2, 2),
        ("pair_free_cal", 2064, 3, 4),
        ("pair_fused_cal", 2756, 2, 2),
        ("pair_fused_cal_f25", 2508, 2, 2),
        ("pair_fused_cal_no_corr", 2940, 2, 2),
        ("pair_fused_cal_parts", 2508, 2, 2),
        ("pair_ideal", 2524, 2, 2),
    ];

    /// Without exact mode: the same intervals, in clocks to a part in 64, and nearly all of the stages and finishes.
    #[test]
    fn heuristics_reach_what_exact_mode_proves() {
        let mut scheduler = Scheduler::new();
        let mut longer = Vec::new();
        for (folder, table) in [("loops/", &LOOPS[..]), ("real/", &REAL), ("real/", &REAL_PAIRS)] {
            for &(name, ii, stages, stage_count) in table {
                let p = problem(&format!("{folder}{name}"));
                let s = scheduler.schedule(&p, &ScheduleOptions::default()).expect("schedulable");
                let near = if ii > 256 { ii / 63 } else { 0 };
                assert!((ii..=ii + near).contains(&s.ii), "{name} {}", s.ii);
                if s.ii > ii {
                    continue;
                }
                let made = (s.code_stages(), s.stage_count);
                assert!(made >= (stages, stage_count), "{name}: less than what is proven");
                if made != (stages, stage_count) {
                    longer.push((name, made, (stages, stage_count)));
                }
            }
        }
        assert!(longer.len() <= 5, "{longer:?}");
    }

    #[test]
    fn loops_of_known_kernels_are_optimal_in_interval_stages_and_finish() {
        check("loops/", &LOOPS);
        check("", &[("attention", 34, 2, 3), ("gemm", 16, 2, 3), ("gemm_bias_relu", 16, 2, 3)]);
    }

    #[test]
    fn attention_in_real_cycles_is_settled() {
        check("real/", &REAL);
    }

    #[test]
    fn pairs_of_query_tiles_in_real_cycles_are_settled() {
        check("real/", &REAL_PAIRS);
    }

    #[test]
    fn loops_of_the_examples_are_optimal() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples");
        let mut paths: Vec<_> =
            std::fs::read_dir(folder).expect("the examples").map(|e| e.expect("an entry").path()).collect();
        paths.retain(|p| p.extension().is_some_and(|e| e == "tileas"));
        paths.sort();
        let isa = tileas_isa::isa_for_cpu("sm_100a").expect("known cpu");
        let mut builder = Settings::builder();
        builder.set("scheduler", "optimal").expect("an option");
        // The worked example is in published weights, and says nothing of registers.
        builder.set("published.cycle-model", "slot").expect("an option");
        builder.set("published.spill-budget", "65535").expect("an option");
        let settings = builder.finish();
        let mut seen = Vec::new();
        for path in paths {
            let text = std::fs::read_to_string(&path).expect("readable");
            let module = parse_module(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            let run = Context::new().run_to(Stage::Schedule, &module, &*isa, &settings);
            let run = run.unwrap_or_else(|e| panic!("{}: {e:?}", path.display()));
            for r in run.kernels.into_iter().filter_map(|k| k.schedule).flat_map(|s| s.regions) {
                assert_eq!(verify(&r.problem, &r.schedule), []);
                let o = r.schedule.optimality.expect("exact mode ran");
                assert!(o.is_optimal(), "{}: {o}", r.schedule.name);
                let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
                seen.push((name, r.schedule.ii, r.schedule.code_stages()));
            }
        }
        // The published worked example: II 34 by the accumulator, two stages suffice.
        assert!(seen.contains(&("attention_fwd".to_owned(), 34, 2)), "{seen:?}");
        assert!(seen.len() >= 3, "{seen:?}");
    }

    #[test]
    fn the_report_says_what_is_proven() {
        let p = problem("real/one_corr_fused_cal");
        let s = schedule("one_corr_fused_cal", &p);
        let o = s.optimality.expect("exact mode ran");
        let text = render::table(&p, &s);
        let line = format!(
            "exact mode: ii 1420 optimal, 3 stages optimal, stage_count 3 optimal ({} steps)",
            o.steps
        );
        assert!(text.lines().any(|l| l == line), "{text}");
        let json = Document::of(p.clone()).filled(&s);
        assert_eq!(
            json["optimality"],
            serde_json::json!({
                "verdict": "optimal", "ii": {"lower": 1420, "upper": 1420}, "stages": {"lower": 3, "upper": 3},
                "stage_count": {"lower": 3, "upper": 3}, "steps": o.steps,
            })
        );
        // Without steps nothing is proven beyond what the heuristics did, and nothing more is claimed.
        let none = ScheduleOptions { optimal_steps: 0, exact_steps: 0, ..options() };
        let s = Scheduler::new().schedule(&p, &none).expect("a schedule");
        let o = s.optimality.expect("exact mode ran");
        assert!(o.ii.0 < o.ii.1 && !s.stats.ii_is_optimal && s.status.budget_exceeded, "{o}");
        assert_eq!((o.ii.1, o.steps, o.verdict()), (s.ii, 0, format!("bounds {}..{}", o.ii.0, s.ii)));
        let alone = ScheduleOptions { exact_steps: 0, ..ScheduleOptions::default() };
        let heuristic = Scheduler::new().schedule(&p, &alone).expect("a schedule");
        assert_eq!((heuristic.optimality, &heuristic.start), (None, &s.start));
    }

    #[test]
    fn the_same_input_gives_the_same_bytes() {
        let p = problem("loops/attn_bwd_2kv");
        let mut warm = Scheduler::new();
        let mut texts = Vec::new();
        for other in ["loops/adam", "attention"] {
            warm.schedule(&problem(other), &options()).expect("a schedule");
            let s = warm.schedule(&p, &options()).expect("a schedule");
            texts.push(Document::of(p.clone()).filled(&s).to_string());
        }
        texts.push(Document::of(p.clone()).filled(&schedule("attn_bwd_2kv", &p)).to_string());
        assert_eq!((&texts[0], &texts[1]), (&texts[1], &texts[2]));
    }
}
