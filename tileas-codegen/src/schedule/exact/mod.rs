//! Bounded exact search: is there a schedule at this II, and which?
//!
//! In: problem, graph, windows, a table reset to the II, a budget of steps. Out: [`Answer`]: starts, a proof that none
//! exist, or that the budget ran out. Depth-first over three kinds of decisions, the one with the fewest values left
//! (weighted by the failures it took part in) first:
//!
//! - the row (start modulo II) of one of the decided ops of [`model`]. Stages follow: windows shrink through closed
//!   distances until nothing moves, and once every row is chosen the earliest starts are a schedule;
//! - in some runs, the stage of a group whose window spans several;
//! - in some runs, who begins or ends in the free row beside taken ones of a unit that has next to nothing to spare, or
//!   that the row stays free for good: a full unit is filled without gaps that nobody fits in.
//!
//! After each decision starts that collide leave the domains, windows shrink, and the gaps of units of capacity 1 must be
//! fillable by what is still to come with no more waste than the unit can spare. Each failure knows the decisions it
//! follows from: the search jumps back to the last of them, and short combinations are kept as no-goods, restarts
//! included. The first op of a problem without fixed positions stands still (all schedules turn), interchangeable ops
//! keep their order, and a component with groups has one of them in stage 0 (components shift by whole stages).
//!
//! Guarantee: a found schedule is legal; a refutation is a proof. Deterministic. Cost: bounded by the budget, one step
//! per domain looked at. Elsewhere: the heuristics before it (`ims`, `driver`); [`tabu`] and [`eject`] share the model and
//! prove nothing. Source: constraint programming's standard means: forward checking, conflict-directed backjumping, weighted
//! degrees, restarts; for the third kind of decision, exact cover.

mod bounds;
mod eject;
mod model;
mod order;
mod propagate;
mod tabu;
#[cfg(test)]
mod tests;

use super::closure::{Closure, FAR};
use super::graph::Graph;
use super::ims::{Ims, NEVER};
use super::problem::{NO_GROUP, Node};
use super::rrt::Rrt;
pub(super) use model::MAX_ROWS;
use model::{Model, SET, Set, has, insert};

/// A search that moves from one set of starts to the next and proves nothing.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Local {
    /// All ops have starts, fewer and fewer of which contradict one another.
    Tabu,
    /// More and more ops have starts, none of which contradict one another.
    Ejection,
}

/// What the search found out.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The starts are in [`Ims::start`], the table holds them.
    Found,
    /// No schedule has this II.
    Refuted,
    /// The budget ran out.
    Unknown,
    /// The problem has more ops or rows than the search deals with, at any II.
    TooLarge,
}

/// Rows above which domains would take too much memory: every op has one at every level.
const DOMAIN_ROWS: u32 = 4096;
/// Literals of the longest no-good kept.
const NOGOOD: usize = 6;
/// No-goods kept.
const NOGOODS: usize = 512;
/// Failures before the first restart; each run may have half as many more as the one before.
const FIRST_RUN: u32 = 48;
const UNPLACED: i32 = i32::MIN;
/// Marks literals of no-goods that are about a stage.
const STAGE: u32 = 1 << 31;
/// No op: the row stays free. No resource: the decision is about an op.
const NOBODY: u32 = u32::MAX;
/// One part in this many of a search over orders is kept for closed distances, behind windows.
const WINDOWS_PART: u64 = 4;
/// It is asked in loops of more than so many ops: closed distances settle smaller ones.
const WINDOWS_ABOVE: u32 = 64;
/// Units with at most so many cycles to spare are filled row by row.
const COVER_SPARE: u32 = 2;

/// Pieces looked at for one step.
const COVER_WORK: u64 = 64;

/// A piece of an op on a resource: its first and last row, relative to the op's start.
#[derive(Copy, Clone)]
struct Holder {
    op: u32,
    first: u32,
    last: u32,
    len: u32,
}

/// What is decided next.
#[derive(Clone, Copy)]
enum Choice {
    /// The row of an op.
    Row(usize),
    /// The stage of the group of an op.
    Stage(usize),
    /// The op that begins (or ends) in a row of a resource.
    Cover { resource: usize, row: u32, ends: bool },
}

/// One decision.
#[derive(Clone, Copy)]
struct Level {
    op: u32,
    /// Starts `next..=last` are still to be tried; where they were sorted, positions in [`Exact::sorted`].
    next: i32,
    last: i32,
    sorted: bool,
    /// The decision is the stage of the op's group; `next..=last` are stages.
    stage: bool,
    /// The decision is who covers a row of this resource: pairs of op and start in [`Exact::sorted`].
    cover: u32,
    /// Earlier decisions that refused its starts.
    conflict: Set,
}

