//! State of one CTA.

use super::shared::Shared;
use super::tensor::Tensor;
use crate::async_ops::operands::OperandMap;
use crate::async_ops::{Load, PipeOp, Store};
use crate::detect::Det;
use crate::detect::clock::{Released, Sent};
use crate::exec::cx::Warp;
use crate::layout::operand::Operand;
use crate::sched::explore::Footprint;
use crate::sync::cluster::Barrier;
use crate::sync::mbarrier::Mbarrier;
use crate::sync::named::Named;
use crate::trace::Lane;
use rustc_hash::FxHashMap;
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

/// An event kept for messages.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Event {
    /// Instructions executed before.
    pub step: u64,
    /// Where.
    pub lane: Lane,
    /// Line in the text.
    pub line: u32,
    /// What.
    pub what: &'static str,
    /// Address, phase or count.
    pub value: u64,
}

impl std::fmt::Display for Event {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "step {}: {}: line {}: {} {:#x}", self.step, self.lane, self.line, self.what, self.value)
    }
}

/// What a warpgroup's operation is (instruction and descriptors), and how many warps have issued it.
pub type Issued = ((u32, u64, u64), u32);

/// A CTA.
pub struct Cta {
    /// Coordinates.
    pub id: [u32; 3],
    /// Number in the grid.
    pub linear: u32,
    /// Number in its cluster.
    pub rank: u32,
    /// The barrier of its cluster.
    pub cluster: Rc<RefCell<Barrier>>,
    /// What its threads that have exited knew; only in clusters of several CTAs.
    pub left: Released,
    /// Shared memory.
    pub smem: Shared,
    /// Tensor memory.
    pub tmem: Tensor,
    /// mbarriers by address.
    pub mbarriers: BTreeMap<u32, Mbarrier>,
    /// Named barriers.
    pub named: [Named; 16],
    /// Warps; the one that executes is absent.
    pub warps: Vec<Option<Box<Warp>>>,
    /// TMA and bulk loads in flight.
    pub loads: Vec<Load>,
    /// Bulk stores whose writes are not complete, or whose group is not waited for.
    pub stores: Vec<Store>,
    /// cp.async copies that no wait has covered.
    pub copies: Vec<crate::async_ops::copy::Copy>,
    /// Committed bulk groups by thread.
    pub bulk_groups: FxHashMap<u32, Vec<crate::async_ops::bulk::Group>>,
    /// Tensor pipes by thread, in order of issue.
    pub pipes: BTreeMap<u32, VecDeque<PipeOp>>,
    /// Detectors.
    pub det: Det,
    /// Registers not held by warps (setmaxnreg).
    pub free_registers: u32,
    /// Instructions executed.
    pub step: u64,
    /// Changes that a polling thread could see.
    pub version: u64,
    /// Number of the next asynchronous operation.
    pub next_op: u64,
    /// Last events.
    pub events: VecDeque<Event>,
    /// Address maps of MMA operands.
    pub operand_cache: FxHashMap<Operand, Arc<OperandMap>>,
    /// Which member elect.sync picks.
    pub elected: u32,
    /// Operations of each warpgroup by number: instruction and descriptors, and how many warps issued it.
    pub wgmma_seen: FxHashMap<(u32, u64), Issued>,
    /// Whether footprints are recorded.
    pub explore: bool,
    /// What the present step touches.
    pub footprint: Footprint,
    /// Releases by address for atomics and acquire loads.
    pub sync_vars: FxHashMap<u64, Vec<Sent>>,
}

impl Cta {
    /// Whether its cluster has other CTAs.
    pub fn clustered(&self) -> bool {
        self.det.cluster.len() > 1
    }

    /// Number of warps.
    pub fn warp_count(&self) -> u32 {
        self.warps.len() as u32
    }

    /// Number for a new asynchronous operation.
    pub fn op_id(&mut self) -> u64 {
        self.next_op += 1;
        self.next_op
    }

    /// Something changed that a polling thread could see.
    pub fn changed(&mut self) {
        self.version += 1;
    }

    /// Keeps an event for messages.
    pub fn log(&mut self, lane: Lane, line: u32, what: &'static str, value: u64) {
        if self.events.len() == 48 {
            self.events.pop_front();
        }
        self.events.push_back(Event { step: self.step, lane, line, what, value });
    }
}
