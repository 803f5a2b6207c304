//! Tiles that leave accumulators in registers for memory do so in strips of columns, as wide as one row of a bulk copy.
//!
//! In: a kernel in value form, whose products have their sizes. Out: where accumulators are registers, each store of a tile that is computed
//! from them element by element is a loop over strips (`slices`), in which what is loaded and computed for a strip stands before its store. No more
//! than one strip is in registers beside the accumulators, and on their way they share a ring of two slots. Registers have no addresses: `lower` writes
//! these loops out. Innermost loops, which are scheduled, stay without.
//!
//! Lost without it: `alpha * A B + beta * C` of 128 x 256 in f32 takes 128 KB on its way and 173 registers of 128: the kernel has no memory for
//! loads through TMA, and spills.
//!
//! Guarantee: each element is computed as before. Loads move down, past nothing that may write what they read; of several stores the earlier
//! ones move, past nothing that touches memory. Cost: linear in ops and operands.

use super::split::{arith, axis_through, first_coordinate, widened};
use super::{Draft, is_annotated, view_of, written_views};
use crate::ir::opcodes::{Traits, keys};
use crate::ir::types::Shape;
use crate::ir::{AttrData, Block, Function, Op, Opcode, Scalar, Type, TypeData, Value};
use crate::isa::{AccAllocation, TargetIsa};
use crate::storage::classify::{DisjointSets, is_leaf, is_product};
use cranelift_entity::packed_option::PackedOption;
use cranelift_entity::{EntityRef, EntitySet, SecondaryMap};
use smallvec::SmallVec;

/// Bytes of a strip's row: the widest pattern of shared memory that a bulk copy writes.
pub(super) const ROW: u32 = 128;
/// Strips of one tile at most.
const MOST: u32 = 16;

/// What the ops behind it want of a value.
#[derive(Copy, Clone, Default)]
struct Wanted {
    /// Strips along this axis, counted from 1.
    strips: u8,
    /// All of it.
    whole: bool,
}

/// Ops of a block that become several.
struct Component {
    /// In program order; the last one is a store.
    ops: Vec<Op>,
    count: u32,
}

/// Cuts stores in strips; whether there were any.
pub(super) fn cut(draft: &mut Draft<'_>, isa: &dyn TargetIsa) -> bool {
    let in_registers = isa.acc_home().allocation == AccAllocation::Registers;
    if !in_registers || !draft.has(Opcode::TiledStore) {
        return false;
    }
    let func = draft.func();
    if !func.ops().any(|op| is_product(func, op)) {
        return false;
    }
    let written = written_views(func);
    let mut axes: SecondaryMap<Op, u8> = SecondaryMap::new();
    let mut found: Vec<Component> = Vec::new();
    let mut seen: EntitySet<Block> = EntitySet::new();
    for op in func.ops().filter(|&op| is_store(func, op) && !in_innermost_loop(func, op)) {
        if let Some(block) = func.op_block(op).filter(|&b| seen.insert(b)) {
            components(func, block, written.as_ref(), &mut axes, &mut found);
        }
    }
    if found.is_empty() {
        return false;
    }
    let func = draft.edit();
    found.iter().for_each(|c| write(func, c, &axes));
    sweep(func, &found);
    true
}

fn dims(func: &Function, v: Value) -> &[u32] {
    func.value_data(v).dims().unwrap_or(&[])
}

/// Whether an op is in a loop without other loops, which is scheduled and so must stay as it is.
fn in_innermost_loop(func: &Function, op: Op) -> bool {
    let mut around = std::iter::successors(func.op_parent(op), |&o| func.op_parent(o));
    around.find(|&o| func.opcode(o) == Opcode::For).is_some_and(|l| {
        let mut nested = false;
        let mut look = |o: Op| nested |= func.opcode(o) == Opcode::For;
        func.regions(l).iter().for_each(|&r| func.walk(func.region_block(r), &mut look));
        !nested
    })
}

/// Whether a store may go in strips.
fn is_store(func: &Function, op: Op) -> bool {
    let bulk = |v: Value| {
        let data = func.value_data(v);
        data.elem().is_some_and(|e| matches!(e.bits(), 8 | 16 | 32)) && data.rank() >= 2
    };
    func.opcode(op) == Opcode::TiledStore
        && func.is_weak(op)
        && func.results(op).is_empty()
        && !func.has_attr(op, keys::NO_TMA)
        && !is_annotated(func, op)
        && func.named_operand(op, "value").is_some_and(bulk)
        && func.named_operand(op, "view").is_some_and(|v| func.is_launch_view(v))
}

