//! Build script: turns the rows of `tileas-meta` into Rust.
use std::path::{Path, PathBuf};

/// PTX instruction forms and their builder methods.
fn ptx_tables(out_dir: &Path) {
    std::fs::write(out_dir.join("ptx_forms.rs"), tileas_meta::ptx::generate_forms()).unwrap();
    std::fs::write(out_dir.join("ptx_builder.rs"), tileas_meta::ptx::generate_builder()).unwrap();
}

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let out_dir = PathBuf::from(std::env::var_os("OUT_DIR").unwrap());
    ptx_tables(&out_dir);
}
