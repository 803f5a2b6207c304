//! Tensor maps of tiled mode: description and the checks of `cuTensorMapEncodeTiled`.
//!
//! In: element type, rank, address, dimensions, strides, box. Out: a checked [`TensorMap`].
//! Units: dimensions, box and coordinates in elements, innermost first; strides in bytes, one less
//! than the rank (dimension 0 is contiguous).
//! Interleaved layouts are not modelled.
//! Source: CUDA driver API, `cuTensorMapEncodeTiled`.

use super::swizzle::Swizzle;
use super::{LayoutError, LayoutResult};
use crate::num::format::{BF16, F16, F32, F64, Format, TF32};

/// Element types in the order of `CUtensorMapDataType`.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Hash)]
#[allow(missing_docs)] // The names are those of the driver's enum.
pub enum TmaType {
    U8,
    U16,
    U32,
    S32,
    U64,
    S64,
    F16,
    F32,
    F64,
    Bf16,
    F32Ftz,
    Tf32,
    Tf32Ftz,
    U4Align8,
    U4Align16,
    U6Align16,
}

impl TmaType {
    /// Types by driver number.
    pub const DRIVER_ORDER: [TmaType; 16] = [
        TmaType::U8,
        TmaType::U16,
        TmaType::U32,
        TmaType::S32,
        TmaType::U64,
        TmaType::S64,
        TmaType::F16,
        TmaType::F32,
        TmaType::F64,
        TmaType::Bf16,
        TmaType::F32Ftz,
        TmaType::Tf32,
        TmaType::Tf32Ftz,
        TmaType::U4Align8,
        TmaType::U4Align16,
        TmaType::U6Align16,
    ];

    /// Number in `CUtensorMapDataType`.
    pub fn driver_code(self) -> u32 {
        Self::DRIVER_ORDER.iter().position(|&t| t == self).unwrap_or(0) as u32
    }

    /// Type of a driver number.
    pub fn from_driver(code: u32) -> Option<Self> {
        Self::DRIVER_ORDER.get(code as usize).copied()
    }

    /// Type of an element type name: PTX names, `i8`… as signed, 8-bit floats as bytes.
    pub fn by_name(name: &str) -> Option<Self> {
        Some(match name {
            "u8" | "s8" | "i8" | "i1" | "e4m3" | "e5m2" | "ue8m0" => TmaType::U8,
            "u16" | "s16" | "i16" => TmaType::U16,
            "u32" => TmaType::U32,
            "s32" | "i32" => TmaType::S32,
            "u64" => TmaType::U64,
            "s64" | "i64" => TmaType::S64,
            "f16" => TmaType::F16,
            "f32" => TmaType::F32,
            "f64" => TmaType::F64,
            "bf16" => TmaType::Bf16,
            "f32.ftz" => TmaType::F32Ftz,
            "tf32" => TmaType::Tf32,
            "tf32.ftz" => TmaType::Tf32Ftz,
            "b4x16" => TmaType::U4Align8,
            "b4x16_p64" => TmaType::U4Align16,
            "b6x16_p32" => TmaType::U6Align16,
            _ => return None,
        })
    }

    /// Bits of an element in global memory.
    pub const fn bits(self) -> u32 {
        match self {
            TmaType::U8 => 8,
            TmaType::U16 | TmaType::F16 | TmaType::Bf16 => 16,
            TmaType::U64 | TmaType::S64 | TmaType::F64 => 64,
            TmaType::U4Align8 | TmaType::U4Align16 => 4,
            TmaType::U6Align16 => 6,
            _ => 32,
        }
    }

    /// Bits of an element in shared memory: the padded types take a byte.
    pub const fn smem_bits(self) -> u32 {
        if self.padded() { 8 } else { self.bits() }
    }

    /// True for the 4- and 6-bit types that are padded to 16 bytes per 16 elements.
    pub const fn padded(self) -> bool {
        matches!(self, TmaType::U4Align16 | TmaType::U6Align16)
    }

    /// The floating-point format, if it is one.
    pub const fn format(self) -> Option<&'static Format> {
        Some(match self {
            TmaType::F16 => &F16,
            TmaType::Bf16 => &BF16,
            TmaType::F32 | TmaType::F32Ftz => &F32,
            TmaType::Tf32 | TmaType::Tf32Ftz => &TF32,
            TmaType::F64 => &F64,
            _ => return None,
        })
    }
}

