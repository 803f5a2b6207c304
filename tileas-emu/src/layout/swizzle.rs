//! The XOR patterns of shared memory.
//!
//! In: a byte address as if nothing were swizzled. Out: the byte address in shared memory. The
//! pattern depends on absolute shared addresses, so its base must be aligned to its repeat.
//! Guarantee: each map is its own inverse and keeps 16-byte chunks whole (the flip variant swaps
//! their 8-byte halves).
//! Source: PTX ISA, "Swizzling Modes".

/// Swizzle modes of tensor maps and matrix descriptors.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Hash, Default)]
pub enum Swizzle {
    /// Addresses are kept.
    #[default]
    None,
    /// 32-byte rows: chunk bit 4 by line bit 7.
    B32,
    /// 64-byte rows: chunk bits 5:4 by line bits 8:7.
    B64,
    /// 128-byte rows: chunk bits 6:4 by line bits 9:7.
    B128,
    /// 128-byte rows of 32-byte atoms: bits 6:5 by bits 8:7.
    B128Atom32,
    /// The same, with the 8-byte halves of each 16 bytes swapped in odd lines (tensor maps only).
    B128Atom32Flip8,
    /// 128-byte rows of 64-byte atoms: bit 6 by bit 7 (tensor maps only).
    B128Atom64,
}

impl Swizzle {
    /// Modes in the order of `CUtensorMapSwizzle`.
    pub const DRIVER_ORDER: [Swizzle; 7] = [
        Swizzle::None,
        Swizzle::B32,
        Swizzle::B64,
        Swizzle::B128,
        Swizzle::B128Atom32,
        Swizzle::B128Atom32Flip8,
        Swizzle::B128Atom64,
    ];

    /// Mode of a `CUtensorMapSwizzle` number.
    pub fn from_driver(code: u32) -> Option<Self> {
        Self::DRIVER_ORDER.get(code as usize).copied()
    }

    /// Number in `CUtensorMapSwizzle`.
    pub fn driver_code(self) -> u32 {
        Self::DRIVER_ORDER.iter().position(|&s| s == self).unwrap_or(0) as u32
    }

    /// Mode called `none`, `32B`, `64B`, `128B`, `128B_ATOM_32B`, …
    pub fn by_name(name: &str) -> Option<Self> {
        Self::DRIVER_ORDER.into_iter().find(|s| s.name().eq_ignore_ascii_case(name))
    }

    /// Name as in the driver's enum.
    pub const fn name(self) -> &'static str {
        match self {
            Swizzle::None => "NONE",
            Swizzle::B32 => "32B",
            Swizzle::B64 => "64B",
            Swizzle::B128 => "128B",
            Swizzle::B128Atom32 => "128B_ATOM_32B",
            Swizzle::B128Atom32Flip8 => "128B_ATOM_32B_FLIP_8B",
            Swizzle::B128Atom64 => "128B_ATOM_64B",
        }
    }

    /// Bytes of one row of the pattern; 0 without a pattern.
    pub const fn span(self) -> u32 {
        match self {
            Swizzle::None => 0,
            Swizzle::B32 => 32,
            Swizzle::B64 => 64,
            _ => 128,
        }
    }

    /// Bytes after which the pattern repeats; 1 without a pattern.
    pub const fn repeat(self) -> u32 {
        match self {
            Swizzle::None => 1,
            Swizzle::B32 | Swizzle::B128Atom64 => 256,
            Swizzle::B64 | Swizzle::B128Atom32 | Swizzle::B128Atom32Flip8 => 512,
            Swizzle::B128 => 1024,
        }
    }

    /// Where the byte with unswizzled address `linear` lies.
    pub const fn apply(self, linear: u32) -> u32 {
        match self {
            Swizzle::None => linear,
            Swizzle::B32 => linear ^ (linear >> 3 & 0x10),
            Swizzle::B64 => linear ^ (linear >> 3 & 0x30),
            Swizzle::B128 => linear ^ (linear >> 3 & 0x70),
            Swizzle::B128Atom32 => linear ^ (linear >> 2 & 0x60),
            Swizzle::B128Atom32Flip8 => linear ^ (linear >> 2 & 0x60) ^ (linear >> 4 & 0x08),
            Swizzle::B128Atom64 => linear ^ (linear >> 1 & 0x40),
        }
    }
}
