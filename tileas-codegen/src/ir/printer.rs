//! Text form of modules.
//!
//! In: any module, also one the verifier rejects. Out: text; what [`super::parse_module`] made of some text prints
//! to a fixed point: parsing and printing it again gives the same bytes.
//!
//! Rules: two spaces per level, one op per line, result types always written. Unnamed values (and those with an
//! all-digit name) are numbered in order of definition; names that clash where both values are visible get a suffix.
//! Not printed, since the parser puts it back: a bare `yield` that is the only terminator of a `for` or `if` without
//! results, and an `else` that holds nothing else.
//! Cost: linear in ops and values. No op is special but `for`, `if` and `agent_switch`; the rest follows the table.

use super::attrs::{AttrData, AttrDict};
use super::entities::{Attr, Block, Op, Sym, Value};
use super::function::Function;
use super::lexer::{escape_into, is_name_byte, is_word};
use super::module::Module;
use super::opcodes::{AttrKind, OpDef, Opcode};
use crate::error::Loc;
use cranelift_entity::{EntityRef, SecondaryMap};
use rustc_hash::{FxHashMap, FxHashSet};
use std::fmt::Write;

/// The text of a module.
pub fn print_module(module: &Module) -> String {
    let mut out = String::new();
    if let Some(target) = &module.target {
        out.push_str("target ");
        escape_into(&mut out, target);
        out.push('\n');
    }
    for f in &module.functions {
        if !out.is_empty() {
            out.push('\n');
        }
        print_into(&mut out, f);
    }
    out
}

/// The text of one kernel.
pub fn print_function(f: &Function) -> String {
    let mut out = String::new();
    print_into(&mut out, f);
    out
}

/// The text of a module, and the module with every op located in it and every value named as there: for messages about what
/// was built by calls.
pub(crate) fn print_located(module: &Module) -> (Module, String) {
    let mut out = String::new();
    let mut located = module.clone();
    for (f, to) in module.functions.iter().zip(&mut located.functions) {
        let (start, names, mut places) = (out.len(), ValueNames::new(f), Vec::new());
        print_with(&mut out, f, &names, Some(&mut places));
        let head = out.get(start..).and_then(|text| text.find('\n')).unwrap_or(0);
        to.loc = Loc::new(start, start + head);
        for (op, loc) in places {
            to.set_op_loc(op, loc);
        }
        for v in (0..f.num_values()).map(Value::new).filter(|&v| !names.get(v).is_empty()) {
            to.set_value_name(v, names.get(v));
        }
    }
    (located, out)
}

/// One op on one line, without its regions, for messages. `names` as in the print of the whole kernel.
pub fn print_op_line(f: &Function, names: &ValueNames, op: Op) -> String {
    let mut out = String::new();
    Printer { f, names, out: &mut out, nested: 0, left: MOST_ATTR_VALUES, places: None }.op_head(op);
    out
}

/// The position of the attribute that an op shows as a bare literal: a required number of an op without operands.
pub(super) fn literal_attr(def: &OpDef) -> Option<usize> {
    if !def.operands.is_empty() {
        return None;
    }
    def.attrs.iter().position(|a| a.required && a.kind == AttrKind::Number)
}

/// Regions inside regions that are printed, twice what the verifier lets pass; and values of one attribute.
const DEEPEST: usize = 512;
const MOST_ATTR_VALUES: usize = 1 << 20;

/// Whether an op is a `yield` that says nothing: no operands, results or attributes.
fn is_bare_yield(f: &Function, op: Op) -> bool {
    f.opcode(op) == Opcode::Yield
        && f.operands(op).is_empty()
        && f.results(op).is_empty()
        && f.inherent(op).is_empty()
        && f.discardable(op).is_empty()
}

/// The names values print with, without `%`. Two values that are visible in one place have different names.
pub struct ValueNames {
    names: SecondaryMap<Value, String>,
}

impl ValueNames {
    /// Names all values that are linked into the kernel.
    pub fn new(f: &Function) -> ValueNames {
        let names = SecondaryMap::with_capacity(f.num_values());
        let mut namer = Namer {
            f,
            names,
            number: 0,
            visible: Vec::new(),
            taken: FxHashSet::default(),
            next: FxHashMap::default(),
        };
        namer.block(f.entry(), 0);
        ValueNames { names: namer.names }
    }

