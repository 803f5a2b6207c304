//! The order in which one agent runs one block: items by time (R1), channel ops around them.
//!
//! In: a block, what the agent needs, the pipes, the loop's schedule if there is one. Out: [`BlockPlan`]: steps in
//! emission order, each with its local stage. Rules: acquire and wait directly before the first use, a transaction
//! commit right behind its acquire, any other commit after the last write, release after the last use, the release of
//! a TMA store and the advance of the iterators at the end. Scalars from other agents are received (waited for, read,
//! released) before their first use, or at the end if only what the block yields rests on them. A pipe with a distance
//! has one more production before its loop and one more consumption after it. "First" and "last" are by that time, so with skew they may
//! stand in different local stages. Cost: items × pipes of the agent in the block.

use crate::agents::{Agent, AgentPlan};
use crate::buffers::channels::Carry;
use crate::buffers::needs::{Needs, for_each_use, is_item};
use crate::buffers::{BufferAssignment, Pipe, PipeData};
use crate::ddg::LoopSchedule;
use crate::ir::{Block, Function, Op, Opcode, Value};
use crate::storage::access::{Class, class_of};
use cranelift_entity::{EntitySet, SecondaryMap};
use smallvec::SmallVec;

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
    /// Wait until what the lane has stored so far is complete.
    StoreWait,
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
    /// Number of each op in the program.
    pub number: &'a SecondaryMap<Op, u32>,
}

/// Memory that the plans of a function share.
#[derive(Default, Debug)]
pub struct Plans {
    /// Time in the iteration, number in the program, local stage, item.
    order: Vec<(u32, u32, u32, Op)>,
    ends: Vec<Ends>,
    readers: Vec<Reader>,
    tail: Vec<(u32, u32, Step)>,
    incs: Vec<(u32, Step)>,
    locals: Vec<u32>,
}

/// Where the agent begins and ends with a pipe of the block.
#[derive(Debug)]
struct Ends {
    pipe: Pipe,
    /// The first item for which it acquires a slot.
    acquires: Option<Op>,
    /// The last item that makes what it hands over, unless bytes are counted.
    commits: Option<Op>,
    /// Where its consumers stand among the readers.
    from: usize,
    to: usize,
}

/// A consumer of a pipe that is the agent.
#[derive(Debug)]
struct Reader {
    number: usize,
    first: Option<Op>,
    last: Option<Op>,
    /// Of a scalar that only what the block yields rests on: the local stage at whose end it is received.
    late: u32,
}

