//! Pipelines as full/empty mbarrier rings.
//!
//! The k-th use of a slot has phase k & 1: the consumer waits for parity `phase` on *full*, the producer for
//! `phase ^ 1` on *empty* (a fresh barrier lets the first round through). Signals are emitted as the pipeline's
//! attributes say; fences follow the table "Proxies, fences" of the PTX memory model chapters. Those of tensor memory
//! follow what the threads of the agent have done: any signal may carry the order of accesses that it does not hand over.

use super::{Lower, NO_PHASE, Pipe, Val};
use crate::error::{Code, CodegenResult};
use crate::ir::{Block, Op, Opcode, Publish, Signal, Value, keys};
use crate::nvvm::{Operand, Reg};

impl Lower<'_> {
    /// The ring through which an agent of several warps stores, slot after slot, if there is no other and its named barrier may do for both sides: behind
    /// its commit of slot s all threads go on to slot s + 1, and in front of that barrier the lane that stores waits until the store that had this slot, of
    /// those before the last `slots - 2`, has read it. So there is one barrier for each slot, and not one for either side. A store waits for the one before,
    /// which is for agents that take turns: nobody waits for what they store.
    pub(super) fn staging(&self, agent: Block) -> Option<usize> {
        let f = self.f;
        let (mut ring, mut alone) = (None, self.agent.instance.is_some());
        // One store for each slot.
        let mut stores = 0;
        f.walk(agent, &mut |op| match f.opcode(op) {
            Opcode::AsyncPipelineConsumerRelease if f.has_attr(op, keys::BULK_PENDING) => {
                let found = self.pipe_of(op).filter(|&p| {
                    let Pipe { named, slots, def, .. } = self.pipes[p];
                    let all = f.attr_int(op, keys::BULK_PENDING) == Some(i64::from(slots) - 1);
                    named.is_some() && slots >= 2 && all && def.empty != Signal::None
                });
                alone &= found.is_some() && ring.is_none_or(|r| Some(r) == found);
                (ring, stores) = (found, stores - 1);
            }
            Opcode::AsyncTiledTmaStore => stores += 1,
            // Those that some other end waits for count otherwise.
            Opcode::AsyncPipelineProducerCommit => alone &= !f.has_attr(op, keys::BULK_PENDING),
            _ => {}
        });
        ring.filter(|_| alone && stores == 0)
    }

    /// The pipeline whose slot an op names.
    fn pipe_of(&self, op: Op) -> Option<usize> {
        let f = self.f;
        let mut v = *f.operands(op).first()?;
        for _ in 0..64 {
            match self.vals[v] {
                Val::Pipe(p) => return Some(p),
                _ => v = *f.operands(f.defining_op(v)?).first()?,
            }
        }
        None
    }

    /// Pipeline, slot and phase an op refers to, through (pipeline, iterator) or an owned slot.
    fn pipe_slot(&self, op: Op) -> CodegenResult<(usize, Operand, Operand)> {
        let ops = self.f.operands(op);
        let bad = || self.err(Code::E0803, op, "does not refer to a pipeline slot");
        match ops.first().map(|&v| &self.vals[v]) {
            Some(Val::Owned(p, s, ph)) => Ok((*p, *s, *ph)),
            Some(Val::Pipe(p)) => match ops.get(1).map(|&v| &self.vals[v]) {
                Some(Val::Iter(s, ph, n)) => {
                    if *n != self.pipes[*p].slots {
                        return self.err(
                            Code::E0803,
                            op,
                            format!("iterator of {n} slots on a pipeline of {}", self.pipes[*p].slots),
                        );
                    }
                    Ok((*p, *s, *ph))
                }
                _ => bad(),
            },
            _ => bad(),
        }
    }

    /// Address of a barrier of slot `slot`.
    pub(super) fn barrier(&mut self, at: i32, slot: Operand) -> Operand {
        let base = self.base();
        match slot {
            Operand::Imm(n) => Operand::addr(base, at + 8 * n as i32),
            s => {
                let off = self.b.fold_shl(s, 3);
                let r = self.b.add_u32(base, off);
                Operand::addr(r, at)
            }
        }
    }

    /// Barrier address of the pipeline's full side, as a destination of transaction bytes.
    pub(super) fn full_barrier(&mut self, op: Op, owned: Value) -> CodegenResult<Operand> {
        match self.vals[owned] {
            Val::Owned(p, slot, _) => {
                let at = self.pipes[p].full_at;
                Ok(self.barrier(at, slot))
            }
            _ => self.err(Code::E0803, op, "the barrier operand is not an acquired slot"),
        }
    }

    fn flip(&mut self, phase: Operand) -> Operand {
        if phase == NO_PHASE { phase } else { self.b.fold_xor(phase, 1) }
    }

    fn own(&mut self, op: Op, p: usize, slot: Operand, phase: Operand) {
        self.set(op, Val::Owned(p, slot, phase));
    }

    pub(super) fn inc_iter(&mut self, op: Op) -> CodegenResult<()> {
        let Some(&v) = self.f.operands(op).first() else {
            return self.err(Code::E0803, op, "needs an iterator");
        };
        let Val::Iter(slot, phase, n) = self.vals[v] else {
            return self.err(Code::E0803, op, "needs an iterator");
        };
        let next = if n == 1 {
            Val::Iter(Operand::Imm(0), self.flip(phase), 1)
        } else if let (Operand::Imm(s), Operand::Imm(p)) = (slot, phase) {
            if s + 1 == i64::from(n) {
                let flipped = if phase == NO_PHASE { phase } else { Operand::Imm(p ^ 1) };
                Val::Iter(Operand::Imm(0), flipped, n)
            } else {
                Val::Iter(Operand::Imm(s + 1), phase, n)
            }
        } else {
            let s = self.b.fold_add(slot, 1);
            let wrap = self.b.setp_eq_u32(s, n);
            let s = self.b.selp_b32(0, s, wrap);
            if phase == NO_PHASE {
                self.set(op, Val::Iter(s.into(), NO_PHASE, n));
                return Ok(());
            }
            let ph = self.b.imm(crate::nvvm::RegTy::B32, phase);
            self.b.on(wrap).xor_b32_to(ph, ph, 1);
            Val::Iter(s.into(), ph.into(), n)
        };
        self.set(op, next);
        Ok(())
    }

    pub(super) fn producer_acquire(&mut self, op: Op) -> CodegenResult<()> {
        let (p, slot, phase) = self.pipe_slot(op)?;
        let Pipe { def, empty_at, tensor_side, named, own, .. } = self.pipes[p];
        if self.agent.staging == Some(p) {
            // The commit before said so.
        } else if let (Some(id), true) = (named, def.empty != Signal::None) {
            // The issuing lane has waited for its bulk reads at the end of the last use.
            self.close_section();
            self.fence_signal(false);
            let (id, threads) = (self.barrier_id(id, own), self.threads());
            self.b.bar_sync(id, threads);
            self.fence_wait(false);
        } else if def.empty != Signal::None {
            if self.f.has_attr(op, keys::ISSUER) {
                self.open_section();
            }
            let bar = self.barrier(empty_at, slot);
            let parity = self.flip(phase);
            self.wait(bar, parity);
            self.fence_wait(tensor_side);
        }
        self.own(op, p, slot, phase);
        Ok(())
    }

    pub(super) fn wait(&mut self, bar: Operand, parity: Operand) {
        self.b.mbarrier_wait(bar, parity);
        if !self.agent.elect && self.section.is_none() {
            self.b.bar_warp_sync(0xffff_ffffu32);
        }
    }

    pub(super) fn producer_commit(&mut self, op: Op) -> CodegenResult<()> {
        let (p, slot, phase) = self.pipe_slot(op)?;
        let pipe = self.pipes[p];
        match pipe.def.full {
            Signal::Tx { bytes, .. } => {
                self.open_section();
                let bytes = self.f.attr_int(op, keys::TX).unwrap_or(bytes);
                let bar = self.barrier(pipe.full_at, slot);
                self.b.mbarrier_arrive_expect_tx(bar, bytes);
            }
            Signal::Commit(_) => {
                self.open_section();
                let bar = self.barrier(pipe.full_at, slot);
                let bar = self.plain(bar);
                self.isa.emit().commit(&mut self.b, bar, None);
            }
            Signal::Arrive(_) if self.f.has_attr(op, keys::BULK_PENDING) => {
                let pending = self.f.attr_int(op, keys::BULK_PENDING).unwrap_or(0);
                self.open_section();
                self.b.bulk_wait_group(pending.clamp(0, 63));
                if pipe.def.publish == Publish::Global {
                    self.b.fence_proxy_async_global();
                }
                self.fence_signal(false);
                let bar = self.barrier(pipe.full_at, slot);
                self.b.mbarrier_arrive(bar);
            }
            Signal::Arrive(_) => {
                let tmem = pipe.def.publish == Publish::Tmem;
                self.publish_stores(tmem);
                if pipe.def.publish == Publish::Proxy {
                    self.b.fence_proxy_async_shared_cta();
                }
                if pipe.def.publish == Publish::Global {
                    self.b.fence_proxy_async_global();
                }
                self.fence_signal(tmem || (self.agent.tensor && pipe.tensor_side));
                match pipe.named {
                    Some(id) => {
                        if let (true, Some(lane)) = (self.agent.staging == Some(p), self.agent.issuer) {
                            let pending = i64::from(pipe.slots) - 2;
                            self.b.on(lane).bulk_wait_group_read(pending);
                        }
                        let (id, threads) = (self.barrier_id(id, pipe.own), self.threads());
                        self.b.bar_sync(id, threads);
                        self.fence_wait(false);
                    }
                    None => {
                        let bar = self.barrier(pipe.full_at, slot);
                        self.b.mbarrier_arrive(bar);
                    }
                }
            }
            Signal::None => {}
            Signal::Bulk(_) => {
                return self.err(Code::E0803, op, "a full side cannot be signalled by a bulk group");
            }
        }
        self.own(op, p, slot, phase);
        Ok(())
    }

    /// All CTAs of the cluster, as a mask, where a pipeline or a descriptor is of all.
    pub(super) fn all_ctas(&mut self, multicast: bool) -> Option<Reg> {
        let (ctas, _) = self.cluster.filter(|_| multicast)?;
        Some(self.b.mov_b16((1_u32 << ctas) - 1))
    }

    /// The address in one register, where the instruction takes no offset.
    fn plain(&mut self, addr: Operand) -> Operand {
        match addr {
            Operand::Addr { base, offset: 0 } => base.into(),
            Operand::Addr { base, offset } => self.b.add_u32(base, offset).into(),
            other => other,
        }
    }

    pub(super) fn consumer_wait(&mut self, op: Op) -> CodegenResult<()> {
        let (p, slot, phase) = self.pipe_slot(op)?;
        let Pipe { def, full_at, tensor_side, named, .. } = self.pipes[p];
        // A named barrier: the commit was the wait of every thread.
        if def.full != Signal::None && named.is_none() {
            if self.f.has_attr(op, keys::ISSUER) {
                self.open_section();
            }
            let bar = self.barrier(full_at, slot);
            self.wait(bar, phase);
            self.fence_wait(tensor_side || self.agent.elect);
        }
        self.own(op, p, slot, phase);
        Ok(())
    }

    pub(super) fn consumer_release(&mut self, op: Op) -> CodegenResult<()> {
        let (p, slot, phase) = self.pipe_slot(op)?;
        let pipe = self.pipes[p];
        if self.agent.staging == Some(p) {
            // The next commit waits.
        } else if let Some(pending) = self.f.attr_int(op, keys::BULK_PENDING) {
            self.open_section();
            self.b.bulk_wait_group_read(pending.clamp(0, 63));
            if pipe.def.empty != Signal::None && pipe.named.is_none() {
                self.fence_signal(false);
                let bar = self.barrier(pipe.empty_at, slot);
                self.b.mbarrier_arrive(bar);
            }
        } else if pipe.named.is_none() {
            // Ordinary loads come before the bulk copy that takes the slot, or the memory of what is used once, only by a fence between the
            // proxies. Where lanes arrive for their warps, products have read it, which are of the copies' proxy.
            let per_warp = self.f.has_attr(op, keys::PER_WARP);
            let threads = !per_warp && !self.agent.elect;
            let loaded = threads && matches!(pipe.def.full, Signal::Tx { .. });
            // The one-lane agent of the matrix engine frees slots by commit, threads by arriving. A side on which
            // all arrive counts no commit.
            match pipe.def.empty {
                Signal::None if loaded || (threads && !pipe.tensor_side) => {
                    self.b.fence_proxy_async_shared_cta()
                }
                Signal::None => {}
                Signal::Commit(_) | Signal::Bulk(_) if self.agent.elect => {
                    self.open_section();
                    let bar = self.barrier(pipe.empty_at, slot);
                    let bar = self.plain(bar);
                    let all = self.all_ctas(pipe.multicast);
                    self.isa.emit().commit(&mut self.b, bar, all);
                }
                Signal::Arrive(_) | Signal::Commit(_) | Signal::Bulk(_) => {
                    // The next agent to take the slot may overwrite, or hand on, what was stored in place before it was freed.
                    self.wait_stores();
                    self.fence_signal(self.agent.tensor && pipe.tensor_side);
                    if loaded {
                        self.b.fence_proxy_async_shared_cta();
                    }
                    let bar = self.barrier(pipe.empty_at, slot);
                    let who = self.agent.first_lane.filter(|_| per_warp);
                    match self.cluster.filter(|_| pipe.multicast) {
                        // Without `.release.cluster`, which waits for all that is under way (0.7 µs each on an H100): what frees a slot hands
                        // over nothing that was written.
                        Some((ctas, _)) => {
                            let own = self.plain(bar);
                            for cta in 0..ctas {
                                let there = self.b.mapa_shared_cluster_u32(own, cta);
                                if let Some(p) = who {
                                    self.b.on(p);
                                }
                                self.b.mbarrier_arrive_cluster(there);
                            }
                        }
                        None => {
                            if let Some(p) = who {
                                self.b.on(p);
                            }
                            self.b.mbarrier_arrive(bar);
                        }
                    }
                }
                Signal::Tx { .. } => return self.err(Code::E0803, op, "an empty side cannot count bytes"),
            }
        }
        self.own(op, p, slot, phase);
        Ok(())
    }
}
