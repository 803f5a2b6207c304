//! Results as formulas over whole arrays: `relu(a @ b.T) + bias`.
//!
//! In: text in the grammar of [`super::syntax`], arrays by name. Out: an array. Meaning: numpy's, in `f64`; shapes broadcast,
//! slices are cut to the extents. Independent of the compiler, its interpreter and the execution of PTX: formulas are
//! the judge of all three.
//!
//! - operators: `+ - * / // % ** @`, comparisons, `&` and `|` (0 or 1);
//! - `x.T`, `x.shape[i]`, `x[2:8:2, None, i]` with steps above 0 and at most one list or vector of indices for each axis;
//! - `abs exp exp2 log log2 sqrt tanh sin cos floor relu`, `minimum maximum` (NaN if one is), `fmin fmax` (NaN if both are),
//!   `where(c, a, b)`;
//! - `arange(n)`, `arange(from, to)`, `zeros(n, …)`, `ones(n, …)` or with a list;
//! - `reshape(x, n, …)` or `x.reshape(…)` (-1 once), `repeat(x, n, axis=)`, `concatenate([…], axis=)`, `tril(x)`, `triu(x)`;
//! - `sum max min (x, axis=)`, also `x.sum(0)`; without an axis: over everything;
//! - `f16(x)`, `bf16(x)`, `i32(x)`, …: rounded to that type, as a stored element is.

use super::data::Elem;
use super::syntax::{self, Binary, Expr, Item, Kind};
use std::collections::BTreeMap;

/// An array: extents, outermost first, and elements in row-major order. No extents: a number.
#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    /// Extents.
    pub shape: Vec<usize>,
    /// Elements.
    pub data: Vec<f64>,
}

/// Most elements of one array.
const MAX_ELEMENTS: usize = 1 << 26;

/// Most multiplications of one product.
const MAX_PRODUCTS: usize = 1 << 36;

/// Number of elements; `None` if they are too many.
fn count(shape: &[usize]) -> Option<usize> {
    shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d)).filter(|&n| n <= MAX_ELEMENTS)
}

type Outcome = Result<Array, String>;

impl Array {
    /// A number.
    pub fn number(x: f64) -> Array {
        Array { shape: Vec::new(), data: vec![x] }
    }

    /// An array of that shape; `None` if the number of elements differs.
    pub fn new(shape: &[usize], data: Vec<f64>) -> Option<Array> {
        (count(shape) == Some(data.len())).then(|| Array { shape: shape.to_vec(), data })
    }

    /// The array repeated along extents of 1 and new outer axes, to have that shape.
    ///
    /// # Errors
    /// The shapes do not fit.
    pub fn broadcast(&self, shape: &[usize]) -> Outcome {
        if self.shape == shape {
            return Ok(self.clone());
        }
        let unfit = || format!("an array of extents {:?} does not fit {shape:?}", self.shape);
        let total = count(shape).ok_or_else(unfit)?;
        let new = shape.len().checked_sub(self.shape.len()).ok_or_else(unfit)?;
        // Strides of the source, 0 where it repeats.
        let mut strides = vec![0; shape.len()];
        let mut stride = 1;
        for k in (0..self.shape.len()).rev() {
            match self.shape[k] {
                n if n == shape[new + k] => strides[new + k] = stride,
                1 => {}
                _ => return Err(unfit()),
            }
            stride *= self.shape[k];
        }
        let mut data = Vec::with_capacity(total);
        let mut at = vec![0; shape.len()];
        let mut from = 0;
        for _ in 0..total {
            data.push(self.data[from]);
            for k in (0..shape.len()).rev() {
                at[k] += 1;
                from += strides[k];
                if at[k] < shape[k] {
                    break;
                }
                from -= strides[k] * shape[k];
                at[k] = 0;
            }
        }
        Ok(Array { shape: shape.to_vec(), data })
    }

    fn map(mut self, f: impl Fn(f64) -> f64) -> Array {
        self.data.iter_mut().for_each(|x| *x = f(*x));
        self
    }

