//! Expectations as formulas over whole matrices: `relu(a @ b.T) + bias`.
//!
//! Grammar: numbers, names of views and scalars, `+ - * / @`, unary `-`, parentheses, `x.T`, `x[:, n:]` (columns from
//! n on), `x[n:]` (rows from n on), `x[:, None]` (a vector as a column), functions `relu abs exp exp2 tanh sqrt tril
//! minimum maximum f16 bf16`. Shapes broadcast as in numpy. Everything is computed in `f64`, independent of compiler,
//! interpreter and emulator.

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

    fn rows_from(&self, n: usize) -> Result<Matrix> {
        if self.rank == 1 {
            return self.columns_from(n);
        }
        ensure!(n <= self.rows, "there are {} rows", self.rows);
        let data = self.data[n * self.cols..].to_vec();
        Ok(Matrix { rows: self.rows - n, data, ..*self })
    }

    fn columns_from(&self, n: usize) -> Result<Matrix> {
        ensure!(n <= self.cols, "there are {} columns", self.cols);
        let data = self.data.chunks(self.cols.max(1)).flat_map(|row| row[n..].iter().copied()).collect();
        Ok(Matrix { cols: self.cols - n, data, ..*self })
    }
}

/// Evaluates a formula.
///
/// # Errors
/// Unknown names, malformed text, shapes that do not fit.
pub fn evaluate(text: &str, names: &BTreeMap<String, Matrix>) -> Result<Matrix> {
    let mut p = Parser { text, at: 0, names, depth: 0 };
    let v = p.sum()?;
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

    fn sum(&mut self) -> Result<Matrix> {
        self.depth += 1;
        ensure!(self.depth < 64, "`{}`: nested too deep", self.text);
        let mut v = self.term()?;
        loop {
            v = if self.take("+") {
                v.zip(&self.term()?, |a, b| a + b)?
            } else if self.take("-") {
                v.zip(&self.term()?, |a, b| a - b)?
            } else {
                self.depth -= 1;
                return Ok(v);
            };
        }
    }

    fn term(&mut self) -> Result<Matrix> {
        let mut v = self.factor()?;
        loop {
            v = if self.take("*") {
                v.zip(&self.factor()?, |a, b| a * b)?
            } else if self.take("/") {
                v.zip(&self.factor()?, |a, b| a / b)?
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
        let out = if self.take(":") {
            self.need(",")?;
            if self.take("None") {
                ensure!(v.rank == 1, "[:, None] is for vectors");
                Matrix { rank: 2, rows: v.cols, cols: 1, data: v.data }
            } else {
                let n = self.number()?;
                self.need(":")?;
                v.columns_from(n)?
            }
        } else {
            let n = self.number()?;
            self.need(":")?;
            v.rows_from(n)?
        };
        self.need("]")?;
        Ok(out)
    }

    fn number(&mut self) -> Result<usize> {
        let word = self.word();
        match word.parse() {
            Ok(n) => Ok(n),
            Err(_) => bail!("`{}` at {}: expected an index", self.text, self.at),
        }
    }

    fn atom(&mut self) -> Result<Matrix> {
        if self.take("(") {
            let v = self.sum()?;
            self.need(")")?;
            return Ok(v);
        }
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
        let a = self.sum()?;
        let b = if self.take(",") { Some(self.sum()?) } else { None };
        self.need(")")?;
        Ok(match (name, b) {
            ("relu", None) => a.map(|x| if x.is_nan() { x } else { x.max(0.0) }),
            ("abs", None) => a.map(f64::abs),
            ("exp", None) => a.map(f64::exp),
            ("exp2", None) => a.map(f64::exp2),
            ("tanh", None) => a.map(f64::tanh),
            ("sqrt", None) => a.map(f64::sqrt),
            ("tril", None) => {
                let cols = a.cols.max(1);
                let mut t = a;
                t.data
                    .iter_mut()
                    .enumerate()
                    .filter(|(k, _)| k % cols > k / cols)
                    .for_each(|(_, x)| *x = 0.0);
                t
            }
            ("minimum", Some(b)) => a.zip(&b, f64::min)?,
            ("maximum", Some(b)) => a.zip(&b, f64::max)?,
            (_, b) => {
                bail!("`{}`: no function {name} of {} arguments", self.text, 1 + usize::from(b.is_some()))
            }
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
        for bad in ["", "b", "a @ a", "a + v", "a[", "relu(", "a a", "foo(a)", "a[:, 9:]"] {
            assert!(evaluate(bad, &names).is_err(), "{bad}");
        }
    }
}
