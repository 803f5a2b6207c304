//! Machine-model numbers of placed ops: class, footprint, and real cycles of ops, regions and agents.
//!
//! A loop whose trip count is not a constant counts as [`ASSUMED_TRIPS`] trips. Cost: one walk per question.

use crate::error::{Code, CodegenError, CodegenResult};
use crate::ir::{Block, Function, Layout, Op, Opcode, Space, TypeData, Value};
use crate::isa::{OpClass, TargetIsa, Work};
use crate::layout::gf2::Span;
use crate::plan::{Agent, AgentKind, AgentPlan};
use crate::schedule::CycleModel;
use crate::storage::access::{self, Class};
use crate::storage::footprint::Footprint;
use cranelift_entity::EntityRef;
use smallvec::SmallVec;
use std::sync::LazyLock;

/// Cycles per agent.
type Busy = SmallVec<[u64; 8]>;

/// Trips assumed for a loop of unknown length.
pub const ASSUMED_TRIPS: u64 = 16;

/// The machine-model class of an op, by its row or by the spaces it moves between; that of index math for a copy without a
/// path, which `Footprint::of` refuses.
pub fn op_class(func: &Function, op: Op) -> OpClass {
    class_of(func, op).unwrap_or(OpClass::Uniform)
}

/// The class of an op, by its row or by the spaces it moves between.
///
/// # Errors
/// `E0221` for a copy between spaces that have no path.
pub fn class_of(func: &Function, op: Op) -> CodegenResult<OpClass> {
    match within_threads(func, op) {
        Some(bits) if bits < 32 => return Ok(OpClass::Cvt),
        Some(_) => return Ok(OpClass::Layout),
        None => {}
    }
    if let Some(class) = CLASSES[func.opcode(op) as usize] {
        let extreme =
            func.opcode(op) == Opcode::Reduce && func.attr_name(op, crate::ir::keys::MODE) != Some("add");
        return Ok(if extreme { OpClass::ReduceMinMax } else { class });
    }
    let space = |v: Option<Value>| {
        v.and_then(|v| func.value_data(v).space().or(func.value_data(v).as_scalar().map(|_| Space::Rmem)))
    };
    let from = space(func.named_operand(op, "source"));
    let to = space(func.named_operand(op, "dest").or(func.result(op)));
    Ok(match (from, to) {
        (Some(Space::Rmem), Some(Space::Smem)) => OpClass::CopyRmemToSmem,
        (Some(Space::Smem), Some(Space::Rmem)) => OpClass::CopySmemToRmem,
        (Some(Space::Smem), Some(Space::Tmem)) => OpClass::CopySmemToTmem,
        (Some(Space::Rmem), Some(Space::Tmem)) => OpClass::CopyRmemToTmem,
        (Some(Space::Tmem), Some(Space::Rmem)) => OpClass::CopyTmemToRmem,
        (Some(Space::Rmem), Some(Space::Rmem)) => OpClass::Layout,
        _ => {
            let name = |s: Option<Space>| s.map_or("no space", Space::name);
            let text = format!("no path for a copy from {} to {}", name(from), name(to));
            return Err(CodegenError::new(Code::E0221, func.op_loc(op), text));
        }
    })
}

/// Bits of an element of a tile that a conversion leaves in its threads: whole registers get other names alone, of bytes and halves words are made anew.
pub fn within_threads(func: &Function, op: Op) -> Option<u32> {
    if func.opcode(op) != Opcode::ConvertLayout {
        return None;
    }
    let map = |v: Option<Value>| match func.value_data(v?).layout()? {
        Layout::Bits(bits) => Some(bits.map()),
        _ => None,
    };
    let (from, to) = (map(func.named_operand(op, "source"))?, map(func.result(op))?);
    let alike = from.lane() == to.lane() && from.warp() == to.warp();
    let same = alike && Span::of(from.register()).contains_all(to.register());
    func.value_data(func.result(op)?).elem().filter(|_| same).map(|e| e.bits())
}

/// The class of each opcode, by the name that its row gives; none for copies, whose spaces say it.
static CLASSES: LazyLock<Vec<Option<OpClass>>> = LazyLock::new(|| {
    let named = |o: &Opcode| OpClass::ALL.iter().find(|c| format!("{c:?}") == o.def().class).copied();
    Opcode::ALL.iter().map(named).collect()
});

