//! Tokens of the text form, made on demand.
//!
//! In: source text. Out: one [`Token`] per call, with its byte range; the parser keeps one token and clones the
//! (two-word) lexer to look further. Extents such as `128x?xf16` are no tokens of their own: the parser asks for
//! them with [`Lexer::dims_word`] where a type wants them, so that `128x64` needs no rule elsewhere.
//!
//! Guarantee: total; every input ends in [`Tok::Eof`] or an error E0001 or E0003, and each call makes progress.
//! Cost: linear, no allocation except for [`unescape`].

use crate::error::{Code, CodegenError, CodegenResult, Loc};

/// What a token is.
#[derive(Copy, Clone, PartialEq, Debug)]
pub enum Tok<'a> {
    /// A bare word, dots allowed: `async.dot`, `b128`.
    Word(&'a str),
    /// `%name`, without the sign.
    Value(&'a str),
    /// `@name`, without the sign.
    Symbol(&'a str),
    /// An integer.
    Int(i64),
    /// A float with a dot or exponent, or `-inf`.
    Float(f64),
    /// The inside of a string, escapes as written; checked.
    Str(&'a str),
    /// A punctuation mark: one of `<{ }> { } ( ) [ ] < > , : =`.
    Punct(&'static str),
    /// End of the text.
    Eof,
}

/// A token and its byte range.
#[derive(Copy, Clone, Debug)]
pub struct Token<'a> {
    /// What it is.
    pub tok: Tok<'a>,
    /// First byte.
    pub start: usize,
    /// One past the last byte.
    pub end: usize,
}

impl Token<'_> {
    /// The byte range as a location.
    pub fn loc(&self) -> Loc {
        Loc::new(self.start, self.end)
    }
}

/// The state of the lexer: text and position.
#[derive(Copy, Clone, Debug)]
pub struct Lexer<'a> {
    text: &'a str,
    pos: usize,
}

/// Whether a byte may start a word.
pub fn is_word_start(b: u8) -> bool {
    b.is_ascii_alphabetic() || b == b'_'
}

/// Whether a byte may stand in a name behind `%` or `@`, or in a word after its first byte.
pub fn is_name_byte(b: u8) -> bool {
    b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'$')
}

/// Whether `s` is lexed as one word.
pub fn is_word(s: &str) -> bool {
    s.bytes().next().is_some_and(is_word_start) && s.bytes().all(is_name_byte)
}

/// Source text for a message: quoted, on one line, shortened.
pub fn quote(text: &str) -> String {
    const LONGEST: usize = 40;
    let short: String = text.chars().take(LONGEST).flat_map(char::escape_debug).collect();
    if text.chars().nth(LONGEST).is_some() { format!("`{short}…`") } else { format!("`{short}`") }
}

impl<'a> Lexer<'a> {
    /// A lexer at the start of `text`.
    pub fn new(text: &'a str) -> Lexer<'a> {
        Lexer { text, pos: 0 }
    }

    /// The text between two positions.
    pub fn slice(&self, start: usize, end: usize) -> &'a str {
        self.text.get(start..end).unwrap_or("")
    }

    /// Goes on behind the character that could not be read.
    pub fn skip_char(&mut self) {
        self.skip_blank();
        let c = self.text.get(self.pos..).and_then(|s| s.chars().next());
        self.pos += c.map_or(0, char::len_utf8);
    }

    /// Whether nothing but blanks stands before a position on its line.
    pub fn begins_line(&self, at: usize) -> bool {
        let before = self.text.as_bytes().get(..at).unwrap_or_default();
        before.iter().rev().take_while(|&&b| b != b'\n').all(u8::is_ascii_whitespace)
    }

    fn byte(&self, at: usize) -> u8 {
        self.text.as_bytes().get(at).copied().unwrap_or(0)
    }

    fn skip_while(&self, mut at: usize, keep: impl Fn(u8) -> bool) -> usize {
        while self.text.as_bytes().get(at).is_some_and(|&b| keep(b)) {
            at += 1;
        }
        at
    }

    fn skip_blank(&mut self) {
        loop {
            self.pos = self.skip_while(self.pos, |b| b.is_ascii_whitespace());
            if self.byte(self.pos) == b';' || (self.byte(self.pos) == b'/' && self.byte(self.pos + 1) == b'/')
            {
                self.pos = self.skip_while(self.pos, |b| b != b'\n');
            } else {
                return;
            }
        }
    }

    fn token(&mut self, tok: Tok<'a>, start: usize, end: usize) -> CodegenResult<Token<'a>> {
        self.pos = end;
        Ok(Token { tok, start, end })
    }

    /// The next token.
    pub fn next_token(&mut self) -> CodegenResult<Token<'a>> {
        self.skip_blank();
        let start = self.pos;
        let Some(&first) = self.text.as_bytes().get(start) else {
            return self.token(Tok::Eof, start, start);
        };
        if is_word_start(first) {
            let end = self.skip_while(start, is_name_byte);
            return self.token(Tok::Word(self.slice(start, end)), start, end);
        }
        if first.is_ascii_digit() || first == b'-' {
            return self.number(start);
        }
        let second = self.byte(start + 1);
        let punct = match (first, second) {
            (b'<', b'{') => "<{",
            (b'}', b'>') => "}>",
            (b'{', _) => "{",
            (b'}', _) => "}",
            (b'(', _) => "(",
            (b')', _) => ")",
            (b'[', _) => "[",
            (b']', _) => "]",
            (b'<', _) => "<",
            (b'>', _) => ">",
            (b',', _) => ",",
            (b':', _) => ":",
            (b'=', _) => "=",
            (b'"', _) => return self.string(start),
            (b'%' | b'@', _) => {
                let end = self.skip_while(start + 1, is_name_byte);
                if end == start + 1 {
                    return Err(self.stray(start, "a name behind it"));
                }
                let name = self.slice(start + 1, end);
                let tok = if first == b'%' { Tok::Value(name) } else { Tok::Symbol(name) };
                return self.token(tok, start, end);
            }
            _ => return Err(self.stray(start, "a name, a number, a string or punctuation")),
        };
        self.token(Tok::Punct(punct), start, start + punct.len())
    }

