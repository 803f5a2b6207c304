//! Loops whose sums do not fit the registers of a CTA, or its tensor memory, are run once for each part of them.
//!
//! In: a kernel in value form whose large products are halved. Out: where a loop carries more sums than there is room
//! for, a loop for each set of sums that share nothing but what follows from loads, the later ones as late as can be. A product of
//! 256 x 256 onto f32, which alone takes the whole register file, becomes two K loops of 128 x 256, one of 512 x 256, for which tensor memory does
//! not suffice, two of 256 x 256: one operand is loaded twice. In registers products that are no sums count with those they are for: attention
//! of 256 rows is two loops of 128.
//! Lost without it: such tiles are refused (`E0507`, `E0603`), the first choice of many kernels written for tensor memory, or for clusters.
//! Guarantee: each sum is computed as before. Loops with stores, atomic updates, ordered loads or loads of what the kernel writes stay. Cost: linear in the ops of such loops.

use super::dead::{Live, is_removable, remove_dead};
use super::{Draft, copied, copy_before, view_of, written_views};
use crate::ir::opcodes::Traits;
use crate::ir::{Block, Function, Op, Opcode, Value};
use crate::isa::{AccAllocation, TargetIsa};
use crate::storage::classify::{DisjointSets, is_product};
use cranelift_entity::packed_option::PackedOption;
use cranelift_entity::{EntityRef, EntitySet, SecondaryMap};
use smallvec::SmallVec;

/// Words of sums that fit: all of tensor memory, or, beside what else a loop needs, three quarters of the registers.
pub(super) fn most_words(isa: &dyn TargetIsa) -> u64 {
    let limits = &isa.machine().limits;
    match isa.acc_home().allocation {
        AccAllocation::Registers => u64::from(limits.regs_per_sm) / 4 * 3,
        _ => u64::from(limits.tmem_columns) * u64::from(limits.tmem_lanes),
    }
}

/// Runs loops in parts.
pub(super) fn part(draft: &mut Draft<'_>, isa: &dyn TargetIsa, live: &mut Live) {
    let home = isa.acc_home().allocation;
    if !matches!(home, AccAllocation::Registers | AccAllocation::Columns) || !draft.has(Opcode::For) {
        return;
    }
    // What is written is not loaded again behind that.
    let Some(written) = written_views(draft.func()) else { return };
    // The last loop first: then the others' later parts can stand behind its first one.
    let mut done: EntitySet<Op> = EntitySet::new();
    loop {
        let func = draft.func();
        let loops = func.ops().filter(|&op| func.opcode(op) == Opcode::For && !done.contains(op));
        let found = loops.filter_map(|op| Some((op, parts(func, op, &written, isa)?)));
        let Some((op, parts)) = found.last() else { return };
        let func = draft.edit();
        done.insert(op);
        for made in (1..parts.count).filter_map(|n| again(func, op, &parts, n)) {
            done.insert(made);
        }
        remove_dead(draft, live);
    }
}

/// What products in a block keep in registers: words of the sums that its loop carries, and of all other products.
pub(super) fn kept_words(func: &Function, block: Block) -> (u64, u64) {
    let Some(l) = func.block_parent(block).filter(|&l| func.opcode(l) == Opcode::For) else { return (0, 0) };
    let (mut carried, mut fresh) = (0, 0);
    let continued = continued(func, block);
    for v in func.block_ops(block).filter(|&op| is_product(func, op)).filter_map(|op| func.result(op)) {
        if continued.contains(v) {
            continue;
        }
        let sum = if func.region_yields(l, 0).contains(&v) { &mut carried } else { &mut fresh };
        *sum += words(func, v);
    }
    (carried, fresh)
}

/// Products that other products go on with.
fn continued(func: &Function, block: Block) -> EntitySet<Value> {
    let products = func.block_ops(block).filter(|&op| is_product(func, op));
    let mut set = EntitySet::new();
    products.filter_map(|op| func.named_operand(op, "acc")).for_each(|v| _ = set.insert(v));
    set
}

