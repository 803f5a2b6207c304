//! Metadata of PTX instruction forms.
//!
//! The table, the enum [`PtxOp`] and the [`Target`]s are generated from the rows in `tileas-meta`; this file defines what a row says:
//! operand [`OperandClass`]es, [`Effects`], the least `.version` and the [`Target`]s. Verifier, emitter, printer and passes
//! ask here and know no mnemonic by heart.

use super::module::RegTy;
use std::fmt;

include!(concat!(env!("OUT_DIR"), "/ptx_forms.rs"));

impl Target {
    /// The target of that name.
    pub fn from_name(name: &str) -> Option<Target> {
        Target::ALL.into_iter().find(|t| t.as_str() == name)
    }

    fn bit(self) -> u16 {
        1 << self as u16
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What registers an operand accepts.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Ty {
    /// Predicate.
    Pred,
    /// Any 16-bit register.
    B16,
    /// A 32-bit integer register.
    B32,
    /// A 32-bit register read as f32 (untyped 32-bit registers are accepted).
    F32,
    /// A 64-bit register.
    B64,
    /// Any 32-bit register.
    X32,
}

impl Ty {
    /// Whether a register of that type can stand here.
    #[inline]
    pub(crate) const fn accepts(self, reg: RegTy) -> bool {
        match self {
            Ty::Pred => matches!(reg, RegTy::Pred),
            Ty::B16 => matches!(reg, RegTy::B16),
            Ty::B32 => matches!(reg, RegTy::B32),
            Ty::B64 => matches!(reg, RegTy::B64),
            Ty::F32 | Ty::X32 => matches!(reg, RegTy::B32 | RegTy::F32),
        }
    }

    /// Least and greatest integer immediate; none fits f32.
    #[inline]
    pub(crate) fn integers(self) -> (i64, i64) {
        match self {
            Ty::Pred => (0, 1),
            Ty::B16 => (i64::from(i16::MIN), i64::from(u16::MAX)),
            Ty::B32 | Ty::X32 => (i64::from(i32::MIN), i64::from(u32::MAX)),
            Ty::B64 => (i64::MIN, i64::MAX),
            Ty::F32 => (1, 0),
        }
    }

    /// The register type that fits where nothing else is known.
    pub(crate) fn register(self) -> RegTy {
        match self {
            Ty::Pred => RegTy::Pred,
            Ty::B16 => RegTy::B16,
            Ty::B32 | Ty::X32 => RegTy::B32,
            Ty::F32 => RegTy::F32,
            Ty::B64 => RegTy::B64,
        }
    }
}

/// Address space of an address operand.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum AddressSpace {
    /// Shared memory, 32-bit address.
    Shared,
    /// Global memory, 64-bit address.
    Global,
    /// Kernel parameter.
    Param,
    /// Tensor memory: lane << 16 | column.
    Tensor,
    /// The function's local (spill) area.
    Local,
    /// Generic 64-bit address.
    Generic,
}

impl AddressSpace {
    /// Type of a register that holds an address.
    #[inline]
    pub(crate) const fn address_ty(self) -> Ty {
        match self {
            AddressSpace::Shared | AddressSpace::Tensor => Ty::B32,
            _ => Ty::B64,
        }
    }
}

/// What may stand in an operand position.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A register, or an immediate where allowed.
    Reg {
        /// Accepted registers.
        ty: Ty,
        /// Whether an immediate may stand for the register.
        imm: bool,
    },
    /// A brace list.
    Vec {
        /// Accepted registers.
        ty: Ty,
        /// Whether elements may be immediates.
        imm: bool,
        /// Number of elements.
        len: u16,
    },
    /// A 32-bit register or an immediate as in [`Kind::Imm`].
    RegOrImm {
        /// Least value.
        lo: i64,
        /// Greatest value.
        hi: i64,
        /// As in [`Kind::Imm`].
        step: u32,
    },
    /// An immediate.
    Imm {
        /// Least value.
        lo: i64,
        /// Greatest value.
        hi: i64,
        /// `value - lo` is a multiple of it; 0: the value is a power of two.
        step: u32,
    },
    /// An address.
    Addr(AddressSpace),
    /// A special register of that width.
    Special(u8),
    /// A shared-memory symbol.
    SharedSym,
    /// A global-memory symbol.
    GlobalSym,
    /// A kernel parameter.
    Param,
    /// A block.
    Label,
}

