//! Reads the text of expressions, see [`super::expr`].
//!
//! In: text and what names stand for. Out: a tree, or an error with the byte where it is. Total: nesting is limited.

use super::{Binary, Expr, MAX_HEIGHT};
use crate::arg::{ArgKind, ArgMeta};
use crate::error::{Code, Error};

/// What names stand for.
pub(crate) enum Names<'a> {
    /// These arguments, and no others.
    Known(&'a [ArgMeta]),
    /// These arguments; any other name is one more.
    #[cfg(feature = "serde")]
    Growing(&'a mut Vec<ArgMeta>),
}

impl Names<'_> {
    /// The argument of that name and kind.
    fn find(&mut self, name: &str, is_view: bool) -> Option<u16> {
        #[cfg_attr(
            not(feature = "serde"),
            expect(clippy::infallible_destructuring_match, reason = "with JSON there are two")
        )]
        let list = match self {
            Names::Known(list) => list,
            #[cfg(feature = "serde")]
            Names::Growing(list) => &list[..],
        };
        let found = list.iter().position(|a| a.name == name);
        if let Some(n) = found {
            let kind = matches!(list[n].kind, ArgKind::View { .. });
            return (kind == is_view).then_some(n as u16);
        }
        match self {
            Names::Known(_) => None,
            #[cfg(feature = "serde")]
            Names::Growing(list) => {
                let n = u16::try_from(list.len()).ok()?;
                let kind = if is_view { ArgKind::VIEW } else { ArgKind::SCALAR };
                list.push(ArgMeta { name: name.to_owned(), kind });
                Some(n)
            }
        }
    }
}

struct Parser<'a, 'n> {
    text: &'a str,
    at: usize,
    depth: usize,
    names: &'a mut Names<'n>,
}

/// Parses a whole text.
pub(crate) fn parse(text: &str, names: &mut Names<'_>) -> Result<Expr, Error> {
    let mut p = Parser { text, at: 0, depth: 0, names };
    let e = p.binary(0)?;
    p.skip();
    if p.at < text.len() { p.fail("expected an operator") } else { Ok(e.0) }
}

