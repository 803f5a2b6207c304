//! Which II, and then how many stages: decisions one after the other within a budget of steps.
//!
//! In: a lower bound that is proven, the largest II asked about, and the schedule at hand, if there is one. At each
//! time two IIs are open: the least that is neither found nor refuted, whose refutation raises the bound, and one
//! between it and the best found, where a schedule lowers that. Both searches go on in turn with growing shares of
//! the steps and keep what they have learned. What is left then goes to the fewest stages at the II found, downwards
//! from the schedule at hand (fewer stages only narrow the windows, so one refutation settles it), and to the earliest
//! finish in multiples of the II.
//!
//! Guarantee: [`Optimality`] says what was proven and no more, whenever the steps run out. Deterministic.

use super::encode::{Answer, Decision};
use super::model::{Goal, Model, NoModel, earliest};
use crate::graph::Graph;
use crate::options::ScheduleOptions;
use crate::problem::{MAX_QUANTITY, Problem};
use crate::schedule::Optimality;
use std::collections::BTreeSet;

/// The first share of the steps that a decision gets, as a part of all.
const FIRST_SHARE: u64 = 128;
/// While the II is open, one part in this many of the steps is kept for the stages.
const STAGES_PART: u64 = 8;

/// The outcome of one decision, or of a part of it.
enum Outcome {
    /// Starts by op.
    Found(Vec<i64>),
    Refuted,
    Unknown,
    TooLarge,
}

/// The state of one search.
pub(super) struct Search<'a> {
    p: &'a Problem,
    g: &'a Graph,
    o: &'a ScheduleOptions,
    steps: u64,
    /// The best II found, and its starts.
    best: Option<(u32, Vec<i64>)>,
    /// Whether `best` is new.
    pub improved: bool,
    pub report: Optimality,
}

impl<'a> Search<'a> {
    pub fn new(p: &'a Problem, g: &'a Graph, o: &'a ScheduleOptions, best: Option<(u32, Vec<i64>)>) -> Self {
        let report = Optimality::default();
        Search { p, g, o, steps: o.optimal_steps, best, improved: false, report }
    }

    /// The starts found, if they are better than those given.
    pub fn into_best(self) -> (Option<(u32, Vec<i64>)>, Optimality) {
        let Search { best, improved, report, .. } = self;
        (best.filter(|_| improved), report)
    }

    /// Decides the II between `proven` and `cap`, then stages. `proven`: no smaller II is possible.
    pub fn run(&mut self, proven: u32, cap: u32) {
        let end = self.best.as_ref().map_or(cap.saturating_add(1), |b| b.0);
        let kept = self.steps / STAGES_PART;
        self.steps -= kept;
        let (least, most) = self.intervals(proven.max(1), end);
        self.steps += kept;
        self.report.ii = (least, most);
        if self.best.is_some() {
            self.stages();
            self.finish();
        }
        self.report.steps = self.o.optimal_steps - self.steps;
    }

    /// One decision's turn.
    fn turn(&mut self, decision: &mut Decision, share: u64) -> Outcome {
        let mut left = share.min(self.steps);
        let granted = left;
        let answer = decision.run(&mut left);
        self.steps -= granted - left;
        match answer {
            Answer::Refuted => Outcome::Refuted,
            Answer::Unknown => Outcome::Unknown,
            Answer::Found(values) => match decision.model.extend(self.g, &values) {
                Some(starts) if starts.iter().all(|&t| (0..=i64::from(MAX_QUANTITY)).contains(&t)) => {
                    Outcome::Found(starts)
                }
                found => {
                    debug_assert!(found.is_some(), "a solution that is no schedule");
                    Outcome::TooLarge
                }
            },
        }
    }

    /// Opens the decision about one II, unless `open` is that already; then gives it its share.
    fn decide(&mut self, open: &mut Option<(u32, Decision)>, ii: u32, share: u64) -> Outcome {
        if open.as_ref().is_none_or(|o| o.0 != ii) {
            // Before the next one is made.
            *open = None;
            match Model::new(self.p, self.g, self.o, ii, Goal::Rows) {
                Err(NoModel::Refuted) => return Outcome::Refuted,
                Err(NoModel::TooLarge) => return Outcome::TooLarge,
                Ok(model) => *open = Some((ii, Decision::new(model))),
            }
        }
        match open {
            Some((_, decision)) => self.turn(decision, share),
            None => Outcome::Unknown,
        }
    }

