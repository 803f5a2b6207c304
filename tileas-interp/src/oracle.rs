//! What a source kernel computes from given tensors and scalars: the reference for other executions of it.
//!
//! In: a function, its grid, and what its parameters are bound to, by name. Out: [`Oracle`], memory before and after a run
//! in program order, and on request the magnitudes that tolerances are relative to.

use crate::{Arg, Buffer, Fault, InterpError, InterpResult, Limits, Memory, View, run_magnitudes, run_noted};
use smallvec::SmallVec;
use tileas_codegen::ir::{Function, Scalar};

/// What a parameter is bound to.
#[derive(Copy, Clone, Debug)]
pub enum Bound<'a> {
    /// A tensor; for a view of packed elements one of bytes, as for a launch.
    Tensor {
        /// The bytes from its first element on.
        bytes: &'a [u8],
        /// Extents, outermost first.
        shape: &'a [usize],
        /// Strides in elements.
        strides: &'a [usize],
    },
    /// An integer; a number for a floating-point parameter.
    Int(i64),
    /// A number.
    Float(f64),
}

/// A run in program order. Packed elements are bytes here, as compiled kernels have them.
#[derive(Clone, Debug)]
pub struct Oracle {
    /// The arguments, for further runs on copies of `before`.
    pub args: Vec<Arg>,
    /// Memory before the run.
    pub before: Memory,
    /// Memory after it.
    pub after: Memory,
    /// Sums of magnitudes, if asked for.
    magnitudes: Option<Memory>,
    /// By buffer, the largest finite number written to it.
    largest: Vec<f64>,
}

/// Binds the parameters of a function by their names.
///
/// # Errors
/// [`Fault::Argument`] for a parameter that nothing is bound to.
pub fn arguments<'a>(
    f: &Function,
    bound: impl Fn(&str) -> Option<Bound<'a>>,
) -> InterpResult<(Memory, Vec<Arg>)> {
    let mut memory = Memory::new();
    let mut args = Vec::with_capacity(f.params().len());
    for &p in f.params() {
        let (name, data) = (f.value_name(p).unwrap_or(""), f.value_data(p));
        let float = data.as_scalar().is_some_and(Scalar::is_float);
        args.push(match (bound(name), data.elem()) {
            (Some(Bound::Tensor { bytes, shape, strides }), Some(elem)) => {
                let buffer = memory.add(Buffer::from_bytes(elem, bytes.to_vec()));
                let numbers = |list: &[usize]| list.iter().map(|&n| n as i64).collect();
                let (mut sizes, mut strides): (SmallVec<_>, SmallVec<[i64; 4]>) =
                    (numbers(shape), numbers(strides));
                if elem.is_packed() {
                    sizes.iter_mut().last().into_iter().for_each(|n| *n *= 2);
                    strides.iter_mut().rev().skip(1).for_each(|n| *n *= 2);
                }
                Arg::View(View { buffer, offset: 0, sizes, strides, elem })
            }
            (Some(Bound::Int(i)), _) if float => Arg::Float(i as f64),
            (Some(Bound::Int(i)), _) => Arg::Int(i),
            (Some(Bound::Float(x)), _) => Arg::Float(x),
            _ => {
                let message = format!("nothing is bound to parameter {name}");
                return Err(InterpError::new(Fault::Argument, message));
            }
        });
    }
    Ok((memory, args))
}

impl Oracle {
    /// Runs a kernel in program order; with `scaled` also on magnitudes.
    ///
    /// # Errors
    /// Those of [`arguments`] and of the runs.
    pub fn new<'a>(
        f: &Function,
        grid: [u32; 3],
        bound: impl Fn(&str) -> Option<Bound<'a>>,
        limits: &Limits,
        scaled: bool,
    ) -> InterpResult<Oracle> {
        let (mut before, mut args) = arguments(f, bound)?;
        let mut after = before.clone();
        let decisions = run_noted(f, grid, &args, &mut after, limits)?;
        let mut magnitudes = scaled.then(|| before.clone());
        if let Some(m) = &mut magnitudes {
            run_magnitudes(f, grid, &args, m, limits, decisions)?;
        }
        let memories = magnitudes.iter_mut().chain([&mut before, &mut after]);
        for b in memories.flat_map(|m| &mut m.buffers).filter(|b| b.elem().is_packed()) {
            *b = b.to_bytes();
        }
        for arg in &mut args {
            if let Arg::View(v) = arg
                && v.elem.is_packed()
            {
                v.elem = Scalar::I8;
                v.sizes.iter_mut().last().into_iter().for_each(|n| *n /= 2);
                v.strides.iter_mut().rev().skip(1).for_each(|n| *n /= 2);
            }
        }
        let written = |b: &Buffer| b.written().ones().map(|i| b.number(i).abs()).collect::<Vec<_>>();
        let largest = |b: &Buffer| written(b).into_iter().filter(|x| x.is_finite()).fold(0.0, f64::max);
        let largest = after.buffers.iter().map(largest).collect();
        Ok(Oracle { args, before, after, magnitudes, largest })
    }

    /// What a tolerance for an element is relative to: its magnitude, or the sum of those it was computed from. Where that
    /// sum is not finite (magnitudes grow where values cancel, in exponents above all), the largest finite number that the
    /// kernel writes to the buffer. Always finite.
    pub fn scale(&self, buffer: usize, i: usize) -> f64 {
        let value = self.after.buffers[buffer].number(i).abs();
        let sum = self.magnitudes.as_ref().map(|m| m.buffers[buffer].number(i).abs());
        match (sum, value.is_finite()) {
            (Some(sum), true) if sum.is_finite() => sum.max(value),
            (None, true) => value,
            _ => self.largest[buffer],
        }
    }

    /// Whether the sum of magnitudes of an element is not finite, so that its scale is another.
    pub fn falls_back(&self, buffer: usize, i: usize) -> bool {
        self.magnitudes.as_ref().is_some_and(|m| !m.buffers[buffer].number(i).is_finite())
    }

    /// The buffer of a view parameter.
    pub fn buffer(&self, f: &Function, view: &str) -> Option<usize> {
        let position = f.params().iter().position(|&p| f.value_name(p) == Some(view))?;
        match self.args.get(position) {
            Some(Arg::View(v)) => Some(v.buffer),
            _ => None,
        }
    }
}
