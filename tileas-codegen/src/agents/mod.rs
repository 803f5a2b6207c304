//! Who runs what: assigns every op of a kernel to an agent and every agent to warps.
//!
//! In: a function in value form and the target. Out: an [`AgentPlan`]. TMA loads go to the *load* agent, matrix
//! multiplies to the *mma* agent, or, where whole warpgroups issue them, to a *simt* agent, register-tile ops (and the TMA stores of what they compute) to a *simt* agent,
//! TMA stores of tiles that never pass through registers to a *store* agent. Uniform ops, region ops and
//! terminators belong to no agent. A scalar read from memory belongs to the agent that needs it, or, where several do
//! or reading it changes memory, to a one-lane agent (`scalars`). No cycles and no start times are looked at here.
//!
//! Guarantees: agents are ordered simt, load, mma, store; only agents with ops exist; a simt agent starts
//! with a warpgroup (it may read tensor memory, or multiply). `setmaxnreg` is planned only where the registers
//! a thread has at kernel entry are too few, and only then are warps padded to whole warpgroups.
//! Cost: linear in the ops, but for the near-constant factor of union-find.

mod scalars;
pub mod turns;

use crate::error::{Code, CodegenError, CodegenResult, Loc};
use crate::ir::opcodes::Traits;
use crate::ir::{Function, Op, Opcode, Value};
use crate::isa::{AccAllocation, Completion, Feature, InOrder, Issue, MmaContract, TargetIsa};
pub use crate::plan::{Agent, AgentInfo, AgentKind, AgentPlan};
use crate::storage::classify::{self, Classes, ValueClass};
use crate::storage::components::Components;
use cranelift_entity::{EntityRef, EntitySet, PrimaryMap, SecondaryMap};
use smallvec::SmallVec;

/// Choices of `plan_agents`.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct AgentOptions {
    /// Warps of a simt agent; a power of two, four where it reads or writes tensor memory. Default: 4.
    pub simt_warps: u32,
    /// Most simt agents. Components of register ops (`storage::components`) may go to different agents; with fewer agents than components
    /// they are dealt out. Default: one, or two where there are two that compute, in loops, with products in tensor memory.
    pub max_simt_agents: Option<u32>,
    /// Registers per thread a slice of a register chain may take, see [`crate::place::PlaceOptions`]. Default: 64.
    pub slice_regs: u32,
    /// How loops become pipelines. Default: by target.
    pub strategy: PipelineStrategy,
    /// Whether one agent issues TMA loads and matrix multiplies. Default: no.
    pub light: bool,
    /// Registers per thread that the caller fixes for the whole kernel; then no agent asks for others. Default: none.
    pub max_regs: Option<u32>,
    /// Whether those who make operands, in loops with products onto registers, are a simt agent of their own. Default: no.
    pub feeder: bool,
    /// Warpgroups that take turns at the iterations of the outermost loop, where `turns` allows it. Default: 1.
    pub instances: u32,
}

/// How loops become pipelines.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Default)]
pub enum PipelineStrategy {
    /// Specialised where the target has TMA, else unspecialised.
    #[default]
    Auto,
    /// Not at all.
    None,
    /// Without agents for loads; one agent issues what engines execute.
    Unspecialized,
    /// An agent for each engine.
    WarpSpecialize,
}

/// How warpgroups that multiply share the work.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Default)]
pub enum Consumers {
    /// In turns where that is possible and fits, else together.
    #[default]
    Auto,
    /// All on one tile.
    Cooperative,
    /// Two in turns, each on a tile of its own.
    PingPong,
}

impl PipelineStrategy {
    /// Whether each engine has an agent of its own.
    pub fn specializes(self, isa: &dyn TargetIsa) -> bool {
        match self {
            PipelineStrategy::Auto => isa.features().has(Feature::Tma),
            PipelineStrategy::None | PipelineStrategy::WarpSpecialize => true,
            PipelineStrategy::Unspecialized => false,
        }
    }
}

impl Default for AgentOptions {
    fn default() -> Self {
        AgentOptions {
            simt_warps: 4,
            max_simt_agents: None,
            slice_regs: 64,
            strategy: PipelineStrategy::Auto,
            light: false,
            max_regs: None,
            feeder: false,
            instances: 1,
        }
    }
}

