//! The proof (R5): shows from the materialised function alone that its agents cannot deadlock and that every conflicting access
//! to a slot is ordered.
//!
//! In: a materialised function. Out: a [`SyncReport`], or all violations. It shares no code with what built the
//! function. Checks: each pipe advances once per execution of one home region, with one acquire, commit, and per
//! consumer one wait and release, in that order (E0703); arrival counts and transaction bytes (E0704); stages, types
//! and slots (E0705); where buffers and barriers lie (E0708); no cycle of distance sum ≤ 0 (E0702); conflicting accesses ordered by paths, those of buffers that
//! share memory all one way (E0706); a reverse path per pipe (E0707); the emitted order is that of the schedule
//! (E0709); loops that are dealt out to instances ([`turns`]); loops with local stages have guards, or prologue and epilogue, that fit (E0710); conflicting accesses to a
//! view ordered by paths (E0711). Cost: accesses × nodes × edges per region.

mod clusters;
mod form;
mod graph;
mod groups;
mod iterators;
mod linear;
mod memory;
mod model;
mod order;
mod turns;
mod views;
mod windows;

use crate::error::{Code, CodegenError, Errors};
use crate::ir::{Function, Layout, Op, Opcode, Signal, Space, Value, keys};
use crate::isa::{Completion, TargetIsa};
use cranelift_entity::SecondaryMap;
use graph::Graph;
use model::{Engine, Event, Found, Model, PipeInfo, What};
use smallvec::SmallVec;

/// What E0702 adds where the limits of the search for a choice of arms end it.
pub const UNDECIDED: &str =
    "\n  or none: too many arms and local stages to find out which of them go together";

/// What was proven, in numbers.
#[derive(Copy, Clone, Default, Debug, PartialEq, Eq)]
pub struct SyncReport {
    /// Pipelines.
    pub pipes: usize,
    /// Regions.
    pub regions: usize,
    /// Nodes of all graphs.
    pub nodes: usize,
    /// Edges of all graphs.
    pub edges: usize,
    /// Pairs of conflicting accesses proven ordered.
    pub ordered_pairs: usize,
}

/// Memory of the checks, kept from kernel to kernel.
#[derive(Default)]
pub struct Scratch {
    iterators: iterators::Scratch,
    traced: model::Traced,
    seen: SecondaryMap<Op, bool>,
    /// By region, as far as there were regions so far.
    graphs: Vec<Graph>,
    /// Of a region with others inside, for what blocks.
    blocking: Graph,
}

/// Checks a materialised function that may ask for so many bytes of shared memory, in memory that is kept.
///
/// # Errors
/// All violations, each with the op it concerns.
pub fn verify_materialized_in(
    func: &Function,
    isa: &dyn TargetIsa,
    smem_bytes: u32,
    scratch: &mut Scratch,
) -> Result<SyncReport, Errors> {
    let engine = isa.mma_contract().completion == Completion::Commit;
    let mut m = Model::read(func, engine, std::mem::take(&mut scratch.traced));
    let report = checks(&mut m, isa, smem_bytes, scratch);
    scratch.traced = m.traced();
    Errors::check(m.errors)?;
    Ok(report)
}

fn checks(m: &mut Model<'_>, isa: &dyn TargetIsa, smem_bytes: u32, scratch: &mut Scratch) -> SyncReport {
    let mut report = SyncReport { pipes: m.pipes.len(), regions: m.regions.len(), ..SyncReport::default() };
    let readable = m.errors.is_empty();
    if dangling(m, &mut scratch.seen) && readable {
        form::check(m);
        order::check(m);
        memory::check(m, isa, smem_bytes);
        scalars(m);
        iterators::check(m, &mut scratch.iterators);
        groups::check(m);
    }
    if m.errors.is_empty() {
        turns::check(m);
        clusters::check(m);
        let homes = counts(m);
        drains(m);
        if m.errors.is_empty() {
            windows::check(m, &homes);
        }
        arrivals(m, isa);
        if m.errors.is_empty() {
            regions(m, &homes, scratch, &mut report);
        }
    }
    report
}

/// Whether the graphs show a deadlock, whatever else is wrong with the function: what random programs are judged by.
/// Malformed functions give their errors.
pub fn deadlocks(func: &Function) -> Vec<CodegenError> {
    let mut m = Model::read(func, true, model::Traced::default());
    if m.errors.is_empty() {
        form::check(&mut m);
        counts(&mut m);
    }
    if m.errors.is_empty() {
        let mut found = Found::default();
        stuck(&m, &mut [], &mut Graph::default(), &[], &mut found);
        m.report(found);
    }
    m.errors
}

/// What the graphs show, deadlocks or else accesses without an order, whatever else is wrong with the function: what random
/// programs with slots are judged by.
pub fn disorder(func: &Function) -> Vec<CodegenError> {
    let mut m = Model::read(func, true, model::Traced::default());
    if m.errors.is_empty() {
        form::check(&mut m);
        let homes = counts(&mut m);
        if m.errors.is_empty() {
            regions(&mut m, &homes, &mut Scratch::default(), &mut SyncReport::default());
        }
    }
    m.errors
}

