//! Tiles of single elements of views: `gather`, `scatter`, and atomic updates.
//!
//! A thread accesses the elements of its registers, each at its own coordinates. Along the last axis, registers whose coordinates are known
//! to follow each other (`vector`, which `place` notes) are accessed as vectors; where the view's type does not say that rows end at whole vectors, a branch
//! that is uniform over the CTA decides. What registers have in common is computed once: the address of a row, and the bounds of each
//! coordinate. Elements that several threads hold are written and updated by one of them.

use super::global::{Access, Accesses, Rest, single_ty};
use super::{Lower, TileVal, Val};
use crate::error::{Code, CodegenResult};
use crate::ir::{Dim, Op, Opcode, Scalar, Value, keys};
use crate::layout::LinearMap;
use crate::layout::gf2::Span;
use crate::nvvm::{Operand, PtxOp, Reg, RegTy, Regs};
use smallvec::{SmallVec, smallvec};

/// What an access says for each register of its tile: one operand, or one for all.
type List = SmallVec<[Operand; 64]>;

/// Addresses and predicates of the elements of a tile.
struct Points {
    /// Elements of a vector, and all of a thread.
    vec: usize,
    count: usize,
    /// Where vectors may not fit: the predicate that they do.
    fits: Option<Reg>,
    finder: Finder,
}

fn at(list: &List, i: usize) -> Operand {
    if list.len() == 1 { list[0] } else { list[i] }
}

