//! Halves the tiles of products that are larger than any instruction, and of ops whose words ask for smaller pieces.
//!
//! In: a kernel in value form. Out: the kernel in which each product whose M or N is beyond the target's instructions is two of half the
//! extent, as often as it takes, and with it every tile that is tied to it: accumulators in loops and branches, operands and their loads,
//! what is computed from the result element by element, its reductions and stores. A shared operand is loaded once, unless it is wanted both whole and in halves.
//!
//! A tile that must be halved along an axis says along which axis the tiles at the other end of each op must be (`Halving::link`). Where an op
//! cannot be done in halves, or a tile would have to be halved along two axes, nothing is split, and the product is refused
//! where instructions are chosen. Constants, `splat` and `iota` are written again for each half and tie nothing.
//!
//! A tile that is reduced and takes more than half of the registers of a processor is halved as well, along the axis that goes where what is halved does not need
//! the whole result (sums of columns), along another one where that keeps results apart (`softmax` of many rows); so is one that is gathered or scattered, in kernels without products. One half is done before the other is loaded
//! ([`order`]). Without it such tiles are refused (`E0507`) or spilled.
//!
//! `tileas.preferred_atom_size` on a product is the most columns of its accumulator, on another op those of its result where that is reduced or
//! multiplied along them (what is neither is cut by placement, which needs no halves); `tileas.max_num_slices_for_non_reduce_axis` ends it.
//!
//! Guarantee: each element is computed from the same elements, in the same order but for sums along the axis. Cost: linear in ops and operands, for each halving.

use super::order;
use super::unroll::constant;
use super::{Draft, Renames};
use crate::constraints::{RematWords, SLICE_WORDS, take};
use crate::ir::opcodes::{Traits, keys};
use crate::ir::types::Shape;
use crate::ir::{AttrData, Function, Op, Opcode, Scalar, Type, TypeData, Value, ValueDef};
use crate::isa::{AccAllocation, MmaRequest, TargetIsa};
use crate::storage::classify::is_leaf;
use cranelift_entity::packed_option::PackedOption;
use cranelift_entity::{EntitySet, SecondaryMap};
use smallvec::SmallVec;

/// Halvings of one kernel at most: each makes a product smaller.
const MOST_HALVINGS: usize = 16;

/// Splits products that are too large, and what words ask for; whether there was something.
pub(super) fn split(draft: &mut Draft<'_>, isa: &dyn TargetIsa, tight: Option<u32>) -> bool {
    let func = draft.func();
    let asked = func.ops().any(|op| RematWords::of(func, op).atom > 0);
    let products = draft.has(Opcode::Dot) || draft.has(Opcode::AsyncDot);
    // What fills a good part of the registers takes turns. Kernels with products have loops that are scheduled instead.
    let many = room(isa) / 4;
    let is_large = |op| crowded(func, op, products).is_some_and(|x| x.1 > many);
    let mut pieces = !products && func.ops().any(is_large);
    if !asked && !pieces && !products {
        return false;
    }
    let (mut any, mut unfit) = (pieces, EntitySet::new());
    for _ in 0..MOST_HALVINGS {
        let Some((why, axes)) = Halving::find(draft.func(), isa, tight, products, &mut unfit) else {
            let Some((op, n, load)) = shared_load(draft.func(), isa, &unfit) else { break };
            load_apart(draft.edit(), op, n, load);
            unfit.remove(op);
            any = true;
            continue;
        };
        let func = draft.edit();
        match why {
            Why::Asked(op) => count(func, op),
            Why::Crowded if products => again(func, &axes),
            Why::Crowded | Why::Large => {}
        }
        pieces |= matches!(why, Why::Asked(_)) || isa.acc_home().allocation == AccAllocation::Columns;
        Rewrite::default().run(func, &axes);
        any = true;
    }
    if pieces {
        order::order(draft.edit());
    }
    any
}

/// The last axis of a result whose columns are more than the op's words ask for, if it may be cut.
fn asked(func: &Function, op: Op) -> Option<u8> {
    let (words, result) = (RematWords::of(func, op), func.result(op)?);
    let columns = *dims(func, result).last()?;
    if words.atom == 0 || columns <= words.atom || words.slices == 1 || is_leaf(func.opcode(op)) {
        return None;
    }
    u8::try_from(dims(func, result).len() - 1).ok()
}

/// The largest tile that an op which nothing else cuts keeps in registers, and how many it takes in all threads together: what is reduced,
/// and, in kernels without products, what goes through pointers.
fn crowded(func: &Function, op: Op, products: bool) -> Option<(Value, u32)> {
    let opcode = func.opcode(op);
    let all = match opcode {
        Opcode::Reduce => &func.operands(op)[..1],
        _ if opcode.is_sparse() && func.is_weak(op) && !products => func.operands(op),
        _ => return None,
    };
    let words = |v: Value| {
        let data = func.value_data(v);
        let bits = data.num_elements()?.saturating_mul(data.elem()?.bits().into());
        Some((v, u32::try_from(bits / 32).unwrap_or(u32::MAX)))
    };
    all.iter().chain(func.results(op)).filter_map(|&v| words(v)).max_by_key(|x| x.1)
}

/// Why tiles are halved.
enum Why {
    /// A product is larger than instructions.
    Large,
    /// A tile fills the registers.
    Crowded,
    /// Words of an op ask for it.
    Asked(Op),
}

