//! Integer expressions of launch metadata.
//!
//! Grammar: integers, names of scalars, `view.dN` (extent in elements), `view.sN` (stride in elements), `+ - * / %`
//! (floor division), comparisons `== != < <= > >=` (0 or 1), parentheses, `ceildiv(a, b)`, `min(…)`, `max(…)` and
//! `ptr(view, …)`: the addresses of the views or-ed, to be tested for alignment. Total: any text gives a value or an
//! error that names the place; nesting is limited.

/// What the names of an expression stand for.
pub trait Names {
    /// A scalar.
    fn scalar(&self, name: &str) -> Option<i64>;
    /// Extent of a view along dimension `d`.
    fn extent(&self, view: &str, d: usize) -> Option<i64>;
    /// Stride of a view along dimension `d`, in elements.
    fn stride(&self, view: &str, d: usize) -> Option<i64>;
    /// Address of a view.
    fn address(&self, view: &str) -> Option<u64>;
}

/// Evaluates an expression.
///
/// # Errors
/// Unknown names, malformed text, division by zero, overflow: what and where (byte offset).
pub fn evaluate(text: &str, names: &dyn Names) -> Result<i64, String> {
    let mut p = Parser { text, at: 0, names, depth: 0 };
    let v = p.comparison()?;
    p.skip();
    if p.at < text.len() { p.fail("expected an operator") } else { Ok(v) }
}

const MAX_DEPTH: u32 = 64;

/// A comparison operator.
type Test = (&'static str, fn(i64, i64) -> bool);

struct Parser<'a> {
    text: &'a str,
    at: usize,
    names: &'a dyn Names,
    depth: u32,
}

impl<'a> Parser<'a> {
    fn fail<T>(&self, what: &str) -> Result<T, String> {
        Err(format!("`{}` at {}: {what}", self.text, self.at))
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

    fn word(&mut self) -> &'a str {
        self.skip();
        let rest = self.rest();
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }

    fn checked(&self, v: Option<i64>) -> Result<i64, String> {
        match v {
            Some(v) => Ok(v),
            None => self.fail("division by zero or overflow"),
        }
    }

