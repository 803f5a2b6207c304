//! Passes as things with names: what each needs, gives and preserves, and which orders are legal.
//!
//! [`analysis`] holds what is known of a function and refuses what is out of date; [`legalize()`] decides whether a
//! schedule may be materialised. The work itself is done by the stages of [`crate::driver`].

pub mod analysis;
pub mod legalize;

pub use analysis::{Analysis, AnalysisKind, AnalysisManager};
pub use legalize::legalize;
