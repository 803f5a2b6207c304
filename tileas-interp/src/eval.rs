//! Ops without memory and without timing: arithmetic, conversions, shapes, the matrix product.
//!
//! Needs: an op and its operand values. Guarantees: the rounding that `docs/ops.md` names. Where that page names an
//! approximation (`ex2.approx`, …) the result is the correctly rounded one, so a comparison with hardware or its
//! emulator needs the documented tolerance. `dot` sums the exact products and the old accumulator in `f64` in order
//! of k and rounds once to f32: sums of small integers are exact, others as good as any order.

use crate::error::{Fault, InterpError, InterpResult};
use crate::num;
use crate::tile::{Data, Desc, Tile, Val, View, count, relocate, row_major, tile_type};
use smallvec::SmallVec;
use std::rc::Rc;
use tileas_codegen::ir::{Dim, Function, Op, Opcode, Scalar, TypeData, keys};

/// Index of this program in the grid, and the grid.
#[derive(Copy, Clone, Debug)]
pub struct Program {
    /// Index along each axis.
    pub id: [i64; 3],
    /// Programs along each axis.
    pub grid: [i64; 3],
}

fn err<T>(f: &Function, op: Op, fault: Fault, message: impl Into<String>) -> InterpResult<T> {
    Err(InterpError::at(f, op, fault, message))
}

fn axis(f: &Function, op: Op) -> InterpResult<usize> {
    match f.attr_int(op, keys::AXIS) {
        Some(a) if (0..8).contains(&a) => Ok(a as usize),
        _ => err(f, op, Fault::Unsupported, "no such axis"),
    }
}

/// The integer that `v` is.
pub fn int(f: &Function, op: Op, v: &Val) -> InterpResult<i64> {
    match v {
        Val::Int(i) => Ok(*i),
        _ => err(f, op, Fault::Unsupported, "takes an integer"),
    }
}

/// The tile that `v` is.
pub fn tile<'a>(f: &Function, op: Op, v: &'a Val) -> InterpResult<&'a Rc<Tile>> {
    match v {
        Val::Tile(t) => Ok(t),
        _ => err(f, op, Fault::Unsupported, "takes a tile"),
    }
}

