//! Elements of 4 bits: two to a byte in memory, one to a byte in registers.
//!
//! In: a kernel in value form. Out: the same without [packed](Scalar::is_packed) element types, or nothing where it has none. All later stages, and
//! the host, know bytes alone:
//!
//! - a view of such elements is one of bytes, with half as many along the innermost dimension, and so are boxes and what a pointer leads to. Where an
//!   extent or stride of a view made of a pointer is not a constant, it is assumed to be even, and the host checks what it knows;
//! - a tile is one of `i8`, each of which is the element's bits, 0 to 15. A loaded byte is taken apart (the first element is in its low bits), a stored
//!   one put together; what is computed stays in the thread that loads or stores the byte;
//! - conversions are arithmetic on the bits: by f16 from e2m1, whose exponent and fraction are those of f16 but for the range; by rounding in each
//!   of its three steps to it.
//!
//! The verifier has refused everything else. Guarantee: the same elements, order, names and attributes. Cost: linear in ops and operands.

use super::Renames;
use crate::ir::opcodes::keys;
use crate::ir::{AttrData, Dim, Function, Op, Opcode, Scalar, Type, TypeData, Value};
use cranelift_entity::EntityRef;
use smallvec::SmallVec;

/// Writes packed elements as bytes; `None`: there are none. `spare` is a function that is no longer needed.
pub fn unpack(func: &Function, spare: &mut Option<Function>) -> Option<Function> {
    let packed = |v: &Value| is_packed(func, *v);
    if !func.params().iter().any(packed) && !func.ops().any(|op| func.results(op).iter().any(packed)) {
        return None;
    }
    let mut out = func.copy_in(spare.take());
    let mut renamed = Renames::default();
    for op in out.all_ops() {
        rewrite(&mut out, op, &mut renamed);
    }
    renamed.apply(&mut out);
    // Conversions asked what was converted: types change last.
    for v in (0..out.num_values()).map(Value::new) {
        if is_packed(&out, v) {
            let ty = as_bytes(&mut out, v);
            out.set_value_type(v, ty);
        }
    }
    Some(out)
}

fn is_packed(func: &Function, v: Value) -> bool {
    func.value_data(v).elem().is_some_and(Scalar::is_packed)
}

/// The type that stands for that of a value with packed elements. Tiles keep their extents.
fn as_bytes(func: &mut Function, v: Value) -> Type {
    let mut data = func.value_data(v).clone();
    match &mut data {
        TypeData::Scalar(elem) | TypeData::Ptr { elem, .. } | TypeData::Tile { elem, .. } => {
            *elem = Scalar::I8
        }
        TypeData::View { dims, elem, .. } => {
            *elem = Scalar::I8;
            if let Some(Dim::Static(n)) = dims.last_mut() {
                *n /= 2;
            }
        }
        TypeData::TmaDesc { dims, elem } => {
            *elem = Scalar::I8;
            if let Some(n) = dims.last_mut() {
                *n /= 2;
            }
        }
        _ => {}
    }
    func.intern_type(data)
}

/// Writes ops in front of one.
struct Before<'a> {
    func: &'a mut Function,
    at: Op,
}

