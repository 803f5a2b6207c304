//! Whether what products onto registers compute, and what they read, is left alone until they are complete.
//!
//! Groups of an agent complete in the order of their commits: a wait that leaves N under way completes all with N or more commits behind
//! them. For each name of a sum, a slot or a buffer the least number of commits on any way here is known; a wait forgets those with
//! enough. What is still known must not be read, freed or written; nor must anything be signalled in the kernel body, where buffers that
//! follow one another in the same memory rely on it. Around a loop the numbers are followed until they repeat; they only
//! fall. Sums that a product, an iteration or a region takes over in their registers keep their name there. Error: E0712.
//! Cost: ops × names, a few times per loop.

use super::linear::note;
use super::model::{Found, Model};
use crate::error::Code;
use crate::ir::opcodes::Traits;
use crate::ir::{Block, Function, Op, Opcode, Value, keys};
use crate::storage::access::{is_in_registers, may_take_over};
use cranelift_entity::SecondaryMap;
use smallvec::SmallVec;
use std::collections::BTreeMap;

/// What must be left alone.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Name {
    /// A sum.
    Sum(Value),
    /// A buffer that is read.
    Buffer(Value),
    /// A tile whose registers are read.
    Taken(Value),
    /// A slot that is read: of which pipe, and how many iterations of its home ago.
    Slot(usize, i64),
}

/// The least number of commits behind the one that a name belongs to.
type Open = BTreeMap<Name, i64>;

struct Checker<'a, 'm> {
    m: &'m Model<'a>,
    func: &'a Function,
    uses: SecondaryMap<Value, u32>,
    /// By pipe: bodies of loops in which its iterators advance.
    homes: Vec<SmallVec<[Block; 2]>>,
    found: Found,
    /// Complain: once what is known at the heads of the loops around is final.
    speak: bool,
    /// Loops around.
    depth: u32,
    /// First byte and the one behind the last of each buffer.
    places: BTreeMap<Value, (i64, i64)>,
}

fn multiplies(func: &Function, op: Op) -> bool {
    func.opcode(op) == Opcode::AsyncDot && func.result(op).is_some_and(|v| is_in_registers(func, v))
}

/// Checks all agents.
pub fn check(m: &mut Model<'_>) {
    let func = m.func;
    if !func.ops().any(|op| multiplies(func, op) || func.opcode(op) == Opcode::AsyncDotWait) {
        return;
    }
    let (uses, found) = (SecondaryMap::new(), Found::default());
    let homes = vec![SmallVec::new(); m.pipes.len()];
    let mut c = Checker { m, func, uses, homes, found, speak: true, depth: 0, places: BTreeMap::new() };
    for op in func.ops() {
        if let (Opcode::AllocTensor, Some(v)) = (func.opcode(op), func.result(op))
            && let (Some(at), Some(bytes)) =
                (func.attr_int(op, keys::OFFSET), func.value_data(v).ring_bytes())
        {
            c.places.insert(v, (at, at.saturating_add_unsigned(bytes)));
        }
        for &v in func.operands(op) {
            c.uses[v] += 1;
        }
        if func.opcode(op) == Opcode::AsyncPipelineIncIter
            && let Some((p, _)) = func.operands(op).first().and_then(|&v| m.trace(v, 64))
        {
            c.homes[p].extend(func.op_block(op));
        }
    }
    for op in func.block_ops(func.entry()) {
        if func.opcode(op) != Opcode::AsyncPipelineAgentSwitch {
            continue;
        }
        for n in 0..func.regions(op).len() {
            let Some(block) = func.op_block_at(op, n) else { continue };
            let mut open = Open::new();
            c.block(block, &mut open);
            if let (false, Some(end)) = (open.is_empty(), func.last_op(block)) {
                c.bad(end, "an agent ends with products under way");
            }
        }
    }
    let found = c.found;
    m.report(found);
}

/// Both ways to a point.
fn meet(a: &mut Open, b: &Open) {
    for (&name, &n) in b {
        a.entry(name).and_modify(|m| *m = n.min(*m)).or_insert(n);
    }
}

impl Checker<'_, '_> {
    fn bad(&mut self, op: Op, text: &str) {
        if self.speak {
            self.found.bad(Code::E0712, op, text);
        }
    }

    fn read(&mut self, op: Op, v: Value, open: &Open) {
        if open.contains_key(&Name::Sum(v)) {
            self.bad(op, "a product is read that may be under way");
        }
    }

