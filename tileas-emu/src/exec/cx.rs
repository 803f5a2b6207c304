//! What an instruction sees: its warp, its CTA, global memory, the launch.

use super::{Trap, Wait, X};
use crate::decode::build::{Addr, PredSrc};
use crate::decode::{CLUSTER_WINDOW, Col, Inst, Kernel, LOCAL_WINDOW, PARAM_WINDOW, PCol, SHARED_WINDOW};
use crate::detect::clock::{Know, Own, Released};
use crate::detect::shadow::Epoch;
use crate::detect::{GlobalShadow, Who};
use crate::layout::tma_map::TensorMap;
use crate::mem::cta::Cta;
use crate::mem::global::Memory;
use crate::stats::{Counts, Place, Recorder};
use crate::trace::{Lane, Trace, TraceEvent};

/// All lanes.
pub const ALL: u32 = u32::MAX;

/// Lanes of a warp that are at the same instruction.
#[derive(Clone, Debug, Default)]
pub struct Frag {
    /// Next instruction.
    pub pc: u32,
    /// Its lanes.
    pub mask: u32,
    /// What it waits for.
    pub wait: Wait,
    /// What it is ordered after.
    pub know: Know,
    /// The loop in which it polls; only where statistics are kept.
    pub polling: Option<(u32, u32)>,
}

/// A warp.
#[derive(Clone, Debug, Default)]
pub struct Warp {
    /// Number in the CTA.
    pub id: u32,
    /// Register columns.
    pub regs: Vec<[u32; 32]>,
    /// Predicates as lane masks.
    pub preds: Vec<u32>,
    /// Lanes in which a column was written.
    pub defined: Vec<u32>,
    /// Lanes in which a predicate was written.
    pub pdefined: Vec<u32>,
    /// Lanes in which a column was computed from undefined tensor memory.
    pub taint: Vec<u32>,
    /// The same for predicates.
    pub ptaint: Vec<u32>,
    /// Whether anything was tainted since the start.
    pub any_taint: bool,
    /// Columns that asynchronous operations will write (1) or read (2).
    pub busy: Vec<u8>,
    /// Whether any column is busy.
    pub any_busy: bool,
    /// Diverged parts; never empty while the warp lives.
    pub frags: Vec<Frag>,
    /// Lanes whose carry flag (`CC.CF`) is set, and lanes that have written it.
    pub carry: (u32, u32),
    /// Lanes that have not exited.
    pub live: u32,
    /// Local memory, lane after lane.
    pub local: Vec<u8>,
    /// Per byte of local memory: whether it was written; empty without the detector.
    pub local_defined: Vec<bool>,
    /// Per byte of local memory: whether what was written was no value; empty before that happened.
    pub local_taint: Vec<bool>,
    /// Outstanding tcgen05.ld and .st.
    pub moves: Vec<crate::async_ops::tmem_move::Move>,
    /// cp.async groups committed, by lane.
    pub copy_groups: [u32; 32],
    /// wgmma state.
    pub wgmma: crate::async_ops::wgmma::Pipe,
    /// Phase of the `bar.red` the warp has arrived at.
    pub reducing: Option<u64>,
    /// Its arrivals at the barrier of the cluster.
    pub cluster: crate::sync::cluster::Arrived,
    /// Registers per thread after setmaxnreg.
    pub reg_cap: u32,
    /// The warp's clock at its last full synchronisation.
    pub sync_clock: u32,
    /// The warp's clock when some of its lanes last synchronised in any way.
    pub since: u32,
    /// Whether some of its lanes have passed an mbarrier without the others.
    pub waited_apart: bool,
    /// What it has executed; only where statistics are kept.
    pub counts: Counts,
}

/// What all CTAs of a launch share.
pub struct Env {
    /// Block shape.
    pub block: [u32; 3],
    /// Grid shape.
    pub grid: [u32; 3],
    /// Cluster shape.
    pub cluster: [u32; 3],
    /// Whether the kernel or the launch names clusters.
    pub explicit_cluster: bool,
    /// Parameter memory.
    pub params: Vec<u8>,
    /// Tensor maps by parameter offset.
    pub maps: Vec<(u32, TensorMap)>,
    /// Whether try_wait may fail without reason.
    pub spurious: bool,
    /// Most asynchronous operations of a CTA under way.
    pub max_in_flight: u32,
    /// Whether aligned instructions wait for diverged lanes instead of being faults.
    pub gather_aligned: bool,
}

