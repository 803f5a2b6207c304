//! Vectors over GF(2) as bits of `u32`, and what they span.
//!
//! In: columns, in order of preference. Out: which of them are independent, how a vector is a sum of them, what sums of
//! them are zero, what two spans share. No allocation; at most 24 columns, as many as a layout has.

use smallvec::SmallVec;

/// Most columns of a map, and bits of an element number.
pub const MAX_BITS: usize = 24;

/// Columns of a map or vectors of a basis.
pub type Columns = SmallVec<[u32; MAX_BITS]>;

/// What columns span. Those that come first are preferred: a later column counts only if it is independent of them.
#[derive(Clone, Default, Debug)]
pub struct Span {
    /// By highest bit: a sum of columns with that highest bit, and which columns; 0 where there is none.
    basis: [(u32, u32); 32],
    pushed: u32,
    pivots: u32,
}

impl Span {
    /// The span of some columns.
    pub fn of(columns: &[u32]) -> Span {
        let mut s = Span::default();
        for &c in columns {
            s.push(c);
        }
        s
    }

    /// What is left of a vector, and the columns whose sum was taken off.
    fn reduce(&self, mut v: u32) -> (u32, u32) {
        let mut used = 0;
        while v != 0 {
            let (b, columns) = self.basis[v.ilog2() as usize];
            if b == 0 {
                // A lower bit may still be reducible, but then the vector is outside of the span all the same.
                break;
            }
            v ^= b;
            used ^= columns;
        }
        (v, used)
    }

    /// Adds a column. `None`: it is independent of those before; else the columns, itself among them, whose sum is 0.
    pub fn push(&mut self, column: u32) -> Option<u32> {
        let me = 1u32.checked_shl(self.pushed).unwrap_or(0);
        self.pushed += 1;
        let (left, used) = self.reduce(column);
        if left == 0 {
            return Some(used ^ me);
        }
        self.basis[left.ilog2() as usize] = (left, used ^ me);
        self.pivots |= me;
        None
    }

    /// The columns, a mask of pivots, whose sum is the vector.
    pub fn solve(&self, v: u32) -> Option<u32> {
        let (left, used) = self.reduce(v);
        (left == 0).then_some(used)
    }

    /// Whether a vector is a sum of columns.
    pub fn contains(&self, v: u32) -> bool {
        self.reduce(v).0 == 0
    }

    /// Whether all these vectors are.
    pub fn contains_all(&self, vs: &[u32]) -> bool {
        vs.iter().all(|&v| self.contains(v))
    }

    /// Number of independent columns.
    pub fn rank(&self) -> u32 {
        self.pivots.count_ones()
    }

    /// The first independent columns, as a mask.
    pub fn pivots(&self) -> u32 {
        self.pivots
    }
}

/// Sums of columns that are zero: a basis, as masks of columns.
pub fn kernel(columns: &[u32]) -> Columns {
    let mut s = Span::default();
    columns.iter().filter_map(|&c| s.push(c)).collect()
}

/// The sum of the columns of a mask.
pub fn sum(columns: &[u32], mask: u32) -> u32 {
    let mut m = mask;
    let mut v = 0;
    while m != 0 {
        v ^= columns[m.trailing_zeros() as usize];
        m &= m - 1;
    }
    v
}

/// A basis of what two spans share; sums of `a` in the order of `b`.
pub fn intersection(a: &[u32], b: &[u32]) -> Columns {
    let mut s = Span::of(a);
    let own = 1u32.checked_shl(a.len() as u32).unwrap_or(0).wrapping_sub(1);
    let mut out = Columns::new();
    let mut found = Span::default();
    for &v in b {
        // A relation between both sides: the part of `a` is in both spans.
        if let Some(relation) = s.push(v) {
            let shared = sum(a, relation & own);
            if found.push(shared).is_none() {
                out.push(shared);
            }
        }
    }
    out
}

/// Vectors that are independent of a span and with it make up all of `within`, in the order of `within`.
pub fn completion(span: &[u32], within: &[u32]) -> Columns {
    let mut s = Span::of(span);
    within.iter().copied().filter(|&v| s.push(v).is_none()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All sums of columns.
    fn all(columns: &[u32]) -> Vec<u32> {
        let mut v: Vec<u32> = (0..1u32 << columns.len()).map(|m| sum(columns, m)).collect();
        v.sort_unstable();
        v.dedup();
        v
    }

    fn random(seed: &mut u64, n: usize, bits: u32) -> Columns {
        (0..n)
            .map(|_| {
                *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (*seed >> 33) as u32 & ((1 << bits) - 1)
            })
            .collect()
    }

    #[test]
    fn spans_are_what_enumeration_says() {
        let mut seed = 1;
        for round in 0..2000 {
            let (a, b) = (random(&mut seed, round % 7, 6), random(&mut seed, round % 5, 6));
            let s = Span::of(&a);
            let members = all(&a);
            assert_eq!(1 << s.rank(), members.len());
            assert_eq!(s.pivots().count_ones(), s.rank());
            for v in 0..64 {
                assert_eq!(s.contains(v), members.binary_search(&v).is_ok());
                if let Some(mask) = s.solve(v) {
                    assert_eq!(sum(&a, mask), v);
                    assert_eq!(mask & !s.pivots(), 0);
                }
            }
            let k = kernel(&a);
            assert_eq!(k.len(), a.len() - s.rank() as usize);
            assert!(k.iter().all(|&m| m != 0 && sum(&a, m) == 0));
            assert_eq!(Span::of(&k).rank() as usize, k.len());
            let both: Vec<u32> = members.iter().copied().filter(|v| all(&b).contains(v)).collect();
            let shared = intersection(&a, &b);
            assert_eq!(all(&shared), both);
            assert_eq!(1 << shared.len(), both.len());
            let more = completion(&a, &b);
            let joined: Columns = a.iter().chain(&b).copied().collect();
            assert_eq!(Span::of(&joined).rank() as usize, s.rank() as usize + more.len());
        }
    }

    #[test]
    fn the_first_columns_are_the_pivots() {
        assert_eq!(Span::of(&[1, 1, 2, 3, 4]).pivots(), 0b10101);
        assert_eq!(Span::of(&[0, 3, 1, 2]).solve(2), Some(0b110));
    }
}
