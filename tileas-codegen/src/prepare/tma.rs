//! Turns loads of tiles into TMA loads.
//!
//! In: a function in value form, before agents are planned. Out: the function in which every `tiled_load` that may
//! and should go through the tensor memory accelerator is an `async.tiled_tma_load` by a descriptor at the top of the
//! kernel, and whether there is such a load. Stores are rewritten by `place`, when their slices are known.
//! A tile that is only used as one of another type of that width (`bitcast`) is loaded as that: who has no type for bf16 hands over i16.
//!
//! *May:* a tile of rank 2, or of more dimensions whose one use is as a matrix of its rows (`reshape`), of a view that the host knows (a parameter, or made of parameters) and nothing in the kernel writes; rows of 16 bytes or more, and of whole
//! swizzle spans; box extents within the limits of the target; padding that a tensor map can give (zero, or NaN for
//! floats); users that take the tile where TMA puts it, which are matrix operands and element-wise
//! ops. The requirements of a tensor map (pointer and strides multiples of 16 bytes, innermost stride 1) are
//! listed under `requires` in the launch metadata.
//!
//! *Should:* matrix operands always, since they must be in shared memory anyway and otherwise pass through registers.
//! Of the others those that a loop runs in every iteration, where a ring lets them run ahead of their use, if the loop multiplies, or if there is one row for each
//! thread of the simt agent, and all of them together take no more than an eighth of shared memory for one slot each. Weights of 8 bits that are converted
//! for a product of 128 x 256 then take 0.54 of the time (H100). A load that runs once stays direct: there is nothing to overlap it with, and it reads any extents.
//!
//! Cost: linear in ops and uses.

use super::{Draft, Renames, written_views};
use crate::ir::opcodes::{Traits, keys};
use crate::ir::{AttrData, Block, Function, Op, Opcode, Scalar, Swizzle, TypeData, Value};
use crate::isa::{Feature, TargetIsa};
use crate::storage::components::product_loops;
use cranelift_entity::{EntitySet, SecondaryMap};
use smallvec::SmallVec;

/// How the users of a loaded tile take it.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
struct Users {
    /// As a matrix operand contiguous along K.
    k: bool,
    /// As a matrix operand contiguous along M or N.
    mn: bool,
    /// In element-wise ops.
    registers: bool,
    /// In any other way.
    other: bool,
}

/// A load to be rewritten.
struct Load {
    op: Op,
    view: Value,
    dims: SmallVec<[u32; 2]>,
    elem: Scalar,
    nan: bool,
    /// The ops between what memory holds and the tile that is used: the `reshape` that makes a matrix of its rows, and `bitcast`.
    renamed: SmallVec<[Op; 2]>,
}

/// The op, the only one that uses a tile, that makes a matrix of its rows or takes its bits as elements of another type.
fn renames(func: &Function, ops: &[Op], v: Value) -> Option<Op> {
    let op = ops.iter().copied().find(|&op| func.operands(op).contains(&v))?;
    let (from, to) = (func.value_data(v), func.value_data(func.result(op)?));
    let renames = match func.opcode(op) {
        Opcode::Reshape => to.dims()?.len() == 2 && to.dims()?.last() == from.dims()?.last(),
        Opcode::Bitcast => from.elem()?.loads_as(to.elem()?),
        _ => false,
    };
    renames.then_some(op)
}

