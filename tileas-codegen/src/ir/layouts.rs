//! Register and memory layouts of tiles, as linear maps over GF(2).
//!
//! A [`Layout`] is the short, printable name of a layout family; together with a tile's extents and element type
//! it denotes one [`LinearLayout`]: which tile element each hardware location (register, lane, warp; or byte
//! address; or tensor-memory lane and column) holds. `place` compares and composes the maps; `lower` knows the names.
//!
//! Source: PTX ISA, shared-memory swizzling modes and matrix descriptors; `tcgen05` data-path layouts D and F.

use super::types::Scalar;
use smallvec::{SmallVec, smallvec};
use std::fmt;

/// Shared-memory swizzle of TMA boxes and matrix operands.
#[derive(Copy, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Swizzle {
    /// No swizzle; slabs are 16 bytes wide.
    None,
    /// 32-byte span.
    B32,
    /// 64-byte span.
    B64,
    /// 128-byte span.
    B128,
}

impl Swizzle {
    /// All modes.
    pub const ALL: [Swizzle; 4] = [Swizzle::None, Swizzle::B32, Swizzle::B64, Swizzle::B128];

    /// Bytes of one slab row: what one TMA box covers along the innermost dimension.
    pub fn span(self) -> u32 {
        match self {
            Swizzle::None => 16,
            Swizzle::B32 => 32,
            Swizzle::B64 => 64,
            Swizzle::B128 => 128,
        }
    }

    /// Address bits that bits 9:7 are added to.
    pub fn xor_mask(self) -> u32 {
        match self {
            Swizzle::None => 0,
            Swizzle::B32 => 0x10,
            Swizzle::B64 => 0x30,
            Swizzle::B128 => 0x70,
        }
    }

    /// Alignment of a tile's base so that the pattern starts at phase 0, in bytes.
    pub fn alignment(self) -> u32 {
        match self {
            Swizzle::None => 128,
            _ => self.span() * 8,
        }
    }

    /// Where the byte at unswizzled address `lin` really lies.
    pub fn apply(self, lin: u32) -> u32 {
        lin ^ ((lin >> 3) & self.xor_mask())
    }

    /// Name in attributes: `none`, `b32`, `b64`, `b128`.
    pub fn name(self) -> &'static str {
        match self {
            Swizzle::None => "none",
            Swizzle::B32 => "b32",
            Swizzle::B64 => "b64",
            Swizzle::B128 => "b128",
        }
    }

    /// The mode of that name.
    pub fn from_name(name: &str) -> Option<Swizzle> {
        Swizzle::ALL.into_iter().find(|s| s.name() == name)
    }

    /// The widest mode whose span divides a row of `bytes`.
    pub fn widest(bytes: u32) -> Swizzle {
        Swizzle::ALL
            .into_iter()
            .rev()
            .find(|s| *s != Swizzle::None && bytes.is_multiple_of(s.span()))
            .unwrap_or(Swizzle::None)
    }
}

/// A layout family; see the module documentation.
#[derive(Copy, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Layout {
    /// Shared memory, innermost dimension in slabs of the swizzle span, slabs one after the other, rows of a slab
    /// dense. `k…`: the innermost dimension is K of a matrix operand (or simply the fast one).
    SmemK(Swizzle),
    /// As [`Layout::SmemK`], but the innermost dimension is M or N of a matrix operand; the bytes lie the same way.
    SmemMn(Swizzle),
    /// Shared memory, dense row-major: an accumulator, where the target keeps accumulators there.
    SmemRow,
    /// Tensor-memory accumulator of 128 rows: lane = row, column = column (PTX layout D).
    Tmem128,
    /// Tensor-memory accumulator of 64 rows: lane = (m mod 16) + 32·(m div 16) (PTX layout F).
    Tmem64,
    /// Registers, one row per thread: register = column. With 64 rows, lanes 16…31 of each warp hold nothing.
    Row,
    /// Registers, every thread holds every element (vectors along columns).
    Cols,
    /// Registers, rank-1 tile of one element per row of a [`Layout::Row`] tile.
    RowVec,
    /// Registers, coalesced blocked layout: consecutive threads hold consecutive runs of `1 << n` innermost elements.
    Blocked(u8),
}

