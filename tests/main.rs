//! The command's tests, in one program.

mod cli;
mod embed;
mod readme;
mod run;
