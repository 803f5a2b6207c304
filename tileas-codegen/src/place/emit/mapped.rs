//! Ops of chains in which each tile has a layout of its own, and the conversions between them.

use super::super::chains::{Chain, Family, reads_piece};
use super::super::derive;
use super::super::operands::{acc_moved, operand_layout};
use super::loops::Slice;
use super::{Item, Placer};
use crate::error::{Code, CodegenError, CodegenResult};
use crate::ir::layouts::{register_layout, register_map};
use crate::ir::opcodes::keys;
use crate::ir::{Block, Layout, Op, Opcode, Space, Type, Value, ValueDef};
use crate::layout::LinearMap;
use crate::plan::Agent;
use crate::storage::classify::ValueClass;
use cranelift_entity::packed_option::PackedOption;
use smallvec::SmallVec;

impl Placer<'_> {
    pub(super) fn is_assigned(&self, c: Chain) -> bool {
        self.chains.info[c].family == Family::Assigned
    }

    pub(super) fn warps(&self, c: Chain) -> u32 {
        self.chain_agent[c].expand().map_or(1, |a| self.plan.agents[a].warps).max(1)
    }

    /// The map of a value of the source in its chain; none for what is made anew.
    pub(super) fn map_of_value(&self, c: Chain, v: Value) -> Option<LinearMap> {
        let layout = self.chains.info[c].layouts.of_value(v)?;
        register_map(layout, self.func.value_data(v).dims()?, self.warps(c))
    }

    /// The map of a placed value.
    fn map_of_placed(&self, c: Chain, v: Value) -> Option<LinearMap> {
        let data = self.func.value_data(v);
        register_map(data.layout()?, data.dims()?, self.warps(c))
    }

    /// How a tile is moved to an accumulator.
    pub(super) fn moved_of(&self, dims: &[u32]) -> Option<LinearMap> {
        let simt = self.plan.agents.values().next().map_or(1, |a| a.warps);
        acc_moved(self.isa, dims, simt)
    }

    pub(super) fn no_layout(&self, v: Value) -> CodegenError {
        let text = format!("no layout of {}", self.func.value_data(v));
        CodegenError::new(Code::E0506, self.loc, text)
    }

    /// A value of a chain in a layout, or, if none is given, in its own.
    pub(super) fn get_in(
        &mut self,
        v: Value,
        c: Chain,
        block: Block,
        want: Option<&LinearMap>,
    ) -> CodegenResult<Value> {
        let dims = self.dims(v);
        let class = self.classes.class(v);
        if class == ValueClass::None {
            return Ok(v);
        }
        let known = self.chains.info[c].layouts.of_value(v).is_some();
        if class == ValueClass::Leaf || class == ValueClass::Reg && !known {
            let warps = self.warps(c);
            let plain = || match dims.is_empty() {
                // One element, which every thread has.
                true => LinearMap::registers(&[], &[0; 5], &vec![0; warps.ilog2() as usize]),
                false => register_map(Layout::Blocked(0), &dims, warps),
            };
            let map = want.copied().or_else(plain).ok_or_else(|| self.no_layout(v))?;
            let layout = register_layout(&map, &dims).ok_or_else(|| self.no_layout(v))?;
            return match class {
                ValueClass::Leaf => Ok(self.leaf(v, c, block, Slice::Fixed(0), (layout, false))),
                _ => self.remake(v, c, block, &map, layout),
            };
        }
        let placed = self.get(v, c, block, Slice::Fixed(0), self.chains.vector[v])?;
        match want {
            Some(want) => self.in_layout(placed, c, want),
            None => Ok(placed),
        }
    }

    /// What a shape op makes of something that costs nothing, in that layout.
    fn remake(
        &mut self,
        v: Value,
        c: Chain,
        block: Block,
        map: &LinearMap,
        layout: Layout,
    ) -> CodegenResult<Value> {
        let key = (v, layout, self.leaf_block(block));
        if let Some(&made) = self.remade.get(&key) {
            return Ok(made);
        }
        let Some(op) = self.func.defining_op(v) else { return Err(self.no_layout(v)) };
        let Some(source) = derive::source_of(self.func, op) else { return Err(self.no_layout(v)) };
        let made = match self.func.opcode(op) {
            Opcode::ConvertLayout => self.get_in(source, c, block, Some(map))?,
            Opcode::Reshape => {
                let operand = self.get_in(source, c, block, Some(map))?;
                self.again(op, &[operand], layout)
            }
            Opcode::Permute => {
                let before = derive::permuted_back(self.func, op, map).ok_or_else(|| self.no_layout(v))?;
                let operand = self.get_in(source, c, block, Some(&before))?;
                self.again(op, &[operand], layout)
            }
            Opcode::Combine | Opcode::Scan => {
                let n = self.func.results(op).iter().position(|&r| r == v).unwrap_or(0);
                let made = self.combine(op, c, block)?;
                let made = made.get(n).copied().ok_or_else(|| self.no_layout(v))?;
                self.in_layout(made, c, map)?
            }
            _ => {
                let made = self.follow(op, source, c, block)?;
                self.in_layout(made, c, map)?
            }
        };
        self.remade.insert(key, made);
        Ok(made)
    }

    /// The op with another operand, and its result in that layout.
    fn again(&mut self, op: Op, operands: &[Value], layout: Layout) -> Value {
        let agent = self.plan.op_agent[op];
        let Some(result) = self.func.result(op) else { return operands[0] };
        let (dims, elem) = (self.dims(result), self.elem(result));
        let ty = self.tile(&dims, elem, Space::Rmem, layout);
        let segments: SmallVec<[u32; 8]> = SmallVec::from_slice(self.func.segments(op));
        let new = self.op(self.func.opcode(op), operands, &segments, &[ty], agent);
        self.copy_attributes(op, new);
        let v = self.first_result(new);
        self.name_after(v, result, "r");
        v
    }

    /// A `combine` or `scan` where the first of its tiles is.
    fn combine(&mut self, op: Op, c: Chain, block: Block) -> CodegenResult<SmallVec<[Value; 4]>> {
        let sources: SmallVec<[Value; 4]> = SmallVec::from_slice(self.func.operands(op));
        let Some(&first) = sources.first() else { return Ok(SmallVec::new()) };
        let mut operands: SmallVec<[Value; 4]> = SmallVec::new();
        operands.push(self.get_in(first, c, block, None)?);
        let Some(at) = self.map_of_placed(c, operands[0]) else { return Err(self.no_layout(first)) };
        for &v in &sources[1..] {
            operands.push(self.get_in(v, c, block, Some(&at))?);
        }
        let map = derive::derived(self.func, op, &at).ok_or_else(|| self.no_layout(first))?;
        let results: SmallVec<[Value; 4]> = SmallVec::from_slice(self.func.results(op));
        let mut types: SmallVec<[Type; 4]> = SmallVec::new();
        for &r in &results {
            let (dims, elem) = (self.dims(r), self.elem(r));
            let layout = register_layout(&map, &dims).ok_or_else(|| self.no_layout(r))?;
            types.push(self.tile(&dims, elem, Space::Rmem, layout));
        }
        let agent = self.plan.op_agent[op];
        let segments: SmallVec<[u32; 8]> = SmallVec::from_slice(self.func.segments(op));
        let new = self.op(self.func.opcode(op), &operands, &segments, &types, agent);
        self.copy_attributes(op, new);
        let made: SmallVec<[Value; 4]> = SmallVec::from_slice(self.func.results(new));
        for (&v, &r) in made.iter().zip(&results) {
            self.name_after(v, r, "r");
        }
        Ok(made)
    }

    /// A shape op or reduction of its operand where that is.
    fn follow(&mut self, op: Op, source: Value, c: Chain, block: Block) -> CodegenResult<Value> {
        let mut operand = self.get_in(source, c, block, None)?;
        let Some(at) = self.map_of_placed(c, operand) else { return Err(self.no_layout(source)) };
        let map = match derive::derived(self.func, op, &at) {
            Some(map) => map,
            None => {
                // What is cut off has to be whole registers.
                let better = derive::sliceable(self.func, op, &at).ok_or_else(|| self.no_layout(source))?;
                operand = self.in_layout(operand, c, &better)?;
                derive::derived(self.func, op, &better).ok_or_else(|| self.no_layout(source))?
            }
        };
        let Some(result) = self.func.result(op) else { return Err(self.no_layout(source)) };
        let layout = register_layout(&map, &self.dims(result)).ok_or_else(|| self.no_layout(result))?;
        match self.func.named_operand(op, "rhs").filter(|_| self.func.opcode(op) == Opcode::Cat) {
            Some(rhs) => {
                let second = self.get_in(rhs, c, block, Some(&at))?;
                Ok(self.again(op, &[operand, second], layout))
            }
            None => {
                let number = self.func.named_operand(op, "number");
                let operands: SmallVec<[Value; 2]> = std::iter::once(operand).chain(number).collect();
                Ok(self.again(op, &operands, layout))
            }
        }
    }

    /// A placed value in a layout. What is made outside of a loop is converted there.
    fn in_layout(&mut self, v: Value, c: Chain, want: &LinearMap) -> CodegenResult<Value> {
        let dims = self.dims(v);
        if self.map_of_placed(c, v).is_some_and(|m| m == *want) {
            return Ok(v);
        }
        let layout = register_layout(want, &dims).ok_or_else(|| self.no_layout(v))?;
        if let Some(&made) = self.converted.get(&(v, layout)) {
            return Ok(made);
        }
        let home = match self.func.value_def(v) {
            ValueDef::Result(op, _) => self.func.op_block(op),
            ValueDef::Param(b, _) => Some(b),
        };
        let back = self.at;
        if home != self.func.op_block(back) {
            self.at = self.behind(v);
        }
        let elem = self.elem(v);
        let ty = self.tile(&dims, elem, Space::Rmem, layout);
        let agent = self.chain_agent[c];
        let op = self.op(Opcode::ConvertLayout, &[v], &[1], &[ty], agent);
        self.at = back;
        let made = self.first_result(op);
        self.name_after(made, v, "l");
        self.converted.insert((v, layout), made);
        Ok(made)
    }

    /// An op of the source.
    pub(super) fn emit_mapped(&mut self, item: Item, op: Op) -> CodegenResult<()> {
        let Item { chain: c, block, .. } = item;
        let agent = self.plan.op_agent[op];
        let opcode = self.func.opcode(op);
        if opcode.leaves_tiles() {
            // Of one element, or however the tile lies. The op stays where it is: its result is no tile.
            for n in 0..self.func.operands(op).len() {
                let v = self.get_in(self.func.operands(op)[n], c, block, None)?;
                self.func.set_operand(op, n, v);
            }
            return Ok(());
        }
        let label = self.chains.info[c].layouts.of_op(op);
        let Some(result) = self.func.result(op).filter(|&v| self.func.value_data(v).is_tile()) else {
            return self.store_mapped(c, block, op, label, agent);
        };
        let Some(layout) = self.chains.info[c].layouts.of_value(result) else {
            // Made anew wherever it is used.
            return Ok(());
        };
        let (dims, elem) = (self.dims(result), self.elem(result));
        let ty = self.tile(&dims, elem, Space::Rmem, layout);
        let new = match opcode {
            Opcode::Combine | Opcode::Scan => {
                let made = self.combine(op, c, block)?;
                let results: SmallVec<[Value; 4]> = SmallVec::from_slice(self.func.results(op));
                for (&v, r) in made.iter().zip(results) {
                    self.slice_pool.push(&mut self.slices[r], v);
                    self.keep_name(v, r);
                }
                return Ok(());
            }
            Opcode::ExtractSlice if reads_piece(self.func, self.classes, op) => {
                let source = self.func.operands(op)[0];
                let offsets = self.func.attr_ints(op, keys::OFFSETS).unwrap_or_default();
                let piece = self.piece(source, &offsets, &dims, Slice::Fixed(0), agent);
                let copy = self.op(Opcode::Copy, &[piece], &[1, 0, 0, 0, 0, 0], &[ty], agent);
                self.first_result(copy)
            }
            Opcode::AsyncDot => {
                // Its other operands are in shared memory.
                let map = label
                    .and_then(|l| register_map(l, &dims, self.warps(c)))
                    .ok_or_else(|| self.no_layout(result))?;
                let mut operands: SmallVec<[Value; 4]> = SmallVec::from_slice(self.func.operands(op));
                if let (Some(first), Some(v)) =
                    (self.classes.first_operand(self.func, op), operands.first_mut())
                {
                    let layout = operand_layout(self.func, op, self.isa, self.warps(c));
                    let map = layout.and_then(|l| register_map(l, &self.dims(first), self.warps(c)));
                    let map = map.ok_or_else(|| self.no_layout(first))?;
                    *v = self.get_in(first, c, block, Some(&map))?;
                }
                if let Some(v) = operands.last_mut() {
                    // The accumulator: the value form has nothing behind it.
                    *v = self.get_in(*v, c, block, Some(&map))?;
                }
                let segments: SmallVec<[u32; 8]> = SmallVec::from_slice(self.func.segments(op));
                let new = self.op(opcode, &operands, &segments, &[ty], agent);
                self.copy_attributes(op, new);
                self.first_result(new)
            }
            Opcode::ConvertLayout => {
                let source = self.func.operands(op)[0];
                let v = self.get_in(source, c, block, None)?;
                self.slice_pool.push(&mut self.slices[result], v);
                return Ok(());
            }
            Opcode::Reduce | Opcode::Reshape | Opcode::Permute | Opcode::Cat | Opcode::ExtractSlice => {
                let source = self.func.operands(op)[0];
                let v = self.follow(op, source, c, block)?;
                self.slice_pool.push(&mut self.slices[result], v);
                self.keep_name(v, result);
                return Ok(());
            }
            Opcode::TiledLoad => {
                let mut operands: SmallVec<[Value; 5]> =
                    SmallVec::from_slice(self.func.named_segment(op, "view"));
                operands.extend_from_slice(self.func.named_segment(op, "coords"));
                let segments: SmallVec<[u32; 8]> = SmallVec::from_slice(self.func.segments(op));
                let new = self.op(opcode, &operands, &segments, &[ty], agent);
                self.copy_attributes(op, new);
                self.first_result(new)
            }
            _ => {
                let map = label
                    .and_then(|l| register_map(l, &dims, self.warps(c)))
                    .ok_or_else(|| self.no_layout(result))?;
                let mut operands: SmallVec<[Value; 4]> = SmallVec::from_slice(self.func.operands(op));
                for v in &mut operands {
                    let want = derive::wanted(self.func, op, *v, &map);
                    *v = self.get_in(*v, c, block, want.as_ref())?;
                }
                let segments: SmallVec<[u32; 8]> = SmallVec::from_slice(self.func.segments(op));
                let new = self.op(opcode, &operands, &segments, &[ty], agent);
                self.copy_attributes(op, new);
                self.note_vector(c, op, new);
                self.first_result(new)
            }
        };
        self.keep_name(new, result);
        self.slice_pool.push(&mut self.slices[result], new);
        Ok(())
    }

    fn store_mapped(
        &mut self,
        c: Chain,
        block: Block,
        op: Op,
        label: Option<Layout>,
        agent: PackedOption<Agent>,
    ) -> CodegenResult<()> {
        let Some(value) = self.func.named_operand(op, "value") else { return Ok(()) };
        let op_is_tiled = self.func.opcode(op) == Opcode::TiledStore;
        if let (None, Some(view)) = (label, self.func.named_operand(op, "view").filter(|_| op_is_tiled)) {
            let source = self.get_in(value, c, block, None)?;
            let coords: SmallVec<[Value; 5]> = SmallVec::from_slice(self.func.named_segment(op, "coords"));
            self.store_staged(op, source, view, &coords);
            return Ok(());
        }
        let map = label.and_then(|l| register_map(l, &self.dims(value), self.warps(c)));
        let mut operands: SmallVec<[Value; 6]> = SmallVec::from_slice(self.func.operands(op));
        for v in &mut operands {
            if !self.func.value_data(*v).is_tile() {
                continue;
            }
            let want = map.as_ref().and_then(|m| derive::wanted(self.func, op, *v, m));
            *v = self.get_in(*v, c, block, want.as_ref())?;
        }
        let segments: SmallVec<[u32; 8]> = SmallVec::from_slice(self.func.segments(op));
        let results: SmallVec<[Type; 1]> =
            self.func.results(op).iter().map(|&v| self.func.value_type(v)).collect();
        let new = self.op(self.func.opcode(op), &operands, &segments, &results, agent);
        self.copy_attributes(op, new);
        self.note_vector(c, op, new);
        Ok(())
    }

    /// Notes how many elements follow each other: later forms do not show it. What the source claims does not count.
    fn note_vector(&mut self, c: Chain, op: Op, new: Op) {
        match self.chains.info[c].layouts.vector(op) {
            Some(n) => self.func.set_int(new, keys::VECTOR, i64::from(n)),
            None => {
                self.func.inherent_mut(new).remove(keys::VECTOR);
            }
        }
    }
}