    fn zip(&self, other: &Array, f: impl Fn(f64, f64) -> f64) -> Outcome {
        let shape = common(&[self, other])?;
        let (mut a, b) = (self.broadcast(&shape)?, other.broadcast(&shape)?);
        a.data.iter_mut().zip(&b.data).for_each(|(x, y)| *x = f(*x, *y));
        Ok(a)
    }

    fn product(&self, other: &Array) -> Outcome {
        let (&[m, k], &[k2, n]) = (&self.shape[..], &other.shape[..]) else {
            return Err("@ works on matrices".into());
        };
        let work = m.checked_mul(k).and_then(|w| w.checked_mul(n));
        if k != k2 || count(&[m, n]).is_none() || work.is_none_or(|w| w > MAX_PRODUCTS) {
            return Err(format!("@ of {:?} and {:?}", self.shape, other.shape));
        }
        let mut data = vec![0.0; m * n];
        for (row, out) in self.data.chunks(k.max(1)).zip(data.chunks_mut(n.max(1))) {
            for (x, line) in row.iter().zip(other.data.chunks(n.max(1))) {
                out.iter_mut().zip(line).for_each(|(o, y)| *o += x * y);
            }
        }
        Ok(Array { shape: vec![m, n], data })
    }

    fn transposed(&self) -> Array {
        let shape: Vec<usize> = self.shape.iter().rev().copied().collect();
        let mut data = Vec::with_capacity(self.data.len());
        let mut strides = vec![1; shape.len()];
        for k in 1..shape.len() {
            strides[k] = strides[k - 1] * shape[k - 1];
        }
        for mut i in 0..self.data.len() {
            let mut from = 0;
            for (&n, &s) in shape.iter().zip(&strides).rev() {
                from += (i % n) * s;
                i /= n;
            }
            data.push(self.data[from]);
        }
        Array { shape, data }
    }

    /// Blocks before an axis, its extent, elements of one step along it.
    fn around(&self, axis: usize) -> (usize, usize, usize) {
        let after: usize = self.shape[axis + 1..].iter().product();
        (self.shape[..axis].iter().product(), self.shape[axis], after)
    }

    fn gather(&self, axis: usize, list: &[usize]) -> Outcome {
        let (before, n, after) = self.around(axis);
        let mut shape = self.shape.clone();
        shape[axis] = list.len();
        let total = count(&shape).ok_or("too many elements")?;
        let mut data = Vec::with_capacity(total);
        for b in 0..before {
            for &i in list {
                let start = (b * n + i) * after;
                data.extend_from_slice(&self.data[start..start + after]);
            }
        }
        Ok(Array { shape, data })
    }

    fn reduce(&self, axis: Option<usize>, f: impl Fn(f64, f64) -> f64, start: f64) -> Array {
        let Some(axis) = axis else {
            return Array::number(self.data.iter().fold(start, |a, &b| f(a, b)));
        };
        let (before, n, after) = self.around(axis);
        let mut shape = self.shape.clone();
        shape.remove(axis);
        let at = |b: usize, i: usize, a: usize| self.data[(b * n + i) * after + a];
        let fold = |k: usize| (0..n).fold(start, |s, i| f(s, at(k / after, i, k % after)));
        Array { shape, data: (0..before * after).map(fold).collect() }
    }
}

/// The shape that several arrays broadcast to.
fn common(list: &[&Array]) -> Result<Vec<usize>, String> {
    let rank = list.iter().map(|a| a.shape.len()).max().unwrap_or(0);
    let mut shape = vec![1; rank];
    for a in list {
        for (s, &n) in shape[rank - a.shape.len()..].iter_mut().zip(&a.shape) {
            match (*s, n) {
                (x, y) if x == y => {}
                (1, y) => *s = y,
                (_, 1) => {}
                (x, y) => return Err(format!("extents {x} and {y} do not fit")),
            }
        }
    }
    Ok(shape)
}