/// How much one execution of an op does.
pub fn work(func: &Function, op: Op) -> Work {
    if func.opcode(op) == Opcode::AsyncDot {
        let tile = |v: Value| func.value_data(v).is_tile().then(|| func.value_data(v));
        let dims = |n: &str| func.named_operand(op, n).and_then(tile).and_then(|t| t.dims());
        let elem = |n: &str| func.named_operand(op, n).and_then(tile).and_then(|t| t.elem());
        let shared = |t: &&TypeData| !matches!(t.space(), Some(Space::Rmem | Space::Tmem));
        let read = |n: &str| {
            let t = func.named_operand(op, n).and_then(tile).filter(shared);
            t.and_then(|t| t.num_bytes()).unwrap_or(0)
        };
        let acc = func.results(op).first().and_then(|&v| func.value_data(v).num_elements()).unwrap_or(0);
        let k = dims("a").map_or(0, |d| {
            let k = if func.has_attr(op, crate::ir::keys::TRANSPOSE_A) { d.first() } else { d.last() };
            u64::from(k.copied().unwrap_or(0))
        });
        // The unit takes as many bytes of operands in a clock, whatever their type.
        let bits = ["a", "b"].into_iter().filter_map(elem).map(|e| e.bits().max(8)).max().unwrap_or(16);
        let macs = (acc * k * u64::from(bits)).div_ceil(16);
        return Work { bytes: read("a") + read("b"), elements: acc, macs };
    }
    let mut most = Work { bytes: 0, elements: 0, macs: 0 };
    for values in [func.operands(op), func.results(op)] {
        for &v in values {
            if let TypeData::Tile { dims, elem, .. } = func.value_data(v) {
                let elements: u64 = dims.iter().map(|&d| u64::from(d)).product();
                most.elements = most.elements.max(elements);
                most.bytes = most.bytes.max((elements * u64::from(elem.bits())).div_ceil(8));
            }
        }
    }
    most
}

/// The constant trip count of a `for`, if its bounds are constants and nothing else ends it.
pub fn static_trips(func: &Function, op: Op) -> Option<u64> {
    if func.exit_of(op).is_some() {
        return None;
    }
    // One operand each, before all others.
    let [lo, hi, step, ..] = *func.operands(op) else { return None };
    let c = |v: Value| func.constant_value(v).map(|n| n as i64);
    let (lo, hi, step) = (c(lo)?, c(hi)?, c(step)?);
    if step <= 0 {
        return None;
    }
    Some(hi.checked_sub(lo)?.max(0) as u64).map(|n| n.div_ceil(step as u64))
}

/// Upper bound on how often a block runs per kernel; `None` if unknown.
pub fn executions(func: &Function, block: Block) -> Option<u64> {
    let mut n = 1u64;
    let mut b = block;
    while let Some(op) = func.block_parent(b) {
        if func.opcode(op) == Opcode::For {
            n = n.saturating_mul(static_trips(func, op)?);
        }
        b = func.op_block(op)?;
    }
    Some(n)
}

/// Real cycles that an agent is kept busy by one op and its regions.
pub fn busy(func: &Function, plan: &AgentPlan, isa: &dyn TargetIsa, agent: Agent, op: Op) -> u64 {
    let region = |n: usize| {
        func.op_block_at(op, n).map_or(0, |b| {
            func.block_ops(b).map(|o| busy(func, plan, isa, agent, o)).fold(0, u64::saturating_add)
        })
    };
    match func.opcode(op) {
        Opcode::For => region(0).saturating_mul(static_trips(func, op).unwrap_or(ASSUMED_TRIPS)),
        Opcode::If => region(0).max(region(1)),
        _ if plan.op_agent[op].expand() == Some(agent) => {
            u64::from(isa.machine().real_occupancy(op_class(func, op), &work(func, op)))
        }
        _ => 0,
    }
}

/// Real cycles of one execution of a block: its busiest agent's.
pub fn block_cycles(func: &Function, plan: &AgentPlan, isa: &dyn TargetIsa, block: Block) -> u64 {
    let mut sums = SmallVec::from_elem(0, plan.agents.len());
    add_busy(func, plan, isa, block, &mut sums);
    sums.into_iter().max().unwrap_or(0)
}

