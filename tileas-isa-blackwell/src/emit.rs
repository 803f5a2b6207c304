//! Encodings of the tcgen05 matrix instructions, and the instructions around them.
//!
//! Source: PTX ISA, tcgen05 "Instruction descriptor" and "Shared memory descriptor"; strides as in "Canonical
//! layouts". Pure functions of shapes and types, pinned by tests against published constants.

use tileas_codegen::ir::Swizzle;
use tileas_codegen::isa::{
    AtomType, Emit, EmitColumns, Mma, MmaAcc, MmaAgent, MmaAtom, MmaOperand, MmaRequest, MmaTile,
    operand_step, operand_strides,
};
use tileas_codegen::layout::Access;
use tileas_codegen::nvvm::{FuncBuilder, Operand, PtxOp, Reg, RegTy, Regs};

impl Emit for crate::Blackwell {
    /// Bits 13:0 of a matrix descriptor: the address in 16-byte units.
    fn operand_base(
        &self,
        b: &mut FuncBuilder<'_>,
        tile: &MmaTile,
        _: &MmaRequest,
        _: bool,
        _: Option<MmaAgent>,
    ) -> Reg {
        let addr = if tile.at == 0 { tile.base } else { b.add_u32(tile.base, tile.at) };
        b.bfe_u32(addr, 4, 14)
    }

    fn mma(&self, b: &mut FuncBuilder<'_>, mma: &Mma<'_>) -> Result<(), String> {
        let Mma { atom, a: MmaOperand::Memory(a), acc: MmaAcc::Memory(acc), .. } = mma else {
            return Err("accumulators are in tensor memory, operands in shared memory".into());
        };
        let (form, idesc) = encode_mma(atom)?;
        let (ta, tb) = (atom.request.a_m_contiguous, atom.request.b_n_contiguous);
        let (da, db) = (descriptor(b, a, ta)?, descriptor(b, &mma.b, tb)?);
        let dst = match acc.slot {
            Operand::Imm(s) => Operand::addr(acc.base, (acc.at + s as u32 * acc.size) as i32),
            s => {
                let off = b.fold_mul(s, acc.size);
                Operand::addr(b.add_u32(acc.base, off), acc.at as i32)
            }
        };
        for step in 0..atom.k_steps {
            let xa = step_descriptor(b, a, da, atom.k * step, ta);
            let xb = step_descriptor(b, &mma.b, db, atom.k * step, tb);
            let enable = if step == 0 { mma.accumulate } else { Operand::Imm(1) };
            b.emit(form, &[dst, xa, xb, Operand::Imm(i64::from(idesc)), enable]);
        }
        Ok(())
    }

    fn commit(&self, b: &mut FuncBuilder<'_>, barrier: Operand, ctas: Option<Reg>) {
        match ctas {
            Some(mask) => b.tcgen05_commit_multicast_cg1(barrier, mask),
            None => b.tcgen05_commit_cg1(barrier),
        }
    }

    fn columns(&self) -> Option<&dyn EmitColumns> {
        Some(self)
    }
}

impl EmitColumns for crate::Blackwell {
    fn alloc(&self, b: &mut FuncBuilder<'_>, to: Operand, columns: u32) {
        b.tcgen05_alloc_cg1(to, columns);
        b.tcgen05_relinquish_cg1();
    }

    fn free(&self, b: &mut FuncBuilder<'_>, base: Reg, columns: u32) {
        b.tcgen05_dealloc_cg1(base, columns);
    }

    /// Warp w has the lanes from 32 w on; the lane stands in bits 31:16.
    fn warp_base(&self, b: &mut FuncBuilder<'_>, base: Reg, warp: Operand) -> Operand {
        let lanes = b.fold_shl(warp, 21);
        b.fold_add(base, lanes)
    }

    fn load(&self, b: &mut FuncBuilder<'_>, access: Access, to: Regs, (base, offset): (Reg, i32)) {
        for (at, n) in pieces(to.len()) {
            let list = b.list(&to.slice(at, at + n));
            let from = Operand::addr(base, offset + first_column(access, at));
            b.emit(load(access, n), &[list, from]);
        }
        b.tcgen05_wait_ld();
    }

