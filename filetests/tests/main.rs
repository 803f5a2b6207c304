//! What is checked of the kernels of the file tests beside the commands they name, in one program.
//!
//! `filetests`, `clusters`, `hopper` and `cutile` are programs of their own: their tests are files.

mod codes;
mod elements;
mod fragments;
mod guards;
mod handwritten;
mod machine_code;
mod overlap;
mod pointers;
mod print;
mod streaming;
mod toy_target;
mod turns;
mod view_mutants;
