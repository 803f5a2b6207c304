//! Tabu search for a schedule at one II: every op has a start all the time, and starts move until nothing is violated.
//!
//! In: the [`Model`], windows, a budget of steps. Out: whether starts were found that no resource, dependence, group
//! or deadline contradicts; they are in [`Tabu::start`]. The cost of a set of starts is the units above capacity over
//! all rows, plus the cycles by which closed distances are missed, plus one charge per pair of a group in two stages.
//! A move takes one op out of the table, prices all its starts at once (sums over windows of rows) and puts it at the
//! cheapest one it has not just left; or it does that with a whole component, which keeps all distances. Ops without slack between them are one op. A search begins with the starts of a schedule of a larger II,
//! squeezed, or with large ops first.
//!
//! Guarantee: what it calls found is legal; failure proves nothing. Deterministic: the same seed makes the same moves.
//! Cost: one step per 64 rows priced. Source: tabu search as for graph colouring (Hertz and de Werra, 1987).

use super::model::{Model, Piece, flatten};
use crate::closure::{FAR, NO_PATH};
use crate::problem::NO_GROUP;
use crate::random::SplitMix;
use crate::windows::{NEVER, Windows};

/// Charge per unit and row above a capacity, and per cycle by which a distance is missed.
const ONE: i32 = 1;
/// Charge per pair of a group in two stages.
const APART: i32 = 4;
/// Ops in violations that are priced before one of them moves.
const SAMPLE: usize = 12;
/// The same, and the charge per pair, where there are groups: more moves, and stages change sooner.
const SAMPLE_GROUPS: usize = 5;
const APART_GROUPS: i32 = 2;
/// Moves for which an op does not return to a row: from this on, to three times as many.
const TENURE: u32 = 10;
/// Marks of starts that are not to be taken, as costs.
const TABU: i32 = 1 << 28;
const OWN: i32 = 1 << 29;
/// No op.
const NO_OP: u32 = u32::MAX;
/// Pieces up to this length are summed row by row.
const SHORT: usize = 5;

/// The cheapest move so far: what it changes, who moves (components behind the ops), where to; and how many cost that.
#[derive(Default)]
struct Choice {
    best: Option<(i32, usize, i32)>,
    ties: u64,
}

/// The search and its memory.
#[derive(Default)]
pub(super) struct Tabu {
    /// Start of each decided op.
    pub start: Vec<i32>,
    early: Vec<i32>,
    late: Vec<i32>,
    /// Units held, by resource and row.
    count: Vec<i32>,
    /// Prefix sums of what a unit more would cost, over two intervals.
    prefix: Vec<i32>,
    row_cost: Vec<i32>,
    /// Whether one unit more is too much, by resource and row, two intervals each; the same for more units.
    over: Vec<i32>,
    marginal: Vec<i32>,
    cost: Vec<i32>,
    slope: Vec<i32>,
    /// Move at which an op may be in a row again.
    until: Vec<u32>,
    /// Relations of each op that its start and those of others miss.
    missed: Vec<i32>,
    forbidden: Vec<i32>,
    /// The other ops of each component, with the distances from there and back.
    members: Vec<u32>,
    ties: Vec<(i32, i32)>,
    member_of: Vec<(u32, u32)>,
    conflicted: Vec<u32>,
    /// Rows above capacity as bits, by resource; nothing is said where `crowded` says there are none.
    hot: Vec<u64>,
    crowded: Vec<bool>,
    order: Vec<(u32, u32)>,
    /// First op of each component that may be shifted as a whole, [`NO_OP`] for the others; whether it was priced.
    head: Vec<u32>,
    shifted: Vec<bool>,
    shape: Vec<Piece>,
    part: Vec<Piece>,
    rows: Vec<u32>,
    /// Charge per pair of a group in two stages.
    apart: i32,
}

