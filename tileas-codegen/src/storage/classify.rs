//! What each tile value is before it has a place: accumulator, shared-memory tile, register tile or leaf.
//!
//! In: a function in value form. Out: [`Classes`]. Accumulators are found by ties: a dot ties its accumulator to
//! its result, a `for` ties initial value, argument, yielded value and result, an `if` ties what its arms yield to
//! its results; every tied set that meets a dot is an accumulator. Values that a register op or a leaf puts into
//! such a set stay what they are and are written into the accumulator where they enter it. Which of the tied values share
//! one place is decided by [`coalesce`]; where two do not, the tie is a copy, written like a value from registers.
//! Cost: linear but for union-find and what `coalesce` costs.

use crate::error::{Code, CodegenError, CodegenResult};
use crate::ir::opcodes::Traits;
use crate::ir::{Block, Function, Op, Opcode, Value, keys};
use crate::isa::{AccAllocation, AccHome};
use crate::storage::coalesce::coalesce;
use cranelift_entity::{EntityRef, EntitySet, SecondaryMap};
use smallvec::SmallVec;

/// Disjoint sets of dense indices with path halving.
#[derive(Clone, Debug, Default)]
pub struct DisjointSets(Vec<u32>);

impl DisjointSets {
    /// `n` sets of one member.
    pub fn new(n: usize) -> DisjointSets {
        DisjointSets((0..n as u32).collect())
    }

    /// The representative: the smallest member, so that results do not depend on the order of unions.
    pub fn find(&mut self, mut i: usize) -> usize {
        while self.0[i] as usize != i {
            self.0[i] = self.0[self.0[i] as usize];
            i = self.0[i] as usize;
        }
        i
    }

    /// The representative, without shortening the path.
    pub fn root(&self, mut i: usize) -> usize {
        while self.0[i] as usize != i {
            i = self.0[i] as usize;
        }
        i
    }

    /// Joins two sets.
    pub fn union(&mut self, a: usize, b: usize) {
        let (a, b) = (self.find(a), self.find(b));
        self.0[a.max(b)] = a.min(b) as u32;
    }
}

/// What a value is.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum ValueClass {
    /// Not a tile.
    #[default]
    None,
    /// A tile that costs nothing to make again: constant, splat, iota.
    Leaf,
    /// An accumulator, in the target's home of accumulators.
    Acc,
    /// The result of a TMA load.
    Smem,
    /// A register tile.
    Reg,
}

/// A value entering an accumulator set.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Tie {
    /// The value.
    pub value: Value,
    /// The dot, `for` or `yield` that takes it.
    pub op: Op,
    /// Which operand of it.
    pub operand: usize,
    /// A member of the set: the dot's result, the loop argument, the op result.
    pub member: Value,
}

/// A matrix or TMA-store operand that must be in shared memory.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct SmemOperand {
    /// The value.
    pub value: Value,
    /// The op that takes it.
    pub op: Op,
    /// Which operand of it.
    pub operand: usize,
}

/// The classes of all values and where they meet.
#[derive(Clone, Debug, Default)]
pub struct Classes {
    class: SecondaryMap<Value, ValueClass>,
    /// All ops, in program order.
    pub ops: Vec<Op>,
    /// Sets of accumulators that share one place.
    pub sets: DisjointSets,
    /// Whether a tie is a copy from one such set to another, by its number.
    pub copied: Vec<bool>,
    /// Loop arguments whose next version has a slot of its own.
    pub rings: SmallVec<[Value; 2]>,
    /// Values that enter accumulator sets, in program order.
    pub ties: SmallVec<[Tie; 8]>,
    /// Shared-memory operands, in program order.
    pub operands: SmallVec<[SmemOperand; 8]>,
    /// Per set (by its representative): whether an op may see a zero start, so that it must really be stored.
    shows: Vec<bool>,
    /// Whether accumulators are register tiles like any other.
    in_registers: bool,
    /// Whether products may take their first operand from registers.
    operand_in_registers: bool,
    /// Products that take their first operand from registers.
    from_registers: EntitySet<Op>,
}

