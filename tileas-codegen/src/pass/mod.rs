//! Passes as things with names: what each needs, gives and preserves, and which orders are legal.
//!
//! [`analysis`] holds what is known of a function and refuses what is out of date; [`legalize()`] decides whether a
//! schedule may be materialised; [`registry`] lists the passes; a [`Pipeline`] is a list of them whose order was checked
//! when it was built. The work itself is done by the stages of [`crate::driver`], which follows the same list.

pub mod analysis;
pub mod legalize;
pub mod registry;
mod stage;

pub use analysis::AnalysisManager;
pub use legalize::legalize;
pub use registry::{Facts, ORDER, PASSES, PREPARATION, PassInfo, Step};
pub use stage::Stage;
