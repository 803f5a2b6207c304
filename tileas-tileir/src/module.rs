//! A module and its functions: arrays by entity, and views of them.
//!
//! A function only grows, in the order of the bytes: op, regions of the op, results of the op. What belongs to one op stands
//! together in a pool, so that an op is a few numbers: where its operands and attribute words begin, the next op says where
//! they end. [`FuncRef`] and [`OpRef`] are what users hold; they cost nothing to copy. Questions about entities of other
//! functions have empty answers.

use crate::attr::{Attr, FromAttr, is_structured};
use crate::debug::{Debug, Frame};
use crate::entities::{AttrId, Constant, Func, Global, Loc, Op, Region, Str, Type, Value};
use crate::error::{Code, Error, Section};
use crate::table::Table;
use crate::types::{TypeData, Types};
use cranelift_entity::packed_option::PackedOption;
use cranelift_entity::{EntityRef, PrimaryMap};
use std::fmt;
use tileas_meta::tileir::{Arity, AttrKind, Key, OpRow, Opcode, Seg};

/// Version of the bytecode: 13 and this.
#[derive(Copy, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Version(pub(crate) u8);

impl Version {
    /// The oldest.
    pub const OLDEST: Version = Version(1);
    /// The newest.
    pub const NEWEST: Version = Version(5);

    /// Version 13.`minor`, if it is known.
    pub fn new(minor: u8) -> Option<Version> {
        (Version::OLDEST.0..=Version::NEWEST.0).contains(&minor).then_some(Version(minor))
    }

    /// All, oldest first.
    pub fn all() -> impl Iterator<Item = Version> {
        (Version::OLDEST.0..=Version::NEWEST.0).map(Version)
    }

    /// What follows `13.`.
    pub fn minor(self) -> u8 {
        self.0
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "13.{}", self.0)
    }
}

/// A variable of a module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GlobalData {
    /// Name.
    pub name: Str,
    /// A tile.
    pub ty: Type,
    /// What it holds at first.
    pub value: Constant,
    /// In bytes; 0: that of the element.
    pub alignment: u64,
    /// Not visible to other modules.
    pub private: bool,
    /// Never written.
    pub constant: bool,
}

/// A file, decoded.
#[derive(Clone, PartialEq, Debug)]
pub struct Module {
    /// Version it was written in.
    pub version: Version,
    /// Who wrote it.
    pub producer: Option<Str>,
    /// Strings; names and texts of messages are UTF-8, the rest may be anything.
    pub strings: Table<Str>,
    /// Bytes of constants.
    pub constants: Table<Constant>,
    /// Types.
    pub types: Types,
    /// Variables.
    pub globals: PrimaryMap<Global, GlobalData>,
    /// Functions.
    pub funcs: PrimaryMap<Func, Function>,
    /// Where ops came from.
    pub debug: Debug,
}

/// Whether bytes begin as Tile IR bytecode does.
pub fn is_bytecode(bytes: &[u8]) -> bool {
    bytes.starts_with(crate::cursor::MAGIC)
}

impl Module {
    /// An empty one.
    pub fn new(version: Version) -> Module {
        Module {
            version,
            producer: None,
            strings: Table::default(),
            constants: Table::default(),
            types: Types::default(),
            globals: PrimaryMap::new(),
            funcs: PrimaryMap::new(),
            debug: Debug::default(),
        }
    }

    /// All functions.
    pub fn functions(&self) -> impl ExactSizeIterator<Item = FuncRef<'_>> {
        self.funcs.values().map(|func| FuncRef { module: self, func })
    }

    /// A function by name.
    pub fn function(&self, name: &str) -> Option<FuncRef<'_>> {
        self.functions().find(|f| f.name() == name)
    }

    /// A string; empty if it is not UTF-8.
    pub fn str(&self, s: Str) -> &str {
        std::str::from_utf8(self.strings.get(s)).unwrap_or_default()
    }

    /// Bytes of memory that the module holds, about.
    pub fn heap_bytes(&self) -> usize {
        let funcs: usize = self.funcs.values().map(Function::heap_bytes).sum();
        let tables: usize = self.strings.iter().map(|(_, b)| b.len() + 4).sum::<usize>()
            + self.constants.iter().map(|(_, b)| b.len() + 4).sum::<usize>();
        let types = self.types.iter().len() * 2 * (size_of::<TypeData>() + 8);
        let debug = 4 * (self.debug.runs.len() + self.debug.indices.len())
            + self.debug.records.len() * size_of::<crate::debug::Record>();
        funcs + tables + types + debug
    }
}

