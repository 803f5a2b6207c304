//! What every generator works with on one loop: table, windows, best starts so far, budget, the record of the search.
//!
//! In: a loop, its graph, options, a proven lower bound. The generators place ops at one II after the other in here; what
//! [`crate::Scheduler`] publishes is read from here. Kept from one loop to the next, so that a warm schedule allocates
//! nothing.
//!
//! Guarantee: [`Placement::starts`] is legal at [`Placement::ii`] once [`Placement::keep`] was called for it; budgets are
//! counted in steps, never in time, so that a rerun gives the same answer.

use crate::closure::Closure;
use crate::entities::Node;
use crate::graph::Graph;
use crate::ims::{Ims, Outcome};
use crate::options::ScheduleOptions;
use crate::problem::{MAX_QUANTITY, Problem};
use crate::schedule::{ConflictRow, FailureReport, ResourceRef};
use crate::table::Table;
use crate::trail::{Strategy, Trail, TryEnd};
use crate::windows::{Stuck, Windows};

/// Ops up to which a loop gets all of `search.exact-steps`; a step of a larger one takes longer, and counts by its ops.
pub(crate) const FULL_BUDGET: u64 = 64;
/// The square of this by that of the ops is the part of `search.exact-steps` that a larger loop gets, if less than [`FULL_BUDGET`] by
/// ops: to set up a search costs the square.
const LARGE: u64 = 88;
/// One part in this many of what is allowed is kept for what follows the search.
const KEPT_PART: u64 = 64;
/// Rows of the table that count as one more placement each.
const ROWS_A_PLACEMENT: u64 = 256;

/// A loop, and how it is to be scheduled.
#[derive(Copy, Clone)]
pub(crate) struct Loop<'a> {
    pub p: &'a Problem,
    pub g: &'a Graph,
    pub o: &'a ScheduleOptions,
}

/// Steps of searches, for one loop.
#[derive(Default)]
pub(crate) struct Budget {
    /// What the caller still allows; `u64::MAX` is no limit.
    allowed: u64,
    granted: u64,
    spent: u64,
    /// Ops, [`FULL_BUDGET`] at least: what a step counts.
    weight: u64,
    /// Less was allowed than the options do.
    limited: bool,
}

impl Budget {
    /// What all searches of a loop of so many ops may use together; `None`: as much as its options say.
    pub fn allow(&mut self, steps: Option<u64>, ops: usize) {
        self.weight = (ops as u64).max(FULL_BUDGET);
        let raw = |steps: u64| (u128::from(steps) * u128::from(FULL_BUDGET) / u128::from(self.weight)) as u64;
        self.allowed = steps.map_or(u64::MAX, raw);
        self.granted = self.allowed;
        (self.spent, self.limited) = (0, false);
    }

    /// What of `steps`, the option `search.exact-steps`, this loop may use for searches.
    pub fn of_searches(&mut self, steps: u64, ops: u64) -> u64 {
        let own = match ops {
            n if n > FULL_BUDGET => {
                let once = (steps / n).saturating_mul(FULL_BUDGET);
                once.min((steps / n).saturating_mul(LARGE * LARGE) / n)
            }
            _ => steps,
        };
        if self.allowed == u64::MAX {
            return own;
        }
        let most = self.allowed - self.allowed / KEPT_PART;
        self.limited = most < own;
        own.min(most)
    }

    /// What may be used of so many steps.
    pub fn draw(&self, steps: u64) -> u64 {
        steps.min(self.allowed)
    }

    pub fn pay(&mut self, steps: u64) {
        self.spent = self.spent.saturating_add(steps);
        if self.allowed < u64::MAX {
            self.allowed = self.allowed.saturating_sub(steps);
        }
    }

    /// Steps used, those of large loops with their weight.
    pub fn used(&self) -> u64 {
        (u128::from(self.spent) * u128::from(self.weight)).div_ceil(FULL_BUDGET.into()) as u64
    }

    /// Whether fewer steps were allowed than `steps`, the option, and they ran out or were too few to search with.
    pub fn cut_short(&self, steps: u64) -> bool {
        self.limited && (self.spent >= self.granted / 2 || self.granted < steps / 16)
    }
}

/// The working state of one loop.
#[derive(Default)]
pub(crate) struct Placement {
    pub table: Table,
    pub windows: Windows,
    pub ims: Ims,
    pub closure: Closure,
    pub budget: Budget,
    pub trail: Trail,
    /// Starts of the last success, by op.
    best: Vec<i64>,
    /// Every II below this one is proven to be impossible.
    pub proven: u32,
    /// Below this II only cheap strategies look.
    pub floor: u32,
    /// The strategy that found the last success.
    pub strategy: Option<Strategy>,
    pub attempts: u32,
    /// How the try at hand ended, where that is known.
    pub end: Option<TryEnd>,
    /// Placements so far, weighted; the option `search.step-limit` ends them.
    steps: u64,
    pub out_of_steps: bool,
    pub stuck: Option<Stuck>,
}

impl Placement {
    /// A loop begins, of which every II below `bound` is impossible.
    pub fn begin(&mut self, bound: u32) {
        self.proven = bound;
        (self.attempts, self.strategy, self.end, self.stuck) = (0, None, None, None);
        (self.steps, self.out_of_steps) = (0, false);
        (self.ims.placements, self.ims.evictions) = (0, 0);
        self.trail.clear();
        self.closure.clear();
        self.table.forget();
        self.best.clear();
        // A search that ends before its first attempt must not report the starts of the last loop.
        self.ims.start.clear();
    }

    /// Starts of the last success.
    pub fn starts(&self) -> &[i64] {
        &self.best
    }

