//! Exact search over orders: which op comes before which on a resource, and how many intervals later. One window per op.
//!
//! In: the [`Model`] at one II, op windows, a guide, a budget of steps. Out: [`Answer`]. The largest component stands
//! still (or the one that deadlines tie to cycle 0 does), every other one has its first op within one interval: components
//! shift by whole stages. So each op has a window of starts, and two ops that share a resource have a difference of starts that must be
//! in one of a few *gaps between collisions*, repeated every II. A decision cuts such a list of gaps in two; windows and
//! the differences' bounds then shrink until nothing moves: along dependences (those that no two others imply) and
//! pairs. The pair with the least room for its weight, the number of dead ends it took part in, is cut next, on the
//! side where the deepest search so far (at first the guide) had it; after so many dead ends it all begins again.
//! A group is a bound on differences to the begin of a stage, an op of its own; the begins of two stages are a whole number of
//! intervals apart. Where all pairs are decided, the earliest starts are a schedule, unless a resource of larger capacity is overfull
//! somewhere: then two of the ops that meet there must part.
//!
//! A decision costs the same whether a row is a slot or one of three thousand real cycles. Contradictions between orders are
//! seen when windows see them, not before: closed distances between all pairs see them earlier, at ops² per decision, and
//! found less in the same steps (docs/schedule-quality.md).
//!
//! Guarantee: a found schedule is legal; a refutation is a proof. Deterministic. Cost: bounded by the budget, one step
//! per [`LOOKS`] pairs looked at. Source: weighted degrees and solution-guided restarts for
//! disjunctive scheduling (Grimes and Hebrard 2010), with modular disjunctions.

use super::Answer;
use super::model::{Model, Piece};
use crate::closure::{FAR, MAX_OPS, NO_PATH};
use crate::problem::NO_GROUP;
use crate::random::SplitMix;
use crate::windows::{NEVER, Windows};

/// Pairs of the largest problem.
const MOST: usize = 1 << 16;
/// Pairs looked at for one step.
const LOOKS: u64 = 4;
/// Pairs looked at for one step when the next decision is chosen.
const SCANNED: u64 = 64 * LOOKS;
/// Dead ends before the first restart; each run may have a third more than the one before.
const FIRST_RUN: u64 = 100;
/// No bound.
const WIDE: i32 = FAR / 2;
/// The distance where there is no path: twice that is still a number.
const NOWHERE: i32 = i32::MIN / 2;
/// The room of a pair with one gap left.
const DECIDED: f32 = f32::INFINITY;
/// "No index": of an op, a pair, a number.
const NONE: u32 = u32::MAX;

/// Two ops whose difference of starts, `start[b] - start[a]`, is bounded, and keeps to the gaps if the pair is `hard`. Half
/// a cache line: looking at pairs is most of the search.
#[derive(Copy, Clone, Debug)]
#[repr(align(32))]
struct Pair {
    a: u8,
    b: u8,
    hard: bool,
    /// There is more than one gap in an interval.
    several: bool,
    /// Bounds of the difference.
    low: i32,
    high: i32,
    /// Gaps that held the ends of the difference's range when they were last looked for.
    first: (i32, i32),
    last: (i32, i32),
    /// Its gaps: their number, then they.
    gaps: u32,
}
const _: () = assert!(MAX_OPS <= 256 && size_of::<Pair>() == 32);

impl Pair {
    fn ops(&self) -> (usize, usize) {
        (self.a.into(), self.b.into())
    }
}

/// What a trail entry restores.
#[derive(Copy, Clone, Debug)]
enum Old {
    Early,
    Late,
    Low,
    High,
    Hard,
    Live,
    Room,
}

/// One decision.
#[derive(Copy, Clone, Debug)]
struct Level {
    trail: u32,
    pair: u32,
    /// End of the gap in front of the cut, begin of the one behind it.
    cut: (i32, i32),
    /// The side in front was taken first.
    front: bool,
    /// Whether both sides were taken. For a meeting of ops, pairs `next..end` of [`Orders::parting`] are still to be tried.
    done: bool,
    next: u32,
    end: u32,
}

/// Why propagation ended.
enum Stop {
    /// A window or the range of this pair is empty.
    Dead(u32),
    OutOfSteps,
}

