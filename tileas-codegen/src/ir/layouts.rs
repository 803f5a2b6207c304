//! Register and memory layouts of tiles, as linear maps over GF(2).
//!
//! A [`Layout`] is printable, as a short name or, of registers, as [`RegisterBits`]; together with a tile's extents and element type
//! it denotes one [`LinearMap`]: which tile element each hardware location (register, lane, warp; or byte
//! address; or tensor-memory lane and column) holds. `place` compares and composes the maps.
//!
//! Source: PTX ISA, shared-memory swizzling modes and matrix descriptors; `tcgen05` data-path layouts D and F.

use super::types::Scalar;
use crate::layout::gf2::{Columns, MAX_BITS};
use crate::layout::{Axes, Home, LinearMap, Matrix, Text};
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
    /// Registers, any bits.
    Bits(RegisterBits),
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

    /// Bytes from one slot of a ring to the next, for tiles of so many: a swizzled tile begins where the pattern does.
    pub fn slot_bytes(self, bytes: u64) -> u64 {
        match self.swizzle() {
            Some(s) if s != Swizzle::None => bytes.next_multiple_of(u64::from(s.alignment())),
            _ => bytes,
        }
    }

    /// Whether this is a register layout.
    pub fn is_register(self) -> bool {
        matches!(self, Layout::Row | Layout::Cols | Layout::RowVec | Layout::Blocked(_) | Layout::Bits(_))
    }
}

/// The bits of a layout of a tile.
pub(super) fn write_bits(f: &mut fmt::Formatter<'_>, bits: &RegisterBits, dims: &[u32]) -> fmt::Result {
    match Axes::of(dims) {
        Some(axes) => write!(f, "{}", Text(&bits.map(), &axes)),
        None => f.write_str("reg(?)"),
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
            // Without its tile all bits are of one axis.
            Layout::Bits(b) => write_bits(f, b, &[1 << (MAX_BITS - 1)]),
        }
    }
}

/// Element bits of the register, lane and warp bits of a layout in which each of them is one bit of the element number, or none
/// (a copy). Fragments, coalesced layouts and rows per thread are of this kind, and what shape ops and reductions make of them.
#[derive(Copy, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RegisterBits {
    /// By bit of the place, registers first, then lanes, then warps: the element bit plus 1; 0: none.
    bits: [u8; MAX_BITS],
    /// Behind the last bit of registers, of lanes, of warps.
    ends: [u8; 3],
}

impl RegisterBits {
    /// Those of a map; `None` if a column is a sum of several element bits, or the map is none of registers.
    pub fn of(map: &LinearMap) -> Option<RegisterBits> {
        let mut out = RegisterBits { bits: [0; MAX_BITS], ends: [0; 3] };
        if map.home() != Home::Registers || !map.kind(3).is_empty() || map.lane().len() != LANE_BITS {
            return None;
        }
        for (bit, &column) in out.bits.iter_mut().zip(map.columns()) {
            *bit = match column {
                0 => 0,
                c if c.is_power_of_two() => c.trailing_zeros() as u8 + 1,
                _ => return None,
            };
        }
        let mut end = 0;
        for (kind, e) in out.ends.iter_mut().enumerate() {
            end += map.kind(kind).len() as u8;
            *e = end;
        }
        Some(out)
    }

    /// The map.
    pub fn map(&self) -> LinearMap {
        let column = |&b: &u8| if b == 0 { 0 } else { 1u32 << (b - 1) };
        let all: Columns = self.bits[..usize::from(self.ends[2])].iter().map(column).collect();
        let [r, l, w] = self.ends.map(usize::from);
        let lanes: [u32; LANE_BITS] = std::array::from_fn(|k| all.get(r + k).copied().unwrap_or(0));
        // As many bits as fit, see `of`.
        LinearMap::registers(&all[..r], &lanes, &all[l..w]).unwrap_or_else(|| LinearMap::lanes_alone(lanes))
    }

    /// log2 of the registers of a thread.
    pub fn registers(&self) -> u32 {
        u32::from(self.ends[0])
    }

    /// log2 of the warps.
    pub fn warps(&self) -> u32 {
        u32::from(self.ends[2] - self.ends[1])
    }
}

impl fmt::Debug for RegisterBits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.map(), f)
    }
}

/// Lanes of a warp: the five lane bits of a register layout.
pub const LANES: u32 = 32;
const LANE_BITS: usize = 5;

