//! Families of random loops, to measure how good schedules are.
//!
//! [`Family::problem`] draws one loop from a family, a size and a seed; the same three numbers give the same loop on
//! every machine. Two families are planted: a schedule is drawn first and the loop is made from it, so that its best
//! interval is known however large it is. Unlike `generate`, whose problems are odd on purpose, all of these are
//! well-formed. Used by tests, benchmarks and the comparison with a constraint solver (`benches/quality`).

use tileas_schedule::{Node, NodeDef, Pool, PoolUse, Problem, Slot, Use};

/// SplitMix64.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// The stream of a seed.
    pub fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number in `lo..=hi`.
    pub fn within(&mut self, lo: u32, hi: u32) -> u32 {
        lo + ((self.bits() >> 32) % (u64::from(hi.max(lo) - lo) + 1)) as u32
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: u32) -> bool {
        self.within(1, n.max(1)) == 1
    }

    /// An element.
    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.within(0, of.len() as u32 - 1) as usize]
    }
}

/// A kind of loop.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// Loads, conversions, MMAs into carried accumulators.
    Gemm,
    /// Two MMAs with a softmax between them and carried statistics.
    Attention,
    /// Loads, arithmetic on several units, stores.
    Elementwise,
    /// Layers of random ops with pools, offsets and capacities above 1.
    Layered,
    /// Ops with several reservations at offsets, which interlock or do not.
    Rigid,
    /// Groups that share a stage, and depth limits.
    Grouped,
    /// Made from a schedule that leaves no cycle of one unit free: the best interval is known.
    Planted,
    /// Planted, with recurrences that leave ops no or little room against each other.
    Pinned,
}

impl Family {
    /// Every family.
    pub const ALL: [Family; 8] = [
        Family::Gemm,
        Family::Attention,
        Family::Elementwise,
        Family::Layered,
        Family::Rigid,
        Family::Grouped,
        Family::Planted,
        Family::Pinned,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Family::Gemm => "gemm",
            Family::Attention => "attention",
            Family::Elementwise => "elementwise",
            Family::Layered => "layered",
            Family::Rigid => "rigid",
            Family::Grouped => "grouped",
            Family::Planted => "planted",
            Family::Pinned => "pinned",
        }
    }

    /// A loop of about `ops` ops, and its best interval where that is known by construction.
    pub fn problem(self, ops: u32, seed: u64) -> (Problem, Option<u32>) {
        let rng = Rng::new(seed.wrapping_mul(1009).wrapping_add(self as u64));
        let name = format!("{}-{ops}-{seed}", self.name());
        if matches!(self, Family::Planted | Family::Pinned) {
            let (p, ii) = planted(&name, rng, ops.max(2), self == Family::Pinned);
            return (p, Some(ii));
        }
        let mut b = Maker::new(&name, rng);
        match self {
            Family::Gemm => b.gemm(ops),
            Family::Attention => b.attention(ops),
            Family::Elementwise => b.elementwise(ops),
            Family::Layered => b.layered(ops, false),
            Family::Rigid => b.rigid(ops),
            _ => b.layered(ops, true),
        }
        (b.p, None)
    }
}

const UNITS: [&str; 12] = [
    "xu", "fp32x2", "alu", "dual_alu", "mma", "tma", "smem_rd", "smem_wr", "tmem_rd", "tp_mma", "lsu",
    "barrier",
];
const XU: usize = 0;
const FP: usize = 1;
const ALU: usize = 2;
const DUAL: usize = 3;
const MMA: usize = 4;
const TMA: usize = 5;
const SRD: usize = 6;
const SWR: usize = 7;
const TRD: usize = 8;
const TPM: usize = 9;
const LSU: usize = 10;

struct Maker {
    p: Problem,
    rng: Rng,
    slots: Vec<Slot>,
    banks: Pool,
}

impl Maker {
    fn new(name: &str, mut rng: Rng) -> Maker {
        let mut p = Problem::new(name);
        let slots = (1..).zip(UNITS).map(|(id, unit)| p.add_slot(id, unit, 1)).collect();
        let banks = p.add_pool(3, "tmem_bank", rng.within(2, 4));
        Maker { p, rng, slots, banks }
    }

    fn op(&mut self, name: &str, latency: u32, uses: &[(usize, u32)]) -> Node {
        let uses: Vec<Use> = uses
            .iter()
            .map(|&(s, duration)| Use { slot: self.slots[s], offset: 0, duration, occupancy: 1 })
            .collect();
        let charge = [PoolUse { pool: self.banks, count: 1, duration: 8 }];
        let banked = name == "dot" || name == "t2r";
        let id = format!("{name}{}", self.p.num_nodes());
        self.p.add_node(&NodeDef {
            id: &id,
            name,
            latency,
            uses: &uses,
            pools: if banked { &charge } else { &[] },
            ..NodeDef::default()
        })
    }

