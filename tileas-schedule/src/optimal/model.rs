//! What must hold of starts at one II, as variables with windows and constraints between them.
//!
//! In: a problem, its graph, an II and a [`Goal`]. Out: a [`Model`], or that no schedule exists, or that the model would be
//! too large. Nothing here knows a solver.
//!
//! Whether an II is possible is a question about rows (starts modulo II) wherever dependences leave stages free: a stage
//! more for everything behind a dependence satisfies it. Only *components* tie stages: ops that dependences connect in
//! both directions, groups, and all ops with a deadline (those are tied to cycle 0). So [`Goal::Rows`] has one variable
//! per op of a component, counted from the begin of the stage of one of its ops, a row for every other op that a
//! resource restricts, and none for the rest. [`Goal::Within`] asks for starts below a deadline and has a variable for
//! every op, counted from cycle 0.
//!
//! Guarantee: a schedule of this II (and deadline) exists exactly if the model has a solution; [`Model::extend`] makes
//! starts of the rows of a solution. Cost: O(ops² · II) for pairs of ops on one resource. Source: the rules of
//! `tileas-schedule/1`; the windows are those of a difference system.

use crate::graph::Graph;
use crate::options::ScheduleOptions;
use crate::problem::Problem;

/// "Has none".
pub(super) const NONE: u32 = u32::MAX;
/// No deadline, no path.
pub(super) const NEVER: i64 = 1 << 40;
/// Largest number of ops; components are found by walks over all of them.
const MAX_OPS: usize = 1024;
/// Largest II.
const MAX_II: u32 = 1 << 16;
/// Largest number of values of all variables together, of forbidden ranges, and of entries of counted rows.
pub(super) const MAX_VALUES: u64 = 1_500_000;
pub(super) const MAX_RANGES: usize = 400_000;
pub(super) const MAX_ENTRIES: usize = 2_000_000;
/// Ops of a component that are tried as its reference.
pub(super) const REFERENCES: usize = 32;

/// What is asked of the starts.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Goal {
    /// Any schedule of the II.
    Rows,
    /// All ops start before `start_end`, and their results are there before `finish_end`.
    Within { start_end: i64, finish_end: i64 },
}

/// Why there is no model.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum NoModel {
    /// No schedule exists: windows are empty, or an op does not fit beside itself.
    Refuted,
    /// The model would be too large.
    TooLarge,
}

/// An integer variable with its values `lo..=hi`.
#[derive(Copy, Clone, Debug)]
pub(super) struct Var {
    pub lo: i32,
    pub hi: i32,
}

/// `vars[b] >= vars[a] + c`.
#[derive(Copy, Clone, Debug)]
pub(super) struct Diff {
    pub a: u32,
    pub b: u32,
    pub c: i32,
}

/// `vars[b] - vars[a]` lies in none of the ranges, which are disjoint, ordered and not adjacent.
#[derive(Clone, Debug)]
pub(super) struct Apart {
    pub a: u32,
    pub b: u32,
    pub ranges: Vec<(i32, i32)>,
}

/// An entry of a counted row: `units` are held if the variable lies in one of the two ranges (the second may be empty).
#[derive(Copy, Clone, Debug)]
pub(super) struct Entry {
    pub var: u32,
    pub ranges: [(i32, i32); 2],
    pub units: u64,
}

/// One cycle modulo II of one resource: what the entries hold is at most `capacity`.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub capacity: u64,
    pub entries: Vec<Entry>,
}

/// The row of an op: `vars[var] - shift`, in `0..II`.
#[derive(Copy, Clone, Debug)]
pub(super) struct RowOf {
    pub var: u32,
    pub shift: i32,
}

/// Demand of an op on a resource in the `len` cycles from `offset` on, modulo II.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Piece {
    pub resource: u32,
    pub offset: u32,
    pub len: u32,
    pub units: u64,
}

