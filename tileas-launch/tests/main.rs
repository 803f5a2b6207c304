//! The tests of descriptors, in one program.

mod launch;
mod page;