/// The search and its memory.
#[derive(Default)]
pub(super) struct Orders {
    /// Earliest start of each op: a schedule after [`Answer::Found`].
    pub early: Vec<i32>,
    late: Vec<i32>,
    ii: i32,
    pairs: Vec<Pair>,
    gaps: Vec<(i32, i32)>,
    weight: Vec<u32>,
    /// Pairs of each op, and dependences to and from it: ranges, then lists.
    pairs_at: Vec<u32>,
    pair_list: Vec<u32>,
    /// End of the part of each list that can still change anything, and where a pair stands in the lists of its two ops.
    live: Vec<u32>,
    place: Vec<[u32; 2]>,
    /// Bounds of each pair that dependences imply.
    implied: Vec<(i32, i32)>,
    arcs_at: Vec<u32>,
    arcs: Vec<(u32, i32)>,
    back_at: Vec<u32>,
    back: Vec<(u32, i32)>,
    /// Starts between the outer ends of a pair's range and the gaps it may end up in; [`DECIDED`] where that is one gap.
    room: Vec<f32>,
    /// One by the weight of a pair.
    patience: Vec<f32>,
    /// Pairs that are hard from the beginning: the first ones. Those that became hard, in this order.
    hard: usize,
    hardened: Vec<u32>,
    /// Hard pairs with more than one gap left.
    undecided: usize,
    trail: Vec<(Old, u32, i32)>,
    /// Ops whose window moved: first their dependences are looked at, which are few, then their pairs.
    queue: Vec<u32>,
    later: Vec<u32>,
    queued: Vec<[bool; 2]>,
    levels: Vec<Level>,
    parting: Vec<u32>,
    /// Starts of the deepest search so far.
    guide: Vec<i32>,
    fewest: usize,
    /// Some resource holds more than one of the ops that use it.
    shared: bool,
    /// Begin of the stage that an op shares with its group.
    stage_of: Vec<u32>,
    /// Some branch was cut that may hold schedules.
    incomplete: bool,
    // Scratch.
    soft: Vec<Pair>,
    leaving: Vec<i32>,
    arriving: Vec<i32>,
    heads: Vec<u32>,
    area: Vec<u64>,
    taken: Vec<(i32, i32)>,
    used: Vec<u32>,
    meeting: Vec<(u32, Piece)>,
    links: Vec<(u32, u32, i32)>,
}

impl Orders {
    /// Searches the II of the model. `guide`: starts of a schedule of another II, and that II.
    pub fn solve(
        &mut self,
        model: &Model,
        windows: &Windows,
        guide: Option<(&[i64], u32)>,
        seed: u64,
        budget: &mut u64,
    ) -> Answer {
        self.ii = model.ii as i32;
        self.open_windows(model, windows);
        if !self.open_stages(model) {
            return Answer::TooLarge;
        }
        match self.find_pairs(model) {
            Some(true) => {}
            Some(false) => return Answer::Refuted,
            None => return Answer::Unknown,
        }
        self.find_arcs(model);
        // Ops, and behind them the begins of stages.
        let n = self.early.len();
        *budget = budget.saturating_sub((self.pairs.len() / 4 + n * n / 64) as u64);
        self.index(n);
        self.take_guide(model, guide);
        self.begin(n);
        let mut random = SplitMix(seed);
        match self.propagate(budget) {
            Ok(()) => {}
            Err(Stop::Dead(_)) => return Answer::Refuted,
            Err(Stop::OutOfSteps) => return Answer::Unknown,
        }
        // What holds without decisions is kept.
        self.trail.clear();
        let mut failures = FIRST_RUN;
        loop {
            let answer = self.run(model, failures, &mut random, budget);
            if answer == Answer::Refuted && self.incomplete {
                return Answer::Unknown;
            }
            if let (Answer::Found, Some(&begin)) = (answer, self.early.get(model.ops.len())) {
                // Rows are rotated so that stages begin in the first one.
                let shift = begin.rem_euclid(self.ii);
                self.early.iter_mut().for_each(|t| *t -= shift);
            }
            if answer != Answer::Unknown || *budget == 0 {
                return answer;
            }
            self.undo(0);
            self.levels.clear();
            self.parting.clear();
            failures = failures.saturating_add(failures / 3);
        }
    }