/// One operand position of a form.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct OperandClass {
    /// The instruction writes the register(s).
    pub def: bool,
    /// What may stand here.
    pub kind: Kind,
}

/// What an instruction does besides computing its results.
#[derive(Copy, Clone, PartialEq, Eq, Hash)]
pub struct Effects(pub(crate) u16);

impl Effects {
    /// No effect: may be removed when unused, repeated and reordered.
    pub fn is_pure(self) -> bool {
        self.0 == 0
    }
    /// Reads memory that others may write.
    pub fn reads(self) -> bool {
        self.0 & 1 != 0
    }
    /// Writes memory.
    pub fn writes(self) -> bool {
        self.0 & 2 != 0
    }
    /// Orders or waits for other threads or engines.
    pub fn syncs(self) -> bool {
        self.0 & 4 != 0
    }
    /// Completes after the instruction itself.
    pub fn is_async(self) -> bool {
        self.0 & 8 != 0
    }
    /// All lanes of the warp (or of its mask) execute it together.
    pub fn is_convergent(self) -> bool {
        self.0 & 16 != 0
    }
    /// Ends a block (unless guarded).
    pub fn is_terminator(self) -> bool {
        self.0 & 32 != 0
    }
    /// Two executions may give different results.
    pub fn is_volatile(self) -> bool {
        self.0 & 64 != 0
    }
    /// Behind it, what asynchronous instructions before it read into registers is there.
    pub fn delivers(self) -> bool {
        self.0 & 128 != 0
    }
    /// Reads what its result holds before.
    pub fn updates(self) -> bool {
        self.0 & 256 != 0
    }
}

impl fmt::Debug for Effects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Effects(")?;
        for (bit, letter) in "rwsactvdu".chars().enumerate() {
            if self.0 & (1 << bit) != 0 {
                write!(f, "{letter}")?;
            }
        }
        f.write_str(")")
    }
}

/// Everything known about one form.
#[derive(Debug)]
pub struct Form {
    /// Snake-case name, as of the builder method.
    pub name: &'static str,
    /// PTX mnemonic with modifiers.
    pub mnemonic: &'static str,
    /// Mnemonic and what stands before the first operand.
    pub(crate) head: &'static str,
    /// Operand positions, in order of appearance.
    pub operands: &'static [OperandClass],
    /// Text before, between and after the operands.
    pub(crate) syntax: &'static [&'static str],
    /// Effects.
    pub effects: Effects,
    /// Least `.version`.
    pub version: (u8, u8),
    pub(crate) targets: u16,
    /// Section of the PTX ISA manual.
    pub source: &'static str,
}

impl Form {
    /// Whether the target has it.
    pub fn available_on(&self, target: Target) -> bool {
        self.targets & target.bit() != 0
    }
}

/// Per form, the number of operands it writes, which all forms have in front; checked when compiled.
static RESULTS: [u8; FORMS.len()] = {
    let mut all = [0; FORMS.len()];
    let mut form = 0;
    while form < FORMS.len() {
        let operands = FORMS[form].operands;
        let mut i = 0;
        while i < operands.len() {
            if operands[i].def {
                assert!(all[form] as usize == i, "a result behind a source");
                all[form] += 1;
            }
            i += 1;
        }
        form += 1;
    }
    all
};

/// Per form, the number of its operands.
static OPERANDS: [u8; FORMS.len()] = {
    let mut all = [0; FORMS.len()];
    let mut form = 0;
    while form < FORMS.len() {
        assert!(FORMS[form].operands.len() <= u8::MAX as usize, "a form with too many operands");
        all[form] = FORMS[form].operands.len() as u8;
        form += 1;
    }
    all
};

