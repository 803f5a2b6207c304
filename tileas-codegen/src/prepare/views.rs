//! Accesses through views of views become accesses of the view itself.
//!
//! In: a kernel in value form. Out: the kernel in which
//!
//! - views and descriptors that a loop carries unchanged, or that both arms of a branch hand on, are the ones they began with. The kernel's
//!   parameters are all the views there are, so that every access then names memory;
//! - a load of which one part alone is used (`extract_slice`, whose offsets are multiples of its extents) loads that part, at coordinates
//!   that count such parts. Of views that the kernel writes loads stay as they are: what tells their tiles from
//!   stored ones compares coordinates of equal extents.
//!
//! A TMA load that loads a part is not what its descriptor says until [`super::boxes`] has run. Guarantee: a coordinate out of
//! bounds stays out of bounds, none wraps around. Cost: linear in ops and operands.

use super::{Draft, Renames, is_annotated, unroll::constant, view_of, written_views};
use crate::ir::opcodes::keys;
use crate::ir::{Function, Op, Opcode, Scalar, Swizzle, TypeData, Value};
use cranelift_entity::SecondaryMap;
use smallvec::SmallVec;

/// Makes accesses direct.
pub(super) fn decompose(draft: &mut Draft<'_>) {
    let func = draft.func();
    let handed_on =
        |op: Op| super::is_region(func.opcode(op)) && func.results(op).iter().any(|&v| is_view(func, v));
    if func.ops().any(handed_on) {
        follow(draft.edit());
    }
    if draft.has(Opcode::ExtractSlice) {
        let parts = parts(draft.func());
        if !parts.is_empty() {
            let func = draft.edit();
            parts.iter().for_each(|part| load_part(func, part));
        }
    }
}

fn is_view(func: &Function, v: Value) -> bool {
    matches!(func.value_data(v), TypeData::View { .. } | TypeData::TmaDesc { .. })
}

/// Takes views that are handed on for what they are. What carried them is dead then.
fn follow(func: &mut Function) {
    let mut renamed = Renames::default();
    // Inner loops and branches first: outer ones hand on their results.
    for op in func.all_ops().into_iter().rev() {
        for n in 0..func.results(op).len() {
            let result = func.results(op)[n];
            if !is_view(func, result) {
                continue;
            }
            let yielded = |r: usize| func.region_yields(op, r).get(n).map(|&v| renamed.of(v));
            match func.opcode(op) {
                Opcode::For => {
                    let Some(&param) = func.for_args(op).get(n) else { continue };
                    let Some(&init) = func.named_segment(op, "inits").get(n) else { continue };
                    if yielded(0).is_some_and(|v| v == param || v == init) {
                        renamed.set(param, init);
                        renamed.set(result, init);
                    }
                }
                Opcode::If => match (yielded(0), yielded(1)) {
                    // What both arms hand on was there before.
                    (Some(a), Some(b)) if a == b => renamed.set(result, a),
                    _ => {}
                },
                _ => {}
            }
        }
    }
    renamed.apply(func);
}

/// A load and the one part of it that is used.
struct Part {
    load: Op,
    slice: Op,
    /// Per dimension: parts in the tile, and the number of this one.
    at: SmallVec<[(u32, u32); 2]>,
}

fn parts(func: &Function) -> Vec<Part> {
    let Some(written) = written_views(func) else { return Vec::new() };
    let mut uses: SecondaryMap<Value, u32> = SecondaryMap::new();
    uses.resize(func.num_values());
    func.ops().flat_map(|op| func.operands(op)).for_each(|&v| uses[v] += 1);
    let slices = func.ops().filter(|&op| func.opcode(op) == Opcode::ExtractSlice);
    let found = slices.filter_map(|slice| {
        let source = func.named_operand(slice, "source").filter(|&v| uses[v] == 1)?;
        let load = func.defining_op(source)?;
        let part = part(func, load, slice)?;
        (!written.contains(view_of(func, load)?)).then_some(part)
    });
    found.collect()
}

