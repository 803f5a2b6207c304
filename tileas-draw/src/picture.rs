//! What is drawn: a loop with its schedule and who runs what, and every execution of an op on a track of its lane.
//!
//! In: the loops of a compiled kernel, or bare graphs with their schedules. Out: [`Picture`]s, and the layout that every form draws.
//!
//! Unit: cycles of the machine model. Guarantee: no panic on any problem that was scheduled, the same input gives the
//! same bytes, ids from documents are escaped. Cost: ops × iterations, and II × slots for reservations.

use cranelift_entity::SecondaryMap;
use tileas_codegen::KernelState;
use tileas_codegen::ir::{Function, Op, ValueNames, print_op_line};
use tileas_codegen::testing::agents::AgentPlan;
use tileas_codegen::testing::ddg::ScheduledRegion;
use tileas_schedule::{Node, Problem, RegionSchedule};

/// Most iterations that are drawn unless a number is asked for.
const MAX_ITERATIONS: u32 = 8;
/// Most executions of ops that are drawn, whatever is asked for.
const MAX_BARS: u64 = 1 << 18;

/// Who runs each op.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lanes {
    /// Names, in the order to draw them.
    pub names: Vec<String>,
    /// Lane of each node.
    pub of: SecondaryMap<Node, u32>,
}

/// What is drawn: one loop.
#[derive(Clone, Debug)]
pub struct Picture {
    /// The problem, with the names to show.
    pub problem: Problem,
    /// Its schedule.
    pub schedule: RegionSchedule,
    /// Who runs what.
    pub lanes: Lanes,
    /// The IR of each op with its attributes; empty for bare graphs.
    pub ir: SecondaryMap<Node, String>,
}

/// How to draw.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Iterations to draw; `None`: until the first one has left the pipeline, and one more.
    pub iterations: Option<u32>,
    /// Columns of a chart for terminals, labels included.
    pub width: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options { iterations: None, width: 100 }
    }
}

impl Lanes {
    /// A lane per agent. An `if` belongs to the agent that runs all of its ops; where several do, or none, it stands
    /// in a lane of its own.
    pub fn of_agents(func: &Function, plan: &AgentPlan, region: &ScheduledRegion) -> Lanes {
        let mut lanes = Lanes::default();
        for (agent, info) in plan.agents.iter() {
            lanes.names.push(format!("{agent} {}", info.kind.name()));
        }
        let shared = lanes.names.len() as u32;
        for (node, &op) in &region.ops {
            lanes.of[node] = agent_of(func, plan, op).unwrap_or(shared);
        }
        if lanes.of.values().any(|&lane| lane == shared) {
            lanes.names.push("several agents".into());
        }
        lanes.drop_empty(region.ops.keys());
        lanes
    }

    /// A lane per slot: each op stands in the one it holds longest (ties: the first in the problem).
    pub fn of_slots(p: &Problem) -> Lanes {
        let mut lanes = Lanes::default();
        let without = p.slots().len() as u32;
        lanes.names.extend(p.slots().values().map(|r| r.name.clone()));
        lanes.names.push("no slot".into());
        for n in p.nodes() {
            let longest = p.uses(n).iter().filter(|u| u.duration > 0 && u.occupancy > 0);
            let longest = longest.max_by_key(|u| (u.duration, std::cmp::Reverse(u.slot)));
            lanes.of[n] = longest.map_or(without, |u| u.slot.as_u32());
        }
        lanes.drop_empty(p.nodes());
        lanes
    }

    /// Removes lanes without ops and numbers the others anew.
    fn drop_empty(&mut self, nodes: impl Iterator<Item = Node>) {
        let mut used = vec![false; self.names.len()];
        let nodes: Vec<Node> = nodes.collect();
        for &n in &nodes {
            used[self.of[n] as usize] = true;
        }
        let mut number = 0;
        let new: Vec<u32> = used
            .iter()
            .map(|&u| {
                number += u32::from(u);
                number.saturating_sub(1)
            })
            .collect();
        for n in nodes {
            self.of[n] = new[self.of[n] as usize];
        }
        let mut keep = used.iter();
        self.names.retain(|_| keep.next().copied().unwrap_or(false));
    }
}

/// The one agent that runs an op, or everything inside it.
fn agent_of(func: &Function, plan: &AgentPlan, op: Op) -> Option<u32> {
    if let Some(agent) = plan.op_agent[op].expand() {
        return Some(agent.as_u32());
    }
    let mut found = None;
    let mut open: Vec<Op> = vec![op];
    while let Some(op) = open.pop() {
        for &region in func.regions(op) {
            for inner in func.block_ops(func.region_block(region)) {
                open.push(inner);
                if let Some(agent) = plan.op_agent[inner].expand() {
                    if found.is_some_and(|f| f != agent.as_u32()) {
                        return None;
                    }
                    found = Some(agent.as_u32());
                }
            }
        }
    }
    found
}

impl Picture {
    /// A bare graph: lanes are slots.
    pub fn of_graph(problem: Problem, schedule: RegionSchedule) -> Picture {
        let lanes = Lanes::of_slots(&problem);
        Picture { problem, schedule, lanes, ir: SecondaryMap::new() }
    }

