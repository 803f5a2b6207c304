//! Register chains: which register ops hang together, the layout of each of their tiles, and how they are sliced.
//!
//! In: a function and its [`Classes`]. Out: [`Chains`]: for each register value, register op and copy into shared
//! or tensor memory the chain it belongs to, and per chain one layout family, one column extent and one number of
//! slices. A chain is a maximal set of register ops connected by register tiles; copies out of shared and tensor
//! memory do not connect, since every chain reads for itself.
//!
//! Layouts follow demand. Whatever meets tensor or shared memory, or broadcasts, has one row per thread (`row`),
//! its row vectors (1×N, or rank 1 reshaped to it) are in every thread (`cols`), its column vectors (M×1) hold one
//! element per row (`rowvec`). Plain element-wise chains are coalesced. Chains that reduce or spread tiles which lie neither in shared nor
//! in tensor memory, and those that rows do not suit, have a layout for each tile ([`super::assign`]); they are not sliced.
//! Cost: linear but for union-find.

use super::PlaceOptions;
use super::operands::{MatrixLayouts, acc_moved};
use crate::constraints::RematWords;
use crate::error::CodegenResult;
use crate::ir::layouts::{register_map, registers_per_thread};
use crate::ir::{Dim, Function, Layout, Op, Opcode, Scalar, Swizzle, Value};
use crate::isa::{Feature, TargetIsa};
use crate::storage::classify::{self, Classes, DisjointSets, ValueClass};
use cranelift_entity::packed_option::PackedOption;
use cranelift_entity::{EntityRef, PrimaryMap, SecondaryMap, entity_impl};
use smallvec::SmallVec;

/// A register chain.
#[derive(Copy, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Chain(u32);
entity_impl!(Chain, "chain");

/// What the layouts of a chain are made of.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Family {
    /// One row per thread, row vectors everywhere, column vectors one element per row.
    Rows,
    /// Every thread holds everything: too few rows for a thread each.
    Everywhere,
    /// Coalesced runs.
    Blocked(u8),
    /// One for each tile.
    Assigned,
}

/// What a rank-1 tile stands for in a chain of matrices.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum Vector {
    /// Nothing says.
    #[default]
    Unknown,
    /// One element per column.
    OfColumns,
    /// One element per row.
    OfRows,
}

/// Facts of one chain.
#[derive(Clone, Debug)]
pub struct ChainInfo {
    /// Its layouts.
    pub family: Family,
    /// Columns of its widest tile.
    pub columns: u32,
    /// Number of slices along the columns.
    pub slices: u32,
    /// Whether what the words of its ops say about slices was heeded.
    pub heeds_words: bool,
    /// Layouts of an assigned chain.
    pub(super) layouts: super::assign::Layouts,
    /// Whether some op needs what rows do not give.
    general: bool,
    /// Whether a vector stands for rows and for columns.
    both_ways: bool,
    reduces: bool,
    /// Whether products update accumulators in registers among its tiles.
    pub(super) multiplies: bool,
    /// Whether some op takes a part of a register tile.
    cuts: bool,
    /// Whether some op mixes columns with another axis: never sliced.
    mixed: bool,
    /// Whether a region op carries a tile: never sliced either.
    carried: bool,
    vector_length: u32,
    memory: bool,
    /// Whether some tile lies in an accumulator, or goes there.
    accumulates: bool,
    /// Whether by rows some of them would leave half of the threads without one, and there is another way to move them.
    pub(super) halved: bool,
    spread: bool,
    matrices: bool,
    least_rows: u32,
    widest_elem: u32,
    loc_op: PackedOption<Op>,
}