    /// Windows of all ops: those of one component around its first op.
    fn open_windows(&mut self, model: &Model, windows: &Windows) {
        let m = model.ops.len();
        self.area.clear();
        self.area.resize(model.components, 0);
        for a in 0..m {
            let own: u32 = model.pieces(a).iter().map(|p| p.len * p.units).sum();
            // Recurrences first: they have the least freedom.
            self.area[model.component[a] as usize] += u64::from(own) + (1 << 32);
        }
        self.heads.clear();
        self.heads.resize(model.components, NONE);
        for a in 0..m {
            let head = &mut self.heads[model.component[a] as usize];
            let size = |a: usize| model.pieces(a).iter().map(|p| p.len * p.units).sum::<u32>();
            if *head == NONE || size(a) > size(*head as usize) {
                *head = a as u32;
            }
        }
        let largest = (0..m).max_by_key(|&a| (self.area[model.component[a] as usize], m - a));
        let still =
            if model.rooted != u32::MAX { model.rooted } else { largest.map_or(0, |a| model.component[a]) };
        self.early.clear();
        self.late.clear();
        for a in 0..m {
            let c = model.component[a];
            let head = self.heads[c as usize] as usize;
            let room = if c == still { 0 } else { self.ii - 1 };
            let (mut early, mut late) = (model.distance(head, a), room - model.distance(a, head));
            if head == a {
                (early, late) = (0, room);
            }
            if c == model.rooted {
                let (least, most) = model.window(windows, a);
                early = least.min(i64::from(WIDE)) as i32;
                late = if most < NEVER { most.min(i64::from(WIDE)) as i32 } else { WIDE };
            }
            self.early.push(early);
            self.late.push(late);
        }
    }

    /// Begins of stages: one for each group, and cycle 0 where deadlines tie something to it. `false`: too many.
    fn open_stages(&mut self, model: &Model) -> bool {
        let m = model.ops.len();
        self.stage_of.clear();
        self.stage_of.resize(m, NONE);
        for a in 0..m {
            let group = model.group[a];
            if group == NO_GROUP || self.stage_of[a] != NONE {
                continue;
            }
            let (mut early, mut late) = (-WIDE, WIDE);
            for b in (a..m).filter(|&b| model.group[b] == group) {
                self.stage_of[b] = self.early.len() as u32;
                early = early.max(self.early[b] - (self.ii - 1));
                late = late.min(self.late[b]);
            }
            self.early.push(early);
            self.late.push(late);
        }
        if self.early.len() > m && model.rooted != u32::MAX {
            self.early.push(0);
            self.late.push(0);
        }
        self.early.len() <= MAX_OPS
    }

    /// Pairs and their gaps. `Some(false)`: two ops collide wherever they are; `None`: too many pairs.
    fn find_pairs(&mut self, model: &Model) -> Option<bool> {
        let (m, ii) = (model.ops.len(), self.ii);
        self.pairs.clear();
        self.soft.clear();
        self.gaps.clear();
        self.shared = false;
        for a in 0..m {
            for b in a + 1..m {
                self.taken.clear();
                for p in model.pieces(a) {
                    for q in model.pieces(b).iter().filter(|q| q.resource == p.resource) {
                        let from = p.offset as i32 - q.offset as i32 - q.len as i32 + 1;
                        let taken = (from.rem_euclid(ii), (p.len + q.len) as i32 - 1);
                        if u64::from(p.units) + u64::from(q.units) > model.cap[p.resource as usize] {
                            self.taken.push(taken);
                        } else {
                            self.shared = true;
                            self.add_pair(model, a, b, &[taken], false);
                        }
                    }
                }
                let mut taken = std::mem::take(&mut self.taken);
                taken.sort_unstable();
                let fits = taken.is_empty() || self.add_pair(model, a, b, &taken, true);
                self.taken = taken;
                if !fits {
                    return Some(false);
                }
                if self.pairs.len() + self.soft.len() > MOST {
                    return None;
                }
            }
        }
        // Stages begin a whole number of intervals apart.
        let n = self.early.len();
        for (x, y) in (m..n).flat_map(|x| (x + 1..n).map(move |y| (x, y))) {
            let gaps = self.gaps.len() as u32;
            self.gaps.extend([(1, 0), (0, 0)]);
            let (a, b, none) = (x as u8, y as u8, (1, 0));
            let (low, high, several, hard) = (-WIDE, WIDE, false, true);
            self.pairs.push(Pair { a, b, low, high, first: none, last: none, gaps, several, hard });
        }
        self.hard = self.pairs.len();
        self.pairs.append(&mut self.soft);
        Some(true)
    }

