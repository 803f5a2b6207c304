//! The builder: one method per PTX form, and blocks, branches, guards, loops over them.
//!
//! A method takes its sources as anything that converts into an [`Operand`] (registers, integers, `1.0f32`,
//! `(reg, offset)` addresses, symbols) and returns fresh result registers; `…_to` writes a register of the caller's.
//! `on(p)` / `on_not(p)` guard the next instruction. Methods emit exactly the named form and fold nothing, so that
//! the caller decides; the `fold_*` family works on operands and gives immediates where it can. Operand classes are not
//! checked here but in the verifier, which reports all violations at once.
//!
//! ```
//! use tileas_codegen::nvvm::{FuncBuilder, Function, ParamKind, Special};
//! let mut f = Function::kernel("axpy");
//! let x = f.param("x", ParamKind::Pointer { align: 4 });
//! let mut b = FuncBuilder::new(&mut f);
//! let p = b.ld_param_b64(x);
//! let p = b.cvta_to_global_u64(p);
//! let i = b.special(Special::TidX);
//! let o = b.mul_wide_u32(i, 4);
//! let a = b.add_u64(p, o);
//! let v = b.ld_global_f32(a);
//! let v = b.fma_rn_f32(v, 2.0f32, 1.0f32);
//! b.st_global_f32((a, 0), v);
//! b.ret();
//! ```

use super::forms::{PtxOp, Special};
use super::module::{Bb, Function, Guard, Inst, List, Operand, Reg, RegTy, Regs};

#[rustfmt::skip]
mod generated {
    #![expect(clippy::too_many_arguments, reason = "as many as the instruction has operands")]
    use super::*;
    include!(concat!(env!("OUT_DIR"), "/ptx_builder.rs"));
}

/// What can stand for a brace list.
pub trait VecOperand {
    /// Appends the elements to the pool.
    fn extend_pool(&self, pool: &mut Vec<Operand>);
}

impl VecOperand for Regs {
    fn extend_pool(&self, pool: &mut Vec<Operand>) {
        pool.extend(self.iter().map(Operand::Reg));
    }
}

impl<T: Copy + Into<Operand>> VecOperand for [T] {
    fn extend_pool(&self, pool: &mut Vec<Operand>) {
        pool.extend(self.iter().map(|&x| x.into()));
    }
}

impl<T: Copy + Into<Operand>, const N: usize> VecOperand for [T; N] {
    fn extend_pool(&self, pool: &mut Vec<Operand>) {
        pool.extend(self.iter().map(|&x| x.into()));
    }
}

impl<T: Copy + Into<Operand>> VecOperand for Vec<T> {
    fn extend_pool(&self, pool: &mut Vec<Operand>) {
        pool.extend(self.iter().map(|&x| x.into()));
    }
}

impl<T: VecOperand + ?Sized> VecOperand for &T {
    fn extend_pool(&self, pool: &mut Vec<Operand>) {
        (**self).extend_pool(pool);
    }
}

/// Appends instructions to a function.
pub struct FuncBuilder<'f> {
    /// The function under construction.
    pub func: &'f mut Function,
    current: Bb,
    guard: Guard,
    /// 1 more than the number of the op that is lowered, where that is to be known of instructions; else 0.
    pub(crate) of_op: u32,
}

