//! Copies, constants, strength reduction and common sub-expressions, inside blocks.
//!
//! Registers are written more than once, so each write starts a new *version* of its register; what is known about
//! a register (it copies another, it holds a constant, an expression equals it) is known of versions and forgotten
//! at the end of the block. Constants of registers with a single, unguarded write hold everywhere.
//!
//! Immediates are put where the form's class has one, not into the first source (constant folding sees to those).

use super::CleanupStats;
use super::dce::Uses;
use crate::nvvm::builder::wrap32;
use crate::nvvm::forms::{Kind, PtxOp, Ty};
use crate::nvvm::module::{Function, Inst, Operand, Reg, RegTy};
use cranelift_entity::EntityRef;
use smallvec::SmallVec;

/// Scratch memory. All but the last two by register.
#[derive(Default)]
pub struct LocalScratch {
    /// Instructions seen so far, in all runs; a version is the number of the instruction that wrote the register last.
    /// As it only grows, what a run leaves in the maps means nothing to the next, and need not be cleared.
    seq: u32,
    version: Vec<u32>,
    /// Number of the block at hand in all runs, from 1: entries of `copy` and `expressions` from other blocks do not
    /// count.
    block: u32,
    /// What a register was last seen to copy, with both versions.
    copy: Vec<Copy>,
    /// Number of writes; guarded writes count twice.
    writes: Vec<u32>,
    /// The constant a register always holds, where `noted` says so.
    constant: Vec<Const>,
    /// [`EVERYWHERE`] if `constant` has it, else the last block that noted a copy. Of most registers nothing is known, and
    /// this says so at once.
    noted: Vec<u32>,
    /// Constants moved to registers, before it is known whether those have other writes.
    moved: Vec<(Reg, Const)>,
    /// Those that a run left behind where `constant` says something else.
    unknown: Vec<(Reg, Const)>,
    /// Open-addressing table of the block's expressions by their hash; a power of two, at most half full.
    expressions: Vec<Expression>,
}

/// An instruction whose expression may be shared.
#[derive(Copy, Clone)]
struct Expression {
    /// Its block; 0 = free.
    block: u32,
    /// Its number: what wrote a source or its result later has a greater one.
    seq: u32,
    inst: Inst,
}

#[derive(Copy, Clone, Debug, PartialEq)]
enum Const {
    Int(i64),
    F32(u32),
}

impl Default for Const {
    fn default() -> Const {
        Const::Int(0)
    }
}

#[derive(Copy, Clone, Default)]
struct Copy {
    /// Block of the entry; 0 = none.
    block: u32,
    /// Version of the register the entry is about.
    own: u32,
    of: Option<(Reg, u32)>,
    constant: Option<Const>,
}

fn mov_of(ty: RegTy) -> PtxOp {
    match ty {
        RegTy::Pred => PtxOp::MovPred,
        RegTy::B16 => PtxOp::MovB16,
        RegTy::B32 => PtxOp::MovB32,
        RegTy::B64 => PtxOp::MovB64,
        RegTy::F32 => PtxOp::MovF32,
    }
}

/// In `noted`: the register holds a constant in the whole function.
const EVERYWHERE: u32 = u32::MAX;

impl LocalScratch {
    /// Whether something is known about a register in the block at hand.
    #[inline]
    fn is_noted(&self, r: Reg) -> bool {
        let noted = self.noted[r.index()];
        noted == self.block || noted == EVERYWHERE
    }
}

/// Counts the writes of each register and collects the constants moved to registers.
fn scan(func: &Function, s: &mut LocalScratch) {
    s.writes.clear();
    s.writes.resize(func.num_regs(), 0);
    s.moved.clear();
    for &bb in func.layout() {
        for inst in func.insts(bb) {
            let look = func.look(inst);
            let weight = 1 + u32::from(look.guard.is_some());
            match *look.results_and_sources().0 {
                [] => continue,
                [Operand::Reg(r)] => s.writes[r.index()] += weight,
                _ => look.visit_writes(|r| s.writes[r.index()] += weight),
            }
            if look.op.is_mov()
                && let [Operand::Reg(d), source] = *look.operands
                && let Some(c) = as_const(source)
            {
                s.moved.push((d, c));
            }
        }
    }
}

/// Whether a second run on what the first one left could change anything, if no block was merged since: only if a
/// register holds a constant that the first run did not know of. Inside a block, one run finds all there is.
pub fn knows_more(s: &LocalScratch) -> bool {
    s.unknown.iter().any(|&(d, _)| s.writes[d.index()] == 1)
}

