//! Global memory: buffers of elements, and which of them were written.

use crate::Limits;
use crate::error::{Fault, InterpError, InterpResult};
use crate::num;
use crate::tile::{Data, Tile, Val, View, count};
use fixedbitset::FixedBitSet;
use smallvec::SmallVec;
use std::rc::Rc;
use tileas_codegen::ir::{AttrData, Function, Op, Opcode, Scalar, keys};

/// One allocation: little-endian elements of one type. Types below a byte are packed, low bits first.
#[derive(Clone, Debug)]
pub struct Buffer {
    elem: Scalar,
    len: usize,
    bytes: Vec<u8>,
    written: FixedBitSet,
}

impl Buffer {
    /// `len` elements of zeros.
    pub fn new(elem: Scalar, len: usize) -> Buffer {
        let bytes = vec![0; (len * width(elem)).div_ceil(8)];
        Buffer { elem, len, bytes, written: FixedBitSet::with_capacity(len) }
    }

    /// Elements from their bytes.
    pub fn from_bytes(elem: Scalar, bytes: Vec<u8>) -> Buffer {
        let len = bytes.len() * 8 / width(elem);
        Buffer { elem, len, bytes, written: FixedBitSet::with_capacity(len) }
    }

    /// The same memory as bytes, of which those were written that hold a written element.
    pub fn to_bytes(&self) -> Buffer {
        let per_byte = (8 / width(self.elem)).max(1);
        let mut bytes = Buffer::from_bytes(Scalar::I8, self.bytes.clone());
        for i in self.written.ones() {
            bytes.written.insert(i / per_byte);
        }
        bytes
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Element type.
    pub fn elem(&self) -> Scalar {
        self.elem
    }

    /// All bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Element `i` as a number, whatever its type; NaN if there is none.
    pub fn number(&self, i: usize) -> f64 {
        self.float(i).or_else(|| self.int(i).map(|v| v as f64)).unwrap_or(f64::NAN)
    }

    /// Elements that kernels wrote.
    pub fn written(&self) -> &FixedBitSet {
        &self.written
    }

    /// Bits of element `i`, which must exist.
    fn bits(&self, i: usize) -> u64 {
        fn at<const N: usize>(bytes: &[u8], i: usize) -> u64 {
            let mut b = [0; 8];
            b[..N].copy_from_slice(&bytes[i * N..][..N]);
            u64::from_le_bytes(b)
        }
        match width(self.elem) {
            8 => self.bytes[i].into(),
            16 => at::<2>(&self.bytes, i),
            32 => at::<4>(&self.bytes, i),
            64 => at::<8>(&self.bytes, i),
            w => {
                let bit = i * w;
                u64::from(self.bytes[bit / 8] >> (bit % 8)) & ((1 << w) - 1)
            }
        }
    }

    fn set_bits(&mut self, i: usize, bits: u64) {
        let w = width(self.elem);
        if w < 8 {
            let bit = i * w;
            let mask = ((1u8 << w) - 1) << (bit % 8);
            let b = &mut self.bytes[bit / 8];
            *b = *b & !mask | ((bits as u8) << (bit % 8)) & mask;
            return;
        }
        let n = w / 8;
        self.bytes[i * n..(i + 1) * n].copy_from_slice(&bits.to_le_bytes()[..n]);
    }

    /// A float element as a number; `None` outside or for integers.
    pub fn float(&self, i: usize) -> Option<f64> {
        (i < self.len && self.elem.is_float()).then(|| num::decode_float(self.elem, self.bits(i)))
    }

    /// An integer element; `None` outside or for floats.
    pub fn int(&self, i: usize) -> Option<i64> {
        (i < self.len && !self.elem.is_float()).then(|| num::wrap(self.elem, self.bits(i) as i64))
    }

    /// An integer element of whole bytes with all its bits; `None` for others.
    pub fn whole(&self, i: usize) -> Option<i64> {
        self.int(i).filter(|_| self.elem.bits() >= 8)
    }

    /// Sets an element from a number, rounded into the type; not counted as written by a kernel.
    pub fn set(&mut self, i: usize, x: f64) {
        if i < self.len {
            let bits = if self.elem.is_float() {
                num::encode_float(self.elem, num::round(self.elem, x))
            } else {
                x as i64 as u64
            };
            self.set_bits(i, bits);
        }
    }

    fn store(&mut self, i: usize, tile: &Tile, k: usize) {
        let bits = match &tile.data {
            Data::Float(v) => num::encode_float(tile.elem, v[k]),
            Data::Int(v) => v[k] as u64,
        };
        self.set_bits(i, bits);
        self.written.insert(i);
    }
}

/// Beyond every view: extents are below 2^31, and 2^32 elements more do not overflow.
const FAR: i64 = 1 << 62;

/// Bits of an element in memory; truth values take a byte.
fn width(elem: Scalar) -> usize {
    if elem == Scalar::I1 { 8 } else { elem.bits() as usize }
}

/// The name of the variable that an op gives a pointer to.
fn variable(f: &Function, op: Op) -> Option<&str> {
    f.attr_str(op, keys::NAME).filter(|_| f.opcode(op) == Opcode::Global)
}

/// The buffers that a kernel's views point into.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    /// Buffers by number.
    pub buffers: Vec<Buffer>,
    /// Variables of kernels, with their buffers.
    variables: Vec<(String, usize)>,
}

