//! Syntax tree to executable form.
//!
//! In: [`Module`](crate::parse::ast::Module). Out: [`Kernel`]s: instructions as closures over
//! register columns, with what the machine checks around them (guard, registers read and written,
//! collective kind, visibility to other threads).
//! A warp's registers are columns of 32 lanes of 32 bits; a 64-bit register takes two columns, low
//! word first, a 128-bit one four. Predicates are lane masks. Immediates and special registers are
//! columns filled when the warp starts.
//! Guarantee: total; what is not in the instruction tables is an error, never a guess.

pub mod build;
pub mod pattern;
pub mod regs;
pub mod table;

use crate::diag::Diagnostic;
use crate::exec::{Flow, Trap, cx::Cx};
use crate::parse::ast::{self, Space, Stmt};
use crate::stats::Kind;
use regs::{Names, RegFile, Symbol, Symbols};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Number of a 32-bit register column.
pub type Col = u16;
/// Number of a predicate.
pub type PCol = u16;
/// Result of decoding.
pub type R<T> = Result<T, Diagnostic>;
/// An instruction's action on the lanes of a mask.
pub type Exec = Box<dyn Fn(&mut Cx<'_>, u32) -> Result<Flow, Trap> + Send + Sync>;

/// Which lanes must come together before an instruction executes.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Collective {
    /// Each lane alone.
    No,
    /// All lanes of the warp that have not exited, at this instruction.
    Aligned,
    /// The lanes of a member mask, at this instruction.
    Mask(Col),
    /// The lanes of a member mask, at any `bar.warp.sync` with the same mask.
    WarpBarrier(Col),
}

/// A decoded instruction.
pub struct Inst {
    /// Its action.
    pub exec: Exec,
    /// Guard predicate and whether it is negated.
    pub guard: Option<(PCol, bool)>,
    /// Columns read.
    pub reads: Box<[Col]>,
    /// Columns written.
    pub writes: Box<[Col]>,
    /// Predicates read, besides the guard.
    pub preads: Box<[PCol]>,
    /// Predicates written.
    pub pwrites: Box<[PCol]>,
    /// Which lanes must come together.
    pub collective: Collective,
    /// Whether other threads or asynchronous engines can see or influence it.
    pub visible: bool,
    /// Whether the machine passes on that sources are undefined; otherwise the instruction does.
    pub taints: bool,
    /// Target of a branch; the first one of a table.
    pub target: Option<u32>,
    /// Whether the next instruction branches back here while the predicate written is false.
    pub spins: bool,
    /// Whether it lies between a branch and its earlier target.
    pub looped: bool,
    /// Whether lanes that execute it at different times may see different things.
    pub polls: bool,
    /// What it counts as.
    pub kind: Kind,
    /// First and last instruction of the loop that polls: of its one wait, or of its one load or atomic and of the branch back.
    pub turns: Option<(u32, u32)>,
    /// Line in the text.
    pub line: u32,
    /// As written.
    pub text: String,
}

/// A parameter's place in parameter memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Param {
    /// Its name.
    pub name: String,
    /// Byte offset.
    pub offset: u32,
    /// Bytes.
    pub size: u32,
    /// Alignment in bytes.
    pub align: u32,
}

/// A module variable in global or constant memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GlobalVar {
    /// Its name.
    pub name: String,
    /// Address in the module window.
    pub address: u64,
    /// Bytes, initial values first, then zeros.
    pub init: Vec<u8>,
    /// Whether kernels may write it.
    pub writable: bool,
}

/// A decoded kernel.
pub struct Kernel {
    /// Entry name.
    pub name: String,
    /// Instructions.
    pub code: Vec<Inst>,
    /// Parameters.
    pub params: Vec<Param>,
    /// Bytes of parameter memory.
    pub param_bytes: u32,
    /// Registers, constants and special registers.
    pub regs: RegFile,
    /// Bytes of static shared memory from [`SMEM_START`].
    pub static_smem: u32,
    /// Offset of dynamic shared memory.
    pub dynamic_start: u32,
    /// Bytes of local memory per thread.
    pub local_bytes: u32,
    /// Block shape rules.
    pub bounds: ast::Bounds,
    /// Places in the source, as `.loc` says, in order.
    pub locs: Vec<ast::Loc>,
    /// What they call files: number and name.
    pub files: Arc<[(u64, String)]>,
}

