//! The compiler's tests, in one program: linked once, and run side by side.
//!
//! `features` and `refine` are programs of their own: they also run without the exact scheduler.

mod attention;
mod builder_calls;
mod corpus;
mod ddg;
mod discardable;
mod ir_text;
mod located;
mod materialize;
mod memory;
mod nvvm_kernel;
mod nvvm_text;
mod pass;
mod place;
mod place_semantics;
mod ptx_forms;
mod r5_mutants;
mod regalloc_plan;
mod registers;
mod search_steps;
mod sim;
mod spec_constraints;
mod spec_generators;
mod spec_glue;
mod spec_materialize;
mod web_mutants;