/// Memory of the search.
#[derive(Default)]
pub(super) struct Exact {
    model: Model,
    tabu: tabu::Tabu,
    eject: eject::Eject,
    order: order::Order,
    bounds: bounds::Bounds,
    seat: Vec<i32>,
    level_of: Vec<u32>,
    early: Vec<i32>,
    late: Vec<i32>,
    domain: Vec<u64>,
    /// Decisions that took starts from an op.
    blame: Vec<Set>,
    weight: Vec<u32>,
    cover_weight: Vec<u32>,
    /// Rows of each unit that were left free for good.
    left_free: Vec<u32>,
    anchored: Vec<bool>,
    /// Free cycles of unit resources, and who is seated on a resource.
    free: Vec<u64>,
    seated: Vec<Set>,
    levels: Vec<Level>,
    saved: Saved,
    sums: Vec<u64>,
    /// What each row of an op takes from others, and the sums it comes from.
    taken: Vec<u32>,
    prefix: Vec<u32>,
    /// Lengths of the free runs of a unit.
    runs: Vec<u32>,
    /// Starts of the open decisions, those that take least from the others first, with what they take.
    sorted: Vec<(u64, i32)>,
    queue: Vec<u32>,
    /// Whether stages of groups are decisions in this run.
    staged: bool,
    /// Whether rows of nearly full units are decisions in this run.
    covers_rows: bool,
    /// Pieces by resource, and the first of each.
    holders: Vec<Holder>,
    holder_of: Vec<u32>,
    nogoods: Vec<([(u32, i32); NOGOOD], u8)>,
    next_nogood: usize,
    pub nodes: u64,
    pub learned: u64,
}

/// Domains, windows and blame before each decision, one slice per level.
#[derive(Default)]
struct Saved {
    domain: Vec<u64>,
    early: Vec<i32>,
    late: Vec<i32>,
    blame: Vec<Set>,
    free: Vec<u64>,
    seated: Vec<Set>,
    anchored: Vec<bool>,
    left_free: Vec<u32>,
}

impl Exact {
    /// Searches; `budget` is what may be used and becomes what is left.
    pub fn solve(
        &mut self,
        g: &Graph,
        closure: &Closure,
        rrt: &mut Rrt,
        ims: &mut Ims,
        ii: u32,
        budget: &mut u64,
    ) -> Answer {
        if ii > DOMAIN_ROWS || !self.model.build(g, closure, rrt, ims, ii) {
            return Answer::Unknown;
        }
        if !self.model.merge_rigid() {
            return Answer::Refuted;
        }
        self.model.build_pairs();
        self.find_holders();
        let m = self.model.ops.len();
        self.weight.clear();
        self.weight.resize(m, 1);
        self.cover_weight.clear();
        self.cover_weight.resize(self.model.resources, 1);
        self.nogoods.clear();
        self.next_nogood = 0;
        let mut failures = FIRST_RUN;
        for run in 0u32.. {
            let gentle = run % 2 == 1;
            self.staged = run % 4 > 1;
            self.covers_rows = !gentle;
            let possible = self.begin(ims, budget);
            let answer = if possible { self.run(rrt, failures, gentle, budget) } else { Answer::Refuted };
            if answer == Answer::Found {
                if !self.extend(g, ims, ii) {
                    return Answer::Unknown;
                }
                self.clear_table(rrt);
                for (u, &t) in ims.start.iter().enumerate() {
                    rrt.place(Node::from_u32(u as u32), t);
                }
                return Answer::Found;
            }
            self.clear_table(rrt);
            if answer == Answer::Refuted || *budget == 0 {
                return answer;
            }
            failures = failures.saturating_add(failures / 3);
        }
        Answer::Unknown
    }

    /// Local search; it proves at most that ops which recurrences hold together meet one another. `warm`: starts of a
    /// schedule of a larger II, and that II.
    #[expect(clippy::too_many_arguments, reason = "those of the exact search, and where it begins")]
    pub fn search(
        &mut self,
        which: Local,
        g: &Graph,
        closure: &Closure,
        rrt: &mut Rrt,
        ims: &mut Ims,
        ii: u32,
        warm: Option<(&[i64], u32)>,
        seed: u64,
        budget: &mut u64,
    ) -> Answer {
        if !self.model.build(g, closure, rrt, ims, ii) {
            return Answer::Unknown;
        }
        if !self.model.merge_rigid() {
            return Answer::Refuted;
        }
        let (found, start) = match which {
            Local::Tabu => (self.tabu.solve(&self.model, ims, warm, seed, budget), &self.tabu.start),
            Local::Ejection => (self.eject.solve(&self.model, ims, warm, seed, budget), &self.eject.start),
        };
        if !found {
            return Answer::Unknown;
        }
        self.early.clear();
        self.early.extend_from_slice(start);
        if !self.extend(g, ims, ii) {
            return Answer::Unknown;
        }
        for (u, &t) in ims.start.iter().enumerate() {
            rrt.place(Node::from_u32(u as u32), t);
        }
        Answer::Found
    }

