//! Products of matrices.
//!
//! An operand that is a permuted tile is taken as it was before, with the transposition said of the product. A leading dimension of one
//! element goes. Scaled products are products of the scaled operands in bf16, which holds any number of 8 bits times a power of two.

use super::{Done, Lowering, Shape};
use crate::error::{Code, Error};
use crate::module::OpRef;
use smallvec::SmallVec;
use tileas_codegen::ir;
use tileas_codegen::ir::{Opcode as Ir, Scalar, keys};
use tileas_meta::tileir::{Key, Seg, Signedness};

/// Most products of elements that are computed one by one, each by its own instruction.
const MOST_SINGLE: u64 = 1 << 18;

/// One operand: a matrix, and whether it is stored the other way round.
#[derive(Copy, Clone)]
struct Operand {
    value: ir::Value,
    transposed: bool,
}

impl<'m> Lowering<'m, '_> {
    /// A tile without leading dimensions of one element.
    fn matrix(&mut self, op: OpRef<'m>, v: ir::Value) -> Result<ir::Value, Box<Error>> {
        let dims: Shape = self.b.func().value_data(v).dims().unwrap_or(&[]).into();
        match dims.as_slice() {
            [_, _] => Ok(v),
            [ones @ .., m, n] if ones.iter().all(|&d| d == 1) => Ok(self.reshaped(v, &[*m, *n])),
            _ => Err(op.error(Code::E1643, "a product of matrices is expected")),
        }
    }

    /// What an operand was before it was permuted: dimensions of one element may be anywhere, and may have been added or dropped after.
    fn operand(&mut self, op: OpRef<'m>, v: ir::Value) -> Result<Operand, Box<Error>> {
        match self.before_permuted(v) {
            Some((source, [m, n], transposed)) => {
                Ok(Operand { value: self.reshaped(source, &[m, n]), transposed })
            }
            None => Ok(Operand { value: self.matrix(op, v)?, transposed: false }),
        }
    }

    /// The tile that was permuted into `v`, its matrix, and whether that is the other way round.
    fn before_permuted(&mut self, v: ir::Value) -> Option<(ir::Value, [u32; 2], bool)> {
        let f = self.b.func();
        let made = |v, code| {
            let op = f.defining_op(v).filter(|&op| f.opcode(op) == code)?;
            Some((op, *f.operands(op).first()?))
        };
        let larger = |v| {
            let dims = f.value_data(v).dims().unwrap_or(&[]).iter().enumerate();
            dims.filter(|&(_, &n)| n > 1).map(|(d, _)| d).collect::<SmallVec<[usize; 4]>>()
        };
        let plain = made(v, Ir::Reshape).map_or(v, |(_, from)| from);
        let (permute, source) = made(plain, Ir::Permute)?;
        // Of a vector it could not be told which dimension it is along.
        let dims = |v: ir::Value| f.value_data(v).dims().unwrap_or(&[]);
        let (&[i, j], &[p, q]) = (larger(plain).as_slice(), larger(source).as_slice()) else { return None };
        let &[k, l] = larger(v).as_slice() else { return None };
        if [dims(plain)[i], dims(plain)[j]] != [dims(v)[k], dims(v)[l]] {
            return None;
        }
        let order = f.attr_ints(permute, keys::PERMUTATION)?;
        Some((source, [dims(source)[p], dims(source)[q]], order.get(i)? > order.get(j)?))
    }

    fn converted(&mut self, v: ir::Value, elem: Scalar) -> ir::Value {
        let data = self.b.func().value_data(v);
        if data.elem() == Some(elem) {
            return v;
        }
        let dims: Shape = data.dims().unwrap_or(&[]).into();
        let ty = self.b.tile_type(&dims, elem);
        self.b.op(Ir::Ftof).operand(v).results(&[ty]).finish_one()
    }

    fn transposed(&mut self, x: Operand) -> ir::Value {
        if x.transposed { self.permuted(x.value, &[1, 0]) } else { x.value }
    }

    pub(super) fn product(&mut self, op: OpRef<'m>) -> Done {
        let (a, b) = (self.named(op, Seg::Lhs)?, self.named(op, Seg::Rhs)?);
        let acc = self.named(op, Seg::Acc)?;
        let Some(result) = op.result(0) else { return Ok(()) };
        let (elem, shape) = self.tile_type(op, result)?;
        if let &[batch, _, _] = shape.as_slice()
            && batch > 1
        {
            let mut parts: Vec<ir::Value> = Vec::new();
            for i in 0..batch {
                let [x, y, z] = [a, b, acc].map(|v| self.member(v, i));
                let signs = self.signs(op);
                let (x, y) =
                    (Operand { value: x, transposed: false }, Operand { value: y, transposed: false });
                let v = self.multiply(op, x, y, z, elem, signs)?;
                parts.push(v);
            }
            let v = self.gathered(parts, elem, &shape);
            self.set(op, v);
            return Ok(());
        }
        let (a, b) = (self.operand(op, a)?, self.operand(op, b)?);
        let acc = self.matrix(op, acc)?;
        let signs = self.signs(op);
        let v = self.multiply(op, a, b, acc, elem, signs)?;
        let v = self.reshaped(v, &shape);
        self.set(op, v);
        Ok(())
    }

    /// Whether the operands are unsigned.
    fn signs(&self, op: OpRef<'m>) -> [bool; 2] {
        [Key::SignednessLhs, Key::SignednessRhs]
            .map(|key| op.get::<Signedness>(key) == Some(Signedness::Unsigned))
    }

    /// One matrix of a batch.
    fn member(&mut self, v: ir::Value, i: u32) -> ir::Value {
        let data = self.b.func().value_data(v);
        let (Some(&[_, m, n]), Some(elem)) = (data.dims(), data.elem()) else { return v };
        if let Some(x) = self.splat_of(v) {
            return self.splat(x, &[m, n]);
        }
        let ty = self.b.tile_type(&[1, m, n], elem);
        let made = self.b.op(Ir::ExtractSlice).operand(v).ints(keys::OFFSETS, &[i64::from(i), 0, 0]);
        let v = made.ints(keys::SIZES, &[1, i64::from(m), i64::from(n)]).results(&[ty]).finish_one();
        self.reshaped(v, &[m, n])
    }

    fn multiply(
        &mut self,
        op: OpRef<'m>,
        a: Operand,
        b: Operand,
        acc: ir::Value,
        elem: Scalar,
        unsigned: [bool; 2],
    ) -> Result<ir::Value, Box<Error>> {
        let of = |this: &mut Self, v| -> (Shape, Scalar) {
            let data = this.b.func().value_data(v);
            (data.dims().unwrap_or(&[]).into(), data.elem().unwrap_or(Scalar::F32))
        };
        let ((a_dims, from), (_, _)) = (of(self, a.value), of(self, b.value));
        let (dims, _) = of(self, acc);
        let (&[m, n], k) = (dims.as_slice(), a_dims[usize::from(!a.transposed)]) else {
            return Err(op.error(Code::E1643, "a product of matrices is expected"));
        };
        if from == Scalar::F64 || !is_native(from, k) {
            return self.single_products(op, a, b, acc, [m, n, k], elem, unsigned);
        }
        // Tensor cores of some types want K innermost.
        let only_k = matches!(from, Scalar::TF32) || self.target.starts_with("sm_90") && from.bits() == 8;
        let fixed = |this: &mut Self, x: Operand, want: bool| match only_k && x.transposed != want {
            true => {
                let value = this.b.func().value_data(x.value).dims().map(Shape::from_slice);
                let order = if value.is_some() { [1, 0] } else { [0, 1] };
                Operand { value: this.permuted(x.value, &order), transposed: want }
            }
            false => x,
        };
        let (a, b) = (fixed(self, a, false), fixed(self, b, true));
        // An accumulator of f16 is one here as well, where the operands allow it.
        let narrow = elem == Scalar::F16 && matches!(from, Scalar::F16 | Scalar::E4M3 | Scalar::E5M2);
        let sum = match elem {
            Scalar::F16 if narrow => elem,
            _ if elem.is_float() => Scalar::F32,
            _ => Scalar::I32,
        };
        let acc = self.converted(acc, sum);
        let ty = self.b.func().value_type(acc);
        let mut made = self.b.op(Ir::Dot).operand(a.value).operand(b.value).operand(acc);
        for (key, set) in [
            (keys::TRANSPOSE_A, a.transposed),
            (keys::TRANSPOSE_B, b.transposed),
            (keys::UNSIGNED_A, unsigned[0]),
            (keys::UNSIGNED_B, unsigned[1]),
        ] {
            made = if set { made.unit(key) } else { made };
        }
        let v = made.results(&[ty]).finish_one();
        Ok(self.converted(v, elem))
    }

    /// A product that no tensor core has: every product of two elements by itself, then sums along K.
    #[expect(clippy::too_many_arguments, reason = "what a product has")]
    fn single_products(
        &mut self,
        op: OpRef<'m>,
        a: Operand,
        b: Operand,
        acc: ir::Value,
        [m, n, k]: [u32; 3],
        elem: Scalar,
        unsigned: [bool; 2],
    ) -> Result<ir::Value, Box<Error>> {
        if u64::from(m) * u64::from(n) * u64::from(k) > MOST_SINGLE {
            let text = format!("a product of {m}x{n}x{k} has no instruction here");
            return Err(op.error(Code::E1643, text));
        }
        let sum = match elem {
            Scalar::F64 | Scalar::I32 => elem,
            _ => Scalar::F32,
        };
        let widened = |this: &mut Self, v: ir::Value, unsigned: bool| match sum {
            Scalar::I32 => {
                let dims: Shape = this.b.func().value_data(v).dims().unwrap_or(&[]).into();
                let ty = this.b.tile_type(&dims, sum);
                let made = this.b.op(Ir::Exti).operand(v);
                let made = if unsigned { made.unit(keys::UNSIGNED) } else { made };
                made.results(&[ty]).finish_one()
            }
            _ => this.converted(v, sum),
        };
        // K last, so that sums run along the innermost axis.
        let (a, b) = (self.transposed(a), Operand { transposed: !b.transposed, ..b });
        let b = self.transposed(b);
        let (a, b) = (widened(self, a, unsigned[0]), widened(self, b, unsigned[1]));
        let (a, b) = (self.reshaped(a, &[m, 1, k]), self.reshaped(b, &[1, n, k]));
        let (a, b) = (self.spread(a, &[m, n, k]), self.spread(b, &[m, n, k]));
        let cube = self.b.tile_type(&[m, n, k], sum);
        let (times, plus) = if sum == Scalar::I32 { (Ir::Muli, Ir::Addi) } else { (Ir::Mulf, Ir::Addf) };
        let products = self.b.op(times).operand(a).operand(b).results(&[cube]).finish_one();
        let (mode, ty) = (self.b.func().intern_symbol("add"), self.b.tile_type(&[m, n], sum));
        let sums = self.b.op(Ir::Reduce).operand(products).name(keys::MODE, mode).int(keys::AXIS, 2);
        let sums = sums.results(&[ty]).finish_one();
        let acc = self.converted(acc, sum);
        let v = self.b.op(plus).operand(acc).operand(sums).results(&[ty]).finish_one();
        Ok(self.converted(v, elem))
    }

    pub(super) fn scaled_product(&mut self, op: OpRef<'m>) -> Done {
        let Some(result) = op.result(0) else { return Ok(()) };
        let (elem, shape) = self.tile_type(op, result)?;
        let mut given: SmallVec<[ir::Value; 5]> = SmallVec::new();
        for seg in [Seg::Lhs, Seg::LhsScale, Seg::Rhs, Seg::RhsScale, Seg::Acc] {
            given.push(self.named(op, seg)?);
        }
        let batch = if shape.len() == 3 { shape[0] } else { 1 };
        let mut parts: Vec<ir::Value> = Vec::new();
        for i in 0..batch {
            let mut of: SmallVec<[ir::Value; 5]> = SmallVec::new();
            for &v in &given {
                of.push(if batch > 1 { self.member(v, i) } else { self.matrix(op, v)? });
            }
            let (x, y) = (self.scaled(op, of[0], of[1], 1)?, self.scaled(op, of[2], of[3], 0)?);
            let [a, b] = [x, y].map(|value| Operand { value, transposed: false });
            parts.push(self.multiply(op, a, b, of[4], elem, [false; 2])?);
        }
        let v = self.gathered(parts, elem, &shape);
        self.set(op, v);
        Ok(())
    }

    /// The results of a batch as one tile.
    fn gathered(&mut self, mut parts: Vec<ir::Value>, elem: Scalar, shape: &[u32]) -> ir::Value {
        let &[_, m, n] = shape else { return self.reshaped(parts[0], shape) };
        parts.iter_mut().for_each(|v| *v = self.reshaped(*v, &[1, m, n]));
        let mut count = 1;
        while parts.len() > 1 {
            count *= 2;
            let ty = self.b.tile_type(&[count, m, n], elem);
            let pairs: Vec<(ir::Value, ir::Value)> =
                parts.chunks(2).map(|p| (p[0], p[p.len() - 1])).collect();
            parts.clear();
            for (x, y) in pairs {
                let made = self.b.op(Ir::Cat).operand(x).operand(y).int(keys::AXIS, 0);
                parts.push(made.results(&[ty]).finish_one());
            }
        }
        self.reshaped(parts[0], shape)
    }

    /// A matrix with each block along K times its scale, in bf16.
    fn scaled(
        &mut self,
        op: OpRef<'m>,
        x: ir::Value,
        scale: ir::Value,
        k_axis: usize,
    ) -> Result<ir::Value, Box<Error>> {
        let dims = |this: &mut Self, v| -> Shape { this.b.func().value_data(v).dims().unwrap_or(&[]).into() };
        let (of, blocks) = (dims(self, x), dims(self, scale));
        let block = of[k_axis] / blocks[k_axis].max(1);
        if block == 0 || of[1 - k_axis] != blocks[1 - k_axis] {
            return Err(op.error(Code::E1642, "scales do not fit their operand"));
        }
        let (x, scale) = (self.converted(x, Scalar::BF16), self.converted(scale, Scalar::BF16));
        let (before, after): (Shape, Shape) = match k_axis {
            1 => (
                SmallVec::from_slice(&[blocks[0], blocks[1], 1]),
                SmallVec::from_slice(&[blocks[0], blocks[1], block]),
            ),
            _ => (
                SmallVec::from_slice(&[blocks[0], 1, blocks[1]]),
                SmallVec::from_slice(&[blocks[0], block, blocks[1]]),
            ),
        };
        let scale = self.reshaped(scale, &before);
        let scale = self.spread(scale, &after);
        let scale = self.reshaped(scale, &of);
        let ty = self.b.tile_type(&of, Scalar::BF16);
        Ok(self.b.op(Ir::Mulf).operand(x).operand(scale).results(&[ty]).finish_one())
    }
}

/// Whether there are instructions for products of matrices of that depth; of what extents they are is the compiler's to find.
fn is_native(elem: Scalar, k: u32) -> bool {
    k >= match elem {
        Scalar::F16 | Scalar::BF16 => 8,
        Scalar::TF32 | Scalar::F32 => 4,
        Scalar::I8 => 16,
        _ => 32,
    }
}
