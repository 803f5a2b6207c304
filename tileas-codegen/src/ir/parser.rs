//! Parser of the text form.
//!
//! In: text. Out: a [`Module`] or the first error, with its byte range, the offending text and what was expected.
//! Structure, names and result types are checked here; all other typing is the verifier's.
//!
//! Sugar that never prints: `func` for `kernel`; number literals as operands (a `constant` is put before the op);
//! result types that follow from the operands; a missing terminator; a missing empty `else`.
//!
//! Guarantee: total, no panic. Recursion is bounded by [`ParseLimits::max_nesting`]. Cost: linear in the text.

use super::attrs::{AttrData, AttrDict, FloatBits};
use super::entities::{Attr, Block, Op, Type, Value};
use super::function::Function;
use super::layouts::Layout;
use super::lexer::{Lexer, Tok, Token, quote, unescape};
use super::module::Module;
use super::opcodes::{Arity, OpDef, Opcode, Results, Rule, Segment, keys};
use super::printer::literal_attr;
use super::types::{Dim, Scalar, Space, TypeData};
use crate::error::{Code, CodegenError, CodegenResult, Loc};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

/// What a text may cost; beyond a limit parsing ends with E0008 (nesting) or E0010 (the others).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseLimits {
    /// Ops of the whole module, those the parser adds included. Default 1 000 000.
    pub max_ops: usize,
    /// Depth of regions, and of arrays and calls in attributes. Default 64; values above 256 count as 256, since
    /// this is what bounds the stack.
    pub max_nesting: usize,
    /// Bytes of text. Default 64 MiB.
    pub max_bytes: usize,
    /// Elements of one tile type. Default: none beyond what keeps sizes in 64 bits (2^48).
    pub max_tile_elements: Option<u64>,
}

impl Default for ParseLimits {
    fn default() -> ParseLimits {
        ParseLimits { max_ops: 1_000_000, max_nesting: 64, max_bytes: 64 << 20, max_tile_elements: None }
    }
}

/// Depth no setting exceeds: parser, printer and walks recurse once per level.
const DEEPEST: usize = 256;
/// Rank no type exceeds.
const MAX_RANK: usize = 16;
/// Elements no tile exceeds, so that sizes in bits fit 64 bits.
const MAX_ELEMENTS: u64 = 1 << 48;
/// Entries of one dictionary; keys are looked up linearly.
const MAX_ATTRS: usize = 256;

/// Parses a module with default limits.
pub fn parse_module(text: &str) -> CodegenResult<Module> {
    parse_module_with(text, &ParseLimits::default())
}

/// Parses a module.
pub fn parse_module_with(text: &str, limits: &ParseLimits) -> CodegenResult<Module> {
    if text.len() > limits.max_bytes || text.len() >= u32::MAX as usize {
        let max = limits.max_bytes.min(u32::MAX as usize - 1);
        let message = format!("text of {} bytes, expected at most {max}", text.len());
        return Err(CodegenError::new(Code::E0010, Loc::new(max, text.len()), message));
    }
    let mut lex = Lexer::new(text);
    let tok = lex.next_token()?;
    let mut p = Parser {
        lex,
        tok,
        last_end: 0,
        limits,
        num_ops: 0,
        depth: 0,
        f: Function::new(""),
        names: FxHashMap::default(),
        visible: Vec::new(),
    };
    p.module()
}

type Names<'a> = SmallVec<[(&'a str, Loc); 2]>;
type Types = SmallVec<[Type; 2]>;

/// A number in the text.
#[derive(Copy, Clone)]
enum Number {
    Int(i64),
    Float(f64),
}

impl Number {
    fn attr(self, ty: Option<Scalar>) -> AttrData {
        match self {
            Number::Int(v) => AttrData::Int(v, ty),
            Number::Float(v) => AttrData::Float(FloatBits::new(v), ty),
        }
    }
}

/// An operand as written.
#[derive(Copy, Clone)]
enum Operand {
    Value(Value),
    Literal(Number, Loc),
}

/// Operands as written and how many each segment has.
#[derive(Default)]
struct Operands {
    list: SmallVec<[Operand; 8]>,
    segments: SmallVec<[u32; 7]>,
}

/// What a name stands for in the kernel being read.
struct Named {
    value: Value,
    loc: Loc,
    /// Whether the region that defines it is still open.
    visible: bool,
}

struct Parser<'a, 'l> {
    lex: Lexer<'a>,
    tok: Token<'a>,
    /// End of the token before `tok`.
    last_end: usize,
    limits: &'l ParseLimits,
    num_ops: usize,
    depth: usize,
    f: Function,
    names: FxHashMap<&'a str, Named>,
    /// Visible names in order of definition; a region's are dropped at its end.
    visible: Vec<&'a str>,
}

// ---- tokens

