//! Where buffers and barriers lie.
//!
//! Shared memory, from a 1024-aligned base: tiles in web order, then what register ops of each agent take for themselves, then the full and empty barriers of each pipe
//! (8 bytes a slot), then the word that receives the tensor-memory base. Tensor memory: slots of a web side by side,
//! webs in order, the allocation a power of two of columns. With [`Sharing`], a web takes the first place that overlaps
//! only webs it may share with; with waits (the flag beside it), where that is beyond the end of memory, only webs that it may wait for as well.
//! Webs of one loop that take turns ([`Places`]) begin where the first of them does. Errors: E0602, E0603 with need, capacity and the largest
//! consumer. Cost: linear; with sharing webs².

use super::channels::{Pipe, PipeData};
use super::share::{Places, Sharing, at_place};
use crate::agents::Agent;
use crate::error::{Code, CodegenError, CodegenResult, Loc};
use crate::ir::{Function, Space};
use crate::isa::TargetIsa;
use crate::storage::webs::{Web, Webs};
use cranelift_entity::{PrimaryMap, SecondaryMap};
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

/// The result of the layout.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MemoryMap {
    /// By agent that has some.
    pub scratch: SmallVec<[Scratch; 2]>,
    /// First byte after everything.
    pub end: u32,
    /// Dynamic shared memory to ask for, alignment slack included.
    pub dynamic_smem: u32,
    /// Tensor-memory columns to allocate; 0 = none.
    pub tmem_columns: u32,
    /// Where the tensor-memory base is written.
    pub tmem_base_at: u32,
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
    sharing: Option<(&Sharing, bool)>,
    places: &Places,
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
    let own: u64 = scratch.iter().map(|s| u64::from(s.bytes.next_multiple_of(SCRATCH_ALIGN))).sum();
    let most = u64::from(smem_limit).saturating_sub(barriers + own + 2 * u64::from(BASE_ALIGN));
    let note = |list: &mut Vec<(Web, u64, u64)>, web: Web, at: u64, end: u64| {
        if sharing.is_some() {
            let n = list.partition_point(|p| p.1 <= at);
            list.insert(n, (web, at, end));
        }
    };
    // Of what lies in one place the first one has it, with the size and alignment of all.
    let extents: SecondaryMap<Web, (u64, u64)> = {
        let mut all = SecondaryMap::with_capacity(webs.webs.len());
        for (web, w) in webs.webs.iter() {
            let tensor = w.space == Space::Tmem;
            let size = u64::from(w.slots) * u64::from(if tensor { w.columns() } else { w.bytes() });
            let first = at_place(places, &web)[0];
            let (most, align): (u64, u64) = all[first];
            let own = if tensor { 1 } else { u64::from(w.alignment()) };
            all[first] = (most.max(size), align.max(own));
        }
        all
    };
    let mut smem = 0u64;
    let mut columns = 0u64;
    let mut largest = [(0u64, Loc::NONE); 2];
    for web in webs.webs.keys() {
        let w = &webs.webs[web];
        let loc = func.defining_op(w.root).map_or(Loc::NONE, |op| func.op_loc(op));
        let (need, align) = extents[web];
        let first = at_place(places, &web)[0];
        let tensor = w.space == Space::Tmem;
        let (end, most) = if tensor { (columns, u64::from(limits.tmem_columns)) } else { (smem, most) };
        let list = &mut placed[usize::from(tensor)];
        let at = match first == web {
            true => place(web, list, need, align, (end, most)),
            false => u64::from(webs.webs[first].at),
        };
        webs.webs[web].at = u32::try_from(at).unwrap_or(u32::MAX);
        if first != web {
            continue;
        }
        note(list, web, at, at + need);
        let end = end.max(at + need);
        if tensor {
            columns = end
        } else {
            smem = end
        }
        let largest = &mut largest[usize::from(tensor)];
        if need > largest.0 {
            *largest = (need, loc);
        }
    }
    if columns > u64::from(limits.tmem_columns) {
        return Err(CodegenError::new(
            Code::E0603,
            largest[1].1,
            format!("{columns} columns of tensor memory are needed, there are {}", limits.tmem_columns),
        ));
    }
    let mut scratch: SmallVec<[Scratch; 2]> = SmallVec::from_slice(scratch);
    for s in &mut scratch {
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
    let tmem_base_at = u32::try_from(at).unwrap_or(u32::MAX);
    if columns > 0 {
        at += 4;
    }
    let dynamic = if at == 0 { 0 } else { at.next_multiple_of(16) + u64::from(BASE_ALIGN) };
    if dynamic > u64::from(smem_limit) {
        return Err(CodegenError::new(
            Code::E0602,
            largest[0].1,
            format!("{dynamic} bytes of shared memory are needed, there are {smem_limit}"),
        ));
    }
    let alloc = if columns == 0 {
        0
    } else {
        columns.next_power_of_two().max(u64::from(limits.tmem_alloc_min_columns)) as u32
    };
    Ok(MemoryMap { scratch, end: at as u32, dynamic_smem: dynamic as u32, tmem_columns: alloc, tmem_base_at })
}
