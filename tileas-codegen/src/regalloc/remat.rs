//! Values that are cheaper to compute again than to store.
//!
//! A register can be made again anywhere if its only write, unguarded, is a pure instruction on constants, special
//! registers, variables and parameters, or on registers of that kind, in a chain of at most [`CHAIN`] instructions.

use crate::nvvm::{AddressSpace, Bb, Function, Inst, Kind, Operand, Reg};
use cranelift_entity::SecondaryMap;

/// Instructions of the longest chain that is computed again.
const CHAIN: u32 = 3;

/// Which registers can be made again.
#[derive(Default)]
pub(super) struct Remat {
    /// The only write; `Some(None)`: there are several.
    writer: SecondaryMap<Reg, Option<Option<Inst>>>,
    /// Length of the chain plus one; 1: cannot.
    cost: SecondaryMap<Reg, u32>,
}

impl Remat {
    /// Looks at the whole function.
    pub(super) fn scan(&mut self, func: &Function) {
        self.writer.clear();
        self.cost.clear();
        for &bb in func.layout() {
            for inst in func.insts(bb) {
                let guarded = func.guard(inst).is_some();
                func.visit_writes(inst, |r| {
                    self.writer[r] =
                        Some(if self.writer[r].is_none() && !guarded { Some(inst) } else { None });
                });
            }
        }
    }

    /// Instructions it takes to make the register again, if it can be done.
    pub(super) fn cost(&mut self, func: &Function, r: Reg) -> Option<u32> {
        self.cost_within(func, r, CHAIN)
    }

    fn cost_within(&mut self, func: &Function, r: Reg, depth: u32) -> Option<u32> {
        match self.cost[r] {
            0 => {}
            1 => return None,
            n => return (n - 1 <= depth).then_some(n - 1),
        }
        // A chain that is too deep from here may do from nearer: only what is certain is kept.
        let cost = self.chain(func, r, depth);
        match cost {
            Some(n) => self.cost[r] = n + 1,
            None if depth == CHAIN => self.cost[r] = 1,
            None => {}
        }
        cost
    }

    fn chain(&mut self, func: &Function, r: Reg, depth: u32) -> Option<u32> {
        let inst = self.writer[r]??;
        if depth == 0 {
            return None;
        }
        let form = func.op(inst).form();
        let constant_load = form.operands.iter().any(|c| c.kind == Kind::Addr(AddressSpace::Param))
            && !form.effects.is_volatile();
        if !(form.effects.is_pure() || constant_load) {
            return None;
        }
        let mut cost = 1;
        for (i, (operand, class)) in func.operands(inst).iter().zip(form.operands).enumerate() {
            match *operand {
                // One scalar result, and nothing else written.
                Operand::Reg(_) if class.def && i == 0 => {}
                _ if class.def => return None,
                Operand::Reg(s) => cost += self.cost_within(func, s, depth - 1)?,
                Operand::Imm(_)
                | Operand::F32(_)
                | Operand::Special(_)
                | Operand::Sym(_)
                | Operand::Param(_)
                | Operand::ParamAddr { .. } => {}
                _ => return None,
            }
        }
        (cost <= CHAIN).then_some(cost)
    }

    /// Makes `r` again, before `at`. Call only where [`Remat::cost`] has a value.
    pub(super) fn emit(&self, func: &mut Function, bb: Bb, at: Inst, r: Reg) {
        self.emit_to(func, bb, at, r, r, CHAIN);
    }

    fn emit_to(&self, func: &mut Function, bb: Bb, at: Inst, r: Reg, into: Reg, depth: u32) {
        let Some(Some(inst)) = self.writer[r] else { return };
        if depth == 0 {
            return;
        }
        let mut operands = func.operands(inst).to_vec();
        for (i, operand) in operands.iter_mut().enumerate() {
            match *operand {
                Operand::Reg(_) if i == 0 => *operand = into.into(),
                Operand::Reg(s) => {
                    let ty = func.ty(s);
                    let copy = func.reg(ty);
                    self.emit_to(func, bb, at, s, copy, depth - 1);
                    *operand = copy.into();
                }
                _ => {}
            }
        }
        let again = func.make_inst(func.op(inst), &operands, Default::default());
        func.insert_before(bb, at, again);
    }
}
