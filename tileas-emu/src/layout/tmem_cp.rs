//! tcgen05.cp: which bytes of shared memory go to which cells of tensor memory.
//!
//! In: shape, multicast, a matrix descriptor. Out: for each row of the source, its bytes'
//! shared addresses and the lanes that receive it.
//! The source is a K-major matrix of 16-byte (128b) or 32-byte (256b) rows under the descriptor.
//! Source: PTX ISA, "Data Movement Shape", `tcgen05.cp`.

use super::operand::{Major, Operand, SmemDesc};
use super::{LayoutError, LayoutResult};

/// Shape with its multicast.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Hash)]
pub enum CpShape {
    /// `.128x256b`.
    R128x256,
    /// `.4x256b`: one row to the first lane of each quarter.
    R4x256,
    /// `.128x128b`.
    R128x128,
    /// `.64x128b.warpx2::02_13`: rows 0..32 to quarters 0 and 2, rows 32..64 to 1 and 3.
    R64x128Pair02,
    /// `.64x128b.warpx2::01_23`: rows 0..32 to quarters 0 and 1, rows 32..64 to 2 and 3.
    R64x128Pair01,
    /// `.32x128b.warpx4`: the same rows to all quarters.
    R32x128,
}

impl CpShape {
    /// Shape named as in the instruction; `multicast` is empty where there is none.
    pub fn by_name(shape: &str, multicast: &str) -> LayoutResult<Self> {
        Ok(match (shape, multicast) {
            ("128x256b", "") => CpShape::R128x256,
            ("4x256b", "") => CpShape::R4x256,
            ("128x128b", "") => CpShape::R128x128,
            ("64x128b", "warpx2::02_13") => CpShape::R64x128Pair02,
            ("64x128b", "warpx2::01_23") => CpShape::R64x128Pair01,
            ("32x128b", "warpx4") => CpShape::R32x128,
            _ => {
                return Err(LayoutError::new(
                    "cp.shape",
                    format!("shape {shape} with multicast `{multicast}`"),
                ));
            }
        })
    }

    /// Rows of the source.
    pub const fn rows(self) -> u32 {
        match self {
            CpShape::R128x256 | CpShape::R128x128 => 128,
            CpShape::R4x256 => 4,
            CpShape::R64x128Pair02 | CpShape::R64x128Pair01 => 64,
            CpShape::R32x128 => 32,
        }
    }

    /// Columns (32-bit cells) per row.
    pub const fn columns(self) -> u32 {
        if matches!(self, CpShape::R128x256 | CpShape::R4x256) { 8 } else { 4 }
    }

    /// Lanes that receive source row `row`; the second entry counts the valid ones.
    pub const fn lanes(self, row: u32) -> ([u32; 4], usize) {
        match self {
            CpShape::R128x256 | CpShape::R128x128 => ([row, 0, 0, 0], 1),
            CpShape::R4x256 => ([32 * row, 0, 0, 0], 1),
            CpShape::R64x128Pair02 => ([row, row + 64, 0, 0], 2),
            CpShape::R64x128Pair01 => {
                let lane = row % 32 + 64 * (row / 32);
                ([lane, lane + 32, 0, 0], 2)
            }
            CpShape::R32x128 => ([row, row + 32, row + 64, row + 96], 4),
        }
    }

    /// Shared address of 32-bit cell `column` of source row `row`.
    pub fn source(self, desc: SmemDesc, row: u32, column: u32) -> u32 {
        // Rows of the source are rows of a K-major operand of bytes.
        let operand = Operand { desc, major: Major::K, elem: 1, mn: self.rows(), k: 4 * self.columns() };
        operand.address(row, 4 * column)
    }
}
