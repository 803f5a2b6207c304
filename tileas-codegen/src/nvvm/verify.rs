//! The verifier of the thread-level IR.
//!
//! In: a [`Module`]. Out: a [`Verified`] module, which only this file can make and the emitter requires, or all
//! violations found ([`Checks`] says what is looked for): operand counts, classes and types; immediates out of range; branches to unplaced blocks; blocks
//! without terminator or with one in the middle; registers read but never written; forms the target or the highest
//! allowed `.version` lacks; names and launch directives. Warnings (`W09…`): a convergent instruction under a guard,
//! a register that may be read before it is written.
//!
//! Cost: one pass over the instructions, plus liveness for the last warning; a [`Verifier`] keeps the memory, and takes liveness that is known. What is
//! right is recognised without saying why (`…_fits`); only what is not is explained (`operand`). Source: the forms' rows
//! (PTX ISA manual).

use super::forms::{AddressSpace, Fit, Kind, OperandClass, PtxOp, Ty};
use super::module::{Bb, Function, Inst, Look, Module, Operand, Param, Reg, RegTy, Sym, SymKind};
use crate::error::{Code, CodegenError, Loc};
use crate::nvvm::Liveness;
use cranelift_entity::{EntityRef, EntitySet};
use smallvec::SmallVec;

/// A module the verifier has accepted.
#[derive(Copy, Clone)]
pub struct Verified<'a> {
    module: &'a Module,
    version: (u8, u8),
}

impl<'a> Verified<'a> {
    /// The module.
    pub fn module(self) -> &'a Module {
        self.module
    }

    /// The lowest PTX `.version` that has the target and every form used.
    pub fn version(self) -> (u8, u8) {
        self.version
    }
}

/// Checks the module, appending errors and warnings; the module counts as verified if there were no errors.
pub fn verify<'a>(
    module: &'a Module,
    max_version: (u8, u8),
    diagnostics: &mut Vec<CodegenError>,
) -> Option<Verified<'a>> {
    Verifier::default().verify(module, max_version, diagnostics)
}

/// The verifier with its scratch memory; reuse one per thread.
#[derive(Default)]
pub struct Verifier {
    placed: EntitySet<Bb>,
    liveness: Liveness,
}

/// What is looked for.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Checks {
    /// All there is.
    All,
    /// What the input and the options of a compilation decide: names, launch directives, forms that the target or the allowed
    /// versions lack, registers that are read and not written. Operands and blocks are as our own lowering and cleanups made
    /// them; wrong ones would be faults of theirs.
    Input,
}

/// Names in one scope.
type Names<'a> = SmallVec<[&'a str; 32]>;

impl Verifier {
    /// As [`verify`], in the memory of earlier calls.
    pub fn verify<'a>(
        &mut self,
        module: &'a Module,
        max_version: (u8, u8),
        diagnostics: &mut Vec<CodegenError>,
    ) -> Option<Verified<'a>> {
        self.verify_for(Checks::All, module, max_version, None, diagnostics)
    }

    /// Liveness of the last function of the module that was verified last without its liveness being known.
    pub(crate) fn liveness(&self) -> &Liveness {
        &self.liveness
    }

    /// As [`Verifier::verify`], for some of the checks; `liveness`, if given, is that of the module's only function as it is now.
    pub(crate) fn verify_for<'a>(
        &mut self,
        checks: Checks,
        module: &'a Module,
        max_version: (u8, u8),
        liveness: Option<&Liveness>,
        diagnostics: &mut Vec<CodegenError>,
    ) -> Option<Verified<'a>> {
        let known = liveness.filter(|_| module.functions.len() == 1);
        let before = diagnostics.len();
        let mut version = module.target.least_version();
        for sym in module.symbols.values() {
            check_name(&sym.name, "variable", diagnostics);
            if !sym.align.is_power_of_two() {
                let message =
                    format!("variable `{}`: alignment {} is not a power of two", sym.name, sym.align);
                diagnostics.push(CodegenError::new(Code::E0911, Loc::NONE, message));
            }
            if let SymKind::Global { bytes } = sym.kind
                && sym.init.len() > bytes as usize
            {
                let message = format!("variable `{}`: {} initial bytes of {bytes}", sym.name, sym.init.len());
                diagnostics.push(CodegenError::new(Code::E0911, Loc::NONE, message));
            }
        }
        let least = module.target.least_version();
        if least > max_version {
            let message = format!(
                "target {} needs PTX {}.{}, at most {}.{} is allowed",
                module.target, least.0, least.1, max_version.0, max_version.1
            );
            diagnostics.push(CodegenError::new(Code::E0908, Loc::NONE, message));
            // Every instruction would say so again.
            return None;
        }
        for func in &module.functions {
            check_name(&func.name, "function", diagnostics);
        }
        let mut globals: Names<'_> = module.symbols.values().map(|s| s.name.as_str()).collect();
        globals.extend(module.functions.iter().map(|f| f.name.as_str()));
        check_distinct(&mut globals, diagnostics);
        for func in &module.functions {
            self.placed.clear();
            FuncVerifier {
                module,
                func,
                max_version,
                placed: &mut self.placed,
                liveness: &mut self.liveness,
                known,
                version: &mut version,
                available: [0; FORM_WORDS],
                out: diagnostics,
            }
            .run(checks, &globals);
        }
        diagnostics[before..].iter().all(|d| d.code.is_warning()).then_some(Verified { module, version })
    }
}

