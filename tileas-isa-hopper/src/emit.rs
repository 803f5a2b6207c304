//! The warpgroup matrix instructions: layout of accumulators, descriptors of operands, forms.
//!
//! Source: PTX ISA, "Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions": register fragments, matrix descriptor, proxies.
//! Pure functions of shapes and types, pinned by tests.

use tileas_codegen::ir::layouts::register_layout;
use tileas_codegen::ir::{Layout, Swizzle};
use tileas_codegen::isa::{
    AtomType, Emit, EmitColumns, Mma, MmaAcc, MmaAgent, MmaAtom, MmaOperand, MmaRequest, MmaTile,
    operand_step, operand_strides,
};
use tileas_codegen::layout::LinearMap;
use tileas_codegen::nvvm::{FuncBuilder, Operand, PtxOp, Reg, RegTy};

/// Rows of one instruction.
const ROWS: u32 = 64;
/// Least columns of one instruction, and most.
const COLUMNS: (u32, u32) = (8, 256);
/// Warps of a warpgroup.
const GROUP: u32 = 4;

/// How a product is divided over warpgroups: bits of the number of a warpgroup, from the lowest on, that select 64 rows, and, above these,
/// bits that select columns. What is left selects nothing: those warpgroups compute the same.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
struct Division {
    /// Bits of rows.
    rows: u32,
    /// Bits of columns.
    columns: u32,
}

impl Division {
    /// `None`: no instruction, or no warpgroups.
    fn of(m: u32, n: u32, warps: u32) -> Option<Division> {
        let sizes = m.is_power_of_two() && n.is_power_of_two() && warps.is_power_of_two();
        if !sizes || m < ROWS || n < COLUMNS.0 || warps < GROUP {
            return None;
        }
        let groups = (warps / GROUP).trailing_zeros();
        let rows = groups.min((m / ROWS).trailing_zeros());
        let columns = (groups - rows).min((n / COLUMNS.0).trailing_zeros());
        (n >> columns <= COLUMNS.1).then_some(Division { rows, columns })
    }
}

/// The registers of an accumulator of `m` rows and `n` columns over so many warps: those of the instruction, one instruction after the other
/// down the rows.
pub(crate) fn accumulator(m: u32, n: u32, warps: u32) -> Option<Layout> {
    let division = Division::of(m, n, warps)?;
    let (rows, columns) = (m.trailing_zeros(), n.trailing_zeros());
    let row = |b: u32| 1u32 << (columns + b);
    let column = |b: u32| 1u32 << b;
    let lanes = [column(1), column(2), row(0), row(1), row(2)];
    let own_columns = columns - division.columns;
    let mut warp = vec![row(4), row(5)];
    warp.extend((0..division.rows).map(|b| row(6 + b)));
    warp.extend((0..division.columns).map(|b| column(own_columns + b)));
    warp.resize(warps.trailing_zeros() as usize, 0);
    let mut register = vec![column(0), row(3)];
    register.extend((3..own_columns).map(column));
    register.extend((6 + division.rows..rows).map(row));
    register_layout(&LinearMap::registers(&register, &lanes, &warp)?, &[m, n])
}

/// The registers of a first operand of `m` rows and `k` columns of 16 bits, for an accumulator of `n` columns: those of an accumulator of that
/// size, in pairs. Warpgroups that have other columns of the accumulator have the same rows.
pub(crate) fn first_operand(m: u32, n: u32, k: u32, warps: u32) -> Option<Layout> {
    let division = Division::of(m, n, warps)?;
    if !k.is_power_of_two() || k < 16 {
        return None;
    }
    let (rows, columns) = (m.trailing_zeros(), k.trailing_zeros());
    let row = |b: u32| 1u32 << (columns + b);
    let column = |b: u32| 1u32 << b;
    let lanes = [column(1), column(2), row(0), row(1), row(2)];
    let mut warp = vec![row(4), row(5)];
    warp.extend((0..division.rows).map(|b| row(6 + b)));
    warp.resize(warps.trailing_zeros() as usize, 0);
    let mut register = vec![column(0), row(3)];
    register.extend((3..columns).map(column));
    register.extend((6 + division.rows..rows).map(row));
    register_layout(&LinearMap::registers(&register, &lanes, &warp)?, &[m, k])
}

