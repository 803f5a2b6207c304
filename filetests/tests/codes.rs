//! Every stable code is the subject of a test.
//!
//! A code that text can raise has a filetest that expects it. Codes of interfaces without a text form (schedule
//! documents, thread-level IR built by calls, misuse of the API) are listed with the unit test that raises them; that
//! test must exist and name the code. A code in neither list fails this test, and so does one that nothing raises.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use tileas_filetests::{Header, root};

const DOCUMENTS: (&str, &str) = ("tileas-schedule/tests/json.rs", "errors_have_codes_and_pointers");
const THREAD_LEVEL: (&str, &str) =
    ("tileas-codegen/tests/nvvm_kernel.rs", "the_verifier_names_every_violation");
const DAMAGED: (&str, &str) = ("filetests/tests/guards.rs", "damaged_placements_get_no_buffers");
const LAUNCHES: &str = "tileas-launch/tests/launch.rs";
const PASS: &str = "tileas-codegen/tests/pass.rs";

/// Codes that no kernel text raises, and the unit test (file below the workspace, function) that does.
const UNIT_TESTS: &[(&[&str], (&str, &str))] = &[
    (&["E0301", "E0302", "E0303", "E0304", "E0305", "E0306", "E0307", "E0308"], DOCUMENTS),
    // Text names nothing of another kernel.
    (&["E0228"], ("tileas-codegen/tests/builder_calls.rs", "values_and_types_of_another_function_are_found")),
    // Cycle numbers beyond 32 bits need latencies that no op has.
    (&["E0402"], ("tileas-schedule/tests/rules.rs", "empty_and_odd_problems")),
    // Schedules that no generator makes; the test damages one.
    (&["E0403", "E0404", "E0405", "E0406", "E0407", "E0408"], (PASS, "damaged_schedules_are_not_legal")),
    // Builds without the feature of exact mode.
    (&["E0409"], ("tileas-codegen/tests/features.rs", "exact_mode_needs_its_feature")),
    // Lists of passes and analyses have no kernel text.
    (&["E1005"], (PASS, "malformed_pipelines_are_refused")),
    (&["E1006"], (PASS, "missing_and_dropped_facts_are_refused")),
    (&["E1007"], (PASS, "ordering_invariants_are_checked")),
    // The verifier refuses such a descriptor (E0217) and such extents (E0211) first; `place` checks what callers hand it unverified.
    (&["E0504", "E0506"], ("tileas-codegen/tests/place.rs", "impossible_kernels_are_refused")),
    // A plan made for another kernel.
    (&["E0509"], ("tileas-codegen/tests/ddg.rs", "effects_without_an_agent_are_an_error")),
    // Earlier stages exclude what these refuse; the tests call single stages.
    (&["E0601", "E0604", "E0605", "E0607", "E0608"], DAMAGED),
    // Loads that nobody reads are removed before placement.
    (&["E0606", "E0701"], ("filetests/tests/guards.rs", "loads_that_nobody_reads_are_refused")),
    (&["E0609"], ("filetests/tests/guards.rs", "paths_load_equal_bytes")),
    (&["E0801"], ("filetests/tests/guards.rs", "unknown_processors_have_no_ptx")),
    (&["E0891"], ("tileas-isa-blackwell/src/tests.rs", "tables_that_do_not_fit_are_refused")),
    (&["E0803"], ("filetests/tests/guards.rs", "value_form_is_not_lowered")),
    // No kernel has such an address.
    (
        &["E0913"],
        (
            "tileas-codegen/src/nvvm/passes/index.rs",
            "the_last_byte_of_each_variable_is_the_last_that_is_read",
        ),
    ),
    // Exact mode makes legal schedules; the test damages one.
    (&["E0410"], ("tileas-schedule/src/optimal/tests.rs", "a_damaged_schedule_is_refused")),
    // A placement that would deadlock is never made from text; the test damages the depth.
    (&["E0702"], ("tileas-codegen/tests/materialize.rs", "the_deadlock_is_shown")),
    (
        &["E0901", "E0902", "E0903", "E0904", "E0905", "E0906", "E0907", "E0908", "E0911", "E0912"],
        THREAD_LEVEL,
    ),
    (&["W0901", "W0902"], THREAD_LEVEL),
    // Orders that no compilation emits; the test damages a kernel.
    (&["E0709", "E0710"], ("tileas-codegen/tests/materialize.rs", "another_order_is_refused")),
    (&["E0920", "E0922", "E0923"], ("tileas-codegen/tests/nvvm_text.rs", "errors_have_codes_and_places")),
    // Launches.
    (&["E1101"], (LAUNCHES, "malformed_documents_are_errors")),
    (&["E1102", "E1103", "E1104", "E1105", "E1106", "E1107"], (LAUNCHES, "errors_name_what_is_wrong")),
    (&["E1012"], ("tileas-codegen/src/prepare/structure.rs", "as_many_branches_leave_as_the_limit_says")),
];

/// The codes of all crates.
fn all() -> Vec<&'static str> {
    let compiler = tileas_codegen::Code::all().iter().map(|(c, _)| c.as_str());
    compiler.chain(tileas_launch::Code::ALL.iter().map(|(c, _)| c.as_str())).collect()
}

/// The workspace.
fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// All files with an extension below a folder.
fn files(folder: &Path, extension: &str, out: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a readable folder") {
        let path = entry.expect("a readable entry").path();
        if path.is_dir() {
            files(&path, extension, out);
        } else if path.extension().is_some_and(|e| e == extension) {
            out.push(path);
        }
    }
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn expected_by_filetests() -> BTreeSet<String> {
    let mut paths = Vec::new();
    files(&root(), "tileas", &mut paths);
    let headers = paths.iter().map(|p| Header::parse(&read(p)).expect("a legal header"));
    headers.flat_map(|h| h.expected).map(|e| e.code).collect()
}

/// The text of a function from its name to the end of the item.
fn function<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    let rest = &text[text.find(&format!("fn {name}("))?..];
    Some(&rest[..rest.find("\n}\n").unwrap_or(rest.len())])
}

#[test]
fn every_code_has_a_test() {
    let mut covered = expected_by_filetests();
    for &(codes, (file, name)) in UNIT_TESTS {
        let text = read(&workspace().join(file));
        let body = function(&text, name).unwrap_or_else(|| panic!("{file} has no test `{name}`"));
        for code in codes {
            assert!(body.contains(code), "`{name}` of {file} does not name {code}");
            covered.insert((*code).to_owned());
        }
    }
    let missing: Vec<&str> = all().into_iter().filter(|c| !covered.contains(*c)).collect();
    assert!(missing.is_empty(), "codes without a test: {missing:?}");
    let known = |code: &String| all().contains(&code.as_str());
    assert!(covered.iter().all(known), "a list names a code that does not exist");
}

#[test]
fn every_code_is_raised() {
    let mut paths = Vec::new();
    for crate_folder in
        ["tileas-schedule/src", "tileas-codegen/src", "tileas-isa-blackwell/src", "tileas-launch/src"]
    {
        files(&workspace().join(crate_folder), "rs", &mut paths);
    }
    paths.retain(|p| {
        !p.ends_with("error/codes.rs") && !p.ends_with("schedule/src/error.rs") && !p.ends_with("tests.rs")
    });
    let sources: Vec<String> = paths.iter().map(|p| read(p)).collect();
    let raised = |code: &str| sources.iter().any(|s| s.contains(&format!("Code::{code}")));
    let idle: Vec<&str> = all().into_iter().filter(|c| !raised(c)).collect();
    assert!(idle.is_empty(), "codes that nothing raises: {idle:?}");
}
