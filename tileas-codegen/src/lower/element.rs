//! Scalars in memory: elements of views, atomics, and the slots through which scalars travel between agents.
//!
//! An element is in bounds when every coordinate is below its extent (unsigned); reads elsewhere give the padding and
//! updates nothing. f16 and bf16 live in f32 registers and are converted where they meet memory.

use super::{Buffer, Lower, Val, reg_ty};
use crate::error::{Code, CodegenResult};
use crate::ir::{Op, Scalar, Space, Value, keys};
use crate::nvvm::{Operand, PtxOp, Reg, RegTy};
use smallvec::SmallVec;

/// How a scalar is loaded and stored: the forms for global and shared memory.
struct Forms {
    load: [PtxOp; 2],
    store: PtxOp,
    ty: RegTy,
}

fn forms(s: Scalar) -> Option<Forms> {
    use PtxOp as P;
    let (load, store, ty) = match s {
        Scalar::F32 | Scalar::TF32 => ([P::LdGlobalF32, P::LdSharedF32], P::StSharedF32, RegTy::F32),
        Scalar::I32 | Scalar::Index => ([P::LdGlobalB32, P::LdSharedB32], P::StSharedB32, RegTy::B32),
        Scalar::I64 | Scalar::F64 => ([P::LdGlobalB64, P::LdSharedB64], P::StSharedB64, RegTy::B64),
        Scalar::I1 => ([P::LdGlobalU8, P::LdSharedU8], P::StSharedU8, RegTy::B32),
        Scalar::I8 => ([P::LdGlobalS8, P::LdSharedS8], P::StSharedU8, RegTy::B32),
        Scalar::I16 | Scalar::F16 | Scalar::BF16 => {
            ([P::LdGlobalB16, P::LdSharedB16], P::StSharedB16, RegTy::B16)
        }
        _ => return None,
    };
    Some(Forms { load, store, ty })
}

/// How far the order of an access goes.
#[derive(Copy, Clone, Debug)]
pub(crate) enum Scope {
    /// The CTA.
    Cta,
    /// Its cluster.
    Cluster,
    /// The device.
    Gpu,
    /// All devices, and the host.
    Sys,
}

impl Scope {
    fn name(self) -> &'static str {
        match self {
            Scope::Cta => "cta",
            Scope::Cluster => "cluster",
            Scope::Gpu => "gpu",
            Scope::Sys => "sys",
        }
    }

    fn fence(self) -> PtxOp {
        match self {
            Scope::Cta => PtxOp::FenceAcqRelCta,
            Scope::Cluster => PtxOp::FenceAcqRelCluster,
            Scope::Gpu => PtxOp::FenceAcqRelGpu,
            Scope::Sys => PtxOp::FenceAcqRelSys,
        }
    }
}

/// The form that orders an access as asked for: `ld.relaxed.gpu.global.b32` for `ld.global.b32`.
fn ordered_form(weak: PtxOp, semantic: &str, scope: Scope) -> PtxOp {
    let name = weak.form().name.replacen("_global", &format!("_{semantic}_{}_global", scope.name()), 1);
    PtxOp::from_name(&name).expect("an ordered form of each plain access")
}

