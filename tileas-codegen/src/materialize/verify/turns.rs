//! Loops whose iterations instances of an agent run in turns.
//!
//! The graphs read such an agent as one that runs all iterations, but in the loop that is dealt out its order goes from the end of an iteration to
//! the begin of the next but one (the next one of that instance), and from where a turn is given to the begin of the next one. Fewer orders block no
//! more. What they do not show is checked here:
//! - there is one such loop, it holds all that the agent waits for, signals or touches, and carries iterators alone;
//! - it gives one turn in each iteration. What the agent waits for in inner regions, it waits for before: so the instances wait for the slots of a ring
//!   one after the other, and none takes the phase of a barrier for the next but one. What it takes in the loop itself comes in a slot of that
//!   instance: the number of slots is a multiple of that of the instances;
//! - what the agent hands to itself, each instance has for itself: pipes with named barriers, and buffers, of which those of one instance lie
//!   together, with nothing else among them; it hands nothing to other agents but slots that it gives back.
//!
//! Errors: E0703 for waits and turns, E0705 for slots, E0708 for what is malformed and for places. Cost: linear in events, buffers × buffers.

use super::model::{Found, Model, What};
use crate::error::Code;
use crate::ir::{Function, Op, Opcode, Space, TypeData, keys};
use smallvec::SmallVec;

/// Checks agents with instances.
pub fn check(m: &mut Model<'_>) {
    let mut found = Found::default();
    let func = m.func;
    for op in func.ops() {
        let (deals, gives) =
            (func.has_attr(op, keys::DEALT), func.opcode(op) == Opcode::AsyncPipelineGiveTurn);
        if (deals || gives) && m.dealt.is_none() {
            found.bad(Code::E0708, op, "no agent has instances that take turns at a loop");
        }
    }
    for a in 0..m.threads.len() {
        if m.instances[a] != 1 || m.dealt.is_some_and(|d| d.0 == a) {
            agent(m, a, &mut found);
        }
    }
    for (n, p) in m.pipes.iter().enumerate().filter(|(_, p)| p.own) {
        if m.dealt.is_none() || !p.named {
            found.bad(
                Code::E0708,
                p.op,
                format!(
                    "Pipe_{n} is each instance's, of an agent without instances or without a named barrier"
                ),
            );
        }
    }
    m.report(found);
}

