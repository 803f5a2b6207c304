//! Executing: CTAs, warps, fragments.
//!
//! A warp is a set of fragments, each at one instruction. Branches split them; they come together at
//! collective instructions only (and, when the policy allows, when they meet at an instruction):
//! PTX promises no more.

use super::launch::{RunOptions, entry_registers, refuse};
use super::policy::Rng;
use super::report::{Fault, Report};
use crate::async_ops::Pending;
use crate::decode::regs::Special;
use crate::decode::{Collective, Inst, Kernel, SMEM_START};
use crate::detect::{Det, GlobalShadow};
use crate::exec::cx::{ALL, Cx, Env, Frag, Peers, Warp, first, lanes};
use crate::exec::{Flow, Trap, Wait, X};
use crate::mem::cta::Cta;
use crate::mem::global::Memory;
use crate::mem::shared::Shared;
use crate::mem::tensor::Tensor;
use crate::stats::{Kind, Outcome, Recorder, Step};
use crate::sync::cluster::Barrier;
use crate::sync::named::Named;
use crate::trace::{Lane, Trace, TraceEvent};
use std::cell::RefCell;
use std::rc::Rc;

/// Binary logarithm of the warp instructions between two questions whether to stop.
const BETWEEN_QUESTIONS: u32 = 22;

/// Loads of global memory that others may write, without a change of it, after which one more cluster starts.
const PATIENCE: u32 = 1 << 10;

/// A running launch.
pub struct Core<'a> {
    /// The kernel.
    pub kernel: &'a Kernel,
    /// What CTAs share.
    pub env: Env,
    /// Global memory.
    pub mem: &'a mut Memory,
    /// Shadow of global memory.
    pub gshadow: GlobalShadow,
    /// Resident CTAs.
    pub ctas: Vec<Cta>,
    /// Next cluster to start.
    next: u32,
    /// Clusters in all.
    total: u32,
    /// CTAs that run at the same time: as many as the options say, and more where those poll for what others have not done.
    resident: u32,
    /// As many as there is memory for.
    most: u32,
    /// Such loads since global memory changed, and its number of changes then.
    polls: (u32, u64),
    /// Options.
    pub options: RunOptions,
    /// Trace.
    pub trace: &'a mut dyn Trace,
    /// Counts.
    pub report: Report,
    /// Whether fragments that meet at an instruction join.
    pub join: bool,
    /// Whether footprints are recorded.
    pub explore: bool,
    dynamic_smem: u32,
    /// Which member elect.sync picks.
    pub elected: u32,
    uses_wgmma: bool,
    /// How often, in 1024, lanes that poll go on at different times, and what draws that.
    pub apart: (u32, Rng),
    pub(super) stats: Option<Box<Recorder>>,
}

impl<'a> Core<'a> {
    /// A launch ready to run.
    pub fn new(
        kernel: &'a Kernel,
        mut env: Env,
        dynamic_smem: u32,
        mem: &'a mut Memory,
        mut options: RunOptions,
        trace: &'a mut dyn Trace,
    ) -> Result<Self, Fault> {
        let ctas: u32 = env.grid.iter().product();
        let cluster: u32 = env.cluster.iter().product();
        options.resident = options.resident.max(cluster);
        let threads: u64 = env.block.iter().map(|&x| u64::from(x)).product();
        let columns = kernel.regs.columns() as u64;
        // A column: 32 lanes of 4 bytes per warp, and its masks.
        let registers = threads / 32 * columns * 144;
        // A byte and whether it was written.
        let local = 2 * threads * u64::from(kernel.local_bytes);
        let shared = u64::from(kernel.dynamic_start) + u64::from(dynamic_smem);
        let resident = u64::from(options.resident.min(ctas));
        let each = registers + local + 3 * shared;
        let need = mem.size().saturating_add(resident.saturating_mul(each));
        if need > options.max_memory {
            return Err(refuse(format!(
                "{need} bytes of buffers and of state of {resident} resident CTAs where {} are allowed",
                options.max_memory
            )));
        }
        env.max_in_flight = options.max_in_flight;
        let most = options.max_memory.saturating_sub(mem.size()) / each.max(1);
        let uses_wgmma = kernel.code.iter().any(|i| i.text.contains("wgmma."));
        Ok(Self {
            kernel,
            env,
            mem,
            gshadow: GlobalShadow::default(),
            ctas: Vec::new(),
            next: 0,
            total: ctas / cluster,
            resident: options.resident,
            most: u32::try_from(most).unwrap_or(u32::MAX),
            polls: (0, 0),
            options,
            trace,
            report: Report::default(),
            join: true,
            explore: false,
            dynamic_smem,
            elected: 0,
            uses_wgmma,
            apart: (0, Rng::new(0)),
            stats: options.stats.then(|| Box::new(Recorder::new(kernel.code.len()))),
        })
    }