    /// The name of a value; empty when it is not linked into the kernel.
    pub fn get(&self, v: Value) -> &str {
        &self.names[v]
    }
}

/// Gives out names in the order in which the parser will define them.
struct Namer<'f> {
    f: &'f Function,
    names: SecondaryMap<Value, String>,
    /// How many values have a number for a name; numbers are unique in the kernel.
    number: u32,
    /// Named values that are visible, in order of definition, and their names.
    visible: Vec<Value>,
    taken: FxHashSet<String>,
    /// The suffix last tried for a name.
    next: FxHashMap<String, u32>,
}

impl Namer<'_> {
    fn block(&mut self, b: Block, depth: usize) {
        let f = self.f;
        if depth > DEEPEST {
            return;
        }
        let outer = self.visible.len();
        for &v in f.block_params(b) {
            self.number(v);
            self.name(v);
        }
        for op in f.block_ops(b) {
            for &v in f.results(op) {
                self.number(v);
            }
            for &r in f.regions(op) {
                self.block(f.region_block(r), depth + 1);
            }
            // Results become visible behind the op's regions.
            for &v in f.results(op) {
                self.name(v);
            }
        }
        for v in self.visible.drain(outer..) {
            self.taken.remove(&self.names[v]);
        }
    }

    /// Numbers a value that has no name, or one of digits only.
    fn number(&mut self, v: Value) {
        if self.f.value_name(v).unwrap_or("").bytes().all(|b| b.is_ascii_digit()) {
            self.names[v] = self.number.to_string();
            self.number += 1;
        }
    }

    fn name(&mut self, v: Value) {
        if !self.names[v].is_empty() {
            return;
        }
        let base = clean(self.f.value_name(v).unwrap_or(""));
        let mut name = base.clone();
        while self.taken.contains(&name) {
            let count = self.next.entry(base.clone()).or_insert(0);
            *count += 1;
            name = format!("{base}_{count}");
        }
        self.taken.insert(name.clone());
        self.visible.push(v);
        self.names[v] = name;
    }
}

/// A name with every byte that cannot stand in one replaced.
fn clean(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii() && is_name_byte(c as u8) { c } else { '_' }).collect()
}

fn print_into(out: &mut String, f: &Function) {
    print_with(out, f, &ValueNames::new(f), None);
}

fn print_with(out: &mut String, f: &Function, names: &ValueNames, places: Option<&mut Vec<(Op, Loc)>>) {
    let mut p = Printer { f, names, out, nested: 0, left: MOST_ATTR_VALUES, places };
    p.text("kernel @");
    p.text(&clean(&f.name));
    p.text("(");
    for (i, &v) in f.params().iter().enumerate() {
        p.comma(i);
        p.value(v);
        p.text(": ");
        p.type_of(v);
    }
    p.text(")");
    p.inherent(&f.attrs, None);
    p.text(" {\n");
    p.block(f.entry(), 1, false);
    p.text("}\n");
}

struct Printer<'a> {
    f: &'a Function,
    names: &'a ValueNames,
    out: &'a mut String,
    /// Attribute values around the one at hand.
    nested: usize,
    /// How many more values of one attribute are printed.
    left: usize,
    /// Where each op begins and ends, its regions apart, if that is asked for.
    places: Option<&'a mut Vec<(Op, Loc)>>,
}

