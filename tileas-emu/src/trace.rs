//! Trace of a run: events by lane, and a writer of the Chrome trace format.

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
    /// The trace as JSON.
    pub fn json(&self) -> String {
        let mut s = String::from("[");
        for (i, e) in self.events.iter().enumerate() {
            let _ = write!(
                s,
                "{}{{\"name\":\"{}\",\"ph\":\"X\",\"ts\":{},\"dur\":1,\"pid\":{},\"tid\":\"{}\",\"args\":{{\"line\":{},\"value\":{}}}}}",
                if i == 0 { "" } else { ",\n" },
                e.what,
                e.step,
                e.cta,
                e.lane,
                e.line,
                e.value
            );
        }
        s.push_str("]\n");
        s
    }
}
