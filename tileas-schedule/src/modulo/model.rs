//! What the exact search knows of one problem at one II: decisions, components, distances, collisions.
//!
//! In: problem, graph, windows and a table reset to the II (for folded footprints). Out: [`Model`]. Only ops that
//! something restricts modulo II are decided: those with a reservation that can bind, and members of groups. Two ops
//! belong to one *component* where dependences tie them in both directions (groups and deadlines tie as well); inside,
//! the longest distances are closed over all paths. Components shift against each other by whole stages at will,
//! except the one that deadlines tie to cycle 0. So the decided starts of every component, taken alone and consistent
//! with its closed distances, always extend to a schedule.
//!
//! Cost: O(ops² · words) for reachability, O(ops²) for the rest. Sizes: those of the closure of distances and
//! [`MAX_ROWS`]; larger problems are not modelled.

use crate::closure::{Closure, MAX_OPS, NO_PATH};
use crate::entities::Node;
use crate::graph::Graph;
use crate::problem::NO_GROUP;
use crate::table::Table;
use crate::windows::{NEVER, Windows};
use cranelift_entity::EntityRef;

/// Largest II modelled.
pub const MAX_ROWS: u32 = 16_384;
/// Words of a set of ops.
pub(super) const SET: usize = MAX_OPS / 64;

/// A set of ops or search levels.
pub(super) type Set = [u64; SET];

/// One piece of an op on a resource.
#[derive(Copy, Clone, Debug)]
pub(super) struct Piece {
    pub resource: u32,
    pub offset: u32,
    pub len: u32,
    pub units: u32,
}

/// The model and its memory.
#[derive(Default)]
pub(super) struct Model {
    pub ii: u32,
    /// Words of a set of rows.
    pub words: usize,
    /// The decided ops; everything below is by position in here.
    pub ops: Vec<u32>,
    /// Position of an op in `ops`.
    pub position: Vec<u32>,
    pub component: Vec<u32>,
    pub components: usize,
    /// The component tied to cycle 0, `u32::MAX` if there is none.
    pub rooted: u32,
    pub group: Vec<u32>,
    /// Interchangeable ops have the same class; `u32::MAX`: none of its kind.
    pub class: Vec<u32>,
    distance: Vec<i32>,
    piece_of: Vec<(u32, u32)>,
    pub pieces: Vec<Piece>,
    /// Resources of capacity 1, and free cycles they have to spare.
    pub unit: Vec<bool>,
    pub cap: Vec<u64>,
    pub spare: Vec<u32>,
    pub resources: usize,
    /// Ops that stand at a fixed distance from a decided one: op, position of the decided one, distance. Only after
    /// [`Model::merge_rigid`].
    pub riders: Vec<(u32, u32, i32)>,
    rider_of: Vec<(u32, u32)>,
    // Scratch.
    leader: Vec<u32>,
    kept: Vec<u32>,
    merged: Vec<Piece>,
    part: Vec<Piece>,
    rows: Vec<u32>,
    mates: Vec<u32>,
    reach: Vec<Set>,
    scc: Vec<u32>,
}

pub(super) fn has(set: &Set, i: usize) -> bool {
    set[i / 64] >> (i % 64) & 1 != 0
}

pub(super) fn insert(set: &mut Set, i: usize) {
    set[i / 64] |= 1 << (i % 64);
}

/// Appends pieces that hold together what those of `part` do, none of which meets another one; wrapping ends are cut.
pub(super) fn flatten(part: &mut [Piece], ii: u32, rows: &mut Vec<u32>, out: &mut Vec<Piece>) {
    part.sort_unstable_by_key(|p| (p.resource, p.offset, p.len, p.units));
    for of in part.chunk_by(|p, q| p.resource == q.resource) {
        if let [one] = of {
            out.push(Piece { offset: one.offset % ii, ..*one });
            continue;
        }
        rows.clear();
        rows.resize(ii as usize, 0);
        for p in of {
            let first = p.offset % ii;
            let end = first + p.len;
            rows[first as usize..end.min(ii) as usize].iter_mut().for_each(|r| *r += p.units);
            rows[..end.saturating_sub(ii) as usize].iter_mut().for_each(|r| *r += p.units);
        }
        let mut offset = 0;
        for run in rows.chunk_by(|p, q| p == q) {
            let len = run.len() as u32;
            if run[0] > 0 {
                out.push(Piece { resource: of[0].resource, offset, len, units: run[0] });
            }
            offset += len;
        }
    }
}