/// What is made of halves that lie in tensor memory, by arithmetic, is made again for each use: they are read again there.
fn again(func: &mut Function, axes: &Axes) {
    let mut uses: SecondaryMap<Value, u32> = SecondaryMap::new();
    for op in func.ops() {
        func.operands(op).iter().for_each(|&v| uses[v] += 1);
    }
    let cheap = |op: Op| {
        let arithmetic = [Opcode::Addf, Opcode::Subf, Opcode::Mulf, Opcode::Fma];
        arithmetic.contains(&func.opcode(op)) && func.result(op).is_some_and(|v| axes[v] > 0 && uses[v] > 1)
    };
    let cheap: SmallVec<[Op; 8]> = func.ops().filter(|&op| cheap(op)).collect();
    cheap.into_iter().for_each(|op| func.set_attr(op, keys::RECOMPUTABLE, AttrData::Unit));
}

/// Registers of a tile at most: half of a processor's.
fn room(isa: &dyn TargetIsa) -> u32 {
    isa.machine().limits.regs_per_sm / 2
}

/// Says of an op that is about to be halved what its halves are asked for.
fn count(func: &mut Function, op: Op) {
    let words = RematWords::of(func, op);
    let columns = func.result(op).and_then(|v| dims(func, v).last().copied()).unwrap_or(0);
    let left = words.slices / 2;
    if columns / 2 <= words.atom || left == 1 {
        take(func, op, &SLICE_WORDS);
    } else if words.slices > 0 {
        take(func, op, &SLICE_WORDS[1..]);
        func.set_int(op, keys::MAX_NUM_SLICES_FOR_NON_REDUCE_AXIS, i64::from(left));
    }
}

/// The axis of the accumulator along which a product is too large.
fn too_large(func: &Function, op: Op, isa: &dyn TargetIsa) -> Option<u8> {
    if func.opcode(op) != Opcode::AsyncDot || !func.named_segment(op, "acc_stage").is_empty() {
        return None;
    }
    let r = MmaRequest::of(func, op)?;
    if isa.atoms().select_mma(&r).is_ok() {
        // Of more sums than registers hold each half is computed by itself.
        let in_registers = isa.acc_home().allocation == AccAllocation::Registers;
        let most = super::fission::most_words(isa);
        let halves = r.m >= 128 && u64::from(r.m) * u64::from(r.n) > most;
        // So is what is multiplied again in the same loop, where both do not fit together.
        let both = || func.op_block(op).map_or((0, 0), |b| super::fission::kept_words(func, b));
        let again = || r.m >= 256 && matches!(both(), (1.., 1..)) && both().0 + both().1 >= most;
        return (in_registers && (halves || again())).then_some(0);
    }
    let shapes =
        || isa.atoms().kinds().filter(|k| k.types.contains(&(r.a, r.b, r.acc))).flat_map(|k| k.shapes);
    let (m, n) = (shapes().map(|s| u32::from(s.m)).max()?, shapes().map(|s| u32::from(s.n_max)).max()?);
    match (r.m > m && r.m.is_multiple_of(2), r.n > n && r.n.is_multiple_of(2)) {
        (true, _) => Some(0),
        (_, true) => Some(1),
        _ => None,
    }
}

/// A product that is too large and cannot be halved, whose operand to be halved is loaded for others as well, as both operands of X Xᵀ are:
/// the product, the operand's number and the load.
fn shared_load(func: &Function, isa: &dyn TargetIsa, unfit: &EntitySet<Op>) -> Option<(Op, usize, Op)> {
    func.ops().filter(|&op| unfit.contains(op)).find_map(|op| {
        let axis = too_large(func, op, isa)?;
        let n = product_axes(func, op).iter().position(|side| side.3 == axis)?;
        let v = *func.operands(op).get(n)?;
        let load = func.defining_op(v).filter(|&l| func.opcode(l) == Opcode::TiledLoad && func.is_weak(l))?;
        let uses = func.ops().flat_map(|op| func.operands(op)).filter(|&&x| x == v).count();
        (uses > 1).then_some((op, n, load))
    })
}

/// Gives an operand a load of its own, where the other one is.
fn load_apart(func: &mut Function, op: Op, n: usize, load: Op) {
    let operands: SmallVec<[Value; 8]> = func.operands(load).into();
    let segments: SmallVec<[u32; 8]> = func.segments(load).into();
    let types: SmallVec<[Type; 1]> = func.results(load).iter().map(|&v| func.value_type(v)).collect();
    let own = Rewrite::default().copy(func, load, &operands, &segments, &types);
    let v = func.results(own)[0];
    func.set_operand(op, n, v);
}

/// The columns of a product in tensor memory, if they are more than there is room for.
fn too_wide(func: &Function, op: Op, isa: &dyn TargetIsa, most: u32) -> Option<u8> {
    let columns = isa.acc_home().allocation == AccAllocation::Columns && func.opcode(op) == Opcode::AsyncDot;
    let r = MmaRequest::of(func, op).filter(|_| columns)?;
    (r.n > most && r.n.is_multiple_of(2)).then_some(1)
}

fn dims(func: &Function, v: Value) -> &[u32] {
    func.value_data(v).dims().unwrap_or(&[])
}

