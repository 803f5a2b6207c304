//! Agents with instances: warpgroups that run one region, and deal out the iterations of its outermost loop.
//!
//! Instance c runs the iterations c, c + n, …. In front of each it waits for its turn, an mbarrier on which a lane of each warp of the instance before arrives
//! when that has issued its last product of the iteration before; instance 0 finds the first turn given. Arrivals that nobody waits for any more may be left.
//! The iterations between are *passed over*: iterators of pipelines with other agents go on by as many slots as such an iteration uses, computed from the
//! bounds of its loops, and nothing else happens. Iterators of the agent's own pipelines stay, as each instance has such a pipeline of its own.
//!
//! Source: CUTLASS's ping-pong schedule, by description; PTX ISA, mbarrier.

use super::{Instance, Lower, NO_PHASE, Val};
use crate::error::{Code, CodegenResult};
use crate::ir::opcodes::Traits;
use crate::ir::{Block, Op, Opcode, Scalar, TypeData, Value, keys};
use crate::nvvm::{Operand, Reg, RegTy};
use smallvec::SmallVec;

/// Instances that there is code for.
const TWO: i64 = 2;

impl Lower<'_> {
    /// The switch of a kernel in which an agent has instances: it, their number, their warps each, and where their barriers are.
    fn turns_of(&self) -> Option<(Op, i64, i64, i32)> {
        let f = self.f;
        let switch = f.block_ops(f.entry()).find(|&op| f.opcode(op) == Opcode::AsyncPipelineAgentSwitch)?;
        let (list, warps) = (f.attr_ints(switch, keys::INSTANCES)?, f.attr_ints(switch, keys::NUM_WARPS)?);
        let (&n, &warps) = list.iter().zip(&warps).find(|x| *x.0 > 1)?;
        Some((switch, n, warps, i32::try_from(f.attr_int(switch, keys::TURN_AT)?).ok()?))
    }

    /// Initialises the barriers of turns.
    pub(super) fn init_turns(&mut self) {
        let Some((_, n, warps, at)) = self.turns_of() else { return };
        let base = self.base();
        for c in 0..n as i32 {
            self.b.mbarrier_init((base, at + 8 * c), warps as u32);
        }
    }

    /// The agent begins of which `warp` is one, counted through all instances.
    pub(super) fn enter_instance(&mut self, switch: Op, warp: Operand) -> CodegenResult<()> {
        let turns = self.turns_of().filter(|t| t.1 == TWO && t.2 > 0 && (t.2 & (t.2 - 1)) == 0);
        let Some((_, _, warps, turn_at)) = turns else {
            return self.err(
                Code::E0803,
                switch,
                "an agent has two instances of a power of two of warps, and barriers for turns",
            );
        };
        let f = self.f;
        let own = f.block_ops(f.entry()).find_map(|op| f.attr_int(op, keys::STRIDE)).unwrap_or(0);
        let number = self.b.fold_shr(warp, warps.trailing_zeros());
        let number = self.b.as_reg(RegTy::B32, number);
        let warp = self.b.fold_and(warp, warps - 1);
        let (base, offset) = (self.base(), self.b.fold_mul(number, own));
        let base = self.b.fold_add(base, offset);
        let base = self.b.as_reg(RegTy::B32, base);
        let parity = self.b.reg(RegTy::B32);
        let begins = self.b.fold_xor(number, 1);
        self.b.mov_to(parity, begins);
        self.agent.warp = warp;
        self.agent.instance = Some(Instance { number, base, parity, turn_at });
        Ok(())
    }

    /// The barrier of the turns of an instance.
    fn turn_barrier(&mut self, number: impl Into<Operand>, at: i32) -> Operand {
        let number = number.into();
        self.barrier(at, number)
    }

    /// Waits for the turn of this instance.
    pub(super) fn take_turn(&mut self, i: Instance) {
        let bar = self.turn_barrier(i.number, i.turn_at);
        self.wait(bar, i.parity.into());
        self.b.xor_b32_to(i.parity, i.parity, 1);
    }

    /// The turn that is given right behind a loop which waits for its products at its end: it is given in front of that wait.
    pub(super) fn gives_behind(&self, l: Op) -> Option<Op> {
        let f = self.f;
        let waits = f.opcode(l) == Opcode::For && f.has_attr(l, keys::DOTS_COMPLETE);
        f.next_op(l).filter(|&op| waits && f.opcode(op) == Opcode::AsyncPipelineGiveTurn)
    }

    /// Gives the turn to the other instance.
    pub(super) fn give_turn(&mut self, op: Op) -> CodegenResult<()> {
        let (Some(i), Some(lane)) = (self.agent.instance, self.agent.first_lane) else {
            return self.err(Code::E0803, op, "there is nobody to give a turn to");
        };
        let other = self.b.fold_xor(i.number, 1);
        let bar = self.turn_barrier(other, i.turn_at);
        self.b.on(lane);
        self.b.mbarrier_arrive(bar);
        Ok(())
    }

    /// Whether the instance is not the first one.
    pub(super) fn is_later(&mut self, i: Instance) -> Reg {
        self.b.setp_ne_u32(i.number, 0)
    }

    /// What an iteration does to values that last, where another instance runs it.
    pub(super) fn pass(&mut self, op: Op) -> CodegenResult<()> {
        let f = self.f;
        let code = f.opcode(op);
        let scalars = f.results(op).iter().all(|&v| f.value_data(v).as_scalar().is_some());
        let iterates = f.results(op).iter().any(|&v| is_iter(f.value_data(v)));
        match code {
            Opcode::AsyncPipelineIncIter => match f.operands(op).first().map(|&v| self.vals[v]) {
                // The agent's own.
                Some(own @ Val::Iter(_, NO_PHASE, _)) => {
                    self.set(op, own);
                    Ok(())
                }
                _ => self.inc_iter(op),
            },
            Opcode::For if iterates => self.pass_loop(op),
            Opcode::If if iterates => self.pass_branch(op),
            _ if scalars
                && !f.results(op).is_empty()
                && code.has(Traits::PURE)
                && code.has(Traits::UNIFORM) =>
            {
                self.made(op)
            }
            _ => Ok(()),
        }
    }

    /// Iterators behind a loop: they advance as often in each iteration.
    fn pass_loop(&mut self, op: Op) -> CodegenResult<()> {
        let f = self.f;
        let ([lo, hi, step, inits @ ..], Some(body)) = (f.operands(op), f.op_block_at(op, 0)) else {
            return self.err(Code::E0803, op, "malformed loop");
        };
        if f.value_data(*lo).as_scalar() != Some(Scalar::I32) || f.exit_of(op).is_some() {
            return self.unsupported(op, "with 64 bits or an exit, in iterations that are dealt out");
        }
        let (lo, hi, step) = (self.scalar(op, *lo)?, self.scalar(op, *hi)?, self.scalar(op, *step)?);
        let span = self.b.fold_sub(hi, lo);
        let trips = match step {
            Operand::Imm(1) => span,
            step => {
                let up = self.b.fold_add(span, step);
                let up = self.b.fold_sub(up, 1);
                self.b.div_s32(up, step).into()
            }
        };
        let trips = self.b.max_s32(trips, 0);
        let yields = f.last_op(body).map_or(&[][..], |y| f.operands(y));
        for (n, &result) in f.results(op).iter().enumerate().filter(|x| is_iter(f.value_data(*x.1))) {
            let (Some(&init), Some(&param), Some(&next)) =
                (inits.get(n), f.block_params(body).get(n + 1), yields.get(n))
            else {
                return self.err(Code::E0803, op, "malformed loop");
            };
            let before = self.vals[init];
            self.vals[result] = match before {
                Val::Iter(slot, phase, slots) if phase != NO_PHASE => {
                    let Some(each) = self.advances(next, param) else {
                        return self.unsupported(
                            op,
                            "that advances as its iterations tell, in iterations that are dealt out",
                        );
                    };
                    let steps = self.b.fold_mul(trips, each);
                    let place = self.b.fold_add(slot, steps);
                    let (rounds, slot) = match slots {
                        1 => (place, Operand::Imm(0)),
                        n => {
                            let rounds = self.b.div_u32(place, n);
                            let whole = self.b.fold_mul(rounds, n);
                            (rounds.into(), self.b.fold_sub(place, whole))
                        }
                    };
                    let phase = self.b.fold_add(phase, rounds);
                    Val::Iter(slot, self.b.fold_and(phase, 1), slots)
                }
                own => own,
            };
        }
        Ok(())
    }

    /// How often an iterator is advanced on its way through a loop body; `None`: that differs.
    fn advances(&self, v: Value, from: Value) -> Option<i64> {
        let f = self.f;
        let mut at = v;
        let mut n = 0;
        while at != from {
            let op = f.defining_op(at).filter(|&op| f.opcode(op) == Opcode::AsyncPipelineIncIter)?;
            (at, n) = (*f.operands(op).first()?, n + 1);
        }
        Some(n)
    }

    /// Iterators and numbers behind a branch: those of both arms, of which one is chosen.
    fn pass_branch(&mut self, op: Op) -> CodegenResult<()> {
        let f = self.f;
        let Some(&c) = f.operands(op).first() else { return self.err(Code::E0803, op, "malformed branch") };
        let cond = self.scalar(op, c)?;
        let mut arms: SmallVec<[SmallVec<[Val; 8]>; 2]> = SmallVec::new();
        for n in 0..2 {
            let Some(arm) = f.op_block_at(op, n) else {
                return self.err(Code::E0803, op, "a branch has two regions");
            };
            self.block(arm)?;
            let yields = f.last_op(arm).map_or(&[][..], |y| f.operands(y));
            arms.push(yields.iter().map(|&v| self.vals[v]).collect());
        }
        for (n, &result) in f.results(op).iter().enumerate().filter(|x| is_iter(f.value_data(*x.1))) {
            let (Some(&yes), Some(&no)) = (arms[0].get(n), arms[1].get(n)) else {
                return self.err(Code::E0803, op, "malformed branch");
            };
            self.vals[result] = match (yes, no, cond) {
                (yes, _, Operand::Imm(1..)) => yes,
                (_, no, Operand::Imm(_)) => no,
                (Val::Iter(s, p, n), Val::Iter(t, q, _), Operand::Reg(c)) if p != NO_PHASE => {
                    let slot = if n == 1 { Operand::Imm(0) } else { self.b.selp_b32(s, t, c).into() };
                    Val::Iter(slot, self.b.selp_b32(p, q, c).into(), n)
                }
                (own, ..) => own,
            };
        }
        Ok(())
    }

    /// Passes an iteration over: what the loop carries goes on.
    pub(super) fn pass_iteration(&mut self, op: Op, block: Block, carried: &[Val]) -> CodegenResult<()> {
        self.passing = true;
        let passed = self.block(block);
        self.passing = false;
        passed?;
        let yields = self.f.last_op(block).map_or(&[][..], |y| self.f.operands(y));
        self.assign(op, carried, yields)
    }
}

fn is_iter(data: &TypeData) -> bool {
    matches!(data, TypeData::PipeIter(_))
}
