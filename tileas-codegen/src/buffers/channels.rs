//! Channels: the hand-offs that order all conflicting accesses to a storage web, and their bundles (pipes).
//!
//! In: webs, agent plan. Out: [`PipeData`] in program order of their commit points. Method: for every web and every
//! block in which several engines touch it, walk the block's ops with a vector clock per engine; where an access
//! conflicts with an earlier one that its engine cannot know to be complete, the earlier access becomes an event and
//! the later engine its consumer. A second walk does the same from one execution of the block to a later one through
//! the *empty* sides. In the web's home block a channel owns the ring of slots; in blocks below it the web stays in
//! place and the channel is a token with one slot. A scalar that another agent needs travels through a ring of its
//! own, whose readers copy it to registers where they first need it.
//!
//! Guarantee: program order, executed sequentially, satisfies every wait, so an unscheduled region never deadlocks;
//! what a schedule reorders is the post-verifier's business. Errors: E0606, E0607, E0609.
//! Cost: webs × accesses × engines². Source: architecture, "Channels" and "Storage webs".

use super::needs::Needs;
use super::order::StoreWaits;
use super::sync::World;
use crate::agents::{Agent, AgentPlan};
use crate::error::{Code, CodegenError, CodegenResult};
use crate::ir::{Block, Function, Op, Opcode, Publish, Space, Value};
use crate::storage::Storage;
use crate::storage::access::{Class, Key, accesses, class_of, reader_class};
use crate::storage::carried::Carried;
use crate::storage::slice::base_of;
use crate::storage::webs::{Web, Webs};
use cranelift_entity::{PrimaryMap, SecondaryMap, entity_impl};
use smallvec::{SmallVec, smallvec};

/// Named barriers of a CTA.
pub const NAMED_BARRIERS: u32 = 16;
/// The first of the two at which warpgroups take turns to multiply, if nothing else needs it.
pub const TURNS: u32 = 14;

/// A bundle of channels: one full/empty barrier pair per slot.
#[derive(Copy, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Pipe(u32);
entity_impl!(Pipe, "Pipe_");

/// Ops of one block: mostly few.
pub type Ops = SmallVec<[Op; 4]>;

/// One consumer of a pipe.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Consumer {
    /// Who.
    pub key: Key,
    /// Ops of the home block before the first of which it waits; empty: it waits after the last of `uses`.
    pub waits: Ops,
    /// Ops of the home block after the last of which it releases.
    pub uses: Ops,
}

/// What a pipe with a distance does around its loop: the first version comes from the init, the last one is taken after
/// the loop.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Carry {
    /// The loop.
    pub loop_op: Op,
    /// The block it stands in.
    pub parent: Block,
    /// The ops there that make the first version; none: an empty slot passes through.
    pub inits: Ops,
    /// Per consumer, the items there that read the last version.
    pub behind: Vec<Ops>,
}

/// What a pipe hands over.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PipeKind {
    /// Tiles: its webs are its buffers.
    Ring,
    /// Tiles that are read one iteration after they were made.
    Carried(Carry),
    /// Scalars: a consumer copies them to registers where it first needs one, and releases.
    Scalar,
    /// The right to go on: its webs have slots, and nothing is written that the consumer reads.
    Token,
    /// The right to go on, where the webs, or what memory holds, stay in place: one slot.
    InPlace,
    /// Nothing: it excludes ops from overlapping.
    Mutex,
}

/// One pipe.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PipeData {
    /// Advances once per execution of this block.
    pub home: Block,
    /// Iteration distance from producer to consumer.
    pub distance: u32,
    /// Webs it orders.
    pub webs: SmallVec<[Web; 4]>,
    /// What it hands over.
    pub kind: PipeKind,
    /// Who produces.
    pub producer: Key,
    /// Ops of the home block before the first of which the producer acquires.
    pub acquires: Ops,
    /// Ops of the home block after the last of which it commits.
    pub events: Ops,
    /// Who consumes.
    pub consumers: Vec<Consumer>,
    /// Bytes of one slot announced by a transaction commit; 0 otherwise.
    pub tx: u32,
    /// Fence of the commit.
    pub publish: Publish,
    /// Both sides are whole warps of one agent, whose issuing lane feeds an engine: this named barrier over the
    /// agent's threads replaces the mbarriers. 0 until it is bound.
    pub named: Option<u32>,
    /// Number of slots.
    pub depth: u32,
    /// Whether slots are handed back through barriers (false: the home runs at most `depth` times).
    pub has_empty: bool,
    /// Why this depth.
    pub why: super::depth::Why,
    /// Shared-memory offset of the full barriers.
    pub full_at: u32,
    /// Shared-memory offset of the empty barriers.
    pub empty_at: u32,
}

