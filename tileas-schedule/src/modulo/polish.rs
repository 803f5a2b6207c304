//! A better schedule of the same II: fewer stages, then ops next to those that read them.
//!
//! In: the best starts. Out: better ones, or the same. Three steps:
//!
//! - *settle* takes ops back by whole intervals, *pull* moves every op to its first free start, in topological order: that shortens the iteration;
//! - *fewest stages*: heuristics give a stage away where the last op misses the end of a stage by a few cycles. Every op
//!   gets the begin of the next stage as a deadline, windows shrink with it, and an attempt of iterative modulo scheduling, then
//!   a bounded search over orders, say whether that is possible. After the stages with a start, the one in which the last op
//!   finishes. In clocks there is no search where ops say who computes them (`lifetime` sees to that). A stage more is one more iteration in flight: longer prologues, more slots, more registers;
//! - *push* moves ops later, in reverse order, where that shortens the life of their result by more than it lengthens the
//!   lives of their operands (loads that were placed early come to rest before their use). The whole iteration then shifts back
//!   to cycle 0.
//!
//! A last one (*defer*) moves a product that its agent leaves in the background behind the agent's next one, if that is read before: who waits for
//! a product waits for all that were issued before it.
//!
//! Guarantee: starts stay legal, II untouched, no stage is added. Cost: O(ops · (II + degree)), and at most [`STEPS`] steps a
//! stage; nothing where the longest path already needs as many stages.

use super::LINEAR;
use super::search::{Answer, Engine, Search};
use crate::entities::{Node, Slot};
use crate::graph::Graph;
use crate::placement::{Loop, Placement};
use crate::problem::{NO_GROUP, Problem};
use crate::windows::{NEVER, Windows};
use cranelift_entity::EntityRef;

/// Steps of each search for one stage less, or for a finish one stage earlier.
const STEPS: u64 = 20_000;
/// Rows that are worth the steps once more.
const ROWS_A_STEP: u32 = 256;
/// Larger loops are not searched: setting up takes longer than all of the schedule, and hardly ever saves a stage.
const MOST_OPS: u32 = 40;

/// Memory of the steps.
#[derive(Default)]
pub(crate) struct Polish {
    /// Last cycle (of the producing iteration) in which an op's result is read; -NEVER if never.
    last_read: Vec<i64>,
    /// What windows ask of slots.
    spans: Vec<Span>,
    /// Intervals before an op's row.
    whole: Vec<i64>,
}

/// Stages with a start, and those up to the last finish.
fn stages(p: &Problem, starts: &[i64], ii: i64) -> (i64, i64) {
    let last = starts.iter().max().map_or(0, |&t| t / ii);
    let finish = p.nodes().zip(starts).map(|(u, &t)| t + i64::from(p.latency(u))).max().unwrap_or(0);
    (last + 1, finish / ii + 1)
}

impl Polish {
    /// All three steps on the last success.
    pub fn run(&mut self, at: &mut Placement, l: Loop<'_>, ii: u32, search: &mut Search) {
        self.compact(at, l, ii);
        self.fewest_stages(at, l, ii, search);
    }

    /// Pull and push alone.
    pub fn compact(&mut self, at: &mut Placement, l: Loop<'_>, ii: u32) {
        let wide = i64::from(ii);
        if at.load(l, ii) {
            settle(&mut at.ims.start, &at.windows, l.g, wide, &mut self.whole);
            pull(at, l.g, wide);
            self.push(at, l.p, l.g, wide);
            begin_at_zero(at, l.g, wide);
            at.keep_placed();
        }
    }

    /// Takes stages off the last success.
    fn fewest_stages(&mut self, at: &mut Placement, l: Loop<'_>, ii: u32, search: &mut Search) {
        let wide = i64::from(ii);
        let mut now = stages(l.p, at.starts(), wide);
        while now.0 >= 3 && self.squeeze(at, l, ii, ((now.0 - 1) * wide, NEVER), search) {
            now = stages(l.p, at.starts(), wide);
        }
        while now.1 > now.0.max(2) && self.squeeze(at, l, ii, (now.0 * wide, (now.1 - 1) * wide), search) {
            now = stages(l.p, at.starts(), wide);
        }
    }

