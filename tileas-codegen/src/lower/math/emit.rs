//! The [`Machine`] that emits PTX.

use super::super::Lower;
use super::Machine;
use crate::nvvm::{Operand, PtxOp, Reg, RegTy};

impl Lower<'_> {
    /// f32 operands in the form's order, the first one a register.
    fn floats(&mut self, form: PtxOp, sources: &[Operand]) -> Operand {
        let mut all: smallvec::SmallVec<[Operand; 3]> = sources.into();
        if let Some(first) = all.first_mut() {
            *first = self.b.as_reg(RegTy::F32, *first).into();
        }
        self.emit_float(form, &all).into()
    }

    /// The same where the first two may change places.
    fn product_or_sum(&mut self, form: PtxOp, sources: &mut [Operand]) -> Operand {
        if !matches!(sources[0], Operand::Reg(_)) {
            sources.swap(0, 1);
        }
        self.floats(form, sources)
    }

    fn compared(&mut self, form: PtxOp, a: Operand, b: Operand) -> Reg {
        let (d, a) = (self.b.reg(RegTy::Pred), self.b.as_reg(RegTy::F32, a));
        self.b.emit(form, &[d.into(), a.into(), b]);
        d
    }

    /// Integer operands in the form's order, the first one a register.
    fn ints(&mut self, form: PtxOp, first: Operand, others: &[Operand]) -> Operand {
        let (d, first) = (self.b.reg(RegTy::B32), self.b.as_reg(RegTy::B32, first));
        let mut all: smallvec::SmallVec<[Operand; 4]> = smallvec::smallvec![d.into(), first.into()];
        all.extend_from_slice(others);
        self.b.emit(form, &all);
        d.into()
    }

    /// The bits of an f32 in an integer register.
    pub(in super::super) fn float_bits(&mut self, a: Operand) -> Operand {
        match a {
            Operand::F32(bits) => Operand::Imm(i64::from(bits as i32)),
            x => {
                let x = self.b.as_reg(RegTy::F32, x);
                self.b.mov_bits_b32(x).into()
            }
        }
    }

    /// The f32 of the bits in an integer register.
    pub(in super::super) fn float_of_bits(&mut self, a: Operand) -> Operand {
        if let Operand::Imm(bits) = a {
            return Operand::F32(bits as u32);
        }
        let (d, a) = (self.b.reg(RegTy::F32), self.b.as_reg(RegTy::B32, a));
        self.b.mov_bits_b32_to(d, a);
        d.into()
    }
}

