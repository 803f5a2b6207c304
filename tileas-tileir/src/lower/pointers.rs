//! Pointers, tiles of pointers, and accesses through them.
//!
//! A tile of pointers is a pointer that all elements share, and how many elements behind it each of them is. What is the same for
//! all is moved into the former, so that what is computed element by element is as little and as narrow as the source says: a count
//! that was extended to 64 bits is used as it was before, and of a sum with a scalar the scalar moves the pointer.

use super::{Done, Known, Lowering, Shape, scalar_of};
use crate::entities::Value;
use crate::error::{Code, Error};
use crate::module::{FuncRef, OpRef};
use smallvec::SmallVec;
use tileas_codegen::ir;
use tileas_codegen::ir::builder::OpBuilder;
use tileas_codegen::ir::{AttrData, FloatBits, Opcode as Ir, Scalar, keys};
use tileas_meta::tileir::{Key, Opcode, RmwMode, Scope, Seg, Semantics};

/// Elements of an atomic update of which each thread has one.
const FEW: u32 = 128;

/// Elements of a global that are named one by one.
const MOST_SAID: usize = 1 << 16;

/// Elements behind a pointer.
#[derive(Clone, Debug)]
pub(super) struct Pointer {
    /// The pointer, a scalar.
    pub base: ir::Value,
    /// How many elements behind it: a scalar, or a tile of `shape`; none if it is there.
    pub offset: Option<ir::Value>,
    /// Extents of a tile of pointers.
    pub shape: Option<Shape>,
}

impl Pointer {
    /// A pointer itself.
    pub fn to(base: ir::Value) -> Pointer {
        Pointer { base, offset: None, shape: None }
    }
}

/// What a pointer or view is made of, as far back as it can be followed.
pub(super) fn root(func: FuncRef<'_>, mut v: Value) -> Value {
    while let Some(op) = func.def_op(v) {
        let from = match op.opcode() {
            Opcode::Assume
            | Opcode::Offset
            | Opcode::Reshape
            | Opcode::Broadcast
            | Opcode::PtrToPtr
            | Opcode::MakeTensorView
            | Opcode::MakePartitionView
            | Opcode::MakeStridedView
            | Opcode::MakeGatherScatterView => op.operands().first(),
            _ => None,
        };
        match from {
            Some(&from) => v = from,
            None => break,
        }
    }
    v
}

/// Whether the kernel cannot tell in which order its atomic updates of tiles, and what stands around them, become
/// visible: it waits for nothing, and loads nothing of what it stores.
pub(super) fn updates_are_unordered(func: FuncRef<'_>) -> bool {
    let (mut stored, mut loaded) = (Vec::new(), Vec::new());
    for op in func.ops() {
        match op.opcode() {
            Opcode::Loop => return false,
            Opcode::AtomicRmwTko | Opcode::AtomicCasTko
                if op.operand(Seg::Pointers).is_some_and(|v| func.ty(v).scalar().is_some()) =>
            {
                return false;
            }
            Opcode::StorePtrTko => stored.extend(op.operand(Seg::Destination).map(|v| root(func, v))),
            Opcode::StoreViewTko => stored.extend(op.operand(Seg::View).map(|v| root(func, v))),
            Opcode::LoadPtrTko => loaded.extend(op.operand(Seg::Source).map(|v| root(func, v))),
            Opcode::LoadViewTko => loaded.extend(op.operand(Seg::View).map(|v| root(func, v))),
            _ => {}
        }
    }
    !stored.iter().any(|v| loaded.contains(v))
}

/// An access in its order.
pub(super) fn ordered<'b, 'a>(made: OpBuilder<'b, 'a>, order: Option<[ir::Sym; 2]>) -> OpBuilder<'b, 'a> {
    match order {
        Some([semantic, scope]) => made.name(keys::MEM_SEMANTIC, semantic).name(keys::MEM_SCOPE, scope),
        None => made,
    }
}

fn scope_name(scope: Scope) -> &'static str {
    match scope {
        Scope::TileBlock => "cta",
        Scope::Device => "gpu",
        Scope::System => "sys",
    }
}

