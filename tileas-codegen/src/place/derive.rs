//! Layouts that follow from others: of what shape ops and reductions make of a tile, and of what an op wants of its operands.

use crate::ir::opcodes::keys;
use crate::ir::{Function, Op, Opcode, Value};
use crate::layout::gf2::Columns;
use crate::layout::{Axes, LinearMap, WarpProduct};
use crate::storage::scratch::Reduction;
use smallvec::SmallVec;

/// What is left of a map when an axis of several elements becomes one of a single element.
fn collapsed(map: &LinearMap, from: &Axes, to: &[u32]) -> LinearMap {
    let mut out = *map;
    // The axes that are to go, the last first, so that those before keep their numbers.
    let mut axes = from.clone();
    for axis in (0..to.len()).rev() {
        if to[axis] == 1 && axes.bits(axis) > 0 {
            out = out.slice(&axes, axis);
            axes = axes.without(axis);
        }
    }
    out.compact()
}

/// The layout in which an operand of an op is wanted whose result, or who itself, is to be in that layout. `None`: as it is.
pub(super) fn wanted(func: &Function, op: Op, v: Value, map: &LinearMap) -> Option<LinearMap> {
    match func.opcode(op) {
        Opcode::Broadcast => {
            let axes = Axes::of(func.result(op).and_then(|r| func.value_data(r).dims())?)?;
            Some(collapsed(map, &axes, func.value_data(v).dims()?))
        }
        // The same elements by other coordinates.
        Opcode::Reshape | Opcode::ConvertLayout => Some(*map),
        Opcode::Reduce | Opcode::Combine | Opcode::Scan => None,
        Opcode::ExtractSlice | Opcode::Permute | Opcode::Cat => None,
        // The operands as the instruction has them.
        Opcode::WarpDot if func.named_operand(op, "acc") != Some(v) => {
            let product = warp_product(func, op, 1 << map.warp().len())?;
            Some(if func.named_operand(op, "a") == Some(v) { product.a } else { product.b })
        }
        // Coordinates and masks repeat where they have one element.
        o if o.is_sparse() => {
            let dims = func.value_data(func.sparse_tile(op)?).dims()?;
            let own = func.value_data(v).dims()?;
            if dims == own { Some(*map) } else { Some(collapsed(map, &Axes::of(dims)?, own)) }
        }
        _ => Some(*map),
    }
}

/// The layouts of a product by warps.
pub(super) fn warp_product(func: &Function, op: Op, warps: u32) -> Option<WarpProduct> {
    let dims = |name| func.named_operand(op, name).and_then(|v| func.value_data(v).dims());
    let (&[m, k], &[_, n]) = (dims("a")?, dims("b")?) else { return None };
    let bits = func.named_operand(op, "a").and_then(|v| func.value_data(v).elem())?.bits();
    WarpProduct::of([m, n, k], warps, bits)
}

/// The layout of the result of a shape op or reduction of a tile in that layout; `None`: it has to be another one.
pub(super) fn derived(func: &Function, op: Op, map: &LinearMap) -> Option<LinearMap> {
    let source = source_of(func, op)?;
    let from = func.value_data(source).dims()?;
    match func.opcode(op) {
        Opcode::Permute => {
            let axes = Axes::of(from)?;
            let order = func.attr_ints(op, keys::PERMUTATION)?;
            let order: Option<SmallVec<[usize; 4]>> =
                order.iter().map(|&a| usize::try_from(a).ok().filter(|&a| a < axes.rank())).collect();
            Some(map.permute(&axes, &order?))
        }
        Opcode::Cat => {
            let axis = usize::try_from(func.attr_int(op, keys::AXIS)?).ok()?;
            let (axes, to) = (Axes::of(from)?, Axes::of(func.value_data(func.result(op)?).dims()?)?);
            let top = 1u32.checked_shl(to.low(axis) + axes.bits(axis))?;
            // One more bit of the axis, in the highest register.
            let place = |c: u32| (0..axes.rank()).fold(0, |m, a| m | axes.coordinate(c, a) << to.low(a));
            let lanes: [u32; 5] = std::array::from_fn(|k| map.lane().get(k).map_or(0, |&c| place(c)));
            let warps: Columns = map.warp().iter().map(|&c| place(c)).collect();
            let registers: Columns = map.register().iter().map(|&c| place(c)).chain([top]).collect();
            LinearMap::registers(&registers, &lanes, &warps)
        }
        Opcode::Reshape | Opcode::ConvertLayout | Opcode::Scan => Some(*map),
        Opcode::Reduce | Opcode::Combine => {
            let axis = usize::try_from(func.attr_int(op, keys::AXIS)?).ok()?;
            let axes = Axes::of(from).filter(|a| axis < a.rank())?;
            Some(Reduction::along(map, &axes, axis).result)
        }
        Opcode::ExtractSlice => {
            let axes = Axes::of(from)?;
            let to = Axes::of(func.value_data(func.result(op)?).dims()?)?;
            // What is cut off must be whole registers.
            let cut = (0..axes.rank()).fold(0, |m, a| {
                let kept = ((1u32 << to.bits(a)) - 1) << axes.low(a);
                m | (axes.mask(a) & !kept)
            });
            let threads = map.lane().iter().chain(map.warp());
            if threads.into_iter().any(|c| c & cut != 0) {
                return None;
            }
            map.filter_registers(
                |c| c & cut == 0,
                |c| {
                    (0..axes.rank()).fold(0, |out, a| {
                        let x = axes.coordinate(c, a) & ((1 << to.bits(a)) - 1);
                        out | x << to.low(a)
                    })
                },
            )
        }
        _ => None,
    }
}

/// The operand whose layout the result's follows from.
pub(super) fn source_of(func: &Function, op: Op) -> Option<Value> {
    let first = || func.named_segment(op, "sources").first().copied();
    func.named_operand(op, "source").or_else(|| func.named_operand(op, "lhs")).or_else(first)
}

/// The map that axes had before they were put in another order.
pub(super) fn permuted_back(func: &Function, op: Op, map: &LinearMap) -> Option<LinearMap> {
    let to = Axes::of(func.value_data(func.result(op)?).dims()?)?;
    let order = func.attr_ints(op, keys::PERMUTATION)?;
    let mut back: SmallVec<[usize; 4]> = SmallVec::from_elem(0, order.len());
    for (n, &a) in order.iter().enumerate() {
        *back.get_mut(usize::try_from(a).ok()?)? = n;
    }
    Some(map.permute(&to, &back))
}

/// The map with every bit that an extracted slice cuts off in registers.
pub(super) fn sliceable(func: &Function, op: Op, map: &LinearMap) -> Option<LinearMap> {
    let from = func.value_data(func.named_operand(op, "source")?).dims()?;
    let to = Axes::of(func.value_data(func.result(op)?).dims()?)?;
    let axes = Axes::of(from)?;
    let cut =
        (0..axes.rank()).fold(0, |m, a| m | (axes.mask(a) & !(((1u32 << to.bits(a)) - 1) << axes.low(a))));
    let keep = |c: u32| if c & cut != 0 { 0 } else { c };
    let lanes: [u32; 5] = std::array::from_fn(|k| map.lane().get(k).map_or(0, |&c| keep(c)));
    let warps: Columns = map.warp().iter().map(|&c| keep(c)).collect();
    let moved = map.lane().iter().chain(map.warp()).copied().filter(|c| c & cut != 0);
    let registers: Columns = map.register().iter().copied().chain(moved).collect();
    LinearMap::registers(&registers, &lanes, &warps)
}