impl Memory {
    /// No buffers.
    pub fn new() -> Memory {
        Memory::default()
    }

    /// Adds a buffer; its number.
    pub fn add(&mut self, buffer: Buffer) -> usize {
        self.buffers.push(buffer);
        self.buffers.len() - 1
    }

    /// Makes the variables of a kernel that are not there yet, in the order of their names.
    ///
    /// # Errors
    /// [`Fault::Limit`]: they have more elements than tiles may have.
    pub(crate) fn declare(&mut self, f: &Function, limits: &Limits) -> InterpResult<()> {
        let mut all: Vec<(&str, Op)> = f.ops().filter_map(|op| Some((variable(f, op)?, op))).collect();
        all.sort_by_key(|v| v.0);
        all.dedup_by_key(|v| v.0);
        let mut room = limits.max_tile_elements;
        for (name, op) in all {
            let (len, elem) = (f.variable_len(op), f.result(op).and_then(|v| f.value_data(v).elem()));
            let (Some(len), Some(elem)) = (len, elem) else { continue };
            if self.variables.iter().any(|v| v.0 == name) {
                continue;
            }
            room = room.checked_sub(len).ok_or_else(|| {
                let message = format!("the variable `{name}` of {len} elements (max_tile_elements)");
                InterpError::at(f, op, Fault::Limit, message)
            })?;
            let mut buffer = Buffer::new(elem, usize::try_from(len).unwrap_or(0));
            if let Some(AttrData::Array(list)) = f.attr(op, keys::VALUES) {
                for (i, &a) in list.iter().enumerate().take(buffer.len) {
                    match *f.attr_data(a) {
                        AttrData::Int(v, _) if !elem.is_float() => buffer.set_bits(i, v as u64),
                        AttrData::Int(v, _) => buffer.set(i, v as f64),
                        AttrData::Float(x, _) => buffer.set(i, x.get()),
                        _ => {}
                    }
                }
            }
            let number = self.add(buffer);
            self.variables.push((name.to_owned(), number));
        }
        Ok(())
    }

    /// The pointer that a `global` gives.
    pub(crate) fn variable(&self, f: &Function, op: Op) -> Option<Val> {
        let name = variable(f, op)?;
        let (_, buffer) = *self.variables.iter().find(|v| v.0 == name)?;
        let elem = self.buffers.get(buffer)?.elem;
        let (sizes, strides) = (SmallVec::new(), SmallVec::new());
        Some(Val::View(Rc::new(View { buffer, offset: 0, sizes, strides, elem })))
    }

    /// Index in the buffer of a view element, of which the last coordinates may be missing; `None` outside the view.
    fn locate(&self, view: &View, at: &[i64]) -> Option<i64> {
        let mut index = i128::from(view.offset);
        for (k, &x) in at.iter().enumerate() {
            if x < 0 || x >= view.sizes[k] {
                return None;
            }
            index = index.saturating_add(i128::from(x) * i128::from(*view.strides.get(k)?));
        }
        // What no buffer has is told by the caller.
        Some(i64::try_from(index).unwrap_or(i64::MAX))
    }