    fn comparison(&mut self) -> Result<i64, String> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return self.fail("nested too deep");
        }
        let a = self.sum()?;
        // Longer operators first.
        let tests: [Test; 6] = [
            ("==", |a, b| a == b),
            ("!=", |a, b| a != b),
            ("<=", |a, b| a <= b),
            (">=", |a, b| a >= b),
            ("<", |a, b| a < b),
            (">", |a, b| a > b),
        ];
        let mut v = a;
        for (token, test) in tests {
            if self.take(token) {
                v = i64::from(test(a, self.sum()?));
                break;
            }
        }
        self.depth -= 1;
        Ok(v)
    }

    fn sum(&mut self) -> Result<i64, String> {
        let mut v = self.product()?;
        loop {
            v = if self.take("+") {
                let b = self.product()?;
                self.checked(v.checked_add(b))?
            } else if self.take("-") {
                let b = self.product()?;
                self.checked(v.checked_sub(b))?
            } else {
                return Ok(v);
            };
        }
    }

    fn product(&mut self) -> Result<i64, String> {
        let mut v = self.atom()?;
        loop {
            v = if self.take("*") {
                let b = self.atom()?;
                self.checked(v.checked_mul(b))?
            } else if self.take("/") {
                self.take("/");
                let b = self.atom()?;
                self.checked(floor_div(v, b))?
            } else if self.take("%") {
                let b = self.atom()?;
                self.checked(v.checked_rem_euclid(b))?
            } else {
                return Ok(v);
            };
        }
    }

    fn atom(&mut self) -> Result<i64, String> {
        if self.take("(") {
            let v = self.comparison()?;
            return if self.take(")") { Ok(v) } else { self.fail("expected `)`") };
        }
        if self.take("-") {
            self.depth += 1;
            if self.depth > MAX_DEPTH {
                return self.fail("nested too deep");
            }
            let v = self.atom()?;
            self.depth -= 1;
            return self.checked(v.checked_neg());
        }
        let word = self.word();
        if word.starts_with(|c: char| c.is_ascii_digit()) {
            return match word.parse() {
                Ok(v) => Ok(v),
                Err(_) => self.fail("expected an integer"),
            };
        }
        if word.is_empty() {
            return self.fail("expected a number, a name or `(`");
        }
        if self.take("(") {
            return self.call(word);
        }
        if self.take(".") {
            let part = self.word();
            let d = part.get(1..).and_then(|n| n.parse().ok());
            let v = match (part.get(..1), d) {
                (Some("d"), Some(d)) => self.names.extent(word, d),
                (Some("s"), Some(d)) => self.names.stride(word, d),
                _ => None,
            };
            return match v {
                Some(v) => Ok(v),
                None => self.fail(&format!("nothing is called {word}.{part}")),
            };
        }
        match self.names.scalar(word) {
            Some(v) => Ok(v),
            None => self.fail(&format!("nothing is called {word}")),
        }
    }

    fn call(&mut self, name: &str) -> Result<i64, String> {
        let mut args = Vec::new();
        while !self.take(")") {
            if !args.is_empty() && !self.take(",") {
                return self.fail("expected `,` or `)`");
            }
            if name == "ptr" {
                let view = self.word();
                match self.names.address(view) {
                    Some(a) => args.push(a as i64),
                    None => return self.fail(&format!("there is no view {view}")),
                }
            } else {
                args.push(self.comparison()?);
            }
        }
        match (name, args.as_slice()) {
            ("ptr", list) => Ok(list.iter().fold(0, |a, b| a | b)),
            ("min", [_, ..]) => Ok(args.iter().copied().fold(i64::MAX, i64::min)),
            ("max", [_, ..]) => Ok(args.iter().copied().fold(i64::MIN, i64::max)),
            ("ceildiv" | "cdiv", &[a, b]) => {
                let neg = self.checked(a.checked_neg())?;
                let q = self.checked(floor_div(neg, b))?;
                self.checked(q.checked_neg())
            }
            _ => self.fail(&format!("no function {name} of {} arguments", args.len())),
        }
    }
}

fn floor_div(a: i64, b: i64) -> Option<i64> {
    let q = a.checked_div(b)?;
    Some(if a % b != 0 && (a < 0) != (b < 0) { q - 1 } else { q })
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixed;
    impl Names for Fixed {
        fn scalar(&self, name: &str) -> Option<i64> {
            (name == "k").then_some(7)
        }
        fn extent(&self, view: &str, d: usize) -> Option<i64> {
            (view == "a").then_some([100, 64]).and_then(|x| x.get(d).copied())
        }
        fn stride(&self, view: &str, d: usize) -> Option<i64> {
            (view == "a").then_some([64, 1]).and_then(|x| x.get(d).copied())
        }
        fn address(&self, view: &str) -> Option<u64> {
            (view == "a").then_some(0x1010)
        }
    }

    #[test]
    fn values() {
        for (text, want) in [
            ("ceildiv(a.d0, 32)", 4),
            ("min(k, a.d1) * 2 + 1", 15),
            ("a.s0 % 8 == 0", 1),
            ("ptr(a) % 16 == 0", 1),
            ("ptr(a) % 32 == 0", 0),
            ("-7 / 2", -4),
            ("-(2 - 5) * 3", 9),
            ("1 <= 2", 1),
        ] {
            assert_eq!(evaluate(text, &Fixed), Ok(want), "{text}");
        }
    }

    #[test]
    fn bad_text_is_an_error() {
        let deep = "(".repeat(1000);
        for text in
            ["", "a", "a.d9", "1 +", "1 / 0", "f(1)", "min()", "9999999999999999999", "1 2", &deep, "é"]
        {
            assert!(evaluate(text, &Fixed).is_err(), "{text}");
        }
        assert!(evaluate("9223372036854775807 + 1", &Fixed).is_err());
    }
}
