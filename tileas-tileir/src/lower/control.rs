//! Loops and branches.
//!
//! In: an op with regions, or one that ends a region. Out: the same here. Numbers and tiles are handed on as they are, tokens are not; a
//! pointer is handed on as its address. A tile of pointers ([`Pointer`]) is handed on as the address of what all elements share and the
//! counts of elements behind that; where a loop does nothing to it but move all of it by as much ([`Carry::Moves`]), as how far that
//! is: the array that it leads into stays known, and counts stay out of the loop.

use super::pointers::Pointer;
use super::shapes::extents;
use super::{Done, Known, Lowering, Shape, scalar_of};
use crate::entities::{Constant, Region, Value};
use crate::error::{Code, Error};
use crate::module::OpRef;
use crate::types::{Elem, TypeData};
use smallvec::SmallVec;
use tileas_codegen::ir;
use tileas_codegen::ir::{Opcode as Ir, Scalar, Space};
use tileas_meta::tileir::{Key, Opcode, Seg};

type Values = SmallVec<[ir::Value; 4]>;

/// How a value is handed on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Carry {
    /// By itself.
    Whole,
    /// A tile of pointers, by how many elements all of it has moved on.
    Moves {
        /// What it is in an iteration.
        param: Value,
        /// How far it has moved in that; none before the loop.
        so_far: Option<ir::Value>,
    },
}

/// The loop's `continue`s, through branches.
fn continues<'m>(region: impl Iterator<Item = OpRef<'m>>, to: &mut Vec<OpRef<'m>>) {
    for op in region {
        match op.opcode() {
            Opcode::Continue => to.push(op),
            Opcode::If => op.regions().for_each(|r| continues(op.func.region(r), to)),
            _ => {}
        }
    }
}

