//! Bounds spelled out: who takes how much of what, and which dependences make up a cycle or chain.

use super::{Facts, ids};
use crate::entities::Node;
use crate::graph::Graph;
use crate::problem::Problem;
use std::fmt;

/// What a slot or pool has to do in one interval.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Load {
    /// `slot tma`, `pool tmem_bank`.
    pub name: String,
    /// Whether it is a pool.
    pub is_pool: bool,
    /// Position in the problem.
    pub index: u32,
    /// Units in each cycle.
    pub capacity: u32,
    /// Units × cycles taken by one iteration.
    pub busy: u64,
    /// Least interval in which that fits.
    pub needs: u64,
    /// Who takes how much, the most first.
    pub holders: Vec<(String, u64)>,
}

/// What makes an op wait for another.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum LinkKind {
    /// A dependence of the problem.
    Dependence,
    /// A forced-serial op must be done before its next execution or that of its group.
    Serial,
    /// Ops of one group start less than an interval apart.
    Group,
}

/// One step of a cycle or chain.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Link {
    /// First op.
    pub from: String,
    /// The op that waits.
    pub to: String,
    /// Cycles from start to start.
    pub latency: i64,
    /// Iterations between the two.
    pub distance: u32,
    /// Why.
    pub kind: LinkKind,
}

/// A closed chain of ops, or (not `closed`) a path.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Cycle {
    /// The steps in order; the last one leads back to the first op if the chain is closed.
    pub links: Vec<Link>,
    /// Sum of the latencies; of a path, up to its last result.
    pub latency: i64,
    /// Sum of the distances; of a path, the stages it must fit in.
    pub distance: i64,
    /// latency over distance, rounded up: the least interval.
    pub needs: i64,
    /// Whether it leads back to where it began.
    pub closed: bool,
}

impl fmt::Display for Cycle {
    /// `a -> b -> a`; long ones are shortened.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 24;
        for link in self.links.iter().take(SHOWN) {
            write!(f, "{} -> ", link.from)?;
        }
        if self.links.len() > SHOWN {
            write!(f, "… {} more … -> ", self.links.len() - SHOWN)?;
        }
        f.write_str(self.links.last().map_or("", |l| &l.to))
    }
}

impl Cycle {
    /// `8 + 16 = 24 cycles over 2 iterations`.
    pub fn sum(&self) -> String {
        let shown = self.links.len() <= 12;
        let terms: Vec<String> = self.links.iter().map(|l| l.latency.to_string()).collect();
        let rest = self.latency - self.links.iter().map(|l| l.latency).sum::<i64>();
        let last = if rest != 0 { format!(" + {rest}") } else { String::new() };
        let sum = match (shown && (terms.len() > 1 || rest != 0), self.latency) {
            (true, total) => format!("{}{last} = {total}", terms.join(" + ").replace("+ -", "- ")),
            (false, total) => total.to_string(),
        };
        let what = if self.closed { "iteration" } else { "stage" };
        format!("{sum} cycles over {} {what}{}", self.distance, if self.distance == 1 { "" } else { "s" })
    }
}

/// Loads of slots, then pools, that are used.
pub(super) fn loads(p: &Problem) -> Vec<Load> {
    let slots = p.slots().iter().map(|(slot, r)| {
        let holds: Vec<(Node, u64)> = p
            .nodes()
            .map(|n| {
                let uses = p.uses(n).iter().filter(|u| u.slot == slot);
                (n, uses.map(|u| u64::from(u.duration) * u64::from(u.occupancy)).sum())
            })
            .collect();
        load(p, format!("slot {}", r.name), false, slot.as_u32(), r.capacity, holds)
    });
    let pools = p.pools().iter().map(|(pool, r)| {
        let holds: Vec<(Node, u64)> = p
            .nodes()
            .map(|n| {
                let uses = p.pool_uses(n).iter().filter(|u| u.pool == pool);
                (n, uses.map(|u| u64::from(u.duration) * u64::from(u.count)).sum())
            })
            .collect();
        load(p, format!("pool {}", r.name), true, pool.as_u32(), r.capacity, holds)
    });
    slots.chain(pools).filter(|l| l.busy > 0).collect()
}

fn load(
    p: &Problem,
    name: String,
    is_pool: bool,
    index: u32,
    capacity: u32,
    mut holds: Vec<(Node, u64)>,
) -> Load {
    holds.retain(|h| h.1 > 0);
    holds.sort_by_key(|&(n, amount)| (std::cmp::Reverse(amount), n));
    let busy: u64 = holds.iter().map(|h| h.1).sum();
    let holders = holds.into_iter().map(|(n, amount)| (p.id(n).to_owned(), amount)).collect();
    Load { name, is_pool, index, capacity, busy, needs: busy.div_ceil(u64::from(capacity.max(1))), holders }
}

