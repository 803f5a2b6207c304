//! Layouts of the tiles of a chain, one for each, chosen by what it costs to compute, to move and to convert them.
//!
//! In: a chain whose tiles do not all lie by rows. Out: a layout for each of its tiles and for each op in which it computes
//! ([`Layouts`]); where the two differ, the placer converts.
//!
//! A *node* is what has one layout: an access to memory, or a web of element-wise ops, broadcasts and tiles that loops and conditionals
//! carry. What shape ops and reductions make of a tile follows from its layout. Each node has candidates: coalesced runs, rows in warps, each axis in the registers of
//! threads, rows of accumulators, and what its neighbours have. Costs are those of
//! [`crate::layout`], counted in quarters of a cycle of an SM for all warps: of an op its words, of an access its sectors, of a use the
//! conversion, each as often as loops run it. Constants, splats and counters are made anew in every layout, and cost nothing.
//!
//! The sum is minimised exactly by eliminating one node after the other, the least table first; beyond [`MOST_ENTRIES`] entries by moves of
//! single nodes until none helps. Of equal costs the first candidate wins. Cost: candidates² for each use.

use super::chains::{Chain, Chains, Inputs, reads_piece, rows_columns, tma_storable};
use super::operands::{acc_layout, acc_moved, operand_layout};
use crate::error::{Code, CodegenError, CodegenResult, Loc};
use crate::ir::layouts::{register_layout, register_map, registers_per_thread};
use crate::ir::opcodes::{Traits, keys};
use crate::ir::types::Shape;
use crate::ir::{Function, Layout, Op, Opcode, Scalar, Value};
use crate::layout::gf2::{Columns, Span};
use crate::layout::{Axes, LinearMap, WarpProduct};
use crate::storage::classify::{self, DisjointSets, ValueClass};
use crate::storage::runs;
use crate::storage::scratch::Reduction;
use cranelift_entity::EntityRef;
use rustc_hash::FxHashMap;
use smallvec::{SmallVec, smallvec};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::hash_map::Entry;

/// Most entries of a table of costs.
const MOST_ENTRIES: usize = 200_000;
/// Most candidates of a node.
const MOST_CANDIDATES: usize = 12;
/// Registers of a tile that a thread may hold in any layout, also where lanes and warps hold copies.
const FEW_REGISTERS: u32 = 64;
/// Quarters of a cycle for which all threads wait for each other in a trip through shared memory. With 32 cycles, which is what the
/// instructions take, a mask of 128 keys may be computed once and handed round: then no product is under way over the softmax, and warpgroups
/// do not take turns; the intervals of other people's kernels are 0.9 % longer. With 256 they are 0.5 % shorter, and those that change spill almost twice as much.
const MEETING: u32 = 4 * 128;
/// The same where warps hand each other a part of a reduction or scan, which little waits for. With what a trip costs, intervals are 0.1 % longer.
const HANDING: u32 = 4 * 32;
/// How often a loop runs, as far as costs go.
const TRIPS: u32 = 8;
/// Loops that count.
const MOST_DEPTH: u32 = 3;

/// The layouts of a chain.
#[derive(Clone, Debug, Default)]
pub struct Layouts {
    /// Of values; none of those that are made anew wherever they are used.
    of_value: FxHashMap<Value, Layout>,
    /// In which ops compute: element-wise ops, broadcasts, stores.
    of_op: FxHashMap<Op, Layout>,
    /// Elements that follow each other at the coordinates of an op, where it is more than one.
    vectors: FxHashMap<Op, u32>,
}

impl Layouts {
    /// Elements of a vector of an access at coordinates.
    pub(super) fn vector(&self, op: Op) -> Option<u32> {
        self.vectors.get(&op).copied().filter(|&n| n > 1)
    }

    /// Registers of a thread that the widest tile takes.
    pub(super) fn widest(&self, func: &Function, warps: u32) -> Option<u32> {
        let registers = |(v, l): (&Value, &Layout)| {
            let data = func.value_data(*v);
            registers_per_thread(*l, data.dims()?, data.elem()?, warps)
        };
        self.of_value.iter().map(registers).try_fold(0, |most, n| Some(most.max(n?)))
    }

    /// The layout of a value.
    pub(super) fn of_value(&self, v: Value) -> Option<Layout> {
        self.of_value.get(&v).copied()
    }

    /// The layout in which an op computes.
    pub(super) fn of_op(&self, op: Op) -> Option<Layout> {
        self.of_op.get(&op).copied()
    }
}

/// What is left of a map when an axis of several elements becomes one of a single element.
fn collapsed(map: &LinearMap, from: &Axes, to: &[u32]) -> LinearMap {
    let mut out = *map;
    // The axes that are to go, the last first, so that those before keep their numbers.
    let mut axes = from.clone();
    for axis in (0..to.len()).rev() {
        if to[axis] == 1 && axes.bits(axis) > 0 {
            out = out.slice(&axes, axis);
            axes = axes.without(axis);
        }
    }
    out.compact()
}

/// The layout in which an operand of an op is wanted whose result, or who itself, is to be in that layout. `None`: as it is.
pub(super) fn wanted(func: &Function, op: Op, v: Value, map: &LinearMap) -> Option<LinearMap> {
    match func.opcode(op) {
        Opcode::Broadcast => {
            let axes = Axes::of(func.result(op).and_then(|r| func.value_data(r).dims())?)?;
            Some(collapsed(map, &axes, func.value_data(v).dims()?))
        }
        // The same elements by other coordinates.
        Opcode::Reshape | Opcode::ConvertLayout => Some(*map),
        Opcode::Reduce | Opcode::Combine | Opcode::Scan => None,
        Opcode::ExtractSlice | Opcode::Permute | Opcode::Cat => None,
        // The operands as the instruction has them.
        Opcode::WarpDot if func.named_operand(op, "acc") != Some(v) => {
            let product = warp_product(func, op, 1 << map.warp().len())?;
            Some(if func.named_operand(op, "a") == Some(v) { product.a } else { product.b })
        }
        // Coordinates and masks repeat where they have one element.
        o if o.is_sparse() => {
            let dims = func.value_data(func.sparse_tile(op)?).dims()?;
            let own = func.value_data(v).dims()?;
            if dims == own { Some(*map) } else { Some(collapsed(map, &Axes::of(dims)?, own)) }
        }
        _ => Some(*map),
    }
}

/// The layouts of a product by warps.
fn warp_product(func: &Function, op: Op, warps: u32) -> Option<WarpProduct> {
    let dims = |name| func.named_operand(op, name).and_then(|v| func.value_data(v).dims());
    let (&[m, k], &[_, n]) = (dims("a")?, dims("b")?) else { return None };
    let bits = func.named_operand(op, "a").and_then(|v| func.value_data(v).elem())?.bits();
    WarpProduct::of([m, n, k], warps, bits)
}