/// Agents among which components that compute with products are divided where nothing is said: with three a thread has 152 registers, and
/// tensor memory has no room for more accumulators of 128 columns with what is made of them.
const AGENTS_OF_PRODUCTS: u32 = 2;

/// Registers kept by warps that only issue asynchronous work, when `setmaxnreg` is used.
const ISSUER_REGS: u32 = 40;

/// The role of an op, if it has one.
fn role(func: &Function, classes: &Classes, issue: Issue, op: Op) -> Option<AgentKind> {
    match func.opcode(op) {
        Opcode::Dot | Opcode::AsyncDot if issue.is_lane() => Some(AgentKind::Mma),
        Opcode::Dot | Opcode::AsyncDot => Some(AgentKind::Simt),
        Opcode::AsyncTiledTmaLoad => Some(AgentKind::Load),
        Opcode::AsyncTiledTmaStore => {
            let from_load =
                func.named_operand(op, "source").is_some_and(|v| classes.class(v) == ValueClass::Smem);
            Some(if from_load { AgentKind::Store } else { AgentKind::Simt })
        }
        opcode if classify::is_register_op(func, op) && !opcode.has(Traits::TERMINATOR) => {
            Some(AgentKind::Simt)
        }
        _ => None,
    }
}

/// Assigns ops to agents and agents to warps.
///
/// # Errors
/// `E0501` for a kernel that is materialised already, `E0502` for multiplies that no stage can wait for, `E0508` where the
/// target has too few threads or registers.
pub fn plan_agents(
    func: &Function,
    classes: &Classes,
    isa: &dyn TargetIsa,
    opts: &AgentOptions,
) -> CodegenResult<AgentPlan> {
    let ops = &classes.ops;
    let mut roles: SecondaryMap<Op, Option<AgentKind>> = SecondaryMap::new();
    roles.resize(func.num_ops());
    let mut simt: Vec<Op> = Vec::with_capacity(ops.len());
    for &op in ops {
        let kind = role(func, classes, isa.mma_contract().issue, op);
        roles[op] = kind;
        if kind == Some(AgentKind::Simt) {
            simt.push(op);
        }
    }
    check_contract(func, ops, isa)?;
    let has = |kind| ops.iter().any(|&op| roles[op] == Some(kind));

    let components = Components::of(func, classes, &simt, &EntitySet::new());
    let feeders = if opts.feeder { components.feeders(func, classes, isa) } else { SmallVec::new() };
    let feeds = !feeders.is_empty();
    let (mut roots, most, widest) = match opts.max_simt_agents {
        // One that feeds, and one that multiplies and does all else.
        _ if feeds => (SmallVec::new(), 2, 0),
        Some(most) => (SmallVec::new(), most, 0),
        // Where nothing is said, those that compute with the products of a loop are dealt out first.
        None => {
            let (roots, widest) = components.in_loops(func, classes, isa);
            let most = (roots.len() as u32).clamp(1, AGENTS_OF_PRODUCTS);
            (roots, most, widest)
        }
    };
    for &op in &simt {
        let root = components.root(op);
        if !roots.contains(&root) {
            roots.push(root);
        }
    }
    // An accumulator that starts from registers needs someone to write it, even without any register op.
    let writes = (0..classes.ties.len()).any(|n| classify::tie_needs_write(func, classes, n));
    let simt_count = if simt.is_empty() {
        usize::from(writes || classes.operands.iter().any(|o| classes.class(o.value) != ValueClass::Smem))
    } else {
        roots.len().min(most.max(1) as usize)
    };
    if simt_count > 0 {
        check_warps(func, classes, &simt, writes, isa, opts)?;
    }
    let mut kinds = vec![AgentKind::Simt; simt_count];
    let component = |op: Op| {
        let root = components.root(op);
        if feeds {
            return usize::from(feeders.contains(&root));
        }
        roots.iter().position(|&r| r == root).unwrap_or(0) % simt_count.max(1)
    };
    // The agent that issues multiplies allocates what accumulators need: loads join it, not the other way round.
    let joined = (opts.light || !opts.strategy.specializes(isa)) && has(AgentKind::Mma);
    let party = |op: Op| {
        let kind = roles[op]?;
        let kind = if joined && kind == AgentKind::Load { AgentKind::Mma } else { kind };
        Some((kind, if kind == AgentKind::Simt { component(op) } else { 0 }))
    };
    let owners = scalars::owners(func, ops, &party, simt_count);
    let reads = |k| owners.iter().any(|o| o.1.0 == k);
    kinds.extend(
        [AgentKind::Load, AgentKind::Mma, AgentKind::Store]
            .into_iter()
            .filter(|&k| has(k) && !(joined && k == AgentKind::Load) || reads(k)),
    );
    if kinds.is_empty() {
        // Nothing to run, but a launch needs a thread.
        kinds.push(AgentKind::Simt);
    }

    let mut plan = AgentPlan {
        agents: PrimaryMap::new(),
        op_agent: SecondaryMap::new(),
        num_threads: 0,
        entry_reg_cap: 0,
    };
    let mut warp = 0_u32;
    for kind in kinds {
        let (warps, instances) = match kind {
            AgentKind::Simt => (opts.simt_warps.max(1), opts.instances.max(1)),
            _ => (1, 1),
        };
        if kind == AgentKind::Simt {
            warp = warp.next_multiple_of(isa.machine().limits.warpgroup_warps.max(1));
        }
        plan.agents.push(AgentInfo {
            kind,
            first_warp: warp,
            warps,
            instances,
            elect: kind != AgentKind::Simt,
            max_regs: 0,
        });
        warp += warps * instances;
    }
    plan.op_agent.resize(func.num_ops());
    budget(&mut plan, warp, isa, opts, func.loc)?;
    if simt_count > 1 {
        // Three quarters of the registers are for tiles.
        let threads = opts.simt_warps.max(1) * isa.machine().limits.warp_threads;
        raise(&mut plan, (widest / threads).saturating_mul(4) / 3, isa, opts);
    }

    for &op in ops {
        let owner = || owners.iter().find(|o| o.0 == op).map(|o| o.1);
        let Some((kind, number)) = party(op).or_else(owner) else { continue };
        let agent = if kind == AgentKind::Simt { Some(Agent::new(number)) } else { plan.first(kind) };
        plan.op_agent[op] = agent.into();
    }
    Ok(plan)
}

