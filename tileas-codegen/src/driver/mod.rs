//! The whole compiler: takes modules through all stages, keeping the memory of the passes.
//!
//! In: a [`Module`], a target and [`Settings`]. Out: a [`CompiledModule`] (PTX, launch metadata, warnings) or every
//! error found at the first stage that found any. [`Context::run_to`] stops at any [`Stage`] and hands out what the
//! stages left behind. The recipe is [`Step::STANDARD`], or the steps of a [`Pipeline`]: prepare → agents → place →
//! schedule → buffers → materialize → its verifier → lower → cleanup → registers → PTX, after the source was verified and its
//! constraints were read. Kernels that are materialised already enter at the verifier of materialised kernels.
//!
//! Guarantee: no global state; the same module, options and target give the same bytes, whatever the context did
//! before. One context per thread. Cost: the sum of the stages.

pub mod pipeline;
mod refine;
mod stage;
mod unheeded;
mod wiring;

pub use crate::pass::Stage;
pub use pipeline::{PassUse, Pipeline};
pub use stage::{Form, KernelState};
pub use wiring::Buffers;

use crate::agents::{AgentPlan, plan_agents};
use crate::constraints::ConstraintMap;
use crate::ddg::Pass;
use crate::ddg::refine::{Extra, Family};
use crate::ddg::{ScheduleAnalysis, ScheduledRegion, Scheduler};
use crate::error::{Code, CodegenError, Errors, Loc};
use crate::ir::verifier::{verify_function_with, verify_names};
use crate::ir::{Function, Module, Opcode, keys, parse_module_with, print_function, push_number};
use crate::isa::TargetIsa;
use crate::lower::{LaunchMetadata, LowerScratch, Lowered, lower_in};
use crate::materialize::MaterializeScratch;
use crate::nvvm::{self, passes::CleanupScratch, verify::Checks};
use crate::pass::{AnalysisManager, Step, legalize};
use crate::place::place_in;
use crate::prepare::{PrepareOptions, PrepareScratch, prepare};
use crate::ptx::{FunctionInfo, PtxEmitter, PtxInfo, PtxOptions};
use crate::regalloc::{Allocator, RegallocOptions, SharedRoom};
use crate::schedule::{SchedulerChoice, SearchSteps};
use crate::settings::Settings;
use crate::storage::Storage;

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
    combined: Option<String>,
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
    let list: Vec<serde_json::Value> = kernels.filter_map(|m| serde_json::to_value(m).ok()).collect();
    format!("{:#}\n", serde_json::json!({ "kernels": list }))
}

/// What [`Context::run_to`] hands out.
#[derive(Default)]
pub struct StageRun {
    /// The kernels, in source order.
    pub kernels: Vec<KernelState>,
    /// Warnings of all stages that ran.
    pub warnings: Vec<CodegenError>,
    combined: Option<String>,
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

/// Memory of the passes, kept from one module to the next. One per thread.
#[derive(Default)]
pub struct Context {
    constraints: ConstraintMap,
    prepare: PrepareScratch,
    scheduler: Scheduler,
    /// What the searches of the kernel at hand have left.
    steps: SearchSteps,
    lower: LowerScratch,
    /// The placed function of an earlier compilation, for its memory.
    placed: Option<Function>,
    materialize: MaterializeScratch,
    sync: crate::materialize::verify::Scratch,
    cleanup: CleanupScratch,
    allocator: Allocator,
    verifier: nvvm::Verifier,
    emitter: PtxEmitter,
}

/// What is done to every kernel of a module.
struct Job<'a> {
    isa: &'a dyn TargetIsa,
    settings: &'a Settings,
    /// The steps before there are pipelines.
    front: &'a [Step],
    /// The steps after that.
    back: &'a [Step],
    /// The last stage asked for.
    last: Stage,
    /// Whether what the stages leave behind is wanted.
    keep: bool,
    /// The kernels of the module, sorted by name.
    kernels: Vec<&'a str>,
}

impl<'a> Job<'a> {
    fn new(
        module: &'a Module,
        isa: &'a dyn TargetIsa,
        settings: &'a Settings,
        steps: &'a [Step],
        last: Stage,
        keep: bool,
    ) -> Job<'a> {
        let steps = &steps[..steps.iter().position(|s| s.stage() > last).unwrap_or(steps.len())];
        let (front, back) = steps.split_at(steps.iter().position(|s| !s.is_front()).unwrap_or(steps.len()));
        let mut kernels: Vec<&str> = module.functions.iter().map(|f| f.name.as_str()).collect();
        kernels.sort_unstable();
        Job { isa, settings, front, back, last, keep, kernels }
    }
}

