//! Pointers that loops and branches hand on become counts.
//!
//! In: a verified kernel in value form. Out: the same, where each pointer that a loop carries or hands out, or a branch chooses, is
//! the number of elements between it and the one that it is moved on from ([`Opcode::Offset`]), in 64 bits; or nothing where none is handed on. So
//! every access names the memory that it goes to. Operations that name one variable (`global`) make one pointer. What may be moved on from one of two
//! stays a pointer: it may go away where the loop is written out, or be named by no access; else placement refuses the access.
//!
//! Cost: values that are handed on × depth of nesting.

use super::{Renames, copied, is_region};
use crate::ir::opcodes::keys;
use crate::ir::{AttrData, Function, Op, Opcode, Scalar, TypeData, Value, ValueDef};
use cranelift_entity::SecondaryMap;

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
    let mut chosen: Vec<(Value, Value)> = Vec::new();
    for &(v, ..) in &all {
        if let Some(root) = known(v)
            && !chosen.iter().any(|&(other, _)| other == v)
        {
            let root = at_the_top(&mut out, root);
            chosen.push((v, root));
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
    let mut done: Option<(Op, usize)> = None;
    for &(v, by, slot) in all.iter().filter(|&&(v, ..)| known(v).is_some()) {
        // A `for` hands the same on as argument and as result.
        if done.replace((by, slot)) != Some((by, slot)) {
            debug_assert!(is_pointer(func, v));
            let from = out.operands(by)[slot];
            let count = counted(&mut out, by, from);
            out.set_operand(by, slot, count);
        }
    }
    let number = out.intern_type(TypeData::Scalar(Scalar::I64));
    chosen.iter().for_each(|&(v, _)| out.set_value_type(v, number));
    Some(out)
}

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

/// What a pointer is moved on from.
fn base(func: &Function, mut v: Value) -> Value {
    while let Some(op) = func.defining_op(v)
        && matches!(func.opcode(op), Opcode::Offset | Opcode::Assume)
    {
        v = func.operands(op)[0];
    }
    v
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
    let mut again = true;
    while std::mem::take(&mut again) {
        for &(v, by, slot) in all {
            let from = base(func, func.operands(by)[slot]);
            let root = match func.defining_op(from) {
                _ if handed[from] => roots[from],
                Some(op) if func.opcode(op) == Opcode::Global => {
                    // The first that names the variable.
                    let name = func.attr_str(op, keys::NAME);
                    let same =
                        |o: &Op| func.opcode(*o) == Opcode::Global && func.attr_str(*o, keys::NAME) == name;
                    Root::Known(func.ops().find(same).and_then(|o| func.result(o)).unwrap_or(from))
                }
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
    }
    roots
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

/// How many elements a pointer is moved on from its base, before an op. Pointers that are handed on are such counts already.
fn counted(func: &mut Function, at: Op, mut v: Value) -> Value {
    let ty = func.intern_type(TypeData::Scalar(Scalar::I64));
    let put = |func: &mut Function, opcode: Opcode, operands: &[Value], segments: &[u32]| {
        let op = func.make_op(opcode, operands, segments, &[ty], func.op_loc(at));
        func.insert_before(at, op);
        (op, func.results(op)[0])
    };
    let mut sum = None;
    while let Some(op) = func.defining_op(v)
        && matches!(func.opcode(op), Opcode::Offset | Opcode::Assume)
    {
        v = func.operands(op)[0];
        let Some(&by) = func.operands(op).get(1).filter(|_| func.opcode(op) == Opcode::Offset) else {
            continue;
        };
        let wide = is_pointer(func, by) || func.value_data(by).elem() == Some(Scalar::I64);
        let by = if wide { by } else { put(func, Opcode::Exti, &[by], &[1]).1 };
        sum = Some(match sum {
            Some(sum) => put(func, Opcode::Addi, &[sum, by], &[1, 1]).1,
            None => by,
        });
    }
    sum.unwrap_or_else(|| {
        let (op, zero) = put(func, Opcode::Constant, &[], &[]);
        func.set_attr(op, keys::VALUE, AttrData::Int(0, None));
        zero
    })
}