    fn found(&mut self, ii: u32, starts: Vec<i64>) {
        self.best = Some((ii, starts));
        self.improved = true;
    }

    /// Least and largest II that the best one can have.
    fn intervals(&mut self, proven: u32, end: u32) -> (u32, u32) {
        let (mut least, mut end) = (proven.min(end), end);
        let mut refuted = BTreeSet::new();
        let (mut low, mut high) = (None, None);
        let mut share = (self.steps / FIRST_SHARE).max(1);
        // Where between the two ends the other decision is.
        let mut middle = 0;
        loop {
            while refuted.remove(&least) {
                least += 1;
            }
            if least >= end || self.steps == 0 {
                return (least, end);
            }
            match self.decide(&mut low, least, share) {
                Outcome::Found(starts) => {
                    self.found(least, starts);
                    return (least, least);
                }
                Outcome::Refuted => {
                    least += 1;
                    continue;
                }
                Outcome::TooLarge => return (least, end),
                Outcome::Unknown => {}
            }
            if middle <= least || middle >= end {
                middle = least + (end - least) / 2;
            }
            if middle > least && middle < end && !refuted.contains(&middle) && self.steps > 0 {
                match self.decide(&mut high, middle, share) {
                    Outcome::Found(starts) => {
                        self.found(middle, starts);
                        end = middle;
                        continue;
                    }
                    Outcome::Refuted => {
                        refuted.insert(middle);
                    }
                    // What is too large there is so at the next one.
                    Outcome::TooLarge => return (least, end),
                    Outcome::Unknown => {}
                }
            }
            // Nearer to the best found, then from the middle again with larger shares.
            middle = middle.saturating_add((end - middle.min(end)).div_ceil(2));
            if middle >= end {
                share = share.saturating_mul(2);
            }
        }
    }

    /// Fewest stages at the II found.
    fn stages(&mut self) {
        let Some((ii, starts)) = &self.best else { return };
        let (ii, wide) = (*ii, i64::from(*ii));
        let count = |starts: &[i64]| starts.iter().max().map_or(1, |&t| t / wide + 1);
        let mut most = count(starts);
        let early = earliest(self.g, wide).unwrap_or_default();
        let mut least = count(&early).min(most);
        while least < most {
            let goal = Goal::Within { start_end: (most - 1) * wide, finish_end: i64::MAX / 4 };
            match self.within(ii, goal) {
                Outcome::Found(starts) => {
                    most = count(&starts);
                    self.found(ii, starts);
                }
                Outcome::Refuted => least = most,
                Outcome::Unknown | Outcome::TooLarge => break,
            }
        }
        self.report.stages = (least as u32, most as u32);
    }

    /// Earliest finish, in multiples of the II, with no more stages.
    fn finish(&mut self) {
        let Some((ii, starts)) = &self.best else { return };
        let (ii, wide) = (*ii, i64::from(*ii));
        let p = self.p;
        let count = |starts: &[i64]| {
            let ends = p.nodes().zip(starts).map(|(u, &t)| t + i64::from(p.latency(u)));
            (ends.max().unwrap_or(0) + 1 + wide - 1) / wide
        };
        let mut most = count(starts);
        let early = earliest(self.g, wide).unwrap_or_default();
        let mut least = count(&early).max(self.report.stages.0.into()).min(most);
        while least < most {
            let start_end = i64::from(self.report.stages.1) * wide;
            match self.within(ii, Goal::Within { start_end, finish_end: (most - 1) * wide }) {
                Outcome::Found(starts) => {
                    most = count(&starts);
                    self.found(ii, starts);
                }
                // Fewer stages might finish earlier only if they were possible.
                Outcome::Refuted => least = most,
                Outcome::Unknown | Outcome::TooLarge => break,
            }
        }
        self.report.stage_count = (least as u32, most as u32);
    }

    fn within(&mut self, ii: u32, goal: Goal) -> Outcome {
        match Model::new(self.p, self.g, self.o, ii, goal) {
            Err(NoModel::Refuted) => Outcome::Refuted,
            Err(NoModel::TooLarge) => Outcome::TooLarge,
            Ok(model) => {
                let half = self.steps - self.steps / 2;
                self.turn(&mut Decision::new(model), half)
            }
        }
    }
}