impl Layout {
    /// The layout of that name.
    pub fn from_name(name: &str) -> Option<Layout> {
        Some(match name {
            "k128" => Layout::SmemK(Swizzle::B128),
            "k64" => Layout::SmemK(Swizzle::B64),
            "k32" => Layout::SmemK(Swizzle::B32),
            "k0" => Layout::SmemK(Swizzle::None),
            "mn128" => Layout::SmemMn(Swizzle::B128),
            "mn64" => Layout::SmemMn(Swizzle::B64),
            "mn32" => Layout::SmemMn(Swizzle::B32),
            "mn0" => Layout::SmemMn(Swizzle::None),
            "dense" => Layout::SmemRow,
            "d128" => Layout::Tmem128,
            "d64" => Layout::Tmem64,
            "row" => Layout::Row,
            "cols" => Layout::Cols,
            "rowvec" => Layout::RowVec,
            _ => {
                let n: u8 = name.strip_prefix("blocked")?.parse().ok()?;
                if n > 4 || name != format!("blocked{n}") {
                    return None;
                }
                Layout::Blocked(n)
            }
        })
    }

    /// The swizzle of a shared-memory layout.
    pub fn swizzle(self) -> Option<Swizzle> {
        match self {
            Layout::SmemK(s) | Layout::SmemMn(s) => Some(s),
            Layout::SmemRow => Some(Swizzle::None),
            _ => None,
        }
    }

    /// Whether this is a register layout.
    pub fn is_register(self) -> bool {
        matches!(self, Layout::Row | Layout::Cols | Layout::RowVec | Layout::Blocked(_))
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = |s: &Swizzle| if *s == Swizzle::None { 0 } else { s.span() };
        match self {
            Layout::SmemK(s) => write!(f, "k{}", bits(s)),
            Layout::SmemMn(s) => write!(f, "mn{}", bits(s)),
            Layout::SmemRow => f.write_str("dense"),
            Layout::Tmem128 => f.write_str("d128"),
            Layout::Tmem64 => f.write_str("d64"),
            Layout::Row => f.write_str("row"),
            Layout::Cols => f.write_str("cols"),
            Layout::RowVec => f.write_str("rowvec"),
            Layout::Blocked(n) => write!(f, "blocked{n}"),
        }
    }
}

/// Lanes of a warp: the five lane bits of a register layout.
pub const LANES: u32 = 32;

/// A linear map from hardware location bits to tile coordinate bits.
///
/// `inputs` lists, per input bit, the flattened row-major element index (a xor-linear combination) it contributes;
/// bits that hold no element of their own (replicas) contribute 0 and are listed in `free`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LinearLayout {
    /// Contribution of each register-index bit.
    pub register: SmallVec<[u64; 8]>,
    /// Contribution of each lane bit (5).
    pub lane: SmallVec<[u64; 5]>,
    /// Contribution of each warp bit.
    pub warp: SmallVec<[u64; 5]>,
}

impl LinearLayout {
    /// The map of a register layout for a tile of `dims` (powers of two) over `warps` warps.
    ///
    /// Returns `None` where the layout cannot hold such a tile (rank or extent).
    pub fn of_register(layout: Layout, dims: &[u32], warps: u32) -> Option<LinearLayout> {
        let total: u64 = dims.iter().map(|&d| u64::from(d)).product();
        if !total.is_power_of_two() || !warps.is_power_of_two() {
            return None;
        }
        let cols = u64::from(*dims.last()?);
        let rows = total / cols;
        let bits = |n: u64| n.trailing_zeros();
        let warp_bits = warps.trailing_zeros();
        let col_regs = |out: &mut SmallVec<[u64; 8]>| out.extend((0..bits(cols)).map(|b| 1u64 << b));
        let mut l = LinearLayout {
            register: SmallVec::new(),
            lane: smallvec![0; 5],
            warp: smallvec![0; warp_bits as usize],
        };
        match layout {
            Layout::Cols => {
                l.register.extend((0..bits(total)).map(|b| 1u64 << b));
            }
            Layout::Row | Layout::RowVec => {
                let (rows, row_unit) = if layout == Layout::Row {
                    col_regs(&mut l.register);
                    (rows, cols)
                } else {
                    (total, 1)
                };
                let row_bits = bits(rows);
                if rows == 0 || row_bits < warp_bits {
                    return None;
                }
                let lane_bits = (row_bits - warp_bits).min(5);
                for b in 0..lane_bits {
                    l.lane[b as usize] = row_unit << b;
                }
                for b in 0..warp_bits {
                    l.warp[b as usize] = row_unit << (lane_bits + b);
                }
                l.register.extend((lane_bits + warp_bits..row_bits).map(|b| row_unit << b));
            }
            Layout::Blocked(v) => {
                let run = u32::from(v).min(bits(total));
                l.register.extend((0..run).map(|b| 1u64 << b));
                let mut b = run;
                for slot in l.lane.iter_mut().chain(l.warp.iter_mut()) {
                    if b < bits(total) {
                        *slot = 1u64 << b;
                        b += 1;
                    }
                }
                l.register.extend((b..bits(total)).map(|b| 1u64 << b));
            }
            _ => return None,
        }
        Some(l)
    }

