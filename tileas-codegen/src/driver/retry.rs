//! What is tried when a kernel cannot be had as it was prepared, or as it was scheduled.
//!
//! In: a kernel whose tiles are values. Out: what the first attempt gave that worked, or why the last did not. Preparation guesses
//! that spaces, layouts and memory suffice for loads through TMA and for loops that are written out; without them it may
//! still work, and with smaller products. Schedules that were not asked for give way to program order, which works always, with a warning (W0406).

use super::result::KernelState;
use super::stages::Refusal;
use super::{Context, Job, verify_pass};
use crate::ddg::ScheduleAnalysis;
use crate::ddg::refine::Family;
use crate::error::{Code, CodegenError, Errors, Loc};
use crate::ir::Function;
use crate::isa::AccAllocation;
use crate::pass::Step;
use crate::plan::AgentKind;
use crate::prepare::{PrepareOptions, legalize, prepare};
use crate::ptx::FunctionInfo;
use crate::schedule::SchedulerChoice;
use crate::settings::Consumers;

/// Columns of products in tensor memory, where as many as there are instructions for leave no room: rows that a thread's registers hold, then
/// half as many.
const TIGHT_COLUMNS: [u32; 2] = [128, 64];

/// What is done with a prepared kernel.
type Attempt<'a> = dyn FnMut(&mut Context, &Function, &mut Vec<CodegenError>) -> Result<(), Refusal> + 'a;

impl Context {
    /// All steps; with smaller products where there is no room for their operands or sums and nothing else works.
    pub(super) fn tightly_if_need_be(
        &mut self,
        func: &Function,
        job: &Job<'_>,
        state: &mut KernelState,
        warnings: &mut Vec<CodegenError>,
    ) -> Result<Option<FunctionInfo>, Errors> {
        let before = warnings.len();
        let found = match self.serially_if_need_be(func, job, state, warnings) {
            Err(found) if job.does(Step::Canonical) && found.iter().all(|e| is_room(e.code)) => found,
            done => return done,
        };
        for columns in TIGHT_COLUMNS {
            warnings.truncate(before);
            let job = Job { tight: Some(columns), ..job.clone() };
            let done = self.serially_if_need_be(func, &job, state, warnings);
            if done.is_ok() {
                return done;
            }
        }
        Err(found)
    }

    /// All steps; the loops run one iteration after the other where nothing else was asked for and nothing else works.
    fn serially_if_need_be(
        &mut self,
        func: &Function,
        job: &Job<'_>,
        state: &mut KernelState,
        warnings: &mut Vec<CodegenError>,
    ) -> Result<Option<FunctionInfo>, Errors> {
        let before = warnings.len();
        let first = self.through(func, job, state, warnings);
        // Turns of warpgroups were not asked for, nor an agent that feeds another.
        let dealt = state.plan.as_ref().is_some_and(|plan| plan.dealt().is_some());
        let fed = job.isa.acc_home().allocation == AccAllocation::Registers
            && state.plan.as_ref().is_some_and(|plan| plan.all(AgentKind::Simt).count() > 1);
        let short = |w: &CodegenError| w.code == Code::W0903;
        let bad = first.is_err() || warnings[before..].iter().any(short);
        let dealt = dealt && job.settings.consumers == Consumers::Auto;
        let fed = fed && job.settings.max_simt_agents.is_none();
        if bad && (dealt || fed) {
            let mut settings = job.settings.clone();
            if dealt {
                settings.consumers = Consumers::Cooperative;
            } else {
                settings.max_simt_agents = Some(1);
            }
            warnings.truncate(before);
            let job = Job { settings: &settings, ..job.clone() };
            return self.serially_if_need_be(func, &job, state, warnings);
        }
        let mut stuck = match first {
            Err(found) if may_run_serially(&found, job) => found,
            // Tiles on their way to stores through TMA take memory as well: without them it may suffice. If not, without overlap.
            Err(found) if job.settings.tma_rewrite && stuck_for_memory(&found) => {
                let mut settings = job.settings.clone();
                settings.tma_rewrite = false;
                warnings.truncate(before);
                match self.through(func, &Job { settings: &settings, ..job.clone() }, state, warnings) {
                    Err(_) if is_free(job) => found,
                    Err(_) => return Err(found),
                    done => return done,
                }
            }
            done => return done,
        };
        let mut settings = job.settings.clone();
        settings.tma_rewrite &= !stuck_for_memory(&stuck);
        // The order in which agents take their iterations was not asked for. Perhaps it is the one that needs few registers
        // which does not work.
        if settings.spill_budget.is_none() && state.schedule.as_ref().is_some_and(is_ordered) {
            settings.spill_budget = Some(u32::MAX);
            warnings.truncate(before);
            stuck = match self.through(func, &Job { settings: &settings, ..job.clone() }, state, warnings) {
                Err(found) if may_run_serially(&found, job) || stuck_for_memory(&found) => found,
                done => return done,
            };
            settings.spill_budget = None;
        }
        settings.scheduler = SchedulerChoice::Serial;
        warnings.truncate(before);
        let why = stuck.clone();
        warnings.extend(stuck.into_iter().take(1).map(|e| {
            let text = "the loops of the kernel run one iteration after the other";
            CodegenError::new(Code::W0406, e.location, text).note(Loc::NONE, e.message)
        }));
        let last = self.through(func, &Job { settings: &settings, ..job.clone() }, state, warnings);
        match last {
            // Who needs more memory even so is told of the kernel as it was wanted.
            Err(_) if stuck_for_memory(&why) => Err(why),
            done => done,
        }
    }

