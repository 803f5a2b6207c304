//! Every row of the PTX form table is assembled by ptxas, on every target it names, at the `.version` it names.
//!
//! `PTXAS` names the assembler; without it the tests that need one do nothing, unless `TILEAS_REQUIRE_PTXAS` is set,
//! in which case they fail. Each form is used with registers, with immediates and offsets, and with f32 registers.

use std::path::{Path, PathBuf};
use std::process::Command;
use tileas_codegen::nvvm::{
    AddressSpace, FuncBuilder, Function, Kind, Module, Operand, OperandClass, Param, ParamKind, PtxOp, RegTy,
    Special, Sym, Target, Ty,
};
use tileas_codegen::testing::nvvm::verify;
use tileas_codegen::testing::ptx::{PtxEmitter, PtxOptions};

fn ptxas() -> Option<PathBuf> {
    match std::env::var_os("PTXAS") {
        Some(path) => Some(PathBuf::from(path)),
        None => {
            assert!(std::env::var_os("TILEAS_REQUIRE_PTXAS").is_none(), "PTXAS is not set");
            None
        }
    }
}

/// Assembles `text`; the error output if ptxas refuses.
fn assemble(ptxas: &Path, target: Target, text: &str, tag: &str) -> Result<(), String> {
    let dir = std::env::temp_dir().join(format!("tileas-ptx-forms-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let (src, dst) = (dir.join(format!("{tag}.ptx")), dir.join(format!("{tag}.cubin")));
    std::fs::write(&src, text).unwrap();
    let run = Command::new(ptxas)
        .args(["-O0", &format!("-arch={target}"), "-o"])
        .arg(&dst)
        .arg(&src)
        .output()
        .expect("ptxas runs");
    let _ = std::fs::remove_file(&dst);
    let _ = std::fs::remove_file(&src);
    if run.status.success() {
        return Ok(());
    }
    Err(String::from_utf8_lossy(&[run.stderr, run.stdout].concat()).into_owned())
}

#[derive(Copy, Clone, PartialEq)]
enum Variant {
    Registers,
    /// Immediates and offsets where the class allows them, the first source apart: an instruction of constants
    /// alone is not always legal.
    Immediates,
    /// f32 registers where any 32-bit register may stand.
    Floats,
}

const ALL_VARIANTS: &[Variant] = &[Variant::Registers, Variant::Immediates, Variant::Floats];

struct Scratch {
    ptr: Param,
    map: Param,
    shared: Sym,
    global: Sym,
}

impl Scratch {
    /// An operand of the class, with initialised registers; `uses` counts the sources so far.
    fn operand(
        &self,
        b: &mut FuncBuilder<'_>,
        class: &OperandClass,
        variant: Variant,
        uses: usize,
    ) -> Operand {
        let imm_here = variant == Variant::Immediates;
        let fresh = |b: &mut FuncBuilder<'_>, ty: Ty| -> Operand {
            let ty = match ty {
                Ty::Pred => RegTy::Pred,
                Ty::B16 => RegTy::B16,
                Ty::B64 => RegTy::B64,
                Ty::F32 => RegTy::F32,
                Ty::X32 if variant == Variant::Floats => RegTy::F32,
                Ty::B32 | Ty::X32 => RegTy::B32,
            };
            let r = b.reg(ty);
            match ty {
                _ if class.def => {}
                RegTy::F32 => b.mov_to(r, 1.0f32),
                _ => b.mov_to(r, 1),
            }
            r.into()
        };
        let value = |ty: Ty| if ty == Ty::F32 { Operand::f32(2.0) } else { Operand::Imm(1) };
        match class.kind {
            Kind::Reg { ty, imm: true } if imm_here && uses > 1 && !class.def => value(ty),
            Kind::Reg { ty, .. } => fresh(b, ty),
            Kind::Vec { ty, imm, len } => {
                let items: Vec<Operand> = (0..len)
                    .map(|i| if imm && imm_here && i > 0 { value(ty) } else { fresh(b, ty) })
                    .collect();
                b.list(&items)
            }
            Kind::RegOrImm { lo, .. } if imm_here => Operand::Imm(lo),
            Kind::RegOrImm { .. } => fresh(b, Ty::B32),
            Kind::Imm { hi, .. } if imm_here => Operand::Imm(hi),
            Kind::Imm { lo, .. } => Operand::Imm(lo),
            Kind::Addr(AddressSpace::Param) => Operand::Param(self.ptr),
            Kind::Addr(AddressSpace::Local) => Operand::Local(if imm_here { 16 } else { 0 }),
            Kind::Addr(AddressSpace::Shared) if imm_here => Operand::SymAddr { sym: self.shared, offset: 64 },
            Kind::Addr(AddressSpace::Shared | AddressSpace::Tensor) => {
                let r = b.imm(RegTy::B32, 0);
                Operand::addr(r, 32)
            }
            Kind::Addr(AddressSpace::Global) if imm_here => Operand::SymAddr { sym: self.global, offset: 64 },
            Kind::Addr(AddressSpace::Global) => Operand::addr(b.imm(RegTy::B64, 4096), -64),
            Kind::Addr(AddressSpace::Generic) => b.cvta_param_u64(self.map).into(),
            Kind::Special(32) => Special::TidX.into(),
            Kind::Special(_) => Special::Clock64.into(),
            Kind::SharedSym => self.shared.into(),
            Kind::GlobalSym => self.global.into(),
            Kind::Param => self.map.into(),
            Kind::Label => unreachable!("branches are emitted by the caller"),
        }
    }
}

/// A kernel that uses each form once per variant.
fn kernel(target: Target, ops: &[PtxOp], variants: &[Variant]) -> Module {
    let mut m = Module::new(target);
    let shared = m.dynamic_shared("smem", 1024);
    let global = m.global("gmem", 4096, 128, vec![1, 0, 255]);
    let mut f = Function::kernel("k");
    f.launch.reqntid = Some([128, 1, 1]);
    f.launch.minnctapersm = Some(1);
    f.local_bytes = 64;
    // With a text come the functions that take it.
    f.texts.push("%d".into());
    let ptr = f.param("ptr", ParamKind::Pointer { align: 16 });
    let map = f.param("map", ParamKind::TensorMap);
    let scratch = Scratch { ptr, map, shared, global };
    let mut b = FuncBuilder::new(&mut f);
    for &op in ops {
        match op {
            PtxOp::Bra | PtxOp::BraUni => {
                let (t, u) = (b.block(), b.block());
                let p = b.setp_eq_u32(1, 1);
                b.on(p).emit(op, &[t.into()]);
                b.bra(u);
                b.place(t);
                b.place(u);
            }
            PtxOp::Ret | PtxOp::Exit | PtxOp::Trap => {
                let p = b.setp_eq_u32(1, 1);
                b.on(p).emit(op, &[]);
            }
            _ => {
                let form = op.form();
                let floats = form
                    .operands
                    .iter()
                    .any(|c| matches!(c.kind, Kind::Reg { ty: Ty::X32, .. } | Kind::Vec { ty: Ty::X32, .. }));
                for &v in variants.iter().filter(|&&v| v != Variant::Floats || floats) {
                    let mut uses = 0;
                    let operands: Vec<Operand> = form
                        .operands
                        .iter()
                        .map(|class| {
                            uses += usize::from(!class.def);
                            scratch.operand(&mut b, class, v, uses)
                        })
                        .collect();
                    b.emit(op, &operands);
                }
            }
        }
    }
    b.ret();
    m.functions.push(f);
    m
}

fn text(m: &Module) -> String {
    let mut diagnostics = Vec::new();
    let verified = verify(m, (9, 5), &mut diagnostics)
        .unwrap_or_else(|| panic!("the verifier refuses a form as its row describes it: {diagnostics:#?}"));
    let mut out = String::new();
    PtxEmitter::default().emit(verified, &PtxOptions::default(), &mut out);
    out
}

/// Forms that may not share a kernel: tcgen05 of the two CTA group sizes.
fn group(op: PtxOp) -> usize {
    usize::from(op.form().mnemonic.contains("cta_group::2"))
}

fn errors(output: &str) -> String {
    output.lines().filter(|l| l.contains("error")).take(2).collect::<Vec<_>>().join(" / ")
}

#[test]
fn every_form_is_assembled() {
    let Some(ptxas) = ptxas() else { return };
    let mut failures = Vec::new();
    for target in Target::ALL {
        // One kernel per version and group; only if it is refused, one per form, to name the culprits.
        let mut classes: Vec<((u8, u8), usize)> =
            PtxOp::ALL.iter().map(|&o| (o.form().version, group(o))).collect();
        classes.sort_unstable();
        classes.dedup();
        for (version, g) in classes {
            let ops: Vec<PtxOp> = PtxOp::ALL
                .iter()
                .copied()
                .filter(|&o| o.form().version == version && group(o) == g && o.form().available_on(target))
                .collect();
            for chunk in ops.chunks(300) {
                let tag = format!("{target}-{}{}-{g}", version.0, version.1);
                if assemble(&ptxas, target, &text(&kernel(target, chunk, ALL_VARIANTS)), &tag).is_ok() {
                    continue;
                }
                for &op in chunk {
                    if let Err(e) =
                        assemble(&ptxas, target, &text(&kernel(target, &[op], ALL_VARIANTS)), &tag)
                    {
                        failures.push(format!("{target} {op:?}: {}", errors(&e)));
                    }
                }
            }
        }
    }
    assert!(failures.is_empty(), "{} forms refused:\n{}", failures.len(), failures.join("\n"));
}

/// A row must not ask for more than the form needs: one version lower is refused, and so is a target left out.
#[test]
fn versions_are_least_and_targets_complete() {
    let Some(ptxas) = ptxas() else { return };
    let mut wrong = Vec::new();
    for &op in PtxOp::ALL {
        let form = op.form();
        // The least version of a target hides anything below it.
        let Some(target) =
            Target::ALL.into_iter().find(|&t| form.available_on(t) && t.least_version() < form.version)
        else {
            continue;
        };
        let stated = format!(".version {}.{}", form.version.0, form.version.1);
        let lower = format!(".version {}.{}", form.version.0, form.version.1 - 1);
        let body = text(&kernel(target, &[op], &[Variant::Registers]));
        assert!(body.contains(&stated), "{op:?}");
        if assemble(&ptxas, target, &body.replace(&stated, &lower), "lower").is_ok() {
            wrong.push(format!("{op:?} assembles at {lower}"));
        }
    }
    // The first form of each row is enough to see that a target without it refuses it.
    let mut row = String::new();
    for &op in PtxOp::ALL {
        let form = op.form();
        let this = form.mnemonic.split('.').take(2).collect::<Vec<_>>().join(".") + form.source;
        if form.available_on(Target::Sm90a) || this == row {
            continue;
        }
        row = this;
        let body = text(&kernel(Target::Sm100a, &[op], &[Variant::Registers]));
        let body = body.replace(".target sm_100a", ".target sm_90a");
        if assemble(&ptxas, Target::Sm90a, &body, "target").is_ok() {
            wrong.push(format!("{op:?} assembles for sm_90a"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn rows_are_consistent() {
    for &op in PtxOp::ALL {
        let form = op.form();
        assert!(Target::ALL.iter().any(|&t| form.available_on(t)), "{op:?} has no target");
        assert!(!form.source.is_empty());
        assert_eq!(PtxOp::from_name(form.name), Some(op));
        if form.mnemonic.contains(".aligned") {
            assert!(form.effects.is_convergent(), "{op:?} is .aligned but not marked convergent");
        }
        if form.mnemonic.starts_with("st.") {
            assert!(form.effects.writes(), "{op:?} stores");
        }
        if form.operands.iter().all(|c| !c.def) {
            assert!(!form.effects.is_pure(), "{op:?} has neither result nor effect");
        }
    }
}