impl<'m> Lowering<'m, '_> {
    /// What a value is carried as: rank-0 floats as tiles, where tiles are reduced to such.
    fn carried(&mut self, x: ir::Value) -> ir::Value {
        let data = self.b.func().value_data(x);
        match data.as_scalar() {
            Some(elem) if elem.is_float() && self.reduces => self.as_tile(x),
            Some(_) => x,
            None if data.rank() == 0 && data.elem().is_some_and(Scalar::is_int) => self.as_scalar(x),
            None if data.rank() == 0 && !self.reduces => self.as_scalar(x),
            None => x,
        }
    }

    /// What loops and branches hand on of these values.
    fn handed_on(
        &mut self,
        op: OpRef<'m>,
        values: &[Value],
        carries: &[Carry],
    ) -> Result<Values, Box<Error>> {
        let mut out = Values::new();
        for (n, &v) in values.iter().enumerate() {
            if let Some(Carry::Moves { param, so_far }) = carries.get(n) {
                let moved = match *so_far {
                    Some(so_far) => self.moved_on(op, v, *param, so_far)?,
                    None if matches!(self.known[v], Known::Pointer(_)) => self.integer(0, Scalar::I64),
                    None => return Err(self.silent()),
                };
                out.push(moved);
                continue;
            }
            match self.known[v].clone() {
                Known::Nothing => return Err(self.silent()),
                Known::Token => {}
                Known::Value(x) => out.push(self.carried(x)),
                Known::Pointer(p) if p.shape.is_none() => out.push(self.address(&p)),
                Known::Pointer(p) => {
                    out.push(self.address(&Pointer::to(p.base)));
                    out.push(self.count_of(&p));
                }
                Known::Tensor(_) | Known::Tiles(_) => {
                    return Err(
                        op.error(Code::E1643, "a view that a loop or branch hands on is not supported")
                    );
                }
            }
        }
        Ok(out)
    }

    /// How a loop hands on its values.
    fn carries(&self, op: OpRef<'m>, params: &[Value]) -> Vec<Carry> {
        let mut ends = Vec::new();
        op.regions().for_each(|r| continues(self.func.region(r), &mut ends));
        let mut out = vec![Carry::Whole; params.len()];
        for (n, &param) in params.iter().enumerate() {
            let tile = self.func.ty(param).tile().filter(|(_, shape)| !shape.is_empty());
            if tile.is_some_and(|(elem, _)| elem.pointee().is_some())
                && ends.iter().all(|e| e.list(Seg::Values).get(n).is_some_and(|&v| self.all_move(v, param)))
            {
                out[n] = Carry::Moves { param, so_far: None };
            }
        }
        out
    }

    /// Whether one tile of pointers is another whose elements all were moved by as much.
    fn all_move(&self, mut v: Value, param: Value) -> bool {
        while v != param {
            match self.offset_of(v) {
                Some((from, by)) if by.is_none_or(|by| self.uniform(by).is_some()) => v = from,
                _ => return false,
            }
        }
        true
    }

    /// What a tile of pointers was moved from, and by how much, if it was.
    fn offset_of(&self, v: Value) -> Option<(Value, Option<Value>)> {
        let op = self.func.def_op(v)?;
        match op.opcode() {
            Opcode::Offset => Some((op.operand(Seg::Pointers)?, op.operand(Seg::Offset))),
            Opcode::Assume => Some((op.operand(Seg::Value)?, None)),
            _ => None,
        }
    }

    /// What all elements of a tile are seen to be: a scalar, or a constant with one element for all.
    fn uniform(&self, mut v: Value) -> Option<Value> {
        while self.func.ty(v).scalar().is_none() {
            let op = self.func.def_op(v)?;
            match (op.opcode(), op.operand(Seg::Source)) {
                (Opcode::Broadcast | Opcode::Reshape, Some(from)) => v = from,
                (Opcode::Constant, _) => {
                    let all = self
                        .func
                        .module
                        .elements(self.func.value_type(v), op.get::<Constant>(Key::Value)?)?;
                    return all.splat().map(|_| v);
                }
                _ => return None,
            }
        }
        Some(v)
    }

    /// How far a tile of pointers has moved in all when an iteration ends.
    fn moved_on(
        &mut self,
        op: OpRef<'m>,
        mut v: Value,
        param: Value,
        so_far: ir::Value,
    ) -> Result<ir::Value, Box<Error>> {
        let mut sum = so_far;
        let ty = self.b.scalar_type(Scalar::I64);
        while v != param {
            let Some((from, by)) = self.offset_of(v) else { return Err(self.silent()) };
            v = from;
            let Some(by) = by.and_then(|by| self.uniform(by)) else { continue };
            let by = self.value(op, by)?;
            let by = match self.splat_of(by) {
                Some(same) => same,
                None => self.as_scalar(by),
            };
            let by = self.resized(by, Scalar::I64);
            sum = self.b.op(Ir::Addi).operand(sum).operand(by).results(&[ty]).finish_one();
        }
        Ok(sum)
    }

    /// Gives results or parameters of a loop, which stand for the values of `like`, what was made of them.
    fn receive(&mut self, to: &[Value], like: &[Known], carries: &mut [Carry], made: &[ir::Value]) {
        let mut made = made.iter().copied();
        for ((&v, like), carry) in to.iter().zip(like).zip(carries) {
            self.known[v] = match (like, carry) {
                (Known::Value(_), _) => made.next().map_or(Known::Nothing, Known::Value),
                (Known::Pointer(p), Carry::Moves { so_far, .. }) => match made.next() {
                    Some(by) => {
                        *so_far = Some(by);
                        Known::Pointer(Pointer { base: self.moved(p.base, by), ..p.clone() })
                    }
                    None => Known::Nothing,
                },
                (Known::Pointer(p), Carry::Whole) => {
                    let ty = self.b.func().value_type(p.base);
                    self.taken(v, ty, p.shape.clone(), &mut made)
                }
                (other, _) => other.clone(),
            };
        }
    }

    /// A pointer, or tile of pointers, that was handed on whole.
    fn taken(
        &mut self,
        v: Value,
        ty: ir::Type,
        shape: Option<Shape>,
        made: &mut impl Iterator<Item = ir::Value>,
    ) -> Known {
        let Some(address) = made.next() else { return Known::Nothing };
        let to = self.at_address(v, address, ty);
        match (&shape, made) {
            (None, _) => Known::Pointer(to),
            (Some(_), made) => match made.next() {
                Some(count) => Known::Pointer(Pointer { offset: Some(count), shape, ..to }),
                None => Known::Nothing,
            },
        }
    }

    /// After an error inside a region: nothing is known of its results, but tokens are tokens.
    pub(super) fn spoil(&mut self, op: OpRef<'m>) {
        for result in op.results() {
            let token = *self.func.ty(result) == TypeData::Token;
            self.known[result] = if token { Known::Token } else { Known::Nothing };
        }
    }

    pub(super) fn counted_loop(&mut self, op: OpRef<'m>) -> Done {
        let func = self.func;
        self.spoil(op);
        let bound = |this: &mut Self, seg| match op.operand(seg) {
            Some(v) => this.scalar(op, v),
            None => Err(this.silent()),
        };
        let (lower, upper) = (bound(self, Seg::Lower)?, bound(self, Seg::Upper)?);
        let step = bound(self, Seg::Step)?;
        let Some(region) = op.regions().next() else { return Ok(()) };
        let params: Vec<Value> = func.region_params(region).collect();
        let Some((&iv, rest)) = params.split_first() else { return Ok(()) };
        let mut carries = self.carries(op, rest);
        let inits = self.handed_on(op, op.list(Seg::Init), &carries)?;
        let like: Vec<Known> = op.list(Seg::Init).iter().map(|&v| self.known[v].clone()).collect();
        let open = self.b.begin_for(lower, upper, step, &inits);
        self.known[iv] = Known::Value(open.iv);
        let all = [lower, step].map(|v| self.divisors.get(&v).copied().unwrap_or(1));
        self.divisors.insert(open.iv, all[0].min(all[1]));
        self.receive(rest, &like, &mut carries, &open.args);
        let yields = self.body(region, &inits, carries.clone());
        let results = self.b.end_for(open, &yields);
        let to: Vec<Value> = op.results().collect();
        self.receive(&to, &like, &mut carries, &results);
        Ok(())
    }

    /// Lowers the region of a loop; what its `continue` hands on, which the caller is to end it with.
    fn body(&mut self, region: Region, inits: &[ir::Value], carries: Vec<Carry>) -> Values {
        let func = self.func;
        self.depth += 1;
        self.carries.push(carries);
        let ops: Vec<OpRef<'m>> = func.region(region).collect();
        let mut yields: Values = inits.into();
        for (n, &op) in ops.iter().enumerate() {
            self.place(op);
            let last = n + 1 == ops.len() && op.opcode() == Opcode::Continue;
            let done = match last {
                true => self.next_of(op, inits).map(|next| yields = next),
                false => self.op(op),
            };
            if let Err(e) = done
                && !e.message.is_empty()
            {
                self.errors.push(*e);
            }
        }
        self.carries.pop();
        self.depth -= 1;
        yields
    }

    /// The values of a `continue`, in the types of what the loop began with.
    fn next_of(&mut self, op: OpRef<'m>, inits: &[ir::Value]) -> Result<Values, Box<Error>> {
        let values = self.handed_on_to_loop(op)?;
        if values.len() != inits.len() {
            return Err(op.error(Code::E1643, "a loop hands on other values than it began with"));
        }
        Ok(values.iter().zip(inits).map(|(&v, &like)| self.matched(v, like)).collect())
    }

    /// What a `continue` hands on.
    fn handed_on_to_loop(&mut self, op: OpRef<'m>) -> Result<Values, Box<Error>> {
        let carries = self.carries.last().cloned().unwrap_or_default();
        self.handed_on(op, op.list(Seg::Values), &carries)
    }

    /// A value in the type of another: integers in its width.
    pub(super) fn matched(&mut self, v: ir::Value, like: ir::Value) -> ir::Value {
        let f = self.b.func();
        let (have, want) = (f.value_data(v).elem(), f.value_data(like).elem());
        match (have, want) {
            (Some(a), Some(b)) if a != b && a.is_int() && b.is_int() => self.resized(v, b),
            _ => v,
        }
    }

    pub(super) fn endless_loop(&mut self, op: OpRef<'m>) -> Done {
        let func = self.func;
        self.spoil(op);
        let Some(region) = op.regions().next() else { return Ok(()) };
        let params: Vec<Value> = func.region_params(region).collect();
        let mut carries = self.carries(op, &params);
        let inits = self.handed_on(op, op.list(Seg::Init), &carries)?;
        let like: Vec<Known> = op.list(Seg::Init).iter().map(|&v| self.known[v].clone()).collect();
        let types = self.result_types(op)?;
        let outer = self.b.point();
        let open = self.b.begin_loop(&inits, &types);
        self.receive(&params, &like, &mut carries, &open.args);
        // A loop may end in what leaves it, then no other iteration follows.
        let last = func.region(region).next_back().map(|o| o.opcode());
        let yields = self.body(region, &inits, carries);
        let made = open.op;
        match last {
            Some(Opcode::Continue) => _ = self.b.end_loop(open, &yields),
            _ => _ = self.b.set_point(outer),
        }
        let results: Values = self.b.func().results(made).into();
        self.take_results(op, &results);
        Ok(())
    }

    /// Types of what a branch or an endless loop gives.
    fn result_types(&mut self, op: OpRef<'m>) -> Result<SmallVec<[ir::Type; 4]>, Box<Error>> {
        let mut types = SmallVec::new();
        for result in op.results() {
            match self.func.ty(result) {
                TypeData::Token => {}
                TypeData::Tile { elem: Elem::Num(_), .. } => {
                    let (elem, shape) = self.tile_type(op, result)?;
                    let tile = !shape.is_empty() || elem.is_float() && self.reduces;
                    types.push(if tile { self.b.tile_type(&shape, elem) } else { self.b.scalar_type(elem) });
                }
                TypeData::Tile { elem: Elem::Ptr { .. }, .. } => {
                    types.push(self.b.scalar_type(Scalar::I64));
                    if let Some(shape) = self.pointers_shape(result) {
                        types.push(self.b.tile_type(&shape, Scalar::I64));
                    }
                }
                _ => {
                    return Err(
                        op.error(Code::E1643, "a view that a loop or branch hands on is not supported")
                    );
                }
            }
        }
        Ok(types)
    }

    /// Extents of a tile of pointers.
    fn pointers_shape(&self, v: Value) -> Option<Shape> {
        let (_, shape) = self.func.ty(v).tile().filter(|(_, shape)| !shape.is_empty())?;
        Some(extents(shape))
    }

    fn take_results(&mut self, op: OpRef<'m>, made: &[ir::Value]) {
        let mut made = made.iter().copied();
        for result in op.results() {
            self.known[result] = match self.func.ty(result) {
                TypeData::Token => Known::Token,
                TypeData::Tile { elem: Elem::Ptr { pointee, .. }, .. } => match scalar_of(*pointee) {
                    Some(elem) => {
                        let (ty, shape) = (self.b.ptr_type(elem, Space::Gmem), self.pointers_shape(result));
                        self.taken(result, ty, shape, &mut made)
                    }
                    None => Known::Nothing,
                },
                _ => made.next().map_or(Known::Nothing, Known::Value),
            };
        }
    }

    pub(super) fn branch(&mut self, op: OpRef<'m>) -> Done {
        self.spoil(op);
        let Some(condition) = op.operand(Seg::Cond) else { return Ok(()) };
        let condition = self.scalar(op, condition)?;
        let types = self.result_types(op)?;
        let outer = self.b.point();
        let (made, arms) = self.b.begin_if(condition, &types);
        self.depth += 1;
        for (region, block) in op.regions().zip(arms) {
            self.b.at_end(block);
            self.region(region);
        }
        self.depth -= 1;
        self.b.set_point(outer);
        let results: Values = self.b.func().results(made).into();
        self.take_results(op, &results);
        Ok(())
    }

    pub(super) fn terminator(&mut self, op: OpRef<'m>) -> Done {
        let values = match op.opcode() {
            Opcode::Continue => self.handed_on_to_loop(op)?,
            _ => self.handed_on(op, op.list(Seg::Values), &[])?,
        };
        match op.opcode() {
            Opcode::Yield => self.b.end_arm(&values),
            Opcode::Break => self.b.end_break(&values),
            Opcode::Continue => self.b.end_continue(&values),
            _ => self.b.end_return(),
        }
        Ok(())
    }
}
