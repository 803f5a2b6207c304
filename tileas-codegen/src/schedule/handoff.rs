//! What crosses from scheduling to buffers and materialisation: starts, order and II of each innermost loop.

use crate::ir::Op;
use cranelift_entity::SecondaryMap;

/// The schedule of one innermost loop.
#[derive(Clone, Debug, Default)]
pub struct LoopSchedule {
    /// Initiation interval in cycles of the machine model.
    pub ii: u32,
    /// Stages as reported (specification's formula).
    pub stage_count: u32,
    /// The serial generator made it.
    pub serial: bool,
    /// Start cycle of each scheduled op within one iteration's flat schedule.
    pub start: SecondaryMap<Op, u32>,
    /// Scheduled ops in program order.
    pub scheduled: Vec<Op>,
    /// Rank of each scheduled op.
    pub order: SecondaryMap<Op, u32>,
}

/// Schedules of all innermost loops of one function.
#[derive(Clone, Debug, Default)]
pub struct ScheduleAnalysis {
    /// By `for` op.
    pub loops: SecondaryMap<Op, Option<Box<LoopSchedule>>>,
}
