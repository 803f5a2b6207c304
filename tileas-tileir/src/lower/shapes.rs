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

/// Extents of a type of tiles.
fn extents(shape: &[i64]) -> Shape {
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
            None => return Err(op.error(Code::E1643, "a constant of different elements is not supported")),
        };
        self.known[result] = Known::Value(v);
        Ok(())
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
        for (&index, &n) in op.list(Seg::Index).iter().zip(to) {
            let index = self.scalar(op, index)?;
            let Some(at) = self.known_integer(index) else {
                return Err(op.error(Code::E1643, "a block at an index that is not constant is not supported"));
            };
            offsets.push(at.saturating_mul(i64::from(n)));
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
        Ok(self.b.op(Ir::ExtractSlice).operand(v).ints(keys::OFFSETS, &offsets).results(&[ty]).finish_one())
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
        // In pairs: an element, then what is combined so far.
        for first in [1, 0] {
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
                match known[v] {
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
                let Some(n) = n else { return Err(inner.error(Code::E1627, "the bytes do not fill the type")) };
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
