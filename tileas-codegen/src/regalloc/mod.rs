//! Register pressure and budgets.
//!
//! PTX registers are virtual and ptxas assigns them, so what matters here is how many are live at once: per function
//! and per agent (a range of blocks), in 32-bit units with predicates apart, with the instruction of the peak.

mod liveness;

pub(crate) use liveness::step_back;
pub use liveness::Liveness;
