//! Register pressure: how many registers are live at once, where the peak is, and whether budgets hold.
//!
//! In: a function, its liveness, a range of blocks (that of an agent). Out: its [`Pressure`].
//! Unit: 32-bit registers; a 64-bit register counts two, a 16-bit one counts one (ptxas may pack them), predicates
//! count in a file of their own. At an instruction both what it reads and what it writes are live, except that a
//! result may take the place of a source that dies there. Cost: linear in instructions.

use crate::nvvm::{Bb, Function, Inst, Reg, RegTy};
use crate::nvvm::{Liveness, Mention};
use cranelift_entity::EntityRef;

/// Peak of one range of blocks.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Pressure {
    /// Live 32-bit registers at the peak.
    pub units: u32,
    /// The first instruction, in layout order, at which the peak occurs.
    pub at: Option<Inst>,
    /// Live predicates at their own peak.
    pub predicates: u32,
    /// Where that is.
    pub predicates_at: Option<Inst>,
}

/// Blocks of one agent and the registers it may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentRange {
    /// Name for reports.
    pub name: String,
    /// Its blocks.
    pub blocks: Vec<Bb>,
    /// Registers per thread: the entry cap, or what `setmaxnreg` gives it.
    pub max_regs: u32,
}

/// Registers kept free for the assembler's own temporaries. Kernels as lowered need at most 2 above its floors; kernels
/// whose spills were planned mostly no more than 8, a few much more. Figures in `docs/registers.md`.
pub const PTXAS_RESERVE: u32 = 8;

/// Computes pressure; keeps its memory.
#[derive(Default)]
pub struct PressureScratch {
    /// By register: the last walk of a block in which it is live.
    live: Vec<u32>,
    /// Number of walks so far, in all calls: nothing is cleared between them.
    walk: u32,
}

/// Live registers: units in the low half, predicates in the high one.
#[derive(Copy, Clone, Default)]
struct Count(u64);

impl Count {
    /// What a register of a type counts.
    #[inline]
    fn of(ty: RegTy) -> u64 {
        const BY_TYPE: [u64; RegTy::ALL.len()] = {
            let mut by_type = [0; RegTy::ALL.len()];
            let mut i = 0;
            while i < by_type.len() {
                let units = RegTy::ALL[i].units();
                by_type[RegTy::ALL[i] as usize] = if units == 0 { 1 << 32 } else { units as u64 };
                i += 1;
            }
            by_type
        };
        BY_TYPE[ty as usize]
    }

    fn units(self) -> u32 {
        self.0 as u32
    }