/// Rewrites the loads of a kernel; `threads` is the size of the simt agent.
pub(super) fn rewrite_loads(draft: &mut Draft<'_>, isa: &dyn TargetIsa, threads: u32) -> bool {
    let func = draft.func();
    if !isa.features().has(Feature::Tma) || !draft.has(Opcode::TiledLoad) {
        return false;
    }
    let Some(written) = written_views(func) else { return false };
    let ops = func.all_ops();
    let users = users(func, &ops);
    let mut uses_of: SecondaryMap<Value, u32> = SecondaryMap::new();
    ops.iter().flat_map(|&op| func.operands(op)).for_each(|&v| uses_of[v] += 1);
    let limits = &isa.machine().limits;
    let mut budget = limits.smem_bytes / 8;
    let multiplying = product_loops(func);
    let mut loads: Vec<Load> = Vec::new();
    let alone = |op: Op| !func.op_parent(op).is_some_and(|l| func.is_slice_loop(l));
    for &op in ops.iter().filter(|&&op| func.opcode(op) == Opcode::TiledLoad && alone(op)) {
        let Some(mut load) = legal(func, op, isa, &written) else { continue };
        let Some(mut result) = func.result(op) else { continue };
        while uses_of[result] == 1
            && let Some(op) = renames(func, &ops, result)
        {
            load.renamed.push(op);
            result = func.results(op)[0];
        }
        let data = func.value_data(result);
        let Some(elem) = data.elem().filter(|_| data.dims().is_some_and(|d| d.len() == 2)) else { continue };
        if load.nan && elem != load.elem {
            continue;
        }
        load.elem = elem;
        let uses = users[result];
        if uses.other || uses == Users::default() {
            continue;
        }
        if uses.registers {
            let bytes = load.dims.iter().product::<u32>().saturating_mul(load.elem.bytes());
            let rows: u32 = load.dims.split_last().map_or(1, |x| x.1.iter().product());
            let rows = rows == threads && matches!(load.elem.bits(), 16 | 32) && repeats(func, op);
            let beside_products =
                load.elem.bits() >= 8 && func.op_block(op).is_some_and(|b| multiplying.contains(&b));
            if !(rows || beside_products) || bytes > budget {
                continue;
            }
            budget -= bytes;
        }
        loads.push(load);
    }
    if !loads.is_empty() {
        rewrite(draft.edit(), &loads);
    }
    !loads.is_empty()
}

fn users(func: &Function, ops: &[Op]) -> SecondaryMap<Value, Users> {
    let mut users: SecondaryMap<Value, Users> = SecondaryMap::new();
    users.resize(func.num_values());
    for &op in ops {
        let opcode = func.opcode(op);
        let dot = matches!(opcode, Opcode::Dot | Opcode::AsyncDot);
        for &v in func.operands(op) {
            let u = &mut users[v];
            if dot {
                let is = |name: &str| func.named_operand(op, name) == Some(v);
                if is("a") {
                    *(if func.has_attr(op, keys::TRANSPOSE_A) { &mut u.mn } else { &mut u.k }) = true;
                }
                if is("b") {
                    *(if func.has_attr(op, keys::TRANSPOSE_B) { &mut u.k } else { &mut u.mn }) = true;
                }
                u.other |= is("acc");
            } else if opcode.has(Traits::ELEMENTWISE) {
                u.registers = true;
            } else {
                u.other = true;
            }
        }
    }
    users
}

/// The load as a TMA load, if it may be one.
fn legal(func: &Function, op: Op, isa: &dyn TargetIsa, written: &EntitySet<Value>) -> Option<Load> {
    let (view, result) = (func.named_operand(op, "view")?, func.result(op)?);
    let TypeData::View { elem: view_elem, dims: view_dims, .. } = func.value_data(view) else { return None };
    let data = func.value_data(result);
    let (dims, elem) = (data.dims()?, data.elem()?);
    let limits = &isa.machine().limits;
    let (&columns, outer) = dims.split_last().filter(|x| !x.1.is_empty())?;
    let row_bytes = columns.checked_mul(elem.bytes())?;
    let span = Swizzle::widest(row_bytes).span();
    let padding = func.attr_number(op, keys::PADDING).unwrap_or(0.0);
    let nan = padding.is_nan() && elem.is_float();
    let ok = func.is_launch_view(view)
        && !func.has_attr(op, keys::NO_TMA)
        && !written.contains(func.memory_root(view))
        && func.is_weak(op)
        && data.space().is_none()
        && *view_elem == elem
        && view_dims.len() == dims.len()
        && dims.len() <= limits.tma_rank_max as usize
        && !matches!(elem, Scalar::I1 | Scalar::UE8M0)
        && outer.iter().all(|&n| n <= limits.tma_box_max)
        && row_bytes >= limits.tma_align
        && row_bytes.is_multiple_of(span.max(16))
        && (nan || padding.to_bits() == 0);
    ok.then(|| Load { op, view, dims: dims.into(), elem, nan, renamed: SmallVec::new() })
}