impl PipeData {
    /// Whether it hands over data: its webs are its buffers.
    pub fn payload(&self) -> bool {
        matches!(self.kind, PipeKind::Ring | PipeKind::Carried(_) | PipeKind::Scalar)
    }

    /// Whether the data are scalars.
    pub fn is_scalar(&self) -> bool {
        self.kind == PipeKind::Scalar
    }

    /// Whether what it orders stays where it is, in the one slot that there is.
    pub fn in_place(&self) -> bool {
        matches!(self.kind, PipeKind::InPlace | PipeKind::Mutex)
    }

    /// What happens around the loop, where the distance is not 0.
    pub fn carry(&self) -> Option<&Carry> {
        match &self.kind {
            PipeKind::Carried(carry) => Some(carry),
            _ => None,
        }
    }

    /// Whether both sides are one agent's.
    pub fn is_own(&self, agent: Agent) -> bool {
        self.producer.agent == agent && self.consumers.iter().all(|c| c.key.agent == agent)
    }

    /// Whether an agent with instances takes a slot of another agent in each iteration that they run in turns; see `agents::turns`.
    pub fn is_taken_in_turns(&self, func: &Function, agent: Agent) -> bool {
        let outermost = func.block_parent(self.home).is_some_and(|l| func.op_block(l) == Some(func.entry()));
        outermost && !self.is_own(agent) && self.consumers.iter().any(|c| c.key.agent == agent)
    }

    /// Whether its slots are freed one by one in later iterations: the staging buffers of a loop over slices. Their producer
    /// and the lane that stores belong to one agent, which orders them by a named barrier, so that an iteration need only wait
    /// until the store before the last `depth - 1` has read its slot.
    pub fn defers(&self, func: &Function) -> bool {
        self.named.is_some()
            && self.distance == 0
            && func.block_parent(self.home).is_some_and(|op| func.is_slice_loop(op))
    }
}

/// Positions of ops in program order: where an op begins, and where it (with its regions) ends.
#[derive(Default)]
pub struct Positions {
    /// Preorder number.
    pub begin: SecondaryMap<Op, u32>,
    /// Number of the last op inside.
    pub end: SecondaryMap<Op, u32>,
}

impl Positions {
    /// Numbers all ops.
    pub fn compute(func: &Function) -> Positions {
        let mut p = Positions::default();
        p.begin.resize(func.num_ops());
        p.end.resize(func.num_ops());
        let mut n = 0;
        fn walk(func: &Function, b: Block, n: &mut u32, p: &mut Positions) {
            for op in func.block_ops(b) {
                *n += 1;
                p.begin[op] = *n;
                for &r in func.regions(op) {
                    walk(func, func.region_block(r), n, p);
                }
                *n += 1;
                p.end[op] = *n;
            }
        }
        walk(func, func.entry(), &mut n, &mut p);
        p
    }
}

/// One access of one engine at one op of the block under study.
#[derive(Clone, Copy)]
struct Touch {
    key: usize,
    reads: bool,
    writes: bool,
}

struct Node {
    op: Op,
    touches: SmallVec<[Touch; 2]>,
}

/// An event under construction.
struct Event {
    key: usize,
    node: usize,
    /// (consumer, first node that waits; `usize::MAX`: after its last access)
    consumers: SmallVec<[(usize, usize); 2]>,
}

/// Memory of the walks over the blocks.
#[derive(Default)]
struct Walks {
    keys: Vec<Key>,
    nodes: Vec<Node>,
    events: Vec<Event>,
    blocks: Vec<Block>,
    /// Row k, column j: the last node of j that k knows complete.
    clocks: Vec<i64>,
    /// Per node: the clocks when it is done.
    snaps: Vec<i64>,
    again: Again,
}

/// The same for the walk that goes around.
#[derive(Default)]
struct Again {
    clocks: Vec<i64>,
    at_end: Vec<i64>,
    snaps: Vec<i64>,
    entered: Vec<bool>,
}

/// Row `to` learns what a row of other clocks knows.
fn learn(clocks: &mut [i64], nk: usize, to: usize, from: &[i64]) {
    for (mine, &theirs) in clocks[to * nk..][..nk].iter_mut().zip(from) {
        *mine = (*mine).max(theirs);
    }
}