/// Evaluates an op that neither touches memory nor waits. `None`: it is not such an op.
///
/// # Errors
/// Operands of the wrong kind, division by zero.
pub fn pure(f: &Function, op: Op, args: &[Val], program: &Program) -> InterpResult<Option<Val>> {
    use Opcode as O;
    let Some(result) = f.result(op) else { return Ok(None) };
    let data = f.value_data(result);
    let arg = |i: usize| match args.get(i) {
        Some(v) => Ok(v),
        None => err(f, op, Fault::Unsupported, "an operand is missing"),
    };
    Ok(Some(match f.opcode(op) {
        O::Constant => {
            let exact = match f.attr(op, keys::VALUE) {
                Some(tileas_codegen::ir::AttrData::Int(v, _)) => Some(*v),
                _ => None,
            };
            let Some(number) = f.attr_number(op, keys::VALUE) else {
                return err(f, op, Fault::Unsupported, "has no value");
            };
            match (data, tile_type(data)) {
                (TypeData::Scalar(s), _) if s.is_float() => Val::Float(num::round(*s, number)),
                (TypeData::Scalar(s), _) => Val::Int(num::wrap(*s, exact.unwrap_or(number as i64))),
                (_, Some((dims, elem))) => match exact.filter(|_| !elem.is_float()) {
                    Some(v) => {
                        let all = Data::Int(vec![num::wrap(elem, v); count(dims)]);
                        Val::Tile(Rc::new(Tile { dims: dims.into(), elem, data: all }))
                    }
                    None => Val::Tile(Rc::new(Tile::splat(dims, elem, number))),
                },
                _ => return err(f, op, Fault::Unsupported, "is neither scalar nor tile"),
            }
        }
        O::ProgramId => Val::Int(*program.id.get(axis(f, op)?).unwrap_or(&0)),
        O::NumPrograms => Val::Int(*program.grid.get(axis(f, op)?).unwrap_or(&1)),
        O::Dim => match arg(0)? {
            Val::View(v) => match v.sizes.get(axis(f, op)?) {
                Some(&n) => Val::Int(n),
                None => return err(f, op, Fault::Value, "no such dimension"),
            },
            _ => return err(f, op, Fault::Unsupported, "takes a view"),
        },
        O::TileOrder => {
            tile_order(f, op, [int(f, op, arg(0)?)?, int(f, op, arg(1)?)?, int(f, op, arg(2)?)?])?
        }
        O::Assume => assumed(f, op, arg(0)?)?,
        O::MayAlias => arg(0)?.clone(),
        O::Offset => match (arg(0)?, arg(1)?) {
            (Val::View(_), &Val::Int(n)) if n % 2 != 0 && data.elem().is_some_and(Scalar::is_packed) => {
                return err(f, op, Fault::Value, format!("{n} elements of 4 bits are not whole bytes"));
            }
            (Val::View(v), &Val::Int(n)) => {
                Val::View(Rc::new(View { offset: v.offset.saturating_add(n), ..(**v).clone() }))
            }
            _ => return err(f, op, Fault::Unsupported, "takes a pointer and an integer"),
        },
        O::MakeView => match (arg(0)?, data) {
            (Val::View(v), TypeData::View { dims, .. }) => {
                let rank = dims.len();
                let numbers =
                    args[1..].iter().map(|v| int(f, op, v)).collect::<InterpResult<SmallVec<[i64; 8]>>>()?;
                let (Some(sizes), Some(strides)) = (numbers.get(..rank), numbers.get(rank..)) else {
                    return err(f, op, Fault::Unsupported, "lacks extents");
                };
                let fits = |(d, &n): (&Dim, &i64)| match d {
                    Dim::Static(s) => i64::from(*s) == n,
                    Dim::Dynamic => (0..=i64::from(i32::MAX)).contains(&n),
                };
                if !dims.iter().zip(sizes).all(fits) {
                    return err(f, op, Fault::Value, format!("extents {sizes:?} are none of {data}"));
                }
                let strides = strides.iter().copied().chain([1]).collect();
                Val::View(Rc::new(View { sizes: sizes.into(), strides, ..(**v).clone() }))
            }
            _ => return err(f, op, Fault::Unsupported, "takes a pointer"),
        },
        O::MakeTiledTmaDesc => match (arg(0)?, tile_type(data)) {
            (Val::View(v), Some((extents, elem))) => {
                let nan = f.attr_name(op, keys::OOB) == Some("nan");
                let view = if v.elem == elem { v.clone() } else { Rc::new(View { elem, ..(**v).clone() }) };
                Val::Desc(Rc::new(Desc { view, extents: extents.into(), nan }))
            }
            _ => return err(f, op, Fault::Unsupported, "takes a view"),
        },
        O::Cat => cat(f, op, args, data)?,
        O::Splat | O::Broadcast | O::Reshape | O::Permute | O::Iota | O::ExtractSlice | O::ConvertLayout => {
            shape(f, op, args, data)?
        }
        O::Unsplat => {
            let t = args.first().map(|arg| tile(f, op, arg)).transpose()?;
            match t.as_ref().map(|t| &t.data) {
                Some(Data::Int(list)) if list.len() == 1 => Val::Int(list[0]),
                Some(Data::Float(list)) if list.len() == 1 => Val::Float(list[0]),
                _ => return err(f, op, Fault::Unsupported, "takes a tile of one element"),
            }
        }
        O::Reduce => reduce(f, op, args, data)?,
        O::Dot | O::AsyncDot | O::WarpDot => Val::Tile(Rc::new(product(f, op, args)?)),
        _ => match elementwise(f, op, args, data)? {
            Some(v) => v,
            None => return Ok(None),
        },
    }))
}

/// Whether an `assert` holds.
pub fn assert(f: &Function, op: Op, condition: &Val) -> InterpResult<()> {
    let holds = match condition {
        Val::Int(x) => *x != 0,
        other => match &tile(f, op, other)?.data {
            Data::Int(list) => list.iter().all(|&x| x != 0),
            Data::Float(_) => false,
        },
    };
    match f.attr(op, keys::MESSAGE) {
        _ if holds => Ok(()),
        Some(tileas_codegen::ir::AttrData::Str(text)) => err(f, op, Fault::Assertion, text.clone()),
        _ => err(f, op, Fault::Assertion, "does not hold"),
    }
}

/// The operand, if what is promised of it holds. How memory is aligned is not known here.
fn assumed(f: &Function, op: Op, v: &Val) -> InterpResult<Val> {
    if let &Val::Int(n) = v {
        let by = f.attr_int(op, keys::DIV_BY).unwrap_or(1).max(1);
        let within = f.attr_int(op, keys::MIN).is_none_or(|least| n >= least)
            && f.attr_int(op, keys::MAX).is_none_or(|most| n <= most);
        if n % by != 0 || !within {
            return err(f, op, Fault::Value, format!("{n} is not what is assumed"));
        }
    }
    Ok(v.clone())
}

