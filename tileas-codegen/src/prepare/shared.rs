//! Makes for each chain of its own what chains of different products share and nothing but indices, scalars and constants says: masks,
//! positions, factors. Chains that share no tile can be different agents'.
//!
//! In: a kernel in value form with its loads where they will be. Out: the kernel in which no such tile is read by two components
//! (`storage::components`), where that leaves at least two that compute with products in a loop; else it stays as it is.
//!
//! Lost without it: attention with 256 query rows has one agent for both halves' softmax, which on sm_100a holds 415 registers of 255,
//! since both halves are masked by the same positions.
//! Guarantee: values stay what they are. Cost: linear in ops and uses, only where a loop has two products.

use super::{Draft, copy_before, is_annotated};
use crate::ir::opcodes::Traits;
use crate::ir::{Function, Op, Opcode, Value};
use crate::isa::{AccAllocation, TargetIsa};
use crate::storage::classify::{Classes, ValueClass, classify, is_product, is_register_op};
use crate::storage::components::{Components, product_loops};
use cranelift_entity::{EntitySet, SecondaryMap};
use smallvec::SmallVec;

/// Copies at most: beyond, chains go on sharing.
const MOST_COPIES: usize = 256;

/// Makes the copies.
pub(super) fn part(draft: &mut Draft<'_>, isa: &dyn TargetIsa) {
    let func = draft.func();
    let two = |body| func.block_ops(body).filter(|&op| is_product(func, op)).nth(1).is_some();
    if isa.acc_home().allocation != AccAllocation::Columns || !product_loops(func).into_iter().any(two) {
        return;
    }
    let Ok(classes) = classify(func, isa.acc_home()) else { return };
    let stores = |op: Op| func.opcode(op) == Opcode::AsyncTiledTmaStore;
    let is_simt = |op: &Op| is_register_op(func, *op) || stores(*op);
    let simt: Vec<Op> = classes.ops.iter().copied().filter(is_simt).collect();
    let (free, users) = known_everywhere(func, &classes, &simt);
    if free.is_empty() {
        return;
    }
    let components = Components::of(func, &classes, &simt, &free);
    if components.in_loops(func, &classes, isa).0.len() < 2 {
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

/// Tiles that follow from indices, scalars and constants and are read by register ops alone, and the readers of all tiles.
fn known_everywhere(func: &Function, classes: &Classes, simt: &[Op]) -> (EntitySet<Value>, Users) {
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
        let simple = opcode.has(Traits::PURE)
            && (opcode.has(Traits::ELEMENTWISE) || opcode.has(Traits::SHAPE))
            && !is_annotated(func, op);
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
