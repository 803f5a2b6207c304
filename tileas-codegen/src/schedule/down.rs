//! The way down: smaller intervals below a success, and what large loops are asked at the bound before anything else.
//!
//! In: a success in [`CostBased::starts`], the proven bound, what is left of the budget. Out: the smallest interval
//! found, whose starts replace the success. Single intervals are asked for by local search ([`Local`]), the search over
//! orders and exact search over rows. Loops of up to `FULL_BUDGET` ops ask them in a fixed order, and the search over
//! orders refutes what is left below the last success. In larger ones next to nothing is refuted, and which search finds
//! anything depends on the loop: the one that gained most for what it was paid goes on. Tables here have a row per cycle
//! up to `MAX_ROWS`, whatever `rrt-size-threshold` says: without that no search is possible.
//!
//! Guarantee: legal starts, bound ≤ II ≤ the success. Deterministic. Cost: the budget of the loop.

use super::cost_based::{CostBased, is_large};
use super::exact::{Answer, Local, MAX_ROWS};
use super::graph::Graph;
use super::ladder::setup_steps;
use super::options::{Rung, ScheduleOptions};
use super::problem::{Node, Problem};
use super::trail::TryEnd;

/// Parts in which local search uses its steps in small loops.
const LOCAL_SLICES: u64 = 10;
/// On the way down an II gets one part in this many of the steps of exact search that are left.
const TIGHTEN: u64 = 3;
/// Parts of the budget that the search over orders gets in small loops: before everything else below a success, and after.
const ORDERS_FIRST: u64 = 16;
const ORDERS_LAST: u64 = 4;
/// Large loops: one part in this many goes to the search over orders at the bound, where recurrences are as tight as at no
/// larger interval, and one to exact search over rows.
const BOUND_ORDERS: u64 = 8;
const BOUND_ROWS: u64 = 4;
/// Intervals at which the search over orders is asked for a first schedule above the linear range, and its part of the
/// budget at each.
const ORDERS_WIDE: u32 = 6;
const ORDERS_EACH: u64 = 64;
/// The first turn of each search of the way down in large loops: one part in this many of what is left. And one in
/// this many of the gap to the bound is what it asks for.
const TURNS: [(Search, u64); 3] = [(Search::Ejection, 4), (Search::Orders, 3), (Search::Rows, 8)];
const FIRST_SHIFT: u32 = 2;
/// Where no gap is left to halve a search goes back by so many halvings, with half as many steps more.
const BACK: u32 = 3;
/// What a search that had no turn yet is expected to do: gain one part in this many of the gap, for one part in this
/// many of what is left.
const HOPE: u64 = 16;
const FAIR: u64 = 8;

/// A search of the way down.
#[derive(Copy, Clone, Debug)]
enum Search {
    Ejection,
    Orders,
    Rows,
}

/// What a search of the way down has done and does next.
#[derive(Copy, Clone, Debug)]
struct Turn {
    search: Search,
    /// Cycles gained and steps used, those of the past at a discount.
    gain: u64,
    used: u64,
    /// It asks for `gap >> shift` less than the last success, with so many steps.
    shift: u32,
    steps: u64,
}

impl CostBased {
    /// Large loops: search over orders at the bound. Long recurrences are as tight there as at no larger interval, so that it
    /// decides most.
    pub(super) fn orders_first(
        &mut self,
        p: &Problem,
        g: &Graph,
        o: &ScheduleOptions,
        cap: u32,
    ) -> Option<u32> {
        if !is_large(g) || !o.rungs.has(Rung::Exact) || self.proven < self.floor {
            return None;
        }
        let mut share = self.draw(self.budget / BOUND_ORDERS);
        while self.proven <= cap && share > 0 {
            let ii = self.proven;
            let price = share.min(setup_steps(g));
            share -= price;
            self.pay(price);
            match self.order_at(p, g, o, ii, ii, None, &mut share) {
                Answer::Found => return self.finish_at(p, g, o, ii).then_some(ii),
                Answer::Refuted if ii < cap => self.proven += 1,
                _ => break,
            }
        }
        None
    }

    /// Large loops: exact search at the bound, before anything else with a budget. Where the fullest unit has no cycle to spare
    /// it finds what others find above the bound only, and seldom needs much for it.
    pub(super) fn exact_first(&mut self, p: &Problem, g: &Graph, o: &ScheduleOptions, ii: u32) -> bool {
        if !is_large(g) || !o.rungs.has(Rung::Exact) || ii < self.floor {
            return false;
        }
        let kept = std::mem::replace(&mut self.exact_left, self.budget / BOUND_ROWS);
        self.end = None;
        let placed = self.ims.prepare(p, g, ii.into(), o.max_stages) && self.try_exact_search(p, g, o, ii, 1);
        self.exact_left = kept;
        if placed {
            self.rung = Some(Rung::Exact);
            self.record(ii, self.rung);
        }
        placed
    }