/// The layout of the result of a shape op or reduction of a tile in that layout; `None`: it has to be another one.
pub(super) fn derived(func: &Function, op: Op, map: &LinearMap) -> Option<LinearMap> {
    let source = source_of(func, op)?;
    let from = func.value_data(source).dims()?;
    match func.opcode(op) {
        Opcode::Permute => {
            let axes = Axes::of(from)?;
            let order = func.attr_ints(op, keys::PERMUTATION)?;
            let order: Option<SmallVec<[usize; 4]>> =
                order.iter().map(|&a| usize::try_from(a).ok().filter(|&a| a < axes.rank())).collect();
            Some(map.permute(&axes, &order?))
        }
        Opcode::Cat => {
            let axis = usize::try_from(func.attr_int(op, keys::AXIS)?).ok()?;
            let (axes, to) = (Axes::of(from)?, Axes::of(func.value_data(func.result(op)?).dims()?)?);
            let top = 1u32.checked_shl(to.low(axis) + axes.bits(axis))?;
            // One more bit of the axis, in the highest register.
            let place = |c: u32| (0..axes.rank()).fold(0, |m, a| m | axes.coordinate(c, a) << to.low(a));
            let lanes: [u32; 5] = std::array::from_fn(|k| map.lane().get(k).map_or(0, |&c| place(c)));
            let warps: Columns = map.warp().iter().map(|&c| place(c)).collect();
            let registers: Columns = map.register().iter().map(|&c| place(c)).chain([top]).collect();
            LinearMap::registers(&registers, &lanes, &warps)
        }
        Opcode::Reshape | Opcode::ConvertLayout | Opcode::Scan => Some(*map),
        Opcode::Reduce | Opcode::Combine => {
            let axis = usize::try_from(func.attr_int(op, keys::AXIS)?).ok()?;
            let axes = Axes::of(from).filter(|a| axis < a.rank())?;
            Some(Reduction::along(map, &axes, axis).result)
        }
        Opcode::ExtractSlice => {
            let axes = Axes::of(from)?;
            let to = Axes::of(func.value_data(func.result(op)?).dims()?)?;
            // What is cut off must be whole registers.
            let cut = (0..axes.rank()).fold(0, |m, a| {
                let kept = ((1u32 << to.bits(a)) - 1) << axes.low(a);
                m | (axes.mask(a) & !kept)
            });
            let threads = map.lane().iter().chain(map.warp());
            if threads.into_iter().any(|c| c & cut != 0) {
                return None;
            }
            map.filter_registers(
                |c| c & cut == 0,
                |c| {
                    (0..axes.rank()).fold(0, |out, a| {
                        let x = axes.coordinate(c, a) & ((1 << to.bits(a)) - 1);
                        out | x << to.low(a)
                    })
                },
            )
        }
        _ => None,
    }
}

/// The operand whose layout the result's follows from.
pub(super) fn source_of(func: &Function, op: Op) -> Option<Value> {
    let first = || func.named_segment(op, "sources").first().copied();
    func.named_operand(op, "source").or_else(|| func.named_operand(op, "lhs")).or_else(first)
}

/// The map that axes had before they were put in another order.
pub(super) fn permuted_back(func: &Function, op: Op, map: &LinearMap) -> Option<LinearMap> {
    let to = Axes::of(func.value_data(func.result(op)?).dims()?)?;
    let order = func.attr_ints(op, keys::PERMUTATION)?;
    let mut back: SmallVec<[usize; 4]> = SmallVec::from_elem(0, order.len());
    for (n, &a) in order.iter().enumerate() {
        *back.get_mut(usize::try_from(a).ok()?)? = n;
    }
    Some(map.permute(&to, &back))
}

/// The map with every bit that an extracted slice cuts off in registers.
pub(super) fn sliceable(func: &Function, op: Op, map: &LinearMap) -> Option<LinearMap> {
    let from = func.value_data(func.named_operand(op, "source")?).dims()?;
    let to = Axes::of(func.value_data(func.result(op)?).dims()?)?;
    let axes = Axes::of(from)?;
    let cut =
        (0..axes.rank()).fold(0, |m, a| m | (axes.mask(a) & !(((1u32 << to.bits(a)) - 1) << axes.low(a))));
    let keep = |c: u32| if c & cut != 0 { 0 } else { c };
    let lanes: [u32; 5] = std::array::from_fn(|k| map.lane().get(k).map_or(0, |&c| keep(c)));
    let warps: Columns = map.warp().iter().map(|&c| keep(c)).collect();
    let moved = map.lane().iter().chain(map.warp()).copied().filter(|c| c & cut != 0);
    let registers: Columns = map.register().iter().copied().chain(moved).collect();
    LinearMap::registers(&registers, &lanes, &warps)
}

/// A node: what has one layout.
struct Node {
    dims: Shape,
    /// Bytes of an element in memory, of the accesses among its ops; 0: none.
    bytes: u32,
    /// Bits of an element.
    bits: u32,
    /// Most elements of a vector of these accesses.
    vector: u32,
    /// Whether each element must be in one thread alone, if there are enough.
    single: bool,
    /// Whether its tile is read from, or written to, an accumulator in memory: as that is moved.
    moved: bool,
    /// The load that brings its tile of bytes to shared memory. Wider elements make less of a difference there.
    shared: Option<Op>,
    /// It is an accumulator in registers: nothing else will do.
    fixed: Option<LinearMap>,
    /// Its tile is reduced along these axes.
    reduced: SmallVec<[usize; 2]>,
    candidates: SmallVec<[LinearMap; MOST_CANDIDATES]>,
    /// By candidate.
    own: Vec<u32>,
}

impl Node {
    /// Whether it may have any layout.
    fn is_free(&self) -> bool {
        !self.moved && self.fixed.is_none()
    }
}

/// A value that a node uses, of another one.
struct Use {
    value: Value,
    op: Op,
    /// The node whose layout says where the value is.
    from: usize,
    /// The node that wants it; none: it is taken as it is.
    to: Option<usize>,
    weight: u32,
}

struct Assignment<'a> {
    from: &'a Inputs<'a>,
    nodes: Vec<Node>,
    /// The node of a value that is no result of a shape op or reduction.
    of_value: FxHashMap<Value, usize>,
    of_op: FxHashMap<Op, usize>,
    /// By product that takes its first operand from registers: the node of that use.
    first_of: FxHashMap<Op, usize>,
    uses: Vec<Use>,
    /// Products by warps whose accumulators lie otherwise than those of other products that they are handed to or come from.
    apart: SmallVec<[Op; 2]>,
    numbers: FxHashMap<LinearMap, u32>,
    /// By numbers of source and result, and bits of an element.
    costs: FxHashMap<(u32, u32, u32), u32>,
    runs: runs::Finder,
}

/// Whether a store of an assigned chain goes through shared memory and TMA: rows of what products made are scattered over lanes that write
/// half of each sector.
pub(super) fn stages(from: &Inputs<'_>, chains: &Chains, chain: Chain, op: Op) -> bool {
    let value = from.func.named_operand(op, "value");
    let (rows, columns) = rows_columns(value.and_then(|v| from.func.value_data(v).dims()).unwrap_or(&[]));
    let scattered = chains.info[chain].multiplies || chains.info[chain].halved;
    scattered && rows > 1 && tma_storable(from.func, op, columns, from.isa, from.opts)
}