impl Lower<'_> {
    fn preset(&mut self, dst: Reg, ty: RegTy, elem: Scalar, value: f64) {
        let v = match (ty, elem) {
            (RegTy::F32, _) => Operand::f32(value as f32),
            (_, Scalar::F64) => Operand::Imm(value.to_bits() as i64),
            _ => Operand::Imm(value as i64),
        };
        self.b.mov_to(dst, v);
    }

    /// Address of the element at the coordinates, and the predicate that it is in bounds.
    fn element(&mut self, op: Op, elem: Scalar) -> CodegenResult<(Operand, Option<Reg>)> {
        let f = self.f;
        let masked = |this: &mut Self, guard: Option<Reg>| -> CodegenResult<Option<Reg>> {
            let Some(m) = f.named_operand(op, "mask").filter(|_| f.opcode(op).is_sparse()) else {
                return Ok(guard);
            };
            let m = this.scalar(op, m)?;
            let m = this.b.as_reg(RegTy::Pred, m);
            Ok(Some(guard.map_or(m, |q| this.b.and_pred(q, m))))
        };
        let coords = f.named_segment(op, "coords").to_vec();
        if let Some(pointer) = self.pointer_of(op)? {
            let &[by] = coords.as_slice() else { return self.err(Code::E0803, op, "malformed access") };
            let wide = f.value_data(by).elem() == Some(Scalar::I64);
            let by = self.scalar(op, by)?;
            let addr = self.behind(pointer, by, wide, elem.bytes());
            return Ok((Operand::addr(addr, 0), masked(self, None)?));
        }
        let (view, ptr) = self.view_of(op)?;
        let rank = self.abi.views[view].dims.len();
        if coords.len() != rank {
            return self.err(Code::E0803, op, format!("{rank} coordinates, but got {}", coords.len()));
        }
        let (mut addr, mut guard) = (ptr, None);
        for (d, &c) in coords.iter().enumerate() {
            let c = self.first_element(op, c, 1)?;
            let c = self.b.as_reg(RegTy::B32, c);
            let size = self.nv.views[view].size_reg[d].unwrap_or(Operand::Imm(0));
            let p = self.b.setp_lt_u32(c, size);
            guard = Some(match guard {
                Some(q) => self.b.and_pred(q, p),
                None => p,
            });
            let bytes = if d + 1 == rank {
                self.b.mul_wide_u32(c, elem.bytes() as usize)
            } else {
                let s = self.nv.views[view].stride_reg[d].unwrap_or(Operand::Imm(1));
                let part = self.b.mul_wide_u32(c, s);
                self.b.shl_b64(part, elem.bytes().trailing_zeros())
            };
            addr = self.b.add_s64(addr, bytes);
        }
        Ok((Operand::addr(addr, 0), masked(self, guard)?))
    }

    /// The value of a scalar whose bits were loaded into `r`.
    fn loaded(&mut self, s: Scalar, r: Reg) -> Operand {
        match s {
            Scalar::F16 => self.b.cvt_f32_f16(r).into(),
            Scalar::BF16 => self.b.cvt_f32_bf16(r).into(),
            Scalar::I16 => self.b.cvt_s32_s16(r).into(),
            Scalar::I1 => self.b.setp_ne_u32(r, 0).into(),
            _ => r.into(),
        }
    }

    /// A `tiled_load` whose result is a scalar: every thread of the agent reads the one element.
    pub(super) fn load_element(&mut self, op: Op) -> CodegenResult<()> {
        let result = self.f.result(op);
        let Some((result, elem)) = result.and_then(|r| Some((r, self.f.value_data(r).as_scalar()?))) else {
            return self.err(Code::E0803, op, "load without result");
        };
        let Some(form) = forms(elem) else {
            return self.unsupported(op, format!("of a scalar of type {}", elem.name()));
        };
        let pad = self.f.attr_number(op, keys::PADDING).unwrap_or(0.0);
        let (addr, guard) = self.element(op, elem)?;
        let r = self.b.reg(form.ty);
        if form.ty == RegTy::B16 {
            let none = self.padding(elem, pad);
            self.b.mov_to(r, none.half);
        } else {
            self.preset(r, form.ty, elem, pad);
        }
        if let Some(p) = guard {
            self.b.on(p);
        }
        let load = self.ordered(op, form.load[0]);
        self.b.emit(load, &[r.into(), addr]);
        let x = self.loaded(elem, r);
        self.vals[result] = Val::Scalar(x);
        Ok(())
    }

    /// The form of a scalar's load.
    fn ordered(&self, op: Op, weak: PtxOp) -> PtxOp {
        match self.f.attr_name(op, keys::MEM_SEMANTIC).unwrap_or("weak") {
            "weak" => weak,
            semantic => ordered_form(weak, semantic, self.scope_of(op)),
        }
    }

    /// How far an order goes.
    fn scope_of(&self, op: Op) -> Scope {
        match self.f.attr_name(op, keys::MEM_SCOPE) {
            Some("cta") => Scope::Cta,
            Some("cluster") => Scope::Cluster,
            Some("sys") => Scope::Sys,
            _ => Scope::Gpu,
        }
    }

    /// Makes a tile's access in the order that its op asks for. It is that of many threads: each fences what it does itself, and
    /// tokens order it with what other threads of the CTA do before and behind it. The accesses between are relaxed, since fences order no weak ones.
    pub(super) fn in_order(
        &mut self,
        op: Op,
        access: impl FnOnce(&mut Self) -> CodegenResult<()>,
    ) -> CodegenResult<()> {
        let semantic = self.f.attr_name(op, keys::MEM_SEMANTIC).unwrap_or("weak");
        let scope = self.scope_of(op);
        if matches!(semantic, "release" | "acq_rel") {
            self.b.emit(scope.fence(), &[]);
        }
        self.relaxed = (semantic != "weak").then_some(scope);
        let done = access(self);
        self.relaxed = None;
        if matches!(semantic, "acquire" | "acq_rel") {
            self.b.emit(scope.fence(), &[]);
        }
        done?;
        self.agree(op)
    }

    /// The form of an access to global memory, relaxed where the op asks for an order.
    pub(super) fn plain_or_relaxed(&self, weak: PtxOp) -> PtxOp {
        self.relaxed.map_or(weak, |scope| ordered_form(weak, "relaxed", scope))
    }

    /// An atomic update by the agent's one lane.
    pub(super) fn atomic(&mut self, op: Op) -> CodegenResult<()> {
        let f = self.f;
        let (Some(value), Some(result)) = (f.named_operand(op, "value"), f.result(op)) else {
            return self.err(Code::E0803, op, "malformed atomic");
        };
        let Some(elem) = f.value_data(result).as_scalar() else {
            return self.err(Code::E0803, op, "malformed atomic");
        };
        if !self.agent.elect {
            return self.err(Code::E0803, op, "an atomic scalar belongs to an agent of one lane");
        }
        let form = self.atomic_form(op, elem)?;
        let (addr, guard) = self.element(op, elem)?;
        let mut operands: SmallVec<[Operand; 4]> = SmallVec::new();
        let sources = [f.named_operand(op, "compare"), Some(value)];
        let bits = match elem {
            Scalar::F16 | Scalar::BF16 => RegTy::B16,
            Scalar::I64 | Scalar::F64 => RegTy::B64,
            _ if form.form().mnemonic.ends_with(".f32") => RegTy::F32,
            _ => RegTy::B32,
        };
        let r = self.b.reg(bits);
        self.preset(r, bits, elem, 0.0);
        operands.extend([r.into(), addr]);
        for v in sources.into_iter().flatten() {
            let x = self.scalar(op, v)?;
            let x = match elem {
                Scalar::F16 | Scalar::BF16 => {
                    let x = self.b.as_reg(RegTy::F32, x);
                    if elem == Scalar::F16 { self.b.cvt_rn_f16_f32(x) } else { self.b.cvt_rn_bf16_f32(x) }
                }
                _ => {
                    let Some(ty) = reg_ty(elem) else { return self.unsupported(op, "of this type") };
                    let x = self.b.as_reg(ty, x);
                    self.as_bits(x, bits)
                }
            };
            operands.push(x.into());
        }
        if let Some(p) = guard {
            self.b.on(p);
        }
        self.b.emit(form, &operands);
        let x = match elem {
            Scalar::F32 if bits == RegTy::B32 => self.b.imm(RegTy::F32, r).into(),
            _ => self.loaded(elem, r),
        };
        self.vals[result] = Val::Scalar(x);
        Ok(())
    }

    /// Whether a copy moves a scalar.
    pub(super) fn is_scalar_copy(&self, op: Op) -> bool {
        let scalar = |v: Value| self.f.value_data(v).as_scalar().is_some();
        self.f.named_operand(op, "source").is_some_and(scalar) || self.f.result(op).is_some_and(scalar)
    }

    /// A scalar into or out of a slot of shared memory.
    pub(super) fn copy_scalar(&mut self, op: Op) -> CodegenResult<()> {
        let f = self.f;
        let Some(source) = f.named_operand(op, "source") else {
            return self.err(Code::E0803, op, "copy without source");
        };
        let dest = f.named_operand(op, "dest");
        let (buffer, segment) = dest.map_or((source, "source_stage"), |d| (d, "dest_stage"));
        let buf: Buffer = self.buffer(op, buffer)?;
        let (Some(form), Space::Smem) = (forms(buf.elem), buf.space) else {
            return self.unsupported(op, format!("of a scalar of type {}", buf.elem.name()));
        };
        let slot = self.stage(op, f.named_segment(op, segment))?;
        let (base, off) = self.slot_addr(&buf, slot);
        let addr = Operand::addr(base, off);
        if dest.is_some() {
            let x = self.scalar(op, source)?;
            let r: Reg = match buf.elem {
                Scalar::F16 | Scalar::BF16 => {
                    let x = self.b.as_reg(RegTy::F32, x);
                    if buf.elem == Scalar::F16 { self.b.cvt_rn_f16_f32(x) } else { self.b.cvt_rn_bf16_f32(x) }
                }
                Scalar::I16 => {
                    let x = self.b.as_reg(RegTy::B32, x);
                    self.b.cvt_u16_u32(x)
                }
                Scalar::I1 => {
                    let p = self.b.as_reg(RegTy::Pred, x);
                    self.b.selp_b32(1, 0, p)
                }
                _ => self.b.as_reg(form.ty, x),
            };
            // All threads of the agent know the scalar; one writes it.
            if let Some(thread) = self.agent.thread.filter(|_| !self.agent.elect) {
                let first = self.b.setp_eq_u32(thread, 0);
                self.b.on(first);
            }
            self.b.emit(form.store, &[addr, r.into()]);
        } else if let Some(result) = f.result(op) {
            let r = self.b.reg(form.ty);
            self.b.emit(form.load[1], &[r.into(), addr]);
            let x = self.loaded(buf.elem, r);
            self.vals[result] = Val::Scalar(x);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_accesses_have_ordered_forms() {
        use PtxOp as P;
        let scalars = Scalar::ALL.iter().filter_map(|s| Some(forms(s.0)?.load[0]));
        let loads =
            [P::LdGlobalV2B32, P::LdGlobalV2B64, P::LdGlobalV2F32, P::LdGlobalV4B32, P::LdGlobalV4F32];
        let stores = [
            P::StGlobalU8,
            P::StGlobalB16,
            P::StGlobalB32,
            P::StGlobalB64,
            P::StGlobalF32,
            P::StGlobalV2B32,
            P::StGlobalV2B64,
            P::StGlobalV2F32,
            P::StGlobalV4B32,
            P::StGlobalV4F32,
        ];
        for scope in [Scope::Cta, Scope::Cluster, Scope::Gpu, Scope::Sys] {
            for form in scalars.clone() {
                ordered_form(form, "acquire", scope);
            }
            for form in scalars.clone().chain(loads).chain(stores) {
                let mnemonic = ordered_form(form, "relaxed", scope).form().mnemonic;
                let plain = mnemonic.replace(&format!(".relaxed.{}", scope.name()), "");
                assert_eq!(plain, form.form().mnemonic);
            }
        }
    }
}
