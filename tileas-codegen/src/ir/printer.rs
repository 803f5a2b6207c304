//! [`Module`] → text. print ∘ parse is the identity on printed text.
//!
//! Unnamed values print as `%0`, `%1`, … in order of definition over the kernel; a name that is visible already gets a
//! numeric suffix. Result types are always written.

use super::attrs::{AttrData, AttrDict};
use super::entities::{Attr, Block, Op, Value};
use super::function::Function;
use super::module::Module;
use super::opcodes::Opcode;
use cranelift_entity::SecondaryMap;
use rustc_hash::FxHashSet;
use std::fmt::Write;

/// Prints a module.
pub fn print_module(m: &Module) -> String {
    let mut out = String::new();
    if let Some(t) = &m.target {
        let _ = write!(out, "target ");
        write_str(&mut out, t);
        out.push_str("\n\n");
    }
    for (i, f) in m.functions.iter().enumerate() {
        if i > 0 {
            out.push('\n');
        }
        out.push_str(&print_function(f));
    }
    out
}

/// Prints one kernel.
pub fn print_function(f: &Function) -> String {
    let mut p = Printer {
        f,
        out: String::new(),
        names: SecondaryMap::new(),
        used: FxHashSet::default(),
        taken: Vec::new(),
        next: 0,
    };
    p.kernel();
    p.out
}

/// Prints one op on one line, with the names it would have in the whole kernel; nested regions are left out.
pub fn print_op(f: &Function, op: Op) -> String {
    let mut p = Printer {
        f,
        out: String::new(),
        names: SecondaryMap::new(),
        used: FxHashSet::default(),
        taken: Vec::new(),
        next: 0,
    };
    p.kernel();
    p.out.clear();
    p.head(op);
    p.out
}

struct Printer<'a> {
    f: &'a Function,
    out: String,
    names: SecondaryMap<Value, String>,
    used: FxHashSet<String>,
    taken: Vec<String>,
    next: usize,
}

fn write_str(out: &mut String, s: &str) {
    out.push('"');
    for c in s.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            c => out.push(c),
        }
    }
    out.push('"');
}