/// Whether PTX takes a name for a function, variable or parameter.
pub(crate) fn is_identifier(name: &str) -> bool {
    let mut bytes = name.bytes();
    let Some(first) = bytes.next() else { return false };
    let rest_ok = bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'$');
    // `%` starts registers and `$L` labels in emitted text, so neither may start a name. `WARP_SZ` is a constant.
    rest_ok
        && name != "WARP_SZ"
        && (first.is_ascii_alphabetic() || (first == b'_' && name.len() > 1))
        && !name.starts_with("__")
}

fn check_name(name: &str, what: &str, out: &mut Vec<CodegenError>) {
    if !is_identifier(name) {
        let message = format!("{what} name `{}` is not a PTX identifier", name.escape_default());
        out.push(CodegenError::new(Code::E0911, Loc::NONE, message));
    }
}

/// Sorts names; those declared twice are errors.
fn check_distinct(names: &mut Names<'_>, out: &mut Vec<CodegenError>) {
    names.sort_unstable();
    for pair in names.windows(2) {
        if pair[0] == pair[1] && is_identifier(pair[0]) {
            let message = format!("the name `{}` is declared twice", pair[0]);
            out.push(CodegenError::new(Code::E0911, Loc::NONE, message));
        }
    }
}

/// Whether a value is in a range and on its grid.
#[inline]
fn is_in_range(v: i64, lo: i64, hi: i64, step: u32) -> bool {
    let on_grid = match step {
        0 => v > 0 && (v as u64).is_power_of_two(),
        1 => true,
        s => v.wrapping_sub(lo) % i64::from(s) == 0,
    };
    v >= lo && v <= hi && on_grid
}

fn in_range(v: i64, lo: i64, hi: i64, step: u32) -> Result<(), (Code, String)> {
    if is_in_range(v, lo, hi, step) {
        return Ok(());
    }
    let grid = match step {
        0 => " (a power of two)".to_string(),
        1 => String::new(),
        s => format!(" in steps of {s}"),
    };
    Err((Code::E0903, format!("{v} is not in {lo} to {hi}{grid}")))
}

/// Whether an immediate can stand for a register of the type.
#[inline]
fn immediate_fits(operand: Operand, ty: Ty) -> bool {
    match operand {
        Operand::Imm(v) => {
            let (lo, hi) = ty.integers();
            v >= lo && v <= hi
        }
        Operand::F32(_) => matches!(ty, Ty::F32 | Ty::X32),
        _ => false,
    }
}

struct FuncVerifier<'a> {
    module: &'a Module,
    func: &'a Function,
    max_version: (u8, u8),
    placed: &'a mut EntitySet<Bb>,
    liveness: &'a mut Liveness,
    /// Liveness that need not be computed.
    known: Option<&'a Liveness>,
    version: &'a mut (u8, u8),
    /// The forms found to exist on the target in an allowed version, a bit each.
    available: [u64; FORM_WORDS],
    out: &'a mut Vec<CodegenError>,
}