/// Adds what [`busy`] says of the ops of a block, for all agents at once.
fn add_busy(func: &Function, plan: &AgentPlan, isa: &dyn TargetIsa, block: Block, sums: &mut Busy) {
    for op in func.block_ops(block) {
        let region = |n: usize| {
            let mut inner: Busy = SmallVec::from_elem(0, plan.agents.len());
            func.op_block_at(op, n).into_iter().for_each(|b| add_busy(func, plan, isa, b, &mut inner));
            inner
        };
        match func.opcode(op) {
            Opcode::For => {
                let trips = static_trips(func, op).unwrap_or(ASSUMED_TRIPS);
                for (sum, n) in sums.iter_mut().zip(region(0)) {
                    *sum = sum.saturating_add(n.saturating_mul(trips));
                }
            }
            Opcode::If => {
                for ((sum, a), b) in sums.iter_mut().zip(region(0)).zip(region(1)) {
                    *sum = sum.saturating_add(a.max(b));
                }
            }
            _ => {
                if let Some(sum) = plan.op_agent[op].expand().and_then(|a| sums.get_mut(a.index())) {
                    let machine = isa.machine();
                    let cycles = machine.real_occupancy(op_class(func, op), &work(func, op));
                    *sum = sum.saturating_add(u64::from(cycles));
                }
            }
        }
    }
}

/// Real cycles from the start of a producer's op until its result may be read.
pub fn latency(func: &Function, plan: &AgentPlan, isa: &dyn TargetIsa, agent: Agent, op: Op) -> u64 {
    if func.regions(op).is_empty() {
        match access::class_of(func, plan, op) {
            // A store's slot is free when it has been read; a register copy is complete when it was issued.
            Class::Sync | Class::Group => {
                u64::from(isa.machine().real_occupancy(op_class(func, op), &work(func, op)))
            }
            _ => u64::from(isa.machine().real_latency(op_class(func, op), &work(func, op))),
        }
    } else {
        busy(func, plan, isa, agent, op)
    }
}

/// Cycles of a schedule for which an op keeps what it reads, in the model that the schedule was made in: those that the
/// scheduler reckoned with, see `Footprint::hold`.
pub fn hold(func: &Function, plan: &AgentPlan, isa: &dyn TargetIsa, model: CycleModel, op: Op) -> u32 {
    // What was scheduled has a footprint.
    Footprint::of(func, plan, isa.machine(), model, op).map_or(0, |f| f.hold())
}

/// Cycles of a schedule from the start of an op until a reader of its result may start.
pub fn ready(func: &Function, isa: &dyn TargetIsa, model: CycleModel, op: Op) -> u32 {
    let (machine, class) = (isa.machine(), op_class(func, op));
    match model {
        CycleModel::Slot => machine.latency(class),
        CycleModel::Real => machine.real_latency(class, &work(func, op)),
    }
}

/// Cycles of a schedule for which `u` keeps `v` off something that both occupy.
pub fn kept_off(
    func: &Function,
    plan: &AgentPlan,
    isa: &dyn TargetIsa,
    model: CycleModel,
    u: Op,
    v: Op,
) -> i64 {
    if !func.regions(u).is_empty() || !func.regions(v).is_empty() {
        return 0;
    }
    let machine = isa.machine();
    let (a, b) = (op_class(func, u), op_class(func, v));
    let mut kept = 0;
    match model {
        CycleModel::Slot => {
            for x in machine.uses(a) {
                for y in machine.uses(b).iter().filter(|y| y.slot == x.slot) {
                    kept = kept.max(i64::from(x.offset) + i64::from(x.duration) - i64::from(y.offset));
                }
            }
        }
        CycleModel::Real => {
            let (x, y) = (work(func, u), work(func, v));
            for one in machine.real_uses(a, &x).filter(|one| one.clocks > 0) {
                if machine.real_uses(b, &y).any(|o| o.unit == one.unit && o.clocks > 0) {
                    kept = kept.max(i64::from(one.clocks));
                }
            }
            let agent = |op: Op| plan.op_agent[op].expand().filter(|_| in_registers(plan, op));
            if agent(u).is_some() && agent(u) == agent(v) {
                kept = kept.max(i64::from(machine.real_occupancy(a, &x)));
            }
        }
    }
    kept
}

/// Whether an agent that computes in registers runs an op.
fn in_registers(plan: &AgentPlan, op: Op) -> bool {
    plan.op_agent[op].expand().is_some_and(|a| plan.agents[a].kind == AgentKind::Simt)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_names_a_class() {
        for &opcode in Opcode::ALL {
            let name = opcode.def().class;
            assert!(name == "by-space" || CLASSES[opcode as usize].is_some(), "{name}");
        }
    }
}
