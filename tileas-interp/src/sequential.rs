//! Runs a source kernel in program order: the meaning that every later form must keep.
//!
//! Needs: a verified function in value form, arguments, memory. Guarantees: programs of the grid run one after
//! another, x fastest; every op takes effect where it stands.

use crate::error::{Fault, InterpError, InterpResult};
use crate::eval::{self, Program};
use crate::num;
use crate::tile::{Data, Tile, Val, View, count, relocate, row_major, tile_type};
use crate::{Arg, Limits, Memory, Stats, bind};
use cranelift_entity::SecondaryMap;
use smallvec::SmallVec;
use std::rc::Rc;
use tileas_codegen::ir::{Block, Function, Op, Opcode, Scalar, Value, keys};

/// Runs every program of the grid in order.
///
/// # Errors
/// See [`Fault`].
pub fn run_sequential(
    f: &Function,
    grid: [u32; 3],
    args: &[Arg],
    memory: &mut Memory,
    limits: &Limits,
) -> InterpResult<Stats> {
    run(f, grid, args, memory, limits, &mut Decisions::default(), false)
}

/// Conditions and bounds of a run, in the order in which they were asked for.
#[derive(Clone, Debug, Default)]
pub struct Decisions {
    list: Vec<i64>,
    /// How many were taken again.
    taken: usize,
}

/// As [`run_sequential`], and notes how branches and loops were decided.
///
/// # Errors
/// See [`Fault`].
pub fn run_noted(
    f: &Function,
    grid: [u32; 3],
    args: &[Arg],
    memory: &mut Memory,
    limits: &Limits,
) -> InterpResult<Decisions> {
    let mut decisions = Decisions::default();
    run(f, grid, args, memory, limits, &mut decisions, false)?;
    Ok(decisions)
}

/// Runs the kernel on magnitudes: every float is replaced by its absolute value, infinite ones that are constants or loaded by
/// 0, and differences by sums.
///
/// What a sum of products then writes is Σ|a·b|: what the tolerance of a comparison is relative to. Branches and loops go as
/// they did in the run that was noted.
///
/// # Errors
/// See [`Fault`].
pub fn run_magnitudes(
    f: &Function,
    grid: [u32; 3],
    args: &[Arg],
    memory: &mut Memory,
    limits: &Limits,
    mut decisions: Decisions,
) -> InterpResult<Stats> {
    run(f, grid, args, memory, limits, &mut decisions, true)
}

fn run(
    f: &Function,
    grid: [u32; 3],
    args: &[Arg],
    memory: &mut Memory,
    limits: &Limits,
    decisions: &mut Decisions,
    magnitudes: bool,
) -> InterpResult<Stats> {
    crate::check_size(f, limits)?;
    memory.declare(f, limits)?;
    let program = Program::of(grid);
    let mut m =
        Machine { f, env: SecondaryMap::new(), memory, steps: 0, limits, program, decisions, magnitudes };
    for id in Program::all(grid) {
        m.program.id = id;
        m.env.clear();
        for (v, x) in bind(f, args)? {
            m.env[v] = Some(if magnitudes { map_floats(x, magnitude) } else { x });
        }
        m.block(f.entry(), 0)?;
    }
    Ok(Stats { steps: m.steps })
}

/// What a number that comes in contributes to rounding errors: its size; an infinity, such as the start of a maximum, nothing.
fn magnitude(x: f64) -> f64 {
    if x.is_infinite() { 0.0 } else { x.abs() }
}

/// A value with its floats changed.
fn map_floats(x: Val, f: impl Fn(f64) -> f64) -> Val {
    match x {
        Val::Float(x) => Val::Float(f(x)),
        Val::Tile(mut t) => {
            if let Data::Float(_) = t.data
                && let Data::Float(list) = &mut Rc::make_mut(&mut t).data
            {
                list.iter_mut().for_each(|x| *x = f(*x));
            }
            Val::Tile(t)
        }
        other => other,
    }
}

struct Machine<'a> {
    f: &'a Function,
    env: SecondaryMap<Value, Option<Val>>,
    memory: &'a mut Memory,
    steps: u64,
    limits: &'a Limits,
    program: Program,
    decisions: &'a mut Decisions,
    /// See [`run_magnitudes`].
    magnitudes: bool,
}

type Vals = SmallVec<[Val; 4]>;

/// How a block ends.
#[derive(Copy, Clone, PartialEq, Eq)]
enum End {
    Falls,
    Continues,
    Breaks,
    Returns,
}