impl<'a> Parser<'a, '_> {
    fn bump(&mut self) -> CodegenResult<()> {
        self.last_end = self.tok.end;
        self.tok = self.lex.next_token()?;
        Ok(())
    }

    /// E0002 at the current token.
    fn unexpected(&self, wanted: &str) -> CodegenError {
        let found = match self.tok.tok {
            Tok::Eof => "end of text".to_string(),
            _ => quote(self.lex.slice(self.tok.start, self.tok.end)),
        };
        let message = format!("unexpected {found}, expected {wanted}");
        CodegenError::new(Code::E0002, self.tok.loc(), message)
    }

    fn at(&self, punct: &str) -> bool {
        matches!(self.tok.tok, Tok::Punct(p) if p == punct)
    }

    fn eat(&mut self, punct: &str) -> CodegenResult<bool> {
        let found = self.at(punct);
        if found {
            self.bump()?;
        }
        Ok(found)
    }

    fn expect(&mut self, punct: &str) -> CodegenResult<()> {
        if self.eat(punct)? { Ok(()) } else { Err(self.unexpected(&format!("`{punct}`"))) }
    }

    fn at_word(&self, word: &str) -> bool {
        self.tok.tok == Tok::Word(word)
    }

    fn eat_word(&mut self, word: &str) -> CodegenResult<bool> {
        let found = self.at_word(word);
        if found {
            self.bump()?;
        }
        Ok(found)
    }

    fn expect_word(&mut self, word: &str) -> CodegenResult<()> {
        if self.eat_word(word)? { Ok(()) } else { Err(self.unexpected(&format!("`{word}`"))) }
    }

    /// The token after the current one, if it is well-formed.
    fn peek(&self) -> Option<Tok<'a>> {
        let mut ahead = self.lex;
        ahead.next_token().ok().map(|t| t.tok)
    }

    /// `%name` that is being defined.
    fn new_name(&mut self) -> CodegenResult<(&'a str, Loc)> {
        let Tok::Value(name) = self.tok.tok else { return Err(self.unexpected("a value name `%…`")) };
        let loc = self.tok.loc();
        self.bump()?;
        Ok((name, loc))
    }

    /// The number the token stands for.
    fn number_of(tok: Tok<'_>) -> Option<Number> {
        match tok {
            Tok::Int(v) => Some(Number::Int(v)),
            Tok::Float(v) => Some(Number::Float(v)),
            Tok::Word("inf") => Some(Number::Float(f64::INFINITY)),
            Tok::Word("nan") => Some(Number::Float(f64::NAN)),
            _ => None,
        }
    }

    fn too_large(&self, loc: Loc, what: &str, max: u64) -> CodegenError {
        CodegenError::new(Code::E0010, loc, format!("{what}, expected at most {max}"))
    }
}

// ---- types and attributes

