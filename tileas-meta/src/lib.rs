//! Definitions behind the compiler, as data, and the generators that build scripts call.

#![deny(missing_docs)]
#![forbid(unsafe_code)]

pub mod blackwell;
pub mod hopper;
pub mod machine;
pub mod ops;
pub mod ops_gen;
pub mod ptx;
pub mod tileir;

/// For build scripts: sets the variable `name` of the crate that is being built to a hash of all files in `folders`, which are relative
/// to the crate; those that are not there count as empty.
pub fn note_sources(name: &str, folders: &[&str]) {
    // FNV-1a, 64 bits, over names and contents in name order.
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut add = |bytes: &[u8]| {
        for &byte in bytes {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
    };
    let mut open: Vec<std::path::PathBuf> = folders.iter().rev().map(Into::into).collect();
    // Cargo takes one that is not there for one that has always just changed.
    for folder in folders.iter().filter(|f| std::path::Path::new(f).exists()) {
        println!("cargo:rerun-if-changed={folder}");
    }
    while let Some(path) = open.pop() {
        add(path.to_string_lossy().as_bytes());
        if let Ok(entries) = std::fs::read_dir(&path) {
            let mut inside: Vec<_> = entries.flatten().map(|e| e.path()).collect();
            inside.sort_by(|a, b| b.cmp(a));
            open.extend(inside);
        } else if let Ok(text) = std::fs::read(&path) {
            add(&text);
        }
    }
    println!("cargo:rustc-env={name}={hash:016x}");
}
