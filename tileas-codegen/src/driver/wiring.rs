//! Calls of the stages that need more than a function and a target: their options, their order, their scratch.
//!
//! One small function per stage, so that the recipe in the driver reads as a list.

use crate::agents::AgentPlan;
use crate::buffers::{BufferAssignment, assign_buffers};
use crate::constraints::ConstraintMap;
use crate::error::{CodegenError, CodegenResult};
use crate::ir::Function;
use crate::isa::TargetIsa;
use crate::materialize::MaterializeScratch;
use crate::schedule::Scheduler;
use crate::schedule::ddg::schedule_function_with;
use crate::schedule::handoff::{OpEdge, ScheduleAnalysis};
use crate::settings::Settings;

/// Storage and channels of a kernel.
pub type Buffers = BufferAssignment;

/// Assigns storage, channels, depths and memory to a placed function with its schedules. Where a ring gets fewer slots
/// than its schedule needs, the loops are scheduled again for the slots there are, for as long as that goes on; the
/// result whose loops take fewest cycles together, with the slots they got, wins, the first one among equals.
pub(super) fn assign_and_refine(
    func: &Function,
    plan: &AgentPlan,
    analysis: ScheduleAnalysis,
    constraints: &ConstraintMap,
    scheduler: &mut Scheduler,
    isa: &dyn TargetIsa,
    settings: &Settings,
) -> CodegenResult<(ScheduleAnalysis, Buffers)> {
    let assigned = buffers(func, plan, &analysis, isa, settings)?;
    let cycles = |a: &ScheduleAnalysis, b: &Buffers| -> u64 {
        a.regions.iter().map(|r| u64::from(b.ii_eff[r.for_op])).sum()
    };
    let mut rejected: Vec<_> = assigned.rejects.clone();
    let mut best = (analysis, assigned);
    let mut extra: Vec<OpEdge> = Vec::new();
    for _round in 0..settings.max_constraint_iterations {
        let known = extra.len();
        for e in rejected.iter().flat_map(|r| &r.edges) {
            if !extra.contains(e) {
                extra.push(*e);
            }
        }
        if extra.len() == known {
            break;
        }
        let Ok(next) = schedule(func, plan, constraints, scheduler, isa, settings, &extra) else { break };
        let Ok(assigned) = buffers(func, plan, &next, isa, settings) else { break };
        rejected.clone_from(&assigned.rejects);
        if cycles(&next, &assigned) < cycles(&best.0, &best.1) {
            best = (next, assigned);
        }
    }
    Ok(best)
}

/// Schedules every innermost loop of a placed function.
pub(super) fn schedule(
    func: &Function,
    plan: &AgentPlan,
    constraints: &ConstraintMap,
    scheduler: &mut Scheduler,
    isa: &dyn TargetIsa,
    settings: &Settings,
    extra: &[OpEdge],
) -> CodegenResult<ScheduleAnalysis> {
    let options = settings.schedule_options();
    schedule_function_with(func, plan, constraints, isa, scheduler, &options, extra)
}

/// Storage webs, channels, depths and memory.
fn buffers(
    func: &Function,
    plan: &AgentPlan,
    schedule: &ScheduleAnalysis,
    isa: &dyn TargetIsa,
    settings: &Settings,
) -> CodegenResult<Buffers> {
    assign_buffers(func, plan, schedule, isa, &settings.buffer_options())
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
) -> Result<(), Vec<CodegenError>> {
    crate::materialize::verify::verify_materialized_in(func, isa, scratch).map(|_| ())
}
