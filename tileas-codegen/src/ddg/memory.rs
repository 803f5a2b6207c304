//! Memory of building problems, kept from one function to the next.
//!
//! What is in it means nothing between two functions. Parts of analyses that are needed no more
//! ([`Memory::recycle`]) give their allocations to the next analysis.

use super::webs::Event;
use super::{LoopSchedule, ScheduleAnalysis, ScheduledRegion};
use crate::constraints::Group;
use crate::ir::{Op, Value};
use crate::isa::{PoolId, SlotId};
use crate::schedule::{Node, PoolUse, Problem, RegionSchedule, Use};
use crate::storage::footprint::Footprint;
use cranelift_entity::packed_option::PackedOption;
use cranelift_entity::{EntitySet, PrimaryMap, SecondaryMap};
use rustc_hash::FxHashMap;

/// Parts of analyses that are kept at most, of each kind.
const MOST_SPARES: usize = 64;

/// What problems are built with.
#[derive(Default)]
pub struct Memory {
    pub(super) group_numbers: FxHashMap<Group, u32>,
    pub(super) node_of: SecondaryMap<Op, PackedOption<Node>>,
    pub(super) fused: Vec<(Node, Op)>,
    pub(super) nodes: PrimaryMap<Node, NodeInfo>,
    pub(super) live: EntitySet<Value>,
    pub(super) seen: SecondaryMap<Value, u32>,
    pub(super) epoch: u32,
    pub(super) walked: EntitySet<Value>,
    pub(super) stack: Vec<Value>,
    pub(super) level: Vec<Value>,
    pub(super) next_level: Vec<Value>,
    pub(super) sources: Vec<(Node, u32)>,
    pub(super) uses: Vec<(Value, bool)>,
    pub(super) edges: Edges,
    pub(super) events: Vec<Event>,
    pub(super) fill: Fill,
    analysis: ScheduleAnalysis,
    regions: Vec<ScheduledRegion>,
    // The boxes are allocations as well.
    #[allow(clippy::vec_box)]
    loops: Vec<Box<LoopSchedule>>,
}

/// What the edges need to know of a node.
#[derive(Clone, Default)]
pub(super) struct NodeInfo {
    pub(super) footprint: Footprint,
    /// Cycles for which it reads its sources.
    pub(super) hold: u32,
    /// A dot by itself, not one in an `if`.
    pub(super) is_dot: bool,
    /// An `if`.
    pub(super) is_region: bool,
}

/// Edges under construction: unique in (from, to, distance), the largest latency wins; `true`: a value lives along it.
#[derive(Default)]
pub(super) struct Edges {
    pub(super) list: Vec<(Node, Node, u32, u32, bool)>,
    index: FxHashMap<(Node, Node, u32), usize>,
}

impl Edges {
    pub(super) fn clear(&mut self) {
        let Edges { list, index } = self;
        list.clear();
        index.clear();
    }

    /// An edge along which a value goes.
    pub(super) fn carry(&mut self, from: Node, to: Node, latency: u32, distance: u32) {
        self.add(from, to, latency, distance, true);
    }

    /// An edge that only orders.
    pub(super) fn order(&mut self, from: Node, to: Node, latency: u32, distance: u32) {
        self.add(from, to, latency, distance, false);
    }

    fn add(&mut self, from: Node, to: Node, latency: u32, distance: u32, value: bool) {
        // Where two ops have one cycle of an iteration, the agent runs first what stands first in the program, whatever the
        // iteration.
        let latency = if distance > 0 && to < from { latency.max(1) } else { latency };
        let at = *self.index.entry((from, to, distance)).or_insert(self.list.len());
        match self.list.get_mut(at) {
            Some(edge) => (edge.2, edge.4) = (edge.2.max(latency), edge.4 | value),
            None => self.list.push((from, to, latency, distance, value)),
        }
    }
}

/// What a problem is filled with.
#[derive(Default)]
pub(super) struct Fill {
    pub(super) slots: Vec<SlotId>,
    pub(super) pools: Vec<PoolId>,
    pub(super) uses: Vec<Use>,
    pub(super) pool_uses: Vec<PoolUse>,
    pub(super) id: String,
}

impl Memory {
    /// Keeps the allocations of an analysis that is needed no more.
    pub fn recycle(&mut self, mut analysis: ScheduleAnalysis) {
        self.loops.extend(analysis.loops.values_mut().filter_map(Option::take));
        self.loops.truncate(MOST_SPARES);
        self.regions.append(&mut analysis.regions);
        self.regions.truncate(MOST_SPARES);
        self.analysis = analysis;
    }

    /// An empty analysis.
    pub(super) fn analysis(&mut self) -> ScheduleAnalysis {
        let mut analysis = std::mem::take(&mut self.analysis);
        let ScheduleAnalysis { loops, regions, node_of, warnings } = &mut analysis;
        loops.clear();
        regions.clear();
        node_of.clear();
        warnings.clear();
        analysis
    }

    /// The region of a loop: an empty problem of that name, no ops, and a schedule that says nothing yet.
    pub(super) fn region(&mut self, for_op: Op, name: &str) -> ScheduledRegion {
        let Some(mut region) = self.regions.pop() else {
            let (schedule, ops, fused) = (RegionSchedule::default(), PrimaryMap::new(), Vec::new());
            return ScheduledRegion { for_op, schedule, problem: Problem::new(name), ops, fused };
        };
        region.for_op = for_op;
        region.problem.clear(name);
        region.ops.clear();
        region.fused.clear();
        region
    }

    /// Keeps the allocations of a region that is made anew.
    pub(super) fn again(&mut self, region: ScheduledRegion) {
        self.regions.push(region);
    }

    /// A schedule of a loop for consumers, without ops.
    pub(super) fn loop_schedule(&mut self) -> Box<LoopSchedule> {
        let mut made = self.loops.pop().unwrap_or_default();
        made.start.clear();
        made.scheduled.clear();
        made.order.clear();
        made
    }
}