/// Where a value comes from.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ValueDef {
    /// Result number of an op.
    Result(Op, u32),
    /// Parameter number of a region.
    Param(Region, u32),
}

#[derive(Copy, Clone, PartialEq, Debug)]
struct ValueData {
    ty: Type,
    /// The op, or the region with [`PARAM`] set.
    def: u32,
}

const PARAM: u32 = 1 << 31;

#[derive(Copy, Clone, PartialEq, Debug)]
struct OpData {
    opcode: Opcode,
    flags: u8,
    region: Region,
    /// Where its operands, words and regions begin.
    operands: u32,
    words: u32,
    regions: u32,
    /// Its results are consecutive.
    results: (u32, u32),
}

#[derive(Clone, Default, PartialEq, Debug)]
struct RegionData {
    owner: PackedOption<Op>,
    /// Its parameters are consecutive.
    params: (u32, u32),
    /// From where to where in the pool.
    ops: (u32, u32),
}

/// Places in the file, which are no part of what a function is.
#[derive(Clone, Default, Debug)]
pub(crate) struct Offsets(pub Vec<u32>);

impl PartialEq for Offsets {
    fn eq(&self, _: &Offsets) -> bool {
        true
    }
}

/// A function.
#[derive(Clone, PartialEq, Debug)]
pub struct Function {
    /// Name.
    pub name: Str,
    /// A function type.
    pub signature: Type,
    /// A kernel.
    pub entry: bool,
    /// Not visible to other modules.
    pub private: bool,
    /// Hints for the kernel: by target, an [`Attr::Dict`].
    pub hints: Box<[(Str, Attr)]>,
    /// A dictionary for each parameter, or nothing at all; since 13.5.
    pub param_attrs: Box<[Attr]>,
    /// Number in the debug information, from 1; 0: none.
    pub debug: u32,
    ops: PrimaryMap<Op, OpData>,
    values: PrimaryMap<Value, ValueData>,
    regions: PrimaryMap<Region, RegionData>,
    attrs: PrimaryMap<AttrId, Attr>,
    operands: Vec<Value>,
    words: Vec<u64>,
    region_ops: Vec<Op>,
    pub(crate) offsets: Offsets,
}

impl Function {
    pub(crate) fn new(name: Str, signature: Type) -> Function {
        let mut regions = PrimaryMap::new();
        regions.push(RegionData::default());
        Function {
            name,
            signature,
            entry: true,
            private: false,
            hints: Box::default(),
            param_attrs: Box::default(),
            debug: 0,
            ops: PrimaryMap::new(),
            values: PrimaryMap::new(),
            regions,
            attrs: PrimaryMap::new(),
            operands: Vec::new(),
            words: Vec::new(),
            region_ops: Vec::new(),
            offsets: Offsets::default(),
        }
    }

    fn heap_bytes(&self) -> usize {
        self.ops.len() * size_of::<OpData>()
            + self.values.len() * size_of::<ValueData>()
            + self.regions.len() * size_of::<RegionData>()
            + self.attrs.len() * size_of::<Attr>()
            + 4 * (self.operands.len() + self.region_ops.len() + self.offsets.0.len())
            + 8 * self.words.len()
    }

    pub(crate) fn num_ops(&self) -> usize {
        self.ops.len()
    }

    /// Begins an op: its operands and words are those pushed until its first region or the next op.
    pub(crate) fn push_op(&mut self, region: Region, opcode: Opcode, flags: u8) -> Op {
        let (operands, words) = (self.operands.len() as u32, self.words.len() as u32);
        let regions = self.regions.len() as u32;
        for _ in 0..opcode.row().regions {
            self.regions.push(RegionData { owner: Op::new(self.ops.len()).into(), ..RegionData::default() });
        }
        self.ops.push(OpData { opcode, flags, region, operands, words, regions, results: (0, 0) })
    }

