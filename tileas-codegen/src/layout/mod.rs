//! Layouts of tiles as linear maps over GF(2): which element each place of registers, shared and tensor memory holds.
//!
//! In: extents (powers of two), warps, element widths. Out: [`LinearMap`]s, their algebra, their text form, and plans of how
//! a tile gets from one layout to another. Nothing here knows operations or instructions' names.
//!
//! Elements are numbered row-major, the last axis fastest; an element number is a vector of bits. A map has one column, an element
//! number, for each bit of a place; a place holds the element that is the XOR of the columns of its bits that are set.
//!
//! Source: "Linear Layouts: Robust Code Generation of Efficient Tensor Computation Using F2", arXiv 2505.23819; fragments,
//! swizzles and tensor-memory accesses as in the PTX ISA.

mod convert;
mod forms;
pub mod gf2;
mod map;
mod name;
#[cfg(test)]
mod random;
mod shuffle;
mod trip;

pub use convert::{Means, Moves, Order, Plan, order_needed};
pub use forms::{Access, Matrix, WarpProduct};
pub use map::{Axes, Home, LinearMap, Replicas};
pub use name::{Text, parse};
pub use shuffle::{Counts, Shuffle, Way, is_identity};
pub use trip::{Form, Scope, Side, Trip};