fn shape(f: &Function, op: Op, args: &[Val], data: &TypeData) -> InterpResult<Val> {
    let Some((dims, elem)) = tile_type(data) else { return err(f, op, Fault::Unsupported, "makes a tile") };
    if f.opcode(op) == Opcode::Iota {
        let n = (0..count(dims) as i64).map(|i| num::wrap(elem, i));
        let data = if elem.is_float() {
            Data::Float(n.map(|i| num::round(elem, i as f64)).collect())
        } else {
            Data::Int(n.collect())
        };
        return Ok(Val::Tile(Rc::new(Tile { dims: dims.into(), elem, data })));
    }
    let Some(arg) = args.first() else { return err(f, op, Fault::Unsupported, "an operand is missing") };
    if f.opcode(op) == Opcode::Splat {
        return match Tile::of_scalar(dims, elem, arg) {
            Some(t) => Ok(Val::Tile(Rc::new(t))),
            None => err(f, op, Fault::Unsupported, "takes a number"),
        };
    }
    let t = tile(f, op, arg)?;
    Ok(Val::Tile(match f.opcode(op) {
        Opcode::Broadcast => {
            let mut from: SmallVec<[usize; 4]> = row_major(&t.dims);
            for (s, &d) in from.iter_mut().zip(&t.dims) {
                if d == 1 {
                    *s = 0;
                }
            }
            let to = row_major(dims);
            Rc::new(t.gather(dims, |i| relocate(i, &to, &from)))
        }
        Opcode::Reshape if count(dims) == count(&t.dims) => {
            Rc::new(Tile { dims: dims.into(), elem: t.elem, data: t.data.clone() })
        }
        Opcode::ConvertLayout => t.clone(),
        Opcode::Permute => {
            let order = f.attr_ints(op, keys::PERMUTATION).unwrap_or_default();
            let strides = row_major(&t.dims);
            let axes: Option<SmallVec<[usize; 4]>> =
                order.iter().map(|&a| strides.get(usize::try_from(a).ok()?).copied()).collect();
            let Some(from) = axes.filter(|a| a.len() == dims.len()) else {
                return err(f, op, Fault::Value, "no permutation of the axes");
            };
            let to = row_major(dims);
            Rc::new(t.gather(dims, |i| relocate(i, &to, &from)))
        }
        Opcode::ExtractSlice => {
            let offsets = slice_offsets(f, op, dims, args.get(1))?;
            match t.slice(dims, &offsets) {
                Some(part) => Rc::new(part),
                None => return err(f, op, Fault::Value, "the slice sticks out of its tile"),
            }
        }
        _ => return err(f, op, Fault::Unsupported, "extents do not agree"),
    }))
}

/// Two tiles behind each other along an axis.
fn cat(f: &Function, op: Op, args: &[Val], data: &TypeData) -> InterpResult<Val> {
    let (Some((dims, elem)), [a, b]) = (tile_type(data), args) else {
        return err(f, op, Fault::Unsupported, "makes a tile of two");
    };
    let (a, b, along) = (tile(f, op, a)?, tile(f, op, b)?, axis(f, op)?);
    let Some(&extent) = a.dims.get(along) else { return err(f, op, Fault::Value, "no such dimension") };
    let inner: usize = dims[along + 1..].iter().map(|&d| d as usize).product();
    let (extent, size) = (extent as usize, count(dims));
    if a.dims != b.dims || size != 2 * count(&a.dims) {
        return err(f, op, Fault::Unsupported, "extents do not agree");
    }
    // Which of the two, and where in it.
    let from = |i: usize| {
        let (outer, k, low) = (i / (inner * 2 * extent), i / inner % (2 * extent), i % inner);
        (k >= extent, (outer * extent + k % extent) * inner + low)
    };
    let data = match (&a.data, &b.data) {
        (Data::Float(x), Data::Float(y)) => {
            Data::Float((0..size).map(from).map(|(second, n)| if second { y[n] } else { x[n] }).collect())
        }
        (Data::Int(x), Data::Int(y)) => {
            Data::Int((0..size).map(from).map(|(second, n)| if second { y[n] } else { x[n] }).collect())
        }
        _ => return err(f, op, Fault::Unsupported, "element types do not agree"),
    };
    Ok(Val::Tile(Rc::new(Tile { dims: dims.into(), elem, data })))
}

/// Where a slice of extents `dims` begins: the static offsets, and the number of the slice if it has one.
pub(crate) fn slice_offsets(
    f: &Function,
    op: Op,
    dims: &[u32],
    number: Option<&Val>,
) -> InterpResult<SmallVec<[i64; 4]>> {
    let mut offsets = f.attr_ints(op, keys::OFFSETS).unwrap_or_default();
    if let (Some(number), Some(last), Some(&width)) = (number, offsets.last_mut(), dims.last()) {
        let number = int(f, op, number)?;
        *last = last.saturating_add(number.saturating_mul(i64::from(width)));
    }
    Ok(offsets)
}