impl Classes {
    /// The class of a value.
    pub fn class(&self, v: Value) -> ValueClass {
        self.class[v]
    }

    /// Whether the op works on register tiles, as [`is_register_op`] says, products onto accumulators in registers included.
    pub fn is_register_op(&self, func: &Function, op: Op) -> bool {
        is_register_op(func, op) || self.in_registers && is_product(func, op)
    }

    /// The operands of an op of register tiles that it takes from registers, as far as they are tiles.
    pub fn register_operands(&self, func: &Function, op: Op) -> SmallVec<[Value; 4]> {
        if !is_product(func, op) {
            return SmallVec::from_slice(func.operands(op));
        }
        let first = self.first_operand(func, op);
        func.named_segment(op, "acc").iter().copied().chain(first).collect()
    }

    /// The first operand of a product that takes it from registers.
    pub fn first_operand(&self, func: &Function, op: Op) -> Option<Value> {
        if self.from_registers.contains(op) { func.named_operand(op, "a") } else { None }
    }

    fn shows_start(&self, member: Value) -> bool {
        self.shows.get(self.sets.root(member.index())).copied().unwrap_or(false)
    }

    /// Whether two accumulators share one place.
    pub fn same_set(&self, a: Value, b: Value) -> bool {
        self.sets.root(a.index()) == self.sets.root(b.index())
    }
}

/// Whether the op works on register tiles: element-wise, shape and plain memory ops with a tile among operands or
/// results, leaves excepted.
pub fn is_register_op(func: &Function, op: Op) -> bool {
    let opcode = func.opcode(op);
    // All prints are of one agent, also those of scalars: they keep their order.
    if opcode.leaves_tiles() {
        return true;
    }
    if is_scalar_source(func, op) {
        return false;
    }
    if matches!(opcode, Opcode::TiledLoad | Opcode::TiledStore) || opcode.is_sparse() {
        return true;
    }
    let tile = |&v: &Value| func.value_data(v).is_tile();
    opcode.has(Traits::PURE)
        && (opcode.has(Traits::ELEMENTWISE)
            || opcode.has(Traits::SHAPE)
            || matches!(opcode, Opcode::Reduce | Opcode::Combine | Opcode::Scan | Opcode::WarpDot))
        && !is_leaf(opcode)
        && (func.results(op).iter().any(tile) || func.operands(op).iter().any(tile))
}

/// Whether the op multiplies matrices.
pub fn is_product(func: &Function, op: Op) -> bool {
    matches!(func.opcode(op), Opcode::Dot | Opcode::AsyncDot)
}

/// Whether the op makes a scalar that is not a function of what every agent knows: it reads memory, or a tile in registers. One
/// agent runs it and sends the result to the others that need it.
pub fn is_scalar_source(func: &Function, op: Op) -> bool {
    let scalar = || func.result(op).is_some_and(|v| !func.value_data(v).is_tile());
    match func.opcode(op) {
        Opcode::AtomicRmw | Opcode::AtomicCas | Opcode::TiledLoad | Opcode::Gather => scalar(),
        Opcode::Unsplat => true,
        _ => false,
    }
}

/// Whether an op of this kind makes a leaf (if its result is a tile).
pub fn is_leaf(opcode: Opcode) -> bool {
    matches!(opcode, Opcode::Constant | Opcode::Splat | Opcode::Iota)
}

/// One access to a view.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Touch {
    /// The kernel's view or pointer that it goes to.
    pub view: Value,
    /// What the op names: that, or what was made of it. Only of accesses that name the same one can coordinates be compared.
    pub named: Value,
    /// Whether it is written.
    pub write: bool,
}

/// The view an op reads or writes, through a descriptor or directly; nested regions are not looked at.
pub fn touches(func: &Function, op: Op) -> Option<Touch> {
    let write = match func.opcode(op) {
        Opcode::TiledLoad | Opcode::Gather | Opcode::AsyncTiledTmaLoad => false,
        Opcode::AtomicRmw
        | Opcode::AtomicCas
        | Opcode::Scatter
        | Opcode::TiledStore
        | Opcode::AsyncTiledTmaStore => true,
        _ => return None,
    };
    let named = match func.named_operand(op, "view") {
        Some(view) => view,
        None => {
            let desc = func.named_operand(op, "desc")?;
            func.defining_op(desc).and_then(|d| func.named_operand(d, "view")).unwrap_or(desc)
        }
    };
    Some(Touch { view: func.memory_touched(named), named, write })
}

