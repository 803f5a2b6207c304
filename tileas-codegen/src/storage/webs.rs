//! Storage webs: the tile values that share one buffer, updated in place.
//!
//! In: the placed function. Out: [`Webs`]: what is known of each set of the [`Partition`] of all shared- and
//! tensor-memory values. A constant is in none: it occupies no memory, and "not written yet" is a flag ([`Flag`]).
//! Errors: E0604 ties of unequal tiles. That sharing changes no result is proven by [`crate::storage::check`].
//! Cost: near-linear in the values.

use super::access::{accesses, base_of, is_accumulator, is_stored, numbered_slice, slice_base};
use super::partition::Partition;
use crate::error::{Code, CodegenError, CodegenResult};
use crate::ir::{Block, Function, Layout, Op, Opcode, Scalar, Space, TypeData, Value, ValueDef, keys};
use cranelift_entity::packed_option::PackedOption;
use cranelift_entity::{PrimaryMap, SecondaryMap, entity_impl};
use smallvec::SmallVec;

/// One storage web.
#[derive(Copy, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Web(u32);
entity_impl!(Web, "W");

/// What is known of a web.
#[derive(Clone, Debug)]
pub struct WebData {
    /// Its values, in order of creation.
    pub values: SmallVec<[Value; 8]>,
    /// The value that names it.
    pub root: Value,
    /// Where it lives.
    pub space: Space,
    /// Extents of one slot.
    pub dims: SmallVec<[u32; 4]>,
    /// Element type.
    pub elem: Scalar,
    /// Layout.
    pub layout: Layout,
    /// A slot holds one scalar.
    pub scalar: bool,
    /// The block one of whose executions uses one slot.
    pub home: Block,
    /// Ops that access it, in program order.
    pub ops: SmallVec<[Op; 8]>,
    /// Slots; 1 until depths are chosen.
    pub slots: u32,
    /// Byte offset (shared memory) or first column (tensor memory).
    pub at: u32,
}

impl WebData {
    /// Bytes of one slot.
    pub fn bytes(&self) -> u32 {
        let n: u64 = self.dims.iter().map(|&d| u64::from(d)).product();
        u32::try_from((n * u64::from(self.elem.bits())).div_ceil(8)).unwrap_or(u32::MAX)
    }

    /// Alignment of a slot in shared memory: a scalar's is that of the widest scalar.
    pub fn alignment(&self) -> u32 {
        if self.is_scalar() { 8 } else { self.layout.swizzle().map_or(128, |s| s.alignment().max(128)) }
    }

    /// Whether it holds accumulators.
    pub fn is_accumulator(&self) -> bool {
        !self.scalar && is_accumulator(self.layout)
    }

    /// Whether a slot holds one scalar on its way between agents.
    pub fn is_scalar(&self) -> bool {
        self.scalar
    }

    /// Tensor-memory columns of one slot: 32 bits × lanes each.
    pub fn columns(&self) -> u32 {
        let cols = self.dims.last().copied().unwrap_or(1);
        u32::try_from((u64::from(cols) * u64::from(self.elem.bits())).div_ceil(32)).unwrap_or(u32::MAX)
    }
}

/// The webs of a function.
#[derive(Clone, Default)]
pub struct Webs {
    /// All webs, in order of their first value.
    pub webs: PrimaryMap<Web, WebData>,
    /// The web of a value.
    pub of: SecondaryMap<Value, PackedOption<Web>>,
}

impl Webs {
    /// Adds the slot through which the scalar that `source` makes travels.
    pub fn add_scalar(&mut self, func: &Function, source: Op) -> Option<Web> {
        let v = func.result(source)?;
        let elem = func.value_data(v).as_scalar()?;
        let web = self.webs.push(WebData {
            values: SmallVec::from_slice(&[v]),
            root: v,
            space: Space::Smem,
            dims: SmallVec::from_slice(&[1]),
            elem,
            layout: Layout::SmemRow,
            scalar: true,
            home: func.op_block(source)?,
            ops: SmallVec::from_slice(&[source]),
            slots: 1,
            at: 0,
        });
        self.of[v] = web.into();
        Some(web)
    }
}

/// Whether a stored value is a constant: it has no storage.
pub fn is_constant(func: &Function, v: Value) -> bool {
    func.defining_op(v).is_some_and(|op| func.opcode(op) == Opcode::Constant)
}

