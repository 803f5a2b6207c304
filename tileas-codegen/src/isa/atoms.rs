//! Matrix instructions as data: shapes, types, operand spaces, how completion is signalled.
//!
//! In: what a `dot` asks for ([`MmaRequest`]). Out: the atom that computes it, or the reason why the target
//! has none, worded for a diagnostic. Legality only: layouts are chosen by `place`, descriptors
//! and the instructions themselves by the emission of an ISA crate. Cost: a scan of a handful of rows.

use super::{Feature, Features};
use crate::ir::{Function, Op, Scalar, keys};
use std::fmt;

/// An element type as matrix instructions know it.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AtomType {
    /// IEEE half.
    F16,
    /// Brain float.
    Bf16,
    /// 19-bit float in a 32-bit cell.
    Tf32,
    /// IEEE single.
    F32,
    /// 8-bit float, 4 exponent bits.
    E4m3,
    /// 8-bit float, 5 exponent bits.
    E5m2,
    /// 4-bit float.
    E2m1,
    /// Signed byte.
    S8,
    /// Unsigned byte.
    U8,
    /// Signed 32-bit integer.
    S32,
}

impl Issue {
    /// Whether one lane issues what an engine executes.
    pub fn is_lane(self) -> bool {
        self == Issue::OneThread
    }
}

impl AtomType {
    /// Types of A, B and the accumulator of a product.
    pub fn of_dot(func: &Function, op: Op, elems: [Scalar; 3]) -> Option<[AtomType; 3]> {
        let [a, b, acc] = elems;
        let side = |s: Scalar, unsigned| match AtomType::of(s)? {
            AtomType::S8 if func.has_attr(op, unsigned) => Some(AtomType::U8),
            t => Some(t),
        };
        Some([side(a, keys::UNSIGNED_A)?, side(b, keys::UNSIGNED_B)?, AtomType::of(acc)?])
    }

    /// What matrix instructions make of an element type of the IR.
    fn of(s: Scalar) -> Option<AtomType> {
        Some(match s {
            Scalar::F16 => AtomType::F16,
            Scalar::BF16 => AtomType::Bf16,
            Scalar::TF32 => AtomType::Tf32,
            Scalar::F32 => AtomType::F32,
            Scalar::E4M3 => AtomType::E4m3,
            Scalar::E5M2 => AtomType::E5m2,
            Scalar::E2M1 => AtomType::E2m1,
            Scalar::I8 => AtomType::S8,
            Scalar::I32 => AtomType::S32,
            _ => return None,
        })
    }

    /// Bits of one element.
    pub const fn bits(self) -> u32 {
        match self {
            AtomType::E2m1 => 4,
            AtomType::E4m3 | AtomType::E5m2 | AtomType::S8 | AtomType::U8 => 8,
            AtomType::F16 | AtomType::Bf16 => 16,
            AtomType::Tf32 | AtomType::F32 | AtomType::S32 => 32,
        }
    }

    /// The name as printed.
    pub const fn name(self) -> &'static str {
        match self {
            AtomType::F16 => "f16",
            AtomType::Bf16 => "bf16",
            AtomType::Tf32 => "tf32",
            AtomType::F32 => "f32",
            AtomType::E4m3 => "e4m3",
            AtomType::E5m2 => "e5m2",
            AtomType::E2m1 => "e2m1",
            AtomType::S8 => "s8",
            AtomType::U8 => "u8",
            AtomType::S32 => "s32",
        }
    }
}

impl fmt::Display for AtomType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Where an operand of a matrix instruction lives.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum OperandSpace {
    /// Shared memory.
    Smem,
    /// Tensor memory.
    Tmem,
    /// Registers.
    Rmem,
}

impl OperandSpace {
    /// The name as printed in types.
    pub const fn name(self) -> &'static str {
        match self {
            OperandSpace::Smem => "smem",
            OperandSpace::Tmem => "tmem",
            OperandSpace::Rmem => "rmem",
        }
    }
}

/// Who issues the instruction.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Issue {
    /// One thread for the whole CTA: an agent of its own, of one elected lane.
    OneThread,
    /// All threads of a warpgroup, those that compute in registers.
    Warpgroup,
}

