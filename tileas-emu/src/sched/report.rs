//! Outcome of a run.

use crate::stats::Stats;
use crate::trace::Lane;

/// The other access of a conflict.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Site {
    /// Line in the text.
    pub line: u32,
    /// What the line comes from, where the text says so.
    pub source: Option<Box<str>>,
    /// The instruction there.
    pub text: Box<str>,
    /// Who made it.
    pub actor: String,
}

/// A wrong program, with where and how it came about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    /// Stable code: `race`, `proxy`, `tcgen05.fence`, `undefined`, `deadlock`, `bounds`, `align`, ….
    pub code: &'static str,
    /// What is wrong.
    pub message: String,
    /// Line in the text; 0 when no instruction is to blame.
    pub line: u32,
    /// What the line comes from, where the text says so: `file:line:column`.
    pub source: Option<Box<str>>,
    /// The instruction there.
    pub text: Box<str>,
    /// CTA number.
    pub cta: u32,
    /// Where.
    pub lane: Option<Lane>,
    /// Lanes of the warp.
    pub mask: u32,
    /// The other access of a conflict.
    pub other: Option<Box<Site>>,
    /// The CTA's last events.
    pub events: Box<[String]>,
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.line == 0 {
            // Of the launch: nothing has run.
            return write!(f, "{}: {}", self.code, self.message);
        }
        write!(f, "line {}", self.line)?;
        if let Some(source) = &self.source {
            write!(f, " ({source})")?;
        }
        write!(f, ": {}: {} (CTA {}", self.code, self.message, self.cta)?;
        if let Some(l) = self.lane {
            write!(f, ", {l}, lanes {:#x}", self.mask)?;
        }
        write!(f, ")")?;
        if !self.text.is_empty() {
            write!(f, " in `{}`", self.text)?;
        }
        if let Some(o) = &self.other {
            write!(f, "; the other is line {}", o.line)?;
            if let Some(source) = &o.source {
                write!(f, " ({source})")?;
            }
            write!(f, " `{}` by {}", o.text, o.actor)?;
        }
        Ok(())
    }
}

impl std::error::Error for Fault {}

/// What a run without faults did.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// Warp instructions executed.
    pub steps: u64,
    /// CTAs run.
    pub ctas: u32,
    /// Asynchronous operations completed.
    pub operations: u64,
    /// What was executed and accessed, if [`RunOptions::stats`](super::launch::RunOptions::stats) asks for it.
    pub stats: Option<Box<Stats>>,
}
