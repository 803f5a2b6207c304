//! What tests, filetests, benches, `tileas-draw` and `tileas-tune` see of the stages; no part of the public interface.
//!
//! Besides re-exports: stages as single calls, in memory of their own and with default options. Errors are those of the stage.

pub mod agents {
    pub use crate::agents::{Agent, AgentInfo, AgentKind, AgentOptions, AgentPlan};
    use crate::{error::CodegenResult, ir::Function, isa::TargetIsa, storage::classify::classify};

    pub fn plan_agents(
        func: &Function,
        isa: &dyn TargetIsa,
        opts: &AgentOptions,
    ) -> CodegenResult<AgentPlan> {
        crate::agents::plan_agents(func, &classify(func, isa.acc_home())?, isa, opts)
    }
}
pub mod grid {
    pub use crate::ir::{cluster::cluster_of, grid::GridOrder};
}
pub mod buffers {
    pub use crate::buffers::depth::Why;
    pub use crate::buffers::needs::runs;
    pub use crate::buffers::requests::{requests, ring_bytes, uncovered};
    pub use crate::buffers::{BufferAssignment, BufferOptions, Key, Pipe, PipeData, PipeKind, Reject};
    use crate::{agents::AgentPlan, ddg::ScheduleAnalysis, error::CodegenResult, ir::Function};
    use crate::{isa::TargetIsa, storage::Storage};

    pub fn assign_buffers(
        func: &Function,
        plan: &AgentPlan,
        sched: &ScheduleAnalysis,
        isa: &dyn TargetIsa,
        opts: &BufferOptions,
    ) -> CodegenResult<BufferAssignment> {
        crate::buffers::assign_buffers_in(func, plan, &Storage::of(func, plan)?, sched, isa, opts)
    }
}
pub mod constraints {
    pub use crate::constraints::{ConstraintMap, ConstraintSlot, GroupForest};
    use crate::{constraints::ConstraintMode, error::CodegenError, ir::Function, ir::Op};

    /// `ops` in walk order. The second part holds warnings; in strict mode, errors.
    pub fn parse_constraints(
        func: &Function,
        ops: impl IntoIterator<Item = Op>,
        mode: ConstraintMode,
    ) -> (ConstraintMap, Vec<CodegenError>) {
        let (mut map, mut warnings) = (ConstraintMap::default(), Vec::new());
        map.parse(func, ops, mode, &mut warnings);
        (map, warnings)
    }
}
pub mod ddg {
    pub use crate::ddg::refine::{Extra, Family, RoundStatus, Rule, register_peak};
    pub use crate::ddg::{LoopSchedule, Pass, ScheduleAnalysis, ScheduledRegion, Scheduler, schedule_pass};
    use crate::schedule::{ScheduleOptions, SearchSteps};
    use crate::{agents::AgentPlan, constraints::ConstraintMap, error::CodegenResult, ir::Function};
    use crate::{isa::TargetIsa, storage::Storage};

    pub fn schedule_function(
        func: &Function,
        plan: &AgentPlan,
        constraints: &ConstraintMap,
        isa: &dyn TargetIsa,
        scheduler: &mut Scheduler,
        opts: &ScheduleOptions,
    ) -> CodegenResult<ScheduleAnalysis> {
        schedule_function_with(func, plan, constraints, isa, scheduler, opts, &Extra::default())
    }

    /// With constraints that the function does not show.
    pub fn schedule_function_with(
        func: &Function,
        plan: &AgentPlan,
        constraints: &ConstraintMap,
        isa: &dyn TargetIsa,
        scheduler: &mut Scheduler,
        opts: &ScheduleOptions,
        extra: &Extra,
    ) -> CodegenResult<ScheduleAnalysis> {
        let (steps, storage) = (&mut SearchSteps::new(opts.search_steps), &Storage::of(func, plan)?);
        let pass = Pass { storage, extra, steps, before: None, products: None };
        schedule_pass(func, plan, constraints, isa, scheduler, opts, pass)
    }
}
pub mod lower {
    pub use crate::lower::{LowerScratch, Lowered, MAX_INSTRUCTIONS, lower_in};
    use crate::{error::CodegenResult, ir::Function, isa::TargetIsa};

    pub fn lower(func: &Function, isa: &dyn TargetIsa) -> CodegenResult<Lowered> {
        lower_in(func, &[], isa, MAX_INSTRUCTIONS, &mut LowerScratch::default())
    }
}
pub mod materialize {
    use crate::error::{CodegenResult, Errors};
    pub use crate::materialize::verify::{Scratch as SyncScratch, UNDECIDED, deadlocks, disorder};
    pub use crate::materialize::verify::{SyncReport, verify_materialized_in};
    pub use crate::materialize::{MaterializeOptions, MaterializeScratch, materialize_in};
    use crate::{agents::AgentPlan, buffers::BufferAssignment, ddg::ScheduleAnalysis};
    use crate::{ir::Function, isa::TargetIsa};

    pub fn materialize(
        func: &Function,
        plan: &AgentPlan,
        sched: &ScheduleAnalysis,
        ba: &BufferAssignment,
    ) -> CodegenResult<Function> {
        let scratch = &mut MaterializeScratch::default();
        materialize_in(func, plan, sched, ba, MaterializeOptions::default(), scratch)
    }

    pub fn verify_materialized(func: &Function, isa: &dyn TargetIsa) -> Result<SyncReport, Errors> {
        verify_materialized_in(func, isa, isa.machine().limits.smem_bytes, &mut SyncScratch::default())
    }
}
pub mod nvvm {
    pub use crate::nvvm::liveness::Liveness;
    pub use crate::nvvm::parser::parse;
    pub use crate::nvvm::passes::{CleanupScratch, CleanupStats, cfg, cleanup, dce, local};
    pub use crate::nvvm::print;
    pub use crate::nvvm::verify::{Verifier, verify};
}
pub mod pass {
    pub use crate::pass::{ORDER, legalize};
}
pub mod place {
    pub use crate::place::PlaceOptions;
    use crate::{agents::AgentPlan, error::CodegenResult, ir::Function};
    use crate::{isa::TargetIsa, storage::classify::classify};

    pub fn place(
        func: &Function,
        plan: &AgentPlan,
        isa: &dyn TargetIsa,
        opts: &PlaceOptions,
    ) -> CodegenResult<(Function, AgentPlan)> {
        place_in(func, plan, isa, opts, None)
    }

    pub fn place_in(
        func: &Function,
        plan: &AgentPlan,
        isa: &dyn TargetIsa,
        opts: &PlaceOptions,
        spare: Option<Function>,
    ) -> CodegenResult<(Function, AgentPlan)> {
        crate::place::place_in(func, &classify(func, isa.acc_home())?, plan.clone(), isa, opts, spare)
    }
}
pub mod ptx {
    pub use crate::ptx::{PtxEmitter, PtxInfo, PtxOptions};
}
pub mod regalloc {
    pub use crate::regalloc::{
        AgentFinder, AgentRange, Allocator, NoPlan, PTXAS_RESERVE, PressureScratch, RegallocOptions,
        SharedRoom,
    };
}
pub mod storage {
    pub use crate::storage::check::check;
    pub use crate::storage::footprint::{Footprint, unit_name};
    pub use crate::storage::webs::{Web, Webs, build as build_webs};
    pub use crate::storage::{Storage, cost};
}
