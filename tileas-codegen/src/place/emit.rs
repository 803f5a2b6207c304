//! Rewrites a function: register chains slice by slice, copies between spaces, TMA stores.
//!
//! Every register op, every copy out of memory of the CTA ([`ItemKind::Read`]) and into it
//! ([`ItemKind::Write`]) is an *item* anchored at an op of the original program. One walk in program order emits
//! slice 0 of an item before its anchor and keeps it pending; the pending items of a chain are emitted for all
//! further slices (a *flush*) after the chain's last item of the block, and earlier before any op that takes what
//! the chain writes, overwrites what it reads, contains more of the chain, or touches memory in conflict.

use super::PlaceOptions;
use super::chains::{Chain, Chains, reads_piece};
use super::operands::MatrixLayouts;
use crate::constraints::{RECOMPUTE_WORDS, RematWords, take};
use crate::error::{CodegenResult, Loc};
use crate::ir::pool::{List, Pool};
use crate::ir::types::Shape;
use crate::ir::{Block, Function, Layout, Op, Opcode, Space, Swizzle, Sym, Type, Value, ValueDef};
use crate::isa::TargetIsa;
use crate::plan::{Agent, AgentKind, AgentPlan};
use crate::storage::alias::Touched;
use crate::storage::classify::{self, Classes, ValueClass, home};
use crate::storage::coalesce::latest_before;
use cranelift_entity::packed_option::PackedOption;
use cranelift_entity::{EntityRef, EntitySet, SecondaryMap};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

mod items;
mod loops;
mod mapped;

use loops::{Group, Rolling, Slice};

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum ItemKind {
    /// A register op.
    Op(Op),
    /// A whole tile out of shared memory or an accumulator; the number counts reads of one that is read again.
    Read(Value, u32),
    /// A tile into shared memory or an accumulator; the number counts ties, then shared-memory operands.
    Write(usize),
    /// A register tile that a region op or `yield` carries: op, operand, value carried, value it becomes.
    Carry(Op, usize, Value, Value),
}

#[derive(Copy, Clone, Debug)]
struct Item {
    chain: Chain,
    kind: ItemKind,
    block: Block,
}

/// A value read by a chain, to be placed at the earliest op that wants it.
struct ReadRequest {
    value: Value,
    /// Which of the reads of a tile that is read again.
    number: u32,
    chain: Chain,
    block: Block,
    anchor: Op,
    /// The anchor overwrites the value: it cannot move.
    fixed: bool,
}

type LeafKey = (Value, Chain, Block, u32, Layout);

pub(super) struct Placer<'a> {
    func: &'a mut Function,
    plan: &'a mut AgentPlan,
    classes: &'a Classes,
    chains: &'a Chains,
    layouts: &'a MatrixLayouts,
    isa: &'a dyn TargetIsa,
    opts: &'a PlaceOptions,
    position: SecondaryMap<Op, u32>,
    items: Vec<Item>,
    /// Items before an op, and chains flushed before it: lists in the pools below.
    items_at: SecondaryMap<Op, List>,
    flush_at: SecondaryMap<Op, List>,
    item_pool: Pool<u32>,
    chain_pool: Pool<Chain>,
    remaining: FxHashMap<(Block, Chain), u32>,
    pending: SecondaryMap<Chain, Vec<u32>>,
    /// The walk only finds out which items are pending together.
    trial: bool,
    /// What is flushed together, in the order of the trial.
    groups: Vec<Group>,
    /// The group of each item that is sliced.
    group_of: Vec<Option<u32>>,
    /// The loop over slices that is being written.
    rolling: Option<Rolling>,
    active: Vec<Chain>,
    chain_agent: SecondaryMap<Chain, PackedOption<Agent>>,
    /// The accumulator a write goes onto, where one is live.
    targets: SmallVec<[Option<Value>; 8]>,
    /// The write whose copy another one shares.
    shared_with: SmallVec<[usize; 8]>,
    write_dest: SmallVec<[Option<Value>; 8]>,
    kills: FxHashMap<Value, SmallVec<[Op; 2]>>,
    /// The slices of register values: lists in the pool.
    slices: SecondaryMap<Value, List>,
    slice_pool: Pool<Value>,
    reads: FxHashMap<(Value, u32, Chain, Block), SmallVec<[Value; 4]>>,
    /// Of tiles in memory that are read again (`tileas.recomputable`): the number of an op's read.
    repeats: FxHashMap<(Value, Op), u32>,
    /// The op whose operands are being looked up.
    user: Option<Op>,
    leaves: FxHashMap<LeafKey, Value>,
    /// Values in other layouts.
    converted: FxHashMap<(Value, Layout), Value>,
    /// What shape ops make of constants and counters, by layout and block.
    remade: FxHashMap<(Value, Layout, Block), Value>,
    coords: FxHashMap<(Value, u32), Vec<Value>>,
    descs: Vec<(Value, Shape, Swizzle, Value)>,
    /// Names in use.
    names: EntitySet<Sym>,
    /// A name in the making.
    text: String,
    at: Op,
    loc: Loc,
}

