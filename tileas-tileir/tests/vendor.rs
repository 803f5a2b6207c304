//! Comparison with NVIDIA's disassembler: the same operations in the same nesting.
//!
//! `TILEIRDISASM` names it; without it nothing is compared, unless `TILEAS_REQUIRE_TILEIR` is set. `TILEIR_FILES` may name a
//! folder with further files.

use crate::common::{self, ops};

use std::path::{Path, PathBuf};
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

/// A file that is gone with this.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        Scratch(std::env::temp_dir().join(format!("tileas-{}-{name}.tileirbc", std::process::id())))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Compares a file, and what it is in all versions that can express it.
fn compare(disassembler: &Path, name: &str, bytes: &[u8]) {
    let module: Module = common::read(bytes);
    let mut have = Vec::new();
    module.functions().for_each(|f| ours(f, Region::BODY, 1, &mut have));
    let scratch = Scratch::new("compared");
    let path = &scratch.0;
    for version in Version::all() {
        let Ok(written) = module.write(version) else { continue };
        assert!(version != module.version || written == bytes, "{name} is written otherwise");
        std::fs::write(path, &written).expect("writable");
        let output = Command::new(disassembler).arg(path).output().expect("TILEIRDISASM can be started");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{name} as {version}: {text}");
        let want = theirs(&String::from_utf8_lossy(&output.stdout));
        if have != want {
            let at = have.iter().zip(&want).position(|(a, b)| a != b).unwrap_or(have.len().min(want.len()));
            panic!("{name} as {version}: op {at} is {:?}, there {:?}", have.get(at), want.get(at));
        }
    }
}

#[test]
fn ops_are_those_of_the_disassembler() {
    let Some(disassembler) = std::env::var_os("TILEIRDISASM").map(PathBuf::from) else {
        assert!(std::env::var_os("TILEAS_REQUIRE_TILEIR").is_none(), "TILEIRDISASM is not set");
        return;
    };
    for (name, bytes) in common::FILES {
        compare(&disassembler, name, bytes);
    }
    let Some(more) = std::env::var_os("TILEIR_FILES") else { return };
    let mut n = 0;
    for entry in std::fs::read_dir(more).expect("TILEIR_FILES is a folder").flatten() {
        if entry.path().extension().is_some_and(|e| e == "tileirbc") {
            let bytes = std::fs::read(entry.path()).expect("readable");
            let name = entry.path().display().to_string();
            common::read(&bytes).verify().unwrap_or_else(|e| panic!("{name}: {e}"));
            compare(&disassembler, &name, &bytes);
            n += 1;
        }
    }
    println!("{n} further files compared");
}

/// What we accept the disassembler, which verifies, accepts as well; and the reverse.
#[test]
fn judgements_are_those_of_the_disassembler() {
    let Some(disassembler) = std::env::var_os("TILEIRDISASM").map(PathBuf::from) else { return };
    let scratch = Scratch::new("judged");
    let judge = |line: &str, version: Version| {
        let module = ops::module(line, Version::NEWEST);
        let bytes = module.write(version).ok()?;
        std::fs::write(&scratch.0, &bytes).expect("writable");
        let output =
            Command::new(&disassembler).arg(&scratch.0).output().expect("TILEIRDISASM can be started");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        Some((output.status.success(), text))
    };
    for line in ops::lines(ops::GOOD) {
        for version in Version::all() {
            let (ok, text) = judge(line, version).unwrap_or_default();
            assert!(ok || text.is_empty(), "{line} in {version}: {text}");
        }
    }
    for line in ops::lines(include_str!("common/bad.txt")) {
        let (_, line) = line.split_once(' ').expect("a code and a line");
        let (ok, _) = judge(line, Version::NEWEST).unwrap_or_default();
        assert!(!ok, "{line}");
    }
}
