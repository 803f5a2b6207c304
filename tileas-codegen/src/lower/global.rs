//! Direct loads and stores of register tiles from and to views: vectors of up to 16 bytes, predicated by bounds. Elements of 8 and 16
//! bits go as parts of units of 32 bits, those of 64 bits as units of their own, truth values one by one as bytes.
//!
//! Every thread addresses the elements its layout gives it; consecutive registers along the innermost dimension
//! form vectors. Vectors want rows that begin on their alignment and end on their border. Where the type says so (an
//! innermost extent that they divide; the launch requirements then ask the same of the strides), vectors are all there
//! is. Elsewhere a branch that is uniform over the CTA decides at run time. Where vectors are aligned in any case, but the
//! tile reaches over the end of rows that end inside a vector, that one vector is accessed by element; a row that all lanes
//! of a warp load alike is then loaded by the warp together, a register's worth per lane, and handed round. Where strides
//! are not known to fit, all accesses are by element, each with its own bound, unless both fit.

use super::params::{self, POINTER_ALIGN};
use super::tile::strides;
use super::{Lower, TileVal, Val};
use crate::error::{Code, CodegenError, CodegenResult};
use crate::ir::{AttrData, Dim, Function, Layout, Op, Opcode, Scalar, TypeData, Value, keys};
use crate::layout::LinearMap;
use crate::nvvm::{Module, Operand, PtxOp, Reg, RegTy, Regs, Sym};
use smallvec::SmallVec;
use tileas_launch::Expr;

/// One vector access.
pub(super) struct Access {
    /// Its first register, as an element index.
    pub(super) first: usize,
    pub(super) addr: Operand,
    /// Predicate that all of it is in bounds; `None`: it always is.
    pub(super) guard: Option<Reg>,
    /// Index among the rows.
    pub(super) row: usize,
    /// Columns from the thread's first one.
    pub(super) column: u32,
}

/// What the accesses to one row of the tile share.
pub(super) struct Row {
    /// The elements' coordinates but the innermost.
    outer: SmallVec<[u64; 4]>,
    /// Address of the thread's first column.
    addr: Reg,
    /// Predicate that the row is in bounds and the thread's to access.
    guard: Option<Reg>,
}

/// Where vectors alone do not do.
#[derive(Copy, Clone)]
pub(super) enum Rest {
    /// Nowhere: rows begin and end at whole vectors.
    None,
    /// Vectors are aligned, but one may reach over the end of the row, unless the predicate holds.
    Tail(Reg),
    /// Vectors may also be unaligned, unless the predicate holds.
    Elements(Reg),
    /// As `Tail`, for one row that all lanes of a warp load alike; vectors may be out of bounds unless all are inside. The
    /// vectors have no guards.
    Alike,
}

/// All accesses of a thread.
pub(super) struct Accesses {
    /// Elements of a vector.
    pub(super) vec: usize,
    pub(super) elem_bytes: usize,
    pub(super) list: SmallVec<[Access; 16]>,
    pub(super) rows: SmallVec<[Row; 4]>,
    /// Elements of a row from the thread's first column on.
    pub(super) left: Operand,
    pub(super) rest: Rest,
}

/// See [`Lower::tail`].
struct Tail {
    over: Operand,
    bytes: Reg,
    is_it: SmallVec<[Reg; 16]>,
    /// The predicates of one row, each once.
    by_column: SmallVec<[(u32, Reg); 16]>,
}

/// What elements out of bounds read as: a unit of them, and a single one.
#[derive(Copy, Clone)]
pub(super) struct Padding {
    pub(super) unit: Operand,
    pub(super) half: Operand,
}

/// Declares the variables of a kernel, in the order of their names.
pub(super) fn declare_variables<'f>(
    f: &'f Function,
    module: &mut Module,
    is_taken: &dyn Fn(&str) -> bool,
) -> CodegenResult<SmallVec<[(&'f str, Sym); 2]>> {
    let mut all: SmallVec<[(&str, Op); 2]> = f
        .ops()
        .filter(|&op| f.opcode(op) == Opcode::Global)
        .filter_map(|op| Some((f.attr_str(op, keys::NAME)?, op)))
        .collect();
    all.sort_by_key(|v| v.0);
    all.dedup_by_key(|v| v.0);
    let mut out = SmallVec::new();
    for (name, op) in all {
        let wrong = |text: String| CodegenError::new(Code::E0804, f.op_loc(op), text);
        if is_taken(name) {
            return Err(wrong(format!("a variable cannot be called `{name}`: a kernel or its memory is")));
        }
        let elem = f.result(op).and_then(|v| f.value_data(v).elem()).unwrap_or(Scalar::I8);
        let bytes = f.variable_len(op).unwrap_or(0).saturating_mul(elem.bytes().into());
        let bytes = u32::try_from(bytes).map_err(|_| wrong(format!("a variable of {bytes} bytes")))?;
        let init =
            initial(f, op, elem).ok_or_else(|| wrong(format!("values that are none of {}", elem.name())))?;
        let align = f.attr_int(op, keys::ALIGN).map_or(POINTER_ALIGN, |n| n as u32).max(elem.bytes());
        out.push((name, module.global(name, bytes, align, init)));
    }
    Ok(out)
}

/// The bytes that a variable begins with, up to the last that is not zero.
fn initial(f: &Function, op: Op, elem: Scalar) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let list = match f.attr(op, keys::VALUES) {
        Some(AttrData::Array(list)) => list.as_slice(),
        _ => &[],
    };
    for &a in list {
        let bits = match *f.attr_data(a) {
            AttrData::Int(v, _) if elem.is_int() => v as u64,
            AttrData::Int(v, _) => params::elem(elem).encode(v as f64)?,
            AttrData::Float(x, _) => params::elem(elem).encode(x.get())?,
            _ => return None,
        };
        out.extend_from_slice(&bits.to_le_bytes()[..elem.bytes() as usize]);
    }
    out.truncate(out.iter().rposition(|&b| b != 0).map_or(0, |n| n + 1));
    Some(out)
}

