//! Pointers that loops and branches hand on become counts.
//!
//! In: a kernel in value form whose loops and branches have one way out. Out: the same, where each pointer that a `for` carries or an `if` chooses is
//! the number of elements between it and what it is moved on from ([`Opcode::Offset`]), in 64 bits; or nothing where none is handed on. So every access
//! names the memory that it goes to.
//!
//! Errors: E0804 where a pointer may be moved on from one of two. Cost: ops × depth of nesting.

use super::{Renames, is_region};
use crate::error::{Code, CodegenError, CodegenResult, Loc};
use crate::ir::opcodes::keys;
use crate::ir::{AttrData, Function, Op, Opcode, Scalar, TypeData, Value, ValueDef};
use cranelift_entity::SecondaryMap;
use cranelift_entity::packed_option::PackedOption;
use smallvec::SmallVec;

/// Counts pointers that are handed on; `None`: there are none. `spare` is a function that is no longer needed.
///
/// # Errors
/// E0804.
pub fn count(func: &Function, spare: &mut Option<Function>) -> CodegenResult<Option<Function>> {
    let hands_on =
        |op: Op| is_region(func.opcode(op)) && func.results(op).iter().any(|&v| is_pointer(func, v));
    if !func.ops().any(hands_on) {
        return Ok(None);
    }
    let roots = roots(func)?;
    let mut out = func.copy_in(spare.take());
    let chosen: Vec<(Value, Value)> =
        roots.iter().filter_map(|(v, root)| Some((v, root.expand()?))).collect();
    // The pointers again, for all that used them.
    let (mut renamed, mut made) = (Renames::default(), Vec::with_capacity(chosen.len()));
    for &(v, root) in &chosen {
        let (ty, loc) = (out.value_type(v), place_of(&out, v));
        let op = out.make_op(Opcode::Offset, &[root, v], &[1, 1], &[ty], loc);
        renamed.set(v, out.results(op)[0]);
        made.push(op);
    }
    renamed.apply(&mut out);
    for (&(v, _), op) in chosen.iter().zip(made) {
        match out.value_def(v) {
            ValueDef::Result(by, _) => out.insert_after(by, op),
            ValueDef::Param(block, _) => match out.first_op(block) {
                Some(first) => out.insert_before(first, op),
                None => out.append_op(block, op),
            },
        }
    }
    for op in func.all_ops() {
        for n in 0..func.results(op).len() {
            for (by, slot) in sources(func, op, n) {
                let from = out.operands(by)[slot];
                let count = counted(&mut out, by, from);
                out.set_operand(by, slot, count);
            }
        }
    }
    let number = out.intern_type(TypeData::Scalar(Scalar::I64));
    chosen.iter().for_each(|&(v, _)| out.set_value_type(v, number));
    Ok(Some(out))
}

fn is_pointer(func: &Function, v: Value) -> bool {
    matches!(func.value_data(v), TypeData::Ptr { .. })
}

fn place_of(func: &Function, v: Value) -> Loc {
    match func.value_def(v) {
        ValueDef::Result(op, _) => func.op_loc(op),
        ValueDef::Param(block, _) => func.block_parent(block).map_or(func.loc, |op| func.op_loc(op)),
    }
}

/// Where result `n` of an op, a pointer that it hands on, comes from: ops and numbers of their operands.
fn sources(func: &Function, op: Op, n: usize) -> SmallVec<[(Op, usize); 2]> {
    let mut all = SmallVec::new();
    if !is_region(func.opcode(op)) || !is_pointer(func, func.results(op)[n]) {
        return all;
    }
    if func.opcode(op) == Opcode::For {
        all.push((op, func.operands(op).len() - func.named_segment(op, "inits").len() + n));
    }
    let ends = (0..func.regions(op).len()).filter_map(|r| func.terminator(op, r));
    all.extend(ends.filter(|&end| func.opcode(end) == Opcode::Yield).map(|end| (end, n)));
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

/// By pointer that is handed on: what all it may be are moved on from.
fn roots(func: &Function) -> CodegenResult<SecondaryMap<Value, PackedOption<Value>>> {
    let mut roots: SecondaryMap<Value, PackedOption<Value>> = SecondaryMap::new();
    let mut again = true;
    while std::mem::take(&mut again) {
        for op in func.all_ops() {
            for n in 0..func.results(op).len() {
                for (by, slot) in sources(func, op, n) {
                    let from = base(func, func.operands(by)[slot]);
                    let handed = match func.value_def(from) {
                        ValueDef::Result(op, _) => is_region(func.opcode(op)),
                        ValueDef::Param(block, _) => block != func.entry(),
                    };
                    let Some(root) = (if handed { roots[from].expand() } else { Some(from) }) else {
                        continue;
                    };
                    let result = func.results(op)[n];
                    match roots[result].expand() {
                        Some(other) if other == root => {}
                        None if is_seen(func, root, op) => {
                            roots[result] = root.into();
                            if let Some(&param) = func.for_args(op).get(n) {
                                roots[param] = root.into();
                            }
                            again = true;
                        }
                        other => {
                            let which = |how: &str, v: Value| {
                                func.value_name(v).map(|name| format!("{how} `%{name}`")).unwrap_or_default()
                            };
                            let text = format!(
                                "which of two pointers `{}` hands on{} is known only when the kernel runs. Access each in an arm of its own, or hand on \
                                 addresses (`ptr_to_int`, `int_to_ptr`)",
                                func.opcode(op).name(),
                                which(" as", result)
                            );
                            let mut e = CodegenError::new(Code::E0804, func.op_loc(op), text);
                            for v in [Some(root), other].into_iter().flatten() {
                                e = e.note(
                                    place_of(func, v),
                                    format!("one is moved on from this pointer{}", which(",", v)),
                                );
                            }
                            return Err(e);
                        }
                    }
                }
            }
        }
    }
    Ok(roots)
}

/// Whether a value is known where an op stands, not only inside of it.
fn is_seen(func: &Function, v: Value, op: Op) -> bool {
    let home = match func.value_def(v) {
        ValueDef::Result(by, _) => func.op_block(by),
        ValueDef::Param(block, _) => Some(block),
    };
    let mut block = func.op_block(op);
    while let Some(at) = block {
        if Some(at) == home {
            return true;
        }
        block = func.block_parent(at).and_then(|op| func.op_block(op));
    }
    false
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
