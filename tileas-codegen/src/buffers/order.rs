//! Tokens: memory order across agents, and mutual exclusion.
//!
//! In: the placed function, agents, schedules, needs, and the channels of all tiles and scalars. Out: more
//! [`PipeData`], without payload. Method, per block: every pair of accesses to one view that may meet (see
//! [`crate::storage::alias`]), in one execution of the block or from one to a later one, must be ordered by a path of the
//! synchronisation graph ([`super::sync`]); where none is, a token is added from the first access to the second. A pair
//! that is ordered the wrong way round an iteration (the later one stands first) is closed by the *empty* side of a
//! token that runs forward. Completion: threads have passed the access; the lane that stored has waited for its bulk
//! groups; a TMA load is complete for those who waited for its tile, so they, not the load agent, give the token; where all
//! of them wait behind the access that must come later, its agent waits for the tile itself.
//! What threads write and an engine then reads or overwrites needs a fence besides, and so does what they read and an engine overwrites: such a pair
//! is ordered by what publishes memory alone, however many other ways there are.
//! Exclusion: the ops of a serial group that spans agents follow each other by tokens that close over the iteration.
//! An access that acquires comes before all that follow it, one that releases behind all that stand before it, whatever they touch.
//! Left to program order: what one thread reads and writes itself. A tile whose layout gives an element to several threads
//! is read by all of these and written by one.
//!
//! Cost: pairs of accesses per view; graph queries as many as accesses each time that a token has been added, since what the
//! graph orders by then is found from each first access for all second ones at once.

use super::channels::{Consumer, Ops, PipeData, PipeKind};
use super::sync::{Point, Sync, World};
use crate::agents::Agent;
use crate::error::{Code, CodegenError, CodegenResult};
use crate::ir::layouts::register_map;
use crate::ir::{Block, Function, Op, Opcode, Publish, Value, keys};
use crate::storage::access::{Class, Key, class_of};
use crate::storage::alias::Touched;
use smallvec::{SmallVec, smallvec};

/// Items before which the lane of an agent waits for all that it has stored.
pub type StoreWaits = Vec<(Agent, Op)>;

/// One access to a view, as an item of the block under study sees it.
struct Access {
    item: Op,
    key: Key,
    touched: Touched,
}

/// A token without consumers yet.
pub(super) fn token(home: Block, producer: Key, event: Op) -> PipeData {
    PipeData {
        home,
        distance: 0,
        webs: SmallVec::new(),
        kind: PipeKind::InPlace,
        producer,
        acquires: smallvec![event],
        events: smallvec![event],
        consumers: Vec::new(),
        tx: 0,
        publish: Publish::None,
        named: None,
        depth: 1,
        has_empty: true,
        why: Default::default(),
        full_at: 0,
        empty_at: 0,
    }
}

/// Blocks that hold accesses, innermost first, each once.
fn blocks_around(func: &Function, ops: impl Iterator<Item = Op>) -> Vec<Block> {
    let mut out: Vec<(usize, Block)> = Vec::new();
    for op in ops {
        let mut chain: SmallVec<[Block; 8]> = SmallVec::new();
        let mut b = func.op_block(op);
        while let Some(block) = b {
            chain.push(block);
            b = func.block_parent(block).and_then(|p| func.op_block(p));
        }
        let depth = chain.len();
        for (n, block) in chain.into_iter().enumerate() {
            if !out.iter().any(|o| o.1 == block) {
                out.push((depth - n, block));
            }
        }
    }
    // Deepest first: what inner tokens order holds for the blocks around.
    out.sort_by_key(|o| std::cmp::Reverse(o.0));
    out.into_iter().map(|o| o.1).collect()
}

