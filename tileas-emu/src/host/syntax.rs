//! Text of formulas over results ([`super::formula`]).
//!
//! In: text. Out: a tree whose nodes know their byte. The grammar is a part of Python's, with its precedences, weakest
//! first: comparisons (not chained), `|`, `&`, `+ -`, `* / // % @`, unary `-`, `**`, then `x.name`, `f(a, k=b)` and
//! `x[a:b:c, None, i]`; numbers, names, lists `[a, b]`, parentheses; `np.` before a name is skipped. Total: any text
//! gives a tree or an error that names the place, and the tree's height is limited, so that walks may recurse.

/// Two-sided operators.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Binary {
    /// `==`
    Eq,
    /// `!=`
    Ne,
    /// `<=`
    Le,
    /// `>=`
    Ge,
    /// `<`
    Lt,
    /// `>`
    Gt,
    /// `|`
    Or,
    /// `&`
    And,
    /// `+`
    Add,
    /// `-`
    Sub,
    /// `*`
    Mul,
    /// `//`
    FloorDiv,
    /// `/`
    Div,
    /// `%`
    Rem,
    /// `@`
    MatMul,
    /// `**`
    Power,
}

/// One entry of an index.
#[derive(Clone, PartialEq, Debug)]
pub enum Item {
    /// `None`: a new axis.
    New,
    /// An element, or a list of elements.
    At(Expr),
    /// `from:to:step`.
    Range([Option<Expr>; 3]),
}

/// What a node is.
#[derive(Clone, PartialEq, Debug)]
pub enum Kind {
    /// An integer.
    Int(i64),
    /// Any other number.
    Float(f64),
    /// A name.
    Name(String),
    /// `[a, b]`.
    List(Vec<Expr>),
    /// `-x`.
    Negate(Box<Expr>),
    /// `x + y` and the like.
    Binary(Binary, Box<Expr>, Box<Expr>),
    /// `x.name`.
    Member(Box<Expr>, String),
    /// `f(a, b, name=c)`.
    Call(Box<Expr>, Vec<Expr>, Vec<(String, Expr)>),
    /// `x[…]`.
    Index(Box<Expr>, Vec<Item>),
}

/// A node of the tree.
#[derive(Clone, PartialEq, Debug)]
pub struct Expr {
    /// Byte of the text where it begins, or its operator stands.
    pub at: usize,
    /// Nodes on the longest way down.
    height: u32,
    /// What it is.
    pub kind: Kind,
}

/// Largest height of a tree, and deepest nesting of parentheses.
const MAX_HEIGHT: u32 = 100;

/// Operators of each precedence, weakest first; longer ones before their prefixes.
const LEVELS: [&[(&str, Binary)]; 5] = [
    &[
        ("==", Binary::Eq),
        ("!=", Binary::Ne),
        ("<=", Binary::Le),
        (">=", Binary::Ge),
        ("<", Binary::Lt),
        (">", Binary::Gt),
    ],
    &[("|", Binary::Or)],
    &[("&", Binary::And)],
    &[("+", Binary::Add), ("-", Binary::Sub)],
    &[
        ("*", Binary::Mul),
        ("//", Binary::FloorDiv),
        ("/", Binary::Div),
        ("%", Binary::Rem),
        ("@", Binary::MatMul),
    ],
];

/// Parses a whole text.
///
/// # Errors
/// What is wrong and where (byte offset).
pub fn parse(text: &str) -> Result<Expr, String> {
    let mut p = Parser { text, at: 0, depth: 0 };
    let e = p.binary(0)?;
    p.skip();
    if p.at < text.len() { Err(fail(text, p.at, "expected an operator")) } else { Ok(e) }
}

/// An error at a byte of a text.
pub fn fail(text: &str, at: usize, what: &str) -> String {
    format!("`{text}` at {at}: {what}")
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    depth: u32,
}

impl<'a> Parser<'a> {
    fn fail<T>(&self, what: &str) -> Result<T, String> {
        Err(fail(self.text, self.at, what))
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

    fn need(&mut self, token: &str) -> Result<(), String> {
        if self.take(token) { Ok(()) } else { self.fail(&format!("expected `{token}`")) }
    }

    /// A name; empty if none stands here.
    fn word(&mut self) -> &'a str {
        self.skip();
        let rest = self.rest();
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }

