//! Channel depths: how many slots each ring gets, and why.
//!
//! The needed depth (R3) is the least at which the schedule's II holds; beyond it rings grow to their chosen depth (R4), the
//! one short of most cycles first, until every producer's latency is covered, the option's limit, or memory is full. If even
//! the needed depth does not fit, the largest rings shrink: legal while the proof (R5) accepts it, at the II that `ii_eff`
//! reports. A [`Reject`] then says which edges a schedule that needs no more slots must keep.
//! When all depths are known, webs of one loop that take turns ([`share::in_turns`]) move to one place.
//!
//! Unit: cycles of the schedule's model for the needed depth and `ii_eff`, real cycles for the chosen one. Errors: E0602,
//! E0603 when one slot each does not fit. Cost: rings × slots × memory layout. Source: architecture, R3 and R4.

use super::channels::{Consumer, Pipe, PipeData};
use super::memory::{self, BASE_ALIGN, MemoryMap, Together};
use super::needs::{Needs, is_item, runs};
use super::share::{self, Places, Sharing};
use super::sync::World;
use super::{BufferOptions, Reject};
use crate::agents::{Agent, AgentPlan};
use crate::ddg::{LoopSchedule, OpEdge, ScheduleAnalysis};
use crate::error::CodegenResult;
use crate::ir::{Block, Function, Op, Space};
use crate::isa::TargetIsa;
use crate::schedule::ring_slots;
use crate::storage::access::{Class, Key};
use crate::storage::cost;
use crate::storage::webs::{Web, Webs};
use cranelift_entity::{PrimaryMap, SecondaryMap};
use smallvec::SmallVec;
use std::cell::OnceCell;
use std::fmt;

/// What depths are chosen from.
#[derive(Copy, Clone)]
pub struct Input<'a> {
    /// Function, agents, schedules, needs.
    pub world: World<'a>,
    /// Target.
    pub isa: &'a dyn TargetIsa,
    /// Shared-memory bytes the kernel may ask for.
    pub smem_limit: u32,
    /// Choices of the caller.
    pub opts: &'a BufferOptions,
    /// What register ops take for themselves.
    pub scratch: &'a [memory::Scratch],
}

/// Why a ring has its depth. Displayed as `R3 2: 24 - 0 cycles at II 16; R4 4: 956 cycles to cover, 256 an iteration`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Why {
    /// The webs stay in place: one slot.
    pub in_place: bool,
    /// The needed depth (R3).
    pub need: u32,
    /// What the needed depth follows from; `None`: program order.
    pub span: Option<Span>,
    /// Slots chosen.
    pub chosen: u32,
    /// Real cycles to cover: latency of the producer, and what the slowest consumer holds.
    pub cover: u64,
    /// Real cycles per execution of the home.
    pub period: u64,
    /// Slots of these that cover nothing: memory which no further CTA could use.
    pub spare: u32,
    /// Memory ended the growth, or made the ring smaller.
    pub memory_full: bool,
    /// An option allows fewer slots than the needed depth (R3).
    pub limited: bool,
    /// The home runs once.
    pub runs_once: bool,
}

/// The life of a slot in the schedule: from the first acquire to the last release.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// Cycle of the first acquire, and the op behind it.
    pub first: u32,
    /// The first writer.
    pub writer: Option<Op>,
    /// Cycle of the last release.
    pub last: u32,
    /// The last reader.
    pub reader: Option<Op>,
    /// The schedule's II.
    pub ii: u32,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.in_place {
            return f.write_str("in place: 1");
        }
        match self.span {
            Some(s) => write!(f, "R3 {}: {} - {} cycles at II {}", self.need, s.last, s.first, s.ii)?,
            None => write!(f, "R3 {}: program order", self.need)?,
        }
        write!(f, "; R4 {}: {} cycles to cover, {} an iteration", self.chosen, self.cover, self.period)?;
        if self.spare > 0 {
            write!(f, ", {} of memory left", self.spare)?;
        }
        for (on, what) in [
            (self.memory_full, ", memory full"),
            (self.limited, ", limited"),
            (self.runs_once, ", home runs once"),
        ] {
            if on {
                f.write_str(what)?;
            }
        }
        Ok(())
    }
}

