//! Chrome trace events, as read by Perfetto and chrome://tracing. One microsecond stands for one cycle.
//!
//! Two processes per loop. The first has a thread per lane, in lane order (a lane whose ops overlap has several): per op
//! and iteration one complete event over what is held, with all attributes; per dependence and iteration one flow from issue
//! to issue, with the cycles it demands and those the schedule gives it. The second has a thread per slot of capacity 1
//! with who holds it, and a counter per larger slot and pool. Rounds of refinement are marks on the first.
//!
//! Source: Trace Event Format (phases X, s, f, C, M, i).

use crate::picture::{Bar, Layout, Options, Picture};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use tileas_schedule::Node;
use tileas_schedule::render::slack;

/// Threads of one lane.
const TRACKS: u64 = 1000;

/// The trace of some loops as one JSON document.
pub fn chrome_trace(pictures: &[Picture], options: &Options) -> String {
    let mut events = Vec::new();
    let mut flows = 0;
    for (k, p) in pictures.iter().filter(|p| p.is_valid()).enumerate() {
        let layout = Layout::new(p, p.iterations(options));
        let pid = 2 * k as u64;
        let name = format!("{} ({})", p.schedule.name, p.headline());
        lanes(&mut events, p, &layout, pid, &name);
        for b in &layout.bars {
            events.push(issue(p, b, pid));
        }
        dependences(&mut events, p, &layout, pid, &mut flows);
        slots(&mut events, p, &layout, pid + 1);
        rounds(&mut events, p, pid);
    }
    let unit = json!({"unit": "1 us = 1 cycle of the machine model"});
    let document = json!({"displayTimeUnit": "ns", "otherData": unit, "traceEvents": events});
    format!("{document}\n")
}

fn named(events: &mut Vec<Value>, pid: u64, tid: Option<u64>, name: &str) {
    match tid {
        None => {
            events.push(json!({"ph": "M", "pid": pid, "name": "process_name", "args": {"name": name}}));
            let args = json!({"sort_index": pid});
            events.push(json!({"ph": "M", "pid": pid, "name": "process_sort_index", "args": args}));
        }
        Some(tid) => {
            events.push(
                json!({"ph": "M", "pid": pid, "tid": tid, "name": "thread_name", "args": {"name": name}}),
            );
            let args = json!({"sort_index": tid});
            events
                .push(json!({"ph": "M", "pid": pid, "tid": tid, "name": "thread_sort_index", "args": args}));
        }
    }
}

fn thread(b: &Bar) -> u64 {
    u64::from(b.lane) * TRACKS + u64::from(b.track).min(TRACKS - 2) + 1
}

fn lanes(events: &mut Vec<Value>, p: &Picture, layout: &Layout, pid: u64, name: &str) {
    named(events, pid, None, name);
    for (lane, (name, &tracks)) in p.lanes.names.iter().zip(&layout.tracks).enumerate() {
        for track in 0..u64::from(tracks).min(TRACKS - 1) {
            let name = if track == 0 { name.clone() } else { format!("{name} ({})", track + 1) };
            named(events, pid, Some(lane as u64 * TRACKS + track + 1), &name);
        }
    }
}

/// The rounds of refinement as marks at the begin of the loop, one microsecond each.
fn rounds(events: &mut Vec<Value>, p: &Picture, pid: u64) {
    for r in &p.schedule.rounds {
        let name = format!("refinement round {}", r.number);
        let args = json!({"status": r.status.bits(), "kept": r.kept, "text": r.to_string()});
        events.push(
            json!({"ph": "i", "s": "p", "pid": pid, "tid": 0, "ts": r.number, "name": name, "args": args}),
        );
    }
}

/// The execution of an op.
fn issue(p: &Picture, b: &Bar, pid: u64) -> Value {
    let (problem, s, n) = (&p.problem, &p.schedule, b.node);
    let slots: Vec<Value> = problem
        .uses(n)
        .iter()
        .map(|u| {
            let r = &problem.slots()[u.slot];
            json!({"slot": r.name, "id": r.id, "offset": u.offset, "duration": u.duration, "occupancy": u.occupancy})
        })
        .collect();
    let pools: Vec<Value> = problem
        .pool_uses(n)
        .iter()
        .map(|u| json!({"pool": problem.pools()[u.pool].name, "count": u.count, "duration": u.duration}))
        .collect();
    json!({
        "ph": "X", "pid": pid, "tid": thread(b), "ts": b.start, "dur": b.held - b.start,
        "name": problem.id(n), "cat": problem.op_name(n),
        "args": {
            "op": problem.op_name(n), "iteration": b.iteration, "start": s.start[n], "stage": s.stage[n],
            "row": s.start[n] % s.ii, "order": s.order[n], "latency": problem.latency(n),
            "result": b.start + u64::from(problem.latency(n)), "slack": slack(problem, s, n),
            "group": problem.group(n), "ir": p.ir[n], "placed_by": p.placed_by(n), "max_depth": problem.max_depth(n), "slots": slots, "pools": pools,
        },
    })
}