    /// Starts clusters until as many CTAs are resident as allowed; false when none is left.
    pub fn refill(&mut self) -> bool {
        let size: u32 = self.env.cluster.iter().product();
        if self.polls.0 > PATIENCE && self.next < self.total {
            self.resident = self.resident.max(self.most.min(self.ctas.len() as u32 + size));
            self.polls.0 = 0;
        }
        while self.ctas.len() + size as usize <= self.resident as usize && self.next < self.total {
            self.start(self.next);
            self.next += 1;
        }
        !self.ctas.is_empty()
    }

    /// Starts the CTAs of a cluster.
    fn start(&mut self, number: u32) {
        let (g, c) = (self.env.grid, self.env.cluster);
        let first = coordinates(number, std::array::from_fn(|k| g[k] / c[k]));
        let place = |rank: u32| {
            let at = coordinates(rank, c);
            let id: [u32; 3] = std::array::from_fn(|k| first[k] * c[k] + at[k]);
            (id, id[0] + g[0] * (id[1] + g[1] * id[2]))
        };
        let size: u32 = c.iter().product();
        let threads: u32 = self.env.block.iter().product();
        let members: Rc<[u32]> = (0..size).map(|rank| place(rank).1 + 1).collect();
        let barrier = Rc::new(RefCell::new(Barrier::new(size * threads)));
        for rank in 0..size {
            let (id, linear) = place(rank);
            let cta = self.cta(id, linear, rank, &members, &barrier);
            self.ctas.push(cta);
        }
    }

    fn cta(
        &self,
        id: [u32; 3],
        linear: u32,
        rank: u32,
        members: &Rc<[u32]>,
        barrier: &Rc<RefCell<Barrier>>,
    ) -> Cta {
        let threads: u32 = self.env.block.iter().product();
        let end = (self.kernel.dynamic_start + self.dynamic_smem).max(SMEM_START);
        let on = self.options.detectors;
        let warps = threads / 32;
        let cap = entry_registers(self.kernel, threads);
        Cta {
            id,
            linear,
            rank,
            cluster: barrier.clone(),
            left: Default::default(),
            smem: Shared::new(end, on.undefined),
            tmem: Tensor::new(on.undefined),
            mbarriers: Default::default(),
            named: std::array::from_fn(|_| Named::default()),
            warps: (0..warps).map(|w| Some(Box::new(self.warp(w, id, linear, cap)))).collect(),
            loads: Vec::new(),
            stores: Vec::new(),
            copies: Vec::new(),
            bulk_groups: Default::default(),
            pipes: Default::default(),
            det: Det::new(on, linear + 1, members.clone(), warps, end as usize),
            free_registers: 65536u32.saturating_sub(cap * threads) * u32::from(cap != 0),
            step: 0,
            version: 0,
            next_op: 0,
            events: Default::default(),
            operand_cache: Default::default(),
            elected: self.elected,
            wgmma_seen: Default::default(),
            explore: self.explore,
            footprint: Default::default(),
            sync_vars: Default::default(),
        }
    }

