//! One instruction of the text form: guard, mnemonic, operands, comment.
//!
//! Several forms share a mnemonic (`mov.b64` packs, unpacks and moves). They are tried in table order: first as
//! strictly as the verifier would, then leniently, so that instructions the verifier is to refuse can be written too.
//! If none fits, the error is that of the form that got farthest. A trial changes nothing until it is accepted.

use super::{Known, Parser};
use crate::error::{Code, CodegenError, CodegenResult, Loc};
use crate::ir::lexer::quote;
use crate::nvvm::forms::{AddressSpace, Kind, PtxOp, Special, Ty};
use crate::nvvm::module::{Bb, Function, Guard, List, Operand, Param, Reg, RegTy, Sym, SymKind};
use crate::nvvm::{LOCAL_AREA, TEXTS};
use cranelift_entity::EntityRef;

/// All forms by mnemonic.
pub(super) fn by_mnemonic() -> Vec<PtxOp> {
    let mut forms = PtxOp::ALL.to_vec();
    forms.sort_by_key(|op| (op.form().mnemonic, *op));
    forms
}

/// What a trial read: to be kept if it succeeds.
#[derive(Default)]
pub(super) struct Trial {
    operands: Vec<Operand>,
    /// Elements of brace lists, to which lists in `operands` point.
    items: Vec<Operand>,
    reads: Vec<(Reg, Ty)>,
    /// Written registers, with the type behind them.
    writes: Vec<(Reg, Ty, Option<RegTy>, Loc)>,
}

/// An integer or the bits of a float.
enum Number {
    Int(i64),
    F32(u32),
    /// `0x` and eight digits with a leading zero: how floats print where any 32 bits may stand.
    Bits(u32),
}

fn number(text: &str) -> Option<Number> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    if !digits.bytes().all(|b| b.is_ascii_alphanumeric()) {
        return None;
    }
    if let Some(hex) = digits.strip_prefix("0f").filter(|_| !negative) {
        return u32::from_str_radix(hex, 16).ok().filter(|_| hex.len() == 8).map(Number::F32);
    }
    let value = match digits.strip_prefix("0x") {
        Some(hex) => {
            let v = u64::from_str_radix(hex, 16).ok()?;
            if hex.len() == 8 && hex.starts_with('0') && !negative {
                return Some(Number::Bits(v as u32));
            }
            if !negative {
                return Some(Number::Int(v as i64));
            }
            i64::try_from(v).ok()?
        }
        None => digits.parse().ok()?,
    };
    Some(Number::Int(if negative { -value } else { value }))
}

