//! The [`Doubles`] that emit PTX. An f64 and its bits are the same register.

use super::super::super::Lower;
use super::Doubles;
use crate::nvvm::{Operand, Reg, RegTy};

impl Doubles for Lower<'_> {
    type D = Reg;

    fn dfloat(&mut self, x: f64) -> Reg {
        self.long(x.to_bits())
    }
    fn long(&mut self, x: u64) -> Reg {
        self.b.imm(RegTy::B64, x as i64)
    }
    fn dadd(&mut self, a: Reg, b: Reg) -> Reg {
        self.b.add_rn_f64(a, b)
    }
    fn dsub(&mut self, a: Reg, b: Reg) -> Reg {
        self.b.sub_rn_f64(a, b)
    }
    fn dmul(&mut self, a: Reg, b: Reg) -> Reg {
        self.b.mul_rn_f64(a, b)
    }
    fn dfma(&mut self, a: Reg, b: Reg, c: Reg) -> Reg {
        self.b.fma_rn_f64(a, b, c)
    }
    fn ddiv(&mut self, a: Reg, b: Reg) -> Reg {
        self.b.div_rn_f64(a, b)
    }
    fn dneg(&mut self, a: Reg) -> Reg {
        self.b.neg_f64(a)
    }
    fn dabs(&mut self, a: Reg) -> Reg {
        self.b.abs_f64(a)
    }
    fn dfloor(&mut self, a: Reg) -> Reg {
        self.b.cvt_rmi_f64_f64(a)
    }
    fn dcopysign(&mut self, magnitude: Reg, sign: Reg) -> Reg {
        self.b.copysign_f64(sign, magnitude)
    }
    fn dlt(&mut self, a: Reg, b: Reg) -> Reg {
        self.b.setp_lt_f64(a, b)
    }
    fn deq(&mut self, a: Reg, b: Reg) -> Reg {
        self.b.setp_eq_f64(a, b)
    }
    fn dnot_lt(&mut self, a: Reg, b: Reg) -> Reg {
        self.b.setp_geu_f64(a, b)
    }
    fn dne(&mut self, a: Reg, b: Reg) -> Reg {
        self.b.setp_neu_f64(a, b)
    }
    fn dnan(&mut self, a: Reg, b: Reg) -> Reg {
        self.b.setp_nan_f64(a, b)
    }
    fn dselect(&mut self, p: Reg, a: Reg, b: Reg) -> Reg {
        self.b.selp_b64(a, b, p)
    }
    fn dof_int(&mut self, a: Operand) -> Reg {
        let a = self.b.as_reg(RegTy::B32, a);
        self.b.cvt_rn_f64_s32(a)
    }
    fn dof_wide(&mut self, a: Reg) -> Reg {
        self.b.cvt_rn_f64_u64(a)
    }
    fn dbits(&mut self, a: Reg) -> Reg {
        a
    }
    fn dof_bits(&mut self, a: Reg) -> Reg {
        a
    }
    fn select_wide(&mut self, p: Reg, a: Reg, b: Reg) -> Reg {
        self.b.selp_b64(a, b, p)
    }
    fn add_wide(&mut self, a: Reg, b: Reg) -> Reg {
        self.b.add_u64(a, b)
    }
    fn mul_wide_low(&mut self, a: Reg, b: Reg) -> Reg {
        self.b.mul_lo_u64(a, b)
    }
    fn mul_wide_high(&mut self, a: Reg, b: Reg) -> Reg {
        self.b.mul_hi_u64(a, b)
    }
    fn and_wide(&mut self, a: Reg, b: Reg) -> Reg {
        self.b.and_b64(a, b)
    }
    fn or_wide(&mut self, a: Reg, b: Reg) -> Reg {
        self.b.or_b64(a, b)
    }
    fn xor_wide(&mut self, a: Reg, b: Reg) -> Reg {
        self.b.xor_b64(a, b)
    }
    fn shr_wide(&mut self, a: Reg, n: Operand) -> Reg {
        self.b.shr_u64(a, n)
    }
    fn lt_wide(&mut self, a: Reg, b: Reg) -> Reg {
        self.b.setp_lt_u64(a, b)
    }
}