/// Combines along one axis, by index; sums of floats in f32 or f64.
fn reduce(f: &Function, op: Op, args: &[Val], data: &TypeData) -> InterpResult<Val> {
    let (Some(arg), Some((dims, elem))) = (args.first(), tile_type(data)) else {
        return err(f, op, Fault::Unsupported, "makes a tile");
    };
    let (t, along) = (tile(f, op, arg)?, axis(f, op)?);
    let Some(&extent) = t.dims.get(along) else { return err(f, op, Fault::Value, "no such dimension") };
    let inner: usize = t.dims[along + 1..].iter().map(|&d| d as usize).product();
    let (extent, size) = (extent as usize, count(dims));
    if extent == 0 || size * extent != count(&t.dims) {
        return err(f, op, Fault::Unsupported, "extents do not agree");
    }
    let unsigned = f.has_attr(op, keys::UNSIGNED);
    let Some(mode) = f.attr_name(op, keys::MODE) else {
        return err(f, op, Fault::Unsupported, "has no mode");
    };
    // Element k along the axis of result i.
    let at = |i: usize, k: usize| (i / inner * extent + k) * inner + i % inner;
    let wide = if elem == Scalar::F64 { elem } else { Scalar::F32 };
    let data = match &t.data {
        Data::Float(d) => {
            let step = |a: f64, b: f64| match mode {
                "add" => num::round(wide, a + b),
                // The order of the two zeros is that of `maxf` and `minf`.
                "max" if a == 0.0 && b == 0.0 => a + b,
                "min" if a == 0.0 && b == 0.0 => -(-a - b),
                "max" => a.max(b),
                _ => a.min(b),
            };
            let one = |i: usize| (1..extent).fold(d[at(i, 0)], |a, k| step(a, d[at(i, k)]));
            Data::Float((0..size).map(|i| num::round(elem, one(i))).collect())
        }
        Data::Int(d) => {
            let key = |a: i64| if unsigned { i128::from(num::unsigned(elem, a)) } else { i128::from(a) };
            let step = |a: i64, b: i64| match mode {
                "add" => num::wrap(elem, a.wrapping_add(b)),
                "max" => std::cmp::max_by_key(a, b, |&x| key(x)),
                _ => std::cmp::min_by_key(a, b, |&x| key(x)),
            };
            let one = |i: usize| (1..extent).fold(d[at(i, 0)], |a, k| step(a, d[at(i, k)]));
            Data::Int((0..size).map(one).collect())
        }
    };
    Ok(Val::Tile(Rc::new(Tile { dims: dims.into(), elem, data })))
}

/// What `combine` or `scan` makes of its tiles, in the order of the axis.
///
/// # Errors
/// As [`pure`]; a function that is not one of scalars.
pub fn combined(f: &Function, op: Op, args: &[Val], program: &Program) -> InterpResult<Vec<Val>> {
    let along = axis(f, op)?;
    let Some(by) = f.combiner(op) else { return err(f, op, Fault::Unsupported, "has no function") };
    let mut tiles: Vec<Rc<Tile>> = Vec::new();
    for a in args {
        tiles.push(tile(f, op, a)?.clone());
    }
    let Some(first) = tiles.first() else { return err(f, op, Fault::Unsupported, "has no tile") };
    let Some(&extent) = first.dims.get(along) else { return err(f, op, Fault::Value, "no such dimension") };
    if tiles.iter().any(|t| t.dims != first.dims) {
        return err(f, op, Fault::Unsupported, "extents do not agree");
    }
    let inner: usize = first.dims[along + 1..].iter().map(|&d| d as usize).product();
    let (extent, scan) = (extent as usize, f.opcode(op) == Opcode::Scan);
    let rows = count(&first.dims) / extent.max(1);
    let mut dims = first.dims.clone();
    if !scan {
        dims.remove(along);
    }
    let mut out: Vec<Tile> = tiles.iter().map(|t| Tile::splat(&dims, t.elem, 0.0)).collect();
    let reverse = f.has_attr(op, keys::REVERSE);
    let mut env = cranelift_entity::SecondaryMap::new();
    for row in 0..rows {
        let at = |k: usize| (row / inner * extent + k) * inner + row % inner;
        let mut held: Vec<Val> = Vec::new();
        for n in 0..extent {
            let k = if reverse { extent - 1 - n } else { n };
            let next: Vec<Val> = tiles.iter().map(|t| t.at(at(k))).collect();
            held = if held.is_empty() { next } else { applied(by, &held, &next, program, &mut env)? };
            if scan {
                out.iter_mut().zip(&held).for_each(|(t, v)| t.set(at(k), v));
            }
        }
        if !scan {
            out.iter_mut().zip(&held).for_each(|(t, v)| t.set(row, v));
        }
    }
    Ok(out.into_iter().map(|t| Val::Tile(Rc::new(t))).collect())
}

/// A combiner of two lists of elements.
fn applied(
    by: &Function,
    a: &[Val],
    b: &[Val],
    program: &Program,
    env: &mut cranelift_entity::SecondaryMap<tileas_codegen::ir::Value, Option<Val>>,
) -> InterpResult<Vec<Val>> {
    for (&p, x) in by.params().iter().zip(a.iter().chain(b)) {
        env[p] = Some(x.clone());
    }
    for op in by.block_ops(by.entry()) {
        let mut args: SmallVec<[Val; 4]> = SmallVec::new();
        for &v in by.operands(op) {
            match &env[v] {
                Some(x) => args.push(x.clone()),
                None => return err(by, op, Fault::Undefined, format!("{v} has no value here")),
            }
        }
        if by.opcode(op) == Opcode::Yield {
            return Ok(args.into_vec());
        }
        let (Some(x), Some(r)) = (pure(by, op, &args, program)?, by.result(op)) else {
            return err(by, op, Fault::Unsupported, "is no op on scalars");
        };
        env[r] = Some(x);
    }
    Ok(Vec::new())
}

