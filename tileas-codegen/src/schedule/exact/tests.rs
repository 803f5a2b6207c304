//! Every search at one II, asked about small problems with every kind of constraint, against all rows and stages.

use super::super::closure::Closure;
use super::super::families::Rng;
use super::super::graph::Graph;
use super::super::ims::Ims;
use super::super::problem::{EdgeData, Node, NodeDef, PoolUse, Problem, Use};
use super::super::rrt::Rrt;
use super::{Answer, Exact, Local};
use cranelift_entity::EntityRef;

/// Few ops, every kind of constraint.
fn small(rng: &mut Rng) -> Problem {
    let mut p = Problem::new("small");
    let slots: Vec<_> = (1..3).map(|id| (p.add_slot(id, "s", id), id)).collect();
    let pool = p.add_pool(0, "pool", 2);
    let ops = rng.within(2, 5);
    for i in 0..ops {
        let mut uses = Vec::new();
        for &(slot, cap) in &slots {
            for k in 0..rng.within(0, 2) {
                let (offset, duration) = (3 * k + rng.within(0, 1), rng.within(1, 2));
                uses.push(Use { slot, offset, duration, occupancy: rng.within(1, cap) });
            }
        }
        let charge = [PoolUse { pool, count: rng.within(1, 2), duration: rng.within(1, 3) }];
        let id = format!("n{i}");
        p.add_node(&NodeDef {
            id: &id,
            name: "op",
            latency: rng.within(0, 5),
            uses: &uses,
            pools: if rng.one_in(3) { &charge } else { &[] },
            group: rng.one_in(3).then(|| rng.within(0, 1)),
            max_depth: if rng.one_in(6) { rng.within(1, 2) } else { 0 },
            ..NodeDef::default()
        });
    }
    for _ in 0..rng.within(0, 2 * ops) {
        let (a, b) = (rng.within(0, ops - 1), rng.within(0, ops - 1));
        let distance = if a < b { rng.within(0, 1) } else { rng.within(1, 2) };
        p.add_edge(Node::from_u32(a), Node::from_u32(b), rng.within(0, 6) as i32, distance);
    }
    p
}

fn too_full(p: &Problem, rows: &[u32], ii: u32) -> bool {
    let (mut slots, mut pools) = (vec![0; p.slots().len() * ii as usize], vec![0; ii as usize]);
    for (n, &row) in p.nodes().zip(rows) {
        for u in p.uses(n) {
            for k in 0..u.duration {
                slots[(u.slot.as_u32() * ii + (row + u.offset + k) % ii) as usize] += u.occupancy;
            }
        }
        for u in p.pool_uses(n) {
            (0..u.duration).for_each(|k| pools[((row + k) % ii) as usize] += u.count);
        }
    }
    let caps: Vec<u32> = p.slots().values().map(|s| s.capacity).collect();
    slots.iter().enumerate().any(|(k, &held)| held > caps[k / ii as usize]) || pools.iter().any(|&h| h > 2)
}

/// Whether some stages go with these rows.
fn stages_exist(p: &Problem, rows: &[u32], ii: i32) -> bool {
    let mut stage = vec![0i32; rows.len()];
    let mut changed = true;
    while std::mem::take(&mut changed) {
        let mut raise = |stage: &mut Vec<i32>, n: Node, least: i32| {
            if stage[n.as_u32() as usize] < least {
                stage[n.as_u32() as usize] = least;
                changed = true;
            }
        };
        for e in p.edges().values() {
            let (a, b) = (e.from.as_u32() as usize, e.to.as_u32() as usize);
            let gap = e.latency - ii * e.distance as i32 - rows[b] as i32 + rows[a] as i32;
            let least = stage[a] + -(-gap).div_euclid(ii);
            raise(&mut stage, e.to, least);
        }
        for a in p.nodes() {
            for b in p.nodes().filter(|&b| p.group(a).is_some() && p.group(b) == p.group(a)) {
                let least = stage[a.as_u32() as usize];
                raise(&mut stage, b, least);
            }
        }
        if stage.iter().any(|&k| k > 50) {
            return false;
        }
    }
    p.nodes().zip(&stage).all(|(n, &k)| p.max_depth(n) == 0 || k <= p.max_depth(n) as i32)
}

