//! Tensor views, their tiles, and accesses to these.
//!
//! A tensor whose innermost stride is known to be 1, in whatever order its dimensions stand, and whose memory begins at a multiple of 16
//! bytes is a view; its tiles are loaded and stored in the view's order and then permuted. Of any other tensor, and of tiles that do not
//! lie on a grid of their own extents, single elements are accessed. Tiles go through TMA where that is known to be possible: strides
//! are multiples of 16 bytes, and nobody forbids it.

use super::pointers::ordered;
use super::{Done, Known, Lowering, Shape, scalar_of};
use crate::error::{Code, Error};
use crate::module::OpRef;
use crate::types::TypeData;
use smallvec::SmallVec;
use std::rc::Rc;
use tileas_codegen::ir;
use tileas_codegen::ir::{AttrData, Dim, FloatBits, Opcode as Ir, Scalar, keys};
use tileas_meta::tileir::{Opcode, Padding, Seg};

/// Bytes that a view's memory begins at a multiple of, and rows that TMA moves.
const ALIGN: u64 = 16;

/// Memory with extents and strides.
pub(super) struct Tensor {
    base: ir::Value,
    elem: Scalar,
    extents: SmallVec<[ir::Value; 4]>,
    strides: SmallVec<[ir::Value; 4]>,
    /// As a view, whose dimension k is dimension `order[k]` of the tensor.
    view: Option<ir::Value>,
    order: SmallVec<[usize; 4]>,
    /// Whether rows are known to suit TMA.
    aligned: bool,
    /// Whether rows are known to be as long as TMA stores them: it writes 16 bytes at once, beyond the end of a row too.
    whole_rows: bool,
}

/// Where tiles lie.
enum Grid {
    /// Side by side.
    Partition,
    /// So many elements apart.
    Strided(SmallVec<[i64; 4]>),
    /// Anywhere; along one dimension element by element.
    Gather(usize),
}

/// Tiles of a tensor.
pub(super) struct Tiles {
    tensor: Rc<Tensor>,
    shape: Shape,
    /// For each dimension of a tile that of the tensor.
    map: SmallVec<[usize; 4]>,
    grid: Grid,
    padding: f64,
}

fn padding_number(padding: Option<Padding>) -> f64 {
    match padding {
        None | Some(Padding::Zero) => 0.0,
        Some(Padding::NegativeZero) => -0.0,
        Some(Padding::Nan) => f64::NAN,
        Some(Padding::PositiveInf) => f64::INFINITY,
        Some(Padding::NegativeInf) => f64::NEG_INFINITY,
    }
}

fn is_identity(order: &[usize]) -> bool {
    order.iter().enumerate().all(|(n, &d)| n == d)
}