/// The matrix product of A, B, the old accumulator and, if given, whether that one counts.
///
/// # Errors
/// Operands that are not matrices of agreeing extents.
pub fn product(f: &Function, op: Op, args: &[Val]) -> InterpResult<Tile> {
    let [a, b, c, rest @ ..] = args else { return err(f, op, Fault::Unsupported, "an operand is missing") };
    let keep = match rest.first() {
        Some(v) => int(f, op, v)? != 0,
        None => true,
    };
    dot(f, op, tile(f, op, a)?, tile(f, op, b)?, tile(f, op, c)?, keep)
}

/// acc + A·B, see the module's header for the rounding.
fn dot(f: &Function, op: Op, a: &Tile, b: &Tile, c: &Tile, accumulate: bool) -> InterpResult<Tile> {
    let (ta, tb) = (f.has_attr(op, keys::TRANSPOSE_A), f.has_attr(op, keys::TRANSPOSE_B));
    let two = |t: &Tile, swap: bool| match t.dims[..] {
        [r, s] if swap => Some((s as usize, r as usize)),
        [r, s] => Some((r as usize, s as usize)),
        _ => None,
    };
    let (Some((m, k)), Some((k2, n)), Some((m2, n2))) = (two(a, ta), two(b, tb), two(c, false)) else {
        return err(f, op, Fault::Unsupported, "works on matrices");
    };
    if k != k2 || m != m2 || n != n2 {
        return err(f, op, Fault::Unsupported, "extents do not agree");
    }
    // B as rows of K, A as rows of K: the inner loop runs over contiguous memory.
    let rows = |t: &Tile, rows: usize, swapped: bool, unsigned: bool| -> Vec<f64> {
        (0..rows * k)
            .map(|i| {
                let (r, x) = (i / k, i % k);
                let v = num::factor(t.elem, t.number(if swapped { x * rows + r } else { i }));
                if unsigned && v < 0.0 { v + 256.0 } else { v }
            })
            .collect()
    };
    let (ua, ub) = (f.has_attr(op, keys::UNSIGNED_A), f.has_attr(op, keys::UNSIGNED_B));
    let (ra, rb) = (rows(a, m, ta, ua), rows(b, n, !tb, ub));
    let at = |i: usize, j: usize| if accumulate { c.number(i * n + j) } else { 0.0 };
    let dims = SmallVec::from_slice(&[m as u32, n as u32]);
    if !c.elem.is_float() {
        let sum = |i: usize, j: usize| -> i64 {
            let pairs = ra[i * k..(i + 1) * k].iter().zip(&rb[j * k..(j + 1) * k]);
            pairs.fold(at(i, j) as i64, |s, (x, y)| s.wrapping_add((*x as i64).wrapping_mul(*y as i64)))
        };
        let data = (0..m * n).map(|x| num::wrap(c.elem, sum(x / n, x % n))).collect();
        return Ok(Tile { dims, elem: c.elem, data: Data::Int(data) });
    }
    let mut out = Vec::with_capacity(m * n);
    // A row of sums at a time: each is a chain of additions in its own order.
    let columns: Vec<f64> = (0..k * n).map(|x| rb[x % n * k + x / n]).collect();
    let mut sums = vec![0.0; n];
    for (i, row) in ra.chunks_exact(k.max(1)).enumerate() {
        sums.iter_mut().enumerate().for_each(|(j, sum)| *sum = at(i, j));
        for (x, line) in row.iter().zip(columns.chunks_exact(n.max(1))) {
            sums.iter_mut().zip(line).for_each(|(sum, y)| *sum += x * y);
        }
        out.extend(sums.iter().map(|&sum| num::round(c.elem, f64::from(sum as f32))));
    }
    Ok(Tile { dims, elem: c.elem, data: Data::Float(out) })
}

