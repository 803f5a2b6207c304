//! What a run costs: memory requests and instructions, counted.
//!
//! In: the accesses of each instruction of a warp. Out: [`Stats`], plain data in the report of a run. Counts are of the
//! PTX as it stands: what an assembler moves, merges or spills is not in them, nor are caches.
//!
//! - Global memory: a *request* is one instruction of one warp. It touches *sectors* of 32 bytes; `bytes` are the
//!   distinct ones that its lanes ask for. Lanes whose predicate is off ask for nothing.
//! - Shared memory has 32 banks of 4 bytes. A request is served in phases: 32 lanes of up to 4 bytes, 16 lanes of 8, 8 of
//!   16, 8 rows of a matrix. A phase takes as many *wavefronts* as the bank with the most distinct words has of them; one
//!   is ideal. Lanes that access one word share it, those of an atomic too: that these take turns is not counted, nor
//!   what asynchronous copies and tensor cores do in shared memory.
//! - Polls, which are as many as the timing makes of them, are counted by themselves: an `mbarrier` wait that fails, and
//!   what a loop around it, or around one load or atomic that nothing else in the loop changes, executes on top of one turn.
//!
//! Guarantee: one timing and one seed always have the same counts.

mod count;

pub(crate) use count::{Outcome, Place, Recorder, Step};

/// What an instruction is, as far as counts are concerned.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum Kind {
    /// None of the others.
    #[default]
    Other,
    /// `ld` but of parameters and constants, `ldmatrix`.
    Load,
    /// `st`, `stmatrix`.
    Store,
    /// `atom`, `red`.
    Atomic,
    /// `cp.async` of a few bytes for each lane: a load of global memory.
    Copy,
    /// A bulk or tensor copy to shared memory.
    BulkLoad,
    /// A bulk or tensor copy or reduction to global memory.
    BulkStore,
    /// `shfl`.
    Shuffle,
    /// `bar.sync`, `bar.red` and the same of `barrier`; not `arrive`.
    Barrier,
    /// `mbarrier.try_wait`, `mbarrier.test_wait`.
    Wait,
    /// `mma`.
    Mma,
    /// `wgmma.mma_async`.
    Wgmma,
    /// `tcgen05.mma`.
    Tcgen05Mma,
    /// `tcgen05.ld`, `tcgen05.st`, `tcgen05.cp`.
    Tcgen05Move,
}

impl Kind {
    /// The kind of an opcode.
    pub fn of(opcode: &str) -> Kind {
        let mut parts = opcode.split('.');
        let (name, second) = (parts.next().unwrap_or(""), parts.next().unwrap_or(""));
        let has = |word: &str| opcode.split('.').any(|p| p == word);
        match name {
            // Both have caches of their own.
            "ld" if has("param") || has("const") => Kind::Other,
            "ld" | "ldmatrix" => Kind::Load,
            "st" | "stmatrix" => Kind::Store,
            "atom" | "red" => Kind::Atomic,
            "cp" if has("bulk_group") => Kind::BulkStore,
            "cp" if has("mbarrier::complete_tx::bytes") => Kind::BulkLoad,
            "cp" if matches!(parts.next(), Some("ca" | "cg")) => Kind::Copy,
            "shfl" => Kind::Shuffle,
            "bar" | "barrier" if has("warp") || has("arrive") => Kind::Other,
            "bar" | "barrier" => Kind::Barrier,
            "mbarrier" if matches!(second, "try_wait" | "test_wait") => Kind::Wait,
            "mma" => Kind::Mma,
            "wgmma" if second == "mma_async" => Kind::Wgmma,
            "tcgen05" if second == "mma" => Kind::Tcgen05Mma,
            "tcgen05" if matches!(second, "ld" | "st" | "cp") => Kind::Tcgen05Move,
            _ => Kind::Other,
        }
    }
}

/// Requests to global memory.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Requests {
    /// Instructions of warps; of bulk copies: copies.
    pub requests: u64,
    /// Sectors of 32 bytes that they touch, each counted once for each request.
    pub sectors: u64,
    /// Distinct bytes that the lanes of a request ask for; of bulk copies: bytes moved.
    pub bytes: u64,
}

impl Requests {
    /// What part of the touched sectors is asked for: 1 at best. None where nothing is touched.
    pub fn used(&self) -> Option<f64> {
        (self.sectors != 0).then(|| self.bytes as f64 / (32.0 * self.sectors as f64))
    }

    /// Bytes of the touched sectors that nobody asked for.
    pub fn wasted(&self) -> u64 {
        (32 * self.sectors).saturating_sub(self.bytes)
    }

    fn add(&mut self, o: &Requests) {
        self.requests += o.requests;
        self.sectors += o.sectors;
        self.bytes += o.bytes;
    }
}

/// Requests to shared memory.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Shared {
    /// Instructions of warps.
    pub requests: u64,
    /// Wavefronts that they take.
    pub wavefronts: u64,
    /// Wavefronts that they would take without conflicts: phases that have an active lane.
    pub ideal: u64,
}

impl Shared {
    /// Wavefronts that bank conflicts add.
    pub fn conflicts(&self) -> u64 {
        self.wavefronts.saturating_sub(self.ideal)
    }