    /// A pair with the gaps that these collisions leave: sorted begins in one interval, and lengths. `false`: none is left, and the
    /// pair is hard.
    fn add_pair(&mut self, model: &Model, a: usize, b: usize, taken: &[(i32, i32)], hard: bool) -> bool {
        let (ii, gaps) = (self.ii, self.gaps.len());
        self.gaps.push((0, 0));
        // From the end of the first collision on, one interval.
        let end = taken[0].0 + ii;
        let mut at = taken[0].0;
        // Ends that wrap.
        let wraps = taken.iter().map(|&(from, len)| from + len - ii).max().unwrap_or(0);
        at = at.max(wraps);
        for &(from, len) in taken {
            if from > at {
                self.gaps.push((at, from - 1));
            }
            at = at.max(from + len);
        }
        if at < end {
            self.gaps.push((at, end - 1));
        }
        let count = self.gaps.len() - gaps - 1;
        if count == 0 {
            // A soft pair without gaps can never part.
            return !hard;
        }
        let (mut low, mut high) = (-WIDE, WIDE);
        if model.component[a] == model.component[b] {
            let (there, back) = (model.distance(a, b), model.distance(b, a));
            low = if there > NO_PATH { there.max(-WIDE) } else { -WIDE };
            high = if back > NO_PATH { (-back).min(WIDE) } else { WIDE };
        }
        let none = (1, 0);
        self.gaps[gaps].0 = count as i32;
        let (gaps, a, b, several) = (gaps as u32, a as u8, b as u8, count > 1);
        let pair = Pair { a, b, low, high, first: none, last: none, gaps, several, hard };
        if hard {
            self.pairs.push(pair)
        } else {
            self.soft.push(pair)
        }
        true
    }

    /// Dependences inside components that no two others imply; interchangeable ops in order.
    fn find_arcs(&mut self, model: &Model) {
        let m = model.ops.len();
        self.links.clear();
        // Distances by row and by column, without those of an op to itself.
        self.leaving.clear();
        self.arriving.clear();
        for (a, b) in (0..m).flat_map(|a| (0..m).map(move |b| (a, b))) {
            let far = |a: usize, b: usize| match a != b && model.component[a] == model.component[b] {
                true if model.distance(a, b) > NO_PATH => model.distance(a, b),
                _ => NOWHERE,
            };
            self.leaving.push(far(a, b));
            self.arriving.push(far(b, a));
        }
        for a in 0..m {
            for b in 0..m {
                let far = self.leaving[a * m + b];
                if far == NOWHERE {
                    continue;
                }
                let (from, to) = (&self.leaving[a * m..][..m], &self.arriving[b * m..][..m]);
                // Many at once, then a look at whether it is over.
                let implied = from.chunks(32).zip(to.chunks(32)).any(|(from, to)| {
                    from.iter().zip(to).fold(false, |hit, (one, two)| hit | (one + two >= far))
                });
                if !implied {
                    self.links.push((a as u32, b as u32, far));
                }
            }
            if self.stage_of[a] != NONE {
                self.links.push((self.stage_of[a], a as u32, 0));
                self.links.push((a as u32, self.stage_of[a], 1 - self.ii));
            }
            let class = model.class[a];
            if class != u32::MAX && (class as usize) < a {
                let before = (0..a).rev().find(|&b| model.class[b] == class || b == class as usize);
                self.links.extend(before.map(|b| (b as u32, a as u32, 0)));
            }
        }
    }

    /// Lists of pairs and dependences by op.
    fn index(&mut self, m: usize) {
        fn fill<T: Copy + Default>(
            at: &mut Vec<u32>,
            list: &mut Vec<T>,
            m: usize,
            items: impl Iterator<Item = (u32, T)> + Clone,
        ) {
            at.clear();
            at.resize(m + 1, 0);
            items.clone().for_each(|(op, _)| at[op as usize] += 1);
            let mut sum = 0;
            for n in at.iter_mut() {
                sum += *n;
                *n = sum;
            }
            list.clear();
            list.resize(sum as usize, T::default());
            for (op, item) in items {
                at[op as usize] -= 1;
                list[at[op as usize] as usize] = item;
            }
        }
        let links = self.links.iter();
        fill(&mut self.arcs_at, &mut self.arcs, m, links.clone().map(|&(a, b, far)| (a, (b, far))));
        fill(&mut self.back_at, &mut self.back, m, links.map(|&(a, b, far)| (b, (a, far))));
        let ends =
            self.pairs.iter().enumerate().flat_map(|(k, p)| [(p.a.into(), k as u32), (p.b.into(), k as u32)]);
        fill(&mut self.pairs_at, &mut self.pair_list, m, ends);
        self.live.clear();
        self.live.extend_from_slice(&self.pairs_at[1..]);
        self.implied.clear();
        self.implied.extend(self.pairs.iter().map(|p| (p.low, p.high)));
        self.place.clear();
        self.place.resize(self.pairs.len(), [0; 2]);
        for v in 0..m {
            for i in self.pairs_at[v]..self.pairs_at[v + 1] {
                let k = self.pair_list[i as usize] as usize;
                self.place[k][usize::from(usize::from(self.pairs[k].b) == v)] = i;
            }
        }
    }

