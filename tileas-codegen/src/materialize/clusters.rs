//! Tiles that the CTAs of a cluster load together.
//!
//! In: a materialised function, and how many CTAs a cluster has. Out: the same with `cluster` on the kernel, `multicast` on the descriptors through which CTAs
//! load together, and on the pipelines that these tiles go through: each CTA loads one of so many parts of the rows and writes it to the shared memory of all, and
//! who frees a slot frees it in all. L2 is asked for such a tile once a cluster.
//!
//! The CTAs of a cluster differ in one coordinate of the grid. A load is theirs together if its place does not depend on that coordinate, and if all of them run it
//! equally often: whatever touches its pipeline stands in loops and branches that do not depend on it either. What is read from memory may differ. The memory of the ring
//! is of nobody else, since one CTA does not know what another uses it for. Of the axes for which there are such loads that one is taken for which they are most bytes.
//!
//! Guarantee: nothing is changed where there is no such load. [`plan`] is also what R5 holds marks against. Cost: linear in ops, a few times; pipelines × ops.
//! Source: PTX ISA, cp.async.bulk.tensor (`.multicast::cluster`), mbarrier.arrive, barrier.cluster.

use super::groups::sharing;
use crate::ir::cluster::parted;
use crate::ir::opcodes::{Traits, keys};
use crate::ir::{AttrData, Function, Op, Opcode, PipeDef, Signal, Space, TypeData, Value, ValueDef};
use cranelift_entity::EntitySet;
use smallvec::SmallVec;

/// What CTAs that differ in one coordinate can load together.
#[derive(Default)]
pub(crate) struct Plan {
    /// Descriptors, all loads of which are.
    pub descs: SmallVec<[Op; 4]>,
    /// Pipelines of these loads.
    pub pipes: SmallVec<[Op; 4]>,
    /// Bytes of these tiles.
    bytes: u64,
}

/// Marks what the CTAs of clusters load together; false: there is nothing.
pub(crate) fn share(func: &mut Function, ctas: u32) -> bool {
    let uses = |axis: i64| {
        func.ops()
            .any(|op| func.opcode(op) == Opcode::ProgramId && func.attr_int(op, keys::AXIS) == Some(axis))
    };
    let plans = (0..3).filter(|&axis| uses(axis)).map(|axis| (axis, plan(func, axis, ctas)));
    let best = plans.reduce(|best, next| if next.1.bytes > best.1.bytes { next } else { best });
    let Some((axis, plan)) = best.filter(|(_, plan)| plan.bytes > 0) else { return false };
    for &op in plan.descs.iter().chain(&plan.pipes) {
        func.set_attr(op, keys::MULTICAST, AttrData::Unit);
    }
    let size = |d: i64| AttrData::Int(if d == axis { ctas.into() } else { 1 }, None);
    let list = (0..3).map(|d| func.intern_attr(size(d))).collect();
    let cluster = func.intern_attr(AttrData::Array(list));
    func.attrs.set(keys::CLUSTER, cluster);
    true
}

/// What `ctas` that differ in their coordinate of an axis can load together.
pub(crate) fn plan(func: &Function, axis: i64, ctas: u32) -> Plan {
    let none = Plan::default();
    let differs = differing(func, axis);
    let shared = sharing(func);
    let mut pipes: SmallVec<[Op; 8]> = func
        .block_ops(func.entry())
        .filter(|&op| {
            let def = PipeDef::of(func, op);
            let signals = matches!(def.full, Signal::Tx { .. })
                && matches!(def.empty, Signal::Arrive(n) | Signal::Commit(n) if n > 0);
            func.opcode(op) == Opcode::AsyncPipelineCreatePipeline
                && signals
                && def.named.is_none()
                && !func.has_attr(op, keys::INSTANCES)
                && !func.operands(op).iter().any(|b| shared.contains(b))
        })
        .collect();
    // Who touches them does so equally often.
    for op in func.ops() {
        match func.opcode(op) {
            Opcode::AsyncPipelineAgentSwitch if func.has_attr(op, keys::INSTANCES) => return none,
            Opcode::For | Opcode::If | Opcode::Yield => continue,
            _ => {}
        }
        for &v in func.operands(op).iter().filter(|&&v| is_end(func, v)) {
            match pipe_of(func, v) {
                None => return none,
                Some(p) if !runs_alike(func, op, &differs) => pipes.retain(|other| *other != p),
                Some(_) => {}
            }
        }
    }
    let mut plan = Plan::default();
    let mut loads: SmallVec<[(Op, Op, u64); 8]> = SmallVec::new();
    let mut apart: SmallVec<[Op; 4]> = SmallVec::new();
    for op in func.ops() {
        for &v in
            func.operands(op).iter().filter(|&&v| matches!(func.value_data(v), TypeData::TmaDesc { .. }))
        {
            let Some(desc) = func.defining_op(v) else { return none };
            let data = func.value_data(v);
            let pipe = func.named_operand(op, "barrier").and_then(|b| pipe_of(func, b));
            let together = func.opcode(op) == Opcode::AsyncTiledTmaLoad
                && !func.named_segment(op, "coords").iter().any(|&c| differs.contains(c))
                && data.dims().is_some_and(|dims| parted(dims, ctas).is_some());
            match pipe.filter(|p| together && pipes.contains(p)) {
                Some(pipe) => loads.push((desc, pipe, data.num_bytes().unwrap_or(0))),
                None => apart.push(desc),
            }
        }
    }
    for (desc, pipe, bytes) in loads.into_iter().filter(|(desc, ..)| !apart.contains(desc)) {
        plan.bytes += bytes;
        if !plan.descs.contains(&desc) {
            plan.descs.push(desc);
        }
        if !plan.pipes.contains(&pipe) {
            plan.pipes.push(pipe);
        }
    }
    plan
}

