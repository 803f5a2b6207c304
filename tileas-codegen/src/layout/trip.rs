//! Conversions through shared memory.
//!
//! In: two register layouts of one tile, the width of its elements, the bytes there are. Out: [`Trip`]: where each element lies,
//! how each side accesses it, and in how many rounds; the fewest wavefronts among all widths of accesses and matrix
//! forms, each with an order of offsets made for it.
//!
//! An order of offsets is a basis: its lowest bits are what one access moves, then come 128 bytes of banks, then lines. Lanes of a
//! phase conflict where they differ in lines alone; so lines are made of vectors that no side's lanes differ in, then of sums
//! of one of either side.

use super::gf2::{Columns, Span, completion, intersection, sum};
use super::map::LinearMap;
use super::shuffle::LANE_BITS;
use smallvec::SmallVec;

/// How a warp accesses shared memory.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Form {
    /// `ld.shared` and `st.shared` of `1 << n` elements.
    Vector(u32),
    /// `ldmatrix` and `stmatrix`.
    Matrix,
    /// The same with `.trans`.
    Transposed,
}

/// The forms with matrices, of which an instruction moves so many.
const MATRICES: [Form; 2] = [Form::Matrix, Form::Transposed];
const MATRICES_AT_ONCE: u32 = 4;

impl Form {
    /// Whether a warp can store registers with it. All lanes store a matrix: none may hold what another does.
    fn stores(self, map: &LinearMap) -> bool {
        match self {
            Form::Vector(_) => true,
            Form::Matrix => map.replicas().lanes == 0,
            Form::Transposed => map.replicas().lanes == 0 && map.register()[0] != 0,
        }
    }
}

/// One side of a trip.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Side {
    /// What it accesses with.
    pub form: Form,
    /// Registers by bit of the place in an access of one thread.
    pub slots: Columns,
    /// Register and offset by bit of the number of an access.
    pub accesses: Columns,
    /// See `accesses`.
    pub offsets: Columns,
    /// Offset by bit of the thread: lanes, then warps. For matrix forms lanes here are those that hold elements.
    pub by_thread: Columns,
    /// Offset by bit of the place in an access of one thread.
    pub slot_offsets: Columns,
    /// Wavefronts of an access by a warp.
    pub waves: u32,
    /// Lanes and warps that do not store, since others hold the same: masks of bits that are zero where it does.
    pub copies: (u32, u32),
}

/// Whom the barriers of a trip are for.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Scope {
    /// The lanes of each warp.
    Warp,
    /// All warps.
    Agent,
}

/// A plan.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Trip {
    /// Element by bit of the offset.
    pub order: Columns,
    /// How it is written.
    pub store: Side,
    /// How it is read.
    pub load: Side,
    /// log2 of the number of rounds, for each of which the highest bits of the offset are constant.
    pub rounds: u32,
    /// Whom its barriers are for.
    pub scope: Scope,
}

/// What a side asks of the lowest bits of an offset: exactly these vectors, or so many that its registers span.
fn prefix_of(map: &LinearMap, form: Form, elem: u32) -> Option<Columns> {
    let word = 2u32.saturating_sub(elem) as usize;
    match form {
        Form::Vector(_) => None,
        // A row of 16 bytes: the elements of a word, and those of four lanes.
        Form::Matrix => {
            let low = map.register().get(..word)?;
            Some(low.iter().chain(&map.lane()[..2]).copied().collect())
        }
        Form::Transposed => (elem == 1 && !map.register().is_empty()).then(|| map.lane()[2..].into()),
    }
}

/// What differs among the threads of one wavefront without conflicts.
fn phase_of(map: &LinearMap, form: Form, elem: u32) -> Columns {
    let lanes = match form {
        Form::Vector(v) => &map.lane()[..LANE_BITS - (v + elem).saturating_sub(2) as usize],
        Form::Matrix => &map.lane()[2..],
        Form::Transposed => return map.register()[..1].iter().chain(&map.lane()[..2]).copied().collect(),
    };
    lanes.into()
}

