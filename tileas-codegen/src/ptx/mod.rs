//! PTX text.
//!
//! In: a verified [`Module`]. Out: text appended to one `String`, and [`PtxInfo`]: the `.version` chosen (the lowest
//! that has the target and every form used) and per-function counts. Registers are renumbered densely per type in
//! order of creation, labels by layout position; a `bra` to the next block is left out and a conditional branch over
//! one is inverted. Deterministic: same module, same bytes.
//!
//! Cost: one pass to number registers, one to write; nothing is allocated per instruction. Source: PTX ISA manual,
//! Directives; `ptx_forms` tests assemble every form with ptxas.

mod usual;

use crate::nvvm::write::{Spelling, Text, push_comment, push_inst, push_u32};
use crate::nvvm::{
    Bb, Function, Guard, Linkage, Module, Operand, ParamKind, PtxOp, Reg, RegTy, SymKind, Verified,
};
use crate::nvvm::{LOCAL_AREA, Liveness, TEXTS};
use cranelift_entity::{EntityRef, EntitySet, SecondaryMap};
use std::fmt::Write;

/// How to print.
#[derive(Copy, Clone, Debug)]
pub struct PtxOptions {
    /// Print the comments of instructions and the names of blocks.
    pub comments: bool,
    /// Least `.version` to state even when a lower one would do.
    pub min_version: (u8, u8),
}

impl Default for PtxOptions {
    fn default() -> Self {
        PtxOptions { comments: true, min_version: (0, 0) }
    }
}

/// Lines of the source, for `.loc`.
#[derive(Clone, Debug, Default)]
pub struct Lines {
    /// Names of files.
    pub files: Vec<String>,
    /// By number of an op: file (an index), line and column (from 1).
    pub places: Vec<Option<Place>>,
}

/// File, line and column.
pub type Place = (u32, u32, u32);

/// What was emitted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PtxInfo {
    /// The `.version` of the text.
    pub version: (u8, u8),
    /// One entry per function, in order.
    pub functions: Vec<FunctionInfo>,
}

/// Counts of one emitted function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionInfo {
    /// Symbol name.
    pub name: String,
    /// Declared virtual registers: pred, b16, b32, b64, f32.
    pub registers: [u32; 5],
    /// Instructions printed.
    pub instructions: u32,
}

/// The emitter with its scratch memory; reuse one per thread.
#[derive(Default)]
pub struct PtxEmitter {
    names: Names,
    targets: EntitySet<Bb>,
    /// Numbers of the comments, by instruction.
    comment_order: Vec<u32>,
    /// By instruction: where its comments start in `comment_order`, plus 1; 0 = it has none.
    comment_at: Vec<u32>,
    body: Text,
}

#[derive(Default)]
struct Names {
    /// By register; of unused ones, anything. Registers are printed several times, so their names are spelled once.
    names: Vec<Name>,
    /// By register, whether something writes it, where that was not known.
    written: Vec<u32>,
    label: SecondaryMap<Bb, u32>,
}

/// A register's name with a comma behind, and in the last byte its length without that: a fixed size, so that copying it takes
/// no call. The prefix, ten digits, the comma and a space fit.
#[derive(Copy, Clone, Default)]
struct Name([u8; 16]);

impl Name {
    /// The first name of a type.
    fn first(ty: RegTy) -> Name {
        let mut name = Name::default();
        let prefix = prefix(ty).as_bytes();
        name.0[..prefix.len()].copy_from_slice(prefix);
        name.0[prefix.len()] = b'0';
        name.end(prefix.len() + 1);
        name
    }

    /// Length without the comma.
    #[inline]
    fn len(&self) -> usize {
        usize::from(self.0[15])
    }

    fn end(&mut self, len: usize) {
        self.0[len..len + 2].copy_from_slice(b", ");
        self.0[15] = len as u8;
    }

    /// Counts the number behind the prefix up by one.
    #[inline]
    fn count_up(&mut self) {
        let mut at = self.len() - 1;
        loop {
            match self.0[at] {
                b'0'..=b'8' => {
                    self.0[at] += 1;
                    return;
                }
                b'9' => self.0[at] = b'0',
                _ => break, // the prefix: 99 has become 00, and is to be 100
            }
            at -= 1;
        }
        self.0[at + 1] = b'1';
        let len = self.len();
        self.0[len] = b'0';
        self.end(len + 1);
    }
}

impl Spelling for Names {
    #[inline]
    fn reg(&self, out: &mut Text, _func: &Function, reg: Reg, _def: bool) {
        let name = &self.names[reg.index()];
        out.fixed(&name.0, name.len());
    }