/// Whether a strip of the result follows from strips of the operands.
pub(super) fn is_even(func: &Function, op: Op) -> bool {
    let opcode = func.opcode(op);
    let even = match opcode {
        Opcode::TiledLoad => func.is_weak(op),
        Opcode::Broadcast | Opcode::Reshape => true,
        _ => opcode.has(Traits::ELEMENTWISE) && opcode.has(Traits::PURE),
    };
    even && func.results(op).len() == 1 && func.regions(op).is_empty() && !is_annotated(func, op)
}

/// Tiles, with the axis along which strips of them are read; `None`: the tile is the same for all strips.
pub(super) type Reads = SmallVec<[(Value, Option<u8>); 4]>;

/// The tiles that an op reads. `None`: a strip of its result does not follow from strips of these.
pub(super) fn reads(func: &Function, op: Op, axis: u8) -> Option<Reads> {
    let mut list = Reads::new();
    for &v in func.operands(op).iter().filter(|&&v| func.value_data(v).is_tile()) {
        if func.value_data(v).as_scalar().is_some() {
            continue;
        }
        let own = match func.opcode(op) {
            Opcode::Reshape | Opcode::Permute => axis_through(func, op, axis, false)?,
            _ => axis,
        };
        let extent = *dims(func, v).get(usize::from(own))?;
        list.push((v, (extent > 1).then_some(own)));
    }
    Some(list)
}

/// The components of a block that can go in strips.
fn components(
    func: &Function,
    block: Block,
    written: Option<&EntitySet<Value>>,
    axes: &mut SecondaryMap<Op, u8>,
    out: &mut Vec<Component>,
) {
    let ops: Vec<Op> = func.block_ops(block).collect();
    let mut wanted: SecondaryMap<Value, Wanted> = SecondaryMap::new();
    for &op in ops.iter().rev() {
        let by_result = || {
            let w = wanted[func.result(op).filter(|_| is_even(func, op))?];
            w.strips.checked_sub(1).filter(|_| !w.whole)
        };
        let axis = if is_store(func, op) {
            func.named_operand(op, "value").and_then(|v| u8::try_from(dims(func, v).len() - 1).ok())
        } else {
            by_result()
        };
        if let Some((axis, list)) = axis.and_then(|axis| Some((axis, reads(func, op, axis)?))) {
            axes[op] = axis + 1;
            for (v, own) in list {
                let w = &mut wanted[v];
                match own {
                    Some(own) if w.strips == 0 || w.strips == own + 1 => w.strips = own + 1,
                    _ => w.whole = true,
                }
            }
            continue;
        }
        let mut all = |o: Op| func.operands(o).iter().for_each(|&v| wanted[v].whole = true);
        all(op);
        func.regions(op).iter().for_each(|&r| func.walk(func.region_block(r), &mut all));
    }
    let mut sets = DisjointSets::new(func.num_ops());
    let inside = |op: Op| axes[op] > 0 && func.op_block(op) == Some(block);
    for &op in ops.iter().filter(|&&op| inside(op)) {
        for def in func.operands(op).iter().filter_map(|&v| func.defining_op(v)).filter(|&d| inside(d)) {
            sets.union(op.index(), def.index());
        }
    }
    let mut roots: SmallVec<[usize; 4]> = SmallVec::new();
    for &op in ops.iter().filter(|&&op| inside(op) && func.opcode(op) == Opcode::TiledStore) {
        let root = sets.find(op.index());
        if roots.contains(&root) {
            continue;
        }
        roots.push(root);
        let own: Vec<Op> =
            ops.iter().copied().filter(|&o| inside(o) && sets.find(o.index()) == root).collect();
        let fits = |own: &[Op]| strips(func, own, axes).filter(|_| may_move(func, &ops, own, written));
        if let Some(count) = fits(&own) {
            out.push(Component { ops: own, count });
            continue;
        }
        // Stores that cannot stand together, each with all that it needs: what they share is loaded and computed for each.
        for &store in own.iter().filter(|&&op| func.opcode(op) == Opcode::TiledStore) {
            let alone = behind(func, &own, store);
            if let Some(count) = fits(&alone).filter(|_| alone.len() < own.len()) {
                out.push(Component { ops: alone, count });
            }
        }
    }
}

