//! Constants, tiles in other shapes, reductions and scans.

use super::{Done, Known, Lowering, Shape, elementwise, scalar_of};
use crate::entities::{Constant, Region};
use crate::error::{Code, Error};
use crate::module::OpRef;
use crate::types::Elem;
use cranelift_entity::SecondaryMap;
use smallvec::SmallVec;
use tileas_codegen::ir;
use tileas_codegen::ir::{AttrData, Combiner, FloatBits, FunctionBuilder, Opcode as Ir, Scalar, keys};
use tileas_meta::tileir::{Key, Opcode, Seg};

/// Most elements of a constant that are given one by one.
const MOST_LISTED: usize = 256;

/// Extents of a type of tiles.
pub(super) fn extents(shape: &[i64]) -> Shape {
    shape.iter().map(|&n| u32::try_from(n).unwrap_or(0)).collect()
}

impl<'m> Lowering<'m, '_> {
    pub(super) fn constant_op(&mut self, op: OpRef<'m>) -> Done {
        let Some(result) = op.result(0) else { return Ok(()) };
        let (elem, shape) = self.tile_type(op, result)?;
        let value = op.get::<Constant>(Key::Value);
        let ty = self.func.value_type(result);
        let Some(elements) = value.and_then(|c| self.func.module.elements(ty, c)) else {
            return Err(op.error(Code::E1627, "the bytes do not fill the type"));
        };
        let number = |n: crate::constants::Number| match elem.is_float() {
            true => AttrData::Float(FloatBits::new(n.float()), None),
            false => AttrData::Int(n.signed(), None),
        };
        let alike = elements.splat().or_else(|| {
            let first = elements.get(0)?;
            elements.iter().all(|n| n == first).then_some(first)
        });
        let v = match alike {
            Some(n) => {
                let (n, ty) = (number(n), self.ir_type(elem, &shape));
                let v = self.number(n.clone(), ty);
                if let AttrData::Int(n, _) = n
                    && n != 0
                    && shape.is_empty()
                {
                    self.divisors.insert(v, 1 << n.trailing_zeros().min(62));
                }
                v
            }
            None => {
                let all: Vec<AttrData> = elements.iter().map(number).collect();
                self.listed(op, &all, elem, &shape)?
            }
        };
        self.known[result] = Known::Value(v);
        Ok(())
    }

    /// A constant of different elements: by their numbers, those that are not what most are are chosen one by one.
    fn listed(
        &mut self,
        op: OpRef<'m>,
        all: &[AttrData],
        elem: Scalar,
        shape: &[u32],
    ) -> Result<ir::Value, Box<Error>> {
        if elem == Scalar::TF32 {
            let (v, ty) = (self.listed(op, all, Scalar::F32, shape)?, self.b.tile_type(shape, elem));
            return Ok(self.b.op(Ir::Ftof).operand(v).results(&[ty]).finish_one());
        }
        let n = all.len() as u32;
        let count = |x: &AttrData| all.iter().filter(|y| *y == x).count();
        let common = all.iter().max_by_key(|x| count(x)).cloned().unwrap_or(AttrData::Int(0, None));
        let other = all.len() - count(&common);
        if other > MOST_LISTED {
            let text = format!(
                "a constant of {n} elements, {other} of which are listed, is not supported; {MOST_LISTED} can be"
            );
            return Err(op.error(Code::E1643, text));
        }
        let places = self.b.tile_type(&[n], Scalar::I32);
        let places = self.b.op(Ir::Iota).results(&[places]).finish_one();
        let (ty, truth) = (self.b.tile_type(&[n], elem), self.b.tile_type(&[n], Scalar::I1));
        let mut v = self.number(common.clone(), ty);
        for (i, x) in all.iter().enumerate().filter(|(_, x)| **x != common) {
            let at = self.integer(i as i64, Scalar::I32);
            let at = self.splat(at, &[n]);
            let equal = self.b.func().intern_symbol("eq");
            let here = self.b.op(Ir::Cmpi).operand(places).operand(at).name(keys::PREDICATE, equal);
            let here = here.results(&[truth]).finish_one();
            let x = self.number(x.clone(), ty);
            v = self.b.op(Ir::Select).operand(here).operand(x).operand(v).results(&[ty]).finish_one();
        }
        Ok(self.reshaped(v, shape))
    }

    pub(super) fn iota(&mut self, op: OpRef<'m>) -> Done {
        let Some(result) = op.result(0) else { return Ok(()) };
        let (elem, shape) = self.tile_type(op, result)?;
        // Counted in 32 bits, whatever it is counted for.
        let ty = self.b.tile_type(&shape, Scalar::I32);
        let v = self.b.op(Ir::Iota).results(&[ty]).finish_one();
        let v = self.resized(v, elem);
        self.known[result] = Known::Value(v);
        Ok(())
    }

    /// The same elements in another shape.
    pub(super) fn reshaped(&mut self, v: ir::Value, to: &[u32]) -> ir::Value {
        let data = self.b.func().value_data(v);
        let Some(elem) = data.elem() else { return v };
        if data.is_tile() && data.dims() == Some(to) {
            return v;
        }
        if !data.is_tile() {
            return self.splat(v, to);
        }
        if let Some(x) = self.splat_of(v) {
            return if to.is_empty() { x } else { self.splat(x, to) };
        }
        let ty = self.b.tile_type(to, elem);
        self.b.op(Ir::Reshape).operand(v).results(&[ty]).finish_one()
    }

    pub(super) fn shape_op(&mut self, op: OpRef<'m>) -> Done {
        let Some(result) = op.result(0) else { return Ok(()) };
        let Some((_, shape)) = self.func.ty(result).tile() else { return Ok(()) };
        let to = extents(shape);
        let seg = if op.opcode() == Opcode::Cat { Seg::Lhs } else { Seg::Source };
        let Some(source) = op.operand(seg) else { return Ok(()) };
        if let Known::Pointer(p) = self.known[source].clone() {
            let offset = match p.offset {
                Some(v) if op.opcode() != Opcode::Cat => Some(self.in_shape(op, v, &to)?),
                None if op.opcode() != Opcode::Cat => None,
                _ => return Err(op.error(Code::E1643, "pointers behind each other are not supported")),
            };
            let shape = if to.is_empty() { None } else { Some(to) };
            let offset = match (offset, &shape) {
                (Some(v), None) => Some(self.as_scalar(v)),
                (offset, _) => offset,
            };
            self.known[result] = Known::Pointer(super::pointers::Pointer { offset, shape, ..p });
            return Ok(());
        }
        let v = self.value(op, source)?;
        let v = match op.opcode() {
            Opcode::Cat => {
                let (rhs, axis) = (self.named(op, Seg::Rhs)?, op.get::<u64>(Key::Dim).unwrap_or(0));
                let (elem, _) = self.tile_type(op, result)?;
                let ty = self.b.tile_type(&to, elem);
                let made = self.b.op(Ir::Cat).operand(v).operand(rhs).int(keys::AXIS, axis as i64);
                made.results(&[ty]).finish_one()
            }
            _ => self.in_shape(op, v, &to)?,
        };
        self.known[result] = Known::Value(v);
        Ok(())
    }

    /// A value as a shape op has it.
    fn in_shape(&mut self, op: OpRef<'m>, v: ir::Value, to: &[u32]) -> Result<ir::Value, Box<Error>> {
        Ok(match op.opcode() {
            Opcode::Reshape => self.reshaped(v, to),
            Opcode::Broadcast => {
                let v = self.broadcastable(v, to.len());
                match self.splat_of(v) {
                    Some(x) => self.splat(x, to),
                    None => self.spread(v, to),
                }
            }
            Opcode::Permute => {
                let order: SmallVec<[usize; 4]> =
                    op.ints(Key::Permutation).iter().map(|&d| usize::try_from(d).unwrap_or(0)).collect();
                self.permuted(v, &order)
            }
            Opcode::Extract => self.extracted(op, v, to)?,
            _ => v,
        })
    }

    /// A scalar as a tile of one element.
    fn broadcastable(&mut self, v: ir::Value, rank: usize) -> ir::Value {
        let ones: Shape = SmallVec::from_elem(1, rank);
        let data = self.b.func().value_data(v);
        if data.is_tile() && data.rank() == rank { v } else { self.reshaped(v, &ones) }
    }

    /// The block of a tile at indices that count blocks.
    fn extracted(&mut self, op: OpRef<'m>, v: ir::Value, to: &[u32]) -> Result<ir::Value, Box<Error>> {
        let mut offsets: SmallVec<[i64; 4]> = SmallVec::new();
        let whole = Shape::from_slice(self.b.func().value_data(v).dims().unwrap_or(&[]));
        for ((&index, &n), &extent) in op.list(Seg::Index).iter().zip(to).zip(&whole) {
            let index = self.scalar(op, index)?;
            // What is outside may be anything.
            match self.known_integer(index) {
                Some(at) if (0..i64::from(extent / n.max(1))).contains(&at) => {
                    offsets.push(at * i64::from(n))
                }
                _ => return self.chosen_block(op, v, to),
            }
        }
        let data = self.b.func().value_data(v);
        let Some(elem) = data.elem() else { return Ok(v) };
        if data.dims() == Some(to) {
            return Ok(v);
        }
        if to.is_empty() {
            return Ok(self.reshaped(v, &[]));
        }
        let ty = self.b.tile_type(to, elem);
        Ok({
            let sizes: SmallVec<[i64; 4]> = to.iter().map(|&n| i64::from(n)).collect();
            let made = self.b.op(Ir::ExtractSlice).operand(v).ints(keys::OFFSETS, &offsets);
            made.ints(keys::SIZES, &sizes).results(&[ty]).finish_one()
        })
    }

    /// Which elements of a tile, divided in blocks, belong to the block at indices: a tile of the block's rank doubled, block numbers and
    /// places in the block in turn, with extents of 1 for the latter.
    fn block_mask(
        &mut self,
        op: OpRef<'m>,
        whole: &[u32],
        block: &[u32],
    ) -> Result<(ir::Value, Shape), Box<Error>> {
        let mut split: Shape = SmallVec::new();
        for (&n, &b) in whole.iter().zip(block) {
            split.extend([n / b.max(1), b]);
        }
        let counts: Shape = split.iter().enumerate().map(|(d, &n)| if d % 2 == 0 { n } else { 1 }).collect();
        let truth = self.b.tile_type(&counts, Scalar::I1);
        let mut mask: Option<ir::Value> = None;
        for (d, &index) in op.list(Seg::Index).iter().enumerate() {
            let index = self.scalar(op, index)?;
            let index = self.resized(index, Scalar::I32);
            let n = split[2 * d];
            let ty = self.b.tile_type(&[n], Scalar::I32);
            let numbers = self.b.op(Ir::Iota).results(&[ty]).finish_one();
            let mut ones: Shape = SmallVec::from_elem(1, split.len());
            ones[2 * d] = n;
            let numbers = self.reshaped(numbers, &ones);
            let numbers = self.spread(numbers, &counts);
            let index = self.splat(index, &counts);
            let equal = self.b.func().intern_symbol("eq");
            let here = self.b.op(Ir::Cmpi).operand(numbers).operand(index).name(keys::PREDICATE, equal);
            let here = here.results(&[truth]).finish_one();
            mask = Some(match mask {
                Some(m) => self.b.op(Ir::Andi).operand(m).operand(here).results(&[truth]).finish_one(),
                None => here,
            });
        }
        mask.map(|m| (m, split)).ok_or_else(|| self.silent())
    }

    /// The block at indices that are known when the kernel runs: of all blocks, the one that is there.
    fn chosen_block(&mut self, op: OpRef<'m>, v: ir::Value, to: &[u32]) -> Result<ir::Value, Box<Error>> {
        let data = self.b.func().value_data(v);
        let (Some(elem), whole) = (data.elem(), Shape::from_slice(data.dims().unwrap_or(&[]))) else {
            return Ok(v);
        };
        let (mask, split) = self.block_mask(op, &whole, to)?;
        let blocks = self.reshaped(v, &split);
        let mask = self.spread(mask, &split);
        // Of two, the one that is there.
        let mut made = ir::Function::new("combiner");
        let mut b = FunctionBuilder::new(&mut made);
        let (truth, ty) = (b.scalar_type(Scalar::I1), b.scalar_type(elem));
        let (p, x, q, y) = (b.param(truth), b.param(ty), b.param(truth), b.param(ty));
        let either = b.op(Ir::Ori).operand(p).operand(q).results(&[truth]).finish_one();
        let one = b.op(Ir::Select).operand(p).operand(x).operand(y).results(&[ty]).finish_one();
        b.end_func(&[either, one]);
        let by = AttrData::Combiner(Combiner::new(made));
        let (mut mask, mut blocks, mut dims) = (mask, blocks, split);
        for axis in (0..to.len()).rev().map(|d| 2 * d) {
            dims.remove(axis);
            let types = [self.b.tile_type(&dims, Scalar::I1), self.b.tile_type(&dims, elem)];
            let made = self.b.op(Ir::Combine).operands(&[mask, blocks]).int(keys::AXIS, axis as i64);
            let made = made.attr(keys::BY, by.clone()).results(&types).finish();
            let results = self.b.func().results(made);
            (mask, blocks) = (results[0], results[1]);
        }
        Ok(self.reshaped(blocks, to))
    }

    /// A tile with one of its blocks replaced.
    pub(super) fn insert(&mut self, op: OpRef<'m>) -> Done {
        let (block, into) = (self.named(op, Seg::Source)?, self.named(op, Seg::Destination)?);
        let (block, into) = (self.as_tile(block), self.as_tile(into));
        let dims = |this: &mut Self, v| Shape::from_slice(this.b.func().value_data(v).dims().unwrap_or(&[]));
        let (small, whole) = (dims(self, block), dims(self, into));
        let (mask, split) = self.block_mask(op, &whole, &small)?;
        let ones: Shape = small.iter().flat_map(|&n| [1, n]).collect();
        let block = self.reshaped(block, &ones);
        let block = self.spread(block, &split);
        let mask = self.spread(mask, &split);
        let old = self.reshaped(into, &split);
        let ty = self.b.func().value_type(old);
        let v = self.b.op(Ir::Select).operand(mask).operand(block).operand(old).results(&[ty]).finish_one();
        let v = self.reshaped(v, &whole);
        self.set(op, v);
        Ok(())
    }

    /// Numbers as bytes, or bytes as numbers; a byte of two numbers of 4 bits has the first one in its low bits.
    pub(super) fn bytes(&mut self, op: OpRef<'m>) -> Done {
        let (Some(source), Some(result)) = (op.operand(Seg::Source), op.result(0)) else { return Ok(()) };
        let packs = op.opcode() == Opcode::Pack;
        let num = |v| self.func.ty(v).tile().and_then(|(e, _)| e.num());
        let (Some(num), x) = (num(if packs { source } else { result }), self.value(op, source)?) else {
            return Ok(());
        };
        let n = self.func.ty(result).tile().map_or(1, |(_, s)| s.first().copied().unwrap_or(1)) as u32;
        let x = self.as_tile(x);
        if let Some(elem) = scalar_of(num).filter(|s| s.is_packed()) {
            let v = if packs { self.packed(x, n) } else { self.unpacked(x, n, elem) };
            self.set(op, v);
            return Ok(());
        }
        let bits = match num.bits() {
            8 => Scalar::I8,
            16 => Scalar::I16,
            32 => Scalar::I32,
            64 => Scalar::I64,
            _ => return Err(op.error(Code::E1642, format!("`{}` of {num} is not supported", op.opcode()))),
        };
        let each = bits.bytes();
        let (wide, narrow) = if bits == Scalar::I64 { (Scalar::I64, 64) } else { (Scalar::I32, 32) };
        let _ = narrow;
        let parts = if packs { n / each } else { n };
        let cube = [parts, each];
        let shifts = self.b.tile_type(&[each], Scalar::I32);
        let shifts = self.b.op(Ir::Iota).results(&[shifts]).finish_one();
        let shifts = self.resized(shifts, wide);
        let eight = self.integer(8, wide);
        let eight = self.splat(eight, &[each]);
        let ty = self.b.tile_type(&[each], wide);
        let shifts = self.b.op(Ir::Muli).operand(shifts).operand(eight).results(&[ty]).finish_one();
        let shifts = self.reshaped(shifts, &[1, each]);
        let shifts = self.spread(shifts, &cube);
        let cube_ty = self.b.tile_type(&cube, wide);
        let v = if packs {
            let x = self.as_bits(x, bits);
            let x = self.zero_extended(x, wide);
            let x = self.reshaped(x, &[parts, 1]);
            let x = self.spread(x, &cube);
            let moved = self.b.op(Ir::Shri).operand(x).operand(shifts).unit(keys::UNSIGNED);
            let moved = moved.results(&[cube_ty]).finish_one();
            let low = self.resized(moved, Scalar::I8);
            self.reshaped(low, &[n])
        } else {
            let x = self.reshaped(x, &cube);
            let x = self.zero_extended(x, wide);
            let moved = self.b.op(Ir::Shli).operand(x).operand(shifts).results(&[cube_ty]).finish_one();
            let (add, ty) = (self.b.func().intern_symbol("add"), self.b.tile_type(&[parts], wide));
            let all = self.b.op(Ir::Reduce).operand(moved).name(keys::MODE, add).int(keys::AXIS, 1);
            let all = all.results(&[ty]).finish_one();
            let all = self.resized(all, bits);
            let Some(elem) = scalar_of(num) else { return Ok(()) };
            let ty = self.b.tile_type(&[parts], elem);
            match elem == bits {
                true => all,
                false => self.b.op(Ir::Bitcast).operand(all).results(&[ty]).finish_one(),
            }
        };
        self.set(op, v);
        Ok(())
    }

    /// A tile as integers of the same width.
    fn as_bits(&mut self, x: ir::Value, bits: Scalar) -> ir::Value {
        let data = self.b.func().value_data(x);
        if data.elem() == Some(bits) {
            return x;
        }
        let dims = Shape::from_slice(data.dims().unwrap_or(&[]));
        let ty = self.b.tile_type(&dims, bits);
        self.b.op(Ir::Bitcast).operand(x).results(&[ty]).finish_one()
    }

    fn zero_extended(&mut self, x: ir::Value, to: Scalar) -> ir::Value {
        let data = self.b.func().value_data(x);
        if data.elem() == Some(to) {
            return x;
        }
        let dims = Shape::from_slice(data.dims().unwrap_or(&[]));
        let ty = self.b.tile_type(&dims, to);
        self.b.op(Ir::Exti).operand(x).unit(keys::UNSIGNED).results(&[ty]).finish_one()
    }

    /// Elements of 4 bits as bytes, of which each has two.
    fn packed(&mut self, x: ir::Value, n: u32) -> ir::Value {
        let elem = self.b.func().value_data(x).elem();
        let ty = self.b.tile_type(&[2 * n], Scalar::I4);
        let x = match elem {
            Some(Scalar::I4) => x,
            _ => self.b.op(Ir::Bitcast).operand(x).results(&[ty]).finish_one(),
        };
        let x = self.zero_extended(x, Scalar::I8);
        let x = self.reshaped(x, &[n, 2]);
        let half = self.b.tile_type(&[n, 1], Scalar::I8);
        let [low, high] = [0, 1].map(|at| {
            let part = self.b.op(Ir::ExtractSlice).operand(x);
            let part = part.ints(keys::OFFSETS, &[0, at]).ints(keys::SIZES, &[n.into(), 1]);
            part.results(&[half]).finish_one()
        });
        let (four, ty) = (self.bytes_of(4, n), self.b.tile_type(&[n], Scalar::I8));
        let (low, high) = (self.reshaped(low, &[n]), self.reshaped(high, &[n]));
        let high = self.b.op(Ir::Shli).operand(high).operand(four).results(&[ty]).finish_one();
        self.b.op(Ir::Ori).operand(low).operand(high).results(&[ty]).finish_one()
    }

    /// The elements of 4 bits that bytes hold.
    fn unpacked(&mut self, x: ir::Value, n: u32, elem: Scalar) -> ir::Value {
        let bytes = n / 2;
        let (mask, four, ty) =
            (self.bytes_of(15, bytes), self.bytes_of(4, bytes), self.b.tile_type(&[bytes], Scalar::I8));
        let low = self.b.op(Ir::Andi).operand(x).operand(mask).results(&[ty]).finish_one();
        let high = self.b.op(Ir::Shri).operand(x).operand(four).unit(keys::UNSIGNED);
        let high = high.results(&[ty]).finish_one();
        let (low, high) = (self.reshaped(low, &[bytes, 1]), self.reshaped(high, &[bytes, 1]));
        let pairs = self.b.tile_type(&[bytes, 2], Scalar::I8);
        let both = self.b.op(Ir::Cat).operand(low).operand(high).int(keys::AXIS, 1);
        let both = both.results(&[pairs]).finish_one();
        let all = self.reshaped(both, &[n]);
        let (bits, ty) = (self.b.tile_type(&[n], Scalar::I4), self.b.tile_type(&[n], elem));
        let all = self.b.op(Ir::Trunci).operand(all).results(&[bits]).finish_one();
        match elem {
            Scalar::I4 => all,
            _ => self.b.op(Ir::Bitcast).operand(all).results(&[ty]).finish_one(),
        }
    }

    /// A byte, `n` times.
    fn bytes_of(&mut self, x: i64, n: u32) -> ir::Value {
        let x = self.integer(x, Scalar::I8);
        self.splat(x, &[n])
    }

    // ---- reductions and scans

    pub(super) fn reduction(&mut self, op: OpRef<'m>) -> Done {
        let scan = op.opcode() == Opcode::Scan;
        let axis = op.get::<u64>(Key::Dim).unwrap_or(0) as i64;
        let mut sources: SmallVec<[ir::Value; 2]> = SmallVec::new();
        for &v in op.list(Seg::Tiles) {
            let x = self.value(op, v)?;
            sources.push(self.as_tile(x));
        }
        let mut types: SmallVec<[ir::Type; 2]> = SmallVec::new();
        for result in op.results() {
            let (elem, shape) = self.tile_type(op, result)?;
            types.push(self.b.tile_type(&shape, elem));
        }
        let Some(region) = op.regions().next() else { return Ok(()) };
        if let (false, Some((mode, unsigned)), &[source]) =
            (scan, self.plain_mode(region), sources.as_slice())
        {
            let mode = self.b.func().intern_symbol(mode);
            let made = self.b.op(Ir::Reduce).operand(source).name(keys::MODE, mode).int(keys::AXIS, axis);
            let made = if unsigned { made.unit(keys::UNSIGNED) } else { made };
            let v = made.results(&types).finish_one();
            self.set(op, v);
            return Ok(());
        }
        let by = AttrData::Combiner(self.combiner(op, region)?);
        let code = if scan { Ir::Scan } else { Ir::Combine };
        let made = self.b.op(code).operands(&sources).int(keys::AXIS, axis).attr(keys::BY, by);
        let reverse = scan && op.get::<bool>(Key::Reverse) == Some(true);
        let made = if reverse { made.unit(keys::REVERSE) } else { made };
        let made = made.results(&types).finish();
        let results: SmallVec<[ir::Value; 2]> = self.b.func().results(made).into();
        for (result, v) in op.results().zip(results) {
            self.known[result] = Known::Value(v);
        }
        Ok(())
    }

    /// A constant that stands outside of a function, in it.
    fn outer_constant(
        &mut self,
        b: &mut FunctionBuilder<'_>,
        v: crate::entities::Value,
    ) -> Option<ir::Value> {
        let Known::Value(x) = self.known[v] else { return None };
        let f = self.b.func();
        let op = f.defining_op(x).filter(|&op| f.opcode(op) == Ir::Constant)?;
        let (elem, number) = (f.value_data(x).as_scalar()?, f.attr(op, keys::VALUE)?.clone());
        let ty = b.scalar_type(elem);
        Some(b.op(Ir::Constant).attr(keys::VALUE, number).results(&[ty]).finish_one())
    }

    /// The mode of a reduction by one operation of the two parameters.
    fn plain_mode(&self, region: Region) -> Option<(&'static str, bool)> {
        use tileas_meta::tileir::Signedness;
        let mut ops = self.func.region(region);
        let (op, end) = (ops.next()?, ops.next()?);
        let params: SmallVec<[_; 2]> = self.func.region_params(region).collect();
        let &[x, y] = params.as_slice() else { return None };
        let both = op.operands() == [x, y] || op.operands() == [y, x];
        let ends = end.opcode() == Opcode::Yield && end.operands() == [op.result(0)?];
        if !both || !ends || op.has(Key::PropagateNan) {
            return None;
        }
        let unsigned = op.get::<Signedness>(Key::Signedness) == Some(Signedness::Unsigned);
        match op.opcode() {
            Opcode::Addf | Opcode::Addi => Some(("add", false)),
            Opcode::Maxf => Some(("max", false)),
            Opcode::Minf => Some(("min", false)),
            Opcode::Maxi => Some(("max", unsigned)),
            Opcode::Mini => Some(("min", unsigned)),
            _ => None,
        }
    }

    /// The function of a region of scalars: of each tile what is combined so far, then what comes behind.
    fn combiner(&mut self, op: OpRef<'m>, region: Region) -> Result<Combiner, Box<Error>> {
        let func = self.func;
        let mut made = ir::Function::new("combiner");
        let mut b = FunctionBuilder::new(&mut made);
        let mut known: SecondaryMap<crate::entities::Value, Option<ir::Value>> = SecondaryMap::new();
        let params: SmallVec<[_; 4]> = func.region_params(region).collect();
        let elem_of = |v| match func.ty(v).scalar() {
            Some(Elem::Num(num)) => scalar_of(num),
            _ => None,
        };
        // In pairs: what is combined so far, then an element.
        for first in [0, 1] {
            for &p in params.iter().skip(first).step_by(2) {
                let Some(elem) = elem_of(p) else {
                    return Err(op.error(Code::E1642, "elements of this type are not combined"));
                };
                let ty = b.scalar_type(elem);
                known[p] = Some(b.param(ty));
            }
        }
        for inner in func.region(region) {
            let mut args: SmallVec<[ir::Value; 3]> = SmallVec::new();
            for &v in inner.operands() {
                match known[v].or_else(|| self.outer_constant(&mut b, v)) {
                    Some(x) => args.push(x),
                    None => {
                        let text = "a function that combines elements sees its parameters alone";
                        return Err(inner.error(Code::E1643, text));
                    }
                }
            }
            if inner.opcode() == Opcode::Yield {
                b.end_func(&args);
                break;
            }
            let Some(result) = inner.result(0) else { continue };
            let Some(elem) = elem_of(result) else {
                return Err(inner.error(Code::E1642, "elements of this type are not combined"));
            };
            let ty = b.scalar_type(elem);
            if inner.opcode() == Opcode::Constant {
                let value = inner.get::<Constant>(Key::Value);
                let n = value.and_then(|c| func.module.elements(func.value_type(result), c)?.get(0));
                let Some(n) = n else {
                    return Err(inner.error(Code::E1627, "the bytes do not fill the type"));
                };
                known[result] = Some(match elem.is_float() {
                    true => b.constant(n.float(), ty),
                    false => b.constant(n.signed(), ty),
                });
                continue;
            }
            known[result] = Some(elementwise::emit(&mut b, inner, &args, elem, ty)?);
        }
        Ok(Combiner::new(made))
    }
}
