//! Says whether a function is legal IR, and reports everything that is not.
//!
//! In: any [`Function`] the API can build. Out: a list of errors, empty for legal IR, in program order; or a
//! [`Verified`] reference, which only this module can make. Structure (segments, attributes, regions, terminators,
//! visibility of values) follows from the operation table; `typing` has the typing rules and shapes, `memory`
//! loads, stores, TMA, copies and layouts, `control` loops, branches, pipelines and agents. `strangers` comes first: entities
//! that are not of the function.
//!
//! Guarantee: total (no panic, bounded recursion), every violation is reported once, each with its op's location and
//! both sides of a disagreement. Cost: linear in ops + operands. Elsewhere: what a target supports (place, lower),
//! whether barriers match (the materialised-schedule verifier).

mod control;
mod memory;
mod strangers;
mod typing;

#[cfg(test)]
mod tests;

use super::attrs::AttrData;
use super::entities::{Block, Op, Sym, Type, Value};
use super::function::Function;
use super::lexer::is_name_byte;
use super::module::Module;
use super::opcodes::{Arity, AttrKind, Opcode, Results, TyClass, keys};
use super::types::{Dim, MAX_RANK, Scalar, Shape, Space, TypeData};
use crate::error::{Code, CodegenError, Errors, Loc};
use cranelift_entity::EntitySet;
use smallvec::SmallVec;
use std::fmt::Display;

/// Most groups of products that a wait may leave under way. Source: PTX ISA, wgmma.wait_group takes any number; no kernel needs more.
pub(crate) const MOST_PENDING: i64 = 7;

/// Sizes above which a function is refused rather than processed slowly.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Ops directly in one region: the option `limits.max-region-ops`.
    pub max_region_ops: usize,
    /// Regions inside regions.
    pub max_nesting: usize,
    /// Which memory semantics loads and stores may have: the option `published.verify-mem-semantics`.
    pub semantics: MemSemantics,
}

/// Rules about the memory semantics of loads and stores.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum MemSemantics {
    /// Loads are weak, relaxed or acquire; stores are weak, relaxed or release.
    #[default]
    Public,
    /// Loads and stores are weak or relaxed.
    Book,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { max_region_ops: 65_536, max_nesting: 256, semantics: MemSemantics::Public }
    }
}

/// Nesting that no limit exceeds: blocks are checked recursively.
const DEEPEST: usize = 512;

/// Elements a tile must stay below.
const MAX_TILE_ELEMENTS: u64 = 0x100_0000;

/// A function that the verifier found legal.
#[derive(Copy, Clone)]
pub struct Verified<'a>(&'a Function);

impl<'a> Verified<'a> {
    /// The function.
    pub fn function(self) -> &'a Function {
        self.0
    }
}

impl std::ops::Deref for Verified<'_> {
    type Target = Function;

    fn deref(&self) -> &Function {
        self.0
    }
}

/// All violations of a function, with the default limits.
pub fn verify_function(func: &Function) -> Vec<CodegenError> {
    verify_function_with(func, &Limits::default())
}

/// All violations of a function.
pub fn verify_function_with(func: &Function, limits: &Limits) -> Vec<CodegenError> {
    let strangers = strangers::find(func);
    if !strangers.is_empty() {
        // What an op means cannot be said as long as it is not known what it names.
        return strangers;
    }
    let mut c =
        Checker { func, limits, errors: Vec::new(), visible: EntitySet::with_capacity(func.num_values()) };
    c.block(func.entry(), None, 0);
    c.errors
}

/// All violations of all kernels, and names used twice.
pub fn verify_module(module: &Module) -> Vec<CodegenError> {
    let mut errors = verify_names(module);
    for f in &module.functions {
        errors.append(&mut verify_function(f));
    }
    errors
}