/// The tied operands of a `for` or of the `yield` that ends a region of `owner`: `(operand, argument, result)`.
fn for_carried(func: &Function, op: Op) -> impl Iterator<Item = (usize, Value, Value, Option<Value>)> + '_ {
    let body = func.op_block_at(op, 0);
    let yields = body.and_then(|b| func.last_op(b));
    func.results(op).iter().enumerate().filter_map(move |(n, &result)| {
        let arg = *func.block_params(body?).get(n + 1)?;
        let y = yields.and_then(|y| func.operands(y).get(n).copied());
        Some((n, arg, result, y))
    })
}

/// Joins register tiles that loops and conditionals carry.
pub fn join_register_ties(func: &Function, classes: &Classes, sets: &mut DisjointSets) {
    let reg = |v: Value| classes.class(v) == ValueClass::Reg;
    for op in func.ops() {
        match func.opcode(op) {
            Opcode::For => {
                let inits = func.named_segment(op, "inits");
                for (n, arg, result, y) in for_carried(func, op) {
                    if reg(arg) {
                        sets.union(arg.index(), result.index());
                        for v in inits.get(n).copied().into_iter().chain(y).filter(|&v| reg(v)) {
                            sets.union(arg.index(), v.index());
                        }
                    }
                }
            }
            Opcode::If => {
                for (n, &result) in func.results(op).iter().enumerate() {
                    for v in arm_yields(func, op, n) {
                        if reg(result) && reg(v.1) {
                            sets.union(result.index(), v.1.index());
                        }
                    }
                }
            }
            _ => {}
        }
    }
}

/// What the arms of an `if` yield for result `n`, with the yields.
pub fn arm_yields(func: &Function, op: Op, n: usize) -> SmallVec<[(Op, Value); 2]> {
    (0..func.regions(op).len())
        .filter_map(|r| {
            let y = func.last_op(func.op_block_at(op, r)?)?;
            Some((y, *func.operands(y).get(n)?))
        })
        .collect()
}