/// Every operand must be defined by something that stands before it in the function. `false`: what defines one was
/// removed, so that nothing else can be read.
fn dangling(m: &mut Model<'_>, seen: &mut SecondaryMap<Op, bool>) -> bool {
    let func = m.func;
    seen.clear();
    seen.resize(func.num_ops());
    let mut found: Vec<(Op, &str)> = Vec::new();
    func.walk(func.entry(), &mut |op| {
        for &v in func.operands(op) {
            let Some(d) = func.defining_op(v).filter(|&d| !seen[d]) else { continue };
            found.push(match func.op_block(d) {
                None => (op, "an operand is defined by an op that was removed"),
                Some(_) => (op, LATE),
            });
        }
        seen[op] = true;
    });
    let complete = found.iter().all(|&(_, text)| text == LATE);
    for (op, text) in found {
        m.error(Code::E0708, op, text);
    }
    complete
}

/// Of an operand in the wrong order.
const LATE: &str = "an operand is used before it is defined";

/// A scalar channel carries what one op computes, and all who read it take it for that.
fn scalars(m: &mut Model<'_>) {
    let func = m.func;
    let origin = |op: Op| linear::note(func, op, keys::ORIGIN);
    let mut found: Vec<(Op, String)> = Vec::new();
    for &(buffer, v, op) in &m.sends {
        if func.defining_op(v).and_then(origin) != origin(op) || m.sent(buffer) != origin(op) {
            let text = format!("{} sends a scalar of another op", m.op_name(op));
            found.push((op, text));
        }
    }
    for &(buffer, _, op) in &m.receives {
        let sent = m.sent(buffer);
        if sent.is_none() || sent != origin(op) {
            let what = sent.map_or("none".into(), |n| format!("that of op{n}"));
            let text = format!("the scalar of {} is read from a slot that carries {what}", m.op_name(op));
            found.push((op, text));
        }
    }
    for (op, text) in found {
        m.error(Code::E0705, op, text);
    }
}

/// A pipe whose slots an engine frees is drained: its producer acquires every slot once more before it ends, so that
/// no arrival is outstanding when the CTA exits.
fn drains(m: &mut Model<'_>) {
    let func = m.func;
    let mut acquired = vec![0i64; m.pipes.len()];
    let mut advanced = vec![0i64; m.pipes.len()];
    // Of pipes that go round once per kernel: acquires and advances in the body of the producer, and acquires elsewhere.
    let mut once = vec![(0, 0, 0); m.pipes.len()];
    for op in func.ops() {
        let acquire = match func.opcode(op) {
            Opcode::AsyncPipelineProducerAcquire => true,
            Opcode::AsyncPipelineIncIter => false,
            _ => continue,
        };
        let parent = func.op_parent(op);
        let body = parent.is_some_and(|o| func.opcode(o) == Opcode::AsyncPipelineAgentSwitch);
        let drain = match acquire {
            true => func.has_attr(op, keys::DRAIN),
            false => parent.is_some_and(|l| is_drain_loop(func, l)),
        };
        let counts = if acquire { !drain } else { body };
        if !counts && !drain {
            continue;
        }
        let Some((p, carried)) = func.operands(op).first().and_then(|&v| m.trace(v, 64)) else { continue };
        if counts && carried.is_none() {
            let count = match (acquire, body) {
                (true, true) => &mut once[p].0,
                (true, false) => &mut once[p].2,
                _ => &mut once[p].1,
            };
            *count += 1;
        }
        if !drain {
            continue;
        }
        let bound = |l: Op, n: usize| func.operands(l).get(n).and_then(|&v| func.constant_value(v));
        let times = match parent.filter(|&l| func.opcode(l) == Opcode::For) {
            Some(l) => match (bound(l, 0), bound(l, 1), bound(l, 2)) {
                (Some(lo), Some(hi), Some(1.0)) => (hi - lo) as i64,
                _ => 0,
            },
            None => 1,
        };
        let count = if acquire { &mut acquired } else { &mut advanced };
        count[p] += times;
    }
    for p in 0..m.pipes.len() {
        let PipeInfo { op, depth, ref empty, .. } = m.pipes[p];
        let engine = empty.as_ref().is_some_and(|e| matches!(e, Signal::Commit(_)));
        // What is advanced behind the last acquire stands for nothing.
        let advances = depth == 1 || (depth - 1..=depth).contains(&advanced[p]);
        if engine && (acquired[p] != depth || !advances) {
            let (got, steps) = (acquired[p], advanced[p]);
            let text = format!(
                "{got} slots are acquired at the end and the iterator advances {steps} times, all {depth} slots are needed"
            );
            m.error(Code::E0703, op, text);
        }
        if engine && once[p].2 == 0 && once[p].0 != once[p].1 {
            let text = format!(
                "{} slots are used and the iterator advances {} times before all are acquired",
                once[p].0, once[p].1
            );
            m.error(Code::E0703, op, text);
        }
    }
}