    /// Where a schedule of another II had the ops, each component in the interval its window is in.
    fn take_guide(&mut self, model: &Model, guide: Option<(&[i64], u32)>) {
        self.guide.clear();
        let Some((starts, from)) = guide else { return };
        let (from, wide) = (i64::from(from), i64::from(self.ii));
        let at = |a: usize| {
            let t = starts[model.ops[a] as usize];
            t.div_euclid(from) * wide + t.rem_euclid(from) * wide / from
        };
        let still = (0..model.ops.len()).find(|&a| {
            self.heads[model.component[a] as usize] as usize == a && self.early[a] == self.late[a]
        });
        let origin = still.map_or(0, at);
        for a in 0..model.ops.len() {
            let head = self.heads[model.component[a] as usize] as usize;
            let base = (at(head) - origin - i64::from(self.early[head])).div_euclid(wide);
            self.guide.push((at(a) - origin - base * wide) as i32);
        }
    }

    fn begin(&mut self, m: usize) {
        self.weight.clear();
        self.weight.resize(self.pairs.len(), 1);
        self.patience.clear();
        self.patience.resize(self.pairs.len(), 1.0);
        self.room.clear();
        self.room.resize(self.hard, 0.0);
        self.room.resize(self.pairs.len(), DECIDED);
        self.undecided = self.hard;
        self.hardened.clear();
        self.trail.clear();
        self.levels.clear();
        self.parting.clear();
        self.queue.clear();
        self.queue.extend(0..m as u32);
        self.later.clear();
        self.later.extend(0..m as u32);
        self.queued.clear();
        self.queued.resize(m, [true; 2]);
        self.fewest = usize::MAX;
        self.incomplete = false;
    }

    fn undo(&mut self, to: usize) {
        while self.trail.len() > to {
            let Some((what, k, old)) = self.trail.pop() else { break };
            let k = k as usize;
            match what {
                Old::Early => self.early[k] = old,
                Old::Late => self.late[k] = old,
                Old::Low => self.pairs[k].low = old,
                Old::High => self.pairs[k].high = old,
                Old::Live => self.live[k] = old as u32,
                Old::Room => self.put_room(k, f32::from_bits(old as u32)),
                Old::Hard => {
                    self.pairs[k].hard = false;
                    self.hardened.pop();
                }
            }
        }
        for &v in self.queue.iter().chain(&self.later) {
            self.queued[v as usize] = [false; 2];
        }
        self.queue.clear();
        self.later.clear();
    }

    fn push(&mut self, v: u32) {
        let [soon, later] = std::mem::replace(&mut self.queued[v as usize], [true; 2]);
        if !soon {
            self.queue.push(v);
        }
        if !later {
            self.later.push(v);
        }
    }

    #[inline]
    fn raise(&mut self, v: u32, least: i32) -> bool {
        let old = self.early[v as usize];
        if least <= old {
            return true;
        }
        self.trail.push((Old::Early, v, old));
        self.early[v as usize] = least;
        self.push(v);
        least <= self.late[v as usize]
    }

    #[inline]
    fn lower(&mut self, v: u32, most: i32) -> bool {
        let old = self.late[v as usize];
        if most >= old {
            return true;
        }
        self.trail.push((Old::Late, v, old));
        self.late[v as usize] = most;
        self.push(v);
        self.early[v as usize] <= most
    }

    /// Range of the difference that windows and bounds leave.
    #[inline]
    fn range(&self, p: &Pair) -> (i32, i32) {
        let (a, b) = p.ops();
        (p.low.max(self.early[b] - self.late[a]), p.high.min(self.late[b] - self.early[a]))
    }

    fn gaps_of(&self, p: &Pair) -> &[(i32, i32)] {
        let from = p.gaps as usize;
        &self.gaps[from + 1..from + 1 + self.gaps[from].0 as usize]
    }

    /// The first gap that ends at `x` or later.
    fn gap_from(&self, p: &Pair, x: i32) -> (i32, i32) {
        let gaps = self.gaps_of(p);
        let base = (x - gaps[0].0).div_euclid(self.ii) * self.ii;
        let k = gaps.partition_point(|g| g.1 < x - base);
        let (base, gap) = gaps.get(k).map_or((base + self.ii, gaps[0]), |&g| (base, g));
        (gap.0 + base, gap.1 + base)
    }

    /// The last gap that begins at `x` or earlier.
    fn gap_to(&self, p: &Pair, x: i32) -> (i32, i32) {
        let gaps = self.gaps_of(p);
        let base = (x - gaps[0].0).div_euclid(self.ii) * self.ii;
        let k = gaps.partition_point(|g| g.0 <= x - base) - 1;
        (gaps[k].0 + base, gaps[k].1 + base)
    }