/// Those of a component's ops that one of them needs, and itself.
fn behind(func: &Function, ops: &[Op], last: Op) -> Vec<Op> {
    let mut needed: EntitySet<Op> = EntitySet::new();
    needed.insert(last);
    for &op in ops.iter().rev() {
        if needed.contains(op) {
            func.operands(op).iter().filter_map(|&v| func.defining_op(v)).for_each(|d| _ = needed.insert(d));
        }
    }
    ops.iter().copied().filter(|&op| needed.contains(op)).collect()
}

/// The number of strips of a component that begins with accumulators and with what is loaded, and ends in stores of tiles with as many columns.
fn strips(func: &Function, ops: &[Op], axes: &SecondaryMap<Op, u8>) -> Option<u32> {
    let (mut columns, mut width, mut sums) = (0, 0, false);
    for &op in ops {
        let axis = axes[op] - 1;
        if func.opcode(op) == Opcode::TiledStore {
            let elem = func.named_operand(op, "value").and_then(|v| func.value_data(v).elem())?;
            width = width.max(ROW / elem.bytes());
        }
        if matches!(func.opcode(op), Opcode::TiledLoad | Opcode::TiledStore) {
            let c = *func.named_segment(op, "coords").get(usize::from(axis))?;
            let known = [Scalar::I8, Scalar::I16, Scalar::I32, Scalar::I64];
            func.value_data(c).as_scalar().filter(|s| known.contains(s))?;
        }
        for (v, own) in reads(func, op, axis)? {
            let Some(own) = own else { continue };
            let extent = dims(func, v)[usize::from(own)];
            columns = if columns == 0 { extent } else { columns };
            if extent != columns {
                return None;
            }
            let def = func.defining_op(v)?;
            if is_leaf(func.opcode(def)) || ops.contains(&def) {
                // Positions are counted like the strips.
                let counts = func.opcode(def) == Opcode::Iota;
                if counts && func.value_data(v).elem() != Some(Scalar::I32) {
                    return None;
                }
                continue;
            }
            // Parts of other tiles may be with other threads.
            let body = (func.opcode(def) == Opcode::For).then(|| func.op_block_at(def, 0)).flatten();
            let summed = |b: Block| func.block_ops(b).any(|op| is_product(func, op));
            if !is_product(func, def) && !body.is_some_and(summed) {
                return None;
            }
            // Slices are numbered along the last axis: a column that is stored as a row has none.
            if usize::from(own) + 1 != dims(func, v).len() {
                return None;
            }
            sums = true;
        }
    }
    let count = columns.checked_div(width)?;
    (sums && columns.is_multiple_of(width) && (2..=MOST).contains(&count)).then_some(count)
}

/// Whether ops of a block can stand where the last of them does.
fn may_move(func: &Function, block: &[Op], ops: &[Op], written: Option<&EntitySet<Value>>) -> bool {
    let is = |op: Op, trait_: u16| func.opcode(op).has(trait_);
    let stores = || ops.iter().copied().filter(|&op| func.opcode(op) == Opcode::TiledStore);
    let mut loads = ops.iter().copied().filter(|&op| func.opcode(op) == Opcode::TiledLoad);
    let several = stores().nth(1).is_some();
    let Some(&last) = ops.last() else { return false };
    let touches = |op: &&Op| is(**op, Traits::READS_GLOBAL) || is(**op, Traits::WRITES_GLOBAL);
    let Some(&first) = ops.iter().find(touches) else { return false };
    // What lies between orders nothing; a store that moves does so past nothing that touches memory.
    let products = |op: Op| matches!(func.opcode(op), Opcode::AsyncDot | Opcode::AsyncTiledTmaLoad);
    let quiet = |op: Op| {
        let passes = !several || !touches(&&op) && !func.opcode(op).leaves_tiles();
        passes && func.is_weak(op) && (!is(op, Traits::ASYNC) || products(op))
    };
    let between = block.iter().skip_while(|&&op| op != first).take_while(|&&op| op != last);
    for &op in between.filter(|op| !ops.contains(op)) {
        let mut calm = quiet(op);
        func.regions(op).iter().for_each(|&r| func.walk(func.region_block(r), &mut |o| calm &= quiet(o)));
        if !calm {
            return false;
        }
    }
    // What a load reads is written by no other strip.
    let Some(written) = written else { return loads.next().is_none() };
    loads.all(|load| {
        let Some(view) = view_of(func, load) else { return false };
        let place = &func.operands(load)[1..];
        let same = |op: Op| {
            let value = func.named_operand(op, "value").map(|v| dims(func, v));
            func.named_operand(op, "view") == func.named_operand(load, "view")
                && func.operands(op)[2..] == *place
                && value == func.result(load).map(|v| dims(func, v))
        };
        let writers =
            || func.ops().filter(|&op| is(op, Traits::WRITES_GLOBAL) && view_of(func, op) == Some(view));
        !written.contains(view) || writers().all(|op| ops.contains(&op) && same(op))
    })
}

