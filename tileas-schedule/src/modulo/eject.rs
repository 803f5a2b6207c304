//! Ejection search for a schedule at one II: ops that have a start never contradict one another, and an op without one
//! takes the start that costs least, from which it drives out the ops in its way.
//!
//! In: the [`Model`], windows, a budget of steps. Out: whether every op got a start; they are in [`Eject::start`]. Each
//! op has a weight, which grows by one whenever it finds no free start; a start costs the weights of those it drives out,
//! so that ops that are hard to place end up staying where they are. All starts of an op are priced at once: what meets it
//! on a resource or is too near or too far is a range of starts, ranges are added as differences, and one pass sums them.
//! On resources with room for several the price is an estimate (rows that are full, by the mean weight and length of what
//! is there), and what has to leave is found row by row, light ones first. Ops without slack between them are one op. A
//! search begins with the starts of a schedule of a larger II, squeezed, as far as they are free, or with large ops first.
//!
//! Guarantee: what it calls found is legal; failure proves nothing. Deterministic: the same seed makes the same moves.
//! Cost: one step per 64 rows or ranges priced. Source: guided ejection search (Nagata and Bräysy, 2009, for vehicle
//! routing), here without a bound on how many are driven out and without moves of the others in between: neither
//! finds more here.

use super::model::{Model, Piece};
use crate::closure::{FAR, NO_PATH};
use crate::problem::NO_GROUP;
use crate::random::SplitMix;
use crate::windows::{NEVER, Windows};
use std::ops::Range;

/// Start of an op that has none.
const OUT: i32 = i32::MIN;
/// Weights above this are halved, all of them: sums stay small.
const HEAVY: i32 = 1 << 16;

/// A piece of an op on a resource.
#[derive(Copy, Clone, Default)]
struct Held {
    /// First row, 0 where it has none.
    at: u32,
    len: u32,
    /// Weight of the op, 0 while it has no start.
    weight: i32,
    op: u32,
    offset: u32,
}

/// An op of the same component, the least distance from there and the least distance back.
#[derive(Copy, Clone)]
struct Tie {
    op: u32,
    there: i32,
    back: i32,
}

/// The search and its memory.
#[derive(Default)]
pub(super) struct Eject {
    /// Start of each decided op.
    pub start: Vec<i32>,
    early: Vec<i32>,
    late: Vec<i32>,
    weight: Vec<i32>,
    /// Ops without a start.
    pool: Vec<u32>,
    /// By resource: its pieces, in `held`.
    held_of: Vec<(u32, u32)>,
    held: Vec<Held>,
    /// By op: where its pieces are in `held`.
    own_of: Vec<(u32, u32)>,
    own: Vec<u32>,
    tie_of: Vec<(u32, u32)>,
    ties: Vec<Tie>,
    /// Units held by row, of resources with room for several; the others have none.
    count: Vec<u32>,
    /// Costs by row, and of the starts looked at.
    rows: Vec<i32>,
    cost: Vec<i32>,
    order: Vec<(u32, u32)>,
}

fn range(of: (u32, u32)) -> Range<usize> {
    of.0 as usize..of.1 as usize
}

impl Eject {
    /// Searches; `budget` is what may be used and becomes what is left.
    pub fn solve(
        &mut self,
        model: &Model,
        windows: &Windows,
        warm: Option<(&[i64], u32)>,
        seed: u64,
        budget: &mut u64,
    ) -> bool {
        let mut random = SplitMix(seed);
        self.begin(model, windows);
        self.insert_all(model, warm, &mut random, budget);
        while !self.pool.is_empty() {
            if *budget == 0 {
                return false;
            }
            let pick = below(&mut random, self.pool.len());
            let a = self.pool.swap_remove(pick) as usize;
            let base = self.price(model, a, budget);
            let (least, at) = self.cheapest(&mut random);
            let at = base + at as i32;
            if least > 0 {
                self.weigh(model, a);
                self.drive_out(model, a, at);
            }
            self.put(model, a, at);
        }
        true
    }

    /// The least cost, and which start has it; drawn where several have.
    fn cheapest(&self, random: &mut SplitMix) -> (i32, usize) {
        let least = self.cost.iter().fold(i32::MAX, |least, &c| least.min(c));
        let count = self.cost.iter().map(|&c| u32::from(c == least)).sum::<u32>();
        let pick = below(random, count as usize);
        let at = self.cost.iter().enumerate().filter(|c| *c.1 == least).nth(pick);
        (least, at.map_or(0, |c| c.0))
    }