/// Halved axes by value, counted from 1; 0: whole.
type Axes = SecondaryMap<Value, u8>;

/// Which values are halved, and along which axis.
struct Halving<'a> {
    func: &'a Function,
    axes: Axes,
    work: Vec<Value>,
    /// Whether something is reduced or multiplied along the axis.
    sums: bool,
}

/// The axis at the other end of an op that only rearranges, or reduces another one. `None`: it cannot be halved there.
pub(super) fn axis_through(func: &Function, op: Op, axis: u8, forward: bool) -> Option<u8> {
    let (source, result) = (*func.operands(op).first()?, func.result(op)?);
    let (from, to) = if forward { (source, result) } else { (result, source) };
    let (from, to) = (dims(func, from), dims(func, to));
    let at = usize::from(axis);
    match func.opcode(op) {
        Opcode::Reshape => {
            // The highest bit of one axis is that of the other where as many elements stand before them.
            let before: u64 = from[..at].iter().map(|&n| u64::from(n)).product();
            let mut passed = 1;
            for (n, &d) in to.iter().enumerate() {
                if passed == before && d > 1 {
                    return d.is_multiple_of(2).then_some(n as u8);
                }
                passed *= u64::from(d);
            }
            None
        }
        Opcode::Permute => {
            let list = func.attr_ints(op, keys::PERMUTATION)?;
            match forward {
                true => list.iter().position(|&n| n == i64::from(axis)).map(|n| n as u8),
                false => list.get(at).map(|&n| n as u8),
            }
        }
        // Of a part that is as long there.
        Opcode::ExtractSlice => {
            (func.operands(op).len() == 1 && from.len() == to.len() && from[at] == to[at]).then_some(axis)
        }
        Opcode::Reduce => {
            let gone = u8::try_from(func.attr_int(op, keys::AXIS)?).ok()?;
            match forward {
                true if axis == gone => None,
                true => Some(axis - u8::from(axis > gone)),
                false => Some(axis + u8::from(axis >= gone)),
            }
        }
        _ => None,
    }
}

/// Of a product: the axes of A, B and the accumulator that are one.
pub(super) fn product_axes(func: &Function, op: Op) -> [(&'static str, u8, &'static str, u8); 2] {
    let (ta, tb) = (func.has_attr(op, keys::TRANSPOSE_A), func.has_attr(op, keys::TRANSPOSE_B));
    [("a", u8::from(ta), "acc", 0), ("b", u8::from(!tb), "acc", 1)]
}

/// Whether the halves of a reduction along their axis are combined by an op, and by which.
fn combining(func: &Function, op: Op) -> Option<Opcode> {
    let elem = func.value_data(func.result(op)?).elem()?;
    Some(match (func.attr_name(op, keys::MODE)?, elem.is_float()) {
        ("add", true) if elem == Scalar::F32 => Opcode::Addf,
        ("add", false) => Opcode::Addi,
        ("max", true) => Opcode::Maxf,
        ("max", false) => Opcode::Maxi,
        ("min", true) => Opcode::Minf,
        ("min", false) => Opcode::Mini,
        _ => return None,
    })
}

/// Ops that do to each element what they do to the others; operands of one element along an axis are repeated.
fn is_even(func: &Function, op: Op) -> bool {
    let opcode = func.opcode(op);
    opcode.has(Traits::ELEMENTWISE)
        || matches!(opcode, Opcode::Broadcast | Opcode::Assert)
        || opcode.is_sparse()
            && func.operands(op).iter().chain(func.results(op)).any(|&v| func.value_data(v).is_tile())
}

impl<'a> Halving<'a> {
    /// The halving of the first product that is too large, or op whose words ask for less, if all that is tied to it can be
    /// halved; and why. Ops that cannot be are noted.
    fn find(
        func: &'a Function,
        isa: &dyn TargetIsa,
        tight: Option<u32>,
        products: bool,
        unfit: &mut EntitySet<Op>,
    ) -> Option<(Why, Axes)> {
        func.ops().find_map(|op| {
            let large = too_large(func, op, isa);
            let asked = || asked(func, op).or_else(|| too_wide(func, op, isa, tight?));
            // What comes out of tensor memory has four warps. In loops halves are not read again: 256 keys a step spill 392 bytes in halves, 132 whole.
            let out = products
                && isa.acc_home().allocation == AccAllocation::Columns
                && func.op_parent(op).is_none();
            let most = (room(isa) - u32::from(out)) >> u32::from(func.opcode(op).is_sparse());
            let crowd = crowded(func, op, products).filter(|x| x.1 > most);
            if let Some((tile, _)) = crowd.filter(|_| !unfit.contains(op)) {
                let found = Halving::of_tile(func, op, tile, isa, out);
                if found.is_none() {
                    unfit.insert(op);
                }
                return found.map(|axes| (Why::Crowded, axes));
            }
            let axis = large.or_else(asked).filter(|_| !unfit.contains(op))?;
            let mut halving = Halving { func, axes: SecondaryMap::new(), work: Vec::new(), sums: false };
            let closed = func.result(op).and_then(|v| {
                halving.mark(v, axis)?;
                halving.close(&users(func))
            });
            let product = func.opcode(op) == Opcode::AsyncDot;
            let fits = large.is_some() || halving.fits(isa);
            if closed.is_none() || !product && !halving.sums || !fits {
                unfit.insert(op);
                return None;
            }
            Some((if large.is_none() { Why::Asked(op) } else { Why::Large }, halving.axes))
        })
    }

