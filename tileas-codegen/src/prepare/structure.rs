//! Loops and branches with one way in and one way out.
//!
//! In: a verified kernel in value form. Out: the same without `loop`, `break`, `continue` and early `return`, or nothing where it
//! has none of them. All later stages know two regions: a `for`, which runs to its bound or to its `exit_if`, and an `if`, whose
//! arms both go on behind it.
//!
//! - A `loop` that first compares a counter with a bound, leaves if it is not below, and adds a constant to it, is a `for` up to that bound: it
//!   can be pipelined.
//! - Any other `loop` is a `for` that counts to 2^31 - 1 and carries what `break` and `continue` hand on; `exit_if` asks whether it
//!   was a `break`. One iteration runs after the other.
//! - What follows a branch with an arm that leaves goes into the other arm. Where both arms may go on, the branch says whether it
//!   did, and what follows is in a branch on that.
//! - A loop with `return` in it ends there, and carries whether it did; behind it a branch on that returns, or leaves the loop around.
//!
//! Guarantee: order, names and attributes of the ops stay; no op is written twice; what the kernel computes stays. Errors: E0802 where
//! a value that only some ways define has a type without constants, E1012 where more branches leave one loop than [`MOST_LEAVING`].
//! Cost: ops × branches that leave.

use super::Renames;
use super::unroll::constant;
use crate::error::{Code, CodegenError, CodegenResult};
use crate::ir::opcodes::{Traits, keys};
use crate::ir::{AttrData, Block, Function, Op, Opcode, Scalar, Type, TypeData, Value, ValueDef};
use cranelift_entity::EntitySet;
use smallvec::SmallVec;

/// Branches that leave one loop, or the kernel, at most: each may nest what follows it deeper.
pub const MOST_LEAVING: usize = 64;

/// Gives loops and branches one way out; `None`: they have no other. `spare` is a function that is no longer needed.
///
/// # Errors
/// E0802, E1012.
pub fn structure(func: &Function, spare: &mut Option<Function>) -> CodegenResult<Option<Function>> {
    let early = |op: Op| func.opcode(op) == Opcode::Return && func.op_parent(op).is_some();
    if !func.ops().any(|op| matches!(func.opcode(op), Opcode::Loop | Opcode::Continue) || early(op)) {
        return Ok(None);
    }
    let returns = func.ops().any(early);
    let mut out = func.copy_in(spare.take());
    let mut renamed = Renames::default();
    // What stands inside comes later: it is done first, so that no loop is inside another that leaves.
    for op in out.all_ops().into_iter().rev() {
        match out.opcode(op) {
            Opcode::Loop => open_loop(&mut out, &mut renamed, op)?,
            Opcode::For => close_for(&mut out, &mut renamed, op)?,
            _ => {}
        }
    }
    if returns {
        let entry = out.entry();
        let end = out.last_op(entry).map_or(out.loc, |op| out.op_loc(op));
        let mut w = Writer::new(&mut out, &mut renamed, entry, SmallVec::new())?;
        w.run(entry, &[])?;
        let ret = out.make_op(Opcode::Return, &[], &[], &[], end);
        out.append_op(entry, ret);
    }
    renamed.apply(&mut out);
    Ok(Some(out))
}

/// What is known before the kernel runs, or a value.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Flag {
    Known(bool),
    Value(Value),
}

/// What is true behind a block, and which values are known there. `None`: not on this way, or what was carried into the iteration.
#[derive(Clone)]
struct Outcome {
    /// Whether the arm goes on behind its branch.
    falls: Flag,
    /// What it then yields.
    yields: SmallVec<[Option<Value>; 4]>,
    /// Whether the loop ends.
    stops: Flag,
    /// What the loop then carries.
    slots: SmallVec<[Option<Value>; 4]>,
}

/// A place for what `break` and `continue` hand on.
#[derive(Copy, Clone)]
struct Slot {
    /// What the loop carries there.
    arg: Value,
    /// Which value of `continue`.
    next: Option<usize>,
    /// Which value of `break`.
    result: Option<usize>,
    /// Whether the loop ended by `return`.
    returned: bool,
}