    /// A schedule of the same II whose ops start before the first of `ends` and finish before the second. `false`: none was
    /// found.
    fn squeeze(
        &mut self,
        at: &mut Placement,
        l: Loop<'_>,
        ii: u32,
        ends: (i64, i64),
        search: &mut Search,
    ) -> bool {
        let wide = i64::from(ii);
        if !at.windows.prepare(l.p, l.g, wide, l.o.max_stages, &mut at.stuck)
            || !deadline(l.p, &mut at.windows, l.g, wide, ends)
            || overfull(l.p, &at.windows, &mut self.spans)
        {
            return false;
        }
        if at.empty_table(l, ii) && at.short_attempt(l, ii) {
            return take_shorter(at, l, wide);
        }
        // In clocks this takes longer than all of the rest, and where ops say who computes them it is the distance between those of one
        // agent that counts (`lifetime`), not the stages of the iteration.
        let told = |u: Node| l.p.extra(u).simt_agent.is_some();
        if l.g.n > MOST_OPS || ii > LINEAR && l.p.nodes().any(told) {
            return false;
        }
        // Deadlines go with the windows at hand: a search leaves them as they are.
        for engine in [Engine::Orders, Engine::Ejection].into_iter().filter(|&e| l.o.engines.has(e)) {
            // Where rows are many a step is about few of them.
            let rows = 1 + u64::from(ii / ROWS_A_STEP);
            let given = at.budget.draw(STEPS.saturating_mul(rows).min(l.o.exact_steps));
            let mut left = given;
            let answer = search.ask_within(engine, at, l, ii, None, &mut left);
            at.budget.pay(given - left);
            match answer {
                Answer::Found => return take_shorter(at, l, wide),
                Answer::Refuted => return false,
                Answer::Unknown | Answer::TooLarge => {}
            }
        }
        false
    }

    /// Products of one agent in the order in which they are read.
    pub fn defer(&self, at: &mut Placement, l: Loop<'_>, ii: u32) {
        let products = || l.p.nodes().filter(|&u| l.p.extra(u).product);
        if products().nth(1).is_none() || !at.load(l, ii) {
            return;
        }
        let wide = i64::from(ii);
        let Placement { table, ims, windows, .. } = at;
        for u in products() {
            let now = ims.start[u.index()];
            // Cycles from the start of a product until its result is read.
            let read = |v: Node, start: &[i64]| {
                let by = l.g.succ.of(v.as_u32()).iter().filter(|a| a.is_value());
                by.map(|a| start[a.node as usize] + wide * i64::from(a.distance())).min()
            };
            let Some(needed) = read(u, &ims.start) else { continue };
            let mut hi = windows.late[u.index()].min(now + wide - 1);
            for a in l.g.succ.of(u.as_u32()) {
                hi = hi.min(ims.start[a.node as usize] - a.weight(wide));
            }
            if windows.group[u.index()] != NO_GROUP {
                hi = hi.min((now.div_euclid(wide) + 1) * wide - 1);
            }
            let others = products().filter(|&v| v != u && l.p.extra(v).simt_agent == l.p.extra(u).simt_agent);
            // The last product that is issued after this one and read before it.
            let behind = others.filter_map(|v| {
                let start = ims.start[v.index()];
                let issued = now + (start - now).rem_euclid(wide);
                let sooner = read(v, &ims.start)? + (issued - start) < needed;
                (sooner && issued < hi).then_some(issued)
            });
            let Some(from) = behind.max() else { continue };
            table.remove(u, now);
            let before = stages(l.p, &ims.start, wide);
            ims.start[u.index()] = table.first_fit(u, from + 1, hi).unwrap_or(now);
            if stages(l.p, &ims.start, wide) > before {
                ims.start[u.index()] = now;
            }
            table.place(u, ims.start[u.index()]);
        }
        at.keep_placed();
    }

