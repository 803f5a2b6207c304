//! Storage webs of shared and tensor memory, and who reads and writes them in a loop body.
//!
//! In: placed IR. Out: for each op the [`Event`]s it causes, by web. A web is what shares one storage: a set of the
//! [`Partition`]. Constants occupy nothing.
//!
//! An access names the part of the web it touches where that is known, so that copies of different slices are not
//! ordered. An accumulator that outlives an iteration is one place, updated there. Rings of shared memory have as many
//! slots as `buffers` gives them: freeing a slot is no dependence here.
//! Cost: linear but for union-find and the depth of nesting.

use crate::agents::AgentPlan;
use crate::ir::{Block, Function, Op, Opcode, Space, Value, ValueDef, keys};
use crate::schedule::Node;
use crate::storage::access::is_accumulator;
use crate::storage::carried;
use crate::storage::classify::is_leaf;
use crate::storage::partition::Partition;
use cranelift_entity::EntitySet;
use smallvec::SmallVec;

/// Half-open ranges per dimension; `None` is the whole.
type Part = Option<SmallVec<[(i64, i64); 2]>>;

/// One access to a web or a view.
#[derive(Clone, Debug)]
pub struct Event {
    /// What is accessed: the first member of the web, or the view.
    pub place: Value,
    /// Who.
    pub node: Node,
    /// Reads it.
    pub reads: bool,
    /// Writes it.
    pub writes: bool,
    /// Reads it as the accumulator of a dot.
    pub accumulates: bool,
    /// Is a dot.
    pub is_dot: bool,
    /// A copy in destination form wrote it.
    destination: bool,
    part: Part,
}

impl Event {
    /// An access to all of a place.
    pub fn whole(place: Value, node: Node, reads: bool, writes: bool) -> Event {
        Event {
            place,
            node,
            reads,
            writes,
            accumulates: false,
            is_dot: false,
            destination: false,
            part: None,
        }
    }

    /// Whether the two touch something in common.
    pub fn meets(&self, other: &Event) -> bool {
        match (&self.part, &other.part) {
            (Some(a), Some(b)) if a.len() == b.len() => a.iter().zip(b).all(|(x, y)| x.0 < y.1 && y.0 < x.1),
            _ => true,
        }
    }

    /// Whether this touches all that `other` does.
    pub fn covers(&self, other: &Event) -> bool {
        match (&self.part, &other.part) {
            (None, _) => true,
            (Some(a), Some(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|(x, y)| x.0 <= y.0 && y.1 <= x.1)
            }
            _ => false,
        }
    }
}

/// Which accesses of a place order each other.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Order {
    /// One storage for all iterations.
    InPlace,
    /// A storage of its own for each iteration.
    OneIteration,
    /// A ring: what is read is written before; slots are freed by the channel.
    Ring,
}

impl Order {
    /// Whether an access of `distance` iterations ago must be over before the storage is written again.
    pub fn frees(self, distance: u32) -> bool {
        match self {
            Order::InPlace => true,
            Order::OneIteration => distance == 0,
            Order::Ring => false,
        }
    }
}

/// The webs of a function.
pub struct Webs {
    sets: Partition,
    /// Webs whose every version has a slot of its own.
    rings: EntitySet<Value>,
    /// Webs that outlive an iteration of the current loop.
    kept: EntitySet<Value>,
    /// Webs that the current loop carries.
    carried: EntitySet<Value>,
}

impl Webs {
    /// Finds the webs.
    pub fn find(func: &Function, plan: &AgentPlan) -> Webs {
        let mut sets = Partition::find(func);
        let mut rings = EntitySet::new();
        for ring in carried::find(func, plan) {
            rings.insert(sets.root(ring.arg));
        }
        Webs { sets, rings, kept: EntitySet::new(), carried: EntitySet::new() }
    }

    fn root(&mut self, v: Value) -> Value {
        self.sets.root(v)
    }

    /// Notes which webs outlive an iteration because the loop carries them.
    pub fn enter_loop(&mut self, func: &Function, body: Block) {
        self.kept.clear();
        self.carried.clear();
        for &param in func.block_params(body) {
            let root = self.root(param);
            self.kept.insert(root);
            self.carried.insert(root);
        }
        func.walk(body, &mut |op| {
            for &v in func.operands(op) {
                if stored(func, v).is_some() && !inside(func, body, v) {
                    let root = self.root(v);
                    self.kept.insert(root);
                }
            }
        });
    }

    /// Bytes of a value that has a slot of its own in every iteration of the current loop; 0 for others.
    pub fn ring_bytes(&self, func: &Function, v: Value) -> u32 {
        if stored(func, v).is_none() {
            return 0;
        }
        let root = self.sets.root_of(v);
        if self.kept.contains(root) && !self.rings.contains(root) {
            return 0;
        }
        func.value_data(v).num_bytes().map_or(0, |n| u32::try_from(n).unwrap_or(u32::MAX))
    }

