//! Tile values and what else an SSA value can stand for.

use crate::num;
use smallvec::SmallVec;
use std::cell::OnceCell;
use std::rc::Rc;
use tileas_codegen::ir::{Scalar, TypeData};

/// Elements of a tile in row-major order.
#[derive(Clone, PartialEq, Debug)]
pub enum Data {
    /// Floats; every number is exact in its format.
    Float(Vec<f64>),
    /// Integers, sign-extended (`i1`: 0 or 1).
    Int(Vec<i64>),
}

/// A tile: extents, outermost first, element type, elements.
#[derive(Clone, PartialEq, Debug)]
pub struct Tile {
    /// Extents.
    pub dims: SmallVec<[u32; 4]>,
    /// Element type.
    pub elem: Scalar,
    /// Elements.
    pub data: Data,
}

/// Number of elements of extents.
pub fn count(dims: &[u32]) -> usize {
    dims.iter().fold(1usize, |n, &d| n.saturating_mul(d as usize))
}

impl Tile {
    /// All elements equal to `number`, rounded into the element type.
    pub fn splat(dims: &[u32], elem: Scalar, number: f64) -> Tile {
        let n = count(dims);
        let data = if elem.is_float() {
            Data::Float(vec![num::round(elem, number); n])
        } else {
            Data::Int(vec![num::wrap(elem, number as i64); n])
        };
        Tile { dims: dims.into(), elem, data }
    }

    /// All elements equal to a scalar value. `None`: the value is not a number.
    pub fn of_scalar(dims: &[u32], elem: Scalar, v: &Val) -> Option<Tile> {
        let n = count(dims);
        let data = match *v {
            Val::Int(i) => Data::Int(vec![i; n]),
            Val::Float(x) => Data::Float(vec![x; n]),
            _ => return None,
        };
        Some(Tile { dims: dims.into(), elem, data })
    }

    /// The first element as a scalar value.
    pub fn scalar(&self) -> Val {
        match &self.data {
            Data::Float(v) => Val::Float(v.first().copied().unwrap_or(0.0)),
            Data::Int(v) => Val::Int(v.first().copied().unwrap_or(0)),
        }
    }

    /// Element `i` as a scalar value.
    pub fn at(&self, i: usize) -> Val {
        match &self.data {
            Data::Float(v) => Val::Float(v[i]),
            Data::Int(v) => Val::Int(v[i]),
        }
    }

    /// Sets element `i`, if the value is of its kind.
    pub fn set(&mut self, i: usize, x: &Val) {
        match (&mut self.data, x) {
            (Data::Float(v), Val::Float(x)) => v[i] = *x,
            (Data::Int(v), Val::Int(x)) => v[i] = *x,
            _ => {}
        }
    }

    /// Elements as numbers.
    pub fn number(&self, i: usize) -> f64 {
        match &self.data {
            Data::Float(v) => v[i],
            Data::Int(v) => v[i] as f64,
        }
    }

    /// The elements in another order: element `i` of the result is element `index(i)` of this tile.
    pub fn gather(&self, dims: &[u32], index: impl Fn(usize) -> usize) -> Tile {
        let n = count(dims);
        let data = match &self.data {
            Data::Float(v) => Data::Float((0..n).map(|i| v[index(i)]).collect()),
            Data::Int(v) => Data::Int((0..n).map(|i| v[index(i)]).collect()),
        };
        Tile { dims: dims.into(), elem: self.elem, data }
    }

    /// The part of extents `dims` at `offsets`. `None`: it does not lie inside.
    pub fn slice(&self, dims: &[u32], offsets: &[i64]) -> Option<Tile> {
        let at = inside(&self.dims, dims, offsets)?;
        let (strides, inner) = (row_major(&self.dims), row_major(dims));
        Some(self.gather(dims, |i| at + relocate(i, &inner, &strides)))
    }

