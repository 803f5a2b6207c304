//! Whether a stored tile has been written where an op reads it.
//!
//! In: the placed function, an op or a value at a place. Out: a [`Flag`], symbolic where control flow decides. A zero that
//! starts a loop occupies no storage: "not written yet" stands for it, and readers ask the flag. Cost: one walk over the ops
//! before the use, per loop around it.

use super::access::{accesses, is_stored};
use super::slice::{Ranges, base_of, covers, numbered_slice, part_of};
use crate::ir::{Function, Op, Opcode, Value, ValueDef};

/// Whether a web has been written when a value of it is current.
///
/// Kept symbolic, so that the common cases cost a comparison and nothing is carried.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Flag {
    /// Not written: the value is the zero constant.
    Never,
    /// Written.
    Always,
    /// Written unless this is the first trip of the loop.
    NotFirst(Op),
    /// Written if the loop made a trip.
    Trips(Op),
    /// Carried next to the value as an `i1` (an iteration argument or a result).
    Carried(Value),
    /// Either.
    Or(Box<Flag>, Box<Flag>),
}

impl Flag {
    fn or(self, other: Flag) -> Flag {
        match (self, other) {
            (Flag::Always, _) | (_, Flag::Always) => Flag::Always,
            (Flag::Never, f) | (f, Flag::Never) => f,
            (a, b) if a == b => a,
            (a, b) => Flag::Or(Box::new(a), Box::new(b)),
        }
    }
}

/// The flag for what an op reads: a dot's accumulator, the tile or slice that a copy reads.
pub fn flag_for(func: &Function, op: Op) -> Option<Flag> {
    match func.opcode(op) {
        Opcode::AsyncDot => {
            let acc = func.named_operand(op, "acc").filter(|&v| is_stored(func, v))?;
            Some(flag_of(func, acc, op))
        }
        Opcode::Copy => {
            let read = accesses(func, op).into_iter().find(|a| a.reads)?;
            let (base, part) = part_of(func, op, &read);
            if numbered_slice(func, read.value).is_some() {
                // Any part of it.
                return Some(flag_of(func, base, op));
            }
            let part = part.unwrap_or_else(|| whole(func, base));
            if parts_before(func, base, op).iter().any(|p| covers(p, &part)) {
                return Some(Flag::Always);
            }
            Some(by_definition(func, base))
        }
        _ => None,
    }
}

/// The flag of a whole stored value at a use.
pub fn flag_of(func: &Function, v: Value, at: Op) -> Flag {
    let base = base_of(func, v);
    if all_written(func, base, at) { Flag::Always } else { by_definition(func, base) }
}

/// All of a tile.
fn whole(func: &Function, v: Value) -> Ranges {
    func.value_data(v).dims().unwrap_or(&[]).iter().map(|&d| (0, i64::from(d))).collect()
}

/// What a copy in destination form writes of a tile.
fn written_part(func: &Function, op: Op, v: Value) -> Option<Ranges> {
    if func.opcode(op) != Opcode::Copy {
        return None;
    }
    let dest = func.named_operand(op, "dest").filter(|&d| base_of(func, d) == v)?;
    if numbered_slice(func, dest).is_some() {
        return None;
    }
    let write = accesses(func, op).into_iter().find(|a| a.writes)?;
    Some(part_of(func, op, &write).1.unwrap_or_else(|| whole(func, v)))
}

/// Parts of `v` that copies in destination form certainly wrote before `at` (since `v` became what it is).
fn parts_before(func: &Function, v: Value, at: Op) -> Vec<Ranges> {
    let mut out: Vec<Ranges> = Vec::new();
    let mut op = at;
    while let Some(block) = func.op_block(op) {
        for o in func.block_ops(block) {
            if o == op {
                break;
            }
            let Some(part) = written_part(func, o, v) else { continue };
            if !out.contains(&part) {
                out.push(part);
            }
        }
        let defined_here = match func.value_def(v) {
            ValueDef::Result(d, _) => func.op_block(d) == Some(block),
            ValueDef::Param(b, _) => b == block,
        };
        match func.block_parent(block) {
            Some(p) if !defined_here => op = p,
            _ => break,
        }
    }
    out
}