/// A flow per dependence and iteration, where both ends are drawn.
fn dependences(events: &mut Vec<Value>, p: &Picture, layout: &Layout, pid: u64, flows: &mut u64) {
    let bars: BTreeMap<(Node, u32), &Bar> = layout.bars.iter().map(|b| ((b.node, b.iteration), b)).collect();
    let iterations = bars.len().checked_div(p.problem.num_nodes()).unwrap_or(0) as u32;
    for e in p.problem.edges().values() {
        for i in 0..iterations.saturating_sub(e.distance) {
            let (Some(a), Some(b)) = (bars.get(&(e.from, i)), bars.get(&(e.to, i + e.distance))) else {
                continue;
            };
            let args = json!({
                "from": p.problem.id(e.from), "to": p.problem.id(e.to), "iteration": i, "distance": e.distance,
                "minimal": e.latency, "actual": b.start as i64 - a.start as i64,
            });
            for (phase, at) in [("s", a), ("f", b)] {
                let mut event = json!({
                    "ph": phase, "pid": pid, "tid": thread(at), "ts": at.start, "id": *flows, "cat": "dependence",
                    "name": "dependence", "args": args,
                });
                if phase == "f" {
                    // The slice that encloses this time, not the next one.
                    event["bp"] = json!("e");
                }
                events.push(event);
            }
            *flows += 1;
        }
    }
}

/// Who holds each slot, and how much of each larger one is taken.
fn slots(events: &mut Vec<Value>, p: &Picture, layout: &Layout, pid: u64) {
    named(events, pid, None, &format!("{}: slots", p.schedule.name));
    let problem = &p.problem;
    let span = |b: &Bar, offset: u32, duration: u32| {
        let from = b.start + u64::from(offset);
        (from, from + u64::from(duration))
    };
    let mut tid = 0;
    for (slot, r) in problem.slots().iter() {
        let mut held: Vec<(u64, u64, u32, &Bar)> = Vec::new();
        for b in &layout.bars {
            let uses = problem.uses(b.node).iter();
            for u in uses.filter(|u| u.slot == slot && u.duration > 0 && u.occupancy > 0) {
                let (from, to) = span(b, u.offset, u.duration);
                held.push((from, to, u.occupancy, b));
            }
        }
        if held.is_empty() {
            continue;
        }
        if r.capacity > 1 {
            let steps = held.iter().map(|h| (h.0, h.1, h.2));
            counter(events, pid, &format!("slot {}", r.name), r.capacity, steps);
            continue;
        }
        tid += 1;
        named(events, pid, Some(tid), &format!("slot {}", r.name));
        held.sort_by_key(|h| (h.0, p.schedule.order[h.3.node]));
        for (from, to, _, b) in held {
            events.push(json!({
                "ph": "X", "pid": pid, "tid": tid, "ts": from, "dur": to - from, "name": problem.id(b.node), "cat": "slot",
                "args": {"slot": r.name, "iteration": b.iteration, "row": from % p.ii()},
            }));
        }
    }
    for (pool, r) in problem.pools().iter() {
        let steps: Vec<(u64, u64, u32)> = layout
            .bars
            .iter()
            .flat_map(|b| problem.pool_uses(b.node).iter().map(move |u| (b, u)))
            .filter(|(_, u)| u.pool == pool && u.duration > 0 && u.count > 0)
            .map(|(b, u)| {
                let (from, to) = span(b, 0, u.duration);
                (from, to, u.count)
            })
            .collect();
        if !steps.is_empty() {
            counter(events, pid, &format!("pool {}", r.name), r.capacity, steps.into_iter());
        }
    }
}

/// A counter event wherever the sum of (from, to, units) changes.
fn counter(
    events: &mut Vec<Value>,
    pid: u64,
    name: &str,
    capacity: u32,
    holds: impl Iterator<Item = (u64, u64, u32)>,
) {
    let mut changes: BTreeMap<u64, i64> = BTreeMap::new();
    for (from, to, units) in holds {
        *changes.entry(from).or_default() += i64::from(units);
        *changes.entry(to).or_default() -= i64::from(units);
    }
    let mut taken = 0;
    for (at, change) in changes {
        taken += change;
        if change != 0 {
            let args = json!({"taken": taken, "free": i64::from(capacity) - taken});
            events.push(json!({"ph": "C", "pid": pid, "tid": 0, "ts": at, "name": name, "args": args}));
        }
    }
}