impl Context {
    /// A context without memory of anything.
    pub fn new() -> Context {
        Context::default()
    }

    /// Steps of searches that the last kernel took, of the option `search.steps`.
    pub fn search_steps(&self) -> u64 {
        self.steps.used()
    }

    /// Compiles all kernels of a module.
    ///
    /// # Errors
    /// All errors of the first stage that found any, of every kernel.
    pub fn compile(
        &mut self,
        module: &Module,
        isa: &dyn TargetIsa,
        settings: &Settings,
    ) -> Result<CompiledModule, Errors> {
        let mut infos = Vec::new();
        let job = Job::new(module, isa, settings, &Step::STANDARD, Stage::Metadata, false);
        let run = self.run(module, &job, &mut infos)?;
        let mut out = CompiledModule { kernels: Vec::new(), warnings: run.warnings, combined: run.combined };
        for (state, info) in run.kernels.into_iter().zip(infos) {
            self.placed = state.placed;
            state.schedule.into_iter().for_each(|s| self.scheduler.recycle(s));
            self.materialize.spare = state.materialized;
            state.nvvm.into_iter().for_each(|m| self.lower.recycle(m));
            let Some(metadata) = state.metadata else { continue };
            out.kernels.push(CompiledKernel { name: state.name, ptx: state.ptx, metadata, info });
        }
        Ok(out)
    }

    /// Takes all kernels of a module up to and including a stage.
    ///
    /// # Errors
    /// As [`Context::compile`]; `E1004` where a kernel is past the stage already.
    pub fn run_to(
        &mut self,
        stage: Stage,
        module: &Module,
        isa: &dyn TargetIsa,
        settings: &Settings,
    ) -> Result<StageRun, Errors> {
        let job = Job::new(module, isa, settings, &Step::STANDARD, stage, true);
        self.run(module, &job, &mut Vec::new())
    }

    /// Takes all kernels of a module through steps in a legal order.
    pub(crate) fn run_steps(
        &mut self,
        steps: &[Step],
        module: &Module,
        isa: &dyn TargetIsa,
        settings: &Settings,
    ) -> Result<StageRun, Errors> {
        let job = Job::new(module, isa, settings, steps, Stage::Metadata, true);
        self.run(module, &job, &mut Vec::new())
    }

    /// Parses a module within the limits of the options; an error about a limit names the option.
    ///
    /// # Errors
    /// All `E00xx` errors that are no consequences of others, at most 64.
    pub fn parse(&mut self, text: &str, settings: &Settings) -> Result<Module, Errors> {
        parse_module_with(text, &settings.parse_limits()).map_err(|errors| errors.map(with_option))
    }

    /// Verifies a module and its scheduling constraints, without a target. Returns the warnings.
    ///
    /// # Errors
    /// All violations of all kernels.
    pub fn check(&mut self, module: &Module, settings: &Settings) -> Result<Vec<CodegenError>, Errors> {
        let (mut errors, mut warnings) = (verify_names(module), settings.warnings().to_vec());
        for func in &module.functions {
            let found = verify_function_with(func, &settings.ir_limits());
            if found.is_empty() {
                self.read_constraints(func, settings, &mut warnings);
            }
            errors.extend(found);
        }
        let (warnings, strict): (Vec<_>, Vec<_>) = warnings.into_iter().partition(|w| w.code.is_warning());
        errors.extend(strict);
        Errors::check(errors)?;
        Ok(warnings)
    }

    fn read_constraints(&mut self, func: &Function, settings: &Settings, warnings: &mut Vec<CodegenError>) {
        self.constraints.parse(func, func.ops(), settings.constraint_mode, warnings);
    }

