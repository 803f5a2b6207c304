//! Tensor memory: addresses, the shapes of tcgen05.ld and .st, and where matrices lie.
//!
//! In: shape names, lane and register numbers, row and column numbers. Out: TMEM lane and column.
//! Guarantee: a warp gets only the 32 lanes that hardware lets it reach; anything else is an error.
//! Source: PTX ISA, "Tensor Memory", "Tensor Memory and Register Load/Store Instructions", "Data
//! path layout organization".

use super::{LayoutError, LayoutResult};

/// Lanes of tensor memory.
pub const LANES: u32 = 128;
/// 32-bit columns of tensor memory.
pub const COLUMNS: u32 = 512;

/// Lane and column of a TMEM address.
pub const fn split_address(address: u32) -> (u32, u32) {
    (address >> 16, address & 0xFFFF)
}

/// Shape of tcgen05.ld and .st.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Hash)]
pub enum Shape {
    /// `.32x32b`: a lane per thread.
    L32x32b,
    /// `.16x64b`.
    L16x64b,
    /// `.16x128b`.
    L16x128b,
    /// `.16x256b`: the accumulator layout of wgmma and mma.
    L16x256b,
    /// `.16x32bx2`: two groups of columns, the second `imm` columns further.
    L16x32bx2,
}

impl Shape {
    /// Shape named as in the instruction.
    pub fn by_name(name: &str) -> Option<Self> {
        Some(match name {
            "32x32b" => Shape::L32x32b,
            "16x64b" => Shape::L16x64b,
            "16x128b" => Shape::L16x128b,
            "16x256b" => Shape::L16x256b,
            "16x32bx2" => Shape::L16x32bx2,
            _ => return None,
        })
    }

    /// Lanes that one instruction covers.
    pub const fn lanes(self) -> u32 {
        if matches!(self, Shape::L32x32b) { 32 } else { 16 }
    }

    /// Registers per thread for `.xN`.
    pub const fn regs(self, repeat: u32) -> u32 {
        match self {
            Shape::L16x128b => 2 * repeat,
            Shape::L16x256b => 4 * repeat,
            _ => repeat,
        }
    }

    /// True for the `.xN` that exist.
    pub const fn repeat_ok(self, repeat: u32) -> bool {
        let most = match self {
            Shape::L16x128b => 64,
            Shape::L16x256b => 32,
            _ => 128,
        };
        repeat.is_power_of_two() && repeat <= most
    }

    /// Lane and column, relative to the address, of register `reg` of thread `thread` (0..32).
    /// `imm` is the column distance of `.16x32bx2`.
    pub const fn at(self, thread: u32, reg: u32, imm: u32) -> (u32, u32) {
        let quad = thread & 3;
        match self {
            Shape::L32x32b => (thread, reg),
            Shape::L16x64b => (thread / 4 + 8 * (thread & 1), 2 * reg + (thread >> 1 & 1)),
            Shape::L16x128b => (thread / 4 + 8 * (reg & 1), 4 * (reg >> 1) + quad),
            Shape::L16x256b => (thread / 4 + 8 * (reg >> 1 & 1), 8 * (reg >> 2) + 2 * quad + (reg & 1)),
            Shape::L16x32bx2 => (thread % 16, reg + if thread >= 16 { imm } else { 0 }),
        }
    }

    /// The two columns that register `reg` packs under `.pack::16b` / `.unpack::16b`: its low half
    /// goes with the first. The layout is that of twice as many registers, taken in pairs.
    pub const fn packed(self, thread: u32, reg: u32, imm: u32) -> [(u32, u32); 2] {
        let (lane, column) = self.at(thread, reg, 0);
        match self {
            Shape::L16x32bx2 => {
                let shift = if thread >= 16 { imm } else { 0 };
                [(lane, 2 * reg + shift), (lane, 2 * reg + 1 + shift)]
            }
            _ => [(lane, 2 * column), (lane, 2 * column + 1)],
        }
    }

    /// Columns that the instruction covers, counted from the address.
    pub const fn width(self, repeat: u32, imm: u32, packed: bool) -> u32 {
        let columns = match self {
            Shape::L32x32b => repeat,
            Shape::L16x64b => 2 * repeat,
            Shape::L16x128b => 4 * repeat,
            Shape::L16x256b => 8 * repeat,
            Shape::L16x32bx2 => {
                return imm + if packed { 2 * repeat } else { repeat };
            }
        };
        if packed { 2 * columns } else { columns }
    }

    /// First lane and column of an access by warp `warp_in_group` (0..4), or why it may not.
    pub fn base(self, address: u32, warp_in_group: u32) -> LayoutResult<(u32, u32)> {
        let (lane, column) = split_address(address);
        let first = 32 * warp_in_group;
        if lane == first || self.lanes() == 16 && lane == first + 16 {
            return Ok((lane, column));
        }
        Err(LayoutError::new(
            "tmem.lane",
            format!(
                "lane {lane} is not accessible to warp {warp_in_group} of its warpgroup, which has lanes {first}..{}",
                first + 32
            ),
        ))
    }
}

/// How the rows of an accumulator lie over the lanes.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Hash)]
pub enum DataPath {
    /// M = 128 of one CTA, and M = 256 of two: row = lane.
    Full,
    /// M = 64 of one CTA: half of every quadrant.
    Half,
    /// M = 128 of two CTAs: 64 rows per CTA, columns folded in two.
    Split2,
}

impl DataPath {
    /// Layout of an MMA.
    pub fn of(m: u32, ctas: u32) -> Option<Self> {
        Some(match (m, ctas) {
            (128, 1) | (256, 2) => DataPath::Full,
            (64, 1) => DataPath::Half,
            (128, 2) => DataPath::Split2,
            _ => return None,
        })
    }

    /// CTA, lane and column (relative to the address) of element (`row`, `col`) of D with `n` columns.
    pub const fn at(self, row: u32, col: u32, n: u32) -> (u32, u32, u32) {
        match self {
            DataPath::Full => (row / 128, row % 128, col),
            DataPath::Half => (0, row % 16 + 32 * (row / 16), col),
            DataPath::Split2 => (row / 64, row % 64 + 64 * (col / (n / 2)), col % (n / 2)),
        }
    }

    /// Checks the lane field of an accumulator's or A operand's address.
    pub fn check_lane(self, lane: u32) -> LayoutResult<()> {
        if lane == 0 || self == DataPath::Half && lane == 16 {
            return Ok(());
        }
        Err(LayoutError::new("tmem.lane", format!("matrix starts at lane {lane}")))
    }
}

/// Column and shift in bits of element `k` of a row of A in tensor memory; `elem` bytes each.
pub const fn a_column(k: u32, elem: u32) -> (u32, u32) {
    let per = 4 / elem;
    (k / per, k % per * elem * 8)
}

/// Column count that tcgen05.alloc takes.
pub fn check_alloc(columns: u32) -> LayoutResult<()> {
    if columns.is_power_of_two() && (32..=COLUMNS).contains(&columns) {
        return Ok(());
    }
    Err(LayoutError::new("tmem.alloc", format!("{columns} columns: not a power of two in 32..512")))
}
