//! One kernel: struct-of-arrays storage of its ops, values, blocks and regions.
//!
//! Entities are never reused; removing an op unlinks it from its block. Program order inside a block is a doubly
//! linked list, so insertion is O(1). Types and attributes are interned here.
//!
//! Guarantee: total. A call with an entity that is not of the function changes nothing and is noted where nothing else shows
//! it, for the verifier to report (`E0228`); a question about one is answered as for an op without anything, a block
//! without ops, a value of type `mem_token`.

use super::attrs::{AttrData, AttrDict, FloatBits};
use super::entities::{Attr, Block, MOST, Maker, Op, Region, Sym, Type, Value};
use super::intern::{Index, Symbols, hash_of};
use super::opcodes::{KNOWN_SYMBOLS, Opcode};
use super::pool::{List, Pool};
use super::types::{Scalar, TypeData};
use crate::error::{Code, CodegenError, Loc};
use cranelift_entity::packed_option::{PackedOption, ReservedValue};
use cranelift_entity::{EntityRef, PrimaryMap};
use smallvec::SmallVec;
use std::sync::OnceLock;

/// Where a value comes from.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ValueDef {
    /// Result number of an op.
    Result(Op, u32),
    /// Parameter number of a block.
    Param(Block, u32),
}

/// The lists of one op.
#[derive(Copy, Clone, Default)]
struct OpLists {
    operands: List,
    /// How many operands belong to each segment, then for each with which operand it begins.
    segments: List,
    results: List,
    regions: List,
}

#[derive(Copy, Clone, Default)]
struct OpLinks {
    block: PackedOption<Block>,
    prev: PackedOption<Op>,
    next: PackedOption<Op>,
}

#[derive(Copy, Clone, Default)]
struct BlockData {
    region: PackedOption<Region>,
    params: List,
    first: PackedOption<Op>,
    last: PackedOption<Op>,
}

#[derive(Copy, Clone, Default)]
struct RegionData {
    parent: PackedOption<Op>,
    block: PackedOption<Block>,
}

/// One kernel.
pub struct Function {
    /// Name without `@`.
    pub name: String,
    /// Where its header stands.
    pub loc: Loc,
    /// Kernel attributes (`<{…}>` behind the parameter list).
    pub attrs: AttrDict,
    opcodes: PrimaryMap<Op, Opcode>,
    lists: PrimaryMap<Op, OpLists>,
    inherent: PrimaryMap<Op, AttrDict>,
    discardable: PrimaryMap<Op, AttrDict>,
    links: PrimaryMap<Op, OpLinks>,
    locs: PrimaryMap<Op, Loc>,
    values: PrimaryMap<Value, (Type, ValueDef)>,
    value_names: PrimaryMap<Value, PackedOption<Sym>>,
    blocks: PrimaryMap<Block, BlockData>,
    regions: PrimaryMap<Region, RegionData>,
    value_pool: Pool<Value>,
    region_pool: Pool<Region>,
    segment_pool: Pool<u32>,
    types: PrimaryMap<Type, TypeData>,
    type_ids: Index,
    attr_values: PrimaryMap<Attr, AttrData>,
    attr_ids: Index,
    /// Small integers without a written type, by value: most attributes that passes make.
    small_ints: [PackedOption<Attr>; SMALL_INTS],
    symbols: Symbols,
    entry: Block,
    body: Region,
    maker: Maker,
    /// Calls that made no sense, the first few.
    misuse: Vec<CodegenError>,
    /// Attributes of ops that are not there.
    nowhere: AttrDict,
}

/// The type of what does not exist.
static NO_TYPE: TypeData = TypeData::MemToken;
static NO_ATTR: AttrData = AttrData::Unit;
static NO_ATTRS: OnceLock<AttrDict> = OnceLock::new();
/// Calls without sense that are noted.
const MOST_MISUSE: usize = 16;

/// Integers from 0 up to here are found without hashing.
const SMALL_INTS: usize = SMALL as usize;
const SMALL: i64 = 64;

/// By mark, the number of the known symbol that has it, plus 1; 0: none has it, [`SEVERAL`]: more than one.
static KNOWN_AT: [u16; 2048] = {
    let mut at = [0; 2048];
    let mut i = 0;
    while i < KNOWN_SYMBOLS.len() {
        let m = mark(KNOWN_SYMBOLS[i].as_bytes());
        at[m] = if at[m] == 0 { i as u16 + 1 } else { SEVERAL };
        i += 1;
    }
    at
};

const SEVERAL: u16 = u16::MAX;

/// One of 2048 marks, from the length and the outer letters.
const fn mark(name: &[u8]) -> usize {
    let n = name.len();
    if n == 0 {
        return 0;
    }
    (n * 7 + name[0] as usize * 31 + name[n - 1] as usize * 67 + name[n / 2] as usize * 131) % 2048
}

/// The number of a known symbol.
fn known(name: &str) -> Option<u32> {
    match KNOWN_AT[mark(name.as_bytes())] {
        0 => None,
        SEVERAL => KNOWN_SYMBOLS.binary_search(&name).ok().map(|i| i as u32),
        i => (KNOWN_SYMBOLS[usize::from(i) - 1] == name).then_some(u32::from(i) - 1),
    }
}

/// Numbers of operands, and the sums of those before each.
#[inline]
fn segment_list(pool: &mut Pool<u32>, segments: &[u32]) -> List {
    let mut list = pool.list(segments);
    let mut start = 0;
    for &len in segments {
        pool.push(&mut list, start);
        start = start.saturating_add(len);
    }
    list
}

fn copy_primary<K: EntityRef, V: Clone>(to: &mut PrimaryMap<K, V>, from: &PrimaryMap<K, V>) {
    to.clear();
    to.extend(from.values().cloned());
}

