//! `tileas-interp`: what a kernel means, executed.
//!
//! [`run_sequential`] runs a source kernel in program order on concrete buffers: the oracle of everything the
//! compiler does. [`run_agents`] runs a materialised kernel: agents step concurrently, channels count arrivals,
//! bytes and phases, loads, stores and matrix products complete late, in an interleaving that a seed picks. Equal
//! buffers say that projection, channels, depths and orders are right before any PTX exists.
//!
//! Depends on the IR of `tileas-codegen` only; shares no code with its passes. Rounding: see [`eval`].

#![deny(missing_docs)]
#![forbid(unsafe_code)]

pub mod agents;
pub mod error;
pub mod eval;
pub mod memory;
pub mod num;
pub mod oracle;
mod pipes;
pub mod sequential;
pub mod tile;

pub use agents::{Timing, run_agents};
pub use error::{Fault, InterpError, InterpResult};
pub use eval::Program;
pub use memory::{Buffer, Memory};
pub use oracle::{Bound, Oracle};
pub use sequential::{Decisions, run_magnitudes, run_noted, run_sequential};
pub use tile::{Data, Tile, Val, View};

use smallvec::SmallVec;
use std::rc::Rc;
use tileas_codegen::ir::{Dim, Function, TypeData, Value};

/// What a run may use.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Ops executed, over all programs.
    pub max_steps: u64,
    /// Regions inside each other.
    pub max_nesting: u32,
    /// Slots of one ring or pipeline.
    pub max_slots: usize,
    /// Elements of all rings of a kernel together.
    pub max_ring_elements: u64,
    /// Elements of all tile values of a kernel together: each holds one tile at a time.
    pub max_tile_elements: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            max_steps: 100_000_000,
            max_nesting: 128,
            max_slots: 256,
            max_ring_elements: 1 << 26,
            max_tile_elements: 1 << 28,
        }
    }
}

/// What a run did.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Ops executed.
    pub steps: u64,
}

/// A kernel argument.
#[derive(Clone, PartialEq, Debug)]
pub enum Arg {
    /// For a view parameter.
    View(View),
    /// For an integer parameter.
    Int(i64),
    /// For a floating-point parameter.
    Float(f64),
}

impl Program {
    fn of(grid: [u32; 3]) -> Program {
        Program { id: [0; 3], grid: grid.map(i64::from) }
    }

    /// Every program of a grid, x fastest.
    fn all(grid: [u32; 3]) -> impl Iterator<Item = [i64; 3]> {
        let [x, y, z] = grid.map(i64::from);
        (0..z).flat_map(move |k| (0..y).flat_map(move |j| (0..x).map(move |i| [i, j, k])))
    }
}

/// Refuses kernels whose values may take more memory than allowed.
fn check_size(f: &Function, limits: &Limits) -> InterpResult<()> {
    let size = |v: Value| tile::tile_type(f.value_data(v)).map_or(0, |(dims, _)| tile::count(dims) as u64);
    let mut total = 0u64;
    let mut blocks = vec![f.entry()];
    while let Some(b) = blocks.pop() {
        let mut add = |values: &[Value]| total = values.iter().fold(total, |n, &v| n.saturating_add(size(v)));
        add(f.block_params(b));
        for op in f.block_ops(b) {
            add(f.results(op));
            blocks.extend(f.regions(op).iter().map(|&r| f.region_block(r)));
        }
    }
    if total > limits.max_tile_elements {
        let message = format!("{total} elements in all tiles (max_tile_elements)");
        return Err(InterpError::new(Fault::Limit, message));
    }
    Ok(())
}

/// Binds arguments to parameters.
fn bind(f: &Function, args: &[Arg]) -> InterpResult<Vec<(Value, Val)>> {
    if args.len() != f.params().len() {
        let message = format!("the kernel takes {} arguments, {} are given", f.params().len(), args.len());
        return Err(InterpError::new(Fault::Argument, message));
    }
    let mut out = Vec::with_capacity(args.len());
    for (n, (&p, arg)) in f.params().iter().zip(args).enumerate() {
        let name = f.value_name(p).map_or(String::new(), |s| format!(" %{s}"));
        let wrong =
            |what: &str| Err(InterpError::new(Fault::Argument, format!("argument {n}{name}: {what}")));
        let val = match (f.value_data(p), arg) {
            (TypeData::Scalar(s), Arg::Int(v)) if s.is_int() => Val::Int(num::wrap(*s, *v)),
            (TypeData::Scalar(s), Arg::Float(v)) if s.is_float() => Val::Float(num::round(*s, *v)),
            (TypeData::View { dims, elem, .. }, Arg::View(v)) => {
                let ty = f.value_data(p);
                if v.elem != *elem {
                    return wrong(&format!("its type is {ty}, elements {} are given", v.elem.name()));
                }
                if v.sizes.len() != dims.len() || v.strides.len() != dims.len() {
                    let (sizes, strides) = (&v.sizes, &v.strides);
                    let message =
                        format!("its type is {ty}, extents {sizes:?}, strides {strides:?} are given");
                    return wrong(&message);
                }
                let fits = |(d, n): (&Dim, &i64)| match d {
                    Dim::Static(s) => i64::from(*s) == *n,
                    Dim::Dynamic => (0..=i64::from(i32::MAX)).contains(n),
                };
                if !dims.iter().zip(&v.sizes).all(fits) {
                    return wrong(&format!("its type is {ty}, extents {:?} are given", v.sizes));
                }
                Val::View(Rc::new(v.clone()))
            }
            // Where it begins is all that counts.
            (TypeData::Ptr { elem, .. }, Arg::View(v)) if v.elem == *elem => {
                Val::View(Rc::new(View { sizes: SmallVec::new(), strides: SmallVec::new(), ..v.clone() }))
            }
            (t, _) => return wrong(&format!("expected a {t}")),
        };
        out.push((p, val));
    }
    Ok(out)
}
