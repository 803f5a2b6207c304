//! Random multi-agent programs, a token simulator, and the comparison of the two with the graphs' verdict.
//!
//! A program is a skeleton of nested loops and branches that all agents share, channels with a home in it, and each
//! agent's own order of channel ops, often a wrong one. Covered: homes in the kernel body, loops, nested loops and
//! arms; homes that run once and never free a slot; several consumers; iteration distances; loops with local stages
//! (another order and another skew per agent); windows that enclose other steps, as those of bundles do. The simulator
//! executes the orders with bounded channels for given trip counts and branch patterns; it shares no code with the
//! verifier. Blocking is monotone, so whether a run ends does not depend on the interleaving; one is drawn from a seed
//! nevertheless. A verdict is about *every* trip count: it must be a deadlock iff some run gets stuck.

mod render;
pub mod sharing;

use arbitrary::{Result, Unstructured};
use render::text;
use tileas_codegen::Code;
use tileas_codegen::ir::{parse_module, verify_function};
use tileas_codegen::testing::materialize::{UNDECIDED, deadlocks};

/// One step of an agent.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Wait for a free slot of a channel.
    Acquire(usize),
    /// Signal that it is full.
    Commit(usize),
    /// Wait for a full slot.
    Wait(usize),
    /// Free it.
    Release(usize),
    /// Run a loop body.
    Loop(usize),
    /// Run one of two arms.
    If(usize, usize),
}

/// A bounded channel.
#[derive(Clone, Debug)]
pub struct Channel {
    /// Block in which it advances once per execution.
    pub home: usize,
    /// Producing agent.
    pub producer: usize,
    /// Consuming agents.
    pub consumers: Vec<usize>,
    /// Slots.
    pub depth: u32,
    /// Iterations from a commit to the wait for it; the first ones of each execution of the loop do not wait.
    pub distance: u32,
    /// Whether slots are freed at all.
    pub freed: bool,
    /// Of slots that are written and read between its steps, if there are any: where they lie, and columns of a tile.
    pub at: Option<(u32, u32)>,
}

/// What a block is.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// Kernel body.
    Body,
    /// Loop body.
    Loop,
    /// Arm of a branch; the second names the first.
    Arm(Option<usize>),
}

/// Agents that talk through channels.
#[derive(Clone, Debug, Default)]
pub struct Program {
    /// Number of agents.
    pub agents: usize,
    /// Parent and role of each block; block 0 is the kernel body.
    pub blocks: Vec<(usize, Role)>,
    /// Channels.
    pub channels: Vec<Channel>,
    /// Steps of agent `a` in block `b` with their local stages: `steps[a][b]`.
    pub steps: Vec<Vec<Vec<(u32, Step)>>>,
}

/// What the graphs and the runs agreed on.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// No trip count gets stuck.
    Live,
    /// Some does.
    Deadlock,
}

impl Program {
    fn within(&self, mut block: usize, outer: usize) -> bool {
        while block != outer {
            if block == 0 {
                return false;
            }
            block = self.blocks[block].0;
        }
        true
    }

    /// Whether a block runs at most once.
    pub fn once(&self, mut block: usize) -> bool {
        while block != 0 {
            if self.blocks[block].1 == Role::Loop {
                return false;
            }
            block = self.blocks[block].0;
        }
        true
    }

    /// Whether an agent uses a channel.
    pub fn uses(&self, agent: usize, channel: usize) -> bool {
        let c = &self.channels[channel];
        c.producer == agent || c.consumers.contains(&agent)
    }

    /// Channels of an agent with a home inside a block.
    pub fn inside(&self, agent: usize, block: usize) -> Vec<usize> {
        (0..self.channels.len())
            .filter(|&c| self.uses(agent, c) && self.within(self.channels[c].home, block))
            .collect()
    }

    /// Steps between the first and the last local stage of an agent's loop.
    pub fn skew(&self, agent: usize, block: usize) -> u32 {
        self.steps[agent][block].iter().map(|s| s.0).max().unwrap_or(0)
    }

