//! Modules as text, to be read by people and compared by tests.
//!
//! In: any module. Out: a line for each op, in the manner of MLIR: results, name, operands, attributes, types of the
//! results. Values bear the numbers of their [`Value`](crate::Value)s. The same module gives the same text. Nothing reads it back.

use crate::attr::Attr;
use crate::constants::{Elements, Number};
use crate::entities::{Constant, Region, Str, Type, Value};
use crate::module::{FuncRef, Module, OpRef};
use crate::types::joined;
use std::fmt::{self, Display, Formatter, Write};
use tileas_meta::tileir::{Arity, AttrKind, Key};

/// Elements of a constant that are printed.
const MOST: usize = 64;

impl Module {
    /// The module as text; `locations`: with where each op came from.
    pub fn dump(&self, locations: bool) -> impl Display + '_ {
        Text { module: self, locations }
    }
}

impl Display for Module {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.dump(false).fmt(f)
    }
}

struct Text<'a> {
    module: &'a Module,
    locations: bool,
}

impl Display for Text<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let m = self.module;
        write!(f, "module {}", m.version)?;
        if let Some(producer) = m.producer {
            write!(f, " from {:?}", m.str(producer))?;
        }
        writeln!(f, " {{")?;
        for global in m.globals.values() {
            write!(f, "  global {}", if global.private { "private " } else { "" })?;
            write!(f, "{}@{}", if global.constant { "constant " } else { "" }, m.str(global.name))?;
            if global.alignment != 0 {
                write!(f, " alignment = {}", global.alignment)?;
            }
            f.write_str(" ")?;
            constant(f, m, global.ty, global.value)?;
            writeln!(f, " : {}", m.types.display(global.ty))?;
        }
        for func in m.functions() {
            self.function(f, func)?;
        }
        f.write_str("}\n")
    }
}

impl Text<'_> {
    fn function(&self, f: &mut Formatter<'_>, func: FuncRef<'_>) -> fmt::Result {
        let m = self.module;
        write!(
            f,
            "  {}{}",
            if func.func.private { "private " } else { "" },
            if func.func.entry { "entry" } else { "func" }
        )?;
        write!(f, " @{}(", func.name())?;
        joined(f, func.params().enumerate(), ", ", |f, (i, value)| {
            write!(f, "{value}: {}", m.types.display(func.value_type(value)))?;
            let attrs = func.param_attrs(i);
            if attrs.is_empty() { Ok(()) } else { f.write_char(' ').and_then(|()| entries(f, m, attrs)) }
        })?;
        f.write_str(")")?;
        if !func.func.hints.is_empty() {
            f.write_str(" optimization_hints = ")?;
            entries(f, m, &func.func.hints)?;
        }
        f.write_str(" {\n")?;
        for op in func.body() {
            self.op(f, op, 2)?;
        }
        f.write_str("  }")?;
        if self.locations {
            location(f, &func.loc().map_or_else(Vec::new, |loc| m.frames(loc)))?;
        }
        f.write_str("\n")
    }

    fn op(&self, f: &mut Formatter<'_>, op: OpRef<'_>, depth: usize) -> fmt::Result {
        let m = self.module;
        write!(f, "{:1$}", "", 2 * depth)?;
        let results = op.results();
        joined(f, results.clone(), ", ", |f, v| v.fmt(f))?;
        f.write_str(if results.len() > 0 { " = " } else { "" })?;
        f.write_str(op.row().name)?;
        let list = |f: &mut Formatter<'_>, values: &[Value]| joined(f, values, ", ", |f, v| v.fmt(f));
        let mut separator = " ";
        for (seg, arity, values) in op.segments() {
            f.write_str(if values.is_empty() && op.row().operands.len() == 1 { "" } else { separator })?;
            separator = ", ";
            match arity {
                Arity::Many if op.row().operands.len() == 1 => list(f, values)?,
                Arity::Many => {
                    write!(f, "{seg} = [")?;
                    list(f, values)?;
                    f.write_str("]")?;
                }
                Arity::Opt(_) => {
                    write!(f, "{seg} = ")?;
                    list(f, values)?;
                }
                Arity::One => list(f, values)?,
            }
        }
        self.attrs(f, op)?;
        if results.len() > 0 {
            f.write_str(" : ")?;
            joined(f, results, ", ", |f, v| m.types.display(op.func.value_type(v)).fmt(f))?;
        }
        for (i, region) in op.regions().enumerate() {
            f.write_str(if i > 0 { " else" } else { "" })?;
            self.region(f, op.func, region, depth)?;
        }
        if self.locations {
            location(f, &op.source())?;
        }
        f.write_str("\n")
    }

    fn region(&self, f: &mut Formatter<'_>, func: FuncRef<'_>, region: Region, depth: usize) -> fmt::Result {
        let params = func.region_params(region);
        if params.len() > 0 {
            f.write_str(" (")?;
            joined(f, params, ", ", |f, v| {
                write!(f, "{v}: {}", self.module.types.display(func.value_type(v)))
            })?;
            f.write_str(")")?;
        }
        f.write_str(" {\n")?;
        for op in func.region(region) {
            self.op(f, op, depth + 1)?;
        }
        write!(f, "{:1$}}}", "", 2 * depth)
    }

    fn attrs(&self, f: &mut Formatter<'_>, op: OpRef<'_>) -> fmt::Result {
        let m = self.module;
        let mut separator = " {";
        for &(_, key) in op.row().units.iter().filter(|u| op.has(u.1)) {
            write!(f, "{separator}{key}")?;
            separator = ", ";
        }
        for row in op.row().attrs {
            let Some((kind, word)) = op.word(row.key) else { continue };
            // What is never set says nothing.
            if matches!(op.attr(row.key), Some(Attr::Bools(bools)) if !bools.contains(&true)) {
                continue;
            }
            write!(f, "{separator}{} = ", row.key)?;
            separator = ", ";
            match kind {
                AttrKind::Enum(names) => f.write_str(names.get(word as usize).copied().unwrap_or("?"))?,
                AttrKind::Int => word.fmt(f)?,
                AttrKind::Bool => (word != 0).fmt(f)?,
                AttrKind::Str => write!(f, "{:?}", op.text(row.key).unwrap_or_default())?,
                AttrKind::Const => {
                    if let (Some(ty), Some(value)) = (op.result(0), op.get::<Constant>(Key::Value)) {
                        constant(f, m, op.func.value_type(ty), value)?;
                    }
                }
                _ => match op.attr(row.key) {
                    Some(value) => attr(f, m, value)?,
                    None => f.write_str("?")?,
                },
            }
        }
        f.write_str(if separator == ", " { "}" } else { "" })
    }
}

