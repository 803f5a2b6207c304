//! Reductions of register tiles along one axis.
//!
//! In: a `reduce` whose result lies where the threads that took part have it ([`Reduction::result`]). Out: per element of the result a few
//! chains of combinations over the registers of each thread, then over lanes by butterflies, so that all of them have the same bits, then over
//! warps through the agent's memory, in the order of the warps. 16-bit floats are summed in f32 and rounded once, 8- and 16-bit integers in 32 bits and
//! cut.

use super::{Lower, TileVal, Val};
use crate::error::{Code, CodegenResult};
use crate::ir::{Layout, Op, Scalar, Value, keys};
use crate::layout::gf2::{Columns, Span};
use crate::layout::{Axes, LinearMap, Scope};
use crate::nvvm::{Operand, PtxOp, Reg, RegTy};
use crate::storage::scratch::{Reduction, part_bytes, threads};
use smallvec::SmallVec;

/// Combinations in flight: enough to hide the latency of one, few enough to take no registers.
const CHAINS: usize = 4;

/// Where the parts of one value lie that warps have handed round.
pub(super) struct Exchanged {
    from: Reg,
    at: i32,
    /// Bytes from element to element, and from warp to warp.
    step: u32,
    between: u32,
    /// Warps.
    count: u32,
    /// Registers of one load.
    per: u32,
    /// Elements in consecutive registers that lie one behind the other, each warp's.
    pub(super) wide: u32,
    ty: RegTy,
}

/// The form that stores that many registers side by side in shared memory.
pub(super) fn shared_store(ty: RegTy, registers: u32) -> PtxOp {
    match (ty, registers) {
        (RegTy::B64, 2) => PtxOp::StSharedV2B64,
        (RegTy::B64, _) => PtxOp::StSharedB64,
        (RegTy::F32, 4) => PtxOp::StSharedV4F32,
        (RegTy::F32, 2) => PtxOp::StSharedV2F32,
        (RegTy::F32, _) => PtxOp::StSharedF32,
        (_, 4) => PtxOp::StSharedV4B32,
        (_, 2) => PtxOp::StSharedV2B32,
        _ => PtxOp::StSharedB32,
    }
}

/// The form that loads that many registers from side by side in shared memory.
pub(super) fn shared_load(ty: RegTy, registers: u32) -> PtxOp {
    match (ty, registers) {
        (RegTy::B64, 2) => PtxOp::LdSharedV2B64,
        (RegTy::B64, _) => PtxOp::LdSharedB64,
        (RegTy::F32, 4) => PtxOp::LdSharedV4F32,
        (RegTy::F32, 2) => PtxOp::LdSharedV2F32,
        (RegTy::F32, _) => PtxOp::LdSharedF32,
        (_, 4) => PtxOp::LdSharedV4B32,
        (_, 2) => PtxOp::LdSharedV2B32,
        _ => PtxOp::LdSharedB32,
    }
}