/// All chains of a function.
#[derive(Debug)]
pub struct Chains {
    /// Facts.
    pub info: PrimaryMap<Chain, ChainInfo>,
    /// The chain of a register value.
    pub of_value: SecondaryMap<Value, PackedOption<Chain>>,
    /// The chain of a register op.
    pub of_op: SecondaryMap<Op, PackedOption<Chain>>,
    /// The chain of each write: ties first, then shared-memory operands, as in [`Classes`].
    pub of_write: Vec<Option<Chain>>,
    /// What rank-1 register values stand for.
    pub vector: SecondaryMap<Value, Vector>,
    /// Register ops in program order.
    pub ops: Vec<Op>,
}

/// What chains are found from.
#[derive(Copy, Clone)]
pub(super) struct Inputs<'a> {
    pub(super) func: &'a Function,
    pub(super) classes: &'a Classes,
    pub(super) layouts: &'a MatrixLayouts,
    /// Warps of the simt agent.
    pub(super) warps: u32,
    pub(super) isa: &'a dyn TargetIsa,
    pub(super) opts: &'a PlaceOptions,
}

/// Rows (product of all extents but the last) and columns of a shape.
pub fn rows_columns(dims: &[u32]) -> (u32, u32) {
    match dims.split_last() {
        Some((&cols, rest)) => (rest.iter().fold(1, |n: u32, &d| n.saturating_mul(d)), cols),
        None => (1, 1),
    }
}

/// Whether an op reads its piece of a tile in shared or tensor memory by itself: whole rows of some columns.
pub fn reads_piece(func: &Function, classes: &Classes, op: Op) -> bool {
    let (Opcode::ExtractSlice, Some(source), Some(result)) =
        (func.opcode(op), func.named_operand(op, "source"), func.result(op))
    else {
        return false;
    };
    let dims = |v: Value| func.value_data(v).dims().unwrap_or(&[]);
    let outer = |v: Value| dims(v).split_last().map_or(&[][..], |x| x.1);
    matches!(classes.class(source), ValueClass::Acc | ValueClass::Smem) && outer(source) == outer(result)
}

/// Whether a store of a tile can go through TMA, given the columns of one slice.
pub fn tma_storable(func: &Function, op: Op, columns: u32, isa: &dyn TargetIsa, opts: &PlaceOptions) -> bool {
    let (Some(value), Some(view)) = (func.named_operand(op, "value"), func.named_operand(op, "view")) else {
        return false;
    };
    let (Some(dims), Some(elem)) = (func.value_data(value).dims(), func.value_data(value).elem()) else {
        return false;
    };
    let crate::ir::TypeData::View { dims: view_dims, elem: view_elem, .. } = func.value_data(view) else {
        return false;
    };
    let limits = &isa.machine().limits;
    let row_bytes = columns.saturating_mul(elem.bytes());
    opts.tma_rewrite
        && func.is_launch_view(view)
        && !func.has_attr(op, crate::ir::keys::NO_TMA)
        && isa.features().has(Feature::Tma)
        && func.results(op).is_empty()
        && func.is_weak(op)
        && *view_elem == elem
        && elem != Scalar::I1
        // Rows in shared memory are written in units of 32 bits.
        && elem.bits() <= 32
        && dims.len() >= 2
        && dims.len() == view_dims.len()
        && dims.len() <= limits.tma_rank_max as usize
        && dims[..dims.len() - 1].iter().all(|&d| d <= limits.tma_box_max)
        && row_bytes >= limits.tma_align
        && row_bytes.is_multiple_of(16)
        // A static row must itself be a multiple of the alignment, else no dense tensor meets the requirement.
        && view_dims.last().is_none_or(|d| match d {
            Dim::Static(n) => n.saturating_mul(elem.bytes()).is_multiple_of(limits.tma_align),
            Dim::Dynamic => true,
        })
}

/// What the tiles of a chain ask for.
#[derive(Copy, Clone, Default)]
struct Wanted {
    /// Registers of the widest.
    registers: u32,
    /// Columns that one TMA store takes; 0: none is stored that way.
    span: u32,
    /// Least columns of a slice: a piece of a loaded tile is whole swizzle spans.
    least: u32,
    /// Most columns of a slice, and most slices, by the words of its ops; 0: not said.
    atom: u32,
    most_slices: u32,
}

