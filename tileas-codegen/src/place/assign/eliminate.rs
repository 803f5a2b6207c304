//! The cheapest choice of a candidate for each node, exactly where the tables stay small.

use smallvec::SmallVec;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Most entries of a table of costs.
const MOST_ENTRIES: usize = 200_000;

/// A table of costs over the candidates of some nodes, the last one running fastest.
#[derive(Clone)]
pub(super) struct Factor {
    pub(super) vars: SmallVec<[usize; 4]>,
    pub(super) table: Vec<u32>,
}

impl Factor {
    fn at(&self, sizes: &[usize], choice: &[usize]) -> u32 {
        let n = self.vars.iter().fold(0, |n, &v| n * sizes[v] + choice[v]);
        self.table[n]
    }
}

/// The numbers of the factors that a node is in.
fn incident(sizes: &[usize], factors: &[Factor]) -> Vec<Vec<usize>> {
    let mut of = vec![Vec::new(); sizes.len()];
    for (i, f) in factors.iter().enumerate() {
        for &v in &f.vars {
            of[v].push(i);
        }
    }
    of
}

/// The least sum, by eliminating nodes, those of the smallest table first. `None`: a table would be too large.
pub(super) fn eliminate(sizes: &[usize], factors: &[Factor]) -> Option<Vec<usize>> {
    let mut factors = factors.to_vec();
    let mut of = incident(sizes, &factors);
    let neighbours = |x: usize, mine: &[usize], factors: &[Factor]| -> SmallVec<[usize; 4]> {
        let vars = mine.iter().flat_map(|&i| factors[i].vars.iter().copied());
        let mut all: SmallVec<[usize; 4]> = vars.filter(|&v| v != x).collect();
        all.sort_unstable();
        all.dedup();
        all
    };
    let entries =
        |x: usize, around: &[usize]| around.iter().fold(sizes[x], |n, &v| n.saturating_mul(sizes[v]));
    let mut now: Vec<usize> =
        (0..sizes.len()).map(|x| entries(x, &neighbours(x, &of[x], &factors))).collect();
    let mut next: BinaryHeap<Reverse<(usize, usize)>> =
        now.iter().enumerate().map(|(x, &n)| Reverse((n, x))).collect();
    // In order of elimination: the node, its neighbours, and its choice for each of theirs.
    let mut done: Vec<(usize, SmallVec<[usize; 4]>, Vec<usize>)> = Vec::new();
    let mut choice = vec![0; sizes.len()];
    while let Some(Reverse((n, x))) = next.pop() {
        // What changed meanwhile stands there again.
        if n != now[x] {
            continue;
        }
        if n > MOST_ENTRIES {
            return None;
        }
        let mine = std::mem::take(&mut of[x]);
        now[x] = 0;
        let around = neighbours(x, &mine, &factors);
        let count = around.iter().map(|&v| sizes[v]).product::<usize>();
        let mut best = Vec::with_capacity(count);
        let mut table = Vec::with_capacity(count);
        for entry in 0..count {
            let mut rest = entry;
            for &v in around.iter().rev() {
                choice[v] = rest % sizes[v];
                rest /= sizes[v];
            }
            let mut least = (u32::MAX, 0);
            for c in 0..sizes[x] {
                choice[x] = c;
                let cost = mine.iter().fold(0u32, |n, &f| n.saturating_add(factors[f].at(sizes, &choice)));
                if cost < least.0 || c == 0 {
                    least = (cost, c);
                }
            }
            table.push(least.0);
            best.push(least.1);
        }
        for &v in &around {
            of[v].retain(|f| !mine.contains(f));
            of[v].push(factors.len());
        }
        factors.push(Factor { vars: around.clone(), table });
        for &v in &around {
            let then = entries(v, &neighbours(v, &of[v], &factors));
            if then != now[v] {
                now[v] = then;
                next.push(Reverse((then, v)));
            }
        }
        done.push((x, around, best));
    }
    let mut out = vec![0; sizes.len()];
    for (x, around, best) in done.into_iter().rev() {
        let n = around.iter().fold(0, |n, &v| n * sizes[v] + out[v]);
        out[x] = best[n];
    }
    Some(out)
}

/// A small sum: each node alone, again and again, until none helps.
pub(super) fn descend(sizes: &[usize], factors: &[Factor]) -> Vec<usize> {
    let of = incident(sizes, factors);
    let mut out = vec![0; sizes.len()];
    for _ in 0..sizes.len().max(4) {
        let mut changed = false;
        for x in 0..sizes.len() {
            let before = out[x];
            let best = (0..sizes[x]).min_by_key(|&c| {
                out[x] = c;
                (of[x].iter().fold(0u32, |n, &f| n.saturating_add(factors[f].at(sizes, &out))), c)
            });
            out[x] = best.unwrap_or(before);
            changed |= out[x] != before;
        }
        if !changed {
            break;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use smallvec::smallvec;

    #[test]
    fn elimination_finds_what_trying_all_finds() {
        let mut seed = 11u64;
        let mut random = |n: u32| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((seed >> 33) % u64::from(n)) as u32
        };
        for _ in 0..300 {
            let nodes = 1 + random(5) as usize;
            let sizes: Vec<usize> = (0..nodes).map(|_| 1 + random(4) as usize).collect();
            let mut factors: Vec<Factor> = (0..nodes)
                .map(|n| Factor { vars: smallvec![n], table: (0..sizes[n]).map(|_| random(20)).collect() })
                .collect();
            for _ in 0..random(8) {
                let (a, b) = (random(nodes as u32) as usize, random(nodes as u32) as usize);
                if a != b {
                    let table = (0..sizes[a] * sizes[b]).map(|_| random(20)).collect();
                    factors.push(Factor { vars: smallvec![a, b], table });
                }
            }
            let sum = |c: &[usize]| factors.iter().map(|f| f.at(&sizes, c)).sum::<u32>();
            let all: usize = sizes.iter().product();
            let least = (0..all)
                .map(|mut n| {
                    let choice: Vec<usize> = sizes
                        .iter()
                        .map(|&s| {
                            let c = n % s;
                            n /= s;
                            c
                        })
                        .collect();
                    sum(&choice)
                })
                .min()
                .unwrap_or(0);
            let found = eliminate(&sizes, &factors).expect("small tables");
            assert_eq!(sum(&found), least);
            assert_eq!(eliminate(&sizes, &factors), Some(found), "the same again");
            assert!(sum(&descend(&sizes, &factors)) >= least);
        }
    }
}