    /// Registers per thread, in elements.
    pub fn registers(&self) -> u32 {
        1 << self.register.len()
    }

    /// Flattened element index held by (`register`, `lane`, `warp`).
    pub fn element(&self, register: u32, lane: u32, warp: u32) -> u64 {
        let part = |maps: &[u64], index: u32| {
            maps.iter().enumerate().filter(|(b, _)| index >> b & 1 == 1).fold(0, |acc, (_, m)| acc ^ m)
        };
        part(&self.register, register) ^ part(&self.lane, lane) ^ part(&self.warp, warp)
    }

    /// The way back, from elements to registers.
    pub fn inverse(&self) -> Inverse<'_> {
        let single = self.register.iter().all(|m| m.is_power_of_two());
        let elements = self.register.iter().fold(0, |acc, m| acc | m);
        let distinct = elements.count_ones() as usize == self.register.len();
        let shift = elements.trailing_zeros();
        let in_line = self.register.iter().enumerate().all(|(b, &m)| m.checked_shr(shift) == Some(1 << b));
        Inverse {
            layout: self,
            elements: (single && distinct).then_some(elements),
            shift: in_line.then_some(shift),
        }
    }

    /// Lane bits that select no element: such lanes hold nothing of their own.
    pub fn free_lane_mask(&self) -> u32 {
        self.lane.iter().enumerate().filter(|(_, m)| **m == 0).fold(0, |acc, (b, _)| acc | 1 << b)
    }

    /// Warp bits that select no element.
    pub fn free_warp_mask(&self) -> u32 {
        self.warp.iter().enumerate().filter(|(_, m)| **m == 0).fold(0, |acc, (b, _)| acc | 1 << b)
    }
}

/// From elements to registers; see [`LinearLayout::inverse`].
#[derive(Copy, Clone, Debug)]
pub struct Inverse<'a> {
    layout: &'a LinearLayout,
    /// The element bits that registers hold, if each of them is one register bit.
    elements: Option<u64>,
    /// Where these bits begin, if they are the bits of the register number.
    shift: Option<u32>,
}

impl Inverse<'_> {
    /// The least register in which lane 0 of warp 0 holds the element.
    pub fn register_of(&self, element: u64) -> Option<u32> {
        let l = self.layout;
        let Some(elements) = self.elements else {
            return (0..l.registers()).find(|&r| l.element(r, 0, 0) == element);
        };
        if let Some(shift) = self.shift {
            return (element & !elements == 0).then(|| element.checked_shr(shift).unwrap_or(0) as u32);
        }
        let bit = |(b, m): (usize, &u64)| u32::from(element & m != 0) << b;
        (element & !elements == 0).then(|| l.register.iter().enumerate().map(bit).sum())
    }
}

/// Registers (32-bit units) per thread that a register tile occupies.
pub fn registers_per_thread(layout: Layout, dims: &[u32], elem: Scalar, warps: u32) -> Option<u32> {
    let registers = 1 << register_bits(layout, dims, warps)?;
    Some((registers * elem.bits().max(8)).div_ceil(32))
}