impl Emit for crate::Hopper {
    /// Bits 13:0 of a matrix descriptor: the address in 16-byte units.
    fn operand_base(
        &self,
        b: &mut FuncBuilder<'_>,
        tile: &MmaTile,
        r: &MmaRequest,
        first: bool,
        agent: Option<MmaAgent>,
    ) -> Reg {
        let addr = if tile.at == 0 { tile.base } else { b.add_u32(tile.base, tile.at) };
        let lo = b.bfe_u32(addr, 4, 14);
        let swizzle = tile.layout.swizzle().unwrap_or(Swizzle::None);
        let mn_major = if first { r.a_m_contiguous } else { r.b_n_contiguous };
        let lo = b.fold_add(lo, matrix_descriptor(swizzle, tile.rows, mn_major).0 << 16);
        // What the warpgroup takes of it.
        let mut own = Operand::Imm(0);
        if let Some((agent, d)) = agent.and_then(|a| Some((a, Division::of(r.m, r.n, a.warps)?))) {
            let (low, bits, extent) = match first {
                true => (0, d.rows, ROWS),
                false => (d.rows, d.columns, r.n >> d.columns),
            };
            let group = b.fold_shr(agent.warp, GROUP.trailing_zeros());
            for k in 0..bits {
                let bit = b.fold_shr(group, low + k);
                let bit = b.fold_and(bit, 1);
                let part = b.fold_mul(bit, operand_step(tile, extent << k, 0, mn_major) >> 4);
                own = b.fold_add(own, part);
            }
        }
        let lo = b.fold_add(lo, own);
        b.as_reg(RegTy::B32, lo)
    }

    fn mma(&self, b: &mut FuncBuilder<'_>, mma: &Mma<'_>) -> Result<(), String> {
        let (MmaAcc::Registers(regs), Some(agent)) = (mma.acc, mma.agent) else {
            return Err("a warpgroup multiplies onto registers".into());
        };
        let r = &mma.atom.request;
        let division =
            Division::of(r.m, r.n, agent.warps).ok_or("no warpgroups hold an accumulator of this size")?;
        let n = r.n >> division.columns;
        let in_registers = matches!(mma.a, MmaOperand::Registers(_));
        let (form, transposes) = form(mma.atom, n, in_registers)?;
        let (ta, tb) = (r.a_m_contiguous, r.b_n_contiguous);
        let da = match &mma.a {
            MmaOperand::Memory(a) => Some(descriptor(b, a, ta)?),
            MmaOperand::Registers(_) => None,
        };
        let db = descriptor(b, &mma.b, tb)?;
        let per = (n / 2) as usize;
        if regs.is_empty() || !regs.len().is_multiple_of(per) {
            return Err(format!("{} registers are no accumulator of {n} columns", regs.len()));
        }
        b.wgmma_fence_sync_aligned();
        for step in 0..mma.atom.k_steps {
            let k = mma.atom.k * step;
            let xb = moved(b, db, operand_step(&mma.b, 0, k, tb));
            for (q, acc) in regs.chunks(per).enumerate() {
                let xa = match (&mma.a, da) {
                    (MmaOperand::Memory(a), Some(da)) => {
                        moved(b, da, operand_step(a, (q as u32 * ROWS) << division.rows, k, ta))
                    }
                    // Four registers of a thread for 16 columns, those of the first 64 rows first.
                    (MmaOperand::Registers(all), _) => {
                        let at = 4 * (q * mma.atom.k_steps as usize + step as usize);
                        let four = all.get(at..at + 4).ok_or("an operand of too few registers")?;
                        b.list(&four)
                    }
                    _ => return Err("an operand without a descriptor".into()),
                };
                let scale = if step == 0 { mma.accumulate } else { Operand::Imm(1) };
                let list = b.list(&acc);
                let (one, t) = (Operand::Imm(1), |t: bool| Operand::Imm(i64::from(t)));
                let all = match in_registers {
                    true => [list, xa, xb, scale, one, one, t(tb), t(tb)],
                    false => [list, xa, xb, scale, one, one, t(ta), t(tb)],
                };
                b.emit(form, &all[..4 + transposes]);
            }
        }
        b.wgmma_commit_group_sync_aligned();
        Ok(())
    }

    fn group_wait(&self, b: &mut FuncBuilder<'_>, pending: u32) {
        b.wgmma_wait_group_sync_aligned(pending);
    }

    /// What a thread has issued is done: it goes on behind it.
    fn commit(&self, b: &mut FuncBuilder<'_>, barrier: Operand, _: Option<Reg>) {
        b.mbarrier_arrive(barrier);
    }

    fn columns(&self) -> Option<&dyn EmitColumns> {
        None
    }
}

/// The 64-bit matrix descriptor of a slot.
fn descriptor(b: &mut FuncBuilder<'_>, tile: &MmaTile, mn_major: bool) -> Result<Reg, String> {
    let swizzle = tile.layout.swizzle().ok_or("matrix operands are read from shared memory")?;
    let (_, hi) = matrix_descriptor(swizzle, tile.rows, mn_major);
    let slot = b.fold_mul(tile.slot, tile.size >> 4);
    let lo = b.fold_add(tile.base, slot);
    Ok(b.pack_b64_b32([lo, Operand::Imm(i64::from(hi))]))
}

/// A descriptor that begins so many bytes later.
fn moved(b: &mut FuncBuilder<'_>, desc: Reg, bytes: u32) -> Operand {
    if bytes == 0 { desc.into() } else { b.add_s64(desc, bytes >> 4).into() }
}

