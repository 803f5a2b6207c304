//! Explanations: what binds, what a smaller interval would violate, slacks, what-ifs.
//!
//! Expected numbers are worked out by hand, or by the brute force below; none comes from the code under test.

use tileas_codegen::{Code, Context, Settings, Stage};
use tileas_draw::Options;
use tileas_draw::explain::{Explanation, explain_graphs, explain_module};
use tileas_schedule::explain::{LinkKind, Obstacle, RegionExplanation, Verdict, explain_region};
use tileas_schedule::json::Documents;
use tileas_schedule::{
    Limits, NodeDef, PoolUse, Problem, RegionSchedule, RegionSummary, Rung, Rungs, ScheduleOptions,
    Scheduler, SchedulerChoice, Slot, Use,
};

const GEMM: &str = include_str!("../../tileas-schedule/tests/data/gemm.json");
const ATTENTION: &str = include_str!("../../tileas-schedule/tests/data/attention.json");
const KERNEL: &str = include_str!("../../examples/gemm_f16.tileas");

fn read(text: &str) -> Problem {
    let mut documents = Documents::read(text, &Limits::default()).unwrap_or_else(|e| panic!("{e:?}"));
    documents.regions.remove(0).problem
}

fn schedule(p: &Problem, o: &ScheduleOptions) -> RegionSchedule {
    Scheduler::new().schedule(p, o).unwrap_or_else(|e| panic!("{e}"))
}

fn explain_with(p: &Problem, o: &ScheduleOptions) -> RegionExplanation {
    explain_region(p, &schedule(p, o), o).unwrap_or_else(|e| panic!("{e}"))
}

fn explain(p: &Problem) -> RegionExplanation {
    explain_with(p, &ScheduleOptions::default())
}

fn text(p: &Problem, o: &ScheduleOptions) -> String {
    let s = schedule(p, o);
    let all = explain_graphs([(p, &s)].into_iter(), o).unwrap_or_else(|e| panic!("{e}"));
    all.to_text(&Options::default())
}

fn def<'a>(id: &'a str, latency: u32, uses: &'a [Use]) -> NodeDef<'a> {
    NodeDef { id, name: "op", latency, uses, ..NodeDef::default() }
}

fn hold(slot: Slot, offset: u32, duration: u32) -> Use {
    Use { slot, offset, duration, occupancy: 1 }
}

#[test]
fn gemm_is_bound_by_its_loads() {
    let e = explain(&read(GEMM));
    assert_eq!((e.ii, e.stages, e.bound, &e.verdict), (16, 2, 16, &Verdict::Bound));
    assert_eq!(e.binders, ["slot tma", "slot tp_smem_wr"]);
    let full = |name: &str| Obstacle::Full { resource: name.into(), busy: 16, there: 15 };
    assert_eq!(e.tighter.ii, Some(15));
    assert_eq!(e.tighter.obstacles, [full("slot tma"), full("slot tp_smem_wr")]);
    let tma = &e.loads[0];
    assert_eq!(tma.holders, [("op0".to_owned(), 8), ("op1".to_owned(), 8)]);
    // The accumulator: 8 cycles an iteration, of 16.
    assert_eq!((e.recurrences.len(), e.recurrences[0].needs), (1, 8));
    assert_eq!(e.recurrences[0].to_string(), "op2 -> op2");
    let slack = |k: usize| (e.ops[k].slack.alone, e.ops[k].slack.path(), e.ops[k].slack.around);
    assert_eq!(slack(0), (Some(8), 0, None));
    assert_eq!(slack(1), (Some(0), 0, None));
    assert_eq!(slack(2), (None, 0, Some(8)));
    // A load, then the dot: 8 + 16.
    assert_eq!((e.shortest, e.length), (24, 32));
    // One of the two relaxed leaves the other; both leave the 8 of multiply, recurrence and the halved loads.
    let bounds: Vec<u32> = e.what_if.iter().map(|w| w.bound).collect();
    assert_eq!(bounds, [16, 16, 8]);
    assert_eq!(e.what_if[0].binders, ["slot tp_smem_wr"]);
    assert!(e.what_if[2].binders.contains(&"recurrence op2 -> op2".to_owned()), "{:?}", e.what_if[2]);
    assert_eq!(e.what_if[2].found, Some(8));
}