    /// Calls `f` with the tile index and buffer index (or `None` outside the view) of every element of a box whose
    /// first element is `origin`.
    fn visit(
        &self,
        view: &View,
        dims: &[u32],
        origin: &[i64],
        mut f: impl FnMut(usize, Option<usize>),
    ) -> InterpResult<()> {
        let buffer = self.buffers.get(view.buffer).ok_or_else(|| {
            InterpError::new(Fault::Argument, format!("there is no buffer {}", view.buffer))
        })?;
        if dims.len() != view.sizes.len()
            || origin.len() != dims.len()
            || width(view.elem) != width(buffer.elem)
        {
            return Err(InterpError::new(Fault::Argument, "the view does not fit the tile or the buffer"));
        }
        // Far outside is far outside: coordinates must not overflow on the way through the tile.
        let origin: SmallVec<[i64; 4]> = origin.iter().map(|o| o.clamp(&-FAR, &FAR)).copied().collect();
        // Row by row: the other coordinates of a row's elements are looked at once.
        let outer = dims.len().saturating_sub(1);
        let inner = dims.last().map_or(1, |&d| d as usize);
        let first = origin.last().copied().unwrap_or(0);
        let size = view.sizes.last().copied().unwrap_or(1);
        let step = if dims.is_empty() { Some(0) } else { view.strides.get(outer).copied().map(i128::from) };
        let mut at: SmallVec<[i64; 4]> = SmallVec::from_slice(&origin[..outer]);
        for row in 0..count(dims) / inner.max(1) {
            let base = self.locate(view, &at).map(i128::from).zip(step);
            for j in 0..inner {
                let x = first + j as i64;
                let index = match base.filter(|_| (0..size).contains(&x)) {
                    None => None,
                    Some((base, step)) => match usize::try_from(base + i128::from(x) * step) {
                        Ok(index) if index < buffer.len => Some(index),
                        _ => {
                            let index = base + i128::from(x) * step;
                            let message = format!("element {index} of a buffer of {} elements", buffer.len);
                            return Err(InterpError::new(Fault::Value, message));
                        }
                    },
                };
                f(row * inner + j, index);
            }
            for k in (0..outer).rev() {
                at[k] += 1;
                if at[k] < origin[k] + i64::from(dims[k]) {
                    break;
                }
                at[k] = origin[k];
            }
        }
        Ok(())
    }

    /// Reads a box; elements outside the view are `padding`.
    ///
    /// # Errors
    /// [`Fault::Value`] where the view sticks out of its buffer.
    pub fn load(&self, view: &View, dims: &[u32], origin: &[i64], padding: f64) -> InterpResult<Tile> {
        let mut tile = Tile::splat(dims, view.elem, padding);
        let buffer = self.buffers.get(view.buffer);
        self.visit(view, dims, origin, |i, at| {
            let (Some(at), Some(b)) = (at, buffer) else { return };
            match &mut tile.data {
                Data::Float(v) => v[i] = num::decode_float(view.elem, b.bits(at)),
                Data::Int(v) => v[i] = num::wrap(view.elem, b.bits(at) as i64),
            }
        })?;
        Ok(tile)
    }

    /// The element at coordinates, as a tile of one; `None` outside the view.
    ///
    /// # Errors
    /// [`Fault::Value`] where the view sticks out of its buffer.
    pub fn element(&self, view: &View, at: &[i64]) -> InterpResult<Option<Tile>> {
        let ones: SmallVec<[u32; 4]> = at.iter().map(|_| 1).collect();
        Ok(match self.locate(view, at) {
            Some(_) => Some(self.load(view, &ones, at, 0.0)?),
            None => None,
        })
    }

    /// Writes a box; elements outside the view are dropped.
    ///
    /// # Errors
    /// [`Fault::Value`] where the view sticks out of its buffer.
    pub fn store(&mut self, view: &View, origin: &[i64], tile: &Tile) -> InterpResult<()> {
        if tile.elem != view.elem {
            return Err(InterpError::new(Fault::Argument, "the tile's elements are not the view's"));
        }
        let mut list = Vec::with_capacity(count(&tile.dims));
        self.visit(view, &tile.dims, origin, |i, at| {
            if let Some(at) = at {
                list.push((i, at));
            }
        })?;
        if let Some(b) = self.buffers.get_mut(view.buffer) {
            list.iter().for_each(|&(i, at)| b.store(at, tile, i));
        }
        Ok(())
    }
}