impl Tabu {
    /// Searches; `budget` is what may be used and becomes what is left.
    pub fn solve(
        &mut self,
        model: &Model,
        windows: &Windows,
        warm: Option<(&[i64], u32)>,
        seed: u64,
        budget: &mut u64,
    ) -> bool {
        let (m, ii) = (model.ops.len(), model.ii as usize);
        self.begin(model, windows);
        let groups = model.group.iter().any(|&g| g != NO_GROUP);
        let most;
        (self.apart, most) = if groups { (APART_GROUPS, SAMPLE_GROUPS) } else { (APART, SAMPLE) };
        let mut random = SplitMix(seed);
        if let Some((starts, from)) = warm {
            for a in 0..m {
                let (t, from, wide) = (starts[model.ops[a] as usize], i64::from(from), i64::from(model.ii));
                let at = t.div_euclid(from) * wide + t.rem_euclid(from) * wide / from;
                let at = (at as i32).clamp(self.early[a], self.late[a]);
                self.put(model, a, at, 1);
                self.start[a] = at;
            }
        } else {
            self.insert_all(model, windows, &mut random, budget);
        }
        let mut total = self.total(model);
        let mut best_total = total;
        self.missed.clear();
        self.missed.resize(m, 0);
        for a in 0..m {
            self.count_missed(model, a, 1);
        }
        // Every pair was seen from both ends, and counted at both.
        self.missed.iter_mut().for_each(|k| *k /= 2);
        let mut now = 0u32;
        while *budget > 0 {
            if total == 0 {
                return true;
            }
            now += 1;
            self.find_conflicted(model);
            *budget = budget.saturating_sub(1 + m as u64 / 16);
            let sample = self.conflicted.len().min(most);
            for k in 0..sample {
                let other = k + (random.next() >> 33) as usize % (self.conflicted.len() - k);
                self.conflicted.swap(k, other);
            }
            let mut choice = Choice::default();
            self.shifted.fill(false);
            for k in 0..sample {
                let a = self.conflicted[k] as usize;
                self.put(model, a, self.start[a], -1);
                let (base, old) = self.price(model, a, budget);
                let own = self.start[a];
                self.forbid(a, base, own, now, ii);
                self.consider(a, (base, old), best_total - total, &mut random, &mut choice);
                self.put(model, a, own, 1);
                let c = model.component[a] as usize;
                if self.head[c] != NO_OP && !std::mem::replace(&mut self.shifted[c], true) {
                    let (base, old) = self.price_shifts(model, c, budget);
                    self.forbid(m + c, base, self.start[self.head[c] as usize], now, ii);
                    self.consider(m + c, (base, old), best_total - total, &mut random, &mut choice);
                }
            }
            let Some((delta, a, t)) = choice.best else { continue };
            let own = self.start[if a < m { a } else { self.head[a - m] as usize }];
            if a < m {
                self.put(model, a, own, -1);
                self.put(model, a, t, 1);
                self.count_missed(model, a, -1);
                self.start[a] = t;
                self.count_missed(model, a, 1);
            } else {
                self.put_component(model, a - m, -1);
                let of = self.start.iter_mut().zip(&model.component);
                of.filter(|(_, c)| **c as usize == a - m).for_each(|(s, _)| *s += t - own);
                self.put_component(model, a - m, 1);
            }
            total += delta;
            if total < best_total {
                best_total = total;
            }
            let tenure =
                TENURE + (random.next() >> 33) as u32 % (2 * TENURE) + self.conflicted.len() as u32 / 2;
            self.until[a * ii + own.rem_euclid(ii as i32) as usize] = now + tenure;
        }
        false
    }

    /// Keeps the cheapest of the priced starts of `who` if no other op has a cheaper one; ties are drawn.
    fn consider(
        &self,
        who: usize,
        (base, old): (i32, i32),
        spare: i32,
        random: &mut SplitMix,
        choice: &mut Choice,
    ) {
        let (best, ties) = (&mut choice.best, &mut choice.ties);
        let (mut free, mut any) = (i32::MAX, i32::MAX);
        for (&c, &f) in self.cost.iter().zip(&self.forbidden) {
            free = free.min(c + f);
            any = any.min(c + (f & OWN));
        }
        let aspires = any - old < spare && any < free;
        let least = if aspires { any } else { free };
        let delta = least - old;
        if least >= TABU || best.is_some_and(|b| delta > b.0) {
            return;
        }
        if best.is_none_or(|b| delta < b.0) {
            *ties = 0;
        }
        let mask = if aspires { OWN } else { OWN | TABU };
        let equal = |c: i32, f: i32| c + (f & mask) == least;
        let pairs = || self.cost.iter().zip(&self.forbidden);
        let here = pairs().map(|(&c, &f)| u32::from(equal(c, f))).sum::<u32>();
        *ties += u64::from(here);
        let pick = (random.next() >> 33) % *ties;
        if pick < u64::from(here) {
            let at = pairs().enumerate().filter(|(_, (c, f))| equal(**c, **f)).nth(pick as usize);
            if let Some((k, _)) = at {
                *best = Some((delta, who, base + k as i32));
            }
        }
    }