    fn warp(&self, w: u32, id: [u32; 3], linear: u32, cap: u32) -> Warp {
        let r = &self.kernel.regs;
        let n = r.columns();
        let local = 32 * self.kernel.local_bytes as usize;
        let mut x = Warp {
            id: w,
            regs: vec![[0xDEAD_BEEF; 32]; n],
            preds: vec![0; r.preds()],
            defined: vec![0; n],
            pdefined: vec![0; r.preds()],
            taint: vec![0; n],
            ptaint: vec![0; r.preds()],
            busy: vec![0; n],
            frags: vec![Frag { mask: ALL, ..Frag::default() }],
            live: ALL,
            local: vec![0xFF; local],
            local_defined: if self.options.detectors.undefined { vec![false; local] } else { Vec::new() },
            reg_cap: cap,
            ..Warp::default()
        };
        for &(c, v, words) in &r.const_list {
            for k in 0..words as usize {
                x.regs[usize::from(c) + k] = [(v >> (32 * k)) as u32; 32];
                x.defined[usize::from(c) + k] = ALL;
            }
        }
        if let Some(p) = r.explicit_cluster {
            x.pdefined[usize::from(p)] = ALL;
            x.preds[usize::from(p)] = if self.env.explicit_cluster { ALL } else { 0 };
        }
        let b = self.env.block;
        let threads: u32 = b.iter().product();
        for &(s, c) in &r.special_list {
            x.defined[usize::from(c)] = ALL;
            let c3 = self.env.cluster;
            let in_cluster = |k: usize| id[k] % c3[k];
            x.regs[usize::from(c)] = std::array::from_fn(|l| {
                let (l, t) = (l as u32, 32 * w + l as u32);
                match s {
                    Special::Tid(k) => [t % b[0], t / b[0] % b[1], t / b[0] / b[1]][usize::from(k)],
                    Special::Ntid(k) => b[usize::from(k)],
                    Special::Ctaid(k) => id[usize::from(k)],
                    Special::Nctaid(k) => self.env.grid[usize::from(k)],
                    Special::LaneId => l,
                    Special::WarpId => w,
                    Special::NWarpId => threads / 32,
                    Special::SmId => linear % self.options.resident,
                    Special::NSmId => self.options.resident,
                    Special::LaneMask(k) => match k {
                        0 => 1 << l,
                        1 => (1 << l) - 1,
                        2 => u32::MAX >> (31 - l),
                        3 => !(u32::MAX >> (31 - l)),
                        _ => !((1 << l) - 1),
                    },
                    Special::DynamicSmem => self.dynamic_smem,
                    Special::TotalSmem => self.kernel.dynamic_start + self.dynamic_smem - SMEM_START,
                    Special::ClusterId(k) => id[usize::from(k)] / c3[usize::from(k)],
                    Special::NClusterId(k) => self.env.grid[usize::from(k)] / c3[usize::from(k)],
                    Special::ClusterCtaid(k) => in_cluster(usize::from(k)),
                    Special::ClusterNctaid(k) => c3[usize::from(k)],
                    Special::ClusterCtaRank => {
                        in_cluster(0) + c3[0] * (in_cluster(1) + c3[1] * in_cluster(2))
                    }
                    Special::ClusterNctaRank => c3.iter().product(),
                    Special::Clock => 1,
                }
            });
        }
        x
    }

    /// Whether a fragment can execute now.
    pub fn ready(cta: &Cta, frag: &Frag) -> bool {
        match frag.wait {
            Wait::Ready => true,
            Wait::Mbarrier(a, _, phase) => cta.mbarriers.get(&a).is_none_or(|b| b.phase != phase),
            Wait::Named(n, phase) => cta.named[n as usize].phase != phase,
            Wait::Lanes => false,
            Wait::Cluster(phase) => cta.cluster.borrow().phase != phase,
            Wait::Change(v) => cta.version != v,
            Wait::Registers(n) => cta.free_registers >= n,
            Wait::TensorMemory(n) => cta.tmem.fits(n),
        }
    }

