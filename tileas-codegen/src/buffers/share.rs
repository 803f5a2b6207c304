//! Which webs may lie in the same memory.
//!
//! In: webs and pipes. Out: [`Sharing`]. Two webs may if every access to the one is complete before any access to the
//! other is issued, by the paths of the synchronisation graph of the kernel body, which runs once ([`runs_once`]). Where memory does not
//! suffice without, a web may also lie where one lay whose last access stands before its first in the kernel body: a
//! token then says when that is complete ([`add_waits`]).
//!
//! Webs of one loop share in turns ([`in_turns`]): in each iteration every access to the one is complete before any to the
//! other is issued, and what the other did is complete before the one's slot comes again. Of rings with equally many slots of
//! equal size, slot on slot, that is as many iterations later as there are slots; of others one. That lifetimes do not meet in the
//! schedule is not enough: agents run apart from it, so that paths of the synchronisation graph must say so.
//! Cost: one graph search per access, webs² comparisons.

use super::channels::{Pipe, PipeData};
use super::order::add;
use super::sync::{Point, Sync, World};
use crate::agents::Agent;
use crate::ir::{Block, Function, Op, Opcode, Publish, Space};
use crate::storage::access::{Class, Key, accesses, class_of};
use crate::storage::slice::base_of;
use crate::storage::webs::{Web, Webs};
use cranelift_entity::{EntityRef, PrimaryMap, SecondaryMap};
use fixedbitset::FixedBitSet;
use smallvec::SmallVec;

/// Pairs of webs that may share memory.
#[derive(Clone, Default, Debug)]
pub struct Sharing {
    webs: usize,
    /// By pair.
    apart: FixedBitSet,
    /// Place, in the block that runs once, of the first and the last item that accesses a web; beyond all where nothing says that the
    /// last access is complete.
    items: Vec<Option<(u32, u32)>>,
}

type At = (Agent, Op, Point);
/// Where an access is issued, and where it is known to be complete.
type Span = (At, Vec<At>);

/// Webs of one loop in one place, by place: they take turns in it.
pub type Places = SmallVec<[SmallVec<[Web; 2]>; 2]>;

/// The webs that lie where a web lies, itself among them.
pub fn at_place<'a>(places: &'a Places, web: &'a Web) -> &'a [Web] {
    places.iter().find(|p| p.contains(web)).map_or(std::slice::from_ref(web), |p| p)
}

impl Sharing {
    /// Compares all webs.
    pub fn find(world: World<'_>, webs: &Webs, pipes: &PrimaryMap<Pipe, PipeData>) -> Sharing {
        let n = webs.webs.len();
        let mut out =
            Sharing { webs: n, apart: FixedBitSet::with_capacity(n * n), items: Vec::with_capacity(n) };
        let body = runs_once(world.func, webs);
        let sync = Sync::of(world, body, pipes.values().as_slice());
        // Per web: for each access where it is issued, and the places where it is known to be complete.
        let uses: Vec<Option<Vec<Span>>> = webs
            .webs
            .keys()
            .map(|w| uses_of(world, webs, pipes.values().as_slice(), &sync, body, w))
            .collect();
        let mut place: SecondaryMap<Op, u32> = SecondaryMap::new();
        world.func.block_ops(body).zip(0..).for_each(|(op, n)| place[op] = n);
        let range = |u: &Vec<Span>| {
            let first = u.iter().map(|((_, item, _), _)| place[*item]).min()?;
            let last =
                u.iter().map(|((_, item, _), ends)| if ends.is_empty() { u32::MAX } else { place[*item] });
            Some((first, last.max()?))
        };
        out.items.extend(uses.iter().map(|u| u.as_ref().and_then(range)));
        for (i, a) in uses.iter().enumerate() {
            let Some(a) = a else { continue };
            let behind = behind(&sync, a, 0);
            for (j, b) in uses.iter().enumerate() {
                let Some(b) = b.as_ref().filter(|_| i != j) else { continue };
                if precedes(&sync, a, &behind, b, 0) {
                    out.apart.insert(i * n + j);
                    out.apart.insert(j * n + i);
                }
            }
        }
        out
    }

    /// Whether two webs may overlap.
    pub fn may_share(&self, a: Web, b: Web) -> bool {
        self.apart.contains(a.index() * self.webs + b.index())
    }

    /// Whether the last access of one web stands before the first of the other: with a wait they may overlap.
    pub fn may_wait(&self, a: Web, b: Web) -> bool {
        let items = |w: Web| self.items.get(w.index()).copied().flatten();
        items(a).zip(items(b)).is_some_and(|((a0, a1), (b0, b1))| a1 < b0 || b1 < a0)
    }

