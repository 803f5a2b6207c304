//! Trace of a run: events by lane, and a writer of the Chrome trace format.

use std::collections::BTreeSet;
use std::fmt::Write;

/// Row of a trace.
#[derive(Copy, Clone, PartialEq, Eq, Debug, PartialOrd, Ord)]
pub enum Lane {
    /// A warp.
    Warp(u32),
    /// TMA loads.
    Load,
    /// TMA and bulk stores.
    Store,
    /// The tensor pipe.
    Tensor,
}

impl Lane {
    /// Number of the row: warps first.
    fn row(self) -> u32 {
        match self {
            Lane::Warp(w) => w,
            Lane::Load => 1000,
            Lane::Store => 1001,
            Lane::Tensor => 1002,
        }
    }
}

impl std::fmt::Display for Lane {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Lane::Warp(w) => write!(f, "warp {w}"),
            Lane::Load => f.write_str("TMA load"),
            Lane::Store => f.write_str("TMA store"),
            Lane::Tensor => f.write_str("tensor pipe"),
        }
    }
}

/// One event.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct TraceEvent {
    /// Instructions executed in the CTA before.
    pub step: u64,
    /// CTA number.
    pub cta: u32,
    /// Row.
    pub lane: Lane,
    /// What happened.
    pub what: &'static str,
    /// Line in the text.
    pub line: u32,
    /// An address, a phase or a count.
    pub value: u64,
}

/// Receives the events of a run.
pub trait Trace {
    /// Whether events are wanted.
    fn on(&self) -> bool {
        true
    }
    /// Receives one event.
    fn event(&mut self, e: &TraceEvent);
}

/// Wants no events.
#[derive(Default, Debug)]
pub struct NoTrace;

impl Trace for NoTrace {
    fn on(&self) -> bool {
        false
    }
    fn event(&mut self, _: &TraceEvent) {}
}

/// Collects events for the Chrome trace viewer.
#[derive(Default, Debug)]
pub struct ChromeTrace {
    /// The events.
    pub events: Vec<TraceEvent>,
}

impl Trace for ChromeTrace {
    fn event(&mut self, e: &TraceEvent) {
        self.events.push(*e);
    }
}

impl ChromeTrace {
    /// The trace as JSON: CTAs are processes, lanes are named threads, the unit of time is one instruction.
    pub fn json(&self) -> String {
        let lanes: BTreeSet<(u32, Lane)> = self.events.iter().map(|e| (e.cta, e.lane)).collect();
        let mut s = String::from("[");
        // Writing to a string cannot fail.
        for (cta, lane) in lanes {
            let _ = write!(
                s,
                "{}{{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":{cta},\"tid\":{},\"args\":{{\"name\":\"{lane}\"}}}}",
                if s.len() == 1 { "" } else { ",\n" },
                lane.row()
            );
        }
        for e in &self.events {
            let _ = write!(
                s,
                ",\n{{\"name\":\"{}\",\"ph\":\"X\",\"ts\":{},\"dur\":1,\"pid\":{},\"tid\":{},\"args\":{{\"line\":{},\"value\":{}}}}}",
                e.what,
                e.step,
                e.cta,
                e.lane.row(),
                e.line,
                e.value
            );
        }
        s.push_str("]\n");
        s
    }
}