impl Wanted {
    /// Takes the words of an op.
    fn hear(&mut self, words: RematWords) {
        let least = |a: &mut u32, b: u32| *a = if *a == 0 || b == 0 { *a | b } else { b.min(*a) };
        least(&mut self.atom, words.atom);
        least(&mut self.most_slices, words.slices);
    }
}

impl Chains {
    /// Finds the chains of a function.
    ///
    /// # Errors
    /// `E0506` where no layout holds a tile, `E0507` where a chain is too large and cannot be sliced.
    pub(super) fn find(from: &Inputs<'_>) -> CodegenResult<Chains> {
        let &Inputs { func, classes, .. } = from;
        let mut ops: Vec<Op> = Vec::with_capacity(classes.ops.len());
        for &op in &classes.ops {
            if classes.is_register_op(func, op) {
                ops.push(op);
            }
        }
        let mut writes: SmallVec<[(Value, Op); 16]> = SmallVec::new();
        for t in &classes.ties {
            writes.push((t.value, t.op));
        }
        for o in &classes.operands {
            writes.push((o.value, o.op));
        }
        let (op_base, write_base) = (func.num_values(), func.num_values() + func.num_ops());
        let mut sets = DisjointSets::new(write_base + writes.len());
        classify::join_register_ties(func, classes, &mut sets);
        let reg = |v: &&Value| classes.class(**v) == ValueClass::Reg;
        for &op in &ops {
            // A piece of an accumulator or loaded tile is read anew: only its result belongs to the chain.
            let operands = classes.register_operands(func, op);
            for &v in operands.iter().chain(func.results(op)).filter(reg) {
                sets.union(op_base + op.index(), v.index());
            }
        }
        let mut needs: SmallVec<[bool; 16]> = SmallVec::from_elem(false, writes.len());
        for (n, &(value, _)) in writes.iter().enumerate() {
            needs[n] = match n.checked_sub(classes.ties.len()) {
                None => classify::tie_needs_write(func, classes, n),
                Some(_) => classes.class(value) != ValueClass::Smem,
            };
            if classes.class(value) == ValueClass::Reg {
                sets.union(write_base + n, value.index());
            }
        }
        let mut chains = Chains {
            info: PrimaryMap::new(),
            of_value: SecondaryMap::new(),
            of_op: SecondaryMap::new(),
            of_write: vec![None; writes.len()],
            vector: SecondaryMap::new(),
            ops,
        };
        chains.of_value.resize(func.num_values());
        chains.of_op.resize(func.num_ops());
        chains.vector.resize(func.num_values());
        let mut numbers: SecondaryMap<Value, PackedOption<Chain>> = SecondaryMap::new();
        numbers.resize(write_base + writes.len());
        let mut chain_at = |chains: &mut Chains, root: usize| {
            // Set members are dense indices; a value entity serves as the index type here.
            let slot = Value::new(root);
            if let Some(c) = numbers[slot].expand() {
                return c;
            }
            let c = chains.info.push(ChainInfo::default());
            numbers[slot] = c.into();
            c
        };
        for i in 0..chains.ops.len() {
            let op = chains.ops[i];
            let c = chain_at(&mut chains, sets.find(op_base + op.index()));
            chains.of_op[op] = c.into();
        }
        for (n, _) in writes.iter().enumerate().filter(|&(n, _)| needs[n]) {
            chains.of_write[n] = Some(chain_at(&mut chains, sets.find(write_base + n)));
        }
        for i in 0..func.num_values() {
            let v = Value::new(i);
            if classes.class(v) == ValueClass::Reg {
                let c = chain_at(&mut chains, sets.find(i));
                chains.of_value[v] = c.into();
            }
        }
        chains.vectors(func, classes);
        chains.survey(func, classes, &writes);
        chains.carried(func, classes);
        chains.decide(from, &writes)?;
        Ok(chains)
    }

