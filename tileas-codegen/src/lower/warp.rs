//! Products by warps: `mma.sync` on register tiles.
//!
//! In: operands and accumulator in the layouts of [`crate::layout::WarpProduct`]. Each warp multiplies the part of the result that its
//! registers hold, blocks of 16 rows and 8 columns, K step by step. Where a tile has fewer rows or columns than a block, lanes and
//! registers hold copies, which are computed alike.
//! Source: PTX ISA, `mma.sync`: fragments.

use super::{Lower, TileVal, Val};
use crate::error::{Code, CodegenResult};
use crate::ir::{Op, Scalar, keys};
use crate::layout::gf2::Span;
use crate::nvvm::{Operand, PtxOp, Reg, RegTy};
use smallvec::SmallVec;

/// One operand of a product: its units by element.
struct Part {
    span: Span,
    units: SmallVec<[Reg; 64]>,
    /// Elements of a unit.
    per_unit: u32,
    columns: u32,
}

impl Part {
    /// The unit with an element of the thread's, counted from the first one.
    fn unit(&self, row: u32, column: u32) -> Option<Reg> {
        let register = self.span.solve(row * self.columns + column)?;
        self.units.get((register / self.per_unit) as usize).copied()
    }
}

impl Lower<'_> {
    /// A tile as units of 32 bits.
    fn part(&mut self, op: Op, name: &str, ty: RegTy) -> CodegenResult<Part> {
        let f = self.f;
        let v = f.named_operand(op, name);
        let Some((v, dims)) = v.and_then(|v| Some((v, f.value_data(v).dims()?))) else {
            return self.err(Code::E0803, op, "an operand is missing");
        };
        let value = self.vals[v];
        let t = self.expand(op, &value)?;
        let map = self.linear(op, t.layout, dims)?;
        let list: SmallVec<[Operand; 64]> = (0..t.regs.len()).map(|i| self.unit(&t, i)).collect();
        let units = list
            .into_iter()
            .map(|x| {
                let r = match ty {
                    RegTy::F32 => self.b.as_reg(RegTy::F32, x),
                    _ => self.b.as_reg(super::control::element_reg(t.elem), x),
                };
                self.as_bits(r, ty)
            })
            .collect();
        let per_unit = (32 / t.elem.bits()).max(1);
        Ok(Part { span: Span::of(map.register()), units, per_unit, columns: dims[1] })
    }

    /// A product.
    pub(super) fn warp_dot(&mut self, op: Op) -> CodegenResult<()> {
        let f = self.f;
        let elem = |name| f.named_operand(op, name).and_then(|v| f.value_data(v).elem());
        let dims = |name| f.named_operand(op, name).and_then(|v| f.value_data(v).dims());
        let (Some(&[m, k]), Some(&[_, n]), Some(result)) = (dims("a"), dims("b"), f.result(op)) else {
            return self.err(Code::E0803, op, "malformed product");
        };
        let (Some(ea), Some(eb), Some(ec)) = (elem("a"), elem("b"), elem("acc")) else {
            return self.err(Code::E0803, op, "malformed product");
        };
        let sum = if ec == Scalar::F32 { RegTy::F32 } else { RegTy::B32 };
        let (a, b) = (self.part(op, "a", RegTy::B32)?, self.part(op, "b", RegTy::B32)?);
        let mut acc = self.part(op, "acc", sum)?;
        // Elements of K that one instruction takes, and how far the second half of them is.
        let (whole, half) = match ea.bits() {
            8 => (32, 16),
            16 => (16, 8),
            _ => (8, 4),
        };
        let step = whole.min(k);
        let form = self.product_form(op, [ea, eb], step)?;
        for row in (0..m).step_by(16) {
            for column in (0..n).step_by(8) {
                // Others belong to other warps.
                if acc.unit(row, column).is_none() {
                    continue;
                }
                let at = [(0, 0), (0, 1), (8, 0), (8, 1)];
                let of = |p: &Part, (r, c): (u32, u32)| {
                    let r = if r < m { r } else { 0 };
                    p.unit(row + r, column + if c < n { c } else { 0 })
                };
                let mut sums: SmallVec<[Reg; 4]> = at.iter().filter_map(|&x| of(&acc, x)).collect();
                for depth in (0..k).step_by(step as usize) {
                    let halves: &[u32] = if step == whole { &[0, 1] } else { &[0] };
                    let (mut left, mut right): (SmallVec<[Operand; 4]>, SmallVec<[Operand; 2]>) =
                        (SmallVec::new(), SmallVec::new());
                    for &h in halves {
                        let depth = depth + h * half;
                        for r in [0, 8] {
                            left.extend(a.unit(row + if r < m { r } else { 0 }, depth).map(Operand::from));
                        }
                        right.extend(b.unit(depth, column).map(Operand::from));
                    }
                    if sums.len() != 4 || left.len() != 2 * halves.len() || right.len() != halves.len() {
                        return self.err(Code::E0803, op, "operands are not in the layouts of the product");
                    }
                    let d = self.b.regs(sum, 4);
                    let before: SmallVec<[Operand; 4]> = sums.iter().map(|&r| r.into()).collect();
                    let (to, left) = (self.b.list(&d), self.b.list(&left.as_slice()));
                    let right = match *right.as_slice() {
                        [one] => one,
                        _ => self.b.list(&right.as_slice()),
                    };
                    let from = self.b.list(&before.as_slice());
                    self.b.emit(form, &[to, left, right, from]);
                    sums = d.iter().collect();
                }
                for (x, &r) in at.iter().zip(&sums) {
                    let register = acc.span.solve(
                        (row + if x.0 < m { x.0 } else { 0 }) * n + column + if x.1 < n { x.1 } else { 0 },
                    );
                    // What is there twice is the same twice.
                    if let Some(unit) = register.and_then(|i| acc.units.get_mut(i as usize)) {
                        *unit = r;
                    }
                }
            }
        }
        let Some(layout) = f.value_data(result).layout() else {
            return self.err(Code::E0803, op, "the result has no layout");
        };
        let ty = f.value_type(result);
        let regs = self.keep(acc.units.into_iter().map(Operand::from));
        self.vals[result] = Val::Tile(TileVal { regs, splat: false, ty, elem: ec, held: None, layout });
        Ok(())
    }

    /// The instruction for operands of these types.
    fn product_form(&self, op: Op, elems: [Scalar; 2], k: u32) -> CodegenResult<PtxOp> {
        let unsigned = [keys::UNSIGNED_A, keys::UNSIGNED_B].map(|key| self.f.has_attr(op, key));
        let name = |n: usize| match elems[n] {
            Scalar::I8 if unsigned[n] => "u8",
            Scalar::I8 => "s8",
            other => other.name(),
        };
        let name = format!("mma_m16n8k{k}_{}_{}", name(0), name(1));
        match PtxOp::from_name(&name) {
            Some(form) => Ok(form),
            None => self.unsupported(op, format!("of {} with K = {k}", elems[0].name())),
        }
    }
}
