//! Checks of a module: types, structure of regions, and that operand types suit operations.
//!
//! In: a module as it was read or built. Out: nothing, or all that is wrong, the first thing of each type, function and op. The bytes do not
//! say operand types, so that nothing before has looked at them. A module that passes is one whose ops a lowering can translate
//! without asking again: numbers of operands and results, shapes, element types, ends of regions are what the rows say.
//!
//! Hints are not looked at, they cannot be wrong ([`FuncRef::hint_warnings`]). Parts: `ops` and `memory` have the operations.

mod memory;
mod ops;

use crate::entities::{Region, Type, Value};
use crate::error::{Code, Error, Errors, Section};
use crate::module::{FuncRef, Module, OpRef};
use crate::types::{Elem, Num, TypeData};
use cranelift_entity::EntityRef;
use rustc_hash::{FxHashMap, FxHashSet};
use tileas_meta::tileir::{Opcode, Padding, Typing};

/// Elements of the largest tile.
const MAX_ELEMENTS: u64 = 1 << 24;

/// Errors that are reported.
const MOST: usize = 64;

/// Types of globals by name.
type Globals<'a> = FxHashMap<&'a str, Type>;

/// What is wrong, without its place.
type Check<T = ()> = Result<T, (Code, String)>;

macro_rules! fail {
    ($code:ident, $($text:tt)*) => {
        return Err((crate::error::Code::$code, format!($($text)*)))
    };
}
use fail;

impl Module {
    /// Checks types, structure and operations.
    ///
    /// # Errors
    /// All that is wrong, at most 64: E1614, E1618, E1621 to E1627.
    pub fn verify(&self) -> Result<(), Errors> {
        let mut errors = Vec::new();
        for (ty, data) in self.types.iter() {
            if let Err((code, message)) = self.verify_type(data) {
                let message = format!("{}: {message}", self.types.brief(ty));
                errors.push(*Error::new(code, Section::Types, None, message));
            }
        }
        let mut names = FxHashSet::default();
        for global in self.globals.values() {
            if self.str(global.name).is_empty() || !names.insert(self.str(global.name)) {
                let message =
                    format!("global @{}: the name is empty or there twice", self.lossy(global.name));
                errors.push(*Error::new(Code::E1618, Section::Globals, None, message));
            }
            if self.elements(global.ty, global.value).is_none() {
                let (name, n) = (self.lossy(global.name), self.constants.get(global.value).len());
                let message = format!("global @{name}: {n} bytes for {}", self.types.brief(global.ty));
                errors.push(*Error::new(Code::E1627, Section::Globals, None, message));
            }
        }
        let globals = self.globals.values().map(|g| (self.str(g.name), g.ty)).collect();
        names.clear();
        for f in self.functions() {
            if !names.insert(f.name()) {
                errors.push(*f.error(Code::E1626, "there are two functions of that name"));
            }
            verify_function(f, &globals, &mut errors);
            if errors.len() >= MOST {
                break;
            }
        }
        errors.truncate(MOST);
        Errors::check(errors)
    }

