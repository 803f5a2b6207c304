//! PTX instruction forms: rows of data, and the generator that turns them into Rust.
//!
//! In: [`rows::ROWS`]. Out: [`forms`], the expanded list (one entry per combination of modifiers), and the two
//! generated files: [`generate_forms`] (an `enum PtxOp`, its metadata table, the special registers) and
//! [`generate_builder`] (one builder method per form). Same rows, same bytes. Everything the thread-level IR knows about
//! an instruction (operand classes, effects, least `.version`, targets, spelling) is said once, in its row.
//!
//! The generator runs in build scripts only; a malformed row is a bug of the table and stops the build.
//! Source: PTX ISA manual 9.x; each row names its section, and a test assembles each form with ptxas.

pub mod rows;

use std::collections::BTreeSet;
use std::fmt::Write;

/// A PTX target.
pub struct TargetRow {
    /// Name as in `.target`.
    pub name: &'static str,
    /// Least `.version` that knows it. Source: PTX ISA, release notes.
    pub version: (u8, u8),
    /// What it is.
    pub what: &'static str,
}

const fn target(name: &'static str, version: (u8, u8), what: &'static str) -> TargetRow {
    TargetRow { name, version, what }
}

/// All targets; the bit of one in a row's target set is its position here.
pub const TARGETS: &[TargetRow] = &[
    target("sm_90a", (8, 0), "Hopper."),
    target("sm_100a", (8, 6), "Blackwell, compute capability 10.0."),
    target("sm_100f", (8, 8), "Blackwell family target: 10.0 and 10.3."),
    target("sm_103a", (8, 8), "Blackwell, compute capability 10.3."),
    target("sm_103f", (8, 8), "Blackwell family target: 10.3."),
    target("sm_110a", (9, 0), "Blackwell, compute capability 11.0."),
    target("sm_110f", (9, 0), "Blackwell family target: 11.0."),
];

const SM_90A: u16 = 1;
const SM_100A: u16 = 2;
const SM_100F: u16 = 4;
const SM_103A: u16 = 8;
const SM_103F: u16 = 16;
const SM_110A: u16 = 32;
const SM_110F: u16 = 64;
/// Warpgroup matrix instructions.
pub const HOPPER: u16 = SM_90A;
/// Every target.
pub const ALL: u16 = SM_90A | BLACKWELL;
/// The tensor-memory family.
pub const BLACKWELL: u16 = SM_100A | SM_100F | SM_103A | SM_103F | SM_110A | SM_110F;
/// The architecture-specific targets of that family: block-scaled tensor instructions in `scale_vec` spelling.
pub const BLACKWELL_A: u16 = SM_100A | SM_103A | SM_110A;
/// Warp-wide f32 minimum and maximum.
pub const BLACKWELL_REDUX: u16 = SM_100A | SM_100F | SM_103A | SM_103F;
/// Integer tensor instructions.
pub const BLACKWELL_I8: u16 = SM_100A | SM_110A;

/// One row: a mnemonic with modifier slots. [`rows`] says how each field is written.
pub struct PtxRow {
    /// Name pattern of the forms.
    pub name: &'static str,
    /// Mnemonic pattern.
    pub mnemonic: &'static str,
    /// Operand template.
    pub operands: &'static str,
    /// Effect letters.
    pub effects: &'static str,
    /// Least `.version`.
    pub version: (u8, u8),
    /// Set of targets, as bits.
    pub targets: u16,
    /// Section of the PTX ISA manual.
    pub source: &'static str,
}

/// A special register.
pub struct Special {
    /// Variant name.
    pub name: &'static str,
    /// PTX spelling.
    pub text: &'static str,
    /// Width, 32 or 64.
    pub bits: u8,
    /// Whether two reads may differ.
    pub volatile: bool,
}

/// One operand of an expanded form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operand {
    /// Register is written.
    pub def: bool,
    /// What may stand here.
    pub kind: Kind,
}

/// Operand kinds of [`Operand`]; types are the lower-case names of the row templates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A register of the type; `imm`: or an immediate.
    Reg {
        /// Register type.
        ty: String,
        /// An immediate may stand for it.
        imm: bool,
    },
    /// A brace list of registers.
    Vec {
        /// Register type.
        ty: String,
        /// An immediate may stand for an element.
        imm: bool,
        /// Number of elements.
        len: u32,
    },
    /// A 32-bit register or an immediate, as in [`Kind::Imm`].
    RegOrImm {
        /// Least value.
        lo: i64,
        /// Greatest value.
        hi: i64,
        /// As in [`Kind::Imm`].
        step: u32,
    },
    /// An immediate; `step` 0 means power of two.
    Imm {
        /// Least value.
        lo: i64,
        /// Greatest value.
        hi: i64,
        /// Value minus `lo` must be a multiple of it.
        step: u32,
    },
    /// An address in the space of that letter.
    Addr(char),
    /// A special register of that many bits.
    Special(u8),
    /// `sym`, `gsym`, `param` or `label`.
    Name(String),
}