/// Plans one block. `mine` are the pipes the agent takes part in, `first` further items that run at local stage 0
/// before all others.
pub fn block_plan(
    scope: &Scope<'_>,
    mine: &[Pipe],
    memory: &mut Plans,
    block: Block,
    sched: Option<&LoopSchedule>,
    first: &[Op],
) -> BlockPlan {
    let &Scope { func, plan, ba, needs, agent, number } = scope;
    let Plans { order, ends, readers, tail, incs, locals } = memory;
    // (start, number in the program) is the time (R1) of instance 0.
    let start = |op: Op| sched.map_or(0, |s| s.start[op]);
    let items = || func.block_ops(block).filter(|&op| is_item(func, plan, needs, agent, op));
    let r = items().map(start).min().unwrap_or(0);
    let ii = sched.map_or(1, |s| s.ii.max(1));
    order.clear();
    order.extend(items().map(|op| ((start(op) - r) % ii, number[op], (start(op) - r) / ii, op)));
    order.sort_unstable();
    let time = |op: Op| (start(op), number[op]);
    let local = |op: Op| (start(op) - r) / ii;
    let earliest = |ops: &[Op]| ops.iter().copied().min_by_key(|&op| time(op));
    let latest = |ops: &[Op]| ops.iter().copied().max_by_key(|&op| time(op));
    let mut out = BlockPlan::default();
    out.steps.reserve(first.len() + 4 * order.len());
    out.steps.extend(first.iter().map(|&op| (0, Step::Item(op))));
    // Pipes with a distance whose loop stands in this block.
    let around: SmallVec<[(Pipe, &Carry); 4]> = mine
        .iter()
        .filter_map(|&id| Some((id, ba.pipes[id].carry()?)))
        .filter(|(_, c)| c.parent == block)
        .collect();
    ends.clear();
    readers.clear();
    for &id in mine.iter().filter(|&&id| ba.pipes[id].home == block) {
        let p = &ba.pipes[id];
        let from = readers.len();
        for (number, c) in p.consumers.iter().enumerate().filter(|(_, c)| c.key.agent == agent) {
            readers.push(Reader { number, first: earliest(&c.waits), last: latest(&c.uses), late: 0 });
        }
        let produces = p.producer.agent == agent;
        ends.push(Ends {
            pipe: id,
            acquires: earliest(&p.acquires).filter(|_| produces),
            commits: latest(&p.events).filter(|_| produces && p.tx == 0),
            from,
            to: readers.len(),
        });
    }
    // Slots that products read are freed where one waits for these anyway, or behind the next commit.
    let mut freed: SmallVec<[(Pipe, usize, Op, Freed); 2]> = SmallVec::new();
    for e in ends.iter() {
        for c in &readers[e.from..e.to] {
            let p = &ba.pipes[e.pipe];
            let Some(last) = c.last.filter(|_| p.consumers[c.number].key.class == Class::Group) else {
                continue;
            };
            if let Some(place) = free(scope, p, block, order, last, sched) {
                freed.push((e.pipe, c.number, last, place));
            }
        }
    }
    for &(_, _, l, item) in order.iter() {
        out.skew = out.skew.max(l);
        for &(pipe, n, last, place) in &freed {
            if let Freed::Before(local, at) = place
                && at == item
            {
                out.skew = out.skew.max(local);
                out.steps.push((local, Step::Release(pipe, n, Some(last), 0)));
            }
        }
        for e in ends.iter().filter(|e| e.acquires == Some(item)) {
            out.steps.push((l, Step::Acquire(e.pipe)));
            if ba.pipes[e.pipe].tx > 0 {
                out.steps.push((l, Step::CommitTx(e.pipe)));
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
        for e in ends.iter() {
            for c in readers[e.from..e.to].iter().filter(|c| c.first == Some(item)) {
                receive(&mut out.steps, &ba.pipes[e.pipe], e.pipe, c.number, l);
            }
        }
        if ba.store_waits.contains(&(agent, item)) {
            out.steps.push((l, Step::StoreWait));
        }
        out.steps.push((l, Step::Item(item)));
        for e in ends.iter().filter(|e| e.commits == Some(item)) {
            out.steps.push((l, Step::Commit(e.pipe)));
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
                    let completes = last.filter(|_| !matches!(c.key.class, Class::Sync | Class::Group));
                    out.steps.push((l, Step::Release(id, n, completes, 0)));
                    out.steps.push((l, Step::Inc(id)));
                }
            }
        }
        // What is freed behind an item tells of all that was waited for there.
        for e in ends.iter().filter(|e| !ba.pipes[e.pipe].is_scalar()) {
            for c in readers[e.from..e.to].iter().filter(|c| c.last == Some(item) && c.first.is_none()) {
                out.steps.push((l, Step::Wait(e.pipe, c.number)));
            }
        }
        for e in ends.iter().filter(|e| !ba.pipes[e.pipe].is_scalar()) {
            for c in readers[e.from..e.to].iter().filter(|c| c.last == Some(item)) {
                let elsewhere = freed.iter().any(|f| (f.0, f.1) == (e.pipe, c.number));
                if ba.pipes[e.pipe].consumers[c.number].key.class != Class::Bulk && !elsewhere {
                    out.steps.push((l, Step::Release(e.pipe, c.number, Some(item), 0)));
                }
            }
        }
    }
    for e in ends.iter().filter(|e| ba.pipes[e.pipe].is_scalar()) {
        for c in readers[e.from..e.to].iter_mut().filter(|c| c.first.is_none()) {
            let p = &ba.pipes[e.pipe];
            c.late = handed_on(scope, block, order, &p.events).unwrap_or(out.skew);
            receive(&mut out.steps, p, e.pipe, c.number, c.late);
        }
    }
    // End of the home region: stores are waited for in issue order, then all iterators advance.
    tail.clear();
    for e in ends.iter() {
        let p = &ba.pipes[e.pipe];
        for c in &readers[e.from..e.to] {
            let Some(last) = c.last.filter(|_| ba.pipes[e.pipe].consumers[c.number].key.class == Class::Bulk)
            else {
                continue;
            };
            let at = order.iter().position(|o| o.3 == last).unwrap_or(0);
            // Groups certainly committed behind it: later leaf stores of the same local stage.
            let store = |o: &&(u32, u32, u32, Op)| {
                func.regions(o.3).is_empty() && class_of(func, plan, o.3) == Class::Bulk
            };
            let mut stores = order.iter().filter(store);
            let pending = match stores.find(|s| s.3 == last) {
                Some(_) => stores.filter(|s| s.2 == local(last)).count() as u32,
                None => 0,
            };
            // The slot that is acquired next was stored from that many iterations ago, and each iteration commits its groups.
            let deferred = if p.defers(func) && out.skew == 0 { p.depth.saturating_sub(1) } else { 0 };
            let pending = pending + deferred * order.iter().filter(store).count() as u32;
            tail.push((local(last), at as u32, Step::Release(e.pipe, c.number, Some(last), pending)));
        }
    }
    tail.sort_by_key(|t| (t.0, t.1));
    incs.clear();
    if func.block_parent(block).is_some() {
        for e in ends.iter() {
            let p = &ba.pipes[e.pipe];
            locals.clear();
            if p.producer.agent == agent {
                locals.extend(p.acquires.iter().map(|&op| local(op)));
            }
            for c in &readers[e.from..e.to] {
                match c.first {
                    // Where it waits there need not be a use: an access to the view that a load reads waits for it too.
                    first if !p.is_scalar() => {
                        let uses = p.consumers[c.number].uses.iter().copied();
                        locals.extend(uses.chain(first).map(local));
                    }
                    Some(first) => locals.push(local(first)),
                    None => locals.push(c.late),
                }
            }
            locals.sort_unstable();
            locals.dedup();
            incs.extend(locals.iter().map(|&l| (l, Step::Inc(e.pipe))));
        }
    }
    out.steps.extend(tail.iter().map(|t| (t.0, t.2)));
    let releases = out.steps.len();
    out.steps.extend_from_slice(incs);
    // Within the tail, one group per local stage.
    let from = out.steps[..releases].iter().rposition(|s| matches!(s.1, Step::Item(_))).map_or(0, |i| i + 1);
    let bulk_from = (from..releases)
        .find(|&i| matches!(out.steps[i].1, Step::Release(_, _, _, _)) && is_tail(&out.steps[i].1, ba));
    let sort_from = bulk_from.unwrap_or(releases);
    out.steps[sort_from..].sort_by_key(|s| s.0);
    for &(pipe, n, last, place) in &freed {
        if let Freed::Late(local) = place {
            out.skew = out.skew.max(local);
            out.steps.push((local, Step::Release(pipe, n, Some(last), 0)));
        }
    }
    out
}