impl<'a> Parser<'a, '_> {
    fn bad_type(&self, loc: Loc, text: &str, wanted: &str) -> CodegenError {
        let message = format!("unknown or malformed type {}, expected {wanted}", quote(text));
        CodegenError::new(Code::E0006, loc, message)
    }

    fn ty(&mut self) -> CodegenResult<Type> {
        let data = self.type_data()?;
        Ok(self.f.intern_type(data))
    }

    fn types(&mut self) -> CodegenResult<Types> {
        let mut list = Types::new();
        loop {
            list.push(self.ty()?);
            if !self.eat(",")? {
                return Ok(list);
            }
        }
    }

    /// Whether `word` begins a type; `angle`: a `<` follows.
    fn begins_type(word: &str, angle: bool) -> bool {
        match word {
            "mem_token" | "async_token" => true,
            "tile" | "view" | "ptr" | "tma_desc" | "pipe_producer" | "pipe_consumer" | "pipe_iter" => angle,
            _ => Scalar::from_name(word).is_some(),
        }
    }

    fn type_data(&mut self) -> CodegenResult<TypeData> {
        let Tok::Word(word) = self.tok.tok else { return Err(self.unexpected("a type")) };
        let loc = self.tok.loc();
        self.bump()?;
        if let Some(s) = Scalar::from_name(word) {
            return Ok(TypeData::Scalar(s));
        }
        match word {
            "mem_token" => return Ok(TypeData::MemToken),
            "async_token" => return Ok(TypeData::AsyncToken),
            _ if !Self::begins_type(word, true) => {
                let wanted =
                    "a scalar, `tile<…>`, `view<…>`, `ptr<…>`, `tma_desc<…>`, a token or a pipeline type";
                return Err(self.bad_type(loc, word, wanted));
            }
            _ if !self.at("<") => return Err(self.unexpected("`<`")),
            _ => {}
        }
        // The `<` stays the current token: extents are read from the raw text behind it.
        let data = match word {
            "tile" => {
                let (dims, elem) = self.static_dims()?;
                let (mut space, mut layout) = (None, None);
                if self.eat(",")? {
                    (space, layout) = self.placement()?;
                    if layout.is_none() && self.eat(",")? {
                        layout = Some(self.layout()?);
                    }
                }
                TypeData::Tile { dims, elem, space, layout }
            }
            "tma_desc" => {
                let (dims, elem) = self.static_dims()?;
                TypeData::TmaDesc { dims, elem }
            }
            "view" => {
                self.bump()?;
                let space = self.space()?;
                if !self.at(",") {
                    return Err(self.unexpected("`,` and the extents"));
                }
                let (dims, elem, _) = self.dims(true)?;
                TypeData::View { space, dims, elem }
            }
            "ptr" => {
                self.bump()?;
                let elem = self.scalar()?;
                self.expect(",")?;
                TypeData::Ptr { elem, space: self.space()? }
            }
            _ => {
                self.bump()?;
                let Tok::Int(n) = self.tok.tok else { return Err(self.unexpected("a number of slots")) };
                let Ok(n) = u32::try_from(n) else {
                    let message =
                        format!("number of slots out of range: `{n}`, expected 32 bits without sign");
                    return Err(CodegenError::new(Code::E0003, self.tok.loc(), message));
                };
                self.bump()?;
                match word {
                    "pipe_producer" => TypeData::PipeProducer(n),
                    "pipe_consumer" => TypeData::PipeConsumer(n),
                    _ => TypeData::PipeIter(n),
                }
            }
        };
        self.expect(">")?;
        Ok(data)
    }

    /// A word out of a set of names, else E0006.
    fn named<T>(&mut self, find: impl Fn(&str) -> Option<T>, wanted: &str) -> CodegenResult<T> {
        let Tok::Word(word) = self.tok.tok else { return Err(self.unexpected(wanted)) };
        let Some(found) = find(word) else { return Err(self.bad_type(self.tok.loc(), word, wanted)) };
        self.bump()?;
        Ok(found)
    }

    fn scalar(&mut self) -> CodegenResult<Scalar> {
        self.named(Scalar::from_name, "a scalar type")
    }

    fn space(&mut self) -> CodegenResult<Space> {
        self.named(Space::from_name, "`gmem`, `rmem`, `smem` or `tmem`")
    }

    fn layout(&mut self) -> CodegenResult<Layout> {
        self.named(Layout::from_name, "a layout such as `k128` or `row`")
    }

    fn placement(&mut self) -> CodegenResult<(Option<Space>, Option<Layout>)> {
        self.named(
            |w| {
                let (space, layout) = (Space::from_name(w), Layout::from_name(w));
                (space.is_some() || layout.is_some()).then_some((space, layout))
            },
            "`gmem`, `rmem`, `smem`, `tmem` or a layout",
        )
    }

    fn static_dims(&mut self) -> CodegenResult<(super::types::Shape, Scalar)> {
        let (dims, elem, loc) = self.dims(false)?;
        let shape: super::types::Shape =
            dims.iter().map(|d| if let Dim::Static(n) = d { *n } else { 1 }).collect();
        let total = shape.iter().fold(1u64, |n, &d| n.saturating_mul(u64::from(d)));
        let max = self.limits.max_tile_elements.unwrap_or(MAX_ELEMENTS).min(MAX_ELEMENTS);
        if total > max {
            return Err(self.too_large(loc, "tile with too many elements", max));
        }
        Ok((shape, elem))
    }

    /// `4x?xf16` in the raw text behind the current token, which is given up.
    fn dims(&mut self, dynamic: bool) -> CodegenResult<(SmallVec<[Dim; 4]>, Scalar, Loc)> {
        let (word, start) = self.lex.dims_word();
        let loc = Loc::new(start, start + word.len());
        if word.is_empty() {
            self.bump()?;
            return Err(self.unexpected("extents and an element type such as `128x64xf16`"));
        }
        let mut dims = SmallVec::new();
        let mut rest = word;
        loop {
            let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            let here = start + word.len() - rest.len();
            let (dim, len) = if rest.starts_with('?') && dynamic {
                (Dim::Dynamic, 1)
            } else if digits > 0 {
                match rest[..digits].parse() {
                    Ok(0) => {
                        return Err(self.bad_type(loc, word, "extents of at least 1"));
                    }
                    Ok(n) => (Dim::Static(n), digits),
                    Err(_) => {
                        let text = quote(&rest[..digits]);
                        let message = format!("extent out of range: {text}, expected 32 bits");
                        return Err(CodegenError::new(Code::E0003, Loc::new(here, here + digits), message));
                    }
                }
            } else {
                break;
            };
            let Some(after) = rest[len..].strip_prefix('x') else {
                return Err(self.bad_type(loc, word, "`x` between extents and before the element type"));
            };
            rest = after;
            dims.push(dim);
            if dims.len() > MAX_RANK {
                return Err(self.bad_type(loc, word, &format!("at most {MAX_RANK} extents")));
            }
        }
        let Some(elem) = Scalar::from_name(rest) else {
            let wanted =
                if dynamic { "extents or `?`, then a scalar type" } else { "extents, then a scalar type" };
            return Err(self.bad_type(loc, word, wanted));
        };
        self.tok = self.lex.next_token()?;
        self.last_end = start + word.len();
        Ok((dims, elem, loc))
    }

    /// `key = value, …` up to and including `close`; the opening mark is already read.
    fn dict(&mut self, close: &str) -> CodegenResult<AttrDict> {
        let mut dict = AttrDict::default();
        self.dict_into(&mut dict, close)?;
        Ok(dict)
    }

    fn dict_into(&mut self, dict: &mut AttrDict, close: &str) -> CodegenResult<()> {
        if self.eat(close)? {
            return Ok(());
        }
        loop {
            let Tok::Word(name) = self.tok.tok else { return Err(self.unexpected("an attribute name")) };
            let loc = self.tok.loc();
            let key = self.f.intern_symbol(name);
            if dict.get(key).is_some() {
                let message = format!("attribute {} given twice, expected one value", quote(name));
                return Err(CodegenError::new(Code::E0009, loc, message));
            }
            if dict.len() >= MAX_ATTRS {
                return Err(self.too_large(loc, "too many attributes", MAX_ATTRS as u64));
            }
            self.bump()?;
            let value = if self.eat("=")? {
                self.attr_value(self.depth)?
            } else {
                self.f.intern_attr(AttrData::Unit)
            };
            dict.set(key, value);
            if !self.eat(",")? {
                return if self.eat(close)? {
                    Ok(())
                } else {
                    Err(self.unexpected(&format!("`=`, `,` or `{close}`")))
                };
            }
        }
    }

    fn attr_value(&mut self, depth: usize) -> CodegenResult<Attr> {
        self.check_depth(depth)?;
        if let Some(number) = Self::number_of(self.tok.tok) {
            self.bump()?;
            let ty = if self.eat(":")? { Some(self.scalar()?) } else { None };
            return Ok(self.f.intern_attr(number.attr(ty)));
        }
        let data = match self.tok.tok {
            Tok::Str(raw) => {
                self.bump()?;
                AttrData::Str(unescape(raw))
            }
            Tok::Word(word) => {
                let next = self.peek();
                if Self::begins_type(word, next == Some(Tok::Punct("<"))) {
                    AttrData::Type(self.ty()?)
                } else {
                    self.bump()?;
                    let name = self.f.intern_symbol(word);
                    if self.eat("(")? {
                        AttrData::Call(name, self.attr_list(")", depth)?)
                    } else {
                        AttrData::Name(name)
                    }
                }
            }
            Tok::Punct("[") => {
                self.bump()?;
                AttrData::Array(self.attr_list("]", depth)?)
            }
            _ => return Err(self.unexpected("an attribute value")),
        };
        Ok(self.f.intern_attr(data))
    }

    fn attr_list(&mut self, close: &str, depth: usize) -> CodegenResult<SmallVec<[Attr; 4]>> {
        let mut list = SmallVec::new();
        if self.eat(close)? {
            return Ok(list);
        }
        loop {
            list.push(self.attr_value(depth + 1)?);
            if !self.eat(",")? {
                return if self.eat(close)? {
                    Ok(list)
                } else {
                    Err(self.unexpected(&format!("`,` or `{close}`")))
                };
            }
        }
    }

    fn check_depth(&self, depth: usize) -> CodegenResult<()> {
        let max = self.limits.max_nesting.min(DEEPEST);
        if depth <= max {
            return Ok(());
        }
        let message = format!("nesting deeper than {max} levels");
        Err(CodegenError::new(Code::E0008, self.tok.loc(), message))
    }
}