impl Printer<'_> {
    fn text(&mut self, s: &str) {
        self.out.push_str(s);
    }

    fn comma(&mut self, index: usize) {
        if index > 0 {
            self.text(", ");
        }
    }

    fn indent(&mut self, depth: usize) {
        for _ in 0..depth {
            self.text("  ");
        }
    }

    /// A value; one that is not linked into the kernel prints as what no parser takes for a name.
    fn value(&mut self, v: Value) {
        let name = self.names.get(v);
        let done = if name.is_empty() { write!(self.out, "%<{v}>") } else { write!(self.out, "%{name}") };
        debug_assert!(done.is_ok(), "writing to a string cannot fail");
    }

    fn values(&mut self, values: &[Value]) {
        for (i, &v) in values.iter().enumerate() {
            self.comma(i);
            self.value(v);
        }
    }

    fn type_of(&mut self, v: Value) {
        let ty = self.f.value_data(v).to_string();
        self.text(&ty);
    }

    fn block(&mut self, b: Block, depth: usize, hide_yield: bool) {
        if depth > 2 * DEEPEST {
            self.indent(1);
            self.text("; deeper regions are not shown\n");
            return;
        }
        for op in self.f.block_ops(b) {
            if !(hide_yield && self.hidden(op)) {
                self.op(op, depth);
            }
        }
    }

    /// Whether `op` is the closing `yield` the parser would add by itself.
    fn hidden(&self, op: Op) -> bool {
        let f = self.f;
        let before = || std::iter::successors(f.prev_op(op), |&op| f.prev_op(op));
        f.next_op(op).is_none() && is_bare_yield(f, op) && !before().any(|op| f.opcode(op).is_terminator())
    }

    fn op(&mut self, op: Op, depth: usize) {
        let f = self.f;
        self.indent(depth);
        let start = self.out.len();
        self.op_head(op);
        if let Some(places) = &mut self.places {
            places.push((op, Loc::new(start, self.out.len())));
        }
        let hide_yield = f.results(op).is_empty();
        match f.opcode(op) {
            Opcode::For | Opcode::Loop => {
                self.text(" {\n");
                if let Some(b) = f.op_block_at(op, 0) {
                    self.block(b, depth + 1, hide_yield);
                }
                self.indent(depth);
                self.text("}");
            }
            Opcode::If => {
                self.text(" {\n");
                if let Some(b) = f.op_block_at(op, 0) {
                    self.block(b, depth + 1, hide_yield);
                }
                self.indent(depth);
                self.text("}");
                let other = f.op_block_at(op, 1);
                let empty = |b| f.first_op(b).is_none_or(|first| self.hidden(first));
                if let Some(b) = other.filter(|&b| !(hide_yield && empty(b))) {
                    self.text(" else {\n");
                    self.block(b, depth + 1, hide_yield);
                    self.indent(depth);
                    self.text("}");
                }
            }
            Opcode::AsyncPipelineAgentSwitch => {
                self.text(" {\n");
                for (n, &r) in f.regions(op).iter().enumerate() {
                    self.indent(depth + 1);
                    self.text("agent ");
                    self.text(&n.to_string());
                    self.text(" {\n");
                    self.block(f.region_block(r), depth + 2, false);
                    self.indent(depth + 1);
                    self.text("}\n");
                }
                self.indent(depth);
                self.text("}");
            }
            _ => {}
        }
        self.text("\n");
    }

    /// All of an op but its regions and indentation.
    fn op_head(&mut self, op: Op) {
        let f = self.f;
        let opcode = f.opcode(op);
        let def = opcode.def();
        if !f.results(op).is_empty() {
            self.values(f.results(op));
            self.text(" = ");
        }
        self.text(def.name);
        let mut shown = None;
        if opcode == Opcode::For {
            self.for_head(op);
        } else if opcode == Opcode::Loop {
            let args = f.op_block_at(op, 0).map_or(&[][..], |b| f.block_params(b));
            self.iter_list(f.segment(op, 0), args);
        } else {
            shown = self.literal(op);
            self.operands(op);
        }
        self.inherent(f.inherent(op), shown);
        if !f.discardable(op).is_empty() {
            self.text(if def.regions > 0 { " attributes {" } else { " {" });
            self.entries(f.discardable(op), None);
            self.text("}");
        }
        if opcode != Opcode::For && !f.results(op).is_empty() {
            self.text(" : ");
            for (i, &v) in f.results(op).iter().enumerate() {
                self.comma(i);
                self.type_of(v);
            }
        }
    }

    /// Prints the bare literal of a `constant`-like op and says which key it was.
    fn literal(&mut self, op: Op) -> Option<Sym> {
        let def = self.f.opcode(op).def();
        let key = def.attrs.get(literal_attr(def)?)?.key;
        let value = self.f.inherent(op).get(key)?;
        // A literal with a written type keeps it, and then it cannot stand in front of the result type.
        let bare = matches!(self.f.attr_data(value), AttrData::Int(_, None) | AttrData::Float(_, None));
        bare.then(|| {
            self.text(" ");
            self.attr(value);
            key
        })
    }

    fn for_head(&mut self, op: Op) {
        let f = self.f;
        let params = f.op_block_at(op, 0).map_or(&[][..], |b| f.block_params(b));
        self.text(" ");
        self.values(params.get(..1).unwrap_or(&[]));
        for (word, n) in [(" = ", 0), (" to ", 1), (" step ", 2)] {
            self.text(word);
            self.values(f.segment(op, n));
        }
        self.iter_list(f.segment(op, 3), params.get(1..).unwrap_or(&[]));
    }

    /// What a loop carries: initial values and arguments.
    fn iter_list(&mut self, inits: &[Value], args: &[Value]) {
        if inits.is_empty() {
            return;
        }
        self.text(" iter (");
        for (i, &init) in inits.iter().enumerate() {
            self.comma(i);
            let Some(&param) = args.get(i) else {
                self.value(init);
                continue;
            };
            self.value(param);
            self.text(" = ");
            self.value(init);
            self.text(" : ");
            self.type_of(param);
        }
        self.text(")");
    }

    fn operands(&mut self, op: Op) {
        let f = self.f;
        let mut first = true;
        for (n, seg) in f.opcode(op).def().operands.iter().enumerate() {
            let values = f.segment(op, n);
            if values.is_empty() {
                continue;
            }
            if seg.bracket {
                self.text("[");
                self.values(values);
                self.text("]");
                continue;
            }
            self.text(if first { " " } else { ", " });
            first = false;
            match seg.keyword {
                Some(word) => {
                    self.text(word);
                    self.text("(");
                    self.values(values);
                    self.text(")");
                }
                None => self.values(values),
            }
        }
    }

    /// ` <{…}>` unless it would be empty; `shown` is the key whose value is already printed as a literal.
    fn inherent(&mut self, dict: &AttrDict, shown: Option<Sym>) {
        if dict.len() > usize::from(shown.is_some()) {
            self.text(" <{");
            self.entries(dict, shown);
            self.text("}>");
        }
    }

    fn entries(&mut self, dict: &AttrDict, skip: Option<Sym>) {
        let mut printed = 0;
        for (key, value) in dict.iter() {
            if skip == Some(key) {
                continue;
            }
            self.comma(printed);
            printed += 1;
            let name = clean(self.f.symbol(key));
            self.text(&name);
            if *self.f.attr_data(value) != AttrData::Unit {
                self.text(" = ");
                self.attr(value);
            }
        }
    }

    fn attr(&mut self, a: Attr) {
        if self.nested > DEEPEST || self.left == 0 {
            return self.text("...");
        }
        (self.nested, self.left) = (self.nested + 1, self.left - 1);
        self.attr_data(a);
        self.nested -= 1;
        if self.nested == 0 {
            self.left = MOST_ATTR_VALUES;
        }
    }

    fn attr_data(&mut self, a: Attr) {
        let f = self.f;
        match f.attr_data(a) {
            AttrData::Unit => self.text("unit"),
            AttrData::Int(v, ty) => {
                self.text(&v.to_string());
                self.scalar_suffix(*ty);
            }
            AttrData::Float(v, ty) => {
                self.text(&float_text(v.get()));
                self.scalar_suffix(*ty);
            }
            AttrData::Str(s) => escape_into(self.out, s),
            AttrData::Name(s) => {
                let name = f.symbol(*s);
                if is_word(name) {
                    self.text(name);
                } else {
                    escape_into(self.out, name);
                }
            }
            AttrData::Array(list) => {
                self.text("[");
                self.attrs(list);
                self.text("]");
            }
            AttrData::Call(s, list) => {
                self.text(&clean(f.symbol(*s)));
                self.text("(");
                self.attrs(list);
                self.text(")");
            }
            AttrData::Type(t) => self.text(&f.type_data(*t).to_string()),
            AttrData::Combiner(c) => self.text(c.text()),
        }
    }

    fn attrs(&mut self, list: &[Attr]) {
        for (i, &a) in list.iter().enumerate() {
            self.comma(i);
            self.attr(a);
        }
    }

    fn scalar_suffix(&mut self, ty: Option<super::types::Scalar>) {
        if let Some(s) = ty {
            self.text(" : ");
            self.text(s.name());
        }
    }
}

/// The shortest text that reads back as the same float.
fn float_text(v: f64) -> String {
    if v.is_nan() { "nan".to_string() } else { format!("{v:?}") }
}