    fn run(
        &mut self,
        module: &Module,
        job: &Job<'_>,
        infos: &mut Vec<FunctionInfo>,
    ) -> Result<StageRun, Errors> {
        let mut run = StageRun { warnings: self.check(module, job.settings)?, ..StageRun::default() };
        let mut errors = Vec::new();
        for func in &module.functions {
            let mut state = KernelState { name: func.name.clone(), ..KernelState::default() };
            match self.kernel(func, job, &mut state, &mut run.warnings) {
                Ok(info) => infos.extend(info),
                Err(found) => errors.extend(found),
            }
            run.kernels.push(state);
        }
        Errors::check(errors)?;
        if job.last >= Stage::Ptx && run.kernels.len() > 1 && job.back.contains(&Step::Ptx) {
            run.combined = Some(self.combine(&run.kernels, job.settings)?);
        }
        Ok(run)
    }

    /// One kernel, through all steps of the job.
    fn kernel(
        &mut self,
        func: &Function,
        job: &Job<'_>,
        state: &mut KernelState,
        warnings: &mut Vec<CodegenError>,
    ) -> Result<Option<FunctionInfo>, Errors> {
        self.steps = SearchSteps::new(job.settings.search_steps);
        if job.keep {
            state.source = print_function(func);
        }
        if job.keep && job.last >= Stage::Constraints {
            // Warnings were collected by `check`.
            self.read_constraints(func, job.settings, &mut Vec::new());
            state.constraints = self.constraints.dump(func);
        }
        if job.last <= Stage::Constraints {
            return Ok(None);
        }
        match Form::of(func) {
            Form::Value => {
                let before = warnings.len();
                let mut stuck = match self.through(func, job, state, warnings) {
                    Err(found) if self.may_run_serially(&found, job) => found,
                    done => return done,
                };
                // Nobody asked for the order in which agents take their turns. Perhaps it is the one that needs few registers
                // which does not work.
                let mut settings = job.settings.clone();
                if settings.spill_budget.is_none() && state.schedule.as_ref().is_some_and(is_ordered) {
                    settings.spill_budget = Some(u32::MAX);
                    let job = &Job { settings: &settings, kernels: job.kernels.clone(), ..*job };
                    warnings.truncate(before);
                    stuck = match self.through(func, job, state, warnings) {
                        Err(found) if self.may_run_serially(&found, job) => found,
                        done => return done,
                    };
                    settings.spill_budget = None;
                }
                // Program order is always one that works.
                settings.scheduler = SchedulerChoice::Serial;
                let job = &Job { settings: &settings, kernels: job.kernels.clone(), ..*job };
                warnings.truncate(before);
                warnings.extend(stuck.into_iter().take(1).map(|e| {
                    let text = "the loops of the kernel run one iteration after the other";
                    CodegenError::new(Code::W0406, e.location, text).note(Loc::NONE, e.message)
                }));
                return self.through(func, job, state, warnings);
            }
            Form::Materialized if job.back.is_empty() => {
                let stage = job.front.last().map_or(job.last, |s| s.stage());
                let text =
                    format!("kernel @{} is materialised already, it has no stage `{stage}`", func.name);
                return Err(CodegenError::new(Code::E1004, func.loc, text).into());
            }
            Form::Materialized => state.materialized = Some(func.clone()),
        }
        self.back(func, job, state, warnings)
    }

    /// Whether what was found is that agents wait for each other, or overtake each other, under a schedule that was not asked
    /// for, or that its local stages cannot be written or followed. Constraints do not forbid the serial one: with one
    /// stage groups share it, no depth is exceeded, and nothing overlaps itself.
    fn may_run_serially(&self, found: &[CodegenError], job: &Job<'_>) -> bool {
        let schedules = job.front.contains(&Step::Schedule);
        let asked = job.settings.scheduler == SchedulerChoice::Serial;
        let free = !asked && !job.settings.require_pipelining;
        let codes = [Code::E0701, Code::E0702, Code::E0703, Code::E0706, Code::E0711];
        let order = |e: &CodegenError| codes.contains(&e.code);
        schedules && free && !found.is_empty() && found.iter().all(order)
    }