/// An expanded form.
#[derive(Clone, Debug)]
pub struct Form {
    /// Snake-case name, also of the builder method.
    pub name: String,
    /// CamelCase name of the enum variant.
    pub variant: String,
    /// Full mnemonic.
    pub mnemonic: String,
    /// Operands in order of appearance.
    pub operands: Vec<Operand>,
    /// Text around the operands; one more than operands.
    pub literals: Vec<String>,
    /// Index of the row.
    pub row: usize,
}

/// Splits `a.{x|y}.b` into its literal parts and the choices between them.
fn slots(pattern: &str) -> (Vec<&str>, Vec<Vec<&str>>) {
    let (mut parts, mut choices) = (Vec::new(), Vec::new());
    let mut rest = pattern;
    while let Some((before, after)) = rest.split_once('{') {
        let (inside, tail) = after.split_once('}').expect("a slot of a mnemonic is closed");
        parts.push(before);
        choices.push(inside.split('|').collect());
        rest = tail;
    }
    parts.push(rest);
    (parts, choices)
}

/// `.shared::cta.L1` → `_shared_cta_l1`.
fn sanitise(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        if c.is_ascii_alphanumeric() {
            out.push(c.to_ascii_lowercase());
        } else if !out.ends_with('_') {
            out.push('_');
        }
    }
    out
}

fn camel(name: &str) -> String {
    let mut out = String::new();
    let mut upper = true;
    for c in name.chars() {
        if c == '_' {
            // Two digits that the underscore kept apart stay apart.
            upper = true;
        } else if upper {
            out.push(c.to_ascii_uppercase());
            upper = false;
        } else {
            out.push(c);
        }
    }
    out
}

/// Register type of a PTX type modifier.
fn reg_type(choice: &str) -> &'static str {
    match choice.trim_start_matches('.') {
        "b16" | "u16" | "s16" | "f16" | "bf16" => "b16",
        "b32" => "x32",
        "u8" | "s8" | "u32" | "s32" | "f16x2" | "bf16x2" => "b32",
        "f32" => "f32",
        "b64" | "u64" | "s64" | "f64" | "f32x2" => "b64",
        "pred" => "pred",
        other => panic!("`{other}` is not a type"),
    }
}

fn number(text: &str, what: &str) -> i64 {
    text.parse().unwrap_or_else(|_| panic!("{what}: `{text}` is not a number"))
}

/// `lo..hi`, `lo..hi/step`, `lo..hi^` (step 0).
fn parse_range(range: &str, token: &str) -> (i64, i64, u32) {
    let (range, step) = match (range.strip_suffix('^'), range.split_once('/')) {
        (Some(r), _) => (r, 0),
        (None, Some((r, s))) => (r, number(s, token) as u32),
        (None, None) => (range, 1),
    };
    let (lo, hi) = range.split_once("..").expect("a range has two ends");
    (number(lo, token), number(hi, token), step)
}

