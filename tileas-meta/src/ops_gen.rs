//! Generator: operation rows → Rust tables (`opcodes.rs`), builder methods (`builder_gen.rs`) and `docs/ops.md`.

use crate::ops::{Arity, AttrKind, EXTRA_SYMBOLS, OPS, OpRow, Rule, SCHEDULE_KEYS, Trait, Ty};
use std::collections::BTreeSet;
use std::fmt::Write;

/// `async.tiled_tma_load` → `AsyncTiledTmaLoad`.
pub fn camel(name: &str) -> String {
    let mut out = String::new();
    for part in name.split(['.', '_']) {
        let mut chars = part.chars();
        if let Some(first) = chars.next() {
            out.push(first.to_ascii_uppercase());
            out.extend(chars);
        }
    }
    out
}

fn screaming(name: &str) -> String {
    let mut out = String::new();
    for (i, c) in name.chars().enumerate() {
        if c == '.' {
            out.push('_');
        } else if c.is_ascii_uppercase() && i > 0 {
            out.push('_');
            out.push(c);
        } else {
            out.push(c.to_ascii_uppercase());
        }
    }
    out
}

fn symbols() -> Vec<&'static str> {
    let mut set = BTreeSet::new();
    for op in OPS {
        for attr in op.attrs {
            set.insert(attr.name);
            if let AttrKind::Enum(names) | AttrKind::Call(names) = attr.kind {
                set.extend(names);
            }
        }
    }
    set.extend(SCHEDULE_KEYS.iter().map(|k| k.0));
    set.extend(EXTRA_SYMBOLS);
    set.into_iter().collect()
}

fn ty(t: Ty) -> &'static str {
    match t {
        Ty::Any => "Any",
        Ty::Int => "Int",
        Ty::Bool => "Bool",
        Ty::Scalar => "Scalar",
        Ty::Num => "Num",
        Ty::IntNum => "IntNum",
        Ty::FloatNum => "FloatNum",
        Ty::Tile => "Tile",
        Ty::View => "View",
        Ty::Desc => "Desc",
        Ty::Producer => "Producer",
        Ty::Consumer => "Consumer",
        Ty::Iter => "Iter",
        Ty::Async => "Async",
        Ty::Mem => "Mem",
        Ty::Stage => "Stage",
    }
}

fn arity(a: Arity) -> &'static str {
    match a {
        Arity::One => "One",
        Arity::Opt => "Opt",
        Arity::Many => "Many",
    }
}

fn rule(r: Rule) -> &'static str {
    match r {
        Rule::None => "None",
        Rule::Same => "Same",
        Rule::Compare => "Compare",
        Rule::Select => "Select",
        Rule::Convert => "Convert",
        Rule::I32 => "I32",
        Rule::Dot => "Dot",
        Rule::Custom => "Custom",
    }
}

fn attr_kind(k: AttrKind) -> String {
    match k {
        AttrKind::Unit => "AttrKind::Unit".into(),
        AttrKind::Int => "AttrKind::Int".into(),
        AttrKind::Number => "AttrKind::Number".into(),
        AttrKind::Enum(names) => format!("AttrKind::Enum(&{names:?})"),
        AttrKind::Ints => "AttrKind::Ints".into(),
        AttrKind::Str => "AttrKind::Str".into(),
        AttrKind::Call(names) => format!("AttrKind::Call(&{names:?})"),
        AttrKind::Any => "AttrKind::Any".into(),
    }
}

const TRAITS: &[(Trait, &str)] = &[
    (Trait::Pure, "PURE"),
    (Trait::Uniform, "UNIFORM"),
    (Trait::Elementwise, "ELEMENTWISE"),
    (Trait::Async, "ASYNC"),
    (Trait::ReadsGlobal, "READS_GLOBAL"),
    (Trait::WritesGlobal, "WRITES_GLOBAL"),
    (Trait::Terminator, "TERMINATOR"),
    (Trait::Schedulable, "SCHEDULABLE"),
    (Trait::Pipeline, "PIPELINE"),
    (Trait::Shape, "SHAPE"),
];

