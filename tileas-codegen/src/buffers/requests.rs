//! What buffer assignment asks of the next schedule.
//!
//! In: an assignment and the schedules it was made for. Out: [`Constraint`]s with their reasons: rings with fewer slots
//! than the schedule needs (`Reject`), rings whose slots another ring lacks (SMEM pressure), and ops whose results are
//! handed over together and stand in different stages, so that the slots of all are held from the first to the last
//! (same depth for several tiles, structural for parts of one). Cost: linear in the pipes, nothing allocated where there
//! is nothing to ask for.

use super::BufferAssignment;
use super::channels::PipeData;
use super::depth::{self, Why};
use crate::agents::AgentPlan;
use crate::ddg::refine::{Constraint, Family, Rule};
use crate::ddg::{LoopSchedule, ScheduleAnalysis};
use crate::ir::{Function, Op, Space};
use crate::isa::TargetIsa;

/// Cycles of a producer's latency that the slots of its ring do not cover.
pub fn uncovered(why: &Why) -> u64 {
    if why.runs_once || why.in_place {
        return 0;
    }
    why.cover.saturating_sub(u64::from(why.chosen).saturating_mul(why.period))
}

/// All requests, the most urgent kind first.
pub fn requests(
    func: &Function,
    plan: &AgentPlan,
    isa: &dyn TargetIsa,
    sched: &ScheduleAnalysis,
    ba: &BufferAssignment,
    out: &mut Vec<Constraint>,
) {
    for r in ba.rejects.iter().filter(|r| !r.edges.is_empty()) {
        let Some(for_op) = func.block_parent(ba.pipes[r.pipe].home) else { continue };
        out.push(Constraint {
            family: Family::Reject,
            asker: "buffers",
            for_op,
            rule: Rule::Edges(r.edges.clone()),
            why: format!("{} has {} slots of the {} that the schedule needs", r.pipe, r.have, r.need),
        });
    }
    // Rings of loops, with their schedule.
    let in_loops = || ba.pipes.iter().filter_map(|(id, p)| Some((id, p, home_loop(func, sched, p)?)));
    let starved = ba.pipes.iter().find(|(_, p)| p.why.memory_full && uncovered(&p.why) > 0);
    if let Some((hungry, lacking)) = starved {
        for (id, p, (for_op, _)) in in_loops().filter(|(id, p, _)| *id != hungry && generous(ba, p)) {
            if p.webs.iter().any(|w| lacking.webs.contains(w)) {
                continue;
            }
            let edges = depth::freeing_edges(func, plan, isa, sched, &ba.pipes, p, p.why.need - 1);
            if edges.is_empty() {
                continue;
            }
            out.push(Constraint {
                family: Family::SmemPressure,
                asker: "buffers",
                for_op,
                rule: Rule::Edges(edges),
                why: format!(
                    "shared memory is full, {hungry} lacks slots for {} cycles, and {id} has {} only for its schedule",
                    uncovered(&lacking.why),
                    p.why.need
                ),
            });
        }
    }
    for (id, p, (for_op, s)) in
        in_loops().filter(|(_, p, _)| p.payload() && !p.in_place() && p.acquires.len() > 1)
    {
        let stage = |op: &Op| s.start[*op] / s.ii.max(1);
        let (Some(first), Some(last)) =
            (p.acquires.iter().map(stage).min(), p.acquires.iter().map(stage).max())
        else {
            continue;
        };
        if first == last {
            continue;
        }
        let (family, what) = match p.webs.len() {
            1 => (Family::Structural, "parts of one tile"),
            _ => (Family::SameDepth, "tiles that are handed over together"),
        };
        out.push(Constraint {
            family,
            asker: "buffers",
            for_op,
            rule: Rule::OneDepth(p.acquires.to_vec()),
            why: format!(
                "{id}: {what} are written from stage {first} to stage {last}, and its slots held as long"
            ),
        });
    }
    out.sort_by_key(|c| c.family);
}

/// The scheduled loop that a pipe lives in.
fn home_loop<'a>(
    func: &Function,
    sched: &'a ScheduleAnalysis,
    p: &PipeData,
) -> Option<(Op, &'a LoopSchedule)> {
    let for_op = func.block_parent(p.home)?;
    let s = sched.loops[for_op].as_deref().filter(|s| !s.serial && !s.scheduled.is_empty())?;
    Some((for_op, s))
}

/// Whether a ring in shared memory has its slots because of its schedule alone, and more than the least.
fn generous(ba: &BufferAssignment, p: &PipeData) -> bool {
    let smem = p.webs.iter().all(|&w| ba.webs.webs[w].space == Space::Smem);
    smem && p.payload() && !p.in_place() && p.why.need == p.why.chosen && p.why.need > p.distance + 1
}

/// Bytes that the rings need for the schedule: the needed depth (R3).
pub fn ring_bytes(ba: &BufferAssignment) -> u64 {
    let bytes = |p: &PipeData| -> u64 {
        let webs = p.webs.iter().map(|&w| u64::from(ba.webs.webs[w].bytes()));
        u64::from(p.why.need) * webs.sum::<u64>()
    };
    ba.pipes.values().filter(|p| p.payload() && !p.in_place()).map(bytes).sum()
}

/// Cycles not covered, all rings together.
pub fn all_uncovered(ba: &BufferAssignment) -> u64 {
    ba.pipes.values().map(|p| uncovered(&p.why)).fold(0, u64::saturating_add)
}
