//! Sums of products in f16 are kept in f32.
//!
//! In: a kernel in value form. Out: the kernel in which a product whose accumulator is f16 has one of f32, rounded when it is done; and a loop that carries
//! such a sum, and does nothing with it but add products to it, carries it in f32 and rounds it at its end. So sums are rounded less often than the
//! source says, never more, and tensor cores keep them where they are. With f16 accumulators of their own these processors are no faster.
//! Cost: linear in ops and operands.

use super::{Draft, Renames};
use crate::ir::{Function, Op, Opcode, Scalar, Type, TypeData, Value};
use cranelift_entity::EntitySet;

/// Keeps sums in f32; whether there were others.
pub(super) fn widen(draft: &mut Draft<'_>) -> bool {
    let narrow = |f: &Function, op: Op| {
        f.opcode(op) == Opcode::AsyncDot
            && f.named_operand(op, "acc").is_some_and(|v| f.value_data(v).elem() == Some(Scalar::F16))
            && f.named_segment(op, "acc_stage").is_empty()
    };
    if !draft.has(Opcode::Dot) && !draft.has(Opcode::AsyncDot) {
        return false;
    }
    let func = draft.func();
    let products: Vec<Op> = func.ops().filter(|&op| narrow(func, op)).collect();
    if products.is_empty() {
        return false;
    }
    let func = draft.edit();
    // Conversions that are made here: those of the source stay.
    let mut made: EntitySet<Op> = EntitySet::new();
    for op in products {
        let (Some(acc), Some(result)) = (func.named_operand(op, "acc"), func.result(op)) else { continue };
        let at = func.operands(op).iter().rposition(|&v| v == acc).unwrap_or(2);
        // One product after the other adds to the same sum.
        let wide = match rounded_from(func, acc, &made) {
            Some(sum) => sum,
            None => converted(func, acc, Scalar::F32, op, &mut made),
        };
        func.set_operand(op, at, wide);
        round_behind(func, op, result, &mut made);
    }
    // What inner loops carry is narrow around them until they are done.
    for op in func.all_ops().into_iter().rev() {
        let carried = if func.opcode(op) == Opcode::For { func.results(op).len() } else { 0 };
        for n in 0..carried {
            carry_wide(func, op, n, &mut made);
        }
    }
    true
}

/// The type of a value with other elements.
fn with_elem(func: &mut Function, v: Value, elem: Scalar) -> Type {
    let mut data = func.value_data(v).clone();
    if let TypeData::Tile { elem: e, .. } = &mut data {
        *e = elem;
    }
    func.intern_type(data)
}

/// A value with other elements, in front of an op. Zeros stay constants, as accumulators want them.
fn converted(func: &mut Function, v: Value, elem: Scalar, before: Op, made: &mut EntitySet<Op>) -> Value {
    let ty = with_elem(func, v, elem);
    let op = match func.defining_op(v) {
        Some(by) if func.opcode(by) == Opcode::Constant && func.constant_value(v) == Some(0.0) => {
            let op = func.make_op(Opcode::Constant, &[], &[], &[ty], func.op_loc(by));
            *func.inherent_mut(op) = func.inherent(by).clone();
            op
        }
        _ => func.make_op(Opcode::Ftof, &[v], &[1], &[ty], func.op_loc(before)),
    };
    made.insert(op);
    func.insert_before(before, op);
    func.results(op)[0]
}

/// Makes a result f32, and all that use it use what it is rounded to.
fn round_behind(func: &mut Function, op: Op, result: Value, made: &mut EntitySet<Op>) {
    let (narrow, wide) = (func.value_type(result), with_elem(func, result, Scalar::F32));
    let round = func.make_op(Opcode::Ftof, &[result], &[1], &[narrow], func.op_loc(op));
    let rounded = func.results(round)[0];
    let mut renamed = Renames::default();
    renamed.set(result, rounded);
    renamed.apply(func);
    func.set_value_type(result, wide);
    func.insert_after(op, round);
    made.insert(round);
}

/// The f32 that a value was rounded from here.
fn rounded_from(func: &Function, v: Value, made: &EntitySet<Op>) -> Option<Value> {
    let by = func.defining_op(v).filter(|&op| made.contains(op) && func.opcode(op) == Opcode::Ftof)?;
    func.operands(by).first().copied().filter(|&v| func.value_data(v).elem() == Some(Scalar::F32))
}

/// Carries number `n` of a loop in f32, if it is only converted to that and comes from it.
fn carry_wide(func: &mut Function, op: Op, n: usize, made: &mut EntitySet<Op>) {
    let (Some(&param), Some(&result), Some(&init), Some(&next)) = (
        func.for_args(op).get(n),
        func.results(op).get(n),
        func.named_segment(op, "inits").get(n),
        func.region_yields(op, 0).get(n),
    ) else {
        return;
    };
    if func.value_data(param).elem() != Some(Scalar::F16) || !func.value_data(param).is_tile() {
        return;
    }
    let Some(sum) = rounded_from(func, next, made) else { return };
    let mut uses: Vec<Op> = Vec::new();
    for user in func.ops().filter(|&user| func.operands(user).contains(&param)) {
        let widens = made.contains(user)
            && func.opcode(user) == Opcode::Ftof
            && func.result(user).is_some_and(|v| func.value_data(v).elem() == Some(Scalar::F32));
        if !widens {
            return;
        }
        uses.push(user);
    }
    let Some(end) = func.terminator(op, 0) else { return };
    let wide = converted(func, init, Scalar::F32, op, made);
    let at = func.operands(op).len() - func.named_segment(op, "inits").len() + n;
    func.set_operand(op, at, wide);
    let ty = with_elem(func, param, Scalar::F32);
    func.set_value_type(param, ty);
    func.set_operand(end, n, sum);
    let mut renamed = Renames::default();
    for user in uses {
        if let Some(v) = func.result(user) {
            renamed.set(v, param);
        }
        func.remove_op(user);
    }
    renamed.apply(func);
    round_behind(func, op, result, made);
}
