//! The serial generator: one op after the other, one stage.
//!
//! In: a problem and its graph. Out: a start for every op and an II. Ops leave a ready queue in program order; each
//! starts when everything emitted before is finished (latency and footprint) and every zero-distance dependence holds.
//! II is the total, at least every recurrence.
//!
//! Guarantee: always succeeds on a checked problem, unless the total does not fit 31 bits; the result is legal, since
//! no two ops are ever busy together. Cost: O(nodes + edges). Source: spec page 3, "Serial Generator".

use crate::entities::Node;
use crate::graph::Graph;
use crate::problem::{MAX_QUANTITY, Problem};

/// Fills `starts` (by op, in cycles) and returns II; `None` if it does not fit 31 bits.
pub(crate) fn serial_schedule(p: &Problem, g: &Graph, starts: &mut Vec<i64>) -> Option<u32> {
    starts.clear();
    starts.resize(g.n as usize, 0);
    let (mut now, mut last) = (0i64, 0i64);
    for &u in &g.topo {
        // Edge latencies may exceed the latency of the op they leave.
        let ready = g.pred.of(u).iter().filter(|a| a.distance() == 0);
        let start = ready.map(|a| starts[a.node as usize] + a.latency).fold(now, i64::max);
        starts[u as usize] = start;
        last = last.max(start);
        now = start + i64::from(p.span(Node::from_u32(u)));
    }
    // An op of no length at the very end still has to start inside the one stage.
    let mut ii = now.max(last + 1).max(1);
    let carried = (0..g.n).flat_map(|u| g.succ.of(u).iter().map(move |a| (u, *a)));
    for (u, a) in carried.chain(g.selfs.iter().copied()).filter(|(_, a)| a.distance() > 0) {
        let late = starts[u as usize] + a.latency - starts[a.node as usize];
        let d = i64::from(a.distance());
        ii = ii.max(late.div_euclid(d) + i64::from(late.rem_euclid(d) != 0));
    }
    u32::try_from(ii).ok().filter(|&ii| ii <= MAX_QUANTITY)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::{NodeDef, Use};

    #[test]
    fn running_sum_of_busy_cycles() {
        let mut p = Problem::new("t");
        let s = p.add_slot(1, "x", 1);
        let uses = [Use { slot: s, offset: 3, duration: 8, occupancy: 1 }];
        let a = p.add_node(&NodeDef { id: "a", latency: 2, ..NodeDef::default() });
        let b = p.add_node(&NodeDef { id: "b", latency: 4, uses: &uses, ..NodeDef::default() });
        let c = p.add_node(&NodeDef { id: "c", latency: 0, ..NodeDef::default() });
        p.add_edge(b, a, 4, 0); // program order is not topological: b first
        let mut g = Graph::default();
        assert!(g.build(&p));
        let mut starts = Vec::new();
        assert_eq!(serial_schedule(&p, &g, &mut starts), Some(14));
        assert_eq!(starts, [11, 0, 13]);
        p.add_edge(c, c, 1, 0);
        assert!(!g.build(&p), "zero-distance self edge");
        let mut p = Problem::new("t");
        let a = p.add_node(&NodeDef { id: "a", latency: 2, ..NodeDef::default() });
        let b = p.add_node(&NodeDef { id: "b", latency: 2, ..NodeDef::default() });
        p.add_edge(a, b, 16, 0); // longer than the op
        p.add_edge(b, a, 5, 1);
        assert!(g.build(&p));
        assert_eq!(serial_schedule(&p, &g, &mut starts), Some(21));
        assert_eq!(starts, [0, 16]);
    }
}
