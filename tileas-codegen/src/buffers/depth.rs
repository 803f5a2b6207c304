//! Ring depths: rule R3 (what the schedule needs) and rule R4 (what hides real latency), within memory.
//!
//! R3: `D = max(1, ceil((start(c) − start(p) + hold(c)) / II))` over the consumers of the home loop; 1 in serial homes.
//! R4: repeatedly add a slot where `D·T − L − H` is smallest and negative: L the producer's real latency, H the real
//! cycles the slowest consumer holds the slot, T the real cycles of one execution of the home. Source: architecture page.

use super::channels::{Bundle, Full, ancestor_in};
use super::webs::{WebId, Webs};
use crate::agents::{Agent, AgentPlan};
use crate::error::{Code, CodegenError, CodegenResult};
use crate::ir::{Block, Function, Op, Opcode, Space, TypeData};
use crate::isa::{OpClass, TargetIsa, Work};
use crate::schedule::ScheduleAnalysis;
use cranelift_entity::EntityRef;

/// Most slots rule R4 gives a ring.
const MAX_DEPTH: u32 = 8;
/// Trips assumed for a loop whose trip count is not known.
const ASSUMED_TRIPS: u64 = 16;

/// Class of an op for the real-cycle tables.
pub fn real_class(f: &Function, op: Op) -> OpClass {
    let code = f.opcode(op);
    if code == Opcode::Copy {
        let space = |v| f.value_data(v).space();
        let src = f.named_operand(op, "source").and_then(space);
        let dst = f.named_operand(op, "dest").and_then(space).or_else(|| f.result(op).and_then(space));
        return match (src, dst) {
            (Some(Space::Tmem), _) => OpClass::CopyTmemToRmem,
            (Some(Space::Smem), Some(Space::Tmem)) => OpClass::CopySmemToTmem,
            (Some(Space::Smem), _) => OpClass::CopySmemToRmem,
            (_, Some(Space::Tmem)) => OpClass::CopyRmemToTmem,
            _ => OpClass::CopyRmemToSmem,
        };
    }
    let name = code.def().class;
    OpClass::ALL.iter().copied().find(|c| format!("{c:?}") == name).unwrap_or(OpClass::Uniform)
}

/// Size of an op's work.
pub fn work(f: &Function, op: Op) -> Work {
    let data = |v| f.value_data(v);
    let tile = f
        .results(op)
        .iter()
        .chain(f.operands(op))
        .map(|&v| data(v))
        .filter(|d| d.is_tile())
        .max_by_key(|d| d.num_bytes());
    let (bytes, elements) =
        tile.map_or((0, 0), |d| (d.num_bytes().unwrap_or(0), d.num_elements().unwrap_or(0)));
    let mut w = Work { bytes: bytes as _, elements: elements as _, macs: 0 };
    if f.opcode(op) == Opcode::AsyncDot {
        let n = |name: &str| f.named_operand(op, name).and_then(|v| data(v).num_elements());
        if let (Some(a), Some(acc), Some(TypeData::Tile { dims, .. })) =
            (n("a"), n("acc"), f.named_operand(op, "acc").map(data))
        {
            let m = u64::from(*dims.first().unwrap_or(&1)).max(1);
            w.macs = (acc * (a / m)) as _;
            w.bytes = (a * 2) as _;
        }
    }
    w
}

/// Real cycles of one execution of a block: its busiest agent's.
fn block_cycles(f: &Function, plan: &AgentPlan, isa: &dyn TargetIsa, block: Block) -> u64 {
    let mut busy = vec![0u64; plan.agents.len()];
    add_busy(f, plan, isa, block, 1, &mut busy);
    busy.into_iter().max().unwrap_or(0).max(1)
}

fn add_busy(f: &Function, plan: &AgentPlan, isa: &dyn TargetIsa, block: Block, times: u64, busy: &mut [u64]) {
    for op in f.block_ops(block) {
        if let Some(a) = plan.op_agent[op].expand() {
            busy[a.index()] +=
                times * u64::from(isa.machine().real_occupancy(real_class(f, op), &work(f, op)));
        }
        let inner = if f.opcode(op) == Opcode::For { times.saturating_mul(trips(f, op)) } else { times };
        for &r in f.regions(op) {
            add_busy(f, plan, isa, f.region_block(r), inner, busy);
        }
    }
}

