//! Modulo scheduling of one loop body: when does each op start, and how often does an iteration begin.
//!
//! In: a [`Problem`] (built from IR or read from JSON). Out: a [`RegionSchedule`]. The recipe of
//! [`Scheduler::schedule_into`]: check → graph → serial schedule (always exists, gives the cap) → bounds → generator
//! chosen by [`select()`] → stages and order. Every step is one file.
//!
//! Guarantee: the result is legal in the sense of `tileas-schedule/1` (checked independently by [`verify`]),
//! deterministic, never worse than the serial schedule, and of II ≥ every bound. Cost: tens of microseconds for loops
//! of some fifty ops; the second schedule of a problem on one [`Scheduler`] allocates nothing. Elsewhere: what travels
//! between agents (`buffers`), code (`materialize`). Source: spec pages 3 and 4.

pub mod analysis;
mod arms;
pub mod bounds;
pub mod budget;
mod closure;
mod compact;
mod cost_based;
pub mod ddg;
mod down;
mod driver;
mod evaluate;
mod exact;
pub mod explain;
#[cfg(any(test, feature = "arbitrary"))]
pub mod families;
mod gates;
#[cfg(feature = "arbitrary")]
pub mod generate;
mod graph;
pub mod handoff;
mod ims;
#[cfg(feature = "serde")]
pub mod json;
mod ladder;
pub mod lifetime;
mod lines;
#[cfg(feature = "optimal")]
mod optimal;
pub mod options;
mod packing;
pub mod problem;
pub mod refine;
pub mod render;
mod rows;
mod rrt;
pub mod seam;
pub mod select;
mod serial;
mod shifted;
mod stages;
pub mod trail;
pub mod verify;

pub use analysis::{Exclusion, FailureReport, Generator, Optimality, RegionSchedule, Stats, Status};
pub use bounds::Bounds;
pub use budget::{Allowance, SearchSteps};
pub use ddg::schedule_function;
pub use handoff::{LoopSchedule, OpEdge, ScheduleAnalysis, ScheduledRegion};
pub use options::{
    ArmPolicy, CycleModel, G2Horizon, IiSearch, Limits, Rung, Rungs, ScheduleOptions, SchedulerChoice,
    SelectorKind,
};
pub use problem::{Edge, EdgeData, Node, NodeDef, NodeExtra, Pool, PoolUse, Problem, Resource, Slot, Use};
pub use seam::{AsyncHandle, AsyncHandles, Footprint, OptionalCells, Validity};
pub use select::{RegionSummary, select};

use crate::error::{Code, CodegenError, CodegenResult, Loc};
use problem::{MAX_QUANTITY, NO_GROUP};

/// The scheduler with its memory. One per thread; options and problems are shared.
#[derive(Default)]
pub struct Scheduler {
    graph: graph::Graph,
    bounds: bounds::BoundsScratch,
    cost: cost_based::CostBased,
    serial: Vec<i64>,
    ranks: Vec<(u32, u32, u32)>,
    /// Of the problems of functions.
    memory: ddg::Memory,
}

impl Scheduler {
    /// A scheduler without memory of anything.
    pub fn new() -> Scheduler {
        Scheduler::default()
    }

    /// Keeps the allocations of an analysis that nobody needs any more for the next one.
    pub fn recycle(&mut self, analysis: ScheduleAnalysis) {
        self.memory.recycle(analysis);
    }

