//! What surrounds a run: contents of global memory, formulas over them, comparison with what must come out.
//!
//! Knows nothing of compilers and of launches; those are made elsewhere (`tileas-launch`).

pub mod check;
pub mod data;
pub mod formula;
pub mod syntax;