#[test]
fn attention_is_bound_by_the_accumulators_recurrence() {
    let e = explain(&read(ATTENTION));
    assert_eq!((e.ii, e.bound, &e.verdict), (34, 34, &Verdict::Bound));
    assert_eq!(e.binders, ["recurrence old -> om -> ost -> pv -> old"]);
    let c = &e.recurrences[0];
    assert_eq!((c.latency, c.distance, c.needs), (7 + 4 + 7 + 16, 1, 34));
    assert_eq!(c.links.iter().map(|l| l.latency).collect::<Vec<_>>(), [7, 4, 7, 16]);
    assert!(c.links.iter().all(|l| l.kind == LinkKind::Dependence));
    let turn = Obstacle::Cycle { cycle: "old -> om -> ost -> pv -> old".into(), latency: 34, there: 33 };
    assert_eq!((e.tighter.ii, e.tighter.obstacles.as_slice()), (Some(33), &[turn][..]));
    // Without it the S/P columns bind: qk 16, sld 7, rmax 4, rc 4, m 2, x 4, p 4, ph 4, pst 7, pv 8, twice around.
    assert_eq!((e.recurrences[1].latency, e.recurrences[1].distance, e.recurrences[1].needs), (60, 2, 30));
    let without = &e.what_if[0];
    assert_eq!(without.change, "without the recurrence old -> om -> ost -> pv -> old");
    assert_eq!((without.bound, without.binders.len()), (30, 1));
    assert!(without.binders[0].starts_with("recurrence qk -> sld -> rmax"), "{:?}", without.binders);
    // The multiply twice as fast: 26 on this cycle.
    assert!(e.what_if.iter().any(|w| w.change.starts_with("pv -> old in 8 cycles") && w.bound == 30));
    let slots: Vec<(&str, u64)> = e.loads.iter().map(|l| (l.name.as_str(), l.needs)).collect();
    assert!(slots.contains(&("slot fp32x2_fp16ultra", 16)) && slots.contains(&("slot xu", 8)));
    for o in &e.ops {
        let tight = ["old", "om", "ost", "pv"].contains(&o.id.as_str());
        assert_eq!(o.slack.around == Some(0), tight, "{}", o.id);
    }
    // k, qk, sld, rmax, rc, m, x, p, ph, pst, pv: 8 + 16 + 7 + 4 + 4 + 2 + 4 + 4 + 4 + 7 + 16.
    assert_eq!(e.shortest, 76);
}

#[test]
fn a_pool_binds() {
    let mut p = Problem::new("pool");
    let pool = p.add_pool(3, "tmem_bank", 2);
    for id in ["a", "b", "c"] {
        let charge = [PoolUse { pool, count: 1, duration: 6 }];
        p.add_node(&NodeDef { id, latency: 4, pools: &charge, ..NodeDef::default() });
    }
    let e = explain(&p);
    // 18 over 2.
    assert_eq!(
        (e.ii, &e.verdict, e.binders.as_slice()),
        (9, &Verdict::Bound, &["pool tmem_bank".to_owned()][..])
    );
    assert_eq!(
        e.tighter.obstacles,
        [Obstacle::Full { resource: "pool tmem_bank".into(), busy: 18, there: 16 }]
    );
    let by = |start: &str| e.what_if.iter().find(|w| w.change.starts_with(start)).expect(start);
    // Capacity 4: ceil(18 / 4). One op less: 12 / 2.
    assert_eq!(by("half the use of pool tmem_bank").bound, 5);
    assert_eq!((by("a without pool tmem_bank").bound, by("a without").found), (6, Some(6)));
}

