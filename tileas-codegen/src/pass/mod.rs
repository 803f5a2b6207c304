//! Passes as things with names: what each needs, gives and preserves, and which orders are legal.
//!
//! [`registry`] lists the passes; a [`crate::passes::Pipeline`] is a list of them whose order was checked when it was built;
//! [`legalize()`] decides whether a schedule may be materialised. The work itself is done by the stages of [`crate::driver`], which follows the same list.

pub mod legalize;
pub mod registry;
mod stage;

pub use legalize::legalize;
pub use registry::{Facts, ORDER, PASSES, PREPARATION, PassInfo, Step};
pub use stage::Stage;
