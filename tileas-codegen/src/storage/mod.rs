//! Storage of tiles in shared and tensor memory: which values live in one place.
//!
//! Values that loops, conditionals and multiplies tie together want one place, so that nothing moves; values that are
//! alive at once need two. [`coalesce`] decides before tiles are placed, which is where a copy can still be made;
//! [`webs`] are the sets that came of it, [`access`] is what ops do to them. [`check`] proves afterwards, of the placed function, that every read finds what program order says it finds.

pub mod access;
pub mod carried;
pub mod check;
pub mod classify;
pub mod coalesce;
pub mod cost;
pub mod footprint;
pub mod partition;
pub mod webs;
