//! Compile time, warm, of every kernel in `examples` that this family has: `cargo bench -p tileas-isa-hopper --bench kernels`.

use divan::{Bencher, black_box};
use std::path::{Path, PathBuf};
use tileas_codegen::isa::SharedIsa;
use tileas_codegen::{Context, Settings};

fn main() {
    divan::main();
}

fn target() -> SharedIsa {
    tileas_isa_hopper::isa_for_cpu("sm_90a").expect("a target")
}

/// The names of the kernels' files, in order, without those that need tensor memory.
fn names() -> Vec<String> {
    let (isa, settings, mut context) = (target(), Settings::default(), Context::new());
    let mut found: Vec<String> = ["", "kernels"]
        .iter()
        .flat_map(|folder| std::fs::read_dir(examples().join(folder)).expect("the examples are there"))
        .flatten()
        .filter_map(|entry| {
            let path = entry.path();
            path.extension().filter(|e| *e == "tileas")?;
            let text = std::fs::read_to_string(&path).ok()?;
            let module = context.parse(&text, &settings).ok()?;
            context.compile(&module, &*isa, &settings).ok()?;
            Some(path.strip_prefix(examples()).ok()?.display().to_string())
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
    let (isa, settings, mut context) = (target(), Settings::default(), Context::new());
    let module = context.parse(&text, &settings).expect("the example parses");
    bencher.bench_local(|| context.compile(black_box(&module), &*isa, &settings).expect("compiles"));
}
