//! What all warps share: parameters, barrier initialisation, tensor-memory allocation, dispatch to agents, exit.
//!
//! Named barrier 0 over all threads is the frame barrier: `bar.sync` in the prologue; at the end `bar.arrive` in
//! every warp but the allocating one, which does `bar.sync` and deallocates. Without tensor memory nothing is freed
//! at the end and the second use falls away. Source: architecture page, "Frame"; PTX ISA, mbarrier.

use super::convert::Scratch;
use super::params::{ScalarInfo, Source};
use super::{AgentCtx, Buffer, Lower, Pipe, Val, params};
use crate::error::{Code, CodegenError, CodegenResult};
use crate::ir::cluster;
use crate::ir::grid::GridOrder;
use crate::ir::{AttrData, Block, Op, Opcode, PipeDef, Signal, Space, TypeData, keys};
use crate::nvvm::{Bb, Operand, Reg, Special};
use crate::place::chains::rows_columns;
use smallvec::SmallVec;

/// More agents than warps there cannot be.
const MOST_AGENTS: usize = 32;

impl Lower<'_> {
    /// Lowers the whole kernel.
    pub(super) fn frame(&mut self) -> CodegenResult<()> {
        let f = self.f;
        let entry = f.entry();
        let limits = &self.isa.machine().limits;
        let threads = self.kernel_int(keys::NUM_THREADS).unwrap_or(0).max(limits.warp_threads);
        let most = limits.max_threads;
        if threads > most || !threads.is_multiple_of(limits.warp_threads.max(1)) {
            let text =
                format!("a CTA of {threads} threads; whole warps, {most} threads at most are possible");
            return Err(CodegenError::new(Code::E0803, f.loc, text));
        }
        self.b.func.launch.reqntid = Some([threads, 1, 1]);
        self.b.func.launch.minnctapersm = Some(1);
        let switch = f.block_ops(entry).find(|&o| f.opcode(o) == Opcode::AsyncPipelineAgentSwitch);
        for op in f.block_ops(entry).take_while(|&o| Some(o) != switch) {
            match f.opcode(op) {
                Opcode::AllocTensor => self.alloc(op)?,
                Opcode::AsyncPipelineCreatePipeline => self.create_pipeline(op)?,
                _ => {}
            }
        }
        self.load_params(entry)?;
        if f.attrs.get(keys::GRID_WAIT).is_some() {
            self.b.griddepcontrol_wait();
        }
        let tid = self.b.special(Special::TidX);
        let lanes = limits.warp_threads;
        let lane = self.b.and_b32(tid, lanes - 1);
        self.lane = Some(lane);
        let warp = self.b.shr_u32(tid, lanes.trailing_zeros());
        let warp = self.b.shfl_sync_idx_b32(warp, 0, lanes - 1, 0xffff_ffffu32);
        self.warp = Some(warp);
        if !self.scratches.is_empty() {
            // Known to every agent, whichever uses it first.
            self.base();
        }
        if let Some((axis, ctas)) = cluster::cluster_of(f) {
            let mut cluster = [1; 3];
            cluster[axis] = ctas;
            self.b.func.launch.cluster = Some(cluster);
            self.cluster = Some((ctas, self.b.special(Special::ClusterCtaRank)));
        }
        if !self.pipes.is_empty() || !self.abi.maps.is_empty() {
            self.init_barriers(tid);
        }
        if let Some(order) = GridOrder::of(f).filter(|_| self.cluster.is_none()) {
            self.order_tiles(order);
        }
        let together = self.alloc_columns(warp);
        if self.cluster.is_some() {
            // Others arrive at these barriers, and write to these slots.
            self.meet();
        } else if !together && !self.pipes.is_empty() {
            self.b.bar_sync_all(0);
        }
        match switch {
            None => {
                self.agent.warps = threads / lanes;
                self.agent.warp = warp.into();
                self.agent.scratch = self.scratches.first().copied().flatten();
                self.enter_agent_prologue(entry)?;
                self.block(entry)?;
                self.close_section();
                self.leave_agent();
                self.b.ret();
            }
            Some(switch) => {
                for op in f.block_ops(entry).take_while(|&o| o != switch) {
                    if !matches!(f.opcode(op), Opcode::AllocTensor | Opcode::AsyncPipelineCreatePipeline) {
                        self.op(op)?;
                    }
                }
                self.dispatch(switch, warp, threads)?;
            }
        }
        Ok(())
    }

    /// All threads of the cluster wait for each other.
    fn meet(&mut self) {
        self.b.barrier_cluster_arrive_release_aligned();
        self.b.barrier_cluster_wait_acquire_aligned();
    }

    /// Takes scalars, pointers, extents and strides out of the parameter space once.
    fn load_params(&mut self, entry: Block) -> CodegenResult<()> {
        for i in 0..self.abi.maps.len() {
            let p = self.nv.maps[i];
            self.nv.map_addr[i] = Some(self.b.cvta_param_u64(p));
        }
        for i in 0..self.abi.views.len() {
            let v = self.abi.views[i].value;
            if !matches!(self.abi.views[i].source, Source::Made { .. }) {
                self.vals[v] = Val::View;
            }
            if let Some(p) = self.nv.views[i].pointer {
                let r = self.b.ld_param_b64(p);
                let address = self.b.cvta_to_global_u64(r);
                self.nv.views[i].pointer_reg = Some(address);
                if matches!(self.abi.views[i].source, Source::Pointer) {
                    self.vals[v] = Val::Scalar(address.into());
                }
            }
            for d in 0..self.nv.views[i].sizes.len() {
                if let Some(p) = self.nv.views[i].sizes[d] {
                    self.nv.views[i].size_reg[d] = Some(self.b.ld_param_b32(p).into());
                }
                if let Some(p) = self.nv.views[i].strides[d] {
                    self.nv.views[i].stride_reg[d] = Some(self.b.ld_param_b32(p).into());
                }
            }
        }
        for i in 0..self.abi.scalars.len() {
            let ScalarInfo { value: v, ty: s, .. } = self.abi.scalars[i];
            let p = self.nv.scalars[i];
            use crate::ir::Scalar as S;
            let r: Operand = match s {
                S::F32 | S::TF32 => self.b.ld_param_f32(p).into(),
                S::I64 | S::F64 => self.b.ld_param_b64(p).into(),
                S::F16 | S::BF16 => {
                    let h = self.b.ld_param_b16(p);
                    if s == S::F16 { self.b.cvt_f32_f16(h).into() } else { self.b.cvt_f32_bf16(h).into() }
                }
                S::I1 => {
                    let r = self.b.ld_param_u8(p);
                    self.b.setp_ne_b32(r, 0).into()
                }
                S::I8 => self.b.ld_param_s8(p).into(),
                S::I16 => {
                    let h = self.b.ld_param_b16(p);
                    self.b.cvt_s32_s16(h).into()
                }
                S::I32 | S::Index => self.b.ld_param_b32(p).into(),
                S::E4M3 | S::E5M2 | S::UE8M0 => {
                    let byte = self.b.ld_param_u8(p);
                    let halves: SmallVec<[Reg; 2]> = self.b.unpack_b32_b16(byte).iter().collect();
                    self.widened(halves[0], s)[0]
                }
                _ => {
                    let message = format!("scalar parameters of type {} are unsupported", s.name());
                    return Err(crate::error::CodegenError::new(Code::E0804, self.f.loc, message));
                }
            };
            self.vals[v] = Val::Scalar(r);
        }
        let _ = entry;
        Ok(())
    }

    fn alloc(&mut self, op: Op) -> CodegenResult<()> {
        let f = self.f;
        let Some(result) = f.result(op) else { return Ok(()) };
        let TypeData::Tile { dims, elem, space: Some(space), layout: Some(layout) } = f.value_data(result)
        else {
            return self.err(Code::E0803, op, "the allocation has no space or layout");
        };
        let Some((&cols, outer)) = dims.split_last() else {
            return self.err(Code::E0803, op, "rank-0 allocation");
        };
        let rows: u32 = outer.iter().skip(1).product::<u32>().max(1);
        let (at, slot) = match space {
            Space::Smem => {
                let bytes = (u64::from(rows) * u64::from(cols) * u64::from(elem.bits())).div_ceil(8);
                let slot = u32::try_from(layout.slot_bytes(bytes)).unwrap_or(u32::MAX);
                (f.attr_int(op, keys::OFFSET), slot)
            }
            // The upper half of an address is the lane.
            Space::Tmem if self.columns.is_some() => {
                let lane = f.attr_int(op, keys::LANE).unwrap_or(0).clamp(0, 127);
                (f.attr_int(op, keys::COLUMN).map(|c| c.saturating_add(lane << 16)), cols)
            }
            Space::Tmem => return self.unsupported(op, "in tensor memory, which there is none of"),
            _ => return self.err(Code::E0803, op, "only shared and tensor memory can be allocated"),
        };
        let Some(at) = at.and_then(|a| u32::try_from(a).ok()) else {
            return self.err(Code::E0803, op, "the allocation has no address; run buffer assignment first");
        };
        if let Some(agent) = f.attr_int(op, keys::SCRATCH).and_then(|a| usize::try_from(a).ok()) {
            let named = f.attr_int(op, keys::NAMED).and_then(|n| u32::try_from(n).ok()).unwrap_or(0);
            if agent >= MOST_AGENTS || self.scratches.get(agent).is_some_and(Option::is_some) {
                return self.err(
                    Code::E0803,
                    op,
                    "the agent is none, or has memory between its warps already",
                );
            }
            self.scratches.resize(self.scratches.len().max(agent + 1), None);
            self.scratches[agent] =
                Some(Scratch { at, bytes: slot, named, own: f.has_attr(op, keys::STRIDE) });
            return Ok(());
        }
        let index = self.num_buffers;
        self.num_buffers += 1;
        self.vals[result] = Val::Buffer(Buffer {
            space: *space,
            at,
            slot,
            rows,
            cols,
            elem: *elem,
            layout: *layout,
            own: f.has_attr(op, keys::STRIDE),
            half: f.has_attr(op, keys::LANE),
            index,
        });
        Ok(())
    }

    fn create_pipeline(&mut self, op: Op) -> CodegenResult<()> {
        let f = self.f;
        let def = PipeDef::of(f, op);
        let buffers = f.operands(op);
        let tensor_side =
            buffers.is_empty() || buffers.iter().any(|&b| f.value_data(b).space() == Some(Space::Tmem));
        let pipe = Pipe {
            def,
            slots: def.slots.clamp(1, 1 << 16) as u32,
            full_at: def.full_at.unwrap_or(0) as i32,
            empty_at: def.empty_at.unwrap_or(0) as i32,
            named: def.named.and_then(|n| u32::try_from(n).ok()),
            own: f.has_attr(op, keys::INSTANCES),
            tensor_side,
            multicast: f.has_attr(op, keys::MULTICAST),
        };
        let index = self.pipes.len();
        self.pipes.push(pipe);
        for &r in f.results(op) {
            self.vals[r] = Val::Pipe(index);
        }
        Ok(())
    }

    /// Thread 0 initialises all mbarriers and warms the descriptor cache.
    fn init_barriers(&mut self, tid: Reg) {
        let base = self.base();
        let done = self.b.named_block("INIT_DONE");
        let p = self.b.setp_ne_u32(tid, 0);
        self.b.br_on(p, done);
        for i in 0..self.pipes.len() {
            if self.pipes[i].named.is_some() {
                continue;
            }
            let Pipe { def, slots, full_at, empty_at, multicast, .. } = self.pipes[i];
            let ctas = self.cluster.filter(|_| multicast).map_or(1, |c| c.0);
            for (signal, at, of) in [(def.full, full_at, 1), (def.empty, empty_at, ctas)] {
                if signal != Signal::None {
                    for s in 0..slots as i32 {
                        self.b.mbarrier_init((base, at + 8 * s), (signal.count() as u32).saturating_mul(of));
                    }
                }
            }
        }
        self.init_turns();
        if !self.pipes.is_empty() {
            self.b.fence_mbarrier_init();
        }
        for i in 0..self.abi.maps.len() {
            if let Some(m) = self.nv.map_addr[i] {
                self.b.prefetch_tensormap(m);
            }
        }
        self.b.place(done);
        self.b.bar_warp_sync(0xffff_ffffu32);
    }

    fn dispatch(&mut self, switch: Op, warp: Reg, threads: u32) -> CodegenResult<()> {
        let f = self.f;
        let first = f.attr_ints(switch, keys::WARP_ID).unwrap_or_default();
        let counts = f.attr_ints(switch, keys::NUM_WARPS).unwrap_or_default();
        let lanes: SmallVec<[bool; 8]> = match f.attr(switch, keys::LANES) {
            Some(AttrData::Array(list)) => list
                .iter()
                .map(|&a| matches!(f.attr_data(a), AttrData::Name(s) if f.symbol(*s) == "elect"))
                .collect(),
            _ => SmallVec::new(),
        };
        let regs = f.attr_ints(switch, keys::MAX_REGS).unwrap_or_default();
        let regions = f.regions(switch);
        let instances: SmallVec<[i64; 8]> = match f.attr_ints(switch, keys::INSTANCES) {
            Some(list) => list.iter().map(|&n| n.clamp(1, MOST_AGENTS as i64)).collect(),
            None => SmallVec::from_elem(1, regions.len()),
        };
        if [first.len(), counts.len(), lanes.len(), regs.len(), instances.len()]
            .iter()
            .any(|&n| n != regions.len())
        {
            return self.err(
                Code::E0803,
                switch,
                "one entry per agent is needed in num_warps, warp_id, lanes, max_regs and instances",
            );
        }
        let exit = self.b.named_block("JOIN");
        let blocks: SmallVec<[Bb; 8]> =
            (0..regions.len()).map(|i| self.b.named_block(params::dim_name("AGENT", "", i))).collect();
        for &bb in &blocks {
            self.b.func.blocks[bb].agent = true;
        }
        for i in 0..regions.len() {
            let (lo, n) = (first[i] as u32, (counts[i] * instances[i]) as u32);
            let p = if n == 1 {
                self.b.setp_eq_u32(warp, lo)
            } else if lo == 0 {
                self.b.setp_lt_u32(warp, n)
            } else {
                let ge = self.b.setp_ge_u32(warp, lo);
                let lt = self.b.setp_lt_u32(warp, lo + n);
                self.b.and_pred(ge, lt)
            };
            self.b.br_on(p, blocks[i]);
        }
        let ranges: SmallVec<[(u32, u32, u32); 8]> = (0..regions.len())
            .map(|i| (first[i] as u32, (counts[i] * instances[i]) as u32, regs[i] as u32))
            .collect();
        let cap = self.isa.machine().entry_registers(threads);
        if let Some(n) = self.idle_registers(switch, &ranges, threads)? {
            self.set_registers(n, cap);
        }
        self.b.bra(exit);
        for (i, &r) in regions.iter().enumerate() {
            self.b.place(blocks[i]);
            self.operand_bases.clear();
            let local = if first[i] == 0 { warp.into() } else { self.b.fold_sub(warp, first[i]) };
            self.agent = AgentCtx {
                elect: lanes[i],
                warps: counts[i] as u32,
                warp: local,
                issuer: None,
                first_lane: None,
                tensor: false,
                tmem_warp: None,
                thread: None,
                row_lanes: [None; 5],
                stores: false,
                staging: None,
                scratch: self.scratches.get(i).copied().flatten(),
                instance: None,
            };
            if instances[i] > 1 {
                self.enter_instance(switch, local)?;
            }
            self.reading = None;
            self.section = None;
            self.unfenced = super::Unfenced::default();
            let block = f.region_block(r);
            self.set_registers(ranges[i].2, cap);
            if lanes[i] {
                let p = self.b.elect_sync(0xffff_ffffu32);
                self.b.br_on_not(p, exit);
            }
            self.enter_agent_prologue(block)?;
            self.block(block)?;
            self.close_section();
            self.leave_agent();
            self.b.bra(exit);
        }
        self.b.place(exit);
        self.b.bar_warp_sync(0xffff_ffffu32);
        if self.cluster.is_some() {
            // Until then threads of others may arrive at the barriers of this one. What engines signal, its agents have waited for.
            self.meet();
        }
        self.free_columns(warp, threads);
        self.b.ret();
        Ok(())
    }

    /// Takes or gives registers, where an agent asks for others than it has at entry.
    fn set_registers(&mut self, n: u32, cap: u32) {
        match n.cmp(&cap) {
            _ if n == 0 => {}
            std::cmp::Ordering::Less => self.b.setmaxnreg_dec(n),
            std::cmp::Ordering::Greater => self.b.setmaxnreg_inc(n),
            std::cmp::Ordering::Equal => {}
        }
    }

    /// What warps without an agent must ask for: all warps of a warpgroup execute the same `setmaxnreg`. `ranges`: first
    /// warp, warps and registers of each agent.
    fn idle_registers(
        &self,
        switch: Op,
        ranges: &[(u32, u32, u32)],
        threads: u32,
    ) -> CodegenResult<Option<u32>> {
        let size = self.isa.machine().limits.warpgroup_warps.max(1);
        let mut idle = None;
        if ranges.iter().all(|r| r.2 == 0) {
            return Ok(idle);
        }
        let all = threads / self.isa.machine().limits.warp_threads;
        for group in 0..all.div_ceil(size) {
            let warps = group * size..(group + 1) * size;
            let whole = warps.end <= all;
            let of = |w: u32| ranges.iter().find(|r| (r.0..r.0 + r.1).contains(&w)).map(|r| r.2);
            let mut asked = warps.clone().filter_map(of);
            let Some(n) = asked.next() else { continue };
            if asked.any(|m| m != n) || n > 0 && !whole {
                let text = format!("the warps of warpgroup {group} do not ask for the same registers");
                return self.err(Code::E0803, switch, text);
            }
            if warps.clone().any(|w| of(w).is_none()) && *idle.get_or_insert(n) != n {
                return self.unsupported(switch, "with idle warps that need different registers");
            }
        }
        Ok(idle)
    }

    /// Values every iteration of an agent needs: thread number, issuer, lane field, descriptor words.
    fn enter_agent_prologue(&mut self, block: Block) -> CodegenResult<()> {
        let f = self.f;
        let is_tmem = |v: crate::ir::Value| f.value_data(v).space() == Some(Space::Tmem);
        let mut issuer = false;
        // Bit b: some tile has rows in the first 2^b lanes of each warp only.
        let mut few_rows = 0_u32;
        let mut tmem_access = false;
        let mut per_warp = false;
        let mut dots: SmallVec<[crate::ir::Op; 8]> = SmallVec::new();
        let (tensor, lane) = (self.columns.is_some(), self.isa.mma_contract().issue.is_lane());
        let agent = &mut self.agent;
        f.walk(block, &mut |op| {
            match f.opcode(op) {
                Opcode::AsyncTiledTmaLoad | Opcode::AsyncTiledTmaStore => {
                    issuer = true;
                    agent.stores |= f.opcode(op) == Opcode::AsyncTiledTmaStore;
                }
                Opcode::AsyncDot => {
                    issuer |= lane;
                    agent.tensor |= tensor;
                    dots.push(op);
                }
                Opcode::Copy => {
                    tmem_access |= f.operands(op).iter().any(|&v| is_tmem(v));
                }
                _ => {}
            }
            // What follows is for agents with all their threads.
            if agent.elect {
                return;
            }
            issuer |= f.has_attr(op, keys::ISSUER);
            per_warp |= f.has_attr(op, keys::PER_WARP) || f.opcode(op) == Opcode::AsyncPipelineGiveTurn;
            for &v in f.results(op) {
                let d = f.value_data(v);
                if d.space() == Some(Space::Rmem) {
                    let dims = d.dims().filter(|_| d.layout() == Some(crate::ir::Layout::Row)).unwrap_or(&[]);
                    let lanes = (rows_columns(dims).0 / agent.warps.max(1)).checked_ilog2();
                    few_rows |= lanes.filter(|&b| dims.len() >= 2 && b < 5).map_or(0, |b| 1 << b);
                }
            }
        });
        self.agent.tensor |= tmem_access;
        self.agent.staging = self.staging(block);
        if self.agent.elect {
            // Here, where they are at hand in all blocks.
            return dots.into_iter().try_for_each(|op| self.operand_bases(op));
        }
        let lane = self.lane.unwrap_or_else(|| self.b.special(Special::LaneId));
        let lanes = self.isa.machine().limits.warp_threads;
        let base = self.b.fold_shl(self.agent.warp, lanes.trailing_zeros());
        let thread = self.b.fold_add(base, lane);
        self.agent.thread = Some(self.b.as_reg(crate::nvvm::RegTy::B32, thread));
        dots.into_iter().try_for_each(|op| self.operand_bases(op))?;
        if issuer {
            let e = self.b.elect_sync(0xffff_ffffu32);
            let w = self.b.as_reg(crate::nvvm::RegTy::B32, self.agent.warp);
            self.agent.issuer = Some(self.b.setp_eq_and_s32(w, 0, e));
        }
        if per_warp {
            self.agent.first_lane = Some(self.b.setp_eq_u32(lane, 0));
        }
        if tmem_access {
            self.enter_columns();
        }
        for b in (0..5).filter(|b| few_rows >> b & 1 == 1) {
            self.agent.row_lanes[b] = Some(self.b.setp_lt_u32(lane, 1_u32 << b));
        }
        Ok(())
    }

    /// What was stored to tensor memory and is not read is there before that is given back; every lane that stored in
    /// bulk waits until its sources have been read.
    fn leave_agent(&mut self) {
        self.wait_stores();
        if !self.agent.stores {
            return;
        }
        if self.agent.elect {
            self.b.bulk_wait_group_read(0);
        } else if let Some(p) = self.agent.issuer {
            self.b.on(p).bulk_wait_group_read(0);
        }
    }
}
