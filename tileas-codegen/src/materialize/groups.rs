//! Waits for products onto registers.
//!
//! In: a materialised function in which nothing waits for such products. Out: the same with `async.dot_wait` in front of whatever needs one
//! of them complete: an op that reads its result, a release of a slot that it reads, a write to such a slot, a token, any signal of the kernel body
//! where what it reads lies in the memory of another buffer (who writes that next waits for one of these), the end of a region that does not hand it on; and with `dots_complete` on loops that leave some under way. Groups of one agent complete in the order of their commits, so a wait says how many younger ones may stay under
//! way; each leaves as many as there are behind the youngest that it needs.
//!
//! Method: the queue of groups under way is followed through the code. Around a loop it is iterated until it repeats; where two ways to one
//! point have queues of which neither ends the other, both wait for everything. An accumulator handed on to the next product or
//! iteration in its own registers is not read. Cost: ops × groups under way, a few times per loop.
//!
//! Source: PTX ISA, wgmma.wait_group. The rule is checked by `verify::groups`, which shares nothing with this.

use crate::ir::opcodes::Traits;
use crate::ir::verifier::MOST_PENDING;
use crate::ir::{AttrData, Block, Function, Op, Opcode, Value, ValueDef, keys};
use crate::storage::access::{is_in_registers, may_take_over};
use cranelift_entity::SecondaryMap;
use smallvec::{SmallVec, smallvec};

/// A slot that a product reads: of which pipe, and how many iterations of the loop that advances it ago. In step t an op of local stage k
/// works for iteration t - k.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Slot {
    /// The consumer's end.
    pipe: Value,
    ago: i64,
}

/// A committed product that may be under way.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Group {
    op: Op,
    /// Names of its result.
    sums: SmallVec<[Value; 2]>,
    slots: SmallVec<[Slot; 2]>,
    /// Buffers that it reads.
    buffers: SmallVec<[Value; 2]>,
    /// Values whose registers it reads: they must not be made again.
    taken: SmallVec<[Value; 2]>,
    /// It was committed in an earlier iteration of a loop around.
    old: bool,
}

/// Groups under way, the oldest first.
type Queue = SmallVec<[Group; 4]>;

/// Rounds after which a loop is not expected to settle.
const ROUNDS: usize = 8;

struct Groups<'a> {
    func: &'a Function,
    uses: SecondaryMap<Value, u32>,
    /// Consumers' ends of pipes, each with the loop body in which its agent waits for its slots, if there is one.
    pipes: Vec<(Value, Option<Block>)>,
    /// Whether waits are noted, or only followed.
    notes: bool,
    /// In front of which op, and how many groups may stay.
    waits: Vec<(Op, usize)>,
    /// Loops and branches before whose ends nothing stays under way.
    drained: Vec<Op>,
    /// Loops behind whose last iteration everything is waited for.
    completes: Vec<Op>,
    /// The loops around.
    loops: Vec<Op>,
    /// Buffers in whose memory another one lies as well.
    shared: SmallVec<[Value; 8]>,
}

/// Buffers of shared memory that overlap another one.
pub(super) fn sharing(func: &Function) -> SmallVec<[Value; 8]> {
    let range = |op: Op| {
        let v = func.result(op).filter(|_| func.opcode(op) == Opcode::AllocTensor)?;
        let (at, bytes) = (func.attr_int(op, keys::OFFSET)?, func.value_data(v).ring_bytes()?);
        Some((v, at, at.saturating_add_unsigned(bytes)))
    };
    let all: SmallVec<[(Value, i64, i64); 16]> = func.block_ops(func.entry()).filter_map(range).collect();
    let meets = |&&(v, from, to): &&(Value, i64, i64)| all.iter().any(|o| o.0 != v && from < o.2 && o.1 < to);
    all.iter().filter(meets).map(|b| b.0).collect()
}

