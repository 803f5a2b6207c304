//! Resources of a [`Model`]: which differences of rows two ops must not have, and what must be counted.
//!
//! In: folded footprints and rows. Out: forbidden ranges for every two ops that hold more than there is where they
//! meet, over all resources together; and, for resources of which three ops can hold too much although no two do, one
//! counted row per cycle modulo II.

use super::model::{Apart, Entry, MAX_ENTRIES, MAX_RANGES, Model, NoModel, Row, RowOf};

impl Model {
    /// Forbidden differences of every two ops.
    pub(super) fn keep_apart(&mut self) -> Result<(), NoModel> {
        let ii = self.ii as usize;
        let mut meets = vec![false; ii];
        let mut total = 0;
        for u in 0..self.rows.len() {
            for v in u + 1..self.rows.len() {
                let (Some(a), Some(b)) = (self.rows[u], self.rows[v]) else { continue };
                meets.fill(false);
                let mut any = false;
                for x in &self.pieces[u] {
                    for y in self.pieces[v].iter().filter(|y| y.resource == x.resource) {
                        if x.units + y.units <= self.capacity[x.resource as usize] {
                            continue;
                        }
                        // They meet where y begins at most y.len - 1 cycles before x and x.len - 1 after it.
                        any = true;
                        let first =
                            (x.offset as usize + 2 * ii + 1 - y.offset as usize - y.len as usize) % ii;
                        for k in 0..((x.len + y.len - 1) as usize).min(ii) {
                            meets[(first + k) % ii] = true;
                        }
                    }
                }
                if any {
                    self.forbid(a, b, &meets)?;
                    total += self.apart.last().map_or(0, |x| x.ranges.len());
                    if total > MAX_RANGES {
                        return Err(NoModel::TooLarge);
                    }
                }
            }
        }
        Ok(())
    }

    /// Forbids differences of rows `b - a` that are marked, modulo II.
    fn forbid(&mut self, a: RowOf, b: RowOf, meets: &[bool]) -> Result<(), NoModel> {
        let ii = self.ii as i32;
        let (x, y) = (self.vars[a.var as usize], self.vars[b.var as usize]);
        let shift = b.shift - a.shift;
        let (lo, hi) = (y.lo - x.hi, y.hi - x.lo);
        let bad = |d: i32| meets[(d - shift).rem_euclid(ii) as usize];
        let mut ranges: Vec<(i32, i32)> = Vec::new();
        for d in (lo..=hi).filter(|&d| bad(d)) {
            match ranges.last_mut() {
                Some(r) if r.1 == d - 1 => r.1 = d,
                _ => ranges.push((d, d)),
            }
        }
        if ranges.first() == Some(&(lo, hi)) {
            return Err(NoModel::Refuted);
        }
        // Ranges at the ends leave one side.
        if let Some(&(first, last)) = ranges.first()
            && first == lo
        {
            ranges.remove(0);
            self.add_diff(a.var, b.var, i64::from(last) + 1)?;
        }
        if let Some(&(first, last)) = ranges.last()
            && last == hi
        {
            ranges.pop();
            self.add_diff(b.var, a.var, 1 - i64::from(first))?;
        }
        if !ranges.is_empty() {
            self.apart.push(Apart { a: a.var, b: b.var, ranges });
        }
        Ok(())
    }

    /// Rows of resources that pairs alone do not describe.
    pub(super) fn count(&mut self) -> Result<(), NoModel> {
        let ii = self.ii as u32;
        let mut total = 0;
        for resource in 0..self.capacity.len() as u32 {
            let capacity = self.capacity[resource as usize];
            let least = |list: &Vec<super::model::Piece>| {
                list.iter().filter(|q| q.resource == resource).map(|q| q.units).min()
            };
            let mut least: Vec<u64> = self.pieces.iter().filter_map(least).collect();
            least.sort_unstable();
            if least.len() < 2 || least[0] + least[1] > capacity {
                continue;
            }
            for row in 0..ii {
                let mut entries: Vec<Entry> = Vec::new();
                let mut most = 0;
                for (u, pieces) in self.pieces.iter().enumerate() {
                    let Some(of) = self.rows[u] else { continue };
                    let mut peak = 0;
                    for q in pieces.iter().filter(|q| q.resource == resource) {
                        if let Some(entry) = self.entry(of, q.offset, q.len, q.units, row) {
                            peak = peak.max(q.units);
                            entries.push(entry);
                        }
                    }
                    most += peak;
                }
                if most > capacity {
                    total += entries.len();
                    self.counted.push(Row { capacity, entries });
                }
                if total > MAX_ENTRIES {
                    return Err(NoModel::TooLarge);
                }
            }
        }
        Ok(())
    }

    /// Values at which a piece covers a row; `None`: none.
    fn entry(&self, of: RowOf, offset: u32, len: u32, units: u64, row: u32) -> Option<Entry> {
        let (ii, len) = (self.ii as i32, len as i32);
        let first = (row as i32 - offset as i32 - len + 1).rem_euclid(ii);
        let var = self.vars[of.var as usize];
        let clip = |lo: i32, hi: i32| ((lo + of.shift).max(var.lo), (hi + of.shift).min(var.hi));
        let ranges = if len == ii {
            [clip(0, ii - 1), (0, -1)]
        } else {
            [clip(first, (first + len - 1).min(ii - 1)), clip(0, first + len - 1 - ii)]
        };
        let empty = |r: &(i32, i32)| r.0 > r.1;
        (!ranges.iter().all(empty)).then_some(Entry { var: of.var, ranges, units })
    }
}
