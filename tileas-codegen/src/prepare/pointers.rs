//! Pointers that loops and branches hand on become counts.
//!
//! In: a verified kernel in value form. Out: the same, where each pointer that a loop carries or hands out, or a branch chooses, is
//! the number of elements between it and the one that it is moved on from ([`Opcode::Offset`]), in 64 bits; or nothing where none is handed on. So
//! every access names the memory that it goes to. Operations that name one variable (`global`) make one pointer. What may be moved on from one of two
//! stays a pointer: it may go away where the loop is written out, or be named by no access; else placement refuses the access.
//!
//! Cost: linear in ops and operands, as often as loops hand on what others do, 64 times at most.

use super::{Renames, copied, is_region};
use crate::ir::opcodes::keys;
use crate::ir::{AttrData, Function, Op, Opcode, Scalar, TypeData, Value, ValueDef};
use cranelift_entity::SecondaryMap;
use cranelift_entity::packed_option::PackedOption;
use smallvec::SmallVec;
use std::collections::BTreeMap;

/// Passes over what is handed on until all is known; where more are needed all stay pointers.
const MOST_PASSES: usize = 64;

/// Counts pointers that are handed on; `None`: there are none. `spare` is a function that is no longer needed.
pub fn count(func: &Function, spare: &mut Option<Function>) -> Option<Function> {
    let all = sources(func);
    if all.is_empty() {
        return None;
    }
    let roots = roots(func, &all);
    let known = |v: Value| match roots[v] {
        Root::Known(root) => Some(root),
        Root::Open | Root::Several => None,
    };
    let mut out = func.copy_in(spare.take());
    let mut tops = Values::new();
    let mut seen: SecondaryMap<Value, bool> = SecondaryMap::new();
    let mut chosen: Vec<(Value, Value)> = Vec::new();
    for &(v, ..) in &all {
        if let Some(root) = known(v)
            && !std::mem::replace(&mut seen[v], true)
        {
            let top = tops[root].expand().unwrap_or_else(|| at_the_top(&mut out, root));
            tops[root] = top.into();
            chosen.push((v, top));
        }
    }
    // The pointers again, for all that used them.
    let (mut renamed, mut made) = (Renames::default(), Vec::with_capacity(chosen.len()));
    for &(v, root) in &chosen {
        let (ty, at) = (out.value_type(v), out.value_def(v));
        let loc = match at {
            ValueDef::Result(op, _) => out.op_loc(op),
            ValueDef::Param(block, _) => out.block_parent(block).map_or(out.loc, |op| out.op_loc(op)),
        };
        let op = out.make_op(Opcode::Offset, &[root, v], &[1, 1], &[ty], loc);
        renamed.set(v, out.results(op)[0]);
        made.push((at, op));
    }
    renamed.apply(&mut out);
    for (at, op) in made {
        match at {
            ValueDef::Result(by, _) => out.insert_after(by, op),
            ValueDef::Param(block, _) => match out.first_op(block) {
                Some(first) => out.insert_before(first, op),
                None => out.append_op(block, op),
            },
        }
    }
    // By pointer: elements between it and its base.
    let mut counts = Values::new();
    chosen.iter().for_each(|&(v, _)| counts[renamed.of(v)] = v.into());
    let mut done: Option<(Op, usize)> = None;
    for &(v, by, slot) in all.iter().filter(|&&(v, ..)| known(v).is_some()) {
        // A `for` hands the same on as argument and as result.
        if done.replace((by, slot)) != Some((by, slot)) {
            debug_assert!(is_pointer(func, v));
            let from = out.operands(by)[slot];
            let count = counted(&mut out, &mut counts, by, from);
            out.set_operand(by, slot, count);
        }
    }
    let number = out.intern_type(TypeData::Scalar(Scalar::I64));
    chosen.iter().for_each(|&(v, _)| out.set_value_type(v, number));
    Some(out)
}

type Values = SecondaryMap<Value, PackedOption<Value>>;