    /// Spreads what rank-1 tiles stand for from reshapes over element-wise ops.
    fn vectors(&mut self, func: &Function, classes: &Classes) {
        let mut same = DisjointSets::new(func.num_values());
        let rank = |v: Value| func.value_data(v).dims().map_or(0, <[u32]>::len);
        for &op in self.ops.iter().filter(|&&op| {
            func.opcode(op).has(crate::ir::opcodes::Traits::ELEMENTWISE)
                || func.opcode(op) == Opcode::ConvertLayout
        }) {
            let Some(result) = func.result(op) else { continue };
            for &v in func.operands(op) {
                if classes.class(v) == ValueClass::Reg {
                    same.union(v.index(), result.index());
                }
            }
        }
        classify::join_register_ties(func, classes, &mut same);
        let mut kinds = vec![Vector::Unknown; func.num_values()];
        let mut both: Vec<usize> = Vec::new();
        for &op in &self.ops {
            let (Some(source), Some(result)) = (func.named_operand(op, "source"), func.result(op)) else {
                continue;
            };
            // What is left of a matrix without its columns is one element per row.
            let reduced = func.opcode(op) == Opcode::Reduce && rank(result) == 1;
            if reduced {
                kinds[same.find(result.index())] = Vector::OfRows;
            }
            if func.opcode(op) != Opcode::Reshape {
                continue;
            }
            for (vector, matrix) in [(source, result), (result, source)] {
                if rank(vector) != 1 || rank(matrix) < 2 {
                    continue;
                }
                let (rows, columns) = rows_columns(func.value_data(matrix).dims().unwrap_or(&[]));
                let kind = match (rows, columns) {
                    (1, _) => Vector::OfColumns,
                    (_, 1) => Vector::OfRows,
                    _ => continue,
                };
                let root = same.find(vector.index());
                // A vector used both ways is kept everywhere and converted where it stands for rows.
                if kinds[root] != Vector::Unknown && kinds[root] != kind {
                    both.push(vector.index());
                }
                if kinds[root] != Vector::OfColumns {
                    kinds[root] = kind;
                }
            }
        }
        for i in 0..func.num_values() {
            self.vector[Value::new(i)] = kinds[same.find(i)];
        }
        for i in both {
            if let Some(c) = self.of_value[Value::new(i)].expand() {
                self.info[c].mixed = true;
                self.info[c].both_ways = true;
            }
        }
    }