    /// From the source to the materialised function; without loads through TMA or with loops as they were if the steps do not
    /// take the kernel there.
    fn front(
        &mut self,
        func: &Function,
        job: &Job<'_>,
        state: &mut KernelState,
        warnings: &mut Vec<CodegenError>,
    ) -> Result<(), Errors> {
        let &Job { isa, settings, front, .. } = job;
        // What was known before a rewrite is not known after it.
        let (prepares, steps) =
            front.split_at(front.iter().rposition(|s| s.stage() == Stage::Prepared).map_or(0, |i| i + 1));
        let all = settings.prepare_options(isa);
        let asked = PrepareOptions {
            views: prepares.contains(&Step::Views),
            canonical: prepares.contains(&Step::Canonical),
            tma: all.tma && prepares.contains(&Step::LowerTma),
            boxes: prepares.contains(&Step::Boxes),
            ..all
        };
        let (mut options, before) = (asked, warnings.len());
        loop {
            let prepared = prepare(func, isa, &options, &mut self.prepare);
            let at = prepared.func.as_ref().unwrap_or(func);
            if job.keep {
                state.prepared = print_function(at);
            }
            if options.boxes && prepared.func.is_some() {
                self.verify_pass(at, settings, "prepare")?;
            }
            let done = self.front_steps(at, steps, job, state, warnings);
            self.prepare.spare = prepared.func;
            match done {
                Err(Refusal::Room(_)) if prepared.loads => options.tma = false,
                Err(Refusal::Room(_)) if prepared.loops => {
                    options = PrepareOptions { unroll_ops: 0, tma: asked.tma, ..options };
                }
                Err(Refusal::Room(errors) | Refusal::Other(errors)) => return Err(errors),
                Ok(()) => return Ok(()),
            }
            warnings.truncate(before);
        }
    }

    /// The steps from the prepared function on. What they find is published for the function it describes; materialisation takes
    /// nothing else.
    fn front_steps(
        &mut self,
        func: &Function,
        steps: &[Step],
        job: &Job<'_>,
        state: &mut KernelState,
        warnings: &mut Vec<CodegenError>,
    ) -> Result<(), Refusal> {
        let &Job { isa, settings, .. } = job;
        let mut known = AnalysisManager::new();
        let mut storage: Option<Storage> = None;
        for step in steps {
            let at = state.placed.as_ref().filter(|_| *step > Step::Place).unwrap_or(func);
            match step {
                Step::Agents => {
                    let plan = plan_agents(func, isa, &settings.agent_options()).map_err(Refusal::room)?;
                    known.publish(func, plan);
                }
                Step::Place => {
                    let plan = known.get::<AgentPlan>(func)?;
                    let (placed, plan) =
                        place_in(func, plan, isa, &settings.place_options(), self.placed.take())
                            .map_err(Refusal::room)?;
                    self.verify_pass(&placed, settings, "place")?;
                    known.publish(state.placed.insert(placed), plan);
                }
                Step::Schedule => {
                    // Inherent attributes travel with clones: the placed ops have keys of their own.
                    self.constraints.parse(at, at.ops(), settings.constraint_mode, &mut Vec::new());
                    let (plan, keys) = (known.get::<AgentPlan>(at)?, &self.constraints);
                    let storage = storage.insert(Storage::of(at, plan).map_err(Refusal::room)?);
                    let found = wiring::schedule(
                        at,
                        plan,
                        keys,
                        &mut self.scheduler,
                        isa,
                        settings,
                        Pass { storage, extra: &Extra::default(), steps: &mut self.steps, before: None },
                    )?;
                    warnings.extend(unheeded::unheeded(func, at, &self.constraints, &found));
                    known.publish(at, found);
                }
                Step::Buffers => {
                    known.get::<ScheduleAnalysis>(at)?;
                    let analysis = known.take().unwrap_or_default();
                    let (plan, keys) = (known.get::<AgentPlan>(at)?, &self.constraints);
                    let storage = match &storage {
                        Some(found) => found,
                        None => &Storage::of(at, plan).map_err(Refusal::room)?,
                    };
                    let on = refine::Refiner {
                        func: at,
                        plan,
                        storage,
                        constraints: keys,
                        scheduler: &mut self.scheduler,
                        steps: &mut self.steps,
                        isa,
                        settings,
                    };
                    let (analysis, buffers) =
                        wiring::assign_and_refine(on, analysis).map_err(Refusal::room)?;
                    known.publish(at, analysis);
                    known.publish(at, buffers);
                }
                Step::Materialize => {
                    let plan = known.get::<AgentPlan>(at)?;
                    let analysis = known.get::<ScheduleAnalysis>(at)?;
                    let buffers = known.get::<Buffers>(at)?;
                    warnings.extend(truncated(at, analysis, settings));
                    legalize(at, plan, analysis, buffers, isa)?;
                    let scratch = &mut self.materialize;
                    let made = wiring::materialize(at, plan, analysis, buffers, settings, scratch);
                    let made = made?;
                    self.verify_pass(&made, settings, "materialize")?;
                    state.materialized = Some(made);
                }
                // The other steps come later, or were dealt with.
                _ => {}
            }
        }
        (state.plan, state.schedule, state.buffers) = (known.take(), known.take(), known.take());
        warnings.extend(state.schedule.iter().flat_map(|s| s.warnings.iter().cloned()));
        Ok(())
    }

