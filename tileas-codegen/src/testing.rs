//! What tests, filetests, benches and `tileas-draw` see of the stages; no part of the public interface.

pub mod agents {
    pub use crate::agents::{Agent, AgentInfo, AgentKind, AgentOptions, AgentPlan, plan_agents};
}
pub mod buffers {
    pub use crate::buffers::depth::Why;
    pub use crate::buffers::needs::runs;
    pub use crate::buffers::requests::{requests, ring_bytes, uncovered};
    pub use crate::buffers::{
        BufferAssignment, BufferOptions, Key, Pipe, PipeData, PipeKind, Reject, assign_buffers,
    };
}
pub mod constraints {
    pub use crate::constraints::{ConstraintMap, ConstraintSlot, GroupForest, parse_constraints};
}
pub mod ddg {
    pub use crate::ddg::refine::{Extra, Family, RoundStatus, Rule, register_peak};
    pub use crate::ddg::{
        LoopSchedule, Pass, ScheduleAnalysis, ScheduledRegion, Scheduler, schedule_function,
        schedule_function_with, schedule_pass,
    };
}
pub mod lower {
    pub use crate::lower::{LowerScratch, MAX_INSTRUCTIONS, lower, lower_in};
}
pub mod materialize {
    pub use crate::materialize::verify::{Scratch as SyncScratch, UNDECIDED, deadlocks};
    pub use crate::materialize::{
        MaterializeOptions, MaterializeScratch, materialize, materialize_in, verify_materialized,
        verify_materialized_in,
    };
}
pub mod nvvm {
    pub use crate::nvvm::liveness::Liveness;
    pub use crate::nvvm::parser::parse;
    pub use crate::nvvm::passes::{CleanupScratch, CleanupStats, cfg, cleanup, dce, local};
    pub use crate::nvvm::print;
    pub use crate::nvvm::verify::{Verifier, verify};
}
pub mod pass {
    pub use crate::pass::{AnalysisKind, AnalysisManager, ORDER, legalize};
}
pub mod place {
    pub use crate::place::{PlaceOptions, place, place_in};
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
    pub use crate::storage::webs::{Web, Webs, build as build_webs};
    pub use crate::storage::{Storage, cost};
}