    /// Ready fragments of a CTA as (warp, fragment).
    pub fn ready_list(cta: &Cta, out: &mut Vec<(u32, u32)>) {
        out.clear();
        for w in cta.warps.iter().flatten() {
            for (f, frag) in w.frags.iter().enumerate() {
                if Self::ready(cta, frag) {
                    out.push((w.id, f as u32));
                }
            }
        }
    }

    /// Completes an asynchronous operation.
    pub fn complete(&mut self, c: usize, p: Pending) -> Result<(), Fault> {
        let site = self.ctas[c].site_of(p);
        self.report.operations += 1;
        let (cta, mut peers) = apart(&mut self.ctas, c);
        let r = cta.complete(p, self.mem, &mut self.gshadow, &mut peers);
        let cta = &self.ctas[c];
        let lane = match p {
            Pending::Load(_) | Pending::Copy(_) => Lane::Load,
            Pending::Store(_) => Lane::Store,
            _ => Lane::Tensor,
        };
        if self.trace.on() {
            let e = TraceEvent {
                step: cta.step,
                cta: cta.linear,
                lane,
                what: "complete",
                line: site.line,
                value: 0,
            };
            self.trace.event(&e);
        }
        r.map_err(|t| self.fault(c, t, site.pc, Some(lane), 0))
    }

    /// Runs a fragment for at most `budget` instructions; with `visible`, to before its second
    /// instruction that others can see. Ends early when it waits or ends.
    pub fn run(&mut self, c: usize, warp: u32, frag: u32, budget: u32, visible: bool) -> Result<(), Fault> {
        let (cta, peers) = apart(&mut self.ctas, c);
        let Some(mut w) = cta.warps[warp as usize].take() else { return Ok(()) };
        let mut f = frag as usize;
        let mut result = Ok(());
        let mut pc = w.frags.get(f).map_or(0, |x| x.pc);
        let mask = w.frags.get(f).map_or(0, |x| x.mask);
        let kernel = self.kernel;
        if let Some(x) = w.frags.get_mut(f) {
            if let Wait::Mbarrier(a, _, phase) = x.wait
                && cta.mbarriers.get(&a).is_some_and(|b| b.phase > phase + 1)
            {
                let m = format!(
                    "the wait for phase {phase} of mbarrier {a:#x} missed it: phase {} is over too",
                    phase + 1
                );
                result = Err(Trap::new("barrier.parity", m));
            }
            if let Wait::Named(n, _) = x.wait
                && cta.det.on.races
            {
                let done = cta.named[n as usize].done.clone();
                x.know.acquire(&done);
            }
            x.wait = Wait::Ready;
        }
        let mut seen = 0;
        let mut k = 0;
        while result.is_ok() && k < budget && f < w.frags.len() {
            pc = w.frags[f].pc;
            let inst = &kernel.code[pc as usize];
            if visible && inst.visible {
                seen += 1;
                if seen > 1 {
                    break;
                }
            }
            k += 1;
            cta.step += 1;
            let mut s = Stepper {
                cta: &mut *cta,
                peers: Peers { before: &mut *peers.before, after: &mut *peers.after },
                mem: &mut *self.mem,
                gshadow: &mut self.gshadow,
                kernel,
                env: &self.env,
                trace: &mut *self.trace,
                uses_wgmma: self.uses_wgmma,
                polls: &mut self.polls,
                apart: &mut self.apart,
                stats: self.stats.as_deref_mut(),
            };
            match s.step(&mut w, &mut f, pc) {
                Ok(true) => {}
                Ok(false) => break,
                Err(t) => result = Err(t),
            }
            if self.join && w.frags.len() > 1 && f < w.frags.len() {
                f = join(&mut w, f);
                // A fragment that is behind goes first, so that they meet again.
                if w.frags.iter().any(|x| x.wait == Wait::Ready && x.pc < w.frags[f].pc) && !visible {
                    break;
                }
            }
        }
        let before = self.report.steps;
        self.report.steps += u64::from(k);
        let over = self.report.steps > self.options.max_steps;
        let asks = (before ^ self.report.steps) >> BETWEEN_QUESTIONS > 0;
        self.ctas[c].warps[warp as usize] = Some(w);
        if over && result.is_ok() {
            let max_steps = self.options.max_steps;
            let left = u64::from(self.total - self.next)
                * self.env.cluster.iter().map(|&n| u64::from(n)).product::<u64>();
            let text = format!(
                "more than {max_steps} instructions (`max_steps`). {} CTAs run together (`resident`), {left} have not begun",
                self.ctas.len()
            );
            result = Err(Trap::new("limit.steps", text));
        }
        if asks && result.is_ok() && self.options.interrupted.is_some_and(|asked| asked()) {
            result = Err(Trap::new("interrupted", "the run was told to stop"));
        }
        result.map_err(|t| self.fault(c, t, pc, Some(Lane::Warp(warp)), mask))
    }