/// Per form, what passes ask about every instruction: [`TERMINATOR`] and the others.
static FLAGS: [u8; FORMS.len()] = {
    let mut all = [0; FORMS.len()];
    let mut form = 0;
    while form < FORMS.len() {
        if FORMS[form].effects.0 & 32 != 0 {
            all[form] |= TERMINATOR;
        }
        if FORMS[form].effects.0 == 0 && RESULTS[form] == 1 {
            all[form] |= SHAREABLE;
        }
        if FORMS[form].effects.0 & 16 != 0 {
            all[form] |= CONVERGENT;
        }
        if FORMS[form].effects.0 & 256 != 0 {
            all[form] |= UPDATES;
        }
        let (operands, syntax) = (FORMS[form].operands, FORMS[form].syntax);
        let mut commas = operands.is_empty() || syntax[operands.len()].is_empty();
        let mut plain = !operands.is_empty();
        let mut i = 0;
        while i < operands.len() {
            commas &= i == 0 || matches!(syntax[i].as_bytes(), b", ");
            plain &= matches!(operands[i].kind, Kind::Reg { .. });
            i += 1;
        }
        if commas && INDENT + FORMS[form].head.len() <= HEAD {
            all[form] |= COMMAS;
        }
        if commas && plain {
            all[form] |= PLAIN;
        }
        form += 1;
    }
    let movs = [PtxOp::MovPred, PtxOp::MovB16, PtxOp::MovB32, PtxOp::MovB64, PtxOp::MovF32];
    let mut i = 0;
    while i < movs.len() {
        all[movs[i] as usize] |= MOV;
        all[movs[i] as usize] &= !SHAREABLE;
        i += 1;
    }
    all[PtxOp::Bra as usize] |= BRANCH;
    all[PtxOp::BraUni as usize] |= BRANCH;
    all
};

/// Positions of [`FITS`]; forms with more go the long way.
const FIT_POSITIONS: usize = 8;

/// What an operand position takes, as sets of register types: bit `t as u8` for [`RegTy`] `t`.
#[derive(Copy, Clone)]
pub(crate) struct Fit {
    /// A register by itself.
    pub reg: u8,
    /// The register of an address with an offset.
    pub base: u8,
    /// Elements of a brace list.
    pub item: u8,
    /// Length of that list.
    pub len: u8,
}

const fn types(ty: Ty) -> u8 {
    let mut set = 0;
    let mut i = 0;
    while i < RegTy::ALL.len() {
        if ty.accepts(RegTy::ALL[i]) {
            set |= 1 << RegTy::ALL[i] as u8;
        }
        i += 1;
    }
    set
}

/// Registers fit nowhere.
const MISFIT: Fit = Fit { reg: 0, base: 0, item: 0, len: 0 };

const fn fit(kind: Kind) -> Fit {
    match kind {
        Kind::Reg { ty, .. } => Fit { reg: types(ty), ..MISFIT },
        Kind::RegOrImm { .. } => Fit { reg: types(Ty::B32), ..MISFIT },
        Kind::Vec { ty, len, .. } if len <= 255 => Fit { item: types(ty), len: len as u8, ..MISFIT },
        Kind::Addr(AddressSpace::Param | AddressSpace::Local) => MISFIT,
        Kind::Addr(space) => {
            let set = types(space.address_ty());
            Fit { reg: set, base: set, ..MISFIT }
        }
        _ => MISFIT,
    }
}

/// Per form and operand position, what registers fit: what the verifier asks about every operand.
static FITS: [[Fit; FIT_POSITIONS]; FORMS.len()] = {
    let mut all = [[MISFIT; FIT_POSITIONS]; FORMS.len()];
    let mut form = 0;
    while form < FORMS.len() {
        let operands = FORMS[form].operands;
        let mut i = 0;
        while i < operands.len() && i < FIT_POSITIONS {
            all[form][i] = fit(operands[i].kind);
            i += 1;
        }
        form += 1;
    }
    all
};

/// Bytes of [`Head`].
const HEAD: usize = 48;

