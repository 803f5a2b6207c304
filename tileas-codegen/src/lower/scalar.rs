//! Scalar ops: integers of 32 and 64 bits, `i1` as predicates, floats in f32 registers.
//!
//! Integers of 8 and 16 bits live in 32-bit registers, sign-extended; what may leave their range is cut again. Unsigned ops in
//! which the upper bits count read them zero-extended; comparisons need not, since sign extension keeps the unsigned order.
//!
//! f16 and bf16 scalars live in f32 registers and are rounded to their type after every op, which is the one
//! rounding the op's documentation promises (the f32 result of two 16-bit operands is exact or innocuously
//! rounded for add, sub, mul; division and roots are documented as rounded through f32).

use super::{Lower, Val, math};
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
            O::ProgramId => self.program_id(axis()),
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
        if ty == Scalar::F64 {
            return Ok(Operand::Imm(number.to_bits() as i64));
        }
        let x = Operand::f32(round_const(number, ty));
        Ok(if super::tile::packing(ty) == 2 { self.round(x, ty) } else { x })
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
        if unsigned && upper_bits_count || code == O::Mulhii {
            (a, b) = (self.zero_extended(a, ta), self.zero_extended(b, ta));
        }
        if ta == Scalar::I1
            && matches!(
                code,
                O::Divi | O::Remi | O::Maxi | O::Mini | O::Shli | O::Shri | O::Negi | O::Absi | O::Mulhii
            )
        {
            return self.unsupported(op, "does not compute i1");
        }
        let double = [ta, ty].contains(&Scalar::F64) && !matches!(code, O::Select | O::Bitcast);
        let r: Reg = match code {
            O::Ftoi => return self.truncated(op, a, ta, ty, unsigned),
            _ if double => return self.double(op, a, args, ta),
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
            O::Divi if self.f.attr_name(op, keys::ROUNDING).is_some_and(|r| r != "zero") => {
                return Ok(self.directed_quotient(op, a, b, wide, unsigned));
            }
            O::Divi | O::Remi | O::Maxi | O::Mini | O::Shli | O::Shri => {
                let a = self.b.as_reg(if wide { RegTy::B64 } else { RegTy::B32 }, a);
                let b = if wide && matches!(code, O::Shli | O::Shri) {
                    match b {
                        // Instructions take amounts of 32 bits.
                        Operand::Reg(r) => {
                            let most = self.b.min_u64(r, 64);
                            self.b.cvt_u32_u64(most).into()
                        }
                        Operand::Imm(n) => Operand::Imm(if (0..64).contains(&n) { n } else { 64 }),
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
            O::Absi => {
                let a = self.b.as_reg(if wide { RegTy::B64 } else { RegTy::B32 }, a);
                if wide { self.b.abs_s64(a) } else { self.b.abs_s32(a) }
            }
            O::Popci if ta == Scalar::I1 => return Ok(a),
            O::Popci if wide => {
                let a = self.b.as_reg(RegTy::B64, a);
                let n = self.b.popc_b64(a);
                self.b.cvt_u64_u32(n)
            }
            O::Popci => {
                let bits = self.b.fold_and(a, (1_i64 << ta.bits()) - 1);
                self.b.popc_b32(bits)
            }
            O::Mulhii if wide => {
                let a = self.b.as_reg(RegTy::B64, a);
                self.b.mul_hi_u64(a, b)
            }
            O::Mulhii if ta.bits() < 32 => {
                // The product of zero-extended factors fits 32 bits.
                let product = self.b.fold_mul(a, b);
                return Ok(self.b.fold_shr(product, ta.bits()));
            }
            O::Mulhii => {
                let a = self.b.as_reg(RegTy::B32, a);
                self.b.mul_hi_u32(a, b)
            }
            O::Bitcast => return self.bitcast(op, a),
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
                    Scalar::I64 | Scalar::F64 => self.b.selp_b64(x, y, c),
                    t if t.is_float() => self.b.selp_f32(x, y, c),
                    _ => self.b.selp_b32(x, y, c),
                }
            }
            O::Itof if ta == Scalar::I1 => {
                let p = self.b.as_reg(RegTy::Pred, a);
                let one = self.b.selp_f32(Operand::f32(1.0), Operand::f32(0.0), p);
                return Ok(self.round(one.into(), ty));
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
            O::Powi => {
                let x = self.integer_power(op, args)?;
                return Ok(self.round(x, ty));
            }
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
        if self.of_f64(op) {
            return None;
        }
        let flag = |key| self.f.has_attr(op, key);
        let (nan, ftz) = (flag(keys::PROPAGATE_NAN), flag(keys::FTZ));
        let rounding = self.f.attr_name(op, keys::ROUNDING);
        let code = self.f.opcode(op);
        if let (O::Addf | O::Subf | O::Mulf | O::Fma | O::Divf | O::Sqrt, Some(rounding)) = (code, rounding)
            && rounding != "nearest_even"
        {
            return Some((rounded_form(code, rounding, ftz)?, first_registers(code)));
        }
        let form = match (code, ftz) {
            (O::Addf, false) => PtxOp::AddRnF32,
            (O::Addf, true) => PtxOp::AddRnFtzF32,
            (O::Subf, false) => PtxOp::SubRnF32,
            (O::Subf, true) => PtxOp::SubRnFtzF32,
            (O::Mulf, false) => PtxOp::MulRnF32,
            (O::Mulf, true) => PtxOp::MulRnFtzF32,
            (O::Divf, false) => PtxOp::DivRnF32,
            (O::Divf, true) => PtxOp::DivRnFtzF32,
            (O::Maxf, false) => {
                if nan {
                    PtxOp::MaxNanF32
                } else {
                    PtxOp::MaxF32
                }
            }
            (O::Maxf, true) => {
                if nan {
                    PtxOp::MaxFtzNanF32
                } else {
                    PtxOp::MaxFtzF32
                }
            }
            (O::Minf, false) => {
                if nan {
                    PtxOp::MinNanF32
                } else {
                    PtxOp::MinF32
                }
            }
            (O::Minf, true) => {
                if nan {
                    PtxOp::MinFtzNanF32
                } else {
                    PtxOp::MinFtzF32
                }
            }
            (O::Fma, false) => PtxOp::FmaRnF32,
            (O::Fma, true) => PtxOp::FmaRnFtzF32,
            (O::Exp2, false) => PtxOp::Ex2ApproxF32,
            (O::Exp2, true) => PtxOp::Ex2ApproxFtzF32,
            (O::Sqrt, false) => PtxOp::SqrtRnF32,
            (O::Sqrt, true) => PtxOp::SqrtRnFtzF32,
            (O::Rsqrt, false) => PtxOp::RsqrtApproxF32,
            (O::Rsqrt, true) => PtxOp::RsqrtApproxFtzF32,
            (O::Negf, _) => PtxOp::NegF32,
            (O::Absf, _) => PtxOp::AbsF32,
            (O::Floor, _) => PtxOp::CvtRmiF32F32,
            (O::Ceil, _) => PtxOp::CvtRpiF32F32,
            (O::Roundeven, _) => PtxOp::CvtRniF32F32,
            (O::Log2, _) => PtxOp::Lg2ApproxF32,
            (O::Tanh, _) if rounding == Some("approx") => PtxOp::TanhApproxF32,
            (O::Sin, _) if flag(keys::APPROX) => PtxOp::SinApproxF32,
            (O::Cos, _) if flag(keys::APPROX) => PtxOp::CosApproxF32,
            _ => return None,
        };
        Some((form, first_registers(code)))
    }

    /// Whether an op has f64 as operands or result.
    pub(super) fn of_f64(&self, op: Op) -> bool {
        let f = self.f;
        let mut all = f.operands(op).iter().chain(f.results(op));
        all.any(|&v| f.value_data(v).elem() == Some(Scalar::F64))
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
        let get = |n: usize| args.get(n).map_or(Operand::f32(0.0), |a| a.0);
        let (a, second) = (self.b.as_reg(RegTy::F32, get(0)), get(1));
        let x = Operand::Reg(a);
        let fast = self.f.has_attr(op, keys::APPROX);
        let value = match self.f.opcode(op) {
            O::Exp => {
                let t = self.b.mul_rn_f32(a, std::f32::consts::LOG2_E);
                let fast = self.f.attr_name(op, keys::ROUNDING) == Some("approx");
                let r = if fast { self.b.ex2_approx_ftz_f32(t) } else { self.b.ex2_approx_f32(t) };
                return Ok(r);
            }
            O::Log => {
                let t = self.b.lg2_approx_f32(a);
                return Ok(self.b.mul_rn_f32(t, std::f32::consts::LN_2));
            }
            O::Sin => math::sin(self, x),
            O::Cos => math::cos(self, x),
            O::Tan if fast => math::tan_fast(self, x),
            O::Tan => math::tan(self, x),
            O::Sinh if fast => math::sinh_fast(self, x),
            O::Sinh => math::sinh(self, x),
            O::Cosh if fast => math::cosh_fast(self, x),
            O::Cosh => math::cosh(self, x),
            O::Tanh => math::tanh(self, x),
            O::Erf => math::erf(self, x),
            O::Atan2 => math::atan2(self, x, second),
            O::Pow if fast => math::pow_fast(self, x, second),
            O::Pow => math::pow(self, x, second),
            O::Remf => {
                let second = self.b.as_reg(RegTy::F32, second).into();
                math::remainder(self, x, second, self.exponent_range(op))
            }
            _ => return self.unsupported(op, "has no lowering"),
        };
        Ok(self.b.as_reg(RegTy::F32, value))
    }

    /// By how much the exponents of two numbers of the result's type differ at most.
    fn exponent_range(&self, op: Op) -> u32 {
        match self.f.result(op).and_then(|r| self.f.value_data(r).elem()) {
            // From 2^-24 to 2^15.
            Some(Scalar::F16) => 39,
            // Subnormal numbers count as those of the least normal exponent.
            _ => 253,
        }
    }

    /// `powi` in f32. Small constant exponents are products.
    fn integer_power(&mut self, op: Op, args: &[(Operand, Scalar)]) -> CodegenResult<Operand> {
        let &[(base, _), (exponent, ty)] = args else { return self.err(Code::E0803, op, "malformed power") };
        if ty == Scalar::I1 {
            return self.unsupported(op, "does not take exponents of i1");
        }
        let x = Operand::Reg(self.b.as_reg(RegTy::F32, base));
        match exponent {
            Operand::Imm(0) => return Ok(Operand::f32(1.0)),
            Operand::Imm(1) => return Ok(x),
            Operand::Imm(2..=4) => {
                let square = self.b.mul_rn_f32(x, x);
                return Ok(match exponent {
                    Operand::Imm(2) => square,
                    Operand::Imm(3) => self.b.mul_rn_f32(square, x),
                    _ => self.b.mul_rn_f32(square, square),
                }
                .into());
            }
            _ => {}
        }
        let wide = ty == Scalar::I64;
        let n = self.b.as_reg(if wide { RegTy::B64 } else { RegTy::B32 }, exponent);
        let (rounded, low) = match wide {
            true => (self.b.cvt_rn_f32_s64(n), self.b.cvt_u32_u64(n)),
            false => (self.b.cvt_rn_f32_s32(n), n),
        };
        if self.f.has_attr(op, keys::APPROX) {
            return Ok(math::powi_fast(self, x, rounded.into(), low.into()));
        }
        // What the f32 lacks of the number; beside the greatest number one, which does not show.
        let rest = match ty {
            Scalar::I8 | Scalar::I16 => None,
            Scalar::I64 => {
                let back = self.b.cvt_rzi_s64_f32(rounded);
                let rest = self.b.sub_s64(n, back);
                Some(self.b.cvt_rn_f32_s64(rest).into())
            }
            _ => {
                let back = self.b.cvt_rzi_s32_f32(rounded);
                let rest = self.b.sub_s32(n, back);
                Some(self.b.cvt_rn_f32_s32(rest).into())
            }
        };
        let exponent = math::Exponent { rounded: rounded.into(), rest };
        Ok(math::powi(self, x, &exponent, low.into()))
    }

    /// A float truncated and saturated: in 32 or 64 bits, then in what is asked for. NaN gives 0.
    fn truncated(
        &mut self,
        op: Op,
        a: Operand,
        from: Scalar,
        to: Scalar,
        unsigned: bool,
    ) -> CodegenResult<Operand> {
        if to == Scalar::I1 {
            return self.unsupported(op, format!("does not convert to {}", to.name()));
        }
        let (double, wide) = (from == Scalar::F64, to == Scalar::I64);
        let a = self.b.as_reg(if double { RegTy::B64 } else { RegTy::F32 }, a);
        let form = match (double, wide, unsigned) {
            (false, false, false) => PtxOp::CvtRziS32F32,
            (false, false, true) => PtxOp::CvtRziU32F32,
            (false, true, false) => PtxOp::CvtRziS64F32,
            (false, true, true) => PtxOp::CvtRziU64F32,
            (true, false, false) => PtxOp::CvtRziS32F64,
            (true, false, true) => PtxOp::CvtRziU32F64,
            (true, true, false) => PtxOp::CvtRziS64F64,
            (true, true, true) => PtxOp::CvtRziU64F64,
        };
        let mut r = self.b.reg(if wide { RegTy::B64 } else { RegTy::B32 });
        self.b.emit(form, &[r.into(), a.into()]);
        if double || wide {
            // Conversions of 64 bits make a NaN the number with the upper bit alone (PTX ISA, cvt).
            let number = if double { self.b.setp_num_f64(a, a) } else { self.b.setp_num_f32(a, a) };
            r = if wide { self.b.selp_b64(r, 0, number) } else { self.b.selp_b32(r, 0, number) };
        }
        let bits = to.bits();
        Ok(match (unsigned, bits < 32) {
            (false, true) => {
                let r = self.b.max_s32(r, -(1i64 << (bits - 1)));
                self.b.min_s32(r, (1i64 << (bits - 1)) - 1)
            }
            (true, true) => self.b.min_u32(r, (1i64 << bits) - 1),
            _ => r,
        }
        .into())
    }

    /// A float op with operands or a result of f64: one instruction that rounds once, or a sequence of such.
    fn double(
        &mut self,
        op: Op,
        first: Operand,
        args: &[(Operand, Scalar)],
        from: Scalar,
    ) -> CodegenResult<Operand> {
        use Opcode as O;
        let f = self.f;
        let code = f.opcode(op);
        let to = f.result(op).and_then(|r| f.value_data(r).elem()).unwrap_or(Scalar::F64);
        let unsigned = f.has_attr(op, keys::UNSIGNED);
        let mut x = [self.b.as_reg(super::reg_ty(from).unwrap_or(RegTy::F32), first); 3];
        if f.has_attr(op, keys::APPROX) || f.attr_name(op, keys::ROUNDING).is_some_and(|r| r == "approx") {
            return self.unsupported(op, "has no approximation for f64");
        }
        if code == O::Powi {
            return self.integer_power_f64(op, x[0], args);
        }
        if let (O::Itof, true) = (code, from == Scalar::I1) {
            return Ok(self.b.selp_b64(1f64.to_bits() as i64, 0, x[0]).into());
        }
        for (x, &(arg, _)) in x.iter_mut().zip(args).skip(1) {
            *x = self.b.as_reg(RegTy::B64, arg);
        }
        let [a, b, c] = x;
        let r = match code {
            O::Addf => self.b.add_rn_f64(a, b),
            O::Subf => self.b.sub_rn_f64(a, b),
            O::Mulf => self.b.mul_rn_f64(a, b),
            O::Divf => self.b.div_rn_f64(a, b),
            O::Fma => self.b.fma_rn_f64(a, b, c),
            O::Maxf | O::Minf => {
                let r = if code == O::Maxf { self.b.max_f64(a, b) } else { self.b.min_f64(a, b) };
                if !f.has_attr(op, keys::PROPAGATE_NAN) {
                    return Ok(r.into());
                }
                let (nan, sum) = (self.b.setp_nan_f64(a, b), self.b.add_rn_f64(a, b));
                self.b.selp_b64(sum, r, nan)
            }
            O::Negf => self.b.neg_f64(a),
            O::Absf => self.b.abs_f64(a),
            O::Sqrt => self.b.sqrt_rn_f64(a),
            O::Rsqrt => {
                let (one, root) = (self.b.imm(RegTy::B64, 1f64.to_bits() as i64), self.b.sqrt_rn_f64(a));
                self.b.div_rn_f64(one, root)
            }
            O::Floor => self.b.cvt_rmi_f64_f64(a),
            O::Ceil => self.b.cvt_rpi_f64_f64(a),
            O::Roundeven => self.b.cvt_rni_f64_f64(a),
            O::Itof => match (from == Scalar::I64, unsigned) {
                (false, false) => self.b.cvt_rn_f64_s32(a),
                (false, true) => self.b.cvt_rn_f64_u32(a),
                (true, false) => self.b.cvt_rn_f64_s64(a),
                (true, true) => self.b.cvt_rn_f64_u64(a),
            },
            O::Ftof if from == to => a,
            O::Ftof if to == Scalar::F64 => self.b.cvt_f64_f32(a),
            O::Ftof if to == Scalar::F32 => self.b.cvt_rn_f32_f64(a),
            O::Ftof if to == Scalar::F16 => {
                let h = self.b.cvt_rn_f16_f64(a);
                self.b.cvt_f32_f16(h)
            }
            O::Ftof if to == Scalar::BF16 => {
                let h = self.b.cvt_rn_bf16_f64(a);
                self.b.cvt_f32_bf16(h)
            }
            O::Cmpf => return self.compare(op, a.into(), b.into(), from, false),
            O::Exp => math::double::exp(self, a),
            O::Exp2 => math::double::exp2(self, a),
            O::Log => math::double::log(self, a),
            O::Log2 => math::double::log2(self, a),
            O::Sin => math::double::sin(self, a),
            O::Cos => math::double::cos(self, a),
            O::Tan => math::double::tan(self, a),
            O::Sinh => math::double::sinh(self, a),
            O::Cosh => math::double::cosh(self, a),
            O::Tanh => math::double::tanh(self, a),
            O::Erf => math::double::erf(self, a),
            O::Atan2 => math::double::atan2(self, a, b),
            O::Pow => math::double::pow(self, a, b),
            O::Remf => math::double::remainder(self, a, b),
            O::Ftof => {
                let (from, to) = (from.name(), to.name());
                return self.unsupported(op, format!("does not convert {from} to {to}"));
            }
            _ => return self.unsupported(op, "does not compute f64"),
        };
        Ok(r.into())
    }

    /// `powi` in f64. Small constant exponents are products.
    fn integer_power_f64(&mut self, op: Op, x: Reg, args: &[(Operand, Scalar)]) -> CodegenResult<Operand> {
        let Some(&(exponent, ty)) = args.get(1) else { return self.err(Code::E0803, op, "malformed power") };
        if ty == Scalar::I1 {
            return self.unsupported(op, "does not take exponents of i1");
        }
        match exponent {
            Operand::Imm(0) => return Ok(self.b.imm(RegTy::B64, 1f64.to_bits() as i64).into()),
            Operand::Imm(1) => return Ok(x.into()),
            Operand::Imm(n @ 2..=4) => {
                let square = self.b.mul_rn_f64(x, x);
                return Ok(match n {
                    2 => square,
                    3 => self.b.mul_rn_f64(square, x),
                    _ => self.b.mul_rn_f64(square, square),
                }
                .into());
            }
            _ => {}
        }
        let (rounded, rest, low) = if ty == Scalar::I64 {
            let n = self.b.as_reg(RegTy::B64, exponent);
            let rounded = self.b.cvt_rn_f64_s64(n);
            // What the f64 lacks of the number; beside the greatest number one, which does not show.
            let back = self.b.cvt_rzi_s64_f64(rounded);
            let rest = self.b.sub_s64(n, back);
            (rounded, Some(self.b.cvt_rn_f64_s64(rest)), self.b.cvt_u32_u64(n))
        } else {
            let n = self.b.as_reg(RegTy::B32, exponent);
            (self.b.cvt_rn_f64_s32(n), None, n)
        };
        Ok(math::double::powi(self, x, &math::Exponent { rounded, rest }, low.into()).into())
    }

    /// A quotient rounded down or up: the truncated one, corrected where there is a remainder.
    fn directed_quotient(&mut self, op: Op, a: Operand, b: Operand, wide: bool, unsigned: bool) -> Operand {
        let ty = if wide { RegTy::B64 } else { RegTy::B32 };
        let (a, b) = (self.b.as_reg(ty, a), self.b.as_reg(ty, b));
        let (q, product) = match (wide, unsigned) {
            (false, true) => (self.b.div_u32(a, b), PtxOp::MulLoU32),
            (false, false) => (self.b.div_s32(a, b), PtxOp::MulLoU32),
            (true, true) => (self.b.div_u64(a, b), PtxOp::MulLoU64),
            (true, false) => (self.b.div_s64(a, b), PtxOp::MulLoU64),
        };
        let p = self.b.reg(ty);
        self.b.emit(product, &[p.into(), q.into(), b.into()]);
        let rest = if wide { self.b.sub_s64(a, p) } else { self.b.sub_s32(a, p) };
        let uneven = if wide { self.b.setp_ne_s64(rest, 0) } else { self.b.setp_ne_s32(rest, 0) };
        // The truncated quotient is below the exact one where that is positive: where the remainder has the divisor's sign.
        let down = self.f.attr_name(op, keys::ROUNDING) == Some("negative_inf");
        let wrong = if unsigned {
            uneven
        } else {
            let signs = if wide { self.b.xor_b64(rest, b) } else { self.b.xor_b32(rest, b) };
            let side = match (wide, down) {
                (false, true) => self.b.setp_lt_s32(signs, 0),
                (false, false) => self.b.setp_ge_s32(signs, 0),
                (true, true) => self.b.setp_lt_s64(signs, 0),
                (true, false) => self.b.setp_ge_s64(signs, 0),
            };
            self.b.and_pred(uneven, side)
        };
        let by = if down { -1 } else { 1 };
        if wide {
            let by = self.b.selp_b64(by, 0, wrong);
            self.b.add_s64(q, by).into()
        } else {
            let by = self.b.selp_b32(by, 0, wrong);
            self.b.add_s32(q, by).into()
        }
    }

    /// The same bits as another type of the same width. Elements of 16 bits are in the registers of scalars here; packed ones
    /// are the same in all types.
    fn bitcast(&mut self, op: Op, x: Operand) -> CodegenResult<Operand> {
        let f = self.f;
        let from = f.operands(op).first().and_then(|&v| f.value_data(v).elem());
        let to = f.result(op).and_then(|v| f.value_data(v).elem());
        let (Some(from), Some(to)) = (from, to) else {
            return self.err(Code::E0803, op, "malformed conversion");
        };
        let doubles = [from, to].iter().all(|s| matches!(s, Scalar::I64 | Scalar::F64));
        if from == to || from.is_int() && to.is_int() || doubles {
            return Ok(x);
        }
        let bits = match from {
            Scalar::F16 => {
                let r = self.b.as_reg(RegTy::F32, x);
                let h = self.b.cvt_rn_f16_f32(r);
                self.b.cvt_u32_u16(h).into()
            }
            // The upper half of the f32.
            Scalar::BF16 => {
                let bits = self.float_bits(x);
                self.b.fold_shr(bits, 16)
            }
            Scalar::F32 => self.float_bits(x),
            // Each is a power of two, or NaN: rounding finds its bits. Those of other bytes it would not.
            Scalar::UE8M0 => {
                let x = self.b.as_reg(RegTy::F32, x);
                let pair = self.pair_of_bytes(x, x, from);
                let both = self.b.cvt_u32_u16(pair);
                self.b.fold_and(both, 0xff)
            }
            s if s.is_int() && s.bits() <= 32 => x,
            s => return self.unsupported(op, format!("does not take the bits of {}", s.name())),
        };
        Ok(match to {
            Scalar::F16 => {
                let bits = self.b.as_reg(RegTy::B32, bits);
                let h = self.b.cvt_u16_u32(bits);
                self.b.cvt_f32_f16(h).into()
            }
            Scalar::BF16 => {
                let bits = self.b.fold_shl(bits, 16);
                self.float_of_bits(bits)
            }
            Scalar::F32 => self.float_of_bits(bits),
            Scalar::UE8M0 => {
                let bits = self.b.as_reg(RegTy::B32, bits);
                let pair = self.b.cvt_u16_u32(bits);
                self.widened(pair, to)[0]
            }
            s if s.is_int() => bits,
            s => return self.unsupported(op, format!("does not make bits a {}", s.name())),
        })
    }

    /// Rounds an f32 to a narrower type and back; other types pass through.
    pub(super) fn round(&mut self, x: Operand, ty: Scalar) -> Operand {
        if ty != Scalar::TF32 && !super::tile::in_f32(ty) {
            return x;
        }
        let r = self.b.as_reg(RegTy::F32, x);
        if ty == Scalar::TF32 {
            // The bits of an f32, the last 13 of them 0.
            let bits = self.b.cvt_rn_tf32_f32(r);
            self.float_of_bits(bits.into())
        } else if super::tile::packing(ty) == 2 {
            self.round_to_byte(r, ty)
        } else if ty == Scalar::F16 {
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
        let r = match (ty.is_float(), matches!(ty, Scalar::I64 | Scalar::F64), unsigned) {
            (true, true, _) => {
                if self.f.has_attr(op, keys::UNORDERED) {
                    table!(RegTy::B64; setp_equ_f64 setp_neu_f64 setp_ltu_f64 setp_leu_f64 setp_gtu_f64 setp_geu_f64)
                } else {
                    table!(RegTy::B64; setp_eq_f64 setp_neu_f64 setp_lt_f64 setp_le_f64 setp_gt_f64 setp_ge_f64)
                }
            }
            (true, ..) if self.f.has_attr(op, keys::UNORDERED) => {
                table!(RegTy::F32; setp_equ_f32 setp_neu_f32 setp_ltu_f32 setp_leu_f32 setp_gtu_f32 setp_geu_f32)
            }
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

/// How many sources of a float op, from the first on, have to be registers.
fn first_registers(code: Opcode) -> usize {
    if matches!(code, Opcode::Divf | Opcode::Fma) { 2 } else { 1 }
}

/// The form of an f32 op with another rounding than to nearest even.
fn rounded_form(code: Opcode, rounding: &str, ftz: bool) -> Option<PtxOp> {
    use PtxOp as P;
    // Towards zero, down, up; each without and with flushing.
    let forms = match (code, rounding) {
        (Opcode::Addf, "zero") => [P::AddRzF32, P::AddRzFtzF32],
        (Opcode::Addf, "negative_inf") => [P::AddRmF32, P::AddRmFtzF32],
        (Opcode::Addf, "positive_inf") => [P::AddRpF32, P::AddRpFtzF32],
        (Opcode::Subf, "zero") => [P::SubRzF32, P::SubRzFtzF32],
        (Opcode::Subf, "negative_inf") => [P::SubRmF32, P::SubRmFtzF32],
        (Opcode::Subf, "positive_inf") => [P::SubRpF32, P::SubRpFtzF32],
        (Opcode::Mulf, "zero") => [P::MulRzF32, P::MulRzFtzF32],
        (Opcode::Mulf, "negative_inf") => [P::MulRmF32, P::MulRmFtzF32],
        (Opcode::Mulf, "positive_inf") => [P::MulRpF32, P::MulRpFtzF32],
        (Opcode::Fma, "zero") => [P::FmaRzF32, P::FmaRzFtzF32],
        (Opcode::Fma, "negative_inf") => [P::FmaRmF32, P::FmaRmFtzF32],
        (Opcode::Fma, "positive_inf") => [P::FmaRpF32, P::FmaRpFtzF32],
        (Opcode::Divf, "zero") => [P::DivRzF32, P::DivRzFtzF32],
        (Opcode::Divf, "negative_inf") => [P::DivRmF32, P::DivRmFtzF32],
        (Opcode::Divf, "positive_inf") => [P::DivRpF32, P::DivRpFtzF32],
        (Opcode::Divf, "approx") => [P::DivApproxF32, P::DivApproxFtzF32],
        (Opcode::Divf, "full") => [P::DivFullF32, P::DivFullFtzF32],
        (Opcode::Sqrt, "zero") => [P::SqrtRzF32, P::SqrtRzFtzF32],
        (Opcode::Sqrt, "negative_inf") => [P::SqrtRmF32, P::SqrtRmFtzF32],
        (Opcode::Sqrt, "positive_inf") => [P::SqrtRpF32, P::SqrtRpFtzF32],
        (Opcode::Sqrt, "approx") => [P::SqrtApproxF32, P::SqrtApproxFtzF32],
        _ => return None,
    };
    Some(forms[usize::from(ftz)])
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
