//! The modulo-scheduling problem of one loop, free of IR.
//!
//! In: calls ([`Problem::add_slot`], [`Problem::add_node`], …) from the graph builder or the JSON reader. Out: a
//! [`Problem`] the scheduler reads and never changes. Everything is a struct of arrays: what a probe touches (uses
//! and pool counts) lies in one flat arena per kind, with one range per node.
//!
//! Units: cycles of the machine model, which are weights and not measured clocks. Node order is program order.
//!
//! Guarantee: [`Problem::check`] finds every structural error and names its place; a problem without errors has a
//! schedule (at worst the serial one). Cost: O(uses + edges). Source: spec pages 3 and 4, `tileas-schedule/1`.

use crate::entities::{Edge, Node, Place, Pool, Slot};
use crate::error::{Code, Diagnostic};
use crate::options::Limits;
use cranelift_entity::{EntityRef, EntitySet, PrimaryMap};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use std::fmt;
use std::ops::Range;

/// The largest quantity a problem or schedule may contain: 31 bits.
pub const MAX_QUANTITY: u32 = i32::MAX as u32;

/// "Belongs to no group" in [`Problem::group_index`].
pub const NO_GROUP: u32 = u32::MAX;

/// A slot or a pool: something every modulo cycle has `capacity` of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource {
    /// External number (slot id or pool index of the machine).
    pub id: u32,
    /// Name for people.
    pub name: String,
    /// Units available in each cycle.
    pub capacity: u32,
}

/// One reservation of an op: `occupancy` units of `slot` in `duration` cycles from `start + offset`.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Use {
    /// The slot.
    pub slot: Slot,
    /// First cycle, counted from the op's start.
    pub offset: u32,
    /// Number of cycles.
    pub duration: u32,
    /// Units in each of them.
    pub occupancy: u32,
}

/// One pool charge of an op: `count` units of `pool` in `duration` cycles from its start.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct PoolUse {
    /// The pool.
    pub pool: Pool,
    /// Units in each cycle.
    pub count: u32,
    /// Number of cycles.
    pub duration: u32,
}

/// `start[to] >= start[from] + latency - ii * distance`.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct EdgeData {
    /// The op that comes first.
    pub from: Node,
    /// The op that depends on it.
    pub to: Node,
    /// Cycles from start to start; zero and negative values are meaningful.
    pub latency: i32,
    /// Iterations between the two.
    pub distance: u32,
}

/// What only some rules read: who follows whom, who runs the op, what its result takes.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeExtra {
    /// The op's own group number, where its group follows a leader.
    pub own_gid: Option<u32>,
    /// The group number it follows: it waits until an op of that number has a start. `None`: it leads itself.
    pub leader_gid: Option<u32>,
    /// Number of the agent that computes the op in registers, if one does.
    pub simt_agent: Option<u32>,
    /// A product that the agent issues and goes on: it holds up only who reads its result, and products are complete in the order in which they
    /// were issued.
    pub product: bool,
    /// Such a product takes the op's result from registers: they are taken until it is complete.
    pub multiplied: bool,
    /// 32-bit registers per thread that the op's result takes.
    pub registers: u32,
    /// Registers that are taken between the op and the last reader of its result. More than the result where the op narrows,
    /// since the assembler converts where the result is used; none where it only says where elements are, or they follow from
    /// what does not change.
    pub held: u32,
    /// Bytes of the op's result in a ring between agents.
    pub ring_bytes: u32,
    /// The op reaches across the cluster: its latency ceiling is the higher one.
    pub cross_cluster: bool,
}

/// What [`Problem::add_node`] copies into the arenas.
#[derive(Clone, Debug, Default)]
pub struct NodeDef<'a> {
    /// Unique id (`op3`).
    pub id: &'a str,
    /// Operation name (`async.dot`).
    pub name: &'a str,
    /// Cycles from the start until the result is ready.
    pub latency: u32,
    /// Slot reservations.
    pub uses: &'a [Use],
    /// Pool charges.
    pub pools: &'a [PoolUse],
    /// Ops of one group share a stage.
    pub group: Option<u32>,
    /// Largest allowed stage; 0 is unlimited.
    pub max_depth: u32,
    /// The op overlaps neither itself nor its group across iterations.
    pub force_serial: bool,
    /// What only some rules read.
    pub extra: NodeExtra,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