impl Model {
    /// Fills the model; `false`: the problem is too large.
    pub fn build(&mut self, g: &Graph, closure: &Closure, table: &Table, windows: &Windows, ii: u32) -> bool {
        let n = g.n as usize;
        if n > MAX_OPS || ii > MAX_ROWS || !table.is_exact() {
            return false;
        }
        self.ii = ii;
        self.words = (ii as usize).div_ceil(64);
        self.find_components(g, windows, n);
        self.ops.clear();
        self.position.clear();
        for u in 0..g.n {
            let decided =
                table.pieces(Node::from_u32(u)).next().is_some() || windows.group[u as usize] != NO_GROUP;
            self.position.push(if decided { self.ops.len() as u32 } else { u32::MAX });
            if decided {
                self.ops.push(u);
            }
        }
        self.component.clear();
        self.group.clear();
        for &u in &self.ops {
            self.component.push(self.scc[u as usize]);
            self.group.push(windows.group[u as usize]);
        }
        self.find_pieces(table);
        self.find_classes();
        self.take_distances(closure);
        self.riders.clear();
        self.rider_of.clear();
        self.rider_of.resize(self.ops.len(), (0, 0));
        true
    }

    /// Earliest and latest start at this position, for the op and those that ride on it.
    pub fn window(&self, windows: &Windows, a: usize) -> (i64, i64) {
        let u = self.ops[a] as usize;
        let (mut early, mut late) = (windows.early[u], windows.late[u]);
        for (op, far) in self.parts(a).skip(1) {
            early = early.max(windows.early[op.index()] - i64::from(far));
            if windows.late[op.index()] < NEVER {
                late = late.min(windows.late[op.index()] - i64::from(far));
            }
        }
        (early, late)
    }

