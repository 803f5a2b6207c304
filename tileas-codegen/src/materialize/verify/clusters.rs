//! What the CTAs of a cluster load together.
//!
//! The graphs read one CTA, as if each loaded its tiles whole. That holds for all of a cluster where each runs the same loads into the same slots, and nobody is
//! overtaken: the slot of a pipeline that is `multicast` is free when the consumers of all CTAs have freed it. Checked here:
//! - marks stand where a cluster is, and its CTAs differ in one coordinate;
//! - what is loaded through a marked descriptor is the same for all, is divided evenly, and goes through a marked pipeline;
//! - a marked pipeline is taken and freed equally often by all, and its memory has no other use.
//!
//! Errors: E0708. Cost: that of [`clusters::plan`].

use super::model::{Found, Model};
use crate::error::Code;
use crate::ir::cluster::cluster_of;
use crate::ir::grid::GridOrder;
use crate::ir::{Opcode, keys};
use crate::materialize::clusters;

/// Checks the marks of clusters.
pub fn check(m: &mut Model<'_>) {
    let func = m.func;
    let mut found = Found::default();
    if let Some(first) = func.ops().next()
        && func.attrs.get(keys::GRID_ORDER).is_some()
        && GridOrder::of(func).is_none()
    {
        let expected = "`grid_order` wants two axes of the grid and a power of two from 2 to 64";
        found.bad(Code::E0708, first, expected);
        m.report(std::mem::take(&mut found));
    }
    let mut marked = func.ops().filter(|&op| func.has_attr(op, keys::MULTICAST)).peekable();
    let Some(&first) = marked.peek() else { return };
    let Some((axis, ctas)) = cluster_of(func) else {
        found.bad(
            Code::E0708,
            first,
            "`multicast` in a kernel without clusters of several CTAs along one axis",
        );
        return m.report(found);
    };
    let plan = clusters::plan(func, axis as i64, ctas);
    for op in marked.filter(|op| !plan.descs.contains(op) && !plan.pipes.contains(op)) {
        found.bad(Code::E0708, op, format!("the {ctas} CTAs of a cluster cannot load through this together"));
    }
    for op in func.ops().filter(|&op| func.opcode(op) == Opcode::AsyncTiledTmaLoad) {
        let desc = func.named_operand(op, "desc").and_then(|d| func.defining_op(d));
        let pipe = func.named_operand(op, "barrier").and_then(|b| clusters::pipe_of(func, b));
        if desc.is_some_and(|d| func.has_attr(d, keys::MULTICAST))
            && !pipe.is_some_and(|p| func.has_attr(p, keys::MULTICAST))
        {
            found.bad(
                Code::E0708,
                op,
                "the CTAs of a cluster load this together, but its slot is freed in one",
            );
        }
    }
    m.report(found);
}