#[test]
fn a_group_binds() {
    let mut p = Problem::new("group");
    let grouped = |id| NodeDef { group: Some(1), ..def(id, 5, &[]) };
    let a = p.add_node(&grouped("a"));
    let b = p.add_node(&def("b", 5, &[]));
    let c = p.add_node(&grouped("c"));
    p.add_edge(a, b, 5, 0);
    p.add_edge(b, c, 5, 0);
    let e = explain(&p);
    // a and c start less than an interval apart, and at least 10.
    assert_eq!((e.ii, e.binders.as_slice()), (11, &["chain a -> b -> c -> a".to_owned()][..]));
    let chain = e.chain.as_ref().expect("a chain");
    assert_eq!(chain.links.last().map(|l| (l.kind, l.latency, l.distance)), Some((LinkKind::Group, 1, 1)));
    assert_eq!(
        e.tighter.obstacles,
        [Obstacle::Chain { chain: "chain a -> b -> c -> a".into(), latency: 11, there: 10 }]
    );
    let without = e.what_if.iter().find(|w| w.change == "without groups").expect("a what-if");
    assert_eq!((without.bound, without.found), (1, Some(1)));
    assert!(text(&p, &ScheduleOptions::default()).contains("ops of one group share a stage"));
}

#[test]
fn a_critical_path_binds_where_stages_are_limited() {
    let mut p = Problem::new("path");
    let n: Vec<_> = ["a", "b", "c"].iter().map(|id| p.add_node(&def(id, 6, &[]))).collect();
    p.add_edge(n[0], n[1], 6, 0);
    p.add_edge(n[1], n[2], 6, 0);
    let o = ScheduleOptions { max_stages: Some(2), ..ScheduleOptions::default() };
    let e = explain_with(&p, &o);
    assert_eq!((e.ii, e.binders.as_slice()), (9, &["critical path a -> b -> c".to_owned()][..]));
    let chain = e.chain.as_ref().expect("a path");
    assert_eq!((chain.latency, chain.distance, chain.closed), (18, 2, false));
    let more = e.what_if.iter().find(|w| w.change.starts_with("3 stages")).expect("a what-if");
    assert_eq!(more.bound, 6);
}

/// Two ops that hold a slot in cycles 0, 1 and 3. Six rows: the rows one leaves are 2, 4, 5, no shift of 0, 1, 3. Seven:
/// 2, 4, 5, 6, neither. Eight: 4, 5, 7.
fn interlocking() -> Problem {
    let mut p = Problem::new("interlock");
    let s = p.add_slot(1, "unit", 1);
    let uses = [hold(s, 0, 2), hold(s, 3, 1)];
    p.add_node(&def("a", 4, &uses));
    p.add_node(&def("b", 4, &uses));
    p
}

#[test]
fn what_no_bound_says_the_search_does() {
    let p = interlocking();
    let e = explain(&p);
    assert_eq!((e.ii, e.bound, &e.verdict, e.binders.len()), (8, 6, &Verdict::Refuted, 0));
    assert!(matches!(&e.tighter.obstacles[..], [Obstacle::Search { proof: true, .. }]), "{:?}", e.tighter);
    let tried: Vec<(u32, bool)> = e.search.candidates.iter().map(|c| (c.ii, c.proof)).collect();
    assert_eq!(tried, [(6, false), (7, false), (8, false), (6, true), (7, true)]);
    assert!(text(&p, &ScheduleOptions::default()).contains("every smaller interval was refuted"));
    // Without exact search nothing is proven.
    let o = ScheduleOptions { exact_steps: 0, ..ScheduleOptions::default() };
    let e = explain_with(&p, &o);
    assert_eq!((e.ii, &e.verdict), (8, &Verdict::Open(6, 7)));
    assert!(matches!(&e.tighter.obstacles[..], [Obstacle::Search { proof: false, .. }]), "{:?}", e.tighter);
    assert!(text(&p, &o).contains("Whether 6 to 7 would do is open"), "{}", text(&p, &o));
}