impl Clone for Function {
    fn clone(&self) -> Function {
        let mut copy = Function::new(String::new());
        copy.clone_from(self);
        copy
    }

    /// Becomes a copy, in its own memory.
    fn clone_from(&mut self, source: &Function) {
        let Function {
            name,
            loc,
            attrs,
            opcodes,
            lists,
            inherent,
            discardable,
            links,
            locs,
            values,
            value_names,
            blocks,
            regions,
            value_pool,
            region_pool,
            segment_pool,
            types,
            type_ids,
            attr_values,
            attr_ids,
            small_ints,
            symbols,
            entry,
            body,
            maker,
            misuse,
            nowhere: _,
        } = self;
        *maker = source.maker;
        misuse.clone_from(&source.misuse);
        name.clone_from(&source.name);
        attrs.clone_from(&source.attrs);
        (*loc, *entry, *body) = (source.loc, source.entry, source.body);
        copy_primary(opcodes, &source.opcodes);
        copy_primary(lists, &source.lists);
        copy_primary(inherent, &source.inherent);
        copy_primary(discardable, &source.discardable);
        copy_primary(links, &source.links);
        copy_primary(locs, &source.locs);
        copy_primary(values, &source.values);
        copy_primary(value_names, &source.value_names);
        copy_primary(blocks, &source.blocks);
        copy_primary(regions, &source.regions);
        value_pool.copy(&source.value_pool);
        region_pool.copy(&source.region_pool);
        segment_pool.copy(&source.segment_pool);
        copy_primary(types, &source.types);
        type_ids.copy(&source.type_ids);
        copy_primary(attr_values, &source.attr_values);
        attr_ids.copy(&source.attr_ids);
        *small_ints = source.small_ints;
        symbols.copy(&source.symbols);
    }
}

impl Function {
    /// An empty kernel without parameters.
    pub fn new(name: impl Into<String>) -> Function {
        let mut blocks: PrimaryMap<Block, BlockData> = PrimaryMap::new();
        let mut regions: PrimaryMap<Region, RegionData> = PrimaryMap::new();
        let body = regions.push(RegionData::default());
        let entry = blocks.push(BlockData { region: body.into(), ..BlockData::default() });
        regions[body].block = entry.into();
        let maker = Maker::next();
        let (body, entry) = (body.by(maker), entry.by(maker));
        Function {
            name: name.into(),
            loc: Loc::NONE,
            attrs: AttrDict::default(),
            opcodes: PrimaryMap::new(),
            lists: PrimaryMap::new(),
            inherent: PrimaryMap::new(),
            discardable: PrimaryMap::new(),
            links: PrimaryMap::new(),
            locs: PrimaryMap::new(),
            values: PrimaryMap::new(),
            value_names: PrimaryMap::new(),
            blocks,
            regions,
            value_pool: Pool::new(),
            region_pool: Pool::new(),
            segment_pool: Pool::new(),
            types: PrimaryMap::new(),
            type_ids: Index::default(),
            attr_values: PrimaryMap::new(),
            attr_ids: Index::default(),
            small_ints: [None.into(); SMALL_INTS],
            symbols: Symbols::default(),
            entry,
            body,
            maker,
            misuse: Vec::new(),
            nowhere: AttrDict::default(),
        }
    }

    /// A copy, in the memory of a function that is no longer needed.
    pub fn copy_in(&self, spare: Option<Function>) -> Function {
        match spare {
            Some(mut copy) => {
                copy.clone_from(self);
                copy
            }
            None => self.clone(),
        }
    }

    /// A function of the same name, attributes and parameters without ops, in the memory of one that is no longer needed.
    /// Types, attributes and symbols keep their numbers: what names them can be copied as it is.
    pub fn header_in(&self, spare: Option<Function>) -> Function {
        let mut out = spare.unwrap_or_else(|| Function::new(String::new()));
        out.maker = Maker::default();
        out.misuse.clone_from(&self.misuse);
        out.name.clone_from(&self.name);
        out.attrs.clone_from(&self.attrs);
        out.loc = self.loc;
        out.opcodes.clear();
        out.lists.clear();
        out.inherent.clear();
        out.discardable.clear();
        out.links.clear();
        out.locs.clear();
        out.values.clear();
        out.value_names.clear();
        out.blocks.clear();
        out.regions.clear();
        out.value_pool.clear();
        out.region_pool.clear();
        out.segment_pool.clear();
        copy_primary(&mut out.types, &self.types);
        out.type_ids.copy(&self.type_ids);
        copy_primary(&mut out.attr_values, &self.attr_values);
        out.attr_ids.copy(&self.attr_ids);
        out.small_ints = self.small_ints;
        out.symbols.copy(&self.symbols);
        out.body = out.regions.push(RegionData::default());
        out.entry = out.blocks.push(BlockData { region: out.body.into(), ..BlockData::default() });
        out.regions[out.body].block = out.entry.into();
        for &p in self.params() {
            let v = out.add_block_param(out.entry, self.value_type(p));
            out.value_names[v] = self.value_names[p];
        }
        out
    }

    // ---- interning

    /// Interns a type.
    pub fn intern_type(&mut self, data: TypeData) -> Type {
        let Self { types, type_ids, .. } = self;
        let found = type_ids.find_or_enter(
            hash_of(&data),
            types.len() as u32,
            |i| types[Type::from_u32(i)] == data,
            |i| hash_of(&types[Type::from_u32(i)]),
        );
        let ty = found.map_or_else(|| types.push(data), Type::from_u32);
        self.counted(ty.index());
        ty.by(self.maker)
    }