impl Machine for Lower<'_> {
    type F = Operand;
    type I = Operand;
    type W = Reg;
    type P = Reg;

    fn float(&mut self, x: f32) -> Operand {
        Operand::f32(x)
    }
    fn int(&mut self, x: u32) -> Operand {
        Operand::Imm(i64::from(x as i32))
    }
    fn add(&mut self, a: Operand, b: Operand) -> Operand {
        self.product_or_sum(PtxOp::AddRnF32, &mut [a, b])
    }
    fn sub(&mut self, a: Operand, b: Operand) -> Operand {
        self.floats(PtxOp::SubRnF32, &[a, b])
    }
    fn mul(&mut self, a: Operand, b: Operand) -> Operand {
        self.product_or_sum(PtxOp::MulRnF32, &mut [a, b])
    }
    fn fma(&mut self, a: Operand, b: Operand, c: Operand) -> Operand {
        self.product_or_sum(PtxOp::FmaRnF32, &mut [a, b, c])
    }
    fn div(&mut self, a: Operand, b: Operand) -> Operand {
        self.floats(PtxOp::DivRnF32, &[a, b])
    }
    fn div_fast(&mut self, a: Operand, b: Operand) -> Operand {
        self.floats(PtxOp::DivApproxF32, &[a, b])
    }
    fn reciprocal(&mut self, a: Operand) -> Operand {
        self.floats(PtxOp::RcpApproxFtzF32, &[a])
    }
    fn exp2_fast(&mut self, a: Operand) -> Operand {
        self.floats(PtxOp::Ex2ApproxFtzF32, &[a])
    }
    fn log2_fast(&mut self, a: Operand) -> Operand {
        self.floats(PtxOp::Lg2ApproxF32, &[a])
    }
    fn sin_fast(&mut self, a: Operand) -> Operand {
        self.floats(PtxOp::SinApproxF32, &[a])
    }
    fn cos_fast(&mut self, a: Operand) -> Operand {
        self.floats(PtxOp::CosApproxF32, &[a])
    }
    fn neg(&mut self, a: Operand) -> Operand {
        self.floats(PtxOp::NegF32, &[a])
    }
    fn abs(&mut self, a: Operand) -> Operand {
        self.floats(PtxOp::AbsF32, &[a])
    }
    fn min(&mut self, a: Operand, b: Operand) -> Operand {
        self.floats(PtxOp::MinF32, &[a, b])
    }
    fn max(&mut self, a: Operand, b: Operand) -> Operand {
        self.floats(PtxOp::MaxF32, &[a, b])
    }
    fn nearest(&mut self, a: Operand) -> Operand {
        self.floats(PtxOp::CvtRniF32F32, &[a])
    }
    fn floor(&mut self, a: Operand) -> Operand {
        self.floats(PtxOp::CvtRmiF32F32, &[a])
    }
    fn copysign(&mut self, magnitude: Operand, sign: Operand) -> Operand {
        self.floats(PtxOp::CopysignF32, &[sign, magnitude])
    }
    fn lt(&mut self, a: Operand, b: Operand) -> Reg {
        self.compared(PtxOp::SetpLtF32, a, b)
    }
    fn gt(&mut self, a: Operand, b: Operand) -> Reg {
        self.compared(PtxOp::SetpGtF32, a, b)
    }
    fn eq(&mut self, a: Operand, b: Operand) -> Reg {
        self.compared(PtxOp::SetpEqF32, a, b)
    }
    fn not_lt(&mut self, a: Operand, b: Operand) -> Reg {
        self.compared(PtxOp::SetpGeuF32, a, b)
    }
    fn not_gt(&mut self, a: Operand, b: Operand) -> Reg {
        self.compared(PtxOp::SetpLeuF32, a, b)
    }
    fn ne(&mut self, a: Operand, b: Operand) -> Reg {
        self.compared(PtxOp::SetpNeuF32, a, b)
    }
    fn either_nan(&mut self, a: Operand, b: Operand) -> Reg {
        self.compared(PtxOp::SetpNanF32, a, b)
    }
    fn both(&mut self, a: Reg, b: Reg) -> Reg {
        self.b.and_pred(a, b)
    }
    fn either(&mut self, a: Reg, b: Reg) -> Reg {
        self.b.or_pred(a, b)
    }
    fn differ(&mut self, a: Reg, b: Reg) -> Reg {
        self.b.xor_pred(a, b)
    }
    fn select(&mut self, p: Reg, a: Operand, b: Operand) -> Operand {
        self.b.selp_f32(a, b, p).into()
    }
    fn select_int(&mut self, p: Reg, a: Operand, b: Operand) -> Operand {
        self.b.selp_b32(a, b, p).into()
    }
    fn bits(&mut self, a: Operand) -> Operand {
        self.float_bits(a)
    }
    fn of_bits(&mut self, a: Operand) -> Operand {
        self.float_of_bits(a)
    }
    fn to_int(&mut self, a: Operand) -> Operand {
        let a = self.b.as_reg(RegTy::F32, a);
        self.b.cvt_rni_s32_f32(a).into()
    }
    fn of_int(&mut self, a: Operand) -> Operand {
        let a = self.b.as_reg(RegTy::B32, a);
        self.b.cvt_rn_f32_s32(a).into()
    }
    fn add_int(&mut self, a: Operand, b: Operand) -> Operand {
        self.b.fold_add(a, b)
    }
    fn sub_int(&mut self, a: Operand, b: Operand) -> Operand {
        self.b.fold_sub(a, b)
    }
    fn mad_int(&mut self, a: Operand, b: Operand, c: Operand) -> Operand {
        self.ints(PtxOp::MadLoU32, a, &[b, c])
    }
    fn mul_high(&mut self, a: Operand, b: Operand) -> Operand {
        self.ints(PtxOp::MulHiU32, a, &[b])
    }
    fn and_int(&mut self, a: Operand, b: Operand) -> Operand {
        self.b.fold_and(a, b)
    }
    fn or_int(&mut self, a: Operand, b: Operand) -> Operand {
        self.ints(PtxOp::OrB32, a, &[b])
    }
    fn xor_int(&mut self, a: Operand, b: Operand) -> Operand {
        self.b.fold_xor(a, b)
    }
    fn shl(&mut self, a: Operand, n: u32) -> Operand {
        self.b.fold_shl(a, n)
    }
    fn shr(&mut self, a: Operand, n: u32) -> Operand {
        self.b.fold_shr(a, n)
    }
    fn sar(&mut self, a: Operand, n: u32) -> Operand {
        self.ints(PtxOp::ShrS32, a, &[Operand::Imm(i64::from(n))])
    }
    fn funnel(&mut self, high: Operand, low: Operand, n: Operand) -> Operand {
        self.ints(PtxOp::ShfLWrapB32, low, &[high, n])
    }
    fn min_int(&mut self, a: Operand, b: Operand) -> Operand {
        self.ints(PtxOp::MinS32, a, &[b])
    }
    fn max_int(&mut self, a: Operand, b: Operand) -> Operand {
        self.ints(PtxOp::MaxS32, a, &[b])
    }
    fn lt_int(&mut self, a: Operand, b: Operand) -> Reg {
        let a = self.b.as_reg(RegTy::B32, a);
        self.b.setp_lt_s32(a, b)
    }
    fn ne_int(&mut self, a: Operand, b: Operand) -> Reg {
        let a = self.b.as_reg(RegTy::B32, a);
        self.b.setp_ne_s32(a, b)
    }
    fn mad_wide(&mut self, a: Operand, b: Operand, c: Reg) -> Reg {
        let a = self.b.as_reg(RegTy::B32, a);
        self.b.mad_wide_u32(a, b, c)
    }
    fn wide(&mut self, high: Operand, low: Operand) -> Reg {
        self.b.pack_b64_b32([low, high])
    }
    fn halves(&mut self, a: Reg) -> (Operand, Operand) {
        let mut parts = self.b.unpack_b64_b32(a).iter().map(Operand::Reg);
        let mut next = || parts.next().unwrap_or(Operand::Imm(0));
        (next(), next())
    }
    fn shl_wide(&mut self, a: Reg, n: Operand) -> Reg {
        self.b.shl_b64(a, n)
    }
    fn rem_wide(&mut self, a: Reg, b: Reg) -> Reg {
        self.b.rem_u64(a, b)
    }
    fn of_wide(&mut self, a: Reg) -> Operand {
        self.b.cvt_rn_f32_s64(a).into()
    }
}