/// Rewrites what leaves one loop, or the kernel.
struct Writer<'a> {
    func: &'a mut Function,
    renamed: &'a mut Renames,
    /// Branches with a way that leaves.
    leaving: EntitySet<Op>,
    slots: SmallVec<[Slot; 4]>,
}

impl<'a> Writer<'a> {
    fn new(
        func: &'a mut Function,
        renamed: &'a mut Renames,
        body: Block,
        slots: SmallVec<[Slot; 4]>,
    ) -> CodegenResult<Writer<'a>> {
        let (mut leaving, mut count, mut last) = (EntitySet::new(), 0, None);
        let inner = |op: Op| matches!(func.opcode(op), Opcode::Break | Opcode::Continue | Opcode::Return);
        func.walk(body, &mut |op| {
            if !inner(op) || func.op_block(op) == Some(body) {
                return;
            }
            let mut at = func.op_parent(op);
            while let Some(p) = at.filter(|&p| leaving.insert(p)) {
                (count, last) = (count + 1, Some(p));
                at = func.op_parent(p).filter(|_| func.op_block(p) != Some(body));
            }
        });
        match last.filter(|_| count > MOST_LEAVING) {
            Some(op) => Err(CodegenError::new(
                Code::E1012,
                func.op_loc(op),
                format!("{count} branches leave one loop or kernel, expected at most {MOST_LEAVING}"),
            )),
            None => Ok(Writer { func, renamed, leaving, slots }),
        }
    }

    /// Whether an arm goes on behind its branch on some way.
    fn can_fall(&self, arm: Block) -> bool {
        let func = &*self.func;
        let passes = |op: Op| {
            !self.leaving.contains(op)
                || (0..2).any(|n| func.op_block_at(op, n).is_some_and(|b| self.can_fall(b)))
        };
        func.last_op(arm).is_some_and(|t| func.opcode(t) == Opcode::Yield) && func.block_ops(arm).all(passes)
    }

    /// Rewrites a block so that it ends where its ops end, without terminator. `types` are what its branch results in.
    fn run(&mut self, block: Block, types: &[Type]) -> CodegenResult<Outcome> {
        let found = self.func.block_ops(block).find(|&op| self.leaving.contains(op));
        let Some(branch) = found else { return self.end(block, types) };
        let rest: SmallVec<[Op; 16]> =
            std::iter::successors(self.func.next_op(branch), |&op| self.func.next_op(op)).collect();
        let arms: SmallVec<[Block; 2]> = (0..2).filter_map(|n| self.func.op_block_at(branch, n)).collect();
        let &[then, otherwise] = arms.as_slice() else { return self.end(block, types) };
        let results: SmallVec<[Value; 4]> = self.func.results(branch).into();
        let of_results: SmallVec<[Type; 4]> = results.iter().map(|&v| self.func.value_type(v)).collect();
        match [then, otherwise].map(|b| self.can_fall(b)) {
            [true, true] => {
                let outcomes = [self.run(then, &of_results)?, self.run(otherwise, &of_results)?];
                let out = self.join(branch, outcomes, &of_results)?;
                for (&r, v) in results.iter().zip(&out.yields) {
                    // Behind the branch only what falls through reads them.
                    if let Some(v) = *v {
                        self.stand_for(r, v);
                    }
                }
                let Flag::Value(falls) = out.falls else { return self.run(block, types) };
                let loc = self.func.op_loc(branch);
                let guard = self.func.make_op(Opcode::If, &[falls], &[1], &[], loc);
                self.func.append_op(block, guard);
                let inner = self.func.add_region(guard);
                self.func.add_region(guard);
                self.move_to(inner, &rest);
                let past = Outcome {
                    falls: Flag::Known(false),
                    yields: SmallVec::from_elem(None, types.len()),
                    ..out
                };
                let outcomes = [self.run(inner, types)?, past];
                self.join(guard, outcomes, types)
            }
            [false, false] => {
                for &op in rest.iter().rev() {
                    self.func.remove_op(op);
                }
                let outcomes = [self.run(then, types)?, self.run(otherwise, types)?];
                self.join(branch, outcomes, types)
            }
            [goes_on, _] => {
                let arm = if goes_on { then } else { otherwise };
                self.open_arm(arm, &results, &rest);
                let outcomes = [self.run(then, types)?, self.run(otherwise, types)?];
                self.join(branch, outcomes, types)
            }
        }
    }

    /// A value takes the place of another, and its name if it has none.
    fn stand_for(&mut self, from: Value, to: Value) {
        if self.func.value_sym(to).is_none() {
            self.renamed.succeed(self.func, from, to);
        } else {
            self.renamed.set(from, to);
        }
    }

    fn move_to(&mut self, block: Block, ops: &[Op]) {
        for &op in ops {
            self.func.remove_op(op);
            self.func.append_op(block, op);
        }
    }

    /// Puts what follows a branch behind the ops of the arm that goes on.
    fn open_arm(&mut self, arm: Block, results: &[Value], rest: &[Op]) {
        // The arm may have ways of its own that leave: their outcome must not be taken for a value of the branch.
        if let Some(t) = self.func.last_op(arm) {
            let given: SmallVec<[Value; 4]> = self.func.operands(t).into();
            for (&r, &v) in results.iter().zip(&given) {
                let v = self.renamed.of(v);
                self.stand_for(r, v);
            }
            self.func.remove_op(t);
        }
        self.move_to(arm, rest);
    }

    /// What the terminator of a block says; it is removed.
    fn end(&mut self, block: Block, types: &[Type]) -> CodegenResult<Outcome> {
        let mut out = Outcome {
            falls: Flag::Known(false),
            yields: SmallVec::from_elem(None, types.len()),
            stops: Flag::Known(false),
            slots: SmallVec::from_elem(None, self.slots.len()),
        };
        let Some(t) = self.func.last_op(block) else { return Ok(out) };
        let given: SmallVec<[Value; 8]> = self.func.operands(t).iter().map(|&v| self.renamed.of(v)).collect();
        let opcode = self.func.opcode(t);
        let goes_on = opcode == Opcode::Yield;
        let exit = self.func.prev_op(t).filter(|&e| self.func.opcode(e) == Opcode::ExitIf);
        if opcode == Opcode::Return {
            out.stops = Flag::Known(true);
            if let Some(n) = self.slots.iter().position(|s| s.returned) {
                let i1 = self.func.scalar(Scalar::I1);
                out.slots[n] = Some(self.filler(block, i1, 1, t)?);
            }
        } else if goes_on {
            out.falls = Flag::Known(true);
            out.yields = given.iter().map(|&v| Some(v)).collect();
        } else if opcode == Opcode::Break {
            out.stops = Flag::Known(true);
            out.slots = self.slots.iter().map(|s| s.result.and_then(|n| given.get(n).copied())).collect();
        } else {
            out.slots = self.slots.iter().map(|s| s.next.and_then(|n| given.get(n).copied())).collect();
        }
        self.func.remove_op(t);
        if let Some(e) = exit.filter(|_| !goes_on) {
            out.stops = Flag::Value(self.renamed.of(self.func.operands(e)[0]));
            self.func.remove_op(e);
        }
        Ok(out)
    }

    /// Whether a value is known in front of a branch.
    fn is_outside(&self, v: Value, branch: Op) -> bool {
        let mut block = match self.func.value_def(v) {
            ValueDef::Result(op, _) => self.func.op_block(op),
            ValueDef::Param(b, _) => Some(b),
        };
        while let Some(b) = block {
            let around = self.func.block_parent(b);
            if around == Some(branch) {
                return false;
            }
            block = around.and_then(|op| self.func.op_block(op));
        }
        true
    }

    /// Puts a branch in the place of one, whose arms end without terminators, at the end of its block: it results in what
    /// differs between the arms.
    fn join(&mut self, branch: Op, [a, b]: [Outcome; 2], types: &[Type]) -> CodegenResult<Outcome> {
        let Some(block) = self.func.op_block(branch) else { return Ok(a) };
        let loc = self.func.op_loc(branch);
        let condition = self.renamed.of(self.func.operands(branch)[0]);
        let arms: SmallVec<[Block; 2]> = (0..2).filter_map(|n| self.func.op_block_at(branch, n)).collect();
        let i1 = self.func.scalar(Scalar::I1);
        let mut given: [SmallVec<[Value; 8]>; 2] = Default::default();
        let mut result_types: SmallVec<[Type; 8]> = SmallVec::new();
        let mut merged: SmallVec<[Part; 8]> = SmallVec::new();
        for (x, y) in [(a.falls, b.falls), (a.stops, b.stops)] {
            merged.push(match (x, y) {
                _ if x == y => match x {
                    Flag::Known(k) => Part::Known(k),
                    Flag::Value(v) => Part::Outside(Some(v)),
                },
                (Flag::Known(true), Flag::Known(false)) => Part::Outside(Some(condition)),
                (Flag::Known(false), Flag::Known(true)) => Part::Negated,
                _ => {
                    for (n, f) in [x, y].into_iter().enumerate() {
                        let v = match f {
                            Flag::Value(v) => v,
                            Flag::Known(k) => self.filler(arms[n], i1, i64::from(k), branch)?,
                        };
                        given[n].push(v);
                    }
                    result_types.push(i1);
                    Part::Result(given[0].len() - 1)
                }
            });
        }
        let args: SmallVec<[(Type, Option<Value>); 8]> = types
            .iter()
            .map(|&t| (t, None))
            .chain(self.slots.iter().map(|s| (self.func.value_type(s.arg), Some(s.arg))))
            .collect();
        let pairs = a.yields.iter().zip(&b.yields).chain(a.slots.iter().zip(&b.slots));
        let pairs: SmallVec<[_; 8]> = pairs.map(|(x, y)| [*x, *y]).collect();
        for (pair, &(ty, arg)) in pairs.into_iter().zip(&args) {
            let part = match pair {
                [None, None] => Part::Outside(None),
                [Some(x), Some(y)] if x == y => Part::Outside(Some(x)),
                [Some(v), None] | [None, Some(v)] if self.is_outside(v, branch) => Part::Outside(Some(v)),
                _ => {
                    for (n, v) in pair.into_iter().enumerate() {
                        let v = match v.or(arg) {
                            Some(v) => v,
                            None => self.filler(arms[n], ty, 0, branch)?,
                        };
                        given[n].push(v);
                    }
                    result_types.push(ty);
                    Part::Result(given[0].len() - 1)
                }
            };
            merged.push(part);
        }
        let new = self.func.make_op(Opcode::If, &[condition], &[1], &result_types, loc);
        *self.func.inherent_mut(new) = self.func.inherent(branch).clone();
        *self.func.discardable_mut(new) = self.func.discardable(branch).clone();
        self.func.insert_before(branch, new);
        for (n, &arm) in arms.iter().enumerate() {
            let to = self.func.add_region(new);
            let ops: SmallVec<[Op; 16]> = self.func.block_ops(arm).collect();
            self.move_to(to, &ops);
            let end = self.func.make_op(Opcode::Yield, &given[n], &[given[n].len() as u32], &[], loc);
            self.func.append_op(to, end);
        }
        self.func.remove_op(branch);
        let mut out = Outcome {
            falls: Flag::Known(false),
            yields: SmallVec::new(),
            stops: Flag::Known(false),
            slots: SmallVec::new(),
        };
        for (n, part) in merged.into_iter().enumerate() {
            let value = match part {
                Part::Known(k) => {
                    *(if n == 0 { &mut out.falls } else { &mut out.stops }) = Flag::Known(k);
                    continue;
                }
                Part::Outside(v) => v,
                Part::Negated => Some(self.negated(condition, block, new)),
                Part::Result(k) => Some(self.func.results(new)[k]),
            };
            match (n, value) {
                (0, Some(v)) => out.falls = Flag::Value(v),
                (1, Some(v)) => out.stops = Flag::Value(v),
                _ if n < 2 + types.len() => out.yields.push(value),
                _ => out.slots.push(value),
            }
        }
        Ok(out)
    }

    /// The opposite of a condition, at the end of a block.
    fn negated(&mut self, condition: Value, block: Block, like: Op) -> Value {
        let i1 = self.func.scalar(Scalar::I1);
        let loc = self.func.op_loc(like);
        let one = self.func.make_op(Opcode::Constant, &[], &[], &[i1], loc);
        self.func.set_attr(one, keys::VALUE, AttrData::Int(1, None));
        self.func.append_op(block, one);
        let one = self.func.results(one)[0];
        let not = self.func.make_op(Opcode::Xori, &[condition, one], &[1, 1], &[i1], loc);
        self.func.append_op(block, not);
        self.func.results(not)[0]
    }

    /// Any value of a type, at the end of a block: no op reads it.
    fn filler(&mut self, block: Block, ty: Type, number: i64, at: Op) -> CodegenResult<Value> {
        filler(self.func, block, None, ty, number, at)
    }
}

