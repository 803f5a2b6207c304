//! Loops with local stages: guards, bounds, and copies of the body.
//!
//! A *rolled* loop (`skew`) makes N + skew steps and each group of local stage k stands under the guard 0 ≤ t - k < N.
//! A *steady* loop (`steady`) makes steps skew..N without guards; before it a prologue, behind it an epilogue hold the
//! groups of the missing steps under guards that their iterations exist. Both make every op of the body run exactly N
//! times in the order the loop shows, which is what the graphs assume: copies must equal the loop's events, guards and
//! bounds must say what the form says. Loops and branches of one origin must run alike in all agents: their bounds and
//! conditions have the same numbers ([`Canon`]). Errors: E0710, E0703.

use super::linear::{ANYWHERE, Canon, Iterations, Known, Lin, at_least_zero, local_of, note, trips};
use super::model::{Event, Found, LoopInfo, Model, RegionInfo, What};
use crate::error::Code;
use crate::ir::{Function, Op, Opcode, Value, keys};
use rustc_hash::FxHashMap;
use std::collections::hash_map::Entry;

/// Whether a condition says exactly this.
fn says(func: &Function, condition: Option<Value>, want: &[Lin]) -> bool {
    let Some(mut have) = condition.and_then(|v| at_least_zero(func, v)) else { return false };
    let same = want.iter().all(|w| match have.iter().position(|h| h == w) {
        Some(i) => {
            have.swap_remove(i);
            true
        }
        None => false,
    });
    same && have.is_empty()
}

/// Whether `end` is the first step behind a steady loop: max(N, skew).
fn is_end(func: &Function, end: &Lin, n: &Lin, skew: i64) -> bool {
    if let Some(n) = n.as_constant() {
        return end.as_constant() == Some(n.max(skew));
    }
    let Some(op) = end.as_atom().and_then(|v| func.defining_op(v)) else { return false };
    let parts: Vec<Lin> = func.operands(op).iter().map(|&v| Lin::of(func, v)).collect();
    func.opcode(op) == Opcode::Maxi && parts.contains(n) && parts.contains(&Lin::constant(skew))
}

/// Checks all loops with local stages, and that agents agree about the regions they share.
pub fn check(m: &mut Model<'_>) {
    let func = m.func;
    let mut found = Found::default();
    for g in &m.guards {
        let l = m.loops.iter().find(|l| Some(l.op) == func.op_parent(g.op) && l.skew > 0 && !l.steady);
        let (Some(l), true) = (l, g.plain) else {
            found.bad(Code::E0710, g.op, "a guard outside a rolled loop");
            continue;
        };
        let step = func.op_block_at(l.op, 0).and_then(|b| func.block_params(b).first().copied());
        let (Ok(n), Some(t)) = (trips(func, l.op), step) else { continue };
        let i = Lin::atom(t).offset(-g.local);
        let mut want = vec![n.plus(&i, -1).offset(-1)];
        if g.local > 0 {
            want.push(i);
        }
        if !says(func, func.named_operand(g.op, "condition"), &want) {
            let text = format!("the guard of local stage {} lets other steps through", g.local);
            found.bad(Code::E0710, g.op, text);
        }
    }
    for l in m.loops.iter().filter(|l| l.skew > 0) {
        let most =
            l.region.map_or(0, |r| m.regions[r].events[l.agent].iter().map(|e| e.local).max().unwrap_or(0));
        if most > l.skew {
            let text = format!("local stage {most} in a loop of skew {}", l.skew);
            found.bad(Code::E0710, l.op, text);
        }
        match trips(func, l.op) {
            Err(why) => found.bad(Code::E0710, l.op, format!("a loop of skew {}: {why}", l.skew)),
            Ok(n) if l.steady => peeled(m, l, &n, &mut found),
            Ok(_) => {}
        }
        let bare = |e: &&Event| !l.steady && func.op_parent(e.op) == Some(l.op);
        let events = l.region.map_or(&[][..], |r| &m.regions[r].events[l.agent]);
        if let Some(e) = events.iter().find(bare) {
            found.bad(Code::E0710, e.op, "no guard in a rolled loop");
        }
    }
    for l in m.loops.iter().filter(|l| l.skew == 0) {
        let events = l.region.map_or(&[][..], |r| &m.regions[r].events[l.agent]);
        if let Some(e) = events.iter().find(|e| e.local > 0) {
            found.bad(Code::E0710, e.op, format!("local stage {} in a loop without skew", e.local));
        }
    }
    for c in &m.copies {
        if !m.loops.iter().any(|l| l.steady && l.agent == c.agent && l.origin == c.of) {
            found.bad(Code::E0710, c.op, format!("a copy of op{}, which is no steady loop here", c.of));
        }
    }
    m.canon = Some(agreement(m, &mut found));
    m.report(found);
}

