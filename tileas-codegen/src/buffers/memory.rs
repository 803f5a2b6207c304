//! Where buffers and barriers lie.
//!
//! Shared memory, from a 1024-aligned base: tiles in web order, then what register ops of each agent take for themselves, then the full and empty barriers of each pipe
//! (8 bytes a slot), those of turns, then the word that receives the tensor-memory base. What each instance of an agent has for itself ([`Own`]) lies behind the other tiles, as often as there are instances. Tensor memory: slots of a web side by side,
//! webs in order, the allocation a power of two of columns; where those do not suffice, accumulators of 64 rows lie beside each other in the lanes of
//! their columns ([`in_lanes`]). With [`Sharing`], a web takes the first place that overlaps
//! only webs it may share with; with waits (the flag beside it), where that is beyond the end of memory, only webs that it may wait for as well.
//! Webs of one loop that take turns ([`Places`]) begin where the first of them does. Errors: E0602, E0603 with need, capacity and the largest
//! consumer. Cost: linear; with sharing webs².

use super::channels::{Pipe, PipeData};
use super::share::{Places, Sharing, at_place};
use crate::agents::{Agent, AgentPlan};
use crate::error::{Code, CodegenError, CodegenResult, Loc};
use crate::ir::{Function, Layout, Op, Opcode, Space};
use crate::isa::TargetIsa;
use crate::storage::webs::{Web, WebData, Webs};
use cranelift_entity::{EntitySet, PrimaryMap};
use smallvec::SmallVec;

/// Bytes of one barrier.
pub const BARRIER_BYTES: u32 = 8;
/// Alignment of what register ops take for themselves: all banks.
const SCRATCH_ALIGN: u32 = 128;
/// Slack that aligns the base of dynamic shared memory.
pub const BASE_ALIGN: u32 = 1024;

/// What register ops of an agent take for themselves; see [`crate::storage::scratch`].
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Scratch {
    /// Whose.
    pub agent: Agent,
    /// Bytes.
    pub bytes: u32,
    /// Byte offset.
    pub at: u32,
    /// The named barrier of the agent's warps.
    pub named: u32,
}

/// What each instance of an agent has for itself; see `agents::turns`.
pub struct Own {
    /// Instances.
    pub instances: u32,
    /// Whose they are.
    pub agent: Agent,
    /// Webs that no other agent touches.
    pub webs: EntitySet<Web>,
}

impl Own {
    /// Of the agent that has instances, if one has.
    pub fn of(plan: &AgentPlan, webs: &Webs, pipes: &PrimaryMap<Pipe, PipeData>) -> Option<Own> {
        let agent = plan.dealt()?;
        let mut own = EntitySet::new();
        own.extend(webs.webs.keys());
        for p in pipes.values().filter(|p| !p.is_own(agent)) {
            p.webs.iter().for_each(|&w| _ = own.remove(w));
        }
        Some(Own { instances: plan.agents[agent].instances, agent, webs: own })
    }
}

/// The result of the layout.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MemoryMap {
    /// By agent that has some.
    pub scratch: SmallVec<[Scratch; 2]>,
    /// Bytes from what one instance of an agent has for itself to what the next one has.
    pub stride: u32,
    /// First of the barriers by which instances take turns.
    pub turn_at: u32,
    /// First byte after everything.
    pub end: u32,
    /// Dynamic shared memory to ask for, alignment slack included.
    pub dynamic_smem: u32,
    /// Tensor-memory columns to allocate; 0 = none.
    pub tmem_columns: u32,
    /// Where the tensor-memory base is written.
    pub tmem_base_at: u32,
}

/// Which webs lie in the same memory.
#[derive(Copy, Clone)]
pub struct Together<'a> {
    /// Those that take turns in a loop.
    pub places: &'a Places,
    /// Those that each instance of an agent has.
    pub own: Option<&'a Own>,
    /// Those of which one is dead before the other, if that is made use of; and whether one may wait for another.
    pub sharing: Option<(&'a Sharing, bool)>,
}

