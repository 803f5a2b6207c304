//! Typing rules of views and of accesses to memory.

use super::ops::{Ctx, Tile};
use super::{Check, fail};
use crate::attr::Attr;
use crate::types::{Elem, Num, TypeData};
use tileas_meta::tileir::{Key, Opcode, PointerMode, Reduction, RmwMode, Scope, Seg, Semantics, Typing};

impl Ctx<'_> {
    pub(super) fn tensor_view(&self) -> Check {
        self.results(1)?;
        let base = self.one(Seg::Base)?;
        let Some(result) = self.op.result(0) else { return Ok(()) };
        let TypeData::TensorView { elem, shape, strides, mode } = self.op.func.ty(result) else {
            fail!(
                E1622,
                "the result is {}, expected a tensor view",
                self.text(self.op.func.value_type(result))
            );
        };
        if base.elem != (Elem::Ptr { pointee: *elem, mode: *mode }) || !base.shape.is_empty() {
            fail!(E1622, "the base is {}, for a tensor of {elem}", self.text(base.ty));
        }
        let mut first = None;
        for (seg, dims) in [(Seg::Shape, shape), (Seg::Strides, strides)] {
            let (values, want) = (self.op.list(seg), dims.iter().filter(|d| d.is_none()).count());
            if values.len() != want {
                fail!(E1623, "{} operands {seg}, the type has {want} that are not fixed", values.len());
            }
            for &v in values {
                let t = self.tile(v, &seg)?;
                self.integer(t)?;
                self.same(*first.get_or_insert(t), t)?;
            }
        }
        Ok(())
    }

    pub(super) fn view(&self) -> Check {
        let f = self.op.func;
        let (Some(source), Some(result)) = (self.op.operand(Seg::View), self.op.result(0)) else {
            return Ok(());
        };
        let data = f.ty(result);
        let kind = matches!(
            (self.op.opcode(), data),
            (Opcode::MakePartitionView, TypeData::PartitionView { .. })
                | (Opcode::MakeGatherScatterView, TypeData::GatherScatterView { .. })
                | (Opcode::MakeStridedView, TypeData::StridedView { .. })
        );
        match data.view() {
            Some((_, tensor, _)) if kind && tensor == f.value_type(source) => Ok(()),
            _ => fail!(E1622, "{} of {}", self.text(f.value_type(result)), self.text(f.value_type(source))),
        }
    }

    pub(super) fn extents(&self, rank: impl Fn(&TypeData) -> Option<usize>) -> Check {
        let Some(view) = self.op.operand(Seg::View) else { return Ok(()) };
        let Some(rank) = rank(self.op.func.ty(view)) else {
            fail!(E1622, "the operand is {}", self.text(self.op.func.value_type(view)));
        };
        self.results(rank)?;
        for i in 0..rank {
            self.integer(self.result(i)?)?;
            self.same(self.result(0)?, self.result(i)?)?;
        }
        Ok(())
    }

    /// The memory order: which ones the op has, and a scope where one is needed.
    fn order(&self, ok: &[Semantics]) -> Check {
        let Some(order) = self.op.get::<Semantics>(Key::Semantics).filter(|s| ok.contains(s)) else {
            let order = self.op.get::<Semantics>(Key::Semantics);
            fail!(E1624, "memory order {}", order.map_or("?", Semantics::name));
        };
        if self.op.get::<Scope>(Key::Scope).is_some() == (order == Semantics::Weak) {
            fail!(E1624, "weak accesses have no scope, all others have one");
        }
        Ok(())
    }

    fn mask(&self, pointers: Tile<'_>) -> Check {
        if let Some(mask) = self.opt(Seg::Mask)? {
            self.num(mask, |n| n == Num::I1, "i1")?;
            self.same_shape(mask, pointers)?;
        }
        self.token(self.op.operand(Seg::Token), "token")
    }

    /// That a tile has what pointers point to.
    fn pointed(&self, pointers: Tile<'_>, value: Tile<'_>) -> Check<Num> {
        let num = self.pointee(pointers)?;
        self.same_shape(pointers, value)?;
        if value.elem != Elem::Num(num) {
            fail!(E1622, "{} through {}", self.text(value.ty), self.text(pointers.ty));
        }
        Ok(num)
    }

    pub(super) fn load_ptr(&self) -> Check {
        let (pointers, result) = (self.one(Seg::Source)?, self.result(0)?);
        self.pointed(pointers, result)?;
        self.mask(pointers)?;
        if let Some(padding) = self.opt(Seg::Padding)? {
            self.same(padding, result)?;
        }
        self.token(self.op.result(1), "result 1")?;
        self.order(&[Semantics::Weak, Semantics::Relaxed, Semantics::Acquire])
    }

    pub(super) fn store_ptr(&self) -> Check {
        let pointers = self.one(Seg::Destination)?;
        self.pointed(pointers, self.one(Seg::Value)?)?;
        self.mask(pointers)?;
        self.token(self.op.result(0), "the result")?;
        self.order(&[Semantics::Weak, Semantics::Relaxed, Semantics::Release])
    }

    pub(super) fn atomic(&self) -> Check {
        let (pointers, result) = (self.one(Seg::Pointers)?, self.result(0)?);
        let num = self.pointed(pointers, result)?;
        self.mask(pointers)?;
        self.token(self.op.result(1), "result 1")?;
        let arg = if self.op.row().typing == Typing::AtomicCas {
            self.same(self.one(Seg::Cmp)?, result)?;
            self.swapped(num)?;
            self.one(Seg::Value)?
        } else {
            self.rmw(num)?;
            self.one(Seg::Arg)?
        };
        self.same(arg, result)?;
        self.order(&[Semantics::Relaxed, Semantics::Acquire, Semantics::Release, Semantics::AcqRel])
    }

    fn swapped(&self, num: Num) -> Check {
        match num {
            Num::I32 | Num::I64 | Num::F32 | Num::F64 => Ok(()),
            _ => fail!(E1622, "elements {num}, expected i32, i64, f32 or f64"),
        }
    }

    /// That elements can be combined with memory.
    fn rmw(&self, num: Num) -> Check {
        let mode = self.op.get::<RmwMode>(Key::Mode);
        match mode {
            Some(RmwMode::Xchg) => self.swapped(num),
            Some(RmwMode::Addf) if num.is_arith_float() => Ok(()),
            Some(RmwMode::Addf) | None => fail!(E1622, "mode addf of {num}"),
            Some(_) if matches!(num, Num::I32 | Num::I64) => Ok(()),
            Some(mode) => fail!(E1622, "mode {mode} of {num}, expected i32 or i64"),
        }
    }

    pub(super) fn view_access(&self, typing: Typing) -> Check {
        let f = self.op.func;
        let Some(view) = self.op.operand(Seg::View) else { fail!(E1623, "there is no view") };
        let Some((extents, tensor, _)) = f.ty(view).view() else {
            fail!(E1622, "the view is {}", self.text(f.value_type(view)));
        };
        let TypeData::TensorView { elem, mode, .. } = f.module.types.get(tensor) else { return Ok(()) };
        let loads = matches!(typing, Typing::LoadView | Typing::MultimemLoad);
        self.results(if loads { 2 } else { 1 })?;
        let tile = if loads { self.result(0)? } else { self.one(Seg::Tile)? };
        if tile.elem != Elem::Num(*elem)
            || !extents.iter().map(|&d| i64::from(d)).eq(tile.shape.iter().copied())
        {
            fail!(E1622, "{} through {}", self.text(tile.ty), self.text(f.value_type(view)));
        }
        self.token(self.op.result(usize::from(loads)), "the last result")?;
        self.token(self.op.operand(Seg::Token), "token")?;
        self.view_indices(f.ty(view), extents)?;
        if let Some(Attr::Bools(bools)) = self.op.attr(Key::Inbounds)
            && bools.len() != extents.len()
        {
            fail!(E1624, "{} promises to stay inside, expected {}", bools.len(), extents.len());
        }
        let multicast = *mode == PointerMode::Multicast;
        if multicast != matches!(typing, Typing::MultimemLoad | Typing::MultimemStore) {
            fail!(E1622, "{} is {}multicast", self.text(tensor), if multicast { "" } else { "not " });
        }
        if multicast {
            self.multimem(*elem, typing)?;
        }
        match self.op.opcode() {
            Opcode::AtomicRedViewTko if matches!(f.ty(view), TypeData::GatherScatterView { .. }) => {
                fail!(E1622, "{} has no atomics", self.text(f.value_type(view)))
            }
            Opcode::AtomicRedViewTko => self.reduction(*elem),
            Opcode::MultimemReduceViewTko => self.order(&[Semantics::Relaxed, Semantics::Release]),
            _ if loads => self.order(&[Semantics::Weak, Semantics::Relaxed, Semantics::Acquire]),
            _ => self.order(&[Semantics::Weak, Semantics::Relaxed, Semantics::Release]),
        }
    }

    /// What all devices behind an address can combine.
    fn multimem(&self, num: Num, typing: Typing) -> Check {
        let integer = matches!(num, Num::I32 | Num::I64);
        let ok = match self.op.get::<Reduction>(Key::Reduction) {
            _ if integer => true,
            _ if !num.is_arith_float() => false,
            None | Some(Reduction::Add) => true,
            Some(Reduction::Min | Reduction::Max) => {
                typing == Typing::MultimemLoad && matches!(num, Num::F16 | Num::Bf16)
            }
            Some(_) => false,
        };
        if ok { Ok(()) } else { fail!(E1622, "there is no such access to elements {num}") }
    }

    fn reduction(&self, num: Num) -> Check {
        self.order(&[Semantics::Relaxed])?;
        if self.op.get::<Scope>(Key::Scope) == Some(Scope::System) {
            fail!(E1624, "scope sys, expected tl_blk or device");
        }
        if self.op.get::<RmwMode>(Key::Mode) == Some(RmwMode::Xchg) {
            fail!(E1624, "mode xchg, which has a result");
        }
        self.rmw(num)
    }

    fn view_indices(&self, view: &TypeData, extents: &[i32]) -> Check {
        let TypeData::GatherScatterView { sparse, .. } = view else {
            self.indices(extents.len(), Num::is_int)?;
            let indices = self.op.list(Seg::Index);
            return indices.iter().try_for_each(|&v| {
                self.same(self.tile(v, &"an index")?, self.tile(indices[0], &"an index")?)
            });
        };
        let indices = self.op.list(Seg::Index);
        if indices.len() != extents.len() {
            fail!(E1623, "{} indices, expected {}", indices.len(), extents.len());
        }
        for (i, &v) in indices.iter().enumerate() {
            let index = self.tile(v, &"an index")?;
            self.num(index, Num::is_int, "integers")?;
            let ok = match index.shape {
                [] => i != *sparse as usize,
                [n] => i == *sparse as usize && *n == i64::from(extents[i]),
                _ => false,
            };
            if !ok {
                fail!(E1622, "index {i} is {}", self.text(index.ty));
            }
        }
        Ok(())
    }

    pub(super) fn get_global(&self) -> Check {
        let module = self.op.func.module;
        let name = self.op.text(Key::Name).unwrap_or_default();
        let result = self.result(0)?;
        let Some(&global) = self.globals.get(name) else {
            fail!(E1624, "there is no global of that name");
        };
        let elem = module.types.get(global).tile().and_then(|(elem, _)| elem.num());
        if result.shape.is_empty() && result.elem.pointee().is_some() && result.elem.pointee() == elem {
            return Ok(());
        }
        fail!(E1622, "{} for a global of {}", self.text(result.ty), self.text(global))
    }

    pub(super) fn alloca(&self) -> Check {
        let result = self.result(0)?;
        let size = self.pointee(result)?.bits().div_ceil(8).next_power_of_two();
        if !result.shape.is_empty() {
            fail!(E1622, "{}, expected a scalar", self.text(result.ty));
        }
        match self.op.get::<u64>(Key::Alignment) {
            Some(a) if a.is_power_of_two() && a >= u64::from(size) => Ok(()),
            a => fail!(E1624, "alignment {}, expected a power of two from {size} on", a.unwrap_or_default()),
        }
    }
}