/// Finds the classes of all values, where accumulators have that home.
///
/// # Errors
/// `E0501` if the function holds pipeline ops or placed tiles.
pub fn classify(func: &Function, acc: &AccHome) -> CodegenResult<Classes> {
    let in_registers = acc.allocation == AccAllocation::Registers;
    let mut c = Classes { in_registers, operand_in_registers: acc.operand.is_some(), ..Classes::default() };
    let mut tied = DisjointSets::new(func.num_values());
    let ops = func.all_ops();
    let mut carrier: SecondaryMap<Value, bool> = SecondaryMap::new();
    carrier.resize(func.num_values());
    c.class.resize(func.num_values());
    for &op in &ops {
        let opcode = func.opcode(op);
        if opcode.has(Traits::PIPELINE) || matches!(opcode, Opcode::Copy | Opcode::AllocTensor) {
            return Err(CodegenError::new(
                Code::E0501,
                func.op_loc(op),
                format!("`{}` belongs to placed or materialised code", opcode.name()),
            ));
        }
        for &v in func.results(op).iter().filter(|&&v| func.value_data(v).is_tile()) {
            c.class[v] = match opcode {
                Opcode::AsyncTiledTmaLoad => ValueClass::Smem,
                o if is_leaf(o) => ValueClass::Leaf,
                _ => ValueClass::Reg,
            };
            carrier[v] = matches!(opcode, Opcode::Dot | Opcode::AsyncDot | Opcode::For | Opcode::If);
        }
        for r in 0..func.regions(op).len() {
            let Some(block) = func.op_block_at(op, r) else { continue };
            for &v in func.block_params(block).iter().filter(|&&v| func.value_data(v).is_tile()) {
                c.class[v] = ValueClass::Reg;
                carrier[v] = true;
            }
        }
    }
    // Tied sets, over carriers only: what register ops and leaves put in is written there.
    let mut starts: SmallVec<[Value; 8]> = SmallVec::new();
    for &op in &ops {
        match func.opcode(op) {
            Opcode::Dot | Opcode::AsyncDot => {
                let (Some(result), Some(acc)) = (func.result(op), func.named_operand(op, "acc")) else {
                    continue;
                };
                starts.push(result);
                if carrier[acc] {
                    tied.union(result.index(), acc.index());
                }
            }
            Opcode::For => {
                let inits = func.named_segment(op, "inits");
                for (n, arg, result, y) in for_carried(func, op) {
                    if carrier[arg] {
                        tied.union(arg.index(), result.index());
                        for v in inits.get(n).copied().into_iter().chain(y).filter(|&v| carrier[v]) {
                            tied.union(arg.index(), v.index());
                        }
                    }
                }
            }
            Opcode::If => {
                for (n, &result) in func.results(op).iter().enumerate() {
                    for (_, v) in arm_yields(func, op, n) {
                        if carrier[result] && carrier[v] {
                            tied.union(result.index(), v.index());
                        }
                    }
                }
            }
            _ => {}
        }
    }
    let mut is_acc = vec![false; func.num_values()];
    for v in starts.into_iter().filter(|_| !in_registers) {
        let root = tied.find(v.index());
        is_acc[root] = true;
    }
    for i in 0..func.num_values() {
        let v = Value::new(i);
        if carrier[v] && is_acc[tied.find(i)] {
            c.class[v] = ValueClass::Acc;
        }
    }
    for &op in &ops {
        collect(func, op, &mut c);
    }
    let coalesced = coalesce(func, &ops, &c.class, &c.ties);
    (c.sets, c.copied, c.rings) = (coalesced.sets, coalesced.copied, coalesced.rings);
    find_shown(func, &ops, &mut c);
    c.ops = ops;
    Ok(c)
}

/// Finds the accumulators whose zero start an op may see. "The first update overwrites" is enough for one loop
/// whose body updates the accumulator by dots alone; it is not where registers read or write a carried value, where
/// an arm may leave it as it is, or where a second loop goes on with it after perhaps no trip of the first.
fn find_shown(func: &Function, ops: &[Op], c: &mut Classes) {
    c.shows = vec![false; func.num_values()];
    // Sets that a loop or branch before goes on with.
    let mut taken: SmallVec<[usize; 8]> = SmallVec::new();
    for &op in ops {
        let opcode = func.opcode(op);
        let carried = |v: Value| {
            c.class[v] == ValueClass::Acc && matches!(func.value_def(v), crate::ir::ValueDef::Param(..))
        };
        let mut shown: SmallVec<[Value; 4]> = SmallVec::new();
        if is_register_op(func, op) || opcode == Opcode::AsyncTiledTmaStore {
            shown.extend(func.operands(op).iter().copied().filter(|&v| carried(v)));
        }
        if matches!(opcode, Opcode::For | Opcode::If) {
            for &r in func.results(op).iter().filter(|&&r| c.class[r] == ValueClass::Acc) {
                let set = c.sets.find(r.index());
                let again = taken.contains(&set);
                if !again {
                    taken.push(set);
                }
                if opcode == Opcode::If || again {
                    shown.push(r);
                }
            }
        }
        for v in shown {
            // The versions of a ring know by a flag whether they were written.
            if !c.rings.iter().any(|&r| c.same_set(r, v)) {
                let set = c.sets.find(v.index());
                c.shows[set] = true;
            }
        }
    }
    for i in 0..c.ties.len() {
        let tie = c.ties[i];
        if func.opcode(tie.op) != Opcode::For && tie_needs_write(func, c, i) {
            let set = c.sets.find(tie.member.index());
            c.shows[set] = true;
        }
    }
}

