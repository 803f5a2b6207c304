//! The problem of one loop: its nodes, what orders them, and what they take of the machine.

use super::memory::{Fill, Memory, NodeInfo};
use super::refine::{Extra, MOST_AT_ONCE};
use super::webs::{Event, LoopWebs, Object, Order};
use super::{ScheduledRegion, for_each_nested};
use crate::agents::{Agent, AgentKind, AgentPlan};
use crate::constraints::{ConstraintMap, Group, RematWords};
use crate::error::{Code, CodegenError, CodegenResult};
use crate::ir::layouts::registers_per_thread;
use crate::ir::opcodes::Traits;
use crate::ir::{Block, Function, Op, Opcode, Space, TypeData, Value, ValueDef, push_number};
use crate::isa::{MachineModel, PoolRole};
use crate::schedule::{
    CycleModel, Node, NodeDef, NodeExtra, Pool, PoolUse, Problem, RegionSummary, Slot, Use,
};
use crate::storage::Storage;
use crate::storage::classify::is_product;
use crate::storage::cost;
use crate::storage::footprint::{self, Footprint};
use cranelift_entity::{EntitySet, PrimaryMap};
use smallvec::SmallVec;
use std::borrow::Cow;

/// Bytes of global memory that an iteration reads into registers, up to which a loop without other asynchronous work is pipelined. Above, one has
/// enough under way to wait for, and its registers decide how many CTAs share a multiprocessor.
const READ_AHEAD: u64 = 8192;
/// Registers of a thread that may hold what such a loop reads ahead: of one iteration, and of several.
const HELD_AHEAD: [u32; 2] = [64, 32];
/// Ops that such a loop may be written out to, one body for each iteration at once; two there are in any case.
const MOST_WRITTEN: u32 = 64;
/// Ops of such a loop at most: more compute longer than a load takes.
const MOST_OPS: u32 = 256;

/// Visits the values an op reads, nested ops included; `true` with the accumulator of a dot. What a
/// destination-form copy overwrites is not read.
fn for_each_read(func: &Function, op: Op, f: &mut impl FnMut(Value, bool)) {
    for_each_nested(func, op, &mut |inner| match func.opcode(inner) {
        Opcode::Dot | Opcode::AsyncDot => {
            let acc = func.named_operand(inner, "acc");
            func.operands(inner).iter().for_each(|&v| f(v, Some(v) == acc));
        }
        Opcode::Copy => {
            for segment in ["source", "source_stage", "dest_stage", "when", "number"] {
                func.named_segment(inner, segment).iter().for_each(|&v| f(v, false));
            }
        }
        _ => func.operands(inner).iter().for_each(|&v| f(v, false)),
    });
}

/// The set of reads that the next one may join, while a body is walked.
#[derive(Default)]
struct Reads {
    /// The node of the first one, and where it stands in the body.
    open: Option<(Node, Op)>,
    members: u32,
}

impl Reads {
    /// The node whose set an op joins. It is a copy of a whole tile or a slice from shared memory to registers, no word
    /// constrains it, what it reads was there before the first of the set, and nothing was written to shared
    /// memory since; and it would not live longer where a reader may be defused.
    fn join(&mut self, b: &mut Builder<'_>, op: Op) -> Option<Node> {
        let func = b.func;
        let space = |name| func.named_operand(op, name).and_then(|v| func.value_data(v).space());
        let copy = func.opcode(op) == Opcode::Copy;
        if copy && space("dest").is_some() || !func.regions(op).is_empty() {
            // A write, or what may have one inside.
            self.open = None;
        }
        let read = copy
            && space("source") == Some(Space::Smem)
            && space("dest").is_none()
            && func.result(op).is_some_and(|v| func.value_data(v).space() == Some(Space::Rmem));
        if !read || b.constraints_of(op) != (None, 0, false) || b.constraints.is_pending(op) {
            return None;
        }
        let most = b.machine.pool_for(PoolRole::FusedReads).map_or(0, |p| u32::from(p.capacity));
        let fits = self.open.filter(|&(node, first)| {
            self.members < most
                && b.plan.op_agent[op] == b.plan.op_agent[first]
                && b.memory.nodes.get(node).is_some()
                && b.reads_known_before(op, first)
                && !b.lives_longer(op, first)
        });
        match fits {
            Some((node, _)) => {
                self.members += 1;
                Some(node)
            }
            None => {
                self.open = Some((b.ops.next_key(), op));
                self.members = 1;
                None
            }
        }
    }
}

