//! The maps and their algebra.
//!
//! Guarantees: two maps are equal if their columns are, zero ones included. No operation allocates.

use super::gf2::{Columns, MAX_BITS, Span};
use smallvec::SmallVec;

/// What the bits of a place are.
#[derive(Copy, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Home {
    /// Register, lane, warp, CTA.
    Registers,
    /// Offset in elements.
    Shared,
    /// Lane and column of tensor memory.
    Tensor,
}

impl Home {
    /// Names of the kinds of bits in the text form.
    pub(super) fn kinds(self) -> &'static [&'static str] {
        match self {
            Home::Registers => &["reg", "lane", "warp", "cta"],
            Home::Shared => &["off"],
            Home::Tensor => &["tlane", "tcol"],
        }
    }
}

/// Which bits of an element number belong to which axis.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Axes(SmallVec<[(u8, u8); 5]>);

impl Axes {
    /// The axes of a tile; `None` if an extent is no power of two, or the elements are too many.
    pub fn of(dims: &[u32]) -> Option<Axes> {
        let mut low = 0;
        let mut out: SmallVec<[(u8, u8); 5]> = SmallVec::from_elem((0, 0), dims.len());
        for (axis, &d) in dims.iter().enumerate().rev() {
            let bits = d.is_power_of_two().then(|| d.trailing_zeros())?;
            out[axis] = (low, bits as u8);
            low += bits as u8;
            if usize::from(low) > MAX_BITS {
                return None;
            }
        }
        Some(Axes(out))
    }

    /// The axes of the tile without one of them.
    pub fn without(&self, axis: usize) -> Axes {
        let (low, bits) = self.0[axis];
        let rest = self.0.iter().enumerate().filter(|(a, _)| *a != axis);
        Axes(rest.map(|(_, &(l, b))| (if l > low { l - bits } else { l }, b)).collect())
    }

    /// Number of axes.
    pub fn rank(&self) -> usize {
        self.0.len()
    }

    /// Lowest bit of an axis.
    pub fn low(&self, axis: usize) -> u32 {
        u32::from(self.0[axis].0)
    }

    /// Number of bits of an axis.
    pub fn bits(&self, axis: usize) -> u32 {
        u32::from(self.0[axis].1)
    }

    /// Mask of an axis.
    pub fn mask(&self, axis: usize) -> u32 {
        ((1 << self.bits(axis)) - 1) << self.low(axis)
    }

    /// Number of bits of an element number.
    pub fn total(&self) -> u32 {
        self.0.iter().map(|a| u32::from(a.1)).sum()
    }

    /// Coordinate of an element along an axis.
    pub fn coordinate(&self, element: u32, axis: usize) -> u32 {
        element >> self.low(axis) & ((1 << self.bits(axis)) - 1)
    }
}

/// A map from the bits of a place to elements; see [`layout`](crate::layout).
#[derive(Copy, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LinearMap {
    home: Home,
    /// Behind the last column of each kind of bits.
    ends: [u8; 4],
    columns: [u32; MAX_BITS],
}

/// Places that hold the same element.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Replicas {
    /// The bits, over all kinds, that with the others zero reach each element once: registers are preferred to lanes,
    /// lanes to warps.
    pub pivots: u32,
    /// Lanes with one of these bits set hold copies.
    pub lanes: u32,
    /// Warps with one of these bits set hold copies.
    pub warps: u32,
}

impl LinearMap {
    pub(super) fn new(home: Home, kinds: [&[u32]; 4]) -> Option<LinearMap> {
        let mut m = LinearMap { home, ends: [0; 4], columns: [0; MAX_BITS] };
        let mut n = 0;
        for (end, kind) in m.ends.iter_mut().zip(kinds) {
            m.columns.get_mut(n..n + kind.len())?.copy_from_slice(kind);
            n += kind.len();
            *end = n as u8;
        }
        Some(m)
    }

    /// Registers of the threads of an agent; `None` if the bits are too many.
    pub fn registers(register: &[u32], lane: &[u32; 5], warp: &[u32]) -> Option<LinearMap> {
        LinearMap::new(Home::Registers, [register, lane, warp, &[]])
    }

    /// Lanes that hold these elements, in one register of one warp.
    pub fn lanes_alone(lane: [u32; 5]) -> LinearMap {
        let mut columns = [0; MAX_BITS];
        columns[..5].copy_from_slice(&lane);
        LinearMap { home: Home::Registers, ends: [0, 5, 5, 5], columns }
    }

