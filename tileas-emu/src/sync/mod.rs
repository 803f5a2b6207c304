//! Synchronisation: mbarriers, named barriers, fences.

pub mod fence;
pub mod mbarrier;
pub mod named;