impl Side {
    fn new(map: &LinearMap, form: Form, elem: u32, order: &[u32], inverse: &Span) -> Option<Side> {
        let registers = Span::of(map.register());
        let word = 2u32.saturating_sub(elem);
        // Vectors that lie in one access of one thread, and how many low bits of an offset the access covers.
        let (own, low): (Columns, u32) = match form {
            Form::Vector(v) => (order.get(..v as usize)?.into(), v),
            Form::Matrix => (order.get(..word as usize)?.into(), word + 2),
            Form::Transposed => (map.register()[..1].into(), 3),
        };
        let slots: Option<Columns> = own.iter().map(|&v| registers.solve(v)).collect();
        let slots = slots?;
        let slot_offsets: Option<Columns> = own.iter().map(|&v| inverse.solve(v)).collect();
        let slot_offsets = slot_offsets?;
        let below = (1u32 << low) - 1;
        let mut rest = completion(&own, map.compact().register());
        let mut offsets = Columns::new();
        for v in &mut rest {
            let mut at = inverse.solve(*v)?;
            if let Form::Vector(_) = form {
                *v ^= sum(order, at & below);
                at &= !below;
            }
            if at & below != 0 {
                return None;
            }
            offsets.push(at);
        }
        let accesses: Option<Columns> = rest.iter().map(|&v| registers.solve(v)).collect();
        let columns: Columns = map.lane().iter().chain(map.warp()).copied().collect();
        let by_thread: Option<Columns> = columns.iter().map(|&v| inverse.solve(v)).collect();
        let by_thread = by_thread?;
        // Bits that an access covers are its own, not a thread's; those of a matrix's rows are, in their order.
        for (k, at) in by_thread.iter().enumerate() {
            let inside = match form {
                Form::Matrix if k < 2 => 1 << (word + k as u32),
                Form::Transposed if (2..LANE_BITS).contains(&k) => 1 << (k - 2),
                _ => 0,
            };
            if at & below != inside || inside != 0 && *at != inside {
                return None;
            }
        }
        if form == Form::Transposed && slot_offsets[0] & below != 0 {
            return None;
        }
        // 128 bytes are the banks; what differs above them alone conflicts.
        let phase = phase_of(map, form, elem);
        let at: Option<Columns> = phase.iter().map(|&v| inverse.solve(v)).collect();
        let at = at?;
        let (unit, banks) = ((1u32 << (2u32.saturating_sub(elem)).max(low)) - 1, (1u32 << (7 - elem)) - 1);
        let rank = |mask: u32| {
            let masked: Columns = at.iter().map(|&a| a & mask).collect();
            Span::of(&masked).rank()
        };
        let conflicts = rank(!unit) - rank(banks & !unit);
        let phases = match form {
            Form::Vector(v) => 1u32 << (v + elem).saturating_sub(2),
            // A wavefront for each matrix that an instruction moves.
            Form::Matrix | Form::Transposed => 1,
        };
        let copies = map.replicas();
        Some(Side {
            form,
            slots,
            accesses: accesses?,
            offsets,
            by_thread,
            slot_offsets,
            waves: phases << conflicts,
            copies: (copies.lanes, copies.warps),
        })
    }

    /// Accesses of a register layout to memory whose offsets hold the elements `order`, in the widest vectors there are or in matrices, of
    /// elements of `1 << elem` bytes. `first`: the offset where the tile begins. `store`: they write. `None` where some element has no offset.
    pub fn fixed(map: &LinearMap, order: &[u32], elem: u32, first: u32, store: bool) -> Option<Side> {
        let inverse = Span::of(order);
        let most = 4u32.saturating_sub(elem).min(map.register().len() as u32);
        let new = |form| Side::new(map, form, elem, order, &inverse);
        let vectors = (0..=most).rev().find_map(|v| new(Form::Vector(v)));
        let fits = |f: &Form| {
            let row = prefix_of(map, *f, elem).is_some_and(|p| Span::of(&p).rank() == 4 - elem);
            row && (!store || f.stores(map)) && first & ((16 >> elem) - 1) == 0
        };
        let matrices = MATRICES.into_iter().filter(|f| elem < 3 && fits(f)).filter_map(new);
        vectors.into_iter().chain(matrices).min_by_key(Side::cost)
    }

    /// Accesses of a thread: matrices where it is a matrix form.
    pub fn count(&self) -> u32 {
        1 << self.accesses.len()
    }

    /// Instructions of a warp: up to four matrices each.
    fn instructions(&self) -> u32 {
        match self.form {
            Form::Vector(_) => self.count(),
            Form::Matrix | Form::Transposed => self.count().div_ceil(MATRICES_AT_ONCE),
        }
    }

    /// Quarters of a cycle of an SM for a warp: wavefronts, issues, addresses.
    pub fn cost(&self) -> u32 {
        4 * self.count() * self.waves + 2 * self.instructions()
    }