    fn begin(&mut self, model: &Model, windows: &Windows) {
        let (m, ii) = (model.ops.len(), model.ii as usize);
        self.start.clear();
        self.start.resize(m, OUT);
        self.weight.clear();
        self.weight.resize(m, 1);
        self.early.clear();
        self.late.clear();
        self.ties.clear();
        self.tie_of.clear();
        for a in 0..m {
            let (early, late) = model.window(windows, a);
            let rooted = model.component[a] == model.rooted;
            self.early.push(if rooted { early.min(FAR.into()) as i32 } else { -FAR });
            self.late.push(if rooted && late < NEVER { late.min(FAR.into()) as i32 } else { FAR });
            let first = self.ties.len() as u32;
            let mates = (0..m).filter(|&b| b != a && model.component[b] == model.component[a]);
            self.ties.extend(mates.map(|b| Tie {
                op: b as u32,
                there: model.distance(b, a),
                back: model.distance(a, b),
            }));
            self.tie_of.push((first, self.ties.len() as u32));
        }
        // Pieces by resource: how many, then where.
        self.held_of.clear();
        self.held_of.resize(model.resources, (0, 0));
        for p in (0..m).flat_map(|a| model.pieces(a)) {
            self.held_of[p.resource as usize].1 += 1;
        }
        let mut sum = 0;
        for of in &mut self.held_of {
            sum += of.1;
            *of = (sum - of.1, sum - of.1);
        }
        self.held.clear();
        self.held.resize(sum as usize, Held::default());
        self.own.clear();
        self.own_of.clear();
        for a in 0..m {
            let first = self.own.len() as u32;
            for p in model.pieces(a) {
                let end = &mut self.held_of[p.resource as usize].1;
                self.own.push(*end);
                let Piece { offset, len, .. } = *p;
                self.held[*end as usize] = Held { at: 0, len, weight: 0, op: a as u32, offset };
                *end += 1;
            }
            self.own_of.push((first, self.own.len() as u32));
        }
        self.count.clear();
        self.count.resize(model.resources * ii, 0);
    }

    /// The first starts: those of the schedule, squeezed, or the next free ones; without a schedule large ops first.
    fn insert_all(
        &mut self,
        model: &Model,
        warm: Option<(&[i64], u32)>,
        random: &mut SplitMix,
        budget: &mut u64,
    ) {
        let wide = i64::from(model.ii);
        self.order.clear();
        self.order.extend((0..model.ops.len()).map(|a| {
            let area: u32 = model.pieces(a).iter().map(|p| p.len * p.units).sum();
            (u32::MAX - area, a as u32)
        }));
        self.order.sort_unstable();
        self.pool.clear();
        for k in 0..self.order.len() {
            let a = self.order[k].1 as usize;
            let base = self.price(model, a, budget);
            let free = match warm {
                None => Some(self.cheapest(random)).filter(|c| c.0 == 0).map(|c| c.1 as i32),
                Some((starts, from)) => {
                    let (t, from) = (starts[model.ops[a] as usize], i64::from(from));
                    let at = t.div_euclid(from) * wide + t.rem_euclid(from) * wide / from;
                    let at = at.clamp(self.early[a].into(), self.late[a].into()) as i32 - base;
                    let free = self.cost.iter().enumerate().filter(|c| *c.1 == 0).map(|c| c.0 as i32);
                    free.min_by_key(|t| (t - at).abs())
                }
            };
            match free {
                Some(t) => self.put(model, a, base + t),
                None => self.pool.push(a as u32),
            }
        }
    }

    /// Gives an op a start.
    fn put(&mut self, model: &Model, a: usize, t: i32) {
        self.start[a] = t;
        let row = t.rem_euclid(model.ii as i32) as u32;
        for &k in &self.own[range(self.own_of[a])] {
            let held = &mut self.held[k as usize];
            held.at = (row + held.offset) % model.ii;
            held.weight = self.weight[a];
        }
        self.add(model, a, 1);
    }

    /// Takes it away.
    fn take(&mut self, model: &Model, a: usize) {
        self.add(model, a, u32::MAX);
        self.start[a] = OUT;
        for &k in &self.own[range(self.own_of[a])] {
            self.held[k as usize].weight = 0;
        }
        self.pool.push(a as u32);
    }