/// A loop that does nothing but acquire slots with `drain`.
fn is_drain_loop(func: &Function, l: Op) -> bool {
    func.opcode(l) == Opcode::For
        && func.op_block_at(l, 0).is_some_and(|b| {
            func.block_ops(b).all(|o| match func.opcode(o) {
                Opcode::AsyncPipelineProducerAcquire => func.has_attr(o, keys::DRAIN),
                Opcode::AsyncPipelineIncIter | Opcode::Yield => true,
                _ => false,
            })
        })
}

/// A channel op of a pipe, where it stands.
#[derive(Copy, Clone)]
struct PipeUse {
    pipe: usize,
    kind: Kind,
    agent: usize,
    region: usize,
    local: i64,
    at: usize,
}

#[derive(Copy, Clone, PartialEq, Eq)]
enum Kind {
    Acquire,
    Commit,
    Wait(i64),
    Release(i64),
    Inc,
}

impl PipeUse {
    fn before(&self, other: &PipeUse) -> bool {
        (self.agent, self.region) == (other.agent, other.region)
            && (self.local, self.at) < (other.local, other.at)
    }
}

/// All channel ops, by pipe.
fn uses(m: &Model<'_>) -> Vec<PipeUse> {
    let mut out = Vec::with_capacity(8 * m.pipes.len());
    for (region, info) in m.regions.iter().enumerate() {
        for (agent, list) in info.events.iter().enumerate() {
            for (at, e) in list.iter().enumerate() {
                let (pipe, kind) = match e.what {
                    What::Acquire(p) => (p, Kind::Acquire),
                    What::Commit(p, _) => (p, Kind::Commit),
                    What::Wait(p, c) => (p, Kind::Wait(c)),
                    What::Release(p, c, _) => (p, Kind::Release(c)),
                    What::Inc(p) => (p, Kind::Inc),
                    _ => continue,
                };
                out.push(PipeUse { pipe, kind, agent, region, local: e.local, at });
            }
        }
    }
    out.sort_by_key(|u| u.pipe);
    out
}

/// Where each pipe has its home. Checks that both sides use it exactly once there, in order.
fn counts(m: &mut Model<'_>) -> Vec<usize> {
    let all = uses(m);
    let mut rest = all.as_slice();
    let mut homes = vec![0; m.pipes.len()];
    let mut complaints: Vec<String> = Vec::new();
    for (p, home_of) in homes.iter_mut().enumerate() {
        let mine;
        (mine, rest) = rest.split_at(rest.iter().take_while(|u| u.pipe == p).count());
        let looped = mine.iter().filter(|u| u.kind == Kind::Acquire).map(|u| u.region);
        let inner = looped.clone().find(|&r| m.around(r, p));
        let outer = inner.and_then(|r| m.regions[r].parent);
        // The first versions come from before the loop, the last ones are taken after it.
        let here = |kind: Kind| mine.iter().filter(move |u| u.kind == kind && Some(u.region) != outer);
        if let (Some(home), Some(outer)) = (inner, outer) {
            around(m, mine, home, outer, m.pipes[p].distance, &mut complaints);
        }
        let (a, c) = (here(Kind::Acquire).count(), here(Kind::Commit).count());
        let home = match (here(Kind::Acquire).next(), here(Kind::Commit).next()) {
            (Some(first), Some(second)) if (a, c) == (1, 1) && first.before(second) => first.region,
            _ => {
                complaints.push(format!("{a} acquires and {c} commits, in order one each is needed"));
                0
            }
        };
        let mut consumers: SmallVec<[(usize, i64); 8]> = SmallVec::new();
        consumers.extend(mine.iter().filter_map(|u| match u.kind {
            Kind::Wait(c) | Kind::Release(c) => Some((u.agent, c)),
            _ => None,
        }));
        consumers.sort_unstable();
        consumers.dedup();
        if consumers.is_empty() {
            complaints.push("no consumer".into());
        }
        for &(agent, n) in &consumers {
            let of = |kind: Kind| here(kind).filter(|u| u.agent == agent);
            let (w, r) = (of(Kind::Wait(n)).count(), of(Kind::Release(n)).count());
            match (of(Kind::Wait(n)).next(), of(Kind::Release(n)).next()) {
                (Some(first), Some(second))
                    if (w, r) == (1, 1) && first.before(second) && first.region == home => {}
                _ => complaints.push(format!(
                    "consumer {n} in agent {agent}: {w} waits and {r} releases, in the producer's region one each is needed"
                )),
            }
        }
        if home != 0 {
            let mut users: SmallVec<[(usize, i64); 8]> = SmallVec::new();
            // What is released was named by the wait.
            users.extend(
                mine.iter()
                    .filter(|u| !matches!(u.kind, Kind::Inc | Kind::Release(_)) && Some(u.region) != outer)
                    .map(|u| (u.agent, u.local)),
            );
            users.sort_unstable();
            users.dedup();
            for &(agent, local) in &users {
                let at_home = |u: &&PipeUse| u.agent == agent && u.region == home && u.local == local;
                let n = here(Kind::Inc).filter(at_home).count();
                if n != 1 {
                    complaints.push(format!("agent {agent} advances its iterator {n} times per use"));
                }
                let Some(inc) = here(Kind::Inc).find(at_home) else { continue };
                let takes = |e: &Event| match &e.what {
                    What::Acquire(q) | What::Wait(q, _) => *q == p,
                    What::Access(_, touches, _) => touches.iter().any(|t| t.ring == Some(p)),
                    _ => false,
                };
                let late = &m.regions[home].events[agent][inc.at..];
                if late.iter().any(|e| e.local == local && takes(e)) {
                    complaints.push(format!("agent {agent} advances its iterator before it uses it"));
                }
            }
        }
        *home_of = home;
        let op = m.pipes[p].op;
        for c in complaints.drain(..) {
            m.errors.push(CodegenError::new(Code::E0703, m.func.op_loc(op), format!("Pipe_{p}: {c}")));
        }
    }
    homes
}

