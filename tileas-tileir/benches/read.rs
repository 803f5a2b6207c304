//! Reading, checking and writing of files: `cargo bench -p tileas-tileir`. The counter is bytes of the file per second.

use tileas_tileir::{Limits, Module};

#[path = "../tests/common/mod.rs"]
mod common;

#[global_allocator]
static ALLOCATOR: divan::AllocProfiler = divan::AllocProfiler::system();

fn main() {
    divan::main();
}

const NAMES: &[&str] = &["vector_add-13.4", "matmul-13.5", "softmax-13.4", "attention-13.4"];

#[divan::bench(args = NAMES)]
fn read(bencher: divan::Bencher<'_, '_>, name: &str) {
    let bytes = common::file(name);
    let limits = Limits::default();
    bencher
        .counter(divan::counter::BytesCount::of_slice(bytes))
        .bench(|| Module::read(divan::black_box(bytes), &limits).expect("the file is right"));
}

#[divan::bench(args = NAMES)]
fn verify(bencher: divan::Bencher<'_, '_>, name: &str) {
    let module = common::read(common::file(name));
    bencher.counter(divan::counter::BytesCount::of_slice(common::file(name))).bench(|| module.verify());
}

#[divan::bench(args = NAMES)]
fn write(bencher: divan::Bencher<'_, '_>, name: &str) {
    let module = common::read(common::file(name));
    bencher
        .counter(divan::counter::BytesCount::of_slice(common::file(name)))
        .bench(|| module.write(module.version).expect("it was read"));
}