fn operand(token: &str, picks: &[&str]) -> Operand {
    let (def, body) = match token.strip_prefix('=') {
        Some(rest) => (true, rest),
        None => (false, token),
    };
    let slot = |digits: &str| -> &str {
        let index = if digits.is_empty() { 1 } else { number(digits, token) as usize };
        picks.get(index - 1).unwrap_or_else(|| panic!("`{token}` names a slot that is not there"))
    };
    if let Some(space) = body.strip_prefix('@') {
        return Operand { def, kind: Kind::Addr(space.chars().next().expect("an address names its space")) };
    }
    if let Some(range) = body.strip_prefix("imm") {
        let (lo, hi, step) = match range.strip_prefix(':') {
            Some(range) => parse_range(range, token),
            None => (i64::from(i32::MIN), i64::from(u32::MAX), 1),
        };
        return Operand { def, kind: Kind::Imm { lo, hi, step } };
    }
    if let Some(range) = body.strip_prefix("b32i:") {
        let (lo, hi, step) = parse_range(range, token);
        return Operand { def, kind: Kind::RegOrImm { lo, hi, step } };
    }
    match body {
        "sreg" => return Operand { def, kind: Kind::Special(32) },
        "sreg64" => return Operand { def, kind: Kind::Special(64) },
        "sym" | "gsym" | "param" | "label" => return Operand { def, kind: Kind::Name(body.to_string()) },
        _ => {}
    }
    let (ty, len) = match body.split_once('*') {
        Some((ty, len)) => (ty, Some(len)),
        None => (body, None),
    };
    let (ty, imm) = match ty.strip_suffix('i') {
        Some(t) => (t, true),
        None => (ty, false),
    };
    let ty = match ty.strip_prefix('$') {
        Some(digits) => reg_type(slot(digits)),
        None => ty,
    };
    assert!(matches!(ty, "pred" | "b16" | "b32" | "f32" | "b64" | "x32"), "`{token}`: unknown type `{ty}`");
    let ty = ty.to_string();
    match len {
        None => Operand { def, kind: Kind::Reg { ty, imm } },
        Some(len) => {
            let len = match len.strip_prefix('#') {
                None => number(len, token),
                Some(spec) => {
                    let (spec, divisor) = spec.split_once('/').unwrap_or((spec, "1"));
                    let (index, factor) = spec.split_once('x').unwrap_or((spec, "1"));
                    let digits: String = slot(index).chars().filter(char::is_ascii_digit).collect();
                    number(&digits, token) * number(factor, token) / number(divisor, token)
                }
            };
            Operand { def, kind: Kind::Vec { ty, imm, len: len as u32 } }
        }
    }
}

/// Splits a template into operands and the text around them.
fn template(text: &str, picks: &[&str]) -> (Vec<Operand>, Vec<String>) {
    let is_token = |c: char| c.is_ascii_alphanumeric() || "=$@*#:./^".contains(c);
    let (mut operands, mut literals) = (Vec::new(), Vec::new());
    let (mut literal, mut rest) = (String::new(), text);
    while let Some(c) = rest.chars().next() {
        if let Some((quoted, behind)) = rest.strip_prefix('\'').and_then(|r| r.split_once('\'')) {
            literal.push_str(quoted);
            rest = behind;
        } else if is_token(c) {
            let end = rest.find(|c| !is_token(c)).unwrap_or(rest.len());
            operands.push(operand(&rest[..end], picks));
            literals.push(std::mem::take(&mut literal));
            rest = &rest[end..];
        } else {
            literal.push(c);
            rest = &rest[c.len_utf8()..];
        }
    }
    literals.push(literal);
    (operands, literals)
}

/// Expands the rows, in row order and, within a row, with the last slot varying fastest.
pub fn forms() -> Vec<Form> {
    let mut out = Vec::new();
    let mut seen = BTreeSet::new();
    for (index, row) in rows::ROWS.iter().enumerate() {
        let (parts, choices) = slots(row.mnemonic);
        let count: usize = choices.iter().map(Vec::len).product();
        for n in 0..count {
            let mut rem = n;
            let mut picks = vec![""; choices.len()];
            for (pick, options) in picks.iter_mut().zip(&choices).rev() {
                *pick = options[rem % options.len()];
                rem /= options.len();
            }
            let mut mnemonic = String::new();
            for (i, part) in parts.iter().enumerate() {
                mnemonic.push_str(part);
                mnemonic.push_str(picks.get(i).copied().unwrap_or(""));
            }
            let name = if row.name.is_empty() {
                sanitise(&mnemonic)
            } else if let Some(suffix) = row.name.strip_prefix('+') {
                sanitise(&mnemonic) + suffix
            } else {
                let mut name = String::new();
                let mut picked = picks.iter();
                for (i, piece) in row.name.split("{}").enumerate() {
                    if i > 0 {
                        name.push_str(&sanitise(
                            picked.next().expect("a name has at most as many `{}` as slots"),
                        ));
                    }
                    name.push_str(piece);
                }
                name
            };
            assert!(seen.insert(name.clone()), "two forms are called `{name}`");
            let (operands, literals) = template(row.operands, &picks);
            out.push(Form { variant: camel(&name), name, mnemonic, operands, literals, row: index });
        }
    }
    out
}

