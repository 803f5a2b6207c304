//! Tensor copies, copies between spaces, and matrix multiplies.
//!
//! A tile wider than the swizzle span is moved by one TMA instruction per slab of that width; slab k lies
//! `k · rows · span` bytes behind the tile's base. Register tiles move in 16-byte chunks. Source: PTX ISA,
//! cp.async.bulk.tensor, swizzling modes.

use super::{Buffer, Lower, TileVal, Val};
use crate::error::{Code, CodegenError, CodegenResult};
use crate::ir::cluster;
use crate::ir::{Layout, Op, Scalar, Space, Value, keys};
use crate::isa::{AtomType, Mma, MmaAcc, MmaAgent, MmaOperand, MmaRequest, MmaTile};
use crate::layout::gf2::{Columns, Span};
use crate::layout::{LinearMap, Matrix, Side};
use crate::nvvm::{Operand, PtxOp, Reg, RegTy, Regs};
use crate::place::chains::rows_columns;
use crate::storage::access::{is_in_registers, may_take_over};
use smallvec::{SmallVec, smallvec};

impl Lower<'_> {
    /// The tensor map register, box extents and swizzle span behind a descriptor operand.
    fn desc(&mut self, op: Op) -> CodegenResult<(Reg, usize)> {
        let d = self.f.named_operand(op, "desc");
        match d.map(|d| &self.vals[d]) {
            Some(Val::Desc(m)) if *m < self.abi.maps.len() => {
                let m = *m;
                match self.nv.map_addr[m] {
                    Some(r) => Ok((r, m)),
                    None => self.err(Code::E0803, op, "tensor map without address"),
                }
            }
            _ => self.err(Code::E0803, op, "the descriptor is not a tensor map parameter"),
        }
    }

    /// Element coordinates of the tile's origin, innermost first.
    fn origin(&mut self, op: Op, tile: &[u32]) -> CodegenResult<SmallVec<[Operand; 5]>> {
        let coords = self.f.named_segment(op, "coords");
        if coords.len() != tile.len() {
            return self.err(
                Code::E0803,
                op,
                format!("{} coordinates, but got {}", tile.len(), coords.len()),
            );
        }
        let mut out = SmallVec::new();
        for (&c, &n) in coords.iter().zip(tile).rev() {
            out.push(self.first_element(op, c, n)?);
        }
        Ok(out)
    }

    /// For each slab: its shared-memory offset behind the tile and its innermost coordinate offset.
    fn slabs(&self, map: usize, tile: &[u32], elem: Scalar) -> SmallVec<[(u32, u32); 8]> {
        let box_cols = self.abi.maps[map].dims.last().copied().unwrap_or(1).max(1);
        let cols = tile.last().copied().unwrap_or(1);
        let rows: u32 = tile.iter().rev().skip(1).product();
        (0..cols.div_ceil(box_cols)).map(|k| (k * rows * box_cols * elem.bytes(), k * box_cols)).collect()
    }

    pub(super) fn box_tile(&self, op: Op) -> Option<(SmallVec<[u32; 4]>, Scalar)> {
        let d = self.f.named_operand(op, "desc")?;
        let data = self.f.value_data(d);
        Some((data.dims()?.into(), data.elem()?))
    }

    pub(super) fn tma_load(&mut self, op: Op) -> CodegenResult<()> {
        let f = self.f;
        let (map, m) = self.desc(op)?;
        let Some((tile, elem)) = self.box_tile(op) else {
            return self.err(Code::E0803, op, "malformed descriptor");
        };
        let (Some(buf), Some(bar)) = (f.named_operand(op, "buffer"), f.named_operand(op, "barrier")) else {
            return self.err(Code::E0803, op, "value form cannot be lowered; materialise first");
        };
        let buf = self.buffer(op, buf)?;
        self.open_section();
        let slot = self.stage(op, f.named_segment(op, "stage"))?;
        let bar = self.full_barrier(op, bar)?;
        let (addr, off) = self.slot_addr(&buf, slot);
        let mut origin = self.origin(op, &tile)?;
        let desc = f.named_operand(op, "desc").and_then(|d| f.defining_op(d));
        let all = self.all_ctas(desc.is_some_and(|d| f.has_attr(d, keys::MULTICAST)));
        let addr = if all.is_some() { self.own_part(op, &tile, elem, m, addr, &mut origin)? } else { addr };
        let form = match (origin.len(), all.is_some()) {
            (1, false) => PtxOp::TmaLoad1d,
            (2, false) => PtxOp::TmaLoad2d,
            (3, false) => PtxOp::TmaLoad3d,
            (4, false) => PtxOp::TmaLoad4d,
            (5, false) => PtxOp::TmaLoad5d,
            (2, true) => PtxOp::TmaLoadMulticast2d,
            (3, true) => PtxOp::TmaLoadMulticast3d,
            (4, true) => PtxOp::TmaLoadMulticast4d,
            (5, true) => PtxOp::TmaLoadMulticast5d,
            _ => return self.unsupported(op, "has rank 1 to 5, in a cluster 2 to 5"),
        };
        for (bytes, col) in self.slabs(m, &tile, elem) {
            let mut c = origin.clone();
            c[0] = self.b.fold_add(c[0], col);
            let list = self.b.list(&c.as_slice());
            let mut operands: SmallVec<[Operand; 5]> =
                smallvec![Operand::addr(addr, off + bytes as i32), map.into(), list, bar];
            operands.extend(all.map(Operand::from));
            self.b.emit(form, &operands);
        }
        Ok(())
    }

    /// This CTA's part of the rows of a tile that all of the cluster load together: `origin` is moved there, and the result is where it lies in a slot at `addr`.
    fn own_part(
        &mut self,
        op: Op,
        tile: &[u32],
        elem: Scalar,
        map: usize,
        addr: Reg,
        origin: &mut [Operand],
    ) -> CodegenResult<Reg> {
        let Some((ctas, rank)) = self.cluster else { return Ok(addr) };
        let (Some(dim), Some((_, outer))) = (cluster::parted(tile, ctas), tile.split_last()) else {
            return self.err(Code::E0803, op, "the rows cannot be divided among the CTAs of the cluster");
        };
        let first = self.b.fold_mul(rank, tile[dim] / ctas);
        let at = tile.len() - 1 - dim;
        origin[at] = self.b.fold_add(origin[at], first);
        let columns = self.abi.maps[map].dims.last().copied().unwrap_or(1);
        let part = outer.iter().product::<u32>() / ctas * columns * elem.bytes();
        let skipped = self.b.fold_mul(rank, part);
        Ok(self.b.add_u32(addr, skipped))
    }

    pub(super) fn tma_store(&mut self, op: Op) -> CodegenResult<()> {
        let f = self.f;
        let (map, m) = self.desc(op)?;
        let Some((tile, elem)) = self.box_tile(op) else {
            return self.err(Code::E0803, op, "malformed descriptor");
        };
        let Some(src) = f.named_operand(op, "source") else {
            return self.err(Code::E0803, op, "store without source");
        };
        let buf = self.buffer(op, src)?;
        self.open_section();
        let slot = self.stage(op, f.named_segment(op, "stage"))?;
        let (addr, off) = self.slot_addr(&buf, slot);
        let mut origin = self.origin(op, &tile)?;
        for c in origin.iter_mut().skip(1) {
            *c = self.stored_at(*c);
        }
        let form = match origin.len() {
            1 => PtxOp::TmaStore1d,
            2 => PtxOp::TmaStore2d,
            3 => PtxOp::TmaStore3d,
            4 => PtxOp::TmaStore4d,
            5 => PtxOp::TmaStore5d,
            _ => return self.unsupported(op, "has rank 1 to 5"),
        };
        for (bytes, col) in self.slabs(m, &tile, elem) {
            let mut c = origin.clone();
            let first = self.b.fold_add(c[0], col);
            c[0] = self.stored_at(first);
            let list = self.b.list(&c.as_slice());
            self.b.emit(form, &[map.into(), list, Operand::addr(addr, off + bytes as i32)]);
        }
        self.b.bulk_commit_group();
        Ok(())
    }

    /// Where a tile is stored that begins at an element. The corner of a store may lie beyond the end of a tensor but not before its
    /// begin (CUDA programming guide, tensor memory access): what is negative goes beyond the end, where nothing is written, to a multiple of
    /// 16 bytes, as in the innermost dimension all coordinates must be.
    fn stored_at(&mut self, first: Operand) -> Operand {
        const BEYOND: u32 = 0x7fff_ff80;
        match first {
            Operand::Imm(n) if (0..1 << 31).contains(&n) => first,
            Operand::Imm(_) => Operand::Imm(i64::from(BEYOND)),
            x => {
                let r = self.b.as_reg(RegTy::B32, x);
                self.b.min_u32(r, BEYOND).into()
            }
        }
    }

    pub(super) fn copy(&mut self, op: Op) -> CodegenResult<()> {
        let f = self.f;
        let Some(src) = f.named_operand(op, "source") else {
            return self.err(Code::E0803, op, "copy without source");
        };
        if let Some(dst) = f.named_operand(op, "dest") {
            let buf = self.buffer(op, dst)?;
            let slot = self.stage(op, f.named_segment(op, "dest_stage"))?;
            let value = self.vals[src];
            let t = self.expand(op, &value)?;
            return match buf.space {
                Space::Smem => self.reg_to_smem(op, &t, &buf, slot),
                Space::Tmem => self.store_columns(op, &t, &buf, slot),
                _ => self.unsupported(op, "to this space"),
            };
        }
        let Some(result) = f.result(op) else {
            return self.err(Code::E0803, op, "copy without result and destination");
        };
        let buf = self.buffer(op, src)?;
        let data = f.value_data(result);
        let (Some(dims), Some(elem), Some(layout)) = (data.dims(), data.elem(), data.layout()) else {
            return self.err(Code::E0803, op, "the result is not a placed tile");
        };
        let slot = self.stage(op, f.named_segment(op, "source_stage"))?;
        let offsets = f.attr_ints(op, keys::OFFSETS).unwrap_or_default();
        let n = self.elements_per_thread(op, layout, dims)?;
        let rt = super::control::element_reg(elem);
        let regs = self.b.regs(rt, super::units(elem, n));
        let when = match f.named_operand(op, "when").filter(|_| !self.filled.contains(&op)) {
            Some(v) => Some(self.scalar(op, v)?),
            None => None,
        };
        let otherwise = f.attr_number(op, keys::OTHERWISE).unwrap_or(0.0);
        let join = self.b.block();
        let other = match rt {
            RegTy::F32 => Operand::f32(otherwise as f32),
            _ => Operand::Imm(otherwise as i64),
        };
        if buf.space == Space::Tmem {
            // On both ways of what follows.
            self.before_load();
        }
        match when {
            // The slot is this agent's to read, so its lanes may as well write it: an instruction for 32 columns. (Lanes
            // without a row keep a defined value on the other way.)
            Some(Operand::Reg(p))
                if buf.space == Space::Tmem
                    && matches!(rt, RegTy::F32 | RegTy::B32)
                    && self.row_guard(dims).is_none() =>
            {
                self.b.br_on(p, join);
                let x = self.b.imm(rt, other);
                let first = offsets.last().copied().unwrap_or(0).max(0) as u32;
                let width = dims.last().copied().unwrap_or(0);
                self.fill_columns(op, &buf, slot, (first, width), x)?;
                self.b.place(join);
                self.b.bar_warp_sync(0xffff_ffffu32);
                self.read(op, &buf, slot, &offsets, dims, layout, elem, regs)?;
            }
            Some(Operand::Reg(p)) => {
                let none = self.b.block();
                self.b.br_on_not(p, none);
                self.read(op, &buf, slot, &offsets, dims, layout, elem, regs)?;
                self.b.bra(join);
                self.b.place(none);
                for r in regs.iter() {
                    self.b.mov_to(r, other);
                }
                self.b.place(join);
                self.b.bar_warp_sync(0xffff_ffffu32);
            }
            // It is known that nothing was written.
            Some(Operand::Imm(0)) => regs.iter().for_each(|r| self.b.mov_to(r, other)),
            _ => self.read(op, &buf, slot, &offsets, dims, layout, elem, regs)?,
        }
        let tile = TileVal {
            regs: self.keep(regs.iter().map(Operand::Reg)),
            splat: false,
            ty: f.value_type(result),
            elem,
            held: None,
            layout,
        };
        self.vals[result] = Val::Tile(tile);
        Ok(())
    }

    #[expect(clippy::too_many_arguments, reason = "one place reads one sub-tile")]
    fn read(
        &mut self,
        op: Op,
        buf: &Buffer,
        slot: Operand,
        offsets: &[i64],
        dims: &[u32],
        layout: Layout,
        elem: Scalar,
        regs: Regs,
    ) -> CodegenResult<()> {
        let col0 = offsets.last().copied().unwrap_or(0).max(0) as u32;
        if offsets.iter().rev().skip(1).any(|&o| o != 0) {
            return self.unsupported(op, format!("reads slices of columns, not at {offsets:?}"));
        }
        if buf.space == Space::Smem && (layout != Layout::Row || buf.swizzle_spans_slabs()) {
            return self.read_places(op, buf, slot, col0, dims, layout, elem, regs);
        }
        if layout != Layout::Row && buf.space != Space::Tmem {
            return self.unsupported(op, format!("reads row slices into layout `row`, not {layout}"));
        }
        match buf.space {
            Space::Tmem => self.load_columns(op, buf, slot, col0, dims, layout, regs),
            Space::Smem => {
                let chunks = self.smem_chunks(op, buf, slot, col0, dims, elem)?;
                let per = regs.len() / chunks.len().max(1);
                if self.row_guard(dims).is_some() {
                    // Lanes without a row keep a defined value.
                    for r in regs.iter() {
                        let zero = if elem == Scalar::F32 { Operand::f32(0.0) } else { Operand::Imm(0) };
                        self.b.mov_to(r, zero);
                    }
                }
                for (k, addr) in chunks.into_iter().enumerate() {
                    let part = regs.slice(k * per, (k + 1) * per);
                    let list = self.b.list(&part);
                    let form = if elem == Scalar::F32 { PtxOp::LdSharedV4F32 } else { PtxOp::LdSharedV4B32 };
                    if let Some(p) = self.row_guard(dims) {
                        self.b.on(p);
                    }
                    self.b.emit(form, &[list, addr]);
                }
                Ok(())
            }
            _ => self.unsupported(op, "from this space"),
        }
    }

    /// Moves an address by the number of the slice that `op` reads, at `step` each.
    pub(super) fn numbered(
        &mut self,
        op: Op,
        (base, offset): (Reg, i32),
        step: u32,
    ) -> CodegenResult<(Reg, i32)> {
        let Some(number) = self.f.named_operand(op, "number") else { return Ok((base, offset)) };
        let number = self.scalar(op, number)?;
        Ok(match self.b.fold_mul(number, step) {
            Operand::Imm(n) => (base, offset + n as i32),
            by => (self.b.add_u32(base, by), offset),
        })
    }

    /// The predicate of the lanes that hold rows of their own, where the tile has fewer rows than the agent has lanes.
    pub(super) fn row_guard(&self, dims: &[u32]) -> Option<Reg> {
        let (rows, _) = rows_columns(dims);
        let lanes = (rows / self.agent.warps.max(1)).checked_ilog2()?;
        self.agent.row_lanes.get(lanes as usize).copied().flatten()
    }

    /// Addresses of this thread's 16-byte chunks of a shared-memory tile: row by row, each in column order.
    ///
    /// The rows of a thread are as many apart as the agent has lanes. That is a multiple of the rows after which the
    /// swizzle repeats, so that they differ by a constant.
    fn smem_chunks(
        &mut self,
        op: Op,
        buf: &Buffer,
        slot: Operand,
        col0: u32,
        dims: &[u32],
        elem: Scalar,
    ) -> CodegenResult<SmallVec<[Operand; 16]>> {
        let (rows, cols) = rows_columns(dims);
        let row_bytes = cols * elem.bits() / 8;
        let (Some(swizzle), Some(_)) = (buf.layout.swizzle(), self.agent.thread) else {
            return self.unsupported(op, "needs a shared-memory layout and an agent of whole warps");
        };
        if !row_bytes.is_multiple_of(16) || !(col0 * elem.bits() / 8).is_multiple_of(16) {
            return self.unsupported(op, format!("moves rows in 16-byte chunks, not {row_bytes} bytes"));
        }
        let by_row = self.linear(op, Layout::RowVec, &[rows])?;
        let row = self.thread_flat(&by_row);
        let dense = buf.layout == Layout::SmemRow;
        let span = if dense { (buf.cols * elem.bits() / 8).max(16) } else { swizzle.span() };
        let (addr, off) = self.slot_addr(buf, slot);
        let (addr, off) = if self.f.named_operand(op, "number").is_some() {
            // A slice is whole slabs, or a run of columns of dense rows.
            if !dense && !row_bytes.is_multiple_of(span) {
                return self.unsupported(op, "reads slices by number in whole swizzle spans");
            }
            let step = if dense { row_bytes } else { row_bytes * buf.rows };
            self.numbered(op, (addr, off), step)?
        } else {
            (addr, off)
        };
        let row_off = self.b.fold_mul(row, span);
        let key = if swizzle.xor_mask() == 0 || dense {
            Operand::Imm(0)
        } else {
            let k = self.b.fold_shr(row_off, 3);
            self.b.fold_and(k, swizzle.xor_mask())
        };
        let start = self.b.fold_add(addr, row_off);
        let start = self.b.as_reg(RegTy::B32, start);
        let mut first_row: SmallVec<[(Reg, i32); 16]> = SmallVec::new();
        for j in 0..row_bytes / 16 {
            let byte = col0 * elem.bits() / 8 + j * 16;
            let (slab, within) = (byte / span, byte % span);
            let x = self.b.fold_xor(key, within);
            let imm = off + (slab * buf.rows * span) as i32;
            first_row.push(match x {
                Operand::Imm(n) => (start, imm + n as i32),
                x => (self.b.add_u32(start, x), imm),
            });
        }
        let mut out = SmallVec::new();
        for r in 0..1 << by_row.register().len() {
            let below = by_row.element(r, 0, 0) * span;
            out.extend(first_row.iter().map(|&(x, imm)| Operand::addr(x, imm + below as i32)));
        }
        Ok(out)
    }

    /// How the threads of a layout access the columns of a buffer from the first one given on.
    fn fixed_side(
        &mut self,
        op: Op,
        buf: &Buffer,
        (col0, dims): (u32, &[u32]),
        layout: Layout,
        elem: Scalar,
        store: bool,
    ) -> CodegenResult<(Side, u32)> {
        let map = self.linear(op, layout, dims)?;
        let (rows, cols) = rows_columns(dims);
        let bytes = elem.bytes();
        let span = match buf.layout.swizzle() {
            Some(_) if buf.layout == Layout::SmemRow => (buf.cols * bytes).max(16),
            Some(s) => s.span(),
            None => return self.unsupported(op, "needs a shared-memory layout"),
        };
        let matrix = Matrix::of(&[buf.rows, buf.cols], self.agent.warps);
        let order = match buf.layout {
            Layout::SmemRow => matrix.and_then(|m| m.everywhere()).map(|m| m.register().to_vec()),
            _ => matrix.and_then(|m| m.swizzled(span, bytes)).map(|m| m.columns().to_vec()),
        };
        // Elements of the tile as those of the buffer.
        let low = cols - 1;
        let inside = |c: u32| (c / cols) * buf.cols + (c & low);
        let place = |columns: &[u32]| -> Columns { columns.iter().map(|&c| inside(c)).collect() };
        let lanes: [u32; 5] = std::array::from_fn(|k| map.lane().get(k).map_or(0, |&c| inside(c)));
        let placed = LinearMap::registers(&place(map.register()), &lanes, &place(map.warp()));
        let plain = self.f.named_operand(op, "number").is_none() && col0.is_multiple_of(cols);
        let fits = rows == buf.rows && plain && matches!(elem.bits(), 8 | 16 | 32);
        let side = placed.zip(order).filter(|_| fits).and_then(|(map, order)| {
            let first = Span::of(&order).solve(col0)?;
            Some((Side::fixed(&map, &order, bytes.trailing_zeros(), first, store)?, first))
        });
        match side {
            Some(side) => Ok(side),
            None => self
                .unsupported(op, format!("moves no {} between layout {layout} and this buffer", elem.name())),
        }
    }

    /// Registers of any layout out of shared memory.
    #[expect(clippy::too_many_arguments, reason = "one place reads one sub-tile")]
    fn read_places(
        &mut self,
        op: Op,
        buf: &Buffer,
        slot: Operand,
        col0: u32,
        dims: &[u32],
        layout: Layout,
        elem: Scalar,
        regs: Regs,
    ) -> CodegenResult<()> {
        let (side, first) = self.fixed_side(op, buf, (col0, dims), layout, elem, false)?;
        let map = self.linear(op, layout, dims)?;
        let (base, at) = self.slot_addr(buf, slot);
        let width = elem.bytes().trailing_zeros();
        let place = self.side_place((base, at), &side, width, u32::MAX);
        let mut places = vec![None; 1 << map.register().len()];
        let rt = super::control::element_reg(elem);
        self.load_side(rt, &side, &place, |offset| Some(offset ^ first), &mut places);
        for (d, x) in regs.iter().zip(self.placed(super::tile::packing(elem), rt, &places, &map)) {
            self.b.mov_to(d, x);
        }
        Ok(())
    }

    /// Registers of any layout into shared memory.
    fn write_places(
        &mut self,
        op: Op,
        t: &TileVal,
        buf: &Buffer,
        slot: Operand,
        col0: u32,
    ) -> CodegenResult<()> {
        let (side, first) = self.fixed_side(op, buf, (col0, self.dims(t)), t.layout, t.elem, true)?;
        let (base, at) = self.slot_addr(buf, slot);
        let width = t.elem.bytes().trailing_zeros();
        let place = self.side_place((base, at), &side, width, u32::MAX);
        let guard = self.copies_guard(side.copies);
        let words = self.words(t, t.elem);
        self.store_side(&words, &side, &place, guard, |offset| Some(offset ^ first));
        Ok(())
    }

    fn reg_to_smem(&mut self, op: Op, t: &TileVal, buf: &Buffer, slot: Operand) -> CodegenResult<()> {
        let col0 =
            self.f.attr_ints(op, keys::OFFSETS).and_then(|o| o.last().copied()).unwrap_or(0).max(0) as u32;
        if t.layout != Layout::Row || buf.swizzle_spans_slabs() {
            return self.write_places(op, t, buf, slot, col0);
        }
        let chunks = self.smem_chunks(op, buf, slot, col0, self.dims(t), t.elem)?;
        let rt = super::control::element_reg(t.elem);
        let per = t.regs.len() / chunks.len().max(1);
        if !matches!(t.elem.bits(), 8 | 16 | 32) || per != 4 {
            return self.unsupported(op, format!("stores elements of 8 to 32 bits, not {}", t.elem.name()));
        }
        let guard = self.row_guard(self.dims(t));
        for (k, addr) in chunks.into_iter().enumerate() {
            let part: SmallVec<[Operand; 4]> = (k * per..(k + 1) * per)
                .map(|i| self.b.as_reg(rt, self.units[t.regs.start as usize + i]).into())
                .collect();
            let list = self.b.list(&part.as_slice());
            let form = if rt == RegTy::F32 { PtxOp::StSharedV4F32 } else { PtxOp::StSharedV4B32 };
            if let Some(p) = guard {
                self.b.on(p);
            }
            self.b.emit(form, &[addr, list]);
        }
        Ok(())
    }

    pub(super) fn async_dot(&mut self, op: Op) -> CodegenResult<()> {
        let f = self.f;
        let operand = |name: &str| f.named_operand(op, name);
        let (Some(a), Some(b), Some(acc)) = (operand("a"), operand("b"), operand("acc")) else {
            return self.err(Code::E0803, op, "malformed dot");
        };
        let in_registers = is_in_registers(f, acc);
        let (request, a, b) = self.product(op, a, b, acc)?;
        let refused = |why: String| CodegenError::new(Code::E0802, f.op_loc(op), why);
        let atom = self.isa.atoms().select_mma(&request).map_err(refused)?;
        if self.isa.mma_contract().issue.is_lane() {
            self.open_section();
        }
        self.fence_waited();
        let slot = |stage: &str| self.stage(op, f.named_segment(op, stage));
        let (sa, sb) = (slot("a_stage")?, slot("b_stage")?);
        let mut accumulate = match f.named_operand(op, "accumulate") {
            Some(v) => self.scalar(op, v)?,
            None => Operand::Imm(1),
        };
        let Some([base_a, base_b]) = self.operand_bases[op] else {
            return self.err(Code::E0803, op, "a product outside of an agent");
        };
        let first: SmallVec<[Reg; 64]>;
        let a = match a {
            Some(a) => MmaOperand::Memory(tile_at(&a, base_a, 0, sa)),
            None => {
                first = self.first_operand(op, &request)?;
                MmaOperand::Registers(&first)
            }
        };
        let b = tile_at(&b, base_b, 0, sb);
        let agent = self.multiplying();
        let regs: SmallVec<[Reg; 128]>;
        let acc = if in_registers {
            let nothing;
            (regs, nothing) = self.updated(op, acc, (request.m, request.n))?;
            if nothing {
                accumulate = Operand::Imm(0);
            }
            MmaAcc::Registers(&regs)
        } else {
            let (d, slot) = (self.buffer(op, acc)?, self.stage(op, f.named_segment(op, "acc_stage"))?);
            let base = match d.space {
                Space::Tmem => self.tensor_base(op)?,
                _ => self.base(),
            };
            MmaAcc::Memory(tile_at(&d, base, d.at, slot))
        };
        let mma = Mma { atom: &atom, a, b, acc, accumulate, agent };
        if let Some(barrier) = f.attr_int(op, keys::TAKES_TURN) {
            self.turn(op, true, barrier)?;
        }
        self.isa.emit().mma(&mut self.b, &mma).map_err(refused)?;
        if let Some(barrier) = f.attr_int(op, keys::GIVES_TURN) {
            self.turn(op, false, barrier)?;
        }
        Ok(())
    }

    /// Waits for the turn of this warpgroup, but for the first one's first, or gives it to the other one; see `materialize::turns`.
    fn turn(&mut self, op: Op, takes: bool, barrier: i64) -> CodegenResult<()> {
        let f = self.f;
        let lower = f.op_parent(op).and_then(|l| f.named_operand(l, "lower"));
        let index = f.op_block(op).and_then(|b| f.block_params(b).first().copied());
        let (Some(index), Some(lower), Some(agent)) = (index, lower, self.multiplying()) else {
            return self.err(Code::E0803, op, "a turn outside of a loop");
        };
        let group = self.warpgroup(&agent);
        if !takes {
            let other = self.b.fold_sub(barrier + 1, group);
            let threads = self.threads();
            self.b.bar_arrive(other, threads);
            return Ok(());
        }
        let (index, lower) = (self.scalar(op, index)?, self.scalar(op, lower)?);
        let index = self.b.as_reg(RegTy::B32, index);
        let begins = self.b.setp_eq_u32(index, lower);
        let first = self.first_group(group);
        let skip = self.b.and_pred(begins, first);
        let own = self.b.fold_add(group, barrier);
        self.turn_unless(skip, own);
        Ok(())
    }

    /// Behind a loop with turns the first warpgroup waits for the last turn that it is given: nothing is left at a barrier.
    pub(super) fn end_turns(&mut self, barrier: i64) {
        let Some(agent) = self.multiplying() else { return };
        let group = self.warpgroup(&agent);
        let first = self.first_group(group);
        let skip = self.b.not_pred(first);
        self.turn_unless(skip, Operand::Imm(barrier));
    }

    /// The first of the barriers at which products of a loop are issued in turns, if they are.
    pub(super) fn turns(&self, l: Op) -> Option<i64> {
        let mut body = self.f.op_block_at(l, 0).into_iter().flat_map(|b| self.f.block_ops(b));
        body.find_map(|op| self.f.attr_int(op, keys::GIVES_TURN))
    }

    /// The number of a thread's warpgroup in its agent.
    fn warpgroup(&mut self, agent: &MmaAgent) -> Operand {
        self.b.fold_shr(agent.warp, self.isa.machine().limits.warpgroup_warps.trailing_zeros())
    }

    fn first_group(&mut self, group: Operand) -> Reg {
        let group = self.b.as_reg(RegTy::B32, group);
        self.b.setp_eq_u32(group, 0)
    }

    fn turn_unless(&mut self, skip: Reg, barrier: Operand) {
        let (meets, done) = (self.b.block(), self.b.block());
        self.b.br_if(skip, false, done, meets);
        self.b.place(meets);
        let threads = self.threads();
        self.b.bar_sync(barrier, threads);
        self.b.place(done);
    }

    /// The registers of a first operand that is in registers.
    fn first_operand(&mut self, op: Op, r: &MmaRequest) -> CodegenResult<SmallVec<[Reg; 64]>> {
        let f = self.f;
        let Some(a) = f.named_operand(op, "a") else { return self.err(Code::E0803, op, "malformed dot") };
        let layout = self.isa.acc_home().operand.and_then(|l| l(r.m, r.n, r.k, self.agent.warps));
        if layout.is_none() || f.value_data(a).layout() != layout {
            return self.unsupported(op, "takes operands in the layout of the instruction");
        }
        let value = self.vals[a];
        let t = self.expand(op, &value)?;
        let mut regs = SmallVec::new();
        for i in 0..t.regs.len() {
            let x = self.unit(&t, i);
            regs.push(self.b.as_reg(RegTy::B32, x));
        }
        Ok(regs)
    }

    /// The registers that a product updates: those of the accumulator, where nothing else reads it, or copies; and whether the accumulator is 0,
    /// of which no register need tell. They are the result.
    fn updated(
        &mut self,
        op: Op,
        acc: Value,
        (m, n): (u32, u32),
    ) -> CodegenResult<(SmallVec<[Reg; 128]>, bool)> {
        let f = self.f;
        let Some(result) = f.result(op) else { return self.err(Code::E0803, op, "a product without result") };
        let layout = (self.isa.acc_home().layout)(m, n, self.agent.warps);
        if layout.is_none() || f.value_data(acc).layout() != layout {
            return self.unsupported(op, "updates accumulators in the layout of the instruction");
        }
        let value = self.vals[acc];
        let whole = matches!(&value, Val::Tile(t) if !t.splat && t.held.is_none());
        let own = whole && may_take_over(f, acc, op, self.fusion.uses_of(acc));
        let t = self.expand(op, &value)?;
        let rt = super::control::element_reg(t.elem);
        let nothing =
            (0..t.regs.len()).all(|i| matches!(self.unit(&t, i), Operand::F32(0) | Operand::Imm(0)));
        let mut regs: SmallVec<[Reg; 128]> = SmallVec::new();
        for i in 0..t.regs.len() {
            regs.push(match self.unit(&t, i) {
                Operand::Reg(r) if own => r,
                _ if nothing => self.b.reg(rt),
                x => self.b.imm(rt, x),
            });
        }
        let regs_of = self.keep(regs.iter().copied().map(Operand::Reg));
        let tile = TileVal { regs: regs_of, splat: false, ty: f.value_type(result), ..t };
        self.vals[result] = Val::Tile(tile);
        Ok((regs, nothing))
    }

    /// What a product asks for, and the buffers of its operands.
    fn product(
        &self,
        op: Op,
        a: Value,
        b: Value,
        acc: Value,
    ) -> CodegenResult<(MmaRequest, Option<Buffer>, Buffer)> {
        let f = self.f;
        let shape = f.value_data(a);
        let (a, b) = match is_in_registers(f, a) {
            true => (None, self.buffer(op, b)?),
            false => (Some(self.buffer(op, a)?), self.buffer(op, b)?),
        };
        let (a_elem, rows, cols) = match (&a, shape.dims(), shape.elem()) {
            (Some(a), ..) => (a.elem, a.rows, a.cols),
            (None, Some(&[m, k]), Some(elem)) => (elem, m, k),
            _ => return self.unsupported(op, "multiplies matrices"),
        };
        let acc_elem = match &self.vals[acc] {
            Val::Buffer(d) => d.elem,
            _ => f.value_data(acc).elem().unwrap_or(Scalar::F32),
        };
        let ta = f.has_attr(op, keys::TRANSPOSE_A);
        let tb = f.has_attr(op, keys::TRANSPOSE_B);
        let (m, k) = if ta { (cols, rows) } else { (rows, cols) };
        let n = if tb { b.rows } else { b.cols };
        let Some([xa, xb, xd]) = AtomType::of_dot(f, op, [a_elem, b.elem, acc_elem]) else {
            return self.unsupported(op, "with these element types");
        };
        Ok((MmaRequest { a: xa, b: xb, acc: xd, m, n, k, a_m_contiguous: ta, b_n_contiguous: !tb }, a, b))
    }

    fn multiplying(&self) -> Option<MmaAgent> {
        let (warp, warps) = (self.agent.warp, self.agent.warps);
        self.agent.thread.map(|thread| MmaAgent { thread, warp, warps })
    }

    /// What a product of this agent needs of its operands in all slots, made where the agent begins.
    pub(super) fn operand_bases(&mut self, op: Op) -> CodegenResult<()> {
        let f = self.f;
        let operand = |name: &str| f.named_operand(op, name);
        let (Some(a), Some(b), Some(acc)) = (operand("a"), operand("b"), operand("acc")) else {
            return self.err(Code::E0803, op, "malformed dot");
        };
        let (request, a, b) = self.product(op, a, b, acc)?;
        let agent = self.multiplying();
        let bases = [(a.unwrap_or(b), true), (b, false)].map(|(buffer, first)| {
            let base = self.base_of(buffer.own);
            let tile = tile_at(&buffer, base, buffer.at, Operand::Imm(0));
            self.isa.emit().operand_base(&mut self.b, &tile, &request, first, agent)
        });
        self.operand_bases[op] = Some(bases);
        Ok(())
    }
}

/// A slot of a buffer, as a product names it.
fn tile_at(x: &Buffer, base: Reg, at: u32, slot: Operand) -> MmaTile {
    MmaTile { base, at, slot, size: x.slot, rows: x.rows, cols: x.cols, elem: x.elem, layout: x.layout }
}
