//! Isomorphic sub-graphs: one copy is placed, the other follows it by a shift.
//!
//! In: a problem of which two parts are copies of each other (two query tiles of attention that share their loads), and an
//! II. Out: legal starts in which every op of the second copy starts a fixed number of cycles after its image, or
//! nothing. With the shift fixed, an op and its image are one op with both reservations, so the search has half the
//! ops. Shifts are tried from half an II downwards: anti-phase first; larger ones are the same schedules with the copies exchanged.
//!
//! The copies are found by colour refinement of ops and slots together (two groups of threads are two slots that the
//! exchange maps to each other), then by following edges from one pair of equal colour; what comes out is checked
//! edge by edge, so a wrong guess costs time and nothing else.
//!
//! Guarantee: starts are legal. No answer is no refutation: schedules without a fixed shift are not looked at. Not
//! for problems with groups, depth limits or forced serialisation, which tie ops to stages. Deterministic. Cost:
//! O(shifts · placements) per II, and [`PLACEMENTS`] at all of them. Elsewhere: the choice of II (`cost_based`). Source: software pipelining's "unroll
//! and shift" in reverse; the FlashAttention kernels run their two query tiles in anti-phase.

use super::closure::Closure;
use super::cost_based::CostBased;
use super::exact::{Answer, Exact};
use super::graph::Graph;
use super::ims::{Ims, Outcome, Priority};
use super::ladder::setup_steps;
use super::options::ScheduleOptions;
use super::problem::{EdgeData, Node, NodeDef, Problem, Slot, Use};
use super::rrt::Rrt;
use cranelift_entity::EntityRef;
use rustc_hash::FxHasher;
use std::hash::{Hash, Hasher};

/// Ops of the largest problem looked at.
const MAX_OPS: usize = 256;
/// Pairs below this are found as fast without.
const MIN_PAIRS: usize = 6;
/// Shifts tried at one II; all of them up to twice as many cycles.
const SHIFTS: u32 = 24;
/// Placements per op in one attempt.
const BUDGET: u64 = 8;
/// Steps of exact search for one shift.
const EXACT: u64 = 20_000;
/// Placements at all intervals of one problem; with nothing but these the search is as cheap as Rau's method.
const PLACEMENTS: u64 = 1 << 18;
/// Larger cycle counts are left alone: sums of three of them fit 31 bits.
const MAX_CYCLES: u32 = 1 << 28;
const NONE: u32 = u32::MAX;

/// The exchange of two copies, and the memory of its search.
#[derive(Default)]
pub(super) struct Shifted {
    /// Steps of exact search that may still be used for this problem.
    pub left: u64,
    /// Placements, those in long tables with their rows, and what setting up is worth, that may still be used.
    pub placements: u64,
    /// Image of each op; itself where the op belongs to both copies.
    image: Vec<u32>,
    /// Ops of the second copy.
    second: Vec<bool>,
    exists: bool,
    colour: Vec<u64>,
    slot_colour: Vec<u64>,
    queue: Vec<u32>,
    // Scratch of colouring and of the check.
    around: Vec<(u64, u64)>,
    next: Vec<u64>,
    edges: Vec<(u32, u32, i32, u32)>,
    moved: Vec<(u32, u32, i32, u32)>,
    known: Vec<bool>,
    /// Op of the quotient that stands for an op.
    stands: Vec<u32>,
    slot_image: Vec<u32>,
    uses: Vec<Use>,
    quotient: Problem,
    graph: Graph,
    mirror: Graph,
    closure: Closure,
    ims: Ims,
    rrt: Rrt,
    exact: Exact,
    starts: Vec<i64>,
    /// Shift of the last success, and its II.
    last_shift: u32,
    last_ii: u32,
}

fn hash(value: impl Hash) -> u64 {
    let mut h = FxHasher::default();
    value.hash(&mut h);
    h.finish()
}

impl Shifted {
    /// Whether the problem last looked at has two copies.
    pub fn exists(&self) -> bool {
        self.exists
    }

