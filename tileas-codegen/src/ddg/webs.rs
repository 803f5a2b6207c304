//! What the ops of a loop body do to storage webs, and how accesses to one web order each other.
//!
//! In: the [`Storage`] of the placed function, a loop body. Out: for each op the [`Event`]s it causes, by web.
//!
//! An access names the part of the web it touches where that is known, so that copies of different slices are not
//! ordered. An accumulator that outlives an iteration is one place, updated there. Rings of shared memory have as many
//! slots as `buffers` gives them: freeing a slot is no dependence here.
//! Cost: linear but for the depth of nesting.

use crate::ir::{Block, Function, Op, Opcode, Value};
use crate::schedule::Node;
use crate::storage::Storage;
use crate::storage::access::accesses;
use crate::storage::slice::{self, Ranges, base_of, part_of};
use crate::storage::webs::Web;
use cranelift_entity::EntitySet;

/// What is accessed.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Object {
    /// A storage web.
    Web(Web),
    /// A view of global memory.
    View(Value),
    /// What the kernel prints.
    Output,
}

/// One access to a web or a view.
#[derive(Clone, Debug)]
pub struct Event {
    /// What is accessed.
    pub object: Object,
    /// Who.
    pub node: Node,
    /// Reads it.
    pub reads: bool,
    /// Writes it.
    pub writes: bool,
    /// Is a dot that writes its accumulator.
    pub is_dot: bool,
    /// A copy in destination form wrote it.
    destination: bool,
    /// `None` is the whole.
    part: Option<Ranges>,
}

impl Event {
    /// An access to all of a place.
    pub fn whole(object: Object, node: Node, reads: bool, writes: bool) -> Event {
        Event { object, node, reads, writes, is_dot: false, destination: false, part: None }
    }

    /// Whether it reads its place as the accumulator of a dot.
    pub fn accumulates(&self) -> bool {
        self.is_dot && self.reads
    }

    /// Whether the two touch something in common.
    pub fn meets(&self, other: &Event) -> bool {
        self.part.as_ref().zip(other.part.as_ref()).is_none_or(|(a, b)| slice::meets(a, b))
    }

    /// Whether this touches all that `other` does.
    pub fn covers(&self, other: &Event) -> bool {
        match (&self.part, &other.part) {
            (None, _) => true,
            (Some(a), Some(b)) => slice::covers(a, b),
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

/// The webs of a function, as one loop sees them.
pub struct LoopWebs<'a> {
    storage: &'a Storage,
    /// Webs whose every version has a slot of its own.
    rings: EntitySet<Web>,
    /// Webs that outlive an iteration of the current loop.
    kept: EntitySet<Web>,
    /// Webs that the current loop carries.
    carried: EntitySet<Web>,
}

impl<'a> LoopWebs<'a> {
    /// The webs of a function, in no loop yet.
    pub fn new(storage: &'a Storage) -> LoopWebs<'a> {
        let mut rings = EntitySet::new();
        rings.extend(storage.carried.iter().filter_map(|r| storage.web_of(r.arg)));
        LoopWebs { storage, rings, kept: EntitySet::new(), carried: EntitySet::new() }
    }

    fn web_of(&self, func: &Function, v: Value) -> Option<Web> {
        self.storage.web_of(base_of(func, v))
    }

    /// Notes which webs outlive an iteration because the loop carries them.
    pub fn enter_loop(&mut self, func: &Function, body: Block) {
        self.kept.clear();
        self.carried.clear();
        for web in func.block_params(body).iter().filter_map(|&v| self.storage.web_of(v)) {
            self.kept.insert(web);
            self.carried.insert(web);
        }
        func.walk(body, &mut |op| {
            for &v in func.operands(op) {
                if let Some(web) = self.web_of(func, v).filter(|_| !func.is_inside(v, body)) {
                    self.kept.insert(web);
                }
            }
        });
    }

    /// Bytes of a value that has a slot of its own in every iteration of the current loop; 0 for others.
    pub fn ring_bytes(&self, func: &Function, v: Value) -> u32 {
        let Some(web) = self.web_of(func, v) else { return 0 };
        if self.kept.contains(web) && !self.rings.contains(web) {
            return 0;
        }
        func.value_data(v).num_bytes().map_or(0, |n| u32::try_from(n).unwrap_or(u32::MAX))
    }

    /// How the accesses of one web order each other; `None` if SSA says all there is to say.
    pub fn order_of(&self, events: &[Event]) -> Option<Order> {
        let Object::Web(web) = events.first()?.object else { return Some(Order::InPlace) };
        if self.rings.contains(web) {
            return None;
        }
        let updated = self.storage.webs.webs[web].is_accumulator();
        if !updated && !events.iter().any(|e| e.destination) {
            return None;
        }
        Some(match self.kept.contains(web) {
            _ if !updated && self.carried.contains(web) => Order::Ring,
            true => Order::InPlace,
            false => Order::OneIteration,
        })
    }

    /// Appends what one op (nested ops not included) does to webs.
    pub fn events(&self, func: &Function, op: Op, node: Node, out: &mut Vec<Event>) {
        for a in accesses(func, op) {
            let (base, part) = part_of(func, op, &a);
            let Some(web) = self.storage.web_of(base) else { continue };
            out.push(Event {
                object: Object::Web(web),
                node,
                reads: a.reads,
                writes: a.writes,
                is_dot: a.writes && func.opcode(op) == Opcode::AsyncDot,
                destination: a.writes
                    && func.opcode(op) == Opcode::Copy
                    && func.named_operand(op, "dest").is_some(),
                part,
            });
        }
    }
}