/// Finds all channels and bundles them, and where lanes wait for their stores; `waits` are webs that follow one another in the same memory.
///
/// # Errors
/// See the module documentation.
pub fn build(
    world: World<'_>,
    storage: &Storage,
    webs: &mut Webs,
    waits: &[(Web, Web)],
) -> CodegenResult<(PrimaryMap<Pipe, PipeData>, StoreWaits)> {
    let World { func, plan, needs, .. } = world;
    let positions = Positions::compute(func);
    let mut found: Vec<PipeData> = Vec::with_capacity(16);
    let mut walks = Walks::default();
    for (web, data) in webs.webs.iter() {
        if let Some(op) = own_operand(func, webs, web) {
            let text = "the matrix engine reads an operand that it wrote";
            return Err(CodegenError::new(Code::E0607, func.op_loc(op), text));
        }
        if let Some(ring) = storage.carried(web) {
            found.push(carried_channel(func, webs, web, ring)?);
            continue;
        }
        // The home block and every block below it that holds an access.
        let mut blocks = std::mem::take(&mut walks.blocks);
        blocks.clear();
        blocks.push(data.home);
        for &op in &data.ops {
            let mut b = func.op_block(op);
            while let Some(block) = b.filter(|&x| x != data.home) {
                if !blocks.contains(&block) {
                    blocks.push(block);
                }
                b = func.block_parent(block).and_then(|p| func.op_block(p));
            }
        }
        for &block in &blocks {
            block_channels(func, plan, webs, web, block, &mut found, &mut walks)?;
        }
        walks.blocks = blocks;
    }
    scalar_channels(func, plan, webs, needs, &mut found);
    let store_waits = super::order::memory_tokens(world, &mut found)?;
    super::share::add_waits(world, webs, waits, &mut found);
    // Threads of one agent that order what they do themselves meet.
    for p in found.iter_mut().filter(|p| p.webs.is_empty() && !plan.agents[p.producer.agent].elect) {
        let inside = p.producer.class == Class::Sync && p.consumers.iter().all(|c| c.key == p.producer);
        p.named = inside.then_some(0);
    }
    super::order::mutexes(world, &mut found);
    let last = |p: &PipeData| p.events.iter().map(|&op| positions.end[op]).max().unwrap_or(0);
    found.sort_by_key(last);
    let mut pipes: PrimaryMap<Pipe, PipeData> = PrimaryMap::new();
    for ch in found {
        let host = pipes.iter().find(|(_, p)| may_bundle(&positions, p, &ch)).map(|(id, _)| id);
        match host {
            Some(id) => merge(&positions, &mut pipes[id], ch),
            None => {
                pipes.push(ch);
            }
        }
    }
    Ok((pipes, store_waits))
}

/// The ring of a tile that is read one iteration after it was made.
fn carried_channel(func: &Function, webs: &Webs, web: Web, ring: &Carried) -> CodegenResult<PipeData> {
    let space = webs.webs[web].space;
    let consumer = |(key, inside, behind): &(Key, Vec<Op>, Vec<Op>)| {
        let (waits, uses) = (Ops::from_slice(inside), Ops::from_slice(inside));
        (Consumer { key: *key, waits, uses }, Ops::from_slice(behind))
    };
    let (consumers, behind): (Vec<Consumer>, Vec<Ops>) = ring.readers.iter().map(consumer).unzip();
    let publish = match (ring.writer.class, space) {
        (Class::Sync, Space::Tmem) => Publish::Tmem,
        (Class::Sync, _) if consumers.iter().any(|c| c.key.class != Class::Sync) => Publish::Proxy,
        _ => Publish::None,
    };
    let tx = if ring.writer.class == Class::Tma { tx_bytes(func, webs, web, ring.write)? } else { 0 };
    Ok(PipeData {
        home: ring.body,
        distance: 1,
        webs: smallvec![web],
        kind: PipeKind::Carried(Carry {
            loop_op: ring.loop_op,
            parent: ring.parent,
            inits: ring.init.into_iter().collect(),
            behind,
        }),
        producer: ring.writer,
        acquires: smallvec![ring.write],
        events: smallvec![ring.write],
        consumers,
        tx,
        publish,
        named: None,
        depth: 1,
        has_empty: true,
        why: Default::default(),
        full_at: 0,
        empty_at: 0,
    })
}