    #[inline]
    fn reg_comma(&self, out: &mut Text, _func: &Function, reg: Reg, _def: bool) {
        let name = &self.names[reg.index()];
        out.fixed(&name.0, name.len() + 2);
    }

    #[inline]
    fn block(&self, out: &mut Text, bb: Bb) {
        out.text("$L");
        push_u32(out, self.label[bb]);
    }
}

fn prefix(ty: RegTy) -> &'static str {
    match ty {
        RegTy::Pred => "%p",
        RegTy::B16 => "%h",
        RegTy::B32 => "%r",
        RegTy::B64 => "%rd",
        RegTy::F32 => "%f",
    }
}

/// Bytes of a variable.
struct List<'a>(&'a [u8]);

impl std::fmt::Display for List<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().enumerate().try_for_each(|(i, b)| write!(f, "{}{b}", if i > 0 { ", " } else { "" }))
    }
}

/// Texts of functions, and the functions of the driver that take them.
fn texts(module: &Module, out: &mut String) {
    if module.functions.iter().all(|f| f.texts.is_empty()) {
        return;
    }
    out.push_str("\n.extern .func (.param .b32 printed) vprintf (.param .b64 format, .param .b64 values);");
    out.push_str("\n.extern .func __assertfail (.param .b64 message, .param .b64 file, .param .b32 line, .param .b64 function, .param .b64 size);");
    for func in &module.functions {
        for (n, text) in func.texts.iter().enumerate() {
            let (name, bytes) = (&func.name, text.len() + 1);
            let (from, bytes) = (List(text.as_bytes()), bytes);
            let more = if text.is_empty() { "" } else { ", " };
            let _ = write!(out, "\n.global .align 1 .b8 {name}{TEXTS}{n}[{bytes}] = {{{from}{more}0}};");
        }
    }
}

/// Says where what follows comes from, if that has not been said last.
fn line(out: &mut Text, lines: &Lines, number: u32, said: &mut Option<Place>) {
    let place = number.checked_sub(1).and_then(|n| *lines.places.get(n as usize)?);
    let Some((file, line, column)) = place.filter(|_| place != *said) else { return };
    *said = place;
    out.text("    .loc ");
    for (n, end) in [(file + 1, b' '), (line, b' '), (column, b'\n')] {
        push_u32(out, n);
        out.push(end);
    }
}

impl PtxEmitter {
    /// Forgets the last function, keeps the allocations.
    pub fn clear(&mut self) {
        let Self { names: Names { names: _, written, label }, targets, comment_order, comment_at, body } =
            self;
        body.clear();
        written.clear();
        label.clear();
        comment_at.clear();
        targets.clear();
        comment_order.clear();
    }

    /// Appends the module's PTX to `out`.
    pub fn emit(&mut self, module: Verified<'_>, options: &PtxOptions, out: &mut String) -> PtxInfo {
        self.emit_knowing(module, None, None, options, out)
    }

    /// As [`PtxEmitter::emit`]; `liveness`, if given, is that of the module's only function as it is now.
    pub(crate) fn emit_knowing(
        &mut self,
        module: Verified<'_>,
        liveness: Option<&Liveness>,
        lines: Option<&Lines>,
        options: &PtxOptions,
        out: &mut String,
    ) -> PtxInfo {
        let version = module.version().max(options.min_version);
        let module = module.module();
        let _ = write!(
            out,
            "// Generated by tileas {}\n.version {}.{}\n.target {}\n.address_size 64\n",
            env!("CARGO_PKG_VERSION"),
            version.0,
            version.1,
            module.target
        );
        for (n, file) in (1..).zip(lines.iter().flat_map(|l| &l.files)) {
            // The assembler reads ASCII alone.
            let plain = |c| match c {
                '\\' => '/',
                ' '..='~' if c != '"' => c,
                _ => '_',
            };
            let name: String = file.chars().map(plain).collect();
            let _ = write!(out, "\n.file {n} \"{name}\"");
        }
        if lines.is_some_and(|l| !l.files.is_empty()) {
            out.push('\n');
        }
        for sym in module.symbols.values() {
            let (align, name) = (sym.align, &sym.name);
            let _ = match sym.kind {
                SymKind::DynamicShared => write!(out, "\n.extern .shared .align {align} .b8 {name}[];"),
                SymKind::Shared { bytes } => write!(out, "\n.shared .align {align} .b8 {name}[{bytes}];"),
                // Seen from outside, as the host asks for it by name.
                SymKind::Global { bytes } => {
                    let _ = write!(out, "\n.visible .global .align {align} .b8 {name}[{bytes}]");
                    match sym.init.as_slice() {
                        [] => write!(out, ";"),
                        init => write!(out, " = {{{}}};", List(init)),
                    }
                }
            };
        }
        texts(module, out);
        if !module.symbols.is_empty() {
            out.push('\n');
        }
        let known = liveness.filter(|_| module.functions.len() == 1);
        let functions =
            module.functions.iter().map(|f| self.function(module, f, known, lines, options, out)).collect();
        PtxInfo { version, functions }
    }

