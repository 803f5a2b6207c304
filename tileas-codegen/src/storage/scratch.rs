//! Shared memory that register ops take for themselves while they run.
//!
//! In: an op of the placed function and the warps of its agent. Out: how a tile gets from one register layout to another
//! ([`conversion`]), which threads a reduction has to ask ([`Reduction`]), and the bytes that either needs between threads of different warps.
//! Planning here and lowering ask the same functions, so that there is as much memory as is used.
//!
//! An agent has one such place for all its ops, as they run one after the other: between two of them stands a barrier of its warps.

use crate::ir::layouts::register_map;
use crate::ir::{Function, Op, Opcode, Scalar, Value, keys};
use crate::layout::gf2::Columns;
use crate::layout::{Axes, LinearMap, Means, Plan};
use crate::plan::{Agent, AgentPlan};
use rustc_hash::FxHashMap;

/// log2 of the most bytes that a conversion takes at once; larger tiles go in rounds, where they can.
const ROOM: u32 = 15;
/// log2 of the most bytes that one takes where they cannot.
pub const MOST_ROOM: u32 = 17;

/// A conversion between register layouts. Elements of 64 bits are converted as their halves, truth values as words.
#[derive(Clone, Debug)]
pub struct Conversion {
    /// Where elements are.
    pub source: LinearMap,
    /// Where they are wanted.
    pub result: LinearMap,
    /// Width and memory.
    pub means: Means,
    /// How they get there.
    pub plan: Plan,
}

impl Conversion {
    /// The cheapest way for elements of that type. `None` where there is none.
    pub fn find(source: &LinearMap, result: &LinearMap, elem: Scalar) -> Option<Conversion> {
        let width = match elem.bits() {
            8 => 3,
            16 => 4,
            _ => 5,
        };
        let (source, result) = match elem.bits() {
            64 => (source.halves()?, result.halves()?),
            _ => (*source, *result),
        };
        (ROOM..=MOST_ROOM).find_map(|room| {
            let means = Means { width, room: Some(room), matrices: true };
            let plan = Plan::find(&source, &result, means)?;
            Some(Conversion { source, result, means, plan })
        })
    }

    /// Bytes of shared memory.
    fn bytes(&self) -> u32 {
        match &self.plan {
            Plan::Trip(t) => (1 << (t.order.len() as u32 - t.rounds)) << (self.means.width - 3),
            Plan::Moves(_) | Plan::Shuffle(_) => 0,
        }
    }
}

/// Conversions that were found, so that each is searched for once: copies of an op ask for the same one.
#[derive(Clone, Debug, Default)]
pub struct Conversions {
    known: FxHashMap<(LinearMap, LinearMap, Scalar), Option<Conversion>>,
}

impl Conversions {
    /// As [`Conversion::find`].
    pub fn find(&mut self, source: &LinearMap, result: &LinearMap, elem: Scalar) -> Option<&Conversion> {
        let find = || Conversion::find(source, result, elem);
        self.known.entry((*source, *result, elem)).or_insert_with(find).as_ref()
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.known.clear();
    }
}

/// The register map of a value in an agent of that many warps.
fn map_of(func: &Function, v: Value, warps: u32) -> Option<LinearMap> {
    let data = func.value_data(v);
    register_map(data.layout()?, data.dims()?, warps)
}

/// The conversion that an op asks for.
fn conversion<'c>(
    func: &Function,
    op: Op,
    warps: u32,
    conversions: &'c mut Conversions,
) -> Option<&'c Conversion> {
    let (source, result) = (func.named_operand(op, "source")?, func.result(op)?);
    let elem = func.value_data(result).elem()?;
    conversions.find(&map_of(func, source, warps)?, &map_of(func, result, warps)?, elem)
}

/// Which bits of the place of an element a reduction along an axis combines. Places that hold copies take no part.
#[derive(Clone, Debug)]
pub struct Reduction {
    /// Where the result is when all that take part have it.
    pub result: LinearMap,
    /// Bits of lanes.
    pub lanes: u32,
    /// Bits of warps.
    pub warps: u32,
    /// Bits of warps that hold copies of the source.
    pub copies: u32,
}

impl Reduction {
    /// The reduction of a tile in that layout.
    pub fn along(source: &LinearMap, axes: &Axes, axis: usize) -> Reduction {
        let mask = axes.mask(axis);
        let bits = |columns: &[u32]| {
            columns.iter().enumerate().filter(|(_, c)| *c & mask != 0).fold(0, |all, (k, _)| all | 1 << k)
        };
        Reduction {
            result: source.slice(axes, axis).compact(),
            lanes: bits(source.lane()),
            warps: bits(source.warp()),
            copies: source.replicas().warps & !bits(source.warp()),
        }
    }

    /// Warps that hold a part of one element of the result.
    pub fn contributors(&self) -> u32 {
        1 << self.warps.count_ones()
    }

    /// Bytes of shared memory, for parts of so many bytes.
    pub fn bytes(&self, elements: u32, part: u32) -> u32 {
        if self.warps == 0 { 0 } else { elements * self.contributors() * part }
    }
}

/// Bytes that a part of a sum takes: elements below 32 bits are combined in 32.
pub fn part_bytes(elem: Scalar) -> u32 {
    elem.bytes().max(4)
}