    /// Local and exact search below a success, while steps are left.
    pub(super) fn tighten(&mut self, p: &Problem, g: &Graph, o: &ScheduleOptions, found: u32) -> u32 {
        let done = found == self.proven || found <= self.floor;
        if !o.rungs.has(Rung::Exact) || done || self.budget == 0 || self.allowed == 0 {
            return found;
        }
        let before = found;
        let found = match is_large(g) {
            true => self.take_turns(p, g, o, found),
            false => self.in_order(p, g, o, found),
        };
        if found < before {
            self.finish_at(p, g, o, found);
        }
        found
    }

    /// Small loops: one search after the other.
    fn in_order(&mut self, p: &Problem, g: &Graph, o: &ScheduleOptions, found: u32) -> u32 {
        // What is left of the way up goes to the way down.
        self.exact_left += std::mem::take(&mut self.exact_reserve);
        let mut local_left = std::mem::take(&mut self.local_left);
        let mut found = self.order(p, g, o, found, self.budget / ORDERS_FIRST);
        let first = local_left / 2;
        local_left -= first;
        if !g.has_groups {
            found = self.descend(p, g, o, found, first);
        }
        found = self.halve(p, g, o, found);
        if g.has_groups {
            found = self.descend(p, g, o, found, first);
        }
        // What exact search leaves is used as well.
        let mut rest = std::mem::take(&mut self.exact_left);
        if g.has_groups {
            local_left += std::mem::take(&mut rest);
        }
        found = self.descend(p, g, o, found, local_left);
        found = self.descend(p, g, o, found, rest);
        self.order(p, g, o, found, self.budget / ORDERS_LAST)
    }

    /// Large loops: the search that gained most for its steps has the next turn.
    fn take_turns(&mut self, p: &Problem, g: &Graph, o: &ScheduleOptions, found: u32) -> u32 {
        let mut found = found;
        let mut left = self.draw(self.budget.saturating_sub(self.spent));
        let (fair, hope) = (left / FAIR + 1, 1 + u64::from(found - self.proven) / HOPE);
        let mut turns = TURNS.map(|(search, part)| Turn {
            search,
            gain: 0,
            used: 0,
            shift: FIRST_SHIFT,
            steps: left / part + 1,
        });
        while found > self.proven && left > 0 && self.allowed > 0 {
            let rate = |t: &Turn| (t.gain + hope, t.used + fair);
            let mut best = 0;
            for (k, turn) in turns.iter().enumerate() {
                let ((gain, used), (most, least)) = (rate(turn), rate(&turns[best]));
                if gain * least > most * used {
                    best = k;
                }
            }
            let turn = &mut turns[best];
            let down = ((found - self.proven) >> turn.shift).max(1);
            let ii = found - down;
            // Setting up costs as well.
            let setup = 1 + u64::from(ii) / 16 + setup_steps(g);
            let share = self.draw(left.min(turn.steps.max(setup)));
            let mut rest = share.saturating_sub(setup);
            self.pay(share - rest);
            let answer = match turn.search {
                Search::Ejection => self.local_at(p, g, o, ii, (Local::Ejection, Some(found)), &mut rest),
                Search::Orders => self.order_at(p, g, o, ii, ii, Some(found), &mut rest),
                Search::Rows => self.rows_at(p, g, o, ii, &mut rest),
            };
            let used = share - rest;
            left -= used;
            turn.gain = turn.gain / 4 * 3;
            turn.used = turn.used / 4 * 3 + used;
            if answer == Answer::Found {
                found = ii;
                turn.gain += u64::from(down);
                continue;
            }
            if answer == Answer::TooLarge && matches!(turn.search, Search::Ejection) {
                break;
            }
            if answer == Answer::Refuted && ii == self.proven {
                self.proven += 1;
            }
            if down > 1 {
                turn.shift += 1;
            } else {
                turn.shift = turn.shift.saturating_sub(BACK).max(FIRST_SHIFT);
                turn.steps += turn.steps / 2;
            }
        }
        found
    }