/// What an instruction sees.
pub struct Cx<'a> {
    /// Its warp.
    pub w: &'a mut Warp,
    /// Number of its fragment in the warp.
    pub f: usize,
    /// Its CTA; the warp's own place there is empty meanwhile.
    pub cta: &'a mut Cta,
    /// The other CTAs.
    pub peers: Peers<'a>,
    /// Global memory.
    pub mem: &'a mut Memory,
    /// Shadow of global memory.
    pub gshadow: &'a mut GlobalShadow,
    /// The kernel.
    pub kernel: &'a Kernel,
    /// The instruction.
    pub inst: &'a Inst,
    /// Its number.
    pub pc: u32,
    /// The launch.
    pub env: &'a Env,
    /// Trace of the run.
    pub trace: &'a mut dyn Trace,
    /// Statistics, if they are kept.
    pub(crate) stats: Option<&'a mut Recorder>,
}

/// The resident CTAs beside one.
pub struct Peers<'a> {
    /// Those before it in the machine's list.
    pub before: &'a mut [Cta],
    /// Those behind it.
    pub after: &'a mut [Cta],
}

impl Peers<'_> {
    fn get(&mut self, cta: u32) -> Option<&mut Cta> {
        self.before.iter_mut().chain(&mut *self.after).find(|c| c.det.cta == cta)
    }

    /// A CTA (number plus one) of the cluster.
    pub fn member(&mut self, cta: u32) -> X<&mut Cta> {
        self.get(cta).ok_or_else(|| {
            Trap::new("exit.cluster", format!("shared memory of CTA {}, which has ended", cta - 1))
        })
    }

    /// The CTA of `own`'s cluster in whose shared memory an offset of the shared window lies, and the offset there.
    pub fn at<'b>(&'b mut self, own: &'b mut Cta, address: u32) -> X<(&'b mut Cta, u32)> {
        match rank_of(address) {
            None => Ok((own, address)),
            Some(rank) => Ok((self.of_rank(own, rank)?, address & OFFSET)),
        }
    }

    /// The CTA of a rank in `own`'s cluster.
    pub fn of_rank<'b>(&'b mut self, own: &'b mut Cta, rank: u32) -> X<&'b mut Cta> {
        if rank == own.rank {
            return Ok(own);
        }
        let all = &own.det.cluster;
        let Some(&cta) = all.get(rank as usize) else {
            let what = format!("CTA {rank} of a cluster of {}", all.len());
            return Err(Trap::new("cluster.rank", what));
        };
        self.member(cta)
    }
}

/// Offsets in the shared memory of one CTA.
const OFFSET: u32 = (1 << 24) - 1;

/// The rank that an offset of the shared window names; none where it is the CTA's own.
pub fn rank_of(address: u32) -> Option<u32> {
    (address >> 28 == CLUSTER_WINDOW >> 28).then_some(address >> 24 & 15)
}

/// Where an address points.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Loc {
    /// Shared memory, of another CTA of the cluster where the offset names one.
    Shared(u32),
    /// Global memory or a module variable.
    Global(u64),
    /// Parameter memory.
    Param(u32),
    /// Local memory of the lane.
    Local(u32),
}

impl Loc {
    /// The place that many bytes on.
    pub fn plus(self, bytes: u32) -> Loc {
        match self {
            Loc::Shared(a) => Loc::Shared(a + bytes),
            Loc::Global(a) => Loc::Global(a + u64::from(bytes)),
            Loc::Param(a) => Loc::Param(a + bytes),
            Loc::Local(a) => Loc::Local(a + bytes),
        }
    }
}

/// Lanes of a mask.
pub fn lanes(mut mask: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        if mask == 0 {
            return None;
        }
        let l = mask.trailing_zeros() as usize;
        mask &= mask - 1;
        Some(l)
    })
}

/// The first lane of a mask.
pub fn first(mask: u32) -> usize {
    mask.trailing_zeros().min(31) as usize
}

impl Warp {
    /// 64-bit value of a lane.
    pub fn u64(&self, c: Col, lane: usize) -> u64 {
        u64::from(self.regs[usize::from(c)][lane]) | u64::from(self.regs[usize::from(c) + 1][lane]) << 32
    }

    /// Sets a 64-bit value of a lane.
    pub fn set64(&mut self, c: Col, lane: usize, v: u64) {
        self.regs[usize::from(c)][lane] = v as u32;
        self.regs[usize::from(c) + 1][lane] = (v >> 32) as u32;
    }

    /// 32-bit value of a lane.
    pub fn u32(&self, c: Col, lane: usize) -> u32 {
        self.regs[usize::from(c)][lane]
    }

    /// Sets a 32-bit value of a lane.
    pub fn set32(&mut self, c: Col, lane: usize, v: u32) {
        self.regs[usize::from(c)][lane] = v;
    }

