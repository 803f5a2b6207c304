//! The record of refinement: which constraints were added to a loop, for what, and what became of them.
//!
//! Written where a loop is scheduled again under constraints of its consumers; kept in the schedule for documents and
//! explanations. Nothing here decides anything. Source: spec page 1 ("GenerateSchedule").

use std::fmt;

/// Kinds of constraints, the most urgent first.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// A ring got fewer slots than the schedule needs.
    Reject,
    /// An agent needs more registers than its threads have.
    RegisterPressure,
    /// A ring takes shared memory that another one lacks.
    SmemPressure,
    /// Ops whose results are handed over together share a depth.
    SameDepth,
    /// Ops that write parts of one tile are one unit.
    Structural,
    /// Ops do not drift beyond a depth.
    MaxDepth,
    /// Nothing of the loop overlaps.
    ForceSerial,
}

impl Family {
    /// All of them.
    pub const ALL: [Family; 7] = [
        Family::Reject,
        Family::RegisterPressure,
        Family::SmemPressure,
        Family::SameDepth,
        Family::Structural,
        Family::MaxDepth,
        Family::ForceSerial,
    ];

    /// Its name, as printed and in documents.
    pub fn name(self) -> &'static str {
        match self {
            Family::Reject => "Reject",
            Family::RegisterPressure => "RegisterPressure",
            Family::SmemPressure => "SmemPressure",
            Family::SameDepth => "SameDepthConstraint",
            Family::Structural => "StructuralConstraint",
            Family::MaxDepth => "MaxDepthConstraint",
            Family::ForceSerial => "ForceSerialExecutionConstraint",
        }
    }
}

/// The two bits of a round.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct RoundStatus(u8);

impl RoundStatus {
    /// Neither: another round follows.
    pub const OPEN: RoundStatus = RoundStatus(0);
    /// Bit 0: no consumer asks for more.
    pub const CONVERGED: RoundStatus = RoundStatus(1);
    /// Bit 1: the rounds ran out, and a consumer still asks.
    pub const BUDGET_EXCEEDED: RoundStatus = RoundStatus(2);

    /// The bits.
    pub fn bits(self) -> u8 {
        self.0
    }

    /// Bit 0.
    pub fn converged(self) -> bool {
        self.0 & 1 != 0
    }

    /// Bit 1.
    pub fn budget_exceeded(self) -> bool {
        self.0 & 2 != 0
    }
}

/// A constraint as a round shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Number among the constraints of the kernel, from 0.
    pub number: u32,
    /// Kind.
    pub family: Family,
    /// The consumer that asked.
    pub asker: &'static str,
    /// What it demands, in words.
    pub rule: String,
    /// Why.
    pub why: String,
}

/// One more schedule of a loop, under constraints that were added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Round {
    /// From 1.
    pub number: u32,
    /// Constraints that were added in this round.
    pub added: Vec<Request>,
    /// Constraints on trial, earlier ones included.
    pub trial: Vec<u32>,
    /// Cycles that an iteration takes now, and would take with the constraints on trial; `None`: there is no schedule.
    pub cycles: (u32, Option<u32>),
    /// Whether the constraints on trial stay.
    pub kept: bool,
    /// Constraints that were lifted, each with the reason.
    pub lifted: Vec<(u32, String)>,
    /// The two bits.
    pub status: RoundStatus,
}

impl fmt::Display for Round {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "round {} (status {}): an iteration takes {} cycles, ",
            self.number,
            self.status.bits(),
            self.cycles.0
        )?;
        match self.cycles.1 {
            Some(n) => write!(f, "{n} on trial")?,
            None => f.write_str("none on trial")?,
        }
        f.write_str(if self.kept { ", kept" } else { "" })?;
        for r in &self.added {
            write!(f, "\n  + {} {} ({}): {}; {}", r.number, r.family.name(), r.asker, r.rule, r.why)?;
        }
        for (number, why) in &self.lifted {
            write!(f, "\n  - {number} lifted: {why}")?;
        }
        Ok(())
    }
}