/// Adds the tokens that memory order across agents needs. Returns where lanes wait for their stores.
///
/// # Errors
/// E0606 where a view is overwritten after a TMA load whose tile no op waits for.
pub fn memory_tokens(world: World<'_>, found: &mut Vec<PipeData>) -> CodegenResult<StoreWaits> {
    let World { func, plan, .. } = world;
    let all: Vec<Touched> = func.ops().filter_map(|op| Touched::of(func, op)).collect();
    let mut views: Vec<Value> = all.iter().filter(|t| t.write).map(|t| t.view).collect();
    views.sort_unstable();
    views.dedup();
    let mut store_waits = StoreWaits::new();
    // By view; then all of them, where some access orders others.
    let fences = all.iter().any(|t| func.fences(t.op, t.op));
    for view in views.into_iter().map(Some).chain(fences.then_some(None)) {
        let mine = || all.iter().filter(|t| view.is_none_or(|v| t.view == v));
        let keys: Vec<Key> = mine()
            .filter_map(|t| {
                Some(Key { agent: plan.op_agent[t.op].expand()?, class: class_of(func, plan, t.op) })
            })
            .collect();
        if keys.iter().all(|k| *k == keys[0] && k.class == Class::Sync && plan.agents[k.agent].elect) {
            continue;
        }
        for block in blocks_around(func, mine().map(|t| t.op)) {
            let accesses: Vec<Access> = mine()
                .filter_map(|t| {
                    let item = func.ancestor_in(t.op, block)?;
                    let agent = plan.op_agent[t.op].expand()?;
                    Some(Access {
                        item,
                        key: Key { agent, class: class_of(func, plan, t.op) },
                        touched: t.clone(),
                    })
                })
                .collect();
            block_tokens(world, block, &accesses, found, &mut store_waits)?;
        }
    }
    Ok(store_waits)
}

/// Two accesses that need an order. Sorted nearest first, inside an iteration before across, since those may imply the others.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Pair {
    across: bool,
    span: u32,
    first: u32,
    second: u32,
}

/// Whether two accesses of one view, the first in an earlier item or iteration, must be ordered by more than the
/// program of the thread that makes both.
fn conflict(
    world: World<'_>,
    block: Block,
    [x, y]: [&Access; 2],
    [v, w]: [&Option<Holders>; 2],
    across: bool,
) -> bool {
    let World { func, plan, .. } = world;
    let (a, b) = (&x.touched, &y.touched);
    let fences = func.fences(a.op, b.op);
    let meet = a.view == b.view && (a.write || b.write) && !commute(func, a.op, b.op);
    if !meet && !fences {
        return false;
    }
    if x.key.agent == y.key.agent && x.key.class == Class::Sync && y.key.class == Class::Sync {
        // One lane keeps the order of its program; its bulk stores complete in any. Where the same bits of the coordinates
        // choose the thread, all threads that hold an element read it and one of them writes it.
        let own = v
            .as_ref()
            .zip(w.as_ref())
            .is_some_and(|(v, w)| v == w && (a.write == b.write || v.iter().all(|bit| bit.is_some())));
        if plan.agents[x.key.agent].elect || own && !fences {
            return false;
        }
    }
    if fences {
        return true;
    }
    if across { !a.apart_over(b, func, block) } else { !a.apart(b, func) }
}

/// Whether two updates are atomic and leave the same in either order.
fn commute(func: &Function, a: Op, b: Op) -> bool {
    let mode = |op: Op| {
        let mode = func.attr_name(op, keys::MODE).filter(|_| func.opcode(op) == Opcode::AtomicRmw)?;
        (mode != "exch").then_some((mode, func.has_attr(op, keys::UNSIGNED)))
    };
    mode(a).is_some_and(|m| mode(b) == Some(m))
}

/// The dimension and the bit of the coordinate there that a bit of the thread number stands for; none: it tells replicas apart.
type Holder = Option<(usize, u32)>;

/// By bit of the thread number.
type Holders = SmallVec<[Holder; 10]>;

/// What each bit of the thread number stands for in the register tile that an access moves (none: it
/// tells replicas apart). Tiles are placed at multiples of their extents, which are powers of two.
fn holders(World { func, plan, .. }: World<'_>, x: &Access) -> Option<Holders> {
    let op = x.touched.op;
    if x.key.class != Class::Sync || func.opcode(op).is_sparse() {
        return None;
    }
    let stored = func.named_operand(op, "value").filter(|_| func.opcode(op) == Opcode::TiledStore);
    let data = func.value_data(stored.or_else(|| func.result(op))?);
    let warps = plan.agents[x.key.agent].warps;
    let dims = data.dims()?;
    let map = register_map(data.layout()?, dims, warps)?;
    let bit = |&part: &u32| {
        let mut low = 0;
        let chosen = dims.iter().enumerate().rev().find_map(|(d, n)| {
            let first = low;
            low += n.trailing_zeros();
            (part >> low == 0).then(|| (d, part.trailing_zeros() - first))
        });
        match part {
            0 => Some(None),
            _ => chosen.filter(|_| part.is_power_of_two()).map(Some),
        }
    };
    map.lane().iter().chain(map.warp()).map(bit).collect()
}

