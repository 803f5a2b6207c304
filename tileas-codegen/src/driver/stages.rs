//! A kernel on its way to agents, a type for each point: [`Planned`] → [`Placed`] → [`Scheduled`] → [`Buffered`].
//!
//! In: a prepared function. Out: the materialised one. Each type owns the one before it, which cannot be changed, so what is known
//! of a function cannot be handed on with another function, or with an older state of it. A kernel that goes no further
//! leaves what it has in [`KernelState`].

use super::refine::Refiner;
use super::result::KernelState;
use super::unheeded;
use crate::agents::turns::{INSTANCES, dealt_loop};
use crate::agents::{self, Agent, AgentKind, AgentOptions, AgentPlan, plan_agents};
use crate::buffers::{BufferAssignment, assign_buffers_in};
use crate::constraints::ConstraintMap;
use crate::ddg::refine::{Constraint, Extra};
use crate::ddg::{Pass, Products, ScheduleAnalysis, ScheduledRegion, Scheduler, schedule_pass};
use crate::error::{Code, CodegenError, CodegenResult, Errors, Loc};
use crate::ir::layouts::registers_per_thread;
use crate::ir::{Function, Op, Opcode};
use crate::isa::{AccAllocation, TargetIsa};
use crate::materialize::{MaterializeScratch, materialize_in};
use crate::pass::legalize;
use crate::place::pressure::RESERVE;
use crate::place::{self, place_in};
use crate::schedule::{SchedulerChoice, SearchSteps};
use crate::settings::{Consumers, Settings};
use crate::storage::classify::{Classes, SmemOperand, ValueClass, classify, is_product};
use crate::storage::{self, Storage};

/// How far a kernel had come when it was handed in.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Form {
    /// Tiles are values; all stages lie ahead.
    Value,
    /// Pipelines and agents exist; lowering comes next.
    Materialized,
}

impl Form {
    /// The form of a kernel: materialised if it switches agents or declares its threads.
    pub fn of(func: &Function) -> Form {
        let switches = func.block_ops(func.entry()).any(|op| {
            matches!(func.opcode(op), Opcode::AsyncPipelineAgentSwitch | Opcode::AsyncPipelineCreatePipeline)
        });
        let threads = func.attrs.get(crate::ir::keys::NUM_THREADS).is_some();
        if switches || threads { Form::Materialized } else { Form::Value }
    }
}

/// Why a kernel is not materialised.
pub(super) enum Refusal {
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

/// What schedules are searched with.
pub(super) struct Search<'a> {
    pub isa: &'a dyn TargetIsa,
    pub settings: &'a Settings,
    /// Those of the placed function.
    pub constraints: &'a mut ConstraintMap,
    pub scheduler: &'a mut Scheduler,
    /// What the searches of the function have left.
    pub steps: &'a mut SearchSteps,
}

impl Search<'_> {
    /// Schedules every innermost loop under the constraints of the function and those that were added to them; loops with the same
    /// ones as before keep the schedule of before.
    pub fn schedule(
        &mut self,
        at: &Placed,
        storage: &Storage,
        extra: &Extra,
        before: Option<&ScheduleAnalysis>,
    ) -> CodegenResult<ScheduleAnalysis> {
        self.schedule_for(at, storage, extra, before, None)
    }

    fn schedule_for(
        &mut self,
        at: &Placed,
        storage: &Storage,
        extra: &Extra,
        before: Option<&ScheduleAnalysis>,
        products: Option<Products<'_>>,
    ) -> CodegenResult<ScheduleAnalysis> {
        let Search { isa, settings, constraints, scheduler, steps } = self;
        let extra =
            &Extra { fuse_reads: settings.fuse_reads, clustered: settings.cluster > 1, ..extra.clone() };
        let pass = Pass { storage, extra, steps, before, products };
        let options = settings.schedule_options();
        schedule_pass(&at.func, &at.plan, constraints, *isa, scheduler, &options, pass)
    }

    /// The first schedules, and what was asked for before they were made.
    fn first(
        &mut self,
        at: &Placed,
        storage: &Storage,
    ) -> CodegenResult<(ScheduleAnalysis, Vec<Constraint>)> {
        let settings = self.settings;
        let mut asked = Vec::new();
        let budget = |agent| at.registers_for_tiles(settings, agent);
        let refines = settings.scheduler != SchedulerChoice::Serial && settings.max_constraint_iterations > 0;
        let products = refines.then_some(Products { budget: &budget, asked: &mut asked });
        let schedule = self.schedule_for(at, storage, &Extra::default(), None, products)?;
        Ok((schedule, asked))
    }

    /// Storage, channels, depths and memory for schedules.
    pub fn buffers(
        &self,
        at: &Placed,
        storage: &Storage,
        schedule: &ScheduleAnalysis,
    ) -> CodegenResult<BufferAssignment> {
        assign_buffers_in(
            &at.func,
            &at.plan,
            storage,
            schedule,
            self.isa,
            &self.settings.buffer_options(self.isa),
        )
    }
}

