//! Runs `*.tileas` files as tests: text in, text out.
//!
//! A file begins with comment lines that say what to do and what to expect (see [`header`]); the rest is a module.
//! [`run_file`] runs one of its commands ([`TestKind`]); [`collect`] finds the files. The harness in
//! `tests/filetests.rs` makes every command of every file a named test. `TILEAS_BLESS=1` rewrites precise
//! expectations in place; read that diff as code.
//!
//! Checks: error expectations (code, text and line, nothing else reported), `filecheck` directives, precise output,
//! and what a command itself demands (a round trip, equal bytes on a second run, ptxas without errors or spills,
//! results of the emulator).

#![deny(missing_docs)]
#![forbid(unsafe_code)]

pub mod cutile;
pub mod device;
pub mod errors;
pub mod execute;
pub mod external;
pub mod figures;
pub mod header;
pub mod nvvm;
pub mod output;
pub mod run;

pub use header::{Header, NvvmPass, TestKind};
pub use run::run_file;

use anyhow::{Context, Result};
use std::path::{Path, PathBuf};

/// The folder with the test files.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("filetests")
}

/// One command of one file.
#[derive(Clone, Debug)]
pub struct Case {
    /// Name: path below the root without extension, then the command.
    pub name: String,
    /// The file.
    pub path: PathBuf,
    /// Position of the command in the file.
    pub index: usize,
    /// The command.
    pub kind: TestKind,
}

/// All commands of all files below `root`, by name.
///
/// # Errors
/// Unreadable folders and files, and headers that make no sense.
pub fn collect(root: &Path) -> Result<Vec<Case>> {
    let mut files = Vec::new();
    walk(root, &mut files)?;
    files.sort();
    let mut cases = Vec::new();
    for path in files {
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let header = Header::parse(&text).with_context(|| path.display().to_string())?;
        let stem = path.strip_prefix(root).unwrap_or(&path).with_extension("");
        for (index, &kind) in header.tests.iter().enumerate() {
            let name = format!("{}::{}", stem.display().to_string().replace('\\', "/"), kind.name());
            cases.push(Case { name, path: path.clone(), index, kind });
        }
    }
    Ok(cases)
}

fn walk(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in std::fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            walk(&path, files)?;
        } else if path.extension().is_some_and(|e| e == "tileas") {
            files.push(path);
        }
    }
    Ok(())
}
