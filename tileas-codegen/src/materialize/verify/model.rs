//! The materialised function as the post-verifier sees it: pipes, agents, regions and their events.
//!
//! In: the function alone. Out: [`Model`]. Regions of different agents are one region when they stem from one op of
//! the placed function (`origin`); branches without origin are guards: those of a rolled loop are looked through, those
//! of a prologue or epilogue (`of`) are kept aside as copies, which [`super::form`] compares with their loop.
//! Ownership values and iterators are traced to their pipeline. What cannot be read is an error (E0708).

use super::linear::{Canon, Lin, note};
use super::order::has_work;
use crate::error::{Code, CodegenError};
use crate::ir::layouts::LANES;
use crate::ir::{
    AttrData, Block, Function, Op, Opcode, PipeDef, Signal, Space, TypeData, Value, ValueDef, keys,
};
use cranelift_entity::SecondaryMap;
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use std::cell::RefCell;

/// One `create_pipeline`.
pub struct PipeInfo {
    /// The op.
    pub op: Op,
    /// Slots.
    pub depth: i64,
    /// Iteration distance.
    pub distance: i64,
    /// Full side.
    pub full: Signal,
    /// Empty side, if there is one.
    pub empty: Option<Signal>,
    /// Buffers handed over.
    pub buffers: SmallVec<[Value; 4]>,
    /// A named barrier takes the place of both sides: all of it is one agent's.
    pub named: bool,
    /// Each instance of its agent has one.
    pub own: bool,
}

/// Engine of an access.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Engine {
    /// Threads.
    Threads,
    /// Matrix engine.
    Mma,
    /// TMA load.
    Load,
    /// TMA store.
    Store,
}

/// One access to a buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Touch {
    /// The `alloc_tensor` result.
    pub buffer: Value,
    /// Whether it writes.
    pub writes: bool,
    /// The pipe whose iterator selects the slot.
    pub ring: Option<usize>,
}

/// The accesses of one op.
pub type Touches = SmallVec<[Touch; 3]>;

/// What an event is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// Acquire of a pipe.
    Acquire(usize),
    /// Commit of a pipe, with announced bytes.
    Commit(usize, Option<i64>),
    /// Wait of a pipe as consumer n.
    Wait(usize, i64),
    /// Release of a pipe as consumer n; bulk groups that may be pending.
    Release(usize, i64, Option<i64>),
    /// Advance of an iterator.
    Inc(usize),
    /// A wait until all bulk stores of the lane are complete.
    StoreWait,
    /// The instance that runs the next iteration may begin.
    GiveTurn,
    /// An op that reads or writes buffers, or a contended view; the pipe whose transaction it completes.
    Access(Engine, Touches, Option<usize>),
    /// A region op: its regions.
    Region(SmallVec<[usize; 2]>),
}

/// One event of one agent in one region.
#[derive(Clone, Debug)]
pub struct Event {
    /// The op.
    pub op: Op,
    /// Local stage.
    pub local: i64,
    /// Whether, of an agent with more threads, only the issuing lane takes part.
    pub lane: bool,
    /// What.
    pub what: What,
}

/// One region: the kernel body, a loop body, an arm.
pub struct RegionInfo {
    /// The region around it.
    pub parent: Option<usize>,
    /// Upper bound on its executions per execution of the parent; `None` = unknown.
    pub trips: Option<i64>,
    /// Whether it is a loop body: executed one iteration after the other.
    pub repeats: bool,
    /// Events of each agent.
    pub events: Vec<Vec<Event>>,
}

