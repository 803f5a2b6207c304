//! What crosses from scheduling to its consumers: starts, stages and order of one region, and why.
//!
//! Out of the generators, in to buffer planning, materialisation and diagnostics. Neither reservation table nor costs
//! are here: a consumer cannot search. (stage, order) is the public ordering key; `order` is the rank by (stage,
//! start, topological over zero-distance edges, program order) and unique.
//!
//! Source: spec page 1 (what crosses the seam), spec page 4 (stage count, diagnostics), `tileas-schedule/1`.

use crate::bounds::Bounds;
use crate::entities::{Node, Pool, Slot};
use crate::error::Diagnostic;
use crate::problem::Problem;
use crate::rounds::Round;
use crate::trail::{Strategy, Trail};
use cranelift_entity::PrimaryMap;
use std::fmt;

/// The generators.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Generator {
    /// One op after the other.
    #[default]
    Serial,
    /// The published cost-based one.
    CostBased,
    /// Modulo scheduling.
    Modulo,
}

impl fmt::Display for Generator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Generator::Serial => "serial",
            Generator::CostBased => "cost-based",
            Generator::Modulo => "modulo",
        })
    }
}

/// The least slots of a ring with which the schedule's II holds (R3): a slot lives for `life` cycles, from the first write
/// to the last release, and a reader is `distance` iterations behind its writer. A version in the ring and one being made
/// at least: with less the two would wait for each other as in one place.
pub fn ring_slots(life: u64, distance: u32, ii: u32) -> u32 {
    let slots = u32::try_from(life.div_ceil(u64::from(ii.max(1)))).unwrap_or(u32::MAX);
    distance.saturating_add(slots.max(1))
}

/// How scheduling ended.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// The constraints reached a fixed point.
    pub converged: bool,
    /// A step budget ran out; a better schedule may exist.
    pub budget_exceeded: bool,
    /// No II up to the cap worked; this is the serial schedule.
    pub serial_fallback: bool,
    /// The round limit ended refinement: a consumer still asks for constraints.
    pub truncated: bool,
}

/// Two ops that must not overlap across iterations; an op with itself where both are one.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Exclusion {
    /// The forced-serial op.
    pub node: Node,
    /// Itself or an op of its group.
    pub with: Node,
}

/// Counters, for people and benchmarks.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Attempts at placing all ops.
    pub attempts: u32,
    /// Placements.
    pub placements: u64,
    /// Placements undone.
    pub evictions: u64,
    /// Steps of searches: starts the arms looked at, local and exact search, fewer stages, shorter lives. Those of loops
    /// above 64 ops count more, since they take longer.
    pub steps: u64,
    /// The budget of the function allowed fewer steps than the loop's own, they did not suffice, and the interval is not proven.
    pub curtailed: bool,
    /// The strategy that found the schedule.
    pub strategy: Option<Strategy>,
    /// II equals a proven lower bound.
    pub ii_is_optimal: bool,
}

/// What exact mode proved of a schedule: between which two numbers the best one lies.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Optimality {
    /// The least II: no smaller than the first, no larger than the second.
    pub ii: (u32, u32),
    /// The fewest stages with a start, at the II of the schedule.
    pub stages: (u32, u32),
    /// The least stage count (by the last finish) at that II and with those stages.
    pub stage_count: (u32, u32),
    /// Steps used, of `search.optimal-steps`.
    pub steps: u64,
}

/// `optimal`, or `bounds lo..hi`.
fn verdict((least, most): (u32, u32)) -> String {
    if least == most { "optimal".to_owned() } else { format!("bounds {least}..{most}") }
}

impl Optimality {
    /// Whether everything asked was proven.
    pub fn is_optimal(&self) -> bool {
        [self.ii, self.stages, self.stage_count].iter().all(|r| r.0 == r.1)
    }

    /// What is known of the II: `optimal`, or `bounds lo..hi`.
    pub fn verdict(&self) -> String {
        verdict(self.ii)
    }
}

impl fmt::Display for Optimality {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ii {} {}, ", self.ii.1, verdict(self.ii))?;
        let stages = if self.stages.1 == 1 { "stage" } else { "stages" };
        write!(f, "{} {stages} {}, ", self.stages.1, verdict(self.stages))?;
        write!(f, "stage_count {} {}", self.stage_count.1, verdict(self.stage_count))
    }
}

/// A slot or a pool in a diagnostic.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum ResourceRef {
    /// A slot.
    Slot(Slot),
    /// A pool.
    Pool(Pool),
}

/// A row of the reservation table that refused an op.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct ConflictRow {
    /// Cycle modulo II.
    pub cycle: u32,
    /// What is full.
    pub resource: ResourceRef,
    /// Units held there by other ops.
    pub held: u64,
    /// Units the op asks for there.
    pub wanted: u64,
    /// Units there are.
    pub capacity: u32,
}