/// Right outside of a home with distance d the producer hands over d versions before the loop and each consumer takes d after
/// it; to each belong one acquire and commit, or one wait and release per consumer, and then one advance.
fn around(
    m: &Model<'_>,
    uses: &[PipeUse],
    home: usize,
    outer: usize,
    distance: i64,
    complaints: &mut Vec<String>,
) {
    for (agent, list) in m.regions[outer].events.iter().enumerate() {
        let mut of: SmallVec<[&PipeUse; 16]> =
            uses.iter().filter(|u| u.agent == agent && u.region == outer).collect();
        of.sort_unstable_by_key(|u| u.at);
        let takes_part = |u: &PipeUse| u.agent == agent && u.region == home;
        if of.is_empty() && !uses.iter().any(takes_part) {
            continue;
        }
        let is_home = |e: &Event| matches!(&e.what, What::Region(inner) if inner.contains(&home));
        let home_at = list.iter().position(is_home).unwrap_or(0);
        let produces = uses.iter().any(|u| takes_part(u) && u.kind == Kind::Acquire);
        let consumes = uses.iter().filter(|u| takes_part(u) && matches!(u.kind, Kind::Wait(_))).count();
        // Openings and closings of the version under way, and versions so far.
        let (mut opened, mut closed, mut n) = (0, 0, 0);
        let mut good = produces != (consumes > 0);
        let each = if produces { 1 } else { consumes };
        for u in of {
            good &= (u.at < home_at) == produces && u.local == 0;
            match u.kind {
                Kind::Acquire => (opened, good) = (opened + 1, good && produces && closed == 0),
                Kind::Wait(_) => (opened, good) = (opened + 1, good && !produces),
                Kind::Commit | Kind::Release(_) => (closed, good) = (closed + 1, good && closed < opened),
                Kind::Inc => {
                    good &= (opened, closed) == (each, each);
                    (opened, closed, n) = (0, 0, n + 1);
                }
            }
        }
        if !good || n != distance || (opened, closed) != (0, 0) {
            let (what, place) =
                if produces { ("acquire, commit", "before") } else { ("wait, release", "after") };
            complaints.push(format!(
                "agent {agent} must {what} and advance {distance} times {place} the loop, and do no more around it"
            ));
        }
    }
}

/// Bytes TMA loads of a pipe write per execution of a region; `None` when paths differ.
fn loaded(m: &Model<'_>, region: usize, agent: usize, pipe: usize) -> Option<i64> {
    let mut sum = 0i64;
    for e in &m.regions[region].events[agent] {
        match &e.what {
            What::Access(Engine::Load, touches, Some(q)) if *q == pipe => {
                for t in touches {
                    sum += slot_bytes(m.func, t.buffer);
                }
            }
            What::Region(inner) => {
                let mut each = inner.iter().map(|&r| loaded(m, r, agent, pipe));
                let first = each.next().flatten()?;
                if each.any(|x| x != Some(first)) {
                    return None;
                }
                let is_loop = m.func.opcode(e.op) == Opcode::For;
                if is_loop && first != 0 {
                    return None;
                }
                sum += first;
            }
            _ => {}
        }
    }
    Some(sum)
}

fn slot_bytes(func: &Function, buffer: Value) -> i64 {
    let data = func.value_data(buffer);
    let slots = data.dims().and_then(|d| d.first().copied()).unwrap_or(1).max(1);
    data.num_bytes().map_or(0, |b| (b / u64::from(slots)) as i64)
}

