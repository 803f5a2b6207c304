//! PTX text to tokens.
//!
//! In: the text. Out: tokens with places. A word keeps its dots and double colons, so that an
//! instruction with all its modifiers, a directive and `%tid.x` are one token each.
//! Guarantee: total; a character PTX does not have is an error with its place.

use crate::diag::{Diagnostic, Place};

/// A token.
#[derive(Clone, PartialEq, Debug)]
pub enum Token<'a> {
    /// Identifier, directive, register or instruction.
    Word(&'a str),
    /// Integer literal.
    Int(u64),
    /// `0f…` literal.
    F32(u32),
    /// `0d…` or decimal literal.
    F64(u64),
    /// Version number such as `8.6`, kept as text.
    Decimal(&'a str),
    /// String literal without the quotes.
    Str(&'a str),
    /// One punctuation character.
    Punct(u8),
    /// End of the text.
    End,
}

/// A token and where it starts.
#[derive(Clone, PartialEq, Debug)]
pub struct Located<'a> {
    /// The token.
    pub token: Token<'a>,
    /// First character.
    pub at: Place,
    /// Byte offsets in the text.
    pub span: (usize, usize),
}

fn word_start(c: u8) -> bool {
    c.is_ascii_alphabetic() || matches!(c, b'_' | b'$' | b'%' | b'.')
}

fn word_part(c: u8) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, b'_' | b'$' | b'.')
}

fn number<'a>(text: &'a str, at: Place) -> Result<Token<'a>, Diagnostic> {
    let bad = |why: &str| Diagnostic::new("P001", at, format!("number `{text}`: {why}"));
    let lower = text.to_ascii_lowercase();
    if let Some(hex) = lower.strip_prefix("0f").filter(|h| h.len() == 8) {
        return u32::from_str_radix(hex, 16).map(Token::F32).map_err(|e| bad(&e.to_string()));
    }
    if let Some(hex) = lower.strip_prefix("0d").filter(|h| h.len() == 16) {
        return u64::from_str_radix(hex, 16).map(Token::F64).map_err(|e| bad(&e.to_string()));
    }
    if lower.contains('.') {
        return Ok(Token::Decimal(text));
    }
    let digits = lower.strip_suffix('u').unwrap_or(&lower);
    let (radix, body) = if let Some(h) = digits.strip_prefix("0x") {
        (16, h)
    } else if let Some(b) = digits.strip_prefix("0b") {
        (2, b)
    } else if digits.len() > 1 && digits.starts_with('0') {
        (8, &digits[1..])
    } else {
        (10, digits)
    };
    u64::from_str_radix(body, radix).map(Token::Int).map_err(|e| bad(&e.to_string()))
}

/// Tokens of a text; the last one is [`Token::End`].
pub fn tokens(text: &str) -> Result<Vec<Located<'_>>, Diagnostic> {
    let b = text.as_bytes();
    let (mut out, mut i, mut line, mut start_of_line) = (Vec::new(), 0, 1u32, 0usize);
    while i < b.len() {
        let c = b[i];
        let at = Place { line, column: (i - start_of_line) as u32 + 1 };
        if c == b'\n' {
            line += 1;
            i += 1;
            start_of_line = i;
            continue;
        }
        if c.is_ascii_whitespace() {
            i += 1;
            continue;
        }
        if b[i..].starts_with(b"//") {
            i += b[i..].iter().position(|&c| c == b'\n').unwrap_or(b.len() - i);
            continue;
        }
        if b[i..].starts_with(b"/*") {
            let Some(n) = text[i + 2..].find("*/") else {
                return Err(Diagnostic::new("P001", at, "comment without end"));
            };
            for (k, _) in text[i..i + 2 + n].match_indices('\n') {
                line += 1;
                start_of_line = i + k + 1;
            }
            i += n + 4;
            continue;
        }
        let first = i;
        let token = if c == b'"' {
            let Some(n) = text[i + 1..].find(['"', '\n']).filter(|&n| b[i + 1 + n] == b'"') else {
                return Err(Diagnostic::new("P001", at, "string without end"));
            };
            i += n + 2;
            Token::Str(&text[first + 1..i - 1])
        } else if c.is_ascii_digit() {
            while i < b.len() && (b[i].is_ascii_alphanumeric() || b[i] == b'.') {
                i += 1;
            }
            number(&text[first..i], at)?
        } else if word_start(c) {
            i += 1;
            loop {
                if i < b.len() && word_part(b[i]) {
                    i += 1;
                } else if b[i..].starts_with(b"::") {
                    i += 2;
                } else {
                    break;
                }
            }
            Token::Word(&text[first..i])
        } else if b"@!{}[]()<>,;:+-=|".contains(&c) {
            i += 1;
            Token::Punct(c)
        } else {
            return Err(Diagnostic::new(
                "P001",
                at,
                format!("character {:?}", text[i..].chars().next().unwrap_or(' ')),
            ));
        };
        out.push(Located { token, at, span: (first, i) });
    }
    let at = Place { line, column: (i - start_of_line) as u32 + 1 };
    out.push(Located { token: Token::End, at, span: (i, i) });
    Ok(out)
}