/// Leading-dimension offset in 16-byte units and high word of a matrix descriptor.
fn matrix_descriptor(swizzle: Swizzle, rows: u32, mn_major: bool) -> (u32, u32) {
    let code = match swizzle {
        Swizzle::None => 0,
        Swizzle::B128 => 1,
        Swizzle::B64 => 2,
        Swizzle::B32 => 3,
    };
    let (lbo, sbo) = operand_strides(swizzle, rows, mn_major);
    (lbo >> 4, sbo >> 4 | code << 30)
}

/// Columns of the forms.
const WIDTHS: [u32; 6] = [8, 16, 32, 64, 128, 256];

/// The form of `n` columns, and how many immediates follow the scale of the accumulator.
fn form(atom: &MmaAtom, n: u32, in_registers: bool) -> Result<(PtxOp, usize), String> {
    let r = &atom.request;
    // Forms of a row stand side by side: types within widths.
    let (forms, types, number, immediates) = match (r.a, r.b) {
        (AtomType::F16, _) => ([PtxOp::WgmmaM64n8F16F16Ss, PtxOp::WgmmaM64n8F16F16Rs], 2, 0, [4, 3]),
        (AtomType::Bf16, _) => ([PtxOp::WgmmaM64n8F16F16Ss, PtxOp::WgmmaM64n8F16F16Rs], 2, 1, [4, 3]),
        (AtomType::Tf32, _) => ([PtxOp::WgmmaM64n8Tf32Tf32Ss, PtxOp::WgmmaM64n8Tf32Tf32Rs], 1, 0, [2, 2]),
        (AtomType::E4m3 | AtomType::E5m2, b) => {
            let number = 2 * usize::from(r.a == AtomType::E5m2) + usize::from(b == AtomType::E5m2);
            ([PtxOp::WgmmaM64n8E4m3E4m3Ss, PtxOp::WgmmaM64n8E4m3E4m3Rs], 4, number, [2, 2])
        }
        (AtomType::S8 | AtomType::U8, b) => {
            let forms = match r.a == b {
                true => [PtxOp::WgmmaM64n8S8S8Ss, PtxOp::WgmmaM64n8S8S8Rs],
                false => [PtxOp::WgmmaM64n8S8U8Ss, PtxOp::WgmmaM64n8S8U8Rs],
            };
            (forms, 2, usize::from(r.a == AtomType::U8), [0, 0])
        }
        (a, b) => return Err(format!("{a} x {b} has no instruction")),
    };
    let width =
        WIDTHS.iter().position(|&w| w == n).ok_or_else(|| format!("no instruction of {n} columns"))?;
    let side = usize::from(in_registers);
    Ok((PtxOp::ALL[forms[side] as usize + width * types + number], immediates[side]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_are_those_of_their_types() {
        let triple = "nvptx64-nvidia-cuda".parse().expect("a triple");
        let isa = crate::isa(&triple, "sm_90a").expect("a known processor");
        for kind in isa.atoms().kinds() {
            for &(a, b, acc) in kind.types {
                for n in WIDTHS {
                    let request = MmaRequest {
                        a,
                        b,
                        acc,
                        m: 64,
                        n,
                        k: u32::from(kind.k),
                        a_m_contiguous: false,
                        b_n_contiguous: false,
                    };
                    let atom = isa.atoms().select_mma(&request).expect("legal");
                    for in_registers in [false, true] {
                        let (form, immediates) = form(&atom, n, in_registers).expect("a form");
                        let want = format!("m64n{n}k{}.{acc}.{a}.{b}", kind.k);
                        assert!(form.form().mnemonic.ends_with(&want), "{form} for {want}");
                        assert_eq!(form.form().operands.len(), 4 + immediates, "{form}");
                        assert_eq!(form.form().name.ends_with("_rs"), in_registers);
                    }
                }
            }
        }
    }

    /// Values published with their derivation in open kernels.
    #[test]
    fn matrix_descriptors_are_pinned() {
        assert_eq!(matrix_descriptor(Swizzle::B128, 128, false), (1, 0x4000_0040));
        assert_eq!(matrix_descriptor(Swizzle::B64, 128, false), (1, 0x8000_0020));
        assert_eq!(matrix_descriptor(Swizzle::B32, 128, false), (1, 0xC000_0010));
        assert_eq!(matrix_descriptor(Swizzle::B128, 64, true), ((64 * 128) >> 4, 0x4000_0040));
    }

    #[test]
    fn warpgroups_divide_rows_first() {
        let of = |m, n, w| Division::of(m, n, w).map(|d| (d.rows, d.columns));
        assert_eq!(of(128, 256, 8), Some((1, 0)));
        assert_eq!(of(64, 256, 8), Some((0, 1)));
        assert_eq!(of(256, 8, 4), Some((0, 0)));
        assert_eq!(of(64, 8, 16), Some((0, 0)));
        assert_eq!((of(32, 64, 4), of(64, 4, 4), of(64, 64, 2), of(64, 512, 4)), (None, None, None, None));
        assert_eq!(of(64, 512, 8), Some((0, 1)));
        assert!(accumulator(128, 256, 8).is_some());
    }
}
