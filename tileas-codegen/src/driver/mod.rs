//! The whole compiler: takes modules through all stages, keeping the memory of the passes.
//!
//! In: a [`Module`], a target and [`Settings`]. Out: a [`CompiledModule`] (PTX, launch metadata, warnings) or every
//! error found at the first stage that found any. [`Context::run_to`] stops at any [`Stage`] and hands out what the
//! stages left behind. The recipe is [`Step::STANDARD`], or the steps of a [`Pipeline`]: after the source was verified and
//! its constraints were read, `Context::front` takes a kernel to agents (prepare → agents → place → schedule → buffers →
//! materialize) and `back` from there to PTX (its verifier → lower → cleanup → registers → text). Kernels that are materialised
//! already enter at `back`.
//!
//! Guarantee: no global state; the same module, options and target give the same bytes, whatever the context did
//! before. One context per thread. Cost: the sum of the stages.

mod back;
pub mod info;
mod lines;
mod pipeline;
mod refine;
mod result;
mod retry;
mod stages;
mod unheeded;

pub use crate::pass::Stage;
pub use info::KernelInfo;
pub use pipeline::{PassUse, Pipeline};
pub use result::{CompiledKernel, CompiledModule, KernelState, StageRun};
pub use stages::Form;

use crate::constraints::ConstraintMap;
use crate::ddg::Scheduler;
use crate::error::{Code, CodegenError, CodegenResult, Errors, Loc};
use crate::ir::verifier::{verify_function_with, verify_names};
use crate::ir::{
    AttrDict, Function, Limits, Module, Op, parse_module_with, print_function, print_located, print_module,
};
use crate::isa::TargetIsa;
use crate::lower::LowerScratch;
use crate::materialize::{MaterializeScratch, clusters, grid, verify};
use crate::nvvm::{self, passes::CleanupScratch, verify::Checks};
use crate::pass::Step;
use crate::prepare::PrepareScratch;
use crate::ptx::{FunctionInfo, PtxEmitter};
use crate::regalloc::Allocator;
use crate::schedule::SearchSteps;
use crate::settings::Settings;
use lines::Numbered;
use stages::{Planned, Refusal, Search};
use std::fmt::Write;

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
    sync: verify::Scratch,
    cleanup: CleanupScratch,
    allocator: Allocator,
    verifier: nvvm::Verifier,
    emitter: PtxEmitter,
    /// What the ops' numbers stand for while lines of the source are asked for.
    numbered: Option<Numbered>,
    text: String,
}

/// What is done to every kernel of a module.
#[derive(Clone)]
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
    /// Columns of products where there is no room for more.
    tight: Option<u32>,
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
        Job { isa, settings, front, back, last, keep, tight: None, kernels }
    }

    /// Whether a step before there are pipelines is one of the job.
    fn does(&self, step: Step) -> bool {
        self.front.contains(&step)
    }
}

/// Says of errors which of a module's kernels they are about, where it has several.
fn name_kernel(module: &Module, func: &Function, errors: &mut [CodegenError]) {
    if module.functions.len() > 1 {
        errors.iter_mut().for_each(|e| e.notes.push((Loc::NONE, format!("in kernel @{}", func.name))));
    }
}

/// Everything that the result of a compilation depends on, as text: two compilations with the same text give the same bytes. To be
/// hashed by those who keep results.
pub fn key_text(module: &Module, isa: &dyn TargetIsa, settings: &Settings) -> String {
    let mut text = format!("{VERSION}\n{} {} {}\n", isa.name(), isa.version(), isa.cpu().name);
    text.push_str(&settings.text());
    if settings.line_info {
        for part in [&module.file, &module.source] {
            _ = writeln!(text, "{:?}", part.as_deref());
        }
    }
    // Metadata have names as they are, which texts may not be able to.
    for f in &module.functions {
        let names: Vec<Option<&str>> = f.params().iter().map(|&v| f.value_name(v)).collect();
        _ = writeln!(text, "{names:?}");
    }
    // Discardable attributes change nothing, and where an op comes from changes often.
    let bare = |f: &Function| f.ops().all(|op| f.discardable(op).is_empty());
    if settings.line_info || module.functions.iter().all(bare) {
        text.push_str(&print_module(module));
        return text;
    }
    let mut module = module.clone();
    for f in &mut module.functions {
        let ops: Vec<Op> = f.ops().collect();
        ops.into_iter().for_each(|op| *f.discardable_mut(op) = AttrDict::default());
    }
    text.push_str(&print_module(&module));
    text
}

