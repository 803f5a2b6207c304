//! Computes what is the same all along an axis once, and spreads the result.
//!
//! In: a kernel in value form. Out: the kernel in which an element-wise op whose tiles are spread (`broadcast`) from tiles of one shape, or hold
//! one number, works on tiles of that shape, and its result is spread. So `-broadcast(m)` takes the registers of `m`, not those of a whole
//! tile, in what a schedule counts, and one instruction for a row instead of one for each element.
//! Lost without it: attention as it is mostly written in cuTile (`exp2(s * scale - m)`, which is a product-and-sum with `-m` spread over the
//! keys) counts 263 registers where it holds 140, and is ordered for that.
//! Guarantee: the same elements. Cost: linear in ops and operands.

use super::{Draft, Renames, is_annotated};
use crate::ir::opcodes::Traits;
use crate::ir::types::Shape;
use crate::ir::{Function, Op, Opcode, Type, TypeData, Value};
use smallvec::SmallVec;

/// Whether something was changed.
pub(super) fn narrow(draft: &mut Draft<'_>) -> bool {
    if !draft.has(Opcode::Broadcast) {
        return false;
    }
    let func = draft.func();
    let first = |op: &Op| source_shape(func, *op, &Renames::default()).is_some();
    if !func.ops().any(|op| first(&op)) {
        return false;
    }
    let func = draft.edit();
    let mut renamed = Renames::default();
    for op in func.all_ops() {
        if let Some(shape) = source_shape(func, op, &renamed) {
            rewrite(func, op, &shape, &mut renamed);
        }
    }
    renamed.apply(func);
    true
}

/// The shape of the tiles from which all tiles that an op takes are spread, if there is one.
fn source_shape(func: &Function, op: Op, renamed: &Renames) -> Option<Shape> {
    let opcode = func.opcode(op);
    let simple = opcode.has(Traits::PURE) && opcode.has(Traits::ELEMENTWISE) && func.results(op).len() == 1;
    let whole = func.value_data(func.result(op).filter(|_| simple)?);
    if !whole.is_tile() || whole.space().is_some() || whole.layout().is_some() || is_annotated(func, op) {
        return None;
    }
    let mut shape: Option<Shape> = None;
    for &v in func.operands(op) {
        let v = renamed.of(v);
        if !func.value_data(v).is_tile() {
            continue;
        }
        let by = func.defining_op(v)?;
        match func.opcode(by) {
            Opcode::Broadcast => {
                let dims = func.value_data(*func.operands(by).first()?).dims()?;
                if shape.get_or_insert_with(|| Shape::from_slice(dims)).as_slice() != dims {
                    return None;
                }
            }
            Opcode::Splat => {}
            Opcode::Constant if func.constant_value(v).is_some() => {}
            _ => return None,
        }
    }
    shape
}

fn rewrite(func: &mut Function, op: Op, shape: &Shape, renamed: &mut Renames) {
    let Some(result) = func.result(op) else { return };
    let mut operands: SmallVec<[Value; 4]> = SmallVec::new();
    for n in 0..func.operands(op).len() {
        let v = renamed.of(func.operands(op)[n]);
        let by = func.defining_op(v).filter(|_| func.value_data(v).is_tile());
        operands.push(match by {
            None => v,
            Some(by) if func.opcode(by) == Opcode::Broadcast => func.operands(by)[0],
            Some(by) => {
                let ty = with_shape(func, v, shape);
                small(func, by, ty, op)
            }
        });
    }
    let (narrow, wide) = (with_shape(func, result, shape), func.value_type(result));
    let segments: SmallVec<[u32; 4]> = func.segments(op).into();
    let new = func.make_op(func.opcode(op), &operands, &segments, &[narrow], func.op_loc(op));
    *func.inherent_mut(new) = func.inherent(op).clone();
    *func.discardable_mut(new) = func.discardable(op).clone();
    func.insert_before(op, new);
    let made = func.results(new)[0];
    let spread = func.make_op(Opcode::Broadcast, &[made], &[1], &[wide], func.op_loc(op));
    func.insert_before(op, spread);
    func.remove_op(op);
    let spread = func.results(spread)[0];
    renamed.succeed(func, result, spread);
}

/// The number that a tile holds, as a tile of another shape.
fn small(func: &mut Function, by: Op, ty: Type, before: Op) -> Value {
    let operands: SmallVec<[Value; 1]> = func.operands(by).into();
    let segments: SmallVec<[u32; 4]> = func.segments(by).into();
    let new = func.make_op(func.opcode(by), &operands, &segments, &[ty], func.op_loc(by));
    *func.inherent_mut(new) = func.inherent(by).clone();
    func.insert_before(before, new);
    func.results(new)[0]
}

/// The type of a value, with another shape.
fn with_shape(func: &mut Function, v: Value, shape: &Shape) -> Type {
    let TypeData::Tile { elem, .. } = *func.value_data(v) else { return func.value_type(v) };
    func.intern_type(TypeData::Tile { dims: shape.clone(), elem, space: None, layout: None })
}
