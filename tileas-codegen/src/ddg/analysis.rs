//! What crosses the seam from scheduling to its consumers: starts and order of each loop's ops.
//!
//! Out of [`super::ddg`], in to buffer planning, materialisation and diagnostics. The first two read
//! [`ScheduleAnalysis::loops`] alone: by op, no graph, no reservation table. [`ScheduledRegion`] keeps the problem a
//! loop was scheduled as and its result, from which every diagnostic can be made again: [`ScheduleAnalysis::to_text`],
//! `ScheduleAnalysis::to_json`, dependences and exclusions by op.

use crate::error::CodegenError;
use crate::ir::{Function, Op};
use crate::schedule::{CycleModel, EdgeData, Node, NodeDef, Problem, RegionSchedule, render};
use cranelift_entity::packed_option::PackedOption;
use cranelift_entity::{PrimaryMap, SecondaryMap};
use rustc_hash::FxHashSet;
use std::fmt::Write;

/// The unit that multiplies matrices, in the machine tables.
const TENSOR_CORE: &str = "tensor_core";

/// The schedule of one innermost loop.
#[derive(Clone, Debug, Default)]
pub struct LoopSchedule {
    /// Initiation interval in cycles, at least 1.
    pub ii: u32,
    /// Stages, counted up to the last result (spec page 4's formula).
    pub stage_count: u32,
    /// Whether the serial generator made it.
    pub serial: bool,
    /// Whether all that runs ahead are loads into registers.
    pub plain: bool,
    /// What its cycles are.
    pub model: CycleModel,
    /// First cycle of each op in the flat schedule of one iteration. Ops inside an `if` have the start of the `if`.
    pub start: SecondaryMap<Op, u32>,
    /// The ops that were scheduled, in program order: ops of the body that some agent runs, and `if`s with such ops.
    pub scheduled: Vec<Op>,
    /// Unique rank of each scheduled op by (stage, start, zero-distance edges, program order).
    pub order: SecondaryMap<Op, u32>,
}

/// The problem one loop was scheduled as, and its schedule.
#[derive(Clone, Debug)]
pub struct ScheduledRegion {
    /// The loop.
    pub for_op: Op,
    /// The result.
    pub schedule: RegionSchedule,
    /// The problem.
    pub problem: Problem,
    /// The op behind each node; of a fused set the first.
    pub ops: PrimaryMap<Node, Op>,
    /// The other ops of fused sets.
    pub fused: Vec<(Node, Op)>,
}

/// Schedules of all innermost loops of a function; other regions keep program order.
#[derive(Clone, Debug, Default)]
pub struct ScheduleAnalysis {
    /// By `for` op.
    pub loops: SecondaryMap<Op, Option<Box<LoopSchedule>>>,
    /// Loops with something to schedule, in program order.
    pub regions: Vec<ScheduledRegion>,
    /// The node of each scheduled op, in the region of its loop.
    pub node_of: SecondaryMap<Op, PackedOption<Node>>,
    /// Remarks and warnings of all regions, located.
    pub warnings: Vec<CodegenError>,
}

/// A dependence between two ops of a loop body.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct OpEdge {
    /// The op that comes first.
    pub from: Op,
    /// The op that depends on it.
    pub to: Op,
    /// Cycles from start to start.
    pub latency: i32,
    /// Iterations between the two.
    pub distance: u32,
}