/// A prepared kernel, and who runs which op.
pub(super) struct Planned<'f> {
    func: &'f Function,
    classes: Classes,
    plan: AgentPlan,
    /// The placed function, and its plan, where the plan was chosen by them.
    placed: Option<(Function, AgentPlan)>,
    /// A function whose memory is used again.
    spare: Option<Function>,
}

impl<'f> Planned<'f> {
    /// `spare`: a function whose memory is used again.
    pub fn of(
        func: &'f Function,
        isa: &dyn TargetIsa,
        settings: &Settings,
        mut spare: Option<Function>,
    ) -> Result<Planned<'f>, Refusal> {
        let classes = classify(func, isa.acc_home()).map_err(Refusal::room)?;
        let mut options = settings.agent_options();
        if let Some(planned) = in_turns(func, &classes, isa, settings, options, &mut spare)? {
            let (plan, placed) = planned;
            return Ok(Planned { func, classes, plan, placed, spare });
        }
        if settings.simt_warps.is_none() {
            options.simt_warps = options.simt_warps.max(product_warps(func, isa));
        }
        if let Some((plan, placed)) = fed(func, &classes, isa, settings, options, &mut spare) {
            return Ok(Planned { func, classes, plan, placed, spare });
        }
        let plan = plan_agents(func, &classes, isa, &options).map_err(Refusal::room)?;
        let (plan, placed) = match settings.simt_warps {
            None if place::pressure::is_wide(func, &classes) => {
                let (plan, placed, _) =
                    wider(func, &classes, plan, isa, settings, options, crate::plan::MOST_WARPS, &mut spare);
                (plan, placed)
            }
            _ => (plan, None),
        };
        Ok(Planned { func, classes, plan, placed, spare })
    }

    pub fn place(self, isa: &dyn TargetIsa, settings: &Settings) -> Result<Placed, Refusal> {
        let (func, plan) = match self.placed {
            Some(placed) => placed,
            None => {
                let options = settings.place_options();
                place_in(self.func, &self.classes, self.plan, isa, &options, self.spare)
                    .map_err(Refusal::room)?
            }
        };
        check_accumulators(&func, &plan, isa).map_err(Refusal::room)?;
        Ok(Placed { func, plan })
    }

    pub fn leave(self, state: &mut KernelState) {
        state.plan = Some(self.plan);
    }
}

/// Who runs what, and the kernel placed for that.
type Chosen = (AgentPlan, Option<(Function, AgentPlan)>);

/// The plan in which warpgroups take turns, where they can and registers suffice.
fn in_turns(
    func: &Function,
    classes: &Classes,
    isa: &dyn TargetIsa,
    settings: &Settings,
    options: AgentOptions,
    spare: &mut Option<Function>,
) -> Result<Option<Chosen>, Refusal> {
    let asked = settings.consumers == Consumers::PingPong;
    let group = isa.machine().limits.warpgroup_warps.max(1);
    let free = settings.simt_warps.is_none_or(|n| n == group)
        && settings.max_simt_agents.is_none_or(|n| n == 1)
        && settings.pipeline_strategy.specializes(isa);
    if settings.consumers == Consumers::Cooperative || !asked && !free {
        return Ok(None);
    }
    let refusal = |at: Option<Op>, why: &str| {
        let loc = at.map_or(func.loc, |op| func.op_loc(op));
        let text = format!("warpgroups cannot take turns (option consumers): {why}");
        Refusal::Other(CodegenError::new(Code::E0508, loc, text).into())
    };
    match dealt_loop(func, classes, isa) {
        Err((at, why)) if asked => return Err(refusal(at, why)),
        Err(_) => return Ok(None),
        Ok(_) if !free => {
            return Err(refusal(None, "it goes with one agent of one warpgroup, and one that loads"));
        }
        Ok(_) => {}
    }
    let options =
        AgentOptions { simt_warps: group, max_simt_agents: Some(1), instances: INSTANCES, ..options };
    let planned = plan_agents(func, classes, isa, &options).ok().and_then(|plan| {
        let (plan, placed, lacks) = wider(func, classes, plan, isa, settings, options, group, spare);
        (lacks == 0).then_some((plan, placed))
    });
    match planned {
        None if asked => Err(refusal(None, "a warpgroup has too few registers for a whole tile")),
        planned => Ok(planned),
    }
}

