//! Calls of the stages that need more than a function and a target: their options, their order, their scratch.
//!
//! One small function per stage, so that the recipe in the driver reads as a list.

use super::refine::Refiner;
use crate::agents::AgentPlan;
use crate::buffers::{BufferAssignment, assign_buffers_in};
use crate::constraints::ConstraintMap;
use crate::ddg::ScheduleAnalysis;
use crate::ddg::Scheduler;
use crate::ddg::refine::Extra;
use crate::ddg::{Pass, schedule_pass};
use crate::error::{CodegenResult, Errors};
use crate::ir::Function;
use crate::isa::TargetIsa;
use crate::materialize::MaterializeScratch;
use crate::settings::Settings;
use crate::storage::Storage;

/// Storage and channels of a kernel.
pub type Buffers = BufferAssignment;

/// Assigns storage, channels, depths and memory to a placed function with its schedules, then goes through the rounds
/// in which loops are scheduled again for what that showed; see [`super::refine`].
pub(super) fn assign_and_refine(
    mut on: Refiner<'_>,
    analysis: ScheduleAnalysis,
) -> CodegenResult<(ScheduleAnalysis, Buffers)> {
    let assigned = buffers(on.func, on.plan, on.storage, &analysis, on.isa, on.settings)?;
    crate::storage::check::check(on.func, &assigned.webs, &assigned.rings())?;
    on.run(analysis, assigned)
}

/// Schedules every innermost loop of a placed function.
pub(super) fn schedule(
    func: &Function,
    plan: &AgentPlan,
    constraints: &ConstraintMap,
    scheduler: &mut Scheduler,
    isa: &dyn TargetIsa,
    settings: &Settings,
    pass: Pass<'_>,
) -> CodegenResult<ScheduleAnalysis> {
    let options = settings.schedule_options();
    let extra = &Extra { fuse_reads: settings.fuse_reads, ..pass.extra.clone() };
    schedule_pass(func, plan, constraints, isa, scheduler, &options, Pass { extra, ..pass })
}

/// Storage webs, channels, depths and memory.
pub(super) fn buffers(
    func: &Function,
    plan: &AgentPlan,
    storage: &Storage,
    schedule: &ScheduleAnalysis,
    isa: &dyn TargetIsa,
    settings: &Settings,
) -> CodegenResult<Buffers> {
    assign_buffers_in(func, plan, storage, schedule, isa, &settings.buffer_options())
}

/// The function with pipelines and agents.
pub(super) fn materialize(
    func: &Function,
    plan: &AgentPlan,
    schedule: &ScheduleAnalysis,
    buffers: &Buffers,
    settings: &Settings,
    scratch: &mut MaterializeScratch,
) -> CodegenResult<Function> {
    crate::materialize::materialize_in(func, plan, schedule, buffers, settings.materialize_options(), scratch)
}

/// Whether a materialised function runs to its end: reads nothing but the function.
pub(super) fn verify_materialized(
    func: &Function,
    isa: &dyn TargetIsa,
    scratch: &mut crate::materialize::verify::Scratch,
) -> Result<(), Errors> {
    crate::materialize::verify::verify_materialized_in(func, isa, scratch).map(|_| ())
}