    /// Where all that runs ahead are loads: what takes no time is done right before it is used, not beside the loads of a later iteration. Code with guards
    /// would hand it from one part to the next (an n-body step: 276 registers more than there are).
    pub fn join(&self, at: &mut Placement, l: Loop<'_>, ii: u32) {
        if l.p.summary.is_none_or(|s| s.reads_ahead == 0) || !at.load(l, ii) {
            return;
        }
        let (wide, Placement { ims, windows, .. }) = (i64::from(ii), &mut *at);
        let free = |u: &Node| l.p.uses(*u).is_empty() && l.p.pool_uses(*u).is_empty();
        let mut moved = true;
        while moved {
            moved = false;
            for u in l.p.nodes().filter(free) {
                let now = ims.start[u.index()];
                let readers = l.g.succ.of(u.as_u32()).iter();
                let least = readers.map(|a| ims.start[a.node as usize] - a.weight(wide)).min();
                let last = windows.late[u.index()].min((now.div_euclid(wide) + 1) * wide - 1);
                if let Some(later) = least.map(|t| t.min(last)).filter(|&t| t > now) {
                    (ims.start[u.index()], moved) = (later, true);
                }
            }
        }
        at.keep_placed();
    }

    /// Moves ops later where lifetimes gain.
    fn push(&mut self, at: &mut Placement, p: &Problem, g: &Graph, ii: i64) {
        let Placement { table, ims, windows, .. } = at;
        let n = g.n as usize;
        self.last_read.clear();
        self.last_read.resize(n, -NEVER);
        let mut finish = 0;
        for u in 0..g.n {
            let at = ims.start[u as usize];
            finish = finish.max(at + i64::from(p.latency(Node::from_u32(u))));
            for a in g.pred.of(u).iter().filter(|a| a.is_value()) {
                let read = at + ii * i64::from(a.distance());
                let last = &mut self.last_read[a.node as usize];
                *last = read.max(*last);
            }
        }
        for &u in g.topo.iter().rev() {
            // No op reads the result: nothing to gain by waiting.
            if self.last_read[u as usize] == -NEVER {
                continue;
            }
            let now = ims.start[u as usize];
            let node = Node::from_u32(u);
            let mut hi = windows.late[u as usize].min(finish - i64::from(p.latency(node)));
            for a in g.succ.of(u) {
                hi = hi.min(ims.start[a.node as usize] - a.weight(ii));
            }
            // Last stage included: the stage count must not grow, whatever the latency of this op.
            hi = hi.min(finish - 1);
            if windows.group[u as usize] != NO_GROUP {
                hi = hi.min((now.div_euclid(ii) + 1) * ii - 1);
            }
            hi = hi.min(now + ii - 1);
            if hi <= now {
                continue;
            }
            // Starts up to `calm` lengthen no other life.
            let mut calm = hi;
            for a in g.pred.of(u).iter().filter(|a| a.is_value()) {
                calm = calm.min(self.last_read[a.node as usize] - ii * i64::from(a.distance()));
            }
            table.remove(node, now);
            let gain =
                |t: i64| {
                    let longer =
                        g.pred.of(u).iter().filter(|a| a.is_value()).map(|a| {
                            (t + ii * i64::from(a.distance()) - self.last_read[a.node as usize]).max(0)
                        });
                    (t - now) - longer.sum::<i64>()
                };
            let far = table.last_fit(node, now + 1, hi).filter(|&t| gain(t) > 0);
            let near = table.last_fit(node, now + 1, calm);
            let best = match (far, near) {
                (Some(a), Some(b)) => Some(if gain(b) > gain(a) { b } else { a }),
                (a, b) => a.or(b),
            };
            let t = best.unwrap_or(now);
            table.place(node, t);
            ims.start[u as usize] = t;
            for a in g.pred.of(u).iter().filter(|a| a.is_value()) {
                let last = &mut self.last_read[a.node as usize];
                *last = (*last).max(t + ii * i64::from(a.distance()));
            }
        }
    }
}

/// Keeps what is placed if it ends in an earlier stage.
fn take_shorter(at: &mut Placement, l: Loop<'_>, ii: i64) -> bool {
    pull(at, l.g, ii);
    begin_at_zero(at, l.g, ii);
    let better = stages(l.p, &at.ims.start, ii) < stages(l.p, at.starts(), ii);
    if better {
        at.keep_placed();
    }
    better
}

