//! Types: numbers, pointers, tiles, views, functions.
//!
//! Needs nothing but numbers; [`Types`] interns, so that equal types have equal [`Type`]s. What is stored may still break a
//! rule (a tile of extent 3): the verifier says so.

use crate::entities::Type;
use cranelift_entity::PrimaryMap;
use rustc_hash::FxHashMap;
use std::fmt::{self, Write};
use tileas_meta::tileir::{Padding, PointerMode};

macro_rules! numbers {
    ($($(#[$doc:meta])* $name:ident $text:literal $tag:literal $since:literal $bits:literal;)*) => {
        /// A number type.
        #[derive(Copy, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
        pub enum Num { $($(#[$doc])* #[doc = concat!("`", $text, "`")] $name),* }

        impl Num {
            /// All of them.
            pub const ALL: &'static [Num] = &[$(Num::$name),*];

            /// Name in texts.
            pub fn name(self) -> &'static str {
                match self { $(Num::$name => $text),* }
            }

            /// Significant bits.
            pub fn bits(self) -> u32 {
                match self { $(Num::$name => $bits),* }
            }

            /// Number in the type table.
            pub fn tag(self) -> u64 {
                match self { $(Num::$name => $tag),* }
            }

            /// First minor version of 13 that has it.
            pub fn since(self) -> u8 {
                match self { $(Num::$name => $since),* }
            }
        }
    };
}

numbers! {
    I1 "i1" 0 1 1;
    I8 "i8" 1 1 8;
    I16 "i16" 2 1 16;
    I32 "i32" 3 1 32;
    I64 "i64" 4 1 64;
    F16 "f16" 5 1 16;
    Bf16 "bf16" 6 1 16;
    F32 "f32" 7 1 32;
    /// f32 with a significand of 10 bits, stored in 19.
    Tf32 "tf32" 8 1 19;
    F64 "f64" 9 1 64;
    F8E4M3FN "f8E4M3FN" 10 1 8;
    F8E5M2 "f8E5M2" 11 1 8;
    /// A power of two.
    F8E8M0FNU "f8E8M0FNU" 18 2 8;
    F4E2M1FN "f4E2M1FN" 19 3 4;
    /// Storage only.
    I4 "i4" 22 3 4;
    /// Without sign.
    F8E5M3FNU "f8E5M3FNU" 130 4 8;
}

impl Num {
    /// i1 to i64, without i4, which has no arithmetic.
    pub fn is_int(self) -> bool {
        matches!(self, Num::I1 | Num::I8 | Num::I16 | Num::I32 | Num::I64)
    }

    /// Floats, those without arithmetic included.
    pub fn is_float(self) -> bool {
        !self.is_int() && self != Num::I4
    }

    /// Floats with arithmetic.
    pub fn is_arith_float(self) -> bool {
        matches!(self, Num::F16 | Num::Bf16 | Num::F32 | Num::F64)
    }

    /// Bytes of one element in a constant; [`Num::I1`] may be packed instead.
    pub fn constant_bytes(self) -> usize {
        self.bits().div_ceil(8) as usize
    }
}

impl fmt::Display for Num {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a tile is made of.
#[derive(Copy, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Elem {
    /// Numbers.
    Num(Num),
    /// Pointers to global memory.
    Ptr {
        /// What is there.
        pointee: Num,
        /// Whether the address stands for several devices.
        mode: PointerMode,
    },
}

impl Elem {
    /// Its number type, if it is no pointer.
    pub fn num(self) -> Option<Num> {
        if let Elem::Num(num) = self { Some(num) } else { None }
    }

    /// What it points to, if it is a pointer.
    pub fn pointee(self) -> Option<Num> {
        if let Elem::Ptr { pointee, .. } = self { Some(pointee) } else { None }
    }
}

/// An extent or a stride, in elements; `None`: known at run time only.
pub type Dim = Option<i64>;

/// What a type is. References are to types of the same module.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum TypeData {
    /// A number or a pointer. No value has such a type; a scalar is a tile without dimensions.
    Elem(Elem),
    /// Elements of a shape; a scalar if that is empty.
    Tile {
        /// Elements.
        elem: Elem,
        /// Extents.
        shape: Box<[i64]>,
    },
    /// Memory with extents and strides.
    TensorView {
        /// Elements.
        elem: Num,
        /// Extents.
        shape: Box<[Dim]>,
        /// Strides.
        strides: Box<[Dim]>,
        /// What its base addresses.
        mode: PointerMode,
    },
    /// A tensor cut into tiles.
    PartitionView {
        /// Extents of a tile.
        tile: Box<[i32]>,
        /// The tensor view.
        tensor: Type,
        /// For each dimension of the tile that of the tensor.
        map: Box<[i32]>,
        /// Elements outside.
        padding: Option<Padding>,
    },
    /// Tiles at any distance from each other.
    StridedView {
        /// Extents of a tile.
        tile: Box<[i32]>,
        /// Elements from one tile to the next, by dimension.
        steps: Box<[i32]>,
        /// The tensor view.
        tensor: Type,
        /// For each dimension of the tile that of the tensor.
        map: Box<[i32]>,
        /// Elements outside.
        padding: Option<Padding>,
    },
    /// Tiles whose rows stand anywhere.
    GatherScatterView {
        /// Extents of a tile.
        tile: Box<[i32]>,
        /// The tensor view.
        tensor: Type,
        /// The dimension that is indexed element by element.
        sparse: u32,
        /// Elements outside.
        padding: Option<Padding>,
    },
    /// A function.
    Func {
        /// Parameters.
        params: Box<[Type]>,
        /// Results.
        results: Box<[Type]>,
    },
    /// Memory order.
    Token,
}

impl TypeData {
    /// Elements and shape of a tile.
    pub fn tile(&self) -> Option<(Elem, &[i64])> {
        if let TypeData::Tile { elem, shape } = self { Some((*elem, shape)) } else { None }
    }

    /// The element of a tile without dimensions.
    pub fn scalar(&self) -> Option<Elem> {
        self.tile().filter(|(_, shape)| shape.is_empty()).map(|(elem, _)| elem)
    }

    /// Of a view of tiles: extents of a tile, the tensor view, elements outside.
    pub fn view(&self) -> Option<(&[i32], Type, Option<Padding>)> {
        match self {
            TypeData::PartitionView { tile, tensor, padding, .. }
            | TypeData::StridedView { tile, tensor, padding, .. }
            | TypeData::GatherScatterView { tile, tensor, padding, .. } => Some((tile, *tensor, *padding)),
            _ => None,
        }
    }
}

/// The types of a module.
#[derive(Clone, Default, Debug)]
pub struct Types {
    data: PrimaryMap<Type, TypeData>,
    ids: FxHashMap<TypeData, Type>,
}

impl PartialEq for Types {
    fn eq(&self, other: &Self) -> bool {
        self.data == other.data
    }
}

impl Types {
    /// The type of that description.
    pub fn intern(&mut self, data: TypeData) -> Type {
        if let Some(&ty) = self.ids.get(&data) {
            return ty;
        }
        let ty = self.data.push(data.clone());
        self.ids.insert(data, ty);
        ty
    }

    /// The type of that description, if there is one.
    pub fn find(&self, data: &TypeData) -> Option<Type> {
        self.ids.get(data).copied()
    }

    /// What a type is. Of one of another module, a token.
    pub fn get(&self, ty: Type) -> &TypeData {
        self.data.get(ty).unwrap_or(&TypeData::Token)
    }

    /// All types. One that refers to another comes after it.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (Type, &TypeData)> {
        self.data.iter()
    }

    /// The type as text.
    pub fn display(&self, ty: Type) -> impl fmt::Display + '_ {
        Text { types: self, ty, depth: 0 }
    }
}

impl Types {
    /// The type for a message: its begin, if it is long.
    pub(crate) fn brief(&self, ty: Type) -> String {
        let mut brief = Brief(String::new());
        // Fails where it is cut.
        let _ = write!(brief, "{}", self.display(ty));
        brief.0
    }
}

/// A text that ends where it gets long.
struct Brief(String);

impl Write for Brief {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        self.0.push_str(s);
        if self.0.len() < 400 {
            return Ok(());
        }
        self.0.push('…');
        Err(fmt::Error)
    }
}

