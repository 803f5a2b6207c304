//! Direct loads and stores of register tiles from and to views: vectors of up to 16 bytes, predicated by bounds.
//!
//! Every thread addresses the elements its layout gives it; consecutive registers along the innermost dimension
//! form vectors. Vectors want rows that begin on their alignment and end on their border. Where the type says so (an
//! innermost extent that they divide; the launch requirements then ask the same of the strides), vectors are all there
//! is. Elsewhere a branch that is uniform over the CTA decides at run time: vectors if the strides fit and the tile
//! ends inside the row or at a whole vector, else one access per element, each with its own bound.

use super::tile::strides;
use super::{Lower, TileVal, Val};
use crate::error::{Code, CodegenResult};
use crate::ir::{Dim, Layout, Op, Scalar};
use crate::nvvm::{Operand, PtxOp, Reg, RegTy, Regs};
use smallvec::SmallVec;

/// One vector access: first register (element index) and its address and predicate.
struct Access {
    first: usize,
    addr: Operand,
    guard: Option<Reg>,
    /// For access by element: predicate of the row, its address, the element's index in the row, the row's extent.
    row: Option<Reg>,
    row_addr: Reg,
    index: Operand,
    column: usize,
    size: Operand,
}

/// All accesses of a thread.
struct Accesses {
    /// Elements of a vector.
    vec: usize,
    list: SmallVec<[Access; 16]>,
    /// Whether vectors do, where only the launch knows.
    whole: Option<Reg>,
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
    ) -> CodegenResult<Accesses> {
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
        let thread = self.thread_flat(&l);
        let mut base: SmallVec<[Operand; 4]> = SmallVec::new();
        for d in 0..rank {
            let c = self.coordinate(op, coords[d])?;
            let origin = self.b.fold_mul(c, dims[d]);
            let t = if dims[d] == 1 {
                Operand::Imm(0)
            } else {
                let t = self.b.fold_shr(thread, st[d].trailing_zeros());
                if d == 0 { t } else { self.b.fold_and(t, dims[d] - 1) }
            };
            base.push(self.b.fold_add(origin, t));
        }
        let whole = self.vectors_do(op, view, vec, inner)?;
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
            let row_guard = guard;
            let guard = match guard {
                Some(q) => self.b.and_pred(q, p),
                None => p,
            };
            out.push(Access {
                first,
                addr: Operand::addr(addr, (col as usize * elem_bytes) as i32),
                guard: Some(guard),
                row: row_guard,
                row_addr: addr,
                index: base[rank - 1],
                column: col as usize,
                size,
            });
        }
        Ok(Accesses { vec, list: out, whole })
    }

    /// Whether vectors of `vec` elements are aligned and either in or out of bounds as a whole: `None` where the type
    /// of the view says so, else a predicate that all threads agree on.
    fn vectors_do(&mut self, op: Op, view: usize, vec: usize, inner: usize) -> CodegenResult<Option<Reg>> {
        let info = &self.abi.views[view];
        let rank = info.dims.len();
        if vec <= 1 || rank == 0 {
            return Ok(None);
        }
        let ends = matches!(info.dims[rank - 1], Dim::Static(n) if (n as usize).is_multiple_of(vec));
        let mapped = self.abi.maps.iter().any(|m| m.view == view);
        if ends {
            for d in (0..rank - 1).filter(|_| !mapped) {
                self.requires.push(format!("{}.s{d} % {vec} == 0", info.name));
            }
            return Ok(None);
        }
        let rest = vec as i64 - 1;
        let size = self.nv.size_reg[view][rank - 1].unwrap_or(Operand::Imm(0));
        let over = self.b.fold_and(size, rest);
        let over = self.b.as_reg(RegTy::B32, over);
        let divides = self.b.setp_eq_u32(over, 0);
        let Some(&last) = self.f.named_segment(op, "coords").last() else { return Ok(None) };
        let coord = self.coordinate(op, last)?;
        let origin = self.b.fold_mul(coord, inner as i64);
        let end = self.b.fold_add(origin, inner as i64 - 1);
        let end = self.b.as_reg(RegTy::B32, end);
        let inside = self.b.setp_lt_u32(end, size);
        let mut whole = self.b.or_pred(divides, inside);
        if !mapped && rank > 1 {
            let mut strides = Operand::Imm(0);
            for d in 0..rank - 1 {
                let s = self.nv.stride_reg[view][d].unwrap_or(Operand::Imm(1));
                strides = match strides {
                    Operand::Imm(0) => s,
                    x => self.b.or_b32(x, s).into(),
                };
            }
            let over = self.b.fold_and(strides, rest);
            let over = self.b.as_reg(RegTy::B32, over);
            let aligned = self.b.setp_eq_u32(over, 0);
            whole = self.b.and_pred(whole, aligned);
        }
        Ok(Some(whole))
    }

    /// The address of element `e` of a vector and the predicate that it is in bounds.
    fn vector_element(&mut self, a: &Access, e: usize, elem_bytes: usize) -> (Operand, Reg) {
        let index = self.b.fold_add(a.index, (a.column + e) as i64);
        let index = self.b.as_reg(RegTy::B32, index);
        let p = self.b.setp_lt_u32(index, a.size);
        let p = match a.row {
            Some(row) => self.b.and_pred(row, p),
            None => p,
        };
        (Operand::addr(a.row_addr, ((a.column + e) * elem_bytes) as i32), p)
    }

    /// Runs `vectors`, or `elements` where vectors will not do.
    fn either(
        &mut self,
        whole: Option<Reg>,
        vectors: impl FnOnce(&mut Self),
        elements: impl FnOnce(&mut Self),
    ) {
        let Some(whole) = whole else { return vectors(self) };
        let (slow, join) = (self.b.block(), self.b.block());
        self.b.br_on_not(whole, slow);
        vectors(self);
        self.b.bra(join);
        self.b.place(slow);
        elements(self);
        self.b.place(join);
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
        let Accesses { vec, list, whole } = self.accesses(op, dims, elem, layout, false)?;
        let vectors = |this: &mut Self| {
            for a in &list {
                this.load_vector(a, vec, elem, regs);
            }
        };
        if vec * elem.bytes() as usize == 2 {
            self.load_elements(&list, vec, elem, regs);
        } else {
            self.either(whole, vectors, |this| this.load_elements(&list, vec, elem, regs));
        }
        let (regs, ty) = (self.keep(regs.iter().map(Operand::Reg)), f.value_type(result));
        self.vals[result] = Val::Tile(TileVal { regs, splat: false, ty, elem, layout });
        Ok(())
    }

    /// `vec` elements at once, 4 to 16 bytes.
    fn load_vector(&mut self, a: &Access, vec: usize, elem: Scalar, regs: Regs) {
        let bytes = vec * elem.bytes() as usize;
        let unit = a.first * elem.bytes() as usize / 4;
        let part = regs.slice(unit, unit + bytes.div_ceil(4));
        let form = match (bytes, super::control::element_reg(elem) == RegTy::F32) {
            (16, true) => PtxOp::LdGlobalV4F32,
            (16, false) => PtxOp::LdGlobalV4B32,
            (8, true) => PtxOp::LdGlobalV2F32,
            (8, false) => PtxOp::LdGlobalV2B32,
            (_, true) => PtxOp::LdGlobalF32,
            (_, false) => PtxOp::LdGlobalB32,
        };
        let dst = match (bytes >= 8, part.get(0)) {
            (true, _) => self.b.list(&part),
            (false, Some(r)) => r.into(),
            (false, None) => return,
        };
        self.guard(a);
        self.b.emit(form, &[dst, a.addr]);
    }

    /// Element by element; 16-bit elements are put together in pairs at the end.
    fn load_elements(&mut self, list: &[Access], vec: usize, elem: Scalar, regs: Regs) {
        let elem_bytes = elem.bytes() as usize;
        let form = match super::control::element_reg(elem) {
            RegTy::F32 => PtxOp::LdGlobalF32,
            _ => PtxOp::LdGlobalB32,
        };
        let mut halves: Vec<Reg> = Vec::new();
        for a in list {
            for e in 0..vec {
                let (addr, p) = self.vector_element(a, e, elem_bytes);
                if elem_bytes == 2 {
                    // Elements are in register order, first vector first.
                    let h = self.b.imm(RegTy::B16, 0);
                    halves.push(h);
                    self.b.on(p);
                    self.b.emit(PtxOp::LdGlobalB16, &[h.into(), addr]);
                } else if let Some(d) = regs.get(a.first + e) {
                    self.b.on(p);
                    self.b.emit(form, &[d.into(), addr]);
                }
            }
        }
        for (n, pair) in halves.chunks(2).enumerate() {
            if let (Some(d), Some(&low)) = (regs.get(n), pair.first()) {
                let high = pair.get(1).copied().unwrap_or(low);
                self.b.pack_b32_b16_to(d, [low, high]);
            }
        }
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
        let Accesses { vec, list, whole } = self.accesses(op, self.dims(&t), t.elem, t.layout, true)?;
        let units = t.regs.start as usize..(t.regs.start + t.regs.len) as usize;
        let regs: SmallVec<[Reg; 32]> = units.map(|i| self.b.as_reg(rt, self.units[i])).collect();
        if vec * t.elem.bytes() as usize == 2 {
            self.store_elements(&list, vec, t.elem, &regs);
            return Ok(());
        }
        let vectors = |this: &mut Self| {
            for a in &list {
                this.store_vector(a, vec, t.elem, &regs);
            }
        };
        self.either(whole, vectors, |this| this.store_elements(&list, vec, t.elem, &regs));
        Ok(())
    }

    fn store_vector(&mut self, a: &Access, vec: usize, elem: Scalar, regs: &[Reg]) {
        let bytes = vec * elem.bytes() as usize;
        let unit = a.first * elem.bytes() as usize / 4;
        let src: SmallVec<[Operand; 4]> =
            regs.iter().skip(unit).take(bytes.div_ceil(4)).map(|&r| r.into()).collect();
        let form = match (bytes, super::control::element_reg(elem) == RegTy::F32) {
            (16, true) => PtxOp::StGlobalV4F32,
            (16, false) => PtxOp::StGlobalV4B32,
            (8, true) => PtxOp::StGlobalV2F32,
            (8, false) => PtxOp::StGlobalV2B32,
            (_, true) => PtxOp::StGlobalF32,
            (_, false) => PtxOp::StGlobalB32,
        };
        let data = match (bytes >= 8, src.first()) {
            (true, _) => self.b.list(&src.to_vec()),
            (false, Some(&r)) => r,
            (false, None) => return,
        };
        self.guard(a);
        self.b.emit(form, &[a.addr, data]);
    }

    fn store_elements(&mut self, list: &[Access], vec: usize, elem: Scalar, regs: &[Reg]) {
        let elem_bytes = elem.bytes() as usize;
        let form = match super::control::element_reg(elem) {
            RegTy::F32 => PtxOp::StGlobalF32,
            _ => PtxOp::StGlobalB32,
        };
        let mut halves: Option<(usize, SmallVec<[Reg; 2]>)> = None;
        for a in list {
            for e in 0..vec {
                let n = a.first + e;
                let (addr, p) = self.vector_element(a, e, elem_bytes);
                if elem_bytes != 2 {
                    if let Some(&r) = regs.get(n) {
                        self.b.on(p);
                        self.b.emit(form, &[addr, r.into()]);
                    }
                    continue;
                }
                let Some(&pair) = regs.get(n / 2) else { continue };
                let known = halves.take().filter(|h| h.0 == n / 2);
                let both = match known {
                    Some(h) => h.1,
                    None => self.b.unpack_b32_b16(pair).iter().collect(),
                };
                if let Some(&h) = both.get(n % 2) {
                    self.b.on(p);
                    self.b.emit(PtxOp::StGlobalB16, &[addr, h.into()]);
                }
                halves = Some((n / 2, both));
            }
        }
    }
}
