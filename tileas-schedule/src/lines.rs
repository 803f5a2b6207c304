//! Bits over the cycles of an interval: which cycles are taken, for many resources at once.
//!
//! In: an II and a number of lines. A *line* has one bit per cycle modulo II. Out: answers about runs of cycles, 64 starts at a
//! time: behind the last cycle the line goes on with its first ones, so that what begins before the end is read in
//! one piece. Used by the reservation table, which knows what a line stands for.
//!
//! Cost: a few operations on words per question; a write touches the words of its run and those of their copies.

/// Longest run of which 64 starts are answered at once.
pub(crate) const SHORT: u32 = 65;

/// The lines and their memory.
#[derive(Default)]
pub(crate) struct Lines {
    ii: u32,
    /// Cycles with those that follow the last one once more.
    end: u32,
    /// Words of a line.
    stride: usize,
    bits: Vec<u64>,
}

impl Lines {
    /// So many lines of free cycles; `longest`: of the runs that are asked for 64 starts at once.
    pub fn reset(&mut self, ii: u32, lines: usize, longest: u32) {
        self.ii = ii;
        self.end = ii + 63 + longest.clamp(1, SHORT);
        // Three words are read at once.
        self.stride = ii as usize / 64 + 3;
        self.bits.clear();
        self.bits.resize(lines * self.stride, 0);
    }

    /// Whether no cycle of any line is taken.
    #[cfg(test)]
    pub fn is_free(&self) -> bool {
        self.bits.iter().all(|&w| w == 0)
    }

    #[inline]
    fn line(&self, line: u32) -> &[u64] {
        &self.bits[line as usize * self.stride..(line as usize + 1) * self.stride]
    }

    /// Takes (or frees) `len` ≤ II cycles from `first` < II on.
    #[inline]
    pub fn write(&mut self, line: u32, first: u32, len: u32, take: bool) {
        let at = line as usize * self.stride;
        let bits = &mut self.bits[at..at + self.stride];
        let end = self.end;
        // What is behind the end of the interval is at its begin as well.
        if first + len > self.ii {
            write(bits, 0, first + len - self.ii, take);
        }
        let mut from = first;
        while from < end {
            write(bits, from, (from + len).min(end), take);
            from += self.ii;
        }
    }

    /// Flips the bit of one cycle.
    #[inline]
    pub fn flip(&mut self, line: u32, cycle: u32) {
        let at = line as usize * self.stride;
        let mut q = cycle;
        while q < self.end {
            self.bits[at + q as usize / 64] ^= 1 << (q % 64);
            q += self.ii;
        }
    }

    /// The 64 cycles from `first` < II on.
    #[inline]
    pub fn word(&self, line: u32, first: u32) -> u64 {
        let (w, s) = (first as usize / 64, first % 64);
        let bits = self.line(line);
        bits[w] >> s | (bits[w + 1] << 1) << (63 - s)
    }

    /// Bit k: some of the `len` ≤ [`SHORT`] cycles from `first + k` on is taken.
    #[inline]
    pub fn blocked(&self, line: u32, first: u32, len: u32) -> u64 {
        let (w, s) = (first as usize / 64, first % 64);
        let bits = &self.line(line)[w..w + 3];
        let low = bits[0] >> s | (bits[1] << 1) << (63 - s);
        if len == 1 {
            return low;
        }
        let high = bits[1] >> s | (bits[2] << 1) << (63 - s);
        let mut all = u128::from(high) << 64 | u128::from(low);
        let mut covered = 1;
        while covered < len {
            let step = covered.min(len - covered);
            all |= all >> step;
            covered += step;
        }
        all as u64
    }

    /// Whether one of `len` ≤ II cycles from `first` < II on is taken.
    #[inline]
    pub fn taken(&self, line: u32, first: u32, len: u32) -> bool {
        let end = first + len;
        if end <= self.end {
            return self.first_in(line, first, end).is_some();
        }
        self.first_in(line, first, self.ii).is_some() || self.first_in(line, 0, end - self.ii).is_some()
    }

