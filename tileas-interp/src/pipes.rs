//! Channels at run time: barriers that count arrivals, bytes and phases, and the rings they guard.

use crate::tile::Tile;
use fixedbitset::FixedBitSet;
use tileas_codegen::ir::{Function, Op, Value, keys};

/// One barrier: completes a phase when the arrivals and bytes of it are in (PTX ISA, mbarrier).
#[derive(Clone, Debug)]
pub struct Barrier {
    count: i64,
    pending: i64,
    bytes: i64,
    phase: u32,
}

impl Barrier {
    fn new(count: i64) -> Barrier {
        Barrier { count, pending: count, bytes: 0, phase: 0 }
    }

    /// `false`: more arrivals than the phase counts.
    fn settle(&mut self) -> bool {
        if self.pending < 0 {
            return false;
        }
        if self.pending == 0 && self.bytes == 0 {
            self.phase = self.phase.wrapping_add(1);
            self.pending = self.count;
        }
        true
    }

    /// `n` arrivals. `false`: too many.
    #[must_use]
    pub fn arrive(&mut self, n: i64) -> bool {
        self.pending = self.pending.saturating_sub(n);
        self.settle()
    }

    /// Announces bytes and arrives once. `false`: too many arrivals.
    #[must_use]
    pub fn expect(&mut self, bytes: i64) -> bool {
        self.bytes = self.bytes.saturating_add(bytes);
        self.arrive(1)
    }

    /// Bytes came in. `false`: a phase would have more of them than announced.
    #[must_use]
    pub fn complete(&mut self, bytes: i64) -> bool {
        self.bytes = self.bytes.saturating_sub(bytes);
        self.settle()
    }

    /// Whether the phase of that parity is complete.
    pub fn ready(&self, parity: u32) -> bool {
        self.phase & 1 != parity & 1
    }

    /// Phases completed so far.
    pub fn phase(&self) -> u32 {
        self.phase
    }
}

/// How a side of a channel is signalled.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Signal {
    /// Announced bytes arrive.
    Bytes,
    /// Everything the matrix unit was given so far completes.
    Commit,
    /// Threads arrive.
    Arrive,
    /// The bulk stores issued so far have read their source.
    Bulk,
    /// Never: slots are used once.
    None,
}

fn signal(name: &str) -> Signal {
    match name {
        "tx" => Signal::Bytes,
        "commit" => Signal::Commit,
        "bulk" => Signal::Bulk,
        "none" => Signal::None,
        _ => Signal::Arrive,
    }
}

/// One channel bundle.
#[derive(Clone, Debug)]
pub struct Pipe {
    /// Channel number of the dumps.
    pub number: i64,
    /// Full barriers, one per slot.
    pub full: Vec<Barrier>,
    /// Empty barriers, one per slot; none where slots are used once.
    pub empty: Vec<Barrier>,
    /// How full is signalled.
    pub full_by: Signal,
    /// How empty is signalled.
    pub empty_by: Signal,
    /// Each instance of its agent has one.
    pub own: bool,
}

impl Pipe {
    /// The pipe an op creates. `None`: a required attribute is missing or absurd.
    pub fn of(f: &Function, op: Op, max_slots: usize) -> Option<Pipe> {
        let slots = usize::try_from(f.attr_int(op, keys::NUM_STAGES)?).ok()?;
        if slots == 0 || slots > max_slots {
            return None;
        }
        let (full, full_count) = f.attr_call(op, keys::FULL)?;
        let (empty, empty_count) = f.attr_call(op, keys::EMPTY)?;
        let ring = |by: Signal, counts: &[i64]| match by {
            Signal::None => Vec::new(),
            _ => vec![Barrier::new(counts.first().copied().unwrap_or(1).max(1)); slots],
        };
        let (full_by, empty_by) = (signal(full), signal(empty));
        Some(Pipe {
            number: f.attr_int(op, keys::CHANNEL).unwrap_or(-1),
            full: ring(full_by, &full_count),
            empty: ring(empty_by, &empty_count),
            full_by,
            empty_by,
            own: f.has_attr(op, keys::INSTANCES),
        })
    }
}

/// A slot of a ring: the tile in it and which elements were ever written.
#[derive(Clone, Debug)]
pub struct Slot {
    /// Contents.
    pub tile: Tile,
    /// Written elements.
    pub defined: FixedBitSet,
}

/// A ring buffer in shared or tensor memory.
#[derive(Clone, Debug)]
pub struct Ring {
    /// The op's result, for messages.
    pub value: Value,
    /// Slots.
    pub slots: Vec<Slot>,
}
