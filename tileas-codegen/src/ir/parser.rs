//! Parser of the text form.
//!
//! In: text. Out: a [`Module`] or the errors, each with its byte range, the offending text and what was expected.
//! Grammar, names and result types are checked here. What can be said of IR is left to the verifier, which reports all
//! of it: numbers of operands and results, regions and their ends, uses outside the defining region, typing.
//!
//! Names: a name may be defined again where the first value is not visible, so sibling regions can use the same ones.
//! A use resolves to the latest definition before it, visible or not.
//!
//! Sugar that never prints: functions (`func`), which are written out where they are called; number literals as operands (a `constant` is put before the op);
//! result types that follow from the operands; the terminator of a region without any; a missing empty `else`.
//!
//! After an error reading goes on with the next line that begins an operation, ends a region or begins a kernel. What the
//! skipped text names is not reported as unknown afterwards, and operations that use it are skipped, too.
//!
//! Parts: this file has tokens, kernels, regions and names; `types` has types and attributes; `ops` operations; `recover` is
//! what happens after an error.
//! Guarantee: total, no panic. Regions are read without recursion; that of attribute values is bounded by
//! [`ParseLimits::max_nesting`]. Cost: linear in the text.

mod ops;
mod recover;
mod types;

use super::attrs::{AttrData, FloatBits};
use super::entities::{Block, Op, Type, Value};
use super::function::Function;
use super::inline;
use super::lexer::{Lexer, Tok, Token, quote, unescape};
use super::module::Module;
use super::opcodes::{Opcode, keys};
use super::types::Scalar;
use crate::error::{Code, CodegenError, CodegenResult, Errors, Loc};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use std::sync::Arc;

/// What a text may cost; beyond a limit parsing ends with E0008 (nesting) or E0010 (the others).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseLimits {
    /// Ops of the whole module, those the parser adds included. Default 1 000 000.
    pub max_ops: usize,
    /// Depth of regions, and of arrays and calls in attributes. Default 64; values above 256 count as 256, since
    /// this is what bounds the stack of everything that walks regions.
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

/// Depth no setting exceeds: the parser's attribute values, the printer and walks recurse once per level.
const DEEPEST: usize = 256;
/// Elements no tile exceeds, so that sizes in bits fit 64 bits.
const MAX_ELEMENTS: u64 = 1 << 48;
/// Entries of one dictionary; keys are looked up linearly.
const MAX_ATTRS: usize = 256;

/// Errors of one text.
const MOST_ERRORS: usize = 64;

/// Parses a module with default limits.
///
/// # Errors
/// As [`parse_module_with`].
pub fn parse_module(text: &str) -> Result<Module, Errors> {
    parse_module_with(text, &ParseLimits::default())
}

/// Parses a module.
///
/// # Errors
/// All errors that can be told apart from consequences of others, at most 64.
pub fn parse_module_with(text: &str, limits: &ParseLimits) -> Result<Module, Errors> {
    if text.len() > limits.max_bytes || text.len() >= u32::MAX as usize {
        let max = limits.max_bytes.min(u32::MAX as usize - 1);
        let message = format!("text of {} bytes, expected at most {max}", text.len());
        return Err(CodegenError::new(Code::E0010, Loc::new(max, text.len()), message).into());
    }
    let mut p = Parser::new(Lexer::new(text), Token { tok: Tok::Eof, start: 0, end: 0 }, limits);
    let mut module = p.module();
    let source: Arc<str> = text.into();
    Errors::check(p.errors).map_err(|errors| errors.located_in(source.clone()))?;
    number_asserts(&mut module, text);
    module.source = Some(source);
    Ok(module)
}

/// Gives asserts that name no place the line on which they stand, for the message of one that does not hold.
fn number_asserts(module: &mut Module, text: &str) {
    if !text.contains("assert") {
        return;
    }
    let ends: Vec<usize> = text.match_indices('\n').map(|(at, _)| at).collect();
    for f in &mut module.functions {
        let bare = |f: &Function, op: Op| {
            f.opcode(op) == Opcode::Assert && !f.has_attr(op, keys::LINE) && !f.has_attr(op, keys::FILE)
        };
        for op in f.all_ops().into_iter().filter(|&op| bare(f, op)).collect::<Vec<_>>() {
            let Some(place) = f.op_loc(op).range() else { continue };
            let line = ends.partition_point(|&end| end < place.start) + 1;
            f.set_int(op, keys::LINE, line as i64);
        }
    }
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

/// What a name stands for in the kernel being read.
struct Named {
    value: Value,
    loc: Loc,
    /// Whether the region that defines it is still open.
    visible: bool,
}

/// An op whose regions are being read.
struct Owner<'a> {
    op: Op,
    start: usize,
    /// Result names; they are defined behind the op.
    names: Names<'a>,
}