/// Evaluates a formula.
///
/// # Errors
/// Unknown names, malformed text, shapes that do not fit: what and where (byte offset).
pub fn evaluate(text: &str, names: &BTreeMap<String, Array>) -> Outcome {
    let tree = syntax::parse(text)?;
    let walk = Walk { text, names };
    walk.value(&tree)
}

struct Walk<'a> {
    text: &'a str,
    names: &'a BTreeMap<String, Array>,
}

fn truth(t: bool) -> f64 {
    f64::from(u8::from(t))
}

/// The larger number; NaN if one is.
fn maximum(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() { f64::NAN } else { a.max(b) }
}

/// The smaller number; NaN if one is.
fn minimum(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() { f64::NAN } else { a.min(b) }
}

impl Walk<'_> {
    fn fail<T>(&self, e: &Expr, what: &str) -> Result<T, String> {
        Err(syntax::fail(self.text, e.at, what))
    }

    /// Says where an operation failed.
    fn here<T>(&self, e: &Expr, v: Result<T, String>) -> Result<T, String> {
        v.map_err(|what| syntax::fail(self.text, e.at, &what))
    }

    fn value(&self, e: &Expr) -> Outcome {
        match &e.kind {
            Kind::Int(i) => Ok(Array::number(*i as f64)),
            Kind::Float(x) => Ok(Array::number(*x)),
            Kind::Name(name) => match self.names.get(name) {
                Some(v) => Ok(v.clone()),
                None => self.fail(e, &format!("nothing is called {name}")),
            },
            Kind::List(list) => {
                let parts = list.iter().map(|x| self.number(x)).collect::<Result<Vec<f64>, String>>()?;
                Ok(Array { shape: vec![parts.len()], data: parts })
            }
            Kind::Negate(x) => Ok(self.value(x)?.map(|x| -x)),
            Kind::Binary(op, a, b) => {
                let (a, b) = (self.value(a)?, self.value(b)?);
                self.here(e, binary(*op, &a, &b))
            }
            Kind::Member(x, name) => match name.as_str() {
                "T" => Ok(self.value(x)?.transposed()),
                "shape" => {
                    let shape = self.value(x)?.shape;
                    Ok(Array { shape: vec![shape.len()], data: shape.iter().map(|&n| n as f64).collect() })
                }
                _ => self.fail(e, &format!("no member {name}")),
            },
            Kind::Index(x, items) => {
                let x = self.value(x)?;
                self.index(e, x, items)
            }
            Kind::Call(f, args, named) => match &f.kind {
                Kind::Name(name) => self.call(e, name, None, args, named),
                Kind::Member(x, name) => {
                    let x = self.value(x)?;
                    self.call(e, name, Some(x), args, named)
                }
                _ => self.fail(e, "no such function"),
            },
        }
    }

    fn number(&self, e: &Expr) -> Result<f64, String> {
        match self.value(e)? {
            v if v.shape.is_empty() => Ok(v.data[0]),
            _ => self.fail(e, "a number is needed"),
        }
    }

    fn integer(&self, e: &Expr) -> Result<i64, String> {
        match self.number(e)? {
            x if x.fract() == 0.0 && x.abs() < 9e15 => Ok(x as i64),
            _ => self.fail(e, "an integer is needed"),
        }
    }

    fn index(&self, e: &Expr, mut x: Array, items: &[Item]) -> Outcome {
        let mut axis = 0;
        for item in items {
            if *item == Item::New {
                x.shape.insert(axis, 1);
                axis += 1;
                continue;
            }
            let Some(&n) = x.shape.get(axis) else { return self.fail(e, "more indices than axes") };
            match item {
                Item::New => {}
                Item::Range(parts) => {
                    let part = |p: &Option<Expr>| p.as_ref().map(|p| self.integer(p)).transpose();
                    let step = part(&parts[2])?.unwrap_or(1);
                    if step < 1 {
                        return self.fail(e, "a step above 0 is needed");
                    }
                    let end = |v: i64| (if v < 0 { v + n as i64 } else { v }).clamp(0, n as i64) as usize;
                    let (from, to) = (part(&parts[0])?.map_or(0, end), part(&parts[1])?.map_or(n, end));
                    let list: Vec<usize> = (from..to.max(from)).step_by(step as usize).collect();
                    x = self.here(e, x.gather(axis, &list))?;
                    axis += 1;
                }
                Item::At(at) => {
                    let at_value = self.value(at)?;
                    let one = |&v: &f64| {
                        let i = if v < 0.0 { v + n as f64 } else { v };
                        if i.fract() == 0.0 && (0.0..n as f64).contains(&i) {
                            Ok(i as usize)
                        } else {
                            self.fail(at, &format!("index {v} of {n} elements"))
                        }
                    };
                    let list = at_value.data.iter().map(one).collect::<Result<Vec<_>, String>>()?;
                    x = self.here(e, x.gather(axis, &list))?;
                    match at_value.shape.len() {
                        0 => _ = x.shape.remove(axis),
                        1 => axis += 1,
                        _ => return self.fail(at, "a vector of indices is needed"),
                    }
                }
            }
        }
        Ok(x)
    }

    fn call(
        &self,
        e: &Expr,
        name: &str,
        this: Option<Array>,
        args: &[Expr],
        named: &[(String, Expr)],
    ) -> Outcome {
        if let Some((other, _)) = named.iter().find(|(n, _)| n != "axis") {
            return self.fail(e, &format!("no argument {other}"));
        }
        let given_axis = named.first().map(|(_, v)| v);
        if name == "concatenate" {
            let [Expr { kind: Kind::List(list), .. }, rest @ ..] = args else {
                return self.fail(e, "concatenate([…], axis=…)");
            };
            let parts = list.iter().map(|x| self.value(x)).collect::<Result<Vec<_>, String>>()?;
            let rank = parts.first().map_or(0, |p| p.shape.len());
            let axis = self.axis(e, given_axis.or(rest.first()), rank)?.unwrap_or(0);
            return self.here(e, concatenate(&parts, axis));
        }
        // The array first, then the rest.
        let mut rest = args.iter();
        let mut next = || match rest.next() {
            Some(x) => self.value(x).map(Some),
            None => Ok(None),
        };
        let first = match this {
            Some(x) => Some(x),
            None => next()?,
        };
        let Some(x) = first else { return self.fail(e, &format!("{name} of nothing")) };
        let reduce = match name {
            "sum" => Some(((|a, b| a + b) as fn(f64, f64) -> f64, 0.0)),
            "max" => Some((maximum as fn(f64, f64) -> f64, f64::NEG_INFINITY)),
            "min" => Some((minimum as fn(f64, f64) -> f64, f64::INFINITY)),
            _ => None,
        };
        if let Some((f, start)) = reduce {
            let axis = self.axis(e, given_axis.or_else(|| rest.next()), x.shape.len())?;
            return Ok(x.reduce(axis, f, start));
        }
        if name == "repeat" {
            let times = next()?;
            let times = times.filter(|t| t.shape.is_empty()).map_or(-1.0, |t| t.data[0]);
            if times.fract() != 0.0 || !(0.0..1e9).contains(&times) {
                return self.fail(e, "repeat(x, n, axis=…)");
            }
            let flat = Array { shape: vec![x.data.len()], data: x.data.clone() };
            let (x, axis) = match self.axis(e, given_axis.or_else(|| rest.next()), x.shape.len())? {
                Some(axis) => (x, axis),
                None => (flat, 0),
            };
            // Before the list of indices is made.
            if x.data.len().max(x.shape[axis]).checked_mul(times as usize).is_none_or(|n| n > MAX_ELEMENTS) {
                return self.fail(e, "too many elements");
            }
            let list = (0..x.shape[axis]).flat_map(|i| std::iter::repeat_n(i, times as usize));
            return self.here(e, x.gather(axis, &list.collect::<Vec<_>>()));
        }
        if given_axis.is_some() {
            return self.fail(e, &format!("{name} has no axis"));
        }
        let mut others = Vec::new();
        while let Some(v) = next()? {
            others.push(v);
        }
        self.here(e, function(name, x, &others))
    }

    fn axis(&self, e: &Expr, given: Option<&Expr>, rank: usize) -> Result<Option<usize>, String> {
        let Some(given) = given else { return Ok(None) };
        let axis = self.integer(given)?;
        let axis = if axis < 0 { axis + rank as i64 } else { axis };
        if (0..rank as i64).contains(&axis) { Ok(Some(axis as usize)) } else { self.fail(e, "no such axis") }
    }
}