    /// Windows, closed distances and an empty table with a row per cycle; otherwise why none of the searches can be asked.
    fn ready_at(&mut self, p: &Problem, g: &Graph, o: &ScheduleOptions, ii: u32) -> Result<(), Answer> {
        if !self.ims.prepare(p, g, ii.into(), o.max_stages) {
            return Err(Answer::Refuted);
        }
        if ii > MAX_ROWS || !self.closure.build(g, ii) {
            return Err(Answer::TooLarge);
        }
        self.rrt.clear(p, ii, 0).map_err(|_| Answer::Refuted)
    }

    /// What a search found replaces the last success.
    fn settle(&mut self, answer: Answer) -> Answer {
        if answer == Answer::Found {
            self.keep_placed();
        }
        answer
    }

    /// Local search at one II, from the last success if its II is given.
    fn local_at(
        &mut self,
        p: &Problem,
        g: &Graph,
        o: &ScheduleOptions,
        ii: u32,
        (which, known): (Local, Option<u32>),
        budget: &mut u64,
    ) -> Answer {
        self.local_seed = self.local_seed.wrapping_add(1);
        if let Err(why) = self.ready_at(p, g, o, ii) {
            return why;
        }
        let seed = self.local_seed.wrapping_add(o.seed << 32);
        let warm = known.map(|from| (&self.best[..], from));
        let share = *budget;
        let (rrt, ims) = (&mut self.rrt, &mut self.ims);
        let answer = self.exact.search(which, g, &self.closure, rrt, ims, ii, warm, seed, budget);
        self.pay(share - *budget);
        self.settle(answer)
    }

    /// Exact search over rows at one II.
    fn rows_at(&mut self, p: &Problem, g: &Graph, o: &ScheduleOptions, ii: u32, budget: &mut u64) -> Answer {
        if let Err(why) = self.ready_at(p, g, o, ii) {
            return why;
        }
        let share = *budget;
        let answer = self.exact.solve(g, &self.closure, &mut self.rrt, &mut self.ims, ii, budget);
        self.pay(share - *budget);
        self.settle(answer)
    }

    /// Local search at smaller and smaller intervals: in long strides while that works, then one by one, then again and
    /// again with other random numbers at those that failed, the nearest ones more often. The two kinds take turns: in a
    /// small loop either may be the one that finds anything.
    fn descend(&mut self, p: &Problem, g: &Graph, o: &ScheduleOptions, found: u32, steps: u64) -> u32 {
        let (mut found, mut left) = (found, steps);
        let slice = steps / LOCAL_SLICES;
        let mut stride = ((found - self.proven) / 3).max(1);
        let mut below = 0;
        while found > self.proven && left > 0 && self.allowed > 0 {
            let ii = found.saturating_sub(stride + below).max(self.proven);
            let far = stride > 1;
            // Setting up costs as well, also where the II turns out to be none: else the turns below would not end.
            let setup = 1 + u64::from(ii) / 16 + setup_steps(g);
            let price = self.draw(left.min(if far { slice / 8 } else { slice } + 1)).max(setup);
            left = left.saturating_sub(price);
            let mut rest = price - setup;
            self.pay(self.draw(setup));
            let turn = self.local_seed.wrapping_add(1);
            let which = if turn.is_multiple_of(2) { Local::Ejection } else { Local::Tabu };
            // Mostly from the last success; sometimes from nothing.
            let known = (!turn.is_multiple_of(4)).then_some(found);
            let answer = self.local_at(p, g, o, ii, (which, known), &mut rest);
            left += rest;
            if answer == Answer::Found {
                found = ii;
                stride = stride.min(((found - self.proven) / 3).max(1));
                below = 0;
                continue;
            }
            if answer == Answer::TooLarge {
                break;
            }
            if answer == Answer::Refuted && ii == self.proven {
                self.proven += 1;
            }
            if far {
                stride = stride.div_ceil(3);
            } else {
                // 0, 1, 0, 1, 2, 0, 1, 2, 3, ...: one turn goes further down than the one before.
                below += 1;
                if below > self.deepest || ii <= self.proven {
                    self.deepest += 1;
                    below = 0;
                }
            }
        }
        found
    }

