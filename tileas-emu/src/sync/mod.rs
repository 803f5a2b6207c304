//! Synchronisation: mbarriers, named barriers, barriers of clusters, fences.

pub mod cluster;
pub mod fence;
pub mod mbarrier;
pub mod named;
