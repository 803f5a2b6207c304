//! What the search did: which intervals it tried, how each ended, who gave each op its first start.
//!
//! Written by the cost-based generator once per candidate II and once per success, read by explanations only: no
//! decision looks at it. Bounded by [`MAX_TRIES`]; memory is reused.

use crate::entities::Node;
use crate::options::{Engine, Rung};
use std::fmt;

/// Candidates remembered; older ones are forgotten first.
pub const MAX_TRIES: usize = 128;

/// Who placed all ops of a loop.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// Iterative modulo scheduling with eviction.
    Ims,
    /// A search of modulo scheduling.
    Search(Engine),
    /// A rung of the published ladder.
    Ladder(Rung),
    /// Exact mode.
    Sat,
}

impl Strategy {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Strategy::Ims => "ims",
            Strategy::Search(engine) => engine.name(),
            Strategy::Ladder(rung) => rung.name(),
            Strategy::Sat => "exact",
        }
    }
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl From<Engine> for Strategy {
    fn from(engine: Engine) -> Strategy {
        Strategy::Search(engine)
    }
}

/// How the try at one II ended.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum TryEnd {
    /// All ops have starts; who placed them.
    Placed(Strategy),
    /// Dependences, depth limits and groups leave an op no start: a proof.
    NoWindow,
    /// An op does not fit into the table alone: a proof.
    DoesNotFit,
    /// Exact search refuted it: a proof.
    Refuted,
    /// No strategy placed all ops, and exact search ran out of its share of steps.
    GaveUp,
    /// No strategy placed all ops; no exact search was made.
    NotPlaced,
    /// The steps of the whole region were used up.
    OutOfSteps,
}

impl TryEnd {
    /// Whether this shows that no schedule of that II exists.
    pub fn is_proof(self) -> bool {
        matches!(self, TryEnd::NoWindow | TryEnd::DoesNotFit | TryEnd::Refuted)
    }
}

/// One candidate II.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Try {
    /// The candidate.
    pub ii: u32,
    /// How it ended.
    pub end: TryEnd,
    /// The op that found no start last, if one did not.
    pub stuck: Option<Node>,
}

/// The arm that gave an op its start.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Arm {
    /// Stable order or a permutation of it, earliest starts.
    Permute,
    /// Two groups together.
    Fuse,
    /// Passes with a growing horizon.
    Retry,
    /// Cheapest start.
    CostBased,
    /// The cheapest proposal of all arms (`published.arm-policy = lowest-cost`).
    Proposal,
}

impl Arm {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Arm::Permute => "permute",
            Arm::Fuse => "fuse",
            Arm::Retry => "retry",
            Arm::CostBased => "cost-based",
            Arm::Proposal => "lowest cost",
        }
    }
}

/// The record of one search. Empty for the serial generator.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trail {
    /// Candidates in the order they were tried, the last [`MAX_TRIES`] of them at most.
    pub tries: Vec<Try>,
    /// Candidates forgotten.
    pub forgotten: u32,
    /// Every II below this one is proven to be impossible.
    pub proven: u32,
    /// By op, the start that the successful strategy chose, before compaction and lifetime passes moved it.
    pub starts: Vec<i64>,
    /// By op, the arm that chose it; empty where the strategy has no arms.
    pub arms: Vec<Option<Arm>>,
}

impl Trail {
    /// Forgets everything, keeps the allocations.
    pub fn clear(&mut self) {
        let Trail { tries, forgotten, proven, starts, arms } = self;
        tries.clear();
        (*forgotten, *proven) = (0, 0);
        starts.clear();
        arms.clear();
    }

    /// The starts that a strategy chose, before polish moves them.
    pub(crate) fn chosen(&mut self, starts: &[i64]) {
        self.starts.clear();
        self.starts.extend_from_slice(starts);
    }

    pub(crate) fn add(&mut self, ii: u32, end: TryEnd, stuck: Option<Node>) {
        if self.tries.len() == MAX_TRIES {
            self.tries.drain(..MAX_TRIES / 2);
            self.forgotten += MAX_TRIES as u32 / 2;
        }
        self.tries.push(Try { ii, end, stuck });
    }

    /// The last try at an II.
    pub fn last(&self, ii: u32) -> Option<Try> {
        self.tries.iter().rev().find(|t| t.ii == ii).copied()
    }

    /// Copies into memory that is kept.
    pub(crate) fn copy_into(&self, to: &mut Trail) {
        to.clear();
        to.tries.extend_from_slice(&self.tries);
        (to.forgotten, to.proven) = (self.forgotten, self.proven);
        to.starts.extend_from_slice(&self.starts);
        to.arms.extend_from_slice(&self.arms);
    }
}
