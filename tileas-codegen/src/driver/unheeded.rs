//! Warnings about constraints that no schedule heeds.
//!
//! In: the source and the placed function with its constraints and schedules. Out: `W0407` for each constraint without effect: on
//! ops outside of innermost loops, on loops (which take `force_serial_execution` alone, and only innermost ones), on ops that
//! every agent computes for itself, on members of an `if` that is one op of another group, on ops that placement replaced;
//! and for keys of rematerialisation that preparation and placement left on their op, because they could not heed them. Cost: nothing without constraints.

use crate::constraints::{
    ConstraintMap, Group, PLACEMENT_WORDS, RECOMPUTE_WORDS, RematWords, SLICE_WORDS, lookup,
};
use crate::ddg::ScheduleAnalysis;
use crate::error::{Code, CodegenError, Loc};
use crate::ir::{Function, Op, Opcode, Sym, keys};
use rustc_hash::FxHashSet;

/// All warnings, in program order.
pub(super) fn unheeded(
    source: &Function,
    placed: &Function,
    constraints: &ConstraintMap,
    analysis: &ScheduleAnalysis,
    fuses_reads: bool,
) -> Vec<CodegenError> {
    let mut out = Vec::new();
    let mut warn = |func: &Function, op: Op, keys: &[Sym], why: &str| {
        let has = |k: &&Sym| lookup(func, op, **k).is_some();
        let names: Vec<String> = keys.iter().filter(has).map(|&k| format!("`{}`", func.symbol(k))).collect();
        // A sliced op is several, which have one place.
        let (loc, name) = (func.op_loc(op), func.opcode(op).name());
        let text = format!("{name}: {} without effect: {why}", names.join(", "));
        let known = out.iter().any(|e: &CodegenError| e.location == loc && e.message == text);
        if !names.is_empty() && !known {
            out.push(CodegenError::new(Code::W0407, loc, text));
        }
    };
    let mut places: FxHashSet<Loc> = FxHashSet::default();
    for &op in constraints.tagged() {
        places.insert(placed.op_loc(op));
        let words = RematWords::of(placed, op);
        let columns = placed.result(op).and_then(|v| placed.value_data(v).dims()?.last().copied());
        if words.atom == 0 || columns.is_none_or(|n| n > words.atom) {
            warn(placed, op, &SLICE_WORDS, "its tile is not cut that small");
        }
        let why = match words.recomputable {
            true => {
                "only what is computed in registers, and what is read from shared or tensor memory, is made again"
            }
            false => "`tileas.recomputable` is missing",
        };
        warn(placed, op, &RECOMPUTE_WORDS, why);
        if !fuses_reads {
            let why = "no reads are fused (option tune.fuse-reads)";
            warn(placed, op, &[keys::ENABLE_DEFUSION_IF_FUSION_EXTENDING_LIVENESS], why);
        }
        if placed.opcode(op) == Opcode::For {
            match analysis.loops[op] {
                Some(_) => {
                    warn(placed, op, &PLACEMENT_WORDS[..3], "it is for ops of a loop, not for the loop")
                }
                None => warn(placed, op, &PLACEMENT_WORDS, "only innermost loops are scheduled"),
            }
        } else if let Some(why) = reason(placed, constraints, analysis, op) {
            warn(placed, op, why.0, &why.1);
        }
    }
    let tagged = |&op: &Op| PLACEMENT_WORDS.iter().any(|&k| lookup(source, op, k).is_some());
    for op in source.ops().filter(tagged) {
        let loc = source.op_loc(op);
        if loc != Loc::NONE && !places.contains(&loc) {
            warn(source, op, &PLACEMENT_WORDS, "placement replaces the op");
        }
    }
    out
}

/// Why the constraints of an op, and which of them, have no effect.
fn reason(
    func: &Function,
    constraints: &ConstraintMap,
    analysis: &ScheduleAnalysis,
    op: Op,
) -> Option<(&'static [Sym], String)> {
    let all = |why: &str| Some((&PLACEMENT_WORDS[..], why.to_owned()));
    // The op of a loop body that the op is, or is in.
    let mut item = op;
    while analysis.node_of[item].is_none() {
        match func.op_parent(item) {
            Some(up) if func.opcode(up) == Opcode::If => item = up,
            Some(up) if func.opcode(up) == Opcode::For && analysis.loops[up].is_some() => {
                return all("every agent that needs the op computes it, so it has no place in the schedule");
            }
            _ => return all("only the bodies of innermost loops are scheduled"),
        }
    }
    let first = first_group(func, constraints, item);
    let own = constraints.group(op);
    (own.is_some() && own != first).then(|| {
        let gid = first.map_or(0, |g| constraints.groups().gid(g));
        (&PLACEMENT_WORDS[..2], format!("the `if` around it is scheduled as one op, of group {gid}"))
    })
}

/// The group of an op, or of the first op inside it that has one.
fn first_group(func: &Function, constraints: &ConstraintMap, op: Op) -> Option<Group> {
    let mut found = constraints.group(op);
    for &r in func.regions(op) {
        func.walk(func.region_block(r), &mut |inner| found = found.or(constraints.group(inner)));
    }
    found
}