#[test]
fn serial_schedules_say_why() {
    let p = read(GEMM);
    let o = ScheduleOptions { ii_cap: Some(15), ..ScheduleOptions::default() };
    let e = explain_with(&p, &o);
    assert_eq!((e.ii, e.bound, e.generator.as_str()), (32, 16, "serial"));
    // No interval was tried, and no steps were used up.
    assert_eq!(e.verdict, Verdict::Serial("the option `search.ii-cap` allows 15, below the bound 16".into()));
    assert!(!e.notes.iter().any(|n| n.contains("steps")), "{:?}", e.notes);
    assert_eq!(e.tighter.obstacles, [Obstacle::Serial]);
    assert!(e.notes.iter().any(|n| n.starts_with("W0403: `search.ii-cap` is 15")), "{:?}", e.notes);
    assert!(e.notes.iter().any(|n| n.contains("the cap is below the lower bounds")), "{:?}", e.notes);
    let o =
        ScheduleOptions { scheduler: tileas_schedule::SchedulerChoice::Serial, ..ScheduleOptions::default() };
    let e = explain_with(&p, &o);
    assert_eq!(e.verdict, Verdict::Serial("the option `scheduler` asks for it".into()));
    // Pipelining would pay.
    assert_eq!((e.what_if[0].bound, e.what_if[0].found), (16, Some(16)));
}

/// A loop that asks for it is serial under every scheduler, and what pipelining would give is said.
#[test]
fn a_forced_loop_is_serial_whatever_was_asked_for() {
    let mut p = read(GEMM);
    let summary = p.summary.unwrap_or_default();
    p.summary = Some(RegionSummary { force_serial: true, ..summary });
    for scheduler in [SchedulerChoice::Auto, SchedulerChoice::CostBased] {
        let o = ScheduleOptions { scheduler, ..ScheduleOptions::default() };
        let e = explain_with(&p, &o);
        assert_eq!(e.verdict, Verdict::Serial("the loop carries `force_serial_execution`".into()));
        assert_eq!(e.what_if[0].change, "pipelined (without `force_serial_execution` on the loop)");
        assert_eq!(e.what_if[0].found, Some(16));
    }
}

#[test]
fn arms_and_moves_are_recorded() {
    let p = read(ATTENTION);
    let arms = Rungs::only(&[Rung::InitialPlacement]);
    let scheduler = SchedulerChoice::CostBased;
    let e = explain_with(&p, &ScheduleOptions { scheduler, rungs: arms, ..ScheduleOptions::default() });
    assert_eq!(e.search.strategy.as_deref(), Some("initial_placement"));
    let known = ["permute", "fuse", "retry", "cost-based"];
    assert!(e.ops.iter().all(|o| o.arm.as_deref().is_some_and(|a| known.contains(&a))), "{:?}", e.ops);
    let e = explain(&p);
    assert!(e.ops.iter().all(|o| o.arm.is_none()), "no arm took part");
}

#[test]
fn nothing_to_schedule_is_no_error() {
    let p = Problem::new("empty");
    let e = explain(&p);
    assert_eq!((e.verdict, e.binders.len(), e.ops.len(), e.tighter.ii), (Verdict::Empty, 0, 0, None));
    assert!(text(&p, &ScheduleOptions::default()).contains("Nothing to schedule."));
    let none = Explanation::default();
    assert_eq!(none.to_text(&Options::default()), "");
    assert!(none.to_html(&Options::default()).contains("</html>"));
    assert!(none.to_json().contains("\"kernels\": []"));
}

#[test]
fn a_schedule_of_another_problem_is_an_error() {
    let other = schedule(&read(GEMM), &ScheduleOptions::default());
    let e = explain_region(&read(ATTENTION), &other, &ScheduleOptions::default()).expect_err("ops differ");
    assert_eq!(Code::from(e.code), Code::E0303);
}

