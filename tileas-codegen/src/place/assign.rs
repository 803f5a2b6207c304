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
//! The sum is minimised exactly by eliminating one node after the other, the least table first; beyond [`eliminate::MOST_ENTRIES`] entries by moves of
//! single nodes until none helps. Of equal costs the first candidate wins. Cost: candidates² for each use.

mod costs;
mod eliminate;

use super::chains::{Chain, Chains, Inputs, reads_piece, rows_columns, tma_storable};
use super::derive::{derived, permuted_back, sliceable, source_of, wanted, warp_product};
use super::operands::{acc_layout, acc_moved, operand_layout};
use crate::error::{Code, CodegenError, CodegenResult, Loc};
use crate::ir::layouts::{register_layout, register_map, registers_per_thread};
use crate::ir::opcodes::{Traits, keys};
use crate::ir::types::Shape;
use crate::ir::{Function, Layout, Op, Opcode, Scalar, Value};
use crate::layout::gf2::{Columns, Span};
use crate::layout::{Axes, LinearMap};
use crate::storage::classify::{self, DisjointSets, ValueClass};
use crate::storage::runs;
use cranelift_entity::EntityRef;
use eliminate::{Factor, descend, eliminate};
use rustc_hash::FxHashMap;
use smallvec::{SmallVec, smallvec};
use std::collections::hash_map::Entry;

/// Most candidates of a node.
const MOST_CANDIDATES: usize = 12;
/// Registers of a tile that a thread may hold in any layout, also where lanes and warps hold copies.
const FEW_REGISTERS: u32 = 64;
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
    /// The tile in shared memory that it is read from, and the load that brings it there.
    shared: Option<(Value, Op)>,
    /// It is an accumulator in registers: nothing else will do.
    fixed: Option<LinearMap>,
    /// Its axes are exchanged on the way to an operand in shared memory.
    turned: bool,
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
    /// What is written to operands in shared memory, with their layouts: the node that says where it is.
    written: SmallVec<[(usize, Value, Op, Layout); 4]>,
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
        written: SmallVec::new(),
        apart: SmallVec::new(),
        numbers: FxHashMap::default(),
        costs: FxHashMap::default(),
        runs: runs::Finder::default(),
    };
    a.find_nodes(chains, chain, writes);
    a.find_uses(chains, chain, writes);
    a.find_turned(chains, chain);
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
            turned: false,
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
                    let load = func.defining_op(v).filter(|_| class == ValueClass::Smem);
                    self.nodes[n].shared = load.map(|load| (v, load));
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
            if chains.of_write[n] != Some(chain) {
                continue;
            }
            self.add_use(value, op, None);
            // Behind the ties come the operands.
            let layout = n.checked_sub(self.from.classes.ties.len());
            let layout = layout.and_then(|n| self.from.layouts.of_operand.get(n));
            self.written.extend(self.root(value).zip(layout).map(|(from, &l)| (from, value, op, l)));
        }
    }

    /// Marks what is turned round where operands are written: elsewhere accesses to global memory decide, and a trip through shared memory.
    fn find_turned(&mut self, chains: &Chains, chain: Chain) {
        let func = self.func();
        let here =
            |op: &&Op| chains.of_op[**op].expand() == Some(chain) && func.opcode(**op) == Opcode::Permute;
        for &op in chains.ops.iter().filter(here).filter(|_| !self.written.is_empty()) {
            if let Some(n) = source_of(func, op).and_then(|v| self.root(v)) {
                self.nodes[n].turned = true;
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
            // For memory: turned round, words or vectors of lanes one behind the other follow each other there, in different banks.
            let down: Columns = (last..last + axes.bits(before)).collect();
            for high in [2, (4 / unit.min(4)).ilog2()] {
                let Some(v) = spare.checked_sub(high).filter(|_| node.turned && down.len() > 2) else {
                    continue;
                };
                let v = v.min(widest).min(last);
                let mut order: Columns = (0..v).chain(down.iter().copied()).collect();
                order.extend((v..total).filter(|b| !down.contains(b)));
                add(self.in_order(&order, v + high));
            }
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
                // Shared memory is read in any layout.
                for c in 0..self.nodes[to].candidates.len().min(4) {
                    let wanted = self.nodes[from]
                        .shared
                        .and_then(|_| self.map_before(value, &self.nodes[to].candidates[c]));
                    self.add_candidate(from, wanted);
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
                // What only moves a tile is a node without a value of its own.
                let mut ops: Vec<Op> = self.of_op.iter().filter(|x| *x.1 == n).map(|x| *x.0).collect();
                ops.sort_unstable_by_key(|op| op.index());
                let op = v.and_then(|v| func.defining_op(v)).or(ops.first().copied());
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
                            "it cannot be cut, and more warps share no tile that products take or make; {} at most share others: tiles of half the size take half",
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