    /// Interns a scalar type.
    #[inline]
    pub fn scalar(&mut self, s: Scalar) -> Type {
        self.intern_type(TypeData::Scalar(s))
    }

    /// What a type stands for.
    #[inline]
    pub fn type_data(&self, t: Type) -> &TypeData {
        self.types.get(t).unwrap_or(&NO_TYPE)
    }

    /// Interns an attribute value.
    pub fn intern_attr(&mut self, data: AttrData) -> Attr {
        if let AttrData::Int(v @ 0..SMALL, None) = data {
            return match self.small_ints[v as usize].expand() {
                Some(known) => known,
                None => {
                    let new = self.enter_attr(data);
                    self.small_ints[v as usize] = new.into();
                    new
                }
            };
        }
        self.enter_attr(data)
    }

    fn enter_attr(&mut self, data: AttrData) -> Attr {
        let Self { attr_values, attr_ids, .. } = self;
        let found = attr_ids.find_or_enter(
            hash_of(&data),
            attr_values.len() as u32,
            |i| attr_values[Attr::from_u32(i)] == data,
            |i| hash_of(&attr_values[Attr::from_u32(i)]),
        );
        let attr = found.map_or_else(|| attr_values.push(data), Attr::from_u32);
        self.counted(attr.index());
        attr.by(self.maker)
    }

    /// What an attribute stands for.
    #[inline]
    pub fn attr_data(&self, a: Attr) -> &AttrData {
        self.attr_values.get(a).unwrap_or(&NO_ATTR)
    }

    /// Interns a name.
    pub fn intern_symbol(&mut self, name: &str) -> Sym {
        if let Some(i) = known(name) {
            return Sym::known(i);
        }
        let number = KNOWN_SYMBOLS.len() + self.symbols.intern(name) as usize;
        self.counted(number);
        Sym::new(number).by(self.maker)
    }

    /// The text of a name.
    #[inline]
    pub fn symbol(&self, s: Sym) -> &str {
        let i = s.index();
        KNOWN_SYMBOLS.get(i).copied().unwrap_or_else(|| self.symbols.get(i - KNOWN_SYMBOLS.len()))
    }

    // ---- entities of this function

    /// Notes a call that made no sense, for the verifier to report.
    #[cold]
    pub(super) fn misused(&mut self, code: Code, loc: Loc, message: impl Into<String>) {
        if self.misuse.len() < MOST_MISUSE {
            self.misuse.push(CodegenError::new(code, loc, message));
        }
    }

    /// The calls that made no sense, the first few.
    pub(super) fn misuse(&self) -> &[CodegenError] {
        &self.misuse
    }

    /// Whether entities say who made them.
    pub(super) fn knows_its_own(&self) -> bool {
        self.maker.is_some()
    }

    /// Notes that there are more entities of one kind than have numbers.
    #[inline]
    fn counted(&mut self, number: usize) {
        if number >= MOST {
            self.misused(
                Code::E1001,
                Loc::NONE,
                format!("function has more than {MOST} entities of one kind"),
            );
        }
    }

    /// Whether a value is one of this function.
    #[inline]
    pub fn has_value(&self, v: Value) -> bool {
        self.values.is_valid(v) && v.maker().agrees(self.maker)
    }

    /// Whether an op is one of this function, linked or not.
    #[inline]
    pub fn has_op(&self, op: Op) -> bool {
        self.opcodes.is_valid(op) && op.maker().agrees(self.maker)
    }

    /// Whether a block is one of this function.
    #[inline]
    pub fn has_block(&self, b: Block) -> bool {
        self.blocks.is_valid(b) && b.maker().agrees(self.maker)
    }

    /// Whether a type is one of this function.
    #[inline]
    pub fn has_type(&self, t: Type) -> bool {
        self.types.is_valid(t) && t.maker().agrees(self.maker)
    }

    /// Whether an attribute is one of this function.
    #[inline]
    pub fn has_attr_value(&self, a: Attr) -> bool {
        self.attr_values.is_valid(a) && a.maker().agrees(self.maker)
    }

    /// Whether a name is one of this function, or known to all.
    #[inline]
    pub fn has_symbol(&self, s: Sym) -> bool {
        s.index() < KNOWN_SYMBOLS.len() + self.symbols.len() && s.maker().agrees(self.maker)
    }

    /// Whether an op is one of this function; if not, that is noted.
    #[inline]
    fn own_op(&mut self, op: Op) -> bool {
        let own = self.has_op(op);
        if !own {
            self.misused(Code::E0228, Loc::NONE, format!("{op} is no operation of this function"));
        }
        own
    }

    /// As [`Function::own_op`], for blocks.
    #[inline]
    fn own_block(&mut self, b: Block) -> bool {
        let own = self.has_block(b);
        if !own {
            self.misused(Code::E0228, Loc::NONE, format!("{b} is no block of this function"));
        }
        own
    }

    /// As [`Function::own_op`], for values.
    #[inline]
    fn own_value(&mut self, v: Value) -> bool {
        let own = self.has_value(v);
        if !own {
            self.misused(Code::E0228, Loc::NONE, format!("{v} is no value of this function"));
        }
        own
    }

    /// Whether an op may be linked: it is one of this function and has no place.
    #[inline]
    fn linkable(&mut self, op: Op) -> bool {
        let own = self.own_op(op);
        if own && self.links[op].block.is_some() {
            let text = format!("{}: the operation has a place already", self.opcode(op).name());
            self.misused(Code::E0228, self.locs[op], text);
            return false;
        }
        own
    }

    /// The lists of an op.
    #[inline]
    fn lists(&self, op: Op) -> OpLists {
        self.lists.get(op).copied().unwrap_or_default()
    }

