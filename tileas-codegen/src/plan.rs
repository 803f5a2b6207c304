//! Who runs what, as data: agents, their warps and registers, and the agent of each op.
//!
//! Out of [`crate::agents`], which decides it; in to everything behind. Nothing here decides anything.

use crate::ir::Op;
use cranelift_entity::packed_option::PackedOption;
use cranelift_entity::{PrimaryMap, SecondaryMap, entity_impl};

/// Most warps that an agent is given on its own account.
pub(crate) const MOST_WARPS: u32 = 16;

/// One agent: a group of warps that runs its own part of the kernel.
#[derive(Copy, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Agent(u32);
entity_impl!(Agent, "agent");

/// What an agent is for.
#[derive(Copy, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum AgentKind {
    /// Register tiles.
    Simt,
    /// TMA loads.
    Load,
    /// Matrix multiplies.
    Mma,
    /// TMA stores of tiles that come straight from TMA loads.
    Store,
}

impl AgentKind {
    /// The name as printed.
    pub fn name(self) -> &'static str {
        match self {
            AgentKind::Simt => "simt",
            AgentKind::Load => "load",
            AgentKind::Mma => "mma",
            AgentKind::Store => "store",
        }
    }
}

/// Warps and registers of one agent.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct AgentInfo {
    /// What it is for.
    pub kind: AgentKind,
    /// Index of its first warp in the CTA.
    pub first_warp: u32,
    /// Number of warps, of each instance.
    pub warps: u32,
    /// Warpgroups that run it in turns, each an iteration of the outermost loop (`agents::turns`); 1: there are no turns.
    pub instances: u32,
    /// Whether one elected lane runs everything.
    pub elect: bool,
    /// Registers per thread asked for with `setmaxnreg`; 0 = none is executed.
    pub max_regs: u32,
}

/// The agents of a kernel and who runs each op.
#[derive(Clone, Debug)]
pub struct AgentPlan {
    /// The agents in warp order.
    pub agents: PrimaryMap<Agent, AgentInfo>,
    /// The agent of an op; `None` for uniform ops, region ops and terminators.
    pub op_agent: SecondaryMap<Op, PackedOption<Agent>>,
    /// Threads of the CTA.
    pub num_threads: u32,
    /// Registers a thread has at kernel entry.
    pub entry_reg_cap: u32,
}

impl AgentInfo {
    /// Warps of all instances.
    pub fn all_warps(&self) -> u32 {
        self.warps * self.instances
    }
}

impl AgentPlan {
    /// The agent that several warpgroups run in turns.
    pub fn dealt(&self) -> Option<Agent> {
        self.agents.iter().find(|(_, info)| info.instances > 1).map(|(a, _)| a)
    }

    /// The agents of a kind.
    pub fn all(&self, kind: AgentKind) -> impl Iterator<Item = Agent> + '_ {
        self.agents.iter().filter(move |(_, info)| info.kind == kind).map(|(a, _)| a)
    }

    /// The first agent of a kind.
    pub fn first(&self, kind: AgentKind) -> Option<Agent> {
        self.all(kind).next()
    }

    /// Takes threads and registers from a plan with the same agents.
    pub fn take_budget(&mut self, from: &AgentPlan) {
        self.agents.clone_from(&from.agents);
        (self.num_threads, self.entry_reg_cap) = (from.num_threads, from.entry_reg_cap);
    }
}
