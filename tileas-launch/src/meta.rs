//! What a host must know of a compiled kernel to launch it.
//!
//! Positions: [`ArgMeta`]s are the kernel's parameters as its author wrote them, which is what a caller hands over;
//! [`ParamMeta`]s are those of the PTX entry, in order.

use crate::arg::ArgMeta;
use crate::elem::Elem;
use crate::expr::Expr;

/// One parameter of the entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParamMeta {
    /// Name in the PTX.
    pub name: String,
    /// What is passed.
    pub kind: ParamKind,
}

/// What a parameter of the entry is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParamKind {
    /// A tensor map by value, 128 bytes, aligned to 64: which of [`LaunchMetadata::tensor_maps`].
    TensorMap(u16),
    /// Address of a view's first element.
    Pointer {
        /// The view.
        view: u16,
        /// Alignment in bytes of the memory, where the code counts on one.
        align: u32,
    },
    /// Extent of a view along a dimension.
    Extent {
        /// The view.
        view: u16,
        /// The dimension.
        dim: u8,
        /// Type that is passed.
        elem: Elem,
    },
    /// Stride of a view along a dimension, in elements.
    Stride {
        /// The view.
        view: u16,
        /// The dimension.
        dim: u8,
        /// Type that is passed.
        elem: Elem,
    },
    /// A scalar argument.
    Scalar {
        /// The argument.
        arg: u16,
        /// Type that is passed.
        elem: Elem,
    },
    /// A number that follows from the arguments.
    Value {
        /// Which.
        expr: Expr,
        /// Type that is passed.
        elem: Elem,
    },
}

/// Shuffle of 16-byte pieces within rows of a box in shared memory. Discriminants: `CUtensorMapSwizzle`.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Swizzle {
    /// None.
    None = 0,
    /// In spans of 32 bytes.
    B32 = 1,
    /// In spans of 64 bytes.
    B64 = 2,
    /// In spans of 128 bytes.
    B128 = 3,
}

/// What a load gets for elements outside the tensor. Discriminants: `CUtensorMapFloatOOBfill`.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Oob {
    /// Zero.
    Zero = 0,
    /// NaN.
    Nan = 1,
}

/// How much a miss brings into the L2 cache. Discriminants: `CUtensorMapL2promotion`.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum L2 {
    /// What is asked for.
    None = 0,
    /// 64 bytes.
    B64 = 1,
    /// 128 bytes.
    B128 = 2,
    /// 256 bytes.
    B256 = 3,
}

macro_rules! names {
    ($ty:ident: $($variant:ident $name:literal),*) => {
        impl $ty {
            /// Name in the metadata.
            pub fn name(self) -> &'static str {
                match self { $($ty::$variant => $name),* }
            }

            /// The one of that name.
            pub fn by_name(name: &str) -> Option<$ty> {
                match name { $($name => Some($ty::$variant),)* _ => None }
            }
        }
    };
}
names!(Swizzle: None "none", B32 "b32", B64 "b64", B128 "b128");
names!(Oob: Zero "zero", Nan "nan");
names!(L2: None "none", B64 "b64", B128 "b128", B256 "b256");

/// How to encode one tensor map: the arguments of `cuTensorMapEncodeTiled`, innermost dimension first. Never interleaved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorMapMeta {
    /// The view whose memory it describes.
    pub view: u16,
    /// Element type.
    pub elem: Elem,
    /// Extents in elements.
    pub dims: Vec<Expr>,
    /// Strides in bytes of all dimensions but the innermost.
    pub strides_bytes: Vec<Expr>,
    /// Box extents in elements.
    pub box_dims: Vec<u32>,
    /// Element strides.
    pub element_strides: Vec<u32>,
    /// Swizzle.
    pub swizzle: Swizzle,
    /// Fill of elements out of bounds.
    pub oob: Oob,
    /// L2 promotion.
    pub l2: L2,
}

/// Launch metadata of one kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchMetadata {
    /// Entry name.
    pub kernel: String,
    /// `.target`; empty where it is not known.
    pub target: String,
    /// `.version`; (0, 0) where it is not known.
    pub ptx_version: (u8, u8),
    /// Threads per CTA.
    pub block: [u32; 3],
    /// CTAs per cluster.
    pub cluster: [u32; 3],
    /// Suggested grid.
    pub grid: [Expr; 3],
    /// Whether all of that follows from the kernel. Where it does not, an axis along which CTAs differ has 1, and the host has to state the grid.
    pub grid_follows: bool,
    /// Dynamic shared memory in bytes.
    pub dynamic_smem: u32,
    /// Tensor-memory columns allocated.
    pub tmem_columns: u32,
    /// Named barriers used.
    pub named_barriers: u32,
    /// Registers per thread of each agent, where `setmaxnreg` is used.
    pub setmaxnreg: Option<Vec<u32>>,
    /// The kernel's parameters as written.
    pub args: Vec<ArgMeta>,
    /// The entry's parameters.
    pub params: Vec<ParamMeta>,
    /// Tensor maps.
    pub tensor_maps: Vec<TensorMapMeta>,
    /// What the code relies on: each is not 0.
    pub requires: Vec<Expr>,
}

impl LaunchMetadata {
    /// Position of the argument of that name.
    pub fn arg(&self, name: &str) -> Option<usize> {
        self.args.iter().position(|a| a.name == name)
    }
}