/// Whether the layout of the result follows from that of the source.
fn follows(opcode: Opcode) -> bool {
    matches!(
        opcode,
        Opcode::Reshape
            | Opcode::Permute
            | Opcode::Cat
            | Opcode::ConvertLayout
            | Opcode::Reduce
            | Opcode::Combine
            | Opcode::Scan
            | Opcode::ExtractSlice
    )
}

/// Finds the layouts of a chain.
///
/// # Errors
/// `E0506` where a tile has extents that are no powers of two, `E0507` where no layout leaves a thread enough registers.
pub(super) fn assign(
    from: &Inputs<'_>,
    chains: &Chains,
    chain: Chain,
    writes: &[(Value, Op)],
) -> CodegenResult<Layouts> {
    let mut a = Assignment {
        from,
        nodes: Vec::new(),
        of_value: FxHashMap::default(),
        of_op: FxHashMap::default(),
        first_of: FxHashMap::default(),
        uses: Vec::new(),
        apart: SmallVec::new(),
        numbers: FxHashMap::default(),
        costs: FxHashMap::default(),
        runs: runs::Finder::default(),
    };
    a.find_nodes(chains, chain, writes);
    a.find_uses(chains, chain, writes);
    a.find_candidates()?;
    let chosen = a.solve();
    Ok(a.layouts(chains, chain, &chosen))
}