struct TextRange(u32, u32);

/// What the selector knows of a region.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct RegionSummary {
    /// Ops that count (uniform ops do not).
    pub op_count: u32,
    /// An asynchronous op is present.
    pub has_async_pipeline: bool,
    /// A TMA op is present.
    pub has_tma: bool,
    /// An MMA is present.
    pub has_mma: bool,
    /// Iterations in which tiles on the way from global memory to registers may be under way at once; 0: none is worth reading ahead.
    pub reads_ahead: u32,
    /// The loop itself carries `force_serial_execution`.
    pub force_serial: bool,
}

impl RegionSummary {
    /// Whether something in the loop completes later than it is issued.
    pub fn is_asynchronous(&self) -> bool {
        self.has_async_pipeline || self.has_tma || self.has_mma
    }
}

/// The scheduling problem of one loop.
#[derive(Clone, Debug, Default)]
pub struct Problem {
    name: String,
    /// What the generator selection needs to know; `None` (a bare graph) always takes modulo scheduling.
    pub summary: Option<RegionSummary>,
    slots: PrimaryMap<Slot, Resource>,
    pools: PrimaryMap<Pool, Resource>,
    text: String,
    ids: PrimaryMap<Node, TextRange>,
    op_names: PrimaryMap<Node, TextRange>,
    latency: PrimaryMap<Node, u32>,
    span: PrimaryMap<Node, u32>,
    use_ranges: PrimaryMap<Node, (u32, u32)>,
    uses: Vec<Use>,
    pool_ranges: PrimaryMap<Node, (u32, u32)>,
    pool_uses: Vec<PoolUse>,
    groups: PrimaryMap<Node, u32>,
    group_ids: Vec<u32>,
    group_sizes: Vec<u32>,
    group_of_id: FxHashMap<u32, u32>,
    max_depth: PrimaryMap<Node, u32>,
    force_serial: PrimaryMap<Node, bool>,
    extra: PrimaryMap<Node, NodeExtra>,
    edges: PrimaryMap<Edge, EdgeData>,
    order_only: EntitySet<Edge>,
    members: Vec<(Node, Vec<String>)>,
    /// Names of resources of an earlier problem, for their memory.
    spare_names: Vec<String>,
}

impl Problem {
    /// An empty problem.
    pub fn new(name: &str) -> Problem {
        Problem { name: name.to_owned(), ..Problem::default() }
    }

    /// Whether two problems have the same ops, resources and dependences in the same order, and so the same schedules.
    pub fn is_same(&self, other: &Problem) -> bool {
        let Problem {
            name,
            summary,
            slots,
            pools,
            text,
            ids,
            op_names,
            latency,
            span,
            use_ranges,
            uses,
            pool_ranges,
            pool_uses,
            groups,
            group_ids,
            group_sizes,
            // Follows from the ids.
            group_of_id: _,
            max_depth,
            force_serial,
            extra,
            edges,
            order_only,
            members,
            // Memory only.
            spare_names: _,
        } = self;
        let graph = *edges == other.edges
            && edges.keys().all(|e| order_only.contains(e) == other.order_only.contains(e))
            && *latency == other.latency
            && *span == other.span
            && *extra == other.extra;
        let asks = || {
            *use_ranges == other.use_ranges
                && *uses == other.uses
                && *pool_ranges == other.pool_ranges
                && *pool_uses == other.pool_uses
                && (slots, pools) == (&other.slots, &other.pools)
        };
        let rules = || {
            (groups, group_ids, group_sizes) == (&other.groups, &other.group_ids, &other.group_sizes)
                && (max_depth, force_serial, summary)
                    == (&other.max_depth, &other.force_serial, &other.summary)
        };
        let words = || {
            (name, text, ids, op_names) == (&other.name, &other.text, &other.ids, &other.op_names)
                && members == &other.members
        };
        graph && asks() && rules() && words()
    }