    /// Collects per chain what decides its family and width.
    fn survey(&mut self, func: &Function, classes: &Classes, writes: &[(Value, Op)]) {
        for i in 0..self.ops.len() {
            let op = self.ops[i];
            let Some(c) = self.of_op[op].expand() else { continue };
            let info = &mut self.info[c];
            info.loc_op = info.loc_op.expand().unwrap_or(op).into();
            for &v in classes.register_operands(func, op).iter().chain(func.results(op)) {
                let data = func.value_data(v);
                let (Some(dims), Some(elem)) = (data.dims().filter(|_| data.is_tile()), data.elem()) else {
                    continue;
                };
                let stored = matches!(classes.class(v), ValueClass::Acc | ValueClass::Smem);
                info.memory |= stored && dims.len() > 1;
                info.accumulates |= classes.class(v) == ValueClass::Acc;
                // Of what lies in memory, a slice reads its own part only.
                if !(stored && reads_piece(func, classes, op)) {
                    info.see(dims, elem);
                }
            }
            match func.opcode(op) {
                // Accumulators in registers lie as the instruction has them.
                Opcode::Dot | Opcode::AsyncDot => {
                    info.multiplies = true;
                    info.mixed = true;
                    info.general = true;
                }
                Opcode::WarpDot => {
                    info.mixed = true;
                    info.general = true;
                }
                Opcode::Broadcast => info.spread = true,
                // Whole rows, in the thread that holds them.
                Opcode::Reduce => {
                    info.spread = true;
                    info.mixed = true;
                    info.reduces = true;
                    let rank = func.named_operand(op, "source").map_or(0, |v| func.value_data(v).rank());
                    info.general |= rank != 2 || func.attr_int(op, crate::ir::keys::AXIS) != Some(1);
                }
                Opcode::Reshape => {
                    let shape = |v: Option<Value>| v.and_then(|v| func.value_data(v).dims()).unwrap_or(&[]);
                    let (a, b) = (shape(func.named_operand(op, "source")), shape(func.result(op)));
                    let ((ra, ca), (rb, cb)) = (rows_columns(a), rows_columns(b));
                    let vector = |a: &[u32], rows: u32, cols: u32| a.len() == 1 && (rows == 1 || cols == 1);
                    if vector(a, rb, cb) || vector(b, ra, ca) {
                        info.spread = true;
                    } else if (ra, ca) != (rb, cb) {
                        info.mixed = true;
                        info.general = true;
                    }
                }
                Opcode::Combine | Opcode::Scan => {
                    info.spread = true;
                    info.mixed = true;
                    info.reduces = true;
                    info.general = true;
                }
                // Of single elements coordinates and masks are wanted where the elements are.
                o if matches!(o, Opcode::Permute | Opcode::Cat) || o.leaves_tiles() || o.is_sparse() => {
                    info.mixed = true;
                    info.general = true;
                }
                Opcode::ExtractSlice if !reads_piece(func, classes, op) => {
                    info.mixed = true;
                    info.cuts = true;
                    let dims = |v: Option<Value>| v.and_then(|v| func.value_data(v).dims()).unwrap_or(&[]);
                    let (from, to) = (dims(func.named_operand(op, "source")), dims(func.result(op)));
                    info.general |= from.len() < 2 || rows_columns(from).0 != rows_columns(to).0;
                }
                _ => {}
            }
        }
        for (n, &(value, op)) in writes.iter().enumerate() {
            let Some(c) = self.of_write[n] else { continue };
            let info = &mut self.info[c];
            info.loc_op = info.loc_op.expand().unwrap_or(op).into();
            info.memory = true;
            info.accumulates |= n < classes.ties.len() || classes.class(value) == ValueClass::Acc;
            if let (Some(dims), Some(elem)) = (func.value_data(value).dims(), func.value_data(value).elem()) {
                info.see(dims, elem);
            }
        }
    }

    /// Tiles that loops and conditionals carry in registers keep their chain whole. What they begin with, or go on with, may
    /// lie in memory, where it is read by rows.
    fn carried(&mut self, func: &Function, classes: &Classes) {
        for op in func.ops() {
            if matches!(func.opcode(op), Opcode::For | Opcode::If) {
                let inits = match func.opcode(op) {
                    Opcode::For => func.named_segment(op, "inits"),
                    _ => &[],
                };
                for (n, &v) in func.results(op).iter().enumerate() {
                    if let (ValueClass::Reg, Some(c)) = (classes.class(v), self.of_value[v].expand()) {
                        self.info[c].carried = true;
                        let yields = (0..func.regions(op).len()).map(|r| func.region_yields(op, r));
                        let given: SmallVec<[Value; 4]> =
                            yields.chain([inits]).filter_map(|list| list.get(n)).copied().collect();
                        let lies = |class| given.iter().any(|&v| classes.class(v) == class);
                        self.info[c].accumulates |= lies(ValueClass::Acc);
                        let rank = func.value_data(v).dims().map_or(0, <[u32]>::len);
                        self.info[c].memory |= rank > 1 && (lies(ValueClass::Acc) || lies(ValueClass::Smem));
                        let (dims, elem) = (func.value_data(v).dims(), func.value_data(v).elem());
                        if let (Some(dims), Some(elem)) = (dims, elem) {
                            self.info[c].see(dims, elem);
                        }
                    }
                }
            }
        }
    }

