//! Writes out loops with a small constant number of iterations.
//!
//! In: a kernel in value form. Out: the kernel without the loops of which constants say that
//!
//! - they run at most once: there is nothing that one iteration could overlap with, and what is around them becomes innermost, which
//!   is what gets scheduled;
//! - they run a few times and do nothing but compute on what is there already: no access to memory, no product, no
//!   region. Nothing in them could run ahead, so that the order in which they are written loses no overlap either. Iterations times ops,
//!   taken as one where there is none, are at most the given number.
//!
//! A loop that anything is said about, by attributes of its own (constraints, hints, notes) or by those of ops in it, stays as it is.
//! Guarantee: names stay with the last iteration. Cost: linear in the ops of the result, once per level of
//! loops that are written out.

use super::{Draft, Renames, copied, is_annotated, is_region};
use crate::ir::opcodes::{Traits, keys};
use crate::ir::{AttrData, Function, Op, Opcode, Value};
use cranelift_entity::SecondaryMap;
use cranelift_entity::packed_option::PackedOption;
use smallvec::SmallVec;

/// A loop to be written out.
struct Small {
    lower: i64,
    step: i64,
    trips: i64,
}

/// The bounds of a loop, if it is to be written out.
fn small(func: &Function, op: Op, renamed: &Renames, most: u32) -> Option<Small> {
    let &[lower, upper, step, ..] = func.operands(op) else { return None };
    let bound = |v: Value| {
        let number = func.constant_value(renamed.of(v))?;
        (number.fract() == 0.0 && number.abs() <= f64::from(1 << 30)).then_some(number as i64)
    };
    let (lower, upper, step) = (bound(lower)?, bound(upper)?, bound(step).filter(|&s| s > 0)?);
    let trips = if upper > lower { (upper - lower + step - 1) / step } else { 0 };
    let body = func.op_block_at(op, 0)?;
    if !func.inherent(op).is_empty() || !func.discardable(op).is_empty() || func.exit_of(op).is_some() {
        return None;
    }
    let (mut ops, mut is_plain) = (0, true);
    let mut is_annotated_inside = false;
    func.walk(body, &mut |o| {
        let opcode = func.opcode(o);
        is_annotated_inside |= is_annotated(func, o);
        if opcode != Opcode::Yield {
            ops += 1;
            is_plain &= opcode.has(Traits::PURE) && opcode != Opcode::Dot && !is_region(opcode);
        }
    });
    // Iterations cost something where nothing is in them, too.
    let fits = trips <= 1 || is_plain && trips.saturating_mul(ops.max(1)) <= i64::from(most);
    (fits && !is_annotated_inside).then_some(Small { lower, step, trips })
}

/// Writes out all loops that are small enough, those inside others first; whether there are any. `most` 0: none.
pub(super) fn write_out(draft: &mut Draft<'_>, most: u32) -> bool {
    let func = draft.func();
    let none = Renames::default();
    let is_small = |op: Op| func.opcode(op) == Opcode::For && small(func, op, &none, most).is_some();
    if most == 0 || !draft.has(Opcode::For) || !func.ops().any(is_small) {
        return false;
    }
    let out = draft.edit();
    let mut renamed = none;
    // The number of an iteration may be the bound of a loop inside; loops inside may be what keeps one.
    let mut is_done = false;
    while !std::mem::replace(&mut is_done, true) {
        for op in out.all_ops().into_iter().rev() {
            if out.opcode(op) == Opcode::For
                && let Some(found) = small(out, op, &renamed, most)
            {
                expand(out, op, &found, &mut renamed);
                is_done = false;
            }
        }
    }
    renamed.apply(out);
    true
}

fn expand(func: &mut Function, op: Op, found: &Small, renamed: &mut Renames) {
    let Some(body) = func.op_block_at(op, 0) else { return };
    let params: SmallVec<[Value; 8]> = func.block_params(body).into();
    let Some((&number, carried)) = params.split_first() else { return };
    let yields: SmallVec<[Value; 8]> = func.region_yields(op, 0).into();
    let ops: SmallVec<[Op; 16]> = func.block_ops(body).filter(|&o| func.opcode(o) != Opcode::Yield).collect();
    let is_numbered = ops.iter().any(|&o| func.operands(o).contains(&number)) || yields.contains(&number);
    // What the parameters are in the iteration at hand.
    let mut state: SmallVec<[Value; 8]> = func.named_segment(op, "inits").into();
    let mut first = func.operands(op)[0];
    for trip in 0..found.trips {
        if trip > 0 && is_numbered {
            first = constant(func, op, number, found.lower + trip * found.step);
        }
        if trip + 1 == found.trips {
            // The ops themselves are the last iteration.
            renamed.set(number, first);
            carried.iter().zip(&state).for_each(|(&p, &v)| renamed.set(p, v));
            for &o in &ops {
                func.remove_op(o);
                func.insert_before(op, o);
            }
            state = yields.iter().map(|&v| renamed.of(v)).collect();
            break;
        }
        let mut copies: SecondaryMap<Value, PackedOption<Value>> = SecondaryMap::new();
        copies[number] = first.into();
        carried.iter().zip(&state).for_each(|(&p, &v)| copies[p] = v.into());
        let of = |copies: &SecondaryMap<Value, PackedOption<Value>>, v: Value| {
            let v = renamed.of(v);
            copies[v].expand().unwrap_or(v)
        };
        for &o in &ops {
            let copy = copied(func, o, |v| of(&copies, v));
            func.insert_before(op, copy);
            for n in 0..func.results(o).len() {
                copies[func.results(o)[n]] = func.results(copy)[n].into();
            }
        }
        state = yields.iter().map(|&v| of(&copies, v)).collect();
    }
    for (n, &v) in state.iter().enumerate() {
        if let Some(&result) = func.results(op).get(n) {
            renamed.set(result, v);
        }
    }
    func.remove_op(op);
}

/// A number of the type of `like`, before `at`.
pub(super) fn constant(func: &mut Function, at: Op, like: Value, number: i64) -> Value {
    let ty = func.value_type(like);
    let op = func.make_op(Opcode::Constant, &[], &[], &[ty], func.op_loc(at));
    func.set_attr(op, keys::VALUE, AttrData::Int(number, None));
    func.insert_before(at, op);
    func.results(op)[0]
}