/// Rust source: symbols, `Opcode`, and the table `OP_DEFS` the parser, printer and verifier read.
pub fn opcodes() -> String {
    let mut s = String::from("// Generated from the rows of `tileas-meta/src/ops.rs`; do not edit.\n\n");
    s.push_str("/// Names known at build time; [`Sym`]s below this length need no per-function storage.\npub(crate) static KNOWN_SYMBOLS: &[&str] = &[\n");
    let syms = symbols();
    for name in &syms {
        writeln!(s, "    {name:?},").expect("a string takes any text");
    }
    s.push_str("];\n\n/// Symbols of the names known at build time.\npub mod keys {\n    use super::Sym;\n");
    for (i, name) in syms.iter().enumerate() {
        let short =
            name.strip_prefix("tileas.schedule.constraint.").or(name.strip_prefix("tileas.")).unwrap_or(name);
        writeln!(s, "    /// `{name}`\n    pub const {}: Sym = Sym::known({i});", screaming(short))
            .expect("a string takes any text");
    }
    s.push_str("\n    /// The nine scheduling keys in the order of the specification's table; `true` marks unit keys.\n    pub const SCHEDULE: [(Sym, bool); 9] = [\n");
    for (name, unit) in SCHEDULE_KEYS {
        let i = syms.iter().position(|n| n == name).expect("symbols() holds every name of the table");
        writeln!(s, "        (Sym::known({i}), {unit}), // {name}").expect("a string takes any text");
    }
    s.push_str("    ];\n}\n\n/// An operation's kind.\n#[derive(Copy, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]\n#[repr(u8)]\npub enum Opcode {\n");
    for op in OPS {
        writeln!(s, "    /// `{}`: {}\n    {},", op.name, op.doc, camel(op.name))
            .expect("a string takes any text");
    }
    s.push_str("}\n\nimpl Opcode {\n    /// All opcodes, in table order.\n    pub const ALL: &'static [Opcode] = &[\n");
    for op in OPS {
        writeln!(s, "        Opcode::{}, // row `{}`", camel(op.name), op.name)
            .expect("a string takes any text");
    }
    s.push_str(
        "    ];\n}\n\n/// One definition per opcode, indexed by it.\npub static OP_DEFS: &[OpDef] = &[\n",
    );
    for op in OPS {
        def(&mut s, op);
    }
    s.push_str("];\n");
    s
}

fn def(s: &mut String, op: &OpRow) {
    writeln!(s, "    // row `{}`", op.name).expect("a string takes any text");
    write!(s, "    OpDef {{ name: {:?}, operands: &[", op.name).expect("a string takes any text");
    for o in op.operands {
        write!(
            s,
            "Segment {{ name: {:?}, arity: Arity::{}, ty: TyClass::{}, bracket: {}, keyword: {:?} }}, ",
            o.name,
            arity(o.arity),
            ty(o.ty),
            o.bracket,
            o.keyword
        )
        .expect("a string takes any text");
    }
    write!(
        s,
        "], results: {}, attrs: &[",
        if op.two_results { "Results::Two".into() } else { format!("Results::{}", arity(op.results)) }
    )
    .expect("a string takes any text");
    for a in op.attrs {
        let i = symbols().iter().position(|n| *n == a.name).expect("symbols() holds every name of the table");
        write!(
            s,
            "AttrDef {{ key: Sym::known({i}), kind: {}, required: {} }}, ",
            attr_kind(a.kind),
            a.required
        )
        .expect("a string takes any text");
    }
    let traits: Vec<String> =
        TRAITS.iter().filter(|(t, _)| op.traits.contains(t)).map(|(_, n)| format!("Traits::{n}")).collect();
    let traits = if traits.is_empty() { "0".into() } else { traits.join(" | ") };
    writeln!(
        s,
        "], regions: {}, traits: Traits({traits}), rule: Rule::{}, class: {:?}, doc: {:?} }},",
        op.regions,
        rule(op.rule),
        op.class,
        op.doc
    )
    .expect("a string takes any text");
}

