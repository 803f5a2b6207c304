//! The cost-based generator: search for the smallest II at which all ops can be placed.
//!
//! In: a problem, its graph, a proven lower bound and a cap. Out: starts and II, or the six facts of
//! [`FailureReport`]. At each II the rungs of the ladder are tried in order (see `ladder`); a success is compacted (fewest
//! stages first, then lifetimes). II goes up one by one to 256; above, in doubling steps until a success, then down
//! again, since feasibility of a heuristic is not monotone; before that, long intervals are asked for by the search over
//! orders, whose cost does not grow with them. Loops of more than [`FULL_BUDGET`] ops begin with that search and the one over rows at
//! the bound, and go up with the cheap rungs only. What is left of the budget goes downwards from a success that is above
//! the proven bound (see `down`).
//!
//! Guarantee: legal starts with bound ≤ II ≤ cap. Deterministic: budgets count placements. Fails when the cap is below
//! the bound, when every attempt does, or when the step limit of the region is used up. Source: spec pages 3 and 4.

use super::analysis::{ConflictRow, FailureReport, ResourceRef};
use super::budget::Allowance;
use super::closure::Closure;
use super::compact::{self, Compact};
use super::driver::Driver;
use super::exact::Exact;
use super::graph::Graph;
use super::ims::{Ims, Outcome, Priority};
use super::lifetime::Lifetime;
use super::options::{IiSearch, Rung, ScheduleOptions};
use super::packing::Packing;
use super::problem::{MAX_QUANTITY, Node, Problem};
use super::rows::RowPacking;
use super::rrt::Rrt;
use super::shifted::Shifted;
use super::trail::{Trail, TryEnd};

/// Up to here II is searched one by one.
const LINEAR_LIMIT: u32 = 256;
/// Attempts at one II on the way up; every II passed over is visited again from above.
const GALLOP_ATTEMPTS: u32 = 2;
/// Largest II, and largest II times ops, for a pass over exact rows where the table is otherwise quantised.
const EXACT_ROWS: u32 = 1 << 20;
const EXACT_WORK: u64 = 1 << 35;
/// How often a success at a smaller II is tried for after galloping.
const DOWNWARD_FAILURES: u32 = 2;

/// Where a shifted copy leaves more than one part in this many above the bound, the rungs without a shift are asked.
const WITHOUT_SHIFT: u32 = 32;
/// Ops up to which a loop gets all of `exact-steps`; larger ones get less, since their steps take longer
/// and their II is searched for in more places.
pub(super) const FULL_BUDGET: u64 = 64;
/// The square of this by that of the ops is what they get of it where that is less: setting up a search costs that much.
const LARGE: u64 = 88;
/// The arms get at most one part in this many of what is allowed.
const ARMS_PART: u64 = 8;
/// One part in this many is kept for what follows the search.
const KEPT_PART: u64 = 64;
/// Eighths of the steps that local search gets.
const LOCAL_EIGHTHS: u64 = 4;
/// One part in this many is what may be used for a copy's shift.
const SHIFTED_PART: u64 = 8;
/// Cycles from the begin of an iteration to the end of an op, where `latency-ceilings` is on; the second one for ops
/// that reach across the cluster.
const CEILING: i64 = 5000;
const CEILING_CLUSTER: i64 = 7000;

/// Whether a loop gets only a part of `exact-steps`.
pub(super) fn is_large(g: &Graph) -> bool {
    u64::from(g.n) > FULL_BUDGET
}