    /// Search over orders at `ii`, or, where `least` is smaller, for a refutation of all from there to `ii`. The table
    /// holds what was found.
    #[expect(clippy::too_many_arguments, reason = "those of the exact search, and a range")]
    pub fn search_orders(
        &mut self,
        g: &Graph,
        closure: &Closure,
        rrt: &mut Rrt,
        ims: &mut Ims,
        ii: u32,
        least: u32,
        guide: Option<(&[i64], u32)>,
        budget: &mut u64,
    ) -> Answer {
        if !self.model.build(g, closure, rrt, ims, ii) {
            return Answer::Unknown;
        }
        // Of a range no op is rigid.
        if least == ii && !self.model.merge_rigid() {
            return Answer::Refuted;
        }
        let m = self.model.ops.len();
        let mut answer = Answer::Unknown;
        if least == ii && g.n > WINDOWS_ABOVE && self.model.entangled() {
            let mut share = *budget - *budget / WINDOWS_PART;
            *budget -= share;
            answer = self.search_windows(ims, guide, &mut share);
            *budget += share;
        }
        if answer == Answer::Unknown {
            answer = self.order.solve(&self.model, ims, least, guide, budget);
            self.early.clear();
            self.early.extend_from_slice(&self.order.start[..m.min(self.order.start.len())]);
        }
        if answer != Answer::Found {
            return answer;
        }
        if !self.extend(g, ims, ii) {
            return Answer::Unknown;
        }
        for (u, &t) in ims.start.iter().enumerate() {
            rrt.place(Node::from_u32(u as u32), t);
        }
        Answer::Found
    }

    /// Search over orders with a window per op, on the model at hand; the starts of a success are in `early`.
    fn search_windows(&mut self, ims: &Ims, guide: Option<(&[i64], u32)>, budget: &mut u64) -> Answer {
        let answer = self.bounds.solve(&self.model, ims, guide, self.model.ii.into(), budget);
        self.early.clear();
        self.early.extend_from_slice(&self.bounds.early);
        answer
    }

    fn clear_table(&mut self, rrt: &mut Rrt) {
        for a in 0..self.model.ops.len() {
            if self.seat[a] != UNPLACED {
                self.model.parts(a).for_each(|(op, far)| rrt.remove(op, i64::from(self.seat[a] + far)));
                self.seat[a] = UNPLACED;
            }
        }
    }

    /// Full domains, and windows where the component is tied to cycle 0 or to the begin of a stage. `false`: some
    /// window is empty.
    fn begin(&mut self, ims: &Ims, budget: &mut u64) -> bool {
        let (model, m) = (&self.model, self.model.ops.len());
        self.seat.clear();
        self.seat.resize(m, UNPLACED);
        self.level_of.clear();
        self.level_of.resize(m, u32::MAX);
        self.blame.clear();
        self.blame.resize(m, [0; SET]);
        self.early.clear();
        self.late.clear();
        for a in 0..m {
            let (early, late) = model.window(ims, a);
            let rooted = model.component[a] == model.rooted;
            let clamp = |t: i64| t.min(FAR.into()) as i32;
            self.early.push(if rooted { clamp(early) } else { 0 });
            let late = if late >= NEVER { i64::from(FAR) } else { late };
            self.late.push(if rooted { clamp(late) } else { model.ii as i32 - 1 });
        }
        let (words, ii) = (model.words, model.ii);
        let full = |row: &mut Vec<u64>, times: usize| {
            row.clear();
            for _ in 0..times {
                for w in 0..words {
                    let left = ii as usize - w * 64;
                    row.push(if left >= 64 { u64::MAX } else { (1 << left) - 1 });
                }
            }
        };
        full(&mut self.domain, m);
        full(&mut self.free, model.resources);
        self.seated.clear();
        self.seated.resize(model.resources, [0; SET]);
        self.anchored.clear();
        self.anchored.resize(model.components, false);
        if model.rooted != u32::MAX {
            self.anchored[model.rooted as usize] = true;
        }
        self.left_free.clear();
        self.left_free.resize(model.resources, 0);
        self.levels.clear();
        self.sorted.clear();
        self.anchor_groups(budget)
    }