/// Told of instructions that left the function after the run.
pub fn forget(func: &Function, s: &mut LocalScratch, inst: Inst) {
    let look = func.look(inst);
    let weight = 1 + u32::from(look.guard.is_some());
    look.visit_writes(|r| s.writes[r.index()] -= weight);
}

/// Runs the pass.
pub fn run(func: &mut Function, s: &mut LocalScratch, stats: &mut CleanupStats) {
    run_noting(func, s, &mut Uses::default(), stats);
}

/// Runs the pass; what it leaves of each instruction is noted in `uses`, for [`super::dce`].
pub(super) fn run_noting(
    func: &mut Function,
    s: &mut LocalScratch,
    uses: &mut Uses,
    stats: &mut CleanupStats,
) {
    if s.seq > u32::MAX / 2 {
        *s = LocalScratch::default();
    }
    let slots = (2 * func.num_insts()).next_power_of_two();
    if s.expressions.len() < slots {
        s.expressions.clear();
        s.expressions.resize(slots, Expression { block: 0, seq: 0, inst: Inst::from_u32(0) });
    }
    let regs = func.num_regs();
    if s.version.len() < regs {
        s.version.resize(regs, 0);
        s.copy.resize(regs, Copy::default());
        s.constant.resize(regs, Const::default());
    }
    scan(func, s);
    uses.begin(func);
    s.noted.clear();
    s.noted.resize(regs, 0);
    s.unknown.clear();
    for &(d, c) in &s.moved {
        if s.writes[d.index()] == 1 {
            s.constant[d.index()] = c;
            s.noted[d.index()] = EVERYWHERE;
        }
    }
    for b in 0..func.layout().len() {
        let bb = func.layout()[b];
        s.block += 1;
        let mut at = func.first_inst(bb);
        while let Some(inst) = at {
            at = func.next_inst(inst);
            s.seq += 1;
            uses.note_home(bb, inst);
            // Whether something is known about a register it reads. Most instructions stay as they are: what they read
            // is noted at once, and who rewrites one sees to the difference.
            let mut look = func.look(inst);
            let (op, guarded, mut noted) = (look.op, look.guard.is_some(), false);
            uses.note_reads(func, look, |r| noted |= s.is_noted(r));
            let may_share = !guarded && op.is_shareable() && !op.is_mov();
            let mut slot = None;
            if noted || may_share || INT_OPS[op as usize].is_some() {
                if noted {
                    uses.forget_reads(func, inst);
                    propagate(func, s, inst, stats);
                    uses.note_reads(func, func.look(inst), |_| ());
                }
                if let Some(op) = INT_OPS[op as usize] {
                    reduce(func, s, uses, inst, op, stats);
                }
                if may_share {
                    slot = share(func, s, uses, inst, stats);
                }
                look = func.look(inst);
            }
            // Writes start new versions, then a copy or an expression is recorded.
            let seq = s.seq;
            let mut write = |r: Reg| {
                s.version[r.index()] = seq;
                uses.note_write(inst, r);
            };
            match *look.results_and_sources().0 {
                [] => {}
                [Operand::Reg(r)] => write(r),
                _ => look.visit_writes(write),
            }
            if let Some(slot) = slot {
                s.expressions[slot] = Expression { block: s.block, seq, inst };
            } else if !guarded
                && look.op.is_mov()
                && let [Operand::Reg(d), source] = *look.operands
            {
                note_mov(func, s, uses, d, source);
            }
        }
    }
}

/// Turns an instruction into another one and notes what that reads instead.
#[cold]
fn rewrite(func: &mut Function, uses: &mut Uses, inst: Inst, op: PtxOp, operands: &[Operand]) {
    uses.forget_reads(func, inst);
    func.rewrite(inst, op, operands);
    uses.note_reads(func, func.look(inst), |_| ());
}