/// A region being read.
struct Open<'a> {
    /// `None` for a kernel's body.
    owner: Option<Owner<'a>>,
    block: Block,
    /// How many names are visible around it.
    outer: usize,
    /// What is added where no terminator was read; `None` where one would have to name results.
    close: Option<Opcode>,
    /// Whether a terminator was read.
    closed: bool,
}

struct Parser<'a, 'l> {
    lex: Lexer<'a>,
    tok: Token<'a>,
    /// End of the token before `tok`.
    last_end: usize,
    limits: &'l ParseLimits,
    num_ops: usize,
    /// The open regions, outermost first. A stack of our own, so that nesting costs no call frames.
    stack: Vec<Open<'a>>,
    f: Function,
    names: FxHashMap<&'a str, Named>,
    /// Visible names in order of definition; a region's are dropped at its end.
    visible: Vec<&'a str>,
    errors: Vec<CodegenError>,
    /// Names that text mentions which was not understood.
    unread: FxHashSet<&'a str>,
    /// Whether the error that is being returned is a consequence of an earlier one.
    consequence: bool,
    /// Whether this reads a combiner, which has none.
    in_combiner: bool,
    /// The functions before, by name.
    helpers: FxHashMap<&'a str, Helper>,
    /// Types of what the function being read returns; `None` in a kernel.
    returns: Option<Types>,
}

/// A function that kernels and later functions call.
struct Helper {
    /// Its body, which ends in `yield`.
    func: Function,
    num_ops: usize,
    /// Whether it was not understood: what is wrong with its calls follows from that.
    is_broken: bool,
}

// ---- tokens

impl<'a, 'l> Parser<'a, 'l> {
    fn new(lex: Lexer<'a>, tok: Token<'a>, limits: &'l ParseLimits) -> Parser<'a, 'l> {
        Parser {
            lex,
            tok,
            last_end: 0,
            limits,
            num_ops: 0,
            stack: Vec::new(),
            f: Function::new(""),
            names: FxHashMap::default(),
            visible: Vec::new(),
            errors: Vec::new(),
            unread: FxHashSet::default(),
            consequence: false,
            in_combiner: false,
            helpers: FxHashMap::default(),
            returns: None,
        }
    }
}

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

// ---- module, kernels, regions

