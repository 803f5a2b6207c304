//! Products whose operands are deep are sums over an inner loop.
//!
//! In: a kernel in value form that did not fit as it was. Out: the kernel in which a product with more than 128 bytes of K in a row, both operands of
//! which follow element by element from loads, adds such rows one after the other: in an inner loop a strip of each operand is loaded,
//! computed and multiplied. So memory and registers hold strips and not operands. What is loaded outside of the loops around the product is
//! loaded again for each of them.
//!
//! Lost without it: the decoder of latent attention (128 keys of 512 columns, 128 KB, beside as many values) and f32 tiles of 128 x 256 x 128, of which
//! there are high and low parts, are refused (`E0602`).
//! Guarantee: each sum has the same terms, in the same order. No load moves past what may write what it reads.
//! Cost: linear in the ops, once for each product.

use super::split::{axis_through, product_axes};
use super::strips::{ROW, Writer, reads};
use super::{Draft, Renames, is_annotated, strips, view_of, written_views};
use crate::ir::opcodes::{Traits, keys};
use crate::ir::{Function, Op, Opcode, Scalar, Value, ValueDef};
use crate::storage::classify::is_leaf;
use cranelift_entity::{EntitySet, SecondaryMap};
use smallvec::SmallVec;

/// Cuts products along K; whether there were any.
pub(super) fn cut(draft: &mut Draft<'_>) -> bool {
    let func = draft.func();
    let written = written_views(func);
    let found: Vec<Deep> = func.ops().filter_map(|op| Deep::of(func, op, written.as_ref())).collect();
    if found.is_empty() {
        return false;
    }
    let func = draft.edit();
    found.iter().for_each(|deep| deep.write(func));
    true
}

/// A product that can be cut.
struct Deep {
    product: Op,
    /// What its operands follow from, in an order in which values are made before they are read, with the axis that is K.
    ops: Vec<(Op, u8)>,
    /// Number of strips.
    count: u32,
}

impl Deep {
    fn of(func: &Function, product: Op, written: Option<&EntitySet<Value>>) -> Option<Deep> {
        let plain = func.opcode(product) == Opcode::AsyncDot
            && func.operands(product).len() == 3
            && !is_annotated(func, product);
        let a = func.named_operand(product, "a").filter(|_| plain)?;
        let data = func.value_data(a);
        let k = *data.dims()?.get(usize::from(k_axes(func, product)[0]))?;
        let width = ROW.checked_div(data.elem()?.bytes())?;
        let count = k.checked_div(width).filter(|&n| n > 1 && k.is_multiple_of(width))?;
        let mut search = Search { func, product, written, count, axes: SecondaryMap::new(), ops: Vec::new() };
        let operands = func.operands(product)[..2].iter().zip(k_axes(func, product));
        operands.into_iter().try_for_each(|(&v, axis)| search.follow(v, axis))?;
        Some(Deep { product, ops: search.ops, count })
    }

    fn write(&self, func: &mut Function) {
        let (product, loc) = (self.product, func.op_loc(self.product));
        let Some(result) = func.result(product) else { return };
        let (int, ty) = (func.scalar(Scalar::I32), func.value_type(result));
        let mut inputs = [0, i64::from(self.count), 1, 0].map(|n| {
            let op = func.make_op(Opcode::Constant, &[], &[], &[int], loc);
            func.set_int(op, keys::VALUE, n);
            func.insert_before(product, op);
            func.results(op)[0]
        });
        inputs[3] = func.operands(product)[2];
        let around = func.make_op(Opcode::For, &inputs, &[1, 1, 1, 1], &[ty], loc);
        func.insert_before(product, around);
        let body = func.add_region(around);
        let index = func.add_block_param(body, int);
        let acc = func.add_block_param(body, ty);
        let axes = k_axes(func, product);
        let operands: SmallVec<[Value; 3]> = func.operands(product).into();
        func.remove_op(product);
        func.append_op(body, product);
        let mut renamed = Renames::default();
        renamed.succeed(func, result, func.results(around)[0]);
        renamed.apply(func);
        let end = func.make_op(Opcode::Yield, &[result], &[1], &[], loc);
        func.append_op(body, end);
        let mut writer = Writer::new(around, product, index, self.count);
        self.ops.iter().for_each(|&(op, axis)| writer.strip(func, op, axis));
        let strips: [Value; 2] = [0, 1].map(|n| writer.part(func, operands[n], axes[n]));
        let segments: SmallVec<[u32; 8]> = func.segments(product).into();
        func.set_operands(product, &[strips[0], strips[1], acc], &segments);
    }
}

/// The axes of A and B that a product sums along.
fn k_axes(func: &Function, product: Op) -> [u8; 2] {
    product_axes(func, product).map(|(_, own, ..)| 1 - own)
}

/// What operands follow from.
struct Search<'a> {
    func: &'a Function,
    product: Op,
    written: Option<&'a EntitySet<Value>>,
    count: u32,
    /// By result, counted from 1.
    axes: SecondaryMap<Value, u8>,
    ops: Vec<(Op, u8)>,
}

impl Search<'_> {
    /// Notes the ops that a value follows from strip by strip. `None`: it does not.
    fn follow(&mut self, v: Value, axis: u8) -> Option<()> {
        let func = self.func;
        let ValueDef::Result(op, _) = func.value_def(v) else { return None };
        let extent = *func.value_data(v).dims()?.get(usize::from(axis))?;
        if is_leaf(func.opcode(op)) {
            let counts = func.opcode(op) == Opcode::Iota && func.value_data(v).elem() != Some(Scalar::I32);
            return (!counts && extent.is_multiple_of(self.count)).then_some(());
        }
        if self.axes[v] > 0 {
            return (self.axes[v] == axis + 1).then_some(());
        }
        self.axes[v] = axis + 1;
        let opcode = func.opcode(op);
        let even = match opcode {
            Opcode::AsyncTiledTmaLoad | Opcode::TiledLoad => {
                let each = func.named_segment(op, "coords").len() == func.value_data(v).rank();
                each && self.is_steady(op) && func.named_segment(op, "buffer").is_empty()
            }
            Opcode::Gather => self.is_steady(op),
            Opcode::Permute => axis_through(func, op, axis, false).is_some(),
            _ => strips::is_even(func, op),
        };
        if !even || is_annotated(func, op) || !extent.is_multiple_of(self.count) {
            return None;
        }
        for (operand, own) in reads(func, op, axis)? {
            own.map_or(Some(()), |own| self.follow(operand, own))?;
        }
        self.ops.push((op, axis));
        Some(())
    }

    /// Whether a load gives the same in front of the product: nobody writes what it reads, or nothing is written in between.
    fn is_steady(&self, load: Op) -> bool {
        let func = self.func;
        let view = view_of(func, load);
        let unwritten = || view.zip(self.written).is_some_and(|(view, written)| !written.contains(view));
        let quiet = |o: Op| !func.opcode(o).has(Traits::WRITES_GLOBAL) && func.is_weak(o);
        let between = || {
            let mut ops = std::iter::successors(func.next_op(load), |&o| func.next_op(o));
            let calm = |o: Op| {
                let mut calm = quiet(o);
                func.regions(o)
                    .iter()
                    .for_each(|&r| func.walk(func.region_block(r), &mut |o| calm &= quiet(o)));
                calm
            };
            func.op_block(load) == func.op_block(self.product)
                && ops.by_ref().take_while(|&o| o != self.product).all(calm)
        };
        func.is_weak(load) && (unwritten() || between())
    }
}
