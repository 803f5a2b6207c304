//! Iterative modulo scheduling with eviction, for one candidate II.
//!
//! In: a problem, its graph, a reservation table reset to the II. Out: a legal start for every op, or the reason to
//! give up. Ops are placed by priority (height: the longest path to the end under this II). Each goes to the first
//! free start of its dependence window [earliest, earliest + II - 1], preferably one that leaves its placed
//! successors where they are. If there is none it is forced in, later than the last time, and what it contradicts is
//! evicted and placed again. Groups narrow the window to the stage of the members placed; depth limits give every op
//! a latest start, propagated through the dependences.
//!
//! Guarantee: what it returns is legal; an empty window is a proof that none exists, running out of budget is not. Budget in placements, so that a
//! rerun gives the same answer. Cost: O(placements · (II + degree)). Elsewhere: choosing II (`cost_based`), shorter
//! lifetimes (`compact`). Source: B. R. Rau, "Iterative modulo scheduling", 1994; spec page 4.

use super::graph::Graph;
use super::problem::{NO_GROUP, Node, Problem};
use super::rrt::Rrt;

/// No deadline.
pub(super) const NEVER: i64 = 1 << 60;
const UNPLACED: i64 = i64::MIN;
const NO_OP: u32 = u32::MAX;
/// Loops above this size, of no more rows than that, keep lists of placed ops by row.
const INDEXED: u32 = 96;
const INDEXED_ROWS: i64 = 1 << 16;
/// Placements per op without progress before an attempt ends; ops beyond [`CALM`] count less, since what stalls an
/// attempt is local.
const PATIENCE: u64 = 3;
const CALM: u64 = 256;
/// The same in a hurry.
const HASTE: u64 = 8;
/// Rounds of tightening windows through groups; windows are sound after any number of them.
const GROUP_ROUNDS: u32 = 256;

/// A stream of random numbers.
pub(super) struct SplitMix(pub u64);

impl SplitMix {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// How an attempt ended.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Every op has a legal start.
    Placed,
    /// The budget ran out; a schedule may exist.
    Exhausted,
}

/// Priority of the ops in one attempt.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Priority {
    /// Longest path to the end first.
    Height,
    /// Least slack between earliest and latest start first.
    Slack,
    /// Earliest start first.
    Early,
    /// Height, perturbed with this seed.
    Sampled(u64),
}

/// The op an attempt gave up on.
#[derive(Copy, Clone, Debug)]
pub(super) struct Stuck {
    pub node: Node,
    pub window: (i64, i64),
    pub rank: u32,
}

/// Memory of the placement, kept from one loop to the next.
#[derive(Default)]
pub(super) struct Ims {
    /// Start of each op; valid after `Outcome::Placed`.
    pub start: Vec<i64>,
    /// Earliest and latest start under any schedule at this II.
    pub early: Vec<i64>,
    pub late: Vec<i64>,
    /// Group of an op, [`NO_GROUP`] if it is alone.
    pub group: Vec<u32>,
    height: Vec<i64>,
    last_try: Vec<i64>,
    by_rank: Vec<u32>,
    rank: Vec<u32>,
    keys: Vec<(i64, i64, u32, u32)>,
    unplaced: Vec<u64>,
    group_count: Vec<u32>,
    group_stage: Vec<i64>,
    victims: Vec<u32>,
    /// Placed ops by row of their start, as lists: first of a row, then next and previous of an op. Only in large loops.
    row_first: Vec<u32>,
    row_links: Vec<(u32, u32)>,
    /// Longest reach of an op.
    reach: u32,
    near: Vec<u32>,
    /// Whether an attempt ends after a few placements without progress.
    pub hurry: bool,
    /// Whether seats without gaps are preferred on nearly full resources.
    pub snug: bool,
    /// Time runs backwards: starts are those of the mirrored loop, t stands for -1 - t in the table.
    flip: bool,
    mirrored: (Vec<i64>, Vec<i64>, Vec<i64>),
    /// Latest starts before [`Ims::limit_stages`].
    unlimited: Vec<i64>,
    pub placements: u64,
    pub evictions: u64,
    pub stuck: Option<Stuck>,
}