    fn innermost(&self, block: usize) -> bool {
        self.blocks[block].1 == Role::Loop
            && !(1..self.blocks.len())
                .any(|b| b != block && self.blocks[b].1 == Role::Loop && self.within(b, block))
    }
}

/// Draws a program.
///
/// # Errors
/// Out of data.
pub fn program(u: &mut Unstructured<'_>) -> Result<Program> {
    let mut p = Program { agents: u.int_in_range(1..=4usize)?, ..Program::default() };
    p.blocks.push((0, Role::Body));
    for _ in 0..u.int_in_range(0..=3usize)? {
        let parent = u.int_in_range(0..=p.blocks.len() - 1)?;
        if u.ratio(2, 3)? {
            p.blocks.push((parent, Role::Loop));
        } else {
            let first = p.blocks.len();
            p.blocks.push((parent, Role::Arm(None)));
            p.blocks.push((parent, Role::Arm(Some(first))));
        }
    }
    for _ in 0..u.int_in_range(1..=7usize)? {
        let home = u.int_in_range(0..=p.blocks.len() - 1)?;
        let producer = u.int_in_range(0..=p.agents - 1)?;
        let mut consumers = Vec::new();
        for a in 0..p.agents {
            if a != producer && u.ratio(1, 2)? {
                consumers.push(a);
            }
        }
        if consumers.is_empty() {
            consumers.push((producer + 1) % p.agents);
        }
        let depth = u.int_in_range(1..=3)?;
        let far = p.blocks[home].1 == Role::Loop && u.ratio(1, 3)?;
        let distance = if far { u.int_in_range(0..=depth)? } else { 0 };
        let freed = !p.once(home) || u.arbitrary()?;
        p.channels.push(Channel { home, producer, consumers, depth, distance, freed, at: None });
    }
    // A common order that every agent keeps to is live; some agents stray from it.
    let stray = if u.ratio(1, 3)? { 0 } else { u.int_in_range(1..=6u32)? };
    for a in 0..p.agents {
        let mut all = Vec::new();
        for b in 0..p.blocks.len() {
            let mut list = common(&p, a, b);
            if stray > 0 && list.len() > 1 {
                for _ in 0..stray {
                    let i = u.int_in_range(0..=list.len() - 2)?;
                    let j = u.int_in_range(i + 1..=list.len() - 1)?;
                    let moved = list.remove(j);
                    list.insert(i, moved);
                }
                pair_up(&mut list);
            }
            let mut staged: Vec<(u32, Step)> = list.into_iter().map(|s| (0, s)).collect();
            if p.innermost(b) && u.ratio(1, 3)? {
                for s in &mut staged {
                    s.0 = u.int_in_range(0..=2)?;
                }
                stage_up(&mut staged);
            }
            all.push(staged);
        }
        p.steps.push(all);
    }
    Ok(p)
}

/// The steps of an agent in a block in the order that all agents would agree on.
fn common(p: &Program, a: usize, b: usize) -> Vec<Step> {
    let mut list: Vec<Step> = Vec::new();
    for (c, ch) in p.channels.iter().enumerate().filter(|(_, ch)| ch.home == b) {
        if ch.producer == a {
            list.extend([Step::Acquire(c), Step::Commit(c)]);
        }
        if ch.consumers.contains(&a) {
            list.extend([Step::Wait(c), Step::Release(c)]);
        }
    }
    for n in (1..p.blocks.len()).filter(|&n| p.blocks[n].0 == b) {
        match p.blocks[n].1 {
            Role::Loop if !p.inside(a, n).is_empty() => {
                let at = list.len().min(n);
                list.insert(at, Step::Loop(n));
            }
            Role::Arm(Some(first)) if !p.inside(a, n).is_empty() || !p.inside(a, first).is_empty() => {
                list.push(Step::If(first, n));
            }
            _ => {}
        }
    }
    pair_up(&mut list);
    list
}

/// Whether the first step must come after the second.
fn follows(x: Step, y: Step) -> bool {
    match (x, y) {
        (Step::Commit(c), Step::Acquire(d)) | (Step::Release(c), Step::Wait(d)) => c == d,
        _ => false,
    }
}

