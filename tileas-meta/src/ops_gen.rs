//! Generator: operation rows → Rust tables (`opcodes.rs`), builder methods (`builder_gen.rs`) and `docs/ops.md`.

use crate::ops::{
    Arity, AttrKind, EXTRA_SYMBOLS, OPS, OpRow, Operand, Rule, SCHEDULE_KEYS, STAGE_KEYS, Trait, Ty,
};
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
    set.extend(STAGE_KEYS.iter().map(|k| k.0));
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
        Ty::Ptr => "Ptr",
        Ty::Memory => "Memory",
        Ty::IntOrPtr => "IntOrPtr",
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
        Rule::First => "First",
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
        AttrKind::Combiner => "AttrKind::Combiner".into(),
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
    s.push_str("    ];\n\n    /// Keys that stages put on ops of any kind; `true` marks unit keys.\n    pub const STAGE: &[(Sym, bool)] = &[\n");
    for (name, unit) in STAGE_KEYS {
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

/// Whether a segment may stay empty: methods take it as a setter.
fn is_optional(o: &Operand) -> bool {
    o.arity == Arity::Opt || o.ty == Ty::Stage
}

/// Rust source of the typed builder methods.
pub fn builder() -> String {
    let mut methods = String::new();
    let (mut kinds, mut setters) = (String::new(), String::new());
    for op in OPS {
        if op.regions != 0 || op.traits.contains(&Trait::Terminator) || op.name == "constant" {
            continue; // written by hand: they open regions or end blocks
        }
        let fn_name = op.name.replace('.', "_");
        let kind = op.operands.iter().any(is_optional).then(|| camel(op.name));
        let mut params = String::new();
        let mut calls = String::new();
        for o in op.operands {
            let name = o.name;
            if is_optional(o) {
                calls.push_str(".operands(&[])");
            } else if o.arity == Arity::One {
                params += &format!(", {name}: Value");
                calls += &format!(".operand({name})");
            } else {
                params += &format!(", {name}: &[Value]");
                calls += &format!(".operands({name})");
            }
        }
        for a in op.attrs.iter().filter(|a| a.required) {
            let arg = match a.name {
                "box" => "box_dims".to_string(),
                n => snake(n),
            };
            let (call, ty) = match a.kind {
                AttrKind::Int => ("int", "i64"),
                AttrKind::Ints => ("ints", "&[i64]"),
                AttrKind::Enum(_) => ("name", "Sym"),
                _ => ("attr", "AttrData"),
            };
            params += &format!(", {arg}: {ty}");
            calls += &format!(".{call}(keys::{}, {arg})", screaming(a.name));
        }
        let inferable = matches!(
            op.rule,
            Rule::Same | Rule::Compare | Rule::Select | Rule::First | Rule::I32 | Rule::Dot
        ) || matches!(
            op.name,
            "async.pipeline.producer_acquire"
                | "async.pipeline.consumer_wait"
                | "async.pipeline.consumer_release"
                | "async.pipeline.create_iterator"
        );
        let (ret, finish) = match (op.two_results, op.results) {
            (true, _) => ("(Value, Value)", "finish_two"),
            (_, Arity::One) => ("Value", "finish_one"),
            (_, Arity::Opt) => ("Option<Value>", "finish_opt"),
            (_, Arity::Many) => ("Op", "finish"),
        };
        match (op.two_results, op.results) {
            (true, _) => {
                params += ", types: [Type; 2]";
                calls += ".results(&types)";
            }
            (_, Arity::One) if inferable => calls += ".inferred()",
            (_, Arity::One) => {
                params += ", ty: Type";
                calls += ".results(&[ty])";
            }
            // The others with so many results have none, or memory tokens that may be left out.
            (_, Arity::Many) if op.traits.contains(&Trait::Pure) => {
                params += ", types: &[Type]";
                calls += ".results(types)";
            }
            _ => {}
        }
        let (name, doc) = (op.name, op.doc);
        let opcode = camel(op.name);
        let expect = if params.matches(": ").count() > 6 {
            "    #[expect(clippy::too_many_arguments, reason = \"one parameter per part of the row\")]\n"
        } else {
            ""
        };
        let (returned, made) = match &kind {
            Some(kind) => (format!("OpBuilder<'_, 'a, made::{kind}>"), "of_kind"),
            None => (ret.to_owned(), finish),
        };
        methods += &format!(
            "    /// Appends `{name}`: {doc}\n{expect}    pub fn {fn_name}(&mut self{params}) -> {returned} {{\n        self.op(Opcode::{opcode}){calls}.{made}()\n    }}\n\n"
        );
        let Some(kind) = kind else { continue };
        kinds += &format!("    /// `{name}`.\n    pub struct {kind};\n");
        setters += &format!("impl OpBuilder<'_, '_, made::{kind}> {{\n");
        for (i, o) in op.operands.iter().enumerate().filter(|(_, o)| is_optional(o)) {
            let (ty, list) =
                if o.arity == Arity::Opt { ("Value", "&[value]") } else { ("&[Value]", "value") };
            setters += &format!(
                "    /// Sets the operand `{0}`.\n    pub fn {0}(self, value: {ty}) -> Self {{\n        self.fill({i}, {list})\n    }}\n\n",
                o.name
            );
        }
        setters += &format!(
            "    /// Links the op.\n    pub fn build(self) -> {ret} {{\n        self.{finish}()\n    }}\n}}\n\n"
        );
    }
    format!(
        "// Generated from the rows of `tileas-meta/src/ops.rs`; do not edit.\n\nimpl<'a> FunctionBuilder<'a> {{\n{methods}}}\n\n\
         /// Rows with optional operands, as kinds of [`OpBuilder`]s.\npub mod made {{\n{kinds}}}\n\n{setters}"
    )
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