    /// Search over orders: halves the gap, then refutes from the bound upwards, ranges first.
    fn order(&mut self, p: &Problem, g: &Graph, o: &ScheduleOptions, found: u32, steps: u64) -> u32 {
        let (mut found, mut left) = (found, steps - steps / 2);
        let mut failed = self.proven - 1;
        while found - failed > 1 && left > 0 {
            let middle = failed + (found - failed) / 2;
            let mut share = left / 2 + 1;
            left -= share;
            match self.order_at(p, g, o, middle, middle, Some(found), &mut share) {
                Answer::Found => found = middle,
                answer => {
                    if answer == Answer::Refuted && middle == self.proven {
                        self.proven += 1;
                    }
                    failed = middle;
                }
            }
            left += share;
        }
        left += steps / 2;
        let mut width = found - self.proven;
        while self.proven < found && width > 0 && left > 0 {
            width = width.min(found - self.proven);
            // A range asks for less and is refuted less often: it gets little.
            let mut share = left / if width > 1 { 32 } else { 4 } + 1;
            left -= share;
            let (from, to) = (self.proven, self.proven + width - 1);
            match self.order_at(p, g, o, to, from, None, &mut share) {
                Answer::Found => found = to,
                Answer::Refuted => {
                    self.proven = to + 1;
                    width *= 2;
                }
                Answer::Unknown | Answer::TooLarge => width = if width > 1 { width.div_ceil(4) } else { 0 },
            }
            left += share;
        }
        found
    }

    /// Long intervals: search over orders in doubling steps.
    pub(super) fn gallop_orders(
        &mut self,
        p: &Problem,
        g: &Graph,
        o: &ScheduleOptions,
        from: u32,
        cap: u32,
    ) -> Option<u32> {
        if !o.rungs.has(Rung::Exact) {
            return None;
        }
        let mut step = from / 128 + 1;
        for k in 0..ORDERS_WIDE {
            let ii = if k == 0 { from } else { from.saturating_add(step).min(cap) };
            let mut share = self.budget / ORDERS_EACH;
            if share == 0 || ii > cap {
                return None;
            }
            match self.order_at(p, g, o, ii, ii, None, &mut share) {
                Answer::Found => return self.finish_at(p, g, o, ii).then_some(ii),
                Answer::Refuted if k == 0 => self.proven = self.proven.max(from + 1),
                _ => {}
            }
            step = step.saturating_mul(if k == 0 { 1 } else { 2 });
        }
        None
    }

    /// The last success once more, with all that compaction needs.
    fn finish_at(&mut self, p: &Problem, g: &Graph, o: &ScheduleOptions, ii: u32) -> bool {
        let exact;
        let quantised = o.rrt_size_threshold > 0 && ii > o.rrt_size_threshold;
        let o = if quantised {
            exact = ScheduleOptions { rrt_size_threshold: 0, ..o.clone() };
            &exact
        } else {
            o
        };
        let ready = self.ims.prepare(p, g, ii.into(), o.max_stages) && self.rrt.clear(p, ii, 0).is_ok();
        debug_assert!(ready, "a schedule of this II is at hand");
        self.ims.start.clear();
        self.ims.start.extend_from_slice(&self.best);
        for (u, &t) in self.best.iter().enumerate() {
            self.rrt.place(Node::from_u32(u as u32), t);
        }
        self.rung = Some(Rung::Exact);
        let done = self.finish(p, g, o, ii);
        self.record(ii, self.rung.filter(|_| done));
        done
    }

    /// One II, or a range to be refuted; `known`: the II of the best starts, if there are any.
    #[expect(clippy::too_many_arguments, reason = "those of every rung, and a range")]
    fn order_at(
        &mut self,
        p: &Problem,
        g: &Graph,
        o: &ScheduleOptions,
        ii: u32,
        least: u32,
        known: Option<u32>,
        budget: &mut u64,
    ) -> Answer {
        if self.allowed == 0 {
            return Answer::Unknown;
        }
        if let Err(why) = self.ready_at(p, g, o, ii) {
            // A window may open within a range.
            return if least < ii { Answer::Unknown } else { why };
        }
        let (rrt, ims) = (&mut self.rrt, &mut self.ims);
        let guide = known.map(|from| (&self.best[..], from));
        let share = (*budget).min(self.allowed);
        let mut rest = share;
        let answer = self.exact.search_orders(g, &self.closure, rrt, ims, ii, least, guide, &mut rest);
        *budget -= share - rest;
        self.pay(share - rest);
        self.settle(answer)
    }

    /// Exact search: halves the gap to the largest II that failed.
    fn halve(&mut self, p: &Problem, g: &Graph, o: &ScheduleOptions, found: u32) -> u32 {
        let mut found = found;
        let mut failed = self.proven - 1;
        while found - failed > 1 {
            let middle = failed + (found - failed) / 2;
            let fits = self.ims.prepare(p, g, middle.into(), o.max_stages);
            self.end = (!fits).then_some(TryEnd::NoWindow);
            let placed = fits && self.try_exact_search(p, g, o, middle, TIGHTEN);
            self.record(middle, placed.then_some(Rung::Exact));
            if placed {
                self.rung = Some(Rung::Exact);
                found = middle;
            } else {
                failed = middle;
            }
        }
        found
    }
}