/// Number of register-index bits of a register layout: those of [`LinearLayout::of_register`], which need not be made.
pub fn register_bits(layout: Layout, dims: &[u32], warps: u32) -> Option<u32> {
    let total: u64 = dims.iter().map(|&d| u64::from(d)).product();
    if !total.is_power_of_two() || !warps.is_power_of_two() {
        return None;
    }
    let columns = u64::from(*dims.last()?);
    let (total, columns, warps) = (total.trailing_zeros(), columns.trailing_zeros(), warps.trailing_zeros());
    // Bits of the rows, of which lanes and warps take theirs.
    let per_thread = |rows: u32| rows.checked_sub(warps).map(|rest| rest.saturating_sub(5));
    match layout {
        Layout::Cols => Some(total),
        Layout::Row => Some(columns + per_thread(total - columns)?),
        Layout::RowVec => per_thread(total),
        Layout::Blocked(run) => {
            let rest = total.saturating_sub(u32::from(run));
            Some(total - rest.min(5 + warps))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for name in [
            "k128", "k64", "k32", "k0", "mn128", "mn0", "dense", "d128", "d64", "row", "cols", "rowvec",
            "blocked3",
        ] {
            assert_eq!(Layout::from_name(name).unwrap().to_string(), name);
        }
        assert_eq!(Layout::from_name("blocked9"), None);
        assert_eq!(Layout::from_name("row7"), None);
    }

    #[test]
    fn row_layout_is_one_row_per_thread() {
        let l = LinearLayout::of_register(Layout::Row, &[128, 64], 4).unwrap();
        for (reg, lane, warp) in [(0, 0, 0), (63, 31, 3), (5, 7, 2)] {
            assert_eq!(l.element(reg, lane, warp), u64::from((warp * 32 + lane) * 64 + reg));
        }
        let half = LinearLayout::of_register(Layout::Row, &[64, 16], 4).unwrap();
        assert_eq!(half.free_lane_mask(), 16);
        assert_eq!(half.element(3, 15, 3), 63 * 16 + 3);
    }

    #[test]
    fn register_of_is_the_first_register_that_holds_the_element() {
        let mut layouts: Vec<LinearLayout> = [Layout::Row, Layout::Cols, Layout::Blocked(2)]
            .into_iter()
            .filter_map(|l| LinearLayout::of_register(l, &[128, 32], 4))
            .collect();
        let folded = |maps: &[u64]| LinearLayout { register: maps.into(), ..LinearLayout::default() };
        layouts.extend([folded(&[1, 1, 2]), folded(&[3, 2]), folded(&[4, 0])]);
        for l in &layouts {
            for element in 0..300 {
                let first = (0..l.registers()).find(|&r| l.element(r, 0, 0) == element);
                assert_eq!(l.inverse().register_of(element), first, "{l:?} {element}");
            }
        }
    }

    #[test]
    fn register_bits_are_those_of_the_map() {
        let layouts = [Layout::Row, Layout::Cols, Layout::RowVec, Layout::SmemRow]
            .into_iter()
            .chain((0..5).map(Layout::Blocked));
        let shapes =
            [&[][..], &[0], &[1], &[3], &[8], &[128], &[4096], &[1, 64], &[64, 1], &[16, 4], &[128, 64]];
        for layout in layouts {
            for dims in shapes.iter().chain(&[&[256, 32][..], &[2, 64, 8], &[4, 0], &[1024, 1]]) {
                for warps in [0, 1, 2, 3, 4, 8, 16] {
                    let map = LinearLayout::of_register(layout, dims, warps);
                    let want = map.map(|l| l.register.len() as u32);
                    assert_eq!(register_bits(layout, dims, warps), want, "{layout:?} {dims:?} {warps}");
                }
            }
        }
    }

    #[test]
    fn swizzle_formula_for_128_byte_rows() {
        for row in 0..16 {
            for byte in 0..128 {
                let want = row * 128 + (((byte >> 4) ^ (row & 7)) << 4) + (byte & 15);
                assert_eq!(Swizzle::B128.apply(row * 128 + byte), want);
            }
        }
    }
}