    /// Shared memory, by offset in elements.
    pub fn shared(offset: &[u32]) -> Option<LinearMap> {
        LinearMap::new(Home::Shared, [offset, &[], &[], &[]])
    }

    /// Tensor memory.
    pub fn tensor(lane: &[u32], column: &[u32]) -> Option<LinearMap> {
        LinearMap::new(Home::Tensor, [lane, column, &[], &[]])
    }

    /// Where it is.
    pub fn home(&self) -> Home {
        self.home
    }

    /// Columns of a kind of bits, in the order of [`Home`].
    pub fn kind(&self, kind: usize) -> &[u32] {
        let start = if kind == 0 { 0 } else { self.ends[kind - 1] };
        &self.columns[usize::from(start)..usize::from(self.ends[kind])]
    }

    /// Columns of register bits; of offsets in shared memory, of lanes in tensor memory.
    pub fn register(&self) -> &[u32] {
        self.kind(0)
    }

    /// Columns of lane bits; of columns in tensor memory.
    pub fn lane(&self) -> &[u32] {
        self.kind(1)
    }

    /// Columns of warp bits.
    pub fn warp(&self) -> &[u32] {
        self.kind(2)
    }

    /// All columns.
    pub fn columns(&self) -> &[u32] {
        &self.columns[..usize::from(self.ends[3])]
    }

    /// The element at a place, whose bits stand above each other kind by kind.
    pub fn at(&self, place: u32) -> u32 {
        super::gf2::sum(&self.columns, place & ((1 << self.ends[3]) - 1))
    }

    /// The element that a register of a thread holds.
    pub fn element(&self, register: u32, lane: u32, warp: u32) -> u32 {
        self.at(register | lane << self.ends[0] | warp << self.ends[1])
    }

    /// The same map with every column changed.
    fn each(&self, change: impl Fn(u32) -> u32) -> LinearMap {
        let mut m = *self;
        m.columns[..usize::from(m.ends[3])].iter_mut().for_each(|c| *c = change(*c));
        m
    }

    /// Whether every element of that many bits is somewhere.
    pub fn is_surjective(&self, bits: u32) -> bool {
        Span::of(self.columns()).rank() == bits && self.columns().iter().all(|c| c >> bits == 0)
    }

    /// Which places hold copies.
    pub fn replicas(&self) -> Replicas {
        let pivots = Span::of(self.columns()).pivots();
        let of = |kind: usize| {
            let bits = self.kind(kind).len() as u32;
            let low = self.ends[kind - 1];
            !(pivots >> low) & ((1 << bits) - 1)
        };
        Replicas { pivots, lanes: of(1), warps: of(2) }
    }

    /// For each bit of an element number the place, among pivots, that holds the element with that bit alone; a place
    /// of an element is the XOR of those of its bits. `None` if some element is nowhere.
    pub fn inverse(&self, bits: u32) -> Option<Columns> {
        let span = Span::of(self.columns());
        (0..bits).map(|b| span.solve(1 << b)).collect()
    }

    /// First this map, then `outer`, whose places are this one's elements.
    pub fn then(&self, outer: &LinearMap) -> LinearMap {
        LinearMap { home: self.home, ..self.each(|c| outer.at(c)) }
    }

    /// The same map without registers that hold what others do.
    pub fn compact(&self) -> LinearMap {
        let span = Span::of(self.kind(0));
        if span.pivots().count_ones() as usize == self.kind(0).len() {
            return *self;
        }
        let kept: Columns = (0..self.kind(0).len())
            .filter(|b| span.pivots() >> b & 1 == 1)
            .map(|b| self.columns[b])
            .collect();
        LinearMap::new(self.home, [&kept, self.kind(1), self.kind(2), self.kind(3)]).unwrap_or(*self)
    }

    /// The map with the registers of some columns, and all columns changed.
    pub fn filter_registers(
        &self,
        keep: impl Fn(u32) -> bool,
        change: impl Fn(u32) -> u32,
    ) -> Option<LinearMap> {
        let kept: Columns = self.kind(0).iter().copied().filter(|&c| keep(c)).collect();
        let m = LinearMap::new(self.home, [&kept, self.kind(1), self.kind(2), self.kind(3)])?;
        Some(m.each(change))
    }

    /// The layout of the halves of elements that are twice as wide as a word: the half is the lowest bit of register and element.
    pub fn halves(&self) -> Option<LinearMap> {
        let m = self.each(|c| c << 1);
        let low: Columns = std::iter::once(1).chain(m.kind(0).iter().copied()).collect();
        LinearMap::new(self.home, [&low, m.kind(1), m.kind(2), m.kind(3)])
    }