/// Where a part of an outcome comes from.
enum Part {
    Known(bool),
    /// From in front of the branch; `None`: nobody asks.
    Outside(Option<Value>),
    /// The condition does not hold.
    Negated,
    /// A result of the branch.
    Result(usize),
}

/// A constant at the end of a block, or in front of an op.
fn filler(
    func: &mut Function,
    block: Block,
    before: Option<Op>,
    ty: Type,
    number: i64,
    at: Op,
) -> CodegenResult<Value> {
    let loc = func.op_loc(at);
    let float = match func.type_data(ty) {
        TypeData::Scalar(s) => s.is_float(),
        TypeData::Tile { elem, .. } => elem.is_float(),
        other => {
            let text =
                format!("a value of type {other} is not defined on all ways through this branch or loop");
            return Err(CodegenError::new(Code::E0802, loc, text));
        }
    };
    let op = func.make_op(Opcode::Constant, &[], &[], &[ty], loc);
    let value = if float { Function::float_attr(number as f64) } else { AttrData::Int(number, None) };
    func.set_attr(op, keys::VALUE, value);
    match before {
        Some(b) => func.insert_before(b, op),
        None => func.append_op(block, op),
    }
    Ok(func.results(op)[0])
}

/// Moves the ops of a block to another.
fn move_all(func: &mut Function, from: Block, to: Block) {
    while let Some(op) = func.first_op(from) {
        func.remove_op(op);
        func.append_op(to, op);
    }
}

