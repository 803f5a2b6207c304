//! Exact search over orders: who comes before whom on a resource, and how many intervals later.
//!
//! In: the [`Model`] at one II, windows, a budget of steps; or, for refutations only, a range of II. Out: [`Answer`]. Two
//! reservations that cannot share a row keep a difference of starts in one of the windows `m · II + lo ..= m · II + hi`;
//! a decision picks `m`. What is left is a system of difference constraints, kept closed all the time, so that a decision
//! costs the same whether a row is a slot or one of three thousand real cycles, and chains without slack are seen at once.
//! Groups are differences to the begin of a stage, an op of its own; the begins of two stages are a whole number of
//! intervals apart. Once every such pair is decided the earliest starts are tried on resources of larger capacity;
//! where a row is overfull, some pair of those that meet there must part.
//!
//! Components that nothing ties yet are tied with `m = 0`: they shift by whole stages. Interchangeable ops keep
//! their order. A range of II keeps the weaker end of each constraint: what has no solution then has none at any of them.
//!
//! Guarantee: a found schedule is legal; a refutation is a proof. Deterministic. Cost: bounded by the budget. Source:
//! precedence constraint posting (Cesta, Oddi and Smith 2002; Laborie 2005), with modular disjunctions.

use super::super::closure::NO_PATH;
use super::super::ims::{Ims, NEVER};
use super::super::problem::NO_GROUP;
use super::Answer;
use super::model::{Model, Piece};

/// Ops and stage begins of the largest problem.
const MOST: usize = 160;
/// Below this there is no path.
const NONE: i32 = NO_PATH / 2;
/// Dead ends before the first restart.
const FIRST_RUN: u32 = 64;
/// Turns of the interval that are told apart.
const TURNS: i32 = 1 << 16;
const SINGLE: u32 = u32::MAX;

/// Two reservations that never share a row: `start[b] - start[a]` is within `lo ..= hi`, plus a multiple of II.
#[derive(Copy, Clone, Debug)]
struct Pair {
    a: u32,
    b: u32,
    lo: i32,
    /// `II - less` more is the last one, or none more if the pair has to be a multiple of II apart.
    less: i32,
    fixed: bool,
}

/// `start[b] - start[a]` in `lo..=hi`.
#[derive(Copy, Clone, Debug)]
struct Window {
    a: u32,
    b: u32,
    lo: i32,
    hi: i32,
}

#[derive(Copy, Clone, Debug)]
struct Level {
    next: u32,
    end: u32,
    /// Whose weight grows when it fails.
    pair: u32,
}

/// The search and its memory.
#[derive(Default)]
pub(super) struct Order {
    /// Start of each decided op.
    pub start: Vec<i32>,
    n: usize,
    least: i32,
    most: i32,
    distance: Vec<i32>,
    saved: Vec<i32>,
    pairs: Vec<Pair>,
    /// A turn of each pair that was the only one at some time: most often it still is.
    last_turn: Vec<i32>,
    /// Pairs in the order in which they tie components.
    tying: Vec<u32>,
    weight: Vec<u32>,
    dirty: Vec<bool>,
    again: Vec<bool>,
    windows: Vec<Window>,
    levels: Vec<Level>,
    used: Vec<u32>,
    meeting: Vec<(u32, Piece)>,
    /// Where ops were in a schedule of another II, squeezed or stretched to this one.
    guide: Vec<i32>,
    guided: bool,
    /// Some branch was cut that may hold schedules.
    incomplete: bool,
}