    /// Lanes in which a predicate operand is true.
    pub fn pred(&self, p: PredSrc) -> u32 {
        match p {
            PredSrc::Reg(p, n) => self.preds[usize::from(p)] ^ if n { ALL } else { 0 },
            PredSrc::Const(c) => {
                if c {
                    ALL
                } else {
                    0
                }
            }
        }
    }

    /// Sets a predicate in the lanes of a mask.
    pub fn set_pred(&mut self, p: PCol, mask: u32, value: u32) {
        let x = &mut self.preds[usize::from(p)];
        *x = *x & !mask | value & mask;
    }

    /// Address operand of a lane.
    pub fn address(&self, a: Addr, lane: usize) -> u64 {
        if a.wide {
            self.u64(a.base, lane).wrapping_add(a.offset as u64)
        } else {
            u64::from(self.u32(a.base, lane).wrapping_add(a.offset as u32))
        }
    }

    /// Marks columns as busy with an asynchronous write (1) or read (2).
    pub fn occupy(&mut self, cols: &[Col], how: u8) {
        for &c in cols {
            self.busy[usize::from(c)] |= how;
        }
        self.any_busy |= !cols.is_empty();
    }

    /// Frees all columns.
    pub fn release_columns(&mut self, cols: impl Iterator<Item = Col>, how: u8) {
        for c in cols {
            self.busy[usize::from(c)] &= !how;
        }
        self.any_busy = self.busy.iter().any(|&b| b != 0);
    }
}

impl<'a> Cx<'a> {
    /// What the fragment is ordered after.
    pub fn know(&mut self) -> &mut Know {
        &mut self.w.frags[self.f].know
    }

    /// Which of the warp's accesses come before what the lanes of a mask do now.
    pub fn own(&self, mask: u32) -> Own {
        let w = &self.w;
        Own {
            lanes: mask,
            whole: !self.cta.det.on.lanes || w.live & !mask == 0,
            before: w.sync_clock.saturating_sub(1),
            now: self.cta.det.clocks.get(w.id as usize).copied().unwrap_or(0),
        }
    }

    /// Hands over what the fragment and the lanes of a mask did.
    pub fn release(&mut self, mask: u32) -> Released {
        let own = self.own(mask);
        self.cta.det.release(self.w.id, &self.w.frags[self.f].know, own)
    }

    /// Identity of this instruction's ordinary accesses by a lane.
    pub fn lane_epoch(&self, lane: usize) -> Epoch {
        let n = if self.cta.det.on.lanes { lane as u8 + 1 } else { 0 };
        Epoch { lane: n, ..self.epoch() }
    }

    /// Identity of this instruction's ordinary accesses.
    pub fn epoch(&self) -> Epoch {
        self.cta.det.warp_epoch(self.w.id, self.pc)
    }

    /// 32-bit shared address of a lane: a shared window offset, or a generic address of it.
    pub fn shared_address(&self, a: Addr, lane: usize) -> X<u32> {
        let v = self.cluster_address(a, lane)?;
        if rank_of(v).is_some() {
            let what =
                format!("{v:#x} is in the shared memory of another CTA, the instruction takes the CTA's own");
            return Err(Trap::new("bounds", what));
        }
        Ok(v)
    }

    /// The same where it may be of another CTA of the cluster.
    pub fn cluster_address(&self, a: Addr, lane: usize) -> X<u32> {
        let v = self.w.address(a, lane);
        let v = if v >> 32 == SHARED_WINDOW >> 32 { v - SHARED_WINDOW } else { v };
        let v =
            u32::try_from(v).map_err(|_| Trap::new("bounds", format!("{v:#x} is not a shared address")))?;
        Ok(self.plain(v))
    }

    /// The CTAs that an asynchronous operation writes to and signals, by rank, and the addresses in each: those of a mask,
    /// or the one in which both addresses lie.
    pub fn targets(&self, dst: u32, mbar: u32, mask: Option<u32>) -> X<(Vec<u32>, u32, u32)> {
        let all = self.cta.det.cluster.len() as u32;
        let place = |address: u32| match rank_of(address) {
            Some(rank) => (rank, address & OFFSET),
            None => (self.cta.rank, address),
        };
        let ((rank, dst), (signalled, mbar)) = (place(dst), place(mbar));
        let ranks = match mask {
            Some(mask) if mask == 0 || mask >> all != 0 => {
                let what = format!("the mask {mask:#x} names CTAs of a cluster of {all}");
                return Err(Trap::new("cluster.mask", what));
            }
            Some(mask) => lanes(mask).map(|rank| rank as u32).collect(),
            None if rank != signalled => {
                let what = format!("data for CTA {rank} of the cluster, the signal for CTA {signalled}");
                return Err(Trap::new("cluster.signal", what));
            }
            None => vec![rank],
        };
        Ok((ranks, dst, mbar))
    }