/// Everything read from the function.
pub struct Model<'a> {
    /// The function.
    pub func: &'a Function,
    /// Pipes in program order.
    pub pipes: Vec<PipeInfo>,
    /// Whether products are complete by commits, or when the threads that issued them go on.
    engine: bool,
    /// Arriving threads of each agent.
    pub threads: Vec<i64>,
    /// Instances of each agent.
    pub instances: Vec<i64>,
    /// Of the loop that is dealt out: whose, and its region.
    pub dealt: Option<(usize, usize)>,
    /// Regions; 0 is the kernel body.
    pub regions: Vec<RegionInfo>,
    /// By region: it and all regions inside it.
    pub below: Vec<SmallVec<[usize; 4]>>,
    /// By pipe: the regions in which it is acquired.
    acquired: Vec<SmallVec<[usize; 2]>>,
    /// Views that the kernel writes and that more than one of its ops access.
    contended: FxHashSet<Value>,
    /// What values are in all agents, where that was found out.
    pub canon: Option<Canon>,
    /// Complaints.
    pub errors: Vec<CodegenError>,
    by_key: FxHashMap<(i64, usize), usize>,
    pipe_of: FxHashMap<Op, usize>,
    /// All loops with an origin, but those in copies.
    pub loops: Vec<LoopInfo>,
    /// Guards in rolled loops.
    pub guards: Vec<Guard>,
    /// Prologues and epilogues, in program order.
    pub copies: Vec<Copied>,
    /// Branches: agent, op, origin.
    pub branches: Vec<(usize, Op, i64)>,
    /// Whether a copy is being read.
    copying: bool,
    /// Copies that write a scalar to a buffer: buffer, scalar, op.
    pub sends: Vec<(Value, Value, Op)>,
    /// Copies that read a scalar from a buffer: buffer, scalar, op.
    pub receives: Vec<(Value, Value, Op)>,
    /// What was traced before.
    traced: RefCell<Traced>,
}

/// Pipe and consumer number behind a value.
pub type Traced = SecondaryMap<Value, Option<(usize, Option<i64>)>>;

/// One agent's part of a loop.
pub struct LoopInfo {
    /// Agent.
    pub agent: usize,
    /// The `for`.
    pub op: Op,
    /// Its number in the placed function.
    pub origin: i64,
    /// Its body.
    pub region: Option<usize>,
    /// Steps between the first and the last local stage; 0: a plain loop.
    pub skew: i64,
    /// Whether prologue and epilogue stand outside.
    pub steady: bool,
    /// Number of its event in the region around.
    pub at: usize,
}

/// A guard of a rolled loop.
pub struct Guard {
    /// The `if`.
    pub op: Op,
    /// Local stage.
    pub local: i64,
    /// Whether it stands in the loop itself, not in a copy.
    pub plain: bool,
}

/// A group of a prologue or epilogue.
pub struct Copied {
    /// Agent.
    pub agent: usize,
    /// The guarding `if`.
    pub op: Op,
    /// Origin of the loop.
    pub of: i64,
    /// Prologue or epilogue.
    pub epilogue: bool,
    /// Its step there.
    pub step: i64,
    /// Local stage.
    pub local: i64,
    /// Number of events before it in the region around.
    pub at: usize,
    /// Regions of the copy; 0 is the group itself.
    pub regions: Vec<RegionInfo>,
}

/// Complaints of a check, each about an op.
#[derive(Default)]
pub struct Found(Vec<(Code, Op, String)>);