// ---- module, kernels, regions

impl<'a> Parser<'a, '_> {
    fn module(&mut self) -> CodegenResult<Module> {
        let mut module = Module::new();
        if self.eat_word("target")? {
            let Tok::Str(raw) = self.tok.tok else { return Err(self.unexpected("a target in quotes")) };
            module.target = Some(unescape(raw));
            self.bump()?;
        }
        let mut seen: FxHashSet<&'a str> = FxHashSet::default();
        while self.tok.tok != Tok::Eof {
            let start = self.tok.start;
            if !self.eat_word("kernel")? && !self.eat_word("func")? {
                return Err(self.unexpected("`kernel`"));
            }
            let Tok::Symbol(name) = self.tok.tok else { return Err(self.unexpected("a kernel name `@…`")) };
            if !seen.insert(name) {
                let message = format!("kernel {} defined twice, expected another name", quote(name));
                return Err(CodegenError::new(Code::E0009, self.tok.loc(), message));
            }
            self.bump()?;
            self.kernel(name, start)?;
            module.functions.push(std::mem::replace(&mut self.f, Function::new("")));
        }
        Ok(module)
    }

    fn kernel(&mut self, name: &str, start: usize) -> CodegenResult<()> {
        self.f = Function::new(name);
        self.names.clear();
        self.visible.clear();
        let entry = self.f.entry();
        self.expect("(")?;
        if !self.eat(")")? {
            loop {
                let (name, loc) = self.new_name()?;
                self.expect(":")?;
                let ty = self.ty()?;
                let v = self.f.add_block_param(entry, ty);
                self.define(name, loc, v)?;
                if !self.eat(",")? {
                    break;
                }
            }
            if !self.eat(")")? {
                return Err(self.unexpected("`,` or `)`"));
            }
        }
        if self.eat("<{")? {
            self.f.attrs = self.dict("}>")?;
        }
        self.f.loc = Loc::new(start, self.last_end);
        self.body(entry, &[], Some(Opcode::Return))
    }

    /// `{ ops }`; `params` are named inside. A missing terminator becomes `close`, if that may be left out.
    fn body(
        &mut self,
        block: Block,
        params: &[(&'a str, Loc, Value)],
        close: Option<Opcode>,
    ) -> CodegenResult<()> {
        if !self.at("{") {
            return Err(self.unexpected("`{`"));
        }
        self.depth += 1;
        self.check_depth(self.depth)?;
        self.bump()?;
        let outer = self.visible.len();
        for &(name, loc, v) in params {
            self.define(name, loc, v)?;
        }
        let mut closed = false;
        while !self.at("}") {
            if closed {
                return Err(self.unexpected("`}` behind the terminator"));
            }
            if !matches!(self.tok.tok, Tok::Word(_) | Tok::Value(_)) {
                return Err(self.unexpected("an operation or `}`"));
            }
            let op = self.op(block)?;
            closed = self.f.opcode(op).is_terminator();
        }
        if !closed {
            let Some(opcode) = close else { return Err(self.unexpected("a terminator with the results")) };
            self.new_op(block, opcode, &[], &[], &[], self.tok.loc())?;
        }
        self.bump()?;
        self.depth -= 1;
        for name in self.visible.drain(outer..) {
            if let Some(named) = self.names.get_mut(name) {
                named.visible = false;
            }
        }
        Ok(())
    }

    fn define(&mut self, name: &'a str, loc: Loc, value: Value) -> CodegenResult<()> {
        if let Some(first) = self.names.get(name) {
            let message = format!("value name `%{name}` defined twice, expected a new name");
            return Err(CodegenError::new(Code::E0005, loc, message).note(first.loc, "first defined here"));
        }
        self.names.insert(name, Named { value, loc, visible: true });
        self.visible.push(name);
        // All-digit names are what unnamed values print as.
        if !name.bytes().all(|b| b.is_ascii_digit()) {
            self.f.set_value_name(value, name);
        }
        Ok(())
    }

    /// `%name` that is used.
    fn value(&mut self) -> CodegenResult<Value> {
        let Tok::Value(name) = self.tok.tok else { return Err(self.unexpected("a value `%…`")) };
        let loc = self.tok.loc();
        let value = match self.names.get(name) {
            Some(named) if named.visible => named.value,
            Some(named) => {
                let message =
                    format!("value `%{name}` is not visible here, expected one of this region or around it");
                let error = CodegenError::new(Code::E0005, loc, message);
                return Err(error.note(named.loc, "defined here, inside another region"));
            }
            None => {
                let message = format!("unknown value `%{name}`, expected one that is defined before");
                return Err(CodegenError::new(Code::E0005, loc, message));
            }
        };
        self.bump()?;
        Ok(value)
    }

    fn new_op(
        &mut self,
        block: Block,
        opcode: Opcode,
        operands: &[Value],
        segments: &[u32],
        results: &[Type],
        loc: Loc,
    ) -> CodegenResult<Op> {
        if self.num_ops >= self.limits.max_ops {
            return Err(self.too_large(loc, "too many operations", self.limits.max_ops as u64));
        }
        self.num_ops += 1;
        // An op without written operands still has one (empty) entry per segment, as from the builder.
        let segments: SmallVec<[u32; 7]> = if segments.is_empty() {
            opcode.def().operands.iter().map(|_| 0).collect()
        } else {
            segments.into()
        };
        let op = self.f.make_op(opcode, operands, &segments, results, loc);
        self.f.append_op(block, op);
        Ok(op)
    }
}

// ---- operations

impl<'a> Parser<'a, '_> {
    fn op(&mut self, block: Block) -> CodegenResult<Op> {
        let start = self.tok.start;
        let mut names = Names::new();
        if matches!(self.tok.tok, Tok::Value(_)) {
            loop {
                names.push(self.new_name()?);
                if !self.eat(",")? {
                    break;
                }
            }
            if !self.eat("=")? {
                return Err(self.unexpected("`,` or `=`"));
            }
        }
        let Tok::Word(word) = self.tok.tok else { return Err(self.unexpected("an operation name")) };
        let Some(opcode) = Opcode::from_name(word) else {
            let message = format!("unknown operation {}, expected one of the operation table", quote(word));
            return Err(CodegenError::new(Code::E0004, self.tok.loc(), message));
        };
        self.bump()?;
        let op = match opcode {
            Opcode::For => self.for_op(block, start, &names)?,
            Opcode::If => self.if_op(block, start, &names)?,
            Opcode::AsyncPipelineAgentSwitch => self.agent_switch(block, start, &names)?,
            _ => self.plain_op(block, opcode, start, &names)?,
        };
        self.f.set_op_loc(op, Loc::new(start, self.last_end));
        for (i, &(name, loc)) in names.iter().enumerate() {
            if let Some(&v) = self.f.results(op).get(i) {
                self.define(name, loc, v)?;
            }
        }
        Ok(op)
    }

    fn plain_op(&mut self, block: Block, opcode: Opcode, start: usize, names: &Names) -> CodegenResult<Op> {
        let def = opcode.def();
        let mut inherent = AttrDict::default();
        if let (Some(i), Some(number)) = (literal_attr(def), Self::number_of(self.tok.tok)) {
            self.bump()?;
            let value = self.f.intern_attr(number.attr(None));
            inherent.set(def.attrs[i].key, value);
        }
        let written = self.operands(def)?;
        if self.eat("<{")? {
            self.dict_into(&mut inherent, "}>")?;
        }
        let discardable = if self.eat("{")? { self.dict("}")? } else { AttrDict::default() };
        let types = if self.eat(":")? { Some(self.types()?) } else { None };
        let operands = self.resolve(block, def, &written)?;
        let loc = Loc::new(start, self.last_end);
        let results = self.result_types(def, &operands, &written.segments, names.len(), types, loc)?;
        let op = self.new_op(block, opcode, &operands, &written.segments, &results, loc)?;
        *self.f.inherent_mut(op) = inherent;
        *self.f.discardable_mut(op) = discardable;
        Ok(op)
    }

    /// The operands of an op, segment by segment.
    fn operands(&mut self, def: &OpDef) -> CodegenResult<Operands> {
        let mut out = Operands::default();
        let mut first = true;
        let mut owner_empty = true;
        for seg in def.operands {
            let before = out.list.len();
            if seg.bracket {
                if !owner_empty && self.eat("[")? {
                    loop {
                        out.list.push(self.operand()?);
                        if !self.eat(",")? {
                            break;
                        }
                    }
                    if !self.eat("]")? {
                        return Err(self.unexpected("`,` or `]`"));
                    }
                }
            } else if self.segment_follows(seg, first) {
                if !first {
                    self.expect(",")?;
                }
                first = false;
                if let Some(word) = seg.keyword {
                    self.expect_word(word)?;
                    self.expect("(")?;
                    out.list.push(self.operand()?);
                    self.expect(")")?;
                } else {
                    out.list.push(self.operand()?);
                    while seg.arity == Arity::Many && self.eat(",")? {
                        out.list.push(self.operand()?);
                    }
                }
            }
            let len = out.list.len() - before;
            if !seg.bracket {
                owner_empty = len == 0;
            }
            out.segments.push(len as u32);
        }
        Ok(out)
    }

    /// Whether a segment is written here. One that must be there is, whatever follows.
    fn segment_follows(&self, seg: &Segment, first: bool) -> bool {
        if seg.arity == Arity::One {
            return true;
        }
        let next = if first {
            Some(self.tok.tok)
        } else if self.at(",") {
            self.peek()
        } else {
            None
        };
        match (next, seg.keyword) {
            (Some(tok), Some(word)) => tok == Tok::Word(word),
            // Names directly behind the op may belong to the next one: `yield` and then `%r = …`.
            (Some(Tok::Value(_)), None) => !first || !self.names_of_next_op(),
            (Some(tok), None) => Self::number_of(tok).is_some(),
            (None, _) => false,
        }
    }

    /// Whether `%a, %b, … =` stands here.
    fn names_of_next_op(&self) -> bool {
        let mut ahead = self.lex;
        loop {
            match ahead.next_token().map(|t| t.tok) {
                Ok(Tok::Punct("=")) => return true,
                Ok(Tok::Punct(",")) => {}
                _ => return false,
            }
            if !matches!(ahead.next_token().map(|t| t.tok), Ok(Tok::Value(_))) {
                return false;
            }
        }
    }

    fn operand(&mut self) -> CodegenResult<Operand> {
        if let Some(number) = Self::number_of(self.tok.tok) {
            let loc = self.tok.loc();
            self.bump()?;
            return Ok(Operand::Literal(number, loc));
        }
        if !matches!(self.tok.tok, Tok::Value(_)) {
            return Err(self.unexpected("a value `%…` or a number"));
        }
        self.value().map(Operand::Value)
    }

    /// The operands as values: literals become constants, typed by their segment or by the operands beside them.
    fn resolve(
        &mut self,
        block: Block,
        def: &OpDef,
        written: &Operands,
    ) -> CodegenResult<SmallVec<[Value; 8]>> {
        // Operands that must agree in type: the literals among them take the type of the first value.
        let alike = match def.rule {
            Rule::Same | Rule::Compare => 0..written.list.len(),
            Rule::Select => 1..written.list.len().max(1),
            _ => 0..0,
        };
        let mut known = None;
        for operand in &written.list[alike.clone()] {
            if let (Operand::Value(v), None) = (operand, known) {
                known = Some(self.f.value_type(*v));
            }
        }
        let mut out = SmallVec::new();
        let mut index = 0;
        for (seg, &len) in def.operands.iter().zip(&written.segments) {
            for _ in 0..len {
                let v = match written.list[index] {
                    Operand::Value(v) => v,
                    Operand::Literal(number, loc) => {
                        let ty = if seg.bracket { Some(self.f.scalar(Scalar::I32)) } else { known };
                        let ty = ty.filter(|_| seg.bracket || alike.contains(&index));
                        let Some(ty) = ty else {
                            let text = quote(self.lex.slice(loc.start as usize, loc.end as usize));
                            let message =
                                format!("the type of literal {text} is not known here, expected a value");
                            return Err(CodegenError::new(Code::E0007, loc, message));
                        };
                        self.literal(block, number, ty, loc)?
                    }
                };
                out.push(v);
                index += 1;
            }
        }
        Ok(out)
    }

    /// A `constant` of type `ty` for a literal.
    fn literal(&mut self, block: Block, number: Number, ty: Type, loc: Loc) -> CodegenResult<Value> {
        let float = self.f.type_data(ty).elem().is_some_and(Scalar::is_float);
        let number = match number {
            Number::Int(v) if float => Number::Float(v as f64),
            Number::Float(_) if !float => {
                let text = quote(self.lex.slice(loc.start as usize, loc.end as usize));
                let message =
                    format!("unexpected {text}, expected an integer of type {}", self.f.type_data(ty));
                return Err(CodegenError::new(Code::E0002, loc, message));
            }
            other => other,
        };
        let op = self.new_op(block, Opcode::Constant, &[], &[], &[ty], loc)?;
        self.f.set_attr(op, keys::VALUE, number.attr(None));
        Ok(self.f.results(op)[0])
    }

    fn result_error(&self, def: &OpDef, loc: Loc, what: &str) -> CodegenError {
        CodegenError::new(Code::E0007, loc, format!("`{}` {what}", def.name))
    }

    /// Result types: as written, or as they follow from the operands.
    fn result_types(
        &mut self,
        def: &OpDef,
        operands: &[Value],
        segments: &[u32],
        names: usize,
        written: Option<Types>,
        loc: Loc,
    ) -> CodegenResult<Types> {
        if def.traits.has(super::opcodes::Traits::TERMINATOR) {
            // The types a terminator may show are those of its operands; they carry nothing new.
            let agree =
                written.is_none_or(|t| t.iter().copied().eq(operands.iter().map(|&v| self.f.value_type(v))));
            return if names > 0 {
                Err(self.result_error(def, loc, &format!("has {names} result names, expected none")))
            } else if !agree {
                Err(self.result_error(def, loc, "shows other types than its operands have"))
            } else {
                Ok(Types::new())
            };
        }
        let types = match written {
            Some(types) if names > 0 && names != types.len() => {
                let what = format!("has {names} result names but {} result types", types.len());
                return Err(self.result_error(def, loc, &what));
            }
            Some(types) => types,
            None => {
                let wanted = match def.results {
                    _ if names > 0 => names,
                    Results::One => 1,
                    Results::Two => 2,
                    Results::Opt | Results::Many => 0,
                };
                match wanted {
                    0 => Types::new(),
                    1 => match self.infer(def, operands, segments) {
                        Some(ty) => Types::from_elem(ty, 1),
                        None => {
                            return Err(self.result_error(
                                def,
                                loc,
                                "needs its result type, expected `: type`",
                            ));
                        }
                    },
                    _ => {
                        return Err(self.result_error(
                            def,
                            loc,
                            "needs its result types, expected `: type, …`",
                        ));
                    }
                }
            }
        };
        let (ok, wanted) = match def.results {
            Results::One => (types.len() == 1, "1"),
            Results::Two => (types.len() == 2, "2"),
            Results::Opt => (types.len() <= 1, "at most 1"),
            Results::Many => (true, "any number"),
        };
        if !ok {
            let what = format!("has {} results, expected {wanted}", types.len());
            return Err(self.result_error(def, loc, &what));
        }
        Ok(types)
    }

    /// The result type that the op's typing rule fixes, if it does.
    fn infer(&mut self, def: &OpDef, operands: &[Value], segments: &[u32]) -> Option<Type> {
        match def.rule {
            Rule::Same => Some(self.f.value_type(*operands.first()?)),
            Rule::Select => Some(self.f.value_type(*operands.get(1)?)),
            Rule::I32 => Some(self.f.scalar(Scalar::I32)),
            Rule::Dot => {
                let acc = def.operands.iter().position(|s| s.name == "acc")?;
                let before: u32 = segments.iter().take(acc).sum();
                Some(self.f.value_type(*operands.get(before as usize)?))
            }
            Rule::Compare => {
                let data = match self.f.value_data(*operands.first()?).clone() {
                    TypeData::Scalar(_) => TypeData::Scalar(Scalar::I1),
                    TypeData::Tile { dims, space, layout, .. } => {
                        TypeData::Tile { dims, elem: Scalar::I1, space, layout }
                    }
                    _ => return None,
                };
                Some(self.f.intern_type(data))
            }
            Rule::None | Rule::Convert | Rule::Custom => None,
        }
    }
}