    /// Forgets everything, keeps the allocations.
    pub fn clear(&mut self, new_name: &str) {
        let Problem {
            name,
            summary,
            slots,
            pools,
            text,
            ids,
            op_names,
            latency,
            span,
            use_ranges,
            uses,
            pool_ranges,
            pool_uses,
            groups,
            group_ids,
            group_sizes,
            group_of_id,
            max_depth,
            force_serial,
            extra,
            edges,
            order_only,
            members,
            spare_names,
        } = self;
        let resources = slots.values_mut().chain(pools.values_mut());
        spare_names.extend(resources.map(|r| std::mem::take(&mut r.name)));
        name.clear();
        name.push_str(new_name);
        *summary = None;
        slots.clear();
        pools.clear();
        text.clear();
        ids.clear();
        op_names.clear();
        latency.clear();
        span.clear();
        use_ranges.clear();
        uses.clear();
        pool_ranges.clear();
        pool_uses.clear();
        groups.clear();
        group_ids.clear();
        group_sizes.clear();
        group_of_id.clear();
        max_depth.clear();
        force_serial.clear();
        extra.clear();
        edges.clear();
        order_only.clear();
        members.clear();
    }

    /// Adds a slot of the machine.
    pub fn add_slot(&mut self, id: u32, name: &str, capacity: u32) -> Slot {
        let name = self.resource_name(name);
        self.slots.push(Resource { id, name, capacity })
    }

    /// Adds a counted pool of the machine.
    pub fn add_pool(&mut self, index: u32, name: &str, capacity: u32) -> Pool {
        let name = self.resource_name(name);
        self.pools.push(Resource { id: index, name, capacity })
    }

    fn resource_name(&mut self, text: &str) -> String {
        let mut name = self.spare_names.pop().unwrap_or_default();
        name.clear();
        name.push_str(text);
        name
    }

    /// Adds an op; program order is the order of these calls.
    pub fn add_node(&mut self, def: &NodeDef<'_>) -> Node {
        let id = self.intern(def.id);
        let op_name = self.intern(def.name);
        let node = self.ids.push(id);
        self.op_names.push(op_name);
        self.latency.push(def.latency);
        let mut end = def.latency;
        for u in def.uses.iter().filter(|u| u.occupancy > 0 && u.duration > 0) {
            end = end.max(u.offset.saturating_add(u.duration));
        }
        for p in def.pools.iter().filter(|p| p.count > 0) {
            end = end.max(p.duration);
        }
        self.span.push(end);
        let first = self.uses.len() as u32;
        self.uses.extend_from_slice(def.uses);
        self.use_ranges.push((first, self.uses.len() as u32));
        let first = self.pool_uses.len() as u32;
        self.pool_uses.extend_from_slice(def.pools);
        self.pool_ranges.push((first, self.pool_uses.len() as u32));
        let group = match def.group {
            None => NO_GROUP,
            Some(id) => *self.group_of_id.entry(id).or_insert_with(|| {
                self.group_ids.push(id);
                self.group_sizes.push(0);
                self.group_ids.len() as u32 - 1
            }),
        };
        if let Some(size) = self.group_sizes.get_mut(group as usize) {
            *size += 1;
        }
        self.groups.push(group);
        self.max_depth.push(def.max_depth);
        self.force_serial.push(def.force_serial);
        self.extra.push(def.extra);
        node
    }

    /// Adds a dependence.
    pub fn add_edge(&mut self, from: Node, to: Node, latency: i32, distance: u32) -> Edge {
        self.edges.push(EdgeData { from, to, latency, distance })
    }

    /// Says that a dependence carries no value: it is an anti-dependence, or orders memory.
    pub fn set_order_only(&mut self, edge: Edge) {
        self.order_only.insert(edge);
    }