impl Lower<'_> {
    /// An access whose tile is in registers.
    pub(super) fn sparse(&mut self, op: Op) -> CodegenResult<()> {
        let f = self.f;
        let Some(moved) = f.sparse_tile(op) else { return self.err(Code::E0803, op, "moves no tile") };
        let data = f.value_data(moved);
        let (Some(dims), Some(elem), Some(layout)) = (data.dims(), data.elem(), data.layout()) else {
            return self.err(Code::E0803, op, "the tile is not placed");
        };
        if !matches!(elem.bits(), 1 | 8 | 16 | 32 | 64) {
            return self.unsupported(op, format!("of {} elements", elem.name()));
        }
        let map = self.linear(op, layout, dims)?;
        let code = f.opcode(op);
        let owner = if code == Opcode::Gather { None } else { self.owner_guard(&map) };
        let most = match code {
            Opcode::Gather | Opcode::Scatter if elem != Scalar::I1 => {
                f.attr_int(op, keys::VECTOR).and_then(|n| usize::try_from(n).ok()).unwrap_or(1)
            }
            _ => 1,
        };
        let mut points = self.points(op, dims, elem, &map, owner, most)?;
        match code {
            Opcode::Gather => self.load_points(op, moved, elem, &mut points),
            Opcode::Scatter => self.store_points(op, moved, elem, &mut points),
            _ => self.update_points(op, moved, elem, &map, &mut points),
        }
    }

    /// The operands of a coordinate or mask for each register of a tile.
    fn by_register(&mut self, op: Op, v: Value, dims: &[u32], map: &LinearMap) -> CodegenResult<List> {
        let Some(own) = self.f.value_data(v).dims() else { return Ok(smallvec![self.scalar(op, v)?]) };
        let value = self.vals[v];
        let Val::Tile(t) = value else {
            return self.err(Code::E0803, op, "a coordinate is not in registers");
        };
        if t.splat {
            return Ok(smallvec![self.unit(&t, 0)]);
        }
        let t = self.expand(op, &value)?;
        let from = self.linear(op, t.layout, own)?;
        // Where an axis has one element, all registers have that.
        let (to, kept) = (super::tile::strides(dims), super::tile::strides(own));
        let project = |flat: u32| -> u32 {
            let flat = u64::from(flat);
            let axes = (0..dims.len()).filter(|&d| own.get(d).is_some_and(|&n| n > 1));
            axes.map(|d| (flat / to[d] % u64::from(dims[d]) * kept[d]) as u32).sum()
        };
        let threads =
            |m: &LinearMap| m.lane().iter().chain(m.warp()).copied().collect::<SmallVec<[u32; 10]>>();
        if threads(map).iter().zip(&threads(&from)).any(|(&d, &s)| project(d) != s) {
            return self.unsupported(op, format!("has coordinates in layout {}, of other threads", t.layout));
        }
        let span = Span::of(from.register());
        let elements = self.elements(&t);
        let mut list = List::new();
        for r in 0..1u32 << map.register().len() {
            let Some(i) = span.solve(project(map.element(r, 0, 0))) else {
                return self.unsupported(op, "has coordinates that no register of this thread holds");
            };
            list.push(self.units[elements.range().start + i as usize]);
        }
        Ok(list)
    }

    /// Addresses, and predicates that elements are in bounds, not masked and this thread's.
    fn points(
        &mut self,
        op: Op,
        dims: &[u32],
        elem: Scalar,
        map: &LinearMap,
        owner: Option<Reg>,
        most: usize,
    ) -> CodegenResult<Points> {
        let f = self.f;
        let (view, ptr) = match self.pointer_of(op)? {
            Some(pointer) => (None, pointer),
            None => self.view_of(op).map(|(view, ptr)| (Some(view), ptr))?,
        };
        let coords = f.named_segment(op, "coords");
        if coords.len() != view.map_or(1, |v| self.abi.views[v].dims.len()) || coords.is_empty() {
            return self.err(Code::E0803, op, "coordinates do not fit the view");
        }
        let mut lists: SmallVec<[List; 4]> = SmallVec::new();
        for &c in coords {
            let mut list = self.by_register(op, c, dims, map)?;
            if view.is_some() && f.value_data(c).elem() == Some(Scalar::I64) {
                // No view has that many elements along an axis.
                let mut known: SmallVec<[(Operand, Operand); 16]> = SmallVec::new();
                for x in &mut list {
                    *x = match known.iter().rev().find(|k| k.0 == *x) {
                        Some(k) => k.1,
                        None => {
                            let from = self.b.as_reg(RegTy::B64, *x);
                            let bound = self.b.min_u64(from, 1i64 << 31);
                            let low: Operand = self.b.cvt_u32_u64(bound).into();
                            known.push((*x, low));
                            low
                        }
                    };
                }
            }
            lists.push(list);
        }
        let masks = match f.named_operand(op, "mask") {
            Some(m) => Some(self.by_register(op, m, dims, map)?),
            None => None,
        };
        let n = 1usize << map.register().len();
        let bytes = elem.bytes() as usize;
        let mut vec = 1;
        while vec * 2 <= most
            && vec * 2 * bytes <= 16
            && vec * 2 <= n
            && map.register()[vec.trailing_zeros() as usize] == vec as u32
        {
            vec *= 2;
        }
        // Vectors of less than a unit are put together from elements as well.
        if vec * bytes < 4 {
            vec = 1;
        }
        let fits = view.and_then(|view| self.whole_vectors(view, vec));
        let wide = coords.last().is_some_and(|&c| f.value_data(c).elem() == Some(Scalar::I64));
        let finder = Finder { lists, masks, view, wide, ptr, bytes, owner, known: Known::default() };
        Ok(Points { vec, count: n, fits, finder })
    }

    /// Where it is not known that vectors end with rows and begin at multiples of their size: the predicate that they do.
    fn whole_vectors(&mut self, view: usize, vec: usize) -> Option<Reg> {
        let info = &self.abi.views[view];
        let rank = info.dims.len();
        if vec <= 1 {
            return None;
        }
        let ends = matches!(info.dims[rank - 1], Dim::Static(n) if (n as usize).is_multiple_of(vec));
        let begins = self.begins_aligned(view, vec);
        if ends
            && begins.is_none()
            && let Some(fit) = self.strides_fit(view, vec)
        {
            self.requires.extend(fit);
            return None;
        }
        let mut all = self.nv.views[view].size_reg[rank - 1].unwrap_or(Operand::Imm(0));
        for d in 0..rank - 1 {
            let s = self.nv.views[view].stride_reg[d].unwrap_or(Operand::Imm(1));
            all = self.b.or_b32(all, s).into();
        }
        let over = self.b.fold_and(all, vec as i64 - 1);
        let over = self.b.as_reg(RegTy::B32, over);
        let fits = self.b.setp_eq_u32(over, 0);
        Some(begins.map_or(fits, |begins| self.b.and_pred(fits, begins)))
    }

    /// Runs `accesses` for vectors and, where these may not fit, for single elements in their place. An address is made where it is used:
    /// all of them together would take more registers than the tile.
    fn either(&mut self, points: &mut Points, mut accesses: impl FnMut(&mut Self, &mut Finder, usize)) {
        let Some(fits) = points.fits else { return accesses(self, &mut points.finder, points.vec) };
        let (slow, join) = (self.b.block(), self.b.block());
        self.b.br_on_not(fits, slow);
        accesses(self, &mut points.finder, points.vec);
        self.b.bra(join);
        self.b.place(slow);
        // What was computed on the other side is not there on this one.
        points.finder.known = Known::default();
        accesses(self, &mut points.finder, 1);
        self.b.place(join);
    }

    fn load_points(&mut self, op: Op, result: Value, elem: Scalar, points: &mut Points) -> CodegenResult<()> {
        let f = self.f;
        let layout = f.value_data(result).layout();
        let Some(layout) = layout else { return self.err(Code::E0803, op, "the tile is not placed") };
        let pad = f.attr_number(op, keys::PADDING).unwrap_or(0.0);
        let (ty, n) = (f.value_type(result), points.count);
        if elem == Scalar::I1 {
            let mut truths = List::new();
            for r in 0..n {
                let (addr, guard) = points.finder.point(self, r);
                let byte = self.b.imm(RegTy::B32, i64::from(pad != 0.0));
                self.load_element_to(guard, 1, byte, addr);
                truths.push(self.b.setp_ne_u32(byte, 0).into());
            }
            let regs = self.keep(truths);
            self.vals[result] = Val::Tile(TileVal { regs, splat: false, ty, elem, held: None, layout });
            return Ok(());
        }
        let none = self.padding(elem, pad);
        let regs = self.b.regs(super::control::element_reg(elem), super::units(elem, n));
        if points.vec > 1 {
            for r in regs.iter() {
                self.b.mov_to(r, none.unit);
            }
        }
        let all = Self::vectors_of(points.vec, elem);
        self.either(points, |this, finder, step| match step {
            1 => this.load_singles(elem, n, finder, regs, none),
            _ => (0..n).step_by(step).for_each(|first| {
                let (addr, guard) = finder.point(this, first);
                this.load_vector(&all, &Access { first, addr, guard, row: 0, column: 0 }, elem, regs);
            }),
        });
        let regs = self.keep(regs.iter().map(Operand::Reg));
        self.vals[result] = Val::Tile(TileVal { regs, splat: false, ty, elem, held: None, layout });
        Ok(())
    }

    /// What vectors have in common, as accesses of whole tiles know it.
    fn vectors_of(vec: usize, elem: Scalar) -> Accesses {
        let (list, rows) = (SmallVec::new(), SmallVec::new());
        let (elem_bytes, left) = (elem.bytes() as usize, Operand::Imm(0));
        Accesses { vec, elem_bytes, list, rows, left, rest: Rest::None }
    }

    fn load_singles(
        &mut self,
        elem: Scalar,
        n: usize,
        finder: &mut Finder,
        regs: Regs,
        none: super::global::Padding,
    ) {
        let rt = super::control::element_reg(elem);
        let bytes = elem.bytes() as usize;
        let per = if bytes < 4 { 4 / bytes } else { 1 };
        for (unit, d) in regs.iter().enumerate() {
            let mut parts: SmallVec<[Reg; 4]> = SmallVec::new();
            for r in unit * per..((unit + 1) * per).min(n) {
                let (addr, guard) = finder.point(self, r);
                let single = match per {
                    1 => {
                        self.b.mov_to(d, none.unit);
                        d
                    }
                    _ => self.b.imm(single_ty(bytes, rt), none.half),
                };
                self.load_element_to(guard, bytes, single, addr);
                parts.push(single);
            }
            // Fewer elements than a unit has: the first again.
            while per > 1 && parts.len() < per {
                parts.push(parts[0]);
            }
            if per > 1 {
                self.join_to(d, &parts);
            }
        }
    }

    /// The units of a value, in registers.
    fn unit_registers(&mut self, op: Op, v: Value, elem: Scalar) -> CodegenResult<SmallVec<[Reg; 32]>> {
        let value = self.vals[v];
        let t = self.expand(op, &value)?;
        let rt = super::control::element_reg(elem);
        Ok((0..t.regs.len())
            .map(|i| self.unit(&t, i))
            .collect::<List>()
            .into_iter()
            .map(|x| self.b.as_reg(rt, x))
            .collect())
    }

    /// The elements of a value, one operand each, in what memory has of them.
    fn singles_of(&mut self, op: Op, v: Value, elem: Scalar, n: usize) -> CodegenResult<SmallVec<[Reg; 32]>> {
        if elem == Scalar::I1 {
            let value = self.vals[v];
            let t = self.expand(op, &value)?;
            let units: List = (0..t.regs.len()).map(|i| self.unit(&t, i)).collect();
            let byte = |x| {
                let p = self.b.as_reg(RegTy::Pred, x);
                self.b.selp_b32(1, 0, p)
            };
            return Ok(units.into_iter().map(byte).collect());
        }
        let units = self.unit_registers(op, v, elem)?;
        let mut out: SmallVec<[Reg; 32]> = SmallVec::new();
        for u in units {
            out.extend(self.split(u, elem.bytes() as usize));
        }
        out.truncate(n);
        Ok(out)
    }

    fn store_points(&mut self, op: Op, value: Value, elem: Scalar, points: &mut Points) -> CodegenResult<()> {
        let (n, bytes) = (points.count, elem.bytes() as usize);
        let units = match points.vec {
            1 => SmallVec::new(),
            _ => self.unit_registers(op, value, elem)?,
        };
        let singles = match (points.vec, points.fits) {
            (2.., None) => SmallVec::new(),
            _ => self.singles_of(op, value, elem, n)?,
        };
        let all = Self::vectors_of(points.vec, elem);
        self.either(points, |this, finder, step| {
            for first in (0..n).step_by(step) {
                let (addr, guard) = finder.point(this, first);
                match step {
                    1 => {
                        if let Some(&x) = singles.get(first) {
                            this.store_element(guard, bytes, addr, x);
                        }
                    }
                    _ => this.store_vector(
                        &all,
                        &Access { first, addr, guard, row: 0, column: 0 },
                        elem,
                        &units,
                    ),
                }
            }
        });
        Ok(())
    }

    /// Atomic updates, one element each.
    fn update_points(
        &mut self,
        op: Op,
        value: Value,
        elem: Scalar,
        map: &LinearMap,
        points: &mut Points,
    ) -> CodegenResult<()> {
        let f = self.f;
        let n = points.count;
        let form = self.atomic_form(op, elem)?;
        let values = self.singles_of(op, value, elem, n)?;
        let compare = match f.named_operand(op, "compare") {
            Some(c) => Some(self.singles_of(op, c, elem, n)?),
            None => None,
        };
        let Some(result) = f.result(op) else { return self.err(Code::E0803, op, "malformed atomic") };
        let used = f.ops().any(|o| f.operands(o).contains(&result));
        let copies = map.replicas();
        let bits = match elem.bytes() {
            2 => RegTy::B16,
            8 => RegTy::B64,
            _ if form.form().mnemonic.ends_with(".f32") => RegTy::F32,
            _ => RegTy::B32,
        };
        let start = self.units.len();
        for i in 0..n {
            // Registers that hold copies are updated once.
            let own = i & copies.pivots as usize;
            if own != i {
                let first = self.units[start + own];
                self.units.push(first);
                continue;
            }
            let (addr, guard) = points.finder.point(self, i);
            let x = self.as_bits(values[i], bits);
            let none = if bits == RegTy::F32 { Operand::f32(0.0) } else { Operand::Imm(0) };
            let d = self.b.imm(bits, none);
            let mut operands: SmallVec<[Operand; 4]> = smallvec![d.into(), addr];
            if let Some(c) = &compare {
                let c = self.as_bits(c[i], bits);
                operands.push(c.into());
            }
            operands.push(x.into());
            if let Some(p) = guard {
                self.b.on(p);
            }
            self.b.emit(form, &operands);
            self.units.push(d.into());
        }
        if !used {
            self.units.truncate(start);
            return Ok(());
        }
        let rt = super::control::element_reg(elem);
        if elem.bytes() == 2 {
            let parts: SmallVec<[Reg; 32]> =
                (start..self.units.len()).map(|i| self.b.as_reg(bits, self.units[i])).collect();
            self.units.truncate(start);
            for pair in parts.chunks(2) {
                let d = self.b.reg(RegTy::B32);
                self.b.pack_b32_b16_to(d, [pair[0], pair[pair.len() - 1]]);
                self.units.push(d.into());
            }
        } else if rt == RegTy::F32 {
            for i in start..self.units.len() {
                let x = self.b.as_reg(bits, self.units[i]);
                let d = self.b.reg(RegTy::F32);
                self.b.mov_to(d, x);
                self.units[i] = d.into();
            }
        }
        let Some(layout) = f.value_data(result).layout() else {
            return self.err(Code::E0803, op, "the tile is not placed");
        };
        let (regs, ty) = (self.units_from(start), f.value_type(result));
        self.vals[result] = Val::Tile(TileVal { regs, splat: false, ty, elem, held: None, layout });
        Ok(())
    }

    /// A register of bits with what another one holds.
    pub(super) fn as_bits(&mut self, r: Reg, bits: RegTy) -> Reg {
        if self.b.func.ty(r) == bits {
            return r;
        }
        let d = self.b.reg(bits);
        self.b.mov_to(d, r);
        d
    }

    /// The form of an atomic update of elements of a type.
    pub(super) fn atomic_form(&self, op: Op, elem: Scalar) -> CodegenResult<PtxOp> {
        let f = self.f;
        // Those of tiles have fences.
        let tile = f.sparse_tile(op).is_some();
        let semantic = f.attr_name(op, keys::MEM_SEMANTIC).filter(|_| !tile).unwrap_or("relaxed");
        let scope = match f.attr_name(op, keys::MEM_SCOPE).unwrap_or("gpu") {
            "cluster" => "gpu",
            scope => scope,
        };
        let unsigned = f.has_attr(op, keys::UNSIGNED);
        let mode = match f.opcode(op) {
            Opcode::AtomicCas => "cas",
            _ => f.attr_name(op, keys::MODE).unwrap_or(""),
        };
        let bits = elem.bits();
        let what = match (mode, elem) {
            ("addi", Scalar::I32 | Scalar::I64) => format!("add_u{bits}"),
            ("addf", Scalar::F32 | Scalar::F64) => format!("add_{}", elem.name()),
            ("addf", Scalar::F16 | Scalar::BF16) => format!("add_noftz_{}", elem.name()),
            ("maxi" | "mini", Scalar::I32 | Scalar::I64) => {
                format!("{}_{}{bits}", &mode[..3], if unsigned { 'u' } else { 's' })
            }
            ("andi" | "xori", Scalar::I32 | Scalar::I64) => format!("{}_b{bits}", &mode[..3]),
            ("ori", Scalar::I32 | Scalar::I64) => format!("or_b{bits}"),
            ("exch" | "cas", Scalar::I32 | Scalar::F32 | Scalar::I64 | Scalar::F64) => {
                format!("{mode}_b{bits}")
            }
            _ => String::new(),
        };
        let name = format!("atom_{semantic}_{scope}_global_{what}");
        match PtxOp::from_name(&name) {
            Some(form) if !what.is_empty() => Ok(form),
            _ => self.unsupported(op, format!("in mode {mode} of {}", elem.name())),
        }
    }
}