fn is_pointer(func: &Function, v: Value) -> bool {
    matches!(func.value_data(v), TypeData::Ptr { .. })
}

/// All places that pointers which are handed on come from: the pointer, an op and the number of its operand.
fn sources(func: &Function) -> Vec<(Value, Op, usize)> {
    let mut all = Vec::new();
    for op in func.ops() {
        let opcode = func.opcode(op);
        // Behind `skipped` operands, what goes to arguments of the loop, and what to results.
        let (to, skipped) = match opcode {
            Opcode::For => (op, func.operands(op).len() - func.named_segment(op, "inits").len()),
            Opcode::Loop => (op, 0),
            Opcode::Yield | Opcode::Continue | Opcode::Break => {
                let around = std::iter::successors(func.op_parent(op), |&at| func.op_parent(at));
                let is_loop = |at: Op| matches!(func.opcode(at), Opcode::Loop | Opcode::For);
                match around.into_iter().find(|&at| match opcode {
                    Opcode::Yield => true,
                    Opcode::Break => func.opcode(at) == Opcode::Loop,
                    _ => is_loop(at),
                }) {
                    Some(to) => (to, 0),
                    None => continue,
                }
            }
            _ => continue,
        };
        let kind = func.opcode(to);
        let carried: &[Value] = match kind {
            Opcode::For => func.for_args(to),
            Opcode::Loop => func.op_block_at(to, 0).map_or(&[], |b| func.block_params(b)),
            Opcode::If => &[],
            _ => continue,
        };
        let (carries, results) = (opcode != Opcode::Break, kind != Opcode::Loop || opcode == Opcode::Break);
        for slot in skipped..func.operands(op).len() {
            let n = slot - skipped;
            let handed = [carried.get(n).filter(|_| carries), func.results(to).get(n).filter(|_| results)];
            all.extend(
                handed.into_iter().flatten().filter(|&&v| is_pointer(func, v)).map(|&v| (v, op, slot)),
            );
        }
    }
    all
}

/// By pointer that is moved on: from what. A variable is what names it first.
fn bases(func: &Function) -> Values {
    let (mut bases, mut variables) = (Values::new(), BTreeMap::new());
    for op in func.ops() {
        let Some(v) = func.result(op) else { continue };
        match func.opcode(op) {
            Opcode::Offset | Opcode::Assume if is_pointer(func, v) => {
                let from = func.operands(op)[0];
                bases[v] = bases[from].expand().unwrap_or(from).into();
            }
            Opcode::Global => {
                let first = *variables.entry(func.attr_str(op, keys::NAME)).or_insert(v);
                bases[v] = first.into();
            }
            _ => {}
        }
    }
    bases
}

/// What a pointer that is handed on is moved on from.
#[derive(Copy, Clone, PartialEq, Eq, Default)]
enum Root {
    /// Not seen yet.
    #[default]
    Open,
    Known(Value),
    Several,
}

/// By pointer that is handed on: what all it may be are moved on from.
fn roots(func: &Function, all: &[(Value, Op, usize)]) -> SecondaryMap<Value, Root> {
    let mut roots: SecondaryMap<Value, Root> = SecondaryMap::new();
    let mut handed: SecondaryMap<Value, bool> = SecondaryMap::new();
    all.iter().for_each(|&(v, ..)| handed[v] = true);
    let bases = bases(func);
    for _ in 0..MOST_PASSES {
        let mut again = false;
        for &(v, by, slot) in all {
            let from = func.operands(by)[slot];
            let from = bases[from].expand().unwrap_or(from);
            let root = match func.defining_op(from) {
                _ if handed[from] => roots[from],
                Some(op) if is_region(func.opcode(op)) || func.opcode(op) == Opcode::Loop => Root::Several,
                _ => Root::Known(from),
            };
            let new = match (roots[v], root) {
                (old, Root::Open) => old,
                (Root::Open, Root::Known(root)) if !is_seen(func, root, v) => Root::Several,
                (Root::Open, root) => root,
                (old, root) if old == root => old,
                _ => Root::Several,
            };
            again |= new != roots[v];
            roots[v] = new;
        }
        if !again {
            return roots;
        }
    }
    SecondaryMap::with_default(Root::Several)
}