    /// The one or the other: of the CTA's own memory only where the instruction says so.
    pub fn place_in_shared(&self, a: Addr, lane: usize, own: bool) -> X<u32> {
        if own { self.shared_address(a, lane) } else { self.cluster_address(a, lane) }
    }

    /// An offset of the shared window, without a rank where that is the CTA's own.
    fn plain(&self, address: u32) -> u32 {
        if rank_of(address) == Some(self.cta.rank) { address & OFFSET } else { address }
    }

    /// Where a generic address points.
    pub fn generic(&self, v: u64) -> Loc {
        match v >> 32 {
            x if x == SHARED_WINDOW >> 32 => Loc::Shared(self.plain(v as u32)),
            x if x == PARAM_WINDOW >> 32 => Loc::Param(v as u32),
            x if x == LOCAL_WINDOW >> 32 => Loc::Local(v as u32),
            _ => Loc::Global(v),
        }
    }

    /// The tensor map at a generic address.
    pub fn tensor_map(&self, address: u64) -> X<TensorMap> {
        if let Loc::Param(o) = self.generic(address)
            && let Some((_, m)) = self.env.maps.iter().find(|m| m.0 == o)
        {
            return Ok(*m);
        }
        Err(Trap::new("tma.map", format!("{address:#x} is not the address of a tensor map")))
    }

    /// Checks an ordinary access of shared memory and records it; without a lane it is the whole warp's.
    pub fn touch_shared(
        &mut self,
        address: u32,
        bytes: u32,
        write: bool,
        atomic: bool,
        lane: Option<usize>,
    ) -> X<()> {
        let det = &self.cta.det;
        let n = lane.filter(|_| det.on.lanes).map_or(0, |lane| lane as u8 + 1);
        let epoch = Epoch { lane: n, atomic, ..det.warp_epoch(self.w.id, self.pc) };
        let (cta, address) = self.peers.at(self.cta, address)?;
        cta.smem.check(address, bytes, bytes.next_power_of_two().min(16), "access")?;
        if cta.smem.in_mbarrier(address, bytes) {
            return Err(Trap::new(
                "barrier.bytes",
                format!("ordinary access of the bytes of an mbarrier at {address:#x}"),
            ));
        }
        if cta.explore {
            cta.footprint.bytes(address, bytes, write);
        }
        if cta.det.on.races {
            let who = Who { epoch, know: &self.w.frags[self.f].know, since: self.w.since };
            cta.det.shared(address, bytes, write, &who)?;
        }
        Ok(())
    }

    /// Checks an ordinary access of global memory and records it.
    pub fn touch_global(
        &mut self,
        address: u64,
        bytes: u32,
        write: bool,
        atomic: bool,
        lane: usize,
    ) -> X<()> {
        if self.cta.explore {
            self.cta.footprint.global(address, write);
        }
        if self.cta.det.on.races {
            let epoch = Epoch { atomic, ..self.lane_epoch(lane) };
            let who = Who { epoch, know: &self.w.frags[self.f].know, since: self.w.since };
            self.gshadow.access(&self.cta.det, address, bytes, write, &who)?;
        }
        Ok(())
    }

    /// Notes an access for the statistics, if they are kept. `lane`: of a row of a matrix, that of its address.
    pub fn note(&mut self, lane: usize, at: Loc, bytes: u32) {
        let Some(stats) = &mut self.stats else { return };
        match at {
            Loc::Global(a) => stats.access(lane, Place::Global(a), bytes),
            Loc::Shared(a) => stats.access(lane, Place::Shared(a), bytes),
            Loc::Local(_) => stats.access(lane, Place::Local, bytes),
            Loc::Param(_) => {}
        }
    }

    /// Requires exactly one active lane.
    pub fn single(&self, mask: u32) -> X<usize> {
        if mask.count_ones() == 1 {
            return Ok(first(mask));
        }
        Err(Trap::new(
            "divergent",
            format!("{} lanes execute an instruction of one thread", mask.count_ones()),
        ))
    }

    /// Records an event for messages and the trace.
    pub fn log(&mut self, what: &'static str, value: u64) {
        self.cta.log(Lane::Warp(self.w.id), self.inst.line, what, value);
        if self.trace.on() {
            self.trace.event(&TraceEvent {
                step: self.cta.step,
                cta: self.cta.linear,
                lane: Lane::Warp(self.w.id),
                what,
                line: self.inst.line,
                value,
            });
        }
    }
}