/// The plan in which one agent makes operands for another that multiplies, where they can and registers suffice. On an H100 that takes 0.5 to 0.9 of the time
/// of one agent that does both in turns, gathers and conversions alike. With one warpgroup that multiplies it takes 1.1 of it: then several CTAs fit on a
/// processor, and one multiplies while another loads.
fn fed(
    func: &Function,
    classes: &Classes,
    isa: &dyn TargetIsa,
    settings: &Settings,
    options: AgentOptions,
    spare: &mut Option<Function>,
) -> Option<Chosen> {
    let made = |o: &SmemOperand| is_product(func, o.op) && classes.class(o.value) == ValueClass::Reg;
    let one = options.max_simt_agents == Some(1)
        || options.simt_warps <= isa.machine().limits.warpgroup_warps
        || !settings.pipeline_strategy.specializes(isa);
    if one || isa.acc_home().allocation != AccAllocation::Registers || !classes.operands.iter().any(made) {
        return None;
    }
    let options = AgentOptions { feeder: true, ..options };
    let plan = plan_agents(func, classes, isa, &options).ok()?;
    if plan.all(AgentKind::Simt).count() < 2 {
        return None;
    }
    let (plan, placed, lacks) = wider(func, classes, plan, isa, settings, options, options.simt_warps, spare);
    let fits = placed.as_ref().is_some_and(|(func, plan)| check_accumulators(func, plan, isa).is_ok());
    (lacks <= MAY_LACK && fits).then_some((plan, placed))
}

/// Registers that an agent which only multiplies may lack by the estimate for one that computes too: with ptxas 13.5 one with 64 registers of sums takes 96.
const MAY_LACK: u32 = 48;

/// Warps that multiply together, where accumulators are in their registers: two warpgroups where there are rows for both. While one waits for
/// its product, or computes with it, the tensor core has the other's.
fn product_warps(func: &Function, isa: &dyn TargetIsa) -> u32 {
    if isa.acc_home().allocation != AccAllocation::Registers {
        return 0;
    }
    let group = isa.machine().limits.warpgroup_warps.max(1);
    let products = func.ops().filter(|&op| is_product(func, op));
    let rows = products.filter_map(|op| func.value_data(func.result(op)?).dims()?.first().copied()).min();
    // Sixteen rows for each warp.
    rows.map_or(0, |rows| (rows / 16).clamp(group, 2 * group))
}