    /// The halving of a tile of an op, if one half can be done before the other, or is `kept` in tensor memory until the other's sum is there.
    fn of_tile(func: &'a Function, op: Op, tile: Value, isa: &dyn TargetIsa, kept: bool) -> Option<Axes> {
        let gone = func.attr_int(op, keys::AXIS).and_then(|axis| u8::try_from(axis).ok());
        let others = (0..dims(func, tile).len() as u8).filter(|&axis| Some(axis) != gone);
        let users = users(func);
        gone.into_iter().chain(others).find_map(|axis| {
            let mut halving = Halving { func, axes: SecondaryMap::new(), work: Vec::new(), sums: false };
            halving.mark(tile, axis)?;
            halving.close(&users)?;
            (halving.fits(isa) && (kept || halving.is_separable())).then_some(halving.axes)
        })
    }

    /// Whether no half of anything needs both halves of something.
    fn is_separable(&self) -> bool {
        let func = self.func;
        let is_halved = |v: &Value| self.axes[*v] > 0;
        let mut behind: EntitySet<Value> = EntitySet::new();
        let mut separable = true;
        // Twice: what loops carry may have been seen.
        for _ in 0..2 {
            for op in func.ops() {
                let (operands, results) = (func.operands(op), func.results(op));
                let whole = operands.iter().any(is_halved) && !results.iter().any(is_halved);
                if !whole && !operands.iter().any(|&v| behind.contains(v)) {
                    continue;
                }
                separable &= !results.iter().any(is_halved);
                results.iter().for_each(|&v| _ = behind.insert(v));
                let parent = func.op_parent(op).filter(|_| func.opcode(op) == Opcode::Yield);
                parent.into_iter().flat_map(|p| func.results(p)).for_each(|&v| _ = behind.insert(v));
                for l in parent.into_iter().chain([op]) {
                    let blocks = (0..func.regions(l).len()).filter_map(|r| func.op_block_at(l, r));
                    blocks.flat_map(|b| func.block_params(b)).for_each(|&v| _ = behind.insert(v));
                }
            }
        }
        separable
    }

    /// Whether the target has instructions for the halved products, and their tiles rows that TMA moves.
    fn fits(&self, isa: &dyn TargetIsa) -> bool {
        let func = self.func;
        let half = |v: Option<Value>, axis: u8, n: u32| {
            if v.is_some_and(|v| self.axes[v] == axis + 1) { n / 2 } else { n }
        };
        let align = isa.machine().limits.tma_align;
        func.ops().all(|op| match func.opcode(op) {
            Opcode::AsyncDot => {
                let Some(r) = MmaRequest::of(func, op) else { return true };
                let [(_, a, ..), ..] = product_axes(func, op);
                let (acc, left) = (func.named_operand(op, "acc"), func.named_operand(op, "a"));
                let result = func.result(op);
                let (m, n) = (half(result, 0, half(acc, 0, r.m)), half(result, 1, half(acc, 1, r.n)));
                let now = MmaRequest { m: m.max(r.m / 2), n: n.max(r.n / 2), k: half(left, 1 - a, r.k), ..r };
                now == r || isa.atoms().select_mma(&now).is_ok()
            }
            Opcode::AsyncTiledTmaLoad | Opcode::TiledLoad => func.result(op).is_none_or(|v| {
                let data = func.value_data(v);
                let (Some(&columns), Some(elem)) = (data.dims().and_then(<[u32]>::last), data.elem()) else {
                    return true;
                };
                let last = data.dims().map_or(0, |d| d.len() as u8);
                self.axes[v] != last || columns / 2 * elem.bits() / 8 >= align
            }),
            _ => true,
        })
    }

    /// A value is halved along an axis. `None`: it cannot be.
    fn mark(&mut self, v: Value, axis: u8) -> Option<()> {
        let func = self.func;
        let TypeData::Tile { dims, space: None, layout: None, .. } = func.value_data(v) else { return None };
        dims.get(usize::from(axis)).filter(|d| d.is_multiple_of(2))?;
        if func.defining_op(v).is_some_and(|op| is_leaf(func.opcode(op))) {
            return Some(());
        }
        match self.axes[v] {
            0 => {
                self.axes[v] = axis + 1;
                self.work.push(v);
                Some(())
            }
            known => (known == axis + 1).then_some(()),
        }
    }

    fn close(&mut self, users: &SecondaryMap<Value, SmallVec<[Op; 4]>>) -> Option<()> {
        while let Some(v) = self.work.pop() {
            let axis = self.axes[v] - 1;
            match self.func.value_def(v) {
                ValueDef::Result(op, n) => self.made(op, n as usize, v, axis)?,
                ValueDef::Param(b, n) => {
                    let l = self.func.block_parent(b)?;
                    self.tied(l, (n as usize).checked_sub(1)?, axis)?;
                }
            }
            for &op in &users[v] {
                self.used(op, v, axis)?;
            }
        }
        self.sides_agree()
    }

