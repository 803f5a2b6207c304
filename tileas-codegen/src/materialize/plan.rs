//! The order in which one agent runs one block: items by R1, channel ops around them.
//!
//! In: a block, what the agent needs, the pipes, the loop's schedule if there is one. Out: [`BlockPlan`]: steps in
//! emission order, each with its local stage. Rules: acquire and wait directly before the first use, a transaction
//! commit right behind its acquire, any other commit after the last write, release after the last use, the release of
//! a TMA store and the advance of the iterators at the end. Scalars from other agents are received (waited for, read,
//! released) before their first use, or at the end if only what the block yields rests on them. A pipe with a distance
//! has one more production before its loop and one more consumption after it. "First" and "last" are by R1 time, so with skew they may
//! stand in different local stages. Cost: items × pipes of the block.

use crate::agents::{Agent, AgentPlan};
use crate::buffers::access::{Class, class_of};
use crate::buffers::channels::Carry;
use crate::buffers::needs::{Needs, is_item};
use crate::buffers::{BufferAssignment, Pipe, PipeData};
use crate::ir::{Block, Function, Op};
use crate::schedule::handoff::LoopSchedule;

/// One thing to emit.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// An op of the agent, or a region op that contains some.
    Item(Op),
    /// Acquire a slot.
    Acquire(Pipe),
    /// Announce bytes (right behind the acquire).
    CommitTx(Pipe),
    /// Hand the slot over.
    Commit(Pipe),
    /// Wait as consumer number n.
    Wait(Pipe, usize),
    /// Release as consumer number n; the op whose completion frees the slot, and the bulk groups that may stay.
    Release(Pipe, usize, Option<Op>, u32),
    /// Advance the iterator.
    Inc(Pipe),
}

/// The steps of one block.
#[derive(Default, Debug)]
pub struct BlockPlan {
    /// Steps in emission order with their local stage.
    pub steps: Vec<(u32, Step)>,
    /// Largest local stage.
    pub skew: u32,
}

/// Whose block is planned, and from what.
#[derive(Copy, Clone)]
pub struct Scope<'a> {
    /// The placed function.
    pub func: &'a Function,
    /// Agents.
    pub plan: &'a AgentPlan,
    /// Storage and pipes.
    pub ba: &'a BufferAssignment,
    /// What the agent needs.
    pub needs: &'a Needs,
    /// The agent.
    pub agent: Agent,
}

/// The items of a block for an agent, in program order.
pub fn items(func: &Function, plan: &AgentPlan, needs: &Needs, agent: Agent, block: Block) -> Vec<Op> {
    func.block_ops(block).filter(|&op| is_item(plan, needs, agent, op)).collect()
}