/// Pipes that share their number of slots: they hand over the same webs in one home.
struct Ring {
    pipes: SmallVec<[Pipe; 4]>,
    need: u32,
    depth: u32,
    cap: u32,
    /// Cycles to cover, and cycles per execution of the home.
    cover: u64,
    period: u64,
    shrunk: bool,
    /// Slots come in such numbers: as many as instances that take turns, so that each of them finds its own ones.
    step: u32,
}

/// The schedule of the loop whose body is the pipe's home.
fn schedule_of<'a>(func: &Function, sched: &'a ScheduleAnalysis, p: &PipeData) -> Option<&'a LoopSchedule> {
    sched.loops[func.block_parent(p.home)?].as_deref()
}

/// The agents of a function and what each runs: what local stages follow from.
#[derive(Copy, Clone)]
pub(crate) struct Party<'a> {
    pub func: &'a Function,
    pub plan: &'a AgentPlan,
    pub needs: &'a PrimaryMap<Agent, Needs>,
}

impl Party<'_> {
    /// Where the local stages (R2) of an agent in a loop body begin: the cycle of its first item.
    fn first(&self, s: &LoopSchedule, body: Block, agent: Agent) -> u32 {
        let needs = &self.needs[agent];
        let items = self.func.block_ops(body).filter(|&op| is_item(self.func, self.plan, needs, agent, op));
        items.map(|op| s.start[op]).min().unwrap_or(0)
    }

    /// Slots without which an agent that fills a ring and stores from it waits for itself. The release of a store stands
    /// at the end of the step in which it is issued, its local stages (R2) after the step that acquired its slot: by
    /// then a slot was acquired in each step in between.
    fn own_slots(&self, s: &LoopSchedule, p: &PipeData) -> u32 {
        let agent = p.producer.agent;
        let stored = p.consumers.iter().filter(|c| c.key == Key { agent, class: Class::Bulk });
        let Some(last) = stored.flat_map(|c| &c.uses).map(|&op| s.start[op]).max() else { return 0 };
        let r = self.first(s, p.home, agent);
        let local = |start: u32| start.saturating_sub(r) / s.ii.max(1);
        let acquired = p.acquires.iter().map(|&op| local(s.start[op])).min().unwrap_or(0);
        p.distance.saturating_add(local(last).saturating_sub(acquired)).saturating_add(1)
    }
}

/// The pipes that hand the slots of a pipe on, itself among them: a tile that one agent begins, another changes and a third
/// reads stays in its slot from the first write to the last read.
fn relay<'a>(pipes: &'a PrimaryMap<Pipe, PipeData>, p: &'a PipeData) -> impl Iterator<Item = &'a PipeData> {
    let rings = |q: &PipeData| q.payload() && !q.in_place() && !q.is_scalar() && q.distance == 0;
    let whole = rings(p);
    pipes.values().filter(move |&q| {
        let shared = || q.home == p.home && q.webs.iter().any(|w| p.webs.contains(w));
        std::ptr::eq(p, q) || whole && rings(q) && shared()
    })
}

/// The needed depth (R3), the least that keeps the schedule's II, and what it follows from.
pub(crate) fn need(
    party: Party<'_>,
    sched: &ScheduleAnalysis,
    isa: &dyn TargetIsa,
    pipes: &PrimaryMap<Pipe, PipeData>,
    p: &PipeData,
) -> (u32, Option<Span>) {
    let Party { func, plan, .. } = party;
    match schedule_of(func, sched, p) {
        Some(s) if !s.serial && s.ii > 0 => {
            let acquires = relay(pipes, p).flat_map(|q| &q.acquires);
            let writer = acquires.copied().min_by_key(|&op| s.start[op]);
            let first = writer.map_or(0, |op| s.start[op]);
            let freed = |&op: &Op| s.start[op].saturating_add(cost::hold(func, plan, isa, s.model, op));
            let (last, reader) = if p.is_scalar() {
                // Freed where it is first needed; at the end of the iteration if only what is yielded rests on it.
                let end = s.scheduled.iter().map(|&op| s.start[op]).max().unwrap_or(0);
                let first = |c: &Consumer| c.waits.iter().map(|&op| s.start[op]).min().unwrap_or(end);
                (p.consumers.iter().map(|c| first(c).saturating_add(1)).max().unwrap_or(0), None)
            } else {
                let uses = relay(pipes, p).flat_map(|q| &q.consumers).flat_map(|c| &c.uses);
                let reader = uses.copied().max_by_key(freed);
                (reader.as_ref().map_or(0, freed), reader)
            };
            let life = u64::from(last.saturating_sub(first));
            let d = ring_slots(life, p.distance, s.ii).max(party.own_slots(s, p));
            (d, Some(Span { first, writer, last, reader, ii: s.ii }))
        }
        _ => (p.distance + 1, None),
    }
}

