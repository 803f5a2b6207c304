//! Accumulators in columns of tensor memory: allocated by a warp, moved by the warps of a warpgroup, ordered by fences.
//!
//! Only for targets whose accumulators are allocated so; for others nothing of this is emitted. Who issues what is said by
//! [`crate::isa::EmitColumns`]; this file knows when: loads wait at once, stores before what may meet them, and fences
//! follow what the threads of an agent have done, see [`Unfenced`].

use super::{Buffer, Lower, TileVal};
use crate::error::{Code, CodegenResult};
use crate::ir::layouts::{moved_map, register_map};
use crate::ir::{Block, Layout, Op, Opcode, Space, Value, ValueDef, keys};
use crate::isa::EmitColumns;
use crate::layout::Access;
use crate::nvvm::{Operand, Reg, RegTy, Regs};
use crate::place::chains::rows_columns;
use smallvec::SmallVec;

/// Columns of tensor memory that are stored to.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Stored {
    /// Number of the buffer.
    pub buffer: u32,
    /// Which slot of it.
    pub slot: Operand,
    /// Columns of the slot.
    pub columns: (u32, u32),
    /// Columns of tensor memory; all from its buffer on where it is not known which slot.
    pub range: (u32, u32),
}

impl Stored {
    /// Columns `from` to `to` of a slot.
    pub fn of(buf: &Buffer, slot: Operand, from: u32, to: u32) -> Stored {
        let range = match slot {
            Operand::Imm(n) => {
                let at = buf.at + n as u32 * buf.slot;
                (at + from, at + to)
            }
            _ => (buf.at, u32::MAX),
        };
        Stored { buffer: buf.index, slot, columns: (from, to), range }
    }

    /// Whether two may have a column in common.
    pub fn meets(&self, other: &Stored) -> bool {
        let meet = |a: (u32, u32), b: (u32, u32)| a.0 < b.1 && b.0 < a.1;
        match (self.buffer, self.slot) == (other.buffer, other.slot) {
            true => meet(self.columns, other.columns),
            false => meet(self.range, other.range),
        }
    }
}

/// Stores of which it is not known that they are complete.
pub(crate) type Stores = SmallVec<[Stored; 8]>;

/// What of tensor memory no fence has ordered with the signals and waits of the same threads yet. Order travels through
/// any barrier, also one that hands over something else, so this follows the threads, not the pipes.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Unfenced {
    /// Accesses, or order taken in by a wait, that the next signal must publish.
    pub accesses: bool,
    /// Waits that the next access must follow.
    pub waits: bool,
}

impl Unfenced {
    /// What may be open where two paths meet.
    pub fn or(self, other: Unfenced) -> Unfenced {
        Unfenced { accesses: self.accesses || other.accesses, waits: self.waits || other.waits }
    }
}

