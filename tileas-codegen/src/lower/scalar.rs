//! Scalar ops: integers of 32 and 64 bits, `i1` as predicates, floats in f32 registers.
//!
//! Integers of 8 and 16 bits live in 32-bit registers, sign-extended; what may leave their range is cut again. Unsigned ops in
//! which the upper bits count read them zero-extended; comparisons need not, since sign extension keeps the unsigned order.
//!
//! f16 and bf16 scalars live in f32 registers and are rounded to their type after every op, which is the one
//! rounding the op's documentation promises (the f32 result of two 16-bit operands is exact or innocuously
//! rounded for add, sub, mul; division and roots are documented as rounded through f32).

use super::{Lower, Val};
use crate::error::{Code, CodegenResult};
use crate::ir::{AttrData, Op, Opcode, Scalar, keys};
use crate::nvvm::{Operand, PtxOp, Reg, RegTy, Special};

impl Lower<'_> {
    /// Lowers an op on scalars.
    pub(super) fn scalar_op(&mut self, op: Op) -> CodegenResult<()> {
        use Opcode as O;
        let f = self.f;
        let Some(result) = f.result(op) else { return self.unsupported(op, "has no lowering") };
        let Some(ty) = f.value_data(result).as_scalar() else {
            return self.unsupported(op, "has no lowering for this type");
        };
        let axis = || f.attr_int(op, keys::AXIS).unwrap_or(0);
        let x: Operand = match f.opcode(op) {
            O::Constant => self.constant(op, ty)?,
            O::ProgramId => {
                let s = [Special::CtaidX, Special::CtaidY, Special::CtaidZ];
                self.b.special(s[axis().clamp(0, 2) as usize]).into()
            }
            O::NumPrograms => {
                let s = [Special::NctaidX, Special::NctaidY, Special::NctaidZ];
                self.b.special(s[axis().clamp(0, 2) as usize]).into()
            }
            O::Dim => {
                let view = f.operands(op).first().and_then(|&v| self.abi.view_index(v));
                match view
                    .and_then(|v| self.nv.views[v].size_reg.get(axis().max(0) as usize).copied().flatten())
                {
                    Some(x) => x,
                    None => {
                        return self.unsupported(op, "needs a view parameter and an axis within its rank");
                    }
                }
            }
            _ => {
                let args: smallvec::SmallVec<[(Operand, Scalar); 3]> = f
                    .operands(op)
                    .iter()
                    .map(|&v| {
                        let s = f.value_data(v).as_scalar().unwrap_or(Scalar::I32);
                        self.scalar(op, v).map(|x| (x, s))
                    })
                    .collect::<CodegenResult<_>>()?;
                let x = self.arith(op, &args, ty)?;
                self.wrapped(x, ty)
            }
        };
        self.vals[result] = Val::Scalar(x);
        Ok(())
    }

    /// An immediate of type `ty`.
    pub(super) fn constant(&mut self, op: Op, ty: Scalar) -> CodegenResult<Operand> {
        let Some(value) = self.f.attr(op, keys::VALUE) else {
            return self.err(Code::E0803, op, "constant without value");
        };
        let number = match value {
            AttrData::Int(v, _) if ty.is_int() => {
                return Ok(Operand::Imm(match ty {
                    Scalar::I64 => *v,
                    Scalar::I16 => i64::from(*v as i16),
                    Scalar::I8 => i64::from(*v as i8),
                    Scalar::I1 => *v & 1,
                    _ => i64::from(*v as i32),
                }));
            }
            AttrData::Int(v, _) => *v as f64,
            AttrData::Float(x, _) => x.get(),
            _ => return self.err(Code::E0803, op, "constant value is not a number"),
        };
        if ty.is_int() {
            return self.err(Code::E0803, op, "integer constant with a float value");
        }
        Ok(Operand::f32(round_const(number, ty)))
    }

    /// An integer of 8 or 16 bits cut to its width and sign-extended; other types pass through.
    pub(super) fn wrapped(&mut self, x: Operand, ty: Scalar) -> Operand {
        let bits = match ty {
            Scalar::I8 => 8,
            Scalar::I16 => 16,
            _ => return x,
        };
        match x {
            Operand::Imm(v) => Operand::Imm(v << (64 - bits) >> (64 - bits)),
            // Bytes of the value, then of its sign.
            x if bits == 8 => self.b.prmt_b32(x, 0, 0x8880).into(),
            x => self.b.prmt_b32(x, 0, 0x9910).into(),
        }
    }

    /// As [`Lower::wrapped`], zero-extended.
    fn zero_extended(&mut self, x: Operand, ty: Scalar) -> Operand {
        match ty {
            Scalar::I8 => self.b.fold_and(x, 0xff),
            Scalar::I16 => self.b.fold_and(x, 0xffff),
            _ => x,
        }
    }

    /// One arithmetic op on scalars or on single elements. Integers of 8 and 16 bits may leave their range.
    pub(super) fn arith(&mut self, op: Op, args: &[(Operand, Scalar)], ty: Scalar) -> CodegenResult<Operand> {
        use Opcode as O;
        let code = self.f.opcode(op);
        let unsigned = self.f.has_attr(op, keys::UNSIGNED);
        let get = |n: usize| args.get(n).copied().unwrap_or((Operand::Imm(0), Scalar::I32));
        let (mut a, ta) = get(0);
        let (mut b, _) = get(1);
        let wide = ta == Scalar::I64;
        let upper_bits_count = matches!(code, O::Divi | O::Remi | O::Shri | O::Itof | O::Exti);
        if unsigned && upper_bits_count {
            (a, b) = (self.zero_extended(a, ta), self.zero_extended(b, ta));
        }
        if ta == Scalar::I1
            && matches!(code, O::Divi | O::Remi | O::Maxi | O::Mini | O::Shli | O::Shri | O::Negi | O::Itof)
        {
            return self.unsupported(op, "does not compute i1");
        }
        let r: Reg = match code {
            O::Addi | O::Subi | O::Muli | O::Andi | O::Ori | O::Xori if ta == Scalar::I1 => {
                let (a, b) = (self.b.as_reg(RegTy::Pred, a), self.b.as_reg(RegTy::Pred, b));
                match code {
                    O::Muli | O::Andi => self.b.and_pred(a, b),
                    O::Ori => self.b.or_pred(a, b),
                    _ => self.b.xor_pred(a, b),
                }
            }
            O::Addi if !wide => return Ok(self.b.fold_add(a, b)),
            O::Subi if !wide => return Ok(self.b.fold_sub(a, b)),
            O::Muli if !wide => return Ok(self.b.fold_mul(a, b)),
            O::Andi if !wide => return Ok(self.b.fold_and(a, b)),
            O::Xori if !wide => return Ok(self.b.fold_xor(a, b)),
            O::Addi | O::Subi | O::Muli | O::Andi | O::Xori => {
                let a = self.b.as_reg(RegTy::B64, a);
                match code {
                    O::Addi => self.b.add_s64(a, b),
                    O::Subi => self.b.sub_s64(a, b),
                    O::Muli => self.b.mul_lo_s64(a, b),
                    O::Andi => self.b.and_b64(a, b),
                    _ => self.b.xor_b64(a, b),
                }
            }
            O::Ori if wide => {
                let a = self.b.as_reg(RegTy::B64, a);
                self.b.or_b64(a, b)
            }
            O::Ori => {
                let a = self.b.as_reg(RegTy::B32, a);
                self.b.or_b32(a, b)
            }
            O::Divi | O::Remi | O::Maxi | O::Mini | O::Shli | O::Shri => {
                let a = self.b.as_reg(if wide { RegTy::B64 } else { RegTy::B32 }, a);
                let b = if wide && matches!(code, O::Shli | O::Shri) {
                    match b {
                        Operand::Reg(r) => self.b.cvt_u32_u64(r).into(),
                        x => x,
                    }
                } else {
                    b
                };
                match (code, wide, unsigned) {
                    (O::Divi, false, true) => self.b.div_u32(a, b),
                    (O::Divi, false, false) => self.b.div_s32(a, b),
                    (O::Divi, true, true) => self.b.div_u64(a, b),
                    (O::Divi, true, false) => self.b.div_s64(a, b),
                    (O::Remi, false, true) => self.b.rem_u32(a, b),
                    (O::Remi, false, false) => self.b.rem_s32(a, b),
                    (O::Remi, true, true) => self.b.rem_u64(a, b),
                    (O::Remi, true, false) => self.b.rem_s64(a, b),
                    (O::Maxi, false, true) => self.b.max_u32(a, b),
                    (O::Maxi, false, false) => self.b.max_s32(a, b),
                    (O::Maxi, true, true) => self.b.max_u64(a, b),
                    (O::Maxi, true, false) => self.b.max_s64(a, b),
                    (O::Mini, false, true) => self.b.min_u32(a, b),
                    (O::Mini, false, false) => self.b.min_s32(a, b),
                    (O::Mini, true, true) => self.b.min_u64(a, b),
                    (O::Mini, true, false) => self.b.min_s64(a, b),
                    (O::Shli, false, _) => self.b.shl_b32(a, b),
                    (O::Shli, true, _) => self.b.shl_b64(a, b),
                    (_, false, true) => self.b.shr_u32(a, b),
                    (_, false, false) => self.b.shr_s32(a, b),
                    (_, true, true) => self.b.shr_u64(a, b),
                    (_, true, false) => self.b.shr_s64(a, b),
                }
            }
            O::Negi => {
                let a = self.b.as_reg(if wide { RegTy::B64 } else { RegTy::B32 }, a);
                if wide { self.b.neg_s64(a) } else { self.b.neg_s32(a) }
            }
            O::Cmpi | O::Cmpf => return self.compare(op, a, b, ta, unsigned),
            O::Select => {
                let (x, y) = (get(1).0, get(2).0);
                let Operand::Reg(c) = a else { return Ok(if a == Operand::Imm(0) { y } else { x }) };
                match ty {
                    Scalar::I1 => {
                        let (x, y) = (self.b.as_reg(RegTy::Pred, x), self.b.as_reg(RegTy::Pred, y));
                        let t = self.b.and_pred(c, x);
                        let n = self.b.not_pred(c);
                        let e = self.b.and_pred(n, y);
                        self.b.or_pred(t, e)
                    }
                    Scalar::I64 => self.b.selp_b64(x, y, c),
                    t if t.is_float() => self.b.selp_f32(x, y, c),
                    _ => self.b.selp_b32(x, y, c),
                }
            }
            O::Itof => {
                let a = self.b.as_reg(if wide { RegTy::B64 } else { RegTy::B32 }, a);
                let r = match (wide, unsigned) {
                    (false, false) => self.b.cvt_rn_f32_s32(a),
                    (false, true) => self.b.cvt_rn_f32_u32(a),
                    (true, false) => self.b.cvt_rn_f32_s64(a),
                    (true, true) => self.b.cvt_rn_f32_u64(a),
                };
                return Ok(self.round(r.into(), ty));
            }
            O::Ftoi => {
                let a = self.b.as_reg(RegTy::F32, a);
                if matches!(ty, Scalar::I1 | Scalar::I64) {
                    return self.unsupported(op, format!("does not convert to {}", ty.name()));
                }
                // Saturated in 32 bits, then in what is asked for.
                let bits = ty.bits();
                match (unsigned, bits < 32) {
                    (false, false) => self.b.cvt_rzi_s32_f32(a),
                    (true, false) => self.b.cvt_rzi_u32_f32(a),
                    (false, true) => {
                        let r = self.b.cvt_rzi_s32_f32(a);
                        let r = self.b.max_s32(r, -(1i64 << (bits - 1)));
                        self.b.min_s32(r, (1i64 << (bits - 1)) - 1)
                    }
                    (true, true) => {
                        let r = self.b.cvt_rzi_u32_f32(a);
                        self.b.min_u32(r, (1i64 << bits) - 1)
                    }
                }
            }
            O::Exti if ta == Scalar::I1 => {
                let c = self.b.as_reg(RegTy::Pred, a);
                let one = if unsigned { 1 } else { -1 };
                if ty == Scalar::I64 { self.b.selp_b64(one, 0, c) } else { self.b.selp_b32(one, 0, c) }
            }
            O::Exti if ty == Scalar::I64 => {
                let a = self.b.as_reg(RegTy::B32, a);
                if unsigned { self.b.cvt_u64_u32(a) } else { self.b.cvt_s64_s32(a) }
            }
            // The register holds the wider number already.
            O::Exti => return Ok(a),
            O::Trunci => {
                let a = match a {
                    Operand::Reg(r) if wide => self.b.cvt_u32_u64(r).into(),
                    Operand::Imm(v) => Operand::Imm(i64::from(v as i32)),
                    x => x,
                };
                if ty != Scalar::I1 {
                    return Ok(a);
                }
                let low = self.b.fold_and(a, 1);
                let low = self.b.as_reg(RegTy::B32, low);
                self.b.setp_ne_b32(low, 0)
            }
            O::Ftof => return Ok(self.round(a, ty)),
            _ => {
                let x = self.float(op, args)?;
                return Ok(self.round(x.into(), ty));
            }
        };
        Ok(r.into())
    }

    /// The form of a float op on f32 that one instruction computes, and how many of its sources, from the first on, have to
    /// be registers.
    pub(super) fn float_form(&self, op: Op) -> Option<(PtxOp, usize)> {
        use Opcode as O;
        let nan = || self.f.has_attr(op, keys::PROPAGATE_NAN);
        Some(match self.f.opcode(op) {
            O::Addf => (PtxOp::AddRnF32, 1),
            O::Subf => (PtxOp::SubRnF32, 1),
            O::Mulf => (PtxOp::MulRnF32, 1),
            O::Divf => (PtxOp::DivRnF32, 2),
            O::Maxf => (if nan() { PtxOp::MaxNanF32 } else { PtxOp::MaxF32 }, 1),
            O::Minf => (if nan() { PtxOp::MinNanF32 } else { PtxOp::MinF32 }, 1),
            O::Fma => (PtxOp::FmaRnF32, 2),
            O::Negf => (PtxOp::NegF32, 1),
            O::Absf => (PtxOp::AbsF32, 1),
            O::Exp2 => (PtxOp::Ex2ApproxF32, 1),
            O::Log2 => (PtxOp::Lg2ApproxF32, 1),
            O::Sqrt => (PtxOp::SqrtRnF32, 1),
            O::Rsqrt => (PtxOp::RsqrtApproxF32, 1),
            O::Tanh => (PtxOp::TanhApproxF32, 1),
            _ => return None,
        })
    }

    /// Emits such a form.
    #[inline]
    pub(super) fn emit_float(&mut self, form: PtxOp, sources: &[Operand]) -> Reg {
        let d = self.b.reg(RegTy::F32);
        match *sources {
            [a] => self.b.emit(form, &[d.into(), a]),
            [a, b] => self.b.emit(form, &[d.into(), a, b]),
            _ => {
                let all: smallvec::SmallVec<[Operand; 4]> =
                    std::iter::once(d.into()).chain(sources.iter().copied()).collect();
                self.b.emit(form, &all)
            }
        };
        d
    }

    /// A float op on f32 registers.
    fn float(&mut self, op: Op, args: &[(Operand, Scalar)]) -> CodegenResult<Reg> {
        use Opcode as O;
        if let Some((form, registers)) = self.float_form(op) {
            let sources: smallvec::SmallVec<[Operand; 3]> = args
                .iter()
                .enumerate()
                .map(|(k, &(x, _))| if k < registers { self.b.as_reg(RegTy::F32, x).into() } else { x })
                .collect();
            return Ok(self.emit_float(form, &sources));
        }
        let a = args.first().map_or(Operand::Imm(0), |a| a.0);
        let a = self.b.as_reg(RegTy::F32, a);
        Ok(match self.f.opcode(op) {
            O::Exp => {
                let t = self.b.mul_rn_f32(a, std::f32::consts::LOG2_E);
                self.b.ex2_approx_f32(t)
            }
            O::Log => {
                let t = self.b.lg2_approx_f32(a);
                self.b.mul_rn_f32(t, std::f32::consts::LN_2)
            }
            _ => return self.unsupported(op, "has no lowering"),
        })
    }

    /// Rounds an f32 to a narrower type and back; other types pass through.
    pub(super) fn round(&mut self, x: Operand, ty: Scalar) -> Operand {
        if !matches!(ty, Scalar::F16 | Scalar::BF16) {
            return x;
        }
        let r = self.b.as_reg(RegTy::F32, x);
        if ty == Scalar::F16 {
            let h = self.b.cvt_rn_f16_f32(r);
            self.b.cvt_f32_f16(h).into()
        } else {
            let h = self.b.cvt_rn_bf16_f32(r);
            self.b.cvt_f32_bf16(h).into()
        }
    }

    fn compare(
        &mut self,
        op: Op,
        a: Operand,
        b: Operand,
        ty: Scalar,
        unsigned: bool,
    ) -> CodegenResult<Operand> {
        let pred = self.f.attr_name(op, keys::PREDICATE).unwrap_or("eq");
        let i = ["eq", "ne", "lt", "le", "gt", "ge"].iter().position(|p| *p == pred).unwrap_or(0);
        if ty == Scalar::I1 {
            let (a, b) = (self.b.as_reg(RegTy::Pred, a), self.b.as_reg(RegTy::Pred, b));
            let x = self.b.xor_pred(a, b);
            return match i {
                0 => Ok(self.b.not_pred(x).into()),
                1 => Ok(x.into()),
                _ => self.unsupported(op, "compares i1 for equality only"),
            };
        }
        macro_rules! table {
            ($rt:expr; $eq:ident $ne:ident $lt:ident $le:ident $gt:ident $ge:ident) => {{
                let a = self.b.as_reg($rt, a);
                match i {
                    0 => self.b.$eq(a, b),
                    1 => self.b.$ne(a, b),
                    2 => self.b.$lt(a, b),
                    3 => self.b.$le(a, b),
                    4 => self.b.$gt(a, b),
                    _ => self.b.$ge(a, b),
                }
            }};
        }
        let r = match (ty.is_float(), ty == Scalar::I64, unsigned) {
            (true, ..) => {
                table!(RegTy::F32; setp_eq_f32 setp_neu_f32 setp_lt_f32 setp_le_f32 setp_gt_f32 setp_ge_f32)
            }
            (_, false, false) => {
                table!(RegTy::B32; setp_eq_s32 setp_ne_s32 setp_lt_s32 setp_le_s32 setp_gt_s32 setp_ge_s32)
            }
            (_, false, true) => {
                table!(RegTy::B32; setp_eq_u32 setp_ne_u32 setp_lt_u32 setp_le_u32 setp_gt_u32 setp_ge_u32)
            }
            (_, true, false) => {
                table!(RegTy::B64; setp_eq_s64 setp_ne_s64 setp_lt_s64 setp_le_s64 setp_gt_s64 setp_ge_s64)
            }
            (_, true, true) => {
                table!(RegTy::B64; setp_eq_u64 setp_ne_u64 setp_lt_u64 setp_le_u64 setp_gt_u64 setp_ge_u64)
            }
        };
        Ok(r.into())
    }
}

/// A constant rounded to nearest even into `ty`, as the f32 that holds it.
fn round_const(x: f64, ty: Scalar) -> f32 {
    let v = x as f32;
    match ty {
        Scalar::BF16 => {
            if v.is_nan() {
                return v;
            }
            let b = v.to_bits();
            f32::from_bits(b.wrapping_add(0x7fff + (b >> 16 & 1)) & 0xffff_0000)
        }
        Scalar::F16 => {
            let a = v.abs();
            if !v.is_finite() || a == 0.0 {
                return v;
            }
            let exp = (a.to_bits() >> 23) as i32 - 127;
            let quantum = 2f64.powi((exp - 10).max(-24));
            let q = f64::from(v) / quantum;
            let r = q.round_ties_even() * quantum;
            if r.abs() >= 65520.0 { f32::INFINITY.copysign(v) } else { r as f32 }
        }
        _ => v,
    }
}