    /// All steps.
    fn through(
        &mut self,
        func: &Function,
        job: &Job<'_>,
        state: &mut KernelState,
        warnings: &mut Vec<CodegenError>,
    ) -> Result<Option<FunctionInfo>, Errors> {
        self.front(func, job, state, warnings)?;
        self.back(func, job, state, warnings)
    }

    /// The steps from the materialised function on.
    fn back(
        &mut self,
        func: &Function,
        job: &Job<'_>,
        state: &mut KernelState,
        warnings: &mut Vec<CodegenError>,
    ) -> Result<Option<FunctionInfo>, Errors> {
        let Job { isa, settings, back, kernels, .. } = job;
        let (isa, settings) = (*isa, *settings);
        let (mut lowered, mut info): (Option<Lowered>, _) = (None, None);
        // Whether the code is as the register budgets' pass left it.
        let mut counted = false;
        // Whether it is as the cleanups left it.
        let mut noted = false;
        let checks = if settings.verify_passes || job.keep || Form::of(func) == Form::Materialized {
            Checks::All
        } else {
            Checks::Input
        };
        let mut steps = back.iter().peekable();
        while let Some(step) = steps.next() {
            let Some(materialized) = &state.materialized else {
                let text = format!("kernel @{} is not materialised, no pass before does that", func.name);
                return Err(CodegenError::new(Code::E1004, func.loc, text).into());
            };
            match (step, &mut lowered) {
                (Step::Prove, _) => wiring::verify_materialized(materialized, isa, &mut self.sync)?,
                (Step::Lower, _) => {
                    let most = settings.max_instructions;
                    let code = lower_in(materialized, kernels, isa, most, &mut self.lower)?;
                    lowered = Some(code);
                    (counted, noted) = (false, false);
                }
                (Step::Cleanup, Some(code)) => {
                    (counted, noted) = (false, code.module.functions.len() == 1);
                    for f in &mut code.module.functions {
                        nvvm::passes::cleanup(f, &mut self.cleanup);
                    }
                }
                (Step::Registers, Some(code)) => {
                    let emit_next = steps.peek() == Some(&&Step::Ptx);
                    if emit_next
                        && let Some(done) =
                            self.emit_if_fits((checks, noted), code, isa, settings, warnings, &mut state.ptx)
                    {
                        steps.next();
                        info = done.functions.into_iter().next();
                        continue;
                    }
                    self.registers(code, materialized, isa, settings, warnings);
                    (counted, noted) = (true, false);
                }
                (Step::Ptx, Some(code)) => {
                    state.ptx.clear();
                    let out = &mut state.ptx;
                    let emitted = self.emit(checks, &code.module, counted, settings, warnings, out)?;
                    code.metadata.ptx_version = version_text(emitted.version);
                    info = emitted.functions.into_iter().next();
                }
                // A pipeline has `lower` before these.
                _ => {}
            }
        }
        if let Some(Lowered { module, metadata, .. }) = lowered {
            (state.nvvm, state.metadata) = (Some(module), Some(metadata));
        }
        Ok(info)
    }