    /// The last taken cycle of a run, counted from its begin.
    pub fn last_taken(&self, line: u32, first: u32, len: u32) -> Option<u32> {
        let end = first + len;
        if end > self.ii
            && let Some(k) = self.last_in(line, 0, end - self.ii)
        {
            return Some(self.ii - first + k);
        }
        self.last_in(line, first, end.min(self.ii)).map(|k| k - first)
    }

    /// The first taken cycle of a run, counted from its begin.
    pub fn first_taken(&self, line: u32, first: u32, len: u32) -> Option<u32> {
        let end = first + len;
        if let Some(k) = self.first_in(line, first, end.min(self.ii)) {
            return Some(k - first);
        }
        let around = end.checked_sub(self.ii)?;
        self.first_in(line, 0, around).map(|k| self.ii - first + k)
    }

    #[inline]
    fn first_in(&self, line: u32, lo: u32, hi: u32) -> Option<u32> {
        let bits = self.line(line);
        let mut at = lo;
        while at < hi {
            let word = bits[at as usize / 64] & u64::MAX << (at % 64);
            if word != 0 {
                let found = at / 64 * 64 + word.trailing_zeros();
                return (found < hi).then_some(found);
            }
            at = (at / 64 + 1) * 64;
        }
        None
    }

    fn last_in(&self, line: u32, lo: u32, hi: u32) -> Option<u32> {
        let bits = self.line(line);
        let mut end = hi;
        while end > lo {
            let w = (end - 1) / 64;
            let word = bits[w as usize] & u64::MAX >> (63 - (end - 1) % 64);
            if word != 0 {
                let found = w * 64 + 63 - word.leading_zeros();
                return (found >= lo).then_some(found);
            }
            end = w * 64;
        }
        None
    }
}

/// Sets or clears the bits `lo..hi`, at least one.
#[inline]
fn write(bits: &mut [u64], lo: u32, hi: u32, take: bool) {
    let (first, last) = (lo as usize / 64, (hi - 1) as usize / 64);
    let (head, tail) = (u64::MAX << (lo % 64), u64::MAX >> (63 - (hi - 1) % 64));
    let mut put = |w: usize, mask: u64| {
        let word = &mut bits[w];
        *word = if take { *word | mask } else { *word & !mask };
    };
    if first == last {
        put(first, head & tail);
        return;
    }
    put(first, head);
    (first + 1..last).for_each(|w| put(w, u64::MAX));
    put(last, tail);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::families::Rng;

    /// Every answer against a list of booleans.
    #[test]
    fn agrees_with_a_list() {
        let mut rng = Rng::new(3);
        let mut blocked = 0;
        for case in 0..300 {
            let ii = if case % 2 == 0 { rng.within(1, 12) } else { rng.within(13, 400) };
            let mut lines = Lines::default();
            let longest = rng.within(1, SHORT);
            lines.reset(ii, 2, longest);
            let mut list = vec![false; ii as usize];
            for _ in 0..40 {
                let (first, len, take) = (rng.within(0, ii - 1), rng.within(1, ii), rng.one_in(3));
                let len = if rng.one_in(3) { len } else { len.min(5) };
                if rng.one_in(4) {
                    lines.flip(1, first);
                    list[first as usize] ^= true;
                } else {
                    lines.write(1, first, len, take);
                    (0..len).for_each(|k| list[((first + k) % ii) as usize] = take);
                }
                let (x, len) = (rng.within(0, ii - 1), rng.within(1, ii));
                let taken = |k: u32| list[((x + k) % ii) as usize];
                assert_eq!(lines.taken(1, x, len), (0..len).any(taken));
                assert_eq!(lines.last_taken(1, x, len), (0..len).rev().find(|&k| taken(k)));
                assert_eq!(lines.first_taken(1, x, len), (0..len).find(|&k| taken(k)));
                let short = rng.within(1, longest);
                for k in 0..64 {
                    assert_eq!(lines.word(1, x) >> k & 1 != 0, taken(k));
                    let some = (k..k + short).any(taken);
                    assert_eq!(lines.blocked(1, x, short) >> k & 1 != 0, some, "{x} {short} of {ii}");
                    blocked += u32::from(some);
                }
                assert!(!lines.taken(0, x, len), "another line");
            }
        }
        assert!(blocked > 10_000);
    }
}