/// Lays out memory, filling `at` of webs and the barrier offsets of pipes.
///
/// # Errors
/// E0602 or E0603 when a limit is exceeded.
pub fn lay_out(
    func: &Function,
    isa: &dyn TargetIsa,
    smem_limit: u32,
    webs: &mut Webs,
    pipes: &mut PrimaryMap<Pipe, PipeData>,
    scratch: &[Scratch],
    Together { places, own, sharing }: Together<'_>,
) -> CodegenResult<MemoryMap> {
    // What was placed: (web, first, end), per space, by where it begins; known where webs may share.
    let mut placed: [Vec<(Web, u64, u64)>; 2] = [Vec::new(), Vec::new()];
    // The first place behind what may not be shared.
    let place =
        |web: Web, list: &[(Web, u64, u64)], size: u64, align: u64, (end, limit): (u64, u64)| -> u64 {
            let Some((sharing, waits)) = sharing else { return end.next_multiple_of(align) };
            let first = |overlaps: &dyn Fn(Web) -> bool| {
                let mut at = 0;
                for p in list.iter().filter(|p| !overlaps(p.0)) {
                    if at + size <= p.1 {
                        break;
                    }
                    at = at.max(p.2.next_multiple_of(align));
                }
                at
            };
            // Whatever lies in either place.
            let all = |w: Web, may: &dyn Fn(Web, Web) -> bool| {
                at_place(places, &web).iter().all(|&a| at_place(places, &w).iter().all(|&b| may(a, b)))
            };
            let at = first(&|w| all(w, &|a, b| sharing.may_share(a, b)));
            if !waits || at + size <= limit {
                return at;
            }
            first(&|w| all(w, &|a, b| sharing.may_share(a, b) || sharing.may_wait(a, b)))
        };
    let limits = &isa.machine().limits;
    let barriers: u64 = pipes.values().map(|p| 2 * u64::from(p.depth) * u64::from(BARRIER_BYTES)).sum();
    let taken: u64 = scratch.iter().map(|s| u64::from(s.bytes.next_multiple_of(SCRATCH_ALIGN))).sum();
    let most = u64::from(smem_limit).saturating_sub(barriers + taken + 2 * u64::from(BASE_ALIGN));
    let note = |list: &mut Vec<(Web, u64, u64)>, web: Web, at: u64, end: u64| {
        if sharing.is_some() {
            let n = list.partition_point(|p| p.1 <= at);
            list.insert(n, (web, at, end));
        }
    };
    // Size and alignment of a place.
    let extent = |webs: &Webs, web: Web| {
        at_place(places, &web).iter().map(|&w| &webs.webs[w]).fold((0, 1), |(size, align), w| {
            let (slot, own) = match w.space {
                Space::Tmem => (w.columns(), 1),
                _ => (w.bytes(), w.alignment()),
            };
            (u64::max(size, u64::from(w.slots) * u64::from(slot)), u64::max(align, u64::from(own)))
        })
    };
    let mut smem = 0u64;
    let mut columns = 0u64;
    let mut largest = [(0u64, Loc::NONE); 2];
    let is_own = |web: Web| own.is_some_and(|o| o.webs.contains(web));
    webs.webs.values_mut().for_each(|w| w.lane = None);
    for web in webs.webs.keys().filter(|&web| !is_own(web)) {
        let first = at_place(places, &web)[0];
        if first != web {
            webs.webs[web].at = webs.webs[first].at;
            continue;
        }
        let (need, align) = extent(webs, web);
        let w = &mut webs.webs[web];
        let (n, ends) = match w.space {
            Space::Tmem => (1, (&mut columns, u64::from(limits.tmem_columns))),
            _ => (0, (&mut smem, most)),
        };
        let at = place(web, &placed[n], need, align, (*ends.0, ends.1));
        w.at = u32::try_from(at).unwrap_or(u32::MAX);
        note(&mut placed[n], web, at, at + need);
        *ends.0 = (at + need).max(*ends.0);
        if need > largest[n].0 {
            largest[n] = (need, func.defining_op(w.root).map_or(Loc::NONE, |op| func.op_loc(op)));
        }
    }
    if columns > u64::from(limits.tmem_columns) && sharing.is_some() {
        columns = in_lanes(func, webs).unwrap_or(columns);
    }
    if columns > u64::from(limits.tmem_columns) {
        return Err(CodegenError::new(
            Code::E0603,
            largest[1].1,
            format!("{columns} columns of tensor memory are needed, there are {}", limits.tmem_columns),
        ));
    }
    let mut scratch: SmallVec<[Scratch; 2]> = SmallVec::from_slice(scratch);
    // What instances have for themselves lies together, once for each.
    let mut stride = 0;
    if let Some(o) = own {
        let first = smem.next_multiple_of(u64::from(BASE_ALIGN));
        let mut at = first;
        for (_, w) in webs.webs.iter_mut().filter(|(web, _)| is_own(*web)) {
            at = at.next_multiple_of(u64::from(w.alignment()));
            w.at = u32::try_from(at).unwrap_or(u32::MAX);
            let need = u64::from(w.slots) * u64::from(w.bytes());
            at += need;
            if need > largest[0].0 {
                largest[0] = (need, func.defining_op(w.root).map_or(Loc::NONE, |op| func.op_loc(op)));
            }
        }
        for s in scratch.iter_mut().filter(|s| s.agent == o.agent) {
            at = at.next_multiple_of(u64::from(SCRATCH_ALIGN));
            s.at = u32::try_from(at).unwrap_or(u32::MAX);
            at += u64::from(s.bytes);
        }
        stride = (at - first).next_multiple_of(u64::from(BASE_ALIGN));
        smem = first + stride * u64::from(o.instances);
    }
    for s in scratch.iter_mut().filter(|s| own.is_none_or(|o| o.agent != s.agent)) {
        let at = smem.next_multiple_of(u64::from(SCRATCH_ALIGN));
        s.at = u32::try_from(at).unwrap_or(u32::MAX);
        smem = at + u64::from(s.bytes);
    }
    let mut at = smem.next_multiple_of(u64::from(BARRIER_BYTES));
    for p in pipes.values_mut() {
        if p.named.is_some() {
            continue;
        }
        let bytes = u64::from(p.depth) * u64::from(BARRIER_BYTES);
        p.full_at = u32::try_from(at).unwrap_or(u32::MAX);
        at += bytes;
        p.empty_at = u32::try_from(at).unwrap_or(u32::MAX);
        if p.has_empty {
            at += bytes;
        }
    }
    let turn_at = u32::try_from(at).unwrap_or(u32::MAX);
    at += own.map_or(0, |o| u64::from(o.instances * BARRIER_BYTES));
    let tmem_base_at = u32::try_from(at).unwrap_or(u32::MAX);
    if columns > 0 {
        at += 4;
    }
    let dynamic = if at == 0 { 0 } else { at.next_multiple_of(16) + u64::from(BASE_ALIGN) };
    if dynamic > u64::from(smem_limit) {
        let text = format!("{dynamic} bytes of shared memory are needed, there are {smem_limit}");
        let (bytes, at) = largest[0];
        return Err(match loop_with_most(func, webs).filter(|l| l.0 > bytes) {
            None => CodegenError::new(Code::E0602, at, text),
            Some((all, of_loop)) => {
                CodegenError::new(Code::E0602, of_loop, format!("{text}; the tiles of this loop take {all}"))
                    .note(at, format!("the largest one takes {bytes}"))
            }
        });
    }
    let alloc = if columns == 0 {
        0
    } else {
        columns.next_power_of_two().max(u64::from(limits.tmem_alloc_min_columns)) as u32
    };
    Ok(MemoryMap {
        scratch,
        stride: stride as u32,
        turn_at,
        end: at as u32,
        dynamic_smem: dynamic as u32,
        tmem_columns: alloc,
        tmem_base_at,
    })
}

