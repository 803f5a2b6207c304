//! The scheduling problems of a placed function: one per innermost loop.
//!
//! In: placed IR, agents, constraints and the machine model. Out: a [`ScheduleAnalysis`]. For each `for` without a
//! loop inside, the body becomes a [`Problem`] and is scheduled; all other code keeps program order.
//!
//! Nodes are the ops of the body that an agent runs, in program order; a nested `if` is one node (see [`crate::storage::footprint`]).
//! Ops of no agent (constants, scalar index math) are left out: dependences lead through them at no cost. Edges:
//!
//! - SSA, through iteration arguments with one iteration of distance per argument;
//! - storage webs (see [`webs`]): what destination-form copies and in-place updates write and others read, and
//!   anti-dependences, with the latency for which the reader holds its source;
//! - memory order: ops on one view of which at least one writes, in program order and around the loop. Different view
//!   parameters do not alias. The instances of one op are ordered by their agent.
//!
//! Guarantees: zero-distance edges point forward in program order, so no zero-distance cycle exists; edges are unique
//! in (from, to, distance); output depends on the input alone. Cost: near linear in ops and edges.
//! Elsewhere: starts (the generators), slots of rings (`buffers`). Source: architecture page, "Scheduling".

mod analysis;
mod memory;
mod problem;
pub mod refine;
pub mod webs;

pub use analysis::{LoopSchedule, OpEdge, ScheduleAnalysis, ScheduledRegion};

use crate::agents::AgentPlan;
use crate::constraints::ConstraintMap;
use crate::error::{CodegenError, CodegenResult};
use crate::ir::{Function, Op, Opcode};
use crate::isa::TargetIsa;
use crate::schedule::{
    Allowance, CycleModel, Diagnostic, Generator, Node, Place, Problem, ScheduleOptions, SearchSteps,
};
use crate::storage::Storage;
use cranelift_entity::{EntitySet, PrimaryMap};
use memory::Memory;
use problem::Builder;
use refine::{Constraint, Extra};
use rustc_hash::FxHashMap;

/// A scheduler for the loops of functions, with the memory of building their problems.
#[derive(Default)]
pub struct Scheduler {
    loops: crate::schedule::Scheduler,
    memory: Memory,
}

impl Scheduler {
    /// A scheduler without memory of anything.
    pub fn new() -> Scheduler {
        Scheduler::default()
    }

    /// Keeps the allocations of an analysis that is needed no more for the next one.
    pub fn recycle(&mut self, analysis: ScheduleAnalysis) {
        self.memory.recycle(analysis);
    }
}

/// One pass over the loops of a function.
pub struct Pass<'a> {
    /// The storage of the function's tiles.
    pub storage: &'a Storage,
    /// Constraints that the function does not show.
    pub extra: &'a Extra,
    /// What its searches may use; less afterwards.
    pub steps: &'a mut SearchSteps,
    /// Schedules of an earlier pass with the same options and no more constraints: a loop whose problem is the same keeps
    /// its schedule, others are not searched for below its interval.
    pub before: Option<&'a ScheduleAnalysis>,
    /// Who is asked what the products of a loop need.
    pub products: Option<Products<'a>>,
}

/// What the products of a loop need follows from the problem: asked before the first schedule, it spares a second one.
pub struct Products<'a> {
    /// Registers per thread that tiles of an agent may take.
    pub budget: &'a dyn Fn(u32) -> u32,
    /// What was asked for and is in force.
    pub asked: &'a mut Vec<Constraint>,
}