    /// The webs, the earlier one first, that lie in the same memory and need a wait for that.
    pub fn waits(&self, webs: &Webs) -> Vec<(Web, Web)> {
        let extent = |w: Web| {
            let d = &webs.webs[w];
            let size = if d.space == Space::Tmem { d.columns() } else { d.bytes() };
            // Buffers in other lanes of the same columns have nothing in common.
            let at = (u64::from(d.lane.unwrap_or(0)) << 16) + u64::from(d.at);
            (d.space == Space::Tmem, at, at + u64::from(d.slots) * u64::from(size))
        };
        let mut out = Vec::new();
        for a in webs.webs.keys() {
            for b in webs.webs.keys().filter(|&b| b > a && !self.may_share(a, b) && self.may_wait(a, b)) {
                let (x, y) = (extent(a), extent(b));
                if x.0 == y.0 && x.1 < y.2 && y.1 < x.2 {
                    let first = |w: Web| self.items.get(w.index()).copied().flatten();
                    out.push(if first(a) < first(b) { (a, b) } else { (b, a) });
                }
            }
        }
        out
    }
}

/// How far points lie behind the end of each access of a web, at most `last` iterations.
fn behind(sync: &Sync<'_>, a: &[Span], last: i64) -> Vec<Vec<Option<i64>>> {
    a.iter().flat_map(|(_, ends)| ends).map(|&end| sync.distances(end, last)).collect()
}

/// Whether each access of one web is complete before any access of the other is issued `last` iterations later.
fn precedes(sync: &Sync<'_>, a: &[Span], behind: &[Vec<Option<i64>>], b: &[Span], last: i64) -> bool {
    let mut at = 0;
    a.iter().all(|(x, ends)| {
        let mine = &behind[at..at + ends.len()];
        at += ends.len();
        mine.iter().any(|d| {
            b.iter().all(|(y, _)| {
                let reached = sync.index(*y).and_then(|n| d.get(n).copied().flatten());
                y.1 != x.1 && reached.is_some_and(|d| d <= last)
            })
        })
    })
}

/// The innermost block that has all accesses of webs and runs at most once: the kernel body, or an arm of a branch there, where an early `return`
/// has left the rest of the kernel to one. With a single access before the `return` it is the body, where all that is in the arm is one item.
fn runs_once(func: &Function, webs: &Webs) -> Block {
    let ops = || webs.webs.values().filter(|w| !w.scalar).flat_map(|w| w.ops.iter().copied());
    let mut body = func.entry();
    while let Some(branch) = ops().next().and_then(|op| func.ancestor_in(op, body)) {
        let arms = func.regions(branch).iter().map(|&r| func.region_block(r));
        let mut arms = arms.filter(|_| func.opcode(branch) == Opcode::If);
        match arms.find(|&arm| ops().all(|op| func.ancestor_in(op, arm).is_some())) {
            Some(arm) => body = arm,
            None => break,
        }
    }
    body
}

/// The loop body in which all pipes of a web have their home.
pub fn loop_of(func: &Function, pipes: &[PipeData], web: Web) -> Option<Block> {
    let mut homes = pipes.iter().filter(|p| p.webs.contains(&web)).map(|p| p.home);
    let home = homes.next()?;
    let repeats = func.block_parent(home).is_some_and(|l| func.opcode(l) == Opcode::For);
    (repeats && homes.all(|h| h == home)).then_some(home)
}

/// Whether the webs of each place may lie there: they are webs of one loop that take turns. Depths must be known.
pub fn in_turns(world: World<'_>, webs: &Webs, pipes: &[PipeData], places: &Places) -> bool {
    let World { func, plan, .. } = world;
    places.iter().all(|place| {
        let Some(body) = place.first().and_then(|&w| loop_of(func, pipes, w)) else { return false };
        // What threads write and an engine overwrites must be behind a fence of theirs.
        let engines =
            place.iter().flat_map(|&w| &webs.webs[w].ops).any(|&op| class_of(func, plan, op) != Class::Sync);
        let written = pipes
            .iter()
            .filter(|p| p.producer.class == Class::Sync && p.webs.iter().any(|w| place.contains(w)));
        if engines && written.filter(|p| p.payload()).any(|p| p.publish != Publish::Proxy) {
            return false;
        }
        let mut sync = Sync::of(world, body, pipes);
        pipes.iter().for_each(|p| sync.hands_back(p));
        let uses = place.iter().map(|&w| uses_of(world, webs, pipes, &sync, body, w));
        let Some(uses) = uses.collect::<Option<SmallVec<[Vec<Span>; 2]>>>() else { return false };
        let size = |w: Web| (webs.webs[w].slots, webs.webs[w].bytes());
        let before = |a: &[Span], b: &[Span], last: i64| precedes(&sync, a, &behind(&sync, a, last), b, last);
        uses.iter().enumerate().all(|(i, a)| {
            uses.iter().enumerate().skip(i + 1).all(|(j, b)| {
                let alike = size(place[i]) == size(place[j]);
                let again = if alike { i64::from(webs.webs[place[i]].slots) } else { 1 };
                [(a, b), (b, a)].into_iter().any(|(a, b)| before(a, b, 0) && before(b, a, again))
            })
        })
    })
}

