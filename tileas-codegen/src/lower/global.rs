//! Direct loads and stores of register tiles from and to views: vectors of up to 16 bytes, predicated by bounds.
//!
//! Every thread addresses the elements its layout gives it; consecutive registers along the innermost dimension
//! form vectors. A vector is in bounds when its first element is: the launch requirements name the divisibility
//! of the innermost extent that makes this true.

use super::tile::strides;
use super::{Lower, TileVal, Val};
use crate::error::{Code, CodegenResult};
use crate::ir::{Layout, Op, Scalar};
use crate::nvvm::{Operand, PtxOp, Reg, RegTy};
use smallvec::SmallVec;

/// One vector access: first register (element index) and its address and predicate.
struct Access {
    first: usize,
    addr: Operand,
    guard: Option<Reg>,
}

impl Lower<'_> {
    /// Addresses and predicates of all vectors of a tile; `vec` elements each.
    fn accesses(
        &mut self,
        op: Op,
        dims: &[u32],
        elem: Scalar,
        layout: Layout,
        store: bool,
    ) -> CodegenResult<(usize, SmallVec<[Access; 16]>)> {
        let f = self.f;
        let view = f.named_operand(op, "view").and_then(|v| self.abi.view_index(v));
        let Some(view) = view else { return self.err(Code::E0804, op, "the view is not a kernel parameter") };
        let Some(ptr) = self.nv.pointer_reg[view] else {
            return self.err(Code::E0803, op, "view without pointer");
        };
        let coords = f.named_segment(op, "coords");
        let rank = dims.len();
        if coords.len() != rank || self.abi.views[view].dims.len() != rank {
            return self.err(Code::E0803, op, format!("{rank} coordinates, but got {}", coords.len()));
        }
        let l = self.linear(op, layout, dims)?;
        let st = strides(dims);
        let n = l.registers() as usize;
        let elem_bytes = elem.bytes() as usize;
        let inner = *dims.last().unwrap_or(&1) as usize;
        let mut vec = 1;
        while vec * 2 * elem_bytes <= 16
            && vec * 2 <= n
            && vec * 2 <= inner
            && l.register[vec.trailing_zeros() as usize] == vec as u64
        {
            vec *= 2;
        }
        if vec > 1 {
            let name = &self.abi.views[view].name;
            self.requires.push(format!("{name}.d{} % {vec} == 0", rank - 1));
        }
        let thread = self.thread_flat(&l);
        let mut base: SmallVec<[Operand; 4]> = SmallVec::new();
        for d in 0..rank {
            let c = self.scalar(op, coords[d])?;
            let origin = self.b.fold_mul(c, dims[d]);
            let t = if dims[d] == 1 {
                Operand::Imm(0)
            } else {
                let t = self.b.fold_shr(thread, st[d].trailing_zeros());
                if d == 0 { t } else { self.b.fold_and(t, dims[d] - 1) }
            };
            base.push(self.b.fold_add(origin, t));
        }
        let owner = if store { self.owner_guard(&l) } else { None };
        let mut out = SmallVec::new();
        let mut row: Option<(SmallVec<[u64; 4]>, Reg, Option<Reg>)> = None;
        for first in (0..n).step_by(vec) {
            let flat = l.element(first as u32, 0, 0);
            let at: SmallVec<[u64; 4]> = (0..rank).map(|d| flat / st[d] % u64::from(dims[d])).collect();
            let outer: SmallVec<[u64; 4]> = at[..rank - 1].into();
            if row.as_ref().is_none_or(|r| r.0 != outer) {
                let mut guard = owner;
                let mut index: Operand = base[rank - 1];
                let mut addr = None;
                for d in 0..rank - 1 {
                    let g = self.b.fold_add(base[d], outer[d]);
                    let g = self.b.as_reg(RegTy::B32, g);
                    let size = self.nv.size_reg[view][d].unwrap_or(Operand::Imm(0));
                    let p = self.b.setp_lt_u32(g, size);
                    guard = Some(match guard {
                        Some(q) => self.b.and_pred(q, p),
                        None => p,
                    });
                    let s = self.nv.stride_reg[view][d].unwrap_or(Operand::Imm(1));
                    let part = self.b.mul_wide_u32(g, s);
                    let bytes = self.b.shl_b64(part, elem_bytes.trailing_zeros());
                    addr = Some(match addr {
                        None => self.b.add_s64(ptr, bytes),
                        Some(a) => self.b.add_s64(a, bytes),
                    });
                }
                index = match index {
                    Operand::Imm(v) => Operand::Imm(v * elem_bytes as i64),
                    x => {
                        let r = self.b.as_reg(RegTy::B32, x);
                        self.b.mul_wide_u32(r, elem_bytes).into()
                    }
                };
                let row_addr = match index {
                    Operand::Imm(0) => addr.unwrap_or(ptr),
                    x => self.b.add_s64(addr.unwrap_or(ptr), x),
                };
                row = Some((outer, row_addr, guard));
            }
            let Some((_, addr, guard)) = &row else { continue };
            let (addr, guard) = (*addr, *guard);
            let col = at[rank - 1];
            let size = self.nv.size_reg[view][rank - 1].unwrap_or(Operand::Imm(0));
            let g = self.b.fold_add(base[rank - 1], col);
            let g = self.b.as_reg(RegTy::B32, g);
            let p = self.b.setp_lt_u32(g, size);
            let guard = match guard {
                Some(q) => self.b.and_pred(q, p),
                None => p,
            };
            out.push(Access {
                first,
                addr: Operand::addr(addr, (col as usize * elem_bytes) as i32),
                guard: Some(guard),
            });
        }
        Ok((vec, out))
    }

    /// Predicate of the threads that own their elements (replicas do not store).
    fn owner_guard(&mut self, l: &crate::ir::LinearLayout) -> Option<Reg> {
        let mut guard = None;
        let lanes = l.free_lane_mask();
        if lanes != 0
            && let Some(lane) = self.lane
        {
            let m = self.b.and_b32(lane, lanes);
            guard = Some(self.b.setp_eq_u32(m, 0));
        }
        let warps = l.free_warp_mask();
        if warps != 0 {
            let w = self.b.as_reg(RegTy::B32, self.agent.warp);
            let m = self.b.and_b32(w, warps);
            guard = Some(match guard {
                Some(p) => self.b.setp_eq_and_s32(m, 0, p),
                None => self.b.setp_eq_u32(m, 0),
            });
        }
        guard
    }

    pub(super) fn tiled_load(&mut self, op: Op) -> CodegenResult<()> {
        let f = self.f;
        let Some(result) = f.result(op) else { return self.err(Code::E0803, op, "load without result") };
        let data = f.value_data(result);
        let (Some(dims), Some(elem), Some(layout)) = (data.dims(), data.elem(), data.layout()) else {
            return self.err(Code::E0803, op, "the result is not a placed tile");
        };
        let pad = f.attr_number(op, crate::ir::keys::PADDING).unwrap_or(0.0);
        if pad != 0.0 && !matches!(elem, Scalar::F32 | Scalar::I32) {
            return self.unsupported(op, "pads 16-bit elements with zero only");
        }
        let n = self.elements_per_thread(op, layout, dims)?;
        let rt = super::control::element_reg(elem);
        if !matches!(elem.bits(), 16 | 32) {
            return self.unsupported(op, format!("of {} elements", elem.name()));
        }
        let regs = self.b.regs(rt, super::units(elem, n));
        for r in regs.iter() {
            let v = if rt == RegTy::F32 { Operand::f32(pad as f32) } else { Operand::Imm(pad as i64) };
            self.b.mov_to(r, v);
        }
        let (vec, list) = self.accesses(op, dims, elem, layout, false)?;
        for a in list {
            let bytes = vec * elem.bytes() as usize;
            let unit = a.first * elem.bytes() as usize / 4;
            let part = regs.slice(unit, unit + bytes.div_ceil(4));
            let f32s = rt == RegTy::F32;
            let form = match (bytes, f32s) {
                (16, true) => PtxOp::LdGlobalV4F32,
                (16, false) => PtxOp::LdGlobalV4B32,
                (8, true) => PtxOp::LdGlobalV2F32,
                (8, false) => PtxOp::LdGlobalV2B32,
                (4, true) => PtxOp::LdGlobalF32,
                (4, false) => PtxOp::LdGlobalB32,
                _ => {
                    let h = self.b.reg(RegTy::B16);
                    self.b.mov_to(h, 0);
                    self.guard(&a);
                    self.b.emit(PtxOp::LdGlobalB16, &[h.into(), a.addr]);
                    if let Some(d) = part.get(0) {
                        self.b.pack_b32_b16_to(d, [h, h]);
                    }
                    continue;
                }
            };
            let dst = if bytes >= 8 {
                self.b.list(&part)
            } else {
                match part.get(0) {
                    Some(r) => r.into(),
                    None => continue,
                }
            };
            self.guard(&a);
            self.b.emit(form, &[dst, a.addr]);
        }
        let (regs, ty) = (self.keep(regs.iter().map(Operand::Reg)), f.value_type(result));
        self.vals[result] = Val::Tile(TileVal { regs, splat: false, ty, elem, layout });
        Ok(())
    }

    fn guard(&mut self, a: &Access) {
        if let Some(p) = a.guard {
            self.b.on(p);
        }
    }

    pub(super) fn tiled_store(&mut self, op: Op) -> CodegenResult<()> {
        let f = self.f;
        let Some(v) = f.named_operand(op, "value") else {
            return self.err(Code::E0803, op, "store without value");
        };
        let value = self.vals[v];
        let t = self.expand(op, &value)?;
        if !matches!(t.elem.bits(), 16 | 32) {
            return self.unsupported(op, format!("of {} elements", t.elem.name()));
        }
        let rt = super::control::element_reg(t.elem);
        let (vec, list) = self.accesses(op, self.dims(&t), t.elem, t.layout, true)?;
        for a in list {
            let bytes = vec * t.elem.bytes() as usize;
            let unit = a.first * t.elem.bytes() as usize / 4;
            let count = bytes.div_ceil(4);
            let src: SmallVec<[Operand; 4]> = (unit..unit + count)
                .map(|i| self.b.as_reg(rt, self.units[t.regs.start as usize + i]).into())
                .collect();
            let f32s = rt == RegTy::F32;
            let form = match (bytes, f32s) {
                (16, true) => PtxOp::StGlobalV4F32,
                (16, false) => PtxOp::StGlobalV4B32,
                (8, true) => PtxOp::StGlobalV2F32,
                (8, false) => PtxOp::StGlobalV2B32,
                (4, true) => PtxOp::StGlobalF32,
                (4, false) => PtxOp::StGlobalB32,
                _ => {
                    let r = self.b.as_reg(RegTy::B32, src[0]);
                    let h: SmallVec<[Reg; 2]> = self.b.unpack_b32_b16(r).iter().collect();
                    self.guard(&a);
                    self.b.emit(PtxOp::StGlobalB16, &[a.addr, h[0].into()]);
                    continue;
                }
            };
            let data = if bytes >= 8 { self.b.list(&src.as_slice()) } else { src[0] };
            self.guard(&a);
            self.b.emit(form, &[a.addr, data]);
        }
        Ok(())
    }
}
