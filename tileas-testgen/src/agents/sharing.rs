//! Two rings of one loop that share memory: the verdict of the graphs against runs.
//!
//! Agents write a slot from the acquire to the commit and read it from the wait to the release. Where rings X and Y have equally
//! many slots, D, and slot k of both is one place, that is right iff in every run all of X's use of a slot in iteration i is
//! over before Y's in i begins, and Y's before X's in i + D, or the other way round. Where the slots are not alike, D is 1:
//! each use is taken for one of all slots. A run that holds one use back
//! for ever and goes as far as it can reaches all that need not wait for it, and nothing else: blocking is monotone. So
//! each use is held back once, in each iteration, and what may not be reached is looked for.

use super::Run;
use super::{Channel, Program, Role, Step, Verdict, common, expand, pair_up, render, simulate, stage_up};
use arbitrary::{Result, Unstructured};
use tileas_codegen::Code;
use tileas_codegen::CodegenError;
use tileas_codegen::ir::{parse_module, verify_function};
use tileas_codegen::testing::materialize::disorder;

/// Bytes of a slot.
const TILE: u32 = 16384;

/// The rings with slots.
const X: usize = 0;
const Y: usize = 1;

/// Draws a loop of several agents with two rings that share their slots, and other channels.
///
/// # Errors
/// Out of data.
pub fn program(u: &mut Unstructured<'_>) -> Result<Program> {
    let agents = u.int_in_range(2..=4usize)?;
    let mut p = Program { agents, blocks: vec![(0, Role::Body), (0, Role::Loop)], ..Program::default() };
    let slots = u.int_in_range(1..=3u32)?;
    let channels = u.int_in_range(2..=5usize)?;
    for n in 0..channels {
        let shared = n == X || n == Y;
        // A chain from the one to the other and back is what makes sharing possible.
        let producer = match n {
            Y if u.ratio(2, 3)? => p.channels[X].consumers[0],
            2 if u.ratio(2, 3)? => p.channels[Y].consumers[0],
            _ => u.int_in_range(0..=agents - 1)?,
        };
        let mut consumers = Vec::new();
        for a in (0..agents).filter(|&a| a != producer) {
            if u.ratio(1, if shared { 3 } else { 2 })? {
                consumers.push(a);
            }
        }
        if consumers.is_empty() {
            let other = if n == 2 { p.channels[X].producer } else { (producer + 1) % agents };
            consumers.push(if other == producer { (producer + 1) % agents } else { other });
        }
        let depth = if shared { slots } else { u.int_in_range(1..=3)? };
        // Mostly slot on slot; else one slot further, more slots, or twice as many of half the size.
        let (at, depth) = match (shared, if n == Y { u.int_in_range(0..=9)? } else { 9 }) {
            (false, _) => (None, depth),
            (true, 0) => (Some((TILE, 64)), depth),
            (true, 1) => (Some((0, 64)), depth + 1),
            (true, 2) => (Some((0, 32)), 2 * depth),
            (true, _) => (Some((0, 64)), depth),
        };
        p.channels.push(Channel { home: 1, producer, consumers, depth, distance: 0, freed: true, at });
    }
    let stray = if u.ratio(1, 2)? { 0 } else { u.int_in_range(1..=3u32)? };
    for a in 0..agents {
        let mut list = common(&p, a, 1);
        for _ in 0..if list.len() > 1 { stray } else { 0 } {
            let i = u.int_in_range(0..=list.len() - 2)?;
            let j = u.int_in_range(i + 1..=list.len() - 1)?;
            let moved = list.remove(j);
            list.insert(i, moved);
        }
        pair_up(&mut list);
        let mut staged: Vec<(u32, Step)> = list.into_iter().map(|s| (0, s)).collect();
        if u.ratio(1, 3)? {
            for s in &mut staged {
                s.0 = u.int_in_range(0..=2)?;
            }
            stage_up(&mut staged);
        }
        p.steps.push(vec![common(&p, a, 0).into_iter().map(|s| (0, s)).collect(), staged]);
    }
    Ok(p)
}

/// How often a step was done by each agent when one of them stops for ever in front of the `n`-th time of `held`.
fn reach(sequences: &[Vec<Step>], p: &Program, agent: usize, held: Step, n: usize) -> Vec<Vec<[usize; 4]>> {
    let count = |s: Step| match s {
        Step::Acquire(c) => Some((c, 0)),
        Step::Commit(c) => Some((c, 1)),
        Step::Wait(c) => Some((c, 2)),
        Step::Release(c) => Some((c, 3)),
        Step::Loop(_) | Step::If(..) => None,
    };
    let mut done = vec![vec![[0usize; 4]; p.agents]; p.channels.len()];
    let mut at = vec![0usize; p.agents];
    loop {
        let mut moved = false;
        for a in 0..p.agents {
            while let Some(&step) = sequences[a].get(at[a]) {
                let Some((c, kind)) = count(step) else {
                    at[a] += 1;
                    continue;
                };
                let ch = &p.channels[c];
                let least = ch.consumers.iter().map(|&k| done[c][k][3]).min().unwrap_or(0);
                let free = match kind {
                    0 => least + ch.depth as usize > done[c][a][0],
                    2 => done[c][ch.producer][1] > done[c][a][2],
                    _ => true,
                };
                if !free || (a, step) == (agent, held) && done[c][a][kind] == n {
                    break;
                }
                done[c][a][kind] += 1;
                at[a] += 1;
                moved = true;
            }
        }
        if !moved {
            return done;
        }
    }
}