fn words(func: &Function, v: Value) -> u64 {
    let data = func.value_data(v);
    data.num_elements().unwrap_or(0).saturating_mul(data.elem().map_or(0, |e| u64::from(e.bits()))) / 32
}

/// Which part each result of a loop belongs to.
struct Parts {
    of: SmallVec<[usize; 4]>,
    count: usize,
}

/// The parts of a loop that carries too much.
fn parts(func: &Function, l: Op, written: &EntitySet<Value>, isa: &dyn TargetIsa) -> Option<Parts> {
    let body = func.op_block_at(l, 0)?;
    let yields = func.region_yields(l, 0);
    let summed = |v: Value| func.defining_op(v).is_some_and(|op| is_product(func, op));
    let steady = |op: Op| view_of(func, op).is_some_and(|view| !written.contains(view));
    let simple = |op: Op| {
        func.opcode(op) == Opcode::Yield
            || func.regions(op).is_empty() && is_removable(func, op) && (!is_load(func, op) || steady(op))
    };
    let (mut most, in_registers) = (most_words(isa), isa.acc_home().allocation == AccAllocation::Registers);
    let all: u64 = yields.iter().filter(|&&y| summed(y)).map(|&y| words(func, y)).sum();
    let fresh = if in_registers { kept_words(func, body).1 } else { 0 };
    let fits = all <= most && (fresh == 0 || all + fresh < most);
    if fits || func.exit_of(l).is_some() || !func.block_ops(body).all(simple) {
        return None;
    }
    // What is loaded, and what follows from that alone, may be had twice.
    let args = func.for_args(l);
    let mut sets = DisjointSets::new(func.num_values());
    let mut own: EntitySet<Value> = EntitySet::new();
    args.iter().for_each(|&arg| {
        own.insert(arg);
    });
    for op in func.block_ops(body).filter(|&op| !is_load(func, op)) {
        let Some(result) = func.result(op) else { continue };
        for &v in func.operands(op).iter().filter(|&&v| own.contains(v)) {
            sets.union(v.index(), result.index());
        }
        if func.value_data(result).is_tile() && func.operands(op).iter().any(|&v| own.contains(v)) {
            own.insert(result);
        }
    }
    for (&arg, &y) in args.iter().zip(yields) {
        sets.union(arg.index(), y.index());
    }
    // Products that are no sums are in registers beside those that need them, if no others do.
    let mut beside: SmallVec<[(usize, u64); 4]> = SmallVec::new();
    if fresh > 0 {
        let continued = continued(func, body);
        let (mut seen, mut shared) = (EntitySet::<Value>::new(), false);
        for &y in yields.iter().filter(|&&y| summed(y)) {
            let root = sets.find(y.index());
            if beside.iter().any(|b| b.0 == root) {
                continue;
            }
            let mut needed: EntitySet<Value> = EntitySet::new();
            let own = yields.iter().copied().filter(|y| sets.find(y.index()) == root);
            own.for_each(|y| _ = needed.insert(y));
            let mut sum = 0;
            for op in func.block_ops(body).collect::<SmallVec<[Op; 32]>>().into_iter().rev() {
                let Some(v) = func.result(op).filter(|&v| needed.contains(v)) else { continue };
                func.operands(op).iter().for_each(|&v| _ = needed.insert(v));
                if is_product(func, op) && !yields.contains(&v) && !continued.contains(v) {
                    shared |= !seen.insert(v);
                    sum += words(func, v);
                }
            }
            beside.push((root, sum));
        }
        if !shared {
            most -= 1;
        } else if all > most {
            beside.clear();
        } else {
            return None;
        }
    }
    // As many sums together as fit.
    let mut roots: SmallVec<[(usize, usize); 4]> = SmallVec::new();
    let (mut part, mut taken) = (0, 0);
    for &y in yields.iter().filter(|&&y| summed(y)) {
        let root = sets.find(y.index());
        let mut more = words(func, y);
        if roots.iter().all(|r| r.0 != root) {
            more += beside.iter().find(|b| b.0 == root).map_or(0, |b| b.1);
            if taken > 0 && taken + more > most {
                (part, taken) = (part + 1, 0);
            }
            roots.push((root, part));
        }
        taken += more;
    }
    // What belongs to none stays with the first.
    let of = |a: &Value| roots.iter().find(|r| r.0 == sets.root(a.index())).map_or(0, |r| r.1);
    let of = args.iter().map(of).collect();
    (part > 0).then_some(Parts { of, count: part + 1 })
}