impl Ims {
    /// Computes windows and heights for a new II. `false`: some window is empty, so no schedule exists.
    ///
    /// `max_stages` bounds the cycle in which every op must have finished.
    pub fn prepare(&mut self, p: &Problem, g: &Graph, ii: i64, max_stages: Option<u32>) -> bool {
        let n = g.n as usize;
        self.group.clear();
        self.group.extend(p.nodes().map(|u| if p.group_size(u) > 1 { p.group_index(u) } else { NO_GROUP }));
        self.early.clear();
        self.early.resize(n, 0);
        self.late.clear();
        let mut bounded = false;
        for u in p.nodes() {
            let mut late = NEVER;
            if p.max_depth(u) > 0 {
                late = (i64::from(p.max_depth(u)) + 1) * ii - 1;
            }
            if let Some(stages) = max_stages {
                late = late.min(i64::from(stages) * ii - i64::from(p.latency(u).max(1)));
            }
            bounded |= late < NEVER;
            self.late.push(late);
        }
        self.tighten_early(g, ii);
        if bounded {
            self.tighten_late(g, ii);
        }
        if let Some(u) = (0..n).find(|&u| self.early[u] > self.late[u]) {
            let window = (self.early[u], self.late[u]);
            self.stuck = Some(Stuck { node: Node::from_u32(u as u32), window, rank: 0 });
            return false;
        }
        self.height.clear();
        self.height.extend(p.nodes().map(|u| i64::from(p.latency(u))));
        loop {
            let mut changed = false;
            for &u in g.topo.iter().rev() {
                let mut h = self.height[u as usize];
                for a in g.succ.of(u) {
                    h = h.max(self.height[a.node as usize] + a.weight(ii));
                }
                changed |= h > self.height[u as usize];
                self.height[u as usize] = h;
            }
            if !changed || !g.has_carried {
                return true;
            }
        }
    }

    /// Windows with the end of the iteration in stage `stages` at the latest, which is less than before. `false`: some
    /// window is empty.
    pub fn limit_stages(&mut self, p: &Problem, g: &Graph, ii: i64, stages: u32) -> bool {
        self.unlimited.clear();
        self.unlimited.extend_from_slice(&self.late);
        for (u, late) in p.nodes().zip(&mut self.late) {
            *late = (*late).min(i64::from(stages) * ii - i64::from(p.latency(u).max(1)));
        }
        self.tighten_late(g, ii);
        (0..g.n as usize).all(|u| self.early[u] <= self.late[u])
    }

    /// The windows before [`Ims::limit_stages`].
    pub fn lift_limit(&mut self) {
        std::mem::swap(&mut self.late, &mut self.unlimited);
    }

    /// Longest path from the start of an op to the end.
    pub fn height(&self, u: u32) -> i64 {
        self.height[u as usize]
    }

    fn tighten_early(&mut self, g: &Graph, ii: i64) {
        let mut rounds = 0;
        loop {
            let mut changed = false;
            for &u in &g.topo {
                let at = self.early[u as usize];
                for a in g.succ.of(u) {
                    let v = &mut self.early[a.node as usize];
                    if at + a.weight(ii) > *v {
                        *v = at + a.weight(ii);
                        changed = true;
                    }
                }
            }
            if g.has_groups {
                for k in 0..g.group_first.len() as u32 - 2 {
                    let latest = g.group(k).iter().map(|&m| self.early[m as usize]).max().unwrap_or(0);
                    let floor = latest.div_euclid(ii) * ii;
                    for &m in g.group(k) {
                        changed |= self.early[m as usize] < floor;
                        self.early[m as usize] = self.early[m as usize].max(floor);
                    }
                }
                rounds += 1;
            }
            if !changed || !(g.has_carried || g.has_groups) || rounds == GROUP_ROUNDS {
                return;
            }
        }
    }

    fn tighten_late(&mut self, g: &Graph, ii: i64) {
        let mut rounds = 0;
        loop {
            let mut changed = false;
            for &u in g.topo.iter().rev() {
                for a in g.succ.of(u) {
                    let late = self.late[a.node as usize];
                    // What follows without a deadline sets none.
                    if late >= NEVER {
                        continue;
                    }
                    let bound = late.saturating_sub(a.weight(ii));
                    if bound < self.late[u as usize] {
                        self.late[u as usize] = bound;
                        changed = true;
                    }
                }
            }
            if g.has_groups {
                for k in 0..g.group_first.len() as u32 - 2 {
                    let first = g.group(k).iter().map(|&m| self.late[m as usize]).min().unwrap_or(NEVER);
                    if first >= NEVER {
                        continue;
                    }
                    let ceiling = (first.div_euclid(ii) + 1) * ii - 1;
                    for &m in g.group(k) {
                        changed |= self.late[m as usize] > ceiling;
                        self.late[m as usize] = self.late[m as usize].min(ceiling);
                    }
                }
                rounds += 1;
            }
            // Once a window is empty, tightening could go on without end.
            let empty = (0..self.late.len()).any(|u| self.late[u] < self.early[u]);
            if !changed || !(g.has_carried || g.has_groups) || rounds == GROUP_ROUNDS || empty {
                return;
            }
        }
    }