/// The plan with the fewest warps, at most so many, and with these the widest slices, whose registers suffice for the tiles that are alive together; where
/// none does, the one that lacks least, and how many that lacks.
#[expect(clippy::too_many_arguments, reason = "what a plan is made from")]
fn wider(
    func: &Function,
    classes: &Classes,
    plan: AgentPlan,
    isa: &dyn TargetIsa,
    settings: &Settings,
    mut options: AgentOptions,
    most: u32,
    spare: &mut Option<Function>,
) -> (AgentPlan, Option<(Function, AgentPlan)>, u32) {
    let mut best = (plan, None);
    let mut lacks = u32::MAX;
    while options.simt_warps <= most {
        let Ok(plan) = plan_agents(func, classes, isa, &options) else { break };
        let budget = registers(&plan, settings);
        let in_registers = isa.acc_home().allocation == AccAllocation::Registers;
        let mut place = settings.place_options();
        let mut before = u32::MAX;
        loop {
            match place_in(func, classes, plan.clone(), isa, &place, spare.take()) {
                Ok((placed, its_plan)) => {
                    // Descriptors, and operands on their way, beside accumulators: seen with ptxas 13.5.
                    let beside = if in_registers { 32 } else { 0 };
                    let peak = place::pressure::peak(&placed, &its_plan, options.simt_warps, beside);
                    let mut missing = peak.saturating_sub(budget);
                    let (mut plan, mut its_plan) = (plan.clone(), its_plan);
                    if missing > 0 && agents::raise(&mut plan, peak + place::pressure::RESERVE, isa, &options)
                    {
                        its_plan.take_budget(&plan);
                        missing = peak.saturating_sub(registers(&plan, settings));
                    }
                    // Thinner slices, as long as there can be some and they help.
                    let cuts = missing > 0 && place::pressure::is_sliceable(&placed);
                    if missing < lacks {
                        lacks = missing;
                        let before = std::mem::replace(&mut best, (plan, Some((placed, its_plan))));
                        *spare = before.1.map(|worse| worse.0);
                    } else {
                        *spare = Some(placed);
                    }
                    if missing == 0 {
                        return (best.0, best.1, 0);
                    }
                    if !cuts || peak >= before || place.slice_regs <= LEAST_SLICE {
                        break;
                    }
                    before = peak;
                }
                Err(e) if e.code == Code::E0507 => break,
                Err(_) => return (best.0, best.1, lacks),
            }
            place.slice_regs /= 2;
        }
        options.simt_warps *= 2;
    }
    (best.0, best.1, lacks)
}

/// An accumulator in registers is there as a whole, with what its instruction needs beside it.
fn check_accumulators(placed: &Function, plan: &AgentPlan, isa: &dyn TargetIsa) -> CodegenResult<()> {
    if isa.acc_home().allocation != AccAllocation::Registers {
        return Ok(());
    }
    for op in placed.ops().filter(|&op| is_product(placed, op)) {
        let (Some(v), Some(agent)) = (placed.result(op), plan.op_agent[op].expand()) else { continue };
        let (data, info) = (placed.value_data(v), &plan.agents[agent]);
        let has = if info.max_regs > 0 { info.max_regs } else { plan.entry_reg_cap };
        let (Some(layout), Some(dims), Some(elem)) = (data.layout(), data.dims(), data.elem()) else {
            continue;
        };
        let takes = registers_per_thread(layout, dims, elem, info.warps).unwrap_or(u32::MAX);
        if takes.saturating_add(BESIDE_ACCUMULATOR) > has {
            return Err(CodegenError::new(
                Code::E0507,
                placed.op_loc(op),
                format!(
                    "{data} takes {takes} registers of each of {} threads, which have {has}",
                    info.warps * 32
                ),
            )
            .note(Loc::NONE, "smaller tiles, or other numbers of warps and agents, make room"));
        }
    }
    Ok(())
}

/// Registers that a product takes beside its accumulator: measured with ptxas 13.5.
const BESIDE_ACCUMULATOR: u32 = 24;

/// Registers of a thread that tiles may take.
fn registers(plan: &AgentPlan, settings: &Settings) -> u32 {
    let own = plan.agents.values().next().map_or(0, |a| a.max_regs).max(plan.entry_reg_cap);
    own.min(settings.max_regs.unwrap_or(u32::MAX)).saturating_sub(place::pressure::RESERVE)
}

/// Registers of a tile below which slices are not cut for want of registers.
const LEAST_SLICE: u32 = 16;

/// A kernel with every tile in its space and layout, and who runs which op of it.
pub(super) struct Placed {
    func: Function,
    plan: AgentPlan,
}

impl Placed {
    /// Registers per thread of an agent.
    pub fn registers(&self, settings: &Settings, agent: u32) -> u32 {
        let plan = &self.plan;
        let info = &plan.agents[Agent::from_u32(agent)];
        let cap = if info.max_regs > 0 { info.max_regs } else { plan.entry_reg_cap };
        settings.max_regs.map_or(cap, |n| cap.min(n))
    }