fn feasible(p: &Problem, ii: u32) -> bool {
    let n = p.num_nodes() as u32;
    (0..ii.pow(n)).any(|mut code| {
        let rows: Vec<u32> = (0..n)
            .map(|_| {
                let row = code % ii;
                code /= ii;
                row
            })
            .collect();
        !too_full(p, &rows, ii) && stages_exist(p, &rows, ii as i32)
    })
}

/// The answer at one II (or a range), and starts if there are some.
fn answer(p: &Problem, ii: u32, least: u32) -> (Answer, Vec<i64>) {
    let (mut g, mut ims, mut closure) = (Graph::default(), Ims::default(), Closure::default());
    let (mut rrt, mut exact) = (Rrt::default(), Exact::default());
    assert!(g.build(p));
    closure.clear();
    // Edges of an op to itself are the bounds' business.
    if p.edges().values().any(|e| e.from == e.to && e.latency > (ii * e.distance) as i32) {
        return (Answer::Refuted, Vec::new());
    }
    if !closure.build(&g, ii) || !ims.prepare(p, &g, ii.into(), None) || rrt.reset(p, ii, 0).is_err() {
        // What folds onto itself at one interval may not at a smaller one.
        return (if least < ii { Answer::Unknown } else { Answer::Refuted }, Vec::new());
    }
    let mut budget = 50_000;
    let a = exact.search_orders(&g, &closure, &mut rrt, &mut ims, ii, least, None, &mut budget);
    (a, ims.start.clone())
}

/// What the search with a window per op says at one II, and starts if there are some.
fn windows_answer(p: &Problem, ii: u32) -> (Answer, Vec<i64>) {
    let (mut g, mut ims, mut closure) = (Graph::default(), Ims::default(), Closure::default());
    let (mut rrt, mut exact) = (Rrt::default(), Exact::default());
    assert!(g.build(p));
    closure.clear();
    let tight = p.edges().values().any(|e| e.from == e.to && e.latency > (ii * e.distance) as i32);
    let fits = !tight
        && closure.build(&g, ii)
        && ims.prepare(p, &g, ii.into(), None)
        && rrt.reset(p, ii, 0).is_ok()
        && exact.model.build(&g, &closure, &rrt, &ims, ii)
        && exact.model.merge_rigid();
    if !fits {
        return (Answer::Refuted, Vec::new());
    }
    let answer = exact.search_windows(&ims, None, &mut 50_000);
    if answer == Answer::Found {
        assert!(exact.extend(&g, &mut ims, ii), "what the windows allow extends to all ops");
    }
    (answer, ims.start.clone())
}

/// What a local search says at one II, and starts if there are some.
fn local_answer(which: Local, p: &Problem, ii: u32) -> (Answer, Vec<i64>) {
    let (mut g, mut ims, mut closure) = (Graph::default(), Ims::default(), Closure::default());
    let (mut rrt, mut exact) = (Rrt::default(), Exact::default());
    assert!(g.build(p));
    closure.clear();
    let tight = p.edges().values().any(|e| e.from == e.to && e.latency > (ii * e.distance) as i32);
    let fits =
        !tight && closure.build(&g, ii) && ims.prepare(p, &g, ii.into(), None) && rrt.reset(p, ii, 0).is_ok();
    if !fits {
        return (Answer::Refuted, Vec::new());
    }
    let mut budget = 2_000;
    let a = exact.search(which, &g, &closure, &mut rrt, &mut ims, ii, None, 1, &mut budget);
    (a, ims.start.clone())
}