/// Writes the waits.
pub fn insert(func: &mut Function) {
    let group = |op: Op| is_group(func, op);
    if !func.ops().any(group) {
        return;
    }
    let mut g = Groups {
        func,
        uses: SecondaryMap::new(),
        pipes: Vec::new(),
        notes: false,
        waits: Vec::new(),
        drained: Vec::new(),
        completes: Vec::new(),
        loops: Vec::new(),
        shared: sharing(func),
    };
    for op in func.ops() {
        func.operands(op).iter().for_each(|&v| g.uses[v] += 1);
        if let (Opcode::AsyncPipelineConsumerWait, &[end, ..]) = (func.opcode(op), func.operands(op)) {
            let around = std::iter::successors(func.op_parent(op), |&p| func.op_parent(p));
            let l = around.into_iter().find(|&p| func.opcode(p) == Opcode::For);
            let body = l.and_then(|l| func.op_block_at(l, 0));
            // Copies of a loop's body stand beside it.
            match g.pipes.iter_mut().find(|p| p.0 == end) {
                Some(p) if body.is_some_and(|b| p.1.is_none_or(|o| func.common_block(o, b) == o)) => {
                    p.1 = body
                }
                Some(_) => {}
                None => g.pipes.push((end, body)),
            }
        }
    }
    let switches =
        func.block_ops(func.entry()).filter(|&op| func.opcode(op) == Opcode::AsyncPipelineAgentSwitch);
    for switch in switches {
        for &r in func.regions(switch) {
            let block = func.region_block(r);
            // Which loops must end without anything under way shows in the first pass.
            for notes in [false, true] {
                g.notes = notes;
                let left = g.block(block, Queue::new());
                if let (false, Some(end)) = (left.is_empty(), func.last_op(block)) {
                    g.wait(end, &mut left.clone(), left.len() - 1);
                }
            }
        }
    }
    let Groups { waits, completes, .. } = g;
    for op in completes {
        func.set_attr(op, keys::DOTS_COMPLETE, AttrData::Unit);
    }
    for (before, pending) in waits {
        let op = func.make_op(Opcode::AsyncDotWait, &[], &[], &[], func.op_loc(before));
        func.set_int(op, keys::PENDING, pending as i64);
        // A condition of an exit stays in front of the end.
        let exit = func.prev_op(before).filter(|&e| func.opcode(e) == Opcode::ExitIf);
        func.insert_before(exit.unwrap_or(before), op);
    }
}

/// Whether an op is a product onto registers.
fn is_group(func: &Function, op: Op) -> bool {
    func.opcode(op) == Opcode::AsyncDot && func.result(op).is_some_and(|v| is_in_registers(func, v))
}

/// The end of a pipe at which a slot was taken.
pub(super) fn pipe_of(func: &Function, v: Value, depth: u32) -> Option<Value> {
    let depth = depth.checked_sub(1)?;
    match func.value_def(v) {
        ValueDef::Param(b, n) => {
            let l = func.block_parent(b).filter(|&l| func.opcode(l) == Opcode::For)?;
            pipe_of(func, *func.named_segment(l, "inits").get((n as usize).checked_sub(1)?)?, depth)
        }
        ValueDef::Result(op, n) => match func.opcode(op) {
            Opcode::AsyncPipelineCreatePipeline => Some(v),
            Opcode::AsyncPipelineConsumerWait
            | Opcode::AsyncPipelineConsumerRelease
            | Opcode::AsyncPipelineProducerAcquire
            | Opcode::AsyncPipelineProducerCommit => pipe_of(func, *func.operands(op).first()?, depth),
            Opcode::For => pipe_of(func, *func.named_segment(op, "inits").get(n as usize)?, depth),
            Opcode::If => {
                let arms =
                    (0..func.regions(op).len()).filter_map(|r| func.region_yields(op, r).get(n as usize));
                arms.copied().find_map(|y| pipe_of(func, y, depth))
            }
            _ => None,
        },
    }
}