    /// The loops of a kernel that has been scheduled: lanes are agents, ops have the names of their values.
    pub fn of_kernel(kernel: &KernelState) -> Vec<Picture> {
        let (Some(func), Some(plan), Some(analysis)) = (&kernel.placed, &kernel.plan, &kernel.schedule)
        else {
            return Vec::new();
        };
        let names = ValueNames::new(func);
        let picture = |r: &ScheduledRegion| {
            let mut ir = SecondaryMap::new();
            for (node, &op) in &r.ops {
                ir[node] = print_op_line(func, &names, op);
            }
            Picture {
                problem: r.named_problem(func),
                schedule: r.schedule.clone(),
                lanes: Lanes::of_agents(func, plan, r),
                ir,
            }
        };
        analysis.regions.iter().map(picture).collect()
    }

    /// Whether the schedule is one of this problem.
    pub(crate) fn is_valid(&self) -> bool {
        let n = self.problem.num_nodes();
        let s = &self.schedule;
        s.ii > 0 && s.start.len() == n && s.stage.len() == n && s.order.len() == n
    }

    pub(crate) fn ii(&self) -> u64 {
        u64::from(self.schedule.ii)
    }

    pub(crate) fn start(&self, n: Node) -> u64 {
        u64::from(self.schedule.start[n])
    }

    /// Cycles an op holds anything.
    pub(crate) fn held(&self, n: Node) -> u64 {
        let slots = self.problem.uses(n).iter().filter(|u| u.duration > 0 && u.occupancy > 0);
        let slots = slots.map(|u| u64::from(u.offset) + u64::from(u.duration));
        slots.chain(self.problem.pool_uses(n).iter().map(|u| u64::from(u.duration))).max().unwrap_or(0)
    }

    /// What gave an op its start: the arm, or the strategy where it has none.
    pub(crate) fn placed_by(&self, n: Node) -> &'static str {
        let arm = self.schedule.trail.arms.get(n.as_u32() as usize).copied().flatten();
        let strategy = self.schedule.stats.strategy;
        arm.map(|a| a.name()).or(strategy.map(|s| s.name())).unwrap_or("serial")
    }

    /// Cycles until an op's footprint is over and its result is ready, at least 1.
    pub(crate) fn span(&self, n: Node) -> u64 {
        u64::from(self.problem.latency(n)).max(self.held(n)).max(1)
    }

    /// Cycle after the last of iteration 0.
    pub(crate) fn end(&self) -> u64 {
        self.problem.nodes().map(|n| self.start(n) + self.span(n)).max().unwrap_or(1)
    }

    /// Iterations to draw.
    pub(crate) fn iterations(&self, options: &Options) -> u32 {
        let ops = self.problem.num_nodes().max(1) as u64;
        let most = (MAX_BARS / ops).clamp(1, 10_000) as u32;
        let own = || (self.end().div_ceil(self.ii()) + 1).clamp(2, MAX_ITERATIONS.into()) as u32;
        options.iterations.unwrap_or_else(own).clamp(1, most)
    }

    /// "II 16, 2 stages, cost-based, optimal".
    pub(crate) fn headline(&self) -> String {
        let s = &self.schedule;
        let stages = s.code_stages();
        let mut text = format!("II {}, {stages} stage{}", s.ii, if stages == 1 { "" } else { "s" });
        text += &format!(", {}", s.generator);
        for (on, what) in [
            (s.stats.ii_is_optimal, ", optimal"),
            (s.status.serial_fallback, ", fallback"),
            (s.status.budget_exceeded, ", budget exceeded"),
            (s.stats.curtailed, ", steps of the function spent"),
            (s.status.truncated, ", truncated"),
        ] {
            if on {
                text += what;
            }
        }
        text
    }
}

/// One execution of an op.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bar {
    pub(crate) node: Node,
    pub(crate) iteration: u32,
    pub(crate) start: u64,
    /// Cycle after the last held, at least one after the start.
    pub(crate) held: u64,
    /// Cycle at which the result is ready, or the last held is over.
    pub(crate) end: u64,
    pub(crate) lane: u32,
    /// Row inside the lane; what is held on one track never overlaps.
    pub(crate) track: u32,
}

/// Executions by time, and the number of tracks of each lane.
#[derive(Clone, Debug, Default)]
pub(crate) struct Layout {
    pub(crate) bars: Vec<Bar>,
    pub(crate) tracks: Vec<u32>,
}

impl Layout {
    /// Gives each execution the track of the op's last one if that is free, else the first free one.
    pub(crate) fn new(p: &Picture, iterations: u32) -> Layout {
        let mut order: Vec<(u64, u32, u32, Node)> = Vec::new();
        for n in p.problem.nodes() {
            for i in 0..iterations {
                order.push((p.start(n) + p.ii() * u64::from(i), p.schedule.order[n], i, n));
            }
        }
        order.sort_unstable();
        let mut free: Vec<Vec<u64>> = vec![Vec::new(); p.lanes.names.len()];
        let mut last: SecondaryMap<Node, Option<u32>> = SecondaryMap::new();
        let mut bars = Vec::with_capacity(order.len());
        for (start, _, iteration, node) in order {
            let lane = p.lanes.of[node];
            let (held, end) = (start + p.held(node).max(1), start + p.span(node));
            let Some(tracks) = free.get_mut(lane as usize) else { continue };
            let again = last[node].filter(|&t| tracks[t as usize] <= start);
            let first = || tracks.iter().position(|&t| t <= start).map(|t| t as u32);
            let track = again.or_else(first).unwrap_or(tracks.len() as u32);
            match tracks.get_mut(track as usize) {
                Some(t) => *t = held,
                None => tracks.push(held),
            }
            last[node] = Some(track);
            bars.push(Bar { node, iteration, start, held, end, lane, track });
        }
        Layout { bars, tracks: free.iter().map(|t| t.len() as u32).collect() }
    }
}