impl Kernel {
    /// Where the instruction of a line comes from: `file:line:column`.
    pub fn source(&self, line: u32) -> Option<String> {
        let behind = self.locs.partition_point(|l| l.at <= line);
        // Line 0 is of what has no place in the source.
        let loc = self.locs.get(behind.checked_sub(1)?).filter(|l| l.line > 0)?;
        let file = self.files.iter().find(|f| f.0 == loc.file).map_or("?", |f| f.1.as_str());
        Some(format!("{file}:{}:{}", loc.line, loc.column))
    }
}

impl std::fmt::Debug for Kernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Kernel({}, {} instructions)", self.name, self.code.len())
    }
}

/// A decoded module.
#[derive(Debug)]
pub struct Program {
    /// Kernels in order of the text.
    pub kernels: Vec<Kernel>,
    /// Module variables.
    pub globals: Vec<GlobalVar>,
    /// `.target`.
    pub target: String,
}

/// First byte of a CTA's shared window that programs may use.
pub const SMEM_START: u32 = 0x400;
/// Most bytes of shared memory of a CTA.
pub const SMEM_LIMIT: u32 = 232_448;
/// Generic addresses of parameters.
pub const PARAM_WINDOW: u64 = 0x7D00_0000_0000;
/// Generic addresses of shared memory.
pub const SHARED_WINDOW: u64 = 0x7E00_0000_0000;
/// Offsets in the shared window of the CTAs of a cluster: 2^24 for each rank. Below it lies the CTA's own memory, which
/// has offsets of both kinds.
pub const CLUSTER_WINDOW: u32 = 0x4000_0000;
/// Most CTAs of a cluster. Up to 8 are portable, more a device may refuse.
pub const CLUSTER_LIMIT: u32 = 16;
/// Generic addresses of local memory.
pub const LOCAL_WINDOW: u64 = 0x7C00_0000_0000;
/// Addresses of module variables.
pub const MODULE_WINDOW: u64 = 0x7B00_0000_0000;
/// Most bytes of module variables.
pub const MODULE_LIMIT: u64 = 1 << 28;
/// Most bytes of an entry's parameters.
pub const PARAM_LIMIT: u32 = 32_764;

impl Program {
    /// Reads and checks a module.
    pub fn parse(text: &str) -> Result<Program, Vec<Diagnostic>> {
        let module = crate::parse::parse(text)?;
        let mut errors = Vec::new();
        let mut globals = Vec::new();
        let mut next = MODULE_WINDOW;
        let mut symbols = Symbols::default();
        let mut names = FxHashMap::default();
        for v in &module.vars {
            if names.insert(v.name.clone(), ()).is_some() {
                errors.push(Diagnostic::new("P015", v.at, format!("`{}` is declared twice", v.name)));
            }
            if matches!(v.space, Space::Global | Space::Const) {
                if v.external || v.size == 0 {
                    errors.push(Diagnostic::new("P003", v.at, "external global variables are not supported"));
                }
                let address = next.next_multiple_of(u64::from(v.align.max(16)));
                if v.size > MODULE_LIMIT || address - MODULE_WINDOW > MODULE_LIMIT - v.size {
                    let m = format!("module variables of more than {MODULE_LIMIT} bytes");
                    errors.push(Diagnostic::new("P017", v.at, m));
                    break;
                }
                let mut init = v.init.clone();
                init.resize(v.size as usize, 0);
                globals.push(GlobalVar {
                    name: v.name.clone(),
                    address,
                    init,
                    writable: v.space == Space::Global,
                });
                symbols.insert(v.name.clone(), Symbol { space: v.space, address });
                next = address + v.size;
            }
        }
        let mut kernels = Vec::new();
        let files: Arc<[(u64, String)]> = module.files.as_slice().into();
        for e in &module.entries {
            match kernel(&module, e, &symbols, &files) {
                Ok(k) => kernels.push(k),
                Err(mut x) => errors.append(&mut x),
            }
        }
        if errors.is_empty() { Ok(Program { kernels, globals, target: module.target }) } else { Err(errors) }
    }

    /// A kernel by name, or the only one.
    pub fn kernel(&self, name: Option<&str>) -> Option<&Kernel> {
        match name {
            Some(n) => self.kernels.iter().find(|k| k.name == n),
            None if self.kernels.len() == 1 => self.kernels.first(),
            None => None,
        }
    }
}

/// How far behind a poll a branch may stand that it decides.
const DECIDES: usize = 64;

