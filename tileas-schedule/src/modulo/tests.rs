//! Every search at one II, asked about small problems with every kind of constraint, against all rows and stages.

use super::search::{Answer, Engine, Search};
use crate::entities::Node;
use crate::families::Rng;
use crate::graph::Graph;
use crate::options::ScheduleOptions;
use crate::placement::{Loop, Placement};
use crate::problem::{EdgeData, NodeDef, PoolUse, Problem, Use};
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

/// What a search says at one II, and starts if there are some.
fn ask(engine: Engine, p: &Problem, ii: u32, mut budget: u64) -> (Answer, Vec<i64>) {
    let (mut g, mut at, mut search) = (Graph::default(), Placement::default(), Search::default());
    assert!(g.build(p));
    at.begin(1);
    // Edges of an op to itself are the bounds' business, as are recurrences.
    let tight = p.edges().values().any(|e| e.from == e.to && e.latency > (ii * e.distance) as i32);
    if tight || !at.closure.build(&g, ii) {
        return (Answer::Refuted, Vec::new());
    }
    let o = ScheduleOptions::default();
    let answer = search.ask(engine, &mut at, Loop { p, g: &g, o: &o }, ii, None, &mut budget);
    (answer, at.starts().to_vec())
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
    finds(agrees(10, 400, true, |p, ii| ask(Engine::Ejection, p, ii, 2_000)));
}

#[test]
fn tabu_agrees_with_brute_force() {
    finds(agrees(11, 400, true, |p, ii| ask(Engine::Tabu, p, ii, 2_000)));
}

#[test]
fn orders_agree_with_brute_force() {
    settles(agrees(9, 900, false, |p, ii| ask(Engine::Orders, p, ii, 50_000)));
    settles(agrees(7, 900, true, |p, ii| ask(Engine::Orders, p, ii, 50_000)));
}
