//! The tests of pictures and explanations, in one program.

mod explain;
mod pictures;