/// Whether a branch depends on what an instruction has written. `bra.uni` does not count: there the program
/// promises that the lanes agree.
fn decides(code: &[Inst], pc: usize) -> bool {
    let mut regs: Vec<Col> = code[pc].writes.to_vec();
    let mut preds: Vec<PCol> = code[pc].pwrites.to_vec();
    for i in code[pc + 1..].iter().take(DECIDES) {
        let uses = i.guard.is_some_and(|g| preds.contains(&g.0))
            || i.preads.iter().any(|p| preds.contains(p))
            || i.reads.iter().any(|c| regs.contains(c));
        match i.target {
            Some(_) if uses && !i.text.contains(".uni") => return true,
            Some(_) if i.guard.is_none() => return false,
            Some(_) => continue,
            None => {}
        }
        if uses || i.guard.is_none() {
            regs.retain(|c| !i.writes.contains(c));
            preds.retain(|p| !i.pwrites.contains(p));
        }
        if uses {
            regs.extend(&*i.writes);
            preds.extend(&*i.pwrites);
        }
    }
    false
}

/// Marks a loop that does nothing but poll: what others can see in it is one wait, or one load or atomic that decides a
/// branch and finds the same operands in each turn. Of loops around one instruction the smallest counts.
fn mark_polling(code: &mut [Inst], first: usize, last: usize) {
    let mut seen = (first..=last).filter(|&k| code[k].visible || code[k].collective != Collective::No);
    let (Some(at), None) = (seen.next(), seen.next()) else { return };
    let polls = match code[at].kind {
        Kind::Wait => true,
        Kind::Load | Kind::Atomic => {
            let changed = |k: usize| code[k].writes.iter().any(|c| code[at].reads.contains(c));
            code[at].polls && !(first..=last).any(|k| k != at && changed(k))
        }
        _ => false,
    };
    let smaller = code[at].turns.is_none_or(|(a, b)| last - first < (b - a) as usize);
    if !polls || !smaller {
        return;
    }
    let turns = Some((first as u32, last as u32));
    if let Some((_, old)) = code[at].turns {
        code[old as usize].turns = None;
    }
    code[at].turns = turns;
    if code[at].kind != Kind::Wait {
        code[last].turns = turns;
    }
}