    fn edge(&mut self, from: Node, to: Node) {
        self.p.add_edge(from, to, self.p.latency(from) as i32, 0);
    }

    fn load(&mut self) -> Node {
        let d = self.rng.pick(&[6, 8, 8, 8]);
        let latency = d + self.rng.within(0, 4);
        self.op("load", latency, &[(TMA, d), (SWR, d)])
    }

    fn dot(&mut self) -> Node {
        let d = self.rng.pick(&[8, 8, 8, 4]);
        let n = self.op("dot", 16, &[(MMA, d), (TPM, d)]);
        self.p.add_edge(n, n, d as i32, 1);
        n
    }

    fn math(&mut self, from: &[Node]) -> Node {
        let (name, latency, unit, duration) = self.rng.pick(&[
            ("mul", 4, FP, 4),
            ("add", 4, FP, 4),
            ("max", 4, ALU, 4),
            ("exp", 8, XU, 4),
            ("cvt", 4, ALU, 2),
            ("sel", 2, DUAL, 2),
        ]);
        let n = self.op(name, latency, &[(unit, duration)]);
        from.iter().for_each(|&f| self.edge(f, n));
        n
    }

    fn gemm(&mut self, ops: u32) {
        while (self.p.num_nodes() as u32) < ops {
            let (a, b) = (self.load(), self.load());
            let mut sides = [a, b];
            if self.rng.one_in(3) {
                // Operands that need a conversion take the way through registers.
                let r = self.op("s2r", 7, &[(SRD, 7)]);
                self.edge(a, r);
                let c = self.math(&[r]);
                let w = self.op("r2s", 7, &[(SWR, 7), (LSU, 2)]);
                self.edge(c, w);
                sides[0] = w;
            }
            for _ in 0..self.rng.within(1, 4) {
                let d = self.dot();
                sides.iter().for_each(|&s| self.edge(s, d));
            }
        }
    }

    fn attention(&mut self, ops: u32) {
        while (self.p.num_nodes() as u32) < ops {
            let k = self.load();
            let qk = self.dot();
            self.edge(k, qk);
            let s = self.op("t2r", 7, &[(TRD, 7)]);
            self.edge(qk, s);
            let m = self.op("max", 4, &[(ALU, 4)]);
            self.edge(s, m);
            self.p.add_edge(m, m, 4, 1);
            let busy = self.rng.pick(&[4, 8]);
            let mut last = self.op("exp", 8, &[(XU, busy)]);
            self.edge(s, last);
            self.edge(m, last);
            let sum = self.op("sum", 2, &[(DUAL, 2)]);
            self.edge(last, sum);
            self.p.add_edge(sum, sum, 4, 1);
            for _ in 0..self.rng.within(0, 4) {
                last = self.math(&[last]);
            }
            let w = self.op("r2s", 7, &[(SWR, 7)]);
            self.edge(last, w);
            let v = self.load();
            let pv = self.dot();
            self.edge(w, pv);
            self.edge(v, pv);
            let scale = self.op("scale", 4, &[(FP, 4)]);
            self.edge(m, scale);
            self.p.add_edge(scale, pv, 4, 0);
            self.p.add_edge(pv, scale, self.rng.pick(&[4, 8, 16]), 1);
        }
    }

    fn elementwise(&mut self, ops: u32) {
        while (self.p.num_nodes() as u32) < ops {
            let mut live = vec![self.load()];
            if self.rng.one_in(2) {
                live.push(self.load());
            }
            for _ in 0..self.rng.within(2, 10) {
                let a = self.rng.pick(&live);
                let b = self.rng.pick(&live);
                let n = if a == b { self.math(&[a]) } else { self.math(&[a, b]) };
                if self.rng.one_in(8) {
                    let latency = self.p.latency(n) as i32;
                    self.p.add_edge(n, n, latency, 1);
                }
                live.push(n);
            }
            let w = self.op("r2s", 7, &[(SWR, 7)]);
            let last = live[live.len() - 1];
            self.edge(last, w);
            let st = self.op("store", 8, &[(TMA, 8)]);
            self.edge(w, st);
        }
    }

    fn random_uses(&mut self, units: usize, most: u32, offsets: bool) -> Vec<Use> {
        let mut uses: Vec<Use> = Vec::new();
        for _ in 0..self.rng.within(1, most) {
            let slot = self.slots[self.rng.within(0, units as u32 - 1) as usize];
            if uses.iter().any(|u| u.slot == slot) {
                continue;
            }
            let offset = if offsets && self.rng.one_in(3) { self.rng.within(1, 9) } else { 0 };
            let occupancy = self.rng.within(1, self.p.slots()[slot].capacity);
            uses.push(Use { slot, offset, duration: self.rng.within(1, 8), occupancy });
        }
        uses
    }

