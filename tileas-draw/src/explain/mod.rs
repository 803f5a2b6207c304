//! Explanations of schedules: what binds each loop, how far each op could move, why each ring has its slots.
//!
//! In: a module with target and settings ([`explain_module`]), or bare graphs with their schedules ([`explain_graphs`]).
//! Out: an [`Explanation`], plain data; [`Explanation::to_text`] prints it, [`Explanation::to_html`] makes a page with the
//! pictures of [`crate`]. Loops are explained by [`tileas_schedule::explain`]; agents, rings and other settings
//! here ([`kernel`]).
//!
//! Guarantee: what is explained is compiled as without explanation; other settings are tried in runs of their own. Cost: some
//! runs of the stages up to the schedule.

mod html;
pub mod kernel;
mod text;

pub use kernel::{AgentWhy, ChannelWhy, KernelExplanation, LoopWhy, SettingWhatIf};

use crate::Picture;
use tileas_codegen::error::{CodegenError, CodegenResult, Errors};
use tileas_codegen::ir::Module;
use tileas_codegen::isa::TargetIsa;
use tileas_codegen::settings::Settings;
use tileas_codegen::{Context, Stage, StageRun};
use tileas_schedule::explain::{RegionExplanation, explain_region};
use tileas_schedule::{Problem, RegionSchedule, ScheduleOptions};

/// Why schedules are as they are.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct Explanation {
    /// Kernels, in source order.
    pub kernels: Vec<KernelExplanation>,
    /// Bare graphs, in document order.
    pub graphs: Vec<RegionExplanation>,
    /// What the pictures show: the loops of all kernels, then the graphs.
    #[serde(skip)]
    pub pictures: Vec<Picture>,
}

/// Explains all kernels of a module. Also returns the warnings of the stages.
///
/// # Errors
/// As [`Context::run_to`] up to the schedule.
pub fn explain_module(
    context: &mut Context,
    module: &Module,
    isa: &dyn TargetIsa,
    settings: &Settings,
) -> Result<(Explanation, Vec<CodegenError>), Errors> {
    // What is refused later has a schedule to explain.
    let run = match context.run_to(Stage::Materialized, module, isa, settings) {
        Err(_) => context.run_to(Stage::Schedule, module, isa, settings)?,
        Ok(run) => run,
    };
    let others = kernel::other_settings(context, module, isa, settings, &run);
    let mut out = Explanation::default();
    for (k, state) in run.kernels.iter().enumerate() {
        let mut kernel = kernel::explain_kernel(state, isa, settings)?;
        kernel.what_if = others.iter().filter_map(|o| kernel::compare(o, k, state)).collect();
        out.pictures.extend(Picture::of_kernel(state));
        out.kernels.push(kernel);
    }
    let StageRun { warnings, .. } = run;
    Ok((out, warnings))
}

/// Explains schedules of bare graphs.
///
/// # Errors
/// As [`explain_region`].
pub fn explain_graphs<'a>(
    graphs: impl Iterator<Item = (&'a Problem, &'a RegionSchedule)>,
    options: &ScheduleOptions,
) -> CodegenResult<Explanation> {
    let mut out = Explanation::default();
    for (problem, schedule) in graphs {
        out.graphs.push(explain_region(problem, schedule, options)?);
        out.pictures.push(Picture::of_graph(problem.clone(), schedule.clone()));
    }
    Ok(out)
}

impl Explanation {
    /// The explanation as JSON, without pictures; a trailing newline.
    pub fn to_json(&self) -> String {
        // Plain data: numbers, texts and lists always serialise.
        let value = serde_json::to_value(self).unwrap_or_default();
        format!("{value:#}\n")
    }

    /// The loops of all kernels, then the graphs: in the order of the pictures.
    fn regions(&self) -> impl Iterator<Item = &RegionExplanation> {
        let loops = self.kernels.iter().flat_map(|k| k.loops.iter().map(|l| &l.region));
        loops.chain(&self.graphs)
    }
}
