//! Matrix products by multiply-adds.
//!
//! A thread computes the rows of the accumulator that it moves to registers later: rows are dealt out over all warps of the agent, and over as many
//! lanes of each as there are rows for. Eight columns at a time, so that an element of A is read once for eight of B.

use tileas_codegen::ir::{Layout, Scalar, Swizzle};
use tileas_codegen::isa::{Emit, EmitColumns, Mma, MmaTile};
use tileas_codegen::nvvm::{FuncBuilder, Operand, Reg, RegTy};

/// Columns at a time; all atoms have a multiple of them.
const COLUMNS: u32 = 8;

/// The body for 0, `step`, … from `first` on, below `n`.
fn each(
    b: &mut FuncBuilder<'_>,
    first: Operand,
    step: u32,
    n: u32,
    body: impl FnOnce(&mut FuncBuilder<'_>, Reg),
) {
    let i = b.imm(RegTy::B32, first);
    let (head, exit) = (b.block(), b.block());
    let none = b.setp_ge_u32(i, n);
    b.br_on(none, exit);
    b.place(head);
    body(b, i);
    b.add_u32_to(i, i, step);
    let more = b.setp_lt_u32(i, n);
    b.br_if(more, false, head, exit);
    b.place(exit);
}

/// Address of an element of a tile whose slot begins at `base`.
fn element(b: &mut FuncBuilder<'_>, tile: &MmaTile, base: Reg, row: Reg, col: Reg) -> Reg {
    let byte = b.fold_mul(col, tile.elem.bytes());
    let within = if tile.layout == Layout::SmemRow {
        let line = b.mul_lo_u32(row, tile.cols * tile.elem.bytes());
        b.fold_add(line, byte)
    } else {
        // Slabs of the swizzle's span, one behind the other.
        let swizzle = tile.layout.swizzle().unwrap_or(Swizzle::None);
        let span = swizzle.span();
        let slab = b.fold_shr(byte, span.trailing_zeros());
        let slab = b.fold_mul(slab, tile.rows * span);
        let line = b.fold_mul(row, span);
        let rest = b.fold_and(byte, span - 1);
        let at = b.fold_add(slab, line);
        let at = b.fold_add(at, rest);
        let key = b.fold_shr(at, 3);
        let key = b.fold_and(key, swizzle.xor_mask());
        b.fold_xor(at, key)
    };
    b.add_u32(base, within)
}

/// An element as f32.
fn read(b: &mut FuncBuilder<'_>, elem: Scalar, at: Reg) -> Reg {
    match elem {
        Scalar::F16 => {
            let x = b.ld_shared_b16(at);
            b.cvt_f32_f16(x)
        }
        Scalar::BF16 => {
            let x = b.ld_shared_b16(at);
            b.cvt_f32_bf16(x)
        }
        _ => b.ld_shared_f32(at),
    }
}

/// Address of the slot.
fn begin(b: &mut FuncBuilder<'_>, tile: &MmaTile) -> Reg {
    let by = b.fold_mul(tile.slot, tile.size);
    let by = b.fold_add(by, tile.at);
    b.add_u32(tile.base, by)
}

impl Emit for crate::Hopper {
    fn operand_base(&self, b: &mut FuncBuilder<'_>, base: Reg, at: u32) -> Reg {
        b.add_u32(base, at)
    }

    fn mma(&self, b: &mut FuncBuilder<'_>, mma: &Mma<'_>) -> Result<(), String> {
        let r = mma.atom.request;
        let (a, x, d) = (begin(b, &mma.a), begin(b, &mma.b), begin(b, &mma.acc));
        let Some((thread, threads)) = mma.thread else {
            return Err("one lane cannot issue it".into());
        };
        let warps = threads / 32;
        let lanes = (r.m / warps).min(32);
        let (lane, warp) = (b.and_b32(thread, 31), b.shr_u32(thread, 5));
        let row = b.fold_mul(warp, lanes);
        let row = b.fold_add(row, lane);
        let busy = b.setp_lt_u32(lane, lanes);
        let first = b.selp_b32(row, r.m, busy);
        each(b, first.into(), lanes * warps, r.m, |b, m| {
            each(b, Operand::Imm(0), COLUMNS, r.n, |b, n| {
                let mut sums = Vec::new();
                let at = element(b, &mma.acc, d, m, n);
                for column in 0..COLUMNS {
                    let at = b.add_u32(at, column * mma.acc.elem.bytes());
                    let sum = b.imm(RegTy::F32, 0.0f32);
                    match mma.accumulate {
                        Operand::Reg(p) => b.on(p).ld_shared_f32_to(sum, at),
                        Operand::Imm(0) => {}
                        _ => b.ld_shared_f32_to(sum, at),
                    }
                    sums.push((sum, at, b.add_u32(n, column)));
                }
                each(b, Operand::Imm(0), 1, r.k, |b, k| {
                    let (row, col) = if r.a_m_contiguous { (k, m) } else { (m, k) };
                    let p = element(b, &mma.a, a, row, col);
                    let p = read(b, mma.a.elem, p);
                    for &(sum, _, n) in &sums {
                        let (row, col) = if r.b_n_contiguous { (k, n) } else { (n, k) };
                        let q = element(b, &mma.b, x, row, col);
                        let q = read(b, mma.b.elem, q);
                        b.fma_rn_f32_to(sum, p, q, sum);
                    }
                });
                for &(sum, at, _) in &sums {
                    b.st_shared_f32(at, sum);
                }
            });
        });
        b.bar_warp_sync(0xffff_ffffu32);
        Ok(())
    }

    /// What a thread has issued is done: it goes on behind it.
    fn commit(&self, b: &mut FuncBuilder<'_>, barrier: Operand) {
        b.mbarrier_arrive(barrier);
    }

    fn columns(&self) -> Option<&dyn EmitColumns> {
        None
    }
}