    /// Verifies and prints a module whose one function keeps its register budgets as it is, which nearly all do: liveness was
    /// then found along with the work of the cleanups, or is with that of the verifier. `noted`: the function is as the
    /// cleanups left it. `None`, with nothing changed, if there is more to do.
    fn emit_if_fits(
        &mut self,
        (checks, noted): (Checks, bool),
        lowered: &mut Lowered,
        isa: &dyn TargetIsa,
        settings: &Settings,
        warnings: &mut Vec<CodegenError>,
        out: &mut String,
    ) -> Option<PtxInfo> {
        let [func] = &mut lowered.module.functions[..] else { return None };
        let options = register_options(func, isa, settings);
        let (func, mut found) = (&lowered.module.functions[0], Vec::new());
        let (module, version) = (&lowered.module, settings.max_ptx_version);
        // What the cleanups noted may say that it does not fit where it does, never the other way round.
        let wanted = noted && (checks == Checks::Input || cfg!(debug_assertions));
        let known = if wanted { self.cleanup.liveness(func) } else { None };
        let known = known.filter(|known| {
            debug_assert!(known.covers(func), "the cleanups' notes say less than there is");
            checks == Checks::Input && self.allocator.fits(func, known, &options)
        });
        let verified = self.verifier.verify_for(checks, module, version, known, &mut found)?;
        let liveness = known.unwrap_or(self.verifier.liveness());
        if known.is_none() && !self.allocator.fits(func, liveness, &options) {
            return None;
        }
        warnings.extend(found);
        out.clear();
        let emitted = self.emitter.emit_knowing(verified, Some(liveness), &ptx_options(settings), out);
        lowered.metadata.ptx_version = version_text(emitted.version);
        Some(emitted)
    }

    /// Keeps register budgets, or warns about those that do not hold.
    fn registers(
        &mut self,
        lowered: &mut Lowered,
        materialized: &Function,
        isa: &dyn TargetIsa,
        settings: &Settings,
        warnings: &mut Vec<CodegenError>,
    ) {
        let Lowered { module, metadata } = lowered;
        let machine = isa.machine();
        let at = metadata.dynamic_smem.next_multiple_of(16);
        let sym = module.symbols.iter().find(|(_, s)| s.kind == nvvm::SymKind::DynamicShared);
        for func in &mut module.functions {
            let mut options = register_options(func, isa, settings);
            let threads = func.launch.reqntid.map_or(machine.limits.max_threads, |d| d[0]);
            let bytes = machine.limits.smem_bytes.saturating_sub(at);
            options.shared = sym.map(|(sym, _)| SharedRoom { sym, at, bytes, threads });
            for report in self.allocator.run(func, &options) {
                warnings.extend(report.warning(func).map(|w| match overlaps(materialized, &report.name) {
                    true => w.note(Loc::NONE, OVERLAPS),
                    false => w,
                }));
                if let Some(Ok(stats)) = report.outcome
                    && stats.shared_bytes > 0
                {
                    metadata.dynamic_smem = metadata.dynamic_smem.max(at + stats.shared_bytes);
                }
            }
        }
    }

    /// The IR verifier after a pass: what it finds is a fault of the pass.
    fn verify_pass(&self, func: &Function, settings: &Settings, pass: &str) -> Result<(), Errors> {
        if !settings.verify_passes {
            return Ok(());
        }
        let limits =
            crate::ir::Limits { max_region_ops: usize::MAX, max_nesting: usize::MAX, ..settings.ir_limits() };
        let mut errors = verify_function_with(func, &limits);
        for e in &mut errors {
            e.message = format!("after `{pass}`: {}", e.message);
        }
        Errors::check(errors)
    }

    /// Verifies and prints a module; `counted`: its one function is as the allocator left it.
    fn emit(
        &mut self,
        checks: Checks,
        module: &nvvm::Module,
        counted: bool,
        settings: &Settings,
        warnings: &mut Vec<CodegenError>,
        out: &mut String,
    ) -> Result<PtxInfo, Errors> {
        let mut found = Vec::new();
        let known = if counted { self.allocator.liveness() } else { None };
        let version = settings.max_ptx_version;
        let Some(verified) = self.verifier.verify_for(checks, module, version, known, &mut found) else {
            found.retain(|e| !e.code.is_warning());
            return Err(Errors::of(found));
        };
        warnings.extend(found);
        let known = known.unwrap_or(self.verifier.liveness());
        Ok(self.emitter.emit_knowing(verified, Some(known), &ptx_options(settings), out))
    }

    /// All kernels in one module. Every kernel was verified alone; names are unique by `E0226`.
    fn combine(&mut self, kernels: &[KernelState], settings: &Settings) -> Result<String, Errors> {
        let mut modules = kernels.iter().filter_map(|k| k.nvvm.as_ref());
        let Some(mut all) = modules.next().cloned() else { return Ok(String::new()) };
        for module in modules {
            // Symbols are numbered per module: kernels can share a table only if it is the same.
            if module.symbols != all.symbols {
                let text = "kernels with different shared variables cannot be in one PTX module";
                return Err(CodegenError::new(Code::E1004, Loc::NONE, text).into());
            }
            all.functions.extend(module.functions.iter().cloned());
        }
        let mut text = String::new();
        // Every kernel was verified alone.
        self.emit(Checks::Input, &all, false, settings, &mut Vec::new(), &mut text)?;
        Ok(text)
    }
}