/// Barrier counts equal what arrives in a phase; bytes equal what is loaded.
fn arrivals(m: &mut Model<'_>, isa: &dyn TargetIsa) {
    let limits = &isa.machine().limits;
    let mut found = Found::default();
    for (r, region) in m.regions.iter().enumerate() {
        for (a, list) in region.events.iter().enumerate() {
            for (i, e) in list.iter().enumerate() {
                match e.what {
                    What::Commit(p, tx) => {
                        let full = m.pipes[p].full;
                        let (want, bytes) = match full {
                            Signal::Tx { .. } => (1, loaded(m, r, a, p)),
                            Signal::Commit(_) => (1, Some(0)),
                            // The lane that stored, having waited for its bulk groups.
                            _ if m.func.has_attr(e.op, keys::BULK_PENDING) => (1, Some(0)),
                            _ => (m.threads[a], Some(0)),
                        };
                        let one_lane = m.threads[a] == 1 || matches!(full, Signal::Arrive(_));
                        if full.count() != want || !one_lane {
                            found.bad(
                                Code::E0704,
                                e.op,
                                format!(
                                    "Pipe_{p}: full counts {} arrivals, the commit makes {want}",
                                    full.count()
                                ),
                            );
                        }
                        let announced = tx.unwrap_or(0);
                        let owed: i64 = m.pipes[p].buffers.iter().map(|&b| slot_bytes(m.func, b)).sum();
                        let is_tx = matches!(full, Signal::Tx { .. });
                        if bytes != Some(announced)
                            || full.bytes() != announced
                            || (is_tx && owed != announced)
                        {
                            found.bad(
                                Code::E0704,
                                e.op,
                                format!(
                                    "Pipe_{p}: {announced} bytes are announced, the barrier has {}, the loads write {}, the buffers hold {owed}",
                                    full.bytes(),
                                    bytes.map_or_else(|| "different amounts".into(), |b| b.to_string())
                                ),
                            );
                        }
                        if i64::from(limits.mbarrier_count_max) < announced {
                            found.bad(
                                Code::E0704,
                                e.op,
                                format!("Pipe_{p}: {announced} bytes exceed a barrier"),
                            );
                        }
                    }
                    What::Release(p, _, Some(pending)) => {
                        // Stores certainly issued between this pipe's store and the release, in this iteration and in those
                        // until the slot comes again.
                        let mine = |w: &What| matches!(w, What::Access(Engine::Store, t, _) if t.iter().any(|t| m.pipes[p].buffers.contains(&t.buffer)));
                        let last = list[..i].iter().rposition(|x| mine(&x.what));
                        // A token's way back says that the store was issued.
                        let token = m.pipes[p].buffers.is_empty();
                        let late = match last {
                            Some(l) => graph::iterations_late(m, r, list, (l, i), p, pending),
                            None => (pending <= 0).then_some(0),
                        };
                        if !token && late.is_none_or(|t| t > 0 && t >= m.pipes[p].depth) {
                            found.bad(
                                Code::E0703,
                                e.op,
                                format!("Pipe_{p}: {pending} bulk groups may be pending, fewer follow the store before its slot comes again"),
                            );
                        }
                    }
                    _ => {}
                }
            }
        }
    }
    for p in 0..m.pipes.len() {
        let mut sum = 0;
        for (r, region) in m.regions.iter().enumerate() {
            if m.pipes[p].distance > 0 && !m.around(r, p) {
                continue; // what is taken after the loop is another version
            }
            for (a, list) in region.events.iter().enumerate() {
                for e in list {
                    if let What::Release(q, _, pending) = e.what
                        && q == p
                    {
                        sum += match pending {
                            Some(_) => 1,
                            None if m.func.has_attr(e.op, keys::PER_WARP) => {
                                m.threads[a] / i64::from(crate::ir::layouts::LANES)
                            }
                            None => m.threads[a],
                        };
                    }
                }
            }
        }
        if let Some(empty) = &m.pipes[p].empty
            && empty.count() != sum
        {
            found.bad(
                Code::E0704,
                m.pipes[p].op,
                format!("Pipe_{p}: empty counts {} arrivals, the releases make {sum}", empty.count()),
            );
        }
    }
    m.report(found);
}

/// One access, by where it stands.
struct Place {
    agent: usize,
    /// (region, event) from the kernel body down.
    path: SmallVec<[(usize, usize); 4]>,
    engine: Engine,
    writes: bool,
    ring: Option<usize>,
    /// Of a TMA load: the pipe on whose barrier it completes.
    load: Option<usize>,
    op: crate::ir::Op,
}

fn regions(m: &mut Model<'_>, homes: &[usize], scratch: &mut Scratch, report: &mut SyncReport) {
    let Scratch { graphs, blocking, .. } = scratch;
    let count = m.regions.len();
    if graphs.len() < count {
        graphs.resize_with(count, Graph::default);
    }
    let graphs = &mut graphs[..count];
    // Regions have greater numbers than those around them.
    for r in (0..count).rev() {
        let (around, inside) = graphs.split_at_mut(r + 1);
        around[r].build(m, r, inside);
    }
    let lanes: SmallVec<[&str; 8]> =
        m.threads.iter().map(|&t| if t == 1 { "one lane" } else { "all threads" }).collect();
    let mut found = Found::default();
    for g in &*graphs {
        report.nodes += g.names.len();
        report.edges += g.edges.len();
    }
    stuck(m, graphs, blocking, &lanes, &mut found);
    if found.is_empty() {
        reverse_paths(m, homes, graphs, &mut found);
        conflicts(m, homes, graphs, report, &mut found);
        views::check(m, graphs, report, &mut found);
    }
    m.report(found);
}