    pub(crate) fn push_word(&mut self, word: u64) {
        self.words.push(word);
    }

    pub(crate) fn push_attr(&mut self, attr: Attr) -> AttrId {
        let id = self.attrs.push(attr);
        self.words.push(u64::from(id.as_u32()));
        id
    }

    pub(crate) fn set_attr(&mut self, id: AttrId, attr: Attr) {
        self.attrs[id] = attr;
    }

    pub(crate) fn push_operand(&mut self, value: Value) {
        self.operands.push(value);
    }

    pub(crate) fn push_result(&mut self, op: Op, ty: Type) -> Value {
        let value = self.values.push(ValueData { ty, def: op.as_u32() });
        let results = &mut self.ops[op].results;
        if results.1 == 0 {
            results.0 = value.as_u32();
        }
        results.1 += 1;
        value
    }

    pub(crate) fn push_param(&mut self, region: Region, ty: Type) -> Value {
        let value = self.values.push(ValueData { ty, def: region.as_u32() | PARAM });
        let params = &mut self.regions[region].params;
        if params.1 == 0 {
            params.0 = value.as_u32();
        }
        params.1 += 1;
        value
    }

    /// Says which ops a region has; once.
    pub(crate) fn close(&mut self, region: Region, ops: impl IntoIterator<Item = Op>) {
        let start = self.region_ops.len() as u32;
        self.region_ops.extend(ops);
        let end = self.region_ops.len() as u32;
        // Without ops it is as if there were no block.
        if end > start {
            self.regions[region].ops = (start, end);
        }
    }

    pub(crate) fn num_regions(&self, op: Op) -> usize {
        usize::from(self.ops[op].opcode.row().regions)
    }

    pub(crate) fn region_of(&self, op: Op, i: usize) -> Region {
        Region::from_u32(self.ops[op].regions + i as u32)
    }

    fn shrink(&mut self) {
        self.operands.shrink_to_fit();
        self.words.shrink_to_fit();
        self.region_ops.shrink_to_fit();
        self.offsets.0.shrink_to_fit();
    }

    pub(crate) fn finish(mut self) -> Function {
        self.shrink();
        self
    }
}

fn range((first, n): (u32, u32)) -> impl ExactSizeIterator<Item = Value> + DoubleEndedIterator + Clone {
    (first..first + n).map(Value::from_u32)
}

/// A function of a module.
#[derive(Copy, Clone)]
pub struct FuncRef<'a> {
    /// The module.
    pub module: &'a Module,
    /// The function.
    pub func: &'a Function,
}