fn agent(m: &Model<'_>, a: usize, found: &mut Found) {
    let func = m.func;
    let switch = func.block_ops(func.entry()).find(|&op| func.opcode(op) == Opcode::AsyncPipelineAgentSwitch);
    let Some(switch) = switch else { return };
    let n = m.instances[a];
    let region = m.dealt.filter(|d| d.0 == a && n > 1 && m.regions[d.1].parent == Some(0)).map(|d| d.1);
    let Some(region) = region else {
        return found.bad(
            Code::E0708,
            switch,
            format!("agent {a} has {n} instances and no outermost loop that is dealt out"),
        );
    };
    for e in &m.regions[0].events[a] {
        let is_loop = matches!(&e.what, What::Region(inner) if inner.contains(&region));
        if !is_loop {
            found.bad(
                Code::E0703,
                e.op,
                "an agent with instances does this outside of the loop that is dealt out",
            );
        } else if func
            .operands(e.op)
            .iter()
            .skip(3)
            .any(|&v| !matches!(func.value_data(v), TypeData::PipeIter(_)))
        {
            found.bad(Code::E0708, e.op, "iterations that are dealt out carry more than iterators");
        }
    }
    let list = &m.regions[region].events[a];
    let mut turns = list.iter().enumerate().filter(|(_, e)| e.what == What::GiveTurn).map(|x| x.0);
    let (Some(turn), None) = (turns.next(), turns.next()) else {
        return found.bad(
            Code::E0703,
            switch,
            format!("agent {a} does not give one turn in each iteration that is dealt out"),
        );
    };
    if list.iter().any(|e| e.local != 0) {
        found.bad(Code::E0703, list[turn].op, "iterations that are dealt out have local stages");
    }
    for (i, e) in list.iter().enumerate() {
        let mut inner: SmallVec<[usize; 8]> = SmallVec::new();
        if let What::Region(regions) = &e.what {
            inner.extend(regions.iter().flat_map(|&r| m.below[r].iter().copied()));
        }
        let below = inner.iter().flat_map(|&r| m.regions[r].events[a].iter().map(|e| (true, e)));
        for (nested, x) in std::iter::once((false, e)).chain(below) {
            match x.what {
                What::Wait(p, _) if !m.pipes[p].own && nested && i > turn => {
                    found.bad(Code::E0703, x.op, format!("Pipe_{p}: an instance waits behind its turn, where the next one may be ahead of it"));
                }
                What::Wait(p, _) if !m.pipes[p].own && !nested && m.pipes[p].depth % n != 0 => {
                    let text =
                        format!("Pipe_{p}: {n} instances wait in turns for slots of {}", m.pipes[p].depth);
                    found.bad(Code::E0705, x.op, text);
                }
                What::Acquire(p) | What::Commit(p, _) if !m.pipes[p].own => {
                    found.bad(
                        Code::E0703,
                        x.op,
                        format!("Pipe_{p}: an agent with instances hands it to another agent"),
                    );
                }
                What::GiveTurn if nested => {
                    found.bad(Code::E0703, x.op, "a turn is given in an inner region")
                }
                _ => {}
            }
            if let What::Access(_, touches, _) = &x.what {
                for t in touches {
                    let handed = m.pipes.iter().any(|p| !p.own && p.buffers.contains(&t.buffer));
                    let own = func.defining_op(t.buffer).is_some_and(|d| func.has_attr(d, keys::STRIDE));
                    if own == handed || t.writes && !own {
                        found.bad(
                            Code::E0703,
                            x.op,
                            "an instance touches what is neither its own nor handed to it",
                        );
                    }
                }
            }
        }
    }
    let others = (0..m.threads.len())
        .filter(|&b| b != a)
        .flat_map(|b| m.regions.iter().flat_map(move |r| &r.events[b]));
    for e in others {
        let own = |p: usize| m.pipes[p].own;
        let takes = match &e.what {
            What::Acquire(p) | What::Commit(p, _) | What::Wait(p, _) | What::Release(p, ..) => own(*p),
            What::Access(_, touches, _) => touches
                .iter()
                .any(|t| func.defining_op(t.buffer).is_some_and(|d| func.has_attr(d, keys::STRIDE))),
            _ => false,
        };
        if takes {
            found.bad(Code::E0703, e.op, "this is each instance's of another agent");
        }
    }
    places(func, a, n, found);
}

/// A buffer, its first byte and the first behind it, and its stride if each instance has one.
type Place = (Op, i64, i64, Option<i64>);

/// What the instances have for themselves, and what all have, lie apart.
fn places(func: &Function, a: usize, n: i64, found: &mut Found) {
    let buffers = func.block_ops(func.entry()).filter(|&op| func.opcode(op) == Opcode::AllocTensor);
    let range = |op: Op| {
        let data = func.value_data(func.result(op)?);
        let from = func.attr_int(op, keys::OFFSET).filter(|_| data.space() == Some(Space::Smem))?;
        Some((
            op,
            from,
            from.saturating_add(i64::try_from(data.ring_bytes()?).ok()?),
            func.attr_int(op, keys::STRIDE),
        ))
    };
    let all: SmallVec<[Place; 16]> = buffers.filter_map(range).collect();
    let own = || all.iter().filter(|b| b.3.is_some());
    let Some(first) = own().map(|b| b.1).min() else { return };
    let last = own().map(|b| b.2).max().unwrap_or(first);
    let stride = own().find_map(|b| b.3).unwrap_or(0);
    let end = first.saturating_add(stride.saturating_mul(n));
    for &(op, from, to, own) in &all {
        match own {
            Some(s) if s != stride || stride % ALIGNED != 0 || last - first > stride => {
                let text = format!(
                    "what an instance of agent {a} has takes {} bytes, each {s} behind that of the one before",
                    last - first
                );
                found.bad(Code::E0708, op, text);
            }
            None if from < end && first < to => {
                found.bad(Code::E0708, op, "a buffer of all lies among those of instances")
            }
            _ => {}
        }
    }
}

/// Layouts repeat themselves after so many bytes.
const ALIGNED: i64 = 1024;