/// The model of one problem at one II.
#[derive(Default)]
pub(super) struct Model {
    pub ii: i64,
    pub vars: Vec<Var>,
    /// By op, the variable of its start, or [`NONE`].
    pub time: Vec<u32>,
    /// By op, its row, where resources or groups ask for it.
    pub rows: Vec<Option<RowOf>>,
    /// Starts and rows that are variables of their own: `vars[row] == vars[time] mod II`.
    pub channels: Vec<(u32, u32)>,
    pub diffs: Vec<Diff>,
    pub apart: Vec<Apart>,
    pub counted: Vec<Row>,
    /// Variables of starts that must lie in one stage.
    pub stages: Vec<Vec<u32>>,
    pub(super) component: Vec<u32>,
    pub(super) pieces: Vec<Vec<Piece>>,
    pub(super) capacity: Vec<u64>,
}

/// Arcs between different ops, groups apart: (from, to, least difference of starts).
pub(super) fn arcs(g: &Graph, ii: i64) -> impl Iterator<Item = (usize, usize, i64)> + '_ {
    (0..g.n).flat_map(move |u| g.succ.of(u).iter().map(move |a| (u as usize, a.node as usize, a.weight(ii))))
}

/// Groups of two ops and more.
pub(super) fn groups(g: &Graph) -> impl Iterator<Item = &[u32]> {
    let count = if g.has_groups { g.group_first.len() as u32 - 2 } else { 0 };
    (0..count).map(|k| g.group(k)).filter(|m| m.len() > 1)
}

/// Earliest starts under `ii`, all ops at or after cycle 0; `None`: there are none.
pub(super) fn earliest(g: &Graph, ii: i64) -> Option<Vec<i64>> {
    // Each op adds at most the longest arc that leaves it, an interval of rounding, and one more inside a group.
    let longest = |u: u32| g.succ.of(u).iter().map(|a| a.weight(ii)).max().unwrap_or(0).max(0);
    let end = (0..g.n).map(longest).sum::<i64>() + 2 * (i64::from(g.n) + 1) * ii;
    let mut early = vec![0i64; g.n as usize];
    loop {
        let mut changed = false;
        for &u in &g.topo {
            for a in g.succ.of(u) {
                let least = early[u as usize] + a.weight(ii);
                if least > early[a.node as usize] {
                    early[a.node as usize] = least;
                    changed = true;
                }
            }
        }
        for members in groups(g) {
            let last = members.iter().map(|&m| early[m as usize]).max().unwrap_or(0);
            for &m in members {
                if early[m as usize] < last / ii * ii {
                    early[m as usize] = last / ii * ii;
                    changed = true;
                }
            }
        }
        if !changed {
            return Some(early);
        }
        if early.iter().any(|&t| t > end) {
            return None;
        }
    }
}

impl Model {
    /// The model, or why there is none.
    pub fn new(p: &Problem, g: &Graph, o: &ScheduleOptions, ii: u32, goal: Goal) -> Result<Model, NoModel> {
        let n = g.n as usize;
        if n > MAX_OPS || ii > MAX_II {
            return Err(NoModel::TooLarge);
        }
        let mut m = Model { ii: ii.into(), ..Model::default() };
        m.find_pieces(p, ii)?;
        for &(_, a) in &g.selfs {
            if a.weight(ii.into()) > 0 {
                return Err(NoModel::Refuted);
            }
        }
        let early = earliest(g, ii.into()).ok_or(NoModel::Refuted)?;
        let late = m.latest(p, g, o, goal, &early)?;
        m.find_components(g, &late);
        // Without deadlines and groups every schedule may be rotated: one op stands still.
        let rotates = late.iter().all(|&t| t == NEVER) && !g.has_groups;
        let still = if rotates { m.heaviest() } else { NONE };
        m.make_vars(g, &early, &late, still)?;
        m.make_rows()?;
        for (u, v, w) in arcs(g, m.ii) {
            let (a, b) = (m.time[u], m.time[v]);
            if a != NONE && b != NONE && m.component[u] == m.component[v] {
                m.add_diff(a, b, w)?;
            }
        }
        for members in groups(g) {
            m.stages.push(members.iter().map(|&u| m.time[u as usize]).collect());
        }
        m.order_twins(g, still)?;
        m.keep_apart()?;
        m.count()?;
        Ok(m)
    }

