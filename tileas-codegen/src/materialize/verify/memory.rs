//! Where a materialised function says that buffers and barriers lie, and which slot and slice an op takes.
//!
//! In: the function and what was read of it. Every buffer, barrier and word must lie in the memory that the kernel asks for,
//! aligned as its use needs, and nothing may share bytes with a barrier or with the word that receives the base of tensor
//! memory. (Buffers may lie in the same memory: the conflicts say when. What warps of an agent hand to each other inside of an op
//! is no buffer of the conflicts, and lies apart.) A named barrier is one agent's, and not the kernel's own;
//! a slot without an iterator is slot 0; the number of a slice is below the number of slices. Errors: E0705 for slots and
//! slices, E0708 for places. Cost: linear, n log n in barriers, barriers × buffers.

use super::linear::Lin;
use super::model::{Found, Model, What};
use crate::error::Code;
use crate::ir::{AttrData, Function, Layout, Op, Opcode, Space, Sym, Value, ValueDef, keys};
use crate::isa::TargetIsa;
use smallvec::SmallVec;
use std::fmt;

/// Bytes that align the base of shared memory, which is asked for without alignment.
const SLACK: i64 = 1024;
/// Bytes of an mbarrier.
const BARRIER: i64 = 8;
/// Named barriers of a CTA; 0 is the kernel's own.
const NAMED: i64 = 16;

/// A range of shared memory and whose it is.
struct Room {
    from: i64,
    to: i64,
    op: Op,
    what: Owner,
}

/// What lies in shared memory.
enum Owner {
    Buffer,
    /// Of the warps of an agent.
    Scratch,
    /// The barriers of one side of a pipe.
    Barriers(&'static str, usize),
    TensorBase,
    Turns,
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Owner::Buffer => f.write_str("a buffer"),
            Owner::Scratch => f.write_str("what the warps of an agent hand to each other"),
            Owner::Barriers(side, pipe) => write!(f, "{side} barriers of Pipe_{pipe}"),
            Owner::TensorBase => f.write_str("the tensor-memory base"),
            Owner::Turns => f.write_str("barriers of turns"),
        }
    }
}

/// Checks places, slots and slices.
pub fn check(m: &mut Model<'_>, isa: &dyn TargetIsa, smem_bytes: u32) {
    let mut found = Found::default();
    places(m, isa, smem_bytes, &mut found);
    named(m, &mut found);
    let func = m.func;
    func.walk(func.entry(), &mut |op| indices(func, op, &mut found));
    m.report(found);
}

fn kernel_int(func: &Function, key: Sym) -> i64 {
    match func.attrs.get(key).map(|a| func.attr_data(a)) {
        Some(AttrData::Int(v, _)) => *v,
        _ => 0,
    }
}