/// Where a slot is freed that a product reads.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Freed {
    /// In front of the item, which needs the product complete, in that local stage.
    Before(u32, Op),
    /// At the end of a step, in that local stage.
    Late(u32),
}

/// Slots from which on one is not missed while a product is still under way: one that is read, one that is read next, one that is filled.
const SPARE_SLOTS: u32 = 3;

/// Most items of a loop that is written twice for a late release.
const MOST_ITEMS: usize = 48;

/// Where the slot of a pipe is freed that product `last` reads as the last; `None`: right behind it, which waits for the product. A wait that
/// only a release needs stands behind the next commit: so that the tensor core has the next product while it ends the one before.
fn free(
    scope: &Scope<'_>,
    p: &PipeData,
    block: Block,
    order: &[(u32, u32, u32, Op)],
    last: Op,
    sched: Option<&LoopSchedule>,
) -> Option<Freed> {
    let func = scope.func;
    let result = func.result(last).filter(|_| func.opcode(last) == Opcode::AsyncDot)?;
    let at = order.iter().position(|o| o.3 == last)?;
    let local = order[at].2;
    let l = func.block_parent(block).filter(|&l| func.opcode(l) == Opcode::For);
    // Names of the result: in this iteration, and in the next.
    let carried = l.and_then(|l| {
        let n = func.region_yields(l, 0).iter().position(|&y| y == result)?;
        func.for_args(l).get(n).copied()
    });
    let mut first: Option<((u32, usize), Op)> = None;
    for (n, &(_, _, other, item)) in order.iter().enumerate() {
        let mut takes = [false; 2];
        for_each_use(func, item, &mut |v| {
            takes[0] |= v == result;
            takes[1] |= Some(v) == carried;
        });
        if func.opcode(item) == Opcode::AsyncDot {
            continue;
        }
        for (add, _) in takes.iter().enumerate().filter(|t| *t.1) {
            let when = (other + add as u32, n);
            if when > (local, at) && first.is_none_or(|f| when < f.0) {
                first = Some((when, item));
            }
        }
    }
    let whole = order.len() <= MOST_ITEMS && order.iter().all(|o| func.regions(o.3).is_empty());
    let may_lag = p.depth - p.why.spare >= SPARE_SLOTS
        && p.has_empty
        && p.named.is_none()
        && p.distance == 0
        && sched.is_some_and(|s| !s.serial)
        && l.is_some_and(|l| !func.is_slice_loop(l) && func.exit_of(l).is_none())
        && whole;
    match first {
        Some(((at, _), item)) if at == local || may_lag && at <= local + 1 => Some(Freed::Before(at, item)),
        _ if may_lag => Some(Freed::Late(local + 1)),
        _ => None,
    }
}

