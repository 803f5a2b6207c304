//! Writer of files.
//!
//! In: a module and a version. Out: the bytes, with sections, tables and padding in the order of cuTile Python's writer, so that a
//! file of its reads and writes back to the same bytes; or all that the version cannot express.
//!
//! Whether types suit operations does not matter here. Values must be visible where they are used, as they have no other
//! names in the bytes than their place on a stack.

use crate::attr::{Attr, is_structured};
use crate::cursor::PAD;
use crate::debug::Record;
use crate::entities::{Loc, Region, Str, Type, Value};
use crate::error::{Code, Error, Errors, Section};
use crate::module::{FuncRef, Module, OpRef, Version};
use crate::read::MAGIC;
use crate::types::{Dim, Elem, Num, TypeData};
use cranelift_entity::EntityRef;
use cranelift_entity::packed_option::PackedOption;
use tileas_meta::tileir::{Arity, AttrKind, Padding, PointerMode, Results, Seg};

impl Module {
    /// The module as a file.
    ///
    /// # Errors
    /// All that the version has no form for (E1628), and uses of values where they are not visible (E1614).
    pub fn write(&self, version: Version) -> Result<Vec<u8>, Errors> {
        let mut w = Writer { m: self, v: version.minor(), errors: Vec::new() };
        let mut out = Out::default();
        out.0.extend_from_slice(MAGIC);
        out.0.extend_from_slice(&[13, version.minor(), 0, 0]);
        section(&mut out, Section::Functions, 8, w.functions());
        if !self.globals.is_empty() {
            section(&mut out, Section::Globals, 1, w.globals());
        }
        let mut payload = Out::default();
        table(&mut payload, self.constants.iter().map(|(_, b)| prefixed(b)), 8);
        section(&mut out, Section::Constants, 8, payload);
        if !self.debug.runs.is_empty() {
            section(&mut out, Section::Debug, 8, w.debug());
        }
        let mut payload = Out::default();
        table(&mut payload, self.types.iter().map(|(ty, data)| w.ty(ty, data)), 4);
        section(&mut out, Section::Types, 4, payload);
        if let Some(producer) = self.producer {
            let mut payload = Out::default();
            payload.index(producer);
            section(&mut out, Section::Producer, 1, payload);
        }
        let mut payload = Out::default();
        table(&mut payload, self.strings.iter().map(|(_, b)| Out(b.to_vec())), 4);
        section(&mut out, Section::Strings, 4, payload);
        out.0.push(0);
        Errors::check(w.errors).map(|()| out.0)
    }
}

#[derive(Default)]
struct Out(Vec<u8>);

impl Out {
    fn wide(&mut self, mut n: u128) {
        while n >= 0x80 {
            self.0.push(n as u8 | 0x80);
            n >>= 7;
        }
        self.0.push(n as u8);
    }

    fn varint(&mut self, n: u64) {
        self.wide(u128::from(n));
    }

    fn zigzag(&mut self, n: i64) {
        self.varint((n << 1 ^ n >> 63) as u64);
    }

    fn count(&mut self, n: usize) {
        self.varint(n as u64);
    }

    fn index(&mut self, entity: impl EntityRef) {
        self.count(entity.index());
    }

    fn reference(&mut self, record: PackedOption<Loc>) {
        self.count(record.expand().map_or(0, |r| r.index() + 1));
    }

    fn bool(&mut self, b: bool) {
        self.0.push(u8::from(b));
    }

    fn pad(&mut self, align: usize) {
        self.0.resize(self.0.len().next_multiple_of(align), PAD);
    }

    fn i64s(&mut self, list: impl ExactSizeIterator<Item = i64>) {
        self.count(list.len());
        list.for_each(|n| self.0.extend_from_slice(&n.to_le_bytes()));
    }

    fn i32s(&mut self, list: &[i32]) {
        self.count(list.len());
        list.iter().for_each(|n| self.0.extend_from_slice(&n.to_le_bytes()));
    }

    fn dims(&mut self, dims: &[Dim]) {
        self.i64s(dims.iter().map(|d| d.unwrap_or(i64::MIN)));
    }
}

fn section(out: &mut Out, section: Section, align: usize, payload: Out) {
    out.0.push(section as u8 | if align > 1 { 0x80 } else { 0 });
    out.count(payload.0.len());
    if align > 1 {
        out.count(align);
        out.pad(align);
    }
    out.0.extend(payload.0);
}

fn prefixed(bytes: &[u8]) -> Out {
    let mut out = Out::default();
    out.count(bytes.len());
    out.0.extend_from_slice(bytes);
    out
}