fn places(m: &Model<'_>, isa: &dyn TargetIsa, smem_bytes: u32, found: &mut Found) {
    let func = m.func;
    let asked = kernel_int(func, keys::DYNAMIC_SMEM);
    let (bytes, columns) = (asked.saturating_sub(SLACK).max(0), kernel_int(func, keys::TMEM_COLUMNS));
    let limits = &isa.machine().limits;
    let warps = kernel_int(func, keys::NUM_THREADS) / i64::from(limits.warp_threads);
    let mut bad = |op: Op, text: String| found.bad(Code::E0708, op, text);
    let (mut buffers, mut words): (SmallVec<[Room; 16]>, SmallVec<[Room; 32]>) = Default::default();
    let mut last = None;
    let ends = func.ops().filter(|&op| func.opcode(op) == Opcode::AsyncPipelineAgentSwitch).flat_map(|op| {
        let ints = |key| func.attr_ints(op, key).unwrap_or_default();
        let (first, count) = (ints(keys::WARP_ID), ints(keys::NUM_WARPS));
        let instances = ints(keys::INSTANCES);
        let all = |n: usize, b: i64| b.saturating_mul(instances.get(n).map_or(1, |&i| i));
        let ends = first.iter().zip(&count).enumerate();
        ends.map(|(n, (a, b))| (op, a.saturating_add(all(n, *b)))).collect::<SmallVec<[_; 8]>>()
    });
    for (op, end) in ends.filter(|&(_, end)| end > warps) {
        bad(op, format!("an agent reaches to warp {}, the kernel has {warps} warps", end - 1));
    }
    for op in func.block_ops(func.entry()) {
        last = Some(op);
        let Some(v) = func.result(op).filter(|_| func.opcode(op) == Opcode::AllocTensor) else { continue };
        let data = func.value_data(v);
        let tensor = data.space() == Some(Space::Tmem);
        let (key, room) = if tensor { (keys::COLUMN, columns) } else { (keys::OFFSET, bytes) };
        let Some(from) = func.attr_int(op, key) else {
            bad(op, format!("the buffer has no `{}`", func.symbol(key)));
            continue;
        };
        let size = if tensor {
            let dims = data.dims().unwrap_or(&[]);
            let cells = dims.first().zip(dims.last()).map_or(0, |(&a, &b)| u64::from(a) * u64::from(b));
            (cells * u64::from(data.elem().map_or(32, |e| e.bits()))).div_ceil(32)
        } else {
            data.ring_bytes().unwrap_or(u64::MAX)
        };
        let to = from.saturating_add(i64::try_from(size).unwrap_or(i64::MAX));
        let unit = if tensor { "columns" } else { "bytes" };
        if from < 0 || to > room {
            bad(op, format!("the buffer takes {unit} {from} to {to}, the kernel asks for {room}"));
        }
        let align = match data.layout() {
            Some(Layout::SmemRow) => data.elem().map_or(1, |e| i64::from(e.bytes())),
            layout => layout.and_then(|l| l.swizzle()).map_or(1, |s| i64::from(s.alignment())),
        };
        if !tensor && from % align != 0 {
            bad(op, format!("the buffer's layout needs an `offset` that is a multiple of {align}"));
        }
        let divided = data.layout() == Some(Layout::Tmem64);
        if let Some(lane) = func.attr_int(op, keys::LANE).filter(|l| !divided || ![0, 16].contains(l)) {
            bad(op, format!("lane {lane}: buffers of layout d64 begin at lane 0 or 16"));
        }
        let owner = func.attr_int(op, keys::OWNER_WARP).unwrap_or(0);
        if tensor && owner >= warps {
            bad(op, format!("warp {owner} allocates tensor memory, there are {warps}"));
        }
        let stride = func.attr_int(op, keys::STRIDE);
        let copies = if stride.is_some() { m.instances.iter().copied().max().unwrap_or(1) } else { 1 };
        for c in (0..copies).filter(|_| !tensor) {
            let behind = c.saturating_mul(stride.unwrap_or(0));
            let (from, to) = (from.saturating_add(behind), to.saturating_add(behind));
            if to > room {
                bad(
                    op,
                    format!(
                        "the buffer of instance {c} takes bytes {from} to {to}, the kernel asks for {room}"
                    ),
                );
            }
            let what = if func.has_attr(op, keys::SCRATCH) { Owner::Scratch } else { Owner::Buffer };
            buffers.push(Room { from, to, op, what });
        }
    }
    for (n, p) in m.pipes.iter().enumerate().filter(|(_, p)| !p.named) {
        let empty = p.empty.is_some().then_some((keys::EMPTY_AT, "empty"));
        for (key, side) in [Some((keys::FULL_AT, "full")), empty].into_iter().flatten() {
            let Some(from) = func.attr_int(p.op, key) else {
                bad(p.op, format!("Pipe_{n} has no `{}`", func.symbol(key)));
                continue;
            };
            let to = from.saturating_add(p.depth.saturating_mul(BARRIER));
            words.push(Room { from, to, op: p.op, what: Owner::Barriers(side, n) });
        }
    }
    for op in func.block_ops(func.entry()).filter(|&op| func.has_attr(op, keys::INSTANCES)) {
        if func.opcode(op) != Opcode::AsyncPipelineAgentSwitch {
            continue;
        }
        let Some(from) = func.attr_int(op, keys::TURN_AT) else {
            bad(op, "there are no barriers for turns".to_owned());
            continue;
        };
        let n = m.instances.iter().copied().max().unwrap_or(1);
        let to = from.saturating_add(n.saturating_mul(BARRIER));
        words.push(Room { from, to, op, what: Owner::Turns });
    }
    if let Some(op) = last.filter(|_| columns > 0) {
        let from = kernel_int(func, keys::TMEM_BASE_AT);
        words.push(Room { from, to: from.saturating_add(4), op, what: Owner::TensorBase });
        let (least, most) = (i64::from(limits.tmem_alloc_min_columns), i64::from(limits.tmem_columns));
        if !(least..=most).contains(&columns) || columns & (columns - 1) != 0 {
            bad(
                op,
                format!(
                    "{columns} columns of tensor memory, powers of two from {least} to {most} can be had"
                ),
            );
        }
    }
    if let Some(op) = last.filter(|_| asked > i64::from(smem_bytes)) {
        bad(op, format!("{asked} bytes of shared memory, there are {smem_bytes}"));
    }
    for (n, s) in buffers.iter().enumerate().filter(|(_, b)| matches!(b.what, Owner::Scratch)) {
        let apart = |(k, b): (usize, &Room)| n == k || b.to <= s.from || s.to <= b.from;
        if !buffers.iter().enumerate().all(apart) {
            bad(s.op, format!("{} lies in another buffer at {} to {}", s.what, s.from, s.to));
        }
    }
    words.sort_by_key(|w| w.from);
    for w in &words {
        let align = if w.to - w.from == 4 { 4 } else { BARRIER };
        if w.from < 0 || w.to > bytes || w.from % align != 0 {
            let text = format!("{} take bytes {} to {}, of {bytes} aligned to {align}", w.what, w.from, w.to);
            bad(w.op, text);
        }
        if let Some(b) = buffers.iter().find(|b| b.from < w.to && w.from < b.to) {
            bad(w.op, format!("{} lie in {} at {} to {}", w.what, b.what, b.from, b.to));
        }
    }
    for pair in words.windows(2).filter(|p| p[1].from < p[0].to) {
        bad(pair[1].op, format!("{} lie in {}", pair[1].what, pair[0].what));
    }
}