    fn add(&mut self, o: &Shared) {
        self.requests += o.requests;
        self.wavefronts += o.wavefronts;
        self.ideal += o.ideal;
    }
}

/// Instructions that warps execute. One that a diverged warp executes in parts counts for each part. One whose predicate
/// is off in all lanes is among `instructions` only.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Counts {
    /// All, without polls.
    pub instructions: u64,
    /// `shfl`.
    pub shuffles: u64,
    /// `bar.sync`, `bar.red` and the same of `barrier`.
    pub barriers: u64,
    /// Waits at an `mbarrier`, each counted when it passes.
    pub waits: u64,
    /// Loads from local memory.
    pub local_loads: u64,
    /// Stores to local memory.
    pub local_stores: u64,
    /// `mma`.
    pub mma: u64,
    /// `wgmma.mma_async`.
    pub wgmma: u64,
    /// `tcgen05.mma`.
    pub tcgen05_mma: u64,
    /// `tcgen05.ld`, `tcgen05.st`, `tcgen05.cp`.
    pub tcgen05_moves: u64,
}

impl Counts {
    /// Puts together the counts of two, field by field.
    fn merge(&mut self, o: &Counts, f: fn(u64, u64) -> u64) {
        *self = Counts {
            instructions: f(self.instructions, o.instructions),
            shuffles: f(self.shuffles, o.shuffles),
            barriers: f(self.barriers, o.barriers),
            waits: f(self.waits, o.waits),
            local_loads: f(self.local_loads, o.local_loads),
            local_stores: f(self.local_stores, o.local_stores),
            mma: f(self.mma, o.mma),
            wgmma: f(self.wgmma, o.wgmma),
            tcgen05_mma: f(self.tcgen05_mma, o.tcgen05_mma),
            tcgen05_moves: f(self.tcgen05_moves, o.tcgen05_moves),
        };
    }
}

/// An instruction of the text that was executed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default))]
pub struct Line {
    /// Line in the text.
    pub line: u32,
    /// As written.
    pub text: String,
    /// What it is.
    pub kind: Kind,
    /// How often a warp executed it.
    pub executed: u64,
    /// How often it was a poll on top of that.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "is_default"))]
    pub polls: u64,
    /// Its requests to global memory; of a bulk copy: what it moves.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "is_default"))]
    pub global: Requests,
    /// Its requests to shared memory.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "is_default"))]
    pub shared: Shared,
}

/// Leaves out what most lines do not have.
#[cfg(feature = "serde")]
fn is_default<T: Default + PartialEq>(x: &T) -> bool {
    *x == T::default()
}

/// What a run cost.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Stats {
    /// Warps that ran.
    pub warps: u64,
    /// Instructions of all warps together.
    pub total: Counts,
    /// The most that one warp executed of each, not necessarily the same warp.
    pub most: Counts,
    /// Polls of all warps; they depend on the timing.
    pub polls: u64,
    /// Loads from global memory, `cp.async` included.
    pub loads: Requests,
    /// Stores to global memory.
    pub stores: Requests,
    /// Atomics on global memory.
    pub atomics: Requests,
    /// Bulk and tensor copies from global memory.
    pub bulk_loads: Requests,
    /// Bulk and tensor copies and reductions to global memory.
    pub bulk_stores: Requests,
    /// Loads, stores and atomics of shared memory.
    pub shared: Shared,
    /// Instructions that were executed, in the order of the text.
    pub lines: Vec<Line>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds() {
        for (opcode, kind) in [
            ("ld.global.v4.b32", Kind::Load),
            ("ld.param.u64", Kind::Other),
            ("ld.const.u32", Kind::Other),
            ("ldmatrix.sync.aligned.m8n8.x4.shared.b16", Kind::Load),
            ("st.shared.b16", Kind::Store),
            ("red.global.add.u32", Kind::Atomic),
            ("redux.sync.add.u32", Kind::Other),
            ("cp.async.cg.shared.global", Kind::Copy),
            ("cp.async.commit_group", Kind::Other),
            ("cp.async.bulk.commit_group", Kind::Other),
            ("cp.async.bulk.wait_group.read", Kind::Other),
            ("cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes", Kind::BulkLoad),
            ("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group", Kind::BulkStore),
            ("cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.bulk_group", Kind::BulkStore),
            ("cp.async.bulk.prefetch.tensor.2d.L2.global", Kind::Other),
            ("bar.sync", Kind::Barrier),
            ("barrier.cta.sync.aligned", Kind::Barrier),
            ("bar.red.popc.u32", Kind::Barrier),
            ("bar.arrive", Kind::Other),
            ("bar.warp.sync", Kind::Other),
            ("mbarrier.try_wait.parity.shared::cta.b64", Kind::Wait),
            ("mbarrier.arrive.shared::cta.b64", Kind::Other),
            ("wgmma.fence.sync.aligned", Kind::Other),
            ("tcgen05.mma.cta_group::1.kind::f16", Kind::Tcgen05Mma),
            ("tcgen05.ld.sync.aligned.32x32b.x8.b32", Kind::Tcgen05Move),
            ("", Kind::Other),
        ] {
            assert_eq!(Kind::of(opcode), kind, "{opcode}");
        }
    }
}
