//! One file per subcommand.

pub mod assemble;
pub mod check;
pub mod compile;
pub mod explain;
pub mod isa;
pub mod options;
pub mod run;
pub mod schedule;
pub mod tune;