fn class(op: &Operand) -> String {
    let ty = |ty: &str| match ty {
        "pred" => "Pred",
        "b16" => "B16",
        "b32" => "B32",
        "f32" => "F32",
        "b64" => "B64",
        _ => "X32",
    };
    let kind = match &op.kind {
        Kind::Reg { ty: t, imm } => format!("Kind::Reg {{ ty: Ty::{}, imm: {imm} }}", ty(t)),
        Kind::Vec { ty: t, imm, len } => format!("Kind::Vec {{ ty: Ty::{}, imm: {imm}, len: {len} }}", ty(t)),
        Kind::RegOrImm { lo, hi, step } => format!("Kind::RegOrImm {{ lo: {lo}, hi: {hi}, step: {step} }}"),
        Kind::Imm { lo, hi, step } => format!("Kind::Imm {{ lo: {lo}, hi: {hi}, step: {step} }}"),
        Kind::Addr(space) => {
            let space = match space {
                's' => "Shared",
                'g' => "Global",
                'p' => "Param",
                't' => "Tensor",
                'l' => "Local",
                'x' => "Generic",
                other => panic!("no address space is called `{other}`"),
            };
            format!("Kind::Addr(AddressSpace::{space})")
        }
        Kind::Special(bits) => format!("Kind::Special({bits})"),
        Kind::Name(n) => match n.as_str() {
            "sym" => "Kind::SharedSym".to_string(),
            "gsym" => "Kind::GlobalSym".to_string(),
            "param" => "Kind::Param".to_string(),
            _ => "Kind::Label".to_string(),
        },
    };
    format!("OperandClass {{ def: {}, kind: {kind} }}", op.def)
}

fn effects(letters: &str) -> u16 {
    letters.chars().fold(0, |bits, c| {
        bits | match c {
            'r' => 1,
            'w' => 2,
            's' => 4,
            'd' => 128,
            'u' => 256,
            'a' => 8,
            'c' => 16,
            't' => 32,
            'v' => 64,
            other => panic!("no effect is called `{other}`"),
        }
    })
}

/// The file with `enum PtxOp`, its `FORMS` table and `enum Special`.
pub fn generate_forms() -> String {
    let forms = forms();
    let mut out = String::from(
        "// Generated from tileas-meta/src/ptx/rows.rs; each line ends with the row it came from.\n\n\
         /// A PTX instruction form: a mnemonic with all its modifiers and the classes of its operands.\n\
         #[derive(Copy, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]\n#[repr(u16)]\npub enum PtxOp {\n",
    );
    for f in &forms {
        let row = &rows::ROWS[f.row];
        let _ = writeln!(out, "    /// `{} {}`", f.mnemonic, syntax_doc(f));
        let _ = writeln!(out, "    {}, // {}", f.variant, row.mnemonic);
    }
    let _ = write!(
        out,
        "}}\n\nimpl PtxOp {{\n    /// All forms, in table order.\n    pub const ALL: &'static [PtxOp] = &[\n"
    );
    for f in &forms {
        let _ = writeln!(out, "        PtxOp::{},", f.variant);
    }
    let _ = write!(out, "    ];\n}}\n\npub(crate) static FORMS: [Form; {}] = [\n", forms.len());
    for f in &forms {
        let row = &rows::ROWS[f.row];
        let classes: Vec<String> = f.operands.iter().map(class).collect();
        let mut head = f.mnemonic.clone();
        if !f.operands.is_empty() || !f.literals[0].is_empty() {
            head.push(' ');
            head.push_str(&f.literals[0]);
        }
        let _ = writeln!(
            out,
            "    Form {{ name: {:?}, mnemonic: {:?}, head: {:?}, operands: &[{}], syntax: &{:?}, effects: Effects({}), version: ({}, {}), targets: {}, source: {:?} }}, // {}",
            f.name,
            f.mnemonic,
            head,
            classes.join(", "),
            f.literals,
            effects(row.effects),
            row.version.0,
            row.version.1,
            row.targets,
            row.source,
            row.mnemonic
        );
    }
    out.push_str("];\n\n");
    targets(&mut out);
    out.push_str("/// A special register.\n#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]\npub enum Special {\n");
    for s in rows::SPECIALS {
        let _ = writeln!(out, "    /// `{}`", s.text);
        let _ = writeln!(out, "    {},", s.name);
    }
    out.push_str(
        "}\n\nimpl Special {\n    /// All, in table order.\n    pub const ALL: &'static [Special] = &[\n",
    );
    for s in rows::SPECIALS {
        let _ = writeln!(out, "        Special::{},", s.name);
    }
    out.push_str(
        "    ];\n\n    /// PTX spelling.\n    pub fn as_str(self) -> &'static str {\n        match self {\n",
    );
    for s in rows::SPECIALS {
        let _ = writeln!(out, "            Special::{} => {:?},", s.name, s.text);
    }
    out.push_str(
        "        }\n    }\n\n    /// Width in bits.\n    pub fn bits(self) -> u8 {\n        match self {\n",
    );
    for s in rows::SPECIALS.iter().filter(|s| s.bits != 32) {
        let _ = writeln!(out, "            Special::{} => {},", s.name, s.bits);
    }
    out.push_str("            _ => 32,\n        }\n    }\n\n    /// Whether two reads may differ.\n    pub fn is_volatile(self) -> bool {\n        matches!(self, ");
    let volatile: Vec<String> =
        rows::SPECIALS.iter().filter(|s| s.volatile).map(|s| format!("Special::{}", s.name)).collect();
    let _ = write!(out, "{})\n    }}\n}}\n", volatile.join(" | "));
    out
}

