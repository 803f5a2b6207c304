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

use super::handoff::{OpEdge, ScheduledRegion};
use super::problem::{Node, Problem};
use super::{Generator, RegionSchedule};
use crate::ir::Op;
use std::fmt;

/// Kinds of constraints, the most urgent first.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// A ring got fewer slots than the schedule needs.
    Reject,
    /// An agent needs more registers than its threads have.
    RegisterPressure,
    /// A ring takes shared memory that another one lacks.
    SmemPressure,
    /// Ops whose results are handed over together share a depth.
    SameDepth,
    /// Ops that write parts of one tile are one unit.
    Structural,
    /// Ops do not drift beyond a depth.
    MaxDepth,
    /// Nothing of the loop overlaps.
    ForceSerial,
}

impl Family {
    /// All of them.
    pub const ALL: [Family; 7] = [
        Family::Reject,
        Family::RegisterPressure,
        Family::SmemPressure,
        Family::SameDepth,
        Family::Structural,
        Family::MaxDepth,
        Family::ForceSerial,
    ];

    /// Its name, as printed and in documents.
    pub fn name(self) -> &'static str {
        match self {
            Family::Reject => "Reject",
            Family::RegisterPressure => "RegisterPressure",
            Family::SmemPressure => "SmemPressure",
            Family::SameDepth => "SameDepthConstraint",
            Family::Structural => "StructuralConstraint",
            Family::MaxDepth => "MaxDepthConstraint",
            Family::ForceSerial => "ForceSerialExecutionConstraint",
        }
    }
}

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

/// A constraint that somebody asks for, with the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Constraint {
    /// Kind.
    pub family: Family,
    /// Who asks: `buffers`, `registers` or `schedule`.
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
    /// Whether independent reads of shared memory become one reservation (the option `fuse-reads`).
    pub fuse_reads: bool,
}

impl Extra {
    /// Dependences alone.
    pub fn of_edges(edges: &[OpEdge]) -> Extra {
        Extra { edges: edges.to_vec(), ..Extra::default() }
    }

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

/// The two bits of a round.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct RoundStatus(u8);

impl RoundStatus {
    /// Neither: another round follows.
    pub const OPEN: RoundStatus = RoundStatus(0);
    /// Bit 0: nobody asks for more.
    pub const CONVERGED: RoundStatus = RoundStatus(1);
    /// Bit 1: the rounds ran out, and somebody still asks.
    pub const BUDGET_EXCEEDED: RoundStatus = RoundStatus(2);

    /// The bits.
    pub fn bits(self) -> u8 {
        self.0
    }

    /// Bit 0.
    pub fn converged(self) -> bool {
        self.0 & 1 != 0
    }

    /// Bit 1.
    pub fn budget_exceeded(self) -> bool {
        self.0 & 2 != 0
    }
}

/// A constraint as a round shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Number among the constraints of the kernel, from 0.
    pub number: u32,
    /// Kind.
    pub family: Family,
    /// Who asked.
    pub asker: &'static str,
    /// What it demands, in words.
    pub rule: String,
    /// Why.
    pub why: String,
}

/// One more schedule of a loop, under constraints that were added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Round {
    /// From 1.
    pub number: u32,
    /// Constraints that were added in this round.
    pub added: Vec<Request>,
    /// Constraints on trial, earlier ones included.
    pub trial: Vec<u32>,
    /// Cycles that an iteration takes now, and would take with the constraints on trial; `None`: there is no schedule.
    pub cycles: (u32, Option<u32>),
    /// Whether the constraints on trial stay.
    pub kept: bool,
    /// Constraints that were lifted, each with the reason.
    pub lifted: Vec<(u32, String)>,
    /// The two bits.
    pub status: RoundStatus,
}

impl fmt::Display for Round {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "round {} (status {}): an iteration takes {} cycles, ",
            self.number,
            self.status.bits(),
            self.cycles.0
        )?;
        match self.cycles.1 {
            Some(n) => write!(f, "{n} on trial")?,
            None => f.write_str("none on trial")?,
        }
        f.write_str(if self.kept { ", kept" } else { "" })?;
        for r in &self.added {
            write!(f, "\n  + {} {} ({}): {}; {}", r.number, r.family.name(), r.asker, r.rule, r.why)?;
        }
        for (number, why) in &self.lifted {
            write!(f, "\n  - {number} lifted: {why}")?;
        }
        Ok(())
    }
}

/// Registers per thread that an agent holds at the fullest op of its loop.
pub fn register_peak(p: &Problem, s: &RegionSchedule, agent: u32) -> u32 {
    let lives: Vec<Life> = lives(p, s, agent).collect();
    let ii = i64::from(s.ii.max(1));
    let all: u64 = lives.iter().map(|l| u64::from(l.registers) * ((l.end - l.start) / ii + 1) as u64).sum();
    if lives.is_empty() || all == 0 {
        return 0;
    }
    let at = |t: i64| -> u64 {
        // Begun by then, less those that are over.
        let count = |l: &Life| ((t - l.start).div_euclid(ii) - (t - l.end).div_euclid(ii)).max(0) as u64;
        lives.iter().map(|l| u64::from(l.registers) * count(l)).sum()
    };
    let ops = p.nodes().filter(|&u| p.extra(u).simt_agent == Some(agent));
    let peak = ops.map(|u| at(i64::from(s.start[u]))).max().unwrap_or(0);
    u32::try_from(peak).unwrap_or(u32::MAX)
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
    for agent in register_agents(p) {
        let (peak, most) = (register_peak(p, s, agent), budget(agent));
        if peak <= most {
            continue;
        }
        let ii = i64::from(s.ii.max(1));
        let mut long: Vec<Life> = lives(p, s, agent).filter(|l| l.end - l.start >= ii).collect();
        long.sort_by_key(|l| (std::cmp::Reverse(l.registers), l.node));
        for l in long {
            // One instance less than now is alive: the last reader comes before the next but `turns` one is made.
            let turns = (l.end - l.start) / ii;
            let Some(distance) = u32::try_from(turns).ok().and_then(|t| t.checked_sub(l.reader.1)) else {
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
                    turns + 1,
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
