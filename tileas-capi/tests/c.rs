//! The header is what the functions are, C and C++ take it, and C programs do what they should, under AddressSanitizer as well.
//!
//! Needs `cc` on Linux; without one nothing is tested, which is said, unless `TILEAS_REQUIRE_CC` is set.

use std::path::{Path, PathBuf};
use std::process::Command;
use tileas_capi::Code;

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn the_header_is_what_the_functions_are() {
    let mut config = cbindgen::Config::from_file(here().join("cbindgen.toml")).expect("the configuration");
    config.after_includes =
        config.after_includes.map(|text| text.replace("0.1.0", env!("CARGO_PKG_VERSION")));
    let bindings = cbindgen::Builder::new()
        .with_config(config)
        .with_src(here().join("src/ffi.rs"))
        .generate()
        .expect("a header");
    let mut made = Vec::new();
    bindings.write(&mut made);
    // The last part of a comment is for Rust.
    let made = String::from_utf8(made).expect("UTF-8");
    let mut header = String::new();
    let mut skip = false;
    for line in made.lines() {
        skip = line == "// # Safety" || skip && line.starts_with("//");
        if skip {
            // And the empty line of the comment before it.
            if line == "// # Safety" && header.ends_with("//\n") {
                header.truncate(header.len() - 3);
            }
            continue;
        }
        header += line.trim_end();
        header.push('\n');
    }
    let path = here().join("include/tileas.h");
    if std::env::var_os("TILEAS_BLESS").is_some() {
        std::fs::write(&path, &header).expect("is written");
    }
    let there = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(there == header, "include/tileas.h is not current: set TILEAS_BLESS=1");
    for function in ["tileas_launch(", "tileas_context_free(", "tileas_tensor_borrow(", "tileas_error_at("] {
        assert!(header.contains(function), "{function}");
    }
}

/// The compiler; `None`: there is none.
fn cc(name: &str) -> Option<Command> {
    let there = cfg!(target_os = "linux") && Command::new(name).arg("--version").output().is_ok();
    if !there {
        assert!(std::env::var_os("TILEAS_REQUIRE_CC").is_none(), "no {name}");
        println!("no {name}: not tested");
        return None;
    }
    Some(Command::new(name))
}

/// The folder with the library as C links it, which cargo makes beside the one that this test links.
fn library() -> PathBuf {
    std::env::current_exe().expect("a path").parent().expect("a folder").to_owned()
}

/// Compiles a C program and runs it. What it writes to standard output.
fn run(name: &str, source: &str, flags: &[&str], args: &[&str]) -> Option<String> {
    let mut compiler = cc("cc")?;
    let folder = tempfile::TempDir::new().expect("a folder");
    let program = folder.path().join(name);
    let output = compiler
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-O1", "-g", "-I"])
        .arg(here().join("include"))
        .args(flags)
        .arg(here().join(source))
        .arg("-o")
        .arg(&program)
        .arg(library().join("libtileas_capi.a"))
        .args(["-lpthread", "-ldl", "-lm"])
        .output()
        .expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let output = Command::new(&program).args(args).current_dir(here().join("..")).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    Some(said)
}

const SANITIZED: &[&str] = &["-fsanitize=address,undefined", "-fno-sanitize-recover=all"];

#[test]
fn a_gemm_in_c() {
    let text = std::fs::read_to_string(here().join("examples/gemm.c")).expect("the example");
    assert!(text.lines().count() <= 100);
    for flags in [&[], SANITIZED] {
        let Some(said) = run("gemm", "examples/gemm.c", flags, &["examples/gemm_f16.tileas", "--explain"])
        else {
            return;
        };
        assert!(said.starts_with("200 x 264 elements are right, on the emulator of sm_100a\n"), "{said}");
        assert!(said.contains("What binds") && said.contains("Channels"), "{said}");
    }
}

#[test]
fn misuse_is_an_error() {
    for flags in [&[], SANITIZED] {
        let Some(said) = run("misuse", "tests/data/misuse.c", flags, &[]) else { return };
        let path = here().join("tests/data/misuse.txt");
        if std::env::var_os("TILEAS_BLESS").is_some() {
            std::fs::write(&path, &said).expect("is written");
        }
        let want = std::fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(said, want);
    }
}

#[test]
fn every_code_is_met() {
    let want = std::fs::read_to_string(here().join("tests/data/misuse.txt")).expect("the results");
    for (code, meaning) in Code::ALL {
        // It takes a fault of ours.
        if code.as_str() != "E1306" {
            assert!(want.contains(code.as_str()), "{}: {meaning}", code.as_str());
        }
    }
}

#[test]
fn the_header_is_cpp_as_well() {
    let Some(mut compiler) = cc("c++") else { return };
    let header = here().join("include/tileas.h");
    let output = compiler
        .args(["-std=c++17", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-x", "c++"])
        .arg(header);
    let output = output.output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
