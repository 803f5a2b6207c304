//! Parser of the thread-level IR's text form.
//!
//! In: what [`super::print()`] writes, or text like it written by hand. Out: a [`Module`] or the first error with its byte
//! range. Printing the result gives the same text again; register and block numbers are kept. Only names, numbers and
//! the shape of instructions are checked here: everything else is the verifier's, so broken modules can be written down.
//!
//! Sugar that never prints: comments (`;` or `//` to the end of the line; behind an instruction they are kept), and no
//! type behind a result, where the register has one already or the instruction allows only one.
//!
//! Parts: this file reads modules, functions and block labels; `inst` reads instructions. Guarantee: total, no panic,
//! no recursion; numbers of registers and blocks are bounded. Cost: linear in the text.

mod inst;

use super::forms::{PtxOp, Target, Ty};
use super::module::{
    Bb, Function, LaunchBounds, Linkage, Module, ParamData, ParamKind, Reg, RegTy, SymData, SymKind,
};
use crate::error::{Code, CodegenError, CodegenResult, Loc};
use crate::ir::lexer::quote;
use cranelift_entity::{EntityRef, EntitySet};

/// Numbers of registers and blocks stay below this: they index dense maps.
const MAX_NUMBER: u64 = 1 << 20;

/// Parses a module.
///
/// # Errors
/// `E0920` to `E0924`, located; `E0010` for texts beyond 4 GiB.
pub fn parse(text: &str) -> CodegenResult<Module> {
    if text.len() >= u32::MAX as usize {
        let message = format!("text of {} bytes, expected at most {}", text.len(), u32::MAX - 1);
        return Err(CodegenError::new(Code::E0010, Loc::NONE, message));
    }
    let mut p = Parser {
        text,
        pos: 0,
        module: Module::new(Target::ALL[0]), // The text names another one.
        types: Vec::new(),
        forms: inst::by_mnemonic(),
        trial: inst::Trial::default(),
    };
    p.module()?;
    Ok(p.module)
}

/// What is known of a register's type.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
enum Known {
    /// Nothing.
    #[default]
    No,
    /// Read where this class is wanted; the first such place counts.
    Used(Ty),
    /// Written, with this type.
    Defined(RegTy),
}

struct Parser<'t> {
    text: &'t str,
    pos: usize,
    module: Module,
    /// By register of the function at hand.
    types: Vec<Known>,
    /// All forms, sorted by mnemonic, those of one mnemonic in table order.
    forms: Vec<PtxOp>,
    trial: inst::Trial,
}

fn is_word_byte(b: u8) -> bool {
    b.is_ascii_alphanumeric() || matches!(b, b'_' | b'$' | b'.')
}

impl<'t> Parser<'t> {
    // ---- characters and words