impl Order {
    /// Searches the II of the model, or with `least` below it refutes all from there on.
    /// `guide`: starts of a schedule of another II, and that II; every other run stays near it.
    pub fn solve(
        &mut self,
        model: &Model,
        ims: &Ims,
        least: u32,
        guide: Option<(&[i64], u32)>,
        budget: &mut u64,
    ) -> Answer {
        if !self.build(model, ims, least) {
            return Answer::Unknown;
        }
        self.weight.clear();
        self.weight.resize(self.pairs.len(), 1);
        self.last_turn.clear();
        self.last_turn.resize(self.pairs.len(), 0);
        self.incomplete = false;
        let mut failures = FIRST_RUN;
        let n2 = self.n * self.n;
        *budget = budget.saturating_sub((self.pairs.len() / 8 + n2 / 64) as u64);
        if !self.tie(model, budget) {
            return Answer::Refuted;
        }
        if *budget == 0 {
            return Answer::Unknown;
        }
        self.saved.clear();
        self.saved.extend_from_slice(&self.distance);
        self.guide.clear();
        if let Some((starts, from)) = guide {
            let (from, wide) = (i64::from(from), i64::from(model.ii));
            self.guide.extend(model.ops.iter().map(|&u| {
                let t = starts[u as usize];
                (t.div_euclid(from) * wide + t.rem_euclid(from) * wide / from) as i32
            }));
        }
        self.guided = false;
        loop {
            self.guided = !self.guided && !self.guide.is_empty();
            self.distance.copy_from_slice(&self.saved[..n2]);
            self.levels.clear();
            self.windows.clear();
            let answer = self.run(model, failures, budget);
            if answer == Answer::Refuted && self.incomplete {
                return Answer::Unknown;
            }
            if answer != Answer::Unknown || *budget == 0 {
                return answer;
            }
            failures = failures.saturating_add(failures / 2);
        }
    }

    /// Distances and pairs. `false`: too large, or not for a range.
    fn build(&mut self, model: &Model, ims: &Ims, least: u32) -> bool {
        let m = model.ops.len();
        let groups = model.group.iter().filter(|&&g| g != NO_GROUP).max().map_or(0, |&g| g as usize + 1);
        self.used.clear();
        self.used.resize(groups, SINGLE);
        let mut n = m;
        for &g in model.group.iter().filter(|&&g| g != NO_GROUP) {
            if self.used[g as usize] == SINGLE {
                self.used[g as usize] = n as u32;
                n += 1;
            }
        }
        let rooted = model.rooted != u32::MAX;
        n += usize::from(rooted);
        (self.n, self.least, self.most) = (n, least as i32, model.ii as i32);
        let tied = n > m;
        let folded = (0..m).any(|a| model.pieces(a).iter().any(|p| p.offset + p.len > least));
        if n > MOST || (least < model.ii && (tied || folded)) {
            return false;
        }
        self.distance.clear();
        self.distance.resize(n * n, NO_PATH);
        for a in 0..n {
            self.distance[a * n + a] = 0;
        }
        for a in 0..m {
            for b in (0..m).filter(|&b| b != a) {
                self.distance[a * n + b] = model.distance(a, b);
            }
        }
        self.find_pairs(model);
        self.dirty.clear();
        self.dirty.resize(n, true);
        // Stage begins are a whole number of intervals apart; the root is one of them.
        for x in m..n {
            for y in x + 1..n {
                self.pairs.push(Pair { a: x as u32, b: y as u32, lo: 0, less: 0, fixed: true });
            }
        }
        for a in 0..m {
            if model.group[a] != NO_GROUP {
                let x = self.used[model.group[a] as usize] as usize;
                if !self.add(x, a, 0) || !self.add(a, x, 1 - self.most) {
                    return false;
                }
            }
            if rooted && model.component[a] == model.rooted {
                let (early, late) = model.window(ims, a);
                let early = early.min(i64::from(TURNS)) as i32;
                if !self.add(n - 1, a, early) {
                    return false;
                }
                if late < NEVER && !self.add(a, n - 1, -(late.min(1 << 28) as i32)) {
                    return false;
                }
            }
        }
        true
    }

    fn find_pairs(&mut self, model: &Model) {
        self.pairs.clear();
        for a in 0..model.ops.len() {
            for b in a + 1..model.ops.len() {
                for p in model.pieces(a) {
                    for q in model.pieces(b) {
                        let cap = model.cap[p.resource as usize];
                        if p.resource == q.resource && u64::from(p.units + q.units) > cap {
                            self.pairs.push(pair(a, p, b, q));
                        }
                    }
                }
            }
        }
    }

    /// The window of a pair at one turn.
    fn window(&self, p: &Pair, turn: i32) -> Window {
        let ends = |k: i32| if k < 0 { (self.most, self.least) } else { (self.least, self.most) };
        let lo = turn * ends(turn).0 + p.lo;
        let hi =
            if p.fixed { turn * ends(turn).1 + p.lo } else { (turn + 1) * ends(turn + 1).1 + p.lo - p.less };
        Window { a: p.a, b: p.b, lo, hi }
    }