/// Whether the parts written before `at` make up the whole tile.
fn all_written(func: &Function, v: Value, at: Op) -> bool {
    let size = |p: &Ranges| p.iter().map(|r| (r.1 - r.0).unsigned_abs()).product::<u64>();
    let parts = parts_before(func, v, at);
    !parts.is_empty()
        && parts.iter().map(size).sum::<u64>() >= func.value_data(v).num_elements().unwrap_or(u64::MAX)
}

/// The flag of a stored value when nothing was written to it in place since its definition.
fn by_definition(func: &Function, v: Value) -> Flag {
    match func.value_def(v) {
        ValueDef::Result(op, n) => match func.opcode(op) {
            Opcode::Constant => Flag::Never,
            Opcode::For => loop_flag(func, v, op, n as usize, Flag::Trips(op)),
            Opcode::If => {
                let n = n as usize;
                let arm = |r| match (func.region_yields(op, r).get(n), func.terminator(op, r)) {
                    (Some(&y), Some(t)) => flag_of(func, y, t),
                    _ => Flag::Always,
                };
                match (arm(0), arm(1)) {
                    (Flag::Always, Flag::Always) => Flag::Always,
                    (Flag::Never, Flag::Never) => Flag::Never,
                    _ => Flag::Carried(v),
                }
            }
            _ => Flag::Always,
        },
        ValueDef::Param(b, n) => match (func.block_parent(b), (n as usize).checked_sub(1)) {
            (Some(op), Some(n)) => loop_flag(func, v, op, n, Flag::NotFirst(op)),
            _ => Flag::Always,
        },
    }
}

/// The flag of argument or result `n` of a loop; `later` is what a trip adds to the start.
fn loop_flag(func: &Function, v: Value, op: Op, n: usize, later: Flag) -> Flag {
    let (Some(&init), Some(&y)) = (func.named_segment(op, "inits").get(n), func.region_yields(op, 0).get(n))
    else {
        return Flag::Always;
    };
    let unchanged = || Some(handed_on(func, y, *func.for_args(op).get(n)?, func.terminator(op, 0)?));
    match flag_of(func, init, op) {
        Flag::Always => Flag::Always,
        start if unchanged() == Some(true) => start,
        start if func.terminator(op, 0).is_some_and(|t| written_always(func, y, t)) => start.or(later),
        _ => Flag::Carried(v),
    }
}

/// Whether a value is at `at` what `arg` was when the iteration of its loop began, and nothing was written to it since.
fn handed_on(func: &Function, v: Value, arg: Value, at: Op) -> bool {
    let base = base_of(func, v);
    if all_written(func, base, at) {
        return false;
    }
    let ValueDef::Result(op, n) = func.value_def(base) else { return base == arg };
    let n = n as usize;
    let yielded = |r: usize, arg: Value| {
        let y = func.region_yields(op, r).get(n).zip(func.terminator(op, r));
        y.is_some_and(|(&y, t)| handed_on(func, y, arg, t))
    };
    match func.opcode(op) {
        Opcode::If => yielded(0, arg) && yielded(1, arg),
        Opcode::For => {
            let init = func.named_segment(op, "inits").get(n);
            init.is_some_and(|&i| handed_on(func, i, arg, op))
                && func.for_args(op).get(n).is_some_and(|&own| yielded(0, own))
        }
        _ => false,
    }
}

/// Whether a value is written at `at` whatever its loop's argument was.
fn written_always(func: &Function, y: Value, at: Op) -> bool {
    let base = base_of(func, y);
    if all_written(func, base, at) {
        return true;
    }
    match func.value_def(base) {
        ValueDef::Param(..) => false,
        ValueDef::Result(op, n) => match func.opcode(op) {
            Opcode::Constant => false,
            Opcode::If => {
                (0..2).all(|r| match (func.region_yields(op, r).get(n as usize), func.terminator(op, r)) {
                    (Some(&y), Some(t)) => written_always(func, y, t),
                    _ => false,
                })
            }
            // A nested loop may make no trip; its init decides then.
            Opcode::For => {
                func.named_segment(op, "inits").get(n as usize).is_some_and(|&i| written_always(func, i, op))
            }
            _ => true,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cranelift_entity::EntityRef;

    #[test]
    fn flags_simplify() {
        let l = Op::new(3);
        assert_eq!(Flag::Never.or(Flag::Trips(l)), Flag::Trips(l));
        assert_eq!(Flag::Always.or(Flag::Trips(l)), Flag::Always);
        assert_eq!(Flag::Trips(l).or(Flag::Trips(l)), Flag::Trips(l));
    }
}
