//! Text → [`Module`]. Total: any text gives a module or an `E00xx` error with its place and what was expected.
//!
//! Driven by the operation table; only `for`, `if`, `agent_switch` and kernels have a syntax of their own.
//! Literals where an operand is expected are input sugar for a `constant` before the op; printed text has none.
//! Values are visible from their definition to the end of their region; a name may be reused where the old value is
//! not visible. A missing final `yield`, `return` or `async.pipeline.yield` without operands is supplied.

use super::attrs::{AttrData, AttrDict, FloatBits};
use super::builder::infer_result_types;
use super::entities::{Attr, Block, Op, Type, Value};
use super::function::Function;
use super::layouts::Layout;
use super::lexer::{Lexer, Token};
use super::module::Module;
use super::opcodes::{Arity, Opcode, Rule};
use super::types::{Dim, Scalar, Shape, Space, TypeData};
use crate::error::{Code, CodegenError, CodegenResult, Loc};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// What the parser accepts at most.
#[derive(Copy, Clone, Debug)]
pub struct ParseLimits {
    /// Ops in a module. Default 1 000 000.
    pub max_ops: usize,
    /// Nested regions, arrays and calls. Default 64.
    pub max_nesting: usize,
    /// Bytes of text. Default 64 MiB.
    pub max_bytes: usize,
}

impl Default for ParseLimits {
    fn default() -> Self {
        ParseLimits { max_ops: 1_000_000, max_nesting: 64, max_bytes: 64 << 20 }
    }
}

/// Parses a module with the default limits.
///
/// # Errors
/// The first `E00xx` error.
pub fn parse_module(src: &str) -> CodegenResult<Module> {
    parse_module_with(src, &ParseLimits::default())
}

/// Parses a module.
///
/// # Errors
/// The first `E00xx` error.
pub fn parse_module_with(src: &str, limits: &ParseLimits) -> CodegenResult<Module> {
    if src.len() > limits.max_bytes {
        let m =
            format!("{} bytes of text, more than the limit `max-bytes` of {}", src.len(), limits.max_bytes);
        return Err(CodegenError::new(Code::E0010, Loc::NONE, m));
    }
    let mut p = Parser {
        lx: Lexer::new(src),
        limits,
        ops: 0,
        depth: 0,
        f: Function::new(""),
        names: FxHashMap::default(),
        scope: Vec::new(),
    };
    let mut module = Module::new();
    loop {
        let (t, loc) = p.lx.peek()?;
        match (t, p.lx.text(loc)) {
            (Token::End, _) => return Ok(module),
            (Token::Ident, "target") if module.functions.is_empty() && module.target.is_none() => {
                p.lx.next()?;
                module.target = Some(p.string()?);
            }
            (Token::Ident, "kernel" | "func") => {
                let f = p.kernel()?;
                if module.functions.iter().any(|g| g.name == f.name) {
                    return Err(CodegenError::new(
                        Code::E0009,
                        f.loc,
                        format!("kernel `@{}` is defined twice", f.name),
                    ));
                }
                module.functions.push(f);
            }
            _ => return p.expected(loc, "`kernel`"),
        }
    }
}

struct Parser<'a, 'l> {
    lx: Lexer<'a>,
    limits: &'l ParseLimits,
    ops: usize,
    depth: usize,
    f: Function,
    names: FxHashMap<&'a str, Value>,
    scope: Vec<&'a str>,
}

/// An operand as written: a value or a literal whose type is not known yet.
#[derive(Copy, Clone)]
enum Written {
    Value(Value),
    Int(i64, Loc),
    Float(f64, Loc),
}

type ResultNames<'a> = SmallVec<[(&'a str, Loc); 2]>;

