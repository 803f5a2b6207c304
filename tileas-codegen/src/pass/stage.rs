//! The points of the pipeline whose result can be looked at.

use std::fmt;

/// A point of the pipeline whose result can be looked at.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// The verified source.
    Ir,
    /// The scheduling constraints and groups of the source.
    Constraints,
    /// The IR that is planned and placed, still in value form.
    Prepared,
    /// Agents, and the IR with every tile in its space and layout.
    Placed,
    /// Schedules of the loops, channels and memory.
    Schedule,
    /// The IR with pipelines and one region per agent.
    Materialized,
    /// The thread-level IR after its cleanups.
    Nvvm,
    /// The PTX.
    Ptx,
    /// What a host needs to launch the kernels, as JSON.
    Metadata,
}

impl Stage {
    /// All stages in pipeline order.
    pub const ALL: [Stage; 9] = [
        Stage::Ir,
        Stage::Constraints,
        Stage::Prepared,
        Stage::Placed,
        Stage::Schedule,
        Stage::Materialized,
        Stage::Nvvm,
        Stage::Ptx,
        Stage::Metadata,
    ];

    /// The name, as `--emit` takes it.
    pub fn name(self) -> &'static str {
        match self {
            Stage::Ir => "ir",
            Stage::Constraints => "constraints",
            Stage::Prepared => "prepared",
            Stage::Placed => "placed",
            Stage::Schedule => "schedule",
            Stage::Materialized => "materialized",
            Stage::Nvvm => "nvvm",
            Stage::Ptx => "ptx",
            Stage::Metadata => "metadata",
        }
    }

    /// The stage of that name.
    pub fn from_name(name: &str) -> Option<Stage> {
        Stage::ALL.into_iter().find(|s| s.name() == name)
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