    /// One attempt at placing all ops, within `budget` placements. `rrt` is freshly reset to `ii`.
    pub fn attempt(
        &mut self,
        p: &Problem,
        g: &Graph,
        rrt: &mut Rrt,
        ii: i64,
        priority: Priority,
        budget: u64,
    ) -> Outcome {
        let n = g.n as usize;
        self.rank_ops(g, ii, priority);
        self.start.clear();
        self.start.resize(n, UNPLACED);
        self.last_try.clear();
        self.last_try.resize(n, UNPLACED);
        self.group_count.clear();
        self.group_count.resize(p.num_groups(), 0);
        self.group_stage.clear();
        self.group_stage.resize(p.num_groups(), 0);
        self.unplaced.clear();
        self.unplaced.resize(n.div_ceil(64), u64::MAX);
        if !n.is_multiple_of(64) {
            self.unplaced[n / 64] = (1 << (n % 64)) - 1;
        }
        self.index_rows(g, rrt, ii);
        let mut left = budget;
        let mut word = 0;
        // Thrashing shows early: stop when the number of seated ops has not grown for a while.
        let (mut seated, mut most, mut patience) = (0i64, 0i64, 0u64);
        let patient = match self.hurry {
            true => u64::from(g.n) / 8 + HASTE,
            false => PATIENCE * u64::from(g.n).min(CALM) + u64::from(g.n) / 8 + 16,
        };
        loop {
            while word < self.unplaced.len() && self.unplaced[word] == 0 {
                word += 1;
            }
            if word == self.unplaced.len() {
                return Outcome::Placed;
            }
            let rank = word as u32 * 64 + self.unplaced[word].trailing_zeros();
            let u = self.by_rank[rank as usize];
            let (lo, hi) = self.window(g, ii, u);
            if left == 0 || patience > patient {
                self.stuck = Some(Stuck { node: Node::from_u32(u), window: (lo, hi), rank });
                return Outcome::Exhausted;
            }
            left -= 1;
            self.placements += 1;
            if let Some(t) = self.find_seat(g, rrt, ii, u, lo, hi) {
                self.seat(g, rrt, ii, u, t);
            } else {
                let scan = self.force(g, rrt, ii, u, lo);
                left = left.saturating_sub(scan);
            }
            seated += 1 - self.victims.len() as i64;
            patience = if seated > most { 0 } else { patience + 1 };
            most = most.max(seated);
            for &v in &self.victims {
                word = word.min(self.rank[v as usize] as usize / 64);
            }
            self.victims.clear();
        }
    }

    /// An attempt from the end of the iteration to its begin: `mirror` is the graph with all edges turned around. Only
    /// where no deadline ties ops to cycle 0.
    #[expect(clippy::too_many_arguments, reason = "those of an attempt, and the mirror")]
    pub fn attempt_backward(
        &mut self,
        p: &Problem,
        g: &Graph,
        mirror: &Graph,
        rrt: &mut Rrt,
        ii: i64,
        priority: Priority,
        budget: u64,
    ) -> Outcome {
        if self.late.iter().any(|&t| t < NEVER) {
            return Outcome::Exhausted;
        }
        let (mut early, mut late, mut height) = std::mem::take(&mut self.mirrored);
        early.clear();
        late.clear();
        height.clear();
        early.extend_from_slice(&self.height);
        late.resize(g.n as usize, NEVER);
        height.extend_from_slice(&self.early);
        let swap = |s: &mut Self, early: &mut Vec<i64>, late: &mut Vec<i64>, height: &mut Vec<i64>| {
            std::mem::swap(&mut s.early, early);
            std::mem::swap(&mut s.late, late);
            std::mem::swap(&mut s.height, height);
        };
        swap(self, &mut early, &mut late, &mut height);
        self.flip = true;
        let outcome = self.attempt(p, mirror, rrt, ii, priority, budget);
        self.flip = false;
        swap(self, &mut early, &mut late, &mut height);
        self.mirrored = (early, late, height);
        if outcome == Outcome::Placed {
            self.start.iter_mut().for_each(|t| *t = -1 - *t);
            // Whole stages, so that rows stay where they are.
            let first = self.start.iter().min().map_or(0, |t| t.div_euclid(ii) * ii);
            self.start.iter_mut().for_each(|t| *t -= first);
        }
        outcome
    }