    fn predicates(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// Whether more than `units` registers are live somewhere in a block, of whose end `now` are, those marked by `walk`.
fn traced_exceeds(
    func: &Function,
    live: &mut [u32],
    walk: u32,
    mut now: u32,
    trace: &[Mention],
    units: u32,
) -> bool {
    // Live after the instruction at hand: what was live behind it, and its unused results.
    let mut after = None;
    for mention in trace.iter().rev() {
        let r = mention.reg();
        let at = &mut live[r.index()];
        if mention.is_write() {
            let after = after.get_or_insert(now);
            if *at == walk {
                *at = 0;
                now -= func.ty(r).units();
                continue;
            }
            *after += func.ty(r).units();
            if *after > units {
                return true;
            }
        } else {
            after = None;
            if *at != walk {
                *at = walk;
                now += func.ty(r).units();
                if now > units {
                    return true;
                }
            }
        }
    }
    false
}

impl PressureScratch {
    /// Peak over the blocks given.
    pub fn peak(&mut self, func: &Function, liveness: &Liveness, blocks: &[Bb]) -> Pressure {
        if self.walk > u32::MAX - blocks.len() as u32 - 1 {
            *self = PressureScratch::default();
        }
        if self.live.len() < func.num_regs() {
            self.live.resize(func.num_regs(), 0);
        }
        let mut peak = Pressure::default();
        for &bb in blocks {
            let found = self.block(func, liveness, bb);
            if found.units > peak.units || peak.at.is_none() {
                (peak.units, peak.at) = (found.units, found.at);
            }
            if found.predicates > peak.predicates || peak.predicates_at.is_none() {
                (peak.predicates, peak.predicates_at) = (found.predicates, found.predicates_at);
            }
        }
        peak
    }

    /// Peak of one block.
    fn block(&mut self, func: &Function, liveness: &Liveness, bb: Bb) -> Pressure {
        let Self { live, walk } = self;
        *walk += 1;
        let walk = *walk;
        let mut now = Count::default();
        // Makes a register live.
        let add = |live: &mut [u32], now: &mut Count, r: Reg| {
            let at = &mut live[r.index()];
            if *at != walk {
                *at = walk;
                now.0 += Count::of(func.ty(r));
            }
        };
        for r in liveness.live_out(bb) {
            add(live, &mut now, r);
        }
        let mut at = func.last_inst(bb);
        // Backwards, so a later equal peak in the walk is an earlier one in the block.
        let mut best = Pressure::default();
        while let Some(inst) = at {
            at = func.prev_inst(inst);
            let look = func.look(inst);
            // After the instruction, its results, also unused ones, are live; before it only those it may leave alone.
            let after;
            if look.guard.is_some() {
                look.visit_writes(|r| add(live, &mut now, r));
                after = now;
            } else {
                let (mut unused, mut ended) = (0, 0);
                look.visit_writes(|r| {
                    let at = &mut live[r.index()];
                    let count = Count::of(func.ty(r));
                    if *at == walk {
                        *at = 0;
                        ended += count;
                    } else {
                        unused += count;
                    }
                });
                after = Count(now.0 + unused);
                now.0 -= ended;
            }
            look.visit_reads(|r| add(live, &mut now, r));
            let (u, p) = (now.units().max(after.units()), now.predicates().max(after.predicates()));
            if u >= best.units {
                (best.units, best.at) = (u, Some(inst));
            }
            if p >= best.predicates {
                (best.predicates, best.predicates_at) = (p, Some(inst));
            }
        }
        best
    }

    /// Whether more than `units` 32-bit registers are live somewhere in the blocks given: whether the units of
    /// [`PressureScratch::peak`] are more, without finding out how many or where. Most blocks mention too few registers
    /// to need a walk. If liveness has a trace of what instructions mention, that is walked, and the answer may be yes where
    /// it should be no: removed instructions are in it, and instructions are not told apart that only write.
    pub fn exceeds(&mut self, func: &Function, liveness: &Liveness, blocks: &[Bb], units: u32) -> bool {
        if self.walk > u32::MAX - blocks.len() as u32 - 1 {
            *self = PressureScratch::default();
        }
        if self.live.len() < func.num_regs() {
            self.live.resize(func.num_regs(), 0);
        }
        let Self { live, walk } = self;
        for &bb in blocks {
            *walk += 1;
            let walk = *walk;
            let mut now = 0;
            // Makes a register live, counting none twice.
            let add = |live: &mut [u32], r: Reg| {
                let at = &mut live[r.index()];
                let new = *at != walk;
                *at = walk;
                if new { func.ty(r).units() } else { 0 }
            };
            now += liveness.live_out(bb).map(|r| add(live, r)).sum::<u32>();
            // No register counts more than two.
            if now.saturating_add(liveness.mentions(bb).saturating_mul(2)) <= units {
                continue;
            }
            if let Some(trace) = liveness.trace(bb) {
                if traced_exceeds(func, live, walk, now, trace, units) {
                    return true;
                }
                continue;
            }
            let mut at = func.last_inst(bb);
            while let Some(inst) = at {
                at = func.prev_inst(inst);
                let look = func.look(inst);
                let mut after = now;
                if look.guard.is_some() {
                    look.visit_writes(|r| now += add(live, r));
                    after = now;
                } else {
                    look.visit_writes(|r| {
                        let at = &mut live[r.index()];
                        if *at == walk {
                            *at = 0;
                            now -= func.ty(r).units();
                        } else {
                            after += func.ty(r).units();
                        }
                    });
                }
                look.visit_reads(|r| now += add(live, r));
                if now.max(after) > units {
                    return true;
                }
            }
        }
        false
    }

    /// Peak of the whole function.
    pub fn function(&mut self, func: &Function, liveness: &Liveness) -> Pressure {
        self.peak(func, liveness, func.layout())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nvvm::{FuncBuilder, PtxOp, Special};

    #[test]
    fn peak_counts_units_and_names_the_instruction() {
        let mut f = Function::kernel("k");
        let mut b = FuncBuilder::new(&mut f);
        let t = b.special(Special::TidX); // 1
        let v = b.ld_shared_v4_b32((t, 0)); // 4 + t
        let wide = b.mul_wide_u32(t, 4); // + 2, t dies
        let mut sum = v.get(0).unwrap();
        for r in v.into_iter().skip(1) {
            sum = b.add_u32(sum, r); // shrinks
        }
        b.st_global_b32((wide, 0), sum);
        b.ret();
        let live = Liveness::compute(&f);
        let p = PressureScratch::default().function(&f, &live);
        assert_eq!(p.units, 6);
        assert_eq!(f.op(p.at.unwrap()), PtxOp::MulWideU32);
        assert_eq!(p.predicates, 0);
        let exceeds = |units| PressureScratch::default().exceeds(&f, &live, f.layout(), units);
        assert_eq!((exceeds(5), exceeds(6)), (true, false));
    }

    #[test]
    fn loop_carried_values_are_live_around_the_loop() {
        let mut f = Function::kernel("k");
        let mut b = FuncBuilder::new(&mut f);
        let kept = b.special(Special::TidX);
        let i = b.imm(RegTy::B32, 0);
        let (head, done) = (b.block(), b.block());
        b.place(head);
        b.add_u32_to(i, i, 1);
        let p = b.setp_lt_u32(i, 10);
        b.br_if(p, false, head, done);
        b.place(done);
        b.st_shared_b32((kept, 0), i);
        b.ret();
        let live = Liveness::compute(&f);
        assert!(live.is_live_out(head, kept) && live.is_live_out(head, i));
        let peak = PressureScratch::default().peak(&f, &live, &[head]);
        assert_eq!((peak.units, peak.predicates), (2, 1));
    }
}
