//! The tests of compiling and launching at run time, in one program.

mod assemblers;
mod cache;
mod codes;
mod devices;
mod fake_driver;
mod shared_cache;

/// Arguments for this program that run the test of that name, which begins with its module, and no other.
fn alone(test: &str) -> [&str; 4] {
    [test, "--exact", "--nocapture", "--test-threads=1"]
}