/// Records what an unguarded move says about its result.
fn note_mov(func: &Function, s: &mut LocalScratch, uses: &Uses, d: Reg, source: Operand) {
    let i = d.index();
    let of = match source {
        Operand::Reg(r) if r != d && func.ty(r) == func.ty(d) => Some((r, s.version[r.index()])),
        _ => None,
    };
    let constant = as_const(source);
    if let Some(c) = constant
        && (s.noted[i] != EVERYWHERE || s.constant[i] != c)
    {
        if s.writes[i] == 1 && !uses.is_read(d) {
            // All reads are still to come: they learn of it in this run.
            s.constant[i] = c;
            s.noted[i] = EVERYWHERE;
        } else {
            s.unknown.push((d, c));
        }
    }
    s.copy[i] = Copy { block: s.block, own: s.seq, of, constant };
    if s.noted[i] != EVERYWHERE {
        s.noted[i] = s.block;
    }
}

fn as_const(operand: Operand) -> Option<Const> {
    match operand {
        Operand::Imm(v) => Some(Const::Int(v)),
        Operand::F32(bits) => Some(Const::F32(bits)),
        _ => None,
    }
}

/// The constant a register holds here.
fn known(s: &LocalScratch, r: Reg) -> Option<Const> {
    if !s.is_noted(r) {
        return None;
    }
    let i = r.index();
    let copy = &s.copy[i];
    if copy.block == s.block && copy.own == s.version[i] && copy.constant.is_some() {
        return copy.constant;
    }
    (s.noted[i] == EVERYWHERE).then(|| s.constant[i])
}

/// The register this one is a copy of here.
fn original(s: &LocalScratch, r: Reg) -> Option<Reg> {
    if !s.is_noted(r) {
        return None;
    }
    let copy = &s.copy[r.index()];
    let (of, version) = copy.of?;
    (copy.block == s.block && copy.own == s.version[r.index()] && s.version[of.index()] == version)
        .then_some(of)
}

/// The constant as an operand of the type, if it can be one.
fn constant_for(ty: Ty, c: Const) -> Option<Operand> {
    Some(match (ty, c) {
        (Ty::F32, Const::F32(bits)) => Operand::F32(bits),
        (Ty::F32, Const::Int(v)) => Operand::F32(v as u32),
        (Ty::B32 | Ty::X32, Const::F32(bits)) => Operand::Imm(i64::from(bits)),
        (_, Const::Int(v)) => Operand::Imm(v),
        (_, Const::F32(_)) => return None,
    })
}

fn propagate(func: &mut Function, s: &LocalScratch, inst: Inst, stats: &mut CleanupStats) {
    let op = func.op(inst);
    let classes = op.form().operands;
    let mut sources = 0;
    let given = func.operands(inst).len();
    for (i, class) in classes.iter().enumerate().take(given) {
        if class.def {
            continue;
        }
        sources += 1;
        let operand = func.operands(inst)[i];
        let imm_here = sources > 1 || op.is_mov();
        let replacement = match (operand, class.kind) {
            (Operand::Reg(r), Kind::Reg { ty, imm }) => {
                let constant =
                    if imm && imm_here { known(s, r).and_then(|c| constant_for(ty, c)) } else { None };
                constant.or_else(|| original(s, r).map(Operand::Reg))
            }
            (Operand::Reg(r), _) => original(s, r).map(Operand::Reg),
            (Operand::Addr { base, offset }, _) => {
                original(s, base).map(|base| Operand::Addr { base, offset })
            }
            (Operand::List(list), Kind::Vec { ty, imm, .. }) => {
                for at in list.start as usize..list.start as usize + list.len as usize {
                    let Operand::Reg(r) = func.pool[at] else { continue };
                    let constant = if imm { known(s, r).and_then(|c| constant_for(ty, c)) } else { None };
                    if let Some(new) = constant.or_else(|| original(s, r).map(Operand::Reg)) {
                        func.pool[at] = new;
                        stats.propagated += 1;
                    }
                }
                None
            }
            _ => None,
        };
        if let Some(new) = replacement {
            func.operands_mut(inst)[i] = new;
            stats.propagated += 1;
        }
    }
    let mut guard = func.guard(inst);
    if let Some((p, negated)) = guard.get()
        && let Some(of) = original(s, p)
    {
        guard = crate::nvvm::Guard::new(of, negated);
        func.set_guard(inst, guard);
        stats.propagated += 1;
    }
}

/// Integer operations that folding knows, by width.
#[derive(Copy, Clone, PartialEq)]
enum IntOp {
    Add,
    Sub,
    Mul,
    DivU,
    RemU,
    And,
    Or,
    Xor,
    Shl,
    ShrU,
    MinU,
    MaxU,
}