impl<'m> Lowering<'m, '_> {
    pub(super) fn tensor_view(&mut self, op: OpRef<'m>) -> Done {
        let Some(result) = op.result(0) else { return Ok(()) };
        let TypeData::TensorView { elem, shape, strides, .. } = self.func.ty(result) else { return Ok(()) };
        let Some(elem) = scalar_of(*elem) else {
            return Err(op.error(Code::E1642, format!("a tensor of {elem} is not supported")));
        };
        if let Some(n) = shape.iter().flatten().find(|&&n| i32::try_from(n).is_err()) {
            return Err(
                op.error(Code::E1642, format!("a tensor of {n} elements along a dimension: 2^31 or more"))
            );
        }
        let base = self.pointer(op, op.operand(Seg::Base))?;
        let base = self.single(&base);
        let numbers = |this: &mut Self, stated: &[Option<i64>], seg| {
            let mut given = op.list(seg).iter();
            let mut out: SmallVec<[ir::Value; 4]> = SmallVec::new();
            for n in stated {
                out.push(match (n, given.len()) {
                    (&Some(n), _) => {
                        this.integer(n, if i32::try_from(n).is_ok() { Scalar::I32 } else { Scalar::I64 })
                    }
                    (None, 0) => return Err(op.error(Code::E1642, format!("`{}` is incomplete", seg.name()))),
                    (None, _) => match given.next() {
                        Some(&v) => this.scalar(op, v)?,
                        None => return Err(this.silent()),
                    },
                });
            }
            Ok(out)
        };
        let (extents, mut steps) = (numbers(self, shape, Seg::Shape)?, numbers(self, strides, Seg::Strides)?);
        let divisor = |this: &Self, v: &ir::Value| this.divisors.get(v).copied().unwrap_or(1);
        let bits = if elem.is_packed() { 4 } else { 8 * u64::from(elem.bytes()) };
        let whole = |elements: u64| (elements * bits).is_multiple_of(8 * ALIGN);
        let units = || (0..shape.len()).rev().filter(|&d| strides[d] == Some(1));
        let unit = units().find(|&d| shape[d] != Some(1)).or_else(|| units().next());
        // How far apart the elements of a dimension of one are nobody knows, whatever is assumed of it.
        for d in (0..shape.len()).filter(|&d| shape[d] == Some(1) && unit != Some(d)) {
            steps[d] = self.integer((8 * ALIGN / bits) as i64, Scalar::I32);
        }
        let mut tensor = Tensor {
            base,
            elem,
            extents,
            strides: steps,
            view: None,
            order: (0..shape.len()).collect(),
            aligned: false,
            whole_rows: false,
        };
        if let Some(unit) = unit.filter(|_| divisor(self, &base) >= ALIGN) {
            tensor.order.retain(|d| *d != unit);
            let outer = tensor.order.clone();
            tensor.order.push(unit);
            tensor.aligned = outer.iter().all(|&d| whole(divisor(self, &tensor.strides[d])));
            tensor.whole_rows = whole(divisor(self, &tensor.extents[unit]));
            let dims: SmallVec<[Dim; 4]> = tensor
                .order
                .iter()
                .map(|&d| match shape[d].and_then(|n| u32::try_from(n).ok()) {
                    Some(n) if n > 0 => Dim::Static(n),
                    _ => Dim::Dynamic,
                })
                .collect();
            let sizes: SmallVec<[ir::Value; 4]> = tensor.order.iter().map(|&d| tensor.extents[d]).collect();
            let steps: SmallVec<[ir::Value; 4]> = outer.iter().map(|&d| tensor.strides[d]).collect();
            let ty = self.b.view_type(&dims, elem);
            let made = self.b.op(Ir::MakeView).operand(base).operands(&sizes).operands(&steps);
            tensor.view = Some(made.results(&[ty]).finish_one());
        }
        self.known[result] = Known::Tensor(Rc::new(tensor));
        Ok(())
    }

    pub(super) fn tile_view(&mut self, op: OpRef<'m>) -> Done {
        let (Some(result), Some(of)) = (op.result(0), op.operand(Seg::View)) else { return Ok(()) };
        let Known::Tensor(tensor) = &self.known[of] else { return Err(self.silent()) };
        let tensor = tensor.clone();
        let ty = self.func.ty(result);
        let Some((tile, _, padding)) = ty.view() else { return Ok(()) };
        let shape: Shape = tile.iter().map(|&n| u32::try_from(n).unwrap_or(0)).collect();
        let numbers = |list: &[i32]| list.iter().map(|&d| usize::try_from(d).unwrap_or(0)).collect();
        let (map, grid): (SmallVec<[usize; 4]>, Grid) = match ty {
            TypeData::PartitionView { map, .. } => (numbers(map), Grid::Partition),
            TypeData::StridedView { map, steps, .. } => {
                (numbers(map), Grid::Strided(steps.iter().map(|&n| i64::from(n)).collect()))
            }
            TypeData::GatherScatterView { sparse, .. } => {
                ((0..shape.len()).collect(), Grid::Gather(*sparse as usize))
            }
            _ => return Ok(()),
        };
        let rank = tensor.extents.len();
        if map.len() != shape.len() || shape.len() != rank || map.iter().any(|&d| d >= rank) {
            return Err(op.error(Code::E1643, "tiles of other rank than their tensor are not supported"));
        }
        let padding = padding_number(padding);
        self.known[result] = Known::Tiles(Rc::new(Tiles { tensor, shape, map, grid, padding }));
        Ok(())
    }

    /// How many tiles there are along each dimension, or elements of a tensor.
    pub(super) fn view_shape(&mut self, op: OpRef<'m>) -> Done {
        let Some(of) = op.list(Seg::View).first() else { return Ok(()) };
        let known = self.known[*of].clone();
        for (i, result) in op.results().enumerate() {
            let (elem, _) = self.tile_type(op, result)?;
            let v = match &known {
                Known::Tensor(t) if i < t.extents.len() => self.resized(t.extents[i], elem),
                Known::Tiles(t) if i < t.map.len() => {
                    let extent = t.tensor.extents[t.map[i]];
                    let step = match &t.grid {
                        Grid::Partition => i64::from(t.shape[i]),
                        Grid::Strided(steps) => steps.get(i).copied().unwrap_or(1),
                        Grid::Gather(_) => {
                            let text = "how many tiles a gather view has is not known";
                            return Err(op.error(Code::E1643, text));
                        }
                    };
                    let extent = self.resized(extent, elem);
                    let step = self.integer(step.max(1), elem);
                    let ty = self.b.scalar_type(elem);
                    let up = self.b.func().intern_symbol("positive_inf");
                    let made = self.b.op(Ir::Divi).operand(extent).operand(step).name(keys::ROUNDING, up);
                    made.results(&[ty]).finish_one()
                }
                _ => return Err(self.silent()),
            };
            self.known[result] = Known::Value(v);
        }
        Ok(())
    }

    fn tiles(&mut self, op: OpRef<'m>) -> Result<Rc<Tiles>, Box<Error>> {
        match op.operand(Seg::View).map(|v| self.known[v].clone()) {
            Some(Known::Tiles(t)) => Ok(t),
            _ => Err(self.silent()),
        }
    }

    /// Dimensions of the tile in the order of the view's.
    fn in_view_order(t: &Tiles) -> SmallVec<[usize; 4]> {
        let of = |d: &usize| t.map.iter().position(|m| m == d).unwrap_or(0);
        t.tensor.order.iter().map(of).collect()
    }

    fn forbids_tma(&self, op: OpRef<'m>, t: &Tiles) -> bool {
        !t.tensor.aligned || op.hints(self.target).allow_tma == Some(false)
    }

    pub(super) fn load_view(&mut self, op: OpRef<'m>) -> Done {
        self.tokens(op);
        let Some(result) = op.result(0) else { return Ok(()) };
        let t = self.tiles(op)?;
        let elem = t.tensor.elem;
        let padding = match elem.is_float() {
            true => AttrData::Float(FloatBits::new(t.padding), None),
            false => AttrData::Int(t.padding as i64, None),
        };
        let (Some(view), Grid::Partition) = (t.tensor.view, &t.grid) else {
            let v = self.load_elements(op, &t, padding)?;
            self.known[result] = Known::Value(v);
            return Ok(());
        };
        let order = Self::in_view_order(&t);
        let mut coords: SmallVec<[ir::Value; 4]> = SmallVec::new();
        for &i in &order {
            let Some(&index) = op.list(Seg::Index).get(i) else { return Err(self.silent()) };
            coords.push(self.scalar(op, index)?);
        }
        let dims: Shape = order.iter().map(|&i| t.shape[i]).collect();
        let single = dims.iter().all(|&n| n == 1);
        let ty = if single { self.b.scalar_type(elem) } else { self.b.tile_type(&dims, elem) };
        let direct = !single && self.forbids_tma(op, &t);
        let memory = self.order(op);
        let made = self.b.op(Ir::TiledLoad).operand(view).operands(&coords).attr(keys::PADDING, padding);
        let made = if direct { made.unit(keys::NO_TMA) } else { made };
        let v = ordered(made, memory).results(&[ty]).finish_one();
        let v = match single {
            true => self.splat(v, &t.shape),
            false => {
                let mut back: SmallVec<[usize; 4]> = SmallVec::from_elem(0, order.len());
                order.iter().enumerate().for_each(|(k, &i)| back[i] = k);
                self.permuted(v, &back)
            }
        };
        self.known[result] = Known::Value(v);
        Ok(())
    }

    /// The tile with its axes in another order: axis n is axis `order[n]` of the source.
    pub(super) fn permuted(&mut self, v: ir::Value, order: &[usize]) -> ir::Value {
        let data = self.b.func().value_data(v);
        let (Some(from), Some(elem)) = (data.dims().map(Shape::from_slice), data.elem()) else { return v };
        if is_identity(order) {
            return v;
        }
        let to: Shape = order.iter().map(|&d| from[d]).collect();
        if let Some(x) = self.splat_of(v) {
            return self.splat(x, &to);
        }
        // What only moves axes of one element moves nothing.
        let kept: SmallVec<[usize; 4]> = order.iter().copied().filter(|&d| from[d] > 1).collect();
        if kept.is_sorted() {
            return self.reshaped(v, &to);
        }
        let ty = self.b.tile_type(&to, elem);
        let order: SmallVec<[i64; 4]> = order.iter().map(|&d| d as i64).collect();
        self.b.op(Ir::Permute).operand(v).ints(keys::PERMUTATION, &order).results(&[ty]).finish_one()
    }

    pub(super) fn store_view(&mut self, op: OpRef<'m>) -> Done {
        self.tokens(op);
        let t = self.tiles(op)?;
        let value = self.named(op, Seg::Tile)?;
        let (Some(view), Grid::Partition) = (t.tensor.view, &t.grid) else {
            let (base, coords, mask) = self.element_coordinates(op, &t)?;
            let order = self.order(op);
            let made = self.b.op(Ir::Scatter).operand(value).operand(base).operands(&coords).optional(mask);
            ordered(made, order).finish();
            return Ok(());
        };
        let order = Self::in_view_order(&t);
        let mut coords: SmallVec<[ir::Value; 4]> = SmallVec::new();
        for &i in &order {
            let Some(&index) = op.list(Seg::Index).get(i) else { return Err(self.silent()) };
            coords.push(self.scalar(op, index)?);
        }
        let value = self.permuted(value, &order);
        let direct = self.forbids_tma(op, &t) || !t.tensor.whole_rows;
        let memory = self.order(op);
        let made = self.b.op(Ir::TiledStore).operand(value).operand(view).operands(&coords);
        let made = if direct { made.unit(keys::NO_TMA) } else { made };
        ordered(made, memory).finish();
        Ok(())
    }

    pub(super) fn update_view(&mut self, op: OpRef<'m>) -> Done {
        debug_assert_eq!(op.opcode(), Opcode::AtomicRedViewTko);
        self.tokens(op);
        let t = self.tiles(op)?;
        let value = self.named(op, Seg::Tile)?;
        let (base, coords, mask) = self.element_coordinates(op, &t)?;
        self.update(op, base, value, None, &coords, mask, false).map(|_| ())
    }

    fn load_elements(
        &mut self,
        op: OpRef<'m>,
        t: &Tiles,
        padding: AttrData,
    ) -> Result<ir::Value, Box<Error>> {
        let (base, coords, mask) = self.element_coordinates(op, t)?;
        let (ty, order) = (self.b.tile_type(&t.shape, t.tensor.elem), self.order(op));
        let made = self.b.op(Ir::Gather).operand(base).operands(&coords).optional(mask);
        Ok(ordered(made, order).attr(keys::PADDING, padding).results(&[ty]).finish_one())
    }

    /// Where the elements of a tile are: in a view, or behind a pointer and then with a mask.
    #[expect(clippy::type_complexity, reason = "three things")]
    fn element_coordinates(
        &mut self,
        op: OpRef<'m>,
        t: &Tiles,
    ) -> Result<(ir::Value, SmallVec<[ir::Value; 4]>, Option<ir::Value>), Box<Error>> {
        let rank = t.shape.len();
        let mut along: SmallVec<[ir::Value; 4]> = SmallVec::new();
        for i in 0..rank {
            let Some(&index) = op.list(Seg::Index).get(i) else { return Err(self.silent()) };
            along.push(self.along(op, t, i, index)?);
        }
        if let Some(view) = t.tensor.view {
            let coords = Self::in_view_order(t).iter().map(|&i| along[i]).collect();
            return Ok((view, coords, None));
        }
        // Counts of 64 bits behind the pointer; a mask where something is out of bounds.
        let (mut count, mut mask) = (None, None);
        let wide = self.b.tile_type(&t.shape, Scalar::I64);
        let truth = self.b.tile_type(&t.shape, Scalar::I1);
        for (i, &x) in along.iter().enumerate() {
            let x = self.resized(x, Scalar::I64);
            let x = self.spread(x, &t.shape);
            let d = t.map[i];
            let (extent, stride) = (t.tensor.extents[d], t.tensor.strides[d]);
            let (extent, stride) = (self.resized(extent, Scalar::I64), self.resized(stride, Scalar::I64));
            let (extent, stride) = (self.splat(extent, &t.shape), self.splat(stride, &t.shape));
            let below = self.b.func().intern_symbol("lt");
            let inside = self.b.op(Ir::Cmpi).operand(x).operand(extent).name(keys::PREDICATE, below);
            let inside = inside.unit(keys::UNSIGNED).results(&[truth]).finish_one();
            let part = self.b.op(Ir::Muli).operand(x).operand(stride).results(&[wide]).finish_one();
            let both = |this: &mut Self, code, a: Option<ir::Value>, b, ty| match a {
                Some(a) => this.b.op(code).operand(a).operand(b).results(&[ty]).finish_one(),
                None => b,
            };
            count = Some(both(self, Ir::Addi, count, part, wide));
            mask = Some(both(self, Ir::Andi, mask, inside, truth));
        }
        let coords = count.into_iter().collect();
        Ok((t.tensor.base, coords, mask))
    }

    /// The coordinates of a tile's elements along one of its dimensions: a scalar, or a tile that has extents of 1 along the others.
    fn along(
        &mut self,
        op: OpRef<'m>,
        t: &Tiles,
        i: usize,
        index: crate::entities::Value,
    ) -> Result<ir::Value, Box<Error>> {
        let n = t.shape[i];
        let mut dims: Shape = SmallVec::from_elem(1, t.shape.len());
        dims[i] = n;
        let x = self.value(op, index)?;
        if matches!(t.grid, Grid::Gather(sparse) if sparse == i) {
            return Ok(match self.b.func().value_data(x).is_tile() {
                true => self.reshaped(x, &dims),
                false => x,
            });
        }
        let x = self.as_scalar(x);
        let elem = self.b.func().value_data(x).elem().unwrap_or(Scalar::I32);
        let step = match &t.grid {
            Grid::Partition => i64::from(n),
            Grid::Strided(steps) => steps.get(i).copied().unwrap_or(1),
            Grid::Gather(_) => 1,
        };
        let first = match step {
            1 => x,
            _ => {
                let (step, ty) = (self.integer(step, elem), self.b.scalar_type(elem));
                let first = self.b.op(Ir::Muli).operand(x).operand(step).results(&[ty]).finish_one();
                self.divisors.insert(first, self.divisors.get(&step).copied().unwrap_or(1));
                first
            }
        };
        if n == 1 {
            return Ok(first);
        }
        let ty = self.b.tile_type(&[n], Scalar::I32);
        let count = self.b.op(Ir::Iota).results(&[ty]).finish_one();
        let count = self.resized(count, elem);
        let (first, ty) = (self.splat(first, &[n]), self.b.tile_type(&[n], elem));
        let all = self.b.op(Ir::Addi).operand(count).operand(first).results(&[ty]).finish_one();
        Ok(self.reshaped(all, &dims))
    }

    /// A scalar, or a tile with extents of 1, in a whole tile.
    pub(super) fn spread(&mut self, x: ir::Value, shape: &[u32]) -> ir::Value {
        let data = self.b.func().value_data(x);
        let Some(elem) = data.elem() else { return x };
        match data.dims().filter(|_| data.is_tile()) {
            None => self.splat(x, shape),
            Some(dims) if dims == shape => x,
            Some(_) => {
                let ty = self.b.tile_type(shape, elem);
                self.b.op(Ir::Broadcast).operand(x).results(&[ty]).finish_one()
            }
        }
    }
}
