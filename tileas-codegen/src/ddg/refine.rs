//! Constraints that refinement adds to a loop and takes back: families, rationale, rounds, status.
//!
//! In: a schedule and what its consumers ask of the next one. Out: [`Constraint`]s, each with its reason and with who
//! asked for it; an [`Extra`] is what the graph builder makes of those in force. The loop of rounds is the driver's; here
//! are the words for it ([`Round`], [`RoundStatus`]) and the requests that follow from the schedule alone: register
//! pressure, depth beyond the trip count, loops in which nothing can overlap.
//!
//! Constraints written by the user are none of these: they are part of the problem, hard, and never lifted. Every
//! constraint here is soft: a round that reaches no better kernel with it lifts it, and says why.
//! Cost: linear, but for pressure (register ops squared, where a bound does not settle it). Source: spec page 1
//! ("GenerateSchedule").

use super::{OpEdge, ScheduledRegion};
use crate::ir::Op;
pub use crate::schedule::rounds::{Family, Request, Round, RoundStatus};
use crate::schedule::{EdgeData, Generator, Node, Problem, RegionSchedule};
use cranelift_entity::SecondaryMap;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Who asks that products run beside what their agent computes. The interval does not speak against it: in published weights an agent's ops
/// overlap anyway, and in clocks a product holds its agent although that goes on.
const PRODUCTS: &str = "products";
/// Iterations that an agent is in at once if it issues products onto its registers: with one, two products are under way; with more, the
/// assembler moves accumulators from step to step while products write them, and spills.
const TWO: u32 = 2;
/// Iterations that an agent is in at once if it computes in registers. Each has registers and code of its own: a short loop with loads from
/// global memory would be in 10 (700 clocks of latency), with five times the code, which spilled (products scaled by block).
pub(super) const MOST_AT_ONCE: u32 = 4;
/// Who asks that an agent that computes in registers is in few iterations at once. Longer intervals are the price.
const ITERATIONS: &str = "iterations";

/// Whether what is asked for is kept although the interval grows.
pub fn is_sure(asker: &str) -> bool {
    [PRODUCTS, ITERATIONS].contains(&asker)
}

/// Registers from which a tile counts in the order of ops.
const WIDE: u32 = 8;
/// Sets of ops that the search for an order looks at.
const MOST_SETS: usize = 4096;

/// What a constraint demands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rule {
    /// These dependences hold.
    Edges(Vec<OpEdge>),
    /// These ops share a stage.
    OneDepth(Vec<Op>),
    /// These ops have at most this stage.
    AtMost(Vec<Op>, u32),
    /// The loop is scheduled by the serial generator.
    Serial,
}

/// A constraint that is asked for, with the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Constraint {
    /// Kind.
    pub family: Family,
    /// Who asks: `buffers`, `products`, `registers` or `schedule`.
    pub asker: &'static str,
    /// The loop.
    pub for_op: Op,
    /// What is demanded.
    pub rule: Rule,
    /// Why.
    pub why: String,
}

/// What the graph builder adds to the problems of a function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Extra {
    /// Dependences between ops of one loop body, or inside such ops.
    pub edges: Vec<OpEdge>,
    /// Ops of one body that share a stage. A set with an op of a user's group joins that group.
    pub groups: Vec<Vec<Op>>,
    /// Largest stages; a smaller one of the user's holds.
    pub depths: Vec<(Op, u32)>,
    /// Loops that take the serial generator.
    pub serial: Vec<Op>,
    /// Whether independent reads of shared memory become one reservation (the option `tune.fuse-reads`).
    pub fuse_reads: bool,
    /// Whether CTAs of a cluster load tiles together (the option `cluster`).
    pub clustered: bool,
}

impl Extra {
    /// Adds what a constraint demands.
    pub fn add(&mut self, constraint: &Constraint) {
        match &constraint.rule {
            Rule::Edges(edges) => self.edges.extend_from_slice(edges),
            Rule::OneDepth(ops) => self.groups.push(ops.clone()),
            // 0 is unlimited in a problem: stage 0 is the smallest limit there is no word for, so 1 stands for it.
            Rule::AtMost(ops, depth) => self.depths.extend(ops.iter().map(|&op| (op, (*depth).max(1)))),
            Rule::Serial => self.serial.push(constraint.for_op),
        }
    }
}