/// The common block of two blocks: the innermost one that contains both.
pub fn common_block(func: &Function, a: Block, b: Block) -> Block {
    let outwards =
        |b: Block| std::iter::successors(Some(b), |&b| func.block_parent(b).and_then(|op| func.op_block(op)));
    outwards(b).find(|&x| outwards(a).any(|y| x == y)).unwrap_or_else(|| func.entry())
}

/// Forms the webs.
///
/// # Errors
/// E0604, E0608; see the module documentation.
pub fn build(func: &Function) -> CodegenResult<Webs> {
    let mut partition = Partition::find(func);
    if let Some(e) = partition.error.take() {
        return Err(e);
    }
    let mut members: Vec<(Value, Op)> = Vec::with_capacity(func.num_values());
    let all = func.all_ops();
    // Members in program order: results of ops, then arguments of their bodies.
    for &op in &all {
        for &v in func.results(op) {
            members.push((v, op));
        }
        for n in 0..func.regions(op).len() {
            let Some(b) = func.op_block_at(op, n) else { continue };
            for &v in func.block_params(b) {
                members.push((v, op));
            }
        }
    }
    let mut webs = Webs::default();
    webs.of.resize(func.num_values());
    let mut by_root: SecondaryMap<Value, PackedOption<Web>> = SecondaryMap::new();
    by_root.resize(func.num_values());
    for &(v, op) in &members {
        if !is_stored(func, v) || is_constant(func, v) {
            continue;
        }
        let TypeData::Tile { dims, elem, space: Some(space), layout: Some(layout) } = func.value_data(v)
        else {
            return Err(CodegenError::new(
                Code::E0608,
                func.op_loc(op),
                format!("{} has no layout", func.value_data(v)),
            ));
        };
        // Where the value exists: its op's block; an argument exists where its loop stands.
        let block = func.op_block(op).unwrap_or_else(|| func.entry());
        let r = partition.root(v);
        let web = by_root[r].expand().unwrap_or_else(|| {
            webs.webs.push(WebData {
                values: SmallVec::new(),
                root: v,
                space: *space,
                dims: SmallVec::from_slice(dims),
                elem: *elem,
                layout: *layout,
                scalar: false,
                home: block,
                ops: SmallVec::new(),
                slots: 1,
                at: 0,
            })
        });
        by_root[r] = web.into();
        webs.of[v] = web.into();
        let data = &mut webs.webs[web];
        data.values.push(v);
        data.home = common_block(func, data.home, block);
        let slice = func.defining_op(v).is_some_and(|op| func.opcode(op) == Opcode::ExtractSlice);
        let size = |d: &[u32]| d.iter().map(|&x| u64::from(x)).product::<u64>();
        if !slice && size(dims) > size(&data.dims) {
            (data.root, data.dims, data.elem, data.layout) = (v, dims.clone(), *elem, *layout);
        }
    }
    for &op in &all {
        for a in accesses(func, op) {
            let base = base_of(func, a.value);
            let Some(web) = webs.of[base].expand() else {
                if is_constant(func, base) && !a.writes {
                    continue; // reading a constant reads no memory
                }
                return Err(CodegenError::new(Code::E0608, func.op_loc(op), "a stored tile without storage"));
            };
            let data = &mut webs.webs[web];
            if data.ops.last() != Some(&op) {
                data.ops.push(op);
            }
            if let Some(b) = func.op_block(op) {
                data.home = common_block(func, data.home, b);
            }
        }
    }
    Ok(webs)
}

/// Iteration arguments of a `for`, without the induction variable.
pub fn for_args(func: &Function, op: Op) -> &[Value] {
    func.op_block_at(op, 0).map_or(&[], |b| func.block_params(b).get(1..).unwrap_or(&[]))
}

/// What region `n` of an op yields.
pub fn region_yields(func: &Function, op: Op, n: usize) -> &[Value] {
    func.op_block_at(op, n)
        .and_then(|b| func.last_op(b))
        .map_or(&[], |t| if func.opcode(t) == Opcode::Yield { func.operands(t) } else { &[] })
}

/// Whether a web has been written when a value of it is current.
///
/// Kept symbolic, so that the common cases cost a comparison and nothing is carried.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Flag {
    /// Not written: the value is the zero constant.
    Never,
    /// Written.
    Always,
    /// Written unless this is the first trip of the loop.
    NotFirst(Op),
    /// Written if the loop made a trip.
    Trips(Op),
    /// Carried next to the value as an `i1` (an iteration argument or a result).
    Carried(Value),
    /// Either.
    Or(Box<Flag>, Box<Flag>),
}

