//! Boxes of tiled mode between global and shared memory.
//!
//! In: a tensor map, coordinates, the shared address of the box. Out: pieces, each a run of bytes
//! that is contiguous on both sides, or a run of shared bytes to fill. Loads write every piece;
//! stores and reductions use the pieces that have a global address and drop the rest.
//! Guarantee: the pieces cover each byte of the box once, in box order; no global address lies
//! outside the tensor.
//! Source: PTX ISA, "Tensors" (bounding box, out-of-boundary access, swizzling modes),
//! `cp.async.bulk.tensor`, `cp.reduce.async.bulk.tensor`.

use super::swizzle::Swizzle;
use super::tma_map::{MAX_RANK, OobFill, TensorMap, TmaType};
use super::{LayoutError, LayoutResult};
use crate::num::arith::{self, MinMax, RN};

/// A run of bytes of a box.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Piece {
    /// Address in shared memory, swizzled.
    pub smem: u32,
    /// Address in global memory, or `None` outside the tensor (and in padding).
    pub global: Option<u64>,
    /// Bytes.
    pub bytes: u32,
}

impl TensorMap {
    /// Checks coordinates and the shared address. `store` forbids negative coordinates. In the innermost dimension boxes start at multiples of
    /// 16 bytes: an H100 (driver 580) ends the kernel with an illegal instruction elsewhere; the manual does not say so.
    pub fn check_box(&self, coords: &[i32], smem: u32, store: bool) -> LayoutResult<()> {
        if coords.len() != self.rank {
            return Err(LayoutError::new(
                "tma.rank",
                format!("{} coordinates for a map of rank {}", coords.len(), self.rank),
            ));
        }
        if !smem.is_multiple_of(128) {
            return Err(LayoutError::new(
                "tma.align",
                format!("shared address {smem:#x} is not a multiple of 128"),
            ));
        }
        // Far beyond any shared memory: the rows' addresses must not wrap. Exact bounds are the machine's.
        if smem > 1 << 30 {
            return Err(LayoutError::new("tma.smem", format!("shared address {smem:#x} does not exist")));
        }
        if store && coords.iter().any(|&c| c < 0) {
            return Err(LayoutError::new("tma.coord", format!("store at negative coordinates {coords:?}")));
        }
        let inner = i64::from(coords[0]) * i64::from(self.elem.bits());
        if inner % 128 != 0 {
            return Err(LayoutError::new(
                "tma.coord",
                format!("coordinate {} is not at a multiple of 16 bytes", coords[0]),
            ));
        }
        if self.elem.padded() && (store || coords[0] % 64 != 0) {
            return Err(LayoutError::new("tma.coord", format!("padded type at {coords:?}")));
        }
        Ok(())
    }

    /// The pieces of the box at `coords` whose first byte is at `smem`, appended to `out`.
    /// `store`: a row that ends within 16 bytes ends with them, as an H100 stores it.
    pub fn pieces(&self, coords: &[i32], smem: u32, store: bool, out: &mut Vec<Piece>) -> LayoutResult<()> {
        self.check_box(coords, smem, false)?;
        let mut index = [0u32; MAX_RANK];
        for row in 0..self.rows() {
            let mut global = Some(self.address);
            for i in 1..self.rank {
                let c = i64::from(coords[i]) + i64::from(index[i]) * i64::from(self.element_strides[i]);
                let inside = c >= 0 && (c as u64) < self.dims[i];
                global = if inside { global.map(|g| g + c as u64 * self.strides[i]) } else { None };
            }
            self.row_pieces(i64::from(coords[0]), smem + row * self.pitch(), global, store, out);
            for (i, at) in index.iter_mut().enumerate().take(self.rank).skip(1) {
                *at += 1;
                if *at < self.count(i) {
                    break;
                }
                *at = 0;
            }
        }
        Ok(())
    }

    /// The pieces of a `.tile::gather4` or `.tile::scatter4`: `coords` are the column and four rows
    /// of a map of rank 2 whose box is one row high. The rows follow each other in shared memory.
    pub fn row_gather(&self, coords: &[i32; 5], smem: u32, out: &mut Vec<Piece>) -> LayoutResult<()> {
        if self.rank != 2 || self.box_dims[1] != 1 {
            return Err(LayoutError::new(
                "tma.rank",
                format!("four rows of a map of rank {} with boxes of {} rows", self.rank, self.box_dims[1]),
            ));
        }
        for (i, &row) in (0..).zip(&coords[1..]) {
            self.check_box(&[coords[0], row], smem, false)?;
            let inside = row >= 0 && (row as u64) < self.dims[1];
            let global = inside.then(|| self.address + row as u64 * self.strides[1]);
            self.row_pieces(i64::from(coords[0]), smem + i * self.pitch(), global, false, out);
        }
        Ok(())
    }