/// Trip count of a loop if constant, else the assumed one.
fn trips(f: &Function, op: Op) -> u64 {
    let c = |n: usize| f.operands(op).get(n).and_then(|&v| f.constant_value(v));
    match (c(0), c(1), c(2)) {
        (Some(lo), Some(hi), Some(st)) if st > 0.0 => {
            (((hi - lo) / st).ceil().max(0.0) as u64).clamp(1, 1 << 20)
        }
        _ => ASSUMED_TRIPS,
    }
}

fn loop_of(f: &Function, home: Block) -> Option<Op> {
    f.block_parent(home).filter(|&op| f.opcode(op) == Opcode::For)
}

struct Rates {
    latency: u64,
    hold: u64,
    period: u64,
}

fn rates(f: &Function, plan: &AgentPlan, isa: &dyn TargetIsa, b: &Bundle) -> Rates {
    let m = isa.machine();
    let occ = |op: Op| u64::from(m.real_occupancy(real_class(f, op), &work(f, op)));
    let lat = |op: Op| u64::from(m.real_latency(real_class(f, op), &work(f, op)));
    let scaled = |op: Op, n: u64| {
        // An op nested in a loop of the home counts once per trip.
        let mut times = 1;
        let mut at = f.op_block(op);
        while let Some(block) = at {
            if block == b.home {
                break;
            }
            match f.block_parent(block) {
                Some(p) => {
                    if f.opcode(p) == Opcode::For {
                        times *= trips(f, p);
                    }
                    at = f.op_block(p);
                }
                None => break,
            }
        }
        n * times
    };
    let latency = if b.full == Full::Tx {
        b.produce_ops.iter().map(|&op| lat(op)).max().unwrap_or(0)
    } else {
        b.produce_ops.iter().map(|&op| scaled(op, occ(op))).sum()
    };
    let hold = b
        .consumers
        .iter()
        .map(|c| {
            c.ops
                .iter()
                .map(|&op| scaled(op, occ(op)) + if c.free == super::Free::Commit { 0 } else { lat(op) })
                .sum()
        })
        .max()
        .unwrap_or(0);
    Rates { latency, hold, period: block_cycles(f, plan, isa, b.home) }
}

/// Footprint duration of an op in the machine model: how long it reads a slot.
fn hold(f: &Function, isa: &dyn TargetIsa, op: Op) -> i64 {
    i64::from(isa.machine().duration(real_class(f, op)))
}

/// Sets the depth of every bundle and the slots of every web.
///
/// # Errors
/// `E0605` where the least depths do not fit shared memory, `E0606` tensor memory; located at the op that asks.
pub fn assign(
    f: &Function,
    plan: &AgentPlan,
    analysis: &ScheduleAnalysis,
    isa: &dyn TargetIsa,
    webs: &Webs,
    bundles: &mut [Bundle],
) -> CodegenResult<()> {
    for b in bundles.iter_mut() {
        b.need = 1;
        let schedule = loop_of(f, b.home).and_then(|l| analysis.loops[l].as_deref());
        if let Some(s) = schedule
            && !s.serial
            && s.ii > 0
        {
            for c in &b.consumers {
                for &cop in &c.ops {
                    let Some(cop) = ancestor_in(f, b.home, cop) else { continue };
                    for &p in &b.produce_ops {
                        let Some(p) = ancestor_in(f, b.home, p) else { continue };
                        let span = i64::from(s.start[cop]) - i64::from(s.start[p]) + hold(f, isa, cop);
                        let d = (span.max(0) as u64).div_ceil(u64::from(s.ii)) as u32;
                        b.need = b.need.max(d);
                    }
                }
            }
        }
        b.depth = if b.once { 1 } else { b.need };
        b.reason = if b.once { "used once".into() } else { format!("R3 needs {}", b.need) };
    }
    // Webs of several bundles advance together: the same depth.
    level(bundles);
    if !fits(f, isa, webs, bundles) {
        // The schedule's depths do not fit: fall back to the least that is free of deadlock in program order.
        for b in bundles.iter_mut().filter(|b| b.depth > 1) {
            b.reason = format!("R3 needs {}, memory allows 1", b.depth);
            b.depth = 1;
        }
        if let Some(e) = overflow(f, isa, webs, bundles) {
            return Err(e);
        }
    }
    let rates: Vec<Rates> = bundles.iter().map(|b| rates(f, plan, isa, b)).collect();
    let mut frozen = vec![false; bundles.len()];
    loop {
        let lack = |i: usize, b: &Bundle| {
            let r = &rates[i];
            (u64::from(b.depth) * r.period) as i64 - r.latency as i64 - r.hold as i64
        };
        let next = bundles
            .iter()
            .enumerate()
            .filter(|(i, b)| !frozen[*i] && !b.once && b.depth < MAX_DEPTH && lack(*i, b) < 0)
            .min_by_key(|(i, b)| (lack(*i, b), *i))
            .map(|(i, _)| i);
        let Some(i) = next else { break };
        let before: Vec<u32> = bundles.iter().map(|b| b.depth).collect();
        bundles[i].depth += 1;
        level(bundles);
        if !fits(f, isa, webs, bundles) {
            for (b, d) in bundles.iter_mut().zip(before) {
                b.depth = d;
            }
            frozen[i] = true;
        }
    }
    for (i, b) in bundles.iter_mut().enumerate() {
        if b.once {
            continue;
        }
        let r = &rates[i];
        b.reason = format!(
            "{}; R4: latency {} + hold {} against {} cycles per use{}",
            b.reason,
            r.latency,
            r.hold,
            r.period,
            if frozen[i] { ", memory is full" } else { "" }
        );
    }
    Ok(())
}

