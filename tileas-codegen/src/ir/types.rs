//! Types of the tile IR.

use super::layouts::Layout;
use smallvec::SmallVec;
use std::fmt;

/// A scalar element type.
#[derive(Copy, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
#[expect(missing_docs, reason = "the names are the documentation")]
pub enum Scalar {
    I1,
    I4,
    I8,
    I16,
    I32,
    I64,
    Index,
    F16,
    BF16,
    F32,
    F64,
    E4M3,
    E5M2,
    E2M1,
    UE8M0,
    TF32,
}

impl Scalar {
    /// All scalar types with their names, in the order of the type.
    pub const ALL: &'static [(Scalar, &'static str)] = &[
        (Scalar::I1, "i1"),
        (Scalar::I4, "i4"),
        (Scalar::I8, "i8"),
        (Scalar::I16, "i16"),
        (Scalar::I32, "i32"),
        (Scalar::I64, "i64"),
        (Scalar::Index, "index"),
        (Scalar::F16, "f16"),
        (Scalar::BF16, "bf16"),
        (Scalar::F32, "f32"),
        (Scalar::F64, "f64"),
        (Scalar::E4M3, "e4m3"),
        (Scalar::E5M2, "e5m2"),
        (Scalar::E2M1, "e2m1"),
        (Scalar::UE8M0, "ue8m0"),
        (Scalar::TF32, "tf32"),
    ];

    /// The name in text form.
    pub fn name(self) -> &'static str {
        Scalar::ALL[self as usize].1
    }

    /// The type of that name.
    pub fn from_name(name: &str) -> Option<Scalar> {
        Scalar::ALL.iter().find(|(_, n)| *n == name).map(|(s, _)| *s)
    }

    /// Width in bits; `i1` counts as 8 in memory but 1 here, `index` is 32.
    pub fn bits(self) -> u32 {
        match self {
            Scalar::I1 => 1,
            Scalar::I4 | Scalar::E2M1 => 4,
            Scalar::I8 | Scalar::E4M3 | Scalar::E5M2 | Scalar::UE8M0 => 8,
            Scalar::I16 | Scalar::F16 | Scalar::BF16 => 16,
            Scalar::I32 | Scalar::Index | Scalar::F32 | Scalar::TF32 => 32,
            Scalar::I64 | Scalar::F64 => 64,
        }
    }

    /// Bytes of one element in memory (1 for sub-byte types).
    pub fn bytes(self) -> u32 {
        self.bits().div_ceil(8)
    }

    /// Two elements in a byte of memory, the first in its low bits.
    pub fn is_packed(self) -> bool {
        self.bits() == 4
    }

    /// Whether tiles of such elements can be loaded through TMA as those of `other`, bits as they are: both have whole bytes, as
    /// many, and a tensor-map type.
    pub fn loads_as(self, other: Scalar) -> bool {
        let plain = |s: Scalar| s.bits() >= 8 && s != Scalar::UE8M0;
        self.bits() == other.bits() && plain(self) && plain(other)
    }

    /// Integer or index (including `i1`).
    pub fn is_int(self) -> bool {
        self <= Scalar::Index
    }

    /// Floating point, including the 8-bit and 4-bit formats.
    pub fn is_float(self) -> bool {
        !self.is_int()
    }
}

/// A memory space.
#[derive(Copy, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Space {
    /// Global memory (views and pointers).
    Gmem,
    /// Registers, distributed over the threads of an agent.
    Rmem,
    /// Shared memory.
    Smem,
    /// Tensor memory.
    Tmem,
}

impl Space {
    /// The name in text form.
    pub fn name(self) -> &'static str {
        match self {
            Space::Gmem => "gmem",
            Space::Rmem => "rmem",
            Space::Smem => "smem",
            Space::Tmem => "tmem",
        }
    }

    /// The space of that name.
    pub fn from_name(name: &str) -> Option<Space> {
        [Space::Gmem, Space::Rmem, Space::Smem, Space::Tmem].into_iter().find(|s| s.name() == name)
    }
}

