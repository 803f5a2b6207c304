//! Tokens of the text form, made on demand with exact byte ranges.
//!
//! In: UTF-8 text. Out: one token at a time. Comments run from `;` or `//` to the end of the line. Total: any text
//! gives tokens or an `E0001`/`E0003` error with its place.

use crate::error::{Code, CodegenError, CodegenResult, Loc};

/// A token; text is taken from the source by its location.
#[derive(Copy, Clone, PartialEq, Debug)]
pub enum Token {
    /// `name`, `name.with.dots`.
    Ident,
    /// `%name`.
    Value,
    /// `@name`.
    Symbol,
    /// An integer.
    Int(i64),
    /// A float.
    Float(f64),
    /// `"…"` (escapes not yet resolved).
    Str,
    /// One of `( ) [ ] { } < > = , : ? -`.
    Punct(u8),
    /// End of input.
    End,
}

/// The lexer: a cursor with one token of look-ahead.
pub struct Lexer<'a> {
    src: &'a str,
    pos: usize,
    peeked: Option<(Token, Loc)>,
    /// End of the last token taken.
    pub last_end: usize,
}

fn is_ident_start(b: u8) -> bool {
    b.is_ascii_alphabetic() || b == b'_'
}

fn is_ident(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b == b'_' || b == b'.' || b == b'$'
}

impl<'a> Lexer<'a> {
    /// Starts at the beginning of `src`.
    pub fn new(src: &'a str) -> Lexer<'a> {
        Lexer { src, pos: 0, peeked: None, last_end: 0 }
    }

    /// The text of a location.
    pub fn text(&self, loc: Loc) -> &'a str {
        loc.range().and_then(|r| self.src.get(r)).unwrap_or("")
    }

    fn skip_space(&mut self) {
        let b = self.src.as_bytes();
        while let Some(&c) = b.get(self.pos) {
            if c.is_ascii_whitespace() {
                self.pos += 1;
            } else if c == b';' || (c == b'/' && b.get(self.pos + 1) == Some(&b'/')) {
                while b.get(self.pos).is_some_and(|&c| c != b'\n') {
                    self.pos += 1;
                }
            } else {
                break;
            }
        }
    }

    /// The next token without taking it.
    pub fn peek(&mut self) -> CodegenResult<(Token, Loc)> {
        if let Some(t) = self.peeked {
            return Ok(t);
        }
        let t = self.scan()?;
        self.peeked = Some(t);
        Ok(t)
    }

    /// Takes the next token.
    pub fn next(&mut self) -> CodegenResult<(Token, Loc)> {
        let t = self.peek()?;
        self.peeked = None;
        self.last_end = t.1.end as usize;
        Ok(t)
    }

    /// Takes a run of `[A-Za-z0-9_?.]` where a token would start: dimension lists such as `128x?xf16`.
    pub fn word(&mut self) -> (&'a str, Loc) {
        if let Some((_, loc)) = self.peeked.take() {
            self.pos = loc.start as usize;
        }
        self.skip_space();
        let start = self.pos;
        let b = self.src.as_bytes();
        while b.get(self.pos).is_some_and(|&c| c.is_ascii_alphanumeric() || c == b'_' || c == b'?') {
            self.pos += 1;
        }
        self.last_end = self.pos;
        (&self.src[start..self.pos], Loc::new(start, self.pos))
    }

    fn scan(&mut self) -> CodegenResult<(Token, Loc)> {
        self.skip_space();
        let b = self.src.as_bytes();
        let start = self.pos;
        let Some(&c) = b.get(start) else { return Ok((Token::End, Loc::new(start, start))) };
        let run = |from: usize| {
            let mut e = from;
            while b.get(e).is_some_and(|&c| is_ident(c)) {
                e += 1;
            }
            e
        };
        let token = match c {
            c if is_ident_start(c) => {
                self.pos = run(start);
                Token::Ident
            }
            b'%' | b'@' => {
                let e = run(start + 1);
                if e == start + 1 {
                    return Err(self.error(Code::E0001, start, start + 1, "a name must follow"));
                }
                self.pos = e;
                if c == b'%' { Token::Value } else { Token::Symbol }
            }
            b'0'..=b'9' => return self.number(start),
            b'-' if b.get(start + 1).is_some_and(u8::is_ascii_digit) => return self.number(start),
            b'"' => {
                let mut e = start + 1;
                loop {
                    match b.get(e) {
                        Some(b'"') => break,
                        Some(b'\\') => e += 2,
                        Some(b'\n') | None => {
                            return Err(self.error(
                                Code::E0003,
                                start,
                                e.min(b.len()),
                                "string without closing quote",
                            ));
                        }
                        Some(_) => e += 1,
                    }
                }
                self.pos = e + 1;
                Token::Str
            }
            b'(' | b')' | b'[' | b']' | b'{' | b'}' | b'<' | b'>' | b'=' | b',' | b':' | b'?' | b'-' => {
                self.pos = start + 1;
                Token::Punct(c)
            }
            _ => {
                let len = self.src[start..].chars().next().map_or(1, char::len_utf8);
                let what = format!("unexpected character `{}`", self.src[start..start + len].escape_debug());
                return Err(CodegenError::new(Code::E0001, Loc::new(start, start + len), what));
            }
        };
        Ok((token, Loc::new(start, self.pos)))
    }

    fn error(&self, code: Code, start: usize, end: usize, message: &str) -> CodegenError {
        CodegenError::new(code, Loc::new(start, end), message)
    }

    fn number(&mut self, start: usize) -> CodegenResult<(Token, Loc)> {
        let b = self.src.as_bytes();
        let mut e = start + usize::from(b[start] == b'-');
        let hex = b.get(e) == Some(&b'0')
            && matches!(b.get(e + 1), Some(b'x' | b'X'))
            && b.get(e + 2).is_some_and(u8::is_ascii_hexdigit);
        let mut float = false;
        if hex {
            e += 2;
            while b.get(e).is_some_and(u8::is_ascii_hexdigit) {
                e += 1;
            }
        } else {
            while b.get(e).is_some_and(u8::is_ascii_digit) {
                e += 1;
            }
            if b.get(e) == Some(&b'.') {
                float = true;
                e += 1;
                while b.get(e).is_some_and(u8::is_ascii_digit) {
                    e += 1;
                }
            }
            if matches!(b.get(e), Some(b'e' | b'E')) {
                let mut x = e + 1;
                if matches!(b.get(x), Some(b'+' | b'-')) {
                    x += 1;
                }
                if b.get(x).is_some_and(u8::is_ascii_digit) {
                    float = true;
                    while b.get(x).is_some_and(u8::is_ascii_digit) {
                        x += 1;
                    }
                    e = x;
                }
            }
        }
        let text = &self.src[start..e];
        self.pos = e;
        let loc = Loc::new(start, e);
        let bad = |why: &str| CodegenError::new(Code::E0003, loc, format!("`{text}` {why}"));
        if float {
            let v: f64 = text.parse().map_err(|_| bad("is not a number"))?;
            return Ok((Token::Float(v), loc));
        }
        let value = if hex {
            let digits = &text[text.find(['x', 'X']).map_or(0, |i| i + 1)..];
            let v = i128::from(u64::from_str_radix(digits, 16).map_err(|_| bad("does not fit 64 bits"))?);
            if text.starts_with('-') { -v } else { v }
        } else {
            text.parse::<i128>().map_err(|_| bad("does not fit 64 bits"))?
        };
        match i64::try_from(value) {
            Ok(v) => Ok((Token::Int(v), loc)),
            Err(_) => Err(bad("does not fit a signed 64-bit integer")),
        }
    }
}
