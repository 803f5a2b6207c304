//! The box of a descriptor follows the tile that is loaded through it.
//!
//! In: a kernel in value form, in which [`super::views`] may have changed what TMA loads load. Out: the kernel in which each of
//! them goes through a descriptor whose box has the extents of its tile: the one it had, or one like it beside it, whose swizzle
//! is no wider than a row. Descriptors that no op uses then are gone. Cost: linear in ops and operands.

use super::Draft;
use crate::ir::opcodes::keys;
use crate::ir::{AttrData, Function, Op, Opcode, Swizzle, TypeData, Value};
use smallvec::SmallVec;

/// Refreshes all boxes.
pub(super) fn refresh(draft: &mut Draft<'_>) {
    let func = draft.func();
    if !func.ops().any(|op| is_stale(func, op)) {
        return;
    }
    let func = draft.edit();
    let mut made: SmallVec<[(Op, Value); 4]> = SmallVec::new();
    for load in func.all_ops() {
        if !is_stale(func, load) {
            continue;
        }
        let Some(old) = func.named_operand(load, "desc").and_then(|v| func.defining_op(v)) else { continue };
        let dims = func.result(load).and_then(|v| func.value_data(v).dims());
        let dims: SmallVec<[u32; 2]> = dims.unwrap_or(&[]).into();
        let same = |&&(from, desc): &&(Op, Value)| from == old && box_of(func, desc) == Some(&dims);
        let desc = match made.iter().find(same) {
            Some(&(_, desc)) => desc,
            None => {
                let desc = with_box(func, old, &dims);
                made.push((old, desc));
                desc
            }
        };
        func.set_operand(load, 0, desc);
    }
    for (old, _) in made {
        let is_used = func.ops().any(|op| func.operands(op).iter().any(|v| func.results(old).contains(v)));
        if !is_used && func.op_block(old).is_some() {
            func.remove_op(old);
        }
    }
}

fn box_of(func: &Function, desc: Value) -> Option<&[u32]> {
    match func.value_data(desc) {
        TypeData::TmaDesc { dims, .. } => Some(dims),
        _ => None,
    }
}

/// Whether a load is not what its descriptor says.
fn is_stale(func: &Function, op: Op) -> bool {
    let tile = func.result(op).and_then(|v| func.value_data(v).dims());
    let said = func.named_operand(op, "desc").and_then(|desc| box_of(func, desc));
    // Rows may be counted by several dimensions.
    let merged = matches!((tile, said), (Some(t), Some(b)) if t.len() == 2 && b.len() > 2);
    func.opcode(op) == Opcode::AsyncTiledTmaLoad
        && func.segments(op).get(2) == Some(&0)
        && said != tile
        && !merged
}

/// A descriptor like another, with a box of other extents, behind it.
fn with_box(func: &mut Function, old: Op, dims: &[u32]) -> Value {
    let TypeData::TmaDesc { elem, .. } = *func.value_data(func.results(old)[0]) else {
        return func.results(old)[0];
    };
    let ty = func.intern_type(TypeData::TmaDesc { dims: dims.into(), elem });
    let operands: SmallVec<[Value; 1]> = func.operands(old).into();
    let new = func.make_op(Opcode::MakeTiledTmaDesc, &operands, &[1], &[ty], func.op_loc(old));
    *func.inherent_mut(new) = func.inherent(old).clone();
    let sizes: SmallVec<[i64; 2]> = dims.iter().map(|&d| i64::from(d)).collect();
    func.set_ints(new, keys::BOX, &sizes);
    let widest = Swizzle::widest(dims.last().map_or(0, |&d| d.saturating_mul(elem.bytes())));
    let had = func.attr_name(old, keys::SWIZZLE).and_then(Swizzle::from_name);
    if had.is_none_or(|had| had.span() > widest.span()) {
        let name = func.intern_symbol(widest.name());
        func.set_attr(new, keys::SWIZZLE, AttrData::Name(name));
    }
    func.insert_after(old, new);
    func.results(new)[0]
}
