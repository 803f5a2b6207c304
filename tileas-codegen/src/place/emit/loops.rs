//! Which slices become a loop, and the loop.
//!
//! A trial walk finds what is flushed together, a [`Group`]. It becomes a loop if its slices are equal but for offsets:
//! one block, no copies into memory that other ops take as a whole (each slice would have to be handed over by itself),
//! no value that another group of the chain uses. Bodies of innermost loops are left alone: the loop around would no
//! longer be one that the scheduler overlaps.

use super::super::chains::{Chain, rows_columns};
use super::{Item, ItemKind, Placer};
use crate::error::CodegenResult;
use crate::ir::{AttrData, Block, Op, Opcode, Scalar, Swizzle, Value, keys};
use crate::storage::classify::ValueClass;
use smallvec::SmallVec;

/// Items of a chain that are emitted together for all slices.
pub(super) struct Group {
    chain: Chain,
    items: SmallVec<[u32; 16]>,
    rolls: bool,
}

/// Which slice an item is emitted for.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Slice {
    /// The one with this number.
    Fixed(u32),
    /// That of the current iteration of the loop being written.
    Iteration,
}

impl Slice {
    /// The number, 0 in a loop.
    pub(super) fn number(self) -> u32 {
        match self {
            Slice::Fixed(k) => k,
            Slice::Iteration => 0,
        }
    }
}

/// A loop over slices being written.
pub(super) struct Rolling {
    /// The number of the slice.
    pub(super) index: Value,
    /// The body.
    pub(super) body: Block,
    /// Tile coordinates of the slice, by coordinate and number of slices.
    pub(super) coords: SmallVec<[(Value, u32, Value); 4]>,
}