impl Before<'_> {
    fn put(&mut self, opcode: Opcode, operands: &[Value], ty: Type) -> Value {
        let segments: SmallVec<[u32; 3]> = SmallVec::from_elem(1, operands.len());
        let op = self.func.make_op(opcode, operands, &segments, &[ty], self.func.op_loc(self.at));
        self.func.insert_before(self.at, op);
        self.func.results(op)[0]
    }

    /// What `put` does, with one attribute.
    fn with(
        &mut self,
        opcode: Opcode,
        operands: &[Value],
        ty: Type,
        key: crate::ir::Sym,
        data: AttrData,
    ) -> Value {
        let v = self.put(opcode, operands, ty);
        if let Some(op) = self.func.defining_op(v) {
            self.func.set_attr(op, key, data);
        }
        v
    }

    /// The type of a scalar or tile, with other elements.
    fn like(&mut self, v: Value, elem: Scalar) -> Type {
        let data = match self.func.value_data(v).clone() {
            TypeData::Tile { dims, space, layout, .. } => TypeData::Tile { dims, elem, space, layout },
            _ => TypeData::Scalar(elem),
        };
        self.func.intern_type(data)
    }

    fn int(&mut self, ty: Type, n: i64) -> Value {
        self.with(Opcode::Constant, &[], ty, keys::VALUE, AttrData::Int(n, None))
    }

    fn float(&mut self, ty: Type, x: f64) -> Value {
        self.with(Opcode::Constant, &[], ty, keys::VALUE, Function::float_attr(x))
    }

    /// An op on a value and a number.
    fn by(&mut self, opcode: Opcode, v: Value, n: i64) -> Value {
        let ty = self.func.value_type(v);
        let n = self.int(ty, n);
        self.put(opcode, &[v, n], ty)
    }

    /// A logical shift to the right.
    fn shifted(&mut self, v: Value, n: i64) -> Value {
        let ty = self.func.value_type(v);
        let n = self.int(ty, n);
        self.with(Opcode::Shri, &[v, n], ty, keys::UNSIGNED, AttrData::Unit)
    }

    fn tile(&mut self, dims: &[u32]) -> Type {
        self.func.intern_type(TypeData::tile(dims, Scalar::I8))
    }

    /// An extent, stride or distance in bytes.
    fn halved(&mut self, v: Value) -> Value {
        let ty = self.func.value_type(v);
        if let Some(n) = self.func.constant_value(v) {
            return self.int(ty, n as i64 / 2);
        }
        let even = self.with(Opcode::Assume, &[v], ty, keys::DIV_BY, AttrData::Int(2, None));
        let two = self.int(ty, 2);
        let down = AttrData::Name(self.func.intern_symbol("negative_inf"));
        self.with(Opcode::Divi, &[even, two], ty, keys::ROUNDING, down)
    }
}

/// Rows and the elements of each, of a tile.
fn rows_columns(dims: &[u32]) -> (u32, u32) {
    let columns = dims.last().copied().unwrap_or(1);
    (dims.iter().product::<u32>() / columns.max(1), columns)
}