    /// Offset by bit of the thread of the addresses that it gives, and bits of the number of an access: of the matrices that one instruction
    /// moves. `below`: bits of offsets that are not those of a round.
    pub fn addresses(&self, below: u32) -> (Columns, SmallVec<[u32; 2]>) {
        let rows = match self.form {
            Form::Vector(_) => return (self.by_thread.clone(), SmallVec::new()),
            Form::Matrix => [self.by_thread[2], self.by_thread[3], self.by_thread[4]],
            Form::Transposed => [self.slot_offsets[0], self.by_thread[0], self.by_thread[1]],
        };
        // Eight lanes give the rows of each matrix.
        let alike = (0..self.offsets.len()).filter(|&k| self.offsets[k] & !below == 0);
        let group: SmallVec<[u32; 2]> =
            alike.take(MATRICES_AT_ONCE.ilog2() as usize).map(|k| k as u32).collect();
        let matrix = |k: usize| group.get(k).map_or(0, |&bit| self.offsets[bit as usize]);
        let lanes = rows.into_iter().chain([matrix(0), matrix(1)]);
        (lanes.chain(self.by_thread[LANE_BITS..].iter().copied()).collect(), group)
    }
}

impl Trip {
    /// The best plan for elements of `1 << elem` bytes (up to 4) that uses up to `1 << room` bytes. `matrices`: whether the target has the
    /// matrix forms. `None` where no such plan exists.
    pub fn plan(
        source: &LinearMap,
        result: &LinearMap,
        elem: u32,
        room: u32,
        matrices: bool,
    ) -> Option<Trip> {
        let bits = Span::of(source.columns()).rank();
        let rounds = (bits + elem).saturating_sub(room);
        let common = intersection(source.register(), result.register());
        let forms = |map: &LinearMap| -> SmallVec<[Form; 8]> {
            let most = (4 - elem).min(Span::of(map.register()).rank());
            let plain = (0..=most).rev().map(Form::Vector);
            let matrix = MATRICES.into_iter().filter(move |_| matrices);
            let row = |f| prefix_of(map, f, elem).is_some_and(|p| Span::of(&p).rank() == 4 - elem);
            plain.chain(matrix).filter(|&f| matches!(f, Form::Vector(_)) || row(f)).collect()
        };
        let mut best: Option<(u32, Trip)> = None;
        for store in forms(source).into_iter().filter(|f| f.stores(source)) {
            for load in forms(result) {
                let Some(order) = order((source, store), (result, load), &common, elem, bits, rounds) else {
                    continue;
                };
                let inverse = Span::of(&order);
                let side = |map, form| Side::new(map, form, elem, &order, &inverse);
                let (Some(store), Some(load)) = (side(source, store), side(result, load)) else { continue };
                let t = Trip { order, store, load, rounds, scope: scope(source, result) };
                let cost = t.cost(1 << source.warp().len());
                if best.as_ref().is_none_or(|b| cost < b.0) {
                    best = Some((cost, t));
                }
            }
        }
        best.map(|b| b.1)
    }

    /// Wavefronts of all warps, of stores and of loads.
    pub fn waves(&self, warps: u32) -> u32 {
        let stores = warps >> self.store.copies.1.count_ones();
        self.store.count() * self.store.waves * stores + self.load.count() * self.load.waves * warps
    }

    /// Instructions that access shared memory, by warp.
    pub fn instructions(&self) -> (u32, u32) {
        (self.store.instructions(), self.load.instructions())
    }

    /// Quarters of a cycle of an SM: wavefronts, issues, addresses, barriers.
    pub(super) fn cost(&self, warps: u32) -> u32 {
        let (stores, loads) = self.instructions();
        let barrier = match self.scope {
            Scope::Warp => 8,
            Scope::Agent => 64,
        };
        4 * self.waves(warps) + 2 * warps * (stores + loads) + (barrier << (self.rounds + 1))
    }
}

/// Whether what a warp wants it has, and is the only one that has it.
fn scope(source: &LinearMap, result: &LinearMap) -> Scope {
    let inside: Columns = source.register().iter().chain(source.lane()).copied().collect();
    let inside = Span::of(&inside);
    let own = inside.contains_all(result.register())
        && inside.contains_all(result.lane())
        && result.warp().iter().zip(source.warp()).all(|(&d, &s)| inside.contains(d ^ s))
        && source.replicas().warps == 0;
    if own { Scope::Warp } else { Scope::Agent }
}