fn part(func: &Function, load: Op, slice: Op) -> Option<Part> {
    let (tile, kept) = (func.value_data(func.result(load)?), func.value_data(func.result(slice)?));
    let (dims, sizes, elem) = (tile.dims()?, kept.dims()?, tile.elem()?);
    let offsets = func.attr_ints(slice, keys::OFFSETS)?;
    let same_rank = sizes.len() == dims.len() && offsets.len() == dims.len();
    if !same_rank || func.operands(slice).len() != 1 || is_annotated(func, slice) || tile.space().is_some() {
        return None;
    }
    match func.opcode(load) {
        Opcode::TiledLoad if func.is_weak(load) => {}
        // Rows of boxes are whole spans of a swizzle.
        Opcode::AsyncTiledTmaLoad if func.segments(load).get(2) == Some(&0) => {
            let bytes = sizes.last()?.checked_mul(elem.bytes())?;
            if bytes < 16 || !bytes.is_multiple_of(Swizzle::widest(bytes).span()) {
                return None;
            }
        }
        _ => return None,
    }
    let mut at = SmallVec::new();
    for ((&whole, &size), &offset) in dims.iter().zip(sizes).zip(&offsets) {
        let offset = u32::try_from(offset).ok()?;
        if size == 0 || !whole.is_multiple_of(size) || !offset.is_multiple_of(size) || whole >= 1 << 30 {
            return None;
        }
        at.push((whole / size, offset / size));
    }
    let wide = |&v: &Value| {
        matches!(func.value_data(v), TypeData::Scalar(Scalar::I32 | Scalar::I64 | Scalar::Index))
    };
    func.named_segment(load, "coords").iter().all(wide).then_some(Part { load, slice, at })
}

/// Loads the part in the place of the tile.
fn load_part(func: &mut Function, part: &Part) {
    let (Some(tile), Some(kept)) = (func.result(part.load), func.result(part.slice)) else { return };
    let dims: SmallVec<[u32; 2]> = func.value_data(tile).dims().unwrap_or(&[]).into();
    for (n, (&(count, number), &whole)) in part.at.iter().zip(&dims).enumerate() {
        if count > 1 {
            let coord = func.named_segment(part.load, "coords")[n];
            let scaled = scaled(func, part.load, coord, (count, number), whole);
            func.set_operand(part.load, n + 1, scaled);
        }
    }
    let ty = func.value_type(kept);
    func.set_value_type(tile, ty);
    if let Some(name) = func.value_sym(kept) {
        func.set_value_sym(tile, name);
    }
    func.remove_op(part.slice);
    let mut renamed = Renames::default();
    renamed.set(kept, tile);
    renamed.apply(func);
}

/// The coordinate of part `number` of `count` in a tile of `whole` elements, before `at`. Beyond 2^31 elements and before the first all
/// coordinates are out of bounds alike, so those nearest stand for them and the product fits.
fn scaled(func: &mut Function, at: Op, coord: Value, (count, number): (u32, u32), whole: u32) -> Value {
    let (count, number) = (i64::from(count), i64::from(number));
    let last = (1i64 << 31) / i64::from(whole);
    if let Some(c) = func.constant_value(coord) {
        let c = (c as i64).clamp(-1, last);
        return constant(func, at, coord, (c * count + number).min(i64::from(i32::MAX)));
    }
    let steps = [(Opcode::Mini, last), (Opcode::Maxi, -1), (Opcode::Muli, count), (Opcode::Addi, number)];
    let ty = func.value_type(coord);
    steps.into_iter().filter(|&(opcode, n)| opcode != Opcode::Addi || n != 0).fold(coord, |v, (opcode, n)| {
        let n = constant(func, at, coord, n);
        let op = func.make_op(opcode, &[v, n], &[1, 1], &[ty], func.op_loc(at));
        func.insert_before(at, op);
        func.results(op)[0]
    })
}
