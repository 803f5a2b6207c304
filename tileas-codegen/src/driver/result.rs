//! What comes out: compiled kernels, and for those who look closer what each stage left behind, with its text.
//!
//! In: nothing; the driver fills it stage by stage. Guarantee: stages that were not reached or not needed are `None`, their text is empty.

use crate::agents::AgentPlan;
use crate::buffers::depth::{Party, ii_eff};
use crate::buffers::needs::runs;
use crate::buffers::{BufferAssignment, Pipe};
use crate::ddg::ScheduleAnalysis;
use crate::error::CodegenError;
use crate::ir::{Function, Op, print_function};
use crate::isa::TargetIsa;
use crate::nvvm;
use crate::pass::Stage;
use crate::ptx::FunctionInfo;
use crate::schedule::{CycleModel, Problem, RegionSchedule, render};
use std::fmt::Write;
use tileas_launch::LaunchMetadata;

/// A compiled kernel.
#[derive(Clone, Debug)]
pub struct CompiledKernel {
    /// Entry name.
    pub name: String,
    /// A PTX module with this kernel alone.
    pub ptx: String,
    /// What a host needs to launch it.
    pub metadata: LaunchMetadata,
    /// Counts of what was emitted.
    pub info: FunctionInfo,
}

/// A compiled module.
#[derive(Clone, Debug, Default)]
pub struct CompiledModule {
    /// One entry per kernel, in source order.
    pub kernels: Vec<CompiledKernel>,
    /// Warnings of all stages.
    pub warnings: Vec<CodegenError>,
    /// All kernels in one PTX module, where there are several.
    pub(super) combined: Option<String>,
}

impl CompiledModule {
    /// One PTX module with all kernels.
    pub fn ptx(&self) -> &str {
        match (&self.combined, self.kernels.as_slice()) {
            (Some(text), _) => text,
            (None, [only, ..]) => &only.ptx,
            (None, []) => "",
        }
    }

    /// The launch metadata of all kernels: `{"kernels": […]}`.
    #[cfg(feature = "serde")]
    pub fn metadata_json(&self) -> String {
        metadata_json(self.kernels.iter().map(|k| &k.metadata))
    }
}

/// `{"kernels": […]}`, pretty-printed with a trailing newline.
#[cfg(feature = "serde")]
fn metadata_json<'a>(kernels: impl Iterator<Item = &'a LaunchMetadata>) -> String {
    tileas_launch::json::write_all(kernels) + "\n"
}

/// What [`crate::Context::run_to`] hands out.
#[derive(Default)]
pub struct StageRun {
    /// The kernels, in source order.
    pub kernels: Vec<KernelState>,
    /// Warnings of all stages that ran.
    pub warnings: Vec<CodegenError>,
    pub(super) combined: Option<String>,
}

impl StageRun {
    /// What a stage left behind, all kernels together.
    pub fn text(&self, stage: Stage) -> String {
        match (stage, &self.combined) {
            (Stage::Ptx, Some(text)) => return text.clone(),
            #[cfg(feature = "serde")]
            (Stage::Metadata, _) => {
                return metadata_json(self.kernels.iter().filter_map(|k| k.metadata.as_ref()));
            }
            _ => {}
        }
        let texts: Vec<String> = self.kernels.iter().map(|k| k.text(stage)).collect();
        texts.join("\n")
    }
}

/// A kernel and what the stages it has passed left behind; `None` for stages not reached or not needed.
#[derive(Default)]
pub struct KernelState {
    /// Name of the kernel.
    pub name: String,
    /// Text of the source, where asked for.
    pub source: String,
    /// Dump of the constraints.
    pub constraints: String,
    /// Text of the prepared kernel, where asked for.
    pub prepared: String,
    /// Agents of the source, then of the placed function.
    #[doc(hidden)]
    pub plan: Option<AgentPlan>,
    /// The placed function.
    #[doc(hidden)]
    pub placed: Option<Function>,
    /// Starts of all scheduled loops.
    #[doc(hidden)]
    pub schedule: Option<ScheduleAnalysis>,
    /// Storage and channels.
    #[doc(hidden)]
    pub buffers: Option<BufferAssignment>,
    /// The materialised function.
    pub materialized: Option<Function>,
    /// The thread-level IR.
    #[doc(hidden)]
    pub nvvm: Option<nvvm::Module>,
    /// What a host needs to launch it.
    pub metadata: Option<LaunchMetadata>,
    /// The PTX.
    pub ptx: String,
}

impl KernelState {
    /// What a stage left behind, as text; empty if it was not reached.
    pub fn text(&self, stage: Stage) -> String {
        match stage {
            Stage::Ir => self.source.clone(),
            Stage::Constraints => self.constraints.clone(),
            Stage::Prepared => self.prepared.clone(),
            Stage::Placed => match (&self.placed, &self.plan) {
                (Some(func), Some(plan)) => format!("{}{}", agents_text(plan), print_function(func)),
                (None, Some(plan)) => agents_text(plan),
                _ => String::new(),
            },
            Stage::Schedule => self.schedule_text(),
            Stage::Materialized => self.materialized.as_ref().map(print_function).unwrap_or_default(),
            Stage::Nvvm => {
                let mut text = String::new();
                if let Some(module) = &self.nvvm {
                    nvvm::print(module, &mut text);
                }
                text
            }
            Stage::Ptx => self.ptx.clone(),
            Stage::Metadata => self.metadata.as_ref().map(metadata_text).unwrap_or_default(),
        }
    }

