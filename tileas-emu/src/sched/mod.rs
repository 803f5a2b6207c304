//! Running a launch: the core that executes one step, and the policies that pick the next one.

pub mod core;
mod end;
pub mod explore;
pub mod launch;
pub mod policy;
pub mod report;