impl<'a> Assignment<'a> {
    fn func(&self) -> &'a Function {
        self.from.func
    }

    fn depth(&self, op: Op) -> u32 {
        let func = self.func();
        let around = std::iter::successors(func.op_parent(op), |&p| func.op_parent(p));
        (around.filter(|&p| func.opcode(p) == Opcode::For).count() as u32).min(MOST_DEPTH)
    }

    fn weight(&self, op: Op) -> u32 {
        TRIPS.pow(self.depth(op))
    }

    fn is_reg(&self, v: Value) -> bool {
        self.from.classes.class(v) == ValueClass::Reg
    }

    fn node(&mut self, v: Value) -> usize {
        let data = self.func().value_data(v);
        self.nodes.push(Node {
            dims: data.dims().unwrap_or(&[]).into(),
            bytes: 0,
            vector: 16,
            single: false,
            bits: data.elem().map_or(32, Scalar::bits),
            moved: false,
            shared: None,
            fixed: None,
            reduced: SmallVec::new(),
            candidates: SmallVec::new(),
            own: Vec::new(),
        });
        self.nodes.len() - 1
    }

    /// Whether a value belongs to a web: it is computed element by element, or carried.
    fn in_web(&self, v: Value) -> bool {
        let func = self.func();
        self.is_reg(v)
            && func.defining_op(v).is_none_or(|op| {
                let o = func.opcode(op);
                if self.apart.contains(&op) {
                    return false;
                }
                o.has(Traits::ELEMENTWISE)
                    || matches!(o, Opcode::Broadcast | Opcode::For | Opcode::If | Opcode::WarpDot)
                    || classify::is_product(func, op)
            })
    }

    /// Webs, loads, stores, and reads of what lies in memory of the CTA.
    fn find_nodes(&mut self, chains: &Chains, chain: Chain, writes: &[(Value, Op)]) {
        let (func, classes) = (self.func(), self.from.classes);
        let ops: Vec<Op> =
            chains.ops.iter().copied().filter(|&op| chains.of_op[op].expand() == Some(chain)).collect();
        let joins = |op: &&Op| {
            let opcode = func.opcode(**op);
            opcode.has(Traits::ELEMENTWISE) || opcode == Opcode::WarpDot || classify::is_product(func, **op)
        };
        let mut sets = loop {
            let mut sets = DisjointSets::new(func.num_values());
            classify::join_register_ties(func, classes, &mut sets);
            for &op in ops.iter().filter(joins).filter(|op| !self.apart.contains(op)) {
                let Some(result) = func.result(op) else { continue };
                let first = classes.first_operand(func, op);
                // Of a product only the accumulator lies as the result does.
                let acc = func.named_operand(op, "acc").filter(|_| func.opcode(op) == Opcode::WarpDot);
                let tied =
                    |v: &Value| self.in_web(*v) && Some(*v) != first && acc.is_none_or(|acc| acc == *v);
                for v in classes.register_operands(func, op).into_iter().filter(tied) {
                    sets.union(v.index(), result.index());
                }
            }
            // What whole warpgroups compute stays as it is; products by warps are converted.
            let by_groups: SmallVec<[usize; 4]> = ops
                .iter()
                .filter(|&&op| classify::is_product(func, op))
                .filter_map(|&op| Some(sets.find(func.result(op)?.index())))
                .collect();
            let by_warps = ops.iter().filter(|&&op| func.opcode(op) == Opcode::WarpDot);
            let torn: SmallVec<[Op; 2]> = by_warps
                .copied()
                .filter(|op| !self.apart.contains(op))
                .filter(|&op| func.result(op).is_some_and(|v| by_groups.contains(&sets.find(v.index()))))
                .collect();
            if torn.is_empty() {
                break sets;
            }
            self.apart.extend(torn);
        };
        let mut webs: FxHashMap<usize, usize> = FxHashMap::default();
        let in_chain = |v: Value| chains.of_value[v].expand() == Some(chain);
        for i in 0..func.num_values() {
            let v = Value::new(i);
            if in_chain(v) && self.in_web(v) {
                let root = sets.find(i);
                let n = match webs.get(&root) {
                    Some(&n) => n,
                    None => {
                        let n = self.node(v);
                        webs.insert(root, n);
                        n
                    }
                };
                self.of_value.insert(v, n);
            }
        }
        for &op in &ops {
            match func.opcode(op) {
                Opcode::TiledLoad => {
                    if let Some(v) = func.result(op) {
                        let n = self.node(v);
                        self.nodes[n].bytes = func.value_data(v).elem().map_or(4, Scalar::bytes);
                        self.of_value.insert(v, n);
                        self.of_op.insert(op, n);
                    }
                }
                // From shared memory, where it comes in any layout.
                Opcode::TiledStore if stages(self.from, chains, chain, op) => {}
                Opcode::TiledStore => {
                    if let Some(v) = func.named_operand(op, "value") {
                        let n = self.node(v);
                        self.nodes[n].bytes = func.value_data(v).elem().map_or(4, Scalar::bytes);
                        self.of_op.insert(op, n);
                    }
                }
                o if o.is_sparse() => {
                    if let Some(v) = func.sparse_tile(op) {
                        let n = self.node(v);
                        self.nodes[n].bytes = func.value_data(v).elem().map_or(4, Scalar::bytes);
                        self.nodes[n].vector = match o.is_atomic() {
                            true => 1,
                            false => runs::vector(func, &mut self.runs, op),
                        };
                        if let Some(result) = func.result(op) {
                            self.nodes[n].single = o.is_atomic();
                            self.of_value.insert(result, n);
                        }
                        self.of_op.insert(op, n);
                    }
                }
                _ => {
                    if let Some(v) = func.result(op).filter(|_| self.apart.contains(&op)) {
                        let n = self.node(v);
                        self.of_value.insert(v, n);
                    }
                    if let Some((v, &n)) = func.result(op).and_then(|v| Some((v, self.of_value.get(&v)?))) {
                        self.of_op.insert(op, n);
                        if func.opcode(op) == Opcode::WarpDot {
                            self.nodes[n].fixed = warp_product(func, op, self.from.warps).map(|p| p.acc);
                        }
                        if classify::is_product(func, op) {
                            let layout = acc_layout(func, v, self.from.isa, self.from.warps);
                            let dims = &self.nodes[n].dims;
                            self.nodes[n].fixed = layout.and_then(|l| register_map(l, dims, self.from.warps));
                        }
                    }
                }
            }
            if let Some(first) = classes.first_operand(func, op) {
                // Nothing but the layout of the instruction will do.
                let n = self.node(first);
                let layout = operand_layout(func, op, self.from.isa, self.from.warps);
                let dims = &self.nodes[n].dims;
                self.nodes[n].fixed = layout.and_then(|l| register_map(l, dims, self.from.warps));
                self.first_of.insert(op, n);
            }
            for &v in classes.register_operands(func, op).iter() {
                let class = classes.class(v);
                if matches!(class, ValueClass::Acc | ValueClass::Smem) && !self.of_value.contains_key(&v) {
                    // A piece is read by itself.
                    if reads_piece(func, classes, op) {
                        continue;
                    }
                    let n = self.node(v);
                    self.nodes[n].moved = class == ValueClass::Acc;
                    let bytes = class == ValueClass::Smem && self.nodes[n].bits == 8;
                    self.nodes[n].shared = func.defining_op(v).filter(|_| bytes);
                    self.of_value.insert(v, n);
                }
            }
        }
        // Pieces of what lies in memory, and results of shape ops that stand alone.
        for &op in ops.iter().filter(|&&op| reads_piece(func, classes, op)) {
            let (Some(source), Some(v)) = (func.named_operand(op, "source"), func.result(op)) else {
                continue;
            };
            let n = self.node(v);
            self.nodes[n].moved = classes.class(source) == ValueClass::Acc;
            self.of_value.insert(v, n);
        }
        for (n, &(value, _)) in writes.iter().enumerate() {
            if chains.of_write[n] != Some(chain) {
                continue;
            }
            if let Some(&node) = self.of_value.get(&value) {
                // As they are moved into accumulators, in any layout into operands.
                self.nodes[node].moved |= n < classes.ties.len();
            }
        }
    }

    /// The node whose layout says where a value is; none for what is made anew.
    fn root(&self, v: Value) -> Option<usize> {
        if let Some(&n) = self.of_value.get(&v) {
            return Some(n);
        }
        let func = self.func();
        let op = func.defining_op(v).filter(|&op| follows(func.opcode(op)))?;
        self.root(source_of(func, op)?)
    }

    /// Where a value is, if its node has that layout.
    fn map_of(&self, v: Value, map: &LinearMap) -> Option<LinearMap> {
        if self.of_value.contains_key(&v) {
            return Some(*map);
        }
        let func = self.func();
        let op = func.defining_op(v)?;
        let at = self.map_of(source_of(func, op)?, map)?;
        derived(func, op, &at).or_else(|| derived(func, op, &sliceable(func, op, &at)?))
    }

    /// What a node has if a value made of it by renaming alone is in that layout.
    fn map_before(&self, v: Value, map: &LinearMap) -> Option<LinearMap> {
        if self.of_value.contains_key(&v) {
            return Some(*map);
        }
        let func = self.func();
        let op = func.defining_op(v)?;
        let before = match func.opcode(op) {
            Opcode::Reshape | Opcode::ConvertLayout => *map,
            Opcode::Permute => permuted_back(func, op, map)?,
            _ => return None,
        };
        self.map_before(source_of(func, op)?, &before)
    }

    fn find_uses(&mut self, chains: &Chains, chain: Chain, writes: &[(Value, Op)]) {
        let func = self.func();
        for &op in chains.ops.iter().filter(|&&op| chains.of_op[op].expand() == Some(chain)) {
            let to = match func.opcode(op) {
                Opcode::TiledLoad => continue,
                o if follows(o) => None,
                _ => self.of_op.get(&op).copied(),
            };
            if matches!(func.opcode(op), Opcode::Reduce | Opcode::Combine | Opcode::Scan)
                && let (Some(source), Some(axis)) = (source_of(func, op), func.attr_int(op, keys::AXIS))
                && let Some(&n) = self.of_value.get(&source)
                && let Ok(axis) = usize::try_from(axis)
                && !self.nodes[n].reduced.contains(&axis)
            {
                self.nodes[n].reduced.push(axis);
            }
            let operands = self.from.classes.register_operands(func, op);
            let first = self.from.classes.first_operand(func, op);
            for &v in operands.iter().filter(|&&v| func.value_data(v).is_tile()) {
                let to = if Some(v) == first { self.first_of.get(&op).copied() } else { to };
                self.add_use(v, op, to);
            }
        }
        for op in func.ops() {
            // What loops begin with and yields hand on.
            let carried: SmallVec<[(Value, Value); 4]> = match func.opcode(op) {
                Opcode::For => {
                    let params = func.op_block_at(op, 0).map_or(&[][..], |b| func.block_params(b));
                    let inits = func.named_segment(op, "inits");
                    inits.iter().copied().zip(params.iter().skip(1).copied()).collect()
                }
                Opcode::Yield => {
                    let results = func.op_parent(op).map_or(&[][..], |p| func.results(p));
                    func.operands(op).iter().copied().zip(results.iter().copied()).collect()
                }
                _ => SmallVec::new(),
            };
            for (v, becomes) in carried {
                if chains.of_value[becomes].expand() == Some(chain)
                    && let Some(&n) = self.of_value.get(&becomes)
                {
                    self.add_use(v, op, Some(n));
                }
            }
        }
        for (n, &(value, op)) in writes.iter().enumerate() {
            if chains.of_write[n] == Some(chain) {
                self.add_use(value, op, None);
            }
        }
    }

    fn add_use(&mut self, value: Value, op: Op, to: Option<usize>) {
        let Some(from) = self.root(value) else { return };
        let func = self.func();
        // Where the value is made outside of a loop, it is converted there.
        let made = func.defining_op(value).map_or(0, |d| self.depth(d));
        let weight = TRIPS
            .pow(self.depth(op).min(made.max(u32::from(func.defining_op(value).is_none()) * MOST_DEPTH)));
        self.uses.push(Use { value, op, from, to, weight });
    }

    // ---- candidates

    /// The map that gives lanes, warps and registers their bits in this order: `vector` bits of the first axis to registers, then
    /// lanes, warps, and the rest to registers.
    fn in_order(&self, bits: &[u32], vector: u32) -> Option<LinearMap> {
        let warps = self.from.warps.max(1).trailing_zeros();
        let vector = (vector as usize).min(bits.len());
        let column = |n: usize| bits.get(n).map_or(0, |&b| 1 << b);
        let lanes: [u32; 5] = std::array::from_fn(|k| column(vector + k));
        let warp: Columns = (0..warps as usize).map(|w| column(vector + 5 + w)).collect();
        let rest = bits.iter().skip(vector + 5 + warps as usize);
        let register: Columns = bits[..vector].iter().chain(rest).map(|&b| 1 << b).collect();
        LinearMap::registers(&register, &lanes, &warp)
    }

    fn candidates_of(&self, node: &Node) -> SmallVec<[LinearMap; MOST_CANDIDATES]> {
        let mut out: SmallVec<[LinearMap; MOST_CANDIDATES]> = SmallVec::new();
        let Some(axes) = Axes::of(&node.dims) else { return out };
        let warps = self.from.warps.max(1).trailing_zeros();
        if let Some(only) = node.fixed {
            out.push(only);
            return out;
        }
        let total = axes.total();
        let row = || register_map(Layout::Row, &node.dims, self.from.warps);
        if node.moved {
            out.extend(acc_moved(self.from.isa, &node.dims, self.from.warps));
            if !out.is_empty() {
                return out;
            }
        }
        let mut add = |m: Option<LinearMap>| {
            if let Some(m) = m.filter(|m| !out.contains(m) && out.len() < MOST_CANDIDATES) {
                out.push(m);
            }
        };
        // 16 bytes a thread, less where there are threads without elements.
        let unit = if node.bytes > 0 { node.bytes } else { (node.bits / 8).max(1) };
        let widest = (16 / unit.min(16)).ilog2();
        let all: Columns = (0..total).collect();
        let last = axes.rank().checked_sub(1).map_or(0, |a| axes.bits(a));
        let spare = total.saturating_sub(5 + warps);
        let vectors = [widest.min(spare).min(last), widest.min(last), 0];
        add(self.in_order(&all, vectors[0]));
        // A block of registers along the two last axes: what is turned round stays in vectors.
        if let Some(before) = axes.rank().checked_sub(2).filter(|&a| axes.bits(a) > 0) {
            let v = widest.min(last).min(axes.bits(before)).min(spare / 2);
            let block: Columns = (0..v).chain(last..last + v).collect();
            let rest: Columns = (0..total).filter(|b| !block.contains(b)).collect();
            let lanes = (last - v).min(5) as usize;
            // Lanes along the row, as far as it goes, then down.
            let order: Columns =
                rest.iter().copied().take(lanes).chain(rest.iter().copied().skip(lanes)).collect();
            let all: Columns = block.iter().copied().chain(order).collect();
            add(self.in_order(&all, 2 * v));
        }
        // Rows in warps: lanes along the last axis, warps along the others.
        for v in vectors {
            let v = v.min(last);
            let lanes = (last - v).min(5);
            let (inner, outer): (Columns, Columns) =
                ((0..v + lanes).collect(), (last..total).chain(v + lanes..last).collect());
            // Lanes that the row leaves take the next bits; warps those of the other end.
            let more = 5 - lanes;
            let mut order: Columns = inner;
            order.extend(outer.iter().copied().take(more as usize));
            let mut left: Columns = outer.iter().copied().skip(more as usize).collect();
            // Warps take what is no bit of the row, first.
            left.sort_by_key(|&b| b < last);
            order.extend(left);
            add(self.in_order(&order, v));
        }
        // An axis in the registers of threads, the others over them.
        for axis in node
            .reduced
            .iter()
            .copied()
            .filter(|&a| a + 1 < axes.rank())
            .chain((0..axes.rank()).filter(|&a| a + 1 < axes.rank() && axes.bits(a) > 0))
        {
            let mask = axes.mask(axis);
            let along: Columns = (0..total).filter(|b| mask >> b & 1 == 1).collect();
            let others: Columns = (0..total).filter(|b| mask >> b & 1 == 0).collect();
            for v in [0, widest.min(last)] {
                let order: Columns = others.iter().chain(&along).copied().collect();
                add(self.in_order(&order, v));
            }
            // The other axis first: what is read down.
            let order: Columns = along.iter().chain(&others).copied().collect();
            add(self.in_order(&order, widest.min(axes.bits(axis))));
        }
        add(self.in_order(&all, vectors[1]));
        add(self.in_order(&all, 0));
        add(row());
        out
    }

    /// Adds a candidate that a node has not yet, if it may have any and there is room.
    fn add_candidate(&mut self, node: usize, map: Option<LinearMap>) {
        let node = &mut self.nodes[node];
        let room = node.is_free() && node.candidates.len() < MOST_CANDIDATES;
        node.candidates.extend(map.filter(|m| room && !node.candidates.contains(m)));
    }

    /// 32-bit registers of a thread that a tile takes.
    fn registers(map: &LinearMap, bits: u32) -> u32 {
        ((1u32 << Span::of(map.register()).rank()) * bits.max(8)).div_ceil(32)
    }

    fn find_candidates(&mut self) -> CodegenResult<()> {
        let func = self.func();
        for n in 0..self.nodes.len() {
            let found = self.candidates_of(&self.nodes[n]);
            self.nodes[n].candidates = found;
        }
        // What neighbours have: where a value is, wanted as it is.
        for _ in 0..2 {
            for u in 0..self.uses.len() {
                let Use { value, from, to, .. } = self.uses[u];
                let Some(to) = to.filter(|&to| to != from && self.nodes[to].is_free()) else { continue };
                // What repeats has fewer elements.
                if func.value_data(value).dims() != Some(&self.nodes[to].dims[..]) {
                    continue;
                }
                let there: SmallVec<[LinearMap; 4]> = self.nodes[from]
                    .candidates
                    .iter()
                    .take(4)
                    .filter_map(|m| self.map_of(value, m))
                    .collect();
                for m in there {
                    self.add_candidate(to, Some(m));
                }
            }
        }
        // What is repeated over a tile is cheap to have where that wants it.
        let mut repeats = vec![false; self.nodes.len()];
        for u in 0..self.uses.len() {
            let Use { value, op, from, to, .. } = self.uses[u];
            let Some(to) = to.filter(|&to| to != from) else { continue };
            let product = func.opcode(op) == Opcode::WarpDot;
            if func.value_data(value).dims() == Some(&self.nodes[to].dims[..]) && !product {
                continue;
            }
            for c in 0..self.nodes[to].candidates.len() {
                let map = self.nodes[to].candidates[c];
                let want = wanted(func, op, value, &map).and_then(|m| self.map_before(value, &m));
                self.add_candidate(from, want);
            }
            repeats[from] = true;
        }
        // So is what it is made of.
        for u in 0..self.uses.len() {
            let Use { value, op, from, to, .. } = self.uses[u];
            let Some(to) = to.filter(|&to| to != from && repeats[to]) else { continue };
            for c in 0..self.nodes[to].candidates.len() {
                let map = self.nodes[to].candidates[c];
                let want = wanted(func, op, value, &map).and_then(|m| self.map_before(value, &m));
                self.add_candidate(from, want);
            }
        }
        let limit = self.from.isa.machine().limits.regs_per_thread;
        for n in 0..self.nodes.len() {
            let node = &mut self.nodes[n];
            let bits = node.bits;
            let least = node.candidates.iter().map(|m| Self::registers(m, bits)).min();
            // Of large tiles a thread has no more than it must: lanes and warps that hold copies help nobody.
            // Tiles of 64 bits mostly say where elements are. The assembler makes such elements where they are used.
            let limit = if bits == 64 { 2 * limit } else { limit };
            let most = match least {
                Some(least) => limit.min(least.max(FEW_REGISTERS)),
                None => limit,
            };
            node.candidates.retain(|m| Self::registers(m, bits) <= most);
            let copies = |m: &LinearMap| m.replicas().lanes != 0 || m.replicas().warps != 0;
            if node.single && node.candidates.iter().any(|m| !copies(m)) {
                node.candidates.retain(|m| !copies(m));
            }
            if node.candidates.is_empty() {
                let of_node = self.of_value.iter().filter(|x| *x.1 == n).map(|x| *x.0);
                let v = of_node.min_by_key(|v| v.index());
                let op = v.and_then(|v| func.defining_op(v));
                let loc = op.map_or(func.loc, |op| func.op_loc(op));
                let what = v.map_or_else(|| "a tile".to_owned(), |v| func.value_data(v).to_string());
                return Err(match least {
                    None => CodegenError::new(
                        Code::E0506,
                        loc,
                        format!("no layout of {what} over {} warps", self.from.warps),
                    ),
                    Some(least) => CodegenError::new(
                        Code::E0507,
                        loc,
                        format!(
                            "{what} takes {least} registers per thread of at most {limit} over {} warps",
                            self.from.warps
                        ),
                    )
                    .note(
                        Loc::NONE,
                        format!(
                            "{} warps at most share a tile, and it cannot be cut",
                            crate::plan::MOST_WARPS
                        ),
                    ),
                });
            }
        }
        for n in 0..self.nodes.len() {
            self.nodes[n].own = vec![0; self.nodes[n].candidates.len()];
        }
        self.own_costs();
        Ok(())
    }

    // ---- costs

    fn warps(&self) -> u32 {
        self.from.warps.max(1)
    }

    /// Words of a tile in each thread.
    fn words(map: &LinearMap, bits: u32) -> u32 {
        let registers = 1u32 << map.register().len();
        if bits >= 32 { registers * (bits / 32) } else { (registers * bits.max(8)).div_ceil(32) }
    }

    /// Quarters of a cycle for an access to global memory: issues, and sectors at two a cycle.
    fn access_cost(&self, map: &LinearMap, dims: &[u32], bytes: u32, most: u32) -> u32 {
        let Some(axes) = Axes::of(dims) else { return 0 };
        let last = axes.rank().checked_sub(1).map_or(0, |a| axes.bits(a));
        // The vector: a run of registers along the last axis.
        let run = map.register().iter().enumerate().take_while(|(k, c)| **c == 1 << k).count() as u32;
        let vector = run.min(last).min((16 / bytes.clamp(1, 16)).ilog2()).min(most.max(1).ilog2());
        let accesses = (1u32 << map.register().len()) >> vector;
        // Sectors that the lanes of a warp touch: bits inside of a sector that lanes do not have cost sectors.
        let inside = (32 / bytes.clamp(1, 32)).ilog2().min(last);
        let own = (1u32 << vector) - 1;
        let lanes = map.lane().iter().fold(0, |m, c| m | c) | own;
        let distinct = map.lane().iter().filter(|c| **c != 0).count() as u32;
        let covered = (lanes & ((1 << inside) - 1)).count_ones();
        let sectors = 1u32 << (distinct + vector - covered.min(distinct + vector));
        // A row has an address and bounds of its own; what is no whole word is put together.
        let rows = 1u32 << map.register().iter().filter(|c| **c >> last != 0).count().min(16);
        let singles = if (bytes << vector) < 4 { accesses } else { 0 };
        self.warps() * (accesses * (1 + 2 * sectors) + 6 * rows + singles)
    }

    /// Quarters of a cycle to read a tile of bytes from shared memory: a cycle for each access, or for each 128 bytes of a warp's.
    fn shared_cost(&self, map: &LinearMap, dims: &[u32]) -> u32 {
        let Some(axes) = Axes::of(dims) else { return 0 };
        let last = axes.rank().checked_sub(1).map_or(0, |a| axes.bits(a));
        let run = map.register().iter().enumerate().take_while(|(k, c)| **c == 1 << k).count() as u32;
        let vector = run.min(last).min(4);
        let accesses = (1u32 << map.register().len()) >> vector;
        self.warps() * accesses * 4 * ((1 << vector) / 4).max(1)
    }

    /// The number of a map: costs are looked up more often than there are maps.
    fn number(&mut self, map: LinearMap) -> u32 {
        let next = self.numbers.len() as u32;
        *self.numbers.entry(map).or_insert(next)
    }

    /// [`Self::new_cost`] of maps with their numbers.
    fn convert_cost(&mut self, source: (u32, &LinearMap), result: (u32, &LinearMap), bits: u32) -> u32 {
        let key = (source.0, result.0, bits);
        if let Some(&c) = self.costs.get(&key) {
            return c;
        }
        let cost = self.new_cost(source.1, result.1, bits);
        self.costs.insert(key, cost);
        cost
    }

    /// Quarters of a cycle for a conversion, from the criteria of [`crate::layout`] without making a plan.
    fn new_cost(&self, source: &LinearMap, result: &LinearMap, bits: u32) -> u32 {
        // Registers alone make no difference where they are copies.
        let alike = source.lane() == result.lane() && source.warp() == result.warp();
        if alike && (source.register() == result.register() || source.compact() == result.compact()) {
            return 0;
        }
        let own = Span::of(source.register());
        let both: Columns = source.register().iter().chain(source.lane()).copied().collect();
        let warp = Span::of(&both);
        let words = Self::words(result, bits).max(Self::words(source, bits));
        let differ = |kind: usize| -> Columns {
            source.kind(kind).iter().zip(result.kind(kind)).map(|(a, b)| a ^ b).collect()
        };
        let (lanes, warps) = (differ(1), differ(2));
        let packs = u32::from(bits < 32) * words * 2;
        let n = self.warps();
        let bytes = (1u32 << both.len().min(20)).max(1) * bits.max(8) / 8;
        let waves = 2 * (bytes / 128).max(1) * n;
        let trip = 4 * waves + n * words + MEETING;
        if own.contains_all(result.register()) && own.contains_all(&lanes) && own.contains_all(&warps) {
            let selects = lanes.iter().chain(&warps).filter(|c| **c != 0).count() as u32;
            n * (words * 2 * selects + packs)
        } else if warp.contains_all(result.register())
            && warp.contains_all(result.lane())
            && warp.contains_all(&warps)
        {
            let moved = lanes.iter().filter(|c| !own.contains(**c)).count() as u32;
            (n * (words * (4 + 4 * moved) + packs)).min(trip)
        } else {
            trip
        }
    }

    /// What a reduction costs in a layout of its source.
    fn reduce_cost(&self, source: &LinearMap, axes: &Axes, axis: usize) -> u32 {
        let r = Reduction::along(source, axes, axis);
        let (from, to) = (1u32 << source.register().len(), 1u32 << r.result.register().len());
        let lanes = r.lanes.count_ones();
        let mut cost = self.warps() * ((from - to.min(from)) + lanes * to * 5);
        if r.warps != 0 {
            cost += self.warps() * to * (2 + r.contributors()) * 4 + HANDING;
        }
        cost
    }

    /// What a scan costs in a layout: a combination for half of the registers for each bit of the axis, and what other threads have.
    fn scan_cost(&self, source: &LinearMap, axes: &Axes, axis: usize) -> u32 {
        let mask = axes.mask(axis);
        let along = |columns: &[u32]| columns.iter().filter(|c| **c & mask != 0).count() as u32;
        let (own, lanes, warps) = (along(source.register()), along(source.lane()), along(source.warp()));
        let words = 1u32 << source.register().len();
        let others = words >> own.min(16);
        self.warps() * (words * (own.div_ceil(2) + lanes + warps) + others * lanes * 6)
            + warps * (self.warps() * others * 8 + HANDING)
    }

    fn own_costs(&mut self) {
        let func = self.func();
        let ops: Vec<(Op, usize)> = {
            let mut v: Vec<(Op, usize)> = self.of_op.iter().map(|(&op, &n)| (op, n)).collect();
            v.sort_by_key(|x| x.0.index());
            v
        };
        for (op, n) in ops {
            let weight = self.weight(op);
            for c in 0..self.nodes[n].candidates.len() {
                let map = self.nodes[n].candidates[c];
                let cost = match func.opcode(op) {
                    o if matches!(o, Opcode::TiledLoad | Opcode::TiledStore) || o.is_sparse() => {
                        let node = &self.nodes[n];
                        self.access_cost(&map, &node.dims, node.bytes, node.vector)
                    }
                    Opcode::Broadcast => 0,
                    _ => self.warps() << map.register().len().min(16),
                };
                let own = &mut self.nodes[n].own[c];
                *own = own.saturating_add(cost.saturating_mul(weight));
            }
        }
        for n in 0..self.nodes.len() {
            let Some(load) = self.nodes[n].shared else { continue };
            let weight = self.weight(load);
            for c in 0..self.nodes[n].candidates.len() {
                let cost = self.shared_cost(&self.nodes[n].candidates[c], &self.nodes[n].dims);
                let own = &mut self.nodes[n].own[c];
                *own = own.saturating_add(cost.saturating_mul(weight));
            }
        }
        // Uses of what the node itself has, and what is made of that.
        for u in 0..self.uses.len() {
            let Use { value, op, from, to, weight } = self.uses[u];
            if to.is_some_and(|to| to != from) {
                continue;
            }
            let bits = func.value_data(value).elem().map_or(32, Scalar::bits);
            for c in 0..self.nodes[from].candidates.len() {
                let map = self.nodes[from].candidates[c];
                let Some(at) = self.map_of(value, &map) else { continue };
                let mut cost = 0;
                if to.is_some() {
                    if let Some(want) = wanted(func, op, value, &map) {
                        let (a, b) = (self.number(at), self.number(want));
                        cost = self.convert_cost((a, &at), (b, &want), bits).saturating_mul(weight);
                    }
                } else if matches!(func.opcode(op), Opcode::Reduce | Opcode::Combine | Opcode::Scan) {
                    let axis = func.attr_int(op, keys::AXIS).and_then(|a| usize::try_from(a).ok());
                    let axes = func.value_data(value).dims().and_then(Axes::of);
                    if let (Some(axis), Some(axes)) = (axis, axes)
                        && axis < axes.rank()
                    {
                        let cost_of = match func.opcode(op) {
                            Opcode::Scan => self.scan_cost(&at, &axes, axis),
                            _ => self.reduce_cost(&at, &axes, axis),
                        };
                        cost = cost_of.saturating_mul(self.weight(op));
                    }
                }
                let own = &mut self.nodes[from].own[c];
                *own = own.saturating_add(cost);
            }
        }
    }

    // ---- the choice

    fn solve(&mut self) -> Vec<usize> {
        let func = self.func();
        let sizes: Vec<usize> = self.nodes.iter().map(|n| n.candidates.len()).collect();
        let mut factors: Vec<Factor> = Vec::new();
        for (n, node) in self.nodes.iter().enumerate() {
            factors.push(Factor { vars: smallvec![n], table: node.own.clone() });
        }
        let mut known: FxHashMap<(usize, usize), usize> = FxHashMap::default();
        let (mut ats, mut wants) = (Vec::new(), Vec::new());
        for u in 0..self.uses.len() {
            let Use { value, op, from, to, weight } = self.uses[u];
            let Some(to) = to.filter(|&to| to != from) else { continue };
            let bits = func.value_data(value).elem().map_or(32, Scalar::bits);
            ats.clear();
            for a in 0..sizes[from] {
                let map = self.map_of(value, &self.nodes[from].candidates[a]);
                ats.push(map.map(|map| (self.number(map), map)));
            }
            wants.clear();
            for b in 0..sizes[to] {
                let map = wanted(func, op, value, &self.nodes[to].candidates[b]);
                wants.push(map.map(|map| (self.number(map), map)));
            }
            let mut table = Vec::with_capacity(sizes[from] * sizes[to]);
            for at in &ats {
                for want in &wants {
                    let cost = match (at, want) {
                        (Some((a, at)), Some((b, want))) => self.convert_cost((*a, at), (*b, want), bits),
                        _ => 0,
                    };
                    table.push(cost.saturating_mul(weight));
                }
            }
            match known.entry((from, to)) {
                Entry::Occupied(at) => {
                    let sums = &mut factors[*at.get()].table;
                    sums.iter_mut().zip(table).for_each(|(x, y)| *x = x.saturating_add(y));
                }
                Entry::Vacant(at) => {
                    at.insert(factors.len());
                    factors.push(Factor { vars: smallvec![from, to], table });
                }
            }
        }
        eliminate(&sizes, &factors).unwrap_or_else(|| descend(&sizes, &factors))
    }

    fn layouts(&self, chains: &Chains, chain: Chain, chosen: &[usize]) -> Layouts {
        let func = self.func();
        let map = |n: usize| self.nodes[n].candidates[chosen[n]];
        let mut out = Layouts::default();
        let sparse = self.of_op.iter().filter(|o| func.opcode(*o.0).is_sparse());
        out.vectors.extend(sparse.map(|(&op, &n)| (op, self.nodes[n].vector)));
        for (&v, &n) in &self.of_value {
            if let Some(l) = register_layout(&map(n), &self.nodes[n].dims) {
                out.of_value.insert(v, l);
            }
        }
        for (&op, &n) in &self.of_op {
            if let Some(l) = register_layout(&map(n), &self.nodes[n].dims) {
                out.of_op.insert(op, l);
            }
        }
        for &op in chains.ops.iter().filter(|&&op| chains.of_op[op].expand() == Some(chain)) {
            for &v in func.results(op) {
                if !follows(func.opcode(op)) || self.of_value.contains_key(&v) {
                    continue;
                }
                let at = self.root(v).and_then(|n| self.map_of(v, &map(n)));
                if let Some(l) = at.and_then(|m| register_layout(&m, func.value_data(v).dims()?)) {
                    out.of_value.insert(v, l);
                }
            }
        }
        out
    }
}