/// The values in whose registers the first operand of a product is: itself, and what only names the registers of another.
fn registers_of(func: &Function, op: Op) -> SmallVec<[Value; 2]> {
    let mut out = SmallVec::new();
    let mut next = func.named_operand(op, "a").filter(|&v| is_in_registers(func, v));
    while let Some(v) = next {
        out.push(v);
        let by = func.defining_op(v).filter(|&d| func.opcode(d).has(Traits::SHAPE));
        next = by.and_then(|d| func.operands(d).first().copied());
    }
    out
}

/// What a value is called from here on.
fn rename(queue: &mut Queue, from: Value, to: Value) {
    for g in queue.iter_mut() {
        if g.sums.contains(&from) && !g.sums.contains(&to) {
            g.sums.push(to);
        }
    }
}

/// Forgets the names that are in scope of a region alone.
fn forget(queue: &mut Queue, inner: &dyn Fn(Value) -> bool) {
    for g in queue.iter_mut() {
        g.sums.retain(|v| !inner(*v));
        g.sums.sort_unstable();
    }
}

/// The queue of either way, if one of the two is the end of the other.
fn join(a: &Queue, b: &Queue) -> Option<Queue> {
    let (long, short) = if a.len() >= b.len() { (a, b) } else { (b, a) };
    let mut out = long.clone();
    let from = long.len() - short.len();
    for (x, y) in out[from..].iter_mut().zip(short) {
        if x.op != y.op {
            return None;
        }
        let more: SmallVec<[Value; 2]> = y.sums.iter().copied().filter(|v| !x.sums.contains(v)).collect();
        x.sums.extend(more);
        x.sums.sort_unstable();
        // A slot of either: that of the earlier iteration is released first.
        for &slot in &y.slots {
            match x.slots.iter_mut().find(|s| s.pipe == slot.pipe) {
                Some(mine) => mine.ago = mine.ago.max(slot.ago),
                None => x.slots.push(slot),
            }
        }
        x.slots.sort_unstable();
    }
    Some(out)
}

