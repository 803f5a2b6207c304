//! Modulo scheduling of one loop body: when does each op start, and how often does an iteration begin.
//!
//! In: a [`Problem`] (built by calls, or read from JSON): ops with latencies, reservations of machine slots and pools,
//! dependences. Out: a [`RegionSchedule`]. Nothing here knows any IR. The recipe of [`Scheduler::schedule_into`]: check →
//! graph → serial schedule (always exists, gives the cap) → bounds → generator chosen by [`select()`] → stages and order.
//!
//! Generators and a judge: `serial`, the baseline; `modulo`, the default; `ladder`, the published cost-based
//! generator, complete and apart; `optimal`, a SAT solver behind a feature, which proves. [`verify`] is a checker that shares
//! no code with them.
//!
//! Guarantee: the result is legal in the sense of `tileas-schedule/1`, deterministic, never worse than the serial schedule, and of
//! II ≥ every bound. Cost: tens of microseconds for loops of some fifty ops; the second schedule of a problem on one
//! [`Scheduler`] allocates nothing. Source: spec pages 3 and 4.

#![deny(missing_docs)]
#![forbid(unsafe_code)]

// The random families are written against the public face; unit tests compile them as a part of this crate.
#[cfg(test)]
extern crate self as tileas_schedule;

pub mod bounds;
pub mod budget;
mod closure;
pub mod entities;
pub mod error;
pub mod explain;
#[cfg(test)]
#[allow(dead_code, reason = "each test uses a part")]
#[path = "../../tileas-testgen/src/families.rs"]
mod families;
mod graph;
mod ims;
#[cfg(feature = "serde")]
pub mod json;
mod ladder;
mod lines;
mod modulo;
#[cfg(feature = "optimal")]
mod optimal;
pub mod options;
mod placement;
pub mod problem;
mod random;
pub mod render;
pub mod rounds;
pub mod schedule;
pub mod select;
mod serial;
mod table;
pub mod trail;
pub mod verify;
mod windows;

pub use bounds::Bounds;
pub use budget::{Allowance, SearchSteps};
pub use entities::{Edge, Node, Place, Pool, Slot};
pub use error::{Code, Diagnostic, Result};
pub use modulo::lifetime;
pub use options::{
    ArmPolicy, CycleModel, Engine, Engines, G2Horizon, IiSearch, Limits, Rung, Rungs, ScheduleOptions,
    SchedulerChoice, SelectorKind,
};
pub use problem::{EdgeData, NodeDef, NodeExtra, PoolUse, Problem, RegionSummary, Resource, Use};
pub use schedule::{
    Exclusion, FailureReport, Generator, Optimality, RegionSchedule, Stats, Status, ring_slots,
};
pub use select::select;
pub use trail::Strategy;

use placement::{Loop, Placement};
use problem::{MAX_QUANTITY, NO_GROUP};
use windows::Stuck;

/// The scheduler with its memory. One per thread; options and problems are shared.
#[derive(Default)]
pub struct Scheduler {
    graph: graph::Graph,
    bounds: bounds::BoundsScratch,
    at: Placement,
    modulo: modulo::Modulo,
    ladder: ladder::Ladder,
    serial: Vec<i64>,
    ranks: Vec<(u32, u32, u32)>,
    before: Vec<i64>,
}

impl Scheduler {
    /// A scheduler without memory of anything.
    pub fn new() -> Scheduler {
        Scheduler::default()
    }

    /// Schedules `problem`; see [`Scheduler::schedule_into`].
    ///
    /// # Errors
    /// Those of [`Scheduler::schedule_into`].
    pub fn schedule(&mut self, problem: &Problem, options: &ScheduleOptions) -> Result<RegionSchedule> {
        let mut out = RegionSchedule::default();
        self.schedule_into(problem, options, &mut out)?;
        Ok(out)
    }

    /// Schedules `problem` into `out`, whose memory is reused.
    ///
    /// # Errors
    /// The first structural error of the problem (`E0303`…`E0308`), `E0402` if even the serial schedule does not fit
    /// 31 bits, `E0401` if pipelining fails and the options require it, `E0409` for exact mode without its feature,
    /// and `E0410` if the checker refuses what exact mode made.
    pub fn schedule_into(
        &mut self,
        problem: &Problem,
        options: &ScheduleOptions,
        out: &mut RegionSchedule,
    ) -> Result<()> {
        self.schedule_within(problem, options, Allowance::ALL, out)
    }