impl Placer<'_> {
    /// Finds the groups and decides which become loops.
    pub(super) fn plan_loops(&mut self, entry: Block) -> CodegenResult<()> {
        let least = self.opts.roll_slices;
        self.group_of = vec![None; self.items.len()];
        if least == 0 || self.chains.info.values().all(|c| c.slices < least.max(2)) {
            return Ok(());
        }
        let remaining = self.remaining.clone();
        self.trial = true;
        let done = self.walk(entry);
        self.trial = false;
        done?;
        self.remaining = remaining;
        let mut groups = std::mem::take(&mut self.groups);
        for g in &mut groups {
            let slices = self.chains.info[g.chain].slices;
            g.rolls = slices >= least.max(2) && self.equal_slices(g);
        }
        // A value that leaves its group keeps it, and the group that takes it, written out.
        for i in 0..self.items.len() {
            let user = self.group_of[i];
            for from in self.groups_used(i) {
                if Some(from) != user {
                    for g in [Some(from), user].into_iter().flatten() {
                        groups[g as usize].rolls = false;
                    }
                }
            }
        }
        self.groups = groups;
        Ok(())
    }

    /// Notes, in the trial, what is flushed together.
    pub(super) fn add_group(&mut self, items: &[u32]) {
        let Some(&first) = items.first() else { return };
        for &i in items {
            self.group_of[i as usize] = Some(self.groups.len() as u32);
        }
        let chain = self.items[first as usize].chain;
        self.groups.push(Group { chain, items: items.into(), rolls: false });
    }

    /// Whether an item is emitted in a loop over slices.
    pub(super) fn is_rolled(&self, item: u32) -> bool {
        let group = self.group_of.get(item as usize).copied().flatten();
        group.and_then(|g| self.groups.get(g as usize)).is_some_and(|g| g.rolls)
    }

    /// The groups whose values an item takes.
    fn groups_used(&self, i: usize) -> SmallVec<[u32; 4]> {
        let Item { chain, kind, block } = self.items[i];
        let mut values: SmallVec<[Value; 4]> = SmallVec::new();
        match kind {
            ItemKind::Op(op) if self.func.opcode(op) == Opcode::ExtractSlice => {}
            ItemKind::Op(op) => values.extend_from_slice(self.func.operands(op)),
            ItemKind::Read(..) => {}
            ItemKind::Write(n) => values.push(self.write_value(n).0),
            ItemKind::Carry(_, _, v, _) => values.push(v),
        }
        let mut out = SmallVec::new();
        for v in values {
            let makes = |item: &Item| match (self.classes.class(v), item.kind) {
                (ValueClass::Reg, ItemKind::Op(op)) => self.func.result(op) == Some(v),
                (ValueClass::Acc | ValueClass::Smem, ItemKind::Read(read, _)) => {
                    read == v && item.chain == chain && self.holds(item.block, block)
                }
                _ => false,
            };
            let made = self.items.iter().enumerate().filter(|(_, item)| item.chain == chain && makes(item));
            out.extend(made.filter_map(|(n, _)| self.group_of[n]));
        }
        out
    }

    /// Whether a block is or lies in another.
    fn holds(&self, outer: Block, inner: Block) -> bool {
        let up = |&b: &Block| self.func.block_parent(b).and_then(|op| self.func.op_block(op));
        std::iter::successors(Some(inner), up).any(|b| b == outer)
    }

    /// Whether the slices of a group differ in offsets alone, and may run as a loop where they stand.
    fn equal_slices(&self, g: &Group) -> bool {
        let block = self.items[g.items[0] as usize].block;
        let mut around = std::iter::successors(self.func.block_parent(block), |&op| self.func.op_parent(op));
        let inside = around.find(|&op| self.func.opcode(op) == Opcode::For);
        let overlapped = inside.is_some_and(|l| {
            let mut nested = false;
            if let Some(b) = self.func.op_block_at(l, 0) {
                self.func.walk(b, &mut |op| nested |= self.func.opcode(op) == Opcode::For);
            }
            !nested
        });
        !overlapped
            && g.items.iter().all(|&i| {
                let item = self.items[i as usize];
                item.block == block && self.rolls_alone(item)
            })
    }

    fn rolls_alone(&self, item: Item) -> bool {
        let op = match item.kind {
            ItemKind::Op(op) => op,
            ItemKind::Read(v, _) => {
                return self.slices_by_address(item.chain, v, self.func.value_data(v).dims());
            }
            ItemKind::Write(_) | ItemKind::Carry(..) => return false,
        };
        let index = |v: &Value| self.func.value_data(*v).as_scalar() == Some(Scalar::I32);
        let leaf = |v: &Value| {
            // The first element of a slice of an `iota` is computed in the loop.
            self.func.defining_op(*v).is_none_or(|d| {
                self.func.opcode(d) != Opcode::Iota || self.func.value_data(*v).elem() == Some(Scalar::I32)
            })
        };
        match self.func.opcode(op) {
            Opcode::TiledLoad => {
                self.func.results(op).len() == 1
                    && self.func.named_segment(op, "coords").last().is_none_or(index)
            }
            // A memory token would be that of the last slice.
            Opcode::TiledStore => {
                self.func.results(op).is_empty()
                    && self.func.named_segment(op, "coords").last().is_none_or(index)
            }
            Opcode::ExtractSlice => {
                let dims = self.func.result(op).and_then(|v| self.func.value_data(v).dims());
                self.slices_by_address(item.chain, self.func.operands(op)[0], dims)
            }
            _ => self.func.operands(op).iter().all(leaf),
        }
    }

    /// Whether a slice of a stored tile is a constant stretch of addresses behind the one before: in shared memory the
    /// columns of a slice must be whole swizzle spans.
    fn slices_by_address(&self, c: Chain, v: Value, dims: Option<&[u32]>) -> bool {
        let (Some(&columns), Some(layout)) = (dims.and_then(|d| d.last()), self.layouts.of_value[v]) else {
            return false;
        };
        match self.classes.class(v) {
            ValueClass::Acc => true,
            ValueClass::Smem => {
                let elem = self.func.value_data(v).elem().map_or(8, Scalar::bits);
                let bytes = columns / self.chains.info[c].slices.max(1) * elem / 8;
                // Slabs of fewer rows than the pattern has differ in more than their address.
                let rows = self.func.value_data(v).dims().map_or(1, |d| rows_columns(d).0);
                layout.swizzle().is_some_and(|s: Swizzle| {
                    bytes.is_multiple_of(s.span()) && (s.xor_mask() == 0 || rows * s.span() >= s.alignment())
                })
            }
            _ => false,
        }
    }

    /// Writes a group as a loop before the current op.
    pub(super) fn emit_loop(&mut self, c: Chain, items: &[u32]) -> CodegenResult<()> {
        let slices = self.chains.info[c].slices;
        let back = self.at;
        self.loc = self.func.op_loc(back);
        let i32_type = self.func.scalar(Scalar::I32);
        let mut bounds: SmallVec<[Value; 3]> = SmallVec::new();
        for n in [0, i64::from(slices), 1] {
            let constant = self.op(Opcode::Constant, &[], &[], &[i32_type], None.into());
            self.func.set_int(constant, keys::VALUE, n);
            bounds.push(self.first_result(constant));
        }
        let rolled = self.op(Opcode::For, &bounds, &[1, 1, 1, 0], &[], None.into());
        let mark = self.func.intern_attr(AttrData::Int(i64::from(slices), None));
        self.func.inherent_mut(rolled).set(keys::SLICES, mark);
        let body = self.func.add_region(rolled);
        let index = self.func.add_block_param(body, i32_type);
        self.text.clear();
        self.text.push('j');
        self.fresh_name(index);
        let end: Op = self.func.make_op(Opcode::Yield, &[], &[0], &[], self.loc);
        self.func.append_op(body, end);
        self.at = end;
        self.rolling = Some(Rolling { index, body, coords: SmallVec::new() });
        for &i in items {
            self.emit(self.items[i as usize], Slice::Iteration)?;
        }
        self.rolling = None;
        self.at = back;
        Ok(())
    }

    /// Tile coordinate along an axis in the current iteration of the loop being written.
    pub(super) fn iteration_coordinate(&mut self, coord: Value, parts: u32) -> Value {
        let Some(Rolling { index, ref coords, .. }) = self.rolling else { return coord };
        if let Some(&(.., v)) = coords.iter().find(|x| (x.0, x.1) == (coord, parts)) {
            return v;
        }
        let ty = self.func.value_type(coord);
        let back = self.at;
        let base = if let Some(value) = self.func.constant_value(coord) {
            // Beyond 32 bits it is out of bounds in any view, and stays so for every slice.
            let exact = (value as i64).saturating_mul(i64::from(parts));
            let most = i64::from(i32::MAX) - i64::from(parts);
            let op = self.op(Opcode::Constant, &[], &[], &[ty], None.into());
            self.func.set_int(op, keys::VALUE, exact.clamp(i64::from(i32::MIN), most));
            (exact != 0).then(|| self.first_result(op))
        } else {
            // Behind the definition of the coordinate: before the loop.
            self.at = self.behind(coord);
            let first = self.times(coord, parts);
            self.at = back;
            Some(first)
        };
        let v = match base {
            Some(base) => {
                let add = self.op(Opcode::Addi, &[base, index], &[1, 1], &[ty], None.into());
                let v = self.first_result(add);
                self.name_after(v, coord, "j");
                v
            }
            None => index,
        };
        if let Some(r) = &mut self.rolling {
            r.coords.push((coord, parts, v));
        }
        v
    }

    /// The first element of the current slice of an `iota`, as a tile.
    pub(super) fn slice_start(&mut self, index: Value, width: u32, ty: crate::ir::Type) -> Value {
        let i32_type = self.func.value_type(index);
        let op = self.op(Opcode::Constant, &[], &[], &[i32_type], None.into());
        self.func.set_int(op, keys::VALUE, i64::from(width));
        let factor = self.first_result(op);
        let mul = self.op(Opcode::Muli, &[index, factor], &[1, 1], &[i32_type], None.into());
        let first = self.first_result(mul);
        let splat = self.op(Opcode::Splat, &[first], &[1], &[ty], None.into());
        self.first_result(splat)
    }

    /// What a leaf made now is known by: its block.
    pub(super) fn leaf_block(&self, block: Block) -> Block {
        self.rolling.as_ref().map_or(block, |r| r.body)
    }

    /// The index of the loop being written.
    pub(super) fn iteration_index(&self, k: Slice) -> Option<Value> {
        self.rolling.as_ref().filter(|_| k == Slice::Iteration).map(|r| r.index)
    }
}
