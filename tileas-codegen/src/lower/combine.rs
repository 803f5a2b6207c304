//! `combine` and `scan`: elements of register tiles combined by a function that the op carries.
//!
//! In: ops whose results lie where the elements that they are made of are. Out: the function's ops, once for each application. `combine` goes
//! as `reduce` does: registers, lanes by butterflies, warps through the agent's memory. `scan` takes the bits of the axis from the lowest up. At
//! each of them the half of a block behind takes in the last element of the half before, which holds all of that half: it is in
//! another register, comes from another lane, or goes from warp to warp through memory. Truth values travel as words of 0 and 1.

use super::reduce::{shared_load, shared_store};
use super::{Lower, TileVal, Val};
use crate::error::{Code, CodegenResult};
use crate::ir::{Function, Op, Scalar, Value, keys};
use crate::layout::gf2::{Columns, Span};
use crate::layout::{Axes, LinearMap, Scope};
use crate::nvvm::{Operand, PtxOp, Reg, RegTy};
use crate::storage::scratch::{Reduction, part_bytes, scan_levels, threads};
use cranelift_entity::SecondaryMap;
use smallvec::SmallVec;

/// One element of each tile.
type Tuple = SmallVec<[Operand; 4]>;

/// What applies the function: its ops, and what its values have become.
struct By<'a> {
    func: &'a Function,
    vals: SecondaryMap<Value, Val>,
    elems: SmallVec<[Scalar; 4]>,
}

/// The tiles of an op, taken apart.
struct Parts<'a> {
    by: By<'a>,
    axes: Axes,
    axis: usize,
    map: LinearMap,
    /// By register.
    elements: Vec<Tuple>,
}

