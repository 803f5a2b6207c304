//! Integer expressions of launch metadata.
//!
//! The part of [`super::syntax`] that makes sense for integers: names of scalars, `view.dN` (extent in elements), `view.sN`
//! (stride in elements), `+ - * / // %` (floor division), comparisons (0 or 1), `ceildiv(a, b)`, `min(…)`, `max(…)` and
//! `ptr(view, …)`: the addresses of the views or-ed, to be tested for alignment. Any text gives a value or an error.

use super::syntax::{self, Binary, Expr, Kind};

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
    let tree = syntax::parse(text)?;
    let walk = Walk { text, names };
    walk.value(&tree)
}

struct Walk<'a> {
    text: &'a str,
    names: &'a dyn Names,
}

impl Walk<'_> {
    fn fail<T>(&self, e: &Expr, what: &str) -> Result<T, String> {
        Err(syntax::fail(self.text, e.at, what))
    }

    fn checked(&self, e: &Expr, v: Option<i64>) -> Result<i64, String> {
        match v {
            Some(v) => Ok(v),
            None => self.fail(e, "division by zero or overflow"),
        }
    }

    fn value(&self, e: &Expr) -> Result<i64, String> {
        match &e.kind {
            Kind::Int(i) => Ok(*i),
            Kind::Float(_) => self.fail(e, "expected an integer"),
            Kind::Name(name) => match self.names.scalar(name) {
                Some(v) => Ok(v),
                None => self.fail(e, &format!("nothing is called {name}")),
            },
            Kind::Negate(x) => {
                let x = self.value(x)?;
                self.checked(e, x.checked_neg())
            }
            Kind::Binary(op, a, b) => {
                let (a, b) = (self.value(a)?, self.value(b)?);
                let test = |t: bool| Some(i64::from(t));
                let v = match op {
                    Binary::Eq => test(a == b),
                    Binary::Ne => test(a != b),
                    Binary::Le => test(a <= b),
                    Binary::Ge => test(a >= b),
                    Binary::Lt => test(a < b),
                    Binary::Gt => test(a > b),
                    Binary::Or => test(a != 0 || b != 0),
                    Binary::And => test(a != 0 && b != 0),
                    Binary::Add => a.checked_add(b),
                    Binary::Sub => a.checked_sub(b),
                    Binary::Mul => a.checked_mul(b),
                    Binary::Div | Binary::FloorDiv => floor_div(a, b),
                    Binary::Rem => a.checked_rem_euclid(b),
                    Binary::MatMul | Binary::Power => return self.fail(e, "not an operator of integers"),
                };
                self.checked(e, v)
            }
            Kind::Member(view, part) => {
                let Kind::Name(view) = &view.kind else { return self.fail(e, "expected the name of a view") };
                let d = part.get(1..).and_then(|n| n.parse().ok());
                let v = match (part.get(..1), d) {
                    (Some("d"), Some(d)) => self.names.extent(view, d),
                    (Some("s"), Some(d)) => self.names.stride(view, d),
                    _ => None,
                };
                match v {
                    Some(v) => Ok(v),
                    None if self.names.address(view).is_some() => {
                        let rank = (0..).take_while(|&d| self.names.extent(view, d).is_some()).count();
                        self.fail(e, &format!("there is no {view}.{part}, {view} has rank {rank}"))
                    }
                    None => self.fail(e, &format!("nothing is called {view}.{part}")),
                }
            }
            Kind::Call(f, args, named) => match &f.kind {
                Kind::Name(name) if named.is_empty() => self.call(e, name, args),
                _ => self.fail(e, "no such function"),
            },
            Kind::List(_) | Kind::Index(..) => self.fail(e, "expected an integer"),
        }
    }

    fn call(&self, e: &Expr, name: &str, args: &[Expr]) -> Result<i64, String> {
        if name == "ptr" {
            let mut all = 0;
            for view in args {
                match &view.kind {
                    Kind::Name(n) if self.names.address(n).is_some() => {
                        all |= self.names.address(n).unwrap_or(0) as i64;
                    }
                    _ => return self.fail(view, "there is no such view"),
                }
            }
            return Ok(all);
        }
        let args = args.iter().map(|a| self.value(a)).collect::<Result<Vec<i64>, String>>()?;
        match (name, args.as_slice()) {
            ("min", [_, ..]) => Ok(args.iter().copied().fold(i64::MAX, i64::min)),
            ("max", [_, ..]) => Ok(args.iter().copied().fold(i64::MIN, i64::max)),
            ("ceildiv" | "cdiv", &[a, b]) => {
                self.checked(e, a.checked_neg().and_then(|n| floor_div(n, b)).and_then(i64::checked_neg))
            }
            _ => self.fail(e, &format!("no function {name} of {} arguments", args.len())),
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
    fn parts_beyond_the_rank_say_the_rank() {
        let error = |text| evaluate(text, &Fixed).unwrap_err();
        assert!(error("1 + a.s3 == 1").ends_with("there is no a.s3, a has rank 2"));
        assert!(error("b.d0").ends_with("nothing is called b.d0"));
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