/// Items behind their offsets of `width` bytes.
fn table(out: &mut Out, items: impl ExactSizeIterator<Item = Out>, width: usize) {
    out.count(items.len());
    out.pad(width);
    let mut data = Vec::new();
    for item in items {
        out.0.extend_from_slice(&(data.len() as u64).to_le_bytes()[..width]);
        data.extend(item.0);
    }
    out.0.extend(data);
}

struct Writer<'a> {
    m: &'a Module,
    v: u8,
    errors: Vec<Error>,
}

/// Places of the values of one function.
struct Stack {
    live: Vec<Value>,
    place: Vec<u32>,
}

impl Stack {
    fn push(&mut self, value: Value) {
        self.place[value.index()] = self.live.len() as u32;
        self.live.push(value);
    }

    fn get(&self, value: Value) -> Option<u32> {
        let place = *self.place.get(value.index())?;
        (self.live.get(place as usize) == Some(&value)).then_some(place)
    }
}

impl Writer<'_> {
    fn cannot(&mut self, section: Section, message: String) {
        self.errors.push(*Error::new(Code::E1628, section, None, message));
    }

    fn ty(&mut self, ty: Type, data: &TypeData) -> Out {
        let m = self.m;
        let mut out = Out::default();
        let o = &mut out;
        let elem = |e: Elem| m.types.find(&TypeData::Elem(e));
        let flags = |o: &mut Out, since: u8, flag: bool| {
            if self.v >= since {
                o.bool(flag);
            }
        };
        let mode = |o: &mut Out, mode: PointerMode| {
            if mode != PointerMode::None {
                o.varint(mode as u64);
            }
        };
        let padding = |o: &mut Out, padding: Option<Padding>| {
            if let Some(padding) = padding {
                o.varint(padding as u64);
            }
        };
        let mut since = 1;
        let mut written = Some(());
        match data {
            TypeData::Elem(Elem::Num(num)) => {
                since = num.since();
                o.varint(num.tag());
            }
            TypeData::Elem(Elem::Ptr { pointee, mode: kind }) => {
                since = if *kind == PointerMode::None { 1 } else { 5 };
                o.varint(12);
                flags(o, 4, *kind != PointerMode::None);
                written = elem(Elem::Num(*pointee)).map(|t| o.index(t));
                mode(o, *kind);
            }
            TypeData::Tile { elem: e, shape } => {
                o.varint(13);
                written = elem(*e).map(|t| o.index(t));
                o.i64s(shape.iter().copied());
            }
            TypeData::TensorView { elem: e, shape, strides, mode: kind } => {
                since = if *kind == PointerMode::None { 1 } else { 5 };
                o.varint(14);
                flags(o, 4, *kind != PointerMode::None);
                written = elem(Elem::Num(*e)).map(|t| o.index(t));
                o.dims(shape);
                o.dims(strides);
                mode(o, *kind);
            }
            TypeData::PartitionView { tile, tensor, map, padding: outside } => {
                o.varint(15);
                flags(o, 3, outside.is_some());
                o.i32s(tile);
                o.index(*tensor);
                o.i32s(map);
                if self.v < 3 {
                    o.bool(outside.is_some());
                }
                padding(o, *outside);
            }
            TypeData::Func { params, results } => {
                o.varint(16);
                for list in [params, results] {
                    o.count(list.len());
                    list.iter().for_each(|&t| o.index(t));
                }
            }
            TypeData::Token => o.varint(17),
            TypeData::GatherScatterView { tile, tensor, sparse, padding: outside } => {
                since = 3;
                o.varint(20);
                o.bool(outside.is_some());
                o.i32s(tile);
                o.index(*tensor);
                o.varint(u64::from(*sparse));
                padding(o, *outside);
            }
            TypeData::StridedView { tile, steps, tensor, map, padding: outside } => {
                since = 3;
                o.varint(21);
                o.bool(outside.is_some());
                o.i32s(tile);
                o.i32s(steps);
                o.index(*tensor);
                o.i32s(map);
                padding(o, *outside);
            }
        }
        if self.v < since || written.is_none() {
            let text = m.types.display(ty);
            let why =
                if written.is_none() { "its element has no type of its own" } else { "the version lacks it" };
            self.cannot(Section::Types, format!("type {text}: {why} (13.{since}, written is 13.{})", self.v));
        }
        out
    }

    fn globals(&mut self) -> Out {
        let mut o = Out::default();
        o.count(self.m.globals.len());
        for g in self.m.globals.values() {
            o.index(g.name);
            o.index(g.ty);
            o.index(g.value);
            o.varint(g.alignment);
            if self.v >= 3 {
                o.bool(g.private);
                o.bool(g.constant);
            } else if g.private || g.constant {
                let name = self.m.lossy(g.name);
                self.cannot(
                    Section::Globals,
                    format!("global @{name} is private or constant, which is of 13.3"),
                );
            }
        }
        o
    }

    fn debug(&self) -> Out {
        let debug = &self.m.debug;
        let mut o = Out::default();
        o.count(debug.runs.len());
        o.pad(4);
        debug.runs.iter().for_each(|run| o.0.extend_from_slice(&run.to_le_bytes()));
        o.count(debug.indices.len());
        o.pad(8);
        for index in &debug.indices {
            let number = index.expand().map_or(0, |r| r.index() as u64 + 1);
            o.0.extend_from_slice(&number.to_le_bytes());
        }
        table(&mut o, debug.records.values().map(|r| self.record(r)), 4);
        o
    }

    fn record(&self, record: &Record) -> Out {
        let mut o = Out::default();
        match *record {
            Record::Unknown => o.varint(0),
            Record::Unit { file } => {
                o.varint(1);
                o.reference(file);
            }
            Record::File { name, directory } => {
                o.varint(2);
                o.index(name);
                o.index(directory);
            }
            Record::Block { scope, file, line, column } => {
                o.varint(3);
                o.reference(scope);
                o.reference(file);
                o.varint(line);
                o.varint(column);
            }
            Record::Place { scope, file, line, column } => {
                o.varint(4);
                o.reference(scope);
                o.index(file);
                o.varint(line);
                o.varint(column);
            }
            Record::Subprogram { file, line, name, linkage, unit, scope_line, flags } => {
                o.varint(5);
                o.reference(file);
                o.varint(line);
                o.index(name);
                o.index(linkage);
                o.reference(unit);
                o.varint(scope_line);
                // Flags say nothing that earlier versions rely on.
                if self.v >= 5 {
                    o.varint(flags);
                }
            }
            Record::Call { callee, caller } => {
                o.varint(6);
                o.reference(callee);
                o.reference(caller);
            }
        }
        o
    }

    fn functions(&mut self) -> Out {
        let mut o = Out::default();
        o.count(self.m.funcs.len());
        for f in self.m.functions() {
            let func = f.func;
            let hints = func.entry && (self.v >= 5 || !func.hints.is_empty());
            o.index(func.name);
            o.index(func.signature);
            o.0.push(u8::from(func.private) | u8::from(func.entry) << 1 | u8::from(hints && self.v < 5) << 2);
            o.varint(u64::from(func.debug));
            if hints {
                o.varint(11);
                self.entries(&mut o, &func.hints);
            }
            if self.v >= 5 {
                o.varint(6);
                o.count(func.param_attrs.len());
                func.param_attrs.iter().for_each(|a| self.tagged(&mut o, a));
            } else if !func.param_attrs.is_empty() {
                self.errors.push(*f.error(Code::E1628, "attributes of parameters are of 13.5"));
            }
            let mut stack = Stack { live: Vec::new(), place: vec![u32::MAX; f.num_values()] };
            f.params().for_each(|p| stack.push(p));
            let mut body = Out::default();
            self.ops(&mut body, f, Region::BODY, &mut stack);
            o.count(body.0.len());
            o.0.extend(body.0);
        }
        o
    }

    fn ops(&mut self, o: &mut Out, f: FuncRef<'_>, region: Region, stack: &mut Stack) {
        for op in f.region(region) {
            self.op(o, op, stack);
        }
    }

    fn op(&mut self, o: &mut Out, op: OpRef<'_>, stack: &mut Stack) {
        let (row, v) = (op.row(), self.v);
        let since = |version: u8| version <= v;
        let lacks = |errors: &mut Vec<Error>, what: &str, version: u8| {
            errors.push(*op.error(Code::E1628, format!("{what} is of 13.{version}, written is 13.{v}")));
        };
        if !since(row.since) {
            lacks(&mut self.errors, "the operation", row.since);
        }
        o.varint(op.opcode() as u64);
        let results = op.results();
        match row.results {
            Results::Fixed(n) if usize::from(n) != results.len() => {
                self.errors.push(*op.error(Code::E1623, format!("{} results, expected {n}", results.len())));
            }
            Results::CountedSince(version) if !since(version) => {
                if results.len() > 0 {
                    lacks(&mut self.errors, "its result", version);
                }
            }
            Results::Counted | Results::CountedSince(_) => o.count(results.len()),
            Results::Fixed(_) => {}
        }
        results.clone().for_each(|r| o.index(op.func.value_type(r)));
        if let Some(version) = row.flags {
            if since(version) {
                o.varint(u64::from(op.flags()));
            } else if op.flags() != 0 {
                lacks(&mut self.errors, "a flag that is set", version);
            }
        }
        for attr in row.attrs {
            let Some((kind, word)) = op.word(attr.key) else { continue };
            if !since(attr.since) {
                let meant = match op.attr(attr.key) {
                    Some(Attr::Bools(bools)) => {
                        !bools.contains(&true) && bools.len() == op.list(Seg::Index).len()
                    }
                    _ => !is_structured(kind) && word == u64::from(attr.default),
                };
                if !meant {
                    lacks(&mut self.errors, &format!("the value of {}", attr.key), attr.since);
                }
                continue;
            }
            match kind {
                AttrKind::Bool => o.bool(word != 0),
                AttrKind::Enum(_) | AttrKind::Int | AttrKind::Str | AttrKind::Const => o.varint(word),
                _ => match op.attr(attr.key) {
                    Some(Attr::Ints(list)) => o.i32s(list),
                    Some(Attr::Bools(list)) => {
                        o.count(list.len());
                        list.iter().for_each(|&b| o.bool(b));
                    }
                    Some(Attr::List(list)) if kind == AttrKind::List => {
                        o.count(list.len());
                        list.iter().for_each(|a| self.tagged(o, a));
                    }
                    Some(Attr::Hints(entries)) if kind == AttrKind::Hints => self.entries(o, entries),
                    Some(attr) => self.tagged(o, attr),
                    None => {}
                },
            }
        }
        if row.counted {
            o.count(op.operands().len());
        }
        for (_, arity, values) in op.segments() {
            if arity == Arity::Many && !row.counted {
                o.count(values.len());
            }
            for &value in values {
                match stack.get(value) {
                    Some(place) => o.varint(u64::from(place)),
                    None => self.errors.push(*op.error(Code::E1614, format!("{value} is not defined here"))),
                }
            }
        }
        if row.regions > 0 {
            o.varint(u64::from(row.regions));
            let height = stack.live.len();
            for region in op.regions() {
                let (params, ops) = (op.func.region_params(region), op.func.region(region));
                if params.len() == 0 && ops.len() == 0 {
                    o.varint(0);
                    continue;
                }
                o.varint(1);
                o.count(params.len());
                params.clone().for_each(|p| o.index(op.func.value_type(p)));
                params.for_each(|p| stack.push(p));
                o.count(ops.len());
                self.ops(o, op.func, region, stack);
                stack.live.truncate(height);
            }
        }
        results.for_each(|r| stack.push(r));
    }

    fn entries(&mut self, o: &mut Out, entries: &[(Str, Attr)]) {
        o.count(entries.len());
        for (key, value) in entries {
            o.index(*key);
            self.tagged(o, value);
        }
    }

    fn tagged(&mut self, o: &mut Out, attr: &Attr) {
        let num = |ty: Type| match self.m.types.get(ty) {
            TypeData::Elem(Elem::Num(num)) => *num,
            _ => Num::I64,
        };
        let both = |o: &mut Out, a: Option<i64>, b: Option<i64>| {
            o.0.push(u8::from(a.is_some()) | u8::from(b.is_some()) << 1);
            [a, b].into_iter().flatten().for_each(|n| o.zigzag(n));
        };
        match attr {
            Attr::Int { ty, bits } => {
                o.varint(1);
                o.index(*ty);
                o.varint(*bits);
            }
            Attr::Float { ty, bits } => {
                o.varint(2);
                o.index(*ty);
                if num(*ty).bits() <= 8 { o.0.push(*bits as u8) } else { o.wide(u128::from(*bits) << 1) }
            }
            Attr::Bool(b) => {
                o.varint(3);
                o.bool(*b);
            }
            Attr::Type(ty) => {
                o.varint(4);
                o.index(*ty);
            }
            Attr::Str(s) => {
                o.varint(5);
                o.index(*s);
            }
            Attr::List(list) => {
                o.varint(6);
                o.count(list.len());
                list.iter().for_each(|a| self.tagged(o, a));
            }
            Attr::Dense { ty, value } => {
                o.varint(7);
                o.index(*ty);
                o.index(*value);
            }
            Attr::DivBy { divisor, every, along } => {
                o.varint(8);
                o.varint(*divisor);
                both(o, *every, *along);
            }
            Attr::SameElements(list) => {
                o.varint(9);
                o.i64s(list.iter().copied());
            }
            Attr::Dict(entries) => {
                o.varint(10);
                self.entries(o, entries);
            }
            Attr::Hints(entries) => {
                o.varint(11);
                self.entries(o, entries);
            }
            Attr::Bounded { lower, upper } => {
                o.varint(12);
                both(o, *lower, *upper);
            }
            Attr::Ints(_) | Attr::Bools(_) => {
                self.cannot(Section::Functions, "a list of plain numbers has no tag".into());
            }
        }
    }
}