/// Slacks against brute force: longest paths by Floyd and Warshall, turns by all simple cycles.
#[test]
fn slacks_agree_with_brute_force() {
    let mut seed = 11u64;
    let mut below = |n: u64| {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 33) % n
    };
    let mut turns = 0;
    for _ in 0..200 {
        let n = 2 + below(5) as usize;
        let mut p = Problem::new("random");
        let s = p.add_slot(0, "s", 1);
        let nodes: Vec<_> = (0..n)
            .map(|i| p.add_node(&def(&format!("n{i}"), below(9) as u32, &[hold(s, 0, 1 + below(3) as u32)])))
            .collect();
        for _ in 0..below(12) {
            let (u, v) = (below(n as u64) as usize, below(n as u64) as usize);
            p.add_edge(nodes[u], nodes[v], below(14) as i32 - 3, below(3) as u32 + u32::from(u >= v));
        }
        let e = explain(&p);
        let ii = i64::from(e.ii);
        let far = i64::MIN / 8;
        let mut dist = vec![vec![far; n]; n];
        for (i, row) in dist.iter_mut().enumerate() {
            row[i] = 0;
        }
        let ends = |k: &tileas_schedule::EdgeData| (k.from.as_u32() as usize, k.to.as_u32() as usize);
        let weight = |k: &tileas_schedule::EdgeData| i64::from(k.latency) - ii * i64::from(k.distance);
        for k in p.edges().values() {
            let (u, v) = ends(k);
            dist[u][v] = dist[u][v].max(weight(k));
        }
        for k in 0..n {
            for i in 0..n {
                for j in 0..n {
                    dist[i][j] = dist[i][j].max((dist[i][k] + dist[k][j]).max(far));
                }
            }
        }
        let early = |v: usize| (0..n).map(|u| dist[u][v]).max().unwrap_or(0).max(0);
        let tail = |u: usize| (0..n).map(|v| dist[u][v] + i64::from(p.latency(nodes[v]))).max().unwrap_or(0);
        let length = (0..n).map(|v| early(v) + tail(v)).max().unwrap_or(0);
        for (i, &node) in nodes.iter().enumerate() {
            let o = e.ops.iter().find(|o| o.id == p.id(node)).expect("every op");
            assert_eq!((o.slack.earliest, o.slack.latest), (early(i), length - tail(i)), "{}", o.id);
            let through = p.edges().values().filter(|k| ends(k).1 == i);
            let closed = through.map(|k| dist[i][ends(k).0] + weight(k)).filter(|&w| w > far / 2);
            assert_eq!(o.slack.around, closed.max().map(|w| -w), "{}", o.id);
            turns += u32::from(o.slack.around.is_some());
        }
    }
    assert!(turns > 100);
}

