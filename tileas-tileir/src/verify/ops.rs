//! Typing rules of the operations, by [`Typing`].

use super::{Check, Globals, fail, is_permutation};
use crate::attr::Attr;
use crate::entities::{Type, Value};
use crate::module::OpRef;
use crate::types::{Elem, Num, TypeData};
use tileas_meta::tileir::{
    Key, Opcode, Overflow, PointerMode, Reduction, Results, RmwMode, Rounding, Scope, Seg, Semantics,
    Signedness, Typing,
};

/// A tile-typed value.
#[derive(Copy, Clone)]
struct Tile<'a> {
    ty: Type,
    elem: Elem,
    shape: &'a [i64],
}

/// Checks one op. Its operands are visible.
pub(super) fn verify(op: OpRef<'_>, globals: &Globals<'_>) -> Check {
    let row = op.row();
    if let Results::Fixed(n) = row.results
        && op.results().len() != usize::from(n)
    {
        fail!(E1623, "{} results, expected {n}", op.results().len());
    }
    let c = Ctx { op, globals };
    match row.typing {
        Typing::Float => c.float(),
        Typing::Int => c.int(),
        Typing::Powi => c.powi(),
        Typing::Cmpf | Typing::Cmpi => c.compare(row.typing == Typing::Cmpf),
        Typing::Bitcast
        | Typing::Exti
        | Typing::Trunci
        | Typing::Ftof
        | Typing::Ftoi
        | Typing::Itof
        | Typing::IntToPtr
        | Typing::PtrToInt
        | Typing::PtrToPtr => c.convert(row.typing),
        Typing::Pack => c.pack(c.one(Seg::Source)?, c.result(0)?),
        Typing::Unpack => c.pack(c.result(0)?, c.one(Seg::Source)?),
        Typing::Broadcast => c.broadcast(),
        Typing::Cat => c.cat(),
        Typing::Constant => c.constant(),
        Typing::Extract => c.extract(),
        Typing::Insert => c.insert(),
        Typing::Iota => c.iota(),
        Typing::Permute => c.permute(),
        Typing::Reshape => c.reshape(),
        Typing::Select => c.select(),
        Typing::Offset => c.offset(),
        Typing::Mmaf | Typing::Mmai => c.mma(),
        Typing::MmafScaled => c.mma_scaled(),
        Typing::Reduce | Typing::Scan => c.reduce(row.typing == Typing::Scan),
        Typing::If => c.branch(),
        Typing::For => c.counted_loop(),
        Typing::Loop => c.endless_loop(),
        Typing::BlockId => c.block_id(),
        Typing::TensorView => c.tensor_view(),
        Typing::View => c.view(),
        Typing::IndexSpace => c.extents(|ty| ty.view().map(|v| v.0.len())),
        Typing::TensorShape => {
            c.extents(|ty| if let TypeData::TensorView { shape, .. } = ty { Some(shape.len()) } else { None })
        }
        Typing::LoadPtr => c.load_ptr(),
        Typing::StorePtr => c.store_ptr(),
        Typing::AtomicCas | Typing::AtomicRmw => c.atomic(),
        Typing::LoadView
        | Typing::StoreView
        | Typing::AtomicRedView
        | Typing::MultimemLoad
        | Typing::MultimemStore => c.view_access(row.typing),
        Typing::Tokens => c.tokens(),
        Typing::Assume => c.assume(),
        Typing::Assert => match c.one(Seg::Cond)?.elem {
            Elem::Num(Num::I1) => Ok(()),
            elem => fail!(E1622, "the condition has elements {elem}, expected i1"),
        },
        Typing::Print => c.print(),
        Typing::GetGlobal => c.get_global(),
        Typing::Alloca => c.alloca(),
        Typing::ModuleLevel => fail!(E1622, "the operation stands for what is no part of a function"),
        // Looked at with what is around them.
        Typing::Break | Typing::Continue | Typing::Yield | Typing::Return => Ok(()),
    }
}

struct Ctx<'a> {
    op: OpRef<'a>,
    globals: &'a Globals<'a>,
}

impl<'a> Ctx<'a> {
    fn text(&self, ty: Type) -> String {
        self.op.func.module.types.brief(ty)
    }

