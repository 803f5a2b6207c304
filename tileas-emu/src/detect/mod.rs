//! Detectors: data races, missing fences, undefined reads.
//!
//! In: every access with who makes it and what that one knows. Out: a [`Trap`] for the first
//! wrong one. State is per CTA, except the shadow of global memory, which lives as long as the run.

pub mod clock;
pub mod shadow;

use crate::exec::Trap;
use clock::{Know, Own, Released, Scope, Sent};
use rustc_hash::FxHashMap;
use shadow::{Conflict, Epoch, Plane, Reason, Shadow};
use std::rc::Rc;

/// Which detectors run.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Detectors {
    /// Data races, proxy fences, tcgen05 fences, barriers whose waiters may miss a phase.
    pub races: bool,
    /// Order among the lanes of a warp: what one lane hands over or issues is not ordered after the
    /// other lanes' accesses since the warp last synchronised (with `races`).
    pub lanes: bool,
    /// Reads of memory and registers that nothing has written.
    pub undefined: bool,
}

impl Detectors {
    /// All detectors.
    pub const ALL: Detectors = Detectors { races: true, lanes: true, undefined: true };
    /// None: only what no machine could execute is reported.
    pub const NONE: Detectors = Detectors { races: false, lanes: false, undefined: false };
}

/// What an agent is, for messages.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Agent {
    /// A warp's ordinary instructions.
    Warp(u32),
    /// tcgen05.ld of a warp.
    TmemLoad(u32),
    /// tcgen05.st of a warp.
    TmemStore(u32),
    /// wgmma of a warp.
    Wgmma(u32),
    /// tcgen05.mma and cp of a thread.
    Tensor(u32),
    /// cp.async of a warp.
    Copy(u32),
    /// A TMA load.
    Load,
    /// Bulk stores of a thread reading shared memory.
    StoreRead(u32),
    /// Bulk stores of a thread writing global memory.
    StoreWrite(u32),
}

impl std::fmt::Display for Agent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Agent::Warp(w) => write!(f, "warp {w}"),
            Agent::TmemLoad(w) => write!(f, "tcgen05.ld of warp {w}"),
            Agent::TmemStore(w) => write!(f, "tcgen05.st of warp {w}"),
            Agent::Wgmma(w) => write!(f, "wgmma of warp {w}"),
            Agent::Tensor(t) => write!(f, "tensor pipe of thread {t}"),
            Agent::Copy(w) => write!(f, "cp.async of warp {w}"),
            Agent::Load => write!(f, "TMA load"),
            Agent::StoreRead(t) => write!(f, "bulk store of thread {t} (reading)"),
            Agent::StoreWrite(t) => write!(f, "bulk store of thread {t} (writing)"),
        }
    }
}

/// Memory a cell belongs to, for messages.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Place {
    /// Shared memory byte address.
    Shared(u32),
    /// Tensor memory lane and column.
    Tensor(u32, u32),
    /// Global byte address.
    Global(u64),
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Place::Shared(a) => write!(f, "shared memory {a:#x}"),
            Place::Tensor(l, c) => write!(f, "tensor memory lane {l} column {c}"),
            Place::Global(a) => write!(f, "global memory {a:#x}"),
        }
    }
}

/// Who makes an access.
#[derive(Copy, Clone, Debug)]
pub struct Who<'a> {
    /// Identity and clock; the mask is filled in per cell.
    pub epoch: Epoch,
    /// What it is ordered after.
    pub know: &'a Know,
    /// The warp's clock from which on its other lanes' accesses are not ordered before.
    pub since: u32,
}

/// An asynchronous operation's identity.
#[derive(Clone, Debug, Default)]
pub struct Ticket {
    /// Agent.
    pub agent: u16,
    /// Its clock for this operation.
    pub clock: u32,
    /// What it is ordered after; absent without race detection.
    pub know: Option<Rc<Know>>,
}

/// Detector state of a CTA.
#[derive(Debug)]
pub struct Det {
    /// Which detectors run.
    pub on: Detectors,
    /// CTA number plus one.
    pub cta: u32,
    /// The CTAs of its cluster by rank: numbers plus one.
    pub cluster: Rc<[u32]>,
    /// Clocks by agent; the first agents are the warps.
    pub clocks: Vec<u32>,
    /// Kinds by agent.
    pub agents: Vec<Agent>,
    /// Shared memory.
    pub smem: Shadow,
    /// Tensor memory, from its first access on: few kernels have any.
    tmem: Shadow,
    by_kind: FxHashMap<(u8, u32), u16>,
    pool: Vec<(u16, bool)>,
}