/// Writes the loop over the strips of tiles.
pub(super) struct Writer {
    /// The loop, and the end of its body.
    around: Op,
    end: Op,
    /// Number of the strip.
    index: Value,
    count: u32,
    strips: SecondaryMap<Value, PackedOption<Value>>,
    /// Constants and indices of a strip.
    leaves: SmallVec<[(Value, u8, Value); 8]>,
}

/// Replaces a component by a loop.
fn write(func: &mut Function, c: &Component, axes: &SecondaryMap<Op, u8>) {
    let Some(&last) = c.ops.last() else { return };
    let (int, loc) = (func.scalar(Scalar::I32), func.op_loc(last));
    let bounds = [0, i64::from(c.count), 1].map(|n| {
        let op = func.make_op(Opcode::Constant, &[], &[], &[int], loc);
        func.set_int(op, keys::VALUE, n);
        func.insert_before(last, op);
        func.results(op)[0]
    });
    let around = func.make_op(Opcode::For, &bounds, &[1, 1, 1, 0], &[], loc);
    let mark = func.intern_attr(AttrData::Int(i64::from(c.count), None));
    func.inherent_mut(around).set(keys::SLICES, mark);
    func.insert_before(last, around);
    let body = func.add_region(around);
    let index = func.add_block_param(body, int);
    let end = func.make_op(Opcode::Yield, &[], &[0], &[], loc);
    func.append_op(body, end);
    let mut w = Writer::new(around, end, index, c.count);
    for &op in &c.ops {
        w.strip(func, op, axes[op] - 1);
        let Some(from) = func.result(op) else { continue };
        if let (Some(name), Some(to)) = (func.value_sym(from), w.strips[from].expand()) {
            func.set_value_sym(to, name);
        }
    }
}

/// Removes what has been written in strips and nothing else needs.
fn sweep(func: &mut Function, found: &[Component]) {
    let mut uses: SecondaryMap<Value, u32> = SecondaryMap::new();
    for op in func.ops() {
        func.operands(op).iter().for_each(|&v| uses[v] += 1);
    }
    for &op in found.iter().flat_map(|c| c.ops.iter().rev()) {
        if func.op_block(op).is_some() && func.results(op).iter().all(|&v| uses[v] == 0) {
            func.operands(op).iter().for_each(|&v| uses[v] -= 1);
            func.remove_op(op);
        }
    }
}

impl Writer {
    /// Writes strips into the loop `around`, in front of `end`, of which there are `count`.
    pub(super) fn new(around: Op, end: Op, index: Value, count: u32) -> Writer {
        Writer { around, end, index, count, strips: SecondaryMap::new(), leaves: SmallVec::new() }
    }

    /// A strip of an op.
    pub(super) fn strip(&mut self, func: &mut Function, op: Op, axis: u8) {
        let Some(list) = reads(func, op, axis) else { return };
        let mut operands: SmallVec<[Value; 8]> = func.operands(op).into();
        let segments: SmallVec<[u32; 8]> = func.segments(op).into();
        for (v, own) in list {
            let Some(own) = own else { continue };
            let part = self.part(func, v, own);
            operands.iter_mut().filter(|o| **o == v).for_each(|o| *o = part);
        }
        if matches!(func.opcode(op), Opcode::TiledLoad | Opcode::TiledStore | Opcode::AsyncTiledTmaLoad) {
            self.place(func, op, axis, &mut operands);
        }
        let types: SmallVec<[Type; 1]> =
            func.results(op).to_vec().into_iter().map(|r| strip_type(func, r, axis, self.count)).collect();
        let new = func.make_op(func.opcode(op), &operands, &segments, &types, func.op_loc(op));
        *func.inherent_mut(new) = func.inherent(op).clone();
        *func.discardable_mut(new) = func.discardable(op).clone();
        func.insert_before(self.end, new);
        if let (Some(from), Some(to)) = (func.result(op), func.result(new)) {
            self.strips[from] = to.into();
        }
    }