    /// First and last turn whose window meets the distances.
    fn turns(&self, p: &Pair) -> (i32, i32) {
        let (a, b) = (p.a as usize, p.b as usize);
        let (low, high) = (self.distance[a * self.n + b], -self.distance[b * self.n + a]);
        let ii = self.most;
        let span = if p.fixed { 0 } else { ii - p.less };
        // Of a range the guess may be too narrow by some turns; the ends are walked to.
        let mut first = (low - p.lo - span).div_euclid(ii);
        let mut last = (high - p.lo).div_euclid(ii) + 1;
        if self.least < ii {
            (first, last) = (first - 2, last + 2);
        }
        while first <= last && self.window(p, first).hi < low {
            first += 1;
        }
        while first <= last && self.window(p, last).lo > high {
            last -= 1;
        }
        (first, last)
    }

    /// Whether the only turn left of a pair asks for nothing more: mostly it is the one it had the last time.
    fn settled(&self, k: usize, p: &Pair) -> bool {
        let (a, b) = (p.a as usize, p.b as usize);
        let w = self.window(p, self.last_turn[k]);
        w.lo <= self.distance[a * self.n + b] && -w.hi <= self.distance[b * self.n + a]
    }

    fn linked(&self, a: usize, b: usize) -> bool {
        self.distance[a * self.n + b] > NONE && self.distance[b * self.n + a] > NONE
    }

    fn alone(&self, a: usize) -> bool {
        let n = self.n;
        (0..n).all(|b| b == a || self.distance[a * n + b] <= NONE && self.distance[b * n + a] <= NONE)
    }

    /// `start[v] - start[u] >= w`, closed again. `false`: a contradiction.
    fn add(&mut self, u: usize, v: usize, w: i32) -> bool {
        let n = self.n;
        let back = self.distance[v * n + u];
        if back > NONE && w + back > 0 {
            return false;
        }
        if w <= self.distance[u * n + v] {
            return true;
        }
        for i in 0..n {
            let to = self.distance[i * n + u];
            if to <= NONE || to + w <= self.distance[i * n + v] {
                continue;
            }
            let via = to + w;
            self.dirty[i] = true;
            if i == v {
                // No path from `v` to itself is better than none.
                continue;
            }
            let (row, from) = if i < v {
                let (head, tail) = self.distance.split_at_mut(v * n);
                (&mut head[i * n..(i + 1) * n], &tail[..n])
            } else {
                let (head, tail) = self.distance.split_at_mut(i * n);
                (&mut tail[..n], &head[v * n..(v + 1) * n])
            };
            for (d, &f) in row.iter_mut().zip(from) {
                *d = if f > NONE { (*d).max(via + f) } else { *d };
            }
        }
        true
    }

    fn post(&mut self, w: Window) -> bool {
        self.add(w.a as usize, w.b as usize, w.lo) && self.add(w.b as usize, w.a as usize, -w.hi)
    }

    /// What pairs with one turn left ask for, until nothing changes.
    fn propagate(&mut self, budget: &mut u64) -> Result<(), u32> {
        let mut first = true;
        while first || self.dirty.contains(&true) {
            first = false;
            self.again.clear();
            self.again.extend_from_slice(&self.dirty);
            self.dirty.fill(false);
            let mut work = 4;
            for k in 0..self.pairs.len() {
                let p = self.pairs[k];
                let (a, b) = (p.a as usize, p.b as usize);
                if !self.again[a] && !self.again[b] || self.settled(k, &p) || !self.linked(a, b) {
                    continue;
                }
                work += 1;
                let (first, last) = self.turns(&p);
                if first > last {
                    return Err(k as u32);
                }
                self.last_turn[k] = first;
                let (lo, hi) = (self.window(&p, first).lo, self.window(&p, last).hi);
                if lo > self.distance[a * self.n + b] {
                    work += self.n as u64 / 2;
                    if !self.add(a, b, lo) {
                        return Err(k as u32);
                    }
                }
                if hi < -self.distance[b * self.n + a] {
                    work += self.n as u64 / 2;
                    if !self.add(b, a, -hi) {
                        return Err(k as u32);
                    }
                }
            }
            *budget = budget.saturating_sub(1 + work / 2 + self.pairs.len() as u64 / 32);
            if *budget == 0 {
                break;
            }
        }
        Ok(())
    }

