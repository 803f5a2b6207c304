//! Reductions of register tiles.
//!
//! In: a `reduce` along the columns of a matrix whose rows lie in single threads. Out: per row a few
//! chains of additions, maxima or minima over its registers, combined at the end; no thread asks another. 16-bit floats
//! are summed in f32 and rounded once, 16-bit integers in 32 bits and cut. Layouts that spread a row over threads are refused, by name.

use super::{Lower, TileVal, Val};
use crate::error::{Code, CodegenResult};
use crate::ir::{Layout, Op, Scalar, Value, keys};
use crate::nvvm::{Operand, RegTy};

/// Combinations in flight: enough to hide the latency of one, few enough to take no registers.
const CHAINS: usize = 4;

impl Lower<'_> {
    pub(super) fn reduce(
        &mut self,
        op: Op,
        result: Value,
        dims: &[u32],
        elem: Scalar,
        layout: Layout,
    ) -> CodegenResult<()> {
        let f = self.f;
        let Some(&source) = f.operands(op).first() else {
            return self.err(Code::E0803, op, "needs a source");
        };
        let (t, ty) = (self.tile(op, source)?, f.value_type(result));
        let from = self.dims(&t);
        let (&[_, columns], Some(1)) = (from, f.attr_int(op, keys::AXIS)) else {
            return self.unsupported(op, "reduces matrices along their columns");
        };
        if !matches!(elem, Scalar::F32 | Scalar::F16 | Scalar::BF16 | Scalar::I16 | Scalar::I32) {
            return self.unsupported(op, format!("does not reduce {}", elem.name()));
        }
        let (sl, dl) = (self.linear(op, t.layout, from)?, self.linear(op, layout, dims)?);
        let columns = u64::from(columns);
        let ours =
            |d: &[u64], s: &[u64]| d.iter().zip(s).all(|(&d, &s)| s % columns == 0 && s / columns == d);
        if !ours(&dl.lane, &sl.lane) || !ours(&dl.warp, &sl.warp) {
            return self.unsupported(
                op,
                format!("needs data of other threads between layouts {} and {layout}", t.layout),
            );
        }
        let elements = self.elements(&t);
        let mut row: Vec<Operand> = Vec::new();
        let mut sums: Vec<Operand> = Vec::new();
        for r in 0..dl.registers() {
            let want = dl.element(r, 0, 0);
            row.clear();
            for s in (0..sl.registers()).filter(|&s| sl.element(s, 0, 0) / columns == want) {
                // A splat has one element that stands for all.
                let at = if elements.len() == 1 { 0 } else { s as usize };
                row.push(self.units[elements.start as usize + at]);
            }
            if row.is_empty() {
                return self.unsupported(op, "combines elements that no register of this thread holds");
            }
            // Every chain takes each `CHAINS`th element; then the chains are combined.
            for i in CHAINS..row.len() {
                row[i % CHAINS] = self.combine(op, row[i % CHAINS], row[i], elem)?;
            }
            row.truncate(CHAINS);
            while row.len() > 1 {
                let half = row.len() / 2;
                for i in 0..half {
                    row[i] = self.combine(op, row[i], row[row.len() - half + i], elem)?;
                }
                row.truncate(row.len() - half);
            }
            sums.push(row[0]);
        }
        let sums = self.keep(sums);
        let regs = self.collect(sums, elem);
        self.vals[result] = Val::Tile(TileVal { regs, splat: false, ty, elem, held: None, layout });
        Ok(())
    }

    fn combine(&mut self, op: Op, a: Operand, b: Operand, elem: Scalar) -> CodegenResult<Operand> {
        let unsigned = self.f.has_attr(op, keys::UNSIGNED);
        let mode = self.f.attr_name(op, keys::MODE);
        if elem.is_int() {
            if mode == Some("add") {
                return Ok(self.b.fold_add(a, b));
            }
            let a = self.b.as_reg(RegTy::B32, a);
            return Ok(match (mode, unsigned) {
                (Some("max"), true) => self.b.max_u32(a, b).into(),
                (Some("max"), false) => self.b.max_s32(a, b).into(),
                (_, true) => self.b.min_u32(a, b).into(),
                (_, false) => self.b.min_s32(a, b).into(),
            });
        }
        let a = self.b.as_reg(RegTy::F32, a);
        Ok(match mode {
            Some("add") => self.b.add_rn_f32(a, b).into(),
            Some("max") => self.b.max_f32(a, b).into(),
            _ => self.b.min_f32(a, b).into(),
        })
    }
}