    /// Adds (or with -1 removes) a component where its ops are.
    fn put_component(&mut self, model: &Model, c: usize, sign: i32) {
        for a in self.head[c] as usize..model.ops.len() {
            if model.component[a] as usize == c {
                self.put(model, a, self.start[a], sign);
            }
        }
    }

    /// As [`Tabu::price`], for all shifts of a component; what comes back are starts of its first op.
    fn price_shifts(&mut self, model: &Model, c: usize, budget: &mut u64) -> (i32, i32) {
        let ii = model.ii;
        let first = self.start[self.head[c] as usize];
        self.part.clear();
        for a in self.head[c] as usize..model.ops.len() {
            if model.component[a] as usize == c {
                let back = (self.start[a] - first).rem_euclid(ii as i32) as u32;
                self.part.extend(model.pieces(a).iter().map(|p| Piece { offset: p.offset + back, ..*p }));
            }
        }
        let mut shape = std::mem::take(&mut self.shape);
        shape.clear();
        flatten(&mut self.part, ii, &mut self.rows, &mut shape);
        self.put_component(model, c, -1);
        let work = self.price_rows(model, &shape) + shape.len() as u64 / 4;
        self.put_component(model, c, 1);
        self.shape = shape;
        *budget = budget.saturating_sub(1 + work);
        self.cost.clear();
        self.cost.extend_from_slice(&self.row_cost);
        let row = first.rem_euclid(ii as i32);
        (first - row, self.row_cost[row as usize])
    }

    /// Ops that dependences tie to others at their earliest starts, then the rest, large ones first, each where it
    /// costs least.
    fn insert_all(&mut self, model: &Model, windows: &Windows, random: &mut SplitMix, budget: &mut u64) {
        let m = model.ops.len();
        self.order.clear();
        for a in 0..m {
            let (first, end) = self.member_of[a];
            if first < end {
                let at = windows.early[model.ops[a] as usize].min(FAR.into()) as i32;
                self.put(model, a, at, 1);
                self.start[a] = at;
                continue;
            }
            let area: u32 = model.pieces(a).iter().map(|p| p.len * p.units).sum();
            self.order.push((u32::MAX - area, a as u32));
        }
        self.order.sort_unstable();
        for k in 0..self.order.len() {
            let a = self.order[k].1 as usize;
            let (base, _) = self.price(model, a, budget);
            let (mut best, mut at, mut ties) = (i32::MAX, base, 0);
            for (k, &c) in self.cost.iter().enumerate() {
                if c < best {
                    (best, at, ties) = (c, base + k as i32, 1);
                } else if c == best {
                    ties += 1;
                    if (random.next() >> 33).is_multiple_of(ties) {
                        at = base + k as i32;
                    }
                }
            }
            self.put(model, a, at, 1);
            self.start[a] = at;
        }
    }

    /// Marks the starts `cost` stands for that the op must not take: its own, and rows it has just left.
    fn forbid(&mut self, a: usize, base: i32, own: i32, now: u32, ii: usize) {
        let len = self.cost.len();
        self.forbidden.clear();
        self.forbidden.resize(len, 0);
        let until = &self.until[a * ii..(a + 1) * ii];
        let from = base.rem_euclid(ii as i32) as usize;
        let mark = |to: &mut [i32], from: usize| {
            to.iter_mut().zip(&until[from..]).for_each(|(f, &u)| *f = if u > now { TABU } else { 0 });
        };
        for k in 0..len.div_ceil(ii) {
            let interval = &mut self.forbidden[k * ii..((k + 1) * ii).min(len)];
            let split = (ii - from).min(interval.len());
            let (head, tail) = interval.split_at_mut(split);
            mark(head, from);
            mark(tail, 0);
        }
        if own >= base && ((own - base) as usize) < len {
            self.forbidden[(own - base) as usize] = OWN;
        }
    }

