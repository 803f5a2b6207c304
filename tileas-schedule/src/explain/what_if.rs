//! Bounds of changed problems: what a change would gain, and what would bind then.
//!
//! Each change is made on a copy, its bounds are computed anew, and small loops are scheduled again with little effort, so that
//! a gain of the bound is told apart from a gain of the schedule. The problem itself is not touched.

use super::witness::{self, Cycle, Link, LinkKind, Load};
use super::{Facts, Verdict};
use crate::entities::Node;
use crate::options::{ScheduleOptions, SchedulerChoice};
use crate::problem::{EdgeData, MAX_QUANTITY, NodeDef, PoolUse, Problem, Use};
use crate::{RegionSchedule, RegionSummary, Scheduler};

/// Ops of the largest loop that is scheduled again.
const MAX_OPS: usize = 256;
/// Exact search steps of such a schedule.
const EXACT_STEPS: u64 = 50_000;
/// Dependence cycles that are listed.
const MAX_CYCLES: usize = 8;
/// Holders of a full slot that are looked at one by one.
const MAX_HOLDERS: usize = 3;

/// One change and its consequences.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct WhatIf {
    /// The change, in words.
    pub change: String,
    /// The largest lower bound then.
    pub bound: u32,
    /// What needs that bound then.
    pub binders: Vec<String>,
    /// The interval that a short search finds then; `None`: not tried, or none found.
    pub found: Option<u32>,
}

/// A change of a problem; the default changes nothing.
#[derive(Clone, Default)]
struct Change {
    /// (is a pool, position): twice the capacity.
    doubled: Vec<(bool, u32)>,
    /// This op takes nothing of (is a pool, position).
    free: Option<(Node, bool, u32)>,
    /// These dependences are gone.
    dropped: Vec<EdgeData>,
    /// This dependence reaches one iteration further.
    further: Option<EdgeData>,
    /// This dependence takes half as long.
    faster: Option<EdgeData>,
    /// Groups are gone.
    ungrouped: bool,
    /// Nothing is forced serial.
    unserial: bool,
    /// No depth limits.
    undepth: bool,
    /// Another limit of stages.
    stages: Option<Option<u32>>,
}

impl Change {
    fn apply(&self, p: &Problem) -> Problem {
        let mut q = Problem::new(p.name());
        // Every change is one of a pipelined loop.
        q.summary = p.summary.map(|s| RegionSummary { force_serial: false, ..s });
        let capacity = |is_pool, index, c: u32| {
            let twice = self.doubled.contains(&(is_pool, index));
            if twice { c.saturating_mul(2).min(MAX_QUANTITY) } else { c }
        };
        for (k, r) in p.slots().iter() {
            q.add_slot(r.id, &r.name, capacity(false, k.as_u32(), r.capacity));
        }
        for (k, r) in p.pools().iter() {
            q.add_pool(r.id, &r.name, capacity(true, k.as_u32(), r.capacity));
        }
        for n in p.nodes() {
            let free = |is_pool, index| self.free == Some((n, is_pool, index));
            let uses: Vec<Use> =
                p.uses(n).iter().filter(|u| !free(false, u.slot.as_u32())).copied().collect();
            let pools: Vec<PoolUse> =
                p.pool_uses(n).iter().filter(|u| !free(true, u.pool.as_u32())).copied().collect();
            q.add_node(&NodeDef {
                id: p.id(n),
                name: p.op_name(n),
                latency: p.latency(n),
                uses: &uses,
                pools: &pools,
                group: p.group(n).filter(|_| !self.ungrouped),
                max_depth: if self.undepth { 0 } else { p.max_depth(n) },
                force_serial: p.force_serial(n) && !self.unserial,
                extra: *p.extra(n),
            });
        }
        for e in p.edges().values().filter(|e| !self.dropped.contains(e)) {
            let further = u32::from(self.further.as_ref() == Some(e));
            let latency = if self.faster.as_ref() == Some(e) { e.latency / 2 } else { e.latency };
            q.add_edge(e.from, e.to, latency, e.distance.saturating_add(further).min(MAX_QUANTITY));
        }
        q
    }
}

/// The dependence behind a link.
fn edge_of(p: &Problem, l: &Link) -> Option<EdgeData> {
    let same = |e: &&EdgeData| {
        p.id(e.from) == l.from
            && p.id(e.to) == l.to
            && i64::from(e.latency) == l.latency
            && e.distance == l.distance
    };
    if l.kind == LinkKind::Dependence { p.edges().values().find(same).copied() } else { None }
}

/// The carried dependences of a cycle.
fn carried(p: &Problem, c: &Cycle) -> Vec<EdgeData> {
    c.links.iter().filter(|l| l.distance > 0).filter_map(|l| edge_of(p, l)).collect()
}

/// Dependence cycles, each without the carried dependences of those before it: all that need `ii`, and the next one.
pub(super) fn recurrences(p: &Problem, ii: u32) -> Vec<Cycle> {
    let mut change = Change::default();
    let mut found: Vec<Cycle> = Vec::new();
    while found.len() < MAX_CYCLES {
        let q = change.apply(p);
        let Some(f) = Facts::of(&q, None) else { break };
        let Some(c) = witness::cycle(&q, &f.graph, &f.bounds.recurrence_cycle, f.bounds.recurrence) else {
            break;
        };
        let edges = carried(p, &c);
        let last = c.needs < i64::from(ii);
        found.push(c);
        if edges.is_empty() || last {
            break;
        }
        change.dropped.extend(edges);
    }
    found
}

