//! Comparison with NVIDIA's disassembler: the same operations in the same nesting.
//!
//! `TILEIRDISASM` names it; without it nothing is compared, unless `TILEAS_REQUIRE_TILEIR` is set. `TILEIR_FILES` may name a
//! folder with further files.

mod common;
#[path = "common/ops.rs"]
mod ops;

use std::path::PathBuf;
use std::process::Command;
use tileas_tileir::{FuncRef, Module, Opcode, Region, Version};

/// Depth and name of each op. An end of a region that hands on nothing is left out, as the disassembler does so.
fn ours(f: FuncRef<'_>, region: Region, depth: usize, out: &mut Vec<(usize, String)>) {
    for op in f.region(region) {
        let name = match op.opcode() {
            Opcode::Yield | Opcode::Continue if op.operands().is_empty() => continue,
            Opcode::Pow => "fpowf",
            Opcode::Powi => "fpowi",
            opcode => opcode.name(),
        };
        out.push((depth, name.to_owned()));
        op.regions().for_each(|r| ours(f, r, depth + 1, out));
    }
}

fn theirs(text: &str) -> Vec<(usize, String)> {
    let (mut out, mut depth) = (Vec::new(), 0);
    for line in text.lines() {
        let line = line.trim_start();
        // Texts may hold anything.
        let line: String = line.split('"').step_by(2).collect();
        let behind =
            if line.starts_with('%') { line.split_once(" = ").map_or("", |(_, op)| op) } else { &line };
        let name: String = behind.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
        let implied = ["yield", "continue"].contains(&name.as_str()) && behind.trim_end() == name;
        if !name.is_empty() && !["entry", "global"].contains(&name.as_str()) && !implied {
            out.push((depth, name));
        }
        let closed = line.matches('}').count();
        depth = (depth + line.matches('{').count()).saturating_sub(closed);
    }
    out
}

fn compare(disassembler: &PathBuf, path: &PathBuf, bytes: &[u8]) {
    let module: Module = common::read(bytes);
    let output = Command::new(disassembler).arg(path).output().expect("TILEIRDISASM can be started");
    assert!(output.status.success(), "{}: {}", path.display(), String::from_utf8_lossy(&output.stderr));
    let mut have = Vec::new();
    module.functions().for_each(|f| ours(f, Region::BODY, 1, &mut have));
    let want = theirs(&String::from_utf8_lossy(&output.stdout));
    if have != want {
        let at = have.iter().zip(&want).position(|(a, b)| a != b).unwrap_or(have.len().min(want.len()));
        panic!("{}: op {at} is {:?}, there {:?}", path.display(), have.get(at), want.get(at));
    }
}

#[test]
fn ops_are_those_of_the_disassembler() {
    let Some(disassembler) = std::env::var_os("TILEIRDISASM").map(PathBuf::from) else {
        assert!(std::env::var_os("TILEAS_REQUIRE_TILEIR").is_none(), "TILEIRDISASM is not set");
        return;
    };
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/files"));
    for (name, bytes) in common::FILES {
        compare(&disassembler, &folder.join(format!("{name}.tileirbc")), bytes);
    }
    let Some(more) = std::env::var_os("TILEIR_FILES") else { return };
    let mut n = 0;
    for entry in std::fs::read_dir(more).expect("TILEIR_FILES is a folder").flatten() {
        if entry.path().extension().is_some_and(|e| e == "tileirbc") {
            let bytes = std::fs::read(entry.path()).expect("readable");
            let module = common::read(&bytes);
            module.verify().unwrap_or_else(|e| panic!("{}: {e}", entry.path().display()));
            assert!(module.write(module.version).expect("writable") == bytes, "{}", entry.path().display());
            compare(&disassembler, &entry.path(), &bytes);
            n += 1;
        }
    }
    println!("{n} further files compared");
}

/// What we accept the disassembler, which verifies, accepts as well; and the reverse.
#[test]
fn judgements_are_those_of_the_disassembler() {
    let Some(disassembler) = std::env::var_os("TILEIRDISASM").map(PathBuf::from) else { return };
    let folder = std::env::temp_dir().join("tileas-tileir-vendor");
    std::fs::create_dir_all(&folder).expect("a temporary folder");
    let judge = |line: &str, name: String| {
        let Ok(bytes) = ops::module(line, Version::NEWEST).write(Version::NEWEST) else {
            return (false, String::new());
        };
        let path = folder.join(name);
        std::fs::write(&path, &bytes).expect("writable");
        let output = Command::new(&disassembler).arg(&path).output().expect("TILEIRDISASM can be started");
        (
            output.status.success(),
            String::from_utf8_lossy(&output.stderr).lines().next().unwrap_or_default().to_owned(),
        )
    };
    for (i, line) in ops::lines(ops::GOOD).enumerate() {
        let (ok, text) = judge(line, format!("good{i}.tileirbc"));
        assert!(ok, "{line}: {text}");
    }
    for (i, line) in ops::lines(ops::BAD).enumerate() {
        let (_, line) = line.split_once(' ').expect("a code and a line");
        let (ok, _) = judge(line, format!("bad{i}.tileirbc"));
        assert!(!ok, "{line}");
    }
}