    #[inline]
    fn links(&self, op: Op) -> OpLinks {
        self.links.get(op).copied().unwrap_or_default()
    }

    #[inline]
    fn block_data(&self, b: Block) -> BlockData {
        self.blocks.get(b).copied().unwrap_or_default()
    }

    #[inline]
    fn region_data(&self, r: Region) -> RegionData {
        self.regions.get(r).copied().unwrap_or_default()
    }

    // ---- structure

    /// The kernel's body.
    #[inline]
    pub fn body(&self) -> Region {
        self.body
    }

    /// The body's block.
    #[inline]
    pub fn entry(&self) -> Block {
        self.entry
    }

    /// Kernel parameters.
    #[inline]
    pub fn params(&self) -> &[Value] {
        self.block_params(self.entry)
    }

    /// Parameters of a block.
    #[inline]
    pub fn block_params(&self, b: Block) -> &[Value] {
        self.value_pool.get(self.block_data(b).params)
    }

    /// Adds a parameter to a block.
    pub fn add_block_param(&mut self, b: Block, ty: Type) -> Value {
        if !self.own_block(b) {
            return self.make_value(ty, ValueDef::Param(b, u32::MAX));
        }
        let n = self.blocks[b].params.len() as u32;
        let v = self.make_value(ty, ValueDef::Param(b, n));
        self.value_pool.push(&mut self.blocks[b].params, v);
        v
    }

    /// The region a block belongs to.
    #[inline]
    pub fn block_region(&self, b: Block) -> Region {
        self.block_data(b).region.expand().unwrap_or(self.body)
    }

    /// The block of a region.
    #[inline]
    pub fn region_block(&self, r: Region) -> Block {
        self.region_data(r).block.expand().unwrap_or(self.entry)
    }

    /// The op that owns a region; `None` for the kernel body.
    #[inline]
    pub fn region_parent(&self, r: Region) -> Option<Op> {
        self.region_data(r).parent.expand()
    }

    /// The op whose region contains this block; `None` at kernel level.
    #[inline]
    pub fn block_parent(&self, b: Block) -> Option<Op> {
        self.region_parent(self.block_region(b))
    }

    /// The op around `op`; `None` at kernel level or when unlinked.
    #[inline]
    pub fn op_parent(&self, op: Op) -> Option<Op> {
        self.block_parent(self.op_block(op)?)
    }

    /// The op of `block` that is `op` or contains it.
    pub fn ancestor_in(&self, mut op: Op, block: Block) -> Option<Op> {
        while self.op_block(op)? != block {
            op = self.op_parent(op)?;
        }
        Some(op)
    }

    /// The common block of two blocks: the innermost one that contains both.
    pub fn common_block(&self, a: Block, b: Block) -> Block {
        let outwards = |b: Block| {
            std::iter::successors(Some(b), |&b| self.block_parent(b).and_then(|op| self.op_block(op)))
        };
        outwards(b).find(|&x| outwards(a).any(|y| x == y)).unwrap_or_else(|| self.entry())
    }

    /// Whether a value is defined in a block or in something inside it.
    pub fn is_inside(&self, v: Value, block: Block) -> bool {
        let home = match self.value_def(v) {
            ValueDef::Result(op, _) => self.op_block(op),
            ValueDef::Param(b, _) => Some(b),
        };
        home.is_some_and(|b| self.common_block(b, block) == block)
    }

    /// Iteration arguments of a `for`, without the induction variable.
    pub fn for_args(&self, op: Op) -> &[Value] {
        self.op_block_at(op, 0).map_or(&[], |b| self.block_params(b).get(1..).unwrap_or(&[]))
    }

    /// The terminator of region `n` of an op.
    pub fn terminator(&self, op: Op, n: usize) -> Option<Op> {
        self.op_block_at(op, n).and_then(|b| self.last_op(b))
    }

    /// What region `n` of an op yields.
    pub fn region_yields(&self, op: Op, n: usize) -> &[Value] {
        let yields = self.terminator(op, n).filter(|&t| self.opcode(t) == Opcode::Yield);
        yields.map_or(&[], |t| self.operands(t))
    }

    /// The `exit_if` of a `for`: it stands right before the terminator.
    pub fn exit_of(&self, op: Op) -> Option<Op> {
        let before = self.prev_op(self.terminator(op, 0)?)?;
        (self.opcode(before) == Opcode::ExitIf && self.opcode(op) == Opcode::For).then_some(before)
    }

    /// Whether an op is a loop over the slices of a chain of register tiles, as `place` and `prepare::strips` write it. It belongs to the one
    /// agent that runs the chain and is not scheduled: its ops run in program order, so that one slice is in registers at
    /// a time; what overlaps is the TMA store of one slice with the next, through the ring of its staging buffer.
    pub fn is_slice_loop(&self, op: Op) -> bool {
        self.opcode(op) == Opcode::For && self.inherent(op).get(super::keys::SLICES).is_some()
    }

    /// Regions of an op.
    #[inline]
    pub fn regions(&self, op: Op) -> &[Region] {
        self.region_pool.get(self.lists(op).regions)
    }

    /// The block of region number `n` of an op.
    #[inline]
    pub fn op_block_at(&self, op: Op, n: usize) -> Option<Block> {
        self.regions(op).get(n).map(|&r| self.region_block(r))
    }

    /// Adds a region with an empty block to an op.
    pub fn add_region(&mut self, op: Op) -> Block {
        let r = self.regions.push(RegionData { parent: op.into(), block: None.into() });
        let b = self.blocks.push(BlockData { region: r.into(), ..BlockData::default() });
        let (r, b) = (r.by(self.maker), b.by(self.maker));
        self.regions[r].block = b.into();
        self.counted(r.index());
        if self.own_op(op) {
            self.region_pool.push(&mut self.lists[op].regions, r);
        }
        b
    }