/// [`int_op`] by form: every instruction asks.
static INT_OPS: [Option<(IntOp, u32)>; PtxOp::ALL.len()] = {
    let mut all = [None; PtxOp::ALL.len()];
    let mut i = 0;
    while i < PtxOp::ALL.len() {
        all[PtxOp::ALL[i] as usize] = int_op(PtxOp::ALL[i]);
        i += 1;
    }
    all
};

const fn int_op(op: PtxOp) -> Option<(IntOp, u32)> {
    use IntOp::*;
    Some(match op {
        PtxOp::AddU32 | PtxOp::AddS32 => (Add, 32),
        PtxOp::AddU64 | PtxOp::AddS64 => (Add, 64),
        PtxOp::SubU32 | PtxOp::SubS32 => (Sub, 32),
        PtxOp::SubU64 | PtxOp::SubS64 => (Sub, 64),
        PtxOp::MulLoU32 | PtxOp::MulLoS32 => (Mul, 32),
        PtxOp::MulLoU64 | PtxOp::MulLoS64 => (Mul, 64),
        PtxOp::DivU32 => (DivU, 32),
        PtxOp::RemU32 => (RemU, 32),
        PtxOp::AndB32 => (And, 32),
        PtxOp::AndB64 => (And, 64),
        PtxOp::OrB32 => (Or, 32),
        PtxOp::OrB64 => (Or, 64),
        PtxOp::XorB32 => (Xor, 32),
        PtxOp::XorB64 => (Xor, 64),
        PtxOp::ShlB32 => (Shl, 32),
        PtxOp::ShlB64 => (Shl, 64),
        PtxOp::ShrU32 | PtxOp::ShrB32 => (ShrU, 32),
        PtxOp::ShrU64 | PtxOp::ShrB64 => (ShrU, 64),
        PtxOp::MinU32 => (MinU, 32),
        PtxOp::MaxU32 => (MaxU, 32),
        _ => return None,
    })
}

fn evaluate(op: IntOp, bits: u32, a: i64, b: i64) -> Option<i64> {
    let mask = if bits == 32 { u64::from(u32::MAX) } else { u64::MAX };
    let (a, b) = (a as u64 & mask, b as u64 & mask);
    let v = match op {
        IntOp::Add => a.wrapping_add(b),
        IntOp::Sub => a.wrapping_sub(b),
        IntOp::Mul => a.wrapping_mul(b),
        IntOp::DivU => a.checked_div(b)?,
        IntOp::RemU => a.checked_rem(b)?,
        IntOp::And => a & b,
        IntOp::Or => a | b,
        IntOp::Xor => a ^ b,
        // The shift amount is 32 bits wide and clamps at the operand width.
        IntOp::Shl => {
            if b & 0xffff_ffff >= u64::from(bits) {
                0
            } else {
                a << (b as u32)
            }
        }
        IntOp::ShrU => {
            if b & 0xffff_ffff >= u64::from(bits) {
                0
            } else {
                a >> (b as u32)
            }
        }
        IntOp::MinU => a.min(b),
        IntOp::MaxU => a.max(b),
    };
    Some(if bits == 32 { wrap32(v as i64) } else { v as i64 })
}