/// Memory of the generator.
#[derive(Default)]
pub(super) struct CostBased {
    pub(super) rrt: Rrt,
    pub ims: Ims,
    pub(super) rows: RowPacking,
    pub(super) driver: Driver,
    pub(super) closure: Closure,
    pub(super) mirror: Graph,
    pub(super) mirrored: bool,
    compact: Compact,
    pub(super) life: Lifetime,
    packing: Packing,
    pub(super) exact: Exact,
    pub(super) shifted: Shifted,
    pub(super) exact_left: u64,
    /// Steps that whoever asks for the schedule still allows, and those used; where all are allowed, neither is a limit.
    pub(super) allowed: u64,
    pub(super) spent: u64,
    /// What was allowed at first.
    granted: u64,
    /// Ops, from [`FULL_BUDGET`] on: the weight of a step.
    weight: u64,
    /// Only cheap strategies look below this II.
    pub(super) floor: u32,
    /// On the way up only Rau's method and the packing of rows are asked.
    pub(super) quick: bool,
    /// Less was allowed than the options do.
    limited: bool,
    /// Steps kept for the way down.
    pub(super) exact_reserve: u64,
    /// Steps of local search and of exact search for this loop, and those of the first still to be used.
    pub(super) budget: u64,
    pub(super) local_left: u64,
    pub(super) local_seed: u64,
    /// How far below the nearest II local search has been tried.
    pub(super) deepest: u32,
    /// Every II below this one is proven to be impossible.
    pub proven: u32,
    /// Where Rau's method, and the packing of rows, have failed before anything else was tried.
    pub(super) first_failed: u32,
    pub(super) rows_failed: u32,
    pub(super) saved: Vec<i64>,
    /// What windows ask of slots.
    pub(super) spans: Vec<super::stages::Span>,
    pub(super) best: Vec<i64>,
    pub attempts: u32,
    /// Who found the last success.
    pub rung: Option<Rung>,
    /// What was tried; only written here.
    pub trail: Trail,
    pub(super) end: Option<TryEnd>,
    pub(super) steps: u64,
    pub out_of_steps: bool,
}

impl CostBased {
    /// What all searches of the next problem may use together.
    pub fn allow(&mut self, allowance: Allowance, ops: usize) {
        let Allowance { steps, floor } = allowance;
        self.floor = floor;
        self.weight = (ops as u64).max(FULL_BUDGET);
        let raw = |steps: u64| (u128::from(steps) * u128::from(FULL_BUDGET) / u128::from(self.weight)) as u64;
        self.allowed = steps.map_or(u64::MAX, raw);
        self.granted = self.allowed;
        (self.spent, self.limited) = (0, false);
    }

    /// Whether the steps allowed were fewer than those of the options and ran out, or were too few to search with.
    pub fn cut_short(&self, options: &ScheduleOptions) -> bool {
        self.limited && (self.spent >= self.granted / 2 || self.granted < options.exact_steps / 16)
    }

    /// What may be used of so many steps.
    pub(super) fn draw(&self, steps: u64) -> u64 {
        steps.min(self.allowed)
    }

    pub(super) fn pay(&mut self, steps: u64) {
        self.spent = self.spent.saturating_add(steps);
        if self.allowed < u64::MAX {
            self.allowed = self.allowed.saturating_sub(steps);
        }
    }

    /// Steps used since [`CostBased::allow`], those of large loops with their weight.
    pub fn used_steps(&self) -> u64 {
        (u128::from(self.spent) * u128::from(self.weight)).div_ceil(FULL_BUDGET.into()) as u64
    }