struct Text<'a> {
    types: &'a Types,
    ty: Type,
    depth: u32,
}

impl fmt::Display for Elem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Elem::Num(num) => num.fmt(f),
            Elem::Ptr { pointee, mode: PointerMode::None } => write!(f, "ptr<{pointee}>"),
            Elem::Ptr { pointee, mode } => write!(f, "ptr<{pointee}, {mode}>"),
        }
    }
}

/// Items with `separator` between them.
pub(crate) fn joined<T>(
    f: &mut fmt::Formatter<'_>,
    items: impl IntoIterator<Item = T>,
    separator: &str,
    mut item: impl FnMut(&mut fmt::Formatter<'_>, T) -> fmt::Result,
) -> fmt::Result {
    for (i, x) in items.into_iter().enumerate() {
        if i > 0 {
            f.write_str(separator)?;
        }
        item(f, x)?;
    }
    Ok(())
}

fn dim(f: &mut fmt::Formatter<'_>, dim: &Dim) -> fmt::Result {
    match dim {
        Some(n) => write!(f, "{n}"),
        None => f.write_str("?"),
    }
}

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = |ty: Type| Text { types: self.types, ty, depth: self.depth + 1 };
        let tail = |f: &mut fmt::Formatter<'_>, padding: &Option<Padding>, tensor: Type| {
            if let Some(padding) = padding {
                write!(f, ", padding_value = {padding}")?;
            }
            write!(f, ", {}", inner(tensor))
        };
        let tiles = |f: &mut fmt::Formatter<'_>, tile: &[i32]| {
            joined(f, tile, "x", |f, n| n.fmt(f))?;
            f.write_str(")")
        };
        let mapped = |f: &mut fmt::Formatter<'_>, map: &[i32]| {
            if map.iter().enumerate().all(|(i, &m)| i as i32 == m) {
                return Ok(());
            }
            f.write_str(", dim_map=[")?;
            joined(f, map, ", ", |f, n| n.fmt(f))?;
            f.write_str("]")
        };
        match self.types.get(self.ty) {
            // A function that takes a view of a tensor view is as deep as files get.
            _ if self.depth > 3 => f.write_str("…"),
            TypeData::Elem(elem) => elem.fmt(f),
            TypeData::Tile { elem, shape } => {
                f.write_str("tile<")?;
                for n in shape {
                    write!(f, "{n}x")?;
                }
                write!(f, "{elem}>")
            }
            TypeData::TensorView { elem, shape, strides, mode } => {
                f.write_str("tensor_view<")?;
                for d in shape {
                    dim(f, d)?;
                    f.write_str("x")?;
                }
                write!(f, "{elem}, strides=[")?;
                joined(f, strides, ",", dim)?;
                f.write_str("]")?;
                if *mode != PointerMode::None {
                    write!(f, ", {mode}")?;
                }
                f.write_str(">")
            }
            TypeData::PartitionView { tile, tensor, map, padding } => {
                f.write_str("partition_view<tile=(")?;
                tiles(f, tile)?;
                tail(f, padding, *tensor)?;
                mapped(f, map)?;
                f.write_str(">")
            }
            TypeData::StridedView { tile, steps, tensor, map, padding } => {
                f.write_str("strided_view<tile=(")?;
                tiles(f, tile)?;
                f.write_str(", traversal_strides=[")?;
                joined(f, steps, ",", |f, n| n.fmt(f))?;
                f.write_str("]")?;
                tail(f, padding, *tensor)?;
                mapped(f, map)?;
                f.write_str(">")
            }
            TypeData::GatherScatterView { tile, tensor, sparse, padding } => {
                f.write_str("gather_scatter_view<tile=(")?;
                tiles(f, tile)?;
                write!(f, ", sparse_dim={sparse}")?;
                tail(f, padding, *tensor)?;
                f.write_str(">")
            }
            TypeData::Func { params, results } => {
                f.write_str("(")?;
                joined(f, params, ", ", |f, &t| inner(t).fmt(f))?;
                f.write_str(") -> (")?;
                joined(f, results, ", ", |f, &t| inner(t).fmt(f))?;
                f.write_str(")")
            }
            TypeData::Token => f.write_str("token"),
        }
    }
}
