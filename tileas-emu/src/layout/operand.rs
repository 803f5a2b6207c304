//! Shared-memory operands of wgmma and tcgen05: the 64-bit matrix descriptor and the address of
//! each element under it.
//!
//! In: descriptor bits, the family they belong to, element size, major-ness. Out: [`SmemDesc`] and
//! byte addresses in shared memory (swizzle applied). Sub-byte elements in the padded form count as
//! one byte here.
//! Method: the hardware adds an unswizzled offset to the start address and then applies the XOR of
//! the swizzle mode to the sum, less the base offset; advancing along K adds to the start address.
//! Source: PTX ISA, "Matrix Descriptor Format", "Shared memory descriptor", "Strides", "Canonical
//! Layouts".

use super::swizzle::Swizzle;
use super::{LayoutError, LayoutResult};

/// Whose descriptor it is: field positions and swizzle codes differ.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Hash)]
pub enum Family {
    /// wgmma (sm_90a).
    Wgmma,
    /// tcgen05 (sm_100a).
    Tcgen05,
}

/// Which dimension of the operand is contiguous.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Hash)]
pub enum Major {
    /// K is contiguous (not transposed).
    K,
    /// M or N is contiguous (transposed).
    Mn,
}

/// A decoded matrix descriptor. Bytes everywhere.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Hash)]
pub struct SmemDesc {
    /// Start address, 18 bits, a multiple of 16.
    pub start: u32,
    /// Leading-dimension byte offset.
    pub lbo: u32,
    /// Stride-dimension byte offset.
    pub sbo: u32,
    /// `(pattern start >> 7) & 7`; 0 when the pattern starts on its repeat boundary.
    pub base_offset: u32,
    /// Swizzle mode.
    pub swizzle: Swizzle,
}

/// Bits that hold an address or offset: 18 bits without the low four.
const FIELD: u64 = 0x3FFF;

impl SmemDesc {
    /// Decodes and checks the constant bits.
    pub fn decode(bits: u64, family: Family) -> LayoutResult<Self> {
        let bad = |rule, text: String| {
            Err(LayoutError::new(rule, format!("matrix descriptor {bits:#018x}: {text}")))
        };
        if bits >> 14 & 3 != 0 || bits >> 30 & 3 != 0 {
            return bad("desc.reserved", "bits 14, 15, 30 and 31 must be 0".into());
        }
        let swizzle = match family {
            Family::Wgmma => {
                if bits >> 46 & 7 != 0 || bits >> 52 & 0x3FF != 0 {
                    return bad("desc.reserved", "bits 48:46 and 61:52 must be 0".into());
                }
                match bits >> 62 {
                    0 => Swizzle::None,
                    1 => Swizzle::B128,
                    2 => Swizzle::B64,
                    _ => Swizzle::B32,
                }
            }
            Family::Tcgen05 => {
                if bits >> 46 & 7 != 1 {
                    return bad("desc.version", format!("bits 48:46 are {}, must be 1", bits >> 46 & 7));
                }
                if bits >> 52 & 0x1FF != 0 {
                    return bad("desc.reserved", "bits 60:52 must be 0".into());
                }
                match bits >> 61 {
                    0 => Swizzle::None,
                    1 => Swizzle::B128Atom32,
                    2 => Swizzle::B128,
                    4 => Swizzle::B64,
                    6 => Swizzle::B32,
                    code => return bad("desc.swizzle", format!("swizzle code {code} does not exist")),
                }
            }
        };
        let field = |at: u32| ((bits >> at & FIELD) << 4) as u32;
        Ok(Self {
            start: field(0),
            lbo: field(16),
            sbo: field(32),
            base_offset: (bits >> 49 & 7) as u32,
            swizzle,
        })
    }

    /// The descriptor's bits.
    pub fn encode(&self, family: Family) -> u64 {
        let field = |x: u32, at: u32| (u64::from(x) >> 4 & FIELD) << at;
        let bits = field(self.start, 0)
            | field(self.lbo, 16)
            | field(self.sbo, 32)
            | u64::from(self.base_offset & 7) << 49;
        let code = |order: [Swizzle; 4]| order.iter().position(|&s| s == self.swizzle).unwrap_or(0) as u64;
        match family {
            Family::Wgmma => bits | code([Swizzle::None, Swizzle::B128, Swizzle::B64, Swizzle::B32]) << 62,
            Family::Tcgen05 if self.swizzle == Swizzle::B128Atom32 => bits | 1 << 46 | 1 << 61,
            Family::Tcgen05 => {
                bits | 1 << 46 | code([Swizzle::None, Swizzle::B128, Swizzle::B64, Swizzle::B32]) << 62
            }
        }
    }