    /// Searches II in `bound..=cap`. The starts of a success are in [`CostBased::starts`].
    pub fn search(
        &mut self,
        p: &Problem,
        g: &Graph,
        options: &ScheduleOptions,
        bound: u32,
        cap: u32,
    ) -> Option<u32> {
        (self.attempts, self.end) = (0, None);
        // Steps of large loops take longer.
        self.budget = match u64::from(g.n) {
            n if n > FULL_BUDGET => {
                let once = (options.exact_steps / n).saturating_mul(FULL_BUDGET);
                once.min((options.exact_steps / n).saturating_mul(LARGE * LARGE) / n)
            }
            _ => options.exact_steps,
        };
        // What squeezing and shortening take is little; a part is kept for them.
        if self.allowed < u64::MAX {
            let most = self.allowed - self.allowed / KEPT_PART;
            self.limited = most < self.budget;
            self.budget = self.budget.min(most);
        }
        self.local_left = self.budget / 8 * LOCAL_EIGHTHS;
        self.shifted.left = self.draw(self.budget / SHIFTED_PART);
        self.exact_left = (self.budget - self.local_left) / 2;
        self.exact_reserve = self.budget - self.local_left - self.exact_left;
        (self.local_seed, self.deepest) = (0, 1);
        // Where packing rules out every II, one attempt at the last one says what does not fit.
        let bound = bound.max(self.packing.bound(p).min(cap));
        self.proven = bound;
        self.rung = None;
        self.quick = is_large(g) && options.rungs.has(Rung::Exact) && options.rungs.has(Rung::RauRefinement);
        (self.first_failed, self.rows_failed) = (0, 0);
        self.trail.clear();
        self.closure.clear();
        self.rrt.forget();
        self.mirrored = false;
        self.driver.arms.steps = options.arm_steps.min(self.allowed / ARMS_PART);
        self.driver.arms.gates.seed(p);
        self.steps = 0;
        self.out_of_steps = false;
        (self.ims.placements, self.ims.evictions, self.ims.stuck) = (0, 0, None);
        // Whoever comes first: no rung begins with what another loop left behind.
        (self.ims.snug, self.ims.hurry) = (true, false);
        // A search that ends before its first attempt must not report the last problem's seats.
        self.ims.start.clear();
        if options.latency_ceilings && self.above_ceiling(p, g) {
            return None;
        }
        let linear_end = match options.ii_search {
            IiSearch::Linear => cap,
            IiSearch::Auto => cap.min(LINEAR_LIMIT),
            IiSearch::Gallop => 0,
        };
        let mut ii = bound;
        if ii <= cap && self.first_attempt(p, g, options, ii) {
            return Some(ii);
        }
        // It takes longer than most loops, which end above.
        self.proven = self.proven.max(self.packing.alone(p).min(cap));
        ii = self.proven;
        if let Some(found) = self.orders_first(p, g, options, cap) {
            return Some(found);
        }
        ii = ii.max(self.proven);
        self.shifted.find(p, options);
        if ii <= cap && self.exact_first(p, g, options, ii) {
            return Some(ii);
        }
        while ii <= linear_end {
            let found = self.try_shifted(p, g, options, ii);
            if found || self.try_ii(p, g, options, ii, options.attempts) {
                return Some(self.tighten(p, g, options, ii));
            }
            if self.out_of_steps {
                return None;
            }
            ii += 1;
        }
        // Quantised rows waste a part of every short op. Many short ops mostly fit in one pass over exact rows.
        let affordable = ii <= EXACT_ROWS && u64::from(ii) * u64::from(g.n) <= EXACT_WORK;
        if options.rrt_size_threshold > 0 && ii > options.rrt_size_threshold && affordable {
            for ii in [ii, ii.saturating_add(ii / 16), ii.saturating_add(ii / 4)] {
                if ii <= cap && self.try_exact(p, g, options, ii) {
                    return Some(self.tighten(p, g, options, ii));
                }
            }
        }
        if let Some(found) = self.gallop_orders(p, g, options, ii, cap) {
            return Some(self.tighten(p, g, options, found));
        }
        let found = match self.gallop_shifted(p, g, options, ii, cap) {
            // Without a fixed shift there may be room; that is asked for once.
            Some(found) if found - ii > ii / WITHOUT_SHIFT => {
                let middle = ii + (found - ii) / 2;
                Some(if self.try_ii(p, g, options, middle, 1) { middle } else { found })
            }
            Some(found) => Some(found),
            None => self.gallop(p, g, options, ii, cap).or_else(|| {
                // What was left out on the way up may be all that finds anything.
                let again = std::mem::take(&mut self.quick) && !self.out_of_steps;
                if again { self.gallop(p, g, options, self.proven, cap) } else { None }
            }),
        };
        found.map(|found| self.tighten(p, g, options, found))
    }

    /// One pass on exact rows.
    fn try_exact(&mut self, p: &Problem, g: &Graph, options: &ScheduleOptions, ii: u32) -> bool {
        let exact = ScheduleOptions { rrt_size_threshold: 0, ..options.clone() };
        if !self.ims.prepare(p, g, ii.into(), exact.max_stages) || self.rrt.clear(p, ii, 0).is_err() {
            return false;
        }
        self.attempts += 1;
        self.ims.snug = true;
        let budget = u64::from(g.n) + u64::from(g.n) / 4 + 16;
        let outcome = self.ims.attempt(p, g, &mut self.rrt, ii.into(), Priority::Height, budget);
        let found = outcome == Outcome::Placed && self.finish(p, g, &exact, ii);
        self.record(ii, found.then_some(Rung::RauRefinement));
        found
    }

    /// Starts of the last success, by op.
    pub fn starts(&self) -> &[i64] {
        &self.best
    }