/// A named barrier stands for both sides of pipes of one agent.
fn named(m: &Model<'_>, found: &mut Found) {
    // Agent and instance.
    let mut owner: [Option<(usize, i64)>; NAMED as usize] = [None; NAMED as usize];
    // The barriers of all instances of an agent, from that of the first one on; whether they are all its own.
    let mut take = |agent: usize, id: i64| {
        (0..m.instances.get(agent).copied().unwrap_or(1)).all(|c| {
            let slot = usize::try_from(id + c).ok().filter(|_| id >= 1).and_then(|id| owner.get_mut(id));
            slot.is_some_and(|first| *first.get_or_insert((agent, c)) == (agent, c))
        })
    };
    // Warps of an agent that hand tiles to each other inside of an op meet there as well.
    let func = m.func;
    for op in func.block_ops(func.entry()) {
        let (Some(agent), Some(id)) = (func.attr_int(op, keys::SCRATCH), func.attr_int(op, keys::NAMED))
        else {
            continue;
        };
        let known = usize::try_from(agent).ok().filter(|&a| a < m.threads.len());
        if !known.is_some_and(|agent| take(agent, id)) {
            let text =
                format!("agent {agent} has no named barrier {id} for itself, there are 1 to {}", NAMED - 1);
            found.bad(Code::E0708, op, text);
        }
    }
    for (n, p) in m.pipes.iter().enumerate().filter(|(_, p)| p.named) {
        let id = m.func.attr_int(p.op, keys::NAMED).unwrap_or(0);
        if !(1..NAMED).contains(&id) {
            found.bad(
                Code::E0708,
                p.op,
                format!("Pipe_{n} has named barrier {id}, there are 1 to {}", NAMED - 1),
            );
            continue;
        }
        let uses = |w: &What| matches!(*w, What::Acquire(q) | What::Commit(q, _) | What::Wait(q, _) | What::Release(q, ..) if q == n);
        let agents = m.regions.iter().flat_map(|r| r.events.iter().enumerate());
        for (agent, _) in agents.filter(|(_, list)| list.iter().any(|e| uses(&e.what))) {
            if !take(agent, id) {
                let text = format!("Pipe_{n}: named barrier {id} of agent {agent} is another one's as well");
                found.bad(Code::E0708, p.op, text);
                break;
            }
        }
    }
}

/// Slots that no iterator selects, and numbers of slices.
fn indices(func: &Function, op: Op, found: &mut Found) {
    let slot = |name| func.named_operand(op, name);
    let slots = match func.opcode(op) {
        Opcode::Copy => [slot("source_stage"), slot("dest_stage"), None],
        Opcode::AsyncDot => [slot("a_stage"), slot("b_stage"), slot("acc_stage")],
        Opcode::AsyncTiledTmaLoad | Opcode::AsyncTiledTmaStore => [slot("stage"), None, None],
        Opcode::ExtractSlice => [None; 3],
        _ => return,
    };
    for v in slots.into_iter().flatten() {
        if func.value_data(v).as_scalar().is_some() && Lin::of(func, v).as_constant() != Some(0) {
            let text = "a buffer without an iterator has one slot, which is number 0".to_owned();
            found.bad(Code::E0705, op, text);
        }
    }
    let (Some(number), Some(result)) = (func.named_operand(op, "number"), func.result(op)) else { return };
    let source = func.named_operand(op, "source").and_then(|v| func.value_data(v).dims()?.last().copied());
    let width = func.value_data(result).dims().and_then(|d| d.last().copied()).map_or(1, i64::from);
    let first = func.attr_ints(op, keys::OFFSETS).and_then(|o| o.last().copied()).unwrap_or(0);
    let inside = index_between(func, number).is_some_and(|(lo, hi)| {
        let end = hi.saturating_mul(width).saturating_add(first).saturating_add(width);
        lo >= 0 && end <= source.map_or(0, i64::from)
    });
    if !inside {
        found.bad(Code::E0705, op, "the number of a slice is not known to be inside its buffer".to_owned());
    }
}

/// Least and greatest value of an index that is a constant, or counts a loop of constant bounds.
pub(super) fn index_between(func: &Function, v: Value) -> Option<(i64, i64)> {
    let lin = Lin::of(func, v);
    if let Some(c) = lin.as_constant() {
        return Some((c, c));
    }
    let &[(counter, 1)] = lin.terms.as_slice() else { return None };
    let ValueDef::Param(b, 0) = func.value_def(counter) else { return None };
    let l = func.block_parent(b).filter(|&l| func.opcode(l) == Opcode::For)?;
    let bound = |name: &str| Lin::of(func, func.named_operand(l, name)?).as_constant();
    let (lo, hi, step) = (bound("lower")?, bound("upper")?, bound("step")?);
    let greatest = if hi > lo && step > 0 { lo + (hi - 1).saturating_sub(lo) / step * step } else { lo };
    Some((lo.saturating_add(lin.constant), greatest.saturating_add(lin.constant)))
}