/// Kernels with the name of an earlier one, or with one that cannot be written, and variables that two operations say different things of.
pub fn verify_names(module: &Module) -> Vec<CodegenError> {
    let mut errors = Vec::new();
    let mut names = std::collections::BTreeMap::new();
    for f in &module.functions {
        let first = *names.entry(f.name.as_str()).or_insert(f);
        if f.name.is_empty() || !f.name.bytes().all(is_name_byte) {
            let text = format!("kernel name {:?} is not made of letters, digits, `_`, `$` and `.`", f.name);
            errors.push(CodegenError::new(Code::E0911, f.loc, text));
        }
        if !std::ptr::eq(first, f) {
            let text = format!("kernel @{} is defined twice", f.name);
            errors.push(CodegenError::new(Code::E0226, f.loc, text).note(first.loc, "first defined here"));
        }
    }
    let mut variables = std::collections::BTreeMap::new();
    for f in &module.functions {
        for op in f.ops().filter(|&op| f.opcode(op) == Opcode::Global) {
            let Some(name) = f.attr_str(op, keys::NAME) else { continue };
            let &mut (g, first) = variables.entry(name).or_insert((f, op));
            // The first itself, whose table may be long.
            if std::ptr::eq(f, g) && op == first {
                continue;
            }
            if let Some((what, is, was)) = differing((f, op), (g, first)) {
                let text = format!(
                    "{what} of the variable {name:?} is {is} here, but {was} where it was first named"
                );
                errors.push(
                    CodegenError::new(Code::E0205, f.op_loc(op), text)
                        .note(g.op_loc(first), "first named here"),
                );
            }
        }
    }
    errors
}

/// What two operations say of one variable that is not the same, and what either says.
fn differing(
    (f, op): (&Function, Op),
    (g, other): (&Function, Op),
) -> Option<(&'static str, String, String)> {
    let ty = |f: &Function, op: Op| f.result(op).map_or(String::new(), |v| f.value_data(v).to_string());
    let size = |f: &Function, op: Op| f.variable_len(op).unwrap_or(0).to_string();
    let align =
        |f: &Function, op: Op| f.attr_int(op, keys::ALIGN).map_or("the default".into(), |n| n.to_string());
    let values = |f: &Function, op: Op| match f.attr(op, keys::VALUES) {
        Some(AttrData::Array(list)) => list.iter().map(|&a| number(f.attr_data(a))).collect(),
        _ => Vec::new(),
    };
    fn number(data: &AttrData) -> String {
        match data {
            AttrData::Int(n, _) => n.to_string(),
            AttrData::Float(x, _) => format!("{:?}", x.get()),
            other => format!("{other:?}"),
        }
    }
    let parts = [
        ("the type", ty(f, op), ty(g, other)),
        ("`size`", size(f, op), size(g, other)),
        ("`align`", align(f, op), align(g, other)),
    ];
    let part = parts.into_iter().find(|(_, is, was)| is != was);
    if part.is_some() {
        return part;
    }
    let (is, was) = (values(f, op), values(g, other));
    let at = (0..is.len().max(was.len())).find(|&k| is.get(k) != was.get(k))?;
    let text = |list: &[String]| list.get(at).cloned().unwrap_or_else(|| "missing".to_owned());
    Some(("a value", text(&is), text(&was)))
}

/// The function as a verified one.
///
/// # Errors
/// All its violations, with the default limits.
pub fn verify(func: &Function) -> Result<Verified<'_>, Errors> {
    Errors::check(verify_function(func))?;
    Ok(Verified(func))
}

/// Whether rows of half bytes may end at whole ones.
fn may_be_whole(dims: &[Dim]) -> bool {
    match dims.last() {
        Some(Dim::Static(n)) => n.is_multiple_of(2),
        last => last.is_some(),
    }
}

struct Checker<'f> {
    func: &'f Function,
    limits: &'f Limits,
    errors: Vec<CodegenError>,
    /// Values that the op under inspection may use.
    visible: EntitySet<Value>,
}

impl<'f> Checker<'f> {
    #[cold]
    fn err(&mut self, op: Op, code: Code, message: impl Display) {
        let text = format!("{}: {message}", self.func.opcode(op).name());
        self.errors.push(CodegenError::new(code, self.func.op_loc(op), text));
    }

