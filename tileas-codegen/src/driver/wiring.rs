//! Calls of the stages that need more than a function and a target: their options, their order, their scratch.
//!
//! One small function per stage, so that the recipe in the driver reads as a list.

use crate::agents::AgentPlan;
use crate::buffers::{BufferAssignment, assign_buffers};
use crate::constraints::ConstraintMap;
use crate::error::{CodegenError, CodegenResult};
use crate::ir::Function;
use crate::isa::TargetIsa;
use crate::schedule::Scheduler;
use crate::schedule::ddg::schedule_function;
use crate::schedule::handoff::ScheduleAnalysis;
use crate::settings::Settings;

/// Storage and channels of a kernel.
pub type Buffers = BufferAssignment;

/// Schedules every innermost loop of a placed function.
pub(super) fn schedule(
    func: &Function,
    plan: &AgentPlan,
    constraints: &ConstraintMap,
    scheduler: &mut Scheduler,
    isa: &dyn TargetIsa,
    settings: &Settings,
) -> CodegenResult<ScheduleAnalysis> {
    schedule_function(func, plan, constraints, isa, scheduler, &settings.schedule_options())
}

/// Storage webs, channels, depths and memory.
pub(super) fn buffers(
    func: &Function,
    plan: &AgentPlan,
    schedule: &ScheduleAnalysis,
    isa: &dyn TargetIsa,
    _settings: &Settings,
) -> CodegenResult<Buffers> {
    assign_buffers(func, plan, schedule, isa, &crate::buffers::BufferOptions::default())
}

/// The function with pipelines and agents.
pub(super) fn materialize(
    func: &Function,
    plan: &AgentPlan,
    schedule: &ScheduleAnalysis,
    buffers: &Buffers,
    spare: Option<Function>,
) -> CodegenResult<Function> {
    crate::materialize::materialize_in(func, plan, schedule, buffers, spare)
}

/// Whether a materialised function runs to its end: reads nothing but the function.
pub(super) fn verify_materialized(func: &Function, isa: &dyn TargetIsa) -> Result<(), Vec<CodegenError>> {
    crate::materialize::verify::verify_materialized(func, isa).map(|_| ())
}
