//! Turns products round that the target has only so: Dᵀ = Bᵀ Aᵀ.
//!
//! In: a kernel in value form. Out: the kernel in which each accumulator of M×N, where no instruction has M rows but one has N, is its
//! transpose, where M is less than any instruction has. A few rows (the queries of a decoding step, a small batch) become the columns of a product with the long side as its rows.
//!
//! An accumulator is what products, loops and branches tie together: all of it turns, or nothing does. What enters it from elsewhere, and what
//! else uses it, is put in order by `permute`, constants by other constants. Guarantee: each product sums the same terms. Cost:
//! linear in ops and operands.

use super::Draft;
use crate::ir::opcodes::keys;
use crate::ir::types::Shape;
use crate::ir::{AttrData, Function, Op, Opcode, TypeData, Value, ValueDef};
use crate::isa::{MmaRequest, TargetIsa};
use crate::storage::classify::DisjointSets;
use cranelift_entity::packed_option::PackedOption;
use cranelift_entity::{EntityRef, SecondaryMap};
use smallvec::SmallVec;

/// The same product turned round.
fn turned(r: &MmaRequest) -> MmaRequest {
    MmaRequest {
        a: r.b,
        b: r.a,
        m: r.n,
        n: r.m,
        a_m_contiguous: r.b_n_contiguous,
        b_n_contiguous: r.a_m_contiguous,
        ..*r
    }
}

fn is_product(func: &Function, op: Op) -> bool {
    func.opcode(op) == Opcode::AsyncDot && func.named_segment(op, "acc_stage").is_empty()
}

/// What ties accumulators: the operand by number, and the value that it becomes.
fn ties(func: &Function, op: Op) -> SmallVec<[(usize, Value); 4]> {
    match func.opcode(op) {
        Opcode::AsyncDot => {
            let acc = func.named_operand(op, "acc");
            let at = func.operands(op).iter().rposition(|&v| Some(v) == acc);
            at.zip(func.result(op)).into_iter().collect()
        }
        Opcode::For => {
            let params = func.op_block_at(op, 0).map_or(&[][..], |b| func.block_params(b));
            let inits = 3..func.operands(op).len();
            inits.zip(params.iter().skip(1).copied()).collect()
        }
        Opcode::Yield => {
            let results = func.op_parent(op).map_or(&[][..], |p| func.results(p));
            results.iter().copied().enumerate().collect()
        }
        _ => SmallVec::new(),
    }
}

/// Turns accumulators round; whether there was one.
pub(super) fn turn(draft: &mut Draft<'_>, isa: &dyn TargetIsa) -> bool {
    if !draft.has(Opcode::Dot) && !draft.has(Opcode::AsyncDot) {
        return false;
    }
    let func = draft.func();
    let fits = |r: &MmaRequest| isa.atoms().select_mma(r).is_ok();
    let products: Vec<Op> = func.ops().filter(|&op| is_product(func, op)).collect();
    let few = |r: &MmaRequest| isa.atoms().kinds().flat_map(|k| k.shapes).all(|s| r.m < u32::from(s.m));
    let wrong =
        |&op: &Op| MmaRequest::of(func, op).is_some_and(|r| few(&r) && !fits(&r) && fits(&turned(&r)));
    if !products.iter().any(wrong) {
        return false;
    }
    // What products, loops and branches give and hand on; what enters from elsewhere is no member.
    let mut sets = DisjointSets::new(func.num_values());
    let is_member = |v: Value| match func.value_def(v) {
        ValueDef::Result(op, _) => {
            is_product(func, op) || matches!(func.opcode(op), Opcode::For | Opcode::If)
        }
        ValueDef::Param(b, _) => func.block_parent(b).is_some(),
    };
    for op in func.ops() {
        for (n, v) in ties(func, op) {
            let from = func.operands(op)[n];
            if is_member(from) {
                sets.union(from.index(), v.index());
            }
        }
        if func.opcode(op) == Opcode::For
            && let Some(b) = func.op_block_at(op, 0)
        {
            for (&p, &r) in func.block_params(b).iter().skip(1).zip(func.results(op)) {
                sets.union(p.index(), r.index());
            }
        }
    }
    // Accumulators all of whose products have an instruction the other way round.
    let root = |sets: &DisjointSets, op: Op| func.result(op).map(|v| sets.root(v.index()));
    let mut chosen: Vec<usize> =
        products.iter().filter(|op| wrong(op)).filter_map(|&op| root(&sets, op)).collect();
    let can = |&op: &Op| MmaRequest::of(func, op).is_some_and(|r| fits(&turned(&r)));
    for op in &products {
        let own = root(&sets, *op);
        if !can(op) {
            chosen.retain(|&r| Some(r) != own);
        }
    }
    chosen.sort_unstable();
    chosen.dedup();
    if chosen.is_empty() {
        return false;
    }
    let turns: Vec<bool> = (0..func.num_values())
        .map(|i| is_member(Value::new(i)) && chosen.binary_search(&sets.root(i)).is_ok())
        .collect();
    let out = draft.edit();
    apply(out, &turns);
    true
}