/// Whether in all runs of so many iterations `first` has used a slot when `second` begins to in the same iteration, and
/// `second` when `first` does so `slots` iterations later.
fn in_turns(p: &Program, trips: u32, first: usize, second: usize, slots: usize) -> bool {
    let run = Run { trips: vec![trips; 2], arms: vec![0; 2] };
    let sequences: Vec<Vec<Step>> = (0..p.agents)
        .map(|a| {
            let mut s = Vec::new();
            expand(p, &run, a, 0, 0, &mut s);
            s
        })
        .collect();
    let uses = |c: usize| {
        let ch = &p.channels[c];
        let reads = ch.consumers.iter().map(move |&a| (a, 2, Step::Release(c)));
        std::iter::once((ch.producer, 0, Step::Commit(c))).chain(reads)
    };
    [(first, second, 0), (second, first, slots)].into_iter().all(|(c, other, later)| {
        uses(c).all(|(agent, opens, closes)| {
            (0..trips as usize).all(|i| {
                let done = reach(&sequences, p, agent, closes, i);
                // What begins in that iteration was not reached; two reads may be together.
                uses(other).all(|(b, kind, _)| opens == 2 && kind == 2 || done[other][b][kind] <= i + later)
            })
        })
    })
}

/// What the graphs complain of.
///
/// # Panics
/// If the program is no kernel, or there is another complaint than about accesses without an order.
pub fn complaints(p: &Program) -> Vec<CodegenError> {
    let text = render::text(p);
    let module = match parse_module(&text) {
        Ok(m) => m,
        Err(e) => panic!("{e}\n{text}"),
    };
    let f = &module.functions[0];
    let malformed = verify_function(f);
    assert!(malformed.is_empty(), "{malformed:?}\n{text}");
    let errors = disorder(f);
    assert!(errors.iter().all(|e| e.code == Code::E0706), "{errors:?}\n{text}");
    errors
}

/// Compares the graphs' verdict with runs; `None`: the program gets stuck. `Live`: the two may share.
///
/// # Panics
/// If they differ.
pub fn check(p: &Program) -> Option<Verdict> {
    let (x, y) = (&p.channels[X], &p.channels[Y]);
    // One slot behind a ring of one slot is no memory of it.
    let apart = y.at == Some((TILE, 64)) && x.depth == 1;
    let slots = if (x.at, x.depth) == (y.at, y.depth) { x.depth } else { 1 };
    let trips = [1, 2, slots + 1, 2 * slots + 3];
    let run = |n: u32| Run { trips: vec![n; 2], arms: vec![0; 2] };
    if trips.iter().chain(&[16]).any(|&n| !simulate(p, &run(n), 1)) {
        return None;
    }
    let turns = |(a, b)| trips.iter().all(|&n| in_turns(p, n, a, b, slots as usize));
    let runs = apart || [(X, Y), (Y, X)].into_iter().any(turns);
    let errors = complaints(p);
    assert_eq!(errors.is_empty(), runs, "the graphs and the runs differ: {errors:?}\n{p:#?}");
    Some(if runs { Verdict::Live } else { Verdict::Deadlock })
}

/// A loop in which rings of two slots take turns, X's slot being free again two iterations after Y's use of it and no earlier. With
/// `ahead` X is read an iteration after it is written, so that its slot in an iteration is not Y's; with `inside` Y is used in
/// a loop inside, so that it goes through all slots in one iteration. Then the two must not share.
pub fn by_two(ahead: bool, inside: bool) -> Program {
    use Step::{Acquire, Commit, Loop, Release, Wait};
    let (w, z, v) = (2, 3, 4);
    let ring = |home, producer, consumer, depth, at: Option<(u32, u32)>| Channel {
        home,
        producer,
        consumers: vec![consumer],
        depth,
        distance: 0,
        freed: true,
        at,
    };
    let slots = Some((0, 64));
    let home = if inside { 2 } else { 1 };
    // W lets agent 2 begin behind X, Z tells that it has read Y, and behind that V frees its one slot.
    let tokens = [(1, 2), (2, 1), (0, 1)].map(|(from, to)| ring(1, from, to, 1, None));
    let mut channels = vec![ring(1, 0, 1, 2, slots), ring(home, 1, 2, 2, slots)];
    channels.extend(tokens);
    channels[X].distance = u32::from(ahead);
    let in_y = |steps: &[Step]| if inside { vec![Loop(2)] } else { steps.to_vec() };
    let (fill, drain) = ([Acquire(Y), Commit(Y)], [Wait(Y), Release(Y)]);
    let behind_x = vec![Wait(X), Release(X), Wait(v), Acquire(w), Commit(w)];
    let bodies = [
        (vec![Acquire(X), Commit(X), Acquire(v), Commit(v)], vec![]),
        ([behind_x, in_y(&fill), vec![Wait(z), Release(z), Release(v)]].concat(), fill.to_vec()),
        ([vec![Wait(w), Release(w)], in_y(&drain), vec![Acquire(z), Commit(z)]].concat(), drain.to_vec()),
    ];
    let stage = |list: Vec<Step>| list.into_iter().map(|s| (0, s)).collect::<Vec<_>>();
    let steps = bodies.map(|(body, inner)| vec![vec![(0, Loop(1))], stage(body), stage(inner)]).to_vec();
    Program { agents: 3, blocks: vec![(0, Role::Body), (0, Role::Loop), (1, Role::Loop)], channels, steps }
}