/// An order of offsets for these forms.
fn order(
    (source, store): (&LinearMap, Form),
    (result, load): (&LinearMap, Form),
    common: &[u32],
    elem: u32,
    bits: u32,
    rounds: u32,
) -> Option<Columns> {
    let mut low = match (prefix_of(source, store, elem), prefix_of(result, load, elem)) {
        (Some(a), Some(b)) => (a == b).then_some(a)?,
        (Some(a), None) | (None, Some(a)) => a,
        (None, None) => Columns::new(),
    };
    if let (Form::Vector(s), Form::Vector(l)) = (store, load) {
        low.extend(common.get(..s.min(l) as usize)?.iter().copied());
        let wide = if s > l { source } else { result };
        let more = completion(&low, wide.register());
        low.extend(more.get(..s.abs_diff(l) as usize)?.iter().copied());
    }
    // Lanes whose elements share a word do not conflict.
    let words = 2u32.saturating_sub(elem) as usize;
    if low.len() < words {
        let both = intersection(source.lane(), result.lane());
        for lanes in [&both[..], source.lane(), result.lane()] {
            let more = completion(&low, lanes);
            low.extend(more.into_iter().take(words - low.len()));
        }
    }
    let with = |x: &[u32], y: &[u32]| -> Columns { x.iter().chain(y).copied().collect() };
    let (a, b) = (phase_of(source, store, elem), phase_of(result, load, elem));
    let (a, b) = (completion(&low, &a), completion(&low, &b));
    let lines = (bits + elem).saturating_sub(7) as usize;
    // What rounds are made of lies highest: something in which threads of neither side differ.
    let threads = |m: &LinearMap| with(m.lane(), m.warp());
    let threads = with(&with(&low, &with(&a, &b)), &with(&threads(source), &threads(result)));
    let units: Columns = (0..bits).map(|b| 1 << b).collect();
    let apart = completion(&threads, &units);
    if apart.len() < rounds as usize || lines < rounds as usize {
        return None;
    }
    let (highest, others) = apart.split_at(rounds as usize);
    let units = with(&threads, others);
    // Lines, from the best: what neither side's lanes differ in, then sums of one of each side, then the rest.
    let phases = with(&with(&low, &a), &b);
    let mut line: Columns = completion(&phases, &units);
    let quotient = |v: &[u32]| with(&low, v);
    let (only_a, only_b) = (completion(&quotient(&b), &a), completion(&quotient(&a), &b));
    line.extend(only_a.iter().zip(&only_b).map(|(x, y)| x ^ y));
    line.extend(with(&b, &a));
    line.extend(units.iter().copied());
    let mut lines_kept = Columns::new();
    let mut span = Span::of(&low);
    for v in line {
        if lines_kept.len() + highest.len() < lines && span.push(v).is_none() {
            lines_kept.push(v);
        }
    }
    let banks = completion(&with(&low, &lines_kept), &with(&with(&a, &b), &units));
    // Rounds are the highest lines.
    let kept = lines_kept.len();
    lines_kept.rotate_left(highest.len().min(kept));
    let order = with(&with(&low, &banks), &lines_kept);
    (order.len() == bits as usize && Span::of(&order).rank() == bits && lines >= rounds as usize)
        .then_some(order)
}

#[cfg(test)]
mod tests {
    use super::super::forms::{Access, Matrix};
    use super::super::map::Axes;
    use super::super::random::{Random, pair};
    use super::*;

    /// The element that each access of each thread moves, by offset, and wavefronts counted bank by bank.
    struct Seen {
        at: Vec<(u32, u32, u32, u32)>,
        waves: u32,
    }

    /// Executes one side: (register, lane, warp, offset) of every element it moves.
    fn side(s: &Side, map: &LinearMap, elem: u32, store: bool) -> Seen {
        let mut seen = Seen { at: Vec::new(), waves: 0 };
        let slots = 1u32 << s.slots.len();
        for warp in 0..1u32 << map.warp().len() {
            if store && warp & s.copies.1 != 0 {
                continue;
            }
            for access in 0..s.count() {
                let register = sum(&s.accesses, access);
                let mut rows = Vec::new();
                for lane in 0..32u32 {
                    let base = sum(&s.by_thread, lane | warp << 5) ^ sum(&s.offsets, access);
                    for slot in 0..slots {
                        let r = register ^ sum(&s.slots, slot);
                        let offset = base ^ sum(&s.slot_offsets, slot);
                        if !(store && lane & s.copies.0 != 0) {
                            seen.at.push((r, lane, warp, offset));
                        }
                        rows.push((lane, offset << elem));
                    }
                }
                // One phase after the other: lanes until 128 bytes, eight rows of a matrix.
                let bytes = slots << elem;
                let per = match s.form {
                    Form::Vector(_) => (128 / bytes).clamp(8, 32),
                    _ => 32,
                };
                for phase in 0..32 / per {
                    let mut words: Vec<u32> =
                        rows.iter().filter(|r| r.0 / per == phase).map(|r| r.1 / 4).collect();
                    words.sort_unstable();
                    words.dedup();
                    let mut banks = [0; 32];
                    words.iter().for_each(|w| banks[(w % 32) as usize] += 1);
                    seen.waves += banks.into_iter().max().unwrap_or(0);
                }
            }
        }
        seen
    }

