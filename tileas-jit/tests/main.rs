//! The tests of compiling and launching at run time, in one program. `devices` is one of its own: it goes to machines with a GPU.

mod assemblers;
mod cache;
mod codes;
mod fake_driver;
mod shared_cache;

/// Arguments for this program that run the test of that name, which begins with its module, and no other.
fn alone(test: &str) -> [&str; 4] {
    [test, "--exact", "--nocapture", "--test-threads=1"]
}
