//! A lower bound on II from how units of one resource pack side by side in a cycle.
//!
//! In: a checked problem. Out: an II below which no schedule exists, at least the plain ones of `bounds` for slots and
//! pools. Where a capacity is 3, two reservations of 2 units never share a cycle although a third of the capacity
//! stays free beside each: busy cycles over capacity then promise too much. Dual feasible functions count that: `f` with
//! `f(u1) + f(u2) + … <= f(C)` for all demands that fit capacity `C` together, so that the sum of `f(units) · cycles`
//! over all reservations needs `f(C) · II`.
//!
//! A second bound ([`Packing::alone`]) counts cycles that a reservation keeps others out of although units stay free: whoever
//! could be there as well meets the op somewhere else.
//!
//! Cost: O(uses · capacity), capacities counted up to [`MOST`]; the second bound at most [`MOST_LOOKS`] pairs of reservations. Source: dual feasible functions as surveyed by Clautiaux, Alves and Valério de Carvalho
//! (2010): the threshold function and `f_CCM,1`.

use super::problem::{MAX_QUANTITY, Problem};

/// Parameters tried per resource.
const MOST: u64 = 64;

/// Ops of the largest problem that the second bound looks at, and pairs of reservations it compares.
const MOST_OPS: usize = 256;
const MOST_LOOKS: u32 = 1 << 18;

/// A reservation of a slot or pool.
#[derive(Copy, Clone)]
struct Held {
    op: u32,
    resource: u32,
    offset: i64,
    duration: i64,
    units: u64,
}

/// Memory of the bound.
#[derive(Default)]
pub(super) struct Packing {
    /// Reservations by op, the first of each op, and which of them are on the resource at hand.
    held: Vec<Held>,
    first: Vec<u32>,
    here: Vec<u32>,
    looks: u32,
    /// (resource, units, cycles) of each reservation.
    demands: Vec<(u32, u64, u64)>,
}

impl Packing {
    /// The bound; 1 if nothing is reserved.
    pub fn bound(&mut self, p: &Problem) -> u32 {
        let slots = p.slots().len() as u32;
        self.demands.clear();
        for n in p.nodes() {
            for u in p.uses(n).iter().filter(|u| p.slots()[u.slot].capacity > 2) {
                self.demands.push((u.slot.as_u32(), u.occupancy.into(), u.duration.into()));
            }
            for u in p.pool_uses(n).iter().filter(|u| p.pools()[u.pool].capacity > 2) {
                self.demands.push((slots + u.pool.as_u32(), u.count.into(), u.duration.into()));
            }
        }
        // Up to a capacity of 2 the plain bound says the same.
        self.demands.sort_unstable();
        let mut least = 1;
        let mut from = 0;
        while from < self.demands.len() {
            let resource = self.demands[from].0;
            let len = self.demands[from..].iter().take_while(|d| d.0 == resource).count();
            let of = &self.demands[from..from + len];
            let capacity = match resource.checked_sub(slots) {
                None => p.slots()[super::problem::Slot::from_u32(resource)].capacity,
                Some(pool) => p.pools()[super::problem::Pool::from_u32(pool)].capacity,
            };
            least = least.max(of_resource(of, capacity.into()));
            from += len;
        }
        least.min(u64::from(MAX_QUANTITY)) as u32
    }