    pub(super) fn add_diff(&mut self, a: u32, b: u32, c: i64) -> Result<(), NoModel> {
        let (from, to) = (self.vars[a as usize], self.vars[b as usize]);
        if i64::from(from.hi) + c <= i64::from(to.lo) {
            return Ok(());
        }
        if i64::from(from.lo) + c > i64::from(to.hi) {
            return Err(NoModel::Refuted);
        }
        // Between these two it fits.
        self.diffs.push(Diff { a, b, c: c as i32 });
        Ok(())
    }

    /// Footprints folded into one interval: reservations that overlap are added, an op longer than II meets itself.
    fn find_pieces(&mut self, p: &Problem, ii: u32) -> Result<(), NoModel> {
        let slots = p.slots().len() as u32;
        let capacity: Vec<u64> =
            p.slots().values().chain(p.pools().values()).map(|r| r.capacity.into()).collect();
        let mut load = vec![0u64; capacity.len()];
        let mut events: Vec<(u32, u32, i64)> = Vec::new();
        for u in p.nodes() {
            let mut pieces = Vec::new();
            let uses = p.uses(u).iter().map(|x| (x.slot.as_u32(), x.offset, x.duration, x.occupancy));
            let pools = p.pool_uses(u).iter().map(|x| (slots + x.pool.as_u32(), 0, x.duration, x.count));
            events.clear();
            for (resource, offset, duration, units) in uses.chain(pools) {
                if duration == 0 || units == 0 {
                    continue;
                }
                let units = i64::from(units);
                let (begin, rest) = (offset % ii, duration % ii);
                let whole = i64::from(duration / ii);
                let mut hold = |from: u32, to: u32, units: i64| {
                    if from < to && units > 0 {
                        events.extend([(resource, from, units), (resource, to, -units)]);
                    }
                };
                hold(0, ii, whole * units);
                let end = u64::from(begin) + u64::from(rest);
                hold(begin, end.min(ii.into()) as u32, units);
                hold(0, end.saturating_sub(ii.into()) as u32, units);
            }
            events.sort_unstable();
            let mut k = 0;
            while k < events.len() {
                let resource = events[k].0;
                let first = pieces.len();
                let (mut level, mut since) = (0i64, 0);
                while k < events.len() && events[k].0 == resource {
                    let at = events[k].1;
                    if level > 0 {
                        let units = level as u64;
                        pieces.push(Piece { resource, offset: since, len: at - since, units });
                    }
                    while k < events.len() && (events[k].0, events[k].1) == (resource, at) {
                        level += events[k].2;
                        k += 1;
                    }
                    since = at;
                }
                // Neighbours of one height are one piece, around the end of the interval as well.
                let mut joined: Vec<Piece> = Vec::new();
                for q in pieces.drain(first..) {
                    match joined.last_mut() {
                        Some(l) if l.offset + l.len == q.offset && l.units == q.units => l.len += q.len,
                        _ => joined.push(q),
                    }
                }
                if let [head, .., tail] = joined[..]
                    && head.offset == 0
                    && tail.offset + tail.len == ii
                    && head.units == tail.units
                {
                    joined.remove(0);
                    joined.last_mut().expect("two pieces or more").len += head.len;
                }
                let peak = joined.iter().map(|q| q.units).max().unwrap_or(0);
                if peak > capacity[resource as usize] {
                    return Err(NoModel::Refuted);
                }
                load[resource as usize] += peak;
                pieces.append(&mut joined);
            }
            self.pieces.push(pieces);
        }
        // What all ops together do not fill never binds.
        let binds = |r: u32| load[r as usize] > capacity[r as usize];
        self.pieces.iter_mut().for_each(|list| list.retain(|q| binds(q.resource)));
        self.capacity = capacity;
        Ok(())
    }