/// Registers per thread that an agent holds behind the fullest op of its loop. Ops run one after the other, by cycle of the
/// interval, where that is the same the earlier stage first, then program order (R1).
pub fn register_peak(p: &Problem, s: &RegionSchedule, agent: u32) -> u32 {
    most_of(&register_levels(p, s, agent))
}

/// The most of what is held behind ops.
pub fn most_of(levels: &[u64]) -> u32 {
    levels.iter().max().map_or(0, |&n| u32::try_from(n).unwrap_or(u32::MAX))
}

/// Registers that have to be stored in an iteration if there are `most`: by how much what is held behind ops rises above that, each time anew.
pub fn stored_above(levels: &[u64], most: u32) -> u64 {
    let over = |n: &u64| n.saturating_sub(most.into());
    let before = levels.iter().cycle().skip(levels.len().saturating_sub(1)).map(over);
    levels.iter().map(over).zip(before).map(|(now, before)| now.saturating_sub(before)).sum()
}

/// Registers held behind each of the ops of an agent, in the order in which they run.
pub fn register_levels(p: &Problem, s: &RegionSchedule, agent: u32) -> Vec<u64> {
    let (ii, mut ops) = (s.ii.max(1), register_ops(p, agent));
    let first = ops.iter().map(|&u| s.start[u]).min().unwrap_or(0);
    let local = |u: Node| s.start[u] - first;
    ops.sort_by_key(|&u| (local(u) % ii, local(u), u));
    levels_in_order(p, &ops, |u| local(u) / ii)
}

/// Ops that an agent computes in registers.
fn register_ops(p: &Problem, agent: u32) -> Vec<Node> {
    p.nodes().filter(|&u| p.extra(u).simt_agent == Some(agent)).collect()
}

/// Whether the result of an op has no registers but those of what it reads.
fn renames(p: &Problem, u: Node) -> bool {
    p.extra(u).held == 0 && p.extra(u).registers > 0
}

/// Registers held behind the fullest of the ops of an agent; see [`levels_in_order`].
fn peak_in_order(p: &Problem, ops: &[Node], stage: impl Fn(Node) -> u32) -> u32 {
    most_of(&levels_in_order(p, ops, stage))
}

/// Registers held behind each of the ops of an agent, which run in the order given; `stage`: steps by which an op is
/// behind the first of its iteration.
fn levels_in_order(p: &Problem, ops: &[Node], stage: impl Fn(Node) -> u32) -> Vec<u64> {
    const ABSENT: i64 = i64::MIN;
    let n = ops.len() as i64;
    let mut at: SecondaryMap<Node, i64> = SecondaryMap::with_default(ABSENT);
    for (k, &u) in (0..).zip(ops) {
        at[u] = i64::from(stage(u)) * n + k;
    }
    let reads = || {
        let both = |e: &EdgeData| at[e.from] != ABSENT && at[e.to] != ABSENT;
        p.edges().iter().filter(move |&(k, e)| both(e) && p.carries_value(k)).map(|(_, e)| e)
    };
    let mut end = at.clone();
    // As often as a reader may only give another name to what it reads.
    for _ in ops {
        let mut changed = false;
        for e in reads() {
            let last = if renames(p, e.to) { end[e.to] } else { at[e.to] } + n * i64::from(e.distance);
            changed |= last > end[e.from];
            end[e.from] = end[e.from].max(last);
        }
        if !changed {
            break;
        }
    }
    // A product reads its operands until its own result may be read.
    for e in reads().filter(|e| p.extra(e.from).multiplied && p.extra(e.to).product) {
        let done = reads().filter(|f| f.from == e.to).map(|f| at[f.to] + n * i64::from(f.distance)).min();
        if let Some(done) = done {
            end[e.from] = end[e.from].max(done + n * i64::from(e.distance));
        }
    }
    // What is handed to a later step has registers of its own.
    let held = |u: Node| match renames(p, u) && end[u].div_euclid(n) == at[u].div_euclid(n) {
        true => 0,
        false => u64::from(p.extra(u).held.max(if renames(p, u) { p.extra(u).registers } else { 0 })),
    };
    let behind = |t: i64, u: Node| {
        let alive = (t - at[u]).div_euclid(n) - (t - end[u]).div_euclid(n);
        held(u) * alive.max(0) as u64
    };
    (0..n).map(|t| ops.iter().map(|&u| behind(t, u)).sum()).collect()
}