/// Ends the region of a `for` whose ops end without terminator.
fn end_body(func: &mut Function, body: Block, l: Op, out: &Outcome, slots: &[Slot]) -> CodegenResult<()> {
    let loc = func.op_loc(l);
    let stops = match out.stops {
        Flag::Known(false) => None,
        Flag::Known(true) => {
            let i1 = func.scalar(Scalar::I1);
            Some(filler(func, body, None, i1, 1, l)?)
        }
        Flag::Value(v) => Some(v),
    };
    if let Some(v) = stops {
        let exit = func.make_op(Opcode::ExitIf, &[v], &[1], &[], loc);
        func.append_op(body, exit);
    }
    let next: SmallVec<[Value; 8]> = out.slots.iter().zip(slots).map(|(v, s)| v.unwrap_or(s.arg)).collect();
    let end = func.make_op(Opcode::Yield, &next, &[next.len() as u32], &[], loc);
    func.append_op(body, end);
    Ok(())
}

/// Whether there is an op of that code inside, which leaves this loop.
fn has(func: &Function, body: Block, opcode: Opcode) -> bool {
    let mut any = false;
    func.walk(body, &mut |o| any |= func.opcode(o) == opcode);
    any
}

/// Behind a loop that says whether it ended by `return`: returns if it did.
fn return_behind(func: &mut Function, l: Op, returned: Value) {
    let loc = func.op_loc(l);
    let guard = func.make_op(Opcode::If, &[returned], &[1], &[], loc);
    func.insert_after(l, guard);
    for opcode in [Opcode::Return, Opcode::Yield] {
        let arm = func.add_region(guard);
        let end = func.make_op(opcode, &[], &[], &[], loc);
        func.append_op(arm, end);
    }
}