/// Schedules the innermost loops of a placed function, as one of several passes that share their steps.
///
/// # Errors
/// `E0509` if the plan gives no agent to an op with effects, `E0221` for a copy between spaces that have no path,
/// and those of [`crate::schedule::Scheduler::schedule_into`].
pub fn schedule_pass(
    func: &Function,
    plan: &AgentPlan,
    constraints: &ConstraintMap,
    isa: &dyn TargetIsa,
    scheduler: &mut Scheduler,
    opts: &ScheduleOptions,
    pass: Pass<'_>,
) -> CodegenResult<ScheduleAnalysis> {
    let Pass { storage, extra, steps, before, mut products } = pass;
    let memory = std::mem::take(&mut scheduler.memory);
    let mut builder = Builder::new(func, plan, storage, constraints, isa.machine(), opts.cycle_model, memory);
    let mut analysis = builder.memory.analysis();
    let loops = innermost_loops(func);
    steps.begin(loops.iter().map(|&op| depth(func, op)));
    for (number, for_op) in loops.into_iter().enumerate() {
        let allowed = steps.grant(depth(func, for_op));
        let mut region = builder.region(for_op, number, extra)?;
        let mut asked = 0;
        if let Some(products) = &mut products {
            let before = products.asked.len();
            refine::overlaps(&region, products.budget, products.asked);
            asked = products.asked.len() - before;
            if asked > 0 {
                let mut more = extra.clone();
                products.asked[before..].iter().for_each(|c| more.add(c));
                builder.memory.again(region);
                region = builder.region(for_op, number, &more)?;
            }
        }
        if region.ops.is_empty() {
            // A loop of scalar math: agents that need its values run it.
            let mut empty = builder.memory.loop_schedule();
            (empty.ii, empty.stage_count, empty.serial, empty.model) = (1, 1, true, CycleModel::default());
            analysis.loops[for_op] = Some(empty);
            continue;
        }
        let earlier = before.and_then(|b| b.region(for_op));
        let pipelined = earlier.filter(|r| r.schedule.generator != Generator::Serial);
        let allowance = Allowance { steps: Some(allowed), floor: pipelined.map_or(0, |r| r.schedule.ii) };
        match earlier {
            Some(known) if known.problem.is_same(&region.problem) => {
                region.schedule = known.schedule.clone();
            }
            _ => {
                let mut schedule = |region: &mut ScheduledRegion| {
                    let ScheduledRegion { problem, schedule, .. } = region;
                    let done = scheduler.loops.schedule_within(problem, opts, allowance, schedule);
                    done.map(|_| steps.pay(schedule.stats.steps))
                };
                let mut done = schedule(&mut region);
                // Nothing overlaps in a serial loop, and what products need is no reason to refuse one.
                if asked > 0 && (done.is_err() || region.schedule.generator == Generator::Serial) {
                    if let Some(products) = &mut products {
                        products.asked.truncate(products.asked.len() - asked);
                    }
                    builder.memory.again(region);
                    region = builder.region(for_op, number, extra)?;
                    done = schedule(&mut region);
                }
                done.map_err(|e| located(func, for_op, &region.problem, &region.ops, e))?;
            }
        }
        let ScheduledRegion { problem, schedule, ops, fused, .. } = region;
        let mut result = builder.memory.loop_schedule();
        result.ii = schedule.ii;
        result.stage_count = schedule.stage_count;
        result.serial = schedule.generator == Generator::Serial;
        result.plain = problem.summary.is_some_and(|s| s.reads_ahead > 0);
        result.model = opts.cycle_model;
        let region = ScheduledRegion { for_op, schedule, problem, ops, fused };
        let schedule = &region.schedule;
        for (node, op) in region.scheduled() {
            analysis.node_of[op] = node.into();
            result.scheduled.push(op);
            result.order[op] = schedule.order[node];
            for_each_nested(func, op, &mut |inner| result.start[inner] = schedule.start[node]);
        }
        if !region.fused.is_empty() {
            rank_members(func, for_op, &mut result);
        }
        analysis.loops[for_op] = Some(result);
        let warnings = schedule.warnings.iter().cloned();
        let located = warnings.map(|w| located(func, for_op, &region.problem, &region.ops, w));
        analysis.warnings.extend(located);
        analysis.regions.push(region);
    }
    scheduler.memory = builder.memory;
    Ok(analysis)
}

/// What the scheduler says of a loop, at the op it is about; at the loop where it is about none.
fn located(
    func: &Function,
    for_op: Op,
    problem: &Problem,
    ops: &PrimaryMap<Node, Op>,
    said: Diagnostic,
) -> CodegenError {
    let node = match said.place {
        Place::Node(n) | Place::Use(n, _) | Place::PoolUse(n, _) => Some(n),
        Place::Edge(e) => problem.edges().get(e).map(|e| e.from),
        Place::Whole | Place::Text(_) | Place::Slot(_) | Place::Pool(_) => None,
    };
    let op = node.and_then(|n| ops.get(n)).copied().unwrap_or(for_op);
    let mut error = CodegenError::from(said);
    error.location = func.op_loc(op);
    error
}

/// Loops around a loop.
fn depth(func: &Function, for_op: Op) -> u32 {
    let above = std::iter::successors(func.op_parent(for_op), |&op| func.op_parent(op));
    above.filter(|&op| func.opcode(op) == Opcode::For).count() as u32
}

/// Program order of the scheduled ops, and a rank of its own for each op of a fused set.
fn rank_members(func: &Function, for_op: Op, result: &mut LoopSchedule) {
    let body = func.op_block_at(for_op, 0);
    let place: FxHashMap<Op, usize> =
        body.into_iter().flat_map(|b| func.block_ops(b)).enumerate().map(|(k, op)| (op, k)).collect();
    result.scheduled.sort_by_key(|op| place.get(op));
    let mut line = result.scheduled.clone();
    line.sort_by_key(|&op| result.order[op]);
    for (rank, op) in line.into_iter().enumerate() {
        result.order[op] = rank as u32;
    }
}

/// `for` ops without a `for` inside, in program order; loops over the slices of a register chain keep theirs. Not those with an
/// `exit_if`: what decides whether an iteration is run is known only when the one before has ended.
pub fn innermost_loops(func: &Function) -> Vec<Op> {
    let all = func.all_ops();
    let mut outer: EntitySet<Op> = EntitySet::new();
    for &op in all.iter().filter(|&&op| func.opcode(op) == Opcode::For) {
        let mut at = func.op_parent(op);
        // What is above a marked op is marked already.
        while let Some(parent) = at.filter(|&p| outer.insert(p)) {
            at = func.op_parent(parent);
        }
    }
    let innermost = |op: Op| {
        func.opcode(op) == Opcode::For
            && !outer.contains(op)
            && !func.is_slice_loop(op)
            && func.exit_of(op).is_none()
    };
    all.into_iter().filter(|&op| innermost(op)).collect()
}

/// Visits an op and everything inside it.
fn for_each_nested(func: &Function, op: Op, f: &mut impl FnMut(Op)) {
    f(op);
    for &r in func.regions(op) {
        func.walk(func.region_block(r), f);
    }
}
