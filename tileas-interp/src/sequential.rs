//! Runs a source kernel in program order: the meaning that every later form must keep.
//!
//! Needs: a verified function in value form, arguments, memory. Guarantees: programs of the grid run one after
//! another, x fastest; every op takes effect where it stands.

use crate::error::{Fault, InterpError, InterpResult};
use crate::eval::{self, Program};
use crate::num;
use crate::tile::{Data, Tile, Val, View, tile_type};
use crate::{Arg, Limits, Memory, Stats, bind};
use cranelift_entity::SecondaryMap;
use smallvec::SmallVec;
use std::rc::Rc;
use tileas_codegen::ir::{Block, Function, Op, Opcode, Value, keys};

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
    run(f, grid, args, memory, limits, false)
}

/// Runs the kernel on magnitudes: every float is replaced by its absolute value, infinite ones that are constants or loaded by
/// 0, and differences by sums.
///
/// What a sum of products then writes is Σ|a·b|: what the tolerance of a comparison is relative to. Where comparisons of
/// floats decide, the other branch may be taken.
///
/// # Errors
/// See [`Fault`].
pub fn run_magnitudes(
    f: &Function,
    grid: [u32; 3],
    args: &[Arg],
    memory: &mut Memory,
    limits: &Limits,
) -> InterpResult<Stats> {
    run(f, grid, args, memory, limits, true)
}

fn run(
    f: &Function,
    grid: [u32; 3],
    args: &[Arg],
    memory: &mut Memory,
    limits: &Limits,
    magnitudes: bool,
) -> InterpResult<Stats> {
    crate::check_size(f, limits)?;
    let program = Program::of(grid);
    let mut m = Machine { f, env: SecondaryMap::new(), memory, steps: 0, limits, program, magnitudes };
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
    /// See [`run_magnitudes`].
    magnitudes: bool,
}

type Vals = SmallVec<[Val; 4]>;

impl Machine<'_> {
    fn get(&self, op: Op, v: Value) -> InterpResult<Val> {
        match &self.env[v] {
            Some(x) => Ok(x.clone()),
            None => Err(InterpError::at(self.f, op, Fault::Undefined, format!("{v} has no value here"))),
        }
    }

    fn set(&mut self, op: Op, n: usize, x: Val) {
        let source = matches!(self.f.opcode(op), Opcode::Constant | Opcode::TiledLoad | Opcode::AsyncTiledTmaLoad);
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

    /// Runs a block; what its terminator passes on.
    fn block(&mut self, b: Block, depth: u32) -> InterpResult<Vals> {
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
                Opcode::Yield => return Ok(args),
                Opcode::Return => return Ok(Vals::new()),
                Opcode::For => self.run_loop(op, &args, depth)?,
                Opcode::If => {
                    let arm = usize::from(eval::int(f, op, &args[0])? == 0);
                    let values = match f.op_block_at(op, arm) {
                        Some(b) if f.first_op(b).is_some() => self.block(b, depth + 1)?,
                        _ => Vals::new(),
                    };
                    for (n, v) in values.into_iter().enumerate() {
                        self.set(op, n, v);
                    }
                }
                _ => self.effect(op, &args)?,
            }
        }
        Ok(Vals::new())
    }

    fn run_loop(&mut self, op: Op, args: &[Val], depth: u32) -> InterpResult<()> {
        let f = self.f;
        let bound = |i: usize| match args.get(i) {
            Some(v) => eval::int(f, op, v),
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
        let Some(body) = f.op_block_at(op, 0) else { return Ok(()) };
        let mut carried: Vals = args[3..].iter().cloned().collect();
        while i < hi {
            let params = f.block_params(body);
            for (k, &p) in params.iter().enumerate() {
                self.env[p] = if k == 0 { Some(Val::Int(i)) } else { carried.get(k - 1).cloned() };
            }
            carried = self.block(body, depth + 1)?;
            i = match i.checked_add(step) {
                Some(next) => next,
                None => break,
            };
        }
        for (n, v) in carried.into_iter().enumerate() {
            self.set(op, n, v);
        }
        Ok(())
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
            Opcode::AtomicRmw => {
                let (Some(value), Some(Val::View(view))) = (args.first(), args.get(1)) else {
                    return unsupported("takes a scalar and a view");
                };
                let at = self.origin(op, &one(view))?;
                let old = atomic(f, op, self.memory, value, view, &at)?;
                self.set(op, 0, old);
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
                let t = self.memory.load(&d.view, &d.extents, &at, fill).map_err(|e| at_op(f, op, e))?;
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
            opcode => match eval::pure(f, op, &self.operands(opcode, args), &self.program)? {
                Some(v) => self.set(op, 0, v),
                None => return unsupported("has no meaning in program order"),
            },
        }
        Ok(())
    }
}

/// The extents of one element of a view.
pub(crate) fn one(view: &View) -> SmallVec<[u32; 4]> {
    view.sizes.iter().map(|_| 1).collect()
}

/// Updates an element; what was there before. Outside the view nothing happens and the result is 0.
pub(crate) fn atomic(
    f: &Function,
    op: Op,
    memory: &mut Memory,
    value: &Val,
    view: &View,
    at: &[i64],
) -> InterpResult<Val> {
    let dims = one(view);
    let old = memory.load(view, &dims, at, 0.0).map_err(|e| at_op(f, op, e))?;
    let unsigned = f.has_attr(op, keys::UNSIGNED);
    let mode = f.attr_name(op, keys::MODE).unwrap_or("");
    let s = view.elem;
    let new = match (&old.data, value) {
        (Data::Int(v), &Val::Int(b)) => {
            let a = v[0];
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
                _ => {
                    return Err(InterpError::at(
                        f,
                        op,
                        Fault::Unsupported,
                        format!("mode {mode} on integers"),
                    ));
                }
            };
            Data::Int(vec![num::wrap(s, r)])
        }
        (Data::Float(v), &Val::Float(b)) => match mode {
            "addf" => Data::Float(vec![num::round(s, v[0] + b)]),
            "exch" => Data::Float(vec![b]),
            _ => return Err(InterpError::at(f, op, Fault::Unsupported, format!("mode {mode} on floats"))),
        },
        _ => return Err(InterpError::at(f, op, Fault::Unsupported, "value and view differ in type")),
    };
    let tile = Tile { dims, elem: s, data: new };
    memory.store(view, at, &tile).map_err(|e| at_op(f, op, e))?;
    Ok(old.scalar())
}

/// Gives an error of the memory the place of the op that caused it.
pub(crate) fn at_op(f: &Function, op: Op, e: InterpError) -> InterpError {
    InterpError::at(f, op, e.fault, e.message)
}