/// Element-wise ops on scalars and tiles alike.
fn elementwise(f: &Function, op: Op, args: &[Val], data: &TypeData) -> InterpResult<Option<Val>> {
    let Some(elem) = data.elem() else { return Ok(None) };
    let Some(&first) = f.operands(op).first() else { return Ok(None) };
    let source = f.value_data(first).elem().unwrap_or(elem);
    let element = Element::new(f, op, source, elem);
    let n = args.len();
    if n == 0 || n > 3 || args.iter().any(|a| !matches!(a, Val::Int(_) | Val::Float(_) | Val::Tile(_))) {
        return Ok(None);
    }
    let scalar = |v: &Val, i: usize| match v {
        Val::Int(x) => Number::Int(*x),
        Val::Float(x) => Number::Float(*x),
        Val::Tile(t) => match &t.data {
            Data::Float(d) => Number::Float(d.get(i).copied().unwrap_or(f64::NAN)),
            Data::Int(d) => Number::Int(d.get(i).copied().unwrap_or(0)),
        },
        _ => Number::Int(0),
    };
    let run = |i: usize| {
        let mut x = [Number::Int(0); 3];
        for (k, a) in args.iter().enumerate() {
            x[k] = scalar(a, i);
        }
        element.apply(x)
    };
    let Some((dims, _)) = tile_type(data) else {
        return Ok(match run(0)? {
            Some(Number::Int(v)) => Some(Val::Int(v)),
            Some(Number::Float(v)) => Some(Val::Float(v)),
            None => None,
        });
    };
    let size = count(dims);
    for a in args {
        if let Val::Tile(t) = a
            && count(&t.dims) != size
        {
            return err(f, op, Fault::Unsupported, "extents do not agree");
        }
    }
    let (mut floats, mut ints) = (Vec::new(), Vec::new());
    for i in 0..size {
        match run(i)? {
            Some(Number::Float(v)) => floats.push(v),
            Some(Number::Int(v)) => ints.push(v),
            None => return Ok(None),
        }
    }
    let data = if elem.is_float() { Data::Float(floats) } else { Data::Int(ints) };
    Ok(Some(Val::Tile(Rc::new(Tile { dims: dims.into(), elem, data }))))
}

#[derive(Copy, Clone)]
enum Number {
    Int(i64),
    Float(f64),
}

impl Number {
    fn float(self) -> f64 {
        match self {
            Number::Float(x) => x,
            Number::Int(i) => i as f64,
        }
    }
    fn int(self) -> i64 {
        match self {
            Number::Int(i) => i,
            Number::Float(x) => x as i64,
        }
    }
}

/// The tile at a place of an order; on a curve by looking for the cell with that many steps.
fn tile_order(f: &Function, op: Op, [index, rows, columns]: [i64; 3]) -> InterpResult<Val> {
    if !(0..rows.saturating_mul(columns)).contains(&index) {
        return err(f, op, Fault::Value, format!("place {index} of {rows} x {columns} tiles"));
    }
    let (name, n) =
        f.attr_call(op, keys::ORDER).map_or(("rows", 1), |(n, l)| (n, l.first().copied().unwrap_or(1)));
    if name == "rows" {
        return Ok(Val::Int(index));
    }
    let mut left = index;
    let whole = n.saturating_mul(columns);
    let band = left / whole;
    left -= band * whole;
    let height = n.min(rows - band * n);
    let side = if name == "grouped" { columns } else { n };
    let square = left / height.saturating_mul(side);
    left -= square * height * side;
    let width = side.min(columns - square * side);
    let found = match name == "hilbert" && height == n && width == n {
        true => (0..n * n).map(|c| (c / n, c % n)).find(|&(x, y)| steps(n, x, y) == left),
        false => Some((left / height, left % height)),
    };
    match found {
        Some((x, y)) => {
            let row = (band * n + y).saturating_mul(columns);
            Ok(Val::Int(row.saturating_add(square * side + x)))
        }
        None => err(f, op, Fault::Value, "a place that no tile has"),
    }
}

/// Steps on Hilbert's curve to a cell of a square of side `n`, quarter by quarter.
fn steps(n: i64, x: i64, y: i64) -> i64 {
    if n == 1 {
        return 0;
    }
    let (half, quarter) = (n / 2, n * n / 4);
    match (x < half, y < half) {
        (true, true) => steps(half, y, x),
        (true, false) => quarter + steps(half, x, y - half),
        (false, false) => 2 * quarter + steps(half, x - half, y - half),
        (false, true) => 3 * quarter + steps(half, half - 1 - y, n - 1 - x),
    }
}

/// One element of an element-wise op.
struct Element<'a> {
    f: &'a Function,
    op: Op,
    /// Element type of the first operand.
    from: Scalar,
    /// Element type of the result.
    to: Scalar,
    opcode: Opcode,
    unsigned: bool,
    ftz: bool,
    direction: Option<num::Direction>,
}

impl<'a> Element<'a> {
    /// Attributes are looked up here, not for each element.
    fn new(f: &'a Function, op: Op, from: Scalar, to: Scalar) -> Self {
        // The rounding of f32 arithmetic, if it is not to nearest. Approximate results are the nearest ones here.
        let direction = match f.attr_name(op, keys::ROUNDING) {
            Some("zero") => Some(num::Direction::Zero),
            Some("negative_inf") => Some(num::Direction::Down),
            Some("positive_inf") => Some(num::Direction::Up),
            _ => None,
        };
        let (unsigned, ftz) = (f.has_attr(op, keys::UNSIGNED), f.has_attr(op, keys::FTZ));
        Self { f, op, from, to, opcode: f.opcode(op), unsigned, ftz, direction }
    }

