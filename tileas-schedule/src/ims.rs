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
//! rerun gives the same answer. Cost: O(placements · (II + degree)). Elsewhere: choosing II (`modulo`, `ladder`), shorter
//! lifetimes (`modulo`). Source: B. R. Rau, "Iterative modulo scheduling", 1994; spec page 4.

use crate::entities::Node;
use crate::graph::Graph;
use crate::problem::{NO_GROUP, Problem};
use crate::table::Table;
use crate::windows::{Stuck, Windows};
use fixedbitset::FixedBitSet;

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

/// How an attempt ended.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Every op has a legal start.
    Placed,
    /// The budget ran out; a schedule may exist.
    Exhausted,
}

/// Memory of the placement, kept from one loop to the next.
#[derive(Default)]
pub(crate) struct Ims {
    /// Start of each op; valid after `Outcome::Placed`.
    pub start: Vec<i64>,
    last_try: Vec<i64>,
    by_rank: Vec<u32>,
    rank: Vec<u32>,
    keys: Vec<(i64, u32, u32)>,
    unplaced: FixedBitSet,
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
    pub placements: u64,
    pub evictions: u64,
}

impl Ims {
    /// One attempt at placing all ops, within `budget` placements. `table` is freshly reset to `ii`.
    #[expect(
        clippy::too_many_arguments,
        reason = "a loop with its graph, windows and table, and what an attempt may use"
    )]
    pub fn attempt(
        &mut self,
        p: &Problem,
        g: &Graph,
        w: &Windows,
        table: &mut Table,
        ii: i64,
        budget: u64,
        stuck: &mut Option<Stuck>,
    ) -> Outcome {
        let n = g.n as usize;
        self.rank_ops(g, w);
        self.start.clear();
        self.start.resize(n, UNPLACED);
        self.last_try.clear();
        self.last_try.resize(n, UNPLACED);
        self.group_count.clear();
        self.group_count.resize(p.num_groups(), 0);
        self.group_stage.clear();
        self.group_stage.resize(p.num_groups(), 0);
        self.unplaced.clear();
        self.unplaced.grow(n);
        self.unplaced.insert_range(..n);
        self.index_rows(g, table, ii);
        let mut left = budget;
        // Thrashing shows early: stop when the number of placed ops has not grown for a while.
        let (mut placed, mut most, mut patience) = (0i64, 0i64, 0u64);
        let patient = match self.hurry {
            true => u64::from(g.n) / 8 + HASTE,
            false => PATIENCE * u64::from(g.n).min(CALM) + u64::from(g.n) / 8 + 16,
        };
        loop {
            let Some(rank) = self.unplaced.minimum() else { return Outcome::Placed };
            let u = self.by_rank[rank];
            let rank = rank as u32;
            let (lo, hi) = self.window(g, w, ii, u);
            if left == 0 || patience > patient {
                *stuck = Some(Stuck { node: Node::from_u32(u), window: (lo, hi), rank });
                return Outcome::Exhausted;
            }
            left -= 1;
            self.placements += 1;
            if let Some(t) = self.find_start(g, w, table, ii, u, (lo, hi)) {
                self.place(g, w, table, ii, u, t);
            } else {
                let scan = self.force(g, w, table, ii, u, lo);
                left = left.saturating_sub(scan);
            }
            placed += 1 - self.victims.len() as i64;
            patience = if placed > most { 0 } else { patience + 1 };
            most = most.max(placed);
            self.victims.clear();
        }
    }

    /// Priority: the longest path to the end first.
    fn rank_ops(&mut self, g: &Graph, w: &Windows) {
        self.keys.clear();
        self.keys.extend((0..g.n).map(|u| (-w.height(u), g.topo_pos[u as usize], u)));
        self.keys.sort_unstable();
        self.by_rank.clear();
        self.by_rank.extend(self.keys.iter().map(|k| k.2));
        self.rank.clear();
        self.rank.resize(g.n as usize, 0);
        for (i, &u) in self.by_rank.iter().enumerate() {
            self.rank[u as usize] = i as u32;
        }
    }

    /// First and last start that placed predecessors, the op's own bounds and II candidates leave.
    fn window(&self, g: &Graph, w: &Windows, ii: i64, u: u32) -> (i64, i64) {
        let mut lo = w.early[u as usize];
        for a in g.pred.of(u) {
            let at = self.start[a.node as usize];
            if at != UNPLACED {
                lo = lo.max(at + a.weight(ii));
            }
        }
        (lo, (lo + ii - 1).min(w.late[u as usize]))
    }

    fn find_start(
        &self,
        g: &Graph,
        w: &Windows,
        table: &Table,
        ii: i64,
        u: u32,
        (mut lo, mut hi): (i64, i64),
    ) -> Option<i64> {
        let group = w.group[u as usize];
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
        // Preferably without gaps on nearly full resources.
        let fit = |lo: i64, hi: i64| table.first_snug_fit(node, lo, hi);
        fit(lo, keep).or_else(|| fit(lo.max(keep + 1), hi))
    }

    /// Places `u` at `t`, evicting the ops whose dependences that breaks.
    fn place(&mut self, g: &Graph, w: &Windows, table: &mut Table, ii: i64, u: u32, t: i64) {
        for a in g.succ.of(u) {
            let at = self.start[a.node as usize];
            if at != UNPLACED && at < t + a.weight(ii) {
                self.evict(w, table, a.node);
            }
        }
        for a in g.pred.of(u) {
            let at = self.start[a.node as usize];
            if at != UNPLACED && t < at + a.weight(ii) {
                self.evict(w, table, a.node);
            }
        }
        table.place(Node::from_u32(u), t);
        self.start[u as usize] = t;
        if !self.row_first.is_empty() {
            let row = t.rem_euclid(ii) as usize;
            let next = std::mem::replace(&mut self.row_first[row], u);
            self.row_links[u as usize] = (next, NO_OP);
            if next != NO_OP {
                self.row_links[next as usize].1 = u;
            }
        }
        self.last_try[u as usize] = t;
        let rank = self.rank[u as usize] as usize;
        self.unplaced.remove(rank);
        let group = w.group[u as usize];
        if group != NO_GROUP {
            self.group_count[group as usize] += 1;
            self.group_stage[group as usize] = t.div_euclid(ii);
        }
    }

    fn evict(&mut self, w: &Windows, table: &mut Table, v: u32) {
        let cycle = self.start[v as usize];
        table.remove(Node::from_u32(v), cycle);
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
        self.unplaced.insert(rank);
        let group = w.group[v as usize];
        if group != NO_GROUP {
            self.group_count[group as usize] -= 1;
        }
        self.evictions += 1;
        self.victims.push(v);
    }

    /// Empties the lists of placed ops by row; small loops have none.
    fn index_rows(&mut self, g: &Graph, table: &Table, ii: i64) {
        self.row_first.clear();
        self.row_links.clear();
        self.reach = 0;
        // Rows of several cycles make ops meet that do not share one.
        if g.n <= INDEXED || ii > INDEXED_ROWS || !table.is_exact() {
            return;
        }
        self.reach = (0..g.n).map(|u| table.reach(Node::from_u32(u))).max().unwrap_or(0);
        if i64::from(self.reach) * 4 < ii {
            self.row_first.resize(ii as usize, NO_OP);
            self.row_links.resize(g.n as usize, (NO_OP, NO_OP));
        }
    }

    /// Placed ops that `node`, placed there, could meet, into `near`; least important first.
    fn find_near(&mut self, g: &Graph, table: &Table, node: Node, start: i64) {
        self.near.clear();
        if self.row_first.is_empty() {
            self.near.extend(self.by_rank[..g.n as usize].iter().rev());
            return;
        }
        let rows = self.row_first.len() as i64;
        let mut row = (start - i64::from(self.reach)).rem_euclid(rows) as usize;
        for _ in 0..self.reach + table.reach(node) {
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

    /// Places `u` although nothing is free, one cycle later than the last time. Returns the extra work in placements.
    fn force(&mut self, g: &Graph, w: &Windows, table: &mut Table, ii: i64, u: u32, lo: i64) -> u64 {
        let i = u as usize;
        let mut t =
            if self.last_try[i] == UNPLACED || lo > self.last_try[i] { lo } else { self.last_try[i] + 1 };
        if t > w.late[i] {
            // Past the deadline: begin again at the earliest start, predecessors have to move.
            t = if self.last_try[i] == w.late[i] { w.early[i] } else { w.late[i] };
        }
        let group = w.group[i];
        if group != NO_GROUP
            && self.group_count[group as usize] > 0
            && self.group_stage[group as usize] != t.div_euclid(ii)
        {
            for &m in g.group(group) {
                if m != u && self.start[m as usize] != UNPLACED {
                    self.evict(w, table, m);
                }
            }
        }
        let node = Node::from_u32(u);
        let mut scan = 0;
        if !table.fits(node, t) {
            // Least important first: with capacity above 1 not all that meet it have to go.
            self.find_near(g, table, node, t);
            for k in 0..self.near.len() {
                let v = self.near[k];
                let at = self.start[v as usize];
                if at != UNPLACED && table.meet(node, t, Node::from_u32(v), at) {
                    self.evict(w, table, v);
                    if table.fits(node, t) {
                        break;
                    }
                }
            }
            scan = u64::from(g.n) / 32;
        }
        self.place(g, w, table, ii, u, t);
        scan
    }
}
