//! The four gates every start of the arms passes, in a fixed order, and what they remember.
//!
//! - pending set (G1): an op that follows a leader is held over until an op of the leader's own number has a start. The
//!   set is seeded once from the problem and frozen; an attempt works on an overlay of it.
//! - admission by depth (G2): `max_depth` (0: unlimited) at most the horizon; else the op is dead in the snapshot.
//! - resources (G3): the reservation table; a refusal moves the candidate cycle on.
//! - groups (G4): members of one group share a stage, and none starts in the row of a leader of another group that has a start; a
//!   refusal asks for another order of the group.
//!
//! The rule stage ≤ `max_depth` is not a gate: it is part of every window. Source: spec page 3, "Admission Gates".

use crate::entities::Node;
use crate::problem::Problem;

/// A gate.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Gate {
    Pending,
    Depth,
    Resources,
    Group,
}

/// Pending set and refusals.
#[derive(Default)]
pub(super) struct Gates {
    seeded: Vec<bool>,
    overlay: Vec<bool>,
    /// Refusals by gate, for tests and statistics.
    pub refused: [u64; 4],
}

impl Gates {
    /// Seeds the pending set of a problem.
    pub fn seed(&mut self, p: &Problem) {
        self.seeded.clear();
        self.seeded.extend(p.nodes().map(|u| {
            let extra = p.extra(u);
            extra.leader_gid.is_some() && extra.leader_gid != extra.own_gid
        }));
        self.refused = [0; 4];
    }

    /// A fresh overlay.
    pub fn begin(&mut self) {
        self.overlay.clear();
        self.overlay.extend_from_slice(&self.seeded);
    }

    /// The pending set (G1).
    pub fn pending(&mut self, u: u32) -> bool {
        let held = self.overlay[u as usize];
        self.refused[Gate::Pending as usize] += u64::from(held);
        held
    }

    /// Admission by depth (G2).
    pub fn too_deep(&mut self, p: &Problem, u: u32, horizon: u32) -> bool {
        let refused = p.max_depth(Node::from_u32(u)) > horizon;
        self.refused[Gate::Depth as usize] += u64::from(refused);
        refused
    }

    /// Counts a refusal by resources (G3) or groups (G4), which the caller decides.
    pub fn count(&mut self, gate: Gate) {
        self.refused[gate as usize] += 1;
    }

    /// A start was committed: followers of the op's own number need not wait any longer.
    pub fn commit(&mut self, p: &Problem, u: u32) {
        let own = p.extra(Node::from_u32(u)).own_gid;
        if own.is_none() {
            return;
        }
        for w in p.nodes().filter(|&w| p.extra(w).leader_gid == own) {
            self.overlay[w.as_u32() as usize] = false;
        }
    }

    /// After a round without a commit: releases all followers. Whether any was held; once released, none is.
    pub fn release(&mut self) -> bool {
        let held = self.overlay.contains(&true);
        self.overlay.fill(false);
        held
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::{NodeDef, NodeExtra};

    #[test]
    fn followers_wait_for_an_op_of_their_leader() {
        let mut p = Problem::new("t");
        let extra =
            |own, leader| NodeExtra { own_gid: Some(own), leader_gid: leader, ..NodeExtra::default() };
        let lead = p.add_node(&NodeDef { id: "lead", extra: extra(7, None), ..NodeDef::default() });
        let other = p.add_node(&NodeDef { id: "other", extra: extra(3, Some(7)), ..NodeDef::default() });
        let lost = p.add_node(&NodeDef { id: "lost", extra: extra(4, Some(9)), ..NodeDef::default() });
        let mut g = Gates::default();
        g.seed(&p);
        for _ in 0..2 {
            g.begin();
            assert!(!g.pending(lead.as_u32()) && g.pending(other.as_u32()) && g.pending(lost.as_u32()));
            g.commit(&p, lead.as_u32());
            assert!(!g.pending(other.as_u32()) && g.pending(lost.as_u32()));
            // A leader that is not there must not block an interval: one release, then no more.
            assert!(g.release() && !g.pending(lost.as_u32()));
            assert!(!g.release());
        }
        assert_eq!(g.refused, [6, 0, 0, 0]);
    }

    #[test]
    fn the_horizon_admits_depths_up_to_it() {
        let mut p = Problem::new("t");
        for max_depth in [0, 1, 2] {
            p.add_node(&NodeDef { id: "n", max_depth, ..NodeDef::default() });
        }
        let mut g = Gates::default();
        g.seed(&p);
        let refused = |g: &mut Gates, horizon| [0, 1, 2].map(|u| g.too_deep(&p, u, horizon));
        assert_eq!(refused(&mut g, 1), [false, false, true]);
        assert_eq!(refused(&mut g, 2), [false; 3]);
        assert_eq!(g.refused[1], 1);
    }
}
