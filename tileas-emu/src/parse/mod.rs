//! PTX text to a syntax tree.
//!
//! In: the text of a module. Out: [`ast::Module`] or located errors (an erroneous statement is
//! skipped up to its semicolon, so that several errors are found at once).
//! Guarantee: total; a directive that is not known is an error, never skipped.
//! Source: PTX ISA, "Syntax", "PTX Module Directives", "Kernel and Function Directives".

pub mod ast;
pub mod lexer;

use crate::diag::{Diagnostic, Place};
use ast::{Bounds, Entry, Inst, Module, Operand, RegDecl, Space, Stmt, Var};
use lexer::{Located, Token};

type R<T> = Result<T, Diagnostic>;

struct Parser<'a> {
    text: &'a str,
    toks: Vec<Located<'a>>,
    i: usize,
    errors: Vec<Diagnostic>,
    /// Of the body that is read.
    locs: Vec<ast::Loc>,
}

/// Parses a module.
pub fn parse(text: &str) -> Result<Module, Vec<Diagnostic>> {
    let toks = lexer::tokens(text).map_err(|e| vec![e])?;
    let mut p = Parser { text, toks, i: 0, errors: Vec::new(), locs: Vec::new() };
    match p.module() {
        Ok(m) if p.errors.is_empty() => Ok(m),
        Ok(_) => Err(p.errors),
        Err(e) => {
            p.errors.push(e);
            Err(p.errors)
        }
    }
}

/// Bytes of a scalar type, without the dot.
pub fn type_bytes(ty: &str) -> Option<u32> {
    Some(match ty {
        "b8" | "u8" | "s8" => 1,
        "b16" | "u16" | "s16" | "f16" | "bf16" => 2,
        "b32" | "u32" | "s32" | "f32" | "f16x2" | "bf16x2" => 4,
        "b64" | "u64" | "s64" | "f64" | "f32x2" => 8,
        "b128" => 16,
        _ => return None,
    })
}