    /// A strip of what an op reads.
    pub(super) fn part(&mut self, func: &mut Function, v: Value, axis: u8) -> Value {
        if let Some(known) = self.strips[v].expand() {
            return known;
        }
        let ty = strip_type(func, v, axis, self.count);
        let width = dims(func, v)[usize::from(axis)] / self.count;
        let Some(leaf) = func.defining_op(v).filter(|&op| is_leaf(func.opcode(op))) else {
            let op =
                func.make_op(Opcode::ExtractSlice, &[v, self.index], &[1, 1], &[ty], func.op_loc(self.end));
            let mut sizes: SmallVec<[i64; 4]> = dims(func, v).iter().map(|&n| n.into()).collect();
            let offsets: SmallVec<[i64; 4]> = SmallVec::from_elem(0, sizes.len());
            sizes[usize::from(axis)] = width.into();
            func.set_ints(op, keys::OFFSETS, &offsets);
            func.set_ints(op, keys::SIZES, &sizes);
            func.insert_before(self.end, op);
            let part = func.results(op)[0];
            self.strips[v] = part.into();
            return part;
        };
        if let Some(known) = self.leaves.iter().find(|l| (l.0, l.1) == (v, axis)) {
            return known.2;
        }
        let operands: SmallVec<[Value; 1]> = func.operands(leaf).into();
        let segments: SmallVec<[u32; 1]> = func.segments(leaf).into();
        let op = func.make_op(func.opcode(leaf), &operands, &segments, &[ty], func.op_loc(leaf));
        *func.inherent_mut(op) = func.inherent(leaf).clone();
        func.insert_before(self.end, op);
        let mut part = func.results(op)[0];
        if func.opcode(leaf) == Opcode::Iota {
            let by = arith(func, self.end, Opcode::Muli, self.index, width.into());
            let by = self.put(func, Opcode::Splat, &[by], &[1], ty);
            part = self.put(func, Opcode::Addi, &[part, by], &[1, 1], ty);
        }
        self.leaves.push((v, axis, part));
        part
    }

    fn put(
        &self,
        func: &mut Function,
        opcode: Opcode,
        operands: &[Value],
        segments: &[u32],
        ty: Type,
    ) -> Value {
        let op = func.make_op(opcode, operands, segments, &[ty], func.op_loc(self.end));
        func.insert_before(self.end, op);
        func.results(op)[0]
    }

    /// Where a strip is loaded from or stored to.
    fn place(&mut self, func: &mut Function, op: Op, axis: u8, operands: &mut [Value]) {
        let begin = 1 + usize::from(func.opcode(op) == Opcode::TiledStore);
        let at = begin + usize::from(axis);
        let Some(&c) = operands.get(at) else { return };
        let first = first_coordinate(func, self.around, c, self.count);
        let ty = func.value_type(first);
        let index = match func.value_type(self.index) == ty {
            true => self.index,
            false => widened(func, self.end, self.index, ty),
        };
        operands[at] = self.put(func, Opcode::Addi, &[first, index], &[1, 1], ty);
        // All coordinates are of one type.
        for c in operands.iter_mut().skip(begin) {
            if func.value_type(*c) != ty {
                *c = widened(func, self.around, *c, ty);
            }
        }
    }
}

/// The type of a strip.
fn strip_type(func: &mut Function, v: Value, axis: u8, count: u32) -> Type {
    let TypeData::Tile { dims, elem, space, layout } = func.value_data(v).clone() else {
        return func.value_type(v);
    };
    let mut dims: Shape = dims.iter().copied().collect();
    if let Some(d) = dims.get_mut(usize::from(axis)) {
        *d /= count;
    }
    func.intern_type(TypeData::Tile { dims, elem, space, layout })
}