    fn layered(&mut self, ops: u32, grouped: bool) {
        let name = self.p.name().to_owned();
        self.p = Problem::new(&name);
        let units = self.rng.within(2, 6) as usize;
        self.slots.clear();
        for (id, unit) in (1..).zip(UNITS).take(units) {
            let capacity = if self.rng.one_in(3) { self.rng.within(2, 3) } else { 1 };
            self.slots.push(self.p.add_slot(id, unit, capacity));
        }
        let pools: Vec<Pool> = (0..self.rng.within(0, 2))
            .map(|i| {
                let capacity = self.rng.within(2, 5);
                self.p.add_pool(i, "pool", capacity)
            })
            .collect();
        let mut layers: Vec<Vec<Node>> = vec![Vec::new()];
        for i in 0..ops {
            if layers.last().is_some_and(|l| l.len() >= 2) && self.rng.one_in(4) {
                layers.push(Vec::new());
            }
            let uses = self.random_uses(units, 3, true);
            let mut charges = Vec::new();
            for &pool in &pools {
                if self.rng.one_in(3) {
                    charges.push(PoolUse {
                        pool,
                        count: self.rng.within(1, 2),
                        duration: self.rng.within(1, 6),
                    });
                }
            }
            let group = (grouped && self.rng.one_in(4)).then(|| self.rng.within(0, ops / 12));
            let max_depth = if grouped && self.rng.one_in(10) { self.rng.within(1, 3) } else { 0 };
            let id = format!("n{i}");
            let n = self.p.add_node(&NodeDef {
                id: &id,
                name: "op",
                latency: self.rng.within(1, 12),
                uses: &uses,
                pools: &charges,
                group,
                max_depth,
                ..NodeDef::default()
            });
            let depth = layers.len() - 1;
            if depth > 0 {
                for _ in 0..self.rng.within(1, 2) {
                    let layer = if self.rng.one_in(4) {
                        self.rng.within(0, depth as u32 - 1) as usize
                    } else {
                        depth - 1
                    };
                    let from = self.rng.pick(&layers[layer]);
                    self.edge(from, n);
                }
            }
            layers[depth].push(n);
            if self.rng.one_in(8) {
                let back = self.rng.within(0, i);
                let latency = self.rng.within(0, 6) as i32;
                let distance = self.rng.within(1, 3);
                self.p.add_edge(n, Node::from_u32(back), latency, distance);
            }
        }
    }

    fn rigid(&mut self, ops: u32) {
        let mut last: Option<Node> = None;
        let units = self.rng.within(1, 3) as usize;
        for i in 0..ops {
            let mut uses: Vec<Use> = Vec::new();
            for unit in 0..units {
                let mut at = self.rng.within(0, 2);
                for _ in 0..self.rng.within(0, 2) {
                    let duration = self.rng.within(1, 4);
                    uses.push(Use { slot: self.slots[unit], offset: at, duration, occupancy: 1 });
                    at += duration + self.rng.within(1, 5);
                }
            }
            let id = format!("n{i}");
            let latency = self.rng.within(1, 10);
            let n =
                self.p.add_node(&NodeDef { id: &id, name: "op", latency, uses: &uses, ..NodeDef::default() });
            if let Some(l) = last.filter(|_| !self.rng.one_in(3)) {
                self.edge(l, n);
                if self.rng.one_in(6) {
                    self.p.add_edge(n, l, self.rng.within(0, 4) as i32, self.rng.within(1, 2));
                }
            }
            last = Some(n);
        }
    }
}

