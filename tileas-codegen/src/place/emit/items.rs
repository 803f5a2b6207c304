//! Emission of one item for one slice.

use super::super::chains::{Chain, Family, Vector, rows_columns, tma_storable};
use super::loops::Slice;
use super::{Item, ItemKind, Placer};
use crate::constraints::{SLICE_WORDS, take};
use crate::error::{Code, CodegenError, CodegenResult};
use crate::ir::layouts::{register_layout, register_map};
use crate::ir::opcodes::{Traits, keys};
use crate::ir::types::Shape;
use crate::ir::{
    AttrData, Block, Layout, Op, Opcode, Scalar, Space, Swizzle, Type, TypeData, Value, ValueDef, push_number,
};
use crate::plan::Agent;
use crate::storage::classify::ValueClass;
use cranelift_entity::packed_option::PackedOption;
use smallvec::SmallVec;

/// Extents as attributes have them.
type Shape64 = SmallVec<[i64; 4]>;

/// Shape with its last extent divided.
fn cut(dims: &[u32], slices: u32) -> Shape {
    let mut out = Shape::from_slice(dims);
    if let Some(last) = out.last_mut() {
        *last /= slices;
    }
    out
}

/// What stands behind a name and `_` in the name of what was made of it.
pub(super) enum Suffix {
    /// The number of a slice.
    Number(u32),
    /// What it is.
    Text(&'static str),
    /// `t` and the number of a slice.
    Piece(u32),
}

impl From<u32> for Suffix {
    fn from(n: u32) -> Suffix {
        Suffix::Number(n)
    }
}

impl From<&'static str> for Suffix {
    fn from(text: &'static str) -> Suffix {
        Suffix::Text(text)
    }
}