    /// Ties components with each other as long as pairs reach across; interchangeable ops in order. `false`: refuted.
    fn tie(&mut self, model: &Model, budget: &mut u64) -> bool {
        // The pair that leaves least room first, from a cluster as large as possible.
        self.tying.clear();
        self.tying.extend(0..self.pairs.len() as u32);
        let pairs = &self.pairs;
        self.tying.sort_unstable_by_key(|&k| {
            let p = &pairs[k as usize];
            std::cmp::Reverse((p.fixed, p.less, k))
        });
        for k in 0..self.tying.len() {
            let p = self.pairs[self.tying[k] as usize];
            if self.linked(p.a as usize, p.b as usize) {
                continue;
            }
            *budget = budget.saturating_sub(1 + (self.n * self.n) as u64 / 1024);
            let (a, b) = (p.a as usize, p.b as usize);
            let alone = [self.alone(a), self.alone(b)];
            if !self.post(self.window(&p, 0)) {
                return false;
            }
            // Those of the class of one end follow in order, tied to the other end in the same way.
            for (hub, end, alone) in [(a, b, alone[1]), (b, a, alone[0])] {
                let class = model.class.get(end).copied().unwrap_or(SINGLE);
                if class == SINGLE || !alone || self.least < self.most {
                    continue;
                }
                let mut before = end;
                for k in end + 1..model.ops.len() {
                    if model.class[k] != class || !self.alone(k) {
                        continue;
                    }
                    let same = self.pairs.iter().find(|q| {
                        let ends = (q.a as usize, q.b as usize);
                        (ends == (hub, k) || ends == (k, hub))
                            && q.less == p.less
                            && (if q.a as usize == hub { q.lo } else { -q.lo + q.less })
                                == (if a == hub { p.lo } else { -p.lo + p.less })
                    });
                    let Some(&q) = same else { continue };
                    let turn = if (q.a as usize == hub) == (a == hub) { 0 } else { -1 };
                    if !self.post(self.window(&q, turn)) || !self.add(before, k, 0) {
                        return false;
                    }
                    before = k;
                }
            }
        }
        self.propagate(budget).is_ok()
    }

    fn run(&mut self, model: &Model, mut failures: u32, budget: &mut u64) -> Answer {
        let n2 = self.n * self.n;
        loop {
            let failed = self.propagate(budget).err();
            if *budget == 0 {
                return Answer::Unknown;
            }
            if failed.is_none() {
                let from = self.windows.len() as u32;
                let Some(pair) = self.branch(model, budget) else { return Answer::Found };
                let end = self.windows.len() as u32;
                self.levels.push(Level { next: from, end, pair });
                let at = self.levels.len() * n2;
                self.saved.truncate(at);
                self.saved.extend_from_slice(&self.distance);
            } else if let Some(k) = failed {
                self.weight[k as usize] = self.weight[k as usize].saturating_add(1);
                failures = failures.saturating_sub(1);
            }
            // The next alternative of the last decision that has one.
            loop {
                let Some(level) = self.levels.last_mut() else { return Answer::Refuted };
                if level.next == level.end {
                    let pair = level.pair;
                    self.levels.pop();
                    let end = self.levels.last().map_or(0, |l| l.end);
                    self.windows.truncate(end as usize);
                    if let Some(w) = self.weight.get_mut(pair as usize) {
                        *w = w.saturating_add(1);
                    }
                    continue;
                }
                if failures == 0 {
                    return Answer::Unknown;
                }
                let w = self.windows[level.next as usize];
                level.next += 1;
                let at = self.levels.len() * n2;
                self.distance.copy_from_slice(&self.saved[at..at + n2]);
                self.dirty.fill(false);
                *budget = budget.saturating_sub(1 + n2 as u64 / 256);
                if self.post(w) {
                    break;
                }
            }
        }
    }