/// A loop made from a schedule: starts first, then edges that these starts satisfy.
fn planted(name: &str, mut rng: Rng, ops: u32, pinned: bool) -> (Problem, u32) {
    let mut p = Problem::new(name);
    // About four cycles per op and unit; the first unit is filled without a gap.
    let units = (ops / 12).clamp(2, 10);
    let ii = (ops * 5 / units).max(8) + rng.within(0, 7);
    let slots: Vec<Slot> = (0..units).map(|i| p.add_slot(i + 1, UNITS[i as usize], 1)).collect();
    let mut free = vec![vec![true; ii as usize]; units as usize];
    // (cycle, uses) of each op; the cycle gets a stage below.
    let mut starts: Vec<(u32, Vec<Use>)> = Vec::new();
    let mut next = rng.within(0, ii - 1);
    let mut tries = 0;
    while tries < 40 * ops {
        tries += 1;
        let first_full = !free[0].contains(&true);
        if starts.len() as u32 >= ops && first_full {
            break;
        }
        let unit = if !first_full && (starts.len() as u32 >= ops || rng.one_in(units)) {
            0
        } else {
            rng.within(0, units - 1)
        };
        let row = &mut free[unit as usize];
        let Some(step) = (0..ii).find(|k| row[((next + k) % ii) as usize]) else { continue };
        let begin = (next + step) % ii;
        let run = (0..ii).take_while(|k| row[((begin + k) % ii) as usize]).count() as u32;
        let mut duration = rng.pick(&[2, 3, 4, 4, 6, 7, 8, 8]).min(run);
        if run - duration < 2 {
            duration = run;
        }
        (0..duration).for_each(|k| row[((begin + k) % ii) as usize] = false);
        let mut uses = vec![Use { slot: slots[unit as usize], offset: 0, duration, occupancy: 1 }];
        if rng.one_in(3) {
            let other = rng.within(0, units - 1);
            let row = &mut free[other as usize];
            let offset = if rng.one_in(2) { 0 } else { rng.within(0, 6) };
            let run = (0..ii).take_while(|k| row[((begin + offset + k) % ii) as usize]).count() as u32;
            let duration = duration.min(run);
            if other != unit && other != 0 && duration > 0 {
                (0..duration).for_each(|k| row[((begin + offset + k) % ii) as usize] = false);
                uses.push(Use { slot: slots[other as usize], offset, duration, occupancy: 1 });
            }
        }
        starts.push((begin, uses));
        next = rng.within(0, ii - 1);
    }
    // Stages, then program order by start.
    let mut line: Vec<(u32, Vec<Use>)> =
        starts.into_iter().map(|(row, uses)| (row + ii * rng.within(0, 3), uses)).collect();
    line.sort_by_key(|s| s.0);
    let mut nodes = Vec::new();
    for (i, (_, uses)) in line.iter().enumerate() {
        let id = format!("n{i}");
        nodes.push(p.add_node(&NodeDef {
            id: &id,
            name: "op",
            latency: rng.within(1, 12),
            uses,
            ..NodeDef::default()
        }));
    }
    let n = nodes.len() as u32;
    let relate = |p: &mut Problem, a: u32, b: u32, distance: u32, slack: u32| {
        let gap = i64::from(line[b as usize].0) - i64::from(line[a as usize].0) + i64::from(ii * distance);
        let latency = gap - i64::from(slack);
        // Long latencies only where the gap is: most dependences of a real loop are short.
        if latency.abs() <= i64::from(3 * ii) {
            p.add_edge(nodes[a as usize], nodes[b as usize], latency as i32, distance);
        }
    };
    for i in 1..n {
        for _ in 0..rng.within(0, 2) {
            let from = rng.within(i.saturating_sub(12), i - 1);
            let slack = rng.within(0, 2 * ii);
            relate(&mut p, from, i, 0, slack);
        }
    }
    let back = if pinned { n / 2 } else { n / 10 };
    for _ in 0..back {
        let i = rng.within(1, n - 1);
        let from = rng.within(i.saturating_sub(8), i - 1);
        let slack = if pinned { rng.within(0, 3) } else { rng.within(0, ii) };
        relate(&mut p, from, i, 0, slack);
        let distance = rng.within(1, 2);
        let slack = if pinned { rng.within(0, ii / 4) } else { rng.within(0, ii) };
        relate(&mut p, i, from, distance, slack);
    }
    (p, ii)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tileas_schedule::{RegionSchedule, ScheduleOptions, Scheduler, verify::verify};

    #[test]
    fn loops_are_well_formed_and_of_about_the_size_asked_for() {
        for family in Family::ALL {
            for (ops, seed) in [(8, 1), (24, 2), (64, 3), (200, 4)] {
                let (p, known) = family.problem(ops, seed);
                assert_eq!(p.check(&ScheduleOptions::default().limits), [], "{}", p.name());
                let n = p.num_nodes() as u32;
                assert!(n >= ops.min(8) && n <= ops + ops / 2 + 16, "{}: {n} ops", p.name());
                assert_eq!(known.is_some(), matches!(family, Family::Planted | Family::Pinned));
                let (again, _) = family.problem(ops, seed);
                assert_eq!(format!("{p:?}"), format!("{again:?}"));
            }
        }
    }

    #[test]
    fn planted_intervals_are_lower_bounds() {
        let (mut scheduler, mut s) = (Scheduler::new(), RegionSchedule::default());
        for seed in 0..20 {
            for family in [Family::Planted, Family::Pinned] {
                let (p, known) = family.problem(30, seed);
                scheduler.schedule_into(&p, &ScheduleOptions::default(), &mut s).unwrap();
                assert_eq!(verify(&p, &s), []);
                assert_eq!(Some(s.bounds.resource), known, "the first unit is full");
                assert!(s.bounds.max() <= known.unwrap_or(0), "the planted schedule satisfies every edge");
            }
        }
    }
}
