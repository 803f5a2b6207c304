//! Storage webs: values that share one piece of shared or tensor memory because ops tie them.
//!
//! `dot` ties accumulator and result, `for` ties init, argument, yield and result, `if` ties its results to both
//! yields, a slice belongs to its source. A constant init joins no web: it becomes "accumulate = written before".

use crate::agents::AgentPlan;
use crate::error::{Code, CodegenError, CodegenResult};
use crate::ir::{Function, Layout, Op, Opcode, Scalar, Space, TypeData, Value, ValueDef};
use cranelift_entity::{EntityRef, SecondaryMap};

/// Number of a web.
#[derive(Copy, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct WebId(pub u32);

/// How a web gets its first content.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Init {
    /// The first update overwrites (a zero constant stood there).
    Overwrite,
    /// Registers or an engine write it.
    Written,
}

/// One piece of storage.
#[derive(Clone, Debug)]
pub struct Web {
    /// Where.
    pub space: Space,
    /// Rows of one slot.
    pub rows: u32,
    /// Columns of one slot.
    pub cols: u32,
    /// Extents of one slot.
    pub dims: Vec<u32>,
    /// Element type.
    pub elem: Scalar,
    /// Layout of one slot.
    pub layout: Layout,
    /// Its values in order of definition.
    pub values: Vec<Value>,
    /// Slots.
    pub slots: u32,
    /// Byte offset or first column.
    pub at: u32,
    /// The op that first asked for it.
    pub op: Option<Op>,
}

impl Web {
    /// Bytes of one slot in shared memory.
    pub fn slot_bytes(&self) -> u32 {
        (self.dims.iter().map(|&d| u64::from(d)).product::<u64>() * u64::from(self.elem.bits()))
            .div_ceil(8)
            .min(u64::from(u32::MAX)) as u32
    }
}

/// All webs of a function.
#[derive(Clone, Debug, Default)]
pub struct Webs {
    webs: Vec<Web>,
    of: SecondaryMap<Value, u32>,
}

struct Sets(Vec<u32>);

impl Sets {
    fn find(&mut self, mut x: usize) -> usize {
        while self.0[x] as usize != x {
            let p = self.0[x] as usize;
            self.0[x] = self.0[p];
            x = p;
        }
        x
    }
    fn union(&mut self, a: usize, b: usize) {
        let (a, b) = (self.find(a), self.find(b));
        let (lo, hi) = (a.min(b), a.max(b));
        self.0[hi] = lo as u32;
    }
}

fn stored(f: &Function, v: Value) -> bool {
    matches!(f.value_data(v).space(), Some(Space::Smem | Space::Tmem)) && f.value_data(v).is_tile()
}

/// A constant tile: content without storage.
pub fn is_constant(f: &Function, v: Value) -> bool {
    f.defining_op(v).is_some_and(|op| f.opcode(op) == Opcode::Constant)
}

impl Webs {
    /// Computes the webs.
    ///
    /// # Errors
    /// `E0601` where values tied together have different shapes.
    pub fn compute(f: &Function, plan: &AgentPlan) -> CodegenResult<Webs> {
        let _ = plan;
        let mut sets = Sets((0..f.num_values() as u32).collect());
        let tie = |sets: &mut Sets, a: Value, b: Value| {
            if stored(f, a) && stored(f, b) && !is_constant(f, a) && !is_constant(f, b) {
                sets.union(a.index(), b.index());
            }
        };
        let ops = f.all_ops();
        for &op in &ops {
            match f.opcode(op) {
                Opcode::AsyncDot => {
                    if let (Some(acc), Some(r)) = (f.named_operand(op, "acc"), f.result(op)) {
                        tie(&mut sets, acc, r);
                    }
                }
                Opcode::ExtractSlice => {
                    if let (Some(&s), Some(r)) = (f.operands(op).first(), f.result(op)) {
                        tie(&mut sets, s, r);
                    }
                }
                Opcode::For => {
                    let Some(body) = f.op_block_at(op, 0) else { continue };
                    let args = f.block_params(body).get(1..).unwrap_or(&[]).to_vec();
                    let inits = f.operands(op).get(3..).unwrap_or(&[]).to_vec();
                    let yields = f.last_op(body).map(|y| f.operands(y).to_vec()).unwrap_or_default();
                    for i in 0..args.len() {
                        for other in [inits.get(i), yields.get(i), f.results(op).get(i)].into_iter().flatten()
                        {
                            tie(&mut sets, args[i], *other);
                        }
                    }
                }
                Opcode::If => {
                    for arm in 0..2 {
                        let Some(y) = f.op_block_at(op, arm).and_then(|b| f.last_op(b)) else { continue };
                        for (&r, &v) in f.results(op).iter().zip(f.operands(y)) {
                            tie(&mut sets, r, v);
                        }
                    }
                }
                _ => {}
            }
        }
        let mut out = Webs { webs: Vec::new(), of: SecondaryMap::with_default(u32::MAX) };
        let mut number: SecondaryMap<Value, u32> = SecondaryMap::with_default(u32::MAX);
        let mut visit = |out: &mut Webs, v: Value| -> CodegenResult<()> {
            if !stored(f, v) || is_constant(f, v) || out.of[v] != u32::MAX {
                return Ok(());
            }
            let root = Value::new(sets.find(v.index()));
            let TypeData::Tile { dims, elem, space: Some(space), layout: Some(layout) } = f.value_data(v)
            else {
                return Ok(());
            };
            let op = match f.value_def(v) {
                ValueDef::Result(op, _) => Some(op),
                ValueDef::Param(b, _) => f.block_parent(b),
            };
            let Some((&cols, outer)) = dims.split_last() else { return Ok(()) };
            if number[root] == u32::MAX {
                number[root] = out.webs.len() as u32;
                out.webs.push(Web {
                    space: *space,
                    rows: outer.iter().product(),
                    cols,
                    dims: dims.to_vec(),
                    elem: *elem,
                    layout: *layout,
                    values: Vec::new(),
                    slots: 1,
                    at: 0,
                    op,
                });
            }
            let w = &mut out.webs[number[root] as usize];
            let slice = op.is_some_and(|o| f.opcode(o) == Opcode::ExtractSlice);
            if !slice && (w.dims != dims.as_slice() || w.elem != *elem) {
                let loc = op.map_or(f.loc, |o| f.op_loc(o));
                let m = format!(
                    "a value of {dims:?} {} is tied to storage of {:?} {}",
                    elem.name(),
                    w.dims,
                    w.elem.name()
                );
                return Err(CodegenError::new(Code::E0601, loc, m));
            }
            w.values.push(v);
            out.of[v] = number[root];
            Ok(())
        };
        for &op in &ops {
            for &r in f.regions(op) {
                for &p in f.block_params(f.region_block(r)) {
                    visit(&mut out, p)?;
                }
            }
            for &v in f.results(op) {
                visit(&mut out, v)?;
            }
        }
        Ok(out)
    }

    /// The web of a value.
    pub fn of(&self, v: Value) -> Option<WebId> {
        let n = self.of[v];
        (n != u32::MAX).then_some(WebId(n))
    }

    /// A web.
    pub fn get(&self, id: WebId) -> &Web {
        &self.webs[id.0 as usize]
    }

    /// A web, to change.
    pub fn get_mut(&mut self, id: WebId) -> &mut Web {
        &mut self.webs[id.0 as usize]
    }

    /// All webs in order of first definition.
    pub fn iter(&self) -> impl Iterator<Item = (WebId, &Web)> {
        self.webs.iter().enumerate().map(|(i, w)| (WebId(i as u32), w))
    }
}