/// The ops of an agent that make or read tiles in registers, with what an order of them must keep and what it takes.
struct Tiles<'a> {
    p: &'a Problem,
    ops: Vec<Node>,
    /// By op: bits of those that come before it in an iteration.
    before: Vec<u128>,
    /// By op: bits of those that read its result, in the same iteration and in later ones.
    readers: Vec<(u128, u128)>,
    /// Tiles without registers of their own, with the ops that come after them.
    free: Vec<(Node, u128)>,
    /// The other ops of the agent that result in registers.
    small: Vec<Node>,
    /// Registers of all else that the agent computes.
    rest: u32,
}

/// There are too many orders to search.
struct TooMany;

/// An order of ops in which products run under what is computed beside them.
struct Overlapped {
    /// The ops of an iteration but those of `tail`.
    order: Vec<Node>,
    /// The last products, which run a step later.
    tail: Vec<Node>,
    /// The op before which they were issued.
    again: Node,
    /// Registers held.
    peak: u32,
}

impl Tiles<'_> {
    /// `None`: too many.
    fn of(p: &Problem, agent: u32) -> Option<Tiles<'_>> {
        let mine = |u: Node| p.extra(u).simt_agent == Some(agent);
        let reads = || p.edges().iter().filter(|&(k, e)| p.carries_value(k) && mine(e.from) && mine(e.to));
        // Where the registers of a value are.
        let mut home: SecondaryMap<Node, Node> = SecondaryMap::with_default(Node::from_u32(0));
        for u in p.nodes() {
            let of =
                reads().filter(|(_, e)| e.to == u && e.distance == 0 && renames(p, u)).map(|(_, e)| e.from);
            home[u] = of.max_by_key(|&v| p.extra(v).held).map_or(u, |v| home[v]);
        }
        let wide = |u: Node| p.extra(u).held >= WIDE;
        let touches = |u: Node| {
            mine(u) && !renames(p, u) && (wide(u) || reads().any(|(_, e)| e.to == u && wide(home[e.from])))
        };
        let ops: Vec<Node> = p.nodes().filter(|&u| touches(u)).collect();
        if ops.len() > u128::BITS as usize {
            return None;
        }
        let bit = |u: Node| ops.iter().position(|&v| v == u).map_or(0, |k| 1_u128 << k);
        // What comes after a node, directly or not.
        let mut behind: SecondaryMap<Node, u128> = SecondaryMap::new();
        loop {
            let mut changed = false;
            for e in p.edges().values().filter(|e| e.distance == 0) {
                let all = behind[e.from] | behind[e.to] | bit(e.to);
                changed |= all != behind[e.from];
                behind[e.from] = all;
            }
            if !changed {
                break;
            }
        }
        let before = |k: usize| {
            let bits = ops.iter().zip(0..).map(|(&u, n)| (behind[u] >> k & 1) << n);
            bits.fold(0, |all, b| all | b)
        };
        let readers = |u: Node, later: bool| {
            let of = reads().filter(|(_, e)| home[e.from] == u && (e.distance > 0) == later);
            of.map(|(_, e)| bit(e.to)).fold(0, |all, b| all | b)
        };
        let free = |u: Node| mine(u) && renames(p, u) && p.extra(u).registers >= WIDE;
        Some(Tiles {
            p,
            before: (0..ops.len()).map(before).collect(),
            readers: ops.iter().map(|&u| (readers(u, false), readers(u, true))).collect(),
            free: p.nodes().filter(|&u| free(u)).map(|u| (u, behind[u])).collect(),
            small: p
                .nodes()
                .filter(|&u| mine(u) && !free(u) && p.extra(u).registers > 0 && !ops.contains(&u))
                .collect(),
            rest: p.nodes().filter(|&u| mine(u) && !wide(u)).map(|u| p.extra(u).held).sum(),
            ops,
        })
    }

    /// Registers held when those ops of an iteration have run.
    fn held(&self, done: u128) -> u32 {
        let held = self.ops.iter().zip(&self.readers).enumerate().map(|(k, (&u, &(now, later)))| {
            let new = done >> k & 1 != 0 && (now & !done != 0 || later != 0);
            // That of the iteration before.
            let old = later & !done != 0;
            self.p.extra(u).held * (u32::from(new) + u32::from(old))
        });
        held.fold(self.rest, u32::saturating_add)
    }

    /// Program order, and what it holds.
    fn program(&self) -> (u32, Vec<Node>) {
        let sets = (0..self.ops.len()).scan(0, |done, k| {
            *done |= 1 << k;
            Some(self.held(*done))
        });
        (sets.fold(self.held(0), u32::max), self.ops.clone())
    }

    /// An order that holds at most `budget` registers, near to program order, or else as few as possible; and how many. Where there are too
    /// many to search, one that holds an eighth more will do, and so on up to program order.
    fn order(&self, budget: u32) -> Option<(u32, Vec<Node>)> {
        let program = self.program();
        let mut allowed = budget.max(self.held(0)).max(1);
        while allowed < program.0 {
            match self.search(allowed) {
                Ok(found) => return found,
                Err(TooMany) => allowed = allowed.saturating_add(allowed.div_ceil(8)),
            }
        }
        Some(program)
    }

    fn search(&self, budget: u32) -> Result<Option<(u32, Vec<Node>)>, TooMany> {
        let all = u128::MAX.checked_shr(u128::BITS - self.ops.len() as u32).unwrap_or(0);
        // Sets of ops that have run, with the op that ran last; of those that take least, the largest comes first.
        let mut from: FxHashMap<u128, usize> = FxHashMap::default();
        let mut next = BinaryHeap::from([Reverse((budget, self.ops.len(), 0, 0_u128))]);
        while let Some(Reverse((peak, left, last, done))) = next.pop() {
            if from.len() == MOST_SETS {
                return Err(TooMany);
            }
            // The first way to a set is the best one.
            if from.contains_key(&done) {
                continue;
            }
            if done != 0 {
                from.insert(done, last);
            }
            if done == all {
                let mut order = Vec::new();
                let mut at = all;
                while let Some(&k) = from.get(&at) {
                    order.push(self.ops[k]);
                    at &= !(1 << k);
                }
                order.reverse();
                return Ok(Some((peak, order)));
            }
            for k in (0..self.ops.len()).filter(|&k| done >> k & 1 == 0 && self.before[k] & !done == 0) {
                let now = done | 1 << k;
                if !from.contains_key(&now) {
                    next.push(Reverse((peak.max(self.held(now)), left - 1, k, now)));
                }
            }
        }
        Ok(None)
    }

    /// The order in which the products that end an iteration run behind those that begin the next one, and under what is computed with these: first
    /// the products of a step, then those of the iteration before, then the rest. `None`: there is no such order, or it holds more than
    /// `budget` registers.
    fn overlapped(&self, order: &[Node], budget: u32) -> Option<Overlapped> {
        let p = self.p;
        let is_product = |u: &Node| p.extra(*u).product;
        let first = order.iter().position(is_product)?;
        let head = first + order[first..].iter().take_while(|u| is_product(u)).count();
        let tail = order.len() - order.iter().rev().take_while(|u| is_product(u)).count();
        if head >= tail || tail == order.len() {
            return None;
        }
        let (head, rest, tail) = (&order[..head], &order[head..tail], &order[tail..]);
        let edges = |from: &[Node], to: &[Node]| {
            let between = |e: &EdgeData| from.contains(&e.from) && to.contains(&e.to);
            p.edges().iter().filter(|&(k, e)| p.carries_value(k) && between(e)).count()
        };
        // Who reads what the last products made must not come before them.
        if edges(tail, head) > 0 {
            return None;
        }
        // What they take from registers is made again when they are complete: behind the first who reads their result.
        let reads = |u: &Node| edges(tail, std::slice::from_ref(u)) > 0;
        let feeds = |u: &Node| edges(std::slice::from_ref(u), tail) > 0;
        let made = |u: &Node| feeds(u) && !reads(u) && edges(std::slice::from_ref(u), rest) == 0;
        let (last, before): (Vec<Node>, Vec<Node>) = rest.iter().copied().partition(made);
        let mut steps = head.to_vec();
        steps.extend(tail.iter().chain(&before).chain(&last));
        let peak = peak_in_order(p, &steps, |u| u32::from(tail.contains(&u))).saturating_add(self.rest);
        if peak > budget {
            return None;
        }
        let mut order = head.to_vec();
        order.extend(before.iter().chain(&last));
        let again = *order.get(head.len())?;
        Some(Overlapped { order, tail: tail.to_vec(), again, peak })
    }

    /// What ops must keep to run in such an order. Which of the products of a step comes first is left to the scheduler.
    fn overlapped_edges(&self, at: &Overlapped, name: impl Fn(Node) -> Op + Copy) -> Vec<OpEdge> {
        let mut all = at.order.clone();
        all.extend(&at.tail);
        let mut edges = self.chain(&all, name);
        let later = |from: &[Node], to: Node| {
            from.last().map(|&u| OpEdge { from: name(u), to: name(to), latency: 1, distance: 1 })
        };
        edges.extend(later(&at.tail, at.again));
        edges.extend(later(&at.order, all[0]));
        // So does what is computed where that op uses it.
        let bit = self.ops.iter().position(|&u| u == at.again).map_or(0, |k| 1_u128 << k);
        let head = at.order.iter().take_while(|&&u| u != at.again);
        let before =
            head.fold(0, |all, u| all | self.ops.iter().position(|o| o == u).map_or(0, |k| 1_u128 << k));
        for &(u, _) in self.free.iter().filter(|f| f.1 & bit != 0 && f.1 & before == 0) {
            edges.extend(later(&at.tail, u));
        }
        edges
    }

    /// What ops must keep to run in an order: each follows the one before, and the first of an iteration all of the one
    /// before that: an agent that is in two iterations at once carries from turn to turn what lies between. What takes no registers of its own
    /// is computed where it is used.
    fn edges(&self, order: &[Node], name: impl Fn(Node) -> Op + Copy) -> Vec<OpEdge> {
        let (Some(&first), Some(&last)) = (order.first(), order.last()) else { return Vec::new() };
        let mut edges = self.chain(order, name);
        for &u in self.small.iter().chain([&last]) {
            edges.push(OpEdge { from: name(u), to: name(first), latency: 1, distance: 1 });
        }
        edges
    }

    /// Each op follows the one before.
    fn chain(&self, order: &[Node], name: impl Fn(Node) -> Op) -> Vec<OpEdge> {
        // What starts in one cycle of one iteration runs in program order.
        let next = |from: Node, to: Node| OpEdge {
            from: name(from),
            to: name(to),
            latency: i32::from(to < from),
            distance: 0,
        };
        let mut edges: Vec<OpEdge> = order.windows(2).map(|two| next(two[0], two[1])).collect();
        for &(u, after) in &self.free {
            let used = order.iter().position(|v| {
                let k = self.ops.iter().position(|o| o == v);
                k.is_some_and(|k| after >> k & 1 != 0)
            });
            edges.extend(used.and_then(|k| Some(next(*order.get(k.checked_sub(1)?)?, u))));
        }
        edges
    }
}

