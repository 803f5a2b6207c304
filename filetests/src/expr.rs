//! Expectations as formulas over whole matrices: `relu(a @ b.T) + bias`.
//!
//! Grammar, a part of numpy's: numbers, names of views and scalars, `+ - * / // % @`, comparisons (0 or 1), `&`, `|`, unary
//! `-`, parentheses, `x.T`, slices `x[a:b]` (rows) and `x[:, a:b]` (columns), `x[:, None]` and `x[None]` (a vector as a
//! column or a row), functions `relu abs exp exp2 tanh sqrt tril minimum maximum where arange zeros`. Shapes broadcast,
//! slices are cut to the extents. Everything is computed in `f64`, independent of compiler, interpreter and emulator.

use anyhow::{Result, bail, ensure};
use std::collections::BTreeMap;

/// A matrix, a vector (one row, rank 1) or a number (rank 0).
#[derive(Clone, Debug, PartialEq)]
pub struct Matrix {
    /// 0, 1 or 2.
    pub rank: u8,
    /// Rows; 1 below rank 2.
    pub rows: usize,
    /// Columns; 1 below rank 1.
    pub cols: usize,
    /// Row-major elements.
    pub data: Vec<f64>,
}

impl Matrix {
    /// A number.
    pub fn number(x: f64) -> Matrix {
        Matrix { rank: 0, rows: 1, cols: 1, data: vec![x] }
    }

    /// A vector or matrix of that shape. `None` for other ranks or lengths.
    pub fn new(shape: &[usize], data: Vec<f64>) -> Option<Matrix> {
        let (rank, rows, cols) = match *shape {
            [] => (0, 1, 1),
            [n] => (1, 1, n),
            [m, n] => (2, m, n),
            _ => return None,
        };
        (data.len() == rows * cols).then_some(Matrix { rank, rows, cols, data })
    }

    /// Element (i, j) with extents of 1 repeated.
    pub fn at(&self, i: usize, j: usize) -> f64 {
        self.data[(if self.rows == 1 { 0 } else { i }) * self.cols + if self.cols == 1 { 0 } else { j }]
    }

    fn map(mut self, f: impl Fn(f64) -> f64) -> Matrix {
        self.data.iter_mut().for_each(|x| *x = f(*x));
        self
    }

    fn zip(&self, other: &Matrix, f: impl Fn(f64, f64) -> f64) -> Result<Matrix> {
        let side = |a: usize, b: usize| {
            ensure!(a == b || a == 1 || b == 1, "extents {a} and {b} do not fit");
            Ok(if a == 1 { b } else { a })
        };
        let (rows, cols) = (side(self.rows, other.rows)?, side(self.cols, other.cols)?);
        let data =
            (0..rows * cols).map(|k| f(self.at(k / cols, k % cols), other.at(k / cols, k % cols))).collect();
        Ok(Matrix { rank: self.rank.max(other.rank), rows, cols, data })
    }

    fn product(&self, other: &Matrix) -> Result<Matrix> {
        ensure!(self.rank == 2 && other.rank == 2 && self.cols == other.rows, "@ needs fitting matrices");
        let mut data = vec![0.0; self.rows * other.cols];
        for (row, out) in self.data.chunks(self.cols.max(1)).zip(data.chunks_mut(other.cols.max(1))) {
            for (x, line) in row.iter().zip(other.data.chunks(other.cols.max(1))) {
                out.iter_mut().zip(line).for_each(|(o, y)| *o += x * y);
            }
        }
        Ok(Matrix { rank: 2, rows: self.rows, cols: other.cols, data })
    }

    fn transposed(&self) -> Matrix {
        if self.rank < 2 {
            return self.clone();
        }
        let data =
            (0..self.data.len()).map(|k| self.data[(k % self.rows) * self.cols + k / self.rows]).collect();
        Matrix { rank: 2, rows: self.cols, cols: self.rows, data }
    }

