//! Removes what no effect of a kernel rests on, before anyone plans it.
//!
//! In: a source kernel in value form. Out: the kernel without dead ops, or nothing where all is alive. Alive are stores, atomic
//! updates and ordered loads, what they rest on, and the loops and branches around them. Loads, products and
//! everything pure are dead where nobody needs their results; so are iteration arguments and results of branches that only
//! serve themselves. Later stages count on it: a tile that nobody reads has no hand-off that would say when it is complete.
//! Guarantee: order, names and attributes of the rest stay. Cost: linear in ops and operands.

use crate::ir::opcodes::Traits;
use crate::ir::{Block, Function, Op, Opcode, Value, ValueDef};
use cranelift_entity::packed_option::PackedOption;
use cranelift_entity::{EntitySet, SecondaryMap};
use smallvec::SmallVec;

/// Whether an op does nothing but give its results.
fn is_removable(func: &Function, op: Op) -> bool {
    match func.opcode(op) {
        Opcode::TiledLoad => func.is_weak(op),
        Opcode::AsyncTiledTmaLoad | Opcode::AsyncDot | Opcode::Dot => true,
        Opcode::For | Opcode::If | Opcode::Yield => true,
        o => o.has(Traits::PURE),
    }
}

/// What is alive.
struct Live<'f> {
    func: &'f Function,
    ops: EntitySet<Op>,
    values: EntitySet<Value>,
    work: Vec<Value>,
}

impl Live<'_> {
    fn value(&mut self, v: Value) {
        if self.values.insert(v) {
            self.work.push(v);
        }
    }

    /// An op stays, and what is around it.
    fn op(&mut self, op: Op) {
        let mut next = Some(op);
        while let Some(op) = next.filter(|&op| self.ops.insert(op)) {
            // What a loop or a branch decides by; what it carries is alive by number.
            let fixed = match self.func.opcode(op) {
                Opcode::For => 3,
                Opcode::If => 1,
                _ => usize::MAX,
            };
            let operands: SmallVec<[Value; 8]> = self.func.operands(op).iter().take(fixed).copied().collect();
            operands.into_iter().for_each(|v| self.value(v));
            next = self.func.op_parent(op);
        }
    }

    /// Number `n` of what a loop carries or a branch results in.
    fn carried(&mut self, op: Op, n: usize) {
        let func = self.func;
        self.op(op);
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

    fn run(&mut self) {
        while let Some(v) = self.work.pop() {
            match self.func.value_def(v) {
                ValueDef::Result(op, n) => match self.func.opcode(op) {
                    Opcode::For | Opcode::If => self.carried(op, n as usize),
                    _ => self.op(op),
                },
                ValueDef::Param(block, n) => match (self.func.block_parent(block), n) {
                    (Some(l), 0) => self.op(l),
                    (Some(l), n) => self.carried(l, n as usize - 1),
                    (None, _) => {}
                },
            }
        }
    }
}

/// The kernel without what is dead; `None` if nothing is.
pub fn without_dead(func: &Function) -> Option<Function> {
    let mut live = Live { func, ops: EntitySet::new(), values: EntitySet::new(), work: Vec::new() };
    func.ops().filter(|&op| !is_removable(func, op)).for_each(|op| live.op(op));
    live.run();
    let Live { ops, values, .. } = live;
    let is_end = |op: Op| func.opcode(op) == Opcode::Yield;
    let partly = |op: Op| {
        matches!(func.opcode(op), Opcode::For | Opcode::If)
            && func.results(op).iter().any(|&v| !values.contains(v))
    };
    // Scalars without users are no reason to copy a kernel; tiles are, since what they rest on is planned by who needs it.
    let is_scalar = |op: Op| {
        func.opcode(op).has(Traits::PURE) && !func.results(op).iter().any(|&v| func.value_data(v).is_tile())
    };
    let matters = |op: Op| !ops.contains(op) && !is_end(op) && !is_scalar(op) || partly(op);
    if !func.ops().any(matters) {
        return None;
    }
    let mut out = func.clone();
    let mut renamed: SecondaryMap<Value, PackedOption<Value>> = SecondaryMap::new();
    // Inner ops first, so that what is moved is what stays.
    for op in func.all_ops().into_iter().rev() {
        if is_end(op) {
            continue;
        }
        if !ops.contains(op) {
            out.remove_op(op);
        } else if partly(op) {
            narrow(&mut out, op, &values, &mut renamed);
        }
    }
    for op in out.all_ops() {
        for n in 0..out.operands(op).len() {
            if let Some(v) = renamed[out.operands(op)[n]].expand() {
                out.set_operand(op, n, v);
            }
        }
    }
    Some(out)
}

/// Puts a loop or branch that carries less in the place of one.
fn narrow(
    out: &mut Function,
    old: Op,
    values: &EntitySet<Value>,
    renamed: &mut SecondaryMap<Value, PackedOption<Value>>,
) {
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
    let rename =
        |out: &mut Function, from: Value, to: Value, renamed: &mut SecondaryMap<_, PackedOption<Value>>| {
            if let Some(name) = out.value_sym(from) {
                out.set_value_sym(to, name);
            }
            renamed[from] = to.into();
        };
    for (i, &n) in kept.iter().enumerate() {
        let to = out.results(new)[i];
        rename(out, results[n], to, renamed);
    }
    for r in 0..out.regions(old).len() {
        let Some(from) = out.op_block_at(old, r) else { continue };
        let to: Block = out.add_region(new);
        let params: SmallVec<[Value; 8]> = out.block_params(from).into();
        for (n, &p) in params.iter().enumerate() {
            if n == 0 || kept.contains(&(n - 1)) {
                let ty = out.value_type(p);
                let v = out.add_block_param(to, ty);
                rename(out, p, v, renamed);
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