/// Records the ties and shared-memory operands of one op.
fn collect(func: &Function, op: Op, c: &mut Classes) {
    let position = |v: Value, from: usize| func.operands(op).iter().skip(from).position(|&x| x == v);
    match func.opcode(op) {
        Opcode::Dot | Opcode::AsyncDot => {
            let (Some(a), Some(b), Some(acc), Some(member)) = (
                func.named_operand(op, "a"),
                func.named_operand(op, "b"),
                func.named_operand(op, "acc"),
                func.result(op),
            ) else {
                return;
            };
            // What was computed beside the product needs no memory where it may come from registers. What is gathered would go through memory all the
            // same, for its layout, and who gathers it need not be who multiplies.
            let computed = c.operand_in_registers
                && c.class[a] == ValueClass::Reg
                && func.value_data(a).elem().is_some_and(|e| e.bits() == 16)
                && !func.has_attr(op, keys::TRANSPOSE_A)
                && home(func, a) == func.op_block(op)
                && !is_gathered(func, a);
            if computed {
                c.from_registers.insert(op);
            } else {
                c.operands.push(SmemOperand { value: a, op, operand: 0 });
            }
            let second = position(b, 1).unwrap_or(0) + 1;
            c.operands.push(SmemOperand { value: b, op, operand: second });
            if !c.in_registers {
                let third = position(acc, second + 1).unwrap_or(0) + second + 1;
                c.ties.push(Tie { value: acc, op, operand: third, member });
            }
        }
        Opcode::AsyncTiledTmaStore => {
            if let Some(value) = func.named_operand(op, "source") {
                let operand = 1 + func.named_segment(op, "coords").len();
                c.operands.push(SmemOperand { value, op, operand });
            }
        }
        Opcode::For => {
            for (n, &value) in func.named_segment(op, "inits").iter().enumerate() {
                let arg = func.op_block_at(op, 0).and_then(|b| func.block_params(b).get(n + 1).copied());
                if let Some(member) = arg.filter(|&a| c.class[a] == ValueClass::Acc) {
                    c.ties.push(Tie { value, op, operand: n + 3, member });
                }
            }
        }
        Opcode::Yield => {
            let Some(parent) = func.op_parent(op) else { return };
            for (n, &value) in func.operands(op).iter().enumerate() {
                if let Some(&member) = func.results(parent).get(n).filter(|&&r| c.class[r] == ValueClass::Acc)
                {
                    c.ties.push(Tie { value, op, operand: n, member });
                }
            }
        }
        _ => {}
    }
}

/// Whether a value is made, in the block where it stands, of what is gathered there, and not of a product.
fn is_gathered(func: &Function, v: Value) -> bool {
    let body = home(func, v);
    let mut seen: SmallVec<[Value; 16]> = SmallVec::from_slice(&[v]);
    let mut reads = false;
    let mut next = 0;
    while let Some(&v) = seen.get(next) {
        next += 1;
        let Some(by) = func.defining_op(v).filter(|_| home(func, v) == body) else { continue };
        if is_product(func, by) {
            return false;
        }
        reads |= func.opcode(by).is_sparse();
        for &from in func.operands(by).iter().filter(|&&from| func.value_data(from).is_tile()) {
            if !seen.contains(&from) {
                seen.push(from);
            }
        }
    }
    reads
}

/// Whether a tied value must be written into the accumulator: everything but what shares the place already, and but a zero
/// that a dot or a loop starts from (the first update then overwrites).
pub fn tie_needs_write(func: &Function, c: &Classes, n: usize) -> bool {
    let tie = &c.ties[n];
    match c.class(tie.value) {
        ValueClass::Acc => c.copied[n],
        ValueClass::Leaf => {
            func.opcode(tie.op) == Opcode::Yield
                || func.constant_value(tie.value) != Some(0.0)
                || func.opcode(tie.op) == Opcode::For && c.shows_start(tie.member)
        }
        _ => true,
    }
}

/// The block a value is defined in.
pub fn home(func: &Function, v: Value) -> Option<Block> {
    match func.value_def(v) {
        crate::ir::ValueDef::Result(op, _) => func.op_block(op),
        crate::ir::ValueDef::Param(b, _) => Some(b),
    }
}