    fn store(&self, b: &mut FuncBuilder<'_>, access: Access, (base, offset): (Reg, i32), values: &[Operand]) {
        for (at, n) in pieces(values.len()) {
            let mut piece = [Operand::Imm(0); 32];
            for (x, &v) in piece.iter_mut().zip(&values[at..at + n]) {
                let ty = if matches!(v, Operand::Imm(_)) { RegTy::B32 } else { RegTy::F32 };
                *x = b.as_reg(ty, v).into();
            }
            let list = b.list(&&piece[..n]);
            let to = Operand::addr(base, offset + first_column(access, at));
            b.emit(store(access, n), &[to, list]);
        }
    }

    fn store_wait(&self, b: &mut FuncBuilder<'_>) {
        b.tcgen05_wait_st();
    }

    fn fence_before(&self, b: &mut FuncBuilder<'_>) {
        b.tcgen05_fence_before();
    }

    fn fence_after(&self, b: &mut FuncBuilder<'_>) {
        b.tcgen05_fence_after();
    }
}

/// The 64-bit matrix descriptor of a slot's first K step.
fn descriptor(b: &mut FuncBuilder<'_>, tile: &MmaTile, mn_major: bool) -> Result<Reg, String> {
    let swizzle = tile.layout.swizzle().ok_or("matrix operands are read from shared memory")?;
    let (lbo, hi) = smem_descriptor(swizzle, tile.rows, mn_major);
    let lo = match tile.slot {
        Operand::Imm(0) => Operand::Reg(tile.base),
        s => {
            let off = b.fold_mul(s, tile.size >> 4);
            b.add_u32(tile.base, off).into()
        }
    };
    let lo = if lbo == 0 { lo } else { b.or_b32(lo, lbo << 16).into() };
    Ok(b.pack_b64_b32([lo, Operand::Imm(i64::from(hi))]))
}

/// The descriptor of the step that begins with element `k` of K.
fn step_descriptor(b: &mut FuncBuilder<'_>, tile: &MmaTile, desc: Reg, k: u32, mn_major: bool) -> Operand {
    let bytes = operand_step(tile, 0, k, mn_major);
    if bytes == 0 { desc.into() } else { b.add_s64(desc, bytes >> 4).into() }
}

/// First register and number of registers of the instructions that move `registers` registers.
fn pieces(registers: usize) -> impl Iterator<Item = (usize, usize)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let n = 1 << registers.checked_sub(at)?.checked_ilog2()?.min(5);
        at += n;
        Some((at - n, n))
    })
}

/// The column of the first of the registers from `register` on: by rows each has one, in fragments four have eight.
fn first_column(access: Access, register: usize) -> i32 {
    match access {
        Access::B256 => 2 * register as i32,
        _ => register as i32,
    }
}

fn load(access: Access, registers: usize) -> PtxOp {
    match (access, registers) {
        (Access::B256, 4) => PtxOp::Tcgen05Ld16x256bX1,
        (Access::B256, 8) => PtxOp::Tcgen05Ld16x256bX2,
        (Access::B256, 16) => PtxOp::Tcgen05Ld16x256bX4,
        (Access::B256, _) => PtxOp::Tcgen05Ld16x256bX8,
        (_, 1) => PtxOp::Tcgen05Ld32x32bX1,
        (_, 2) => PtxOp::Tcgen05Ld32x32bX2,
        (_, 4) => PtxOp::Tcgen05Ld32x32bX4,
        (_, 8) => PtxOp::Tcgen05Ld32x32bX8,
        (_, 16) => PtxOp::Tcgen05Ld32x32bX16,
        _ => PtxOp::Tcgen05Ld32x32bX32,
    }
}

fn store(access: Access, registers: usize) -> PtxOp {
    match (access, registers) {
        (Access::B256, 4) => PtxOp::Tcgen05St16x256bX1,
        (Access::B256, 8) => PtxOp::Tcgen05St16x256bX2,
        (Access::B256, 16) => PtxOp::Tcgen05St16x256bX4,
        (Access::B256, _) => PtxOp::Tcgen05St16x256bX8,
        (_, 1) => PtxOp::Tcgen05St32x32bX1,
        (_, 2) => PtxOp::Tcgen05St32x32bX2,
        (_, 4) => PtxOp::Tcgen05St32x32bX4,
        (_, 8) => PtxOp::Tcgen05St32x32bX8,
        (_, 16) => PtxOp::Tcgen05St32x32bX16,
        _ => PtxOp::Tcgen05St32x32bX32,
    }
}