    /// `None`: the op is not element-wise.
    fn apply(&self, x: [Number; 3]) -> InterpResult<Option<Number>> {
        use Opcode as O;
        let (opcode, unsigned) = (self.opcode, self.unsigned);
        let (a, b) = (x[0].int(), x[1].int());
        let s = self.from;
        let bits = i64::from(s.bits());
        let (ua, ub) = (num::unsigned(s, a), num::unsigned(s, b));
        let (fa, fb) = (x[0].float(), x[1].float());
        let integer = match opcode {
            O::Addi => a.wrapping_add(b),
            O::Subi => a.wrapping_sub(b),
            O::Muli => a.wrapping_mul(b),
            O::Divi | O::Remi if b == 0 => return err(self.f, self.op, Fault::Value, "division by zero"),
            O::Divi => self.quotient([a, b], [ua, ub], unsigned),
            O::Remi if unsigned => (ua % ub) as i64,
            O::Remi => a.wrapping_rem(b),
            O::Maxi if unsigned => ua.max(ub) as i64,
            O::Mini if unsigned => ua.min(ub) as i64,
            O::Maxi => a.max(b),
            O::Mini => a.min(b),
            O::Andi => a & b,
            O::Ori => a | b,
            O::Xori => a ^ b,
            O::Negi => a.wrapping_neg(),
            O::Absi => a.wrapping_abs(),
            O::Popci => ua.count_ones().into(),
            O::Mulhii => ((u128::from(ua) * u128::from(ub)) >> bits) as i64,
            O::Bitcast => {
                let pattern = if s.is_float() { num::encode_float(s, fa) } else { ua };
                if self.to.is_float() {
                    return Ok(Some(Number::Float(num::decode_float(self.to, pattern))));
                }
                pattern as i64
            }
            // Amounts are unsigned; those of the width or more shift everything out.
            O::Shli => {
                if ub < bits as u64 {
                    a << ub
                } else {
                    0
                }
            }
            O::Shri if unsigned => {
                if ub < bits as u64 {
                    (ua >> ub) as i64
                } else {
                    0
                }
            }
            O::Shri => a >> ub.min(bits as u64 - 1),
            O::Cmpi => {
                let order = if unsigned { ua.cmp(&ub) } else { a.cmp(&b) };
                i64::from(self.holds(Some(order))?)
            }
            O::Cmpf if (fa.is_nan() || fb.is_nan()) && self.f.has_attr(self.op, keys::UNORDERED) => 1,
            O::Cmpf => i64::from(self.holds(fa.partial_cmp(&fb))?),
            O::Ftoi => self.truncate(fa, unsigned),
            O::Exti if unsigned => ua as i64,
            // The one bit of a truth value is its sign.
            O::Exti if s == Scalar::I1 => -a,
            O::Exti => a,
            O::Trunci => a,
            O::Select => {
                return Ok(Some(match if a != 0 { x[1] } else { x[2] } {
                    Number::Int(i) => Number::Int(i),
                    n => n,
                }));
            }
            _ => {
                let ftz = self.ftz;
                let x = if ftz { x.map(|n| Number::Float(num::flushed(n.float()))) } else { x };
                let rounded = |v| {
                    let v = num::round(self.to, v);
                    Number::Float(if ftz { num::flushed(v) } else { v })
                };
                return Ok(self.float(opcode, x).map(rounded));
            }
        };
        Ok(Some(Number::Int(num::wrap(self.to, integer))))
    }

    fn holds(&self, order: Option<std::cmp::Ordering>) -> InterpResult<bool> {
        let Some(name) = self.f.attr_name(self.op, keys::PREDICATE) else {
            return err(self.f, self.op, Fault::Unsupported, "has no predicate");
        };
        Ok(match (name, order) {
            ("ne", None) => true,
            (_, None) => false,
            ("eq", Some(o)) => o.is_eq(),
            ("ne", Some(o)) => o.is_ne(),
            ("lt", Some(o)) => o.is_lt(),
            ("le", Some(o)) => o.is_le(),
            ("gt", Some(o)) => o.is_gt(),
            (_, Some(o)) => o.is_ge(),
        })
    }

    /// Truncated and saturated; NaN gives 0.
    fn truncate(&self, x: f64, unsigned: bool) -> i64 {
        let bits = self.to.bits();
        if unsigned {
            let max = if bits >= 64 { u64::MAX } else { (1 << bits) - 1 };
            return (x.trunc() as u64).min(max) as i64;
        }
        if bits >= 64 {
            return x as i64;
        }
        let top = 1i64 << (bits - 1);
        (x.trunc() as i64).clamp(-top, top - 1)
    }