    /// As [`Scheduler::schedule_into`], with limits for its searches; [`Stats::steps`] says what was used.
    ///
    /// # Errors
    /// As [`Scheduler::schedule_into`].
    pub fn schedule_within(
        &mut self,
        problem: &Problem,
        options: &ScheduleOptions,
        allowance: Allowance,
        out: &mut RegionSchedule,
    ) -> Result<()> {
        out.clear();
        let Scheduler { graph, bounds, at, modulo, ladder, serial, ranks, before, .. } = self;
        at.budget.allow(allowance.steps, problem.num_nodes());
        at.floor = allowance.floor;
        options.scheduler.check()?;
        out.name.push_str(problem.name());
        let mut errors = Vec::new();
        problem.check_structure(&options.limits, &mut errors);
        if !errors.is_empty() {
            return Err(errors.swap_remove(0));
        }
        if !graph.build(problem) {
            let unknown = || Diagnostic::new(Code::E0306, Place::Whole, "zero-distance dependence cycle");
            return Err(problem.zero_distance_cycle().unwrap_or_else(unknown));
        }
        let Some(serial_ii) = serial::serial_schedule(problem, graph, serial) else {
            let text = format!("the serial schedule of `{}` does not fit 31 bits", problem.name());
            return Err(Diagnostic::new(Code::E0402, Place::Whole, text));
        };
        bounds.compute(problem, graph, options.max_stages, &mut out.bounds);
        record_exclusions(problem, out);
        out.status.converged = true;
        out.generator = select(problem.summary.as_ref(), options);
        if out.generator == Generator::Serial {
            warn_dropped(problem, out);
            publish_serial(graph, serial, serial_ii, ranks, out);
            return Ok(());
        }
        let l = Loop { p: problem, g: graph, o: options };
        let (bound, cap) = (out.bounds.max(), options.ii_cap.unwrap_or(serial_ii).min(serial_ii));
        at.begin(bound);
        at.stuck = options.latency_ceilings.and_then(|most| above_ceiling(problem, graph, most, before));
        let refused = at.stuck.is_some();
        let found = match out.generator {
            _ if refused => None,
            Generator::CostBased => ladder.search(at, l, cap),
            _ => modulo.search(at, l, cap),
        };
        out.stats.attempts = at.attempts;
        out.stats.placements = at.ims.placements;
        out.stats.evictions = at.ims.evictions;
        // What is proven to be shortest needs no more steps.
        let least = bound.max(at.proven);
        out.stats.curtailed =
            cap >= bound && at.budget.cut_short(options.exact_steps) && found != Some(least);
        out.status.budget_exceeded = at.out_of_steps && found != Some(least);
        if out.status.budget_exceeded {
            let text =
                format!("the search of `{}` spent its steps; a shorter interval may exist", problem.name());
            let note = "the option `search.step-limit` allows more";
            out.warnings.push(Diagnostic::new(Code::W0405, Place::Whole, text).note(note));
        }
        #[cfg(feature = "optimal")]
        let found = match options.scheduler {
            SchedulerChoice::Optimal if !refused => {
                let (better, report) = optimal::prove(at, l, found, cap, modulo);
                out.optimality = Some(report);
                better
            }
            _ => found,
        };
        at.trail.proven = at.proven;
        at.trail.copy_into(&mut out.trail);
        out.stats.strategy = at.strategy;
        if let Some(ii) = found {
            if out.generator == Generator::Modulo {
                before.clear();
                before.extend_from_slice(at.starts());
                modulo.shorten(at, l, ii);
                // Shorter lives must not cost what was proven.
                if out.optimality.is_some() && length(problem, at.starts(), ii) > length(problem, before, ii)
                {
                    at.keep(before);
                }
            }
            out.stats.steps = at.budget.used();
            let longest = problem.nodes().zip(at.starts());
            let finish = longest.map(|(n, &t)| t as u64 + u64::from(problem.latency(n))).max().unwrap_or(0);
            out.ii = ii;
            out.stage_count = (finish + 1).div_ceil(ii.into()).min(MAX_QUANTITY.into()) as u32;
            publish(graph, at.starts(), ranks, out);
            out.stats.ii_is_optimal = ii <= at.proven;
            return check_optimal(problem, out);
        }
        out.stats.steps = at.budget.used();
        let report = at.report(problem, cap.max(1));
        if options.require_pipelining {
            let place = report.node.map_or(Place::Whole, Place::Node);
            let mut error = Diagnostic::new(Code::E0401, place, "failed to find a schedule");
            error.notes = report.lines(problem);
            return Err(error);
        }
        let text = match (options.ii_cap, out.status.budget_exceeded) {
            (Some(cap), _) if cap < bound => {
                format!("`search.ii-cap` is {cap}, below the bound {bound}: using the serial schedule")
            }
            (_, true) => {
                format!(
                    "no II from {bound} on was found with `search.step-limit` steps, using the serial schedule"
                )
            }
            _ => format!("no II from {bound} to {cap} was found, using the serial schedule"),
        };
        out.warnings.push(Diagnostic::new(Code::W0403, Place::Whole, text));
        out.failure = Some(report);
        out.generator = Generator::Serial;
        out.status.serial_fallback = true;
        publish_serial(graph, serial, serial_ii, ranks, out);
        if let Some(o) = &mut out.optimality {
            (o.ii.1, o.stages, o.stage_count) = (serial_ii, (1, 1), (1, 1));
            out.status.budget_exceeded |= !o.is_optimal();
        }
        Ok(())
    }
}