fn is_load(func: &Function, op: Op) -> bool {
    matches!(func.opcode(op), Opcode::TiledLoad | Opcode::AsyncTiledTmaLoad | Opcode::Gather)
        && func.is_weak(op)
}

/// The loop once more, for one of its parts, as late as can be: what is computed of that part alone moves behind it, up to the first op with an effect
/// that needs it. By then what another part was for is done, and its registers are free.
fn again(func: &mut Function, l: Op, parts: &Parts, part: usize) -> Option<Op> {
    let results: SmallVec<[Value; 4]> = func.results(l).into();
    let mine: SmallVec<[usize; 4]> = (0..results.len()).filter(|&n| parts.of[n] == part).collect();
    let home = func.op_block(l)?;
    let mut needs: EntitySet<Value> = EntitySet::new();
    mine.iter().for_each(|&n| {
        needs.insert(results[n]);
    });
    let mut moved: SmallVec<[Op; 16]> = SmallVec::new();
    let mut before = None;
    let mut next = func.next_op(l);
    while let Some(op) = next {
        next = func.next_op(op);
        let reads = |o: Op| func.operands(o).iter().any(|&v| needs.contains(v));
        // Nothing moves past an access that orders others.
        let mut uses = reads(op) || !func.is_weak(op);
        let mut look = |o: Op| uses |= reads(o) || !func.is_weak(o);
        func.regions(op).iter().for_each(|&r| func.walk(func.region_block(r), &mut look));
        if !uses {
            continue;
        }
        if !func.opcode(op).has(Traits::PURE) || !func.regions(op).is_empty() {
            before = Some(op);
            break;
        }
        func.results(op).iter().for_each(|&v| {
            needs.insert(v);
        });
        moved.push(op);
    }
    let before = before.or_else(|| func.last_op(home))?;
    let new = copy_loop(func, l, before)?;
    for op in moved {
        func.remove_op(op);
        func.insert_before(before, op);
    }
    let made: SmallVec<[Value; 4]> = func.results(new).into();
    for user in func.all_ops() {
        for k in 0..func.operands(user).len() {
            if let Some(&n) = mine.iter().find(|&&n| func.operands(user)[k] == results[n]) {
                func.set_operand(user, k, made[n]);
            }
        }
    }
    Some(new)
}

/// A loop without regions in its body once more, in front of an op of its block.
fn copy_loop(func: &mut Function, l: Op, before: Op) -> Option<Op> {
    let body = func.op_block_at(l, 0)?;
    let new = copy_before(func, l, before);
    let region = func.add_region(new);
    let mut copies: SecondaryMap<Value, PackedOption<Value>> = SecondaryMap::new();
    for p in SmallVec::<[Value; 8]>::from_slice(func.block_params(body)) {
        let ty = func.value_type(p);
        copies[p] = func.add_block_param(region, ty).into();
    }
    for op in func.block_ops(body).collect::<SmallVec<[Op; 16]>>() {
        let copy = copied(func, op, |v| copies[v].expand().unwrap_or(v));
        func.append_op(region, copy);
        for n in 0..func.results(op).len() {
            copies[func.results(op)[n]] = func.results(copy)[n].into();
        }
    }
    Some(new)
}
