//! Register pressure and budgets.
//!
//! PTX registers are virtual and ptxas assigns them, so what matters here is how many are live at once: per function
//! and per agent (a range of blocks), in 32-bit units with predicates apart, with the instruction of the peak. An agent
//! whose peak and reserve exceed its budget is reported with what could leave the register file.

mod liveness;
mod pressure;

pub use liveness::Liveness;
pub use pressure::{AgentRange, BudgetReport, PTXAS_RESERVE, Pressure, PressureScratch};