impl ScheduledRegion {
    /// All ops that have a start here, with their nodes.
    pub fn scheduled(&self) -> impl Iterator<Item = (Node, Op)> + '_ {
        self.ops.iter().map(|(n, &op)| (n, op)).chain(self.fused.iter().copied())
    }

    /// Whether an op has this node.
    pub fn holds(&self, node: Node, op: Op) -> bool {
        self.ops.get(node) == Some(&op) || self.fused.contains(&(node, op))
    }

    /// All dependences.
    pub fn edges(&self) -> impl Iterator<Item = OpEdge> + '_ {
        self.problem.edges().values().map(|&EdgeData { from, to, latency, distance }| OpEdge {
            from: self.ops[from],
            to: self.ops[to],
            latency,
            distance,
        })
    }

    /// Pairs that must not overlap across iterations; an op with itself where both are one.
    pub fn exclusions(&self) -> impl Iterator<Item = (Op, Op)> + '_ {
        self.schedule.exclusions.iter().map(|x| (self.ops[x.node], self.ops[x.with]))
    }

    /// What an iteration takes in real cycles, what binds, and the share of the tensor core's peak that follows, as a sentence.
    pub fn in_real_cycles(&self) -> String {
        let (p, s) = (&self.problem, &self.schedule);
        let mut text = format!("{} real cycles an iteration", s.ii);
        let busy = |slot| {
            let uses = p.nodes().flat_map(|n| p.uses(n)).filter(|u| u.slot == slot);
            uses.map(|u| u64::from(u.duration)).sum::<u64>()
        };
        let ii = u64::from(s.ii);
        let mut binds: Vec<&str> =
            p.slots().iter().filter(|&(slot, _)| busy(slot) == ii).map(|(_, slot)| &*slot.name).collect();
        if s.bounds.recurrence == s.ii {
            binds.push("a recurrence");
        }
        if !binds.is_empty() {
            // Writing to a string cannot fail.
            let _ = write!(text, ", bound by {}", binds.join(" and "));
        }
        if let Some((slot, unit)) = p.slots().iter().find(|(_, slot)| slot.name == TENSOR_CORE) {
            let share = busy(slot) * 100 / ii.max(1);
            let _ = write!(text, "; {} works in {} of them, {share} % of its peak", unit.name, busy(slot));
        }
        text
    }

    /// The problem with ops named after their values (`%ta` is `ta`) where those have names that are not taken.
    pub fn named_problem(&self, func: &Function) -> Problem {
        let p = &self.problem;
        let mut named = Problem::new(p.name());
        named.summary = p.summary;
        for r in p.slots().values() {
            named.add_slot(r.id, &r.name, r.capacity);
        }
        for r in p.pools().values() {
            named.add_pool(r.id, &r.name, r.capacity);
        }
        let mut taken: FxHashSet<&str> = p.nodes().map(|n| p.id(n)).collect();
        for n in p.nodes() {
            let value = func.results(self.ops[n]).iter().find_map(|&v| func.value_name(v));
            let id = value.filter(|v| taken.insert(v)).unwrap_or(p.id(n));
            named.add_node(&NodeDef {
                id,
                name: p.op_name(n),
                latency: p.latency(n),
                uses: p.uses(n),
                pools: p.pool_uses(n),
                group: p.group(n),
                max_depth: p.max_depth(n),
                force_serial: p.force_serial(n),
                extra: *p.extra(n),
            });
        }
        for n in p.nodes().filter(|&n| !p.members(n).is_empty()) {
            named.set_members(n, p.members(n).to_vec());
        }
        for (k, e) in p.edges().iter() {
            let edge = named.add_edge(e.from, e.to, e.latency, e.distance);
            if !p.carries_value(k) {
                named.set_order_only(edge);
            }
        }
        named
    }
}

impl ScheduleAnalysis {
    /// The region in which an op has a start of its own, and its node there. Ops inside an `if` have none.
    pub fn node(&self, op: Op) -> Option<(&ScheduledRegion, Node)> {
        let node = self.node_of[op].expand()?;
        let region = self.regions.iter().find(|r| r.holds(node, op))?;
        Some((region, node))
    }

    /// The region of a loop; `None` for loops that are not innermost or have nothing to schedule.
    pub fn region(&self, for_op: Op) -> Option<&ScheduledRegion> {
        self.regions.iter().find(|r| r.for_op == for_op)
    }

    /// All regions as text: bounds, ops by order with the names of their values, reservations.
    pub fn to_text(&self, func: &Function) -> String {
        let mut out = String::new();
        for (i, region) in self.regions.iter().enumerate() {
            let problem = region.named_problem(func);
            if i > 0 {
                out.push('\n');
            }
            out.push_str(&render::table(&problem, &region.schedule));
            for w in &region.schedule.warnings {
                // Writing to a string cannot fail.
                let _ = writeln!(out, "{}: {}", w.code, w.message);
            }
        }
        out
    }

    /// The `tileas-schedule/1` text: one document, or an array where there is not exactly one region.
    #[cfg(feature = "serde")]
    pub fn to_json(&self) -> String {
        let filled =
            |r: &ScheduledRegion| crate::schedule::json::Document::of(r.problem.clone()).filled(&r.schedule);
        let mut all: Vec<serde_json::Value> = self.regions.iter().map(filled).collect();
        let value = if all.len() == 1 { all.swap_remove(0) } else { serde_json::Value::Array(all) };
        format!("{value:#}\n")
    }
}
