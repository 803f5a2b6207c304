//! Which element of a matrix sits in which register of which thread.
//!
//! In: thread number, register number (and part of the register). Out: row and column.
//! Covers wgmma accumulators and A fragments, mma.sync, ldmatrix and stmatrix. Thread numbers
//! are within the warp (`lane`, 0..32) or the warpgroup (`thread`, 0..128).
//! Source: PTX ISA, the fragment figures of `wgmma`, `mma.m16n8k*`, `ldmatrix`, `stmatrix`.

/// Row and column of an element.
pub type RowCol = (u32, u32);

/// Numbers of N that wgmma takes with floating-point types: multiples of 8 up to 256.
pub const fn wgmma_n_ok(n: u32, integer: bool) -> bool {
    n >= 8
        && n <= 256
        && n.is_multiple_of(8)
        && (!integer || n <= 32 && n != 0 && n.is_multiple_of(8) || n.is_multiple_of(16))
}

/// wgmma accumulator of 32-bit elements: register `reg` (0..N/2) of `thread` (0..128).
pub const fn wgmma_d32(thread: u32, reg: u32) -> RowCol {
    let (warp, lane) = (thread / 32, thread % 32);
    (16 * warp + lane / 4 + 8 * (reg >> 1 & 1), 8 * (reg >> 2) + 2 * (lane & 3) + (reg & 1))
}

/// wgmma accumulator of f16: half `part` of register `reg` (0..N/4) of `thread`.
pub const fn wgmma_d16(thread: u32, reg: u32, part: u32) -> RowCol {
    let (warp, lane) = (thread / 32, thread % 32);
    (16 * warp + lane / 4 + 8 * (reg & 1), 8 * (reg >> 1) + 2 * (lane & 3) + part)
}

/// wgmma A fragment in registers (0..4): part `part` of the register, elements of `elem` bytes
/// (2: K = 16, 1: K = 32, 4: K = 8). Returns row and k.
pub const fn wgmma_a(thread: u32, reg: u32, part: u32, elem: u32) -> RowCol {
    let (row, k) = mma_a(thread % 32, reg, part, elem);
    (16 * (thread / 32) + row, k)
}

/// mma.sync A of m16n8k16 (16-bit), m16n8k8 (tf32), m16n8k32 (8-bit): row and k of part `part` of
/// register `reg` (0..4).
pub const fn mma_a(lane: u32, reg: u32, part: u32, elem: u32) -> RowCol {
    let per = 4 / elem;
    (lane / 4 + 8 * (reg & 1), 4 * per * (reg >> 1) + per * (lane & 3) + part)
}

/// mma.sync B of the same shapes: k and column of part `part` of register `reg` (0..2).
pub const fn mma_b(lane: u32, reg: u32, part: u32, elem: u32) -> RowCol {
    let per = 4 / elem;
    (4 * per * reg + per * (lane & 3) + part, lane / 4)
}

/// mma.sync C and D of m16n8 with 32-bit elements: register `reg` (0..4).
pub const fn mma_d32(lane: u32, reg: u32) -> RowCol {
    (lane / 4 + 8 * (reg >> 1), 2 * (lane & 3) + (reg & 1))
}

/// mma.sync C and D of m16n8 with f16 elements: half `part` of register `reg` (0..2).
pub const fn mma_d16(lane: u32, reg: u32, part: u32) -> RowCol {
    (lane / 4 + 8 * reg, 2 * (lane & 3) + part)
}

/// Forms of ldmatrix and stmatrix.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Hash)]
pub enum MatrixForm {
    /// `.m8n8.b16`: 8 rows of 16 bytes.
    M8N8B16,
    /// `.m16n16.b8` (ldmatrix, `.trans` only): 16 rows of 16 bytes.
    M16N16B8,
    /// `.m16n8.b8` (stmatrix, `.trans` only): memory holds 8 rows of 16 bytes, one per column.
    M16N8B8,
    /// `.m8n16.b8x16.b6x16_p32` / `.b4x16_p64` (ldmatrix): 8 rows of 16 elements, widened to bytes.
    M8N16B8,
}

impl MatrixForm {
    /// Rows in memory per matrix; each row is one address of one lane.
    pub const fn rows(self) -> u32 {
        match self {
            MatrixForm::M16N16B8 => 16,
            _ => 8,
        }
    }

    /// Registers per matrix and thread.
    pub const fn regs(self) -> u32 {
        match self {
            MatrixForm::M16N16B8 => 2,
            _ => 1,
        }
    }

    /// Bytes of an element in a register.
    pub const fn elem(self) -> u32 {
        match self {
            MatrixForm::M8N8B16 => 2,
            _ => 1,
        }
    }

    /// Matrices that `.x1`, `.x2`, `.x4` may name.
    pub const fn count_ok(self, count: u32) -> bool {
        match self {
            MatrixForm::M16N16B8 => matches!(count, 1 | 2),
            _ => matches!(count, 1 | 2 | 4),
        }
    }

    /// Lane that holds the address of memory row `row` of matrix `matrix`.
    pub const fn address_lane(self, matrix: u32, row: u32) -> u32 {
        matrix * self.rows() + row
    }

    /// Memory row and element within that row of part `part` of register `reg` (counted within one
    /// matrix) of `lane`. `trans` is for `.m8n8`; the 8-bit shapes with 16 rows are always transposed.
    pub const fn element(self, trans: bool, lane: u32, reg: u32, part: u32) -> RowCol {
        let (line, quad) = (lane / 4, lane & 3);
        match self {
            MatrixForm::M8N8B16 if trans => (2 * quad + part, line),
            MatrixForm::M8N8B16 => (line, 2 * quad + part),
            MatrixForm::M8N16B8 => (line, 4 * quad + part),
            // A register holds two neighbouring memory rows at two columns eight apart.
            MatrixForm::M16N16B8 => (4 * quad + 2 * reg + (part & 1), line + 8 * (part >> 1)),
            MatrixForm::M16N8B8 => (2 * quad + (part & 1), line + 8 * (part >> 1)),
        }
    }
}
