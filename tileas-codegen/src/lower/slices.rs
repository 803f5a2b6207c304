//! Loops over slices of register tiles, written out: registers have no addresses.
//!
//! In: a materialised function. Out: the function in which such loops are as many copies of their body as there are slices, each with its
//! number, or nothing where there is none. Loops over slices of stored tiles stay: there the number is an address.
//! Guarantee: what is computed stays, in the same order. Cost: linear in the ops of the result.

use crate::ir::{Block, Function, Op, Opcode, Space, Type, Value, keys};
use cranelift_entity::SecondaryMap;
use cranelift_entity::packed_option::PackedOption;
use smallvec::SmallVec;

/// What stands for values of a body in its copy.
type Copies = SecondaryMap<Value, PackedOption<Value>>;

/// Writes out the loops whose slices are in registers.
pub(super) fn write_out(func: &Function) -> Option<Function> {
    let in_registers = |&l: &Op| {
        func.is_slice_loop(l)
            && func.op_block_at(l, 0).is_some_and(|b| func.block_ops(b).any(|op| numbered(func, op)))
    };
    let loops: SmallVec<[Op; 2]> = func.all_ops().into_iter().filter(in_registers).collect();
    if loops.is_empty() {
        return None;
    }
    let mut out = func.clone();
    loops.into_iter().for_each(|l| unroll(&mut out, l));
    Some(out)
}

/// Whether an op takes a part of a register tile by number.
fn numbered(func: &Function, op: Op) -> bool {
    let source = func.named_operand(op, "source").filter(|_| func.named_operand(op, "number").is_some());
    func.opcode(op) == Opcode::ExtractSlice
        && source.is_some_and(|v| func.value_data(v).space() == Some(Space::Rmem))
}

fn unroll(func: &mut Function, l: Op) {
    let Some((body, count)) = func.op_block_at(l, 0).zip(func.attr_int(l, keys::SLICES)) else { return };
    let params: SmallVec<[Value; 4]> = func.block_params(body).into();
    let Some((&index, args)) = params.split_first() else { return };
    let ops: SmallVec<[Op; 32]> = func.block_ops(body).collect();
    let Some((&end, ops)) = ops.split_last() else { return };
    let mut carried: SmallVec<[Value; 4]> = func.named_segment(l, "inits").into();
    let (ty, loc) = (func.value_type(index), func.op_loc(l));
    let mut copies = Copies::new();
    for k in 0..count {
        let number = func.make_op(Opcode::Constant, &[], &[], &[ty], loc);
        func.set_int(number, keys::VALUE, k);
        func.insert_before(l, number);
        copies[index] = func.results(number)[0].into();
        args.iter().zip(&carried).for_each(|(&arg, &v)| copies[arg] = v.into());
        for &op in ops {
            let new = copy(func, op, &mut copies);
            func.insert_before(l, new);
            if numbered(func, new) {
                fix(func, new, k);
            }
        }
        let yields: SmallVec<[Value; 4]> = func.operands(end).into();
        carried = yields.into_iter().map(|v| copies[v].expand().unwrap_or(v)).collect();
    }
    let results: SmallVec<[Value; 4]> = func.results(l).into();
    func.remove_op(l);
    for op in func.all_ops() {
        for n in 0..func.operands(op).len() {
            if let Some(k) = results.iter().position(|&r| r == func.operands(op)[n]) {
                func.set_operand(op, n, carried[k]);
            }
        }
    }
}

/// The part with that number.
fn fix(func: &mut Function, op: Op, number: i64) {
    let Some(source) = func.named_operand(op, "source") else { return };
    let mut offsets: SmallVec<[i64; 4]> =
        func.attr_ints(op, keys::OFFSETS).unwrap_or_default().into_iter().collect();
    let sizes = func.attr_ints(op, keys::SIZES).unwrap_or_default();
    if let (Some(at), Some(&width)) = (offsets.last_mut(), sizes.last()) {
        *at += number * width;
    }
    func.set_ints(op, keys::OFFSETS, &offsets);
    func.set_operands(op, &[source], &[1, 0]);
}

/// An op with its regions once more, without a place.
fn copy(func: &mut Function, op: Op, copies: &mut Copies) -> Op {
    let operands: SmallVec<[Value; 4]> =
        func.operands(op).iter().map(|&v| copies[v].expand().unwrap_or(v)).collect();
    let segments: SmallVec<[u32; 8]> = func.segments(op).into();
    let types: SmallVec<[Type; 2]> = func.results(op).iter().map(|&v| func.value_type(v)).collect();
    let new = func.make_op(func.opcode(op), &operands, &segments, &types, func.op_loc(op));
    *func.inherent_mut(new) = func.inherent(op).clone();
    *func.discardable_mut(new) = func.discardable(op).clone();
    for n in 0..types.len() {
        copies[func.results(op)[n]] = func.results(new)[n].into();
    }
    for r in 0..func.regions(op).len() {
        let Some(from) = func.op_block_at(op, r) else { continue };
        let to: Block = func.add_region(new);
        for p in SmallVec::<[Value; 4]>::from_slice(func.block_params(from)) {
            let ty = func.value_type(p);
            copies[p] = func.add_block_param(to, ty).into();
        }
        for inner in func.block_ops(from).collect::<SmallVec<[Op; 8]>>() {
            let inner = copy(func, inner, copies);
            func.append_op(to, inner);
        }
    }
    new
}