/// Indentation, mnemonic and what stands before the first operand, in a fixed size so that copying it takes no call.
pub(crate) struct Head {
    pub bytes: [u8; HEAD],
    /// Their number; 0: there is no room.
    pub len: u8,
}

/// Per form, its [`Head`].
static HEADS: [Head; FORMS.len()] = {
    let mut all = [const { Head { bytes: [b' '; HEAD], len: 0 } }; FORMS.len()];
    let mut form = 0;
    while form < FORMS.len() {
        let head = FORMS[form].head.as_bytes();
        if INDENT + head.len() <= HEAD {
            let mut i = 0;
            while i < head.len() {
                all[form].bytes[INDENT + i] = head[i];
                i += 1;
            }
            all[form].len = (INDENT + head.len()) as u8;
        }
        form += 1;
    }
    all
};

/// Spaces before an instruction.
pub(crate) const INDENT: usize = 4;

const TERMINATOR: u8 = 1;
const SHAREABLE: u8 = 2;
const PLAIN: u8 = 4;
const MOV: u8 = 8;
const BRANCH: u8 = 16;
const CONVERGENT: u8 = 32;
const COMMAS: u8 = 64;
const UPDATES: u8 = 128;

impl PtxOp {
    /// Whether the form ends a block, if it is not guarded.
    #[inline]
    pub(crate) fn is_terminator(self) -> bool {
        FLAGS[self as usize] & TERMINATOR != 0
    }

    /// Whether the form does nothing but compute one operand, and is no move.
    #[inline]
    pub(crate) fn is_shareable(self) -> bool {
        FLAGS[self as usize] & SHAREABLE != 0
    }

    /// Whether all operands are registers or immediates, with commas between them and nothing behind.
    #[inline]
    pub(crate) fn is_plain(self) -> bool {
        FLAGS[self as usize] & PLAIN != 0
    }

    /// Whether there are commas between the operands and nothing behind, and the form has a [`Head`].
    #[inline]
    pub(crate) fn has_commas(self) -> bool {
        FLAGS[self as usize] & COMMAS != 0
    }

    /// Whether the form copies one register or constant.
    #[inline]
    pub(crate) fn is_mov(self) -> bool {
        FLAGS[self as usize] & MOV != 0
    }

    /// Whether the form jumps to a block of the function.
    #[inline]
    pub(crate) fn is_branch(self) -> bool {
        FLAGS[self as usize] & BRANCH != 0
    }

    /// Whether all lanes of a warp are to execute the form together.
    #[inline]
    pub(crate) fn is_convergent(self) -> bool {
        FLAGS[self as usize] & CONVERGENT != 0
    }

    /// Whether it reads what its results hold before.
    #[inline]
    pub(crate) fn updates(self) -> bool {
        FLAGS[self as usize] & UPDATES != 0
    }

    /// Number of operands of the form.
    #[inline]
    pub(crate) fn num_operands(self) -> usize {
        usize::from(OPERANDS[self as usize])
    }

    /// By operand position, what registers fit there; `None` if the form has too many.
    #[inline]
    pub(crate) fn fits(self) -> Option<&'static [Fit]> {
        FITS[self as usize].get(..self.num_operands())
    }

    /// What its text begins with.
    #[inline]
    pub(crate) fn head(self) -> &'static Head {
        &HEADS[self as usize]
    }

    /// Number of operands the form writes; they come first.
    #[inline]
    pub(crate) fn num_results(self) -> usize {
        usize::from(RESULTS[self as usize])
    }

    /// The form's row.
    #[inline]
    pub fn form(self) -> &'static Form {
        &FORMS[self as usize]
    }

    /// Effects of the form.
    #[inline]
    pub fn effects(self) -> Effects {
        self.form().effects
    }

    /// The form of that snake-case name.
    pub fn from_name(name: &str) -> Option<PtxOp> {
        PtxOp::ALL.iter().copied().find(|op| op.form().name == name)
    }
}

impl fmt::Debug for PtxOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.form().name)
    }
}

impl fmt::Display for PtxOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.form().mnemonic)
    }
}