impl<'a> Parser<'a, '_> {
    fn expected<T>(&self, loc: Loc, what: &str) -> CodegenResult<T> {
        let text = self.lx.text(loc);
        let got = if text.is_empty() {
            "the end of the text".to_string()
        } else {
            format!("`{}`", text.escape_debug())
        };
        Err(CodegenError::new(Code::E0002, loc, format!("expected {what}, found {got}")))
    }

    fn eat(&mut self, c: u8) -> CodegenResult<bool> {
        if self.lx.peek()?.0 == Token::Punct(c) {
            self.lx.next()?;
            return Ok(true);
        }
        Ok(false)
    }

    fn expect(&mut self, c: u8) -> CodegenResult<()> {
        let (t, loc) = self.lx.next()?;
        if t == Token::Punct(c) { Ok(()) } else { self.expected(loc, &format!("`{}`", c as char)) }
    }

    fn at_word(&mut self, word: &str) -> CodegenResult<bool> {
        let (t, loc) = self.lx.peek()?;
        Ok(t == Token::Ident && self.lx.text(loc) == word)
    }

    fn eat_word(&mut self, word: &str) -> CodegenResult<bool> {
        let yes = self.at_word(word)?;
        if yes {
            self.lx.next()?;
        }
        Ok(yes)
    }

    fn expect_word(&mut self, word: &str) -> CodegenResult<()> {
        if self.eat_word(word)? {
            return Ok(());
        }
        let loc = self.lx.peek()?.1;
        self.expected(loc, &format!("`{word}`"))
    }

    fn ident(&mut self, what: &str) -> CodegenResult<(&'a str, Loc)> {
        let (t, loc) = self.lx.next()?;
        if t == Token::Ident { Ok((self.lx.text(loc), loc)) } else { self.expected(loc, what) }
    }

    fn string(&mut self) -> CodegenResult<String> {
        let (t, loc) = self.lx.next()?;
        if t != Token::Str {
            return self.expected(loc, "a string");
        }
        let text = self.lx.text(loc);
        let mut out = String::new();
        let mut chars = text[1..text.len() - 1].chars();
        while let Some(c) = chars.next() {
            if c != '\\' {
                out.push(c);
                continue;
            }
            match chars.next() {
                Some('n') => out.push('\n'),
                Some('t') => out.push('\t'),
                Some(c @ ('"' | '\\')) => out.push(c),
                _ => {
                    return Err(CodegenError::new(
                        Code::E0003,
                        loc,
                        "unknown escape in string; known are \\n \\t \\\" \\\\",
                    ));
                }
            }
        }
        Ok(out)
    }

    fn value_token(&mut self) -> CodegenResult<(&'a str, Loc)> {
        let (t, loc) = self.lx.next()?;
        if t == Token::Value {
            Ok((&self.lx.text(loc)[1..], loc))
        } else {
            self.expected(loc, "a value `%name`")
        }
    }

    fn lookup(&self, name: &str, loc: Loc) -> CodegenResult<Value> {
        match self.names.get(name) {
            Some(&v) => Ok(v),
            None => Err(CodegenError::new(Code::E0005, loc, format!("`%{name}` is not defined here"))),
        }
    }

    fn define(&mut self, name: &'a str, loc: Loc, v: Value) -> CodegenResult<()> {
        if self.names.insert(name, v).is_some() {
            return Err(CodegenError::new(Code::E0005, loc, format!("`%{name}` is already defined here")));
        }
        self.scope.push(name);
        if !name.bytes().all(|b| b.is_ascii_digit()) {
            self.f.set_value_name(v, name);
        }
        Ok(())
    }

    fn leave_scope(&mut self, mark: usize) {
        for name in self.scope.drain(mark..) {
            self.names.remove(name);
        }
    }

    fn enter(&mut self, loc: Loc) -> CodegenResult<()> {
        self.depth += 1;
        if self.depth > self.limits.max_nesting {
            let m = format!("nested deeper than the limit `max-nesting` of {}", self.limits.max_nesting);
            return Err(CodegenError::new(Code::E0008, loc, m));
        }
        Ok(())
    }

    // ---- types

    fn ty(&mut self) -> CodegenResult<Type> {
        let (word, loc) = self.lx.word();
        let bad = |what: String| CodegenError::new(Code::E0006, loc, what);
        let data = match word {
            "mem_token" => TypeData::MemToken,
            "async_token" => TypeData::AsyncToken,
            "pipe_producer" | "pipe_consumer" | "pipe_iter" => {
                self.expect(b'<')?;
                let (t, nloc) = self.lx.next()?;
                let Token::Int(n @ 1..=65536) = t else {
                    return self.expected(nloc, "a slot count from 1 to 65536");
                };
                self.expect(b'>')?;
                match word {
                    "pipe_producer" => TypeData::PipeProducer(n as u32),
                    "pipe_consumer" => TypeData::PipeConsumer(n as u32),
                    _ => TypeData::PipeIter(n as u32),
                }
            }
            "ptr" => {
                self.expect(b'<')?;
                let (e, eloc) = self.ident("an element type")?;
                let elem = Scalar::from_name(e).ok_or_else(|| {
                    CodegenError::new(Code::E0006, eloc, format!("unknown element type `{e}`"))
                })?;
                self.expect(b',')?;
                let space = self.space()?;
                self.expect(b'>')?;
                TypeData::Ptr { elem, space }
            }
            "view" => {
                self.expect(b'<')?;
                let space = self.space()?;
                self.expect(b',')?;
                let (dims, elem) = self.dims()?;
                self.expect(b'>')?;
                TypeData::View { space, dims, elem }
            }
            "tma_desc" => {
                self.expect(b'<')?;
                let (dims, elem) = self.static_dims()?;
                self.expect(b'>')?;
                TypeData::TmaDesc { dims, elem }
            }
            "tile" => {
                self.expect(b'<')?;
                let (dims, elem) = self.static_dims()?;
                let (mut space, mut layout) = (None, None);
                if self.eat(b',')? {
                    space = Some(self.space()?);
                    if self.eat(b',')? {
                        let (l, lloc) = self.ident("a layout name")?;
                        layout = Some(Layout::from_name(l).ok_or_else(|| {
                            CodegenError::new(Code::E0006, lloc, format!("unknown layout `{l}`"))
                        })?);
                    }
                }
                self.expect(b'>')?;
                TypeData::Tile { dims, elem, space, layout }
            }
            _ => match Scalar::from_name(word) {
                Some(s) => TypeData::Scalar(s),
                None if word.is_empty() => {
                    let loc = self.lx.peek()?.1;
                    return self.expected(loc, "a type");
                }
                None => return Err(bad(format!("unknown type `{word}`"))),
            },
        };
        Ok(self.f.intern_type(data))
    }

    fn space(&mut self) -> CodegenResult<Space> {
        let (s, loc) = self.ident("a memory space")?;
        Space::from_name(s).ok_or_else(|| {
            CodegenError::new(
                Code::E0006,
                loc,
                format!("unknown memory space `{s}`; known are gmem, rmem, smem, tmem"),
            )
        })
    }

    fn dims(&mut self) -> CodegenResult<(SmallVec<[Dim; 4]>, Scalar)> {
        let (word, loc) = self.lx.word();
        let bad = |why: &str| CodegenError::new(Code::E0006, loc, format!("`{word}` {why}"));
        let mut rest = word;
        let mut dims = SmallVec::new();
        loop {
            if let Some(s) = Scalar::from_name(rest) {
                if dims.is_empty() {
                    return Err(bad("needs at least one extent"));
                }
                return Ok((dims, s));
            }
            let Some(x) = rest.find('x') else {
                return Err(bad("must look like 128x64xf16: extents and an element type"));
            };
            let (d, tail) = (&rest[..x], &rest[x + 1..]);
            dims.push(if d == "?" {
                Dim::Dynamic
            } else {
                match d.parse::<u32>() {
                    Ok(n) if d.bytes().all(|b| b.is_ascii_digit()) && (d == "0" || !d.starts_with('0')) => {
                        Dim::Static(n)
                    }
                    _ => return Err(bad("has a malformed extent or element type")),
                }
            });
            if dims.len() > 8 {
                return Err(bad("has more than 8 extents"));
            }
            rest = tail;
        }
    }

    fn static_dims(&mut self) -> CodegenResult<(Shape, Scalar)> {
        let start = self.lx.peek()?.1;
        let (dims, elem) = self.dims()?;
        let dims = dims
            .into_iter()
            .map(|d| match d {
                Dim::Static(n) => Ok(n),
                Dim::Dynamic => Err(CodegenError::new(
                    Code::E0006,
                    start,
                    "all dimensions must be positive constants, got ?",
                )),
            })
            .collect::<CodegenResult<_>>()?;
        Ok((dims, elem))
    }

    // ---- attributes

    fn attr_value(&mut self) -> CodegenResult<Attr> {
        let (t, loc) = self.lx.peek()?;
        self.enter(loc)?;
        let data = match t {
            Token::Int(v) => {
                self.lx.next()?;
                AttrData::Int(v, self.attr_type()?)
            }
            Token::Float(v) => {
                self.lx.next()?;
                AttrData::Float(FloatBits::new(v), self.attr_type()?)
            }
            Token::Punct(b'-') => {
                self.lx.next()?;
                self.expect_word("inf")?;
                AttrData::Float(FloatBits::new(f64::NEG_INFINITY), self.attr_type()?)
            }
            Token::Str => AttrData::Str(self.string()?),
            Token::Punct(b'[') => {
                self.lx.next()?;
                AttrData::Array(self.attr_list(b']')?)
            }
            Token::Ident => {
                let word = self.lx.text(loc);
                match word {
                    "inf" | "nan" => {
                        self.lx.next()?;
                        let v = if word == "inf" { f64::INFINITY } else { f64::NAN };
                        AttrData::Float(FloatBits::new(v), self.attr_type()?)
                    }
                    "tile" | "view" | "ptr" | "tma_desc" | "pipe_iter" | "pipe_producer"
                    | "pipe_consumer" | "mem_token" | "async_token" => AttrData::Type(self.ty()?),
                    _ => {
                        self.lx.next()?;
                        let s = self.f.intern_symbol(word);
                        if self.eat(b'(')? {
                            AttrData::Call(s, self.attr_list(b')')?)
                        } else {
                            AttrData::Name(s)
                        }
                    }
                }
            }
            _ => return self.expected(loc, "an attribute value"),
        };
        self.depth -= 1;
        Ok(self.f.intern_attr(data))
    }

    fn attr_type(&mut self) -> CodegenResult<Option<Scalar>> {
        if !self.eat(b':')? {
            return Ok(None);
        }
        let (w, loc) = self.lx.word();
        match Scalar::from_name(w) {
            Some(s) => Ok(Some(s)),
            None if matches!(w, "u8" | "u16" | "u32") => Ok(Some(if w == "u8" {
                Scalar::I8
            } else if w == "u16" {
                Scalar::I16
            } else {
                Scalar::I32
            })),
            None => Err(CodegenError::new(Code::E0006, loc, format!("unknown scalar type `{w}`"))),
        }
    }

    fn attr_list(&mut self, close: u8) -> CodegenResult<SmallVec<[Attr; 4]>> {
        let mut list = SmallVec::new();
        if self.eat(close)? {
            return Ok(list);
        }
        loop {
            list.push(self.attr_value()?);
            if self.eat(close)? {
                return Ok(list);
            }
            self.expect(b',')?;
        }
    }

    /// Entries up to the closing brace.
    fn dict(&mut self) -> CodegenResult<AttrDict> {
        let mut dict = AttrDict::default();
        if self.eat(b'}')? {
            return Ok(dict);
        }
        loop {
            let (key, loc) = self.ident("an attribute name")?;
            let sym = self.f.intern_symbol(key);
            if dict.get(sym).is_some() {
                return Err(CodegenError::new(Code::E0009, loc, format!("attribute `{key}` is given twice")));
            }
            let value = if self.eat(b'=')? { self.attr_value()? } else { self.f.intern_attr(AttrData::Unit) };
            dict.set(sym, value);
            if self.eat(b'}')? {
                return Ok(dict);
            }
            self.expect(b',')?;
        }
    }

    /// `<{…}>`, if it is there.
    fn inherent(&mut self) -> CodegenResult<AttrDict> {
        if !self.eat(b'<')? {
            return Ok(AttrDict::default());
        }
        self.expect(b'{')?;
        let d = self.dict()?;
        self.expect(b'>')?;
        Ok(d)
    }

    // ---- kernels and regions

    fn kernel(&mut self) -> CodegenResult<Function> {
        let start = self.lx.next()?.1;
        let (t, loc) = self.lx.next()?;
        if t != Token::Symbol {
            return self.expected(loc, "a kernel name `@name`");
        }
        let name = &self.lx.text(loc)[1..];
        self.f = Function::new(name);
        self.f.loc = loc;
        self.names.clear();
        self.scope.clear();
        self.expect(b'(')?;
        let entry = self.f.entry();
        if !self.eat(b')')? {
            loop {
                let (n, nloc) = self.value_token()?;
                self.expect(b':')?;
                let ty = self.ty()?;
                let v = self.f.add_block_param(entry, ty);
                self.define(n, nloc, v)?;
                if self.eat(b')')? {
                    break;
                }
                self.expect(b',')?;
            }
        }
        self.f.attrs = self.inherent()?;
        self.region(entry, Opcode::Return)?;
        let _ = start;
        Ok(std::mem::replace(&mut self.f, Function::new("")))
    }

    /// `{ ops }`; supplies a missing terminator without operands.
    fn region(&mut self, block: Block, terminator: Opcode) -> CodegenResult<()> {
        let open = self.lx.peek()?.1;
        self.expect(b'{')?;
        self.enter(open)?;
        let mark = self.scope.len();
        loop {
            let (t, loc) = self.lx.peek()?;
            if t == Token::Punct(b'}') {
                self.lx.next()?;
                break;
            }
            if t == Token::End {
                return self.expected(loc, "`}`");
            }
            self.op(block)?;
        }
        if !self.f.last_op(block).is_some_and(|o| self.f.opcode(o).is_terminator()) {
            let loc = Loc::new(self.lx.last_end.saturating_sub(1), self.lx.last_end);
            let op = self.f.make_op(terminator, &[], &vec![0; terminator.def().operands.len()], &[], loc);
            self.f.append_op(block, op);
        }
        self.leave_scope(mark);
        self.depth -= 1;
        Ok(())
    }

    fn op(&mut self, block: Block) -> CodegenResult<()> {
        self.ops += 1;
        let start = self.lx.peek()?.1;
        if self.ops > self.limits.max_ops {
            return Err(CodegenError::new(
                Code::E0010,
                start,
                format!("more ops than the limit `max-ops` of {}", self.limits.max_ops),
            ));
        }
        let mut results: ResultNames<'a> = SmallVec::new();
        if start.is_some() && self.lx.peek()?.0 == Token::Value {
            loop {
                results.push(self.value_token()?);
                if self.eat(b'=')? {
                    break;
                }
                self.expect(b',')?;
            }
        }
        let (name, name_loc) = self.ident("an operation name")?;
        let Some(opcode) = Opcode::from_name(name) else {
            return Err(CodegenError::new(Code::E0004, name_loc, format!("unknown operation `{name}`")));
        };
        match opcode {
            Opcode::For => self.for_op(block, start, results),
            Opcode::If => self.if_op(block, start, results),
            Opcode::AsyncPipelineAgentSwitch => self.agent_switch(block, start),
            _ => self.plain_op(block, start, results, opcode),
        }
    }

    fn written(&mut self) -> CodegenResult<Written> {
        let (t, loc) = self.lx.next()?;
        match t {
            Token::Value => self.lookup(&self.lx.text(loc)[1..], loc).map(Written::Value),
            Token::Int(v) => Ok(Written::Int(v, loc)),
            Token::Float(v) => Ok(Written::Float(v, loc)),
            _ => self.expected(loc, "a value `%name` or a number"),
        }
    }

    fn starts_operand(&mut self) -> CodegenResult<bool> {
        Ok(matches!(self.lx.peek()?.0, Token::Value | Token::Int(_) | Token::Float(_)))
    }

    /// Turns a literal into a `constant` of type `ty`.
    fn materialise(&mut self, block: Block, w: Written, ty: Option<Type>) -> CodegenResult<Value> {
        let (data, loc) = match w {
            Written::Value(v) => return Ok(v),
            Written::Int(v, loc) => (AttrData::Int(v, None), loc),
            Written::Float(v, loc) => (AttrData::Float(FloatBits::new(v), None), loc),
        };
        let Some(ty) = ty else {
            return Err(CodegenError::new(
                Code::E0007,
                loc,
                "the type of this literal cannot be inferred; use a `constant`",
            ));
        };
        let op = self.f.make_op(Opcode::Constant, &[], &[], &[ty], loc);
        self.f.set_attr(op, super::keys::VALUE, data);
        self.f.append_op(block, op);
        match self.f.result(op) {
            Some(v) => Ok(v),
            None => Err(CodegenError::new(Code::E0007, loc, "constant without result")),
        }
    }

    fn plain_op(
        &mut self,
        block: Block,
        start: Loc,
        results: ResultNames<'a>,
        opcode: Opcode,
    ) -> CodegenResult<()> {
        let def = opcode.def();
        let mut written: SmallVec<[(Written, bool); 8]> = SmallVec::new();
        let mut segments: SmallVec<[u32; 8]> = SmallVec::new();
        let mut first = true;
        for seg in def.operands {
            let mut n = 0;
            if seg.bracket {
                if self.eat(b'[')? {
                    loop {
                        written.push((self.written()?, true));
                        n += 1;
                        if self.eat(b']')? {
                            break;
                        }
                        self.expect(b',')?;
                    }
                }
                segments.push(n);
                continue;
            }
            let present = match seg.arity {
                Arity::One => {
                    if !first {
                        self.expect(b',')?;
                    }
                    true
                }
                _ if first => self.starts_operand()?,
                _ => self.lx.peek()?.0 == Token::Punct(b','),
            };
            if present {
                if seg.arity != Arity::One && !first {
                    if let Some(k) = seg.keyword {
                        self.expect(b',')?;
                        self.expect_word(k)?;
                        self.expect(b'(')?;
                        written.push((self.written()?, false));
                        self.expect(b')')?;
                        segments.push(1);
                        continue;
                    }
                    // An optional segment gives way to a keyword segment behind it.
                    let save = self.lx.peek()?;
                    self.expect(b',')?;
                    if !self.starts_operand()? {
                        let later = def
                            .operands
                            .iter()
                            .position(|s| s.keyword.is_some_and(|k| self.at_word(k).unwrap_or(false)));
                        let Some(later) = later else { return self.expected(save.1, "an operand after `,`") };
                        while segments.len() < later {
                            segments.push(0);
                        }
                        self.lx.next()?;
                        self.expect(b'(')?;
                        written.push((self.written()?, false));
                        self.expect(b')')?;
                        segments.push(1);
                        break;
                    }
                }
                loop {
                    written.push((self.written()?, false));
                    n += 1;
                    if seg.arity != Arity::Many || !self.eat(b',')? {
                        break;
                    }
                }
            }
            first = false;
            segments.push(n);
        }
        while segments.len() < def.operands.len() {
            segments.push(0);
        }
        let inherent = self.inherent()?;
        let discardable = if self.eat(b'{')? { self.dict()? } else { AttrDict::default() };
        let mut types: SmallVec<[Type; 2]> = SmallVec::new();
        let typed = self.eat(b':')?;
        if typed {
            loop {
                types.push(self.ty()?);
                if !self.eat(b',')? {
                    break;
                }
            }
        }
        // Literal operands: indices are i32, operands of same-typed ops take the type of their siblings.
        let sibling = written.iter().find_map(|(w, _)| match w {
            Written::Value(v) => Some(self.f.value_type(*v)),
            _ => None,
        });
        let sibling = sibling.or_else(|| types.first().copied().filter(|_| def.rule == Rule::Same));
        let mut operands: SmallVec<[Value; 8]> = SmallVec::new();
        for (w, index) in written {
            let ty = if index {
                Some(self.f.scalar(Scalar::I32))
            } else if matches!(def.rule, Rule::Same | Rule::Compare) {
                sibling
            } else {
                None
            };
            operands.push(self.materialise(block, w, ty)?);
        }
        let loc = Loc::new(start.start as usize, self.lx.last_end);
        if !typed {
            match infer_result_types(&mut self.f, opcode, &operands) {
                Some(t) if t.len() == results.len() => types.extend(t),
                _ if results.is_empty() => {}
                _ => {
                    let m = format!("the result type of `{}` must be written: `: type`", def.name);
                    return Err(CodegenError::new(Code::E0007, loc, m));
                }
            }
        }
        if types.len() != results.len() {
            let m = format!("{} results are named, but {} types are given", results.len(), types.len());
            return Err(CodegenError::new(Code::E0007, loc, m));
        }
        let op = self.f.make_op(opcode, &operands, &segments, &types, loc);
        *self.f.inherent_mut(op) = inherent;
        *self.f.discardable_mut(op) = discardable;
        self.f.append_op(block, op);
        self.name_results(op, results)
    }

    fn name_results(&mut self, op: Op, names: ResultNames<'a>) -> CodegenResult<()> {
        for (i, (name, loc)) in names.into_iter().enumerate() {
            let v = self.f.results(op)[i];
            self.define(name, loc, v)?;
        }
        Ok(())
    }

    fn for_op(&mut self, block: Block, start: Loc, results: ResultNames<'a>) -> CodegenResult<()> {
        let (iv, iv_loc) = self.value_token()?;
        self.expect(b'=')?;
        let lo = self.written()?;
        self.expect_word("to")?;
        let hi = self.written()?;
        self.expect_word("step")?;
        let step = self.written()?;
        let ty = [lo, hi, step].iter().find_map(|w| match w {
            Written::Value(v) => Some(self.f.value_type(*v)),
            _ => None,
        });
        let ty = ty.unwrap_or_else(|| self.f.scalar(Scalar::I32));
        let mut operands: SmallVec<[Value; 8]> = SmallVec::new();
        for w in [lo, hi, step] {
            operands.push(self.materialise(block, w, Some(ty))?);
        }
        let mut args: SmallVec<[(&'a str, Loc, Type); 4]> = SmallVec::new();
        if self.eat_word("iter")? {
            self.expect(b'(')?;
            loop {
                let (n, nloc) = self.value_token()?;
                self.expect(b'=')?;
                let init = self.written()?;
                self.expect(b':')?;
                let ty = self.ty()?;
                let init = self.materialise(block, init, Some(ty))?;
                operands.push(init);
                args.push((n, nloc, ty));
                if self.eat(b')')? {
                    break;
                }
                self.expect(b',')?;
            }
        }
        let inherent = self.inherent()?;
        let discardable = self.keyed_discardable()?;
        let loc = Loc::new(start.start as usize, self.lx.last_end);
        if results.len() > args.len() || (!results.is_empty() && results.len() != args.len()) {
            return Err(CodegenError::new(
                Code::E0007,
                loc,
                format!("{} results are named, but the loop carries {}", results.len(), args.len()),
            ));
        }
        let types: SmallVec<[Type; 4]> = args.iter().map(|a| a.2).collect();
        let iv_ty = self.f.value_type(operands[0]);
        let op = self.f.make_op(Opcode::For, &operands, &[1, 1, 1, args.len() as u32], &types, loc);
        *self.f.inherent_mut(op) = inherent;
        *self.f.discardable_mut(op) = discardable;
        self.f.append_op(block, op);
        let body = self.f.add_region(op);
        let mark = self.scope.len();
        let v = self.f.add_block_param(body, iv_ty);
        self.define(iv, iv_loc, v)?;
        for (n, nloc, ty) in args {
            let v = self.f.add_block_param(body, ty);
            self.define(n, nloc, v)?;
        }
        self.region(body, Opcode::Yield)?;
        self.leave_scope(mark);
        self.name_results(op, results)
    }

    fn keyed_discardable(&mut self) -> CodegenResult<AttrDict> {
        if !self.eat_word("attributes")? {
            return Ok(AttrDict::default());
        }
        self.expect(b'{')?;
        self.dict()
    }

    fn if_op(&mut self, block: Block, start: Loc, results: ResultNames<'a>) -> CodegenResult<()> {
        let (name, nloc) = self.value_token()?;
        let cond = self.lookup(name, nloc)?;
        let inherent = self.inherent()?;
        let discardable = self.keyed_discardable()?;
        let mut types: SmallVec<[Type; 2]> = SmallVec::new();
        if self.eat(b':')? {
            loop {
                types.push(self.ty()?);
                if !self.eat(b',')? {
                    break;
                }
            }
        }
        let loc = Loc::new(start.start as usize, self.lx.last_end);
        if types.len() != results.len() {
            return Err(CodegenError::new(
                Code::E0007,
                loc,
                format!("{} results are named, but {} types are given", results.len(), types.len()),
            ));
        }
        let op = self.f.make_op(Opcode::If, &[cond], &[1], &types, loc);
        *self.f.inherent_mut(op) = inherent;
        *self.f.discardable_mut(op) = discardable;
        self.f.append_op(block, op);
        let then = self.f.add_region(op);
        self.region(then, Opcode::Yield)?;
        let otherwise = self.f.add_region(op);
        if self.eat_word("else")? {
            self.region(otherwise, Opcode::Yield)?;
        } else {
            let y = self.f.make_op(Opcode::Yield, &[], &[0], &[], loc);
            self.f.append_op(otherwise, y);
        }
        self.name_results(op, results)
    }

    fn agent_switch(&mut self, block: Block, start: Loc) -> CodegenResult<()> {
        let inherent = self.inherent()?;
        let loc = Loc::new(start.start as usize, self.lx.last_end);
        let op = self.f.make_op(Opcode::AsyncPipelineAgentSwitch, &[], &[], &[], loc);
        *self.f.inherent_mut(op) = inherent;
        self.f.append_op(block, op);
        self.expect(b'{')?;
        let mut n = 0;
        while !self.eat(b'}')? {
            self.expect_word("agent")?;
            let (t, nloc) = self.lx.next()?;
            if t != Token::Int(n) {
                return self.expected(nloc, &format!("agent number {n}"));
            }
            let body = self.f.add_region(op);
            self.region(body, Opcode::AsyncPipelineYield)?;
            n += 1;
        }
        Ok(())
    }
}