    fn rows_of(&self, from: usize, to: usize) -> Matrix {
        if self.rank == 1 {
            return self.columns_of(from, to);
        }
        let to = to.min(self.rows);
        let from = from.min(to);
        Matrix { rows: to - from, data: self.data[from * self.cols..to * self.cols].to_vec(), ..*self }
    }

    fn columns_of(&self, from: usize, to: usize) -> Matrix {
        let to = to.min(self.cols);
        let from = from.min(to);
        let data = self.data.chunks(self.cols.max(1)).flat_map(|row| row[from..to].iter().copied()).collect();
        Matrix { cols: to - from, data, ..*self }
    }
}

/// A comparison operator.
type Test = (&'static str, fn(f64, f64) -> bool);

/// Evaluates a formula.
///
/// # Errors
/// Unknown names, malformed text, shapes that do not fit.
pub fn evaluate(text: &str, names: &BTreeMap<String, Matrix>) -> Result<Matrix> {
    let mut p = Parser { text, at: 0, names, depth: 0 };
    let v = p.whole()?;
    p.skip();
    ensure!(p.at == text.len(), "`{text}` at {}: expected an operator", p.at);
    Ok(v)
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    names: &'a BTreeMap<String, Matrix>,
    depth: u32,
}

impl<'a> Parser<'a> {
    fn skip(&mut self) {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start().len();
    }

    fn take(&mut self, token: &str) -> bool {
        self.skip();
        let found = self.text[self.at..].starts_with(token);
        if found {
            self.at += token.len();
        }
        found
    }

    fn need(&mut self, token: &str) -> Result<()> {
        ensure!(self.take(token), "`{}` at {}: expected `{token}`", self.text, self.at);
        Ok(())
    }

    fn word(&mut self) -> &'a str {
        self.skip();
        let rest = &self.text[self.at..];
        let end =
            rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '.').unwrap_or(rest.len());
        // `.T` and the like belong to the caller; a dot inside a number does not.
        let end = if rest.starts_with(|c: char| c.is_ascii_digit()) {
            end
        } else {
            rest[..end].find('.').unwrap_or(end)
        };
        self.at += end;
        &rest[..end]
    }

    /// Comparisons, joined by `&`.
    fn whole(&mut self) -> Result<Matrix> {
        self.depth += 1;
        ensure!(self.depth < 64, "`{}`: nested too deep", self.text);
        let mut v = self.comparison()?;
        loop {
            v = if self.take("&") {
                v.zip(&self.comparison()?, |a, b| f64::from(u8::from(a != 0.0 && b != 0.0)))?
            } else if self.take("|") {
                v.zip(&self.comparison()?, |a, b| f64::from(u8::from(a != 0.0 || b != 0.0)))?
            } else {
                self.depth -= 1;
                return Ok(v);
            };
        }
    }

    fn comparison(&mut self) -> Result<Matrix> {
        let v = self.sum()?;
        // Longer operators first.
        let tests: [Test; 6] = [
            ("==", |a, b| a == b),
            ("!=", |a, b| a != b),
            ("<=", |a, b| a <= b),
            (">=", |a, b| a >= b),
            ("<", |a, b| a < b),
            (">", |a, b| a > b),
        ];
        for (token, test) in tests {
            if self.take(token) {
                return v.zip(&self.sum()?, |a, b| f64::from(u8::from(test(a, b))));
            }
        }
        Ok(v)
    }

    fn sum(&mut self) -> Result<Matrix> {
        let mut v = self.term()?;
        loop {
            v = if self.take("+") {
                v.zip(&self.term()?, |a, b| a + b)?
            } else if self.take("-") {
                v.zip(&self.term()?, |a, b| a - b)?
            } else {
                return Ok(v);
            };
        }
    }

    fn term(&mut self) -> Result<Matrix> {
        let mut v = self.factor()?;
        loop {
            v = if self.take("*") {
                v.zip(&self.factor()?, |a, b| a * b)?
            } else if self.take("//") {
                v.zip(&self.factor()?, |a, b| (a / b).floor())?
            } else if self.take("/") {
                v.zip(&self.factor()?, |a, b| a / b)?
            } else if self.take("%") {
                v.zip(&self.factor()?, |a, b| a - b * (a / b).floor())?
            } else if self.take("@") {
                v.product(&self.factor()?)?
            } else {
                return Ok(v);
            };
        }
    }

    fn factor(&mut self) -> Result<Matrix> {
        if self.take("-") {
            self.depth += 1;
            ensure!(self.depth < 64, "`{}`: nested too deep", self.text);
            let v = self.factor()?;
            self.depth -= 1;
            return Ok(v.map(|x| -x));
        }
        let mut v = self.atom()?;
        loop {
            if self.take(".T") {
                v = v.transposed();
            } else if self.take("[") {
                v = self.index(v)?;
            } else {
                return Ok(v);
            }
        }
    }

    fn index(&mut self, v: Matrix) -> Result<Matrix> {
        let out = if self.take("None") {
            ensure!(v.rank == 1, "[None] is for vectors");
            if self.take(",") {
                self.need(":")?;
            }
            Matrix { rank: 2, ..v }
        } else {
            let (from, to) = self.range()?;
            if self.take(",") {
                ensure!(v.rank == 2 || v.rank == 1, "an index of a number");
                if self.take("None") {
                    ensure!(v.rank == 1, "[:, None] is for vectors");
                    let v = v.rows_of(from, to);
                    Matrix { rank: 2, rows: v.cols, cols: 1, data: v.data }
                } else {
                    ensure!(v.rank == 2, "a vector has no columns to select");
                    let (left, right) = self.range()?;
                    v.rows_of(from, to).columns_of(left, right)
                }
            } else {
                v.rows_of(from, to)
            }
        };
        self.need("]")?;
        Ok(out)
    }

    /// `a:b`, either of which may be missing.
    fn range(&mut self) -> Result<(usize, usize)> {
        let from = self.number(0)?;
        self.need(":")?;
        Ok((from, self.number(usize::MAX)?))
    }

    fn number(&mut self, missing: usize) -> Result<usize> {
        match self.word() {
            "" => Ok(missing),
            word => match word.parse() {
                Ok(n) => Ok(n),
                Err(_) => bail!("`{}` at {}: expected an index", self.text, self.at),
            },
        }
    }

    fn atom(&mut self) -> Result<Matrix> {
        if self.take("(") {
            let v = self.whole()?;
            self.need(")")?;
            return Ok(v);
        }
        self.take("np.");
        let word = self.word();
        if let Ok(x) = word.parse::<f64>()
            && word.starts_with(|c: char| c.is_ascii_digit())
        {
            return Ok(Matrix::number(x));
        }
        ensure!(!word.is_empty(), "`{}` at {}: expected a number, a name or `(`", self.text, self.at);
        if self.take("(") {
            return self.call(word);
        }
        match self.names.get(word) {
            Some(v) => Ok(v.clone()),
            None => bail!("`{}`: nothing is called {word}", self.text),
        }
    }

    fn call(&mut self, name: &str) -> Result<Matrix> {
        let list = self.take("[");
        let mut args = Vec::new();
        loop {
            args.push(self.whole()?);
            if !self.take(",") {
                break;
            }
        }
        if list {
            self.need("]")?;
        }
        self.need(")")?;
        let size = |m: &Matrix| -> Result<usize> {
            let n = m.data[0];
            ensure!(m.rank == 0 && (0.0..1e8).contains(&n), "an extent is needed");
            Ok(n as usize)
        };
        let count = args.len();
        let mut args = args.into_iter();
        let (a, b, c) = (args.next(), args.next(), args.next());
        Ok(match (name, a, b, c) {
            ("relu", Some(a), None, _) => a.map(|x| if x.is_nan() { x } else { x.max(0.0) }),
            ("abs", Some(a), None, _) => a.map(f64::abs),
            ("exp", Some(a), None, _) => a.map(f64::exp),
            ("exp2", Some(a), None, _) => a.map(f64::exp2),
            ("tanh", Some(a), None, _) => a.map(f64::tanh),
            ("sqrt", Some(a), None, _) => a.map(f64::sqrt),
            ("tril", Some(a), None, _) => {
                let cols = a.cols.max(1);
                let mut t = a;
                t.data
                    .iter_mut()
                    .enumerate()
                    .filter(|(k, _)| k % cols > k / cols)
                    .for_each(|(_, x)| *x = 0.0);
                t
            }
            ("minimum", Some(a), Some(b), None) => a.zip(&b, f64::min)?,
            ("maximum", Some(a), Some(b), None) => a.zip(&b, f64::max)?,
            ("where", Some(a), Some(b), Some(c)) => {
                let ones = a.zip(&b, |t, x| if t != 0.0 { x } else { 0.0 })?;
                let zeros = a.zip(&c, |t, x| if t != 0.0 { 0.0 } else { x })?;
                let mask = a.zip(&ones, |t, _| t)?;
                // Selected, not summed: NaN stays where it is.
                let (rows, cols) = (ones.rows.max(zeros.rows), ones.cols.max(zeros.cols));
                let pick = |i, j| if mask.at(i, j) != 0.0 { ones.at(i, j) } else { zeros.at(i, j) };
                let data = (0..rows * cols).map(|k| pick(k / cols, k % cols)).collect();
                Matrix { rank: ones.rank.max(zeros.rank), rows, cols, data }
            }
            ("arange", Some(a), None, _) => {
                let n = size(&a)?;
                Matrix { rank: 1, rows: 1, cols: n, data: (0..n).map(|i| i as f64).collect() }
            }
            ("zeros", Some(a), None, _) => {
                let n = size(&a)?;
                Matrix { rank: 1, rows: 1, cols: n, data: vec![0.0; n] }
            }
            ("zeros", Some(a), Some(b), None) => {
                let (rows, cols) = (size(&a)?, size(&b)?);
                Matrix { rank: 2, rows, cols, data: vec![0.0; rows * cols] }
            }
            _ => bail!("`{}`: no function {name} of {count} arguments", self.text),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formulas() {
        let m = |r: usize, c: usize, d: &[f64]| Matrix { rank: 2, rows: r, cols: c, data: d.to_vec() };
        let mut names = BTreeMap::new();
        names.insert("a".to_string(), m(2, 3, &[1.0, 2.0, 3.0, -4.0, 5.0, -6.0]));
        names.insert("v".to_string(), Matrix { rank: 1, rows: 1, cols: 2, data: vec![10.0, 20.0] });
        let eval = |t: &str| evaluate(t, &names).unwrap();
        assert_eq!(eval("a @ a.T").data, [14.0, -12.0, -12.0, 77.0]);
        assert_eq!(eval("relu(a)[:, 1:] + v").data, [12.0, 23.0, 15.0, 20.0]);
        assert_eq!(eval("a[1:] * 2").data, [-8.0, 10.0, -12.0]);
        assert_eq!(eval("0.5*(a @ a.T) + v[:, None]").data, [17.0, 4.0, 14.0, 58.5]);
        assert_eq!(eval("tril(a)").data, [1.0, 0.0, 0.0, -4.0, 5.0, 0.0]);
        assert_eq!(eval("where(arange(3)[None] < 2, a, 7)").data, [1.0, 2.0, 7.0, -4.0, 5.0, 7.0]);
        assert_eq!(eval("(arange(5) // 2 == 1) & (arange(5) % 2 == 0)").data, [0.0, 0.0, 1.0, 0.0, 0.0]);
        assert_eq!(eval("a[:, :2] @ a[0:9, 1:3]").data, [12.0, -9.0, 17.0, -42.0]);
        for bad in ["", "b", "a @ a", "a + v", "a[", "relu(", "a a", "foo(a)", "v[:, 1:]", "zeros(1e99)"] {
            assert!(evaluate(bad, &names).is_err(), "{bad}");
        }
    }
}
