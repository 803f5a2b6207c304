//! Who reads the scalars that come from memory.
//!
//! In: a function in value form and the agent of every op that has one. Out: an agent for each scalar source (see
//! [`is_scalar_source`]). A source that one agent needs belongs to it. One that several need, one whose reading
//! changes memory, and one that other CTAs may write meanwhile (a load that is not weak: two threads may find different
//! values) belongs to an agent of one lane, which reads it once and sends it: the load agent if it needs the scalar (it
//! runs ahead of all others), else another that does, else the load agent, made for the purpose.
//! "Needs" is a backward slice over scalars, bounds and conditions; it is a heuristic here (who really receives what
//! is decided on the placed function). Cost: agents × ops reached.

use super::AgentKind;
use crate::ir::{Function, Op, Opcode, Value, ValueDef};
use crate::storage::classify::is_scalar_source;
use cranelift_entity::EntitySet;

/// An agent before agents have numbers: its kind, and which one of its kind.
pub type Party = (AgentKind, usize);

/// The owner of each scalar source, in program order.
pub fn owners(
    func: &Function,
    ops: &[Op],
    party: &impl Fn(Op) -> Option<Party>,
    simt_count: usize,
) -> Vec<(Op, Party)> {
    // What a tile is left of belongs to the agent that has the tile.
    let sources: Vec<Op> =
        ops.iter().copied().filter(|&op| is_scalar_source(func, op) && party(op).is_none()).collect();
    if sources.is_empty() {
        return Vec::new();
    }
    let mut parties: Vec<Party> = Vec::new();
    for p in ops.iter().filter_map(|&op| party(op)) {
        if !parties.contains(&p) {
            parties.push(p);
        }
    }
    let needs: Vec<(Party, EntitySet<Op>)> =
        parties.iter().map(|&p| (p, slice(func, ops, party, p))).collect();
    let one_lane = |k: AgentKind| k != AgentKind::Simt;
    let choose = |op: Op| -> Party {
        let mut wanted: Vec<Party> = needs.iter().filter(|n| n.1.contains(op)).map(|n| n.0).collect();
        wanted.sort_unstable();
        let weak = func.is_weak(op);
        match wanted.as_slice() {
            [only] if weak => *only,
            [] if weak && simt_count > 0 => (AgentKind::Simt, 0),
            all => all.iter().copied().find(|p| one_lane(p.0)).unwrap_or((AgentKind::Load, 0)),
        }
    };
    sources.iter().map(|&op| (op, choose(op))).collect()
}

/// The scalar sources that what an agent does rests on.
fn slice(func: &Function, ops: &[Op], party: &impl Fn(Op) -> Option<Party>, me: Party) -> EntitySet<Op> {
    let mut walk = Slice { func, work: Vec::new(), seen: EntitySet::new(), kept: EntitySet::new() };
    let mut found: EntitySet<Op> = EntitySet::new();
    for &op in ops.iter().filter(|&&op| party(op) == Some(me)) {
        walk.work.extend_from_slice(func.operands(op));
        walk.around(op);
    }
    while let Some(v) = walk.work.pop() {
        if !walk.seen.insert(v) {
            continue;
        }
        match func.value_def(v) {
            ValueDef::Result(op, n) => {
                walk.around(op);
                if is_scalar_source(func, op) {
                    found.insert(op);
                    walk.work.extend_from_slice(func.operands(op));
                } else if matches!(func.opcode(op), Opcode::For | Opcode::If) {
                    walk.keep(op);
                    if !func.value_data(v).is_tile() {
                        walk.carried(op, n as usize);
                    }
                } else if party(op).is_none() {
                    walk.work.extend_from_slice(func.operands(op));
                }
            }
            ValueDef::Param(b, n) => {
                let Some(op) = func.block_parent(b) else { continue };
                walk.keep(op);
                if let Some(n) = (n as usize).checked_sub(1).filter(|_| !func.value_data(v).is_tile()) {
                    walk.carried(op, n);
                }
            }
        }
    }
    found
}

struct Slice<'a> {
    func: &'a Function,
    work: Vec<Value>,
    seen: EntitySet<Value>,
    kept: EntitySet<Op>,
}

impl Slice<'_> {
    /// Bounds and conditions of the regions around an op.
    fn around(&mut self, op: Op) {
        let mut at = self.func.op_parent(op);
        while let Some(p) = at.filter(|&p| !self.kept.contains(p)) {
            self.keep(p);
            at = self.func.op_parent(p);
        }
    }

    fn keep(&mut self, op: Op) {
        if self.kept.insert(op) {
            let bounds = if self.func.opcode(op) == Opcode::For { 3 } else { usize::MAX };
            self.work.extend(self.func.operands(op).iter().take(bounds));
            self.work.extend(self.func.exit_of(op).into_iter().flat_map(|exit| self.func.operands(exit)));
            self.around(op);
        }
    }

    /// What flows into result or argument `n` of a region op.
    fn carried(&mut self, op: Op, n: usize) {
        if self.func.opcode(op) == Opcode::For {
            self.work.extend(self.func.named_segment(op, "inits").get(n));
        }
        for r in 0..self.func.regions(op).len() {
            let last = self.func.op_block_at(op, r).and_then(|b| self.func.last_op(b));
            self.work.extend(last.and_then(|y| self.func.operands(y).get(n)));
        }
    }
}
