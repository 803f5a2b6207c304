//! The kernels of the file tests as a corpus: everything below `kernels` and `execute`, with its options.

use std::path::Path;
use tileas_codegen::isa::SharedIsa;
use tileas_codegen::{Context, Settings, Stage, nvvm};

/// One file of the corpus.
pub struct Kernel {
    /// `kernels/gemm_f16`.
    pub name: String,
    /// Its text.
    pub text: String,
}

/// All of them, by name.
pub fn kernels() -> Vec<Kernel> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../filetests/filetests");
    let mut all = Vec::new();
    for folder in ["execute", "kernels"] {
        let files = std::fs::read_dir(root.join(folder)).unwrap_or_else(|e| panic!("{folder}: {e}"));
        for file in files {
            let path = file.expect("a readable folder").path();
            let Some(stem) = path.file_stem().and_then(|s| s.to_str()) else { continue };
            let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            // Files about errors are not part of the corpus.
            if path.extension().is_some_and(|e| e == "tileas") && !text.contains("error: E") {
                all.push(Kernel { name: format!("{folder}/{stem}"), text });
            }
        }
    }
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

impl Kernel {
    /// Options of the file on top of others, and its target.
    pub fn settings(&self, base: &Settings) -> Settings {
        let mut builder = base.to_builder();
        let header = self.text.lines().take_while(|l| l.trim_start().starts_with(';') || l.trim().is_empty());
        for line in header {
            let line = line.trim_start_matches(|c: char| c == ';' || c.is_whitespace());
            if let Some(pair) = line.strip_prefix("set ") {
                builder.set_pair(pair).unwrap_or_else(|e| panic!("{}: {e}", self.name));
            } else if let Some(cpu) = line.strip_prefix("target ") {
                builder.set("target", cpu.trim()).unwrap_or_else(|e| panic!("{}: {e}", self.name));
            }
        }
        builder.finish()
    }

    /// The target the options name.
    pub fn isa(&self, settings: &Settings) -> SharedIsa {
        tileas_isa::isa_for(&tileas_codegen::ir::Module::new(), settings).expect("a known target")
    }

    /// The thread-level modules, one per kernel of the file.
    pub fn lower(&self, context: &mut Context, base: &Settings) -> Vec<nvvm::Module> {
        let settings = self.settings(base);
        let module = context.parse(&self.text, &settings).unwrap_or_else(|e| panic!("{}: {e}", self.name));
        let run = context
            .run_to(Stage::Ptx, &module, &*self.isa(&settings), &settings)
            .unwrap_or_else(|e| panic!("{}: {e:?}", self.name));
        run.kernels.into_iter().filter_map(|k| k.nvvm).collect()
    }
}