    /// Looks for two copies in `p`.
    pub fn find(&mut self, p: &Problem, o: &ScheduleOptions) {
        self.exists = false;
        self.last_ii = 0;
        self.placements = PLACEMENTS;
        let n = p.num_nodes();
        let tied = |u: Node| p.group(u).is_some() || p.max_depth(u) > 0 || p.force_serial(u);
        let small = p.edges().values().all(|e| e.latency.unsigned_abs() < MAX_CYCLES);
        if !(2 * MIN_PAIRS..=MAX_OPS).contains(&n) || o.max_stages.is_some() || !small || p.nodes().any(tied)
        {
            return;
        }
        self.refine(p);
        self.pair_up(p);
        let pairs = (0..n).filter(|&u| self.image[u] as usize > u).count();
        self.exists = pairs >= MIN_PAIRS && self.is_exchange(p);
        if self.exists {
            self.tell_apart(p);
        }
    }

    /// Equal colours: nothing that can be seen from two ops tells them apart.
    fn refine(&mut self, p: &Problem) {
        let mut classes = 0;
        self.colour.clear();
        self.colour.extend(p.nodes().map(|u| {
            let mut h = FxHasher::default();
            p.latency(u).hash(&mut h);
            for c in p.pool_uses(u) {
                (c.pool.index(), c.count, c.duration).hash(&mut h);
            }
            h.finish()
        }));
        let Shifted { around, next, colour, slot_colour, .. } = self;
        loop {
            slot_colour.clear();
            for (slot, data) in p.slots().iter() {
                around.clear();
                for u in p.nodes() {
                    for x in p.uses(u).iter().filter(|x| x.slot == slot) {
                        around.push((colour[u.index()], hash((x.offset, x.duration, x.occupancy))));
                    }
                }
                around.sort_unstable();
                slot_colour.push(hash((data.capacity, &*around)));
            }
            next.clear();
            for u in p.nodes() {
                around.clear();
                for x in p.uses(u) {
                    let slot = slot_colour[x.slot.index()];
                    around.push((slot, hash((x.offset, x.duration, x.occupancy))));
                }
                for e in p.edges().values() {
                    if e.from == u {
                        around.push((colour[e.to.index()], hash((0, e.latency, e.distance))));
                    }
                    if e.to == u {
                        around.push((colour[e.from.index()], hash((1, e.latency, e.distance))));
                    }
                }
                around.sort_unstable();
                next.push(hash((colour[u.index()], &*around)));
            }
            std::mem::swap(colour, next);
            around.clear();
            around.extend(colour.iter().map(|&c| (c, 0)));
            around.sort_unstable();
            around.dedup();
            if around.len() <= classes {
                return;
            }
            classes = around.len();
        }
    }

    /// An image for every op: from the first two of a colour along equal edges, until every op has one.
    fn pair_up(&mut self, p: &Problem) {
        let n = p.num_nodes();
        self.image.clear();
        self.image.resize(n, NONE);
        for u in 0..n {
            if self.image[u] != NONE {
                continue;
            }
            let twin = (u + 1..n).find(|&w| self.image[w] == NONE && self.colour[w] == self.colour[u]);
            self.join(u, twin.unwrap_or(u));
            while let Some(u) = self.queue.pop() {
                let w = self.image[u as usize];
                for e in p.edges().values().filter(|e| e.from.as_u32() == u || e.to.as_u32() == u) {
                    let forward = e.from.as_u32() == u;
                    let x = if forward { e.to } else { e.from };
                    if self.image[x.index()] != NONE {
                        continue;
                    }
                    // The same edge of the image, preferably to another op.
                    let other = p.edges().values().filter(|f| {
                        let here = if forward { f.from } else { f.to };
                        here.as_u32() == w && (f.latency, f.distance) == (e.latency, e.distance)
                    });
                    let ends = other.map(|f| if forward { f.to } else { f.from });
                    let fits = |y: &Node| {
                        self.image[y.index()] == NONE && self.colour[y.index()] == self.colour[x.index()]
                    };
                    let best = ends.filter(fits).min_by_key(|&y| (y == x, y.as_u32()));
                    if let Some(y) = best {
                        self.join(x.index(), y.index());
                    }
                }
            }
        }
    }

    fn join(&mut self, u: usize, w: usize) {
        (self.image[u], self.image[w]) = (w as u32, u as u32);
        // What belongs to both copies says nothing about its neighbours.
        if u != w {
            self.queue.push(u as u32);
        }
    }