fn binary(op: Binary, a: &Array, b: &Array) -> Outcome {
    match op {
        Binary::Eq => a.zip(b, |x, y| truth(x == y)),
        Binary::Ne => a.zip(b, |x, y| truth(x != y)),
        Binary::Le => a.zip(b, |x, y| truth(x <= y)),
        Binary::Ge => a.zip(b, |x, y| truth(x >= y)),
        Binary::Lt => a.zip(b, |x, y| truth(x < y)),
        Binary::Gt => a.zip(b, |x, y| truth(x > y)),
        Binary::Or => a.zip(b, |x, y| truth(x != 0.0 || y != 0.0)),
        Binary::And => a.zip(b, |x, y| truth(x != 0.0 && y != 0.0)),
        Binary::Add => a.zip(b, |x, y| x + y),
        Binary::Sub => a.zip(b, |x, y| x - y),
        Binary::Mul => a.zip(b, |x, y| x * y),
        Binary::Div => a.zip(b, |x, y| x / y),
        Binary::FloorDiv => a.zip(b, |x, y| (x / y).floor()),
        Binary::Rem => a.zip(b, |x, y| x - y * (x / y).floor()),
        Binary::Power => a.zip(b, f64::powf),
        Binary::MatMul => a.product(b),
    }
}

fn concatenate(parts: &[Array], axis: usize) -> Outcome {
    let Some(first) = parts.first() else { return Err("nothing to concatenate".into()) };
    if first.shape.is_empty() {
        return Err("numbers cannot be concatenated".into());
    }
    let mut shape = first.shape.clone();
    shape[axis] = 0;
    for p in parts {
        let fits = p.shape.len() == shape.len()
            && p.shape.iter().zip(&first.shape).enumerate().all(|(k, (x, y))| k == axis || x == y);
        if !fits {
            return Err(format!("{:?} and {:?} cannot be concatenated", first.shape, p.shape));
        }
        shape[axis] += p.shape[axis];
    }
    let total = count(&shape).ok_or("too many elements")?;
    let mut data = Vec::with_capacity(total);
    let (before, ..) = first.around(axis);
    for b in 0..before {
        for p in parts {
            let (_, n, after) = p.around(axis);
            data.extend_from_slice(&p.data[b * n * after..(b + 1) * n * after]);
        }
    }
    Ok(Array { shape, data })
}

