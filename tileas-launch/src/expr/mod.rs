//! Integer expressions over the arguments of a launch: grids, extents and strides of tensor maps, requirements.
//!
//! A tree whose leaves are positions of arguments. Its text is that of [`super::json`]: names of scalars, `view.dN` (extent),
//! `view.sN` (stride in elements), `+ - * / %` (floor division), comparisons (0 or 1), `|`, `&`, `ceildiv(a, b)`, `min(…)`,
//! `max(…)`, `ptr(view, …)` (the addresses of the views or-ed, to be tested for alignment) and `sms`. Total: a value or an
//! error; trees that are read from text are at most [`MAX_HEIGHT`] high.

pub(crate) mod text;

use crate::arg::{Arg, ArgMeta, Device};
use crate::error::{Code, Error};
use std::fmt;

/// Largest height of a tree that is read from text.
pub const MAX_HEIGHT: usize = 100;

/// Two-sided operators.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Hash)]
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
    /// `|`: either is not 0.
    Or,
    /// `&`: neither is 0.
    And,
    /// `+`
    Add,
    /// `-`
    Sub,
    /// `*`
    Mul,
    /// `/`, rounded down.
    Div,
    /// `%`, never negative.
    Rem,
}

impl Binary {
    /// Operators by how they are written, longer ones before their prefixes, and how strongly they bind.
    pub(crate) const ALL: [(&'static str, Binary, u32); 14] = [
        ("==", Binary::Eq, 0),
        ("!=", Binary::Ne, 0),
        ("<=", Binary::Le, 0),
        (">=", Binary::Ge, 0),
        ("<", Binary::Lt, 0),
        (">", Binary::Gt, 0),
        ("|", Binary::Or, 1),
        ("&", Binary::And, 2),
        ("+", Binary::Add, 3),
        ("-", Binary::Sub, 3),
        ("*", Binary::Mul, 4),
        ("//", Binary::Div, 4),
        ("/", Binary::Div, 4),
        ("%", Binary::Rem, 4),
    ];

    fn text(self) -> (&'static str, u32) {
        let all = Binary::ALL.iter().filter(|b| b.0 != "//");
        all.into_iter().find(|b| b.1 == self).map_or(("?", 0), |b| (b.0, b.2))
    }
}

/// An integer expression. Arguments are counted as in [`LaunchMetadata::args`](crate::LaunchMetadata::args).
#[derive(Clone, PartialEq, Eq, Debug, Hash)]
pub enum Expr {
    /// A number.
    Int(i64),
    /// A scalar argument.
    Scalar(u16),
    /// Extent of a view along a dimension, outermost first.
    Extent(u16, u8),
    /// Stride of a view along a dimension, in elements.
    Stride(u16, u8),
    /// Addresses of views, or-ed.
    Addresses(Vec<u16>),
    /// Multiprocessors of the device.
    Sms,
    /// `-x`.
    Negate(Box<Expr>),
    /// `x + y` and the like.
    Binary(Binary, Box<[Expr; 2]>),
    /// Quotient, rounded up.
    CeilDiv(Box<[Expr; 2]>),
    /// The least of some, which are not none.
    Min(Vec<Expr>),
    /// The greatest of some, which are not none.
    Max(Vec<Expr>),
}

impl Expr {
    /// Reads an expression over the arguments.
    ///
    /// # Errors
    /// `E1101` for malformed text, names of nothing and trees that are too high, with the byte where it is.
    pub fn parse(text: &str, args: &[ArgMeta]) -> Result<Expr, Error> {
        text::parse(text, &mut text::Names::Known(args))
    }

    /// An operator between two expressions.
    #[must_use]
    pub fn binary(op: Binary, a: Expr, b: Expr) -> Expr {
        Expr::Binary(op, Box::new([a, b]))
    }

    /// Quotient of two expressions, rounded up.
    #[must_use]
    pub fn ceil_div(a: Expr, b: Expr) -> Expr {
        Expr::CeilDiv(Box::new([a, b]))
    }

    /// `self % unit == 0`.
    #[must_use]
    pub fn is_multiple_of(self, unit: i64) -> Expr {
        Expr::binary(Binary::Rem, self, Expr::Int(unit)).is(0)
    }

    /// `self == value`.
    #[must_use]
    pub fn is(self, value: i64) -> Expr {
        Expr::binary(Binary::Eq, self, Expr::Int(value))
    }

    /// `self >= least`.
    #[must_use]
    pub fn is_at_least(self, least: i64) -> Expr {
        Expr::binary(Binary::Ge, self, Expr::Int(least))
    }

    /// `self <= most`.
    #[must_use]
    pub fn is_at_most(self, most: i64) -> Expr {
        Expr::binary(Binary::Le, self, Expr::Int(most))
    }