/// Why the last candidate II failed: the six items of spec page 4.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailureReport {
    /// The candidate II.
    pub ii: u32,
    /// The op that found no start; `None` if no II could be tried (the cap is below the bounds).
    pub node: Option<Node>,
    /// Cycles of its footprint.
    pub duration: u32,
    /// Rows in conflict at the first start of the window (at most 16).
    pub rows: Vec<ConflictRow>,
    /// First and last start its dependences allow, all other ops staying where they are.
    pub window: (i64, i64),
    /// The pool that refused it, if one did.
    pub pool: Option<Pool>,
    /// Its group.
    pub group: Option<u32>,
    /// Stage of the first start of the window.
    pub stage: i64,
    /// Its position in the order of placement.
    pub order: u32,
}

impl FailureReport {
    /// The report as lines of text.
    pub fn lines(&self, p: &Problem) -> Vec<String> {
        let Some(node) = self.node else {
            return vec![format!("no candidate: the cap is below the lower bounds, it is {}", self.ii)];
        };
        let mut lines = vec![format!("candidate II {}", self.ii)];
        let mut asks = String::new();
        for u in p.uses(node) {
            let slot = &p.slots()[u.slot];
            let end = u64::from(u.offset) + u64::from(u.duration);
            asks += &format!(" {} x{} [{}, {end})", slot.name, u.occupancy, u.offset);
        }
        for u in p.pool_uses(node) {
            asks += &format!(" {} x{} [0, {})", p.pools()[u.pool].name, u.count, u.duration);
        }
        lines.push(format!("op `{}` for {} cycles:{asks}", p.id(node), self.duration));
        for row in &self.rows {
            let name = match row.resource {
                ResourceRef::Slot(s) => &p.slots()[s].name,
                ResourceRef::Pool(q) => &p.pools()[q].name,
            };
            let (c, held, wanted) = (row.cycle, row.held, row.wanted);
            lines.push(format!("cycle {c}: {name} holds {held} of {}, {wanted} wanted", row.capacity));
        }
        lines.push(match self.window {
            (lo, hi) if lo <= hi => format!("dependences allow starts {lo} to {hi}"),
            (lo, hi) => format!("dependences allow no start: from {lo}, to {hi}"),
        });
        lines.push(match self.pool {
            Some(pool) => format!("refused by pool `{}`", p.pools()[pool].name),
            None => "refused by no pool".to_owned(),
        });
        let group = self.group.map_or("no group".to_owned(), |g| format!("group {g}"));
        lines.push(format!("{group}, stage {}, placed as number {}", self.stage, self.order));
        lines
    }
}

/// The schedule of one region.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RegionSchedule {
    /// Name of the region.
    pub name: String,
    /// The strategy that made it.
    pub generator: Generator,
    /// Cycles between the starts of two iterations.
    pub ii: u32,
    /// Spec page 4's formula, ceil((max(start + latency) + 1) / II); 1 from the serial generator.
    pub stage_count: u32,
    /// How scheduling ended.
    pub status: Status,
    /// Lower bounds on II.
    pub bounds: Bounds,
    /// First cycle of each op in the flat schedule of one iteration.
    pub start: PrimaryMap<Node, u32>,
    /// start / II.
    pub stage: PrimaryMap<Node, u32>,
    /// Unique rank.
    pub order: PrimaryMap<Node, u32>,
    /// What forced-serial ops exclude.
    pub exclusions: Vec<Exclusion>,
    /// Remarks and warnings.
    pub warnings: Vec<Diagnostic>,
    /// Why pipelining failed, where it did.
    pub failure: Option<FailureReport>,
    /// Counters.
    pub stats: Stats,
    /// What exact mode proved, where it ran.
    pub optimality: Option<Optimality>,
    /// What the search did.
    pub trail: Trail,
    /// The rounds of refinement that were about this loop.
    pub rounds: Vec<Round>,
}

impl RegionSchedule {
    /// Forgets the schedule, keeps the allocations.
    pub fn clear(&mut self) {
        let RegionSchedule {
            name,
            generator,
            ii,
            stage_count,
            status,
            bounds,
            start,
            stage,
            order,
            exclusions,
            warnings,
            failure,
            stats,
            optimality,
            trail,
            rounds,
        } = self;
        name.clear();
        *generator = Generator::default();
        (*ii, *stage_count) = (0, 0);
        *status = Status::default();
        bounds.clear();
        start.clear();
        stage.clear();
        order.clear();
        exclusions.clear();
        warnings.clear();
        *failure = None;
        *stats = Stats::default();
        *optimality = None;
        trail.clear();
        rounds.clear();
    }

    /// Stages the code has: 1 + the largest stage.
    pub fn code_stages(&self) -> u32 {
        self.stage.values().max().map_or(1, |&s| s + 1)
    }

    /// Ops by increasing `order`.
    pub fn by_order(&self) -> Vec<Node> {
        let mut nodes: Vec<Node> = self.order.keys().collect();
        nodes.sort_unstable_by_key(|&n| self.order[n]);
        nodes
    }
}