fn location(f: &mut Formatter<'_>, frames: &[crate::debug::Frame]) -> fmt::Result {
    for (i, frame) in frames.iter().enumerate() {
        write!(f, "{} {frame}", if i == 0 { " //" } else { " <-" })?;
    }
    Ok(())
}

fn number(f: &mut Formatter<'_>, n: Number) -> fmt::Result {
    if !n.num.is_float() {
        return n.signed().fmt(f);
    }
    // The shortest decimal that gives the same f64 does so for all types; what is no number keeps its bits.
    match n.float() {
        value if value.is_finite() => write!(f, "{value:?}"),
        _ => write!(f, "{:#x}", n.bits),
    }
}

fn elements(f: &mut Formatter<'_>, elements: &Elements<'_>) -> fmt::Result {
    if let Some(splat) = elements.splat() {
        return number(f, splat);
    }
    f.write_str("[")?;
    joined(f, elements.iter().take(MOST), ", ", number)?;
    f.write_str(if elements.len() > MOST { ", …]" } else { "]" })
}

fn constant(f: &mut Formatter<'_>, m: &Module, ty: Type, value: Constant) -> fmt::Result {
    match m.elements(ty, value) {
        Some(all) => elements(f, &all),
        None => write!(f, "<{} bytes>", m.constants.get(value).len()),
    }
}

fn entries(f: &mut Formatter<'_>, m: &Module, entries: &[(Str, Attr)]) -> fmt::Result {
    f.write_str("{")?;
    joined(f, entries, ", ", |f, (key, value)| {
        write!(f, "{} = ", m.str(*key))?;
        attr(f, m, value)
    })?;
    f.write_str("}")
}

fn attr(f: &mut Formatter<'_>, m: &Module, value: &Attr) -> fmt::Result {
    let side = |f: &mut Formatter<'_>, n: &Option<i64>| match n {
        Some(n) => n.fmt(f),
        None => f.write_str("?"),
    };
    match value {
        Attr::Int { ty, .. } | Attr::Float { ty, .. } => {
            m.number(value).map_or(Ok(()), |n| number(f, n))?;
            write!(f, " : {}", m.types.display(*ty))
        }
        Attr::Bool(b) => b.fmt(f),
        Attr::Type(ty) => m.types.display(*ty).fmt(f),
        Attr::Str(s) => write!(f, "{:?}", m.str(*s)),
        Attr::List(list) => {
            f.write_str("[")?;
            joined(f, list, ", ", |f, a| attr(f, m, a))?;
            f.write_str("]")
        }
        Attr::Dense { ty, value } => {
            constant(f, m, *ty, *value)?;
            write!(f, " : {}", m.types.display(*ty))
        }
        Attr::DivBy { divisor, every, along } => {
            write!(f, "div_by<{divisor}")?;
            if let Some(every) = every {
                write!(f, ", every {every}")?;
            }
            if let Some(along) = along {
                write!(f, " along {along}")?;
            }
            f.write_str(">")
        }
        Attr::SameElements(list) => {
            f.write_str("same_elements<")?;
            joined(f, list, ", ", |f, n| n.fmt(f))?;
            f.write_str(">")
        }
        Attr::Dict(list) | Attr::Hints(list) => entries(f, m, list),
        Attr::Bounded { lower, upper } => {
            f.write_str("bounded<")?;
            side(f, lower)?;
            f.write_str(", ")?;
            side(f, upper)?;
            f.write_str(">")
        }
        Attr::Ints(list) => {
            f.write_str("[")?;
            joined(f, list, ", ", |f, n| n.fmt(f))?;
            f.write_str("]")
        }
        Attr::Bools(list) => {
            f.write_str("[")?;
            joined(f, list, ", ", |f, n| n.fmt(f))?;
            f.write_str("]")
        }
    }
}