impl Parser<'_> {
    /// Reads a line into a block.
    pub(super) fn instruction(&mut self, func: &mut Function, bb: Bb) -> CodegenResult<()> {
        let guard = self.guard(func)?;
        self.blanks();
        let start = self.pos;
        let rest = self.rest();
        let end = rest.bytes().position(|b| matches!(b, b' ' | b'\t' | b'\r' | b'\n' | b';'));
        let mnemonic = &rest[..end.unwrap_or(rest.len())];
        if mnemonic.is_empty() {
            return self.expected("an instruction");
        }
        self.pos += mnemonic.len();
        let from = self.forms.partition_point(|op| op.form().mnemonic < mnemonic);
        let count = self.forms[from..].iter().take_while(|op| op.form().mnemonic == mnemonic).count();
        if count == 0 {
            return self.error(Code::E0921, start, format!("no instruction is called {}", quote(mnemonic)));
        }
        let behind = self.pos;
        let mut farthest: Option<CodegenError> = None;
        for strict in [true, false] {
            for i in from..from + count {
                let op = self.forms[i];
                self.pos = behind;
                let found = match self.operands(func, op, strict) {
                    Ok(()) => self.accept(func, bb, op, guard),
                    Err(e) => Err(e),
                };
                match found {
                    Ok(()) => return self.comments(func, bb),
                    Err(e) => {
                        let says_more = |f: &CodegenError| {
                            let (old, new) = (f.location.start, e.location.start);
                            new > old || (new == old && f.code == Code::E0920 && e.code != Code::E0920)
                        };
                        if farthest.as_ref().is_none_or(says_more) {
                            farthest = Some(e);
                        }
                    }
                }
            }
        }
        match farthest {
            Some(e) => Err(e),
            None => self.error(Code::E0921, start, format!("no form of {} fits", quote(mnemonic))),
        }
    }

    fn guard(&mut self, func: &mut Function) -> CodegenResult<Guard> {
        if !self.eat("@") {
            return Ok(Guard::default());
        }
        let negated = self.eat("!");
        match self.reg()? {
            Some(p) => {
                self.know(func, p, Known::Used(Ty::Pred));
                Ok(Guard::new(p, negated))
            }
            None => self.expected("a predicate register"),
        }
    }

    fn reg(&mut self) -> CodegenResult<Option<Reg>> {
        Ok(self.numbered("%v", "register")?.map(Reg::new))
    }

    /// Notes a register's type; a definition beats a use.
    fn know(&mut self, func: &mut Function, r: Reg, known: Known) {
        while func.reg_ty.len() <= r.index() {
            func.reg(RegTy::default());
        }
        if self.types.len() <= r.index() {
            self.types.resize(r.index() + 1, Known::No);
        }
        let old = &mut self.types[r.index()];
        if matches!(known, Known::Defined(_)) || *old == Known::No {
            *old = known;
        }
    }

    fn type_of(&self, r: Reg) -> Known {
        self.types.get(r.index()).copied().unwrap_or_default()
    }

    /// Makes the instruction of an accepted trial.
    fn accept(&mut self, func: &mut Function, bb: Bb, op: PtxOp, guard: Guard) -> CodegenResult<()> {
        let trial = std::mem::take(&mut self.trial);
        for &(r, class, given, loc) in &trial.writes {
            let ty = match (given, self.type_of(r)) {
                (Some(new), Known::Defined(old)) if new != old => {
                    let message = format!("{r} is {} here and was {} before", new.as_str(), old.as_str());
                    self.trial = trial;
                    return Err(CodegenError::new(Code::E0924, loc, message));
                }
                (Some(ty), _) | (None, Known::Defined(ty)) => ty,
                (None, _) => class.register(),
            };
            self.know(func, r, Known::Defined(ty));
        }
        for &(r, class) in &trial.reads {
            self.know(func, r, Known::Used(class));
        }
        let mut operands: smallvec::SmallVec<[Operand; 6]> = smallvec::SmallVec::new();
        for &operand in &trial.operands {
            operands.push(match operand {
                Operand::List(l) => {
                    let items = &trial.items[l.start as usize..l.start as usize + usize::from(l.len)];
                    Operand::List(func.list(items.iter().copied()))
                }
                Operand::Block(target) => {
                    while func.blocks.len() <= target.index() {
                        func.block();
                    }
                    target.into()
                }
                other => other,
            });
        }
        let inst = func.make_inst(op, &operands, guard);
        func.append_inst(bb, inst);
        self.trial = trial;
        Ok(())
    }

    /// Comments behind the instruction, and the end of the line.
    fn comments(&mut self, func: &mut Function, bb: Bb) -> CodegenResult<()> {
        self.blanks();
        if self.at_comment() {
            let line = self.rest().lines().next().unwrap_or("");
            let marker = if line.starts_with(';') { 1 } else { 2 };
            let text = &line[marker..];
            if let Some(inst) = func.last_inst(bb) {
                for part in text.strip_prefix(' ').unwrap_or(text).split(" ; ") {
                    func.comment(inst, part);
                }
            }
        }
        self.end_of_line()
    }

    // ---- trials

    /// Reads the operands of one form into `trial`.
    fn operands(&mut self, func: &Function, op: PtxOp, strict: bool) -> CodegenResult<()> {
        let trial = &mut self.trial;
        trial.operands.clear();
        trial.items.clear();
        trial.reads.clear();
        trial.writes.clear();
        let form = op.form();
        self.literal(form.syntax[0])?;
        for (i, class) in form.operands.iter().enumerate() {
            let operand = match class.kind {
                Kind::Reg { ty, imm } => self.scalar(ty, imm, class.def, strict)?,
                Kind::Vec { ty, imm, len } => self.braces(ty, imm, class.def, len, strict)?,
                Kind::RegOrImm { .. } => self.scalar(Ty::B32, true, false, strict)?,
                Kind::Imm { .. } => self.immediate()?,
                Kind::Addr(space) => self.address(func, space, strict)?,
                Kind::Special(bits) => {
                    let s = self.special()?;
                    if strict && (s.bits() != bits || s.is_volatile() != form.effects.is_volatile()) {
                        return self.expected("another special register");
                    }
                    Operand::Special(s)
                }
                Kind::SharedSym => self.variable(strict.then_some(false))?.into(),
                Kind::GlobalSym => match self.text_of(func) {
                    Some(n) => Operand::Text(n),
                    None => self.variable(strict.then_some(true))?.into(),
                },
                Kind::Param => match self.param_name(func)? {
                    Some(p) => p.into(),
                    None => return self.expected("a parameter"),
                },
                Kind::Label => match self.numbered("bb", "block")? {
                    Some(n) => Bb::new(n).into(),
                    None => return self.expected("a block"),
                },
            };
            self.trial.operands.push(operand);
            self.literal(form.syntax[i + 1])?;
        }
        self.blanks();
        match self.peek() {
            None | Some(b'\n') => Ok(()),
            _ if self.at_comment() => Ok(()),
            _ => self.expected("the end of the instruction"),
        }
    }

    /// Text of the form itself, spaces aside.
    fn literal(&mut self, literal: &str) -> CodegenResult<()> {
        for part in literal.split_whitespace() {
            for c in part.chars() {
                let mut buffer = [0; 4];
                let c = &*c.encode_utf8(&mut buffer);
                if !self.eat(c) {
                    return self.expected(&format!("`{c}`"));
                }
            }
        }
        Ok(())
    }

    /// A register or a number.
    fn scalar(&mut self, ty: Ty, imm: bool, def: bool, strict: bool) -> CodegenResult<Operand> {
        self.blanks();
        let start = self.pos;
        if let Some(r) = self.reg()? {
            if def {
                let given = self.annotation()?;
                let loc = Loc::new(start, self.pos);
                let known = match (given, self.type_of(r)) {
                    (Some(t), _) | (None, Known::Defined(t)) => Some(t),
                    _ => None,
                };
                if strict && known.is_some_and(|t| !ty.accepts(t)) {
                    return self.wrong_register(start, r);
                }
                self.trial.writes.push((r, ty, given, loc));
            } else {
                if strict && matches!(self.type_of(r), Known::Defined(t) if !ty.accepts(t)) {
                    return self.wrong_register(start, r);
                }
                self.trial.reads.push((r, ty));
            }
            return Ok(r.into());
        }
        if def || (strict && !imm) {
            return self.expected("a register");
        }
        let what = if imm { "a register or a number" } else { "a register" };
        Ok(match self.any_number(what)? {
            Number::Int(v) => Operand::Imm(v),
            Number::F32(bits) => Operand::F32(bits),
            Number::Bits(bits) if ty == Ty::X32 => Operand::F32(bits),
            Number::Bits(bits) => Operand::Imm(i64::from(bits)),
        })
    }

    fn wrong_register<T>(&self, start: usize, r: Reg) -> CodegenResult<T> {
        self.error(Code::E0921, start, format!("no form of the instruction takes {r} here"))
    }

    /// `:b32` behind a result.
    fn annotation(&mut self) -> CodegenResult<Option<RegTy>> {
        if self.peek() != Some(b':') {
            return Ok(None);
        }
        self.pos += 1;
        let start = self.pos;
        let word = self.word();
        match RegTy::ALL.into_iter().find(|t| t.as_str() == word) {
            Some(ty) => Ok(Some(ty)),
            None => {
                self.pos = start;
                self.expected("a register type")
            }
        }
    }

    fn any_number(&mut self, what: &str) -> CodegenResult<Number> {
        self.blanks();
        let start = self.pos;
        let rest = self.rest();
        let sign = usize::from(rest.starts_with('-'));
        let end = rest[sign..].bytes().position(|b| !super::is_word_byte(b)).unwrap_or(rest.len() - sign);
        let text = &rest[..sign + end];
        if !text[sign..].bytes().next().is_some_and(|b| b.is_ascii_digit()) {
            return self.expected(what);
        }
        self.pos += text.len();
        match number(text) {
            Some(n) => Ok(n),
            None => self.error(Code::E0923, start, format!("{} is no number", quote(text))),
        }
    }

    fn immediate(&mut self) -> CodegenResult<Operand> {
        Ok(match self.any_number("a number")? {
            Number::Int(v) => Operand::Imm(v),
            Number::F32(bits) => Operand::F32(bits),
            Number::Bits(bits) => Operand::Imm(i64::from(bits)),
        })
    }

    fn braces(&mut self, ty: Ty, imm: bool, def: bool, len: u16, strict: bool) -> CodegenResult<Operand> {
        self.blanks();
        let open = self.pos;
        self.expect("{")?;
        let start = self.trial.items.len();
        while !self.eat("}") {
            if self.trial.items.len() > start {
                self.expect(",")?;
            }
            let item = self.scalar(ty, imm, def, strict)?;
            self.trial.items.push(item);
        }
        let found = self.trial.items.len() - start;
        let Ok(short) = u16::try_from(found) else {
            return self.error(Code::E0923, open, format!("a list of {found} is too long"));
        };
        if strict && short != len {
            return self.error(Code::E0921, open, format!("a list of {found} given, of {len} wanted"));
        }
        Ok(Operand::List(List { start: start as u32, len: short }))
    }

    fn special(&mut self) -> CodegenResult<Special> {
        self.blanks();
        let start = self.pos;
        if self.peek() == Some(b'%') {
            self.pos += 1;
            let name = self.word();
            if let Some(s) = Special::ALL.iter().copied().find(|s| s.as_str().strip_prefix('%') == Some(name))
            {
                return Ok(s);
            }
        }
        self.pos = start;
        self.expected("a special register")
    }

    /// The number of one of the function's texts.
    fn text_of(&mut self, func: &Function) -> Option<u32> {
        self.blanks();
        let rest = self.peek_word().strip_prefix(func.name.as_str())?.strip_prefix(TEXTS)?;
        let n: u32 = rest.parse().ok().filter(|&n| (n as usize) < func.texts.len())?;
        self.word();
        Some(n)
    }

    fn find_variable(&self, name: &str) -> Option<Sym> {
        self.module.symbols.iter().find(|(_, data)| data.name == name).map(|(sym, _)| sym)
    }

    /// A module-level variable, of the wanted kind (`Some(true)`: global).
    fn variable(&mut self, global: Option<bool>) -> CodegenResult<Sym> {
        self.blanks();
        let start = self.pos;
        let name = self.word();
        if name.is_empty() {
            return self.expected("a variable");
        }
        match self.find_variable(name) {
            Some(sym) => {
                let is_global = matches!(self.module.symbols[sym].kind, SymKind::Global { .. });
                if global.is_some_and(|g| g != is_global) {
                    return self.error(Code::E0921, start, format!("{} lies in another space", quote(name)));
                }
                Ok(sym)
            }
            None => self.error(Code::E0922, start, format!("no variable is called {}", quote(name))),
        }
    }

    /// A parameter of the function; `None` if no word stands here.
    fn param_name(&mut self, func: &Function) -> CodegenResult<Option<Param>> {
        self.blanks();
        let start = self.pos;
        let name = self.word();
        if name.is_empty() {
            return Ok(None);
        }
        match func.params.iter().find(|(_, data)| data.name == name) {
            Some((p, _)) => Ok(Some(p)),
            None => self.error(Code::E0922, start, format!("no parameter is called {}", quote(name))),
        }
    }

    /// `+16`, `+-16` or nothing.
    fn offset(&mut self, lo: i64, hi: i64) -> CodegenResult<i64> {
        if !self.eat("+") {
            return Ok(0);
        }
        self.blanks();
        let start = self.pos;
        match self.any_number("a number")? {
            Number::Int(v) if v >= lo && v <= hi => Ok(v),
            _ => self.error(Code::E0923, start, format!("an offset is a number from {lo} to {hi}")),
        }
    }

    fn address(&mut self, func: &Function, space: AddressSpace, strict: bool) -> CodegenResult<Operand> {
        let (lo, hi) = (i64::from(i32::MIN), i64::from(i32::MAX));
        self.expect("[")?;
        self.blanks();
        let start = self.pos;
        let operand = if let Some(base) = self.reg()? {
            let want =
                if matches!(space, AddressSpace::Shared | AddressSpace::Tensor) { Ty::B32 } else { Ty::B64 };
            if strict && matches!(self.type_of(base), Known::Defined(t) if !want.accepts(t)) {
                return self.wrong_register(start, base);
            }
            self.trial.reads.push((base, want));
            Operand::Addr { base, offset: self.offset(lo, hi)? as i32 }
        } else if self.peek_word() == LOCAL_AREA {
            self.word();
            Operand::Local(self.offset(0, hi)? as u32)
        } else if space == AddressSpace::Param {
            let Some(param) = self.param_name(func)? else { return self.expected("a parameter") };
            match self.offset(lo, hi)? as i32 {
                0 => Operand::Param(param),
                offset => Operand::ParamAddr { param, offset },
            }
        } else {
            let sym = self.variable(None)?;
            match self.offset(lo, hi)? as i32 {
                0 => Operand::Sym(sym),
                offset => Operand::SymAddr { sym, offset },
            }
        };
        self.expect("]")?;
        Ok(operand)
    }
}