impl Machine<'_> {
    fn get(&self, op: Op, v: Value) -> InterpResult<Val> {
        match &self.env[v] {
            Some(x) => Ok(x.clone()),
            None => Err(InterpError::at(self.f, op, Fault::Undefined, format!("{v} has no value here"))),
        }
    }

    fn set(&mut self, op: Op, n: usize, x: Val) {
        let source = matches!(
            self.f.opcode(op),
            Opcode::Constant | Opcode::TiledLoad | Opcode::Gather | Opcode::AsyncTiledTmaLoad
        );
        let x = match (self.magnitudes, source) {
            (true, true) => map_floats(x, magnitude),
            (true, false) => map_floats(x, f64::abs),
            (false, _) => x,
        };
        if let Some(&r) = self.f.results(op).get(n) {
            self.env[r] = Some(x);
        }
    }

    fn tile_of(&self, op: Op, name: &str) -> InterpResult<Rc<Tile>> {
        match self.f.named_operand(op, name) {
            Some(v) => eval::tile(self.f, op, &self.get(op, v)?).cloned(),
            None => Err(InterpError::at(self.f, op, Fault::Unsupported, format!("needs `{name}`"))),
        }
    }

    /// Element coordinates of a tile: tile indices times extents.
    fn origin(&self, op: Op, dims: &[u32]) -> InterpResult<SmallVec<[i64; 4]>> {
        let coords = self.f.named_segment(op, "coords");
        if coords.len() != dims.len() {
            return Err(InterpError::at(self.f, op, Fault::Unsupported, "coordinates do not fit the tile"));
        }
        let mut at = SmallVec::new();
        for (&c, &d) in coords.iter().zip(dims) {
            at.push(eval::int(self.f, op, &self.get(op, c)?)?.saturating_mul(i64::from(d)));
        }
        Ok(at)
    }

    /// Runs a block; how it ends, and what its terminator passes on.
    fn block(&mut self, b: Block, depth: u32) -> InterpResult<(End, Vals)> {
        let f = self.f;
        if depth > self.limits.max_nesting {
            return Err(InterpError::new(Fault::Limit, "regions nest too deep (max_nesting)"));
        }
        for op in f.block_ops(b) {
            self.steps += 1;
            if self.steps > self.limits.max_steps {
                return Err(InterpError::at(f, op, Fault::Limit, "too many steps (max_steps)"));
            }
            let mut args = Vals::new();
            for &v in f.operands(op) {
                args.push(self.get(op, v)?);
            }
            match f.opcode(op) {
                Opcode::Yield => return Ok((End::Falls, args)),
                Opcode::Continue => return Ok((End::Continues, args)),
                Opcode::Break => return Ok((End::Breaks, args)),
                Opcode::Return => return Ok((End::Returns, Vals::new())),
                Opcode::For | Opcode::Loop => {
                    let end = match f.opcode(op) {
                        Opcode::For => self.run_loop(op, &args, depth)?,
                        _ => self.run_unbounded(op, args, depth)?,
                    };
                    if end == End::Returns {
                        return Ok((end, Vals::new()));
                    }
                }
                // The loop asks for the condition when the iteration has ended.
                Opcode::ExitIf => {}
                Opcode::If => {
                    let arm = usize::from(self.decide(op, &args[0])? == 0);
                    let (end, values) = match f.op_block_at(op, arm) {
                        Some(b) if f.first_op(b).is_some() => self.block(b, depth + 1)?,
                        _ => (End::Falls, Vals::new()),
                    };
                    if end != End::Falls {
                        return Ok((end, values));
                    }
                    for (n, v) in values.into_iter().enumerate() {
                        self.set(op, n, v);
                    }
                }
                _ => self.effect(op, &args)?,
            }
        }
        Ok((End::Falls, Vals::new()))
    }

    /// A condition or bound: on magnitudes what it was in the run before.
    fn decide(&mut self, op: Op, v: &Val) -> InterpResult<i64> {
        if self.magnitudes {
            let known = self.decisions.list.get(self.decisions.taken).copied();
            self.decisions.taken += 1;
            return match known {
                Some(v) => Ok(v),
                None => Err(InterpError::at(self.f, op, Fault::Value, "was not decided in the run before")),
            };
        }
        let v = eval::int(self.f, op, v)?;
        self.decisions.list.push(v);
        Ok(v)
    }

    /// Each iteration of a `loop` takes what the one before handed on. How it ended: by `break` or `return`.
    fn run_unbounded(&mut self, op: Op, inits: Vals, depth: u32) -> InterpResult<End> {
        let f = self.f;
        let Some(body) = f.op_block_at(op, 0) else { return Ok(End::Breaks) };
        let mut carried = inits;
        loop {
            for (&p, v) in f.block_params(body).iter().zip(carried) {
                self.env[p] = Some(v);
            }
            let (end, values) = self.block(body, depth + 1)?;
            if matches!(end, End::Breaks | End::Returns) {
                for (n, v) in values.into_iter().enumerate() {
                    self.set(op, n, v);
                }
                return Ok(end);
            }
            carried = values;
        }
    }

    fn run_loop(&mut self, op: Op, args: &[Val], depth: u32) -> InterpResult<End> {
        let f = self.f;
        let mut bound = |i: usize| match args.get(i) {
            Some(v) => self.decide(op, v),
            None => Err(InterpError::at(f, op, Fault::Unsupported, "lacks a bound")),
        };
        let (mut i, hi, step) = (bound(0)?, bound(1)?, bound(2)?);
        if step <= 0 {
            return Err(InterpError::at(
                f,
                op,
                Fault::Value,
                format!("a step of {step}; it must be positive"),
            ));
        }
        let Some(body) = f.op_block_at(op, 0) else { return Ok(End::Falls) };
        let mut carried: Vals = args[3..].iter().cloned().collect();
        while i < hi {
            let params = f.block_params(body);
            for (k, &p) in params.iter().enumerate() {
                self.env[p] = if k == 0 { Some(Val::Int(i)) } else { carried.get(k - 1).cloned() };
            }
            let (end, values) = self.block(body, depth + 1)?;
            if end == End::Returns {
                return Ok(end);
            }
            carried = values;
            if end == End::Falls
                && let Some(exit) = f.exit_of(op)
                && let condition = self.get(exit, f.operands(exit)[0])?
                && self.decide(exit, &condition)? != 0
            {
                break;
            }
            i = match i.checked_add(step) {
                Some(next) => next,
                None => break,
            };
        }
        for (n, v) in carried.into_iter().enumerate() {
            self.set(op, n, v);
        }
        Ok(End::Falls)
    }

    /// The operands; on magnitudes with signs that make a difference a sum and a minimum the larger one.
    fn operands(&self, opcode: Opcode, args: &[Val]) -> Vals {
        let negated = |k: usize| match opcode {
            Opcode::Subf => k == 1,
            Opcode::Minf => true,
            _ => false,
        };
        let all = args.iter().cloned().enumerate();
        all.map(|(k, v)| if self.magnitudes && negated(k) { map_floats(v, |x| -x) } else { v }).collect()
    }

    /// An op with an effect on memory, or a pure one.
    fn effect(&mut self, op: Op, args: &[Val]) -> InterpResult<()> {
        let f = self.f;
        let result = f.result(op);
        let shape = |v: Value| tile_type(f.value_data(v)).map(|(d, e)| (SmallVec::<[u32; 4]>::from(d), e));
        let unsupported = |m: &str| Err(InterpError::at(f, op, Fault::Unsupported, m));
        match f.opcode(op) {
            Opcode::Combine | Opcode::Scan => {
                for (n, v) in eval::combined(f, op, args, &self.program)?.into_iter().enumerate() {
                    self.set(op, n, v);
                }
            }
            // What is printed changes nothing; magnitudes are other values.
            Opcode::Print => {}
            Opcode::Assert if self.magnitudes => {}
            Opcode::Assert => eval::assert(f, op, &args[0])?,
            o if o.is_sparse() => {
                if let Some(v) = sparse(f, op, args, self.memory)? {
                    self.set(op, 0, v);
                }
            }
            Opcode::TiledLoad => {
                let Some(Val::View(view)) = args.first() else { return unsupported("takes a view") };
                let padding = f.attr_number(op, keys::PADDING).unwrap_or(0.0);
                let Some((dims, _)) = result.and_then(shape) else {
                    let at = self.origin(op, &one(view))?;
                    let t = self.memory.load(view, &one(view), &at, padding).map_err(|e| at_op(f, op, e))?;
                    self.set(op, 0, t.scalar());
                    return Ok(());
                };
                let at = self.origin(op, &dims)?;
                let t = self.memory.load(view, &dims, &at, padding).map_err(|e| at_op(f, op, e))?;
                self.set(op, 0, Val::Tile(Rc::new(t)));
            }
            Opcode::AsyncTiledTmaLoad => {
                let Some(Val::Desc(d)) = args.first() else { return unsupported("takes a descriptor") };
                if f.named_operand(op, "buffer").is_some() {
                    return unsupported("destination form has no meaning in program order");
                }
                let at = self.origin(op, &d.extents)?;
                let fill = if d.nan { f64::NAN } else { 0.0 };
                let mut t = self.memory.load(&d.view, &d.extents, &at, fill).map_err(|e| at_op(f, op, e))?;
                // Rows may be counted by one dimension instead of several.
                if let Some((dims, _)) = result.and_then(shape).filter(|s| count(&s.0) == count(&t.dims)) {
                    t.dims = dims;
                }
                self.set(op, 0, Val::Tile(Rc::new(t)));
            }
            Opcode::TiledStore => {
                let t = self.tile_of(op, "value")?;
                let view = match f.named_operand(op, "view").map(|v| self.get(op, v)).transpose()? {
                    Some(Val::View(v)) => v,
                    _ => return unsupported("takes a view"),
                };
                let at = self.origin(op, &t.dims)?;
                self.memory.store(&view, &at, &t).map_err(|e| at_op(f, op, e))?;
            }
            Opcode::AsyncTiledTmaStore => {
                let Some(Val::Desc(d)) = args.first() else { return unsupported("takes a descriptor") };
                let t = self.tile_of(op, "source")?;
                let at = self.origin(op, &t.dims)?;
                self.memory.store(&d.view, &at, &t).map_err(|e| at_op(f, op, e))?;
                self.set(op, 0, Val::Token);
            }
            Opcode::Copy => {
                if f.named_operand(op, "dest").is_some() {
                    return unsupported("destination form has no meaning in program order");
                }
                let Some((dims, elem)) = result.and_then(shape) else {
                    let Some(v) = args.first() else { return unsupported("needs a source") };
                    self.set(op, 0, v.clone());
                    return Ok(());
                };
                let t = self.tile_of(op, "source")?;
                let taken = match f.named_operand(op, "when") {
                    Some(v) => eval::int(f, op, &self.get(op, v)?)? != 0,
                    None => true,
                };
                let t = if !taken {
                    Rc::new(Tile::splat(&dims, elem, f.attr_number(op, keys::OTHERWISE).unwrap_or(0.0)))
                } else if dims == t.dims {
                    t
                } else {
                    match t.slice(&dims, &f.attr_ints(op, keys::OFFSETS).unwrap_or_default()) {
                        Some(part) => Rc::new(part),
                        None => return unsupported("the part sticks out of its source"),
                    }
                };
                self.set(op, 0, Val::Tile(t));
            }
            Opcode::Global => match self.memory.variable(f, op) {
                Some(v) => self.set(op, 0, v),
                None => return unsupported("gives no variable"),
            },
            opcode => match eval::pure(f, op, &self.operands(opcode, args), &self.program)? {
                Some(v) => self.set(op, 0, v),
                None => return unsupported("has no meaning in program order"),
            },
        }
        Ok(())
    }
}