    fn tile(&self, value: Value, what: &dyn std::fmt::Display) -> Check<Tile<'a>> {
        let ty = self.op.func.value_type(value);
        match self.op.func.ty(value).tile() {
            Some((elem, shape)) => Ok(Tile { ty, elem, shape }),
            None => fail!(E1622, "{what} is {}, expected a tile", self.text(ty)),
        }
    }

    /// The tile of a segment that has one value.
    fn one(&self, seg: Seg) -> Check<Tile<'a>> {
        match self.op.operand(seg) {
            Some(value) => self.tile(value, &seg),
            None => fail!(E1623, "there is no {seg}"),
        }
    }

    fn opt(&self, seg: Seg) -> Check<Option<Tile<'a>>> {
        self.op.operand(seg).map(|v| self.tile(v, &seg)).transpose()
    }

    fn result(&self, i: usize) -> Check<Tile<'a>> {
        match self.op.result(i) {
            Some(value) => self.tile(value, &format_args!("result {i}")),
            None => fail!(E1623, "{} results, expected at least {}", self.op.results().len(), i + 1),
        }
    }

    fn results(&self, n: usize) -> Check {
        match self.op.results().len() {
            have if have == n => Ok(()),
            have => fail!(E1623, "{have} results, expected {n}"),
        }
    }

    /// That a value is a token, if it is there.
    fn token(&self, value: Option<Value>, what: &str) -> Check {
        match value {
            Some(v) if *self.op.func.ty(v) != TypeData::Token => {
                fail!(E1622, "{what} is {}, expected a token", self.text(self.op.func.value_type(v)))
            }
            _ => Ok(()),
        }
    }

    fn same_shape(&self, a: Tile<'_>, b: Tile<'_>) -> Check {
        if a.shape == b.shape {
            Ok(())
        } else {
            fail!(E1622, "shapes of {} and {} differ", self.text(a.ty), self.text(b.ty))
        }
    }

    fn same(&self, a: Tile<'_>, b: Tile<'_>) -> Check {
        if a.ty == b.ty {
            Ok(())
        } else {
            fail!(E1622, "types {} and {} differ", self.text(a.ty), self.text(b.ty))
        }
    }

    fn num(&self, t: Tile<'_>, ok: impl Fn(Num) -> bool, want: &str) -> Check<Num> {
        match t.elem {
            Elem::Num(num) if ok(num) => Ok(num),
            elem => fail!(E1622, "elements {elem} of {}, expected {want}", self.text(t.ty)),
        }
    }

    fn int(&self) -> Check {
        let result = self.result(0)?;
        self.num(result, Num::is_int, "integers")?;
        for &v in self.op.operands() {
            self.same(self.tile(v, &"an operand")?, result)?;
        }
        if self.op.opcode() == Opcode::Negi {
            let overflow = self.op.get::<Overflow>(Key::Overflow);
            if overflow == Some(Overflow::NoUnsignedWrap) {
                fail!(E1624, "a negation does not promise no_unsigned_wrap");
            }
        }
        if self.op.opcode() == Opcode::Divi {
            let unsigned = self.op.get(Key::Signedness) == Some(Signedness::Unsigned);
            match self.op.get(Key::Rounding) {
                Some(Rounding::Zero | Rounding::PositiveInf) => {}
                Some(Rounding::NegativeInf) if !unsigned => {}
                mode => fail!(E1624, "rounding {}", mode.map_or("?", Rounding::name)),
            }
        }
        Ok(())
    }

    fn float(&self) -> Check {
        let result = self.result(0)?;
        let num = self.num(result, Num::is_arith_float, "f16, bf16, f32 or f64")?;
        for &v in self.op.operands() {
            self.same(self.tile(v, &"an operand")?, result)?;
        }
        if self.op.has(Key::FlushToZero) && num != Num::F32 {
            fail!(E1624, "flush_to_zero is for f32, found {num}");
        }
        let Some(mode) = self.op.get::<Rounding>(Key::Rounding) else { return Ok(()) };
        let ieee = matches!(
            mode,
            Rounding::NearestEven | Rounding::Zero | Rounding::NegativeInf | Rounding::PositiveInf
        );
        let ok = match (self.op.opcode(), mode) {
            (Opcode::Exp | Opcode::Tanh, Rounding::Full) => true,
            (Opcode::Exp | Opcode::Tanh, mode) => mode == Rounding::Approx && num == Num::F32,
            (_, _) if ieee => true,
            (Opcode::Divf, Rounding::Approx | Rounding::Full) | (Opcode::Sqrt, Rounding::Approx) => {
                num == Num::F32
            }
            _ => false,
        };
        if ok { Ok(()) } else { fail!(E1624, "rounding {mode} of {num}") }
    }

    fn powi(&self) -> Check {
        let (base, exponent, result) = (self.one(Seg::Base)?, self.one(Seg::Exponent)?, self.result(0)?);
        self.num(base, Num::is_arith_float, "f16, bf16, f32 or f64")?;
        self.num(exponent, |n| n.is_int() && n != Num::I64, "integers of up to 32 bits")?;
        self.same(base, result)?;
        self.same_shape(base, exponent)
    }

    fn compare(&self, float: bool) -> Check {
        let (lhs, rhs, result) = (self.one(Seg::Lhs)?, self.one(Seg::Rhs)?, self.result(0)?);
        self.same(lhs, rhs)?;
        if float {
            self.num(lhs, Num::is_arith_float, "f16, bf16, f32 or f64")?;
        } else {
            self.num(lhs, Num::is_int, "integers")?;
        }
        self.num(result, |n| n == Num::I1, "i1")?;
        self.same_shape(lhs, result)
    }

    fn convert(&self, typing: Typing) -> Check {
        let (from, to) = (self.one(Seg::Source)?, self.result(0)?);
        self.same_shape(from, to)?;
        let integer = |n: Num| n.is_int() || n == Num::I4;
        let (a, b) = (from.elem, to.elem);
        let ok = match (typing, a.num(), b.num()) {
            (Typing::Bitcast, Some(a), Some(b)) => a.bits() == b.bits() && a != Num::I4 && b != Num::I4,
            (Typing::Exti, Some(a), Some(b)) => integer(a) && integer(b) && a.bits() < b.bits(),
            (Typing::Trunci, Some(a), Some(b)) => integer(a) && integer(b) && a.bits() > b.bits(),
            (Typing::Ftof, Some(a), Some(b)) => a.is_float() && b.is_float() && a != b,
            (Typing::Ftoi, Some(a), Some(b)) => a.is_float() && b.is_int(),
            (Typing::Itof, Some(a), Some(b)) => a.is_int() && b.is_float() && b != Num::F8E8M0FNU,
            (Typing::IntToPtr, Some(Num::I64), None) | (Typing::PtrToInt, None, Some(Num::I64)) => true,
            (Typing::PtrToPtr, None, None) => true,
            _ => false,
        };
        if !ok {
            fail!(E1622, "there is no such conversion from {a} to {b}");
        }
        let mode = self.op.get::<Rounding>(Key::Rounding);
        let ok = match (typing, mode, a.num(), b.num()) {
            (Typing::Ftof, Some(mode), Some(a), Some(b)) => rounds(a, b, mode),
            (Typing::Itof, Some(mode), ..) => mode == Rounding::NearestEven,
            (Typing::Ftoi, Some(mode), ..) => mode == Rounding::NearestIntToZero,
            _ => true,
        };
        if ok {
            Ok(())
        } else {
            fail!(E1624, "rounding {} from {a} to {b}", mode.map_or("?", Rounding::name))
        }
    }

    fn pack(&self, numbers: Tile<'_>, bytes: Tile<'_>) -> Check {
        self.num(bytes, |n| n == Num::I8, "i8")?;
        let num = self.num(numbers, |n| n.bits() != 8, "numbers of another width than bytes")?;
        let bits = if num == Num::Tf32 { 32 } else { i64::from(num.bits()) };
        match (numbers.shape, bytes.shape) {
            ([n], [m]) if n.checked_mul(bits) == m.checked_mul(8) => Ok(()),
            _ => fail!(E1622, "{} and {} have not the same bits", self.text(numbers.ty), self.text(bytes.ty)),
        }
    }

    fn same_elem(&self, a: Tile<'_>, b: Tile<'_>) -> Check {
        if a.elem == b.elem {
            Ok(())
        } else {
            fail!(E1622, "elements of {} and {} differ", self.text(a.ty), self.text(b.ty))
        }
    }

    fn broadcast(&self) -> Check {
        let (from, to) = (self.one(Seg::Source)?, self.result(0)?);
        self.same_elem(from, to)?;
        let ok = from.shape.len() == to.shape.len()
            && from.shape.iter().zip(to.shape).all(|(a, b)| a == b || *a == 1);
        if ok { Ok(()) } else { fail!(E1622, "{} does not grow to {}", self.text(from.ty), self.text(to.ty)) }
    }

    /// The dimension an attribute names.
    fn dim(&self, rank: usize) -> Check<usize> {
        match self.op.get::<u64>(Key::Dim).and_then(|d| usize::try_from(d).ok()) {
            Some(dim) if dim < rank => Ok(dim),
            dim => fail!(E1624, "dimension {} of {rank}", dim.map_or("?".into(), |d| d.to_string())),
        }
    }

    fn cat(&self) -> Check {
        let (lhs, rhs, result) = (self.one(Seg::Lhs)?, self.one(Seg::Rhs)?, self.result(0)?);
        self.same_elem(lhs, rhs)?;
        self.same_elem(lhs, result)?;
        let dim = self.dim(result.shape.len())?;
        let mut want = lhs.shape.to_vec();
        let fits = lhs.shape.len() == result.shape.len()
            && rhs.shape.len() == result.shape.len()
            && (0..want.len()).all(|i| i == dim || lhs.shape[i] == rhs.shape[i]);
        if fits {
            want[dim] = lhs.shape[dim].saturating_add(rhs.shape[dim]);
        }
        if fits && want == result.shape {
            Ok(())
        } else {
            fail!(
                E1622,
                "{} and {} do not make {}",
                self.text(lhs.ty),
                self.text(rhs.ty),
                self.text(result.ty)
            )
        }
    }

    fn constant(&self) -> Check {
        let result = self.result(0)?;
        self.num(result, |n| n != Num::I4, "numbers that constants can be")?;
        let value = self.op.get(Key::Value);
        match value.and_then(|value| self.op.func.module.elements(result.ty, value)) {
            Some(_) => Ok(()),
            None => {
                let bytes = value.map_or(0, |v| self.op.func.module.constants.get(v).len());
                fail!(E1627, "{bytes} bytes are neither one nor all elements of {}", self.text(result.ty))
            }
        }
    }

    fn indices(&self, n: usize, ok: impl Fn(Num) -> bool) -> Check {
        let indices = self.op.list(Seg::Index);
        if indices.len() != n {
            fail!(E1623, "{} indices, expected {n}", indices.len());
        }
        for &v in indices {
            let index = self.tile(v, &"an index")?;
            self.num(index, &ok, "integers that indices can be")?;
            if !index.shape.is_empty() {
                fail!(E1622, "an index is {}, expected a scalar", self.text(index.ty));
            }
        }
        Ok(())
    }

    /// That `whole` can be cut into tiles of `part`'s shape.
    fn block(&self, whole: Tile<'_>, part: Tile<'_>) -> Check {
        self.same_elem(whole, part)?;
        let divides = |(w, p): (&i64, &i64)| w.checked_rem(*p) == Some(0);
        if whole.shape.len() == part.shape.len() && whole.shape.iter().zip(part.shape).all(divides) {
            return self.indices(whole.shape.len(), |n| n == Num::I32);
        }
        fail!(E1622, "{} is no block of {}", self.text(part.ty), self.text(whole.ty))
    }

    fn extract(&self) -> Check {
        self.results(1)?;
        self.block(self.one(Seg::Source)?, self.result(0)?)
    }

    fn insert(&self) -> Check {
        self.results(1)?;
        let destination = self.one(Seg::Destination)?;
        self.same(destination, self.result(0)?)?;
        self.block(destination, self.one(Seg::Source)?)
    }

    fn iota(&self) -> Check {
        let result = self.result(0)?;
        let num = self.num(result, Num::is_int, "integers")?;
        match result.shape {
            [n] if num.bits() >= 63 || *n <= 1 << num.bits() => Ok(()),
            _ => fail!(E1622, "{} does not count from 0 along one dimension", self.text(result.ty)),
        }
    }

    fn permute(&self) -> Check {
        let (from, to) = (self.one(Seg::Source)?, self.result(0)?);
        self.same_elem(from, to)?;
        let order = self.op.ints(Key::Permutation);
        if order.len() < 2 {
            fail!(E1622, "{} has one order only", self.text(from.ty));
        }
        if !is_permutation(order, from.shape.len()) {
            fail!(E1624, "{order:?} is no order of {} dimensions", from.shape.len());
        }
        if order.iter().map(|&i| from.shape[i as usize]).eq(to.shape.iter().copied()) {
            return Ok(());
        }
        fail!(E1622, "{} in the order {order:?} is not {}", self.text(from.ty), self.text(to.ty))
    }

    fn reshape(&self) -> Check {
        let (from, to) = (self.one(Seg::Source)?, self.result(0)?);
        self.same_elem(from, to)?;
        let elements = |t: Tile<'_>| t.shape.iter().fold(1i64, |n, &d| n.saturating_mul(d));
        if elements(from) == elements(to) {
            return Ok(());
        }
        fail!(E1622, "{} and {} have not as many elements", self.text(from.ty), self.text(to.ty))
    }

    fn select(&self) -> Check {
        let (cond, a, b) = (self.one(Seg::Cond)?, self.one(Seg::IfTrue)?, self.one(Seg::IfFalse)?);
        self.num(cond, |n| n == Num::I1, "i1")?;
        self.same_shape(cond, a)?;
        if a.elem == Elem::Num(Num::F4E2M1FN) {
            fail!(E1622, "{} has half a byte for each condition", self.text(a.ty));
        }
        self.same(a, b)?;
        self.same(a, self.result(0)?)
    }

    fn pointee(&self, t: Tile<'_>) -> Check<Num> {
        match t.elem.pointee() {
            Some(num) => Ok(num),
            None => fail!(E1622, "{} has no pointers", self.text(t.ty)),
        }
    }

    fn offset(&self) -> Check {
        let (pointers, offset) = (self.one(Seg::Pointers)?, self.one(Seg::Offset)?);
        self.pointee(pointers)?;
        self.num(offset, Num::is_int, "integers")?;
        self.same_shape(pointers, offset)?;
        self.same(pointers, self.result(0)?)
    }

    /// Shapes M×K, K×N, M×N, or with one batch each.
    fn product(&self, lhs: Tile<'_>, rhs: Tile<'_>, acc: Tile<'_>) -> Check {
        let ok = match (lhs.shape, rhs.shape, acc.shape) {
            ([m, k], [k2, n], [m2, n2]) => m == m2 && n == n2 && k == k2,
            ([b, m, k], [b2, k2, n], [b3, m2, n2]) => b == b2 && b == b3 && m == m2 && n == n2 && k == k2,
            _ => false,
        };
        if ok {
            return self.same(acc, self.result(0)?);
        }
        fail!(E1622, "{} times {} is not {}", self.text(lhs.ty), self.text(rhs.ty), self.text(acc.ty))
    }

    fn mma(&self) -> Check {
        let (lhs, rhs, acc) = (self.one(Seg::Lhs)?, self.one(Seg::Rhs)?, self.one(Seg::Acc)?);
        self.product(lhs, rhs, acc)?;
        self.same_elem(lhs, rhs)?;
        let ok = match (self.op.row().typing, lhs.elem.num(), acc.elem.num()) {
            (Typing::Mmai, Some(Num::I8), Some(acc)) => acc == Num::I32,
            (Typing::Mmaf, Some(Num::F16 | Num::F8E4M3FN | Num::F8E5M2), Some(acc)) => {
                matches!(acc, Num::F16 | Num::F32)
            }
            (Typing::Mmaf, Some(Num::Bf16 | Num::Tf32 | Num::F32), Some(acc)) => acc == Num::F32,
            (Typing::Mmaf, Some(Num::F64), Some(acc)) => acc == Num::F64,
            _ => false,
        };
        if ok { Ok(()) } else { fail!(E1622, "there is no product of {} into {}", lhs.elem, acc.elem) }
    }

    fn mma_scaled(&self) -> Check {
        let (lhs, rhs, acc) = (self.one(Seg::Lhs)?, self.one(Seg::Rhs)?, self.one(Seg::Acc)?);
        let (ls, rs) = (self.one(Seg::LhsScale)?, self.one(Seg::RhsScale)?);
        self.product(lhs, rhs, acc)?;
        self.same_elem(lhs, rhs)?;
        self.same_elem(ls, rs)?;
        self.num(acc, |n| n == Num::F32, "f32")?;
        let blocks: &[i64] = match (lhs.elem.num(), ls.elem.num()) {
            (Some(Num::F8E4M3FN | Num::F8E5M2), Some(Num::F8E8M0FNU)) => &[32],
            (Some(Num::F4E2M1FN), Some(Num::F8E4M3FN)) => &[16],
            (Some(Num::F4E2M1FN), Some(Num::F8E8M0FNU | Num::F8E5M3FNU)) => &[16, 32],
            _ => fail!(E1622, "{} cannot be scaled by {}", lhs.elem, ls.elem),
        };
        let last = lhs.shape.len() - 1;
        let fits = blocks.iter().any(|b| {
            let (mut l, mut r) = (lhs.shape.to_vec(), rhs.shape.to_vec());
            // The product has looked at ranks: both are 2 or 3.
            l[last] /= b;
            r[last - 1] /= b;
            lhs.shape[last] % b == 0 && l == ls.shape && r == rs.shape
        });
        if fits {
            Ok(())
        } else {
            fail!(E1622, "scales {} and {} do not fit", self.text(ls.ty), self.text(rs.ty))
        }
    }

    fn params(&self, i: usize) -> Vec<Value> {
        self.op.regions().nth(i).map(|r| self.op.func.region_params(r).collect()).unwrap_or_default()
    }

    fn same_types(&self, have: &[Value], want: &[Value], what: &str) -> Check {
        let f = self.op.func;
        if have.len() != want.len() {
            fail!(E1625, "{} of {what}, expected {}", have.len(), want.len());
        }
        for (i, (&a, &b)) in have.iter().zip(want).enumerate() {
            let (a, b) = (f.value_type(a), f.value_type(b));
            if a != b {
                fail!(E1625, "number {i} of {what} is {}, expected {}", self.text(a), self.text(b));
            }
        }
        Ok(())
    }

    fn reduce(&self, scan: bool) -> Check {
        let f = self.op.func;
        let tiles = self.op.list(Seg::Tiles);
        self.results(tiles.len())?;
        let Some(&first) = tiles.first() else { fail!(E1623, "no tile") };
        let first = self.tile(first, &"the first tile")?;
        let dim = self.dim(first.shape.len())?;
        let (params, identities) = (self.params(0), self.op.attrs(Key::Identities));
        if params.len() != 2 * tiles.len() {
            fail!(E1625, "{} parameters of the region, expected {}", params.len(), 2 * tiles.len());
        }
        if identities.len() != tiles.len() {
            fail!(E1624, "{} identities, expected {}", identities.len(), tiles.len());
        }
        for (i, &v) in tiles.iter().enumerate() {
            let (tile, result) = (self.tile(v, &"a tile")?, self.result(i)?);
            self.same_shape(tile, first)?;
            self.same_elem(tile, result)?;
            let mut want = tile.shape.to_vec();
            if !scan {
                want.remove(dim);
            }
            if want != result.shape {
                fail!(E1622, "{} along {dim} is not {}", self.text(tile.ty), self.text(result.ty));
            }
            for &p in &params[2 * i..2 * i + 2] {
                if f.ty(p).scalar() != Some(tile.elem) {
                    fail!(
                        E1625,
                        "a parameter of the region is {}, expected {}",
                        self.text(f.value_type(p)),
                        tile.elem
                    );
                }
            }
            let (Attr::Int { ty, .. } | Attr::Float { ty, .. }) = identities[i] else {
                fail!(E1624, "identity {i} is no number");
            };
            if *f.module.types.get(ty) != TypeData::Elem(tile.elem) {
                fail!(E1624, "identity {i} is of type {}, expected {}", self.text(ty), tile.elem);
            }
        }
        Ok(())
    }

    /// That values may go into regions and out of them.
    fn carried(&self, mut values: impl Iterator<Item = Value>) -> Check {
        let f = self.op.func;
        match values.find(|&v| !matches!(f.ty(v), TypeData::Tile { .. } | TypeData::Token)) {
            Some(v) => fail!(E1622, "{} is neither tile nor token", self.text(f.value_type(v))),
            None => Ok(()),
        }
    }

    fn endless_loop(&self) -> Check {
        self.carried(self.op.operands().iter().copied().chain(self.op.results()))?;
        self.same_types(&self.params(0), self.op.operands(), "the region's parameters")
    }

    fn branch(&self) -> Check {
        self.carried(self.op.results())?;
        match self.one(Seg::Cond)? {
            Tile { elem: Elem::Num(Num::I1), shape: [], .. } => {}
            cond => fail!(E1622, "the condition is {}, expected tile<i1>", self.text(cond.ty)),
        }
        for i in 0..2 {
            if !self.params(i).is_empty() {
                fail!(E1625, "{} parameters of a region, expected none", self.params(i).len());
            }
        }
        Ok(())
    }

    /// An integer scalar.
    fn integer(&self, t: Tile<'_>) -> Check {
        self.num(t, Num::is_int, "integers")?;
        if t.shape.is_empty() { Ok(()) } else { fail!(E1622, "{}, expected a scalar", self.text(t.ty)) }
    }

    fn counted_loop(&self) -> Check {
        let lower = self.one(Seg::Lower)?;
        self.integer(lower)?;
        self.same(lower, self.one(Seg::Upper)?)?;
        self.same(lower, self.one(Seg::Step)?)?;
        let (params, init) = (self.params(0), self.op.list(Seg::Init));
        let Some((&iv, carried)) = params.split_first() else { fail!(E1625, "no parameter of the region") };
        self.same(self.tile(iv, &"the induction variable")?, lower)?;
        self.carried(init.iter().copied())?;
        self.same_types(carried, init, "the region's parameters")?;
        self.same_types(&self.op.results().collect::<Vec<_>>(), init, "the results")
    }

    fn block_id(&self) -> Check {
        for i in 0..3 {
            match self.result(i)? {
                Tile { elem: Elem::Num(Num::I32), shape: [], .. } => {}
                result => fail!(E1622, "result {i} is {}, expected tile<i32>", self.text(result.ty)),
            }
        }
        Ok(())
    }

    fn tensor_view(&self) -> Check {
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

    fn view(&self) -> Check {
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

    fn extents(&self, rank: impl Fn(&TypeData) -> Option<usize>) -> Check {
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

    fn load_ptr(&self) -> Check {
        let (pointers, result) = (self.one(Seg::Source)?, self.result(0)?);
        self.pointed(pointers, result)?;
        self.mask(pointers)?;
        if let Some(padding) = self.opt(Seg::Padding)? {
            self.same(padding, result)?;
        }
        self.token(self.op.result(1), "result 1")?;
        self.order(&[Semantics::Weak, Semantics::Relaxed, Semantics::Acquire])
    }

    fn store_ptr(&self) -> Check {
        let pointers = self.one(Seg::Destination)?;
        self.pointed(pointers, self.one(Seg::Value)?)?;
        self.mask(pointers)?;
        self.token(self.op.result(0), "the result")?;
        self.order(&[Semantics::Weak, Semantics::Relaxed, Semantics::Release])
    }

    fn atomic(&self) -> Check {
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

    fn view_access(&self, typing: Typing) -> Check {
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

    fn tokens(&self) -> Check {
        let n = self.op.operands().len();
        self.results(1)?;
        self.token(self.op.result(0), "the result")?;
        for &v in self.op.operands() {
            self.token(Some(v), "an operand")?;
        }
        match self.op.opcode() {
            Opcode::JoinTokens if n < 2 => fail!(E1623, "{n} tokens, expected at least 2"),
            Opcode::GdcWaitTko | Opcode::GdcLaunchDependentsTko if n > 1 => {
                fail!(E1623, "{n} tokens, expected 1")
            }
            _ => Ok(()),
        }
    }

    fn assume(&self) -> Check {
        let f = self.op.func;
        let (Some(value), Some(result)) = (self.op.operand(Seg::Value), self.op.result(0)) else {
            return Ok(());
        };
        let (ty, data) = (f.value_type(value), f.ty(value));
        if ty != f.value_type(result) {
            fail!(E1622, "types {} and {} differ", self.text(ty), self.text(f.value_type(result)));
        }
        let tile = data.tile();
        let integer = |e: Elem| e.num().is_some_and(|n| n.is_int() || n == Num::I4);
        // A run or group is no longer than its dimension.
        let within = |n: i64, dim: Option<&i64>| n >= 0 && dim.is_some_and(|&d| n <= d);
        match (self.op.attr(Key::Predicate), tile) {
            (Some(Attr::DivBy { divisor, .. }), _) if !divisor.is_power_of_two() => {
                fail!(E1624, "div_by {divisor}, expected a power of two")
            }
            (Some(Attr::DivBy { every: None, along: None, .. }), None)
                if matches!(data, TypeData::TensorView { .. }) =>
            {
                Ok(())
            }
            (Some(Attr::DivBy { every, along, .. }), Some((elem, shape)))
                if integer(elem) || elem.pointee().is_some() =>
            {
                match (every, along) {
                    (None, None) => Ok(()),
                    (Some(every), Some(along))
                        if usize::try_from(*along).is_ok_and(|a| within(*every, shape.get(a))) =>
                    {
                        Ok(())
                    }
                    _ => fail!(E1624, "div_by every {every:?} along {along:?} of {}", self.text(ty)),
                }
            }
            (Some(Attr::Bounded { lower, upper }), Some((elem, _))) if integer(elem) => {
                let most = elem.num().map_or(i64::MAX, |n| i64::MAX >> (64 - n.bits()));
                let outside = |n: &i64| !(!most..=most).contains(n);
                let wide = [lower, upper].into_iter().flatten().any(outside);
                if wide || lower.zip(*upper).is_some_and(|(l, u)| l > u) {
                    fail!(E1624, "bounded by {lower:?} and {upper:?}");
                }
                Ok(())
            }
            (Some(Attr::SameElements(list)), Some((elem, shape)))
                if (integer(elem) || elem.pointee().is_some())
                    && list.len() == shape.len()
                    && list.iter().zip(shape).all(|(&n, d)| within(n, Some(d))) =>
            {
                Ok(())
            }
            (Some(Attr::DivBy { .. } | Attr::Bounded { .. } | Attr::SameElements(_)), _) => {
                fail!(E1624, "the predicate does not suit {}", self.text(ty))
            }
            _ => fail!(E1624, "no predicate"),
        }
    }

    fn print(&self) -> Check {
        let args = self.op.list(Seg::Args);
        for &v in args {
            self.tile(v, &"an argument")?;
        }
        // `%%` is a percent sign, anything else behind `%` prints an argument.
        let mut text = self.op.text(Key::Text).unwrap_or_default().split('%').skip(1);
        let mut wanted = 0;
        while let Some(part) = text.next() {
            match (part, part.is_empty().then(|| text.next())) {
                (_, None) => wanted += 1,
                (_, Some(None)) => fail!(E1624, "the format ends in `%`"),
                _ => {}
            }
        }
        if wanted != args.len() {
            fail!(E1623, "{} arguments, the format has {wanted}", args.len());
        }
        self.token(self.op.operand(Seg::Token), "token")?;
        if self.op.func.module.version.minor() >= 2 {
            self.results(1)?;
        }
        self.token(self.op.result(0), "the result")
    }

    fn get_global(&self) -> Check {
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

    fn alloca(&self) -> Check {
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

/// Whether floats convert with a rounding.
fn rounds(from: Num, to: Num, mode: Rounding) -> bool {
    // Bits of exponent and significand, and whether the greatest exponent is kept for infinities.
    let format = |n: Num| match n {
        Num::F64 => (11, 52, true),
        Num::F32 => (8, 23, true),
        Num::Tf32 => (8, 10, true),
        Num::Bf16 => (8, 7, true),
        Num::F16 => (5, 10, true),
        Num::F8E5M2 => (5, 2, true),
        Num::F8E4M3FN => (4, 3, false),
        Num::F8E5M3FNU => (5, 3, false),
        Num::F8E8M0FNU => (8, 0, false),
        _ => (2, 1, false),
    };
    let ((e, m, ieee), (to_e, to_m, _)) = (format(from), format(to));
    let exact = m <= to_m && (e < to_e || e == to_e && ieee);
    match (mode, to) {
        (Rounding::Zero | Rounding::PositiveInf, Num::F8E8M0FNU) => true,
        (_, Num::F8E8M0FNU) | (Rounding::Approx | Rounding::Full | Rounding::NearestIntToZero, _) => false,
        (Rounding::NearestEven, _) => true,
        (_, to) if to.bits() <= 8 => false,
        (Rounding::Zero, _) => true,
        (Rounding::NearestAway, Num::Tf32) if from == Num::F32 => true,
        (Rounding::NegativeInf | Rounding::PositiveInf, Num::F32) if from == Num::F64 => true,
        // Nothing is rounded.
        _ => exact,
    }
}