/// A `for` with `continue` or `return` in it.
fn close_for(func: &mut Function, renamed: &mut Renames, op: Op) -> CodegenResult<()> {
    let Some(body) = func.op_block_at(op, 0) else { return Ok(()) };
    let returns = has(func, body, Opcode::Return);
    if !returns && !has(func, body, Opcode::Continue) {
        return Ok(());
    }
    if returns {
        let i1 = func.scalar(Scalar::I1);
        let mut operands: SmallVec<[Value; 8]> = func.operands(op).into();
        operands.push(filler(func, body, Some(op), i1, 0, op)?);
        func.set_operands(op, &operands, &[1, 1, 1, operands.len() as u32 - 3]);
        func.add_block_param(body, i1);
        let returned = func.add_result(op, i1);
        return_behind(func, op, returned);
    }
    let args: SmallVec<[Value; 8]> = func.for_args(op).into();
    let last = args.len().saturating_sub(1);
    let slot = |(n, &arg): (usize, &Value)| Slot {
        arg,
        next: Some(n),
        result: None,
        returned: returns && n == last,
    };
    let slots: SmallVec<[Slot; 4]> = args.iter().enumerate().map(slot).collect();
    if let Some(end) = func.last_op(body).filter(|&t| func.opcode(t) == Opcode::Yield) {
        let next: SmallVec<[Value; 8]> = func.operands(end).into();
        let like = func.make_op(Opcode::Continue, &next, &[next.len() as u32], &[], func.op_loc(end));
        func.insert_before(end, like);
        func.remove_op(end);
    }
    let out = Writer::new(func, renamed, body, slots.clone())?.run(body, &[])?;
    end_body(func, body, op, &out, &slots)
}

