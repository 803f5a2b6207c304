//! Who owns a slot when: accesses to what a pipe hands over stand between its acquire and commit, wait and release.
//!
//! The graphs prove that conflicting accesses are ordered by *some* path; this module checks that each pipe does what
//! it says: its producer writes every buffer it hands over, after the acquire, and at least once before the commit;
//! each consumer reaches every buffer between wait and release, or in a region before, and not after the release, unless
//! it waits for loads and touches nothing that they bring; slots are selected by the iterator of a pipe that advances
//! with it; writes of threads for an asynchronous reader are published; who took a slot, the lane alone or every thread,
//! gives it up. A pipe with an iteration distance has windows before and after the loop of its home too.
//! Errors: E0703, E0705.
//! Cost: pipes × accesses of their homes.

use super::model::{Engine, Event, Found, Model, Touch, What};
use crate::error::Code;
use crate::ir::{Function, Op, Opcode, Signal, Space, Value, keys};

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
    match m.pipes[p].full {
        Signal::Tx { .. } => Engine::Load,
        Signal::Commit(_) => Engine::Mma,
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

/// The windows of a pipe in a region: the n-th opening of an end with its n-th closing.
fn windows<'m>(m: &'m Model<'_>, p: usize, region: usize, out: &mut Vec<Window<'m>>) {
    let info = &m.pipes[p];
    // Scalars are read by the lane itself.
    let scalars = !info.buffers.is_empty() && info.buffers.iter().all(|&b| m.sent(b).is_some());
    for (a, list) in m.regions[region].events.iter().enumerate() {
        for (i, e) in list.iter().enumerate() {
            let consumer = match e.what {
                What::Acquire(q) if q == p => None,
                What::Wait(q, c) if q == p => Some(c),
                _ => continue,
            };
            let same = |w: &What| match *w {
                What::Acquire(q) => q == p && consumer.is_none(),
                What::Wait(q, c) => q == p && consumer == Some(c),
                _ => false,
            };
            let ends = |w: &What| match *w {
                What::Commit(q, _) => q == p && consumer.is_none(),
                What::Release(q, c, _) => q == p && consumer == Some(c),
                _ => false,
            };
            let number = list[..i].iter().filter(|x| same(&x.what)).count();
            let Some((k, close)) = list.iter().enumerate().filter(|x| ends(&x.1.what)).nth(number) else {
                continue;
            };
            let matrix = m.threads[a] == 1 && !scalars;
            let engine = match close.what {
                _ if consumer.is_none() => producer_engine(m, p),
                What::Release(_, _, Some(_)) => Engine::Store,
                _ if matrix => Engine::Mma,
                _ => Engine::Threads,
            };
            let (open, close) = ((e.local, i), (close.local, k));
            let produce = consumer.is_none();
            out.push(Window { pipe: p, agent: a, engine, open, close, produce, op: list[k].op, list });
        }
    }
}

/// Checks all pipes.
pub fn check(m: &mut Model<'_>, homes: &[usize]) {
    let mut found = Found::default();
    let mut list = Vec::new();
    for (p, info) in m.pipes.iter().enumerate() {
        if info.distance != 0 && !m.around(homes[p], p) {
            let text = format!(
                "Pipe_{p} has distance {}, but every execution of its home waits for the slot of the same iteration",
                info.distance
            );
            found.bad(Code::E0703, info.op, text);
        }
        list.clear();
        windows(m, p, homes[p], &mut list);
        for w in &list {
            threads(m, w, &mut found);
            payload(m, w, &mut found);
        }
        if let Some(outer) = m.regions[homes[p]].parent.filter(|_| m.around(homes[p], p)) {
            list.clear();
            windows(m, p, outer, &mut list);
            list.iter().for_each(|w| threads(m, w, &mut found));
            around(m, p, homes[p], &list, &mut found);
        }
    }
    slots(m, homes, &mut found);
    m.report(found);
}

/// Those threads give a slot up that took it: threads that have not waited for an iteration would arrive in it, and the lane alone
/// does not know how far the others are.
fn threads(m: &Model<'_>, w: &Window<'_>, found: &mut Found) {
    let who = |i: usize| if w.list[i].lane { "the issuing lane alone" } else { "every thread" };
    let (open, close) = (w.open.1, w.close.1);
    // A named barrier is the wait of all threads.
    let waits = !m.pipes[w.pipe].named;
    if waits && w.list[open].lane != w.list[close].lane {
        let text = format!(
            "Pipe_{}: of agent {} {} takes the slot, {} gives it up",
            w.pipe,
            w.agent,
            who(open),
            who(close)
        );
        found.bad(Code::E0703, w.op, text);
    }
}