    /// The table's cycle for a start.
    #[inline]
    fn cycle(&self, t: i64) -> i64 {
        if self.flip { -1 - t } else { t }
    }

    fn rank_ops(&mut self, g: &Graph, ii: i64, priority: Priority) {
        let longest = (0..g.n as usize).map(|u| self.early[u] + self.height[u]).max().unwrap_or(0);
        let mut random = SplitMix(match priority {
            Priority::Sampled(seed) => seed,
            _ => 0,
        });
        self.keys.clear();
        for u in 0..g.n {
            let (early, late) = (self.early[u as usize], self.late[u as usize]);
            let height = self.height[u as usize];
            let (first, second) = match priority {
                Priority::Height => (-height, 0),
                Priority::Slack => ((longest - height).min(late) - early, early),
                Priority::Early => (early, -height),
                Priority::Sampled(_) => {
                    let z = random.next();
                    (-height - ((z >> 33) as i64 % (ii / 2 + 2)), 0)
                }
            };
            self.keys.push((first, second, g.topo_pos[u as usize], u));
        }
        self.keys.sort_unstable();
        self.by_rank.clear();
        self.by_rank.extend(self.keys.iter().map(|k| k.3));
        self.rank.clear();
        self.rank.resize(g.n as usize, 0);
        for (i, &u) in self.by_rank.iter().enumerate() {
            self.rank[u as usize] = i as u32;
        }
    }

    /// First and last start that placed predecessors, the op's own bounds and II candidates leave.
    fn window(&self, g: &Graph, ii: i64, u: u32) -> (i64, i64) {
        let mut lo = self.early[u as usize];
        for a in g.pred.of(u) {
            let at = self.start[a.node as usize];
            if at != UNPLACED {
                lo = lo.max(at + a.weight(ii));
            }
        }
        (lo, (lo + ii - 1).min(self.late[u as usize]))
    }

    fn find_seat(&self, g: &Graph, rrt: &Rrt, ii: i64, u: u32, lo: i64, hi: i64) -> Option<i64> {
        let (mut lo, mut hi) = (lo, hi);
        let group = self.group[u as usize];
        if group != NO_GROUP && self.group_count[group as usize] > 0 {
            let first = self.group_stage[group as usize] * ii;
            (lo, hi) = (lo.max(first), hi.min(first + ii - 1));
        }
        let mut keep = hi;
        for a in g.succ.of(u) {
            let at = self.start[a.node as usize];
            if at != UNPLACED {
                keep = keep.min(at - a.weight(ii));
            }
        }
        let node = Node::from_u32(u);
        let fit = |lo: i64, hi: i64| match (self.flip, self.snug) {
            (true, _) => rrt.last_fit(node, -1 - hi, -1 - lo).map(|t| -1 - t),
            (false, true) => rrt.first_snug_fit(node, lo, hi),
            (false, false) => rrt.first_fit(node, lo, hi),
        };
        fit(lo, keep).or_else(|| fit(lo.max(keep + 1), hi))
    }

    /// Seats `u` at `t`, evicting the ops whose dependences that breaks.
    fn seat(&mut self, g: &Graph, rrt: &mut Rrt, ii: i64, u: u32, t: i64) {
        for a in g.succ.of(u) {
            let at = self.start[a.node as usize];
            if at != UNPLACED && at < t + a.weight(ii) {
                self.evict(rrt, a.node);
            }
        }
        for a in g.pred.of(u) {
            let at = self.start[a.node as usize];
            if at != UNPLACED && t < at + a.weight(ii) {
                self.evict(rrt, a.node);
            }
        }
        rrt.place(Node::from_u32(u), self.cycle(t));
        self.start[u as usize] = t;
        if !self.row_first.is_empty() {
            let row = self.cycle(t).rem_euclid(ii) as usize;
            let next = std::mem::replace(&mut self.row_first[row], u);
            self.row_links[u as usize] = (next, NO_OP);
            if next != NO_OP {
                self.row_links[next as usize].1 = u;
            }
        }
        self.last_try[u as usize] = t;
        let rank = self.rank[u as usize] as usize;
        self.unplaced[rank / 64] &= !(1 << (rank % 64));
        let group = self.group[u as usize];
        if group != NO_GROUP {
            self.group_count[group as usize] += 1;
            self.group_stage[group as usize] = t.div_euclid(ii);
        }
    }