/// A table of costs over the candidates of some nodes, the last one running fastest.
#[derive(Clone)]
struct Factor {
    vars: SmallVec<[usize; 4]>,
    table: Vec<u32>,
}

impl Factor {
    fn at(&self, sizes: &[usize], choice: &[usize]) -> u32 {
        let n = self.vars.iter().fold(0, |n, &v| n * sizes[v] + choice[v]);
        self.table[n]
    }
}

/// The numbers of the factors that a node is in.
fn incident(sizes: &[usize], factors: &[Factor]) -> Vec<Vec<usize>> {
    let mut of = vec![Vec::new(); sizes.len()];
    for (i, f) in factors.iter().enumerate() {
        for &v in &f.vars {
            of[v].push(i);
        }
    }
    of
}

/// The least sum, by eliminating nodes, those of the smallest table first. `None`: a table would be too large.
fn eliminate(sizes: &[usize], factors: &[Factor]) -> Option<Vec<usize>> {
    let mut factors = factors.to_vec();
    let mut of = incident(sizes, &factors);
    let neighbours = |x: usize, mine: &[usize], factors: &[Factor]| -> SmallVec<[usize; 4]> {
        let vars = mine.iter().flat_map(|&i| factors[i].vars.iter().copied());
        let mut all: SmallVec<[usize; 4]> = vars.filter(|&v| v != x).collect();
        all.sort_unstable();
        all.dedup();
        all
    };
    let entries =
        |x: usize, around: &[usize]| around.iter().fold(sizes[x], |n, &v| n.saturating_mul(sizes[v]));
    let mut now: Vec<usize> =
        (0..sizes.len()).map(|x| entries(x, &neighbours(x, &of[x], &factors))).collect();
    let mut next: BinaryHeap<Reverse<(usize, usize)>> =
        now.iter().enumerate().map(|(x, &n)| Reverse((n, x))).collect();
    // In order of elimination: the node, its neighbours, and its choice for each of theirs.
    let mut done: Vec<(usize, SmallVec<[usize; 4]>, Vec<usize>)> = Vec::new();
    let mut choice = vec![0; sizes.len()];
    while let Some(Reverse((n, x))) = next.pop() {
        // What changed meanwhile stands there again.
        if n != now[x] {
            continue;
        }
        if n > MOST_ENTRIES {
            return None;
        }
        let mine = std::mem::take(&mut of[x]);
        now[x] = 0;
        let around = neighbours(x, &mine, &factors);
        let count = around.iter().map(|&v| sizes[v]).product::<usize>();
        let mut best = Vec::with_capacity(count);
        let mut table = Vec::with_capacity(count);
        for entry in 0..count {
            let mut rest = entry;
            for &v in around.iter().rev() {
                choice[v] = rest % sizes[v];
                rest /= sizes[v];
            }
            let mut least = (u32::MAX, 0);
            for c in 0..sizes[x] {
                choice[x] = c;
                let cost = mine.iter().fold(0u32, |n, &f| n.saturating_add(factors[f].at(sizes, &choice)));
                if cost < least.0 || c == 0 {
                    least = (cost, c);
                }
            }
            table.push(least.0);
            best.push(least.1);
        }
        for &v in &around {
            of[v].retain(|f| !mine.contains(f));
            of[v].push(factors.len());
        }
        factors.push(Factor { vars: around.clone(), table });
        for &v in &around {
            let then = entries(v, &neighbours(v, &of[v], &factors));
            if then != now[v] {
                now[v] = then;
                next.push(Reverse((then, v)));
            }
        }
        done.push((x, around, best));
    }
    let mut out = vec![0; sizes.len()];
    for (x, around, best) in done.into_iter().rev() {
        let n = around.iter().fold(0, |n, &v| n * sizes[v] + out[v]);
        out[x] = best[n];
    }
    Some(out)
}