/// One ring per scalar that some agent receives.
fn scalar_channels(
    func: &Function,
    plan: &AgentPlan,
    webs: &mut Webs,
    needs: &PrimaryMap<Agent, Needs>,
    found: &mut Vec<PipeData>,
) {
    let mut sources: Vec<Op> = needs.values().flat_map(|n| &n.received).map(|r| r.source).collect();
    sources.sort_unstable();
    sources.dedup();
    for source in sources {
        let (Some(agent), Some(home)) = (plan.op_agent[source].expand(), func.op_block(source)) else {
            continue;
        };
        let Some(web) = webs.add_scalar(func, source) else { continue };
        let consumers = needs.iter().filter_map(|(agent, n)| {
            let r = n.received.iter().find(|r| r.source == source)?;
            let key = Key { agent, class: Class::Sync };
            Some(Consumer { key, waits: Ops::from_slice(&r.users), uses: Ops::from_slice(&r.users) })
        });
        found.push(PipeData {
            home,
            distance: 0,
            webs: smallvec![web],
            kind: PipeKind::Scalar,
            producer: Key { agent, class: Class::Sync },
            acquires: smallvec![source],
            events: smallvec![source],
            consumers: consumers.collect(),
            tx: 0,
            publish: Publish::None,
            named: None,
            depth: 1,
            has_empty: true,
            why: Default::default(),
            full_at: 0,
            empty_at: 0,
        });
    }
}

fn keys_of(p: &PipeData) -> SmallVec<[Key; 4]> {
    let mut k: SmallVec<[Key; 4]> = p.consumers.iter().map(|c| c.key).collect();
    k.sort_unstable();
    k
}

/// Channels bundle if they agree in all that a barrier pair fixes and all of their commits precede all waits. Those that publish global memory do where
/// they commit at one op.
fn may_bundle(positions: &Positions, a: &PipeData, b: &PipeData) -> bool {
    let same = a.home == b.home
        && a.distance == b.distance
        && a.kind == b.kind
        && !matches!(a.kind, PipeKind::Carried(_) | PipeKind::Mutex)
        && a.producer == b.producer
        && a.publish == b.publish
        && keys_of(a) == keys_of(b)
        && !a.webs.iter().any(|w| b.webs.contains(w))
        // The fence in front of a commit is for what its agent does behind it, too, and must not move down.
        && (a.publish != Publish::Global || a.events == b.events)
        && a.consumers.iter().zip(&b.consumers).all(|(x, y)| one_wait(x, y));
    if !same {
        return false;
    }
    let commit = a.events.iter().chain(&b.events).map(|&op| positions.end[op]).max();
    let wait = a
        .consumers
        .iter()
        .chain(&b.consumers)
        .map(|c| match c.waits.iter().map(|&op| positions.begin[op]).min() {
            Some(first) => first,
            None => c.uses.iter().map(|&op| positions.end[op]).max().unwrap_or(0),
        })
        .min();
    commit <= wait
}

/// Whether one wait can stand where both consumers need theirs: behind an op it stands for what is waited for there alone.
fn one_wait(a: &Consumer, b: &Consumer) -> bool {
    match (a.waits.is_empty(), b.waits.is_empty()) {
        (false, false) => true,
        (true, true) => a.uses == b.uses,
        _ => false,
    }
}

/// Lists of ops stay in program order: which of them comes first or last is read off them.
fn merge(positions: &Positions, into: &mut PipeData, ch: PipeData) {
    let add = |list: &mut Ops, more: Ops| {
        for op in more {
            if !list.contains(&op) {
                list.push(op);
            }
        }
        list.sort_by_key(|&op| positions.begin[op]);
    };
    into.webs.extend(ch.webs);
    into.tx = into.tx.saturating_add(ch.tx);
    add(&mut into.acquires, ch.acquires);
    add(&mut into.events, ch.events);
    for c in ch.consumers {
        if let Some(mine) = into.consumers.iter_mut().find(|m| m.key == c.key) {
            add(&mut mine.waits, c.waits);
            add(&mut mine.uses, c.uses);
        }
    }
}