    /// Whether the images keep every edge and every reservation, slots exchanged in pairs.
    fn is_exchange(&mut self, p: &Problem) -> bool {
        self.slot_image.clear();
        self.slot_image.resize(p.slots().len(), NONE);
        for u in p.nodes() {
            let w = Node::from_u32(self.image[u.index()]);
            let same = p.latency(u) == p.latency(w) && p.pool_uses(u) == p.pool_uses(w);
            if !same || p.uses(u).len() != p.uses(w).len() {
                return false;
            }
            for (x, y) in p.uses(u).iter().zip(p.uses(w)) {
                let (s, t) = (x.slot.index(), y.slot.index());
                let equal = Use { slot: y.slot, ..*x } == *y;
                let mapped = [(s, t), (t, s)].into_iter().all(|(s, t)| {
                    let known = self.slot_image[s];
                    self.slot_image[s] = t as u32;
                    known == NONE || known == t as u32
                });
                if !equal || !mapped || p.slots()[x.slot].capacity != p.slots()[y.slot].capacity {
                    return false;
                }
            }
        }
        let key = |e: EdgeData| (e.from.as_u32(), e.to.as_u32(), e.latency, e.distance);
        let Shifted { edges, moved, image, .. } = self;
        let image = |n: Node| Node::from_u32(image[n.index()]);
        edges.clear();
        edges.extend(p.edges().values().map(|&e| key(e)));
        moved.clear();
        moved
            .extend(p.edges().values().map(|&e| key(EdgeData { from: image(e.from), to: image(e.to), ..e })));
        edges.sort_unstable();
        moved.sort_unstable();
        edges == moved
    }

    /// Which op of a pair is of the second copy: neighbours are of one copy as far as they can be.
    fn tell_apart(&mut self, p: &Problem) {
        let n = p.num_nodes();
        self.second.clear();
        self.second.resize(n, false);
        self.known.clear();
        self.known.resize(n, false);
        for u in 0..n {
            if self.known[u] || self.image[u] as usize == u {
                continue;
            }
            self.known[u] = true;
            self.queue.push(u as u32);
            while let Some(u) = self.queue.pop() {
                // Ops in the queue are of the first copy.
                let w = self.image[u as usize] as usize;
                self.known[w] = true;
                self.second[w] = true;
                for e in p.edges().values() {
                    let (a, b) = (e.from.as_u32(), e.to.as_u32());
                    for (at, to) in [(a, b as usize), (b, a as usize)] {
                        if at == u && !self.known[to] && self.image[to] as usize != to {
                            (self.known[to], self.known[self.image[to] as usize]) = (true, true);
                            self.queue.push(to as u32);
                        }
                    }
                }
            }
        }
    }

    /// The problem in which an op stands for itself and its image `shift` cycles later. `false`: some op contradicts its
    /// own image.
    fn divide(&mut self, p: &Problem, ii: u32, shift: u32) -> bool {
        let q = &mut self.quotient;
        q.clear(p.name());
        for data in p.slots().values().chain(p.pools().values()) {
            q.add_slot(data.id, "", data.capacity);
        }
        let first_pool = p.slots().len();
        self.stands.clear();
        self.stands.resize(p.num_nodes(), NONE);
        for u in p.nodes().filter(|u| !self.second[u.index()]) {
            self.uses.clear();
            let w = Node::from_u32(self.image[u.index()]);
            let both = [(u, 0), (w, shift)];
            for &(x, later) in &both[..if u == w { 1 } else { 2 }] {
                self.uses.extend(p.uses(x).iter().map(|y| Use { offset: y.offset + later, ..*y }));
                self.uses.extend(p.pool_uses(x).iter().map(|c| Use {
                    slot: Slot::new(first_pool + c.pool.index()),
                    offset: later,
                    duration: c.duration,
                    occupancy: c.count,
                }));
            }
            let node = q.add_node(&NodeDef { latency: p.latency(u), uses: &self.uses, ..NodeDef::default() });
            (self.stands[u.index()], self.stands[w.index()]) = (node.as_u32(), node.as_u32());
        }
        for e in p.edges().values() {
            let (from, to) = (e.from.index(), e.to.index());
            let (a, b) = (Node::from_u32(self.stands[from]), Node::from_u32(self.stands[to]));
            match (self.second[from], self.second[to]) {
                (false, false) => _ = q.add_edge(a, b, e.latency, e.distance),
                // The same as between their images.
                (true, true) => {}
                (late, _) => {
                    let latency = i64::from(e.latency) + if late { 1 } else { -1 } * i64::from(shift);
                    if a == b && latency > i64::from(ii) * i64::from(e.distance) {
                        return false;
                    }
                    // An iteration later by as many cycles: no cycle of distance zero comes in.
                    q.add_edge(a, b, (latency + i64::from(ii)) as i32, e.distance + 1);
                }
            }
        }
        true
    }