    /// Alternatives of the next decision, onto the windows, the most promising first; returns the pair they are of. `None`: the starts are a schedule.
    fn branch(&mut self, model: &Model, budget: &mut u64) -> Option<u32> {
        let mut best: Option<(u64, u64, usize)> = None;
        for (k, p) in self.pairs.iter().enumerate() {
            let (a, b) = (p.a as usize, p.b as usize);
            if self.settled(k, p) {
                continue;
            }
            let (low, high) = (self.distance[a * self.n + b], -self.distance[b * self.n + a]);
            if low <= NONE || high >= -NONE {
                continue;
            }
            let (first, last) = self.turns(p);
            if first >= last {
                continue;
            }
            // Cycles the pair may still be moved by.
            let mut room = 0u64;
            for turn in first..=last.min(first + 8) {
                let w = self.window(p, turn);
                room += (w.hi.min(high) - w.lo.max(low) + 1).max(0) as u64;
            }
            let weight = u64::from(self.weight[k]);
            if best.is_none_or(|(r, w, _)| room * w < r * weight) {
                best = Some((room, weight, k));
            }
        }
        *budget = budget.saturating_sub(1 + self.pairs.len() as u64 / 12);
        let Some((_, _, k)) = best else { return self.part(model) };
        let p = self.pairs[k];
        let from = self.windows.len();
        let (first, last) = self.turns(&p);
        for turn in first..=last {
            let w = self.window(&p, turn);
            self.windows.push(w);
        }
        self.best_first(from);
        Some(k as u32)
    }

    /// Most room, or nearest to the guide.
    fn best_first(&mut self, from: usize) {
        let (n, distance) = (self.n, &self.distance);
        if self.guided {
            let guide = |a: u32| self.guide.get(a as usize).copied();
            self.windows[from..].sort_by_key(|w| match (guide(w.a), guide(w.b)) {
                (Some(a), Some(b)) => (w.lo - (b - a)).max(b - a - w.hi).max(0),
                _ => 0,
            });
            return;
        }
        self.windows[from..].sort_by_key(|w| {
            let low = distance[w.a as usize * n + w.b as usize];
            let high = -distance[w.b as usize * n + w.a as usize];
            -(i64::from(w.hi.min(high)) - i64::from(w.lo.max(low)))
        });
    }

    /// Earliest starts; where a row is overfull, who may part there. `None`: nowhere.
    fn part(&mut self, model: &Model) -> Option<u32> {
        let n = self.n;
        if self.least < self.most {
            // Nothing of single intervals is known from here on.
            self.incomplete = true;
            return Some(SINGLE);
        }
        self.start.clear();
        self.start.resize(n, i32::MIN);
        for r in 0..n {
            // A stage begin gives its cluster the time; without one it is any op.
            let r = n - 1 - r;
            if self.start[r] != i32::MIN {
                continue;
            }
            self.start[r] = 0;
            for a in 0..n {
                if a != r && self.linked(r, a) {
                    self.start[a] = self.distance[r * n + a];
                }
            }
        }
        let over = model.fullest(&self.start, &mut self.used).filter(|x| x.0 > 0);
        let (_, r, row) = over.min_by_key(|x| x.0)?;
        model.meeting(&self.start, r, row, &mut self.meeting);
        let keep = self.meeting.len();
        // Arcs that go around the whole interval meet in pairs without a row in common.
        if self.meeting.iter().map(|x| x.1.len).sum::<u32>() >= model.ii {
            self.incomplete = true;
        }
        let from = self.windows.len();
        for x in 0..keep {
            for y in x + 1..keep {
                let ((a, p), (b, q)) = (self.meeting[x], self.meeting[y]);
                if a == b || p.len + q.len > model.ii {
                    continue;
                }
                let p = pair(a as usize, &p, b as usize, &q);
                if !self.linked(a as usize, b as usize) {
                    self.windows.push(self.window(&p, 0));
                    continue;
                }
                let (first, last) = self.turns(&p);
                for turn in first..=last {
                    let w = self.window(&p, turn);
                    self.windows.push(w);
                }
            }
        }
        self.best_first(from);
        Some(SINGLE)
    }
}

/// When `q` of `b` begins after `p` of `a` ends, and ends before `p` begins again.
fn pair(a: usize, p: &Piece, b: usize, q: &Piece) -> Pair {
    let lo = (p.len + p.offset) as i32 - q.offset as i32;
    Pair { a: a as u32, b: b as u32, lo, less: (p.len + q.len) as i32, fixed: false }
}