    /// Decides family and slices of every chain.
    fn decide(&mut self, from: &Inputs<'_>, writes: &[(Value, Op)]) -> CodegenResult<()> {
        let &Inputs { func, classes, layouts, warps, isa, opts } = from;
        for c in self.info.keys() {
            let info = &mut self.info[c];
            if !info.matrices {
                info.columns = info.vector_length;
            }
            let rows_family = info.matrices && (info.memory || info.spread) && info.least_rows >= warps;
            info.family = if rows_family {
                Family::Rows
            } else if info.spread && info.matrices {
                Family::Everywhere
            } else {
                let run = 16 / info.widest_elem.max(1);
                Family::Blocked(run.max(1).min(info.columns).ilog2() as u8)
            };
        }
        let mut wanted: SmallVec<[Wanted; 8]> = SmallVec::from_elem(Wanted::default(), self.info.len());
        let tiles =
            self.ops.iter().filter_map(|&op| Some((self.of_op[op].expand()?, op, None))).chain(
                writes.iter().enumerate().filter_map(|(n, w)| Some((self.of_write[n]?, w.1, Some(w.0)))),
            );
        for (c, op, only) in tiles {
            if only.is_none() {
                wanted[c.index()].hear(RematWords::of(func, op));
            }
            let mine = match only {
                Some(_) => SmallVec::from_slice(func.operands(op)),
                None => classes.register_operands(func, op),
            };
            let all = mine.iter().chain(func.results(op)).copied();
            for v in all.filter(|&v| only.is_none_or(|o| o == v) && func.value_data(v).is_tile()) {
                if classes.class(v) != ValueClass::Reg && reads_piece(func, classes, op) {
                    continue;
                }
                let (Some(dims), Some(elem)) = (func.value_data(v).dims(), func.value_data(v).elem()) else {
                    continue;
                };
                if let (ValueClass::Smem, Some(l)) = (classes.class(v), layouts.of_value[v]) {
                    let columns = l.swizzle().map_or(1, Swizzle::span) * 8 / elem.bits().max(1);
                    let least = &mut wanted[c.index()].least;
                    *least = columns.max(*least);
                }
                let layout = self.layout(c, dims, self.vector[v]).0;
                let Some(regs) = registers_per_thread(layout, dims, elem, warps) else {
                    self.info[c].general = true;
                    continue;
                };
                let most = &mut wanted[c.index()].registers;
                *most = regs.max(*most);
            }
            if func.opcode(op) == Opcode::TiledStore && self.info[c].family == Family::Rows {
                let elem = func.named_operand(op, "value").and_then(|v| func.value_data(v).elem());
                if let Some(elem) = elem.filter(|_| tma_storable(func, op, self.info[c].columns, isa, opts)) {
                    let columns = 128 / elem.bytes();
                    let span = &mut wanted[c.index()].span;
                    *span = if *span == 0 { columns } else { columns.min(*span) };
                }
            }
        }
        let most = isa.machine().limits.regs_per_thread;
        for c in self.info.keys() {
            let info = &mut self.info[c];
            let Wanted { registers, span, least, atom, most_slices } = wanted[c.index()];
            info.slices = 1;
            let whole = info.mixed || info.carried;
            let asked = (1..info.columns).contains(&atom);
            info.heeds_words = !whole || !asked;
            let slices = (registers > opts.slice_regs || asked) && !whole;
            let few = info.least_rows < warps * isa.machine().limits.warp_threads;
            // Tiles that nothing holds by rows already, and what is loaded of few rows; those that are sliced stay as they are.
            let loaded = info.memory && few && !info.accumulates;
            info.halved = info.accumulates && info.matrices && {
                let dims = [info.least_rows, info.columns];
                acc_moved(isa, &dims, warps) != register_map(Layout::Row, &dims, warps)
            };
            let free = info.matrices && (info.spread && !info.memory || loaded || info.halved);
            info.general |= registers > most && (info.mixed || info.carried);
            info.general |= info.cuts && !info.memory || info.both_ways && info.reduces;
            if info.general || free {
                let (must, halved) = (info.general, info.halved);
                // Slices by rows leave threads without work where there are few rows; they pay where the tiles of a chain are too large
                // for its threads otherwise.
                let thin = |found: &super::assign::Layouts| {
                    found.widest(func, warps).is_some_and(|n| n <= opts.slice_regs)
                };
                match super::assign::assign(from, self, c, writes) {
                    Ok(found) if must || !slices || few && !halved || thin(&found) => {
                        let info = &mut self.info[c];
                        (info.family, info.layouts) = (Family::Assigned, found);
                        info.heeds_words &= !asked;
                        continue;
                    }
                    Err(e) if must => return Err(e),
                    // What was not to be sliced is by rows as it was.
                    _ if !slices => continue,
                    _ => {}
                }
            }
            if !slices {
                continue;
            }
            let info = &mut self.info[c];
            let mut width = info.columns;
            while width > 1
                && u64::from(registers) * u64::from(width)
                    > u64::from(opts.slice_regs) * u64::from(info.columns)
            {
                width /= 2;
            }
            while asked && width > atom.max(1) {
                width /= 2;
            }
            // What follows holds for every slice, and before the word.
            width = width.max(if most_slices > 0 {
                info.columns.div_ceil(most_slices).next_power_of_two()
            } else {
                1
            });
            if span > 0 {
                width = width.min(span);
            }
            width = width.max(least.min(info.columns));
            info.slices = info.columns / width;
        }
        Ok(())
    }

