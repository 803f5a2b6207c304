//! The barrier of a cluster.
//!
//! Threads arrive one by one, each once before it waits; a phase ends when all threads of the cluster that have not
//! exited have arrived. A relaxed arrival hands over what a fence for the cluster before it did, and initialisations
//! behind `fence.mbarrier_init`, nothing else.
//! Detected: a second arrival without a wait between, a wait without an arrival.
//! Source: PTX ISA, "barrier.cluster".

use crate::decode::build::Build;
use crate::decode::table::{Row, row};
use crate::decode::{Collective, Exec, R};
use crate::detect::clock::{Released, Scope, Sent, View};
use crate::exec::{Flow, Trap, Wait};

/// The barrier of a cluster.
#[derive(Clone, Debug, Default)]
pub struct Barrier {
    /// Completed phases.
    pub phase: u64,
    /// Threads that have not exited.
    live: u32,
    /// Those that have arrived in the present phase.
    arrived: u32,
    /// Releases of the present phase.
    collected: Vec<Sent>,
    /// Releases of the last completed phase.
    done: Vec<Sent>,
}

/// Present state for messages.
impl std::fmt::Display for Barrier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {} threads arrived", self.arrived, self.live)
    }
}

impl Barrier {
    /// The barrier of so many threads.
    pub fn new(live: u32) -> Barrier {
        Barrier { live, ..Barrier::default() }
    }

    /// Ends the phase if nobody is missing.
    fn settle(&mut self) {
        if self.arrived == self.live && self.live != 0 {
            self.phase += 1;
            self.arrived = 0;
            self.done = std::mem::take(&mut self.collected);
        }
    }

    /// Threads of a warp exit.
    pub fn exit(&mut self, of: &mut Arrived, lanes: u32) {
        self.live -= lanes.count_ones();
        self.arrived -= (of.missing(self.phase) & lanes).count_ones();
        of.lanes &= !lanes;
        self.settle();
    }
}

/// The arrivals of a warp.
#[derive(Copy, Clone, Debug, Default)]
pub struct Arrived {
    /// The phase in which lanes arrived last.
    phase: u64,
    /// The lanes that did.
    lanes: u32,
    /// Lanes that have arrived and not waited since.
    owe: u32,
    /// The warp's clock behind an arrival of all its lanes that released.
    clock: Option<u32>,
}

impl Arrived {
    /// Lanes that have arrived in a phase which others are missing in.
    fn missing(&self, phase: u64) -> u32 {
        if self.phase == phase { self.lanes } else { 0 }
    }
}

fn form(b: &mut Build<'_>) -> R<()> {
    b.count(0)?;
    b.visible();
    if b.inst.opcode.contains("aligned") {
        b.collective(Collective::Aligned);
    }
    Ok(())
}

fn arrive(b: &mut Build<'_>) -> R<Exec> {
    form(b)?;
    let relaxed = b.ms(0) == "relaxed";
    Ok(Box::new(move |cx, m| {
        if cx.w.cluster.owe & m != 0 {
            let what = "a second arrival at the barrier of the cluster without a wait between";
            return Err(Trap::new("barrier.cluster", what));
        }
        let races = cx.cta.det.on.races;
        let what = match relaxed {
            false => cx.release(m),
            true => {
                let know = cx.know();
                let fence = know.fence_out[Scope::Cluster as usize].as_deref();
                let mut r = fence.cloned().unwrap_or_default();
                r.join(&Released { own: View { i: know.i.clone(), ..View::default() }, foreign: Vec::new() });
                r
            }
        };
        let own = cx.cta.det.cta;
        let mut b = cx.cta.cluster.borrow_mut();
        let a = &mut cx.w.cluster;
        *a = Arrived { phase: b.phase, lanes: a.missing(b.phase) | m, owe: a.owe | m, clock: None };
        if races {
            a.clock = (!relaxed && m == cx.w.live).then(|| cx.cta.det.clocks[cx.w.id as usize]);
            Sent::add(&mut b.collected, own, Scope::Cluster, &what);
        }
        b.arrived += m.count_ones();
        b.settle();
        drop(b);
        cx.cta.footprint.cluster();
        cx.cta.changed();
        cx.log("barrier.cluster.arrive", 0);
        Ok(Flow::Next)
    }))
}

fn wait(b: &mut Build<'_>) -> R<Exec> {
    form(b)?;
    Ok(Box::new(|cx, m| {
        if m & !cx.w.cluster.owe != 0 {
            let what = "a wait at the barrier of the cluster without an arrival before it";
            return Err(Trap::new("barrier.cluster", what));
        }
        cx.cta.footprint.cluster();
        let b = cx.cta.cluster.borrow();
        if cx.w.cluster.missing(b.phase) & m != 0 {
            return Ok(Flow::Retry(Wait::Cluster(b.phase)));
        }
        cx.w.cluster.owe &= !m;
        if cx.cta.det.on.races {
            let know = &mut cx.w.frags[cx.f].know;
            for s in &b.done {
                know.acquire_of(s.cta, cx.cta.det.cta, &s.what);
            }
            // Lanes that arrived and waited together come behind each other's accesses before the arrival.
            if let Some(clock) = cx.w.cluster.clock.filter(|_| m == cx.w.live) {
                cx.w.since = cx.w.since.max(clock);
                cx.w.sync_clock = cx.w.sync_clock.max(clock);
            }
        }
        drop(b);
        cx.log("barrier.cluster.wait", 0);
        Ok(Flow::Next)
    }))
}

/// Rows of this family.
pub const ROWS: &[Row] = &[
    row("barrier.cluster.arrive.{release,relaxed}?.aligned?", arrive),
    row("barrier.cluster.wait.acquire?.aligned?", wait),
];
