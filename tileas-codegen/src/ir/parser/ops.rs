//! Operations: operands, literals, result types, and the three forms with regions.

use super::{Helper, Names, Number, Owner, Parser, Types};
use crate::error::{Code, CodegenError, CodegenResult, Loc};
use crate::ir::attrs::{AttrData, AttrDict};
use crate::ir::entities::{Block, Op, Type, Value};
use crate::ir::lexer::{Tok, quote};
use crate::ir::opcodes::{Arity, AttrKind, OpDef, Opcode, Results, Rule, Segment, Traits, keys};
use crate::ir::printer::literal_attr;
use crate::ir::types::{Scalar, TypeData};
use crate::ir::{fit, inline};
use smallvec::SmallVec;

/// Names of iteration arguments.
type Iters<'a> = SmallVec<[(&'a str, Loc); 4]>;

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

impl<'a> Parser<'a, '_> {
    /// One op; one with regions is read up to the inside of its first.
    pub(super) fn op(&mut self, block: Block) -> CodegenResult<()> {
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
        if self.returns.is_some() {
            self.check_function(word)?;
        }
        match word {
            "call" => return self.call(block, start, names),
            "return" if self.returns.is_some() => return self.return_values(block, start),
            _ => {}
        }
        let Some(opcode) = Opcode::from_name(word) else {
            let message = format!("unknown operation {}, expected one of the operation table", quote(word));
            let names = Opcode::ALL.iter().map(|o| o.name()).chain(["call"]);
            return Err(CodegenError::new(Code::E0004, self.tok.loc(), message).did_you_mean(word, names));
        };
        self.bump()?;
        match opcode {
            Opcode::For => self.for_op(block, start, names),
            Opcode::Loop => self.loop_op(block, start, names),
            Opcode::If => self.if_op(block, start, names),
            Opcode::AsyncPipelineAgentSwitch => self.agent_switch(block, start, names),
            _ => {
                let op = self.plain_op(block, opcode, start, &names)?;
                if let (true, Some(top)) = (opcode.is_terminator(), self.stack.last_mut()) {
                    top.closed = true;
                }
                self.finish(Owner { op, start, names })
            }
        }
    }

    /// What may stand here in a function: nothing behind its `return`, no other end, and nothing that leaves a loop of its callers.
    fn check_function(&self, word: &str) -> CodegenResult<()> {
        let wrong = |message: &str| Err(CodegenError::new(Code::E0011, self.tok.loc(), message));
        let outermost = self.stack.len() == 1;
        if outermost && self.stack.last().is_some_and(|top| top.closed) {
            return wrong("an operation behind the end of the function");
        }
        if outermost && word == "yield" {
            return wrong("unexpected `yield`, expected `return`: that is how a function ends");
        }
        let loops = |o: &Opcode| matches!(o, Opcode::For | Opcode::Loop);
        let owners = self.stack.iter().filter_map(|open| open.owner.as_ref());
        let in_loop = owners.map(|o| self.f.opcode(o.op)).any(|o| loops(&o));
        if matches!(word, "break" | "continue" | "exit_if") && !in_loop {
            return wrong("a function does not leave the loops of its callers");
        }
        Ok(())
    }

    /// `%a, %b = call @name(%x, 1)`: the function, written out.
    fn call(&mut self, block: Block, start: usize, names: Names<'a>) -> CodegenResult<()> {
        self.bump()?;
        let Tok::Symbol(name) = self.tok.tok else {
            return Err(self.unexpected("the name of a function `@…`"));
        };
        let at = self.tok.loc();
        self.bump()?;
        // It is put back below: ops are added to the kernel meanwhile.
        let Some(helper) = self.helpers.remove(name) else {
            if self.in_combiner {
                let message = "a `by` function calls none, expected element-wise operations";
                return Err(CodegenError::new(Code::E0011, at, message));
            }
            let mut known: SmallVec<[&str; 8]> = self.helpers.keys().copied().collect();
            known.sort_unstable();
            let message = format!("unknown function `@{name}`, expected one that is defined before");
            let error = CodegenError::new(Code::E0011, at, message).did_you_mean(name, known);
            return Err(error.note(Loc::NONE, "a function calls those before it, so none calls itself"));
        };
        if helper.is_broken {
            self.consequence = true;
            self.helpers.insert(name, helper);
            return Err(CodegenError::new(Code::E0011, at, "a function that was not understood"));
        }
        let done = self.write_out(&helper, block, start, name, &names);
        self.helpers.insert(name, helper);
        done
    }

    fn write_out(
        &mut self,
        helper: &Helper,
        block: Block,
        start: usize,
        name: &str,
        names: &Names<'a>,
    ) -> CodegenResult<()> {
        self.expect("(")?;
        let mut written: SmallVec<[Operand; 8]> = SmallVec::new();
        if !self.eat(")")? {
            loop {
                written.push(self.operand()?);
                if !self.eat(",")? {
                    break;
                }
            }
            if !self.eat(")")? {
                return Err(self.unexpected("`,` or `)`"));
            }
        }
        let said = if self.eat(":")? { Some(self.types()?) } else { None };
        let loc = Loc::new(start, self.last_end);
        let wrong = |message: String| Err(CodegenError::new(Code::E0011, loc, message));
        let params = helper.func.params();
        if written.len() != params.len() {
            let (have, want) = (written.len(), params.len());
            return wrong(format!("`@{name}` takes {want} values, but got {have}"));
        }
        let mut args: SmallVec<[Value; 8]> = SmallVec::new();
        for (n, (operand, &param)) in written.iter().zip(params).enumerate() {
            let want = helper.func.value_data(param);
            let ty = self.f.intern_type(want.clone());
            let v = match *operand {
                Operand::Value(v) => v,
                Operand::Literal(number, loc) => self.literal(block, number, ty, loc)?,
            };
            if self.f.value_type(v) != ty {
                let have = self.f.value_data(v);
                return wrong(format!("`@{name}` takes {want} as value {}, but got {have}", n + 1));
            }
            args.push(v);
        }
        self.num_ops += helper.num_ops;
        if self.num_ops > self.limits.max_ops {
            return Err(self.too_large(loc, "too many operations", self.limits.max_ops as u64));
        }
        let results = inline::inline(&mut self.f, &helper.func, &args, |f, op| f.append_op(block, op));
        if !names.is_empty() && names.len() != results.len() {
            return wrong(format!(
                "`@{name}` returns {} values, but {} are named",
                results.len(),
                names.len()
            ));
        }
        let agree = said.is_none_or(|t| t.iter().copied().eq(results.iter().map(|&v| self.f.value_type(v))));
        if !agree {
            let have: Vec<String> = results.iter().map(|&v| self.f.value_data(v).to_string()).collect();
            return wrong(format!("`@{name}` returns {}, but other types are written", have.join(", ")));
        }
        // What it hands on is known already by the name that it had.
        names.iter().zip(results).try_for_each(|(&(name, loc), v)| {
            let named = self.f.value_sym(v);
            self.define(name, loc, v)?;
            if let Some(first) = named {
                self.f.set_value_sym(v, first);
            }
            Ok(())
        })
    }

    /// `return %a, %b` at the end of a function.
    fn return_values(&mut self, block: Block, start: usize) -> CodegenResult<()> {
        let wrong = |at: Loc, message: String| Err(CodegenError::new(Code::E0011, at, message));
        if self.stack.len() > 1 {
            return wrong(
                self.tok.loc(),
                "a function returns at its end, not inside of loops and branches".into(),
            );
        }
        self.bump()?;
        let types = self.returns.clone().unwrap_or_default();
        let mut values: SmallVec<[Value; 2]> = SmallVec::new();
        for (n, &ty) in types.iter().enumerate() {
            let missing = if n > 0 { !self.eat(",")? } else { self.operands_end() };
            if missing {
                return wrong(
                    Loc::new(start, self.last_end),
                    format!("{n} values are returned, expected {}", types.len()),
                );
            }
            let v = match self.operand()? {
                Operand::Value(v) => v,
                Operand::Literal(number, loc) => self.literal(block, number, ty, loc)?,
            };
            if self.f.value_type(v) != ty {
                let (have, want) = (self.f.value_data(v), self.f.type_data(ty));
                return wrong(
                    Loc::new(start, self.last_end),
                    format!("expected {want} as value {}, but got {have}", n + 1),
                );
            }
            values.push(v);
        }
        if self.at(",") || types.is_empty() && !self.operands_end() {
            let many = format!("more values are returned than the {} of the function", types.len());
            return wrong(self.tok.loc(), many);
        }
        if self.eat(":")? && self.types()? != types {
            return wrong(
                Loc::new(start, self.last_end),
                "`return` shows other types than its values have".into(),
            );
        }
        if let Some(top) = self.stack.last_mut() {
            top.closed = true;
        }
        let loc = Loc::new(start, self.last_end);
        self.new_op(block, Opcode::Yield, &values, &[values.len() as u32], &[], loc).map(|_| ())
    }

    /// The end of an op: its range is known and its results get their names.
    fn finish(&mut self, owner: Owner<'a>) -> CodegenResult<()> {
        self.f.set_op_loc(owner.op, Loc::new(owner.start, self.last_end));
        for (i, &(name, loc)) in owner.names.iter().enumerate() {
            if let Some(&v) = self.f.results(owner.op).get(i) {
                self.define(name, loc, v)?;
            }
        }
        Ok(())
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
        // `nan` is a word where a word is wanted.
        for a in
            def.attrs.iter().filter(|a| matches!(a.kind, AttrKind::Enum(words) if words.contains(&"nan")))
        {
            let number = |v| matches!(self.f.attr_data(v), AttrData::Float(x, _) if x.get().is_nan());
            if inherent.get(a.key).is_some_and(number) {
                let word = self.f.intern_symbol("nan");
                inherent.set(a.key, self.f.intern_attr(AttrData::Name(word)));
            }
        }
        let discardable = if self.eat("{")? { self.dict("}")? } else { AttrDict::default() };
        let types = if self.eat(":")? { Some(self.types()?) } else { None };
        let loc = Loc::new(start, self.last_end);
        let said = types.as_ref().filter(|t| t.len() == 1).map(|t| t[0]);
        let operands = self.resolve(block, def, &written, said, loc)?;
        let results = self.result_types(def, &operands, &written.segments, names.len(), types, loc)?;
        let op = self.new_op(block, opcode, &operands, &written.segments, &results, loc)?;
        *self.f.inherent_mut(op) = inherent;
        *self.f.discardable_mut(op) = discardable;
        Ok(op)
    }

    /// The operands of an op, segment by segment. Too few or too many are for the verifier to report, as long as the
    /// text is a list of operands: missing ones leave their segments empty, further ones go to the last segment.
    fn operands(&mut self, def: &OpDef) -> CodegenResult<Operands> {
        let mut out = Operands::default();
        let mut first = true;
        let mut owner_empty = true;
        for (n, seg) in def.operands.iter().enumerate() {
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
                    let last = n + 1 == def.operands.len();
                    while (last || seg.arity == Arity::Many) && self.eat(",")? {
                        out.list.push(self.operand()?);
                    }
                }
            }
            let len = out.list.len() - before;
            if let (0, Some(word), Tok::Word(at)) = (len, seg.keyword, self.tok.tok)
                && word == at
                && self.peek() == Some(Tok::Punct("("))
            {
                return Err(self.unexpected(&format!("`,` before `{word}(…)`")));
            }
            if !seg.bracket {
                owner_empty = len == 0;
            }
            out.segments.push(len as u32);
        }
        Ok(out)
    }

    /// Whether a segment is written here. One that must be there is, unless the list of operands ends here.
    fn segment_follows(&self, seg: &Segment, first: bool) -> bool {
        if seg.arity == Arity::One {
            return !self.operands_end();
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

    /// Whether here stands what may follow a list of operands.
    fn operands_end(&self) -> bool {
        match self.tok.tok {
            Tok::Eof | Tok::Punct("<{" | "{" | "}" | ":") => true,
            Tok::Word(_) => Self::number_of(self.tok.tok).is_none(),
            Tok::Value(_) => self.names_of_next_op(),
            _ => false,
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
        said: Option<Type>,
        at: Loc,
    ) -> CodegenResult<SmallVec<[Value; 8]>> {
        // Operands that must agree in type: literals among them take the type of the others, or of the result, as written.
        let alike = fit::alike(def.rule, written.list.len());
        let value = |operand: &Operand| match *operand {
            Operand::Value(v) => Some(v),
            Operand::Literal(..) => None,
        };
        let first = written.list[alike.clone()].iter().find_map(value);
        let numbered = written.list.iter().enumerate().filter_map(|(n, o)| Some((n, value(o)?)));
        let wider = fit::common_extents(&self.f, def.rule, numbered);
        let known = first.map(|v| match (&wider, self.f.value_data(v).elem()) {
            (Some(extents), Some(elem)) => self.f.intern_type(TypeData::tile(extents, elem)),
            _ => self.f.value_type(v),
        });
        let of_result = matches!(def.rule, Rule::Same | Rule::Select);
        let known = known.or(said.filter(|_| of_result));
        let numbered = written.list.iter().enumerate().filter_map(|(n, o)| Some((n, value(o)?)));
        let alone = known.filter(|_| first.is_none() && wider.is_none());
        let wider = wider.or_else(|| fit::extents_of(&self.f, def.rule, numbered, alone?));
        let mut out = SmallVec::new();
        let mut index = 0;
        for (seg, &len) in def.operands.iter().zip(&written.segments) {
            for _ in 0..len {
                let v = match written.list[index] {
                    Operand::Value(v) => {
                        let to = wider.as_deref();
                        match to.and_then(|to| fit::widening(&mut self.f, def.rule, index, v, to)) {
                            Some((opcode, ty)) => {
                                let op = self.new_op(block, opcode, &[v], &[1], &[ty], at)?;
                                self.f.results(op)[0]
                            }
                            None => v,
                        }
                    }
                    Operand::Literal(number, loc) => {
                        // Coordinates, and what a pointer is moved on by.
                        let behind = |v: &Operand| match *v {
                            Operand::Value(v) => matches!(self.f.value_data(v), TypeData::Ptr { .. }),
                            Operand::Literal(..) => false,
                        };
                        let counts = seg.bracket
                            || def.rule == Rule::First && written.list.first().is_some_and(behind);
                        let ty = if counts { Some(self.f.scalar(Scalar::I32)) } else { known };
                        let ty = ty.filter(|_| counts || alike.contains(&index));
                        let Some(ty) = ty else {
                            let text = quote(self.lex.slice(loc.start as usize, loc.end as usize));
                            let message = format!(
                                "the type of literal {text} is not known here, expected a value, such as that of a `constant`"
                            );
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
        if def.traits.has(Traits::TERMINATOR) {
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
        Ok(types)
    }

    /// The result type that the op's typing rule fixes, if it does.
    fn infer(&mut self, def: &OpDef, operands: &[Value], segments: &[u32]) -> Option<Type> {
        match def.rule {
            Rule::Same | Rule::First => Some(self.f.value_type(*operands.first()?)),
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

    fn for_op(&mut self, block: Block, start: usize, names: Names<'a>) -> CodegenResult<()> {
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
        let (iters, types) = self.iter_list(block, &mut operands)?;
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
        let close = types.is_empty().then_some(Opcode::Yield);
        self.open(Some(Owner { op, start, names }), body, &params, close)
    }

    /// `iter (%x = %init : type, …)`, if it stands here: names and types; the initial values go to `operands`.
    fn iter_list(
        &mut self,
        block: Block,
        operands: &mut SmallVec<[Value; 8]>,
    ) -> CodegenResult<(Iters<'a>, Types)> {
        let mut iters = Iters::new();
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
        Ok((iters, types))
    }

    /// `loop iter (…) : types {`. Without types the results are what the loop carries, if they have names.
    fn loop_op(&mut self, block: Block, start: usize, names: Names<'a>) -> CodegenResult<()> {
        let mut operands: SmallVec<[Value; 8]> = SmallVec::new();
        let (iters, types) = self.iter_list(block, &mut operands)?;
        let (inherent, discardable) = self.region_dicts()?;
        let results = if self.at(":") || names.len() != types.len() {
            self.region_types(Opcode::Loop, start, &names)?
        } else {
            types.clone()
        };
        let loc = Loc::new(start, self.last_end);
        let op = self.new_op(block, Opcode::Loop, &operands, &[types.len() as u32], &results, loc)?;
        *self.f.inherent_mut(op) = inherent;
        *self.f.discardable_mut(op) = discardable;
        let body = self.f.add_region(op);
        let mut params: SmallVec<[(&'a str, Loc, Value); 4]> = SmallVec::new();
        for (&(name, loc), &ty) in iters.iter().zip(&types) {
            params.push((name, loc, self.f.add_block_param(body, ty)));
        }
        let close = types.is_empty().then_some(Opcode::Continue);
        self.open(Some(Owner { op, start, names }), body, &params, close)
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

    fn if_op(&mut self, block: Block, start: usize, names: Names<'a>) -> CodegenResult<()> {
        let condition = self.value()?;
        let (inherent, discardable) = self.region_dicts()?;
        let types = self.region_types(Opcode::If, start, &names)?;
        let loc = Loc::new(start, self.last_end);
        let op = self.new_op(block, Opcode::If, &[condition], &[1], &types, loc)?;
        *self.f.inherent_mut(op) = inherent;
        *self.f.discardable_mut(op) = discardable;
        let close = types.is_empty().then_some(Opcode::Yield);
        let then = self.f.add_region(op);
        self.open(Some(Owner { op, start, names }), then, &[], close)
    }

    /// Behind a region's `}`: the op's next region, or its end. `close` as for the region before.
    pub(super) fn next_region(&mut self, owner: Owner<'a>, close: Option<Opcode>) -> CodegenResult<()> {
        match self.f.opcode(owner.op) {
            Opcode::AsyncPipelineAgentSwitch => return self.agent(owner),
            Opcode::If if self.f.regions(owner.op).len() == 1 => {
                if self.eat_word("else")? {
                    let other = self.f.add_region(owner.op);
                    return self.open(Some(owner), other, &[], close);
                }
                // With results the missing arm is one region too few, which the verifier reports.
                let Some(opcode) = close else { return self.finish(owner) };
                let other = self.f.add_region(owner.op);
                let end = self.last_end;
                self.new_op(other, opcode, &[], &[], &[], Loc::new(end, end))?;
            }
            _ => {}
        }
        self.finish(owner)
    }

    fn agent_switch(&mut self, block: Block, start: usize, names: Names<'a>) -> CodegenResult<()> {
        let opcode = Opcode::AsyncPipelineAgentSwitch;
        let (inherent, discardable) = self.region_dicts()?;
        let types = self.region_types(opcode, start, &names)?;
        let loc = Loc::new(start, self.last_end);
        let op = self.new_op(block, opcode, &[], &[], &types, loc)?;
        *self.f.inherent_mut(op) = inherent;
        *self.f.discardable_mut(op) = discardable;
        self.expect("{")?;
        self.agent(Owner { op, start, names })
    }

    /// `agent N`, or the `}` behind the last one.
    fn agent(&mut self, owner: Owner<'a>) -> CodegenResult<()> {
        if self.eat("}")? {
            return self.finish(owner);
        }
        if !self.eat_word("agent")? {
            return Err(self.unexpected("`agent` or `}`"));
        }
        let number = self.f.regions(owner.op).len();
        if self.tok.tok != Tok::Int(number as i64) {
            return Err(self.unexpected(&format!("agent number {number}")));
        }
        self.bump()?;
        let region = self.f.add_region(owner.op);
        self.open(Some(owner), region, &[], Some(Opcode::AsyncPipelineYield))
    }
}