impl<'a> Lower<'a> {
    fn parts(&mut self, op: Op) -> CodegenResult<Parts<'a>> {
        let f = self.f;
        let sources = f.operands(op);
        let (Some(func), Some(&first)) = (f.combiner(op), sources.first()) else {
            return self.err(Code::E0803, op, "has no function or no tile");
        };
        let dims = f.value_data(first).dims().unwrap_or(&[]);
        let axis = f.attr_int(op, keys::AXIS).and_then(|a| usize::try_from(a).ok());
        let (Some(axes), Some(axis)) = (Axes::of(dims), axis.filter(|&a| a < dims.len())) else {
            return self.unsupported(op, "combines tiles along one of their axes");
        };
        let map = self.linear(op, self.tile(op, first)?.layout, dims)?;
        let n = 1usize << map.register().len();
        let mut elements: Vec<Tuple> = vec![Tuple::new(); n];
        let mut elems = SmallVec::new();
        for &v in sources {
            let t = self.tile(op, v)?;
            let fits = matches!(t.elem, Scalar::F64 | Scalar::F32 | Scalar::F16 | Scalar::BF16 | Scalar::I1)
                || matches!(t.elem, Scalar::I8 | Scalar::I16 | Scalar::I32 | Scalar::I64);
            if !fits {
                return self.unsupported(op, format!("does not combine {}", t.elem.name()));
            }
            if self.linear(op, t.layout, dims)? != map {
                return self.unsupported(op, "needs its tiles in one layout");
            }
            let of = self.elements(&t);
            let all: SmallVec<[Operand; 64]> = of.range().map(|i| self.units[i]).collect();
            for (r, tuple) in elements.iter_mut().enumerate() {
                let x = if all.len() == 1 { all[0] } else { all[r] };
                tuple.push(if t.elem == Scalar::I1 { self.truth_word(x) } else { x });
            }
            elems.push(t.elem);
        }
        let mut vals = SecondaryMap::new();
        vals.resize(func.num_values());
        Ok(Parts { by: By { func, vals, elems }, axes, axis, map, elements })
    }

    /// A predicate as 0 or 1.
    fn truth_word(&mut self, x: Operand) -> Operand {
        match x {
            Operand::Imm(n) => Operand::Imm(i64::from(n != 0)),
            x => {
                let p = self.b.as_reg(RegTy::Pred, x);
                self.b.selp_b32(1, 0, p).into()
            }
        }
    }

    /// The function of two tuples.
    fn apply(&mut self, by: &mut By<'a>, a: &[Operand], b: &[Operand]) -> CodegenResult<Tuple> {
        let params = by.func.params();
        for (k, (&p, &x)) in params.iter().zip(a.iter().chain(b)).enumerate() {
            let elem = by.elems[k % by.elems.len()];
            let x = if elem == Scalar::I1 {
                let word = self.b.as_reg(RegTy::B32, x);
                self.b.setp_ne_u32(word, 0).into()
            } else {
                x
            };
            by.vals[p] = Val::Scalar(x);
        }
        // The ops are those of another function for as long.
        let outer = std::mem::replace(&mut self.f, by.func);
        std::mem::swap(self.vals, &mut by.vals);
        let done = self.applied(by.func, &by.elems);
        std::mem::swap(self.vals, &mut by.vals);
        self.f = outer;
        done
    }

    fn applied(&mut self, func: &'a Function, elems: &[Scalar]) -> CodegenResult<Tuple> {
        let block = func.entry();
        self.block(block)?;
        let mut out = Tuple::new();
        let Some(last) = func.last_op(block) else { return Ok(out) };
        for (&v, &elem) in func.operands(last).iter().zip(elems) {
            let x = self.scalar(last, v)?;
            out.push(if elem == Scalar::I1 { self.truth_word(x) } else { x });
        }
        Ok(out)
    }

    /// Combines some tuples: several chains, then these.
    fn apply_all(&mut self, by: &mut By<'a>, row: &mut Vec<Tuple>) -> CodegenResult<Tuple> {
        while row.len() > 1 {
            let half = row.len() / 2;
            for i in 0..half {
                row[i] = self.apply(by, &row[i].clone(), &row[row.len() - half + i].clone())?;
            }
            row.truncate(row.len() - half);
        }
        Ok(row.first().cloned().unwrap_or_default())
    }

    /// Results by register of their layout.
    fn finish_tuples(&mut self, op: Op, tuples: &[Tuple]) -> CodegenResult<()> {
        let f = self.f;
        for (k, &result) in f.results(op).iter().enumerate() {
            let data = f.value_data(result);
            let (Some(elem), Some(layout)) = (data.elem(), data.layout()) else {
                return self.err(Code::E0803, op, "the result is not placed");
            };
            let start = self.units.len();
            for t in tuples {
                let Some(&x) = t.get(k) else { return self.err(Code::E0803, op, "yields too little") };
                let x = match elem {
                    Scalar::I1 => {
                        let word = self.b.as_reg(RegTy::B32, x);
                        self.b.setp_ne_u32(word, 0).into()
                    }
                    _ => x,
                };
                self.units.push(x);
            }
            let made = self.units_from(start);
            let regs = self.collect(made, elem);
            let ty = f.value_type(result);
            self.vals[result] = Val::Tile(TileVal { regs, splat: false, ty, elem, held: None, layout });
        }
        Ok(())
    }

    pub(super) fn combine_tiles(&mut self, op: Op) -> CodegenResult<()> {
        let f = self.f;
        let Parts { mut by, axes, axis, map, elements } = self.parts(op)?;
        let Some(&result) = f.results(op).first() else { return self.err(Code::E0803, op, "has no result") };
        let data = f.value_data(result);
        let (Some(dims), Some(layout)) = (data.dims(), data.layout()) else {
            return self.err(Code::E0803, op, "the result is not placed");
        };
        let dl = self.linear(op, layout, dims)?;
        let how = Reduction::along(&map, &axes, axis);
        if threads(&dl) != threads(&how.result) {
            return self.unsupported(op, format!("needs data of other threads in layout {layout}"));
        }
        let sliced = map.slice(&axes, axis);
        let pivots = map.replicas().pivots;
        let mut parts: Vec<Tuple> = Vec::new();
        for r in 0..1u32 << dl.register().len() {
            let want = dl.element(r, 0, 0);
            let own = |s: &u32| s & !pivots == 0 && sliced.element(*s, 0, 0) == want;
            let mut row: Vec<Tuple> =
                (0..1u32 << map.register().len()).filter(own).map(|s| elements[s as usize].clone()).collect();
            if row.is_empty() {
                return self.unsupported(op, "combines elements that no register of this thread holds");
            }
            parts.push(self.apply_all(&mut by, &mut row)?);
        }
        for lane in (0..5).filter(|l| how.lanes >> l & 1 == 1) {
            for part in &mut parts {
                let other: Tuple = part
                    .iter()
                    .zip(by.elems.clone())
                    .map(|(&x, elem)| self.other_lane(x, elem, 1 << lane))
                    .collect();
                *part = self.apply(&mut by, &part.clone(), &other)?;
            }
        }
        if how.warps != 0 {
            let values: Vec<(Scalar, Vec<Operand>)> = by
                .elems
                .iter()
                .enumerate()
                .map(|(k, &elem)| (elem, parts.iter().map(|t| t[k]).collect()))
                .collect();
            let all = self.exchange(op, &values, &dl, &how, dims.iter().product())?;
            let wide = all.first().map_or(1, |x| x.wide);
            for (n, parts) in parts.chunks_mut(wide as usize).enumerate() {
                let of_values: SmallVec<[SmallVec<[Vec<Operand>; 4]>; 4]> =
                    all.iter().map(|x| self.parts_of(x, dl.element(n as u32 * wide, 0, 0))).collect();
                for (k, part) in parts.iter_mut().enumerate() {
                    let mut row: Vec<Tuple> = (0..how.contributors() as usize)
                        .map(|w| of_values.iter().map(|of_value| of_value[k][w]).collect())
                        .collect();
                    *part = self.apply_all(&mut by, &mut row)?;
                }
            }
        }
        self.finish_tuples(op, &parts)
    }

    pub(super) fn scan(&mut self, op: Op) -> CodegenResult<()> {
        let reverse = self.f.has_attr(op, keys::REVERSE);
        let Parts { mut by, axes, axis, map, mut elements } = self.parts(op)?;
        let columns = [map.register(), map.lane(), map.warp()];
        let plain = |c: &&u32| c.is_power_of_two();
        let mut bits: Columns = columns.iter().flat_map(|c| c.iter()).filter(plain).copied().collect();
        let some = columns.iter().flat_map(|c| c.iter()).filter(|c| **c != 0).count();
        bits.sort_unstable();
        bits.dedup();
        if bits.len() != some {
            return self.unsupported(op, "scans tiles in layouts that give each bit to one place");
        }
        let (low, end) = (axes.low(axis), axes.low(axis) + axes.bits(axis));
        let by_memory = scan_levels(&map, &axes, axis);
        // Bits of a place whose element bits are among some.
        let held = |columns: &[u32], among: u32| {
            columns.iter().enumerate().filter(|(_, c)| **c & among != 0).fold(0u32, |m, (k, _)| m | 1 << k)
        };
        for p in low..end {
            let (own, below) = (1u32 << p, (1u32 << p) - (1 << low));
            // Where the last element of the half before is, from an element of the half behind.
            let there = |place: u32, columns: &[u32]| {
                let (flip, rest) = (held(columns, own), held(columns, below));
                if reverse { (place | flip) & !rest } else { place & !flip | rest }
            };
            let behind = |r: u32| {
                let flip = held(map.register(), own);
                flip == 0 || (r & flip != 0) != reverse
            };
            let takes: Option<Reg> = self.has_bit(&map, own, !reverse);
            let mut made = elements.clone();
            if by_memory.contains(&p) {
                let given = self.through_memory(op, &by, &map, &elements, (p, low), reverse)?;
                for r in (0..elements.len() as u32).filter(|&r| behind(r)) {
                    made[r as usize] =
                        self.taken(&mut by, &given[r as usize], &elements[r as usize], takes)?;
                }
            } else {
                let lanes = held(map.lane(), own | below);
                let from: Option<Operand> = match (lanes, self.lane) {
                    (0, _) | (_, None) => None,
                    (_, Some(lane)) => {
                        let (flip, rest) = (held(map.lane(), own), held(map.lane(), below));
                        let (set, clear) = if reverse { (flip, rest) } else { (rest, flip) };
                        let kept = self.b.and_b32(lane, !clear);
                        Some(if set == 0 { kept.into() } else { self.b.or_b32(kept, set).into() })
                    }
                };
                let mut known: SmallVec<[(u32, Tuple); 8]> = SmallVec::new();
                for r in (0..elements.len() as u32).filter(|&r| behind(r)) {
                    let s = there(r, map.register());
                    let before = match (from, known.iter().find(|k| k.0 == s)) {
                        (None, _) => elements[s as usize].clone(),
                        (_, Some(k)) => k.1.clone(),
                        (Some(from), None) => {
                            let mut got = Tuple::new();
                            for (k, &elem) in by.elems.clone().iter().enumerate() {
                                got.push(self.lane_value(elements[s as usize][k], elem, from));
                            }
                            known.push((s, got.clone()));
                            got
                        }
                    };
                    made[r as usize] = self.taken(&mut by, &before, &elements[r as usize], takes)?;
                }
            }
            elements = made;
        }
        self.finish_tuples(op, &elements)
    }

    /// The predicate that a thread's elements have a bit, or lack it, where threads differ in it.
    fn has_bit(&mut self, map: &LinearMap, bit: u32, set: bool) -> Option<Reg> {
        let all = threads(map);
        let n = all.iter().position(|&c| c == bit)?;
        let columns: Columns = (0..all.len()).map(|k| u32::from(k == n)).collect();
        let x = self.by_thread(&columns);
        let x = self.b.as_reg(RegTy::B32, x);
        Some(if set { self.b.setp_ne_u32(x, 0) } else { self.b.setp_eq_u32(x, 0) })
    }

    /// What is before an element combined with it; as it is where `takes` is false.
    fn taken(
        &mut self,
        by: &mut By<'a>,
        before: &[Operand],
        own: &[Operand],
        takes: Option<Reg>,
    ) -> CodegenResult<Tuple> {
        let both = self.apply(by, before, own)?;
        let Some(p) = takes else { return Ok(both) };
        let mut out = Tuple::new();
        for ((&x, &y), &elem) in both.iter().zip(own).zip(&by.elems.clone()) {
            let ty = Self::part_ty(elem);
            let (x, y) = (self.b.as_reg(ty, x), self.b.as_reg(ty, y));
            let d = self.b.reg(ty);
            let form = match ty {
                RegTy::F32 => PtxOp::SelpF32,
                RegTy::B64 => PtxOp::SelpB64,
                _ => PtxOp::SelpB32,
            };
            self.b.emit(form, &[d.into(), x.into(), y.into(), p.into()]);
            out.push(d.into());
        }
        Ok(out)
    }

    /// What a lane has.
    fn lane_value(&mut self, x: Operand, elem: Scalar, lane: Operand) -> Operand {
        let ty = Self::part_ty(elem);
        let x = self.b.as_reg(ty, x);
        let one = |this: &mut Self, ty: RegTy, x: Reg| -> Operand {
            let d = this.b.reg(ty);
            let operands = [d.into(), x.into(), lane, 31u32.into(), 0xffff_ffffu32.into()];
            this.b.emit(PtxOp::ShflSyncIdxB32, &operands);
            d.into()
        };
        if ty != RegTy::B64 {
            return one(self, ty, x);
        }
        let halves = self.b.unpack_b64_b32(x);
        let got: SmallVec<[Operand; 2]> = halves.iter().map(|h| one(self, RegTy::B32, h)).collect();
        let both = self.b.reg(RegTy::B64);
        let list = self.b.list(&got.as_slice());
        self.b.emit(PtxOp::PackB64B32, &[both.into(), list]);
        both.into()
    }

    /// The last elements of the halves before, by register, from whichever warp has them.
    fn through_memory(
        &mut self,
        op: Op,
        by: &By<'a>,
        map: &LinearMap,
        elements: &[Tuple],
        (p, low): (u32, u32),
        reverse: bool,
    ) -> CodegenResult<Vec<Tuple>> {
        let all: u32 = 1 << Span::of(map.columns()).rank();
        let count = all >> (p - low + 1);
        let size = |e: Scalar| (count * part_bytes(e)).next_multiple_of(16);
        let (base, first) = self.scratch(op, by.elems.iter().map(|&e| size(e)).sum(), Scope::Agent)?;
        // The number of an element among those handed on: without the bits of the axis up to `p`.
        let number = |e: u32| (e >> (p + 1)) << low | e & ((1 << low) - 1);
        let (own, below) = (1u32 << p, (1u32 << p) - (1 << low));
        let is_last = |e: u32| {
            let among = e & (own | below);
            if reverse { among == own } else { among == below }
        };
        // Threads whose part of the number says that theirs is a last one.
        let asked: Columns = threads(map).iter().map(|&c| c & (own | below)).collect();
        let in_threads = asked.iter().fold(0, |m, c| m | c);
        let want = if reverse { own & in_threads } else { below & in_threads };
        let mut guard = self.copies_guard({
            let copies = map.replicas();
            (copies.lanes, copies.warps)
        });
        if in_threads != 0 {
            let mine = self.by_thread(&asked);
            let mine = self.b.as_reg(RegTy::B32, mine);
            let p = self.b.setp_eq_u32(mine, want);
            guard = Some(guard.map_or(p, |g| self.b.and_pred(g, p)));
        }
        let places: Columns = threads(map).iter().map(|&c| number(c)).collect();
        let place = self.by_thread(&places);
        let mut at = first;
        let mut reads: Vec<Tuple> = vec![Tuple::new(); elements.len()];
        let mut plans: SmallVec<[(Operand, i32, u32, RegTy); 4]> = SmallVec::new();
        for (k, &elem) in by.elems.iter().enumerate() {
            let (bytes, ty) = (part_bytes(elem), Self::part_ty(elem));
            let offset = self.b.fold_mul(place, i64::from(bytes));
            let offset = self.b.fold_add(base, offset);
            let reg = self.b.as_reg(RegTy::B32, offset);
            let store = shared_store(ty, 1);
            for (r, tuple) in elements.iter().enumerate() {
                let e = map.element(r as u32, 0, 0);
                // What of the condition registers decide.
                if !is_last(e & !in_threads | want) {
                    continue;
                }
                let x = self.b.as_reg(ty, tuple[k]);
                if let Some(p) = guard {
                    self.b.on(p);
                }
                let to = Operand::addr(reg, at + (number(e) * bytes) as i32);
                self.b.emit(store, &[to, x.into()]);
            }
            plans.push((reg.into(), at, bytes, ty));
            at += size(elem) as i32;
        }
        self.agent_barrier(op)?;
        for (from, at, bytes, ty) in plans {
            let Operand::Reg(from) = from else { continue };
            let mut known: SmallVec<[(u32, Operand); 8]> = SmallVec::new();
            for (r, tuple) in reads.iter_mut().enumerate() {
                let n = number(map.element(r as u32, 0, 0));
                let x = match known.iter().find(|k| k.0 == n) {
                    Some(k) => k.1,
                    None => {
                        let d = self.b.reg(ty);
                        self.b.emit(
                            shared_load(ty, 1),
                            &[d.into(), Operand::addr(from, at + (n * bytes) as i32)],
                        );
                        known.push((n, d.into()));
                        d.into()
                    }
                };
                tuple.push(x);
            }
        }
        Ok(reads)
    }
}