fn block_channels(
    func: &Function,
    plan: &AgentPlan,
    webs: &Webs,
    web: Web,
    block: Block,
    found: &mut Vec<PipeData>,
    walks: &mut Walks,
) -> CodegenResult<()> {
    let data = &webs.webs[web];
    let Walks { keys, nodes, events, clocks, snaps, again, .. } = walks;
    keys.clear();
    nodes.clear();
    events.clear();
    let mine = |v: Value| webs.of[base_of(func, v)].expand() == Some(web);
    let writes = |op: Op| accesses(func, op).iter().any(|a| a.writes && mine(a.value));
    // Agents whose threads write it tell them from the products that read it.
    let written: SmallVec<[Agent; 2]> = data
        .ops
        .iter()
        .filter(|&&op| class_of(func, plan, op) == Class::Sync && writes(op))
        .filter_map(|&op| plan.op_agent[op].expand())
        .collect();
    for &op in &data.ops {
        let Some(item) = func.ancestor_in(op, block) else { continue };
        let Some(agent) = plan.op_agent[op].expand() else {
            return Err(CodegenError::new(
                Code::E0608,
                func.op_loc(op),
                "an access to a stored tile has no agent",
            ));
        };
        let class = match written.contains(&agent) {
            true => class_of(func, plan, op),
            false => reader_class(func, plan, &data.ops, op),
        };
        let key = Key { agent, class };
        let k = keys.iter().position(|x| *x == key).unwrap_or_else(|| {
            keys.push(key);
            keys.len() - 1
        });
        if nodes.last().is_none_or(|n| n.op != item) {
            nodes.push(Node { op: item, touches: SmallVec::new() });
        }
        let Some(node) = nodes.last_mut() else { continue };
        for a in accesses(func, op) {
            if webs.of[base_of(func, a.value)].expand() != Some(web) {
                continue;
            }
            match node.touches.iter_mut().find(|t| t.key == k) {
                Some(t) => (t.reads, t.writes) = (t.reads | a.reads, t.writes | a.writes),
                None => node.touches.push(Touch { key: k, reads: a.reads, writes: a.writes }),
            }
        }
    }
    let self_ordered = |k: usize| keys[k].class != Class::Sync || data.is_accumulator();
    if keys.is_empty() || (keys.len() == 1 && self_ordered(0)) {
        return Ok(());
    }
    let nk = keys.len();
    let conflict = |a: Touch, b: Touch| {
        if a.key == b.key {
            // Threads of one agent see each other's writes only through a hand-off; parts written one after the
            // other are disjoint.
            !self_ordered(a.key) && a.writes != b.writes
        } else {
            a.writes || b.writes
        }
    };
    let touch = |n: usize, k: usize| nodes[n].touches.iter().copied().find(|t| t.key == k);
    clocks.clear();
    clocks.resize(nk * nk, -1);
    snaps.clear();
    for (n, node) in nodes.iter().enumerate() {
        for &t in &node.touches {
            // Latest conflicting node of each engine, the latest first: it may imply the others.
            let mut needs: SmallVec<[(usize, usize); 8]> = (0..nk)
                .filter_map(|j| {
                    (0..n).rev().find(|&m| touch(m, j).is_some_and(|o| conflict(o, t))).map(|m| (m, j))
                })
                .collect();
            needs.sort_unstable_by(|a, b| b.cmp(a));
            for (m, j) in needs {
                if clocks[t.key * nk + j] >= m as i64 {
                    continue;
                }
                let at = events.iter().position(|e| e.key == j && e.node == m).unwrap_or_else(|| {
                    events.push(Event { key: j, node: m, consumers: SmallVec::new() });
                    events.len() - 1
                });
                if !events[at].consumers.iter().any(|c| c.0 == t.key) {
                    events[at].consumers.push((t.key, n));
                }
                learn(clocks, nk, t.key, &snaps[(m * nk + j) * nk..]);
                clocks[t.key * nk + j] = clocks[t.key * nk + j].max(m as i64);
            }
        }
        snaps.extend_from_slice(clocks);
    }
    if func.block_parent(block).is_some() {
        wrap(nodes, keys, clocks, snaps, &conflict, &self_ordered, events, again);
    }
    let in_place = block != data.home;
    for e in events.iter() {
        let producer = keys[e.key];
        let loc = func.op_loc(nodes[e.node].op);
        let of_key = |k: usize| (0..nodes.len()).filter(move |&n| touch(n, k).is_some());
        if producer.class == Class::Bulk || e.consumers.iter().any(|c| keys[c.0].class == Class::Tma) {
            return Err(CodegenError::new(
                Code::E0606,
                loc,
                "a tile is overwritten by a TMA load, or waits for a TMA store, in place; load into a new tile",
            ));
        }
        let written = || of_key(e.key).filter(|&n| n <= e.node);
        let kind = match in_place {
            true => PipeKind::InPlace,
            false if written().any(|n| touch(n, e.key).is_some_and(|t| t.writes)) => PipeKind::Ring,
            false => PipeKind::Token,
        };
        let events_ops: Ops = written().map(|n| nodes[n].op).collect();
        let mut tx = 0u32;
        if producer.class == Class::Tma {
            for &op in &events_ops {
                tx = tx.saturating_add(tx_bytes(func, webs, web, op)?);
            }
        }
        let consumers: Vec<Consumer> = {
            let mut list = e.consumers.clone();
            list.sort_by_key(|c| (keys[c.0], c.1));
            list.iter()
                .map(|&(k, first)| Consumer {
                    key: keys[k],
                    waits: of_key(k).filter(|&n| n >= first).map(|n| nodes[n].op).collect(),
                    uses: of_key(k).map(|n| nodes[n].op).collect(),
                })
                .collect()
        };
        let publish = match (producer.class, data.space) {
            (Class::Sync, Space::Tmem) => Publish::Tmem,
            (Class::Sync, _) if consumers.iter().any(|c| c.key.class != Class::Sync) => Publish::Proxy,
            _ => Publish::None,
        };
        let agent = producer.agent;
        let inside = producer.class == Class::Sync
            && !plan.agents[agent].elect
            && [Class::Bulk, Class::Group]
                .iter()
                .any(|&class| consumers.iter().all(|c| c.key == Key { agent, class }));
        let named = inside.then_some(0);
        found.push(PipeData {
            home: block,
            distance: 0,
            webs: smallvec![web],
            kind,
            producer,
            acquires: of_key(e.key).map(|n| nodes[n].op).collect(),
            events: events_ops,
            consumers,
            tx,
            publish,
            named,
            depth: 1,
            has_empty: true,
            why: Default::default(),
            full_at: 0,
            empty_at: 0,
        });
    }
    Ok(())
}

