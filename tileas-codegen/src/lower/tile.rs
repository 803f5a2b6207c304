//! Element-wise ops and register renaming on tiles.
//!
//! A register tile is a list of 32-bit units; 16-bit elements are packed in pairs. Floats among them are computed through
//! f32, rounded once when packed; integers of 8 and 16 bits in 32 bits, sign-extended, where packing takes the low bits.
//! Shape ops move no data: they select, for every register of the result, the register of the
//! source that holds its element, and refuse layouts where lanes disagree. See [`LinearMap`].

use super::lanes::Lanes;
use super::{Lower, TileVal, Units, Val, fuse};
use crate::error::{Code, CodegenResult};
use crate::ir::layouts::{register_bits, register_map};
use crate::ir::{Layout, Op, Opcode, Scalar, Value, keys};
use crate::layout::LinearMap;
use crate::layout::gf2::{Columns, Span};
use crate::nvvm::{Operand, PtxOp, Reg, RegTy, Regs};
use smallvec::{SmallVec, smallvec};

/// log2 of the elements that share a unit.
pub(super) fn packing(elem: Scalar) -> u32 {
    match elem.bits() {
        8 => 2,
        16 => 1,
        _ => 0,
    }
}

/// Whether elements share a unit.
pub(super) fn packed(elem: Scalar) -> bool {
    packing(elem) > 0
}

/// An operand of an element-wise op.
enum Input {
    /// The same for all elements.
    One(Operand),
    /// A tile.
    Tile(TileVal),
}

/// Whether elements are computed in f32 and rounded.
pub(super) fn half(elem: Scalar) -> bool {
    matches!(elem, Scalar::F16 | Scalar::BF16)
}

/// Whether elements are f32 outside of their units.
pub(super) fn in_f32(elem: Scalar) -> bool {
    half(elem) || matches!(elem, Scalar::E4M3 | Scalar::E5M2 | Scalar::UE8M0)
}

/// Where element `i` of an operand is among the units; there is one for all of what is the same everywhere.
#[inline]
fn element(e: Units, i: usize) -> usize {
    e.start as usize + if e.len() == 1 { 0 } else { i }
}

/// Strides of row-major `dims`.
pub(super) fn strides(dims: &[u32]) -> SmallVec<[u64; 4]> {
    let mut s: SmallVec<[u64; 4]> = smallvec![1; dims.len()];
    for d in (0..dims.len().saturating_sub(1)).rev() {
        s[d] = s[d + 1] * u64::from(dims[d + 1]);
    }
    s
}