impl Flag {
    fn or(self, other: Flag) -> Flag {
        match (self, other) {
            (Flag::Always, _) | (_, Flag::Always) => Flag::Always,
            (Flag::Never, f) | (f, Flag::Never) => f,
            (a, b) if a == b => a,
            (a, b) => Flag::Or(Box::new(a), Box::new(b)),
        }
    }
}

/// The flag for what an op reads: a dot's accumulator, the tile or slice that a copy reads.
pub fn flag_for(func: &Function, op: Op) -> Option<Flag> {
    match func.opcode(op) {
        Opcode::AsyncDot => {
            let acc = func.named_operand(op, "acc").filter(|&v| is_stored(func, v))?;
            Some(flag_of(func, acc, op))
        }
        Opcode::Copy => {
            let source = func.named_operand(op, "source").filter(|&v| is_stored(func, v))?;
            let (base, mut offsets) = slice_base(func, source);
            if numbered_slice(func, source).is_some() {
                // Any part of it.
                return Some(flag_of(func, base, op));
            }
            for (o, add) in
                offsets.iter_mut().zip(func.attr_ints(op, crate::ir::keys::OFFSETS).unwrap_or_default())
            {
                *o += add;
            }
            let dims = func.results(op).first().map_or(source, |&r| r);
            let dims: SmallVec<[u32; 4]> = SmallVec::from_slice(func.value_data(dims).dims().unwrap_or(&[]));
            if parts_before(func, base, op).iter().any(|p| covers(p, &offsets, &dims)) {
                return Some(Flag::Always);
            }
            Some(by_definition(func, base))
        }
        _ => None,
    }
}

/// The flag of a whole stored value at a use.
pub fn flag_of(func: &Function, v: Value, at: Op) -> Flag {
    let base = base_of(func, v);
    if all_written(func, base, at) { Flag::Always } else { by_definition(func, base) }
}

/// Offsets and extents of a part.
type Part = (SmallVec<[i64; 4]>, SmallVec<[u32; 4]>);

/// What a copy in destination form writes: a tile, and the part of it.
fn written_part(func: &Function, op: Op) -> Option<(Value, Part)> {
    let dest = func.named_operand(op, "dest").filter(|_| func.opcode(op) == Opcode::Copy)?;
    let source = func.named_operand(op, "source")?;
    let (base, mut offsets) = slice_base(func, dest);
    for (o, add) in offsets.iter_mut().zip(func.attr_ints(op, keys::OFFSETS).unwrap_or_default()) {
        *o += add;
    }
    Some((base, (offsets, func.value_data(source).dims().unwrap_or(&[]).into())))
}

fn covers(p: &Part, offsets: &[i64], dims: &[u32]) -> bool {
    p.0.len() == offsets.len()
        && (0..offsets.len()).all(|i| {
            let (lo, hi) = (p.0[i], p.0[i] + i64::from(p.1[i]));
            lo <= offsets[i] && offsets[i] + i64::from(dims.get(i).copied().unwrap_or(0)) <= hi
        })
}

/// Parts of `v` that copies in destination form certainly wrote before `at` (since `v` became what it is).
fn parts_before(func: &Function, v: Value, at: Op) -> Vec<Part> {
    let mut out: Vec<Part> = Vec::new();
    let mut op = at;
    while let Some(block) = func.op_block(op) {
        for o in func.block_ops(block) {
            if o == op {
                break;
            }
            let Some((_, part)) = written_part(func, o).filter(|p| p.0 == v) else { continue };
            if !out.contains(&part) {
                out.push(part);
            }
        }
        let defined_here = match func.value_def(v) {
            ValueDef::Result(d, _) => func.op_block(d) == Some(block),
            ValueDef::Param(b, _) => b == block,
        };
        match func.block_parent(block) {
            Some(p) if !defined_here => op = p,
            _ => break,
        }
    }
    out
}

/// Whether the parts written before `at` make up the whole tile.
fn all_written(func: &Function, v: Value, at: Op) -> bool {
    let size = |d: &[u32]| d.iter().map(|&x| u64::from(x)).product::<u64>();
    let parts = parts_before(func, v, at);
    !parts.is_empty()
        && parts.iter().map(|p| size(&p.1)).sum::<u64>()
            >= func.value_data(v).num_elements().unwrap_or(u64::MAX)
}