/// Whether a load runs in every iteration of a loop. One that need not run is not worth a slot, but for an operand, which needs one anyway.
fn repeats(func: &Function, op: Op) -> bool {
    func.op_parent(op).is_some_and(|p| func.opcode(p) == Opcode::For)
}

fn rewrite(out: &mut Function, loads: &[Load]) {
    let mut descs: Vec<(&Load, Value)> = Vec::new();
    let mut renamed = Renames::default();
    let mut top = out.first_op(out.entry());
    for load in loads {
        let same = |o: &&(&Load, Value)| {
            let (o, l) = (o.0, load);
            (o.view, &o.dims, o.nan, o.elem) == (l.view, &l.dims, l.nan, l.elem)
        };
        let desc = match descs.iter().find(same) {
            Some(&(_, desc)) => desc,
            None => {
                let desc = descriptor(out, load, top);
                descs.push((load, desc));
                desc
            }
        };
        let mut operands: SmallVec<[Value; 4]> = SmallVec::from_slice(&[desc]);
        operands.extend_from_slice(out.named_segment(load.op, "coords"));
        let ty = out.result(load.renamed.last().map_or(load.op, |&op| op)).map(|v| out.value_type(v));
        let segments = [1, operands.len() as u32 - 1, 0, 0, 0];
        let new = super::replace(
            out,
            load.op,
            Opcode::AsyncTiledTmaLoad,
            (&operands, &segments),
            ty.as_slice(),
            &mut renamed,
        );
        out.inherent_mut(new).remove(keys::PADDING);
        for &op in load.renamed.iter().rev() {
            renamed.set(out.results(op)[0], out.results(new)[0]);
            out.remove_op(op);
        }
        if top == Some(load.op) {
            top = Some(new);
        }
    }
    renamed.apply(out);
}

/// A descriptor before `top`.
fn descriptor(out: &mut Function, load: &Load, top: Option<Op>) -> Value {
    let ty = out.intern_type(TypeData::TmaDesc { dims: load.dims.as_slice().into(), elem: load.elem });
    let op = out.make_op(Opcode::MakeTiledTmaDesc, &[load.view], &[1], &[ty], out.op_loc(load.op));
    let sizes: SmallVec<[i64; 2]> = load.dims.iter().map(|&d| i64::from(d)).collect();
    out.set_ints(op, keys::BOX, &sizes);
    let row_bytes = load.dims.last().map_or(0, |&d| d.saturating_mul(load.elem.bytes()));
    let swizzle = out.intern_symbol(Swizzle::widest(row_bytes).name());
    out.set_attr(op, keys::SWIZZLE, AttrData::Name(swizzle));
    if load.nan {
        let nan = out.intern_symbol("nan");
        out.set_attr(op, keys::OOB, AttrData::Name(nan));
    }
    let entry: Block = out.entry();
    match (out.defining_op(load.view).and_then(|made| out.next_op(made)), top) {
        (Some(behind), _) => out.insert_before(behind, op),
        (None, Some(top)) => out.insert_before(top, op),
        (None, None) => out.append_op(entry, op),
    }
    let desc = out.results(op)[0];
    if let Some(name) = out.value_name(load.view).map(|n| format!("d{n}")) {
        out.set_value_name(desc, &name);
    }
    desc
}