fn block_tokens(
    world: World<'_>,
    block: Block,
    accesses: &[Access],
    found: &mut Vec<PipeData>,
    store_waits: &mut StoreWaits,
) -> CodegenResult<()> {
    let World { func, .. } = world;
    // What an arm does in one iteration of a loop around it and in a later one is ordered in the body of that loop, where
    // its branch is one item.
    let repeats = func.block_parent(block).is_some_and(|op| func.opcode(op) == Opcode::For);
    let (mut pairs, at) = (Vec::new(), positions(func, block, accesses));
    let items = func.block_ops(block).count() as u32;
    let held: Vec<Option<Holders>> = accesses.iter().map(|x| holders(world, x)).collect();
    for (i, x) in accesses.iter().enumerate() {
        for (j, y) in accesses.iter().enumerate() {
            let (first, second) = (i as u32, j as u32);
            let (px, py) = (at[i], at[j]);
            let meet = |across: bool| conflict(world, block, [x, y], [&held[i], &held[j]], across);
            if px < py && meet(false) {
                // In later iterations too.
                pairs.push(Pair { across: false, span: py - px, first, second });
            } else if repeats && meet(true) {
                pairs.push(Pair { across: true, span: items + px - py, first, second });
            }
        }
        if pairs.len() > world.max_pairs {
            let text = format!(
                "more than {} pairs of accesses to one view may need an order, the limit of the option `limits.max-edges`",
                world.max_pairs
            );
            return Err(CodegenError::new(Code::E0308, func.op_loc(x.touched.op), text));
        }
    }
    if pairs.is_empty() {
        return Ok(());
    }
    let mut sync = Sync::of(world, block, found);
    drop_ordered(&sync, accesses, &mut pairs, found)?;
    pairs.sort_unstable();
    // Pairs looked at one by one since all were looked at.
    let (mut alone, mut added) = (0, false);
    let mut next = 0;
    while let Some(&Pair { across, first, second, .. }) = pairs.get(next) {
        if added && alone >= accesses.len() {
            pairs.drain(..next);
            drop_ordered(&sync, accesses, &mut pairs, found)?;
            pairs.sort_unstable();
            (next, alone, added) = (0, 0, false);
            continue;
        }
        (next, alone) = (next + 1, alone + 1);
        let (i, j) = (first as usize, second as usize);
        let (x, y) = (&accesses[i], &accesses[j]);
        let to = (y.key.agent, y.item, Sync::wait_point(y.key));
        let most = i64::from(across);
        let mut complete = completions(&sync, x, y, found)?;
        let ordered =
            |s: &Sync<'_>, found: &[PipeData], complete: &[(Agent, Op, Point)]| match crosses_proxies(x, y) {
                true => fenced(s, found, x, y, most),
                false => complete.iter().any(|&from| s.distance(from, to, most).is_some()),
            };
        if ordered(&sync, found, &complete) {
            continue;
        }
        if x.key == y.key && x.key.class == Class::Bulk {
            // The lane itself waits, as late as it can.
            if !store_waits.contains(&(y.key.agent, y.item)) {
                store_waits.push((y.key.agent, y.item));
            }
            continue;
        }
        added = true;
        if !across
            && x.key.class == Class::Tma
            && (wait_sooner(found, &mut sync, x, y, &complete)
                || wait_too(found, &mut sync, x, y, &mut complete))
        {
            // Where the load is known to be complete has moved.
            complete = completions(&sync, x, y, found)?;
            if ordered(&sync, found, &complete) {
                continue;
            }
        }
        // Who gives the token: the agent that knows the access to be complete.
        let (agent, item, point) = complete[0];
        let class = if point == Point::Stored { Class::Bulk } else { Class::Sync };
        let giver = Key { agent, class };
        let waiter = Key {
            agent: y.key.agent,
            class: if y.key.class == Class::Mma { Class::Sync } else { y.key.class },
        };
        let proxy = x.touched.write && class == Class::Sync && waiter.class != Class::Sync
            || x.touched.write && class == Class::Bulk
            || overwrites_read(x, y);
        let publish = if proxy { Publish::Global } else { Publish::None };
        if !across {
            add(found, &mut sync, block, (giver, item), (waiter, y.item), false, publish);
        } else if (at[j] as usize) < func.block_ops(block).position(|op| op == item).unwrap_or(0)
            && class != Class::Bulk
            && !proxy
        {
            // The way back of a token that runs forward: it says that the item was issued, no more.
            let issuer = Key { agent: waiter.agent, class: Class::Sync };
            add(found, &mut sync, block, (issuer, y.item), (giver, item), false, Publish::None);
        } else {
            // One item holds both, or the stores must be complete: the agent that goes on waits at its end; not before the
            // first access of the same iteration, which may be its own agent's or rest on what the agent does in this iteration.
            let own = agent == waiter.agent;
            let last =
                if own { sync.latest(&[y.item, item]) } else { sync.last_before(waiter.agent, y.item) };
            let last = last.unwrap_or(y.item);
            add(found, &mut sync, block, (giver, item), (waiter, last), true, publish);
        }
        if !ordered(&sync, found, &complete) {
            let loc = func.op_loc(y.touched.op);
            return Err(CodegenError::new(
                Code::E0606,
                loc,
                "the order of two accesses to one view cannot be kept",
            )
            .note(func.op_loc(x.touched.op), "the earlier access"));
        }
    }
    Ok(())
}

