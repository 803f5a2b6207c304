//! Puts ops in an order in which fewer tiles are in registers at a time.
//!
//! In: a kernel in value form of which tiles were cut in pieces because words asked for it or registers do not suffice, or which reduces large tiles; the pieces of one op stand side by side. Out: the
//! same ops, block by block, each piece followed by what is made of it as far as that goes. Innermost loops that are overlapped get an
//! order of their own from the scheduler; this one is for everything else, and where that begins.
//!
//! Greedy: of the ops that may come next the one that adds fewest registers, and the first of equals in program order. Products, and
//! what touches memory, keep their order among themselves, but for loads of what the kernel does not write, if it has only weak accesses; what reads an accumulator stays on its side of the product that overwrites it.
//! Guarantee: values stay what they are. Cost: ops of a block squared.

use super::{view_of, written_views};
use crate::constraints::RematWords;
use crate::ir::opcodes::Traits;
use crate::ir::{Block, Function, Op, Opcode, Value};
use crate::storage::classify::is_leaf;
use cranelift_entity::{EntitySet, SecondaryMap};
use smallvec::SmallVec;

/// Ops that are ordered together at most; longer runs stay as they are.
const MOST_OPS: usize = 1024;

/// Reorders all blocks.
pub(super) fn order(func: &mut Function) {
    let mut blocks = vec![func.entry()];
    for op in func.all_ops() {
        blocks.extend((0..func.regions(op).len()).filter_map(|r| func.op_block_at(op, r)));
    }
    // Where accesses are ordered, no load moves past one.
    let weak = func.ops().all(|op| func.is_weak(op));
    let written = written_views(func).filter(|_| weak);
    for block in blocks {
        reorder(func, block, written.as_ref());
    }
}

/// What of a value has to be in registers while ops read it.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Home {
    /// Nothing: a scalar, or made anew wherever it is read.
    None,
    /// Its bits, from its definition on.
    Registers(u64),
    /// It lies in memory; its bits from the first op on that reads it.
    Memory(u64),
}

fn home(func: &Function, v: Value) -> Home {
    let data = func.value_data(v);
    let bits = data.elem().map_or(0, |e| u64::from(e.bits()));
    let Some(def) = func.defining_op(v).filter(|_| data.is_tile()) else { return Home::None };
    let bits = data.num_elements().unwrap_or(0).saturating_mul(bits);
    match func.opcode(def) {
        o if is_leaf(o) => Home::None,
        Opcode::AsyncDot | Opcode::Dot | Opcode::AsyncTiledTmaLoad => {
            match RematWords::of(func, def).recomputable {
                // Read for each use alone.
                true => Home::None,
                false => Home::Memory(bits),
            }
        }
        _ => Home::Registers(bits),
    }
}

/// The runs of ops between those with regions, each with the op behind it.
fn runs(func: &Function, block: Block) -> Vec<(Vec<Op>, Op)> {
    let (mut all, mut run) = (Vec::new(), Vec::new());
    for op in func.block_ops(block) {
        // An exit stands right before the end of its loop.
        let ends = func.opcode(op).is_terminator() || func.opcode(op) == Opcode::ExitIf;
        if !func.regions(op).is_empty() || ends {
            all.push((std::mem::take(&mut run), op));
        } else {
            run.push(op);
        }
    }
    all
}

fn reorder(func: &mut Function, block: Block, written: Option<&EntitySet<Value>>) {
    for (ops, end) in runs(func, block) {
        if !(3..=MOST_OPS).contains(&ops.len()) {
            continue;
        }
        let found = Run::of(func, &ops, written).order();
        for op in found.into_iter().map(|n| ops[n]) {
            func.remove_op(op);
            func.insert_before(end, op);
        }
    }
}

struct Run {
    /// By op: how many ops have to come before it, and which wait for it.
    before: Vec<u32>,
    behind: Vec<SmallVec<[u32; 4]>>,
    /// By op: numbers of the values that it reads and makes.
    reads: Vec<SmallVec<[u32; 4]>>,
    makes: Vec<SmallVec<[u32; 1]>>,
    /// By value: where it is, and ops of the run that have still to read it; one more if others do.
    homes: Vec<(Home, u32)>,
}