/// An extent: static or known at run time only.
#[derive(Copy, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Dim {
    /// Known extent in elements.
    Static(u32),
    /// `?`.
    Dynamic,
}

/// Most extents of a type.
pub const MAX_RANK: usize = 16;

/// Extents of a tile, outermost first.
pub type Shape = SmallVec<[u32; 4]>;

/// What a [`super::Type`] stands for.
#[derive(PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum TypeData {
    /// A scalar.
    Scalar(Scalar),
    /// A pointer to elements in a space.
    Ptr {
        /// Pointee.
        elem: Scalar,
        /// Where it points.
        space: Space,
    },
    /// A strided view of memory, outermost dimension first; the innermost stride is 1.
    View {
        /// Where the elements live.
        space: Space,
        /// Extents.
        dims: SmallVec<[Dim; 4]>,
        /// Element type.
        elem: Scalar,
    },
    /// A whole tile.
    Tile {
        /// Extents, powers of two.
        dims: Shape,
        /// Element type.
        elem: Scalar,
        /// Where it lives; `None` before placement.
        space: Option<Space>,
        /// How it lies there; `None` before placement.
        layout: Option<Layout>,
    },
    /// A TMA descriptor for boxes of that shape.
    TmaDesc {
        /// Box extents, outermost first.
        dims: Shape,
        /// Element type.
        elem: Scalar,
    },
    /// Orders memory operations.
    MemToken,
    /// Completion of an asynchronous operation.
    AsyncToken,
    /// Producer end of a pipeline with that many slots.
    PipeProducer(u32),
    /// Consumer end of a pipeline with that many slots.
    PipeConsumer(u32),
    /// Slot and phase in a pipeline with that many slots.
    PipeIter(u32),
}

// Types are copied often: shapes as one move of memory.
impl Clone for TypeData {
    fn clone(&self) -> TypeData {
        match *self {
            TypeData::Scalar(s) => TypeData::Scalar(s),
            TypeData::Ptr { elem, space } => TypeData::Ptr { elem, space },
            TypeData::View { space, ref dims, elem } => {
                TypeData::View { space, dims: SmallVec::from_slice(dims), elem }
            }
            TypeData::Tile { ref dims, elem, space, layout } => {
                TypeData::Tile { dims: SmallVec::from_slice(dims), elem, space, layout }
            }
            TypeData::TmaDesc { ref dims, elem } => {
                TypeData::TmaDesc { dims: SmallVec::from_slice(dims), elem }
            }
            TypeData::MemToken => TypeData::MemToken,
            TypeData::AsyncToken => TypeData::AsyncToken,
            TypeData::PipeProducer(n) => TypeData::PipeProducer(n),
            TypeData::PipeConsumer(n) => TypeData::PipeConsumer(n),
            TypeData::PipeIter(n) => TypeData::PipeIter(n),
        }
    }
}

impl TypeData {
    /// A tile type without space and layout.
    pub fn tile(dims: &[u32], elem: Scalar) -> TypeData {
        TypeData::Tile { dims: Shape::from_slice(dims), elem, space: None, layout: None }
    }

    /// Tile extents, or those of a descriptor's box.
    pub fn dims(&self) -> Option<&[u32]> {
        match self {
            TypeData::Tile { dims, .. } | TypeData::TmaDesc { dims, .. } => Some(dims),
            _ => None,
        }
    }

    /// Element type of scalars, pointers, views, tiles and descriptors.
    pub fn elem(&self) -> Option<Scalar> {
        match self {
            TypeData::Scalar(s) => Some(*s),
            TypeData::Ptr { elem, .. }
            | TypeData::View { elem, .. }
            | TypeData::Tile { elem, .. }
            | TypeData::TmaDesc { elem, .. } => Some(*elem),
            _ => None,
        }
    }

    /// Space of a tile, if placed.
    pub fn space(&self) -> Option<Space> {
        match self {
            TypeData::Tile { space, .. } => *space,
            TypeData::View { space, .. } | TypeData::Ptr { space, .. } => Some(*space),
            _ => None,
        }
    }