/// What a load puts where the box leaves the tensor.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Hash, Default)]
pub enum OobFill {
    /// Zeros.
    #[default]
    Zero,
    /// A NaN (floating types only): halves of 0x7ff7.
    Nan,
}

/// Largest rank.
pub const MAX_RANK: usize = 5;
/// Most bytes of shared memory that a box may cover.
pub const BOX_LIMIT: u32 = 1 << 18;

/// What a caller of `cuTensorMapEncodeTiled` says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MapDesc {
    /// Element type.
    pub elem: TmaType,
    /// Global address of element 0.
    pub address: u64,
    /// Elements along each dimension, innermost first.
    pub dims: Vec<u64>,
    /// Bytes along dimensions 1 and up.
    pub strides: Vec<u64>,
    /// Box in elements.
    pub box_dims: Vec<u32>,
    /// Element strides; empty means all ones.
    pub element_strides: Vec<u32>,
    /// Swizzle in shared memory.
    pub swizzle: Swizzle,
    /// Fill of elements outside.
    pub oob: OobFill,
}

/// A tensor map. Entries beyond the rank are 1 (0 for strides).
#[derive(Copy, Clone, PartialEq, Eq, Debug, Hash)]
pub struct TensorMap {
    /// Element type.
    pub elem: TmaType,
    /// Dimensions used, 1 to 5.
    pub rank: usize,
    /// Global address of element 0.
    pub address: u64,
    /// Elements along each dimension.
    pub dims: [u64; MAX_RANK],
    /// Bytes from one index to the next; entry 0 is the element size (0 for sub-byte types).
    pub strides: [u64; MAX_RANK],
    /// Box, in elements of the tensor.
    pub box_dims: [u32; MAX_RANK],
    /// Step between the elements taken, 1 to 8.
    pub element_strides: [u32; MAX_RANK],
    /// Swizzle of the box in shared memory.
    pub swizzle: Swizzle,
    /// Fill of elements outside.
    pub oob: OobFill,
}

impl TensorMap {
    /// Makes and checks a map.
    pub fn new(desc: &MapDesc) -> LayoutResult<Self> {
        let MapDesc { elem, address, dims, strides, box_dims, element_strides, swizzle, oob } = desc;
        let (elem, address, swizzle, oob) = (*elem, *address, *swizzle, *oob);
        let rank = dims.len();
        let bad = |rule, text: String| Err(LayoutError::new(rule, text));
        let steps = element_strides.len();
        if !(1..=MAX_RANK).contains(&rank)
            || box_dims.len() != rank
            || strides.len() + 1 != rank
            || steps != 0 && steps != rank
        {
            return bad(
                "map.rank",
                format!(
                    "rank {rank}, {} strides, {} box dimensions, {steps} element strides",
                    strides.len(),
                    box_dims.len()
                ),
            );
        }
        let mut map = Self {
            elem,
            rank,
            address,
            dims: [1; MAX_RANK],
            strides: [0; MAX_RANK],
            box_dims: [1; MAX_RANK],
            element_strides: [1; MAX_RANK],
            swizzle,
            oob,
        };
        map.dims[..rank].copy_from_slice(dims);
        map.strides[0] = u64::from(elem.bits() / 8);
        map.strides[1..rank].copy_from_slice(strides);
        map.box_dims[..rank].copy_from_slice(box_dims);
        map.element_strides[..steps].copy_from_slice(element_strides);
        // Without interleave the hardware has no stride along dimension 0.
        map.element_strides[0] = if map.element_strides[0] == 0 { 0 } else { 1 };
        map.check()?;
        Ok(map)
    }