/// Why a kernel is not materialised.
enum Refusal {
    /// Spaces, layouts or memory do not suffice for it as it was prepared.
    Room(Errors),
    /// Anything else.
    Other(Errors),
}

impl Refusal {
    fn room(e: CodegenError) -> Refusal {
        Refusal::Room(e.into())
    }
}

impl<E: Into<Errors>> From<E> for Refusal {
    fn from(e: E) -> Refusal {
        Refusal::Other(e.into())
    }
}

/// Names the option behind a limit of the parser.
fn with_option(e: CodegenError) -> CodegenError {
    match e.code {
        Code::E0008 => e.note(Loc::NONE, "the limit is the option `limits.max-nesting`"),
        Code::E0010 => {
            e.note(Loc::NONE, "limits are the options `limits.max-module-ops` and `limits.max-bytes`")
        }
        _ => e,
    }
}

/// What an agent over its budget is told that has several stages of a loop under way.
const OVERLAPS: &str =
    "its loop has several stages under way, whose values live at the same time: `max-stages` allows fewer";

/// Whether an agent of a materialised kernel, by its name in the code, runs several stages of a loop at a time.
fn overlaps(func: &Function, agent: &str) -> bool {
    let number = agent.strip_prefix("AGENT").and_then(|n| n.parse().ok());
    let switch = func.block_ops(func.entry()).find(|&o| func.opcode(o) == Opcode::AsyncPipelineAgentSwitch);
    let mut found = false;
    if let Some(body) = switch.zip(number).and_then(|(switch, n)| func.op_block_at(switch, n)) {
        func.walk(body, &mut |op| found |= func.inherent(op).get(keys::SKEW).is_some());
    }
    found
}

/// Whether ops of some loop are in an order that registers asked for.
fn is_ordered(analysis: &ScheduleAnalysis) -> bool {
    let rounds = analysis.regions.iter().flat_map(|r| &r.schedule.rounds);
    rounds.filter(|r| r.kept).flat_map(|r| &r.added).any(|a| a.family == Family::RegisterPressure)
}

/// Warnings about loops whose refinement the round limit ended.
fn truncated(func: &Function, analysis: &ScheduleAnalysis, settings: &Settings) -> Vec<CodegenError> {
    let loops = analysis.regions.iter().filter(|r| r.schedule.status.truncated);
    let warning = |r: &ScheduledRegion| {
        let n = settings.max_constraint_iterations;
        let text =
            format!("constraints of loop `{}` were not refined to the end: {n} rounds", r.schedule.name);
        let note = "the option `published.max-constraint-iterations` allows more";
        CodegenError::new(Code::W0404, func.op_loc(r.for_op), text).note(Loc::NONE, note)
    };
    loops.map(warning).collect()
}

/// What the allocator is to keep of a function, shared memory to spill to apart; a limit of the settings becomes the function's.
fn register_options(func: &mut nvvm::Function, isa: &dyn TargetIsa, settings: &Settings) -> RegallocOptions {
    let machine = isa.machine();
    let threads = func.launch.reqntid.map_or(machine.limits.max_threads, |d| d[0]);
    let mut options = RegallocOptions {
        mode: settings.regalloc,
        cap: machine.entry_registers(threads),
        reserve: settings.register_reserve,
        shared: None,
    };
    if let Some(n) = settings.max_regs {
        options.cap = options.cap.min(n);
        // The two exclude each other.
        (func.launch.maxnreg, func.launch.minnctapersm) = (Some(n), None);
    }
    options
}

fn ptx_options(settings: &Settings) -> PtxOptions {
    PtxOptions { comments: settings.ptx_comments, min_version: settings.min_ptx_version }
}

fn version_text((major, minor): (u8, u8)) -> String {
    let mut text = String::with_capacity(8);
    push_number(&mut text, major);
    text.push('.');
    push_number(&mut text, minor);
    text
}