/// Extents from numbers or one list of them; -1 stands for what is left of `total`.
fn extents(list: &[&Array], total: Option<usize>) -> Result<Vec<usize>, String> {
    let numbers = list.iter().flat_map(|a| a.data.iter().copied());
    let mut open = None;
    let mut shape = Vec::new();
    for x in numbers {
        if x == -1.0 && total.is_some() && open.is_none() {
            open = Some(shape.len());
            shape.push(1);
        } else if x.fract() == 0.0 && (0.0..=MAX_ELEMENTS as f64).contains(&x) {
            shape.push(x as usize);
        } else {
            return Err(format!("{x} is no extent"));
        }
    }
    let n = count(&shape).ok_or("too many elements")?;
    if let (Some(k), Some(total)) = (open, total) {
        shape[k] = total.checked_div(n).unwrap_or(0);
    }
    Ok(shape)
}

/// Zeroes elements of the last two axes by row and column.
fn triangle(mut x: Array, keep: impl Fn(usize, usize) -> bool) -> Outcome {
    let &[.., rows, cols] = &x.shape[..] else { return Err("a matrix is needed".into()) };
    for (k, v) in x.data.iter_mut().enumerate() {
        if !keep(k / cols % rows, k % cols) {
            *v = 0.0;
        }
    }
    Ok(x)
}