impl Lower<'_> {
    /// Whether an op computes or renames a tile in registers.
    pub(super) fn is_tile_op(&self, op: Op) -> bool {
        self.f.result(op).is_some_and(|r| self.f.value_data(r).is_tile())
    }

    /// The register map of a layout for this agent.
    pub(super) fn linear(&self, op: Op, layout: Layout, dims: &[u32]) -> CodegenResult<LinearMap> {
        match register_map(layout, dims, self.agent.warps) {
            Some(l) => Ok(l),
            None => self.unsupported(
                op,
                format!("cannot hold {dims:?} in layout {layout} over {} warps", self.agent.warps),
            ),
        }
    }

    /// Whether two layouts of a tile say the same.
    fn same_places(&self, a: Layout, b: Layout, dims: &[u32]) -> bool {
        let map = |l| register_map(l, dims, self.agent.warps);
        a == b || map(a).is_some_and(|m| map(b) == Some(m))
    }

    /// Elements per thread.
    pub(super) fn elements_per_thread(&self, op: Op, layout: Layout, dims: &[u32]) -> CodegenResult<usize> {
        match register_bits(layout, dims, self.agent.warps) {
            Some(bits) => Ok(1 << bits),
            None => self.linear(op, layout, dims).map(|l| 1 << l.register().len()),
        }
    }

    /// A tile operand.
    pub(super) fn tile(&self, op: Op, v: Value) -> CodegenResult<TileVal> {
        match &self.vals[v] {
            Val::Tile(t) => Ok(*t),
            _ => self.err(Code::E0803, op, format!("{} is not in registers", self.name(v))),
        }
    }

    /// The tile with one operand per unit.
    pub(super) fn expand(&mut self, op: Op, v: &Val) -> CodegenResult<TileVal> {
        let Val::Tile(t) = v else { return self.err(Code::E0803, op, "a register tile is needed here") };
        if t.held.is_some() {
            return Ok(TileVal { regs: self.elements(t), held: None, ..*t });
        }
        if !t.splat {
            return Ok(*t);
        }
        let n = self.elements_per_thread(op, t.layout, self.dims(t))?;
        let x = self.unit(t, 0);
        let x = match packing(t.elem) {
            0 => x,
            1 => self.pack(x, x, t.elem),
            _ => self.pack_bytes([x; 4], t.elem),
        };
        let regs = self.keep(std::iter::repeat_n(x, super::units(t.elem, n)));
        Ok(TileVal { regs, splat: false, ..*t })
    }

    /// Two f32 values rounded to a pair, or the low halves of two integers.
    pub(super) fn pack(&mut self, lo: Operand, hi: Operand, elem: Scalar) -> Operand {
        if elem == Scalar::I16 {
            if let (Operand::Imm(lo), Operand::Imm(hi)) = (lo, hi) {
                return Operand::Imm(i64::from((hi as i32) << 16 | (lo as i32 & 0xffff)));
            }
            return self.b.prmt_b32(lo, hi, 0x5410).into();
        }
        let (lo, hi) = (self.b.as_reg(RegTy::F32, lo), self.b.as_reg(RegTy::F32, hi));
        if elem == Scalar::F16 {
            self.b.cvt_rn_f16x2_f32(hi, lo).into()
        } else {
            self.b.cvt_rn_bf16x2_f32(hi, lo).into()
        }
    }

    /// Four f32 values rounded, or the low bytes of four integers, as a unit.
    fn pack_bytes(&mut self, x: [Operand; 4], elem: Scalar) -> Operand {
        if elem.is_int() || !in_f32(elem) {
            let low = self.b.prmt_b32(x[0], x[1], 0x0040);
            let high = self.b.prmt_b32(x[2], x[3], 0x0040);
            return self.b.prmt_b32(low, high, 0x5410).into();
        }
        let x = x.map(|x| self.b.as_reg(RegTy::F32, x));
        let pairs = [self.pair_of_bytes(x[0], x[1], elem), self.pair_of_bytes(x[2], x[3], elem)];
        let d = self.b.reg(RegTy::B32);
        self.b.pack_b32_b16_to(d, pairs);
        d.into()
    }

    /// Two f32 values as 8-bit floats. Powers of two without a sign are rounded up, the others to nearest even.
    pub(super) fn pair_of_bytes(&mut self, lo: Reg, hi: Reg, elem: Scalar) -> Reg {
        match elem {
            Scalar::E4M3 => self.b.cvt_rn_satfinite_e4m3x2_f32(hi, lo),
            Scalar::UE8M0 if !self.converts_scales() => {
                let (lo, hi) = (self.exponent(lo), self.exponent(hi));
                let hi = self.b.shl_b32(hi, 8);
                let both = self.b.or_b32(lo, hi);
                self.b.unpack_b32_b16(both).get(0).unwrap_or(both)
            }
            Scalar::UE8M0 => self.b.cvt_rp_satfinite_ue8m0x2_f32(hi, lo),
            _ => self.b.cvt_rn_satfinite_e5m2x2_f32(hi, lo),
        }
    }

    /// The biased exponent of the power of two that is at least an f32 value's magnitude, where no instruction has it.
    fn exponent(&mut self, x: Reg) -> Reg {
        let bits = self.b.reg(RegTy::B32);
        self.b.mov_to(bits, x);
        let magnitude = self.b.and_b32(bits, 0x7fff_ffff);
        let up = self.b.add_u32(magnitude, 0x7f_ffff);
        let exponent = self.b.shr_u32(up, 23);
        let exponent = self.b.min_u32(exponent, 254);
        // Up to 2^-127 it is that, the least there is.
        let least = self.b.setp_lt_u32(magnitude, 0x40_0001);
        let exponent = self.b.selp_b32(0, exponent, least);
        let nan = self.b.setp_gt_u32(magnitude, 0x7f80_0000);
        self.b.selp_b32(0xff, exponent, nan)
    }

    /// A power of two from its biased exponent, in f32, where no instruction has it.
    fn power(&mut self, exponent: Reg) -> Operand {
        let plain = self.b.shl_b32(exponent, 23);
        let least = self.b.setp_eq_u32(exponent, 0);
        let bits = self.b.selp_b32(0x40_0000, plain, least);
        let nan = self.b.setp_eq_u32(exponent, 255);
        let bits = self.b.selp_b32(0x7fff_ffff, bits, nan);
        let x = self.b.reg(RegTy::F32);
        self.b.mov_to(x, bits);
        x.into()
    }

    /// An f32 value rounded to an 8-bit float and back.
    pub(super) fn round_to_byte(&mut self, x: Reg, elem: Scalar) -> Operand {
        let pair = self.pair_of_bytes(x, x, elem);
        self.widened(pair, elem)[0]
    }

    /// Two 8-bit floats in f32.
    pub(super) fn widened(&mut self, pair: Reg, elem: Scalar) -> [Operand; 2] {
        if elem == Scalar::UE8M0 && !self.converts_scales() {
            let both = self.b.reg(RegTy::B32);
            self.b.pack_b32_b16_to(both, [pair, pair]);
            let (low, high) = (self.b.and_b32(both, 0xff), self.b.shr_u32(both, 8));
            let high = self.b.and_b32(high, 0xff);
            return [self.power(low), self.power(high)];
        }
        let both = match elem {
            Scalar::E4M3 => self.b.cvt_rn_f16x2_e4m3x2(pair),
            Scalar::UE8M0 => self.b.cvt_rn_bf16x2_ue8m0x2(pair),
            _ => self.b.cvt_rn_f16x2_e5m2x2(pair),
        };
        let halves: SmallVec<[Reg; 2]> = self.b.unpack_b32_b16(both).iter().collect();
        [halves[0], halves[1]].map(|h| match elem {
            Scalar::UE8M0 => self.b.cvt_f32_bf16(h).into(),
            _ => self.b.cvt_f32_f16(h).into(),
        })
    }

    /// The four elements of a unit, integers sign-extended, floats widened.
    fn unpack_bytes(&mut self, unit: Operand, elem: Scalar) -> [Operand; 4] {
        if elem.is_int() || !in_f32(elem) {
            // A byte of the value, then three of its sign.
            return [0u32, 1, 2, 3].map(|b| {
                let sign = b | 8;
                self.b.prmt_b32(unit, 0, i64::from(b | sign << 4 | sign << 8 | sign << 12)).into()
            });
        }
        let unit = self.b.as_reg(RegTy::B32, unit);
        let mut out: SmallVec<[Operand; 4]> = SmallVec::new();
        for pair in self.b.unpack_b32_b16(unit).iter() {
            out.extend(self.widened(pair, elem));
        }
        [out[0], out[1], out[2], out[3]]
    }

    /// One operand per element (16-bit floats widened to f32, integers to 32 bits); a single one for a splat.
    pub(super) fn elements(&mut self, t: &TileVal) -> Units {
        let elem = t.held.unwrap_or(t.elem);
        if t.splat || !packed(elem) {
            return t.regs;
        }
        let start = self.units.len();
        for i in 0..t.regs.len() {
            if packing(elem) == 2 {
                let unit = self.unit(t, i);
                let bytes = self.unpack_bytes(unit, elem);
                self.units.extend(bytes);
                continue;
            }
            if elem == Scalar::I16 {
                let pair = self.unit(t, i);
                let pair = self.b.as_reg(RegTy::B32, pair);
                // The low half, and twice the byte of its sign.
                let low = self.b.prmt_b32(pair, 0, 0x9910);
                let high = self.b.shr_s32(pair, 16);
                self.units.extend([low, high].map(Operand::Reg));
                continue;
            }
            for h in self.halves(t, i).iter() {
                let x = if elem == Scalar::F16 { self.b.cvt_f32_f16(h) } else { self.b.cvt_f32_bf16(h) };
                self.units.push(x.into());
            }
        }
        self.units_from(start)
    }

    /// The two elements of a unit.
    fn halves(&mut self, t: &TileVal, unit: usize) -> Regs {
        let r = self.unit(t, unit);
        let r = self.b.as_reg(RegTy::B32, r);
        self.b.unpack_b32_b16(r)
    }

    /// Elements back to units, rounding 16-bit floats and cutting integers.
    pub(super) fn collect(&mut self, elems: Units, elem: Scalar) -> Units {
        if !packed(elem) {
            return elems;
        }
        let start = self.units.len();
        if packing(elem) == 2 {
            let all: SmallVec<[usize; 32]> = elems.range().collect();
            for four in all.chunks(4) {
                let x = std::array::from_fn(|k| self.units[four[k % four.len()]]);
                let x = self.pack_bytes(x, elem);
                self.units.push(x);
            }
            return self.units_from(start);
        }
        let mut pairs = elems.range();
        while let Some(lo) = pairs.next() {
            let hi = pairs.next().unwrap_or(lo);
            let x = self.pack(self.units[lo], self.units[hi], elem);
            self.units.push(x);
        }
        self.units_from(start)
    }

    /// Lowers an op whose result is a register tile.
    pub(super) fn tile_op(&mut self, op: Op) -> CodegenResult<()> {
        use Opcode as O;
        let f = self.f;
        let Some(result) = f.result(op) else { return Ok(()) };
        let data = f.value_data(result);
        let (Some(dims), Some(elem)) = (data.dims(), data.elem()) else {
            return self.unsupported(op, "has no lowering");
        };
        let ty = f.value_type(result);
        if data.space().is_some_and(|s| s != crate::ir::Space::Rmem) {
            // A value that stands for the initial content of a buffer needs no code.
            return if f.opcode(op) == O::Constant {
                Ok(())
            } else {
                self.unsupported(op, "works on register tiles")
            };
        }
        let Some(layout) = data.layout() else {
            return self.err(Code::E0803, op, "the result has no layout");
        };
        let moves = f.opcode(op).has(crate::ir::opcodes::Traits::SHAPE);
        if !moves {
            self.check_computes(op)?;
        }
        let regs = match f.opcode(op) {
            O::Constant => {
                let x = self.constant(op, elem)?;
                let regs = self.keep([x]);
                self.vals[result] = Val::Tile(TileVal { regs, splat: true, ty, elem, held: None, layout });
                return Ok(());
            }
            O::Splat => {
                let Some(&s) = f.operands(op).first() else {
                    return self.err(Code::E0803, op, "splat of nothing");
                };
                let x = self.scalar(op, s)?;
                let regs = self.keep([x]);
                self.vals[result] = Val::Tile(TileVal { regs, splat: true, ty, elem, held: None, layout });
                return Ok(());
            }
            O::Iota => {
                let l = self.linear(op, layout, dims)?;
                let thread = self.thread_flat(&l);
                let start = self.units.len();
                if elem == Scalar::I1 {
                    return self.unsupported(op, "does not count in i1");
                }
                for r in 0..1 << l.register().len() {
                    let mut x = self.b.fold_add(thread, l.element(r, 0, 0));
                    if elem == Scalar::I64 {
                        let low = self.b.as_reg(RegTy::B32, x);
                        x = self.b.cvt_u64_u32(low).into();
                    }
                    self.units.push(x);
                }
                let counted = self.units_from(start);
                self.collect(counted, elem)
            }
            O::ConvertLayout => return self.convert(op, result, dims, elem, layout),
            O::Cat => return self.cat(op, result, dims, elem, layout),
            O::Broadcast | O::Reshape | O::Permute | O::ExtractSlice => {
                return self.rename(op, result, dims, elem, layout);
            }
            O::Reduce => return self.reduce(op, result, dims, elem, layout),
            _ => return self.elementwise(op, result, dims, elem, layout),
        };
        self.vals[result] = Val::Tile(TileVal { regs, splat: false, ty, elem, held: None, layout });
        Ok(())
    }

    /// The element of a tile that has one: every thread holds it.
    pub(super) fn unsplat(&mut self, op: Op) -> CodegenResult<()> {
        let Some(&source) = self.f.operands(op).first() else {
            return self.err(Code::E0803, op, "unsplat without an operand");
        };
        let t = self.tile(op, source)?;
        let first = self.elements(&t).start as usize;
        let x = self.units[first];
        self.set(op, Val::Scalar(x));
        Ok(())
    }

    fn elementwise(
        &mut self,
        op: Op,
        result: Value,
        dims: &[u32],
        elem: Scalar,
        layout: Layout,
    ) -> CodegenResult<()> {
        let f = self.f;
        if !f.opcode(op).has(crate::ir::opcodes::Traits::ELEMENTWISE) {
            return self.unsupported(op, "has no lowering");
        }
        let n = self.elements_per_thread(op, layout, dims)?;
        let tile_ty = f.value_type(result);
        if let (Opcode::Bitcast, true, Some(&v)) = (f.opcode(op), packed(elem), f.operands(op).first()) {
            // Pairs are the same in all types; one element for all is not.
            let t = self.tile(op, v)?;
            if !t.splat && t.layout == layout {
                self.vals[result] = Val::Tile(TileVal { ty: tile_ty, elem, ..t });
                return Ok(());
            }
        }
        let code = f.opcode(op);
        let form = self.float_form(op);
        // The operand that an addition takes in 16 bits: the first, or either where their order does not matter.
        let mut narrow = None;
        // Elements of the operands; a single one for what is the same everywhere.
        let mut inputs: SmallVec<[(Input, Scalar); 3]> = SmallVec::new();
        for (i, &v) in f.operands(op).iter().enumerate() {
            if let Some(s) = f.value_data(v).as_scalar() {
                let x = self.scalar(op, v)?;
                inputs.push((Input::One(x), s));
                continue;
            }
            let t = self.tile(op, v)?;
            if !t.splat && !self.same_places(t.layout, layout, dims) {
                return self.unsupported(op, format!("mixes layouts {} and {layout}", t.layout));
            }
            let s = if in_f32(t.elem) { Scalar::F32 } else { t.elem };
            if !t.splat {
                match code {
                    Opcode::Ftof
                        if t.held.is_none()
                            && half(t.elem)
                            && elem == Scalar::F32
                            && self.mixes(t.elem)
                            && self.fusion.is_held(result) =>
                    {
                        let held = Some(t.elem);
                        self.vals[result] = Val::Tile(TileVal { ty: tile_ty, elem, held, ..t });
                        return Ok(());
                    }
                    Opcode::Addf | Opcode::Subf if narrow.is_none() && (i == 0 || code == Opcode::Addf) => {
                        let of = t.held.unwrap_or(t.elem);
                        let mixed = form.and_then(|(form, _)| fuse::mixed(form, of, self.target));
                        if let (true, Some(mixed)) = (half(of), mixed) {
                            narrow = Some((mixed, t));
                            continue;
                        }
                    }
                    Opcode::Maxf | Opcode::Minf if i == 0 && self.fusion.defer(f, op, result, v) => {
                        self.vals[result] = Val::Tile(t);
                        return Ok(());
                    }
                    _ => {}
                }
            }
            inputs.push((if t.splat { Input::One(self.unit(&t, 0)) } else { Input::Tile(t) }, s));
        }
        let ty = if in_f32(elem) { Scalar::F32 } else { elem };
        let single = |a: &(Input, Scalar)| matches!(a.0, Input::One(_));
        let splat = narrow.is_none() && inputs.iter().all(single) && n > 1;
        if !splat && let Some(regs) = self.computed_in_units(op, elem, &inputs, n) {
            self.vals[result] =
                Val::Tile(TileVal { regs, splat: false, ty: tile_ty, elem, held: None, layout });
            return Ok(());
        }
        if let Some((_, registers)) = form {
            // A constant that all elements share is moved to a register once.
            for (x, _) in inputs.iter_mut().take(registers) {
                if let Input::One(x) = x {
                    *x = self.b.as_reg(RegTy::F32, *x).into();
                }
            }
        }
        // Packed elements are taken apart a unit at a time: fewer registers are alive together.
        let most = inputs.iter().fold(packing(elem), |n, a| match &a.0 {
            Input::Tile(t) => n.max(packing(t.held.unwrap_or(t.elem))),
            Input::One(_) => n,
        });
        let step = if splat || narrow.is_some() || most == 0 { n } else { 1 << most };
        let mut all: SmallVec<[Operand; 64]> = SmallVec::new();
        for first in (0..n).step_by(step) {
            let count = if splat { 1 } else { step.min(n - first) };
            let args: SmallVec<[(Units, Scalar); 3]> = inputs
                .iter()
                .map(|(x, s)| {
                    let units = match x {
                        Input::One(x) => self.keep([*x]),
                        Input::Tile(t) => {
                            let per = packing(t.held.unwrap_or(t.elem));
                            let (from, len) = (first >> per, count.div_ceil(1 << per));
                            let regs = Units { start: t.regs.start + from as u32, len: len as u32 };
                            self.elements(&TileVal { regs, ..*t })
                        }
                    };
                    (units, *s)
                })
                .collect();
            let results = match (code, form) {
                (Opcode::Ftof, _) if elem == Scalar::TF32 && !self.of_f64(op) => {
                    let given = args.first().map(|a| a.0);
                    let start = self.units.len();
                    for i in 0..count {
                        let x = given.map_or(Operand::Imm(0), |e| self.units[element(e, i)]);
                        let x = self.round(x, elem);
                        self.units.push(x);
                    }
                    self.units_from(start)
                }
                // The elements are in f32 already.
                (Opcode::Ftof, _) if !self.of_f64(op) => {
                    args.first().map_or_else(|| self.units_from(self.units.len()), |a| a.0)
                }
                (_, Some((form, registers))) => match (narrow, args.first()) {
                    (Some((mixed, t)), Some(&(other, _))) => self.mixed_elements(mixed, &t, other, count),
                    _ => self.float_elements(form, registers, &args, count),
                },
                _ => {
                    let start = self.units.len();
                    let mut a: SmallVec<[(Operand, Scalar); 3]> =
                        args.iter().map(|&(e, s)| (self.units[e.start as usize], s)).collect();
                    for i in 0..count {
                        for (x, (e, _)) in a.iter_mut().zip(&args) {
                            x.0 = self.units[element(*e, i)];
                        }
                        let x = self.arith(op, &a, ty)?;
                        // Packing cuts by itself.
                        let x = if packed(elem) { x } else { self.wrapped(x, elem) };
                        self.units.push(x);
                    }
                    self.units_from(start)
                }
            };
            if splat {
                let x = self.round(self.units[results.start as usize], elem);
                let x = self.wrapped(x, elem);
                let regs = self.keep([x]);
                self.vals[result] =
                    Val::Tile(TileVal { regs, splat: true, ty: tile_ty, elem, held: None, layout });
                return Ok(());
            }
            let regs = self.collect(results, elem);
            all.extend(regs.range().map(|i| self.units[i]));
        }
        let mut regs = self.keep(all);
        if let (Opcode::Ftof, Some(&v)) = (code, f.operands(op).first()) {
            regs = self.clamped(v, regs);
        }
        self.vals[result] = Val::Tile(TileVal { regs, splat: false, ty: tile_ty, elem, held: None, layout });
        Ok(())
    }

    /// The units of an op on small integers that needs no elements by themselves; see [`super::lanes`].
    fn computed_in_units(
        &mut self,
        op: Op,
        elem: Scalar,
        inputs: &[(Input, Scalar)],
        n: usize,
    ) -> Option<Units> {
        let lanes = inputs.iter().map(|(x, s)| match x {
            Input::Tile(t) if t.elem == elem && t.held.is_none() => Some(Lanes::Units(t.regs)),
            Input::One(Operand::Imm(x)) if *s == elem => Some(Lanes::All(*x)),
            _ => None,
        });
        if let [(Input::Tile(t), _)] = inputs
            && t.held.is_none()
        {
            return self.converted(op, t.regs, (t.elem, elem), n);
        }
        let lanes: SmallVec<[Lanes; 3]> = lanes.collect::<Option<_>>()?;
        self.lanes(op, elem, &lanes, super::units(elem, n))
    }

    /// Refuses to compute elements of types that have no arithmetic here.
    fn check_computes(&self, op: Op) -> CodegenResult<()> {
        let f = self.f;
        let elems = f.operands(op).iter().chain(f.results(op)).filter_map(|&v| f.value_data(v).elem());
        let converts = f.opcode(op) == Opcode::Ftof;
        // A choice takes elements as they are.
        let moves = converts || matches!(f.opcode(op), Opcode::Select | Opcode::Bitcast);
        let computes = |s: &Scalar| match s {
            Scalar::UE8M0 => converts || f.opcode(op) == Opcode::Bitcast,
            Scalar::TF32 => converts,
            s => {
                s.is_int()
                    || matches!(s, Scalar::F16 | Scalar::BF16 | Scalar::F32 | Scalar::F64)
                    || moves && in_f32(*s)
            }
        };
        match elems.into_iter().find(|s| !computes(s)) {
            Some(s) => self.unsupported(op, format!("does not compute {}", s.name())),
            None => Ok(()),
        }
    }

    /// Whether the target converts ue8m0.
    pub(super) fn converts_scales(&self) -> bool {
        PtxOp::CvtRnBf16x2Ue8m0x2.form().available_on(self.target)
    }

    /// Whether the target adds elements of the type to f32.
    fn mixes(&self, elem: Scalar) -> bool {
        fuse::mixed(PtxOp::AddRnF32, elem, self.target).is_some()
    }

    /// The packed elements of `v`, after what was put off until they were narrow.
    fn clamped(&mut self, v: Value, mut regs: Units) -> Units {
        let mut from = 0;
        while let Some((i, clamp)) = self.fusion.due(v, from) {
            from = i + 1;
            let bound = self.b.imm(RegTy::B32, clamp.bits);
            let start = self.units.len();
            for i in regs.range() {
                let x = self.units[i];
                let d = self.b.reg(RegTy::B32);
                self.b.emit(clamp.form, &[d.into(), x, bound.into()]);
                self.units.push(d.into());
            }
            regs = self.units_from(start);
        }
        regs
    }

    /// One instruction per element, whose first source is narrow; see [`fuse`].
    fn mixed_elements(&mut self, form: PtxOp, narrow: &TileVal, other: Units, count: usize) -> Units {
        let start = self.units.len();
        // Pairs are taken apart where they are needed, not all at once: fewer registers are live.
        for unit in 0..count.div_ceil(2) {
            let pair = self.halves(narrow, unit);
            for (i, h) in (2 * unit..count).zip(pair) {
                let x = self.units[element(other, i)];
                let d = self.b.reg(RegTy::F32);
                self.b.emit(form, &[d.into(), h.into(), x]);
                self.units.push(d.into());
            }
        }
        self.units_from(start)
    }

    /// One instruction per element; see [`Lower::float_form`].
    fn float_elements(
        &mut self,
        form: PtxOp,
        registers: usize,
        args: &[(Units, Scalar)],
        count: usize,
    ) -> Units {
        let args: SmallVec<[Units; 3]> = args.iter().map(|a| a.0).collect();
        let start = self.units.len();
        for i in 0..count {
            let mut sources = [Operand::Imm(0); 3];
            for (k, (x, &e)) in sources.iter_mut().zip(&args).enumerate() {
                *x = self.units[element(e, i)];
                if k < registers && !matches!(x, Operand::Reg(_)) {
                    *x = self.b.as_reg(RegTy::F32, *x).into();
                }
            }
            let d = match (args.len(), sources) {
                (1, [a, ..]) => self.emit_float(form, &[a]),
                (2, [a, b, _]) => self.emit_float(form, &[a, b]),
                _ => self.emit_float(form, &sources),
            };
            self.units.push(d.into());
        }
        self.units_from(start)
    }

    /// Shape ops: every result register names the source register that holds its element.
    fn rename(
        &mut self,
        op: Op,
        result: Value,
        dims: &[u32],
        elem: Scalar,
        layout: Layout,
    ) -> CodegenResult<()> {
        let f = self.f;
        let Some(&src) = f.operands(op).first() else { return self.err(Code::E0803, op, "needs a source") };
        let (t, ty) = (self.tile(op, src)?, f.value_type(result));
        if t.splat {
            self.vals[result] = Val::Tile(TileVal { ty, layout, ..t });
            return Ok(());
        }
        let from = self.dims(&t);
        let (sl, dl) = (self.linear(op, t.layout, from)?, self.linear(op, layout, dims)?);
        let offsets = f.attr_ints(op, keys::OFFSETS).unwrap_or_default();
        let (ss, ds) = (strides(from), strides(dims));
        let code = f.opcode(op);
        let order = f.attr_ints(op, keys::PERMUTATION).unwrap_or_default();
        // Linear in the bits of the result index: broadcast drops coordinates, reshape keeps the flat index.
        let project = |flat: u32| -> u32 {
            let flat = u64::from(flat);
            let place: u64 = match code {
                Opcode::Broadcast => dims
                    .iter()
                    .zip(&ds)
                    .zip(from.iter().zip(&ss))
                    .map(|((&n, &st), (&m, &sst))| if m == 1 { 0 } else { flat / st % u64::from(n) * sst })
                    .sum(),
                Opcode::Permute => dims
                    .iter()
                    .zip(&ds)
                    .zip(&order)
                    .map(|((&n, &st), &a)| {
                        let sst = usize::try_from(a).ok().and_then(|a| ss.get(a)).copied().unwrap_or(0);
                        flat / st % u64::from(n) * sst
                    })
                    .sum(),
                Opcode::ExtractSlice => dims
                    .iter()
                    .zip(&ds)
                    .zip(&ss)
                    .map(|((&n, &st), &sst)| flat / st % u64::from(n) * sst)
                    .sum(),
                _ => flat,
            };
            place as u32
        };
        let shift: u32 = if code == Opcode::ExtractSlice {
            offsets.iter().zip(&ss).map(|(&o, &s)| (o.max(0) as u64 * s) as u32).sum()
        } else {
            0
        };
        let threads = |m: &LinearMap| -> Columns { m.lane().iter().chain(m.warp()).copied().collect() };
        if threads(&dl).iter().zip(&threads(&sl)).any(|(&d, &s)| project(d) != s) {
            return self.unsupported(
                op,
                format!("needs data of other threads between layouts {} and {layout}", t.layout),
            );
        }
        // `project` is linear, so the elements of all result registers follow from those of its bits.
        let mut wanted: SmallVec<[u32; 64]> = smallvec![0];
        for &m in dl.register() {
            let m = project(m);
            for r in 0..wanted.len() {
                wanted.push(wanted[r] ^ m);
            }
        }
        let own = Span::of(sl.register());
        for flat in &mut wanted {
            match own.solve(*flat + shift) {
                Some(s) => *flat = s,
                None => {
                    return self.unsupported(op, "selects elements that no register of this thread holds");
                }
            }
        }
        let index = wanted; // of the source's elements
        // Whole units keep their elements together.
        let per = 1usize << packing(t.held.unwrap_or(elem));
        let whole = |c: &[u32]| {
            c[0].is_multiple_of(per as u32) && c.iter().enumerate().all(|(k, &x)| x == c[0] + k as u32)
        };
        let mut held = None;
        let regs = if per > 1 && index.len() >= per && index.chunks(per).all(whole) {
            let start = self.units.len();
            held = t.held;
            for c in index.chunks(per) {
                let x = self.unit(&t, c[0] as usize / per);
                self.units.push(x);
            }
            self.units_from(start)
        } else if per > 1 && t.held.is_none() {
            // What a unit has no elements for is the last of them.
            let each =
                |c: &[u32]| -> SmallVec<[u32; 4]> { (0..per).map(|k| c[k.min(c.len() - 1)]).collect() };
            let units: SmallVec<[Operand; 64]> =
                index.chunks(per).map(|c| self.selected(&t, &each(c), 4 / per as u32)).collect();
            self.keep(units)
        } else {
            let e = self.elements(&t);
            let start = self.units.len();
            for &i in &index {
                let x = self.units[e.start as usize + i as usize];
                self.units.push(x);
            }
            self.collect(self.units_from(start), elem)
        };
        self.vals[result] = Val::Tile(TileVal { regs, splat: false, ty, elem, held, layout });
        Ok(())
    }

    /// A unit of elements from anywhere in a tile, of so many bytes each: one selection of bytes for each unit they come from but the first.
    fn selected(&mut self, t: &TileVal, elements: &[u32], bytes: u32) -> Operand {
        let mut sources: SmallVec<[u32; 4]> = SmallVec::new();
        // By byte of the result: which source, and which byte of it.
        let mut from: SmallVec<[(u32, u32); 4]> = SmallVec::new();
        for &e in elements {
            let (unit, first) = (e * bytes / 4, e * bytes % 4);
            let n = sources.iter().position(|&s| s == unit).unwrap_or_else(|| {
                sources.push(unit);
                sources.len() - 1
            });
            from.extend((first..first + bytes).map(|b| (n as u32, b)));
        }
        let mut made = self.unit(t, sources[0] as usize);
        for n in 1..sources.len().max(2) as u32 {
            let other = sources.get(n as usize).map_or(made, |&s| self.unit(t, s as usize));
            let pick = |(k, &(source, byte)): (usize, &(u32, u32))| match source {
                _ if source == n => 4 + byte,
                0 if n == 1 => byte,
                // It is in its place, or not there yet.
                _ => k as u32,
            };
            let selector = from.iter().enumerate().map(|x| pick(x) << (4 * x.0)).sum::<u32>();
            made = self.b.prmt_b32(made, other, i64::from(selector)).into();
        }
        made
    }

    /// Two tiles as one: the registers of the first, then those of the second.
    fn cat(
        &mut self,
        op: Op,
        result: Value,
        dims: &[u32],
        elem: Scalar,
        layout: Layout,
    ) -> CodegenResult<()> {
        let f = self.f;
        let &[lhs, rhs] = f.operands(op) else { return self.err(Code::E0803, op, "needs two sources") };
        let half = self.elements_per_thread(op, layout, dims)? / 2;
        let mut all: SmallVec<[Operand; 64]> = SmallVec::new();
        let by_unit = packed(elem) && half.is_multiple_of(1 << packing(elem)) && half > 0;
        for v in [lhs, rhs] {
            let value = self.vals[v];
            let t = self.expand(op, &value)?;
            if by_unit {
                all.extend(t.regs.range().take(half >> packing(elem)).map(|i| self.units[i]));
                continue;
            }
            let e = self.elements(&t);
            all.extend(e.range().take(half).map(|i| self.units[i]));
        }
        let want = if by_unit { (2 * half) >> packing(elem) } else { 2 * half };
        if all.len() != want || half == 0 {
            return self.unsupported(op, format!("puts no halves together in layout {layout}"));
        }
        let (units, ty) = (self.keep(all), f.value_type(result));
        let regs = if by_unit { units } else { self.collect(units, elem) };
        self.vals[result] = Val::Tile(TileVal { regs, splat: false, ty, elem, held: None, layout });
        Ok(())
    }

    /// The part of a flat element index that lane and warp contribute.
    pub(super) fn thread_flat(&mut self, l: &LinearMap) -> Operand {
        let lane = self.lane.map_or(Operand::Imm(0), Operand::Reg);
        let warp = self.agent.warp;
        let a = self.spread(lane, l.lane());
        let b = self.spread(warp, l.warp());
        self.b.fold_add(a, b)
    }

    /// Σ bit b of `x` · maps[b], with runs of doubling maps taken at once.
    fn spread(&mut self, x: Operand, maps: &[u32]) -> Operand {
        let mut sum = Operand::Imm(0);
        let mut b = 0;
        while b < maps.len() {
            if maps[b] == 0 {
                b += 1;
                continue;
            }
            let mut e = b + 1;
            while e < maps.len() && maps[e] == maps[e - 1] * 2 {
                e += 1;
            }
            let bits = self.b.fold_shr(x, b as u32);
            let bits =
                if e == maps.len() && b == 0 { x } else { self.b.fold_and(bits, (1u64 << (e - b)) - 1) };
            let part = self.b.fold_shl(bits, maps[b].trailing_zeros());
            sum = self.b.fold_add(sum, part);
            b = e;
        }
        sum
    }
}