    fn begin(&mut self, model: &Model, windows: &Windows) {
        let (m, ii) = (model.ops.len(), model.ii as usize);
        self.start.clear();
        self.start.resize(m, i32::MIN);
        self.count.clear();
        self.count.resize(model.resources * ii, 0);
        self.over.clear();
        for r in 0..model.resources {
            let full = i32::from(model.cap[r] == 0);
            self.over.resize(2 * (r + 1) * ii, full);
        }
        self.head.clear();
        self.head.resize(model.components, NO_OP);
        for a in (0..m).rev() {
            self.head[model.component[a] as usize] = a as u32;
        }
        for c in 0..model.components {
            let mut of = (0..m).filter(|&a| model.component[a] as usize == c);
            let several = of.clone().nth(1).is_some();
            if !several || c as u32 == model.rooted || of.any(|a| model.group[a] != NO_GROUP) {
                self.head[c] = NO_OP;
            }
        }
        self.shifted.clear();
        self.shifted.resize(model.components, false);
        self.until.clear();
        self.until.resize((m + model.components) * ii, 0);
        self.early.clear();
        self.late.clear();
        for a in 0..m {
            let (early, late) = model.window(windows, a);
            let rooted = model.component[a] == model.rooted;
            self.early.push(if rooted { early.min(FAR.into()) as i32 } else { -FAR });
            self.late.push(if rooted && late < NEVER { late.min(FAR.into()) as i32 } else { FAR });
        }
        self.members.clear();
        self.ties.clear();
        self.member_of.clear();
        for a in 0..m {
            let first = self.members.len() as u32;
            self.members.extend(
                (0..m as u32)
                    .filter(|&b| b as usize != a && model.component[b as usize] == model.component[a]),
            );
            self.member_of.push((first, self.members.len() as u32));
            let of = &self.members[first as usize..];
            self.ties
                .extend(of.iter().map(|&b| (model.distance(b as usize, a), model.distance(a, b as usize))));
        }
    }

    /// Adds (or with -1 removes) an op at `t` in the table.
    fn put(&mut self, model: &Model, a: usize, t: i32, sign: i32) {
        let ii = model.ii;
        let row = t.rem_euclid(ii as i32) as u32;
        for p in model.pieces(a) {
            let (at, wide) = ((p.resource * ii) as usize, ii as usize);
            let table = &mut self.count[at..at + wide];
            let over = &mut self.over[2 * at..2 * (at + wide)];
            let (units, cap) = (p.units as i32 * sign, model.cap[p.resource as usize] as i32);
            let first = (row + p.offset) % ii;
            let end = first + p.len;
            let (over, again) = over.split_at_mut(wide);
            let mut change = |from: usize, to: usize| {
                for ((c, o), o2) in
                    table[from..to].iter_mut().zip(&mut over[from..to]).zip(&mut again[from..to])
                {
                    *c += units;
                    *o = i32::from(*c >= cap);
                    *o2 = *o;
                }
            };
            change(first as usize, end.min(ii) as usize);
            if end > ii {
                change(0, (end - ii) as usize);
            }
        }
    }

    /// What pieces that do not meet one another would cost in each row, into `row_cost`; returns the steps it took.
    fn price_rows(&mut self, model: &Model, pieces: &[Piece]) -> u64 {
        let ii = model.ii as usize;
        self.row_cost.clear();
        self.row_cost.resize(ii, 0);
        let mut priced = (u32::MAX, 0);
        let mut work = ii as u64 / 64;
        for p in pieces {
            let (r, len) = (p.resource as usize, p.len as usize);
            let marginal = if p.units == 1 {
                &self.over[2 * r * ii..2 * (r + 1) * ii]
            } else {
                let table = &self.count[r * ii..(r + 1) * ii];
                let (units, cap) = (p.units as i32, model.cap[r] as i32);
                self.marginal.resize(2 * ii, 0);
                let (one, two) = self.marginal.split_at_mut(ii);
                for (to, &c) in one.iter_mut().zip(table) {
                    *to = (c + units - cap).max(0) - (c - cap).max(0);
                }
                two.copy_from_slice(one);
                &self.marginal[..]
            };
            let split = ii - p.offset as usize % ii;
            let from = p.offset as usize % ii;
            if len <= SHORT {
                let (head, tail) = self.row_cost.split_at_mut(split);
                for k in 0..len {
                    head.iter_mut().zip(&marginal[from + k..]).for_each(|(c, &m)| *c += m);
                    tail.iter_mut().zip(&marginal[k..]).for_each(|(c, &m)| *c += m);
                }
                work += (len * ii) as u64 / 256;
                continue;
            }
            if priced != (p.resource, p.units) {
                priced = (p.resource, p.units);
                self.prefix.resize(2 * ii + 1, 0);
                let mut sum = 0;
                for (to, &m) in self.prefix[1..].iter_mut().zip(marginal) {
                    sum += m;
                    *to = sum;
                }
                work += ii as u64 / 32;
            }
            let add = |to: &mut [i32], from: usize, prefix: &[i32]| {
                let n = to.len();
                let (lo, hi) = (&prefix[from..from + n], &prefix[from + len..from + len + n]);
                for ((c, &l), &h) in to.iter_mut().zip(lo).zip(hi) {
                    *c += h - l;
                }
            };
            add(&mut self.row_cost[..split], from, &self.prefix);
            add(&mut self.row_cost[split..], 0, &self.prefix);
            work += ii as u64 / 128;
        }
        work
    }