/// What multiplies promise must be something that the stages know how to wait for.
fn check_contract(func: &Function, ops: &[Op], isa: &dyn TargetIsa) -> CodegenResult<()> {
    let MmaContract { issue, completion, in_order } = *isa.mma_contract();
    let in_registers = isa.acc_home().allocation == AccAllocation::Registers;
    let known = match issue {
        Issue::OneThread => completion == Completion::Commit && in_order != InOrder::Never && !in_registers,
        Issue::Warpgroup if in_registers => completion == Completion::WaitGroup,
        Issue::Warpgroup => completion == Completion::Synchronous,
    };
    match ops.iter().find(|&&op| matches!(func.opcode(op), Opcode::Dot | Opcode::AsyncDot)) {
        Some(&op) if !known => Err(CodegenError::new(
            Code::E0502,
            func.op_loc(op),
            format!(
                "{} has multiplies ({issue:?}, {completion:?}, {in_order:?}) with accumulators ({:?}) that no stage can wait for",
                isa.name(),
                isa.acc_home().allocation
            ),
        )),
        _ => Ok(()),
    }
}

/// Whole warpgroups multiply, where more than one lane does. Tensor memory is divided among the warps of one warpgroup: an
/// agent that moves tiles between it and registers is a warpgroup.
fn check_warps(
    func: &Function,
    classes: &Classes,
    simt: &[Op],
    writes: bool,
    isa: &dyn TargetIsa,
    opts: &AgentOptions,
) -> CodegenResult<()> {
    let group = isa.machine().limits.warpgroup_warps.max(1);
    let warps = opts.simt_warps.max(1);
    let issued = |op: &Op| matches!(func.opcode(*op), Opcode::Dot | Opcode::AsyncDot);
    if let Some(op) = simt.iter().copied().find(issued).filter(|_| !warps.is_multiple_of(group)) {
        return Err(CodegenError::new(
            Code::E0508,
            func.op_loc(op),
            format!(
                "an agent that multiplies is warpgroups of {group} warps, not {warps} (option simt-warps)"
            ),
        ));
    }
    if isa.acc_home().allocation != AccAllocation::Columns || warps == group {
        return Ok(());
    }
    let is_acc = |v: &Value| classes.class(*v) == ValueClass::Acc;
    let reads = simt.iter().copied().find(|&op| func.operands(op).iter().any(is_acc));
    let by_operand = classes.operands.iter().find(|o| is_acc(&o.value)).map(|o| o.op);
    let by_tie = (0..classes.ties.len()).find(|&n| writes && classify::tie_needs_write(func, classes, n));
    match reads.or(by_operand).or(by_tie.map(|n| classes.ties[n].op)) {
        None => Ok(()),
        Some(op) => Err(CodegenError::new(
            Code::E0508,
            func.op_loc(op),
            format!(
                "an agent that moves tiles between tensor memory and registers has {group} warps, not {warps} (option simt-warps)"
            ),
        )),
    }
}

