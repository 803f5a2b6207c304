//! Components of the ops that compute in registers: those that must be of one agent.
//!
//! In: a function in value form, its classes. Out: [`Components`]. Two ops are of one component if they share a register tile, a tile that
//! was loaded for registers, an accumulator, the versions of a ring that a loop carries (who reads the last one behind the loop has taken
//! all others), a view that one of them writes, or the order of what they print. What a product takes from shared memory it does not share with who
//! computes it; two stores that each run once need not be (where they overlap, a token keeps their order).
//! Cost: linear but for union-find, and for pairs of accesses.

use crate::ir::{Block, Function, Op, Opcode, Value};
use crate::isa::{AccAllocation, TargetIsa};
use crate::storage::classify::{self, Classes, DisjointSets, ValueClass};
use cranelift_entity::{EntityRef, EntitySet};
use smallvec::SmallVec;

/// Which ops must be of one agent.
pub(crate) struct Components {
    sets: DisjointSets,
    /// The number of the first op.
    base: usize,
}

impl Components {
    /// Of these ops; they may share the tiles of `free`.
    pub fn of(func: &Function, classes: &Classes, simt: &[Op], free: &EntitySet<Value>) -> Components {
        let base = func.num_values();
        let mut sets = DisjointSets::new(base + func.num_ops());
        let mut touched: SmallVec<[(Value, Op, bool); 8]> = SmallVec::new();
        classify::join_register_ties(func, classes, &mut sets);
        let mut printed = None;
        for &op in simt {
            let node = base + op.index();
            if func.opcode(op) == Opcode::Print {
                sets.union(node, *printed.get_or_insert(node));
            }
            // What a product takes from shared memory may be somebody else's, unless it takes it from registers as well.
            let is_operand = |v: Value| {
                classify::is_product(func, op)
                    && classes.class(v) == ValueClass::Reg
                    && classes.first_operand(func, op) != Some(v)
                    && classes.operands.iter().any(|o| o.op == op && o.value == v)
            };
            let tiles = func.operands(op).iter().chain(func.results(op));
            for &v in tiles.filter(|&&v| !free.contains(v) && !is_operand(v)) {
                if matches!(classes.class(v), ValueClass::Reg | ValueClass::Acc | ValueClass::Smem) {
                    let ring = classes.rings.iter().copied().find(|&r| classes.same_set(r, v));
                    sets.union(node, ring.unwrap_or(v).index());
                }
            }
            if let Some(touch) = classify::touches(func, op) {
                let once = |op: Op| func.op_block(op) == Some(func.entry());
                for &(view, other, write) in &touched {
                    let stores = write && touch.write && once(other) && once(op);
                    if view == touch.view && (write || touch.write) && !stores {
                        sets.union(node, base + other.index());
                    }
                }
                touched.push((touch.view, op, touch.write));
            }
        }
        Components { sets, base }
    }

    /// What an op and all others of its component have in common.
    pub fn root(&self, op: Op) -> usize {
        self.sets.root(self.base + op.index())
    }

    /// The components that make operands of products, in a loop that multiplies, where products are in the registers of who multiplies: while it
    /// waits for one, others can make the next.
    pub fn feeders(&self, func: &Function, classes: &Classes, isa: &dyn TargetIsa) -> SmallVec<[usize; 4]> {
        let mut roots = SmallVec::new();
        if isa.acc_home().allocation != AccAllocation::Registers {
            return roots;
        }
        let bodies = product_loops(func);
        let multiplies = |root: usize| {
            func.ops().filter(|&op| classify::is_product(func, op)).any(|op| self.root(op) == root)
        };
        for operand in classes.operands.iter().filter(|o| classes.class(o.value) == ValueClass::Reg) {
            let Some(by) = func.defining_op(operand.value) else { continue };
            let inside = func.op_block(by).is_some_and(|b| bodies.contains(&b));
            let root = self.root(by);
            if inside && classify::is_product(func, operand.op) && !roots.contains(&root) && !multiplies(root)
            {
                roots.push(root);
            }
        }
        roots
    }

    /// The components that compute with products in a loop that multiplies, where products are in tensor memory: each could be an agent's,
    /// while the tensor core is busy with the others'. In program order, with the elements of the largest such product.
    pub fn in_loops(
        &self,
        func: &Function,
        classes: &Classes,
        isa: &dyn TargetIsa,
    ) -> (SmallVec<[usize; 8]>, u32) {
        let mut roots = SmallVec::new();
        let mut widest = 0;
        if isa.acc_home().allocation != AccAllocation::Columns {
            return (roots, widest);
        }
        for body in product_loops(func) {
            for op in func.block_ops(body).filter(|&op| classify::is_register_op(func, op)) {
                let products = func.operands(op).iter().filter(|&&v| classes.class(v) == ValueClass::Acc);
                let elements = |&v: &Value| {
                    Some(func.value_data(v).dims()?.iter().fold(1, |n: u32, &d| n.saturating_mul(d)))
                };
                let Some(most) = products.filter_map(elements).max() else { continue };
                widest = widest.max(most);
                let root = self.root(op);
                if !roots.contains(&root) {
                    roots.push(root);
                }
            }
        }
        (roots, widest)
    }
}

/// Bodies of loops that multiply.
pub(crate) fn product_loops(func: &Function) -> SmallVec<[Block; 4]> {
    let mut bodies = SmallVec::new();
    for op in func.ops().filter(|&op| classify::is_product(func, op)) {
        let Some(block) = func.op_block(op) else { continue };
        let is_loop = func.block_parent(block).is_some_and(|l| func.opcode(l) == Opcode::For);
        if is_loop && !bodies.contains(&block) {
            bodies.push(block);
        }
    }
    bodies
}
