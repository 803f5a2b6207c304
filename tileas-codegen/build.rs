//! Generates the operation tables, the machine-model enums and the PTX instruction forms from `tileas-meta`.

use std::path::{Path, PathBuf};

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // Siblings are there in the workspace; elsewhere their versions are fixed by ours.
    let folders = ["src", "../tileas-schedule/src", "../tileas-launch/src", "../tileas-meta/src"];
    tileas_meta::note_sources("TILEAS_CODEGEN_SOURCES", &folders);
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    op_tables(&out);
    ptx_tables(&out);
    machine_tables(&out);
}

fn write(path: PathBuf, text: String) {
    std::fs::write(&path, text).unwrap_or_else(|e| panic!("cannot write {}: {e}", path.display()));
}

/// Tile operations: opcodes, symbols, definitions, builder methods.
fn op_tables(out: &Path) {
    write(out.join("opcodes.rs"), tileas_meta::ops_gen::opcodes());
    write(out.join("builder_gen.rs"), tileas_meta::ops_gen::builder());
}

/// PTX instruction forms and their builder methods.
fn ptx_tables(out: &Path) {
    write(out.join("ptx_forms.rs"), tileas_meta::ptx::generate_forms());
    write(out.join("ptx_builder.rs"), tileas_meta::ptx::generate_builder());
}

/// Op classes of the machine model.
fn machine_tables(out: &Path) {
    write(out.join("op_class.rs"), tileas_meta::machine::op_class_enum(tileas_meta::machine::OP_CLASSES));
}