    /// Latest starts; [`NEVER`] where nothing behind an op has a deadline.
    fn latest(
        &self,
        p: &Problem,
        g: &Graph,
        o: &ScheduleOptions,
        goal: Goal,
        early: &[i64],
    ) -> Result<Vec<i64>, NoModel> {
        let ii = self.ii;
        let mut late = Vec::with_capacity(early.len());
        for u in p.nodes() {
            let latency = i64::from(p.latency(u));
            let mut end = NEVER;
            if p.max_depth(u) > 0 {
                end = end.min((i64::from(p.max_depth(u)) + 1) * ii - 1);
            }
            if let Some(stages) = o.max_stages {
                end = end.min(i64::from(stages) * ii - latency.max(1));
            }
            if let Goal::Within { start_end, finish_end } = goal {
                end = end.min(start_end - 1).min(finish_end - 1 - latency);
            }
            late.push(end);
        }
        loop {
            let mut changed = false;
            for &u in g.topo.iter().rev() {
                let bounded = g.succ.of(u).iter().filter(|a| late[a.node as usize] < NEVER);
                let end = bounded.map(|a| late[a.node as usize] - a.weight(ii)).min().unwrap_or(NEVER);
                if end < late[u as usize] {
                    late[u as usize] = end;
                    changed = true;
                }
            }
            for members in groups(g) {
                let end = members.iter().map(|&m| late[m as usize]).min().unwrap_or(NEVER);
                let end = if end == NEVER { NEVER } else { (end.div_euclid(ii) + 1) * ii - 1 };
                for &m in members {
                    changed |= end < late[m as usize];
                    late[m as usize] = late[m as usize].min(end);
                }
            }
            // An empty window would shrink without end.
            if early.iter().zip(&late).any(|(e, l)| e > l) {
                return Err(NoModel::Refuted);
            }
            if !changed {
                return Ok(late);
            }
        }
    }

    /// Strong components of arcs and groups; all ops with a deadline are one.
    fn find_components(&mut self, g: &Graph, late: &[i64]) {
        let n = g.n as usize;
        let mut ahead: Vec<Vec<u32>> = vec![Vec::new(); n];
        let mut back: Vec<Vec<u32>> = vec![Vec::new(); n];
        let mut join = |u: usize, v: usize| {
            ahead[u].push(v as u32);
            back[v].push(u as u32);
        };
        for (u, v, _) in arcs(g, self.ii) {
            join(u, v);
        }
        for members in groups(g) {
            for w in members.windows(2) {
                join(w[0] as usize, w[1] as usize);
                join(w[1] as usize, w[0] as usize);
            }
        }
        let rooted: Vec<usize> = (0..n).filter(|&u| late[u] < NEVER).collect();
        for w in rooted.windows(2) {
            join(w[0], w[1]);
            join(w[1], w[0]);
        }
        // Two walks (Kosaraju): by finish, then backwards.
        let mut seen = vec![false; n];
        let mut finished = Vec::with_capacity(n);
        for root in 0..n {
            if std::mem::replace(&mut seen[root], true) {
                continue;
            }
            let mut stack = vec![(root, 0)];
            while let Some((u, k)) = stack.pop() {
                match ahead[u].get(k) {
                    None => finished.push(u),
                    Some(&v) => {
                        stack.push((u, k + 1));
                        if !std::mem::replace(&mut seen[v as usize], true) {
                            stack.push((v as usize, 0));
                        }
                    }
                }
            }
        }
        self.component = vec![NONE; n];
        let mut count = 0;
        while let Some(root) = finished.pop() {
            if self.component[root] != NONE {
                continue;
            }
            self.component[root] = count;
            let mut stack = vec![root];
            while let Some(u) = stack.pop() {
                for &v in &back[u] {
                    if self.component[v as usize] == NONE {
                        self.component[v as usize] = count;
                        stack.push(v as usize);
                    }
                }
            }
            count += 1;
        }
    }

    pub(super) fn weight(&self, u: usize) -> u64 {
        self.pieces[u].iter().map(|q| u64::from(q.len) * q.units).sum()
    }

    /// The op that holds most; [`NONE`] if none holds anything.
    fn heaviest(&self) -> u32 {
        let held = (0..self.pieces.len()).filter(|&u| self.weight(u) > 0);
        held.max_by_key(|&u| (self.weight(u), std::cmp::Reverse(u))).map_or(NONE, |u| u as u32)
    }
}
