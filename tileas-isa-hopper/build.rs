//! Build script: the tables of the machine model, generated from the rows in `tileas-meta`.
//!
//! The generated file is `$OUT_DIR/tables.rs`; each line ends with the name of its row and its source.
fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    tileas_meta::note_sources("TILEAS_ISA_SOURCES", &["src", "../tileas-meta/src"]);
    let out = std::path::PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let text = tileas_meta::machine::machine_statics(&tileas_meta::hopper::ROWS);
    std::fs::write(out.join("tables.rs"), text).expect("write to OUT_DIR");
}