    /// Layout of a tile in a chain, and whether it is sliced along its last axis when the chain is.
    pub fn layout(&self, c: Chain, dims: &[u32], vector: Vector) -> (Layout, bool) {
        let info = &self.info[c];
        let (rows, columns) = rows_columns(dims);
        let along = columns == info.columns && columns > 1;
        match info.family {
            Family::Blocked(n) => (Layout::Blocked(n), along),
            Family::Assigned => (Layout::Blocked(0), false),
            Family::Everywhere => (Layout::Cols, along && (dims.len() > 1 || vector != Vector::OfRows)),
            Family::Rows if dims.len() == 1 => match vector {
                Vector::OfRows => (Layout::RowVec, false),
                _ => (Layout::Cols, along),
            },
            Family::Rows if rows == 1 => (Layout::Cols, along),
            Family::Rows => (Layout::Row, along),
        }
    }
}

impl Default for ChainInfo {
    fn default() -> Self {
        ChainInfo {
            family: Family::Blocked(0),
            columns: 1,
            slices: 1,
            heeds_words: false,
            mixed: false,
            carried: false,
            vector_length: 1,
            memory: false,
            accumulates: false,
            halved: false,
            spread: false,
            matrices: false,
            least_rows: u32::MAX,
            widest_elem: 1,
            loc_op: None.into(),
            layouts: Default::default(),
            general: false,
            cuts: false,
            both_ways: false,
            reduces: false,
            multiplies: false,
        }
    }
}

impl ChainInfo {
    /// Takes one tile into account.
    fn see(&mut self, dims: &[u32], elem: Scalar) {
        let (rows, columns) = rows_columns(dims);
        self.widest_elem = self.widest_elem.max(elem.bytes());
        if dims.len() < 2 {
            self.vector_length = self.vector_length.max(columns);
            return;
        }
        self.matrices = true;
        if rows > 1 {
            self.least_rows = self.least_rows.min(rows);
        }
        // Two different widths besides 1: slices along one would cut the other elsewhere.
        self.mixed |= columns > 1 && self.columns > 1 && self.columns != columns;
        self.columns = self.columns.max(columns);
    }
}
