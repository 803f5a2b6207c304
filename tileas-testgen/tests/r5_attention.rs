//! The smallest deadlocks of attention: the agents of its schedules, run with rings of every depth that matters.
//!
//! Each case becomes a program of the fuzz form (channels, agents in R1 order with their local stages), and `check`
//! asserts that the sync graph and the token simulator agree before the verdict is compared with the expected one.

use arbitrary::Unstructured;
use tileas_codegen::schedule::json::Documents;
use tileas_codegen::schedule::verify::verify;
use tileas_codegen::schedule::{Generator, Node, Problem, RegionSchedule, ScheduleOptions, Scheduler};
use tileas_testgen::agents::{Channel, Program, Role, Step, Verdict, check};

/// A depth that never binds.
const DEEP: u32 = 8;

/// Slots of the rings.
#[derive(Copy, Clone)]
struct Depths {
    k: u32,
    v: u32,
    s: u32,
    alpha: u32,
}

/// How an agent orders what it issues.
#[derive(Copy, Clone, PartialEq)]
enum Emission {
    /// By time (R1, R2).
    Time,
    /// By stage, then order: what R1 warns of.
    StageOrder,
}

struct Scheduled {
    p: Problem,
    ii: u32,
    start: Vec<u32>,
}

impl Scheduled {
    fn at(&self, id: &str) -> Option<u32> {
        self.p.nodes().position(|n| self.p.id(n) == id).map(|n| self.start[n])
    }
}