/// Adds the tokens behind which the second web of each pair may lie where the first one lay.
pub fn add_waits(world: World<'_>, webs: &Webs, pairs: &[(Web, Web)], found: &mut Vec<PipeData>) {
    if pairs.is_empty() {
        return;
    }
    let World { func, plan, .. } = world;
    let body = runs_once(func, webs);
    let mut sync = Sync::of(world, body, found);
    let mut place: SecondaryMap<Op, u32> = SecondaryMap::new();
    func.block_ops(body).zip(0..).for_each(|(op, n)| place[op] = n);
    for &(a, b) in pairs {
        let Some(later) = uses_of(world, webs, found, &sync, body, b) else { continue };
        // What only waits for others to read it comes after them.
        // Products of threads are complete when these signal.
        let engine = |op: Op| match class_of(func, plan, op) {
            Class::Group => Class::Sync,
            class => class,
        };
        let mut ops: SmallVec<[Op; 8]> = webs.webs[a].ops.clone();
        ops.sort_by_key(|&op| {
            let item = func.ancestor_in(op, body).map_or(0, |item| place[item]);
            (engine(op) == Class::Tma, std::cmp::Reverse(item))
        });
        for op in ops {
            let (Some(agent), Some(item)) = (plan.op_agent[op].expand(), func.ancestor_in(op, body)) else {
                continue;
            };
            let class = engine(op);
            let ends = ends_of(world, found, &sync, body, a, op);
            for &((waiter, first, point), _) in &later {
                let reaches = |&end: &At| sync.distance(end, (waiter, first, point), 0).is_some();
                if class == Class::Tma || ends.iter().any(reaches) {
                    continue;
                }
                let to = later.iter().filter(|u| u.0.0 == waiter).min_by_key(|u| place[u.0.1]);
                let first = to.map_or(first, |u| u.0.1);
                // An engine of its own sees what threads left in shared memory behind their fence.
                let others = later.iter().any(|u| u.0.2 != Point::First || plan.agents[u.0.0].elect);
                let publish = match (class, webs.webs[a].space) {
                    (Class::Sync, Space::Tmem) => Publish::Tmem,
                    (Class::Sync, _) if others => Publish::Proxy,
                    _ => Publish::None,
                };
                let waiter = Key { agent: waiter, class: Class::Sync };
                add(found, &mut sync, body, (Key { agent, class }, item), (waiter, first), false, publish);
            }
        }
    }
}

/// Where each access of a web is issued, and where known to be complete, if it is before the kernel ends; `None` for
/// webs that share with none.
fn uses_of(
    world: World<'_>,
    webs: &Webs,
    pipes: &[PipeData],
    sync: &Sync<'_>,
    body: Block,
    web: Web,
) -> Option<Vec<Span>> {
    let World { func, plan, .. } = world;
    let data = &webs.webs[web];
    if data.scalar {
        return None;
    }
    let mut out = Vec::new();
    for &op in &data.ops {
        let mine = |v| webs.of[base_of(func, v)].expand() == Some(web);
        if !accesses(func, op).iter().any(|a| mine(a.value)) {
            continue;
        }
        let (agent, item) = (plan.op_agent[op].expand()?, func.ancestor_in(op, body)?);
        let key = Key { agent, class: class_of(func, plan, op) };
        // Without an end the web can only be the later one.
        out.push(((agent, item, Sync::wait_point(key)), ends_of(world, pipes, sync, body, web, op)));
    }
    Some(out)
}

/// Where an access of a web is known to be complete.
fn ends_of(world: World<'_>, pipes: &[PipeData], sync: &Sync<'_>, body: Block, web: Web, op: Op) -> Vec<At> {
    let World { func, plan, .. } = world;
    let (Some(agent), Some(item)) = (plan.op_agent[op].expand(), func.ancestor_in(op, body)) else {
        return Vec::new();
    };
    match class_of(func, plan, op) {
        // In a loop a product of threads may be under way while the next ones are issued.
        Class::Group if func.block_parent(body).is_some_and(|op| func.opcode(op) == Opcode::For) => {
            Vec::new()
        }
        Class::Sync | Class::Group => vec![(agent, item, Point::All)],
        Class::Mma => vec![(agent, item, Point::Done)],
        // At the end of its region the lane has waited until its stores have read their slots.
        Class::Bulk if item != op && !pipes.iter().any(|p| p.webs.contains(&web) && p.defers(func)) => {
            vec![(agent, item, Point::All)]
        }
        Class::Bulk => Vec::new(),
        Class::Tma => {
            let of_op = |p: &&PipeData| p.tx > 0 && (p.events.contains(&op) || p.events.contains(&item));
            pipes.iter().filter(of_op).flat_map(|p| sync.learned(p, item)).collect()
        }
    }
}