fn rewrite(func: &mut Function, op: Op, renamed: &mut Renames) {
    let opcode = func.opcode(op);
    let packed = |n: usize| func.operands(op).get(n).is_some_and(|&v| is_packed(func, v));
    let made = func.result(op).filter(|&v| is_packed(func, v));
    match opcode {
        Opcode::Constant => {
            if let (Some(v), Some(x)) = (made, func.attr_number(op, keys::VALUE)) {
                let bits = bits_of(func.value_data(v).elem(), x);
                func.set_int(op, keys::VALUE, bits);
            }
        }
        Opcode::TiledLoad | Opcode::AsyncTiledTmaLoad => {
            if let Some(v) = made {
                unpack_loaded(func, op, v, renamed);
            }
        }
        Opcode::TiledStore | Opcode::AsyncTiledTmaStore => {
            let tile = |&v: &Value| is_packed(func, v) && func.value_data(v).is_tile();
            if let Some(at) = func.operands(op).iter().position(tile) {
                let n = func.operands(op)[at];
                let bytes = packed_bytes(&mut Before { func, at: op }, renamed.of(n));
                func.set_operand(op, at, bytes);
            }
        }
        Opcode::MakeTiledTmaDesc if made.is_some() => {
            if let Some(mut dims) = func.attr_ints(op, keys::BOX) {
                dims.iter_mut().last().into_iter().for_each(|n| *n /= 2);
                func.set_ints(op, keys::BOX, &dims);
            }
        }
        Opcode::MakeView if made.is_some() => {
            // Behind the pointer and the other extents stand the innermost one and the strides.
            for n in func.named_segment(op, "extents").len()..func.operands(op).len() {
                halve_operand(func, op, n);
            }
        }
        Opcode::Offset if made.is_some() => halve_operand(func, op, 1),
        Opcode::Dim if packed(0) => double_extent(func, op, renamed),
        Opcode::Exti | Opcode::Itof if packed(0) => {
            let source = renamed.of(func.operands(op)[0]);
            let unsigned = func.has_attr(op, keys::UNSIGNED);
            let mut b = Before { func, at: op };
            let number = match unsigned {
                true => source,
                false => signed(&mut b, source),
            };
            let same = func.result(op).filter(|&v| func.value_data(v).elem() == Some(Scalar::I8));
            match same {
                Some(result) => become_of(func, op, result, number, renamed),
                None => func.set_operand(op, 0, number),
            }
        }
        // The sign of a truth value is all of its bits.
        Opcode::Exti => {
            if let (Some(result), Some(&source)) = (made, func.operands(op).first()) {
                let mut b = Before { func, at: op };
                let (source, ty) = (renamed.of(source), b.like(source, Scalar::I8));
                let byte = match b.func.has_attr(op, keys::UNSIGNED) {
                    true => b.with(Opcode::Exti, &[source], ty, keys::UNSIGNED, AttrData::Unit),
                    false => b.put(Opcode::Exti, &[source], ty),
                };
                let bits = b.by(Opcode::Andi, byte, 15);
                become_of(func, op, result, bits, renamed);
            }
        }
        Opcode::Trunci => {
            if let (Some(result), Some(&source)) = (made, func.operands(op).first()) {
                let mut b = Before { func, at: op };
                let ty = b.like(source, Scalar::I8);
                let source = renamed.of(source);
                // What is not a byte yet is one in the end.
                let byte = match b.func.value_data(source).elem() {
                    Some(s) if s == Scalar::I8 || s.is_packed() => source,
                    _ => b.put(Opcode::Trunci, &[source], ty),
                };
                let bits = b.by(Opcode::Andi, byte, 15);
                become_of(func, op, result, bits, renamed);
            }
        }
        Opcode::Ftof => {
            let Some(result) = func.result(op) else { return };
            if packed(0) {
                let source = renamed.of(func.operands(op)[0]);
                let number = number_of(&mut Before { func, at: op }, source);
                match func.value_data(result).elem() {
                    Some(Scalar::F16) => become_of(func, op, result, number, renamed),
                    _ => func.set_operand(op, 0, number),
                }
            }
            if made.is_some() {
                let source = renamed.of(func.operands(op)[0]);
                let bits = nearest(&mut Before { func, at: op }, source);
                become_of(func, op, result, bits, renamed);
            }
        }
        Opcode::Bitcast => {
            if let Some(result) = made {
                let source = renamed.of(func.operands(op)[0]);
                become_of(func, op, result, source, renamed);
            }
        }
        _ => {}
    }
}

/// Puts a value in the place of an op's result.
fn become_of(func: &mut Function, op: Op, result: Value, value: Value, renamed: &mut Renames) {
    func.remove_op(op);
    match func.value_sym(value) {
        Some(_) => renamed.set(result, value),
        None => renamed.succeed(func, result, value),
    }
}

fn halve_operand(func: &mut Function, op: Op, n: usize) {
    if let Some(&v) = func.operands(op).get(n) {
        let half = Before { func, at: op }.halved(v);
        func.set_operand(op, n, half);
    }
}

/// The innermost extent of a view that has become one of bytes.
fn double_extent(func: &mut Function, op: Op, renamed: &mut Renames) {
    let (Some(result), Some(&view)) = (func.result(op), func.operands(op).first()) else { return };
    let inner = func.value_data(view).rank().checked_sub(1).map(|d| d as i64);
    if func.attr_int(op, keys::AXIS) != inner {
        return;
    }
    let ty = func.value_type(result);
    let bytes = func.make_op(Opcode::Dim, &[view], &[1], &[ty], func.op_loc(op));
    *func.inherent_mut(bytes) = func.inherent(op).clone();
    func.insert_before(op, bytes);
    let bytes = func.results(bytes)[0];
    let twice = Before { func, at: op }.by(Opcode::Muli, bytes, 2);
    become_of(func, op, result, twice, renamed);
}