    /// Whether a value of the first op lives until the second one along this dependence.
    pub fn carries_value(&self, edge: Edge) -> bool {
        self.edges[edge].latency > 0 && !self.order_only.contains(edge)
    }

    /// As [`Self::carries_value`], or a value that takes no time to make, such as a broadcast.
    pub fn carries_or_renames(&self, edge: Edge) -> bool {
        self.edges[edge].latency >= 0 && !self.order_only.contains(edge)
    }

    /// Says that an op is a fused set, and the ids of what is in it.
    pub fn set_members(&mut self, node: Node, ids: Vec<String>) {
        self.members.push((node, ids));
    }

    /// What an op is fused of; nothing for one that is not.
    pub fn members(&self, node: Node) -> &[String] {
        self.members.iter().find(|m| m.0 == node).map_or(&[], |m| &m.1)
    }

    /// How long an op holds what it reads: the last cycle of a slot.
    pub fn hold(&self, node: Node) -> u32 {
        self.uses(node).iter().map(|u| u.offset.saturating_add(u.duration)).max().unwrap_or(0)
    }

    fn intern(&mut self, s: &str) -> TextRange {
        let start = self.text.len() as u32;
        self.text.push_str(s);
        TextRange(start, self.text.len() as u32)
    }

    fn slice(&self, r: TextRange) -> &str {
        &self.text[r.0 as usize..r.1 as usize]
    }

    /// Name of the region (`gemm/loop0`).
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Number of ops.
    pub fn num_nodes(&self) -> usize {
        self.ids.len()
    }

    /// All ops in program order.
    pub fn nodes(&self) -> impl ExactSizeIterator<Item = Node> + DoubleEndedIterator + use<> {
        (0..self.ids.len() as u32).map(Node::from_u32)
    }

    /// Slots by position.
    pub fn slots(&self) -> &PrimaryMap<Slot, Resource> {
        &self.slots
    }

    /// Pools by position.
    pub fn pools(&self) -> &PrimaryMap<Pool, Resource> {
        &self.pools
    }

    /// Edges in the order they were added.
    pub fn edges(&self) -> &PrimaryMap<Edge, EdgeData> {
        &self.edges
    }

    /// Id of an op.
    pub fn id(&self, node: Node) -> &str {
        self.slice(self.ids[node])
    }

    /// Operation name of an op.
    pub fn op_name(&self, node: Node) -> &str {
        self.slice(self.op_names[node])
    }

    /// Cycles until the op's result is ready.
    pub fn latency(&self, node: Node) -> u32 {
        self.latency[node]
    }

    /// max(latency, end of the footprint): cycles for which the op is busy in any sense.
    pub fn span(&self, node: Node) -> u32 {
        self.span[node]
    }

    /// Slot reservations of an op.
    pub fn uses(&self, node: Node) -> &[Use] {
        let (a, b) = self.use_ranges[node];
        &self.uses[a as usize..b as usize]
    }

    /// Pool charges of an op.
    pub fn pool_uses(&self, node: Node) -> &[PoolUse] {
        let (a, b) = self.pool_ranges[node];
        &self.pool_uses[a as usize..b as usize]
    }

    /// External group of an op.
    pub fn group(&self, node: Node) -> Option<u32> {
        self.group_ids.get(self.groups[node] as usize).copied()
    }

    /// Dense group number of an op, [`NO_GROUP`] if it has none.
    pub fn group_index(&self, node: Node) -> u32 {
        self.groups[node]
    }

    /// Number of groups.
    pub fn num_groups(&self) -> usize {
        self.group_ids.len()
    }

    /// Largest allowed stage, 0 for unlimited.
    pub fn max_depth(&self, node: Node) -> u32 {
        self.max_depth[node]
    }

    /// Whether the op must overlap neither itself nor its group across iterations.
    pub fn force_serial(&self, node: Node) -> bool {
        self.force_serial[node]
    }