    // ---- ops

    /// Number of ops ever made (entities, also unlinked ones).
    #[inline]
    pub fn num_ops(&self) -> usize {
        self.opcodes.len()
    }

    /// Number of values ever made.
    #[inline]
    pub fn num_values(&self) -> usize {
        self.values.len()
    }

    /// Makes an unlinked op. `segments` must sum to the number of operands.
    pub fn make_op(
        &mut self,
        opcode: Opcode,
        operands: &[Value],
        segments: &[u32],
        result_types: &[Type],
        loc: Loc,
    ) -> Op {
        let op = self.opcodes.push(opcode).by(self.maker);
        self.counted(op.index());
        let mut lists = OpLists {
            operands: self.value_pool.list(operands),
            segments: segment_list(&mut self.segment_pool, segments),
            ..OpLists::default()
        };
        for (n, &ty) in result_types.iter().enumerate() {
            let v = self.make_value(ty, ValueDef::Result(op, n as u32));
            self.value_pool.push(&mut lists.results, v);
        }
        self.lists.push(lists);
        self.inherent.push(AttrDict::default());
        self.discardable.push(AttrDict::default());
        self.links.push(OpLinks::default());
        self.locs.push(loc);
        op
    }

    /// Adds a result to an op.
    pub fn add_result(&mut self, op: Op, ty: Type) -> Value {
        if !self.own_op(op) {
            return self.make_value(ty, ValueDef::Result(op, u32::MAX));
        }
        let n = self.lists[op].results.len() as u32;
        let v = self.make_value(ty, ValueDef::Result(op, n));
        self.value_pool.push(&mut self.lists[op].results, v);
        v
    }

    /// Appends an unlinked op to a block.
    #[inline]
    pub fn append_op(&mut self, b: Block, op: Op) {
        if !self.own_block(b) || !self.linkable(op) {
            return;
        }
        let last = self.blocks[b].last;
        self.links[op] = OpLinks { block: b.into(), prev: last, next: None.into() };
        match last.expand() {
            Some(l) => self.links[l].next = op.into(),
            None => self.blocks[b].first = op.into(),
        }
        self.blocks[b].last = op.into();
    }

    /// Links an unlinked op directly before `at`.
    pub fn insert_before(&mut self, at: Op, op: Op) {
        if !self.own_op(at) || !self.linkable(op) {
            return;
        }
        let OpLinks { block, prev, .. } = self.links[at];
        if block.is_none() {
            self.misused(Code::E0228, self.locs[op], "operation put before one without a place");
            return;
        }
        self.links[op] = OpLinks { block, prev, next: at.into() };
        self.links[at].prev = op.into();
        match prev.expand() {
            Some(p) => self.links[p].next = op.into(),
            None => {
                if let Some(b) = block.expand() {
                    self.blocks[b].first = op.into();
                }
            }
        }
    }

    /// Links an unlinked op directly after `at`.
    pub fn insert_after(&mut self, at: Op, op: Op) {
        match (self.links(at).next.expand(), self.op_block(at)) {
            (Some(next), _) => self.insert_before(next, op),
            (None, Some(b)) => self.append_op(b, op),
            (None, None) => {
                self.misused(Code::E0228, self.op_loc(op), "operation put behind one without a place");
            }
        }
    }

    /// Unlinks an op from its block; its entities stay.
    pub fn remove_op(&mut self, op: Op) {
        if !self.own_op(op) {
            return;
        }
        let OpLinks { block, prev, next } = self.links[op];
        let Some(b) = block.expand() else { return };
        match prev.expand() {
            Some(p) => self.links[p].next = next,
            None => self.blocks[b].first = next,
        }
        match next.expand() {
            Some(n) => self.links[n].prev = prev,
            None => self.blocks[b].last = prev,
        }
        self.links[op] = OpLinks::default();
    }

    /// The opcode.
    #[inline]
    pub fn opcode(&self, op: Op) -> Opcode {
        self.opcodes.get(op).copied().unwrap_or(Opcode::Yield)
    }

    /// The block an op is linked into.
    #[inline]
    pub fn op_block(&self, op: Op) -> Option<Block> {
        self.links(op).block.expand()
    }

    /// The next op of the block.
    #[inline]
    pub fn next_op(&self, op: Op) -> Option<Op> {
        self.links(op).next.expand()
    }

    /// The previous op of the block.
    #[inline]
    pub fn prev_op(&self, op: Op) -> Option<Op> {
        self.links(op).prev.expand()
    }

    /// The first op of a block.
    #[inline]
    pub fn first_op(&self, b: Block) -> Option<Op> {
        self.block_data(b).first.expand()
    }

    /// The last op of a block: its terminator in a complete block.
    #[inline]
    pub fn last_op(&self, b: Block) -> Option<Op> {
        self.block_data(b).last.expand()
    }