/// A small sum: each node alone, again and again, until none helps.
fn descend(sizes: &[usize], factors: &[Factor]) -> Vec<usize> {
    let of = incident(sizes, factors);
    let mut out = vec![0; sizes.len()];
    for _ in 0..sizes.len().max(4) {
        let mut changed = false;
        for x in 0..sizes.len() {
            let before = out[x];
            let best = (0..sizes[x]).min_by_key(|&c| {
                out[x] = c;
                (of[x].iter().fold(0u32, |n, &f| n.saturating_add(factors[f].at(sizes, &out))), c)
            });
            out[x] = best.unwrap_or(before);
            changed |= out[x] != before;
        }
        if !changed {
            break;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elimination_finds_what_trying_all_finds() {
        let mut seed = 11u64;
        let mut random = |n: u32| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((seed >> 33) % u64::from(n)) as u32
        };
        for _ in 0..300 {
            let nodes = 1 + random(5) as usize;
            let sizes: Vec<usize> = (0..nodes).map(|_| 1 + random(4) as usize).collect();
            let mut factors: Vec<Factor> = (0..nodes)
                .map(|n| Factor { vars: smallvec![n], table: (0..sizes[n]).map(|_| random(20)).collect() })
                .collect();
            for _ in 0..random(8) {
                let (a, b) = (random(nodes as u32) as usize, random(nodes as u32) as usize);
                if a != b {
                    let table = (0..sizes[a] * sizes[b]).map(|_| random(20)).collect();
                    factors.push(Factor { vars: smallvec![a, b], table });
                }
            }
            let sum = |c: &[usize]| factors.iter().map(|f| f.at(&sizes, c)).sum::<u32>();
            let all: usize = sizes.iter().product();
            let least = (0..all)
                .map(|mut n| {
                    let choice: Vec<usize> = sizes
                        .iter()
                        .map(|&s| {
                            let c = n % s;
                            n /= s;
                            c
                        })
                        .collect();
                    sum(&choice)
                })
                .min()
                .unwrap_or(0);
            let found = eliminate(&sizes, &factors).expect("small tables");
            assert_eq!(sum(&found), least);
            assert_eq!(eliminate(&sizes, &factors), Some(found), "the same again");
            assert!(sum(&descend(&sizes, &factors)) >= least);
        }
    }
}
