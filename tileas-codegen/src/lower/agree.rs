//! One value where several threads load an element that others may be writing.
//!
//! In: the tile that a relaxed or acquiring load or an atomic update has given, of which threads hold copies. A weak load finds the same wherever it
//! is made; of one that others write meanwhile the threads may find different values, and would go different ways where a
//! branch depends on it. Out: the tile as the first thread of each element has it: lanes get it by a shuffle, warps through the agent's memory
//! ([`crate::storage::scratch::copies_bytes`]). What was found is ordered before the barrier between.

use super::reduce::{shared_load, shared_store};
use super::tile::packing;
use super::{Lower, TileVal, Val};
use crate::error::CodegenResult;
use crate::ir::Op;
use crate::layout::Scope;
use crate::layout::gf2::Columns;
use crate::nvvm::{Operand, PtxOp};
use crate::storage::scratch::{copies_bytes, is_found_anew};

impl Lower<'_> {
    /// Gives all threads that hold an element of an op's result the value that the first of them has.
    pub(super) fn agree(&mut self, op: Op) -> CodegenResult<()> {
        let f = self.f;
        let Some(result) = f.result(op).filter(|_| is_found_anew(f, op)) else { return Ok(()) };
        let value = self.vals[result];
        if !matches!(value, Val::Tile(_)) {
            return Ok(());
        }
        let t = self.expand(op, &value)?;
        let map = self.linear(op, t.layout, self.dims(&t))?;
        let copies = map.replicas();
        let places = || [map.register(), map.lane(), map.warp()].into_iter().flatten().enumerate();
        if places().all(|(k, _)| copies.pivots >> k & 1 == 1) {
            return Ok(());
        }
        // A copy is in the same place but for the bits that tell copies apart.
        if places().any(|(k, &c)| copies.pivots >> k & 1 == 0 && c != 0) {
            return self.unsupported(op, "that others may write meanwhile, in this layout");
        }
        let (start, packed) = (t.regs.range().start, packing(t.elem));
        for unit in 0..t.regs.len() {
            let own = ((unit << packed) & copies.pivots as usize) >> packed;
            self.units[start + unit] = self.units[start + own];
        }
        let mut words = self.words(&t, t.elem);
        if let Some(lane) = self.lane.filter(|_| copies.lanes != 0) {
            let from = self.b.and_b32(lane, !copies.lanes);
            for x in &mut words.list {
                let (value, d) = (self.b.as_reg(words.ty, *x), self.b.reg(words.ty));
                let operands = [d.into(), value.into(), from.into(), 31u32.into(), 0xffff_ffffu32.into()];
                self.b.emit(PtxOp::ShflSyncIdxB32, &operands);
                *x = d.into();
            }
        }
        if copies.warps != 0 {
            let bytes = copies_bytes(f, op, self.agent.warps);
            let (base, at) = self.scratch(op, bytes, Scope::Agent)?;
            // Of each word a row of the threads that hold no copies.
            let mut next = 4;
            let place: Columns = (0..5 + map.warp().len())
                .map(|k| {
                    let own = if k >= 5 && copies.warps >> (k - 5) & 1 == 1 { 0 } else { next };
                    next <<= u32::from(own != 0);
                    own
                })
                .collect();
            let base = match self.by_thread(&place) {
                Operand::Imm(0) => base,
                x => self.b.add_u32(base, x),
            };
            let address = |w: usize| Operand::addr(base, at + (w as u32 * next) as i32);
            let first = self.copies_guard((0, copies.warps));
            for (w, x) in words.list.iter().enumerate() {
                let x = self.b.as_reg(words.ty, *x);
                if let Some(p) = first {
                    self.b.on(p);
                }
                self.b.emit(shared_store(words.ty, 1), &[address(w), x.into()]);
            }
            self.agent_barrier(op)?;
            for (w, x) in words.list.iter_mut().enumerate() {
                let d = self.b.reg(words.ty);
                self.b.emit(shared_load(words.ty, 1), &[d.into(), address(w)]);
                *x = d.into();
            }
        }
        let regs = self.units_of(words, t.elem);
        self.vals[result] = Val::Tile(TileVal { regs, ..t });
        Ok(())
    }
}
