//! Why a loop has the initiation interval it has: what binds it, what a smaller one would violate, what would change it.
//!
//! In: a problem, its schedule, the options it was made with. Out: a [`RegionExplanation`] of plain data; text and pages
//! are made of it elsewhere. Steps, a file each: witnesses of the bounds spelled out with their
//! numbers (`witness`), slack of each op at the interval found (`slack`), the obstacles of the next smaller interval
//! (`tighter`), and bounds of changed problems (`what_if`).
//!
//! Guarantee: every number is worked out from the problem, the schedule or the record of the search; nothing is searched
//! for but the what-ifs, which run on copies. The schedule is only read. Cost: a few evaluations of the bounds, and
//! ops × edges for the slacks of loops of up to 1024 ops.

mod slack;
mod tighter;
mod what_if;
mod witness;

pub use slack::OpSlack;
pub use tighter::{Obstacle, Tighter};
pub use what_if::WhatIf;
pub use witness::{Cycle, Link, LinkKind, Load};

use crate::bounds::{Bounds, BoundsScratch};
use crate::entities::Node;
use crate::entities::Place;
use crate::error::{Code, Diagnostic, Result};
use crate::graph::Graph;
use crate::options::{ScheduleOptions, SchedulerChoice};
use crate::problem::Problem;
use crate::trail::TryEnd;
use crate::{Generator, RegionSchedule};

/// What decides the interval.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum Verdict {
    /// Nothing to schedule.
    Empty,
    /// A lower bound: no schedule is faster. What binds is in [`RegionExplanation::binders`].
    Bound,
    /// No bound, but every smaller interval down to the bounds was refuted by exact search or empty windows.
    Refuted,
    /// Nothing proven: intervals from the first to the second number are open.
    Open(u32, u32),
    /// One op after the other; the reason.
    Serial(String),
}

/// One op: where it is, who put it there, how far it could move.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct OpWhy {
    /// Id.
    pub id: String,
    /// Operation.
    pub name: String,
    /// First cycle.
    pub start: u32,
    /// start / II.
    pub stage: u32,
    /// start modulo II.
    pub row: u32,
    /// Rank.
    pub order: u32,
    /// Cycles until its result is ready.
    pub latency: u32,
    /// How far it could move.
    pub slack: OpSlack,
    /// The arm that placed it, where the strategy has arms.
    pub arm: Option<String>,
    /// The start the strategy chose, where later passes moved the op; the earliest op of the strategy and the earliest
    /// op of the result count as one cycle.
    pub first_start: Option<i64>,
}

/// One candidate interval of the search.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Candidate {
    /// The interval.
    pub ii: u32,
    /// How the try ended, in words.
    pub end: String,
    /// Whether that is a proof that no schedule exists.
    pub proof: bool,
}

/// How the schedule was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct SearchWhy {
    /// Strategy that placed all ops.
    pub strategy: Option<String>,
    /// Attempts of iterative modulo scheduling.
    pub attempts: u32,
    /// Placements in them.
    pub placements: u64,
    /// Placements undone.
    pub evictions: u64,
    /// Candidates in the order they were tried.
    pub candidates: Vec<Candidate>,
    /// Candidates before these that are not remembered.
    pub forgotten: u32,
}

/// Everything about the interval of one loop.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct RegionExplanation {
    /// Name of the loop.
    pub name: String,
    /// Generator.
    pub generator: String,
    /// The interval.
    pub ii: u32,
    /// Stages that contain a start.
    pub stages: u32,
    /// Largest lower bound.
    pub bound: u32,
    /// What decides.
    pub verdict: Verdict,
    /// Names of what needs exactly the interval: slots, pools, cycles, chains.
    pub binders: Vec<String>,
    /// Slots and pools that are used, the fullest first.
    pub loads: Vec<Load>,
    /// Dependence cycles, the longest first: each is what remains when the carried edges of those before are gone.
    pub recurrences: Vec<Cycle>,
    /// A chain without slack: forced-serial ops, groups, or the critical path where `max-stages` is set.
    pub chain: Option<Cycle>,
    /// What the next smaller interval would violate.
    pub tighter: Tighter,
    /// Least cycles of one iteration at this interval, by dependences alone, and what it takes here.
    pub shortest: u64,
    /// Cycles from the first start to the last result.
    pub length: u64,
    /// Ops by order.
    pub ops: Vec<OpWhy>,
    /// How it was found.
    pub search: SearchWhy,
    /// What would change the interval.
    pub what_if: Vec<WhatIf>,
    /// Rounds of refinement, with the constraints on trial and what became of them; a line each.
    pub rounds: Vec<String>,
    /// Facts of the failure and warnings, a line each.
    pub notes: Vec<String>,
}