    fn data(&self, v: Value) -> &'f TypeData {
        self.func.value_data(v)
    }

    /// A value for messages: `%name` or its number.
    fn show(&self, v: Value) -> String {
        match self.func.value_name(v) {
            Some(name) => format!("%{name}"),
            None => v.to_string(),
        }
    }

    /// The only or first value of segment number `n`.
    fn seg(&self, op: Op, n: usize) -> Option<Value> {
        self.func.segment(op, n).first().copied()
    }

    // ---- structure

    fn block(&mut self, b: Block, parent: Option<Op>, depth: usize) {
        let func = self.func;
        let loc = parent.map_or(func.loc, |op| func.op_loc(op));
        let most = self.limits.max_nesting.min(DEEPEST);
        if depth > most {
            let text = format!("regions nest deeper than {most}");
            self.errors.push(CodegenError::new(Code::E0008, loc, text));
            return;
        }
        for &p in func.block_params(b) {
            self.visible.insert(p);
            self.value_type(p, None, loc);
            let passed = parent.is_none() && self.data(p).as_scalar().is_some_and(Scalar::is_packed);
            if passed {
                let (shown, have) = (self.show(p), self.data(p));
                let text = format!("{shown}: expected a parameter of whole bytes, but got {have}");
                self.errors.push(CodegenError::new(Code::E0202, loc, text));
            }
        }
        for (n, op) in func.block_ops(b).enumerate() {
            if n == self.limits.max_region_ops {
                let text = format!(
                    "region has more than {n} operations, the limit of the option `limits.max-region-ops`"
                );
                self.errors.push(CodegenError::new(Code::E1001, func.op_loc(op), text));
            }
            self.op(op, b, parent, depth);
        }
        if func.last_op(b).is_none_or(|op| !func.opcode(op).is_terminator()) {
            let (code, what) = match parent {
                None => (Code::E0225, "kernel does not end in `return`".to_string()),
                Some(p) => (Code::E0208, format!("region of {} has no terminator", func.opcode(p).name())),
            };
            self.errors.push(CodegenError::new(
                code,
                func.last_op(b).map_or(loc, |op| func.op_loc(op)),
                what,
            ));
        }
        for op in func.block_ops(b) {
            for &r in func.results(op) {
                self.visible.remove(r);
            }
        }
        for &p in func.block_params(b) {
            self.visible.remove(p);
        }
    }

    fn op(&mut self, op: Op, b: Block, parent: Option<Op>, depth: usize) {
        let func = self.func;
        let def = func.opcode(op).def();
        let before = self.errors.len();
        for &v in func.operands(op) {
            if !self.visible.contains(v) {
                let shown = self.show(v);
                self.err(op, Code::E0210, format_args!("operand {shown} is not defined here"));
            }
        }
        self.segments(op);
        self.attributes(op);
        let have = func.results(op).len();
        let (ok, want) = match def.results {
            Results::One => (have == 1, "1"),
            Results::Two => (have == 2, "2"),
            Results::Opt => (have <= 1, "0 or 1"),
            Results::Many => (true, ""),
        };
        if !ok {
            self.err(op, Code::E0203, format_args!("expected {want} results, but got {have}"));
        }
        let regions = func.regions(op).len();
        if def.regions != u8::MAX && regions != usize::from(def.regions) {
            self.err(op, Code::E0207, format_args!("expected {} regions, but got {regions}", def.regions));
        }
        if func.opcode(op).is_terminator() {
            self.terminator(op, b, parent);
        }
        for &v in func.results(op) {
            self.value_type(v, Some(op), func.op_loc(op));
        }
        // The checks below rely on sound structure and would repeat what was just said.
        if self.errors.len() == before {
            self.typing(op);
            self.memory(op);
            self.control(op);
        }
        for &r in func.regions(op) {
            self.block(func.region_block(r), Some(op), depth + 1);
        }
        for &r in func.results(op) {
            self.visible.insert(r);
        }
    }

    fn segments(&mut self, op: Op) {
        let func = self.func;
        let def = func.opcode(op).def();
        let segs = func.segments(op);
        let sum = segs.iter().map(|&n| n as usize).sum::<usize>();
        if segs.len() != def.operands.len() || sum != func.operands(op).len() {
            self.err(
                op,
                Code::E0201,
                format_args!(
                    "expected {} operand segments over {} operands, but got {} segments over {sum}",
                    def.operands.len(),
                    func.operands(op).len(),
                    segs.len(),
                ),
            );
            return;
        }
        for (n, s) in def.operands.iter().enumerate() {
            let have = segs[n];
            let (ok, want) = match s.arity {
                Arity::One => (have == 1, "1 operand"),
                Arity::Opt => (have <= 1, "at most 1 operand"),
                Arity::Many => (true, ""),
            };
            if !ok {
                self.err(op, Code::E0201, format_args!("expected {want} for `{}`, but got {have}", s.name));
                continue;
            }
            for &v in func.segment(op, n) {
                if !accepts(s.ty, self.data(v)) {
                    let want = class_name(s.ty);
                    let have = self.data(v);
                    self.err(
                        op,
                        Code::E0202,
                        format_args!("`{}` expects {want}, but {} is {have}", s.name, self.show(v)),
                    );
                }
            }
        }
    }

    fn attributes(&mut self, op: Op) {
        let func = self.func;
        let def = func.opcode(op).def();
        for a in def.attrs {
            match func.attr(op, a.key) {
                None if a.required => {
                    self.err(op, Code::E0204, format_args!("attribute `{}` is required", func.symbol(a.key)));
                }
                Some(data) if !self.attr_fits(data, a.kind) => {
                    let want = kind_name(a.kind);
                    self.err(
                        op,
                        Code::E0205,
                        format_args!("attribute `{}` expects {want}", func.symbol(a.key)),
                    );
                }
                _ => {}
            }
        }
        for (key, value) in func.inherent(op).iter() {
            let stage = keys::STAGE.iter().find(|k| k.0 == key);
            if let Some(&(_, unit)) = stage {
                let kind = if unit { AttrKind::Unit } else { AttrKind::Int };
                if !self.attr_fits(func.attr_data(value), kind) {
                    let (name, want) = (func.symbol(key), kind_name(kind));
                    self.err(op, Code::E0205, format_args!("attribute `{name}` expects {want}"));
                }
            }
            let known = stage.is_some()
                || def.attrs.iter().any(|a| a.key == key)
                || keys::SCHEDULE.iter().any(|k| k.0 == key);
            if !known {
                let (wrong, names) = (func.symbol(key), def.attrs.iter().map(|a| func.symbol(a.key)));
                let text = format!("{}: unknown attribute `{wrong}`", def.name);
                let error = CodegenError::new(Code::E0206, func.op_loc(op), text);
                let all = names.chain(keys::SCHEDULE.iter().map(|k| func.symbol(k.0)));
                self.errors.push(error.did_you_mean(wrong, all));
            }
        }
    }

    fn attr_fits(&self, data: &AttrData, kind: AttrKind) -> bool {
        let named = |s: Sym, names: &[&str]| names.contains(&self.func.symbol(s));
        let int = |a: &super::Attr| matches!(self.func.attr_data(*a), AttrData::Int(..));
        match kind {
            AttrKind::Unit => matches!(data, AttrData::Unit),
            AttrKind::Int => matches!(data, AttrData::Int(..)),
            AttrKind::Number => matches!(data, AttrData::Int(..) | AttrData::Float(..)),
            AttrKind::Enum(names) => matches!(data, AttrData::Name(s) if named(*s, names)),
            AttrKind::Ints => matches!(data, AttrData::Array(l) if l.iter().all(int)),
            AttrKind::Str => matches!(data, AttrData::Str(_)),
            AttrKind::Call(names) => match data {
                AttrData::Name(s) => named(*s, names),
                AttrData::Call(s, args) => named(*s, names) && args.iter().all(int),
                _ => false,
            },
            AttrKind::Combiner => matches!(data, AttrData::Combiner(_)),
            AttrKind::Any => true,
        }
    }

    fn terminator(&mut self, op: Op, b: Block, parent: Option<Op>) {
        let func = self.func;
        if func.last_op(b) != Some(op) {
            self.err(op, Code::E0208, "terminator in the middle of a block");
        }
        let have = func.opcode(op);
        // What a branch leaves is the innermost loop, or the kernel, loops included.
        let leaves = matches!(have, Opcode::Break | Opcode::Continue | Opcode::Return);
        let passes = |opcode: Opcode| match opcode {
            Opcode::If => leaves,
            Opcode::For | Opcode::Loop => have == Opcode::Return,
            _ => false,
        };
        let mut around = parent;
        while let Some(p) = around.filter(|&p| passes(func.opcode(p))) {
            around = func.op_parent(p);
        }
        let left = around.map(|p| func.opcode(p));
        let parent_code = parent.map(|p| func.opcode(p));
        let (fits, want) = match left {
            None => (have == Opcode::Return, "`return`"),
            Some(Opcode::AsyncPipelineAgentSwitch) => {
                (have == Opcode::AsyncPipelineYield && left == parent_code, "'async.pipeline.yield'")
            }
            Some(Opcode::Loop) => (matches!(have, Opcode::Break | Opcode::Continue), "`continue` or `break`"),
            Some(Opcode::For) => (matches!(have, Opcode::Yield | Opcode::Continue), "`yield`"),
            Some(_) => (have == Opcode::Yield, "`yield`"),
        };
        if fits {
            return;
        }
        let text = match (left, parent_code) {
            (Some(Opcode::AsyncPipelineAgentSwitch), _) => format!("pipeline regions must end with {want}"),
            (_, None) => format!("a kernel must end in {want}"),
            (Some(outer), Some(Opcode::If)) if leaves => {
                format!("`{}` in a branch of {}, which ends in {want}", have.name(), outer.name())
            }
            (None, Some(_)) => format!("`{}` outside of a loop", have.name()),
            (_, Some(place)) => format!("{} must end in {want}", place.name()),
        };
        self.err(op, Code::E0209, text);
    }

    /// Checks on a type wherever a value of it comes into being.
    fn value_type(&mut self, v: Value, def: Option<Op>, loc: Loc) {
        let func = self.func;
        let data = self.data(v);
        let rank = data.rank();
        let mut report = |code: Code, text: String| {
            let who = match def {
                Some(op) => func.opcode(op).name().to_string(),
                None => func.value_name(v).map_or_else(|| v.to_string(), |n| format!("%{n}")),
            };
            self.errors.push(CodegenError::new(code, loc, format!("{who}: {text}")));
        };
        match data {
            _ if rank > MAX_RANK => {
                report(Code::E0211, format!("expected at most {MAX_RANK} dimensions, but got {rank}"));
            }
            TypeData::Tile { dims, elem, space, layout } => {
                // The leading extent of a ring buffer counts slots, any number of them.
                let ring = def.is_some_and(|op| func.opcode(op) == Opcode::AllocTensor);
                let shape: &[u32] = if ring { dims.get(1..).unwrap_or(&[]) } else { dims };
                if dims.contains(&0) {
                    report(Code::E0211, format!("all dimensions must be positive constants, got {data}"));
                } else if !shape.iter().all(|d| d.is_power_of_two()) {
                    report(Code::E0211, format!("all dimensions must be powers of two, got {data}"));
                } else if product(shape) >= MAX_TILE_ELEMENTS {
                    let most = MAX_TILE_ELEMENTS - 1;
                    report(
                        Code::E0211,
                        format!("tile would exceed the maximum of {most} elements, got {}", product(shape)),
                    );
                }
                // A part of a tile lies as the tile does.
                let part = def.is_some_and(|op| func.opcode(op) == Opcode::ExtractSlice);
                if let Some(text) = memory::placement_fault(dims, *elem, *space, *layout, part) {
                    report(Code::E0222, format!("{text}, got {data}"));
                }
            }
            TypeData::View { dims, elem, .. } if elem.is_packed() && !may_be_whole(dims) => {
                report(Code::E0211, format!("expected rows of whole bytes, got {data}"));
            }
            TypeData::View { dims, .. } if dims.contains(&Dim::Static(0)) => {
                report(Code::E0211, format!("all dimensions must be positive constants, got {data}"));
            }
            TypeData::TmaDesc { dims, .. } if dims.contains(&0) => {
                report(Code::E0211, format!("all dimensions must be positive constants, got {data}"));
            }
            TypeData::PipeProducer(0) | TypeData::PipeConsumer(0) | TypeData::PipeIter(0) => {
                report(Code::E0223, format!("a pipeline needs at least 1 slot, got {data}"));
            }
            _ => {}
        }
    }

    // ---- shared by the families

    /// Reports unless two types are equal.
    fn same_type(&mut self, op: Op, code: Code, what: impl Display, have: Type, want: Type) {
        if have != want {
            let (have, want) = (self.func.type_data(have), self.func.type_data(want));
            self.err(op, code, format_args!("expected {what} of type {want}, but got {have}"));
        }
    }

    /// Reports unless two numbers are equal.
    fn same_count(&mut self, op: Op, code: Code, what: impl Display, have: usize, want: usize) {
        if have != want {
            self.err(op, code, format_args!("expected {want} {what}, but got {have}"));
        }
    }

    fn result_type(&self, op: Op) -> Option<Type> {
        self.func.result(op).map(|v| self.func.value_type(v))
    }

    fn result_data(&self, op: Op) -> Option<&'f TypeData> {
        self.func.result(op).map(|v| self.data(v))
    }

    /// Extents of what `tile[stage]` denotes: without a stage the tile, with one the slot behind the leading
    /// dimension. Reports stages that do not fit.
    fn slot_dims(&mut self, op: Op, tile: Value, stage: &[Value]) -> Option<Shape> {
        let dims = self.data(tile).dims()?;
        match stage {
            [] => Some(dims.into()),
            [stage] => {
                let Some((&slots, rest)) = dims.split_first() else {
                    self.err(op, Code::E0216, "a stage index needs a buffer with a leading slot dimension");
                    return None;
                };
                if let TypeData::PipeIter(n) = *self.data(*stage)
                    && n != slots
                {
                    self.err(
                        op,
                        Code::E0223,
                        format_args!("iterator counts {n} slots, but buffer {} has {slots}", self.show(tile)),
                    );
                }
                Some(rest.into())
            }
            more => {
                self.err(
                    op,
                    Code::E0216,
                    format_args!("expected at most 1 stage index, but got {}", more.len()),
                );
                None
            }
        }
    }
}

