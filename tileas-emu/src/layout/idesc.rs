//! The 32-bit instruction descriptor of tcgen05.mma, dense kinds with one CTA or two.
//!
//! In: bits, kind, CTA group. Out: [`Idesc`] or the rule that the bits break.
//! Source: PTX ISA, "Instruction descriptor", tables of shapes and of valid type combinations.

use super::operand::Major;
use super::{LayoutError, LayoutResult};
use crate::num::format::{BF16, E2M1, E2M3, E3M2, E4M3, E5M2, F16, F32, Format, TF32};

/// `.kind::` of a tcgen05.mma.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Hash)]
pub enum Kind {
    /// `kind::f16`.
    F16,
    /// `kind::tf32`.
    Tf32,
    /// `kind::f8f6f4`.
    F8F6F4,
    /// `kind::i8`.
    I8,
}

impl Kind {
    /// Kind named as in the instruction, without `kind::`.
    pub fn by_name(name: &str) -> Option<Self> {
        Some(match name {
            "f16" => Kind::F16,
            "tf32" => Kind::Tf32,
            "f8f6f4" => Kind::F8F6F4,
            "i8" => Kind::I8,
            _ => return None,
        })
    }

    /// Bytes an element takes in shared memory.
    pub const fn elem(self) -> u32 {
        match self {
            Kind::F16 => 2,
            Kind::Tf32 => 4,
            Kind::F8F6F4 | Kind::I8 => 1,
        }
    }

    /// K of one dense MMA.
    pub const fn k(self) -> u32 {
        32 / self.elem()
    }
}

/// Type of an operand or accumulator.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Elem {
    /// A floating-point format.
    Float(&'static Format),
    /// Unsigned 8 bits.
    U8,
    /// Signed 8 bits.
    S8,
    /// Signed 32 bits (accumulators).
    S32,
}

/// A decoded instruction descriptor.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Idesc {
    /// The kind it was decoded for.
    pub kind: Kind,
    /// Accumulator type.
    pub d: Elem,
    /// Type of A.
    pub a: Elem,
    /// Type of B.
    pub b: Elem,
    /// Negate A.
    pub negate_a: bool,
    /// Negate B.
    pub negate_b: bool,
    /// Contiguous dimension of A (in shared memory).
    pub a_major: Major,
    /// Contiguous dimension of B.
    pub b_major: Major,
    /// Rows of D.
    pub m: u32,
    /// Columns of D.
    pub n: u32,
    /// Integer saturation.
    pub saturate: bool,
    /// 2:4 sparse A; the rest of the decoder accepts it, machines may not.
    pub sparse: bool,
}

impl Idesc {
    /// Decodes `bits` for `kind` with `ctas` (1 or 2) CTAs and checks types and shape.
    pub fn decode(bits: u32, kind: Kind, ctas: u32) -> LayoutResult<Self> {
        let bad = |rule, text: String| {
            Err(LayoutError::new(rule, format!("instruction descriptor {bits:#010x}: {text}")))
        };
        if bits & (1 << 6 | 1 << 23 | 1 << 29) != 0 {
            return bad("idesc.reserved", "bits 6, 23 and 29 must be 0".into());
        }
        if bits >> 30 != 0 {
            return bad("idesc.shift", "maximum shift is for weight-stationary MMAs".into());
        }
        let sparse = bits >> 2 & 1 == 1;
        if !sparse && bits & 3 != 0 {
            return bad("idesc.reserved", "a sparsity selector without the sparse flag".into());
        }
        let float = |f: &'static Format| Some(Elem::Float(f));
        let operand = |code: u32| match (kind, code) {
            (Kind::F16, 0) => float(&F16),
            (Kind::F16, 1) => float(&BF16),
            (Kind::Tf32, 2) => float(&TF32),
            (Kind::F8F6F4, 0) => float(&E4M3),
            (Kind::F8F6F4, 1) => float(&E5M2),
            (Kind::F8F6F4, 3) => float(&E2M3),
            (Kind::F8F6F4, 4) => float(&E3M2),
            (Kind::F8F6F4, 5) => float(&E2M1),
            (Kind::I8, 0) => Some(Elem::U8),
            (Kind::I8, 1) => Some(Elem::S8),
            _ => None,
        };
        let accumulator = match (kind, bits >> 4 & 3) {
            (Kind::F16 | Kind::F8F6F4, 0) => float(&F16),
            (Kind::F16 | Kind::F8F6F4 | Kind::Tf32, 1) => float(&F32),
            (Kind::I8, 2) => Some(Elem::S32),
            _ => None,
        };
        let (ca, cb) = (bits >> 7 & 7, bits >> 10 & 7);
        let (Some(a), Some(b), Some(d)) = (operand(ca), operand(cb), accumulator) else {
            return bad(
                "idesc.type",
                format!("types {ca} and {cb} to {} do not exist in {kind:?}", bits >> 4 & 3),
            );
        };
        if kind == Kind::F16 && (a != b || a == Elem::Float(&BF16) && d == Elem::Float(&F16)) {
            return bad("idesc.type", "f16 and bf16 mixed".into());
        }
        let (negate_a, negate_b) = (bits >> 13 & 1 == 1, bits >> 14 & 1 == 1);
        let saturate = bits >> 3 & 1 == 1;
        if kind == Kind::I8 && (negate_a || negate_b) {
            return bad("idesc.negate", "integers cannot be negated".into());
        }
        if kind != Kind::I8 && saturate {
            return bad("idesc.saturate", "saturation is for integers".into());
        }
        let major = |bit: u32| if bits >> bit & 1 == 1 { Major::Mn } else { Major::K };
        let (a_major, b_major) = (major(15), major(16));
        for (m, e) in [(a_major, a), (b_major, b)] {
            let narrow = matches!(e, Elem::Float(f) if f.bits < 8);
            if m == Major::Mn && narrow {
                return bad("idesc.transpose", "fp4 and fp6 operands cannot be transposed".into());
            }
        }
        let (n, m) = ((bits >> 17 & 63) << 3, (bits >> 24 & 31) << 4);
        let one = Self { kind, d, a, b, negate_a, negate_b, a_major, b_major, m, n, saturate, sparse };
        match one.check_shape(ctas) {
            Ok(()) => Ok(one),
            Err(text) => bad("idesc.shape", text),
        }
    }

    fn check_shape(&self, ctas: u32) -> Result<(), String> {
        let (m, n) = (self.m, self.n);
        let m_ok = if ctas == 2 { matches!(m, 128 | 256) } else { matches!(m, 64 | 128) };
        if !m_ok {
            return Err(format!("M = {m} with {ctas} CTA"));
        }
        // Steps of N: M = 128 of one CTA and everything of two need 16.
        let byte_b = self.kind.elem() == 1 && self.b_major == Major::Mn;
        let step = match (self.kind, ctas) {
            (Kind::I8, 1) => {
                if n <= 32 {
                    8
                } else {
                    16
                }
            }
            (Kind::I8, _) => 32,
            (_, 2) => {
                if byte_b {
                    32
                } else {
                    16
                }
            }
            _ => {
                if byte_b {
                    16
                } else {
                    8
                }
            }
        };
        let least = if ctas == 2 { step.max(16) } else { step };
        if n < least || n > 256 || n % step != 0 {
            return Err(format!("N = {n} is not a multiple of {step} up to 256"));
        }
        Ok(())
    }
}