    /// A product that is halved takes one operand whole: it is not halved along K as well, for other reasons.
    fn sides_agree(&self) -> Option<()> {
        let func = self.func;
        let halved = |v: Value| self.axes[v].checked_sub(1);
        for op in func.ops().filter(|&op| func.opcode(op) == Opcode::AsyncDot) {
            let Some(axis) = func.result(op).and_then(halved) else { continue };
            for (operand, own, _, acc) in product_axes(func, op) {
                let is = func.named_operand(op, operand).and_then(halved);
                is.is_none_or(|is| acc == axis && is == own).then_some(())?;
            }
        }
        Some(())
    }

    /// Number `n` of what a loop carries or a branch results in.
    fn tied(&mut self, op: Op, n: usize, axis: u8) -> Option<()> {
        let func = self.func;
        self.mark(*func.results(op).get(n)?, axis)?;
        if func.opcode(op) == Opcode::For {
            self.mark(*func.named_segment(op, "inits").get(n)?, axis)?;
            self.mark(*func.for_args(op).get(n)?, axis)?;
        }
        for r in 0..func.regions(op).len() {
            self.mark(*func.region_yields(op, r).get(n)?, axis)?;
        }
        Some(())
    }

    /// All operands and results of an op that does the same to each element.
    fn evenly(&mut self, op: Op, like: Value, axis: u8) -> Option<()> {
        let func = self.func;
        let shape = dims(func, like);
        let at = usize::from(axis);
        for &v in func.operands(op).iter().chain(func.results(op)) {
            let own = dims(func, v);
            if own.is_empty() || func.value_data(v).as_scalar().is_some() || !func.value_data(v).is_tile() {
                continue;
            }
            if own.len() != shape.len() {
                return None;
            }
            if own[at] != 1 {
                self.mark(v, axis)?;
            }
        }
        Some(())
    }

    /// A result that is halved.
    fn made(&mut self, op: Op, n: usize, v: Value, axis: u8) -> Option<()> {
        let func = self.func;
        match func.opcode(op) {
            Opcode::For | Opcode::If => self.tied(op, n, axis),
            Opcode::TiledLoad => func.is_weak(op).then_some(()),
            // The box of the descriptor follows the tile.
            Opcode::AsyncTiledTmaLoad => {
                let each = func.named_segment(op, "coords").len() == dims(func, v).len();
                (each && func.named_operand(op, "buffer").is_none()).then_some(())
            }
            Opcode::AsyncDot => self.product(op, "acc", axis),
            Opcode::Reshape | Opcode::Permute | Opcode::Reduce | Opcode::ExtractSlice => {
                let to = axis_through(func, op, axis, false)?;
                self.mark(func.operands(op)[0], to)
            }
            _ if is_even(func, op) => self.evenly(op, v, axis),
            _ => None,
        }
    }

    /// An operand that is halved.
    fn used(&mut self, op: Op, v: Value, axis: u8) -> Option<()> {
        let func = self.func;
        match func.opcode(op) {
            Opcode::For => {
                let inits = func.named_segment(op, "inits").iter();
                let at: SmallVec<[usize; 4]> = inits.enumerate().filter(|x| *x.1 == v).map(|x| x.0).collect();
                at.into_iter().try_for_each(|n| self.tied(op, n, axis))
            }
            Opcode::Yield => {
                let parent = func.op_parent(op)?;
                let at: SmallVec<[usize; 4]> =
                    func.operands(op).iter().enumerate().filter(|x| *x.1 == v).map(|x| x.0).collect();
                at.into_iter().try_for_each(|n| self.tied(parent, n, axis))
            }
            Opcode::TiledStore => func.is_weak(op).then_some(()),
            Opcode::AsyncDot => {
                let names = ["a", "b", "acc"].into_iter().filter(|n| func.named_operand(op, n) == Some(v));
                names.into_iter().try_for_each(|n| self.product(op, n, axis))
            }
            Opcode::Reduce if axis_through(func, op, axis, true).is_none() => {
                self.sums = true;
                combining(func, op).map(|_| ())
            }
            Opcode::Reshape | Opcode::Permute | Opcode::Reduce | Opcode::ExtractSlice => {
                let to = axis_through(func, op, axis, true)?;
                self.mark(func.result(op)?, to)
            }
            _ if is_even(func, op) => self.evenly(op, v, axis),
            _ => None,
        }
    }

    fn product(&mut self, op: Op, which: &str, axis: u8) -> Option<()> {
        let func = self.func;
        func.named_segment(op, "acc_stage").is_empty().then_some(())?;
        for (operand, own, _, acc) in product_axes(func, op) {
            if (which == operand && axis == own) || (which == "acc" && axis == acc) {
                self.mark(func.named_operand(op, operand)?, own)?;
                self.mark(func.named_operand(op, "acc")?, acc)?;
                return self.mark(func.result(op)?, acc);
            }
        }
        // Along K: one half after the other.
        self.sums = true;
        let [(_, a, ..), (_, b, ..)] = product_axes(func, op);
        self.mark(func.named_operand(op, "a")?, 1 - a)?;
        self.mark(func.named_operand(op, "b")?, 1 - b)
    }
}

fn users(func: &Function) -> SecondaryMap<Value, SmallVec<[Op; 4]>> {
    let mut users: SecondaryMap<Value, SmallVec<[Op; 4]>> = SecondaryMap::new();
    users.resize(func.num_values());
    for op in func.ops() {
        for &v in func.operands(op) {
            if users[v].last() != Some(&op) {
                users[v].push(op);
            }
        }
    }
    users
}