    /// Replaces the last success by another one of its II.
    pub(super) fn keep(&mut self, starts: &[i64]) {
        self.best.clear();
        self.best.extend_from_slice(starts);
    }

    /// What is placed now becomes the last success.
    pub(super) fn keep_placed(&mut self) {
        self.best.clear();
        self.best.extend_from_slice(&self.ims.start);
    }

    /// Moves one op of the last success.
    pub(super) fn set_start(&mut self, u: u32, t: i64) {
        self.best[u as usize] = t;
    }

    fn gallop(&mut self, p: &Problem, g: &Graph, o: &ScheduleOptions, from: u32, cap: u32) -> Option<u32> {
        let (mut step, mut failed, mut ii) = (1u32, from.saturating_sub(1), from);
        let mut found = loop {
            if ii > cap {
                return None;
            }
            if self.try_ii(p, g, o, ii, o.attempts.min(GALLOP_ATTEMPTS)) {
                break ii;
            }
            if self.out_of_steps {
                return None;
            }
            failed = ii;
            if ii == cap {
                return None;
            }
            ii = ii.saturating_add(step).min(cap);
            step = step.saturating_mul(2);
        };
        // Halve the gap, then walk down while that works.
        while found - failed > 1 && !self.out_of_steps {
            let middle = failed + (found - failed) / 2;
            if self.try_ii(p, g, o, middle, o.attempts) {
                found = middle;
            } else {
                failed = middle;
            }
        }
        let (mut failures, mut ii) = (0, found.saturating_sub(2));
        while ii >= from && failures < DOWNWARD_FAILURES && !self.out_of_steps {
            if self.try_ii(p, g, o, ii, o.attempts) {
                found = ii;
            } else {
                failures += 1;
            }
            ii -= 1;
        }
        Some(found)
    }

    /// Compacts a success and moves it to `best`. `false`: its cycles do not fit 31 bits.
    pub(super) fn finish(&mut self, p: &Problem, g: &Graph, o: &ScheduleOptions, ii: u32) -> bool {
        let wide = i64::from(ii);
        self.trail.seats.clear();
        self.trail.seats.extend_from_slice(&self.ims.start);
        compact::pull(g, &mut self.rrt, &mut self.ims, wide);
        // Where Rau's method found nothing at all it finds nothing in fewer stages either.
        if self.rung != Some(Rung::RowPacking) {
            self.fewer_stages(p, g, o, ii);
        }
        self.compact.push(p, g, &mut self.rrt, &mut self.ims, wide);
        compact::settle(g, &mut self.ims, wide);
        if self.ims.start.iter().any(|&t| t > i64::from(MAX_QUANTITY)) {
            return false;
        }
        self.keep_placed();
        true
    }

    /// One short attempt with a stage less, where the dependences do not rule it out.
    fn fewer_stages(&mut self, p: &Problem, g: &Graph, o: &ScheduleOptions, ii: u32) {
        let wide = i64::from(ii);
        let stages = |starts: &[i64]| starts.iter().max().map_or(1, |&t| t / wide + 1);
        let now = stages(&self.ims.start);
        if now <= stages(&self.ims.early) || now < 3 {
            return;
        }
        self.saved.clear();
        self.saved.extend_from_slice(&self.ims.start);
        let limit = o.max_stages.unwrap_or(u32::MAX).min((now - 1) as u32);
        // Deadlines of `max_stages` include the last latency; here only the starts count, so this asks for more.
        self.rrt.save();
        let mut better =
            self.ims.limit_stages(p, g, wide, limit) && self.rrt.clear(p, ii, o.rrt_size_threshold).is_ok();
        if better {
            // The other way of choosing seats is more likely to succeed where this one used a stage too many.
            self.ims.snug = !self.ims.snug;
            let budget = 2 * u64::from(g.n) + 16;
            self.ims.hurry = true;
            let outcome = self.ims.attempt(p, g, &mut self.rrt, wide, Priority::Height, budget);
            self.ims.hurry = false;
            better = outcome == Outcome::Placed;
        }
        if better {
            compact::pull(g, &mut self.rrt, &mut self.ims, wide);
            return;
        }
        // Back to the saved starts, with their windows and table.
        self.ims.lift_limit();
        self.rrt.restore();
        self.ims.start.clear();
        self.ims.start.extend_from_slice(&self.saved);
    }