/// Whether a value is an end of a pipeline.
fn is_end(func: &Function, v: Value) -> bool {
    matches!(func.value_data(v), TypeData::PipeProducer(_) | TypeData::PipeConsumer(_))
}

/// The pipeline that a value is an end of.
pub(crate) fn pipe_of(func: &Function, end: Value) -> Option<Op> {
    let mut v = end;
    // Each step goes out of a region or to what was before; nothing is nested as deep as there are ops.
    for _ in 0..func.num_ops() {
        v = match func.value_def(v) {
            ValueDef::Result(op, n) => match func.opcode(op) {
                Opcode::AsyncPipelineCreatePipeline => return Some(op),
                Opcode::For => *func.operands(op).get(3 + n as usize)?,
                Opcode::If => *func.operands(func.terminator(op, 0)?).get(n as usize)?,
                _ => *func.operands(op).iter().find(|&&v| is_end(func, v))?,
            },
            ValueDef::Param(block, n) => {
                let op = func.block_parent(block).filter(|&op| func.opcode(op) == Opcode::For)?;
                *func.operands(op).get(2 + n as usize)?
            }
        };
    }
    None
}

/// What says how often the regions of an op run; `None`: it does not say it by values alone.
fn control(func: &Function, op: Op) -> Option<&[Value]> {
    match func.opcode(op) {
        Opcode::For if func.exit_of(op).is_none() => func.operands(op).get(..3),
        Opcode::If => func.operands(op).get(..1),
        Opcode::AsyncPipelineAgentSwitch => Some(&[]),
        _ => None,
    }
}

/// Whether all CTAs run an op equally often.
fn runs_alike(func: &Function, op: Op, differs: &EntitySet<Value>) -> bool {
    let alike =
        |&op: &Op| control(func, op).is_some_and(|values| !values.iter().any(|&v| differs.contains(v)));
    std::iter::successors(func.op_parent(op), |&op| func.op_parent(op)).all(|op| alike(&op))
}

/// Values that may differ between CTAs that differ in their coordinate of an axis.
fn differing(func: &Function, axis: i64) -> EntitySet<Value> {
    let mut set: EntitySet<Value> = EntitySet::new();
    loop {
        let mut grown = false;
        for op in func.ops() {
            let (operands, results) = (func.operands(op), func.results(op));
            let differs = |v: Option<&Value>| v.is_some_and(|&v| set.contains(v));
            let yielded = |region: usize, n: usize| {
                func.terminator(op, region).map(|t| func.operands(t)).and_then(|y| y.get(n))
            };
            let controlled = control(func, op).is_none_or(|values| values.iter().any(|&v| set.contains(v)));
            let mut more: SmallVec<[Value; 8]> = SmallVec::new();
            match func.opcode(op) {
                Opcode::For => {
                    let Some(body) = func.op_block_at(op, 0) else { continue };
                    let params = func.block_params(body);
                    more.extend(params.first().filter(|_| controlled).copied());
                    for (n, &r) in results.iter().enumerate() {
                        if differs(operands.get(3 + n)) || differs(yielded(0, n)) {
                            more.extend(params.get(1 + n).copied());
                            more.push(r);
                        } else if controlled {
                            more.push(r);
                        }
                    }
                }
                Opcode::If => more.extend(
                    results
                        .iter()
                        .enumerate()
                        .filter(|&(n, _)| controlled || differs(yielded(0, n)) || differs(yielded(1, n)))
                        .map(|(_, &r)| r),
                ),
                Opcode::AsyncPipelineAgentSwitch => more.extend_from_slice(results),
                _ if !func.regions(op).is_empty() => {
                    more.extend_from_slice(results);
                    let blocks = func.regions(op).iter().map(|&r| func.region_block(r));
                    blocks.for_each(|b| more.extend_from_slice(func.block_params(b)));
                }
                opcode => {
                    let memory = opcode.has(Traits::READS_GLOBAL)
                        || opcode.has(Traits::WRITES_GLOBAL)
                        || operands.iter().any(|&v| {
                            matches!(func.value_data(v), TypeData::Tile { space: Some(s), .. } if *s != Space::Rmem)
                        });
                    let own = opcode == Opcode::ProgramId && func.attr_int(op, keys::AXIS) == Some(axis);
                    // The ends of pipelines are the same ones in all.
                    let end = |v: &&Value| !is_end(func, **v);
                    if memory || own || operands.iter().any(|v| differs(Some(v))) {
                        more.extend(results.iter().filter(end).copied());
                    }
                }
            }
            more.into_iter().for_each(|v| grown |= set.insert(v));
        }
        if !grown {
            return set;
        }
    }
}