/// The bits of a number, in a byte.
fn bits_of(elem: Option<Scalar>, x: f64) -> i64 {
    if elem != Some(Scalar::E2M1) {
        return x as i64 & 15;
    }
    // The numbers of e2m1; at the same distance the even bits win.
    const NUMBERS: [f64; 8] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];
    let size = if x.is_nan() { 6.0 } else { x.abs().min(6.0) };
    let below = NUMBERS.iter().rposition(|&n| n <= size).unwrap_or(0);
    let above = (below + 1).min(7);
    let (down, up) = (size - NUMBERS[below], NUMBERS[above] - size);
    let bits = if up < down || up == down && below % 2 == 1 { above } else { below } as i64;
    if x.is_sign_negative() && !x.is_nan() { bits | 8 } else { bits }
}

/// Loads bytes, and takes them apart.
fn unpack_loaded(func: &mut Function, op: Op, tile: Value, renamed: &mut Renames) {
    let dims: SmallVec<[u32; 4]> = func.value_data(tile).dims().unwrap_or(&[]).into();
    if let Some(x) = func.attr_number(op, keys::PADDING) {
        let bits = bits_of(func.value_data(tile).elem(), x);
        func.set_int(op, keys::PADDING, i64::from((bits * 0x11) as u8 as i8));
    }
    let (rows, columns) = rows_columns(&dims);
    let mut halved = dims.clone();
    halved.iter_mut().last().into_iter().for_each(|n| *n /= 2);
    let operands: SmallVec<[Value; 4]> = func.operands(op).into();
    let segments: SmallVec<[u32; 4]> = func.segments(op).into();
    let ty = func.intern_type(TypeData::tile(&halved, Scalar::I8));
    let load = func.make_op(func.opcode(op), &operands, &segments, &[ty], func.op_loc(op));
    *func.inherent_mut(load) = func.inherent(op).clone();
    *func.discardable_mut(load) = func.discardable(op).clone();
    func.insert_before(op, load);
    let bytes = func.results(load)[0];
    let mut b = Before { func, at: op };
    let low = b.by(Opcode::Andi, bytes, 15);
    let high = b.shifted(bytes, 4);
    let (flat, pairs, whole) =
        (b.tile(&[rows, columns / 2, 1]), b.tile(&[rows, columns / 2, 2]), b.tile(&dims));
    let (low, high) = (b.put(Opcode::Reshape, &[low], flat), b.put(Opcode::Reshape, &[high], flat));
    let both = b.with(Opcode::Cat, &[low, high], pairs, keys::AXIS, AttrData::Int(2, None));
    let all = b.put(Opcode::Reshape, &[both], whole);
    become_of(func, op, tile, all, renamed);
}

/// The bytes of which a tile's elements are the halves.
fn packed_bytes(b: &mut Before<'_>, tile: Value) -> Value {
    let dims: SmallVec<[u32; 4]> = b.func.value_data(tile).dims().unwrap_or(&[]).into();
    let (rows, columns) = rows_columns(&dims);
    let mut halved = dims.clone();
    halved.iter_mut().last().into_iter().for_each(|n| *n /= 2);
    let (pairs, one, flat) =
        (b.tile(&[rows, columns / 2, 2]), b.tile(&[rows, columns / 2, 1]), b.tile(&halved));
    let both = b.put(Opcode::Reshape, &[tile], pairs);
    let [low, high] = [0, 1].map(|n| {
        let op = b.func.make_op(Opcode::ExtractSlice, &[both], &[1, 0], &[one], b.func.op_loc(b.at));
        b.func.set_ints(op, keys::OFFSETS, &[0, 0, n]);
        b.func.set_ints(op, keys::SIZES, &[rows.into(), (columns / 2).into(), 1]);
        b.func.insert_before(b.at, op);
        let part = b.func.results(op)[0];
        b.put(Opcode::Reshape, &[part], flat)
    });
    let high = b.by(Opcode::Shli, high, 4);
    b.put(Opcode::Ori, &[low, high], flat)
}

