//! From the instructions of a block to the units of the graph.

use super::{Builder, Found, Mention, NoGraph, UnitKind, starts_group};
use crate::nvvm::{Bb, Inst, PtxOp};
use crate::regalloc::names::NONE;
use regalloc2::{Operand, OperandConstraint, OperandKind, OperandPos};

impl Builder<'_> {
    /// Cuts a block into units and notes, walking backwards, what each does with which name.
    pub(super) fn walk(&mut self, bb: Bb) -> Result<Vec<Found>, NoGraph> {
        let func = self.func;
        let insts: Vec<Inst> = func.insts(bb).collect();
        let is_branch = |i: Inst| matches!(func.op(i), PtxOp::Bra | PtxOp::BraUni);
        let mut cuts: Vec<(usize, usize, UnitKind)> = Vec::new();
        let mut i = 0;
        while i < insts.len() {
            let mut last = i;
            let mut kind = UnitKind::Plain;
            if starts_group(func, insts[i]) {
                last = (i..insts.len())
                    .find(|&j| func.op(insts[j]).effects().delivers() && !func.guard(insts[j]).is_some())
                    .ok_or(NoGraph::Unwaited(insts[i]))?;
            } else if is_branch(insts[i]) {
                kind = UnitKind::Branch;
                last = insts.len() - 1;
            } else if i + 1 == insts.len() {
                kind = UnitKind::Return;
            }
            cuts.push((i, last, kind));
            i = last + 1;
        }
        self.live.fill(0);
        self.live_now = [0; 3];
        for r in self.liveness.live_out(bb) {
            self.set_live(r, true);
        }
        let mut out = Vec::with_capacity(cuts.len());
        for (from, to, kind) in cuts.into_iter().rev() {
            let start = self.mentions.len();
            // Members alive behind the unit, for the names it mentions.
            let mut after: Vec<u32> = Vec::new();
            for &inst in &insts[from..=to] {
                func.visit_regs(inst, |r, def| {
                    let name = self.names.of(r);
                    if name == NONE {
                        return;
                    }
                    let found = self.mentions[start..].iter().position(|m| m.name == name);
                    let at = found.unwrap_or_else(|| {
                        after.push(self.live[name as usize]);
                        self.mentions.push(Mention {
                            name,
                            reads: false,
                            writes: false,
                            keeps: false,
                            late: false,
                        });
                        self.mentions.len() - 1 - start
                    });
                    self.mentions[start + at].writes |= def;
                    self.mentions[start + at].late |= !def && func.op(inst).effects().is_async();
                });
            }
            let mut written: Vec<u32> = vec![0; after.len()];
            for &inst in insts[from..=to].iter().rev() {
                let guarded = func.guard(inst).is_some();
                func.visit_writes(inst, |r| {
                    // Also what is not read takes a register where it is written.
                    self.set_live(r, true);
                });
                func.visit_writes(inst, |r| {
                    if !guarded {
                        self.set_live(r, false);
                        let name = self.names.of(r);
                        if let Some(at) = self.mentions[start..].iter().position(|m| m.name == name) {
                            let members = &self.names.list[name as usize].members;
                            let bit = members.iter().position(|m| m.expand() == Some(r));
                            written[at] |= bit.map_or(0, |b| 1 << b);
                        }
                    }
                });
                func.visit_reads(inst, |r| self.set_live(r, true));
            }
            for (at, m) in self.mentions[start..].iter_mut().enumerate() {
                let before = self.live[m.name as usize];
                m.reads = before != 0;
                m.keeps = m.writes && before & after[at] & !written[at] != 0;
            }
            out.push(Found {
                insts: (insts[from], insts[to]),
                mentions: (start as u32, self.mentions.len() as u32),
                kind,
                group: from != to && kind == UnitKind::Plain,
            });
        }
        out.reverse();
        Ok(out)
    }

    /// Operands of a unit; moves the versions on.
    pub(super) fn operands(&mut self, f: &Found) -> Vec<Operand> {
        let mut uses = Vec::new();
        let mut reuse: Vec<Option<usize>> = Vec::new();
        let range = f.mentions.0 as usize..f.mentions.1 as usize;
        let use_of = |v, pos| Operand::new(v, OperandConstraint::Reg, OperandKind::Use, pos);
        for m in &self.mentions[range.clone()] {
            let at = uses.len();
            if m.reads {
                let late = (m.late || f.group) && !m.keeps;
                let pos = if late { OperandPos::Late } else { OperandPos::Early };
                uses.push(use_of(self.version[m.name as usize], pos));
            }
            reuse.push(m.keeps.then_some(at));
        }
        let mut operands = uses;
        for (i, reuse) in range.zip(reuse) {
            let m = self.mentions[i];
            if !m.writes {
                continue;
            }
            let v = self.fresh(m.name);
            self.version[m.name as usize] = v;
            operands.push(match reuse {
                Some(at) => Operand::new(v, OperandConstraint::Reuse(at), OperandKind::Def, OperandPos::Late),
                None => {
                    let pos = if f.group { OperandPos::Early } else { OperandPos::Late };
                    Operand::new(v, OperandConstraint::Reg, OperandKind::Def, pos)
                }
            });
        }
        operands
    }
}