/// Deadlocks of the kernel body and all loops. `graphs`: those of the regions, as far as they were built.
fn stuck(m: &Model<'_>, graphs: &mut [Graph], blocking: &mut Graph, lanes: &[&str], found: &mut Found) {
    for r in (0..m.regions.len()).filter(|&r| r == 0 || m.regions[r].repeats) {
        let g = match graphs.get_mut(r).filter(|g| g.is_blocking(m, r)) {
            Some(built) => built,
            None => {
                blocking.blocking(m, r);
                &mut *blocking
            }
        };
        let Some(graph::Stuck { cycle, certain }) = g.stuck() else { continue };
        let at = cycle.iter().find_map(|&k| match g.edges[k].why {
            graph::Why::Full(p) | graph::Why::Empty(p) => Some(m.pipes[p].op),
            _ => None,
        });
        let op = at.or_else(|| m.regions[r].events.iter().flatten().map(|e| e.op).next());
        if let Some(op) = op {
            let mut text = g.explain(&cycle, m, lanes);
            if !certain {
                text.push_str(UNDECIDED);
            }
            found.bad(Code::E0702, op, text);
        }
    }
}

/// Whether the ring of a pipe is never used twice, so that nothing needs to flow back.
fn used_once(m: &Model<'_>, region: usize, depth: i64) -> bool {
    m.executions(region).is_some_and(|n| n <= depth)
}

fn reverse_paths(m: &Model<'_>, homes: &[usize], graphs: &mut [Graph], found: &mut Found) {
    for (p, info) in m.pipes.iter().enumerate() {
        let home = homes[p];
        if used_once(m, home, info.depth - info.distance) {
            continue;
        }
        let g = &mut graphs[home];
        let mut acquire = None;
        let mut waits: SmallVec<[usize; 8]> = SmallVec::new();
        for (a, list) in m.regions[home].events.iter().enumerate() {
            for (i, e) in list.iter().enumerate() {
                match e.what {
                    What::Acquire(q) if q == p => acquire = Some(g.at(a, i).begin(e.lane)),
                    What::Wait(q, _) if q == p => waits.push(g.at(a, i).all_left),
                    _ => {}
                }
            }
        }
        let Some(acquire) = acquire else { continue };
        for w in waits {
            let back = (info.depth - info.distance) * m.rounds(home, p);
            let d = g.distance(w, acquire, back);
            if d.is_none_or(|d| d > back) {
                found.bad(
                    Code::E0707,
                    info.op,
                    match d {
                        Some(d) => format!("Pipe_{p}: the way back takes {d} iterations, {back} are allowed"),
                        None => {
                            format!(
                                "Pipe_{p}: nothing orders its consumer before the producer's next iteration"
                            )
                        }
                    },
                );
            }
        }
    }
}

fn places(m: &Model<'_>) -> Vec<(Value, Vec<Place>)> {
    let mut by_buffer: Vec<(Value, Vec<Place>)> = Vec::with_capacity(16);
    fn walk(
        m: &Model<'_>,
        agent: usize,
        region: usize,
        path: &mut SmallVec<[(usize, usize); 8]>,
        out: &mut Vec<(Value, Vec<Place>)>,
    ) {
        for (i, e) in m.regions[region].events[agent].iter().enumerate() {
            path.push((region, i));
            match &e.what {
                What::Region(inner) => inner.iter().for_each(|&r| walk(m, agent, r, path, out)),
                What::Access(engine, touches, completes) => {
                    for t in touches {
                        let place = Place {
                            agent,
                            path: SmallVec::from_slice(path),
                            engine: *engine,
                            writes: t.writes,
                            ring: t.ring,
                            load: completes.filter(|_| *engine == Engine::Load),
                            op: e.op,
                        };
                        match out.iter_mut().find(|b| b.0 == t.buffer) {
                            Some(b) => b.1.push(place),
                            None => {
                                // Written and read at least.
                                let mut list = Vec::with_capacity(4);
                                list.push(place);
                                out.push((t.buffer, list));
                            }
                        }
                    }
                }
                _ => {}
            }
            path.pop();
        }
    }
    for a in 0..m.threads.len() {
        walk(m, a, 0, &mut SmallVec::new(), &mut by_buffer);
    }
    by_buffer
}

/// The memory of a buffer: where it begins, what is behind its end, and which halves of the lanes it has.
type Memory = Option<(Space, i64, i64, u8)>;

