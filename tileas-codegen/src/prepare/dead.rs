//! Removes what no effect of a kernel rests on.
//!
//! In: a kernel in value form. Out: the kernel without dead ops, as it was where all is alive. Alive are stores, atomic
//! updates and ordered loads, what they rest on, and the loops and branches around them. Loads, products and
//! everything pure are dead where no op needs their results; so are iteration arguments and results of branches that only
//! serve themselves. Later stages count on it: a tile that no op reads has no hand-off that would say when it is complete.
//! Guarantee: order, names and attributes of the rest stay. Cost: linear in ops and operands.

use super::{Draft, Renames, is_region};
use crate::ir::opcodes::Traits;
use crate::ir::{Block, Function, Op, Opcode, Value, ValueDef};
use cranelift_entity::EntitySet;
use smallvec::SmallVec;

/// Whether an op does nothing but give its results.
pub(super) fn is_removable(func: &Function, op: Op) -> bool {
    match func.opcode(op) {
        Opcode::TiledLoad | Opcode::Gather => func.is_weak(op),
        Opcode::AsyncTiledTmaLoad | Opcode::AsyncDot | Opcode::Dot => true,
        Opcode::For | Opcode::If | Opcode::Yield => true,
        o => o.has(Traits::PURE),
    }
}

/// What is alive.
#[derive(Default)]
pub struct Live {
    ops: EntitySet<Op>,
    values: EntitySet<Value>,
    work: Vec<Value>,
}

impl Live {
    fn value(&mut self, v: Value) {
        if self.values.insert(v) {
            self.work.push(v);
        }
    }

    /// An op stays, and what is around it.
    fn op(&mut self, func: &Function, op: Op) {
        let mut next = Some(op);
        while let Some(op) = next.filter(|&op| self.ops.insert(op)) {
            // What a loop or a branch decides by; what it carries is alive by number.
            let fixed = match func.opcode(op) {
                Opcode::For => 3,
                Opcode::If => 1,
                _ => usize::MAX,
            };
            func.operands(op).iter().take(fixed).for_each(|&v| self.value(v));
            if let Some(exit) = func.exit_of(op) {
                self.ops.insert(exit);
                self.value(func.operands(exit)[0]);
            }
            next = func.op_parent(op);
        }
    }

    /// Number `n` of what a loop carries or a branch results in.
    fn carried(&mut self, func: &Function, op: Op, n: usize) {
        self.op(func, op);
        func.results(op).get(n).into_iter().for_each(|&v| self.value(v));
        if func.opcode(op) == Opcode::For {
            func.named_segment(op, "inits").get(n).into_iter().for_each(|&v| self.value(v));
        }
        for r in 0..func.regions(op).len() {
            let Some(block) = func.op_block_at(op, r) else { continue };
            if func.opcode(op) == Opcode::For {
                func.block_params(block).get(n + 1).into_iter().for_each(|&v| self.value(v));
            }
            let end = func.last_op(block).filter(|&t| func.opcode(t) == Opcode::Yield);
            end.and_then(|t| func.operands(t).get(n)).into_iter().for_each(|&v| self.value(v));
        }
    }

    /// What the effects of a function rest on.
    fn find(&mut self, func: &Function) {
        self.ops.clear();
        self.values.clear();
        // What ends a loop matters as long as the loop does.
        let is_exit = |op: Op| func.opcode(op) == Opcode::ExitIf;
        func.ops().filter(|&op| !is_removable(func, op) && !is_exit(op)).for_each(|op| self.op(func, op));
        while let Some(v) = self.work.pop() {
            match func.value_def(v) {
                ValueDef::Result(op, n) if is_region(func.opcode(op)) => self.carried(func, op, n as usize),
                ValueDef::Result(op, _) => self.op(func, op),
                ValueDef::Param(block, n) => match (func.block_parent(block), n) {
                    (Some(l), 0) => self.op(func, l),
                    (Some(l), n) => self.carried(func, l, n as usize - 1),
                    (None, _) => {}
                },
            }
        }
    }