    /// Adds units to the rows an op holds where there is room for several, `times` 1 or -1, modulo 2^32.
    fn add(&mut self, model: &Model, a: usize, times: u32) {
        let ii = model.ii as usize;
        for (p, &k) in model.pieces(a).iter().zip(&self.own[range(self.own_of[a])]) {
            if model.unit[p.resource as usize] {
                continue;
            }
            let rows = &mut self.count[p.resource as usize * ii..(p.resource as usize + 1) * ii];
            let (first, units) = (self.held[k as usize].at as usize, p.units.wrapping_mul(times));
            let end = first + p.len as usize;
            rows[first..end.min(ii)].iter_mut().for_each(|c| *c = c.wrapping_add(units));
            rows[..end.saturating_sub(ii)].iter_mut().for_each(|c| *c = c.wrapping_add(units));
        }
    }

    /// An op found no free start.
    fn weigh(&mut self, model: &Model, a: usize) {
        self.weight[a] += 1;
        if self.weight[a] <= HEAVY {
            return;
        }
        for b in 0..model.ops.len() {
            self.weight[b] = (self.weight[b] / 2).max(1);
            for &k in &self.own[range(self.own_of[b])] {
                let held = &mut self.held[k as usize];
                held.weight = if held.weight == 0 { 0 } else { self.weight[b] };
            }
        }
    }

    /// Costs by row, for an op that has no start.
    fn price_rows(&mut self, model: &Model, a: usize) -> u64 {
        let (ii, mut work) = (model.ii as usize, 0);
        self.rows.clear();
        self.rows.resize(ii + 1, 0);
        for p in model.pieces(a).iter().filter(|p| model.unit[p.resource as usize]) {
            let held = &self.held[range(self.held_of[p.resource as usize])];
            work += held.len() as u64;
            // From the start at which it ends where the other begins to the one at which it begins where that ends.
            let back = ((p.offset + p.len - 1) % model.ii) as i32;
            for h in held {
                let wide = (h.len + p.len - 1) as usize;
                if wide >= ii {
                    self.rows[0] += h.weight;
                    continue;
                }
                let lo = h.at as i32 - back;
                let lo = if lo < 0 { lo + ii as i32 } else { lo } as usize;
                let mut hi = lo + wide;
                self.rows[lo] += h.weight;
                if hi >= ii {
                    hi -= ii;
                    self.rows[0] += h.weight;
                }
                self.rows[hi] -= h.weight;
            }
        }
        let mut sum = 0;
        for c in &mut self.rows[..ii] {
            sum += *c;
            *c = sum;
        }
        for p in model.pieces(a).iter().filter(|p| !model.unit[p.resource as usize]) {
            let r = p.resource as usize;
            let held = &self.held[range(self.held_of[r])];
            let (weights, lens) = held
                .iter()
                .filter(|h| h.weight > 0)
                .fold((1, 1), |(w, l), h| (w + i64::from(h.weight), l + u64::from(h.len)));
            let present = held.len() as u64 + 1;
            let mean = (weights / present as i64).max(1) as i32;
            let each = (i64::from(mean) * present as i64 / lens as i64).max(1) as i32;
            let room = (model.cap[r] as u32).saturating_sub(p.units);
            let rows = &self.count[r * ii..(r + 1) * ii];
            work += 2 * ii as u64;
            let full = |k: usize| i32::from(rows[k % ii] > room);
            let first = p.offset as usize % ii;
            let mut here: i32 = (first..first + p.len as usize).map(full).sum();
            for (k, c) in self.rows[..ii].iter_mut().enumerate() {
                if here > 0 {
                    *c += mean + (here - 1) * each;
                }
                here += full(first + k + p.len as usize) - full(first + k);
            }
        }
        work + ii as u64
    }