#[test]
fn a_kernel_is_explained_without_changing_it() {
    // Numbers of the published weights, which can be reckoned by hand.
    let settings = Settings::default().with("published.cycle-model", "slot").expect("an option");
    let isa = tileas_isa::isa_for_cpu("sm_100a").expect("known cpu");
    let mut context = Context::new();
    let module = context.parse(KERNEL, &settings).expect("parses");
    let plain = context.run_to(Stage::Schedule, &module, &*isa, &settings).expect("schedules");
    let before = plain.kernels[0].schedule.as_ref().expect("scheduled").to_json();
    let (e, warnings) = explain_module(&mut context, &module, &*isa, &settings).expect("explains");
    assert_eq!(warnings, []);
    let k = &e.kernels[0];
    assert_eq!((k.name.as_str(), k.loops.len(), k.agents.len()), ("gemm_bias_relu", 1, 3));
    assert_eq!(k.loops[0].region.binders, ["slot tma", "slot tp_smem_wr"]);
    assert_eq!(k.loops[0].reached, 16);
    // The operand ring: 24 cycles of life at II 16; 956 real cycles at 256 an iteration.
    let ring = &k.channels[0];
    assert_eq!((ring.depth, ring.need, ring.from.as_str()), (6, 2, "agent1 load"));
    let reason =
        "R3 2: 24 - 0 cycles at II 16; R4 6: 956 cycles to cover, 256 an iteration, 2 of memory left";
    assert_eq!(ring.reason, reason);
    let spare = "hidden by 4 slots; 2 slots more in memory that no further CTA could use";
    assert!(ring.facts.iter().any(|f| f.ends_with(spare)), "{:?}", ring.facts);
    assert!(ring.facts[0].contains("24 cycles at II 16 need 2 slots"), "{:?}", ring.facts);
    assert!(
        ring.facts.iter().any(|f| f.starts_with("with 3 slots") && f.contains("188 of 956")),
        "{:?}",
        ring.facts
    );
    // Half the K of a tile: 700 of latency by the machine model and half of 256, at 128 an iteration. A kernel with such tiles
    // gets what is foretold.
    let half = "with tiles half as large: about 828 real cycles at 128 an iteration, so 7 slots instead of 4";
    assert!(ring.facts.iter().any(|f| f == half), "{:?}", ring.facts);
    let smaller = KERNEL.replace("box = [128, 64], swizzle = b128", "box = [128, 32], swizzle = b64");
    let smaller = context.parse(&smaller.replace("128x64xf16", "128x32xf16"), &settings).expect("parses");
    let (then, _) = explain_module(&mut context, &smaller, &*isa, &settings).expect("explains");
    assert!(
        then.kernels[0].channels[0].reason.contains("R4 8: 828 cycles to cover"),
        "{:?}",
        then.kernels[0].channels[0]
    );
    let serial = k.what_if.iter().find(|w| w.setting == "scheduler=serial").expect("tried");
    assert!(serial.effect.contains("32 cycles instead of 16"), "{serial:?}");
    let again = context.run_to(Stage::Schedule, &module, &*isa, &settings).expect("schedules");
    assert_eq!(again.kernels[0].schedule.as_ref().expect("scheduled").to_json(), before);
    let (text, page) = (e.to_text(&Options::default()), e.to_html(&Options::default()));
    for part in ["What binds", "Why not II 15", "What would change it", "Slack", "Channels", "Other settings"]
    {
        assert!(text.contains(part), "{part} is missing:\n{text}");
    }
    assert!(page.contains("<svg") && page.contains("Why not II 15") && !page.contains("http-equiv"));
    let json: serde_json::Value = serde_json::from_str(&e.to_json()).expect("JSON");
    assert_eq!(json["kernels"][0]["loops"][0]["region"]["verdict"], "bound");
    assert_eq!(json["kernels"][0]["channels"][0]["depth"], 6);
    // In clocks the headline says what follows.
    assert_eq!(k.loops[0].real_cycles, None);
    let (e, _) = explain_module(&mut context, &module, &*isa, &Settings::default()).expect("explains");
    let real = &e.kernels[0].loops[0];
    let line =
        "512 real cycles an iteration, bound by smem; tensor_core works in 256 of them, 50 % of its peak";
    assert_eq!((real.region.binders.as_slice(), real.reached), (&["slot smem".to_owned()][..], 512));
    assert!(real.clocks.is_empty() && real.real_cycles.as_deref() == Some(line), "{:?}", real.real_cycles);
    assert!(e.to_text(&Options::default()).contains(&format!("\n{line}\n")));
    assert!(e.to_html(&Options::default()).contains(line));
    // A kernel without loops.
    let module = context.parse("kernel @none(%x: i32) {\n  return\n}\n", &settings).expect("parses");
    let (e, _) = explain_module(&mut context, &module, &*isa, &settings).expect("explains");
    assert!(e.to_text(&Options::default()).contains("no loop to schedule"));
}