    /// Whether a loop or a branch has results that no op needs.
    fn is_partly(&self, func: &Function, op: Op) -> bool {
        is_region(func.opcode(op)) && func.results(op).iter().any(|&v| !self.values.contains(v))
    }
}

/// Removes what is dead.
pub(super) fn remove_dead(draft: &mut Draft<'_>, live: &mut Live) {
    let func = draft.func();
    live.find(func);
    let is_end = |func: &Function, op: Op| func.opcode(op) == Opcode::Yield;
    // Scalars without users are no reason to copy a kernel; tiles are, since what they rest on is planned by who needs it.
    let is_scalar = |op: Op| {
        func.opcode(op).has(Traits::PURE) && !func.results(op).iter().any(|&v| func.value_data(v).is_tile())
    };
    let matters =
        |op: Op| !live.ops.contains(op) && !is_end(func, op) && !is_scalar(op) || live.is_partly(func, op);
    if !func.ops().any(matters) {
        return;
    }
    let out = draft.edit();
    let mut renamed = Renames::default();
    // Inner ops first, so that what is moved is what stays.
    for op in out.all_ops().into_iter().rev() {
        if is_end(out, op) {
            continue;
        }
        if !live.ops.contains(op) {
            out.remove_op(op);
        } else if live.is_partly(out, op) {
            narrow(out, op, &live.values, &mut renamed);
        }
    }
    renamed.apply(out);
}

/// Puts a loop or branch that carries less in the place of one.
fn narrow(out: &mut Function, old: Op, values: &EntitySet<Value>, renamed: &mut Renames) {
    let results: SmallVec<[Value; 8]> = out.results(old).into();
    let kept: SmallVec<[usize; 8]> = (0..results.len()).filter(|&n| values.contains(results[n])).collect();
    let is_loop = out.opcode(old) == Opcode::For;
    let fixed = if is_loop { 3 } else { 1 };
    let all: SmallVec<[Value; 8]> = out.operands(old).into();
    let mut operands: SmallVec<[Value; 8]> = all[..fixed.min(all.len())].into();
    let mut segments: SmallVec<[u32; 4]> = SmallVec::from_elem(1, fixed);
    if is_loop {
        operands.extend(kept.iter().filter_map(|&n| all.get(fixed + n).copied()));
        segments.push(kept.len() as u32);
    }
    let types: SmallVec<[_; 8]> = kept.iter().map(|&n| out.value_type(results[n])).collect();
    let new = out.make_op(out.opcode(old), &operands, &segments, &types, out.op_loc(old));
    *out.inherent_mut(new) = out.inherent(old).clone();
    *out.discardable_mut(new) = out.discardable(old).clone();
    out.insert_before(old, new);
    for (i, &n) in kept.iter().enumerate() {
        let to = out.results(new)[i];
        renamed.succeed(out, results[n], to);
    }
    for r in 0..out.regions(old).len() {
        let Some(from) = out.op_block_at(old, r) else { continue };
        let to: Block = out.add_region(new);
        let params: SmallVec<[Value; 8]> = out.block_params(from).into();
        for (n, &p) in params.iter().enumerate() {
            if n == 0 || kept.contains(&(n - 1)) {
                let ty = out.value_type(p);
                let v = out.add_block_param(to, ty);
                renamed.succeed(out, p, v);
            }
        }
        while let Some(op) = out.first_op(from) {
            out.remove_op(op);
            out.append_op(to, op);
        }
        if let Some(end) = out.last_op(to).filter(|&t| out.opcode(t) == Opcode::Yield) {
            let given: SmallVec<[Value; 8]> = out.operands(end).into();
            let some: SmallVec<[Value; 8]> = kept.iter().filter_map(|&n| given.get(n).copied()).collect();
            out.set_operands(end, &some, &[some.len() as u32]);
        }
    }
    out.remove_op(old);
}