/// Orders the accesses of one execution of the block before the conflicting ones of the next that uses the slot:
/// the agent that comes first acquires what the others release; engines that no acquire covers become consumers.
#[expect(clippy::too_many_arguments, reason = "all that the first walk knows")]
fn wrap(
    nodes: &[Node],
    keys: &[Key],
    end: &[i64],
    first_snaps: &[i64],
    conflict: &impl Fn(Touch, Touch) -> bool,
    self_ordered: &impl Fn(usize) -> bool,
    events: &mut Vec<Event>,
    memory: &mut Again,
) {
    let nk = keys.len();
    let Again { clocks, at_end, snaps, entered } = memory;
    let touch = |n: usize, k: usize| nodes[n].touches.iter().copied().find(|t| t.key == k);
    let last = |k: usize| (0..nodes.len()).rev().find(|&n| touch(n, k).is_some()).map_or(-1, |n| n as i64);
    // Adding a consumer makes the next round know more; each round adds at least one of nk² pairs.
    for _round in 0..=nk * nk {
        clocks.clear();
        clocks.extend_from_slice(end);
        for k in (0..nk).filter(|&k| self_ordered(k)) {
            clocks[k * nk + k] = last(k);
        }
        // The agent that waits at the end of the block knows what came before that event.
        for e in events.iter() {
            for &(c, _) in e.consumers.iter().filter(|c| c.1 == usize::MAX) {
                learn(clocks, nk, c, &first_snaps[(e.node * nk + e.key) * nk..]);
                clocks[c * nk + e.key] = clocks[c * nk + e.key].max(e.node as i64);
            }
        }
        at_end.clear();
        at_end.extend_from_slice(clocks);
        entered.clear();
        entered.resize(nk, false);
        snaps.clear();
        let mut missing = None;
        'walk: for n in 0..nodes.len() {
            for t in &nodes[n].touches {
                let k = t.key;
                if !std::mem::replace(&mut entered[k], true) {
                    for e in events.iter().filter(|e| e.key == k) {
                        for &(c, _) in &e.consumers {
                            learn(clocks, nk, k, &at_end[c * nk..]);
                            clocks[k * nk + c] = clocks[k * nk + c].max(last(c));
                        }
                    }
                }
                for e in events.iter() {
                    if e.node < n && e.consumers.iter().any(|c| c.0 == k && c.1 == n) {
                        learn(clocks, nk, k, &snaps[(e.node * nk + e.key) * nk..]);
                    }
                }
                for (j, &known) in clocks[k * nk..][..nk].iter().enumerate() {
                    let prior =
                        (0..nodes.len()).rev().find(|&m| touch(m, j).is_some_and(|o| conflict(o, *t)));
                    if let Some(m) = prior
                        && known < m as i64
                    {
                        missing = Some((k, j));
                        break 'walk;
                    }
                }
            }
            snaps.extend_from_slice(clocks);
        }
        let Some((k, j)) = missing else { return };
        match events.iter_mut().find(|e| e.key == k && !e.consumers.iter().any(|c| c.0 == j)) {
            Some(e) => {
                let from = (e.node + 1..nodes.len()).find(|&m| touch(m, j).is_some()).unwrap_or(usize::MAX);
                e.consumers.push((j, from));
            }
            // Neither follows the other within the block: the one waits for the other at its end.
            None => {
                let node = (0..nodes.len()).rev().find(|&m| touch(m, k).is_some()).unwrap_or(0);
                events.push(Event { key: k, node, consumers: SmallVec::from_slice(&[(j, usize::MAX)]) });
            }
        }
    }
}