    /// Seats for the ops of the quotient, prepared for `ii`: by priority, then by exact search.
    fn place(&mut self, o: &ScheduleOptions, ii: u32) -> bool {
        let (q, g, wide) = (&self.quotient, &self.graph, i64::from(ii));
        let budget = BUDGET * u64::from(g.n) + 16;
        g.mirror_into(&mut self.mirror);
        for backward in [false, true] {
            if self.placements == 0 {
                return false;
            }
            // An op may be in the way of its own image.
            if self.rrt.reset(q, ii, o.rrt_size_threshold).is_err() {
                return false;
            }
            self.ims.snug = backward;
            let (m, rrt, way) = (&self.mirror, &mut self.rrt, Priority::Height);
            let before = self.ims.placements;
            let outcome = if backward {
                self.ims.attempt_backward(q, g, m, rrt, wide, way, budget)
            } else {
                self.ims.attempt(q, g, rrt, wide, way, budget)
            };
            let weight = 1 + u64::from(self.rrt.rows()) / 256;
            let placed = (self.ims.placements - before).saturating_mul(weight);
            self.placements = self.placements.saturating_sub(placed);
            if outcome == Outcome::Placed {
                return true;
            }
        }
        let share = EXACT.min(o.exact_steps).min(self.left);
        if share == 0 || self.rrt.reset(q, ii, o.rrt_size_threshold).is_err() {
            return false;
        }
        let mut left = share;
        let answer = self.exact.solve(g, &self.closure, &mut self.rrt, &mut self.ims, ii, &mut left);
        self.left -= share - left;
        answer == Answer::Found
    }

    /// Starts of the last success.
    fn starts(&self) -> &[i64] {
        &self.starts
    }

    /// Starts at `ii`, of all ops.
    pub fn solve(&mut self, p: &Problem, o: &ScheduleOptions, ii: u32) -> Option<&[i64]> {
        if ii >= MAX_CYCLES {
            return None;
        }
        let (half, wide) = (ii / 2, i64::from(ii));
        let tries = half.min(SHIFTS);
        let spread = (0..tries).map(|k| half - (u64::from(k) * u64::from(half) / u64::from(tries)) as u32);
        // What worked at another II works most often.
        let last = (self.last_ii > 0)
            .then(|| (u64::from(self.last_shift) * u64::from(ii) / u64::from(self.last_ii)) as u32);
        for shift in last.into_iter().chain(spread.filter(|&s| Some(s) != last)) {
            if self.placements == 0 {
                return None;
            }
            if !self.divide(p, ii, shift) || !self.graph.build(&self.quotient) {
                continue;
            }
            self.placements = self.placements.saturating_sub(setup_steps(&self.graph));
            // Carried edges may have become a cycle that this shift cannot satisfy.
            self.closure.clear();
            let q = &self.quotient;
            if !self.closure.build(&self.graph, ii) || !self.ims.prepare(q, &self.graph, wide, None) {
                continue;
            }
            if !self.place(o, ii) {
                continue;
            }
            let late = |u: usize| if self.second[u] { i64::from(shift) } else { 0 };
            let starts = (0..p.num_nodes()).map(|u| self.ims.start[self.stands[u] as usize] + late(u));
            self.starts.clear();
            self.starts.extend(starts);
            (self.last_shift, self.last_ii) = (shift, ii);
            return Some(&self.starts);
        }
        None
    }
}

impl CostBased {
    /// One II with the second copy shifted; a success is left in `best`.
    pub(super) fn try_shifted(&mut self, p: &Problem, g: &Graph, o: &ScheduleOptions, ii: u32) -> bool {
        if !self.shifted.exists() {
            return false;
        }
        self.attempts += 1;
        let before = self.shifted.left;
        let found = self.shifted.solve(p, o, ii).is_some();
        self.pay(self.draw(before - self.shifted.left));
        if !found {
            return false;
        }
        let starts = self.shifted.starts();
        if !self.ims.prepare(p, g, ii.into(), o.max_stages)
            || self.rrt.reset(p, ii, o.rrt_size_threshold).is_err()
        {
            return false;
        }
        self.ims.start.clear();
        self.ims.start.extend_from_slice(starts);
        for (u, &t) in starts.iter().enumerate() {
            let node = Node::from_u32(u as u32);
            // Rows of several cycles are conservative: what is legal may not fit them.
            if !self.rrt.fits(node, t) {
                return false;
            }
            self.rrt.place(node, t);
        }
        self.finish(p, g, o, ii)
    }