    fn function(
        &mut self,
        module: &Module,
        func: &Function,
        liveness: Option<&Liveness>,
        lines: Option<&Lines>,
        options: &PtxOptions,
        out: &mut String,
    ) -> FunctionInfo {
        self.clear();
        let registers = self.number(func, liveness);
        let comments = options.comments && !func.comments.is_empty();
        if comments {
            self.comment_order.extend(0..func.comments.len() as u32);
            self.comment_order.sort_unstable_by_key(|&i| (func.comments[i as usize].0, i));
            self.comment_at.resize(func.num_insts(), 0);
            for (at, &i) in self.comment_order.iter().enumerate().rev() {
                self.comment_at[func.comments[i as usize].0.index()] = at as u32 + 1;
            }
        }
        let mut body = std::mem::take(&mut self.body);
        let out_text = out;
        let out = &mut body;
        let mut instructions = 0;
        let mut said = None;
        for (position, &bb) in func.layout().iter().enumerate() {
            let next = func.layout().get(position + 1).copied();
            let data = &func.blocks[bb];
            if self.targets.contains(bb) {
                self.names.block(out, bb);
                out.push(b':');
                if let (true, Some(name)) = (options.comments, &data.name) {
                    out.text(" // ");
                    push_comment(out, name);
                }
                out.push(b'\n');
            } else if let (true, Some(name)) = (options.comments, &data.name) {
                out.text("    // ");
                push_comment(out, name);
                out.push(b'\n');
            }
            if data.nounroll {
                out.text("    .pragma \"nounroll\";\n");
            }
            let mut next_inst = func.first_inst(bb);
            while let Some(inst) = next_inst {
                next_inst = func.next_inst(inst);
                let how = if func.op(inst).is_branch() { branch(func, bb, inst, next) } else { Branch::AsIs };
                let commented = comments && self.comment_at[inst.index()] != 0;
                match how {
                    Branch::Skip => continue,
                    Branch::Inverted { guard, target } => {
                        out.text("    ");
                        if let Some((p, negated)) = guard.get() {
                            out.text(if negated { "@!" } else { "@" });
                            self.names.reg(out, func, p, false);
                            out.push(b' ');
                        }
                        out.text("bra ");
                        self.names.block(out, target);
                    }
                    Branch::AsIs => {
                        if let Some(lines) = lines {
                            line(out, lines, func.of_op[inst], &mut said);
                        }
                        if !commented && usual::push(out, func, &self.names, func.look(inst)) {
                            instructions += 1;
                            continue;
                        }
                        push_inst(out, module, func, &self.names, inst);
                    }
                }
                instructions += 1;
                let at = if commented { self.comment_at[inst.index()] as usize } else { 0 };
                if at == 0 {
                    out.text(";\n");
                    continue;
                }
                out.push(b';');
                for &i in &self.comment_order[at - 1..] {
                    let (of, text) = &func.comments[i as usize];
                    if *of != inst {
                        break;
                    }
                    out.text(" // ");
                    push_comment(out, text);
                }
                out.push(b'\n');
            }
        }
        out.text("}\n");
        // Room for all of it at once; a header is rarely longer.
        out_text.reserve(out.as_bytes().len() + 1024);
        header(func, registers, out_text);
        match std::str::from_utf8(out.as_bytes()) {
            Ok(text) => out_text.push_str(text),
            // Unreachable while names are identifiers and comments ASCII, as the verifier and `push_comment` see to.
            Err(_) => out_text.push_str(&String::from_utf8_lossy(out.as_bytes())),
        }
        self.body = body;
        FunctionInfo { name: func.name.clone(), registers, instructions }
    }

