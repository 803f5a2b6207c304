//! Encodings of the tcgen05 matrix instructions, and the instructions around them.
//!
//! Source: PTX ISA, tcgen05 "Instruction descriptor" and "Shared memory descriptor"; strides as in "Canonical
//! layouts". Pure functions of shapes and types, pinned by tests against published constants.

use tileas_codegen::ir::Swizzle;
use tileas_codegen::isa::Emit;
use tileas_codegen::isa::{AtomType, MmaAtom, MmaEncoding};
use tileas_codegen::nvvm::{FuncBuilder, Operand, PtxOp, Reg, RegTy, Regs};

impl Emit for crate::Blackwell {
    fn acc_alloc(&self, b: &mut FuncBuilder<'_>, to: Operand, columns: u32) {
        b.tcgen05_alloc_cg1(to, columns);
        b.tcgen05_relinquish_cg1();
    }

    fn acc_free(&self, b: &mut FuncBuilder<'_>, base: Reg, columns: u32) {
        b.tcgen05_dealloc_cg1(base, columns);
    }

    fn acc_load(&self, b: &mut FuncBuilder<'_>, to: Regs, (base, offset): (Reg, i32)) {
        for (at, n) in pieces(to.len()) {
            let list = b.list(&to.slice(at, at + n));
            b.emit(load(n), &[list, Operand::addr(base, offset + at as i32)]);
        }
        b.tcgen05_wait_ld();
    }

    fn acc_store(&self, b: &mut FuncBuilder<'_>, (base, offset): (Reg, i32), values: &[Operand]) {
        for (at, n) in pieces(values.len()) {
            let mut piece = [Operand::Imm(0); 32];
            for (x, &v) in piece.iter_mut().zip(&values[at..at + n]) {
                *x = b.as_reg(RegTy::F32, v).into();
            }
            let list = b.list(&&piece[..n]);
            b.emit(store(n), &[Operand::addr(base, offset + at as i32), list]);
        }
    }

    fn acc_store_wait(&self, b: &mut FuncBuilder<'_>) {
        b.tcgen05_wait_st();
    }

    fn fence_before(&self, b: &mut FuncBuilder<'_>) {
        b.tcgen05_fence_before();
    }

    fn fence_after(&self, b: &mut FuncBuilder<'_>) {
        b.tcgen05_fence_after();
    }

    fn commit(&self, b: &mut FuncBuilder<'_>, barrier: Operand) {
        b.tcgen05_commit_cg1(barrier);
    }
}

/// First column and width of the instructions that move `columns` columns.
fn pieces(columns: usize) -> impl Iterator<Item = (usize, usize)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let n = 1 << columns.checked_sub(at)?.checked_ilog2()?.min(5);
        at += n;
        Some((at - n, n))
    })
}

fn load(columns: usize) -> PtxOp {
    match columns {
        1 => PtxOp::Tcgen05Ld32x32bX1,
        2 => PtxOp::Tcgen05Ld32x32bX2,
        4 => PtxOp::Tcgen05Ld32x32bX4,
        8 => PtxOp::Tcgen05Ld32x32bX8,
        16 => PtxOp::Tcgen05Ld32x32bX16,
        _ => PtxOp::Tcgen05Ld32x32bX32,
    }
}

fn store(columns: usize) -> PtxOp {
    match columns {
        1 => PtxOp::Tcgen05St32x32bX1,
        2 => PtxOp::Tcgen05St32x32bX2,
        4 => PtxOp::Tcgen05St32x32bX4,
        8 => PtxOp::Tcgen05St32x32bX8,
        16 => PtxOp::Tcgen05St32x32bX16,
        _ => PtxOp::Tcgen05St32x32bX32,
    }
}

/// The form and the 32-bit instruction descriptor of an MMA.
pub(crate) fn encode_mma(atom: &MmaAtom) -> Result<MmaEncoding, String> {
    let r = &atom.request;
    let form = match atom.kind.kind {
        "f16" => PtxOp::Tcgen05MmaCg1F16Ss,
        "tf32" => PtxOp::Tcgen05MmaCg1Tf32Ss,
        "f8f6f4" => PtxOp::Tcgen05MmaCg1F8f6f4Ss,
        other => return Err(format!("matrix instructions of kind {other} have no encoding yet")),
    };
    let code = |t: AtomType| match (atom.kind.kind, t) {
        ("f16", AtomType::F16) | ("f8f6f4", AtomType::E4m3) => Ok(0),
        ("f16", AtomType::Bf16) | ("f8f6f4", AtomType::E5m2) => Ok(1),
        ("tf32", AtomType::Tf32) => Ok(2),
        (kind, t) => Err(format!("operand type {t:?} has no code in kind {kind}")),
    };
    let d: u32 = match r.acc {
        AtomType::F16 => 0,
        AtomType::F32 => 1,
        t => return Err(format!("accumulator type {t:?} has no code")),
    };
    let descriptor = d << 4
        | code(r.a)? << 7
        | code(r.b)? << 10
        | u32::from(r.a_m_contiguous) << 15
        | u32::from(r.b_n_contiguous) << 16
        | (r.n >> 3) << 17
        | (r.m >> 4) << 24;
    Ok(MmaEncoding { form, descriptor })
}

/// Leading-dimension offset in 16-byte units and high word of a shared-memory matrix descriptor.
///
/// `rows`: rows of a slab (M or N extent when K is innermost, K extent when M or N is).
pub(crate) fn smem_descriptor(swizzle: Swizzle, rows: u32, mn_major: bool) -> (u32, u32) {
    let span = swizzle.span();
    let code = match swizzle {
        Swizzle::None => 0,
        Swizzle::B128 => 2,
        Swizzle::B64 => 4,
        Swizzle::B32 => 6,
    };
    let slab = rows * span;
    let (lbo, sbo) = match (swizzle, mn_major) {
        (Swizzle::None, true) => (8 * 16, slab), // between 8-k groups; between 16-byte chunks of MN
        (Swizzle::None, false) => (slab, 8 * 16), // between 16-byte chunks of K; between 8-row groups
        (_, true) => (slab, 8 * span),
        (_, false) => (16, 8 * span), // ignored by the hardware, conventionally 1
    };
    // Bits 46 (constant) and 63:61 (swizzle) of the descriptor, in its high word.
    (lbo >> 4, sbo >> 4 | 1 << 14 | code << 29)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tileas_codegen::isa::MmaRequest;

    fn idesc(a: AtomType, m: u32, n: u32, k: u32, b_n_contiguous: bool) -> u32 {
        let isa = crate::isa_for_cpu("sm_100a").expect("a known processor");
        let request =
            MmaRequest { a, b: a, acc: AtomType::F32, m, n, k, a_m_contiguous: false, b_n_contiguous };
        encode_mma(&isa.atoms().select_mma(&request).expect("legal")).expect("encodable").descriptor
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