/// What depths and memory came to.
pub struct Chosen {
    /// The layout.
    pub memory: MemoryMap,
    /// Rings with fewer slots than the needed depth (R3).
    pub rejects: Vec<Reject>,
    /// Webs that lie where another one lay, and need a wait for it.
    pub waits: Vec<(Web, Web)>,
}

/// Chooses the depth of every pipe and the slots of every web, and lays out memory.
///
/// # Errors
/// E0602 and E0603 when memory does not suffice at one slot per ring.
pub fn choose(
    input: &Input<'_>,
    webs: &mut Webs,
    pipes: &mut PrimaryMap<Pipe, PipeData>,
) -> CodegenResult<Chosen> {
    let &Input { world, isa, smem_limit, opts, scratch } = input;
    let World { func, plan, sched, needs: runs, .. } = world;
    let own = memory::Own::of(plan, webs, pipes);
    let party = Party { func, plan, needs: runs };
    // A fixed depth is a hard limit, and what every ring gets.
    let max_depth = opts.pipeline_depth.or(opts.max_depth).unwrap_or(u32::MAX).max(1);
    let mut needs: SecondaryMap<Pipe, u32> = SecondaryMap::with_capacity(pipes.len());
    let mut rings: Vec<Ring> = Vec::new();
    // Pipes have few homes between them.
    let mut periods: SmallVec<[(Block, u64); 4]> = SmallVec::new();
    let mut period_of = |home: Block| match periods.iter().find(|t| t.0 == home) {
        Some(t) => t.1,
        None => {
            let cycles = cost::block_cycles(func, plan, isa, home);
            periods.push((home, cycles));
            cycles
        }
    };
    for id in pipes.keys() {
        let (d, span) = need(party, sched, isa, pipes, &pipes[id]);
        needs[id] = d;
        let p = &mut pipes[id];
        if p.in_place() {
            p.depth = 1;
            p.has_empty = cost::executions(func, p.home).is_none_or(|n| n > 1);
            p.why = Why { in_place: true, need: 1, chosen: 1, ..Why::default() };
            continue;
        }
        p.why = Why { need: d, span, ..Why::default() };
        let p = &pipes[id];
        let latency = |&op: &Op| match p.is_scalar() {
            true => u64::from(isa.machine().real_latency(cost::op_class(func, op), &cost::work(func, op))),
            false => cost::latency(func, plan, isa, p.producer.agent, op),
        };
        let latency = p.events.iter().map(latency).max().unwrap_or(0);
        let period = period_of(p.home);
        let hold = p
            .consumers
            .iter()
            .map(|c| {
                if p.is_scalar() {
                    // The last agent of a chain reads it iterations after the first: a few bytes must not hold that up.
                    return period.saturating_mul(2);
                }
                let used = c.uses.iter().map(|&op| cost::busy(func, plan, isa, c.key.agent, op));
                // A product on registers gives its slots back behind the next one.
                let late = if c.key.class == Class::Group && c.uses.len() == 1 { period } else { 0 };
                used.fold(late, u64::saturating_add)
            })
            .max()
            .unwrap_or(0);
        let mut cover = latency.saturating_add(hold);
        if p.defers(func) {
            // What stores a slice waits for the one before: with one slot it would wait for its own.
            cover = cover.max(period.saturating_add(1));
        }
        let cap = cost::executions(func, p.home).map_or(u32::MAX, |n| n.clamp(1, u64::from(u32::MAX)) as u32);
        let cap = cap.saturating_add(u32::from(p.carry().is_some()));
        let step = own
            .as_ref()
            .map_or(1, |o| if p.is_taken_in_turns(func, o.agent) { o.instances } else { 1 })
            .min(cap);
        // Rings that share a web become one.
        let mut ring = Ring {
            pipes: smallvec::smallvec![id],
            need: d.next_multiple_of(step).min(cap / step * step),
            depth: 0,
            cap: (cap.min(max_depth) / step * step).max(step),
            cover,
            period,
            shrunk: false,
            step,
        };
        rings.retain_mut(|r| {
            let shared = r.pipes.iter().any(|&o| pipes[o].webs.iter().any(|w| p.webs.contains(w)));
            if shared {
                ring.pipes.append(&mut r.pipes);
                ring.need = ring.need.max(r.need);
                ring.cover = ring.cover.max(r.cover);
            }
            !shared
        });
        ring.pipes.sort_unstable();
        rings.push(ring);
    }
    rings.sort_by_key(|r| r.pipes.first().copied());
    for r in &mut rings {
        r.depth = r.need.min(r.cap);
    }
    let silent: SmallVec<[Pipe; 4]> = pipes.keys().filter(|&p| is_silent(func, pipes, &pipes[p])).collect();
    // Memory of its own for every web; where that does not fit, webs of which one is dead before the other share, then
    // those of which it can be waited for.
    let sharing: OnceCell<Sharing> = OnceCell::new();
    let mut places = Places::new();
    let fits = |rings: &[Ring], webs: &mut Webs, pipes: &mut PrimaryMap<Pipe, PipeData>, places: &Places| {
        apply(func, rings, webs, pipes);
        silent.iter().for_each(|&p| pipes[p].has_empty = true);
        let own = own.as_ref();
        let alone = Together { places, own, sharing: None };
        memory::lay_out(func, isa, smem_limit, webs, pipes, scratch, alone)
            .or_else(|_| {
                let dead = sharing.get_or_init(|| Sharing::find(world, webs, pipes));
                let shared = Together { places, own, sharing: Some((dead, false)) };
                memory::lay_out(func, isa, smem_limit, webs, pipes, scratch, shared)
            })
            .or_else(|_| {
                let waits = Together { places, own, sharing: sharing.get().map(|s| (s, true)) };
                memory::lay_out(func, isa, smem_limit, webs, pipes, scratch, waits)
            })
    };
    // The needed depth (R3) first; what does not fit shrinks, the ring with most slots first.
    let mut map = fits(&rings, webs, pipes, &places);
    while map.is_err() {
        let Some(r) = rings.iter_mut().filter(|r| r.depth > r.step).max_by_key(|r| r.depth) else { break };
        r.depth -= r.step;
        r.shrunk = true;
        map = fits(&rings, webs, pipes, &places);
    }
    map?;
    let mut full: SmallVec<[bool; 16]> = SmallVec::from_elem(false, rings.len());
    loop {
        let short = |r: &Ring| match opts.pipeline_depth {
            Some(n) => i128::from(r.depth) - i128::from(n),
            None => i128::from(r.depth) * i128::from(r.period) - i128::from(r.cover),
        };
        let most = opts.pipeline_depth.unwrap_or(opts.max_slots);
        let pick = rings
            .iter()
            .enumerate()
            .filter(|(i, r)| !full[*i] && !r.shrunk && r.depth + r.step <= r.cap.min(most) && short(r) < 0)
            .min_by_key(|(i, r)| (short(r), *i))
            .map(|(i, _)| i);
        let Some(i) = pick else { break };
        rings[i].depth += rings[i].step;
        if fits(&rings, webs, pipes, &places).is_err() {
            rings[i].depth -= rings[i].step;
            full[i] = true;
        }
    }
    // Memory that makes room for no further CTA goes to what comes by bulk copies, the ring with fewest slots first: loads that take longer
    // than the model says are covered then. Not at the price of tiles that wait for each other's memory.
    let mut covered: SmallVec<[u32; 16]> = rings.iter().map(|r| r.depth).collect();
    let alone = Together { places: &Places::new(), own: own.as_ref(), sharing: None };
    let whole = |rings: &[Ring], webs: &mut Webs, pipes: &mut PrimaryMap<Pipe, PipeData>| {
        apply(func, rings, webs, pipes);
        silent.iter().for_each(|&p| pipes[p].has_empty = true);
        let map = memory::lay_out(func, isa, smem_limit, webs, pipes, scratch, alone).ok()?;
        Some((isa.machine().limits.smem_bytes + BASE_ALIGN) / (map.dynamic_smem + BASE_ALIGN))
    };
    if let Some(ctas) = whole(&rings, webs, pipes).filter(|_| opts.pipeline_depth.is_none()) {
        let mut ends: SmallVec<[bool; 16]> = full.clone();
        loop {
            let bulk = |&id: &Pipe| pipes[id].tx > 0 && pipes[id].distance == 0;
            let grows = |r: &Ring| {
                r.depth > 1
                    && !r.shrunk
                    && r.depth + r.step <= r.cap.min(opts.max_slots)
                    && r.pipes.iter().all(bulk)
            };
            let pick = rings.iter().enumerate().filter(|(i, r)| !ends[*i] && grows(r));
            let Some(i) = pick.min_by_key(|(i, r)| (r.depth, *i)).map(|x| x.0) else { break };
            rings[i].depth += rings[i].step;
            if whole(&rings, webs, pipes).is_none_or(|now| now < ctas) {
                rings[i].depth -= rings[i].step;
                ends[i] = true;
            }
        }
    }
    // Webs of one loop that take turns lie in one place, with as many slots as the ring that has most, where that takes less.
    // Those of one ring are handed over together.
    let mut map = fits(&rings, webs, pipes, &places)?;
    // What instances have for themselves lies elsewhere, and what they take from others they take in turns already.
    let alike = own.is_none();
    let tiles = webs.webs.iter().filter(|(_, d)| alike && d.space != Space::Tmem && !d.is_scalar());
    let home = |w| share::loop_of(func, pipes.values().as_slice(), w);
    let in_loops = tiles.filter_map(|(w, _)| Some((w, ring_of(&rings, pipes, w)?, home(w)?)));
    let in_loops: SmallVec<[(Web, usize, Block); 16]> = in_loops.collect();
    for (n, &(b, j, body)) in in_loops.iter().enumerate() {
        for &(a, i, _) in in_loops[..n].iter().filter(|x| x.1 != j && x.2 == body) {
            let (old, mut more) = ([(i, rings[i].depth), (j, rings[j].depth)], places.clone());
            match more.iter_mut().find(|p| p.contains(&a)) {
                Some(place) => place.push(b),
                None => more.push(smallvec::smallvec![a, b]),
            }
            old.iter().for_each(|x| rings[x.0].depth = old[0].1.max(old[1].1).min(rings[x.0].cap));
            let less =
                fits(&rings, webs, pipes, &more).ok().filter(|now| now.dynamic_smem < map.dynamic_smem);
            match less.filter(|_| share::in_turns(world, webs, pipes.values().as_slice(), &more)) {
                Some(now) => {
                    (map, places) = (now, more);
                    old.iter().for_each(|x| covered[x.0] += rings[x.0].depth - x.1);
                    break;
                }
                None => old.iter().for_each(|x| rings[x.0].depth = x.1),
            }
        }
    }
    map = fits(&rings, webs, pipes, &places)?;
    for (i, r) in rings.iter().enumerate() {
        for &id in &r.pipes {
            let why = &mut pipes[id].why;
            (why.chosen, why.cover, why.period) = (r.depth, r.cover, r.period);
            why.memory_full = full[i] || r.shrunk;
            why.spare = r.depth - covered[i];
            why.limited = r.need > max_depth;
            why.runs_once = r.cap == 1 && max_depth > 1;
        }
    }
    let mut rejects = Vec::new();
    for r in rings.iter().filter(|r| r.depth < r.need) {
        for &id in r.pipes.iter().filter(|&&id| needs[id] > r.depth) {
            let edges = freeing_edges(func, plan, isa, sched, pipes, &pipes[id], r.depth);
            rejects.push(Reject { pipe: id, need: needs[id], have: r.depth, edges });
        }
    }
    let waits = sharing.get().map_or_else(Vec::new, |s| s.waits(webs));
    Ok(Chosen { memory: map, rejects, waits })
}