/// Puts each acquire before its commit and each wait before its release.
fn pair_up(list: &mut [Step]) {
    for i in 0..list.len() {
        for j in i + 1..list.len() {
            if follows(list[i], list[j]) {
                list.swap(i, j);
            }
        }
    }
}

/// The same for local stages; the least is 0.
fn stage_up(list: &mut [(u32, Step)]) {
    for i in 0..list.len() {
        for j in i + 1..list.len() {
            if follows(list[j].1, list[i].1) {
                list[j].0 = list[j].0.max(list[i].0);
            }
        }
    }
    let least = list.iter().map(|s| s.0).min().unwrap_or(0);
    list.iter_mut().for_each(|s| s.0 -= least);
}

// ---- simulator

/// Trip counts and branch choices of one run.
#[derive(Clone, Debug)]
pub struct Run {
    /// Trips of each block that is a loop.
    pub trips: Vec<u32>,
    /// Each branch, by the block of its second arm, takes the first arm in iterations whose number has this bit set (by
    /// number modulo 8).
    pub arms: Vec<u8>,
}

fn expand(p: &Program, run: &Run, agent: usize, block: usize, iteration: u32, out: &mut Vec<Step>) {
    p.steps[agent][block].iter().for_each(|&(_, s)| one(p, run, agent, iteration, s, out));
}

fn one(p: &Program, run: &Run, agent: usize, iteration: u32, step: Step, out: &mut Vec<Step>) {
    match step {
        Step::Loop(b) => {
            let (n, skew) = (run.trips[b], p.skew(agent, b));
            for t in 0..n + skew {
                for &(local, s) in &p.steps[agent][b] {
                    if let Some(i) = t.checked_sub(local).filter(|&i| i < n) {
                        // The first iterations take what was there before the loop.
                        let early = match s {
                            Step::Wait(c) | Step::Release(c) => i < p.channels[c].distance,
                            _ => false,
                        };
                        if !early {
                            one(p, run, agent, i, s, out);
                        }
                    }
                }
            }
            for (c, ch) in p.channels.iter().enumerate() {
                if ch.home == b && ch.consumers.contains(&agent) {
                    for _ in 0..n.min(ch.distance) {
                        out.extend([Step::Wait(c), Step::Release(c)]);
                    }
                }
            }
        }
        Step::If(x, y) => {
            let arm = if run.arms[y] >> (iteration % 8) & 1 == 1 { x } else { y };
            expand(p, run, agent, arm, iteration, out);
        }
        s => out.push(s),
    }
}

/// Runs all agents to the end; false if they get stuck.
pub fn simulate(p: &Program, run: &Run, seed: u64) -> bool {
    let mut sequences: Vec<Vec<Step>> = Vec::new();
    for a in 0..p.agents {
        let mut s = Vec::new();
        expand(p, run, a, 0, 0, &mut s);
        sequences.push(s);
    }
    let channels = p.channels.len();
    let (mut acquired, mut committed) = (vec![0u64; channels], vec![0u64; channels]);
    let mut waited = vec![vec![0u64; p.agents]; channels];
    let mut released = vec![vec![0u64; p.agents]; channels];
    let mut at = vec![0usize; p.agents];
    let mut rng = seed | 1;
    loop {
        rng ^= rng << 13;
        rng ^= rng >> 7;
        rng ^= rng << 17;
        let first = (rng % p.agents as u64) as usize;
        let burst = 1 + (rng >> 32) % 7;
        let mut moved = false;
        for k in 0..p.agents {
            let a = (first + k) % p.agents;
            for _ in 0..burst {
                let Some(&step) = sequences[a].get(at[a]) else { break };
                let free = match step {
                    Step::Acquire(c) => {
                        let ch = &p.channels[c];
                        let least = ch.consumers.iter().map(|&k| released[c][k]).min().unwrap_or(0);
                        !ch.freed || least + u64::from(ch.depth) > acquired[c]
                    }
                    Step::Wait(c) => committed[c] > waited[c][a],
                    _ => true,
                };
                if !free {
                    break;
                }
                match step {
                    Step::Acquire(c) => acquired[c] += 1,
                    Step::Commit(c) => committed[c] += 1,
                    Step::Wait(c) => waited[c][a] += 1,
                    Step::Release(c) => released[c][a] += 1,
                    Step::Loop(_) | Step::If(..) => {}
                }
                at[a] += 1;
                moved = true;
            }
        }
        if !moved {
            return at.iter().zip(&sequences).all(|(&i, s)| i == s.len());
        }
    }
}