/// The enum of the targets.
fn targets(out: &mut String) {
    let variant = |t: &TargetRow| t.name.replacen("sm_", "Sm", 1);
    out.push_str("/// A PTX target, as in `.target`.\n#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]\npub enum Target {\n");
    for t in TARGETS {
        let _ = writeln!(out, "    /// {}\n    {},", t.what, variant(t));
    }
    let all: Vec<String> = TARGETS.iter().map(|t| format!("Target::{}", variant(t))).collect();
    let _ = write!(
        out,
        "}}\n\nimpl Target {{\n    /// All targets.\n    pub const ALL: [Target; {}] = [{}];\n\n    /// Spelling in `.target`.\n    pub fn as_str(self) -> &'static str {{\n        match self {{\n",
        all.len(),
        all.join(", ")
    );
    for t in TARGETS {
        let _ = writeln!(out, "            Target::{} => {:?},", variant(t), t.name);
    }
    out.push_str("        }\n    }\n\n    /// Lowest `.version` that knows the target.\n    pub fn least_version(self) -> (u8, u8) {\n        match self {\n");
    for t in TARGETS {
        let _ = writeln!(out, "            Target::{} => {:?},", variant(t), t.version);
    }
    out.push_str("        }\n    }\n}\n\n");
}

/// Names of the operands in docs and generated parameters: results `d`, sources `a`, `b`, ….
fn operand_names(f: &Form) -> Vec<String> {
    let (mut defs, mut uses) = (0, 0);
    f.operands
        .iter()
        .map(|op| {
            if op.def {
                defs += 1;
                if defs == 1 { "d".to_string() } else { format!("d{defs}") }
            } else {
                uses += 1;
                ((b'a' + uses - 1) as char).to_string().replace('d', "dd")
            }
        })
        .collect()
}

fn syntax_doc(f: &Form) -> String {
    let names = operand_names(f);
    let mut out = f.literals[0].clone();
    for (i, op) in f.operands.iter().enumerate() {
        let name = &names[i];
        let _ = match &op.kind {
            Kind::Vec { len, .. } => write!(out, "{{{name} × {len}}}"),
            Kind::Addr(_) => write!(out, "[{name}]"),
            _ => write!(out, "{name}"),
        };
        out.push_str(&f.literals[i + 1]);
    }
    out
}