fn payload(m: &Model<'_>, w: &Window<'_>, found: &mut Found) {
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
                // What a consumer read in a region before its wait was handed over by a pipe in there; it waits for the
                // last version and gives the slot back. The graphs tell whether that order holds.
                let nested = !w.produce && matches!(top.what, What::Region(_)) && at < w.open;
                if (at > w.open || nested) && before_end && mine && (t.writes || !w.produce) {
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
            found.bad(Code::E0703, e.op, text);
        }
        if !inside && !waits_alone(m, w, buffer) {
            let what = if w.produce { "write" } else { "use" };
            let text =
                format!("Pipe_{p}: agent {} does not {what} buffer {n} while it owns the slot", w.agent);
            found.bad(Code::E0703, w.op, text);
        }
        if w.produce && w.engine == Engine::Threads {
            publish(m, w, buffer, found);
        }
    }
}

/// Whether a consumer only waits until loads have read global memory: it touches nothing of what they bring to the buffer.
fn waits_alone(m: &Model<'_>, w: &Window<'_>, buffer: Value) -> bool {
    let mut touched = false;
    w.list.iter().for_each(|top| {
        accesses(m, w.agent, top, &mut |_, t, _, _| touched |= t.buffer == buffer);
    });
    !w.produce && producer_engine(m, w.pipe) == Engine::Load && !touched
}

/// Right outside of a home with a distance: before the loop the producer touches the buffers in its windows alone, and
/// after it each consumer does. That it touches them is not demanded: a first version may be empty, a last one unused.
fn around(m: &Model<'_>, p: usize, home: usize, list: &[Window<'_>], found: &mut Found) {
    for w in list {
        let is_home = |e: &Event| matches!(&e.what, What::Region(inner) if inner.contains(&home));
        let Some(home_at) = w.list.iter().position(is_home) else { continue };
        for (i, e) in w.list.iter().enumerate().filter(|&(i, _)| i != home_at && (i < home_at) == w.produce) {
            // A load may stand behind the commit that announces it.
            let held = |v: &Window<'_>| {
                let open = v.agent == w.agent && v.produce == w.produce && v.open.1 < i;
                open && (i < v.close.1 || v.engine == Engine::Load)
            };
            if list.iter().any(held) {
                continue;
            }
            accesses(m, w.agent, e, &mut |engine, t, x, completes| {
                let other = engine == Engine::Load && completes != Some(p);
                if engine == w.engine && m.pipes[p].buffers.contains(&t.buffer) && t.ring == Some(p) && !other
                {
                    let text = format!(
                        "Pipe_{p}: {} uses a slot outside of a window of agent {} around the loop",
                        m.event_name(x),
                        w.agent
                    );
                    found.bad(Code::E0703, x.op, text);
                }
            });
        }
    }
}

/// Whether an op is a product onto an accumulator in registers.
fn is_group_product(func: &Function, op: Op) -> bool {
    let in_registers = |v: Value| func.value_data(v).space() == Some(Space::Rmem);
    func.opcode(op) == Opcode::AsyncDot && func.result(op).is_some_and(in_registers)
}

fn publish(m: &Model<'_>, w: &Window<'_>, buffer: Value, found: &mut Found) {
    let op = m.pipes[w.pipe].op;
    let asynchronous = m.regions.iter().flat_map(|r| r.events.iter().enumerate()).any(|(a, list)| {
        let waits = list.iter().any(|e| matches!(e.what, What::Wait(q, _) if q == w.pipe));
        waits
            && list.iter().any(|e| {
                let mut hit = false;
                accesses(m, a, e, &mut |engine, t, x, _| {
                    // Products that threads issue read as engines do.
                    let engine = engine != Engine::Threads || is_group_product(m.func, x.op);
                    hit |= t.buffer == buffer && engine
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
        found.bad(Code::E0703, op, text);
    }
}

/// An iterator that selects slots of a ring advances where the pipes of the ring do.
fn slots(m: &Model<'_>, homes: &[usize], found: &mut Found) {
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
                        found.bad(Code::E0705, e.op, text);
                    }
                }
            }
        }
    }
}