    fn node(&self, at: usize, kind: Kind) -> Result<Expr, String> {
        let item = |i: &Item| match i {
            Item::New => 0,
            Item::At(e) => e.height,
            Item::Range(parts) => parts.iter().flatten().map(|e| e.height).max().unwrap_or(0),
        };
        let all = |list: &[Expr]| list.iter().map(|e| e.height).max().unwrap_or(0);
        let below = match &kind {
            Kind::Int(_) | Kind::Float(_) | Kind::Name(_) => 0,
            Kind::List(list) => all(list),
            Kind::Negate(e) | Kind::Member(e, _) => e.height,
            Kind::Binary(_, a, b) => a.height.max(b.height),
            Kind::Call(f, args, named) => {
                all(args).max(f.height).max(named.iter().map(|n| n.1.height).max().unwrap_or(0))
            }
            Kind::Index(e, items) => e.height.max(items.iter().map(item).max().unwrap_or(0)),
        };
        if below >= MAX_HEIGHT {
            return Err(fail(self.text, at, "nested too deep"));
        }
        Ok(Expr { at, height: below + 1, kind })
    }

    fn deeper<T>(&mut self, f: impl FnOnce(&mut Self) -> Result<T, String>) -> Result<T, String> {
        self.depth += 1;
        if self.depth > MAX_HEIGHT {
            return self.fail("nested too deep");
        }
        let v = f(self);
        self.depth -= 1;
        v
    }

    fn whole(&mut self) -> Result<Expr, String> {
        self.deeper(|p| p.binary(0))
    }

    fn binary(&mut self, level: usize) -> Result<Expr, String> {
        let Some(operators) = LEVELS.get(level) else { return self.unary() };
        let mut v = self.binary(level + 1)?;
        let mut compared = false;
        loop {
            self.skip();
            let at = self.at;
            // `**` belongs to `power`, which has taken all there are.
            let Some(&(_, op)) = operators.iter().find(|(token, _)| self.take(token)) else { return Ok(v) };
            if compared {
                return Err(fail(self.text, at, "comparisons are not chained"));
            }
            compared = level == 0;
            let other = self.binary(level + 1)?;
            v = self.node(at, Kind::Binary(op, Box::new(v), Box::new(other)))?;
        }
    }

    fn unary(&mut self) -> Result<Expr, String> {
        self.skip();
        let at = self.at;
        if self.take("-") {
            let v = self.deeper(Self::unary)?;
            return self.node(at, Kind::Negate(Box::new(v)));
        }
        let base = self.postfix()?;
        self.skip();
        let at = self.at;
        if self.take("**") {
            // To the right: 2 ** -x and 2 ** 3 ** x.
            let exponent = self.deeper(Self::unary)?;
            return self.node(at, Kind::Binary(Binary::Power, Box::new(base), Box::new(exponent)));
        }
        Ok(base)
    }

    fn postfix(&mut self) -> Result<Expr, String> {
        let mut v = self.atom()?;
        loop {
            self.skip();
            let at = self.at;
            let kind = if self.take(".") {
                match self.word() {
                    "" => return self.fail("expected a name"),
                    name => Kind::Member(Box::new(v), name.to_owned()),
                }
            } else if self.take("(") {
                let (args, named) = self.arguments()?;
                Kind::Call(Box::new(v), args, named)
            } else if self.take("[") {
                let mut items = vec![self.item()?];
                while self.take(",") {
                    items.push(self.item()?);
                }
                self.need("]")?;
                Kind::Index(Box::new(v), items)
            } else {
                return Ok(v);
            };
            v = self.node(at, kind)?;
        }
    }

    #[expect(clippy::type_complexity, reason = "arguments by place and by name")]
    fn arguments(&mut self) -> Result<(Vec<Expr>, Vec<(String, Expr)>), String> {
        let (mut args, mut named) = (Vec::new(), Vec::new());
        while !self.take(")") {
            if !(args.is_empty() && named.is_empty()) {
                if !self.take(",") {
                    return self.fail("expected `,` or `)`");
                }
                if self.take(")") {
                    break;
                }
            }
            let start = self.at;
            let name = self.word();
            self.skip();
            let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
            if is_name && self.rest().starts_with('=') && !self.rest().starts_with("==") {
                self.at += 1;
                named.push((name.to_owned(), self.whole()?));
            } else {
                self.at = start;
                args.push(self.whole()?);
            }
        }
        Ok((args, named))
    }

    fn item(&mut self) -> Result<Item, String> {
        let start = self.at;
        if self.word() == "None" {
            return Ok(Item::New);
        }
        self.at = start;
        let mut parts = [None, None, None];
        for k in 0..3 {
            self.skip();
            if !self.rest().starts_with([':', ',', ']']) {
                parts[k] = Some(self.whole()?);
            }
            if k == 2 || !self.take(":") {
                return match (k, parts) {
                    (0, [Some(e), ..]) => Ok(Item::At(e)),
                    (0, _) => self.fail("expected an index"),
                    (_, parts) => Ok(Item::Range(parts)),
                };
            }
        }
        self.fail("expected an index")
    }