    /// The smallest II found with the second copy shifted, from `from` to `cap`; in wider steps the further it goes.
    pub(super) fn gallop_shifted(
        &mut self,
        p: &Problem,
        g: &Graph,
        o: &ScheduleOptions,
        from: u32,
        cap: u32,
    ) -> Option<u32> {
        if !self.shifted.exists() {
            return None;
        }
        let (mut step, mut failed, mut ii) = (1 + from / 512, from.saturating_sub(1), from);
        while !self.try_shifted(p, g, o, ii) {
            failed = ii;
            if ii >= cap {
                return None;
            }
            ii = ii.saturating_add(step).min(cap);
            step = step.saturating_mul(2);
        }
        let mut found = ii;
        while found - failed > 1 {
            let middle = failed + (found - failed) / 2;
            if self.try_shifted(p, g, o, middle) { found = middle } else { failed = middle }
        }
        Some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::super::analysis::{Generator, RegionSchedule};
    use super::super::problem::PoolUse;
    use super::super::verify::{Rule, verify};
    use super::*;

    /// Two chains on threads of their own that share one unit and what they begin with.
    fn two_copies() -> Problem {
        let mut p = Problem::new("two");
        let unit = p.add_slot(0, "unit", 1);
        let pool = p.add_pool(0, "pool", 3);
        let load = [Use { slot: unit, offset: 0, duration: 3, occupancy: 1 }];
        let first = p.add_node(&NodeDef { id: "load", latency: 9, uses: &load, ..NodeDef::default() });
        for copy in 0..2 {
            let threads = p.add_slot(1 + copy, "threads", 1);
            let mut before = first;
            for k in 0..8 {
                let slot = if k % 3 == 0 { unit } else { threads };
                let uses = [Use { slot, offset: k % 2, duration: 1 + k / 2, occupancy: 1 }];
                let charge = [PoolUse { pool, count: 1 + k % 2, duration: 2 }];
                let (id, pools) = (format!("op{k}.{copy}"), if k % 4 == 1 { &charge[..] } else { &[] });
                let op = p.add_node(&NodeDef {
                    id: &id,
                    latency: 2 + k,
                    uses: &uses,
                    pools,
                    ..NodeDef::default()
                });
                p.add_edge(before, op, 3 + k as i32, 0);
                before = op;
            }
            let head = Node::from_u32(before.as_u32() - 7);
            p.add_edge(before, head, 5, 2);
        }
        p
    }

    #[test]
    fn a_copy_is_scheduled_by_its_shift() {
        let (p, o) = (two_copies(), ScheduleOptions::default());
        let mut shifted = Shifted { left: 1 << 20, ..Shifted::default() };
        shifted.find(&p, &o);
        assert!(shifted.exists());
        let (ii, starts) =
            (17..60).find_map(|ii| Some((ii, shifted.solve(&p, &o, ii)?.to_vec()))).expect("fits");
        let apart = |k: usize| (starts[9 + k] - starts[1 + k]).rem_euclid(ii.into());
        assert!(apart(0) > 0);
        assert!((1..8).all(|k| apart(k) == apart(0)), "{starts:?} at {ii}");
        // Legal by the checker that shares no code with this.
        let mut s = RegionSchedule { ii, generator: Generator::CostBased, ..RegionSchedule::default() };
        let earliest = starts.iter().min().copied().unwrap_or(0).div_euclid(ii.into()) * i64::from(ii);
        for &t in &starts {
            let start = u32::try_from(t - earliest).expect("small");
            s.start.push(start);
            s.stage.push(start / ii);
            s.order.push(0);
        }
        let rules = [Rule::Complete, Rule::Stage, Rule::Dependence, Rule::Slot, Rule::Pool, Rule::Bound];
        let wrong: Vec<_> = verify(&p, &s).into_iter().filter(|v| rules.contains(&v.rule)).collect();
        assert_eq!(wrong, []);
    }

    #[test]
    fn what_differs_in_one_edge_is_no_copy() {
        let (mut p, mut shifted) = (two_copies(), Shifted::default());
        let op = |k: u32| Node::from_u32(k);
        p.add_edge(op(2), op(4), 3, 0);
        shifted.find(&p, &ScheduleOptions::default());
        assert!(!shifted.exists());
    }
}