    /// Ops of a block in program order.
    #[inline]
    pub fn block_ops(&self, b: Block) -> impl Iterator<Item = Op> + '_ {
        std::iter::successors(self.first_op(b), move |&op| self.next_op(op))
    }

    /// All operands.
    #[inline]
    pub fn operands(&self, op: Op) -> &[Value] {
        self.value_pool.get(self.lists(op).operands)
    }

    /// Number of values in each segment.
    #[inline]
    pub fn segments(&self, op: Op) -> &[u32] {
        let list = self.segment_pool.get(self.lists(op).segments);
        &list[..list.len() / 2]
    }

    /// Values of segment number `n` (empty when there is no such segment).
    #[inline]
    pub fn segment(&self, op: Op, n: usize) -> &[Value] {
        let lists = self.lists(op);
        let (counts, starts) = {
            let list = self.segment_pool.get(lists.segments);
            list.split_at(list.len() / 2)
        };
        match (counts.get(n), starts.get(n)) {
            (Some(&len), Some(&start)) => {
                let operands = self.value_pool.get(lists.operands);
                operands.get(start as usize..).and_then(|o| o.get(..len as usize)).unwrap_or(&[])
            }
            _ => &[],
        }
    }

    /// Values of the segment of that name; empty when the op has none.
    #[inline(always)]
    pub fn named_segment(&self, op: Op, name: &str) -> &[Value] {
        self.keyed_segment(op, self.opcode(op).segment_key(name))
    }

    // One function for both lookups: there are many calls from many places.
    #[inline(never)]
    fn keyed_segment(&self, op: Op, key: u32) -> &[Value] {
        match self.opcode(op).segment_by_key(key) {
            Some(n) => self.segment(op, n),
            None => &[],
        }
    }

    /// The first value of the segment of that name.
    #[inline(always)]
    pub fn named_operand(&self, op: Op, name: &str) -> Option<Value> {
        self.named_segment(op, name).first().copied()
    }

    /// Replaces operand number `n`.
    #[inline]
    pub fn set_operand(&mut self, op: Op, n: usize, v: Value) {
        if !self.own_op(op) {
            return;
        }
        match self.value_pool.get_mut(self.lists[op].operands).get_mut(n) {
            Some(slot) => *slot = v,
            None => {
                let text = format!("{}: there is no operand {n}", self.opcode(op).name());
                self.misused(Code::E0228, self.locs[op], text);
            }
        }
    }

    /// Replaces all operands; `segments` must sum to their number.
    pub fn set_operands(&mut self, op: Op, operands: &[Value], segments: &[u32]) {
        if !self.own_op(op) {
            return;
        }
        let lists = &mut self.lists[op];
        self.value_pool.set(&mut lists.operands, operands);
        lists.segments = segment_list(&mut self.segment_pool, segments);
    }

    /// Results.
    #[inline]
    pub fn results(&self, op: Op) -> &[Value] {
        self.value_pool.get(self.lists(op).results)
    }

    /// The first result.
    #[inline]
    pub fn result(&self, op: Op) -> Option<Value> {
        self.results(op).first().copied()
    }

    /// Where the op stands in the source.
    #[inline]
    pub fn op_loc(&self, op: Op) -> Loc {
        self.locs.get(op).copied().unwrap_or_default()
    }

    /// Sets where the op stands.
    pub fn set_op_loc(&mut self, op: Op, loc: Loc) {
        if self.own_op(op) {
            self.locs[op] = loc;
        }
    }

    // ---- values

    #[inline]
    fn make_value(&mut self, ty: Type, def: ValueDef) -> Value {
        self.value_names.push(None.into());
        let v = self.values.push((ty, def)).by(self.maker);
        self.counted(v.index());
        v
    }

    /// A value's type.
    #[inline]
    pub fn value_type(&self, v: Value) -> Type {
        self.values.get(v).map_or(Type::reserved_value(), |data| data.0)
    }

    /// What a value's type stands for.
    #[inline]
    pub fn value_data(&self, v: Value) -> &TypeData {
        self.type_data(self.value_type(v))
    }

    /// Changes a value's type (placement does).
    pub fn set_value_type(&mut self, v: Value, ty: Type) {
        if self.own_value(v) {
            self.values[v].0 = ty;
        }
    }

    /// Where a value comes from.
    #[inline]
    pub fn value_def(&self, v: Value) -> ValueDef {
        self.values.get(v).map_or(ValueDef::Param(self.entry, u32::MAX), |data| data.1)
    }

    /// The op that defines a value, unless it is a parameter.
    #[inline]
    pub fn defining_op(&self, v: Value) -> Option<Op> {
        match self.value_def(v) {
            ValueDef::Result(op, _) => Some(op),
            ValueDef::Param(..) => None,
        }
    }

    /// The written name of a value, without `%`.
    #[inline]
    pub fn value_name(&self, v: Value) -> Option<&str> {
        self.value_sym(v).map(|s| self.symbol(s))
    }

    /// The written name of a value, as a symbol.
    #[inline]
    pub fn value_sym(&self, v: Value) -> Option<Sym> {
        self.value_names.get(v)?.expand()
    }

    /// Names a value by a symbol of this function.
    #[inline]
    pub fn set_value_sym(&mut self, v: Value, name: Sym) {
        if self.own_value(v) {
            self.value_names[v] = name.into();
        }
    }

    /// Names a value.
    pub fn set_value_name(&mut self, v: Value, name: &str) {
        let s = self.intern_symbol(name);
        self.set_value_sym(v, s);
    }

    // ---- attributes

    /// The inherent dictionary.
    #[inline]
    pub fn inherent(&self, op: Op) -> &AttrDict {
        self.inherent.get(op).unwrap_or_else(|| NO_ATTRS.get_or_init(AttrDict::default))
    }

    /// The discardable dictionary.
    #[inline]
    pub fn discardable(&self, op: Op) -> &AttrDict {
        self.discardable.get(op).unwrap_or_else(|| NO_ATTRS.get_or_init(AttrDict::default))
    }

    /// The inherent dictionary, to change.
    #[inline]
    pub fn inherent_mut(&mut self, op: Op) -> &mut AttrDict {
        if self.own_op(op) { &mut self.inherent[op] } else { &mut self.nowhere }
    }

    /// The discardable dictionary, to change.
    #[inline]
    pub fn discardable_mut(&mut self, op: Op) -> &mut AttrDict {
        if self.own_op(op) { &mut self.discardable[op] } else { &mut self.nowhere }
    }

    /// Sets an inherent attribute.
    pub fn set_attr(&mut self, op: Op, key: Sym, data: AttrData) {
        let a = self.intern_attr(data);
        if self.own_op(op) {
            self.inherent[op].set(key, a);
        }
    }

    /// Sets an inherent integer attribute.
    pub fn set_int(&mut self, op: Op, key: Sym, value: i64) {
        self.set_attr(op, key, AttrData::Int(value, None));
    }

    /// Sets an inherent array of integers.
    pub fn set_ints(&mut self, op: Op, key: Sym, values: &[i64]) {
        let list = values.iter().map(|&v| self.intern_attr(AttrData::Int(v, None))).collect();
        self.set_attr(op, key, AttrData::Array(list));
    }

    /// An inherent attribute.
    #[inline]
    pub fn attr(&self, op: Op, key: Sym) -> Option<&AttrData> {
        self.inherent(op).get(key).map(|a| self.attr_data(a))
    }

    /// Whether an inherent attribute is present.
    #[inline]
    pub fn has_attr(&self, op: Op, key: Sym) -> bool {
        self.inherent(op).get(key).is_some()
    }

    /// An inherent integer.
    #[inline]
    pub fn attr_int(&self, op: Op, key: Sym) -> Option<i64> {
        match self.attr(op, key)? {
            AttrData::Int(v, _) => Some(*v),
            _ => None,
        }
    }

    /// An inherent text.
    pub fn attr_str(&self, op: Op, key: Sym) -> Option<&str> {
        match self.attr(op, key)? {
            AttrData::Str(text) => Some(text),
            _ => None,
        }
    }

    /// An inherent number, integers widened.
    pub fn attr_number(&self, op: Op, key: Sym) -> Option<f64> {
        match self.attr(op, key)? {
            AttrData::Int(v, _) => Some(*v as f64),
            AttrData::Float(f, _) => Some(f.get()),
            _ => None,
        }
    }

    /// An inherent bare name.
    #[inline]
    pub fn attr_name(&self, op: Op, key: Sym) -> Option<&str> {
        match self.attr(op, key)? {
            AttrData::Name(s) => Some(self.symbol(*s)),
            _ => None,
        }
    }

    /// The tile whose elements a `gather`, `scatter` or atomic update moves; `None` where it is a scalar.
    pub fn sparse_tile(&self, op: Op) -> Option<Value> {
        let moved = match self.opcode(op) {
            Opcode::Gather => self.result(op),
            o if o.is_sparse() => self.named_operand(op, "value"),
            _ => None,
        };
        moved.filter(|&v| self.value_data(v).is_tile())
    }

    /// Whether an access must be over before a later one in program order begins, whatever both touch: the first acquires, or
    /// the second releases.
    pub fn fences(&self, first: Op, second: Op) -> bool {
        let is = |op: Op, one: &str| {
            let semantic = self.attr_name(op, super::keys::MEM_SEMANTIC);
            semantic == Some(one) || semantic == Some("acq_rel")
        };
        is(first, "acquire") || is(second, "release")
    }

    /// Whether an access to memory may be moved and merged like any other: it is neither atomic nor ordered.
    pub fn is_weak(&self, op: Op) -> bool {
        !self.opcode(op).is_atomic()
            && matches!(self.attr_name(op, super::keys::MEM_SEMANTIC), None | Some("weak"))
    }

    /// What an access to a view or through a pointer goes to: the view itself, or the pointer that it was made of, as far back as it
    /// can be followed; of pointers that may lead to the same memory, one of them.
    pub fn memory_root(&self, mut v: Value) -> Value {
        while let Some(op) = self.defining_op(v) {
            match (self.opcode(op), self.operands(op)) {
                (Opcode::MakeView | Opcode::Offset | Opcode::Assume, &[from, ..]) => v = from,
                (Opcode::MayAlias, &[_, other]) => v = other,
                _ => break,
            }
        }
        v
    }

    /// Whether an op makes a pointer of what is no parameter: of a number, or to a variable of the kernel.
    pub fn makes_pointer(&self, op: Op) -> bool {
        matches!(self.opcode(op), Opcode::IntToPtr | Opcode::Global)
    }

    /// What stands for the memory that an access may touch: [`memory_root`](Function::memory_root), and one value for all pointers that
    /// were numbers, which may be equal, or lead to variables of the kernel, whose addresses numbers may be.
    pub fn memory_touched(&self, v: Value) -> Value {
        let root = self.memory_root(v);
        let made = |op: &Op| self.makes_pointer(*op);
        let first = self.defining_op(root).filter(made).and_then(|_| self.ops().find(made));
        first.and_then(|op| self.result(op)).unwrap_or(root)
    }

    /// Whether a scalar is a number that the host knows before the launch: it follows from kernel parameters by operations that launch
    /// expressions have.
    pub fn is_launch_known(&self, v: Value, fuel: u32) -> bool {
        let op = match self.value_def(v) {
            ValueDef::Param(b, _) => return b == self.entry(),
            ValueDef::Result(op, _) => op,
        };
        let known = match self.opcode(op) {
            Opcode::Constant | Opcode::Assume | Opcode::Addi | Opcode::Subi | Opcode::Muli => true,
            Opcode::Exti => !self.has_attr(op, super::keys::UNSIGNED),
            Opcode::Divi => {
                matches!(self.attr_name(op, super::keys::ROUNDING), Some("negative_inf" | "positive_inf"))
            }
            _ => false,
        };
        let integer = |&v: &Value| !matches!(self.value_data(v), TypeData::View { .. });
        known
            && fuel > 0
            && self.operands(op).iter().filter(|v| integer(v)).all(|&v| self.is_launch_known(v, fuel - 1))
    }

    /// Whether the host can make tensor maps of a view: it is a kernel parameter, or made at the top of the kernel of a pointer that is
    /// one, with extents and strides that are known at launch.
    pub fn is_launch_view(&self, v: Value) -> bool {
        let op = match self.value_def(v) {
            ValueDef::Param(b, _) => return b == self.entry(),
            ValueDef::Result(op, _) => op,
        };
        let is_base = |mut p: Value| {
            while let Some(op) = self.defining_op(p).filter(|&op| self.opcode(op) == Opcode::Assume) {
                let Some(&from) = self.operands(op).first() else { return false };
                p = from;
            }
            matches!(self.value_def(p), ValueDef::Param(b, _) if b == self.entry())
        };
        self.opcode(op) == Opcode::MakeView
            && self.op_block(op) == Some(self.entry())
            && self.operands(op).split_first().is_some_and(|(&pointer, numbers)| {
                is_base(pointer) && numbers.iter().all(|&n| self.is_launch_known(n, 16))
            })
    }

    /// The function by which an op combines elements.
    pub fn combiner(&self, op: Op) -> Option<&Function> {
        match self.attr(op, super::keys::BY)? {
            AttrData::Combiner(c) => Some(c.function()),
            _ => None,
        }
    }

    /// An inherent array of integers.
    pub fn attr_ints(&self, op: Op, key: Sym) -> Option<SmallVec<[i64; 4]>> {
        let AttrData::Array(list) = self.attr(op, key)? else { return None };
        let mut ints = SmallVec::new();
        for &a in list {
            let AttrData::Int(v, _) = self.attr_data(a) else { return None };
            ints.push(*v);
        }
        Some(ints)
    }

    /// Elements of the variable that a `global` is of: `size`, or as many as `values`.
    pub fn variable_len(&self, op: Op) -> Option<u64> {
        match (self.attr(op, super::keys::SIZE), self.attr(op, super::keys::VALUES)) {
            (Some(&AttrData::Int(n, _)), _) => u64::try_from(n).ok(),
            (None, Some(AttrData::Array(list))) => Some(list.len() as u64),
            _ => None,
        }
    }

    /// A `name(int, …)` attribute: the name and the integers (a bare name has none).
    pub fn attr_call(&self, op: Op, key: Sym) -> Option<(&str, SmallVec<[i64; 4]>)> {
        match self.attr(op, key)? {
            AttrData::Name(s) => Some((self.symbol(*s), SmallVec::new())),
            AttrData::Call(s, list) => {
                let ints = list.iter().filter_map(|&a| match self.attr_data(a) {
                    AttrData::Int(v, _) => Some(*v),
                    _ => None,
                });
                Some((self.symbol(*s), ints.collect()))
            }
            _ => None,
        }
    }

    /// A float attribute value.
    pub fn float_attr(value: f64) -> AttrData {
        AttrData::Float(FloatBits::new(value), None)
    }

    /// The value of a `constant`, as a number.
    pub fn constant_value(&self, v: Value) -> Option<f64> {
        let op = self.defining_op(v)?;
        (self.opcode(op) == Opcode::Constant).then(|| self.attr_number(op, super::keys::VALUE)).flatten()
    }

    /// Visits every linked op of a block and of nested regions, parents before children, in program order.
    pub fn walk(&self, b: Block, f: &mut impl FnMut(Op)) {
        // Ops whose regions are being visited, and how many were. No recursion: nothing bounds the depth of what is unverified.
        let mut open: SmallVec<[(Op, usize); 8]> = SmallVec::new();
        let mut next = self.first_op(b);
        loop {
            if let Some(op) = next {
                f(op);
                if self.regions(op).is_empty() {
                    next = self.next_op(op);
                    continue;
                }
                open.push((op, 0));
            }
            let Some((op, visited)) = open.last_mut() else { return };
            next = match self.op_block_at(*op, *visited) {
                Some(inner) => {
                    *visited += 1;
                    self.first_op(inner)
                }
                None => {
                    let after = self.next_op(*op);
                    open.pop();
                    after
                }
            };
        }
    }

    /// All linked ops, parents before children, in program order.
    #[inline]
    pub fn ops(&self) -> impl Iterator<Item = Op> + '_ {
        std::iter::successors(self.first_op(self.entry), move |&op| self.op_after(op))
    }

    /// The op after `op` in [`Function::ops`].
    #[inline]
    fn op_after(&self, op: Op) -> Option<Op> {
        match self.links(op).next.expand() {
            next @ Some(_) if self.lists(op).regions.is_empty() => next,
            _ => self.op_in_or_out(op),
        }
    }

    /// As [`Function::op_after`], for an op with regions or the last one of its block.
    #[inline(never)]
    fn op_in_or_out(&self, mut op: Op) -> Option<Op> {
        let first = |regions: &[Region]| regions.iter().find_map(|&r| self.first_op(self.region_block(r)));
        let inside = first(self.regions(op));
        if inside.is_some() {
            return inside;
        }
        loop {
            let OpLinks { block, next, .. } = self.links(op);
            if let Some(next) = next.expand() {
                return Some(next);
            }
            let region = self.block_region(block.expand()?);
            op = self.region_parent(region)?;
            if let around @ [_, _, ..] = self.regions(op) {
                let number = around.iter().position(|&r| r == region)?;
                let found = first(&around[number + 1..]);
                if found.is_some() {
                    return found;
                }
            }
        }
    }

    /// [`Function::ops`] as a list, for those who change the function on the way.
    pub fn all_ops(&self) -> Vec<Op> {
        let mut out = Vec::with_capacity(self.num_ops());
        for op in self.ops() {
            out.push(op);
        }
        out
    }
}