    fn atom(&mut self) -> Result<Expr, String> {
        if self.take("(") {
            let v = self.whole()?;
            self.need(")")?;
            return Ok(v);
        }
        let at = self.at;
        if self.take("[") {
            let mut list = Vec::new();
            while !self.take("]") {
                if !list.is_empty() && !self.take(",") {
                    return self.fail("expected `,` or `]`");
                }
                list.push(self.whole()?);
            }
            return self.node(at, Kind::List(list));
        }
        self.take("np.");
        let at = self.at;
        if self.rest().starts_with(|c: char| c.is_ascii_digit()) {
            let number = self.number();
            return match (number.parse(), number.parse()) {
                (Ok(i), _) => self.node(at, Kind::Int(i)),
                (_, Ok(x)) => self.node(at, Kind::Float(x)),
                _ => Err(fail(self.text, at, "expected a number")),
            };
        }
        match self.word() {
            "" => self.fail("expected a number, a name or `(`"),
            name => self.node(at, Kind::Name(name.to_owned())),
        }
    }

    /// Digits, a fraction, an exponent.
    fn number(&mut self) -> &'a str {
        let rest = self.rest();
        let bytes = rest.as_bytes();
        let digits = |mut n: usize| {
            while bytes.get(n).is_some_and(u8::is_ascii_digit) {
                n += 1;
            }
            n
        };
        let mut end = digits(0);
        if bytes.get(end) == Some(&b'.') {
            end = digits(end + 1);
        }
        if matches!(bytes.get(end), Some(b'e' | b'E')) {
            let sign = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
            let stop = digits(end + 1 + sign);
            if stop > end + 1 + sign {
                end = stop;
            }
        }
        self.at += end;
        &rest[..end]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tree with all parentheses.
    fn show(e: &Expr) -> String {
        let list = |l: &[Expr]| l.iter().map(show).collect::<Vec<_>>().join(" ");
        match &e.kind {
            Kind::Int(i) => i.to_string(),
            Kind::Float(x) => format!("{x:?}"),
            Kind::Name(n) => n.clone(),
            Kind::List(l) => format!("[{}]", list(l)),
            Kind::Negate(e) => format!("(neg {})", show(e)),
            Kind::Binary(op, a, b) => format!("({op:?} {} {})", show(a), show(b)),
            Kind::Member(e, n) => format!("{}.{n}", show(e)),
            Kind::Call(f, a, n) => {
                let named: String = n.iter().map(|(n, e)| format!(" {n}={}", show(e))).collect();
                format!("{}({}{named})", show(f), list(a))
            }
            Kind::Index(e, items) => {
                let part = |p: &Option<Expr>| p.as_ref().map_or(String::new(), show);
                let item = |i: &Item| match i {
                    Item::New => "None".to_owned(),
                    Item::At(e) => show(e),
                    Item::Range(p) => p.iter().map(part).collect::<Vec<_>>().join(":"),
                };
                format!("{}[{}]", show(e), items.iter().map(item).collect::<Vec<_>>().join(", "))
            }
        }
    }

    #[test]
    fn precedences() {
        for (text, want) in [
            ("1 + 2*3 - 4", "(Sub (Add 1 (Mul 2 3)) 4)"),
            ("-a ** 2", "(neg (Power a 2))"),
            ("2 ** -b ** 3", "(Power 2 (neg (Power b 3)))"),
            ("a @ b.T + c", "(Add (MatMul a b.T) c)"),
            ("(a < b) & (c >= 1.5) | d", "(Or (And (Lt a b) (Ge c 1.5)) d)"),
            ("a + 1 == b", "(Eq (Add a 1) b)"),
            ("np.sum(x[:, 1::2, None, [0, 1]], axis=0)", "sum(x[::, 1::2, None, [0 1]] axis=0)"),
            ("a.reshape(2, 3).sum(0)[i]", "a.reshape(2 3).sum(0)[i]"),
            ("2.5e-3 // 1e", ""),
            ("f(a == b, c=d)", "f((Eq a b) c=d)"),
        ] {
            assert_eq!(parse(text).map_or(String::new(), |e| show(&e)), want, "{text}");
        }
    }

    #[test]
    fn bad_text_is_an_error_with_its_place() {
        let deep = "(".repeat(10_000);
        let long = "1 + ".repeat(10_000) + "1";
        let minus = "-".repeat(10_000) + "1";
        let power = "1**".repeat(10_000) + "1";
        for text in [
            "",
            "a b",
            "1 +",
            "f(",
            "f(a b)",
            "a[",
            "a[]",
            "a.",
            "é",
            "1 < 2 < 3",
            &deep,
            &long,
            &minus,
            &power,
            "[1 2]",
            "a[1 2]",
            ")",
            "f(x=)",
            "a[::::]",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert_eq!(parse("a + $"), Err("`a + $` at 4: expected a number, a name or `(`".to_owned()));
    }
}