fn publish_serial(
    g: &graph::Graph,
    starts: &[i64],
    ii: u32,
    ranks: &mut Vec<(u32, u32, u32)>,
    out: &mut RegionSchedule,
) {
    out.ii = ii;
    out.stage_count = 1;
    publish(g, starts, ranks, out);
    out.stats.ii_is_optimal = ii == out.bounds.max();
}

/// The first op that ends a path without carried edges which is longer than `most` allows: the first number, the second for ops
/// that reach across the cluster.
fn above_ceiling(p: &Problem, g: &graph::Graph, most: (u32, u32), ready: &mut Vec<i64>) -> Option<Stuck> {
    ready.clear();
    ready.resize(g.n as usize, 0);
    for &u in &g.topo {
        let before = g.pred.of(u).iter().filter(|a| a.distance() == 0);
        let start = before.map(|a| ready[a.node as usize] + a.latency).fold(0, i64::max);
        ready[u as usize] = start;
        let node = Node::from_u32(u);
        let ceiling = i64::from(if p.extra(node).cross_cluster { most.1 } else { most.0 });
        if start + i64::from(p.latency(node)) > ceiling {
            return Some(Stuck { node, window: (start, ceiling), rank: 0 });
        }
    }
    None
}

/// What exact mode made is judged before it is handed out.
///
/// Compaction and the search for an earlier finish may have saved a stage without being asked: the report says so.
fn check_optimal(p: &Problem, out: &mut RegionSchedule) -> Result<()> {
    let Some(mut o) = out.optimality else { return Ok(()) };
    o.stages.1 = o.stages.1.min(out.code_stages());
    o.stage_count.1 = o.stage_count.1.min(out.stage_count);
    out.optimality = Some(o);
    out.status.budget_exceeded |= !o.is_optimal();
    let mut wrong: Vec<String> = verify::verify(p, out).into_iter().map(|v| v.message).collect();
    let made = (out.ii, out.code_stages(), out.stage_count);
    let refuted = o.ii.0 > o.ii.1 || o.stages.0 > o.stages.1 || o.stage_count.0 > o.stage_count.1;
    if (o.ii.1, o.stages.1, o.stage_count.1) != made || refuted {
        wrong.push(format!("it says {o}, the schedule has {made:?}"));
    }
    let Some(first) = wrong.first() else { return Ok(()) };
    let text = format!("exact mode made a schedule that is not legal: {first}");
    let mut error = Diagnostic::new(Code::E0410, Place::Whole, text);
    error.notes = wrong.split_off(1);
    Err(error)
}

/// Last stage with a start, and the stage the last op finishes in.
fn length(p: &Problem, starts: &[i64], ii: u32) -> (i64, i64) {
    let last = starts.iter().max().map_or(0, |&t| t / i64::from(ii));
    let ends = p.nodes().zip(starts).map(|(u, &t)| t + i64::from(p.latency(u)));
    (last, ends.max().unwrap_or(0) / i64::from(ii))
}

/// Writes starts, stages and order.
fn publish(g: &graph::Graph, starts: &[i64], ranks: &mut Vec<(u32, u32, u32)>, out: &mut RegionSchedule) {
    ranks.clear();
    for (u, &t) in starts.iter().enumerate() {
        // Generators hand over cycles of 31 bits.
        let t = t as u32;
        out.start.push(t);
        out.stage.push(t / out.ii);
        out.order.push(0);
        // The stage follows from the start: sorting by start sorts by stage.
        ranks.push((t, g.topo_pos[u], u as u32));
    }
    ranks.sort_unstable();
    for (i, &(_, _, u)) in ranks.iter().enumerate() {
        out.order[Node::from_u32(u)] = i as u32;
    }
}

fn record_exclusions(p: &Problem, out: &mut RegionSchedule) {
    for node in p.nodes().filter(|&n| p.force_serial(n)) {
        out.exclusions.push(Exclusion { node, with: node });
        if p.group_index(node) == NO_GROUP {
            continue;
        }
        let same = p.nodes().filter(|&w| w != node && p.group_index(w) == p.group_index(node));
        // A pair of two forced-serial ops is listed once.
        let same = same.filter(|&w| !(p.force_serial(w) && w < node));
        out.exclusions.extend(same.map(|with| Exclusion { node, with }));
    }
}

/// The serial generator consults no constraint but forced serialisation; what it drops is said.
fn warn_dropped(p: &Problem, out: &mut RegionSchedule) {
    // Of the ops of a loop those groups are meant that somebody asked for; numbers of a bare graph are.
    let asked = |n: Node| p.summary.is_none() || p.extra(n).own_gid.is_some();
    let groups = p.nodes().filter(|&n| p.group_size(n) > 1 && asked(n)).count();
    let depths = p.nodes().filter(|&n| p.max_depth(n) > 0).count();
    for (count, what) in [(groups, "group"), (depths, "max_depth")] {
        if count > 0 {
            let text = format!("the serial generator does not consult `{what}` ({count} ops)");
            out.warnings.push(Diagnostic::new(Code::W0402, Place::Whole, text));
        }
    }
}