/// The one element that is so many behind a pointer.
fn pointed(pointer: &View, n: i64) -> View {
    let one = || SmallVec::from_slice(&[1]);
    View { offset: pointer.offset.saturating_add(n), sizes: one(), strides: one(), ..pointer.clone() }
}

/// The extents of one element of a view.
pub(crate) fn one(view: &View) -> SmallVec<[u32; 4]> {
    view.sizes.iter().map(|_| 1).collect()
}

/// An access of single elements, which are taken in row-major order; its result, if it has one.
pub(crate) fn sparse(f: &Function, op: Op, args: &[Val], memory: &mut Memory) -> InterpResult<Option<Val>> {
    let fault = |m: &str| InterpError::at(f, op, Fault::Unsupported, m);
    let arg = |name: &str| {
        let at = f.named_operand(op, name).and_then(|v| f.operands(op).iter().position(|&o| o == v));
        at.and_then(|n| args.get(n))
    };
    // The same value may be two operands: coordinates by position.
    let first = (0..f.segments(op).len())
        .take_while(|&n| f.opcode(op).def().operands.get(n).is_some_and(|s| s.name != "coords"))
        .map(|n| f.segments(op)[n] as usize)
        .sum::<usize>();
    let coords = &args[first.min(args.len())..(first + f.named_segment(op, "coords").len()).min(args.len())];
    let Some(Val::View(view)) = arg("view") else { return Err(fault("takes a view")) };
    let code = f.opcode(op);
    let padding = f.attr_number(op, keys::PADDING).unwrap_or(0.0);
    let dims = f.sparse_tile(op).and_then(|v| f.value_data(v).dims());
    let value = arg("value");
    let shape: SmallVec<[u32; 4]> = dims.unwrap_or(&[]).into();
    let mut result = match code {
        Opcode::Scatter => None,
        Opcode::Gather => Some(Tile::splat(&shape, view.elem, padding)),
        _ => Some(Tile::splat(&shape, view.elem, 0.0)),
    };
    // Element of an operand that repeats where it has one.
    let to = row_major(&shape);
    let pick = |v: &Val, i: usize| match v {
        Val::Tile(t) => {
            let mut from = row_major(&t.dims);
            for (s, &d) in from.iter_mut().zip(&t.dims) {
                if d == 1 {
                    *s = 0;
                }
            }
            t.at(relocate(i, &to, &from))
        }
        other => other.clone(),
    };
    for i in 0..count(&shape) {
        if let Some(m) = arg("mask")
            && eval::int(f, op, &pick(m, i))? == 0
        {
            continue;
        }
        let mut at: SmallVec<[i64; 4]> = SmallVec::new();
        for c in coords {
            at.push(eval::int(f, op, &pick(c, i))?);
        }
        // Behind a pointer the coordinate counts, without bounds.
        let element;
        let (view, at) = match at.as_slice() {
            &[n] if view.sizes.is_empty() => {
                element = pointed(view, n);
                (&element, SmallVec::from_slice(&[0]))
            }
            _ => (&**view, at),
        };
        let Some(old) = memory.element(view, &at).map_err(|e| at_op(f, op, e))? else { continue };
        let old = old.scalar();
        if code != Opcode::Gather {
            let value = value.map(|v| pick(v, i)).ok_or_else(|| fault("needs a value"))?;
            let new = match code {
                Opcode::AtomicRmw => updated(f, op, view.elem, &old, &value)?,
                Opcode::AtomicCas => {
                    let want = arg("compare")
                        .map(|v| pick(v, i))
                        .ok_or_else(|| fault("needs what to compare with"))?;
                    if same_bits(view.elem, &old, &want) { value } else { old.clone() }
                }
                _ => value,
            };
            let Some(one) = Tile::of_scalar(&one(view), view.elem, &new) else {
                return Err(fault("takes numbers"));
            };
            memory.store(view, &at, &one).map_err(|e| at_op(f, op, e))?;
        }
        if let Some(r) = &mut result {
            r.set(i, &old);
        }
    }
    Ok(result.map(|t| if dims.is_some() { Val::Tile(Rc::new(t)) } else { t.scalar() }))
}