fn reduce(
    func: &mut Function,
    s: &LocalScratch,
    uses: &mut Uses,
    inst: Inst,
    (op, bits): (IntOp, u32),
    stats: &mut CleanupStats,
) {
    let [Operand::Reg(d), mut a, mut b] = *func.operands(inst) else { return };
    let value = |o: Operand| match o {
        Operand::Imm(v) => Some(v),
        Operand::Reg(r) => match known(s, r) {
            Some(Const::Int(v)) => Some(v),
            _ => None,
        },
        _ => None,
    };
    let (x, y) = (value(a), value(b));
    if x.is_none() && y.is_none() {
        return;
    }
    let mov = mov_of(func.ty(d));
    if let (Some(x), Some(y)) = (x, y)
        && let Some(v) = evaluate(op, bits, x, y)
    {
        rewrite(func, uses, inst, mov, &[d.into(), v.into()]);
        stats.folded += 1;
        return;
    }
    use IntOp::*;
    if x.is_some() && matches!(op, Add | Mul | And | Or | Xor | MinU | MaxU) {
        std::mem::swap(&mut a, &mut b);
        if let (Operand::Reg(_), Some(v)) = (b, value(b)) {
            b = Operand::Imm(v);
        }
        let op = func.op(inst);
        rewrite(func, uses, inst, op, &[d.into(), a, b]);
    }
    let Some(y) = value(b) else { return };
    // As the operation sees it: modulo the width (a shift amount has 32 bits).
    let y = if bits == 32 || matches!(op, Shl | ShrU) { u64::from(y as u32) } else { y as u64 };
    let power = y.is_power_of_two().then(|| y.trailing_zeros());
    let copy = [d.into(), a];
    let zero = [d.into(), Operand::Imm(0)];
    let (new_op, operands): (PtxOp, SmallVec<[Operand; 3]>) = match (op, y, power) {
        (Add | Sub | Or | Xor | Shl | ShrU | MaxU, 0, _) | (Mul | DivU, 1, _) => {
            (mov, SmallVec::from_slice(&copy))
        }
        (Mul | And, 0, _) | (RemU, 1, _) => (mov, SmallVec::from_slice(&zero)),
        (Mul, _, Some(k)) => {
            let shl = if bits == 32 { PtxOp::ShlB32 } else { PtxOp::ShlB64 };
            (shl, SmallVec::from_slice(&[d.into(), a, k.into()]))
        }
        (DivU, _, Some(k)) => (PtxOp::ShrU32, SmallVec::from_slice(&[d.into(), a, k.into()])),
        (RemU, _, Some(_)) => {
            (PtxOp::AndB32, SmallVec::from_slice(&[d.into(), a, Operand::Imm(y as i64 - 1)]))
        }
        _ => return,
    };
    rewrite(func, uses, inst, new_op, &operands);
    stats.folded += 1;
}

/// An operand in one word, for hashing: equal operands have equal words.
#[inline]
fn word(operand: Operand) -> u64 {
    match operand {
        Operand::Reg(r) => u64::from(r.as_u32()) << 8,
        Operand::Imm(v) => (v as u64) << 8 | 1,
        Operand::F32(bits) => u64::from(bits) << 8 | 2,
        Operand::Special(s) => (s as u64) << 8 | 3,
        Operand::Sym(s) => u64::from(s.as_u32()) << 8 | 4,
        Operand::Param(p) => u64::from(p.as_u32()) << 8 | 5,
        Operand::Addr { base: r, offset } => pair(r.as_u32(), offset) | 6,
        Operand::SymAddr { sym, offset } => pair(sym.as_u32(), offset) | 7,
        Operand::ParamAddr { param, offset } => pair(param.as_u32(), offset) | 8,
        Operand::Local(at) => u64::from(at) << 8 | 9,
        Operand::List(l) => u64::from(l.start) << 8 | 10,
        Operand::Block(bb) => u64::from(bb.as_u32()) << 8 | 11,
    }
}

#[inline]
fn pair(entity: u32, offset: i32) -> u64 {
    (u64::from(entity) << 32 ^ u64::from(offset as u32)) << 8
}

