//! The reader's tests, in one program.

mod common;
mod files;
mod lower;
mod ops;
mod page;
mod quirks;
mod random;
mod structure;
mod vendor;