fn memory_of(func: &Function, buffer: Value) -> Memory {
    let op = func.defining_op(buffer)?;
    let data = func.value_data(buffer);
    match data.space()? {
        Space::Tmem => {
            let (slots, columns) = (data.dims()?.first()?, data.dims()?.last()?);
            let elements = i64::from(*slots).saturating_mul(i64::from(*columns));
            let bits = elements.saturating_mul(i64::from(data.elem()?.bits()));
            let at = func.attr_int(op, keys::COLUMN)?;
            let lanes = func.attr_int(op, keys::LANE).map_or(3, |lane| if lane == 0 { 1 } else { 2 });
            Some((Space::Tmem, at, at.saturating_add((bits as u64).div_ceil(32) as i64), lanes))
        }
        space => {
            let at = func.attr_int(op, keys::OFFSET)?;
            Some((space, at, at.saturating_add(i64::try_from(data.ring_bytes()?).ok()?), 3))
        }
    }
}

/// Whether two buffers have memory in common.
fn overlap(a: Memory, b: Memory) -> bool {
    a.zip(b).is_some_and(|(x, y)| x.0 == y.0 && x.1 < y.2 && y.1 < x.2 && x.3 & y.3 != 0)
}

/// Whether two copies touch a column in common, as far as it can be told.
fn columns_meet(func: &Function, a: Op, b: Op) -> bool {
    let columns = |op: Op| -> Option<(i64, i64)> {
        if func.named_operand(op, "number").is_some() {
            return None;
        }
        let tile = func.result(op).or_else(|| func.named_operand(op, "source"))?;
        let width = i64::from(*func.value_data(tile).dims()?.last()?);
        let offset = func.attr_ints(op, keys::OFFSETS).and_then(|o| o.last().copied())?;
        Some((offset, offset + width))
    };
    columns(a).zip(columns(b)).is_none_or(|(x, y)| x.0 < y.1 && y.0 < x.1)
}

/// Whether the threads that move a tile between this buffer and registers have rows of their own in it, as in accumulators:
/// in all buffers of this memory, as tensor memory has lanes, or at least in this one.
fn own_rows(func: &Function, buffer: Value) -> (bool, bool) {
    let data = func.value_data(buffer);
    let lanes = data.space() == Some(Space::Tmem);
    // One extent more is the slots: what has less holds scalars.
    let dense = data.layout() == Some(Layout::SmemRow) && data.dims().is_some_and(|d| d.len() > 2);
    (lanes, lanes || dense)
}

/// Two accesses: whether threads have rows of their own there, if their two buffers share memory the number of these and whether they
/// lie slot on slot, and both.
type Two<'p> = (bool, Option<(usize, bool)>, &'p Place, &'p Place);