/// The ops of a node: several in a fused set.
pub(super) fn members<'a>(
    ops: &'a PrimaryMap<Node, Op>,
    fused: &'a [(Node, Op)],
    node: Node,
) -> impl Iterator<Item = Op> + 'a {
    std::iter::once(ops[node]).chain(fused.iter().filter(move |f| f.0 == node).map(|f| f.1))
}

/// All ops of the nodes; those of a fused set stand where its first one does.
pub(super) fn scheduled<'a>(
    ops: &'a PrimaryMap<Node, Op>,
    fused: &'a [(Node, Op)],
) -> impl Iterator<Item = (Node, Op)> + 'a {
    ops.keys().flat_map(move |n| members(ops, fused, n).map(move |op| (n, op)))
}

/// Builds problems; its memory serves all loops of a function.
pub(super) struct Builder<'a> {
    func: &'a Function,
    plan: &'a AgentPlan,
    constraints: &'a ConstraintMap,
    machine: &'a MachineModel,
    model: CycleModel,
    webs: LoopWebs<'a>,
    /// The ops of the nodes.
    ops: PrimaryMap<Node, Op>,
    /// The products among them.
    products: Vec<Op>,
    pub(super) memory: Memory,
}

impl<'a> Builder<'a> {
    pub(super) fn new(
        func: &'a Function,
        plan: &'a AgentPlan,
        storage: &'a Storage,
        constraints: &'a ConstraintMap,
        machine: &'a MachineModel,
        model: CycleModel,
        mut memory: Memory,
    ) -> Builder<'a> {
        memory.group_numbers.clear();
        memory.group_numbers.extend(constraints.groups().roots().zip(0..));
        memory.node_of.clear();
        memory.node_of.resize(func.num_ops());
        memory.seen.clear();
        memory.seen.resize(func.num_values());
        memory.epoch = 0;
        let webs = LoopWebs::new(storage);
        Builder {
            func,
            plan,
            constraints,
            machine,
            model,
            webs,
            ops: PrimaryMap::new(),
            products: Vec::new(),
            memory,
        }
    }

    /// The problem of one loop, and the op of each of its nodes; not scheduled yet.
    pub(super) fn region(
        &mut self,
        for_op: Op,
        number: usize,
        extra: &Extra,
    ) -> CodegenResult<ScheduledRegion> {
        let m = &mut self.memory;
        m.nodes.clear();
        m.live.clear();
        m.edges.clear();
        m.events.clear();
        let mut name = std::mem::take(&mut m.fill.id);
        name.clear();
        name.push_str(&self.func.name);
        name.push_str("/loop");
        push_number(&mut name, number as u64);
        let ScheduledRegion { mut problem, schedule, ops, fused, .. } = m.region(for_op, &name);
        m.fill.id = name;
        (self.ops, m.fused) = (ops, fused);
        let Some(body) = self.func.op_block_at(for_op, 0) else {
            let (ops, fused) = (std::mem::take(&mut self.ops), std::mem::take(&mut self.memory.fused));
            return Ok(ScheduledRegion { for_op, schedule, problem, ops, fused });
        };
        self.collect_nodes(body, extra.fuse_reads)?;
        self.products.clear();
        self.products.extend(self.ops.values().copied().filter(|&op| is_product(self.func, op)));
        self.find_live(body);
        self.ssa_edges(body);
        self.web_edges(body);
        self.memory_edges();
        let mut summary = self.summary();
        for e in extra.edges.iter().filter(|e| self.func.op_block(e.from) == Some(body)) {
            if let (Some(from), Some(to)) =
                (self.memory.node_of[e.from].expand(), self.memory.node_of[e.to].expand())
            {
                self.memory.edges.order(from, to, e.latency.max(0) as u32, e.distance);
            }
        }
        summary.force_serial = self.constraints.force_serial(for_op) || extra.serial.contains(&for_op);
        problem.summary = Some(summary);
        self.fill(&mut problem, extra);
        let (ops, fused) = (std::mem::take(&mut self.ops), std::mem::take(&mut self.memory.fused));
        Ok(ScheduledRegion { for_op, schedule, problem, ops, fused })
    }

    fn collect_nodes(&mut self, body: Block, fuse_reads: bool) -> CodegenResult<()> {
        let func = self.func;
        let mut reads = Reads::default();
        for op in func.block_ops(body) {
            let mut planned = false;
            let mut orphan = None;
            for_each_nested(func, op, &mut |inner| {
                let opcode = func.opcode(inner);
                let agent = self.plan.op_agent[inner].is_some();
                planned |= agent;
                let silent = opcode.has(Traits::PURE)
                    || opcode.is_terminator()
                    || matches!(opcode, Opcode::If | Opcode::For);
                if !agent && !silent && orphan.is_none() {
                    orphan = Some(inner);
                }
            });
            if let Some(inner) = orphan {
                let text = format!("the plan gives `{}` no agent", func.opcode(inner).name());
                return Err(CodegenError::new(Code::E0509, func.op_loc(inner), text));
            }
            if !planned {
                continue;
            }
            let fuse = fuse_reads && self.model == CycleModel::Slot;
            if let Some(node) = if fuse { reads.join(self, op) } else { None } {
                self.memory.fused.push((node, op));
                self.memory.node_of[op] = node.into();
                self.charge_set(node);
                continue;
            }
            let is_region = !func.regions(op).is_empty();
            let footprint = Footprint::of(func, self.plan, self.machine, self.model, op)?;
            let node = self.ops.push(op);
            let is_dot = matches!(func.opcode(op), Opcode::Dot | Opcode::AsyncDot);
            self.memory.nodes.push(NodeInfo { hold: footprint.hold(), footprint, is_dot, is_region });
            self.memory.node_of[op] = node.into();
        }
        Ok(())
    }

    /// Whether no operand of `op` depends on an op of the body from `first` on: all come from before, by nodes or
    /// without any.
    fn reads_known_before(&mut self, op: Op, first: Op) -> bool {
        let func = self.func;
        let (mut seen, mut stack) =
            (std::mem::take(&mut self.memory.walked), std::mem::take(&mut self.memory.stack));
        seen.clear();
        stack.clear();
        stack.extend_from_slice(func.operands(op));
        let mut known = true;
        while let Some(v) = stack.pop() {
            let ValueDef::Result(def, _) = func.value_def(v) else { continue };
            if func.op_block(def) != func.op_block(first) || !seen.insert(v) {
                continue;
            }
            match self.memory.node_of[def].expand() {
                Some(node) => known &= self.memory.node_of[first].expand().is_some_and(|f| node < f),
                None => stack.extend_from_slice(func.operands(def)),
            }
            if !known {
                break;
            }
        }
        (self.memory.walked, self.memory.stack) = (seen, stack);
        known
    }

    /// Whether what an op reads would wait in registers if it were read with `first`, and one of its readers has the word that
    /// takes it out of the set then: its agent computes something in between.
    fn lives_longer(&self, op: Op, first: Op) -> bool {
        let func = self.func;
        let agent = self.plan.op_agent[op];
        let mut between = std::iter::successors(func.next_op(first), |&o| func.next_op(o));
        let computes = between.by_ref().take_while(|&o| o != op).any(|o| {
            let mut nested = false;
            for_each_nested(func, o, &mut |inner| {
                let registers = |v: &Value| func.value_data(*v).space() == Some(Space::Rmem);
                nested |= self.plan.op_agent[inner] == agent
                    && func.opcode(inner) != Opcode::Copy
                    && func.results(inner).iter().any(registers);
            });
            nested
        });
        let (Some(block), Some(result)) = (func.op_block(op), func.result(op)) else { return false };
        computes
            && func
                .block_ops(block)
                .any(|o| func.operands(o).contains(&result) && RematWords::of(func, o).defusion)
    }

    /// Charges the pool of fused reads with the members of a set.
    fn charge_set(&mut self, node: Node) {
        let members = 1 + self.memory.fused.iter().filter(|f| f.0 == node).count() as u32;
        let footprint = &mut self.memory.nodes[node].footprint;
        let duration = footprint.hold();
        let Some(pool) = self.machine.pool_for(PoolRole::FusedReads) else { return };
        footprint.pools.retain(|p| p.pool != pool.id);
        footprint.pools.push(footprint::PoolCharge { pool: pool.id, count: members, duration });
    }

    /// The ops of a node: several in a fused set.
    fn ops_of(&self, node: Node) -> impl Iterator<Item = Op> + '_ {
        members(&self.ops, &self.memory.fused, node)
    }

    /// Marks what depends on a node, so that tracing does not wander through index math.
    fn find_live(&mut self, body: Block) {
        let func = self.func;
        let yields = func.block_parent(body).map_or(&[][..], |l| func.region_yields(l, 0));
        loop {
            let mut grown = false;
            for op in func.block_ops(body) {
                if func.results(op).iter().all(|&v| self.memory.live.contains(v)) {
                    continue;
                }
                let mut reached = self.memory.node_of[op].is_some();
                if !reached {
                    for_each_read(func, op, &mut |v, _| reached |= self.memory.live.contains(v));
                }
                if reached {
                    func.results(op).iter().for_each(|&v| grown |= self.memory.live.insert(v));
                }
            }
            let params = func.block_params(body).get(1..).unwrap_or(&[]);
            for (&param, &y) in params.iter().zip(yields) {
                if self.memory.live.contains(y) {
                    grown |= self.memory.live.insert(param);
                }
            }
            if !grown {
                return;
            }
        }
    }

    /// The nodes a value comes from, with the number of iterations in between (the least one per path of values).
    fn trace(&mut self, body: Block, value: Value) {
        let func = self.func;
        self.memory.sources.clear();
        self.memory.epoch += 1;
        self.memory.level.clear();
        self.memory.level.push(value);
        let mut distance = 0;
        while !self.memory.level.is_empty() {
            while let Some(v) = self.memory.level.pop() {
                if !self.memory.live.contains(v)
                    || std::mem::replace(&mut self.memory.seen[v], self.memory.epoch) == self.memory.epoch
                {
                    continue;
                }
                match func.value_def(v) {
                    ValueDef::Result(op, _) if func.op_block(op) == Some(body) => {
                        match self.memory.node_of[op].expand() {
                            Some(node) => self.memory.sources.push((node, distance)),
                            None => for_each_read(func, op, &mut |u, _| self.memory.level.push(u)),
                        }
                    }
                    ValueDef::Param(b, n) if b == body && n > 0 => {
                        let next = func
                            .block_parent(body)
                            .and_then(|l| func.region_yields(l, 0).get(n as usize - 1));
                        self.memory.next_level.extend(next);
                    }
                    // From outside the loop, or inside an `if` whose result stands for it.
                    _ => {}
                }
            }
            std::mem::swap(&mut self.memory.level, &mut self.memory.next_level);
            distance += 1;
        }
    }

    fn ssa_edges(&mut self, body: Block) {
        let func = self.func;
        let mut uses = std::mem::take(&mut self.memory.uses);
        for to in self.ops.keys() {
            uses.clear();
            for op in self.ops_of(to) {
                for_each_read(func, op, &mut |v, acc| uses.push((v, acc)));
            }
            for &(v, acc) in &uses {
                self.trace(body, v);
                for i in 0..self.memory.sources.len() {
                    let (from, distance) = self.memory.sources[i];
                    self.memory.edges.carry(from, to, self.latency(from, acc), distance);
                }
            }
        }
        self.memory.uses = uses;
    }

    /// Cycles from a node to a reader of its result; `acc`: a dot that goes on accumulating.
    fn latency(&self, from: Node, acc: bool) -> u32 {
        let info = &self.memory.nodes[from];
        match self.model {
            CycleModel::Slot if acc && info.is_dot => self.machine.acc_to_acc_latency,
            // The engine takes the next one when it is done with this one.
            CycleModel::Real if acc && info.is_dot => info.hold,
            _ => info.footprint.latency,
        }
    }

    fn web_edges(&mut self, body: Block) {
        let mut events = std::mem::take(&mut self.memory.events);
        let (ops, fused) = (&self.ops, &self.memory.fused);
        for (node, op) in scheduled(ops, fused) {
            for_each_nested(self.func, op, &mut |inner| {
                self.webs.events(self.func, inner, node, &mut events)
            });
        }
        self.webs.enter_loop(self.func, body);
        // Events of one web stay in program order.
        events.sort_by_key(|e| e.object);
        for group in events.chunk_by(|a, b| a.object == b.object) {
            if let Some(order) = self.webs.order_of(group) {
                self.order_edges(group, order);
            }
        }
        events.clear();
        self.memory.events = events;
    }

    fn memory_edges(&mut self) {
        let func = self.func;
        let mut events = std::mem::take(&mut self.memory.events);
        let mut fences: Vec<Node> = Vec::new();
        for (node, op) in scheduled(&self.ops, &self.memory.fused) {
            for_each_nested(func, op, &mut |inner| {
                if func.fences(inner, inner) && fences.last() != Some(&node) {
                    fences.push(node);
                }
                if func.opcode(inner) == Opcode::Print {
                    events.push(Event::whole(Object::Output, node, false, true));
                }
                if let Some(touch) = crate::storage::classify::touches(func, inner) {
                    events.push(Event::whole(Object::View(touch.view), node, !touch.write, touch.write));
                }
                // A TMA load has read its view for certain only where its tile is used.
                for &v in func.operands(inner) {
                    let load = func.defining_op(v).filter(|&d| func.opcode(d) == Opcode::AsyncTiledTmaLoad);
                    if let Some(touch) = load.and_then(|d| crate::storage::classify::touches(func, d)) {
                        events.push(Event::whole(Object::View(touch.view), node, true, false));
                    }
                }
            });
        }
        // What orders all accesses stands between those before and behind it, like a write to each view.
        if !fences.is_empty() {
            let mut views: Vec<Object> = events.iter().map(|e| e.object).collect();
            views.sort_unstable();
            views.dedup();
            for view in views {
                events.extend(fences.iter().map(|&node| Event::whole(view, node, false, true)));
            }
            // Nodes are in program order.
            events.sort_by_key(|e| e.node);
        }
        events.sort_by_key(|e| e.object);
        for group in events.chunk_by(|a, b| a.object == b.object) {
            self.order_edges(group, Order::InPlace);
        }
        events.clear();
        self.memory.events = events;
    }

    /// Orders the accesses to one place: two iterations are walked and the dependences of the second are kept.
    fn order_edges(&mut self, events: &[Event], order: Order) {
        if !events.iter().any(|e| e.writes) {
            return;
        }
        let mut writes: Vec<(&Event, u32)> = Vec::new();
        let mut reads: Vec<(&Event, u32)> = Vec::new();
        let last = u32::from(order != Order::OneIteration);
        for iteration in 0..=last {
            for e in events {
                if iteration == last {
                    self.edges_of_event(e, iteration, &writes, &reads, order);
                }
                if e.reads {
                    reads.push((e, iteration));
                }
                if e.writes {
                    // Later accesses are ordered after this one, and through it after what it covers.
                    writes.retain(|(w, _)| !e.covers(w));
                    reads.retain(|(r, _)| !e.covers(r));
                    writes.push((e, iteration));
                }
            }
        }
    }

    fn edges_of_event(
        &mut self,
        e: &Event,
        iteration: u32,
        writes: &[(&Event, u32)],
        reads: &[(&Event, u32)],
        order: Order,
    ) {
        let to = e.node;
        for &(w, at) in writes.iter().filter(|(w, _)| w.meets(e)) {
            let (from, distance) = (w.node, iteration - at);
            if from == to && (distance == 0 || (!self.memory.nodes[to].is_region && !e.reads)) {
                continue;
            }
            if e.reads {
                self.memory.edges.carry(from, to, self.latency(from, e.accumulates()), distance);
            } else if order.frees(distance) {
                // Reads in between stand between the two writes already.
                let read = reads
                    .iter()
                    .any(|&(r, k)| (k, r.node) > (at, from) && r.node != to && r.meets(w) && r.meets(e));
                if !read {
                    let both_dots = self.memory.nodes[from].is_dot && e.is_dot;
                    self.memory.edges.order(from, to, self.latency(from, both_dots), distance);
                }
            }
        }
        if !e.writes {
            return;
        }
        for &(r, at) in reads.iter().filter(|(r, _)| r.meets(e)) {
            let (from, distance) = (r.node, iteration - at);
            let same = from == to && (distance == 0 || !self.memory.nodes[to].is_region);
            if !same && order.frees(distance) {
                self.memory.edges.order(from, to, self.memory.nodes[from].hold, distance);
            }
        }
    }

    fn summary(&self) -> RegionSummary {
        let func = self.func;
        let (mut s, mut agents) = (RegionSummary::default(), SmallVec::<[Agent; 4]>::new());
        for op in self.ops.values().copied().chain(self.memory.fused.iter().map(|f| f.1)) {
            for_each_nested(func, op, &mut |inner| {
                let Some(agent) = self.plan.op_agent[inner].expand() else { return };
                if !agents.contains(&agent) {
                    agents.push(agent);
                }
                let opcode = func.opcode(inner);
                s.op_count += 1;
                s.has_async_pipeline |= opcode.has(Traits::ASYNC);
                s.has_tma |= matches!(opcode, Opcode::AsyncTiledTmaLoad | Opcode::AsyncTiledTmaStore);
                s.has_mma |= matches!(opcode, Opcode::Dot | Opcode::AsyncDot);
            });
        }
        s.reads_ahead =
            if s.is_asynchronous() || agents.len() > 1 { 0 } else { self.reads_ahead(s.op_count) };
        s
    }

    /// Whether an op does nothing but read global memory into registers.
    fn reads(&self, op: Op) -> bool {
        let is = |traits| self.func.opcode(op).has(traits);
        let reads = is(Traits::READS_GLOBAL) && !is(Traits::WRITES_GLOBAL) && !is(Traits::ASYNC);
        reads && self.plan.op_agent[op].is_some()
    }

    /// Iterations in which what is read from global memory into registers is under way at once; 0 if nothing is to be read ahead.
    fn reads_ahead(&self, ops: u32) -> u32 {
        let (mut bytes, mut registers) = (0_u64, 0_u32);
        for &op in self.ops.values().filter(|&&op| self.reads(op)) {
            let warps = self.plan.op_agent[op].expand().map_or(1, |a| self.plan.agents[a].warps);
            for &v in self.func.results(op) {
                bytes = bytes.saturating_add(self.func.value_data(v).num_bytes().unwrap_or(0));
                registers = registers.saturating_add(registers_of(self.func, v, warps));
            }
        }
        // What a loop writes and reads again it hands on through memory: reads wait for that, and not for a schedule.
        let node = |n: Node| self.ops[n];
        let waits = |e: &&(Node, Node, u32, u32, bool)| {
            self.func.opcode(node(e.0)).has(Traits::WRITES_GLOBAL) && self.reads(node(e.1))
        };
        if self.memory.edges.list.iter().any(|e| waits(&e)) {
            return 0;
        }
        let [one, several] = HELD_AHEAD;
        match (1..=one).contains(&registers) && bytes <= READ_AHEAD && ops <= MOST_OPS {
            true => (1 + several / registers).min(MOST_WRITTEN / ops.max(1)).clamp(2, MOST_AT_ONCE),
            false => 0,
        }
    }

    /// Reads of global memory, and what leads to them in an iteration.
    fn leading(&self) -> EntitySet<Node> {
        let mut leads = EntitySet::with_capacity(self.ops.len());
        self.ops.iter().filter(|x| self.reads(*x.1)).for_each(|x| _ = leads.insert(x.0));
        loop {
            let mut grown = false;
            for &(from, to, _, distance, _) in self.memory.edges.list.iter().rev() {
                grown |= distance == 0 && leads.contains(to) && leads.insert(from);
            }
            if !grown {
                return leads;
            }
        }
    }

    /// Constraints of a node: those of the op and of what is inside it; the tightest depth and the first group.
    fn constraints_of(&self, op: Op) -> (Option<u32>, u32, bool) {
        let (mut group, mut depth, mut serial) = (None, 0, false);
        for_each_nested(self.func, op, &mut |inner| {
            let own = self.constraints.group(inner).and_then(|g| self.memory.group_numbers.get(&g).copied());
            group = group.or(own);
            let d = self.constraints.max_depth(inner);
            depth = if depth == 0 || d == 0 { depth.max(d) } else { depth.min(d) };
            serial |= self.constraints.force_serial(inner);
        });
        (group, depth, serial)
    }

    /// The group of the set an op is in: that of its first member with a group of the user's, else one of its own.
    fn soft_group(&self, op: Op, extra: &Extra) -> Option<u32> {
        let (k, set) = extra.groups.iter().enumerate().find(|(_, set)| set.contains(&op))?;
        let known = set.iter().find_map(|&member| self.constraints_of(member).0);
        Some(known.unwrap_or((self.memory.group_numbers.len() + k) as u32))
    }

    /// Whom the op follows; who computes it in registers, and what its results take there and in rings.
    fn extra_of(&self, op: Op, clustered: bool) -> NodeExtra {
        let (func, plan) = (self.func, self.plan);
        let agent = plan.op_agent[op].expand().filter(|&a| plan.agents[a].kind == AgentKind::Simt);
        let warps = agent.map_or(1, |a| plan.agents[a].warps);
        let (mut registers, mut ring_bytes) = (0_u32, 0_u32);
        let node = self.memory.node_of[op].expand();
        let all = node.into_iter().flat_map(|n| self.ops_of(n));
        for &v in all.flat_map(|o| func.results(o)) {
            ring_bytes = ring_bytes.saturating_add(self.webs.ring_bytes(func, v));
            registers =
                registers.saturating_add(if agent.is_some() { registers_of(func, v, warps) } else { 0 });
        }

        // Of a node of several ops none narrows or renames.
        let source = func.operands(op).first().map_or(0, |&v| registers_of(func, v, warps));
        let multiplied = func.result(op).is_some_and(|v| self.multiplied(v));
        let held = match func.opcode(op) {
            _ if renames(func, op) || func.result(op).is_some_and(|v| self.made_anywhere(v, 0)) => 0,
            // A product reads registers: they are made before it.
            Opcode::Ftof if !multiplied => registers.max(source),
            _ => registers,
        };
        let gid = |g: Option<Group>| g.map(|g| self.constraints.groups().gid(g));
        // Of an `if` as its group: the first op inside that has one.
        let mut member = op;
        for_each_nested(func, op, &mut |inner| {
            if self.constraints.own_group(member).is_none() {
                member = inner;
            }
        });
        let follows = self.constraints.is_pending(member);
        NodeExtra {
            own_gid: gid(self.constraints.own_group(member)),
            leader_gid: gid(self.constraints.leader_group(member)).filter(|_| follows),
            simt_agent: agent.map(|a| a.as_u32()),
            product: agent.is_some() && is_product(func, op),
            multiplied,
            registers,
            held,
            ring_bytes,
            // Which loads a cluster shares is seen when the loop is code; each waits for slots of all its CTAs then.
            cross_cluster: clustered && func.opcode(op) == Opcode::AsyncTiledTmaLoad,
        }
    }

    /// Whether a product takes a value from registers.
    fn multiplied(&self, v: Value) -> bool {
        let takes = |op: &Op| self.func.named_operand(*op, "a") == Some(v);
        self.func.value_data(v).space() == Some(Space::Rmem) && self.products.iter().any(takes)
    }

    /// Whether a value follows from what does not change in an iteration by element-wise ops alone, as masks and distances
    /// do: the assembler makes such elements where they are used.
    fn made_anywhere(&self, v: Value, depth: u32) -> bool {
        const DEPTH: u32 = 8;
        let func = self.func;
        let Some(op) = func.defining_op(v) else { return false };
        let plain = func.opcode(op).has(Traits::ELEMENTWISE) || renames(func, op);
        self.memory.node_of[op].is_none()
            || depth < DEPTH && plain && func.operands(op).iter().all(|&v| self.made_anywhere(v, depth + 1))
    }

    /// Resources that are used, by number; then nodes and edges.
    fn fill(&mut self, problem: &mut Problem, extra: &Extra) {
        // What computes with what was read stays together: an agent does one thing after the other, and what it carries on takes registers.
        let ahead = problem.summary.is_some_and(|s| s.reads_ahead > 0);
        let leading = ahead.then(|| self.leading());
        let together = (self.memory.group_numbers.len() + extra.groups.len()) as u32;
        let mut memory = std::mem::take(&mut self.memory.fill);
        let Fill { slots, pools, uses, pool_uses, id } = &mut memory;
        let footprints = || self.memory.nodes.values().map(|n| &n.footprint);
        slots.clear();
        slots.extend(footprints().flat_map(|f| f.uses.iter().map(|u| u.slot)));
        slots.sort_unstable_by_key(|s| s.get());
        slots.dedup();
        for &id in slots.iter() {
            let (name, capacity): (Cow<'static, str>, _) = match self.model {
                CycleModel::Slot => {
                    self.machine.slot(id).map_or(("?".into(), 1), |s| (s.name.into(), s.capacity.into()))
                }
                CycleModel::Real => (footprint::unit_name(self.machine, id).into(), 1),
            };
            problem.add_slot(id.get().into(), &name, capacity);
        }
        pools.clear();
        pools.extend(footprints().flat_map(|f| f.pools.iter().map(|u| u.pool)));
        pools.sort_unstable_by_key(|p| p.get());
        pools.dedup();
        for &id in pools.iter() {
            let (name, capacity) = self.machine.pool(id).map_or(("?", 1), |p| (p.name, p.capacity));
            problem.add_pool(id.get().into(), name, capacity.into());
        }
        for (node, info) in self.memory.nodes.iter() {
            let op = self.ops[node];
            uses.clear();
            pool_uses.clear();
            for u in &info.footprint.uses {
                let Some(i) = slots.iter().position(|&s| s == u.slot) else { continue };
                uses.push(Use {
                    slot: Slot::from_u32(i as u32),
                    offset: u.offset,
                    duration: u.duration,
                    occupancy: u.occupancy,
                });
            }
            for u in &info.footprint.pools {
                let Some(i) = pools.iter().position(|&p| p == u.pool) else { continue };
                let pool = Pool::from_u32(i as u32);
                pool_uses.push(PoolUse { pool, count: u.count, duration: u.duration });
            }
            let (group, max_depth, force_serial) = self.constraints_of(op);
            let group = group.or_else(|| self.soft_group(op, extra));
            let group = group.or_else(|| leading.as_ref().filter(|l| !l.contains(node)).map(|_| together));
            let limit = extra.depths.iter().filter(|d| d.0 == op).map(|d| d.1);
            let max_depth = limit.fold(max_depth, |a, b| if a == 0 { b } else { a.min(b) });
            id.clear();
            id.push_str("op");
            push_number(id, node.as_u32());
            problem.add_node(&NodeDef {
                id,
                name: self.func.opcode(op).name(),
                latency: info.footprint.latency,
                uses,
                pools: pool_uses,
                group,
                max_depth,
                force_serial,
                extra: self.extra_of(op, extra.clustered),
            });
            let rest = self.memory.fused.iter().filter(|f| f.0 == node);
            if rest.clone().next().is_some() {
                let names = (1..=rest.count()).map(|k| format!("{id}.{k}"));
                let members = std::iter::once(id.clone()).chain(names).collect();
                problem.set_members(node, members);
            }
        }
        for &(from, to, latency, distance, value) in &self.memory.edges.list {
            let edge = problem.add_edge(from, to, i32::try_from(latency).unwrap_or(i32::MAX), distance);
            if !value {
                problem.set_order_only(edge);
            }
        }
        self.memory.fill = memory;
    }
}

/// Whether an op only says where the elements of its operand are.
fn renames(func: &Function, op: Op) -> bool {
    matches!(func.opcode(op), Opcode::Broadcast | Opcode::Reshape | Opcode::Permute | Opcode::ExtractSlice)
        || cost::within_threads(func, op).is_some_and(|bits| bits >= 32)
}

/// 32-bit registers per thread that a value takes in an agent of that many warps.
fn registers_of(func: &Function, v: Value, warps: u32) -> u32 {
    match func.value_data(v) {
        TypeData::Tile { dims, elem, space: None | Some(Space::Rmem), layout } => {
            let exact = layout.and_then(|l| registers_per_thread(l, dims, *elem, warps));
            let bits = dims.iter().fold(u64::from(elem.bits()), |n, &d| n.saturating_mul(d.into()));
            exact.unwrap_or(
                u32::try_from(bits.div_ceil(32 * 32 * u64::from(warps.max(1)))).unwrap_or(u32::MAX),
            )
        }
        TypeData::Scalar(s) => s.bits().div_ceil(32),
        _ => 0,
    }
}
