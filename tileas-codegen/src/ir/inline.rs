//! Puts the body of one function into another.
//!
//! In: a function that ends in `yield`, as [`super::FunctionBuilder::end_func`] or `func` in text makes, and values for its parameters.
//! Out: its ops where they are wanted, with types, attributes and names of symbols translated; and what it yields. Tiles have no calling
//! convention: a function that is called is written out at each call, and the scheduler sees one kernel.
//!
//! Guarantee: values of the result are unnamed, locations are those of the function. Cost: linear in the body.

use super::attrs::{AttrData, AttrDict};
use super::entities::{Attr, Block, Op, Type, Value};
use super::function::Function;
use super::opcodes::Opcode;
use cranelift_entity::SecondaryMap;
use cranelift_entity::packed_option::PackedOption;
use smallvec::SmallVec;

/// What the last op of a function gives its callers, if that is a `yield`.
pub(crate) fn yielded(f: &Function) -> Option<&[Value]> {
    let last = f.last_op(f.entry())?;
    (f.opcode(last) == Opcode::Yield).then(|| f.operands(last))
}

/// Writes the body of `from` into `into`, where `link` puts its ops; what it yields. There are as many `args` as parameters, of the
/// same types.
pub(crate) fn inline(
    into: &mut Function,
    from: &Function,
    args: &[Value],
    link: impl Fn(&mut Function, Op),
) -> SmallVec<[Value; 2]> {
    let mut copy = Copier { from, into, values: SecondaryMap::new(), types: SecondaryMap::new() };
    for (&param, &arg) in from.params().iter().zip(args) {
        copy.values[param] = arg.into();
    }
    let ops: SmallVec<[Op; 32]> = from.block_ops(from.entry()).collect();
    for op in ops {
        if from.opcode(op) == Opcode::Yield {
            break;
        }
        copy.op(op, &link);
    }
    yielded(from).unwrap_or_default().iter().map(|&v| copy.value(v)).collect()
}

struct Copier<'a> {
    from: &'a Function,
    into: &'a mut Function,
    values: SecondaryMap<Value, PackedOption<Value>>,
    types: SecondaryMap<Type, PackedOption<Type>>,
}

impl Copier<'_> {
    /// What stands for a value. One that the function uses before it makes it is the verifier's to report: it stays as it is.
    fn value(&self, v: Value) -> Value {
        self.values[v].expand().unwrap_or(v)
    }

    fn ty(&mut self, t: Type) -> Type {
        if let Some(known) = self.types[t].expand() {
            return known;
        }
        let data = self.from.type_data(t).clone();
        let new = self.into.intern_type(data);
        self.types[t] = new.into();
        new
    }

    fn attr(&mut self, a: Attr) -> Attr {
        let from = self.from;
        let data = match from.attr_data(a) {
            AttrData::Name(s) => AttrData::Name(self.into.intern_symbol(from.symbol(*s))),
            AttrData::Array(list) => AttrData::Array(list.iter().map(|&x| self.attr(x)).collect()),
            AttrData::Call(s, list) => {
                let list = list.iter().map(|&x| self.attr(x)).collect();
                AttrData::Call(self.into.intern_symbol(from.symbol(*s)), list)
            }
            AttrData::Type(t) => AttrData::Type(self.ty(*t)),
            other => other.clone(),
        };
        self.into.intern_attr(data)
    }

    fn dict(&mut self, of: &AttrDict) -> AttrDict {
        let mut new = AttrDict::default();
        for (key, value) in of.iter() {
            let key = self.into.intern_symbol(self.from.symbol(key));
            let value = self.attr(value);
            new.set(key, value);
        }
        new
    }

    fn op(&mut self, op: Op, link: &dyn Fn(&mut Function, Op)) {
        let from = self.from;
        let operands: SmallVec<[Value; 8]> = from.operands(op).iter().map(|&v| self.value(v)).collect();
        let types: SmallVec<[Type; 2]> =
            from.results(op).iter().map(|&v| self.ty(from.value_type(v))).collect();
        let new = self.into.make_op(from.opcode(op), &operands, from.segments(op), &types, from.op_loc(op));
        let (inherent, discardable) = (self.dict(from.inherent(op)), self.dict(from.discardable(op)));
        *self.into.inherent_mut(new) = inherent;
        *self.into.discardable_mut(new) = discardable;
        link(self.into, new);
        for n in 0..types.len() {
            self.values[from.results(op)[n]] = self.into.results(new)[n].into();
        }
        for r in 0..from.regions(op).len() {
            let Some(block) = from.op_block_at(op, r) else { continue };
            let to = self.into.add_region(new);
            self.block(block, to);
        }
    }

    fn block(&mut self, block: Block, to: Block) {
        let from = self.from;
        for &v in from.block_params(block) {
            let ty = self.ty(from.value_type(v));
            self.values[v] = self.into.add_block_param(to, ty).into();
        }
        for op in from.block_ops(block) {
            self.op(op, &|into, new| into.append_op(to, new));
        }
    }
}