/// A counter of a loop that stands for the number of its iteration.
struct Counter {
    /// Which argument.
    arg: usize,
    upper: Value,
    step: Value,
    /// The branch that leaves.
    branch: Op,
    /// What the results are: an argument by number, or a value from outside.
    results: SmallVec<[Result<usize, Value>; 4]>,
}

/// Whether a loop does nothing to end but compare a counter, first of all.
fn counter(func: &Function, renamed: &Renames, l: Op) -> Option<Counter> {
    let body = func.op_block_at(l, 0)?;
    let args = func.block_params(body);
    let (end, branch) = (func.last_op(body)?, func.block_ops(body).find(|&o| func.opcode(o) == Opcode::If)?);
    if func.opcode(end) != Opcode::Continue {
        return None;
    }
    // Before the test: nothing but scalars, which may be computed once more.
    let before = func.block_ops(body).take_while(|&o| o != branch);
    let harmless = |o: Op| {
        func.opcode(o).has(Traits::PURE)
            && func.regions(o).is_empty()
            && !matches!(func.opcode(o), Opcode::Divi | Opcode::Remi)
    };
    if !before.into_iter().all(harmless) || !func.results(branch).is_empty() {
        return None;
    }
    let single = |n: usize| {
        func.op_block_at(branch, n).and_then(|b| func.first_op(b)).filter(|&o| func.next_op(o).is_none())
    };
    let [then, otherwise] = [single(0)?, single(1)?].map(|o| (func.opcode(o), o));
    let (breaks, mut below) = match (then, otherwise) {
        ((Opcode::Break, b), (Opcode::Yield, _)) => (b, false),
        ((Opcode::Yield, _), (Opcode::Break, b)) => (b, true),
        _ => return None,
    };
    // No other way out.
    let mut leaving = 0;
    func.walk(body, &mut |o| {
        let leaves = [Opcode::Break, Opcode::Continue, Opcode::Return, Opcode::Loop];
        leaving += usize::from(leaves.contains(&func.opcode(o)));
    });
    if leaving != 2 {
        return None;
    }
    let inside = |v: Value| match func.value_def(v) {
        ValueDef::Param(b, _) => b == body,
        ValueDef::Result(d, _) => func.ancestor_in(d, body).is_some(),
    };
    let mut test = func.defining_op(func.operands(branch)[0])?;
    if let (Opcode::Xori, &[a, one]) = (func.opcode(test), func.operands(test))
        && func.constant_value(one).is_some_and(|c| c != 0.0)
    {
        below = !below;
        test = func.defining_op(a)?;
    }
    if func.opcode(test) != Opcode::Cmpi || func.has_attr(test, keys::UNSIGNED) {
        return None;
    }
    let &[a, b] = func.operands(test) else { return None };
    let (at, upper) = match (func.attr_name(test, keys::PREDICATE)?, below) {
        ("lt", true) | ("ge", false) => (a, b),
        ("gt", true) | ("le", false) => (b, a),
        _ => return None,
    };
    let arg = args.iter().position(|&p| p == at).filter(|_| !inside(upper))?;
    if !matches!(func.value_data(at).as_scalar(), Some(Scalar::I32 | Scalar::I64)) {
        return None;
    }
    let add = func.defining_op(*func.operands(end).get(arg)?).filter(|&o| func.opcode(o) == Opcode::Addi)?;
    let &[x, y] = func.operands(add) else { return None };
    let step = if x == at { y } else { x };
    if (x != at && y != at) || func.constant_value(step).is_none_or(|c| c < 1.0) {
        return None;
    }
    let results = func.operands(breaks).iter().map(|&v| match args.iter().position(|&p| p == v) {
        Some(n) => Some(Ok(n)),
        None => (!inside(v)).then(|| Err(renamed.of(v))),
    });
    Some(Counter { arg, upper, step, branch, results: results.collect::<Option<_>>()? })
}