// ---- operations with regions

impl<'a> Parser<'a, '_> {
    /// ` <{…}> attributes {…}`, both optional.
    fn region_dicts(&mut self) -> CodegenResult<(AttrDict, AttrDict)> {
        let inherent = if self.eat("<{")? { self.dict("}>")? } else { AttrDict::default() };
        if !self.eat_word("attributes")? {
            return Ok((inherent, AttrDict::default()));
        }
        self.expect("{")?;
        Ok((inherent, self.dict("}")?))
    }

    fn for_op(&mut self, block: Block, start: usize, names: &Names) -> CodegenResult<Op> {
        let iv = self.new_name()?;
        self.expect("=")?;
        let mut bounds = [self.operand()?; 3];
        for (slot, word) in bounds[1..].iter_mut().zip(["to", "step"]) {
            self.expect_word(word)?;
            *slot = self.operand()?;
        }
        // Literal bounds have the type of the other bounds, or i32.
        let typed = bounds.iter().find_map(|b| match b {
            Operand::Value(v) => Some(self.f.value_type(*v)),
            Operand::Literal(..) => None,
        });
        let bound_type = typed.unwrap_or_else(|| self.f.scalar(Scalar::I32));
        let mut operands: SmallVec<[Value; 8]> = SmallVec::new();
        for bound in bounds {
            operands.push(match bound {
                Operand::Value(v) => v,
                Operand::Literal(number, loc) => self.literal(block, number, bound_type, loc)?,
            });
        }
        let mut iters: SmallVec<[(&'a str, Loc); 4]> = SmallVec::new();
        let mut types = Types::new();
        if self.eat_word("iter")? {
            self.expect("(")?;
            loop {
                iters.push(self.new_name()?);
                self.expect("=")?;
                let init = self.operand()?;
                let ty = if self.eat(":")? { Some(self.ty()?) } else { None };
                let (v, ty) = match (init, ty) {
                    (Operand::Value(v), ty) => (v, ty.unwrap_or_else(|| self.f.value_type(v))),
                    (Operand::Literal(number, loc), Some(ty)) => (self.literal(block, number, ty, loc)?, ty),
                    (Operand::Literal(..), None) => {
                        return Err(self.unexpected("`:` and the type of the literal"));
                    }
                };
                operands.push(v);
                types.push(ty);
                if !self.eat(",")? {
                    break;
                }
            }
            if !self.eat(")")? {
                return Err(self.unexpected("`:`, `,` or `)`"));
            }
        }
        let (inherent, discardable) = self.region_dicts()?;
        let loc = Loc::new(start, self.last_end);
        let (have, want) = (names.len(), types.len());
        if have > 0 && have != want {
            let message = format!("`for` has {have} result names but {want} iteration values");
            return Err(CodegenError::new(Code::E0007, loc, message));
        }
        let op = self.new_op(block, Opcode::For, &operands, &[1, 1, 1, want as u32], &types, loc)?;
        *self.f.inherent_mut(op) = inherent;
        *self.f.discardable_mut(op) = discardable;
        let body = self.f.add_region(op);
        let iv_type = self.f.value_type(operands[0]);
        let mut params: SmallVec<[(&'a str, Loc, Value); 4]> = SmallVec::new();
        params.push((iv.0, iv.1, self.f.add_block_param(body, iv_type)));
        for (&(name, loc), &ty) in iters.iter().zip(&types) {
            params.push((name, loc, self.f.add_block_param(body, ty)));
        }
        self.body(body, &params, types.is_empty().then_some(Opcode::Yield))?;
        Ok(op)
    }

    /// `: types`, checked against the number of names.
    fn region_types(&mut self, opcode: Opcode, start: usize, names: &Names) -> CodegenResult<Types> {
        let types = if self.eat(":")? { self.types()? } else { Types::new() };
        if names.len() == types.len() || names.is_empty() {
            return Ok(types);
        }
        let what = format!("has {} result names but {} result types", names.len(), types.len());
        Err(self.result_error(opcode.def(), Loc::new(start, self.last_end), &what))
    }

    fn if_op(&mut self, block: Block, start: usize, names: &Names) -> CodegenResult<Op> {
        let condition = self.value()?;
        let (inherent, discardable) = self.region_dicts()?;
        let types = self.region_types(Opcode::If, start, names)?;
        let loc = Loc::new(start, self.last_end);
        let op = self.new_op(block, Opcode::If, &[condition], &[1], &types, loc)?;
        *self.f.inherent_mut(op) = inherent;
        *self.f.discardable_mut(op) = discardable;
        let close = types.is_empty().then_some(Opcode::Yield);
        let then = self.f.add_region(op);
        self.body(then, &[], close)?;
        let other = self.f.add_region(op);
        if self.eat_word("else")? {
            self.body(other, &[], close)?;
        } else if let Some(opcode) = close {
            let end = self.last_end;
            self.new_op(other, opcode, &[], &[], &[], Loc::new(end, end))?;
        } else {
            return Err(self.unexpected("`else`, as the `if` has results"));
        }
        Ok(op)
    }

    fn agent_switch(&mut self, block: Block, start: usize, names: &Names) -> CodegenResult<Op> {
        let opcode = Opcode::AsyncPipelineAgentSwitch;
        let (inherent, discardable) = self.region_dicts()?;
        let types = self.region_types(opcode, start, names)?;
        let loc = Loc::new(start, self.last_end);
        let op = self.new_op(block, opcode, &[], &[], &types, loc)?;
        *self.f.inherent_mut(op) = inherent;
        *self.f.discardable_mut(op) = discardable;
        self.expect("{")?;
        let mut agents = 0i64;
        while !self.eat("}")? {
            if !self.eat_word("agent")? {
                return Err(self.unexpected("`agent` or `}`"));
            }
            if self.tok.tok != Tok::Int(agents) {
                return Err(self.unexpected(&format!("agent number {agents}")));
            }
            self.bump()?;
            agents += 1;
            let region = self.f.add_region(op);
            self.body(region, &[], Some(Opcode::AsyncPipelineYield))?;
        }
        Ok(op)
    }
}