    /// A quotient in the direction that the op names.
    fn quotient(&self, [a, b]: [i64; 2], [ua, ub]: [u64; 2], unsigned: bool) -> i64 {
        let rounding = self.f.attr_name(self.op, keys::ROUNDING).unwrap_or("zero");
        if unsigned {
            return if rounding == "positive_inf" { ua.div_ceil(ub) } else { ua / ub } as i64;
        }
        let (quotient, rest) = (a.wrapping_div(b), a.wrapping_rem(b));
        let positive = (rest < 0) == (b < 0);
        match rounding {
            "negative_inf" if rest != 0 && !positive => quotient.wrapping_sub(1),
            "positive_inf" if rest != 0 && positive => quotient.wrapping_add(1),
            _ => quotient,
        }
    }

    /// |x|^n with the sign that n gives it.
    fn integer_power(&self, x: f64, n: i64) -> f64 {
        let whole = n as f64;
        let size = if n == 0 { 1.0 } else { x.abs().powf(whole) };
        // What the f64 next to n lacks of it shows where x is an f64 near 1.
        let rest = n.wrapping_sub(whole as i64) as f64;
        let size = if size.is_normal() && rest != 0.0 { size * x.abs().powf(rest) } else { size };
        if n & 1 == 1 && x.is_sign_negative() { -size } else { size }
    }

    /// The exact or f64 result, rounded by the caller.
    fn float(&self, opcode: Opcode, x: [Number; 3]) -> Option<f64> {
        use Opcode as O;
        let (a, b) = (x[0].float(), x[1].float());
        if let Some(d) = self.direction {
            return Some(match opcode {
                O::Addf => num::add_directed(a, b, d),
                O::Subf => num::add_directed(a, -b, d),
                O::Mulf => num::mul_directed(a, b, d),
                O::Divf => num::div_directed(a, b, d),
                O::Fma => num::fma_directed(a, b, x[2].float(), d),
                O::Sqrt => num::sqrt_directed(a, d),
                _ => return None,
            });
        }
        let fast = self.f.has_attr(self.op, keys::APPROX);
        let nan = self.f.has_attr(self.op, keys::PROPAGATE_NAN) && (a.is_nan() || b.is_nan());
        Some(match opcode {
            O::Addf => a + b,
            O::Subf => a - b,
            O::Mulf => a * b,
            O::Divf => a / b,
            O::Maxf | O::Minf if nan => f64::NAN,
            // `max` and `min` of the standard library lose NaNs; the order of the two zeros is fixed here.
            O::Maxf if a == 0.0 && b == 0.0 => a + b,
            O::Minf if a == 0.0 && b == 0.0 => -(-a - b),
            O::Maxf => a.max(b),
            O::Minf => a.min(b),
            O::Fma => num::fma(self.to, a, b, x[2].float()),
            O::Negf => -a,
            O::Absf => a.abs(),
            O::Exp if self.to == Scalar::F64 => a.exp(),
            O::Log if self.to == Scalar::F64 => a.ln(),
            O::Exp => (f64::from((a as f32) * std::f32::consts::LOG2_E)).exp2(),
            O::Exp2 => a.exp2(),
            O::Log => f64::from(a.log2() as f32) * f64::from(std::f32::consts::LN_2),
            O::Log2 => a.log2(),
            O::Sqrt => a.sqrt(),
            O::Rsqrt => 1.0 / a.sqrt(),
            O::Tanh => a.tanh(),
            O::Floor => a.floor(),
            O::Ceil => a.ceil(),
            O::Roundeven => a.round_ties_even(),
            O::Sin => a.sin(),
            O::Cos => a.cos(),
            O::Tan => a.tan(),
            O::Sinh => a.sinh(),
            O::Cosh => a.cosh(),
            O::Erf => num::erf(a),
            O::Atan2 => a.atan2(b),
            O::Remf => a % b,
            O::Pow if fast => (b * a.log2()).exp2(),
            // Signalling NaN too, which libraries tell apart.
            O::Pow if b == 0.0 || a == 1.0 => 1.0,
            O::Pow => a.powf(b),
            O::Powi => self.integer_power(a, x[1].int()),
            O::Ftof => a,
            O::Itof => {
                let i = x[0].int();
                if self.f.has_attr(self.op, keys::UNSIGNED) {
                    return Some(self.integer(i128::from(num::unsigned(self.from, i))));
                }
                self.integer(i128::from(i))
            }
            _ => return None,
        })
    }

    /// An integer as f64, rounded to odd so that the caller's rounding is the only one.
    fn integer(&self, i: i128) -> f64 {
        if self.to == Scalar::F64 {
            return i as f64;
        }
        let m = i.unsigned_abs();
        let drop = (128 - m.leading_zeros()).saturating_sub(53);
        let kept = m >> drop;
        let odd = kept | u128::from(m != kept << drop);
        let v = (odd as f64) * 2f64.powi(drop as i32);
        if i < 0 { -v } else { v }
    }
}