    fn rest(&self) -> &'t str {
        self.text.get(self.pos..).unwrap_or("")
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.pos).copied()
    }

    /// Skips spaces inside a line.
    fn blanks(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r')) {
            self.pos += 1;
        }
    }

    fn at_comment(&self) -> bool {
        self.peek() == Some(b';') || self.rest().starts_with("//")
    }

    fn skip_line(&mut self) {
        let rest = self.rest();
        self.pos += rest.find('\n').unwrap_or(rest.len());
    }

    /// Skips spaces, comments and line ends.
    fn lines(&mut self) {
        loop {
            self.blanks();
            match self.peek() {
                Some(b'\n') => self.pos += 1,
                _ if self.at_comment() => self.skip_line(),
                _ => return,
            }
        }
    }

    /// The end of a line, perhaps behind a comment.
    fn end_of_line(&mut self) -> CodegenResult<()> {
        self.blanks();
        if self.at_comment() {
            self.skip_line();
        }
        match self.peek() {
            None => Ok(()),
            Some(b'\n') => {
                self.pos += 1;
                Ok(())
            }
            Some(_) => self.expected("the end of the line"),
        }
    }

    /// The word that starts here; empty if none does.
    fn word(&mut self) -> &'t str {
        self.blanks();
        let rest = self.rest();
        let end = rest.bytes().position(|b| !is_word_byte(b)).unwrap_or(rest.len());
        self.pos += end;
        &rest[..end]
    }

    fn peek_word(&mut self) -> &'t str {
        let start = self.pos;
        let word = self.word();
        self.pos = start;
        word
    }

    /// Takes the word if it stands here.
    fn eat_word(&mut self, want: &str) -> bool {
        let start = self.pos;
        if self.word() == want {
            return true;
        }
        self.pos = start;
        false
    }

    /// Takes the text if it stands here; for punctuation.
    fn eat(&mut self, want: &str) -> bool {
        self.blanks();
        let found = self.rest().starts_with(want);
        if found {
            self.pos += want.len();
        }
        found
    }

    fn expect(&mut self, want: &str) -> CodegenResult<()> {
        if self.eat(want) { Ok(()) } else { self.expected(&format!("`{want}`")) }
    }

    fn expect_word(&mut self, want: &str) -> CodegenResult<()> {
        if self.eat_word(want) { Ok(()) } else { self.expected(&format!("`{want}`")) }
    }

    // ---- errors

    fn error<T>(&self, code: Code, start: usize, message: String) -> CodegenResult<T> {
        Err(CodegenError::new(code, Loc::new(start, self.pos.max(start)), message))
    }

    /// `E0920` at what stands here.
    fn expected<T>(&mut self, what: &str) -> CodegenResult<T> {
        self.blanks();
        let start = self.pos;
        let line = self.rest().lines().next().unwrap_or("");
        let found = match (line.split_whitespace().next(), self.peek()) {
            (Some(word), _) => {
                self.pos += word.len();
                quote(word)
            }
            (None, None) => "the end of the text".to_owned(),
            (None, Some(_)) => "the end of the line".to_owned(),
        };
        self.error(Code::E0920, start, format!("expected {what}, found {found}"))
    }

    // ---- small parts

    /// A decimal number of at most `max`.
    fn number(&mut self, what: &str, max: u64) -> CodegenResult<u64> {
        self.blanks();
        let start = self.pos;
        let digits = self.peek_word();
        if !digits.bytes().next().is_some_and(|b| b.is_ascii_digit()) {
            return self.expected(what);
        }
        self.pos += digits.len();
        match digits.parse::<u64>() {
            Ok(n) if n <= max => Ok(n),
            _ => self.error(
                Code::E0923,
                start,
                format!("{what} {} is no number from 0 to {max}", quote(digits)),
            ),
        }
    }

    fn number32(&mut self, what: &str) -> CodegenResult<u32> {
        Ok(self.number(what, u64::from(u32::MAX))? as u32)
    }

    /// `@name`.
    fn symbol_name(&mut self) -> CodegenResult<String> {
        self.expect("@")?;
        match self.word() {
            "" => self.expected("a name"),
            name => Ok(name.to_owned()),
        }
    }

    /// The number behind a prefix, `bb7` or `%v7`: `None` if something else stands here, which stays.
    fn numbered(&mut self, prefix: &str, what: &str) -> CodegenResult<Option<usize>> {
        self.blanks();
        let start = self.pos;
        let Some(rest) = self.rest().strip_prefix(prefix) else { return Ok(None) };
        let end = rest.bytes().position(|b| !is_word_byte(b)).unwrap_or(rest.len());
        let digits = &rest[..end];
        if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
            return Ok(None);
        }
        self.pos += prefix.len() + end;
        match digits.parse::<u64>() {
            Ok(n) if n < MAX_NUMBER => Ok(Some(n as usize)),
            _ => self.error(Code::E0923, start, format!("{what} {digits} is not below {MAX_NUMBER}")),
        }
    }

    fn block(&mut self, func: &mut Function) -> CodegenResult<Option<Bb>> {
        let Some(n) = self.numbered("bb", "block")? else { return Ok(None) };
        while func.blocks.len() <= n {
            func.block();
        }
        Ok(Some(Bb::new(n)))
    }

    // ---- modules and functions

    fn module(&mut self) -> CodegenResult<()> {
        self.lines();
        self.expect_word("target")?;
        self.blanks();
        let start = self.pos;
        let name = self.word();
        match Target::from_name(name) {
            Some(target) => self.module.target = target,
            None => {
                return self.error(Code::E0922, start, format!("no PTX target is called {}", quote(name)));
            }
        }
        self.end_of_line()?;
        loop {
            self.lines();
            match self.peek_word() {
                "" if self.peek().is_none() => return Ok(()),
                "shared" | "global" => self.symbol()?,
                "kernel" | "func" => self.function()?,
                _ => return self.expected("`kernel`, `func`, `shared` or `global`"),
            }
        }
    }

    fn symbol(&mut self) -> CodegenResult<()> {
        let global = self.word() == "global";
        let name = self.symbol_name()?;
        let kind = if !global && self.eat_word("dynamic") {
            SymKind::DynamicShared
        } else {
            self.expect_word("bytes")?;
            let bytes = self.number32("a size")?;
            if global { SymKind::Global { bytes } } else { SymKind::Shared { bytes } }
        };
        self.expect_word("align")?;
        let align = self.number32("an alignment")?;
        let mut init = Vec::new();
        if global && self.eat_word("init") {
            self.expect("[")?;
            while !self.eat("]") {
                if !init.is_empty() {
                    self.expect(",")?;
                }
                let start = self.pos;
                match u8::try_from(self.number32("a byte")?) {
                    Ok(byte) => init.push(byte),
                    Err(_) => return self.error(Code::E0921, start, "expected a byte".to_owned()),
                }
            }
        }
        self.module.symbols.push(SymData { name, kind, align, init });
        self.end_of_line()
    }

    fn param(&mut self) -> CodegenResult<ParamData> {
        let name = match self.word() {
            "" => return self.expected("a parameter name"),
            name => name.to_owned(),
        };
        self.expect(":")?;
        self.blanks();
        let start = self.pos;
        let kind = match self.word() {
            "tensor_map" => ParamKind::TensorMap,
            "b8" => ParamKind::B8,
            "b16" => ParamKind::B16,
            "u32" => ParamKind::U32,
            "u64" => ParamKind::U64,
            "f32" => ParamKind::F32,
            "ptr" => {
                self.expect("<")?;
                self.expect_word("global")?;
                self.expect(",")?;
                self.expect_word("align")?;
                let align = self.number32("an alignment")?;
                self.expect(">")?;
                ParamKind::Pointer { align }
            }
            _ => {
                self.pos = start;
                return self.expected("a parameter type");
            }
        };
        Ok(ParamData { name, kind })
    }

    fn dims(&mut self) -> CodegenResult<[u32; 3]> {
        let mut dims = [0; 3];
        for (i, d) in dims.iter_mut().enumerate() {
            self.expect(if i == 0 { "[" } else { "," })?;
            *d = self.number32("an extent")?;
        }
        self.expect("]")?;
        Ok(dims)
    }

    fn function(&mut self) -> CodegenResult<()> {
        let is_kernel = self.word() == "kernel";
        let mut func = Function::kernel(self.symbol_name()?);
        func.is_kernel = is_kernel;
        self.types.clear();
        self.expect("(")?;
        while !self.eat(")") {
            if !func.params.is_empty() {
                self.expect(",")?;
            }
            let param = self.param()?;
            func.params.push(param);
        }
        self.function_attributes(&mut func)?;
        self.end_of_line()?;
        let mut current = None;
        let mut placed = EntitySet::new();
        loop {
            self.lines();
            if self.eat("}") {
                break;
            }
            let start = self.pos;
            if let Some(bb) = self.block(&mut func)? {
                if !placed.insert(bb) {
                    return self.error(Code::E0924, start, format!("{bb} is placed twice"));
                }
                self.label(&mut func, bb)?;
                func.append_block(bb);
                current = Some(bb);
            } else if let (Some(bb), Some(_)) = (current, self.peek()) {
                self.instruction(&mut func, bb)?;
            } else {
                return self.expected(if current.is_none() { "a block label or `}`" } else { "`}`" });
            }
        }
        self.end_of_line()?;
        for (i, known) in self.types.iter().enumerate() {
            func.reg_ty[Reg::new(i)] = match *known {
                Known::No => RegTy::default(),
                Known::Defined(ty) => ty,
                Known::Used(ty) => ty.register(),
            };
        }
        self.module.functions.push(func);
        Ok(())
    }

    fn function_attributes(&mut self, func: &mut Function) -> CodegenResult<()> {
        let mut launch = LaunchBounds::default();
        while !self.eat("{") {
            self.blanks();
            let start = self.pos;
            match self.word() {
                "linkage" => {
                    self.blanks();
                    let start = self.pos;
                    func.linkage = match self.word() {
                        "visible" => Linkage::Visible,
                        "weak" => Linkage::Weak,
                        "local" => Linkage::Local,
                        _ => {
                            self.pos = start;
                            return self.expected("`visible`, `weak` or `local`");
                        }
                    };
                }
                "reqntid" => launch.reqntid = Some(self.dims()?),
                "maxntid" => launch.maxntid = Some(self.dims()?),
                "cluster" => launch.cluster = Some(self.dims()?),
                "minnctapersm" => launch.minnctapersm = Some(self.number32("a count")?),
                "maxnreg" => launch.maxnreg = Some(self.number32("a count")?),
                "local" => func.local_bytes = self.number32("a size")?,
                "nounroll" => func.nounroll = true,
                "text" => func.texts.push(self.quoted()?),
                _ => {
                    self.pos = start;
                    return self.expected("a function attribute or `{`");
                }
            }
        }
        func.launch = launch;
        Ok(())
    }

    /// A text in quotes.
    fn quoted(&mut self) -> CodegenResult<String> {
        self.expect("\"")?;
        let line = self.rest().lines().next().unwrap_or("");
        let mut escaped = false;
        let end = line.bytes().position(|b| {
            let ends = b == b'"' && !escaped;
            escaped = b == b'\\' && !escaped;
            ends
        });
        let Some(end) = end else { return self.expected("a text in quotes") };
        let text = crate::ir::lexer::unescape(&line[..end]);
        self.pos += end + 1;
        Ok(text)
    }

    /// The rest of a block label: name, marks, colon.
    fn label(&mut self, func: &mut Function, bb: Bb) -> CodegenResult<()> {
        if self.eat("\"") {
            // A name may hold quotes, but nothing behind it on its line does.
            let line = self.rest().lines().next().unwrap_or("");
            let Some(end) = line.rfind('"') else {
                return self.expected("a name in quotes");
            };
            func.blocks[bb].name = Some(line[..end].to_owned());
            self.pos += end + 1;
        }
        loop {
            let data = &mut func.blocks[bb];
            if self.eat_word("nounroll") {
                data.nounroll = true;
            } else if self.eat_word("agent") {
                data.agent = true;
            } else {
                break;
            }
        }
        self.expect(":")?;
        self.end_of_line()
    }
}