    /// How the accesses of one web order each other; `None` if SSA says all there is to say.
    pub fn order_of(&self, func: &Function, events: &[Event]) -> Option<Order> {
        let web = events.first()?.place;
        if self.rings.contains(web) {
            return None;
        }
        match func.value_data(web).layout()? {
            l if is_accumulator(l) && self.kept.contains(web) => Some(Order::InPlace),
            l if is_accumulator(l) => Some(Order::OneIteration),
            _ if !events.iter().any(|e| e.destination) => None,
            _ if self.carried.contains(web) => Some(Order::Ring),
            _ if self.kept.contains(web) => Some(Order::InPlace),
            _ => Some(Order::OneIteration),
        }
    }

    /// Appends an access to a value that is in a web; to read it, else to write it.
    fn access<'e>(
        &mut self,
        func: &Function,
        node: Node,
        v: Option<Value>,
        reads: bool,
        out: &'e mut Vec<Event>,
    ) -> Option<&'e mut Event> {
        let v = v.filter(|&v| stored(func, v).is_some())?;
        let (source, part) = slice_of(func, v);
        let place = self.root(source);
        out.push(Event { part, ..Event::whole(place, node, reads, !reads) });
        out.last_mut()
    }

    /// Appends what one op (nested ops not included) does to webs.
    pub fn events(&mut self, func: &Function, op: Op, node: Node, out: &mut Vec<Event>) {
        let result = func.result(op);
        match func.opcode(op) {
            Opcode::Dot | Opcode::AsyncDot => {
                for name in ["a", "b"] {
                    self.access(func, node, func.named_operand(op, name), true, out);
                }
                let acc = func.named_operand(op, "acc").filter(|&v| stored(func, v).is_some());
                if let Some(e) = self.access(func, node, acc.or(result), acc.is_some(), out) {
                    (e.accumulates, e.writes, e.is_dot) = (acc.is_some(), true, true);
                }
            }
            Opcode::Copy => {
                let dest = func.named_operand(op, "dest");
                let source = func.named_operand(op, "source");
                let offsets = func.attr_ints(op, keys::OFFSETS);
                let extents = |v: Option<Value>| v.and_then(|v| func.value_data(v).dims());
                let into_place = dest.is_some_and(|v| stored(func, v).is_some());
                if let Some(e) = self.access(func, node, source, true, out)
                    && !into_place
                    && let (Some(at), Some(dims)) = (&offsets, extents(dest.or(result)))
                {
                    e.part = slice(e.part.take(), at, dims);
                }
                if let Some(e) = self.access(func, node, dest, false, out) {
                    e.destination = true;
                    if let (Some(at), Some(dims)) = (&offsets, extents(source)) {
                        e.part = slice(e.part.take(), at, dims);
                    }
                }
                self.access(func, node, result, false, out);
            }
            Opcode::AsyncTiledTmaLoad => {
                self.access(func, node, result, false, out);
            }
            Opcode::AsyncTiledTmaStore => {
                self.access(func, node, func.named_operand(op, "source"), true, out);
            }
            _ => {}
        }
    }
}

/// The space of a value that occupies shared or tensor memory.
fn stored(func: &Function, v: Value) -> Option<Space> {
    let space = func.value_data(v).space().filter(|s| matches!(s, Space::Smem | Space::Tmem))?;
    let made =
        func.value_data(v).is_tile() && !func.defining_op(v).is_some_and(|op| is_leaf(func.opcode(op)));
    made.then_some(space)
}

/// Whether a value is defined in a body or in something inside it.
fn inside(func: &Function, body: Block, v: Value) -> bool {
    let mut at = match func.value_def(v) {
        ValueDef::Result(op, _) => func.op_block(op),
        ValueDef::Param(b, _) => Some(b),
    };
    while let Some(b) = at {
        if b == body {
            return true;
        }
        at = func.block_parent(b).and_then(|op| func.op_block(op));
    }
    false
}

/// A part of a part.
fn slice(outer: Part, offsets: &[i64], dims: &[u32]) -> Part {
    let base = |n: usize| match &outer {
        Some(o) if o.len() == offsets.len() => o[n].0,
        _ => 0,
    };
    (offsets.len() == dims.len()).then(|| {
        let ranges = offsets.iter().zip(dims).enumerate();
        ranges.map(|(n, (&o, &d))| (base(n) + o, base(n) + o + i64::from(d))).collect()
    })
}

/// What a value is a slice of, and which part.
fn slice_of(func: &Function, v: Value) -> (Value, Part) {
    let (mut at, mut part) = (v, None::<SmallVec<[(i64, i64); 2]>>);
    let mut numbered = false;
    while let Some(op) = func.defining_op(at).filter(|&op| func.opcode(op) == Opcode::ExtractSlice) {
        let Some(&source) = func.operands(op).first() else { break };
        numbered |= func.named_operand(op, "number").is_some();
        let offsets = func.attr_ints(op, keys::OFFSETS).unwrap_or_default();
        part = match part {
            None => func.value_data(at).dims().and_then(|dims| slice(None, &offsets, dims)),
            Some(p) if p.len() == offsets.len() => {
                Some(p.iter().zip(&offsets).map(|(r, &o)| (r.0 + o, r.1 + o)).collect())
            }
            other => other,
        };
        at = source;
    }
    // Which part a number stands for shows when the program runs.
    (at, part.filter(|_| !numbered))
}