    /// The layout of the tile without one axis: what differs along it is the same element.
    pub fn slice(&self, axes: &Axes, axis: usize) -> LinearMap {
        let (low, mask) = (axes.low(axis), axes.mask(axis));
        let below = (1 << low) - 1;
        self.each(|c| c & below | (c & !mask & !below) >> axes.bits(axis))
    }

    /// The layout of the tile with another axis of that many bits, whose lowest bit is `low`; all places hold its coordinate 0.
    pub fn unslice(&self, low: u32, bits: u32) -> LinearMap {
        let below = (1 << low) - 1;
        self.each(|c| c & below | (c & !below) << bits)
    }

    /// The layout of the tile whose axis `i` is this one's `order[i]`.
    pub fn permute(&self, axes: &Axes, order: &[usize]) -> LinearMap {
        self.each(|c| {
            let mut out = 0;
            for &axis in order {
                out = out << axes.bits(axis) | axes.coordinate(c, axis);
            }
            out
        })
    }

    /// `unit` repeated as `self` says: bits of `self` stand above those of `unit`, and its coordinates count tiles of `unit`.
    pub fn of_units(&self, axes: &Axes, unit: &LinearMap, unit_axes: &Axes) -> Option<LinearMap> {
        let rank = axes.rank();
        if rank != unit_axes.rank() || self.home != unit.home {
            return None;
        }
        // An element of either, in the tile of both.
        let place = |c: u32, own: &Axes, above: bool| {
            let mut out = 0;
            for axis in 0..rank {
                let (mine, units) = (axes.bits(axis), unit_axes.bits(axis));
                let x = own.coordinate(c, axis);
                out = out << (mine + units) | if above { x << units } else { x };
            }
            out
        };
        let kinds: SmallVec<[Columns; 4]> = (0..4)
            .map(|k| {
                let low = unit.kind(k).iter().map(|&c| place(c, unit_axes, false));
                low.chain(self.kind(k).iter().map(|&c| place(c, axes, true))).collect()
            })
            .collect();
        LinearMap::new(self.home, [&kinds[0], &kinds[1], &kinds[2], &kinds[3]])
    }