    /// The descriptor `bytes` further along, as an `add` on its low field does it: wraps in 14 bits.
    pub fn advance(&self, bytes: u32) -> Self {
        Self { start: self.start.wrapping_add(bytes) & 0x3FFF0, ..*self }
    }
}

/// An operand of one MMA: `mn` rows of `k` elements under a descriptor.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Hash)]
pub struct Operand {
    /// The descriptor.
    pub desc: SmemDesc,
    /// Contiguous dimension.
    pub major: Major,
    /// Bytes of an element: 1, 2 or 4.
    pub elem: u32,
    /// Extent along M or N.
    pub mn: u32,
    /// Extent along K: 32 / `elem`.
    pub k: u32,
}

impl Operand {
    /// Operand with the K extent that every dense kind has: 32 bytes.
    pub fn new(desc: SmemDesc, major: Major, elem: u32, mn: u32) -> Self {
        Self { desc, major, elem, mn, k: 32 / elem }
    }

    /// Unswizzled byte offset from the start address of element (`mn`, `k`).
    pub fn offset(&self, mn: u32, k: u32) -> u32 {
        let d = &self.desc;
        let span = d.swizzle.span();
        let per_chunk = 16 / self.elem;
        match (self.major, span) {
            (Major::K, 0) => mn / 8 * d.sbo + k / per_chunk * d.lbo + mn % 8 * 16 + k % per_chunk * self.elem,
            (Major::K, _) => mn / 8 * d.sbo + mn % 8 * span + k * self.elem,
            (Major::Mn, 0) => {
                mn / per_chunk * d.sbo + k / 8 * d.lbo + k % 8 * 16 + mn % per_chunk * self.elem
            }
            (Major::Mn, _) => {
                // With 32-byte atoms the pattern repeats after four rows, and so do the groups of K.
                let group = if d.swizzle == Swizzle::B128Atom32 { 4 } else { 8 };
                let byte = mn * self.elem;
                byte / span * d.lbo + k / group * d.sbo + k % group * span + byte % span
            }
        }
    }

    /// Byte address in shared memory of element (`mn`, `k`).
    pub fn address(&self, mn: u32, k: u32) -> u32 {
        let linear = self.desc.start + self.offset(mn, k);
        if self.desc.base_offset == 0 {
            return self.desc.swizzle.apply(linear);
        }
        // The pattern starts `base_offset` lines into its repeat: XOR with the shifted line number.
        let shifted = linear.wrapping_sub(self.desc.base_offset << 7);
        linear ^ shifted ^ self.desc.swizzle.apply(shifted)
    }

    /// Checks what the hardware does not: alignment of the start to the pattern, and steps along K
    /// or MN that stay inside a row of the pattern. A violation is a wrong kernel.
    pub fn check(&self) -> LayoutResult<()> {
        let d = &self.desc;
        let span = d.swizzle.span();
        let bad = |rule, text: String| {
            Err(LayoutError::new(rule, format!("matrix descriptor at {:#x}: {text}", d.start)))
        };
        if span == 0 {
            return Ok(());
        }
        let repeat = d.swizzle.repeat().max(8 * span);
        let phase = d.start.wrapping_sub(d.base_offset << 7) % repeat;
        if self.major == Major::K {
            if phase >= span {
                return bad(
                    "desc.pattern",
                    format!(
                        "start is in row {} of the swizzle pattern, base offset {}",
                        phase / span,
                        d.base_offset
                    ),
                );
            }
            if phase % span + self.k * self.elem > span {
                return bad(
                    "desc.k_step",
                    format!(
                        "{} bytes of K from byte {} leave the {span}-byte row",
                        self.k * self.elem,
                        phase % span
                    ),
                );
            }
        } else if !phase.is_multiple_of(span) && phase % span + self.mn * self.elem > span {
            return bad("desc.mn_step", format!("start is inside a {span}-byte row"));
        }
        Ok(())
    }

    /// First and one-past-last byte that the operand touches.
    pub fn extent(&self) -> (u32, u32) {
        let (mut lo, mut hi) = (u32::MAX, 0);
        for mn in 0..self.mn {
            for k in 0..self.k {
                let a = self.address(mn, k);
                (lo, hi) = (lo.min(a), hi.max(a + self.elem));
            }
        }
        (lo, hi)
    }
}