/// The file with one builder method per form: results are fresh registers, and `…_to` variants of forms with one
/// scalar result write a register of the caller's.
pub fn generate_builder() -> String {
    let mut out = String::from(
        "// Generated from tileas-meta/src/ptx/rows.rs, one method per form.\n\nimpl FuncBuilder<'_> {\n",
    );
    for f in &forms() {
        if f.operands.iter().any(|o| o.kind == Kind::Name("label".into()))
            || rows::ROWS[f.row].effects.contains('t')
        {
            continue; // terminators have hand-written methods that also maintain blocks
        }
        if rows::ROWS[f.row].effects.contains('u') {
            continue; // results are registers of the caller's, who chooses among many forms of one shape
        }
        let names = operand_names(f);
        let doc = format!("`{} {}`", f.mnemonic, syntax_doc(f).trim()).replace(" `", "`");
        let mut params = String::new();
        for (op, name) in f.operands.iter().zip(&names).filter(|(o, _)| !o.def) {
            let ty = match &op.kind {
                Kind::Vec { .. } => "impl VecOperand",
                _ => "impl Into<Operand>",
            };
            let _ = write!(params, ", {name}: {ty}");
        }
        let results: Vec<usize> = (0..f.operands.len()).filter(|&i| f.operands[i].def).collect();
        let result_ty = |i: usize| match &f.operands[i].kind {
            Kind::Vec { .. } => "Regs",
            _ => "Reg",
        };
        let returns = match results.len() {
            0 => String::new(),
            1 => format!(" -> {}", result_ty(results[0])),
            _ => {
                format!(" -> ({})", results.iter().map(|&i| result_ty(i)).collect::<Vec<_>>().join(", "))
            }
        };
        let reg_ty = |t: &str| match t {
            "pred" => "Pred",
            "b16" => "B16",
            "f32" => "F32",
            "b64" => "B64",
            _ => "B32",
        };
        let emit = |out: &mut String| {
            let has_vec = f.operands.iter().any(|o| matches!(o.kind, Kind::Vec { .. }));
            if has_vec {
                for (op, name) in f.operands.iter().zip(&names) {
                    if matches!(op.kind, Kind::Vec { .. }) {
                        let _ = writeln!(out, "        let {name}_list = self.list(&{name});");
                    }
                }
            }
            let list: Vec<String> = f
                .operands
                .iter()
                .zip(&names)
                .map(|(op, n)| match op.kind {
                    Kind::Vec { .. } => format!("{n}_list"),
                    _ => format!("{n}.into()"),
                })
                .collect();
            let _ = writeln!(out, "        self.emit(PtxOp::{}, &[{}]);", f.variant, list.join(", "));
        };
        let _ = writeln!(out, "    /// {doc}");
        let _ = writeln!(out, "    pub fn {}(&mut self{params}){returns} {{", f.name);
        for &i in &results {
            let _ = match &f.operands[i].kind {
                Kind::Reg { ty, .. } => {
                    writeln!(out, "        let {} = self.reg(RegTy::{});", names[i], reg_ty(ty))
                }
                Kind::Vec { ty, len, .. } => {
                    writeln!(out, "        let {} = self.regs(RegTy::{}, {len});", names[i], reg_ty(ty))
                }
                other => panic!("{}: {other:?} cannot be a result", f.name),
            };
        }
        emit(&mut out);
        match results.len() {
            0 => {}
            1 => {
                let _ = writeln!(out, "        {}", names[results[0]]);
            }
            _ => {
                let list: Vec<&str> = results.iter().map(|&i| names[i].as_str()).collect();
                let _ = writeln!(out, "        ({})", list.join(", "));
            }
        }
        out.push_str("    }\n");
        if let [only] = results[..]
            && matches!(f.operands[only].kind, Kind::Reg { .. })
        {
            let _ = writeln!(out, "    /// {doc}, into `d`");
            let _ = writeln!(out, "    pub fn {}_to(&mut self, d: Reg{params}) {{", f.name);
            emit(&mut out);
            out.push_str("    }\n");
        }
    }
    out.push_str("}\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(name: &str) -> Form {
        forms().into_iter().find(|f| f.name == name).unwrap_or_else(|| panic!("no form {name}"))
    }

    #[test]
    fn slots_expand_to_every_combination() {
        let f = form("setp_lt_and_s64");
        assert_eq!(f.mnemonic, "setp.lt.and.s64");
        assert_eq!(f.operands.len(), 4);
        assert_eq!(f.operands[1].kind, Kind::Reg { ty: "b64".into(), imm: true });
        assert_eq!(forms().iter().filter(|f| f.mnemonic.starts_with("mul.wide.")).count(), 4);
    }

    #[test]
    fn vector_lengths_follow_their_slot() {
        assert_eq!(
            form("tcgen05_ld_16x256b_x8").operands[0].kind,
            Kind::Vec { ty: "x32".into(), imm: false, len: 32 }
        );
        assert_eq!(form("tma_load_3d").literals, ["", ", [", ", ", "], ", ""]);
    }

    #[test]
    fn literal_text_stays_around_operands() {
        let f = form("elect_sync");
        assert_eq!(f.literals, ["_|", ", ", ""]);
        assert!(f.operands[0].def && !f.operands[1].def);
    }

    #[test]
    fn variants_are_unique_and_output_is_stable() {
        let all = forms();
        let variants: BTreeSet<&str> = all.iter().map(|f| f.variant.as_str()).collect();
        assert_eq!(variants.len(), all.len());
        assert_eq!(generate_forms(), generate_forms());
        assert_eq!(generate_builder().matches("pub fn add_u32(").count(), 1);
    }
}