/// The ring of a web.
fn ring_of(rings: &[Ring], pipes: &PrimaryMap<Pipe, PipeData>, web: Web) -> Option<usize> {
    rings.iter().position(|r| r.pipes.iter().any(|&p| pipes[p].webs.contains(&web)))
}

/// Last reader → first writer, for every pair that may be these in some schedule: the slot is free `have - d`
/// iterations later. None where there is no slot to spare for the distance, or nothing was scheduled.
pub(super) fn freeing_edges(
    func: &Function,
    plan: &AgentPlan,
    isa: &dyn TargetIsa,
    sched: &ScheduleAnalysis,
    pipes: &PrimaryMap<Pipe, PipeData>,
    p: &PipeData,
    have: u32,
) -> Vec<OpEdge> {
    let made = schedule_of(func, sched, p).filter(|s| !s.serial && s.ii > 0);
    let distance = have.checked_sub(p.distance).filter(|&d| d > 0);
    let Some((s, distance)) = made.zip(distance) else {
        return Vec::new();
    };
    let mut edges = Vec::new();
    for q in relay(pipes, p) {
        for &from in q.consumers.iter().flat_map(|c| &c.uses) {
            let latency = i32::try_from(cost::hold(func, plan, isa, s.model, from)).unwrap_or(i32::MAX);
            let edge = |&to: &Op| OpEdge { from, to, latency, distance };
            edges.extend(relay(pipes, p).flat_map(|r| &r.acquires).map(edge));
        }
    }
    edges.dedup();
    edges
}