/// Two halves of a value.
type Halves = [Value; 2];

#[derive(Default)]
struct Rewrite {
    halves: SecondaryMap<Value, PackedOption<Value>>,
    others: SecondaryMap<Value, PackedOption<Value>>,
    /// Halves of constants, `splat` and `iota`.
    leaves: Vec<(Value, u8, Halves)>,
    renamed: Renames,
    /// What loops and branches were that have become others.
    before: SecondaryMap<Op, SmallVec<[u8; 8]>>,
}

impl Rewrite {
    fn run(mut self, func: &mut Function, axes: &Axes) {
        for op in func.all_ops() {
            match func.opcode(op) {
                Opcode::For | Opcode::If => self.region(func, axes, op),
                Opcode::Yield => self.end(func, axes, op),
                _ => self.leaf(func, axes, op),
            }
        }
        self.renamed.apply(func);
    }

    fn set(&mut self, v: Value, [a, b]: Halves) {
        self.halves[v] = a.into();
        self.others[v] = b.into();
    }

    /// The halves of a value along an axis; twice the same where it has one element there.
    fn of(&mut self, func: &mut Function, axes: &Axes, v: Value, axis: u8) -> Halves {
        if let (Some(a), Some(b)) = (self.halves[v].expand(), self.others[v].expand()) {
            return [a, b];
        }
        let leaf = func.defining_op(v).filter(|&op| is_leaf(func.opcode(op)));
        let whole = dims(func, v).get(usize::from(axis)).is_some_and(|&d| d > 1);
        match leaf.filter(|_| whole && axes[v] == 0) {
            Some(op) => self.half_leaf(func, op, v, axis),
            None => [v, v],
        }
    }

    fn half_leaf(&mut self, func: &mut Function, op: Op, v: Value, axis: u8) -> Halves {
        if let Some(known) = self.leaves.iter().find(|l| (l.0, l.1) == (v, axis)) {
            return known.2;
        }
        let ty = half_type(func, v, axis);
        let operands: SmallVec<[Value; 1]> = func.operands(op).into();
        let segments: SmallVec<[u32; 1]> = func.segments(op).into();
        let one = func.make_op(func.opcode(op), &operands, &segments, &[ty], func.op_loc(op));
        *func.inherent_mut(one) = func.inherent(op).clone();
        func.insert_before(op, one);
        let first = func.results(one)[0];
        let mut second = first;
        if func.opcode(op) == Opcode::Iota {
            let by = func.make_op(Opcode::Constant, &[], &[], &[ty], func.op_loc(op));
            let length = dims(func, first).first().copied().unwrap_or(0);
            func.set_attr(by, keys::VALUE, AttrData::Int(i64::from(length), None));
            func.insert_before(op, by);
            let by = func.results(by)[0];
            let sum = func.make_op(Opcode::Addi, &[first, by], &[1, 1], &[ty], func.op_loc(op));
            func.insert_before(op, sum);
            second = func.results(sum)[0];
        }
        self.leaves.push((v, axis, [first, second]));
        [first, second]
    }