fn reduction(func: &Function, op: Op, warps: u32) -> Option<u32> {
    let (&source, &result) = (func.operands(op).first()?, func.results(op).first()?);
    let axis = usize::try_from(func.attr_int(op, keys::AXIS)?).ok()?;
    let axes = Axes::of(func.value_data(source).dims()?).filter(|a| axis < a.rank())?;
    let r = Reduction::along(&map_of(func, source, warps)?, &axes, axis);
    let elements = u32::try_from(func.value_data(result).num_elements().unwrap_or(1)).ok()?;
    let parts = func.results(op).iter().filter_map(|&v| func.value_data(v).elem());
    Some(parts.map(|e| r.bytes(elements, part_bytes(e)).next_multiple_of(16)).sum())
}

/// Elements whose value a scan hands from warp to warp for one bit of the axis: one of each row of the tile, and each block of the bits above.
/// By tile of the scan, and all of them, in bytes.
fn scan(func: &Function, op: Op, warps: u32) -> Option<u32> {
    let &source = func.operands(op).first()?;
    let axis = usize::try_from(func.attr_int(op, keys::AXIS)?).ok()?;
    let dims = func.value_data(source).dims()?;
    let axes = Axes::of(dims).filter(|a| axis < a.rank())?;
    let map = map_of(func, source, warps)?;
    let levels = scan_levels(&map, &axes, axis);
    if levels.is_empty() {
        return Some(0);
    }
    let elements: u32 = dims.iter().product();
    let parts = func.results(op).iter().filter_map(|&v| func.value_data(v).elem());
    // Of the blocks whose last elements are handed on the smallest are the most.
    let most = elements >> (levels.start - axes.low(axis) + 1);
    Some(parts.map(|e| most.saturating_mul(part_bytes(e)).next_multiple_of(16)).sum())
}

/// Whether threads that each find an element of an op's result for themselves may find different values, since others may
/// write it meanwhile.
pub fn is_found_anew(func: &Function, op: Op) -> bool {
    let Some(result) = func.result(op).filter(|&v| func.value_data(v).is_tile()) else { return false };
    match func.opcode(op) {
        Opcode::TiledLoad | Opcode::Gather => !func.is_weak(op),
        opcode => opcode.is_atomic() && func.ops().any(|o| func.operands(o).contains(&result)),
    }
}

/// Bytes for the elements of such a result, where warps hold copies: a row of its threads for each word of a thread.
pub fn copies_bytes(func: &Function, op: Op, warps: u32) -> u32 {
    let of = |v: Value| Some((map_of(func, v, warps)?, func.value_data(v).elem()?));
    let Some((map, elem)) = func.result(op).filter(|_| is_found_anew(func, op)).and_then(of) else {
        return 0;
    };
    let copies = map.replicas().warps;
    let threads = map.lane().len() as u32 + map.warp().len() as u32 - copies.count_ones();
    if copies == 0 { 0 } else { part_bytes(elem) << (map.register().len() as u32 + threads) }
}

/// The bits of an axis at which a scan asks other warps: from the lowest that tells warps apart.
pub fn scan_levels(map: &LinearMap, axes: &Axes, axis: usize) -> std::ops::Range<u32> {
    let mask = axes.mask(axis);
    let lowest = map.warp().iter().map(|c| c & mask).filter(|&c| c != 0).map(u32::trailing_zeros).min();
    let end = axes.low(axis) + axes.bits(axis);
    lowest.unwrap_or(end)..end
}

/// Bytes of shared memory that an op takes while it runs on that many warps: a power of two, as the tile is that stands for them.
fn bytes(func: &Function, op: Op, warps: u32, conversions: &mut Conversions) -> u32 {
    let bytes = match func.opcode(op) {
        Opcode::ConvertLayout => conversion(func, op, warps, conversions).map_or(0, Conversion::bytes),
        Opcode::Reduce | Opcode::Combine => reduction(func, op, warps).unwrap_or(0),
        Opcode::Scan => scan(func, op, warps).unwrap_or(0),
        _ if is_found_anew(func, op) => copies_bytes(func, op, warps),
        Opcode::Print => super::printing::parts(func, op).1,
        // An assertion waits for the thread that prints, for which there is a barrier where there is memory.
        Opcode::Assert if func.ops().any(|o| func.opcode(o) == Opcode::Print) => 4,
        _ => 0,
    };
    if bytes == 0 { 0 } else { bytes.next_power_of_two() }
}

/// What each op of a placed function takes that takes any, and whose it is, in program order.
pub fn all_bytes(func: &Function, plan: &AgentPlan) -> Vec<(Op, Agent, u32)> {
    let mut conversions = Conversions::default();
    let bytes = |op: Op| {
        let agent = plan.op_agent[op].expand()?;
        Some((op, agent, bytes(func, op, plan.agents[agent].warps, &mut conversions))).filter(|x| x.2 > 0)
    };
    func.ops().filter_map(bytes).collect()
}

/// By bit of a thread: lanes, then warps.
pub fn threads(map: &LinearMap) -> Columns {
    map.lane().iter().chain(map.warp()).copied().collect()
}