impl Placer<'_> {
    pub(super) fn dims(&self, v: Value) -> Shape {
        Shape::from_slice(self.func.value_data(v).dims().unwrap_or(&[]))
    }

    pub(super) fn elem(&self, v: Value) -> Scalar {
        self.func.value_data(v).elem().unwrap_or(Scalar::I32)
    }

    pub(super) fn register_layout(&self, c: Chain, v: Value, vector: Vector) -> (Layout, bool) {
        let dims = self.func.value_data(v).dims().unwrap_or(&[]);
        let info = &self.chains.info[c];
        if info.family != Family::Assigned {
            return self.chains.layout(c, dims, vector);
        }
        // What only loops and branches take has none yet. One map has one spelling, so that types agree where maps do.
        let map = match self.classes.class(v) {
            ValueClass::Acc => self.moved_of(dims),
            _ => register_map(Layout::Blocked(0), dims, self.warps(c)),
        };
        let own = info.layouts.of_value(v).or_else(|| register_layout(&map?, dims));
        own.map_or_else(|| self.chains.layout(c, dims, vector), |layout| (layout, false))
    }

    /// Into how many slices a tile of a chain is cut.
    fn parts(&self, c: Chain, v: Value, vector: Vector) -> u32 {
        if self.register_layout(c, v, vector).1 { self.chains.info[c].slices } else { 1 }
    }

    pub(super) fn is_sliced(&self, item: Item) -> bool {
        let c = item.chain;
        let v = match item.kind {
            ItemKind::Op(op) => match self.func.result(op) {
                Some(v) if self.func.value_data(v).is_tile() => Some(v),
                _ => self.func.named_operand(op, "value"),
            },
            ItemKind::Read(v, _) => Some(v),
            ItemKind::Write(n) => Some(self.write_value(n).0),
            ItemKind::Carry(..) => None,
        };
        v.is_some_and(|v| self.parts(c, v, self.chains.vector[v]) > 1)
    }

    // ---- small helpers

    pub(super) fn tile(&mut self, dims: &[u32], elem: Scalar, space: Space, layout: Layout) -> Type {
        let (space, layout) = (Some(space), Some(layout));
        self.func.intern_type(TypeData::Tile { dims: Shape::from_slice(dims), elem, space, layout })
    }

    /// Makes an op and links it before the anchor of the current item.
    pub(super) fn op(
        &mut self,
        opcode: Opcode,
        operands: &[Value],
        segments: &[u32],
        results: &[Type],
        agent: PackedOption<Agent>,
    ) -> Op {
        let op = self.func.make_op(opcode, operands, segments, results, self.loc);
        self.func.insert_before(self.at, op);
        self.plan.op_agent[op] = agent;
        op
    }

    pub(super) fn first_result(&self, op: Op) -> Value {
        self.func.results(op)[0]
    }

    pub(super) fn keep_name(&mut self, new: Value, old: Value) {
        if let Some(name) = self.func.value_sym(old) {
            self.func.set_value_sym(new, name);
        }
    }

    /// Names `new` after `old` with a suffix, if `old` has a name.
    pub(super) fn name_after(&mut self, new: Value, old: Value, suffix: impl Into<Suffix>) {
        let Some(base) = self.func.value_name(old) else { return };
        self.text.clear();
        self.text.push_str(base);
        self.text.push('_');
        let (letters, number) = match suffix.into() {
            Suffix::Number(n) => ("", Some(n)),
            Suffix::Text(letters) => (letters, None),
            Suffix::Piece(n) => ("t", Some(n)),
        };
        self.text.push_str(letters);
        if let Some(n) = number {
            push_number(&mut self.text, n);
        }
        self.fresh_name(new);
    }

    /// Gives `new` the name in `text`, with a number if that is in use.
    pub(super) fn fresh_name(&mut self, new: Value) {
        let end = self.text.len();
        let mut n = 1_u64;
        loop {
            let name = self.func.intern_symbol(&self.text);
            if self.names.insert(name) {
                self.func.set_value_sym(new, name);
                return;
            }
            n += 1;
            self.text.truncate(end);
            self.text.push('_');
            push_number(&mut self.text, n);
        }
    }

    fn name_slice(&mut self, new: Value, old: Value, k: Slice, parts: u32) {
        if parts > 1 {
            match k {
                Slice::Fixed(k) => self.name_after(new, old, k),
                Slice::Iteration => self.name_after(new, old, "j"),
            }
        } else {
            self.keep_name(new, old);
        }
    }

    // ---- operands

    /// Slice `k` of an operand of a chain; `vector` says what a rank-1 leaf stands for.
    pub(super) fn get(
        &mut self,
        v: Value,
        c: Chain,
        block: Block,
        k: Slice,
        vector: Vector,
    ) -> CodegenResult<Value> {
        let pick = |list: &[Value]| {
            if list.len() == 1 { list.first() } else { list.get(k.number() as usize) }.copied()
        };
        let found = match self.classes.class(v) {
            ValueClass::None => Some(v),
            ValueClass::Leaf => {
                let place = self.register_layout(c, v, vector);
                Some(self.leaf(v, c, block, k, place))
            }
            ValueClass::Reg => pick(self.slice_pool.get(self.slices[v])),
            ValueClass::Acc | ValueClass::Smem => {
                let (mut at, number) = (Some(block), self.read_number(v, self.user));
                loop {
                    let Some(b) = at else { break None };
                    let of = |n: u32| self.reads.get(&(v, n, c, b));
                    if let Some(list) = of(number).or_else(|| of(0)) {
                        break pick(list);
                    }
                    at = self.func.block_parent(b).and_then(|p| self.func.op_block(p));
                }
            }
        };
        found.ok_or_else(|| {
            let name = self.func.value_name(v).unwrap_or("tile");
            CodegenError::new(Code::E0507, self.loc, format!("%{name} is used before it is placed"))
        })
    }

    /// A constant, splat or iota at the shape of a slice, made in the block that uses it.
    pub(super) fn leaf(
        &mut self,
        v: Value,
        c: Chain,
        block: Block,
        k: Slice,
        (layout, along): (Layout, bool),
    ) -> Value {
        let parts = if along { self.chains.info[c].slices } else { 1 };
        let Some(def) = self.func.defining_op(v) else { return v };
        let opcode = self.func.opcode(def);
        let sliced = opcode == Opcode::Iota && parts > 1;
        let (iteration, k) = if sliced { (self.iteration_index(k), k.number()) } else { (None, 0) };
        let key = (v, c, self.leaf_block(block), k, layout);
        if let Some(&made) = self.leaves.get(&key) {
            return made;
        }
        let (dims, elem) = (cut(&self.dims(v), parts), self.elem(v));
        let ty = self.tile(&dims, elem, Space::Rmem, layout);
        let operands: SmallVec<[Value; 4]> = SmallVec::from_slice(self.func.operands(def));
        let segments: SmallVec<[u32; 8]> = SmallVec::from_slice(self.func.segments(def));
        let op = self.op(opcode, &operands, &segments, &[ty], None.into());
        *self.func.inherent_mut(op) = self.func.inherent(def).clone();
        let mut made = self.first_result(op);
        if k > 0 || iteration.is_some() {
            let width = dims.last().copied().unwrap_or(1);
            let start = match iteration {
                Some(index) => self.slice_start(index, width, ty),
                None => {
                    let start = self.op(Opcode::Constant, &[], &[], &[ty], None.into());
                    self.func.set_int(start, keys::VALUE, i64::from(k) * i64::from(width));
                    self.first_result(start)
                }
            };
            let agent = self.chain_agent[c];
            let add = self.op(Opcode::Addi, &[made, start], &[1, 1], &[ty], agent);
            made = self.first_result(add);
        }
        self.name_after(made, v, "r");
        self.leaves.insert(key, made);
        made
    }

    /// The op behind the definition of a value; the anchor where there is none.
    pub(super) fn behind(&self, v: Value) -> Op {
        let next = match self.func.value_def(v) {
            ValueDef::Result(op, _) => self.func.next_op(op),
            ValueDef::Param(b, _) => self.func.first_op(b),
        };
        next.unwrap_or(self.at)
    }

    /// A coordinate of at least 32 bits, behind the definition of one that may have fewer: its multiples fit.
    fn wide_coordinate(&mut self, coord: Value) -> Value {
        if !matches!(self.func.value_data(coord).as_scalar(), Some(Scalar::I1 | Scalar::I8 | Scalar::I16)) {
            return coord;
        }
        if let Some(&v) = self.coords.get(&(coord, 0)).and_then(|list| list.first()) {
            return v;
        }
        let back = self.at;
        self.at = self.behind(coord);
        let ty = self.func.scalar(Scalar::I32);
        let op = match self.func.constant_value(coord) {
            Some(value) => {
                let op = self.op(Opcode::Constant, &[], &[], &[ty], None.into());
                self.func.set_int(op, keys::VALUE, value as i64);
                op
            }
            None => self.op(Opcode::Exti, &[coord], &[1], &[ty], None.into()),
        };
        self.at = back;
        let v = self.first_result(op);
        self.name_after(v, coord, "w");
        self.coords.insert((coord, 0), vec![v]);
        v
    }

    /// Tile coordinate of slice `k` of `parts` along an axis.
    fn slice_coordinate(&mut self, coord: Value, parts: u32, k: Slice) -> Value {
        if parts == 1 {
            return coord;
        }
        let Slice::Fixed(k) = k else { return self.iteration_coordinate(coord, parts) };
        if let Some(v) = self.coords.get(&(coord, parts)).and_then(|l| l.get(k as usize)) {
            return *v;
        }
        // Behind the definition of the coordinate, so that every block that sees it sees its slices.
        let back = self.at;
        self.at = self.behind(coord);
        let ty = self.func.value_type(coord);
        let constant = |this: &mut Self, n: i64| {
            let op = this.op(Opcode::Constant, &[], &[], &[ty], None.into());
            this.func.set_int(op, keys::VALUE, n);
            this.first_result(op)
        };
        let mut list = Vec::with_capacity(parts as usize);
        if let Some(value) = self.func.constant_value(coord) {
            for n in 0..parts {
                // A coordinate beyond 32 bits is out of bounds in any view: it stays so, without wrapping around.
                let exact = (value as i64).saturating_mul(i64::from(parts)).saturating_add(i64::from(n));
                let v = constant(self, exact.clamp(i64::from(i32::MIN), i64::from(i32::MAX)));
                self.name_after(v, coord, n);
                list.push(v);
            }
        } else {
            let first = self.times(coord, parts);
            list.push(first);
            for n in 1..parts {
                let offset = constant(self, i64::from(n));
                let add = self.op(Opcode::Addi, &[first, offset], &[1, 1], &[ty], None.into());
                let v = self.first_result(add);
                self.name_after(v, coord, n);
                list.push(v);
            }
        }
        self.at = back;
        let v = list[k as usize];
        self.coords.insert((coord, parts), list);
        v
    }

    /// A coordinate that is no constant, times the number of slices, here. One that would not fit becomes a negative one,
    /// which is out of bounds as well.
    pub(super) fn times(&mut self, coord: Value, parts: u32) -> Value {
        let ty = self.func.value_type(coord);
        let constant = |this: &mut Self, n: u32| {
            let op = this.op(Opcode::Constant, &[], &[], &[ty], None.into());
            this.func.set_int(op, keys::VALUE, i64::from(n));
            this.first_result(op)
        };
        // Grids have 65535 CTAs at most along the second and third axis.
        let small = self.func.defining_op(coord).is_some_and(|op| {
            self.func.opcode(op) == Opcode::ProgramId && self.func.attr_int(op, keys::AXIS) != Some(0)
        });
        let mut bounded = coord;
        if !small || parts > 1 << 15 {
            let beyond = constant(self, (1u32 << 31).div_ceil(parts));
            let least = self.op(Opcode::Mini, &[coord, beyond], &[1, 1], &[ty], None.into());
            let unit = self.func.intern_attr(AttrData::Unit);
            self.func.inherent_mut(least).set(keys::UNSIGNED, unit);
            bounded = self.first_result(least);
        }
        let factor = constant(self, parts);
        let mul = self.op(Opcode::Muli, &[bounded, factor], &[1, 1], &[ty], None.into());
        let first = self.first_result(mul);
        self.name_after(first, coord, "0");
        first
    }

    pub(super) fn slice_coordinates(&mut self, op: Op, parts: u32, k: Slice) -> SmallVec<[Value; 4]> {
        let mut coords: SmallVec<[Value; 4]> = SmallVec::from_slice(self.func.named_segment(op, "coords"));
        if let Some(last) = coords.last_mut().filter(|_| parts > 1) {
            let wide = self.wide_coordinate(*last);
            *last = self.slice_coordinate(wide, parts, k);
        }
        coords
    }

    // ---- items

    pub(super) fn emit(&mut self, item: Item, k: Slice) -> CodegenResult<()> {
        self.user = match item.kind {
            ItemKind::Op(op) => Some(op),
            _ => None,
        };
        match item.kind {
            ItemKind::Op(op) => {
                self.loc = self.func.op_loc(op);
                self.emit_op(item, op, k)
            }
            ItemKind::Read(v, number) => {
                self.loc = self.func.op_loc(self.at);
                self.emit_read(item, v, number, k);
                Ok(())
            }
            ItemKind::Write(n) => {
                self.loc = self.func.op_loc(self.write_value(n).1);
                self.emit_write(item, n, k)
            }
            ItemKind::Carry(op, operand, value, becomes) => {
                self.loc = self.func.op_loc(op);
                let vector = self.chains.vector[becomes];
                let v = match self.is_assigned(item.chain) {
                    true => {
                        let want = self.map_of_value(item.chain, becomes);
                        self.get_in(value, item.chain, item.block, want.as_ref())?
                    }
                    false => self.get(value, item.chain, item.block, k, vector)?,
                };
                self.func.set_operand(op, operand, v);
                Ok(())
            }
        }
    }

    fn emit_op(&mut self, item: Item, op: Op, k: Slice) -> CodegenResult<()> {
        let Item { chain: c, block, .. } = item;
        if self.is_assigned(c) {
            return self.emit_mapped(item, op);
        }
        let agent = self.plan.op_agent[op];
        let Some(result) = self.func.result(op).filter(|&v| self.func.value_data(v).is_tile()) else {
            return self.emit_store(item, op, k);
        };
        let vector = self.chains.vector[result];
        let (layout, along) = self.register_layout(c, result, vector);
        let parts = if along { self.chains.info[c].slices } else { 1 };
        let dims = cut(&self.dims(result), parts);
        let elem = self.elem(result);
        let ty = self.tile(&dims, elem, Space::Rmem, layout);
        let opcode = self.func.opcode(op);
        let new = match opcode {
            Opcode::ConvertLayout => {
                let source = self.func.operands(op)[0];
                let v = self.get(source, c, block, k, vector)?;
                self.slice_pool.push(&mut self.slices[result], v);
                return Ok(());
            }
            Opcode::ExtractSlice
                if matches!(
                    self.classes.class(self.func.operands(op)[0]),
                    ValueClass::Acc | ValueClass::Smem
                ) =>
            {
                let source = self.func.operands(op)[0];
                let mut offsets = self.func.attr_ints(op, keys::OFFSETS).unwrap_or_default();
                if let (Some(last), Some(&width)) = (offsets.last_mut(), dims.last()) {
                    *last += i64::from(k.number() * if parts > 1 { width } else { 0 });
                }
                let piece = self.piece(source, &offsets, &dims, k, agent);
                self.op(Opcode::Copy, &[piece], &[1, 0, 0, 0, 0, 0], &[ty], agent)
            }
            Opcode::TiledLoad => {
                let mut operands: SmallVec<[Value; 5]> =
                    SmallVec::from_slice(self.func.named_segment(op, "view"));
                operands.extend(self.slice_coordinates(op, parts, k));
                let segments: SmallVec<[u32; 8]> = SmallVec::from_slice(self.func.segments(op));
                let new = self.op(opcode, &operands, &segments, &[ty], agent);
                self.copy_attributes(op, new);
                new
            }
            _ => {
                let mut operands: SmallVec<[Value; 4]> = SmallVec::from_slice(self.func.operands(op));
                for v in &mut operands {
                    let hint = match opcode {
                        Opcode::Reshape if dims.len() > 1 && dims.last() == Some(&1) => Vector::OfRows,
                        Opcode::Reshape => Vector::OfColumns,
                        _ => vector,
                    };
                    *v = self.get(*v, c, block, k, hint)?;
                }
                if opcode == Opcode::Reshape && layout == Layout::Row && self.dims(operands[0]).len() == 1 {
                    operands[0] = self.one_per_row(operands[0], agent);
                }
                let segments: SmallVec<[u32; 8]> = SmallVec::from_slice(self.func.segments(op));
                let new = self.op(opcode, &operands, &segments, &[ty], agent);
                self.copy_attributes(op, new);
                if opcode == Opcode::ExtractSlice && parts > 1 {
                    let sizes: Shape64 = dims.iter().map(|&d| i64::from(d)).collect();
                    self.func.set_ints(new, keys::SIZES, &sizes);
                }
                new
            }
        };
        let v = self.first_result(new);
        self.name_slice(v, result, k, parts);
        self.slice_pool.push(&mut self.slices[result], v);
        Ok(())
    }

    /// A rank-1 tile with one element per row; converts where every thread holds all of it.
    fn one_per_row(&mut self, v: Value, agent: PackedOption<Agent>) -> Value {
        if self.func.value_data(v).layout() == Some(Layout::RowVec) {
            return v;
        }
        let (dims, elem) = (self.dims(v), self.elem(v));
        let ty = self.tile(&dims, elem, Space::Rmem, Layout::RowVec);
        let op = self.op(Opcode::ConvertLayout, &[v], &[1], &[ty], agent);
        self.first_result(op)
    }

    pub(super) fn copy_attributes(&mut self, from: Op, to: Op) {
        *self.func.inherent_mut(to) = self.func.inherent(from).clone();
        *self.func.discardable_mut(to) = self.func.discardable(from).clone();
        if self.chains.of_op[from].expand().is_some_and(|c| self.chains.info[c].heeds_words) {
            take(self.func, to, &SLICE_WORDS);
        }
    }

    /// `extract_slice` of a placed tile, unless the piece is the whole.
    pub(super) fn piece(
        &mut self,
        v: Value,
        offsets: &[i64],
        dims: &[u32],
        k: Slice,
        agent: PackedOption<Agent>,
    ) -> Value {
        if self.dims(v).as_slice() == dims {
            return v;
        }
        let data = self.func.value_data(v);
        let (Some(space), Some(layout)) = (data.space(), data.layout()) else { return v };
        let elem = self.elem(v);
        let ty = self.tile(dims, elem, space, layout);
        let index = self.iteration_index(k);
        let operands: SmallVec<[Value; 2]> = [Some(v), index].into_iter().flatten().collect();
        let op = self.op(Opcode::ExtractSlice, &operands, &[1, u32::from(index.is_some())], &[ty], agent);
        self.func.set_ints(op, keys::OFFSETS, offsets);
        let sizes: Shape64 = dims.iter().map(|&d| i64::from(d)).collect();
        self.func.set_ints(op, keys::SIZES, &sizes);
        let piece = self.first_result(op);
        match k {
            Slice::Fixed(k) => self.name_after(piece, v, Suffix::Piece(k)),
            Slice::Iteration => self.name_after(piece, v, "tj"),
        }
        piece
    }

    fn emit_read(&mut self, item: Item, v: Value, number: u32, k: Slice) {
        let c = item.chain;
        let agent = self.chain_agent[c];
        let (layout, along) = self.register_layout(c, v, Vector::Unknown);
        let parts = if along { self.chains.info[c].slices } else { 1 };
        let dims = cut(&self.dims(v), parts);
        let elem = self.elem(v);
        let mut offsets: SmallVec<[i64; 4]> = dims.iter().map(|_| 0).collect();
        if let (Some(last), Some(&width)) = (offsets.last_mut(), dims.last()) {
            *last = i64::from(k.number()) * i64::from(width);
        }
        let piece = self.piece(v, &offsets, &dims, k, agent);
        let ty = self.tile(&dims, elem, Space::Rmem, layout);
        let copy = self.op(Opcode::Copy, &[piece], &[1, 0, 0, 0, 0, 0], &[ty], agent);
        let new = self.first_result(copy);
        match k {
            _ if parts == 1 => self.name_after(new, v, "r"),
            Slice::Fixed(k) => self.name_after(new, v, k),
            Slice::Iteration => self.name_after(new, v, "j"),
        }
        self.reads.entry((v, number, c, item.block)).or_default().push(new);
    }

    fn emit_write(&mut self, item: Item, n: usize, k: Slice) -> CodegenResult<()> {
        let c = item.chain;
        let agent = self.chain_agent[c];
        let (value, _, _) = self.write_value(n);
        let ties = self.classes.ties.len();
        let parts = self.parts(c, value, self.chains.vector[value]);
        let (dims, elem) = (self.dims(value), self.elem(value));
        let (space, layout) = match n.checked_sub(ties) {
            None => {
                let (member, home) = (self.classes.ties[n].member, self.isa.acc_home());
                let (rows, columns) = crate::place::chains::rows_columns(&dims);
                let layout = self.layouts.of_value[member];
                let layout = layout.or_else(|| (home.layout)(rows, columns, self.warps(c)));
                (home.space, layout.ok_or_else(|| self.no_layout(value))?)
            }
            Some(i) => (Space::Smem, self.layouts.of_operand[i]),
        };
        let source = match self.is_assigned(c) {
            true => {
                // Operands are written in any layout.
                let want = (n < ties).then(|| self.moved_of(&dims)).flatten();
                self.get_in(value, c, item.block, want.as_ref())?
            }
            false => self.get(value, c, item.block, k, self.chains.vector[value])?,
        };
        // A whole tile is a value of its own, except where nothing yet holds the accumulator it starts.
        let suffix = if n < ties { "t" } else { "s" };
        if parts == 1 && (n >= ties || self.targets[n].is_some()) {
            let ty = self.tile(&dims, elem, space, layout);
            let copy = self.op(Opcode::Copy, &[source], &[1, 0, 0, 0, 0, 0], &[ty], agent);
            let new = self.first_result(copy);
            self.name_after(new, value, suffix);
            self.hand_over(n, new);
            return Ok(());
        }
        let dest = match self.write_dest[n].or(self.targets[n]) {
            Some(v) => v,
            None => {
                let ty = self.tile(&dims, elem, space, layout);
                let alloc = self.op(Opcode::AllocTensor, &[], &[], &[ty], None.into());
                let v = self.first_result(alloc);
                self.name_after(v, value, suffix);
                v
            }
        };
        if k.number() == 0 {
            self.write_dest[n] = Some(dest);
            self.hand_over(n, dest);
        }
        let copy = self.op(Opcode::Copy, &[source, dest], &[1, 0, 1, 0, 0, 0], &[], agent);
        let mut offsets: SmallVec<[i64; 4]> = dims.iter().map(|_| 0).collect();
        if let (Some(last), Some(&columns)) = (offsets.last_mut(), dims.last()) {
            *last = i64::from(k.number()) * i64::from(columns / parts);
        }
        self.func.set_ints(copy, keys::OFFSETS, &offsets);
        Ok(())
    }

    /// Gives all takers of a write its result.
    fn hand_over(&mut self, n: usize, new: Value) {
        for m in 0..self.shared_with.len() {
            if self.shared_with[m] == n {
                let (_, op, operand) = self.write_value(m);
                self.func.set_operand(op, operand, new);
            }
        }
    }

    fn emit_store(&mut self, item: Item, op: Op, k: Slice) -> CodegenResult<()> {
        let Item { chain: c, block, .. } = item;
        let agent = self.plan.op_agent[op];
        let (Some(value), Some(view)) =
            (self.func.named_operand(op, "value"), self.func.named_operand(op, "view"))
        else {
            return Ok(());
        };
        let vector = self.chains.vector[value];
        let parts = self.parts(c, value, vector);
        let source = self.get(value, c, block, k, vector)?;
        let coords = self.slice_coordinates(op, parts, k);
        let (rows, columns) = rows_columns(&cut(&self.dims(value), parts));
        let by_rows = self.chains.info[c].family == Family::Rows && rows > 1;
        if !by_rows || !tma_storable(self.func, op, columns, self.isa, self.opts) {
            let mut operands: SmallVec<[Value; 6]> = SmallVec::from_slice(&[source, view]);
            operands.extend(coords);
            let segments: SmallVec<[u32; 8]> = SmallVec::from_slice(self.func.segments(op));
            // A memory token, if asked for, is that of the last slice.
            let results: SmallVec<[Type; 1]> =
                self.func.results(op).iter().map(|&v| self.func.value_type(v)).collect();
            let new = self.op(Opcode::TiledStore, &operands, &segments, &results, agent);
            self.copy_attributes(op, new);
            return Ok(());
        }
        self.store_staged(op, source, view, &coords);
        Ok(())
    }

    /// A store through shared memory and TMA.
    pub(super) fn store_staged(&mut self, op: Op, source: Value, view: Value, coords: &[Value]) {
        let agent = self.plan.op_agent[op];
        let (dims, elem) = (self.dims(source), self.elem(source));
        let swizzle = Swizzle::widest(rows_columns(&dims).1.saturating_mul(elem.bytes()));
        let desc = self.store_descriptor(view, &dims, elem, swizzle);
        let ty = self.tile(&dims, elem, Space::Smem, Layout::SmemK(swizzle));
        let copy = self.op(Opcode::Copy, &[source], &[1, 0, 0, 0, 0, 0], &[ty], agent);
        let staged = self.first_result(copy);
        self.name_after(staged, source, "s");
        let mut operands: SmallVec<[Value; 6]> = SmallVec::from_slice(&[desc]);
        operands.extend_from_slice(coords);
        operands.push(staged);
        let segments = [1, operands.len() as u32 - 2, 1, 0];
        let store = self.op(Opcode::AsyncTiledTmaStore, &operands, &segments, &[], agent);
        self.copy_attributes(op, store);
    }

    /// The descriptor of a store, one per view, box and swizzle, at the top of the kernel.
    fn store_descriptor(&mut self, view: Value, dims: &[u32], elem: Scalar, swizzle: Swizzle) -> Value {
        let known =
            self.descs.iter().find(|(v, d, s, _)| *v == view && d.as_slice() == dims && *s == swizzle);
        if let Some((.., desc)) = known {
            return *desc;
        }
        let entry = self.func.entry();
        let last = self
            .func
            .block_ops(entry)
            .take_while(|&op| self.func.opcode(op).has(Traits::PURE))
            .filter(|&op| self.func.opcode(op) == Opcode::MakeTiledTmaDesc)
            .last()
            .and_then(|op| self.func.next_op(op));
        let back = self.at;
        // Behind what makes the view, if the kernel does.
        let made = self.func.defining_op(view).and_then(|op| self.func.next_op(op));
        self.at = made.or(last).or_else(|| self.func.first_op(entry)).unwrap_or(back);
        let ty = self.func.intern_type(TypeData::TmaDesc { dims: dims.into(), elem });
        let op = self.op(Opcode::MakeTiledTmaDesc, &[view], &[1], &[ty], None.into());
        let sizes: SmallVec<[i64; 4]> = dims.iter().map(|&d| i64::from(d)).collect();
        self.func.set_ints(op, keys::BOX, &sizes);
        let name = self.func.intern_symbol(swizzle.name());
        self.func.set_attr(op, keys::SWIZZLE, AttrData::Name(name));
        self.at = back;
        let desc = self.first_result(op);
        if let Some(base) = self.func.value_name(view) {
            self.text.clear();
            self.text.push('d');
            self.text.push_str(base);
            self.fresh_name(desc);
        }
        self.descs.push((view, dims.into(), swizzle, desc));
        desc
    }
}
