//! Which tied accumulators share one place, and where a copy stands between two.
//!
//! In: a function in value form, its accumulators and their ties (a dot with its accumulator, a loop's start and yield
//! with its argument, a branch's yields with its result). Out: [`Coalesced`]: disjoint sets of values, each of which can
//! live in one place, and for each tie whether it stays inside a set (*kept*) or is a copy from one set to another.
//!
//! This is register coalescing: a tie is kept unless a value of one side is alive where a value of the other is made.
//! Deep ties come first, since a copy there costs most. Two rules go beyond that, for what placement does anyway:
//!
//! - What registers read of a tile *after* the op that overwrites it is read before that op (`Placer::read_place`), so
//!   it does not keep the tile alive. Inside the overwriting loop, or around the back edge of a loop, it does.
//! - A fresh product that a loop hands to its next iteration, while registers still read the one before, is a ring of
//!   two slots (`storage::carried`): both versions are alive in one set, but not in one slot.
//!
//! Guarantees: the result depends on the function alone. Cost: ties × pairs of values in the sets they would join; a tie
//! of values that are used once costs two look-ups.

use crate::ir::{Block, Function, Op, Opcode, Value};
use crate::storage::classify::{DisjointSets, Tie, ValueClass};
use cranelift_entity::{EntityRef, SecondaryMap};
use slotmap::{SlotMap, new_key_type};
use smallvec::{SmallVec, smallvec};

new_key_type! {
    /// A set of accumulators that share one place; of two that are joined one dies.
    struct Set;
}

/// What becomes of a tie.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Fate {
    /// What enters is no accumulator: registers or a load write it where it is taken.
    Written,
    /// Not decided yet.
    Open,
    /// Both sides are one place.
    Kept,
    /// The value is copied to the place of the other side.
    Copied,
}

/// One use of an accumulator.
#[derive(Copy, Clone)]
struct AccUse {
    op: Op,
    /// The tie it is, if it takes the value over; all others read it.
    tie: Option<u32>,
}

/// One accumulator.
struct Acc {
    value: Value,
    uses: SmallVec<[AccUse; 2]>,
    /// The moment it is made: odd, between two ops.
    made: u32,
    /// The op that makes it; a loop for its arguments and results.
    maker: Op,
    /// The set it is in.
    set: Set,
}

/// Sets of values that share one place.
pub struct Coalesced {
    /// The sets, by value.
    pub sets: DisjointSets,
    /// Whether a tie is a copy between two places, by its number.
    pub copied: Vec<bool>,
    /// Loop arguments whose next version has a slot of its own.
    pub rings: SmallVec<[Value; 2]>,
}

struct Coalescer<'a> {
    func: &'a Function,
    ops: &'a [Op],
    ties: &'a [Tie],
    class: &'a SecondaryMap<Value, ValueClass>,
    /// Place of an op in program order.
    index: SecondaryMap<Op, u32>,
    /// Place of the last op inside an op: its own if it has no region.
    last: Vec<u32>,
    accs: Vec<Acc>,
    /// Number of an accumulator + 1.
    number: SecondaryMap<Value, u32>,
    fate: Vec<Fate>,
    /// The members of each set.
    sets: SlotMap<Set, SmallVec<[u32; 4]>>,
    /// Arguments whose versions have slots of their own.
    rings: SmallVec<[Value; 2]>,
}

/// Decides for every tie.
pub fn coalesce(
    func: &Function,
    ops: &[Op],
    class: &SecondaryMap<Value, ValueClass>,
    ties: &[Tie],
) -> Coalesced {
    let mut sets = DisjointSets::new(func.num_values());
    let mut copied = vec![false; ties.len()];
    if ties.is_empty() {
        return Coalesced { sets, copied, rings: SmallVec::new() };
    }
    let mut c = Coalescer::new(func, ops, class, ties);
    for n in c.order() {
        c.decide(n);
    }
    for members in c.sets.values() {
        for pair in members.windows(2) {
            let value = |n: usize| c.accs[pair[n] as usize].value.index();
            sets.union(value(0), value(1));
        }
    }
    copied.iter_mut().zip(&c.fate).for_each(|(out, &f)| *out = f == Fate::Copied);
    Coalesced { sets, copied, rings: c.rings }
}