/// Takes every op back by whole intervals, as far as dependences let it. Rows stay, so that no resource is asked, and what depends on
/// itself moves as one, which [`pull`] cannot do. Lost without it: attention with tiles of 64 keys has 8 stages instead of 5, and spills.
fn settle(start: &mut [i64], windows: &Windows, g: &Graph, ii: i64, whole: &mut Vec<i64>) {
    whole.clear();
    whole.extend(start.iter().enumerate().map(|(u, &t)| {
        let now = t.div_euclid(ii);
        // Stages of groups are theirs together.
        let free = windows.group[u] == NO_GROUP;
        if free { now.min(-(t.rem_euclid(ii) - windows.early[u]).div_euclid(ii)) } else { now }
    }));
    // Where all are now is legal, so that this ends.
    loop {
        let mut changed = false;
        for &u in &g.topo {
            let (row, at) = (start[u as usize].rem_euclid(ii), whole[u as usize]);
            for a in g.succ.of(u) {
                let v = a.node as usize;
                let over = row + a.weight(ii) - start[v].rem_euclid(ii);
                let least = at - (-over).div_euclid(ii);
                changed |= least > whole[v];
                whole[v] = whole[v].max(least);
            }
        }
        if !changed {
            break;
        }
    }
    for (t, &k) in start.iter_mut().zip(&*whole) {
        *t = t.rem_euclid(ii) + k * ii;
    }
}

/// Moves every op to its first free start, not later than now. Ops of groups keep their stage.
fn pull(at: &mut Placement, g: &Graph, ii: i64) {
    let Placement { table, ims, windows, .. } = at;
    for &u in &g.topo {
        let now = ims.start[u as usize];
        let mut lo = windows.early[u as usize];
        for a in g.pred.of(u) {
            lo = lo.max(ims.start[a.node as usize] + a.weight(ii));
        }
        if windows.group[u as usize] != NO_GROUP {
            lo = lo.max(now.div_euclid(ii) * ii);
        }
        if lo < now {
            let node = Node::from_u32(u);
            table.remove(node, now);
            let t = table.first_fit(node, lo, now).unwrap_or(now);
            table.place(node, t);
            ims.start[u as usize] = t;
        }
    }
}

/// Shifts the iteration so that it begins at cycle 0; with groups, by whole stages only, since they are aligned.
fn begin_at_zero(at: &mut Placement, g: &Graph, ii: i64) {
    let ims = &mut at.ims;
    let Some(&first) = ims.start.iter().min() else { return };
    let shift = if g.has_groups { first.div_euclid(ii) * ii } else { first };
    if shift > 0 {
        ims.start.iter_mut().for_each(|t| *t -= shift);
    }
}

/// Every op starts before the first of `ends`, finishes before the second, and starts before what follows it. `false`:
/// some window is empty.
fn deadline(p: &Problem, windows: &mut Windows, g: &Graph, ii: i64, ends: (i64, i64)) -> bool {
    for (u, late) in windows.late.iter_mut().enumerate() {
        let latency = i64::from(p.latency(Node::from_u32(u as u32)));
        *late = (*late).min(ends.0 - 1).min(ends.1 - 1 - latency);
    }
    loop {
        let mut changed = false;
        for &u in g.topo.iter().rev() {
            let follow =
                g.succ.of(u).iter().map(|a| windows.late[a.node as usize].saturating_sub(a.weight(ii)));
            let latest = follow.min().unwrap_or(NEVER);
            if latest < windows.late[u as usize] {
                windows.late[u as usize] = latest;
                changed = true;
            }
            // An empty window would shrink without end.
            if windows.late[u as usize] < windows.early[u as usize] {
                return false;
            }
        }
        if !changed {
            return true;
        }
    }
}

/// A reservation: its slot, the earliest it can begin, the latest it can end, units times cycles.
type Span = (Slot, i64, i64, i64);