fn kernel(
    module: &ast::Module,
    e: &ast::Entry,
    globals: &Symbols,
    files: &Arc<[(u64, String)]>,
) -> Result<Kernel, Vec<Diagnostic>> {
    let mut errors = Vec::new();
    let mut names = Names::default();
    let module_scope = names.open(0);
    for (name, s) in globals {
        names.symbol(module_scope, name, *s);
    }
    let (mut static_end, mut dynamic_align, mut local) = (u64::from(SMEM_START), 16u32, 0u64);
    let mut dynamic = Vec::new();
    // Variables with their scopes; labels come once the instructions are counted.
    let mut vars: Vec<(usize, &ast::Var)> = module.vars.iter().map(|v| (module_scope, v)).collect();
    let body = names.open(module_scope);
    let (mut scope, mut pc, mut label) = (body, 0u32, None);
    for s in &e.body {
        match s {
            Stmt::Open => scope = names.open(scope),
            Stmt::Close => scope = names.parent(scope),
            Stmt::Var(v) => vars.push((scope, v)),
            Stmt::Label(name, at) => {
                if !names.label(scope, name, pc) {
                    errors.push(Diagnostic::new("P015", *at, format!("label `{name}` is defined twice")));
                }
                label = Some((name, pc));
            }
            Stmt::Targets(list, at) => match label.take() {
                Some((name, before)) if before == pc => names.table(scope, name, list),
                _ => errors.push(Diagnostic::new("P002", *at, ".branchtargets needs a label before it")),
            },
            Stmt::Inst(_) => pc += 1,
            Stmt::Reg(_) => {}
        }
    }
    for &(scope, v) in &vars {
        let address = match v.space {
            Space::Shared if v.external || v.size == 0 => {
                dynamic_align = dynamic_align.max(v.align);
                dynamic.push((scope, v));
                continue;
            }
            Space::Shared => {
                let address = static_end.next_multiple_of(u64::from(v.align));
                static_end = address + v.size;
                address
            }
            Space::Local => {
                let address = local.next_multiple_of(u64::from(v.align));
                local = address + v.size;
                address
            }
            Space::Global | Space::Const if scope == module_scope => continue,
            _ => {
                errors.push(Diagnostic::new("P003", v.at, "this state space cannot be declared here"));
                continue;
            }
        };
        if !names.symbol(scope, &v.name, Symbol { space: v.space, address }) && scope != module_scope {
            errors.push(Diagnostic::new("P015", v.at, format!("`{}` is declared twice", v.name)));
        }
    }
    let dynamic_start = static_end.next_multiple_of(u64::from(dynamic_align));
    if dynamic_start > u64::from(SMEM_START + SMEM_LIMIT) || local > 1 << 19 {
        errors.push(Diagnostic::new("P017", e.at, "too much static shared or local memory"));
        return Err(errors);
    }
    let dynamic_start = dynamic_start as u32;
    for (scope, v) in dynamic {
        names.symbol(scope, &v.name, Symbol { space: Space::Shared, address: u64::from(dynamic_start) });
    }
    let (mut params, mut offset) = (Vec::new(), 0u32);
    for p in &e.params {
        if p.size == 0 || p.size > 4096 {
            errors.push(Diagnostic::new(
                "P017",
                p.at,
                format!("parameter `{}` has {} bytes", p.name, p.size),
            ));
            continue;
        }
        let end = u64::from(offset).next_multiple_of(u64::from(p.align)) + p.size;
        if end > u64::from(PARAM_LIMIT) {
            errors.push(Diagnostic::new(
                "P017",
                p.at,
                format!("parameters of more than {PARAM_LIMIT} bytes"),
            ));
            break;
        }
        offset = offset.next_multiple_of(p.align);
        names.symbol(module_scope, &p.name, Symbol { space: Space::Param, address: u64::from(offset) });
        params.push(Param { name: p.name.clone(), offset, size: p.size as u32, align: p.align });
        offset += p.size as u32;
    }

    let mut regs = RegFile::default();
    let mut code = Vec::new();
    // Scopes in the same order as above.
    let (mut scope, mut opened) = (body, body);
    for s in &e.body {
        let result = match s {
            Stmt::Reg(d) => regs.declare(d),
            Stmt::Open => {
                opened += 1;
                scope = opened;
                regs.open();
                Ok(())
            }
            Stmt::Close => {
                scope = names.parent(scope);
                regs.close();
                Ok(())
            }
            Stmt::Inst(i) => build::instruction(i, &mut regs, &names, scope).map(|x| code.push(x)),
            Stmt::Var(_) | Stmt::Label(..) | Stmt::Targets(..) => Ok(()),
        };
        if let Err(x) = result {
            errors.push(x);
            // Every use of registers that there is no room for would be another error.
            if errors.len() >= 100 || matches!(s, Stmt::Reg(_)) {
                break;
            }
        }
    }
    // Falling off the end returns.
    let end = ast::Inst {
        guard: None,
        opcode: "ret".into(),
        operands: Vec::new(),
        at: e
            .body
            .iter()
            .rev()
            .find_map(|s| if let Stmt::Inst(i) = s { Some(i.at) } else { None })
            .unwrap_or(e.at),
        text: "ret".into(),
    };
    match build::instruction(&end, &mut regs, &names, body) {
        Ok(x) => code.push(x),
        Err(x) => errors.push(x),
    }
    if !errors.is_empty() {
        return Err(errors);
    }
    for pc in 0..code.len().saturating_sub(1) {
        let next = &code[pc + 1];
        let back = next.target.map_or(u32::MAX, |t| t) as usize;
        let quiet = back <= pc && code[back..pc].iter().all(|x| !x.visible && x.collective == Collective::No);
        if let Some(t) = code[pc].target {
            let t = t as usize;
            if t <= pc {
                code[t..=pc].iter_mut().for_each(|x| x.looped = true);
            }
        }
        let i = &code[pc];
        code[pc].spins = quiet && i.pwrites.len() == 1 && code[pc + 1].guard == Some((i.pwrites[0], true));
    }
    for pc in 0..code.len() {
        code[pc].polls = code[pc].polls && decides(&code, pc);
    }
    for last in 0..code.len() {
        if let Some(first) = code[last].target.filter(|&t| t as usize <= last) {
            mark_polling(&mut code, first as usize, last);
        }
    }
    Ok(Kernel {
        name: e.name.clone(),
        locs: e.locs.clone(),
        files: files.clone(),
        code,
        params,
        param_bytes: offset,
        regs,
        static_smem: static_end as u32 - SMEM_START,
        dynamic_start,
        local_bytes: local as u32,
        bounds: e.bounds.clone(),
    })
}
