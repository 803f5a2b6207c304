//! Compile time, warm, of every kernel in `examples`: `cargo bench -p tileas-isa-blackwell --bench kernels`.

use divan::{Bencher, black_box};
use std::path::{Path, PathBuf};
use tileas_codegen::{Context, Settings};

fn main() {
    divan::main();
}

/// The names of the kernels' files, in order.
fn names() -> Vec<String> {
    let mut found: Vec<String> = ["", "kernels"]
        .iter()
        .flat_map(|folder| std::fs::read_dir(examples().join(folder)).expect("the examples are there"))
        .flatten()
        .filter_map(|entry| {
            let path = entry.path();
            let kernel = path.extension().is_some_and(|e| e == "tileas");
            kernel.then(|| path.strip_prefix(examples()).expect("a file in it").display().to_string())
        })
        .collect();
    found.sort();
    found
}

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples")
}

#[divan::bench(args = names(), sample_count = 20)]
fn kernel(bencher: Bencher<'_, '_>, name: &str) {
    let text = std::fs::read_to_string(examples().join(name)).expect("can be read");
    let (isa, settings) =
        (tileas_isa_blackwell::isa_for_cpu("sm_100a").expect("a target"), Settings::default());
    let mut context = Context::new();
    let module = context.parse(&text, &settings).expect("the example parses");
    bencher.bench_local(|| context.compile(black_box(&module), &*isa, &settings).expect("compiles"));
}