impl Det {
    /// State of CTA `cta` (number plus one) with `warps` warps.
    pub fn new(on: Detectors, cta: u32, cluster: Rc<[u32]>, warps: u32, smem_bytes: usize) -> Self {
        let smem = if on.races { Shadow::of(cta, smem_bytes.div_ceil(4)) } else { Shadow::default() };
        Self {
            on,
            cta,
            cluster,
            clocks: vec![1; warps as usize],
            agents: (0..warps).map(Agent::Warp).collect(),
            smem,
            tmem: Shadow::default(),
            by_kind: FxHashMap::default(),
            pool: Vec::new(),
        }
    }

    fn new_agent(&mut self, a: Agent) -> u16 {
        self.clocks.push(0);
        self.agents.push(a);
        (self.agents.len() - 1) as u16
    }

    /// The agent of a kind, made at first use.
    pub fn agent(&mut self, a: Agent) -> u16 {
        let key = match a {
            Agent::Warp(w) => return w as u16,
            Agent::TmemLoad(w) => (0, w),
            Agent::TmemStore(w) => (1, w),
            Agent::Wgmma(w) => (2, w),
            Agent::Tensor(t) => (3, t),
            Agent::StoreRead(t) => (4, t),
            Agent::StoreWrite(t) => (5, t),
            Agent::Copy(w) => (7, w),
            Agent::Load => (6, self.agents.len() as u32),
        };
        if let Some(&x) = self.by_kind.get(&key) {
            return x;
        }
        let x = self.new_agent(a);
        self.by_kind.insert(key, x);
        x
    }

    /// An agent for a TMA load: one whose earlier load the issuer knows to be over, or a new one.
    ///
    /// # Errors
    /// When loads that nobody waits for have used up all agents.
    pub fn load_agent(&mut self, know: &Know) -> Result<u16, Trap> {
        for (a, busy) in &mut self.pool {
            if !*busy && know.g.get(*a) >= self.clocks[usize::from(*a)] {
                *busy = true;
                return Ok(*a);
            }
        }
        if self.pool.len() >= LOAD_AGENTS {
            return Err(Trap::new(
                "limit.in_flight",
                format!("{LOAD_AGENTS} loads that the issuing thread does not know to be complete"),
            ));
        }
        let a = self.new_agent(Agent::Load);
        self.pool.push((a, true));
        Ok(a)
    }

    /// A TMA load completed.
    pub fn load_done(&mut self, agent: u16) {
        if let Some(x) = self.pool.iter_mut().find(|x| x.0 == agent) {
            x.1 = false;
        }
    }

    /// Issues an operation of `agent` by warp `warp`: the operation is ordered after what the fragment
    /// knows and the warp's accesses that `own` names, and later accesses of the warp are not ordered before it.
    pub fn issue(&mut self, warp: u32, know: &Know, agent: u16, own: Own) -> Ticket {
        if !self.on.races {
            return Ticket::default();
        }
        let mut k = know.clone();
        own.raise(&mut k.g, warp);
        self.clocks[warp as usize] += 1;
        self.ticket(k, agent)
    }

    /// The next operation of an agent, ordered after what `know` has.
    pub fn ticket(&mut self, know: Know, agent: u16) -> Ticket {
        let c = &mut self.clocks[usize::from(agent)];
        *c += 1;
        Ticket { agent, clock: *c, know: Some(Rc::new(know)) }
    }

    /// What warp `warp` hands over now: its own accesses that `own` names; later ones are not included.
    pub fn release(&mut self, warp: u32, know: &Know, own: Own) -> Released {
        if !self.on.races {
            return Released::default();
        }
        let mut r = know.released();
        own.raise(&mut r.own.g, warp);
        self.clocks[warp as usize] += 1;
        r
    }

    /// The narrowest scope that has a CTA (number plus one) beside this one.
    pub fn reach(&self, cta: u32) -> Scope {
        match cta {
            _ if cta == self.cta => Scope::Cta,
            _ if self.cluster.contains(&cta) => Scope::Cluster,
            _ => Scope::Device,
        }
    }

    /// Identity of an ordinary access of a warp.
    pub fn warp_epoch(&self, warp: u32, pc: u32) -> Epoch {
        Epoch { cta: self.cta, agent: warp as u16, clock: self.clocks[warp as usize], pc, ..Epoch::default() }
    }