impl Found {
    // Apart from the code of kernels that are right, which is run once each time and from memory.
    #[cold]
    pub fn bad(&mut self, code: Code, op: Op, text: impl Into<String>) {
        self.0.push((code, op, text.into()));
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'a> Model<'a> {
    /// Reads the function; `engine`: products are complete by commits.
    pub fn read(func: &'a Function, engine: bool, mut traced: Traced) -> Model<'a> {
        traced.clear();
        let mut m = Model {
            func,
            pipes: Vec::with_capacity(16),
            engine,
            threads: Vec::new(),
            instances: Vec::new(),
            dealt: None,
            regions: Vec::with_capacity(8),
            below: Vec::new(),
            acquired: Vec::new(),
            contended: contended(func),
            canon: None,
            errors: Vec::new(),
            by_key: FxHashMap::default(),
            pipe_of: FxHashMap::default(),
            loops: Vec::new(),
            guards: Vec::new(),
            copies: Vec::new(),
            branches: Vec::new(),
            copying: false,
            sends: Vec::new(),
            receives: Vec::new(),
            traced: RefCell::new(traced),
        };
        let mut switch = None;
        for op in func.block_ops(func.entry()) {
            match func.opcode(op) {
                Opcode::AsyncPipelineCreatePipeline => m.pipe(op),
                Opcode::AsyncPipelineAgentSwitch if switch.is_none() => switch = Some(op),
                Opcode::AsyncPipelineAgentSwitch => m.error(Code::E0708, op, "a second agent_switch"),
                _ => {}
            }
        }
        let Some(switch) = switch else {
            m.errors.push(CodegenError::new(Code::E0708, func.loc, "there is no agent_switch"));
            return m;
        };
        let agents = func.regions(switch).len();
        let warps = func.attr_ints(switch, keys::NUM_WARPS).unwrap_or_default();
        let lanes: Vec<bool> = match func.attr(switch, keys::LANES) {
            Some(AttrData::Array(list)) => list
                .iter()
                .map(|&a| matches!(func.attr_data(a), AttrData::Name(s) if func.symbol(*s) == "elect"))
                .collect(),
            _ => Vec::new(),
        };
        if warps.len() != agents || lanes.len() != agents {
            m.error(Code::E0708, switch, "num_warps and lanes must have one entry per agent");
            return m;
        }
        m.threads = warps
            .iter()
            .zip(&lanes)
            .map(|(&w, &e)| if e { 1 } else { w.saturating_mul(i64::from(LANES)) })
            .collect();
        m.instances = func.attr_ints(switch, keys::INSTANCES).map_or_else(|| vec![1; agents], |l| l.to_vec());
        if m.instances.len() != agents {
            m.error(Code::E0708, switch, "instances must have one entry per agent");
            return m;
        }
        m.regions.push(RegionInfo {
            parent: None,
            trips: Some(1),
            repeats: false,
            events: vec![Vec::new(); agents],
        });
        for a in 0..agents {
            if let Some(b) = func.op_block_at(switch, a) {
                m.walk(a, b, 0, 0);
            }
        }
        m.index();
        m
    }

    /// Lists what is asked for over and over.
    fn index(&mut self) {
        self.below = vec![SmallVec::new(); self.regions.len()];
        self.acquired = vec![SmallVec::new(); self.pipes.len()];
        for r in 0..self.regions.len() {
            let mut at = Some(r);
            while let Some(outer) = at {
                self.below[outer].push(r);
                at = self.regions[outer].parent;
            }
            for e in self.regions[r].events.iter().flatten() {
                if let What::Acquire(p) = e.what
                    && self.acquired[p].last() != Some(&r)
                {
                    self.acquired[p].push(r);
                }
            }
        }
    }

    /// Gives the memory of what was traced back.
    pub fn traced(&self) -> Traced {
        self.traced.take()
    }

    /// Adds a complaint.
    #[cold]
    pub fn error(&mut self, code: Code, op: Op, message: impl Into<String>) {
        self.errors.push(CodegenError::new(code, self.func.op_loc(op), message));
    }

    /// Adds the complaints of a check.
    pub fn report(&mut self, found: Found) {
        for (code, op, message) in found.0 {
            self.error(code, op, message);
        }
    }

    fn pipe(&mut self, op: Op) {
        let func = self.func;
        let wanted = [keys::NUM_STAGES, keys::FULL, keys::EMPTY];
        if wanted.iter().any(|&key| !func.has_attr(op, key)) {
            self.error(Code::E0708, op, "a pipeline needs numStages, full and empty");
            return;
        }
        let PipeDef { slots: depth, distance, full, empty, named, .. } = PipeDef::of(func, op);
        self.pipe_of.insert(op, self.pipes.len());
        self.pipes.push(PipeInfo {
            op,
            depth,
            distance,
            full,
            empty: (empty != Signal::None).then_some(empty),
            buffers: SmallVec::from_slice(func.operands(op)),
            named: named.is_some(),
            own: func.has_attr(op, keys::INSTANCES),
        });
        let n = self.pipes.len() - 1;
        for &v in func.results(op) {
            let slots = match func.value_data(v) {
                TypeData::PipeProducer(s) | TypeData::PipeConsumer(s) => i64::from(*s),
                _ => -1,
            };
            if slots != depth {
                self.error(Code::E0705, op, format!("Pipe_{n} has numStages {depth}, its ends have {slots}"));
            }
        }
        for &b in func.operands(op) {
            let slots = func.value_data(b).dims().and_then(|d| d.first().copied()).map_or(-1, i64::from);
            if slots != depth {
                self.error(
                    Code::E0705,
                    op,
                    format!("Pipe_{n} has numStages {depth}, a buffer has {slots} slots"),
                );
            }
        }
    }

    /// The pipe (and the consumer number) behind a pipeline end, an ownership value or an iterator.
    pub fn trace(&self, v: Value, fuel: u32) -> Option<(usize, Option<i64>)> {
        if let Some(known) = self.traced.borrow()[v] {
            return Some(known);
        }
        let found = self.follow(v, fuel)?;
        self.traced.borrow_mut()[v] = Some(found);
        Some(found)
    }

    fn follow(&self, v: Value, fuel: u32) -> Option<(usize, Option<i64>)> {
        let (func, fuel) = (self.func, fuel.checked_sub(1)?);
        match func.value_def(v) {
            ValueDef::Result(op, n) => {
                let first = func.operands(op).first().copied();
                match func.opcode(op) {
                    Opcode::AsyncPipelineCreatePipeline => Some((*self.pipe_of.get(&op)?, None)),
                    Opcode::AsyncPipelineConsumerWait => Some((
                        self.trace(first?, fuel)?.0,
                        Some(func.attr_int(op, keys::CONSUMER_IDX).unwrap_or(0)),
                    )),
                    Opcode::AsyncPipelineProducerAcquire
                    | Opcode::AsyncPipelineProducerCommit
                    | Opcode::AsyncPipelineConsumerRelease
                    | Opcode::AsyncPipelineCreateIterator
                    | Opcode::AsyncPipelineIncIter => self.trace(first?, fuel),
                    Opcode::If => {
                        let t = func.last_op(func.op_block_at(op, 0)?)?;
                        self.trace(*func.operands(t).get(n as usize)?, fuel)
                    }
                    Opcode::For => self.trace(*func.named_segment(op, "inits").get(n as usize)?, fuel),
                    _ => None,
                }
            }
            ValueDef::Param(b, n) => {
                let op = func.block_parent(b)?;
                let n = (n as usize).checked_sub(1)?;
                let iter = matches!(func.value_data(v), TypeData::PipeIter(_));
                let init = *func.named_segment(op, "inits").get(n)?;
                if iter {
                    return self.trace(init, fuel);
                }
                // Ownership that crosses steps: what the loop hands on says which consumer it is.
                let t = func.last_op(func.op_block_at(op, 0)?)?;
                let next = *func.operands(t).get(n)?;
                self.trace(next, fuel).or_else(|| self.trace(init, fuel))
            }
        }
    }

    fn region(&mut self, key: (i64, usize), parent: usize, trips: Option<i64>, repeats: bool) -> usize {
        let agents = self.threads.len();
        if let Some(&r) = self.by_key.get(&key) {
            return r;
        }
        self.regions.push(RegionInfo {
            parent: Some(parent),
            trips,
            repeats,
            events: vec![Vec::new(); agents],
        });
        self.by_key.insert(key, self.regions.len() - 1);
        self.regions.len() - 1
    }

    fn constant_trips(&self, op: Op) -> Option<i64> {
        let c = |n: &str| self.func.named_operand(op, n).and_then(|v| Lin::of(self.func, v).as_constant());
        if self.func.exit_of(op).is_some() {
            return None;
        }
        let (lo, hi, step) = (c("lower")?, c("upper")?, c("step")?);
        if let Some(skew) = note(self.func, op, keys::SKEW) {
            // The bounds count steps; a steady loop begins at step skew.
            return Some(if self.is_steady(op) { hi } else { hi - skew });
        }
        (step > 0).then(|| (hi - lo).max(0).div_euclid(step) + i64::from((hi - lo).max(0) % step != 0))
    }

    fn is_steady(&self, op: Op) -> bool {
        self.func.inherent(op).get(keys::STEADY).is_some()
    }

    fn walk(&mut self, agent: usize, block: Block, region: usize, local: i64) {
        let func = self.func;
        let events = &mut self.regions[region].events[agent];
        events.reserve(func.block_ops(block).take(64).count());
        for op in func.block_ops(block) {
            let at = note(func, op, keys::LOCAL).unwrap_or(0);
            let opcode = func.opcode(op);
            let origin = note(func, op, keys::ORIGIN);
            let what = match opcode {
                Opcode::For | Opcode::If => {
                    let Some(origin) = origin else {
                        self.without_origin(agent, op, region, at);
                        continue;
                    };
                    if !has_work(func, op) {
                        // Scalars that are computed where they are needed, in each group of a loop with local stages.
                        match opcode {
                            _ if self.copying => {}
                            Opcode::If => self.branches.push((agent, op, origin)),
                            _ => {
                                let at = self.regions[region].events[agent].len();
                                let loop_info =
                                    LoopInfo { agent, op, origin, region: None, skew: 0, steady: false, at };
                                self.loops.push(loop_info);
                            }
                        }
                        continue;
                    }
                    let trips = if opcode == Opcode::For { self.constant_trips(op) } else { Some(1) };
                    let mut inner = SmallVec::new();
                    for n in 0..func.regions(op).len() {
                        let r = self.region((origin, n), region, trips, opcode == Opcode::For);
                        if self.regions[r].parent != Some(region) {
                            self.error(
                                Code::E0708,
                                op,
                                "a region stands in different regions in different agents",
                            );
                        }
                        if !self.regions[r].events[agent].is_empty() {
                            self.error(Code::E0708, op, "a region stands twice in one agent");
                        }
                        if let Some(b) = func.op_block_at(op, n) {
                            self.walk(agent, b, r, 0);
                        }
                        inner.push(r);
                    }
                    let at = self.regions[region].events[agent].len();
                    if self.copying {
                        // Compared with the original as a whole.
                    } else if opcode == Opcode::For {
                        let skew = note(func, op, keys::SKEW).unwrap_or(0).max(0);
                        let (region, steady) = (inner.first().copied(), self.is_steady(op));
                        if func.has_attr(op, keys::DEALT) {
                            if self.dealt.is_some() || skew > 0 {
                                self.error(
                                    Code::E0708,
                                    op,
                                    "a second loop is dealt out, or one with local stages",
                                );
                            }
                            self.dealt = region.map(|r| (agent, r));
                        }
                        self.loops.push(LoopInfo { agent, op, origin, region, skew, steady, at });
                    } else {
                        self.branches.push((agent, op, origin));
                    }
                    What::Region(inner)
                }
                Opcode::AsyncPipelineProducerAcquire
                | Opcode::AsyncPipelineProducerCommit
                | Opcode::AsyncPipelineConsumerWait
                | Opcode::AsyncPipelineConsumerRelease
                | Opcode::AsyncPipelineIncIter => {
                    let traced = func.operands(op).first().and_then(|&v| self.trace(v, 64));
                    let Some((p, consumer)) = traced else {
                        self.error(Code::E0708, op, format!("{} of no pipeline", opcode.name()));
                        continue;
                    };
                    self.check_iterator(op, p);
                    match opcode {
                        Opcode::AsyncPipelineProducerAcquire if func.has_attr(op, keys::DRAIN) => continue,
                        Opcode::AsyncPipelineProducerAcquire => What::Acquire(p),
                        Opcode::AsyncPipelineProducerCommit => What::Commit(p, func.attr_int(op, keys::TX)),
                        Opcode::AsyncPipelineConsumerWait => {
                            What::Wait(p, func.attr_int(op, keys::CONSUMER_IDX).unwrap_or(0))
                        }
                        Opcode::AsyncPipelineConsumerRelease => {
                            What::Release(p, consumer.unwrap_or(0), func.attr_int(op, keys::BULK_PENDING))
                        }
                        _ => What::Inc(p),
                    }
                }
                Opcode::AsyncPipelineStoreWait => What::StoreWait,
                Opcode::AsyncPipelineGiveTurn => What::GiveTurn,
                _ => match self.access(op) {
                    Some(w) => w,
                    None => continue,
                },
            };
            if at != local && local != 0 {
                self.error(Code::E0708, op, format!("local stage {at} under a guard of local stage {local}"));
            }
            let lane = self.threads[agent] > 1 && self.is_lanes(op, &what);
            self.regions[region].events[agent].push(Event { op, local: at, lane, what });
        }
    }

    /// Whether only the issuing lane of an agent does an op.
    fn is_lanes(&self, op: Op, what: &What) -> bool {
        match what {
            What::Acquire(_) | What::Wait(..) => self.func.has_attr(op, keys::ISSUER),
            What::Commit(_, tx) => tx.is_some() || self.func.has_attr(op, keys::BULK_PENDING),
            What::Release(.., pending) => pending.is_some(),
            What::Access(engine, ..) => *engine != Engine::Threads,
            What::StoreWait => true,
            What::Inc(_) | What::Region(_) | What::GiveTurn => false,
        }
    }

    /// A guard of a rolled loop, or a drain loop.
    fn without_origin(&mut self, agent: usize, op: Op, region: usize, local: i64) {
        let func = self.func;
        if func.opcode(op) == Opcode::If {
            let Some(b) = func.op_block_at(op, 0) else { return };
            let idle = |b: Block| func.block_ops(b).all(|o| func.opcode(o).is_terminator());
            if !func.op_block_at(op, 1).is_none_or(idle) {
                return self.error(Code::E0708, op, "a guard does something when it fails");
            }
            let Some(of) = note(func, op, keys::OF) else {
                self.guards.push(Guard { op, local, plain: !self.copying });
                return self.walk(agent, b, region, local);
            };
            let (epilogue, step) = match (note(func, op, keys::PROLOGUE), note(func, op, keys::EPILOGUE)) {
                (Some(step), None) => (false, step),
                (None, Some(step)) => (true, step),
                _ => return self.error(Code::E0710, op, "a copy is part of a prologue or of an epilogue"),
            };
            if self.copying {
                return self.error(Code::E0710, op, "a copy within a copy");
            }
            // The copy has regions of its own.
            let at = self.regions[region].events[agent].len();
            let events = vec![Vec::new(); self.threads.len()];
            let body = RegionInfo { parent: None, trips: Some(1), repeats: false, events };
            let regions = std::mem::replace(&mut self.regions, vec![body]);
            let by_key = std::mem::take(&mut self.by_key);
            self.copying = true;
            self.walk(agent, b, 0, local);
            self.copying = false;
            self.by_key = by_key;
            let regions = std::mem::replace(&mut self.regions, regions);
            self.copies.push(Copied { agent, op, of, epilogue, step, local, at, regions });
            return;
        }
        let mut bad = false;
        if let Some(b) = func.op_block_at(op, 0) {
            func.walk(b, &mut |o| {
                bad |= match func.opcode(o) {
                    Opcode::AsyncPipelineProducerAcquire => !func.has_attr(o, keys::DRAIN),
                    Opcode::AsyncPipelineIncIter | Opcode::Yield => false,
                    _ => true,
                }
            });
        }
        if bad {
            self.error(Code::E0708, op, "a loop without origin does more than drain");
        }
    }

    fn check_iterator(&mut self, op: Op, p: usize) {
        let func = self.func;
        let depth = self.pipes[p].depth;
        for &v in func.operands(op) {
            let TypeData::PipeIter(n) = func.value_data(v) else { continue };
            if i64::from(*n) != depth {
                self.error(Code::E0705, op, format!("an iterator of {n} slots on Pipe_{p} of {depth}"));
            }
            if self.trace(v, 64).map(|t| t.0) != Some(p) {
                self.error(
                    Code::E0705,
                    op,
                    format!("Pipe_{p} is used with the iterator of another pipeline"),
                );
            }
        }
    }

    /// Of a buffer that carries a scalar between agents: the op that computes the scalar, by its origin. That is so where
    /// its producer writes scalars to it.
    pub fn sent(&self, buffer: Value) -> Option<i64> {
        self.sends.iter().find(|s| s.0 == buffer).and_then(|s| note(self.func, s.2, keys::ORIGIN))
    }

    /// Whether an op is the receiving end of a scalar channel.
    pub fn is_received(&self, op: Op) -> bool {
        self.receives.iter().any(|r| r.2 == op && self.sends.iter().any(|s| s.0 == r.0))
    }

    fn buffer(&self, v: Value) -> bool {
        self.func.defining_op(v).is_some_and(|op| self.func.opcode(op) == Opcode::AllocTensor)
    }

    fn access(&mut self, op: Op) -> Option<What> {
        let func = self.func;
        let mut touches = Touches::new();
        let list: &[(&str, &str, bool)] = match func.opcode(op) {
            Opcode::AsyncTiledTmaLoad => &[("buffer", "stage", true)],
            Opcode::AsyncTiledTmaStore => &[("source", "stage", false)],
            Opcode::AsyncDot => {
                &[("a", "a_stage", false), ("b", "b_stage", false), ("acc", "acc_stage", true)]
            }
            Opcode::Copy => &[("source", "source_stage", false), ("dest", "dest_stage", true)],
            o if matches!(o, Opcode::TiledLoad | Opcode::TiledStore) || o.is_sparse() => {
                let contended = view_of(func, op).is_some_and(|(view, _)| self.contended.contains(&view));
                return contended.then_some(What::Access(Engine::Threads, touches, None));
            }
            _ => return None,
        };
        if func.opcode(op) == Opcode::Copy {
            let scalar = |v: Value| func.value_data(v).as_scalar().is_some();
            let (source, dest) = (func.named_operand(op, "source"), func.named_operand(op, "dest"));
            match (source, dest, func.result(op)) {
                (Some(v), Some(b), _) if scalar(v) => self.sends.push((b, v, op)),
                (Some(b), None, Some(v)) if scalar(v) => self.receives.push((b, v, op)),
                _ => {}
            }
        }
        for &(name, stage, writes) in list {
            let Some(buffer) = func.named_operand(op, name) else { continue };
            if !self.buffer(buffer) {
                if matches!(func.value_data(buffer).space(), Some(Space::Smem | Space::Tmem)) {
                    self.error(Code::E0708, op, format!("operand {name} is not a buffer"));
                }
                continue;
            }
            let index = func.named_operand(op, stage);
            let ring = index
                .filter(|&i| matches!(func.value_data(i), TypeData::PipeIter(_)))
                .and_then(|i| self.trace(i, 64))
                .map(|t| t.0);
            let slots = func.value_data(buffer).dims().and_then(|d| d.first().copied()).unwrap_or(0);
            match ring {
                Some(p) if self.pipes[p].depth != i64::from(slots) => self.error(
                    Code::E0705,
                    op,
                    format!("a buffer of {slots} slots is indexed by Pipe_{p} of {}", self.pipes[p].depth),
                ),
                None if slots != 1 => {
                    self.error(Code::E0705, op, "a ring buffer is indexed without an iterator")
                }
                _ => {}
            }
            touches.push(Touch { buffer, writes, ring });
        }
        let engine = match func.opcode(op) {
            Opcode::AsyncTiledTmaLoad => Engine::Load,
            Opcode::AsyncTiledTmaStore => Engine::Store,
            Opcode::AsyncDot if self.engine => Engine::Mma,
            Opcode::AsyncDot => Engine::Threads,
            _ if touches.len() == 2 => Engine::Mma,
            _ => Engine::Threads,
        };
        let completes = match func.named_operand(op, "barrier") {
            Some(b) if engine == Engine::Load => self.trace(b, 64).map(|t| t.0),
            _ => None,
        };
        (!touches.is_empty()).then_some(What::Access(engine, touches, completes))
    }

    /// After how many iterations of a region an agent runs one again: as many as it has instances that deal it out.
    pub fn again(&self, region: usize, agent: usize) -> i64 {
        match self.dealt {
            Some((a, r)) if (a, r) == (agent, region) => self.instances[a].max(1),
            _ => 1,
        }
    }

    /// The same for the slots of a pipe, which its agent has as often.
    pub fn rounds(&self, region: usize, pipe: usize) -> i64 {
        match self.dealt {
            Some((a, r)) if r == region && self.pipes[pipe].own => self.instances[a].max(1),
            _ => 1,
        }
    }

    /// Whether a region is the home of a pipe that is also used right outside of it: before and after the loop.
    pub fn around(&self, region: usize, pipe: usize) -> bool {
        let acquires = |r: usize| self.acquired[pipe].contains(&r);
        self.pipes[pipe].distance > 0 && acquires(region) && self.regions[region].parent.is_some_and(acquires)
    }

    /// Whether a pipe is used right outside of its home, in this region.
    pub fn is_outside(&self, region: usize, pipe: usize) -> bool {
        let inside = |&r: &usize| self.regions[r].parent == Some(region) && self.around(r, pipe);
        self.acquired[pipe].iter().any(inside)
    }

    /// Upper bound on the executions of a region per kernel.
    pub fn executions(&self, region: usize) -> Option<i64> {
        let r = &self.regions[region];
        match (r.parent.map_or(Some(1), |p| self.executions(p)), r.trips) {
            (Some(0), _) | (_, Some(0)) => Some(0),
            (outer, trips) => outer?.checked_mul(trips?),
        }
    }

    /// A name of an event for messages.
    pub fn event_name(&self, e: &Event) -> String {
        self.channel_name(e.op)
    }

    /// A name for messages: of a channel op with its pipe.
    pub fn channel_name(&self, op: Op) -> String {
        let name = match self.func.opcode(op) {
            Opcode::AsyncPipelineProducerAcquire => "acquire",
            Opcode::AsyncPipelineProducerCommit => "commit",
            Opcode::AsyncPipelineConsumerWait => "wait",
            Opcode::AsyncPipelineConsumerRelease => "release",
            Opcode::AsyncPipelineIncIter => "inc",
            _ => return self.op_name(op),
        };
        match self.func.operands(op).first().and_then(|&v| self.trace(v, 64)) {
            Some((p, _)) => format!("{name}(Pipe_{p})"),
            None => name.to_string(),
        }
    }

    /// A name for messages.
    pub fn op_name(&self, op: Op) -> String {
        match note(self.func, op, keys::ORIGIN) {
            Some(n) => format!("op{n}"),
            None => self.func.opcode(op).name().rsplit('.').next().unwrap_or("op").to_string(),
        }
    }
}

/// The view an op reads or writes, and whether it writes it.
pub fn view_of(func: &Function, op: Op) -> Option<(Value, bool)> {
    let writes = match func.opcode(op) {
        Opcode::TiledLoad | Opcode::AsyncTiledTmaLoad => false,
        Opcode::TiledStore | Opcode::AsyncTiledTmaStore | Opcode::AtomicRmw => true,
        _ => return None,
    };
    let desc = || func.named_operand(op, "desc").and_then(|d| func.defining_op(d));
    let view = func.named_operand(op, "view").or_else(|| func.named_operand(desc()?, "view"))?;
    Some((view, writes))
}

/// Views that are written and that several ops access. What one op does in several iterations is ordered by its own thread, unless it
/// is an engine's.
fn contended(func: &Function) -> FxHashSet<Value> {
    let mut seen: SmallVec<[(Value, bool, u32); 8]> = SmallVec::new();
    for op in func.ops() {
        let Some((view, writes)) = view_of(func, op) else { continue };
        match seen.iter_mut().find(|s| s.0 == view) {
            Some(s) => (s.1, s.2) = (s.1 | writes, s.2 + 1),
            None => seen.push((view, writes, 1)),
        }
    }
    // Where an access orders others, and where instances run iterations, all count.
    let fences = func.ops().any(|op| func.fences(op, op) || func.has_attr(op, keys::DEALT));
    seen.into_iter().filter(|s| fences || s.1 && s.2 > 1).map(|s| s.0).collect()
}
