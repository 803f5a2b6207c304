//! Memory of building problems, kept from one function to the next.
//!
//! What is in it means nothing between two functions. Parts of analyses that are needed no more
//! ([`Memory::recycle`]) give their allocations to the next analysis.

use super::webs::Event;
use super::{Edges, LoopSchedule, NodeInfo, ScheduleAnalysis, ScheduledRegion};
use crate::constraints::Group;
use crate::ir::{Op, Value};
use crate::isa::{PoolId, SlotId};
use crate::schedule::{Node, PoolUse, Problem, RegionSchedule, Use};
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
