//! Who owns a slot when: accesses to what a pipe hands over stand between its acquire and commit, wait and release.
//!
//! The graphs prove that conflicting accesses are ordered by *some* path; this module checks that each pipe does what
//! it says: its producer writes every buffer it hands over, after the acquire, and at least once before the commit;
//! each consumer reaches every buffer between wait and release and not after the release; slots are selected by the
//! iterator of a pipe that advances with it; writes of threads for an asynchronous reader are published. Also: no
//! pipe has an iteration distance, since every execution of a home waits. Errors: E0703, E0705.
//! Cost: pipes × accesses of their homes.

use super::model::{Engine, Event, Model, Touch, What};
use crate::error::Code;
use crate::ir::{Block, Function, Op, Opcode, Space, TypeData, Value, ValueDef, keys};
use rustc_hash::FxHashSet;

/// Visits the accesses of an event and of the regions in it.
fn accesses<'m>(
    m: &'m Model<'_>,
    agent: usize,
    e: &'m Event,
    f: &mut dyn FnMut(Engine, &'m Touch, &'m Event, Option<usize>),
) {
    match &e.what {
        What::Access(engine, touches, completes) => {
            touches.iter().for_each(|t| f(*engine, t, e, *completes));
        }
        What::Region(inner) => {
            for &r in inner {
                m.regions[r].events[agent].iter().for_each(|e| accesses(m, agent, e, f));
            }
        }
        _ => {}
    }
}

/// The engine whose completion an end of a pipe stands for, as far as it can be told.
fn producer_engine(m: &Model<'_>, p: usize) -> Engine {
    match m.pipes[p].full.name.as_str() {
        "tx" => Engine::Load,
        "commit" => Engine::Mma,
        _ => Engine::Threads,
    }
}

/// One window: agent, engine, and the events that open and close it.
struct Window<'m> {
    pipe: usize,
    agent: usize,
    engine: Engine,
    open: (i64, usize),
    close: (i64, usize),
    produce: bool,
    op: Op,
    list: &'m [Event],
}

fn windows<'m>(m: &'m Model<'_>, p: usize, home: usize) -> Vec<Window<'m>> {
    let mut out = Vec::new();
    for (a, list) in m.regions[home].events.iter().enumerate() {
        let find =
            |f: &dyn Fn(&What) -> bool| list.iter().position(|e| f(&e.what)).map(|i| (list[i].local, i));
        if let (Some(open), Some(close)) = (
            find(&|w| matches!(w, What::Acquire(q) if *q == p)),
            find(&|w| matches!(w, What::Commit(q, _) if *q == p)),
        ) {
            let engine = producer_engine(m, p);
            out.push(Window {
                pipe: p,
                agent: a,
                engine,
                open,
                close,
                produce: true,
                op: list[close.1].op,
                list,
            });
        }
        for e in list {
            let What::Wait(q, c) = e.what else { continue };
            if q != p {
                continue;
            }
            let (Some(open), Some(close)) = (
                find(&|w| *w == What::Wait(p, c)),
                find(&|w| matches!(w, What::Release(q, d, _) if *q == p && *d == c)),
            ) else {
                continue;
            };
            let bulk = matches!(list[close.1].what, What::Release(_, _, Some(_)));
            // Scalars are read by the lane itself.
            let one = |&b: &Value| {
                m.func.value_data(b).num_elements().is_some_and(|n| n as i64 == m.pipes[p].depth)
            };
            let scalars = !m.pipes[p].buffers.is_empty() && m.pipes[p].buffers.iter().all(one);
            let matrix = m.threads[a] == 1 && !scalars;
            let engine = if bulk {
                Engine::Store
            } else if matrix {
                Engine::Mma
            } else {
                Engine::Threads
            };
            out.push(Window {
                pipe: p,
                agent: a,
                engine,
                open,
                close,
                produce: false,
                op: list[close.1].op,
                list,
            });
        }
    }
    out
}

/// Checks all pipes.
pub fn check(m: &mut Model<'_>, homes: &[usize]) {
    let mut found: Vec<(Code, Op, String)> = Vec::new();
    for (p, info) in m.pipes.iter().enumerate() {
        if info.distance != 0 && !m.around(homes[p], p) {
            let text = format!(
                "Pipe_{p} has distance {}, but every execution of its home waits for the slot of the same turn",
                info.distance
            );
            found.push((Code::E0703, info.op, text));
        }
        for w in windows(m, p, homes[p]) {
            payload(m, &w, &mut found);
        }
    }
    slots(m, homes, &mut found);
    iterators(m, &mut found);
    for (code, op, message) in found {
        m.error(code, op, message);
    }
}

fn payload(m: &Model<'_>, w: &Window<'_>, found: &mut Vec<(Code, Op, String)>) {
    let (p, info) = (w.pipe, &m.pipes[w.pipe]);
    for (n, &buffer) in info.buffers.iter().enumerate() {
        let mut inside = false;
        let mut outside: Option<&Event> = None;
        for (i, top) in w.list.iter().enumerate() {
            let at = (top.local, i);
            accesses(m, w.agent, top, &mut |engine, t, e, completes| {
                if t.buffer != buffer || engine != w.engine {
                    return;
                }
                // What a load writes belongs to the pipe it completes on.
                let mine = engine != Engine::Load || completes == Some(p);
                let before_end = at < w.close || engine == Engine::Load;
                if at > w.open && before_end && mine && (t.writes || !w.produce) {
                    inside = true;
                }
                let late = !w.produce && at > w.close;
                let early = w.produce && at < w.open;
                if (late || early) && outside.is_none() {
                    outside = Some(e);
                }
            });
        }
        if let Some(e) = outside {
            let (what, limit) = if w.produce {
                ("before its acquire", "acquired")
            } else {
                ("after its release", "released")
            };
            let text = format!(
                "Pipe_{p}: {} uses buffer {n} {what} (agent {}, {limit} at {})",
                m.event_name(e),
                w.agent,
                m.event_name(&w.list[if w.produce { w.open.1 } else { w.close.1 }])
            );
            found.push((Code::E0703, e.op, text));
        }
        if !inside {
            let what = if w.produce { "write" } else { "use" };
            let text =
                format!("Pipe_{p}: agent {} does not {what} buffer {n} while it owns the slot", w.agent);
            found.push((Code::E0703, w.op, text));
        }
        if w.produce && w.engine == Engine::Threads {
            publish(m, w, buffer, found);
        }
    }
}