    /// The map that repeats `unit` to this one, with its axes: the inverse of [`LinearMap::of_units`].
    pub fn units(&self, axes: &Axes, unit: &LinearMap, unit_axes: &Axes) -> Option<(LinearMap, Axes)> {
        let rank = axes.rank();
        if rank != unit_axes.rank() || (0..rank).any(|x| axes.bits(x) < unit_axes.bits(x)) {
            return None;
        }
        let dims: SmallVec<[u32; 5]> = (0..rank).map(|x| 1 << (axes.bits(x) - unit_axes.bits(x))).collect();
        let rest = Axes::of(&dims)?;
        let above = |c: u32| {
            (0..rank).fold(0, |out, x| out << rest.bits(x) | axes.coordinate(c, x) >> unit_axes.bits(x))
        };
        let kinds: SmallVec<[Columns; 4]> = (0..4)
            .map(|k| self.kind(k).iter().skip(unit.kind(k).len()).map(|&c| above(c)).collect())
            .collect();
        let quotient = LinearMap::new(self.home, [&kinds[0], &kinds[1], &kinds[2], &kinds[3]])?;
        (quotient.of_units(&rest, unit, unit_axes)? == *self).then_some((quotient, rest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn random(seed: &mut u64, bits: u32) -> u32 {
        *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*seed >> 33) as u32 & ((1 << bits) - 1)
    }

    fn random_map(seed: &mut u64, bits: u32, registers: usize, warps: usize) -> LinearMap {
        let mut some = |n: usize| -> Columns { (0..n).map(|_| random(seed, bits)).collect() };
        let (r, l, w) = (some(registers), some(5), some(warps));
        LinearMap::registers(&r, &[l[0], l[1], l[2], l[3], l[4]], &w).expect("few bits")
    }

    #[test]
    fn elements_are_sums_of_columns() {
        let m = LinearMap::registers(&[1, 8], &[2, 4, 16, 32, 0], &[64]).expect("few");
        assert_eq!(m.element(3, 5, 1), 1 ^ 8 ^ 2 ^ 16 ^ 64);
        assert_eq!((m.register(), m.lane().len(), m.warp()), (&[1, 8][..], 5, &[64][..]));
        assert!(m.is_surjective(7) && !m.is_surjective(8));
        assert_eq!(m.replicas(), Replicas { pivots: 0b1011_1111, lanes: 16, warps: 0 });
        assert!(LinearMap::shared(&[0; 25]).is_none());
    }

    #[test]
    fn inverses_and_replicas_are_what_enumeration_says() {
        let mut seed = 7;
        for _ in 0..500 {
            let m = random_map(&mut seed, 6, 3, 2);
            let n = m.columns().len() as u32;
            let places = |e: u32| (0..1u32 << n).filter(|&p| m.at(p) == e).count();
            let all = (0..64).all(|e| places(e) > 0);
            assert_eq!(m.is_surjective(6), all);
            let inverse = m.inverse(6);
            assert_eq!(inverse.is_some(), all);
            let Some(inverse) = inverse else { continue };
            let pivots = m.replicas().pivots;
            for e in 0..64 {
                let place = crate::layout::gf2::sum(&inverse, e);
                assert_eq!((m.at(place), place & !pivots), (e, 0));
                let among = (0..1u32 << n).filter(|p| p & !pivots == 0 && m.at(*p) == e);
                assert_eq!(among.count(), 1, "pivots reach each element once");
            }
        }
    }

    #[test]
    fn slices_permutations_and_units_are_those_of_coordinates() {
        let mut seed = 3;
        let dims = [4, 2, 8];
        let axes = Axes::of(&dims).expect("powers of two");
        assert_eq!((axes.total(), axes.low(0), axes.mask(1)), (6, 4, 8));
        for _ in 0..200 {
            let m = random_map(&mut seed, 6, 4, 1);
            for axis in 0..3 {
                let s = m.slice(&axes, axis);
                let rest: Vec<usize> = (0..3).filter(|&a| a != axis).collect();
                let left = Axes::of(&[dims[rest[0]], dims[rest[1]]]).expect("powers of two");
                let place = random(&mut seed, 10);
                for (i, &a) in rest.iter().enumerate() {
                    assert_eq!(left.coordinate(s.at(place), i), axes.coordinate(m.at(place), a));
                }
                let back = s.unslice(axes.low(axis), axes.bits(axis));
                assert_eq!(back.at(place), m.at(place) & !axes.mask(axis));
            }
            let p = m.permute(&axes, &[2, 0, 1]);
            let turned = Axes::of(&[8, 4, 2]).expect("powers of two");
            let place = random(&mut seed, 10);
            for (i, a) in [2, 0, 1].into_iter().enumerate() {
                assert_eq!(turned.coordinate(p.at(place), i), axes.coordinate(m.at(place), a));
            }
            let (unit, unit_axes) =
                (random_map(&mut seed, 4, 2, 1), Axes::of(&[2, 4, 2]).expect("powers of two"));
            let Some(both) = m.of_units(&axes, &unit, &unit_axes) else { panic!("few bits") };
            let whole = Axes::of(&[8, 8, 16]).expect("powers of two");
            // Bits of the unit stand below, kind by kind.
            let join = |low: &LinearMap, l: u32, high: &LinearMap, h: u32| {
                let (mut out, mut at) = (0, 0);
                let (mut l, mut h) = (l, h);
                for kind in 0..4 {
                    for (map, bits) in [(low, &mut l), (high, &mut h)] {
                        let n = map.kind(kind).len();
                        out |= (*bits & ((1 << n) - 1)) << at;
                        *bits >>= n;
                        at += n;
                    }
                }
                out
            };
            for _ in 0..20 {
                let (l, h) = (random(&mut seed, 8), random(&mut seed, 10));
                let e = both.at(join(&unit, l, &m, h));
                for axis in 0..3 {
                    let want = axes.coordinate(m.at(h), axis) << unit_axes.bits(axis)
                        | unit_axes.coordinate(unit.at(l), axis);
                    assert_eq!(whole.coordinate(e, axis), want);
                }
            }
            assert_eq!(both.units(&whole, &unit, &unit_axes), Some((m, axes.clone())));
        }
    }

    #[test]
    fn maps_compose() {
        let tmem = LinearMap::tensor(&[4, 8], &[1, 2]).expect("few");
        let access = LinearMap::registers(&[4, 8], &[1, 2, 0, 0, 0], &[]).expect("few");
        let both = access.then(&tmem);
        assert_eq!(
            (both.home(), both.register(), &both.lane()[..2]),
            (Home::Registers, &[1, 2][..], &[4, 8][..])
        );
    }

    #[test]
    fn registers_named_twice_are_dropped() {
        let m = LinearMap::registers(&[1, 1, 0, 2, 3], &[4, 0, 1, 0, 0], &[]).expect("few");
        let c = m.compact();
        assert_eq!((c.register(), c.lane()), (&[1, 2][..], m.lane()));
    }
}