    fn evict(&mut self, rrt: &mut Rrt, v: u32) {
        let cycle = self.cycle(self.start[v as usize]);
        rrt.remove(Node::from_u32(v), cycle);
        if !self.row_first.is_empty() {
            let (next, previous) = self.row_links[v as usize];
            let row = cycle.rem_euclid(self.row_first.len() as i64) as usize;
            match previous {
                NO_OP => self.row_first[row] = next,
                p => self.row_links[p as usize].0 = next,
            }
            if next != NO_OP {
                self.row_links[next as usize].1 = previous;
            }
        }
        self.start[v as usize] = UNPLACED;
        let rank = self.rank[v as usize] as usize;
        self.unplaced[rank / 64] |= 1 << (rank % 64);
        let group = self.group[v as usize];
        if group != NO_GROUP {
            self.group_count[group as usize] -= 1;
        }
        self.evictions += 1;
        self.victims.push(v);
    }

    /// Empties the lists of placed ops by row; small loops have none.
    fn index_rows(&mut self, g: &Graph, rrt: &Rrt, ii: i64) {
        self.row_first.clear();
        self.row_links.clear();
        self.reach = 0;
        // Rows of several cycles make ops meet that do not share one.
        if g.n <= INDEXED || ii > INDEXED_ROWS || !rrt.is_exact() {
            return;
        }
        self.reach = (0..g.n).map(|u| rrt.reach(Node::from_u32(u))).max().unwrap_or(0);
        if i64::from(self.reach) * 4 < ii {
            self.row_first.resize(ii as usize, NO_OP);
            self.row_links.resize(g.n as usize, (NO_OP, NO_OP));
        }
    }

    /// Placed ops that `node`, seated there, could meet, into `near`; least important first.
    fn find_near(&mut self, g: &Graph, rrt: &Rrt, node: Node, seat: i64) {
        self.near.clear();
        if self.row_first.is_empty() {
            self.near.extend(self.by_rank[..g.n as usize].iter().rev());
            return;
        }
        let rows = self.row_first.len() as i64;
        let mut row = (seat - i64::from(self.reach)).rem_euclid(rows) as usize;
        for _ in 0..self.reach + rrt.reach(node) {
            let mut v = self.row_first[row];
            while v != NO_OP {
                self.near.push(v);
                v = self.row_links[v as usize].0;
            }
            row = if row + 1 == self.row_first.len() { 0 } else { row + 1 };
        }
        let rank = &self.rank;
        self.near.sort_unstable_by_key(|&v| std::cmp::Reverse(rank[v as usize]));
    }

    /// Seats `u` although nothing is free, one cycle later than the last time. Returns the extra work in placements.
    fn force(&mut self, g: &Graph, rrt: &mut Rrt, ii: i64, u: u32, lo: i64) -> u64 {
        let i = u as usize;
        let mut t =
            if self.last_try[i] == UNPLACED || lo > self.last_try[i] { lo } else { self.last_try[i] + 1 };
        if t > self.late[i] {
            // Past the deadline: begin again at the earliest start, predecessors have to move.
            t = if self.last_try[i] == self.late[i] { self.early[i] } else { self.late[i] };
        }
        let group = self.group[i];
        if group != NO_GROUP
            && self.group_count[group as usize] > 0
            && self.group_stage[group as usize] != t.div_euclid(ii)
        {
            for &m in g.group(group) {
                if m != u && self.start[m as usize] != UNPLACED {
                    self.evict(rrt, m);
                }
            }
        }
        let node = Node::from_u32(u);
        let mut scan = 0;
        let seat = self.cycle(t);
        if !rrt.fits(node, seat) {
            // Least important first: with capacity above 1 not all that meet it have to go.
            self.find_near(g, rrt, node, seat);
            for k in 0..self.near.len() {
                let v = self.near[k];
                let at = self.start[v as usize];
                if at != UNPLACED && rrt.meet(node, seat, Node::from_u32(v), self.cycle(at)) {
                    self.evict(rrt, v);
                    if rrt.fits(node, seat) {
                        break;
                    }
                }
            }
            scan = u64::from(g.n) / 32;
        }
        self.seat(g, rrt, ii, u, t);
        scan
    }
}