/// The form and the 32-bit instruction descriptor of an MMA.
fn encode_mma(atom: &MmaAtom) -> Result<(PtxOp, u32), String> {
    let r = &atom.request;
    let form = match atom.kind.kind {
        "f16" => PtxOp::Tcgen05MmaCg1F16Ss,
        "tf32" => PtxOp::Tcgen05MmaCg1Tf32Ss,
        "f8f6f4" => PtxOp::Tcgen05MmaCg1F8f6f4Ss,
        "i8" => PtxOp::Tcgen05MmaCg1I8Ss,
        other => return Err(format!("matrix instructions of kind {other} have no encoding yet")),
    };
    let code = |t: AtomType| match (atom.kind.kind, t) {
        ("f16", AtomType::F16) | ("f8f6f4", AtomType::E4m3) | ("i8", AtomType::U8) => Ok(0),
        ("f16", AtomType::Bf16) | ("f8f6f4", AtomType::E5m2) | ("i8", AtomType::S8) => Ok(1),
        ("tf32", AtomType::Tf32) => Ok(2),
        (kind, t) => Err(format!("operand type {t:?} has no code in kind {kind}")),
    };
    let d: u32 = match r.acc {
        AtomType::F16 => 0,
        AtomType::F32 => 1,
        AtomType::S32 => 2,
        t => return Err(format!("accumulator type {t:?} has no code")),
    };
    let descriptor = d << 4
        | code(r.a)? << 7
        | code(r.b)? << 10
        | u32::from(r.a_m_contiguous) << 15
        | u32::from(r.b_n_contiguous) << 16
        | (r.n >> 3) << 17
        | (r.m >> 4) << 24;
    Ok((form, descriptor))
}

/// Leading-dimension offset in 16-byte units and high word of a shared-memory matrix descriptor.
///
/// `rows`: rows of a slab (M or N extent when K is innermost, K extent when M or N is).
fn smem_descriptor(swizzle: Swizzle, rows: u32, mn_major: bool) -> (u32, u32) {
    let code = match swizzle {
        Swizzle::None => 0,
        Swizzle::B128 => 2,
        Swizzle::B64 => 4,
        Swizzle::B32 => 6,
    };
    let (lbo, sbo) = operand_strides(swizzle, rows, mn_major);
    // Bits 46 (constant) and 63:61 (swizzle) of the descriptor, in its high word.
    (lbo >> 4, sbo >> 4 | 1 << 14 | code << 29)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn idesc(a: AtomType, m: u32, n: u32, k: u32, b_n_contiguous: bool) -> u32 {
        let isa = crate::isa_for_cpu("sm_100a").expect("a known processor");
        let request =
            MmaRequest { a, b: a, acc: AtomType::F32, m, n, k, a_m_contiguous: false, b_n_contiguous };
        encode_mma(&isa.atoms().select_mma(&request).expect("legal")).expect("encodable").1
    }

    /// Values published with their derivation (PTX instruction descriptor table).
    #[test]
    fn instruction_descriptors_are_pinned() {
        assert_eq!(idesc(AtomType::Bf16, 128, 256, 64, false), 0x0840_0490);
        assert_eq!(idesc(AtomType::F16, 128, 128, 64, true), 0x0821_0010);
        assert_eq!(idesc(AtomType::F16, 128, 128, 64, false), 0x0820_0010);
        assert_eq!(idesc(AtomType::Tf32, 64, 64, 32, false), 0x0410_0910);
    }

    #[test]
    fn matrix_descriptors_are_pinned() {
        assert_eq!(smem_descriptor(Swizzle::B128, 128, false), (1, 0x4000_4040));
        assert_eq!(smem_descriptor(Swizzle::B64, 128, false), (1, 0x8000_4020));
        assert_eq!(smem_descriptor(Swizzle::B32, 128, false), (1, 0xC000_4010));
        assert_eq!(smem_descriptor(Swizzle::B128, 64, true), ((64 * 128) >> 4, 0x4000_4040));
        assert_eq!(smem_descriptor(Swizzle::None, 128, false), ((128 * 16) >> 4, 0x0000_4008));
        assert_eq!(smem_descriptor(Swizzle::None, 64, true), (8, ((64 * 16) >> 4) | 0x4000));
    }
}