    /// An op without regions.
    fn leaf(&mut self, func: &mut Function, axes: &Axes, op: Op) {
        let result = func.result(op);
        let marked = |v: Value| axes[v].checked_sub(1);
        let by_result = func.results(op).iter().find_map(|&v| marked(v));
        let by_operand = func.operands(op).iter().find_map(|&v| marked(v));
        let (Some(axis), loc) = (by_result.or(by_operand), func.op_loc(op)) else { return };
        let opcode = func.opcode(op);
        let operands: SmallVec<[Value; 8]> = func.operands(op).into();
        let segments: SmallVec<[u32; 8]> = func.segments(op).into();
        let mut made: SmallVec<[Op; 2]> = SmallVec::new();
        if opcode == Opcode::AsyncDot && by_result.is_none() {
            // Along K.
            let [(_, a, ..), (_, b, ..)] = product_axes(func, op);
            let a = self.of(func, axes, operands[0], 1 - a);
            let b = self.of(func, axes, operands[1], 1 - b);
            let mut acc = operands[2];
            let Some(ty) = result.map(|r| func.value_type(r)) else { return };
            for k in 0..2 {
                let mut all = operands.clone();
                (all[0], all[1], all[2]) = (a[k], b[k], acc);
                let mut segments = segments.clone();
                if k == 1 {
                    // The second half adds to the first, whatever that one did.
                    all.truncate(3);
                    if let Some(s) = segments.last_mut() {
                        *s = 0;
                    }
                }
                let new = self.copy(func, op, &all, &segments, &[ty]);
                acc = func.results(new)[0];
            }
            if let Some(r) = result {
                self.renamed.succeed(func, r, acc);
            }
            func.remove_op(op);
            return;
        }
        let is_reduced = opcode == Opcode::Reduce && by_result.is_none();
        let operand_axis = match opcode {
            Opcode::Reshape | Opcode::Permute | Opcode::Reduce if !is_reduced => {
                axis_through(func, op, axis, false).unwrap_or(axis)
            }
            _ => axis,
        };
        let mut halves: SmallVec<[Halves; 8]> = SmallVec::new();
        for (n, &v) in operands.iter().enumerate() {
            let own = match opcode {
                Opcode::AsyncDot => {
                    let names = ["a", "b", "acc"];
                    let sides = product_axes(func, op);
                    match names.get(n) {
                        Some(&"acc") => Some(axis),
                        Some(&name) => sides.iter().find(|s| s.0 == name && s.3 == axis).map(|s| s.1),
                        None => None,
                    }
                }
                _ => func.value_data(v).is_tile().then_some(operand_axis),
            };
            halves.push(match own {
                Some(own) => self.of(func, axes, v, own),
                None => [v, v],
            });
        }
        if matches!(opcode, Opcode::TiledLoad | Opcode::TiledStore | Opcode::AsyncTiledTmaLoad) {
            let at = 1 + usize::from(opcode == Opcode::TiledStore) + usize::from(axis);
            if let Some(&c) = operands.get(at) {
                let parts = coordinates(func, op, c, 2);
                halves[at] = [parts[0], parts[1]];
                // All coordinates are of one type.
                let ty = func.value_type(halves[at][0]);
                for n in at - usize::from(axis)..operands.len() {
                    if n != at && func.value_type(operands[n]) != ty {
                        let wide = widened(func, op, operands[n], ty);
                        halves[n] = [wide, wide];
                    }
                }
            }
        }
        let types: SmallVec<[Type; 1]> = func
            .results(op)
            .to_vec()
            .into_iter()
            .map(|r| if axes[r] > 0 { half_type(func, r, axis) } else { func.value_type(r) })
            .collect();
        for k in 0..2 {
            let own: SmallVec<[Value; 8]> = halves.iter().map(|h| h[k]).collect();
            let new = self.copy(func, op, &own, &segments, &types);
            if let Some(mut sizes) =
                func.attr_ints(op, keys::SIZES).filter(|_| opcode == Opcode::ExtractSlice)
            {
                sizes[usize::from(axis)] /= 2;
                func.set_ints(new, keys::SIZES, &sizes);
            }
            made.push(new);
        }
        if is_reduced {
            let (Some(r), Some(by)) = (result, combining(func, op)) else { return };
            let parts: SmallVec<[Value; 2]> = made.iter().map(|&o| func.results(o)[0]).collect();
            let sum = func.make_op(by, &parts, &[1, 1], &types, loc);
            if func.has_attr(op, keys::UNSIGNED) && !matches!(by, Opcode::Addi) {
                func.set_attr(sum, keys::UNSIGNED, AttrData::Unit);
            }
            func.insert_before(op, sum);
            let to = func.results(sum)[0];
            self.renamed.succeed(func, r, to);
        } else if let Some(r) = result {
            let parts = [func.results(made[0])[0], func.results(made[1])[0]];
            if let Some(name) = func.value_sym(r) {
                func.set_value_sym(parts[0], name);
            }
            self.set(r, parts);
        }
        func.remove_op(op);
    }

    /// An op like another, in front of it.
    fn copy(
        &mut self,
        func: &mut Function,
        op: Op,
        operands: &[Value],
        segments: &[u32],
        types: &[Type],
    ) -> Op {
        let new = func.make_op(func.opcode(op), operands, segments, types, func.op_loc(op));
        *func.inherent_mut(new) = func.inherent(op).clone();
        *func.discardable_mut(new) = func.discardable(op).clone();
        func.insert_before(op, new);
        new
    }

    /// A loop or branch: it carries both halves.
    fn region(&mut self, func: &mut Function, axes: &Axes, op: Op) {
        let results: SmallVec<[Value; 8]> = func.results(op).into();
        if results.iter().all(|&v| axes[v] == 0) {
            return;
        }
        let is_loop = func.opcode(op) == Opcode::For;
        let fixed = if is_loop { 3 } else { 1 };
        let all: SmallVec<[Value; 8]> = func.operands(op).into();
        let mut operands: SmallVec<[Value; 8]> = all[..fixed].into();
        let mut types: SmallVec<[Type; 8]> = SmallVec::new();
        for (n, &r) in results.iter().enumerate() {
            let ty = match axes[r].checked_sub(1) {
                Some(axis) => {
                    if is_loop {
                        let parts = self.of(func, axes, all[fixed + n], axis);
                        operands.extend(parts);
                    }
                    let ty = half_type(func, r, axis);
                    types.push(ty);
                    ty
                }
                None => {
                    if is_loop {
                        operands.push(all[fixed + n]);
                    }
                    func.value_type(r)
                }
            };
            types.push(ty);
        }
        let mut segments: SmallVec<[u32; 4]> = SmallVec::from_elem(1, fixed);
        if is_loop {
            segments.push(types.len() as u32);
        }
        let new = self.copy(func, op, &operands, &segments, &types);
        let made: SmallVec<[Value; 8]> = func.results(new).into();
        self.take(func, axes, &results, &made);
        for r in 0..func.regions(op).len() {
            let Some(from) = func.op_block_at(op, r) else { continue };
            let to = func.add_region(new);
            let params: SmallVec<[Value; 8]> = func.block_params(from).into();
            if let Some((&number, args)) = params.split_first() {
                let index = func.add_block_param(to, func.value_type(number));
                self.renamed.succeed(func, number, index);
                let own: SmallVec<[Value; 8]> = types.iter().map(|&t| func.add_block_param(to, t)).collect();
                self.take(func, axes, args, &own);
            }
            while let Some(o) = func.first_op(from) {
                func.remove_op(o);
                func.append_op(to, o);
            }
        }
        self.before[new] = results.iter().map(|&r| axes[r]).collect();
        func.remove_op(op);
    }

