//! Storage webs: the tile values that share one buffer, updated in place.
//!
//! In: the placed function. Out: [`Webs`]: what is known of each set of tied shared- and tensor-memory values. Ties: a dot's
//! accumulator and result; a `for`'s init, argument, yield and result; an `if`'s yields and results; slices with their
//! tile. A constant is in none: it occupies no memory, and "not written yet" is a [flag](super::flag).
//! Errors: E0604 ties of unequal tiles. That sharing changes no result is proven by [`crate::storage::check`].
//! Cost: near-linear in the values.

use super::access::{accesses, is_constant, is_stored};
use super::classify::DisjointSets;
use super::slice::base_of;
use crate::error::{Code, CodegenError, CodegenResult};
use crate::ir::{Block, Function, Layout, Op, Opcode, Scalar, Space, TypeData, Value};
use cranelift_entity::packed_option::PackedOption;
use cranelift_entity::{EntityRef, PrimaryMap, SecondaryMap, entity_impl};
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
    /// First of the 16 lanes of each warp that it has of its columns; `None`: it has all lanes.
    pub lane: Option<u32>,
}

impl WebData {
    /// Bytes of one slot.
    pub fn bytes(&self) -> u32 {
        let n: u64 = self.dims.iter().map(|&d| u64::from(d)).product();
        let bytes = (n * u64::from(self.elem.bits())).div_ceil(8);
        u32::try_from(self.layout.slot_bytes(bytes)).unwrap_or(u32::MAX)
    }

    /// Alignment of a slot in shared memory: a scalar's is that of the widest scalar.
    pub fn alignment(&self) -> u32 {
        if self.is_scalar() { 8 } else { self.layout.swizzle().map_or(128, |s| s.alignment().max(128)) }
    }

    /// Whether it holds accumulators: multiplies update them in place, and each of their rows is moved by the thread that
    /// holds the row in registers.
    pub fn is_accumulator(&self) -> bool {
        !self.scalar && matches!(self.layout, Layout::Tmem128 | Layout::Tmem64 | Layout::SmemRow)
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
            lane: None,
        });
        self.of[v] = web.into();
        Some(web)
    }
}

/// Forms the webs.
///
/// # Errors
/// E0604, E0608; see the module documentation.
pub fn build(func: &Function) -> CodegenResult<Webs> {
    let mut sets = tied(func)?;
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
        let r = Value::new(sets.find(v.index()));
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
                lane: None,
            })
        });
        by_root[r] = web.into();
        webs.of[v] = web.into();
        let data = &mut webs.webs[web];
        data.values.push(v);
        data.home = func.common_block(data.home, block);
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
                data.home = func.common_block(data.home, b);
            }
        }
    }
    Ok(webs)
}

/// The sets of tied values; the first member of each represents it.
fn tied(func: &Function) -> CodegenResult<DisjointSets> {
    let mut sets = DisjointSets::new(func.num_values());
    let mut pair = |a: Option<Value>, b: Option<Value>, op: Op| {
        let (Some(a), Some(b)) = (a, b) else { return Ok(()) };
        if !is_stored(func, a) || !is_stored(func, b) || is_constant(func, a) || is_constant(func, b) {
            return Ok(());
        }
        if func.value_data(a).space() != func.value_data(b).space() {
            let text = format!("{} is tied to {}", func.value_data(a), func.value_data(b));
            return Err(CodegenError::new(Code::E0604, func.op_loc(op), text));
        }
        sets.union(a.index(), b.index());
        Ok(())
    };
    for op in func.ops() {
        match func.opcode(op) {
            Opcode::Dot | Opcode::AsyncDot => pair(func.named_operand(op, "acc"), func.result(op), op)?,
            Opcode::ExtractSlice => pair(func.named_operand(op, "source"), func.result(op), op)?,
            Opcode::For => {
                let (args, yields) = (func.for_args(op), func.region_yields(op, 0));
                for (i, &arg) in args.iter().enumerate() {
                    let init = func.named_segment(op, "inits").get(i);
                    for v in [init, yields.get(i), func.results(op).get(i)] {
                        pair(v.copied(), Some(arg), op)?;
                    }
                }
            }
            Opcode::If => {
                for n in 0..func.regions(op).len() {
                    for (&y, &r) in func.region_yields(op, n).iter().zip(func.results(op)) {
                        pair(Some(y), Some(r), op)?;
                    }
                }
            }
            _ => {}
        }
    }
    Ok(sets)
}