impl<'a> FuncRef<'a> {
    /// Name without `@`.
    pub fn name(self) -> &'a str {
        self.module.str(self.func.name)
    }

    /// Parameters.
    pub fn params(self) -> impl ExactSizeIterator<Item = Value> + DoubleEndedIterator + Clone {
        self.region_params(Region::BODY)
    }

    /// What a front end says of a parameter: names and attributes.
    pub fn param_attrs(self, i: usize) -> &'a [(Str, Attr)] {
        match self.func.param_attrs.get(i) {
            Some(Attr::Dict(entries)) => entries,
            _ => &[],
        }
    }

    /// Ops of the body, without those inside regions.
    pub fn body(self) -> impl ExactSizeIterator<Item = OpRef<'a>> + DoubleEndedIterator + Clone {
        self.region(Region::BODY)
    }

    /// Ops of a region, without those inside regions of its own.
    pub fn region(
        self,
        region: Region,
    ) -> impl ExactSizeIterator<Item = OpRef<'a>> + DoubleEndedIterator + Clone {
        let (from, to) = self.func.regions.get(region).map_or((0, 0), |r| r.ops);
        self.func.region_ops[from as usize..to as usize].iter().map(move |&id| self.op(id))
    }

    /// Parameters of a region.
    pub fn region_params(
        self,
        region: Region,
    ) -> impl ExactSizeIterator<Item = Value> + DoubleEndedIterator + Clone {
        range(self.func.regions.get(region).map_or((0, 0), |r| r.params))
    }

    /// The op that has a region; none has the body.
    pub fn owner(self, region: Region) -> Option<OpRef<'a>> {
        self.func.regions.get(region)?.owner.expand().map(|id| self.op(id))
    }

    /// An op.
    ///
    /// # Panics
    /// If `id` is of another function.
    pub fn op(self, id: Op) -> OpRef<'a> {
        OpRef { func: self, id, data: &self.func.ops[id] }
    }

    /// All ops, those of regions right behind the op that has the regions.
    pub fn ops(self) -> impl ExactSizeIterator<Item = OpRef<'a>> {
        self.func.ops.keys().map(move |id| self.op(id))
    }

    /// How many values there are: their numbers are below this.
    pub fn num_values(self) -> usize {
        self.func.values.len()
    }

    /// Type of a value.
    pub fn value_type(self, value: Value) -> Type {
        self.func.values.get(value).map_or(self.func.signature, |v| v.ty)
    }

    /// What the type of a value is.
    pub fn ty(self, value: Value) -> &'a TypeData {
        self.module.types.get(self.value_type(value))
    }

    /// Where a value comes from.
    pub fn def(self, value: Value) -> Option<ValueDef> {
        let def = self.func.values.get(value)?.def;
        let at = |first: u32| value.as_u32() - first;
        Some(if def & PARAM != 0 {
            let region = Region::from_u32(def & !PARAM);
            ValueDef::Param(region, at(self.func.regions[region].params.0))
        } else {
            let op = Op::from_u32(def);
            ValueDef::Result(op, at(self.func.ops[op].results.0))
        })
    }

    /// The op that a value is a result of.
    pub fn def_op(self, value: Value) -> Option<OpRef<'a>> {
        if let ValueDef::Result(op, _) = self.def(value)? { Some(self.op(op)) } else { None }
    }

    /// The debug record of the function.
    pub fn loc(self) -> Option<Loc> {
        self.module.debug.loc(self.func.debug, None)
    }

    pub(crate) fn error(self, code: Code, message: impl Into<String>) -> Box<Error> {
        let mut error = Error::new(code, Section::Functions, None, message);
        error.function = Some(self.module.lossy(self.func.name));
        error
    }
}

/// An op of a function.
#[derive(Copy, Clone)]
pub struct OpRef<'a> {
    /// The function.
    pub func: FuncRef<'a>,
    /// Its number.
    pub id: Op,
    data: &'a OpData,
}

impl<'a> OpRef<'a> {
    /// Its kind.
    pub fn opcode(self) -> Opcode {
        self.data.opcode
    }