/// The flag of a stored value when nothing was written to it in place since its definition.
fn by_definition(func: &Function, v: Value) -> Flag {
    match func.value_def(v) {
        ValueDef::Result(op, n) => match func.opcode(op) {
            Opcode::Constant => Flag::Never,
            Opcode::For => loop_flag(func, v, op, n as usize, Flag::Trips(op)),
            Opcode::If => {
                let n = n as usize;
                let arm = |r| match (region_yields(func, op, r).get(n), terminator(func, op, r)) {
                    (Some(&y), Some(t)) => flag_of(func, y, t),
                    _ => Flag::Always,
                };
                match (arm(0), arm(1)) {
                    (Flag::Always, Flag::Always) => Flag::Always,
                    (Flag::Never, Flag::Never) => Flag::Never,
                    _ => Flag::Carried(v),
                }
            }
            _ => Flag::Always,
        },
        ValueDef::Param(b, n) => match (func.block_parent(b), (n as usize).checked_sub(1)) {
            (Some(op), Some(n)) => loop_flag(func, v, op, n, Flag::NotFirst(op)),
            _ => Flag::Always,
        },
    }
}

/// The flag of argument or result `n` of a loop; `later` is what a trip adds to the start.
fn loop_flag(func: &Function, v: Value, op: Op, n: usize, later: Flag) -> Flag {
    let (Some(&init), Some(&y)) = (func.named_segment(op, "inits").get(n), region_yields(func, op, 0).get(n))
    else {
        return Flag::Always;
    };
    let unchanged = || Some(handed_on(func, y, *for_args(func, op).get(n)?, terminator(func, op, 0)?));
    match flag_of(func, init, op) {
        Flag::Always => Flag::Always,
        start if unchanged() == Some(true) => start,
        start if terminator(func, op, 0).is_some_and(|t| written_always(func, y, t)) => start.or(later),
        _ => Flag::Carried(v),
    }
}

/// The terminator of region `n` of an op.
pub fn terminator(func: &Function, op: Op, n: usize) -> Option<Op> {
    func.op_block_at(op, n).and_then(|b| func.last_op(b))
}

/// Whether a value is at `at` what `arg` was when its loop's turn began, and nothing was written to it since.
fn handed_on(func: &Function, v: Value, arg: Value, at: Op) -> bool {
    let base = base_of(func, v);
    if all_written(func, base, at) {
        return false;
    }
    let ValueDef::Result(op, n) = func.value_def(base) else { return base == arg };
    let n = n as usize;
    let yielded = |r: usize, arg: Value| {
        let y = region_yields(func, op, r).get(n).zip(terminator(func, op, r));
        y.is_some_and(|(&y, t)| handed_on(func, y, arg, t))
    };
    match func.opcode(op) {
        Opcode::If => yielded(0, arg) && yielded(1, arg),
        Opcode::For => {
            let init = func.named_segment(op, "inits").get(n);
            init.is_some_and(|&i| handed_on(func, i, arg, op))
                && for_args(func, op).get(n).is_some_and(|&own| yielded(0, own))
        }
        _ => false,
    }
}

/// Whether a value is written at `at` whatever its loop's argument was.
fn written_always(func: &Function, y: Value, at: Op) -> bool {
    let base = base_of(func, y);
    if all_written(func, base, at) {
        return true;
    }
    match func.value_def(base) {
        ValueDef::Param(..) => false,
        ValueDef::Result(op, n) => match func.opcode(op) {
            Opcode::Constant => false,
            Opcode::If => {
                (0..2).all(|r| match (region_yields(func, op, r).get(n as usize), terminator(func, op, r)) {
                    (Some(&y), Some(t)) => written_always(func, y, t),
                    _ => false,
                })
            }
            // A nested loop may make no trip; its init decides then.
            Opcode::For => {
                func.named_segment(op, "inits").get(n as usize).is_some_and(|&i| written_always(func, i, op))
            }
            _ => true,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cranelift_entity::EntityRef;

    #[test]
    fn flags_simplify() {
        let l = Op::new(3);
        assert_eq!(Flag::Never.or(Flag::Trips(l)), Flag::Trips(l));
        assert_eq!(Flag::Always.or(Flag::Trips(l)), Flag::Always);
        assert_eq!(Flag::Trips(l).or(Flag::Trips(l)), Flag::Trips(l));
    }
}