    /// Components shift by whole stages: one group of each stands in stage 0.
    fn anchor_groups(&mut self, budget: &mut u64) -> bool {
        let m = self.model.ops.len();
        for a in 0..m {
            let component = self.model.component[a];
            if self.model.group[a] == NO_GROUP || self.anchored[component as usize] {
                continue;
            }
            self.anchored[component as usize] = true;
            self.queue.clear();
            for b in (0..m).filter(|&b| self.model.component[b] == component) {
                let same = self.model.group[b] == self.model.group[a];
                (self.early[b], self.late[b]) =
                    if same { (0, self.model.ii as i32 - 1) } else { (-FAR, FAR) };
                if same {
                    self.queue.push(b as u32);
                }
            }
            if self.spread(budget).is_err() {
                return false;
            }
        }
        true
    }

    /// The stages the window of an op allows.
    fn stages(&self, a: usize) -> (i32, i32) {
        let ii = self.model.ii as i32;
        (self.early[a].div_euclid(ii), self.late[a].div_euclid(ii))
    }

    fn save(&mut self, level: usize) {
        fn put<T: Copy>(to: &mut Vec<T>, from: &[T], level: usize) {
            to.truncate(level * from.len());
            to.extend_from_slice(from);
        }
        put(&mut self.saved.domain, &self.domain, level);
        put(&mut self.saved.early, &self.early, level);
        put(&mut self.saved.late, &self.late, level);
        put(&mut self.saved.blame, &self.blame, level);
        put(&mut self.saved.free, &self.free, level);
        put(&mut self.saved.seated, &self.seated, level);
        put(&mut self.saved.anchored, &self.anchored, level);
        put(&mut self.saved.left_free, &self.left_free, level);
    }

    fn restore(&mut self, level: usize) {
        fn get<T: Copy>(to: &mut [T], from: &[T], level: usize) {
            let n = to.len();
            to.copy_from_slice(&from[level * n..(level + 1) * n]);
        }
        get(&mut self.domain, &self.saved.domain, level);
        get(&mut self.early, &self.saved.early, level);
        get(&mut self.late, &self.saved.late, level);
        get(&mut self.blame, &self.saved.blame, level);
        get(&mut self.free, &self.saved.free, level);
        get(&mut self.seated, &self.saved.seated, level);
        get(&mut self.anchored, &self.saved.anchored, level);
        get(&mut self.left_free, &self.saved.left_free, level);
    }