    /// Schedules `problem`; see [`Scheduler::schedule_into`].
    ///
    /// # Errors
    /// Those of [`Scheduler::schedule_into`].
    pub fn schedule(
        &mut self,
        problem: &Problem,
        options: &ScheduleOptions,
    ) -> CodegenResult<RegionSchedule> {
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
    ) -> CodegenResult<()> {
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
    ) -> CodegenResult<()> {
        out.clear();
        self.cost.allow(allowance, problem.num_nodes());
        options.scheduler.check()?;
        out.name.push_str(problem.name());
        let mut errors = Vec::new();
        problem.check_structure(&options.limits, &mut errors);
        if let Some(e) = errors.first() {
            return Err(e.to_codegen(problem));
        }
        if !self.graph.build(problem) {
            let error = problem.zero_distance_cycle().map(|e| e.to_codegen(problem));
            let unknown = || CodegenError::new(Code::E0306, Loc::NONE, "zero-distance dependence cycle");
            return Err(error.unwrap_or_else(unknown));
        }
        let Some(serial_ii) = serial::serial_schedule(problem, &self.graph, &mut self.serial) else {
            let text = format!("the serial schedule of `{}` does not fit 31 bits", problem.name());
            return Err(CodegenError::new(Code::E0402, Loc::NONE, text));
        };
        self.bounds.compute(problem, &self.graph, options.max_stages, &mut out.bounds);
        record_exclusions(problem, out);
        out.status.converged = true;
        out.generator = select(problem.summary.as_ref(), options);
        if out.generator == Generator::Serial {
            warn_dropped(problem, out);
            self.publish_serial(serial_ii, out);
            return Ok(());
        }
        let cap = options.ii_cap.unwrap_or(serial_ii).min(serial_ii);
        let found = self.cost.search(problem, &self.graph, options, out.bounds.max(), cap);
        out.stats.attempts = self.cost.attempts;
        out.stats.placements = self.cost.ims.placements;
        out.stats.evictions = self.cost.ims.evictions;
        out.stats.rung = self.cost.rung;
        // What is proven to be shortest needs no more steps.
        let least = out.bounds.max().max(self.cost.proven);
        let tried = cap >= out.bounds.max();
        out.stats.curtailed = tried && self.cost.cut_short(options) && found != Some(least);
        out.status.budget_exceeded = self.cost.out_of_steps && found != Some(least);
        if out.status.budget_exceeded {
            let text =
                format!("the search of `{}` spent its steps; a shorter interval may exist", problem.name());
            let note = "the option `step-limit` allows more";
            out.warnings.push(CodegenError::new(Code::W0405, Loc::NONE, text).note(Loc::NONE, note));
        }
        self.cost.trail.proven = self.cost.proven;
        self.cost.trail.copy_into(&mut out.trail);
        if let Some(ii) = found {
            self.cost.fewest_stages(problem, &self.graph, options, ii);
        }
        let found = self.optimise(problem, options, found, cap, out);
        if let Some(ii) = found {
            if out.optimality.is_none() {
                self.cost.shorten(problem, &self.graph, options, ii);
            } else {
                // Shorter lives must not cost what was proven.
                let before = self.cost.starts().to_vec();
                self.cost.shorten(problem, &self.graph, options, ii);
                if length(problem, self.cost.starts(), ii) > length(problem, &before, ii) {
                    self.cost.keep(&before);
                }
            }
            out.stats.steps = self.cost.used_steps();
            let longest = problem.nodes().zip(self.cost.starts());
            let finish = longest.map(|(n, &t)| t as u64 + u64::from(problem.latency(n))).max().unwrap_or(0);
            out.ii = ii;
            out.stage_count = (finish + 1).div_ceil(ii.into()).min(MAX_QUANTITY.into()) as u32;
            publish(&self.graph, self.cost.starts(), &mut self.ranks, out);
            out.stats.ii_is_optimal = ii <= self.cost.proven;
            return check_optimal(problem, out);
        }
        out.stats.steps = self.cost.used_steps();
        let report = self.cost.report(problem, cap.max(1));
        if options.require_pipelining {
            let mut error = CodegenError::new(Code::E0401, Loc::NONE, "failed to find a schedule");
            if let Some(n) = report.node {
                error.location = problem.loc(n);
            }
            error.notes.extend(report.lines(problem).into_iter().map(|line| (Loc::NONE, line)));
            return Err(error);
        }
        let text = match (options.ii_cap, out.status.budget_exceeded) {
            (Some(cap), _) if cap < out.bounds.max() => {
                format!("`ii-cap` is {cap}, below the bound {}: using the serial schedule", out.bounds.max())
            }
            (_, true) => {
                format!(
                    "no II from {} on was found with `step-limit` steps, using the serial schedule",
                    out.bounds.max()
                )
            }
            _ => format!("no II from {} to {cap} works, using the serial schedule", out.bounds.max()),
        };
        out.warnings.push(CodegenError::new(Code::W0403, Loc::NONE, text));
        out.failure = Some(report);
        out.generator = Generator::Serial;
        out.status.serial_fallback = true;
        self.publish_serial(serial_ii, out);
        if let Some(o) = &mut out.optimality {
            (o.ii.1, o.stages, o.stage_count) = (serial_ii, (1, 1), (1, 1));
            out.status.budget_exceeded |= !o.is_optimal();
        }
        Ok(())
    }

    /// Exact mode, where it is asked for and pipelining was not refused.
    #[cfg(feature = "optimal")]
    fn optimise(
        &mut self,
        p: &Problem,
        o: &ScheduleOptions,
        found: Option<u32>,
        cap: u32,
        out: &mut RegionSchedule,
    ) -> Option<u32> {
        if o.scheduler != SchedulerChoice::Optimal || (found.is_none() && o.latency_ceilings) {
            return found;
        }
        let (best, report) = self.cost.optimise(p, &self.graph, o, found, cap);
        out.stats.rung = self.cost.rung;
        out.trail.proven = self.cost.proven;
        out.optimality = Some(report);
        best
    }

    #[cfg(not(feature = "optimal"))]
    fn optimise(
        &mut self,
        _: &Problem,
        _: &ScheduleOptions,
        found: Option<u32>,
        _: u32,
        _: &mut RegionSchedule,
    ) -> Option<u32> {
        found
    }

    fn publish_serial(&mut self, ii: u32, out: &mut RegionSchedule) {
        out.ii = ii;
        out.stage_count = 1;
        publish(&self.graph, &self.serial, &mut self.ranks, out);
        out.stats.ii_is_optimal = ii == out.bounds.max();
    }
}

/// What exact mode made is judged before anybody sees it.
///
/// Compaction and the search for an earlier finish may have saved a stage that nobody asked for: the report says so.
fn check_optimal(p: &Problem, out: &mut RegionSchedule) -> CodegenResult<()> {
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
    let mut error = CodegenError::new(Code::E0410, Loc::NONE, text);
    error.notes.extend(wrong[1..].iter().map(|text| (Loc::NONE, text.clone())));
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
    let groups = p.nodes().filter(|&n| p.group_size(n) > 1).count();
    let depths = p.nodes().filter(|&n| p.max_depth(n) > 0).count();
    for (count, what) in [(groups, "group"), (depths, "max_depth")] {
        if count > 0 {
            let text = format!("the serial generator does not consult `{what}` ({count} ops)");
            out.warnings.push(CodegenError::new(Code::W0402, Loc::NONE, text));
        }
    }
}