    /// One row: dimension 0 from coordinate `c0`, at unswizzled address `linear`.
    fn row_pieces(&self, c0: i64, linear: u32, global: Option<u64>, store: bool, out: &mut Vec<Piece>) {
        if self.elem.padded() {
            // 16 elements fill 8 or 12 bytes of a 16-byte group; the rest is padding.
            let data = 2 * self.elem.bits();
            for g in 0..self.box_dims[0] / 16 {
                let at = self.swizzle.apply(linear + 16 * g);
                let c = c0 + 16 * i64::from(g);
                let inside = c >= 0 && (c as u64) < self.dims[0];
                let from =
                    global.filter(|_| inside).map(|base| base + c as u64 * u64::from(self.elem.bits()) / 8);
                out.push(Piece { smem: at, global: from, bytes: data });
                out.push(Piece { smem: at + data, global: None, bytes: 16 - data });
            }
            return;
        }
        // In-bounds part of the row in bytes of the box.
        let bits = i64::from(self.elem.bits());
        let total = i64::from(self.inner_bytes());
        let lo = (-c0 * bits / 8).clamp(0, total);
        let end = (self.dims[0] as i64 - c0) * bits / 8;
        let hi = if store { (end + 15) & !15 } else { end }.clamp(lo, total);
        let unit = match self.swizzle {
            Swizzle::None => total,
            Swizzle::B128Atom32Flip8 => 8,
            _ => 16,
        };
        let mut at = 0;
        while at < total {
            let border = if at < lo {
                lo
            } else if at < hi {
                hi
            } else {
                total
            };
            let end = border.min(at - at % unit + unit);
            let inside = at >= lo && at < hi;
            let from = global.filter(|_| inside).map(|base| (base as i64 + c0 * bits / 8 + at) as u64);
            out.push(Piece {
                smem: self.swizzle.apply(linear + at as u32),
                global: from,
                bytes: (end - at) as u32,
            });
            at = end;
        }
    }

    /// Byte `offset` of the fill pattern, counted from an element's first byte. The NaN is what an H100 puts there for f32.
    pub fn fill_byte(&self, offset: u32) -> u8 {
        match self.oob {
            OobFill::Nan => 0x7ff7_u16.to_le_bytes()[offset as usize % 2],
            OobFill::Zero => 0,
        }
    }

    /// What a load makes of one 32-bit element: the `ftz` types flush subnormals, the tf32 types
    /// round to nearest even. Other types are copied.
    pub fn load_element(&self, bits: u32) -> u32 {
        use crate::num::convert::{Cvt, convert};
        use crate::num::exact::Rounding;
        use crate::num::format::{F32, TF32};
        let how = Cvt::with(Rounding::Rn);
        match self.elem {
            TmaType::F32Ftz if F32.is_subnormal(bits.into()) => bits & 0x8000_0000,
            TmaType::Tf32 => convert(&F32, bits.into(), &TF32, how) as u32,
            TmaType::Tf32Ftz => convert(&F32, bits.into(), &TF32, how.ftz()) as u32,
            _ => bits,
        }
    }
}

/// Operation of a reducing store.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Hash)]
#[allow(missing_docs)] // The names are those of the modifiers.
pub enum RedOp {
    Add,
    Min,
    Max,
    Inc,
    Dec,
    And,
    Or,
    Xor,
}

impl RedOp {
    /// Operation named as in the instruction.
    pub fn by_name(name: &str) -> Option<Self> {
        Some(match name {
            "add" => RedOp::Add,
            "min" => RedOp::Min,
            "max" => RedOp::Max,
            "inc" => RedOp::Inc,
            "dec" => RedOp::Dec,
            "and" => RedOp::And,
            "or" => RedOp::Or,
            "xor" => RedOp::Xor,
            _ => return None,
        })
    }

    /// True where the element type has the operation.
    pub const fn allowed(self, elem: TmaType) -> bool {
        match self {
            RedOp::Add => matches!(
                elem,
                TmaType::U32
                    | TmaType::S32
                    | TmaType::U64
                    | TmaType::F32
                    | TmaType::F32Ftz
                    | TmaType::F16
                    | TmaType::Bf16
                    | TmaType::F64
            ),
            RedOp::Min | RedOp::Max => matches!(
                elem,
                TmaType::U32 | TmaType::S32 | TmaType::U64 | TmaType::S64 | TmaType::F16 | TmaType::Bf16
            ),
            RedOp::Inc | RedOp::Dec => matches!(elem, TmaType::U32),
            RedOp::And | RedOp::Or | RedOp::Xor => {
                matches!(elem, TmaType::U32 | TmaType::S32 | TmaType::U64 | TmaType::S64)
            }
        }
    }

    /// New value of a global element `old` under the shared element `new`. Floats round to nearest
    /// even and keep subnormals (`F32Ftz` flushes them); min and max ignore NaN.
    pub fn apply(self, elem: TmaType, old: u64, new: u64) -> u64 {
        if let Some(f) = elem.format() {
            let ftz = elem == TmaType::F32Ftz;
            return match self {
                RedOp::Min | RedOp::Max => {
                    arith::min_max(f, old, new, MinMax { max: self == RedOp::Max, ftz, ..MinMax::default() })
                }
                _ => arith::add(f, old, new, if ftz { RN.ftz() } else { RN }),
            };
        }
        let bits = elem.bits();
        let mask = if bits == 64 { u64::MAX } else { (1 << bits) - 1 };
        let signed = matches!(elem, TmaType::S32 | TmaType::S64);
        let order = |x: u64| if signed { ((x << (64 - bits)) as i64) as i128 } else { i128::from(x & mask) };
        let first = match self {
            RedOp::Add => old.wrapping_add(new),
            RedOp::Min => {
                if order(new) < order(old) {
                    new
                } else {
                    old
                }
            }
            RedOp::Max => {
                if order(new) > order(old) {
                    new
                } else {
                    old
                }
            }
            RedOp::Inc => {
                if old >= new {
                    0
                } else {
                    old + 1
                }
            }
            RedOp::Dec => {
                if old == 0 || old > new {
                    new
                } else {
                    old - 1
                }
            }
            RedOp::And => old & new,
            RedOp::Or => old | new,
            RedOp::Xor => old ^ new,
        };
        first & mask
    }
}