impl<'a> Lower<'a> {
    /// What is emitted where the target has columns.
    fn columns(&self, op: Op) -> CodegenResult<&'a dyn EmitColumns> {
        match self.columns {
            Some(c) => Ok(c),
            None => self.unsupported(op, "has no tensor memory"),
        }
    }

    /// The warp that allocates.
    fn owner(&self) -> u32 {
        let f = self.f;
        f.block_ops(f.entry())
            .filter(|&o| f.opcode(o) == Opcode::AllocTensor)
            .find_map(|o| f.attr_int(o, keys::OWNER_WARP))
            .map_or(0, |w| w.clamp(0, 31) as u32)
    }

    /// Allocates what the kernel asks for; all threads meet behind it. Whether there was anything to do.
    pub(super) fn alloc_columns(&mut self, warp: Reg) -> bool {
        let (Some(emit), Some(cols)) = (self.columns, self.kernel_int(keys::TMEM_COLUMNS)) else {
            return false;
        };
        if cols == 0 {
            return false;
        }
        let base = self.base();
        let at = self.kernel_int(keys::TMEM_BASE_AT).unwrap_or(0) as i32;
        let done = self.b.named_block("ALLOC_DONE");
        let p = self.b.setp_ne_u32(warp, self.owner());
        self.b.br_on(p, done);
        emit.alloc(&mut self.b, Operand::addr(base, at), cols);
        self.b.place(done);
        emit.fence_before(&mut self.b);
        self.b.bar_sync_all(0);
        emit.fence_after(&mut self.b);
        self.tmem = Some((self.b.ld_shared_b32((base, at)), cols));
        true
    }

    /// Frees what [`Lower::alloc_columns`] allocated, once all warps have come here.
    pub(super) fn free_columns(&mut self, warp: Reg, threads: u32) {
        let (Some(emit), Some((base, cols))) = (self.columns, self.tmem) else { return };
        emit.fence_before(&mut self.b);
        let free = self.b.named_block("FREE");
        let p = self.b.setp_eq_u32(warp, self.owner());
        self.b.br_on(p, free);
        self.b.bar_arrive(0, threads);
        self.b.ret();
        self.b.place(free);
        self.b.bar_sync(0, threads);
        emit.fence_after(&mut self.b);
        emit.free(&mut self.b, base, cols);
    }

    /// The base of what was allocated.
    pub(super) fn tensor_base(&self, op: Op) -> CodegenResult<Reg> {
        match self.tmem {
            Some((base, _)) => Ok(base),
            None => self.err(Code::E0803, op, "no tensor memory is allocated"),
        }
    }

    /// The base of the rows that the agent's warps move.
    pub(super) fn enter_columns(&mut self) {
        if let (Some(emit), Some((base, _))) = (self.columns, self.tmem) {
            let r = emit.warp_base(&mut self.b, base, self.agent.warp);
            self.agent.tmem_warp = Some(self.b.as_reg(RegTy::B32, r));
        }
    }

    /// Tensor memory is divided among the warps of a warpgroup: warp w reads and writes the lanes from 32 w on.
    fn check_tensor_rows(&self, op: Op, buf: &Buffer, rows: u32) -> CodegenResult<()> {
        let warps = self.isa.machine().limits.warpgroup_warps;
        let fits = match buf.layout {
            Layout::Tmem128 => rows == 128,
            Layout::Tmem64 => rows == 64,
            _ => false,
        };
        if fits && self.agent.warps == warps {
            return Ok(());
        }
        self.unsupported(
            op,
            format!(
                "moves whole columns of tensor memory by {warps} warps, not {rows} rows of layout {} by {} (option simt-warps)",
                buf.layout, self.agent.warps
            ),
        )
    }

    /// Tensor-memory address of this warp's lanes in slot `slot`.
    fn tmem_addr(&mut self, op: Op, buf: &Buffer, slot: Operand) -> CodegenResult<(Reg, i32)> {
        let base = match self.agent.tmem_warp {
            Some(base) => base,
            None => self.tensor_base(op)?,
        };
        Ok(match slot {
            Operand::Imm(n) => (base, (buf.at + n as u32 * buf.slot) as i32),
            s => {
                let off = self.b.fold_mul(s, buf.slot);
                (self.b.add_u32(base, off), buf.at as i32)
            }
        })
    }

    /// How the columns of a tile are moved that threads hold in a layout; `None`: they are not.
    fn column_access(&self, op: Op, buf: &Buffer, dims: &[u32], layout: Layout) -> CodegenResult<Access> {
        let warps = self.agent.warps;
        let held = register_map(layout, dims, warps);
        match held.is_some() && held == moved_map(buf.layout, dims, warps) {
            _ if layout == Layout::Row && !buf.half => Ok(Access::Rows),
            // Rows of whole warps would reach into the lanes of another buffer.
            true if layout != Layout::Row => Ok(Access::B256),
            _ => self.unsupported(op, format!("moves tiles in layout {layout} here")),
        }
    }

    /// Reads this thread's part of a sub-tile from column `col0` on.
    #[expect(clippy::too_many_arguments, reason = "one place reads one sub-tile")]
    pub(super) fn load_columns(
        &mut self,
        op: Op,
        buf: &Buffer,
        slot: Operand,
        col0: u32,
        dims: &[u32],
        layout: Layout,
        regs: Regs,
    ) -> CodegenResult<()> {
        self.check_tensor_rows(op, buf, rows_columns(dims).0)?;
        let access = self.column_access(op, buf, dims, layout)?;
        let base = self.tmem_addr(op, buf, slot)?;
        let base = self.numbered(op, base, dims.last().copied().unwrap_or(0))?;
        self.columns(op)?.load(&mut self.b, access, regs, (base.0, base.1 + col0 as i32));
        Ok(())
    }

    /// Writes this thread's part of a tile.
    pub(super) fn store_columns(
        &mut self,
        op: Op,
        t: &TileVal,
        buf: &Buffer,
        slot: Operand,
    ) -> CodegenResult<()> {
        if t.elem.bits() != 32 {
            return self.unsupported(op, "stores 32-bit elements to tensor memory");
        }
        let (rows, columns) = rows_columns(self.dims(t));
        self.check_tensor_rows(op, buf, rows)?;
        let access = self.column_access(op, buf, self.dims(t), t.layout)?;
        let col0 =
            self.f.attr_ints(op, keys::OFFSETS).and_then(|o| o.last().copied()).unwrap_or(0).max(0) as i32;
        let base = self.tmem_addr(op, buf, slot)?;
        self.fence_access();
        let stored = Stored::of(buf, slot, col0 as u32, col0 as u32 + columns);
        if self.pending_st.iter().any(|s| s.meets(&stored)) {
            // Of two stores to one column the first may come last.
            self.wait_stores();
        }
        let values = &self.units[t.regs.start as usize..t.regs.start as usize + t.regs.len()];
        self.columns(op)?.store(&mut self.b, access, (base.0, base.1 + col0), values);
        self.pending_st.push(stored);
        Ok(())
    }

    /// Waits for all stores of this thread to tensor memory.
    pub(super) fn wait_stores(&mut self) {
        self.publish_stores(false);
    }

    /// As [`Lower::wait_stores`], even if there are none with `always`.
    pub(super) fn publish_stores(&mut self, always: bool) {
        if let Some(emit) = self.columns.filter(|_| always || !self.pending_st.is_empty()) {
            self.pending_st.clear();
            emit.store_wait(&mut self.b);
        }
    }

    /// Before loads of what may have been stored by this thread.
    pub(super) fn before_load(&mut self) {
        self.fence_access();
        self.wait_stores();
    }

    /// Writes `x` to `n` columns of this warp's rows and waits until it is there.
    fn fill(&mut self, half: bool, (base, offset): (Reg, i32), n: u32, x: Reg, emit: &dyn EmitColumns) {
        // Columns that a register of every thread fills, in eighths.
        let (access, each) = if half { (Access::B256, 16) } else { (Access::Rows, 8) };
        for at in (0..n).step_by(4 * each) {
            let values = &[Operand::Reg(x); 32][..((n - at) * 8 / each as u32).min(32) as usize];
            emit.store(&mut self.b, access, (base, offset + at as i32), values);
        }
        emit.store_wait(&mut self.b);
    }

    /// Writes `x` to the columns of this thread's row from column `first` on, of the slice of that width that `op` names.
    pub(super) fn fill_columns(
        &mut self,
        op: Op,
        buf: &Buffer,
        slot: Operand,
        (first, width): (u32, u32),
        x: Reg,
    ) -> CodegenResult<()> {
        let emit = self.columns(op)?;
        let base = self.tmem_addr(op, buf, slot)?;
        let (base, offset) = self.numbered(op, base, width)?;
        self.fill(buf.half, (base, offset + first as i32), width, x, emit);
        Ok(())
    }

    /// Does once, before a loop over the slices of tensor memory, what `when` asks for in each of its iterations: all slices
    /// become `otherwise`, and the copies in the loop read them. Right where one slot is read by every iteration, which
    /// nothing in the loop writes.
    pub(super) fn fill_ahead(&mut self, op: Op, body: Block, range: (Operand, Operand)) -> CodegenResult<()> {
        let f = self.f;
        let (Operand::Imm(lo), Operand::Imm(hi)) = range else { return Ok(()) };
        let outside = |v: Value| match f.value_def(v) {
            ValueDef::Result(def, _) => f.op_block(def) != Some(body),
            ValueDef::Param(b, _) => b != body,
        };
        for copy in f.block_ops(body).filter(|&o| f.opcode(o) == Opcode::Copy) {
            let (Some(when), Some(number), Some(source), Some(result)) = (
                f.named_operand(copy, "when"),
                f.named_operand(copy, "number"),
                f.named_operand(copy, "source"),
                f.result(copy),
            ) else {
                continue;
            };
            let data = f.value_data(result);
            let (Some(dims), Some(elem)) = (data.dims(), data.elem()) else { continue };
            let fits = f.block_params(body).first() == Some(&number)
                && f.constant_value(*f.operands(op).get(2).unwrap_or(&number)) == Some(1.0)
                && outside(when)
                && f.named_segment(copy, "source_stage").iter().all(|&v| outside(v))
                && f.block_ops(body).all(|o| f.named_operand(o, "dest") != Some(source))
                && f.value_data(source).space() == Some(Space::Tmem)
                && matches!(super::control::element_reg(elem), RegTy::F32 | RegTy::B32)
                && elem.bits() == 32
                && self.row_guard(dims).is_none();
            let Operand::Reg(p) = self.scalar(copy, when)? else { continue };
            if !fits || hi <= lo {
                continue;
            }
            let buf = self.buffer(copy, source)?;
            let slot = self.stage(copy, f.named_segment(copy, "source_stage"))?;
            let width = i64::from(dims.last().copied().unwrap_or(0));
            let first = f.attr_ints(copy, keys::OFFSETS).and_then(|o| o.last().copied()).unwrap_or(0);
            let (first, columns) = (first + lo * width, (hi - lo) * width);
            let otherwise = f.attr_number(copy, keys::OTHERWISE).unwrap_or(0.0);
            let rt = super::control::element_reg(elem);
            self.before_load();
            let join = self.b.block();
            self.b.br_on(p, join);
            let x = match rt {
                RegTy::F32 => self.b.imm(rt, Operand::f32(otherwise as f32)),
                _ => self.b.imm(rt, Operand::Imm(otherwise as i64)),
            };
            let emit = self.columns(copy)?;
            let (base, offset) = self.tmem_addr(copy, &buf, slot)?;
            self.fill(buf.half, (base, offset + first as i32), columns.max(0) as u32, x, emit);
            self.b.place(join);
            self.b.bar_warp_sync(0xffff_ffffu32);
            self.filled.push(copy);
        }
        Ok(())
    }

    /// Before a signal of this thread: publishes its accesses to tensor memory, if there are any that no fence has, or
    /// if `always`.
    pub(super) fn fence_signal(&mut self, always: bool) {
        if let Some(emit) = self.columns.filter(|_| always || self.unfenced.accesses) {
            emit.fence_before(&mut self.b);
            // What one lane fences is not fenced for the others.
            self.unfenced.accesses &= self.section.is_some();
        }
    }

    /// Behind a wait of this thread: later accesses to tensor memory follow it, by a fence here with `now`, else by one
    /// before the first of them.
    pub(super) fn fence_wait(&mut self, now: bool) {
        match now {
            _ if !self.agent.tensor => {}
            true => self.fence_after(),
            false => self.unfenced.waits = true,
        }
    }

    fn fence_after(&mut self) {
        if let Some(emit) = self.columns {
            emit.fence_after(&mut self.b);
            self.unfenced.waits &= self.section.is_some();
            self.unfenced.accesses |= !self.agent.elect;
        }
    }

    /// Orders what follows behind the waits of this thread that no fence has ordered yet.
    pub(super) fn fence_waited(&mut self) {
        if self.unfenced.waits {
            self.fence_after();
        }
    }

    /// Before an access to tensor memory: whatever its threads have waited for comes first.
    pub(super) fn fence_access(&mut self) {
        self.fence_waited();
        // What one lane gives to the matrix engine is complete by a commit, which needs no fence.
        self.unfenced.accesses |= self.section.is_none() && !self.agent.elect;
    }

    /// What may be open where an iteration of a loop begins: what its body may leave open comes round.
    pub(super) fn unfenced_around(&self, body: crate::ir::Block) -> Unfenced {
        let mut open = self.unfenced;
        if !self.agent.tensor {
            return open;
        }
        let f = self.f;
        f.walk(body, &mut |op| match f.opcode(op) {
            Opcode::Copy => {
                let tensor = |&v: &Value| f.value_data(v).space() == Some(Space::Tmem);
                open.accesses |= !self.agent.elect && f.operands(op).iter().any(tensor);
            }
            Opcode::AsyncPipelineConsumerWait | Opcode::AsyncPipelineProducerAcquire => open.waits = true,
            _ => {}
        });
        open
    }
}
