//! A lower bound on II from how units of one resource pack side by side in a cycle.
//!
//! In: a checked problem. Out: an II below which no schedule exists, at least the plain ones of `bounds` for slots and
//! pools. Where a capacity is 3, two reservations of 2 units never share a cycle although a third of the capacity
//! stays free beside each: busy cycles over capacity then promise too much. Dual feasible functions count that: `f` with
//! `f(u1) + f(u2) + … <= f(C)` for all demands that fit capacity `C` together, so that the sum of `f(units) · cycles`
//! over all reservations needs `f(C) · II`.
//!
//! Cost: O(uses · capacity), capacities counted up to [`MOST`]. Source: dual feasible functions as surveyed by Clautiaux, Alves and Valério de Carvalho
//! (2010): the threshold function and `f_CCM,1`.

use super::problem::{MAX_QUANTITY, Problem};

/// Parameters tried per resource.
const MOST: u64 = 64;

/// Memory of the bound.
#[derive(Default)]
pub(super) struct Packing {
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
}