/// Whether starts keep every dependence, group and depth.
fn keeps(p: &Problem, starts: &[i64], ii: u32) -> bool {
    let wide = i64::from(ii);
    let (start, stage) = (|n: Node| starts[n.index()], |n: Node| starts[n.index()] / wide);
    let edge =
        |e: &EdgeData| start(e.to) - start(e.from) >= i64::from(e.latency) - wide * i64::from(e.distance);
    let apart = |a: Node, b: Node| p.group(a).is_some() && p.group(a) == p.group(b) && stage(a) != stage(b);
    starts.iter().all(|&t| t >= 0)
        && p.edges().values().all(edge)
        && p.nodes().all(|n| p.max_depth(n) == 0 || stage(n) <= i64::from(p.max_depth(n)))
        && !p.nodes().any(|a| p.nodes().any(|b| apart(a, b)))
}

/// Asks about small problems; every answer is that of looking at all rows and stages. Returns how many were found,
/// refuted and left open, and of these how many have a schedule.
fn agrees(
    seed: u64,
    cases: u32,
    groups: bool,
    ask: impl Fn(&Problem, u32) -> (Answer, Vec<i64>),
) -> [u32; 4] {
    let mut rng = Rng::new(seed);
    let mut counts = [0; 4];
    for case in 0..cases {
        let p = small(&mut rng);
        let grouped = p.nodes().any(|n| p.group(n).is_some());
        if grouped && !groups || !p.check(&Default::default()).is_empty() {
            continue;
        }
        for ii in 1..=if p.num_nodes() > 4 { 5 } else { 8 } {
            let (a, starts) = ask(&p, ii);
            match a {
                Answer::Unknown | Answer::TooLarge => {
                    counts[2] += 1;
                    counts[3] += u32::from(feasible(&p, ii));
                }
                Answer::Found => {
                    counts[0] += 1;
                    let rows: Vec<u32> = starts.iter().map(|t| (t % i64::from(ii)) as u32).collect();
                    assert!(!too_full(&p, &rows, ii), "case {case} at {ii}");
                    assert!(keeps(&p, &starts, ii), "case {case} at {ii}");
                }
                Answer::Refuted => {
                    counts[1] += 1;
                    assert!(!feasible(&p, ii), "case {case} at {ii}");
                }
            }
        }
    }
    counts
}

fn settles(counts: [u32; 4]) {
    let [found, refuted, open, _] = counts;
    assert!(found > 300 && refuted > 300 && open < (found + refuted) / 8, "{counts:?}");
}

/// A local search finds nothing that is none, and of what there is nearly all.
fn finds(counts: [u32; 4]) {
    let [found, _, open, missed] = counts;
    assert!(found > 300 && open > 100 && missed * 50 < found, "{counts:?}");
}

#[test]
fn ejection_agrees_with_brute_force() {
    finds(agrees(10, 400, true, |p, ii| local_answer(Local::Ejection, p, ii)));
}

#[test]
fn tabu_agrees_with_brute_force() {
    finds(agrees(11, 400, true, |p, ii| local_answer(Local::Tabu, p, ii)));
}

#[test]
fn windows_agree_with_brute_force() {
    settles(agrees(9, 900, false, windows_answer));
}

#[test]
fn agrees_with_brute_force() {
    settles(agrees(7, 400, true, |p, ii| answer(p, ii, ii)));
}

/// A range is refuted only where each of its intervals is.
#[test]
fn ranges_agree_with_brute_force() {
    let mut rng = Rng::new(8);
    let mut refuted = 0;
    for case in 0..4000 {
        let p = small(&mut rng);
        let tied = p.nodes().any(|n| p.group(n).is_some() || p.max_depth(n) > 0);
        if tied || !p.check(&Default::default()).is_empty() {
            continue;
        }
        for (from, to) in [(2, 4), (4, 6), (5, 6), (6, 8)] {
            if p.num_nodes() > 4 && to > 6 || answer(&p, to, from).0 != Answer::Refuted {
                continue;
            }
            refuted += 1;
            for ii in from..=to {
                assert!(!feasible(&p, ii), "case {case}: {ii} of {from}..={to}");
            }
        }
    }
    assert!(refuted > 20, "{refuted}");
}