/// Finds addresses and predicates, each part once.
struct Finder {
    lists: SmallVec<[List; 4]>,
    masks: Option<List>,
    /// The view; without one the coordinate counts from the pointer.
    view: Option<usize>,
    /// Whether it has 64 bits then.
    wide: bool,
    ptr: Reg,
    bytes: usize,
    owner: Option<Reg>,
    known: Known,
}

/// What has been computed.
#[derive(Default)]
struct Known {
    /// By coordinate and operand: the predicate that it is in bounds.
    bounds: Vec<(usize, Operand, Reg)>,
    /// By all coordinates but the last: address and predicate of a row.
    rows: Vec<(SmallVec<[Operand; 4]>, Reg, Option<Reg>)>,
    /// By row and last coordinate: the address.
    points: Vec<(usize, Operand, Reg)>,
}

impl Finder {
    fn in_bounds(&mut self, lw: &mut Lower<'_>, view: usize, d: usize, x: Operand) -> Reg {
        if let Some(k) = self.known.bounds.iter().rev().find(|k| k.0 == d && k.1 == x) {
            return k.2;
        }
        let size = lw.nv.views[view].size_reg[d].unwrap_or(Operand::Imm(0));
        let r = lw.b.as_reg(RegTy::B32, x);
        let p = lw.b.setp_lt_u32(r, size);
        self.known.bounds.push((d, x, p));
        p
    }