fn product(dims: &[u32]) -> u64 {
    dims.iter().fold(1u64, |acc, &d| acc.saturating_mul(u64::from(d)))
}

/// `128x64` for messages.
fn shape(dims: &[u32]) -> String {
    let parts: SmallVec<[String; 4]> = dims.iter().map(u32::to_string).collect();
    if parts.is_empty() { "no dimensions".into() } else { parts.join("x") }
}

fn is_pointer(data: &TypeData) -> bool {
    matches!(data, TypeData::Ptr { space: Space::Gmem, .. })
}

fn accepts(class: TyClass, data: &TypeData) -> bool {
    let num = matches!(data, TypeData::Scalar(_) | TypeData::Tile { .. });
    let elem = data.elem();
    let int_scalar = matches!(data, TypeData::Scalar(s) if s.is_int() && *s != Scalar::I1);
    match class {
        TyClass::Any => true,
        TyClass::Int => int_scalar,
        TyClass::Bool => *data == TypeData::Scalar(Scalar::I1),
        TyClass::Scalar => matches!(data, TypeData::Scalar(_)),
        TyClass::Num => num,
        TyClass::IntNum => num && elem.is_some_and(Scalar::is_int),
        TyClass::FloatNum => num && elem.is_some_and(Scalar::is_float),
        TyClass::Tile => data.is_tile(),
        TyClass::View => matches!(data, TypeData::View { .. }),
        TyClass::Ptr => is_pointer(data),
        TyClass::Memory => matches!(data, TypeData::View { .. }) || is_pointer(data),
        TyClass::IntOrPtr => int_scalar || is_pointer(data),
        TyClass::Desc => matches!(data, TypeData::TmaDesc { .. }),
        TyClass::Producer => matches!(data, TypeData::PipeProducer(_)),
        TyClass::Consumer => matches!(data, TypeData::PipeConsumer(_)),
        TyClass::Iter => matches!(data, TypeData::PipeIter(_)),
        TyClass::Async => *data == TypeData::AsyncToken,
        TyClass::Mem => *data == TypeData::MemToken,
        TyClass::Stage => int_scalar || matches!(data, TypeData::PipeIter(_)),
    }
}