    /// Registers per thread that tiles of an agent may take: three quarters. The others are for addresses, loop control and
    /// what the assembler computes ahead. Where products hold their tiles in place it does so less: all but as many as placement reserves.
    pub fn registers_for_tiles(&self, settings: &Settings, agent: u32) -> u32 {
        let (func, plan, cap) = (&self.func, &self.plan, self.registers(settings, agent));
        let agent = Agent::from_u32(agent);
        let multiplies =
            func.ops().any(|op| is_product(func, op) && plan.op_agent[op].expand() == Some(agent));
        let tiles = (cap + 1) * 3 / 4;
        let tiles = if multiplies { tiles.max(cap.saturating_sub(RESERVE)) } else { tiles };
        settings.spill_budget.unwrap_or(tiles)
    }

    pub fn func(&self) -> &Function {
        &self.func
    }

    pub fn plan(&self) -> &AgentPlan {
        &self.plan
    }

    /// `source`: the kernel as it was prepared. Warns about attributes of its ops that schedules do not heed.
    pub fn schedule(
        self,
        source: &Function,
        search: &mut Search<'_>,
        warnings: &mut Vec<CodegenError>,
    ) -> Result<Scheduled, Refusal> {
        // Inherent attributes travel with clones: the placed ops have keys of their own.
        let mode = search.settings.constraint_mode;
        search.constraints.parse(&self.func, self.func.ops(), mode, &mut Vec::new());
        let storage = Storage::of(&self.func, &self.plan).map_err(Refusal::room)?;
        let (schedule, given) = search.first(&self, &storage)?;
        warnings.extend(unheeded::unheeded(
            source,
            &self.func,
            search.constraints,
            &schedule,
            search.settings.fuse_reads,
        ));
        Ok(Scheduled { placed: self, storage, schedule, given })
    }

    pub fn leave(self, state: &mut KernelState) {
        (state.placed, state.plan) = (Some(self.func), Some(self.plan));
    }
}

/// A placed kernel with starts for the ops of its innermost loops.
pub(super) struct Scheduled {
    placed: Placed,
    storage: Storage,
    schedule: ScheduleAnalysis,
    /// What products asked for before it was made.
    given: Vec<Constraint>,
}

impl Scheduled {
    /// Assigns storage, channels, depths and memory, then goes through the rounds in which loops are scheduled again
    /// for what that showed; see [`super::refine`].
    pub fn buffers(self, search: Search<'_>) -> Result<Buffered, Refusal> {
        let Scheduled { placed, storage, mut schedule, mut given } = self;
        let mut search = search;
        let refined = || {
            let mut buffers = search.buffers(&placed, &storage, &schedule);
            if buffers.is_err() && !given.is_empty() {
                given.clear();
                schedule = search.schedule(&placed, &storage, &Extra::default(), None)?;
                buffers = search.buffers(&placed, &storage, &schedule);
            }
            let buffers = buffers?;
            storage::check::check(&placed.func, &buffers.webs, &buffers.rings())?;
            Refiner { placed: &placed, storage: &storage, search }.run(schedule, buffers, given)
        };
        let (schedule, buffers) = refined().map_err(Refusal::room)?;
        Ok(Buffered { placed, schedule, buffers })
    }

    pub fn leave(self, state: &mut KernelState, warnings: &mut Vec<CodegenError>) {
        self.placed.leave(state);
        warnings.extend(self.schedule.warnings.iter().cloned());
        state.schedule = Some(self.schedule);
    }
}

/// A scheduled kernel with storage and channels that fit the schedules.
pub(super) struct Buffered {
    placed: Placed,
    schedule: ScheduleAnalysis,
    buffers: BufferAssignment,
}

impl Buffered {
    /// Checks that the schedule is legal, then writes pipelines and one region per agent.
    pub fn materialize(
        &self,
        isa: &dyn TargetIsa,
        settings: &Settings,
        scratch: &mut MaterializeScratch,
        warnings: &mut Vec<CodegenError>,
    ) -> Result<Function, Refusal> {
        let Buffered { placed: Placed { func, plan }, schedule, buffers } = self;
        warnings.extend(truncated(func, schedule, settings));
        legalize(func, plan, schedule, buffers, isa)?;
        Ok(materialize_in(func, plan, schedule, buffers, settings.materialize_options(), scratch)?)
    }

    pub fn leave(self, state: &mut KernelState, warnings: &mut Vec<CodegenError>) {
        self.placed.leave(state);
        warnings.extend(self.schedule.warnings.iter().cloned());
        (state.schedule, state.buffers) = (Some(self.schedule), Some(self.buffers));
    }
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