/// A map with that many entries from the start.
fn all<K: EntityRef, V: Clone + Default>(entries: usize) -> SecondaryMap<K, V> {
    let mut map = SecondaryMap::new();
    map.resize(entries);
    map
}

/// Registers of a thread, a row's columns of accumulators, that leave room for what is computed from them.
const CROWDED: u32 = 160;

impl<'a> Placer<'a> {
    pub(super) fn new(
        func: &'a mut Function,
        plan: &'a mut AgentPlan,
        classes: &'a Classes,
        chains: &'a Chains,
        layouts: &'a MatrixLayouts,
        isa: &'a dyn TargetIsa,
        opts: &'a PlaceOptions,
    ) -> Placer<'a> {
        let writes = chains.of_write.len();
        let (ops, values) = (func.num_ops(), func.num_values());
        Placer {
            func,
            plan,
            classes,
            chains,
            layouts,
            isa,
            opts,
            position: all(ops),
            items: Vec::with_capacity(16),
            items_at: all(ops),
            flush_at: all(ops),
            item_pool: Pool::with_capacity(16),
            chain_pool: Pool::with_capacity(16),
            remaining: FxHashMap::default(),
            pending: SecondaryMap::new(),
            trial: false,
            groups: Vec::new(),
            group_of: Vec::new(),
            rolling: None,
            active: Vec::new(),
            chain_agent: SecondaryMap::new(),
            targets: SmallVec::from_elem(None, writes),
            shared_with: (0..writes).collect(),
            write_dest: SmallVec::from_elem(None, writes),
            kills: FxHashMap::default(),
            slices: all(values),
            slice_pool: Pool::with_capacity(16),
            reads: FxHashMap::default(),
            repeats: FxHashMap::default(),
            user: None,
            leaves: FxHashMap::default(),
            converted: FxHashMap::default(),
            remade: FxHashMap::default(),
            coords: FxHashMap::default(),
            descs: Vec::new(),
            names: EntitySet::with_capacity(values + 128),
            text: String::new(),
            at: Op::new(0),
            loc: Loc::NONE,
        }
    }

    pub(super) fn run(mut self) -> CodegenResult<()> {
        let ops = &self.classes.ops;
        for (n, &op) in ops.iter().enumerate() {
            self.position[op] = n as u32;
            for &v in self.func.results(op) {
                self.names.extend(self.func.value_sym(v));
            }
            for r in 0..self.func.regions(op).len() {
                let block = self.func.op_block_at(op, r);
                for &v in block.map_or(&[][..], |b| self.func.block_params(b)) {
                    self.names.extend(self.func.value_sym(v));
                }
            }
        }
        for &v in self.func.params() {
            self.names.extend(self.func.value_sym(v));
        }
        let simt = self.plan.first(AgentKind::Simt);
        for c in self.chains.info.keys() {
            self.chain_agent[c] = simt.into();
        }
        for &op in self.chains.ops.iter().rev() {
            if let Some(c) = self.chains.of_op[op].expand() {
                self.chain_agent[c] = self.plan.op_agent[op];
            }
        }
        self.type_values(ops);
        self.zero_starts();
        self.find_writes();
        self.find_repeats(ops);
        self.find_items(ops);
        let entry = self.func.entry();
        self.plan_loops(entry)?;
        self.walk(entry)?;
        // What was put in front of the terminator of a loop came behind its exit.
        for &op in ops {
            if self.func.opcode(op) == Opcode::ExitIf
                && let Some(end) = self.func.op_block(op).and_then(|b| self.func.last_op(b))
            {
                self.func.remove_op(op);
                self.func.insert_before(end, op);
            }
        }
        Ok(())
    }

    // ---- preparation

    /// Gives accumulators, loads and carried register tiles their types.
    fn type_values(&mut self, ops: &[Op]) {
        let mut values: SmallVec<[Value; 8]> = SmallVec::new();
        for &op in ops {
            values.clear();
            values.extend_from_slice(self.func.results(op));
            for r in 0..self.func.regions(op).len() {
                if let Some(b) = self.func.op_block_at(op, r) {
                    values.extend_from_slice(self.func.block_params(b));
                }
            }
            for &v in &values {
                self.type_value(v);
            }
        }
    }

    fn type_value(&mut self, v: Value) {
        {
            let carried = match self.func.value_def(v) {
                ValueDef::Param(..) => true,
                ValueDef::Result(op, _) => matches!(self.func.opcode(op), Opcode::For | Opcode::If),
            };
            match (self.classes.class(v), self.layouts.of_value[v]) {
                (ValueClass::Acc, Some(l)) => self.set_place(v, self.isa.acc_home().space, l),
                (ValueClass::Smem, Some(l)) => self.set_place(v, Space::Smem, l),
                (ValueClass::Reg, _) if carried => {
                    if let Some(c) = self.chains.of_value[v].expand() {
                        let l = self.register_layout(c, v, self.chains.vector[v]).0;
                        self.set_place(v, Space::Rmem, l);
                        self.slices[v] = self.slice_pool.list(&[v]);
                    }
                }
                _ => {}
            }
        }
    }

    fn set_place(&mut self, v: Value, space: Space, layout: Layout) {
        let data = self.func.value_data(v).placed(space, layout);
        let ty = self.func.intern_type(data);
        self.func.set_value_type(v, ty);
    }

    /// Zeros that a dot or loop starts from become constants in the accumulators' memory: they occupy nothing.
    fn zero_starts(&mut self) {
        let mut made: FxHashMap<(Value, Type), Value> = FxHashMap::default();
        for i in 0..self.classes.ties.len() {
            let tie = self.classes.ties[i];
            if self.classes.class(tie.value) != ValueClass::Leaf
                || classify::tie_needs_write(self.func, self.classes, i)
            {
                continue;
            }
            let (Some(def), Some(layout)) =
                (self.func.defining_op(tie.value), self.layouts.of_value[tie.member])
            else {
                continue;
            };
            let data = self.func.value_data(tie.value).placed(self.isa.acc_home().space, layout);
            let ty = self.func.intern_type(data);
            let v = match made.get(&(tie.value, ty)) {
                Some(&v) => v,
                None => {
                    let op = self.func.make_op(Opcode::Constant, &[], &[], &[ty], self.func.op_loc(def));
                    *self.func.inherent_mut(op) = self.func.inherent(def).clone();
                    self.func.insert_after(def, op);
                    let v = self.func.results(op)[0];
                    self.keep_name(v, tie.value);
                    made.insert((tie.value, ty), v);
                    v
                }
            };
            self.func.set_operand(tie.op, tie.operand, v);
        }
    }

    /// Who overwrites which accumulator, and where writes go.
    fn find_writes(&mut self) {
        let ties = self.classes.ties.len();
        for (n, tie) in self.classes.ties.iter().enumerate() {
            if self.classes.class(tie.value) == ValueClass::Acc && !self.classes.copied[n] {
                self.kills.entry(tie.value).or_default().push(tie.op);
                continue;
            }
            let target = latest_before(self.func, tie.op, |v| {
                self.classes.class(v) == ValueClass::Acc && self.classes.same_set(v, tie.member)
            });
            let Some(target) = target.filter(|t| !self.classes.rings.contains(t)) else { continue };
            self.kills.entry(target).or_default().push(tie.op);
            if self.chains.of_write[n].is_some() {
                self.targets[n] = Some(target);
            }
        }
        for a in 0..self.classes.operands.len() {
            for b in 0..a {
                let (x, y) = (self.classes.operands[a], self.classes.operands[b]);
                let same = x.value == y.value
                    && self.layouts.of_operand[a] == self.layouts.of_operand[b]
                    && self.chains.of_write[ties + a].is_some()
                    && self.write_block(ties + a) == self.write_block(ties + b);
                // Stores and dots free their copies at different times: only dots share.
                if same
                    && self.func.opcode(x.op) == Opcode::AsyncDot
                    && self.func.opcode(y.op) == Opcode::AsyncDot
                {
                    self.shared_with[ties + a] = self.shared_with[ties + b];
                    break;
                }
            }
        }
    }

    fn write_value(&self, n: usize) -> (Value, Op, usize) {
        match n.checked_sub(self.classes.ties.len()) {
            None => {
                let t = self.classes.ties[n];
                (t.value, t.op, t.operand)
            }
            Some(i) => {
                let o = self.classes.operands[i];
                (o.value, o.op, o.operand)
            }
        }
    }

    /// A computed matrix operand is copied where it is computed, an accumulator where it is taken.
    fn write_block(&self, n: usize) -> Option<Block> {
        let (v, op, _) = self.write_value(n);
        if n >= self.classes.ties.len() && self.classes.class(v) == ValueClass::Reg {
            home(self.func, v)
        } else {
            self.func.op_block(op)
        }
    }

    /// Numbers the reads of tiles in memory that may be read again, one for each op that takes them, and takes the words off
    /// what makes them.
    fn find_repeats(&mut self, ops: &[Op]) {
        let in_memory = |v: Value| matches!(self.classes.class(v), ValueClass::Acc | ValueClass::Smem);
        let words = |v: Value| {
            let def = self.func.defining_op(v)?;
            Some((def, RematWords::of(self.func, def))).filter(|(_, w)| w.recomputable && in_memory(v))
        };
        let marked: SmallVec<[(Value, Op, u32); 4]> = ops
            .iter()
            .flat_map(|&op| self.func.results(op))
            .filter_map(|&v| words(v).map(|(def, w)| (v, def, w.recomputations)))
            .collect();
        for (v, def, most) in marked {
            let most = if most == 0 { u32::MAX } else { most };
            let numbered = self.readers(ops, v);
            if numbered.is_empty() {
                continue;
            }
            self.repeats.extend(numbered.iter().zip(0..).map(|(&op, n)| ((v, op), most.min(n))));
            take(self.func, def, &RECOMPUTE_WORDS);
        }
        for v in self.crowding(ops) {
            let numbered = self.readers(ops, v);
            self.repeats.extend(numbered.iter().zip(0..).map(|(&op, n)| ((v, op), n)));
        }
    }

    /// Ops of chains that take a tile.
    fn readers(&self, ops: &[Op], v: Value) -> SmallVec<[Op; 4]> {
        let reads = |op: &Op| self.chains.of_op[*op].is_some() && self.func.operands(*op).contains(&v);
        ops.iter().copied().filter(reads).collect()
    }

    /// Tiles in tensor memory that chains which go as a whole, outside of loops, take several times and that do not all fit into the registers
    /// of a thread: sums of rows and what follows of them, of a product in halves. They are read again.
    fn crowding(&self, ops: &[Op]) -> SmallVec<[Value; 4]> {
        let mut read: SmallVec<[(Chain, Value, u32); 8]> = SmallVec::new();
        for &op in ops {
            let Some(chain) = self.chains.of_op[op].expand() else { continue };
            let around = self.func.op_block(op).and_then(|b| self.func.block_parent(b));
            if self.chains.info[chain].slices > 1 || around.is_some() {
                continue;
            }
            for &v in self.func.operands(op) {
                if self.classes.class(v) != ValueClass::Acc || self.repeats.contains_key(&(v, op)) {
                    continue;
                }
                match read.iter_mut().find(|r| (r.0, r.1) == (chain, v)) {
                    Some(r) => r.2 += 1,
                    None => read.push((chain, v, 1)),
                }
            }
        }
        let registers = |v: Value| {
            let dims = self.func.value_data(v).dims().unwrap_or(&[]);
            dims.last().copied().unwrap_or(0)
        };
        let all = |c: Chain| -> u32 { read.iter().filter(|r| r.0 == c).map(|r| registers(r.1)).sum() };
        read.iter().filter(|r| r.2 > 1 && all(r.0) > CROWDED).map(|r| r.1).collect()
    }

    fn find_items(&mut self, ops: &[Op]) {
        let mut requests: Vec<ReadRequest> = Vec::with_capacity(8);
        let mut later: Vec<(Op, Item)> =
            Vec::with_capacity(self.chains.ops.len() + self.chains.of_write.len());
        let mut products: Vec<(Op, Item)> = Vec::new();
        for i in 0..self.chains.ops.len() {
            let op = self.chains.ops[i];
            let (Some(chain), Some(block)) = (self.chains.of_op[op].expand(), self.func.op_block(op)) else {
                continue;
            };
            let operands: SmallVec<[Value; 4]> = SmallVec::from_slice(self.func.operands(op));
            if reads_piece(self.func, self.classes, op) {
                // Reads its piece itself, if need be where the whole is overwritten.
                let (block, anchor, _) = self.read_place(operands[0], op);
                if let Some(k) = self.first_kill(operands[0], block) {
                    self.chain_pool.push(&mut self.flush_at[k], chain);
                }
                later.push((anchor, Item { chain, kind: ItemKind::Op(op), block }));
                continue;
            }
            if classify::is_product(self.func, op) {
                // An accumulator that was loaded is read; the other operands come to shared memory before.
                if let Some(acc) = self.func.named_operand(op, "acc") {
                    self.request(&mut requests, acc, chain, op);
                }
                products.push((op, Item { chain, kind: ItemKind::Op(op), block }));
                continue;
            }
            for v in operands {
                self.request(&mut requests, v, chain, op);
            }
            later.push((op, Item { chain, kind: ItemKind::Op(op), block }));
        }
        for n in 0..self.chains.of_write.len() {
            let (Some(chain), Some(block)) = (self.chains.of_write[n], self.write_block(n)) else { continue };
            let (v, op, _) = self.write_value(n);
            let Some(anchor) = self.func.ancestor_in(op, block) else { continue };
            if self.shared_with[n] == n {
                self.request(&mut requests, v, chain, anchor);
                later.push((anchor, Item { chain, kind: ItemKind::Write(n), block }));
            }
            self.chain_pool.push(&mut self.flush_at[anchor], chain);
        }
        later.append(&mut products);
        for &op in ops {
            for (operand, becomes) in self.carried_operands(op) {
                let value = self.func.operands(op)[operand];
                let (Some(chain), Some(block)) =
                    (self.chains.of_value[becomes].expand(), self.func.op_block(op))
                else {
                    continue;
                };
                self.request(&mut requests, value, chain, op);
                let kind = ItemKind::Carry(op, operand, value, becomes);
                later.push((op, Item { chain, kind, block }));
            }
        }
        self.settle_reads(requests);
        later.sort_by_key(|(anchor, _)| self.position[*anchor]);
        for (anchor, item) in later {
            self.add_item(anchor, item);
        }
    }

    /// Operands of region ops and yields that carry register tiles, with what they become.
    fn carried_operands(&self, op: Op) -> SmallVec<[(usize, Value); 4]> {
        let reg = |v: &Value| self.classes.class(*v) == ValueClass::Reg;
        let mut out = SmallVec::new();
        match self.func.opcode(op) {
            Opcode::For => {
                let params = self.func.op_block_at(op, 0).map_or(&[][..], |b| self.func.block_params(b));
                for (n, &arg) in params.iter().enumerate().skip(1) {
                    if reg(&arg) {
                        out.push((n + 2, arg));
                    }
                }
            }
            Opcode::Yield => {
                let results = self.func.op_parent(op).map_or(&[][..], |p| self.func.results(p));
                for (n, &r) in results.iter().enumerate() {
                    if reg(&r) {
                        out.push((n, r));
                    }
                }
            }
            _ => {}
        }
        out
    }

    fn add_item(&mut self, anchor: Op, item: Item) {
        *self.remaining.entry((item.block, item.chain)).or_default() += 1;
        self.item_pool.push(&mut self.items_at[anchor], self.items.len() as u32);
        self.items.push(item);
        // Whatever the chain has pending outside must be complete before a region with more of it.
        let mut block = item.block;
        while let Some(parent) = self.func.block_parent(block) {
            self.chain_pool.push(&mut self.flush_at[parent], item.chain);
            let Some(b) = self.func.op_block(parent) else { break };
            block = b;
        }
    }

    /// Where a chain reads `v` for `user`: block, anchor, and whether the anchor overwrites it.
    fn read_place(&self, v: Value, user: Op) -> (Block, Op, bool) {
        let inner = self.func.op_block(user).unwrap_or_else(|| self.func.entry());
        let mut found = (inner, user, false);
        if !self.kills.contains_key(&v) {
            return found;
        }
        let top = home(self.func, v);
        let mut block = inner;
        // Outermost wins: a value overwritten before a region must be read before that.
        loop {
            if let Some(at) = self.func.ancestor_in(user, block)
                && let Some(k) = self.first_kill(v, block)
                && self.position[k] < self.position[at]
            {
                found = (block, k, true);
            }
            if Some(block) == top {
                return found;
            }
            match self.func.block_parent(block).and_then(|p| self.func.op_block(p)) {
                Some(b) => block = b,
                None => return found,
            }
        }
    }

    /// The first op of a block that overwrites `v`, itself or in a region.
    fn first_kill(&self, v: Value, block: Block) -> Option<Op> {
        let here = self.kills.get(&v)?.iter().filter_map(|&k| self.func.ancestor_in(k, block));
        here.min_by_key(|&k| self.position[k])
    }

    fn request(&self, requests: &mut Vec<ReadRequest>, value: Value, chain: Chain, user: Op) {
        if !matches!(self.classes.class(value), ValueClass::Acc | ValueClass::Smem) {
            return;
        }
        let number = self.read_number(value, Some(user));
        let (block, anchor, fixed) = self.read_place(value, user);
        let key = |r: &ReadRequest| (r.value, r.number, r.chain, r.block);
        match requests.iter_mut().find(|r| key(r) == (value, number, chain, block)) {
            Some(r) => {
                if self.position[anchor] < self.position[r.anchor] {
                    r.anchor = anchor;
                }
                r.fixed |= fixed;
            }
            None => requests.push(ReadRequest { value, number, chain, block, anchor, fixed }),
        }
    }

    /// Which read of a tile in memory an op takes.
    fn read_number(&self, v: Value, user: Option<Op>) -> u32 {
        if self.repeats.is_empty() {
            return 0;
        }
        user.and_then(|op| self.repeats.get(&(v, op))).copied().unwrap_or(0)
    }

    /// Anchors reads. The only read of a chain in a block stands before the chain's arithmetic, so that its wait
    /// overlaps with loads alone; further reads stand at their first user, which keeps fewer registers alive.
    fn settle_reads(&mut self, requests: Vec<ReadRequest>) {
        let mut places: Vec<(Op, Item)> = Vec::with_capacity(requests.len());
        for r in &requests {
            let alone = requests.iter().filter(|q| (q.chain, q.block) == (r.chain, r.block)).count() == 1;
            let mut anchor = r.anchor;
            if alone && !r.fixed {
                let after = match self
                    .func
                    .defining_op(r.value)
                    .filter(|_| home(self.func, r.value) == Some(r.block))
                {
                    Some(def) => self.position[def],
                    None => 0,
                };
                let first = self.chains.ops.iter().copied().find(|&op| {
                    self.chains.of_op[op].expand() == Some(r.chain)
                        && self.func.op_block(op) == Some(r.block)
                        && self.func.opcode(op) != Opcode::TiledLoad
                        && self.position[op] > after
                });
                if let Some(op) = first.filter(|&op| self.position[op] < self.position[anchor]) {
                    anchor = op;
                }
            }
            let kill = self.first_kill(r.value, r.block);
            if let Some(k) = kill {
                self.chain_pool.push(&mut self.flush_at[k], r.chain);
            }
            let item = Item { chain: r.chain, kind: ItemKind::Read(r.value, r.number), block: r.block };
            places.push((anchor, item));
        }
        places.sort_by_key(|(anchor, _)| self.position[*anchor]);
        for (anchor, item) in places {
            self.add_item(anchor, item);
        }
    }

    // ---- the walk

    fn walk(&mut self, block: Block) -> CodegenResult<()> {
        let mut next = self.func.first_op(block);
        while let Some(op) = next {
            next = self.func.next_op(op);
            self.at = op;
            self.flush_conflicts(op)?;
            let (items, chains) = (self.items_at[op], self.flush_at[op]);
            for n in 0..items.len() {
                let i = self.item_pool.get(items)[n];
                if matches!(self.items[i as usize].kind, ItemKind::Op(p) if classify::is_product(self.func, p))
                {
                    // All slices of its operands are in shared memory, not the first ones alone.
                    self.flush_all(SmallVec::from_slice(self.chain_pool.get(chains)))?;
                }
                self.flush_readers(i)?;
                self.emit_first(i)?;
            }
            self.flush_all(SmallVec::from_slice(self.chain_pool.get(chains)))?;
            for n in 0..items.len() {
                let i = self.item_pool.get(items)[n];
                let Item { chain, block, .. } = self.items[i as usize];
                let left = self.remaining.entry((block, chain)).or_default();
                *left = left.saturating_sub(1);
                if *left == 0 {
                    self.flush(chain)?;
                }
            }
            if self.chains.of_op[op].is_some() {
                if !self.trial && !self.func.opcode(op).leaves_tiles() {
                    self.func.remove_op(op);
                }
                continue;
            }
            for r in 0..self.func.regions(op).len() {
                if let Some(b) = self.func.op_block_at(op, r) {
                    self.walk(b)?;
                }
            }
        }
        Ok(())
    }

    fn emit_first(&mut self, i: u32) -> CodegenResult<()> {
        let item = self.items[i as usize];
        let rolled = self.is_rolled(i);
        if !self.trial && !rolled {
            self.emit(item, Slice::Fixed(0))?;
        }
        if self.is_sliced(item) {
            if self.pending[item.chain].is_empty() {
                self.active.push(item.chain);
            }
            self.pending[item.chain].push(i);
        }
        Ok(())
    }

    fn flush(&mut self, c: Chain) -> CodegenResult<()> {
        if self.pending[c].is_empty() {
            return Ok(());
        }
        let mut pending = std::mem::take(&mut self.pending[c]);
        self.active.retain(|&a| a != c);
        if self.trial {
            self.add_group(&pending);
        } else if self.is_rolled(pending[0]) {
            self.emit_loop(c, &pending)?;
        } else {
            for k in 1..self.chains.info[c].slices {
                for &i in &pending {
                    self.emit(self.items[i as usize], Slice::Fixed(k))?;
                }
            }
        }
        pending.clear();
        self.pending[c] = pending;
        Ok(())
    }

    /// What an item overwrites, if that holds a tile that may still be read.
    fn overwrites(&self, i: u32) -> Option<Value> {
        match self.items[i as usize].kind {
            ItemKind::Write(n) => self.targets[n],
            _ => None,
        }
    }

    fn still_reads(&self, c: Chain, v: Value) -> bool {
        self.pending[c].iter().any(|&i| matches!(self.items[i as usize].kind, ItemKind::Read(r, _) if r == v))
    }

    /// Completes chains that still read what an item overwrites, where their slices are not those of the item: its first
    /// slice meets later ones of theirs.
    fn flush_readers(&mut self, i: u32) -> CodegenResult<()> {
        let Some(v) = self.overwrites(i).filter(|_| !self.active.is_empty()) else { return Ok(()) };
        let c = self.items[i as usize].chain;
        let slices = |c: Chain| self.chains.info[c].slices;
        let differs = |&d: &Chain| d != c && slices(d) != slices(c) && self.still_reads(d, v);
        let mut chains: SmallVec<[Chain; 4]> = self.active.iter().copied().filter(differs).collect();
        // They overwrite what others still read.
        let mut n = 0;
        while let Some(&d) = chains.get(n) {
            n += 1;
            let written = self.pending[d].iter().filter_map(|&i| self.overwrites(i));
            for v in written.collect::<SmallVec<[Value; 2]>>() {
                let reads = |&e: &Chain| !chains.contains(&e) && self.still_reads(e, v);
                let more: SmallVec<[Chain; 4]> = self.active.iter().copied().filter(reads).collect();
                chains.extend(more);
            }
        }
        self.flush_all(chains)
    }

    /// Completes chains, those that read a tile before the one that overwrites it. Where that is no order they go on
    /// together: of each slice everything is read before anything is written.
    fn flush_all(&mut self, mut chains: SmallVec<[Chain; 4]>) -> CodegenResult<()> {
        chains.retain(|c| !self.pending[*c].is_empty());
        while !chains.is_empty() {
            let free = |&c: &Chain| {
                let mut written = self.pending[c].iter().filter_map(|&i| self.overwrites(i));
                !written.any(|v| chains.iter().any(|&d| d != c && self.still_reads(d, v)))
            };
            match chains.iter().position(free) {
                Some(n) => {
                    let c = chains.remove(n);
                    self.flush(c)?;
                }
                None => return self.flush_together(&chains),
            }
        }
        Ok(())
    }

    fn flush_together(&mut self, chains: &[Chain]) -> CodegenResult<()> {
        let of: SmallVec<[Vec<u32>; 4]> =
            chains.iter().map(|&c| std::mem::take(&mut self.pending[c])).collect();
        self.active.retain(|a| !chains.contains(a));
        // A trial that names no group leaves them unrolled.
        let most = chains.iter().map(|&c| self.chains.info[c].slices).max().unwrap_or(1);
        let most = if self.trial { 1 } else { most };
        for k in 1..most {
            for writes in [false, true] {
                for (&c, items) in chains.iter().zip(&of) {
                    if k >= self.chains.info[c].slices {
                        continue;
                    }
                    for &i in items {
                        if self.overwrites(i).is_some() == writes {
                            self.emit(self.items[i as usize], Slice::Fixed(k))?;
                        }
                    }
                }
            }
        }
        for (&c, mut items) in chains.iter().zip(of) {
            items.clear();
            self.pending[c] = items;
        }
        Ok(())
    }

    /// Completes chains whose pending memory accesses conflict with what `op` (with its regions) touches.
    fn flush_conflicts(&mut self, op: Op) -> CodegenResult<()> {
        if self.active.is_empty() {
            return Ok(());
        }
        let mut touched: SmallVec<[(Op, classify::Touch); 2]> = SmallVec::new();
        let mut touch = |o: Op| {
            if let Some(t) = classify::touches(self.func, o) {
                touched.push((o, t));
            }
        };
        touch(op);
        for &r in self.func.regions(op) {
            self.func.walk(self.func.region_block(r), &mut touch);
        }
        if touched.is_empty() {
            return Ok(());
        }
        for c in SmallVec::<[Chain; 4]>::from_slice(&self.active) {
            let conflict = self.pending[c].iter().any(|&i| {
                let ItemKind::Op(p) = self.items[i as usize].kind else { return false };
                let Some(before) = classify::touches(self.func, p) else { return false };
                touched.iter().any(|(o, now)| {
                    self.func.fences(p, *o)
                        || before.view == now.view
                            && (before.write || now.write)
                            && !(before.named == now.named
                                && self.chains.of_op[*o].expand() == Some(c)
                                && self.same_tile(p, *o))
                            && !self.apart(p, *o)
                })
            });
            if conflict {
                self.flush(c)?;
            }
        }
        Ok(())
    }

    /// Whether two accesses have no element in common, as stores of halves of one tile.
    fn apart(&self, a: Op, b: Op) -> bool {
        let of = |op: Op| Touched::of(self.func, op);
        of(a).zip(of(b)).is_some_and(|(a, b)| a.apart(&b, self.func))
    }

    /// Whether two plain loads or stores access one tile: their different slices are then disjoint.
    fn same_tile(&self, a: Op, b: Op) -> bool {
        let dims = |op: Op| {
            let v = self.func.named_operand(op, "value").or_else(|| self.func.result(op))?;
            self.func.value_data(v).dims()
        };
        self.func.named_segment(a, "coords") == self.func.named_segment(b, "coords") && dims(a) == dims(b)
    }
}