    /// Whether some op ends a path without carried edges that is longer than its ceiling allows.
    fn above_ceiling(&mut self, p: &Problem, g: &Graph) -> bool {
        self.saved.clear();
        self.saved.resize(g.n as usize, 0);
        for &u in &g.topo {
            let ready = g.pred.of(u).iter().filter(|a| a.distance() == 0);
            let start = ready.map(|a| self.saved[a.node as usize] + a.latency).fold(0, i64::max);
            self.saved[u as usize] = start;
            let node = Node::from_u32(u);
            let ceiling = if p.extra(node).cross_cluster { CEILING_CLUSTER } else { CEILING };
            if start + i64::from(p.latency(node)) > ceiling {
                self.ims.stuck = Some(super::ims::Stuck { node, window: (start, ceiling), rank: 0 });
                return true;
            }
        }
        false
    }

    /// Explains the last failed II.
    pub fn report(&self, p: &Problem, ii: u32) -> FailureReport {
        const ROWS: usize = 16;
        let mut report = FailureReport {
            ii,
            node: None,
            duration: 0,
            rows: Vec::new(),
            window: (0, -1),
            pool: None,
            group: None,
            stage: 0,
            order: 0,
        };
        let Some(stuck) = self.ims.stuck else { return report };
        let (node, ii) = (stuck.node, i64::from(ii));
        report.node = Some(node);
        let slot_end = p.uses(node).iter().map(|u| u.offset.saturating_add(u.duration));
        report.duration = slot_end.chain(p.pool_uses(node).iter().map(|u| u.duration)).max().unwrap_or(0);
        report.window = stuck.window;
        report.group = p.group(node);
        report.stage = stuck.window.0.div_euclid(ii);
        report.order = stuck.rank;
        let t = stuck.window.0;
        let slots = p.uses(node).iter().map(|u| (ResourceRef::Slot(u.slot), u.offset, u.duration));
        let pools = p.pool_uses(node).iter().map(|u| (ResourceRef::Pool(u.pool), 0, u.duration));
        for (resource, offset, duration) in slots.chain(pools) {
            let capacity = match resource {
                ResourceRef::Slot(s) => p.slots()[s].capacity,
                ResourceRef::Pool(q) => p.pools()[q].capacity,
            };
            for k in 0..i64::from(duration).min(ii).min(1024) {
                let cycle = (t + i64::from(offset) + k).rem_euclid(ii);
                let wanted = demand(p, node, t, resource, cycle, ii);
                let placed = self.ims.start.iter().enumerate().filter(|(_, at)| **at >= 0);
                let held: u64 = placed
                    .map(|(v, &at)| (Node::from_u32(v as u32), at))
                    .filter(|&(v, _)| v != node)
                    .map(|(v, at)| demand(p, v, at, resource, cycle, ii))
                    .sum();
                if held + wanted > u64::from(capacity) {
                    if let (ResourceRef::Pool(q), None) = (resource, report.pool) {
                        report.pool = Some(q);
                    }
                    report.rows.push(ConflictRow { cycle: cycle as u32, resource, held, wanted, capacity });
                }
                if report.rows.len() == ROWS {
                    return report;
                }
            }
        }
        report
    }
}

/// Units of `resource` the op, started at `at`, holds in a cycle modulo II.
fn demand(p: &Problem, node: Node, at: i64, resource: ResourceRef, cycle: i64, ii: i64) -> u64 {
    let turns = |offset: u32, duration: u32| {
        let k = (cycle - at - i64::from(offset)).rem_euclid(ii);
        let duration = i64::from(duration);
        if k < duration { ((duration - 1 - k) / ii + 1) as u64 } else { 0 }
    };
    match resource {
        ResourceRef::Slot(s) => {
            let uses = p.uses(node).iter().filter(|u| u.slot == s);
            uses.map(|u| turns(u.offset, u.duration) * u64::from(u.occupancy)).sum()
        }
        ResourceRef::Pool(q) => {
            let uses = p.pool_uses(node).iter().filter(|u| u.pool == q);
            uses.map(|u| turns(0, u.duration) * u64::from(u.count)).sum()
        }
    }
}