    /// The op at this position and those that ride on it, with their distances from it.
    pub fn parts(&self, a: usize) -> impl Iterator<Item = (Node, i32)> + '_ {
        let (first, last) = self.rider_of[a];
        let riders = self.riders[first as usize..last as usize].iter();
        let riders = riders.map(|&(op, _, far)| (Node::from_u32(op), far));
        std::iter::once((Node::from_u32(self.ops[a]), 0)).chain(riders)
    }

    /// Ops that recurrences without slack hold at one distance become one op with the pieces of all. Ops of groups
    /// keep a position of their own. `false`: one of these meets itself, so no schedule has this II.
    pub fn merge_rigid(&mut self) -> bool {
        let m = self.ops.len();
        self.leader.clear();
        self.kept.clear();
        for a in 0..m as u32 {
            let holds = |b: &&u32| {
                let (there, back) =
                    (self.distance(**b as usize, a as usize), self.distance(a as usize, **b as usize));
                there > NO_PATH && back > NO_PATH && there + back == 0
            };
            let first = self.kept.iter().find(holds).filter(|_| self.group[a as usize] == NO_GROUP).copied();
            self.leader.push(first.unwrap_or(a));
            if first.is_none() {
                self.kept.push(a);
            }
        }
        if self.kept.len() == m {
            return true;
        }
        self.merged.clear();
        let mut fits = true;
        for k in 0..self.kept.len() {
            let a = self.kept[k] as usize;
            let riders = self.riders.len() as u32;
            self.part.clear();
            self.part
                .extend_from_slice(&self.pieces[self.piece_of[a].0 as usize..self.piece_of[a].1 as usize]);
            let alone = self.part.len();
            for b in a + 1..m {
                if self.leader[b] as usize != a {
                    continue;
                }
                let far = self.distance(a, b);
                self.riders.push((self.ops[b], k as u32, far));
                let back = far.rem_euclid(self.ii as i32) as u32;
                let (first, last) = self.piece_of[b];
                let of = self.pieces[first as usize..last as usize].iter();
                self.part.extend(of.map(|p| Piece { offset: p.offset + back, ..*p }));
            }
            self.rider_of[k] = (riders, self.riders.len() as u32);
            let first = self.merged.len();
            if self.part.len() == alone {
                self.merged.extend_from_slice(&self.part);
            } else {
                flatten(&mut self.part, self.ii, &mut self.rows, &mut self.merged);
                fits &=
                    self.merged[first..].iter().all(|p| u64::from(p.units) <= self.cap[p.resource as usize]);
            }
            self.piece_of[k] = (first as u32, self.merged.len() as u32);
        }
        // A kept op never moves up in the lists.
        let n = self.kept.len();
        for k in 0..n {
            let a = self.kept[k] as usize;
            self.ops[k] = self.ops[a];
            self.component[k] = self.component[a];
            self.group[k] = self.group[a];
            // The first of a class is alone in its component: it was kept.
            let class = self.kept.binary_search(&self.class[a]);
            self.class[k] = class.map_or(u32::MAX, |k| k as u32);
            for l in 0..n {
                self.distance[k * n + l] = self.distance[a * m + self.kept[l] as usize];
            }
            self.position[self.ops[k] as usize] = k as u32;
        }
        for &(op, k, _) in &self.riders {
            self.position[op as usize] = k;
        }
        self.ops.truncate(n);
        self.component.truncate(n);
        self.group.truncate(n);
        self.class.truncate(n);
        self.distance.truncate(n * n);
        self.piece_of.truncate(n);
        std::mem::swap(&mut self.pieces, &mut self.merged);
        fits
    }

    /// Least `start[b] - start[a]` over all paths inside their component, or [`NO_PATH`].
    #[inline]
    pub fn distance(&self, a: usize, b: usize) -> i32 {
        self.distance[a * self.ops.len() + b]
    }

    /// Of each resource with room for several at these starts: by how much its fullest row is above its capacity, and
    /// which row that is. Resources that hold all come out with 0.
    pub fn fullest<'a>(
        &'a self,
        start: &'a [i32],
        used: &'a mut Vec<u32>,
    ) -> impl Iterator<Item = (u64, u32, u32)> + 'a {
        (0..self.resources).filter(|&r| self.cap[r] > 1).map(move |r| {
            used.clear();
            used.resize(self.ii as usize, 0);
            for (a, &t) in start.iter().enumerate().take(self.ops.len()) {
                for p in self.pieces(a).iter().filter(|p| p.resource as usize == r) {
                    for k in 0..p.len {
                        used[(t + (p.offset + k) as i32).rem_euclid(self.ii as i32) as usize] += p.units;
                    }
                }
            }
            let most = used.iter().enumerate().max_by_key(|u| (u.1, usize::MAX - u.0));
            let (row, units) = most.map_or((0, 0), |(row, &units)| (row as u32, u64::from(units)));
            (units.saturating_sub(self.cap[r]), r as u32, row)
        })
    }

    /// Ops that meet in an overfull row, with the piece that is there: as few as are too many, the largest demands.
    pub fn meeting(&self, start: &[i32], r: u32, row: u32, out: &mut Vec<(u32, Piece)>) {
        out.clear();
        for (a, &t) in start.iter().enumerate().take(self.ops.len()) {
            for p in self.pieces(a).iter().filter(|p| p.resource == r) {
                let into = (row as i32 - t - p.offset as i32).rem_euclid(self.ii as i32);
                if (into as u32) < p.len {
                    out.push((a as u32, *p));
                }
            }
        }
        out.sort_unstable_by_key(|x| (u32::MAX - x.1.units, x.0));
        let (mut sum, mut keep) = (0, 0);
        while keep < out.len() && sum <= self.cap[r as usize] {
            sum += u64::from(out[keep].1.units);
            keep += 1;
        }
        out.truncate(keep);
    }

    #[inline]
    pub fn pieces(&self, a: usize) -> &[Piece] {
        let (first, last) = self.piece_of[a];
        &self.pieces[first as usize..last as usize]
    }

    /// Strongly connected components over dependences, groups and deadlines.
    fn find_components(&mut self, g: &Graph, windows: &Windows, n: usize) {
        self.reach.clear();
        self.reach.resize(n, [0; SET]);
        self.scc.clear();
        self.scc.resize(n, u32::MAX);
        self.rooted = u32::MAX;
        let bounded = |u: usize| windows.late[u] < NEVER;
        for u in 0..n {
            let row = &mut self.reach[u];
            insert(row, u);
            if bounded(u) {
                // To cycle 0 and from there everywhere.
                (0..n).for_each(|v| insert(row, v));
            }
            g.succ.of(u as u32).iter().for_each(|a| insert(row, a.node as usize));
            if windows.group[u] != NO_GROUP {
                g.group(windows.group[u]).iter().for_each(|&m| insert(row, m as usize));
            }
        }
        if g.has_carried || g.has_groups || (0..n).any(bounded) {
            for k in 0..n {
                let through = self.reach[k];
                for u in 0..n {
                    if has(&self.reach[u], k) {
                        self.reach[u].iter_mut().zip(&through).for_each(|(a, b)| *a |= b);
                    }
                }
            }
        }
        self.components = 0;
        for u in 0..n {
            if self.scc[u] != u32::MAX {
                continue;
            }
            let c = self.components as u32;
            self.components += 1;
            self.scc[u] = c;
            if bounded(u) {
                self.rooted = c;
            }
            if g.has_carried || g.has_groups || self.rooted == c {
                for v in u + 1..n {
                    if has(&self.reach[u], v) && has(&self.reach[v], u) {
                        self.scc[v] = c;
                        if bounded(v) {
                            self.rooted = c;
                        }
                    }
                }
            }
        }
    }

    fn find_pieces(&mut self, table: &Table) {
        let caps = table.capacities();
        self.resources = caps.len();
        self.unit.clear();
        self.unit.extend(caps.iter().map(|&c| c == 1));
        self.cap.clear();
        self.cap.extend_from_slice(caps);
        self.spare.clear();
        self.spare.resize(caps.len(), self.ii);
        self.pieces.clear();
        self.piece_of.clear();
        for &u in &self.ops {
            let first = self.pieces.len() as u32;
            for (resource, offset, len, units) in table.pieces(Node::from_u32(u)) {
                self.pieces.push(Piece { resource, offset, len, units: units as u32 });
                let spare = &mut self.spare[resource as usize];
                *spare = spare.saturating_sub(len);
            }
            self.piece_of.push((first, self.pieces.len() as u32));
        }
    }

    /// Ops alone in their component, of one footprint, can change places.
    fn find_classes(&mut self) {
        let m = self.ops.len();
        self.class.clear();
        self.class.resize(m, u32::MAX);
        self.mates.clear();
        self.mates.resize(self.components, 0);
        self.component.iter().for_each(|&c| self.mates[c as usize] += 1);
        let alone = |s: &Self, a: usize| s.component[a] != s.rooted && s.mates[s.component[a] as usize] == 1;
        let same = |s: &Self, a: usize, b: usize| {
            let key = |x: &Piece| (x.resource, x.offset, x.len);
            s.pieces(a).iter().map(key).eq(s.pieces(b).iter().map(key))
        };
        for a in 0..m {
            // Pieces carry no units: only unit resources are compared.
            let plain = self.pieces(a).iter().all(|x| self.unit[x.resource as usize]);
            if self.class[a] != u32::MAX || !plain || self.group[a] != NO_GROUP || !alone(self, a) {
                continue;
            }
            for b in a + 1..m {
                if self.class[b] == u32::MAX && same(self, a, b) && alone(self, b) {
                    (self.class[a], self.class[b]) = (a as u32, a as u32);
                }
            }
        }
    }

    /// Distances inside components; paths between two ops of one component never leave it.
    fn take_distances(&mut self, closure: &Closure) {
        let m = self.ops.len();
        self.distance.clear();
        self.distance.resize(m * m, NO_PATH);
        for a in 0..m {
            for b in (0..m).filter(|&b| b != a && self.component[b] == self.component[a]) {
                self.distance[a * m + b] = closure.distance(self.ops[a], self.ops[b]);
            }
        }
    }
}