    /// Layout of a tile, if placed.
    pub fn layout(&self) -> Option<Layout> {
        match self {
            TypeData::Tile { layout, .. } => *layout,
            _ => None,
        }
    }

    /// Number of extents of a tile, box or view.
    pub fn rank(&self) -> usize {
        match self {
            TypeData::View { dims, .. } => dims.len(),
            _ => self.dims().map_or(0, <[u32]>::len),
        }
    }

    /// Number of elements of a tile or box.
    pub fn num_elements(&self) -> Option<u64> {
        self.dims().map(|d| d.iter().fold(1, |n: u64, &x| n.saturating_mul(x.into())))
    }

    /// Bytes of a tile or box in memory.
    pub fn num_bytes(&self) -> Option<u64> {
        Some(self.num_elements()?.saturating_mul(self.elem()?.bits().into()).div_ceil(8))
    }

    /// Bytes of a ring in shared memory, whose leading extent counts slots.
    pub fn ring_bytes(&self) -> Option<u64> {
        let (slots, bytes) = (u64::from(*self.dims()?.first()?), self.num_bytes()?);
        match self.layout() {
            Some(l) if slots > 0 => Some(slots.saturating_mul(l.slot_bytes(bytes / slots))),
            _ => Some(bytes),
        }
    }

    /// Whether this is a tile.
    pub fn is_tile(&self) -> bool {
        matches!(self, TypeData::Tile { .. })
    }

    /// The scalar, if this is one.
    pub fn as_scalar(&self) -> Option<Scalar> {
        match self {
            TypeData::Scalar(s) => Some(*s),
            _ => None,
        }
    }

    /// The same tile in another space and layout.
    pub fn placed(&self, new_space: Space, new_layout: Layout) -> TypeData {
        match self {
            TypeData::Tile { dims, elem, .. } => TypeData::Tile {
                dims: Shape::from_slice(dims),
                elem: *elem,
                space: Some(new_space),
                layout: Some(new_layout),
            },
            other => other.clone(),
        }
    }
}

fn write_dims(f: &mut fmt::Formatter<'_>, dims: &[u32]) -> fmt::Result {
    dims.iter().try_for_each(|d| write!(f, "{d}x"))
}

impl fmt::Display for TypeData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TypeData::Scalar(s) => f.write_str(s.name()),
            TypeData::Ptr { elem, space } => write!(f, "ptr<{}, {}>", elem.name(), space.name()),
            TypeData::View { space, dims, elem } => {
                write!(f, "view<{}, ", space.name())?;
                for d in dims {
                    match d {
                        Dim::Static(n) => write!(f, "{n}x")?,
                        Dim::Dynamic => f.write_str("?x")?,
                    }
                }
                write!(f, "{}>", elem.name())
            }
            TypeData::Tile { dims, elem, space, layout } => {
                f.write_str("tile<")?;
                write_dims(f, dims)?;
                f.write_str(elem.name())?;
                if let Some(s) = space {
                    write!(f, ", {}", s.name())?;
                }
                match layout {
                    Some(Layout::Bits(b)) => {
                        f.write_str(", ")?;
                        super::layouts::write_bits(f, b, dims)?;
                    }
                    Some(l) => write!(f, ", {l}")?,
                    None => {}
                }
                f.write_str(">")
            }
            TypeData::TmaDesc { dims, elem } => {
                f.write_str("tma_desc<")?;
                write_dims(f, dims)?;
                write!(f, "{}>", elem.name())
            }
            TypeData::MemToken => f.write_str("mem_token"),
            TypeData::AsyncToken => f.write_str("async_token"),
            TypeData::PipeProducer(n) => write!(f, "pipe_producer<{n}>"),
            TypeData::PipeConsumer(n) => write!(f, "pipe_consumer<{n}>"),
            TypeData::PipeIter(n) => write!(f, "pipe_iter<{n}>"),
        }
    }
}