impl Printer<'_> {
    fn define(&mut self, v: Value) {
        let name = match self.f.value_name(v) {
            None => {
                self.next += 1;
                (self.next - 1).to_string()
            }
            Some(n) => {
                let mut name = n.to_string();
                let mut i = 0;
                while self.used.contains(&name) {
                    i += 1;
                    name = format!("{n}_{i}");
                }
                name
            }
        };
        self.used.insert(name.clone());
        self.taken.push(name.clone());
        self.names[v] = name;
    }

    fn leave(&mut self, mark: usize) {
        for n in self.taken.drain(mark..) {
            self.used.remove(&n);
        }
    }

    fn value(&mut self, v: Value) {
        self.out.push('%');
        let name = &self.names[v];
        if name.is_empty() {
            let _ = write!(self.out, "undefined.{v}");
        } else {
            self.out.push_str(name);
        }
    }

    fn ty(&mut self, v: Value) {
        let _ = write!(self.out, "{}", self.f.value_data(v));
    }

    fn kernel(&mut self) {
        let _ = write!(self.out, "kernel @{}(", self.f.name);
        for (i, &v) in self.f.params().iter().enumerate() {
            if i > 0 {
                self.out.push_str(", ");
            }
            self.define(v);
            self.value(v);
            self.out.push_str(": ");
            self.ty(v);
        }
        self.out.push(')');
        self.inherent(&self.f.attrs.clone());
        self.out.push_str(" {\n");
        self.block(self.f.entry(), 1);
        self.out.push_str("}\n");
    }

    fn indent(&mut self, n: usize) {
        for _ in 0..n {
            self.out.push_str("  ");
        }
    }

    fn block(&mut self, b: Block, depth: usize) {
        let mark = self.taken.len();
        let mut next = self.f.first_op(b);
        while let Some(op) = next {
            next = self.f.next_op(op);
            let bare_yield = self.f.opcode(op) == Opcode::Yield
                && self.f.operands(op).is_empty()
                && self.f.inherent(op).is_empty()
                && self.f.discardable(op).is_empty()
                && next.is_none();
            if bare_yield {
                continue;
            }
            self.indent(depth);
            self.op(op, depth);
            self.out.push('\n');
        }
        self.leave(mark);
    }

    fn op(&mut self, op: Op, depth: usize) {
        let f = self.f;
        match f.opcode(op) {
            Opcode::For => {
                self.results(op);
                let mark = self.taken.len();
                let results = f.results(op).len();
                let Some(body) = f.op_block_at(op, 0) else { return };
                let params = f.block_params(body).to_vec();
                let operands = f.operands(op).to_vec();
                let inner = self.taken.split_off(mark - results.min(mark));
                for n in &inner {
                    self.used.remove(n);
                }
                let mark = self.taken.len();
                for &p in &params {
                    self.define(p);
                }
                self.out.push_str("for ");
                let Some((&iv, args)) = params.split_first() else { return };
                self.value(iv);
                self.out.push_str(" = ");
                for (i, sep) in [" to ", " step ", ""].into_iter().enumerate() {
                    if let Some(&v) = operands.get(i) {
                        self.value(v);
                    }
                    self.out.push_str(sep);
                }
                if !args.is_empty() {
                    self.out.push_str(" iter (");
                    for (i, (&a, &init)) in args.iter().zip(operands.get(3..).unwrap_or(&[])).enumerate() {
                        if i > 0 {
                            self.out.push_str(", ");
                        }
                        self.value(a);
                        self.out.push_str(" = ");
                        self.value(init);
                        self.out.push_str(" : ");
                        self.ty(a);
                    }
                    self.out.push(')');
                }
                self.region_attrs(op);
                self.out.push_str(" {\n");
                self.block(body, depth + 1);
                self.leave(mark);
                for n in inner {
                    self.used.insert(n.clone());
                    self.taken.push(n);
                }
                self.indent(depth);
                self.out.push('}');
            }
            Opcode::If => {
                self.head(op);
                let (Some(a), Some(b)) = (f.op_block_at(op, 0), f.op_block_at(op, 1)) else { return };
                // Results are not visible inside the arms.
                let n = f.results(op).len();
                let inner = self.taken.split_off(self.taken.len() - n);
                for x in &inner {
                    self.used.remove(x);
                }
                self.out.push_str(" {\n");
                self.block(a, depth + 1);
                self.indent(depth);
                self.out.push('}');
                let empty = f.first_op(b) == f.last_op(b)
                    && f.last_op(b).is_some_and(|y| f.operands(y).is_empty() && f.opcode(y) == Opcode::Yield);
                if !empty {
                    self.out.push_str(" else {\n");
                    self.block(b, depth + 1);
                    self.indent(depth);
                    self.out.push('}');
                }
                for x in inner {
                    self.used.insert(x.clone());
                    self.taken.push(x);
                }
            }
            Opcode::AsyncPipelineAgentSwitch => {
                self.out.push_str(f.opcode(op).name());
                self.inherent(&f.inherent(op).clone());
                self.out.push_str(" {\n");
                for (i, &r) in f.regions(op).iter().enumerate() {
                    self.indent(depth);
                    let _ = writeln!(self.out, "agent {i} {{");
                    self.block(f.region_block(r), depth + 1);
                    self.indent(depth);
                    self.out.push_str("}\n");
                }
                self.indent(depth);
                self.out.push('}');
            }
            _ => self.head(op),
        }
    }

    fn results(&mut self, op: Op) {
        for (i, &r) in self.f.results(op).iter().enumerate() {
            if i > 0 {
                self.out.push_str(", ");
            }
            if self.names[r].is_empty() {
                self.define(r);
            }
            self.value(r);
        }
        if !self.f.results(op).is_empty() {
            self.out.push_str(" = ");
        }
    }

    /// Everything of an op but its regions.
    fn head(&mut self, op: Op) {
        let f = self.f;
        let opcode = f.opcode(op);
        self.results(op);
        self.out.push_str(opcode.name());
        let mut first = true;
        for (n, seg) in opcode.def().operands.iter().enumerate() {
            let values = f.segment(op, n).to_vec();
            if values.is_empty() {
                continue;
            }
            if seg.bracket {
                self.out.push('[');
            } else if first {
                self.out.push(' ');
            } else {
                self.out.push_str(", ");
            }
            if let Some(k) = seg.keyword {
                self.out.push_str(k);
                self.out.push('(');
            }
            for (i, v) in values.into_iter().enumerate() {
                if i > 0 {
                    self.out.push_str(", ");
                }
                self.value(v);
            }
            if seg.bracket {
                self.out.push(']');
            }
            if seg.keyword.is_some() {
                self.out.push(')');
            }
            first = false;
        }
        if matches!(opcode, Opcode::If | Opcode::For) {
            self.region_attrs(op);
        } else {
            self.inherent(&f.inherent(op).clone());
            if !f.discardable(op).is_empty() {
                self.out.push_str(" {");
                self.dict(&f.discardable(op).clone());
                self.out.push('}');
            }
        }
        for (i, &r) in f.results(op).iter().enumerate() {
            self.out.push_str(if i == 0 { " : " } else { ", " });
            self.ty(r);
        }
    }

    fn region_attrs(&mut self, op: Op) {
        self.inherent(&self.f.inherent(op).clone());
        if !self.f.discardable(op).is_empty() {
            self.out.push_str(" attributes {");
            self.dict(&self.f.discardable(op).clone());
            self.out.push('}');
        }
    }

    fn inherent(&mut self, d: &AttrDict) {
        if !d.is_empty() {
            self.out.push_str(" <{");
            self.dict(d);
            self.out.push_str("}>");
        }
    }

    fn dict(&mut self, d: &AttrDict) {
        for (i, (k, v)) in d.iter().enumerate() {
            if i > 0 {
                self.out.push_str(", ");
            }
            self.out.push_str(self.f.symbol(k));
            if *self.f.attr_data(v) != AttrData::Unit {
                self.out.push_str(" = ");
                self.attr(v);
            }
        }
    }

    fn attr(&mut self, a: Attr) {
        let f = self.f;
        match f.attr_data(a) {
            AttrData::Unit => self.out.push_str("unit"),
            AttrData::Int(v, ty) => {
                let _ = write!(self.out, "{v}");
                if let Some(t) = ty {
                    let _ = write!(self.out, " : {}", t.name());
                }
            }
            AttrData::Float(v, ty) => {
                let v = v.get();
                if v.is_nan() {
                    self.out.push_str("nan");
                } else if v.is_infinite() {
                    self.out.push_str(if v > 0.0 { "inf" } else { "-inf" });
                } else {
                    let _ = write!(self.out, "{v:?}");
                }
                if let Some(t) = ty {
                    let _ = write!(self.out, " : {}", t.name());
                }
            }
            AttrData::Str(s) => write_str(&mut self.out, s),
            AttrData::Name(s) => self.out.push_str(f.symbol(*s)),
            AttrData::Array(list) => {
                self.out.push('[');
                self.list(list);
                self.out.push(']');
            }
            AttrData::Call(s, list) => {
                self.out.push_str(f.symbol(*s));
                self.out.push('(');
                self.list(list);
                self.out.push(')');
            }
            AttrData::Type(t) => {
                let _ = write!(self.out, "{}", f.type_data(*t));
            }
        }
    }

    fn list(&mut self, list: &[Attr]) {
        for (i, &a) in list.iter().enumerate() {
            if i > 0 {
                self.out.push_str(", ");
            }
            self.attr(a);
        }
    }
}
