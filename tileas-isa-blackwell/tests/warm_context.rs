//! A context keeps memory between compilations and nothing else: bytes do not depend on what it did before, and a
//! second compilation allocates less than the first.

#![expect(unsafe_code, reason = "a counting allocator has to implement the allocator interface")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tileas_codegen::ir::Module;
use tileas_codegen::{Context, Settings};

thread_local! {
    /// Calls and bytes asked for by this thread.
    static COUNT: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
}

struct Counting;

fn count(bytes: usize) {
    let _ = COUNT.try_with(|c| c.set((c.get().0 + 1, c.get().1 + bytes as u64)));
}

// SAFETY: every call is handed to the system allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size.saturating_sub(layout.size()));
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(name: &str) -> String {
    std::fs::read_to_string(root().join(name)).expect("a readable file")
}

/// Calls of the allocator and bytes asked for while `f` runs.
fn counted<T>(f: impl FnOnce() -> T) -> (T, u64, u64) {
    let before = COUNT.get();
    let out = f();
    let after = COUNT.get();
    (out, after.0 - before.0, after.1 - before.1)
}

/// PTX and launch metadata, or all errors and warnings as text.
fn compile(context: &mut Context, module: &Module, settings: &Settings) -> Result<(String, String), String> {
    let isa = tileas_isa_blackwell::isa_for_cpu(settings.target().as_deref().unwrap_or("sm_100a"))
        .map_err(|e| e.to_string())?;
    let compiled = context.compile(module, &*isa, settings).map_err(|e| format!("{e:?}"))?;
    Ok((compiled.ptx().to_string(), compiled.metadata_json()))
}

#[test]
fn a_second_compilation_allocates_less_and_gives_the_same_bytes() {
    // Measured: 489 calls of the first, 0.27 of the bytes. Functions, scratch of the later stages and the text are
    // in kept memory; plans, schedules, channels and the results are made anew, in many small pieces.
    for (name, most_calls) in [("examples/gemm_f16.tileas", 550), ("examples/gemm_persistent.tileas", 650)] {
        let (settings, isa) =
            (Settings::default(), tileas_isa_blackwell::isa_for_cpu("sm_100a").expect("a target"));
        let mut context = Context::new();
        let module = context.parse(&read(name), &settings).expect("parses");
        let mut once = || counted(|| context.compile(&module, &*isa, &settings).expect("compiles"));
        let (first, cold_calls, cold_bytes) = once();
        let (second, _, _) = once();
        let (third, calls, bytes) = once();
        for other in [&second, &third] {
            assert_eq!(first.ptx(), other.ptx(), "{name}");
            assert_eq!(first.metadata_json(), other.metadata_json(), "{name}");
        }
        println!("{name}: {cold_calls} calls, {cold_bytes} bytes cold; {calls} calls, {bytes} bytes warm");
        assert!(3 * bytes <= cold_bytes, "{name}: {bytes} bytes warm, {cold_bytes} cold");
        assert!(calls < cold_calls && calls <= most_calls, "{name}: {calls} calls warm, {cold_calls} cold");
    }
}

fn sources(dir: &Path, out: &mut BTreeMap<PathBuf, String>) {
    for entry in std::fs::read_dir(dir).expect("a readable folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, out);
        } else if path.extension().is_some_and(|e| e == "tileas") {
            // Files that are no UTF-8 are tests of the reader.
            if let Ok(text) = std::fs::read_to_string(&path) {
                out.insert(path, text);
            }
        }
    }
}

#[test]
fn bytes_do_not_depend_on_what_a_context_compiled_before() {
    let mut files = BTreeMap::new();
    for dir in ["examples", "filetests/filetests"] {
        sources(&root().join(dir), &mut files);
    }
    let settings = Settings::default();
    let mut context = Context::new();
    let modules: Vec<(PathBuf, Module)> = files
        .into_iter()
        .filter_map(|(path, text)| context.parse(&text, &settings).ok().map(|m| (path, m)))
        .collect();
    let forward: Vec<_> = modules.iter().map(|(_, m)| compile(&mut context, m, &settings)).collect();
    let mut backward: Vec<_> =
        modules.iter().rev().map(|(_, m)| compile(&mut context, m, &settings)).collect();
    backward.reverse();
    let compiled = forward.iter().filter(|r| r.is_ok()).count();
    assert!(compiled >= 20, "only {compiled} of {} modules compile", modules.len());
    for (((path, module), a), b) in modules.iter().zip(&forward).zip(&backward) {
        assert!(a == b, "{}: the order of compilation shows", path.display());
        assert!(
            *a == compile(&mut Context::new(), module, &settings),
            "{}: a fresh context differs",
            path.display()
        );
    }
}