/// A run that gets stuck among those in which arms change from iteration to iteration: all of period 8 for one branch, as many as
/// that is worth for more.
fn varied(p: &Program, branches: &[usize]) -> Option<Run> {
    let runs = if branches.len() == 1 { 1 << 8 } else { 1 << 12 };
    (0..runs).find_map(|k: u64| {
        let bits = if branches.len() == 1 { k << 56 } else { k.wrapping_mul(0x9e37_79b9_7f4a_7c15) };
        let mut arms = vec![0; p.blocks.len()];
        for (&b, byte) in branches.iter().zip(bits.to_be_bytes().into_iter().cycle()) {
            arms[b] = byte;
        }
        let run = Run { trips: vec![16; p.blocks.len()], arms };
        (!simulate(p, &run, k)).then_some(run)
    })
}

/// Compares the graphs' verdict with many runs.
///
/// # Errors
/// Out of data.
///
/// # Panics
/// If they differ, or the kernel is refused for another reason than a deadlock.
pub fn check(p: &Program, u: &mut Unstructured<'_>) -> Result<Verdict> {
    let text = text(p);
    let module = match parse_module(&text) {
        Ok(m) => m,
        Err(e) => panic!("{e}\n{text}"),
    };
    let f = &module.functions[0];
    let malformed = verify_function(f);
    assert!(malformed.is_empty(), "{malformed:?}\n{text}");
    let errors = deadlocks(f);
    assert!(errors.iter().all(|e| e.code == Code::E0702), "{errors:?}\n{text}");
    let graph = if errors.is_empty() { Verdict::Live } else { Verdict::Deadlock };
    let mut stuck = None;
    let branches: Vec<usize> =
        (0..p.blocks.len()).filter(|&b| matches!(p.blocks[b].1, Role::Arm(Some(_)))).collect();
    for n in [0, 1, 2, 3, 5, 16] {
        for choice in 0..3usize.pow(branches.len() as u32) {
            let mut arms = vec![0; p.blocks.len()];
            let mut rest = choice;
            for &b in &branches {
                arms[b] = [0xff, 0, 0x55][rest % 3];
                rest /= 3;
            }
            let run = Run { trips: vec![n; p.blocks.len()], arms };
            if stuck.is_none() && !simulate(p, &run, u.arbitrary()?) {
                stuck = Some(run);
            }
        }
    }
    for _ in 0..3 {
        let (mut trips, mut arms) = (Vec::new(), Vec::new());
        for _ in 0..p.blocks.len() {
            trips.push(*u.choose(&[0, 1, 2, 3, 5, 16])?);
            arms.push(u.arbitrary()?);
        }
        let run = Run { trips, arms };
        if stuck.is_none() && !simulate(p, &run, u.arbitrary()?) {
            stuck = Some(run);
        }
    }
    if stuck.is_none() && !errors.is_empty() && !branches.is_empty() {
        stuck = varied(p, &branches);
    }
    let runs = if stuck.is_some() { Verdict::Deadlock } else { Verdict::Live };
    // Beyond the limits of the search over arms a refusal says nothing.
    if runs == Verdict::Live && !errors.is_empty() && errors.iter().all(|e| e.message.contains(UNDECIDED)) {
        return Ok(graph);
    }
    assert_eq!(graph, runs, "the graphs and the runs differ: {stuck:?}\n{errors:?}\n{text}");
    Ok(graph)
}
