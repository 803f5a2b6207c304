//! Makes functions op by op, as a front end or a test does.
//!
//! Needs types, strings and constants of the module. What a row of the table decides is checked: names of attributes and
//! segments, which of them must be there. Types are left to [`Module::verify`].

use crate::attr::{Attr, is_structured};
use crate::entities::{Constant, Op, Region, Str, Type, Value};
use crate::error::{Code, Error, Res, Section};
use crate::module::{Function, Module};
use crate::types::TypeData;
use cranelift_entity::EntityRef;
use tileas_meta::tileir::{
    Arity, AttrKind, Key, Opcode, Ordering, Overflow, Predicate, Reduction, RmwMode, Rounding, Scope, Seg,
    Semantics, Signedness,
};

/// The value of an attribute.
#[derive(Clone, PartialEq, Debug)]
pub enum Set {
    /// None: the attribute is but there.
    Unit,
    /// A number: of an enumeration, a string, a constant, or itself.
    Word(u64),
    /// A structured one.
    Attr(Attr),
}

macro_rules! words {
    ($($ty:ty, $x:ident => $word:expr;)*) => {$(
        impl From<$ty> for Set {
            fn from($x: $ty) -> Set {
                Set::Word($word)
            }
        }
    )*};
}

words! {
    Rounding, x => x as u64;
    Overflow, x => x as u64;
    Signedness, x => x as u64;
    Predicate, x => x as u64;
    Ordering, x => x as u64;
    Semantics, x => x as u64;
    Scope, x => x as u64;
    RmwMode, x => x as u64;
    Reduction, x => x as u64;
    bool, x => u64::from(x);
    u64, x => x;
    Str, x => x.index() as u64;
    Constant, x => x.index() as u64;
}

impl From<Attr> for Set {
    fn from(attr: Attr) -> Set {
        Set::Attr(attr)
    }
}

/// A region that is being filled.
struct Open {
    region: Region,
    ops: Vec<Op>,
}

/// A function that is being made. Dropped without [`Builder::finish`], it is gone.
pub struct Builder<'m> {
    /// The module.
    pub module: &'m mut Module,
    /// The function; its head may be changed.
    pub func: Function,
    open: Vec<Open>,
    /// Ops whose regions or results are still to come, with the number of the next region.
    pending: Vec<(Op, usize)>,
}

/// Depth of regions that can be built: all that walks them recurses.
const DEEPEST: usize = 128;