/// The map of a register layout for a tile of `dims` (powers of two) over `warps` warps.
///
/// Returns `None` where the layout cannot hold such a tile (rank, extent or number of warps).
pub fn register_map(layout: Layout, dims: &[u32], warps: u32) -> Option<LinearMap> {
    let total: u64 = dims.iter().map(|&d| u64::from(d)).product();
    if !total.is_power_of_two() || !warps.is_power_of_two() {
        return None;
    }
    let bits = |n: u64| n.trailing_zeros();
    let (warp_bits, total_bits) = (warps.trailing_zeros(), bits(total));
    if let Layout::Bits(b) = layout {
        let map = b.map();
        return (b.warps() == warp_bits && map.is_surjective(total_bits)).then_some(map);
    }
    let cols = u64::from(*dims.last()?);
    let unit = |b: u32| 1u32.checked_shl(b).unwrap_or(0);
    let mut register = Columns::new();
    let mut lane = [0; LANE_BITS];
    let mut warp: Columns = (0..warp_bits).map(|_| 0).collect();
    match layout {
        Layout::Cols => register.extend((0..total_bits).map(unit)),
        Layout::Row | Layout::RowVec => {
            let (row_bits, low) = if layout == Layout::Row {
                register.extend((0..bits(cols)).map(unit));
                (bits(total / cols), bits(cols))
            } else {
                (total_bits, 0)
            };
            let lane_bits = row_bits.checked_sub(warp_bits)?.min(5);
            for b in 0..lane_bits {
                lane[b as usize] = unit(low + b);
            }
            for b in 0..warp_bits {
                warp[b as usize] = unit(low + lane_bits + b);
            }
            register.extend((lane_bits + warp_bits..row_bits).map(|b| unit(low + b)));
        }
        Layout::Blocked(v) => {
            let run = u32::from(v).min(total_bits);
            register.extend((0..run).map(unit));
            let mut b = run;
            for slot in lane.iter_mut().chain(warp.iter_mut()) {
                if b < total_bits {
                    *slot = unit(b);
                    b += 1;
                }
            }
            register.extend((b..total_bits).map(unit));
        }
        _ => return None,
    }
    if total_bits as usize > MAX_BITS {
        return None;
    }
    LinearMap::registers(&register, &lane, &warp)
}

/// How the warps of a warpgroup hold a tile that they move between tensor memory and registers at once: a row per thread; where a
/// warp's lanes have 16 rows alone, in the fragments of `.16x256b`, which are the accumulator's of `wgmma`: then no thread is without
/// elements. Of tiles that would fill half of the registers even so, slices are moved by rows, or they are divided before. Source: PTX ISA, tcgen05.ld,
/// matrix fragments.
pub fn moved_map(layout: Layout, dims: &[u32], warps: u32) -> Option<LinearMap> {
    let whole = |m: &Matrix| (3..=7).contains(&m.columns) && m.rows == 6 && m.warps == 2;
    let fragments = match layout {
        Layout::Tmem64 => Matrix::of(dims, warps).filter(whole),
        _ => None,
    };
    fragments.map_or_else(|| register_map(Layout::Row, dims, warps), Matrix::accumulator)
}

/// The layout of a map: `row` where it is that, else its bits. `None` where it has no name: see [`RegisterBits::of`].
pub fn register_layout(map: &LinearMap, dims: &[u32]) -> Option<Layout> {
    if dims.len() > 1 && register_map(Layout::Row, dims, 1 << map.warp().len()).as_ref() == Some(map) {
        return Some(Layout::Row);
    }
    RegisterBits::of(map).map(Layout::Bits)
}

/// Registers (32-bit units) per thread that a register tile occupies.
pub fn registers_per_thread(layout: Layout, dims: &[u32], elem: Scalar, warps: u32) -> Option<u32> {
    let registers = 1 << register_bits(layout, dims, warps)?;
    Some((registers * elem.bits().max(8)).div_ceil(32))
}

/// Number of register-index bits of a register layout: those of [`register_map`], which need not be made.
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
        Layout::Bits(b) => (b.warps() == warps).then(|| b.registers()),
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
        let l = register_map(Layout::Row, &[128, 64], 4).unwrap();
        for (reg, lane, warp) in [(0, 0, 0), (63, 31, 3), (5, 7, 2)] {
            assert_eq!(l.element(reg, lane, warp), (warp * 32 + lane) * 64 + reg);
        }
        let half = register_map(Layout::Row, &[64, 16], 4).unwrap();
        assert_eq!(half.replicas().lanes, 16);
        assert_eq!(half.element(3, 15, 3), 63 * 16 + 3);
    }

    #[test]
    fn bits_are_those_of_the_map() {
        for (layout, dims) in [
            (Layout::Row, &[128, 32][..]),
            (Layout::Cols, &[4, 32]),
            (Layout::Blocked(2), &[2, 4, 64]),
            (Layout::Blocked(3), &[64]),
        ] {
            let map = register_map(layout, dims, 4).unwrap();
            let bits = RegisterBits::of(&map).unwrap();
            assert_eq!(bits.map(), map);
            assert_eq!(register_map(Layout::Bits(bits), dims, 4), Some(map));
            assert_eq!(register_map(Layout::Bits(bits), dims, 2), None, "as many warps as it says");
            assert_eq!(register_bits(Layout::Bits(bits), dims, 4), Some(map.register().len() as u32));
            let named = register_layout(&map, dims).unwrap();
            assert_eq!(named == Layout::Row, layout == Layout::Row);
        }
        let sums = LinearMap::registers(&[3, 1], &[4, 8, 16, 32, 64], &[]).unwrap();
        assert_eq!(RegisterBits::of(&sums), None);
        let narrow = register_map(Layout::Blocked(0), &[64], 1).unwrap();
        let bits = Layout::Bits(RegisterBits::of(&narrow).unwrap());
        assert_eq!(register_map(bits, &[128], 1), None, "some element is nowhere");
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
                    let map = register_map(layout, dims, warps);
                    let want = map.map(|l| l.register().len() as u32);
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