/// Whether the second access comes behind the first one only by a proxy fence of the threads that made that.
fn crosses_proxies(x: &Access, y: &Access) -> bool {
    // What an acquire makes visible an engine may load; what it stores only comes later.
    let sees = y.key.class == Class::Tma || y.key.class == Class::Bulk && x.touched.view == y.touched.view;
    x.touched.write && x.key.class == Class::Sync && sees || overwrites_read(x, y)
}

/// Whether an engine overwrites what threads read: behind a proxy fence of theirs. One of shared memory will do, which by the letter of PTX orders
/// accesses to that alone: before it is over, and before its arrival, the values read are in registers, so that nothing is left to be overtaken.
fn overwrites_read(x: &Access, y: &Access) -> bool {
    let stored = y.key.class == Class::Bulk && y.touched.write && x.touched.view == y.touched.view;
    stored && x.key.class == Class::Sync && !x.touched.write
}

/// Whether a token that publishes global memory orders the accesses of threads before an access of an engine, at most so many
/// iterations later. For reads a channel that publishes shared memory will do.
fn fenced(sync: &Sync<'_>, found: &[PipeData], x: &Access, y: &Access, most: i64) -> bool {
    let to = (y.key.agent, y.item, Sync::wait_point(y.key));
    let published =
        |p: &PipeData| p.publish == Publish::Global || p.publish == Publish::Proxy && overwrites_read(x, y);
    let tokens = found.iter().filter(|p| {
        published(p) && p.home == sync.block && p.producer == Key { agent: x.key.agent, class: Class::Sync }
    });
    tokens.into_iter().any(|p| {
        let given = sync.latest(&p.events).and_then(|event| {
            let from = (x.key.agent, x.item, Point::All);
            sync.distance(from, (p.producer.agent, event, Point::All), most)
        });
        let Some(given) = given else { return false };
        let left = most - given.max(0);
        // Behind the fence, or by who waits for the token. The fence of a channel of tiles may still move down, to the last of those that are
        // handed over together: then who waits for it comes behind it as well.
        let passed = sync.latest(&p.events).filter(|_| p.publish == Publish::Global);
        let passed = passed.map(|event| (p.producer.agent, event, Point::Behind));
        let taken =
            p.consumers.iter().filter_map(|c| sync.taken(c)).map(|(at, d)| (at, d + i64::from(p.distance)));
        let known = passed.map(|at| (at, 0)).into_iter().chain(taken);
        let taken = known.filter_map(|(at, d)| Some(sync.distance(at, to, left - d.max(0))? + d)).min();
        taken.is_some_and(|taken| given + taken <= most)
    })
}

/// By access: the place of its item in the block. Accesses are in program order.
fn positions(func: &Function, block: Block, accesses: &[Access]) -> Vec<u32> {
    let mut items = func.block_ops(block).enumerate().peekable();
    let place = |a: &Access| {
        while items.next_if(|&(_, op)| op != a.item).is_some() {}
        items.peek().map_or(u32::MAX, |&(n, _)| n as u32)
    };
    accesses.iter().map(place).collect()
}