/// The bytes of the loop whose tiles take most, and where it is.
#[cold]
fn loop_with_most(func: &Function, webs: &Webs) -> Option<(u64, Loc)> {
    let mut loops: SmallVec<[(Op, u64); 4]> = SmallVec::new();
    for w in webs.webs.values().filter(|w| w.space != Space::Tmem) {
        let Some(l) = func.block_parent(w.home).filter(|&l| func.opcode(l) == Opcode::For) else { continue };
        let bytes = u64::from(w.slots) * u64::from(w.bytes());
        match loops.iter_mut().find(|x| x.0 == l) {
            Some(x) => x.1 += bytes,
            None => loops.push((l, bytes)),
        }
    }
    loops.iter().max_by_key(|x| x.1).map(|&(l, bytes)| (bytes, func.op_loc(l)))
}

/// Puts accumulators of 64 rows, which have 16 of the 32 lanes of each warp, beside each other in the same columns, behind those that have columns for
/// themselves; the columns that all take. `None`: there are no two. Source: PTX ISA, tcgen05 matrix fragments, data path layout F.
fn in_lanes(func: &Function, webs: &mut Webs) -> Option<u64> {
    let tensor = |w: &WebData| w.space == Space::Tmem;
    let half: SmallVec<[(Web, bool); 8]> =
        webs.webs.iter().filter(|(_, w)| tensor(w)).map(|(web, w)| (web, keeps_to_lanes(func, w))).collect();
    if half.iter().filter(|x| x.1).count() < 2 {
        return None;
    }
    let mut ends = [0u64; 2];
    for divided in [false, true] {
        for &(web, _) in half.iter().filter(|x| x.1 == divided) {
            let w = &mut webs.webs[web];
            let upper = usize::from(divided && ends[1] < ends[0]);
            w.at = u32::try_from(ends[upper]).unwrap_or(u32::MAX);
            w.lane = divided.then_some(16 * upper as u32);
            ends[upper] += u64::from(w.slots) * u64::from(w.columns());
            if !divided {
                ends[1] = ends[0];
            }
        }
    }
    Some(ends[0].max(ends[1]))
}

/// Whether all that reads or writes accumulators leaves the lanes alone that they have no rows in: products do, and moves of fragments.
fn keeps_to_lanes(func: &Function, w: &WebData) -> bool {
    let fragments = |op| {
        let mut ends = [func.result(op), func.named_operand(op, "source")].into_iter().flatten();
        ends.any(|v| matches!(func.value_data(v).layout(), Some(Layout::Bits(_))))
    };
    w.layout == Layout::Tmem64
        && w.elem.bits() == 32
        && w.ops.iter().all(|&op| match func.opcode(op) {
            Opcode::Dot | Opcode::AsyncDot => true,
            Opcode::Copy => fragments(op),
            _ => false,
        })
}