/// The longest step from `a` to `b` at an interval.
fn link(p: &Problem, g: &Graph, a: Node, b: Node, ii: i64) -> Option<Link> {
    let mut best: Option<(i64, i64, u32, LinkKind)> = None;
    let mut offer = |latency: i64, distance: u32, kind| {
        let weight = latency - ii * i64::from(distance);
        if best.is_none_or(|b| weight > b.0) {
            best = Some((weight, latency, distance, kind));
        }
    };
    let selfs = g.selfs.iter().filter(|(u, _)| a == b && *u == a.as_u32()).map(|(_, arc)| arc);
    let others = g.succ.of(a.as_u32()).iter().filter(|arc| a != b && arc.node == b.as_u32());
    for arc in selfs.chain(others) {
        let kind = if arc.is_exclusion() { LinkKind::Serial } else { LinkKind::Dependence };
        offer(arc.latency, arc.distance(), kind);
    }
    if a != b && p.group_size(a) > 1 && p.group_index(a) == p.group_index(b) {
        offer(1, 1, LinkKind::Group);
    }
    let (_, latency, distance, kind) = best?;
    Some(Link { from: p.id(a).to_owned(), to: p.id(b).to_owned(), latency, distance, kind })
}

/// The cycle through these ops with the steps that ask for most; `None` if they are not one.
pub(super) fn cycle(p: &Problem, g: &Graph, nodes: &[Node], needs: u32) -> Option<Cycle> {
    let ii = i64::from(needs) - 1;
    let next = nodes.iter().cycle().skip(1);
    let links: Option<Vec<Link>> = nodes.iter().zip(next).map(|(&a, &b)| link(p, g, a, b, ii)).collect();
    let links = links.filter(|l| !l.is_empty())?;
    let latency = links.iter().map(|l| l.latency).sum();
    let distance: i64 = links.iter().map(|l| i64::from(l.distance)).sum();
    Some(Cycle { links, latency, distance, needs: ceil_div(latency, distance.max(1)), closed: true })
}

/// The witness of the dependency bound.
pub(super) fn chain(f: &Facts<'_>, max_stages: Option<u32>) -> Option<Cycle> {
    let (b, nodes) = (&f.bounds, &f.bounds.dependency_chain);
    let last = *nodes.last()?;
    let closed = cycle(f.p, &f.graph, nodes, b.dependency).filter(|c| c.needs == i64::from(b.dependency));
    if closed.is_some() {
        return closed;
    }
    // Else it is the critical path.
    let stages = i64::from(max_stages?);
    let step = |w: &[Node]| {
        let arcs = f.graph.succ.of(w[0].as_u32()).iter();
        let arcs = arcs.filter(|a| a.node == w[1].as_u32() && a.distance() == 0).map(|a| a.latency);
        let (from, to) = (f.p.id(w[0]).to_owned(), f.p.id(w[1]).to_owned());
        Some(Link { from, to, latency: arcs.max()?, distance: 0, kind: LinkKind::Dependence })
    };
    let mut links: Vec<Link> = nodes.windows(2).filter_map(step).collect();
    let end = i64::from(f.p.latency(last).max(1));
    let latency = links.iter().map(|l| l.latency).sum::<i64>() + end;
    if links.is_empty() {
        let id = ids(f.p, &[last]).concat();
        links.push(Link { from: id.clone(), to: id, latency: end, distance: 0, kind: LinkKind::Dependence });
    }
    Some(Cycle { links, latency, distance: stages, needs: ceil_div(latency, stages.max(1)), closed: false })
}

/// Names of all that needs exactly this interval.
pub(super) fn binders(ii: u32, loads: &[Load], recurrences: &[Cycle], chain: Option<&Cycle>) -> Vec<String> {
    let loads = loads.iter().filter(|l| l.needs == u64::from(ii)).map(|l| l.name.clone());
    let cycles = recurrences.iter().filter(|c| c.needs == i64::from(ii)).map(|c| format!("recurrence {c}"));
    let chain = chain.filter(|c| c.needs == i64::from(ii)).map(chain_name);
    loads.chain(cycles).chain(chain).collect()
}

/// What a chain is called.
pub(super) fn chain_name(c: &Cycle) -> String {
    if c.closed { format!("chain {c}") } else { format!("critical path {c}") }
}

pub(super) fn ceil_div(a: i64, b: i64) -> i64 {
    a.div_euclid(b) + i64::from(a.rem_euclid(b) != 0)
}