    /// Identity of an asynchronous access.
    pub fn ticket_epoch(&self, t: &Ticket, pc: u32) -> Epoch {
        Epoch { cta: self.cta, agent: t.agent, clock: t.clock, pc, is_async: true, ..Epoch::default() }
    }

    /// Describes a conflict.
    pub fn conflict(&self, c: &Conflict, now: &Epoch, write: bool, place: Place) -> Trap {
        let name = |e: &Epoch| {
            if e.cta != self.cta {
                return format!("CTA {}", e.cta - 1);
            }
            self.agents.get(usize::from(e.agent)).map_or_else(|| "an agent".to_string(), |a| a.to_string())
        };
        let verb = |w: bool| if w { "write" } else { "read" };
        let (code, why) = match c.reason {
            Reason::Race => ("race", "are not ordered"),
            Reason::Lanes => ("race.lanes", "are of different lanes without bar.warp.sync between them"),
            Reason::Proxy => ("proxy", "have no proxy fence between them (fence.proxy.async)"),
            Reason::TensorFence => ("tcgen05.fence", "are ordered without tcgen05.fence"),
        };
        let message = format!(
            "{} of {place} by {} and the earlier {} by {} {why}",
            verb(write),
            name(now),
            verb(c.prior_write),
            name(&c.prior)
        );
        Trap { code, message, prior: Some((c.prior.pc, name(&c.prior))) }
    }

    /// Checks and records an access of bytes of shared memory.
    pub fn shared(&mut self, address: u32, bytes: u32, write: bool, who: &Who<'_>) -> Result<(), Trap> {
        self.smem
            .bytes(address as usize, bytes as usize, write, who, Plane::Shared)
            .map_err(|(cell, now, c)| self.conflict(&c, &now, write, Place::Shared(4 * cell as u32)))
    }

    /// The cells of tensor memory; none without race detection.
    fn tmem(&mut self) -> &mut Shadow {
        if self.on.races && !self.tmem.on() {
            self.tmem = Shadow::new(128 * 512);
        }
        &mut self.tmem
    }

    /// Checks that freeing a cell of tensor memory is ordered after all accesses: dealloc is
    /// synchronous, so plain causality is enough.
    pub fn free_tensor(&mut self, lane: u32, column: u32, who: &Who<'_>) -> Result<(), Trap> {
        let now = Epoch { mask: 15, ..who.epoch };
        let i = (lane * 512 + column) as usize;
        if let Err(c) = self.tmem().access(i, now, true, who.know, Plane::Shared, u32::MAX) {
            return Err(self.conflict(&c, &now, true, Place::Tensor(lane, column)));
        }
        self.tmem.reset(i);
        Ok(())
    }

    /// Checks and records an access of a cell of tensor memory.
    pub fn tensor(&mut self, lane: u32, column: u32, write: bool, who: &Who<'_>) -> Result<(), Trap> {
        let now = Epoch { mask: 15, ..who.epoch };
        if let Err(c) =
            self.tmem().access((lane * 512 + column) as usize, now, write, who.know, Plane::Tensor, u32::MAX)
        {
            return Err(self.conflict(&c, &now, write, Place::Tensor(lane, column)));
        }
        Ok(())
    }
}

const PAGE: u64 = 4096;

/// Most loads whose completion their issuers do not know of, per CTA (their vectors grow with each).
const LOAD_AGENTS: usize = 1 << 13;

/// Shadow of global memory, by page.
#[derive(Default)]
pub struct GlobalShadow {
    pages: FxHashMap<u64, Shadow>,
    /// Releases by address.
    pub sync_vars: FxHashMap<u64, Vec<Sent>>,
}

impl GlobalShadow {
    /// Checks and records an access.
    pub fn access(
        &mut self,
        det: &Det,
        address: u64,
        bytes: u32,
        write: bool,
        who: &Who<'_>,
    ) -> Result<(), Trap> {
        let (mut a, end) = (address, address + u64::from(bytes));
        while a < end {
            let (number, from) = (a / PAGE, a % PAGE);
            let stop = end.min((number + 1) * PAGE);
            let page = self.pages.entry(number).or_insert_with(|| Shadow::new((PAGE / 4) as usize));
            page.bytes(from as usize, (stop - a) as usize, write, who, Plane::Global).map_err(
                |(cell, now, c)| {
                    det.conflict(&c, &now, write, Place::Global(number * PAGE + 4 * cell as u64))
                },
            )?;
            a = stop;
        }
        Ok(())
    }
}
