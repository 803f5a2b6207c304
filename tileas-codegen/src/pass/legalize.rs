//! Whether a schedule may be materialised.
//!
//! In: a placed function, its schedules, its channels. Out: nothing, or every reason against it: an op without a start,
//! a dependence, order, group or max_depth that is not kept, an exclusion that is not recorded (spec page 5's
//! legalisation), a channel with fewer slots than rule R3 asks for that would deadlock by R5 or that was not reported.
//!
//! Independent of the generators: reads the problem a loop was scheduled as, and the starts that materialisation reads.
//! Cost: linear in ops, dependences and channels, but for rings that R3 does not hold for.

use crate::agents::AgentPlan;
use crate::buffers::{BufferAssignment, depth};
use crate::ddg::{LoopSchedule, ScheduleAnalysis, ScheduledRegion};
use crate::error::{Code, CodegenError, Errors, Loc};
use crate::ir::{Function, Op};
use crate::isa::TargetIsa;
use crate::schedule::Node;
use crate::schedule::problem::{MAX_QUANTITY, NO_GROUP};
use cranelift_entity::EntityRef;

/// What all errors of this step say.
const FAILED: &str = "failed to legalize schedule";

/// The errors found, with how to say them.
struct Findings<'a> {
    func: &'a Function,
    errors: Vec<CodegenError>,
}

impl Findings<'_> {
    #[cold]
    fn bad(&mut self, code: Code, at: Op, what: String) {
        let loc = self.func.op_loc(at);
        self.errors.push(CodegenError::new(code, loc, FAILED).note(Loc::NONE, what));
    }

    fn name(&self, op: Op) -> String {
        let value = self.func.result(op).and_then(|v| self.func.value_name(v));
        let name = self.func.opcode(op).name();
        value.map_or_else(|| format!("`{name}` ({op})"), |v| format!("`{name}` of %{v}"))
    }
}

/// Whether the schedules of a function may be materialised with these channels.
///
/// # Errors
/// `E0403` for an op without a start, `E0404` for a dependence, `E0405` for an order that is not one, `E0406` for a group
/// or a `max_depth`, `E0407` for an exclusion, `E0408` for a channel. The message is `failed to legalize schedule`, the
/// note says why.
pub fn legalize(
    func: &Function,
    plan: &AgentPlan,
    analysis: &ScheduleAnalysis,
    buffers: &BufferAssignment,
    isa: &dyn TargetIsa,
) -> Result<(), Errors> {
    let mut found = Findings { func, errors: Vec::new() };
    for region in &analysis.regions {
        check_region(analysis, region, &mut found);
    }
    if found.errors.is_empty() {
        // Channels follow from starts: of a damaged schedule they say nothing.
        check_channels(plan, analysis, buffers, isa, &mut found);
    }
    Errors::check(found.errors)
}

/// One loop; without dependences where its ops have no starts.
fn check_region(analysis: &ScheduleAnalysis, region: &ScheduledRegion, found: &mut Findings<'_>) {
    let Some(schedule) = analysis.loops[region.for_op].as_deref() else {
        found.bad(Code::E0403, region.for_op, "the loop has no schedule".to_owned());
        return;
    };
    if starts(analysis, region, schedule, found) {
        dependences(region, schedule, found);
        order(region, schedule, found);
        depths(region, schedule, found);
    }
    exclusions(region, found);
}

fn starts(
    analysis: &ScheduleAnalysis,
    region: &ScheduledRegion,
    schedule: &LoopSchedule,
    found: &mut Findings<'_>,
) -> bool {
    let before = found.errors.len();
    let (nodes, made) = (region.ops.len(), &region.schedule);
    let ops = nodes + region.fused.len();
    if schedule.ii == 0 || schedule.ii > MAX_QUANTITY || schedule.ii != made.ii {
        let text = format!("the II is {}, {} was found", schedule.ii, made.ii);
        found.bad(Code::E0403, region.for_op, text);
    }
    if schedule.scheduled.len() != ops || made.start.len() != nodes || made.order.len() != nodes {
        let missing = nodes.saturating_sub(made.start.len());
        let placed = schedule.scheduled.len().min(ops - missing);
        let text = format!("{placed} of {ops} ops have starts");
        found.bad(Code::E0403, region.for_op, text);
        return false;
    }
    for (node, op) in region.scheduled() {
        let has_start = match region.fused.is_empty() {
            true => schedule.scheduled[node.index()] == op,
            false => schedule.scheduled.contains(&op),
        };
        let start = schedule.start[op];
        if !has_start || analysis.node_of[op].expand() != Some(node) {
            let text = format!("{} has no start", found.name(op));
            found.bad(Code::E0403, op, text);
        } else if start > MAX_QUANTITY || start != made.start[node] {
            let text =
                format!("{} starts at {start}, its schedule says {}", found.name(op), made.start[node]);
            found.bad(Code::E0403, op, text);
        }
    }
    found.errors.len() == before
}

fn dependences(region: &ScheduledRegion, schedule: &LoopSchedule, found: &mut Findings<'_>) {
    for e in region.edges() {
        let start = |op: Op| i128::from(schedule.start[op]);
        let ready = start(e.from) + i128::from(e.latency) - i128::from(schedule.ii) * i128::from(e.distance);
        if start(e.to) < ready {
            let (from, to) = (found.name(e.from), found.name(e.to));
            let text = format!("{to} starts at {}, {from} allows it from {ready}", start(e.to));
            found.bad(Code::E0404, e.to, text);
        }
    }
}