/// Notes at each error what the op that stands there was made from, if the front end said it.
fn note_origins(module: &Module, errors: &mut [CodegenError]) {
    for error in errors.iter_mut().filter(|e| e.location.is_some()) {
        let ops = module.functions.iter().flat_map(|f| f.ops().map(move |op| (f, op)));
        let Some((f, op)) = ops.into_iter().find(|(f, op)| f.op_loc(*op) == error.location) else { continue };
        if let Some(text) = lines::origin(f, op) {
            error.origin = Some(text.into());
        }
    }
}

/// This build of the compiler: its version and a hash of its sources.
pub const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "+", env!("TILEAS_CODEGEN_SOURCES"));

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
        let run = self.located(module, settings, |context, module| {
            let job = Job::new(module, isa, settings, &Step::STANDARD, Stage::Metadata, false);
            infos.clear();
            context.run(module, &job, &mut infos)
        })?;
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
        self.located(module, settings, |context, module| {
            let job = Job::new(module, isa, settings, &Step::STANDARD, stage, true);
            context.run(module, &job, &mut Vec::new())
        })
    }

    /// Takes all kernels of a module through steps in a legal order.
    pub(crate) fn run_steps(
        &mut self,
        steps: &[Step],
        module: &Module,
        isa: &dyn TargetIsa,
        settings: &Settings,
    ) -> Result<StageRun, Errors> {
        self.located(module, settings, |context, module| {
            let job = Job::new(module, isa, settings, steps, Stage::Metadata, true);
            context.run(module, &job, &mut Vec::new())
        })
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
        self.located(module, settings, |context, module| context.check_all(module, settings))
    }

    /// What a job says of a module. Errors about one that was built by calls, without places, would not say which op they
    /// mean: they are found again in the module as it prints, which they then carry.
    fn located<T>(
        &mut self,
        module: &Module,
        settings: &Settings,
        mut job: impl FnMut(&mut Context, &Module) -> Result<T, Errors>,
    ) -> Result<T, Errors> {
        self.numbered = None;
        if settings.line_info {
            let (module, numbered) = Numbered::of(module);
            self.numbered = Some(numbered);
            if let Ok(done) = job(self, &module) {
                return Ok(done);
            }
            // Errors are those of the module as it is.
            self.numbered = None;
        }
        let mut errors = match job(self, module) {
            Ok(done) => return Ok(done),
            Err(errors) => errors,
        };
        let built = module.functions.iter().all(|f| !f.loc.is_some());
        if !built || errors.iter().all(|e| e.location.is_some()) {
            note_origins(module, errors.list_mut());
            return Err(match &module.source {
                Some(source) => errors.located_in(source.clone()),
                None => errors,
            });
        }
        let (located, text) = print_located(module);
        match job(self, &located) {
            Ok(_) => Err(errors),
            Err(mut found) => {
                note_origins(&located, found.list_mut());
                Err(found.located_in(text.into()))
            }
        }
    }

    fn check_all(&mut self, module: &Module, settings: &Settings) -> Result<Vec<CodegenError>, Errors> {
        let (mut errors, mut warnings) = (verify_names(module), settings.warnings().to_vec());
        for func in &module.functions {
            let mut found = verify_function_with(func, &settings.ir_limits());
            if found.is_empty() {
                self.read_constraints(func, settings, &mut warnings);
            }
            name_kernel(module, func, &mut found);
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
        job.isa.machine().check()?;
        for_that_target(module, job)?;
        let mut run = StageRun { warnings: self.check_all(module, job.settings)?, ..StageRun::default() };
        let mut errors = Vec::new();
        let chosen = &job.settings.select_kernels;
        let names: Vec<&str> = module.functions.iter().map(|f| f.name.as_str()).collect();
        if let Some(missing) = chosen.missing(&names) {
            let text = format!("option `select-kernels`: there is no kernel {missing}");
            return Err(CodegenError::new(Code::E1003, Loc::NONE, text).into());
        }
        let functions = module.functions.iter().enumerate();
        for (_, func) in functions.filter(|(n, f)| chosen.has(*n, &f.name)) {
            let mut state = KernelState { name: func.name.clone(), ..KernelState::default() };
            let (said, before) = (errors.len(), run.warnings.len());
            match self.kernel(func, job, &mut state, &mut run.warnings) {
                Ok(info) => infos.extend(info),
                Err(found) => errors.extend(found),
            }
            name_kernel(module, func, &mut errors[said..]);
            let of_kernel = errors[said..].iter_mut().chain(&mut run.warnings[before..]);
            of_kernel.filter(|e| !e.location.is_some()).for_each(|e| about(e, func));
            run.kernels.push(state);
        }
        note_origins(module, &mut run.warnings);
        if let Some(numbered) = &self.numbered {
            let of_loops = run.kernels.iter_mut().flat_map(|k| &mut k.schedule).flat_map(|s| &mut s.warnings);
            run.warnings.iter_mut().chain(of_loops).for_each(|w| numbered.restore_said(w, &module.functions));
            let functions = run.kernels.iter_mut().flat_map(|k| [&mut k.placed, &mut k.materialized]);
            functions.flatten().for_each(|f| numbered.restore(f));
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
            Form::Value => self.tightly_if_need_be(func, job, state, warnings),
            Form::Materialized if job.back.is_empty() => {
                let stage = job.front.last().map_or(job.last, |s| s.stage());
                let text =
                    format!("kernel @{} is materialised already, it has no stage `{stage}`", func.name);
                Err(CodegenError::new(Code::E1004, func.loc, text).into())
            }
            Form::Materialized => {
                state.materialized = Some(func.clone());
                self.back(func, Checks::All, job, state, warnings)
            }
        }
    }

    /// All steps, for a kernel whose tiles are values.
    fn through(
        &mut self,
        func: &Function,
        job: &Job<'_>,
        state: &mut KernelState,
        warnings: &mut Vec<CodegenError>,
    ) -> Result<Option<FunctionInfo>, Errors> {
        self.prepared(func, job, warnings, &mut |context, prepared, warnings| {
            if job.keep {
                state.prepared = print_function(prepared);
            }
            context.front(prepared, job, state, warnings)
        })?;
        let close = job.settings.verify_passes || job.keep;
        self.back(func, if close { Checks::All } else { Checks::Input }, job, state, warnings)
    }

    /// From the prepared kernel to agents, as far as the steps go.
    fn front(
        &mut self,
        func: &Function,
        job: &Job<'_>,
        state: &mut KernelState,
        warnings: &mut Vec<CodegenError>,
    ) -> Result<(), Refusal> {
        let &Job { isa, settings, .. } = job;
        if !job.does(Step::Agents) {
            return Ok(());
        }
        let planned = Planned::of(func, isa, settings, self.placed.take())?;
        if !job.does(Step::Place) {
            planned.leave(state);
            return Ok(());
        }
        let placed = planned.place(isa, settings)?;
        verify_pass(placed.func(), settings, "place")?;
        if !job.does(Step::Schedule) {
            placed.leave(state);
            return Ok(());
        }
        let Context { constraints, scheduler, steps, .. } = self;
        let mut search = Search { isa, settings, constraints, scheduler, steps };
        let scheduled = placed.schedule(func, &mut search, warnings)?;
        if !job.does(Step::Buffers) {
            scheduled.leave(state, warnings);
            return Ok(());
        }
        let buffered = scheduled.buffers(search)?;
        if job.does(Step::Materialize) {
            let mut made = buffered.materialize(isa, settings, &mut self.materialize, warnings)?;
            let clustered = settings.cluster > 1 && clusters::share(&mut made, settings.cluster);
            if !clustered && let Some(order) = grid::order(func, settings.grid_group) {
                order.set(&mut made);
            }
            if settings.cluster > 1 && !clustered {
                let text =
                    format!("the CTAs of clusters of {} would load nothing in common", settings.cluster);
                let note = "a load is in common if its place does not depend on the coordinate of the grid that tells them apart, and all run it equally often";
                warnings.push(CodegenError::new(Code::W0501, func.loc, text).note(Loc::NONE, note));
            }
            verify_pass(&made, settings, "materialize")?;
            state.materialized = Some(made);
        }
        buffered.leave(state, warnings);
        Ok(())
    }
}