/// Puts a `for` in the place of a `loop`.
fn open_loop(func: &mut Function, renamed: &mut Renames, op: Op) -> CodegenResult<()> {
    let Some(old) = func.op_block_at(op, 0) else { return Ok(()) };
    let counter = counter(func, renamed, op);
    let inits: SmallVec<[Value; 8]> = func.operands(op).iter().map(|&v| renamed.of(v)).collect();
    let results: SmallVec<[Value; 8]> = func.results(op).into();
    // A result has the place of what is carried, if the types agree.
    let mut operands: SmallVec<[Value; 8]> = SmallVec::new();
    let i32_ty = func.scalar(Scalar::I32);
    match &counter {
        Some(c) => {
            let number = func.constant_value(c.step).unwrap_or(1.0) as i64;
            let step = constant(func, op, c.upper, number);
            operands.extend([inits[c.arg], renamed.of(c.upper), step]);
        }
        None => {
            for n in [0, i64::from(i32::MAX), 1] {
                operands.push(filler(func, old, Some(op), i32_ty, n, op)?);
            }
        }
    }
    operands.extend(inits.iter().copied());
    let mut place: SmallVec<[usize; 8]> = SmallVec::new();
    for (j, &r) in results.iter().enumerate() {
        if counter.is_some() {
            break;
        }
        let ty = func.value_type(r);
        let fits = |n: &usize| func.value_type(operands[3 + n]) == ty && !place.contains(n);
        let all = operands.len() - 3;
        let found = Some(j).filter(|&n| n < all && fits(&n)).or_else(|| (0..all).find(fits));
        let n = match found {
            Some(n) => n,
            None => {
                let v = filler(func, old, Some(op), ty, 0, op)?;
                operands.push(v);
                all
            }
        };
        place.push(n);
    }
    let returned = has(func, old, Opcode::Return).then_some(operands.len() - 3);
    if returned.is_some() {
        let i1 = func.scalar(Scalar::I1);
        operands.push(filler(func, old, Some(op), i1, 0, op)?);
    }
    let types: SmallVec<[Type; 8]> = operands[3..].iter().map(|&v| func.value_type(v)).collect();
    let count = types.len() as u32;
    let new = func.make_op(Opcode::For, &operands, &[1, 1, 1, count], &types, func.op_loc(op));
    *func.inherent_mut(new) = func.inherent(op).clone();
    *func.discardable_mut(new) = func.discardable(op).clone();
    func.insert_before(op, new);
    let body = func.add_region(new);
    let number = func.add_block_param(body, func.value_type(operands[0]));
    let args: SmallVec<[Value; 8]> = types.iter().map(|&t| func.add_block_param(body, t)).collect();
    let params: SmallVec<[Value; 8]> = func.block_params(old).into();
    for (n, (&from, &to)) in params.iter().zip(&args).enumerate() {
        match &counter {
            Some(c) if c.arg == n => renamed.succeed(func, from, number),
            _ => renamed.succeed(func, from, to),
        }
    }
    move_all(func, old, body);
    let given = match counter {
        Some(c) => {
            func.remove_op(c.branch);
            if let Some(end) = func.last_op(body) {
                let next: SmallVec<[Value; 8]> = func.operands(end).into();
                func.remove_op(end);
                let end = func.make_op(Opcode::Yield, &next, &[count], &[], func.op_loc(op));
                func.append_op(body, end);
            }
            c.results.iter().map(|r| r.map_or_else(|v| v, |n| func.results(new)[n])).collect()
        }
        None => {
            let slot = |(n, &arg): (usize, &Value)| Slot {
                arg,
                next: Some(n).filter(|&n| n < inits.len()),
                result: place.iter().position(|&p| p == n),
                returned: returned == Some(n),
            };
            let slots: SmallVec<[Slot; 4]> = args.iter().enumerate().map(slot).collect();
            let out = Writer::new(func, renamed, body, slots.clone())?.run(body, &[])?;
            end_body(func, body, new, &out, &slots)?;
            let of_place = |&n: &usize| func.results(new)[n];
            place.iter().map(of_place).collect::<SmallVec<[Value; 8]>>()
        }
    };
    for (&r, v) in results.iter().zip(given) {
        renamed.set(r, v);
    }
    func.remove_op(op);
    if let Some(n) = returned {
        let v = func.results(new)[n];
        return_behind(func, new, v);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::parse_module;
    use crate::ir::verifier::verify_function;

    /// A kernel whose loop so many branches leave.
    fn kernel(branches: usize) -> Function {
        let mut text = String::from("kernel @k(%n: i32, %p: i1) {\n  %r = loop iter (%i = %n : i32) {\n");
        for _ in 0..branches {
            text += "    if %p {\n      break %i\n    }\n";
        }
        text += "    continue %i\n  }\n  return\n}\n";
        let mut module = parse_module(&text).expect("the text is well-formed");
        module.functions.remove(0)
    }

    #[test]
    fn as_many_branches_leave_as_the_limit_says() {
        let most = structure(&kernel(MOST_LEAVING), &mut None).expect("within the limit");
        let most = most.expect("it has a loop");
        assert!(verify_function(&most).is_empty());
        assert!(
            most.ops().all(|op| !matches!(most.opcode(op), Opcode::Loop | Opcode::Break | Opcode::Continue))
        );
        let error = structure(&kernel(MOST_LEAVING + 1), &mut None).map(|_| ()).unwrap_err();
        assert_eq!(error.code, Code::E1012);
    }

    #[test]
    fn what_has_one_way_out_stays() {
        let text = "kernel @k(%n: i32) {\n  for %i = 0 to %n step 1 {\n  }\n  return\n}\n";
        let module = parse_module(text).expect("the text is well-formed");
        assert!(structure(&module.functions[0], &mut None).expect("nothing to do").is_none());
    }
}