    /// What only some rules read.
    pub fn extra(&self, node: Node) -> &NodeExtra {
        &self.extra[node]
    }

    /// All structural errors, in document order. An empty result means that a schedule exists.
    pub fn check(&self, limits: &Limits) -> Vec<Diagnostic> {
        let mut errors = Vec::new();
        self.check_ids(&mut errors);
        self.check_structure(limits, &mut errors);
        if errors.is_empty() {
            errors.extend(self.zero_distance_cycle());
        }
        errors
    }

    /// Duplicate ids: harmless for the scheduler, ambiguous for people and documents.
    fn check_ids(&self, errors: &mut Vec<Diagnostic>) {
        let mut seen = FxHashSet::default();
        for (s, data) in self.slots.iter() {
            if !seen.insert(data.id) {
                let text = format!("slot id {} is used twice", data.id);
                errors.push(Diagnostic::new(Code::E0304, Place::Slot(s), text));
            }
        }
        seen.clear();
        for (p, data) in self.pools.iter() {
            if !seen.insert(data.id) {
                let text = format!("pool index {} is used twice", data.id);
                errors.push(Diagnostic::new(Code::E0304, Place::Pool(p), text));
            }
        }
        let mut names = FxHashSet::default();
        for n in self.nodes() {
            if !names.insert(self.id(n)) {
                let text = format!("op id `{}` is used twice", self.id(n));
                errors.push(Diagnostic::new(Code::E0304, Place::Node(n), text));
            }
        }
    }

    /// Everything but ids and cycles. Allocates only to report, and for ops with many reservations.
    pub(crate) fn check_structure(&self, limits: &Limits, errors: &mut Vec<Diagnostic>) {
        let mut push = |code, place, text| errors.push(Diagnostic::new(code, place, text));
        if self.num_nodes() > limits.max_ops {
            let text = format!("{} ops, the limit `limits.max-ops` is {}", self.num_nodes(), limits.max_ops);
            push(Code::E0308, Place::Whole, text);
        }
        let edges = self.edges.len() as u64 + self.exclusion_pairs();
        if edges > limits.max_edges as u64 {
            let text = format!("{edges} edges, the limit `limits.max-edges` is {}", limits.max_edges);
            push(Code::E0308, Place::Whole, text);
        }
        let too_big = |what: &str, v: u32| format!("{what} {v} does not fit 31 bits");
        for (s, data) in self.slots.iter() {
            if data.capacity > MAX_QUANTITY {
                push(Code::E0307, Place::Slot(s), too_big("capacity", data.capacity));
            }
        }
        for (p, data) in self.pools.iter() {
            if data.capacity > MAX_QUANTITY {
                push(Code::E0307, Place::Pool(p), too_big("capacity", data.capacity));
            }
        }
        for n in self.nodes() {
            for (what, v) in [("latency", self.latency[n]), ("max_depth", self.max_depth[n])] {
                if v > MAX_QUANTITY {
                    push(Code::E0307, Place::Node(n), too_big(what, v));
                }
            }
            let uses = self.uses(n);
            if uses.len() + self.pool_uses(n).len() > limits.max_uses {
                let count = uses.len() + self.pool_uses(n).len();
                let text =
                    format!("{count} reservations, the limit `limits.max-uses` is {}", limits.max_uses);
                push(Code::E0308, Place::Node(n), text);
                continue;
            }
            let held = peaks(uses.iter().map(|u| (u.slot.as_u32(), u.offset, u.duration, u.occupancy)));
            for (k, (u, peak)) in uses.iter().zip(held).enumerate() {
                let place = Place::Use(n, k as u32);
                for (what, v) in [("offset", u.offset), ("duration", u.duration), ("occupancy", u.occupancy)]
                {
                    if v > MAX_QUANTITY {
                        push(Code::E0307, place, too_big(what, v));
                    }
                }
                let Some(slot) = self.slots.get(u.slot) else {
                    push(Code::E0303, place, format!("op `{}` uses unknown {}", self.id(n), u.slot));
                    continue;
                };
                if peak > u64::from(slot.capacity) {
                    let text = format!(
                        "op `{}` occupies {peak} of slot {} `{}`, its capacity is {}",
                        self.id(n),
                        slot.id,
                        slot.name,
                        slot.capacity
                    );
                    push(Code::E0305, place, text);
                }
            }
            let charges = self.pool_uses(n);
            let held = peaks(charges.iter().map(|u| (u.pool.as_u32(), 0, u.duration, u.count)));
            for (k, (u, peak)) in charges.iter().zip(held).enumerate() {
                let place = Place::PoolUse(n, k as u32);
                for (what, v) in [("count", u.count), ("duration", u.duration)] {
                    if v > MAX_QUANTITY {
                        push(Code::E0307, place, too_big(what, v));
                    }
                }
                let Some(pool) = self.pools.get(u.pool) else {
                    push(Code::E0303, place, format!("op `{}` charges unknown {}", self.id(n), u.pool));
                    continue;
                };
                if peak > u64::from(pool.capacity) {
                    let text = format!(
                        "op `{}` charges {peak} of pool {} `{}`, its capacity is {}",
                        self.id(n),
                        pool.id,
                        pool.name,
                        pool.capacity
                    );
                    push(Code::E0305, place, text);
                }
            }
        }
        for (e, data) in self.edges.iter() {
            for end in [data.from, data.to] {
                if end.index() >= self.num_nodes() {
                    push(Code::E0303, Place::Edge(e), format!("{e} names unknown {end}"));
                }
            }
            if data.distance > MAX_QUANTITY {
                push(Code::E0307, Place::Edge(e), too_big("distance", data.distance));
            }
            if data.latency == i32::MIN {
                push(Code::E0307, Place::Edge(e), format!("latency {} does not fit 31 bits", data.latency));
            }
        }
    }