/// `order` numbers the ops, by stage, then by start.
fn order(region: &ScheduledRegion, schedule: &LoopSchedule, found: &mut Findings<'_>) {
    let ops = region.ops.len() + region.fused.len();
    let mut line: Vec<Option<Op>> = vec![None; ops];
    for (_, op) in region.scheduled() {
        let rank = schedule.order[op];
        match line.get_mut(rank as usize) {
            Some(place @ None) => *place = Some(op),
            Some(Some(other)) => {
                let text =
                    format!("{} and {} have the same order {rank}", found.name(*other), found.name(op));
                found.bad(Code::E0405, op, text);
            }
            None => {
                let text = format!("{} has order {rank} among {ops} ops", found.name(op));
                found.bad(Code::E0405, op, text);
            }
        }
    }
    let line: Vec<Op> = line.into_iter().flatten().collect();
    for pair in line.windows(2) {
        if schedule.start[pair[0]] > schedule.start[pair[1]] {
            let text = format!(
                "{} is ordered before {}, which starts first",
                found.name(pair[0]),
                found.name(pair[1])
            );
            found.bad(Code::E0405, pair[0], text);
        }
    }
}

/// Depth is what the stage says.
fn depths(region: &ScheduledRegion, schedule: &LoopSchedule, found: &mut Findings<'_>) {
    let p = &region.problem;
    let stage = |node: Node| schedule.start[region.ops[node]] / schedule.ii.max(1);
    let mut first: Vec<Option<Node>> = vec![None; p.num_groups()];
    for node in p.nodes() {
        let op = region.ops[node];
        if p.max_depth(node) > 0 && stage(node) > p.max_depth(node) {
            let text =
                format!("{} has depth {}, max_depth is {}", found.name(op), stage(node), p.max_depth(node));
            found.bad(Code::E0406, op, text);
        }
        let group = p.group_index(node);
        if group == NO_GROUP {
            continue;
        }
        let Some(leader) = first.get_mut(group as usize) else { continue };
        let leader = *leader.get_or_insert(node);
        if stage(leader) != stage(node) {
            let (a, b) = (found.name(region.ops[leader]), found.name(op));
            let text = format!("{a} has depth {}, {b} of the same group {}", stage(leader), stage(node));
            found.bad(Code::E0406, op, text);
        }
    }
}

fn exclusions(region: &ScheduledRegion, found: &mut Findings<'_>) {
    let p = &region.problem;
    let recorded = |a: Node, b: Node| {
        region.schedule.exclusions.iter().any(|x| (x.node, x.with) == (a, b) || (x.node, x.with) == (b, a))
    };
    for node in p.nodes().filter(|&n| p.force_serial(n)) {
        let group = p.group_index(node);
        let excluded = |&w: &Node| w == node || group != NO_GROUP && p.group_index(w) == group;
        for with in p.nodes().filter(excluded).filter(|&w| !recorded(node, w)) {
            let (a, b) = (found.name(region.ops[node]), found.name(region.ops[with]));
            found.bad(Code::E0407, region.ops[node], format!("{a} excludes {b}, which is not recorded"));
        }
    }
}

/// R3, or R5 and a report of what is missing.
fn check_channels(
    plan: &AgentPlan,
    analysis: &ScheduleAnalysis,
    buffers: &BufferAssignment,
    isa: &dyn TargetIsa,
    found: &mut Findings<'_>,
) {
    let func = found.func;
    let party = depth::Party { func, plan, needs: &buffers.needs };
    let mut short = Vec::new();
    for (id, pipe) in buffers.pipes.iter().filter(|(_, p)| !p.in_place()) {
        let at = pipe.events.first().or(pipe.acquires.first()).copied().or(func.block_parent(pipe.home));
        let Some(at) = at.or(func.first_op(pipe.home)) else { continue };
        if pipe.depth == 0 {
            found.bad(Code::E0408, at, format!("{id} has no slot"));
        }
        for &web in pipe.webs.iter().filter(|_| pipe.payload()) {
            let slots = buffers.webs.webs[web].slots;
            if slots < pipe.depth {
                found.bad(Code::E0408, at, format!("{id} has {} slots, its {web} {slots}", pipe.depth));
            }
        }
        // A home that runs no more often than there are slots needs no others.
        let (need, _) = depth::need(party, analysis, isa, &buffers.pipes, pipe);
        if pipe.depth >= need || depth::used_once(func, pipe) {
            continue;
        }
        let known = buffers.rejects.iter().any(|r| r.pipe == id && r.have == pipe.depth);
        if !known {
            let text = format!("{id} has {} slots and needs {need}, which is not reported", pipe.depth);
            found.bad(Code::E0408, at, text);
        }
        short.push((func.block_parent(pipe.home), pipe.depth, at));
    }
    for (home, slots, at) in short {
        let Some(schedule) = home.and_then(|h| analysis.loops[h].as_deref()) else { continue };
        if !depth::runs_on(party, isa, schedule, &buffers.pipes) {
            found.bad(
                Code::E0408,
                at,
                format!("with {slots} slots the agents of the loop wait for each other"),
            );
        }
    }
}
