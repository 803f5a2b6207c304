//! Conversions inside of a warp: words go from lane to lane.
//!
//! In: two register layouts of one tile, so that every element that a thread wants is in its warp, and how many elements a word has.
//! Out: [`Shuffle`]: which words lanes send in each round, from which lane each reads, and what is selected before and behind.
//!
//! Elements that lie together on both sides stay together in a word. Rounds are named by words of the result, but lanes may
//! take different words in the same round (`turn`), so that a lane that is read has the same word to send to all who read it.
//! Swapping m register bits with m lane bits takes n(1 − 2^-m) shuffles of n words, and no plan has fewer.

use super::gf2::{Columns, Span, completion, intersection, sum};
use super::map::LinearMap;

/// Most bits of words and ranks of a plan without turns.
const DIRECT_LIMIT: u32 = 12;

/// A plan. Matrices are columns by bits of a word or by bits of a thread: five of lanes, then those of warps.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Shuffle {
    /// Register of the source, by bit of the place in a word.
    pub source_slot: Columns,
    /// Register of the source, by bit of a word that is sent.
    pub source_word: Columns,
    /// Which slot and which word of the result a register of the result is: slots are the low bits.
    pub result: Columns,
    /// Bits of a word of the result.
    pub words: u32,
    /// Slot that the element is in beyond its own, by bit of a word of the result, and by bit of a thread.
    pub slot_by_word: Columns,
    /// See `slot_by_word`.
    pub slot_by_thread: Columns,
    /// How words are sent.
    pub way: Way,
}

/// How the words of a [`Shuffle`] are sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Way {
    /// In round k a thread t sends word `send_by_round k ^ send_by_thread t` and reads from lane
    /// `lane_by_round k ^ lane_by_thread t`; what it gets is word `k ^ turn t` of the result.
    Turns {
        /// By bit of the round.
        send_by_round: Columns,
        /// By bit of the thread.
        send_by_thread: Columns,
        /// By bit of the round.
        lane_by_round: Columns,
        /// By bit of the thread.
        lane_by_thread: Columns,
        /// By bit of the thread.
        turn: Columns,
    },
    /// For word x of the result, and each value z of `word_by_thread t`: word `word_by_word x ^ z` of lane
    /// `lane_by_word x ^ lane_by_thread t`, of which the one is taken with z for the thread.
    Direct {
        /// By bit of a word of the result.
        word_by_word: Columns,
        /// By bit of the thread.
        word_by_thread: Columns,
        /// By bit of a word of the result.
        lane_by_word: Columns,
        /// By bit of the thread.
        lane_by_thread: Columns,
    },
}

/// What a plan executes in each warp.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub struct Counts {
    /// Shuffles.
    pub shuffles: u32,
    /// Selections of a word by a predicate.
    pub selects: u32,
    /// Permutations of bytes of two words.
    pub permutes: u32,
}

/// Bits of lanes.
pub(super) const LANE_BITS: usize = 5;