    /// Number of edges that forced-serial ops add (see [`crate::graph`]).
    fn exclusion_pairs(&self) -> u64 {
        let serial = self.nodes().filter(|&n| self.force_serial[n]);
        serial.map(|n| 2 * u64::from(self.group_size(n))).sum()
    }

    /// Number of ops in the group of `node`, 1 if it has none.
    pub fn group_size(&self, node: Node) -> u32 {
        self.group_sizes.get(self.groups[node] as usize).copied().unwrap_or(1)
    }

    /// The error for a cycle of zero-distance edges, with the cycle; `None` if there is none.
    ///
    /// Cost: O(nodes + edges). Ops and edges must exist.
    pub(crate) fn zero_distance_cycle(&self) -> Option<Diagnostic> {
        let n = self.num_nodes();
        let mut indegree = vec![0u32; n];
        let mut first = vec![0u32; n + 1];
        let zero = |e: &&EdgeData| e.distance == 0;
        for e in self.edges.values().filter(zero) {
            indegree[e.to.index()] += 1;
            first[e.from.index() + 1] += 1;
        }
        for i in 0..n {
            first[i + 1] += first[i];
        }
        let mut fill: Vec<u32> = first[..n].to_vec();
        let mut succ = vec![0u32; first[n] as usize];
        let mut some_pred_edge = vec![Edge::from_u32(0); n];
        for e in self.edges.values().filter(zero) {
            let at = &mut fill[e.from.index()];
            succ[*at as usize] = e.to.as_u32();
            *at += 1;
        }
        let mut ready: Vec<u32> = (0..n as u32).filter(|&i| indegree[i as usize] == 0).collect();
        let mut done = vec![false; n];
        while let Some(u) = ready.pop() {
            done[u as usize] = true;
            let Range { start, end } = first[u as usize]..first[u as usize + 1];
            for &v in &succ[start as usize..end as usize] {
                indegree[v as usize] -= 1;
                if indegree[v as usize] == 0 {
                    ready.push(v);
                }
            }
        }
        let begin = (0..n).find(|&i| !done[i])?;
        // Every op left over has a predecessor left over: walking back must repeat.
        for (e, data) in self.edges.iter().filter(|(_, d)| d.distance == 0) {
            if !done[data.from.index()] {
                some_pred_edge[data.to.index()] = e;
            }
        }
        let mut seen = vec![false; n];
        let mut at = begin;
        while !seen[at] {
            seen[at] = true;
            at = self.edges[some_pred_edge[at]].from.index();
        }
        let (mut cycle, mut latency, stop) = (Vec::new(), 0i64, at);
        loop {
            let e = self.edges[some_pred_edge[at]];
            cycle.push(e.from);
            latency += i64::from(e.latency);
            at = e.from.index();
            if at == stop {
                break;
            }
        }
        cycle.reverse();
        rotate_to_smallest(&mut cycle);
        let edge = some_pred_edge[stop];
        let text = format!(
            "zero-distance dependence cycle {} of latency {latency}",
            CycleText { problem: self, cycle: &cycle }
        );
        Some(Diagnostic::new(Code::E0306, Place::Edge(edge), text))
    }
}