    /// The error for the character at `start`.
    fn stray(&self, start: usize, wanted: &str) -> CodegenError {
        let c = self.text.get(start..).and_then(|s| s.chars().next()).unwrap_or(' ');
        let end = start + c.len_utf8();
        let text = quote(self.slice(start, end));
        CodegenError::new(
            Code::E0001,
            Loc::new(start, end),
            format!("unexpected character {text}, expected {wanted}"),
        )
    }

    fn malformed(&self, start: usize, end: usize, what: &str) -> CodegenError {
        let text = quote(self.slice(start, end));
        CodegenError::new(Code::E0003, Loc::new(start, end), format!("{what}: {text}"))
    }

    fn number(&mut self, start: usize) -> CodegenResult<Token<'a>> {
        let digits = start + usize::from(self.byte(start) == b'-');
        if self.text.get(digits..digits + 3) == Some("inf") && !is_name_byte(self.byte(digits + 3)) {
            return self.token(Tok::Float(f64::NEG_INFINITY), start, digits + 3);
        }
        if !self.byte(digits).is_ascii_digit() {
            return Err(self.stray(start, "a digit behind it"));
        }
        let mut end = self.skip_while(digits, |b| b.is_ascii_digit());
        let mut float = false;
        if self.byte(end) == b'.' && self.byte(end + 1).is_ascii_digit() {
            float = true;
            end = self.skip_while(end + 1, |b| b.is_ascii_digit());
        }
        if matches!(self.byte(end), b'e' | b'E') {
            let exponent = end + 1 + usize::from(matches!(self.byte(end + 1), b'+' | b'-'));
            if self.byte(exponent).is_ascii_digit() {
                float = true;
                end = self.skip_while(exponent, |b| b.is_ascii_digit());
            }
        }
        if is_name_byte(self.byte(end)) {
            let end = self.skip_while(end, is_name_byte);
            return Err(self.malformed(start, end, "malformed number, expected an integer or a float"));
        }
        let text = self.slice(start, end);
        let tok = if float {
            text.parse().ok().filter(|v: &f64| v.is_finite()).map(Tok::Float)
        } else {
            text.parse().ok().map(Tok::Int)
        };
        match tok {
            Some(tok) => self.token(tok, start, end),
            None => Err(self.malformed(start, end, "number out of range, expected 64 bits")),
        }
    }

    fn string(&mut self, start: usize) -> CodegenResult<Token<'a>> {
        let mut at = start + 1;
        loop {
            match self.byte(at) {
                b'"' => break,
                b'\n' => {
                    return Err(self.malformed(
                        start,
                        at,
                        "string without an end, expected a closing quote on the same line",
                    ));
                }
                0 if at >= self.text.len() => {
                    return Err(self.malformed(
                        start,
                        at,
                        "string without an end, expected a closing quote on the same line",
                    ));
                }
                b'\\' => {
                    let Some((_, len)) = self.text.get(at..).and_then(escape) else {
                        let mut end = (at + 2).min(self.text.len());
                        while !self.text.is_char_boundary(end) {
                            end += 1;
                        }
                        let what = "unknown escape, expected \\\\ \\\" \\n \\r \\t or \\u{hex}";
                        return Err(self.malformed(at, end, what));
                    };
                    at += len;
                }
                _ => at += 1,
            }
        }
        self.token(Tok::Str(self.slice(start + 1, at)), start, at + 1)
    }

    /// The extents and element type of a type, from here on: letters, digits, `_` and `?`. May be empty.
    pub fn dims_word(&mut self) -> (&'a str, usize) {
        self.skip_blank();
        let start = self.pos;
        self.pos = self.skip_while(start, |b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'?'));
        (self.slice(start, self.pos), start)
    }
}

/// The character an escape at the start of `s` stands for and its length in bytes.
fn escape(s: &str) -> Option<(char, usize)> {
    Some(match s.as_bytes().get(1)? {
        b'\\' => ('\\', 2),
        b'"' => ('"', 2),
        b'n' => ('\n', 2),
        b'r' => ('\r', 2),
        b't' => ('\t', 2),
        b'u' => {
            let hex = s.get(2..)?.strip_prefix('{')?;
            let hex = hex.get(..hex.find('}')?)?;
            if hex.is_empty() || hex.len() > 6 || !hex.bytes().all(|b| b.is_ascii_hexdigit()) {
                return None;
            }
            (char::from_u32(u32::from_str_radix(hex, 16).ok()?)?, hex.len() + 4)
        }
        _ => return None,
    })
}

/// The text a [`Tok::Str`] stands for.
pub fn unescape(mut raw: &str) -> String {
    let mut out = String::with_capacity(raw.len());
    while let Some(at) = raw.find('\\') {
        out.push_str(&raw[..at]);
        let Some((c, len)) = escape(&raw[at..]) else { break };
        out.push(c);
        raw = &raw[at + len..];
    }
    out.push_str(raw);
    out
}

/// Writes a string with quotes and escapes, so that [`unescape`] gives it back.
pub fn escape_into(out: &mut String, s: &str) {
    out.push('"');
    for c in s.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c.is_control() => out.push_str(&format!("\\u{{{:x}}}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
}
