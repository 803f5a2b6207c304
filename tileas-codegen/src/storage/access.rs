//! What an op of the placed IR does to shared and tensor memory, and by which engine.
//!
//! In: one op and its agent. Out: the tiles it reads or writes ([`Access`]) and the [`Class`] of engine that
//! carries it out, which decides how its completion can be signalled. Every other stage asks here.

use crate::ir::{Function, Op, Opcode, Scalar, Space, TypeData, Value, ValueDef};
use crate::plan::{Agent, AgentKind, AgentPlan};
use smallvec::SmallVec;

/// The engine that carries out an access.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Class {
    /// Threads of the agent; complete when the threads go on.
    Sync,
    /// Products of all threads of an agent onto accumulators in their registers: they read as engines do, and are complete when the
    /// threads go on.
    Group,
    /// Matrix engine and its copies: in issue order, signalled by a commit.
    Mma,
    /// TMA load: signalled by transaction bytes.
    Tma,
    /// TMA store: the issuing lane waits for its bulk groups.
    Bulk,
}

/// Who accesses: an agent through one engine.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Key {
    /// Agent.
    pub agent: Agent,
    /// Engine.
    pub class: Class,
}

/// One access of an op to a tile in shared or tensor memory.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Access {
    /// The tile as the op names it.
    pub value: Value,
    /// Reads it.
    pub reads: bool,
    /// Writes it.
    pub writes: bool,
}

/// Whether a value is a tile in shared or tensor memory.
pub fn is_stored(func: &Function, v: Value) -> bool {
    matches!(func.value_data(v), TypeData::Tile { space: Some(Space::Smem | Space::Tmem), .. })
}

/// Whether a value is a tile in registers.
pub fn is_in_registers(func: &Function, v: Value) -> bool {
    matches!(func.value_data(v), TypeData::Tile { space: Some(Space::Rmem), .. })
}

/// Whether `user`, which reads a register tile, may write over its registers: it is the only one to read it, as often as it is made, and no
/// other value has the same registers. `uses` counts operands.
pub fn may_take_over(func: &Function, v: Value, user: Op, uses: u32) -> bool {
    let own = match func.defining_op(v).map(|d| func.opcode(d)) {
        None => func.op_parent(user).is_some(),
        // Of one instruction for each element, which nothing folds.
        Some(Opcode::Addf | Opcode::Subf | Opcode::Mulf | Opcode::Fma | Opcode::Divf) => {
            func.value_data(v).elem() == Some(Scalar::F32)
        }
        // What is loaded would be waited for, and is not, by whom it is moved to.
        Some(Opcode::TiledLoad) => true,
        Some(opcode) => matches!(opcode, Opcode::AsyncDot | Opcode::For | Opcode::If) || opcode.is_sparse(),
    };
    let home = match func.value_def(v) {
        ValueDef::Result(op, _) => func.op_block(op),
        ValueDef::Param(b, _) => Some(b),
    };
    own && uses == 1 && home == func.op_block(user)
}

/// Whether a stored value is a constant: it has no storage.
pub fn is_constant(func: &Function, v: Value) -> bool {
    func.defining_op(v).is_some_and(|op| func.opcode(op) == Opcode::Constant)
}

/// Whether an op only names a stored tile or a part of it: no code comes of it, and no agent runs it at any time.
pub fn is_name(func: &Function, op: Op) -> bool {
    matches!(func.opcode(op), Opcode::ExtractSlice | Opcode::Constant | Opcode::AllocTensor)
        && func.results(op).iter().any(|&v| is_stored(func, v))
}

/// The engine an op of that agent uses.
pub fn class_of(func: &Function, plan: &AgentPlan, op: Op) -> Class {
    match func.opcode(op) {
        Opcode::AsyncTiledTmaLoad => Class::Tma,
        Opcode::AsyncTiledTmaStore => Class::Bulk,
        // Products that the computing agent issues are complete when its threads go on.
        opcode => match plan.op_agent[op].expand().map(|a| plan.agents[a].kind) {
            Some(AgentKind::Mma) => Class::Mma,
            None if opcode == Opcode::AsyncDot => Class::Mma,
            _ if opcode == Opcode::AsyncDot && func.result(op).is_some_and(|v| is_in_registers(func, v)) => {
                Class::Group
            }
            _ => Class::Sync,
        },
    }
}

/// The engine by which `ops`, the reads of a tile, are known where one of them waits and releases for all of its agent: threads that also
/// multiply with it do the rest of their reading in its name.
pub fn reader_class(func: &Function, plan: &AgentPlan, ops: &[Op], op: Op) -> Class {
    let class = class_of(func, plan, op);
    let agent = plan.op_agent[op];
    let multiplies = |&&o: &&Op| plan.op_agent[o] == agent && class_of(func, plan, o) == Class::Group;
    match class {
        Class::Sync if ops.iter().any(|o| multiplies(&o)) => Class::Group,
        class => class,
    }
}

/// The accesses of one op (not of its regions) in value form.
pub fn accesses(func: &Function, op: Op) -> SmallVec<[Access; 4]> {
    let mut out = SmallVec::new();
    let mut push = |value: Value, reads: bool, writes: bool| {
        if is_stored(func, value) {
            out.push(Access { value, reads, writes });
        }
    };
    match func.opcode(op) {
        Opcode::AsyncDot => {
            for name in ["a", "b"] {
                if let Some(v) = func.named_operand(op, name) {
                    push(v, true, false);
                }
            }
            // Tied: the result is the accumulator's next version, one access to one web. What starts from a constant
            // reads no memory.
            if let Some(&v) = func.results(op).first() {
                let fresh = func.named_operand(op, "acc").is_some_and(|a| is_constant(func, a));
                push(v, !fresh, true);
            }
        }
        Opcode::Copy => {
            if let Some(v) = func.named_operand(op, "source") {
                push(v, true, false);
            }
            match func.named_operand(op, "dest") {
                Some(v) => push(v, false, true),
                None => func.results(op).iter().for_each(|&v| push(v, false, true)),
            }
        }
        Opcode::ExtractSlice | Opcode::AllocTensor | Opcode::Constant | Opcode::For | Opcode::If => {}
        o if o.is_terminator() => {}
        _ => {
            func.operands(op).iter().for_each(|&v| push(v, true, false));
            func.results(op).iter().for_each(|&v| push(v, false, true));
        }
    }
    out
}