    fn verify_type(&self, data: &TypeData) -> Check {
        let shape = |shape: &mut dyn Iterator<Item = i64>| {
            let mut elements = 1u64;
            for d in shape {
                if d < 1 || !(d as u64).is_power_of_two() {
                    fail!(E1621, "the extent {d} is no power of two");
                }
                elements = elements.saturating_mul(d as u64);
            }
            if elements > MAX_ELEMENTS {
                fail!(E1621, "{elements} elements, at most {MAX_ELEMENTS} are possible");
            }
            Ok(())
        };
        match data {
            TypeData::Elem(Elem::Ptr { pointee: Num::I4, .. }) => fail!(E1621, "nothing points to i4"),
            TypeData::Tile { elem, shape: extents } => {
                shape(&mut extents.iter().copied())?;
                // Two of these share a byte.
                if *elem == Elem::Num(Num::F4E2M1FN) && extents.iter().all(|&d| d == 1) {
                    fail!(E1621, "an odd number of elements");
                }
                if elem.pointee() == Some(Num::F4E2M1FN) && !extents.is_empty() {
                    fail!(E1621, "pointers to halves of bytes");
                }
            }
            _ => {}
        }
        if let TypeData::TensorView { shape, strides, .. } = data {
            if shape.len() != strides.len() {
                fail!(E1621, "{} extents and {} strides", shape.len(), strides.len());
            }
            if let Some(d) = shape.iter().chain(strides).flatten().find(|&&d| d <= 0) {
                fail!(E1621, "an extent or stride of {d}");
            }
        }
        if let Some((tile, tensor, padding)) = data.view() {
            shape(&mut tile.iter().map(|&d| i64::from(d)))?;
            let TypeData::TensorView { elem, shape, .. } = self.types.get(tensor) else {
                fail!(E1621, "a view of what is no tensor view");
            };
            if tile.len() != shape.len() {
                fail!(E1621, "a tile of rank {} of a tensor of rank {}", tile.len(), shape.len());
            }
            if padding.is_some_and(|p| p != Padding::Zero) && !elem.is_float() {
                fail!(E1621, "only floats have such elements outside");
            }
        }
        match data {
            TypeData::PartitionView { tile, map, .. } | TypeData::StridedView { tile, map, .. }
                if !is_permutation(map, tile.len()) =>
            {
                fail!(E1621, "the map of dimensions is no permutation")
            }
            TypeData::StridedView { tile, steps, .. }
                if steps.len() != tile.len() || steps.iter().any(|&s| s <= 0) =>
            {
                fail!(E1621, "traversal strides are positive, one for each dimension")
            }
            TypeData::GatherScatterView { tile, sparse, .. } if *sparse as usize >= tile.len() => {
                fail!(E1621, "the sparse dimension {sparse} of {}", tile.len())
            }
            _ => Ok(()),
        }
    }
}

/// Whether `list` has each of 0 to `n` − 1 once.
fn is_permutation(list: &[i32], n: usize) -> bool {
    let mut seen = vec![false; n];
    list.len() == n
        && list.iter().all(|&i| {
            usize::try_from(i).ok().and_then(|i| seen.get_mut(i)).is_some_and(|s| !std::mem::replace(s, true))
        })
}

/// What is around an op, innermost last.
enum Around {
    /// The function.
    Body,
    /// `if`, with its result types.
    If(Vec<Type>),
    /// `for`, with the types it carries.
    For(Vec<Type>),
    /// `loop`, with the types it carries and its result types.
    Loop(Vec<Type>, Vec<Type>),
    /// The region of `reduce` or `scan`, with what it yields.
    Combiner(Vec<Type>),
}

struct Verifier<'a, 'e> {
    f: FuncRef<'a>,
    globals: &'e Globals<'a>,
    errors: &'e mut Vec<Error>,
    /// Values that are visible.
    live: Vec<bool>,
    around: Vec<Around>,
}

fn verify_function<'a>(f: FuncRef<'a>, globals: &Globals<'a>, errors: &mut Vec<Error>) {
    if let Err((code, message)) = verify_head(f) {
        errors.push(*f.error(code, message));
    }
    let mut v =
        Verifier { f, globals, errors, live: vec![false; f.num_values()], around: vec![Around::Body] };
    v.region(Region::BODY, None);
}

fn verify_head(f: FuncRef<'_>) -> Check {
    let types = &f.module.types;
    let TypeData::Func { params, results } = types.get(f.func.signature) else {
        fail!(E1626, "its signature is no function type");
    };
    if !f.func.entry {
        fail!(E1626, "it is no kernel, and only preview features call functions");
    }
    if !results.is_empty() {
        fail!(E1626, "it has {} results", results.len());
    }
    if let Some(&param) = params.iter().find(|&&p| types.get(p).scalar().is_none()) {
        fail!(E1626, "a parameter of type {}, expected a scalar", types.brief(param));
    }
    if f.body().next_back().is_none_or(|op| op.opcode() != Opcode::Return) {
        fail!(E1626, "its last operation is not `return`");
    }
    Ok(())
}

fn is_terminator(opcode: Opcode) -> bool {
    matches!(opcode, Opcode::Break | Opcode::Continue | Opcode::Yield | Opcode::Return)
}