/// Whether a pipe feeds the matrix engine with work of which nothing tells that it is complete: what it makes is read by no
/// op. Its slots are then handed back even if they are used once, so that their producer waits for the work before the
/// kernel ends.
fn is_silent(func: &Function, pipes: &PrimaryMap<Pipe, PipeData>, p: &PipeData) -> bool {
    let told = |key: Key, item: Op| {
        let Some(block) = func.op_block(item) else { return true };
        pipes.values().filter(|q| q.producer == key).any(|q| {
            let first = q.carry().filter(|c| c.parent == block).map_or(&[][..], |c| &c.inits);
            let events = if q.home == block { &q.events[..] } else { first };
            let mut behind = std::iter::successors(Some(item), |&op| func.next_op(op));
            !events.is_empty() && behind.any(|op| events.contains(&op))
        })
    };
    p.consumers.iter().filter(|c| c.key.class == Class::Mma).any(|c| {
        c.uses.iter().any(|&op| {
            let mut outwards = std::iter::successors(Some(op), |&op| func.op_parent(op));
            !outwards.any(|item| told(c.key, item))
        })
    })
}

/// Whether no slot of a pipe is used a second time.
pub fn used_once(func: &Function, p: &PipeData) -> bool {
    // What comes before the loop uses a slot as well.
    let before = p.carry().map_or(Some(0), |c| cost::executions(func, c.parent));
    let uses = cost::executions(func, p.home).zip(before).map(|(a, b)| a.saturating_add(b));
    uses.is_some_and(|n| n <= u64::from(p.depth))
}

