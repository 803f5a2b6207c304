//! Lists of passes by their names: what `tileas compile --passes` runs and `tileas options --passes` prints.

pub use crate::driver::{PassUse, Pipeline};
pub use crate::pass::{Facts, PASSES, PREPARATION, PassInfo, Step};
