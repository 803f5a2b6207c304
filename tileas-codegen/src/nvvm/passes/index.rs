//! Constant addresses against the extents of what they point into.
//!
//! In: a module whose constants are where they are used (after the clean-ups). Out: `E0913` for each access of a shared or global variable,
//! of the local area or of a parameter that does not lie in it whole: before its first byte, or with its last one behind the end. Dynamic shared
//! memory has the bytes that the launch gives it; where these are not known only its beginning counts. Addresses that are computed when the
//! program runs are not looked at. Cost: linear in instructions. Source: "Scheduling Glue Passes", CheckGepIndex.

use crate::error::{Code, CodegenError, Loc};
use crate::nvvm::module::{Function, Inst, Module, Operand, Reg, Sym, SymKind};
use crate::nvvm::{AddressSpace, Kind, PtxOp};
use cranelift_entity::{EntityRef, SecondaryMap};

/// What a register points at: a variable and bytes from its beginning.
type Known = SecondaryMap<Reg, Option<(Sym, i64)>>;

/// Checks all functions; `dynamic`: bytes of dynamic shared memory.
pub fn check_indices(module: &Module, dynamic: Option<u32>, out: &mut Vec<CodegenError>) {
    for func in &module.functions {
        let known = addresses(func);
        for &bb in func.layout() {
            for inst in func.insts(bb) {
                accesses(module, func, &known, inst, dynamic, out);
            }
        }
    }
}

/// Registers that are written once, with an address that is known.
fn addresses(func: &Function) -> Known {
    let mut writes: SecondaryMap<Reg, u32> = SecondaryMap::new();
    for &bb in func.layout() {
        for inst in func.insts(bb) {
            func.visit_writes(inst, |r| writes[r] += 1);
        }
    }
    let mut known = Known::new();
    for &bb in func.layout() {
        for inst in func.insts(bb) {
            let (op, guarded) = (func.op(inst), func.guard(inst).is_some());
            let [Operand::Reg(d), sources @ ..] = func.operands(inst) else { continue };
            if guarded || writes[*d] != 1 {
                continue;
            }
            let moves = op.form().mnemonic.starts_with("mov.");
            known[*d] = match (op, sources) {
                (_, &[Operand::Sym(s)]) if moves => Some((s, 0)),
                (_, &[Operand::SymAddr { sym, offset }]) if moves => Some((sym, i64::from(offset))),
                (_, &[Operand::Reg(r)]) if moves => known[r],
                (
                    PtxOp::AddU32 | PtxOp::AddS32 | PtxOp::AddU64 | PtxOp::AddS64,
                    &[Operand::Reg(r), Operand::Imm(n)],
                ) => known[r].map(|(s, at)| (s, at.saturating_add(n))),
                _ => None,
            };
        }
    }
    known
}

/// Bytes that an access moves: lanes and width of its last type. Others than loads and stores touch one byte at least.
fn bytes(op: PtxOp) -> i64 {
    let mnemonic = op.form().mnemonic;
    if !mnemonic.starts_with("ld.") && !mnemonic.starts_with("st.") {
        return 1;
    }
    let mut lanes = 1;
    let mut bits = 8;
    for part in mnemonic.split('.') {
        let (letter, number) = part.split_at(part.len().min(1));
        match (letter, number.parse::<i64>()) {
            ("v", Ok(n)) => lanes = n,
            ("b" | "u" | "s" | "f", Ok(n)) => bits = n,
            _ => {}
        }
    }
    lanes * bits / 8
}