    /// Overwrites the part at `offsets`; calls `touched` with every index written. `false`: it does not fit.
    pub fn insert(&mut self, part: &Tile, offsets: &[i64], mut touched: impl FnMut(usize)) -> bool {
        let Some(at) = inside(&self.dims, &part.dims, offsets) else { return false };
        let (strides, inner) = (row_major(&self.dims), row_major(&part.dims));
        let n = count(&part.dims);
        let index = |i: usize| at + relocate(i, &inner, &strides);
        match (&mut self.data, &part.data) {
            (Data::Float(to), Data::Float(from)) => (0..n).for_each(|i| to[index(i)] = from[i]),
            (Data::Int(to), Data::Int(from)) => (0..n).for_each(|i| to[index(i)] = from[i]),
            _ => return false,
        }
        (0..n).for_each(|i| touched(index(i)));
        true
    }
}

/// Row-major strides.
pub fn row_major(dims: &[u32]) -> SmallVec<[usize; 4]> {
    let mut strides: SmallVec<[usize; 4]> = dims.iter().map(|_| 1).collect();
    for k in (0..dims.len().saturating_sub(1)).rev() {
        strides[k] = strides[k + 1] * dims[k + 1] as usize;
    }
    strides
}

/// Index `i` under strides `from` as an index under strides `to`.
pub fn relocate(mut i: usize, from: &[usize], to: &[usize]) -> usize {
    let mut at = 0;
    for (f, t) in from.iter().zip(to) {
        at += (i / f) * t;
        i %= f;
    }
    at
}

/// Index of the first element of a part; `None` where it sticks out.
fn inside(full: &[u32], part: &[u32], offsets: &[i64]) -> Option<usize> {
    if full.len() != part.len() || (!offsets.is_empty() && offsets.len() != full.len()) {
        return None;
    }
    let strides = row_major(full);
    let mut at = 0;
    for k in 0..full.len() {
        let o = offsets.get(k).copied().unwrap_or(0);
        if o < 0 || o.saturating_add(i64::from(part[k])) > i64::from(full[k]) {
            return None;
        }
        at += o as usize * strides[k];
    }
    Some(at)
}

/// A view of a global buffer. All quantities count elements.
#[derive(Clone, PartialEq, Debug)]
pub struct View {
    /// Which buffer of [`crate::Memory`].
    pub buffer: usize,
    /// First element.
    pub offset: i64,
    /// Extents.
    pub sizes: SmallVec<[i64; 4]>,
    /// Strides.
    pub strides: SmallVec<[i64; 4]>,
    /// Element type.
    pub elem: Scalar,
}

/// What a descriptor captures: a view, a box, what stands outside.
#[derive(Clone, PartialEq, Debug)]
pub struct Desc {
    /// The view.
    pub view: Rc<View>,
    /// Extents of the box.
    pub extents: SmallVec<[u32; 4]>,
    /// Outside the view: NaN instead of 0.
    pub nan: bool,
}

/// What an SSA value stands for while a kernel runs.
#[derive(Clone, PartialEq, Debug)]
pub enum Val {
    /// An integer, sign-extended.
    Int(i64),
    /// A float.
    Float(f64),
    /// A register tile, or any tile of a source kernel.
    Tile(Rc<Tile>),
    /// A product onto registers that may be under way.
    Pending(Rc<OnceCell<Rc<Tile>>>),
    /// A view.
    View(Rc<View>),
    /// A descriptor.
    Desc(Rc<Desc>),
    /// Slot and phase of the next use of a pipeline.
    Iter {
        /// Pipeline number.
        pipe: usize,
        /// Slot.
        slot: u32,
        /// Phase.
        phase: u32,
    },
    /// An end of a pipeline.
    End(usize),
    /// A slot of a pipeline that is held.
    Owned {
        /// Pipeline number.
        pipe: usize,
        /// Slot.
        slot: u32,
    },
    /// A ring buffer in shared or tensor memory.
    Buffer(usize),
    /// A token.
    Token,
}

/// The tile type of a value: extents and element.
pub fn tile_type(t: &TypeData) -> Option<(&[u32], Scalar)> {
    match t {
        TypeData::Tile { dims, elem, .. } | TypeData::TmaDesc { dims, elem } => Some((dims, *elem)),
        _ => None,
    }
}