    fn check(source: &LinearMap, result: &LinearMap, elem: u32, room: u32, matrices: bool) -> Option<Trip> {
        let t = Trip::plan(source, result, elem, room, matrices)?;
        let bits = t.order.len() as u32;
        let mut memory = vec![u32::MAX; 1 << bits];
        let warps = 1 << source.warp().len();
        let stored = side(&t.store, source, elem, true);
        for &(r, lane, warp, offset) in &stored.at {
            let e = source.element(r, lane, warp);
            assert_eq!(memory[offset as usize], u32::MAX, "written twice: {t:?}");
            assert_eq!(sum(&t.order, offset), e, "{t:?}");
            memory[offset as usize] = e;
        }
        assert!(memory.iter().all(|&e| e != u32::MAX), "something is not written: {t:?}");
        let loaded = side(&t.load, result, elem, false);
        let mut got = std::collections::BTreeSet::new();
        for &(r, lane, warp, offset) in &loaded.at {
            assert_eq!(memory[offset as usize], result.element(r, lane, warp), "{source:?} {result:?} {t:?}");
            got.insert((r, lane, warp));
        }
        let compact = 1 << Span::of(result.register()).rank();
        assert_eq!(got.len(), compact * 32 * (1 << result.warp().len()));
        // A round is a constant in the highest bits of both sides' accesses.
        let high = !0 << (bits - t.rounds);
        for s in [&t.store, &t.load] {
            assert!(s.by_thread.iter().all(|o| o & high == 0), "{t:?}");
        }
        if source.replicas().lanes == 0 {
            assert_eq!(stored.waves + loaded.waves, t.waves(warps), "{source:?} {result:?} {t:?}");
        }
        Some(t)
    }

    #[test]
    fn random_pairs_get_what_they_want() {
        let mut random = Random(23);
        let (mut matrix, mut planned) = (0, 0);
        for round in 0..4000 {
            let (source, result) = pair(&mut random, round, false);
            for elem in 0..3 {
                for (room, matrices) in [(30, true), (30, false), (8, true)] {
                    let t = check(&source, &result, elem, room, matrices);
                    assert!(t.is_some() || room < 30, "{source:?} {result:?}");
                    planned += u32::from(t.is_some());
                    let special = |s: &Side| !matches!(s.form, Form::Vector(_));
                    matrix += u32::from(t.is_some_and(|t| special(&t.store) || special(&t.load)));
                }
            }
        }
        assert!(planned > 24_000 && matrix > 100, "{planned} {matrix}");
    }

    #[test]
    fn the_worked_examples() {
        let m = Matrix::of(&[128, 128], 4).expect("powers of two");
        let (row, acc) = (m.rows().expect("fits"), m.accumulator().expect("fits"));
        let coalesced = |v| m.coalesced(v).expect("fits");
        let fragment = m.tensor_load(Access::B256).expect("fits");
        let axes = Axes::of(&[128, 128]).expect("powers of two");
        let down = |v| coalesced(v).permute(&axes, &[1, 0]);
        for (what, from, to, elem, waves) in [
            ("f16 transpose", coalesced(3), down(3), 1, 512),
            ("f32 transpose", coalesced(2), down(2), 2, 1024),
            ("8-bit transpose", coalesced(4), down(4), 0, 640),
            ("f32 fragment to row per thread", acc, row, 2, 1024),
            ("f32 fragment to coalesced", acc, coalesced(2), 2, 1024),
            ("f16 fragment to coalesced", acc, coalesced(3), 1, 512),
            ("f16 row per thread to coalesced", row, coalesced(3), 1, 512),
            ("f32 16x256b to row per thread", fragment, row, 2, 1024),
        ] {
            let t = check(&from, &to, elem, 30, true).expect("possible");
            assert!(t.waves(4) <= waves, "{what}: {} waves\n{t:?}", t.waves(4));
        }
        // A vector by the rows of one thread each, and by the rows of a fragment.
        let of_rows = [row, acc].map(|m| m.slice(&axes, 1).compact());
        let there = check(&of_rows[0], &of_rows[1], 2, 30, true).expect("possible");
        let back = check(&of_rows[1], &of_rows[0], 2, 30, true).expect("possible");
        assert_eq!((there.instructions(), back.instructions()), ((1, 2), (2, 1)));
        assert_eq!((there.waves(4), back.waves(4)), (20, 20));
    }
}
