//! Copies, constants, strength reduction and common sub-expressions, inside blocks.
//!
//! Registers are written more than once, so each write starts a new *version* of its register; what is known about
//! a register (it copies another, it holds a constant, an expression equals it) is known of versions and forgotten
//! at the end of the block. Constants of registers with a single, unguarded write hold everywhere.
//!
//! Immediates are put where the form's class has one, not into the first source (constant folding sees to those).

use super::CleanupStats;
use super::notes::{EVERYWHERE, Notes, RegUse};
use crate::nvvm::builder::wrap32;
use crate::nvvm::forms::{Kind, PtxOp, Ty};
use crate::nvvm::module::{Function, Inst, Operand, Reg, RegTy};
use cranelift_entity::EntityRef;
use smallvec::SmallVec;

/// Scratch memory.
#[derive(Default)]
pub struct LocalScratch {
    /// Number of the block at hand in all runs, from 1: entries of `copy` and `expressions` from other blocks do not
    /// count. As it only grows, what a run leaves there means nothing to the next, and need not be cleared.
    block: u32,
    /// By register: what it was last seen to copy, with both versions.
    copy: Vec<Copy>,
    /// By register: the constant it always holds, if that is known [`EVERYWHERE`].
    constant: Vec<Const>,
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

/// Counts the writes of each register and collects the constants moved to registers.
fn scan(func: &Function, s: &mut LocalScratch, regs: &mut [RegUse]) {
    s.moved.clear();
    for &bb in func.layout() {
        let mut at = func.first_inst(bb);
        while let Some(inst) = at {
            at = func.next_inst(inst);
            let look = func.look(inst);
            let weight = 1 + u32::from(look.guard.is_some());
            match *look.results_and_sources().0 {
                [] => continue,
                [Operand::Reg(r)] => regs[r.index()].writes += weight,
                _ => look.visit_writes(|r| regs[r.index()].writes += weight),
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
pub(super) fn knows_more(s: &LocalScratch, notes: &Notes) -> bool {
    s.unknown.iter().any(|&(d, _)| notes.regs[d.index()].writes == 1)
}

/// Runs the pass.
pub fn run(func: &mut Function, s: &mut LocalScratch, stats: &mut CleanupStats) {
    run_noting(func, s, &mut Notes::default(), stats);
}

/// Runs the pass; what it leaves of each instruction is noted, for [`super::dce`] and liveness.
pub(super) fn run_noting(
    func: &mut Function,
    s: &mut LocalScratch,
    notes: &mut Notes,
    stats: &mut CleanupStats,
) {
    if s.block > u32::MAX / 2 {
        *s = LocalScratch::default();
    }
    let slots = (2 * func.num_insts()).next_power_of_two();
    if s.expressions.len() < slots {
        s.expressions.clear();
        s.expressions.resize(slots, Expression { block: 0, seq: 0, inst: Inst::from_u32(0) });
    }
    let regs = func.num_regs();
    if s.copy.len() < regs {
        s.copy.resize(regs, Copy::default());
        s.constant.resize(regs, Const::default());
    }
    notes.begin(func);
    scan(func, s, &mut notes.regs);
    s.unknown.clear();
    for &(d, c) in &s.moved {
        let u = &mut notes.regs[d.index()];
        if u.writes == 1 {
            s.constant[d.index()] = c;
            u.noted = EVERYWHERE;
        }
    }
    for row in 0..func.layout().len() {
        let bb = func.layout()[row];
        s.block += 1;
        notes.begin_row(row, bb);
        let mut at = func.first_inst(bb);
        while let Some(inst) = at {
            at = func.next_inst(inst);
            let look = func.look(inst);
            // Most instructions compute one value of registers and constants and stay as they are: one look at each operand
            // does. The others take the long way.
            let usual = look.op.is_shareable() && !look.guard.is_some();
            if usual && let [Operand::Reg(d), sources @ ..] = look.operands {
                let (d, int_op) = (*d, INT_OPS[look.op as usize]);
                notes.begin_inst();
                let mut hash = start(look.op);
                let (mut is_known, mut own, mut list) = (false, false, false);
                for (i, &operand) in sources.iter().enumerate() {
                    match operand {
                        Operand::Reg(r) => {
                            is_known |= notes.note_read(r, r == d, s.block);
                            own |= r == d;
                        }
                        Operand::Imm(v) => is_known |= int_op.is_some_and(|(op, _)| op.may_fold(i, v)),
                        _ => {
                            own |= operand.reg() == Some(d);
                            list |= matches!(operand, Operand::List(_));
                            is_known |= notes.read_operand(func, operand, d, s.block);
                        }
                    }
                    hash = mix(hash, word(operand));
                }
                if !is_known && !list {
                    // Otherwise it is to be replaced by a copy.
                    if let Ok(slot) = find(func, s, notes, look.op, sources, func.ty(d), hash) {
                        notes.write_reg(d, inst);
                        // `add i, i, 1`: what it computed is not what its text says afterwards.
                        if !own {
                            s.expressions[slot] = Expression { block: s.block, seq: notes.seq, inst };
                        }
                        continue;
                    }
                }
                unusual(func, s, notes, inst, is_known, stats);
            } else {
                notes.begin_inst();
                let is_known = notes.reread(func, look, s.block);
                if is_known || usual || look.op.is_mov() {
                    unusual(func, s, notes, inst, is_known, stats);
                } else {
                    notes.write(look, inst);
                }
            }
        }
    }
}

/// The long way of the pass for an instruction whose reads are noted; something `is_known` of what it reads, or not.
#[inline(never)]
fn unusual(
    func: &mut Function,
    s: &mut LocalScratch,
    notes: &mut Notes,
    inst: Inst,
    is_known: bool,
    stats: &mut CleanupStats,
) {
    let look = func.look(inst);
    let (op, guarded) = (look.op, look.guard.is_some());
    let may_share = !guarded && op.is_shareable();
    let int_op = INT_OPS[op as usize];
    let mut slot = None;
    if is_known {
        notes.take_back();
        propagate(func, s, notes, inst, stats);
        notes.reread(func, func.look(inst), s.block);
    }
    if let Some(op) = int_op {
        reduce(func, s, notes, inst, op, stats);
    }
    if may_share {
        slot = share(func, s, notes, inst, stats);
    }
    let look = func.look(inst);
    // Writes start new versions, then a copy or an expression is recorded.
    notes.write(look, inst);
    if let Some(slot) = slot {
        s.expressions[slot] = Expression { block: s.block, seq: notes.seq, inst };
    } else if !guarded
        && look.op.is_mov()
        && let [Operand::Reg(d), source] = *look.operands
    {
        note_mov(func, s, notes, d, source);
    }
}

/// Turns an instruction into another one and notes what that reads instead.
#[cold]
fn rewrite(func: &mut Function, notes: &mut Notes, inst: Inst, op: PtxOp, operands: &[Operand]) {
    notes.take_back();
    func.rewrite(inst, op, operands);
    notes.reread(func, func.look(inst), EVERYWHERE);
}

/// Records what an unguarded move says about its result.
fn note_mov(func: &Function, s: &mut LocalScratch, notes: &mut Notes, d: Reg, source: Operand) {
    let i = d.index();
    let of = match source {
        Operand::Reg(r) if r != d && func.ty(r) == func.ty(d) => Some((r, notes.regs[r.index()].version)),
        _ => None,
    };
    let constant = as_const(source);
    let u = &mut notes.regs[i];
    if let Some(c) = constant
        && (u.noted != EVERYWHERE || s.constant[i] != c)
    {
        if u.writes == 1 && u.reads == 0 {
            // All reads are still to come: they learn of it in this run.
            s.constant[i] = c;
            u.noted = EVERYWHERE;
        } else {
            s.unknown.push((d, c));
        }
    }
    s.copy[i] = Copy { block: s.block, own: notes.seq, of, constant };
    if u.noted != EVERYWHERE {
        u.noted = s.block;
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
#[inline]
fn known(s: &LocalScratch, notes: &Notes, r: Reg) -> Option<Const> {
    let i = r.index();
    let u = &notes.regs[i];
    if u.noted < s.block {
        return None;
    }
    let copy = &s.copy[i];
    if copy.block == s.block && copy.own == u.version && copy.constant.is_some() {
        return copy.constant;
    }
    (u.noted == EVERYWHERE).then(|| s.constant[i])
}

/// The register this one is a copy of here.
#[inline]
fn original(s: &LocalScratch, notes: &Notes, r: Reg) -> Option<Reg> {
    let u = &notes.regs[r.index()];
    if u.noted < s.block {
        return None;
    }
    let copy = &s.copy[r.index()];
    let (of, version) = copy.of?;
    (copy.block == s.block && copy.own == u.version && notes.regs[of.index()].version == version)
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

fn propagate(func: &mut Function, s: &LocalScratch, notes: &Notes, inst: Inst, stats: &mut CleanupStats) {
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
                    if imm && imm_here { known(s, notes, r).and_then(|c| constant_for(ty, c)) } else { None };
                // A store of a byte takes the low bits of a register, and no other bits as a number.
                let byte = |c: Operand| match c {
                    Operand::Imm(v) if !(0..256).contains(&v) && op.form().mnemonic.ends_with(".u8") => {
                        Operand::Imm(v & 0xff)
                    }
                    c => c,
                };
                constant.map(byte).or_else(|| original(s, notes, r).map(Operand::Reg))
            }
            (Operand::Reg(r), _) => original(s, notes, r).map(Operand::Reg),
            (Operand::Addr { base, offset }, _) => {
                original(s, notes, base).map(|base| Operand::Addr { base, offset })
            }
            (Operand::List(list), Kind::Vec { ty, imm, .. }) => {
                for at in list.start as usize..list.start as usize + list.len as usize {
                    let Operand::Reg(r) = func.pool[at] else { continue };
                    let constant =
                        if imm { known(s, notes, r).and_then(|c| constant_for(ty, c)) } else { None };
                    if let Some(new) = constant.or_else(|| original(s, notes, r).map(Operand::Reg)) {
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
        && let Some(of) = original(s, notes, p)
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

impl IntOp {
    /// Whether [`reduce`] may do something because of a constant at a position, whatever the other operand.
    #[inline]
    fn may_fold(self, position: usize, v: i64) -> bool {
        use IntOp::*;
        position == 0 || v as u32 == 0 || matches!(self, Mul | DivU | RemU)
    }
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
    notes: &mut Notes,
    inst: Inst,
    (op, bits): (IntOp, u32),
    stats: &mut CleanupStats,
) {
    let [Operand::Reg(d), mut a, mut b] = *func.operands(inst) else { return };
    let value = |o: Operand| match o {
        Operand::Imm(v) => Some(v),
        Operand::Reg(r) => match known(s, notes, r) {
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
        rewrite(func, notes, inst, mov, &[d.into(), v.into()]);
        stats.folded += 1;
        return;
    }
    use IntOp::*;
    let mut y = y;
    if let Some(v) = x
        && matches!(op, Add | Mul | And | Or | Xor | MinU | MaxU)
    {
        (a, b, y) = (b, Operand::Imm(v), x);
        let op = func.op(inst);
        rewrite(func, notes, inst, op, &[d.into(), a, b]);
    }
    let Some(y) = y else { return };
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
    rewrite(func, notes, inst, new_op, &operands);
    stats.folded += 1;
}

/// An operand in one word, for hashing: equal operands have equal words.
#[inline]
fn word(operand: Operand) -> u64 {
    match operand {
        Operand::Reg(r) => u64::from(r.as_u32()) << 8,
        Operand::Imm(v) => (v as u64) << 8 | 1,
        other => other_word(other),
    }
}

/// [`word`] of what is rare.
#[inline(never)]
fn other_word(operand: Operand) -> u64 {
    match operand {
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
        Operand::Text(n) => u64::from(n) << 8 | 12,
        Operand::Reg(_) | Operand::Imm(_) => 13,
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

/// The hash of an expression without operands.
#[inline]
fn start(op: PtxOp) -> u64 {
    mix(0, u64::from(op as u16))
}

/// Replaces an instruction without guard by a copy of an earlier equal one. Otherwise, if what it computes can be shared: the slot
/// of `expressions` to note it in.
fn share(
    func: &mut Function,
    s: &LocalScratch,
    notes: &mut Notes,
    inst: Inst,
    stats: &mut CleanupStats,
) -> Option<usize> {
    let look = func.look(inst);
    let op = look.op;
    if !op.is_shareable() {
        return None; // it has become a move
    }
    let (&Operand::Reg(d), sources) = look.operands.split_first()? else { return None };
    let mut hash = start(op);
    let mut overwrites_source = false;
    for operand in sources {
        if matches!(operand, Operand::List(_)) {
            return None;
        }
        overwrites_source |= operand.reg() == Some(d);
        hash = mix(hash, word(*operand));
    }
    match find(func, s, notes, op, sources, func.ty(d), hash) {
        Err(r) => {
            rewrite(func, notes, inst, mov_of(func.ty(d)), &[d.into(), r.into()]);
            stats.shared += 1;
            None
        }
        // `add i, i, 1`: what it computed is not what its text says afterwards.
        Ok(slot) => (!overwrites_source).then_some(slot),
    }
}

/// Looks for an expression in the block at hand: the register that has its value, or the slot of `expressions` to note it in.
#[inline]
fn find(
    func: &Function,
    s: &LocalScratch,
    notes: &Notes,
    op: PtxOp,
    sources: &[Operand],
    ty: RegTy,
    hash: u64,
) -> Result<usize, Reg> {
    let mask = s.expressions.len() - 1;
    let mut slot = (hash >> 32) as usize & mask;
    loop {
        let e = s.expressions[slot];
        if e.block != s.block {
            return Ok(slot);
        }
        if func.op(e.inst) == op
            && let Some((&Operand::Reg(r), earlier)) = func.operands(e.inst).split_first()
            && earlier == sources
        {
            let version = |r: Reg| notes.regs[r.index()].version;
            let unchanged = |o: &Operand| o.reg().is_none_or(|r| version(r) <= e.seq);
            if version(r) == e.seq && sources.iter().all(unchanged) && func.ty(r) == ty {
                return Err(r);
            }
            // Out of date: replaced.
            return Ok(slot);
        }
        slot = (slot + 1) & mask;
    }
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
