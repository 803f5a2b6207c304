//! Budgets of a function's agents: checked always, kept by planned spills where they are exceeded.
//!
//! In: a function the verifier accepts, what its threads have at entry, the mode. Out: an [`AgentReport`] per agent that
//! does not fit, and, in [`Mode::Plan`], the function rewritten so that it does. Where something exceeds a budget, cheap values
//! are made where they are used first ([`sink`]). In the common case — everything fits —
//! this costs one liveness analysis and one walk, or, for functions with few registers, a sum.

use super::agents::{AgentFinder, differ};
use super::plan::{NoPlan, Planner};
use super::pressure::{AgentRange, PTXAS_RESERVE, Pressure, PressureScratch};
use super::remat::Remat;
use super::rewrite::{SharedRoom, SpillStats, rewrite};
use super::sink;
use crate::error::{Code, CodegenError, Loc};
use crate::nvvm::Liveness;
use crate::nvvm::passes::{CleanupStats, dce, memory};
use crate::nvvm::{Bb, Function};

/// What to do about agents over their budget.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Report them and leave spilling to the assembler.
    #[default]
    Report,
    /// Plan spills; report what still does not fit.
    Plan,
}

/// Options of [`Allocator::run`].
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct RegallocOptions {
    /// What to do about agents over their budget.
    pub mode: Mode,
    /// Registers per thread at entry. Default: 255.
    pub cap: u32,
    /// Registers kept free for the assembler. Default: [`PTXAS_RESERVE`].
    pub reserve: u32,
    /// Shared memory for spilled values. Default: none.
    pub shared: Option<SharedRoom>,
}

impl Default for RegallocOptions {
    fn default() -> Self {
        RegallocOptions { mode: Mode::Report, cap: 255, reserve: PTXAS_RESERVE, shared: None }
    }
}

/// An agent over its budget.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentReport {
    /// Name of the agent; `frame` for what is around the agents.
    pub name: String,
    /// Registers per thread it may use.
    pub max_regs: u32,
    /// Its peak as it came.
    pub before: Pressure,
    /// Its peak as it was left.
    pub after: Pressure,
    /// Registers by which that and the reserve still exceed the budget.
    pub over: u32,
    /// What was inserted, or why nothing was; `None` in [`Mode::Report`].
    pub outcome: Option<Result<SpillStats, NoPlan>>,
}

impl AgentReport {
    /// The warning for an agent that still does not fit; `None` where planning helped.
    pub fn warning(&self, func: &Function) -> Option<CodegenError> {
        if self.over == 0 {
            return None;
        }
        let place = match self.after.at {
            Some(i) => format!(" at `{}`", func.op(i)),
            None => String::new(),
        };
        let text = format!(
            "kernel @{}: agent `{}` has {} registers live{place}, {} more than the {} that it may use: its budget of {} without what is kept free \
             (`tune.register-reserve`)",
            func.name,
            self.name,
            self.after.units,
            self.over,
            self.after.units.saturating_sub(self.over),
            self.max_regs
        );
        Some(match &self.outcome {
            Some(Err(why)) => {
                CodegenError::new(Code::W0904, Loc::NONE, text).note(Loc::NONE, why.to_string())
            }
            _ => CodegenError::new(Code::W0903, Loc::NONE, text)
                .note(Loc::NONE, "options are `max-regs`, `regalloc`, `slice-regs`, `max-simt-agents`"),
        })
    }
}

/// Whether all agents keep their budgets.
fn keeps(
    pressure: &mut PressureScratch,
    finder: &mut AgentFinder,
    func: &Function,
    liveness: &Liveness,
    options: &RegallocOptions,
) -> bool {
    let mut fits = |blocks: &[Bb], budget: u32| {
        let Some(room) = budget.checked_sub(options.reserve) else { return false };
        let exceeds = pressure.exceeds(func, liveness, blocks, room);
        if cfg!(debug_assertions) {
            let more = pressure.peak(func, liveness, blocks).units > room;
            assert!(exceeds == more || exceeds && liveness.is_traced(), "the two walks disagree");
        }
        !exceeds
    };
    // Who has which blocks matters only where budgets differ.
    match differ(func, options.cap) {
        false => fits(func.layout(), options.cap),
        true => finder.find(func, options.cap).iter().all(|a| fits(&a.blocks, a.max_regs)),
    }
}

/// Whether all registers of a function fit together. A budget below the cap needs a `setmaxnreg`, which only agents have.
fn is_small(func: &Function, options: &RegallocOptions) -> bool {
    let total: u32 = func.reg_ty.values().map(|ty| ty.units()).sum();
    total.saturating_add(options.reserve) <= options.cap
        && !func.layout().iter().any(|&bb| func.blocks[bb].agent)
}

/// Plans for one agent are made at most this often, each time for what the last one was still over.
const ROUNDS: u32 = 8;

/// Checks and keeps register budgets; reuse one per thread.
#[derive(Default)]
pub struct Allocator {
    liveness: Liveness,
    /// `liveness` is that of the function as the last run left it.
    current: bool,
    pressure: PressureScratch,
    finder: AgentFinder,
    /// Made when first needed: most functions fit.
    heavy: Option<Box<Heavy>>,
}