/// The local stage in which the next iteration of a loop first takes what `sources` make, where the loop hands it on; `None` if
/// none does.
fn handed_on(scope: &Scope<'_>, block: Block, order: &[(u32, u32, u32, Op)], sources: &[Op]) -> Option<u32> {
    let &Scope { func, needs, .. } = scope;
    let l = func.block_parent(block).filter(|&l| func.opcode(l) == Opcode::For)?;
    let (args, yields) = (func.for_args(l), func.region_yields(l, 0));
    let made = |v: Value| func.defining_op(v).is_some_and(|d| sources.contains(&d));
    let mut least = None;
    for (&arg, &y) in args.iter().zip(yields).filter(|(arg, _)| needs.values.contains(**arg)) {
        if !made(y) {
            // What is computed of it for the next iteration, is so in the first local stage.
            if rests_on(func, block, y, &made) {
                return Some(0);
            }
            continue;
        }
        for op in func.block_ops(block) {
            let mut takes = false;
            for_each_use(func, op, &mut |v| takes |= v == arg);
            if !takes {
                continue;
            }
            // What is not an item is computed before all items.
            let local = order.iter().find(|o| o.3 == op).map_or(0, |o| o.2);
            least = Some(least.map_or(local, |n: u32| n.min(local)));
        }
    }
    least
}

/// Whether a value of a block is computed there from what is `made`.
fn rests_on(func: &Function, block: Block, v: Value, made: &dyn Fn(Value) -> bool) -> bool {
    let (mut work, mut seen) = (vec![v], EntitySet::new());
    while let Some(v) = work.pop() {
        if made(v) {
            return true;
        }
        if let Some(d) = func.defining_op(v).filter(|&d| func.op_block(d) == Some(block) && seen.insert(d)) {
            for_each_use(func, d, &mut |u| work.push(u));
        }
    }
    false
}

/// The wait of consumer `n`; for scalars also the reads and the release.
fn receive(steps: &mut Vec<(u32, Step)>, p: &PipeData, id: Pipe, n: usize, local: u32) {
    steps.push((local, Step::Wait(id, n)));
    if p.is_scalar() {
        steps.extend(p.events.iter().map(|&source| (local, Step::Item(source))));
        steps.push((local, Step::Release(id, n, None, 0)));
    }
}

fn is_tail(step: &Step, ba: &BufferAssignment) -> bool {
    matches!(step, Step::Release(p, n, _, _) if ba.pipes[*p].consumers[*n].key.class == Class::Bulk)
}
