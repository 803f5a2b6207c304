//! Makes for each chain of its own what chains of different products, or a product and who makes its operands, share and what nothing but indices,
//! scalars, constants and small loads says: masks, positions, factors, numbers of rows. Chains that share no tile can be different agents'.
//!
//! In: a kernel in value form with its loads where they will be. Out: the kernel in which no such tile is read by two components
//! (`storage::components`), where that leaves at least two that compute with products in a loop, or one that makes operands; else it stays as it is.
//!
//! Lost without it: attention with 256 query rows has one agent for both halves' softmax, which on sm_100a holds 415 registers of 255,
//! since both halves are masked by the same positions; and on sm_90a a product of gathered rows that scatters its result by the same numbers
//! of rows has one agent for all of it.
//! Guarantee: values stay what they are. Cost: linear in ops and uses, only where a loop has two products, or one whose operand is computed.

use super::{Draft, copy_before, is_annotated, view_of, written_views};
use crate::ir::opcodes::Traits;
use crate::ir::{Block, Function, Op, Opcode, Value};
use crate::isa::{AccAllocation, TargetIsa};
use crate::storage::classify::{Classes, SmemOperand, ValueClass, classify, is_product, is_register_op};
use crate::storage::components::{Components, product_loops};
use cranelift_entity::{EntitySet, SecondaryMap};
use smallvec::SmallVec;

/// Elements of a load that is worth another one.
const SMALL: u64 = 1024;

/// Copies at most: beyond, chains go on sharing.
const MOST_COPIES: usize = 256;

/// Makes the copies.
pub(super) fn part(draft: &mut Draft<'_>, isa: &dyn TargetIsa) {
    let func = draft.func();
    let in_registers = isa.acc_home().allocation == AccAllocation::Registers;
    let bodies = product_loops(func);
    let products = |body| func.block_ops(body).filter(|&op| is_product(func, op)).count();
    if !bodies.iter().any(|&body| in_registers || products(body) > 1) {
        return;
    }
    let Ok(classes) = classify(func, isa.acc_home()) else { return };
    let computed = |o: &SmemOperand| is_product(func, o.op) && classes.class(o.value) == ValueClass::Reg;
    if in_registers && !classes.operands.iter().any(computed) {
        return;
    }
    let stores = |op: Op| func.opcode(op) == Opcode::AsyncTiledTmaStore;
    let is_simt = |op: &Op| classes.is_register_op(func, *op) || stores(*op);
    let simt: Vec<Op> = classes.ops.iter().copied().filter(is_simt).collect();
    let (free, users) = known_everywhere(func, &classes, &simt, &bodies);
    if free.is_empty() {
        return;
    }
    let components = Components::of(func, &classes, &simt, &free);
    if components.in_loops(func, &classes, isa).0.len() < 2
        && components.feeders(func, &classes, isa).is_empty()
    {
        return;
    }
    let makers: Vec<Op> = simt.into_iter().filter(|&op| makes(func, &free, op)).collect();
    let func = draft.edit();
    copy(func, &free, &makers, users, |op| components.root(op));
}

/// Whether an op makes a tile of that set.
fn makes(func: &Function, free: &EntitySet<Value>, op: Op) -> bool {
    func.result(op).is_some_and(|v| free.contains(v))
}

type Users = SecondaryMap<Value, SmallVec<[Op; 4]>>;

/// Tiles that follow from indices, scalars and constants, and outside of `bodies` from what is read from memory that the kernel does not write, and are
/// read by register ops alone; and the readers of all tiles.
fn known_everywhere(
    func: &Function,
    classes: &Classes,
    simt: &[Op],
    bodies: &[Block],
) -> (EntitySet<Value>, Users) {
    let written = written_views(func);
    let is_read = |op: Op| {
        let Some(written) = &written else { return false };
        let small = |v| func.value_data(v).num_elements().is_some_and(|n| n <= SMALL);
        matches!(func.opcode(op), Opcode::TiledLoad | Opcode::Gather)
            && func.is_weak(op)
            && matches!(func.results(op), &[v] if small(v))
            && view_of(func, op).is_some_and(|view| !written.contains(view))
            && func.op_block(op).is_some_and(|b| !bodies.contains(&b))
    };
    let mut free = EntitySet::new();
    let mut users: Users = SecondaryMap::new();
    for &op in &classes.ops {
        for &v in func.operands(op).iter().filter(|&&v| classes.class(v) == ValueClass::Reg) {
            if users[v].last() != Some(&op) {
                users[v].push(op);
            }
        }
    }
    for &op in simt {
        let opcode = func.opcode(op);
        let known = |v: &Value| {
            !func.value_data(*v).is_tile() || classes.class(*v) == ValueClass::Leaf || free.contains(*v)
        };
        let pure = opcode.has(Traits::PURE) && (opcode.has(Traits::ELEMENTWISE) || opcode.has(Traits::SHAPE));
        let simple = (pure || is_read(op)) && !is_annotated(func, op);
        let Some(v) = func.result(op).filter(|_| simple && func.operands(op).iter().all(known)) else {
            continue;
        };
        if func.value_data(v).is_tile() && users[v].iter().all(|&user| is_register_op(func, user)) {
            free.insert(v);
        }
    }
    (free, users)
}

/// The last ones first: what makes the operands of a copy sees whose it is.
fn copy(
    func: &mut Function,
    free: &EntitySet<Value>,
    makers: &[Op],
    mut users: Users,
    root: impl Fn(Op) -> usize,
) {
    const NOBODY: usize = usize::MAX;
    // Of those that are copied, and of copies.
    let mut owner: SecondaryMap<Op, Option<usize>> = SecondaryMap::new();
    let mut left = MOST_COPIES;
    for &op in makers.iter().rev() {
        let Some(result) = func.result(op) else { continue };
        let mut parties: SmallVec<[(usize, SmallVec<[Op; 4]>); 2]> = SmallVec::new();
        for user in std::mem::take(&mut users[result]) {
            let mine = owner[user].unwrap_or_else(|| root(user));
            match parties.iter_mut().find(|p| p.0 == mine) {
                Some(p) => p.1.push(user),
                None => parties.push((mine, SmallVec::from_slice(&[user]))),
            }
        }
        owner[op] = Some(parties.first().map_or(NOBODY, |p| p.0));
        for (party, readers) in parties.into_iter().skip(1) {
            if left == 0 {
                return;
            }
            left -= 1;
            let copy = copy_before(func, op, op);
            owner[copy] = Some(party);
            for n in 0..func.operands(copy).len() {
                let v = func.operands(copy)[n];
                if free.contains(v) && !users[v].contains(&copy) {
                    users[v].push(copy);
                }
            }
            let made = func.results(copy)[0];
            for user in readers {
                for k in 0..func.operands(user).len() {
                    if func.operands(user)[k] == result {
                        func.set_operand(user, k, made);
                    }
                }
            }
        }
    }
}