fn transposed(func: &mut Function, v: Value) -> Option<crate::ir::Type> {
    let TypeData::Tile { dims, elem, space, layout } = func.value_data(v).clone() else { return None };
    let dims: Shape = dims.iter().rev().copied().collect();
    Some(func.intern_type(TypeData::Tile { dims, elem, space, layout }))
}

fn apply(func: &mut Function, turns: &[bool]) {
    let does = |v: Value| turns.get(v.index()).copied().unwrap_or(false);
    let ops = func.all_ops();
    // Uses first, as long as types tell what they are.
    let mut as_before: SecondaryMap<Value, PackedOption<Value>> = SecondaryMap::new();
    let mut turned_round: SecondaryMap<Value, PackedOption<Value>> = SecondaryMap::new();
    for &op in &ops {
        let tied = ties(func, op);
        for n in 0..func.operands(op).len() {
            let v = func.operands(op)[n];
            let into = tied.iter().find(|t| t.0 == n).is_some_and(|t| does(t.1));
            match (does(v), into) {
                (true, false) => {
                    let to = match as_before[v].expand() {
                        Some(to) => to,
                        None => {
                            let ty = func.value_type(v);
                            let to = permuted(func, v, ty);
                            as_before[v] = to.into();
                            to
                        }
                    };
                    func.set_operand(op, n, to);
                }
                (false, true) => {
                    let to = match turned_round[v].expand() {
                        Some(to) => to,
                        None => {
                            let Some(ty) = transposed(func, v) else { continue };
                            let to = entering(func, v, ty);
                            turned_round[v] = to.into();
                            to
                        }
                    };
                    func.set_operand(op, n, to);
                }
                _ => {}
            }
        }
    }
    for i in 0..turns.len() {
        let v = Value::new(i);
        if does(v)
            && let Some(ty) = transposed(func, v)
        {
            func.set_value_type(v, ty);
        }
    }
    for &op in &ops {
        if is_product(func, op) && func.result(op).is_some_and(does) {
            swap_sides(func, op);
        }
    }
}

/// A and B in each other's place.
fn swap_sides(func: &mut Function, op: Op) {
    let (Some(a), Some(b), Some(acc)) =
        (func.named_operand(op, "a"), func.named_operand(op, "b"), func.named_operand(op, "acc"))
    else {
        return;
    };
    let counts: SmallVec<[Value; 1]> = func.named_segment(op, "accumulate").into();
    let segments: SmallVec<[u32; 8]> = func.segments(op).into();
    let operands: SmallVec<[Value; 4]> = [b, a, acc].into_iter().chain(counts).collect();
    func.set_operands(op, &operands, &segments);
    let has = |func: &Function, key| func.has_attr(op, key);
    let (ta, tb) = (has(func, keys::TRANSPOSE_A), has(func, keys::TRANSPOSE_B));
    let (ua, ub) = (has(func, keys::UNSIGNED_A), has(func, keys::UNSIGNED_B));
    for (key, on) in
        [(keys::TRANSPOSE_A, !tb), (keys::TRANSPOSE_B, !ta), (keys::UNSIGNED_A, ub), (keys::UNSIGNED_B, ua)]
    {
        if on {
            func.set_attr(op, key, AttrData::Unit);
        } else {
            func.inherent_mut(op).remove(key);
        }
    }
}

/// `permute` of a value, right behind where it is made.
fn permuted(func: &mut Function, v: Value, ty: crate::ir::Type) -> Value {
    let (loc, at) = match func.value_def(v) {
        ValueDef::Result(op, _) => (func.op_loc(op), func.next_op(op)),
        ValueDef::Param(b, _) => (func.loc, func.first_op(b)),
    };
    let op = func.make_op(Opcode::Permute, &[v], &[1], &[ty], loc);
    func.set_ints(op, keys::PERMUTATION, &[1, 0]);
    match (at, func.value_def(v)) {
        (Some(at), _) => func.insert_before(at, op),
        (None, ValueDef::Result(by, _)) => {
            if let Some(b) = func.op_block(by) {
                func.append_op(b, op);
            }
        }
        (None, ValueDef::Param(b, _)) => func.append_op(b, op),
    }
    func.results(op)[0]
}

/// What enters an accumulator, turned round: a constant is another one.
fn entering(func: &mut Function, v: Value, ty: crate::ir::Type) -> Value {
    let constant = func.defining_op(v).filter(|&op| func.opcode(op) == Opcode::Constant);
    let Some(op) = constant else { return permuted(func, v, ty) };
    let new = func.make_op(Opcode::Constant, &[], &[], &[ty], func.op_loc(op));
    *func.inherent_mut(new) = func.inherent(op).clone();
    func.insert_before(op, new);
    func.results(new)[0]
}