    /// One run, until `failures` dead ends. `gentle`: starts in order of what they take from others, not of time.
    fn run(&mut self, rrt: &mut Rrt, mut failures: u32, gentle: bool, budget: &mut u64) -> Answer {
        loop {
            let Some(choice) = self.choose(budget) else { return Answer::Found };
            if self.levels.len() == SET * 64 {
                return Answer::Unknown;
            }
            let turns = self.levels.is_empty() && self.turns();
            self.save(self.levels.len());
            let level = if let Choice::Cover { resource, row, ends } = choice {
                self.open_cover(resource, row, ends)
            } else if let Choice::Row(op) = choice {
                // Interchangeable ops sit in order: the one that stands still is the first.
                let first = self.model.class[op];
                let op = if turns && first != u32::MAX { first as usize } else { op };
                self.open(op, turns, gentle, budget)
            } else if let Choice::Stage(op) = choice {
                let (next, last) = self.stages(op);
                Level {
                    op: op as u32,
                    next,
                    last,
                    sorted: false,
                    stage: true,
                    cover: NOBODY,
                    conflict: [0; SET],
                }
            } else {
                return Answer::Unknown;
            };
            self.levels.push(level);
            // Seats this decision somewhere, or jumps back until one decision finds another start.
            'seats: loop {
                let level = self.levels.len() - 1;
                let Level { stage, cover, .. } = self.levels[level];
                while let Some(t) = self.next_start(level) {
                    let a = self.levels[level].op as usize;
                    let row = if stage { t } else { t.rem_euclid(self.model.ii as i32) };
                    if *budget == 0 {
                        return Answer::Unknown;
                    }
                    *budget = budget.saturating_sub(self.nogoods.len() as u64 / 16);
                    let known = if a == NOBODY as usize { None } else { self.known_bad(a, stage, row) };
                    if let Some(reason) = known {
                        self.add_conflict(level, &reason);
                        continue;
                    }
                    self.nodes += 1;
                    let result = if a == NOBODY as usize {
                        self.leave_free(cover as usize, row as u32, level, budget)
                    } else if stage {
                        self.assign_stage(a, t, level, budget)
                    } else {
                        self.assign(rrt, a, t, level, budget)
                    };
                    match result {
                        Ok(()) => break 'seats,
                        Err((failed, reason)) => {
                            if let Some(f) = failed {
                                self.weight[f] = self.weight[f].saturating_add(1);
                            }
                            self.blame_weight(level);
                            self.add_conflict(level, &reason);
                            self.undo(rrt, level);
                            failures = failures.saturating_sub(1);
                        }
                    }
                }
                // No start left: the reasons are those of each refusal and of what was gone before.
                let mut conflict = self.levels[level].conflict;
                self.gone_before(level, &mut conflict);
                conflict[level / 64] &= !(1 << (level % 64));
                self.blame_weight(level);
                self.close();
                let Some(back) = (0..level).rev().find(|&l| has(&conflict, l)) else {
                    return Answer::Refuted;
                };
                self.learn(&conflict);
                while self.levels.len() > back + 1 {
                    let level = self.levels.len() - 1;
                    self.unseat(rrt, self.levels[level].op as usize);
                    self.close();
                }
                self.undo(rrt, back);
                self.add_conflict(back, &conflict);
                if failures == 0 {
                    return Answer::Unknown;
                }
            }
        }
    }

    fn blame_weight(&mut self, level: usize) {
        let Level { op, cover, .. } = self.levels[level];
        let of = if cover != NOBODY {
            &mut self.cover_weight[cover as usize]
        } else {
            &mut self.weight[op as usize]
        };
        *of = of.saturating_add(1);
    }

    /// Decisions that took values from this one before it was made.
    fn gone_before(&self, level: usize, conflict: &mut Set) {
        let mut join = |from: &Set| conflict.iter_mut().zip(from).for_each(|(c, b)| *c |= b);
        let Level { op, cover, .. } = self.levels[level];
        if cover == NOBODY {
            join(&self.blame[op as usize]);
            return;
        }
        join(&self.seated[cover as usize]);
        for b in (0..self.model.ops.len()).filter(|&b| self.seat[b] == UNPLACED) {
            if self.model.pieces(b).iter().any(|p| p.resource == cover) {
                join(&self.blame[b]);
            }
        }
    }

    fn unseat(&mut self, rrt: &mut Rrt, a: usize) {
        if a < self.seat.len() && self.seat[a] != UNPLACED {
            self.model.parts(a).for_each(|(op, far)| rrt.remove(op, i64::from(self.seat[a] + far)));
            self.seat[a] = UNPLACED;
            self.level_of[a] = u32::MAX;
        }
    }

    fn undo(&mut self, rrt: &mut Rrt, level: usize) {
        self.unseat(rrt, self.levels[level].op as usize);
        self.restore(level);
    }

    fn add_conflict(&mut self, level: usize, reason: &Set) {
        let to = &mut self.levels[level].conflict;
        to.iter_mut().zip(reason).for_each(|(c, r)| *c |= r);
        to[level / 64] &= !(1 << (level % 64));
    }

    /// The undecided op with the fewest starts for its weight; components begun come first among equals.
    /// For groups that may be in several stages, the stage counts as a decision of its own; so does a row beside taken
    /// ones of a unit that is nearly full: who covers it?
    fn choose(&self, budget: &mut u64) -> Option<Choice> {
        let mut best: Option<(u64, u64, Choice)> = None;
        // size / weight < best size / best weight, without division.
        let better = |best: &Option<(u64, u64, Choice)>, size: u64, weight: u64| {
            best.as_ref().is_none_or(|&(s, w, _)| size * w < s * weight)
        };
        for a in 0..self.model.ops.len() {
            if self.seat[a] != UNPLACED {
                continue;
            }
            let size = self.count(a);
            let weight = u64::from(self.weight[a]);
            if better(&best, size, weight) {
                best = Some((size, weight, Choice::Row(a)));
            }
            if self.staged
                && self.model.group[a] != NO_GROUP
                && self.anchored[self.model.component[a] as usize]
            {
                let (first, last) = self.stages(a);
                let size = (last - first + 1) as u64;
                if size > 1 && better(&best, size, weight) {
                    best = Some((size, weight, Choice::Stage(a)));
                }
            }
            if size == 1 {
                break;
            }
        }
        *budget = budget.saturating_sub(self.model.ops.len() as u64 / 4 + 1);
        if !self.covers_rows || self.levels.is_empty() || best.as_ref().is_none_or(|b| b.0 <= 1) {
            return best.map(|b| b.2);
        }
        let ii = self.model.ii;
        for r in 0..self.model.resources {
            let spare = self.model.spare[r] - self.left_free[r];
            if !self.model.unit[r] || spare > COVER_SPARE {
                continue;
            }
            let weight = u64::from(self.cover_weight[r]);
            // Entries of who holds the unit that were looked at.
            let mut work = 0;
            let free = &self.free[r * self.model.words..(r + 1) * self.model.words];
            let is_free = |row: u32| free[row as usize / 64] >> (row % 64) & 1 != 0;
            for (w, &bits) in free.iter().enumerate() {
                // Free rows beside taken ones; across words they are told apart below.
                let mut rows = bits & (!(bits << 1) | !(bits >> 1));
                while rows != 0 {
                    let row = w as u32 * 64 + rows.trailing_zeros();
                    rows &= rows - 1;
                    for (ends, beside) in [(false, (row + ii - 1) % ii), (true, (row + 1) % ii)] {
                        if is_free(beside) {
                            continue;
                        }
                        let mut size = u64::from(spare > 0);
                        work += 4;
                        if !better(&best, size, weight) {
                            continue;
                        }
                        for who in self.holders(r) {
                            work += 1;
                            size += u64::from(self.covers(who, row, ends).is_some());
                            // It gets no better.
                            if !better(&best, size, weight) {
                                break;
                            }
                        }
                        if better(&best, size, weight) {
                            best = Some((size, weight, Choice::Cover { resource: r, row, ends }));
                        }
                    }
                }
            }
            *budget = budget.saturating_sub(1 + work / COVER_WORK);
        }
        best.map(|b| b.2)
    }

    /// Pieces on a resource.
    fn holders(&self, r: usize) -> &[Holder] {
        &self.holders[self.holder_of[r] as usize..self.holder_of[r + 1] as usize]
    }

    /// Lists the pieces on each resource.
    fn find_holders(&mut self) {
        self.holders.clear();
        self.holder_of.clear();
        for r in 0..self.model.resources {
            self.holder_of.push(self.holders.len() as u32);
            for b in 0..self.model.ops.len() {
                let of = self.model.pieces(b).iter().filter(|p| p.resource as usize == r);
                let ii = self.model.ii;
                self.holders.extend(of.map(|p| Holder {
                    op: b as u32,
                    first: p.offset % ii,
                    last: (p.offset + p.len - 1) % ii,
                    len: p.len,
                }));
            }
        }
        self.holder_of.push(self.holders.len() as u32);
    }

    /// The start at which an undecided piece begins (or ends) in this row, if it may.
    fn covers(&self, who: &Holder, row: u32, ends: bool) -> Option<i32> {
        let (b, ii, words) = (who.op as usize, self.model.ii, self.model.words);
        if self.seat[b] != UNPLACED {
            return None;
        }
        let back = if ends { who.last } else { who.first };
        let at = if row >= back { row - back } else { row + ii - back };
        if self.domain[b * words + at as usize / 64] >> (at % 64) & 1 == 0 {
            return None;
        }
        let anchored = self.anchored[self.model.component[b] as usize];
        if !anchored || self.early[b] <= -FAR {
            return Some(at as i32);
        }
        let t = self.early[b] + (at as i32 - self.early[b]).rem_euclid(ii as i32);
        (t <= self.late[b]).then_some(t)
    }

    /// Undecided ops with a start at which a piece begins (or ends) in this row of a unit.
    fn covering(&self, r: usize, row: u32, ends: bool) -> impl Iterator<Item = (u32, i32)> + '_ {
        self.holders(r).iter().filter_map(move |who| self.covers(who, row, ends).map(|t| (who.op, t)))
    }

    fn open_cover(&mut self, r: usize, row: u32, ends: bool) -> Level {
        let first = self.sorted.len();
        let mut sorted = std::mem::take(&mut self.sorted);
        sorted.extend(self.covering(r, row, ends).map(|(b, t)| (u64::from(b), t)));
        if self.model.spare[r] > self.left_free[r] {
            sorted.push((NOBODY.into(), row as i32));
        }
        self.sorted = sorted;
        Level {
            op: NOBODY,
            next: first as i32,
            last: self.sorted.len() as i32 - 1,
            sorted: true,
            stage: false,
            cover: r as u32,
            conflict: [0; SET],
        }
    }

    /// Starts left, not counting turns of the interval after the first.
    fn count(&self, a: usize) -> u64 {
        let words = self.model.words;
        let domain = &self.domain[a * words..(a + 1) * words];
        let width = i64::from(self.late[a]) - i64::from(self.early[a]) + 1;
        let ii = i64::from(self.model.ii);
        if width >= ii {
            return domain.iter().map(|w| u64::from(w.count_ones())).sum();
        }
        let from = i64::from(self.early[a]).rem_euclid(ii);
        let in_range = |lo: i64, hi: i64| -> u64 {
            // Bits lo..hi.
            let mut total = 0;
            for w in (lo / 64)..=((hi - 1) / 64) {
                let mut bits = domain[w as usize];
                if w == lo / 64 {
                    bits &= u64::MAX << (lo % 64);
                }
                if w == (hi - 1) / 64 && hi % 64 != 0 {
                    bits &= (1 << (hi % 64)) - 1;
                }
                total += u64::from(bits.count_ones());
            }
            total
        };
        if width <= 0 {
            0
        } else if from + width <= ii {
            in_range(from, from + width)
        } else {
            in_range(from, ii) + in_range(0, from + width - ii)
        }
    }

    /// Whether every schedule may be turned: nothing is tied to cycle 0 or to the begin of a stage.
    fn turns(&self) -> bool {
        self.model.rooted == u32::MAX && self.model.group.iter().all(|&g| g == NO_GROUP)
    }

    fn open(&mut self, a: usize, turns: bool, gentle: bool, budget: &mut u64) -> Level {
        let begun = self.anchored[self.model.component[a] as usize];
        let ii = self.model.ii as i32;
        let (next, last) = match (begun, turns) {
            // One turn: the later ones are the same rows.
            (true, _) => (self.early[a], self.late[a].min(self.early[a].saturating_add(ii - 1))),
            (false, false) => (0, ii - 1),
            (false, true) => (0, 0),
        };
        let level = Level {
            op: a as u32,
            next,
            last,
            sorted: false,
            stage: false,
            cover: NOBODY,
            conflict: [0; SET],
        };
        if !gentle || last <= next {
            return level;
        }
        let (words, wide) = (self.model.words, ii as usize);
        self.taken.clear();
        self.taken.resize(wide, 0);
        let mut work = 0;
        for b in (0..self.model.ops.len()).filter(|&b| b != a && self.seat[b] == UNPLACED) {
            let clashes = self.model.clashes(a, b);
            if clashes.is_empty() {
                continue;
            }
            let domain = &self.domain[b * words..(b + 1) * words];
            let size: u32 = domain.iter().map(|w| w.count_ones()).sum();
            // What the rows up to each one are worth, over two turns and wrapping: of `b` each row is as much as it has few.
            let worth = (1 << 16) / size.max(1);
            self.prefix.clear();
            self.prefix.push(0);
            let mut sum = 0u32;
            for turn in 0..2 * wide {
                let row = if turn < wide { turn } else { turn - wide };
                sum = sum.wrapping_add(worth * (domain[row / 64] >> (row % 64) & 1) as u32);
                self.prefix.push(sum);
            }
            work += 1 + wide as u64 / 64;
            for c in clashes {
                let (from, len) = ((c.first % self.model.ii) as usize, c.len as usize);
                let shift = if c.sure { 0 } else { 2 };
                let (head, tail) = self.taken.split_at_mut(wide - from);
                for (part, at) in [(head, from), (tail, 0)] {
                    let lows = &self.prefix[at..at + part.len()];
                    let highs = &self.prefix[at + len..at + len + part.len()];
                    for ((takes, &low), &high) in part.iter_mut().zip(lows).zip(highs) {
                        *takes = takes.wrapping_add(high.wrapping_sub(low) >> shift);
                    }
                }
                work += 1 + wide as u64 / 512;
            }
        }
        *budget = budget.saturating_sub(1 + work);
        let first = self.sorted.len();
        let domain = &self.domain[a * words..(a + 1) * words];
        let mut from = next;
        while let Some(t) = next_in(domain, from, last, ii) {
            self.sorted.push((self.taken[t.rem_euclid(ii) as usize].into(), t));
            from = t + 1;
        }
        self.sorted[first..].sort_unstable();
        Level { next: first as i32, last: self.sorted.len() as i32 - 1, sorted: true, ..level }
    }

    /// Forgets the last decision.
    fn close(&mut self) {
        self.levels.pop();
        let kept = self.levels.iter().rev().find(|l| l.sorted).map_or(0, |l| (l.last + 1) as usize);
        self.sorted.truncate(kept);
    }

    /// The next start of the decision's domain.
    fn next_start(&mut self, level: usize) -> Option<i32> {
        let Level { op, next, last, sorted, stage, cover, .. } = self.levels[level];
        if cover != NOBODY {
            self.levels[level].next += i32::from(next <= last);
            self.levels[level].op = if next <= last { self.sorted[next as usize].0 as u32 } else { NOBODY };
            return (next <= last).then(|| self.sorted[next as usize].1);
        }
        if stage {
            self.levels[level].next += 1;
            return (next <= last).then_some(next);
        }
        if sorted {
            self.levels[level].next += i32::from(next <= last);
            return (next <= last).then(|| self.sorted[next as usize].1);
        }
        let ii = self.model.ii as i32;
        let words = self.model.words;
        let domain = &self.domain[op as usize * words..(op as usize + 1) * words];
        let found = next_in(domain, next, last, ii)?;
        self.levels[level].next = found + 1;
        Some(found)
    }

    /// Whether a no-good forbids the row; the decisions that make it so.
    fn known_bad(&self, a: usize, stage: bool, row: i32) -> Option<Set> {
        'nogoods: for (literals, len) in &self.nogoods {
            let literals = &literals[..*len as usize];
            let own = a as u32 | if stage { STAGE } else { 0 };
            if !literals.contains(&(own, row)) {
                continue;
            }
            let mut reason = [0; SET];
            for &(b, at) in literals {
                if b == own {
                    continue;
                }
                if b & STAGE != 0 {
                    let b = (b & !STAGE) as usize;
                    if self.stages(b) != (at, at) {
                        continue 'nogoods;
                    }
                    reason.iter_mut().zip(&self.blame[b]).for_each(|(r, s)| *r |= s);
                    continue;
                }
                if self.seat[b as usize] != at {
                    continue 'nogoods;
                }
                insert(&mut reason, self.level_of[b as usize] as usize);
            }
            return Some(reason);
        }
        None
    }

    /// Keeps the decisions of a conflict as a no-good if they are few.
    fn learn(&mut self, conflict: &Set) {
        let count: u32 = conflict.iter().map(|w| w.count_ones()).sum();
        if count as usize > NOGOOD {
            return;
        }
        let mut literals = [(u32::MAX, 0); NOGOOD];
        let mut len = 0;
        for l in 0..self.levels.len() {
            if has(conflict, l) {
                let Level { op: a, stage, next, .. } = self.levels[l];
                if a == NOBODY {
                    return;
                }
                literals[len] = if stage { (a | STAGE, next - 1) } else { (a, self.seat[a as usize]) };
                len += 1;
            }
        }
        self.learned += 1;
        let entry = (literals, len as u8);
        if self.nogoods.len() < NOGOODS {
            self.nogoods.push(entry);
        } else {
            self.nogoods[self.next_nogood] = entry;
            self.next_nogood = (self.next_nogood + 1) % NOGOODS;
        }
    }

    /// Starts of everything from the decided ones: components shift by whole stages, the rest starts when it can.
    fn extend(&mut self, g: &Graph, ims: &mut Ims, ii: u32) -> bool {
        let (model, wide) = (&self.model, i64::from(ii));
        ims.start.clear();
        ims.start.extend_from_slice(&ims.early);
        for a in 0..model.ops.len() {
            ims.start[model.ops[a] as usize] = i64::from(self.early[a]);
        }
        for &(op, a, far) in &model.riders {
            ims.start[op as usize] = i64::from(self.early[a as usize] + far);
        }
        let decided = |u: u32| model.position[u as usize];
        // A component is as late as its earliest member demands.
        let raise = |ims: &mut Ims, u: u32, least: i64| -> bool {
            let now = ims.start[u as usize];
            if least <= now {
                return true;
            }
            let a = decided(u);
            if a == u32::MAX {
                ims.start[u as usize] = least;
                return true;
            }
            let c = model.component[a as usize];
            let shift = (least - now + wide - 1) / wide * wide;
            for b in 0..model.ops.len() {
                if model.component[b] == c {
                    ims.start[model.ops[b] as usize] += shift;
                }
            }
            for &(op, b, _) in &model.riders {
                if model.component[b as usize] == c {
                    ims.start[op as usize] += shift;
                }
            }
            c != model.rooted
        };
        for u in 0..g.n {
            let least = ims.early[u as usize];
            if decided(u) != u32::MAX && !raise(ims, u, least) {
                return false;
            }
        }
        for _ in 0..=g.n + 1 {
            let mut changed = false;
            for &u in &g.topo {
                for arc in g.succ.of(u) {
                    let least = ims.start[u as usize] + arc.weight(wide);
                    changed |= least > ims.start[arc.node as usize];
                    if !raise(ims, arc.node, least) {
                        return false;
                    }
                }
            }
            if !changed {
                return true;
            }
        }
        false
    }
}

/// The first start in `from..=last` whose row is in the domain.
fn next_in(domain: &[u64], from: i32, last: i32, ii: i32) -> Option<i32> {
    if from > last {
        return None;
    }
    let row = from.rem_euclid(ii) as usize;
    let base = from - row as i32;
    // The rest of this turn, then a whole one.
    for (turn, begin) in [(0, row), (1, 0)] {
        let mut w = begin / 64;
        let mut bits = domain[w] & (u64::MAX << (begin % 64));
        loop {
            if bits != 0 {
                let t = base + turn * ii + (w * 64) as i32 + bits.trailing_zeros() as i32;
                return (t <= last).then_some(t);
            }
            w += 1;
            if w == domain.len() {
                break;
            }
            bits = domain[w];
        }
    }
    None
}