    fn block(&mut self, block: Block, open: &mut Open) {
        for op in self.func.block_ops(block) {
            self.op(op, open);
        }
    }

    /// Whether another buffer lies where one does.
    fn is_shared(&self, v: Value) -> bool {
        let Some(&(from, to)) = self.places.get(&v) else { return false };
        self.places.iter().any(|(&o, &(a, b))| o != v && a < to && from < b)
    }

    fn op(&mut self, op: Op, open: &mut Open) {
        let func = self.func;
        let code = func.opcode(op);
        if matches!(code, Opcode::AsyncPipelineConsumerRelease | Opcode::AsyncPipelineProducerCommit)
            && self.depth == 0
            && open.keys().any(|n| matches!(*n, Name::Buffer(b) if self.is_shared(b)))
        {
            self.bad(op, "a signal is given while a product reads memory that another buffer takes");
        }
        match func.opcode(op) {
            Opcode::AsyncDotWait => {
                let pending = func.attr_int(op, keys::PENDING).unwrap_or(0);
                open.retain(|_, commits| *commits < pending);
            }
            Opcode::AsyncDot if multiplies(func, op) => {
                for &v in func.operands(op) {
                    let same = func.named_operand(op, "acc") == Some(v) && self.may(v, op);
                    if !same {
                        self.read(op, v, open);
                    }
                }
                open.values_mut().for_each(|n| *n += 1);
                let ago = note(func, op, keys::LOCAL).unwrap_or(0);
                for buffer in ["a", "b"].iter().filter_map(|name| func.named_operand(op, name)) {
                    open.insert(Name::Buffer(buffer), 0);
                    let pipes = self.m.pipes.iter().enumerate();
                    let slots = pipes.filter(|(_, p)| p.buffers.contains(&buffer));
                    open.extend(slots.map(|(p, _)| (Name::Slot(p, ago), 0)));
                }
                let mut taken = func.named_operand(op, "a").filter(|&v| is_in_registers(func, v));
                while let Some(v) = taken {
                    open.insert(Name::Taken(v), 0);
                    let by = func.defining_op(v).filter(|&d| func.opcode(d).has(Traits::SHAPE));
                    taken = by.and_then(|d| func.operands(d).first().copied());
                }
                open.extend(func.result(op).map(|v| (Name::Sum(v), 0)));
            }
            Opcode::AsyncPipelineConsumerRelease => {
                let pipe = func.operands(op).first().and_then(|&v| self.m.trace(v, 64)).map(|t| t.0);
                let local = note(func, op, keys::LOCAL).unwrap_or(0);
                let reads = |n: &Name| matches!(*n, Name::Slot(p, ago) if Some(p) == pipe && ago >= local);
                if open.keys().any(reads) {
                    self.bad(op, "a slot is released that a product under way reads");
                }
            }
            Opcode::AsyncPipelineProducerCommit => {
                let pipe = func.operands(op).first().and_then(|&v| self.m.trace(v, 64)).map(|t| t.0);
                if pipe.is_some_and(|p| self.m.pipes[p].buffers.is_empty()) && !open.is_empty() {
                    self.bad(op, "a token is given while products are under way");
                }
            }
            Opcode::For => self.for_loop(op, open),
            Opcode::If => {
                func.operands(op).iter().for_each(|&v| self.read(op, v, open));
                let before = open.clone();
                open.clear();
                for n in 0..func.regions(op).len() {
                    let Some(block) = func.op_block_at(op, n) else { continue };
                    let mut inner = before.clone();
                    self.block(block, &mut inner);
                    if let Some(end) = func.last_op(block) {
                        func.operands(end).iter().for_each(|&v| self.read(end, v, &inner));
                        self.hand_on(&mut inner, func.operands(end), func.results(op));
                    }
                    inner.retain(|n, _| !self.is_of(n, block));
                    meet(open, &inner);
                }
            }
            Opcode::Yield => {}
            _ => {
                func.operands(op).iter().for_each(|&v| self.read(op, v, open));
                if func.results(op).iter().any(|&v| open.contains_key(&Name::Taken(v))) {
                    self.bad(op, "registers are written that a product under way reads");
                }
                if func.named_operand(op, "dest").is_some_and(|b| open.contains_key(&Name::Buffer(b))) {
                    self.bad(op, "a buffer is written that a product under way reads");
                }
            }
        }
    }

    /// Whether a name means something in a block alone.
    fn is_of(&self, name: &Name, block: Block) -> bool {
        matches!(*name, Name::Sum(v) if self.func.is_inside(v, block))
    }

