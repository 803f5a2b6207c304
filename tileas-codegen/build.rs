//! Build script: enums and tables generated from `tileas-meta`.
fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let out = std::path::PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let write = |name: &str, text: String| std::fs::write(out.join(name), text).expect("write to OUT_DIR");
    write("op_class.rs", tileas_meta::machine::op_class_enum(tileas_meta::machine::OP_CLASSES));
}