/// Words of a set of forms.
const FORM_WORDS: usize = PtxOp::ALL.len().div_ceil(64);

impl FuncVerifier<'_> {
    #[cold]
    fn error(&mut self, code: Code, message: String) {
        let message = format!("function `{}`: {message}", self.func.name);
        self.out.push(CodegenError::new(code, Loc::NONE, message));
    }

    #[cold]
    fn at(&mut self, code: Code, inst: Inst, message: impl std::fmt::Display) {
        let name = self.func.op(inst).form().name;
        self.error(code, format!("{inst} ({name}): {message}"));
    }

    fn run(mut self, checks: Checks, globals: &Names<'_>) {
        let func = self.func;
        for p in func.params.values() {
            check_name(&p.name, "parameter", self.out);
        }
        // Names in the outer scope were compared with each other already.
        let mut names: Names<'_> = func.params.values().map(|p| p.name.as_str()).collect();
        for name in globals.iter().filter(|g| names.contains(*g)).copied().collect::<Names<'_>>() {
            if !names[func.params.len()..].contains(&name) {
                names.push(name);
            }
        }
        check_distinct(&mut names, self.out);
        self.launch();
        let errors_before = self.out.len();
        if self.known.is_none() {
            self.liveness.begin(func);
        }
        match checks {
            Checks::All if !self.instructions() => return,
            Checks::All => {}
            Checks::Input => self.forms(),
        }
        let mut unwritten = EntitySet::new();
        unwritten.extend(self.known.unwrap_or(&*self.liveness).unwritten());
        if !unwritten.is_empty() {
            self.unwritten(unwritten);
        }
        if self.out[errors_before..].iter().any(|d| !d.code.is_warning()) {
            return; // liveness needs well-formed blocks
        }
        if self.known.is_none() {
            self.liveness.solve(func);
        }
        if let Some(&entry) = func.layout().first() {
            let early: SmallVec<[Reg; 8]> = self.known.unwrap_or(&*self.liveness).live_in(entry).collect();
            for r in early {
                self.error(Code::W0902, format!("{r} may be read before it is written"));
            }
        }
    }

    /// Checks blocks and instructions; whether liveness can be found out.
    fn instructions(&mut self) -> bool {
        let func = self.func;
        if func.layout().is_empty() {
            self.error(Code::E0906, "has no blocks".into());
        }
        for &bb in func.layout() {
            if !self.placed.insert(bb) {
                self.error(Code::E0904, format!("{bb} is in the layout twice"));
                return false; // block lists would be walked twice
            }
        }
        for (row, &bb) in func.layout().iter().enumerate() {
            let last = func.last_inst(bb);
            self.block_end(bb);
            if self.known.is_none() {
                self.liveness.begin_row(row, bb);
            }
            let mut at = func.first_inst(bb);
            while let Some(inst) = at {
                at = func.next_inst(inst);
                let look = func.look(inst);
                if look.op.is_terminator() && Some(inst) != last {
                    self.inner_terminator(bb, inst);
                }
                self.form(look.op, inst);
                if !self.fits(look) {
                    self.inst(inst);
                }
            }
        }
        true
    }

    /// Checks whether the target has the forms, and notes what is read and written.
    fn forms(&mut self) {
        let func = self.func;
        for (row, &bb) in func.layout().iter().enumerate() {
            if self.known.is_none() {
                self.liveness.begin_row(row, bb);
            }
            let mut at = func.first_inst(bb);
            while let Some(inst) = at {
                at = func.next_inst(inst);
                self.form(func.op(inst), inst);
                if self.known.is_none() {
                    self.liveness.note(func.look(inst));
                }
            }
        }
    }

    /// Whether the target and the allowed versions have a form, unless that was asked before.
    #[inline]
    fn form(&mut self, op: PtxOp, inst: Inst) {
        let op = op as usize;
        if self.available[op / 64] >> (op % 64) & 1 == 0 {
            self.availability(inst);
        }
    }

    /// Reports the first read of each register that is read and never written.
    fn unwritten(&mut self, mut left: EntitySet<Reg>) {
        let func = self.func;
        for &bb in func.layout() {
            for inst in func.insts(bb) {
                let mut missing = None;
                func.visit_reads(inst, |r| {
                    if left.remove(r) {
                        missing = Some(r);
                    }
                });
                if let Some(r) = missing {
                    self.at(Code::E0905, inst, format_args!("reads {r}, which nothing writes"));
                }
            }
        }
    }

    fn launch(&mut self) {
        let l = self.func.launch;
        if l.reqntid.is_some() && l.maxntid.is_some() {
            self.error(Code::E0912, "has both reqntid and maxntid".into());
        }
        if l.minnctapersm.is_some() && l.reqntid.is_none() && l.maxntid.is_none() {
            self.error(Code::E0912, "minnctapersm needs reqntid or maxntid".into());
        }
        if l.minnctapersm.is_some() && l.maxnreg.is_some() {
            self.error(Code::E0912, "has both minnctapersm and maxnreg".into());
        }
        for (name, dims) in [("reqntid", l.reqntid), ("maxntid", l.maxntid)] {
            if let Some(d) = dims {
                let threads = d.iter().fold(1u64, |n, &x| n.saturating_mul(u64::from(x)));
                if threads == 0 || threads > 1024 {
                    self.error(
                        Code::E0912,
                        format!("{name} asks for {threads} threads, 1 to 1024 are possible"),
                    );
                }
            }
        }
        if let Some(d) = l.cluster {
            let ctas = d.iter().fold(1u64, |n, &x| n.saturating_mul(u64::from(x)));
            if ctas == 0 || ctas > 16 {
                self.error(Code::E0912, format!("a cluster of {ctas} CTAs, 1 to 16 are possible"));
            }
        }
        if let Some(n) = l.maxnreg
            && !(24..=255).contains(&n)
        {
            self.error(Code::E0912, format!("maxnreg {n}, 24 to 255 are possible"));
        }
        // Without a known register count at entry ptxas ignores setmaxnreg (advisory C7508).
        let bounded = l.maxnreg.is_some() || l.minnctapersm.is_some();
        if !bounded {
            let func = self.func;
            let user = func
                .layout()
                .iter()
                .flat_map(|&bb| func.insts(bb))
                .find(|&i| matches!(func.op(i), PtxOp::SetmaxnregInc | PtxOp::SetmaxnregDec));
            if let Some(inst) = user {
                self.at(
                    Code::E0912,
                    inst,
                    "needs maxnreg, or minnctapersm with reqntid or maxntid, to have an effect",
                );
            }
        }
    }

    fn block_end(&mut self, bb: Bb) {
        match self.func.last_inst(bb) {
            None => self.error(Code::E0906, format!("{bb} is empty")),
            Some(last) if !self.func.ends_block(last) => {
                self.at(Code::E0906, last, format_args!("{bb} ends without a terminator"));
            }
            Some(_) => {}
        }
    }

    /// A terminator that is not the last instruction of its block.
    fn inner_terminator(&mut self, bb: Bb, inst: Inst) {
        let func = self.func;
        if func.ends_block(inst) {
            self.at(Code::E0906, inst, format_args!("terminator in the middle of {bb}"));
        } else if matches!(func.op(inst), PtxOp::Bra | PtxOp::BraUni) {
            let next = func.next_inst(inst);
            let pair = next == func.last_inst(bb)
                && next.is_some_and(|l| matches!(func.op(l), PtxOp::Bra | PtxOp::BraUni));
            if !pair {
                self.at(
                    Code::E0906,
                    inst,
                    format_args!(
                        "a guarded branch stands directly before the final branch of its block, not inside {bb}"
                    ),
                );
            }
        }
    }

    /// Whether the target and the allowed versions have the instruction's form.
    fn availability(&mut self, inst: Inst) {
        let op = self.func.op(inst);
        let form = op.form();
        let max = self.max_version;
        let exists = form.available_on(self.module.target);
        if !exists {
            self.at(
                Code::E0907,
                inst,
                format_args!("`{}` does not exist on {}", form.mnemonic, self.module.target),
            );
        }
        *self.version = form.version.max(*self.version);
        if form.version > max {
            self.at(
                Code::E0908,
                inst,
                format_args!(
                    "`{}` needs PTX {}.{}, at most {}.{} is allowed",
                    form.mnemonic, form.version.0, form.version.1, max.0, max.1
                ),
            );
        } else if exists {
            self.available[op as usize / 64] |= 1 << (op as usize % 64);
        }
    }

    /// Notes what an instruction reads and writes, unless liveness is known; whether it is known to be right at a glance, as
    /// nearly all are. If not, all there is to say is up to `inst`.
    #[inline]
    fn fits(&mut self, look: Look<'_>) -> bool {
        let Look { op, guard, operands, .. } = look;
        let mut right = true;
        let guard = guard.get();
        if let Some((p, _)) = guard {
            self.reads(p);
            right = !op.is_convergent() && self.has_type(p, Ty::Pred);
        }
        let Some(fits) = op.fits().filter(|_| !op.updates()) else { return false };
        if operands.len() != fits.len() {
            return false;
        }
        // Sources first: what an instruction reads is what was there before it.
        let results = op.num_results();
        let ((own, sources), (own_fits, source_fits)) = (operands.split_at(results), fits.split_at(results));
        for (i, (&operand, &fit)) in sources.iter().zip(source_fits).enumerate() {
            right &= self.source_fits(operand, fit)
                || self.other_source_fits(operand, op.form().operands[results + i].kind);
        }
        for (&operand, &fit) in own.iter().zip(own_fits) {
            right &= self.result_fits(operand, fit, guard.is_some());
        }
        right
    }

    /// Says what is wrong with an instruction, if anything is.
    #[cold]
    fn inst(&mut self, inst: Inst) {
        let func = self.func;
        let op = func.op(inst);
        let form = op.form();
        if let Some((p, _)) = func.guard(inst).get() {
            self.reads(p);
            if !self.has_type(p, Ty::Pred) {
                self.at(Code::E0902, inst, format_args!("the guard {p} is not a predicate"));
            }
            if form.effects.is_convergent() {
                self.at(
                    Code::W0901,
                    inst,
                    format_args!(
                        "convergent instruction under guard {p}: every lane of the warp must agree on it"
                    ),
                );
            }
        }
        let operands = func.operands(inst);
        if operands.len() != form.operands.len() {
            self.at(
                Code::E0901,
                inst,
                format_args!("has {} operands, its form has {}", operands.len(), form.operands.len()),
            );
            func.visit_reads(inst, |r| self.reads(r));
            func.visit_writes(inst, |r| self.writes(r, false));
            return;
        }
        func.visit_reads(inst, |r| self.reads(r));
        func.visit_writes(inst, |r| self.writes(r, func.guard(inst).is_some()));
        let results = op.num_results();
        for i in (results..operands.len()).chain(0..results) {
            self.wrong(inst, i);
        }
    }

    /// Says what is wrong with an operand, if anything is.
    fn wrong(&mut self, inst: Inst, i: usize) {
        let (operand, class) = (self.func.operands(inst)[i], &self.func.op(inst).form().operands[i]);
        if let Err((code, why)) = self.operand(operand, class) {
            self.at(code, inst, format_args!("operand {i}: {why}"));
        }
    }

    /// Notes a read.
    #[inline]
    fn reads(&mut self, r: Reg) {
        if self.known.is_none() {
            self.liveness.read(r);
        }
    }

    /// Notes a write.
    #[inline]
    fn writes(&mut self, r: Reg, guarded: bool) {
        if self.known.is_none() {
            self.liveness.write(r, guarded);
        }
    }

    #[inline]
    fn has_type(&self, r: Reg, ty: Ty) -> bool {
        self.func.reg_ty.get(r).is_some_and(|&t| ty.accepts(t))
    }

    /// Whether the register's type is one of a set; see [`Fit`].
    #[inline]
    fn is_one_of(&self, r: Reg, types: u8) -> bool {
        self.func.reg_ty.get(r).is_some_and(|&t| types >> t as u8 & 1 != 0)
    }

    /// Notes the registers that a source reads; whether it is known to be right. If not, it may be without registers
    /// (`other_source_fits`); then `operand` decides and says why.
    #[inline]
    fn source_fits(&mut self, operand: Operand, fit: Fit) -> bool {
        match operand {
            Operand::Reg(r) => {
                self.reads(r);
                self.is_one_of(r, fit.reg)
            }
            Operand::Addr { base, .. } => {
                self.reads(base);
                self.is_one_of(base, fit.base)
            }
            Operand::List(list) => {
                let items = self.func.list_items(list);
                let mut fits = items.len() == usize::from(fit.len);
                for &item in items {
                    fits &= match item {
                        Operand::Reg(r) => {
                            self.reads(r);
                            self.is_one_of(r, fit.item)
                        }
                        _ => false,
                    };
                }
                fits
            }
            _ => false,
        }
    }

    /// As `source_fits`, for what is no register.
    #[inline]
    fn other_source_fits(&self, operand: Operand, kind: Kind) -> bool {
        match (operand, kind) {
            (_, Kind::Reg { ty, imm }) => imm && immediate_fits(operand, ty),
            (Operand::Imm(v), Kind::Imm { lo, hi, step } | Kind::RegOrImm { lo, hi, step }) => {
                is_in_range(v, lo, hi, step)
            }
            (Operand::Block(bb), Kind::Label) => self.placed.contains(bb),
            _ => false,
        }
    }

    /// As `source_fits`, for what the instruction writes.
    #[inline]
    fn result_fits(&mut self, operand: Operand, fit: Fit, guarded: bool) -> bool {
        match operand {
            Operand::Reg(r) => {
                self.writes(r, guarded);
                self.is_one_of(r, fit.reg)
            }
            Operand::List(list) => {
                let items = self.func.list_items(list);
                let mut fits = items.len() == usize::from(fit.len);
                for &item in items {
                    let Operand::Reg(r) = item else { return false };
                    self.writes(r, guarded);
                    fits &= self.is_one_of(r, fit.item);
                }
                fits
            }
            _ => false,
        }
    }

    fn operand(&self, operand: Operand, class: &OperandClass) -> Result<(), (Code, String)> {
        let wrong =
            |want: &str| Err((Code::E0902, format!("{} given, {want} wanted", self.describe(operand))));
        match class.kind {
            Kind::Reg { ty, imm } => self.scalar(operand, ty, imm && !class.def),
            Kind::Vec { ty, imm, len } => {
                let Operand::List(list) = operand else {
                    return wrong(&format!("a list of {len}"));
                };
                let items = self.func.list_items(list);
                if items.len() != usize::from(len) {
                    return Err((Code::E0902, format!("a list of {} given, of {len} wanted", items.len())));
                }
                for &item in items {
                    self.scalar(item, ty, imm && !class.def)?;
                }
                Ok(())
            }
            Kind::RegOrImm { lo, hi, step } => match operand {
                Operand::Imm(v) => in_range(v, lo, hi, step),
                other => self.scalar(other, Ty::B32, false),
            },
            Kind::Imm { lo, hi, step } => match operand {
                Operand::Imm(v) => in_range(v, lo, hi, step),
                _ => wrong("an immediate"),
            },
            Kind::Addr(space) => self.address(operand, space),
            Kind::Special(bits) => match operand {
                Operand::Special(s) if s.bits() == bits => Ok(()),
                _ => wrong(&format!("a {bits}-bit special register")),
            },
            Kind::SharedSym => match operand {
                Operand::Sym(s) if self.sym(s).is_some_and(|k| !matches!(k, SymKind::Global { .. })) => {
                    Ok(())
                }
                _ => wrong("a shared variable"),
            },
            Kind::GlobalSym => match operand {
                Operand::Sym(s) if matches!(self.sym(s), Some(SymKind::Global { .. })) => Ok(()),
                Operand::Text(n) if (n as usize) < self.func.texts.len() => Ok(()),
                _ => wrong("a global variable"),
            },
            Kind::Param => match operand {
                Operand::Param(p) if self.func.params.is_valid(p) => Ok(()),
                _ => wrong("a parameter"),
            },
            Kind::Label => match operand {
                Operand::Block(bb) if self.placed.contains(bb) => Ok(()),
                Operand::Block(bb) => Err((Code::E0904, format!("{bb} is not in the layout"))),
                _ => wrong("a block"),
            },
        }
    }

    fn sym(&self, sym: Sym) -> Option<SymKind> {
        self.module.symbols.get(sym).map(|s| s.kind)
    }

    fn scalar(&self, operand: Operand, ty: Ty, imm: bool) -> Result<(), (Code, String)> {
        let want = match ty {
            Ty::Pred => "a predicate",
            Ty::B16 => "a b16 register",
            Ty::B32 => "a b32 register",
            Ty::F32 => "an f32 register",
            Ty::B64 => "a b64 register",
            Ty::X32 => "a 32-bit register",
        };
        match operand {
            Operand::Reg(r) if self.func.reg_ty.get(r).is_some_and(|&t| ty.accepts(t)) => Ok(()),
            Operand::Imm(_) | Operand::F32(_) if imm && immediate_fits(operand, ty) => Ok(()),
            Operand::Imm(v) if imm && ty == Ty::F32 => {
                Err((Code::E0902, format!("integer {v} given, an f32 value wanted")))
            }
            Operand::Imm(v) if imm => {
                let (lo, hi) = ty.integers();
                Err((Code::E0903, format!("{v} is not in {lo} to {hi}")))
            }
            _ => Err((Code::E0902, format!("{} given, {want} wanted", self.describe(operand)))),
        }
    }

    fn address(&self, operand: Operand, space: AddressSpace) -> Result<(), (Code, String)> {
        let wrong =
            |want: &str| Err((Code::E0902, format!("{} given, {want} wanted", self.describe(operand))));
        let want_ty = space.address_ty();
        let want_reg = if want_ty == Ty::B32 { RegTy::B32 } else { RegTy::B64 };
        match (space, operand) {
            (AddressSpace::Param, Operand::Param(p) | Operand::ParamAddr { param: p, .. }) => {
                self.param_address(p, operand)
            }
            (AddressSpace::Param, _) => wrong("a parameter address"),
            (AddressSpace::Local, Operand::Local(at)) => {
                if at < self.func.local_bytes {
                    Ok(())
                } else {
                    Err((
                        Code::E0903,
                        format!("byte {at} of a local area of {} bytes", self.func.local_bytes),
                    ))
                }
            }
            (AddressSpace::Shared, Operand::Sym(s) | Operand::SymAddr { sym: s, .. })
                if self.sym(s).is_some_and(|k| !matches!(k, SymKind::Global { .. })) =>
            {
                Ok(())
            }
            (AddressSpace::Global, Operand::Sym(s) | Operand::SymAddr { sym: s, .. })
                if matches!(self.sym(s), Some(SymKind::Global { .. })) =>
            {
                Ok(())
            }
            (_, Operand::Reg(r) | Operand::Addr { base: r, .. })
                if self.func.reg_ty.get(r).is_some_and(|&t| want_ty.accepts(t)) =>
            {
                Ok(())
            }
            _ => wrong(
                &format!("an address of {space:?} memory ({} register)", want_reg.as_str()).to_lowercase(),
            ),
        }
    }

    fn param_address(&self, p: Param, operand: Operand) -> Result<(), (Code, String)> {
        let Some(data) = self.func.params.get(p) else {
            return Err((Code::E0902, format!("{p} is not a parameter of the function")));
        };
        let offset = match operand {
            Operand::ParamAddr { offset, .. } => offset,
            _ => 0,
        };
        if offset < 0 || offset as u32 >= data.kind.size() {
            return Err((
                Code::E0903,
                format!("byte {offset} of parameter `{}` of {} bytes", data.name, data.kind.size()),
            ));
        }
        Ok(())
    }

    fn describe(&self, operand: Operand) -> String {
        match operand {
            Operand::Reg(r) if r.index() < self.func.num_regs() => {
                format!("{r}:{}", self.func.ty(r).as_str())
            }
            Operand::Addr { base, offset } if base.index() < self.func.num_regs() => {
                format!("address {base}:{}+{offset}", self.func.ty(base).as_str())
            }
            Operand::Imm(v) => format!("immediate {v}"),
            Operand::F32(bits) => format!("f32 immediate {}", f32::from_bits(bits)),
            other => format!("{other:?}"),
        }
    }
}