    /// What was one value is one again, or two halves.
    fn take(&mut self, func: &mut Function, axes: &Axes, old: &[Value], new: &[Value]) {
        let mut next = new.iter().copied();
        for &v in old {
            let Some(first) = next.next() else { return };
            match (axes[v], func.value_sym(v)) {
                (0, _) => self.renamed.succeed(func, v, first),
                (_, name) => {
                    if let Some(name) = name {
                        func.set_value_sym(first, name);
                    }
                    let Some(second) = next.next() else { return };
                    self.set(v, [first, second]);
                }
            }
        }
    }

    fn end(&mut self, func: &mut Function, axes: &Axes, op: Op) {
        let Some(parent) = func.op_parent(op).filter(|&p| !self.before[p].is_empty()) else { return };
        let given: SmallVec<[Value; 8]> = func.operands(op).into();
        let marks = self.before[parent].clone();
        let mut list: SmallVec<[Value; 8]> = SmallVec::new();
        for (&v, &mark) in given.iter().zip(&marks) {
            match mark.checked_sub(1) {
                Some(axis) => list.extend(self.of(func, axes, v, axis)),
                None => list.push(v),
            }
        }
        func.set_operands(op, &list, &[list.len() as u32]);
    }
}

/// The type of half a tile.
fn half_type(func: &mut Function, v: Value, axis: u8) -> Type {
    let TypeData::Tile { dims, elem, space, layout } = func.value_data(v).clone() else {
        return func.value_type(v);
    };
    let mut dims: Shape = dims.iter().copied().collect();
    if let Some(d) = dims.get_mut(usize::from(axis)) {
        *d /= 2;
    }
    func.intern_type(TypeData::Tile { dims, elem, space, layout })
}

/// A coordinate as an integer of another type.
pub(super) fn widened(func: &mut Function, at: Op, c: Value, ty: Type) -> Value {
    let op = func.make_op(Opcode::Exti, &[c], &[1], &[ty], func.op_loc(at));
    func.insert_before(at, op);
    func.results(op)[0]
}

/// Whether a coordinate comes from numbers of CTAs and iterations: twice as much does not wrap around.
fn is_small(func: &Function, v: Value, fuel: u32) -> bool {
    let Some(fuel) = fuel.checked_sub(1) else { return false };
    match func.value_def(v) {
        ValueDef::Param(b, 0) => {
            let lower = func.block_parent(b).and_then(|l| func.named_operand(l, "lower"));
            lower.is_some_and(|lower| is_small(func, lower, fuel))
        }
        ValueDef::Param(..) => false,
        ValueDef::Result(op, _) => match func.opcode(op) {
            Opcode::ProgramId | Opcode::NumPrograms => true,
            Opcode::Constant => func.constant_value(v).is_some_and(|c| c.abs() < f64::from(1 << 24)),
            Opcode::Addi | Opcode::Subi | Opcode::Muli | Opcode::Divi | Opcode::Remi => {
                func.operands(op).iter().all(|&x| is_small(func, x, fuel))
            }
            _ => false,
        },
    }
}

/// The coordinate of the first of `count` parts of a tile: so many times its own.
pub(super) fn first_coordinate(func: &mut Function, at: Op, c: Value, count: u32) -> Value {
    let narrow = matches!(func.value_data(c).as_scalar(), Some(Scalar::I8 | Scalar::I16));
    let c = if narrow {
        let ty = func.scalar(Scalar::I32);
        widened(func, at, c, ty)
    } else {
        c
    };
    let by = i64::from(count);
    if let Some(known) = func.constant_value(c) {
        // As below: what lies so far out that it does not fit stays outside.
        return constant(func, at, c, by * (known as i64).clamp(-1, i64::from(i32::MAX) / by));
    }
    // Tiles in front of the view are all the same: none of them may wrap around to one that is not.
    let c = if is_small(func, c, 8) { c } else { arith(func, at, Opcode::Maxi, c, -1) };
    arith(func, at, Opcode::Muli, c, by)
}

/// The coordinates of the `count` parts of a tile: the first one, and the next ones.
fn coordinates(func: &mut Function, at: Op, c: Value, count: u32) -> SmallVec<[Value; 2]> {
    let first = first_coordinate(func, at, c, count);
    let known = func.constant_value(first);
    (0..i64::from(count))
        .map(|k| match known {
            _ if k == 0 => first,
            Some(known) => constant(func, at, first, known as i64 + k),
            None => arith(func, at, Opcode::Addi, first, k),
        })
        .collect()
}

/// A scalar with a number.
pub(super) fn arith(func: &mut Function, at: Op, opcode: Opcode, x: Value, n: i64) -> Value {
    let n = constant(func, at, x, n);
    let (ty, loc) = (func.value_type(x), func.op_loc(at));
    let op = func.make_op(opcode, &[x, n], &[1, 1], &[ty], loc);
    func.insert_before(at, op);
    func.results(op)[0]
}