    /// Its row of the table.
    pub fn row(self) -> &'static OpRow {
        self.data.opcode.row()
    }

    /// The region it stands in.
    pub fn region(self) -> Region {
        self.data.region
    }

    /// All operands, in the order of the bytes.
    pub fn operands(self) -> &'a [Value] {
        let f = self.func.func;
        let end =
            f.ops.get(Op::new(self.id.index() + 1)).map_or(f.operands.len(), |next| next.operands as usize);
        &f.operands[self.data.operands as usize..end]
    }

    fn words(self) -> &'a [u64] {
        let f = self.func.func;
        let end = f.ops.get(Op::new(self.id.index() + 1)).map_or(f.words.len(), |next| next.words as usize);
        &f.words[self.data.words as usize..end]
    }

    pub(crate) fn flag(self, bit: u8) -> bool {
        self.data.flags >> bit & 1 != 0
    }

    pub(crate) fn flags(self) -> u8 {
        self.data.flags
    }

    fn attr_is_there(self, flag: Option<u8>) -> bool {
        flag.is_none_or(|bit| self.flag(bit))
    }

    /// Values of a segment; empty if the op has no such segment or it is left out.
    pub fn list(self, seg: Seg) -> &'a [Value] {
        let (row, all) = (self.row(), self.operands());
        let mut lens =
            self.words().iter().skip(row.attrs.iter().filter(|a| self.attr_is_there(a.flag)).count());
        let mut at = 0;
        for &(name, arity) in row.operands {
            let n = match arity {
                Arity::One => 1,
                Arity::Opt(bit) => usize::from(self.flag(bit)),
                Arity::Many if row.counted => all.len() - at,
                Arity::Many => lens.next().map_or(0, |&n| n as usize),
            };
            if name == seg {
                return all.get(at..at + n).unwrap_or_default();
            }
            at += n;
        }
        &[]
    }

    /// The value of a segment that has one.
    pub fn operand(self, seg: Seg) -> Option<Value> {
        self.list(seg).first().copied()
    }

    /// Segments with their values, those that are left out excepted.
    pub fn segments(self) -> impl Iterator<Item = (Seg, Arity, &'a [Value])> {
        let there = move |a: Arity| if let Arity::Opt(bit) = a { self.flag(bit) } else { true };
        self.row().operands.iter().filter(move |o| there(o.1)).map(move |&(s, a)| (s, a, self.list(s)))
    }

    /// Results.
    pub fn results(self) -> impl ExactSizeIterator<Item = Value> + DoubleEndedIterator + Clone {
        range(self.data.results)
    }

    /// A result.
    pub fn result(self, i: usize) -> Option<Value> {
        let (first, n) = self.data.results;
        u32::try_from(i).ok().filter(|&i| i < n).map(|i| Value::from_u32(first + i))
    }

    /// Regions.
    pub fn regions(self) -> impl ExactSizeIterator<Item = Region> {
        (0..u32::from(self.row().regions)).map(move |i| Region::from_u32(self.data.regions + i))
    }

    /// Whether an attribute without value is there.
    pub fn has(self, key: Key) -> bool {
        self.row().units.iter().any(|&(bit, k)| k == key && self.flag(bit))
    }

    pub(crate) fn word(self, key: Key) -> Option<(AttrKind, u64)> {
        let mut words = self.words().iter();
        for row in self.row().attrs.iter().filter(|a| self.attr_is_there(a.flag)) {
            let &word = words.next()?;
            if row.key == key {
                return Some((row.kind, word));
            }
        }
        None
    }

    /// The value of an attribute: an enumeration, `u64`, `bool`, [`Str`] or [`Constant`]. `None` if it is not there or of
    /// another kind. What the file's version does not have yet has the meaning it had.
    pub fn get<T: FromAttr>(self, key: Key) -> Option<T> {
        self.word(key).and_then(|(kind, word)| T::from_word(kind, word))
    }

    /// A structured attribute.
    pub fn attr(self, key: Key) -> Option<&'a Attr> {
        let (kind, word) = self.word(key)?;
        self.func.func.attrs.get(AttrId::new(usize::try_from(word).ok()?)).filter(|_| is_structured(kind))
    }

    /// A text: a message, a format, the name of a global.
    pub fn text(self, key: Key) -> Option<&'a str> {
        self.get::<Str>(key).map(|s| self.func.module.str(s))
    }

    /// Integers of a list attribute.
    pub fn ints(self, key: Key) -> &'a [i32] {
        if let Some(Attr::Ints(ints)) = self.attr(key) { ints } else { &[] }
    }

    /// Attributes of a list attribute.
    pub fn attrs(self, key: Key) -> &'a [Attr] {
        if let Some(Attr::List(attrs)) = self.attr(key) { attrs } else { &[] }
    }

    /// Whether an access is promised to stay inside along an index.
    pub fn inbounds(self, index: usize) -> bool {
        matches!(self.attr(Key::Inbounds), Some(Attr::Bools(bools)) if bools.get(index) == Some(&true))
    }

    /// The debug record.
    pub fn loc(self) -> Option<Loc> {
        self.func.module.debug.loc(self.func.func.debug, Some(self.id.as_u32()))
    }

    /// Where it came from: the place in the source, then the calls that brought it there.
    pub fn source(self) -> Vec<Frame> {
        self.loc().map_or_else(Vec::new, |loc| self.func.module.frames(loc))
    }

    /// Its first byte in the file it was read from.
    pub fn offset(self) -> Option<usize> {
        self.func.func.offsets.0.get(self.id.index()).map(|&o| o as usize)
    }

    /// An error about it, with its place.
    #[cold]
    pub fn error(self, code: Code, message: impl Into<String>) -> Box<Error> {
        let mut error = self.func.error(code, message);
        error.offset = self.offset();
        error.op = Some((self.id.as_u32(), Some(self.row().name)));
        error.source = self.source();
        let own = error.source.iter().take_while(|f| f.is_library()).count();
        if own < error.source.len() {
            error.source.drain(..own);
        }
        error
    }
}