#[inline]
fn mix(hash: u64, word: u64) -> u64 {
    // 2^64 divided by the golden ratio: the high bits of the product depend on all bits of the word.
    (hash.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Replaces an instruction without guard by a copy of an earlier equal one. Otherwise, if what it computes can be shared: the slot
/// of `expressions` to note it in.
#[inline]
fn share(
    func: &mut Function,
    s: &LocalScratch,
    uses: &mut Uses,
    inst: Inst,
    stats: &mut CleanupStats,
) -> Option<usize> {
    let look = func.look(inst);
    let op = look.op;
    if !op.is_shareable() || op.is_mov() {
        return None;
    }
    let (&Operand::Reg(d), sources) = look.operands.split_first()? else { return None };
    let mut hash = mix(0, u64::from(op as u16));
    let mut overwrites_source = false;
    for operand in sources {
        if matches!(operand, Operand::List(_)) {
            return None;
        }
        overwrites_source |= operand.reg() == Some(d);
        hash = mix(hash, word(*operand));
    }
    let mask = s.expressions.len() - 1;
    let mut slot = (hash >> 32) as usize & mask;
    loop {
        let e = s.expressions[slot];
        if e.block != s.block {
            break;
        }
        if func.op(e.inst) == op
            && let Some((&Operand::Reg(r), earlier)) = func.operands(e.inst).split_first()
            && earlier == sources
        {
            let unchanged = |o: &Operand| o.reg().is_none_or(|r| s.version[r.index()] <= e.seq);
            if s.version[r.index()] == e.seq && sources.iter().all(unchanged) && func.ty(r) == func.ty(d) {
                rewrite(func, uses, inst, mov_of(func.ty(d)), &[d.into(), r.into()]);
                stats.shared += 1;
                return None;
            }
            break;
        }
        slot = (slot + 1) & mask;
    }
    // `add i, i, 1`: what it computed is not what its text says afterwards.
    (!overwrites_source).then_some(slot)
}

#[cfg(test)]
mod tests {
    use super::super::{CleanupScratch, cleanup};
    use super::*;
    use crate::nvvm::{FuncBuilder, Module, Special, Target, print_function};

    fn cleaned(build: impl FnOnce(&mut FuncBuilder<'_>)) -> (String, CleanupStats) {
        let mut f = Function::kernel("k");
        build(&mut FuncBuilder::new(&mut f));
        let stats = cleanup(&mut f, &mut CleanupScratch::default());
        let mut text = String::new();
        print_function(&Module::new(Target::Sm100a), &f, &mut text);
        let body =
            text.lines().filter(|l| l.starts_with("    ")).map(str::trim).collect::<Vec<_>>().join("\n");
        (body, stats)
    }

    #[test]
    fn constants_and_copies_reach_their_uses() {
        let (text, _) = cleaned(|b| {
            let t = b.special(Special::TidX);
            let four = b.imm(RegTy::B32, 4);
            let copy = b.mov_b32(t);
            let a = b.mul_lo_u32(copy, four); // shl 2
            let z = b.add_u32(a, 0); // a
            b.st_shared_b32((z, 8), four);
            b.ret();
        });
        assert_eq!(text, "mov.u32 %v0:b32, %tid.x\nshl.b32 %v3:b32, %v0, 2\nst.shared.b32 [%v3+8], 4\nret");
    }

    #[test]
    fn a_rewritten_register_is_not_confused_with_its_old_value() {
        let (text, stats) = cleaned(|b| {
            let x = b.special(Special::TidX);
            let old = b.mov_b32(x);
            let first = b.add_u32(x, 5);
            b.add_u32_to(x, x, 1);
            let second = b.add_u32(x, 5); // not `first`
            b.st_shared_b32((old, 0), first);
            b.st_shared_b32((x, 0), second);
            b.ret();
        });
        assert_eq!(stats.shared, 0);
        assert!(text.contains("st.shared.b32 [%v1], %v2"), "{text}");
        assert!(text.contains("add.u32 %v3:b32, %v0, 5"), "{text}");
    }

    #[test]
    fn equal_expressions_are_computed_once() {
        let (text, stats) = cleaned(|b| {
            let t = b.special(Special::TidX);
            let x = b.shl_b32(t, 4);
            let y = b.shl_b32(t, 4);
            let s = b.xor_b32(x, y);
            b.st_shared_b32((s, 0), y);
            b.ret();
        });
        assert_eq!(stats.shared, 1);
        assert_eq!(text.matches("shl.b32").count(), 1);
        assert!(text.contains("st.shared.b32 [%v3], %v1"), "{text}");
    }

    #[test]
    fn loop_variables_keep_their_updates() {
        let (text, _) = cleaned(|b| {
            let i = b.imm(RegTy::B32, 0);
            let (head, done) = (b.block(), b.block());
            b.place(head);
            b.st_shared_b32((i, 0), i);
            b.add_u32_to(i, i, 4);
            let p = b.setp_lt_u32(i, 64);
            b.br_if(p, false, head, done);
            b.place(done);
            b.ret();
        });
        assert!(text.contains("st.shared.b32 [%v0], %v0"), "{text}");
        assert!(text.contains("add.u32 %v0:b32, %v0, 4"), "{text}");
    }

    #[test]
    fn folding_wraps_at_the_width() {
        assert_eq!(evaluate(IntOp::Add, 32, 0xffff_ffff, 2), Some(1));
        assert_eq!(evaluate(IntOp::Sub, 32, 0, 1), Some(-1));
        assert_eq!(evaluate(IntOp::DivU, 32, -2, 2), Some(0x7fff_ffff));
        assert_eq!(evaluate(IntOp::DivU, 32, 1, 0), None);
        assert_eq!(evaluate(IntOp::Shl, 32, 1, 32), Some(0));
        assert_eq!(evaluate(IntOp::ShrU, 64, -1, 63), Some(1));
        assert_eq!(evaluate(IntOp::MaxU, 32, -1, 1), Some(-1));
    }
}