fn read(folder: &str, name: &str) -> Problem {
    let path =
        format!("{}/tests/../../tileas-schedule/tests/data/{folder}{name}.json", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    Documents::read(&text, &ScheduleOptions::default().limits).unwrap().regions.remove(0).problem
}

fn solved(folder: &str, name: &str) -> Scheduled {
    solve(read(folder, name))
}

/// With one slot of K, of V and of alpha: the next one is issued after the last reader.
fn with_one_slot(folder: &str, name: &str, scores: u32) -> Scheduled {
    let mut p = read(folder, name);
    let q = p.clone();
    let find = |id: &str| q.nodes().find(|&n| q.id(n) == id);
    let mut rings = Vec::new();
    for (from, to) in [("k", "qk"), ("v", "pv"), ("ast0", "ald0"), ("ast1", "ald1")] {
        for consumer in [format!("{to}0"), format!("{to}1"), to.to_owned()] {
            if let (Some(a), Some(b)) = (find(from), find(&consumer)) {
                rings.push((b, a));
            }
        }
    }
    // S and P keep their slot until pv has read it.
    for tile in ["0", "1"] {
        if let (Some(a), Some(b)) = (find(&format!("qk{tile}")), find(&format!("pv{tile}"))) {
            p.add_edge(b, a, p.uses(b)[0].duration as i32, scores);
        }
    }
    rings.into_iter().for_each(|(b, a)| _ = p.add_edge(b, a, 1, 1));
    solve(p)
}

fn solve(p: Problem) -> Scheduled {
    let s = Scheduler::new().schedule(&p, &ScheduleOptions::default()).unwrap();
    assert_eq!(verify(&p, &s), []);
    let start = p.nodes().map(|n| s.start[n]).collect();
    Scheduled { p, ii: s.ii, start }
}

/// A schedule by hand, judged like any other.
fn given(p: Problem, ii: u32, start: Vec<u32>) -> Option<Scheduled> {
    let ends = p.nodes().zip(&start).map(|(n, &t)| t + p.latency(n));
    let stage_count = (ends.max().unwrap_or(0) + 1).div_ceil(ii);
    let generator = Generator::CostBased;
    let mut s = RegionSchedule { ii, stage_count, generator, ..RegionSchedule::default() };
    let mut ranks: Vec<(u32, Node)> = p.nodes().zip(&start).map(|(n, &t)| (t, n)).collect();
    ranks.sort();
    for (n, &t) in p.nodes().zip(&start) {
        s.start.push(t);
        s.stage.push(t / ii);
        s.order.push(ranks.iter().position(|r| r.1 == n).unwrap() as u32);
    }
    verify(&p, &s).is_empty().then_some(Scheduled { p, ii, start })
}

/// Agent of an op: load, mma, one simt agent per tile and, where alpha is handed over, the correction.
fn agent(id: &str, tiles: u32, corrects: bool) -> usize {
    let tile = id.chars().last().and_then(|c| c.to_digit(10)).unwrap_or(0) as usize;
    match id.trim_end_matches(|c: char| c.is_ascii_digit()) {
        "k" | "v" => 0,
        "qk" | "pv" => 1,
        "old" | "om" | "ost" | "ald" if corrects => 2 + tiles as usize,
        _ => 2 + tile,
    }
}

fn program(s: &Scheduled, d: Depths, emission: Emission) -> Program {
    let tiles = if s.at("qk0").is_some() { 2 } else { 1 };
    let corrects = s.p.nodes().any(|n| s.p.id(n).starts_with("ald"));
    // The last agents keep the slots of S and P of one tile: they hand out as many tokens as there are slots.
    let keeper = 2 + tiles as usize + usize::from(corrects);
    let agents = keeper + tiles as usize;
    let mut p = Program {
        agents,
        blocks: vec![(0, Role::Body), (0, Role::Loop)],
        steps: vec![vec![vec![(0, Step::Loop(1))], Vec::new()]; agents],
        ..Program::default()
    };
    let mut add = |producer: usize, consumer: usize, depth: u32, distance: u32| {
        let c =
            Channel { home: 1, producer, consumers: vec![consumer], depth, distance, freed: true, at: None };
        p.channels.push(c);
        p.channels.len() - 1
    };
    let name = |op: &str, tile: u32| if tiles == 1 { op.to_owned() } else { format!("{op}{tile}") };
    let of = |op: &str, tile: u32| agent(&name(op, tile), tiles, corrects);
    // What an op does before it is issued, and after.
    let mut acts: Vec<(String, Vec<Step>, Vec<Step>)> = Vec::new();
    let mut act = |op: String, before: &[Step], after: &[Step]| match acts.iter_mut().find(|a| a.0 == op) {
        Some(a) => {
            a.1.extend_from_slice(before);
            a.2.extend_from_slice(after);
        }
        None => acts.push((op, before.to_vec(), after.to_vec())),
    };
    let mut keepers = Vec::new();
    let (k, v) = (add(0, 1, d.k, 0), add(0, 1, d.v, 0));
    for (c, load, user) in [(k, "k", "qk"), (v, "v", "pv")] {
        act(load.to_owned(), &[Step::Acquire(c)], &[Step::Commit(c)]);
        // The consumers of one agent wait at the first of them and release after the last, by R1.
        let mut users: Vec<String> = (0..tiles).map(|t| name(user, t)).collect();
        users.sort_by_key(|u| s.at(u));
        act(users[0].clone(), &[Step::Wait(c)], &[]);
        act(users[users.len() - 1].clone(), &[], &[Step::Release(c)]);
    }
    for t in 0..tiles {
        let mut channel = |from: &str, to: &str, depth: u32, distance: u32| {
            let c = add(of(from, t), of(to, t), depth, distance);
            act(name(from, t), &[Step::Acquire(c)], &[Step::Commit(c)]);
            act(name(to, t), &[Step::Wait(c)], &[Step::Release(c)]);
        };
        channel("qk", "sld", DEEP, 0);
        // Where exp2 and the store of P are one op, that op hands over.
        channel(if s.at(&name("pst", t)).is_some() { "pst" } else { "p" }, "pv", DEEP, 0);
        channel("ost", "pv", DEEP, 0);
        channel("pv", "old", DEEP, 1);
        if corrects {
            channel("ast", "ald", d.alpha, 0);
        }
        // The slots of S and P: qk takes one, pv gives it back.
        let slot = add(keeper + t as usize, 1, d.s, 0);
        act(name("qk", t), &[Step::Wait(slot)], &[]);
        act(name("pv", t), &[], &[Step::Release(slot)]);
        keepers.push(slot);
    }
    for (t, &slot) in keepers.iter().enumerate() {
        p.steps[keeper + t][1] = vec![(0, Step::Acquire(slot)), (0, Step::Commit(slot))];
    }
    for a in 0..keeper {
        let mine = s.p.nodes().filter(|&n| agent(s.p.id(n), tiles, corrects) == a);
        let mut mine: Vec<(u32, u32, u32)> =
            mine.map(|n| (s.start[n.as_u32() as usize], n.as_u32(), 0)).collect();
        let first = mine.iter().map(|m| m.0).min().unwrap_or(0);
        match emission {
            Emission::Time => {
                mine.iter_mut().for_each(|m| m.2 = (m.0 - first) / s.ii);
                mine.sort_by_key(|m| ((m.0 - first) % s.ii, m.1));
            }
            Emission::StageOrder => {
                let least = first / s.ii;
                mine.iter_mut().for_each(|m| m.2 = m.0 / s.ii - least);
                mine.sort_by_key(|m| (m.0, m.1));
            }
        }
        for (_, n, local) in mine {
            let id = s.p.id(Node::from_u32(n));
            if let Some((_, before, after)) = acts.iter().find(|x| x.0 == id) {
                p.steps[a][1].extend(before.iter().chain(after).map(|&step| (local, step)));
            }
        }
    }
    p
}

fn verdict(s: &Scheduled, d: Depths, emission: Emission) -> Verdict {
    let bytes: Vec<u8> = (0..4096u32).map(|i| (i.wrapping_mul(0x9e37_79b9) >> 13) as u8).collect();
    check(&program(s, d, emission), &mut Unstructured::new(&bytes)).expect("as many bytes as it takes")
}

const ONE: Depths = Depths { k: 1, v: 1, s: 1, alpha: 1 };

fn lives(s: &Scheduled, d: Depths) -> bool {
    verdict(s, d, Emission::Time) == Verdict::Live
}

fn plan_a() -> Scheduled {
    let text = include_str!("../../tileas-schedule/tests/data/attention.json");
    let d = Documents::read(text, &ScheduleOptions::default().limits).unwrap().regions.remove(0);
    let s = d.given_schedule().unwrap();
    let start = d.problem.nodes().map(|n| s.start[n]).collect();
    given(d.problem, s.ii, start).expect("it is legal")
}

/// Sub-tile 1 half an interval after sub-tile 0, one slot for everything.
fn plan_b_74() -> Scheduled {
    let p = read("loops/", "attn_fwd_b_ds1");
    let tile = [
        ("qk", 8),
        ("sld", 24),
        ("rmax", 31),
        ("rc", 35),
        ("m", 39),
        ("dm", 41),
        ("x", 41),
        ("al", 45),
        ("ast", 49),
        ("p", 49),
        ("ph", 53),
        ("rs", 53),
        ("l", 57),
        ("pst", 57),
        ("old", 16),
        ("ald", 56),
        ("om", 63),
        ("ost", 67),
        ("pv", 74),
    ];
    let start = p.nodes().map(|n| {
        let id = p.id(n);
        let (op, second) = (id.trim_end_matches(['0', '1']), id.ends_with('1'));
        match id {
            "k" => 0,
            "v" => 66,
            _ => tile.iter().find(|t| t.0 == op).unwrap().1 + if second { 37 } else { 0 },
        }
    });
    let start = start.collect();
    given(p, 74, start).expect("it is legal")
}

#[test]
fn one_tile_needs_two_slots_for_its_scores() {
    let a = plan_a();
    assert!(lives(&a, Depths { s: 2, ..ONE }));
    for (k, v) in [(1, 1), (2, 2), (4, 4)] {
        assert!(!lives(&a, Depths { k, v, ..ONE }), "qk(t) is issued before pv(t - 1), which frees its slot");
    }
    assert_eq!(verdict(&a, Depths { s: 2, ..ONE }, Emission::StageOrder), Verdict::Deadlock);
}

#[test]
fn two_tiles_at_74_live_with_one_slot_each() {
    let b = plan_b_74();
    assert!(lives(&b, ONE));
    assert_eq!(verdict(&b, ONE, Emission::StageOrder), Verdict::Deadlock);
    // The schedule found is another one of that interval.
    let found = solved("loops/", "attn_fwd_b_ds1");
    assert!(found.ii == 74 && lives(&found, ONE));
}

/// The slots that the issue order needs: pv(t - d) is issued before qk(t).
fn slots_by_order(s: &Scheduled) -> u32 {
    let need = |t: u32| (s.at(&format!("pv{t}")).unwrap() - s.at(&format!("qk{t}")).unwrap()).div_ceil(s.ii);
    need(0).max(need(1))
}

#[test]
fn faster_schedules_of_two_tiles_need_the_slots_they_were_made_for() {
    let b38 = with_one_slot("loops/", "attn_fwd_b_ds2", 2);
    assert_eq!((b38.ii, slots_by_order(&b38)), (38, 2));
    assert!(lives(&b38, Depths { s: 2, ..ONE }) && !lives(&b38, ONE));
    let b34 = with_one_slot("loops/", "attn_fwd_b", 3);
    assert_eq!((b34.ii, slots_by_order(&b34)), (34, 3));
    assert!(lives(&b34, Depths { s: 3, ..ONE }));
    assert!(!lives(&b34, Depths { s: 2, ..ONE }) && !lives(&b34, ONE));
}

#[test]
fn in_real_cycles_v_is_issued_far_ahead() {
    for name in ["pair_cal", "pair_fused_cal", "pair_ideal"] {
        let s = solved("real/", name);
        let limited = with_one_slot("real/", name, 1);
        for k in [1, 2] {
            assert!(lives(&s, Depths { k, v: 2, ..ONE }), "{name}");
            assert!(lives(&limited, Depths { k, ..ONE }), "{name}");
        }
        // A load that hides its latency of 700 cycles may well stand before K of its own iteration. Then pv1(i) stands
        // behind qk0(i + 1), which waits for K behind V(i + 1), which waits for the slot of pv1(i).
        let (k, v) = (s.at("k").unwrap() + s.ii, s.p.nodes().position(|n| s.p.id(n) == "v").unwrap());
        let moved = (0..k).rev().find_map(|t| {
            let mut start: Vec<u32> = s.start.iter().map(|t| t + s.ii).collect();
            start[v] = t;
            given(s.p.clone(), s.ii, start)
        });
        let early = moved.expect("the port of shared memory has room before K");
        for k in [1, 2] {
            assert!(lives(&early, Depths { k, v: 2, ..ONE }), "{name}");
            assert!(!lives(&early, Depths { k, ..ONE }), "{name}");
        }
    }
}