fn apply(func: &Function, rings: &[Ring], webs: &mut Webs, pipes: &mut PrimaryMap<Pipe, PipeData>) {
    for r in rings {
        for &id in &r.pipes {
            let p = &mut pipes[id];
            p.depth = r.depth;
            p.has_empty = !used_once(func, p);
            for &w in &p.webs {
                webs.webs[w].slots = r.depth;
            }
        }
    }
}

/// The synchronisation graph of a loop: from, to (positions in `scheduled`), model cycles, iteration distance.
fn sync_edges(
    party: Party<'_>,
    isa: &dyn TargetIsa,
    s: &LoopSchedule,
    pipes: &PrimaryMap<Pipe, PipeData>,
) -> Vec<(usize, usize, i64, i64)> {
    let Party { func, plan, .. } = party;
    let mut index: SecondaryMap<Op, u32> = SecondaryMap::with_capacity(func.num_ops());
    for (i, &op) in s.scheduled.iter().enumerate() {
        index[op] = i as u32 + 1;
    }
    let mut edges: Vec<(usize, usize, i64, i64)> = Vec::with_capacity(64);
    let at = |op: Op| (index[op] as usize).checked_sub(1);
    for p in pipes.values() {
        for &e in &p.events {
            for c in &p.consumers {
                for &w in &c.waits {
                    if let (Some(a), Some(b)) = (at(e), at(w)) {
                        let lat = i64::from(cost::ready(func, isa, s.model, e));
                        edges.push((a, b, lat, i64::from(p.distance)));
                    }
                }
                for &u in &c.uses {
                    // Most pipes belong to other loops.
                    let Some(u_at) = at(u) else { continue };
                    // The agent that begins with the slot, even where another agent's release is what says that it is free.
                    for &a in relay(pipes, p).flat_map(|q| &q.acquires) {
                        if let Some(a_at) = at(a) {
                            let back = i64::from(p.depth) - i64::from(p.distance);
                            let held = i64::from(cost::hold(func, plan, isa, s.model, u));
                            edges.push((u_at, a_at, held, back));
                        }
                    }
                }
            }
        }
    }
    let mut mine: Vec<Op> = Vec::with_capacity(s.scheduled.len());
    for agent in plan.agents.keys() {
        mine.clear();
        mine.extend(s.scheduled.iter().copied().filter(|&op| runs(func, plan, agent, op)));
        let Some(body) = mine.first().and_then(|&op| func.op_block(op)) else { continue };
        let r = party.first(s, body, agent);
        mine.sort_by_key(|&op| ((s.start[op] - r) % s.ii, s.order[op]));
        let local = |op: Op| i64::from((s.start[op] - r) / s.ii);
        for (i, &u) in mine.iter().enumerate() {
            let wrap = i + 1 == mine.len();
            let v = if wrap { mine[0] } else { mine[i + 1] };
            // What starts together on one slot is one reservation.
            let together = !wrap && s.start[u] == s.start[v];
            let kept = if together { 0 } else { cost::kept_off(func, plan, isa, s.model, u, v) };
            if let (Some(a), Some(b)) = (at(u), at(v)) {
                edges.push((a, b, kept, local(u) - local(v) + i64::from(wrap)));
            }
        }
        // The release of a store stands behind all that its step runs.
        let Some((last, stage)) = mine.last().and_then(|&op| Some((at(op)?, local(op)))) else { continue };
        for p in pipes.values() {
            let back = i64::from(p.depth) - i64::from(p.distance);
            for c in p.consumers.iter().filter(|c| c.key == Key { agent, class: Class::Bulk }) {
                for (u, a) in c.uses.iter().flat_map(|&u| p.acquires.iter().map(move |&a| (u, a))) {
                    if let (Some(_), Some(a_at)) = (at(u), at(a)) {
                        edges.push((last, a_at, 0, stage - local(u) + back));
                    }
                }
            }
        }
    }
    edges
}