impl Run {
    fn of(func: &Function, ops: &[Op], written: Option<&EntitySet<Value>>) -> Run {
        let n = ops.len();
        let mut at: SecondaryMap<Op, u32> = SecondaryMap::with_default(u32::MAX);
        ops.iter().zip(0..).for_each(|(&op, k)| at[op] = k);
        let mut run = Run {
            before: vec![0; n],
            behind: vec![SmallVec::new(); n],
            reads: vec![SmallVec::new(); n],
            makes: vec![SmallVec::new(); n],
            homes: Vec::new(),
        };
        let mut number: SecondaryMap<Value, u32> = SecondaryMap::with_default(u32::MAX);
        let mut numbered = |run: &mut Run, v: Value| {
            if number[v] == u32::MAX {
                number[v] = run.homes.len() as u32;
                run.homes.push((home(func, v), 0));
            }
            number[v]
        };
        let mut last: [Option<u32>; 2] = [None; 2];
        for (&op, k) in ops.iter().zip(0u32..) {
            let product = matches!(func.opcode(op), Opcode::AsyncDot | Opcode::Dot);
            let stays = || {
                let load = func.is_weak(op) && !func.opcode(op).has(Traits::WRITES_GLOBAL);
                let kept = |v: Value| written.is_some_and(|w| !w.contains(v));
                matches!(func.opcode(op), Opcode::TiledLoad) && load && view_of(func, op).is_some_and(kept)
            };
            let pure = !product && (func.opcode(op).has(Traits::PURE) || stays());
            for &v in func.operands(op) {
                if let Some(def) = func.defining_op(v).map(|d| at[d]).filter(|&d| d != u32::MAX) {
                    run.edge(def, k);
                }
                // A product reads memory.
                let id = numbered(&mut run, v);
                if !product && func.value_data(v).is_tile() && !run.reads[k as usize].contains(&id) {
                    run.reads[k as usize].push(id);
                }
            }
            for &v in func.results(op) {
                let id = numbered(&mut run, v);
                run.makes[k as usize].push(id);
            }
            if !pure {
                let kind = &mut last[usize::from(product)];
                if let Some(prev) = kind.replace(k) {
                    run.edge(prev, k);
                }
            }
            // Who reads an accumulator, before and behind the product that goes on with it.
            if let Some(acc) = func.named_operand(op, "acc").filter(|_| product) {
                for (&other, o) in ops.iter().zip(0u32..) {
                    if o != k && func.operands(other).contains(&acc) {
                        if o < k { run.edge(o, k) } else { run.edge(k, o) }
                    }
                }
            }
        }
        // Uses: those of the run, and one for all outside.
        let inside: SmallVec<[u32; 64]> = run.reads.iter().flatten().copied().collect();
        inside.into_iter().for_each(|v| run.homes[v as usize].1 += 1);
        for op in func.ops().filter(|&op| at[op] == u32::MAX) {
            for &v in func.operands(op) {
                if number[v] != u32::MAX {
                    run.homes[number[v] as usize].1 += 1;
                }
            }
        }
        run
    }

    fn edge(&mut self, from: u32, to: u32) {
        if !self.behind[from as usize].contains(&to) {
            self.behind[from as usize].push(to);
            self.before[to as usize] += 1;
        }
    }

    /// Bits that an op adds to those in registers.
    fn adds(&self, k: usize, open: &[bool]) -> i64 {
        let mut sum = 0;
        for &v in &self.reads[k] {
            let (home, uses) = self.homes[v as usize];
            let (held, bits) = match home {
                Home::None => continue,
                Home::Registers(bits) => (true, bits),
                Home::Memory(bits) => (open[v as usize], bits),
            };
            let bits = bits as i64;
            sum += if held { 0 } else { bits } - if uses == 1 { bits } else { 0 };
        }
        for &v in &self.makes[k] {
            if let (Home::Registers(bits), 1..) = self.homes[v as usize] {
                sum += bits as i64;
            }
        }
        sum
    }

    fn order(mut self) -> Vec<usize> {
        let n = self.before.len();
        let mut open = vec![false; self.homes.len()];
        let mut ready: Vec<usize> = (0..n).filter(|&k| self.before[k] == 0).collect();
        let mut out = Vec::with_capacity(n);
        while let Some((i, &k)) = ready.iter().enumerate().min_by_key(|&(_, &k)| (self.adds(k, &open), k)) {
            ready.swap_remove(i);
            out.push(k);
            for &v in &self.reads[k] {
                open[v as usize] = true;
                self.homes[v as usize].1 -= 1;
            }
            for to in std::mem::take(&mut self.behind[k]) {
                self.before[to as usize] -= 1;
                if self.before[to as usize] == 0 {
                    ready.push(to as usize);
                }
            }
        }
        out
    }
}