    /// An attempt with the kernel prepared as the steps have it; without loads through TMA, then with loops as they were, if
    /// there is no room for it like that.
    pub(super) fn prepared(
        &mut self,
        func: &Function,
        job: &Job<'_>,
        warnings: &mut Vec<CodegenError>,
        attempt: &mut Attempt<'_>,
    ) -> Result<(), Errors> {
        let &Job { isa, settings, .. } = job;
        let all = settings.prepare_options(isa);
        let asked = PrepareOptions {
            views: job.does(Step::Views),
            canonical: job.does(Step::Canonical),
            tma: all.tma && job.does(Step::LowerTma),
            boxes: job.does(Step::Boxes),
            tight: job.tight,
            ..all
        };
        let legal = legalize(func, &mut self.prepare.spare)?;
        if let Some(legal) = &legal {
            verify_pass(legal, settings, "legalize")?;
        }
        let func = legal.as_ref().unwrap_or(func);
        let (mut options, before) = (asked, warnings.len());
        loop {
            let prepared = prepare(func, isa, &options, &mut self.prepare);
            if let Some(changed) = prepared.func.as_ref().filter(|_| options.boxes) {
                verify_pass(changed, settings, "prepare")?;
            }
            let done = attempt(self, prepared.func.as_ref().unwrap_or(func), warnings);
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
}

/// Whether what was found is that agents wait for each other, or overtake each other, under a schedule that was not asked
/// for, or that its local stages cannot be written or followed. Constraints do not forbid the serial one: with one
/// stage groups share it, no depth is exceeded, and nothing overlaps itself.
fn may_run_serially(found: &[CodegenError], job: &Job<'_>) -> bool {
    let codes = [Code::E0606, Code::E0701, Code::E0702, Code::E0703, Code::E0706, Code::E0711];
    is_free(job) && !found.is_empty() && found.iter().all(|e| codes.contains(&e.code))
}

/// Whether another order than the one found is as good to who asks.
fn is_free(job: &Job<'_>) -> bool {
    let asked = job.settings.scheduler == SchedulerChoice::Serial;
    job.does(Step::Schedule) && !asked && !job.settings.require_pipelining
}

/// Whether an error says that memory or registers do not suffice.
fn is_room(code: Code) -> bool {
    matches!(code, Code::E0507 | Code::E0508 | Code::E0602 | Code::E0603)
}

fn stuck_for_memory(found: &[CodegenError]) -> bool {
    found.iter().all(|e| e.code == Code::E0602)
}

/// Whether ops of some loop are in an order that registers asked for.
fn is_ordered(analysis: &ScheduleAnalysis) -> bool {
    let rounds = analysis.regions.iter().flat_map(|r| &r.schedule.rounds);
    rounds.filter(|r| r.kept).flat_map(|r| &r.added).any(|a| a.family == Family::RegisterPressure)
}