/// How the end of the operation becomes known.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Completion {
    /// A commit makes a barrier receive one arrival once all earlier ones of the thread are done.
    Commit,
    /// The issuers wait for a group of their own.
    WaitGroup,
    /// The result is there when the next instruction needs it.
    Synchronous,
}

/// Which instructions of one issuer run in issue order without a wait in between.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum InOrder {
    /// All.
    Always,
    /// Those of one shape that update the same accumulator.
    SameAccumulator,
    /// None.
    Never,
}

/// Shapes for one M.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct MmaShape {
    /// Rows.
    pub m: u16,
    /// Least columns.
    pub n_min: u16,
    /// Most columns.
    pub n_max: u16,
    /// Columns are a multiple of this.
    pub n_step: u16,
}

/// One kind of matrix instruction.
#[derive(Copy, Clone, Debug)]
pub struct MmaKind {
    /// Kind as written in the instruction.
    pub kind: &'static str,
    /// Allowed types of A, B and accumulator.
    pub types: &'static [(AtomType, AtomType, AtomType)],
    /// Elements of K of one instruction.
    pub k: u16,
    /// Shapes, by ascending M.
    pub shapes: &'static [MmaShape],
    /// Spaces A may be in, the preferred one first.
    pub a_spaces: &'static [OperandSpace],
    /// Spaces B may be in.
    pub b_spaces: &'static [OperandSpace],
    /// Types an operand may have when it is stored with M or N contiguous.
    pub transposable: &'static [AtomType],
    /// N is a multiple of this when B is stored with N contiguous.
    pub n_step_transposed: u16,
    /// What the processor must have.
    pub feature: Option<Feature>,
    /// Where the row comes from.
    pub source: &'static str,
}

/// What a dot asks for. A is M×K, B is K×N, the accumulator M×N.
///
/// The `m_contiguous` / `n_contiguous` members tell how the bytes lie, whatever the dot's transpose units are: an
/// A stored M×K row by row is K-contiguous, and so is a B stored N×K.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct MmaRequest {
    /// Type of A.
    pub a: AtomType,
    /// Type of B.
    pub b: AtomType,
    /// Type of the accumulator.
    pub acc: AtomType,
    /// Rows of the tile.
    pub m: u32,
    /// Columns of the tile.
    pub n: u32,
    /// Depth of the tile.
    pub k: u32,
    /// A is stored with M contiguous (K×M row by row).
    pub a_m_contiguous: bool,
    /// B is stored with N contiguous (K×N row by row).
    pub b_n_contiguous: bool,
}

impl MmaRequest {
    /// What a product in value form asks for. `None`: its operands are no matrices of such types whose extents agree.
    pub fn of(func: &Function, op: Op) -> Option<MmaRequest> {
        let data = |name: &str| func.named_operand(op, name).map(|v| func.value_data(v));
        let (a, b, acc) = (data("a")?, data("b")?, data("acc")?);
        let (&[a0, a1], &[b0, b1], &[m, n]) = (a.dims()?, b.dims()?, acc.dims()?) else { return None };
        let (ta, tb) = (func.has_attr(op, keys::TRANSPOSE_A), func.has_attr(op, keys::TRANSPOSE_B));
        let ((am, k), (bk, bn)) =
            (if ta { (a1, a0) } else { (a0, a1) }, if tb { (b1, b0) } else { (b0, b1) });
        let [a, b, acc] = AtomType::of_dot(func, op, [a.elem()?, b.elem()?, acc.elem()?])?;
        let request = MmaRequest { a, b, acc, m, n, k, a_m_contiguous: ta, b_n_contiguous: !tb };
        ((am, bn, bk) == (m, n, k)).then_some(request)
    }
}

/// The instruction that computes a dot, `k_steps` times.
#[derive(Copy, Clone, Debug)]
pub struct MmaAtom {
    /// Its kind.
    pub kind: &'static MmaKind,
    /// What was asked for.
    pub request: MmaRequest,
    /// Elements of K of one instruction.
    pub k: u32,
    /// Instructions per tile.
    pub k_steps: u32,
}

impl MmaAtom {
    /// Columns of tensor memory the accumulator covers: one 32-bit cell per element of a row, never packed.
    pub fn acc_columns(&self) -> u32 {
        self.request.n
    }