impl<'m> Lowering<'m, '_> {
    pub(super) fn pointer(&mut self, op: OpRef<'m>, v: Option<Value>) -> Result<Pointer, Box<Error>> {
        match v.map(|v| self.known[v].clone()) {
            Some(Known::Pointer(p)) => Ok(p),
            Some(Known::Nothing) | None => Err(self.silent()),
            _ => Err(op.error(Code::E1643, "a pointer that is not made from a parameter is not supported")),
        }
    }

    /// How many elements behind its base a pointer is, in 64 bits.
    pub(super) fn count_of(&mut self, p: &Pointer) -> ir::Value {
        let zero = |this: &mut Self| this.integer(0, Scalar::I64);
        let count = match p.offset {
            Some(offset) => self.resized(offset, Scalar::I64),
            None => zero(self),
        };
        match (&p.shape, self.b.func().value_data(count).is_tile()) {
            (Some(shape), false) => {
                let shape = shape.clone();
                self.splat(count, &shape)
            }
            _ => count,
        }
    }

    /// A pointer that is no tile, as one value.
    pub(super) fn single(&mut self, p: &Pointer) -> ir::Value {
        match p.offset {
            Some(by) => self.moved(p.base, by),
            None => p.base,
        }
    }

    /// Its address.
    pub(super) fn address(&mut self, p: &Pointer) -> ir::Value {
        let (base, ty) = (self.single(p), self.b.scalar_type(Scalar::I64));
        self.b.op(Ir::PtrToInt).operand(base).results(&[ty]).finish_one()
    }

    /// The pointer of an address that loops or branches handed on as `v`, and which may be of any of the parameters that it was made of.
    pub(super) fn at_address(&mut self, v: Value, address: ir::Value, ty: ir::Type) -> Pointer {
        let mut base = self.b.op(Ir::IntToPtr).operand(address).results(&[ty]).finish_one();
        if let Some(Known::Pointer(of)) = self.chosen[v].map(|param| self.known[param].clone()) {
            base = self.b.op(Ir::MayAlias).operand(base).operand(of.base).results(&[ty]).finish_one();
        }
        Pointer::to(base)
    }

    /// The pointer with what is counted from it added.
    pub(super) fn moved(&mut self, base: ir::Value, by: ir::Value) -> ir::Value {
        let ty = self.b.func().value_type(base);
        let v = self.b.op(Ir::Offset).operand(base).operand(by).results(&[ty]).finish_one();
        let bytes = u64::from(self.b.func().value_data(base).elem().map_or(1, Scalar::bytes));
        let of = |v: &ir::Value| self.divisors.get(v).copied().unwrap_or(1);
        let divisor = of(&base).min(of(&by).saturating_mul(bytes));
        self.divisors.insert(v, divisor);
        v
    }

    /// A tile of counts as one that differs from element to element, and what is the same for all.
    fn parted(&mut self, count: ir::Value, fuel: u32) -> (Option<ir::Value>, Option<ir::Value>) {
        if let Some(same) = self.splat_of(count) {
            return (None, Some(same));
        }
        let f = self.b.func();
        let Some(op) = f.defining_op(count).filter(|_| fuel > 0) else { return (Some(count), None) };
        match (f.opcode(op), f.operands(op)) {
            (Ir::Addi, &[a, b]) => {
                let (x, p) = self.parted(a, fuel - 1);
                let (y, q) = self.parted(b, fuel - 1);
                if p.is_none() && q.is_none() {
                    return (Some(count), None);
                }
                let sum = |this: &mut Self, x: Option<ir::Value>, y: Option<ir::Value>| match (x, y) {
                    (Some(x), Some(y)) => {
                        let ty = this.b.func().value_type(x);
                        let v = this.b.op(Ir::Addi).operand(x).operand(y).results(&[ty]).finish_one();
                        let of = |v| this.divisors.get(&v).copied().unwrap_or(1);
                        let d = of(x).min(of(y));
                        this.divisors.insert(v, d);
                        Some(v)
                    }
                    (x, y) => x.or(y),
                };
                (sum(self, x, y), sum(self, p, q))
            }
            _ => (Some(count), None),
        }
    }

    pub(super) fn offset(&mut self, op: OpRef<'m>) -> Done {
        let p = self.pointer(op, op.operand(Seg::Pointers))?;
        let by = self.named(op, Seg::Offset)?;
        let Some(result) = op.result(0) else { return Ok(()) };
        self.known[result] = Known::Pointer(match p.shape {
            None => {
                let base = self.single(&p);
                let by = self.as_scalar(by);
                let by = self.narrowed(by);
                Pointer::to(self.moved(base, by))
            }
            Some(ref shape) => {
                // Sums of 64 bits do not wrap; narrower ones might where they are taken apart.
                let wide = self.b.func().value_data(by).elem() == Some(Scalar::I64);
                let (varies, same) = match wide {
                    true => self.parted(by, 8),
                    false => match self.splat_of(by) {
                        Some(same) => (None, Some(same)),
                        None => (Some(by), None),
                    },
                };
                let base = match same {
                    Some(by) => {
                        let by = self.narrowed(by);
                        self.moved(p.base, by)
                    }
                    None => p.base,
                };
                let varies = varies.map(|v| self.narrowed(v));
                let offset = match (p.offset, varies) {
                    (Some(x), Some(y)) => {
                        let (x, y) = (self.resized(x, Scalar::I64), self.resized(y, Scalar::I64));
                        let ty = self.b.func().value_type(y);
                        Some(self.b.op(Ir::Addi).operand(x).operand(y).results(&[ty]).finish_one())
                    }
                    (x, y) => x.or(y),
                };
                Pointer { base, offset, shape: Some(shape.clone()) }
            }
        });
        Ok(())
    }

    /// An integer before it was extended with its sign.
    fn narrowed(&mut self, x: ir::Value) -> ir::Value {
        let f = self.b.func();
        let from = f
            .defining_op(x)
            .filter(|&op| f.opcode(op) == Ir::Exti && !f.has_attr(op, keys::UNSIGNED))
            .and_then(|op| f.operands(op).first().copied());
        from.filter(|&v| f.value_data(v).elem() == Some(Scalar::I32)).unwrap_or(x)
    }

    /// As [`Self::narrowed`], also of what all elements are.
    pub(super) fn unextended(&mut self, x: ir::Value) -> ir::Value {
        let data = self.b.func().value_data(x);
        let Some(shape) = data.dims().filter(|_| data.is_tile()).map(Shape::from_slice) else {
            return self.narrowed(x);
        };
        match self.splat_of(x) {
            Some(same) => {
                let same = self.narrowed(same);
                self.splat(same, &shape)
            }
            None => self.narrowed(x),
        }
    }

    /// The coordinate of an access.
    fn coordinate(&mut self, p: &Pointer) -> ir::Value {
        p.offset.unwrap_or_else(|| self.integer(0, Scalar::I32))
    }

    /// The mask of an access, and whether it says nothing.
    fn mask(&mut self, op: OpRef<'m>, p: &Pointer) -> Result<Option<ir::Value>, Box<Error>> {
        let Some(mask) = op.operand(Seg::Mask) else { return Ok(None) };
        let m = self.value(op, mask)?;
        if p.shape.is_none() || p.offset.is_none() {
            if let Some(all) = self.splat_of(m) {
                return Ok(Some(all));
            }
            return Ok(Some(if p.shape.is_none() { self.as_scalar(m) } else { m }));
        }
        Ok(Some(m))
    }

    /// The number that an access pads with, if it is one, and else what it pads with.
    fn padding(&mut self, op: OpRef<'m>) -> Result<(f64, Option<ir::Value>), Box<Error>> {
        let Some(v) = op.operand(Seg::Padding) else { return Ok((0.0, None)) };
        let x = self.value(op, v)?;
        let f = self.b.func();
        let number = f
            .defining_op(x)
            .filter(|&d| f.opcode(d) == Ir::Constant)
            .and_then(|d| f.attr_number(d, keys::VALUE));
        Ok(match number {
            // Numbers of 64 bits need not be exact.
            Some(n) if n.abs() < 9e15 || !n.is_finite() => (n, None),
            _ => (0.0, Some(x)),
        })
    }

    pub(super) fn load_pointer(&mut self, op: OpRef<'m>) -> Done {
        self.tokens(op);
        let Some(result) = op.result(0) else { return Ok(()) };
        if matches!(self.func.ty(result).tile(), Some((crate::types::Elem::Ptr { .. }, _))) {
            return Err(op.error(Code::E1643, "pointers in memory are not supported"));
        }
        let p = self.pointer(op, op.operand(Seg::Source))?;
        let mask = self.mask(op, &p)?;
        let (number, padding) = self.padding(op)?;
        let (elem, shape) = self.tile_type(op, result)?;
        let at = self.coordinate(&p);
        // All elements are one: a scalar, unless a mask tells them apart.
        let tile_mask = mask.is_some_and(|m| self.b.func().value_data(m).is_tile());
        let single = p.offset.is_none() && !tile_mask || p.shape.is_none();
        let at = match tile_mask && p.offset.is_none() {
            true => self.splat(at, &shape),
            false => at,
        };
        let ty = if single { self.b.scalar_type(elem) } else { self.b.tile_type(&shape, elem) };
        let order = self.order(op);
        let made = self.b.op(Ir::Gather).operand(p.base).operands(&[at]).optional(mask);
        let made = match elem.is_float() {
            true => made.attr(keys::PADDING, AttrData::Float(ir::FloatBits::new(number), None)),
            false => made.int(keys::PADDING, number as i64),
        };
        let v = ordered(made, order).results(&[ty]).finish_one();
        let v = match single && p.shape.is_some() {
            true => self.splat(v, &shape),
            false => v,
        };
        let v = match (padding, mask) {
            (Some(other), Some(mask)) => {
                let ty = self.b.func().value_type(v);
                self.b.op(Ir::Select).operand(mask).operand(v).operand(other).results(&[ty]).finish_one()
            }
            _ => v,
        };
        self.known[result] = Known::Value(v);
        Ok(())
    }

    pub(super) fn store_pointer(&mut self, op: OpRef<'m>) -> Done {
        self.tokens(op);
        let p = self.pointer(op, op.operand(Seg::Destination))?;
        let value = self.named(op, Seg::Value)?;
        let mask = self.mask(op, &p)?;
        let at = self.coordinate(&p);
        let value = match self.b.func().value_data(value).is_tile() {
            // One element.
            false => self.splat(value, &[1]),
            true if self.b.func().value_data(value).rank() == 0 => self.reshaped(value, &[1]),
            true => value,
        };
        let order = self.order(op);
        let made = self.b.op(Ir::Scatter).operand(value).operand(p.base).operands(&[at]).optional(mask);
        ordered(made, order).finish();
        Ok(())
    }

    /// The semantic and the scope of a load or store, if it is not weak.
    pub(super) fn order(&mut self, op: OpRef<'m>) -> Option<[ir::Sym; 2]> {
        let semantic = op.get::<Semantics>(Key::Semantics).filter(|&s| s != Semantics::Weak)?;
        let scope = op.get::<Scope>(Key::Scope).map_or("sys", scope_name);
        let f = self.b.func();
        Some([f.intern_symbol(semantic.name()), f.intern_symbol(scope)])
    }

    /// An atomic update, of one element or of those of a tile.
    pub(super) fn update_pointer(&mut self, op: OpRef<'m>) -> Done {
        self.tokens(op);
        let p = self.pointer(op, op.operand(Seg::Pointers))?;
        let mask = self.mask(op, &p)?;
        let swap = op.opcode() == Opcode::AtomicCasTko;
        let (compare, value) = match swap {
            true => (Some(self.named(op, Seg::Cmp)?), self.named(op, Seg::Value)?),
            false => (None, self.named(op, Seg::Arg)?),
        };
        let single = p.shape.is_none();
        let one = |this: &mut Self, v| if single { this.as_scalar(v) } else { v };
        let (compare, value) = (compare.map(|v| one(self, v)), one(self, value));
        let mut at = self.coordinate(&p);
        if let (Some(shape), None) = (&p.shape, p.offset) {
            at = self.splat(at, &shape.clone());
        }
        let used = op.result(0).is_some_and(|r| self.uses[r] > 0);
        let n: u32 = p.shape.as_ref().map_or(1, |s| s.iter().product());
        if let (Some(shape), true, true) = (&p.shape, used, n < FEW) {
            return self.update_few(op, p.base, [value, at], compare, mask, &shape.clone());
        }
        let v = self.update(op, p.base, value, compare, &[at], mask, single)?;
        self.set(op, v);
        Ok(())
    }

    /// An update of fewer elements than there are threads, whose results are asked for: all threads take part, those beyond the elements
    /// with nothing to do; what they give is 0.
    fn update_few(
        &mut self,
        op: OpRef<'m>,
        base: ir::Value,
        [value, at]: [ir::Value; 2],
        compare: Option<ir::Value>,
        mask: Option<ir::Value>,
        shape: &[u32],
    ) -> Done {
        let n: u32 = shape.iter().product();
        let wide: Shape = SmallVec::from_slice(&[FEW / n, n]);
        let spread = |this: &mut Self, v: ir::Value| {
            let v = this.reshaped(v, &[1, n]);
            this.spread(v, &wide)
        };
        let (value, at) = (spread(self, value), spread(self, at));
        let compare = compare.map(|v| spread(self, v));
        let counts = self.b.tile_type(&[FEW / n], Scalar::I32);
        let copy = self.b.op(Ir::Iota).results(&[counts]).finish_one();
        let copy = self.reshaped(copy, &[FEW / n, 1]);
        let copy = self.spread(copy, &wide);
        let zero = self.integer(0, Scalar::I32);
        let (zero, truth) = (self.splat(zero, &wide), self.b.tile_type(&wide, Scalar::I1));
        let equal = self.b.func().intern_symbol("eq");
        let first = self.b.op(Ir::Cmpi).operand(copy).operand(zero).name(keys::PREDICATE, equal);
        let first = first.results(&[truth]).finish_one();
        let mask = match mask {
            Some(mask) => {
                let mask = spread(self, mask);
                self.b.op(Ir::Andi).operand(mask).operand(first).results(&[truth]).finish_one()
            }
            None => first,
        };
        let all = self.update(op, base, value, compare, &[at], Some(mask), false)?;
        let Some(elem) = self.b.func().value_data(all).elem() else { return Ok(()) };
        let (add, ty) = (self.b.func().intern_symbol("add"), self.b.tile_type(&[n], elem));
        let sum = self.b.op(Ir::Reduce).operand(all).name(keys::MODE, add).int(keys::AXIS, 0);
        let sum = sum.results(&[ty]).finish_one();
        let v = self.reshaped(sum, shape);
        self.set(op, v);
        Ok(())
    }

    /// An update at coordinates.
    #[expect(clippy::too_many_arguments, reason = "what the op has")]
    pub(super) fn update(
        &mut self,
        op: OpRef<'m>,
        base: ir::Value,
        value: ir::Value,
        compare: Option<ir::Value>,
        coords: &[ir::Value],
        mask: Option<ir::Value>,
        single: bool,
    ) -> Result<ir::Value, Box<Error>> {
        let semantic = match op.get::<Semantics>(Key::Semantics).unwrap_or(Semantics::Relaxed) {
            Semantics::Weak | Semantics::Relaxed => "relaxed",
            _ if !single && self.relaxed => "relaxed",
            other => other.name(),
        };
        let mode = match op.get::<RmwMode>(Key::Mode) {
            None => None,
            Some(RmwMode::And) => Some(("andi", false)),
            Some(RmwMode::Or) => Some(("ori", false)),
            Some(RmwMode::Xor) => Some(("xori", false)),
            Some(RmwMode::Add) => Some(("addi", false)),
            Some(RmwMode::Addf) => Some(("addf", false)),
            Some(RmwMode::Max) => Some(("maxi", false)),
            Some(RmwMode::Min) => Some(("mini", false)),
            Some(RmwMode::Umax) => Some(("maxi", true)),
            Some(RmwMode::Umin) => Some(("mini", true)),
            Some(RmwMode::Xchg) => Some(("exch", false)),
        };
        let ty = self.b.func().value_type(value);
        let f = self.b.func();
        let scope = op.get::<Scope>(Key::Scope).map_or("gpu", scope_name);
        let (semantic, scope) = (f.intern_symbol(semantic), f.intern_symbol(scope));
        let mode = mode.map(|(name, unsigned)| (f.intern_symbol(name), unsigned));
        let made = match compare {
            Some(compare) => self.b.op(Ir::AtomicCas).operand(compare),
            None => self.b.op(Ir::AtomicRmw),
        };
        let made = made.operand(value).operand(base).operands(coords).optional(mask);
        let made = made.name(keys::MEM_SEMANTIC, semantic).name(keys::MEM_SCOPE, scope);
        let made = match mode {
            Some((name, true)) => made.name(keys::MODE, name).unit(keys::UNSIGNED),
            Some((name, false)) => made.name(keys::MODE, name),
            None => made,
        };
        Ok(made.results(&[ty]).finish_one())
    }

    /// The pointer, or tile of pointers, `v` of addresses: a tile is one of elements behind address 0.
    fn at_addresses(&mut self, v: Value, x: ir::Value, elem: Scalar) -> Pointer {
        let ty = self.b.ptr_type(elem, tileas_codegen::ir::Space::Gmem);
        let data = self.b.func().value_data(x);
        let shape = data.dims().filter(|dims| data.is_tile() && !dims.is_empty()).map(Shape::from_slice);
        let (same, offset) = match (&shape, self.splat_of(x)) {
            (None, _) => (self.as_scalar(x), None),
            (Some(_), Some(same)) => (same, None),
            (Some(shape), None) => {
                let shift = self.integer(elem.bytes().trailing_zeros().into(), Scalar::I64);
                let (shift, ty) = (self.splat(shift, shape), self.b.func().value_type(x));
                let number = self.b.op(Ir::Shri).operand(x).operand(shift).results(&[ty]).finish_one();
                (self.integer(0, Scalar::I64), Some(number))
            }
        };
        let base = self.at_address(v, same, ty).base;
        self.divisors.insert(base, self.divisors.get(&same).copied().unwrap_or(1));
        Pointer { base, offset, shape }
    }

    /// The address of a pointer, or of each of a tile.
    pub(super) fn addresses(&mut self, p: &Pointer) -> ir::Value {
        let Some(shape) = p.shape.clone() else { return self.address(p) };
        let first = self.address(&Pointer::to(p.base));
        let first = self.splat(first, &shape);
        if p.offset.is_none() {
            return first;
        }
        let bytes = self.b.func().value_data(p.base).elem().map_or(1, Scalar::bytes);
        let (bytes, ty) = (self.integer(bytes.into(), Scalar::I64), self.b.func().value_type(first));
        let (count, bytes) = (self.count_of(p), self.splat(bytes, &shape));
        let count = self.b.op(Ir::Muli).operand(count).operand(bytes).results(&[ty]).finish_one();
        self.b.op(Ir::Addi).operand(first).operand(count).results(&[ty]).finish_one()
    }

    /// A pointer whose address was computed, or loaded.
    pub(super) fn int_to_ptr(&mut self, op: OpRef<'m>) -> Done {
        let (Some(source), Some(result)) = (op.operand(Seg::Source), op.result(0)) else { return Ok(()) };
        let (elem, x) = (self.pointee(op, result)?, self.value(op, source)?);
        self.known[result] = Known::Pointer(self.at_addresses(result, x, elem));
        Ok(())
    }

    /// A pointer to a global, which becomes a variable of the kernel.
    pub(super) fn global(&mut self, op: OpRef<'m>) -> Done {
        let (Some(result), module) = (op.result(0), self.func.module) else { return Ok(()) };
        let elem = self.pointee(op, result)?;
        let name = op.text(Key::Name).unwrap_or_default();
        let found = module.globals.values().find(|g| module.str(g.name) == name);
        let Some((global, all)) = found.and_then(|g| Some((g, module.elements(g.ty, g.value)?))) else {
            return Err(op.error(Code::E1643, format!("global @{name} has no elements")));
        };
        // Names in PTX have no points.
        let clean = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
        let name: String = name.chars().map(clean).collect();
        // Zeros at the end need not be said.
        let is_zero = |i: usize| all.get(i).is_none_or(|x| x.bits == 0);
        let said = match all.splat() {
            Some(x) if x.bits == 0 => 0,
            _ => (0..all.len()).rev().find(|&i| !is_zero(i)).map_or(0, |i| i + 1),
        };
        if said > MOST_SAID {
            let text = format!(
                "global @{name} has {said} elements up to the last that is not 0, {MOST_SAID} are supported"
            );
            return Err(op.error(Code::E1643, text));
        }
        let f = self.b.func();
        let number = |i: usize| {
            let x = all.get(i)?;
            Some(match elem.is_float() {
                true => AttrData::Float(FloatBits::new(x.float()), None),
                false => AttrData::Int(x.signed(), None),
            })
        };
        let list = (0..said).filter_map(number).map(|data| f.intern_attr(data)).collect();
        let ty = self.b.ptr_type(elem, tileas_codegen::ir::Space::Gmem);
        let make = self
            .b
            .op(Ir::Global)
            .attr(keys::NAME, AttrData::Str(name))
            .attr(keys::VALUES, AttrData::Array(list));
        let make = make.int(keys::SIZE, all.len() as i64);
        let base = match global.alignment {
            0 => make,
            n => make.int(keys::ALIGN, n as i64),
        };
        let base = base.results(&[ty]).finish_one();
        self.divisors.insert(base, global.alignment.max(16));
        self.known[result] = Known::Pointer(Pointer::to(base));
        Ok(())
    }

    pub(super) fn ptr_to_int(&mut self, op: OpRef<'m>) -> Done {
        let p = self.pointer(op, op.operand(Seg::Source))?;
        let Some(result) = op.result(0) else { return Ok(()) };
        self.known[result] = Known::Value(self.addresses(&p));
        Ok(())
    }

    /// A choice of pointers: to one array of what is counted from it, else of addresses.
    pub(super) fn choose(&mut self, op: OpRef<'m>, a: &Pointer, b: &Pointer) -> Done {
        let (condition, Some(result)) = (self.named(op, Seg::Cond)?, op.result(0)) else { return Ok(()) };
        let one = a.base == b.base;
        let (x, y) = match one {
            true => (self.count_of(a), self.count_of(b)),
            false => (self.addresses(a), self.addresses(b)),
        };
        let ty = self.b.func().value_type(x);
        let v = self.b.op(Ir::Select).operand(condition).operand(x).operand(y).results(&[ty]).finish_one();
        self.known[result] = Known::Pointer(match one {
            true => Pointer { offset: Some(v), ..a.clone() },
            false => {
                let elem = self.pointee(op, result)?;
                self.at_addresses(result, v, elem)
            }
        });
        Ok(())
    }

    /// A pointer to elements of another type at the same address, which leads to what the first one leads to.
    pub(super) fn ptr_to_ptr(&mut self, op: OpRef<'m>) -> Done {
        let p = self.pointer(op, op.operand(Seg::Source))?;
        let Some(result) = op.result(0) else { return Ok(()) };
        let (to, from) = (self.pointee(op, result)?, self.b.func().value_data(p.base).elem());
        let Some(from) = from.filter(|&from| from != to) else {
            self.known[result] = Known::Pointer(p);
            return Ok(());
        };
        let factor = from.bytes() / to.bytes();
        let whole = from.bytes() % to.bytes() == 0 && !from.is_packed() && !to.is_packed();
        let (old, offset) = match (&p.shape, p.offset) {
            (None, _) => (self.single(&p), None),
            (Some(_), None) => (p.base, None),
            // What is counted in elements of the one type is no whole number of the other.
            (Some(_), Some(_)) if !whole => {
                let all = self.addresses(&p);
                self.known[result] = Known::Pointer(self.at_addresses(result, all, to));
                return Ok(());
            }
            (Some(shape), Some(_)) => {
                let (shape, count) = (shape.clone(), self.count_of(&p));
                let (factor, ty) =
                    (self.integer(i64::from(factor), Scalar::I64), self.b.tile_type(&shape, Scalar::I64));
                let factor = self.splat(factor, &shape);
                let count = self.b.op(Ir::Muli).operand(count).operand(factor).results(&[ty]).finish_one();
                (p.base, Some(count))
            }
        };
        let address = self.address(&Pointer::to(old));
        let base = self.at_addresses(result, address, to).base;
        self.divisors.insert(base, self.divisors.get(&old).copied().unwrap_or(1));
        self.known[result] = Known::Pointer(Pointer { base, offset, shape: p.shape });
        Ok(())
    }

    /// Bytes of what a pointer leads to.
    pub(super) fn pointee(&self, op: OpRef<'m>, v: Value) -> Result<Scalar, Box<Error>> {
        let pointee = self.func.ty(v).tile().and_then(|(e, _)| e.pointee()).and_then(scalar_of);
        pointee.ok_or_else(|| op.error(Code::E1642, "a pointer to elements of a supported type is expected"))
    }
}