/// Whether a pointer is known where another one is handed on, not only inside of that.
fn is_seen(func: &Function, v: Value, handed: Value) -> bool {
    let home = match func.value_def(v) {
        // Written again where it is missing.
        ValueDef::Result(by, _) if func.opcode(by) == Opcode::Global => return true,
        ValueDef::Result(by, _) => func.op_block(by),
        ValueDef::Param(block, _) => Some(block),
    };
    let op = match func.value_def(handed) {
        ValueDef::Result(op, _) => Some(op),
        ValueDef::Param(block, _) => func.block_parent(block),
    };
    let mut block = op.and_then(|op| func.op_block(op));
    while let Some(at) = block {
        if Some(at) == home {
            return true;
        }
        block = func.block_parent(at).and_then(|op| func.op_block(op));
    }
    false
}

/// A root that all can use: a variable that is named somewhere inside is named once more at the top.
fn at_the_top(func: &mut Function, root: Value) -> Value {
    let Some(op) = func.defining_op(root).filter(|&op| func.opcode(op) == Opcode::Global) else {
        return root;
    };
    let entry = func.entry();
    let name = func.attr_str(op, keys::NAME).map(str::to_owned);
    let same = |o: &Op| {
        func.opcode(*o) == Opcode::Global && func.attr_str(*o, keys::NAME).map(str::to_owned) == name
    };
    let first = func.block_ops(entry).find(same);
    if let Some(v) = first.and_then(|o| func.result(o))
        && (first == Some(op) || func.first_op(entry) == first)
    {
        return v;
    }
    let new = copied(func, op, |v| v);
    match func.first_op(entry) {
        Some(first) => func.insert_before(first, new),
        None => func.append_op(entry, new),
    }
    func.results(new)[0]
}

/// How many elements a pointer is moved on from its base, for an op that hands it on; computed where it is moved.
fn counted(func: &mut Function, counts: &mut Values, at: Op, v: Value) -> Value {
    let ty = func.intern_type(TypeData::Scalar(Scalar::I64));
    let put = |func: &mut Function, after: Op, opcode: Opcode, operands: &[Value], segments: &[u32]| {
        let op = func.make_op(opcode, operands, segments, &[ty], func.op_loc(after));
        func.insert_after(after, op);
        op
    };
    let (mut from, mut moves) = (v, SmallVec::<[Op; 4]>::new());
    let mut sum = loop {
        if let Some(known) = counts[from].expand() {
            break Some(known);
        }
        match func.defining_op(from) {
            Some(op) if matches!(func.opcode(op), Opcode::Offset | Opcode::Assume) => {
                moves.push(op);
                from = func.operands(op)[0];
            }
            _ => break None,
        }
    };
    for op in moves.into_iter().rev() {
        if func.opcode(op) == Opcode::Offset {
            let (by, mut last) = (func.operands(op)[1], op);
            let mut wide = by;
            if func.value_data(by).elem() != Some(Scalar::I64) {
                last = put(func, last, Opcode::Exti, &[by], &[1]);
                wide = func.results(last)[0];
            }
            sum = Some(match sum {
                Some(sum) => {
                    let op = put(func, last, Opcode::Addi, &[sum, wide], &[1, 1]);
                    func.results(op)[0]
                }
                None => wide,
            });
        }
        if let (Some(sum), Some(v)) = (sum, func.result(op)) {
            counts[v] = sum.into();
        }
    }
    sum.unwrap_or_else(|| {
        let op = func.make_op(Opcode::Constant, &[], &[], &[ty], func.op_loc(at));
        func.set_attr(op, keys::VALUE, AttrData::Int(0, None));
        func.insert_before(at, op);
        func.results(op)[0]
    })
}