/// Whether the windows ask more of a slot within some span of one iteration than it can do there. What one iteration holds
/// at a time is held in one row, so that the capacity of the row is that of the cycle.
fn overfull(p: &Problem, windows: &Windows, spans: &mut Vec<Span>) -> bool {
    spans.clear();
    for u in p.nodes() {
        let (early, late) = (windows.early[u.index()], windows.late[u.index()]);
        spans.extend(p.uses(u).iter().map(|r| {
            let (from, cycles) = (i64::from(r.offset), i64::from(r.duration));
            let work = cycles.saturating_mul(r.occupancy.into());
            (r.slot, early.saturating_add(from), late.saturating_add(from).saturating_add(cycles), work)
        }));
    }
    // Of one slot, what begins last comes first.
    spans.sort_unstable_by_key(|s| (s.0, std::cmp::Reverse(s.1)));
    spans.chunk_by(|a, b| a.0 == b.0).any(|all| {
        let capacity = i64::from(p.slots()[all[0].0].capacity);
        all.iter().any(|&(_, _, end, _)| {
            let mut work = 0_i64;
            all.iter().filter(|s| s.2 <= end).any(|s| {
                work = work.saturating_add(s.3);
                work > capacity.saturating_mul(end - s.1)
            })
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::{NodeDef, Use};

    /// Ops of `cycles` on one slot of that capacity.
    fn ops(capacity: u32, cycles: &[u32]) -> (Problem, Windows) {
        let mut p = Problem::new("k");
        let slot = p.add_slot(0, "s", capacity);
        for (k, &duration) in cycles.iter().enumerate() {
            let uses = [Use { slot, offset: 1, duration, occupancy: 1 }];
            p.add_node(&NodeDef { id: &k.to_string(), latency: 1, uses: &uses, ..NodeDef::default() });
        }
        (p, Windows::default())
    }

    /// A recurrence moves as one, by whole intervals; what is in a group stays.
    #[test]
    fn recurrences_settle() {
        let (mut p, mut w) = ops(1, &[1, 1, 1]);
        let [a, b, c] = [0, 1, 2].map(Node::from_u32);
        p.add_edge(a, b, 3, 0);
        p.add_edge(b, c, 2, 0);
        p.add_edge(c, b, 2, 1);
        let mut g = Graph::default();
        assert!(g.build(&p));
        (w.early, w.group) = (vec![0; 3], vec![NO_GROUP; 3]);
        let settled = |w: &Windows| {
            let mut start = vec![0, 21, 23];
            settle(&mut start, w, &g, 4, &mut Vec::new());
            start
        };
        assert_eq!(settled(&w), [0, 5, 7]);
        w.early[2] = 9;
        assert_eq!(settled(&w), [0, 9, 11]);
        w.group[1] = 0;
        assert_eq!(settled(&w), [0, 21, 23]);
    }

    /// Windows that some placement respects are never refused; tight ones that none does are.
    #[test]
    fn spans_that_cannot_hold_their_work() {
        let full = |capacity, cycles: &[u32], windows: &[(i64, i64)]| {
            let (p, mut w) = ops(capacity, cycles);
            (w.early, w.late) = windows.iter().copied().unzip();
            overfull(&p, &w, &mut Vec::new())
        };
        // Two of 8 that must both end by 16, or by 15.
        assert!(!full(1, &[8, 8], &[(0, 8), (0, 8)]));
        assert!(full(1, &[8, 8], &[(0, 7), (0, 7)]));
        assert!(!full(2, &[8, 8], &[(0, 7), (0, 7)]));
        assert!(full(2, &[8, 8, 2], &[(0, 0), (0, 0), (3, 5)]));
        // The first may begin before the others can.
        assert!(!full(1, &[4, 4, 4], &[(0, 8), (4, 8), (4, 8)]));
        assert!(full(1, &[4, 4, 4], &[(1, 8), (4, 8), (4, 8)]));
        // Placements one behind the other, with windows around them.
        for seed in 0..200_i64 {
            let cycles: Vec<u32> = (0..6).map(|k| 1 + ((seed * 7 + k * 13) % 5) as u32).collect();
            let mut at = 0;
            let windows: Vec<(i64, i64)> = cycles
                .iter()
                .zip(0..)
                .map(|(&c, k)| {
                    let start = at;
                    at += i64::from(c);
                    (start - (seed + k) % 4, start + (seed * k) % 3)
                })
                .collect();
            assert!(!full(1, &cycles, &windows), "{cycles:?} {windows:?}");
        }
    }
}