#[derive(Default)]
struct Heavy {
    planner: Planner,
    remat: Remat,
    dce: dce::DceScratch,
}

impl Allocator {
    /// Checks all agents of a function and, in [`Mode::Plan`], rewrites it where they do not fit.
    pub fn run(&mut self, func: &mut Function, options: &RegallocOptions) -> Vec<AgentReport> {
        self.current = false;
        if is_small(func, options) {
            return Vec::new();
        }
        self.liveness.recompute(func);
        self.current = true;
        if keeps(&mut self.pressure, &mut self.finder, func, &self.liveness, options) {
            return Vec::new();
        }
        let agents = self.finder.find(func, options.cap);
        let (before, was) = (func.clone(), self.over(func, &agents, options));
        if sink::run(func) {
            self.liveness.recompute(func);
            match self.over(func, &agents, options) {
                0 => return Vec::new(),
                now if now < was => {}
                _ => {
                    *func = before;
                    self.liveness.recompute(func);
                }
            }
        }
        let local_base = func.local_bytes;
        let mut reports = Vec::new();
        for agent in &agents {
            let before = self.pressure.peak(func, &self.liveness, &agent.blocks);
            let over = before.units.saturating_add(options.reserve).saturating_sub(agent.max_regs);
            if over == 0 {
                continue;
            }
            let mut report = AgentReport {
                name: agent.name.clone(),
                max_regs: agent.max_regs,
                before,
                after: before,
                over,
                outcome: None,
            };
            if options.mode == Mode::Plan {
                self.plan(func, agent, options, local_base, &mut report);
                self.liveness.recompute(func);
            }
            reports.push(report);
        }
        reports
    }

    /// Whether [`Allocator::run`] would find nothing to do, for a function whose liveness is known.
    pub(crate) fn fits(&mut self, func: &Function, liveness: &Liveness, options: &RegallocOptions) -> bool {
        is_small(func, options) || keeps(&mut self.pressure, &mut self.finder, func, liveness, options)
    }

    /// Registers by which agents exceed their budgets, all together.
    fn over(&mut self, func: &Function, agents: &[AgentRange], options: &RegallocOptions) -> u32 {
        let over = |a: &AgentRange| {
            let peak = self.pressure.peak(func, &self.liveness, &a.blocks);
            peak.units.saturating_add(options.reserve).saturating_sub(a.max_regs)
        };
        agents.iter().map(over).fold(0, u32::saturating_add)
    }

    /// The liveness of the function as the last run left it, where that needed it.
    pub(crate) fn liveness(&self) -> Option<&Liveness> {
        self.current.then_some(&self.liveness)
    }

    fn plan(
        &mut self,
        func: &mut Function,
        agent: &AgentRange,
        options: &RegallocOptions,
        local_base: u32,
        report: &mut AgentReport,
    ) {
        let Heavy { planner, remat, dce } = &mut **self.heavy.get_or_insert_default();
        let goal = agent.max_regs.saturating_sub(options.reserve);
        // The allocator spills before all its registers are taken; what counts is the pressure of what it leaves.
        let mut units = goal + goal / 6;
        let mut best: Option<(Function, Pressure, SpillStats)> = None;
        for _ in 0..ROUNDS {
            let plan = match planner.plan(func, &self.liveness, &agent.blocks, units) {
                Ok(plan) => plan,
                Err(why) => {
                    report.outcome = Some(Err(why));
                    break;
                }
            };
            remat.scan(func);
            let mut new = func.clone();
            let old_blocks = new.blocks.len();
            let (mut stats, own) =
                rewrite(&mut new, &planner.names, remat, &plan, &agent.blocks, options.shared, local_base);
            dce::run(&mut new, dce, &mut CleanupStats::default());
            let mut blocks = agent.blocks.clone();
            blocks.extend((old_blocks..new.blocks.len()).map(|i| Bb::from_u32(i as u32)));
            // A granule is stored and loaded whole each time one of its members is written or read.
            let spared = memory::run(&mut new, &blocks, own);
            stats.stores = stats.stores.saturating_sub(spared.stores);
            stats.reloads = stats.reloads.saturating_sub(spared.loads);
            let after = self.pressure.peak(&new, &Liveness::compute(&new), &blocks);
            let excess = after.units.saturating_sub(goal);
            if excess == 0 || best.as_ref().is_none_or(|(_, b, _)| after.units < b.units) {
                best = Some((new, after, stats));
            }
            // Fewer registers for the next plan by what this one is over.
            if excess == 0 || units <= excess {
                break;
            }
            units -= excess;
        }
        if let Some((new, after, stats)) = best
            && after.units < report.before.units
        {
            *func = new;
            report.after = after;
            report.over = after.units.saturating_sub(goal);
            report.outcome = Some(Ok(stats));
        } else if report.outcome.is_none() {
            report.outcome = Some(Err(NoPlan::TooNarrow));
        }
    }
}