impl<'f> FuncBuilder<'f> {
    /// Starts at the end of the function, in a new block (the entry, if the function is empty).
    pub fn new(func: &'f mut Function) -> FuncBuilder<'f> {
        let current = func.block();
        func.append_block(current);
        FuncBuilder { func, current, guard: Guard::default(), of_op: 0 }
    }

    /// A fresh register.
    #[inline]
    pub fn reg(&mut self, ty: RegTy) -> Reg {
        self.func.reg(ty)
    }

    /// `n` fresh registers with consecutive numbers.
    pub fn regs(&mut self, ty: RegTy, n: usize) -> Regs {
        self.func.regs(ty, n)
    }

    /// A brace list.
    pub fn list(&mut self, items: &impl VecOperand) -> Operand {
        let start = self.func.pool.len();
        items.extend_pool(&mut self.func.pool);
        let len = self.func.pool.len() - start;
        Operand::List(List { start: start as u32, len: len.min(usize::from(u16::MAX)) as u16 })
    }

    /// Appends an instruction; the operands are in order of appearance, results included.
    // Inlined, the operands are copied by moves of a known size.
    #[inline]
    pub fn emit(&mut self, op: PtxOp, operands: &[Operand]) -> Inst {
        let guard = std::mem::take(&mut self.guard);
        let inst = self.func.make_inst(op, operands, guard);
        self.func.append_inst(self.current, inst);
        if self.of_op != 0 {
            self.func.of_op[inst] = self.of_op;
        }
        inst
    }

    /// Guards the next instruction with `@p`.
    pub fn on(&mut self, p: Reg) -> &mut Self {
        self.guard = Guard::new(p, false);
        self
    }

    /// Guards the next instruction with `@!p`.
    pub fn on_not(&mut self, p: Reg) -> &mut Self {
        self.guard = Guard::new(p, true);
        self
    }

    /// Guards the next instruction, if there is a guard.
    pub fn guarded(&mut self, guard: Guard) -> &mut Self {
        self.guard = guard;
        self
    }

    /// Attaches a comment to the last instruction of the current block.
    pub fn comment(&mut self, text: impl Into<String>) {
        if let Some(inst) = self.func.last_inst(self.current) {
            self.func.comment(inst, text);
        }
    }

    /// The block that instructions are appended to.
    pub fn current(&self) -> Bb {
        self.current
    }

    /// A new block that is not yet placed.
    pub fn block(&mut self) -> Bb {
        self.func.block()
    }

    /// A new, not yet placed block with a name for readers.
    pub fn named_block(&mut self, name: impl Into<String>) -> Bb {
        let bb = self.func.block();
        self.func.blocks[bb].name = Some(name.into());
        bb
    }

    /// Whether the current block has its terminator.
    pub fn is_terminated(&self) -> bool {
        self.func.last_inst(self.current).is_some_and(|i| self.func.ends_block(i))
    }

    /// Places `bb` next in the layout and continues there; falls through from the current block if that is open.
    pub fn place(&mut self, bb: Bb) {
        if !self.is_terminated() {
            self.emit(PtxOp::Bra, &[bb.into()]);
        }
        self.func.append_block(bb);
        self.current = bb;
    }

    /// Continues in a block that is already placed.
    pub fn switch_to(&mut self, bb: Bb) {
        self.current = bb;
    }

    /// `bra target`, unguarded.
    pub fn bra(&mut self, target: Bb) {
        self.guard = Guard::default();
        self.emit(PtxOp::Bra, &[target.into()]);
    }

    /// Goes to `then` where `p` (or `!p`, if `negated`) holds, else to `otherwise`.
    pub fn br_if(&mut self, p: Reg, negated: bool, then: Bb, otherwise: Bb) {
        self.guard = Guard::new(p, negated);
        self.emit(PtxOp::Bra, &[then.into()]);
        self.emit(PtxOp::Bra, &[otherwise.into()]);
    }

    /// Goes to `target` where `p` holds; otherwise continues in a new block.
    pub fn br_on(&mut self, p: Reg, target: Bb) {
        let next = self.func.block();
        self.br_if(p, false, target, next);
        self.place(next);
    }

    /// Goes to `target` where `p` does not hold; otherwise continues in a new block.
    pub fn br_on_not(&mut self, p: Reg, target: Bb) {
        let next = self.func.block();
        self.br_if(p, true, target, next);
        self.place(next);
    }

    /// `ret`: ends the block, or a guarded return in its middle.
    pub fn ret(&mut self) {
        self.emit(PtxOp::Ret, &[]);
    }

    /// `exit`: ends the block, or a guarded exit in its middle.
    pub fn exit(&mut self) {
        self.emit(PtxOp::Exit, &[]);
    }

    /// `trap`: ends the block, or a guarded trap in its middle.
    pub fn trap(&mut self) {
        self.emit(PtxOp::Trap, &[]);
    }

    /// Reads a 32-bit special register (64-bit ones through their own method).
    pub fn special(&mut self, s: Special) -> Reg {
        match (s.bits(), s.is_volatile()) {
            (64, _) => self.mov_special_u64(s),
            (_, true) => self.mov_clock_u32(s),
            _ => self.mov_special_u32(s),
        }
    }

    /// Copies `value` into `dst`, with the `mov` of the register's type.
    pub fn mov_to(&mut self, dst: Reg, value: impl Into<Operand>) {
        let op = match self.func.ty(dst) {
            RegTy::Pred => PtxOp::MovPred,
            RegTy::B16 => PtxOp::MovB16,
            RegTy::B32 => PtxOp::MovB32,
            RegTy::B64 => PtxOp::MovB64,
            RegTy::F32 => PtxOp::MovF32,
        };
        self.emit(op, &[dst.into(), value.into()]);
    }

    /// A fresh register holding `value`.
    pub fn imm(&mut self, ty: RegTy, value: impl Into<Operand>) -> Reg {
        let d = self.reg(ty);
        self.mov_to(d, value);
        d
    }

    /// The operand as a register of that type: itself, or a fresh one holding the immediate.
    pub fn as_reg(&mut self, ty: RegTy, value: impl Into<Operand>) -> Reg {
        match value.into() {
            Operand::Reg(r) => r,
            other => self.imm(ty, other),
        }
    }

    /// Waits until the phase of `parity` of the mbarrier at `bar` is complete: a loop of try_wait.
    ///
    /// Ends the current block and continues in a new one.
    pub fn mbarrier_wait(&mut self, bar: impl Into<Operand>, parity: impl Into<Operand>) {
        let (wait, done) = (self.func.block(), self.func.block());
        self.place(wait);
        let p = self.mbarrier_try_wait_parity(bar, parity);
        self.br_if(p, true, wait, done);
        self.place(done);
    }

    /// `a + b` on 32 bits with constants folded. The result may be `a` or `b` itself: not for registers that are
    /// written again while the result is in use. So for the whole `fold_*` family.
    pub fn fold_add(&mut self, a: impl Into<Operand>, b: impl Into<Operand>) -> Operand {
        match (a.into(), b.into()) {
            (Operand::Imm(x), Operand::Imm(y)) => Operand::Imm(wrap32(x.wrapping_add(y))),
            (x, Operand::Imm(0)) | (Operand::Imm(0), x) => x,
            (Operand::Imm(x), y) => self.add_u32(y, x).into(),
            (x, y) => self.add_u32(x, y).into(),
        }
    }

    /// `a - b` on 32 bits; see [`FuncBuilder::fold_add`].
    pub fn fold_sub(&mut self, a: impl Into<Operand>, b: impl Into<Operand>) -> Operand {
        match (a.into(), b.into()) {
            (Operand::Imm(x), Operand::Imm(y)) => Operand::Imm(wrap32(x.wrapping_sub(y))),
            (x, Operand::Imm(0)) => x,
            (x, y) => self.sub_u32(x, y).into(),
        }
    }

    /// `a * b` on 32 bits; powers of two become shifts; see [`FuncBuilder::fold_add`].
    pub fn fold_mul(&mut self, a: impl Into<Operand>, b: impl Into<Operand>) -> Operand {
        match (a.into(), b.into()) {
            (Operand::Imm(x), Operand::Imm(y)) => Operand::Imm(wrap32(x.wrapping_mul(y))),
            (_, Operand::Imm(0)) | (Operand::Imm(0), _) => Operand::Imm(0),
            (x, Operand::Imm(1)) | (Operand::Imm(1), x) => x,
            (x, Operand::Imm(y)) | (Operand::Imm(y), x)
                if y > 0 && (y as u64).is_power_of_two() && y < 1 << 32 =>
            {
                self.shl_b32(x, y.trailing_zeros()).into()
            }
            (x, y) => self.mul_lo_u32(x, y).into(),
        }
    }

    /// `a & b` on 32 bits; see [`FuncBuilder::fold_add`].
    pub fn fold_and(&mut self, a: impl Into<Operand>, b: impl Into<Operand>) -> Operand {
        match (a.into(), b.into()) {
            (Operand::Imm(x), Operand::Imm(y)) => Operand::Imm(wrap32(x & y)),
            (_, Operand::Imm(0)) | (Operand::Imm(0), _) => Operand::Imm(0),
            (x, y) => self.and_b32(x, y).into(),
        }
    }

    /// `a ^ b` on 32 bits; see [`FuncBuilder::fold_add`].
    pub fn fold_xor(&mut self, a: impl Into<Operand>, b: impl Into<Operand>) -> Operand {
        match (a.into(), b.into()) {
            (Operand::Imm(x), Operand::Imm(y)) => Operand::Imm(wrap32(x ^ y)),
            (x, Operand::Imm(0)) | (Operand::Imm(0), x) => x,
            (x, y) => self.xor_b32(x, y).into(),
        }
    }

    /// `a << n` on 32 bits; see [`FuncBuilder::fold_add`].
    pub fn fold_shl(&mut self, a: impl Into<Operand>, n: u32) -> Operand {
        match a.into() {
            x if n == 0 => x,
            Operand::Imm(x) => Operand::Imm(if n < 32 { wrap32(x << n) } else { 0 }),
            x => self.shl_b32(x, n).into(),
        }
    }

    /// `a >> n`, unsigned, on 32 bits; see [`FuncBuilder::fold_add`].
    pub fn fold_shr(&mut self, a: impl Into<Operand>, n: u32) -> Operand {
        match a.into() {
            x if n == 0 => x,
            Operand::Imm(x) => Operand::Imm(i64::from((x as u32).checked_shr(n).unwrap_or(0))),
            x => self.shr_u32(x, n).into(),
        }
    }
}

/// The value modulo 2^32, as a signed number.
pub(crate) fn wrap32(v: i64) -> i64 {
    i64::from(v as i32)
}