fn publish(m: &Model<'_>, w: &Window<'_>, buffer: Value, found: &mut Vec<(Code, Op, String)>) {
    let op = m.pipes[w.pipe].op;
    let asynchronous = m.regions.iter().flat_map(|r| r.events.iter().enumerate()).any(|(a, list)| {
        let waits = list.iter().any(|e| matches!(e.what, What::Wait(q, _) if q == w.pipe));
        waits
            && list.iter().any(|e| {
                let mut hit = false;
                accesses(m, a, e, &mut |engine, t, _, _| {
                    hit |= t.buffer == buffer && engine != Engine::Threads
                });
                hit
            })
    });
    let need = match m.func.value_data(buffer).space() {
        Some(Space::Tmem) => "tmem",
        _ if asynchronous => "proxy",
        _ => return,
    };
    let have = m.func.attr_name(op, keys::PUBLISH).unwrap_or("none");
    if have != need {
        let text = format!("Pipe_{}: what threads write must be published as {need}, not as {have}", w.pipe);
        found.push((Code::E0703, op, text));
    }
}

/// An iterator that selects slots of a ring advances where the pipes of the ring do.
fn slots(m: &Model<'_>, homes: &[usize], found: &mut Vec<(Code, Op, String)>) {
    for region in &m.regions {
        for list in &region.events {
            for e in list {
                let What::Access(_, touches, _) = &e.what else { continue };
                for t in touches {
                    let Some(q) = t.ring.filter(|&q| m.pipes[q].depth > 1) else { continue };
                    let other = (0..m.pipes.len())
                        .find(|&p| m.pipes[p].buffers.contains(&t.buffer) && p != q && homes[p] != homes[q]);
                    let carried = m.pipes.iter().any(|p| p.buffers.contains(&t.buffer));
                    let own = m.pipes[q].buffers.contains(&t.buffer) || m.pipes[q].buffers.is_empty();
                    if other.is_some() || (carried && !own) {
                        let text = format!(
                            "{} selects a slot by the iterator of Pipe_{q}, which does not advance with the buffer",
                            m.event_name(e)
                        );
                        found.push((Code::E0705, e.op, text));
                    }
                }
            }
        }
    }
}

/// Iterators go round: inside a loop that advances a pipe only what the loop carries is used, and what an advance makes
/// is handed on and not used in the same turn.
fn iterators(m: &Model<'_>, found: &mut Vec<(Code, Op, String)>) {
    let func = m.func;
    let mut handed_on: FxHashSet<Value> = FxHashSet::default();
    let mut used: FxHashSet<Value> = FxHashSet::default();
    // Loops and the pipes they advance.
    let mut advances: FxHashSet<(Op, usize)> = FxHashSet::default();
    let all = func.all_ops();
    let pipe = |op: Op| func.operands(op).first().and_then(|&v| m.trace(v, 64)).map(|t| t.0);
    for &op in &all {
        if func.opcode(op) == Opcode::AsyncPipelineIncIter
            && let (Some(l), Some(p)) = (enclosing_loop(func, func.op_block(op)), pipe(op))
        {
            advances.insert((l, p));
        }
    }
    for &op in &all {
        let terminator = func.opcode(op).is_terminator();
        for &v in func.operands(op) {
            if !matches!(func.value_data(v), TypeData::PipeIter(_)) {
                continue;
            }
            if terminator {
                handed_on.insert(v);
                continue;
            }
            if func.regions(op).is_empty() {
                used.insert(v);
            }
            let Some((p, _)) = m.trace(v, 64) else { continue };
            let mut around = enclosing_loop(func, func.op_block(op));
            while let Some(l) = around.filter(|&l| !advances.contains(&(l, p))) {
                around = enclosing_loop(func, func.op_block(l));
            }
            let born = match func.value_def(v) {
                ValueDef::Result(d, _) => func.op_block(d),
                ValueDef::Param(b, _) => Some(b),
            };
            if around.is_some() && enclosing_loop(func, born) != around {
                let text = format!("an iterator of Pipe_{p} that the loop around does not carry");
                found.push((Code::E0705, op, text));
            }
        }
    }
    for op in all.into_iter().filter(|&op| func.opcode(op) == Opcode::AsyncPipelineIncIter) {
        let Some(next) = func.result(op) else { continue };
        if used.contains(&next) {
            found.push((Code::E0705, op, "an iterator is used after it advanced in the same turn".into()));
        }
        // Outside of every loop the last advance may stand for nothing.
        if !handed_on.contains(&next) && enclosing_loop(func, func.op_block(op)).is_some() {
            found.push((Code::E0705, op, "an advanced iterator is not handed on".into()));
        }
    }
}

/// The innermost loop around a block.
fn enclosing_loop(func: &Function, mut b: Option<Block>) -> Option<Op> {
    while let Some(op) = b.and_then(|b| func.block_parent(b)) {
        if func.opcode(op) == Opcode::For {
            return Some(op);
        }
        b = func.op_block(op);
    }
    None
}