/// Compares prologue and epilogue with the loop.
fn peeled(m: &Model<'_>, l: &LoopInfo, n: &Lin, found: &mut Found) {
    let func = m.func;
    let events = l.region.map_or(&[][..], |r| &m.regions[r].events[l.agent]);
    let copies: Vec<_> = m.copies.iter().filter(|c| c.agent == l.agent && c.of == l.origin).collect();
    let mut last = (false, 0);
    let around =
        l.region.and_then(|r| m.regions[r].parent).map_or(&[][..], |r| &m.regions[r].events[l.agent]);
    for c in &copies {
        let place = (c.epilogue, c.step);
        // A turn may be given as soon as the loop has issued its products.
        let between = around.get(l.at + 1..c.at).unwrap_or(&[]);
        let turns = between.iter().filter(|e| e.what == What::GiveTurn).count();
        let beside =
            func.op_block(c.op) == func.op_block(l.op) && c.at == l.at + usize::from(c.epilogue) + turns;
        if place < last || !beside || !(0..l.skew).contains(&c.step) {
            found.bad(Code::E0710, c.op, "a copy of a loop body stands in the wrong place");
            return;
        }
        last = place;
        // The iteration exists: N - 1 - i ≥ 0.
        let condition = func.named_operand(c.op, "condition");
        let good = if c.epilogue {
            let back = c.local - c.step;
            let said = condition.and_then(|v| at_least_zero(func, v)).unwrap_or_default();
            match said.as_slice() {
                [s] => is_end(func, &n.clone().plus(s, -1).offset(back - 1), n, l.skew) && back > 0,
                _ => false,
            }
        } else {
            let i = c.step - c.local;
            i >= 0 && says(func, condition, &[n.clone().offset(-1 - i)])
        };
        if !good {
            found.bad(Code::E0710, c.op, "the guard of a copy does not ask whether its iteration exists");
        }
    }
    for epilogue in [false, true] {
        for step in 0..l.skew {
            let mut have = copies
                .iter()
                .filter(|c| (c.epilogue, c.step) == (epilogue, step))
                .flat_map(|c| c.regions[0].events[l.agent].iter().map(|e| (e, &c.regions)));
            let want = events.iter().filter(|e| (e.local > step) == epilogue);
            let part = if epilogue { "epilogue" } else { "prologue" };
            for w in want {
                match have.next() {
                    Some((h, regions)) if same(m, l.agent, w, h, regions) => {}
                    Some((h, _)) => {
                        let text = format!(
                            "step {step} of the {part} has {} where the loop has {}",
                            m.event_name(h),
                            m.event_name(w)
                        );
                        found.bad(Code::E0710, h.op, text);
                        return;
                    }
                    None => {
                        let text = format!("step {step} of the {part} lacks {}", m.event_name(w));
                        found.bad(Code::E0710, w.op, text);
                        return;
                    }
                }
            }
            if let Some((h, _)) = have.next() {
                let text = format!("step {step} of the {part} has {} too much", m.event_name(h));
                found.bad(Code::E0710, h.op, text);
                return;
            }
        }
    }
}

/// Whether two events do the same; `regions` are those around the second.
fn same(m: &Model<'_>, agent: usize, a: &Event, b: &Event, regions: &[RegionInfo]) -> bool {
    let origin = |e: &Event| note(m.func, e.op, keys::ORIGIN);
    (a.local, a.lane) == (b.local, b.lane)
        && origin(a) == origin(b)
        && match (&a.what, &b.what) {
            (What::Region(x), What::Region(y)) => {
                x.len() == y.len()
                    && x.iter().zip(y).all(|(&x, &y)| {
                        let (x, y) = (&m.regions[x].events[agent], &regions[y].events[agent]);
                        x.len() == y.len() && x.iter().zip(y).all(|(x, y)| same(m, agent, x, y, regions))
                    })
            }
            (x, y) => x == y,
        }
}

/// Loops and branches of one origin run alike in all agents.
fn agreement(m: &Model<'_>, found: &mut Found) -> Canon {
    let func = m.func;
    let mut canon = Canon::default();
    for &(_, v, op) in m.sends.iter().chain(&m.receives) {
        if let Some(origin) = note(func, op, keys::ORIGIN) {
            canon.made(v, origin);
        }
    }
    canon.carry(func);
    // Clones of scalar control flow may stand in any group of a steady loop: they count where something rests on them.
    let placed = |op: Op| local_of(func, op) != ANYWHERE;
    let mut loops: FxHashMap<i64, (usize, Known<Iterations>)> = FxHashMap::default();
    for l in m.loops.iter().filter(|l| placed(l.op)) {
        let Some(here) = canon.iterations(func, l.op) else {
            if l.skew > 0 {
                let text = "the trip count of a loop with local stages cannot be read";
                found.bad(Code::E0710, l.op, text);
            }
            continue;
        };
        match loops.entry(l.origin) {
            Entry::Vacant(e) => {
                e.insert((l.agent, here));
            }
            Entry::Occupied(e) => match (&e.get().1, &here) {
                (Known::As(a), Known::As(b)) if a == b => {}
                (Known::As(_), Known::As(_)) => {
                    let (origin, a, b) = (l.origin, l.agent, e.get().0);
                    let text =
                        format!("the loop op{origin} makes other trips in agent {a} than in agent {b}");
                    found.bad(Code::E0703, l.op, text);
                }
                _ => {
                    let (origin, a, b) = (l.origin, l.agent, e.get().0);
                    let text = format!(
                        "nothing shows that the loop op{origin} makes as many trips in agent {a} as in agent {b}"
                    );
                    found.bad(Code::E0703, l.op, text);
                }
            },
        }
    }
    let mut branches: FxHashMap<i64, (usize, Option<u32>)> = FxHashMap::default();
    for &(agent, op, origin) in m.branches.iter().filter(|b| placed(b.1)) {
        let condition = func.named_operand(op, "condition");
        let here = condition.and_then(|v| canon.number(func, v, local_of(func, op)));
        let &mut (other, known) = branches.entry(origin).or_insert((agent, here));
        if known.is_none() && other != agent || known != here {
            let text = match known.is_some() && here.is_some() {
                true => format!(
                    "the branch op{origin} has another condition in agent {agent} than in agent {other}"
                ),
                false => format!(
                    "nothing shows that the branch op{origin} has the same condition in agent {agent} as in agent {other}"
                ),
            };
            found.bad(Code::E0703, op, text);
        }
    }
    canon
}