    /// Gaps at both ends of a range; `false`: it holds none.
    fn find_gaps(&mut self, k: u32, low: i32, high: i32) -> bool {
        let mut p = self.pairs[k as usize];
        if low < p.first.0 || low > p.first.1 {
            p.first = self.gap_from(&p, low);
        }
        if p.first.0 > high {
            return false;
        }
        if high < p.last.0 || high > p.last.1 {
            p.last = if high <= p.first.1 { p.first } else { self.gap_to(&p, high) };
        }
        let to = &mut self.pairs[k as usize];
        (to.first, to.last) = (p.first, p.last);
        p.last.1 >= low
    }

    /// Shrinks the range of a pair, and the windows of its ops with it.
    #[inline]
    fn revise(&mut self, k: u32) -> bool {
        let p = self.pairs[k as usize];
        let (mut low, mut high) = self.range(&p);
        if low > high {
            return false;
        }
        if p.hard {
            if !self.find_gaps(k, low, high) {
                return false;
            }
            let p = &self.pairs[k as usize];
            let (first, last) = (p.first.0, p.last.1);
            if first > low {
                low = first;
                self.set_low(k, low);
            }
            if last < high {
                high = last;
                self.set_high(k, high);
            }
        } else if p.low == -WIDE && p.high == WIDE {
            return true;
        }
        let (a, b) = p.ops();
        let fits = self.raise(b as u32, self.early[a] + low)
            && self.lower(b as u32, self.late[a] + high)
            && self.raise(a as u32, self.early[b] - high)
            && self.lower(a as u32, self.late[b] - low);
        if fits && p.hard {
            let p = &self.pairs[k as usize];
            if p.first == p.last {
                self.set_room(k, DECIDED);
                self.retire(k);
            } else {
                // What lies between the outer gaps counts half.
                let inner = if p.several { (p.last.0 - p.first.1) / 2 } else { 0 };
                let room = (p.first.1 - low + 1) + (high - p.last.0 + 1) + inner;
                self.set_room(k, room as f32);
            }
        }
        fits
    }

    fn set_room(&mut self, k: u32, room: f32) {
        let old = self.room[k as usize];
        if old != room {
            self.trail.push((Old::Room, k, old.to_bits() as i32));
            self.put_room(k as usize, room);
        }
    }

    fn put_room(&mut self, k: usize, room: f32) {
        let old = std::mem::replace(&mut self.room[k], room);
        match (old == DECIDED, room == DECIDED) {
            (false, true) => self.undecided -= 1,
            (true, false) => self.undecided += 1,
            _ => {}
        }
    }

    /// Takes a pair from the lists of its ops if windows and dependences alone keep it in one gap.
    fn retire(&mut self, k: u32) {
        let p = &self.pairs[k as usize];
        let (a, b) = p.ops();
        let (low, high) = self.implied[k as usize];
        let from = self.early[b] - self.late[a];
        let to = self.late[b] - self.early[a];
        if (p.low > from && p.low > low) || (p.high < to && p.high < high) {
            return;
        }
        for (side, v) in [(0, a), (1, b)] {
            let last = self.live[v] - 1;
            let at = self.place[k as usize][side];
            if at > last {
                return;
            }
            let other = self.pair_list[last as usize];
            self.pair_list.swap(at as usize, last as usize);
            self.place[other as usize][usize::from(usize::from(self.pairs[other as usize].b) == v)] = at;
            self.place[k as usize][side] = last;
            self.trail.push((Old::Live, v as u32, (last + 1) as i32));
            self.live[v] = last;
        }
    }

    fn set_low(&mut self, k: u32, low: i32) {
        let p = &mut self.pairs[k as usize];
        self.trail.push((Old::Low, k, p.low));
        p.low = low;
    }

    fn set_high(&mut self, k: u32, high: i32) {
        let p = &mut self.pairs[k as usize];
        self.trail.push((Old::High, k, p.high));
        p.high = high;
    }