    /// Puts the statistics, if they are kept, into the report.
    pub fn count(&mut self) {
        let code = self.kernel.code.iter().map(|i| (i.line, i.text.as_str(), i.kind));
        self.report.stats = self.stats.take().map(|s| Box::new(s.finish(code)));
    }
}

/// A CTA, and the others.
fn apart(ctas: &mut [Cta], c: usize) -> (&mut Cta, Peers<'_>) {
    let (before, rest) = ctas.split_at_mut(c);
    let (cta, after) = rest.split_at_mut(1);
    (&mut cta[0], Peers { before, after })
}

/// The place of a number in a box.
fn coordinates(n: u32, of: [u32; 3]) -> [u32; 3] {
    [n % of[0], n / of[0] % of[1], n / of[0] / of[1]]
}

/// Joins ready fragments at the same instruction; returns the new number of fragment `f`.
fn join(w: &mut Warp, f: usize) -> usize {
    let pc = w.frags[f].pc;
    let mut i = 0;
    let mut f = f;
    while i < w.frags.len() {
        if i != f && w.frags[i].pc == pc && w.frags[i].wait == Wait::Ready && w.frags[f].wait == Wait::Ready {
            let x = w.frags.remove(i);
            if i < f {
                f -= 1;
            }
            w.frags[f].mask |= x.mask;
            w.frags[f].know.merge(&x.know);
        } else {
            i += 1;
        }
    }
    f
}

struct Stepper<'s> {
    cta: &'s mut Cta,
    peers: Peers<'s>,
    mem: &'s mut Memory,
    gshadow: &'s mut GlobalShadow,
    kernel: &'s Kernel,
    env: &'s Env,
    trace: &'s mut dyn Trace,
    uses_wgmma: bool,
    polls: &'s mut (u32, u64),
    apart: &'s mut (u32, Rng),
    stats: Option<&'s mut Recorder>,
}

/// Most fragments of a warp up to which polling lanes part.
const APART: usize = 4;

