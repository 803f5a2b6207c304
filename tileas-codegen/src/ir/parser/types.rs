//! Types and attribute dictionaries.

use super::{DEEPEST, MAX_ATTRS, MAX_ELEMENTS, Parser, Types};
use crate::error::{Code, CodegenError, CodegenResult, Loc};
use crate::ir::attrs::{AttrData, AttrDict};
use crate::ir::combiner::Combiner;
use crate::ir::entities::{Attr, Type};
use crate::ir::layouts::{Layout, RegisterBits};
use crate::ir::lexer::{Tok, quote, unescape};
use crate::ir::types::{Dim, MAX_RANK, Scalar, Shape, Space, TypeData};
use crate::layout::{Axes, parse};
use smallvec::SmallVec;

impl<'a> Parser<'a, '_> {
    fn bad_type(&self, loc: Loc, text: &str, wanted: &str) -> CodegenError {
        let message = format!("unknown or malformed type {}, expected {wanted}", quote(text));
        CodegenError::new(Code::E0006, loc, message)
    }

    pub(super) fn ty(&mut self) -> CodegenResult<Type> {
        let data = self.type_data()?;
        Ok(self.f.intern_type(data))
    }

    pub(super) fn types(&mut self) -> CodegenResult<Types> {
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
                    layout = self.register_bits(&dims)?;
                    if layout.is_none() {
                        (space, layout) = self.placement()?;
                    }
                    if layout.is_none() && self.eat(",")? {
                        layout = match self.register_bits(&dims)? {
                            None => Some(self.layout()?),
                            bits => bits,
                        };
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

    /// `reg(j1 j2) lane(…) warp(…)`, if the text goes on with that.
    fn register_bits(&mut self, dims: &[u32]) -> CodegenResult<Option<Layout>> {
        let kind = |tok: Tok<'_>| matches!(tok, Tok::Word("reg" | "lane" | "warp"));
        let start = self.tok.loc();
        let mut text = String::new();
        while kind(self.tok.tok) && self.peek() == Some(Tok::Punct("(")) {
            loop {
                let bit = matches!(self.tok.tok, Tok::Word(_) | Tok::Int(0));
                if bit && !text.is_empty() && !text.ends_with(['(', ')']) {
                    text.push(' ');
                }
                match self.tok.tok {
                    Tok::Word(word) => text.push_str(word),
                    Tok::Int(0) => text.push('0'),
                    Tok::Punct(mark @ ("(" | ")")) => text.push_str(mark),
                    _ => return Err(self.unexpected("bits of axes such as `j4`, `0` or `)`")),
                }
                let closed = self.at(")");
                self.bump()?;
                if closed {
                    break;
                }
            }
        }
        if text.is_empty() {
            return Ok(None);
        }
        let loc = Loc::new(start.start as usize, self.last_end);
        let bad = |why: &str| {
            CodegenError::new(Code::E0006, loc, format!("malformed layout {}: {why}", quote(&text)))
        };
        let axes = Axes::of(dims)
            .ok_or_else(|| bad("expected extents that are powers of two, 2^24 elements at most"))?;
        let map = parse(&text, &axes).map_err(|why| bad(&why))?;
        match RegisterBits::of(&map) {
            Some(bits) => Ok(Some(Layout::Bits(bits))),
            None => Err(bad("expected one bit of an axis, or 0, in each place")),
        }
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

    fn static_dims(&mut self) -> CodegenResult<(Shape, Scalar)> {
        let (dims, elem, loc) = self.dims(false)?;
        let shape: Shape = dims.iter().map(|d| if let Dim::Static(n) = d { *n } else { 1 }).collect();
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
    pub(super) fn dict(&mut self, close: &str) -> CodegenResult<AttrDict> {
        let mut dict = AttrDict::default();
        self.dict_into(&mut dict, close)?;
        Ok(dict)
    }

    pub(super) fn dict_into(&mut self, dict: &mut AttrDict, close: &str) -> CodegenResult<()> {
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
                self.attr_value(self.stack.len())?
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
            Tok::Punct("(") => AttrData::Combiner(self.combiner()?),
            _ => return Err(self.unexpected("an attribute value")),
        };
        Ok(self.f.intern_attr(data))
    }

    /// `(%a: f32, %b: f32) { … }`: a function of its own.
    fn combiner(&mut self) -> CodegenResult<Combiner> {
        if self.in_combiner {
            return Err(self.unexpected("no combiner within a combiner"));
        }
        let mut inner = Parser::new(self.lex, self.tok, self.limits);
        (inner.last_end, inner.num_ops, inner.in_combiner) = (self.last_end, self.num_ops, true);
        let done = inner.kernel("combiner", self.tok.start, false);
        (self.lex, self.tok, self.last_end, self.num_ops) =
            (inner.lex, inner.tok, inner.last_end, inner.num_ops);
        self.errors.append(&mut inner.errors);
        done?;
        Ok(Combiner::new(inner.f))
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

    pub(super) fn check_depth(&self, depth: usize) -> CodegenResult<()> {
        let max = self.limits.max_nesting.min(DEEPEST);
        if depth <= max {
            return Ok(());
        }
        let message = format!("nesting deeper than {max} levels");
        Err(CodegenError::new(Code::E0008, self.tok.loc(), message))
    }
}