    fn check(&self) -> LayoutResult<()> {
        let bad = |rule, text: String| Err(LayoutError::new(rule, text));
        let align = if self.elem.padded() { 32 } else { 16 };
        if !self.address.is_multiple_of(align) {
            return bad(
                "map.address",
                format!("global address {:#x} is not a multiple of {align}", self.address),
            );
        }
        for (i, &d) in self.dims[..self.rank].iter().enumerate() {
            if d == 0 || d > 1 << 32 {
                return bad("map.dim", format!("dimension {i} is {d}, must be in 1..2^32"));
            }
        }
        for (i, &s) in self.strides[1..self.rank].iter().enumerate() {
            if s % align != 0 || s >= 1 << 40 {
                return bad(
                    "map.stride",
                    format!("stride {i} is {s}, must be a multiple of {align} below 2^40"),
                );
            }
        }
        for (i, &b) in self.box_dims[..self.rank].iter().enumerate() {
            if b == 0 || b > 256 {
                return bad("map.box", format!("box dimension {i} is {b}, must be in 1..256"));
            }
        }
        for (i, &e) in self.element_strides[..self.rank].iter().enumerate() {
            if e == 0 || e > 8 {
                return bad("map.element_stride", format!("element stride {i} is {e}, must be in 1..8"));
            }
        }
        match self.elem {
            TmaType::U4Align16 | TmaType::U6Align16 => {
                if !self.dims[0].is_multiple_of(128) || self.box_dims[0] != 128 {
                    return bad(
                        "map.packed",
                        format!(
                            "dimension 0 {} must be a multiple of 128, box 0 {} must be 128",
                            self.dims[0], self.box_dims[0]
                        ),
                    );
                }
                if !matches!(self.swizzle, Swizzle::None | Swizzle::B128 | Swizzle::B128Atom32) {
                    return bad("map.packed", format!("swizzle {} with a padded type", self.swizzle.name()));
                }
            }
            TmaType::U4Align8 if !self.dims[0].is_multiple_of(2) => {
                return bad("map.packed", format!("dimension 0 {} must be even", self.dims[0]));
            }
            _ => {}
        }
        let inner = self.inner_bytes();
        if !(self.box_dims[0] * self.elem.smem_bits()).is_multiple_of(128) {
            return bad("map.inner", format!("inner box of {inner} bytes is not a multiple of 16"));
        }
        if self.swizzle != Swizzle::None && inner > self.swizzle.span() {
            return bad(
                "map.inner",
                format!("inner box of {inner} bytes exceeds the swizzle span of {}", self.swizzle.span()),
            );
        }
        let rows: u64 = (1..self.rank).map(|i| u64::from(self.count(i))).product();
        let box_bytes = rows * u64::from(self.pitch());
        if box_bytes > u64::from(BOX_LIMIT) {
            return bad("map.box", format!("a box of {box_bytes} bytes does not fit in shared memory"));
        }
        let span = (1..self.rank).map(|i| u128::from(self.dims[i] - 1) * u128::from(self.strides[i]));
        let end = u128::from(self.address) + span.sum::<u128>() + u128::from(self.dims[0]) * 8;
        if end >> 63 != 0 {
            return bad("map.extent", "the tensor leaves the address space".into());
        }
        let packed = matches!(self.elem, TmaType::U4Align8 | TmaType::U4Align16 | TmaType::U6Align16);
        if self.oob == OobFill::Nan && (self.elem.format().is_none() || packed) {
            return bad("map.oob", format!("NaN fill of {:?}", self.elem));
        }
        Ok(())
    }

    /// Elements taken along dimension `i`: the box over the element stride, rounded up.
    pub fn count(&self, i: usize) -> u32 {
        self.box_dims[i].div_ceil(self.element_strides[i])
    }

    /// Bytes of the innermost box dimension in shared memory.
    pub fn inner_bytes(&self) -> u32 {
        self.box_dims[0] * self.elem.smem_bits() / 8
    }

    /// Rows of the box: the product of all counts but the innermost.
    pub fn rows(&self) -> u32 {
        (1..self.rank).map(|i| self.count(i)).product()
    }

    /// Bytes between rows in shared memory. A swizzled row takes the whole span of the pattern.
    pub fn pitch(&self) -> u32 {
        self.inner_bytes().max(self.swizzle.span())
    }

    /// Bytes that a load counts on its mbarrier: the whole box, whatever is out of bounds.
    pub fn tx_bytes(&self) -> u32 {
        self.inner_bytes() * self.rows()
    }

    /// Bytes of shared memory that the box covers.
    pub fn smem_bytes(&self) -> u32 {
        self.pitch() * self.rows()
    }

    /// Alignment that the shared address of a box needs (128), and the one at which the pattern
    /// starts with the box (its repeat).
    pub fn smem_align(&self) -> (u32, u32) {
        (128, self.swizzle.repeat().max(128))
    }

    /// First and one-past-last byte of global memory that the map can reach.
    pub fn extent(&self) -> (u64, u64) {
        let row = (self.dims[0] * u64::from(self.elem.bits())).div_ceil(8);
        let last: u64 = (1..self.rank).map(|i| (self.dims[i] - 1) * self.strides[i]).sum();
        (self.address, self.address + last + row)
    }
}