fn conflicts(
    m: &Model<'_>,
    homes: &[usize],
    graphs: &mut [Graph],
    report: &mut SyncReport,
    found: &mut Found,
) {
    let all = places(m);
    // Pairs of accesses to one buffer, and to buffers that lie in the same memory.
    let mut pairs: SmallVec<[Two<'_>; 32]> = SmallVec::new();
    // By two buffers in the same memory: whether all that uses the one may come before all that uses the other in an iteration,
    // and the other way round. A use of the one between two of the other would find, or leave, the wrong tile.
    let mut whole: SmallVec<[[bool; 2]; 8]> = SmallVec::new();
    let memory: SmallVec<[Memory; 16]> = all.iter().map(|(buffer, _)| memory_of(m.func, *buffer)).collect();
    for (n, (buffer, list)) in all.iter().enumerate() {
        let (lanes, apart) = own_rows(m.func, *buffer);
        for (i, x) in list.iter().enumerate() {
            pairs.extend(list[i + 1..].iter().map(|y| (apart, None, x, y)));
        }
        for k in (n + 1..all.len()).filter(|&k| overlap(memory[n], memory[k])) {
            let other = &all[k].1;
            let number = whole.len();
            whole.push([true; 2]);
            let number = (number, memory[n] == memory[k]);
            pairs.extend(list.iter().flat_map(|x| other.iter().map(move |y| (lanes, Some(number), x, y))));
        }
    }
    for (own, shared, x, y) in pairs {
        let same = x.agent == y.agent && x.engine == y.engine;
        let conflict = if shared.is_some() {
            x.writes || y.writes
        } else if same {
            // One engine works in issue order; threads of an agent do not, in shared memory. In accumulators each has
            // rows of its own, where what it reads is of the iteration in which it stands: with local stages the next
            // version may be written before.
            x.engine == Engine::Threads && x.writes != y.writes && (!own || columns_meet(m.func, x.op, y.op))
        } else {
            x.writes || y.writes
        };
        if !conflict {
            continue;
        }
        report.ordered_pairs += 1;
        let common = x.ring.filter(|_| x.ring == y.ring && x.writes != y.writes);
        let distance = common.map_or(0, |p| m.pipes[p].distance);
        // The innermost region that holds both.
        let Some(depth) =
            (0..x.path.len().min(y.path.len())).take_while(|&k| x.path[k].0 == y.path[k].0).last()
        else {
            continue;
        };
        let region = x.path[depth].0;
        let g = &mut graphs[region];
        let (nx, ny) = (g.at(x.agent, x.path[depth].1), g.at(y.agent, y.path[depth].1));
        if x.agent == y.agent && x.path[depth].1 == y.path[depth].1 {
            // Two arms of one branch.
            continue;
        }
        if distance > 0 && common.is_some_and(|p| homes[p] != region) {
            // One before or after the loop, one in it: uses of one ring are counted through both, each waits for its
            // own.
            continue;
        }
        // What threads did is done when all of them left the region; engines, which the lane starts, may go on. In its
        // own rows each thread meets itself alone.
        let itself = same && own;
        let end = |p: &Place, n: graph::Nodes| match p.engine {
            Engine::Threads if itself => n.first_leaves,
            Engine::Threads => n.all_left,
            _ => n.done,
        };
        let begin = |p: &Place, n: graph::Nodes| n.begin(p.engine != Engine::Threads);
        let mut after = |p: &Place, n: graph::Nodes, to: usize, last: i64| {
            let direct = g.distance(end(p, n), to, last);
            let event = (p.agent, p.path[depth].1);
            let inside = match p.engine {
                Engine::Load => p.load.and_then(|pipe| g.loads.get(&(event.0, event.1, pipe)).copied()),
                Engine::Store if graph::stores_waited(m, p.agent, &p.path[depth + 1..]) => {
                    g.stores.get(&event).copied()
                }
                Engine::Store | Engine::Threads | Engine::Mma => None,
            };
            let waited = inside.and_then(|l| g.distance(l, to, last));
            direct.map_or(waited, |d| Some(waited.map_or(d, |w| w.min(d))))
        };
        let (to_x, to_y) = (begin(x, nx), begin(y, ny));
        // Iterations after which the slot comes again; of buffers that share memory all slots are one, but where two rings advance
        // together, slot on slot.
        let ring =
            |p: &Place| p.ring.filter(|&q| homes[q] == region).map(|q| (&m.pipes[q], m.rounds(region, q)));
        let again = match (ring(x), ring(y), shared) {
            (Some((r, rounds)), _, None) => r.depth * rounds,
            (Some((r, 1)), Some((s, 1)), Some((_, true)))
                if r.depth == s.depth && r.distance.max(s.distance) == 0 =>
            {
                r.depth
            }
            _ if x.agent == y.agent => m.again(region, x.agent),
            _ => 1,
        };
        // In two arms of one branch they never meet in one iteration.
        let event = |p: &Place| &m.regions[region].events[p.agent][p.path[depth].1].what;
        let apart = match (event(x), event(y)) {
            (What::Region(rx), What::Region(ry)) => rx == ry,
            _ => false,
        };
        // The writer is ahead of the reader by the distance: its version is read so many iterations later, and what it
        // overwrites was read so many iterations fewer than a slot takes to come again.
        let (ahead, behind) =
            if x.writes { (distance, again - distance) } else { (again - distance, distance) };
        let once = used_once(m, region, again);
        // The first before the second, the second before the first.
        let mut within = |forth: bool, most: i64| {
            let d = if forth { after(x, nx, to_y, most) } else { after(y, ny, to_x, most) };
            d.is_some_and(|d| d <= most)
        };
        let orders = if distance > 0 {
            [within(true, ahead) && within(false, behind); 2]
        } else if apart {
            [once || (within(true, again) && within(false, again)); 2]
        } else {
            // What runs once does not come round.
            [true, false].map(|forth| within(forth, 0) && (once || within(!forth, again)))
        };
        let ordered = orders[0] || orders[1];
        if let Some((n, _)) = shared.filter(|_| ordered) {
            let was = whole[n];
            whole[n] = [was[0] && orders[0], was[1] && orders[1]];
            if whole[n] == [false; 2] && was != whole[n] {
                found.bad(
                    Code::E0706,
                    y.op,
                    format!(
                        "{} of agent {} and {} of agent {} use two buffers that share memory: the one is used while the other holds a tile",
                        m.op_name(x.op),
                        x.agent,
                        m.op_name(y.op),
                        y.agent
                    ),
                );
            }
        }
        if !ordered {
            let show = |d: Option<i64>| d.map_or_else(|| "no path".to_string(), |d| format!("distance {d}"));
            let (a, b) = (after(x, nx, to_y, i64::MAX), after(y, ny, to_x, i64::MAX));
            found.bad(
                Code::E0706,
                y.op,
                format!(
                    "{} of agent {} and {} of agent {} use one slot, the slot comes again after {again}: {} forth, {} back",
                    m.op_name(x.op),
                    x.agent,
                    m.op_name(y.op),
                    y.agent,
                    show(a),
                    show(b)
                ),
            );
        }
    }
}
