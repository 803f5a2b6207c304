//! Register pressure, budgets and planned spills.
//!
//! PTX registers are virtual and ptxas assigns them, so what matters here is how many are live at once: per function
//! and per agent (a range of blocks), in 32-bit units with predicates apart, with the instruction of the peak. Where peak and
//! reserve exceed an agent's budget, regalloc2 serves as a *spill planner*: its stores and reloads are kept, its assignment
//! is not. [`Allocator`] does all of it; `docs/registers.md` has the figures behind [`PTXAS_RESERVE`].
//!
//! Parts: `pressure`; `sink` makes cheap values later; `agents` finds who runs what; `names`, `graph` describe an agent to regalloc2; `plan` runs
//! it, `content` reads its answer, `rewrite` and `remat` write it into the function.

mod agents;
mod allocator;
mod content;
mod graph;
mod names;
mod plan;
mod pressure;
mod remat;
mod rewrite;
mod sink;

pub use agents::AgentFinder;
pub use allocator::{Allocator, Mode, RegallocOptions};
pub use plan::NoPlan;
pub use pressure::{AgentRange, PTXAS_RESERVE, PressureScratch};
pub use rewrite::SharedRoom;