/// The life of one result in registers.
struct Life {
    node: Node,
    /// Last reader in the agent, and iterations to it.
    reader: (Node, u32),
    registers: u32,
    start: i64,
    end: i64,
}

fn lives(p: &Problem, s: &RegionSchedule, agent: u32) -> impl Iterator<Item = Life> {
    let of_agent = move |u: Node| p.extra(u).simt_agent == Some(agent);
    p.nodes().filter(move |&u| of_agent(u) && p.extra(u).registers > 0).filter_map(move |node| {
        let reads = p.edges().iter().filter(|(k, e)| e.from == node && of_agent(e.to) && p.carries_value(*k));
        let end = |to: Node, d: u32| i64::from(s.start[to]) + i64::from(s.ii) * i64::from(d);
        let last = reads.map(|(_, e)| (e.to, e.distance)).max_by_key(|&(to, d)| end(to, d))?;
        let start = i64::from(s.start[node]);
        let end = end(last.0, last.1).max(start);
        Some(Life { node, reader: last, registers: p.extra(node).registers, start, end })
    })
}

/// Register agents of a loop.
pub fn register_agents(p: &Problem) -> Vec<u32> {
    let mut all: Vec<u32> = p.nodes().filter_map(|u| p.extra(u).simt_agent).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// What follows from a schedule alone. `budget`: registers per thread of an agent; `trips`: of the loop, where they are
/// known.
pub fn requests(
    region: &ScheduledRegion,
    budget: impl Fn(u32) -> u32,
    trips: Option<u64>,
    out: &mut Vec<Constraint>,
) {
    let (p, s) = (&region.problem, &region.schedule);
    if s.generator == Generator::Serial {
        return;
    }
    let named = |n: Node| p.id(n).to_owned();
    let mut deep: SmallVec<[Constraint; 2]> = SmallVec::new();
    for agent in register_agents(p) {
        let (peak, most) = (register_peak(p, s, agent), budget(agent));
        let products = products_of(p, agent);
        let multiplies = products > 1;
        let ahead = p.summary.map(|s| s.reads_ahead).filter(|&n| n > 0);
        out.extend(close_together(
            region,
            agent,
            if products > 0 { TWO } else { ahead.unwrap_or(MOST_AT_ONCE) },
        ));
        if peak <= most && !multiplies {
            continue;
        }
        let tiles = Tiles::of(p, agent);
        let order = tiles.as_ref().and_then(|tiles| tiles.order(most));
        let name = |u: Node| region.ops[u];
        let both = tiles.as_ref().zip(order.as_ref()).filter(|_| multiplies);
        if let Some(c) = both.and_then(|(tiles, (_, order))| overlap(region, agent, tiles, order, most)) {
            out.push(c);
            continue;
        }
        if peak <= most {
            continue;
        }
        let order = order.filter(|(least, order)| *least < peak && !order.is_empty());
        if let Some((tiles, (least, order))) = tiles.zip(order) {
            out.push(Constraint {
                family: Family::RegisterPressure,
                asker: "registers",
                for_op: region.for_op,
                rule: Rule::Edges(tiles.edges(&order, name)),
                why: format!(
                    "agent{agent} holds {peak} registers of {most}, and no more than {least} in this order"
                ),
            });
            deep.extend(shallower(region, agent, peak, most));
            continue;
        }
        let ii = i64::from(s.ii.max(1));
        let mut long: Vec<Life> = lives(p, s, agent).filter(|l| l.end - l.start >= ii).collect();
        long.sort_by_key(|l| (std::cmp::Reverse(l.registers), l.node));
        for l in long {
            // One instance less than now is alive: the last reader comes before the next but `whole` one is made.
            let whole = (l.end - l.start) / ii;
            let Some(distance) = u32::try_from(whole).ok().and_then(|t| t.checked_sub(l.reader.1)) else {
                continue;
            };
            if distance == 0 || l.reader.0 == l.node {
                continue;
            }
            let (from, to) = (region.ops[l.reader.0], region.ops[l.node]);
            out.push(Constraint {
                family: Family::RegisterPressure,
                asker: "registers",
                for_op: region.for_op,
                rule: Rule::Edges(vec![OpEdge { from, to, latency: 1, distance }]),
                why: format!(
                    "agent{agent} holds {peak} registers of {most}, {} of them for each of the {} results of {} that are alive together",
                    l.registers,
                    whole + 1,
                    named(l.node)
                ),
            });
        }
    }
    let stages = s.code_stages();
    match trips {
        Some(0 | 1) => out.push(Constraint {
            family: Family::ForceSerial,
            asker: "schedule",
            for_op: region.for_op,
            rule: Rule::Serial,
            why: format!("the loop runs {} times: no two iterations overlap", trips.unwrap_or(0)),
        }),
        Some(n) if u64::from(stages) > n => {
            let limit = (n - 1) as u32;
            let deep = p.nodes().filter(|&u| s.stage[u] > limit.max(1));
            let ops: Vec<Op> = deep.map(|u| region.ops[u]).collect();
            if !ops.is_empty() {
                out.push(Constraint {
                    family: Family::MaxDepth,
                    asker: "schedule",
                    for_op: region.for_op,
                    rule: Rule::AtMost(ops, limit),
                    why: format!("the loop runs {n} times: of {stages} stages it never has more at once"),
                });
            }
        }
        _ => {}
    }
    // The last of its family is the first to be lifted.
    out.extend(deep);
}

/// Products that an agent issues onto its registers.
fn products_of(p: &Problem, agent: u32) -> usize {
    p.nodes().filter(|&u| p.extra(u).product && p.extra(u).simt_agent == Some(agent)).count()
}

/// What agents that issue several products ask for, whatever the schedule; see [`requests`].
pub(super) fn overlaps(region: &ScheduledRegion, budget: impl Fn(u32) -> u32, out: &mut Vec<Constraint>) {
    let p = &region.problem;
    for agent in register_agents(p).into_iter().filter(|&agent| products_of(p, agent) > 1) {
        let most = budget(agent);
        let Some(tiles) = Tiles::of(p, agent) else { continue };
        let order = tiles.order(most);
        out.extend(order.and_then(|(_, order)| overlap(region, agent, &tiles, &order, most)));
    }
}

/// What an agent asks for that can issue the last products of an iteration beside what follows the first ones of the next.
fn overlap(
    region: &ScheduledRegion,
    agent: u32,
    tiles: &Tiles<'_>,
    order: &[Node],
    most: u32,
) -> Option<Constraint> {
    let at = tiles.overlapped(order, most)?;
    Some(Constraint {
        family: Family::RegisterPressure,
        asker: PRODUCTS,
        for_op: region.for_op,
        rule: Rule::Edges(tiles.overlapped_edges(&at, |u| region.ops[u])),
        why: format!(
            "agent{agent} runs one op after the other, beside the products that it issued: the last ones of an iteration beside what follows the first ones of the next; it holds {} registers of {most}",
            at.peak
        ),
    })
}

/// What an agent that computes in registers asks if its ops are `most` intervals apart or more, and so in more iterations at once.
fn close_together(region: &ScheduledRegion, agent: u32, most: u32) -> Option<Constraint> {
    let (p, s) = (&region.problem, &region.schedule);
    // A loop that reads ahead is one agent's, with its branches, which compute with what is read.
    let ops = match p.summary {
        Some(s) if s.reads_ahead > 0 => p.nodes().collect(),
        _ => register_ops(p, agent),
    };
    let far =
        |&from: &Node, &to: &Node| s.start[from] >= s.start[to].saturating_add(s.ii.saturating_mul(most));
    let pairs =
        ops.iter().flat_map(|from| ops.iter().filter(move |to| far(from, to)).map(move |to| (*from, *to)));
    let edge = |(from, to): (Node, Node)| OpEdge {
        from: region.ops[from],
        to: region.ops[to],
        latency: 1,
        distance: most,
    };
    let edges: Vec<OpEdge> = pairs.map(edge).collect();
    (!edges.is_empty()).then(|| Constraint {
        family: Family::RegisterPressure,
        asker: ITERATIONS,
        for_op: region.for_op,
        rule: Rule::Edges(edges),
        why: format!("agent{agent} computes in registers: it is in {most} iterations at once, not in more"),
    })
}

/// What an agent that holds too many registers asks if its ops are in three iterations at once or more: to be in one less. Tried behind the order
/// that needs the fewest, which may take longer than what is spilled (f32 products of three parts, Aᵀ·A of 128x128x32: 2181 cycles in order, 1280 and
/// 116 registers too many in four iterations, 1280 and none in three).
fn shallower(region: &ScheduledRegion, agent: u32, peak: u32, most: u32) -> Option<Constraint> {
    let (p, s) = (&region.problem, &region.schedule);
    let ops = register_ops(p, agent);
    let stages = || ops.iter().map(|&u| s.stage[u]);
    let (first, last) = stages().min().zip(stages().max()).filter(|(first, last)| last - first >= 2)?;
    let deep = ops.iter().filter(|&&u| s.stage[u] == last).map(|&u| region.ops[u]);
    Some(Constraint {
        family: Family::MaxDepth,
        asker: "registers",
        for_op: region.for_op,
        rule: Rule::AtMost(deep.collect(), last - 1),
        why: format!("agent{agent} holds {peak} registers of {most} in {} iterations", last - first + 1),
    })
}

/// A rule in words, with names for ops.
pub fn rule_text(rule: &Rule, name: impl Fn(Op) -> String) -> String {
    let list = |ops: &[Op]| ops.iter().map(|&op| name(op)).collect::<Vec<_>>().join(", ");
    match rule {
        Rule::Edges(edges) => {
            let edge = |e: &OpEdge| {
                format!("{} -> {} (latency {}, distance {})", name(e.from), name(e.to), e.latency, e.distance)
            };
            edges.iter().map(edge).collect::<Vec<_>>().join(", ")
        }
        Rule::OneDepth(ops) => format!("{} share a stage", list(ops)),
        Rule::AtMost(ops, depth) => format!("{} at stage {depth} at most", list(ops)),
        Rule::Serial => "serial".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::problem::{NodeDef, NodeExtra};

    /// What rises above the most is stored, also from the last op to the first; what stays above is not stored again.
    #[test]
    fn what_rises_above_the_registers_is_stored() {
        assert_eq!(stored_above(&[], 6), 0);
        assert_eq!(stored_above(&[5, 9, 5, 9], 6), 6);
        assert_eq!(stored_above(&[9, 7, 8, 5], 6), 3 + 1);
        assert_eq!(stored_above(&[6, 6], 6), 0);
        assert_eq!(most_of(&[5, 9, 5]), 9);
    }

    /// All orders that the sets of ops before each allow, with the most that each holds.
    fn least(tiles: &Tiles<'_>, done: u128) -> u32 {
        let n = tiles.ops.len();
        let next = (0..n).filter(|&k| done >> k & 1 == 0 && tiles.before[k] & !done == 0);
        let rest = next.map(|k| least(tiles, done | 1 << k)).min().unwrap_or(0);
        rest.max(tiles.held(done))
    }

    #[test]
    fn orders_are_legal_and_hold_as_little_as_any() {
        let mut seed = 3_u64;
        let mut below = |n: u32| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            ((seed >> 33) % u64::from(n)) as u32
        };
        let mut gained = 0;
        for _ in 0..300 {
            let mut p = Problem::new("random");
            let n = 2 + below(6);
            for k in 0..n {
                let held = WIDE + below(100);
                let extra = NodeExtra { simt_agent: Some(0), registers: held, held, ..NodeExtra::default() };
                p.add_node(&NodeDef { id: &format!("n{k}"), extra, ..NodeDef::default() });
            }
            for _ in 0..2 * n {
                let (a, b) = (Node::from_u32(below(n)), Node::from_u32(below(n)));
                p.add_edge(a, b, 1, if a < b { below(2) } else { 1 });
            }
            let tiles = Tiles::of(&p, 0).expect("few ops");
            let (peak, order) = tiles.order(0).expect("few sets");
            let place = |u: Node| order.iter().position(|&v| v == u);
            assert_eq!(order.len(), n as usize);
            assert!(p.edges().values().all(|e| e.distance > 0 || place(e.from) < place(e.to)), "{p:?}");
            assert_eq!(peak, least(&tiles, 0), "{p:?}");
            assert_eq!(peak, peak_in_order(&p, &order, |_| 0), "{p:?} {order:?}");
            let program: Vec<Node> = p.nodes().collect();
            gained += u32::from(peak < peak_in_order(&p, &program, |_| 0));
            // Where program order fits it is kept.
            assert_eq!(tiles.order(u32::MAX).expect("few sets").1, program);
        }
        assert!(gained > 50, "{gained}");
    }
}