/// A dot that takes as a matrix operand what a dot has computed: nothing orders the two.
fn own_operand(func: &Function, webs: &Webs, web: Web) -> Option<Op> {
    let data = &webs.webs[web];
    let dots = || data.ops.iter().copied().filter(|&op| func.opcode(op) == Opcode::AsyncDot);
    let writes = |op: Op| {
        let ours = |v| webs.of[base_of(func, v)].expand() == Some(web);
        accesses(func, op).iter().any(|a| a.writes && ours(a.value))
    };
    dots().find(|&op| !writes(op)).filter(|_| dots().any(writes))
}

/// Bytes that TMA loads inside `op` write to the web: the same on every path.
fn tx_bytes(func: &Function, webs: &Webs, web: Web, op: Op) -> CodegenResult<u32> {
    let block_bytes = |n: usize| -> CodegenResult<u32> {
        let mut sum = 0u32;
        if let Some(b) = func.op_block_at(op, n) {
            for inner in func.block_ops(b) {
                sum = sum.saturating_add(tx_bytes(func, webs, web, inner)?);
            }
        }
        Ok(sum)
    };
    match func.opcode(op) {
        Opcode::If => {
            let (a, b) = (block_bytes(0)?, block_bytes(1)?);
            if a != b {
                return Err(CodegenError::new(
                    Code::E0609,
                    func.op_loc(op),
                    format!("the arms load {a} and {b} bytes into one tile"),
                ));
            }
            Ok(a)
        }
        Opcode::For => match block_bytes(0)? {
            0 => Ok(0),
            n => Err(CodegenError::new(
                Code::E0609,
                func.op_loc(op),
                format!("a loop loads {n} bytes a trip into one tile that is handed over after it"),
            )),
        },
        Opcode::AsyncTiledTmaLoad => Ok(accesses(func, op)
            .iter()
            .filter(|a| a.writes && webs.of[base_of(func, a.value)].expand() == Some(web))
            .map(|a| func.value_data(a.value).num_bytes().unwrap_or(0).min(u64::from(u32::MAX)) as u32)
            .sum()),
        _ => Ok(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ops 0 to 9 stand one behind the other.
    fn positions() -> Positions {
        let mut p = Positions::default();
        for n in 0..10 {
            p.begin[Op::from_u32(n)] = 2 * n + 1;
            p.end[Op::from_u32(n)] = 2 * n + 2;
        }
        p
    }

    fn ops(list: &[u32]) -> Ops {
        list.iter().map(|&n| Op::from_u32(n)).collect()
    }

    fn key(agent: u32, class: Class) -> Key {
        Key { agent: Agent::from_u32(agent), class }
    }

    fn consumer(agent: u32, class: Class, waits: &[u32], uses: &[u32]) -> Consumer {
        Consumer { key: key(agent, class), waits: ops(waits), uses: ops(uses) }
    }

    /// A tile that a load makes and a product reads.
    fn channel(web: u32, load: u32, product: u32) -> PipeData {
        PipeData {
            home: Block::from_u32(0),
            distance: 0,
            webs: smallvec![Web::from_u32(web)],
            kind: PipeKind::Ring,
            producer: key(0, Class::Tma),
            acquires: ops(&[load]),
            events: ops(&[load]),
            consumers: vec![consumer(1, Class::Mma, &[product], &[product])],
            tx: 100 + web,
            publish: Publish::None,
            named: None,
            depth: 1,
            has_empty: true,
            why: Default::default(),
            full_at: 0,
            empty_at: 0,
        }
    }

    #[test]
    fn channels_are_one_pipe_where_all_agrees_that_a_barrier_stands_for() {
        let p = positions();
        let (a, b) = (channel(0, 0, 4), channel(1, 2, 6));
        assert!(may_bundle(&p, &a, &b) && may_bundle(&p, &b, &a));
        // Bytes are added and slots counted later: they need not be equal.
        assert!(may_bundle(&p, &a, &PipeData { depth: 3, tx: 7, ..b.clone() }));
        let carry =
            Carry { loop_op: Op::from_u32(9), parent: Block::from_u32(0), inits: Ops::new(), behind: vec![] };
        type Change = fn(&mut PipeData);
        let differences: [(&str, Change); 11] = [
            ("home", |b| b.home = Block::from_u32(1)),
            ("distance", |b| b.distance = 1),
            ("kind", |b| b.kind = PipeKind::Token),
            ("producing agent", |b| b.producer.agent = Agent::from_u32(2)),
            ("producing engine", |b| b.producer.class = Class::Sync),
            ("fence", |b| b.publish = Publish::Proxy),
            ("consuming agent", |b| b.consumers[0].key.agent = Agent::from_u32(2)),
            ("consuming engine", |b| b.consumers[0].key.class = Class::Sync),
            ("one consumer more", |b| b.consumers.push(consumer(2, Class::Sync, &[7], &[7]))),
            ("the same tile", |b| b.webs = smallvec![Web::from_u32(0)]),
            ("waits behind its uses", |b| b.consumers[0].waits.clear()),
        ];
        for (what, change) in differences {
            let mut b = b.clone();
            change(&mut b);
            assert!(!may_bundle(&p, &a, &b) && !may_bundle(&p, &b, &a), "{what}");
        }
        // What goes around a loop, and exclusions, are alone even among their like.
        for kind in [PipeKind::Carried(carry), PipeKind::Mutex] {
            let (a, b) = (PipeData { kind: kind.clone(), ..a.clone() }, PipeData { kind, ..b.clone() });
            assert!(!may_bundle(&p, &a, &b), "{:?}", a.kind);
        }
        // Where both wait behind their uses these must be the same.
        let behind = |web, uses: &[u32]| PipeData {
            consumers: vec![consumer(1, Class::Mma, &[], uses)],
            ..channel(web, web, 4)
        };
        assert!(may_bundle(&p, &behind(0, &[4]), &behind(1, &[4])));
        assert!(!may_bundle(&p, &behind(0, &[4]), &behind(1, &[4, 6])));
        // The fence for global memory stays where it is.
        let global = |web, load| PipeData { publish: Publish::Global, ..channel(web, load, 6) };
        assert!(may_bundle(&p, &global(0, 2), &global(1, 2)));
        assert!(!may_bundle(&p, &global(0, 2), &global(1, 3)));
    }

    #[test]
    fn no_commit_stands_behind_a_wait_of_its_pipe() {
        let p = positions();
        // The load of the one stands in front of the product that needs the other, just in front of it, in it, and behind it.
        for (load, one) in [(2, true), (3, true), (4, false), (5, false)] {
            assert_eq!(may_bundle(&p, &channel(0, 0, 4), &channel(1, load, 6)), one, "{load}");
            assert_eq!(may_bundle(&p, &channel(1, load, 6), &channel(0, 0, 4)), one, "{load}");
        }
        // The last commit and the first wait count, wherever they are in their lists.
        let late = PipeData { events: ops(&[5, 1]), ..channel(1, 1, 6) };
        assert!(!may_bundle(&p, &channel(0, 0, 4), &late));
        let early =
            PipeData { consumers: vec![consumer(1, Class::Mma, &[7, 2], &[7, 2])], ..channel(1, 1, 6) };
        assert!(!may_bundle(&p, &channel(0, 3, 4), &early));
        assert!(may_bundle(&p, &channel(0, 0, 4), &early));
    }

    #[test]
    fn a_pipe_of_two_channels_has_what_both_have() {
        let p = positions();
        let mut a = channel(0, 2, 4);
        let mut b = channel(1, 0, 6);
        a.consumers.push(consumer(2, Class::Sync, &[7], &[7]));
        b.consumers.push(consumer(2, Class::Sync, &[5, 7], &[5, 7, 8]));
        merge(&p, &mut a, b);
        assert_eq!(a.webs[..], [Web::from_u32(0), Web::from_u32(1)]);
        assert_eq!(a.tx, 100 + 101);
        assert_eq!((a.acquires, a.events), (ops(&[0, 2]), ops(&[0, 2])));
        let want = [consumer(1, Class::Mma, &[4, 6], &[4, 6]), consumer(2, Class::Sync, &[5, 7], &[5, 7, 8])];
        assert_eq!(a.consumers, want);
    }
}