/// Takes out the pairs that the graph orders.
fn drop_ordered(
    sync: &Sync<'_>,
    accesses: &[Access],
    pairs: &mut Vec<Pair>,
    found: &[PipeData],
) -> CodegenResult<()> {
    pairs.sort_unstable_by_key(|p| (p.first, p.across, p.second));
    let (mut from, mut at) = (SmallVec::<[Vec<Option<i64>>; 2]>::new(), None);
    let mut error = None;
    pairs.retain(|p| {
        let (x, y) = (&accesses[p.first as usize], &accesses[p.second as usize]);
        if crosses_proxies(x, y) {
            return !fenced(sync, found, x, y, i64::from(p.across));
        }
        if at != Some((p.first, p.across)) {
            at = Some((p.first, p.across));
            from.clear();
            match completions(sync, x, y, found) {
                Ok(complete) => {
                    from.extend(complete.into_iter().map(|point| sync.distances(point, i64::from(p.across))))
                }
                Err(e) => error = error.take().or(Some(e)),
            }
        }
        let to = sync.index((y.key.agent, y.item, Sync::wait_point(y.key)));
        let reached = |d: &Vec<Option<i64>>| to.and_then(|n| d.get(n).copied().flatten());
        !from.iter().any(|d| reached(d).is_some_and(|d| d <= i64::from(p.across)))
    });
    error.map_or(Ok(()), Err)
}

/// Where an access is known to be complete, the places that the second access's own agent knows first.
fn completions(
    sync: &Sync<'_>,
    x: &Access,
    y: &Access,
    found: &[PipeData],
) -> CodegenResult<SmallVec<[(Agent, Op, Point); 2]>> {
    let mut out: SmallVec<[(Agent, Op, Point); 2]> = SmallVec::new();
    match x.key.class {
        Class::Sync | Class::Mma | Class::Group => out.push((x.key.agent, x.item, Point::All)),
        Class::Bulk => out.push((x.key.agent, x.item, Point::Stored)),
        Class::Tma => {
            for p in found.iter().filter(|p| p.tx > 0 && p.events.contains(&x.touched.op)) {
                out.extend(sync.learned(p, x.item));
            }
            // A tile handed over after the region that loads it.
            for p in found.iter().filter(|p| p.tx > 0 && p.home == sync.block && p.events.contains(&x.item)) {
                out.extend(sync.learned(p, x.item));
            }
            out.sort_by_key(|o| o.0 != y.key.agent);
        }
    }
    if out.is_empty() {
        return Err(CodegenError::new(
            Code::E0606,
            sync.loc(y.touched.op),
            "a view is overwritten after a TMA load whose tile no op waits for in the same block",
        )
        .note(sync.loc(x.touched.op), "loaded here"));
    }
    Ok(out)
}

/// Has the agent of the second access wait for the tile of a TMA load in front of that access, if it waits for it anyway, but
/// later: a token from there could not come in time. Whether it does now.
fn wait_sooner(
    found: &mut [PipeData],
    sync: &mut Sync<'_>,
    x: &Access,
    y: &Access,
    complete: &[(Agent, Op, Point)],
) -> bool {
    let begin = (y.key.agent, y.item, Point::First);
    let late = |&at: &(Agent, Op, Point)| at.0 == y.key.agent && sync.distance(begin, at, 0).is_some();
    if !complete.iter().any(late) {
        return false;
    }
    let mut moved = false;
    for p in found.iter_mut() {
        if p.tx == 0
            || p.home != sync.block
            || !(p.events.contains(&x.touched.op) || p.events.contains(&x.item))
        {
            continue;
        }
        let waits = p.consumers.iter_mut().filter(|c| c.key.agent == y.key.agent && !c.waits.is_empty());
        for c in waits.filter(|c| matches!(c.key.class, Class::Sync | Class::Group)) {
            // Of items that start together the first in the list counts.
            c.waits.insert(0, y.item);
            moved = true;
        }
        sync.pipe(p);
    }
    moved
}

/// Has the agent of the second access wait for the tile of a TMA load as well, though it does not read it: where all who
/// read it do so in items that follow that access, or hold it, a token from them would come too late, and not at all if
/// one of them waits for that access. Otherwise one who reads sooner gives the token. Whether there is a new consumer.
fn wait_too(
    found: &mut [PipeData],
    sync: &mut Sync<'_>,
    x: &Access,
    y: &Access,
    complete: &mut [(Agent, Op, Point)],
) -> bool {
    let sooner = |at: &(Agent, Op, Point)| at.0 == y.key.agent || sync.precedes(at.1, y.item);
    if let Some(n) = complete.iter().position(sooner) {
        complete[..=n].rotate_right(1);
        return false;
    }
    let carries = |p: &&mut PipeData| {
        p.tx > 0 && p.home == sync.block && (p.events.contains(&x.touched.op) || p.events.contains(&x.item))
    };
    let Some(p) = found.iter_mut().find(carries).filter(|p| p.distance == 0) else { return false };
    let key = Key { agent: y.key.agent, class: Class::Sync };
    p.consumers.push(Consumer { key, waits: smallvec![y.item], uses: smallvec![y.item] });
    p.consumers.sort_by_key(|c| c.key);
    sync.pipe(p);
    true
}