impl Groups<'_> {
    /// Waits until the group of that number is complete.
    fn wait(&mut self, before: Op, queue: &mut Queue, number: usize) {
        let pending = queue.len() - 1 - number;
        // In the first iteration what an older product updates was not made by a product: the assembler, which knows one code for all
        // iterations, would take it for written while that is under way. So it stays only until the next one on the same registers.
        let again = |n: usize| queue[n + 1..].iter().any(|g| !g.old && g.op == queue[n].op);
        if (0..=number).any(|n| queue[n].old && !again(n))
            && let Some(&l) = self.loops.last()
            && !self.drained.contains(&l)
        {
            self.drained.push(l);
        }
        if self.notes {
            self.waits.push((before, pending));
        }
        queue.drain(..=number);
    }

    /// The youngest group that a value is a result of.
    fn computes(&self, queue: &Queue, v: Value) -> Option<usize> {
        queue.iter().rposition(|g| g.sums.contains(&v))
    }

    /// Waits for those results of groups that `op` reads, except where it takes over their registers.
    fn wait_for_reads(
        &mut self,
        op: Op,
        values: &[Value],
        queue: &mut Queue,
        in_place: &dyn Fn(usize) -> bool,
    ) {
        let read = values.iter().enumerate().filter(|&(n, _)| !in_place(n));
        if let Some(number) = read.filter_map(|(_, &v)| self.computes(queue, v)).max() {
            self.wait(op, queue, number);
        }
    }

    fn takes_over(&self, v: Value, user: Op) -> bool {
        may_take_over(self.func, v, user, self.uses[v])
    }

    /// Whether what a loop yields lies in the registers of its argument.
    fn stays(&self, mut v: Value, arg: Value, end: Op) -> bool {
        let mut user = end;
        loop {
            if v == arg {
                return self.takes_over(v, user);
            }
            let by = self.func.defining_op(v).filter(|&d| is_group(self.func, d));
            let Some((by, acc)) = by.and_then(|d| Some((d, self.func.named_operand(d, "acc")?))) else {
                return false;
            };
            if !self.takes_over(v, user) {
                return false;
            }
            (v, user) = (acc, by);
        }
    }

    /// The value in whose registers a product is computed: the first of those that hand them on from product to product.
    fn home(&self, mut op: Op) -> Option<Value> {
        loop {
            let acc = self.func.named_operand(op, "acc").filter(|&v| self.takes_over(v, op))?;
            match self.func.defining_op(acc).filter(|&d| is_group(self.func, d)) {
                Some(before) => op = before,
                None => return Some(acc),
            }
        }
    }

    /// The queue behind a block; `queue` is that before it.
    fn block(&mut self, block: Block, mut queue: Queue) -> Queue {
        let mut next = self.func.first_op(block);
        while let Some(op) = next {
            next = self.func.next_op(op);
            self.op(op, &mut queue);
        }
        queue
    }

    fn op(&mut self, op: Op, queue: &mut Queue) {
        let func = self.func;
        let signals = matches!(
            func.opcode(op),
            Opcode::AsyncPipelineConsumerRelease | Opcode::AsyncPipelineProducerCommit
        );
        if signals && self.loops.is_empty() {
            let shares = |g: &Group| g.buffers.iter().any(|b| self.shared.contains(b));
            if let Some(number) = queue.iter().rposition(shares) {
                self.wait(op, queue, number);
            }
        }
        match func.opcode(op) {
            Opcode::For => self.for_loop(op, queue),
            Opcode::If => self.branch(op, queue),
            // Ends of regions belong to these.
            Opcode::Yield => {}
            Opcode::AsyncPipelineConsumerRelease => {
                let pipe = func.operands(op).first().and_then(|&v| pipe_of(func, v, 32));
                let local = func.attr_int(op, keys::LOCAL).unwrap_or(0);
                let reads = |g: &Group| g.slots.iter().any(|s| Some(s.pipe) == pipe && s.ago >= local);
                if let Some(number) = queue.iter().rposition(reads) {
                    self.wait(op, queue, number);
                }
            }
            // A token speaks for all that its agent did.
            Opcode::AsyncPipelineProducerCommit => {
                let pipe = func.operands(op).first().and_then(|&v| pipe_of(func, v, 32));
                let made = pipe.and_then(|p| func.defining_op(p));
                if made.is_some_and(|c| func.operands(c).is_empty()) && !queue.is_empty() {
                    self.wait(op, queue, queue.len() - 1);
                }
            }
            Opcode::AsyncDot if is_group(func, op) => {
                let acc = func.named_operand(op, "acc");
                let operands: SmallVec<[Value; 8]> = SmallVec::from_slice(func.operands(op));
                let kept = acc.is_some_and(|v| self.takes_over(v, op));
                self.wait_for_reads(op, &operands, queue, &|n| kept && Some(operands[n]) == acc);
                let mut g = Group {
                    op,
                    sums: smallvec![],
                    slots: smallvec![],
                    buffers: smallvec![],
                    taken: smallvec![],
                    old: false,
                };
                g.sums.extend(func.result(op));
                g.buffers.extend(["a", "b"].iter().filter_map(|name| func.named_operand(op, name)));
                g.taken = registers_of(func, op);
                let ago = func.attr_int(op, keys::LOCAL).unwrap_or(0);
                let hands_over = |p: &Value| {
                    let made = func.defining_op(*p);
                    made.is_some_and(|c| func.operands(c).iter().any(|b| g.buffers.contains(b)))
                };
                let pipes = self.pipes.iter().map(|p| p.0).filter(hands_over);
                g.slots.extend(pipes.map(|pipe| Slot { pipe, ago }));
                g.slots.sort_unstable();
                // A wait counts no more than that.
                if queue.len() >= MOST_PENDING as usize {
                    self.wait(op, queue, 0);
                }
                queue.push(g);
            }
            _ => {
                let written = func.named_operand(op, "dest");
                let over = queue.iter().rposition(|g| written.is_some_and(|b| g.buffers.contains(&b)));
                let operands: SmallVec<[Value; 8]> = SmallVec::from_slice(func.operands(op));
                let read = operands.iter().filter_map(|&v| self.computes(queue, v)).max();
                let again = queue.iter().rposition(|g| func.results(op).iter().any(|v| g.taken.contains(v)));
                if let Some(number) = over.max(read).max(again) {
                    self.wait(op, queue, number);
                }
            }
        }
    }

    fn for_loop(&mut self, op: Op, queue: &mut Queue) {
        let func = self.func;
        let (Some(body), Some(end)) =
            (func.op_block_at(op, 0), func.op_block_at(op, 0).and_then(|b| func.last_op(b)))
        else {
            return;
        };
        // Sums of which a loop stores slices are complete in front of it, and not waited for with each slice. Nothing stays under way around the
        // loop, which would wait for it at its head.
        if func.is_slice_loop(op) && !queue.is_empty() {
            let mut reads = false;
            let mut look =
                |o: Op| reads |= func.operands(o).iter().any(|&v| self.computes(queue, v).is_some());
            func.walk(body, &mut look);
            if reads {
                self.wait(op, queue, queue.len() - 1);
            }
        }
        let operands: SmallVec<[Value; 8]> = SmallVec::from_slice(func.operands(op));
        let kept: SmallVec<[bool; 8]> = operands.iter().map(|&v| self.takes_over(v, op)).collect();
        self.wait_for_reads(op, &operands, queue, &|n| n >= 3 && kept[n]);
        if self.drained.contains(&op) && !queue.is_empty() {
            self.wait(op, queue, queue.len() - 1);
        }
        let args: SmallVec<[Value; 8]> = SmallVec::from_slice(func.for_args(op));
        let yields: SmallVec<[Value; 8]> = SmallVec::from_slice(func.region_yields(op, 0));
        let inits = func.named_segment(op, "inits");
        let mut entry = queue.clone();
        for (&init, &arg) in inits.iter().zip(&args) {
            rename(&mut entry, init, arg);
        }
        let notes = std::mem::replace(&mut self.notes, false);
        let mut at_head = entry.clone();
        let mut round = 0;
        let behind = loop {
            let drained = self.drained.contains(&op);
            let back = self.around(op, body, end, at_head.clone(), &args, &yields);
            let joined = join(&entry, &back).filter(|_| drained || round < ROUNDS);
            match joined.filter(|_| drained == self.drained.contains(&op)) {
                Some(j) if j == at_head => break back,
                Some(j) => at_head = j,
                None => {
                    // Nothing stays under way at the head of this loop.
                    if !self.drained.contains(&op) {
                        self.drained.push(op);
                    }
                    if !queue.is_empty() {
                        self.notes = notes;
                        self.wait(op, queue, queue.len() - 1);
                        self.notes = false;
                    }
                    entry.clear();
                    at_head.clear();
                }
            }
            round += 1;
        };
        self.notes = notes;
        if notes {
            self.around(op, body, end, at_head, &args, &yields);
        }
        // Where no iteration ran, nothing is behind the loop but what was before it: the assembler takes registers that come from both
        // ways for written while a product is under way.
        if notes && !behind.is_empty() {
            self.completes.push(op);
        }
        for (&init, &result) in inits.iter().zip(func.results(op)) {
            rename(queue, init, result);
        }
        if !behind.is_empty() && !queue.is_empty() {
            self.wait(op, queue, queue.len() - 1);
        }
    }

    /// The queue at the head of the next iteration.
    fn around(
        &mut self,
        l: Op,
        body: Block,
        end: Op,
        head: Queue,
        args: &[Value],
        yields: &[Value],
    ) -> Queue {
        let func = self.func;
        self.loops.push(l);
        let mut queue = self.block(body, head);
        let kept: SmallVec<[bool; 8]> =
            yields.iter().zip(args).map(|(&y, &arg)| self.stays(y, arg, end)).collect();
        self.wait_for_reads(end, yields, &mut queue, &|n| kept[n]);
        // Arguments are made again here.
        let made = |v: Value| args.iter().position(|&arg| arg == v);
        let again = |g: &Group| {
            let written = self.home(g.op).and_then(made).is_some_and(|n| !kept[n]);
            written || g.taken.iter().any(|&v| made(v).is_some())
        };
        if let Some(number) = queue.iter().rposition(again) {
            self.wait(end, &mut queue, number);
        }
        if self.drained.contains(&l) && !queue.is_empty() {
            let all = queue.len() - 1;
            self.wait(end, &mut queue, all);
        }
        self.loops.pop();
        // Names of this iteration end; the next one has its own.
        let mut next = queue.clone();
        forget(&mut next, &|v| func.is_inside(v, body));
        for (g, old) in next.iter_mut().zip(&queue) {
            for (&y, &arg) in yields.iter().zip(args) {
                if old.sums.contains(&y) && !g.sums.contains(&arg) {
                    g.sums.push(arg);
                }
            }
            g.sums.sort_unstable();
            g.old = true;
            for s in &mut g.slots {
                s.ago += i64::from(self.pipes.contains(&(s.pipe, Some(body))));
            }
        }
        next
    }

    fn branch(&mut self, op: Op, queue: &mut Queue) {
        let func = self.func;
        let condition: SmallVec<[Value; 2]> = SmallVec::from_slice(func.operands(op));
        self.wait_for_reads(op, &condition, queue, &|_| false);
        // What an arm hands on of what was before it.
        let yields = (0..func.regions(op).len()).flat_map(|r| func.region_yields(op, r).iter().copied());
        let outer: SmallVec<[Value; 8]> = yields.filter(|&y| self.computes(queue, y).is_some()).collect();
        self.wait_for_reads(op, &outer, queue, &|_| false);
        if self.drained.contains(&op) && !queue.is_empty() {
            self.wait(op, queue, queue.len() - 1);
        }
        let mut ends: SmallVec<[Queue; 2]> = SmallVec::new();
        let notes = self.notes;
        for round in 0..2 {
            // The second time with what the first has shown.
            self.notes = notes && round > 0;
            ends.clear();
            let drained = self.drained.contains(&op);
            for r in 0..func.regions(op).len() {
                let Some((block, end)) = func.op_block_at(op, r).and_then(|b| Some((b, func.last_op(b)?)))
                else {
                    continue;
                };
                let mut inner = self.block(block, queue.clone());
                let yields: SmallVec<[Value; 8]> = SmallVec::from_slice(func.operands(end));
                // What both arms bring to one place is moved.
                self.wait_for_reads(end, &yields, &mut inner, &|_| false);
                if drained && !inner.is_empty() {
                    let all = inner.len() - 1;
                    self.wait(end, &mut inner, all);
                }
                let mut slots = inner.clone();
                for (&y, &r) in yields.iter().zip(func.results(op)) {
                    rename(&mut slots, y, r);
                }
                forget(&mut slots, &|v| func.is_inside(v, block));
                ends.push(slots);
            }
            if let [a, b] = ends.as_slice()
                && join(a, b).is_none()
                && !drained
            {
                self.drained.push(op);
                if !queue.is_empty() {
                    self.notes = notes;
                    self.wait(op, queue, queue.len() - 1);
                }
            }
        }
        self.notes = notes;
        *queue = match ends.as_slice() {
            [a, b] => join(a, b).unwrap_or_default(),
            [a] => a.clone(),
            _ => return,
        };
    }
}