impl<'m> Builder<'m> {
    /// Begins a kernel.
    pub fn new(module: &'m mut Module, name: &str, params: &[Type]) -> Builder<'m> {
        let signature =
            module.types.intern(TypeData::Func { params: params.into(), results: Box::default() });
        let name = module.strings.intern(name.as_bytes());
        let mut func = Function::new(name, signature);
        for &ty in params {
            func.push_param(Region::BODY, ty);
        }
        Builder {
            module,
            func,
            open: vec![Open { region: Region::BODY, ops: Vec::new() }],
            pending: Vec::new(),
        }
    }

    /// A parameter.
    pub fn param(&self, i: u32) -> Value {
        Value::from_u32(i)
    }

    #[cold]
    fn error(&self, opcode: Opcode, message: String) -> Box<Error> {
        let mut error = Error::new(Code::E1615, Section::Functions, None, message);
        error.function = Some(self.module.lossy(self.func.name));
        error.op = Some((self.func.num_ops() as u32, Some(opcode.name())));
        error
    }

    /// Adds an op without regions. Returns its first result, or the value with the number that this would have.
    ///
    /// # Errors
    /// As [`Builder::begin`].
    pub fn op(
        &mut self,
        opcode: Opcode,
        attrs: &[(Key, Set)],
        operands: &[(Seg, &[Value])],
        results: &[Type],
    ) -> Res<Value> {
        self.begin(opcode, attrs, operands)?;
        Ok(self.end(results).first().copied().unwrap_or(Value::from_u32(u32::MAX - 1)))
    }

    /// Adds an op whose regions and results follow: [`Builder::region`] and [`Builder::close`] for each region, then
    /// [`Builder::end`].
    ///
    /// # Errors
    /// E1615 if attributes or segments are not those of the op.
    pub fn begin(&mut self, opcode: Opcode, attrs: &[(Key, Set)], operands: &[(Seg, &[Value])]) -> Res<Op> {
        let row = opcode.row();
        let set = |key: Key| attrs.iter().find(|a| a.0 == key).map(|a| &a.1);
        let list = |seg: Seg| operands.iter().find(|o| o.0 == seg).map(|o| o.1);
        let known = |key: Key| row.units.iter().any(|u| u.1 == key) || row.attrs.iter().any(|a| a.key == key);
        if let Some((key, _)) = attrs.iter().find(|a| !known(a.0)) {
            return Err(self.error(opcode, format!("there is no attribute {key}")));
        }
        if let Some((seg, _)) = operands.iter().find(|o| row.operands.iter().all(|r| r.0 != o.0)) {
            return Err(self.error(opcode, format!("there is no segment {seg}")));
        }
        let units = row.units.iter().filter(|u| set(u.1).is_some()).map(|u| u.0);
        let optional = row.attrs.iter().filter(|a| set(a.key).is_some()).filter_map(|a| a.flag);
        let segments = row.operands.iter().filter_map(|o| match o.1 {
            Arity::Opt(bit) if list(o.0).is_some() => Some(bit),
            _ => None,
        });
        let flags = units.chain(optional).chain(segments).fold(0u8, |flags, bit| flags | 1 << bit);
        let mut words = Vec::new();
        for attr in row.attrs.iter().filter(|a| a.flag.is_none_or(|bit| flags >> bit & 1 != 0)) {
            let lists = attr.kind == AttrKind::Bools;
            let n = list(Seg::Index).map_or(0, <[Value]>::len);
            let empty = Set::Attr(Attr::Bools(vec![false; n].into()));
            let default = Set::Word(u64::from(attr.default));
            let value = match set(attr.key) {
                Some(value) => value.clone(),
                None if lists => empty,
                None if attr.since > 1 => default,
                None => return Err(self.error(opcode, format!("the attribute {} is missing", attr.key))),
            };
            if is_structured(attr.kind) != matches!(value, Set::Attr(_)) {
                return Err(self.error(opcode, format!("the attribute {} is of another kind", attr.key)));
            }
            words.push(value);
        }
        for &(seg, arity) in row.operands {
            let n = list(seg).map_or(0, <[Value]>::len);
            let fits = match arity {
                Arity::One => n == 1,
                Arity::Opt(_) => list(seg).is_none() || n == 1,
                Arity::Many => true,
            };
            if !fits {
                return Err(self.error(opcode, format!("{n} values for {seg}, expected 1")));
            }
        }
        if self.open.len() > DEEPEST {
            return Err(self.error(opcode, format!("regions nest deeper than {DEEPEST}")));
        }
        let region = self.open.last().map_or(Region::BODY, |o| o.region);
        let op = self.func.push_op(region, opcode, flags);
        for value in words {
            match value {
                Set::Unit => self.func.push_word(0),
                Set::Word(word) => self.func.push_word(word),
                Set::Attr(attr) => _ = self.func.push_attr(attr),
            }
        }
        for &(seg, arity) in row.operands {
            let values = list(seg).unwrap_or_default();
            if arity == Arity::Many && !row.counted {
                self.func.push_word(values.len() as u64);
            }
            values.iter().for_each(|&v| self.func.push_operand(v));
        }
        if let Some(open) = self.open.last_mut() {
            open.ops.push(op);
        }
        self.pending.push((op, 0));
        Ok(op)
    }

    /// Opens the next region of the op that was begun last. Returns its parameters; of a region too many, none.
    pub fn region(&mut self, params: &[Type]) -> Vec<Value> {
        let Some((op, next)) = self.pending.last_mut() else { return Vec::new() };
        if *next >= self.func.num_regions(*op) {
            return Vec::new();
        }
        let region = self.func.region_of(*op, *next);
        *next += 1;
        self.open.push(Open { region, ops: Vec::new() });
        params.iter().map(|&ty| self.func.push_param(region, ty)).collect()
    }

    /// Closes the region that was opened last.
    pub fn close(&mut self) {
        if self.open.len() > 1
            && let Some(open) = self.open.pop()
        {
            self.func.close(open.region, open.ops);
        }
    }

    /// Ends the op that was begun last. Returns its results.
    pub fn end(&mut self, results: &[Type]) -> Vec<Value> {
        let Some((op, _)) = self.pending.pop() else { return Vec::new() };
        results.iter().map(|&ty| self.func.push_result(op, ty)).collect()
    }

    /// Puts the function into the module.
    pub fn finish(mut self) {
        while let Some(open) = self.open.pop() {
            self.func.close(open.region, open.ops);
        }
        self.module.funcs.push(self.func.finish());
    }
}