impl<'a> Parser<'a, '_> {
    fn module(&mut self) -> Module {
        let mut module = Module::new();
        match self.bump().and_then(|()| self.target()) {
            Ok(target) => module.target = target,
            Err(e) => self.next_kernel(e),
        }
        while self.tok.tok != Tok::Eof && !self.is_full() {
            match self.header() {
                Ok((name, start, is_helper)) => {
                    let before = self.errors.len();
                    let done = self.kernel(name, start, is_helper);
                    let func = std::mem::replace(&mut self.f, Function::new(""));
                    let is_broken = done.is_err() || self.errors.len() > before;
                    if is_helper {
                        let num_ops = func.num_ops();
                        self.helpers.insert(name, Helper { func, num_ops, is_broken });
                    } else if done.is_ok() {
                        module.functions.push(func);
                    }
                    if let Err(e) = done {
                        self.next_kernel(e);
                    }
                }
                Err(e) => self.next_kernel(e),
            }
        }
        module
    }

    /// `target "…"`, if it stands here.
    fn target(&mut self) -> CodegenResult<Option<String>> {
        if !self.eat_word("target")? {
            return Ok(None);
        }
        let Tok::Str(raw) = self.tok.tok else { return Err(self.unexpected("a target in quotes")) };
        self.bump()?;
        Ok(Some(unescape(raw)))
    }

    /// `kernel @name` or `func @name`, where it begins, and whether it is a function.
    fn header(&mut self) -> CodegenResult<(&'a str, usize, bool)> {
        let start = self.tok.start;
        let is_helper = self.eat_word("func")?;
        if !is_helper && !self.eat_word("kernel")? {
            return Err(self.unexpected("`kernel` or `func`"));
        }
        let Tok::Symbol(name) = self.tok.tok else { return Err(self.unexpected("a name `@…`")) };
        let loc = self.tok.loc();
        self.bump()?;
        if is_helper && self.helpers.contains_key(name) {
            let message = format!("function `@{name}` is defined twice, expected a new name");
            return Err(CodegenError::new(Code::E0011, loc, message));
        }
        Ok((name, start, is_helper))
    }

    fn kernel(&mut self, name: &str, start: usize, is_helper: bool) -> CodegenResult<()> {
        self.f = Function::new(name);
        self.names.clear();
        self.visible.clear();
        self.unread.clear();
        self.stack.clear();
        let (entry, before) = (self.f.entry(), self.errors.len());
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
        self.returns = None;
        if is_helper {
            self.returns = Some(if self.eat(":")? { self.types()? } else { Types::new() });
        } else if self.eat("<{")? {
            self.f.attrs = self.dict("}>")?;
        }
        self.f.loc = Loc::new(start, self.last_end);
        self.regions(entry)?;
        if is_helper && self.errors.len() == before && inline::yielded(&self.f).is_none() {
            let end = Loc::new(self.last_end.saturating_sub(1), self.last_end);
            let message = format!("function `@{name}` ends without `return`, expected its values");
            // The next one begins here already.
            self.note(CodegenError::new(Code::E0011, end, message));
        }
        Ok(())
    }

    /// Everything from `{` on, to the end of the kernel: ops, and the regions inside one another.
    fn regions(&mut self, entry: Block) -> CodegenResult<()> {
        let close = match &self.returns {
            None => Some(Opcode::Return),
            Some(types) => types.is_empty().then_some(Opcode::Yield),
        };
        self.open(None, entry, &[], close)?;
        while let Some(top) = self.stack.last() {
            let block = top.block;
            let begin = (self.lex, self.tok);
            let mut open = self.stack.len();
            let done = if self.at("}") {
                open -= 1;
                self.close()
            } else if self.tok.tok == Tok::Eof || self.at_kernel() {
                return Err(self.unexpected("an operation or `}`"));
            } else if matches!(self.tok.tok, Tok::Word(_) | Tok::Value(_)) {
                self.op(block)
            } else {
                Err(self.unexpected("an operation or `}`"))
            };
            if let Err(e) = done {
                // A region that was begun is skipped with its op.
                while self.stack.len() > open
                    && let Some(begun) = self.stack.pop()
                {
                    self.leave(begun.outer);
                }
                self.next_op(e, begin)?;
            }
        }
        Ok(())
    }

    /// `{`: the ops that follow go to `block`, with `params` named there. If none of them is a terminator, `close`
    /// is added, where there is such.
    fn open(
        &mut self,
        owner: Option<Owner<'a>>,
        block: Block,
        params: &[(&'a str, Loc, Value)],
        close: Option<Opcode>,
    ) -> CodegenResult<()> {
        if !self.at("{") {
            return Err(self.unexpected("`{`"));
        }
        self.check_depth(self.stack.len() + 1)?;
        self.bump()?;
        self.stack.push(Open { owner, block, outer: self.visible.len(), close, closed: false });
        params.iter().try_for_each(|&(name, loc, v)| self.define(name, loc, v))
    }

    /// `}` of the innermost region; the op that owns it goes on or ends.
    fn close(&mut self) -> CodegenResult<()> {
        let Some(top) = self.stack.pop() else { return Ok(()) };
        let results = top.owner.as_ref().map(|owner| owner.names.clone());
        if let (false, Some(opcode)) = (top.closed, top.close) {
            self.new_op(top.block, opcode, &[], &[], &[], self.tok.loc())?;
        }
        self.bump()?;
        self.leave(top.outer);
        match top.owner {
            Some(owner) => {
                let done = self.next_region(owner, top.close);
                if done.is_err() {
                    self.unread.extend(results.into_iter().flatten().map(|(name, _)| name));
                }
                done
            }
            None => Ok(()),
        }
    }

    /// Forgets which names are visible but those of the regions around.
    fn leave(&mut self, outer: usize) {
        for name in self.visible.drain(outer..) {
            if let Some(named) = self.names.get_mut(name) {
                named.visible = false;
            }
        }
    }

    fn define(&mut self, name: &'a str, loc: Loc, value: Value) -> CodegenResult<()> {
        if let Some(first) = self.names.get(name).filter(|n| n.visible) {
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

    /// `%name` that is used. Whether the value is visible here is for the verifier.
    fn value(&mut self) -> CodegenResult<Value> {
        let Tok::Value(name) = self.tok.tok else { return Err(self.unexpected("a value `%…`")) };
        let loc = self.tok.loc();
        let Some(value) = self.names.get(name).map(|n| n.value) else {
            self.consequence = self.unread.contains(name);
            let message = format!("unknown value `%{name}`, expected one that is defined before");
            return Err(CodegenError::new(Code::E0005, loc, message));
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