/// Plans one block. `first` are further items that run at local stage 0 before all others.
pub fn block_plan(scope: &Scope<'_>, block: Block, sched: Option<&LoopSchedule>, first: &[Op]) -> BlockPlan {
    let &Scope { func, plan, ba, needs, agent } = scope;
    let program = items(func, plan, needs, agent, block);
    // (start, program index) is R1's time of instance 0.
    let start = |op: Op| sched.map_or(0, |s| s.start[op]);
    let r = program.iter().map(|&op| start(op)).min().unwrap_or(0);
    let ii = sched.map_or(1, |s| s.ii.max(1));
    let mut order: Vec<(u32, usize, u32, Op)> = program
        .iter()
        .enumerate()
        .map(|(i, &op)| ((start(op) - r) % ii, i, (start(op) - r) / ii, op))
        .collect();
    order.sort_unstable();
    let time = |op: Op| {
        let i = program.iter().position(|&o| o == op).unwrap_or(0);
        (start(op), i)
    };
    let local = |op: Op| (start(op) - r) / ii;
    let earliest = |ops: &[Op]| ops.iter().copied().min_by_key(|&op| time(op));
    let latest = |ops: &[Op]| ops.iter().copied().max_by_key(|&op| time(op));
    let mut out = BlockPlan::default();
    out.steps.extend(first.iter().map(|&op| (0, Step::Item(op))));
    // Pipes with a distance whose loop stands in this block.
    let around: Vec<(Pipe, &Carry)> = ba
        .pipes
        .iter()
        .filter_map(|(id, p)| Some((id, p.carry.as_ref()?)))
        .filter(|(_, c)| c.parent == block)
        .collect();
    let pipes: Vec<Pipe> = ba.pipes.iter().filter(|(_, p)| p.home == block).map(|(id, _)| id).collect();
    for &(_, _, l, item) in &order {
        out.skew = out.skew.max(l);
        for &id in &pipes {
            let p = &ba.pipes[id];
            if p.producer.agent == agent && earliest(&p.acquires) == Some(item) {
                out.steps.push((l, Step::Acquire(id)));
                if p.tx > 0 {
                    out.steps.push((l, Step::CommitTx(id)));
                }
            }
        }
        for &(id, carry) in &around {
            let p = &ba.pipes[id];
            let first = carry.inits.first().copied().unwrap_or(carry.loop_op);
            if p.producer.agent == agent && item == first {
                out.steps.push((l, Step::Acquire(id)));
                if p.tx > 0 {
                    out.steps.push((l, Step::CommitTx(id)));
                } else if carry.inits.is_empty() {
                    out.steps.push((l, Step::Commit(id)));
                }
                if carry.inits.is_empty() {
                    out.steps.push((l, Step::Inc(id)));
                }
            }
            for (n, c) in p.consumers.iter().enumerate() {
                if c.key.agent == agent && earliest(&carry.behind[n]) == Some(item) {
                    out.steps.push((l, Step::Wait(id, n)));
                }
            }
        }
        for &id in &pipes {
            for (n, c) in ba.pipes[id].consumers.iter().enumerate() {
                if c.key.agent == agent && earliest(&c.waits) == Some(item) {
                    receive(&mut out.steps, &ba.pipes[id], id, n, l);
                }
            }
        }
        out.steps.push((l, Step::Item(item)));
        for &id in &pipes {
            let p = &ba.pipes[id];
            if p.producer.agent == agent && p.tx == 0 && latest(&p.events) == Some(item) {
                out.steps.push((l, Step::Commit(id)));
            }
        }
        for &(id, carry) in &around {
            let p = &ba.pipes[id];
            if p.producer.agent == agent && carry.inits.last() == Some(&item) {
                if p.tx == 0 {
                    out.steps.push((l, Step::Commit(id)));
                }
                out.steps.push((l, Step::Inc(id)));
            }
            for (n, c) in p.consumers.iter().enumerate().filter(|(_, c)| c.key.agent == agent) {
                let last = latest(&carry.behind[n]);
                if last.is_none() && item == carry.loop_op {
                    out.steps.push((l, Step::Wait(id, n)));
                }
                if last.unwrap_or(carry.loop_op) == item {
                    let completes = last.filter(|_| c.key.class != Class::Sync);
                    out.steps.push((l, Step::Release(id, n, completes, 0)));
                    out.steps.push((l, Step::Inc(id)));
                }
            }
        }
        for &id in &pipes {
            for (n, c) in ba.pipes[id].consumers.iter().enumerate() {
                if c.key.agent != agent || ba.pipes[id].scalar || latest(&c.uses) != Some(item) {
                    continue;
                }
                if c.waits.is_empty() {
                    out.steps.push((l, Step::Wait(id, n)));
                }
                if c.key.class != Class::Bulk {
                    out.steps.push((l, Step::Release(id, n, Some(item), 0)));
                }
            }
        }
    }
    for &id in &pipes {
        let p = &ba.pipes[id];
        for n in (0..p.consumers.len()).filter(|&n| p.scalar && p.consumers[n].key.agent == agent) {
            if p.consumers[n].waits.is_empty() {
                receive(&mut out.steps, p, id, n, out.skew);
            }
        }
    }
    // End of the home region: stores are waited for in issue order, then all iterators advance.
    let stores: Vec<(u32, Op)> = order
        .iter()
        .filter(|o| func.regions(o.3).is_empty() && class_of(func, plan, o.3) == Class::Bulk)
        .map(|o| (o.2, o.3))
        .collect();
    let mut tail: Vec<(u32, usize, Step)> = Vec::new();
    for &id in &pipes {
        for (n, c) in ba.pipes[id].consumers.iter().enumerate() {
            if c.key.agent != agent || c.key.class != Class::Bulk {
                continue;
            }
            let Some(last) = latest(&c.uses) else { continue };
            let at = order.iter().position(|o| o.3 == last).unwrap_or(0);
            // Groups certainly committed behind it: later leaf stores of the same local stage.
            let pending = match stores.iter().position(|s| s.1 == last) {
                Some(i) => stores[i + 1..].iter().filter(|s| s.0 == local(last)).count() as u32,
                None => 0,
            };
            tail.push((local(last), at, Step::Release(id, n, Some(last), pending)));
        }
    }
    tail.sort_by_key(|t| (t.0, t.1));
    let mut incs: Vec<(u32, Step)> = Vec::new();
    if func.block_parent(block).is_some() {
        for &id in &pipes {
            let p = &ba.pipes[id];
            let mut locals: Vec<u32> = Vec::new();
            if p.producer.agent == agent {
                locals.extend(p.acquires.iter().map(|&op| local(op)));
            }
            for c in p.consumers.iter().filter(|c| c.key.agent == agent) {
                match earliest(&c.waits) {
                    _ if !p.scalar => locals.extend(c.uses.iter().map(|&op| local(op))),
                    Some(first) => locals.push(local(first)),
                    None => locals.push(out.skew),
                }
            }
            locals.sort_unstable();
            locals.dedup();
            incs.extend(locals.into_iter().map(|l| (l, Step::Inc(id))));
        }
    }
    out.steps.extend(tail.into_iter().map(|t| (t.0, t.2)));
    let releases = out.steps.len();
    out.steps.extend(incs);
    // Within the tail, one group per local stage.
    let from = out.steps[..releases].iter().rposition(|s| matches!(s.1, Step::Item(_))).map_or(0, |i| i + 1);
    let bulk_from = (from..releases)
        .find(|&i| matches!(out.steps[i].1, Step::Release(_, _, _, _)) && is_tail(&out.steps[i].1, ba));
    let sort_from = bulk_from.unwrap_or(releases);
    out.steps[sort_from..].sort_by_key(|s| s.0);
    out
}

/// The wait of consumer `n`; for scalars also the reads and the release.
fn receive(steps: &mut Vec<(u32, Step)>, p: &PipeData, id: Pipe, n: usize, local: u32) {
    steps.push((local, Step::Wait(id, n)));
    if p.scalar {
        steps.extend(p.events.iter().map(|&source| (local, Step::Item(source))));
        steps.push((local, Step::Release(id, n, None, 0)));
    }
}

fn is_tail(step: &Step, ba: &BufferAssignment) -> bool {
    matches!(step, Step::Release(p, n, _, _) if ba.pipes[*p].consumers[*n].key.class == Class::Bulk)
}