impl Shuffle {
    /// The plan for words of `1 << packed` elements. `None` where an element is in another warp, or the plan is too large.
    pub fn plan(source: &LinearMap, result: &LinearMap, packed: u32) -> Option<Shuffle> {
        let (sr, dr) = (source.compact(), result.compact());
        // What stays together: first what is in the same place of a word on both sides.
        let mut together = Columns::new();
        let mut span = Span::default();
        let same = sr.register().iter().zip(dr.register()).take(packed as usize);
        let mut keep = |v: u32| {
            if together.len() < packed as usize && span.push(v).is_none() {
                together.push(v);
            }
        };
        same.filter(|(a, b)| a == b).for_each(|(a, _)| keep(*a));
        intersection(sr.register(), dr.register()).into_iter().for_each(&mut keep);
        let from = completion(&together, sr.register());
        let to = completion(&together, dr.register());
        let (slots, sent) = (together.len(), from.len());
        let in_source = Span::of(source.register());
        let source_slot: Option<Columns> = together.iter().map(|&v| in_source.solve(v)).collect();
        let source_word: Option<Columns> = from.iter().map(|&v| in_source.solve(v)).collect();
        let both: Columns = together.iter().chain(&to).copied().collect();
        let in_result = Span::of(&both);
        let registers: Option<Columns> = result.register().iter().map(|&v| in_result.solve(v)).collect();
        // Slot, word and lane of an element that the own thread has, or another lane.
        let own: Columns = together.iter().chain(&from).copied().collect();
        let warp: Columns = own.iter().chain(source.lane()).copied().collect();
        let (own, warp) = (Span::of(&own), Span::of(&warp));
        let at = |mask: u32| {
            let (slot, word) = (mask & ((1 << slots) - 1), mask >> slots & ((1 << sent) - 1));
            (slot, word, mask >> (slots + sent))
        };
        let by_word: Option<Vec<_>> = to.iter().map(|&v| Some(at(warp.solve(v)?))).collect();
        let by_word = by_word?;
        let mut by_thread = Vec::new();
        for (k, (&d, &s)) in result.lane().iter().zip(source.lane()).enumerate() {
            by_thread.push(match own.solve(d ^ s) {
                Some(mask) => {
                    let (slot, word, _) = at(mask);
                    (slot, word, 1 << k)
                }
                None => at(warp.solve(d)?),
            });
        }
        for (&d, &s) in result.warp().iter().zip(source.warp()) {
            by_thread.push(at(own.solve(d ^ s).or_else(|| warp.solve(d ^ s))?));
        }
        let column = |part: fn(&(u32, u32, u32)) -> u32, of: &[(u32, u32, u32)]| -> Columns {
            of.iter().map(part).collect()
        };
        let (word_by_word, lane_by_word) = (column(|x| x.1, &by_word), column(|x| x.2, &by_word));
        let (word_by_thread, lane_by_thread) = (column(|x| x.1, &by_thread), column(|x| x.2, &by_thread));
        let way = turns(&word_by_word, &lane_by_word, &word_by_thread, &lane_by_thread);
        let way = match way {
            Some(way) => way,
            None => {
                let rank = Span::of(&word_by_thread).rank();
                if rank + to.len() as u32 > DIRECT_LIMIT {
                    return None;
                }
                Way::Direct { word_by_word, word_by_thread, lane_by_word, lane_by_thread }
            }
        };
        Some(Shuffle {
            source_slot: source_slot?,
            source_word: source_word?,
            result: registers?,
            words: to.len() as u32,
            slot_by_word: column(|x| x.0, &by_word),
            slot_by_thread: column(|x| x.0, &by_thread),
            way,
        })
    }

    /// What it costs in instructions, for words of `1 << packed` elements.
    pub fn counts(&self, packed: u32) -> Counts {
        let mut c = Counts::default();
        let (sent, words) = (1u32 << self.source_word.len(), 1u32 << self.words);
        match &self.way {
            Way::Turns { send_by_thread, lane_by_round, lane_by_thread, turn, .. } => {
                let identity = is_identity(lane_by_thread);
                c.shuffles = (0..words).filter(|&k| !identity || sum(lane_by_round, k) != 0).count() as u32;
                c.selects = Span::of(send_by_thread).rank() * sent + Span::of(turn).rank() * words;
            }
            Way::Direct { word_by_thread, .. } => {
                let rank = Span::of(word_by_thread).rank();
                c.shuffles = words << rank;
                c.selects = words * ((1 << rank) - 1);
            }
        }
        // Words whose elements are where they are wanted need no packing.
        let in_place = |slots: &[u32]| slots.iter().enumerate().all(|(k, &m)| m == 1 << k);
        let full = self.source_slot.len() as u32 == packed;
        let pieces = |words: u32| words * (1u32 << packed >> 1).max(1);
        if packed > 0 {
            if !(full && in_place(&self.source_slot)) {
                c.permutes += pieces(sent);
            }
            let slots = &self.result[..(packed as usize).min(self.result.len())];
            let turned = self.slot_by_word.iter().chain(&self.slot_by_thread).any(|&s| s != 0);
            if !(full && in_place(slots)) || turned {
                c.permutes += pieces(words);
            }
        }
        c
    }
}

/// Whether each lane reads itself.
pub fn is_identity(lane_by_thread: &[u32]) -> bool {
    lane_by_thread.iter().enumerate().all(|(k, &l)| l == if k < LANE_BITS { 1 << k } else { 0 })
}