fn class_name(class: TyClass) -> &'static str {
    match class {
        TyClass::Any => "any type",
        TyClass::Int => "an integer scalar",
        TyClass::Bool => "an i1 scalar",
        TyClass::Scalar => "a scalar",
        TyClass::Num => "a scalar or tile",
        TyClass::IntNum => "an integer scalar or tile",
        TyClass::FloatNum => "a floating-point scalar or tile",
        TyClass::Tile => "a tile",
        TyClass::View => "a view",
        TyClass::Ptr => "a pointer to global memory",
        TyClass::Memory => "a view or a pointer to global memory",
        TyClass::IntOrPtr => "an integer scalar or a pointer",
        TyClass::Desc => "a TMA descriptor",
        TyClass::Producer => "the producer end of a pipeline",
        TyClass::Consumer => "the consumer end of a pipeline",
        TyClass::Iter => "a pipeline iterator",
        TyClass::Async => "an async token",
        TyClass::Mem => "a memory token",
        TyClass::Stage => "an integer scalar or a pipeline iterator",
    }
}

fn kind_name(kind: AttrKind) -> String {
    match kind {
        AttrKind::Unit => "no value".into(),
        AttrKind::Int => "an integer".into(),
        AttrKind::Number => "a number".into(),
        AttrKind::Enum(names) => format!("one of {}", names.join(", ")),
        AttrKind::Ints => "a list of integers".into(),
        AttrKind::Str => "a string".into(),
        AttrKind::Call(names) => format!("one of {}, with integer arguments", names.join(", ")),
        AttrKind::Combiner => "a function of scalars, `(%a: f32, %b: f32) { … yield %c }`".into(),
        AttrKind::Any => "any value".into(),
    }
}
