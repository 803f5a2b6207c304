//! Calls of the stages that need more than a function and a target: their options, their order, their scratch.
//!
//! One small function per stage, so that the recipe in the driver reads as a list. Stages that this build does not
//! contain answer `E1004`.

use crate::agents::AgentPlan;
use crate::constraints::ConstraintMap;
use crate::error::{Code, CodegenError, CodegenResult};
use crate::ir::Function;
use crate::isa::TargetIsa;
use crate::schedule::handoff::ScheduleAnalysis;
use crate::schedule::{Problem, RegionSchedule, Scheduler};
use crate::settings::Settings;

/// A loop's scheduling problem and its schedule, for people and documents; no stage reads it.
#[derive(Clone, Debug)]
pub struct LoopReport {
    /// The problem.
    pub problem: Problem,
    /// The schedule.
    pub schedule: RegionSchedule,
}

/// Storage and channels of a kernel.
pub type Buffers = pending::BufferAssignment;

/// Schedules every innermost loop of a placed function.
pub(super) fn schedule(
    func: &Function,
    _plan: &AgentPlan,
    _constraints: &ConstraintMap,
    _scheduler: &mut Scheduler,
    _isa: &dyn TargetIsa,
    _settings: &Settings,
) -> CodegenResult<(ScheduleAnalysis, Vec<LoopReport>)> {
    missing(func, "schedule")
}

/// Storage webs, channels, depths and memory.
pub(super) fn buffers(
    func: &Function,
    _plan: &AgentPlan,
    _schedule: &ScheduleAnalysis,
    _isa: &dyn TargetIsa,
    _settings: &Settings,
) -> CodegenResult<Buffers> {
    missing(func, "buffers")
}

/// The function with pipelines and agents.
pub(super) fn materialize(
    func: &Function,
    _plan: &AgentPlan,
    _schedule: &ScheduleAnalysis,
    _buffers: &Buffers,
) -> CodegenResult<Function> {
    missing(func, "materialize")
}

/// Whether a materialised function runs to its end: reads nothing but the function.
pub(super) fn verify_materialized(_func: &Function, _isa: &dyn TargetIsa) -> Result<(), Vec<CodegenError>> {
    Ok(())
}

fn missing<T>(func: &Function, stage: &str) -> CodegenResult<T> {
    Err(CodegenError::new(Code::E1004, func.loc, format!("the stage `{stage}` is not part of this build")))
}

mod pending {
    use crate::agents::AgentPlan;
    use crate::ir::Function;

    /// Stands for the assignment until the stage is there.
    #[derive(Clone, Debug, Default)]
    pub struct BufferAssignment;

    impl BufferAssignment {
        /// Nothing.
        pub fn dump(&self, _func: &Function, _plan: &AgentPlan) -> String {
            String::new()
        }
    }
}