impl<'a> Parser<'a> {
    fn peek(&self) -> &Token<'a> {
        &self.toks[self.i].token
    }

    fn at(&self) -> Place {
        self.toks[self.i].at
    }

    fn next(&mut self) -> Token<'a> {
        let t = self.toks[self.i].token.clone();
        if self.i + 1 < self.toks.len() {
            self.i += 1;
        }
        t
    }

    fn is(&self, c: u8) -> bool {
        *self.peek() == Token::Punct(c)
    }

    fn eat(&mut self, c: u8) -> bool {
        let yes = self.is(c);
        if yes {
            self.next();
        }
        yes
    }

    fn unexpected<T>(&self, wanted: &str) -> R<T> {
        let found = match self.peek() {
            Token::End => "the end of the text".to_string(),
            _ => {
                let (a, b) = self.toks[self.i].span;
                format!("`{}`", &self.text[a..b])
            }
        };
        Err(Diagnostic::new("P002", self.at(), format!("expected {wanted}, found {found}")))
    }

    fn expect(&mut self, c: u8) -> R<()> {
        if self.eat(c) { Ok(()) } else { self.unexpected(&format!("`{}`", c as char)) }
    }

    fn word(&mut self, what: &str) -> R<&'a str> {
        match *self.peek() {
            Token::Word(w) => {
                self.next();
                Ok(w)
            }
            _ => self.unexpected(what),
        }
    }

    fn int(&mut self) -> R<u64> {
        match *self.peek() {
            Token::Int(n) => {
                self.next();
                Ok(n)
            }
            _ => self.unexpected("an integer"),
        }
    }

    fn u32(&mut self) -> R<u32> {
        let at = self.at();
        let n = self.int()?;
        u32::try_from(n).map_err(|_| Diagnostic::new("P017", at, format!("{n} does not fit in 32 bits")))
    }

    fn eat_word(&mut self, w: &str) -> bool {
        let yes = matches!(*self.peek(), Token::Word(x) if x == w);
        if yes {
            self.next();
        }
        yes
    }

    fn module(&mut self) -> R<Module> {
        let mut m = Module::default();
        if !self.eat_word(".version") {
            return self.unexpected("`.version`");
        }
        let at = self.at();
        m.version = match self.next() {
            Token::Decimal(v) => {
                let (a, b) = v.split_once('.').unwrap_or((v, "0"));
                match (a.parse(), b.parse()) {
                    (Ok(a), Ok(b)) => (a, b),
                    _ => return Err(Diagnostic::new("P018", at, format!("version `{v}`"))),
                }
            }
            _ => return Err(Diagnostic::new("P018", at, "version must look like 8.6")),
        };
        if !self.eat_word(".target") {
            return self.unexpected("`.target`");
        }
        let at = self.at();
        m.target = self.word("a target")?.to_string();
        let number = m.target.strip_prefix("sm_").unwrap_or("").trim_end_matches(['a', 'f']);
        if !number.parse().is_ok_and(|n: u32| (75..130).contains(&n)) {
            return Err(Diagnostic::new("P018", at, format!("target `{}` is not emulated", m.target)));
        }
        while self.eat(b',') {
            self.word("a target option")?;
        }
        if self.eat_word(".address_size") && self.int()? != 64 {
            return Err(Diagnostic::new("P018", at, "only .address_size 64 is emulated"));
        }
        loop {
            let at = self.at();
            match *self.peek() {
                Token::End => return Ok(m),
                Token::Word(".entry") => {
                    self.next();
                    let e = self.entry()?;
                    m.entries.push(e);
                }
                Token::Word(".visible" | ".weak") => {
                    self.next();
                }
                Token::Word(".pragma") => {
                    self.next();
                    self.pragma()?;
                }
                Token::Word(".file") => {
                    self.next();
                    m.files.push(self.file()?);
                }
                Token::Word(".section") => {
                    self.next();
                    self.section()?;
                }
                Token::Word(".extern" | ".shared" | ".global" | ".const") => {
                    let external = self.eat_word(".extern");
                    if external && self.eat_word(".func") {
                        // Of a function of the driver; a call says which.
                        while !matches!(self.peek(), Token::Punct(b';') | Token::End) {
                            self.next();
                        }
                        self.expect(b';')?;
                        continue;
                    }
                    let v = self.var(external)?;
                    m.vars.push(v);
                }
                Token::Word(w) if w.starts_with('.') => {
                    return Err(Diagnostic::new("P003", at, format!("directive `{w}` is not supported")));
                }
                _ => return self.unexpected("a directive"),
            }
        }
    }

    /// Pragmas say nothing about results.
    fn pragma(&mut self) -> R<()> {
        loop {
            match *self.peek() {
                Token::Str(_) => self.next(),
                _ => return self.unexpected("a string"),
            };
            if !self.eat(b',') {
                return self.expect(b';');
            }
        }
    }

    /// `.file n "name" [, time, size]`.
    fn file(&mut self) -> R<(u64, String)> {
        let number = self.int()?;
        let name = match *self.peek() {
            Token::Str(name) => name.to_owned(),
            _ => return self.unexpected("a string"),
        };
        self.next();
        while self.eat(b',') {
            self.int()?;
        }
        Ok((number, name))
    }

    /// `.loc file line column [, function_name label [+ n]] [, inlined_at file line column]`.
    fn loc(&mut self) -> R<()> {
        let place = |p: &mut Self| Ok([p.int()?, p.int()?, p.int()?]);
        let at = self.at().line;
        let [file, line, column] = place(self)?;
        self.locs.push(ast::Loc { at, file, line, column });
        while self.eat(b',') {
            match self.word("`function_name` or `inlined_at`")? {
                "function_name" => {
                    self.word("a label")?;
                    if self.eat(b'+') {
                        self.int()?;
                    }
                }
                "inlined_at" => _ = place(self)?,
                _ => {
                    self.i -= 1;
                    return self.unexpected("`function_name` or `inlined_at`");
                }
            }
        }
        Ok(())
    }

    /// A debug section: only that its braces close.
    fn section(&mut self) -> R<()> {
        self.word("a section name")?;
        self.expect(b'{')?;
        while !self.eat(b'}') {
            if self.is(b'{') || *self.peek() == Token::End {
                return self.unexpected("`}`");
            }
            self.next();
        }
        Ok(())
    }

    fn space(&mut self) -> R<Space> {
        let at = self.at();
        match self.word("a state space")? {
            ".shared" | ".shared::cta" => Ok(Space::Shared),
            ".global" => Ok(Space::Global),
            ".const" => Ok(Space::Const),
            ".local" => Ok(Space::Local),
            ".param" => Ok(Space::Param),
            w => Err(Diagnostic::new("P003", at, format!("state space `{w}` is not supported"))),
        }
    }

    /// `.space [.align n] .type [.ptr [.space] [.align n]] name [dims] [= init]`, without the end.
    fn var_body(&mut self, external: bool) -> R<Var> {
        let space = self.space()?;
        let (mut align, mut ty, mut vector) = (None, None, 1);
        let at = loop {
            let at = self.at();
            match self.word("a type or name")? {
                ".align" => align = Some(self.u32()?),
                ".v2" => vector = 2,
                ".v4" => vector = 4,
                ".ptr" => {
                    for s in [".global", ".shared", ".const", ".local"] {
                        if self.eat_word(s) {
                            break;
                        }
                    }
                    if self.eat_word(".align") {
                        self.int()?;
                    }
                }
                w if w.starts_with('.') => match type_bytes(&w[1..]) {
                    Some(n) => ty = Some(n),
                    None => {
                        return Err(Diagnostic::new(
                            "P003",
                            at,
                            format!("`{w}` is not a type of a variable"),
                        ));
                    }
                },
                _ => {
                    self.i -= 1;
                    break at;
                }
            }
        };
        let name = self.word("a name")?.to_string();
        let Some(elem) = ty else {
            return Err(Diagnostic::new("P002", at, format!("variable `{name}` has no type")));
        };
        let elem = elem * vector;
        let align = align.unwrap_or(elem);
        if !align.is_power_of_two() {
            return Err(Diagnostic::new("P017", at, format!("alignment {align} is not a power of two")));
        }
        let mut size = u64::from(elem);
        while self.eat(b'[') {
            let n = if self.is(b']') { 0 } else { self.int()? };
            self.expect(b']')?;
            size = size
                .checked_mul(n)
                .filter(|&s| s < 1 << 40)
                .ok_or_else(|| Diagnostic::new("P017", at, "array too large"))?;
        }
        let mut init = Vec::new();
        if self.eat(b'=') {
            let braces = self.eat(b'{');
            loop {
                let negative = self.eat(b'-');
                let bits = match self.next() {
                    Token::Int(n) => {
                        if negative {
                            n.wrapping_neg()
                        } else {
                            n
                        }
                    }
                    Token::F32(n) => u64::from(n),
                    Token::F64(n) => n,
                    _ => return self.unexpected("a number"),
                };
                init.extend_from_slice(&bits.to_le_bytes()[..elem.min(8) as usize]);
                if !(braces && self.eat(b',')) {
                    break;
                }
            }
            if braces {
                self.expect(b'}')?;
            }
            if size == 0 {
                size = init.len() as u64;
            }
            if init.len() as u64 > size {
                return Err(Diagnostic::new("P012", at, format!("more initial values than `{name}` holds")));
            }
        }
        Ok(Var { space, external, name, align, size, init, at })
    }

    fn var(&mut self, external: bool) -> R<Var> {
        let v = self.var_body(external)?;
        self.expect(b';')?;
        Ok(v)
    }

    fn dims(&mut self) -> R<[u32; 3]> {
        let mut d = [self.u32()?, 1, 1];
        for x in &mut d[1..] {
            if !self.eat(b',') {
                break;
            }
            *x = self.u32()?;
        }
        Ok(d)
    }

    fn entry(&mut self) -> R<Entry> {
        let at = self.at();
        let name = self.word("an entry name")?.to_string();
        let mut params = Vec::new();
        if self.eat(b'(') && !self.eat(b')') {
            loop {
                params.push(self.var_body(false)?);
                if !self.eat(b',') {
                    break;
                }
            }
            self.expect(b')')?;
        }
        let mut bounds = Bounds::default();
        while !self.is(b'{') {
            let at = self.at();
            match self.word("a directive or `{`")? {
                ".reqntid" => bounds.reqntid = Some(self.dims()?),
                ".maxntid" => bounds.maxntid = Some(self.dims()?),
                ".minnctapersm" => bounds.minnctapersm = Some(self.u32()?),
                ".maxnreg" => bounds.maxnreg = Some(self.u32()?),
                ".maxclusterrank" => bounds.most_ctas = Some(self.u32()?),
                ".explicitcluster" => bounds.explicit_cluster = true,
                ".pragma" => self.pragma()?,
                ".reqnctapercluster" => bounds.cluster = Some(self.dims()?),
                w => return Err(Diagnostic::new("P003", at, format!("directive `{w}` is not supported"))),
            }
        }
        let body = self.body()?;
        let locs = std::mem::take(&mut self.locs);
        Ok(Entry { name, params, bounds, body, locs, at })
    }

    fn body(&mut self) -> R<Vec<Stmt>> {
        self.expect(b'{')?;
        let (mut out, mut depth) = (Vec::new(), 0);
        loop {
            if self.eat(b'}') {
                if depth == 0 {
                    return Ok(out);
                }
                depth -= 1;
                out.push(Stmt::Close);
            } else if self.eat(b'{') {
                depth += 1;
                if depth > 100 {
                    return Err(Diagnostic::new("P002", self.at(), "scopes nested too deeply"));
                }
                out.push(Stmt::Open);
            } else if *self.peek() == Token::End {
                return self.unexpected("`}`");
            } else if let Err(e) = self.stmt(&mut out) {
                self.errors.push(e);
                if self.errors.len() >= 100 {
                    return Ok(out);
                }
                while !matches!(self.peek(), Token::Punct(b';' | b'}') | Token::End) {
                    self.next();
                }
                self.eat(b';');
            }
        }
    }

    fn stmt(&mut self, out: &mut Vec<Stmt>) -> R<()> {
        let at = self.at();
        match *self.peek() {
            Token::Word(".reg") => {
                self.next();
                let ty = self.word("a register type")?;
                let Some(ty) = ty.strip_prefix('.').filter(|t| *t == "pred" || type_bytes(t).is_some())
                else {
                    return Err(Diagnostic::new(
                        "P003",
                        at,
                        format!("register type `{ty}` is not supported"),
                    ));
                };
                loop {
                    let at = self.at();
                    let name = self.word("a register name")?.to_string();
                    let mut count = None;
                    if self.eat(b'<') {
                        count = Some(self.u32()?);
                        self.expect(b'>')?;
                    }
                    out.push(Stmt::Reg(RegDecl { ty: ty.to_string(), name, count, at }));
                    if !self.eat(b',') {
                        break;
                    }
                }
                self.expect(b';')
            }
            Token::Word(".shared" | ".local" | ".global" | ".const") => {
                let v = self.var(false)?;
                out.push(Stmt::Var(v));
                Ok(())
            }
            Token::Word(".pragma") => {
                self.next();
                self.pragma()
            }
            Token::Word(".loc") => {
                self.next();
                self.loc()
            }
            Token::Word(".branchtargets") => {
                self.next();
                let mut names = Vec::new();
                loop {
                    names.push(self.word("a label")?.to_string());
                    if !self.eat(b',') {
                        break;
                    }
                }
                out.push(Stmt::Targets(names, at));
                self.expect(b';')
            }
            Token::Word(w) if w.starts_with('.') => {
                Err(Diagnostic::new("P003", at, format!("directive `{w}` is not supported")))
            }
            Token::Word(w) if self.toks.get(self.i + 1).is_some_and(|t| t.token == Token::Punct(b':')) => {
                self.next();
                self.next();
                out.push(Stmt::Label(w.to_string(), at));
                Ok(())
            }
            _ => {
                let i = self.inst()?;
                out.push(Stmt::Inst(Box::new(i)));
                Ok(())
            }
        }
    }

    fn inst(&mut self) -> R<Inst> {
        let first = self.toks[self.i].span.0;
        let mut guard = None;
        if self.eat(b'@') {
            let negated = self.eat(b'!');
            guard = Some((self.word("a predicate")?.to_string(), negated));
        }
        let at = self.at();
        let opcode = self.word("an instruction")?.to_string();
        let mut operands = Vec::new();
        while !self.is(b';') {
            if !operands.is_empty() {
                self.expect(b',')?;
            }
            // Results and arguments of a call.
            if self.eat(b'(') {
                while !self.eat(b')') {
                    operands.push(self.operand(0)?);
                    if !self.is(b')') {
                        self.expect(b',')?;
                    }
                }
                continue;
            }
            operands.push(self.operand(0)?);
        }
        let last = self.toks[self.i].span.0;
        self.expect(b';')?;
        let text = self.text[first..last].split_whitespace().collect::<Vec<_>>().join(" ");
        Ok(Inst { guard, opcode, operands, at, text })
    }

    fn operand(&mut self, depth: u32) -> R<Operand> {
        let at = self.at();
        if depth > 2 {
            return Err(Diagnostic::new("P002", at, "operands nested too deeply"));
        }
        let first = match *self.peek() {
            Token::Punct(b'!') => {
                self.next();
                return Ok(Operand::Not(Box::new(self.operand(depth + 1)?)));
            }
            Token::Punct(b'{') => return Ok(Operand::Vector(self.vector(depth)?)),
            Token::Punct(b'[') => return self.memory(depth),
            Token::Punct(b'-') => {
                self.next();
                return match self.next() {
                    Token::Int(n) => Ok(Operand::Int(n.wrapping_neg())),
                    Token::Decimal(t) => self.decimal(t, at, true),
                    _ => self.unexpected("a number"),
                };
            }
            Token::Int(n) => {
                self.next();
                Operand::Int(n)
            }
            Token::F32(n) => {
                self.next();
                Operand::F32(n)
            }
            Token::F64(n) => {
                self.next();
                Operand::F64(n)
            }
            Token::Decimal(t) => {
                self.next();
                return self.decimal(t, at, false);
            }
            Token::Word("_") => {
                self.next();
                Operand::Sink
            }
            Token::Word(w) => {
                self.next();
                Operand::Name(w.to_string())
            }
            _ => return self.unexpected("an operand"),
        };
        if self.eat(b'|') {
            return Ok(Operand::Pair(Box::new(first), Box::new(self.operand(depth + 1)?)));
        }
        Ok(first)
    }

    fn decimal(&mut self, t: &str, at: Place, negative: bool) -> R<Operand> {
        let v: f64 = t.parse().map_err(|_| Diagnostic::new("P001", at, format!("number `{t}`")))?;
        Ok(Operand::F64((if negative { -v } else { v }).to_bits()))
    }

    fn vector(&mut self, depth: u32) -> R<Vec<Operand>> {
        self.expect(b'{')?;
        let mut items = Vec::new();
        loop {
            items.push(self.operand(depth + 1)?);
            if !self.eat(b',') {
                break;
            }
        }
        self.expect(b'}')?;
        Ok(items)
    }

    fn memory(&mut self, depth: u32) -> R<Operand> {
        self.expect(b'[')?;
        let (mut base, mut offset, mut coords) = (None, 0i64, None);
        match *self.peek() {
            Token::Word(w) => {
                self.next();
                base = Some(w.to_string());
                if self.eat(b'+') {
                    let negative = self.eat(b'-');
                    let n = self.int()? as i64;
                    offset = if negative { n.wrapping_neg() } else { n };
                } else if self.eat(b'-') {
                    offset = (self.int()? as i64).wrapping_neg();
                }
            }
            _ => offset = self.int()? as i64,
        }
        if self.eat(b',') {
            coords = Some(self.vector(depth)?);
        }
        self.expect(b']')?;
        Ok(Operand::Memory { base, offset, coords })
    }
}