/// Whether no agent of a loop waits for itself: no cycle of its synchronisation graph has a distance sum of 0 or less.
pub(crate) fn runs_on(
    party: Party<'_>,
    isa: &dyn TargetIsa,
    s: &LoopSchedule,
    pipes: &PrimaryMap<Pipe, PipeData>,
) -> bool {
    let n = s.scheduled.len();
    if s.ii == 0 {
        return n == 0;
    }
    let edges = sync_edges(party, isa, s, pipes);
    let mut dist = vec![0i64; n];
    // A cycle of distance 0 or less is one of negative length.
    (0..=n).any(|_| {
        let mut changed = false;
        for &(a, b, _, d) in &edges {
            let x = dist[a] + (n as i64 + 1) * d - 1;
            if x < dist[b] {
                dist[b] = x;
                changed = true;
            }
        }
        !changed
    })
}

/// The II that a loop reaches with the chosen depths: the maximum cycle ratio, rounded up, of its synchronisation
/// graph weighted with model cycles.
pub(crate) fn ii_eff(
    party: Party<'_>,
    isa: &dyn TargetIsa,
    s: &LoopSchedule,
    pipes: &PrimaryMap<Pipe, PipeData>,
) -> u32 {
    if s.serial || s.ii == 0 {
        return s.ii;
    }
    let edges = sync_edges(party, isa, s, pipes);
    let n = s.scheduled.len();
    let mut dist = vec![0i64; n];
    // The least λ with no cycle of weight - λ·distance above 0.
    let mut ok = |lambda: i64| {
        dist.fill(0);
        for _ in 0..=n {
            let mut changed = false;
            for &(a, b, w, d) in &edges {
                let x = dist[a] + w - lambda * d;
                if x > dist[b] {
                    dist[b] = x;
                    changed = true;
                }
            }
            if !changed {
                return true;
            }
        }
        false
    };
    // No less than the schedule's own, which mostly holds.
    let total: i64 = edges.iter().map(|e| e.2).sum::<i64>() + 1;
    if total <= i64::from(s.ii) || ok(i64::from(s.ii)) {
        return s.ii;
    }
    let (mut lo, mut hi) = (i64::from(s.ii) + 1, total);
    while lo < hi {
        let mid = (lo + hi) / 2;
        if ok(mid) { hi = mid } else { lo = mid + 1 }
    }
    u32::try_from(lo).unwrap_or(u32::MAX)
}