    fn row(&mut self, lw: &mut Lower<'_>, r: usize) -> usize {
        let rank = self.lists.len();
        let outer: SmallVec<[Operand; 4]> = self.lists[..rank - 1].iter().map(|l| at(l, r)).collect();
        if let Some(n) = self.known.rows.iter().rposition(|k| k.0 == outer) {
            return n;
        }
        let (mut addr, mut guard) = (self.ptr, self.owner);
        for (d, &x) in outer.iter().enumerate() {
            let Some(view) = self.view else { break };
            let p = self.in_bounds(lw, view, d, x);
            guard = Some(match guard {
                Some(q) => lw.b.and_pred(q, p),
                None => p,
            });
            let s = lw.nv.views[view].stride_reg[d].unwrap_or(Operand::Imm(1));
            let c = lw.b.as_reg(RegTy::B32, x);
            let part = lw.b.mul_wide_u32(c, s);
            let bytes = lw.b.shl_b64(part, self.bytes.trailing_zeros());
            addr = lw.b.add_s64(addr, bytes);
        }
        self.known.rows.push((outer, addr, guard));
        self.known.rows.len() - 1
    }

    /// Address and predicate of the element of a register.
    fn point(&mut self, lw: &mut Lower<'_>, r: usize) -> (Operand, Option<Reg>) {
        let last = self.lists.len() - 1;
        let n = self.row(lw, r);
        let (row, mut guard) = (self.known.rows[n].1, self.known.rows[n].2);
        let x = at(&self.lists[last], r);
        let inside = self.view.map(|view| self.in_bounds(lw, view, last, x));
        let mask = self.masks.as_ref().map(|m| lw.b.as_reg(RegTy::Pred, at(m, r)));
        for p in [inside, mask].into_iter().flatten() {
            guard = Some(guard.map_or(p, |q| lw.b.and_pred(q, p)));
        }
        let addr = match self.known.points.iter().rev().find(|k| k.0 == n && k.1 == x) {
            Some(k) => k.2,
            None => {
                let addr = match self.view {
                    None => lw.behind(row, x, self.wide, self.bytes as u32),
                    Some(_) => {
                        let c = lw.b.as_reg(RegTy::B32, x);
                        let bytes = lw.b.mul_wide_u32(c, self.bytes);
                        lw.b.add_s64(row, bytes)
                    }
                };
                self.known.points.push((n, x, addr));
                addr
            }
        };
        (Operand::addr(addr, 0), guard)
    }
}