    /// Columns of tensor memory A covers when it lies there, packed along K.
    pub fn a_columns(&self) -> u32 {
        (self.request.k * self.request.a.bits()).div_ceil(32)
    }

    /// Bytes of A, and of B.
    pub fn operand_bytes(&self) -> (u64, u64) {
        let r = &self.request;
        let bytes =
            |rows: u32, ty: AtomType| (u64::from(rows) * u64::from(r.k) * u64::from(ty.bits())).div_ceil(8);
        (bytes(r.m, r.a), bytes(r.n, r.b))
    }
}

/// The matrix instructions of a processor.
#[derive(Copy, Clone, Debug)]
pub struct Atoms {
    /// All kinds of the family.
    pub mma: &'static [MmaKind],
    /// What the processor has.
    pub features: Features,
}

impl Atoms {
    /// The kinds the processor has.
    pub fn kinds(&self) -> impl Iterator<Item = &'static MmaKind> + '_ {
        self.mma.iter().filter(|k| k.feature.is_none_or(|f| self.features.has(f)))
    }

    /// The instruction for a dot.
    ///
    /// # Errors
    /// The reason as a sentence fragment that names both what was asked for and what there is.
    pub fn select_mma(&self, request: &MmaRequest) -> Result<MmaAtom, String> {
        let r = *request;
        let Some(kind) = self.kinds().find(|k| k.types.contains(&(r.a, r.b, r.acc))) else {
            return Err(self.why_no_kind(&r));
        };
        let k = u32::from(kind.k);
        if r.k == 0 || !r.k.is_multiple_of(k) {
            return Err(format!(
                "K = {} is not a positive multiple of {k}, the depth of kind {}",
                r.k, kind.kind
            ));
        }
        let Some(shape) = kind.shapes.iter().find(|s| u32::from(s.m) == r.m) else {
            let ms: Vec<String> = kind.shapes.iter().map(|s| s.m.to_string()).collect();
            return Err(format!(
                "M = {} has no instruction of kind {}, M is {}",
                r.m,
                kind.kind,
                ms.join(" or ")
            ));
        };
        for (operand, ty, transposed, along) in
            [("A", r.a, r.a_m_contiguous, 'M'), ("B", r.b, r.b_n_contiguous, 'N')]
        {
            if transposed && !kind.transposable.contains(&ty) {
                return Err(format!(
                    "{operand} of type {ty} is stored with {along} contiguous, kind {} needs K contiguous",
                    kind.kind
                ));
            }
        }
        let transposed_step = if r.b_n_contiguous { u32::from(kind.n_step_transposed) } else { 1 };
        let step = u32::from(shape.n_step).max(transposed_step);
        // A transposed B may need a wider step, and then the least N is a multiple of it too.
        let (least, most) = (u32::from(shape.n_min).next_multiple_of(step), u32::from(shape.n_max));
        if r.n < least || r.n > most || !r.n.is_multiple_of(step) {
            return Err(format!(
                "N = {} has no instruction with M = {} of kind {}, N is {least} to {most} in steps of {step}",
                r.n, r.m, kind.kind
            ));
        }
        Ok(MmaAtom { kind, request: r, k, k_steps: r.k / k })
    }

    fn why_no_kind(&self, r: &MmaRequest) -> String {
        let wanted = format!("{} x {} with accumulator {}", r.a, r.b, r.acc);
        if self.mma.iter().any(|k| k.types.contains(&(r.a, r.b, r.acc))) {
            return format!("{wanted} is not available on this processor");
        }
        let mut accs: Vec<AtomType> = self
            .kinds()
            .flat_map(|k| k.types)
            .filter(|(a, b, _)| (*a, *b) == (r.a, r.b))
            .map(|(_, _, acc)| *acc)
            .collect();
        accs.sort_unstable();
        if accs.is_empty() {
            return format!("{wanted} has no instruction: no kind takes these operand types");
        }
        let accs: Vec<&str> = accs.into_iter().map(AtomType::name).collect();
        format!("{wanted} has no instruction, the accumulator of these operands is {}", accs.join(" or "))
    }
}