/// Finds which word each lane takes in a round, so that every lane has one word to send.
fn turns(
    word_by_word: &[u32],
    lane_by_word: &[u32],
    word_by_thread: &[u32],
    lane_by_thread: &[u32],
) -> Option<Way> {
    let threads = lane_by_thread.len();
    let mut turn: Columns = std::iter::repeat_n(0, threads).collect();
    loop {
        // Source lane and source word, by bit of a lane that reads.
        let lane: Columns = (0..LANE_BITS).map(|k| lane_by_thread[k] ^ sum(lane_by_word, turn[k])).collect();
        let word: Columns = (0..LANE_BITS).map(|k| word_by_thread[k] ^ sum(word_by_word, turn[k])).collect();
        let kernel = super::gf2::kernel(&lane);
        let image = Span::of(&lane);
        let Some(&both) = kernel.iter().find(|&&y| sum(&word, y) != 0) else {
            // One word for each lane that is read: what `P` says of a basis of those lanes, zero elsewhere.
            let mut sent = Span::default();
            let mut words = Columns::new();
            for (k, &l) in lane.iter().enumerate() {
                if sent.push(l).is_none() {
                    words.push(word[k]);
                }
            }
            let chosen: Columns =
                (0..LANE_BITS).filter(|k| image.pivots() >> k & 1 == 1).map(|k| lane[k]).collect();
            let units: Columns = (0..LANE_BITS).map(|k| 1 << k).collect();
            let rest = completion(&chosen, &units);
            let basis: Columns = chosen.iter().chain(&rest).copied().collect();
            let basis_span = Span::of(&basis);
            words.extend(rest.iter().map(|_| 0));
            let of_lane = |l: u32| sum(&words, basis_span.solve(l).unwrap_or(0));
            let round = |k: usize| word_by_word[k] ^ of_lane(lane_by_word[k]);
            let by_warp = |k: usize| word_by_thread[k] ^ of_lane(lane_by_thread[k]);
            let own = (0..LANE_BITS).map(|k| of_lane(1 << k));
            return Some(Way::Turns {
                send_by_round: (0..word_by_word.len()).map(round).collect(),
                send_by_thread: own.chain((LANE_BITS..threads).map(by_warp)).collect(),
                lane_by_round: lane_by_word.into(),
                lane_by_thread: lane
                    .iter()
                    .copied()
                    .chain(lane_by_thread[LANE_BITS..].iter().copied())
                    .collect(),
                turn,
            });
        };
        let j = lane_by_word.iter().position(|&l| !image.contains(l))?;
        turn[both.trailing_zeros() as usize] ^= 1 << j;
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::map::Axes;
    use super::super::name::parse;
    use super::super::random::{Random, pair};
    use super::*;

    /// Executes a plan for one warp; what every register of the result holds, by lane. Slots that hold nothing are `None`.
    fn run(p: &Shuffle, source: &LinearMap, result: &LinearMap, warp: u32) -> Vec<[Option<u32>; 32]> {
        let slots = 1u32 << p.source_slot.len();
        let thread = |l: u32| l | warp << LANE_BITS;
        // A word of a lane: the elements of its slots.
        let word = |l: u32, w: u32| -> Vec<u32> {
            (0..slots)
                .map(|s| source.element(sum(&p.source_word, w) ^ sum(&p.source_slot, s), l, warp))
                .collect()
        };
        let mut words: Vec<Vec<Vec<u32>>> = vec![vec![Vec::new(); 1 << p.words]; 32];
        match &p.way {
            Way::Turns { send_by_round, send_by_thread, lane_by_round, lane_by_thread, turn } => {
                for k in 0..1u32 << p.words {
                    for l in 0..32 {
                        let from = sum(lane_by_round, k) ^ sum(lane_by_thread, thread(l));
                        let sent = sum(send_by_round, k) ^ sum(send_by_thread, thread(from));
                        words[l as usize][(k ^ sum(turn, thread(l))) as usize] = word(from, sent);
                    }
                }
            }
            Way::Direct { word_by_word, word_by_thread, lane_by_word, lane_by_thread } => {
                for x in 0..1u32 << p.words {
                    for l in 0..32 {
                        let from = sum(lane_by_word, x) ^ sum(lane_by_thread, thread(l));
                        // Of all words that are sent the thread takes its own.
                        let sent = sum(word_by_word, x) ^ sum(word_by_thread, thread(l));
                        words[l as usize][x as usize] = word(from, sent);
                    }
                }
            }
        }
        (0..1u32 << result.register().len())
            .map(|r| {
                std::array::from_fn(|l| {
                    let at = sum(&p.result, r);
                    let (s, x) = (at & (slots - 1), at >> p.source_slot.len());
                    let slot = s ^ sum(&p.slot_by_word, x) ^ sum(&p.slot_by_thread, thread(l as u32));
                    words[l][x as usize].get(slot as usize).copied()
                })
            })
            .collect()
    }

    fn check(source: &LinearMap, result: &LinearMap, packed: u32) -> Option<Shuffle> {
        let p = Shuffle::plan(source, result, packed)?;
        for warp in 0..1 << source.warp().len() {
            for (r, lanes) in run(&p, source, result, warp).iter().enumerate() {
                for (l, got) in lanes.iter().enumerate() {
                    let want = result.element(r as u32, l as u32, warp);
                    assert_eq!(
                        *got,
                        Some(want),
                        "{source:?} to {result:?}: {r} of lane {l}, warp {warp}\n{p:?}"
                    );
                }
            }
        }
        Some(p)
    }

    #[test]
    fn random_pairs_get_what_they_want() {
        let mut random = Random(11);
        let (mut planned, mut direct) = (0, 0);
        for round in 0..3000 {
            let (source, result) = pair(&mut random, round, true);
            for packed in 0..3 {
                if let Some(p) = check(&source, &result, packed) {
                    planned += 1;
                    direct += u32::from(matches!(p.way, Way::Direct { .. }));
                }
            }
        }
        assert!(planned > 6000 && direct > 10, "{planned} {direct}");
    }

    #[test]
    fn swaps_of_registers_and_lanes_take_the_fewest_shuffles() {
        let axes = Axes::of(&[32, 32]).expect("powers of two");
        let map = |text| parse(text, &axes).expect("a map");
        let source = map("reg(j1 j2 j4 j8 j16) lane(i1 i2 i4 i8 i16)");
        for (m, text) in [
            "reg(j1 j2 j4 j8 j16) lane(i1 i2 i4 i8 i16)",
            "reg(i1 j2 j4 j8 j16) lane(j1 i2 i4 i8 i16)",
            "reg(i1 i2 j4 j8 j16) lane(j1 j2 i4 i8 i16)",
            "reg(i1 i2 i4 j8 j16) lane(j1 j2 j4 i8 i16)",
            "reg(i1 i2 i4 i8 j16) lane(j1 j2 j4 j8 i16)",
            "reg(i1 i2 i4 i8 i16) lane(j1 j2 j4 j8 j16)",
        ]
        .into_iter()
        .enumerate()
        {
            let c = check(&source, &map(text), 0).expect("in the warp").counts(0);
            assert_eq!((c.shuffles, c.selects), (32 - (32 >> m), 2 * m as u32 * 32), "{text}");
        }
        // Half the words, half of everything.
        let c = check(
            &map("reg(j1 j2 j4 j8 j16) lane(i1 i2 i4 i8 i16)"),
            &map("reg(j1 i2 j4 j8 j16) lane(i1 j2 i4 i8 i16)"),
            1,
        );
        assert_eq!(c.expect("in the warp").counts(1).shuffles, 8);
        // What the worked page has for a row vector: one shuffle for each of two registers, as lanes differ.
        let other = map("reg(j1 j2 j4 j8 j16) lane(i2 i1 i4 i8 i16)");
        assert_eq!(check(&source, &other, 0).expect("in the warp").counts(0).shuffles, 32);
        let apart = LinearMap::registers(&[1], &[2, 4, 8, 16, 32], &[64]).expect("few");
        let crossed = LinearMap::registers(&[1], &[2, 4, 8, 16, 64], &[32]).expect("few");
        assert_eq!(Shuffle::plan(&apart, &crossed, 0), None, "another warp has it");
    }
}