/// The latest accumulator that `fits` made before `at`, in its block or around it; not beyond a loop's arguments.
pub fn latest_before(func: &Function, at: Op, fits: impl Fn(Value) -> bool) -> Option<Value> {
    let mut at = at;
    loop {
        while let Some(prev) = func.prev_op(at) {
            if let Some(&v) = func.results(prev).iter().find(|&&v| fits(v)) {
                return Some(v);
            }
            at = prev;
        }
        let block = func.op_block(at)?;
        let parent = func.block_parent(block)?;
        if func.opcode(parent) == Opcode::For {
            return func.block_params(block).iter().copied().find(|&v| fits(v));
        }
        at = parent;
    }
}

impl<'a> Coalescer<'a> {
    fn new(
        func: &'a Function,
        ops: &'a [Op],
        class: &'a SecondaryMap<Value, ValueClass>,
        ties: &'a [Tie],
    ) -> Coalescer<'a> {
        let mut index: SecondaryMap<Op, u32> = SecondaryMap::new();
        index.resize(func.num_ops());
        let mut last: Vec<u32> = (0..ops.len() as u32).collect();
        for (n, &op) in ops.iter().enumerate() {
            index[op] = n as u32;
        }
        for (n, &op) in ops.iter().enumerate().rev() {
            if let Some(parent) = func.op_parent(op) {
                let p = index[parent] as usize;
                last[p] = last[p].max(last[n]);
            }
        }
        let mut number: SecondaryMap<Value, u32> = SecondaryMap::new();
        number.resize(func.num_values());
        let mut c = Coalescer {
            func,
            ops,
            ties,
            class,
            index,
            last,
            accs: Vec::new(),
            number,
            fate: Vec::new(),
            sets: SlotMap::with_key(),
            rings: SmallVec::new(),
        };
        c.collect();
        c.rings = ties.iter().filter_map(|t| c.ring(t)).collect();
        c
    }

    fn is_acc(&self, v: Value) -> bool {
        self.class[v] == ValueClass::Acc
    }

    /// Numbers the accumulators and finds their uses; an argument of a loop and its result are one place from the start.
    fn collect(&mut self) {
        let func = self.func;
        for (n, &op) in self.ops.iter().enumerate() {
            for r in 0..func.regions(op).len() {
                let params = func.op_block_at(op, r).map_or(&[][..], |b| func.block_params(b));
                params.iter().for_each(|&v| self.add(v, op, 2 * n as u32 + 1));
            }
            func.results(op).iter().for_each(|&v| self.add(v, op, 2 * self.last[n] + 1));
        }
        for &op in self.ops {
            if func.opcode(op) != Opcode::For {
                continue;
            }
            let params = func.op_block_at(op, 0).map_or(&[][..], |b| func.block_params(b));
            for (&arg, &result) in params.iter().skip(1).zip(func.results(op)) {
                if let (Some(a), Some(b)) = (self.acc(arg), self.acc(result)) {
                    self.join(a, b);
                }
            }
        }
        let mut of_operand: SmallVec<[(usize, u32); 4]> = SmallVec::new();
        let mut tie = 0;
        for &op in self.ops {
            // Ties are in the order of their ops.
            of_operand.clear();
            while let Some(t) = self.ties.get(tie).filter(|t| t.op == op) {
                of_operand.push((t.operand, tie as u32));
                tie += 1;
            }
            for (n, &v) in func.operands(op).iter().enumerate() {
                if let Some(a) = self.acc(v) {
                    let tie = of_operand.iter().find(|o| o.0 == n).map(|o| o.1);
                    self.accs[a].uses.push(AccUse { op, tie });
                }
            }
        }
        let ties = self.ties.iter();
        self.fate = ties.map(|t| if self.is_acc(t.value) { Fate::Open } else { Fate::Written }).collect();
    }

    fn add(&mut self, value: Value, maker: Op, made: u32) {
        if self.is_acc(value) {
            let number = self.accs.len() as u32;
            let set = self.sets.insert(smallvec![number]);
            self.accs.push(Acc { value, uses: SmallVec::new(), made, maker, set });
            self.number[value] = number + 1;
        }
    }

    fn acc(&self, v: Value) -> Option<usize> {
        (self.number[v] as usize).checked_sub(1)
    }

    /// Open ties, those in deep loops first, dots before the others.
    fn order(&self) -> Vec<usize> {
        let depth = |op: Op| {
            let outwards = std::iter::successors(self.func.op_parent(op), |&p| self.func.op_parent(p));
            outwards.filter(|&p| self.func.opcode(p) == Opcode::For).count()
        };
        let dot = |op: Op| matches!(self.func.opcode(op), Opcode::Dot | Opcode::AsyncDot);
        let open = (0..self.ties.len()).filter(|&n| self.fate[n] == Fate::Open);
        let mut order: Vec<(usize, bool, usize)> = open
            .map(|n| {
                let op = self.ties[n].op;
                (usize::MAX - depth(op), !dot(op), n)
            })
            .collect();
        order.sort_unstable();
        order.into_iter().map(|o| o.2).collect()
    }

    /// Joins the sets of two accumulators.
    fn join(&mut self, a: usize, b: usize) {
        let (into, from) = (self.accs[a].set, self.accs[b].set);
        if into != from
            && let Some(dying) = self.sets.remove(from)
        {
            dying.iter().for_each(|&n| self.accs[n as usize].set = into);
            self.sets[into].extend(dying);
        }
    }

    fn members(&self, a: usize) -> impl Iterator<Item = usize> + '_ {
        self.sets[self.accs[a].set].iter().map(|&n| n as usize)
    }

    fn decide(&mut self, n: usize) {
        let tie = self.ties[n];
        let (Some(v), Some(m)) = (self.acc(tie.value), self.acc(tie.member)) else { return };
        self.fate[n] = Fate::Kept;
        if self.accs[v].set == self.accs[m].set {
            return;
        }
        let ring = self.ring(&tie).is_some();
        let clash = self.members(v).any(|a| {
            self.members(m).any(|b| {
                let versions = ring && self.accs[a].value == tie.value;
                !versions && self.clash(a, b, (v, m))
            })
        });
        if clash {
            self.fate[n] = Fate::Copied;
        } else {
            self.join(v, m);
        }
    }

    /// Whether one of two values is alive where the other is made, if the sets of `joined` were one.
    fn clash(&self, a: usize, b: usize, joined: (usize, usize)) -> bool {
        let (a, b) = if self.accs[a].made <= self.accs[b].made { (a, b) } else { (b, a) };
        self.alive_at(a, b, joined) || self.accs[a].made == self.accs[b].made && self.alive_at(b, a, joined)
    }

    /// Whether `a` is alive where `b`, which is not made before it, is made.
    fn alive_at(&self, a: usize, b: usize, joined: (usize, usize)) -> bool {
        let (from, to) = (&self.accs[a], &self.accs[b]);
        let alive = |at: Op| {
            if 2 * self.index[at] > to.made && !exclusive(self.func, at, to.maker) {
                return true;
            }
            // Around the back edge of a loop that `a` is made outside of.
            let mut outwards = std::iter::successors(self.func.op_parent(at), |&p| self.func.op_parent(p));
            outwards.any(|l| {
                let first = self.index[l];
                let inside = |p: u32| p > 2 * first && p <= 2 * self.last[first as usize];
                self.func.opcode(l) == Opcode::For && inside(to.made) && !inside(from.made)
            })
        };
        from.uses.iter().any(|u| alive(u.op) && alive(self.needed_at(a, u, joined)))
    }

    /// The op for which a use needs `a` in its place: the user, or for a read behind an op that overwrites `a`, that op.
    fn needed_at(&self, a: usize, u: &AccUse, joined: (usize, usize)) -> Op {
        if u.tie.is_some_and(|t| matches!(self.fate[t as usize], Fate::Open | Fate::Kept)) {
            return u.op;
        }
        let user = self.index[u.op];
        let mut found = u.op;
        for n in 0..self.ties.len() {
            let tie = &self.ties[n];
            let k = self.index[tie.op];
            if k >= user || self.last[k as usize] >= user || !self.overwrites(n, a, joined) {
                continue;
            }
            // Where that is in a region, what is outside of it reads before the region.
            let mut anchor = tie.op;
            while let Some(block) = self.func.op_block(anchor)
                && self.func.ancestor_in(u.op, block).is_none()
                && let Some(parent) = self.func.block_parent(block)
            {
                anchor = parent;
            }
            if exclusive(self.func, tie.op, u.op) || self.index[anchor] >= self.index[found] {
                continue;
            }
            found = anchor;
        }
        found
    }

    /// Whether a tie overwrites the place of `a`, known to placement by that name.
    fn overwrites(&self, n: usize, a: usize, joined: (usize, usize)) -> bool {
        let tie = &self.ties[n];
        let value = self.accs[a].value;
        match self.fate[n] {
            Fate::Open => false,
            Fate::Kept => tie.value == value,
            Fate::Written | Fate::Copied => {
                let set = |v: Value| self.acc(v).map(|v| self.accs[v].set);
                let roots = (self.accs[joined.0].set, self.accs[joined.1].set);
                let own = set(tie.member);
                let with = |r: Option<Set>| r == Some(roots.0) || r == Some(roots.1);
                let fits = |v: Value| {
                    let r = set(v);
                    r.is_some() && (r == own || with(r) && with(own))
                };
                fits(value)
                    && !self.rings.contains(&value)
                    && latest_before(self.func, tie.op, fits) == Some(value)
            }
        }
    }

    /// The argument to which a yield hands a fresh product while registers may still read the product before: the versions
    /// have slots of their own, as `storage::carried` will find.
    fn ring(&self, tie: &Tie) -> Option<Value> {
        let func = self.func;
        if func.opcode(tie.op) != Opcode::Yield {
            return None;
        }
        let l = func.op_parent(tie.op).filter(|&l| func.opcode(l) == Opcode::For)?;
        let (body, parent) = (func.op_block(tie.op), func.op_block(l));
        let arg = *func.block_params(body?).get(tie.operand + 1)?;
        let init = *func.named_segment(l, "inits").get(tie.operand)?;
        let zero = |v: Value| self.class[v] == ValueClass::Leaf && func.constant_value(v) == Some(0.0);
        let uses = |v: Value| self.acc(v).map_or(&[][..], |a| &self.accs[a].uses);
        // A product that starts from zero, made in that block and taken by that op alone.
        let fresh = |v: Value, block: Option<Block>, taker: Op| {
            func.defining_op(v).is_some_and(|op| {
                matches!(func.opcode(op), Opcode::Dot | Opcode::AsyncDot)
                    && func.op_block(op) == block
                    && func.named_operand(op, "acc").is_some_and(zero)
                    && uses(v).len() == 1
                    && uses(v)[0].op == taker
            })
        };
        let reads = |v: Value| uses(v).iter().all(|u| u.tie.is_none());
        let found = fresh(tie.value, body, tie.op)
            && (zero(init) || fresh(init, parent, l))
            && !uses(arg).is_empty()
            && reads(arg)
            && reads(tie.member);
        found.then_some(arg)
    }
}

/// Whether at most one of two ops runs in one execution of what contains both: they are in two arms of an `if`.
pub fn exclusive(func: &Function, a: Op, b: Op) -> bool {
    let outwards = |op: Op| {
        std::iter::successors(func.op_block(op), |&b| func.block_parent(b).and_then(|p| func.op_block(p)))
    };
    let Some(common) = outwards(a).find(|x| outwards(b).any(|y| *x == y)) else { return true };
    match (func.ancestor_in(a, common), func.ancestor_in(b, common)) {
        (Some(x), Some(y)) => x == y && x != a && x != b && func.opcode(x) == Opcode::If,
        _ => false,
    }
}
