//! What the pages show is what runs: each block of Rust in them is a part of an example, and the example runs.

#[path = "../examples/jit.rs"]
mod jit;

use std::path::Path;

/// The blocks of code of that language.
fn blocks(page: &str, language: &str) -> Vec<String> {
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(page)).expect("a page");
    let start = format!("```{language}\n");
    let parts = text.split(&start).skip(1);
    parts.map(|part| part.split("```").next().unwrap_or_default().to_owned()).collect()
}

#[test]
fn the_jit_example_runs() {
    jit::main().expect("it runs");
}

#[test]
fn blocks_are_parts_of_examples() {
    let squeeze = |text: &str| text.lines().map(str::trim).collect::<Vec<_>>().join("\n");
    // The examples in C and Python are run by the tests of their crates.
    let examples = [
        ("rust", 2, include_str!("../examples/jit.rs")),
        ("python", 1, include_str!("../tileas-python/examples/gemm.py")),
        ("c", 1, include_str!("../tileas-capi/examples/gemm.c")),
    ];
    for (language, count, example) in examples {
        let example = squeeze(example);
        let mut seen = 0;
        for page in ["README.md", "docs/launching.md"] {
            for block in blocks(page, language) {
                seen += 1;
                assert!(
                    example.contains(squeeze(&block).trim()),
                    "{page} shows what is in no example:\n{block}"
                );
            }
        }
        assert_eq!(seen, count, "{language}");
    }
}
