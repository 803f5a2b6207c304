//! Turns of two warpgroups on the tensor core: of instances of an agent, in which each works on a tile of its own ([`deal`]), and of the two warpgroups of one agent,
//! which share one ([`mark`]).
//!
//! In: a materialised function with its waits for products. Out: the same with `takes_turn` on the first product of a batch and `gives_turn` on the
//! last one, in loops in which the two warpgroups of an agent issue several products at once and then compute beside them. Each
//! issues its batch when the other has issued its own, so that one computes while the tensor core has the other's products: FlashAttention-3's
//! published order between warpgroups. Without turns results are the same; both may then compute at once, and wait at once.
//!
//! A turn is a named barrier of both warpgroups: one waits at it, the other arrives. The first group does not wait in the first iteration, but once more
//! behind the last one: nothing is left at a barrier, and none is a loop ahead of the other.

use crate::buffers::BufferAssignment;
use crate::buffers::channels::TURNS;
use crate::ir::layouts::registers_per_thread;
use crate::ir::opcodes::Traits;
use crate::ir::{Block, Function, Op, Opcode, Scalar, Space, TypeData, keys};
use crate::plan::AgentPlan;
use crate::storage::access::is_in_registers;
use crate::storage::classify::{is_leaf, is_product, is_scalar_source};

/// Warps of two warpgroups.
const BOTH: u32 = 8;
/// Registers of a tile that takes long enough to compute.
const WIDE: u32 = 8;

/// Ends the turn of an instance in loops that are dealt out: behind the last item with products, in front of what waits for them. The next instance
/// then issues its products while these are under way.
pub fn deal(func: &mut Function) {
    let dealt: Vec<Op> = func.ops().filter(|&op| func.has_attr(op, keys::DEALT)).collect();
    for l in dealt {
        let Some(body) = func.op_block_at(l, 0) else { continue };
        let multiplies = |op: &Op| {
            let mut found = is_batched(func, *op);
            for n in 0..func.regions(*op).len() {
                if let Some(b) = func.op_block_at(*op, n) {
                    func.walk(b, &mut |o| found |= is_batched(func, o));
                }
            }
            found
        };
        let Some(last) = func.block_ops(body).filter(multiplies).last() else { continue };
        let give = func.make_op(Opcode::AsyncPipelineGiveTurn, &[], &[], &[], func.op_loc(last));
        match func.next_op(last) {
            Some(next) => func.insert_before(next, give),
            None => func.append_op(body, give),
        }
    }
}

/// Marks the batches.
pub fn mark(func: &mut Function, plan: &AgentPlan, ba: &BufferAssignment) {
    // They are the compiler's words.
    for op in func.all_ops() {
        if is_product(func, op) {
            func.inherent_mut(op).remove(keys::TAKES_TURN);
            func.inherent_mut(op).remove(keys::GIVES_TURN);
        }
    }
    let taken = ba.pipes.values().filter_map(|p| p.named).chain(ba.memory.scratch.iter().map(|s| s.named));
    if taken.max().is_some_and(|n| n >= TURNS) {
        return;
    }
    let mut found: Vec<(usize, (Op, Op))> = Vec::new();
    let mut blocks: Vec<Block> = Vec::new();
    for op in func.ops().filter(|&op| is_batched(func, op)) {
        let Some(block) = func.op_block(op).filter(|b| !blocks.contains(b)) else { continue };
        blocks.push(block);
        let Some(number) = agent_of(func, op) else { continue };
        let Some(agent) = plan.agents.values().nth(number).filter(|a| a.warps == BOTH) else { continue };
        if let Some(batch) = batch(func, block, agent.warps) {
            found.push((number, batch));
        }
    }
    // There is one pair of barriers.
    if found.iter().any(|f| f.0 != found[0].0) {
        return;
    }
    for (_, (first, last)) in found {
        func.set_int(first, keys::TAKES_TURN, TURNS.into());
        func.set_int(last, keys::GIVES_TURN, TURNS.into());
    }
}

/// Whether an op is a product onto registers.
fn is_batched(func: &Function, op: Op) -> bool {
    is_product(func, op) && func.result(op).is_some_and(|v| is_in_registers(func, v))
}

/// The number of the agent whose code an op is.
fn agent_of(func: &Function, op: Op) -> Option<usize> {
    let mut at = op;
    loop {
        let parent = func.op_parent(at)?;
        if func.opcode(parent) == Opcode::AsyncPipelineAgentSwitch {
            let block = func.op_block(at)?;
            return (0..func.regions(parent).len()).find(|&r| func.op_block_at(parent, r) == Some(block));
        }
        at = parent;
    }
}

/// Whether an op may stand between taking a turn and giving it: it must not make the warpgroup wait for the other one, which waits for the turn. So it
/// is a wait for a slot that is told by an mbarrier, arithmetic within each thread, or for all agents alike; not what meets at a named barrier or goes through
/// memory, and not the release of a slot, behind which a wait for the same ring may stand.
fn is_own(func: &Function, op: Op) -> bool {
    let opcode = func.opcode(op);
    match opcode {
        Opcode::AsyncDot | Opcode::AsyncPipelineIncIter => true,
        Opcode::AsyncPipelineConsumerWait => {
            let end = func.operands(op).first().and_then(|&v| super::groups::pipe_of(func, v, 32));
            end.and_then(|v| func.defining_op(v)).is_some_and(|pipe| !func.has_attr(pipe, keys::NAMED))
        }
        _ => {
            let simple = opcode.has(Traits::ELEMENTWISE) || is_leaf(opcode) || opcode == Opcode::Broadcast;
            let scalar = func.results(op).iter().all(|&v| !func.value_data(v).is_tile());
            opcode.has(Traits::PURE)
                && func.regions(op).is_empty()
                && (simple || scalar && !is_scalar_source(func, op))
        }
    }
}

/// The first and the last product of the body of a counted loop, if nothing is waited for between them and tiles are computed behind them.
fn batch(func: &Function, body: Block, warps: u32) -> Option<(Op, Op)> {
    let l =
        func.block_parent(body).filter(|&l| func.opcode(l) == Opcode::For && func.exit_of(l).is_none())?;
    let index = *func.block_params(body).first()?;
    if *func.value_data(index) != TypeData::Scalar(Scalar::I32) || func.named_operand(l, "step").is_none() {
        return None;
    }
    let ops: Vec<Op> = func.block_ops(body).collect();
    let first = ops.iter().position(|&op| is_batched(func, op))?;
    let last = ops.iter().rposition(|&op| is_batched(func, op)).filter(|&n| n > first)?;
    let waits = |part: &[Op]| part.iter().any(|&op| func.opcode(op) == Opcode::AsyncDotWait);
    let wide = |&op: &Op| {
        func.results(op).iter().any(|&v| match func.value_data(v) {
            TypeData::Tile { dims, elem, space: Some(Space::Rmem), layout: Some(layout) } => {
                registers_per_thread(*layout, dims, *elem, warps).is_some_and(|n| n >= WIDE)
            }
            _ => false,
        })
    };
    let computes = |part: &[Op]| part.iter().filter(|op| !is_product(func, **op)).any(wide);
    (ops[first..last].iter().all(|&op| is_own(func, op)) && waits(&ops[last..]) && computes(&ops[last..]))
        .then(|| (ops[first], ops[last]))
}