/// How many elements, `most` at most, lie one behind the other in consecutive registers of every thread: a power of two.
fn side_by_side(map: &LinearMap, most: u32) -> u32 {
    let mut wide = 1;
    while wide < most
        && map.register().get(wide.trailing_zeros() as usize) == Some(&wide)
        && threads(map).iter().all(|c| c & wide == 0)
        && map.register().iter().skip(wide.trailing_zeros() as usize + 1).all(|c| c & wide == 0)
    {
        wide *= 2;
    }
    wide
}

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
        let axis = f.attr_int(op, keys::AXIS).and_then(|a| usize::try_from(a).ok());
        let (Some(axes), Some(axis)) = (Axes::of(from), axis.filter(|&a| a < from.len())) else {
            return self.unsupported(op, "reduces tiles along one of their axes");
        };
        let sums = matches!(elem, Scalar::F64 | Scalar::F32 | Scalar::F16 | Scalar::BF16)
            || matches!(elem, Scalar::I8 | Scalar::I16 | Scalar::I32 | Scalar::I64);
        if !sums {
            return self.unsupported(op, format!("does not reduce {}", elem.name()));
        }
        let (sl, dl) = (self.linear(op, t.layout, from)?, self.linear(op, layout, dims)?);
        let how = Reduction::along(&sl, &axes, axis);
        if threads(&dl) != threads(&how.result) {
            return self.unsupported(
                op,
                format!("needs data of other threads between layouts {} and {layout}", t.layout),
            );
        }
        // By register of the source the element of the result that it belongs to.
        let sliced = sl.slice(&axes, axis);
        let own = Span::of(sliced.register());
        let elements = self.elements(&t);
        let mut row: Vec<Operand> = Vec::new();
        let mut parts: Vec<Operand> = Vec::new();
        for r in 0..1u32 << dl.register().len() {
            let want = dl.element(r, 0, 0);
            if own.solve(want).is_none() {
                return self.unsupported(op, "combines elements that no register of this thread holds");
            }
            row.clear();
            // Registers that hold copies count once.
            let pivots = sl.replicas().pivots;
            for s in 0..1u32 << sl.register().len() {
                if s & !pivots == 0 && sliced.element(s, 0, 0) == want {
                    // A splat has one element that stands for all.
                    let at = if elements.len() == 1 { 0 } else { s as usize };
                    row.push(self.units[elements.start as usize + at]);
                }
            }
            let part = self.combine_all(op, &mut row, elem)?;
            parts.push(part);
        }
        for lane in (0..5).filter(|l| how.lanes >> l & 1 == 1) {
            for x in &mut parts {
                let other = self.other_lane(*x, elem, 1 << lane);
                *x = self.combine(op, *x, other, elem)?;
            }
        }
        if how.warps != 0 {
            let values = [(elem, parts)];
            let all = self.exchange(op, &values, &dl, &how, dims.iter().product())?;
            let [(_, mut own)] = values;
            for (n, parts) in own.chunks_mut(all[0].wide as usize).enumerate() {
                let rows = self.parts_of(&all[0], dl.element(n as u32 * all[0].wide, 0, 0));
                for (part, mut row) in parts.iter_mut().zip(rows) {
                    *part = self.combine_all(op, &mut row, elem)?;
                }
            }
            parts = own;
        }
        let sums = self.keep(parts);
        let regs = self.collect(sums, elem);
        self.vals[result] = Val::Tile(TileVal { regs, splat: false, ty, elem, held: None, layout });
        Ok(())
    }

    /// Combines some elements: every chain takes each `CHAINS`th; then the chains are combined.
    fn combine_all(&mut self, op: Op, row: &mut Vec<Operand>, elem: Scalar) -> CodegenResult<Operand> {
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
        match row.first() {
            Some(&x) => Ok(x),
            None => self.unsupported(op, "combines elements that no register of this thread holds"),
        }
    }

    /// The type of registers in which elements are combined.
    pub(super) fn part_ty(elem: Scalar) -> RegTy {
        match elem {
            Scalar::I64 | Scalar::F64 => RegTy::B64,
            e if e.is_int() => RegTy::B32,
            _ => RegTy::F32,
        }
    }

    /// What the lane has whose number differs in these bits.
    pub(super) fn other_lane(&mut self, x: Operand, elem: Scalar, by: u32) -> Operand {
        if Self::part_ty(elem) != RegTy::B64 {
            return self.shuffle(Self::part_ty(elem), x, true, Operand::Imm(0), by);
        }
        let x = self.b.as_reg(RegTy::B64, x);
        let halves = self.b.unpack_b64_b32(x);
        let other: SmallVec<[Operand; 2]> =
            halves.iter().map(|h| self.shuffle(RegTy::B32, h.into(), true, Operand::Imm(0), by)).collect();
        let both = self.b.reg(RegTy::B64);
        let list = self.b.list(&other.as_slice());
        self.b.emit(PtxOp::PackB64B32, &[both.into(), list]);
        both.into()
    }

    /// Hands the parts of all warps that hold one of an element round, by value that is reduced and by element of the thread: in the
    /// agent's memory, one value behind the other, as `[warp][element]` where lanes hold different elements, else as `[element][warp]`, of
    /// which each lane reads several at once.
    pub(super) fn exchange(
        &mut self,
        op: Op,
        values: &[(Scalar, Vec<Operand>)],
        dl: &LinearMap,
        how: &Reduction,
        elements: u32,
    ) -> CodegenResult<SmallVec<[Exchanged; 4]>> {
        let count = how.contributors();
        let spread = dl.lane().iter().any(|&c| c != 0);
        let most = values.iter().map(|v| 16 / part_bytes(v.0)).min().unwrap_or(1);
        let wide = if spread { side_by_side(dl, most) } else { 1 };
        let size = |elem: Scalar| how.bytes(elements, part_bytes(elem)).next_multiple_of(16);
        let (base, mut at) = self.scratch(op, values.iter().map(|v| size(v.0)).sum(), Scope::Agent)?;
        let mut out: SmallVec<[Exchanged; 4]> = SmallVec::new();
        // Of lanes and warps that hold the same part one stores it.
        let lanes = dl.lane().iter().enumerate().filter(|(_, c)| **c == 0).fold(0, |m, (k, _)| m | 1 << k);
        let guard = self.copies_guard((lanes, how.copies));
        for (elem, parts) in values {
            let (bytes, ty) = (part_bytes(*elem), Self::part_ty(*elem));
            // Bytes from element to element, and from warp to warp.
            let (step, between) = if spread { (bytes, bytes * elements) } else { (bytes * count, bytes) };
            // The number of a warp among those that hold parts, and where its elements are.
            let mut number = 0;
            let own: Columns = threads(dl)
                .iter()
                .enumerate()
                .map(|(k, &element)| {
                    let mut place = element * step;
                    if k >= 5 && how.warps >> (k - 5) & 1 == 1 {
                        place += between << number;
                        number += 1;
                    }
                    place
                })
                .collect();
            let store_at = self.by_thread(&own);
            let loads: Columns = threads(dl).iter().map(|&element| element * step).collect();
            let load_at = self.by_thread(&loads);
            let address = |this: &mut Self, own: Operand| match own {
                Operand::Imm(n) => (base, at + n as i32),
                x => (this.b.add_u32(base, x), at),
            };
            let (to, to_at) = address(self, store_at);
            let store = shared_store(ty, wide);
            for (n, group) in parts.chunks(wide as usize).enumerate() {
                let offset = dl.element(n as u32 * wide, 0, 0) * step;
                let group: SmallVec<[Operand; 4]> =
                    group.iter().map(|&x| self.b.as_reg(ty, x).into()).collect();
                let x = match group.as_slice() {
                    [one] => *one,
                    several => self.b.list(&several),
                };
                if let Some(p) = guard {
                    self.b.on(p);
                }
                self.b.emit(store, &[Operand::addr(to, to_at + offset as i32), x]);
            }
            let (from, from_at) = address(self, load_at);
            let per = if spread { wide } else { (16 / bytes).min(count) };
            out.push(Exchanged { from, at: from_at, step, between, count, per, wide, ty });
            at += size(*elem) as i32;
        }
        self.agent_barrier(op)?;
        Ok(out)
    }

    /// The parts from all warps of an element and of those beside it (see [`Exchanged::wide`]).
    pub(super) fn parts_of(&mut self, x: &Exchanged, element: u32) -> SmallVec<[Vec<Operand>; 4]> {
        let mut rows: SmallVec<[Vec<Operand>; 4]> = SmallVec::new();
        rows.resize_with(x.wide as usize, || Vec::with_capacity(x.count as usize));
        // Several elements of one warp at once, or several warps of one element.
        let warps = if x.wide > 1 { 1 } else { x.per };
        for first in (0..x.count).step_by(warps as usize) {
            let regs = self.b.regs(x.ty, x.per as usize);
            let form = shared_load(x.ty, x.per);
            let dst = match regs.get(0) {
                Some(one) if x.per == 1 => one.into(),
                _ => self.b.list(&regs),
            };
            let offset = x.at + (element * x.step + first * x.between) as i32;
            self.b.emit(form, &[dst, Operand::addr(x.from, offset)]);
            for (n, reg) in regs.iter().enumerate() {
                rows[n % x.wide as usize].push(Operand::Reg(reg));
            }
        }
        rows
    }

    fn combine(&mut self, op: Op, a: Operand, b: Operand, elem: Scalar) -> CodegenResult<Operand> {
        let unsigned = self.f.has_attr(op, keys::UNSIGNED);
        let mode = self.f.attr_name(op, keys::MODE);
        if elem == Scalar::I64 {
            let a = self.b.as_reg(RegTy::B64, a);
            let x = match (mode, unsigned) {
                (Some("add"), _) => self.b.add_s64(a, b),
                (Some("max"), true) => self.b.max_u64(a, b),
                (Some("max"), false) => self.b.max_s64(a, b),
                (_, true) => self.b.min_u64(a, b),
                (_, false) => self.b.min_s64(a, b),
            };
            return Ok(x.into());
        }
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
        if elem == Scalar::F64 {
            let (a, b) = (self.b.as_reg(RegTy::B64, a), self.b.as_reg(RegTy::B64, b));
            return Ok(match mode {
                Some("add") => self.b.add_rn_f64(a, b).into(),
                Some("max") => self.b.max_f64(a, b).into(),
                _ => self.b.min_f64(a, b).into(),
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
