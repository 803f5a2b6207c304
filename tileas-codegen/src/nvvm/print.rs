//! The text form of the thread-level IR: close to PTX, with blocks, register types and attributes visible.
//!
//! Registers print as `%v7`, with their type where they are written (`%v7:b32`); blocks as `bb3`, with their
//! successors. Unlike PTX it shows every branch and works on modules that the verifier refuses.

use super::module::{Bb, Function, Module, ParamKind, Reg, SymKind};
use super::write::{Spelling, Text, push_comment, push_inst};
use std::fmt::Write;

struct Ids;

impl Spelling for Ids {
    fn reg(&self, out: &mut Text, func: &Function, reg: Reg, def: bool) {
        let _ = write!(out, "%{reg}");
        if def && let Some(ty) = func.reg_ty.get(reg) {
            let _ = write!(out, ":{}", ty.as_str());
        }
    }

    fn block(&self, out: &mut Text, bb: Bb) {
        let _ = write!(out, "{bb}");
    }
}

/// Appends the module's text to `out`.
pub fn print(module: &Module, out: &mut String) {
    let mut bytes = Text::default();
    write_module(module, &mut bytes);
    out.push_str(&String::from_utf8_lossy(bytes.as_bytes()));
}

fn write_module(module: &Module, out: &mut Text) {
    let _ = writeln!(out, "target {}", module.target);
    for sym in module.symbols.values() {
        let (name, align) = (&sym.name, sym.align);
        let _ = match sym.kind {
            SymKind::DynamicShared => writeln!(out, "shared @{name} dynamic align {align}"),
            SymKind::Shared { bytes } => writeln!(out, "shared @{name} bytes {bytes} align {align}"),
            SymKind::Global { bytes } => {
                let _ = write!(out, "global @{name} bytes {bytes} align {align}");
                match sym.init.as_slice() {
                    [] => writeln!(out),
                    init => writeln!(out, " init {init:?}"),
                }
            }
        };
    }
    for func in &module.functions {
        out.push(b'\n');
        write_function(module, func, out);
    }
}

/// Appends one function's text to `out`.
pub fn print_function(module: &Module, func: &Function, out: &mut String) {
    let mut bytes = Text::default();
    write_function(module, func, &mut bytes);
    out.push_str(&String::from_utf8_lossy(bytes.as_bytes()));
}

fn write_function(module: &Module, func: &Function, out: &mut Text) {
    let _ = write!(out, "{} @{}(", if func.is_kernel { "kernel" } else { "func" }, func.name);
    for (i, p) in func.params.values().enumerate() {
        if i > 0 {
            out.text(", ");
        }
        let _ = match p.kind {
            ParamKind::TensorMap => write!(out, "{}: tensor_map", p.name),
            ParamKind::Pointer { align } => write!(out, "{}: ptr<global, align {align}>", p.name),
            ParamKind::B8 => write!(out, "{}: b8", p.name),
            ParamKind::B16 => write!(out, "{}: b16", p.name),
            ParamKind::U32 => write!(out, "{}: u32", p.name),
            ParamKind::U64 => write!(out, "{}: u64", p.name),
            ParamKind::F32 => write!(out, "{}: f32", p.name),
        };
    }
    let _ = write!(out, ") linkage {}", format!("{:?}", func.linkage).to_ascii_lowercase());
    let launch = &func.launch;
    for (name, dims) in
        [("reqntid", launch.reqntid), ("maxntid", launch.maxntid), ("cluster", launch.cluster)]
    {
        if let Some([x, y, z]) = dims {
            let _ = write!(out, " {name} [{x}, {y}, {z}]");
        }
    }
    for (name, n) in [("minnctapersm", launch.minnctapersm), ("maxnreg", launch.maxnreg)] {
        if let Some(n) = n {
            let _ = write!(out, " {name} {n}");
        }
    }
    if func.local_bytes > 0 {
        let _ = write!(out, " local {}", func.local_bytes);
    }
    if func.nounroll {
        out.text(" nounroll");
    }
    for text in &func.texts {
        out.text(" text ");
        let mut quoted = String::new();
        crate::ir::lexer::escape_into(&mut quoted, text);
        out.text(&quoted);
    }
    out.text(" {\n");
    for &bb in func.layout() {
        let data = &func.blocks[bb];
        let _ = write!(out, "{bb}");
        if let Some(name) = &data.name {
            out.text(" \"");
            push_comment(out, name);
            out.push(b'"');
        }
        if data.nounroll {
            out.text(" nounroll");
        }
        if data.agent {
            out.text(" agent");
        }
        out.push(b':');
        let mut sep = " ; -> ";
        for s in func.successors(bb).into_iter().flatten() {
            let _ = write!(out, "{sep}{s}");
            sep = ", ";
        }
        out.push(b'\n');
        for inst in func.insts(bb) {
            push_inst(out, module, func, &Ids, inst);
            for (_, text) in func.comments.iter().filter(|(i, _)| *i == inst) {
                out.text(" ; ");
                push_comment(out, text);
            }
            out.push(b'\n');
        }
    }
    out.text("}\n");
}