/// Gives bundles that share a web the larger depth.
fn level(bundles: &mut [Bundle]) {
    loop {
        let mut changed = false;
        for i in 0..bundles.len() {
            for j in 0..bundles.len() {
                let shared = bundles[i].webs.iter().any(|w| bundles[j].webs.contains(w));
                if shared && bundles[i].depth < bundles[j].depth {
                    bundles[i].depth = bundles[j].depth;
                    changed = true;
                }
            }
        }
        if !changed {
            return;
        }
    }
}

/// Slots of a web under the current depths.
pub fn slots(bundles: &[Bundle], w: WebId) -> u32 {
    bundles.iter().filter(|b| b.webs.contains(&w)).map(|b| b.depth).max().unwrap_or(1)
}

/// Bytes and columns needed under the current depths.
pub fn demand(webs: &Webs, bundles: &[Bundle]) -> (u64, u64) {
    let (mut bytes, mut columns) = (0u64, 0u64);
    for (id, w) in webs.iter() {
        let n = u64::from(slots(bundles, id));
        match w.space {
            Space::Smem => bytes = bytes.next_multiple_of(1024) + n * u64::from(w.slot_bytes()),
            Space::Tmem => columns += n * u64::from(w.cols),
            _ => {}
        }
    }
    let barriers: u64 = bundles.iter().filter(|b| b.named.is_none()).map(|b| u64::from(b.depth) * 16).sum();
    (bytes.next_multiple_of(8) + barriers + 4 + 1024 + 16, columns)
}

fn fits(f: &Function, isa: &dyn TargetIsa, webs: &Webs, bundles: &[Bundle]) -> bool {
    overflow(f, isa, webs, bundles).is_none()
}

fn overflow(f: &Function, isa: &dyn TargetIsa, webs: &Webs, bundles: &[Bundle]) -> Option<CodegenError> {
    let (bytes, columns) = demand(webs, bundles);
    let worst = |space: Space| {
        let w = webs.iter().filter(|(_, w)| w.space == space).max_by_key(|(id, w)| {
            u64::from(slots(bundles, *id))
                * if space == Space::Smem { u64::from(w.slot_bytes()) } else { u64::from(w.cols) }
        });
        w.and_then(|(_, w)| w.op).map_or(f.loc, |op| f.op_loc(op))
    };
    let cap = u64::from(isa.smem_bytes());
    if bytes > cap {
        let m = format!(
            "the kernel needs {bytes} bytes of shared memory, the target has {cap}; this is the largest part"
        );
        return Some(CodegenError::new(Code::E0605, worst(Space::Smem), m));
    }
    let cols = u64::from(isa.machine().limits.tmem_columns);
    if columns > cols {
        let m = format!(
            "the kernel needs {columns} columns of tensor memory, the target has {cols}; this is the largest part"
        );
        return Some(CodegenError::new(Code::E0606, worst(Space::Tmem), m));
    }
    None
}

/// The agent that runs an op, for messages.
pub fn agent_of(plan: &AgentPlan, op: Op) -> Option<Agent> {
    plan.op_agent[op].expand()
}