impl<'a> Verifier<'a, '_> {
    fn region(&mut self, region: Region, owner: Option<OpRef<'a>>) {
        let mut visible: Vec<Value> = self.f.region_params(region).collect();
        visible.iter().for_each(|v| self.live[v.index()] = true);
        let ops = self.f.region(region);
        let last = ops.len().wrapping_sub(1);
        if let Some(owner) = owner
            && ops.clone().next_back().is_none_or(|op| !is_terminator(op.opcode()))
        {
            self.report(owner, Code::E1625, "a region does not end in an operation that ends regions".into());
        }
        for (i, op) in ops.enumerate() {
            if i != last && is_terminator(op.opcode()) {
                self.report(op, Code::E1625, "operations follow that are never reached".into());
            }
            if let Err((code, message)) = self.op(op) {
                self.report(op, code, message);
            }
            for (number, region) in op.regions().enumerate() {
                // An `else` that does nothing may be left out.
                let (left_out, results) = (self.f.region(region).len() == 0, op.results().len());
                if left_out && number == 1 && results == 0 {
                    continue;
                }
                self.around.push(around(op));
                self.region(region, Some(op));
                self.around.pop();
            }
            for result in op.results() {
                self.live[result.index()] = true;
                visible.push(result);
            }
        }
        visible.iter().for_each(|v| self.live[v.index()] = false);
    }

    fn report(&mut self, op: OpRef<'_>, code: Code, message: String) {
        if self.errors.len() < MOST {
            self.errors.push(*op.error(code, message));
        }
    }

    fn op(&self, op: OpRef<'a>) -> Check {
        if let Some(v) = op.operands().iter().find(|v| !self.live.get(v.index()).is_some_and(|&l| l)) {
            fail!(E1614, "{v} is not defined here");
        }
        if op.row().since > self.f.module.version.minor() {
            fail!(
                E1622,
                "the operation is of 13.{}, the module of {}",
                op.row().since,
                self.f.module.version
            );
        }
        if matches!(self.around.last(), Some(Around::Combiner(_))) {
            let results = op.results().all(|r| self.f.ty(r).scalar().is_some());
            let regions = op.regions().len();
            if !results || regions > 0 || op.row().name.ends_with("_tko") || op.opcode() == Opcode::Return {
                fail!(E1625, "only arithmetic on scalars combines elements");
            }
        }
        if is_terminator(op.opcode()) { self.terminator(op) } else { ops::verify(op, self.globals) }
    }

    fn terminator(&self, op: OpRef<'_>) -> Check {
        let mut outer = self.around.iter().rev().skip_while(|a| matches!(a, Around::If(_)));
        let none = Vec::new();
        let want = match (op.row().typing, self.around.last(), outer.next()) {
            (Typing::Yield, Some(Around::If(types) | Around::Combiner(types)), _) => types,
            (Typing::Continue, _, Some(Around::For(types) | Around::Loop(types, _))) => types,
            (Typing::Break, _, Some(Around::Loop(_, types))) => types,
            (Typing::Return, _, Some(Around::Body | Around::Loop(..))) => &none,
            _ => fail!(E1625, "it has nothing to end here"),
        };
        if op.results().len() > 0 {
            fail!(E1623, "{} results, expected none", op.results().len());
        }
        let have: Vec<Type> = op.operands().iter().map(|&v| self.f.value_type(v)).collect();
        if have != *want {
            let text = |types: &[Type]| {
                let texts: Vec<_> =
                    types.iter().map(|&t| self.f.module.types.display(t).to_string()).collect();
                texts.join(", ")
            };
            fail!(
                E1625,
                "{} values of types ({}), expected {}: ({})",
                have.len(),
                text(&have),
                want.len(),
                text(want)
            );
        }
        Ok(())
    }
}

/// What the regions of an op are to ops inside.
fn around(op: OpRef<'_>) -> Around {
    let types = |values: &[Value]| values.iter().map(|&v| op.func.value_type(v)).collect::<Vec<_>>();
    let results = op.results().map(|v| op.func.value_type(v)).collect();
    match op.row().typing {
        Typing::For => Around::For(results),
        Typing::Loop => Around::Loop(types(op.operands()), results),
        Typing::Reduce | Typing::Scan => {
            // Parameters come in pairs, element and accumulator.
            let params = op.regions().next().map(|r| op.func.region_params(r).step_by(2).collect::<Vec<_>>());
            Around::Combiner(types(&params.unwrap_or_default()))
        }
        _ => Around::If(results),
    }
}