    /// The value for these arguments.
    ///
    /// # Errors
    /// `E1105` for division by zero and overflow, `E1103` where an argument is another kind of thing or has fewer dimensions.
    pub fn value(&self, args: &[Arg], device: &Device) -> Result<i64, Error> {
        let both = |two: &[Expr; 2]| Ok((two[0].value(args, device)?, two[1].value(args, device)?));
        let checked = |v: Option<i64>| {
            v.ok_or_else(|| {
                Error::new(Code::E1105, "division by zero or overflow in an expression of the launch")
            })
        };
        let view = |n: u16| match args.get(usize::from(n)) {
            Some(Arg::View(v)) => Ok(v),
            _ => Err(Error::new(Code::E1103, format!("argument {n} is no view"))),
        };
        let part = |n: u16, list: &[i64], d: u8| {
            let missing = || Error::new(Code::E1103, format!("view {n} has no dimension {d}"));
            list.get(usize::from(d)).copied().ok_or_else(missing)
        };
        match self {
            Expr::Int(v) => Ok(*v),
            Expr::Scalar(n) => match args.get(usize::from(*n)) {
                Some(Arg::Int(v)) => Ok(*v),
                _ => Err(Error::new(Code::E1103, format!("argument {n} is no integer"))),
            },
            Expr::Extent(n, d) => part(*n, &view(*n)?.extents, *d),
            Expr::Stride(n, d) => part(*n, &view(*n)?.strides, *d),
            Expr::Addresses(views) => {
                views.iter().try_fold(0, |all, &n| Ok(all | view(n)?.address)).map(|all: u64| all as i64)
            }
            Expr::Sms => Ok(device.sms.into()),
            Expr::Negate(x) => checked(x.value(args, device)?.checked_neg()),
            Expr::CeilDiv(two) => {
                let (a, b) = both(two)?;
                checked(a.checked_neg().and_then(|n| floor_div(n, b)).and_then(i64::checked_neg))
            }
            Expr::Min(list) | Expr::Max(list) => {
                let mut all = list.iter().map(|e| e.value(args, device));
                let Some(first) = all.next() else { return checked(None) };
                let pick = if matches!(self, Expr::Min(_)) { i64::min } else { i64::max };
                all.try_fold(first?, |best, v| Ok(pick(best, v?)))
            }
            Expr::Binary(op, two) => {
                let (a, b) = both(two)?;
                let test = |t: bool| Some(i64::from(t));
                checked(match op {
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
                    Binary::Div => floor_div(a, b),
                    Binary::Rem => a.checked_rem_euclid(b),
                })
            }
        }
    }

    /// As text that [`Expr::parse`] reads.
    pub fn text<'a>(&'a self, args: &'a [ArgMeta]) -> impl fmt::Display + 'a {
        Text { expr: self, args, around: 0 }
    }
}

fn floor_div(a: i64, b: i64) -> Option<i64> {
    let q = a.checked_div(b)?;
    Some(if a % b != 0 && (a < 0) != (b < 0) { q - 1 } else { q })
}

/// An expression inside an operator that binds as strongly as `around`.
struct Text<'a> {
    expr: &'a Expr,
    args: &'a [ArgMeta],
    around: u32,
}

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |n: u16| self.args.get(usize::from(n)).map_or("?", |a| &a.name);
        let args = self.args;
        let inner = |expr, around| Text { expr, args, around };
        let list = |f: &mut fmt::Formatter<'_>, what: &str, list: &[Expr]| {
            write!(f, "{what}(")?;
            for (i, expr) in list.iter().enumerate() {
                write!(f, "{}{}", if i > 0 { ", " } else { "" }, Text { expr, args, around: 0 })?;
            }
            f.write_str(")")
        };
        match self.expr {
            // A sign binds as `-x` does.
            Expr::Int(v) if *v < 0 && self.around > 3 => write!(f, "({v})"),
            Expr::Int(v) => write!(f, "{v}"),
            Expr::Scalar(n) => f.write_str(name(*n)),
            Expr::Extent(n, d) => write!(f, "{}.d{d}", name(*n)),
            Expr::Stride(n, d) => write!(f, "{}.s{d}", name(*n)),
            Expr::Addresses(views) => {
                let names: Vec<&str> = views.iter().map(|&n| name(n)).collect();
                write!(f, "ptr({})", names.join(", "))
            }
            Expr::Sms => f.write_str("sms"),
            Expr::Negate(x) => write!(f, "-({})", inner(x, 0)),
            Expr::CeilDiv(two) => list(f, "ceildiv", &two[..]),
            Expr::Min(all) => list(f, "min", all),
            Expr::Max(all) => list(f, "max", all),
            Expr::Binary(op, two) => {
                let (sign, level) = op.text();
                // What stands on the right of an operator of its own level is in parentheses; comparisons are not chained.
                let left = if level == 0 { 1 } else { level };
                let (a, b) = (inner(&two[0], left), inner(&two[1], level + 1));
                match level < self.around {
                    true => write!(f, "({a} {sign} {b})"),
                    false => write!(f, "{a} {sign} {b}"),
                }
            }
        }
    }
}