/// The IR verifier after a pass: what it finds is a fault of the pass.
fn verify_pass(func: &Function, settings: &Settings, pass: &str) -> Result<(), Errors> {
    if !settings.verify_passes {
        return Ok(());
    }
    let limits = Limits { max_region_ops: usize::MAX, max_nesting: usize::MAX, ..settings.ir_limits() };
    let mut errors = verify_function_with(func, &limits);
    for e in &mut errors {
        e.message = format!("after `{pass}`: {}", e.message);
    }
    Errors::check(errors)
}

/// Whether the target is the one that options or module ask for.
fn for_that_target(module: &Module, job: &Job<'_>) -> CodegenResult<()> {
    let (who, named) = match (&job.settings.target, &module.target) {
        (Some(named), _) => ("the option `target`", named),
        (None, Some(named)) => ("the module", named),
        (None, None) => return Ok(()),
    };
    let given = job.isa.cpu().name;
    if named == given {
        return Ok(());
    }
    let text = format!("{who} asks for `{named}`, but the target that code is made for is `{given}`");
    Err(CodegenError::new(Code::E0890, Loc::NONE, text))
}

/// A place for what is said about a kernel as a whole.
#[cold]
fn about(e: &mut CodegenError, func: &Function) {
    e.location = func.loc;
    if !func.loc.is_some() {
        e.notes.push((Loc::NONE, format!("in kernel @{}", func.name)));
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
