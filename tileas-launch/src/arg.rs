//! What a launch is given: views, numbers, the device; and what a kernel says of them.

use crate::elem::Elem;
use smallvec::SmallVec;

/// One parameter of the kernel as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArgMeta {
    /// Its name; all differ.
    pub name: String,
    /// What is handed over for it.
    pub kind: ArgKind,
}

/// What an argument is. Documents that were written by hand may leave types open.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum ArgKind {
    /// Memory with extents and strides.
    View {
        /// Type of its elements.
        elem: Option<Elem>,
        /// Number of extents.
        rank: Option<u8>,
        /// Whether the kernel is known to write there.
        written: bool,
    },
    /// A number.
    Scalar {
        /// Its type.
        elem: Option<Elem>,
    },
}

impl ArgKind {
    /// A view of which no more is known.
    pub const VIEW: ArgKind = ArgKind::View { elem: None, rank: None, written: false };
    /// A scalar of which no more is known.
    pub const SCALAR: ArgKind = ArgKind::Scalar { elem: None };

    /// Whether it is memory.
    pub fn is_view(&self) -> bool {
        matches!(self, ArgKind::View { .. })
    }

    /// The type of it, or of its elements, where it is known.
    pub fn elem(&self) -> Option<Elem> {
        match *self {
            ArgKind::View { elem, .. } | ArgKind::Scalar { elem } => elem,
        }
    }

    /// Whether the kernel is known to write there.
    pub fn is_written(&self) -> bool {
        matches!(self, ArgKind::View { written: true, .. })
    }
}

/// Memory on the device as a kernel's argument. Extents and strides count elements, outermost dimension first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// Address of the first element.
    pub address: u64,
    /// Type of the elements; `None`: the caller vouches for it.
    pub elem: Option<Elem>,
    /// Extents.
    pub extents: SmallVec<[i64; 5]>,
    /// Strides.
    pub strides: SmallVec<[i64; 5]>,
    /// Whether no kernel may write there.
    pub read_only: bool,
}

impl View {
    /// A view whose rows follow each other without gaps.
    pub fn dense(address: u64, elem: Elem, extents: &[i64]) -> View {
        let mut strides: SmallVec<[i64; 5]> = SmallVec::from_elem(1, extents.len());
        for d in (1..extents.len()).rev() {
            strides[d - 1] = strides[d].saturating_mul(extents[d].max(1));
        }
        View { address, elem: Some(elem), extents: extents.into(), strides, read_only: false }
    }
}

/// An argument, for a parameter of the kernel as written.
#[derive(Clone, Debug, PartialEq)]
pub enum Arg {
    /// Memory.
    View(View),
    /// An integer.
    Int(i64),
    /// A number with a fraction.
    Float(f64),
}

impl From<View> for Arg {
    fn from(view: View) -> Arg {
        Arg::View(view)
    }
}

macro_rules! from_number {
    ($($ty:ty => $variant:ident),*) => {$(
        impl From<$ty> for Arg {
            fn from(x: $ty) -> Arg {
                Arg::$variant(x.into())
            }
        }
    )*};
}
from_number!(i64 => Int, i32 => Int, u32 => Int, i16 => Int, bool => Int, f64 => Float, f32 => Float);

/// What a launch depends on besides its arguments.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Multiprocessors, for grids with as many CTAs.
    pub sms: u32,
}