/// The number of which a byte has the low 4 bits, the highest of them its sign.
fn signed(b: &mut Before<'_>, bits: Value) -> Value {
    let turned = b.by(Opcode::Xori, bits, 8);
    b.by(Opcode::Subi, turned, 8)
}

/// The f16 of e2m1 bits: both have the fraction below the exponent, which begins 14 lower.
fn number_of(b: &mut Before<'_>, bits: Value) -> Value {
    let (wide, half) = (b.like(bits, Scalar::I16), b.like(bits, Scalar::F16));
    let bits = b.with(Opcode::Exti, &[bits], wide, keys::UNSIGNED, AttrData::Unit);
    let size = b.by(Opcode::Andi, bits, 7);
    let size = b.by(Opcode::Shli, size, 9);
    let sign = b.by(Opcode::Andi, bits, 8);
    let sign = b.by(Opcode::Shli, sign, 12);
    let all = b.put(Opcode::Ori, &[size, sign], wide);
    let small = b.put(Opcode::Bitcast, &[all], half);
    let scale = b.float(half, 16384.0);
    b.put(Opcode::Mulf, &[small, scale], half)
}

/// The e2m1 bits nearest to a number, in a byte; NaN is the largest number. From 0 to 2 they count halves, from 2 to 4 ones, from 4 to 6 twos.
fn nearest(b: &mut Before<'_>, x: Value) -> Value {
    // Once rounded is not rounded twice: f64 stays what it is.
    let (work, int) = match b.func.value_data(x).elem() {
        Some(Scalar::F64) => (Scalar::F64, Scalar::I64),
        _ => (Scalar::F32, Scalar::I32),
    };
    let (ty, bits, truth, byte) =
        (b.like(x, work), b.like(x, int), b.like(x, Scalar::I1), b.like(x, Scalar::I8));
    let x = if b.func.value_type(x) == ty { x } else { b.put(Opcode::Ftof, &[x], ty) };
    let size = b.put(Opcode::Absf, &[x], ty);
    let most = b.float(ty, 6.0);
    let size = b.put(Opcode::Minf, &[size, most], ty);
    let step = |b: &mut Before<'_>, scale: f64, add: f64| {
        let scale = b.float(ty, scale);
        let scaled = b.put(Opcode::Mulf, &[size, scale], ty);
        let count = b.put(Opcode::Roundeven, &[scaled], ty);
        let add = b.float(ty, add);
        b.put(Opcode::Addf, &[count, add], ty)
    };
    let (halves, ones, twos) = (step(b, 2.0, 0.0), step(b, 1.0, 2.0), step(b, 0.5, 4.0));
    let below = |b: &mut Before<'_>, limit: f64, yes: Value, no: Value| {
        let (limit, less) = (b.float(ty, limit), AttrData::Name(b.func.intern_symbol("lt")));
        let is = b.with(Opcode::Cmpf, &[size, limit], truth, keys::PREDICATE, less);
        b.put(Opcode::Select, &[is, yes, no], ty)
    };
    let upper = below(b, 4.0, ones, twos);
    let code = below(b, 2.0, halves, upper);
    let code = b.put(Opcode::Ftoi, &[code], byte);
    // The sign of a NaN is none.
    let pattern = b.put(Opcode::Bitcast, &[x], bits);
    let sign = b.shifted(pattern, if work == Scalar::F64 { 60 } else { 28 });
    let sign = b.put(Opcode::Trunci, &[sign], byte);
    let sign = b.by(Opcode::Andi, sign, 8);
    let (none, equal) = (b.int(byte, 0), AttrData::Name(b.func.intern_symbol("eq")));
    let is = b.with(Opcode::Cmpf, &[x, x], truth, keys::PREDICATE, equal);
    let sign = b.put(Opcode::Select, &[is, sign, none], byte);
    b.put(Opcode::Ori, &[code, sign], byte)
}