    /// Cost of every start worth a look, into `cost`; the op is not in the table. Returns the first of these starts
    /// and what the present start costs.
    fn price(&mut self, model: &Model, a: usize, budget: &mut u64) -> (i32, i32) {
        let ii = model.ii as usize;
        let work = self.price_rows(model, model.pieces(a));
        *budget = budget.saturating_sub(1 + work);
        let own = self.start[a];
        let row = |t: i32| t.rem_euclid(ii as i32) as usize;
        let (first, end) = (self.member_of[a].0 as usize, self.member_of[a].1 as usize);
        let (members, ties) = (&self.members[first..end], &self.ties[first..end]);
        if members.is_empty() {
            // Alone in its component. What is tied to others has a start, and so have they.
            let base = if self.early[a] > -FAR { self.early[a] } else { 0 };
            let len = ((self.late[a] - base) as usize).min(ii - 1) + 1;
            self.cost.clear();
            let from = row(base);
            let split = (ii - from).min(len);
            self.cost.extend_from_slice(&self.row_cost[from..from + split]);
            self.cost.extend_from_slice(&self.row_cost[..len - split]);
            let old = if own == i32::MIN { 0 } else { self.row_cost[row(own)] };
            return (base, old);
        }
        let (mut lo, mut hi) = (self.early[a], self.late[a]);
        // No path is further away than any cycle.
        for (&b, &(there, back)) in members.iter().zip(ties) {
            let at = self.start[b as usize];
            lo = lo.max(at + there);
            hi = hi.min(at - back);
        }
        let wide = ii as i32;
        if lo <= -FAR / 2 {
            lo = hi.min(FAR - 1) - 2 * wide;
        }
        if hi >= FAR / 2 {
            hi = lo + 2 * wide;
        }
        let (mut base, mut last) = (lo.min(hi) - wide / 8 - 1, lo.max(hi) + wide / 8 + 1);
        base = base.max(self.early[a]);
        last = last.min(self.late[a]);
        if last - base > 2 * wide {
            // One interval to either side of where the op is.
            let centre = own.clamp(base + wide, last - wide);
            (base, last) = (centre - wide, centre + wide);
        }
        if last < base {
            last = base;
        }
        let len = (last - base + 1) as usize;
        *budget = budget.saturating_sub(1 + (len + members.len()) as u64 / 64);
        self.slope.clear();
        self.slope.resize(len + 1, 0);
        let (mut value, mut slope, mut old) = (0i32, 0i32, 0i32);
        for (&b, &(there, back)) in members.iter().zip(ties) {
            let at = self.start[b as usize];
            let (least, most) = (at + there, at - back);
            if least > base {
                value += least - base;
                slope -= 1;
                if least <= last {
                    self.slope[(least - base) as usize] += 1;
                }
            }
            old += (least - own).max(0) + (own - most).max(0);
            if most < base {
                value += base - most;
                slope += 1;
            } else if most <= last {
                self.slope[(most - base) as usize] += 1;
            }
        }
        old = old * ONE + self.row_cost[row(own)];
        self.cost.clear();
        self.cost.resize(len, 0);
        let from = row(base);
        for k in 0..len.div_ceil(ii) {
            let interval = &mut self.cost[k * ii..((k + 1) * ii).min(len)];
            let split = (ii - from).min(interval.len());
            interval[..split].copy_from_slice(&self.row_cost[from..from + split]);
            let rest = interval.len() - split;
            interval[split..].copy_from_slice(&self.row_cost[..rest]);
        }
        for (c, &s) in self.cost.iter_mut().zip(&self.slope) {
            slope += s;
            *c += value * ONE;
            value += slope;
        }
        if model.group[a] != NO_GROUP {
            let charge = self.apart;
            let group = model.group[a];
            for &b in members.iter().filter(|b| model.group[**b as usize] == group) {
                let stage = self.start[b as usize].div_euclid(wide);
                let (from, to) = ((stage * wide - base).max(0), (stage * wide + wide - base).max(0));
                let (from, to) = ((from as usize).min(len), (to as usize).min(len));
                self.cost[..from].iter_mut().for_each(|c| *c += charge);
                self.cost[to..].iter_mut().for_each(|c| *c += charge);
                if own.div_euclid(wide) != stage {
                    old += charge;
                }
            }
        }
        (base, old)
    }

