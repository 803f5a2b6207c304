//! Every code of this crate is met by a test, which is named here, and has a meaning.

use tileas_jit::Code;

/// Code, test that makes it happen.
const TESTS: &[(&str, &str)] = &[
    ("E1201", "assemblers.rs"),
    ("E1202", "assemblers.rs"),
    ("E1203", "assemblers.rs"),
    ("E1204", "assemblers.rs"),
    ("E1205", "fake_driver.rs"),
    ("E1206", "cache.rs"),
    ("E1207", "assemblers.rs"),
    ("E1208", "devices.rs"),
    ("E1209", "devices.rs"),
    ("E1210", "devices.rs"),
    ("E1211", "devices.rs"),
    ("E1212", "devices.rs"),
];

#[test]
fn every_code_is_met() {
    let listed: Vec<&str> = TESTS.iter().map(|(code, _)| *code).collect();
    let all: Vec<&str> = Code::ALL.iter().map(|(code, _)| code.as_str()).collect();
    assert_eq!(listed, all);
    for (code, file) in TESTS {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(file);
        let text = std::fs::read_to_string(&path).expect("a file of tests");
        assert!(text.contains(code), "{file} says nothing of {code}");
    }
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/launching.md");
    let page = std::fs::read_to_string(page).expect("a page");
    for (code, meaning) in Code::ALL {
        assert!(page.contains(code.as_str()), "docs/launching.md: {code}: {meaning}");
    }
}