/// Rust source of the typed builder methods.
pub fn builder() -> String {
    let mut s = String::from(
        "// Generated from the rows of `tileas-meta/src/ops.rs`; do not edit.\n\nimpl FunctionBuilder<'_> {\n",
    );
    for op in OPS {
        if op.regions != 0 || op.traits.contains(&Trait::Terminator) || op.name == "constant" {
            continue; // written by hand: they open regions or end blocks
        }
        let fn_name = op.name.replace('.', "_");
        let mut params = String::new();
        let mut segs = String::new();
        for o in op.operands {
            match o.arity {
                Arity::One => {
                    write!(params, ", {}: Value", o.name).expect("a string takes any text");
                    writeln!(segs, "            .operand({})", o.name).expect("a string takes any text");
                }
                Arity::Opt => {
                    write!(params, ", {}: Option<Value>", o.name).expect("a string takes any text");
                    writeln!(segs, "            .optional({})", o.name).expect("a string takes any text");
                }
                Arity::Many => {
                    write!(params, ", {}: &[Value]", o.name).expect("a string takes any text");
                    writeln!(segs, "            .operands({})", o.name).expect("a string takes any text");
                }
            }
        }
        // `async.dot` writes its type out because its two forms differ in it.
        let inferable = matches!(op.rule, Rule::Same | Rule::Compare | Rule::Select | Rule::I32 | Rule::Dot)
            && op.name != "async.dot"
            || matches!(
                op.name,
                "async.pipeline.producer_acquire"
                    | "async.pipeline.consumer_wait"
                    | "async.pipeline.consumer_release"
                    | "async.pipeline.create_iterator"
            );
        let (ret, types, finish) = match (op.two_results, op.results) {
            (true, _) => (
                "(Value, Value)",
                ", types: [Type; 2]".to_string(),
                "            .results(&types)\n            .finish_two()",
            ),
            (_, Arity::One) if inferable => {
                ("Value", String::new(), "            .inferred()\n            .finish_one()")
            }
            (_, Arity::One) => {
                ("Value", ", ty: Type".to_string(), "            .results(&[ty])\n            .finish_one()")
            }
            (_, Arity::Opt) => (
                "Option<Value>",
                ", ty: Option<Type>".to_string(),
                "            .results(ty.as_slice())\n            .finish_opt()",
            ),
            (_, Arity::Many) => ("Op", String::new(), "            .finish()"),
        };
        let attrs: Vec<_> = op.attrs.iter().filter(|a| a.required).collect();
        let mut attr_set = String::new();
        for a in &attrs {
            let arg = match a.name {
                "box" => "box_dims".to_string(),
                n => snake(n),
            };
            let key = format!("keys::{}", screaming(a.name));
            match a.kind {
                AttrKind::Int => {
                    write!(params, ", {arg}: i64").expect("a string takes any text");
                    writeln!(attr_set, "            .int({key}, {arg})").expect("a string takes any text");
                }
                AttrKind::Ints => {
                    write!(params, ", {arg}: &[i64]").expect("a string takes any text");
                    writeln!(attr_set, "            .ints({key}, {arg})").expect("a string takes any text");
                }
                AttrKind::Enum(_) => {
                    write!(params, ", {arg}: Sym").expect("a string takes any text");
                    writeln!(attr_set, "            .name({key}, {arg})").expect("a string takes any text");
                }
                _ => {
                    write!(params, ", {arg}: AttrData").expect("a string takes any text");
                    writeln!(attr_set, "            .attr({key}, {arg})").expect("a string takes any text");
                }
            }
        }
        let expect = if params.matches(": ").count() + types.matches(": ").count() > 6 {
            "    #[expect(clippy::too_many_arguments, reason = \"one parameter per operand segment\")]\n"
        } else {
            ""
        };
        writeln!(
            s,
            "    /// Appends `{}`: {}\n{expect}    pub fn {fn_name}(&mut self{params}{types}) -> {ret} {{\n        self.build(Opcode::{})\n{segs}{attr_set}{finish}\n    }}\n",
            op.name,
            op.doc,
            camel(op.name)
        )
        .expect("a string takes any text");
    }
    s.push_str("}\n");
    s
}

fn snake(name: &str) -> String {
    screaming(name).to_ascii_lowercase()
}

/// The reference page.
pub fn docs() -> String {
    let mut s = String::from(
        "# Operations\n\nGenerated from `tileas-meta/src/ops.rs`; a test keeps the two equal (`TILEAS_BLESS=1` rewrites this page).\n\n\
         Segments in brackets print behind the segment before them; `?` marks optional, `*` repeated segments.\n\n",
    );
    for op in OPS {
        writeln!(s, "## `{}`\n\n{}\n", op.name, op.doc).expect("a string takes any text");
        if !op.operands.is_empty() {
            let list: Vec<String> = op
                .operands
                .iter()
                .map(|o| {
                    let mark = match o.arity {
                        Arity::One => "",
                        Arity::Opt => "?",
                        Arity::Many => "*",
                    };
                    let (l, r) = if o.bracket { ("[", "]") } else { ("", "") };
                    format!("`{l}{}{mark}: {}{r}`", o.name, ty(o.ty))
                })
                .collect();
            writeln!(s, "- operands: {}", list.join(", ")).expect("a string takes any text");
        }
        let results = if op.two_results { "2".to_string() } else { arity(op.results).to_ascii_lowercase() };
        writeln!(s, "- results: {results}; typing: {}", rule(op.rule)).expect("a string takes any text");
        if !op.attrs.is_empty() {
            let list: Vec<String> = op
                .attrs
                .iter()
                .map(|a| {
                    let kind = match a.kind {
                        AttrKind::Enum(n) | AttrKind::Call(n) => n.join(" \\| "),
                        k => format!("{k:?}").to_ascii_lowercase(),
                    };
                    format!("`{}`{} ({kind})", a.name, if a.required { "" } else { "?" })
                })
                .collect();
            writeln!(s, "- attributes: {}", list.join(", ")).expect("a string takes any text");
        }
        let traits: Vec<String> = TRAITS
            .iter()
            .filter(|(t, _)| op.traits.contains(t))
            .map(|(_, n)| n.to_ascii_lowercase())
            .collect();
        writeln!(
            s,
            "- traits: {}; slot class: {}\n",
            if traits.is_empty() { "none".into() } else { traits.join(", ") },
            op.class
        )
        .expect("a string takes any text");
    }
    s
}

#[cfg(test)]
mod tests {
    #[test]
    fn reference_page_is_current() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/ops.md");
        let want = super::docs();
        if std::env::var_os("TILEAS_BLESS").is_some() {
            std::fs::create_dir_all(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs")).unwrap();
            std::fs::write(path, &want).unwrap();
        }
        let have = std::fs::read_to_string(path).unwrap_or_default();
        assert!(have == want, "docs/ops.md is stale: run the tests once with TILEAS_BLESS=1");
    }
}