    /// Cost of the whole.
    fn total(&self, model: &Model) -> i32 {
        let ii = model.ii as usize;
        let mut total = 0;
        for r in 0..model.resources {
            let cap = model.cap[r] as i32;
            total += self.count[r * ii..(r + 1) * ii].iter().map(|&c| (c - cap).max(0)).sum::<i32>() * ONE;
        }
        let wide = ii as i32;
        for a in 0..model.ops.len() {
            let (first, end) = self.member_of[a];
            for &b in &self.members[first as usize..end as usize] {
                let b = b as usize;
                let there = model.distance(a, b);
                if there > NO_PATH {
                    total += (self.start[a] + there - self.start[b]).max(0) * ONE;
                }
                let both = model.group[a] != NO_GROUP && model.group[a] == model.group[b];
                if both && b > a && self.start[a].div_euclid(wide) != self.start[b].div_euclid(wide) {
                    total += self.apart;
                }
            }
        }
        total
    }

    /// Adds (or with -1 removes) what `a` and the ops it is tied to miss of each other.
    fn count_missed(&mut self, model: &Model, a: usize, sign: i32) {
        let wide = model.ii as i32;
        let (first, end) = self.member_of[a];
        let (at, group) = (self.start[a], model.group[a]);
        let mut own = 0;
        for k in first as usize..end as usize {
            let b = self.members[k] as usize;
            let (there, (to, back)) = (self.start[b], self.ties[k]);
            let misses = at + back > there
                || there + to > at
                || group != NO_GROUP
                    && group == model.group[b]
                    && at.div_euclid(wide) != there.div_euclid(wide);
            if misses {
                self.missed[b] += sign;
                own += sign;
            }
        }
        self.missed[a] += own;
    }

    /// Ops that take part in a violation.
    fn find_conflicted(&mut self, model: &Model) {
        let (ii, words) = (model.ii, model.words);
        self.crowded.clear();
        self.hot.resize(model.resources * words, 0);
        for r in 0..model.resources {
            let (table, cap) = (&self.count[r * ii as usize..(r + 1) * ii as usize], model.cap[r] as i32);
            let crowded = table.iter().fold(false, |any, &c| any | (c > cap));
            self.crowded.push(crowded);
            if crowded {
                for (bits, rows) in self.hot[r * words..(r + 1) * words].iter_mut().zip(table.chunks(64)) {
                    *bits = rows.iter().rev().fold(0, |bits, &c| bits << 1 | u64::from(c > cap));
                }
            }
        }
        self.conflicted.clear();
        for a in 0..model.ops.len() {
            let row = self.start[a].rem_euclid(ii as i32) as u32;
            let over = model.pieces(a).iter().filter(|p| self.crowded[p.resource as usize]).any(|p| {
                let bits = &self.hot[p.resource as usize * words..(p.resource as usize + 1) * words];
                let first = (row + p.offset) % ii;
                let end = first + p.len;
                some_in(bits, first, end.min(ii)) || end > ii && some_in(bits, 0, end - ii)
            });
            if over || self.missed[a] > 0 {
                self.conflicted.push(a as u32);
            }
        }
    }
}

/// Whether one of the bits `lo..hi` is set.
fn some_in(bits: &[u64], lo: u32, hi: u32) -> bool {
    let (first, last) = (lo as usize / 64, (hi - 1) as usize / 64);
    let (head, tail) = (u64::MAX << (lo % 64), u64::MAX >> (63 - (hi - 1) % 64));
    if first == last {
        return bits[first] & head & tail != 0;
    }
    bits[first] & head != 0 || bits[first + 1..last].iter().any(|&w| w != 0) || bits[last] & tail != 0
}