    /// The bound from cycles in which nobody else can be; 1 if the problem is too large to say.
    pub fn alone(&mut self, p: &Problem) -> u32 {
        let slots = p.slots().len() as u32;
        if p.num_nodes() > MOST_OPS {
            return 1;
        }
        self.held.clear();
        self.first.clear();
        for n in p.nodes() {
            self.first.push(self.held.len() as u32);
            let op = n.as_u32();
            let uses = p.uses(n).iter().map(|u| (u.slot.as_u32(), u.offset, u.duration, u.occupancy));
            let charges = p.pool_uses(n).iter().map(|u| (slots + u.pool.as_u32(), 0, u.duration, u.count));
            for (resource, offset, duration, units) in uses.chain(charges).filter(|r| r.2 > 0 && r.3 > 0) {
                let (offset, duration) = (offset.into(), duration.into());
                self.held.push(Held { op, resource, offset, duration, units: units.into() });
            }
        }
        self.first.push(self.held.len() as u32);
        self.looks = 0;
        let capacity = |r: u32| match r.checked_sub(slots) {
            None => u64::from(p.slots()[super::problem::Slot::from_u32(r)].capacity),
            Some(pool) => u64::from(p.pools()[super::problem::Pool::from_u32(pool)].capacity),
        };
        let mut least = 1;
        for r in (0..slots + p.pools().len() as u32).filter(|&r| capacity(r) > 1) {
            self.here.clear();
            let on = (0..self.held.len() as u32).filter(|&k| self.held[k as usize].resource == r);
            self.here.extend(on);
            let mut sum = 0u64;
            for k in 0..self.here.len() {
                let own = self.held[self.here[k] as usize];
                let once = self.here.iter().filter(|&&j| self.held[j as usize].op == own.op).count() == 1;
                // Cycles with several reservations of one op would be counted for each of them.
                let counts = once && own.units < capacity(r);
                let kept = if counts { self.kept(&own, &capacity) } else { 0 };
                if self.looks >= MOST_LOOKS {
                    return 1;
                }
                let shared = own.duration as u64 - kept;
                sum = sum.saturating_add(own.units.saturating_mul(shared));
                sum = sum.saturating_add(capacity(r).saturating_mul(kept));
            }
            least = least.max(sum.div_ceil(capacity(r)));
        }
        least.min(u64::from(MAX_QUANTITY)) as u32
    }

    /// Cycles of a reservation in which nobody else can be, not even its own op of another iteration.
    fn kept(&mut self, own: &Held, capacity: &impl Fn(u32) -> u64) -> u64 {
        let mut kept = 0;
        for cycle in own.offset..own.offset + own.duration {
            let mut alone = true;
            for &j in &self.here {
                let other = self.held[j as usize];
                for k in other.offset..other.offset + other.duration {
                    // The other op starts so much later.
                    let later = cycle - k;
                    self.looks = self.looks.saturating_add(1);
                    if self.looks >= MOST_LOOKS {
                        return 0;
                    }
                    if other.op == own.op && later == 0 {
                        continue;
                    }
                    let of = |op: u32| {
                        &self.held[self.first[op as usize] as usize..self.first[op as usize + 1] as usize]
                    };
                    let (mine, theirs) = (of(own.op), of(other.op));
                    self.looks = self.looks.saturating_add((mine.len() * theirs.len()) as u32);
                    let meets = |x: &Held, y: &Held| {
                        x.resource == y.resource
                            && x.units + y.units > capacity(x.resource)
                            && y.offset + later < x.offset + x.duration
                            && x.offset < y.offset + later + y.duration
                    };
                    alone = mine.iter().any(|x| theirs.iter().any(|y| meets(x, y)));
                    if !alone {
                        break;
                    }
                }
                if !alone {
                    break;
                }
            }
            kept += u64::from(alone);
        }
        kept
    }
}