impl Stepper<'_> {
    /// Executes one instruction of a fragment; false when the fragment cannot go on now.
    fn step(&mut self, w: &mut Warp, f: &mut usize, pc: u32) -> X<bool> {
        let kernel = self.kernel;
        let inst = &kernel.code[pc as usize];
        let mut mask = w.frags[*f].mask;
        if inst.polls && self.apart.0 != 0 && mask.count_ones() > 1 && w.frags.len() < APART {
            let away = mask & self.apart.1.bits() as u32;
            if away != 0 && away != mask && self.apart.1.chance(self.apart.0) {
                split(w, *f, away, pc);
                mask &= !away;
            }
        }
        let mut active = mask;
        if let Some((p, negated)) = inst.guard {
            let p = usize::from(p);
            if self.cta.det.on.undefined && w.pdefined[p] & mask != mask {
                return Err(Trap::new("undefined", "the guard predicate holds no value"));
            }
            if w.any_taint && w.ptaint[p] & mask != 0 {
                return Err(Trap::new("undefined", "the guard depends on what holds no value"));
            }
            let v = w.preds[p];
            active &= if negated { !v } else { v };
            if active == 0 {
                if let Some(stats) = self.stats.as_deref_mut() {
                    count(stats, w, *f, inst, Outcome::Skipped);
                }
                w.frags[*f].pc += 1;
                return Ok(true);
            }
        }
        if inst.collective != Collective::No {
            if active != mask {
                if inst.collective == Collective::Aligned {
                    return Err(Trap::new(
                        "divergent",
                        format!("only lanes {active:#x} of {mask:#x} execute an aligned instruction"),
                    ));
                }
                split(w, *f, mask & !active, pc + 1);
            }
            match self.gather(w, f, pc, active)? {
                Some(m) => active = m,
                None => return Ok(false),
            }
        }
        let mask = w.frags[*f].mask;
        self.check_registers(w, active, pc)?;
        let taint = if w.any_taint { self.taint(w, active, pc)? } else { 0 };
        let mut cx = Cx {
            w,
            f: *f,
            cta: &mut *self.cta,
            peers: Peers { before: &mut *self.peers.before, after: &mut *self.peers.after },
            mem: &mut *self.mem,
            gshadow: &mut *self.gshadow,
            kernel,
            inst,
            pc,
            env: self.env,
            trace: &mut *self.trace,
            stats: self.stats.as_deref_mut(),
        };
        let flow = (inst.exec)(&mut cx, active)?;
        let Cx { w, cta, mem, stats, .. } = cx;
        if let Some(stats) = stats {
            let outcome = match flow {
                Flow::Retry(_) | Flow::Then(_) | Flow::Yield if inst.kind == Kind::Wait => Outcome::Failed,
                Flow::Retry(_) => Outcome::Stalled,
                Flow::Jump(to) => Outcome::Jumped(to),
                Flow::Next | Flow::Then(_) | Flow::Yield | Flow::Exit => Outcome::Done,
            };
            count(stats, w, *f, inst, outcome);
        }
        if !matches!(flow, Flow::Retry(_)) {
            for &c in &*inst.writes {
                w.defined[usize::from(c)] |= active;
            }
            for &p in &*inst.pwrites {
                w.pdefined[usize::from(p)] |= active;
            }
            if w.any_taint && inst.taints {
                for &c in &*inst.writes {
                    let t = &mut w.taint[usize::from(c)];
                    *t = *t & !active | taint;
                }
                for &p in &*inst.pwrites {
                    let t = &mut w.ptaint[usize::from(p)];
                    *t = *t & !active | taint;
                }
            }
            if self.uses_wgmma {
                let t = &mut w.wgmma.touched;
                t.resize(w.defined.len(), 0);
                for &c in &*inst.writes {
                    t[usize::from(c)] |= 1;
                }
                for &c in &*inst.reads {
                    t[usize::from(c)] |= 2;
                }
            }
        }
        let rest = mask & !active;
        match flow {
            Flow::Next => w.frags[*f].pc = pc + 1,
            Flow::Yield => {
                if inst.kind != Kind::Wait {
                    let now = mem.changes();
                    *self.polls = if self.polls.1 == now { (self.polls.0 + 1, now) } else { (0, now) };
                }
                w.frags[*f].pc = pc + 1;
                return Ok(false);
            }
            Flow::Jump(to) => {
                if rest != 0 {
                    split(w, *f, rest, pc + 1);
                }
                w.frags[*f].pc = to;
            }
            Flow::Retry(wait) => {
                if rest != 0 {
                    split(w, *f, rest, pc + 1);
                }
                w.frags[*f].wait = wait;
                return Ok(false);
            }
            Flow::Then(wait) => {
                if rest != 0 {
                    split(w, *f, rest, pc + 1);
                }
                w.frags[*f].pc = pc + 1;
                w.frags[*f].wait = wait;
                return Ok(false);
            }
            Flow::Exit => {
                cta.cluster.borrow_mut().exit(&mut w.cluster, active);
                if cta.clustered() {
                    cta.footprint.cluster();
                    if cta.det.on.races {
                        cta.left.join(&w.frags[*f].know.released());
                    }
                }
                w.live &= !active;
                if rest == 0 {
                    w.frags.remove(*f);
                } else {
                    w.frags[*f].mask = rest;
                    w.frags[*f].pc = pc + 1;
                }
                // A collective may have waited for the lanes that left.
                for x in w.frags.iter_mut().filter(|x| x.wait == Wait::Lanes) {
                    x.wait = Wait::Ready;
                }
                if w.live == 0 {
                    cta.changed();
                }
                return Ok(rest != 0);
            }
        }
        Ok(true)
    }

    /// Brings lanes together for a collective; `None` when some are missing.
    fn gather(&mut self, w: &mut Warp, f: &mut usize, pc: u32, active: u32) -> X<Option<u32>> {
        let inst = &self.kernel.code[pc as usize];
        let (need, barrier) = match inst.collective {
            Collective::Aligned | Collective::No => (w.live, false),
            Collective::Mask(c) | Collective::WarpBarrier(c) => {
                if self.cta.det.on.undefined
                    && (!w.defined[usize::from(c)] | w.taint[usize::from(c)]) & active != 0
                {
                    return Err(Trap::new("undefined", "the member mask holds no value"));
                }
                let m = w.u32(c, first(active));
                if lanes(active).any(|l| w.u32(c, l) != m) {
                    return Err(Trap::new("divergent", "lanes name different member masks"));
                }
                if active & !m != 0 {
                    return Err(Trap::new(
                        "divergent",
                        format!("lanes {:#x} are not in the member mask {m:#x}", active & !m),
                    ));
                }
                (m & w.live, matches!(inst.collective, Collective::WarpBarrier(_)))
            }
        };
        let full = need == w.live;
        if active != need && inst.collective == Collective::Aligned && !self.env.gather_aligned {
            return Err(Trap::new(
                "divergent",
                format!(
                    "lanes {active:#x} execute an aligned instruction while lanes {:#x} are elsewhere",
                    need & !active
                ),
            ));
        }
        if active != need {
            let code = &self.kernel.code;
            let partner = |w: &Warp, x: &Frag| {
                x.wait == Wait::Lanes
                    && (x.pc == pc
                        || barrier
                            && matches!(code[x.pc as usize].collective, Collective::WarpBarrier(c) if w.u32(c, first(x.mask)) & w.live == need))
            };
            let union = w.frags.iter().filter(|x| partner(w, x)).fold(active, |a, x| a | x.mask);
            if union & need != need {
                w.frags[*f].wait = Wait::Lanes;
                return Ok(None);
            }
            // Everyone learns what the others know; those at this instruction become one fragment.
            let mut know = std::mem::take(&mut w.frags[*f].know);
            for x in &w.frags {
                if partner(w, x) {
                    know.merge(&x.know);
                }
            }
            let mut i = 0;
            while i < w.frags.len() {
                if i != *f && partner(w, &w.frags[i]) {
                    if w.frags[i].pc == pc {
                        let x = w.frags.remove(i);
                        if i < *f {
                            *f -= 1;
                        }
                        w.frags[*f].mask |= x.mask;
                        continue;
                    }
                    let x = &mut w.frags[i];
                    x.know = know.clone();
                    x.wait = Wait::Ready;
                    x.pc += 1;
                }
                i += 1;
            }
            w.frags[*f].know = know;
        }
        if barrier && self.cta.det.on.races {
            let clock = &mut self.cta.det.clocks[w.id as usize];
            *clock += 1;
            w.since = *clock;
            if full {
                w.sync_clock = *clock;
            }
        }
        let together = w.frags[*f].mask & need;
        if full && std::mem::take(&mut w.waited_apart) {
            self.cta.come_together(w.id, together);
        }
        Ok(Some(together))
    }

    /// Lanes whose sources come from undefined registers or tensor memory: private instructions pass that
    /// on (collective ones to all lanes), where others could see it, it is a fault.
    fn taint(&self, w: &Warp, active: u32, pc: u32) -> X<u32> {
        let inst = &self.kernel.code[pc as usize];
        let regs = inst.reads.iter().fold(0, |t, &c| t | w.taint[usize::from(c)]);
        let t = active & inst.preads.iter().fold(regs, |t, &p| t | w.ptaint[usize::from(p)]);
        if t != 0 && inst.visible && inst.taints {
            let c = inst.reads.iter().find(|&&c| w.taint[usize::from(c)] & active != 0).copied().unwrap_or(0);
            return Err(Trap::new(
                "undefined",
                format!(
                    "register {} depends on what holds no value, in lanes {t:#x}",
                    self.kernel.regs.name(c)
                ),
            ));
        }
        Ok(if t != 0 && inst.collective != Collective::No { active } else { t })
    }

    /// Registers that hold no value, and registers in use by asynchronous operations.
    fn check_registers(&self, w: &mut Warp, active: u32, pc: u32) -> X<()> {
        let inst = &self.kernel.code[pc as usize];
        if self.cta.det.on.undefined {
            // Where nobody else can see it, what is computed from no value is no value either.
            let private = !inst.visible;
            for &c in &*inst.reads {
                let missing = active & !w.defined[usize::from(c)];
                if missing == 0 {
                    continue;
                }
                if !private {
                    return Err(Trap::new(
                        "undefined",
                        format!("register {} holds no value", self.kernel.regs.name(c)),
                    ));
                }
                w.taint[usize::from(c)] |= missing;
                w.any_taint = true;
            }
            for &p in &*inst.preads {
                let missing = active & !w.pdefined[usize::from(p)];
                if missing != 0 && !private {
                    return Err(Trap::new("undefined", "a predicate operand holds no value"));
                }
                w.ptaint[usize::from(p)] |= missing;
                w.any_taint |= missing != 0;
            }
        }
        if w.any_busy {
            let busy = |c: &&u16, how: u8| w.busy[usize::from(**c)] & how != 0;
            if let Some(&c) =
                inst.reads.iter().find(|c| busy(c, 1)).or_else(|| inst.writes.iter().find(|c| busy(c, 3)))
            {
                return Err(Trap::new(
                    "register.busy",
                    format!(
                        "register {} is in use by asynchronous work that was not waited for",
                        self.kernel.regs.name(c)
                    ),
                ));
            }
        }
        Ok(())
    }
}

/// Puts lanes of fragment `f` into a fragment of their own.
fn split(w: &mut Warp, f: usize, away: u32, pc: u32) {
    w.frags[f].mask &= !away;
    w.frags.push(Frag { pc, mask: away, wait: Wait::Ready, ..w.frags[f].clone() });
}

/// Counts an instruction of a fragment, which is still at it.
fn count(stats: &mut Recorder, w: &mut Warp, f: usize, inst: &Inst, outcome: Outcome) {
    let frag = &mut w.frags[f];
    let (pc, guarded) = (frag.pc, inst.guard.is_some());
    let step = Step { pc, kind: inst.kind, guarded, turns: inst.turns, outcome };
    stats.step(&step, &mut frag.polling, &mut w.counts);
}