/// What a change leads to.
fn evaluate(p: &Problem, options: &ScheduleOptions, text: String, change: &Change) -> Option<WhatIf> {
    let q = change.apply(p);
    let stages = change.stages.unwrap_or(options.max_stages);
    let f = Facts::of(&q, stages)?;
    let bound = f.bounds.max();
    let loads = witness::loads(&q);
    let cycle = witness::cycle(&q, &f.graph, &f.bounds.recurrence_cycle, f.bounds.recurrence);
    let chain = witness::chain(&f, stages);
    let cycles: Vec<Cycle> = cycle.into_iter().collect();
    let binders = witness::binders(bound, &loads, &cycles, chain.as_ref());
    let again = ScheduleOptions {
        scheduler: SchedulerChoice::CostBased,
        max_stages: stages,
        exact_steps: options.exact_steps.min(EXACT_STEPS),
        require_pipelining: false,
        ..options.clone()
    };
    let small = q.num_nodes() <= MAX_OPS;
    let found = small.then(|| Scheduler::new().schedule(&q, &again).ok()).flatten();
    let found = found.filter(|s| !s.status.serial_fallback).map(|s| s.ii);
    Some(WhatIf { change: text, bound, binders, found })
}

/// The changes worth looking at.
pub(super) fn what_ifs(
    p: &Problem,
    s: &RegionSchedule,
    options: &ScheduleOptions,
    verdict: &Verdict,
    loads: &[Load],
    recurrences: &[Cycle],
    chain: Option<&Cycle>,
) -> Vec<WhatIf> {
    let mut out = Vec::new();
    let mut all = Change::default();
    let mut relaxed = 0;
    let mut try_change = |text: String, change: &Change| out.extend(evaluate(p, options, text, change));
    let ii = i64::from(s.ii);
    let has_groups = p.nodes().any(|n| p.group_size(n) > 1);
    let has_serial = p.nodes().any(|n| p.force_serial(n));
    let has_depths = p.nodes().any(|n| p.max_depth(n) > 0);
    match verdict {
        Verdict::Empty => return out,
        Verdict::Serial(_) => {
            let forced = p.summary.is_some_and(|s| s.force_serial);
            let how =
                if forced { "without `force_serial_execution` on the loop" } else { "`scheduler = cost`" };
            try_change(format!("pipelined ({how})"), &Change::default());
        }
        Verdict::Bound | Verdict::Refuted | Verdict::Open(..) => {}
    }
    if *verdict == Verdict::Bound {
        let alone = witness::binders(s.ii, loads, recurrences, chain).len() == 1;
        for l in loads.iter().filter(|l| l.needs as i64 == ii) {
            let key = (l.is_pool, l.index);
            let change = Change { doubled: vec![key], ..Change::default() };
            try_change(format!("half the use of {}, or two of it", l.name), &change);
            all.doubled.push(key);
            relaxed += 1;
            // Only where nothing else binds as well.
            if l.holders.len() > 1 && alone {
                for (id, amount) in l.holders.iter().take(MAX_HOLDERS) {
                    let Some(n) = p.nodes().find(|&n| p.id(n) == id) else { continue };
                    let change = Change { free: Some((n, l.is_pool, l.index)), ..Change::default() };
                    try_change(format!("{id} without {} ({amount} of {})", l.name, l.busy), &change);
                }
            }
        }
        for c in recurrences.iter().filter(|c| c.needs == ii) {
            let edges = carried(p, c);
            relaxed += 1;
            all.dropped.extend(edges.iter().copied());
            let text = format!("without the recurrence {c}");
            try_change(text, &Change { dropped: edges.clone(), ..Change::default() });
            for e in edges {
                let (a, b, d) = (p.id(e.from), p.id(e.to), u64::from(e.distance) + 1);
                let text = format!(
                    "{a} -> {b} across {d} iterations instead of {} (one slot more, if it is a ring)",
                    e.distance
                );
                try_change(text, &Change { further: Some(e), ..Change::default() });
            }
            let slowest = c.links.iter().max_by_key(|l| (l.latency, std::cmp::Reverse(&l.from)));
            if let Some(e) = slowest.and_then(|l| edge_of(p, l)) {
                let (a, b) = (p.id(e.from), p.id(e.to));
                let text = format!("{a} -> {b} in {} cycles instead of {}", e.latency / 2, e.latency);
                try_change(text, &Change { faster: Some(e), ..Change::default() });
            }
        }
        if let Some(c) = chain.filter(|c| c.needs == ii) {
            relaxed += 1;
            if !c.closed
                && let Some(n) = options.max_stages
            {
                let more = Change { stages: Some(Some(n + 1)), ..Change::default() };
                try_change(format!("{} stages (`max-stages`)", n + 1), &more);
                all.stages = Some(None);
            }
            all.ungrouped |= c.closed && has_groups;
            all.unserial |= c.closed && has_serial;
        }
    }
    // Hard constraints may bind without being a bound.
    for (on, text, change) in [
        (has_groups, "without groups", Change { ungrouped: true, ..Change::default() }),
        (has_serial, "without `force_serial_execution`", Change { unserial: true, ..Change::default() }),
        (has_depths, "without depth limits", Change { undepth: true, ..Change::default() }),
    ] {
        if on {
            try_change(text.into(), &change);
        }
    }
    if relaxed > 1 {
        try_change("all that binds relaxed together".into(), &all);
    }
    out
}
