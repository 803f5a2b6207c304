//! What crosses the seam from scheduling to materialisation: starts, stages and order of each loop's ops.

use crate::ir::Op;
use cranelift_entity::SecondaryMap;

/// The schedule of one innermost loop.
#[derive(Clone, Default)]
pub struct LoopSchedule {
    /// Initiation interval in cycles.
    pub ii: u32,
    /// Number of stages.
    pub stage_count: u32,
    /// Whether the serial generator made it.
    pub serial: bool,
    /// Start cycle of each scheduled op.
    pub start: SecondaryMap<Op, u32>,
    /// Scheduled ops in program order.
    pub scheduled: Vec<Op>,
    /// Rank of each op.
    pub order: SecondaryMap<Op, u32>,
}

/// Schedules of all innermost loops of a function.
#[derive(Clone, Default)]
pub struct ScheduleAnalysis {
    /// By `for` op; other regions keep program order.
    pub loops: SecondaryMap<Op, Option<Box<LoopSchedule>>>,
}