    /// What dependences and pairs ask for, until nothing changes.
    fn propagate(&mut self, budget: &mut u64) -> Result<(), Stop> {
        let (mut head, mut work) = (0, 0u64);
        let most = budget.saturating_mul(LOOKS);
        let range = |at: &[u32], v: u32| at[v as usize] as usize..at[v as usize + 1] as usize;
        let mut stop = None;
        'all: loop {
            if let Some(v) = self.queue.pop() {
                self.queued[v as usize][0] = false;
                let (arcs, back) = (range(&self.arcs_at, v), range(&self.back_at, v));
                work += 1 + (arcs.len() + back.len()) as u64 / 2;
                for i in arcs {
                    let (to, far) = self.arcs[i];
                    if !self.raise(to, self.early[v as usize] + far) {
                        stop = Some(Stop::Dead(NONE));
                        break 'all;
                    }
                }
                for i in back {
                    let (from, far) = self.back[i];
                    if !self.lower(from, self.late[v as usize] - far) {
                        stop = Some(Stop::Dead(NONE));
                        break 'all;
                    }
                }
                continue;
            }
            let Some(&v) = self.later.get(head) else { break };
            head += 1;
            self.queued[v as usize][1] = false;
            let mut i = self.pairs_at[v as usize];
            work += 1 + u64::from(self.live[v as usize] - i);
            while i < self.live[v as usize] {
                let k = self.pair_list[i as usize];
                if !self.revise(k) {
                    stop = Some(Stop::Dead(k));
                    break 'all;
                }
                // Where it was taken out another one has its place.
                i += u32::from(self.pair_list[i as usize] == k);
            }
            if work >= most {
                stop = Some(Stop::OutOfSteps);
                break;
            }
            if head > 256 && head * 2 > self.later.len() {
                self.later.drain(..head);
                head = 0;
            }
        }
        *budget = budget.saturating_sub(1 + work / LOOKS);
        self.later.drain(..head);
        match stop {
            Some(stop) => Err(stop),
            None => Ok(()),
        }
    }

    /// A pair took part in a dead end.
    fn blame(&mut self, k: u32, by: u32) {
        if let Some(w) = self.weight.get_mut(k as usize) {
            *w = w.saturating_add(by);
            self.patience[k as usize] = 1.0 / *w as f32;
        }
    }

    fn propagate_if(&mut self, ok: bool, budget: &mut u64) -> Result<(), Stop> {
        if !ok {
            return Err(Stop::Dead(NONE));
        }
        self.propagate(budget)
    }

    fn run(&mut self, model: &Model, mut failures: u64, random: &mut SplitMix, budget: &mut u64) -> Answer {
        loop {
            let Some(level) = self.branch(model, random, budget) else { return Answer::Found };
            if *budget == 0 {
                return Answer::Unknown;
            }
            self.levels.push(level);
            // The decision on top, the other sides of those below where it fails.
            loop {
                let Some(&level) = self.levels.last() else { return Answer::Refuted };
                let k = level.pair;
                let ok = if k != NONE {
                    let first = level.next == 0;
                    let side = level.front == first;
                    if let Some(top) = self.levels.last_mut() {
                        (top.next, top.done) = (1, !first);
                    }
                    let (low, high) = self.range(&self.pairs[k as usize]);
                    if side {
                        self.set_high(k, level.cut.0);
                        level.cut.0 >= low && self.revise(k)
                    } else {
                        self.set_low(k, level.cut.1);
                        level.cut.1 <= high && self.revise(k)
                    }
                } else if level.next < level.end {
                    let k = self.parting[level.next as usize];
                    if let Some(top) = self.levels.last_mut() {
                        (top.next, top.done) = (level.next + 1, level.next + 1 == level.end);
                    }
                    self.trail.push((Old::Hard, k, 0));
                    self.pairs[k as usize].hard = true;
                    self.hardened.push(k);
                    self.revise(k)
                } else {
                    false
                };
                match self.propagate_if(ok, budget) {
                    Ok(()) => break,
                    Err(Stop::OutOfSteps) => return Answer::Unknown,
                    Err(Stop::Dead(failed)) => {
                        self.blame(failed, 1);
                    }
                }
                failures = failures.saturating_sub(1);
                // Back to the last decision with a side left.
                loop {
                    let Some(&Level { trail, pair, done, end, .. }) = self.levels.last() else {
                        return Answer::Refuted;
                    };
                    self.undo(trail as usize);
                    self.blame(pair, 2);
                    if !done {
                        break;
                    }
                    self.levels.pop();
                    self.parting.truncate(self.levels.last().map_or(0, |l| l.end.min(end)) as usize);
                }
                if failures == 0 {
                    return Answer::Unknown;
                }
            }
        }
    }

    /// The next decision. `None`: the earliest starts are a schedule.
    fn branch(&mut self, model: &Model, random: &mut SplitMix, budget: &mut u64) -> Option<Level> {
        *budget = budget.saturating_sub(1 + (self.hard + self.hardened.len()) as u64 / SCANNED);
        if self.undecided < self.fewest {
            self.fewest = self.undecided;
            self.guide.clear();
            self.guide.extend_from_slice(&self.early);
        }
        if self.undecided == 0 {
            return self.part(model);
        }
        let k = self.tightest(random);
        let p = self.pairs[k as usize];
        let (low, high) = self.range(&p);
        let there = self.find_gaps(k, low, high);
        debug_assert!(there, "propagation leaves a gap");
        let p = self.pairs[k as usize];
        let (low, high) = self.range(&p);
        let wish = match (self.guide.get(usize::from(p.a)), self.guide.get(usize::from(p.b))) {
            (Some(&a), Some(&b)) => b - a,
            _ => low + (high - low) / 2,
        };
        // The collision nearest to where the guide is; it is on one side of it.
        let mut cut = (p.first.1, self.gap_from(&p, p.first.1 + 1).0);
        if cut.1 != p.last.0 && wish > cut.0 {
            let before = self.gap_to(&p, wish.min(p.last.0 - 1));
            cut = (before.1, self.gap_from(&p, before.1 + 1).0);
            if wish < before.0 + (before.1 - before.0) / 2 && before.0 > p.first.1 {
                let ahead = self.gap_to(&p, before.0 - 1);
                cut = (ahead.1, before.0);
            }
        }
        let front = wish - cut.0 <= cut.1 - wish;
        let (trail, end) = (self.trail.len() as u32, self.parting.len() as u32);
        Some(Level { trail, pair: k, cut, front, done: false, next: 0, end })
    }

    /// The undecided pair with the least room for its weight; one of them.
    fn tightest(&self, random: &mut SplitMix) -> u32 {
        // Numbers that are not negative are ordered as their bits are.
        let score = |k: usize| (self.room[k] * self.patience[k]).to_bits() as i32;
        let scores = self.room[..self.hard].iter().zip(&self.patience[..self.hard]);
        let mut best = scores.fold(i32::MAX, |best, (r, w)| best.min((r * w).to_bits() as i32));
        best = self.hardened.iter().fold(best, |best, &k| best.min(score(k as usize)));
        let from = if self.hard == 0 { 0 } else { (random.next() % self.hard as u64) as usize };
        let mut all = (from..self.hard).chain(0..from).chain(self.hardened.iter().map(|&k| k as usize));
        all.find(|&k| score(k) == best).unwrap_or(0) as u32
    }

    /// Where a row is overfull at the earliest starts, which pairs may be ordered there. `None`: nowhere.
    fn part(&mut self, model: &Model) -> Option<Level> {
        if !self.shared {
            return None;
        }
        // Of equals the first resource.
        let over = model.fullest(&self.early, &mut self.used).filter(|x| x.0 > 0);
        let (_, r, row) = over.max_by_key(|x| (x.0, u32::MAX - x.1))?;
        model.meeting(&self.early, r, row, &mut self.meeting);
        let (keep, ii) = (self.meeting.len(), self.ii);
        let from = self.parting.len() as u32;
        let is_in = |a: u8| self.meeting.iter().any(|x| x.0 == u32::from(a));
        let mut found = 0;
        for (k, p) in self.pairs.iter().enumerate() {
            if p.hard || !is_in(p.a) || !is_in(p.b) {
                continue;
            }
            // A soft pair is about one piece of each: those that meet here.
            let (low, high) = self.gap_at(p);
            let apart = self.early[usize::from(p.b)] - self.early[usize::from(p.a)];
            let inside = (apart - low).rem_euclid(ii) > high - low;
            if inside && self.about(model, p, r) {
                self.parting.push(k as u32);
                found += 1;
            }
        }
        // Arcs that go around the whole interval meet in pairs without a row in common; pieces of one op cannot part.
        let long: u64 = self.meeting.iter().map(|x| u64::from(self.longest(model, x.0, r))).sum();
        if found < keep * (keep - 1) / 2 || long >= u64::from(model.ii) {
            self.incomplete = true;
        }
        let end = self.parting.len() as u32;
        Some(Level {
            trail: self.trail.len() as u32,
            pair: NONE,
            cut: (0, 0),
            front: true,
            done: from == end,
            next: from,
            end,
        })
    }

    /// The only gap of a soft pair.
    fn gap_at(&self, p: &Pair) -> (i32, i32) {
        self.gaps[p.gaps as usize + 1]
    }

    /// Whether a soft pair stands for pieces on this resource.
    fn about(&self, model: &Model, p: &Pair, r: u32) -> bool {
        let (from, to) = self.gap_at(p);
        let of = |a: u8| model.pieces(a.into()).iter().filter(move |p| p.resource == r);
        of(p.a).any(|x| {
            of(p.b).any(|y| {
                let first = (x.offset as i32 - y.offset as i32 - y.len as i32 + 1).rem_euclid(self.ii);
                to + 1 == first + self.ii && from == first + (x.len + y.len) as i32 - 1
            })
        })
    }

    fn longest(&self, model: &Model, a: u32, r: u32) -> u32 {
        let of = model.pieces(a as usize).iter().filter(|p| p.resource == r);
        of.map(|p| p.len).max().unwrap_or(0)
    }
}