    fn may(&self, v: Value, user: Op) -> bool {
        may_take_over(self.func, v, user, self.uses[v])
    }

    /// What is known of `from` is known of `to`.
    fn hand_on(&self, open: &mut Open, from: &[Value], to: &[Value]) {
        let known: SmallVec<[(Name, i64); 8]> = from
            .iter()
            .zip(to)
            .filter_map(|(&f, &t)| Some((Name::Sum(t), *open.get(&Name::Sum(f))?)))
            .collect();
        for (name, n) in known {
            open.entry(name).and_modify(|m| *m = n.min(*m)).or_insert(n);
        }
    }

    /// The value whose registers a sum has taken over, if any.
    fn first_of(&self, sum: Value) -> Option<Value> {
        let by = self.func.defining_op(sum).filter(|&d| multiplies(self.func, d))?;
        let acc = self.func.named_operand(by, "acc").filter(|&v| self.may(v, by))?;
        Some(self.first_of(acc).unwrap_or(acc))
    }

    /// Whether a sum is in the registers of that argument when its iteration ends: products alone changed it, each in its place.
    fn is_argument(&self, sum: Value, arg: Value, end: Op) -> bool {
        let Some(by) = self.func.defining_op(sum) else { return sum == arg && self.may(sum, end) };
        let acc = self.func.named_operand(by, "acc").filter(|_| multiplies(self.func, by));
        self.may(sum, end) && acc.is_some_and(|acc| self.is_argument(acc, arg, by))
    }

    fn for_loop(&mut self, op: Op, open: &mut Open) {
        let func = self.func;
        let Some((body, end)) = func.op_block_at(op, 0).and_then(|b| Some((b, func.last_op(b)?))) else {
            return;
        };
        let (inits, args) = (func.named_segment(op, "inits"), func.for_args(op));
        for &v in func.operands(op) {
            if !(inits.contains(&v) && self.may(v, op)) {
                self.read(op, v, open);
            }
        }
        let mut head = open.clone();
        self.hand_on(&mut head, inits, args);
        let speak = std::mem::replace(&mut self.speak, false);
        let mut last;
        self.depth += 1;
        loop {
            last = head.clone();
            self.block(body, &mut last);
            let mut next = Open::new();
            for (&name, &n) in &last {
                match name {
                    Name::Slot(p, ago) => {
                        let later = i64::from(self.homes[p].contains(&body));
                        // What is long ago is as good as what was before it.
                        next.insert(Name::Slot(p, (ago + later).min(16)), n);
                    }
                    name if !self.is_of(&name, body) => drop(next.insert(name, n)),
                    _ => {}
                }
            }
            for (&y, &arg) in func.region_yields(op, 0).iter().zip(args) {
                if let Some(&n) = last.get(&Name::Sum(y)) {
                    next.entry(Name::Sum(arg)).and_modify(|m| *m = n.min(*m)).or_insert(n);
                }
            }
            let mut joined = head.clone();
            meet(&mut joined, &next);
            if joined == head {
                break;
            }
            head = joined;
        }
        self.speak = speak;
        if speak {
            last = head.clone();
            self.block(body, &mut last);
            if args.iter().any(|&v| last.contains_key(&Name::Taken(v))) {
                self.bad(end, "registers are written that a product under way reads");
            }
            for name in last.keys() {
                let Name::Sum(v) = *name else { continue };
                let n = self.first_of(v).and_then(|first| args.iter().position(|&arg| arg == first));
                let yields = func.region_yields(op, 0);
                let stays = |n: usize| yields.get(n).is_some_and(|&y| self.is_argument(y, args[n], end));
                if n.is_some_and(|n| !stays(n)) {
                    self.found.bad(Code::E0712, end, "registers are written that a product under way writes");
                }
            }
            for (n, &y) in func.region_yields(op, 0).iter().enumerate() {
                if !args.get(n).is_some_and(|&arg| self.is_argument(y, arg, end)) {
                    self.read(end, y, &last);
                }
            }
        }
        self.depth -= 1;
        if func.has_attr(op, keys::DOTS_COMPLETE) {
            last.clear();
        }
        self.hand_on(&mut last, func.region_yields(op, 0), func.results(op));
        last.retain(|n, _| !self.is_of(n, body));
        self.hand_on(open, inits, func.results(op));
        meet(&mut last, open);
        *open = last;
    }
}