/// What is done with the accesses of a tile.
#[derive(Copy, Clone)]
enum Way<'r> {
    /// To registers, with what they hold of elements out of bounds.
    Load(Regs, Operand),
    /// From registers.
    Store(&'r [Reg]),
}

impl Accesses {
    /// Bytes of a unit: a register of a tile.
    fn unit_bytes(&self) -> usize {
        self.elem_bytes.max(4)
    }

    /// Elements of a unit.
    fn per_unit(&self) -> usize {
        self.unit_bytes() / self.elem_bytes
    }

    /// Whether vectors are whole units.
    fn has_vectors(&self) -> bool {
        self.vec * self.elem_bytes >= 4
    }
}

/// The register that holds a single element of so many bytes, where units are of that type.
pub(super) fn single_ty(elem_bytes: usize, unit: RegTy) -> RegTy {
    match elem_bytes {
        1 => RegTy::B32,
        2 => RegTy::B16,
        _ => unit,
    }
}

impl Lower<'_> {
    /// The view that an op accesses, and where it begins.
    pub(super) fn view_of(&self, op: Op) -> CodegenResult<(usize, Reg)> {
        let view = self.f.named_operand(op, "view").and_then(|v| self.abi.view_index(v));
        let Some(view) = view else {
            return self.err(Code::E0804, op, "the view is no kernel parameter, nor made of one");
        };
        match self.nv.views[view].pointer_reg {
            Some(ptr) => Ok((view, ptr)),
            None => self.err(Code::E0803, op, "view without pointer"),
        }
    }

    /// The pointer through which an op accesses memory, if it does.
    pub(super) fn pointer_of(&mut self, op: Op) -> CodegenResult<Option<Reg>> {
        let f = self.f;
        let Some(p) =
            f.named_operand(op, "view").filter(|&v| matches!(f.value_data(v), TypeData::Ptr { .. }))
        else {
            return Ok(None);
        };
        let address = self.scalar(op, p)?;
        Ok(Some(self.b.as_reg(RegTy::B64, address)))
    }

    /// What is `count` elements behind a pointer, signed.
    pub(super) fn behind(&mut self, pointer: Reg, count: Operand, wide: bool, bytes: u32) -> Reg {
        let bytes = match count {
            Operand::Imm(n) => return self.b.add_s64(pointer, n.wrapping_mul(i64::from(bytes))),
            x if wide => {
                let r = self.b.as_reg(RegTy::B64, x);
                self.b.shl_b64(r, bytes.trailing_zeros())
            }
            x => {
                let r = self.b.as_reg(RegTy::B32, x);
                self.b.mul_wide_s32(r, bytes as i64)
            }
        };
        self.b.add_s64(pointer, bytes)
    }

    /// A pointer moved on.
    pub(super) fn offset(&mut self, op: Op) -> CodegenResult<()> {
        let f = self.f;
        let &[pointer, by] = f.operands(op) else { return self.err(Code::E0803, op, "malformed offset") };
        // One of which only tensor maps are made is not passed.
        let Val::Scalar(address) = self.vals[pointer] else { return Ok(()) };
        let wide = f.value_data(by).elem() == Some(Scalar::I64);
        let bytes = f.value_data(pointer).elem().map_or(1, Scalar::bytes);
        let (address, by) = (self.b.as_reg(RegTy::B64, address), self.scalar(op, by)?);
        let moved = self.behind(address, by, wide, bytes);
        self.set(op, Val::Scalar(moved.into()));
        Ok(())
    }

    /// The address of a variable.
    pub(super) fn variable(&mut self, op: Op) -> CodegenResult<()> {
        let name = self.f.attr_str(op, keys::NAME);
        let found = name.and_then(|name| self.variables.binary_search_by_key(&name, |v| v.0).ok());
        let Some(&(_, sym)) = found.and_then(|n| self.variables.get(n)) else {
            return self.err(Code::E0803, op, "a variable without a name");
        };
        let address = self.b.reg(RegTy::B64);
        self.b.emit(PtxOp::MovGlobalU64, &[address.into(), sym.into()]);
        self.set(op, Val::Scalar(address.into()));
        Ok(())
    }

    /// A view of what a pointer leads to: where it begins, its extents and strides, for the accesses that follow.
    pub(super) fn make_view(&mut self, op: Op) -> CodegenResult<()> {
        let f = self.f;
        self.set(op, Val::View);
        let view = f.result(op).and_then(|v| self.abi.view_index(v));
        let Some(view) = view else { return self.err(Code::E0803, op, "malformed view") };
        let (direct, sizes) = (self.abi.views[view].direct, self.abi.views[view].sizes);
        let narrow = |this: &mut Self, v: Value| -> CodegenResult<Operand> {
            let x = this.scalar(op, v)?;
            match (x, f.value_data(v).elem()) {
                (Operand::Reg(r), Some(Scalar::I64)) => Ok(this.b.cvt_u32_u64(r).into()),
                _ => Ok(x),
            }
        };
        if direct || sizes {
            for (d, &v) in f.named_segment(op, "extents").iter().enumerate() {
                if self.abi.views[view].dims.get(d) == Some(&Dim::Dynamic) {
                    self.nv.views[view].size_reg[d] = Some(narrow(self, v)?);
                }
            }
        }
        if direct {
            for (d, &v) in f.named_segment(op, "strides").iter().enumerate() {
                self.nv.views[view].stride_reg[d] = Some(narrow(self, v)?);
            }
            let Some(&pointer) = f.operands(op).first() else { return Ok(()) };
            let address = self.scalar(op, pointer)?;
            self.nv.views[view].pointer_reg = Some(self.b.as_reg(RegTy::B64, address));
        }
        Ok(())
    }

    /// Addresses and predicates of all vectors of a tile; `vec` elements each. Where there is but one way to access them that is done right
    /// here, each with its address before it, and the list is empty.
    fn accesses(
        &mut self,
        op: Op,
        dims: &[u32],
        elem: Scalar,
        layout: Layout,
        way: Way<'_>,
    ) -> CodegenResult<Accesses> {
        let store = matches!(way, Way::Store(_));
        let f = self.f;
        let (view, ptr) = self.view_of(op)?;
        let coords = f.named_segment(op, "coords");
        let rank = dims.len();
        if coords.len() != rank || self.abi.views[view].dims.len() != rank {
            return self.err(Code::E0803, op, format!("{rank} coordinates, but got {}", coords.len()));
        }
        let l = self.linear(op, layout, dims)?;
        let st = strides(dims);
        let n = 1usize << l.register().len();
        let elem_bytes = elem.bytes() as usize;
        let inner = *dims.last().unwrap_or(&1) as usize;
        let mut vec = 1;
        while vec * 2 * elem_bytes <= 16
            && vec * 2 <= n
            && vec * 2 <= inner
            && l.register()[vec.trailing_zeros() as usize] == vec as u32
        {
            vec *= 2;
        }
        let thread = self.thread_flat(&l);
        let mut base: SmallVec<[Operand; 4]> = SmallVec::new();
        for d in 0..rank {
            let origin = self.first_element(op, coords[d], dims[d])?;
            let t = if dims[d] == 1 {
                Operand::Imm(0)
            } else {
                let t = self.b.fold_shr(thread, st[d].trailing_zeros());
                if d == 0 { t } else { self.b.fold_and(t, dims[d] - 1) }
            };
            base.push(self.b.fold_add(origin, t));
        }
        let alike = !store
            && elem_bytes <= 4
            && self.lane.is_some()
            && n >= 2 * vec
            && l.replicas().lanes == 31
            && l.register().iter().fold(0, |all, m| all | m) == n as u32 - 1;
        let rest = self.rest(op, view, vec, inner, alike)?;
        let size = self.nv.views[view].size_reg[rank - 1].unwrap_or(Operand::Imm(0));
        let left = self.left(size, base[rank - 1]);
        let owner = if store { self.owner_guard(&l) } else { None };
        let mut all = Accesses { vec, elem_bytes, list: SmallVec::new(), rows: SmallVec::new(), left, rest };
        let at_once = matches!(rest, Rest::None) && all.has_vectors();
        for first in (0..n).step_by(vec) {
            let flat = u64::from(l.element(first as u32, 0, 0));
            let outer: SmallVec<[u64; 4]> =
                (0..rank - 1).map(|d| flat / st[d] % u64::from(dims[d])).collect();
            // Each row once: what reaches over its end is stored by whoever has it, for all its accesses together.
            let known = all.rows.iter().rposition(|r| r.outer == outer);
            let row = match known {
                Some(n) => n,
                None => {
                    let row = self.row(view, ptr, elem_bytes, &base, outer, owner);
                    all.rows.push(row);
                    all.rows.len() - 1
                }
            };
            let (addr, guard) = (all.rows[row].addr, all.rows[row].guard);
            let column = (flat % u64::from(dims[rank - 1])) as u32;
            let access = Access {
                first,
                addr: Operand::addr(addr, (column as usize * elem_bytes) as i32),
                guard: match rest {
                    Rest::Alike => None,
                    _ => self.exceeds(left, column + vec as u32 - 1, guard),
                },
                row,
                column,
            };
            match way {
                Way::Load(regs, none) if at_once => {
                    let unit = first / all.per_unit();
                    let own = regs.slice(unit, unit + vec * elem_bytes / all.unit_bytes());
                    if access.guard.is_some() {
                        own.iter().for_each(|r| self.b.mov_to(r, none));
                    }
                    self.load_vector(&all, &access, elem, regs);
                }
                Way::Store(regs) if at_once => self.store_vector(&all, &access, elem, regs),
                _ => all.list.push(access),
            }
        }
        Ok(all)
    }

    /// Address and predicate of a row.
    fn row(
        &mut self,
        view: usize,
        ptr: Reg,
        elem_bytes: usize,
        base: &[Operand],
        outer: SmallVec<[u64; 4]>,
        owner: Option<Reg>,
    ) -> Row {
        let (mut guard, mut addr) = (owner, None);
        let rank = base.len();
        for d in 0..rank - 1 {
            let g = self.b.fold_add(base[d], outer[d]);
            let g = self.b.as_reg(RegTy::B32, g);
            let size = self.nv.views[view].size_reg[d].unwrap_or(Operand::Imm(0));
            let p = self.b.setp_lt_u32(g, size);
            guard = Some(match guard {
                Some(q) => self.b.and_pred(q, p),
                None => p,
            });
            let s = self.nv.views[view].stride_reg[d].unwrap_or(Operand::Imm(1));
            let part = self.b.mul_wide_u32(g, s);
            let bytes = self.b.shl_b64(part, elem_bytes.trailing_zeros());
            addr = Some(self.b.add_s64(addr.unwrap_or(ptr), bytes));
        }
        let addr = addr.unwrap_or(ptr);
        let addr = match base[rank - 1] {
            Operand::Imm(0) => addr,
            Operand::Imm(v) => self.b.add_s64(addr, v * elem_bytes as i64),
            x => {
                let r = self.b.as_reg(RegTy::B32, x);
                let bytes = self.b.mul_wide_u32(r, elem_bytes);
                self.b.add_s64(addr, bytes)
            }
        };
        Row { outer, addr, guard }
    }

    /// `size - index`, or 0 where the index is behind the end.
    fn left(&mut self, size: Operand, index: Operand) -> Operand {
        match (size, index) {
            (s, Operand::Imm(0)) => s,
            (_, Operand::Imm(i)) if i < 0 => Operand::Imm(0),
            (Operand::Imm(s), Operand::Imm(i)) => Operand::Imm((s - i).max(0)),
            (s, i) => {
                let i = self.b.as_reg(RegTy::B32, i);
                let end = self.b.max_u32(i, s);
                self.b.sub_u32(end, i).into()
            }
        }
    }

    /// Predicate that `left > n` (and `also`); `None` where that always holds.
    fn exceeds(&mut self, left: Operand, n: u32, also: Option<Reg>) -> Option<Reg> {
        if matches!(left, Operand::Imm(l) if l > i64::from(n)) {
            return also;
        }
        let left = self.b.as_reg(RegTy::B32, left);
        Some(match also {
            Some(q) => self.b.setp_gt_and_u32(left, n, q),
            None => self.b.setp_gt_u32(left, n),
        })
    }

    /// Where vectors of `vec` elements may be unaligned or partly out of bounds. Predicates are the same for all threads.
    /// `alike`: all lanes of a warp load the same single row.
    fn rest(&mut self, op: Op, view: usize, vec: usize, inner: usize, alike: bool) -> CodegenResult<Rest> {
        let info = &self.abi.views[view];
        let rank = info.dims.len();
        if vec <= 1 || rank == 0 {
            return Ok(Rest::None);
        }
        let ends = matches!(info.dims[rank - 1], Dim::Static(n) if (n as usize).is_multiple_of(vec));
        let mapped = self.abi.maps.iter().any(|m| m.view == view);
        let begins = self.begins_aligned(view, vec);
        if ends
            && begins.is_none()
            && let Some(fit) = self.strides_fit(view, vec)
        {
            self.requires.extend(fit);
            return Ok(Rest::None);
        }
        if alike && begins.is_none() && (mapped || rank == 1) {
            return Ok(Rest::Alike);
        }
        let mask = vec as i64 - 1;
        let size = self.nv.views[view].size_reg[rank - 1].unwrap_or(Operand::Imm(0));
        let over = self.b.fold_and(size, mask);
        let over = self.b.as_reg(RegTy::B32, over);
        let divides = self.b.setp_eq_u32(over, 0);
        let Some(&last) = self.f.named_segment(op, "coords").last() else { return Ok(Rest::None) };
        let origin = self.first_element(op, last, inner as u32)?;
        let end = self.b.fold_add(origin, inner as i64 - 1);
        let end = self.b.as_reg(RegTy::B32, end);
        let inside = self.b.setp_lt_u32(end, size);
        let whole = self.b.or_pred(divides, inside);
        if begins.is_some() || !mapped && rank > 1 {
            let mut strides = Operand::Imm(0);
            for d in 0..rank - 1 {
                let s = self.nv.views[view].stride_reg[d].unwrap_or(Operand::Imm(1));
                strides = match strides {
                    Operand::Imm(0) => s,
                    x => self.b.or_b32(x, s).into(),
                };
            }
            let over = self.b.fold_and(strides, mask);
            let over = self.b.as_reg(RegTy::B32, over);
            let mut aligned = self.b.setp_eq_u32(over, 0);
            if let Some(begins) = begins {
                aligned = self.b.and_pred(aligned, begins);
            }
            return Ok(Rest::Elements(self.b.and_pred(whole, aligned)));
        }
        Ok(Rest::Tail(whole))
    }

    /// Where it is not known that the address of a view is a multiple of `vec` elements: the predicate that it is.
    pub(super) fn begins_aligned(&mut self, view: usize, vec: usize) -> Option<Reg> {
        let info = &self.abi.views[view];
        let bytes = vec as u32 * info.elem.bytes();
        let pointer = self.nv.views[view].pointer_reg.filter(|_| bytes > info.aligned)?;
        let low = self.b.cvt_u32_u64(pointer);
        let over = self.b.fold_and(low, i64::from(bytes) - 1);
        let over = self.b.as_reg(RegTy::B32, over);
        Some(self.b.setp_eq_u32(over, 0))
    }

    /// What the host is to check so that all rows of a view begin at whole vectors, if it can.
    pub(super) fn strides_fit(&self, view: usize, vec: usize) -> Option<SmallVec<[Expr; 4]>> {
        let info = &self.abi.views[view];
        let mapped = self.abi.maps.iter().any(|m| m.view == view);
        let fit = |d| info.stride(d).map(|s| s.is_multiple_of(vec as i64));
        (0..info.dims.len().saturating_sub(1)).filter(|_| !mapped).map(fit).collect()
    }

    /// The address of element `e` of a vector and the predicate that it is in bounds.
    fn vector_element(&mut self, all: &Accesses, a: &Access, e: usize) -> (Operand, Option<Reg>) {
        let row = &all.rows[a.row];
        let at = a.column + e as u32;
        let p = self.exceeds(all.left, at, row.guard);
        (Operand::addr(row.addr, (at as usize * all.elem_bytes) as i32), p)
    }

    /// Runs `vectors`, and where they do not do what does: `tail` after them or `elements` in their place.
    fn access(
        &mut self,
        rest: Rest,
        vectors: impl FnOnce(&mut Self),
        tail: impl FnOnce(&mut Self),
        elements: impl FnOnce(&mut Self),
    ) {
        match rest {
            Rest::None | Rest::Alike => vectors(self),
            Rest::Tail(whole) => {
                vectors(self);
                let join = self.b.block();
                self.b.br_on(whole, join);
                tail(self);
                self.b.place(join);
            }
            Rest::Elements(whole) => {
                let (slow, join) = (self.b.block(), self.b.block());
                self.b.br_on_not(whole, slow);
                vectors(self);
                self.b.bra(join);
                self.b.place(slow);
                elements(self);
                self.b.place(join);
            }
        }
    }

    /// The vector that reaches over the end of the rows: how many of its elements are in bounds, its distance from the
    /// thread's first column in elements and in bytes, and, by access, the predicate that it is this one.
    fn tail(&mut self, all: &Accesses) -> Tail {
        let over = self.b.fold_and(all.left, all.vec as i64 - 1);
        let column = self.b.fold_sub(all.left, over);
        let column = self.b.as_reg(RegTy::B32, column);
        let bytes = self.b.mul_wide_u32(column, all.elem_bytes);
        let mut by_column: SmallVec<[(u32, Reg); 16]> = SmallVec::new();
        let mut is_it = SmallVec::new();
        for a in &all.list {
            let p = match by_column.iter().find(|x| x.0 == a.column) {
                Some(&(_, p)) => p,
                None => {
                    let p = self.b.setp_eq_u32(column, a.column);
                    by_column.push((a.column, p));
                    p
                }
            };
            is_it.push(p);
        }
        Tail { over, bytes, is_it, by_column }
    }

    /// Predicate that the vector that reaches over the end of a row is one of the thread's: its elements belong to the
    /// thread that would access it whole, so that what is read and written in place is one thread's.
    fn owns_tail(&mut self, tail: &Tail) -> Option<Reg> {
        tail.by_column.iter().map(|c| c.1).reduce(|p, q| self.b.or_pred(p, q))
    }

    fn both(&mut self, p: Option<Reg>, q: Option<Reg>) -> Option<Reg> {
        match (p, q) {
            (Some(p), Some(q)) => Some(self.b.and_pred(p, q)),
            (p, q) => p.or(q),
        }
    }

    /// Predicate of the threads that own their elements (replicas do not store).
    pub(super) fn owner_guard(&mut self, l: &LinearMap) -> Option<Reg> {
        let mut guard = None;
        let copies = l.replicas();
        let lanes = copies.lanes;
        if lanes != 0
            && let Some(lane) = self.lane
        {
            let m = self.b.and_b32(lane, lanes);
            guard = Some(self.b.setp_eq_u32(m, 0));
        }
        let warps = copies.warps;
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

    /// What elements out of bounds read as.
    pub(super) fn padding(&mut self, elem: Scalar, pad: f64) -> Padding {
        let whole = Operand::Imm(pad as i64);
        match elem {
            _ if pad == 0.0 && !pad.is_sign_negative() && matches!(elem.bits(), 8 | 16) => {
                Padding { unit: Operand::Imm(0), half: Operand::Imm(0) }
            }
            Scalar::F16 | Scalar::BF16 => {
                let x = self.b.imm(RegTy::F32, Operand::f32(pad as f32));
                let half =
                    if elem == Scalar::F16 { self.b.cvt_rn_f16_f32(x) } else { self.b.cvt_rn_bf16_f32(x) };
                let unit = self.b.reg(RegTy::B32);
                self.b.pack_b32_b16_to(unit, [half, half]);
                Padding { unit: unit.into(), half: half.into() }
            }
            Scalar::I16 => {
                let half = i64::from(pad as i64 as u16);
                Padding { unit: Operand::Imm(half << 16 | half), half: Operand::Imm(half) }
            }
            Scalar::E4M3 | Scalar::E5M2 | Scalar::UE8M0 => {
                let x = self.b.imm(RegTy::F32, Operand::f32(pad as f32));
                let pair = self.pair_of_bytes(x, x, elem);
                let unit = self.b.reg(RegTy::B32);
                self.b.pack_b32_b16_to(unit, [pair, pair]);
                Padding { unit: unit.into(), half: unit.into() }
            }
            _ if elem.bits() == 8 => {
                let byte = i64::from(pad as i64 as u8);
                Padding { unit: Operand::Imm(byte * 0x0101_0101), half: Operand::Imm(byte) }
            }
            _ if super::control::element_reg(elem) == RegTy::F32 => {
                let unit = Operand::f32(pad as f32);
                Padding { unit, half: unit }
            }
            Scalar::F64 => {
                let bits = Operand::Imm(pad.to_bits() as i64);
                Padding { unit: bits, half: bits }
            }
            _ => Padding { unit: whole, half: whole },
        }
    }

    pub(super) fn tiled_load(&mut self, op: Op) -> CodegenResult<()> {
        let f = self.f;
        let Some(result) = f.result(op) else { return self.err(Code::E0803, op, "load without result") };
        let data = f.value_data(result);
        let (Some(dims), Some(elem), Some(layout)) = (data.dims(), data.elem(), data.layout()) else {
            return self.err(Code::E0803, op, "the result is not a placed tile");
        };
        let pad = f.attr_number(op, crate::ir::keys::PADDING).unwrap_or(0.0);
        let n = self.elements_per_thread(op, layout, dims)?;
        // Truth values are bytes in memory.
        let truths = elem == Scalar::I1;
        let (elem, pad) = if truths { (Scalar::I8, f64::from(pad != 0.0)) } else { (elem, pad) };
        let rt = super::control::element_reg(elem);
        if !matches!(elem.bits(), 8 | 16 | 32 | 64) {
            return self.unsupported(op, format!("of {} elements", elem.name()));
        }
        let regs = self.b.regs(rt, super::units(elem, n));
        let none = self.padding(elem, pad);
        let all = self.accesses(op, dims, elem, layout, Way::Load(regs, none.unit))?;
        if all.list.is_empty() {
            // Loaded.
        } else if let Rest::Alike = all.rest {
            self.load_alike(&all, elem, regs, none);
        } else if let (Rest::Tail(whole), true) = (all.rest, all.has_vectors()) {
            self.load_tail(&all, elem, regs, whole, none);
            all.list.iter().for_each(|a| self.load_vector(&all, a, elem, regs));
        } else {
            for r in regs.iter() {
                self.b.mov_to(r, none.unit);
            }
            if !all.has_vectors() {
                self.load_elements(&all, elem, regs, none);
            } else {
                self.access(
                    all.rest,
                    |this| all.list.iter().for_each(|a| this.load_vector(&all, a, elem, regs)),
                    |_| (),
                    |this| this.load_elements(&all, elem, regs, none),
                );
            }
        }
        let (regs, ty) = (self.keep(regs.iter().map(Operand::Reg)), f.value_type(result));
        let tile = TileVal { regs, splat: false, ty, elem, held: None, layout };
        self.vals[result] = Val::Tile(if truths { self.truths(&tile, n) } else { tile });
        Ok(())
    }

    /// One row that all lanes of a warp hold alike. Where it is in bounds as a whole: vectors. Else each lane loads what one
    /// register holds, element by element, and hands it to the others: fewer loads than there are elements, and no
    /// register waits for more than one of them.
    fn load_alike(&mut self, all: &Accesses, elem: Scalar, regs: Regs, none: Padding) {
        let (Some(row), Some(lane)) = (all.rows.first(), self.lane) else { return };
        let rt = super::control::element_reg(elem);
        let per_unit = 4 / all.elem_bytes as u32;
        let inside = self.exceeds(all.left, regs.len() as u32 * per_unit - 1, row.guard);
        let Some(inside) = inside else {
            all.list.iter().for_each(|a| self.load_vector(all, a, elem, regs));
            return;
        };
        let (slow, join) = (self.b.block(), self.b.block());
        self.b.br_on_not(inside, slow);
        all.list.iter().for_each(|a| self.load_vector(all, a, elem, regs));
        self.b.bra(join);
        self.b.place(slow);
        let left = self.b.as_reg(RegTy::B32, all.left);
        let lanes = regs.len().min(32) as u32;
        let own = self.b.fold_and(lane, lanes - 1);
        let own = self.b.as_reg(RegTy::B32, own);
        let first = self.b.fold_mul(own, per_unit);
        let first = self.b.as_reg(RegTy::B32, first);
        let bytes = self.b.mul_wide_u32(own, 4);
        let addr = self.b.add_s64(row.addr, bytes);
        let mut loaded: SmallVec<[Reg; 4]> = SmallVec::new();
        for group in 0..(regs.len() as u32).div_ceil(lanes) {
            let mut parts: SmallVec<[Reg; 4]> = SmallVec::new();
            for e in 0..per_unit {
                let column = group * lanes * per_unit + e;
                let index = self.b.fold_add(first, column);
                let p = match row.guard {
                    Some(q) => self.b.setp_gt_and_u32(left, index, q),
                    None => self.b.setp_gt_u32(left, index),
                };
                let d = self.b.imm(single_ty(all.elem_bytes, rt), none.half);
                let at = Operand::addr(addr, (column as usize * all.elem_bytes) as i32);
                self.load_element_to(Some(p), all.elem_bytes, d, at);
                parts.push(d);
            }
            loaded.push(match *parts.as_slice() {
                [one] => one,
                _ => {
                    let d = self.b.reg(RegTy::B32);
                    self.join_to(d, &parts);
                    d
                }
            });
        }
        for a in &all.list {
            for e in (0..all.vec as u32).step_by(per_unit as usize) {
                let unit = (a.column + e) / per_unit;
                let to = regs.get((a.first + e as usize) / per_unit as usize);
                if let (Some(d), Some(&from)) = (to, loaded.get((unit / lanes) as usize)) {
                    let operands =
                        [d.into(), from.into(), (unit % lanes).into(), 31u32.into(), 0xffff_ffffu32.into()];
                    self.b.emit(PtxOp::ShflSyncIdxB32, &operands);
                }
            }
        }
        self.b.place(join);
    }

    /// `vec` elements at once, 4 to 16 bytes.
    pub(super) fn load_vector(&mut self, all: &Accesses, a: &Access, elem: Scalar, regs: Regs) {
        let bytes = all.vec * all.elem_bytes;
        let unit = a.first / all.per_unit();
        let count = bytes / all.unit_bytes();
        let part = regs.slice(unit, unit + count);
        let form = match (bytes, super::control::element_reg(elem)) {
            (16, RegTy::B64) => PtxOp::LdGlobalV2B64,
            (_, RegTy::B64) => PtxOp::LdGlobalB64,
            (16, RegTy::F32) => PtxOp::LdGlobalV4F32,
            (16, _) => PtxOp::LdGlobalV4B32,
            (8, RegTy::F32) => PtxOp::LdGlobalV2F32,
            (8, _) => PtxOp::LdGlobalV2B32,
            (_, RegTy::F32) => PtxOp::LdGlobalF32,
            _ => PtxOp::LdGlobalB32,
        };
        let dst = match (count > 1, part.get(0)) {
            (true, _) => self.b.list(&part),
            (false, Some(r)) => r.into(),
            (false, None) => return,
        };
        let form = self.plain_or_relaxed(form);
        self.guard(a.guard);
        self.b.emit(form, &[dst, a.addr]);
    }

    /// Loads a single element.
    pub(super) fn load_element_to(&mut self, guard: Option<Reg>, elem_bytes: usize, dst: Reg, addr: Operand) {
        let form = match (elem_bytes, self.b.func.ty(dst)) {
            (1, _) => PtxOp::LdGlobalU8,
            (2, _) => PtxOp::LdGlobalB16,
            (8, _) => PtxOp::LdGlobalB64,
            (_, RegTy::F32) => PtxOp::LdGlobalF32,
            _ => PtxOp::LdGlobalB32,
        };
        let form = self.plain_or_relaxed(form);
        self.guard(guard);
        self.b.emit(form, &[dst.into(), addr]);
    }

    /// Puts single elements together in a unit.
    pub(super) fn join_to(&mut self, unit: Reg, parts: &[Reg]) {
        match *parts {
            [low, high] => self.b.pack_b32_b16_to(unit, [low, high]),
            [a, b, c, d] => {
                let low = self.b.prmt_b32(a, b, 0x0040);
                let high = self.b.prmt_b32(c, d, 0x0040);
                self.b.prmt_b32_to(unit, low, high, 0x5410);
            }
            _ => {}
        }
    }

    /// The single elements of a unit.
    pub(super) fn split(&mut self, unit: Reg, elem_bytes: usize) -> SmallVec<[Reg; 4]> {
        match elem_bytes {
            1 => {
                let shifted = [8u32, 16, 24].map(|n| self.b.shr_u32(unit, n));
                std::iter::once(unit).chain(shifted).collect()
            }
            2 => self.b.unpack_b32_b16(unit).iter().collect(),
            _ => SmallVec::from_slice(&[unit]),
        }
    }

    /// Which of `n` bytes of a tile are not 0.
    fn truths(&mut self, bytes: &TileVal, n: usize) -> TileVal {
        let each = self.elements(bytes);
        let start = self.units.len();
        for i in each.range().take(n) {
            let byte = self.b.as_reg(RegTy::B32, self.units[i]);
            let truth = self.b.setp_ne_u32(byte, 0);
            self.units.push(truth.into());
        }
        TileVal { regs: self.units_from(start), elem: Scalar::I1, ..*bytes }
    }

    /// Truth values as bytes.
    fn bytes_of(&mut self, truths: &TileVal) -> TileVal {
        let start = self.units.len();
        for i in truths.regs.range() {
            let p = self.b.as_reg(RegTy::Pred, self.units[i]);
            let byte = self.b.selp_b32(1, 0, p);
            self.units.push(byte.into());
        }
        let each = self.units_from(start);
        TileVal { regs: self.collect(each, Scalar::I8), elem: Scalar::I8, ..*truths }
    }

    /// What registers hold where no whole vector is loaded into them: the elements in bounds of the vector that is not as a
    /// whole, loaded once a row by the threads it belongs to unless all are `whole`, and else the padding.
    fn load_tail(&mut self, all: &Accesses, elem: Scalar, regs: Regs, whole: Reg, none: Padding) {
        let tail = self.tail(all);
        let rt = super::control::element_reg(elem);
        let per_vector = all.vec / all.per_unit();
        let found = self.b.regs(rt, per_vector * all.rows.len());
        for d in found {
            self.b.mov_to(d, none.unit);
        }
        let join = self.b.block();
        self.b.br_on(whole, join);
        let mine = self.owns_tail(&tail);
        for (n, row) in all.rows.iter().enumerate() {
            let addr = self.b.add_s64(row.addr, tail.bytes);
            let own = self.both(row.guard, mine);
            let found = found.slice(n * per_vector, (n + 1) * per_vector);
            let mut parts: SmallVec<[Reg; 4]> = SmallVec::new();
            for e in 0..all.vec {
                let Some(d) = found.get(e / all.per_unit()) else { break };
                // The last element is out of bounds, else the vector would be whole.
                let last = e + 1 == all.vec;
                let guard = if last { None } else { self.exceeds(tail.over, e as u32, own) };
                let at = Operand::addr(addr, (e * all.elem_bytes) as i32);
                let single = match all.per_unit() {
                    1 => d,
                    _ => self.b.imm(single_ty(all.elem_bytes, rt), none.half),
                };
                if !last {
                    self.load_element_to(guard, all.elem_bytes, single, at);
                }
                parts.push(single);
                if parts.len() == all.per_unit() {
                    self.join_to(d, &parts);
                    parts.clear();
                }
            }
        }
        self.b.place(join);
        let select = match rt {
            RegTy::F32 => PtxOp::SelpF32,
            RegTy::B64 => PtxOp::SelpB64,
            _ => PtxOp::SelpB32,
        };
        for (a, &p) in all.list.iter().zip(&tail.is_it) {
            let unit = a.first / all.per_unit();
            let found = found.slice(a.row * per_vector, (a.row + 1) * per_vector);
            for (x, d) in found.into_iter().zip(regs.slice(unit, unit + per_vector)) {
                self.b.emit(select, &[d.into(), x.into(), none.unit, p.into()]);
            }
        }
    }

    /// Element by element; those that share a unit are put together at the end.
    fn load_elements(&mut self, all: &Accesses, elem: Scalar, regs: Regs, none: Padding) {
        let rt = super::control::element_reg(elem);
        let per = all.per_unit();
        let mut parts: SmallVec<[Reg; 4]> = SmallVec::new();
        let mut filled = 0;
        for a in &all.list {
            for e in 0..all.vec {
                let (addr, p) = self.vector_element(all, a, e);
                // Elements are in register order, first vector first.
                let Some(d) = regs.get(filled / per) else { return };
                filled += 1;
                if per == 1 {
                    self.load_element_to(p, all.elem_bytes, d, addr);
                    continue;
                }
                let h = self.b.imm(single_ty(all.elem_bytes, rt), none.half);
                self.load_element_to(p, all.elem_bytes, h, addr);
                parts.push(h);
                if parts.len() == per {
                    self.join_to(d, &parts);
                    parts.clear();
                }
            }
        }
        // Fewer elements than a unit has: the same ones again.
        if let (Some(&first), Some(d)) = (parts.first(), regs.iter().next_back()) {
            let all: SmallVec<[Reg; 4]> = (0..per).map(|k| parts.get(k).copied().unwrap_or(first)).collect();
            self.join_to(d, &all);
        }
    }

    fn guard(&mut self, guard: Option<Reg>) {
        if let Some(p) = guard {
            self.b.on(p);
        }
    }

    pub(super) fn tiled_store(&mut self, op: Op) -> CodegenResult<()> {
        let f = self.f;
        let Some(v) = f.named_operand(op, "value") else {
            return self.err(Code::E0803, op, "store without value");
        };
        let value = self.vals[v];
        let mut t = self.expand(op, &value)?;
        if t.elem == Scalar::I1 {
            t = self.bytes_of(&t);
        }
        if !matches!(t.elem.bits(), 8 | 16 | 32 | 64) {
            return self.unsupported(op, format!("of {} elements", t.elem.name()));
        }
        let rt = super::control::element_reg(t.elem);
        let units = t.regs.start as usize..(t.regs.start + t.regs.len) as usize;
        let regs: SmallVec<[Reg; 32]> = units.map(|i| self.b.as_reg(rt, self.units[i])).collect();
        let all = self.accesses(op, self.dims(&t), t.elem, t.layout, Way::Store(&regs))?;
        if all.list.is_empty() {
            return Ok(());
        }
        if !all.has_vectors() {
            self.store_elements(&all, &regs);
            return Ok(());
        }
        self.access(
            all.rest,
            |this| all.list.iter().for_each(|a| this.store_vector(&all, a, t.elem, &regs)),
            |this| this.store_tail(&all, t.elem, &regs),
            |this| this.store_elements(&all, &regs),
        );
        Ok(())
    }

    /// The elements in bounds of the vectors that are not as a whole: fetched from where they are, then stored once a row.
    fn store_tail(&mut self, all: &Accesses, elem: Scalar, regs: &[Reg]) {
        let tail = self.tail(all);
        let rt = super::control::element_reg(elem);
        let per_vector = all.vec / all.per_unit();
        let mine = self.owns_tail(&tail);
        for (n, row) in all.rows.iter().enumerate() {
            let addr = self.b.add_s64(row.addr, tail.bytes);
            let mut held: SmallVec<[Reg; 4]> = SmallVec::new();
            for (a, &p) in all.list.iter().zip(&tail.is_it).filter(|(a, _)| a.row == n) {
                let unit = a.first / all.per_unit();
                for k in 0..per_vector {
                    let Some(&r) = regs.get(unit + k) else { continue };
                    match held.get(k) {
                        Some(&h) => self.b.on(p).mov_to(h, r),
                        // The first needs no guard: what is held counts only if one of the predicates holds.
                        None => held.push(self.b.imm(rt, r)),
                    }
                }
            }
            let guard = self.both(row.guard, mine);
            let mut e = 0;
            for &h in &held {
                for x in self.split(h, all.elem_bytes) {
                    if e + 1 < all.vec {
                        let p = self.exceeds(tail.over, e as u32, guard);
                        let at = Operand::addr(addr, (e * all.elem_bytes) as i32);
                        self.store_element(p, all.elem_bytes, at, x);
                    }
                    e += 1;
                }
            }
        }
    }

    pub(super) fn store_vector(&mut self, all: &Accesses, a: &Access, elem: Scalar, regs: &[Reg]) {
        let bytes = all.vec * all.elem_bytes;
        let unit = a.first / all.per_unit();
        let count = bytes / all.unit_bytes();
        let src: SmallVec<[Operand; 4]> = regs.iter().skip(unit).take(count).map(|&r| r.into()).collect();
        let form = match (bytes, super::control::element_reg(elem)) {
            (16, RegTy::B64) => PtxOp::StGlobalV2B64,
            (_, RegTy::B64) => PtxOp::StGlobalB64,
            (16, RegTy::F32) => PtxOp::StGlobalV4F32,
            (16, _) => PtxOp::StGlobalV4B32,
            (8, RegTy::F32) => PtxOp::StGlobalV2F32,
            (8, _) => PtxOp::StGlobalV2B32,
            (_, RegTy::F32) => PtxOp::StGlobalF32,
            _ => PtxOp::StGlobalB32,
        };
        let data = match (count > 1, src.first()) {
            (true, _) => self.b.list(&src.as_slice()),
            (false, Some(&r)) => r,
            (false, None) => return,
        };
        let form = self.plain_or_relaxed(form);
        self.guard(a.guard);
        self.b.emit(form, &[a.addr, data]);
    }

    /// Stores a single element.
    pub(super) fn store_element(&mut self, guard: Option<Reg>, elem_bytes: usize, addr: Operand, x: Reg) {
        let form = match (elem_bytes, self.b.func.ty(x)) {
            (1, _) => PtxOp::StGlobalU8,
            (2, _) => PtxOp::StGlobalB16,
            (8, _) => PtxOp::StGlobalB64,
            (_, RegTy::F32) => PtxOp::StGlobalF32,
            _ => PtxOp::StGlobalB32,
        };
        let form = self.plain_or_relaxed(form);
        self.guard(guard);
        self.b.emit(form, &[addr, x.into()]);
    }

    fn store_elements(&mut self, all: &Accesses, regs: &[Reg]) {
        let per = all.per_unit();
        let mut known: Option<(usize, SmallVec<[Reg; 4]>)> = None;
        for a in &all.list {
            for e in 0..all.vec {
                let n = a.first + e;
                let (addr, p) = self.vector_element(all, a, e);
                let Some(&unit) = regs.get(n / per) else { continue };
                let parts = match known.take().filter(|k| k.0 == n / per) {
                    Some(k) => k.1,
                    None => self.split(unit, all.elem_bytes),
                };
                if let Some(&x) = parts.get(n % per) {
                    self.store_element(p, all.elem_bytes, addr, x);
                }
                known = Some((n / per, parts));
            }
        }
    }
}