fn function(name: &str, x: Array, others: &[Array]) -> Outcome {
    let one: Option<fn(f64) -> f64> = match name {
        "relu" => Some(|x| if x.is_nan() { x } else { x.max(0.0) }),
        "abs" => Some(f64::abs),
        "exp" => Some(f64::exp),
        "exp2" => Some(f64::exp2),
        "log" => Some(f64::ln),
        "log2" => Some(f64::log2),
        "sqrt" => Some(f64::sqrt),
        "tanh" => Some(f64::tanh),
        "sin" => Some(f64::sin),
        "cos" => Some(f64::cos),
        "floor" => Some(f64::floor),
        _ => None,
    };
    Ok(match (name, others) {
        (_, []) if one.is_some() => x.map(one.unwrap_or(f64::abs)),
        ("tril", []) => triangle(x, |i, j| j <= i)?,
        ("triu", []) => triangle(x, |i, j| j >= i)?,
        ("minimum", [y]) => x.zip(y, minimum)?,
        ("maximum", [y]) => x.zip(y, maximum)?,
        ("fmin", [y]) => x.zip(y, f64::min)?,
        ("fmax", [y]) => x.zip(y, f64::max)?,
        ("where", [a, b]) => {
            let shape = common(&[&x, a, b])?;
            let (c, mut a, b) = (x.broadcast(&shape)?, a.broadcast(&shape)?, b.broadcast(&shape)?);
            for (k, v) in a.data.iter_mut().enumerate() {
                if c.data[k] == 0.0 {
                    *v = b.data[k];
                }
            }
            a
        }
        ("arange", [] | [_]) => {
            let ends: Vec<usize> = extents(&std::iter::once(&x).chain(others).collect::<Vec<_>>(), None)?;
            let (from, to) = match ends[..] {
                [to] => (0, to),
                [from, to] => (from, to),
                _ => return Err("arange(n) or arange(from, to)".into()),
            };
            let data: Vec<f64> = (from..to.max(from)).map(|i| i as f64).collect();
            Array { shape: vec![data.len()], data }
        }
        ("zeros" | "ones", _) => {
            let shape = extents(&std::iter::once(&x).chain(others).collect::<Vec<_>>(), None)?;
            let n = count(&shape).ok_or("too many elements")?;
            Array { shape, data: vec![truth(name == "ones"); n] }
        }
        ("reshape", [_, ..]) => {
            let shape = extents(&others.iter().collect::<Vec<_>>(), Some(x.data.len()))?;
            let from = x.shape.clone();
            Array::new(&shape, x.data).ok_or_else(|| format!("{from:?} cannot become {shape:?}"))?
        }
        (_, []) if Elem::by_name(name).is_some() => match Elem::by_name(name) {
            Some(elem) => x.map(|x| elem.decode(elem.encode(x))),
            None => x,
        },
        _ => return Err(format!("no function {name} of {} arguments", others.len() + 1)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> BTreeMap<String, Array> {
        let mut names = BTreeMap::new();
        let mut put = |name: &str, shape: &[usize], data: &[f64]| {
            names.insert(name.to_owned(), Array::new(shape, data.to_vec()).unwrap());
        };
        put("a", &[2, 3], &[1.0, 2.0, 3.0, -4.0, 5.0, -6.0]);
        put("v", &[2], &[10.0, 20.0]);
        put("k", &[], &[2.0]);
        put("t", &[2, 2, 2], &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]);
        put("e", &[0, 3], &[]);
        names
    }

    /// Expected values: numpy 2.
    #[test]
    fn formulas() {
        let names = names();
        let table: &[(&str, &[usize], &[f64])] = &[
            ("a @ a.T", &[2, 2], &[14.0, -12.0, -12.0, 77.0]),
            ("relu(a)[:, 1:] + v", &[2, 2], &[12.0, 23.0, 15.0, 20.0]),
            ("a[1:] * 2", &[1, 3], &[-8.0, 10.0, -12.0]),
            ("0.5*(a @ a.T) + v[:, None]", &[2, 2], &[17.0, 4.0, 14.0, 58.5]),
            ("np.tril(a)", &[2, 3], &[1.0, 0.0, 0.0, -4.0, 5.0, 0.0]),
            ("where(arange(3)[None] < 2, a, 7)", &[2, 3], &[1.0, 2.0, 7.0, -4.0, 5.0, 7.0]),
            ("(arange(5) // 2 == 1) & (arange(5) % 2 == 0)", &[5], &[0.0, 0.0, 1.0, 0.0, 0.0]),
            ("a[:, :2] @ a[0:9, 1:3]", &[2, 2], &[12.0, -9.0, 17.0, -42.0]),
            ("a.reshape(3, -1)", &[3, 2], &[1.0, 2.0, 3.0, -4.0, 5.0, -6.0]),
            ("reshape(a, [6])[::k]", &[3], &[1.0, 3.0, 5.0]),
            ("a[:, [2, 0]]", &[2, 2], &[3.0, 1.0, -6.0, -4.0]),
            ("a[-1]", &[3], &[-4.0, 5.0, -6.0]),
            ("v[arange(4) % 2]", &[4], &[10.0, 20.0, 10.0, 20.0]),
            ("t.sum(0)", &[2, 2], &[4.0, 6.0, 8.0, 10.0]),
            ("sum(t, axis=-1)", &[2, 2], &[1.0, 5.0, 9.0, 13.0]),
            ("t.max() - min(t[1])", &[], &[3.0]),
            ("t.T[:, 0]", &[2, 2], &[0.0, 4.0, 1.0, 5.0]),
            ("repeat(2.0 ** (1 - arange(2)), 2)", &[4], &[2.0, 2.0, 1.0, 1.0]),
            ("repeat(a[:, :1], 2, axis=1)", &[2, 2], &[1.0, 1.0, -4.0, -4.0]),
            ("concatenate([a[:, :1], v[:, None]], axis=1)", &[2, 2], &[1.0, 10.0, -4.0, 20.0]),
            ("concatenate([v, ones(1), zeros([2])])", &[5], &[10.0, 20.0, 1.0, 0.0, 0.0]),
            ("e + 1", &[0, 3], &[]),
            ("e.sum(0)", &[3], &[0.0, 0.0, 0.0]),
            ("e.T @ e", &[3, 3], &[0.0; 9]),
            ("f16(2049 + k * 0) + i8(-3.5)", &[], &[2045.0]),
            ("arange(a.shape[0], a.shape[1])", &[1], &[2.0]),
            ("-v[None] ** 2", &[1, 2], &[-100.0, -400.0]),
        ];
        for &(text, shape, data) in table {
            let got = evaluate(text, &names).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!((got.shape.as_slice(), got.data.as_slice()), (shape, data), "{text}");
        }
        assert!(evaluate("maximum(0 / 0 * v, 1)", &names).unwrap().data[0].is_nan());
        assert_eq!(evaluate("fmax(0 / 0 * v, 1)", &names).unwrap().data[0], 1.0);
    }

    #[test]
    fn nonsense_is_refused() {
        let names = names();
        for bad in [
            "",
            "b",
            "a @ a",
            "a + v",
            "a[",
            "relu(",
            "a a",
            "foo(a)",
            "v[:, 1:]",
            "zeros(1e99)",
            "zeros(100000, 100000)",
            "a[5]",
            "a[:, 3]",
            "a[0.5]",
            "a[::0]",
            "a.reshape(4)",
            "a.sum(2)",
            "concatenate([a, v])",
            "concatenate([])",
            "concatenate(a)",
            "repeat(a)",
            "repeat(a, -1)",
            "relu(a, axis=0)",
            "relu()",
            "a.foo",
            "v @ v",
            "[a]",
            "t[t]",
            "abs(a, a)",
            "tril(v)",
            "repeat(a, 999999999)",
            "1(2)",
            "reshape(a, -1, -1)",
        ] {
            assert!(evaluate(bad, &names).is_err(), "{bad}");
        }
    }
}