    /// The loops that were scheduled: problem and schedule of each, in program order.
    pub fn loops(&self) -> impl Iterator<Item = (&Problem, &RegionSchedule)> {
        self.schedule.iter().flat_map(|s| &s.regions).map(|r| (&r.problem, &r.schedule))
    }

    /// The interval of the loop around a pipe as it is, and as it would be if the pipe had another depth. `None`: no
    /// scheduled loop is around it.
    #[doc(hidden)]
    pub fn interval_with_depth(&self, isa: &dyn TargetIsa, pipe: Pipe, depth: u32) -> Option<(u32, u32)> {
        let (func, plan, buffers) = (self.placed.as_ref()?, self.plan.as_ref()?, self.buffers.as_ref()?);
        let changed = &buffers.pipes[pipe];
        let op = func.block_parent(changed.home)?;
        let schedule = self.schedule.as_ref()?.loops[op].as_deref()?;
        let mut pipes = buffers.pipes.clone();
        // Pipes that share a web share its slots.
        for other in pipes.values_mut() {
            if !other.in_place() && other.webs.iter().any(|w| changed.webs.contains(w)) {
                other.depth = depth;
            }
        }
        pipes[pipe].depth = depth;
        let party = Party { func, plan, needs: &buffers.needs };
        Some((buffers.ii_eff[op].max(schedule.ii), ii_eff(party, isa, schedule, &pipes)))
    }

    fn schedule_text(&self) -> String {
        let mut text = self.plan.as_ref().map(agents_text).unwrap_or_default();
        for region in self.schedule.iter().flat_map(|s| &s.regions) {
            text.push('\n');
            let made = self.schedule.as_ref().and_then(|s| s.loops[region.for_op].as_ref());
            if made.is_some_and(|s| s.model == CycleModel::Real) {
                // Writing to a string cannot fail.
                let _ = writeln!(text, "{}: {}", region.schedule.name, region.in_real_cycles());
            }
            text.push_str(&render::table(&region.problem, &region.schedule));
            for round in &region.schedule.rounds {
                // Writing to a string cannot fail.
                let _ = writeln!(text, "{round}");
            }
            if let (Some(plan), Some(func), Some(schedule)) = (&self.plan, &self.placed, &self.schedule) {
                text.push_str(&projection_text(plan, func, schedule, region.for_op));
            }
        }
        if let (Some(buffers), Some(func), Some(plan)) = (&self.buffers, &self.placed, &self.plan) {
            text.push('\n');
            text.push_str(&buffers.dump(func, plan));
        }
        text
    }
}

#[cfg(feature = "serde")]
fn metadata_text(metadata: &LaunchMetadata) -> String {
    metadata.to_json()
}

#[cfg(not(feature = "serde"))]
fn metadata_text(metadata: &LaunchMetadata) -> String {
    format!("{metadata:#?}")
}

/// How one loop falls apart into agents: first start, then position, op and local stage of each op (rules R1, R2).
fn projection_text(plan: &AgentPlan, func: &Function, analysis: &ScheduleAnalysis, for_op: Op) -> String {
    let mut text = String::new();
    let Some(schedule) = analysis.loops[for_op].as_deref() else { return text };
    for (agent, info) in plan.agents.iter() {
        let mut ops: Vec<Op> =
            schedule.scheduled.iter().copied().filter(|&op| runs(func, plan, agent, op)).collect();
        ops.sort_by_key(|&op| (schedule.start[op], schedule.order[op]));
        let Some(&first) = ops.first() else { continue };
        let (r, ii) = (schedule.start[first], schedule.ii.max(1));
        let skew = ops.iter().map(|&op| (schedule.start[op] - r) / ii).max().unwrap_or(0);
        // Writing to a string cannot fail.
        let _ = write!(text, "{agent} {}: r {r}, skew {skew}:", info.kind.name());
        for op in ops {
            let name =
                func.result(op).and_then(|v| func.value_name(v)).map_or(op.to_string(), |n| format!("%{n}"));
            let at = schedule.start[op] - r;
            let _ = write!(text, " ({} {name} local {})", at % ii, at / ii);
        }
        text.push('\n');
    }
    text
}

/// The agents as comment lines, one each, and the threads of the CTA.
pub fn agents_text(plan: &AgentPlan) -> String {
    let mut text = String::new();
    for (agent, info) in plan.agents.iter() {
        let last = info.first_warp + info.warps.max(1) - 1;
        // Writing to a string cannot fail.
        let _ = write!(text, "; {agent} {} warps {}..{last}", info.kind.name(), info.first_warp);
        if info.elect {
            text.push_str(", one elected lane");
        }
        if info.max_regs > 0 {
            let _ = write!(text, ", setmaxnreg {}", info.max_regs);
        }
        text.push('\n');
    }
    let _ =
        writeln!(text, "; {} threads, at most {} registers at entry", plan.num_threads, plan.entry_reg_cap);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip_in_order() {
        for pair in Stage::ALL.windows(2) {
            assert!(pair[0] < pair[1]);
        }
        for stage in Stage::ALL {
            assert_eq!(Stage::from_name(stage.name()), Some(stage));
        }
        assert_eq!(Stage::from_name("sass"), None);
    }
}