fn of_resource(demands: &[(u32, u64, u64)], capacity: u64) -> u64 {
    let need = |f: &dyn Fn(u64) -> u64| {
        let sum = demands.iter().fold(0u64, |sum, d| sum.saturating_add(f(d.1).saturating_mul(d.2)));
        sum.div_ceil(f(capacity).max(1))
    };
    let mut least = 0;
    for k in 1..=(capacity / 2).min(MOST) {
        // Below k nothing, above C - k all.
        least = least.max(need(&|u| match u {
            u if u > capacity - k => capacity,
            u if u < k => 0,
            u => u,
        }));
    }
    for k in 1..=capacity.min(MOST) {
        least = least.max(need(&|u| match (2 * u).cmp(&capacity) {
            std::cmp::Ordering::Less => 2 * (u / k),
            std::cmp::Ordering::Equal => capacity / k,
            std::cmp::Ordering::Greater => 2 * (capacity / k - (capacity.saturating_sub(u)) / k),
        }));
    }
    least
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A set of one-cycle demands needs at least as many cycles as the bound says: checked by exhaustive packing.
    #[test]
    fn never_above_the_best_packing() {
        fn bins(left: &mut Vec<u64>, free: &mut Vec<u64>, capacity: u64, best: &mut usize) {
            if free.len() >= *best {
                return;
            }
            let Some(u) = left.pop() else {
                *best = free.len();
                return;
            };
            for k in 0..free.len() {
                if free[k] >= u {
                    free[k] -= u;
                    bins(left, free, capacity, best);
                    free[k] += u;
                }
            }
            free.push(capacity - u);
            bins(left, free, capacity, best);
            free.pop();
            left.push(u);
        }
        let mut seed = 11u64;
        let mut below = |n: u64| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) % n
        };
        let (mut tight, mut above_plain) = (0, 0);
        for _ in 0..400 {
            let capacity = 3 + below(8);
            let mut units: Vec<u64> = (0..1 + below(8)).map(|_| 1 + below(capacity)).collect();
            let demands: Vec<(u32, u64, u64)> = units.iter().map(|&u| (0, u, 1)).collect();
            let bound = of_resource(&demands, capacity);
            units.sort_unstable();
            let plain = units.iter().sum::<u64>().div_ceil(capacity);
            let mut best = usize::MAX;
            bins(&mut units, &mut Vec::new(), capacity, &mut best);
            assert!(bound <= best as u64, "{bound} > {best} for {demands:?} of {capacity}");
            assert!(bound >= plain);
            tight += u32::from(bound == best as u64);
            above_plain += u32::from(bound > plain);
        }
        assert!(tight > 300 && above_plain > 30, "{tight} {above_plain}");
    }

    /// Ops of two units that share one of a larger capacity: whatever rows they take, the least II is no smaller.
    #[test]
    fn cycles_alone_are_never_too_many() {
        use super::super::problem::{NodeDef, Use};
        use super::super::verify::{Rule, verify};
        use super::super::{Generator, RegionSchedule, families::Rng};
        let mut rng = Rng::new(9);
        let (mut packing, mut above, mut exact) = (Packing::default(), 0, 0);
        for _ in 0..300 {
            let mut p = Problem::new("t");
            let slots = [p.add_slot(0, "wide", 2), p.add_slot(1, "a", 1), p.add_slot(2, "b", 1)];
            let ops = rng.within(2, 4);
            let mut plain = 0;
            for k in 0..ops {
                let (offset, duration) = (rng.within(0, 1), rng.within(1, 2));
                let occupancy = 1 + u32::from(rng.one_in(4));
                plain += duration * occupancy;
                let mut uses = vec![Use { slot: slots[0], offset, duration, occupancy }];
                let other = slots[rng.within(1, 2) as usize];
                uses.push(Use {
                    slot: other,
                    offset: rng.within(0, 2),
                    duration: rng.within(1, 3),
                    occupancy: 1,
                });
                p.add_node(&NodeDef { id: &format!("n{k}"), uses: &uses, ..NodeDef::default() });
            }
            let bound = packing.alone(&p);
            let legal = |ii: u32, rows: &[u32]| {
                let mut s =
                    RegionSchedule { ii, generator: Generator::CostBased, ..RegionSchedule::default() };
                for &row in rows {
                    s.start.push(row);
                    s.stage.push(0);
                    s.order.push(0);
                }
                verify(&p, &s).iter().all(|v| v.rule != Rule::Slot)
            };
            let fits = |ii: u32| {
                (0..ii.pow(ops - 1)).any(|k| {
                    let mut rows = vec![0];
                    rows.extend((0..ops - 1).map(|o| k / ii.pow(o) % ii));
                    legal(ii, &rows)
                })
            };
            // Not above the least there is.
            let least = (1..).find(|&ii| fits(ii)).expect("serially");
            assert!(bound <= least, "{bound} {least} {p:?}");
            above += u32::from(bound > plain.div_ceil(2));
            exact += u32::from(bound == least && bound > plain.div_ceil(2));
        }
        assert!(above > 20 && exact > 10, "{above} {exact}");
    }
}
