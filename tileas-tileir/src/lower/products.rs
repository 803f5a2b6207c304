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
    /// A tile without a leading dimension of one element.
    fn matrix(&mut self, op: OpRef<'m>, v: ir::Value) -> Result<ir::Value, Box<Error>> {
        let dims: Shape = self.b.func().value_data(v).dims().unwrap_or(&[]).into();
        match dims.as_slice() {
            [_, _] => Ok(v),
            [1, rest @ ..] if rest.len() == 2 => Ok(self.reshaped(v, rest)),
            _ => Err(op.error(Code::E1643, "a batch of several scaled products is not supported")),
        }
    }

    /// What an operand was before it was transposed.
    fn operand(&mut self, op: OpRef<'m>, v: ir::Value) -> Result<Operand, Box<Error>> {
        let f = self.b.func();
        let made = |f: &ir::Function, v, code| f.defining_op(v).filter(|&d| f.opcode(d) == code);
        let first = |f: &ir::Function, d| f.operands(d).first().copied();
        // A leading dimension of one element may go before or after.
        let plain = made(f, v, Ir::Reshape)
            .and_then(|d| first(f, d))
            .filter(|&x| matches!(f.value_data(x).dims(), Some([1, _, _])) && f.value_data(v).rank() == 2)
            .unwrap_or(v);
        let order: &[i64] = if f.value_data(plain).rank() == 3 { &[0, 2, 1] } else { &[1, 0] };
        let source = made(f, plain, Ir::Permute)
            .filter(|&d| f.attr_ints(d, keys::PERMUTATION).is_some_and(|o| o.as_slice() == order))
            .and_then(|d| first(f, d));
        Ok(match source {
            Some(source) => Operand { value: self.matrix(op, source)?, transposed: true },
            None => Operand { value: self.matrix(op, v)?, transposed: false },
        })
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
        if let &[batch, m, n] = shape.as_slice()
            && batch > 1
        {
            let mut parts: Vec<ir::Value> = Vec::new();
            for i in 0..batch {
                let [x, y, z] = [a, b, acc].map(|v| self.member(v, i));
                let signs = self.signs(op);
                let (x, y) =
                    (Operand { value: x, transposed: false }, Operand { value: y, transposed: false });
                let v = self.multiply(op, x, y, z, elem, signs)?;
                parts.push(self.reshaped(v, &[1, m, n]));
            }
            while parts.len() > 1 {
                let count = shape[0] / parts.len() as u32 * 2;
                let ty = self.b.tile_type(&[count, m, n], elem);
                let pairs: Vec<(ir::Value, ir::Value)> =
                    parts.chunks(2).map(|p| (p[0], p[p.len() - 1])).collect();
                parts = pairs
                    .into_iter()
                    .map(|(x, y)| {
                        self.b
                            .op(Ir::Cat)
                            .operand(x)
                            .operand(y)
                            .int(keys::AXIS, 0)
                            .results(&[ty])
                            .finish_one()
                    })
                    .collect();
            }
            self.set(op, parts[0]);
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
        let sum = if elem.is_float() { Scalar::F32 } else { Scalar::I32 };
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
        let mut operands: SmallVec<[ir::Value; 2]> = SmallVec::new();
        for (seg, scales, k_axis) in [(Seg::Lhs, Seg::LhsScale, 1), (Seg::Rhs, Seg::RhsScale, 0)] {
            let (x, s) = (self.named(op, seg)?, self.named(op, scales)?);
            let (x, s) = (self.matrix(op, x)?, self.matrix(op, s)?);
            operands.push(self.scaled(op, x, s, k_axis)?);
        }
        let acc = self.named(op, Seg::Acc)?;
        let acc = self.matrix(op, acc)?;
        let [a, b] = [operands[0], operands[1]].map(|value| Operand { value, transposed: false });
        let v = self.multiply(op, a, b, acc, elem, [false; 2])?;
        let v = self.reshaped(v, &shape);
        self.set(op, v);
        Ok(())
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