    /// Numbers used registers and labels; returns the counts per type.
    fn number(&mut self, func: &Function, liveness: Option<&Liveness>) -> [u32; 5] {
        let Self { names: Names { names, written, label }, targets, .. } = self;
        label.resize(func.blocks.len());
        for (position, &bb) in func.layout().iter().enumerate() {
            label[bb] = position as u32;
            let next = func.layout().get(position + 1).copied();
            // Branches stand at the end of a block.
            let mut at = func.last_inst(bb);
            while let Some(inst) = at.filter(|&inst| func.op(inst).is_branch()) {
                at = func.prev_inst(inst);
                match (branch(func, bb, inst, next), func.operands(inst)) {
                    (Branch::Skip, _) => {}
                    (Branch::Inverted { target, .. }, _) | (Branch::AsIs, &[Operand::Block(target)]) => {
                        targets.insert(target);
                    }
                    (Branch::AsIs, _) => {}
                }
            }
        }
        // The verifier has seen that no register is read that nothing writes.
        let written = match liveness {
            Some(liveness) => liveness.written(),
            None => {
                written.resize(func.num_regs(), 0);
                for inst in func.layout().iter().flat_map(|&bb| func.insts(bb)) {
                    func.visit_writes(inst, |r| written[r.index()] = 1);
                }
                written
            }
        };
        if names.len() < written.len() {
            names.resize(written.len(), Name::default());
        }
        let mut counts = [0; 5];
        let mut unused = RegTy::ALL.map(Name::first);
        for ((name, &written), &ty) in names.iter_mut().zip(written).zip(func.reg_ty.values()) {
            if written != 0 {
                let next = &mut unused[ty as usize];
                *name = *next;
                next.count_up();
                counts[ty as usize] += 1;
            }
        }
        counts
    }
}

enum Branch {
    /// Not printed: the target is next, or the pair was inverted.
    Skip,
    /// The guarded branch and the final one together.
    Inverted {
        guard: Guard,
        target: Bb,
    },
    AsIs,
}

/// How a branch is printed when `next` follows the block.
fn branch(func: &Function, bb: Bb, inst: crate::nvvm::Inst, next: Option<Bb>) -> Branch {
    let [then, last] = func.successors(bb);
    if !func.guard(inst).is_some() {
        // The final branch: falls through, or was taken over by the inverted one before it.
        let inverted = then.is_some() && then == next && last != next;
        return if last == next || inverted { Branch::Skip } else { Branch::AsIs };
    }
    match (then, last) {
        (Some(t), Some(l)) if t == l && Some(t) == next => Branch::Skip,
        (Some(t), Some(l)) if Some(t) == next && t != l && func.op(inst) == PtxOp::Bra => {
            match func.guard(inst).get() {
                Some((p, negated)) => Branch::Inverted { guard: Guard::new(p, !negated), target: l },
                None => Branch::AsIs,
            }
        }
        _ => Branch::AsIs,
    }
}

fn header(func: &Function, registers: [u32; 5], out: &mut String) {
    out.push('\n');
    out.push_str(match func.linkage {
        Linkage::Visible => ".visible ",
        Linkage::Weak => ".weak ",
        Linkage::Local => "",
    });
    out.push_str(if func.is_kernel { ".entry " } else { ".func " });
    out.push_str(&func.name);
    out.push('(');
    for (i, param) in func.params.values().enumerate() {
        out.push_str(if i == 0 { "\n    " } else { ",\n    " });
        let name = &param.name;
        let _ = match param.kind {
            ParamKind::TensorMap => write!(out, ".param .align 64 .b8 {name}[128]"),
            ParamKind::Pointer { align: 0 } => write!(out, ".param .u64 {name}"),
            ParamKind::Pointer { align } => write!(out, ".param .u64 .ptr .global .align {align} {name}"),
            ParamKind::B8 => write!(out, ".param .b8 {name}"),
            ParamKind::B16 => write!(out, ".param .b16 {name}"),
            ParamKind::U32 => write!(out, ".param .u32 {name}"),
            ParamKind::U64 => write!(out, ".param .u64 {name}"),
            ParamKind::F32 => write!(out, ".param .f32 {name}"),
        };
    }
    out.push_str(if func.params.is_empty() { ")\n" } else { "\n)\n" });
    let launch = &func.launch;
    for (name, dims) in
        [(".reqntid", launch.reqntid), (".maxntid", launch.maxntid), (".reqnctapercluster", launch.cluster)]
    {
        if let Some([x, y, z]) = dims {
            let _ = writeln!(out, "{name} {x}, {y}, {z}");
        }
    }
    for (name, value) in [(".minnctapersm", launch.minnctapersm), (".maxnreg", launch.maxnreg)] {
        if let Some(n) = value {
            let _ = writeln!(out, "{name} {n}");
        }
    }
    if func.nounroll {
        out.push_str(".pragma \"nounroll\";\n");
    }
    out.push_str("{\n");
    for (ty, count) in RegTy::ALL.into_iter().zip(registers) {
        if count > 0 {
            let _ = writeln!(out, "    .reg .{} {}<{count}>;", ty.as_str(), prefix(ty));
        }
    }
    if func.local_bytes > 0 {
        let _ = writeln!(out, "    .local .align 16 .b8 {LOCAL_AREA}[{}];", func.local_bytes);
    }
    out.push('\n');
}
