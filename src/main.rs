//! The `tileas` command.
fn main() {}