/// The bounds of a problem together with what they were computed from.
struct Facts<'a> {
    p: &'a Problem,
    graph: Graph,
    bounds: Bounds,
}

impl<'a> Facts<'a> {
    /// `None`: a dependence cycle of distance 0.
    fn of(p: &'a Problem, max_stages: Option<u32>) -> Option<Facts<'a>> {
        let mut graph = Graph::default();
        if !graph.build(p) {
            return None;
        }
        let mut bounds = Bounds::default();
        BoundsScratch::default().compute(p, &graph, max_stages, &mut bounds);
        Some(Facts { p, graph, bounds })
    }
}

fn ids(p: &Problem, nodes: &[Node]) -> Vec<String> {
    nodes.iter().map(|&n| p.id(n).to_owned()).collect()
}

/// Explains `schedule`, which was made of `problem` with `options`.
///
/// # Errors
/// The first structural error of the problem (`E0303`…`E0308`); `E0303` if the schedule is one of another problem.
pub fn explain_region(
    problem: &Problem,
    schedule: &RegionSchedule,
    options: &ScheduleOptions,
) -> Result<RegionExplanation> {
    let mut errors = Vec::new();
    problem.check_structure(&options.limits, &mut errors);
    if !errors.is_empty() {
        return Err(errors.swap_remove(0));
    }
    let n = problem.num_nodes();
    if schedule.ii == 0 || [schedule.start.len(), schedule.stage.len(), schedule.order.len()] != [n; 3] {
        let text = format!("`{}` and the schedule have different ops", problem.name());
        return Err(Diagnostic::new(Code::E0303, Place::Whole, text));
    }
    let Some(facts) = Facts::of(problem, options.max_stages) else {
        let unknown = || Diagnostic::new(Code::E0306, Place::Whole, "zero-distance dependence cycle");
        return Err(problem.zero_distance_cycle().unwrap_or_else(unknown));
    };
    let ii = schedule.ii;
    let mut loads = witness::loads(problem);
    loads.sort_by_key(|l| std::cmp::Reverse(l.needs));
    let recurrences = what_if::recurrences(problem, ii);
    let chain = witness::chain(&facts, options.max_stages);
    let binders = witness::binders(ii, &loads, &recurrences, chain.as_ref());
    let verdict = verdict(problem, schedule, options, &facts.bounds);
    let tighter = tighter::tighter(problem, schedule, &verdict, &loads, &recurrences, chain.as_ref());
    let slacks = slack::slacks(problem, &facts.graph, schedule);
    let trail = &schedule.trail;
    let first = |starts: Option<i64>| starts.unwrap_or(0);
    let origin =
        first(trail.starts.iter().copied().min()) - first(schedule.start.values().map(|&t| t.into()).min());
    let ops = schedule.by_order().into_iter().map(|n| {
        let at = n.as_u32() as usize;
        let start = schedule.start[n];
        OpWhy {
            id: problem.id(n).to_owned(),
            name: problem.op_name(n).to_owned(),
            start,
            stage: schedule.stage[n],
            row: start % ii,
            order: schedule.order[n],
            latency: problem.latency(n),
            slack: slacks.ops[at],
            arm: trail.arms.get(at).copied().flatten().map(|a| a.name().to_owned()),
            first_start: trail.starts.get(at).map(|&t| t - origin).filter(|&t| t != i64::from(start)),
        }
    });
    let ops: Vec<OpWhy> = ops.collect();
    let mut notes: Vec<String> =
        schedule.warnings.iter().map(|w| format!("{}: {}", w.code, w.message)).collect();
    if let Some(o) = &schedule.optimality {
        notes.push(format!("exact mode: {o} ({} steps)", o.steps));
    }
    if schedule.stats.curtailed {
        let n = schedule.stats.steps;
        notes.push(format!(
            "the search had fewer steps than it may take and used {n} (option `search.steps`)"
        ));
    }
    if let Some(failure) = &schedule.failure {
        notes.extend(failure.lines(problem));
    }
    let finish = |n: Node| u64::from(schedule.start[n]) + u64::from(problem.latency(n));
    Ok(RegionExplanation {
        name: schedule.name.clone(),
        generator: schedule.generator.to_string(),
        ii,
        stages: schedule.code_stages(),
        bound: facts.bounds.max(),
        what_if: what_if::what_ifs(
            problem,
            schedule,
            options,
            &verdict,
            &loads,
            &recurrences,
            chain.as_ref(),
        ),
        verdict,
        binders,
        loads,
        recurrences,
        chain,
        tighter,
        shortest: slacks.length,
        length: problem.nodes().map(finish).max().unwrap_or(0),
        ops,
        search: search(schedule),
        rounds: schedule
            .rounds
            .iter()
            .flat_map(|r| r.to_string().lines().map(str::to_owned).collect::<Vec<_>>())
            .collect(),
        notes,
    })
}

fn verdict(p: &Problem, s: &RegionSchedule, o: &ScheduleOptions, b: &Bounds) -> Verdict {
    if p.num_nodes() == 0 {
        return Verdict::Empty;
    }
    if s.generator == Generator::Serial {
        let summary = p.summary.unwrap_or_default();
        let reason = if let Some(cap) = o.ii_cap.filter(|&c| s.status.serial_fallback && c < b.max()) {
            format!("the option `search.ii-cap` allows {cap}, below the bound {}", b.max())
        } else if s.status.serial_fallback {
            format!(
                "no interval from {} to {} could be scheduled",
                b.max(),
                s.trail.tries.iter().map(|t| t.ii).max().unwrap_or(s.ii)
            )
        } else if o.scheduler == SchedulerChoice::Serial {
            "the option `scheduler` asks for it".to_owned()
        } else if summary.force_serial {
            "the loop carries `force_serial_execution`".to_owned()
        } else if summary.is_asynchronous() {
            format!("{} ops are fewer than `published.serial-threshold`", summary.op_count)
        } else {
            "nothing in the loop is asynchronous, or read ahead into few registers".to_owned()
        };
        return Verdict::Serial(reason);
    }
    if s.ii == b.max() {
        return Verdict::Bound;
    }
    let proven = s.trail.proven.max(b.max());
    if s.ii <= proven { Verdict::Refuted } else { Verdict::Open(proven, s.ii - 1) }
}

/// The end of a try in words.
fn end_text(end: TryEnd) -> String {
    match end {
        TryEnd::Placed(strategy) => format!("placed by {strategy}"),
        TryEnd::NoWindow => "dependences, depth limits and groups leave some op no start".to_owned(),
        TryEnd::DoesNotFit => "some op does not fit alone".to_owned(),
        TryEnd::Refuted => "refuted by exact search".to_owned(),
        TryEnd::GaveUp => {
            "no strategy placed all ops; exact search gave up (option `search.exact-steps`)".to_owned()
        }
        TryEnd::NotPlaced => "no strategy placed all ops; no exact search was made".to_owned(),
        TryEnd::OutOfSteps => "the steps of the region were used up (option `search.step-limit`)".to_owned(),
    }
}

fn search(s: &RegionSchedule) -> SearchWhy {
    let candidate =
        |t: &crate::trail::Try| Candidate { ii: t.ii, end: end_text(t.end), proof: t.end.is_proof() };
    SearchWhy {
        strategy: s.stats.strategy.map(|s| s.name().to_owned()),
        attempts: s.stats.attempts,
        placements: s.stats.placements,
        evictions: s.stats.evictions,
        candidates: s.trail.tries.iter().map(candidate).collect(),
        forgotten: s.trail.forgotten,
    }
}