    /// Notes the last success as what the strategy chose.
    pub fn choose(&mut self) {
        self.trail.chosen(&self.best);
    }

    /// Makes these the starts of the last success.
    pub fn keep(&mut self, starts: &[i64]) {
        self.best.clear();
        self.best.extend_from_slice(starts);
    }

    /// What is placed now becomes the last success.
    pub fn keep_placed(&mut self) {
        self.best.clear();
        self.best.extend_from_slice(&self.ims.start);
    }

    /// Moves one op of the last success.
    pub fn set_start(&mut self, u: u32, t: i64) {
        self.best[u as usize] = t;
    }

    /// The last success, in the table and in [`Ims::start`], with the windows of its II. `false`: rows of several cycles refuse
    /// what exact ones allow.
    pub fn load(&mut self, l: Loop<'_>, ii: u32) -> bool {
        if !self.windows.prepare(l.p, l.g, ii.into(), l.o.max_stages, &mut self.stuck)
            || self.table.clear(l.p, ii, 0).is_err()
        {
            return false;
        }
        self.ims.start.clear();
        self.ims.start.extend_from_slice(&self.best);
        for (u, &t) in self.best.iter().enumerate() {
            let node = Node::from_u32(u as u32);
            if !self.table.fits(node, t) {
                return false;
            }
            self.table.place(node, t);
        }
        true
    }

    /// Whether all starts of the last success fit the 31 bits of a schedule.
    pub fn fits(&self) -> bool {
        self.best.iter().all(|&t| t <= i64::from(MAX_QUANTITY))
    }

    /// Notes that nothing has this II.
    pub fn refute(&mut self, l: Loop<'_>, ii: u32) {
        if ii == self.proven || l.g.monotone {
            self.proven = self.proven.max(ii + 1);
        }
    }

    /// Windows at an II and an empty table; `false`: a proof, or no steps are left.
    pub fn open(&mut self, l: Loop<'_>, ii: u32) -> bool {
        self.end = None;
        // A look at an II counts as well: a long way up ends.
        self.steps += 1 + u64::from(l.g.n) / 64;
        if self.steps > l.o.step_limit {
            self.out_of_steps = true;
            return false;
        }
        if !self.windows.prepare(l.p, l.g, ii.into(), l.o.max_stages, &mut self.stuck) {
            self.end = Some(TryEnd::NoWindow);
            self.refute(l, ii);
            return false;
        }
        self.empty_table(l, ii)
    }

    /// An empty table; `false`: some op does not even fit alone.
    pub fn empty_table(&mut self, l: Loop<'_>, ii: u32) -> bool {
        let Err(node) = self.table.clear(l.p, ii, l.o.table_rows()) else { return true };
        self.stuck = Some(Stuck { node, window: (0, i64::from(ii) - 1), rank: 0 });
        self.end = Some(TryEnd::DoesNotFit);
        self.refute(l, ii);
        false
    }

    /// One attempt of iterative modulo scheduling; the table is empty and the windows are those of the II.
    pub fn attempt(&mut self, l: Loop<'_>, ii: u32) -> bool {
        self.attempts += 1;
        let full = u64::from(l.o.budget_ratio.max(1)) * u64::from(l.g.n) + 16;
        self.attempt_within(l, ii, full)
    }

    /// An attempt that ends after a few placements without progress.
    pub fn short_attempt(&mut self, l: Loop<'_>, ii: u32) -> bool {
        self.ims.hurry = true;
        let placed = self.attempt_within(l, ii, 2 * u64::from(l.g.n) + 16);
        self.ims.hurry = false;
        placed
    }

    /// An attempt of so many placements.
    pub fn attempt_within(&mut self, l: Loop<'_>, ii: u32, placements: u64) -> bool {
        // A probe looks at many rows of a large table.
        let weight = 1 + u64::from(self.table.rows()) / ROWS_A_PLACEMENT;
        let left = l.o.step_limit.saturating_sub(self.steps) / weight;
        let before = self.ims.placements;
        let Placement { ims, windows, table, stuck, .. } = self;
        let outcome = ims.attempt(l.p, l.g, windows, table, ii.into(), placements.min(left), stuck);
        self.steps += (self.ims.placements - before) * weight;
        let placed = outcome == Outcome::Placed;
        self.out_of_steps |= !placed && self.steps + weight > l.o.step_limit;
        placed
    }

    /// Notes how the try at an II ended; `strategy`: what placed all ops.
    pub fn record(&mut self, ii: u32, strategy: Option<Strategy>) {
        let unplaced = if self.out_of_steps { TryEnd::OutOfSteps } else { TryEnd::NotPlaced };
        let end = self.end.take().unwrap_or(unplaced);
        let end = strategy.map_or(end, TryEnd::Placed);
        let stuck = self.stuck.filter(|_| strategy.is_none()).map(|s| s.node);
        self.trail.add(ii, end, stuck);
        if strategy.is_some() {
            self.strategy = strategy;
            self.trail.arms.clear();
        }
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
        let Some(stuck) = self.stuck else { return report };
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
    let times = |offset: u32, duration: u32| {
        let k = (cycle - at - i64::from(offset)).rem_euclid(ii);
        let duration = i64::from(duration);
        if k < duration { ((duration - 1 - k) / ii + 1) as u64 } else { 0 }
    };
    match resource {
        ResourceRef::Slot(s) => {
            let uses = p.uses(node).iter().filter(|u| u.slot == s);
            uses.map(|u| times(u.offset, u.duration) * u64::from(u.occupancy)).sum()
        }
        ResourceRef::Pool(q) => {
            let uses = p.pool_uses(node).iter().filter(|u| u.pool == q);
            uses.map(|u| times(0, u.duration) * u64::from(u.count)).sum()
        }
    }
}