fn accesses(
    module: &Module,
    func: &Function,
    known: &Known,
    inst: Inst,
    dynamic: Option<u32>,
    out: &mut Vec<CodegenError>,
) {
    let op = func.op(inst);
    for (class, &operand) in op.form().operands.iter().zip(func.operands(inst)) {
        let Kind::Addr(space) = class.kind else { continue };
        let at = match operand {
            Operand::Reg(r) => known[r],
            Operand::Addr { base, offset } => known[base].map(|(s, at)| (s, at + i64::from(offset))),
            Operand::Sym(s) => Some((s, 0)),
            Operand::SymAddr { sym, offset } => Some((sym, i64::from(offset))),
            _ => None,
        };
        let size = bytes(op);
        let (what, first, all) = match (operand, at) {
            (Operand::Local(n), _) if space == AddressSpace::Local => {
                ("the local area".to_owned(), i64::from(n), Some(func.local_bytes))
            }
            (Operand::Param(p) | Operand::ParamAddr { param: p, .. }, _) => {
                let Some(data) = func.params.get(p) else { continue };
                let offset = if let Operand::ParamAddr { offset, .. } = operand { offset } else { 0 };
                (format!("parameter `{}`", data.name), i64::from(offset), Some(data.kind.size()))
            }
            (_, Some((sym, first))) => {
                let Some(data) = module.symbols.get(sym) else { continue };
                let all = match data.kind {
                    SymKind::DynamicShared => dynamic,
                    SymKind::Shared { bytes } | SymKind::Global { bytes } => Some(bytes),
                };
                (format!("`{}`", data.name), first, all)
            }
            _ => continue,
        };
        let beyond = all.is_some_and(|all| first.saturating_add(size) > i64::from(all));
        if first < 0 || beyond {
            let of = all.map_or_else(String::new, |all| format!(" of {all} bytes"));
            let text = format!(
                "function `{}`: inst{} ({}): bytes {first} to {} of {what}{of}",
                func.name,
                inst.index(),
                op.form().mnemonic,
                first.saturating_add(size) - 1,
            );
            out.push(CodegenError::new(Code::E0913, Loc::NONE, text));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nvvm::parser::parse;

    fn found(body: &str, dynamic: Option<u32>) -> Vec<String> {
        let text = format!(
            "target sm_100a\nshared @smem dynamic align 1024\nshared @flags bytes 64 align 8\nglobal @counter bytes 4 align 4\n\n\
             kernel @k(x: ptr<global, align 16>, n: u32) linkage visible local 32 {{\nbb0:\n{body}    ret\n}}\n"
        );
        let module = parse(&text).unwrap_or_else(|e| panic!("{e:?}\n{text}"));
        let mut out = Vec::new();
        check_indices(&module, dynamic, &mut out);
        out.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_last_byte_of_each_variable_is_the_last_that_is_read() {
        for (line, inside, beyond) in [
            ("    ld.shared.b32 %v1:b32, [flags+AT]\n", 60, 61),
            ("    ld.shared.v4.b32 {%v1:b32, %v2:b32, %v3:b32, %v4:b32}, [flags+AT]\n", 48, 52),
            (
                "    mov.u32 %v1:b32, flags\n    add.u32 %v2:b32, %v1, 32\n    ld.shared.b64 %v3:b64, [%v2+AT]\n",
                24,
                32,
            ),
            (
                "    mov.u32 %v1:b32, flags\n    mov.b32 %v2:b32, %v1\n    ld.shared.b32 %v3:b32, [%v2+AT]\n",
                60,
                64,
            ),
            ("    mov.u64 %v1:b64, counter\n    ld.global.b32 %v2:b32, [%v1+AT]\n", 0, 4),
            ("    ld.local.b32 %v1:b32, [__local+AT]\n", 28, 30),
            ("    ld.param.b32 %v1:b32, [n+AT]\n", 0, 2),
            ("    mov.u32 %v1:b32, smem\n    st.shared.b32 [%v1+AT], 0\n", 4092, 4096),
        ] {
            let with = |at: i32| found(&line.replace("+AT", &format!("+{at}")), Some(4096));
            assert_eq!(with(inside), [""; 0], "{line}");
            assert!(matches!(&with(beyond)[..], [one] if one.starts_with("E0913")), "{line}");
        }
    }

    #[test]
    fn what_is_not_known_is_not_refused() {
        let unknown = "    ld.param.b32 %v0:b32, [n]\n    mov.u32 %v1:b32, flags\n    add.u32 %v2:b32, %v1, %v0\n    ld.shared.b32 %v3:b32, [%v2+64]\n";
        assert_eq!(found(unknown, None), [""; 0]);
        // Written again, or where a guard is on.
        let sum = "    mov.u32 %v1:b32, flags\n    add.u32 %v1, %v1, 64\n    ld.shared.b32 %v3:b32, [%v1]\n";
        assert_eq!(found(sum, None), [""; 0]);
        let guarded = "    ld.param.b32 %v0:b32, [n]\n    setp.eq.u32 %v4:pred, %v0, 0\n    @%v4 mov.u32 %v1:b32, flags\n    \
            ld.shared.b32 %v3:b32, [%v1+64]\n";
        assert_eq!(found(guarded, None), [""; 0]);
        let dynamic = "    mov.u32 %v1:b32, smem\n    st.shared.b32 [%v1+100000], 0\n";
        assert_eq!(found(dynamic, None), [""; 0]);
        let before = found("    mov.u32 %v1:b32, smem\n    st.shared.b32 [%v1+-4], 0\n", None);
        assert!(before[0].ends_with("bytes -4 to -1 of `smem`"), "{before:?}");
    }
}