/// Threads, the register cap at entry and, where that is too small, the `setmaxnreg` budgets.
fn budget(
    plan: &mut AgentPlan,
    warps: u32,
    isa: &dyn TargetIsa,
    opts: &AgentOptions,
    loc: Loc,
) -> CodegenResult<()> {
    let limits = &isa.machine().limits;
    plan.num_threads = warps * limits.warp_threads;
    plan.entry_reg_cap = isa.machine().entry_registers(plan.num_threads);
    // Two slices' worth of tiles in flight and what addresses and loop control take.
    raise(plan, 2 * opts.slice_regs + 40, isa, opts);
    if plan.num_threads > limits.max_threads || plan.entry_reg_cap < 16 {
        return Err(CodegenError::new(
            Code::E0508,
            loc,
            format!(
                "the agents need {} threads with {} registers each at entry; the target has {} threads (options simt-warps, max-simt-agents)",
                plan.num_threads, plan.entry_reg_cap, limits.max_threads
            ),
        ));
    }
    Ok(())
}

/// Gives the threads of simt agents more registers than they have at entry, where they need so many and `setmaxnreg` gives them more:
/// it moves registers between the warpgroups of a CTA, within what that got at launch. Whether it does.
pub fn raise(plan: &mut AgentPlan, need: u32, isa: &dyn TargetIsa, opts: &AgentOptions) -> bool {
    let limits = &isa.machine().limits;
    let group = limits.warpgroup_warps.max(1);
    let need = need.next_multiple_of(8).min(limits.regs_per_thread / 8 * 8);
    let warps = plan.agents.values().map(|a| a.first_warp + a.all_warps()).max().unwrap_or(0);
    let simt = plan.agents.values().filter(|a| a.kind == AgentKind::Simt).map(|a| a.instances).sum::<u32>();
    let may = opts.max_regs.is_none()
        && opts.simt_warps.is_multiple_of(group)
        && isa.features().has(Feature::SetMaxRegisters);
    let before = plan.agents.values().map(|a| a.max_regs).max().unwrap_or(0).max(plan.entry_reg_cap);
    if simt == 0 || before >= need || !may {
        return false;
    }
    let padded = warps.next_multiple_of(group);
    let threads = |w: u32| w * limits.warp_threads;
    let entry = isa.machine().entry_registers(threads(padded));
    let issuers = threads(padded - simt * opts.simt_warps);
    let rest = (threads(padded) * entry).saturating_sub(issuers * ISSUER_REGS);
    let simt_regs = (rest / threads(simt * opts.simt_warps) / 8 * 8).min(232);
    // The warps that fill up the last warpgroup have registers too: it must pay in spite of them.
    let pays = issuers > 0 && entry >= ISSUER_REGS && simt_regs > before;
    if pays {
        plan.num_threads = threads(padded);
        plan.entry_reg_cap = entry;
        for info in plan.agents.values_mut() {
            info.max_regs = if info.kind == AgentKind::Simt { simt_regs } else { ISSUER_REGS };
        }
    }
    pays
}