/// Adds a token from `giver` after its item to `waiter` before its item, or after it with `at_end`.
pub(super) fn add(
    found: &mut Vec<PipeData>,
    sync: &mut Sync<'_>,
    home: Block,
    (giver, event): (Key, Op),
    (waiter, item): (Key, Op),
    at_end: bool,
    publish: Publish,
) {
    let waits = if at_end { Ops::new() } else { smallvec![item] };
    let consumer = Consumer { key: waiter, waits, uses: smallvec![item] };
    let host = found.iter_mut().find(|p| {
        p.webs.is_empty()
            && p.home == home
            && p.producer == giver
            && p.events[..] == [event]
            && (p.publish == publish || p.publish == Publish::None || publish == Publish::None)
            && p.consumers.iter().all(|c| c.key != waiter)
    });
    let p = match host {
        Some(p) => {
            if publish != Publish::None {
                p.publish = publish;
            }
            p.consumers.push(consumer);
            p.consumers.sort_by_key(|c| c.key);
            p.clone()
        }
        None => {
            let p = PipeData { publish, consumers: vec![consumer], ..token(home, giver, event) };
            found.push(p.clone());
            p
        }
    };
    sync.pipe(&p);
}

/// Adds the mutexes of serial groups whose ops run in several agents.
pub fn mutexes(world: World<'_>, found: &mut Vec<PipeData>) {
    let World { func, plan, sched, .. } = world;
    for region in &sched.regions {
        let Some(body) = func.op_block_at(region.for_op, 0) else { continue };
        let Some(s) = sched.loops[region.for_op].as_deref() else { continue };
        let mut groups: Vec<Vec<Op>> = Vec::new();
        for (a, b) in region.exclusions().filter(|(a, b)| a != b) {
            let has = |g: &Vec<Op>| g.contains(&a) || g.contains(&b);
            let mut joined: Vec<Op> = vec![a, b];
            groups.retain(|g| {
                let mine = has(g);
                if mine {
                    joined.extend_from_slice(g);
                }
                !mine
            });
            joined.sort_unstable();
            joined.dedup();
            groups.push(joined);
        }
        groups.sort();
        for mut group in groups {
            group.retain(|&op| plan.op_agent[op].is_some());
            group.sort_by_key(|&op| (s.start[op], s.order[op]));
            let key = |op: Op| plan.op_agent[op].expand().map(|agent| (agent, class_of(func, plan, op)));
            // Runs of one agent, in the order of the schedule.
            let mut runs: Vec<(Agent, Class, Vec<Op>)> = Vec::new();
            for &op in &group {
                let Some((agent, class)) = key(op) else { continue };
                match runs.last_mut() {
                    Some(r) if r.0 == agent && r.1 == class => r.2.push(op),
                    _ => runs.push((agent, class, vec![op])),
                }
            }
            if runs.iter().all(|r| r.0 == runs[0].0) {
                continue;
            }
            let mut link = |from: &(Agent, Class, Vec<Op>), to: &(Agent, Class, Vec<Op>)| {
                // A TMA load is over when it was issued, as far as its agent can tell.
                let signal = |c: Class| if c == Class::Tma { Class::Sync } else { c };
                let (Some(&last), Some(&first)) = (from.2.last(), to.2.first()) else { return };
                let giver = Key { agent: from.0, class: signal(from.1) };
                let waiter = Key { agent: to.0, class: signal(to.1) };
                let consumer =
                    Consumer { key: waiter, waits: smallvec![first], uses: Ops::from_slice(&to.2) };
                let mut p = token(body, giver, last);
                p.acquires = Ops::from_slice(&from.2);
                p.kind = PipeKind::Mutex;
                p.consumers.push(consumer);
                found.push(p);
            };
            for pair in runs.windows(2) {
                link(&pair[0], &pair[1]);
            }
            // From the last run back to the first of the next iteration.
            if let [first, .., last] = runs.as_slice()
                && runs.len() > 2
                && first.0 != last.0
            {
                link(first, last);
            }
        }
    }
}
