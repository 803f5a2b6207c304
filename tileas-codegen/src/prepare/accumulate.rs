//! A product that is added to what a loop carries adds to it itself.
//!
//! In: a kernel in value form. Out: where a loop carries `s * f + a b` or `s + a b`, the product of `a` and `b` begins with what was a sum beside it. So tensor
//! cores add, and what is carried stays where they have it: in registers one tile instead of two, and none in tensor memory.
//! Lost without it: attention as it is often written, 64 queries of 128 columns, needs 559 registers on a target with tensor memory.
//!
//! Guarantee: the terms are the same; they are added in another order, as those of the product are anyway, and what was a factor in `fma` is rounded before it is
//! added. Integers and f32; sums in f16 would be rounded elsewhere, those with a rounding of their own or without subnormals stay. Cost: ops, once for each such sum.

use super::{Draft, Renames};
use crate::constraints::{PLACEMENT_WORDS, RECOMPUTE_WORDS, SLICE_WORDS, lookup};
use crate::ir::opcodes::keys;
use crate::ir::{AttrData, Function, Op, Opcode, Scalar, Value};

/// Rewrites all such sums; whether there were any.
pub(super) fn accumulate(draft: &mut Draft<'_>) -> bool {
    if !draft.has(Opcode::For) || !draft.has(Opcode::Dot) && !draft.has(Opcode::AsyncDot) {
        return false;
    }
    let func = draft.func();
    let found: Vec<Sum> = func.ops().filter_map(|op| Sum::of(func, op)).collect();
    if found.is_empty() {
        return false;
    }
    let func = draft.edit();
    let mut renamed = Renames::default();
    for sum in found {
        sum.write(func, &mut renamed);
    }
    renamed.apply(func);
    true
}

/// A sum that a loop carries.
struct Sum {
    op: Op,
    product: Op,
    /// What the product is added to: a value, or one times the other.
    to: (Value, Option<Value>),
}

impl Sum {
    fn of(func: &Function, op: Op) -> Option<Sum> {
        // What is said of the sum alone would be lost with it.
        let mut words = PLACEMENT_WORDS.iter().chain(&SLICE_WORDS).chain(&RECOMPUTE_WORDS);
        let rounds = func.has_attr(op, keys::ROUNDING) || func.has_attr(op, keys::FTZ);
        if rounds || words.any(|&key| lookup(func, op, key).is_some()) {
            return None;
        }
        let list = func.operands(op);
        let (to, product) = match (func.opcode(op), list) {
            (Opcode::Addf | Opcode::Addi, &[x, y]) if lone_product(func, op, y).is_some() => ((x, None), y),
            (Opcode::Addf | Opcode::Addi, &[x, y]) => ((y, None), x),
            (Opcode::Fma, &[x, y, z]) => ((x, Some(y)), z),
            _ => return None,
        };
        let product = lone_product(func, op, product)?;
        // Carried: it is what becomes of what it is made of.
        let around = func.op_parent(op).filter(|&l| func.opcode(l) == Opcode::For)?;
        let result = func.result(op)?;
        let n = func.region_yields(around, 0).iter().position(|&v| v == result)?;
        let &carried = func.block_params(func.op_block_at(around, 0)?).get(n + 1)?;
        let is = |v: Value| {
            let scaled = func.defining_op(v).filter(|&d| func.opcode(d) == Opcode::Mulf);
            v == carried || scaled.is_some_and(|d| func.operands(d).contains(&carried))
        };
        (is(to.0) || to.1.is_some_and(is)).then_some(Sum { op, product, to })
    }

    fn write(&self, func: &mut Function, renamed: &mut Renames) {
        let (op, product) = (self.op, self.product);
        let Some(result) = func.result(op) else { return };
        let mut acc = self.to.0;
        if let Some(factor) = self.to.1 {
            let scaled = func.make_op(
                Opcode::Mulf,
                &[acc, factor],
                &[1, 1],
                &[func.value_type(result)],
                func.op_loc(op),
            );
            *func.inherent_mut(scaled) = func.inherent(op).clone();
            func.insert_before(op, scaled);
            acc = func.results(scaled)[0];
        }
        let own = func.named_operand(product, "acc");
        let at = func.operands(product).iter().rposition(|&v| Some(v) == own);
        if let (Some(at), Some(sum)) = (at, func.result(product)) {
            func.set_operand(product, at, acc);
            func.remove_op(product);
            func.insert_before(op, product);
            renamed.succeed(func, result, sum);
            func.remove_op(op);
        }
    }
}

/// The product onto nothing that a value is, if nothing but `user`, beside it, reads it.
fn lone_product(func: &Function, user: Op, v: Value) -> Option<Op> {
    let op = func.defining_op(v)?;
    let product = matches!(func.opcode(op), Opcode::AsyncDot | Opcode::Dot)
        && func.named_segment(op, "acc_stage").is_empty()
        && func.op_block(op) == func.op_block(user)
        && matches!(func.value_data(v).elem(), Some(Scalar::F32 | Scalar::I32));
    let acc = func.named_operand(op, "acc").filter(|_| product).and_then(|acc| func.defining_op(acc))?;
    let zero = func.opcode(acc) == Opcode::Constant
        && match func.attr(acc, keys::VALUE) {
            Some(AttrData::Int(0, _)) => true,
            Some(AttrData::Float(x, _)) => x.get() == 0.0,
            _ => false,
        };
    let once = func.operands(user).iter().filter(|&&x| x == v).count() == 1;
    let alone = || func.ops().filter(|&o| func.operands(o).contains(&v)).all(|o| o == user);
    (zero && once && alone()).then_some(op)
}