/// The text, or the beginning of a long one.
fn shown(text: &str) -> String {
    match text.char_indices().nth(120) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// A tree and its height.
type Tree = (Expr, usize);

impl<'a> Parser<'a, '_> {
    #[cold]
    fn fail<T>(&self, what: impl std::fmt::Display) -> Result<T, Error> {
        Err(Error::new(Code::E1101, format!("`{}` at {}: {what}", shown(self.text), self.at)))
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn skip(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start().len();
    }

    fn take(&mut self, token: &str) -> bool {
        self.skip();
        let found = self.rest().starts_with(token);
        if found {
            self.at += token.len();
        }
        found
    }

    fn need(&mut self, token: &str) -> Result<(), Error> {
        if self.take(token) { Ok(()) } else { self.fail(format_args!("expected `{token}`")) }
    }

    /// A name or a number; empty if neither stands here.
    fn word(&mut self) -> &'a str {
        self.skip();
        let rest = self.rest();
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }

    fn higher(&self, expr: Expr, below: usize) -> Result<Tree, Error> {
        if below >= MAX_HEIGHT { self.fail("nested too deep") } else { Ok((expr, below + 1)) }
    }

    fn deeper<T>(&mut self, f: impl FnOnce(&mut Self) -> Result<T, Error>) -> Result<T, Error> {
        self.depth += 1;
        if self.depth > MAX_HEIGHT {
            return self.fail("nested too deep");
        }
        let v = f(self);
        self.depth -= 1;
        v
    }

    fn binary(&mut self, level: u32) -> Result<Tree, Error> {
        let operators = || Binary::ALL.iter().filter(|b| b.2 == level);
        if operators().next().is_none() {
            return self.unary();
        }
        let mut v = self.binary(level + 1)?;
        let mut compared = false;
        while let Some(&(_, op, _)) = operators().find(|b| self.take(b.0)) {
            if compared {
                return self.fail("comparisons are not chained");
            }
            compared = level == 0;
            let other = self.binary(level + 1)?;
            v = self.higher(Expr::binary(op, v.0, other.0), v.1.max(other.1))?;
        }
        Ok(v)
    }

    fn unary(&mut self) -> Result<Tree, Error> {
        if !self.take("-") {
            return self.atom();
        }
        self.skip();
        if self.rest().starts_with(|c: char| c.is_ascii_digit()) {
            return self.number("-");
        }
        let (x, height) = self.deeper(Self::unary)?;
        self.higher(Expr::Negate(Box::new(x)), height)
    }

    fn atom(&mut self) -> Result<Tree, Error> {
        if self.take("(") {
            let v = self.deeper(|p| p.binary(0))?;
            self.need(")")?;
            return Ok(v);
        }
        self.skip();
        if self.rest().starts_with(|c: char| c.is_ascii_digit()) {
            return self.number("");
        }
        let start = self.at;
        let word = self.word();
        let unknown = |p: &Self, what: &str| {
            Err(Error::new(Code::E1101, format!("`{}` at {start}: {what}", shown(p.text))))
        };
        if word.is_empty() {
            return self.fail("expected a number, a name or `(`");
        }
        if self.take("(") {
            return self.call(word);
        }
        if self.take(".") {
            let part = self.word();
            let Some(n) = self.names.find(word, true) else {
                return unknown(self, &format!("no view is called {word}"));
            };
            let d = part.get(1..).and_then(|d| d.parse().ok());
            return match (part.get(..1), d) {
                (Some("d"), Some(d)) => Ok((Expr::Extent(n, d), 1)),
                (Some("s"), Some(d)) => Ok((Expr::Stride(n, d), 1)),
                _ => self.fail(format_args!("a view has extents d0, d1, … and strides s0, s1, …, no {part}")),
            };
        }
        if word == "sms" {
            return Ok((Expr::Sms, 1));
        }
        match self.names.find(word, false) {
            Some(n) => Ok((Expr::Scalar(n), 1)),
            None => unknown(self, &format!("no scalar is called {word}")),
        }
    }

    /// A number with the sign before it.
    fn number(&mut self, sign: &str) -> Result<Tree, Error> {
        let start = self.at;
        let word = self.word();
        if let Ok(v) = [sign, word].concat().parse() {
            return Ok((Expr::Int(v), 1));
        }
        self.at = start;
        self.fail("expected an integer of 64 bits")
    }

    fn call(&mut self, name: &str) -> Result<Tree, Error> {
        if name == "ptr" {
            let mut views = Vec::new();
            loop {
                let view = self.word();
                match self.names.find(view, true) {
                    Some(n) => views.push(n),
                    None => return self.fail(format_args!("no view is called {view}")),
                }
                if !self.take(",") {
                    self.need(")")?;
                    return Ok((Expr::Addresses(views), 1));
                }
            }
        }
        let (mut args, mut height) = (Vec::new(), 0);
        while !self.take(")") {
            if !args.is_empty() {
                self.need(",")?;
            }
            let (e, h) = self.deeper(|p| p.binary(0))?;
            args.push(e);
            height = height.max(h);
        }
        let count = args.len();
        let expr = match (name, <[Expr; 2]>::try_from(args)) {
            ("ceildiv" | "cdiv", Ok(two)) => Expr::CeilDiv(Box::new(two)),
            ("min", Ok(two)) => Expr::Min(two.into()),
            ("max", Ok(two)) => Expr::Max(two.into()),
            ("min", Err(all)) if !all.is_empty() => Expr::Min(all),
            ("max", Err(all)) if !all.is_empty() => Expr::Max(all),
            _ => return self.fail(format_args!("no function {name} of {count} arguments")),
        };
        self.higher(expr, height)
    }
}
