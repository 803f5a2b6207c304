//! Which tile sizes and options a kernel should have for given arguments.
//!
//! In: a kernel, a [`Space`] of tile extents and compiler options, arguments. Out: [`Look`]s: what a configuration compiles to and how
//! long it would take, with what binds it, in the order that [`Search`] asks for them. A tile extent is changed by a rewrite of the kernel
//! ([`Dimensions`]); coordinates of tiles count tiles, so that only extents change. Time is modelled ([`model`]) on rows of the
//! machine that have their sources; whoever has a GPU measures the best few. Guarantee: the same input gives the same answer, whoever
//! evaluates the points, in whatever order their results come.

#![deny(missing_docs)]
#![forbid(unsafe_code)]

mod error;
pub mod model;
pub mod plot;
mod retile;
mod search;
mod space;
mod tuner;

pub use error::{Code, Error};
pub use retile::Dimensions;
pub use search::Search;
pub use space::{Axis, Point, Space, What};
pub use tuner::{Argument, Look, Tuner};