/// Rotates a cycle so that it begins with its first op in program order.
pub(crate) fn rotate_to_smallest(cycle: &mut [Node]) {
    if let Some(at) = (0..cycle.len()).min_by_key(|&i| cycle[i]) {
        cycle.rotate_left(at);
    }
}

/// Prints `a -> b -> a`, at most the first 32 ops.
pub(crate) struct CycleText<'a> {
    pub problem: &'a Problem,
    pub cycle: &'a [Node],
}

impl fmt::Display for CycleText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 32;
        for &n in self.cycle.iter().take(SHOWN) {
            write!(f, "{} -> ", self.problem.id(n))?;
        }
        if self.cycle.len() > SHOWN {
            write!(f, "… {} more … -> ", self.cycle.len() - SHOWN)?;
        }
        match self.cycle.first() {
            Some(&n) => f.write_str(self.problem.id(n)),
            None => Ok(()),
        }
    }
}

/// Reservations of an op for which its demand is found without memory of its own.
const FEW: usize = 8;

/// Units that an op alone holds of each reservation's slot or pool when that reservation begins; its demand peaks at one of
/// these. Reservations are (slot or pool, offset, duration, units); empty ones hold nothing.
///
/// Cost: n log n; no allocation for a few.
fn peaks(reservations: impl Iterator<Item = (u32, u32, u32, u32)>) -> SmallVec<[u64; FEW]> {
    let all: SmallVec<[(u32, u32, u32, u32); FEW]> = reservations.collect();
    if all.len() <= FEW {
        let meets = |&(of, at, duration, _): &(u32, u32, u32, u32)| {
            let there = all.iter().filter(|v| v.0 == of && v.1 <= at && at - v.1 < v.2);
            if duration == 0 { 0 } else { there.map(|v| u64::from(v.3)).sum() }
        };
        return all.iter().map(meets).collect();
    }
    // Per change: of what, when, whether it begins (what ends at that time has gone before), which, how much.
    let mut changes: Vec<(u32, u64, bool, u32, u64)> = Vec::with_capacity(2 * all.len());
    for (k, &(of, offset, duration, units)) in all.iter().enumerate().filter(|r| r.1.2 > 0) {
        let (from, units) = (u64::from(offset), u64::from(units));
        changes.push((of, from, true, k as u32, units));
        changes.push((of, from + u64::from(duration), false, k as u32, units));
    }
    changes.sort_unstable();
    let mut held = SmallVec::from_elem(0, all.len());
    let (mut level, mut rest) = (0, changes.as_slice());
    while let Some(&(of, cycle, begins, ..)) = rest.first() {
        let count = rest.iter().take_while(|c| (c.0, c.1, c.2) == (of, cycle, begins)).count();
        let (together, behind) = rest.split_at(count);
        let units = together.iter().map(|c| c.4).sum::<u64>();
        level = if begins { level + units } else { level - units };
        for &(.., k, _) in together.iter().filter(|c| c.2) {
            held[k as usize] = level;
        }
        rest = behind;
    }
    held
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> Limits {
        Limits::default()
    }

    #[test]
    fn cycle_is_printed_from_its_first_op() {
        let mut p = Problem::new("t");
        let n: Vec<_> =
            ["a", "b", "c", "d"].iter().map(|id| p.add_node(&NodeDef { id, ..NodeDef::default() })).collect();
        p.add_edge(n[0], n[3], 1, 0);
        p.add_edge(n[3], n[2], 2, 0);
        p.add_edge(n[2], n[1], 3, 0);
        p.add_edge(n[1], n[3], 4, 0);
        let errors = p.check(&limits());
        assert_eq!(errors.len(), 1);
        assert_eq!(errors[0].code, Code::E0306);
        assert_eq!(errors[0].message, "zero-distance dependence cycle b -> d -> c -> b of latency 9");
    }

    #[test]
    fn demand_of_many_reservations_is_what_each_of_them_meets() {
        let mut x = 1_u32;
        let mut below = |n: u32| {
            x ^= x << 13;
            x ^= x >> 17;
            x ^= x << 5;
            x % n
        };
        for size in 0..40 {
            let all: Vec<_> = (0..size).map(|_| (below(3), below(6), below(4), below(5))).collect();
            let meets = |&(of, at, duration, _): &(u32, u32, u32, u32)| -> u64 {
                let there = all.iter().filter(|v| v.0 == of && v.1 <= at && at < v.1 + v.2);
                if duration == 0 { 0 } else { there.map(|v| u64::from(v.3)).sum() }
            };
            assert_eq!(
                peaks(all.iter().copied()).to_vec(),
                all.iter().map(meets).collect::<Vec<_>>(),
                "{all:?}"
            );
        }
    }

    #[test]
    fn overlapping_reservations_of_one_op_are_added() {
        let mut p = Problem::new("t");
        let s = p.add_slot(4, "x", 2);
        let u = |offset, duration, occupancy| Use { slot: s, offset, duration, occupancy };
        p.add_node(&NodeDef { id: "ok", uses: &[u(0, 4, 1), u(3, 2, 1), u(5, 1, 2)], ..NodeDef::default() });
        assert!(p.check(&limits()).is_empty());
        p.add_node(&NodeDef { id: "bad", uses: &[u(0, 4, 1), u(3, 2, 2)], ..NodeDef::default() });
        let errors = p.check(&limits());
        assert_eq!(errors.len(), 1);
        assert_eq!((errors[0].code, errors[0].place.pointer()), (Code::E0305, "/ops/1/uses/1".to_owned()));
    }

    #[test]
    fn each_structural_error_has_its_code() {
        let mut p = Problem::new("t");
        p.add_slot(1, "a", u32::MAX);
        p.add_slot(1, "b", 1);
        let bad = Use { slot: Slot::from_u32(7), offset: 0, duration: 1, occupancy: 1 };
        let a = p.add_node(&NodeDef { id: "a", uses: &[bad], latency: u32::MAX, ..NodeDef::default() });
        p.add_node(&NodeDef { id: "a", ..NodeDef::default() });
        p.add_edge(a, Node::from_u32(9), 0, 0);
        let codes: Vec<_> = p.check(&limits()).iter().map(|e| (e.code, e.place.pointer())).collect();
        let at = |c, s: &str| (c, s.to_owned());
        assert_eq!(
            codes,
            [
                at(Code::E0304, "/slots/1"),
                at(Code::E0304, "/ops/1"),
                at(Code::E0307, "/slots/0"),
                at(Code::E0307, "/ops/0"),
                at(Code::E0303, "/ops/0/uses/0"),
                at(Code::E0303, "/edges/0"),
            ]
        );
        let small = Limits { max_ops: 1, max_edges: 0, ..limits() };
        assert_eq!(p.check(&small).iter().filter(|e| e.code == Code::E0308).count(), 2);
    }
}
