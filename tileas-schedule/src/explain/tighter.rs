//! What the next smaller interval would violate.

use super::witness::{Cycle, Load, chain_name};
use super::{Verdict, end_text};
use crate::RegionSchedule;
use crate::problem::Problem;
use crate::trail::TryEnd;

/// One thing that stands in the way.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum Obstacle {
    /// A slot or pool has fewer unit cycles than are taken.
    Full {
        /// Its name.
        resource: String,
        /// Unit cycles taken by one iteration.
        busy: u64,
        /// Unit cycles there would be.
        there: u64,
    },
    /// A dependence cycle is longer than the iterations it spans.
    Cycle {
        /// The ops.
        cycle: String,
        /// Cycles it takes.
        latency: i64,
        /// Cycles it would have.
        there: i64,
    },
    /// A chain without slack, or the critical path, is too long.
    Chain {
        /// The ops.
        chain: String,
        /// Cycles it takes.
        latency: i64,
        /// Cycles it would have.
        there: i64,
    },
    /// No bound: what the search found out.
    Search {
        /// In words.
        text: String,
        /// Whether it is a proof.
        proof: bool,
    },
    /// The schedule is serial: no smaller interval was asked for.
    Serial,
}

/// The next smaller interval and its obstacles.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Tighter {
    /// The interval; `None`: there is none.
    pub ii: Option<u32>,
    /// What it would violate.
    pub obstacles: Vec<Obstacle>,
}

/// Every resource and cycle that does not fit; else what the search says.
pub(super) fn tighter(
    p: &Problem,
    s: &RegionSchedule,
    verdict: &Verdict,
    loads: &[Load],
    recurrences: &[Cycle],
    chain: Option<&Cycle>,
) -> Tighter {
    let Some(ii) = s.ii.checked_sub(1).filter(|&ii| ii > 0 && p.num_nodes() > 0) else {
        return Tighter::default();
    };
    let wide = i64::from(ii);
    let mut obstacles = Vec::new();
    for l in loads.iter().filter(|l| l.needs > u64::from(ii)) {
        let there = u64::from(l.capacity) * u64::from(ii);
        obstacles.push(Obstacle::Full { resource: l.name.clone(), busy: l.busy, there });
    }
    for c in recurrences.iter().filter(|c| c.needs > wide) {
        let there = wide * c.distance;
        obstacles.push(Obstacle::Cycle { cycle: c.to_string(), latency: c.latency, there });
    }
    if let Some(c) = chain.filter(|c| c.needs > wide) {
        let there = wide * c.distance;
        obstacles.push(Obstacle::Chain { chain: chain_name(c), latency: c.latency, there });
    }
    if obstacles.is_empty() {
        obstacles.push(match verdict {
            Verdict::Serial(_) => Obstacle::Serial,
            _ => from_search(p, s, ii),
        });
    }
    Tighter { ii: Some(ii), obstacles }
}

fn from_search(p: &Problem, s: &RegionSchedule, ii: u32) -> Obstacle {
    let proven = s.trail.proven > ii;
    match s.trail.last(ii) {
        Some(t) => {
            let mut text = end_text(t.end);
            if let (Some(n), false) = (t.stuck, t.end == TryEnd::Refuted) {
                text += &format!("; the last op without a start was {}", p.id(n));
            }
            Obstacle::Search { text, proof: t.end.is_proof() || proven }
        }
        None if proven => Obstacle::Search { text: "refuted".into(), proof: true },
        None => Obstacle::Search { text: "not tried (option `search.ii-search`)".into(), proof: false },
    }
}
