//! What a schedule says about single ops, derived when asked for: stage, order, depth, footprint, asynchronous handles.
//!
//! In: a [`ScheduleAnalysis`] and its function. Out: the words of spec page 1 for what crosses from scheduling to its
//! consumers. Starts, II, stage count and exclusions are fields of the analysis already. Nothing here searches, nothing
//! is kept: materialisation, which needs starts and order of all ops, reads the fields.
//!
//! A handle stands for the result of an asynchronous op as long as no pipe exists: whoever wants to connect a producer
//! with its consumers asks [`AsyncHandles::producer`].

use super::analysis::{Generator, Status};
use super::handoff::{LoopSchedule, ScheduleAnalysis, ScheduledRegion};
use super::problem::{Node, PoolUse, Use};
use crate::ir::opcodes::Traits;
use crate::ir::{Function, Op, Opcode, Value};
use cranelift_entity::packed_option::PackedOption;
use cranelift_entity::{PrimaryMap, SecondaryMap, entity_impl};

/// The result of an asynchronous op, before there is a pipe for it.
#[derive(Copy, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AsyncHandle(u32);
entity_impl!(AsyncHandle, "async");

/// The asynchronous handles of a function, in program order of their producers.
#[derive(Clone, Debug, Default)]
pub struct AsyncHandles {
    producers: PrimaryMap<AsyncHandle, (Op, Value)>,
    of_value: SecondaryMap<Value, PackedOption<AsyncHandle>>,
}

impl AsyncHandles {
    /// One handle for each result of each asynchronous op.
    pub fn of(func: &Function) -> AsyncHandles {
        let mut out = AsyncHandles::default();
        for op in func.ops().filter(|&op| is_async(func.opcode(op))) {
            for &v in func.results(op) {
                out.of_value[v] = out.producers.push((op, v)).into();
            }
        }
        out
    }

    /// All handles.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = AsyncHandle> + use<> {
        self.producers.keys()
    }

    /// The op that makes what the handle stands for; `None` for a handle of another function.
    pub fn producer(&self, handle: AsyncHandle) -> Option<Op> {
        self.producers.get(handle).map(|p| p.0)
    }

    /// The value it stands for.
    pub fn value(&self, handle: AsyncHandle) -> Option<Value> {
        self.producers.get(handle).map(|p| p.1)
    }

    /// The handle of a value; `None` for values that are there when their op has been issued.
    pub fn handle(&self, value: Value) -> Option<AsyncHandle> {
        self.of_value[value].expand()
    }
}

/// Whether the result of an op arrives later than its issue.
fn is_async(opcode: Opcode) -> bool {
    opcode.has(Traits::ASYNC)
}

/// What of a schedule may be relied on. As a word: [`Validity::bits`].
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Validity {
    /// The constraints reached a fixed point in every loop.
    pub converged: bool,
    /// A step budget ran out in some loop; a better schedule may exist.
    pub budget_exceeded: bool,
    /// Some loop that should have been pipelined has its serial schedule.
    pub serial_fallback: bool,
    /// The round limit ended refinement.
    pub truncated: bool,
}

impl Validity {
    /// Bit 0: converged, bit 1: budget exceeded, bit 2: serial fallback, bit 3: truncated.
    pub fn bits(self) -> u8 {
        u8::from(self.converged)
            | u8::from(self.budget_exceeded) << 1
            | u8::from(self.serial_fallback) << 2
            | u8::from(self.truncated) << 3
    }
}

/// What an op takes of the machine.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Footprint<'a> {
    /// Cycles until its result is ready.
    pub latency: u32,
    /// Cycles from its start to the end of its last reservation.
    pub span: u32,
    /// Slots by cycle.
    pub uses: &'a [Use],
    /// Pools.
    pub pools: &'a [PoolUse],
}

/// What only modulo scheduling decides. The serial generator leaves it empty; no consumer may depend on it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct OptionalCells {
    /// Cycle modulo II in which the op is issued.
    pub row: u32,
    /// Iterations that have begun since the one it belongs to.
    pub depth: u32,
}

impl ScheduleAnalysis {
    /// Whether the schedules may be relied on, all loops together.
    pub fn validity(&self) -> Validity {
        let all = || self.regions.iter().map(|r| r.schedule.status);
        Validity {
            converged: all().all(|s: Status| s.converged),
            budget_exceeded: all().any(|s| s.budget_exceeded),
            serial_fallback: all().any(|s| s.serial_fallback),
            truncated: all().any(|s| s.truncated),
        }
    }

    /// The region in which an op has a seat of its own, and its node there. Ops inside an `if` have none.
    pub fn seat(&self, op: Op) -> Option<(&ScheduledRegion, Node)> {
        let node = self.node_of[op].expand()?;
        let region = self.regions.iter().find(|r| r.holds(node, op))?;
        Some((region, node))
    }

    fn seated(&self, op: Op) -> Option<(&LoopSchedule, Op)> {
        let (region, _) = self.seat(op)?;
        Some((self.loops[region.for_op].as_deref()?, op))
    }

    /// First cycle of an op in the flat schedule of one iteration.
    pub fn start(&self, op: Op) -> Option<u32> {
        self.seated(op).map(|(l, op)| l.start[op])
    }

    /// Rank of an op in its loop: with the stage, the public key of ordering.
    pub fn order(&self, op: Op) -> Option<u32> {
        self.seated(op).map(|(l, op)| l.order[op])
    }

    /// Stage of an op: how many intervals after the begin of its iteration it starts.
    pub fn stage(&self, op: Op) -> Option<u32> {
        self.seated(op).map(|(l, op)| l.start[op] / l.ii.max(1))
    }

    /// Pipeline depth of an op, which `max_depth` limits and a group shares: its stage.
    pub fn depth(&self, op: Op) -> Option<u32> {
        self.stage(op)
    }

    /// What an op takes of the machine.
    pub fn footprint(&self, op: Op) -> Option<Footprint<'_>> {
        let (region, node) = self.seat(op)?;
        let p = &region.problem;
        let (uses, pools) = (p.uses(node), p.pool_uses(node));
        Some(Footprint { latency: p.latency(node), span: p.span(node), uses, pools })
    }

    /// What only modulo scheduling decides of an op; `None` where the serial generator made the schedule.
    pub fn optional_cells(&self, op: Op) -> Option<OptionalCells> {
        let (region, _) = self.seat(op)?;
        if region.schedule.generator == Generator::Serial {
            return None;
        }
        let (start, ii) = (self.start(op)?, self.loops[region.for_op].as_deref()?.ii.max(1));
        Some(OptionalCells { row: start % ii, depth: start / ii })
    }
}