/// Whether two numbers are the same in memory.
fn same_bits(elem: Scalar, a: &Val, b: &Val) -> bool {
    match (a, b) {
        (Val::Float(a), Val::Float(b)) => num::encode_float(elem, *a) == num::encode_float(elem, *b),
        _ => a == b,
    }
}

/// What an atomic update makes of an element.
fn updated(f: &Function, op: Op, s: Scalar, old: &Val, value: &Val) -> InterpResult<Val> {
    let unsigned = f.has_attr(op, keys::UNSIGNED);
    let mode = f.attr_name(op, keys::MODE).unwrap_or("");
    let refuse =
        |what: &str| Err(InterpError::at(f, op, Fault::Unsupported, format!("mode {mode} on {what}")));
    match (old, value) {
        (&Val::Int(a), &Val::Int(b)) => {
            let (ua, ub) = (num::unsigned(s, a), num::unsigned(s, b));
            let r = match mode {
                "addi" => a.wrapping_add(b),
                "maxi" if unsigned => ua.max(ub) as i64,
                "mini" if unsigned => ua.min(ub) as i64,
                "maxi" => a.max(b),
                "mini" => a.min(b),
                "andi" => a & b,
                "ori" => a | b,
                "xori" => a ^ b,
                "exch" => b,
                _ => return refuse("integers"),
            };
            Ok(Val::Int(num::wrap(s, r)))
        }
        (&Val::Float(a), &Val::Float(b)) => match mode {
            "addf" => Ok(Val::Float(num::round(s, a + b))),
            "exch" => Ok(Val::Float(b)),
            _ => refuse("floats"),
        },
        _ => refuse("values of two types"),
    }
}

/// Gives an error of the memory the place of the op that caused it.
pub(crate) fn at_op(f: &Function, op: Op, e: InterpError) -> InterpError {
    InterpError::at(f, op, e.fault, e.message)
}