    /// Costs of an op that has no start, of all starts worth a look; returns the first of these.
    fn price(&mut self, model: &Model, a: usize, budget: &mut u64) -> i32 {
        let ii = model.ii as i32;
        let mut work = self.price_rows(model, a);
        let ties = &self.ties[range(self.tie_of[a])];
        let (mut lo, mut hi, mut tied) = (self.early[a], self.late[a], false);
        // No path is further away than any cycle.
        for tie in ties {
            let at = self.start[tie.op as usize];
            if at != OUT {
                tied = true;
                lo = lo.max(at + tie.there);
                hi = hi.min(at - tie.back);
            }
        }
        if !tied {
            // What deadlines do not bind may stand in any stage.
            let base = if self.early[a] > -FAR { self.early[a] } else { 0 };
            let len = (self.late[a] - base).clamp(0, ii - 1) as usize + 1;
            self.fill(base, len, ii);
            *budget = budget.saturating_sub(1 + (work + len as u64) / 64);
            return base;
        }
        if lo <= -FAR / 2 {
            lo = hi.min(FAR - 1) - ii;
        }
        if hi >= FAR / 2 {
            hi = lo + ii;
        }
        let (mut base, mut last) = (lo.min(hi) - ii / 8 - 1, lo.max(hi) + ii / 8 + 1);
        if hi - lo >= ii {
            // Every row is free of ties somewhere in here.
            (base, last) = (lo, lo + ii - 1);
        }
        base = base.max(self.early[a]);
        last = last.min(self.late[a]).max(base);
        if last - base > 2 * ii {
            let centre = base + (last - base) / 2;
            (base, last) = (centre - ii, centre + ii);
        }
        let len = (last - base + 1) as usize;
        self.cost.clear();
        self.cost.resize(len + 1, 0);
        let index = |t: i32| (t - base).clamp(0, len as i32) as usize;
        let group = model.group[a];
        for tie in ties {
            let at = self.start[tie.op as usize];
            if at == OUT {
                continue;
            }
            let weight = self.weight[tie.op as usize];
            let mut outside = |lo: i32, end: i32| {
                self.cost[0] += weight;
                self.cost[index(lo)] -= weight;
                self.cost[index(end)] += weight;
            };
            outside(at + tie.there, at - tie.back + 1);
            if group != NO_GROUP && group == model.group[tie.op as usize] {
                let stage = at.div_euclid(ii) * ii;
                outside(stage, stage + ii);
            }
        }
        let mut sum = 0;
        for c in &mut self.cost {
            sum += *c;
            *c = sum;
        }
        self.cost.truncate(len);
        let from = base.rem_euclid(ii) as usize;
        let (head, tail) = self.cost.split_at_mut((ii as usize - from).min(len));
        let add = |to: &mut [i32], rows: &[i32]| to.iter_mut().zip(rows).for_each(|(c, &r)| *c += r);
        add(head, &self.rows[from..]);
        tail.chunks_mut(ii as usize).for_each(|interval| add(interval, &self.rows));
        work += (len + 2 * ties.len()) as u64;
        *budget = budget.saturating_sub(1 + work / 64);
        base
    }

    /// The costs of rows as those of starts.
    fn fill(&mut self, base: i32, len: usize, ii: i32) {
        let from = base.rem_euclid(ii) as usize;
        let split = (ii as usize - from).min(len);
        self.cost.clear();
        self.cost.extend_from_slice(&self.rows[from..from + split]);
        self.cost.extend_from_slice(&self.rows[..len - split]);
    }

    /// Ops that an op at `t` meets, or is too near to or too far from, lose their starts.
    fn drive_out(&mut self, model: &Model, a: usize, t: i32) {
        let ii = model.ii;
        for k in range(self.tie_of[a]) {
            let Tie { op, there, back } = self.ties[k];
            let at = self.start[op as usize];
            if at == OUT {
                continue;
            }
            let apart = model.group[a] != NO_GROUP
                && model.group[a] == model.group[op as usize]
                && at.div_euclid(ii as i32) != t.div_euclid(ii as i32);
            let early = there > NO_PATH && t < at + there;
            if early || back > NO_PATH && t > at - back || apart {
                self.take(model, op as usize);
            }
        }
        let row = t.rem_euclid(ii as i32) as u32;
        for p in model.pieces(a) {
            let (of, first) = (range(self.held_of[p.resource as usize]), (row + p.offset) % ii);
            if model.unit[p.resource as usize] {
                for k in of {
                    let h = self.held[k];
                    let meets = since(h.at, first, ii) < h.len || since(first, h.at, ii) < p.len;
                    if meets && h.weight > 0 {
                        self.take(model, h.op as usize);
                    }
                }
                continue;
            }
            let table = p.resource as usize * ii as usize;
            for step in 0..p.len {
                let r = (first + step) % ii;
                while u64::from(self.count[table + r as usize] + p.units) > model.cap[p.resource as usize] {
                    let there = of.clone().filter(|&k| {
                        let h = self.held[k];
                        h.weight > 0 && since(h.at, r, ii) < h.len
                    });
                    let Some(k) = there.min_by_key(|&k| (self.held[k].weight, k)) else { break };
                    self.take(model, self.held[k].op as usize);
                }
            }
        }
    }
}

/// Rows from one to the next time of the other.
fn since(from: u32, to: u32, ii: u32) -> u32 {
    if to >= from { to - from } else { to + ii - from }
}

/// A number below `n`, 0 for 0.
fn below(random: &mut SplitMix, n: usize) -> usize {
    (random.next() >> 33) as usize % n.max(1)
}
